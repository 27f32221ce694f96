/* io: asynchronous file operations, and the blocking file calls that the store needs.
 *
 * Back ends: io_uring (rings with threads of their own), pread (executor threads), custom (struct
 * sc_io_custom: the tests' simulated disk). The caller owns each operation and submits in batches.
 * `done` runs on a thread of the executor or back end, must be short and must not wait for
 * operations.
 *
 * Invariants: an operation completes once, whole (short transfers continue) or with an error.
 * `done` runs after the last byte moved; the buffer is not touched afterwards. No allocation per
 * operation.
 * Fault points (base/fault.h): READ, WRITE: EIO before a byte moves. COMPLETION: error after all
 * moved. RESERVE: ENOSPC from reserve and blocking writes. SYNC: EIO.
 * Tests: tests/unit/store/test_io.c (one body for every back end) */
#ifndef SC_STORE_IO_IO_H
#define SC_STORE_IO_IO_H

#include "base/exec.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/status.h"

#define SC_IO_PAGE_BYTES 4096u /* alignment of direct offsets, sizes and buffers */

enum sc_io_kind { SC_IO_READ, SC_IO_WRITE };

struct sc_io_file; /* created by open, freed by close */

struct sc_io_op {
    /* Set by the caller, constant until done. */
    struct sc_io_file *file;
    uint8_t *buffer; /* page-aligned for direct files */
    uint64_t offset; /* page-aligned for direct files */
    uint64_t bytes;  /* multiple of a page for direct files; > 0 */
    uint32_t kind;
    uint32_t io_class; /* enum sc_io_class */
    void (*done)(struct sc_io_op *op);
    void *user;
    /* Optional, called once before the first byte moves, with no back-end lock, unless the
     * operation fails earlier. May set `buffer`, so that queued operations hold no memory; must not
     * wait. false: the operation ends with SPEC_E_DROPPED and the device never sees it. */
    bool (*start)(struct sc_io_op *op);
    bool is_long; /* `done` takes 100 us or more: queued operations are submitted before it runs */

    /* Set by the back end before `done`. SPEC_E_INVALID: bytes is 0, offset + bytes overflows, or
     * an SC_IO_OPEN_DIRECT file is not aligned (whether or not O_DIRECT was granted). */
    spec_status status;
    int32_t sys_errno; /* 0 unless status is SPEC_E_IO or SPEC_E_NO_SPACE; EIO at the file's end */

    /* Owned by the back end. */
    struct sc_task task;
    struct sc_io_op *next;
    struct sc_io *io;
    uint64_t moved_bytes; /* after a short transfer */
    uint64_t state;
};

struct sc_io;

enum sc_io_open_flags {
    SC_IO_OPEN_CREATE = 1,    /* create if absent */
    SC_IO_OPEN_EXCLUSIVE = 2, /* with CREATE: fail if present */
    SC_IO_OPEN_WRITE = 4,     /* read and write; otherwise read only */
    SC_IO_OPEN_DIRECT = 8,    /* O_DIRECT; if refused, buffered + DONTNEED, logged once */
    SC_IO_OPEN_APPEND = 16    /* with WRITE, without DIRECT: written only by sc_io_file_append */
};

/* A back end from outside this folder. Constant while open. */
struct sc_io_custom {
    /* Sets io->backend and io->own (store/io/io_backend.h). */
    spec_status (*open)(struct sc_io *io, void *user, struct spec_error *reterr);
    void *user;
    uint64_t seed; /* seed of the executor loop's order, for a connector on this back end */
};

struct sc_io_params {
    struct sc_alloc *alloc;
    struct sc_exec *exec;
    struct sc_log *log;
    struct sc_fault *fault;
    uint32_t backend;    /* enum sc_config_backend; AUTO: io_uring where it works, else pread */
    uint32_t ring_count; /* io_uring: threads, each with a ring; 0: 2 */
    uint64_t in_flight_bytes; /* io_uring: target bytes in flight over all rings; 0: 8 MiB */
    /* NULL, or the back end to use instead of the three above. */
    const struct sc_io_custom *custom;
    bool allow_shared; /* accept posix files and directories of other owners (base/path_owner.h) */
    bool allow_network_fs;   /* accept directories on a network file system */
    uint64_t files_reserved; /* file objects allocated at open; 0: 64. More are allocated singly */
};

/* Logs the back end, and why AUTO left io_uring. SPEC_E_UNSUPPORTED: no io_uring here. */
spec_status sc_io_open(const struct sc_io_params *params, struct sc_io **ret_io,
                       struct spec_error *reterr);
void sc_io_close(struct sc_io *io); /* no open file, nothing in flight */
const char *sc_io_name(const struct sc_io *io);

