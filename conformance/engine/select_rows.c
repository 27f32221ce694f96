/* select_rows: the reference choice of rows. See select_rows.h.
 *
 * Keys of one head are transposed, [d][R + F]: scores of all columns are sums of scaled columns,
 * which compilers vectorise without reordering a sum. */
#include "conformance/engine/select_rows.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define PPM 1000000u

struct eng_selectr {
    double *columns;                          /* [head_dim][columns], of one head */
    double *scores;                           /* [columns] */
    double *importance;                       /* [kv_heads][R] */
    double *summed;                           /* [R] */
    float *wide;                              /* [head_dim] */
    uint32_t *order;                          /* [R] */
    uint32_t *sets;                           /* [kv_heads][R] */
    uint32_t *chosen;                         /* [R] */
    uint32_t *votes;                          /* [R] */
    bool *kept;                               /* [R] */
    uint64_t columns_capacity, rows_capacity; /* values of columns; of importance */
};

struct eng_select_rule eng_select_rule_default(double rho)
{
    return (struct eng_select_rule){.retain_ppm = (uint64_t)(rho * PPM + .5),
                                    .probe_heads = 3,
                                    .alpha = .6,
                                    .mass_threshold = .9,
                                    .unit = 1};
}

eng_status eng_selectr_open(struct eng_selectr **ret_chooser, struct eng_error *reterr)
{
    *ret_chooser = calloc(1, sizeof(**ret_chooser));
    return *ret_chooser == NULL ? eng_fail(reterr, ENG_E_NO_MEMORY, "no memory for a chooser")
                                : ENG_OK;
}

static void free_memory(struct eng_selectr *chooser)
{
    free(chooser->columns);
    free(chooser->scores);
    free(chooser->importance);
    free(chooser->summed);
    free(chooser->wide);
    free(chooser->order);
    free(chooser->sets);
    free(chooser->chosen);
    free(chooser->votes);
    free(chooser->kept);
    *chooser = (struct eng_selectr){0};
}

void eng_selectr_close(struct eng_selectr *chooser)
{
    if (chooser == NULL)
        return;
    free_memory(chooser);
    free(chooser);
}

static eng_status reserve(struct eng_selectr *chooser, const struct eng_select_input *input,
                          struct eng_error *reterr)
{
    uint64_t columns = input->prefix_count + input->fresh_count;
    uint64_t values = columns * (input->head_dim + 1);
    uint64_t rows = (input->prefix_count + 1) * input->kv_heads;
    if (values <= chooser->columns_capacity && rows <= chooser->rows_capacity)
        return ENG_OK;
    free_memory(chooser);
    chooser->columns = calloc(values, sizeof(double));
    chooser->scores = calloc(values, sizeof(double));
    chooser->importance = calloc(rows, sizeof(double));
    chooser->summed = calloc(rows, sizeof(double));
    chooser->wide = calloc(input->head_dim, sizeof(float));
    chooser->order = calloc(2 * rows, sizeof(uint32_t));
    chooser->sets = calloc(rows, sizeof(uint32_t));
    chooser->chosen = calloc(rows, sizeof(uint32_t));
    chooser->votes = calloc(rows, sizeof(uint32_t));
    chooser->kept = calloc(rows, sizeof(bool));
    if (chooser->columns == NULL || chooser->scores == NULL || chooser->importance == NULL ||
        chooser->summed == NULL || chooser->wide == NULL || chooser->order == NULL ||
        chooser->sets == NULL || chooser->chosen == NULL || chooser->votes == NULL ||
        chooser->kept == NULL) {
        free_memory(chooser);
        return eng_fail(reterr, ENG_E_NO_MEMORY, "no memory to choose rows");
    }
    chooser->columns_capacity = values;
    chooser->rows_capacity = rows;
    return ENG_OK;
}

/* ---- Importance ---- */

