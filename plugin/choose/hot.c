/* Hot blocks: see hot.h.
 *
 * When one is read. A layer takes the host w ns to compute; meanwhile the device reads what is
 * certain of the next ones, so many bytes (keys or codes, tags). Then the set's rows are read, and
 * the host waits:
 *
 *   without    max(w, certain / rate) + read(set)
 *   with       max(w, (certain + block) / rate) + read(rest of the set)
 *   read(n rows in m runs) = m * (an operation + a page's bytes, rounded out) + n rows' bytes
 *
 * It is read where that is less, each layer by itself: the rate and the operation are what the
 * device showed (store/io/io_cost.h), w is what the host took lately, sets and rests what choices
 * at this layer had.
 *
 * Holds, Does not, Threads, Tests: hot.h. */
#include "plugin/choose/hot.h"

#include "kernels/importance.h"
#include "plugin/choose/reads.h"
#include "plugin/choose/select.h"

#include <string.h>

#define PPM    1000000u
#define MEMORY 8u  /* choices that an average remembers, about */
#define UNIT   16u /* of averages */

/* ---- Which rows a block has ------------------------------------------------------------------ */

bool sc_plugin_hot_choose(void *user, const struct sc_store_range *ranges, uint64_t range_count,
                          uint32_t layer, uint64_t count, uint32_t *ret_rows)
{
    spec_connector *conn = user;
    uint64_t rows = 0;
    for (uint64_t i = 0; i < range_count; i++)
        rows += ranges[i].row_count;
    uint64_t known = sc_lab_hot_scores(&conn->lab, ranges, range_count, layer, conn->hot.scores);
    if (known * 2 < rows || rows < conn->config.chunk_tokens) /* its end may be another prompt's */
        return false;
    sc_kernels_topk(conn->kernels, conn->hot.scores, rows, count, ret_rows);
    return true;
}

/* ---- Open and close -------------------------------------------------------------------------- */

static uint64_t load_count(const spec_connector *conn)
{
    return (uint64_t)conn->config.max_requests * SC_PLUGIN_SKETCHES;
}

static bool memory_take(spec_connector *conn)
{
    struct sc_plugin_hot *hot = &conn->hot;
    hot->trusts =
        sc_alloc_array(&conn->alloc, conn->dims.layer_count + UINT64_C(1), sizeof(*hot->trusts));
    hot->readers = sc_alloc_array(&conn->alloc, load_count(conn), sizeof(struct sc_store_reader *));
    return hot->trusts != NULL && hot->readers != NULL;
}

spec_status sc_plugin_hot_open(spec_connector *conn, struct spec_error *reterr)
{
    struct sc_plugin_hot *hot = &conn->hot;
    for (uint32_t i = 0; i < conn->config.max_requests; i++)
        for (uint32_t j = 0; j < SC_PLUGIN_SKETCHES; j++) {
            conn->requests.slots[i].hots[j].listed = SC_PLUGIN_NO_LAYER;
            conn->requests.slots[i].hots[j].reader.layer = SC_PLUGIN_NO_LAYER;
        }
    if (conn->config.hot_ppm == 0 || !conn->choice.can_select)
        return SPEC_OK;
    hot->rows_max = (uint64_t)conn->config.max_request_tokens * conn->config.hot_ppm / PPM + 1;
    if (!memory_take(conn))
        return sc_fail(reterr, SPEC_E_NO_MEMORY, "hot rows of %" PRIu32 " requests",
                       conn->config.max_requests);
    spec_status status = sc_store_readers_open(conn->store, load_count(conn), hot->readers, reterr);
    for (uint64_t i = 0; status == SPEC_OK && i < load_count(conn); i++) {
        struct sc_plugin_request *request = &conn->requests.slots[i / SC_PLUGIN_SKETCHES];
        request->hots[i % SC_PLUGIN_SKETCHES].reader.reader = hot->readers[i];
    }
    return status;
}

void sc_plugin_hot_close(spec_connector *conn)
{
    struct sc_plugin_hot *hot = &conn->hot;
    if (hot->readers != NULL)
        sc_store_readers_close(hot->readers[0], load_count(conn));
    sc_alloc_free(&conn->alloc, hot->readers);
    sc_alloc_free(&conn->alloc, hot->trusts);
    hot->readers = NULL;
}

/* ---- Whether it pays ------------------------------------------------------------------------- */

