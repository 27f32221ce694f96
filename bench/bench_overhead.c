/* bench-overhead: what the bookkeeping of selection and reordering costs (IMPRESS, sections 2.2,
 * 4.4.1 and 6.5).
 *
 * One prompt of a large model's shape is stored twice, on the simulated device: by `plain` (preset
 * as-like) and by `reordered` (impress-itf-ro), whose rows are permuted after --warm requests.
 * Sizes are those that the connector reports (struct spec_stats):
 *
 *   extent bytes   reordered - plain, before rows are permuted: probe keys, their tags
 *   log bytes      reordered - plain, opened again: mapping lists, averages, records around them
 *
 * Times of the processor, on this machine, of one request over the permuted rows:
 *
 *   lookup   the call, in rounds
 *   plan     reads of the rows that the request selected, of every layer, in rounds: by the mapping
 *            lists, and (plan plain) before the rows were permuted
 *
 * Time to first token is that of the simulated device, bus and GPU (bench_impress.c), whose clock
 * counts no processor time. Keys and queries are random. The heads disagree, but with alpha 50
 * every layer still has one voted set of rows.
 *
 * Threads: one loop. Tests: none (a measurement); bench/run overhead --quick runs it. */
#include "bench/bench.h"
#include "bench/gpu_wait.h"
#include "bench/sim_open.h"
#include "plugin/args/handle.h"
#include "plugin/connector.h"
#include "store/read/gather_plan.h"
#include "tests/sim/sim_connector.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SEED       UINT64_C(20261130)
#define LAYERS_MAX 64u
#define NEW_TOKENS 64u
#define SETTLE_NS  UINT64_C(10000000000) /* of simulated time, until the background is done */

struct state {
    const struct spec_api *api;
    spec_connector *conn;
    struct sc_alloc alloc;
    struct sc_io_sim_disk *disk;
    struct bench_gpu gpu;
    uint32_t layers, heads, query_heads, head_size; /* heads: of keys and values */
    uint64_t tokens, half_bytes;                    /* of a row: its K, its V */
    uint64_t warm, rounds;
    double bus_bytes_per_s;
    uint8_t *area; /* [K rows][V rows] of a layer */
    uint16_t *query;
    uint32_t *ids;
    uint32_t *positions; /* [heads * tokens] scratch */
    uint32_t *rows;      /* [layers][tokens] selected by the last request */
    uint64_t selected[LAYERS_MAX];
};

static void *memory_get(uint64_t bytes)
{
    void *memory = calloc(1, bytes);
    if (memory == NULL)
        bench_die("no memory for %" PRIu64 " bytes", bytes);
    return memory;
}

/* Finite halves of either sign. */
static void random_halves(void *memory, uint64_t bytes, uint64_t seed)
{
    for (uint64_t i = 0; i < bytes; i += 8) {
        uint64_t word = bench_mix(seed + i) & UINT64_C(0xbfffbfffbfffbfff);
        memcpy((uint8_t *)memory + i, &word, sizeof(word));
    }
}

/* ---- The connector -------------------------------------------------------------------------- */

static void open_connector(struct state *state, const char *config)
{
    struct spec_model model = {.struct_size = sizeof(model),
                               .layer_count = state->layers,
                               .kv_head_count = state->heads,
                               .query_head_count = state->query_heads,
                               .head_size = state->head_size,
                               .kv_dtype = SPEC_DTYPE_F16,
                               .weights_id = {"bench-overhead", 14}};
    state->api = spec_connector_api(SPEC_ABI_MAJOR);
    state->conn = bench_sim_open(state->disk, &model, config);
}

static struct spec_stats stats_of(const struct state *state)
{
    struct spec_error error = {.struct_size = sizeof(error)};
    struct spec_stats stats = {.struct_size = sizeof(stats)};
    bench_must(state->api->stats(state->conn, &stats, &error), &error, "stats");
    return stats;
}

static uint64_t now_ns(const struct state *state)
{
    return sc_exec_now_ns(state->conn->exec);
}

static void wait_ns(const struct state *state, uint64_t ns)
{
    _Atomic uint32_t never = 0;
    (void)sc_exec_wait(state->conn->exec, &never, 0, now_ns(state) + ns);
}

static spec_request look_up(const struct state *state, uint64_t expected)
{
    struct spec_error error = {.struct_size = sizeof(error)};
    struct spec_lookup_params params = {
        .struct_size = sizeof(params), .tokens = state->ids, .token_count = state->tokens + 1};
    struct spec_lookup_result found = {.struct_size = sizeof(found)};
    bench_must(state->api->lookup(state->conn, &params, &found, &error), &error, "lookup");
    if (found.matched_tokens != expected)
        bench_die("%" PRIu64 " tokens match, expected %" PRIu64, found.matched_tokens, expected);
    return found.request;
}

