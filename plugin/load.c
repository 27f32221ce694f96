/* Loading: begin_layer, get_important at k = R, prefetch_next.
 *
 *   reader 0: layers 0 2 4 ...     frames -> verified rows -> unpacked into the destination,
 *   reader 1: layers 1 3 5 ...     one while the other reads ahead
 *
 * Holds: rows reach the destination after their tags were checked, on the caller's thread, inside
 * the call; of the items of one call, only the one being consumed draws on the demand share of the
 * staging frames, so that calls side by side always progress.
 * Does not: allocate, choose rows (with selection, k < R, a planner joins here).
 * Threads: calls for one request do not overlap (ABI); requests are independent.
 * Tests: conformance (abi_040_* .. abi_071_*) */
#include "plugin/args.h"
#include "plugin/connector.h"

#include <string.h>

static uint64_t row_total(const struct sc_plugin_request *request)
{
    return request->matched_tokens - request->from_token;
}

static bool loads(const struct sc_plugin_request *request)
{
    return request->range_count > 0 && request->failed_position == UINT64_MAX;
}

void sc_plugin_readers_cancel(struct sc_plugin_request *request)
{
    for (uint32_t i = 0; i < SC_PLUGIN_READERS; i++) {
        sc_store_reader_cancel(request->readers[i].reader);
        request->readers[i].layer = SC_PLUGIN_NO_LAYER;
    }
}

/* Makes sure that the layer is being read; returns true when it was already. */
static bool start_layer(spec_connector *conn, struct sc_plugin_request *request, uint32_t layer,
                        enum sc_exec_lane lane)
{
    struct sc_plugin_reader *reader = &request->readers[layer % SC_PLUGIN_READERS];
    if (reader->layer == layer) {
        if (lane == SC_LANE_DEMAND)
            sc_store_reader_demand(reader->reader);
        return true;
    }
    sc_store_reader_cancel(reader->reader);
    reader->layer = layer;
    reader->begin_ns = sc_exec_now_ns(conn->exec);
    sc_store_reader_begin(reader->reader, layer, request->ranges, request->range_count, lane);
    return false;
}

static spec_status check_layer(const spec_connector *conn, uint32_t layer, const char *call,
                               struct spec_error *reterr)
{
    if (layer >= conn->layer_count)
        return sc_fail(reterr, SPEC_E_INVALID,
                       "%s: layer is %" PRIu32 ", the model has %" PRIu32 " layers", call, layer,
                       conn->layer_count);
    return SPEC_OK;
}

spec_status sc_plugin_begin_layer(spec_connector *conn, const spec_request *requests,
                                  uint64_t count, uint32_t layer, struct spec_error *reterr)
{
    if (requests == NULL || count == 0 || count > SC_LIMIT_BATCH)
        return sc_fail(reterr, SPEC_E_INVALID, "begin_layer: 1 .. %u requests expected",
                       SC_LIMIT_BATCH);
    spec_status status = check_layer(conn, layer, "begin_layer", reterr);
    if (status != SPEC_OK)
        return status;
    for (uint64_t i = 0; i < count; i++)
        if (sc_plugin_request_find(conn, requests[i]) == NULL)
            return sc_plugin_stale(requests[i], reterr);
    for (uint32_t ahead = 0; ahead < SC_PLUGIN_READERS; ahead++)
        for (uint64_t i = 0; i < count && layer + ahead < conn->layer_count; i++) {
            struct sc_plugin_request *request = sc_plugin_request_find(conn, requests[i]);
            if (loads(request))
                start_layer(conn, request, layer + ahead, SC_LANE_SPECULATIVE);
        }
    return SPEC_OK;
}

spec_status sc_plugin_prefetch_next(spec_connector *conn, spec_request handle, uint32_t layer,
                                    const struct spec_queries *hint, struct spec_error *reterr)
{
    struct sc_plugin_request *request = sc_plugin_request_find(conn, handle);
    if (request == NULL)
        return sc_plugin_stale(handle, reterr);
    spec_status status = check_layer(conn, layer, "prefetch_next", reterr);
    struct spec_queries queries; /* whole layers need no ranking: the hint is only checked */
    if (status == SPEC_OK && hint != NULL)
        status =
            sc_plugin_args_read(&queries, sizeof(queries), hint, "prefetch_next: hint", reterr);
    if (status != SPEC_OK)
        return status;
    if (layer + 1 < conn->layer_count && loads(request))
        start_layer(conn, request, layer + 1, SC_LANE_SPECULATIVE);
    return SPEC_OK;
}

/* What one item of a call needs, checked. */
struct load_item {
    struct spec_important in; /* the host's structure, as far as it reaches */
    struct sc_plugin_request *request;
    struct sc_kernels_memory memory;
    uint32_t widen;
    bool was_started;
};

static struct spec_important *item_at(struct spec_important *items, uint64_t i)
{
    return (struct spec_important *)(void *)((uint8_t *)items + i * items[0].struct_size);
}

