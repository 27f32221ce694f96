/* row_set: selects sets of rows from keys and queries. Contract: row_set.h.
 *
 *   probe head 0: sums [R] -> k rows \        similarity > threshold: one set, by votes, then total
 *   probe head 1: sums [R] -> k rows  > sets  importance, then lower position
 *   probe head 2: sums [R] -> k rows /        else: a set per head
 *
 * Scores are sums of importance, with two changes: all rows of a granule have its sum, so that a
 * top-k takes whole granules (and cuts the last one); rows that are always kept score infinity.
 *
 * Invariants: one thread computes an item, in an order that depends on the item alone. The total
 * order of kernels/importance.h makes sets unique. */
#include "plugin/select/row_set.h"
#include "plugin/quant/quant.h"
#include "plugin/select/budget.h"
#include "plugin/select/item.h"
#include "plugin/select/keys_first.h"
#include "plugin/select/row_scores.h"
#include "plugin/select/scatter.h"
#include "plugin/select/scratch.h"

#include <float.h>
#include <math.h>
#include <string.h>

/* ---- Scores --------------------------------------------------------------------------------- */

/* Writes to scratch->scores each row's granule sum, or (is_share) its share of that. */
static void sums_spread(const struct sc_plugin_scratch *scratch, const struct sc_plugin_want *want,
                        const float *sums, bool is_share)
{
    uint64_t unit = scratch->conn->config.unit, row = 0;
    if (unit == 1) {
        memcpy(scratch->scores, sums, want->row_total * sizeof(float));
        return;
    }
    uint64_t count =
        sc_kernels_granules(sums, want->row_total, want->first_position, unit, scratch->granules);
    for (uint64_t g = 0; g < count; g++) {
        uint64_t end = row + unit - (want->first_position + row) % unit;
        end = end < want->row_total ? end : want->row_total;
        float score = is_share ? scratch->granules[g] / (float)(end - row) : scratch->granules[g];
        while (row < end)
            scratch->scores[row++] = score;
    }
}

static void kept_come_first(const struct sc_plugin_want *want, float *scores)
{
    for (uint64_t row = 0; row < want->keep_before; row++)
        scores[row] = INFINITY;
    for (uint64_t row = want->keep_from; row < want->row_total; row++)
        scores[row] = INFINITY;
}

/* Returns the scores by which rows are ranked, in scratch->scores. */
static float *ranked_scores(struct sc_plugin_scratch *scratch, const struct sc_plugin_want *want,
                            const float *sums)
{
    sums_spread(scratch, want, sums, false);
    kept_come_first(want, scratch->scores);
    return scratch->scores;
}

/* Returns the fewest rows, with those always kept, that hold mass_ppm of the sums. */
static uint64_t mass_rows(struct sc_plugin_scratch *scratch, const struct sc_plugin_want *want,
                          const float *sums)
{
    const spec_connector *conn = scratch->conn;
    float *scores = scratch->scores;
    double all = 0, kept = 0;
    uint64_t kept_count = 0;
    sums_spread(scratch, want, sums, true);
    for (uint64_t row = 0; row < want->row_total; row++) {
        all += (double)scores[row];
        if (row >= want->keep_before && row < want->keep_from)
            continue;
        kept += (double)scores[row];
        kept_count++;
        scores[row] = 0;
    }
    if (!(all > 0) || kept_count >= want->row_count)
        return want->row_count; /* no sums, or no room beside the kept rows */
    double share = ((double)want->mass_ppm / 1e6 * all - kept) / (all - kept);
    uint64_t count = kept_count;
    if (share > 0)
        count +=
            sc_kernels_mass_count(conn->kernels, scores, want->row_total, share < 1 ? share : 1,
                                  want->row_count - kept_count, scratch->ranked);
    return count > 0 ? count : 1;
}

static uint64_t set_rows(struct sc_plugin_scratch *scratch, const struct sc_plugin_want *want,
                         const float *sums)
{
    return want->budget == SPEC_BUDGET_MASS ? mass_rows(scratch, want, sums) : want->row_count;
}

static struct sc_kernels_importance importance_of(const spec_connector *conn,
                                                  const struct sc_plugin_item *item)
{
    return (struct sc_kernels_importance){
        .kernels = conn->kernels,
        .head_size = conn->shape.head_size,
        .group = conn->dims.query_group,
        .scale = item->scoring.scale,
        .queries = item->scoring.queries,
        .fresh = item->scoring.fresh,
        .last_row = item->want.metric == SPEC_METRIC_LAST,
    };
}

/* ---- Probes --------------------------------------------------------------------------------- */

