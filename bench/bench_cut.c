/* bench-cut: compute or load, on the simulated device and its clock; the host's compute is a wait.
 *
 *   T(n) = 1.003e-4 n + 1.615e-9 n^2 s, 512 KiB a token (Cake's A100): a token at x takes
 *   1.003e-4 + 3.23e-9 x s, a thirty-second of it in each layer
 *
 * --factors multiply the rate at which loading the whole prefix takes as long as computing it. A
 * store is filled by passes, as an engine's would fill it. Then requests for the same prefixes
 * follow, each with another query:
 *   recompute  no plugin: the whole prompt is computed
 *   load       load policy "load": the whole match is loaded, layer by layer, beside the compute
 *   cut        load policy "cut": the match that lookup promises is loaded, the rest computed,
 *              stored
 *   store      prompts that are not stored are computed and stored, one after the other
 *   oracle     bidirectional, by the true numbers: the front is computed while the tail is loaded
 *              until they meet, then the query is computed (a lower bound)
 *   best       the best cut, by the true numbers
 * The first requests of cut teach it the device's speed; they are counted separately.
 *
 * Rows are --scale times shorter and the device slower, so times are the same. The simulated clock
 * counts no processor time.
 * Threads: the plugin's loop. Tests: none (a measurement). */
#include "bench/a100.h"
#include "bench/bench.h"
#include "bench/sim_open.h"
#include "plugin/connector.h"
#include "tests/sim/sim_connector.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HEADS    4u
#define PREFIXES 3u
#define NEW      100u /* prefixes from here on are not stored */
#define FACTORS  16u

struct state {
    const struct spec_api *api;
    spec_connector *conn;
    struct sc_alloc alloc;
    struct sc_io_sim_disk *disk;
    uint64_t tokens, query, scale, pass, warm, requests, half_bytes, seed;
    double bytes_per_s;
    uint8_t *area;
    uint32_t *ids;
    uint64_t read_bytes, promised;
};

static uint64_t now_ns(const struct state *state)
{
    return sc_exec_now_ns(state->conn->exec);
}

static void wait_ns(const struct state *state, uint64_t ns)
{
    _Atomic uint32_t never = 0;
    (void)sc_exec_wait(state->conn->exec, &never, 0, now_ns(state) + ns);
}

/* ---- The host ------------------------------------------------------------------------------- */

static void open_connector(struct state *state, const char *fill)
{
    char config[1024];
    (void)snprintf(config, sizeof(config),
                   "{\"path\": \"/sim\", \"host_bytes\": 0, \"disk_bytes\": \"8GiB\", "
                   "\"staging_bytes\": \"512MiB\", "
                   "\"max_requests\": 8, \"max_request_tokens\": %" PRIu64
                   ", \"load_policy\": \"%s\", "
                   "\"sim\": {\"bytes_per_s\": %.0f, \"op_ns\": 80000, \"ops_per_s\": 700000}}",
                   state->tokens + state->query, fill, state->bytes_per_s);
    struct spec_model model = {.struct_size = sizeof(model),
                               .layer_count = A100_LAYERS,
                               .kv_head_count = HEADS,
                               .query_head_count = HEADS,
                               .head_size = (uint32_t)(state->half_bytes / 2 / HEADS),
                               .kv_dtype = SPEC_DTYPE_F16,
                               .weights_id = {"bench-cut", 9}};
    state->api = spec_connector_api(SPEC_ABI_MAJOR);
    state->conn = bench_sim_open(state->disk, &model, config);
}

static struct spec_memory memory_of(const struct state *state)
{
    uint64_t part_bytes = (state->tokens + state->query) * state->half_bytes;
    return (struct spec_memory){.struct_size = sizeof(struct spec_memory),
                                .dtype = SPEC_DTYPE_F16,
                                .k_base = state->area,
                                .v_base = state->area + part_bytes,
                                .k_bytes = part_bytes,
                                .v_bytes = part_bytes,
                                .token_stride_bytes = state->half_bytes,
                                .head_stride_bytes = state->half_bytes / HEADS};
}

/* The prefix's ids, and behind them a query that never came before. */
static void ids_of(struct state *state, uint64_t prefix, uint64_t tokens)
{
    for (uint64_t i = 0; i < tokens; i++)
        state->ids[i] = (uint32_t)(bench_mix(prefix << 32 | i) % 50000);
    for (uint64_t i = 0; i < state->query; i++)
        state->ids[tokens + i] = (uint32_t)(bench_mix(++state->seed) % 50000);
}

struct pass {
    spec_request request;
    uint64_t first, end, matched;
    bool stores;
};

