/* delivery: the ring of a request's deliveries. Contract and drawing: delivery.h. */
#include "plugin/select/delivery.h"
#include "plugin/select/item.h"

#include <string.h>

#define GRAIN 128u /* bytes; a header fits into any rest at the ring's end */

_Static_assert(sizeof(struct sc_plugin_delivery) <= GRAIN, "a head is one grain at most");

/* ---- The ring ------------------------------------------------------------------------------- */

static struct sc_plugin_delivery *delivery_at(const spec_connector *conn,
                                              const struct sc_plugin_request *request, uint64_t at)
{
    return (struct sc_plugin_delivery *)(void *)(request->deliveries +
                                                 at % conn->requests.delivery_bytes);
}

void sc_plugin_deliveries_forget(struct sc_plugin_request *request)
{
    request->delivery_first = request->delivery_end = 0;
    request->delivery_lost = 0;
}

/* Records that a delivery of this ticket is not kept; refining the ticket is STALE. */
static void lost_note(const spec_connector *conn, struct sc_plugin_request *request,
                      spec_ticket ticket)
{
    struct sc_plugin_delivery *delivery;
    request->delivery_lost = ticket;
    for (uint64_t at = request->delivery_first; at < request->delivery_end; at += delivery->bytes) {
        delivery = delivery_at(conn, request, at);
        delivery->has_lost = delivery->has_lost || delivery->ticket == ticket;
    }
}

/* Allocates from the ring. NULL: the ring is too small, or its oldest delivery is held. */
static struct sc_plugin_delivery *ring_take(const spec_connector *conn,
                                            struct sc_plugin_request *request, uint64_t bytes)
{
    uint64_t left =
        conn->requests.delivery_bytes - request->delivery_end % conn->requests.delivery_bytes;
    uint64_t skipped = left < bytes ? left : 0;
    if (bytes > conn->requests.delivery_bytes)
        return NULL;
    while (request->delivery_end + skipped + bytes - request->delivery_first >
           conn->requests.delivery_bytes) {
        if (request->delivery_first == request->delivery_end) { /* empty: restart at 0 */
            request->delivery_first = request->delivery_end = 0;
            skipped = 0;
            break;
        }
        const struct sc_plugin_delivery *oldest =
            delivery_at(conn, request, request->delivery_first);
        if (oldest->busy > 0)
            return NULL;
        request->delivery_first += oldest->bytes;
        if (oldest->ticket != 0)
            lost_note(conn, request, oldest->ticket);
    }
    struct sc_plugin_delivery *delivery = delivery_at(conn, request, request->delivery_end);
    if (skipped > 0) {
        *delivery = (struct sc_plugin_delivery){.bytes = skipped};
        request->delivery_end += skipped;
        delivery = delivery_at(conn, request, request->delivery_end);
    }
    *delivery = (struct sc_plugin_delivery){.bytes = bytes};
    request->delivery_end += bytes;
    return delivery;
}

spec_status sc_plugin_deliveries_open(spec_connector *conn, struct spec_error *reterr)
{
    uint64_t count = conn->config.max_requests;
    uint64_t each = conn->config.refine_bytes / count / GRAIN * GRAIN;
    if (conn->config.base != SC_BASE_QUANTISED || each == 0)
        return SPEC_OK;
    uint8_t *memory = sc_alloc(&conn->alloc, count * each);
    if (memory == NULL)
        return sc_fail(reterr, SPEC_E_NO_MEMORY, "layered.refine_bytes: %" PRIu64, count * each);
    conn->requests.delivery_bytes = each;
    for (uint64_t i = 0; i < count; i++)
        conn->requests.slots[i].deliveries = memory + i * each;
    return SPEC_OK;
}

void sc_plugin_deliveries_close(spec_connector *conn)
{
    if (conn->requests.slots != NULL) /* request 0 owns the memory of all */
        sc_alloc_free(&conn->alloc, conn->requests.slots[0].deliveries);
}

/* ---- Deliveries ----------------------------------------------------------------------------- */

static uint64_t tag_bytes_of(const spec_connector *conn, uint64_t rows)
{
    return rows * (conn->config.layout == SC_STORE_SPLIT ? 2 : 1) * sizeof(uint64_t);
}

static uint64_t score_bytes_of(uint64_t rows)
{
    return (rows * sizeof(float) + 7) / 8 * 8;
}

/* Returns a delivery's bytes in the ring, in whole grains. */
static uint64_t bytes_of(const spec_connector *conn, uint64_t rows)
{
    uint64_t bytes = GRAIN + tag_bytes_of(conn, rows) + score_bytes_of(rows) +
                     (rows + 63) / 64 * sizeof(uint64_t);
    return (bytes + GRAIN - 1) / GRAIN * GRAIN;
}

