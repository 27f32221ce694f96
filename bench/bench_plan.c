/* bench-plan: reads of both planners for chosen rows, beside the device model's optimum; load times
 * beside fio with the plan's operations.
 *
 *   --row-bytes N    paired rows of N bytes; 8 layers of 32 MiB (fewer rows if N is small)
 *   plan    no I/O: bytes wanted and read, operations, for shares of random and of clustered rows
 *   time    rounds of: the load, layer by layer, then with the next layer begun ahead, rows copied
 *           as a host copies them; then fio, random reads of the plan's sizes, as many bytes.
 *           The case with a limit has --rounds of them, the others a quarter
 *   layered  quantised rows (K 4 bits, V 2) two layers ahead, and 5 % of the rows exactly, chosen
 *           when a layer's quantised rows are available: the same, and fio with sequential reads of
 *           their operations beside random ones of the rows'. Nothing is decoded or scored
 *
 * A plan's time on the device model is max(bytes / rate, operations x op_ns); the optimum is the
 * least over all gaps that could be read through. Loads are cold: the store reads with O_DIRECT.
 * Threads: the store's. Tests: none (a measurement). */
#include "base/config.h"
#include "bench/bench.h"
#include "store/internal.h"
#include "store/read/gather_plan.h"
#include "store/rows/tag.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LAYERS         8u
#define CHUNK          64u
#define LAYER_BYTES    (32ull << 20)
#define ROWS_MAX       32768u
#define CLUSTER        16u
#define INFLIGHT_BYTES (8ull << 20) /* io.in_flight_bytes */
#define SIZES_MAX      512u         /* of operations, in pages */
#define THREADS        2u           /* fio's, as many as the store's: io.threads */
#define AHEAD          3u           /* layers whose codes are there or being read */
#define BITS_K         4u           /* of codes, and the share of exact rows: preset layered's */
#define BITS_V         2u
#define EXACT          500u
#define LAYERED_ROUNDS 9u
#define TEACHES        4u /* loads of all layers before any counts */

struct state {
    struct sc_alloc alloc;
    struct sc_log log;
    struct sc_fault fault;
    struct sc_poison poison;
    struct sc_exec *exec;
    struct sc_config config;
    struct sc_store *store;
    struct sc_store_reader *readers[2];
    struct sc_store_selector *selectors[AHEAD];
    uint64_t row_bytes, row_count, rounds, depth;
    struct sc_store_codec_shape shape;
    const char *dir, *fio;
    struct sc_store_range *ranges;
    uint64_t range_count;
    uint64_t *tags; /* [LAYERS][row_count] */
    uint8_t *destination;
    uint32_t *picks; /* [ROWS_MAX] */
    uint64_t gather_count;

    /* Of the pass that is stored. */
    uint64_t pass_first, pass_rows, layer;
    uint32_t *tokens;
    _Atomic uint32_t written;
};

static void *memory_of(uint64_t bytes)
{
    void *memory = calloc(1, bytes);
    if (memory == NULL)
        bench_die("no memory for %" PRIu64 " bytes", bytes);
    return memory;
}

/* ---- What is stored ------------------------------------------------------------------------- */

static void piece_hash(uint64_t end, uint8_t hash[SC_STORE_HASH_BYTES])
{
    uint64_t words[2] = {end, bench_mix(end)};
    memcpy(hash, words, sizeof(words));
}

static bool on_piece(const struct sc_store_piece *piece, uint64_t *ret_mark, void *user)
{
    struct state *state = user;
    (void)ret_mark;
    if (state->range_count * CHUNK < state->row_count)
        state->ranges[state->range_count++] =
            (struct sc_store_range){.piece = piece->id, .row_count = piece->row_count};
    return true;
}

