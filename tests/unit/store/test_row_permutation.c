/* The order of rows (store/rows/row_permutation.h): IMPRESS' example, ties, spans, permutations; a
 * random one beside a sort that is obvious.
 *
 * Threads: one. */
#include "store/rows/row_permutation.h"
#include "tests/unit/cases.h"

/* Section 4.4.1: t0 and t3 are important; s0' = [t0, t3, t1, t2], m0 = [0, 2, 3, 1]. */
static void the_papers_example(void **state)
{
    (void)state;
    const float scores[4] = {.4f, .1f, .1f, .4f};
    const uint16_t mapping[4] = {0, 2, 3, 1}, stored[4] = {0, 3, 1, 2};
    uint16_t rows[4], slots[4];
    sc_store_permutation_make(scores, 4, 4, rows, slots);
    assert_memory_equal(rows, stored, sizeof(stored));
    assert_memory_equal(slots, mapping, sizeof(mapping));
    for (uint32_t i = 0; i < 4; i++) /* s'[m] = s */
        assert_int_equal(stored[slots[i]], i);
}

/* Section 4.4.1, p0 and p1: three nodes, each ordered by itself. */
static void nodes_are_ordered_apart(void **state)
{
    (void)state;
    const float scores[12] = {1, 0, 0, 1, 1, 0, 0, 0, 0, 1, 0, 0}; /* t0, t3, t4 and t9 */
    const uint16_t mapping[12] = {0, 2, 3, 1, 4, 5, 6, 7, 9, 8, 10, 11};
    uint16_t rows[12], slots[12];
    sc_store_permutation_make(scores, 12, 4, rows, slots);
    assert_memory_equal(slots, mapping, sizeof(mapping));
}

static void equal_rows_and_unknown_ones_keep_their_order(void **state)
{
    (void)state;
    const float scores[7] = {0, .5f, 0, .5f, .25f, 0, .5f};
    const uint16_t stored[7] = {1, 3, 6, 4, 0, 2, 5};
    uint16_t rows[7], slots[7];
    sc_store_permutation_make(scores, 7, 16384, rows, slots);
    assert_memory_equal(rows, stored, sizeof(stored));
}

static uint32_t next(uint32_t *random)
{
    *random = *random * 1664525u + 1013904223u;
    return *random >> 8;
}

static void any_scores_give_what_a_plain_sort_gives(void **state)
{
    (void)state;
    static float scores[5000];
    static uint16_t rows[5000], slots[5000];
    static uint64_t seen[5000 / 64 + 1];
    uint32_t random = 5;
    for (uint32_t round = 0; round < 40; round++) {
        uint64_t count = 1 + next(&random) % 700, span = 1 + next(&random) % 300;
        for (uint64_t i = 0; i < count; i++)
            scores[i] = (float)(next(&random) % 50);
        sc_store_permutation_make(scores, count, span, rows, slots);
        assert_true(sc_store_permutation_is(slots, count, seen));
        for (uint64_t i = 0; i < count; i++) {
            uint64_t first = i - i % span, end = first + span < count ? first + span : count;
            uint64_t slot = first;
            for (uint64_t j = first; j < end; j++)
                slot += scores[j] > scores[i] || (scores[j] == scores[i] && j < i);
            assert_int_equal(slots[i], slot);
        }
    }
}

static void what_is_no_permutation_is_found(void **state)
{
    (void)state;
    uint64_t seen[2];
    uint16_t slots[70];
    for (uint16_t i = 0; i < 70; i++)
        slots[i] = (uint16_t)(69 - i);
    assert_true(sc_store_permutation_is(slots, 70, seen));
    slots[69] = 69; /* twice */
    assert_false(sc_store_permutation_is(slots, 70, seen));
    slots[69] = 70; /* outside */
    assert_false(sc_store_permutation_is(slots, 70, seen));
    slots[69] = 0;
    assert_false(sc_store_permutation_is(slots, 69, seen));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_papers_example),
        cmocka_unit_test(nodes_are_ordered_apart),
        cmocka_unit_test(equal_rows_and_unknown_ones_keep_their_order),
        cmocka_unit_test(any_scores_give_what_a_plain_sort_gives),
        cmocka_unit_test(what_is_no_permutation_is_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
