/* bench-ttft: time to first token of a query over a stored prefix, with the reference engine, a
 * real model, the plugin and the disk.
 *
 * Contenders in turn, one process:
 *   reuse      the plugin loads the prefix's KV from disk (O_DIRECT: nothing is cached)
 *   resident   the same query pass over KV already in memory
 *   hosted     reuse by a connector whose host tier has the prefix (--host-config); reads nothing
 *   cut        the match that lookup promises is loaded, the rest computed (--cut-config)
 *   store      another prefix, computed and stored by that connector, beside recompute
 *   recompute  prefix and query in one pass, no plugin (--recomputes rounds)
 *   query      the query without its prefix, in turn with recompute
 * Every time runs from token ids to the first logits. The prefix is stored before; the query never.
 * Prints the bytes that one reuse reads, for fio to read in turn.
 * Threads: the model's and the plugin's. Tests: none (a measurement). */
#include "bench/bench.h"
#include "conformance/engine/cli/driver.h"
#include "conformance/engine/cli/engine_run.h"
#include "conformance/engine/cli/input.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STORES 9u /* prefixes that are stored */

struct state {
    struct eng_model *model;
    struct eng_tokenizer *tokenizer;
    struct eng_runner *reuse, *resident;
    struct eng_driver *driver;
    struct eng_ids prefix, query;
    const char *fio; /* a command to run in turn, or NULL */
    struct eng_result last;
    uint64_t read_bytes, read_ops, exposed_ns, host_slab_read_bytes;
    uint64_t promised; /* tokens of the prefix, to the last cut request */
};

enum {
    RECOMPUTE,
    RESIDENT,
    REUSE,
    FIO,
    BESIDE,
    IN_HOST_TIER,
    ALONE,
    STORE,
    CUT,
    QUERY,
    CONTENDERS
};

static struct bench_series series[CONTENDERS] = {
    [RECOMPUTE] = {.name = "recompute", .unit = "request", .work = 1},
    [RESIDENT] = {.name = "resident", .unit = "request", .work = 1},
    [REUSE] = {.name = "reuse", .unit = "request", .work = 1},
    [FIO] = {.name = "fio", .unit = "byte"},
    [BESIDE] = {.name = "resident beside", .unit = "request", .work = 1},
    [IN_HOST_TIER] = {.name = "hosted", .unit = "request", .work = 1},
    [ALONE] = {.name = "recompute beside", .unit = "request", .work = 1},
    [STORE] = {.name = "store", .unit = "request", .work = 1},
    [CUT] = {.name = "cut", .unit = "request", .work = 1},
    [QUERY] = {.name = "query", .unit = "request", .work = 1}};

static void must(eng_status status, const struct eng_error *error)
{
    if (status != ENG_OK)
        bench_die("%s", error->text);
}

static uint64_t run(struct state *state, struct eng_runner *runner, bool resident,
                    const struct eng_source *source)
{
    struct eng_error error;
    struct eng_request request = {.prefix = state->prefix.ids,
                                  .query = state->query.ids,
                                  .prefix_count = state->prefix.count,
                                  .query_count = state->query.count,
                                  .max_new = 1,
                                  .resident = resident};
    eng_result_done(&state->last);
    must(eng_run(runner, &request, source, &state->last, &error), &error);
    return state->last.ttft_ns;
}

static void open_driver(struct state *state, int argc, char **argv, const char *config, bool store)
{
    struct eng_error error;
    struct eng_driver_params params = {
        .connector = bench_option(argc, argv, "--connector", "build/lib/libspec_connector.so"),
        .config = config,
        .model_dir = bench_option(argc, argv, "--model", "models/opt-recall"),
        .model = state->model,
        .kv_dtype = ENG_F16,
        .store = store};
    must(eng_driver_open(&params, &state->driver, &error), &error);
}

