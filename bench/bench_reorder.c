/* bench-reorder: reads saved by reordering (maintain REORDER), through the connector, on a real
 * model.
 *
 * Every question of an eval file (eval_file.h) runs over a stored prefix, in two stores that are
 * filled and trained alike. The first half of a prefix's questions trains both. The connector is
 * opened anew, and one store's rows are reordered by what it has kept. The other half is asked of
 * both, by each cell's configuration:
 *
 *   chunk P, range P   impress-itf's choice of P % of the rows, by that planner, one voted set per
 *                      layer (alpha 50): reads of the set's rows; no page is read through, whatever
 *                      an operation costs this device
 *   whole              every row (as-like)
 *
 * Then importance moves: the judged questions are asked of the reordered store until its rows may
 * be reordered again (17 requests). They are, whatever has moved (reorder.repeat_ppm 1), and the
 * judged questions are asked once more.
 *
 * Prints a JSON line per store, cell and question: operations, bytes, waits for loads, all time
 * outside the model, layers, rows, and a checksum of the first token's logits. Operations and bytes
 * include selector keys (probe keys, tags).
 *
 * --scope span | node: reorder.scope.
 * Threads: the model's and the plugin's. Tests: none (a measurement). */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "abi/spec_connector.h"
#include "bench/bench.h"
#include "bench/eval_file.h"
#include "conformance/engine/cli/driver.h"

struct cell {
    const char *name, *members;
};

#define CHOOSES(planner, budget)                                                                   \
    "\"preset\": \"impress-itf\", \"select\": {\"min_tokens\": 0, \"min_share_ppm\": 0, "          \
    "\"alpha_milli\": 50000, " budget "}, \"read\": {\"planner\": \"" planner                      \
    "\", \"gap_bytes\": 1}"

#define AGAIN_REQUESTS 17u /* of a prefix, until its rows may be reordered again */

#define WHOLE                                                                                      \
    "\"preset\": \"as-like\", \"select\": {\"probe_heads\": 3}, "                                  \
    "\"store\": {\"layout\": \"split\"}"

static const struct cell cells[] = {
    {"chunk 25", CHOOSES("chunk", "\"retain_ppm\": 250000")},
    {"chunk 5", CHOOSES("chunk", "\"retain_ppm\": 50000")},
    {"range 25", CHOOSES("range", "\"retain_ppm\": 250000")},
    {"range 5", CHOOSES("range", "\"retain_ppm\": 50000")},
    {"whole", WHOLE},
};

struct state {
    struct eval_file file;
    int argc;
    char **argv;
    struct eng_runner *runner;
    const char *scope;
};

static struct eng_driver *open_driver(const struct state *state, bool ordered, const char *members,
                                      bool store)
{
    char config[8192];
    struct eng_error error;
    struct eng_driver *driver = NULL;
    (void)snprintf(config, sizeof(config),
                   "{\"path\": \"%s-%s\", \"load_policy\": \"load\", \"host_bytes\": 0, "
                   "\"disk_bytes\": \"8GiB\", \"lease_ns_max\": 1000000, "
                   "\"reorder\": {\"scope\": \"%s\", \"repeat_ppm\": 1}, "
                   "\"maintain\": {\"bytes_per_s\": 0}, %s}",
                   bench_option(state->argc, state->argv, "--store", "build/bench-store"),
                   ordered ? "ordered" : "stored", state->scope, members);
    const struct eng_driver_params params = {
        .connector =
            bench_option(state->argc, state->argv, "--connector", "build/lib/libspec_connector.so"),
        .config = config,
        .model_dir = bench_option(state->argc, state->argv, "--model", "models/opt-recall"),
        .model = state->file.model,
        .kv_dtype = ENG_F16,
        .store = store};
    eval_must(eng_driver_open(&params, &driver, &error), &error);
    return driver;
}

/* FNV-1a, of 64 bits. */
static uint64_t checksum(const void *bytes, uint64_t count)
{
    const uint8_t *at = bytes;
    uint64_t sum = UINT64_C(0xcbf29ce484222325);
    for (uint64_t i = 0; i < count; i++)
        sum = (sum ^ at[i]) * UINT64_C(0x100000001b3);
    return sum;
}

