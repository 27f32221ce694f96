/* staging_pool: page-aligned frames that all bytes between disk and host pass through.
 *
 *   memory  [frame 0 | frame 1 | ... | frame n-1]     n = staging_bytes / frame_bytes
 *   frame   [op_bytes | 2 pages]    an operation on row borders, rounded out to pages, fits
 *
 *   demand        may take every frame
 *   writer        leaves a quarter free (rounded up)
 *   speculative   leaves half free (rounded up); background the same
 *
 * A reader without a frame queues a struct sc_staging_waiter. The next frame that its class may
 * have is handed to it and its task is posted. So no waiter is overtaken: demand before writer
 * before speculative, first in first out within a class.
 *
 * Invariants: a frame has one owner. The stack and the kept frames are the free and the parked
 * ones. While a waiter waits, no frame is free that its class may have. Nothing is allocated after
 * open.
 * Deadlock: a frame is never taken back. So an owner of filled, unconsumed frames must not wait for
 * another owner. Callers that begin many demand loads and consume them in turn limit the frames of
 * each.
 * Threads: any; one short lock (rank 60), released before calls of the executor.
 * Tests: tests/unit/store/test_staging_pool.c */
#ifndef SC_STORE_CACHE_STAGING_POOL_H
#define SC_STORE_CACHE_STAGING_POOL_H

#include "base/assert.h"
#include "base/exec.h"
#include "store/io/io.h"

#define SC_STAGING_SLACK_BYTES (2u * SC_IO_PAGE_BYTES) /* rounding out at both ends */
#define SC_STAGING_COUNT_MIN   4u /* with fewer, a class would get none */

struct sc_staging;

struct sc_staging_params {
    struct sc_alloc *alloc;
    struct sc_exec *exec;
    struct sc_poison *poison; /* NULL: failed checks only assert */
    uint64_t staging_bytes;   /* limit for all frames */
    uint64_t op_bytes;
};

struct sc_staging_waiter {
    struct sc_task task; /* task.step is the owner's; posted once, after frame is set */
    uint8_t *frame;      /* NULL until handed over, then owned by the waiter */

    /* Guarded by the pool's lock (rank 60). Zero before the first use. */
    struct sc_staging_waiter *next, *prev;
    uint32_t io_class;
    uint32_t waiting;
};

/* Errors: SPEC_E_CONFIG (fewer than SC_STAGING_COUNT_MIN frames fit), SPEC_E_NO_MEMORY. */
spec_status sc_staging_open(const struct sc_staging_params *params, struct sc_staging **ret_frames,
                            struct spec_error *reterr);
/* Asserts that every frame was returned and nobody waits. Accepts NULL. */
void sc_staging_close(struct sc_staging *frames);

/* Returns a frame, contents undefined; NULL if the class (enum sc_io_class) may have none now. */
uint8_t *sc_staging_take(struct sc_staging *frames, uint32_t io_class);
/* Returns a frame if more than `leaves` are free, ignoring the class. */
uint8_t *sc_staging_take_leaving(struct sc_staging *frames, uint64_t leaves);
uint64_t sc_staging_free(struct sc_staging *frames);
/* Returns a frame, or NULL after queuing the waiter, which is neither queued nor posted before. Its
 * task is posted in `io_class`, possibly before this call returns. */
uint8_t *sc_staging_take_or_wait(struct sc_staging *frames, uint32_t io_class,
                                 struct sc_staging_waiter *waiter);
/* Returns true if the waiter was queued: its task will not be posted. Returns false if it never
 * waited or a frame was handed over: the task is posted, running or done, and owns the frame. */
bool sc_staging_wait_cancel(struct sc_staging *frames, struct sc_staging_waiter *waiter);
/* Moves a queued waiter to the end of another class's queue, and serves it at once if that class
 * may have a frame. No effect if it is not queued. */
void sc_staging_wait_raise(struct sc_staging *frames, struct sc_staging_waiter *waiter,
                           uint32_t io_class);

/* lay parks a frame that has no use yet, and keeps the right to one. candidate returns one, never
 * NULL: the one used last. So few frames are in use, and these stay in the CPU's caches. */
void sc_staging_lay(struct sc_staging *frames, uint8_t *frame);
uint8_t *sc_staging_candidate(struct sc_staging *frames);

/* Frees a frame whose bytes may be wanted again: it is reused last, the last kept first. Returns a
 * ticket, never 0. */
uint64_t sc_staging_keep(struct sc_staging *frames, uint8_t *frame);
/* Takes a kept frame back. Returns true if nobody had it since, so its bytes are unchanged. */
bool sc_staging_claim(struct sc_staging *frames, uint8_t *frame, uint64_t ticket);

/* Hints that these bytes of a frame are not read again: moves them from this core's cache to the
 * shared one, so the next transfer need not fetch them from here. It pays if that transfer is soon
 * (sc_io_is_shallow); else it costs. The bytes keep their values. */
void sc_staging_leave(const uint8_t *bytes, uint64_t count);

/* Frees a frame, given by any address inside it. Accepts NULL. */
void sc_staging_put(struct sc_staging *frames, uint8_t *frame);

uint64_t sc_staging_frame_bytes(const struct sc_staging *frames); /* op_bytes + slack */
uint64_t sc_staging_count(const struct sc_staging *frames);
/* Returns the frames that a class may have if nobody else has any. */
uint64_t sc_staging_count_for(const struct sc_staging *frames, uint32_t io_class);
const uint8_t *sc_staging_memory(const struct sc_staging *frames);
uint64_t sc_staging_bytes(const struct sc_staging *frames);
/* Returns the frames that are owned now. For statistics and tests. */
uint64_t sc_staging_used(struct sc_staging *frames);

#endif