static void transpose(struct eng_selectr *chooser, const struct eng_select_input *input,
                      uint64_t kv_head)
{
    uint64_t value_bytes = eng_dtype_bytes(input->dtype);
    uint64_t columns = input->prefix_count + input->fresh_count;
    for (uint64_t j = 0; j < columns; j++) {
        const uint8_t *base = j < input->prefix_count ? input->prefix : input->fresh;
        uint64_t row = j < input->prefix_count ? j : j - input->prefix_count;
        eng_widen(base + (row * input->kv_heads + kv_head) * input->head_dim * value_bytes,
                  input->dtype, input->head_dim, chooser->wide);
        for (uint64_t d = 0; d < input->head_dim; d++)
            chooser->columns[d * columns + j] = (double)chooser->wide[d];
    }
}

/* Adds one row's softmax to sums [R]. */
static void add_row(struct eng_selectr *chooser, const struct eng_select_input *input,
                    const float *q, uint64_t row, double *sums)
{
    uint64_t columns = input->prefix_count + input->fresh_count;
    uint64_t seen = columns;
    if (input->fresh_count > 0)
        seen = columns - input->rows + row + 1;
    double scale = 1 / sqrt((double)input->head_dim);
    double *scores = chooser->scores;
    double largest = -INFINITY;
    double total = 0;
    memset(scores, 0, seen * sizeof(*scores));
    for (uint64_t d = 0; d < input->head_dim; d++) {
        const double *column = chooser->columns + d * columns;
        double x = (double)q[d];
        for (uint64_t j = 0; j < seen; j++)
            scores[j] += x * column[j];
    }
    for (uint64_t j = 0; j < seen; j++)
        largest = fmax(largest, scores[j] * scale);
    for (uint64_t j = 0; j < seen; j++) {
        scores[j] = exp(scores[j] * scale - largest);
        total += scores[j];
    }
    for (uint64_t j = 0; j < input->prefix_count; j++)
        sums[j] += scores[j] / total;
}

static void score_heads(struct eng_selectr *chooser, const struct eng_select_input *input,
                        uint64_t first, uint64_t end, bool last_row)
{
    uint64_t group = input->heads / input->kv_heads;
    for (uint64_t h = first; h < end; h++) {
        double *sums = chooser->importance + h * input->prefix_count;
        memset(sums, 0, input->prefix_count * sizeof(*sums));
        transpose(chooser, input, h);
        for (uint64_t i = last_row ? input->rows - 1 : 0; i < input->rows; i++)
            for (uint64_t g = h * group; g < (h + 1) * group; g++)
                add_row(chooser, input, input->q + i * input->q_stride + g * input->head_dim, i,
                        sums);
    }
}

eng_status eng_select_importance(struct eng_selectr *chooser, const struct eng_select_input *input,
                                 uint64_t kv_heads, bool last_row, const double **ret_importance,
                                 struct eng_error *reterr)
{
    eng_status status = reserve(chooser, input, reterr);
    if (status != ENG_OK)
        return status;
    score_heads(chooser, input, 0, kv_heads, last_row);
    *ret_importance = chooser->importance;
    return ENG_OK;
}

/* ---- Sets ---- */

uint64_t eng_select_k(uint64_t total, uint64_t ppm)
{
    uint64_t k = (total * ppm + PPM - 1) / PPM;
    return total == 0 ? 0 : k == 0 ? 1 : k;
}

static int ascending(const void *a, const void *b)
{
    uint32_t left = *(const uint32_t *)a;
    uint32_t right = *(const uint32_t *)b;
    return left < right ? -1 : left > right;
}

static bool goes_before(const double *scores, uint32_t a, uint32_t b)
{
    return scores[a] > scores[b] || (scores[a] == scores[b] && a < b);
}

