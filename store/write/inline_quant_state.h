/* inline_quant_state: state of inline quantisation, for its two files only.
 *
 *   inline_quant.c        called as an extent is stored: begin, windows, layers, end
 *   inline_quant_task.c   the task: makes layers and derived sections; open and close
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
    struct sc_store_part *parts;

    /* Guarded by lock. */
    uint64_t
        quant_stride; /* room reserved until the derived section has its places, or never will */
    bool is_used, is_left, is_lost, is_written;
    uint64_t order;
    uint64_t extent_id;
    uint32_t packed;
    spec_status written;

    /* Owned by the task, except in begin. */
    enum sc_store_inline_quant_state state;
    struct sc_store_extent_entry entry; /* entry that the commit will make */
    struct sc_store_builder
        *builder; /* not changed by begin: at layer 0, without a derived section */
};

struct sc_store_inline_quant {
    struct sc_store *store;
    struct sc_task task;

    pthread_mutex_t lock; /* rank 54 */
    /* Guarded by lock. */
    struct sc_store_inline_quant_job jobs[SC_STORE_INLINE_QUANT_MAX];
    uint64_t order;
    bool is_posted, is_closing;

    /* Owned by the task. */
    struct sc_store_inline_quant_job *current; /* job with an unfinished layer */
    struct sc_store_desk *desk;
};

/* Returns the lowest class. If writes are tasks of the executor, a class before theirs: hundreds
 * are queued, and when the last is done the frames are reused. */
static inline enum sc_io_class sc_store_inline_quant_io_class(const struct sc_store *store)
{
    return sc_io_is_shallow(store->io) ? SC_IO_CLASS_SPECULATIVE : SC_IO_CLASS_BACKGROUND;
}

void sc_store_inline_quant_wake(struct sc_store_inline_quant *live);
/* Returns the reserved room, once: the derived section has its places, or never will. */
void sc_store_inline_quant_due_give(struct sc_store_inline_quant_job *job);

#endif
