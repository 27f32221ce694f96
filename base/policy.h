/* policy: the eviction order of everything that is kept and may be dropped.
 *
 *   struct sc_use --sc_rank_by--> 64-bit rank; the lowest is evicted first. Owners have heaps
 *                                 (the index of leaves, the host tier of slabs)
 *
 *   heat      log2 of the use frequency; each use counts half after one half-life. It is kept as
 *             time + log2(weight at that time), so it changes only with uses, and unused things
 *             fall behind as the heat of others grows
 *
 *      use at t         t                       (weight 1)
 *      and at t + 1     t + 1 + log2(1 + 1/2)   (weight 3/2 by then)
 *      sum of two       sc_heat_sum             uses through either of two leaves
 *
 * The owner defines a half-life: usually until as much was used as it can keep (decision 0027).
 *
 * Invariants: a use never lowers a rank, except for score, whose share changes; a heap may notice
 * late.
 * Threads: any.
 * Tests: tests/unit/base/test_policy.c, tests/unit/store/test_host_tier.c,
 * tests/unit/hashing/test_radix_random.c, test_radix_policy.c */
#ifndef SC_BASE_POLICY_H
#define SC_BASE_POLICY_H

#include <stdint.h>

#define SC_HEAT_ONE (UINT64_C(1) << 32) /* a half-life, or a factor of two */
#define SC_HEAT_FIRST (UINT64_C(128) << 32) /* initial time; logarithms are subtracted from it */

/* Facts about a kept thing. Members that an order does not read may be 0. */
struct sc_use {
    uint64_t stamp;      /* order of its last use among all uses */
    uint64_t heat;       /* sc_heat_used at its last use */
    uint64_t bytes;      /* freed by dropping it */
    uint64_t cost_ns;    /* ns to get it again */
    uint32_t count;      /* uses */
    uint32_t importance; /* average share of its bytes that is used, in millionths:
                          * sc_importance_touched */
};

/* Returns log2(2^a + 2^b) in 32.32 bits: at least the larger one, at most SC_HEAT_ONE more. */
uint64_t sc_heat_sum(uint64_t a, uint64_t b);
/* Returns log2(x) in 32.32 bits, within 0.01; 0 counts as 1. */
uint64_t sc_log2(uint64_t x);

/* Returns the heat after one more use; heat 0: the first. */
static inline uint64_t sc_heat_used(uint64_t heat, uint64_t now)
{
    return heat == 0 ? now : sc_heat_sum(heat, now);
}

/* Least recently used. */
static inline uint64_t sc_rank_lru(const struct sc_use *use)
{
    return use->stamp;
}

/* Least often used, so new things first; of equals, least recently used. Counts saturate at a
 * million. */
static inline uint64_t sc_rank_lfu(const struct sc_use *use)
{
    const uint64_t count_max = (UINT64_C(1) << 20) - 1, stamp_max = (UINT64_C(1) << 44) - 1;
    uint64_t count = use->count < count_max ? use->count : count_max;
    return count << 44 | (use->stamp < stamp_max ? use->stamp : stamp_max);
}

/* Heat times the ns per byte to get it again. */
static inline uint64_t sc_rank_value(const struct sc_use *use)
{
    return use->heat + sc_log2(use->cost_ns) - sc_log2(use->bytes);
}

/* Heat times the important share (IMPRESS' score), for things that are read by rows. */
static inline uint64_t sc_rank_score(const struct sc_use *use)
{
    return use->heat + sc_log2(use->importance);
}

/* Returns the moving average of the important share; average 0: none yet. */
static inline uint32_t sc_importance_touched(uint32_t average, uint32_t share)
{
    uint64_t next = average == 0 ? share : ((uint64_t)average * 7 + share + 4) / 8;
    return next > 0 ? (uint32_t)next : 1;
}

/* The configuration offers value, lru and lfu. */
enum sc_policy { SC_POLICY_VALUE, SC_POLICY_LRU, SC_POLICY_LFU, SC_POLICY_SCORE };

static inline uint64_t sc_rank_by(enum sc_policy policy, const struct sc_use *use)
{
    return policy == SC_POLICY_LRU     ? sc_rank_lru(use)
           : policy == SC_POLICY_LFU   ? sc_rank_lfu(use)
           : policy == SC_POLICY_SCORE ? sc_rank_score(use)
                                       : sc_rank_value(use);
}

/* Returns the rank of a candidate. With value it counts half, because what is kept was also used
 * once more when it was read. It must exceed the rank of what it evicts. */
static inline uint64_t sc_rank_coming(enum sc_policy policy, const struct sc_use *use)
{
    return sc_rank_by(policy, use) - (policy == SC_POLICY_VALUE ? SC_HEAT_ONE : 0);
}

/* ---- If only the rank is kept, because there are many things (the index's leaves). All are worth
 * the same per byte, so value is heat alone. */

/* Returns the rank after one more use; rank 0: the first. */
static inline uint64_t sc_rank_used(enum sc_policy policy, uint64_t rank, uint64_t now)
{
    const struct sc_use use = {.stamp = now, .count = (uint32_t)(rank >> 44) + 1};
    return policy == SC_POLICY_LRU   ? now
           : policy == SC_POLICY_LFU ? sc_rank_lfu(&use)
                                     : sc_heat_used(rank, now);
}

/* Returns the time of the last use that a rank tells of: with value later, if there were many. */
static inline uint64_t sc_rank_time(enum sc_policy policy, uint64_t rank)
{
    return policy == SC_POLICY_LFU ? rank & ((UINT64_C(1) << 44) - 1) : rank;
}

/* Returns the rank of a thing that is in use when it would be evicted: as two uses now; lru:
 * last. */
static inline uint64_t sc_rank_passed(enum sc_policy policy, uint64_t rank, uint64_t now)
{
    uint64_t least = policy == SC_POLICY_VALUE ? now + SC_HEAT_ONE : now;
    return rank > least && policy != SC_POLICY_LRU ? rank : least;
}

/* Returns the better of two runs' ranks. */
static inline uint64_t sc_rank_best(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* Returns twice the value, or for lfu one use more. */
static inline uint64_t sc_rank_raised(enum sc_policy policy, uint64_t rank)
{
    uint64_t step = policy == SC_POLICY_LFU ? UINT64_C(1) << 44 : SC_HEAT_ONE;
    return rank < UINT64_MAX - step ? rank + step : rank;
}

#endif
