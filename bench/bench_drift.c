/* bench-drift: when do averages of importance move enough for rows to be reordered again?
 *
 * Runs the questions of an eval file (eval_file.h) over their prefixes in the reference engine, as
 * bench-similarity does, and keeps the importance of every row in every layer. Then it simulates
 * requests that ask these questions in random order, the averages that they leave
 * (plugin/baselines/average.c), and a reordering of the prefix after the second request:
 *
 *   noise      all questions of the prefix, --requests of them
 *   questions  the half of the questions whose importance is nearer to the front, --requests of
 *              them; then the other half, as many
 *   halves     all questions, --requests of them; then as many whose importance is another row's,
 *              half a prefix away
 *
 * As the store does (store/section/permute_queue.c), a rule judges the present order whenever
 * `least` requests were scored since it last did: of the quarter of the rows with the highest
 * averages, the share that is outside the fullest chunks, as many as a new order would take. From
 * `outside` on it reorders; 2 never does.
 *
 * Prints a JSON line per prefix, case and rule, over all seeds: reorderings after the first one,
 * before and after importance moves; the highest share that was judged before and after; chunks
 * that hold a request's own quarter of the rows, a layer, on average: `early` after the first
 * reordering, at the `end` of the first phase, after importance `moved` (a quarter of --requests
 * each), `late` at the end.
 *
 * --scope span | node. --all 1: more rules than the product's and none.
 * Threads: the model's. Tests: none (a measurement). */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/bench.h"
#include "bench/eval_file.h"
#include "conformance/engine/cli/selector_source.h"
#include "store/rows/row_permutation.h"

#define CHUNK  64u
#define SPAN   1024u /* reorder.scope span */
#define MEMORY 8u    /* requests in an average */
#define SEEDS  4u    /* orders of questions, each simulated */

struct rule {
    double outside;
    uint64_t least;
};
static const struct rule rules[] = {
    {2, 16},  {.25, 16}, /* never, and as the product does; the others with --all 1 */
    {.1, 8},  {.1, 16},  {.15, 8},  {.15, 16}, {.2, 8},  {.2, 16},
    {.25, 4}, {.25, 8},  {.25, 32}, {.3, 16},  {.4, 16},
};

struct state {
    struct eval_file file;
    struct eng_runner *holder, *runner;
    struct eng_selectr *chooser;
    uint64_t held, probes, layers, rows, span, requests, question, rule_count;
    const struct eval_entry *entry;
    float *shares;                     /* [questions][layers][rows] of importance */
    double *middles;                   /* [questions] mean row, weighted by importance */
    uint32_t *questions;               /* [questions] by their middles */
    float *averages;                   /* [layers][rows] */
    float *own;                        /* [rows] a request's importance */
    uint16_t *slots;                   /* [layers][words * 4] */
    uint16_t *next;                    /* [words * 4] of one layer */
    uint16_t *best, *scratch, *counts; /* [rows + 1] */
};

/* ---- Importance ------------------------------------------------------------------------------ */

static float *shares_of(const struct state *state, uint64_t question, uint64_t layer)
{
    return state->shares + (question * state->layers + layer) * state->rows;
}

static eng_status see_layer(void *user, const struct eng_attention_view *view, uint64_t pass,
                            const struct eng_select_input *input, const struct eng_choice *choice,
                            struct eng_error *reterr)
{
    struct state *state = user;
    const double *importance = NULL;
    uint64_t total = input->prefix_count;
    float *shares = shares_of(state, state->question, view->layer);
    double sum = 0;
    (void)pass;
    (void)choice;
    eng_status status =
        eng_select_importance(state->chooser, input, state->probes, false, &importance, reterr);
    if (status != ENG_OK)
        return status;
    for (uint64_t j = 0; j < state->probes * total; j++)
        sum += importance[j];
    memset(shares, 0, total * sizeof(*shares));
    for (uint64_t j = 0; j < state->probes * total; j++) {
        shares[j % total] += (float)(importance[j] / sum);
        state->middles[state->question] += importance[j] / sum * (double)(j % total);
    }
    return ENG_OK;
}

