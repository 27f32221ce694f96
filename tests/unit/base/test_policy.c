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

/* The i-th of SMALLS * LARGES uses. */
static struct sc_use use_at(uint64_t i, uint64_t turn)
{
    uint64_t a = i % LARGES, b = i / LARGES;
    return (struct sc_use){.stamp = large[a],
                           .heat = SC_HEAT_FIRST + large[(a + turn) % LARGES] % SC_HEAT_FIRST,
                           .bytes = large[(a + turn) % LARGES],
                           .cost_ns = large[(b + turn) % LARGES],
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
    assert_true(sc_rank_by(SC_POLICY_LRU, a) == sc_rank_lru(a));
}

static void lru_is_the_order_of_last_uses(void **state)
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

/* 0 is taken for 1. */
static uint64_t some(uint64_t x)
{
    return x > 0 ? x : 1;
}

static void compare_value(const struct sc_use *a, const struct sc_use *b)
{
    if (a->heat <= b->heat && some(a->cost_ns) <= some(b->cost_ns) &&
        some(a->bytes) >= some(b->bytes))
        assert_true(sc_rank_value(a) <= sc_rank_value(b));
    if (a->heat <= b->heat && some(a->importance) <= some(b->importance))
        assert_true(sc_rank_score(a) <= sc_rank_score(b));
}

/* In units of a 2^-32nd: within so many thousandths. */
static void assert_near(uint64_t value, double expected, double thousandths)
{
    double off = (double)value / (double)SC_HEAT_ONE - expected;
    if (!(off * 1000 <= thousandths && off * 1000 >= -thousandths))
        fail_msg("%.6f, expected %.6f", (double)value / (double)SC_HEAT_ONE, expected);
}

static void more_heat_or_cost_and_fewer_bytes_never_lower_a_value(void **state)
{
    (void)state;
    for_each_pair(compare_value);
    struct sc_use one = {.heat = SC_HEAT_FIRST, .cost_ns = 3, .bytes = 4096};
    struct sc_use two = {.heat = SC_HEAT_FIRST, .cost_ns = 5, .bytes = 8192}; /* less a byte */
    assert_true(sc_rank_value(&two) < sc_rank_value(&one));
    two.cost_ns = 6; /* as much */
    assert_true(sc_rank_value(&two) == sc_rank_value(&one));
    two.heat += SC_HEAT_ONE / 100;
    assert_true(sc_rank_value(&two) > sc_rank_value(&one));
}

static void logarithms_are_exact_at_powers_and_grow_between(void **state)
{
    (void)state;
    uint64_t last = 0;
    assert_true(sc_log2(0) == 0);
    for (uint32_t power = 0; power < 64; power++) {
        uint64_t x = UINT64_C(1) << power;
        assert_true(sc_log2(x) == (uint64_t)power << 32);
        for (uint64_t part = 1; part < 64 && power > 6; part++) {
            uint64_t more = sc_log2(x + (x >> 6) * part);
            assert_true(more > last && more > (uint64_t)power << 32);
            last = more;
        }
    }
    assert_near(sc_log2(3), 1.5849625, 10);
    assert_near(sc_log2(1000000), 19.9315686, 10);
    assert_near(sc_log2(UINT64_MAX), 64, 10);
}

static void a_sum_is_that_of_the_uses(void **state)
{
    (void)state;
    const uint64_t at = SC_HEAT_FIRST;
    assert_true(sc_heat_sum(at, at) == at + SC_HEAT_ONE);
    assert_near(sc_heat_sum(at, at + SC_HEAT_ONE) - at, 1.5849625, 2);
    assert_near(sc_heat_sum(at, at + SC_HEAT_ONE / 2) - at, 1.2715533, 2);
    assert_true(sc_heat_sum(at, at + 40 * SC_HEAT_ONE) == at + 40 * SC_HEAT_ONE);
    assert_true(sc_heat_sum(0, UINT64_MAX) == UINT64_MAX);
    assert_true(sc_heat_sum(UINT64_MAX, UINT64_MAX) == UINT64_MAX);
    uint64_t last = 0, heat = 0;
    for (uint64_t b = 0; b < 64 * SC_HEAT_ONE; b += SC_HEAT_ONE / 7) {
        uint64_t sum = sc_heat_sum(at, at - 32 * SC_HEAT_ONE + b);
        assert_true(sum >= last && sum >= at && sum >= at - 32 * SC_HEAT_ONE + b);
        assert_true(sum == sc_heat_sum(at - 32 * SC_HEAT_ONE + b, at));
        last = sum;
    }
    for (uint32_t i = 0; i < 1000; i++) /* one a half-life: 2 in the end */
        heat = sc_heat_used(heat, at + i * SC_HEAT_ONE);
    assert_near(heat - at, 999 + 1, 4);
}

/* Where a rank is all that is kept: each use raises it, what is passed over has it at least, and
 * lfu counts in it. */
static void ranks_that_stand_alone_only_grow(void **state)
{
    (void)state;
    const enum sc_policy policies[] = {SC_POLICY_VALUE, SC_POLICY_LRU, SC_POLICY_LFU};
    for (uint32_t p = 0; p < 3; p++) {
        uint64_t now = SC_HEAT_FIRST, rank = 0, seed = 1;
        for (uint32_t i = 0; i < 5000; i++) {
            seed = seed * UINT64_C(6364136223846793005) + 1;
            now += 1 + (seed >> 40) * (policies[p] == SC_POLICY_VALUE ? 400 : 0);
            uint64_t next = seed >> 33 & 1 ? sc_rank_used(policies[p], rank, now)
                                           : sc_rank_passed(policies[p], rank, now);
            assert_true(next > rank || (next == rank && policies[p] != SC_POLICY_LRU));
            assert_true(sc_rank_raised(policies[p], next) > next);
            rank = next;
        }
    }
    uint64_t rank = 0;
    for (uint64_t i = 1; i <= 5; i++)
        rank = sc_rank_used(SC_POLICY_LFU, rank, 100 + i);
    assert_true(rank == (UINT64_C(5) << 44) + 105);
    assert_true(sc_rank_passed(SC_POLICY_LFU, rank, 200) == rank);
    assert_true(sc_rank_passed(SC_POLICY_LRU, 150, 200) == 200);
    rank = sc_rank_used(SC_POLICY_VALUE, 0, SC_HEAT_FIRST);
    assert_true(rank == SC_HEAT_FIRST);
    assert_true(sc_rank_passed(SC_POLICY_VALUE, rank, SC_HEAT_FIRST) == rank + SC_HEAT_ONE);
    assert_true(sc_rank_raised(SC_POLICY_VALUE, UINT64_MAX - 5) == UINT64_MAX - 5);
}

/* ---- IMPRESS, section 4.4.2: two chunks of two keys, room for one of them on the device -------
 */

struct chunk {
    struct sc_use use;
    uint64_t important_keys;
};

static void chunk_use(struct chunk *chunk, uint64_t now)
{
    chunk->use.stamp = now;
    chunk->use.count++;
    chunk->use.heat = sc_heat_used(chunk->use.heat, now);
    chunk->use.importance = sc_importance_touched(chunk->use.importance,
                                                  (uint32_t)(chunk->important_keys * 1000000 / 2));
}

/* A asks for chunk 1 in 3 of 5 requests, B for chunk 2 in 2: how many important keys have to go to
 * the device in 25 of them, when there were as many before? */
static uint64_t transfers(enum sc_policy policy, struct chunk *chunks)
{
    uint64_t keys = 0, on_device = 0;
    chunks[0] = (struct chunk){.important_keys = 1};
    chunks[1] = (struct chunk){.important_keys = 2};
    for (uint32_t request = 0; request < 50; request++) {
        uint64_t i = request % 5 % 2; /* 0 1 0 1 0 */
        chunk_use(&chunks[i], SC_HEAT_FIRST);
        if (request >= 25 && i != on_device)
            keys += chunks[i].important_keys;
        if (sc_rank_by(policy, &chunks[i].use) > sc_rank_by(policy, &chunks[on_device].use))
            on_device = i;
    }
    return keys;
}

static void the_papers_example_needs_15_transfers_for_20(void **state)
{
    (void)state;
    struct chunk chunks[2];
    assert_int_equal(transfers(SC_POLICY_LFU, chunks), 20);
    assert_int_equal(chunks[0].use.count, 30);
    assert_int_equal(chunks[1].use.count, 20);
    assert_int_equal(transfers(SC_POLICY_SCORE, chunks), 15);
    /* 1.5 x 50 % and 1 x 100 %: log2(.75) apart */
    assert_near(sc_rank_score(&chunks[1].use) - sc_rank_score(&chunks[0].use), 0.4150375, 30);
    struct sc_use a = {.heat = SC_HEAT_FIRST + 2512395108u, .importance = 500000}; /* log2(1.5) */
    struct sc_use b = {.heat = SC_HEAT_FIRST, .importance = 1000000};
    const uint64_t one = SC_HEAT_FIRST + sc_log2(1000000); /* a use of what is wanted whole */
    assert_true(sc_rank_score(&b) == one);
    assert_near(one - sc_rank_score(&a), 0.4150375, 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lru_is_the_order_of_last_uses),
        cmocka_unit_test(more_uses_outweigh_any_last_use_and_later_ones_part_equals),
        cmocka_unit_test(more_heat_or_cost_and_fewer_bytes_never_lower_a_value),
        cmocka_unit_test(logarithms_are_exact_at_powers_and_grow_between),
        cmocka_unit_test(a_sum_is_that_of_the_uses),
        cmocka_unit_test(ranks_that_stand_alone_only_grow),
        cmocka_unit_test(the_papers_example_needs_15_transfers_for_20),
    };
    return cmocka_run_group_tests_name("base policy", tests, NULL, NULL);
}