static void release(const struct state *state, spec_request request)
{
    struct spec_error error = {.struct_size = sizeof(error)};
    bench_must(state->api->release(state->conn, request, &error), &error, "release");
}

static struct spec_memory memory_of(const struct state *state)
{
    uint64_t part_bytes = state->tokens * state->half_bytes;
    return (struct spec_memory){.struct_size = sizeof(struct spec_memory),
                                .dtype = SPEC_DTYPE_F16,
                                .k_base = state->area,
                                .v_base = state->area + part_bytes,
                                .k_bytes = part_bytes,
                                .v_bytes = part_bytes,
                                .token_stride_bytes = state->half_bytes,
                                .head_stride_bytes = (uint64_t)state->head_size * 2};
}

static void store_prompt(const struct state *state)
{
    struct spec_error error = {.struct_size = sizeof(error)};
    struct spec_memory memory = memory_of(state);
    spec_request request = look_up(state, 0);
    spec_ticket ticket = 0;
    spec_status ended = SPEC_PENDING;
    for (uint32_t layer = 0; layer < state->layers; layer++) {
        random_halves(state->area, 2 * state->tokens * state->half_bytes, SEED + layer);
        struct spec_store_params params = {.struct_size = sizeof(params),
                                           .request = request,
                                           .layer = layer,
                                           .token_count = state->tokens,
                                           .memory = &memory};
        bench_must(state->api->store(state->conn, &params, 1, &ticket, &error), &error, "store");
        wait_ns(state, SETTLE_NS / 10);
    }
    bench_must(state->api->wait(state->conn, &ticket, 1, UINT64_MAX, &ended, &error), &error,
               "wait");
    bench_must(ended, &error, "a ticket");
    release(state, request);
}

/* ---- A request ------------------------------------------------------------------------------ */

/* The bus and the GPU: keys of the probe heads and the selected rows, scores, the layer. */
static double compute_ns(const struct state *state, uint64_t rows)
{
    double half = (double)state->gpu.half_bytes, probes = 3.0 / state->heads;
    double bytes = half * (double)state->tokens * probes + 2 * half * (double)rows;
    return bytes / state->bus_bytes_per_s * 1e9 +
           bench_gpu_score_ns(&state->gpu, NEW_TOKENS, state->tokens,
                              3 * (state->query_heads / state->heads)) +
           bench_gpu_layer_ns(&state->gpu, NEW_TOKENS, rows);
}

static void run_layer(struct state *state, spec_request request, uint32_t layer)
{
    struct spec_error error = {.struct_size = sizeof(error)};
    struct spec_memory memory = memory_of(state);
    uint64_t stride = (uint64_t)state->query_heads * state->head_size * 2;
    struct spec_queries queries = {.struct_size = sizeof(queries),
                                   .dtype = SPEC_DTYPE_F16,
                                   .data = state->query,
                                   .byte_count = stride,
                                   .row_count = 1,
                                   .heads = SPEC_QUERIES_ALL,
                                   .row_stride_bytes = stride,
                                   .head_stride_bytes = (uint64_t)state->head_size * 2,
                                   .first_position = state->tokens};
    struct spec_important item = {.struct_size = sizeof(item),
                                  .request = request,
                                  .layer = layer,
                                  .queries = &queries,
                                  .destination = &memory,
                                  .positions = state->positions,
                                  .position_capacity = state->heads * state->tokens};
    bench_must(state->api->begin_layer(state->conn, &request, 1, layer, &error), &error,
               "begin_layer");
    bench_must(state->api->get_important(state->conn, &item, 1, &error), &error, "get_important");
    bench_must(state->api->prefetch_next(state->conn, request, layer, NULL, &error), &error,
               "prefetch_next");
    if (item.row_count == 0 || item.row_count >= state->tokens ||
        (item.result_flags & SPEC_IMPORTANT_FALLBACK) != 0)
        bench_die("layer %" PRIu32 ": %" PRIu64 " rows were delivered, expected a voted set of "
                  "fewer than %" PRIu64,
                  layer, item.row_count, state->tokens);
    state->selected[layer] = item.row_count;
    memcpy(state->rows + layer * state->tokens, state->positions,
           item.row_count * sizeof(*state->rows));
    wait_ns(state, (uint64_t)compute_ns(state, item.row_count));
}