static void on_written(struct sc_store_extent *extent, spec_status status, void *extent_user,
                       void *user)
{
    struct state *state = user;
    struct spec_error error = {.struct_size = sizeof(error)};
    struct sc_store_commit commit = {.tokens = state->tokens};
    uint64_t first;
    (void)extent_user;
    bench_must(status, &error, "an extent");
    bench_must(sc_store_extent_commit(extent, &commit, &first, &error), &error, "commit");
    for (uint64_t i = 0; i < state->pass_rows / CHUNK; i++)
        state->ranges[state->range_count++] =
            (struct sc_store_range){.piece = first + i, .row_count = CHUNK};
    (void)atomic_fetch_add(&state->written, 1);
    sc_exec_wake(state->exec, &state->written);
}

static void row_fill(const struct state *state, uint64_t layer, uint64_t row, uint8_t *dst)
{
    uint64_t word = bench_mix(layer * ROWS_MAX + row);
    for (uint64_t i = 0; i < state->row_bytes; i += 8) {
        word = word * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        memcpy(dst + i, &word, 8);
    }
}

static void pack(void *user, uint32_t part, uint64_t row_first, uint64_t row_count, uint8_t *dst)
{
    struct state *state = user;
    (void)part; /* K and V */
    for (uint64_t i = 0; i < row_count; i++)
        row_fill(state, state->layer, state->pass_first + row_first + i,
                 dst + i * state->row_bytes);
}

/* The number of the extent that has the row. */
static uint64_t copy_of(const struct state *state, uint64_t row)
{
    const struct sc_store_table *table = &state->store->table;
    uint64_t piece = state->ranges[row / CHUNK].piece;
    return sc_store_table_extent(table, sc_store_table_piece(table, piece)->extent)->copy;
}

static void tags_make(struct state *state)
{
    static const uint8_t digest[SC_STORE_HASH_BYTES];
    uint8_t *row = memory_of(state->row_bytes), hash[SC_STORE_HASH_BYTES];
    for (uint64_t layer = 0; layer < LAYERS; layer++)
        for (uint64_t i = 0; i < state->row_count; i++) {
            piece_hash(i / CHUNK * CHUNK + CHUNK, hash);
            row_fill(state, layer, i, row);
            const struct sc_store_tag_rows one = {
                .base = sc_store_tag_base(digest, hash, copy_of(state, i), (uint32_t)layer,
                                          SC_STORE_PART_ROW),
                .position_first = i,
                .row_bytes = state->row_bytes,
                .count = 1};
            sc_store_tag_make(&one, row, &state->tags[layer * state->row_count + i]);
        }
    free(row);
}

static void store_pass(struct state *state, uint64_t first, uint64_t rows)
{
    struct spec_error error = {.struct_size = sizeof(error)};
    struct sc_store_piece_plan *plans = memory_of(rows / CHUNK * sizeof(*plans));
    const struct sc_store_pass pass = {.pieces = plans, .piece_count = rows / CHUNK, .user = state};
    struct sc_store_extent *extent;
    struct sc_store_stats stats;
    for (uint64_t i = 0; i < rows / CHUNK; i++) {
        plans[i] = (struct sc_store_piece_plan){.first_position = first + i * CHUNK,
                                                .chunk_first = first + i * CHUNK,
                                                .row_count = CHUNK};
        piece_hash(first + i * CHUNK, plans[i].chunk_hash);
        piece_hash(first + i * CHUNK + CHUNK, plans[i].hash);
    }
    state->pass_first = first;
    state->pass_rows = rows;
    uint32_t written = atomic_load(&state->written);
    bench_must(sc_store_extent_begin(state->store, &pass, &extent, &error), &error, "begin");
    for (state->layer = 0; state->layer < LAYERS; state->layer++) {
        do {
            (void)usleep(200);
            sc_store_stats(state->store, &stats);
        } while (stats.staging_bytes_used > 16u << 20);
        const struct sc_store_source source = {.pack = pack, .user = state};
        bench_must(sc_store_extent_put_layer(extent, (uint32_t)state->layer, &source, &error),
                   &error, "a layer");
    }
    while (atomic_load(&state->written) == written)
        (void)sc_exec_wait(state->exec, &state->written, written, SC_EXEC_FOREVER);
    free(plans);
}