static void run_questions(struct state *state, const struct eng_source *source)
{
    struct eng_error error;
    for (uint64_t q = 0; q < state->entry->question_count; q++) {
        const struct eval_question *question = &state->entry->questions[q];
        const struct eng_request request = {.index = q,
                                            .prefix = state->entry->prefix.ids,
                                            .query = question->query.ids,
                                            .prefix_count = state->entry->prefix.count,
                                            .query_count = question->query.count,
                                            .max_new = 1};
        struct eng_result result;
        state->question = q;
        state->middles[q] = 0;
        eval_must(eng_run(state->runner, &request, source, &result, &error), &error);
        eng_result_done(&result);
    }
}

/* Sorts the questions by where their importance is. */
static void questions_sort(struct state *state)
{
    for (uint32_t i = 0; i < state->entry->question_count; i++) {
        uint64_t at = i;
        for (; at > 0 && state->middles[state->questions[at - 1]] > state->middles[i]; at--)
            state->questions[at] = state->questions[at - 1];
        state->questions[at] = i;
    }
}

/* ---- Reordering ------------------------------------------------------------------------------ */

static uint16_t *slots_of(const struct state *state, uint64_t layer)
{
    return sc_store_permutation_of(state->slots, state->held, (uint32_t)layer);
}

/* Sets `best` to all rows, highest scores first. Returns the quarter that counts. */
static uint64_t best_set(struct state *state, const float *scores)
{
    sc_store_permutation_make(scores, state->held, state->held, state->best, state->scratch);
    return (state->held + 3) / 4;
}

static void reorder(struct state *state)
{
    for (uint64_t layer = 0; layer < state->layers; layer++)
        sc_store_permutation_make(state->averages + layer * state->rows, state->held, state->span,
                                  state->best, slots_of(state, layer));
}

static double outside_of(struct state *state)
{
    uint64_t outside = 0, best = 0;
    for (uint64_t layer = 0; layer < state->layers; layer++) {
        const float *averages = state->averages + layer * state->rows;
        sc_store_permutation_make(averages, state->held, state->span, state->best, state->next);
        uint64_t count = best_set(state, averages);
        outside +=
            sc_store_permutation_outside(slots_of(state, layer), state->next, state->best, count,
                                         state->held, CHUNK, state->counts, state->scratch);
        best += count;
    }
    return (double)outside / (double)best;
}

/* ---- A simulation ---------------------------------------------------------------------------- */

enum drift { NOISE, QUESTIONS, HALVES, DRIFTS };
static const char *const drift_names[DRIFTS] = {"noise", "questions", "halves"};

struct sums {
    uint64_t repeats[2];              /* before and after importance moves */
    double outside_max[2], chunks[4]; /* chunks: as printed */
};

/* A request's importance of a row. */
static float share_of(const struct state *state, uint64_t question, uint64_t layer, uint64_t row,
                      bool is_moved)
{
    uint64_t at = is_moved ? (row + state->held / 2) % state->held : row;
    return shares_of(state, question, layer)[at];
}

/* Moves the averages by a request's importance. number: counted from 1. */
static void averages_note(struct state *state, uint64_t question, bool is_moved, uint64_t number)
{
    float weight = 1.0f / (float)(number < MEMORY ? number : MEMORY);
    for (uint64_t layer = 0; layer < state->layers; layer++) {
        float *averages = state->averages + layer * state->rows;
        for (uint64_t row = 0; row < state->held; row++)
            averages[row] +=
                (share_of(state, question, layer, row, is_moved) - averages[row]) * weight;
    }
}

