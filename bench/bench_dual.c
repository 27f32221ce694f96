/* bench-dual: IMPRESS' dual cache through the plugin, on a simulated device and its clock.
 *
 * Requests load the important rows of their prefixes by the plugin's own loads. Which rows are
 * important is planted; the file gives their number per chunk:
 *
 *   file      L layers
 *             P chunks        a prefix, of so many chunks in each layer
 *             Q n n n ..      a question to it: important rows of layer 0's chunks, layer 1's ..
 *             R prefix question   a request
 *   keys      of row j of a chunk with n important ones, for question q: channel q is 1 if j < n,
 *             in the first of HEADS heads, the only probe; a query is q's channel
 *
 * Rows have 256 bytes. The rates of device and bus are reduced so that a chunk takes as long as one
 * of --row-bytes would; an operation's latency is not. Bytes read beside rows, for page borders,
 * are 1/15 here and none there: the device's rate compensates by what a load of one prefix reads.
 *
 *   --policies   separated by commas; UPPER+HOST if the two tiers differ
 *   --gpu, --host   in chunks; keys of the probed head, a page per chunk here, have room beside
 *
 * Prints a JSON line per policy: rows delivered and their tier (upper, host, disk); milliseconds of
 * loads per request; bytes over the bus.
 * Threads: the plugin's loop. Tests: none (a measurement); bench/run cache --quick runs it. */
#include "bench/bench.h"
#include "bench/sim_open.h"
#include "plugin/connector.h"
#include "tests/sim/sim_connector.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHUNK     64u
#define HEADS     8u
#define CHANNELS  8u /* so many questions at most */
#define ROW_BYTES (HEADS * CHANNELS * 2 * 2)
#define PAGE      4096u
#define ONE       0x3c00u /* of float16 */
#define LOUD      0x5400u /* 64: important rows have all of the attention */

/* Of a slab in memory: its rows and their tags. */
#define SLAB_PAGES ((CHUNK * (ROW_BYTES + 8) + PAGE - 1) / PAGE)

struct prefix {
    uint64_t chunks, question_count;
    uint32_t *rows[CHANNELS]; /* [layer][chunk] */
};

struct ask {
    uint32_t prefix, question;
};

struct state {
    const struct spec_api *api;
    spec_connector *conn;
    struct sc_alloc alloc;
    struct sc_io_sim_disk *disk;
    uint32_t layers;
    struct prefix *prefixes;
    uint64_t prefix_count, chunks_max, chunk_count; /* chunk_count: of all prefixes and layers */
    struct ask *asks;
    uint64_t ask_count, warm_count;
    const char *preset;
    uint64_t gpu_chunks, host_chunks, row_bytes, rate, bus;
    double over; /* what is read, of what is wanted */
    uint16_t *area;
    uint32_t *ids, *positions;
};

static void *zeros(uint64_t count, uint64_t bytes)
{
    void *memory = calloc(count + 1, bytes);
    if (memory == NULL)
        bench_die("no memory");
    return memory;
}

static uint64_t now_ns(const struct state *state)
{
    return sc_exec_now_ns(state->conn->exec);
}

/* ---- The stream ------------------------------------------------------------------------------ */

static void question_read(struct state *state, char *text)
{
    if (state->prefix_count == 0 ||
        state->prefixes[state->prefix_count - 1].question_count == CHANNELS)
        bench_die("--stream: Q behind a P, %u at most", CHANNELS);
    struct prefix *prefix = &state->prefixes[state->prefix_count - 1];
    uint64_t count = prefix->chunks * state->layers;
    uint32_t *rows = prefix->rows[prefix->question_count++] = zeros(count, sizeof(*rows));
    for (uint64_t i = 0; i < count; i++)
        rows[i] = (uint32_t)strtoul(text, &text, 10);
}

