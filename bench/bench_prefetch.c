/* bench-prefetch: rows that each predictor prefetches before a layer's choice, on a real model.
 *
 * Every question of an eval file (eval_file.h) runs over a stored prefix with a quarter of the rows
 * (--rho): once per predictor, each with its own connector.
 *
 *   NAME          argument of prefetch_next
 *   none random sink static layer     nothing
 *   before after both                 queries of the hidden state before, after a layer's attention
 *
 * Prints a JSON line per predictor, question and layer: rows wanted (by any head), rows available
 * or in flight before; bytes read, bytes read and not wanted; the pass's wait; the time between the
 * first prefetch_next and get_important. Prints a line per predictor with the changes of the
 * connector's counters. The first question of every prefix is asked twice: the first time trains
 * averages and accuracy, and is not counted.
 * Threads: the model's and the plugin's. Tests: none (a measurement). */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "abi/spec_connector.h"
#include "bench/bench.h"
#include "bench/eval_file.h"
#include "conformance/engine/cli/driver.h"

struct predictor {
    const char *name, *configured;
    enum eng_hint hint;
};

static const struct predictor predictors[] = {
    {"none", "none", ENG_HINT_NONE},   {"random", "random", ENG_HINT_NONE},
    {"sink", "sink", ENG_HINT_NONE},   {"static", "static", ENG_HINT_NONE},
    {"layer", "layer", ENG_HINT_NONE}, {"before", "hint", ENG_HINT_BEFORE},
    {"after", "hint", ENG_HINT_AFTER}, {"both", "hint", ENG_HINT_BOTH},
};

struct state {
    struct eval_file file;
    int argc;
    char **argv;
    struct eng_runner *runner;
    const struct predictor *predictor;
    const struct eval_entry *entry;
    uint64_t question;
    bool silent;
};

static eng_status see(void *user, const struct eng_selection *selection, struct eng_error *reterr)
{
    const struct state *state = user;
    (void)reterr;
    if (state->silent)
        return ENG_OK;
    printf("{\"predictor\": \"%s\", \"id\": \"%s\", \"group\": \"%s\", \"question\": %" PRIu64
           ", \"layer\": %" PRIu64,
           state->predictor->name, state->entry->id, state->entry->group, state->question,
           selection->view->layer);
    printf(", \"matched\": %" PRIu64 ", \"fallback\": %d, \"dense\": %d, \"wanted\": %" PRIu64
           ", \"ahead\": %" PRIu64 ", \"wanted_bytes\": %" PRIu64 ", \"read_bytes\": %" PRIu64
           ", \"unused_bytes\": %" PRIu64 ", \"exposed_ns\": %" PRIu64 ", \"window_ns\": %" PRIu64
           "}\n",
           selection->matched, selection->fallback, selection->dense, selection->union_rows,
           selection->prefetched_rows, selection->wanted_bytes, selection->read_bytes,
           selection->unused_bytes, selection->io_exposed_ns, selection->window_ns);
    return ENG_OK;
}

static struct eng_driver *open_driver(struct state *state, const char *members, bool store,
                                      enum eng_hint hint)
{
    char config[8192];
    struct eng_error error;
    struct eng_driver *driver = NULL;
    (void)snprintf(config, sizeof(config),
                   "{\"path\": \"%s\", \"load_policy\": \"load\", \"host_bytes\": 0, "
                   "\"disk_bytes\": \"8GiB\", %s}",
                   bench_option(state->argc, state->argv, "--store", "build/bench-store"), members);
    const struct eng_driver_params params = {
        .connector =
            bench_option(state->argc, state->argv, "--connector", "build/lib/libspec_connector.so"),
        .config = config,
        .model_dir = bench_option(state->argc, state->argv, "--model", "models/opt-recall"),
        .model = state->file.model,
        .kv_dtype = ENG_F16,
        .store = store,
        .hint = hint,
        .observe = store ? NULL : see,
        .observe_user = state};
    eval_must(eng_driver_open(&params, &driver, &error), &error);
    return driver;
}

