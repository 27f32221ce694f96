/* What a back end of store/io/io.h is made of: a table of functions, and the parts that all of them
 * share (file objects, argument checks, fault points, completion). Only back ends include it: ours,
 * store/io/, and custom ones (struct sc_io_custom).
 *
 * Holds: in_flight counts operations between submit and done; a file object comes from the pool
 * made at open as long as that has any.
 * Threads: as store/io/io.h.
 * Tests: tests/unit/store/test_io.c, test_io_cost.c */
#ifndef SC_STORE_IO_IO_BACKEND_H
#define SC_STORE_IO_IO_BACKEND_H

#include "store/io/io.h"

#include <pthread.h>

#define SC_IO_PATH_INLINE_BYTES 512u /* longer paths are allocated apart */
#define SC_IO_FILES_RESERVED    64u

struct sc_io_file {
    /* Set by open, constant after. */
    struct sc_io *io;
    const char *path; /* path_inline, or allocated */
    uint32_t flags;   /* enum sc_io_open_flags */

    /* store/io/io_posix.c */
    _Atomic int fd;             /* -1: none */
    _Atomic uint32_t is_direct; /* 1: O_DIRECT is on */
    _Atomic uint32_t is_new;    /* 1: made by us and its directory not synced since */
    _Atomic uint32_t is_locked; /* 1: close ends the lock, in forked children too */

    /* store/io/io_uring.c: set by open, until close. */
    uint32_t table_place; /* of registered files, plus 1; 0: not registered */

    void *own; /* a custom back end's: NULL until its file_open */

    /* The pool's: guarded by files_lock. A forked child walks next_open_file without it, so open
     * files are put in and taken out by one store to a pointer. */
    _Atomic(struct sc_io_file *) next_open_file;
    struct sc_io_file *prev_open_file;
    struct sc_io_file *next_free;
    uint32_t is_pooled;
    char path_inline[SC_IO_PATH_INLINE_BYTES];
};

/* Each entry is the call of the same name in store/io/io.h; arguments are checked there. */
struct sc_io_backend {
    const char *name;
    bool is_shallow; /* sc_io_is_shallow */
    void (*close)(struct sc_io *io);
    spec_status (*mkdir)(struct sc_io *io, const char *path, struct spec_error *reterr);
    /* Opens the directory; NULL: paths do not change their meaning here. */
    spec_status (*dir_keep)(struct sc_io *io, const char *path, struct spec_error *reterr);
    spec_status (*file_open)(struct sc_io *io, struct sc_io_file *file, struct spec_error *reterr);
    void (*file_close)(struct sc_io *io, struct sc_io_file *file);
    spec_status (*file_size)(struct sc_io *io, struct sc_io_file *file, uint64_t *ret_bytes,
                             struct spec_error *reterr);
    spec_status (*file_reserve)(struct sc_io *io, struct sc_io_file *file, uint64_t bytes,
                                struct spec_error *reterr);
    spec_status (*file_truncate)(struct sc_io *io, struct sc_io_file *file, uint64_t bytes,
                                 struct spec_error *reterr);
    spec_status (*file_sync)(struct sc_io *io, struct sc_io_file *file, struct spec_error *reterr);
    spec_status (*file_pread)(struct sc_io *io, struct sc_io_file *file, void *buffer,
                              uint64_t bytes, uint64_t offset, struct spec_error *reterr);
    spec_status (*file_pwrite)(struct sc_io *io, struct sc_io_file *file, const void *buffer,
                               uint64_t bytes, uint64_t offset, struct spec_error *reterr);
    spec_status (*file_append)(struct sc_io *io, struct sc_io_file *file, const void *buffer,
                               uint64_t bytes, struct spec_error *reterr);
    spec_status (*file_same)(struct sc_io *io, struct sc_io_file *file, const char *path,
                             bool *ret_same, struct spec_error *reterr);
    spec_status (*unlink)(struct sc_io *io, const char *path, struct spec_error *reterr);
    spec_status (*rename)(struct sc_io *io, const char *from, const char *to,
                          struct spec_error *reterr);
    spec_status (*list)(struct sc_io *io, const char *path,
                        void (*on_name)(const char *name, void *user), void *user,
                        struct spec_error *reterr);
    spec_status (*free_bytes)(struct sc_io *io, const char *path, uint64_t *ret_bytes,
                              struct spec_error *reterr);
    spec_status (*file_lock)(struct sc_io *io, struct sc_io_file *file, struct spec_error *reterr);
    uint64_t (*random)(struct sc_io *io); /* NULL: the system's */
    /* One or more operations, linked by next, that passed the checks of sc_io_submit and the fault
     * points READ and WRITE. */
    void (*submit)(struct sc_io *io, struct sc_io_op *ops);
    /* As sc_io_raise; NULL: operations stay where they are. */
    void (*raise)(struct sc_io *io, struct sc_io_op *const *ops, uint64_t count, uint32_t io_class);
    /* These may be NULL: nothing is registered, nothing is counted, no descriptor is held beside
     * those of files, a directory has no owner. */
    spec_status (*dir_check)(struct sc_io *io, const char *path, struct spec_error *reterr);
    void (*buffers)(struct sc_io *io, const void *base, uint64_t bytes, uint64_t piece_bytes);
    void (*stats)(struct sc_io *io, struct sc_io_counts *ret_stats);
    void (*fork_close)(struct sc_io *io);
    void (*file_share)(struct sc_io *io, struct sc_io_file *file); /* NULL: nobody hears of it */
    bool (*file_is_shared)(struct sc_io *io, struct sc_io_file *file);
};

