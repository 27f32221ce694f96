/* The baseline's table: which policy answers what, that samples do not repeat and follow what is
 * asked, and what it says where it keeps no averages. */
#include "plugin/baselines/baselines.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define ROWS  1000u
#define WORDS ((ROWS + 63) / 64)

static const struct sc_store_range RANGES[] = {{1, 0, ROWS}};

static struct sc_baseline_ask ask_of(const uint32_t *tokens, uint64_t from, uint64_t end,
                                     uint32_t layer)
{
    return (struct sc_baseline_ask){.tokens = tokens,
                                    .from_token = from,
                                    .token_count = end,
                                    .ranges = RANGES,
                                    .range_count = 1,
                                    .layer = layer};
}

static uint32_t prediction(const struct sc_baseline *baseline, struct sc_baseline_ask ask,
                           uint64_t k, uint32_t *ret_rows)
{
    uint64_t bits[WORDS];
    float scores[ROWS];
    ask.k = k;
    ask.ret_rows = ret_rows;
    ask.bits = bits;
    return sc_baseline_predict(baseline, &ask, scores);
}

static void a_random_prediction_repeats_no_row_and_follows_what_is_asked(void **state)
{
    (void)state;
    struct sc_config config = {.predictor = SC_PREDICTOR_RANDOM};
    struct sc_baseline baseline = {.config = &config}; /* no averages are kept */
    uint64_t seen[WORDS] = {0};
    uint32_t rows[ROWS], again[ROWS], other[ROWS];
    struct sc_baseline_ask ask = ask_of(NULL, 7, 7 + ROWS, 1), above = ask;
    above.layer = 2;
    assert_int_equal(prediction(&baseline, ask, ROWS, rows), SC_BASELINE_ORDER);
    for (uint32_t i = 0; i < ROWS; i++) {
        assert_true(rows[i] < ROWS && (seen[rows[i] / 64] >> (rows[i] % 64) & 1) == 0);
        seen[rows[i] / 64] |= UINT64_C(1) << (rows[i] % 64);
    }
    (void)prediction(&baseline, ask, 100, rows);
    (void)prediction(&baseline, ask, 100, again);
    (void)prediction(&baseline, above, 100, other);
    assert_memory_equal(rows, again, 100 * sizeof(*rows));
    assert_memory_not_equal(rows, other, 100 * sizeof(*rows));
}

static void sink_takes_first_and_last_rows_in_turn(void **state)
{
    (void)state;
    struct sc_config config = {.predictor = SC_PREDICTOR_SINK};
    struct sc_baseline baseline = {.config = &config};
    struct sc_baseline_ask ask = ask_of(NULL, 3, 8, 0);
    uint32_t rows[5];
    const uint32_t expected[5] = {0, 4, 1, 3, 2};
    assert_int_equal(prediction(&baseline, ask, 5, rows), SC_BASELINE_ORDER);
    assert_memory_equal(rows, expected, sizeof(rows));
}

/* Granules count from the prompt's start, and scores follow the match and the layer. */
static void random_scores_are_one_a_granule(void **state)
{
    (void)state;
    struct sc_config config = {.unit = 16};
    struct sc_baseline baseline = {.config = &config};
    uint32_t tokens[40];
    float scores[30], again[30];
    for (uint32_t i = 0; i < 40; i++)
        tokens[i] = i * i;
    struct sc_baseline_ask ask = ask_of(tokens, 10, 40, 3);
    assert_int_equal(sc_baseline_score(&baseline, &ask, SPEC_METRIC_RANDOM, scores),
                     SC_BASELINE_ORDER);
    for (uint32_t row = 1; row < 30; row++)
        assert_int_equal(scores[row] == scores[row - 1], (10 + row) % 16 != 0);
    (void)sc_baseline_score(&baseline, &ask, SPEC_METRIC_RANDOM, again);
    assert_memory_equal(scores, again, sizeof(scores));
    ask.layer = 4;
    (void)sc_baseline_score(&baseline, &ask, SPEC_METRIC_RANDOM, again);
    assert_memory_not_equal(scores, again, sizeof(scores));
    ask.layer = 3;
    tokens[0] = 1;
    (void)sc_baseline_score(&baseline, &ask, SPEC_METRIC_RANDOM, again);
    assert_memory_not_equal(scores, again, sizeof(scores));
}

static void the_table_says_who_answers(void **state)
{
    (void)state;
    for (uint32_t predictor = SC_PREDICTOR_NONE; predictor <= SC_PREDICTOR_HINT; predictor++) {
        struct sc_config config = {.predictor = predictor};
        struct sc_baseline baseline = {.config = &config};
        struct sc_baseline_ask ask = ask_of(NULL, 0, ROWS, 0);
        bool knows = predictor == SC_PREDICTOR_RANDOM || predictor == SC_PREDICTOR_SINK;
        uint32_t rows[8];
        assert_int_equal(prediction(&baseline, ask, 8, rows),
                         knows ? SC_BASELINE_ORDER : SC_BASELINE_NOTHING);
        assert_int_equal(sc_baseline_follows(&baseline), predictor == SC_PREDICTOR_LAYER);
    }
    for (uint32_t identify = SC_IDENTIFY_PROBES; identify <= SC_IDENTIFY_QUANTISED; identify++)
        for (uint32_t metric = SPEC_METRIC_H2O; metric <= SPEC_METRIC_RANDOM; metric++) {
            struct sc_config config = {.identify = identify};
            struct sc_baseline baseline = {.config = &config};
            bool is_any = metric == SPEC_METRIC_RANDOM;
            assert_int_equal(sc_baseline_is_blind(&config, metric),
                             is_any || identify == SC_IDENTIFY_STATIC);
            assert_int_equal(sc_baseline_can_score(&baseline, metric),
                             is_any); /* there are no averages */
        }
}

static void a_baseline_without_averages_knows_nothing(void **state)
{
    (void)state;
    struct sc_config config = {.identify = SC_IDENTIFY_STATIC};
    struct sc_baseline baseline = {.config = &config};
    struct sc_baseline_ask ask = ask_of(NULL, 0, ROWS, 0);
    float scores[ROWS] = {1};
    assert_int_equal(sc_baseline_score(&baseline, &ask, SPEC_METRIC_H2O, scores),
                     SC_BASELINE_NOTHING);
    sc_baseline_averages_load(baseline.averages, &(struct sc_store_average){1, 1, ROWS, NULL});
    assert_false(sc_baseline_write(&baseline));
    sc_baseline_write_all(&baseline);
    sc_baseline_averages_close(baseline.averages);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_random_prediction_repeats_no_row_and_follows_what_is_asked),
        cmocka_unit_test(sink_takes_first_and_last_rows_in_turn),
        cmocka_unit_test(random_scores_are_one_a_granule),
        cmocka_unit_test(the_table_says_who_answers),
        cmocka_unit_test(a_baseline_without_averages_knows_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