/* Blocking calls for open, recovery and background tasks; paths are full paths. Errors: SPEC_E_IO
 * (sys_errno, path), SPEC_E_NO_SPACE; beyond RLIMIT_FSIZE NO_SPACE with EFBIG before a byte moves
 * (the kernel would raise SIGXFSZ). */
/* mode 0700; an existing directory of ours is accepted */
spec_status sc_io_mkdir(struct sc_io *io, const char *path, struct spec_error *reterr);
/* SPEC_E_IO with EACCES: the directory is not ours (base/path_owner.h). SPEC_E_UNSUPPORTED: it is
 * on a network file system, which may not forward locks. */
spec_status sc_io_dir_check(struct sc_io *io, const char *path, struct spec_error *reterr);
/* Opens the directory and looks up names in it through that descriptor, even if the path is moved
 * or replaced later. Once per back end, with no other call running. */
spec_status sc_io_dir_keep(struct sc_io *io, const char *path, struct spec_error *reterr);
/* Returns RLIMIT_FSIZE, the longest file allowed now; UINT64_MAX: unlimited. */
uint64_t sc_io_file_limit(void);
/* mode 0600; absent: SPEC_E_IO with ENOENT; not ours: SPEC_E_IO with EACCES */
spec_status sc_io_file_open(struct sc_io *io, const char *path, uint32_t flags,
                            struct sc_io_file **ret_file, struct spec_error *reterr);
void sc_io_file_close(struct sc_io *io, struct sc_io_file *file);
spec_status sc_io_file_size(struct sc_io *io, struct sc_io_file *file, uint64_t *ret_bytes,
                            struct spec_error *reterr);
/* Allocates [0, bytes) and extends the file over it. */
spec_status sc_io_file_reserve(struct sc_io *io, struct sc_io_file *file, uint64_t bytes,
                               struct spec_error *reterr);
spec_status sc_io_file_truncate(struct sc_io *io, struct sc_io_file *file, uint64_t bytes,
                                struct spec_error *reterr);
spec_status sc_io_file_sync(struct sc_io *io, struct sc_io_file *file, struct spec_error *reterr);
/* Blocking transfers of buffered files: whole or an error. SPEC_E_IO: past the file's end. */
spec_status sc_io_file_pread(struct sc_io *io, struct sc_io_file *file, void *buffer,
                             uint64_t bytes, uint64_t offset, struct spec_error *reterr);
spec_status sc_io_file_pwrite(struct sc_io *io, struct sc_io_file *file, const void *buffer,
                              uint64_t bytes, uint64_t offset, struct spec_error *reterr);
/* Appends in one write, atomically with other appenders; after an error a prefix may be there.
 * ret_end: the offset behind the last byte; NULL: not wanted. One append of an open file at a time.
 * SPEC_E_INVALID: the file was not opened with APPEND. */
spec_status sc_io_file_append(struct sc_io *io, struct sc_io_file *file, const void *buffer,
                              uint64_t bytes, uint64_t *ret_end, struct spec_error *reterr);
/* Sets ret_same if path names the open file; an absent path gives false and SPEC_OK. */
spec_status sc_io_file_same(struct sc_io *io, struct sc_io_file *file, const char *path,
                            bool *ret_same, struct spec_error *reterr);
/* Returns a number that is another when the file's bytes or the directory's names have changed, or
 * the path names another. ABSENT: there is no such name. UNKNOWN: no answer, or the last change is
 * so young that the next one may have the same time (file systems count up to 2 s as one). */
#define SC_IO_STAMP_UNKNOWN 0u
#define SC_IO_STAMP_ABSENT  1u
uint64_t sc_io_stamp(struct sc_io *io, const char *path);
spec_status sc_io_unlink(struct sc_io *io, const char *path, struct spec_error *reterr);
/* Renames atomically over `to` (same directory) and syncs the directory; sync the file first. After
 * an error either name may exist, also later. */
spec_status sc_io_rename(struct sc_io *io, const char *from, const char *to,
                         struct spec_error *reterr);
/* Calls on_name for every directory entry except "." and "..". */
spec_status sc_io_list(struct sc_io *io, const char *path,
                       void (*on_name)(const char *name, void *user), void *user,
                       struct spec_error *reterr);
/* Returns the bytes free on path's file system. */
spec_status sc_io_free_bytes(struct sc_io *io, const char *path, uint64_t *ret_bytes,
                             struct spec_error *reterr);
/* Returns a random number from the system, or from a back end that repeats its runs. */
spec_status sc_io_random(struct sc_io *io, uint64_t *ret_number, struct spec_error *reterr);
/* Takes the writer lock (OFD) and writes pid, boot id, host and start time into the file.
 * SPEC_E_LOCKED: the text names the holder. Only sc_io_file_close releases it in spite of a forked
 * child that inherited the descriptor. */
