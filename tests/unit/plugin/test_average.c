/* Average importance: codes beside libm's, smoothing, the cap, what is written and when, and
 * that what was written comes back. */
#include "plugin/baselines/average.h"
#include "tests/unit/store/average_code.h"
#include "tests/unit/threads.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define LAYERS    3u
#define ROWS      8u
#define MANY_ROWS 43u /* of piece 63 */

struct fixture {
    struct sc_alloc alloc;
    struct sc_baseline_averages *averages;
    uint64_t dead_piece; /* rows_of says that it is not live */
    /* What put was given last, by piece. */
    uint32_t requests[64];
    uint16_t codes[64][LAYERS * ROWS];
    uint64_t put_count, batch_most;
    spec_status refuses; /* what put says; SPEC_OK: it takes them */
};

static uint32_t rows_of(void *user, uint64_t piece)
{
    const struct fixture *fx = user;
    return piece == fx->dead_piece ? 0 : piece == 7 ? 5 : piece == 63 ? MANY_ROWS : ROWS;
}

static spec_status put(void *user, const struct sc_store_average *averages, uint64_t count)
{
    struct fixture *fx = user;
    if (fx->refuses != SPEC_OK)
        return fx->refuses;
    for (uint64_t i = 0; i < count; i++) {
        uint64_t piece = averages[i].piece;
        assert_true(piece < 64 && averages[i].row_count == rows_of(fx, piece));
        fx->requests[piece] = averages[i].requests;
        memcpy(fx->codes[piece], averages[i].codes,
               LAYERS * averages[i].row_count * sizeof(uint16_t));
    }
    fx->put_count += count;
    fx->batch_most = count > fx->batch_most ? count : fx->batch_most;
    return SPEC_OK;
}

static void open_with_rows(struct fixture *fx, uint64_t bytes_max, uint32_t rows_max)
{
    memset(fx, 0, sizeof(*fx));
    sc_alloc_init(&fx->alloc);
    struct sc_baseline_averages_params params = {.alloc = &fx->alloc,
                                                 .layer_count = LAYERS,
                                                 .rows_max = rows_max,
                                                 .bytes_max = bytes_max,
                                                 .rows_of = rows_of,
                                                 .user = fx};
    assert_int_equal(sc_baseline_averages_open(&params, &fx->averages, NULL), SPEC_OK);
}

static void open_with(struct fixture *fx, uint64_t bytes_max)
{
    open_with_rows(fx, bytes_max, ROWS);
}

static bool sample_note(struct sc_baseline_averages *averages, const struct sc_store_range *ranges,
                        uint64_t count, uint32_t layer, const float *sums)
{
    return sc_baseline_averages_note(
        averages, &(struct sc_baseline_sample){ranges, count, layer, sums, NULL, NULL});
}

static void note(struct fixture *fx, uint64_t piece, uint32_t layer, const float *sums)
{
    struct sc_store_range range = {piece, 0, ROWS};
    (void)sample_note(fx->averages, &range, 1, layer, sums);
}

/* What a code says, and which one a share becomes (of a piece that nobody has noted before). */
static void codes_are_within_one_step_of_the_store_s(void **state)
{
    (void)state;
    struct fixture fx;
    uint64_t piece = 1000;
    open_with(&fx, 1 << 20);
    for (double share = 1; share > 0x1p-33; share *= 0.9973, piece++) {
        const struct sc_store_range noted = {piece, 0, ROWS}, told = {1, 0, ROWS};
        const float sums[ROWS] = {(float)share, 1 - (float)share};
        float scores[ROWS];
        note(&fx, piece, 0, sums);
        (void)sc_baseline_averages_scores(fx.averages, &noted, 1, 0, true, scores);
        int fast = average_code((double)scores[0]);
        int exact = average_code((double)sums[0]);
        assert_in_range(fast - exact + 1, 0, 2);
        const uint16_t codes[LAYERS * ROWS] = {(uint16_t)exact, 0, 65535};
        sc_baseline_averages_load(fx.averages, &(struct sc_store_average){1, 1, ROWS, codes});
        (void)sc_baseline_averages_scores(fx.averages, &told, 1, 0, true, scores);
        double back = (double)scores[0];
        if (!(fabs(back - average_share((uint16_t)exact)) <= back * 1e-5))
            fail_msg("code %d: share %.9g", exact, back);
        assert_true(scores[1] == 0 && scores[2] == 1);
    }
    sc_baseline_averages_close(fx.averages);
}