/* Codes that are as long as real ones; nobody decodes them. */
static bool encode(void *user, const struct sc_store_encode *what)
{
    const struct sc_store_codec_shape *shape = &((const struct state *)user)->shape;
    uint64_t each = what->part == SC_STORE_PART_K ? shape->k_row_bytes : shape->v_row_bytes;
    uint64_t half = shape->scale_bytes / 2; /* a row's K, or V, is as long */
    memcpy(what->scales, what->rows[0], half);
    memcpy(what->scales + half, what->rows[0], half);
    for (uint64_t i = 0; i < what->row_count; i++)
        memcpy(what->codes + i * each, what->rows[i], each);
    return true;
}

static void await_quant(const struct state *state)
{
    struct sc_store_stats stats;
    sc_store_build_quant(state->store);
    do {
        (void)usleep(1000);
        sc_store_stats(state->store, &stats);
    } while (stats.is_building);
}

static void open_store(struct state *state, const char *backend)
{
    struct spec_error error = {.struct_size = sizeof(error)};
    char config[4096];
    (void)snprintf(config, sizeof(config),
                   "{\"path\": \"%s\", \"load_policy\": \"load\", \"host_bytes\": 0, "
                   "\"disk_bytes\": \"1GiB\", \"io\": "
                   "{\"backend\": \"%s\"}}",
                   state->dir, backend);
    sc_alloc_init(&state->alloc);
    sc_log_init(&state->log, NULL, NULL, 0);
    sc_fault_init(&state->fault);
    bench_must(sc_config_parse(&state->alloc, config, &state->config, &error), &error,
               "configuration");
    struct sc_exec_params exec = {
        .alloc = &state->alloc, .thread_count = state->config.io_threads, .name = "plan"};
    bench_must(sc_exec_open(&exec, &state->exec, &error), &error, "executor");
    struct sc_store_params params = {
        .alloc = &state->alloc,
        .exec = state->exec,
        .log = &state->log,
        .fault = &state->fault,
        .poison = &state->poison,
        .config = &state->config,
        .rank_count = 1,
        .space = {.layer_count = LAYERS, .k_row_bytes = state->row_bytes / 2, .descriptor = "{}"},
        .selector_bytes_max = (AHEAD + 1) * LAYER_BYTES,
        .codes = {.shape = state->shape, .encode = encode, .user = state},
        .on_piece = on_piece,
        .on_written = on_written,
        .user = state};
    bench_must(sc_store_open(&params, &state->store, &error), &error, "open");
    bench_must(sc_store_readers_open(state->store, 2, state->readers, &error), &error, "readers");
    uint64_t most = sc_store_extent_rows_max(state->store) / CHUNK * CHUNK;
    for (uint64_t at = state->range_count * CHUNK; at < state->row_count;) {
        uint64_t rows = state->row_count - at < most ? state->row_count - at : most;
        store_pass(state, at, rows);
        at += rows;
    }
    if (state->range_count * CHUNK != state->row_count)
        bench_die("%s holds something else", state->dir);
    await_quant(state);
    for (uint32_t i = 0; i < AHEAD; i++)
        bench_must(
            sc_store_selector_open(state->store, ROWS_MAX, ROWS_MAX, &state->selectors[i], &error),
            &error, "selectors");
}

/* ---- Plans ---------------------------------------------------------------------------------- */

/* A share of rows in 10,000, ascending, alone or in clusters. */
static void gather_make(struct state *state, uint64_t share, bool is_clustered, uint64_t seed)
{
    uint64_t each = is_clustered ? CLUSTER : 1;
    state->gather_count = 0;
    for (uint64_t i = 0; i < state->row_count; i += each)
        for (uint64_t j = 0; j < each && bench_mix(seed * ROWS_MAX + i) % 10000 < share; j++)
            state->picks[state->gather_count++] = (uint32_t)(i + j);
}