/* Returns the number of rows that the delivery keeps data of. */
static uint64_t rows_kept(const struct sc_plugin_item *item)
{
    return item->want.selects ? item->want.row_total : 0;
}

bool sc_plugin_delivery_fits(const spec_connector *conn, const struct sc_plugin_item *item)
{
    return bytes_of(conn, rows_kept(item)) <= conn->requests.delivery_bytes;
}

static uint64_t where_of(const struct sc_plugin_item *item)
{
    return sc_plugin_memory_digest(&item->memory, sc_plugin_row_total(item->request));
}

void sc_plugin_delivery_hold(const struct sc_plugin_item *item)
{
    if (item->delivery != NULL) /* a refining item: sc_plugin_refine_check found it */
        item->delivery->busy++;
}

void sc_plugin_delivery_begin(const spec_connector *conn, struct sc_plugin_item *item)
{
    struct sc_plugin_request *request = item->request;
    struct sc_plugin_delivery *delivery;
    if (item->delivery != NULL)
        return;
    for (uint64_t at = request->delivery_first; at < request->delivery_end; at += delivery->bytes) {
        delivery = delivery_at(conn, request, at);
        if (delivery->layer == item->in.layer || delivery->k_base == item->memory.at.k_base)
            delivery->is_void = true;
    }
    if (item->ticket == 0 || conn->requests.delivery_bytes == 0 || sc_plugin_is_tail(&item->in))
        return;
    uint64_t rows = rows_kept(item), tag_bytes = tag_bytes_of(conn, rows);
    uint64_t score_bytes = score_bytes_of(rows);
    delivery = ring_take(conn, request, bytes_of(conn, rows));
    if (delivery == NULL) {
        lost_note(conn, request, item->ticket);
        return;
    }
    uint8_t *at = (uint8_t *)delivery + GRAIN;
    delivery->ticket = item->ticket;
    delivery->layer = item->in.layer;
    delivery->busy = 1;
    delivery->has_lost = request->delivery_lost == item->ticket;
    delivery->came_ahead = delivery->is_ahead = sc_plugin_is_ahead(&item->in);
    delivery->k_base = item->memory.at.k_base;
    delivery->v_base = item->memory.at.v_base;
    delivery->where = where_of(item);
    delivery->tags = (uint64_t *)(void *)at;
    delivery->scores = (float *)(void *)(at + tag_bytes);
    delivery->bits = (uint64_t *)(void *)(at + tag_bytes + score_bytes);
    item->delivery = delivery;
    item->ranking = item->want.selects ? delivery->scores : NULL;
}

void sc_plugin_delivery_layered(const spec_connector *conn, const struct sc_plugin_item *item,
                                uint32_t bits_k, uint32_t bits_v)
{
    struct sc_plugin_delivery *delivery = item->delivery;
    uint64_t rows = item->want.row_total;
    if (delivery == NULL)
        return;
    delivery->bits_k = bits_k;
    delivery->bits_v = bits_v;
    memcpy(delivery->tags, sc_store_selector_tags(item->selector), tag_bytes_of(conn, rows));
    memcpy(delivery->bits, item->placed, sc_plugin_words_of(item) * sizeof(*delivery->bits));
}

void sc_plugin_delivery_end(const struct sc_plugin_item *item)
{
    struct sc_plugin_delivery *delivery = item->delivery;
    if (delivery == NULL)
        return;
    delivery->busy--;
    if (item->in.refine_of != 0)
        return;
    delivery->is_done = true;
    delivery->is_whole = item->route != SC_ROUTE_LAYERED;
    if (item->in.status != SPEC_OK)
        delivery->is_void = true;
}

struct sc_plugin_found sc_plugin_delivery_find(const spec_connector *conn,
                                               const struct sc_plugin_item *item)
{
    const struct sc_plugin_request *request = item->request;
    struct sc_plugin_found found = {0};
    struct sc_plugin_delivery *delivery;
    uint64_t where = where_of(item);
    for (uint64_t at = request->delivery_first; at < request->delivery_end; at += delivery->bytes) {
        delivery = delivery_at(conn, request, at);
        if (delivery->ticket != item->in.refine_of || !delivery->is_done)
            continue;
        found.is_known = true;
        found.is_stale = found.is_stale || delivery->has_lost;
        if (delivery->layer != item->in.layer)
            continue;
        found.is_of_layer = true;
        if (delivery->k_base != item->memory.at.k_base ||
            delivery->v_base != item->memory.at.v_base || delivery->where != where)
            continue;
        found.is_stale = found.is_stale || delivery->is_void;
        if (delivery->is_void)
            continue;
        found.delivery = delivery;
        break;
    }
    return found;
}