/* Returns the simulated time to the first token. */
static uint64_t run_request(struct state *state, uint64_t number)
{
    uint64_t start_ns = now_ns(state);
    random_halves(state->query, (uint64_t)state->query_heads * state->head_size * 2, number << 32);
    spec_request request = look_up(state, state->tokens);
    for (uint32_t layer = 0; layer < state->layers; layer++)
        run_layer(state, request, layer);
    uint64_t ttft_ns = now_ns(state) - start_ns;
    release(state, request);
    return ttft_ns;
}

/* ---- Processor time ------------------------------------------------------------------------- */

static uint64_t thread_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

static void time_lookup(const struct state *state)
{
    static struct bench_series series = {.name = "lookup", .unit = "request", .work = 1};
    for (uint64_t i = 0; i < state->rounds; i++) {
        uint64_t start_ns = thread_ns();
        spec_request request = look_up(state, state->tokens);
        bench_series_add(&series, thread_ns() - start_ns);
        release(state, request);
    }
    bench_series_print(&series);
}

/* Plans the reads of the last request's rows. Returns their operations. */
static uint64_t plan_layers(const struct state *state, const struct sc_plugin_request *request)
{
    static struct sc_store_gather_plan plan;
    static struct sc_store_slot_memory memory;
    struct sc_store_gather_op op;
    uint64_t ops = 0;
    for (uint32_t layer = 0; layer < state->layers; layer++) {
        const struct sc_store_gather_rows gather = {.rows = state->rows + layer * state->tokens,
                                                    .count = state->selected[layer],
                                                    .whole_slabs = true};
        sc_store_gather_plan_begin(&plan, state->conn->store, layer, request->ranges,
                                   request->range_count, &gather, &memory);
        for (; sc_store_gather_plan_next(&plan, &op); ops++)
            if (op.status != SPEC_OK)
                bench_die("the plan of layer %" PRIu32 " failed with %d", layer, (int)op.status);
    }
    return ops;
}

/* Returns the operations of a request, for which rounds of plans agree. */
static uint64_t time_plan(const struct state *state, const char *name)
{
    static struct bench_series series;
    spec_request handle = look_up(state, state->tokens);
    const struct sc_plugin_request *request = sc_plugin_request_find(state->conn, handle);
    uint64_t ops = plan_layers(state, request);
    series = (struct bench_series){.name = name, .unit = "request", .work = 1};
    for (uint64_t i = 0; i < state->rounds; i++) {
        uint64_t start_ns = thread_ns();
        if (plan_layers(state, request) != ops)
            bench_die("two plans of the same rows differ");
        bench_series_add(&series, thread_ns() - start_ns);
    }
    release(state, handle);
    bench_series_print(&series);
    return ops;
}

/* ---- Runs ----------------------------------------------------------------------------------- */

static void new_disk(struct state *state)
{
    struct spec_error error = {.struct_size = sizeof(error)};
    struct sc_io_sim_disk_params disk = {.alloc = &state->alloc, .seed = SEED};
    if (state->disk != NULL)
        sc_io_sim_disk_close(state->disk);
    bench_must(sc_io_sim_disk_open(&disk, &state->disk, &error), &error, "simulated disk");
}

/* Opens the connector again, so that the log has what was kept. Returns the statistics. */
static struct spec_stats reopened(struct state *state, const char *config)
{
    state->api->close(state->conn);
    open_connector(state, config);
    wait_ns(state, SETTLE_NS);
    return stats_of(state);
}

static void reorder(const struct state *state)
{
    struct spec_error error = {.struct_size = sizeof(error)};
    const struct spec_maintain_params params = {.struct_size = sizeof(params),
                                                .flags = SPEC_MAINTAIN_REORDER};
    bench_must(state->api->maintain(state->conn, &params, &error), &error, "maintain");
    wait_ns(state, SETTLE_NS);
    struct spec_stats stats = stats_of(state);
    if (stats.reordered_chunks != stats.chunks)
        bench_die("%" PRIu64 " of %" PRIu64 " chunks were reordered", stats.reordered_chunks,
                  stats.chunks);
}

