/* Loading: begin_layer, get_important, prefetch_next.
 *
 *   reader 0: layers 0 2 4 ...     frames -> verified rows -> unpacked into the destination,
 *   reader 1: layers 1 3 5 ...     one while the other reads ahead
 *   reader 2: rows of a set that no guess brought (select.c)
 *
 *   a call   checks of all items -> whole layers begun -> sets chosen, their rows begun, item by
 *            item -> rows consumed, item by item: the device never waits for a later item's scores
 *
 * Holds: rows reach the destination after their tags were checked, on the caller's thread, inside
 * the call; of the items of one call, only the one being consumed draws on the demand share of the
 * staging frames, so that calls side by side always progress.
 * Does not: allocate, choose rows (select.c).
 * Threads: calls for one request do not overlap (ABI); requests are independent.
 * Tests: conformance (abi_040_* .. abi_071_*), tests/unit/plugin/test_load.c */
#include "base/stream.h"
#include "kernels/columns.h"
#include "plugin/args.h"
#include "plugin/select.h"

#include <string.h>

/* What is written for one item does not stay in a core's own cache from here on. */
#define STREAM_BYTES (2ull << 20)

static uint64_t row_total(const struct sc_plugin_request *request)
{
    return request->matched_tokens - request->from_token;
}

static bool loads(const struct sc_plugin_request *request)
{
    return request->range_count > 0 && request->failed_position == UINT64_MAX;
}

void sc_plugin_loads_end(spec_connector *conn, struct sc_plugin_request *request)
{
    sc_plugin_guess_stop(request);
    for (uint32_t i = 0; i < SC_PLUGIN_READERS; i++) {
        sc_store_reader_cancel(request->readers[i].reader);
        request->readers[i].layer = SC_PLUGIN_NO_LAYER;
    }
    sc_plugin_sketches_end(conn, request);
}

/* Makes sure that the layer is being read whole; returns true when it was already. */
bool sc_plugin_layer_start(spec_connector *conn, struct sc_plugin_request *request, uint32_t layer,
                           enum sc_exec_lane lane)
{
    struct sc_plugin_reader *reader = &request->readers[layer % SC_PLUGIN_AHEAD];
    if (reader->layer == layer && reader->load == SC_LOAD_WHOLE) {
        if (lane == SC_LANE_DEMAND)
            sc_store_reader_demand(reader->reader);
        return true;
    }
    sc_store_reader_cancel(reader->reader);
    reader->layer = layer;
    reader->load = SC_LOAD_WHOLE;
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
    struct sc_plugin_request *found[SC_LIMIT_BATCH]; /* looked up once: a reset may come any time */
    for (uint64_t i = 0; i < count; i++) {
        found[i] = sc_plugin_request_find(conn, requests[i]);
        if (found[i] == NULL)
            return sc_plugin_stale(requests[i], reterr);
    }
    for (uint64_t i = 0; i < count; i++)
        if (sc_plugin_is_submitted(found[i]))
            return sc_plugin_submitted(requests[i], reterr);
    for (uint32_t ahead = 0; ahead < SC_PLUGIN_SKETCHES; ahead++)
        for (uint64_t i = 0; i < count && layer + ahead < conn->layer_count; i++)
            if (loads(found[i]))
                sc_plugin_select_ahead(conn, found[i], layer + ahead, ahead < SC_PLUGIN_AHEAD);
    return SPEC_OK;
}