/* Returns the mean over the probe heads of (voted set's mass / own set's mass). */
static double mass_similarity(const struct sc_plugin_scratch *scratch, uint64_t probes,
                              uint64_t row_total, const uint64_t *voted)
{
    uint64_t words = SC_KERNELS_WORDS(row_total);
    double sum = 0;
    for (uint64_t h = 0; h < probes; h++) {
        const float *sums = scratch->sums + h * row_total;
        double own = sc_kernels_mass_of(sums, scratch->sets + h * words, row_total);
        sum += own > 0 ? sc_kernels_mass_of(sums, voted, row_total) / own : 1;
    }
    return sum / (double)probes;
}

void sc_plugin_rank(struct sc_plugin_scratch *scratch, const struct sc_plugin_want *want,
                    const float *sums, uint64_t k, uint32_t *ret_rows)
{
    sc_kernels_topk_ranked(scratch->conn->kernels, ranked_scores(scratch, want, sums),
                           want->row_total, k, scratch->ranked, ret_rows);
}

/* Makes each probe head's set of k rows from the sums of sc_plugin_probe_sums. */
static void sets_make(struct sc_plugin_scratch *scratch, const struct sc_plugin_want *want,
                      uint64_t k)
{
    const spec_connector *conn = scratch->conn;
    uint64_t rows = want->row_total;
    for (uint64_t h = 0; h < conn->choice.probe_heads; h++)
        sc_kernels_topk_bits(conn->kernels, ranked_scores(scratch, want, scratch->sums + h * rows),
                             rows, k, scratch->sets + h * SC_KERNELS_WORDS(rows));
}

/* Makes the heads' sets and the voted set from the sums of sc_plugin_probe_sums. Returns true if
 * the heads agree enough for one set. ret_rows: the voted set, or NULL. */
static bool heads_agree(struct sc_plugin_scratch *scratch, const struct sc_plugin_want *want,
                        uint64_t k, uint32_t *ret_rows, double *ret_similarity,
                        double *ret_threshold)
{
    const spec_connector *conn = scratch->conn;
    uint64_t rows = want->row_total, probes = conn->choice.probe_heads;
    uint64_t words = SC_KERNELS_WORDS(rows), *voted = scratch->sets + probes * words;
    sets_make(scratch, want, k);
    const struct sc_kernels_votes votes = {
        .sets = scratch->sets,
        .set_count = probes,
        .count = rows,
        .scores = ranked_scores(scratch, want, scratch->sums + probes * rows)};
    sc_kernels_vote(conn->kernels, &votes, k, voted + words, voted);
    if (ret_rows != NULL)
        (void)conn->kernels->bits_rows(voted, words, 0, ret_rows, k);
    bool by_mass = conn->config.similarity == SC_SIMILARITY_MASS;
    *ret_similarity = by_mass
                          ? mass_similarity(scratch, probes, rows, voted)
                          : sc_kernels_similarity(conn->kernels, scratch->sets, probes, rows, k);
    *ret_threshold = by_mass ? (double)conn->config.similarity_mass_ppm / 1e6
                             : sc_kernels_threshold(k, rows, conn->config.alpha_milli / 1e3);
    return k == rows || *ret_similarity > *ret_threshold; /* k == rows: all sets are equal */
}

bool sc_plugin_probes_agree(struct sc_plugin_scratch *scratch, const struct sc_plugin_want *want,
                            uint64_t k)
{
    double similarity, threshold;
    return heads_agree(scratch, want, k, NULL, &similarity, &threshold);
}

/* Selects by each probe head's sums and their total; returns true if the heads agree. */
static bool select_by_votes(struct sc_plugin_scratch *scratch, struct sc_plugin_item *item,
                            const float *total, uint32_t *ret_rows)
{
    double similarity, threshold;
    item->row_count = set_rows(scratch, &item->want, total);
    bool agree =
        heads_agree(scratch, &item->want, item->row_count, ret_rows, &similarity, &threshold);
    item->in.similarity = (float)similarity;
    item->in.threshold = (float)threshold;
    sc_plugin_keys_first_learn(scratch->conn, item->in.layer, !agree);
    return agree;
}

spec_status sc_plugin_select_by_probes(struct sc_plugin_scratch *scratch,
                                       struct sc_plugin_item *item, const uint8_t *keys,
                                       uint32_t *ret_rows, bool *ret_agree,
                                       struct spec_error *reterr)
{
    const struct sc_plugin_want *want = &item->want;
    const float *total;
    const struct sc_plugin_asker asker = {.item = item};
    struct sc_kernels_importance what = importance_of(scratch->conn, item);
    spec_status status =
        sc_plugin_probe_sums(scratch, &asker, &what, keys, want->row_total, &total, reterr);
    if (status != SPEC_OK)
        return status;
    *ret_agree = select_by_votes(scratch, item, total, ret_rows);
    return SPEC_OK;
}