/* Every row is delivered, so queries and new keys choose nothing: they are only checked. */
static spec_status check_unneeded(const struct spec_important *in, struct spec_error *reterr)
{
    struct spec_queries queries;
    struct spec_memory new_keys;
    spec_status status = SPEC_OK;
    if (in->queries != NULL)
        status = sc_plugin_args_read(&queries, sizeof(queries), in->queries,
                                     "get_important: queries", reterr);
    if (status == SPEC_OK && in->new_keys != NULL)
        status = sc_plugin_args_read(&new_keys, sizeof(new_keys), in->new_keys,
                                     "get_important: new_keys", reterr);
    return status;
}

static spec_status check_item(spec_connector *conn, struct spec_important *items, uint64_t i,
                              struct load_item *ret_item, struct spec_error *reterr)
{
    struct spec_important *in = &ret_item->in;
    uint32_t struct_size; /* before the rest: a larger one would reach behind the element */
    memcpy(&struct_size, item_at(items, i), sizeof(struct_size));
    if (struct_size != items[0].struct_size)
        return sc_fail(reterr, SPEC_E_INVALID,
                       "get_important: items[%" PRIu64 "] has another struct_size than the first",
                       i);
    spec_status status =
        sc_plugin_args_read(in, sizeof(*in), item_at(items, i), "get_important: items", reterr);
    if (status != SPEC_OK)
        return status;
    if (in->flags != 0 || in->reserved != 0)
        return sc_fail(reterr, SPEC_E_INVALID,
                       "get_important: items[%" PRIu64 "]: flags and reserved must be 0", i);
    status = check_layer(conn, in->layer, "get_important", reterr);
    if (status != SPEC_OK)
        return status;
    if (in->refine_of != 0 || in->exact_bits != NULL)
        return sc_fail(reterr, SPEC_E_UNSUPPORTED,
                       "get_important: refine_of and exact_bits belong to layered KV");
    status = check_unneeded(in, reterr);
    if (status != SPEC_OK)
        return status;
    ret_item->request = sc_plugin_request_find(conn, in->request);
    if (ret_item->request == NULL)
        return sc_plugin_stale(in->request, reterr);
    uint64_t rows = row_total(ret_item->request);
    if (in->positions != NULL && in->position_capacity < rows)
        return sc_fail(reterr, SPEC_E_INVALID,
                       "get_important: position_capacity is %" PRIu64 ", expected %" PRIu64,
                       in->position_capacity, rows);
    return sc_plugin_memory_check(in->destination, "get_important: destination",
                                  SC_MEMORY_DESTINATION, &conn->shape, rows, &ret_item->memory,
                                  &ret_item->widen, reterr);
}

/* The match is void from the failed piece on; later lookups do not find it. */
static void fail_request(spec_connector *conn, struct sc_plugin_request *request, uint64_t range,
                         spec_status why)
{
    uint64_t piece = request->ranges[range].piece;
    uint64_t first = 0;
    while (request->segments[first].value.piece != piece)
        first++;
    request->failed_position = request->segments[first].first > request->from_token
                                   ? request->segments[first].first
                                   : request->from_token;
    request->failed_status = why;
    atomic_fetch_add_explicit(&conn->stats.corrupt_ranges, 1, memory_order_relaxed);
    SC_LOG(&conn->log, SPEC_LOG_WARN, "piece %" PRIu64 " at token %" PRIu64 " failed (%s), dropped",
           piece, request->segments[first].first, sc_status_name(why));
    sc_plugin_readers_cancel(request);
    sc_plugin_pass_void(request);
    sc_plugin_piece_fail(conn, request->segments[first].node, piece);
}

static void note_rate(spec_connector *conn, const struct sc_store_read_cost *cost,
                      uint64_t begin_ns)
{
    uint64_t took_ns = sc_exec_now_ns(conn->exec) - begin_ns;
    if (took_ns == 0 || cost->read_bytes < (1u << 20))
        return; /* too little to say anything about the device */
    uint64_t rate = (uint64_t)((double)cost->read_bytes * 1e9 / (double)took_ns);
    uint64_t old = atomic_load_explicit(&conn->load_bytes_per_s, memory_order_relaxed);
    atomic_store_explicit(&conn->load_bytes_per_s, old == 0 ? rate : old - old / 8 + rate / 8,
                          memory_order_relaxed);
}