static void averages_follow_the_shares_of_requests(void **state)
{
    (void)state;
    struct fixture fx;
    open_with(&fx, 1 << 20);
    const struct sc_store_range ranges[] = {{1, 0, 8}, {7, 2, 3}}; /* the second one in part */
    float sums[11], scores[11];
    for (uint32_t j = 0; j < 11; j++)
        sums[j] = j == 3 ? 60 : 4; /* 100 in all */
    assert_int_equal(sc_baseline_averages_scores(fx.averages, ranges, 2, 1, true, scores), 0);
    for (uint32_t j = 0; j < 11; j++)
        assert_true(scores[j] == 0);
    assert_false(sample_note(fx.averages, ranges, 2, 1, sums));
    assert_int_equal(sc_baseline_averages_scores(fx.averages, ranges, 2, 1, true, scores), 11);
    for (uint32_t j = 0; j < 11; j++)
        assert_true(fabsf(scores[j] - sums[j] / 100) < 1e-3f * scores[j]);
    assert_int_equal(sc_baseline_averages_scores(fx.averages, ranges, 2, 0, true, scores), 0);
    for (uint32_t j = 0; j < 11; j++)
        sums[j] = 1;
    for (uint32_t n = 0; n < 60; n++)
        (void)sample_note(fx.averages, ranges, 2, 1, sums);
    (void)sc_baseline_averages_scores(fx.averages, ranges, 2, 1, true, scores);
    for (uint32_t j = 0; j < 11; j++)
        assert_true(fabsf(scores[j] - 1.0f / 11) < 0.01f / 11);
    sums[2] = NAN; /* no share: left out */
    (void)sample_note(fx.averages, ranges, 2, 1, sums);
    (void)sc_baseline_averages_scores(fx.averages, ranges, 2, 1, true, scores);
    assert_true(fabsf(scores[2] - 1.0f / 11) < 0.01f / 11);
    sc_baseline_averages_close(fx.averages);
}

/* More rows than move at once, and some: each as one row would; and sums that are next to none. */
static void every_row_moves_by_its_own_share(void **state)
{
    (void)state;
    struct fixture fx;
    float sums[3][MANY_ROWS], scores[MANY_ROWS], after[MANY_ROWS];
    double expected[MANY_ROWS] = {0};
    open_with_rows(&fx, 1 << 20, MANY_ROWS);
    for (uint32_t n = 0; n < 3; n++) {
        const struct sc_store_range range = {63, 0, MANY_ROWS};
        double total = 0;
        for (uint32_t j = 0; j < MANY_ROWS; j++)
            total += (double)(sums[n][j] = ldexpf((float)((j * 7 + n * 5) % 11), -(int)j / 3));
        (void)sample_note(fx.averages, &range, 1, 0, sums[n]);
        assert_int_equal(sc_baseline_averages_scores(fx.averages, &range, 1, 0, true, scores) > 0,
                         1);
        for (uint32_t j = 0; j < MANY_ROWS; j++) {
            expected[j] += ((double)sums[n][j] / total - expected[j]) / (n + 1);
            assert_true(fabs((double)scores[j] - expected[j]) <= 2e-3 * expected[j]);
        }
    }
    const struct sc_store_range range = {63, 0, MANY_ROWS};
    for (uint32_t j = 0; j < MANY_ROWS; j++)
        sums[0][j] = 1e-42f;
    (void)sample_note(fx.averages, &range, 1, 0, sums[0]);
    (void)sc_baseline_averages_scores(fx.averages, &range, 1, 0, true, after);
    assert_memory_equal(scores, after, sizeof(after));
    sc_baseline_averages_close(fx.averages);
}

