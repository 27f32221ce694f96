/* io_backend: the back ends' function table and shared parts (file objects, checks, completion).
 * Only back ends include it: store/io/ and custom ones (struct sc_io_custom).
 * Invariants: in_flight counts operations between submit and done.
 * Tests: tests/unit/store/test_io.c, test_io_cost.c */
#ifndef SC_STORE_IO_IO_BACKEND_H
#define SC_STORE_IO_IO_BACKEND_H

#include "store/io/io.h"

#include <pthread.h>

#define SC_IO_PATH_INLINE_BYTES 512u /* longer paths are allocated */
#define SC_IO_FILES_RESERVED    64u

struct sc_io_file {
    struct sc_io *io;
    const char *path; /* path_inline, or allocated */
    uint32_t flags;   /* enum sc_io_open_flags */

    /* io_posix.c's. */
    _Atomic int fd;             /* -1: none */
    _Atomic uint32_t is_direct; /* 1: O_DIRECT is on */
    _Atomic uint32_t is_new;    /* 1: created by us, directory not synced since */
    _Atomic uint32_t is_locked; /* 1: close must unlock: forked children share the lock */

    /* io_uring.c's: set by open, until close. */
    uint32_t table_place; /* index in the registered files + 1; 0: not registered */

    void *own; /* a custom back end's; NULL until its file_open */

    /* The pool's, guarded by files_lock. A forked child walks next_open_file without the lock, so
     * links change by a single pointer store. */
    _Atomic(struct sc_io_file *) next_open_file;
    struct sc_io_file *prev_open_file;
    struct sc_io_file *next_free;
    uint32_t is_pooled;
    char path_inline[SC_IO_PATH_INLINE_BYTES];
};

/* Calls of the same names in store/io/io.h, which has checked the arguments. */
struct sc_io_backend {
    const char *name;
    bool is_shallow; /* sc_io_is_shallow */
    void (*close)(struct sc_io *io);
    spec_status (*mkdir)(struct sc_io *io, const char *path, struct spec_error *reterr);
    /* Opens the directory; NULL: paths are stable on this back end. */
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
                               uint64_t bytes, uint64_t *ret_end, struct spec_error *reterr);
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
    /* Takes operations, linked by next, that passed sc_io_submit's checks. */
    void (*submit)(struct sc_io *io, struct sc_io_op *ops);
    /* As sc_io_raise; NULL: operations keep their class. */
    void (*raise)(struct sc_io *io, struct sc_io_op *const *ops, uint64_t count, uint32_t io_class);
    /* Optional. */
    uint64_t (*stamp)(struct sc_io *io, const char *path); /* NULL: UNKNOWN */
    spec_status (*dir_check)(struct sc_io *io, const char *path, struct spec_error *reterr);
    void (*buffers)(struct sc_io *io, const void *base, uint64_t bytes, uint64_t piece_bytes);
    void (*stats)(struct sc_io *io, struct sc_io_counts *ret_stats);
    void (*fork_close)(struct sc_io *io);
    /* NULL: every process has it */
    spec_status (*file_claim)(struct sc_io *io, struct sc_io_file *file, struct spec_error *reterr);
    void (*file_unclaim)(struct sc_io *io, struct sc_io_file *file); /* with file_claim */
    /* NULL: no two processes can store */
    spec_status (*file_lock_shared)(struct sc_io *io, struct sc_io_file *file,
                                    struct spec_error *reterr);
    /* NULL: processes are not visible */
    spec_status (*file_join)(struct sc_io *io, struct sc_io_file *file, uint32_t places,
                             uint32_t *ret_place, struct spec_error *reterr);
    uint32_t (*file_joined)(struct sc_io *io, struct sc_io_file *file, uint32_t places);
    /* NULL: no memory is shared */
    void *(*file_map)(struct sc_io *io, struct sc_io_file *file, uint64_t bytes);
    void (*unmap)(struct sc_io *io, void *memory, uint64_t bytes);
    /* NULL: readers are not visible */
    void (*file_share)(struct sc_io *io, struct sc_io_file *file);
    bool (*file_is_shared)(struct sc_io *io, struct sc_io_file *file);
};

