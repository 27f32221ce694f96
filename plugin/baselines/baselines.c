/* baselines: the table of policies, and writes of averages. Contract: baselines.h. */
#include "plugin/baselines/baselines.h"
#include "hashing/digest.h"
#include "plugin/baselines/average.h"

#include <string.h>

#define WORD_BITS 64u

static uint64_t row_count(const struct sc_baseline_ask *ask)
{
    return ask->token_count - ask->from_token;
}

/* ---- Policies ------------------------------------------------------------------------------- */

static enum sc_baseline_answer random_score(const struct sc_baseline *baseline,
                                            const struct sc_baseline_ask *ask, float *ret_scores)
{
    uint64_t seed =
        sc_hash_bytes64(ask->tokens, ask->token_count * sizeof(*ask->tokens), ask->layer);
    for (uint64_t row = 0; row < row_count(ask); row++) {
        uint64_t granule = (ask->from_token + row) / baseline->config->unit;
        uint64_t word = sc_hash_bytes64(&granule, sizeof(granule), seed);
        ret_scores[row] = (float)(word >> 40); /* 24 bits are exact in a float */
    }
    return SC_BASELINE_ORDER;
}

/* splitmix64 */
static uint64_t bits_mixed(uint64_t x)
{
    x += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

/* Floyd's sample: row rows - k + i, unless the draw at or below it is new. */
static enum sc_baseline_answer random_prediction(const struct sc_baseline *baseline,
                                                 const struct sc_baseline_ask *ask,
                                                 float *ret_scores)
{
    (void)baseline, (void)ret_scores;
    uint64_t rows = row_count(ask), *bits = ask->bits;
    uint64_t seed = ask->token_count + ask->layer * 977u;
    memset(bits, 0, (rows + WORD_BITS - 1) / WORD_BITS * sizeof(*bits));
    for (uint64_t i = 0; i < ask->k; i++) {
        uint64_t last = rows - ask->k + i, row = bits_mixed(seed + i) % (last + 1);
        if ((bits[row / WORD_BITS] >> (row % WORD_BITS) & 1) != 0)
            row = last;
        bits[row / WORD_BITS] |= UINT64_C(1) << (row % WORD_BITS);
        ask->ret_rows[i] = (uint32_t)row;
    }
    return SC_BASELINE_ORDER;
}

static enum sc_baseline_answer sink_prediction(const struct sc_baseline *baseline,
                                               const struct sc_baseline_ask *ask, float *ret_scores)
{
    (void)baseline, (void)ret_scores;
    for (uint64_t i = 0; i < ask->k; i++)
        ask->ret_rows[i] = (uint32_t)(i % 2 == 0 ? i / 2 : row_count(ask) - 1 - i / 2);
    return SC_BASELINE_ORDER;
}

/* Only a selection waits for writers of averages. */
static enum sc_baseline_answer averages_read(const struct sc_baseline *baseline,
                                             const struct sc_baseline_ask *ask, float *ret_scores)
{
    uint64_t known = sc_baseline_averages_scores(baseline->averages, ask->ranges, ask->range_count,
                                                 ask->layer, ask->ret_rows == NULL, ret_scores);
    return known > 0 ? SC_BASELINE_IMPORTANCE : SC_BASELINE_NOTHING;
}

struct policy {
    enum sc_baseline_answer (*score)(const struct sc_baseline *baseline,
                                     const struct sc_baseline_ask *ask, float *ret_scores);
    enum sc_baseline_answer (*prediction)(const struct sc_baseline *baseline,
                                          const struct sc_baseline_ask *ask, float *ret_scores);
    bool follows;
};

static const struct policy POLICIES[] = {
    [SC_PREDICTOR_RANDOM] = {.score = random_score, .prediction = random_prediction},
    [SC_PREDICTOR_SINK] = {.prediction = sink_prediction},
    [SC_PREDICTOR_STATIC] = {.score = averages_read, .prediction = averages_read},
    [SC_PREDICTOR_LAYER] = {.follows = true},
    [SC_PREDICTOR_HINT] = {0},
};

bool sc_baseline_can_score(const struct sc_baseline *baseline, uint32_t metric)
{
    return sc_baseline_is_blind(baseline->config, metric) &&
           (!sc_baseline_weighs(metric) || baseline->averages != NULL);
}

enum sc_baseline_answer sc_baseline_score(const struct sc_baseline *baseline,
                                          const struct sc_baseline_ask *ask, uint32_t metric,
                                          float *ret_scores)
{
    uint32_t policy = sc_baseline_weighs(metric) ? SC_PREDICTOR_STATIC : SC_PREDICTOR_RANDOM;
    return POLICIES[policy].score(baseline, ask, ret_scores);
}

enum sc_baseline_answer sc_baseline_predict(const struct sc_baseline *baseline,
                                            const struct sc_baseline_ask *ask, float *ret_scores)
{
    const struct policy *policy = &POLICIES[baseline->config->predictor];
    return policy->prediction != NULL ? policy->prediction(baseline, ask, ret_scores)
                                      : SC_BASELINE_NOTHING;
}

bool sc_baseline_follows(const struct sc_baseline *baseline)
{
    return POLICIES[baseline->config->predictor].follows;
}

/* ---- Averages ------------------------------------------------------------------------------- */

uint64_t sc_baseline_order_scores(const struct sc_baseline *baseline,
                                  const struct sc_store_range *ranges, uint64_t range_count,
                                  uint32_t layer, float *ret_scores)
{
    return sc_baseline_averages_touched(baseline->averages, ranges, range_count, layer,
                                        SC_BASELINE_ORDER_REQUESTS, ret_scores);
}

uint64_t sc_baseline_order_requests(const struct sc_baseline *baseline,
                                    const struct sc_store_range *ranges, uint64_t range_count)
{
    return sc_baseline_averages_requests(baseline->averages, ranges, range_count);
}

static uint32_t rows_of(void *user, uint64_t piece)
{
    const struct sc_baseline *baseline = user;
    return sc_store_piece_rows(*baseline->store, piece);
}

spec_status sc_baseline_open(struct sc_baseline *baseline, struct sc_alloc *alloc,
                             uint32_t layer_count, struct spec_error *reterr)
{
    struct sc_baseline_averages_params params = {.alloc = alloc,
                                                 .layer_count = layer_count,
                                                 .rows_max = baseline->config->chunk_tokens,
                                                 .bytes_max = baseline->config->average_bytes,
                                                 .rows_of = rows_of,
                                                 .user = baseline};
    return sc_baseline_averages_open(&params, &baseline->averages, reterr);
}

static spec_status averages_put(void *user, const struct sc_store_average *averages, uint64_t count)
{
    struct sc_baseline *baseline = user;
    struct spec_error error = {.struct_size = sizeof(error)};
    spec_status status = sc_store_average_put(*baseline->store, averages, count, &error);
    if (status != SPEC_OK && status != baseline->write_status) /* logged once */
        SC_LOG(baseline->log, SPEC_LOG_WARN, "averages of %" PRIu64 " pieces are not written: %s",
               count, error.text);
    baseline->write_status = status;
    return status;
}

bool sc_baseline_write(struct sc_baseline *baseline)
{
    if (baseline->on_write != NULL)
        baseline->on_write(baseline->user);
    return sc_baseline_averages_flush(baseline->averages, false, averages_put, baseline);
}

void sc_baseline_write_all(struct sc_baseline *baseline)
{
    if (baseline->on_write != NULL)
        baseline->on_write(baseline->user);
    while (sc_baseline_averages_flush(baseline->averages, true, averages_put, baseline))
        ;
}