spec_status sc_plugin_prefetch_next(spec_connector *conn, spec_request handle, uint32_t layer,
                                    const struct spec_queries *hint, struct spec_error *reterr)
{
    struct sc_plugin_request *request = sc_plugin_request_find(conn, handle);
    if (request == NULL)
        return sc_plugin_stale(handle, reterr);
    if (sc_plugin_is_submitted(request))
        return sc_plugin_submitted(handle, reterr);
    spec_status status = check_layer(conn, layer, "prefetch_next", reterr);
    struct spec_queries queries;
    if (status == SPEC_OK && hint != NULL)
        status = sc_plugin_queries_read(hint, "prefetch_next: hint", &queries, reterr);
    if (status == SPEC_OK && hint != NULL)
        status = sc_plugin_queries_check(conn, &queries, "prefetch_next: hint", reterr);
    if (status == SPEC_OK && hint != NULL && conn->reads_codes &&
        queries.heads == SPEC_QUERIES_PROBE)
        return sc_fail(reterr, SPEC_E_INVALID,
                       "prefetch_next: hint: all heads expected, since codes of all are scored");
    if (status != SPEC_OK)
        return status;
    for (uint32_t ahead = 1; ahead < SC_PLUGIN_SKETCHES; ahead++)
        if (layer + ahead < conn->layer_count && loads(request))
            sc_plugin_select_ahead(conn, request, layer + ahead, ahead == 1);
    if (layer + 1 < conn->layer_count && loads(request))
        sc_plugin_guess_ask(conn, request, layer + 1, hint != NULL ? &queries : NULL);
    return SPEC_OK;
}

struct spec_important *sc_plugin_item_at(struct spec_important *items, uint64_t i)
{
    return (struct spec_important *)(void *)((uint8_t *)items + i * items[0].struct_size);
}

static bool has_negative_slot(const struct sc_kernels_memory *memory, uint64_t rows)
{
    for (uint64_t j = 0; memory->slots != NULL && j < rows; j++)
        if (memory->slots[j] < 0)
            return true;
    return false;
}

/* What the item wants, and whether it can be scored and returned. */
static spec_status check_choice(spec_connector *conn, struct sc_plugin_item *item,
                                struct spec_error *reterr)
{
    struct spec_important *in = &item->in;
    spec_status status = sc_plugin_want_resolve(conn, in, item->request, &item->want, reterr);
    if (status == SPEC_OK && sc_plugin_is_ahead(in))
        sc_plugin_want_ahead(in, &item->want);
    if (status == SPEC_OK && item->is_submitted)
        sc_plugin_want_ranked(conn, in, item->request, &item->want);
    if (status == SPEC_OK)
        status =
            sc_plugin_scoring_check(conn, in, item->request, &item->want, &item->scoring, reterr);
    if (status != SPEC_OK)
        return status;
    if (sc_plugin_is_ahead(in) && !sc_plugin_delivery_fits(conn, item))
        return sc_fail(reterr, SPEC_E_BUSY,
                       "get_important: SPEC_ITEM_AHEAD: %" PRIu64
                       " rows are more than a request's share of layered.refine_bytes keeps",
                       item->want.row_total);
    uint64_t rows = row_total(item->request), needed = rows;
    if (item->want.has_head_sets && !item->scoring.is_probes_only)
        needed *= conn->shape.kv_head_count;
    if (in->positions != NULL && in->position_capacity < needed)
        return sc_fail(reterr, SPEC_E_INVALID,
                       "get_important: position_capacity is %" PRIu64 ", expected %" PRIu64,
                       in->position_capacity, needed);
    status =
        sc_plugin_memory_check(in->destination, "get_important: destination", SC_MEMORY_DESTINATION,
                               &conn->shape, rows, &item->memory, &item->widen, reterr);
    if (status == SPEC_OK && item->want.has_head_sets)
        item->has_negative_slot = has_negative_slot(&item->memory, rows);
    return status;
}

static spec_status check_refined(spec_connector *conn, struct sc_plugin_item *item,
                                 struct spec_error *reterr)
{
    struct spec_important *in = &item->in;
    uint64_t rows = row_total(item->request);
    if (in->positions != NULL && in->position_capacity < rows)
        return sc_fail(reterr, SPEC_E_INVALID,
                       "get_important: position_capacity is %" PRIu64 ", expected %" PRIu64,
                       in->position_capacity, rows);
    spec_status status =
        sc_plugin_memory_check(in->destination, "get_important: destination", SC_MEMORY_DESTINATION,
                               &conn->shape, rows, &item->memory, &item->widen, reterr);
    if (status == SPEC_OK)
        status = sc_plugin_refine_check(conn, item, reterr);
    if (status == SPEC_OK)
        status = sc_plugin_want_refine(conn, in, item->request, sc_plugin_refine_came_ahead(item),
                                       sc_plugin_refine_chooses(item), &item->want, reterr);
    if (status != SPEC_OK || !sc_plugin_refine_chooses(item)) /* queries are not looked at */
        return status;
    sc_plugin_want_ranked(conn, in, item->request, &item->want);
    return sc_plugin_scoring_check(conn, in, item->request, &item->want, &item->scoring, reterr);
}

