/* run_pool: memory that is allocated at open and handed out in runs of whole pages.
 *
 *   pages   [ a a a | b | . | c c | . . . . . . . . | d d d d d d d ]
 *             short runs: the first gap that fits     long runs: the last gap that fits
 *
 * A run is contiguous, because its users read it as one array. Short and long runs grow towards
 * each other, so short ones that stay do not fragment the space for long ones.
 *
 * Invariants: no page belongs to two runs. A page that no run ever had is never touched, and the
 * lowest pages are reused first, so resident memory follows the peak use. The owner of a run knows
 * its length. A run may not fit although as many pages are free.
 * Threads: any; `lock` (rank 91), under which nothing is called. Tests:
 * tests/unit/base/test_run_pool.c */
#ifndef SC_BASE_RUN_POOL_H
#define SC_BASE_RUN_POOL_H

#include "base/alloc.h"
#include "base/assert.h"

#include <pthread.h>

#define SC_RUN_PAGE_BYTES 4096u
#define SC_RUN_LONG_BYTES (1u << 20) /* longer runs are long */

struct sc_run { /* zeros: none */
    uint8_t *at;
    uint64_t bytes; /* whole pages */
};

struct sc_run_pool {
    /* Set by open, constant after. */
    struct sc_alloc *alloc;
    struct sc_poison *poison;
    uint8_t *base;
    uint64_t page_count;

    /* Guarded by lock (rank 91). */
    pthread_mutex_t lock;
    uint64_t *taken;                /* one bit per page; those behind the last page are set */
    uint64_t free_from;             /* no page below it is free */
    uint64_t short_end, long_first; /* no run ever had a page in between */

    /* Any thread, relaxed: statistics. */
    _Atomic uint64_t used_bytes, refused;
};

/* Rounds up to whole pages. */
static inline uint64_t sc_run_bytes(uint64_t bytes)
{
    return (bytes + SC_RUN_PAGE_BYTES - 1) / SC_RUN_PAGE_BYTES * SC_RUN_PAGE_BYTES;
}

/* Allocates `bytes` > 0, rounded up to pages. False: no memory; the pool may be closed. */
bool sc_run_pool_open(struct sc_run_pool *pool, struct sc_alloc *alloc, struct sc_poison *poison,
                      uint64_t bytes);
/* Asserts that every run was returned. A pool of zeros may be closed. */
void sc_run_pool_close(struct sc_run_pool *pool);

/* Takes a page-aligned run of at least `bytes`, uninitialised. 0 bytes: an empty run, which
 * succeeds. False: no gap fits, and *ret_run is empty. */
bool sc_run_take(struct sc_run_pool *pool, uint64_t bytes, struct sc_run *ret_run);
/* Returns the pages behind the run's first `bytes` to the pool. */
void sc_run_trim(struct sc_run_pool *pool, struct sc_run *run, uint64_t bytes);
/* Returns the run to the pool; it is empty then. */
void sc_run_put(struct sc_run_pool *pool, struct sc_run *run);

#endif
