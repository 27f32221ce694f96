/* Refining: more exact rows into a destination that a submission has filled.
 *
 *   a request's ring:   [delivery | delivery | ...          ]   the oldest make room
 *   delivery            ticket, layer, destination; a layered one: [tags][scores][exact bits]
 *
 *   refine   scores -> the k best rows -> less those that are exact -> (the best that the budget
 *            takes) -> read, each over its codes' values, its bit set
 *
 * Scores are those that the delivery's own set was chosen by, so a longer set begins with the same
 * rows: the destination becomes what a delivery with this share had been, whatever ended that one
 * early. Codes are neither read nor decoded. Where an item ranks (ahead, rescore), its scores take
 * their place, and codes are needed to make them.
 *
 *   ahead    [codes' values, no scores yet] -> the first item with queries scores and chooses
 *            (decisions/0012) -> as above
 *   rescore  [whatever is exact] -> the item's queries score and choose -> as above; what is exact
 *            stays so
 *
 * Holds: a row's bit is set after its exact bytes stand in the destination; a delivery that a call
 * works at keeps its place; what another delivery wrote over is refined no more.
 * Does not: allocate after open; rank a second time unasked; keep queries, codes or rows.
 * Threads: whose turn the request's loads are.
 * Tests: tests/unit/plugin/test_refine.c, test_rescore.c, conformance (abi_163_* .. abi_168_*,
 *        abi_184_*, abi_185_*) */
#include "plugin/select.h"

#include <math.h>
#include <string.h>

#define GRAIN 128u /* of the ring: a delivery's head fits into what is left at its end */

struct sc_plugin_delivery {
    uint64_t bytes;     /* of the ring, this head included */
    spec_ticket ticket; /* 0: nothing stands here */
    uint32_t layer;
    uint32_t busy;   /* items of the running call that hold it */
    bool is_void;    /* of no use any more */
    bool has_lost;   /* another one of its ticket is not kept */
    bool is_done;    /* it stands in the destination */
    bool is_whole;   /* all of it exactly */
    bool came_ahead; /* of its queries */
    bool is_ahead;   /* and its rows are ranked by what refines it first */
    uint32_t bits_k, bits_v;
    void *k_base, *v_base;
    uint64_t where; /* digest of the destination's description */
    uint64_t *tags; /* [rows * tags a row] */
    float *scores;  /* [rows] */
    uint64_t *bits; /* of rows that are exact */
};
_Static_assert(sizeof(struct sc_plugin_delivery) <= GRAIN, "a head is one grain at most");

static uint64_t grains(uint64_t bytes)
{
    return (bytes + GRAIN - 1) / GRAIN * GRAIN;
}

/* ---- The ring ------------------------------------------------------------------------------- */

static struct sc_plugin_delivery *delivery_at(const spec_connector *conn,
                                              const struct sc_plugin_request *request, uint64_t at)
{
    return (struct sc_plugin_delivery *)(void *)(request->deliveries + at % conn->delivery_bytes);
}

void sc_plugin_deliveries_forget(struct sc_plugin_request *request)
{
    request->delivery_first = request->delivery_end = 0;
    request->delivery_lost = 0;
}

/* A delivery of this ticket is not kept: what it was cannot be said any more. */
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

