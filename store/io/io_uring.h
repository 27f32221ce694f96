/* io_uring: state shared by io_uring.c (steps of the rings) and io_uring_open.c (open and close).
 * Invariants, Threads: store/io/io_uring.c.
 * Tests: tests/unit/store/test_io_uring.c */
#ifndef SC_STORE_IO_IO_URING_H
#define SC_STORE_IO_IO_URING_H

#include "store/io/io_posix.h"

#include <liburing.h>
#include <unistd.h>

#define SC_URING_SLICES_MAX 1024u
#define SC_URING_NONE       UINT32_MAX

struct sc_uring_slot {
    struct sc_io_op *op; /* NULL: free */
    uint32_t generation;
    uint32_t next; /* slot in the free list or the retry list */
    uint32_t tries;
    bool was_direct;
};

/* Staging memory [base, base + bytes) in slices that no operation crosses. */
struct sc_uring_region {
    const uint8_t *base;
    uint64_t bytes, slice_bytes;
    uint32_t slice_count;
};

struct sc_uring_ring {
    /* Set by open, constant after. */
    struct sc_uring *uring;
    struct sc_uring_slot *slots;

    /* Owned by the stepping thread. */
    struct sc_task task;
    struct io_uring ring;
    struct sc_uring_region region; /* copy made by the last fill */
    uint32_t free_slot, free_count, retry_slot;
    uint32_t flying, flying_demand; /* slots with an operation */
    uint64_t released_bytes;        /* completed, not yet subtracted from inflight_bytes */
    uint32_t released_ops;
    uint32_t wanted_slice, plain_ops;
    uint8_t pinned[SC_URING_SLICES_MAX];
    struct sc_io_op *ended, **ended_tail; /* oldest first; done not called yet */
    bool has_table;                       /* a buffer table is registered */
    bool pins;                            /* false: the kernel refused */
    bool is_dead;

    /* Guarded by lock. */
    struct sc_uring_ring *next_idle;
};

struct sc_uring {
    /* Set by open, constant after. */
    struct sc_io *io;
    struct sc_exec *exec;
    struct sc_uring_ring *rings;
    struct sc_uring_slot *slots;
    uint32_t ring_count, slot_count;
    pid_t owner_pid;
    uint64_t share_bytes[SC_IO_CLASSES];
    uint32_t share_ops[SC_IO_CLASSES];

    /* Guarded by lock (rank 71). */
    pthread_mutex_t lock;
    struct {
        struct sc_io_op *head, *tail;
    } queue[SC_IO_CLASSES];
    uint64_t inflight_bytes, inflight_bytes_max;
    uint64_t quiet_bytes; /* bytes written since a read was taken */
    uint32_t inflight_ops;
    struct sc_uring_ring *idle;
    struct sc_uring_region region;
    bool is_closing;

    /* Written under lock; close waits on it. */
    _Atomic uint32_t idle_count;

    /* Any thread: rings that will check the queue before they sleep. */
    _Atomic uint32_t awake_count;

    /* Guarded by table_lock (rank 63). */
    pthread_mutex_t table_lock;
    uint32_t *table_free; /* stack of free places */
    uint32_t table_free_count, table_count;

    /* Any thread, relaxed: counters, and log lines written once. */
    _Atomic uint64_t enters, ops, short_ops, late;
    _Atomic uint32_t said_plain, said_dead;
};

static inline bool sc_uring_is_child(const struct sc_uring *uring)
{
    return uring->owner_pid != getpid();
}

void sc_uring_step(struct sc_task *task);
void sc_uring_submit(struct sc_io *io, struct sc_io_op *ops);
void sc_uring_raise(struct sc_io *io, struct sc_io_op *const *ops, uint64_t count,
                    uint32_t io_class);
void sc_uring_buffers(struct sc_io *io, const void *base, uint64_t bytes, uint64_t piece_bytes);

#endif
