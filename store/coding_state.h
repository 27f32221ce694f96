/* The state of what codes rows that are being stored: its two files' alone.
 *
 *   coding.c        windows, an extent's beginning and end: for who stores; it wakes the task
 *   coding_task.c   the task: slabs, layers, annexes; open and close
 *
 *   a coder   BEGUN -> CODING -> PUT -> (written) -> OVER        the task's steps
 *                 \________/-> aborted ->/
 *   a window  write's -> kept (free, with a ticket) -> claimed for a slab -> kept .. -> put
 *
 * Threads: store/coding.h.
 * Tests: tests/unit/store/test_coding.c */
#ifndef SC_STORE_CODING_STATE_H
#define SC_STORE_CODING_STATE_H

#include "store/coding.h"
#include "store/where.h"

struct sc_store_coding_window {                 /* one a frame of the pool */
    struct sc_store_coder *coder;               /* NULL: its rows are not waited for */
    struct sc_store_coding_window *prev, *next; /* the coder's, in the order of the file */
    uint64_t start, end;                        /* bytes of the segment file */
    uint64_t ticket;                            /* once it left its write and is not pinned */
    uint32_t part;
    bool has_left, is_pinned; /* its write ended; the task reads it */
};

struct sc_store_coder {
    struct sc_store *store;
    struct sc_store_piece_plan *pieces; /* [pieces_max] */
    struct sc_store_part *parts;        /* [layer_count] */

    /* Guarded by lock. */
    bool is_used, is_left, is_lost, is_written, is_put, is_over;
    uint64_t order; /* of begin */
    uint64_t extent_id;
    uint32_t packed; /* layers */
    spec_status written;
    struct sc_store_coding_window *first, *last;

    /* Constant from begin on. */
    struct sc_store_place place;
    uint64_t piece_count, part_count, row_count, layer_bytes;

    /* The task's. */
    struct sc_store_extent *annex;
    uint32_t layer, waits;
    uint64_t piece, row; /* the next of the layer */
};

struct sc_store_coding {
    struct sc_store *store;
    struct sc_task task;

    pthread_mutex_t lock; /* rank 55 */
    /* Guarded by lock. */
    struct sc_store_coder coders[SC_STORE_CODERS];
    struct sc_store_coding_window *windows; /* [frames] */
    uint64_t order;
    bool is_posted, is_closing;

    /* The task's. */
    struct sc_store_coder *current; /* within a layer */
    uint8_t *codes;                 /* of a layer */
    uint64_t codes_bytes;
    struct sc_store_coding_window **pins; /* [pins_max] of a slab */
    uint64_t pins_max, pin_count;
    uint8_t *bounce; /* [pins_max] rows that straddle two windows */
    uint64_t bounced;
};

static inline uint8_t *sc_store_coding_frame_of(const struct sc_store *store,
                                                const struct sc_store_coding_window *window)
{
    uint64_t i = (uint64_t)(window - store->coding->windows);
    return (uint8_t *)(uintptr_t)sc_frames_memory(store->frames) +
           i * sc_frames_frame_bytes(store->frames);
}

/* Behind all that is wanted sooner; but where writes are the executor's own tasks, before those:
 * they are queued by the hundred, and their frames are gone when the last is done. */
static inline enum sc_exec_lane sc_store_coding_lane(const struct sc_store *store)
{
    return sc_io_is_shallow(store->io) ? SC_LANE_SPECULATIVE : SC_LANE_BACKGROUND;
}

/* Lock held: the task has something to do. */
void sc_store_coding_wake(struct sc_store_coding *coding);
/* Lock held. Its rows, or the rows of all that the coder has, are coded, or never will be. */
void sc_store_window_leave(struct sc_store *store, struct sc_store_coding_window *window);
void sc_store_windows_leave(struct sc_store_coder *coder);
/* Frames that a layer of codes needs at once. */
uint64_t sc_store_coder_frames(const struct sc_store_coder *coder);
/* Rows come first: codes leave them an eighth of the frames more than they may have. */
uint64_t sc_store_coding_frames_most(const struct sc_store *store);

#endif
