/* How many slabs of each group the host tier holds, read without its lock: a group is what differs
 * by layer alone, the rows of one piece; or all chunks of a copy of the rows's slots. lookup says
 * by it where a match lies, and asks for hundreds of pieces, each of tens of layers.
 *
 *   groups   [count_max]         copy, what, how many slabs are published; a list of all of them
 *   heads    [a power of two] -> groups of one hash; what's low half, a row, moves on along them
 *   version  odd while a group comes or goes: who reads meanwhile reads again
 *
 * Holds: what count says was true at some moment during the call, unless groups come and go without
 * a pause, when it may be 0; no slab is linked in two groups.
 * Does not: own slabs; allocate after open.
 * Threads: count any; all else under the lock of the host tier.
 * Tests: tests/unit/store/test_host_tier_keep.c */
#ifndef SC_STORE_CACHE_RESIDENCY_H
#define SC_STORE_CACHE_RESIDENCY_H

#include "base/alloc.h"

#include <stdatomic.h>
#include <stdbool.h>

#define SC_RESIDENCY_NONE UINT32_MAX
#define SC_RESIDENCY_NEAR 64u /* rows of a usual piece: neighbours are so far apart */

struct sc_store_residency_group {
    _Atomic uint64_t copy, what;
    _Atomic uint32_t next;      /* of its head, or free */
    _Atomic uint32_t published; /* slabs that get would give */
    _Atomic uint32_t risen;     /* of them, in the upper tier */
    uint32_t slabs;             /* of the group, those that are filled as well; 0: it is free */
    uint32_t first;             /* of them, as the host tier numbers and links them */
};

struct sc_store_residency {
    struct sc_alloc *alloc; /* set by open, constant after, as the arrays' places */
    struct sc_store_residency_group *groups;
    _Atomic uint32_t *heads;
    uint32_t count_max, head_mask;
    _Atomic uint32_t version;
    _Atomic uint32_t published; /* slabs of all groups */
    uint32_t free, fresh;       /* groups from `fresh` on were never used */
};

/* For at most so many slabs. false: no memory; done frees what there is. residents is zero. */
bool sc_store_residency_init(struct sc_store_residency *residency, struct sc_alloc *alloc,
                             uint32_t count_max);
void sc_store_residency_done(struct sc_store_residency *residency);

/* The group of the name, made if there is none, with one slab more: its number. */
uint32_t sc_store_residency_join(struct sc_store_residency *residency, uint64_t copy,
                                 uint64_t what);
/* One slab less, which is published no more; the last takes the group along. */
void sc_store_residency_leave(struct sc_store_residency *residency, uint32_t group);
/* One more of its slabs is published, or one less is. */
void sc_store_residency_publish(struct sc_store_residency *residency, uint32_t group,
                                bool is_published);
/* One of its published slabs has come into the upper tier, or has left it. */
void sc_store_residency_rise(struct sc_store_residency *residency, uint32_t group, bool is_risen);
/* SC_RESIDENCY_NONE: there is no such group. */
uint32_t sc_store_residency_find(const struct sc_store_residency *residency, uint64_t copy,
                                 uint64_t what);

/* No slab of any name is published. */
static inline bool sc_store_residency_is_empty(const struct sc_store_residency *residency)
{
    return atomic_load_explicit(&residency->published, memory_order_acquire) == 0;
}
/* How many slabs of the name are published; ret_risen, which may be NULL: of those, how many lie in
 * the upper tier. */
uint32_t sc_store_residency_count(const struct sc_store_residency *residency, uint64_t copy,
                                  uint64_t what, uint32_t *ret_risen);

#endif
