/* bench-similarity: what important rows have in common, measured in the reference engine.
 *
 * Compares heads, neighbouring layers, questions and chunks, and measures how much of a layer's set
 * each predictor finds before its queries exist. No connector takes part; every pass attends all
 * rows of its prefix (16-bit KV).
 *
 * For each question (eval_file.h), layer and share rho of rows (--rho LIST), with A_l the set that
 * all probe heads of layer l vote for:
 *   heads          mean Jaccard of all pairs of KV heads' sets
 *   probes         the same of the probe heads
 *   neighbours     Jaccard of A_l and A_(l-1)
 *   layer          share of A_l in A_(l-1)
 *   before, after  share of A_l in the set voted by queries of the hidden state before, after the
 *                  attention of layer l - 1, over the prefix alone, by at most 64 rows
 *   static         share in the k rows of highest average importance over the prefix's earlier
 *                  questions
 *   runs           runs of adjacent rows in A_l, so reads
 *   reordered      if rows were reordered by those averages, within spans of 1,024
 *                  (store/rows/row_permutation.h): runs then; chunks of 64 with such a row, before
 *                  and then
 *   sink           share in the first and last rows
 *   deciles        of the rankings of sink, static, layer, before and after by the sums of the
 *                  probe heads: the share of each tenth of the k best that is in A_l
 *   chunk          important rows / rows, of the chunks of 64 with one
 *   chunks         (--chunks 1) important rows of each whole chunk
 * Prints a JSON line each, and with --map LAYER the pairwise Jaccard of that layer's heads. --dump
 * FILE writes the ranks of all rows, of each head and layer, instead (dump.h), and prints nothing.
 * Threads: the model's. Tests: none (a measurement). */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/bench.h"
#include "bench/dump.h"
#include "bench/eval_file.h"
#include "conformance/engine/cli/selector_source.h"
#include "store/rows/row_permutation.h"

#define RHO_MAX   8u
#define HINT_ROWS 64u /* hint.rows as configured by default */
#define CHUNK     64u
#define SPAN      1024u /* reorder.scope span */

enum kind { KIND_BEFORE, KIND_AFTER, KIND_COUNT };

struct state {
    struct eval_file file;
    struct eng_runner *holder, *runner;
    uint64_t held, probes;
    struct eng_selectr *chooser;
    double rho[RHO_MAX];
    uint64_t rho_count, map_layer;
    bool chunks;
    const struct eval_entry *entry;
    uint64_t question;
    /* [HINT_ROWS][heads][head_dim], of even and of odd layers: what is foreseen of layer l + 2
     * comes before layer l + 1 is looked at. */
    float *hint[KIND_COUNT][2];
    uint64_t hint_rows;
    uint32_t *sets;     /* [kv_heads][rows] */
    uint32_t *voted;    /* [rows] of this layer */
    uint32_t *last;     /* [rho][rows] of the layer before */
    uint32_t *prediction; /* [rows] */
    uint32_t *order;    /* [2 * rows] */
    double *importance; /* [kv_heads][rows] */
    double *sums;       /* [rows] of a ranking; */
    double *below;      /* [rows] of the layer below */
    uint8_t *is_true;   /* [rows] */
    double *averages;   /* [layers][rows] over earlier questions of the prefix */
    uint64_t rows;      /* the longest prefix */
    FILE *dump;         /* NULL: figures are printed */
    uint8_t *ranks;     /* [rows] scratch of it, and: */
    float *turn;        /* [query rows][kv_heads][head_dim] queries of some heads; */
    uint64_t turn_rows; /* so many of them have room */
};

/* ---- Sets ---- */

/* The set that the probe heads vote for. */
static void vote(struct state *state, const struct eng_select_input *input, double rho,
                 uint32_t *ret_rows)
{
    struct eng_select_rule rule = eng_select_rule_default(rho);
    struct eng_choice choice;
    struct eng_error error;
    rule.one_set = true;
    rule.probe_heads = state->probes;
    eval_must(eng_select(state->chooser, input, &rule, &choice, &error), &error);
    memcpy(ret_rows, choice.rows, choice.row_count * sizeof(*ret_rows));
}