static void open_state(struct state *state, int argc, char **argv)
{
    struct eng_error error;
    const char *dir = bench_option(argc, argv, "--model", "models/opt-recall");
    uint32_t threads = (uint32_t)bench_option_u64(argc, argv, "--threads", 2);
    const char *prefix = bench_option(argc, argv, "--prefix", NULL);
    const char *query = bench_option(argc, argv, "--query", NULL);
    if (prefix == NULL || query == NULL)
        bench_die("--prefix FILE and --query FILE|TEXT are needed");
    must(eng_model_open(dir, threads, &state->model, &error), &error);
    must(eng_tokenizer_open(dir, &state->tokenizer, &error), &error);
    struct eng_source_text prefix_text = {.argument = prefix, .form = ENG_FORM_FILE};
    struct eng_source_text query_text = {.argument = query};
    must(eng_ids_read(&prefix_text, state->tokenizer, &state->prefix, &error), &error);
    must(eng_ids_read(&query_text, state->tokenizer, &state->query, &error), &error);
    const struct eng_config *config = eng_model_config(state->model);
    uint64_t cap = bench_option_u64(argc, argv, "--prefix-tokens", state->prefix.count);
    if (cap > state->prefix.count)
        bench_die("the prefix has %" PRIu64 " tokens, --prefix-tokens asks for %" PRIu64,
                  state->prefix.count, cap);
    state->prefix.count = cap;
    uint64_t capacity = state->prefix.count + state->query.count + 1;
    if (capacity > config->positions)
        bench_die("%" PRIu64 " tokens are more than the model's %" PRIu64 " positions", capacity,
                  config->positions);
    must(eng_runner_open(state->model, ENG_F16, capacity, &state->reuse, &error), &error);
    must(eng_runner_open(state->model, ENG_F16, capacity, &state->resident, &error), &error);
}

/* fio reads as many bytes as one reuse did, from a file of its own on the same file system; it
 * prints its own time as "fio_ns N" (bench/run wraps it). */
static void run_fio(struct state *state, struct bench_series *fio)
{
    char command[4096];
    if (state->fio == NULL)
        return;
    (void)snprintf(command, sizeof(command), "%s --bytes %" PRIu64 " --op-bytes %" PRIu64,
                   state->fio, state->read_bytes,
                   state->read_bytes / (state->read_ops ? state->read_ops : 1));
    bench_series_add(fio, bench_command_ns(command, "fio_ns"));
}

/* One reuse, which fills host memory, then rounds of it beside resident. */
static void run_in_host_tier(struct state *state, uint64_t rounds,
                             struct bench_series *in_host_tier, struct bench_series *beside)
{
    for (uint64_t i = 0; i <= rounds; i++) {
        uint64_t resident_ns = run(state, state->resident, true, NULL);
        uint64_t host_slab_ns = run(state, state->reuse, false, eng_driver_source(state->driver));
        if (state->last.matched_tokens != state->prefix.count)
            bench_die("%" PRIu64 " of %" PRIu64 " prefix tokens matched",
                      state->last.matched_tokens, state->prefix.count);
        if (i == 0)
            continue;
        bench_series_add(in_host_tier, host_slab_ns);
        bench_series_add(beside, resident_ns);
        state->host_slab_read_bytes += state->last.bytes_read;
    }
}

/* So many tokens of the prefix, others than those that are stored: the first ones stand last. */
static uint64_t run_other(struct state *state, uint64_t turned)
{
    struct eng_ids was = state->prefix;
    uint32_t *ids = malloc(was.count * sizeof(*ids));
    if (ids == NULL)
        bench_die("no memory for %" PRIu64 " tokens", was.count);
    for (uint64_t i = 0; i < was.count; i++)
        ids[i] = was.ids[(i + turned) % was.count];
    state->prefix.ids = ids;
    uint64_t ns = run(state, state->reuse, false, eng_driver_source(state->driver));
    state->prefix = was;
    free(ids);
    return ns;
}

/* The connector learns from passes that it stores and two loads; then rounds. Between them the
 * device rests as long as between those of reuse: one that is held to a rate saves up meanwhile. */
static void run_cut(struct state *state, uint64_t rounds)
{
    for (uint64_t i = 1; i <= STORES; i++) {
        bench_series_add(&series[ALONE], run(state, state->reuse, false, NULL));
        bench_series_add(&series[STORE], run_other(state, i * 64 + 1));
    }
    for (uint64_t i = 0; i < rounds + 2; i++) {
        run(state, state->resident, true, NULL);
        uint64_t ns = run(state, state->reuse, false, eng_driver_source(state->driver));
        if (i < 2)
            continue;
        bench_series_add(&series[CUT], ns);
        state->promised = state->last.matched_tokens;
    }
}