struct plan {
    uint64_t bytes, ops;
    uint64_t of_size[SIZES_MAX + 1]; /* operations by pages */
};

static struct plan plan_of(const struct state *state, const struct sc_store_gather_rows *picks,
                           uint32_t layer)
{
    static struct sc_store_gather_plan planner;
    static struct sc_store_slot_memory memory;
    struct sc_store_gather_op op;
    struct plan plan = {0};
    sc_store_gather_plan_begin(&planner, state->store, layer, state->ranges, state->range_count,
                               picks, &memory);
    while (sc_store_gather_plan_next(&planner, &op)) {
        bench_must(op.status, &(struct spec_error){.text = "no such row"}, "plan");
        for (uint32_t i = 0; i < op.part_count; i++) {
            uint64_t pages = op.parts[i].bytes / SC_IO_PAGE_BYTES;
            plan.bytes += op.parts[i].bytes;
            plan.ops++;
            plan.of_size[pages < SIZES_MAX ? pages : SIZES_MAX]++;
        }
    }
    return plan;
}

static double model_ns(const struct sc_store_device *device, const struct plan *plan)
{
    double bytes_ns = (double)plan->bytes * 1e9 / (double)device->bytes_per_s;
    double ops_ns = (double)plan->ops * (double)device->op_ns;
    return bytes_ns > ops_ns ? bytes_ns : ops_ns;
}

static void plan_print(const struct state *state, const struct sc_store_device *device,
                       uint64_t share, bool is_clustered, bool is_chunk, uint64_t gap)
{
    struct sc_store_gather_rows picks = {.rows = state->picks, .count = state->gather_count};
    double best_ns = -1;
    for (uint64_t pages = 0; pages <= 256; pages = pages == 0 ? 1 : 2 * pages) {
        picks.gap_bytes = pages * SC_IO_PAGE_BYTES;
        struct plan plan = plan_of(state, &picks, 0);
        double ns = model_ns(device, &plan);
        best_ns = best_ns < 0 || ns < best_ns ? ns : best_ns;
    }
    picks.gap_bytes = gap;
    picks.whole_slabs = is_chunk;
    struct plan plan = plan_of(state, &picks, 0);
    printf("{\"counts\": {\"name\": \"%" PRIu64 " %s %s\", \"share\": %" PRIu64
           ", \"pattern\": \"%s\", \"planner\": \"%s\", \"gap\": %" PRIu64 ", \"wanted\": %" PRIu64
           ", \"read\": %" PRIu64 ", \"ops\": %" PRIu64
           ", \"model_ns\": %.0f, \"best_ns\": %.0f}}\n",
           share, is_clustered ? "clustered" : "random", is_chunk ? "chunk" : "range", share,
           is_clustered ? "clustered" : "random", is_chunk ? "chunk" : "range", gap,
           state->gather_count * state->row_bytes, plan.bytes, plan.ops, model_ns(device, &plan),
           best_ns);
}

/* ---- Time ----------------------------------------------------------------------------------- */

static void reader_begin(const struct state *state, uint32_t layer,
                         const struct sc_store_gather_rows *picks, enum sc_io_class lane)
{
    sc_store_reader_begin_gather(state->readers[layer % 2], layer, state->ranges,
                                 state->range_count, picks, lane);
    sc_store_reader_tags(state->readers[layer % 2], state->tags + layer * state->row_count);
}