/* Chunks that hold the request's own quarter of the rows, a layer. */
static double chunks_read(struct state *state, uint64_t question, bool is_moved)
{
    uint64_t chunks = 0;
    for (uint64_t layer = 0; layer < state->layers; layer++) {
        const uint16_t *slots = slots_of(state, layer);
        for (uint64_t row = 0; row < state->held; row++)
            state->own[row] = share_of(state, question, layer, row, is_moved);
        uint64_t count = best_set(state, state->own);
        memset(state->counts, 0, (state->held / CHUNK + 1) * sizeof(*state->counts));
        for (uint64_t i = 0; i < count; i++)
            chunks += state->counts[slots[state->best[i]] / CHUNK]++ == 0;
    }
    return (double)chunks / (double)state->layers;
}

/* The sum that request n of `all` counts in; NULL: none. */
static double *chunks_at(struct sums *sums, uint64_t n, uint64_t phase, uint64_t all)
{
    uint64_t quarter = phase / 4;
    if (n > 2 && n <= 2 + quarter)
        return &sums->chunks[0];
    if (n <= phase)
        return n > phase - quarter ? &sums->chunks[1] : NULL;
    if (n <= phase + quarter)
        return &sums->chunks[2];
    return n > all - quarter ? &sums->chunks[3] : NULL;
}

static void simulate(struct state *state, const struct rule *rule, enum drift drift, uint64_t seed,
                     struct sums *sums)
{
    uint64_t count = state->entry->question_count, half = count / 2, judged = 2;
    uint64_t phase = state->requests, all = drift == NOISE ? phase : 2 * phase;
    memset(state->averages, 0, state->layers * state->rows * sizeof(*state->averages));
    for (uint64_t n = 1; n <= all; n++) {
        bool is_late = n > phase, is_moved = is_late && drift == HALVES;
        uint64_t first = drift == QUESTIONS && is_late ? half : 0;
        uint64_t end = drift == QUESTIONS && !is_late ? half : count;
        uint64_t question = state->questions[first + bench_mix(seed * 100003 + n) % (end - first)];
        double *chunks = chunks_at(sums, n, phase, all);
        if (chunks != NULL)
            *chunks += chunks_read(state, question, is_moved) / (double)(phase / 4 * SEEDS);
        averages_note(state, question, is_moved, n);
        if (n == 2)
            reorder(state);
        if (n < judged + rule->least)
            continue;
        double outside = outside_of(state), *most = &sums->outside_max[is_late];
        judged = n;
        *most = outside > *most ? outside : *most;
        if (outside < rule->outside)
            continue;
        sums->repeats[is_late]++;
        reorder(state);
    }
}

static void simulate_all(struct state *state)
{
    for (uint32_t drift = 0; drift < DRIFTS; drift++)
        for (uint64_t r = 0; r < state->rule_count; r++) {
            struct sums sums = {0};
            for (uint64_t seed = 0; seed < SEEDS; seed++)
                simulate(state, &rules[r], (enum drift)drift, seed, &sums);
            printf("{\"id\": \"%s\", \"rows\": %" PRIu64 ", \"case\": \"%s\", \"outside\": %g, "
                   "\"least\": %" PRIu64 ", \"seeds\": %u, \"repeats\": %" PRIu64
                   ", \"repeats_moved\": %" PRIu64 ", \"most\": %.4f, \"most_moved\": %.4f, "
                   "\"early\": %.3f, \"end\": %.3f, \"moved\": %.3f, \"late\": %.3f}\n",
                   state->entry->id, state->held, drift_names[drift], rules[r].outside,
                   rules[r].least, SEEDS, sums.repeats[0], sums.repeats[1], sums.outside_max[0],
                   sums.outside_max[1], sums.chunks[0], sums.chunks[1], sums.chunks[2],
                   sums.chunks[3]);
        }
}

/* ---- ---- */