/* One pass over [first, end), behind `matched` rows that it loads layer by layer. */
static void run_pass(struct state *state, const struct pass *pass)
{
    struct spec_error error = {.struct_size = sizeof(error)};
    struct spec_memory memory = memory_of(state), rows = memory_of(state);
    const struct spec_api *api = state->api;
    uint64_t layer_ns =
        (uint64_t)(a100_compute_ns((double)pass->first, (double)pass->end) / A100_LAYERS);
    spec_ticket ticket = 0;
    for (uint32_t layer = 0; layer < A100_LAYERS; layer++) {
        struct spec_important item = {.struct_size = sizeof(item),
                                      .request = pass->request,
                                      .layer = layer,
                                      .destination = &memory};
        if (pass->matched > 0) {
            bench_must(api->begin_layer(state->conn, &pass->request, 1, layer, &error), &error,
                       "begin");
            bench_must(api->get_important(state->conn, &item, 1, &error), &error, "get_important");
            bench_must(api->prefetch_next(state->conn, pass->request, layer, NULL, &error), &error,
                       "prefetch_next");
            state->read_bytes += item.read_bytes;
        }
        wait_ns(state, layer_ns);
        struct spec_store_params params = {.struct_size = sizeof(params),
                                           .request = pass->request,
                                           .layer = layer,
                                           .first_token = pass->first,
                                           .token_count = pass->end - pass->first,
                                           .memory = &rows};
        if (pass->stores)
            bench_must(api->store(state->conn, &params, 1, &ticket, &error), &error, "store");
    }
    spec_status ended = SPEC_OK;
    if (ticket != 0)
        bench_must(api->poll(state->conn, &ticket, 1, &ended, &error), &error, "poll");
}

/* Time to first token. loads: false: nothing is looked up. */
static uint64_t run_request(struct state *state, uint64_t prefix, bool loads)
{
    struct spec_error error = {.struct_size = sizeof(error)};
    ids_of(state, prefix, state->tokens);
    uint64_t total = state->tokens + state->query, begin_ns = now_ns(state);
    struct spec_lookup_params params = {
        .struct_size = sizeof(params), .tokens = state->ids, .token_count = total};
    struct spec_lookup_result found = {.struct_size = sizeof(found)};
    if (loads)
        bench_must(state->api->lookup(state->conn, &params, &found, &error), &error, "lookup");
    struct pass pass = {.request = found.request,
                        .first = found.matched_tokens,
                        .matched = found.matched_tokens,
                        .stores = loads};
    state->promised += found.matched_tokens;
    for (; pass.first < total; pass.first = pass.end, pass.matched = 0) {
        pass.end =
            state->pass > 0 && total - pass.first > state->pass ? pass.first + state->pass : total;
        run_pass(state, &pass);
    }
    uint64_t took_ns = now_ns(state) - begin_ns;
    if (loads)
        bench_must(state->api->release(state->conn, found.request, &error), &error, "release");
    wait_ns(state, 2000000000); /* what it stores is written */
    return took_ns;
}

/* Passes of several lengths, so that it shows what a position costs. */
static void fill_store(struct state *state)
{
    struct spec_error error = {.struct_size = sizeof(error)};
    for (uint64_t prefix = 0; prefix < PREFIXES + 2; prefix++) {
        uint64_t tokens = prefix < PREFIXES ? state->tokens : state->tokens / (2 * prefix);
        ids_of(state, prefix, tokens);
        struct spec_lookup_params params = {
            .struct_size = sizeof(params), .tokens = state->ids, .token_count = tokens};
        struct spec_lookup_result found = {.struct_size = sizeof(found)};
        bench_must(state->api->lookup(state->conn, &params, &found, &error), &error, "lookup");
        struct pass pass = {.request = found.request, .stores = true};
        for (; pass.first < tokens; pass.first = pass.end) {
            pass.end = state->pass > 0 && tokens - pass.first > state->pass
                           ? pass.first + state->pass
                           : tokens;
            run_pass(state, &pass);
        }
        bench_must(state->api->release(state->conn, found.request, &error), &error, "release");
        double bytes = (double)(tokens * A100_TOKEN_SIZE / state->scale);
        wait_ns(state, (uint64_t)(bytes * 1.2e9 / state->bytes_per_s) + 1000000000);
    }
}

/* ---- What could be --------------------------------------------------------------------------- */

static double load_ns(const struct state *state, double tokens)
{
    return tokens * A100_TOKEN_SIZE / (double)state->scale * 1e9 / state->bytes_per_s;
}

static double oracle_ns(const struct state *state)
{
    double least = INFINITY, total = (double)(state->tokens + state->query);
    for (uint64_t m = 0; m <= state->tokens; m += 16) {
        double front = a100_compute_ns(0, (double)m),
               tail = load_ns(state, (double)(state->tokens - m));
        double ns = fmax(front, tail) + a100_compute_ns((double)state->tokens, total);
        least = fmin(least, ns);
    }
    return least;
}