/* What a choice has to read, in rows. */
struct reads {
    double rows, runs;
};

static double of_average(const _Atomic uint32_t *average)
{
    return atomic_load_explicit(average, memory_order_relaxed) / (double)UNIT;
}

static double read_ns(const spec_connector *conn, const struct sc_store_device *device,
                      struct reads reads)
{
    double byte_ns = 1e9 / (double)device->bytes_per_s;
    uint64_t row_bytes = conn->dims.row_bytes;
    double edge = row_bytes % SC_IO_PAGE_BYTES != 0 ? SC_IO_PAGE_BYTES : 0;
    return reads.runs * ((double)device->op_ns + edge * byte_ns) +
           reads.rows * (double)row_bytes * byte_ns;
}

/* Bytes of a layer that are read of each row whatever is chosen. */
static uint64_t certain_bytes(const spec_connector *conn)
{
    uint64_t bytes = conn->config.layout == SC_STORE_SPLIT ? 16 : 8;
    if (!conn->choice.reads_codes)
        return bytes + conn->choice.probe_row_bytes;
    uint64_t quarters = conn->config.quarters_k;
    quarters += conn->config.base == SC_BASE_COARSE ? conn->config.quarters_v : 0;
    return bytes + conn->shape.kv_head_count * conn->shape.head_size * quarters / 32;
}

static bool it_pays(const spec_connector *conn, uint32_t layer, uint64_t row_total,
                    uint64_t block_rows)
{
    const struct sc_plugin_hot *hot = &conn->hot;
    const struct sc_plugin_hot_trust *trust = &hot->trusts[layer];
    if (atomic_load_explicit(&trust->count, memory_order_acquire) == 0)
        trust = &hot->trusts[conn->dims.layer_count];
    if (atomic_load_explicit(&trust->count, memory_order_acquire) == 0)
        return false; /* nothing has to be read to find that out */
    struct sc_store_device device;
    sc_store_device(conn->store, &device);
    const struct reads set = {of_average(&trust->rows), of_average(&trust->runs)};
    const struct reads rest = {of_average(&trust->rest), of_average(&trust->rest_runs)};
    double saved_ns = read_ns(conn, &device, set) - read_ns(conn, &device, rest);
    double certain_ns =
        (double)(row_total * certain_bytes(conn)) * 1e9 / (double)device.bytes_per_s;
    double block_ns = read_ns(conn, &device, (struct reads){(double)block_rows, 1});
    double window_ns = (double)atomic_load_explicit(&hot->window.ns, memory_order_relaxed);
    double idle_ns = window_ns > certain_ns ? window_ns - certain_ns : 0;
    return saved_ns > block_ns - idle_ns && saved_ns > 0;
}

/* ---- Reading --------------------------------------------------------------------------------- */

static struct sc_plugin_hot_load *load_of(struct sc_plugin_request *request, uint32_t layer)
{
    return &request->hots[layer % SC_PLUGIN_SKETCHES];
}

/* What was read counts as unused. */
static uint64_t load_end(spec_connector *conn, struct sc_plugin_hot_load *load)
{
    struct sc_store_read_cost cost = {0};
    if (load->reader.layer == SC_PLUGIN_NO_LAYER)
        return 0;
    sc_store_reader_cost(load->reader.reader, &cost);
    sc_count(&conn->stats.speculated_bytes, cost.read_bytes);
    sc_count(&conn->stats.unused_bytes, cost.read_bytes);
    sc_plugin_reader_drop(&load->reader);
    return cost.read_bytes;
}

void sc_plugin_hot_start(spec_connector *conn, struct sc_plugin_request *request, uint32_t layer)
{
    struct sc_plugin_hot_load *load = load_of(request, layer);
    if (conn->hot.rows_max == 0 || load->listed == layer)
        return;
    (void)load_end(conn, load);
    load->listed = layer;
    uint64_t most =
        request->list_rows < conn->hot.rows_max ? request->list_rows : conn->hot.rows_max;
    load->count = sc_store_hot_rows(conn->store, layer, request->ranges, request->range_count, most,
                                    load->reader.rows);
    if (load->count == 0 || !it_pays(conn, layer, sc_plugin_row_total(request), load->count))
        return;
    const struct sc_store_picks picks = {.rows = load->reader.rows,
                                         .count = load->count,
                                         .wanted = SC_STORE_WANT_ROWS,
                                         .from_hot = true};
    sc_plugin_picks_begin(conn, request, &load->reader, layer, &picks, SC_LANE_SPECULATIVE);
}

