/* residency: counts the host tier's slabs per group, readable without the tier's lock.
 *
 * A group has the slabs that differ by layer only (rows of one piece), or all chunks of a permuted
 * copy. Lookup uses the counts to say where a match is: hundreds of pieces, each of tens of layers.
 *
 *   groups   [count_max]         copy, what, number of published slabs; a list of all its slabs
 *   heads    [a power of two] -> groups of one hash; neighbouring rows have neighbouring heads
 *   version  odd while a group is added or removed; a reader that meets a change reads again
 *
 * Invariants: a count was true at some moment during the call; under incessant changes it may be 0.
 * A slab is linked in one group. Nothing is allocated after init.
 * Threads: count and is_empty: any; all else under the host tier's lock.
 * Tests: tests/unit/store/test_host_tier_keep.c */
#ifndef SC_STORE_CACHE_RESIDENCY_H
#define SC_STORE_CACHE_RESIDENCY_H

#include "base/alloc.h"

#include <stdatomic.h>
#include <stdbool.h>

#define SC_RESIDENCY_NONE UINT32_MAX
#define SC_RESIDENCY_NEAR 64u /* rows of a usual piece, the distance of neighbours */

struct sc_store_residency_group {
    _Atomic uint64_t copy, what;
    _Atomic uint32_t next;
    _Atomic uint32_t published;
    _Atomic uint32_t risen;     /* published slabs in the upper tier */
    uint32_t slabs;             /* all slabs, including those being filled; 0: free */
    uint32_t first;             /* first slab of the group; the host tier's numbering and links */
};

struct sc_store_residency {
    struct sc_alloc *alloc; /* set by init, constant after, as are the arrays */
    struct sc_store_residency_group *groups;
    _Atomic uint32_t *heads;
    uint32_t count_max, head_mask;
    _Atomic uint32_t version;
    _Atomic uint32_t published; /* published slabs of all groups */
    uint32_t free, fresh;       /* groups from `fresh` on were never used */
};

/* Allocates for count_max slabs; *residency is zero before. Returns false without memory. */
bool sc_store_residency_init(struct sc_store_residency *residency, struct sc_alloc *alloc,
                             uint32_t count_max);
void sc_store_residency_done(struct sc_store_residency *residency);

/* Adds a slab to the group, which is made if there is none. Returns its number. */
uint32_t sc_store_residency_join(struct sc_store_residency *residency, uint64_t copy,
                                 uint64_t what);
/* Removes a slab that is not published. The last one removes the group. */
void sc_store_residency_leave(struct sc_store_residency *residency, uint32_t group);
/* Changes the group's published slabs by one. */
void sc_store_residency_publish(struct sc_store_residency *residency, uint32_t group,
                                bool is_published);
/* Changes the group's slabs in the upper tier by one. */
void sc_store_residency_rise(struct sc_store_residency *residency, uint32_t group, bool is_risen);
uint32_t sc_store_residency_find(const struct sc_store_residency *residency, uint64_t copy,
                                 uint64_t what);

static inline bool sc_store_residency_is_empty(const struct sc_store_residency *residency)
{
    return atomic_load_explicit(&residency->published, memory_order_acquire) == 0;
}
/* Returns the group's published slabs. *ret_risen (may be NULL): those in the upper tier. */
uint32_t sc_store_residency_count(const struct sc_store_residency *residency, uint64_t copy,
                                  uint64_t what, uint32_t *ret_risen);

#endif
