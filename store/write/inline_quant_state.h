/* The state behind store/write/inline_quant.h, for its two files alone.
 *
 *   inline_quant.c        called as an extent is stored: begin, windows, layers, end; wakes it
 *   inline_quant_task.c   the task, which makes layers and derived sections; open and close
 *
 *   a job   MAKING -> WRITING -> (written) -> OVER        the task's steps
 *              \________/ lost: aborted
 *
 * Threads: store/write/inline_quant.h.
 * Tests: tests/unit/store/test_inline_quant.c */
#ifndef SC_STORE_WRITE_INLINE_QUANT_STATE_H
#define SC_STORE_WRITE_INLINE_QUANT_STATE_H

#include "store/internal.h"
#include "store/write/inline_quant.h"

struct sc_store_desk;
struct sc_store_builder;

enum sc_store_inline_quant_state {
    SC_STORE_INLINE_QUANT_MAKING,
    SC_STORE_INLINE_QUANT_WRITING,
    SC_STORE_INLINE_QUANT_OVER
};

struct sc_store_inline_quant_job {
    struct sc_store_inline_quant *live;
    struct sc_store_piece_entry *pieces; /* [limits.pieces_max] */
    struct sc_store_part *parts;         /* [layer_count] */

    /* Guarded by lock. */
    uint64_t
        quant_stride; /* until the derived section has its places, or never will: its room is due */
    bool is_used, is_left, is_lost, is_written;
    uint64_t order; /* of begin */
    uint64_t extent_id;
    uint32_t packed; /* layers */
    spec_status written;

    /* The task's, but for begin. */
    enum sc_store_inline_quant_state state;
    struct sc_store_extent_entry entry; /* as its commit will make it */
    struct sc_store_builder
        *builder; /* begin leaves it as it is: of layer 0, without a derived section */
};

struct sc_store_inline_quant {
    struct sc_store *store;
    struct sc_task task;

    pthread_mutex_t lock; /* rank 54 */
    /* Guarded by lock. */
    struct sc_store_inline_quant_job jobs[SC_STORE_INLINE_QUANT_MAX];
    uint64_t order;
    bool is_posted, is_closing;

    /* The task's. */
    struct sc_store_inline_quant_job *current; /* within a layer */
    struct sc_store_desk *desk;
};

/* Behind all that is wanted sooner; but where writes are the executor's own tasks, before those:
 * they are queued by the hundred, and their frames are gone when the last is done. */
static inline enum sc_io_class sc_store_inline_quant_io_class(const struct sc_store *store)
{
    return sc_io_is_shallow(store->io) ? SC_IO_CLASS_SPECULATIVE : SC_IO_CLASS_BACKGROUND;
}

/* Lock held: the task has something to do. */
void sc_store_inline_quant_wake(struct sc_store_inline_quant *live);
/* The derived section has its places, or never will. Once more: no effect. */
void sc_store_inline_quant_due_give(struct sc_store_inline_quant_job *job);

#endif