/* One layer's rows to the destination. */
static void reader_drain(const struct state *state, uint32_t layer, bool checks)
{
    struct spec_error error = {.struct_size = sizeof(error)};
    struct sc_store_rows rows;
    uint8_t *dst = state->destination, *expected = checks ? memory_of(state->row_bytes) : NULL;
    uint64_t count = 0;
    do {
        bench_must(
            sc_store_reader_next(state->readers[layer % 2], SC_EXEC_FOREVER, NULL, &rows, &error),
            &error, "rows");
        memcpy(dst, rows.rows, rows.row_count * state->row_bytes);
        for (uint64_t i = 0; checks && i < rows.row_count; i++) {
            row_fill(state, layer, state->picks[rows.row_first + i], expected);
            if (memcmp(dst + i * state->row_bytes, expected, state->row_bytes) != 0)
                bench_die("row %" PRIu32 " is wrong", state->picks[rows.row_first + i]);
        }
        dst += rows.row_count * state->row_bytes;
        count += rows.row_count;
    } while (rows.row_count > 0);
    if (count != state->gather_count)
        bench_die("%" PRIu64 " rows came of %" PRIu64, count, state->gather_count);
    free(expected);
}

static uint64_t load_layers(const struct state *state, const struct sc_store_gather_rows *picks,
                            bool is_ahead, bool checks)
{
    uint64_t start_ns = bench_now_ns();
    reader_begin(state, 0, picks, SC_IO_CLASS_DEMAND);
    for (uint32_t layer = 0; layer < LAYERS; layer++) {
        if (is_ahead && layer + 1 < LAYERS)
            reader_begin(state, layer + 1, picks, SC_IO_CLASS_SPECULATIVE);
        reader_drain(state, layer, checks);
        if (!is_ahead && layer + 1 < LAYERS)
            reader_begin(state, layer + 1, picks, SC_IO_CLASS_DEMAND);
        else if (layer + 1 < LAYERS)
            sc_store_reader_demand(state->readers[(layer + 1) % 2]);
    }
    return bench_now_ns() - start_ns;
}

static struct bench_series series_of(const char *what, const char *name, double work)
{
    static char names[64][64];
    static uint32_t used;
    char *text = names[used++ % 64];
    (void)snprintf(text, sizeof(names[0]), "%s: %s", what, name);
    return (struct bench_series){.name = text, .unit = "byte", .work = work};
}

/* bssplit: sizes in KiB and their shares, of whole per cents that add up. */
static void fio_sizes(const struct plan *plan, char *text, size_t text_bytes)
{
    uint64_t left = 100, ops = plan->ops, at = 0;
    for (uint64_t pages = 1; pages <= SIZES_MAX; pages++) {
        uint64_t count = plan->of_size[pages];
        uint64_t share = ops == 0 ? 0 : (count * left + ops / 2) / ops;
        ops -= count;
        left -= share;
        if (share > 0)
            at += (uint64_t)snprintf(text + at, text_bytes - at, "%s%" PRIu64 "k/%" PRIu64,
                                     at > 0 ? ":" : "", pages * 4, share);
    }
}

static void time_print(const struct state *state, const char *what, bool is_chunk, uint64_t gap,
                       uint64_t rounds)
{
    struct sc_store_gather_rows picks = {.rows = state->picks,
                                         .count = state->gather_count,
                                         .whole_slabs = is_chunk,
                                         .gap_bytes = gap};
    static struct bench_series load, ahead, fio;
    struct plan plan = plan_of(state, &picks, 0);
    char command[8192], sizes[4096] = "";
    fio_sizes(&plan, sizes, sizeof(sizes));
    uint64_t depth = INFLIGHT_BYTES / (plan.bytes / plan.ops); /* as the back end has it */
    depth = (depth < state->depth ? depth : state->depth) / THREADS;
    (void)snprintf(command, sizeof(command),
                   "%s --threads %u --depth %" PRIu64 " --random %s --ops %" PRIu64
                   " --bytes %" PRIu64 " --op-bytes 4096 %s/rank-0000-of-0001",
                   state->fio, THREADS, depth > 0 ? depth : 1, sizes, plan.ops * LAYERS,
                   plan.bytes * LAYERS, state->dir);
    double work = (double)(state->gather_count * state->row_bytes * LAYERS);
    load = series_of(what, "load", work);
    ahead = series_of(what, "ahead", work);
    fio = series_of(what, "fio", (double)(plan.bytes * LAYERS));
    (void)load_layers(state, &picks, true, true);
    for (uint64_t i = 0; i < rounds; i++) {
        bench_series_add(&load, load_layers(state, &picks, false, false));
        bench_series_add(&ahead, load_layers(state, &picks, true, false));
        bench_series_add(&fio, bench_command_ns(command, "fio_ns"));
    }
    bench_series_print(&load);
    bench_series_print(&ahead);
    bench_series_print(&fio);
}

