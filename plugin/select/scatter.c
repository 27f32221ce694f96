/* scatter: consumes reads into the destination. Contract: scatter.h.
 *
 *   reader       frames -> verified rows -> unpacked to their place, or to their rank in a set
 *   prefetch     its wanted rows first; the rest is read meanwhile
 *   failure      the request is void from there on; the index and the log's writer are informed
 *
 * Invariants: rows reach the destination after verification, on the caller's thread, inside the
 * call. */
#include "plugin/select/scatter.h"
#include "base/nt_copy.h"
#include "plugin/args/dtype_table.h"
#include "plugin/select/issue_reads.h"
#include "plugin/select/item.h"
#include "plugin/select/row_bits.h"
#include "plugin/select/upper_bus.h"

/* From this size on, an item's rows do not stay in a core's own cache. */
#define STREAM_BYTES (2ull << 20)
/* Loads that measure the device are at least this large: whole layers, gathered rows. */
#define WHOLE_BYTES_MIN (1u << 20)
#define GATHER_BYTES_MIN (256u << 10)

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

/* After a failure of host memory lookups find the piece again: the next load reads the disk. After
 * a reset the piece is not at fault: the whole match became void. */
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

/* Moves a smoothed rate towards bytes / took_ns. */
static void note_rate(_Atomic uint64_t *bytes_per_s, uint64_t bytes, uint64_t took_ns)
{
    uint64_t old = sc_counted(bytes_per_s);
    if (took_ns == 0)
        return;
    uint64_t rate = (uint64_t)((double)bytes * 1e9 / (double)took_ns);
    atomic_store_explicit(bytes_per_s, old == 0 ? rate : old - old / 8 + rate / 8,
                          memory_order_relaxed);
}

/* Measures the load of a whole layer that was not read ahead, without the time for rows of host
 * memory. While that rate is unknown, loads of both are ignored. */
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

/* Returns the rank of a row in an ascending set that contains it. */
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

/* Places gathered rows at their rank in the set (without a set at their own place), neighbours
 * together. */
static void place_gather(const struct sc_plugin_item *item, const struct sc_plugin_placing *to,
                         const struct sc_plugin_reader *reader, const struct sc_store_rows *rows,
                         const uint32_t *set, uint64_t set_count)
{
    const uint32_t *picked = reader->gather.rows; /* NULL: all rows */
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

/* Returns true if rows are written past the caches, which then keep the few buffers that a shallow
 * back end reuses. Medians of 8 loads from a virtio disk, GB/s: pread 2.10 -> 2.33; eight threads
 * 2.15 -> 2.36; io_uring, 8 MiB in flight: 2.63 -> 2.59 and 2.68 -> 2.56 (Intel Xeon), 3.6 -> 4.1
 * (AMD EPYC). Exact rows of a layered load always are: their lines are in no cache. */
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

/* Returns the tier at fault. Rows of the disk may be right if their tags were from host memory,
 * which has dropped them: the next load reads both again. A piece is spared only once: other
 * requests may reload the tags, and a bad disk would never be found. */
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
    bool in_order = is_whole || set != NULL; /* else in any order */
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

/* Consumes prefetched rows, and counts the share of unwanted rows in the bytes read as unused.
 * Pages and gaps are part of a row's price; with planner `chunk` the unit is the slab. */
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

/* Consumes the rows that were not prefetched, and measures the rate of gathered reads. */
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
    if (rest->layer == item->in.layer) /* read while prefetched rows are consumed */
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
    sc_store_reader_demand(rest->reader); /* read while prefetched rows are consumed */
    spec_status status = take_prediction(conn, item, reader, NULL, reterr);
    if (status == SPEC_OK)
        status = sc_plugin_reader_take(conn, item, rest, NULL, 0, reterr);
    if (status == SPEC_E_TIMEOUT)
        sc_plugin_reader_drop(rest);
    return status;
}