/* ---- Codes ---------------------------------------------------------------------------------- */

/* Selects by scores [row_total]: rows without quantised rows, then rows always kept (their scores
 * are infinite), then the others. */
static void quantised_set(const struct sc_plugin_scratch *scratch, struct sc_plugin_item *item,
                          float *scores, uint64_t count, uint32_t *ret_rows)
{
    const struct sc_plugin_request *request = item->request;
    const uint8_t *codes = sc_store_selector_keys(item->selector);
    struct sc_store_slab slab;
    for (uint64_t row = 0; row < item->want.row_total; row++) /* NaN: from the queries */
        scores[row] = isnan(scores[row]) ? -FLT_MAX : isinf(scores[row]) ? FLT_MAX : scores[row];
    item->forced_rows = 0;
    for (uint64_t i = 0, row = 0; i < request->range_count; row += request->ranges[i++].row_count) {
        if (sc_store_slab_of(codes, i, &slab))
            continue;
        for (uint64_t j = 0; j < request->ranges[i].row_count; j++)
            scores[row + j] = INFINITY;
        item->forced_rows += request->ranges[i].row_count;
    }
    if (item->want.is_known_only) { /* rows not quantised or always kept */
        uint64_t known = 0;
        for (uint64_t row = 0; row < item->want.row_total; row++)
            known += scores[row] >= FLT_MAX;
        if (known <= count) {
            count = known;
            item->want.is_cut = false;
        }
    }
    item->row_count = count > item->forced_rows ? count : item->forced_rows;
    if (item->ranking != NULL)
        memcpy(item->ranking, scores, item->want.row_total * sizeof(*scores));
    if (item->row_count > 0)
        sc_kernels_topk(scratch->conn->kernels, scores, item->want.row_total, item->row_count,
                        ret_rows);
}

/* Calibrates the channels with a sample of the queries. */
static spec_status queries_teach(struct sc_plugin_scratch *scratch, struct sc_plugin_item *item,
                                 struct spec_error *reterr)
{
    struct sc_plugin_learning *learning = &scratch->conn->quant->learning;
    struct sc_kernels_queries some;
    uint64_t step =
        sc_plugin_calibrate_step(learning, item->in.layer, item->scoring.queries.row_count);
    if (step == 0)
        return SPEC_OK;
    spec_status status = sc_plugin_scoring_sample(scratch, item, step, &some, reterr);
    if (status == SPEC_OK)
        sc_plugin_calibrate_queries(learning, item->in.layer, &some);
    return status;
}

spec_status sc_plugin_select_by_quant(struct sc_plugin_scratch *scratch,
                                      struct sc_plugin_item *item, uint32_t *ret_rows,
                                      struct spec_error *reterr)
{
    const struct sc_plugin_want *want = &item->want;
    const float *sums;
    const struct sc_plugin_asker asker = {.item = item};
    spec_status status = queries_teach(scratch, item, reterr);
    struct sc_kernels_importance what = importance_of(scratch->conn, item);
    if (status == SPEC_OK)
        status = sc_plugin_quant_scores(scratch, &asker, &what, item->request,
                                        sc_store_selector_keys(item->selector), &sums, reterr);
    if (status != SPEC_OK)
        return status;
    uint64_t count = want->is_layered ? want->row_count : set_rows(scratch, want, sums);
    (void)ranked_scores(scratch, want, sums);
    quantised_set(scratch, item, scratch->scores, count, ret_rows);
    return SPEC_OK;
}

void sc_plugin_select_kept(struct sc_plugin_scratch *scratch, struct sc_plugin_item *item,
                           uint32_t *ret_rows)
{
    const struct sc_plugin_want *want = &item->want;
    memset(scratch->scores, 0, want->row_total * sizeof(*scratch->scores));
    kept_come_first(want, scratch->scores);
    quantised_set(scratch, item, scratch->scores, want->row_count, ret_rows);
}

/* ---- Without keys --------------------------------------------------------------------------- */