/* Inputs that say of which kind the item is. */
static spec_status check_kind(const spec_connector *conn, const struct sc_plugin_item *item,
                              uint64_t i, struct spec_error *reterr)
{
    const struct spec_important *in = &item->in;
    bool is_ahead = sc_plugin_is_ahead(in);
    if ((in->flags & ~(SPEC_ITEM_AHEAD | SPEC_ITEM_RESCORE)) != 0 || in->reserved != 0)
        return sc_fail(reterr, SPEC_E_INVALID,
                       "get_important: items[%" PRIu64 "]: flags is %#" PRIx32
                       ", SPEC_ITEM_* expected, reserved %" PRIu32 ", 0 expected",
                       i, in->flags, in->reserved);
    if (is_ahead && (in->refine_of != 0 || !item->is_submitted))
        return sc_fail(reterr, SPEC_E_INVALID,
                       "get_important: items[%" PRIu64
                       "]: SPEC_ITEM_AHEAD is for get_important_submit, without refine_of",
                       i);
    if (sc_plugin_rescores(in) && (in->refine_of == 0 || in->queries == NULL))
        return sc_fail(reterr, SPEC_E_INVALID,
                       "get_important: items[%" PRIu64
                       "]: SPEC_ITEM_RESCORE is for an item with refine_of and queries",
                       i);
    if ((is_ahead || in->refine_of != 0) && conn->config.base != SC_BASE_COARSE)
        return sc_fail(reterr, SPEC_E_UNSUPPORTED,
                       "get_important: items[%" PRIu64
                       "]: refine_of and SPEC_ITEM_AHEAD: only where select.base is coarse",
                       i);
    return SPEC_OK;
}

static spec_status check_item(spec_connector *conn, struct spec_important *items, uint64_t i,
                              struct sc_plugin_item *ret_item, struct spec_error *reterr)
{
    struct spec_important *in = &ret_item->in;
    spec_status status = sc_plugin_args_read_at(in, &sc_plugin_form_important, items, i,
                                                "get_important: items", reterr);
    if (status != SPEC_OK)
        return status;
    status = check_kind(conn, ret_item, i, reterr);
    if (status == SPEC_OK)
        status = check_layer(conn, in->layer, "get_important", reterr);
    if (status != SPEC_OK)
        return status;
    ret_item->request = sc_plugin_request_find(conn, in->request);
    if (ret_item->request == NULL)
        return sc_plugin_stale(in->request, reterr);
    if (sc_plugin_is_submitted(ret_item->request))
        return sc_plugin_submitted(in->request, reterr);
    uint64_t words = (row_total(ret_item->request) + 63) / 64;
    if (in->exact_bits != NULL && in->exact_bit_words < words)
        return sc_fail(reterr, SPEC_E_INVALID,
                       "get_important: exact_bit_words is %" PRIu64 ", expected %" PRIu64,
                       in->exact_bit_words, words);
    return in->refine_of != 0 ? check_refined(conn, ret_item, reterr)
                              : check_choice(conn, ret_item, reterr);
}

/* The match is void from the failed piece on; later lookups do not find it, unless it is one that
 * has codes by now, and rows were asked for on a promise that is over. After a reset nothing is
 * wrong with it: what the store had was void at once. */
