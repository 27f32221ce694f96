/* The eviction order: of what is kept and may be dropped, what goes first. The one place.
 *
 *   struct sc_use --sc_rank--> 64 bits; whoever keeps things keeps the lowest at hand (the index a
 *                              heap of its leaves, the host tier one of its slabs), and knows
 *                              nothing else of what a rank means
 *
 * Another order: sc_rank calls another function below, and who keeps things fills in what of a use
 * that reads; for the index's leaves sc_radix_used does, in hashing/radix_internal.h.
 *
 * Holds: a use never makes a rank lower, so that a heap may find out late (what falls all the same
 * stays a while longer); what is in use now goes behind what is not.
 * Does not: keep anything, read a clock.
 * Threads: any.
 * Tests: tests/unit/base/test_policy.c, tests/unit/hashing/test_radix_random.c */
#ifndef SC_BASE_POLICY_H
#define SC_BASE_POLICY_H

#include <stdint.h>

/* What is known of a thing that is kept. Members that an order does not read may be 0. */
struct sc_use {
    uint64_t stamp;      /* of its last use: higher for each use of anything */
    uint64_t bytes;      /* that dropping it makes free */
    uint64_t age;        /* of who keeps it, when it was used last: sc_rank_cost */
    uint64_t cost_ns;    /* that having it again takes */
    uint32_t count;      /* of uses; UINT32_MAX: in use now */
    uint32_t importance; /* what it is worth, in any unit */
};

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

/* Worth least a byte, in steps of 2^-32. */
static inline uint64_t sc_rank_value(const struct sc_use *use)
{
    if (use->count == UINT32_MAX)
        return UINT64_MAX;
    return ((uint64_t)use->importance << 32) / (use->bytes > 0 ? use->bytes : 1);
}

/* Uses, each worth the time a byte that having it again would take (in units of 2^-10 ns), behind
 * what had been dropped by the last of them: what was used often and then no more falls behind, as
 * the others' ranks pass by. This is GreedyDual-Size with frequencies (Cherkasova, HP Labs 1998).
 */
static inline uint64_t sc_rank_cost(const struct sc_use *use)
{
    uint64_t bytes = use->bytes > 0 ? use->bytes : 1,
             count = use->count < 65535 ? use->count : 65535;
    uint64_t each =
        (use->cost_ns < UINT64_C(1) << 37 ? use->cost_ns << 10 : UINT64_C(1) << 47) / bytes;
    uint64_t worth = count * (each > 0 ? each : 1);
    return worth < UINT64_MAX - use->age ? use->age + worth : UINT64_MAX;
}

enum sc_policy { SC_POLICY_VALUE, SC_POLICY_LRU, SC_POLICY_LFU }; /* of the host tier */

static inline uint64_t sc_rank_by(enum sc_policy policy, const struct sc_use *use)
{
    return policy == SC_POLICY_LRU   ? sc_rank_lru(use)
           : policy == SC_POLICY_LFU ? sc_rank_lfu(use)
                                     : sc_rank_cost(use);
}

/* The order that holds for the index. */
static inline uint64_t sc_rank(const struct sc_use *use)
{
    return sc_rank_lru(use);
}

#endif