/* Merge sort of order [count]; spare [count]. */
static void sort_order(const double *scores, uint32_t *order, uint32_t *spare, uint64_t count)
{
    uint32_t *from = order;
    uint32_t *to = spare;
    for (uint64_t width = 1; width < count; width *= 2) {
        for (uint64_t at = 0; at < count; at += 2 * width) {
            uint64_t left = at;
            uint64_t middle = at + width < count ? at + width : count;
            uint64_t right = middle;
            uint64_t end = at + 2 * width < count ? at + 2 * width : count;
            for (uint64_t i = at; i < end; i++) {
                bool first = right == end ||
                             (left < middle && !goes_before(scores, from[right], from[left]));
                to[i] = first ? from[left++] : from[right++];
            }
        }
        uint32_t *other = from;
        from = to;
        to = other;
    }
    if (from != order)
        memcpy(order, from, count * sizeof(*order));
}

uint64_t eng_select_top(const double *scores, uint64_t count, uint64_t k, uint32_t *order,
                        uint32_t *ret_rows)
{
    uint64_t near = 0;
    for (uint64_t j = 0; j < count; j++)
        order[j] = (uint32_t)j;
    sort_order(scores, order, order + count, count);
    memcpy(ret_rows, order, k * sizeof(*ret_rows));
    qsort(ret_rows, k, sizeof(*ret_rows), ascending);
    if (k == 0 || k == count || isinf(scores[order[k - 1]]))
        return 0;
    double border = scores[order[k - 1]];
    double slack = ENG_SELECT_NEAR * fabs(border);
    if (!(border - scores[order[k]] <= slack))
        return 0;
    for (uint64_t i = k; i-- > 0 && scores[order[i]] - scores[order[k]] <= slack;)
        near++;
    for (uint64_t i = k; i < count && border - scores[order[i]] <= slack; i++)
        near++;
    return near;
}

uint64_t eng_select_overlap(const uint32_t *a, uint64_t a_count, const uint32_t *b,
                            uint64_t b_count)
{
    uint64_t i = 0, j = 0, both = 0;
    while (i < a_count && j < b_count) {
        if (a[i] == b[j])
            both++;
        uint32_t left = a[i];
        uint32_t right = b[j];
        i += left <= right;
        j += right <= left;
    }
    return both;
}

double eng_select_jaccard(const uint32_t *a, uint64_t a_count, const uint32_t *b, uint64_t b_count)
{
    uint64_t both = eng_select_overlap(a, a_count, b, b_count);
    uint64_t either = a_count + b_count - both;
    return either == 0 ? 1 : (double)both / (double)either;
}

/* ---- The choice ---- */

struct choosing {
    struct eng_selectr *chooser;
    const struct eng_select_input *input;
    const struct eng_select_rule *rule;
    uint64_t probes, k;
    struct eng_choice choice;
};

static bool is_kept(const struct choosing *run, uint64_t row)
{
    return row < run->rule->keep_first || run->input->prefix_count - row <= run->rule->keep_last;
}

/* Importance as rows are ranked by it, in the chooser's scores: every row has its granule's sum, or
 * (share) its part of that; rows that are always chosen rank above all others. */
static double *ranked_scores(const struct choosing *run, const double *importance, bool share)
{
    uint64_t total = run->input->prefix_count;
    uint64_t unit = run->rule->unit == 0 ? 1 : run->rule->unit;
    double *scores = run->chooser->scores;
    for (uint64_t first = 0; first < total; first += unit) {
        uint64_t end = total - first < unit ? total : first + unit;
        double sum = 0;
        for (uint64_t j = first; j < end; j++)
            sum += importance[j];
        for (uint64_t j = first; j < end; j++)
            scores[j] = share ? sum / (double)(end - first) : sum;
    }
    for (uint64_t j = 0; j < total && !share; j++)
        if (is_kept(run, j))
            scores[j] = INFINITY;
    return scores;
}

static double mass_of(const double *scores, const uint32_t *rows, uint64_t count)
{
    double sum = 0;
    for (uint64_t i = 0; i < count; i++)
        sum += scores[rows[i]];
    return sum;
}