struct sc_plugin_reader *sc_plugin_hot_reader(struct sc_plugin_request *request, uint32_t layer)
{
    struct sc_plugin_hot_load *load = load_of(request, layer);
    return load->reader.layer == layer ? &load->reader : NULL;
}

uint64_t sc_plugin_hot_drop(spec_connector *conn, struct sc_plugin_request *request, uint32_t layer)
{
    struct sc_plugin_hot_load *load = load_of(request, layer);
    return load->reader.layer == layer ? load_end(conn, load) : 0;
}

void sc_plugin_hot_end(spec_connector *conn, struct sc_plugin_request *request)
{
    for (uint32_t i = 0; i < SC_PLUGIN_SKETCHES; i++) {
        (void)load_end(conn, &request->hots[i]);
        request->hots[i].listed = SC_PLUGIN_NO_LAYER;
    }
    request->hot_ns = 0;
}

uint64_t sc_plugin_hot_missing(const struct sc_plugin_item *item, const uint64_t *set_bits,
                               uint32_t *ret_rows)
{
    const struct sc_plugin_hot_load *load = load_of(item->request, item->in.layer);
    uint64_t count = 0;
    for (uint64_t i = 0; i < load->count; i++) {
        uint32_t row = load->reader.rows[i];
        if (sc_plugin_bit_get(set_bits, row) &&
            (item->placed == NULL || !sc_plugin_bit_get(item->placed, row)))
            ret_rows[count++] = row;
    }
    return count;
}

/* ---- Learning -------------------------------------------------------------------------------- */

static void average_move(_Atomic uint32_t *average, uint32_t seen, uint64_t now)
{
    int64_t share = seen + 1 < MEMORY ? seen + 1 : MEMORY;
    int64_t old = atomic_load_explicit(average, memory_order_relaxed);
    atomic_store_explicit(average, (uint32_t)(old + ((int64_t)(now * UNIT) - old) / share),
                          memory_order_relaxed);
}

static void trust_learn(struct sc_plugin_hot_trust *trust, uint64_t rows, uint64_t runs,
                        uint64_t rest, uint64_t rest_runs)
{
    uint32_t seen = atomic_load_explicit(&trust->count, memory_order_relaxed);
    average_move(&trust->rows, seen, rows);
    average_move(&trust->runs, seen, runs);
    average_move(&trust->rest, seen, rest);
    average_move(&trust->rest_runs, seen, rest_runs);
    if (seen < UINT32_MAX) /* what was averaged is seen by who sees the count */
        atomic_store_explicit(&trust->count, seen + 1, memory_order_release);
}

void sc_plugin_hot_learn(spec_connector *conn, const struct sc_plugin_item *item,
                         const uint32_t *set, uint64_t count)
{
    const struct sc_plugin_hot_load *load = load_of(item->request, item->in.layer);
    uint64_t at = 0, runs = 0, rest = 0, rest_runs = 0, next = UINT64_MAX, rest_next = UINT64_MAX;
    if (conn->hot.rows_max == 0 || load->listed != item->in.layer || load->count == 0)
        return;
    for (uint64_t i = 0; i < count; i++) {
        while (at < load->count && load->reader.rows[at] < set[i])
            at++;
        bool is_hot = at < load->count && load->reader.rows[at] == set[i];
        runs += set[i] != next;
        next = set[i] + UINT64_C(1);
        if (is_hot)
            continue;
        rest++;
        rest_runs += set[i] != rest_next;
        rest_next = set[i] + UINT64_C(1);
    }
    trust_learn(&conn->hot.trusts[item->in.layer], count, runs, rest, rest_runs);
    trust_learn(&conn->hot.trusts[conn->dims.layer_count], count, runs, rest, rest_runs);
}

void sc_plugin_hot_asked(spec_connector *conn, struct sc_plugin_request *request, uint32_t layer,
                         uint64_t now_ns)
{
    if (conn->hot.rows_max != 0 && request->hot_ns != 0 && request->hot_layer + 1 == layer)
        sc_plugin_window_learn(&conn->hot.window, now_ns - request->hot_ns);
    request->hot_ns = 0;
}

void sc_plugin_hot_served(struct sc_plugin_request *request, uint32_t layer, uint64_t now_ns)
{
    request->hot_layer = layer;
    request->hot_ns = now_ns;
}
