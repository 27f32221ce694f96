/* select.sticky first: what a request's first pass chose at a layer is kept for its later ones.
 *
 *   kept       [request][layer]                  route, count, similarity
 *   kept_bits  [request][layer][KV head][words]  PICKS: the set in head 0's place
 *
 * Holds: a request's sets are forgotten when its slot is used again. A layer that was delivered
 * whole has kept nothing: its next pass chooses.
 * Threads: the request's host thread.
 * Tests: tests/unit/plugin/test_select.c */
#include "plugin/select.h"

#include <string.h>

static uint64_t words_max(const spec_connector *conn)
{
    return ((uint64_t)conn->config.max_request_tokens + 63) / 64;
}

spec_status sc_plugin_sticky_open(spec_connector *conn, struct spec_error *reterr)
{
    uint64_t sets = (uint64_t)conn->config.max_requests * conn->layer_count, words;
    if (conn->config.sticky != SC_STICKY_FIRST)
        return SPEC_OK;
    bool fits = !__builtin_mul_overflow(sets * conn->shape.kv_head_count, words_max(conn), &words);
    conn->kept = sc_alloc_array(&conn->alloc, sets, sizeof(*conn->kept));
    conn->kept_bits = fits ? sc_alloc(&conn->alloc, words * sizeof(uint64_t)) : NULL;
    if (conn->kept == NULL || conn->kept_bits == NULL)
        return sc_fail(reterr, SPEC_E_NO_MEMORY, "select.sticky: %" PRIu64 " sets", sets);
    return SPEC_OK;
}

void sc_plugin_sticky_close(spec_connector *conn)
{
    sc_alloc_free(&conn->alloc, conn->kept);
    sc_alloc_free(&conn->alloc, conn->kept_bits);
}

static uint64_t index_of(const spec_connector *conn, const struct sc_plugin_request *request,
                         uint32_t layer)
{
    return (uint64_t)(request - conn->requests) * conn->layer_count + layer;
}

void sc_plugin_sticky_forget(spec_connector *conn, const struct sc_plugin_request *request)
{
    if (conn->kept != NULL)
        memset(&conn->kept[index_of(conn, request, 0)], 0, conn->layer_count * sizeof(*conn->kept));
}

static uint64_t *bits_of(const spec_connector *conn, const struct sc_plugin_item *item)
{
    return conn->kept_bits + index_of(conn, item->request, item->in.layer) *
                                 conn->shape.kv_head_count * words_max(conn);
}

const uint64_t *sc_plugin_sticky_find(const spec_connector *conn, struct sc_plugin_item *item)
{
    if (conn->kept == NULL)
        return NULL;
    const struct sc_plugin_kept *kept = &conn->kept[index_of(conn, item->request, item->in.layer)];
    if (kept->row_count == 0)
        return NULL;
    item->route = kept->route;
    item->row_count = kept->row_count;
    item->in.similarity = kept->similarity;
    item->in.threshold = kept->threshold;
    return bits_of(conn, item);
}

void sc_plugin_sticky_keep(spec_connector *conn, const struct sc_plugin_item *item,
                           const uint64_t *bits)
{
    if (conn->kept == NULL)
        return;
    uint64_t sets = item->route == SC_ROUTE_PICKS ? 1 : conn->shape.kv_head_count;
    conn->kept[index_of(conn, item->request, item->in.layer)] =
        (struct sc_plugin_kept){.route = item->route,
                                .row_count = item->row_count,
                                .similarity = item->in.similarity,
                                .threshold = item->in.threshold};
    memcpy(bits_of(conn, item), bits, sets * sc_plugin_words_of(item) * sizeof(*bits));
}