/* Each head's own set, into the chooser's sets. */
static uint64_t select_own(struct choosing *run, uint64_t heads)
{
    uint64_t total = run->input->prefix_count;
    uint64_t near = 0;
    for (uint64_t h = 0; h < heads; h++)
        near += eng_select_top(ranked_scores(run, run->chooser->importance + h * total, false),
                               total, run->k, run->chooser->order, run->chooser->sets + h * run->k);
    return near;
}

/* The set that most probe heads hold. */
static void vote(struct choosing *run)
{
    struct eng_selectr *chooser = run->chooser;
    uint64_t total = run->input->prefix_count;
    memcpy(chooser->summed, ranked_scores(run, chooser->summed, false), total * sizeof(double));
    memset(chooser->votes, 0, total * sizeof(*chooser->votes));
    for (uint64_t i = 0; i < run->probes * run->k; i++)
        chooser->votes[chooser->sets[i]]++;
    /* Votes first: rank by votes alone, then by score among equals, as one number would not do
     * without rounding; so the sets of v votes are taken whole until one does not fit. */
    uint64_t left = run->k;
    uint64_t used = 0;
    for (uint64_t v = run->probes + 1; v-- > 0 && left > 0;) {
        double *scores = chooser->scores;
        uint64_t held = 0;
        for (uint64_t j = 0; j < total; j++) {
            scores[j] = chooser->votes[j] == v ? chooser->summed[j] : -INFINITY;
            held += chooser->votes[j] == v;
        }
        uint64_t take = held < left ? held : left;
        uint64_t near = eng_select_top(scores, total, take, chooser->order, chooser->chosen + used);
        run->choice.near += take < held ? near : 0;
        used += take;
        left -= take;
    }
    qsort(chooser->chosen, run->k, sizeof(*chooser->chosen), ascending);
}

static void measure_similarity(struct choosing *run)
{
    const struct eng_selectr *chooser = run->chooser;
    uint64_t total = run->input->prefix_count;
    uint64_t k = run->k;
    double sum = 0;
    uint64_t pairs = 0;
    if (run->rule->similarity == ENG_SIMILARITY_MASS) {
        for (uint64_t h = 0; h < run->probes; h++) {
            const double *scores = chooser->importance + h * total;
            sum += mass_of(scores, chooser->chosen, k) / mass_of(scores, chooser->sets + h * k, k);
        }
        run->choice.similarity = sum / (double)run->probes;
        run->choice.threshold = run->rule->mass_threshold;
        return;
    }
    for (uint64_t a = 0; a < run->probes; a++)
        for (uint64_t b = a + 1; b < run->probes; b++, pairs++)
            sum += eng_select_jaccard(chooser->sets + a * k, k, chooser->sets + b * k, k);
    run->choice.similarity = pairs == 0 ? 1 : sum / (double)pairs;
    double share = (double)k / (double)total;
    run->choice.threshold = pow(share / (2 - share), run->rule->alpha);
}

static uint64_t count_union(struct choosing *run)
{
    uint64_t total = run->input->prefix_count;
    uint64_t rows = 0;
    bool *kept = run->chooser->kept;
    memset(kept, 0, total * sizeof(*kept));
    for (uint64_t i = 0; i < run->choice.lists * run->k; i++) {
        rows += !kept[run->choice.rows[i]];
        kept[run->choice.rows[i]] = true;
    }
    return rows;
}

static void select_random(struct choosing *run)
{
    uint64_t total = run->input->prefix_count;
    uint64_t state = run->input->salt * 0x9e3779b97f4a7c15u + run->input->layer + 1;
    for (uint64_t j = 0; j < total; j++) {
        state += 0x9e3779b97f4a7c15u;
        uint64_t mixed = (state ^ (state >> 30)) * 0xbf58476d1ce4e5b9u;
        mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111ebu;
        run->chooser->summed[j] = (double)((mixed ^ (mixed >> 31)) >> 11);
    }
    (void)eng_select_top(ranked_scores(run, run->chooser->summed, false), total, run->k,
                         run->chooser->order, run->chooser->chosen);
}