static void line_read(struct state *state, char *line)
{
    char *rest = line + 1;
    uint64_t a = line[0] == 'Q' ? 0 : strtoull(rest, &rest, 10);
    switch (line[0]) {
    case 'L':
        state->layers = (uint32_t)a;
        break;
    case 'P':
        state->prefixes =
            realloc(state->prefixes, (state->prefix_count + 1) * sizeof(struct prefix));
        if (state->prefixes == NULL)
            bench_die("no memory");
        state->prefixes[state->prefix_count++] = (struct prefix){.chunks = a};
        state->chunks_max = a > state->chunks_max ? a : state->chunks_max;
        state->chunk_count += a * state->layers;
        break;
    case 'Q':
        question_read(state, rest);
        break;
    default:
        state->asks = realloc(state->asks, (state->ask_count + 1) * sizeof(struct ask));
        if (state->asks == NULL || a >= state->prefix_count)
            bench_die("--stream: %s", line);
        state->asks[state->ask_count++] =
            (struct ask){.prefix = (uint32_t)a, .question = (uint32_t)strtoul(rest, NULL, 10)};
    }
}

static void stream_read(struct state *state, const char *path)
{
    FILE *file = fopen(path, "r");
    char *line = NULL;
    size_t bytes = 0;
    if (file == NULL)
        bench_die("--stream: cannot read %s", path);
    while (getline(&line, &bytes, file) > 0)
        line_read(state, line);
    free(line);
    (void)fclose(file);
    if (state->layers == 0 || state->ask_count == 0)
        bench_die("--stream: layers and requests are expected");
}

/* ---- The host -------------------------------------------------------------------------------- */

static void open_connector(struct state *state, const char *policy, uint64_t rate)
{
    char config[1024];
    double less = (double)state->row_bytes / ROW_BYTES;
    uint64_t tokens = state->chunks_max * CHUNK + 1;
    const char *host_policy = strchr(policy, '+');
    int above = host_policy != NULL ? (int)(host_policy - policy) : (int)strlen(policy);
    host_policy = host_policy != NULL ? host_policy + 1 : policy;
    (void)snprintf(config, sizeof(config),
                   "{\"path\": \"/sim\", \"preset\": \"%s\", \"select\": {\"probe_heads\": 1, "
                   "\"alpha_milli\": 50000}, \"host_policy\": \"%s\", \"upper_policy\": \"%.*s\", "
                   "\"host_bytes\": %" PRIu64 ", \"upper_bytes\": %" PRIu64
                   ", \"upper_bus_bytes_per_s\": %.0f, "
                   "\"disk_bytes\": \"8GiB\", \"staging_bytes\": \"64MiB\", \"io\": {\"op_bytes\": "
                   "\"64KiB\"}, "
                   "\"max_requests\": 4, \"max_request_tokens\": %" PRIu64
                   ", \"sim\": {\"bytes_per_s\": %.0f, \"op_ns\": 80000, \"ops_per_s\": 700000}}",
                   state->preset, host_policy, above, policy,
                   (state->host_chunks * SLAB_PAGES + state->chunk_count) * PAGE,
                   state->gpu_chunks * SLAB_PAGES * PAGE, (double)state->bus / less, tokens,
                   (double)rate / less * state->over);
    struct spec_model model = {.struct_size = sizeof(model),
                               .layer_count = state->layers,
                               .kv_head_count = HEADS,
                               .query_head_count = HEADS,
                               .head_size = CHANNELS,
                               .kv_dtype = SPEC_DTYPE_F16,
                               .weights_id = {"bench-dual", 10}};
    state->api = spec_connector_api(SPEC_ABI_MAJOR);
    state->conn = bench_sim_open(state->disk, &model, config);
}

/* [token][head][channel] of K, then of V. */
static struct spec_memory memory_of(const struct state *state)
{
    uint64_t part_bytes = state->chunks_max * CHUNK * (ROW_BYTES / 2);
    return (struct spec_memory){.struct_size = sizeof(struct spec_memory),
                                .dtype = SPEC_DTYPE_F16,
                                .k_base = state->area,
                                .v_base = (uint8_t *)state->area + part_bytes,
                                .k_bytes = part_bytes,
                                .v_bytes = part_bytes,
                                .token_stride_bytes = ROW_BYTES / 2,
                                .head_stride_bytes = CHANNELS * 2};
}