static void run(struct state *state, const char *plain_config, const char *config)
{
    new_disk(state);
    open_connector(state, plain_config);
    store_prompt(state);
    uint64_t row_bytes = stats_of(state).stored_row_bytes;
    struct spec_stats plain = reopened(state, plain_config);
    state->api->close(state->conn);

    new_disk(state);
    open_connector(state, config);
    store_prompt(state);
    uint64_t extent_bytes = stats_of(state).extent_bytes; /* the permuted copy comes beside it */
    for (uint64_t i = 0; i < state->warm; i++)
        (void)run_request(state, i);
    uint64_t plain_ops = time_plan(state, "plan plain");
    reorder(state);
    struct spec_stats kept = reopened(state, config);
    uint64_t ttft_ns = run_request(state, state->warm);
    uint64_t ops = time_plan(state, "plan");
    time_lookup(state);
    state->api->close(state->conn);
    sc_io_sim_disk_close(state->disk);
    printf("{\"facts\": {\"tokens\": %" PRIu64 ", \"layers\": %" PRIu32 ", \"row_bytes\": %" PRIu64
           ", \"extent_bytes\": %" PRIu64 ", \"extent_bytes_plain\": %" PRIu64
           ", \"log_bytes\": %" PRIu64 ", \"log_bytes_plain\": %" PRIu64 ", \"ttft_ns\": %" PRIu64
           ", \"ops\": %" PRIu64 ", \"ops_plain\": %" PRIu64 "}}\n",
           state->tokens, state->layers, row_bytes, extent_bytes, plain.extent_bytes,
           kept.log_bytes, plain.log_bytes, ttft_ns, ops, plain_ops);
}

static double option_real(int argc, char **argv, const char *name, const char *fallback)
{
    const char *text = bench_option(argc, argv, name, fallback);
    char *end;
    double value = strtod(text, &end);
    if (end == text || *end != '\0' || !(value > 0))
        bench_die("%s %s: expected a number above 0", name, text);
    return value;
}

static void read_options(struct state *state, int argc, char **argv)
{
    state->layers = (uint32_t)bench_option_u64(argc, argv, "--layers", 4);
    state->heads = (uint32_t)bench_option_u64(argc, argv, "--kv-heads", 32);
    state->query_heads = (uint32_t)bench_option_u64(argc, argv, "--query-heads", 32);
    state->head_size = (uint32_t)bench_option_u64(argc, argv, "--head-size", 128);
    state->tokens = bench_option_u64(argc, argv, "--tokens", 4864);
    state->warm = bench_option_u64(argc, argv, "--warm", 4);
    state->rounds = bench_option_u64(argc, argv, "--rounds", 100);
    state->bus_bytes_per_s = option_real(argc, argv, "--bus", "25e9");
    if (state->layers == 0 || state->layers > LAYERS_MAX || state->heads < 3 ||
        state->heads > 1024 || state->head_size == 0 || state->head_size % 4 != 0 ||
        state->head_size > 1024 || state->query_heads == 0 ||
        state->query_heads % state->heads != 0 || state->query_heads > 1024)
        bench_die("a number of layers or heads, or a head's size, is out of range");
    if (state->tokens == 0 || state->tokens > 1u << 20 || state->warm == 0 || state->rounds == 0 ||
        state->rounds > BENCH_ROUNDS_MAX)
        bench_die("--tokens, --warm or --rounds is out of range");
    state->half_bytes = (uint64_t)state->heads * state->head_size * 2;
    state->gpu =
        (struct bench_gpu){.layer_params = option_real(argc, argv, "--layer-params", "201326592"),
                           .flop_per_s = option_real(argc, argv, "--gpu-flop", "156e12"),
                           .bytes_per_s = option_real(argc, argv, "--gpu-bytes", "2.0e12"),
                           .slower = 1,
                           .width = (uint64_t)state->query_heads * state->head_size,
                           .head_size = state->head_size,
                           .half_bytes = state->half_bytes};
}

int main(int argc, char **argv)
{
    static struct state state;
    read_options(&state, argc, argv);
    const char *plain_config = bench_option(argc, argv, "--plain-config", NULL);
    const char *config = bench_option(argc, argv, "--config", NULL);
    if (plain_config == NULL || config == NULL)
        bench_die("--plain-config JSON and --config JSON are needed");
    state.area = memory_get(2 * state.tokens * state.half_bytes);
    state.query = memory_get((uint64_t)state.query_heads * state.head_size * 2);
    state.ids = memory_get((state.tokens + 1) * sizeof(*state.ids));
    state.positions = memory_get(state.heads * state.tokens * sizeof(*state.positions));
    state.rows = memory_get(state.layers * state.tokens * sizeof(*state.rows));
    for (uint64_t i = 0; i <= state.tokens; i++)
        state.ids[i] = (uint32_t)(bench_mix(i) % 50000);
    sc_alloc_init(&state.alloc);
    run(&state, plain_config, config);
    sc_alloc_done(&state.alloc);
    free(state.area);
    free(state.query);
    free(state.ids);
    free(state.positions);
    free(state.rows);
    return 0;
}