/* The store learns from loads what its device does: before fio is there to disturb it. */
static void teach_model(struct state *state)
{
    struct spec_error error = {.struct_size = sizeof(error)};
    struct sc_store_device device = {0};
    struct sc_store_rows rows;
    gather_make(state, 2500, false, 2);
    for (uint32_t i = 0; i < TEACHES; i++) {
        sc_store_device(state->store, &device);
        struct sc_store_gather_rows picks = {.rows = state->picks,
                                             .count = state->gather_count,
                                             .gap_bytes = sc_store_device_gap(&device)};
        sc_store_reader_begin(state->readers[0], i % LAYERS, state->ranges, state->range_count,
                              SC_IO_CLASS_DEMAND);
        do
            bench_must(
                sc_store_reader_next(state->readers[0], SC_EXEC_FOREVER, NULL, &rows, &error),
                &error, "rows");
        while (rows.row_count > 0);
        (void)load_layers(state, &picks, false, false);
    }
    if (!device.is_measured)
        (void)fprintf(stderr, "bench-plan: no load showed what the device does: a guess serves\n");
}

/* ---- Layered -------------------------------------------------------------------------------- */

static void codes_begin(const struct state *state, uint32_t layer, enum sc_io_class lane)
{
    if (layer < LAYERS &&
        !sc_store_selector_begin(state->selectors[layer % AHEAD],
                                 &(struct sc_store_selector_want){.layer = layer,
                                                                  .io_class = lane,
                                                                  .ranges = state->ranges,
                                                                  .range_count = state->range_count,
                                                                  .is_quant = true}))
        bench_die("no memory for codes");
}

/* The layer's codes are there; what they cost is added. */
static void codes_await(const struct state *state, uint32_t layer, bool checks,
                        struct sc_store_read_cost *sum)
{
    struct spec_error error = {.struct_size = sizeof(error)};
    struct sc_store_selector *selector = state->selectors[layer % AHEAD];
    struct sc_store_read_cost cost;
    struct sc_store_slab slab;
    sc_store_selector_demand(selector);
    bench_must(sc_store_selector_wait(selector, SC_EXEC_FOREVER), &error, "codes");
    for (uint64_t i = 0; checks && i < state->range_count; i++)
        if (!sc_store_slab_of(sc_store_selector_keys(selector), i, &slab))
            bench_die("layer %" PRIu32 ", range %" PRIu64 " has no codes", layer, i);
    sc_store_selector_cost(selector, &cost);
    sum->wanted_bytes += cost.wanted_bytes;
    sum->read_bytes += cost.read_bytes;
    sum->op_count += cost.op_count;
}

static uint64_t load_layered(const struct state *state, const struct sc_store_gather_rows *picks,
                             bool checks, struct sc_store_read_cost *ret_quant)
{
    uint64_t start_ns = bench_now_ns();
    *ret_quant = (struct sc_store_read_cost){0};
    for (uint32_t layer = 0; layer < AHEAD; layer++)
        codes_begin(state, layer, layer == 0 ? SC_IO_CLASS_DEMAND : SC_IO_CLASS_SPECULATIVE);
    for (uint32_t layer = 0; layer < LAYERS; layer++) {
        struct sc_store_selector *selector = state->selectors[layer % AHEAD];
        codes_await(state, layer, checks, ret_quant);
        sc_store_reader_begin_gather(state->readers[layer % 2], layer, state->ranges,
                                     state->range_count, picks, SC_IO_CLASS_DEMAND);
        sc_store_reader_tags(state->readers[layer % 2], sc_store_selector_tags(selector));
        reader_drain(state, layer, checks);
        sc_store_selector_end(selector);
        codes_begin(state, layer + AHEAD, SC_IO_CLASS_SPECULATIVE);
    }
    return bench_now_ns() - start_ns;
}