static void dead_pieces_and_rows_that_a_piece_lacks_are_left_out(void **state)
{
    (void)state;
    struct fixture fx;
    open_with(&fx, 1 << 20);
    fx.dead_piece = 9;
    const struct sc_store_range ranges[] = {{9, 0, 8}, {7, 2, 4}, {1, 0, 1}};
    const float sums[13] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
    float scores[13];
    (void)sample_note(fx.averages, ranges, 3, 0, sums);
    assert_int_equal(sc_baseline_averages_scores(fx.averages, ranges, 3, 0, true, scores), 1);
    assert_true(scores[12] > 0);
    sc_baseline_averages_close(fx.averages);
    assert_int_equal(sc_baseline_averages_scores(NULL, ranges, 3, 0, true, scores), 0);
    assert_false(sample_note(NULL, ranges, 3, 0, sums));
    assert_false(sc_baseline_averages_flush(NULL, true, put, &fx));
}

static void the_cap_drops_what_was_not_used_for_longest(void **state)
{
    (void)state;
    struct fixture fx;
    open_with(&fx, 2200); /* the staging batch, and few slots */
    assert_non_null(fx.averages);
    const float sums[ROWS] = {1, 2, 3, 4, 5, 6, 7, 8};
    float scores[ROWS];
    for (uint64_t piece = 10; piece < 60; piece++) {
        note(&fx, piece, 0, sums);
        note(&fx, 1, 0, sums); /* used all the time: stays */
    }
    uint64_t known = 0;
    for (uint64_t piece = 10; piece < 60; piece++) {
        struct sc_store_range range = {piece, 0, ROWS};
        known += sc_baseline_averages_scores(fx.averages, &range, 1, 0, true, scores) > 0;
    }
    assert_in_range(known, 1, 20);
    struct sc_store_range kept = {1, 0, ROWS}, last = {59, 0, ROWS};
    assert_int_equal(sc_baseline_averages_scores(fx.averages, &kept, 1, 0, true, scores), ROWS);
    assert_int_equal(sc_baseline_averages_scores(fx.averages, &last, 1, 0, true, scores), ROWS);
    sc_baseline_averages_close(fx.averages);
    open_with(&fx, 100); /* not one piece fits */
    assert_null(fx.averages);
}

static void a_piece_is_written_a_fourth_more_requests_later_each_time(void **state)
{
    (void)state;
    struct fixture fx;
    open_with(&fx, 1 << 20);
    const float sums[ROWS] = {1, 2, 3, 4, 5, 6, 7, 8};
    const struct sc_store_range range = {3, 0, ROWS};
    uint32_t writes[40], write_count = 0;
    for (uint32_t n = 1; n <= 30; n++) {
        for (uint32_t layer = 0; layer + 1 < LAYERS; layer++)
            assert_false(sample_note(fx.averages, &range, 1, layer, sums));
        uint64_t before = fx.put_count;
        bool due = sample_note(fx.averages, &range, 1, LAYERS - 1, sums);
        while (sc_baseline_averages_flush(fx.averages, false, put, &fx))
            ;
        assert_true(due == (fx.put_count > before));
        if (due)
            writes[write_count++] = n;
    }
    const uint32_t expected[] = {1, 2, 3, 4, 5, 6, 7, 9, 11, 14, 18, 23, 30};
    assert_int_equal(write_count, sizeof(expected) / sizeof(expected[0]));
    assert_memory_equal(writes, expected, sizeof(expected));
    (void)sample_note(fx.averages, &range, 1, 0, sums); /* not due: 1 of 31 */
    while (sc_baseline_averages_flush(fx.averages, false, put, &fx))
        ;
    assert_int_equal(fx.requests[3], 30);
    while (sc_baseline_averages_flush(fx.averages, true, put, &fx))
        ;
    assert_int_equal(fx.requests[3], 31);
    uint64_t puts = fx.put_count;
    while (sc_baseline_averages_flush(fx.averages, true, put, &fx)) /* nothing has changed */
        ;
    assert_int_equal(fx.put_count, puts);
    sc_baseline_averages_close(fx.averages);
}

