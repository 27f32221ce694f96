/* write_queue: chooses the next window to write, and the extent to cancel when staging is full.
 *
 *   put_layer -> windows -> queue of their extent --feed--> device (at most a few in flight)
 *
 *   order     1. extents that have all layers, small passes first, then the oldest
 *             2. the others by their place in their pass, so that beginnings are first
 *   no frame  the last extent of the pass that holds most frames is cancelled: its queued windows
 *             are never written, and their frames are free at once
 *
 * An extent is worth nothing before its last layer. If a pass is larger than staging, writing in
 * order of arrival would spend the device on rows that are dropped later. In this order the device
 * writes the prefix, and what staging cannot hold is dropped from the end, one extent at a time.
 *
 * Invariants: a window is written once, or never. An extent with all layers is not cancelled. The
 * device has work while windows are queued.
 * Threads: any. One lock (rank 53); under it only that of inline_quant.h (rank 54) is taken.
 * Tests: tests/unit/plugin/test_big_passes.c, test_big_passes_more.c, test_big_passes_threads.c */
#ifndef SC_STORE_WRITE_WRITE_QUEUE_H
#define SC_STORE_WRITE_WRITE_QUEUE_H

#include "base/heap.h"
#include "base/status.h"

#include <pthread.h>

struct sc_store;
struct sc_store_extent;
struct sc_store_write;

struct sc_store_write_queue {
    /* Constant after open. */
    bool is_open;
    uint64_t in_flight_max;
    uint64_t leaves, leaves_small; /* frames left free by large passes; by small passes */

    pthread_mutex_t lock; /* rank 53 */
    /* Guarded by lock. */
    struct sc_heap heap;          /* numbers of extents with queued windows; the next is the root */
    struct sc_store_extent *open; /* list of extents whose producer has not ended */
    uint64_t in_flight_bytes;     /* submitted to the device and not complete */
    uint64_t packing;             /* extents whose layer is being packed */

    _Atomic int64_t open_frames; /* frames of extents that lack layers */
};

spec_status sc_store_write_queue_open(struct sc_store *store, struct spec_error *reterr);
void sc_store_write_queue_close(struct sc_store *store);

/* ---- The producer of an extent -------------------------------------------------------------- */

/* Adds an extent with reserved places. From now on it may be cancelled if its pass has a share. */
void sc_store_write_queue_begin(struct sc_store_extent *extent);
/* Bracket the packing of a layer. Return false if the extent was cancelled. */
bool sc_store_write_queue_layer_begin(struct sc_store_extent *extent);
bool sc_store_write_queue_layer_end(struct sc_store_extent *extent, bool is_last);
/* Ends the producer's part. Unless all layers are packed, queued windows are cancelled. */
void sc_store_write_queue_end(struct sc_store_extent *extent);
/* Returns true if no frame will be freed by itself: nothing is queued or in flight, extents that
 * lack layers have the frames, and all that are being packed wait. */
bool sc_store_write_queue_is_stuck(const struct sc_store_extent *extent, uint64_t leaves);
/* Returns true if the device could take more than is queued. */
bool sc_store_write_queue_is_idle(struct sc_store *store);
/* Returns the frames that the extent leaves free. Small passes, such as decoded tokens, may use
 * some that are reserved for loads, as they are written first. */
uint64_t sc_store_write_queue_leaves(const struct sc_store_extent *extent);
/* Counts frames taken for windows of the extent, or returned unwritten. */
void sc_store_write_queue_holds(struct sc_store_extent *extent, int64_t frames);
/* Queues filled windows. Each has a reference of the extent. */
void sc_store_write_queue_push(struct sc_store_extent *extent, struct sc_store_write **writes,
                               uint64_t count);
/* Cancels the last extent of the pass with most frames. Returns false if that is this one, or
 * none. */
bool sc_store_write_queue_make_room(struct sc_store_extent *extent);

/* ---- Completions ---------------------------------------------------------------------------- */

/* Notes that a queued write has completed; the caller then calls feed. */
void sc_store_write_queue_written(struct sc_store *store, uint64_t bytes);
/* Submits windows to the device, as many as may be in flight. */
void sc_store_write_queue_feed(struct sc_store *store);

#endif