static void ask(const struct state *state, const struct eval_entry *entry, uint64_t number,
                uint64_t query_count, struct eng_driver *driver, bool ordered, const char *cell)
{
    struct eng_error error;
    struct eng_result result;
    const struct eng_request request = {.index = number,
                                        .prefix = entry->prefix.ids,
                                        .query = entry->questions[number].query.ids,
                                        .prefix_count = entry->prefix.count,
                                        .query_count = query_count,
                                        .max_new = 1};
    eval_must(eng_run(state->runner, &request, eng_driver_source(driver), &result, &error), &error);
    if (eng_driver_store_problem(driver) != NULL)
        bench_die("%s", eng_driver_store_problem(driver));
    if (cell != NULL)
        printf("{\"ordered\": %s, \"cell\": \"%s\", \"id\": \"%s\", \"question\": %" PRIu64
               ", \"matched\": %" PRIu64 ", \"layers\": %" PRIu64 ", \"dense\": %" PRIu64
               ", \"rows\": %" PRIu64 ", \"ops\": %" PRIu64 ", \"bytes\": %" PRIu64
               ", \"exposed_ns\": %" PRIu64 ", \"load_ns\": %" PRIu64 ", \"logits\": \"%016" PRIx64
               "\"}\n",
               ordered ? "true" : "false", cell, entry->id, number, result.matched_tokens,
               result.layers_loaded, result.dense_layers, result.rows_union, result.io_ops,
               result.bytes_read, result.io_exposed_ns, result.ttft_ns - result.compute_ns,
               checksum(result.logits, state->file.config->vocab * sizeof(float)));
    eng_result_done(&result);
}

/* Half of a prefix' questions; the others are judged. */
static uint64_t lessons_of(const struct eval_entry *entry)
{
    return (entry->question_count + 1) / 2;
}

static void reorder(struct eng_driver *driver)
{
    struct spec_stats before, stats;
    struct eng_error error;
    eval_must(eng_driver_stats(driver, &before, &error), &error);
    uint64_t start_ns = bench_now_ns();
    eval_must(eng_driver_maintain(driver, SPEC_MAINTAIN_REORDER, &error), &error);
    eng_driver_settle(driver);
    uint64_t took_ns = bench_now_ns() - start_ns;
    eval_must(eng_driver_stats(driver, &stats, &error), &error);
    printf("{\"reordered_chunks\": %" PRIu64 ", \"again\": %" PRIu64 ", \"chunks\": %" PRIu64
           ", \"reorder_ns\": %" PRIu64 ", \"write_bytes\": %" PRIu64 "}\n",
           stats.reordered_chunks - before.reordered_chunks, stats.reordered_again_chunks,
           stats.chunks, took_ns, stats.reordered_write_bytes - before.reordered_write_bytes);
}

/* Asks the judged questions; cell NULL: prints nothing. */
static void ask_judged(const struct state *state, struct eng_driver *driver, bool ordered,
                       const char *cell)
{
    for (uint64_t e = 0; e < state->file.entry_count; e++) {
        const struct eval_entry *entry = &state->file.entries[e];
        for (uint64_t q = lessons_of(entry); q < entry->question_count; q++)
            ask(state, entry, q, entry->questions[q].query.count, driver, ordered, cell);
    }
}

/* Reorders once more after requests that want other rows. */
static void reorder_again(const struct state *state)
{
    struct eng_error error;
    struct eng_driver *driver = open_driver(state, true, cells[0].members, false);
    uint64_t each = state->file.entries[0].question_count - lessons_of(&state->file.entries[0]);
    eval_must(eng_driver_maintain(driver, SPEC_MAINTAIN_REORDER, &error), &error);
    eng_driver_settle(driver); /* requests are counted from here */
    for (uint64_t asked = 0; each > 0 && asked < AGAIN_REQUESTS; asked += each)
        ask_judged(state, driver, true, NULL);
    reorder(driver);
    ask_judged(state, driver, true, "again chunk 25");
    eng_driver_close(driver);
}

static void run_store(const struct state *state, bool ordered)
{
    struct eng_driver *driver = open_driver(state, ordered, WHOLE, true);
    for (uint64_t e = 0; e < state->file.entry_count; e++)
        ask(state, &state->file.entries[e], 0, 1, driver, ordered, NULL);
    eng_driver_close(driver);
    driver = open_driver(state, ordered, cells[0].members, false);
    for (uint64_t e = 0; e < state->file.entry_count; e++)
        for (uint64_t q = 0; q < lessons_of(&state->file.entries[e]); q++)
            ask(state, &state->file.entries[e], q, state->file.entries[e].questions[q].query.count,
                driver, ordered, NULL);
    eng_driver_close(driver);
    if (ordered) {
        driver = open_driver(state, true, cells[0].members, false);
        reorder(driver);
        eng_driver_close(driver);
    }
    for (uint64_t c = 0; c < sizeof(cells) / sizeof(cells[0]); c++) {
        (void)fprintf(stderr, "%s, %s\n", ordered ? "ordered" : "stored", cells[c].name);
        driver = open_driver(state, ordered, cells[c].members, false);
        ask_judged(state, driver, ordered, cells[c].name);
        eng_driver_close(driver);
    }
    if (ordered)
        reorder_again(state);
}

int main(int argc, char **argv)
{
    static struct state state;
    struct eng_error error;
    state.argc = argc;
    state.argv = argv;
    state.scope = bench_option(argc, argv, "--scope", "span");
    eval_open(&state.file, argc, argv);
    eval_must(
        eng_runner_open(state.file.model, ENG_F16, state.file.longest + 1, &state.runner, &error),
        &error);
    run_store(&state, false);
    run_store(&state, true);
    eng_runner_close(state.runner);
    eval_close(&state.file);
    return 0;
}
