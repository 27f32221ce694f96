/* staging_arena: allocates ranges of device memory in ring order, for data between copy and kernel.
 *
 *   base  [ . . . | range 4 | range 5 | range 6 | . . ]     tail: before range 4; head: after 6
 *                given back  in use    given back           range 4 is free, range 6 not yet
 *
 * Invariants: ranges become free in the order in which they were taken: one given back early waits
 * for those before it. Batches complete in nearly that order, so no search or merge is needed.
 * Ranges in use share no byte. A range is contiguous, and 256-aligned if base is. Nothing is
 * allocated after open. base is only an address here: the arena never accesses the memory.
 * Threads: any; one lock (rank 82), held for a few words.
 * Tests: tests/unit/gpu/test_staging_arena.c */
#ifndef SC_GPU_STAGING_ARENA_H
#define SC_GPU_STAGING_ARENA_H

#include "base/alloc.h"
#include "base/assert.h"
#include "gpu/driver.h"

#include <pthread.h>

#define SC_GPU_STAGING_ALIGN_BYTES 256u

/* A taken range. Zero: none. */
struct sc_gpu_range {
    sc_cu_ptr at;
    uint64_t bytes;
    uint64_t number; /* index among all ranges ever taken; internal */
};

struct sc_gpu_staging {
    /* Set by open, constant afterwards. */
    struct sc_alloc *alloc;
    struct sc_poison *poison;
    sc_cu_ptr base;
    uint64_t bytes;       /* a multiple of the alignment */
    uint64_t range_count; /* maximum number of concurrent ranges */

    /* Guarded by lock (rank 82). */
    pthread_mutex_t lock;
    struct sc_gpu_staging_end {
        uint64_t end;         /* head when the range was taken */
        bool is_given;        /* given back */
    } * ends;                 /* [range_count], by number modulo range_count */
    uint64_t head, tail;      /* bytes ever taken, bytes ever freed; both include skipped bytes */
    uint64_t taken, returned; /* ranges ever taken, ranges ever freed */

    /* Requests that did not fit. Any thread, relaxed: a statistic. */
    _Atomic uint64_t refused;
};

/* Opens an arena of `bytes` rounded down to the alignment, for range_count concurrent ranges. If
 * either is 0, take always fails. Returns false without memory; the arena may then be closed. */
bool sc_gpu_staging_open(struct sc_gpu_staging *staging, struct sc_alloc *alloc,
                         struct sc_poison *poison, sc_cu_ptr base, uint64_t bytes,
                         uint64_t range_count);
/* Closes an arena whose ranges were all given back (asserted, unless is_forked: a child has its
 * parent's ranges). Accepts a zero or closed arena. */
void sc_gpu_staging_close(struct sc_gpu_staging *staging, bool is_forked);

/* Takes a range of `bytes` > 0; its contents are undefined. Returns false, leaving *ret_range
 * unchanged, if it does not fit now: completed entries give ranges back. */
bool sc_gpu_staging_take(struct sc_gpu_staging *staging, uint64_t bytes,
                         struct sc_gpu_range *ret_range);
/* Gives a range back, once. A zero range is ignored. */
void sc_gpu_staging_give(struct sc_gpu_staging *staging, const struct sc_gpu_range *range);
/* Returns the number of ranges in use: a statistic, and for tests. */
uint64_t sc_gpu_staging_used(struct sc_gpu_staging *staging);

#endif