static double best_ns(const struct state *state)
{
    double least = INFINITY, total = (double)(state->tokens + state->query);
    for (uint64_t n = 0; n <= state->tokens; n += 16) {
        double end = state->pass > 0 ? fmin(total, (double)(n + state->pass)) : total;
        double a = load_ns(state, (double)n), b = a100_compute_ns((double)n, end);
        least = fmin(least, fmax(a, b) + fmin(a, b) / A100_LAYERS + a100_compute_ns(end, total));
    }
    return least;
}

/* ---- Cells ----------------------------------------------------------------------------------- */

static double mean_of(struct state *state, uint64_t count, bool loads)
{
    double sum = 0;
    state->read_bytes = state->promised = 0;
    for (uint64_t i = 0; i < count; i++)
        sum += (double)run_request(state, i % PREFIXES, loads);
    return sum / (double)count;
}

static double store_of(struct state *state)
{
    double sum = 0;
    state->promised = 0;
    for (uint64_t i = 0; i < PREFIXES; i++)
        sum += (double)run_request(state, NEW + i, true);
    if (state->promised > 0)
        bench_die("prompts that are new have tokens that are stored");
    return sum / PREFIXES;
}

static void run_cell(struct state *state, double factor)
{
    struct spec_error error = {.struct_size = sizeof(error)};
    struct sc_io_sim_disk_params disk = {.alloc = &state->alloc, .seed = 20261125};
    double even = (double)state->tokens * A100_TOKEN_SIZE / (double)state->scale * 1e9 /
                  a100_compute_ns(0, (double)state->tokens);
    state->bytes_per_s = even * factor;
    state->seed = 1ull << 40;
    bench_must(sc_io_sim_disk_open(&disk, &state->disk, &error), &error, "simulated disk");
    open_connector(state, "split");
    fill_store(state);
    double first = mean_of(state, state->warm, true);
    double cut = mean_of(state, state->requests, true);
    double promised = (double)state->promised / (double)state->requests;
    struct spec_stats stats = {.struct_size = sizeof(stats)};
    bench_must(state->api->stats(state->conn, &stats, &error), &error, "stats");
    state->api->close(state->conn);
    open_connector(state, "load");
    double load = mean_of(state, PREFIXES, true);
    double store = store_of(state);
    double recompute = mean_of(state, 1, false);
    state->api->close(state->conn);
    sc_io_sim_disk_close(state->disk);
    printf("{\"factor\": %g, \"bytes_per_s\": %.0f, \"recompute_ns\": %.0f, \"load_ns\": %.0f, "
           "\"cut_ns\": %.0f, \"store_ns\": %.0f, \"first_ns\": %.0f, \"oracle_ns\": %.0f, "
           "\"best_ns\": %.0f, \"promised\": %.0f, \"tokens\": %" PRIu64 ", \"token_ps\": %" PRIu64
           ", \"position_ps\": %" PRIu64 ", \"load_ps\": %" PRIu64 "}\n",
           factor, state->bytes_per_s * (double)state->scale, recompute, load, cut, store, first,
           oracle_ns(state), best_ns(state), promised, state->tokens, stats.compute_token_ps,
           stats.compute_position_ps, stats.load_token_ps);
    (void)fflush(stdout);
}

int main(int argc, char **argv)
{
    static struct state state;
    const char *factors = bench_option(argc, argv, "--factors", "0.02,0.2,1,5,50");
    state.tokens = bench_option_u64(argc, argv, "--tokens", 8192);
    state.query = bench_option_u64(argc, argv, "--query", 64);
    state.scale = bench_option_u64(argc, argv, "--scale", 16);
    state.pass = bench_option_u64(argc, argv, "--pass", 0);
    state.warm = bench_option_u64(argc, argv, "--warm", 6);
    state.requests = bench_option_u64(argc, argv, "--requests", 12);
    if (state.scale == 0 || 4096 % state.scale != 0 || state.requests == 0 || state.warm == 0)
        bench_die("--scale divides 4,096, and there is a request");
    state.half_bytes = A100_TOKEN_SIZE / A100_LAYERS / 2 / state.scale;
    sc_alloc_init(&state.alloc);
    state.area = bench_huge_memory(2 * (state.tokens + state.query) * state.half_bytes, 1);
    state.ids = calloc(state.tokens + state.query, sizeof(*state.ids));
    if (state.ids == NULL)
        bench_die("no memory");
    for (const char *at = factors; *at != '\0';) {
        char *end;
        double factor = strtod(at, &end);
        if (end == at || !(factor > 0))
            bench_die("--factors %s: numbers, with commas between", factors);
        run_cell(&state, factor);
        at = *end == ',' ? end + 1 : end;
    }
    sc_alloc_done(&state.alloc);
    free(state.area);
    free(state.ids);
    return 0;
}
