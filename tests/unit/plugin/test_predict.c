/* Guesses: deciles ascend and keep their rows, trust follows what was right and recovers, the
 * window bounds bytes. */
#include "plugin/select/accuracy.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define ROWS  1000u
#define WORDS ((ROWS + 63) / 64)

static void all_zero(const uint64_t *bits)
{
    for (uint32_t w = 0; w < WORDS; w++)
        assert_true(bits[w] == 0);
}

static void deciles_ascend_and_keep_their_rows(void **state)
{
    (void)state;
    uint64_t bits[WORDS] = {0};
    for (uint64_t count = 0; count <= ROWS; count += count < 25 ? 1 : 97) {
        uint32_t rows[ROWS], before[ROWS];
        for (uint64_t i = 0; i < count; i++)
            rows[i] = (uint32_t)((count + i * 7919) % ROWS); /* a prime: none comes twice */
        memcpy(before, rows, sizeof(rows));
        sc_plugin_ranking_order(rows, count, bits);
        all_zero(bits);
        uint64_t i = 0;
        for (uint32_t d = 0; d < SC_PLUGIN_DECILES; d++) {
            uint64_t first = i, sum_before = 0, sum = 0;
            for (; i < sc_plugin_decile_end(count, d); i++) {
                sum_before += (uint64_t)before[i] * before[i] + 1;
                sum += (uint64_t)rows[i] * rows[i] + 1;
                assert_true(i == first || rows[i - 1] < rows[i]);
            }
            assert_int_equal(sum, sum_before);
        }
        assert_int_equal(i, count);
    }
}

/* The first `right` rows of 0 .. 99 are wanted. */
static void learn(struct sc_plugin_accuracy *accuracy, uint32_t right)
{
    uint32_t rows[100];
    uint64_t wanted[2] = {0};
    for (uint32_t i = 0; i < 100; i++) {
        rows[i] = i;
        if (i < right)
            wanted[i / 64] |= UINT64_C(1) << (i % 64);
    }
    sc_plugin_accuracy_learn(accuracy, rows, 100, wanted);
}

static void accuracy_reads_down_to_where_predictions_are_wrong_too_often(void **state)
{
    (void)state;
    struct sc_plugin_accuracy own = {0}, all = {0};
    assert_int_equal(sc_plugin_accuracy_rows(&own, &all, 100, 750000), 0); /* nothing is known */
    learn(&all, 30);
    assert_int_equal(sc_plugin_accuracy_rows(&own, &all, 100, 750000), 30);
    assert_int_equal(sc_plugin_accuracy_rows(&own, &all, 1000, 750000), 300);
    learn(&own, 58); /* the layer's own word counts: the sixth decile is right 8 times of 10 */
    assert_int_equal(sc_plugin_accuracy_rows(&own, &all, 100, 750000), 60);
    assert_int_equal(sc_plugin_accuracy_rows(&own, &all, 100, 810000), 50);
    assert_int_equal(sc_plugin_accuracy_rows(&own, &all, 100, 0), 100);
}

static void one_decile_that_is_wrong_does_not_end_what_is_right_behind_it(void **state)
{
    (void)state;
    struct sc_plugin_accuracy own = {.count = 1};
    for (uint32_t d = 0; d < SC_PLUGIN_DECILES; d++)
        own.right_ppm[d] = d == 4 ? 700000 : 800000;
    assert_int_equal(sc_plugin_accuracy_rows(&own, &own, 100, 750000), 100);
    own.right_ppm[4] = 450000; /* five that are right .05 more often than asked do not pay for it */
    assert_int_equal(sc_plugin_accuracy_rows(&own, &own, 100, 750000), 40);
    own.right_ppm[0] = 0; /* and nothing pays for a bad beginning */
    assert_int_equal(sc_plugin_accuracy_rows(&own, &own, 100, 750000), 0);
}

static void accuracy_that_fell_to_nothing_recovers_without_a_row_being_read(void **state)
{
    (void)state;
    struct sc_plugin_accuracy own = {0};
    for (uint32_t i = 0; i < 1000; i++)
        learn(&own, 0);
    assert_int_equal(sc_plugin_accuracy_rows(&own, &own, 100, 750000), 0);
    uint32_t turns = 0;
    for (; sc_plugin_accuracy_rows(&own, &own, 100, 750000) < 90; turns++)
        learn(&own, 95);
    assert_in_range(turns, 5, 16); /* 1 - (7/8)^11 > .75 */
    for (uint32_t i = 0; i < 100; i++)
        learn(&own, 100);
    assert_int_equal(sc_plugin_accuracy_rows(&own, &own, 100, 990000), 100);
}

static void a_ranking_of_no_use_is_wrong_all_over(void **state)
{
    (void)state;
    struct sc_plugin_accuracy own = {0};
    uint32_t rows[100];
    for (uint32_t i = 0; i < 100; i++)
        rows[i] = i;
    learn(&own, 100);
    assert_int_equal(sc_plugin_accuracy_rows(&own, &own, 100, 750000), 100);
    for (uint32_t i = 0; i < 4; i++)
        sc_plugin_accuracy_learn(&own, rows, 100, NULL);
    assert_int_equal(sc_plugin_accuracy_rows(&own, &own, 100, 750000), 0);
    for (uint32_t d = 0; d < SC_PLUGIN_DECILES; d++)
        assert_in_range(own.right_ppm[d], 199990, 200010); /* one of five */
}