static void run_recompute(struct state *state)
{
    uint64_t prefix_count = state->prefix.count;
    bench_series_add(&series[RECOMPUTE], run(state, state->reuse, false, NULL));
    state->prefix.count = 0;
    bench_series_add(&series[QUERY], run(state, state->reuse, false, NULL));
    state->prefix.count = prefix_count;
}

static void run_reuse(struct state *state)
{
    bench_series_add(&series[RESIDENT], run(state, state->resident, true, NULL));
    bench_series_add(&series[REUSE],
                     run(state, state->reuse, false, eng_driver_source(state->driver)));
    if (state->last.matched_tokens != state->prefix.count)
        bench_die("%" PRIu64 " of %" PRIu64 " prefix tokens matched", state->last.matched_tokens,
                  state->prefix.count);
    state->read_bytes = state->last.bytes_read;
    state->read_ops = state->last.io_ops;
    state->exposed_ns = state->last.io_exposed_ns;
    series[FIO].work = (double)state->read_bytes;
    run_fio(state, &series[FIO]);
}

static void print(const struct state *state)
{
    printf("{\"facts\": {\"prefix_tokens\": %" PRIu64 ", \"query_tokens\": %" PRIu64
           ", \"read_bytes\": %" PRIu64 ", \"read_ops\": %" PRIu64 ", \"exposed_ns\": %" PRIu64
           ", \"host_slab_read_bytes\": %" PRIu64 ", \"promised\": %" PRIu64 "}}\n",
           state->prefix.count, state->query.count, state->read_bytes, state->read_ops,
           state->exposed_ns, state->host_slab_read_bytes, state->promised);
    for (uint32_t i = 0; i < CONTENDERS; i++)
        if (series[i].rounds > 0)
            bench_series_print(&series[i]);
}

static void close_state(struct state *state)
{
    eng_driver_close(state->driver);
    eng_result_done(&state->last);
    eng_runner_close(state->reuse);
    eng_runner_close(state->resident);
    eng_ids_done(&state->prefix);
    eng_ids_done(&state->query);
    eng_tokenizer_close(state->tokenizer);
    eng_model_close(state->model);
}

int main(int argc, char **argv)
{
    static struct state state;
    struct eng_error error;
    uint64_t rounds = bench_option_u64(argc, argv, "--rounds", 9);
    uint64_t recomputes = bench_option_u64(argc, argv, "--recomputes", 3);
    state.fio = bench_option(argc, argv, "--fio", NULL);
    const char *config = bench_option(argc, argv, "--config", "{\"path\": \"build/bench-store\"}");
    const char *host_config = bench_option(argc, argv, "--host-config", NULL);
    const char *cut_config = bench_option(argc, argv, "--cut-config", NULL);
    open_state(&state, argc, argv);
    must(eng_run_warm(state.reuse, state.query.ids, state.query.count, &error), &error);
    for (uint64_t i = 0; i < recomputes; i++)
        run_recompute(&state);
    open_driver(&state, argc, argv, config, true);
    run(&state, state.reuse, false, eng_driver_source(state.driver));
    if (eng_driver_store_problem(state.driver) != NULL)
        bench_die("%s", eng_driver_store_problem(state.driver));
    eng_driver_close(state.driver);
    open_driver(&state, argc, argv, config, false);
    must(eng_run_hold(state.resident, state.prefix.ids, state.prefix.count, 0, &error), &error);
    for (uint64_t i = 0; i < rounds; i++)
        run_reuse(&state);
    if (host_config != NULL) {
        eng_driver_close(state.driver);
        open_driver(&state, argc, argv, host_config, false);
        run_in_host_tier(&state, rounds, &series[IN_HOST_TIER], &series[BESIDE]);
    }
    if (cut_config != NULL) {
        eng_driver_close(state.driver);
        open_driver(&state, argc, argv, cut_config, true);
        run_cut(&state, rounds);
    }
    print(&state);
    close_state(&state);
    return 0;
}
