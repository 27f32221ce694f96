/* The queue of writes between passes and the device: which window is written next, and whose rows
 * are given up when staging has no free frame.
 *
 *   put_layer -> windows -> queue of their extent --feed--> device (at most a few in flight)
 *
 *   order     1. extents that have all layers, those of small passes first, then the oldest
 *             2. the others by their place in their pass, so that beginnings come first
 *   no frame  the last extent of the pass that holds most frames is cancelled: its queued windows
 *             are never written, and their frames are free at once
 *
 * The layers of a pass arrive one after the other, so an extent is worth nothing before its last
 * layer. If a pass is larger than staging, writing in the order of arrival spends the device on
 * rows that will be dropped. In this order the device works on the prefix, and what staging cannot
 * hold is dropped from the end, one extent at a time.
 *
 * Holds: a window is written once, or never; an extent that has all layers is not cancelled; the
 * device always has work while windows are queued.
 * Does not: pack rows, know tokens, wait (sc_store_write_await does).
 * Threads: any. One lock (rank 53); under it only that of store/write/inline_quant.h (rank 54) is
 * taken.
 * Tests: tests/unit/plugin/test_big_passes.c, test_big_passes_more.c,
 * test_big_passes_threads.c */
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
    uint64_t in_flight_max;        /* bytes */
    uint64_t leaves, leaves_small; /* frames that stay free; of small passes */

    pthread_mutex_t lock; /* rank 53 */
    /* Guarded by lock. */
    struct sc_heap heap;          /* numbers of extents with queued windows, the next at the root */
    struct sc_store_extent *open; /* list of extents whose producer has not ended */
    uint64_t in_flight_bytes;     /* fed to the device and not complete */
    uint64_t packing;             /* extents of which a layer is being packed */

    _Atomic int64_t open_frames; /* of extents that lack layers */
};

spec_status sc_store_write_queue_open(struct sc_store *store, struct spec_error *reterr);
void sc_store_write_queue_close(struct sc_store *store);

/* ---- The producer of an extent -------------------------------------------------------------- */

/* The extent's places were reserved. From here on it may be cancelled, if its pass has a share. */
void sc_store_write_queue_begin(struct sc_store_extent *extent);
/* Around the packing of a layer. False: the extent was cancelled. */
bool sc_store_write_queue_layer_begin(struct sc_store_extent *extent);
bool sc_store_write_queue_layer_end(struct sc_store_extent *extent, bool is_last);
/* The producer puts no more layers. Unless all of them are packed, queued windows are cancelled. */
void sc_store_write_queue_end(struct sc_store_extent *extent);
/* No frame will be free by itself: nothing is queued or in flight, extents that lack layers have
 * the frames, and all that are being packed wait for one. */
bool sc_store_write_queue_is_stuck(const struct sc_store_extent *extent, uint64_t leaves);
/* The device could take more than is queued. */
bool sc_store_write_queue_is_idle(struct sc_store *store);
/* Frames that the extent leaves free. Small passes, as those of decoded tokens are, may have some
 * of those that are kept for loads: they are written first. */
uint64_t sc_store_write_queue_leaves(const struct sc_store_extent *extent);
/* A frame was taken for a window of the extent, or given back unwritten. */
void sc_store_write_queue_holds(struct sc_store_extent *extent, int64_t frames);
/* Windows of the extent that are filled. Each has a reference of the extent. */
void sc_store_write_queue_push(struct sc_store_extent *extent, struct sc_store_write **writes,
                               uint64_t count);
/* Cancels an extent so that frames become free: the last one of the pass that holds most. False:
 * that is this extent itself, or there is none. */
bool sc_store_write_queue_make_room(struct sc_store_extent *extent);

/* ---- Completions ---------------------------------------------------------------------------- */

/* A write that came from the queue is complete. Then call feed. */
void sc_store_write_queue_written(struct sc_store *store, uint64_t bytes);
/* Passes windows on to the device, as many as may be in flight. */
void sc_store_write_queue_feed(struct sc_store *store);

#endif