static void layers_are_read_whole_where_that_was_right_often_enough(void **state)
{
    (void)state;
    struct sc_plugin_accuracy own = {0}, all = {0};
    assert_false(sc_plugin_accuracy_parts(&own));
    assert_false(sc_plugin_accuracy_whole(&own, &all, 0)); /* nothing is known */
    sc_plugin_accuracy_whole_learn(&own, false, 1000000);
    assert_true(sc_plugin_accuracy_parts(&own));
    assert_false(sc_plugin_accuracy_whole(&own, &all, 0)); /* not of what was foreseen */
    sc_plugin_accuracy_whole_learn(&all, true, 1000000);
    assert_true(sc_plugin_accuracy_whole(&own, &all, 1000000));
    sc_plugin_accuracy_whole_learn(&own, true,
                                   250000); /* foreseen, and then a quarter was wanted */
    assert_int_equal(own.whole_ppm, 250000);
    assert_false(sc_plugin_accuracy_whole(&own, &all, 750000));
    assert_int_equal(own.fallback.ppm, 500000);
    assert_false(sc_plugin_accuracy_parts(&own));
    uint32_t turns = 0;
    for (; !sc_plugin_accuracy_whole(&own, &all, 750000); turns++)
        sc_plugin_accuracy_whole_learn(&own, true, 1000000);
    assert_in_range(turns, 2, 10);
    assert_true(sc_plugin_accuracy_parts(&own));
}

static void too_few_rows_teach_nothing(void **state)
{
    (void)state;
    struct sc_plugin_accuracy own = {0};
    const uint32_t rows[9] = {0, 1, 2, 3, 4, 5, 6, 7, 8};
    const uint64_t wanted[1] = {0x1ff};
    sc_plugin_accuracy_learn(&own, rows, 9, wanted);
    assert_int_equal(own.count, 0);
}

static void the_window_bounds_bytes(void **state)
{
    (void)state;
    struct sc_plugin_window window = {0};
    assert_int_equal(sc_plugin_window_bytes(&window, 1000000000), 0);
    sc_plugin_window_learn(&window, 2000000); /* the first counts whole */
    assert_int_equal(sc_plugin_window_bytes(&window, 1000000000), 2000000);
    for (uint32_t i = 0; i < 200; i++)
        sc_plugin_window_learn(&window, 0);
    assert_true(sc_plugin_window_bytes(&window, 1000000000) < 16);
    sc_plugin_window_learn(&window, UINT64_MAX / 2);
    assert_true(sc_plugin_window_bytes(&window, UINT64_MAX) <= UINT64_C(1) << 62);
}

/* p * saved > (1 - p) * what others wait, saved being what makes that min_ppm for one other. */
static void what_others_wait_says_how_right_a_prediction_has_to_be(void **state)
{
    (void)state;
    struct sc_plugin_contention contention = {0};
    assert_int_equal(sc_plugin_contention_least(&contention, 750000), 1); /* nobody is known of */
    assert_int_equal(sc_plugin_contention_least(&contention, 0), 0);
    assert_int_equal(sc_plugin_contention_least(&contention, 1000000), 1);
    sc_plugin_contention_learn(&contention, 0, 8000000);
    assert_int_equal(sc_plugin_contention_least(&contention, 750000), 1);
    static const struct {
        double others;
        uint64_t min_ppm, least_ppm;
    } CASES[] = {{1, 750000, 750000},       {1. / 3, 750000, 500000},
                 {1. / 27, 750000, 100000}, {3, 750000, 900000},
                 {1, 500000, 500000},       {1, 1000000, 1000000},
                 {.1, 1000000, 1000000},    {9, 0, 0},
                 {1e9, 750000, 994818}};
    for (uint32_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        contention = (struct sc_plugin_contention){0};
        sc_plugin_contention_learn(&contention, (uint64_t)(CASES[i].others * 8e6), 8000000);
        uint64_t least = sc_plugin_contention_least(&contention, CASES[i].min_ppm);
        assert_in_range(least + 2, CASES[i].least_ppm, CASES[i].least_ppm + 4);
    }
    for (uint32_t n = 0; n < 64; n++) /* it was long ago */
        sc_plugin_contention_learn(&contention, 0, 8000000);
    assert_in_range(sc_plugin_contention_least(&contention, 750000), 1, 50000);
    sc_plugin_contention_learn(&contention, 5, 0); /* no window at all */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_others_wait_says_how_right_a_prediction_has_to_be),
        cmocka_unit_test(deciles_ascend_and_keep_their_rows),
        cmocka_unit_test(accuracy_reads_down_to_where_predictions_are_wrong_too_often),
        cmocka_unit_test(one_decile_that_is_wrong_does_not_end_what_is_right_behind_it),
        cmocka_unit_test(accuracy_that_fell_to_nothing_recovers_without_a_row_being_read),
        cmocka_unit_test(a_ranking_of_no_use_is_wrong_all_over),
        cmocka_unit_test(layers_are_read_whole_where_that_was_right_often_enough),
        cmocka_unit_test(too_few_rows_teach_nothing),
        cmocka_unit_test(the_window_bounds_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