spec_status sc_io_file_lock(struct sc_io *io, struct sc_io_file *file, struct spec_error *reterr);
/* Claims the file by an exclusive lock (OFD) on its description: nobody else can, until the process
 * and the last operation on it have ended, or until sc_io_file_close. So a process that was killed
 * keeps the claim for as long as the kernel still writes for it. SPEC_E_LOCKED: another process has
 * it. Nothing is written. Never blocks. */
spec_status sc_io_file_claim(struct sc_io *io, struct sc_io_file *file, struct spec_error *reterr);
/* Gives a claim back. No operation that writes is in flight. */
void sc_io_file_unclaim(struct sc_io *io, struct sc_io_file *file);
/* Takes the writer lock together with others that take it so; sc_io_file_lock excludes both.
 * Writes nothing. SPEC_E_LOCKED: another process has it alone; the text names the holder.
 * SPEC_E_UNSUPPORTED: the back end cannot. Never blocks. */
spec_status sc_io_file_lock_shared(struct sc_io *io, struct sc_io_file *file,
                                   struct spec_error *reterr);
/* Takes one of the file's `places` of SC_IO_PLACE_BYTES that no other process has, by an OFD lock,
 * until close or the process's end, and writes the process's line there. For a file open for
 * writing, once. *ret_place: its number, from 0. SPEC_E_LOCKED: all are taken. Never blocks. */
#define SC_IO_PLACE_BYTES 256u
spec_status sc_io_file_join(struct sc_io *io, struct sc_io_file *file, uint32_t places,
                            uint32_t *ret_place, struct spec_error *reterr);
/* Returns how many places other processes have. */
uint32_t sc_io_file_joined(struct sc_io *io, struct sc_io_file *file, uint32_t places);
/* Maps the file's first bytes, which all processes that map it share; it is extended if it is
 * shorter. For a file open for writing. NULL: the back end or the system cannot. The memory stays
 * when the file is closed, until unmap. */
void *sc_io_file_map(struct sc_io *io, struct sc_io_file *file, uint64_t bytes);
void sc_io_unmap(struct sc_io *io, void *memory, uint64_t bytes);
/* Marks the file as read by this process (OFD read lock) until close. A failure only hides it. */
void sc_io_file_share(struct sc_io *io, struct sc_io_file *file);
/* Returns true if another process has marked the file, or has its writer lock. */
bool sc_io_file_is_shared(struct sc_io *io, struct sc_io_file *file);

/* Queues the operations; never blocks, allocates nothing. */
void sc_io_submit(struct sc_io *io, struct sc_io_op *const *ops, uint64_t count);

/* Moves operations that are still queued to the end of a higher class's queue. Their `done`
 * functions have not returned. Never blocks. */
void sc_io_raise(struct sc_io *io, struct sc_io_op *const *ops, uint64_t count, uint32_t io_class);

/* Account for bytes that were read and wait for their consumer. */
void sc_io_hold(struct sc_io *io, uint64_t bytes);
void sc_io_release(struct sc_io *io, uint64_t bytes);

/* Returns true if so few operations are in flight that a buffer is refilled while still in the
 * cache of the CPU that read it. */
bool sc_io_is_shallow(const struct sc_io *io);

/* Declares the memory of most buffers, [base, base + bytes), none across a multiple of piece_bytes.
 * io_uring registers it gradually. Once; base NULL withdraws it, with nothing in flight. */
void sc_io_buffers(struct sc_io *io, const void *base, uint64_t bytes, uint64_t piece_bytes);

/* io_uring's counters since open; zeros for other back ends. */
struct sc_io_counts {
    uint64_t enters;
    uint64_t ops;                /* completed operations */
    uint64_t short_ops;          /* transfers that moved only a part and were continued */
    uint64_t late;               /* completions that matched no operation in flight; ignored */
    uint64_t inflight_bytes_max; /* peak */
};
void sc_io_stats(struct sc_io *io, struct sc_io_counts *ret_stats);

/* Cost of a byte and of one more operation at depth, measured on this back end's reads
 * (store/io/io_cost.c); 2.5 GB/s and 5 us until measured. Any thread. */
struct sc_io_cost {
    uint64_t bytes_per_s, op_ns;
    bool is_measured; /* both values were measured */
};
void sc_io_cost(const struct sc_io *io, struct sc_io_cost *ret_cost);

/* In a forked child, instead of all other calls: closes the inherited descriptors, which would keep
 * locks and disk space. No lock, no free; files then return EBADF. May miss a descriptor that was
 * being opened during the fork. */
void sc_io_fork_close(struct sc_io *io);

#endif
