/* ghost_list: remembers how often evicted slabs were used (ARC's ghost list; decision 0046).
 *
 *   buckets  [a power of two] of WAYS entries; the name selects the bucket
 *   entry    name (64 bits of hash; 0: free), heat, count, importance
 *
 * A full bucket drops its entry of the lowest heat, which may be the new one. Two slabs of one name
 * are confused: this gives a wrong rank, never wrong bytes.
 *
 * Threads: one at a time.
 * Tests: tests/unit/store/test_ghost_list.c */
#ifndef SC_STORE_CACHE_GHOST_LIST_H
#define SC_STORE_CACHE_GHOST_LIST_H

#include "base/alloc.h"
#include "base/policy.h"

#include <stdbool.h>

#define SC_STORE_GHOST_WAYS 8u

struct sc_store_ghost_entry {
    uint64_t name, heat;
    uint32_t count, importance;
};

struct sc_store_ghost {
    struct sc_alloc *alloc;
    struct sc_store_ghost_entry *entries; /* NULL: the list is off */
    uint64_t mask;                       /* bucket count - 1 */
};

/* Allocates at least `count` entries; *past is zero before. Returns false without memory. */
bool sc_store_ghost_init(struct sc_store_ghost *past, struct sc_alloc *alloc, uint64_t count);
void sc_store_ghost_done(struct sc_store_ghost *past);
/* Stores heat, count and importance under the name of an evicted slab. */
void sc_store_ghost_put(struct sc_store_ghost *past, uint64_t name, const struct sc_use *use);
/* Moves the entry of the name into *use and deletes it. Leaves *use unchanged if there is none. */
void sc_store_ghost_take(struct sc_store_ghost *past, uint64_t name, struct sc_use *use);

#endif
