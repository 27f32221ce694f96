/* Taking rows: what readers bring is consumed into the destination.
 *
 *   reader:   frames -> verified rows -> unpacked to their place, or to their rank in a set
 *   a guess   its wanted rows, then those of the rest, which goes on meanwhile
 *   fails     the request is void from there on; the index and the log's writer are told
 *
 * Holds: rows reach the destination after their tags were checked, on the caller's thread,
 * inside the call.
 * Does not: choose rows; begin reads (issue_reads.c), but of a whole layer that nobody has begun.
 * Threads: the request's host thread, or whose turn its loads are.
 * Tests: conformance (abi_040_* .. abi_071_*), tests/unit/plugin/test_load.c, test_select.c */
#include "plugin/select/scatter.h"
#include "base/nt_copy.h"
#include "plugin/args/dtype_table.h"
#include "plugin/select/issue_reads.h"
#include "plugin/select/item.h"
#include "plugin/select/row_bits.h"
#include "plugin/select/upper_bus.h"

/* What is written for one item does not stay in a core's own cache from here on. */
#define STREAM_BYTES (2ull << 20)
/* Of a whole layer, of picks: fewer say nothing about the device. */
#define WHOLE_BYTES_MIN (1u << 20)
#define GATHER_BYTES_MIN (256u << 10)

/* The first segment of the range's piece. */
static uint64_t segment_of(const struct sc_plugin_request *request, uint64_t range)
{
    uint64_t first = 0;
    while (request->segments[first].value.piece != request->ranges[range].piece)
        first++;
    return first;
}

void sc_plugin_range_fail(spec_connector *conn, const struct sc_plugin_request *request,
                          uint64_t range, spec_status why, uint32_t tier)
{
    uint64_t piece = request->ranges[range].piece, first = segment_of(request, range);
    sc_count(&conn->stats.corrupt_ranges, 1);
    SC_LOG(&conn->log, SPEC_LOG_WARN, "piece %" PRIu64 " at token %" PRIu64 " failed (%s)%s", piece,
           request->segments[first].first, sc_status_name(why),
           sc_plugin_is_memory(tier) ? " in host memory" : ", dropped");
    if (sc_plugin_is_memory(tier))
        return;
    sc_plugin_failed_tell(conn, piece);
    sc_plugin_piece_fail(conn, request->segments[first].node, piece);
}

/* The match is void from the failed piece on; later lookups do not find it, unless host memory had
 * its rows wrong, and has them no more: the next load reads those of the disk. After a reset
 * nothing is wrong with it: what the store had was void at once. */
void sc_plugin_request_fail(spec_connector *conn, struct sc_plugin_request *request, uint64_t range,
                            spec_status why, uint32_t tier)
{
    uint64_t first = segment_of(request, range);
    bool is_outrun = !sc_plugin_epoch_is_current(conn, request);
    request->failed_status = is_outrun ? SPEC_E_STALE : why;
    request->failed_position = request->segments[first].first > request->from_token
                                   ? request->segments[first].first
                                   : request->from_token;
    if (!is_outrun)
        sc_plugin_range_fail(conn, request, range, why, tier);
}

/* Moves a smoothed rate towards that of bytes that took so long. */
static void note_rate(_Atomic uint64_t *bytes_per_s, uint64_t bytes, uint64_t took_ns)
{
    uint64_t old = sc_counted(bytes_per_s);
    if (took_ns == 0)
        return;
    uint64_t rate = (uint64_t)((double)bytes * 1e9 / (double)took_ns);
    atomic_store_explicit(bytes_per_s, old == 0 ? rate : old - old / 8 + rate / 8,
                          memory_order_relaxed);
}

/* A load of a whole layer that was not read ahead. What host memory had of it took its time, too:
 * that is not the disk's, and as long as it is not known, nothing is learned of a load of both. */