/* The codes' plan is the same whatever the gap; the rows' may be any. */
static double layered_best_ns(const struct state *state, const struct sc_store_device *device,
                              struct sc_store_gather_rows picks,
                              const struct sc_store_read_cost *codes)
{
    double best_ns = -1;
    for (uint64_t pages = 0; pages <= 256; pages = pages == 0 ? 1 : 2 * pages) {
        picks.gap_bytes = pages * SC_IO_PAGE_BYTES;
        struct plan plan = plan_of(state, &picks, 0);
        plan.bytes += codes->read_bytes / LAYERS;
        plan.ops += codes->op_count / LAYERS;
        double ns = model_ns(device, &plan);
        best_ns = best_ns < 0 || ns < best_ns ? ns : best_ns;
    }
    return best_ns;
}

static void layered_time(const struct state *state, const struct sc_store_gather_rows *picks,
                         const struct plan *rows, double work)
{
    static struct bench_series load, fio;
    struct sc_store_read_cost codes;
    char command[8192], sizes[4096] = "";
    (void)load_layered(state, picks, false, &codes);
    fio_sizes(rows, sizes, sizeof(sizes));
    (void)snprintf(
        command, sizeof(command),
        "%s --threads 1 --depth %" PRIu64 " --random %s --ops %" PRIu64 " --bytes %" PRIu64
        " --beside %" PRIu64 " --op-bytes %" PRIu64 " %s/rank-0000-of-0001",
        state->fio, state->depth / THREADS, sizes, rows->ops * LAYERS, rows->bytes * LAYERS,
        codes.read_bytes, codes.read_bytes / codes.op_count, state->dir);
    load = series_of("layered", "whole", work);
    fio = series_of("layered", "fio", (double)(rows->bytes * LAYERS + codes.read_bytes));
    for (uint64_t i = 0; i < state->rounds && i < LAYERED_ROUNDS; i++) {
        bench_series_add(&load, load_layered(state, picks, false, &codes));
        bench_series_add(&fio, bench_command_ns(command, "fio_ns"));
    }
    bench_series_print(&load);
    bench_series_print(&fio);
}

static void layered_print(const struct state *state, const struct sc_store_device *device,
                          uint64_t gap)
{
    struct sc_store_gather_rows picks = {
        .rows = state->picks, .count = state->gather_count, .gap_bytes = gap};
    struct sc_store_read_cost codes;
    (void)load_layered(state, &picks, true, &codes);
    struct plan rows = plan_of(state, &picks, 0), all = rows;
    all.bytes += codes.read_bytes / LAYERS;
    all.ops += codes.op_count / LAYERS;
    uint64_t wanted = state->gather_count * state->row_bytes + codes.wanted_bytes / LAYERS;
    printf("{\"counts\": {\"name\": \"layered\", \"share\": %u, \"wanted\": %" PRIu64
           ", \"read\": %" PRIu64 ", \"ops\": %" PRIu64 ", \"codes_read\": %" PRIu64
           ", \"codes_ops\": %" PRIu64 ", \"rows\": %" PRIu64
           ", \"model_ns\": %.0f, \"best_ns\": %.0f}}\n",
           EXACT, wanted, all.bytes, all.ops, codes.read_bytes / LAYERS, codes.op_count / LAYERS,
           state->gather_count, model_ns(device, &all),
           layered_best_ns(state, device, picks, &codes));
    if (state->fio != NULL)
        layered_time(state, &picks, &rows, (double)(wanted * LAYERS));
}

/* ---- Main ----------------------------------------------------------------------------------- */