static spec_request look_up(struct state *state, uint32_t number, bool is_stored)
{
    struct spec_error error = {.struct_size = sizeof(error)};
    uint64_t rows = state->prefixes[number].chunks * CHUNK;
    for (uint64_t i = 0; i <= rows; i++)
        state->ids[i] = (uint32_t)(bench_mix(number * 65536ull + i) % 50000);
    struct spec_lookup_params params = {
        .struct_size = sizeof(params), .tokens = state->ids, .token_count = rows + is_stored};
    struct spec_lookup_result found = {.struct_size = sizeof(found)};
    bench_must(state->api->lookup(state->conn, &params, &found, &error), &error, "lookup");
    if (found.matched_tokens != (is_stored ? rows : 0))
        bench_die("prefix %" PRIu32 ": lookup promises %" PRIu64 " tokens", number,
                  found.matched_tokens);
    return found.request;
}

static void keys_plant(struct state *state, const struct prefix *prefix, uint32_t layer)
{
    memset(state->area, 0, state->chunks_max * CHUNK * ROW_BYTES);
    for (uint64_t q = 0; q < prefix->question_count; q++)
        for (uint64_t c = 0; c < prefix->chunks; c++)
            for (uint64_t j = 0; j < prefix->rows[q][layer * prefix->chunks + c]; j++)
                state->area[(c * CHUNK + j) * HEADS * CHANNELS + q] = ONE;
}

static void prefix_store(struct state *state, uint32_t number)
{
    struct spec_error error = {.struct_size = sizeof(error)};
    const struct prefix *prefix = &state->prefixes[number];
    struct spec_memory memory = memory_of(state);
    spec_request request = look_up(state, number, false);
    spec_ticket ticket = 0;
    spec_status ended = SPEC_PENDING;
    for (uint32_t layer = 0; layer < state->layers; layer++) {
        struct spec_store_params params = {.struct_size = sizeof(params),
                                           .request = request,
                                           .layer = layer,
                                           .token_count = prefix->chunks * CHUNK,
                                           .memory = &memory};
        keys_plant(state, prefix, layer);
        bench_must(state->api->store(state->conn, &params, 1, &ticket, &error), &error, "store");
    }
    while (ended == SPEC_PENDING) {
        _Atomic uint32_t never = 0;
        (void)sc_exec_wait(state->conn->exec, &never, 0, now_ns(state) + 1000000);
        spec_status polled = state->api->poll(state->conn, &ticket, 1, &ended, &error);
        if (polled != SPEC_OK && polled != SPEC_PENDING)
            bench_must(polled, &error, "poll");
    }
    bench_must(ended, &error, "store");
    bench_must(state->api->release(state->conn, request, &error), &error, "release");
}

/* ---- Loads ----------------------------------------------------------------------------------- */

struct counts {
    uint64_t rows[SPEC_TIERS], rows_all, chunks, read_bytes;
};