/* Consumes one item's reader to its end. On return the result members of `in` are set. */
static spec_status load_one(spec_connector *conn, struct load_item *item, uint64_t deadline_ns,
                            struct spec_error *reterr)
{
    struct sc_plugin_request *request = item->request;
    struct sc_plugin_reader *reader = &request->readers[item->in.layer % SC_PLUGIN_READERS];
    struct sc_kernels_unpack how = {
        .kernels = conn->kernels,
        .head_count = conn->shape.kv_head_count,
        .head_size = conn->shape.head_size,
        .element_bytes = sc_plugin_dtype_bytes(conn->shape.dtype),
        .widen = item->widen,
    };
    sc_store_reader_demand(reader->reader);
    uint64_t count = row_total(request), bite = SC_STORE_BITE_BYTES / conn->row_bytes;
    bite = bite > 0 ? bite : 1;
    struct sc_store_rows rows = {0};
    spec_status status;
    for (uint64_t row = 0;; row += rows.row_count) {
        uint64_t ahead = bite < count - row ? bite : count - row; /* while tags are checked */
        sc_kernels_rows_prefetch(&how, &item->memory, row, ahead);
        status = sc_store_reader_next(reader->reader, deadline_ns, &rows, reterr);
        if (status != SPEC_OK || rows.row_count == 0)
            break;
        sc_kernels_rows_unpack(&how, &item->memory, rows.row_first, rows.row_count, rows.rows);
    }
    struct sc_store_read_cost cost;
    sc_store_reader_cost(reader->reader, &cost);
    item->in.wanted_bytes = cost.wanted_bytes;
    item->in.read_bytes = cost.read_bytes;
    item->in.io_ops = cost.op_count;
    item->in.io_exposed_ns = cost.wait_ns;
    atomic_fetch_add_explicit(&conn->stats.exposed_ns, cost.wait_ns, memory_order_relaxed);
    atomic_fetch_add_explicit(&conn->stats.wanted_bytes, cost.wanted_bytes, memory_order_relaxed);
    if (status == SPEC_OK && !item->was_started)
        note_rate(conn, &cost, reader->begin_ns);
    reader->layer = SC_PLUGIN_NO_LAYER; /* consumed; the same layer may be asked for again */
    if (status == SPEC_E_TIMEOUT)
        sc_store_reader_cancel(reader->reader);
    else if (status != SPEC_OK)
        fail_request(conn, request, rows.failed_range, status);
    return status;
}

static spec_status serve_item(spec_connector *conn, struct load_item *item, uint64_t now_ns,
                              struct spec_error *reterr)
{
    struct sc_plugin_request *request = item->request;
    struct spec_important *in = &item->in;
    uint64_t rows = row_total(request);
    in->next_position = request->matched_tokens;
    in->failed_position = UINT64_MAX;
    if (request->failed_position != UINT64_MAX) {
        in->failed_position = request->failed_position;
        return sc_fail(reterr, request->failed_status,
                       "request %#" PRIx64 " is void from token %" PRIu64 " on", in->request,
                       request->failed_position);
    }
    if (rows == 0)
        return SPEC_OK;
    start_layer(conn, request, in->layer, SC_LANE_DEMAND);
    uint64_t deadline_ns = SC_EXEC_FOREVER;
    if (in->deadline_ns != 0 && in->deadline_ns < SC_EXEC_FOREVER - now_ns)
        deadline_ns = now_ns + in->deadline_ns;
    spec_status status = load_one(conn, item, deadline_ns, reterr);
    if (status != SPEC_OK) {
        in->failed_position = request->failed_position;
        return status;
    }
    in->row_count = rows;
    in->exact_rows = rows;
    in->tier_rows[SPEC_TIER_DISK] = rows;
    in->prefetched_rows = item->was_started ? rows : 0;
    in->provenance = request->provenance;
    for (uint64_t j = 0; in->positions != NULL && j < rows; j++)
        in->positions[j] = (uint32_t)(request->from_token + j);
    atomic_fetch_add_explicit(item->was_started ? &conn->stats.prefetched_rows
                                                : &conn->stats.demanded_rows,
                              rows, memory_order_relaxed);
    return SPEC_OK;
}

/* Results are zero unless serve_item sets them. */
static void clear_results(struct spec_important *in)
{
    uint64_t first = offsetof(struct spec_important, status);
    memset((uint8_t *)in + first, 0, offsetof(struct spec_important, select) - first);
}

spec_status sc_plugin_get_important(spec_connector *conn, struct spec_important *items,
                                    uint64_t count, struct spec_error *reterr)
{
    if (items == NULL || count == 0 || count > SC_LIMIT_BATCH)
        return sc_fail(reterr, SPEC_E_INVALID, "get_important: 1 .. %u items expected",
                       SC_LIMIT_BATCH);
    struct load_item work[SC_LIMIT_BATCH];
    for (uint64_t i = 0; i < count; i++) {
        spec_status status = check_item(conn, items, i, &work[i], reterr);
        if (status != SPEC_OK)
            return status;
    }
    uint64_t now_ns = sc_exec_now_ns(conn->exec);
    for (uint64_t i = 0; i < count; i++) {
        enum sc_exec_lane lane = i == 0 ? SC_LANE_DEMAND : SC_LANE_SPECULATIVE;
        work[i].was_started =
            loads(work[i].request) && start_layer(conn, work[i].request, work[i].in.layer, lane);
    }
    spec_status first_status = SPEC_OK;
    for (uint64_t i = 0; i < count; i++) {
        struct spec_important *in = &work[i].in;
        clear_results(in);
        in->status = serve_item(conn, &work[i], now_ns, first_status == SPEC_OK ? reterr : NULL);
        if (first_status == SPEC_OK)
            first_status = in->status;
        sc_plugin_args_write(item_at(items, i), in, sizeof(*in));
    }
    return first_status;
}