bool sc_plugin_select_by_baseline(struct sc_plugin_scratch *scratch, struct sc_plugin_item *item,
                                  uint32_t *ret_rows)
{
    const spec_connector *conn = scratch->conn;
    const struct sc_plugin_want *want = &item->want;
    struct sc_baseline_ask ask = sc_plugin_baseline_ask(item->request, item->in.layer);
    float *scores = scratch->sums;
    enum sc_baseline_answer answer = sc_baseline_score(&conn->baseline, &ask, want->metric, scores);
    bool is_measured = answer == SC_BASELINE_IMPORTANCE && !want->is_layered;
    if (answer == SC_BASELINE_NOTHING)
        return false;
    item->row_count = is_measured ? set_rows(scratch, want, scores) : want->row_count;
    if (answer == SC_BASELINE_IMPORTANCE)
        scores = ranked_scores(scratch, want, scores);
    else
        kept_come_first(want, scores);
    if (want->is_layered)
        quantised_set(scratch, item, scores, want->row_count, ret_rows);
    else
        sc_kernels_topk(conn->kernels, scores, want->row_total, item->row_count, ret_rows);
    return true;
}

/* ---- All heads, of the selector
 * --------------------------------------------------------------- */

spec_status sc_plugin_select_by_all(struct sc_plugin_scratch *scratch, struct sc_plugin_item *item,
                                    const uint8_t *keys, struct spec_error *reterr)
{
    const struct sc_plugin_want *want = &item->want;
    const float *total;
    const struct sc_plugin_asker asker = {.item = item};
    struct sc_kernels_importance what = importance_of(scratch->conn, item);
    spec_status status =
        sc_plugin_probe_sums(scratch, &asker, &what, keys, want->row_total, &total, reterr);
    if (status != SPEC_OK)
        return status;
    item->row_count = set_rows(scratch, want, total);
    sets_make(scratch, want, item->row_count);
    return SPEC_OK;
}

/* ---- All heads, where the rows are ---------------------------------------------------------- */

/* Sums heads [first, end) in one pass. */
static void sums_here(struct sc_plugin_scratch *scratch, const struct sc_plugin_item *item,
                      uint64_t first, uint64_t end)
{
    struct sc_plugin_placing to = sc_plugin_placing_of(scratch->conn, item);
    struct sc_kernels_importance what = importance_of(scratch->conn, item);
    what.prefix.count = item->want.row_total;
    item->memory.target->score(&to, &what, first, end, scratch->importance, scratch->sums);
}

/* Sums the heads from `first` on that are scored in one pass; returns how many. */
static uint64_t heads_sums(struct sc_plugin_scratch *scratch, const struct sc_plugin_item *item,
                           uint64_t first)
{
    uint64_t left = scratch->conn->shape.kv_head_count - first;
    uint64_t count = left < SC_PLUGIN_HEADS_TOGETHER ? left : SC_PLUGIN_HEADS_TOGETHER;
    sums_here(scratch, item, first, first + count);
    return count;
}

bool sc_plugin_select_by_probes_here(struct sc_plugin_scratch *scratch, struct sc_plugin_item *item,
                                     uint32_t *ret_rows)
{
    const spec_connector *conn = scratch->conn;
    uint64_t rows = item->want.row_total, probes = conn->choice.probe_heads;
    float *total = scratch->sums + probes * rows;
    sums_here(scratch, item, 0, probes);
    sc_plugin_sums_total(conn, scratch->sums, probes, rows, total);
    return select_by_votes(scratch, item, total, ret_rows);
}

uint64_t sc_plugin_select_count(struct sc_plugin_scratch *scratch,
                                const struct sc_plugin_item *item)
{
    const spec_connector *conn = scratch->conn;
    const struct sc_plugin_want *want = &item->want;
    if (want->budget != SPEC_BUDGET_MASS)
        return want->row_count;
    float *total = scratch->sums + SC_PLUGIN_HEADS_TOGETHER * want->row_total;
    memset(total, 0, want->row_total * sizeof(float));
    for (uint64_t head = 0, count; head < conn->shape.kv_head_count; head += count) {
        count = heads_sums(scratch, item, head);
        for (uint64_t i = 0; i < count; i++)
            sc_kernels_add(conn->kernels, total, scratch->sums + i * want->row_total,
                           want->row_total);
    }
    return mass_rows(scratch, want, total);
}

void sc_plugin_select_head(struct sc_plugin_scratch *scratch, const struct sc_plugin_item *item,
                           uint64_t head, uint32_t *ret_rows)
{
    const struct sc_plugin_want *want = &item->want;
    if (head % SC_PLUGIN_HEADS_TOGETHER == 0)
        (void)heads_sums(scratch, item, head);
    const float *sums = scratch->sums + head % SC_PLUGIN_HEADS_TOGETHER * want->row_total;
    sc_kernels_topk(scratch->conn->kernels, ranked_scores(scratch, want, sums), want->row_total,
                    item->row_count, ret_rows);
}
