/* selector_pool: allocates runs of blocks for selector keys, from memory made at open.
 *
 *   base   [ a a a | b | . | . | c c | . . . . ]      blocks of 64 KiB, first fit
 *   holds  [ 2 0 0 | 1 | 0 | 0 | 1 0 | 0 0 0 0 ]      of a run's first block: its holders
 *
 * A run is contiguous because scoring kernels read keys as one array. So a run may be refused
 * although enough blocks are free; the caller then does without, as when all are taken (counted).
 *
 * Invariants: a run is reused after its last holder has left. No memory is allocated or returned to
 * the system between open and close. Contents are not cleared.
 * Threads: any; one lock (rank 61), held for bitmap changes only.
 * Tests: tests/unit/store/test_pool.c */
#ifndef SC_STORE_CACHE_SELECTOR_POOL_H
#define SC_STORE_CACHE_SELECTOR_POOL_H

#include "store/space/page_map.h"

#include <pthread.h>
#include <stdatomic.h>

#define SC_STORE_POOL_BLOCK_BYTES (64ull << 10)

struct sc_store_pool {
    /* Set by open, constant after. */
    struct sc_alloc *alloc;
    struct sc_poison *poison;
    uint8_t *base;
    uint64_t block_count;

    /* Guarded by lock (rank 61). */
    pthread_mutex_t lock;
    struct sc_store_space map; /* one segment; a page of it is a block */
    struct sc_store_pool_run {
        uint32_t blocks, holds; /* the run that begins here; 0: none */
    } * runs;

    /* Statistics; any thread, relaxed. */
    _Atomic uint64_t used_bytes, refused;
};

/* Allocates the whole blocks in `bytes` (may be 0). Returns false without memory. Close is always
 * allowed, also of a zeroed pool. */
bool sc_store_pool_open(struct sc_store_pool *pool, struct sc_alloc *alloc,
                        struct sc_poison *poison, uint64_t bytes);
void sc_store_pool_close(struct sc_store_pool *pool); /* asserts that all runs are free */

/* Returns an uncleared, page-aligned run of at least `bytes` > 0 with one holder, or NULL. */
uint8_t *sc_store_pool_take(struct sc_store_pool *pool, uint64_t bytes);
/* Adds a holder to a run that has one. */
void sc_store_pool_hold(struct sc_store_pool *pool, const uint8_t *run);
void sc_store_pool_leave(struct sc_store_pool *pool, const uint8_t *run);

#endif