static void note_all(struct fixture *fx, uint64_t piece, const float *sums)
{
    for (uint32_t layer = 0; layer < LAYERS; layer++)
        note(fx, piece, layer, sums);
}

static void what_is_refused_is_written_later(void **state)
{
    (void)state;
    const float sums[ROWS] = {1, 2, 3, 4, 5, 6, 7, 8};
    for (int all = 0; all < 2; all++) {
        struct fixture fx;
        open_with(&fx, 1 << 20);
        for (uint64_t piece = 10; piece < 10 + 2 * SC_BASELINE_AVERAGES_BATCH; piece++)
            note_all(&fx, piece, sums);
        assert_false(sc_baseline_averages_refused(fx.averages));
        fx.refuses = SPEC_E_NO_SPACE;
        for (uint32_t turn = 0; turn < 3; turn++) { /* it does not go on, nor lose its place */
            assert_false(sc_baseline_averages_flush(fx.averages, all != 0, put, &fx));
            assert_true(sc_baseline_averages_refused(fx.averages));
            note_all(&fx, 10, sums);
        }
        fx.refuses = SPEC_OK;
        while (sc_baseline_averages_flush(fx.averages, false, put, &fx))
            ;
        assert_false(sc_baseline_averages_refused(fx.averages));
        assert_int_equal(fx.put_count, 2 * SC_BASELINE_AVERAGES_BATCH);
        assert_int_equal(fx.requests[10], 4);
        for (uint64_t piece = 11; piece < 10 + 2 * SC_BASELINE_AVERAGES_BATCH; piece++)
            assert_int_equal(fx.requests[piece], 1);
        note_all(&fx, 20, sums); /* what would be refused again is not tried again */
        fx.refuses = SPEC_E_INVALID;
        while (sc_baseline_averages_flush(fx.averages, true, put, &fx))
            ;
        assert_false(sc_baseline_averages_refused(fx.averages));
        fx.refuses = SPEC_OK;
        while (sc_baseline_averages_flush(fx.averages, true, put, &fx))
            ;
        assert_int_equal(fx.requests[20], 1);
        sc_baseline_averages_close(fx.averages);
    }
    assert_false(sc_baseline_averages_refused(NULL));
}

static void what_was_written_comes_back(void **state)
{
    (void)state;
    struct fixture fx, other;
    open_with(&fx, 1 << 20);
    float sums[ROWS], scores[ROWS], again[ROWS];
    for (uint64_t piece = 1; piece < 41; piece++)
        for (uint32_t layer = 0; layer < LAYERS; layer++) {
            for (uint32_t j = 0; j < ROWS; j++)
                sums[j] = (float)((piece * 31 + layer * 7 + j * j) % 23);
            struct sc_store_range range = {piece, 0, rows_of(&fx, piece)};
            (void)sample_note(fx.averages, &range, 1, layer, sums);
        }
    while (sc_baseline_averages_flush(fx.averages, true, put, &fx))
        ;
    assert_int_equal(fx.put_count, 40);
    assert_true(fx.batch_most <= SC_BASELINE_AVERAGES_BATCH);
    open_with(&other, 1 << 20);
    for (uint64_t piece = 1; piece < 41; piece++) {
        struct sc_store_average average = {piece, fx.requests[piece], rows_of(&fx, piece),
                                           fx.codes[piece]};
        sc_baseline_averages_load(other.averages, &average);
        sc_baseline_averages_load(other.averages, &average); /* the last counts */
    }
    for (uint64_t piece = 1; piece < 41; piece++)
        for (uint32_t layer = 0; layer < LAYERS; layer++) {
            struct sc_store_range range = {piece, 0, rows_of(&fx, piece)};
            uint64_t known =
                sc_baseline_averages_scores(fx.averages, &range, 1, layer, true, scores);
            assert_int_equal(
                sc_baseline_averages_scores(other.averages, &range, 1, layer, true, again), known);
            assert_memory_equal(scores, again, range.row_count * sizeof(float));
        }
    while (sc_baseline_averages_flush(other.averages, true, put, &other))
        ;
    assert_int_equal(other.put_count, 0); /* it is written already */
    const struct sc_store_average wrong = {50, 1, ROWS + 1, fx.codes[1]};
    sc_baseline_averages_load(other.averages, &wrong);
    sc_baseline_averages_close(fx.averages);
    sc_baseline_averages_close(other.averages);
}

