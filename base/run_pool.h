/* Memory that is made at open and given out later in runs of whole pages.
 *
 *   pages   [ a a a | b | . | c c | . . . . . . . . | d d d d d d d ]
 *             short runs: the first gap that fits     long runs: the last gap that fits
 *
 * A run is one piece of memory, because its users read it as one array. Short and long runs grow
 * towards each other, so that short ones which stay do not cut the room for long ones.
 *
 * Holds: no page belongs to two runs. Nothing is allocated and nothing is given back to the system
 * between open and close. A page that no run ever had is never touched, and the lowest pages are
 * given again first, so the resident part follows the most that was in use at one time.
 * Does not: remember who has a run or how long it is (the owner does), clear it, wait, or move it.
 * A run may not be found although as many pages are free.
 * Threads: any; one lock (rank 91), and nothing is called under it.
 * Tests: tests/unit/base/test_run_pool.c */
#ifndef SC_BASE_RUN_POOL_H
#define SC_BASE_RUN_POOL_H

#include "base/alloc.h"
#include "base/assert.h"

#include <pthread.h>

#define SC_RUN_PAGE_BYTES 4096u
#define SC_RUN_LONG_BYTES (1u << 20) /* a run of more is long */

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
    uint64_t *taken;                /* a bit a page; those behind the last page are set */
    uint64_t free_from;             /* no page below it is free */
    uint64_t short_end, long_first; /* no run had a page from the one up to the other, ever */

    /* Any thread, relaxed: statistics. */
    _Atomic uint64_t used_bytes, refused;
};

/* `bytes` as whole pages. */
static inline uint64_t sc_run_bytes(uint64_t bytes)
{
    return (bytes + SC_RUN_PAGE_BYTES - 1) / SC_RUN_PAGE_BYTES * SC_RUN_PAGE_BYTES;
}

/* `bytes` > 0 of memory, rounded up to pages. false: there is no memory; the pool may be closed. */
bool sc_run_pool_open(struct sc_run_pool *pool, struct sc_alloc *alloc, struct sc_poison *poison,
                      uint64_t bytes);
/* Asserts that every run was given back. A pool of zeros may be closed, too. */
void sc_run_pool_close(struct sc_run_pool *pool);

/* A run of at least `bytes`, on a page border, with whatever stood in it. 0 bytes: a run of none,
 * which is good. false: there is no such gap, and *ret_run is a run of none. */
bool sc_run_take(struct sc_run_pool *pool, uint64_t bytes, struct sc_run *ret_run);
/* Gives back the pages of the run behind its first `bytes`. */
void sc_run_trim(struct sc_run_pool *pool, struct sc_run *run, uint64_t bytes);
/* Gives the run back; it is a run of none then. */
void sc_run_put(struct sc_run_pool *pool, struct sc_run *run);

#endif