static void layer_load(struct state *state, const struct ask *ask, spec_request request,
                       uint32_t layer, struct counts *counts)
{
    struct spec_error error = {.struct_size = sizeof(error)};
    const struct prefix *prefix = &state->prefixes[ask->prefix];
    const uint32_t *rows = prefix->rows[ask->question] + layer * prefix->chunks;
    struct spec_memory memory = memory_of(state);
    uint16_t query[HEADS * CHANNELS] = {0};
    uint64_t wanted = 0;
    for (uint64_t c = 0; c < prefix->chunks; c++) {
        wanted += rows[c];
        counts->chunks += rows[c] > 0;
    }
    query[ask->question] = LOUD;
    const struct spec_queries queries = {.struct_size = sizeof(queries),
                                         .dtype = SPEC_DTYPE_F16,
                                         .data = query,
                                         .byte_count = sizeof(query),
                                         .row_count = 1,
                                         .row_stride_bytes = sizeof(query),
                                         .head_stride_bytes = CHANNELS * 2,
                                         .first_position = prefix->chunks * CHUNK};
    const struct spec_select select = {.struct_size = sizeof(select),
                                       .given = SPEC_SELECT_BUDGET,
                                       .budget = SPEC_BUDGET_COUNT,
                                       .count = wanted};
    struct spec_important item = {.struct_size = sizeof(item),
                                  .request = request,
                                  .layer = layer,
                                  .queries = &queries,
                                  .destination = &memory,
                                  .positions = state->positions,
                                  .position_capacity = HEADS * state->chunks_max * CHUNK,
                                  .select = &select};
    bench_must(state->api->begin_layer(state->conn, &request, 1, layer, &error), &error,
               "begin_layer");
    bench_must(state->api->get_important(state->conn, &item, 1, &error), &error, "get_important");
    bench_must(state->api->prefetch_next(state->conn, request, layer, NULL, &error), &error,
               "prefetch_next");
    if (item.row_count != (wanted > 0 ? wanted : 1) || item.result_flags != 0)
        bench_die("layer %" PRIu32 ": %" PRIu64 " rows, flags %" PRIu32 ", %" PRIu64 " are wanted",
                  layer, item.row_count, item.result_flags, wanted);
    for (uint64_t i = 0; i < item.row_count && wanted > 0; i++)
        if (state->positions[i] % CHUNK >= rows[state->positions[i] / CHUNK])
            bench_die("layer %" PRIu32 ": row %" PRIu32 " is not one of those that are wanted",
                      layer, state->positions[i]);
    for (uint32_t tier = 0; tier < SPEC_TIERS; tier++)
        counts->rows[tier] += item.tier_rows[tier];
    counts->rows_all += item.row_count;
    counts->read_bytes += item.read_bytes;
}

static uint64_t request_run(struct state *state, const struct ask *ask, struct counts *counts)
{
    struct spec_error error = {.struct_size = sizeof(error)};
    uint64_t begin_ns = now_ns(state);
    spec_request request = look_up(state, ask->prefix, true);
    for (uint32_t layer = 0; layer < state->layers; layer++)
        layer_load(state, ask, request, layer, counts);
    uint64_t took_ns = now_ns(state) - begin_ns;
    bench_must(state->api->release(state->conn, request, &error), &error, "release");
    return took_ns;
}

static int compare(const void *a, const void *b)
{
    uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;
    return left < right ? -1 : left > right;
}

static void policy_run(struct state *state, const char *policy)
{
    struct spec_error error = {.struct_size = sizeof(error)};
    struct spec_stats before = {.struct_size = sizeof(before)}, after = before;
    struct counts counts = {0};
    uint64_t *took = zeros(state->ask_count, sizeof(*took)), total = 0;
    uint64_t count = state->ask_count - state->warm_count;
    open_connector(state, policy, state->rate);
    for (uint64_t i = 0; i < state->ask_count; i++) {
        if (i == state->warm_count) {
            counts = (struct counts){0};
            bench_must(state->api->stats(state->conn, &before, &error), &error, "stats");
        }
        took[i] = request_run(state, &state->asks[i], &counts);
    }
    bench_must(state->api->stats(state->conn, &after, &error), &error, "stats");
    qsort(took + state->warm_count, count, sizeof(*took), compare);
    for (uint64_t i = state->warm_count; i < state->ask_count; i++)
        total += took[i];
    const uint64_t *sorted = took + state->warm_count;
    printf("{\"counts\": {\"name\": \"%s\", \"requests\": %" PRIu64 ", \"chunks\": %" PRIu64
           ", \"rows\": %" PRIu64 ", \"gpu_rows\": %" PRIu64 ", \"host_rows\": %" PRIu64
           ", \"disk_rows\": %" PRIu64 ", \"read_bytes\": %" PRIu64 ", \"mean_ms\": %.4f"
           ", \"p50_ms\": %.4f, \"p99_ms\": %.4f, \"risen\": %" PRIu64 ", \"sunk\": %" PRIu64
           ", \"bus_bytes\": %" PRIu64 ", \"bus_ms\": %.4f}}\n",
           policy, count, counts.chunks, counts.rows_all, counts.rows[SPEC_TIER_UPPER],
           counts.rows[SPEC_TIER_HOST], counts.rows[SPEC_TIER_DISK], counts.read_bytes,
           (double)total / 1e6 / (double)count, (double)sorted[count / 2] / 1e6,
           (double)sorted[count * 99 / 100] / 1e6, after.upper_promoted - before.upper_promoted,
           after.upper_demoted - before.upper_demoted,
           after.upper_bus_bytes - before.upper_bus_bytes,
           (double)(after.upper_bus_ns - before.upper_bus_ns) / 1e6 / (double)count);
    (void)fflush(stdout);
    state->api->close(state->conn);
    free(took);
}