static double share_of(const uint32_t *truth, const uint32_t *prediction, uint64_t k)
{
    return (double)eng_select_overlap(truth, k, prediction, k) / (double)k;
}

static double similarity(const struct state *state, uint64_t heads, uint64_t k)
{
    double sum = 0;
    uint64_t pairs = 0;
    for (uint64_t a = 0; a < heads; a++)
        for (uint64_t b = a + 1; b < heads; b++, pairs++)
            sum += eng_select_jaccard(state->sets + a * k, k, state->sets + b * k, k);
    return pairs == 0 ? 1 : sum / (double)pairs;
}

static void print_map(const struct state *state, uint64_t layer, double rho, uint64_t k)
{
    uint64_t heads = state->file.config->kv_heads;
    printf("{\"map\": %" PRIu64 ", \"rho\": %g, \"jaccard\": [", layer, rho);
    for (uint64_t a = 0; a < heads; a++)
        for (uint64_t b = 0; b < heads; b++)
            printf("%s%.4f", a + b == 0 ? "" : ", ",
                   eng_select_jaccard(state->sets + a * k, k, state->sets + b * k, k));
    printf("]}\n");
}

/* Important rows over all rows of the chunks that hold one. */
static double chunk_share(const uint32_t *rows, uint64_t k, uint64_t total)
{
    uint64_t touched = 0;
    for (uint64_t i = 0; i < k; i++) {
        uint64_t first = rows[i] / CHUNK * CHUNK;
        if (i == 0 || rows[i - 1] / CHUNK != rows[i] / CHUNK)
            touched += total - first < CHUNK ? total - first : CHUNK;
    }
    return (double)k / (double)touched;
}

static void print_chunks(const uint32_t *rows, uint64_t k, uint64_t total)
{
    uint64_t at = 0;
    printf(", \"chunks\": [");
    for (uint64_t chunk = 0; chunk < total / CHUNK; chunk++) {
        uint64_t first = at;
        while (at < k && rows[at] / CHUNK == chunk)
            at++;
        printf("%s%" PRIu64, chunk == 0 ? "" : ", ", at - first);
    }
    printf("]");
}

/* ---- A layer ---- */

/* The set by queries that were foreseen; they know no key of their own layer but the prefix's. */
static void predict_by_hint(struct state *state, const struct eng_select_input *input, double rho,
                            enum kind kind)
{
    struct eng_select_input foreseen = *input;
    foreseen.q = state->hint[kind][input->layer % 2];
    foreseen.rows = state->hint_rows;
    foreseen.fresh_count = 0;
    vote(state, &foreseen, rho, state->prediction);
}

static void predict_by_average(struct state *state, uint64_t layer, uint64_t total, uint64_t k)
{
    (void)eng_select_top(state->averages + layer * state->rows, total, k, state->order,
                         state->prediction);
}

/* Of rows in ascending order: how many begin a run. */
static uint64_t runs_of(const uint32_t *rows, uint64_t count)
{
    uint64_t runs = 0;
    uint32_t next = UINT32_MAX;
    for (uint64_t i = 0; i < count; i++) {
        runs += rows[i] != next;
        next = rows[i] + 1;
    }
    return runs;
}