static void run_all(struct state *state)
{
    struct eng_error error;
    struct eng_selectr_source *source = NULL;
    const struct eng_selectr_source_params params = {.model = state->file.model,
                                                     .held = eng_runner_kv(state->holder),
                                                     .held_tokens = &state->held,
                                                     .rule = eng_select_rule_default(1),
                                                     .seen = see_layer,
                                                     .seen_user = state};
    eval_must(eng_selectr_source_open(&params, &source, &error), &error);
    for (uint64_t e = 0; e < state->file.entry_count; e++) {
        state->entry = &state->file.entries[e];
        state->held = state->entry->prefix.count;
        (void)fprintf(stderr, "prefix %" PRIu64 " of %" PRIu64 "\n", e + 1,
                      state->file.entry_count);
        if (state->entry->question_count < 2)
            bench_die("%s: two questions are needed", state->entry->id);
        eval_must(eng_run_hold(state->holder, state->entry->prefix.ids, state->held, 0, &error),
                  &error);
        run_questions(state, eng_selectr_source_get(source));
        questions_sort(state);
        simulate_all(state);
    }
    eng_selectr_source_close(source);
}

static void make_memory(struct state *state)
{
    const struct eng_config *config = state->file.config;
    uint64_t rows = state->file.longest, questions = 0;
    struct eng_error error;
    for (uint64_t e = 0; e < state->file.entry_count; e++)
        if (state->file.entries[e].question_count > questions)
            questions = state->file.entries[e].question_count;
    if (rows > UINT16_MAX)
        bench_die("prefixes of at most %u tokens", UINT16_MAX);
    state->rows = rows;
    state->layers = config->layers;
    state->probes = config->kv_heads < 3 ? config->kv_heads : 3;
    state->shares = eval_must_have(calloc(questions * state->layers * rows, sizeof(float)));
    state->middles = eval_must_have(calloc(questions, sizeof(double)));
    state->questions = eval_must_have(calloc(questions, sizeof(uint32_t)));
    state->averages = eval_must_have(calloc(state->layers * rows, sizeof(float)));
    state->slots = eval_must_have(calloc(state->layers * sc_store_permutation_words(rows), 8));
    state->next = eval_must_have(calloc(sc_store_permutation_words(rows), 8));
    state->best = eval_must_have(calloc(rows + 1, sizeof(uint16_t)));
    state->scratch = eval_must_have(calloc(rows + 1, sizeof(uint16_t)));
    state->counts = eval_must_have(calloc(rows + 1, sizeof(uint16_t)));
    state->own = eval_must_have(calloc(rows, sizeof(float)));
    eval_must(eng_selectr_open(&state->chooser, &error), &error);
    eval_must(eng_runner_open(state->file.model, ENG_F16, rows + 1, &state->holder, &error),
              &error);
    eval_must(eng_runner_open(state->file.model, ENG_F16, rows + 1, &state->runner, &error),
              &error);
}

static void free_memory(struct state *state)
{
    free(state->shares);
    free(state->middles);
    free(state->questions);
    free(state->averages);
    free(state->slots);
    free(state->next);
    free(state->best);
    free(state->scratch);
    free(state->counts);
    free(state->own);
    eng_selectr_close(state->chooser);
    eng_runner_close(state->holder);
    eng_runner_close(state->runner);
    eval_close(&state->file);
}

int main(int argc, char **argv)
{
    static struct state state;
    const char *scope = bench_option(argc, argv, "--scope", "node");
    state.requests = bench_option_u64(argc, argv, "--requests", 64);
    state.span = strcmp(scope, "span") == 0 ? SPAN : UINT16_MAX + 1u;
    if (strcmp(scope, "span") != 0 && strcmp(scope, "node") != 0)
        bench_die("--scope: span or node is expected");
    state.rule_count =
        bench_option_u64(argc, argv, "--all", 0) != 0 ? sizeof(rules) / sizeof(rules[0]) : 2;
    if (state.requests < 4)
        bench_die("--requests: at least 4 are expected");
    eval_open(&state.file, argc, argv);
    make_memory(&state);
    run_all(&state);
    free_memory(&state);
    return 0;
}