static void ask(struct state *state, const struct eval_entry *entry, uint64_t number,
                uint64_t query_count, struct eng_driver *driver)
{
    struct eng_error error;
    struct eng_result result;
    const struct eng_request request = {.index = number,
                                        .prefix = entry->prefix.ids,
                                        .query = entry->questions[number].query.ids,
                                        .prefix_count = entry->prefix.count,
                                        .query_count = query_count,
                                        .max_new = 1};
    state->entry = entry;
    state->question = number;
    eval_must(eng_run(state->runner, &request, eng_driver_source(driver), &result, &error), &error);
    eng_result_done(&result);
    if (eng_driver_store_problem(driver) != NULL)
        bench_die("%s", eng_driver_store_problem(driver));
}

struct counters {
    uint64_t speculated_bytes, unused_bytes, wanted_bytes, read_bytes, exposed_ns;
};

/* sign 1: adds what the connector counts now; UINT64_MAX, as -1: takes it away. */
static void count(struct eng_driver *driver, uint64_t sign, struct counters *sum)
{
    struct spec_stats stats;
    struct eng_error error;
    eval_must(eng_driver_stats(driver, &stats, &error), &error);
    sum->speculated_bytes += sign * stats.speculated_bytes;
    sum->unused_bytes += sign * stats.unused_bytes;
    sum->wanted_bytes += sign * stats.wanted_bytes;
    sum->read_bytes += sign * stats.read_bytes;
    sum->exposed_ns += sign * stats.exposed_ns;
}

static void run_predictor(struct state *state, const struct predictor *predictor)
{
    char members[512];
    struct counters sum = {0};
    (void)snprintf(
        members, sizeof(members),
        "\"preset\": \"impress-itf+range\", \"select\": {\"min_tokens\": 0, "
        "\"min_share_ppm\": 0, \"retain_ppm\": %" PRIu64 "}, \"prefetch\": {\"predictor\": \"%s\"}",
        bench_option_u64(state->argc, state->argv, "--retain-ppm", 250000), predictor->configured);
    (void)fprintf(stderr, "%s\n", predictor->name);
    state->predictor = predictor;
    struct eng_driver *driver = open_driver(state, members, false, predictor->hint);
    for (uint64_t e = 0; e < state->file.entry_count; e++) {
        const struct eval_entry *entry = &state->file.entries[e];
        state->silent = true;
        ask(state, entry, 0, entry->questions[0].query.count, driver);
        state->silent = false;
        count(driver, UINT64_MAX, &sum);
        for (uint64_t q = 0; q < entry->question_count; q++)
            ask(state, entry, q, entry->questions[q].query.count, driver);
        count(driver, 1, &sum);
    }
    printf("{\"counters\": \"%s\", \"speculated_bytes\": %" PRIu64 ", \"unused_bytes\": %" PRIu64
           ", \"wanted_bytes\": %" PRIu64 ", \"read_bytes\": %" PRIu64 ", \"exposed_ns\": %" PRIu64
           "}\n",
           predictor->name, sum.speculated_bytes, sum.unused_bytes, sum.wanted_bytes,
           sum.read_bytes, sum.exposed_ns);
    eng_driver_close(driver);
}

int main(int argc, char **argv)
{
    static struct state state;
    struct eng_error error;
    state.argc = argc;
    state.argv = argv;
    eval_open(&state.file, argc, argv);
    eval_must(
        eng_runner_open(state.file.model, ENG_F16, state.file.longest + 1, &state.runner, &error),
        &error);
    struct eng_driver *driver =
        open_driver(&state,
                    "\"preset\": \"as-like\", \"select\": {\"probe_heads\": 3}, \"store\": "
                    "{\"layout\": \"split\"}",
                    true, ENG_HINT_NONE);
    for (uint64_t e = 0; e < state.file.entry_count; e++)
        ask(&state, &state.file.entries[e], 0, 1, driver);
    eng_driver_close(driver);
    for (uint64_t i = 0; i < sizeof(predictors) / sizeof(predictors[0]); i++)
        run_predictor(&state, &predictors[i]);
    eng_runner_close(state.runner);
    eval_close(&state.file);
    return 0;
}
