/* The staging pool: page-aligned frames that every byte between disk and host passes through, made
 * by one allocation at open from staging_bytes.
 *
 *   memory  [frame 0 | frame 1 | ... | frame n-1]     n = staging_bytes / frame_bytes
 *   frame   [op_bytes | 2 pages]    an operation on row borders, rounded out to pages, fits
 *
 * Who may take how much, so that loads always progress:
 *
 *   demand        every frame
 *   writer        leaves a quarter free (rounded up)
 *   speculative   leaves half free (rounded up); background the same
 *
 * A reader that finds no frame waits with a struct sc_staging_waiter of its own: the next frame
 * that
 * its class may have is handed to it (waiter->frame) and its task is posted. Handing over, rather
 * than waking to try again, means that nobody overtakes a waiter: demand before writer before
 * speculative, the oldest first inside a class.
 *
 * Holds: a frame has one owner at a time; as many frames lie in the stack, or are kept, as are free
 * or laid down; while somebody waits, no frame is free that its class may have; nothing is
 * allocated after open.
 * Does not: know what a frame holds; take a frame back from its owner. So the owner of
 * frames that were filled and not consumed must not wait for another owner to be served first:
 * callers that begin many demand loads and consume them one after the other bound the frames of
 * each.
 * Threads: any (one short lock, rank 60; the executor is called with it released).
 * Tests: tests/unit/store/test_staging_pool.c */
#ifndef SC_STORE_CACHE_STAGING_POOL_H
#define SC_STORE_CACHE_STAGING_POOL_H

#include "base/assert.h"
#include "base/exec.h"
#include "store/io/io.h"

#define SC_STAGING_SLACK_BYTES (2u * SC_IO_PAGE_BYTES) /* rounding out at both ends */
#define SC_STAGING_COUNT_MIN   4u /* below this a quarter and a half leave a class nothing */

struct sc_staging;

struct sc_staging_params {
    struct sc_alloc *alloc;
    struct sc_exec *exec;
    struct sc_poison *poison; /* NULL: only asserts */
    uint64_t staging_bytes;   /* all frames and nothing else: <= staging_bytes */
    uint64_t op_bytes;        /* multiple of SC_IO_PAGE_BYTES */
};

struct sc_staging_waiter {
    struct sc_task task; /* task.step is the owner's; posted once, when frame was set */
    uint8_t *frame;      /* NULL until then; the owner's from then on */

    /* Guarded by the pool's lock (rank 60). Zero before the first use. */
    struct sc_staging_waiter *next, *prev;
    uint32_t io_class;
    uint32_t waiting;
};

/* Errors: SPEC_E_CONFIG (fewer than SC_STAGING_COUNT_MIN frames fit), SPEC_E_NO_MEMORY. */
spec_status sc_staging_open(const struct sc_staging_params *params, struct sc_staging **ret_frames,
                            struct spec_error *reterr);
/* Every frame was put back and nobody waits (asserted). Takes NULL. */
void sc_staging_close(struct sc_staging *frames);

/* A frame, or NULL when the class (enum sc_io_class) may have none now. Contents are undefined. */
uint8_t *sc_staging_take(struct sc_staging *frames, uint32_t io_class);
/* The same for an owner that leaves so many frames free, whatever its class leaves. */
uint8_t *sc_staging_take_leaving(struct sc_staging *frames, uint64_t leaves);
/* How many are free now. */
uint64_t sc_staging_free(struct sc_staging *frames);
/* As sc_staging_take; on NULL the waiter was queued, in the same critical section. The waiter is
 * not waiting, and its task not posted. Its task is posted in `io_class`, possibly before this call
 * returned. */
uint8_t *sc_staging_take_or_wait(struct sc_staging *frames, uint32_t io_class,
                                 struct sc_staging_waiter *waiter);
/* true: it waited, and its task will not be posted for that wait. false: it was not waiting: a
 * frame was handed over (the task is posted, running or done, and owns it), or it never waited. */
bool sc_staging_wait_cancel(struct sc_staging *frames, struct sc_staging_waiter *waiter);
/* A waiting waiter moves to the end of another class's queue, and gets a frame at once when that
 * class may have one. Not waiting: no effect. */
void sc_staging_wait_raise(struct sc_staging *frames, struct sc_staging_waiter *waiter,
                           uint32_t io_class);

/* For an owner that has no use for the memory yet: it lays the frame down and keeps the right to
 * one; pick gives one, never NULL, the one that was used last. So a few frames that are in the
 * processor's caches serve in turn, however many operations wait. */
void sc_staging_lay(struct sc_staging *frames, uint8_t *frame);
uint8_t *sc_staging_candidate(struct sc_staging *frames);

/* Gives a frame back as put does, but it is given to somebody only when no other is free, the one
 * kept last first. Returns a ticket, never 0. */
uint64_t sc_staging_keep(struct sc_staging *frames, uint8_t *frame);
/* true: nobody had the frame since that keep, so its bytes are what they were, and it is the
 * caller's. */
bool sc_staging_claim(struct sc_staging *frames, uint8_t *frame, uint64_t ticket);

/* These bytes of a frame were looked at for the last time: a hint that moves them from this core's
 * own cache to the shared one, so that the next transfer into them need not ask this core for them.
 * It pays where that transfer comes soon (sc_io_is_shallow): else they have left that cache by
 * themselves, and the hint costs. They keep their value. */
void sc_staging_leave(const uint8_t *bytes, uint64_t count);

/* Gives a frame back: any address inside it. Takes NULL. */
void sc_staging_put(struct sc_staging *frames, uint8_t *frame);

/* Constant after open. */
uint64_t sc_staging_frame_bytes(const struct sc_staging *frames); /* op_bytes + slack */
uint64_t sc_staging_count(const struct sc_staging *frames);
/* As many as a class may have when nobody else has any. */
uint64_t sc_staging_count_for(const struct sc_staging *frames, uint32_t io_class);
const uint8_t *sc_staging_memory(const struct sc_staging *frames); /* of all frames */
uint64_t sc_staging_bytes(const struct sc_staging *frames);        /* what was allocated */
/* Frames owned by somebody now: a statistic, and for tests. */
uint64_t sc_staging_used(struct sc_staging *frames);

#endif