/* What a load of the first prefix reads, of what its slabs have. */
static void fit_device(struct state *state)
{
    struct counts counts = {0};
    open_connector(state, "lru", 0);
    (void)request_run(state, &state->asks[0], &counts);
    state->over = (double)counts.read_bytes / (double)(counts.chunks * CHUNK * ROW_BYTES);
    state->api->close(state->conn);
}

int main(int argc, char **argv)
{
    static struct state state;
    struct spec_error error = {.struct_size = sizeof(error)};
    char *list = strdup(bench_option(argc, argv, "--policies", "lru,lfu,score,score+lfu")),
         *rest = list;
    stream_read(&state, bench_option(argc, argv, "--stream", ""));
    state.preset = bench_option(argc, argv, "--preset", "impress");
    state.gpu_chunks = bench_option_u64(argc, argv, "--gpu", state.chunk_count / 6);
    state.host_chunks = bench_option_u64(argc, argv, "--host", state.chunk_count / 2);
    state.row_bytes = bench_option_u64(argc, argv, "--row-bytes", 16384);
    state.rate = bench_option_u64(argc, argv, "--rate", 5000000000);
    state.bus = bench_option_u64(argc, argv, "--bus", 25000000000);
    state.warm_count = bench_option_u64(argc, argv, "--warm", state.ask_count / 4);
    state.over = 1;
    sc_alloc_init(&state.alloc);
    uint64_t rows = state.chunks_max * CHUNK;
    state.area = zeros(rows, ROW_BYTES);
    state.ids = zeros(rows + 1, sizeof(*state.ids));
    state.positions = zeros(HEADS * rows, sizeof(*state.positions));
    struct sc_io_sim_disk_params disk = {.alloc = &state.alloc, .seed = 20261128};
    bench_must(sc_io_sim_disk_open(&disk, &state.disk, &error), &error, "simulated disk");
    open_connector(&state, "lru", 0);
    for (uint32_t i = 0; i < state.prefix_count; i++)
        prefix_store(&state, i);
    state.api->close(state.conn);
    fit_device(&state);
    printf("{\"facts\": {\"chunks\": %" PRIu64 ", \"prefixes\": %" PRIu64 ", \"layers\": %" PRIu32
           ", \"gpu_chunks\": %" PRIu64 ", \"host_chunks\": %" PRIu64 ", \"over\": %.3f}}\n",
           state.chunk_count, state.prefix_count, state.layers, state.gpu_chunks, state.host_chunks,
           state.over);
    for (char *word = strsep(&rest, ","); word != NULL; word = strsep(&rest, ","))
        policy_run(&state, word);
    free(list);
    sc_io_sim_disk_close(state.disk);
    for (uint64_t i = 0; i < state.prefix_count; i++)
        for (uint64_t q = 0; q < state.prefixes[i].question_count; q++)
            free(state.prefixes[i].rows[q]);
    sc_alloc_done(&state.alloc);
    free(state.prefixes);
    free(state.asks);
    free(state.area);
    free(state.ids);
    free(state.positions);
    return 0;
}
