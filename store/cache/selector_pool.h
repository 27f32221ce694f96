/* Memory that is made at open and handed out later, in runs of blocks.
 *
 *   base   [ a a a | b | . | . | c c | . . . . ]      blocks of 64 KiB, first fit
 *   holds  [ 2 0 0 | 1 | 0 | 0 | 1 0 | 0 0 0 0 ]      of a run's first block: who uses it
 *
 * A run is one piece of memory, because what scores keys reads them as one array: blocks that are
 * not neighbours would cost every kernel a table. The price is that a run may not be found though
 * as many blocks are free; then its taker goes without, as when all are taken (counted).
 *
 * Holds: a run is given out again when the last of its holders has left it; nothing is allocated,
 * and nothing given back to the system, between open and close.
 * Does not: know what is in it, clear it, wait, or move what is taken.
 * Threads: any; one lock (rank 61), nothing is done under it but words of a bitmap.
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
    uint8_t *base; /* NULL: there is no block */
    uint64_t block_count;

    /* Guarded by lock (rank 61). */
    pthread_mutex_t lock;
    struct sc_store_space map; /* one segment, a page of it a block */
    struct sc_store_pool_run {
        uint32_t blocks, holds; /* of the run that begins here; 0: none does */
    } * runs;                   /* [block_count] */

    /* Any thread, relaxed: statistics. */
    _Atomic uint64_t used_bytes, refused;
};

/* Of as many whole blocks as `bytes` hold; 0 is fine: then there is nothing to take. false: no
 * memory; the pool may be closed. A pool of zeros may be closed too. */
bool sc_store_pool_open(struct sc_store_pool *pool, struct sc_alloc *alloc,
                        struct sc_poison *poison, uint64_t bytes);
void sc_store_pool_close(struct sc_store_pool *pool); /* all runs are free again (asserted) */

/* A run of at least `bytes` > 0, on a page border, with what was in it before; it has one holder.
 * NULL: there is none. */
uint8_t *sc_store_pool_take(struct sc_store_pool *pool, uint64_t bytes);
/* One more holder of a run that the caller knows to have one. */
void sc_store_pool_hold(struct sc_store_pool *pool, const uint8_t *run);
void sc_store_pool_leave(struct sc_store_pool *pool, const uint8_t *run);

#endif