static void *notes_run(void *user)
{
    struct fixture *fx = user;
    const float sums[ROWS] = {1, 2, 3, 4, 5, 6, 7, 8};
    float scores[ROWS];
    for (uint32_t n = 0; n < 2000; n++) {
        struct sc_store_range range = {1 + n % 60, 0, 4};
        (void)sample_note(fx->averages, &range, 1, n % LAYERS, sums);
        (void)sc_baseline_averages_scores(fx->averages, &range, 1, n % LAYERS, true, scores);
    }
    return NULL;
}

static void threads_share_the_table(void **state)
{
    (void)state;
    struct fixture fx;
    open_with(&fx, 3000);
    const struct threads threads = threads_begin(notes_run, &fx, 0, 3);
    for (uint32_t i = 0; i < 200; i++)
        (void)sc_baseline_averages_flush(fx.averages, false, put, &fx);
    threads_join(&threads);
    sc_baseline_averages_close(fx.averages);
}

/* A piece that is known, asked for all the time. */
static void *asks_run(void *user)
{
    struct fixture *fx = user;
    const struct sc_store_range range = {63, 0, MANY_ROWS};
    float scores[MANY_ROWS];
    uint64_t missed = 0;
    for (uint32_t n = 0; n < 50000; n++)
        missed +=
            sc_baseline_averages_scores(fx->averages, &range, 1, 0, true, scores) != MANY_ROWS;
    return (void *)(uintptr_t)missed;
}

/* Neither others that ask nor what comes from the log keeps a choice from what is known. */
static void what_is_known_is_told_to_all_at_once(void **state)
{
    (void)state;
    struct fixture fx;
    uint16_t codes[LAYERS * MANY_ROWS];
    open_with_rows(&fx, 1 << 20, MANY_ROWS);
    for (uint32_t j = 0; j < LAYERS * MANY_ROWS; j++)
        codes[j] = (uint16_t)(1000 + j);
    struct sc_store_average known = {63, 1, MANY_ROWS, codes}, other = {1, 1, ROWS, codes};
    sc_baseline_averages_load(fx.averages, &known);
    const struct threads threads = threads_begin(asks_run, &fx, 0, 3);
    for (uint32_t i = 0; i < 50000; i++)
        sc_baseline_averages_load(fx.averages, &other);
    threads_join(&threads);
    sc_baseline_averages_close(fx.averages);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(codes_are_within_one_step_of_the_store_s),
        cmocka_unit_test(averages_follow_the_shares_of_requests),
        cmocka_unit_test(every_row_moves_by_its_own_share),
        cmocka_unit_test(dead_pieces_and_rows_that_a_piece_lacks_are_left_out),
        cmocka_unit_test(the_cap_drops_what_was_not_used_for_longest),
        cmocka_unit_test(a_piece_is_written_a_fourth_more_requests_later_each_time),
        cmocka_unit_test(what_is_refused_is_written_later),
        cmocka_unit_test(what_was_written_comes_back),
        cmocka_unit_test(threads_share_the_table),
        cmocka_unit_test(what_is_known_is_told_to_all_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