static int slot_compare(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

static uint64_t chunks_of(const uint32_t *rows, uint64_t k)
{
    uint64_t count = 0;
    for (uint64_t i = 0; i < k; i++)
        count += i == 0 || rows[i] / CHUNK != rows[i - 1] / CHUNK;
    return count;
}

/* Where the set stands, and where it would. */
static void print_reordered(struct state *state, uint64_t layer, uint64_t total, uint64_t k)
{
    static float scores[SPAN];
    static uint16_t rows[SPAN], slots[SPAN];
    const double *averages = state->averages + layer * state->rows;
    for (uint64_t first = 0, at = 0; first < total; first += SPAN) {
        uint64_t count = total - first < SPAN ? total - first : SPAN;
        for (uint64_t i = 0; i < count; i++)
            scores[i] = (float)averages[first + i];
        sc_store_permutation_make(scores, count, SPAN, rows, slots);
        for (; at < k && state->voted[at] < first + count; at++)
            state->order[at] = (uint32_t)first + slots[state->voted[at] - first];
    }
    qsort(state->order, k, sizeof(*state->order), slot_compare);
    printf(", \"runs\": %" PRIu64 ", \"runs_reordered\": %" PRIu64 ", \"chunks_held\": %" PRIu64
           ", \"chunks_reordered\": %" PRIu64,
           runs_of(state->voted, k), runs_of(state->order, k), chunks_of(state->voted, k),
           chunks_of(state->order, k));
}

/* ---- Ranks ---- */

#define DECILES 10u

/* The share of each tenth of a ranking's k best that the set holds. */
static void print_ranks(struct state *state, const char *name, const uint32_t *ranking, uint64_t k)
{
    printf("%s\"%s\": [", strcmp(name, "sink") == 0 ? "" : ", ", name);
    for (uint64_t d = 0, i = 0; d < DECILES; d++) {
        uint64_t first = i, end = k * (d + 1) / DECILES, right = 0;
        for (; i < end; i++)
            right += state->is_true[ranking[i]];
        printf("%s%.4f", d == 0 ? "" : ", ",
               end > first ? (double)right / (double)(end - first) : 0);
    }
    printf("]");
}

static void print_ranks_by(struct state *state, const char *name, const double *scores,
                           uint64_t total, uint64_t k)
{
    (void)eng_select_top(scores, total, k, state->order, state->prediction);
    print_ranks(state, name, state->order, k);
}

/* What heads of [heads][total] find important, together. */
static void sum_up(const double *importance, uint64_t heads, uint64_t total, double *ret_sums)
{
    memset(ret_sums, 0, total * sizeof(*ret_sums));
    for (uint64_t j = 0; j < heads * total; j++)
        ret_sums[j % total] += importance[j];
}

static void print_ranks_by_hint(struct state *state, const struct eng_select_input *input,
                                enum kind kind, uint64_t k)
{
    struct eng_select_input foreseen = *input;
    struct eng_error error;
    const double *importance = NULL;
    foreseen.q = state->hint[kind][input->layer % 2];
    foreseen.rows = state->hint_rows;
    foreseen.fresh_count = 0;
    eval_must(
        eng_select_importance(state->chooser, &foreseen, state->probes, false, &importance, &error),
        &error);
    sum_up(importance, state->probes, input->prefix_count, state->sums);
    print_ranks_by(state, kind == KIND_BEFORE ? "before" : "after", state->sums,
                   input->prefix_count, k);
}

static void print_deciles(struct state *state, const struct eng_select_input *input, uint64_t k)
{
    uint64_t total = input->prefix_count;
    memset(state->is_true, 0, total);
    for (uint64_t i = 0; i < k; i++) {
        state->is_true[state->voted[i]] = 1;
        state->prediction[i] = (uint32_t)(i % 2 == 0 ? i / 2 : total - 1 - i / 2);
    }
    printf(", \"deciles\": {");
    print_ranks(state, "sink", state->prediction, k);
    if (state->question > 0)
        print_ranks_by(state, "static", state->averages + input->layer * state->rows, total, k);
    if (input->layer > 0) {
        print_ranks_by(state, "layer", state->below, total, k);
        print_ranks_by_hint(state, input, KIND_BEFORE, k);
        print_ranks_by_hint(state, input, KIND_AFTER, k);
    }
    printf("}");
}

static void predict_by_sink(struct state *state, uint64_t total, uint64_t k)
{
    uint64_t first = (k + 1) / 2;
    for (uint64_t i = 0; i < k; i++)
        state->prediction[i] = (uint32_t)(i < first ? i : total - k + i);
}

static void measure(struct state *state, const struct eng_select_input *input, uint64_t r)
{
    uint64_t total = input->prefix_count;
    uint64_t layer = input->layer;
    double rho = state->rho[r];
    uint64_t k = eng_select_k(total, (uint64_t)(rho * 1e6 + .5));
    uint32_t *last = state->last + r * state->rows;
    for (uint64_t h = 0; h < input->kv_heads; h++)
        (void)eng_select_top(state->importance + h * total, total, k, state->order,
                             state->sets + h * k);
    if (layer == state->map_layer)
        print_map(state, layer, rho, k);
    double heads = similarity(state, input->kv_heads, k);
    double probes = similarity(state, state->probes, k);
    vote(state, input, rho, state->voted);
    printf("{\"id\": \"%s\", \"group\": \"%s\", \"question\": %" PRIu64 ", \"layer\": %" PRIu64
           ", \"rho\": %g, \"heads\": %.6f, \"probes\": %.6f, \"chunk\": %.6f",
           state->entry->id, state->entry->group, state->question, layer, rho, heads, probes,
           chunk_share(state->voted, k, total));
    if (state->chunks)
        print_chunks(state->voted, k, total);
    if (state->question > 0) {
        predict_by_average(state, layer, total, k);
        printf(", \"static\": %.6f", share_of(state->voted, state->prediction, k));
        print_reordered(state, layer, total, k);
    }
    predict_by_sink(state, total, k);
    printf(", \"sink\": %.6f", share_of(state->voted, state->prediction, k));
    if (layer > 0) {
        printf(", \"neighbours\": %.6f, \"layer_prediction\": %.6f",
               eng_select_jaccard(state->voted, k, last, k), share_of(state->voted, last, k));
        predict_by_hint(state, input, rho, KIND_BEFORE);
        printf(", \"before\": %.6f", share_of(state->voted, state->prediction, k));
        predict_by_hint(state, input, rho, KIND_AFTER);
        printf(", \"after\": %.6f", share_of(state->voted, state->prediction, k));
    }
    print_deciles(state, input, k);
    printf("}\n");
    memcpy(last, state->voted, k * sizeof(*last));
}

/* ---- A dump ---- */

static eng_status dump_importance(struct state *state, const struct eng_select_input *input,
                                  struct eng_error *reterr)
{
    const double *importance = NULL;
    uint64_t total = input->prefix_count;
    eng_status status =
        eng_select_importance(state->chooser, input, input->kv_heads, false, &importance, reterr);
    for (uint64_t h = 0; status == ENG_OK && h < input->kv_heads; h++) {
        (void)eng_select_top(importance + h * total, total, total, state->order, state->prediction);
        bench_dump_put(state->dump, state->order, total, state->ranks);
    }
    return status;
}

/* Of each group its member `turn`, as if there were no others. */
static void queries_of_turn(struct state *state, const struct eng_select_input *input,
                            uint64_t turn, struct eng_select_input *ret_input)
{
    uint64_t group = input->heads / input->kv_heads, width = input->kv_heads * input->head_dim;
    if (state->turn_rows < input->rows) {
        free(state->turn);
        state->turn = eval_must_have(calloc(input->rows * width, sizeof(*state->turn)));
        state->turn_rows = input->rows;
    }
    for (uint64_t i = 0; i < input->rows; i++)
        for (uint64_t h = 0; h < input->kv_heads; h++)
            memcpy(state->turn + i * width + h * input->head_dim,
                   input->q + i * input->q_stride + (h * group + turn) * input->head_dim,
                   input->head_dim * sizeof(float));
    *ret_input = *input;
    ret_input->heads = input->kv_heads;
    ret_input->q = state->turn;
    ret_input->q_stride = width;
}

static eng_status dump_layer(struct state *state, const struct eng_select_input *input,
                             struct eng_error *reterr)
{
    struct eng_select_input some;
    eng_status status = dump_importance(state, input, reterr);
    for (uint64_t turn = 0; status == ENG_OK && turn < input->heads / input->kv_heads; turn++) {
        queries_of_turn(state, input, turn, &some);
        status = dump_importance(state, &some, reterr);
    }
    return status;
}

static const char *last_part(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash != NULL ? slash + 1 : path;
}

static void dump_open(struct state *state, int argc, char **argv)
{
    const struct eng_config *config = state->file.config;
    const char *path = bench_option(argc, argv, "--dump", NULL);
    struct bench_dump_head head = {.magic = BENCH_DUMP_MAGIC,
                                   .layers = (uint32_t)config->layers,
                                   .heads = (uint32_t)config->heads,
                                   .kv_heads = (uint32_t)config->kv_heads,
                                   .entry_count = (uint32_t)state->file.entry_count};
    if (path == NULL)
        return;
    (void)snprintf(head.source, sizeof(head.source), "%s, %s",
                   last_part(bench_option(argc, argv, "--model", "")),
                   last_part(bench_option(argc, argv, "--eval", "")));
    struct bench_dump_entry *entries = eval_must_have(calloc(head.entry_count, sizeof(*entries)));
    for (uint64_t i = 0; i < head.entry_count; i++) {
        const struct eval_entry *entry = &state->file.entries[i];
        (void)snprintf(entries[i].id, sizeof(entries[i].id), "%.55s", entry->id);
        entries[i].tokens = (uint32_t)entry->prefix.count;
        entries[i].questions = (uint32_t)entry->question_count;
    }
    state->dump = fopen(path, "wb");
    if (state->dump == NULL)
        bench_die("%s cannot be written", path);
    bench_dump_begin(state->dump, &head, entries);
    free(entries);
}

static void dump_close(struct state *state)
{
    if (state->dump != NULL && fclose(state->dump) != 0)
        bench_die("the dump cannot be written");
}

static eng_status see_layer(void *user, const struct eng_attention_view *view, uint64_t pass,
                            const struct eng_select_input *input, const struct eng_choice *choice,
                            struct eng_error *reterr)
{
    struct state *state = user;
    const double *importance = NULL;
    uint64_t total = input->prefix_count;
    double *averages = state->averages + view->layer * state->rows;
    (void)pass;
    (void)choice;
    if (state->dump != NULL)
        return dump_layer(state, input, reterr);
    eng_status status =
        eng_select_importance(state->chooser, input, input->kv_heads, false, &importance, reterr);
    if (status != ENG_OK)
        return status;
    memcpy(state->importance, importance, input->kv_heads * total * sizeof(double));
    for (uint64_t r = 0; r < state->rho_count; r++)
        measure(state, input, r);
    sum_up(state->importance, state->probes, total, state->below);
    /* As the plugin does: of the probe heads, each question weighs the same. */
    double sum = 0;
    for (uint64_t j = 0; j < state->probes * total; j++)
        sum += state->importance[j];
    for (uint64_t j = 0; j < state->probes * total; j++)
        averages[j % total] += state->importance[j] / sum;
    return ENG_OK;
}

static eng_status keep_hint(void *user, const struct eng_hint_view *view, struct eng_error *reterr)
{
    struct state *state = user;
    enum kind kind = view->after ? KIND_AFTER : KIND_BEFORE;
    uint64_t width = state->file.config->heads * state->file.config->head_dim;
    uint64_t rows = view->pass->count < HINT_ROWS ? view->pass->count : HINT_ROWS;
    (void)reterr;
    for (uint64_t i = 0; i < rows; i++)
        memcpy(state->hint[kind][view->layer % 2] + i * width,
               view->q + (view->pass->count - rows + i) * view->q_stride, width * sizeof(float));
    state->hint_rows = rows;
    return ENG_OK;
}

/* ---- ---- */

static void run_question(struct state *state, const struct eng_source *source, uint64_t number)
{
    struct eng_result result;
    struct eng_error error;
    const struct eval_question *question = &state->entry->questions[number];
    const struct eng_request request = {.index = number,
                                        .prefix = state->entry->prefix.ids,
                                        .query = question->query.ids,
                                        .prefix_count = state->entry->prefix.count,
                                        .query_count = question->query.count,
                                        .max_new = 1};
    state->question = number;
    eval_must(eng_run(state->runner, &request, source, &result, &error), &error);
    eng_result_done(&result);
}

static void run_all(struct state *state)
{
    struct eng_error error;
    struct eng_selectr_source *source = NULL;
    const struct eng_selectr_source_params params = {.model = state->file.model,
                                                     .held = eng_runner_kv(state->holder),
                                                     .held_tokens = &state->held,
                                                     .rule = eng_select_rule_default(1),
                                                     .seen = see_layer,
                                                     .seen_user = state,
                                                     .hint = keep_hint,
                                                     .hint_user = state};
    eval_must(eng_selectr_source_open(&params, &source, &error), &error);
    for (uint64_t e = 0; e < state->file.entry_count; e++) {
        state->entry = &state->file.entries[e];
        state->held = state->entry->prefix.count;
        (void)fprintf(stderr, "prefix %" PRIu64 " of %" PRIu64 "\n", e + 1,
                      state->file.entry_count);
        eval_must(eng_run_hold(state->holder, state->entry->prefix.ids, state->held, 0, &error),
                  &error);
        memset(state->averages, 0, state->file.config->layers * state->rows * sizeof(double));
        for (uint64_t q = 0; q < state->entry->question_count; q++)
            run_question(state, eng_selectr_source_get(source), q);
    }
    eng_selectr_source_close(source);
}

static void make_memory(struct state *state)
{
    const struct eng_config *config = state->file.config;
    struct eng_error error;
    uint64_t rows = state->file.longest;
    state->rows = rows;
    for (int i = 0; i < 2 * KIND_COUNT; i++)
        state->hint[i / 2][i % 2] =
            eval_must_have(calloc(HINT_ROWS * config->heads * config->head_dim, sizeof(float)));
    state->sets = eval_must_have(calloc(config->kv_heads * rows, sizeof(uint32_t)));
    state->voted = eval_must_have(calloc(rows, sizeof(uint32_t)));
    state->last = eval_must_have(calloc(RHO_MAX * rows, sizeof(uint32_t)));
    state->prediction = eval_must_have(calloc(rows, sizeof(uint32_t)));
    state->order = eval_must_have(calloc(2 * rows, sizeof(uint32_t)));
    state->importance = eval_must_have(calloc(config->kv_heads * rows, sizeof(double)));
    state->sums = eval_must_have(calloc(rows, sizeof(double)));
    state->below = eval_must_have(calloc(rows, sizeof(double)));
    state->is_true = eval_must_have(calloc(rows, 1));
    state->ranks = eval_must_have(calloc(rows, 1));
    state->averages = eval_must_have(calloc(config->layers * rows, sizeof(double)));
    state->probes = config->kv_heads < 3 ? config->kv_heads : 3;
    eval_must(eng_selectr_open(&state->chooser, &error), &error);
    eval_must(eng_runner_open(state->file.model, ENG_F16, rows + 1, &state->holder, &error),
              &error);
    eval_must(eng_runner_open(state->file.model, ENG_F16, rows + 1, &state->runner, &error),
              &error);
}

static void free_memory(struct state *state)
{
    for (int i = 0; i < 2 * KIND_COUNT; i++)
        free(state->hint[i / 2][i % 2]);
    free(state->sets);
    free(state->voted);
    free(state->last);
    free(state->prediction);
    free(state->order);
    free(state->importance);
    free(state->sums);
    free(state->below);
    free(state->is_true);
    free(state->ranks);
    free(state->turn);
    free(state->averages);
    eng_selectr_close(state->chooser);
    eng_runner_close(state->holder);
    eng_runner_close(state->runner);
    eval_close(&state->file);
}

int main(int argc, char **argv)
{
    static struct state state;
    char *list = eval_must_have(strdup(bench_option(argc, argv, "--rho", ".05,.1,.25,.4,.5")));
    char *rest = list;
    for (char *word = strsep(&rest, ","); word != NULL; word = strsep(&rest, ",")) {
        double rho = strtod(word, NULL);
        if (state.rho_count == RHO_MAX || !(rho > 0 && rho <= 1))
            bench_die("--rho: at most %u shares above 0 up to 1 are expected", RHO_MAX);
        state.rho[state.rho_count++] = rho;
    }
    free(list);
    state.chunks = bench_option_u64(argc, argv, "--chunks", 0) != 0;
    state.map_layer = bench_option_u64(argc, argv, "--map", UINT64_MAX);
    eval_open(&state.file, argc, argv);
    make_memory(&state);
    dump_open(&state, argc, argv);
    run_all(&state);
    dump_close(&state);
    free_memory(&state);
    return 0;
}