static void measure(struct state *state, uint64_t gap)
{
    static const uint64_t shares[] = {500, 1000, 2500, 5000, 10000};
    struct sc_store_device device;
    sc_store_device(state->store, &device);
    gap = gap != UINT64_MAX ? gap : sc_store_device_gap(&device);
    for (uint32_t i = 0; i < 2 * sizeof(shares) / sizeof(shares[0]); i++)
        for (uint32_t j = 0; j < 2; j++) {
            gather_make(state, shares[i / 2], i % 2 == 1, 1);
            plan_print(state, &device, shares[i / 2], i % 2 == 1, j == 0, gap);
        }
    printf("{\"facts\": {\"row_bytes\": %" PRIu64 ", \"rows\": %" PRIu64
           ", \"layers\": %u, \"gap\": %" PRIu64 ", \"op_ns\": %" PRIu64
           ", \"bytes_per_s\": %" PRIu64 ", \"is_measured\": %s}}\n",
           state->row_bytes, state->row_count, LAYERS, gap, device.op_ns, device.bytes_per_s,
           device.is_measured ? "true" : "false");
    gather_make(state, EXACT, false, 1);
    layered_print(state, &device, gap);
    if (state->fio == NULL)
        return;
    const uint64_t rounds = state->rounds, fewer = rounds < 4 ? 1 : rounds / 4; /* no floor */
    gather_make(state, 2500, false, 1);
    time_print(state, "random .25", false, gap, rounds);
    time_print(state, "random .25, gap 0", false, 0, fewer);
    time_print(state, "random .25, slabs", true, 0, fewer);
    gather_make(state, 500, false, 1);
    time_print(state, "random .05", false, gap, fewer);
    gather_make(state, 2500, true, 1);
    time_print(state, "clustered .25", false, gap, fewer);
}

int main(int argc, char **argv)
{
    static struct state state;
    state.dir = bench_option(argc, argv, "--dir", "build/bench-store");
    state.fio = bench_option(argc, argv, "--fio", NULL);
    state.depth = bench_option_u64(argc, argv, "--depth", 128);
    state.rounds = bench_option_u64(argc, argv, "--rounds", 5);
    state.row_bytes = bench_option_u64(argc, argv, "--row-bytes", 16384) / 16 * 16;
    if (state.row_bytes == 0 || state.row_bytes > 65536)
        bench_die("--row-bytes is 16 .. 65536");
    state.shape = (struct sc_store_codec_shape){.bits_k = BITS_K,
                                                .bits_v = BITS_V,
                                                .scale_bytes = state.row_bytes, /* two f16 each */
                                                .k_row_bytes = state.row_bytes / 4 * BITS_K / 8,
                                                .v_row_bytes = state.row_bytes / 4 * BITS_V / 8};
    state.row_count = LAYER_BYTES / state.row_bytes / CHUNK * CHUNK;
    state.row_count = state.row_count < ROWS_MAX ? state.row_count : ROWS_MAX;
    state.ranges = memory_of(ROWS_MAX / CHUNK * sizeof(*state.ranges));
    state.tags = memory_of(LAYERS * state.row_count * sizeof(*state.tags));
    state.picks = memory_of(ROWS_MAX * sizeof(*state.picks));
    state.tokens = memory_of(ROWS_MAX * sizeof(*state.tokens));
    state.destination = memory_of(state.row_count * state.row_bytes);
    memset(state.destination, 0x5a, state.row_count * state.row_bytes);
    open_store(&state, bench_option(argc, argv, "--backend", "auto"));
    tags_make(&state); /* they name the copies that were stored */
    teach_model(&state);
    measure(&state, bench_option_u64(argc, argv, "--gap", UINT64_MAX));
    for (uint32_t i = 0; i < AHEAD; i++)
        sc_store_selector_close(state.selectors[i]);
    sc_store_readers_close(state.readers[0], 2);
    sc_store_close(state.store);
    sc_exec_close(state.exec);
    sc_log_done(&state.log);
    free(state.destination);
    free(state.tokens);
    free(state.picks);
    free(state.tags);
    free(state.ranges);
    return 0;
}