static void select_all_rows(struct choosing *run)
{
    run->k = run->input->prefix_count;
    for (uint64_t j = 0; j < run->k; j++)
        run->chooser->chosen[j] = (uint32_t)j;
}

/* The fewest rows, those that are always chosen among them, that hold the share of the probes'
 * summed importance. */
static uint64_t mass_count(struct choosing *run)
{
    struct eng_selectr *chooser = run->chooser;
    uint64_t total = run->input->prefix_count;
    double *scores = ranked_scores(run, chooser->summed, true);
    double whole = 0;
    double held = 0;
    uint64_t rows = 0;
    for (uint64_t j = 0; j < total; j++) {
        whole += scores[j];
        held += is_kept(run, j) ? scores[j] : 0;
        rows += is_kept(run, j);
        scores[j] = is_kept(run, j) ? -1 : scores[j];
    }
    (void)eng_select_top(scores, total, run->k, chooser->order, chooser->chosen);
    for (uint64_t i = 0; rows < run->k && held < run->rule->mass * whole; i++, rows++)
        held += scores[chooser->order[i]];
    return rows == 0 ? 1 : rows < run->k ? rows : run->k;
}

static void select_by_importance(struct choosing *run)
{
    struct eng_selectr *chooser = run->chooser;
    const struct eng_select_input *input = run->input;
    uint64_t total = input->prefix_count;
    bool last = run->rule->metric == ENG_METRIC_LAST;
    uint64_t scored = run->rule->per_head ? input->kv_heads : run->probes;
    score_heads(chooser, input, 0, scored, last);
    memset(chooser->summed, 0, total * sizeof(*chooser->summed));
    for (uint64_t h = 0; h < run->probes; h++)
        for (uint64_t j = 0; j < total; j++)
            chooser->summed[j] += chooser->importance[h * total + j];
    if (run->rule->mass > 0)
        run->k = mass_count(run);
    if (run->k == total) {
        select_all_rows(run);
        return;
    }
    if (!run->rule->per_head) {
        run->choice.near += select_own(run, run->probes);
        vote(run);
        measure_similarity(run);
        if (run->rule->one_set || run->choice.similarity > run->choice.threshold)
            return;
        score_heads(chooser, input, run->probes, input->kv_heads, last);
    }
    run->choice.fallback = true;
    run->choice.near = select_own(run, input->kv_heads);
}

eng_status eng_select(struct eng_selectr *chooser, const struct eng_select_input *input,
                      const struct eng_select_rule *rule, struct eng_choice *ret_choice,
                      struct eng_error *reterr)
{
    uint64_t total = input->prefix_count;
    struct choosing run = {.chooser = chooser, .input = input, .rule = rule};
    eng_status status = reserve(chooser, input, reterr);
    if (status != ENG_OK)
        return status;
    run.probes = rule->probe_heads < input->kv_heads ? rule->probe_heads : input->kv_heads;
    run.k = rule->count == 0      ? eng_select_k(total, rule->retain_ppm)
            : rule->count < total ? rule->count
                                  : total;
    run.choice.lists = 1;
    if (run.k == total && rule->mass == 0)
        select_all_rows(&run);
    else if (input->layer < rule->dense_layers)
        select_all_rows(&run);
    else if (rule->metric == ENG_METRIC_RANDOM)
        select_random(&run);
    else
        select_by_importance(&run);
    run.choice.row_count = run.k;
    run.choice.lists = run.choice.fallback ? input->kv_heads : 1;
    run.choice.rows = run.choice.fallback ? chooser->sets : chooser->chosen;
    run.choice.union_rows = count_union(&run);
    *ret_choice = run.choice;
    return ENG_OK;
}
