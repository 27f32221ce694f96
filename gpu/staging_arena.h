/* Staging: an arena on the device that rows and codes pass through between a copy engine and a
 * kernel, handed out in ranges as a ring hands out bytes.
 *
 *   base  [ . . . | range 4 | range 5 | range 6 | . . ]     tail: before range 4, head: behind 6
 *                 given back  in use    given back           range 4's room is free, 6's not yet
 *
 * Ranges come free in the order in which they were taken: one that is given back early waits for
 * those before it. That is the order in which flights land, all but a few, and it is why nothing
 * has to be searched or merged.
 *
 * Holds: no two ranges in use share a byte; a range is 256-aligned where base is, and in one piece;
 * nothing is allocated after open.
 * Does not: wait, know the device, or touch the memory: base is only an address here.
 * Threads: any; one lock (rank 82), held for a few words.
 * Tests: tests/unit/gpu/test_staging_arena.c */
#ifndef SC_GPU_STAGING_ARENA_H
#define SC_GPU_STAGING_ARENA_H

#include "base/alloc.h"
#include "base/assert.h"
#include "gpu/driver.h"

#include <pthread.h>

#define SC_GPU_STAGING_ALIGN_BYTES 256u

/* A range that was taken; zero: none. */
struct sc_gpu_range {
    sc_cu_ptr at;
    uint64_t bytes;
    uint64_t number; /* of all ranges ever taken: the stage's */
};

struct sc_gpu_staging {
    /* Set by open, constant after. */
    struct sc_alloc *alloc;
    struct sc_poison *poison;
    sc_cu_ptr base;
    uint64_t bytes;       /* a multiple of the alignment */
    uint64_t range_count; /* at most so many at a time */

    /* Guarded by lock (rank 82). */
    pthread_mutex_t lock;
    struct sc_gpu_staging_end {
        uint64_t end;         /* head as it was when the range was taken */
        bool is_given;        /* back */
    } * ends;                 /* [range_count], by number modulo */
    uint64_t head, tail;      /* bytes ever taken, ever free again; skipped ones count */
    uint64_t taken, returned; /* ranges, the same way */

    /* Any thread, relaxed: a statistic. */
    _Atomic uint64_t refused;
};

/* Of as many whole alignments as `bytes` hold, for range_count ranges at a time; either may be 0:
 * then there is nothing to take. false: no memory; the stage may be closed. */
bool sc_gpu_staging_open(struct sc_gpu_staging *staging, struct sc_alloc *alloc,
                         struct sc_poison *poison, sc_cu_ptr base, uint64_t bytes,
                         uint64_t range_count);
/* All ranges were given back (asserted, unless is_forked: a child has its parent's). A stage of
 * zeros may be closed, and a closed one. */
void sc_gpu_staging_close(struct sc_gpu_staging *staging, bool is_forked);

/* A range of `bytes` > 0, with what was in it before. false: there is no room now, and *ret_range
 * is as it was; who flies gives some back when it lands. */
bool sc_gpu_staging_take(struct sc_gpu_staging *staging, uint64_t bytes,
                         struct sc_gpu_range *ret_range);
/* Once a range; one of zeros is nothing. */
void sc_gpu_staging_give(struct sc_gpu_staging *staging, const struct sc_gpu_range *range);
/* Ranges in use: a statistic, and for tests. */
uint64_t sc_gpu_staging_used(struct sc_gpu_staging *staging);

#endif