static void note_whole(spec_connector *conn, const struct sc_store_read_cost *cost,
                       uint64_t host_bytes, uint64_t took_ns)
{
    uint64_t rate = sc_counted(&conn->ahead.host_bytes_per_s), host_ns = 0;
    if (cost->read_bytes == 0 && host_bytes >= WHOLE_BYTES_MIN)
        note_rate(&conn->ahead.host_bytes_per_s, host_bytes, took_ns);
    if (cost->read_bytes < WHOLE_BYTES_MIN || (host_bytes > 0 && rate == 0))
        return;
    if (host_bytes > 0)
        host_ns = (uint64_t)((double)host_bytes * 1e9 / (double)rate);
    if (host_ns <= took_ns / 2)
        note_rate(&conn->ahead.load_bytes_per_s, cost->read_bytes, took_ns - host_ns);
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

/* Rows of a load of picks: each goes to its rank in the set (without one: to its own place),
 * neighbours together. K or V alone is unpacked alone. */
static void place_gather(const struct sc_plugin_item *item, const struct sc_plugin_placing *to,
                         const struct sc_plugin_reader *reader, const struct sc_store_rows *rows,
                         const uint32_t *set, uint64_t set_count)
{
    const uint32_t *picked = reader->gather.rows; /* NULL: every row is */
    for (uint64_t i = 0, n; i < rows->row_count; i += n) {
        uint64_t gathered = rows->row_first + i, row = picked != NULL ? picked[gathered] : gathered;
        uint64_t at = set != NULL ? rank_in(set, set_count, (uint32_t)row) : row;
        for (n = 1; i + n < rows->row_count; n++) {
            uint64_t next = picked != NULL ? picked[gathered + n] : gathered + n;
            if (set != NULL ? at + n >= set_count || next != set[at + n] : next != row + n)
                break;
        }
        item->memory.target->place_rows(to, rows, i, n, reader->gather.wanted, at);
        for (uint64_t j = at; item->placed != NULL && j < at + n; j++)
            sc_plugin_bit_set(item->placed, j);
    }
}

void sc_plugin_cost_add(spec_connector *conn, struct sc_plugin_item *item,
                        const struct sc_store_read_cost *cost)
{
    item->in.wanted_bytes += cost->wanted_bytes;
    item->in.read_bytes += cost->read_bytes;
    item->in.io_ops += cost->op_count;
    item->in.io_exposed_ns += cost->wait_ns;
    sc_count(&item->request->awaited_ns, cost->wait_ns);
    sc_count(&conn->stats.exposed_ns, cost->wait_ns);
    sc_count(&conn->stats.wanted_bytes, cost->wanted_bytes);
}

/* Rows that are only delivered, and are many, go past the caches, so that these keep the few
 * buffers that a shallow back end fills in turn; others are looked at next. On a virtio disk, whose
 * host copies into those buffers, medians of 8 loads: pread 2.10 -> 2.33 GB/s, by eight threads
 * 2.15 -> 2.36. With io_uring and 8 MiB in flight 2.63 -> 2.59 and 2.68 -> 2.56 on an Intel Xeon;
 * 3.6 -> 4.1 on an AMD EPYC. Exact rows of a layered load are written by nobody else, and their
 * lines are not there. */
static bool item_streams(const spec_connector *conn, const struct sc_plugin_item *item)
{
    bool is_whole = item->route == SC_ROUTE_WHOLE || item->route == SC_ROUTE_DENSE;
    uint64_t element_bytes = sc_plugin_dtype_bytes(sc_plugin_shape_of(conn, item->in.layer)->dtype);
    uint64_t wider = item->memory.widens ? sizeof(float) / element_bytes : 1;
    bool is_past = item->route == SC_ROUTE_LAYERED ||
                   (is_whole && (sc_store_is_shallow(conn->store) || sc_nt_copy_is_faster()));
    uint64_t count = item->want.row_total;
    return is_past && count * conn->dims.row_bytes * wider >= STREAM_BYTES;
}

struct sc_plugin_placing sc_plugin_placing_of(const spec_connector *conn,
                                              const struct sc_plugin_item *item)
{
    struct sc_plugin_placing to = {.memory = &item->memory,
                                   .how =
                                       sc_plugin_move_of(sc_plugin_shape_of(conn, item->in.layer))};
    to.how.kernels = conn->kernels;
    to.how.memory = &item->memory.at;
    to.how.widens = item->memory.widens;
    to.how.streams = item_streams(conn, item);
    return to;
}

/* Where more was taken than is told of, in the same shares. */
void sc_plugin_tiers_tell(struct sc_plugin_item *item, uint64_t count)
{
    uint64_t taken = 0;
    for (uint32_t t = 0; t < SPEC_TIERS; t++)
        taken += item->taken[t];
    for (uint32_t t = 0; t < SPEC_TIERS && taken > 0; t++) {
        item->in.tier_rows[t] = count * item->taken[t] / taken;
        count -= item->in.tier_rows[t];
        taken -= item->taken[t];
    }
}

/* Where what failed came from. Rows of the disk may be right if the tags that they were held
 * against are of host memory, which has them no more: whoever reads both next will know. But once:
 * another may bring the tags back before, and on a bad disk nobody would ever know. */
static uint32_t failed_tier(spec_connector *conn, const struct sc_plugin_item *item,
                            const struct sc_plugin_reader *reader, spec_status status,
                            const struct sc_store_rows *rows)
{
    bool by_selector = status == SPEC_E_CORRUPT && !sc_plugin_is_memory(rows->tier) &&
                       reader->load != SC_LOAD_WHOLE && item->selector != NULL;
    if (!by_selector || !sc_store_selector_is_in_host_tier(item->selector, rows->failed_range))
        return rows->tier;
    uint64_t piece = item->request->ranges[rows->failed_range].piece;
    return atomic_exchange(&conn->ahead.spared, piece) != piece ? SPEC_TIER_HOST : rows->tier;
}

/* Of each of the rows that came. */
static uint64_t bytes_of(const spec_connector *conn, const struct sc_plugin_reader *reader,
                         bool is_whole)
{
    bool has_both = is_whole || reader->gather.wanted == SC_STORE_WANT_ROWS;
    return has_both ? conn->dims.row_bytes : conn->dims.k_row_bytes;
}

spec_status sc_plugin_reader_take(spec_connector *conn, struct sc_plugin_item *item,
                                  struct sc_plugin_reader *reader, const uint32_t *set,
                                  uint64_t set_count, struct spec_error *reterr)
{
    struct sc_plugin_request *request = item->request;
    const struct sc_plugin_target *target = item->memory.target;
    struct sc_plugin_placing to = sc_plugin_placing_of(conn, item);
    sc_store_reader_demand(reader->reader);
    uint64_t count = set != NULL ? set_count : item->want.row_total;
    uint64_t bite = SC_STORE_BITE_BYTES / conn->dims.row_bytes, row = 0;
    bite = bite > 0 ? bite : 1;
    const struct sc_store_sink sink = target->sink(&to);
    uint64_t host_slab_rows = sc_plugin_rows_from_host(item);
    bool is_whole = reader->load == SC_LOAD_WHOLE, moves = is_whole && sink.span_bytes > 0;
    bool in_order = is_whole || set != NULL; /* else they come from anywhere */
    struct sc_store_rows rows = {0};
    spec_status status;
    for (;; row += rows.row_count) {
        uint64_t ahead = in_order && row < count ? count - row : 0;
        ahead = ahead < bite ? ahead : bite;
        sc_store_reader_apart(reader->reader, target->expect(&to, row, ahead, count));
        status = sc_store_reader_next(reader->reader, item->deadline_ns, moves ? &sink : NULL,
                                      &rows, reterr);
        if (status != SPEC_OK || rows.row_count == 0)
            break;
        sc_plugin_bus_took(conn, item, rows.tier, rows.row_count, bytes_of(conn, reader, is_whole));
        if (!is_whole)
            place_gather(item, &to, reader, &rows, set, set_count);
        else if (!moves)
            target->place_rows(&to, &rows, 0, rows.row_count, SC_STORE_WANT_ROWS, rows.row_first);
    }
    struct sc_store_read_cost cost;
    sc_store_reader_cost(reader->reader, &cost);
    sc_plugin_cost_add(conn, item, &cost);
    sc_plugin_load_policy_read(request, &cost);
    host_slab_rows = sc_plugin_rows_from_host(item) - host_slab_rows;
    if (status == SPEC_OK && is_whole && !item->was_started)
        note_whole(conn, &cost, host_slab_rows * conn->dims.row_bytes,
                   sc_exec_now_ns(conn->exec) - reader->begin_ns);
    reader->layer = SC_PLUGIN_NO_LAYER; /* consumed; the same layer may be asked for again */
    if (status == SPEC_E_TIMEOUT)
        sc_store_reader_cancel(reader->reader);
    else if (status != SPEC_OK)
        sc_plugin_request_fail(conn, request, reader->range_first + rows.failed_range, status,
                               failed_tier(conn, item, reader, status, &rows));
    return status;
}

/* Consumes the guess. Of what it moved, the share of its rows that is not wanted is unused: what
 * pages and gaps add is the price of rows, wanted or not; and under planner `chunk` the slab is. */
static spec_status take_prediction(spec_connector *conn, struct sc_plugin_item *item,
                                   struct sc_plugin_reader *prediction, const uint32_t *set,
                                   struct spec_error *reterr)
{
    uint64_t set_count = set != NULL ? item->set_count : 0;
    uint64_t before_bytes = item->in.read_bytes;
    spec_status status = sc_plugin_reader_take(conn, item, prediction, set, set_count, reterr);
    uint64_t read_bytes = item->in.read_bytes - before_bytes, unused_bytes = 0;
    struct sc_store_read_cost cost;
    sc_store_reader_cost(prediction->reader, &cost);
    if (cost.row_count > item->used_rows)
        unused_bytes = (uint64_t)((double)read_bytes / (double)cost.row_count *
                                  (double)(cost.row_count - item->used_rows));
    item->in.unused_bytes += unused_bytes;
    sc_count(&conn->stats.speculated_bytes, read_bytes);
    sc_count(&conn->stats.unused_bytes, unused_bytes);
    return status;
}

/* The rows that no guess brought; how fast they came says what a window is worth. */
static spec_status take_rest(spec_connector *conn, struct sc_plugin_item *item,
                             struct sc_plugin_reader *rest, const uint32_t *set,
                             struct spec_error *reterr)
{
    uint64_t begin_ns = rest->begin_ns;
    spec_status status = sc_plugin_reader_take(conn, item, rest, set, item->set_count, reterr);
    struct sc_store_read_cost cost;
    sc_store_reader_cost(rest->reader, &cost);
    if (status == SPEC_OK && cost.read_bytes >= GATHER_BYTES_MIN)
        note_rate(&conn->ahead.gather_bytes_per_s, cost.read_bytes,
                  sc_exec_now_ns(conn->exec) - begin_ns);
    return status;
}

spec_status sc_plugin_set_take(spec_connector *conn, struct sc_plugin_item *item,
                               struct spec_error *reterr)
{
    struct sc_plugin_request *request = item->request;
    struct sc_plugin_reader *prediction = sc_plugin_prefetch_reader(request, item->in.layer);
    struct sc_plugin_reader *rest = &request->readers[SC_PLUGIN_REST];
    const uint32_t *set = item->route == SC_ROUTE_LAYERED ? NULL : request->set;
    spec_status status = SPEC_OK;
    if (rest->layer == item->in.layer) /* it goes on while the guess is consumed */
        sc_store_reader_demand(rest->reader);
    if (prediction != NULL)
        status = take_prediction(conn, item, prediction, set, reterr);
    if (status == SPEC_OK && rest->layer == item->in.layer)
        status = take_rest(conn, item, rest, set, reterr);
    if (status == SPEC_E_TIMEOUT)
        sc_plugin_reader_drop(rest);
    return status;
}

spec_status sc_plugin_rest_take(spec_connector *conn, struct sc_plugin_item *item,
                                struct spec_error *reterr)
{
    return take_rest(conn, item, &item->request->readers[SC_PLUGIN_REST], NULL, reterr);
}

spec_status sc_plugin_all_take(spec_connector *conn, struct sc_plugin_item *item,
                               struct spec_error *reterr)
{
    struct sc_plugin_request *request = item->request;
    struct sc_plugin_reader *rest = &request->readers[SC_PLUGIN_REST];
    struct sc_plugin_reader *reader = &request->readers[item->in.layer % SC_PLUGIN_AHEAD];
    if (!item->is_pieced) {
        (void)sc_plugin_layer_start(conn, request, item->in.layer, SC_IO_CLASS_DEMAND);
        return sc_plugin_reader_take(conn, item, reader, NULL, 0, reterr);
    }
    sc_store_reader_demand(rest->reader); /* it goes on while the guess is consumed */
    spec_status status = take_prediction(conn, item, reader, NULL, reterr);
    if (status == SPEC_OK)
        status = sc_plugin_reader_take(conn, item, rest, NULL, 0, reterr);
    if (status == SPEC_E_TIMEOUT)
        sc_plugin_reader_drop(rest);
    return status;
}