#define SC_IO_COST_LAST    9u
#define SC_IO_COST_BINS    8u /* bytes per operation: < 8 KiB, < 16 KiB, ... < 512 KiB, more */
#define SC_IO_COST_AWAITED UINT64_MAX /* value of first_ns until the stretch's first completion */
struct sc_io_cost_watch {
    /* Any thread, relaxed: the current stretch, and bytes in flight. */
    _Atomic uint64_t start_ns, ops, bytes, flying_bytes;
    _Atomic bool is_spoiled;
    _Atomic uint64_t first_ns; /* first completion; 0: others were in flight before */

    /* Owned by the thread that set is_sampling. */
    _Atomic bool is_sampling;
    struct sc_io_cost_bin {
        uint64_t count;
        struct sc_io_cost_sample {
            double ns, bytes; /* per operation */
        } last[SC_IO_COST_LAST];
    } bins[SC_IO_COST_BINS];

    /* Any thread, relaxed: the current estimate; 0: none yet. */
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
    void *own; /* owned by the back end */
    bool allow_shared, allow_network_fs;

    /* Set by dir_keep, constant after. */
    char *dir;          /* kept directory; NULL: none */
    _Atomic int dir_fd; /* -1: none, or closed by a forked child */

    /* Guarded by files_lock (rank 62). */
    pthread_mutex_t files_lock;
    struct sc_io_file *files;
    struct sc_io_file *files_free;
    _Atomic(struct sc_io_file *) files_open_first;
    uint64_t files_open;

    /* Any thread, relaxed. */
    _Atomic uint64_t in_flight;
    _Atomic uint64_t held_bytes;    /* bytes read and not consumed yet (sc_io_hold) */
    _Atomic uint32_t said_buffered; /* 1: the log line was written */
    _Atomic uint32_t said_zeros;
    struct sc_io_cost_watch cost;
};

/* Records a submission of `ops` operations while ops_before were in flight. Takes no lock. */
void sc_io_cost_submitted(struct sc_io *io, uint64_t ops_before, uint64_t ops, uint64_t bytes,
                          bool is_reads);
/* Records that nothing is in flight. Called before the last operation's done. */
void sc_io_cost_idle(struct sc_io *io);
/* Records the first completion of a stretch whose first_ns is SC_IO_COST_AWAITED. */
void sc_io_cost_first(struct sc_io *io);
/* Excludes the current stretch from the measurement. */
static inline void sc_io_cost_spoil(struct sc_io *io)
{
    atomic_store_explicit(&io->cost.is_spoiled, true, memory_order_relaxed);
}

/* Open a back end: set io->backend and io->own. The other members of io are already set. */
spec_status sc_io_pread_open(struct sc_io *io, const struct sc_io_params *params,
                             struct spec_error *reterr);
/* SPEC_E_UNSUPPORTED: the kernel or its settings forbid io_uring, or the executor is the loop. */
spec_status sc_io_uring_open(struct sc_io *io, const struct sc_io_params *params,
                             struct spec_error *reterr);

/* Returns SPEC_E_NO_SPACE for ENOSPC, EDQUOT and EFBIG, else SPEC_E_IO; 0: SPEC_OK. */
spec_status sc_io_status_of(int sys_errno);
/* Returns true if the file may transfer these bytes (page alignment of direct files). */
bool sc_io_is_aligned(const struct sc_io_file *file, const void *buffer, uint64_t offset,
                      uint64_t bytes);
/* Call before the first byte moves, without a lock. false: complete with SC_IO_DROPPED. */
static inline bool sc_io_op_start(struct sc_io_op *op)
{
    return op->start == NULL || op->start(op);
}
#define SC_IO_INVALID (-1) /* not an errno: SPEC_E_INVALID */
#define SC_IO_DROPPED (-2) /* not an errno: SPEC_E_DROPPED */
/* Ends an operation: fault point COMPLETION, status, counters, done. sys_errno 0: SPEC_OK. The
 * operation, file and io must not be used afterwards. No lock held. */
void sc_io_op_complete(struct sc_io_op *op, int sys_errno);

/* The line in the lock file and in places, and the text of SPEC_E_LOCKED made from it. */
#define SC_IO_HOLDER_BYTES SC_IO_PLACE_BYTES
struct sc_io_holder {
    uint64_t pid;
    uint64_t start_s; /* seconds since the Unix epoch */
    char boot_id[40];
    char host[65];
};
/* Returns the line's length. */
uint64_t sc_io_holder_format(const struct sc_io_holder *holder, char text[SC_IO_HOLDER_BYTES]);
spec_status sc_io_holder_locked(const struct sc_io_file *file, const char *text, uint64_t bytes,
                                struct spec_error *reterr);

#endif