/* Room for so many bytes; NULL: it is less than that, or held. */
static struct sc_plugin_delivery *ring_take(const spec_connector *conn,
                                            struct sc_plugin_request *request, uint64_t bytes)
{
    uint64_t left = conn->delivery_bytes - request->delivery_end % conn->delivery_bytes;
    uint64_t skipped = left < bytes ? left : 0;
    if (bytes > conn->delivery_bytes)
        return NULL;
    while (request->delivery_end + skipped + bytes - request->delivery_first >
           conn->delivery_bytes) {
        if (request->delivery_first == request->delivery_end) { /* empty: it begins anew */
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
    if (conn->config.base != SC_BASE_COARSE || each == 0)
        return SPEC_OK;
    uint8_t *memory = sc_alloc(&conn->alloc, count * each);
    if (memory == NULL)
        return sc_fail(reterr, SPEC_E_NO_MEMORY, "layered.refine_bytes: %" PRIu64, count * each);
    conn->delivery_bytes = each;
    for (uint64_t i = 0; i < count; i++)
        conn->requests[i].deliveries = memory + i * each;
    return SPEC_OK;
}

void sc_plugin_deliveries_close(spec_connector *conn)
{
    if (conn->requests != NULL) /* request 0 has the first of all */
        sc_alloc_free(&conn->alloc, conn->requests[0].deliveries);
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

/* Of the ring. */
static uint64_t bytes_of(const spec_connector *conn, uint64_t rows)
{
    return grains(GRAIN + tag_bytes_of(conn, rows) + score_bytes_of(rows) +
                  (rows + 63) / 64 * sizeof(uint64_t));
}

/* Of which the item's delivery keeps something. */
static uint64_t rows_kept(const struct sc_plugin_item *item)
{
    return item->want.selects ? item->want.row_total : 0;
}

bool sc_plugin_delivery_fits(const spec_connector *conn, const struct sc_plugin_item *item)
{
    return bytes_of(conn, rows_kept(item)) <= conn->delivery_bytes;
}

/* What the item's destination is, to the slots of its rows. */
static uint64_t where_of(const struct sc_plugin_item *item)
{
    const struct sc_kernels_memory *memory = &item->memory;
    uint64_t rows = item->request->matched_tokens - item->request->from_token;
    const uint64_t numbers[] = {memory->token_stride_bytes,
                                memory->head_stride_bytes,
                                memory->block_tokens,
                                memory->block_stride_bytes,
                                memory->k_element_stride_bytes,
                                memory->v_token_stride_bytes,
                                item->widen};
    uint64_t digest = sc_hash_bytes64(numbers, sizeof(numbers), memory->slots != NULL);
    if (memory->slots != NULL)
        digest = sc_hash_bytes64(memory->slots, rows * sizeof(int64_t), digest);
    return digest;
}

void sc_plugin_delivery_hold(const struct sc_plugin_item *item)
{
    if (item->delivery != NULL) /* refined: sc_plugin_refine_check found it */
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
        if (delivery->layer == item->in.layer || delivery->k_base == item->memory.k_base)
            delivery->is_void = true;
    }
    if (item->ticket == 0 || conn->delivery_bytes == 0)
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
    delivery->k_base = item->memory.k_base;
    delivery->v_base = item->memory.v_base;
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
    memcpy(delivery->tags, sc_store_sketch_tags(item->sketch), tag_bytes_of(conn, rows));
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

/* ---- Refining ------------------------------------------------------------------------------- */

spec_status sc_plugin_refine_check(spec_connector *conn, struct sc_plugin_item *item,
                                   struct spec_error *reterr)
{
    struct sc_plugin_request *request = item->request;
    spec_ticket ticket = item->in.refine_of;
    struct sc_plugin_delivery *delivery;
    uint64_t where = where_of(item);
    bool is_known = false, is_of_layer = false, is_stale = false;
    for (uint64_t at = request->delivery_first; at < request->delivery_end; at += delivery->bytes) {
        delivery = delivery_at(conn, request, at);
        if (delivery->ticket != ticket || !delivery->is_done)
            continue;
        is_known = true;
        is_stale = is_stale || delivery->has_lost;
        if (delivery->layer != item->in.layer)
            continue;
        is_of_layer = true;
        if (delivery->k_base != item->memory.k_base || delivery->v_base != item->memory.v_base ||
            delivery->where != where)
            continue;
        is_stale = is_stale || delivery->is_void;
        if (delivery->is_void)
            continue;
        item->delivery = delivery;
        return SPEC_OK;
    }
    if (is_known && !is_stale)
        return sc_fail(
            reterr, SPEC_E_INVALID,
            "get_important: refine_of: ticket %#" PRIx64 " delivered layer %" PRIu32 " %s", ticket,
            item->in.layer, is_of_layer ? "to another destination" : "to nowhere");
    if (!is_known && !sc_plugin_submit_knows(conn, ticket))
        return sc_fail(reterr, SPEC_E_INVALID,
                       "get_important: refine_of: %#" PRIx64 " is no submission's ticket", ticket);
    return sc_fail(reterr, SPEC_E_STALE,
                   "get_important: refine_of: of ticket %#" PRIx64
                   " this request keeps no delivery of layer %" PRIu32,
                   ticket, item->in.layer);
}

bool sc_plugin_refine_came_ahead(const struct sc_plugin_item *item)
{
    return item->delivery->came_ahead;
}

bool sc_plugin_refine_chooses(const struct sc_plugin_item *item)
{
    return (item->delivery->is_ahead || sc_plugin_rescores(&item->in)) && !item->delivery->is_whole;
}

/* The best of rest->rows, as many as the budget takes. */
static uint64_t cut(spec_connector *conn, struct sc_plugin_item *item, uint64_t count,
                    uint32_t *rows)
{
    uint64_t most = item->in.budget_bytes / conn->row_bytes;
    if (item->in.budget_bytes == 0 || count <= most)
        return count;
    item->want.is_cut = true;
    struct sc_plugin_scratch *scratch =
        most > 0 ? sc_plugin_scratch_take(conn, item->deadline_ns) : NULL;
    if (scratch == NULL) /* the deadline came before the ranking */
        return 0;
    for (uint64_t row = 0; row < item->want.row_total; row++)
        scratch->scores[row] = -INFINITY;
    for (uint64_t i = 0; i < count; i++)
        scratch->scores[rows[i]] = item->delivery->scores[rows[i]];
    sc_kernels_topk(conn->kernels, scratch->scores, item->want.row_total, most, rows);
    sc_plugin_scratch_put(conn, scratch);
    return most;
}

/* By what the item gives, and the delivery's ranking is that from now on. Without codes there is
 * none: a delivery ahead still waits for one, another keeps the one that it had. */
static uint64_t set_choose(spec_connector *conn, struct sc_plugin_item *item)
{
    item->ranking = item->delivery->scores;
    if (!sc_plugin_set_choose(conn, item)) { /* what stands there is what there is */
        item->want.is_cut = true;
        return 0;
    }
    item->delivery->is_ahead = item->delivery->is_ahead && item->ranking == NULL;
    return item->row_count;
}

/* The rows that shall be exact, into the request's set; how many. */
static uint64_t set_of(spec_connector *conn, struct sc_plugin_item *item)
{
    struct sc_plugin_request *request = item->request;
    uint64_t total = item->want.row_total, k = item->want.row_count;
    if (k == 0)
        return 0;
    bool is_open = item->delivery->is_ahead && k < total - request->coarse_rows;
    if (is_open || sc_plugin_rescores(&item->in)) /* else all need no ranking, or they have one */
        return set_choose(conn, item);
    sc_kernels_topk(conn->kernels, item->delivery->scores, total, k, request->set);
    return k;
}

spec_status sc_plugin_refine_start(spec_connector *conn, struct sc_plugin_item *item,
                                   enum sc_exec_lane lane, struct spec_error *reterr)
{
    struct sc_plugin_request *request = item->request;
    const struct sc_plugin_delivery *delivery = item->delivery;
    uint32_t *rows = request->readers[SC_PLUGIN_REST].rows;
    uint64_t count = 0;
    item->set_count = 0;
    if (delivery->is_void)
        return sc_fail(reterr, SPEC_E_STALE,
                       "get_important: refine_of: an item of the same call delivers layer %" PRIu32
                       " anew",
                       item->in.layer);
    if (delivery->is_whole)
        return SPEC_OK;
    uint64_t k = set_of(conn, item);
    for (uint64_t i = 0; i < k; i++)
        if (!(delivery->bits[request->set[i] / 64] >> (request->set[i] % 64) & 1))
            rows[count++] = request->set[i];
    item->set_count = cut(conn, item, count, rows);
    if (item->set_count > 0)
        sc_plugin_rest_begin(conn, request, item->in.layer, item->set_count, delivery->tags, lane);
    return SPEC_OK;
}

static uint64_t exact_rows(const struct sc_plugin_item *item)
{
    uint64_t count = 0, words = sc_plugin_words_of(item);
    if (item->delivery->is_whole)
        return item->want.row_total;
    for (uint64_t w = 0; w < words; w++)
        count += (uint64_t)__builtin_popcountll(item->delivery->bits[w]);
    return count;
}

void sc_plugin_refine_tell(struct sc_plugin_item *item)
{
    struct spec_important *in = &item->in;
    const struct sc_plugin_delivery *delivery = item->delivery;
    uint64_t total = item->want.row_total;
    if (delivery->is_void)
        return;
    in->row_count = in->union_rows = total;
    in->exact_rows = exact_rows(item);
    for (uint64_t j = 0; in->positions != NULL && j < total; j++)
        in->positions[j] = (uint32_t)(item->request->from_token + j);
    if (in->exact_bits != NULL && delivery->is_whole)
        sc_plugin_bits_all(in->exact_bits, total);
    else if (in->exact_bits != NULL)
        memcpy(in->exact_bits, delivery->bits, sc_plugin_words_of(item) * sizeof(*delivery->bits));
    in->provenance = item->request->provenance;
    if (in->exact_rows < total)
        sc_plugin_layered_worth(item, delivery->bits_k, delivery->bits_v);
}

spec_status sc_plugin_refine_finish(spec_connector *conn, struct sc_plugin_item *item,
                                    struct spec_error *reterr)
{
    uint64_t before = exact_rows(item);
    spec_status status = SPEC_OK;
    item->placed = item->delivery->bits;
    if (item->set_count > 0)
        status = sc_plugin_rest_take(conn, item, reterr);
    bool is_late = status == SPEC_E_TIMEOUT;
    sc_plugin_refine_tell(item);
    item->in.tier_rows[SPEC_TIER_DISK] = item->in.exact_rows - before;
    if (item->in.exact_rows == item->want.row_total - item->request->coarse_rows)
        item->delivery->is_ahead = false; /* nothing is left to choose */
    if (is_late || item->want.is_cut)
        item->in.result_flags |= SPEC_IMPORTANT_PARTIAL;
    uint64_t more = item->in.exact_rows - before;
    atomic_fetch_add_explicit(&conn->stats.refined_layers, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&conn->stats.refined_rows, more, memory_order_relaxed);
    return is_late ? SPEC_OK : status;
}
