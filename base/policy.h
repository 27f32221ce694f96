/* The eviction order: of what is kept and may be dropped, what goes first. The one place.
 *
 *   struct sc_use --sc_rank_by--> 64 bits; whoever keeps things keeps the lowest at hand (the index
 *                                 a heap of its leaves, the host tier one of its slabs), and knows
 *                                 nothing else of what a rank means
 *
 *   heat      log2 of how often a thing is used, each use being worth half as much after one
 *             half-life, two quarters after two ..: an hour's use now is as good as 2^n of n
 *             half-lives ago. Kept as time + log2(worth at that time), so that it changes with uses
 *             only, and what nobody uses falls behind because the heat of all others goes on
 *
 *      use at t         t                       (weight 1)
 *      and at t + 1     t + 1 + log2(1 + 1/2)   (weight 3/2 by then)
 *      two leaves' sum  sc_heat_sum of both     what was used through either
 *
 * A half-life is what whoever keeps the things makes it: as a rule until as much was used as it can
 * keep (decision 0027).
 *
 * Holds: a use never makes a rank lower, but for score, whose ratio moves; a heap may find out late
 * (what falls all the same stays a while longer).
 * Does not: keep anything, read a clock.
 * Threads: any.
 * Tests: tests/unit/base/test_policy.c, tests/unit/store/test_host_tier.c,
 * tests/unit/hashing/test_radix_random.c, test_radix_policy.c */
#ifndef SC_BASE_POLICY_H
#define SC_BASE_POLICY_H

#include <stdint.h>

#define SC_HEAT_ONE (UINT64_C(1) << 32) /* a half-life, or a factor of two */
#define SC_HEAT_FIRST                                                                              \
    (UINT64_C(128) << 32) /* the time to begin with: logarithms are taken off it */

/* What is known of a thing that is kept. Members that an order does not read may be 0. */
struct sc_use {
    uint64_t stamp;      /* of its last use: higher for each use of anything */
    uint64_t heat;       /* sc_heat_used of it at its last use */
    uint64_t bytes;      /* that dropping it makes free */
    uint64_t cost_ns;    /* that having it again takes */
    uint32_t count;      /* of uses */
    uint32_t importance; /* of what is used of it, a share in millionths: sc_importance_touched */
};

/* log2(2^a + 2^b) in 32.32 bits: never below the larger one, nor more than SC_HEAT_ONE above it. */
uint64_t sc_heat_sum(uint64_t a, uint64_t b);
/* log2(x) in 32.32 bits, within a hundredth; x 0 is taken for 1. */
uint64_t sc_log2(uint64_t x);

/* One more use at that time; heat 0: the first. */
static inline uint64_t sc_heat_used(uint64_t heat, uint64_t now)
{
    return heat == 0 ? now : sc_heat_sum(heat, now);
}

/* Used longest ago. */
static inline uint64_t sc_rank_lru(const struct sc_use *use)
{
    return use->stamp;
}

/* Used least often, so what has just come; of equals, longest ago. A million uses are as good as
 * more. */
static inline uint64_t sc_rank_lfu(const struct sc_use *use)
{
    const uint64_t count_max = (UINT64_C(1) << 20) - 1, stamp_max = (UINT64_C(1) << 44) - 1;
    uint64_t count = use->count < count_max ? use->count : count_max;
    return count << 44 | (use->stamp < stamp_max ? use->stamp : stamp_max);
}

/* Heat times the time a byte that having it again takes. */
static inline uint64_t sc_rank_value(const struct sc_use *use)
{
    return use->heat + sc_log2(use->cost_ns) - sc_log2(use->bytes);
}

/* Heat times the share of it that is important: IMPRESS' score, for what is read by rows. */
static inline uint64_t sc_rank_score(const struct sc_use *use)
{
    return use->heat + sc_log2(use->importance);
}

/* The moving average that a score goes by; average 0: none was seen before. */
static inline uint32_t sc_importance_touched(uint32_t average, uint32_t share)
{
    uint64_t next = average == 0 ? share : ((uint64_t)average * 7 + share + 4) / 8;
    return next > 0 ? (uint32_t)next : 1;
}

/* value, lru and lfu are choices of the configuration. */
enum sc_policy { SC_POLICY_VALUE, SC_POLICY_LRU, SC_POLICY_LFU, SC_POLICY_SCORE };

static inline uint64_t sc_rank_by(enum sc_policy policy, const struct sc_use *use)
{
    return policy == SC_POLICY_LRU     ? sc_rank_lru(use)
           : policy == SC_POLICY_LFU   ? sc_rank_lfu(use)
           : policy == SC_POLICY_SCORE ? sc_rank_score(use)
                                       : sc_rank_value(use);
}

/* What comes in is worth half as much as it is from then on: what is there has been of use once
 * more, it has been read. It has to be worth more than what goes for it. */
static inline uint64_t sc_rank_coming(enum sc_policy policy, const struct sc_use *use)
{
    return sc_rank_by(policy, use) - (policy == SC_POLICY_VALUE ? SC_HEAT_ONE : 0);
}

/* ---- Where a rank is all that is kept of a thing, because there are many (the index's leaves):
 * they are worth the same a byte, so that a value is heat alone
 * ------------------------------------- */

/* One more use at that time; rank 0: the first. */
static inline uint64_t sc_rank_used(enum sc_policy policy, uint64_t rank, uint64_t now)
{
    const struct sc_use use = {.stamp = now, .count = (uint32_t)(rank >> 44) + 1};
    return policy == SC_POLICY_LRU   ? now
           : policy == SC_POLICY_LFU ? sc_rank_lfu(&use)
                                     : sc_heat_used(rank, now);
}

/* It is in use when its turn has come: it is worth as much as two uses now; last of all for lru. */
static inline uint64_t sc_rank_passed(enum sc_policy policy, uint64_t rank, uint64_t now)
{
    uint64_t least = policy == SC_POLICY_VALUE ? now + SC_HEAT_ONE : now;
    return rank > least && policy != SC_POLICY_LRU ? rank : least;
}

/* The better of two runs' ranks. */
static inline uint64_t sc_rank_best(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* Worth twice as much, or by lfu one use more. */
static inline uint64_t sc_rank_raised(enum sc_policy policy, uint64_t rank)
{
    uint64_t step = policy == SC_POLICY_LFU ? UINT64_C(1) << 44 : SC_HEAT_ONE;
    return rank < UINT64_MAX - step ? rank + step : rank;
}

#endif