/* store/io/io_cost.c. */
#define SC_IO_COST_LAST    9u
#define SC_IO_COST_BINS    8u /* below 8 KiB an operation, 16 KiB, ... 512 KiB, from there on */
#define SC_IO_COST_AWAITED UINT64_MAX /* of first_ns: nothing of it has ended */
struct sc_io_cost_watch {
    /* Any thread, relaxed: the stretch, and what flies. */
    _Atomic uint64_t start_ns, ops, bytes, flying_bytes;
    _Atomic bool is_spoiled;
    _Atomic uint64_t first_ns; /* when its first operation ended; 0: others flew before it */

    /* Whoever's set is_sampling: rings. */
    _Atomic bool is_sampling;
    struct sc_io_cost_bin {
        uint64_t count;
        struct sc_io_cost_sample {
            double ns, bytes; /* an operation */
        } last[SC_IO_COST_LAST];
    } bins[SC_IO_COST_BINS];

    /* Any thread, relaxed: what is believed; 0: nothing yet. */
    _Atomic uint64_t bytes_per_s, op_ns;
    _Atomic bool is_measured;
};

struct sc_io {
    /* Set by open, constant after. */
    const struct sc_io_backend *backend;
    struct sc_alloc *alloc;
    struct sc_exec *exec;
    struct sc_log *log;
    struct sc_fault *fault;
    void *own; /* the back end's */
    bool allow_shared, allow_network_fs;

    /* Set by dir_keep, constant after. */
    char *dir;          /* NULL: none is kept */
    _Atomic int dir_fd; /* -1: none, or in a forked child, which closed it */

    /* Guarded by files_lock (rank 62). */
    pthread_mutex_t files_lock;
    struct sc_io_file *files;
    struct sc_io_file *files_free;
    _Atomic(struct sc_io_file *) files_open_first;
    uint64_t files_open;

    /* Any thread. */
    _Atomic uint64_t in_flight;
    _Atomic uint64_t held_bytes;    /* read, and not consumed yet: sc_io_hold */
    _Atomic uint32_t said_buffered; /* a log line is written once */
    _Atomic uint32_t said_zeros;
    struct sc_io_cost_watch cost;
};

/* So many operations are submitted while ops_before are in flight. No lock of the back end's. */
void sc_io_cost_submitted(struct sc_io *io, uint64_t ops_before, uint64_t ops, uint64_t bytes,
                          bool is_reads);
/* The last operation in flight ended; its done was not called yet. */
void sc_io_cost_idle(struct sc_io *io);
/* The first operation of a stretch ended, where first_ns was AWAITED. */
void sc_io_cost_first(struct sc_io *io);
/* What flies now tells nothing. */
static inline void sc_io_cost_spoil(struct sc_io *io)
{
    atomic_store_explicit(&io->cost.is_spoiled, true, memory_order_relaxed);
}

/* The back ends. open sets io->backend and io->own; io's other members are set. */
spec_status sc_io_pread_open(struct sc_io *io, const struct sc_io_params *params,
                             struct spec_error *reterr);
/* SPEC_E_UNSUPPORTED: this kernel or its settings forbid io_uring, or exec is the loop. */
spec_status sc_io_uring_open(struct sc_io *io, const struct sc_io_params *params,
                             struct spec_error *reterr);

/* SPEC_E_NO_SPACE for ENOSPC and EDQUOT, else SPEC_E_IO. */
spec_status sc_io_status_of(int sys_errno);
/* True when bytes at offset (and buffer) may be transferred on this file. */
bool sc_io_is_aligned(const struct sc_io_file *file, const void *buffer, uint64_t offset,
                      uint64_t bytes);
/* Before the first byte of an operation moves; no lock held. false: it ends with SC_IO_DROPPED. */
static inline bool sc_io_op_start(struct sc_io_op *op)
{
    return op->start == NULL || op->start(op);
}
#define SC_IO_INVALID (-1) /* beside errno values: the operation itself is wrong */
#define SC_IO_DROPPED (-2) /* no errno: SPEC_E_DROPPED */
/* Ends an operation: fault point COMPLETION, status, count, done. sys_errno 0: SPEC_OK. The
 * operation, its file and io are not touched after. Executor thread, no lock held. */
void sc_io_op_complete(struct sc_io_op *op, int sys_errno);

/* The lock file's one line, and the text of SPEC_E_LOCKED made from one that was read. */
#define SC_IO_HOLDER_BYTES 256u
struct sc_io_holder {
    uint64_t pid;
    uint64_t start_s; /* since the epoch */
    char boot_id[40];
    char host[65];
};
/* Length of the line, newline included. */
uint64_t sc_io_holder_format(const struct sc_io_holder *holder, char text[SC_IO_HOLDER_BYTES]);
spec_status sc_io_holder_locked(const struct sc_io_file *file, const char *text, uint64_t bytes,
                                struct spec_error *reterr);

#endif