void sc_plugin_request_fail(spec_connector *conn, struct sc_plugin_request *request, uint64_t range,
                            spec_status why)
{
    bool is_over = request->ranges[range].is_coarse == 0 &&
                   sc_store_piece_is_coarse(conn->store, request->ranges[range].piece, 0);
    uint64_t piece = request->ranges[range].piece;
    uint64_t first = 0;
    while (request->segments[first].value.piece != piece)
        first++;
    bool is_outrun = !sc_plugin_epoch_is_current(conn, request);
    request->failed_status = is_outrun ? SPEC_E_STALE : why;
    request->failed_position = request->segments[first].first > request->from_token
                                   ? request->segments[first].first
                                   : request->from_token;
    if (is_outrun)
        return;
    atomic_fetch_add_explicit(&conn->stats.corrupt_ranges, 1, memory_order_relaxed);
    SC_LOG(&conn->log, SPEC_LOG_WARN, "piece %" PRIu64 " at token %" PRIu64 " failed (%s), dropped",
           piece, request->segments[first].first, sc_status_name(why));
    if (is_over)
        return;
    sc_plugin_failed_tell(conn, piece, request->ranges[range].is_coarse != 0);
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

/* The rank of a row in an ascending set that holds it. */
static uint64_t rank_in(const uint32_t *set, uint64_t set_count, uint32_t row)
{
    uint64_t low = 0, high = set_count;
    while (high - low > 1) {
        uint64_t middle = low + (high - low) / 2;
        if (set[middle] <= row)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* `count` rows, K and V, to tokens `at` and on. from: the first of them among those that came. */
static void place_rows(const struct sc_plugin_item *item, const struct sc_kernels_unpack *how,
                       const struct sc_store_rows *rows, uint64_t from, uint64_t at, uint64_t count)
{
    uint64_t offset = from * rows->stride;
    if (!sc_kernels_is_columns(&item->memory)) {
        sc_kernels_rows_unpack(how, &item->memory, at, count, rows->rows + offset);
        return;
    }
    sc_kernels_part_unpack(how, &item->memory, 0, at, count, rows->rows + offset, rows->stride);
    sc_kernels_part_unpack(how, &item->memory, 1, at, count, rows->v + offset, rows->stride);
}

/* How many rows are taken at once, from token `row` of `count` on: of columns, up to where a line
 * of theirs ends; 0: it does not matter. */
static uint64_t rows_together(const struct sc_kernels_memory *memory, uint64_t row, uint64_t count)
{
    uint64_t together = sc_kernels_rows_together(memory);
    if (together == 0 || row >= count)
        return together;
    uint64_t slot = memory->slots != NULL ? (uint64_t)memory->slots[row] : row;
    uint64_t left = together - slot % together;
    return left < together / 2 ? left + together : left;
}

/* Rows of a load of picks: each goes to its rank in the set (without one: to its own place),
 * neighbours together. K or V alone is unpacked alone. */
static void place_picks(const struct sc_plugin_item *item, const struct sc_kernels_unpack *how,
                        const struct sc_plugin_reader *reader, const struct sc_store_rows *rows,
                        const uint32_t *set, uint64_t set_count)
{
    const uint32_t *picked = reader->picks.rows; /* NULL: every row is */
    bool is_both = reader->picks.wanted == SC_STORE_WANT_ROWS;
    uint32_t part = reader->picks.wanted == SC_STORE_WANT_V ? 1 : 0;
    for (uint64_t i = 0, n; i < rows->row_count; i += n) {
        uint64_t pick = rows->row_first + i, row = picked != NULL ? picked[pick] : pick;
        uint64_t at = set != NULL ? rank_in(set, set_count, (uint32_t)row) : row;
        for (n = 1; i + n < rows->row_count; n++) {
            uint64_t next = picked != NULL ? picked[pick + n] : pick + n;
            if (set != NULL ? at + n >= set_count || next != set[at + n] : next != row + n)
                break;
        }
        if (is_both)
            place_rows(item, how, rows, i, at, n);
        else
            sc_kernels_part_unpack(how, &item->memory, part, at, n, rows->rows + i * rows->stride,
                                   rows->stride);
        for (uint64_t j = at; item->placed != NULL && j < at + n; j++)
            item->placed[j / 64] |= UINT64_C(1) << (j % 64);
    }
}

static void add_cost(spec_connector *conn, struct sc_plugin_item *item,
                     const struct sc_store_read_cost *cost)
{
    item->in.wanted_bytes += cost->wanted_bytes;
    item->in.read_bytes += cost->read_bytes;
    item->in.io_ops += cost->op_count;
    item->in.io_exposed_ns += cost->wait_ns;
    atomic_fetch_add_explicit(&conn->stats.exposed_ns, cost->wait_ns, memory_order_relaxed);
    atomic_fetch_add_explicit(&conn->stats.wanted_bytes, cost->wanted_bytes, memory_order_relaxed);
}

/* Rows that are only delivered, and are many, go past the caches, so that these keep the few
 * buffers that a shallow back end fills in turn; others are looked at next. On a virtio disk, whose
 * host copies into those buffers, medians of 8 loads: pread 2.10 -> 2.33 GB/s, by eight threads
 * 2.15 -> 2.36. With io_uring and 8 MiB in flight 2.63 -> 2.59 and 2.68 -> 2.56 on an Intel Xeon;
 * 3.6 -> 4.1 on an AMD EPYC. Exact rows of a layered load are written by nobody else, and their
 * lines are not there. */
static bool streams(const spec_connector *conn, const struct sc_plugin_item *item, uint64_t count)
{
    bool is_whole = item->route == SC_ROUTE_WHOLE || item->route == SC_ROUTE_DENSE;
    uint64_t element_bytes = sc_plugin_dtype_bytes(conn->shape.dtype);
    uint64_t wider = item->widen == SC_KERNELS_SAME ? 1 : sizeof(float) / element_bytes;
    bool is_past = item->route == SC_ROUTE_LAYERED ||
                   (is_whole && (sc_store_is_shallow(conn->store) || sc_stream_is_faster()));
    return is_past && count * conn->row_bytes * wider >= STREAM_BYTES;
}

struct destination {
    const struct sc_kernels_unpack *how;
    const struct sc_kernels_memory *memory;
};

static void destination_spans(void *user, uint64_t row, uint64_t count, uint8_t **ret_spans)
{
    const struct destination *to = user;
    sc_kernels_rows_spans(to->how, to->memory, row, count, ret_spans);
}

spec_status sc_plugin_reader_take(spec_connector *conn, struct sc_plugin_item *item,
                                  struct sc_plugin_reader *reader, const uint32_t *set,
                                  uint64_t set_count, struct spec_error *reterr)
{
    struct sc_plugin_request *request = item->request;
    struct sc_kernels_unpack how = {
        .kernels = conn->kernels,
        .head_count = conn->shape.kv_head_count,
        .head_size = conn->shape.head_size,
        .element_bytes = sc_plugin_dtype_bytes(conn->shape.dtype),
        .widen = item->widen,
    };
    sc_store_reader_demand(reader->reader);
    uint64_t count = set != NULL ? set_count : row_total(request);
    how.streams = streams(conn, item, count);
    uint64_t bite = SC_STORE_BITE_BYTES / conn->row_bytes, row = 0;
    bite = bite > 0 ? bite : 1;
    struct destination to = {.how = &how, .memory = &item->memory};
    const struct sc_store_sink sink = {.spans = destination_spans,
                                       .user = &to,
                                       .span_bytes = sc_kernels_spans_bytes(&how, &item->memory)};
    bool moves = reader->load == SC_LOAD_WHOLE && how.streams && sink.span_bytes > 0 &&
                 conn->row_bytes / sink.span_bytes <= SC_STORE_SPANS_MAX;
    struct sc_store_rows rows = {0};
    spec_status status;
    for (;; row += rows.row_count) {
        uint64_t ahead = row < count ? count - row : 0;   /* while tags are checked */
        if (set != NULL || reader->load == SC_LOAD_WHOLE) /* else they come from anywhere */
            sc_kernels_rows_prefetch(&how, &item->memory, row, ahead < bite ? ahead : bite);
        sc_store_reader_apart(reader->reader, rows_together(&item->memory, row, count));
        status = sc_store_reader_move(reader->reader, item->deadline_ns, moves ? &sink : NULL,
                                      &rows, reterr);
        if (status != SPEC_OK || rows.row_count == 0)
            break;
        if (reader->load != SC_LOAD_WHOLE)
            place_picks(item, &how, reader, &rows, set, set_count);
        else if (!moves)
            place_rows(item, &how, &rows, 0, rows.row_first, rows.row_count);
    }
    struct sc_store_read_cost cost;
    sc_store_reader_cost(reader->reader, &cost);
    add_cost(conn, item, &cost);
    if (status == SPEC_OK && reader->load == SC_LOAD_WHOLE && !item->was_started)
        note_rate(conn, &cost, reader->begin_ns);
    reader->layer = SC_PLUGIN_NO_LAYER; /* consumed; the same layer may be asked for again */
    if (status == SPEC_E_TIMEOUT)
        sc_store_reader_cancel(reader->reader);
    else if (status != SPEC_OK)
        sc_plugin_request_fail(conn, request, rows.failed_range, status);
    return status;
}

/* Every row, into the destination. */
static spec_status finish_whole(spec_connector *conn, struct sc_plugin_item *item,
                                struct spec_error *reterr)
{
    struct sc_plugin_request *request = item->request;
    struct spec_important *in = &item->in;
    uint64_t rows = row_total(request);
    spec_status status = sc_plugin_select_all(conn, item, reterr);
    if (status != SPEC_OK)
        return status;
    bool is_dense = item->route == SC_ROUTE_DENSE;
    in->row_count = in->exact_rows = in->union_rows = rows;
    in->result_flags = is_dense ? SPEC_IMPORTANT_DENSE : 0;
    in->tier_rows[SPEC_TIER_DISK] = rows;
    in->prefetched_rows = item->covered_rows;
    in->provenance = request->provenance;
    for (uint64_t j = 0; in->positions != NULL && j < rows; j++)
        in->positions[j] = (uint32_t)(request->from_token + j);
    atomic_fetch_add_explicit(&conn->stats.dense_layers, is_dense, memory_order_relaxed);
    atomic_fetch_add_explicit(&conn->stats.prefetched_rows, item->covered_rows,
                              memory_order_relaxed);
    atomic_fetch_add_explicit(&conn->stats.demanded_rows, rows - item->covered_rows,
                              memory_order_relaxed);
    return SPEC_OK;
}

static spec_status start_item(spec_connector *conn, struct sc_plugin_item *item,
                              enum sc_exec_lane lane, struct spec_error *reterr)
{
    return item->route == SC_ROUTE_REFINE ? sc_plugin_refine_start(conn, item, lane, reterr)
                                          : sc_plugin_select_start(conn, item, lane, reterr);
}

static spec_status finish_item(spec_connector *conn, struct sc_plugin_item *item,
                               struct spec_error *reterr)
{
    struct spec_important *in = &item->in;
    bool is_whole = item->route == SC_ROUTE_WHOLE || item->route == SC_ROUTE_DENSE;
    if (item->route == SC_ROUTE_REFINE)
        return sc_plugin_refine_finish(conn, item, reterr);
    spec_status status =
        is_whole ? finish_whole(conn, item, reterr) : sc_plugin_select_finish(conn, item, reterr);
    if (in->exact_bits != NULL && item->route != SC_ROUTE_LAYERED)
        sc_plugin_bits_all(in->exact_bits, in->row_count); /* without codes: exact */
    return status;
}

static spec_status serve_rows(spec_connector *conn, struct sc_plugin_item *item,
                              struct spec_error *reterr)
{
    struct sc_plugin_request *request = item->request;
    struct spec_important *in = &item->in;
    if (request->failed_position != UINT64_MAX) {
        if (item->route == SC_ROUTE_REFINE)
            sc_plugin_refine_tell(item);
        return sc_fail(reterr, request->failed_status,
                       "request %#" PRIx64 " is void from token %" PRIu64 " on", in->request,
                       in->failed_position);
    }
    if (row_total(request) == 0)
        return SPEC_OK;
    if (item->is_late)
        item->status = start_item(conn, item, SC_LANE_DEMAND, reterr);
    if (item->status != SPEC_OK)
        return item->status;
    return finish_item(conn, item, reterr);
}

static spec_status serve_item(spec_connector *conn, struct sc_plugin_item *item,
                              struct spec_error *reterr)
{
    struct sc_plugin_request *request = item->request;
    struct spec_important *in = &item->in;
    in->next_position = request->matched_tokens;
    in->failed_position = request->failed_position;
    if (sc_plugin_item_is_over(conn, item))
        return sc_plugin_stale(in->request, reterr);
    spec_status status = serve_rows(conn, item, reterr);
    in->failed_position = request->failed_position;
    if (request->failed_position == UINT64_MAX)
        return status;
    sc_plugin_loads_end(conn, request); /* not before: the item's work is through with them now */
    return request->failed_status == SPEC_E_STALE ? sc_plugin_stale(in->request, reterr) : status;
}

/* Results are zero unless they are set. */
static void clear_results(struct spec_important *in)
{
    uint64_t first = offsetof(struct spec_important, status);
    memset((uint8_t *)in + first, 0, offsetof(struct spec_important, select) - first);
}

/* The item's layer is asked for, which ends its guess. What that reads is let go, unless the item
 * chooses rows to read. */
static void guess_leave(spec_connector *conn, struct sc_plugin_item *item, uint64_t now_ns)
{
    bool refines = item->in.refine_of != 0;
    if (refines && !sc_plugin_refine_chooses(item))
        return;
    sc_plugin_guess_end(conn, item->request, item->in.layer, now_ns);
    if (refines || !item->want.selects) /* refining reads by what is there */
        item->in.unused_bytes = item->in.read_bytes =
            sc_plugin_guess_drop(conn, item->request, item->in.layer, SC_LOAD_WHOLE);
}

/* Codes of the two layers behind one that is told ahead. The layer below it has been delivered, so
 * the memory of its codes is free for the second of them, and the device has work while the host
 * computes. */
static void codes_follow(spec_connector *conn, const struct sc_plugin_item *item)
{
    for (uint32_t ahead = 1; ahead < SC_PLUGIN_SKETCHES; ahead++)
        if (item->in.layer + ahead < conn->layer_count)
            sc_plugin_select_ahead(conn, item->request, item->in.layer + ahead, false);
}

/* Codes are needed once more, if they are not there. */
static bool rescores_some(const struct sc_plugin_item *item)
{
    return sc_plugin_rescores(&item->in) && sc_plugin_refine_chooses(item) &&
           item->want.row_count > 0;
}

/* Nothing that waits: deadlines, whole layers, what the configuration certainly needs of the
 * others. Of several items that choose rows of one request, which has one set at a time, the later
 * ones begin when their turn comes. */
void sc_plugin_items_begin(spec_connector *conn, struct sc_plugin_item *work, uint64_t count,
                           uint64_t begin_ns)
{
    for (uint64_t i = 0; i < count; i++)
        sc_plugin_delivery_hold(&work[i]);
    for (uint64_t i = 0; i < count; i++) {
        struct sc_plugin_item *item = &work[i];
        uint64_t within_ns = item->in.deadline_ns;
        item->deadline_ns = SC_EXEC_FOREVER;
        if (within_ns != 0 && within_ns < SC_EXEC_FOREVER - begin_ns)
            item->deadline_ns = begin_ns + within_ns;
        clear_results(&item->in);
        sc_plugin_delivery_begin(conn, item);
        for (uint64_t j = 0; j < i && item->want.selects && !item->is_late; j++)
            item->is_late = work[j].want.selects && work[j].request == item->request;
        guess_leave(conn, item, begin_ns);
        item->route = SC_ROUTE_REFINE;
        if (rescores_some(item) && loads(item->request)) /* of all items side by side */
            sc_plugin_select_ahead(conn, item->request, item->in.layer, false);
        if (item->in.refine_of != 0)
            continue;
        item->route = item->want.selects    ? SC_ROUTE_PICKS
                      : item->want.is_short ? SC_ROUTE_DENSE
                                            : SC_ROUTE_WHOLE;
        if (loads(item->request) && !item->want.selects)
            item->was_started = sc_plugin_layer_start(
                conn, item->request, item->in.layer, i == 0 ? SC_LANE_DEMAND : SC_LANE_SPECULATIVE);
        else if (loads(item->request))
            sc_plugin_select_ahead(conn, item->request, item->in.layer, false);
        if (sc_plugin_is_ahead(&item->in) && count == 1 && loads(item->request))
            codes_follow(conn, item); /* of other items, some may need that memory */
    }
}

spec_status sc_plugin_items_serve(spec_connector *conn, struct sc_plugin_item *work, uint64_t count,
                                  struct spec_error *reterr)
{
    spec_status first_status = SPEC_OK;
    for (uint64_t i = 0; i < count; i++)
        if (work[i].want.selects && !work[i].is_late && loads(work[i].request) &&
            !sc_plugin_item_is_over(conn, &work[i]))
            work[i].status =
                start_item(conn, &work[i], i == 0 ? SC_LANE_DEMAND : SC_LANE_SPECULATIVE, reterr);
    for (uint64_t i = 0; i < count; i++) {
        struct spec_important *in = &work[i].in;
        in->status = serve_item(conn, &work[i], first_status == SPEC_OK ? reterr : NULL);
        sc_plugin_delivery_end(&work[i]);
        if (first_status == SPEC_OK)
            first_status = in->status;
    }
    return first_status;
}

/* Whatever is stored next is computed on this, or not stored. */
static void tell_request(struct sc_plugin_item *item)
{
    bool is_ahead = sc_plugin_is_ahead(&item->in);
    bool is_coarse = is_ahead && item->delivered.kind != SPEC_PROVENANCE_EXACT;
    if (item->in.status == SPEC_OK)
        sc_plugin_provenance_ahead(item->request, item->in.layer,
                                   is_coarse ? &item->delivered : NULL);
    if (!is_ahead) /* nothing is computed on that */
        sc_plugin_provenance_add(&item->request->delivered, &item->delivered);
    if (item->request->failed_position != UINT64_MAX)
        sc_plugin_pass_void(item->request);
}

void sc_plugin_items_report(struct spec_important *items, struct sc_plugin_item *work,
                            uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        if (!work[i].is_gone)
            tell_request(&work[i]);
        sc_plugin_args_write(sc_plugin_item_at(items, i), &work[i].in, sizeof(work[i].in));
    }
}

spec_status sc_plugin_items_check(spec_connector *conn, struct spec_important *items,
                                  uint64_t count, bool is_submitted,
                                  struct sc_plugin_item *ret_work, struct spec_error *reterr)
{
    if (items == NULL || count == 0 || count > SC_LIMIT_BATCH)
        return sc_fail(reterr, SPEC_E_INVALID, "get_important: 1 .. %u items expected",
                       SC_LIMIT_BATCH);
    struct sc_plugin_item one;
    for (uint64_t i = 0; i < count; i++) {
        struct sc_plugin_item *item = ret_work != NULL ? &ret_work[i] : &one;
        *item = (struct sc_plugin_item){.is_submitted = is_submitted};
        spec_status status = check_item(conn, items, i, item, reterr);
        if (status != SPEC_OK)
            return status;
    }
    return SPEC_OK;
}

static spec_status items_do(spec_connector *conn, struct spec_important *items, uint64_t count,
                            uint64_t begin_ns, struct sc_plugin_item *work,
                            struct spec_error *reterr)
{
    spec_status status = sc_plugin_items_check(conn, items, count, false, work, reterr);
    if (status != SPEC_OK)
        return status;
    sc_plugin_items_begin(conn, work, count, begin_ns);
    status = sc_plugin_items_serve(conn, work, count, reterr);
    sc_plugin_items_report(items, work, count);
    return status;
}

spec_status sc_plugin_get_important(spec_connector *conn, struct spec_important *items,
                                    uint64_t count, struct spec_error *reterr)
{
    struct sc_plugin_item few[SC_PLUGIN_ITEMS_FEW];
    uint64_t begin_ns = sc_exec_now_ns(conn->exec);
    if (count <= SC_PLUGIN_ITEMS_FEW || count > SC_LIMIT_BATCH) /* of more none is looked at */
        return items_do(conn, items, count, begin_ns, few, reterr);
    struct sc_plugin_item *many = sc_plugin_batch_take(conn);
    spec_status status = items_do(conn, items, count, begin_ns, many, reterr);
    sc_plugin_batch_put(conn, many);
    return status;
}
