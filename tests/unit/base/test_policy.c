/* The orders of eviction, as functions: what must raise a rank, and what must not lower it.
 *
 * Holds: every pair of a grid of ends and middles is compared, as far as one use is no less than
 * the other in what the order reads. */
#include "base/policy.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>

#include <cmocka.h>

#define COUNT_MOST (UINT32_C(1) << 20)
#define STAMP_MOST (UINT64_C(1) << 44)

/* Of 32 bits, and of more. */
static const uint32_t small[] = {0,         1, 2, 4095, COUNT_MOST - 2, COUNT_MOST, UINT32_MAX - 1,
                                 UINT32_MAX};
static const uint64_t large[] = {0, 1, 4096, UINT32_MAX, STAMP_MOST - 1, STAMP_MOST, UINT64_MAX};
#define SMALLS (sizeof(small) / sizeof(small[0]))
#define LARGES (sizeof(large) / sizeof(large[0]))

/* The i-th of SMALLS * LARGES uses: `large` for its stamp and bytes, `small` for the other two. */
static struct sc_use use_at(uint64_t i, uint64_t turn)
{
    uint64_t a = i % LARGES, b = i / LARGES;
    return (struct sc_use){.stamp = large[a],
                           .bytes = large[(a + turn) % LARGES],
                           .count = small[b],
                           .importance = small[(b + turn) % SMALLS]};
}

static void for_each_pair(void (*compare)(const struct sc_use *a, const struct sc_use *b))
{
    for (uint64_t turn = 0; turn < SMALLS * LARGES; turn++) {
        for (uint64_t i = 0; i < SMALLS * LARGES; i++) {
            for (uint64_t j = 0; j < SMALLS * LARGES; j++) {
                struct sc_use a = use_at(i, turn), b = use_at(j, turn);
                compare(&a, &b);
            }
        }
    }
}

static void compare_lru(const struct sc_use *a, const struct sc_use *b)
{
    assert_int_equal(sc_rank_lru(a) < sc_rank_lru(b), a->stamp < b->stamp);
    assert_true(sc_rank(a) == sc_rank_lru(a));
}

static void the_order_that_holds_is_that_of_last_uses(void **state)
{
    (void)state;
    for_each_pair(compare_lru);
}

static void compare_lfu(const struct sc_use *a, const struct sc_use *b)
{
    uint64_t rank_a = sc_rank_lfu(a), rank_b = sc_rank_lfu(b);
    if (a->count < b->count && a->count + 1 < COUNT_MOST) /* beyond, more do not matter */
        assert_true(rank_a < rank_b);
    if (a->count == b->count && a->stamp < b->stamp && b->stamp < STAMP_MOST)
        assert_true(rank_a < rank_b);
    if (a->count <= b->count && a->stamp <= b->stamp)
        assert_true(rank_a <= rank_b);
}

static void more_uses_outweigh_any_last_use_and_later_ones_part_equals(void **state)
{
    (void)state;
    for_each_pair(compare_lfu);
    struct sc_use often = {.count = 2, .stamp = 0}, late = {.count = 1, .stamp = UINT64_MAX};
    assert_true(sc_rank_lfu(&late) < sc_rank_lfu(&often));
}

static void compare_value(const struct sc_use *a, const struct sc_use *b)
{
    bool b_in_use = b->count == UINT32_MAX;
    if (a->importance <= b->importance && a->bytes >= b->bytes && a->count <= b->count)
        assert_true(sc_rank_value(a) <= sc_rank_value(b));
    if (b_in_use)
        assert_true(sc_rank_value(b) == UINT64_MAX);
}

static void more_worth_or_fewer_bytes_never_lower_a_value(void **state)
{
    (void)state;
    for_each_pair(compare_value);
    struct sc_use one = {.importance = 3, .bytes = 4096};
    struct sc_use two = {.importance = 5, .bytes = 8192}; /* less a byte */
    assert_true(sc_rank_value(&two) < sc_rank_value(&one));
    two.importance = 6; /* as much */
    assert_true(sc_rank_value(&two) == sc_rank_value(&one));
    one.bytes = 0; /* nothing divides by it */
    assert_true(sc_rank_value(&one) == UINT64_C(3) << 32);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_order_that_holds_is_that_of_last_uses),
        cmocka_unit_test(more_uses_outweigh_any_last_use_and_later_ones_part_equals),
        cmocka_unit_test(more_worth_or_fewer_bytes_never_lower_a_value),
    };
    return cmocka_run_group_tests_name("base policy", tests, NULL, NULL);
}
