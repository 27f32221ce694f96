/* What is known of how often things were used that are kept no more: the dual cache's memory of
 * chunks that lie on the disk alone (decision 0046).
 *
 *   buckets  [a power of two] of WAYS entries; a name's bucket follows from it
 *   entry    name (64 bits of hash; 0: free), heat, count, importance
 *
 * Holds: what take gives is what put was given under that name, once; who finds its bucket full
 * puts out the entry of the least heat, which may be its own.
 * Does not: know what has a name; two of one name pass for each other, which costs a rank that is
 * wrong and never a byte. Allocate after init.
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
    struct sc_store_ghost_entry *entries; /* NULL: nothing is remembered */
    uint64_t mask;                       /* of buckets */
};

/* For about so many things. false: no memory. past is zero, and done takes it then. */
bool sc_store_ghost_init(struct sc_store_ghost *past, struct sc_alloc *alloc, uint64_t count);
void sc_store_ghost_done(struct sc_store_ghost *past);
/* The thing of that name is kept no more: heat, count and importance of its use are remembered. */
void sc_store_ghost_put(struct sc_store_ghost *past, uint64_t name, const struct sc_use *use);
/* Into use, what was remembered of the name, and it is forgotten; nothing was: use is as it is. */
void sc_store_ghost_take(struct sc_store_ghost *past, uint64_t name, struct sc_use *use);

#endif
