/* One I/O interface, two back ends: io_uring (rings of their own threads) and pread (a pool of
 * executor threads), or one that the caller brings: tests bring files in memory, with a device
 * model on the virtual clock and seeded faults. One test body judges all of them.
 *
 * An operation is a struct of the caller's; it is submitted in batches and completes on a thread of
 * the executor's or of the back end's (or in the seeded loop) by its `done` function. `done` is
 * short and waits for no operation: io_uring's thread serves others after it.
 *
 * Holds: an operation completes exactly once, whole (short reads and writes are continued inside)
 * or with a status; done runs after the last byte moved; a buffer is never touched after done.
 * Does not: allocate per operation, order operations, verify bytes.
 * Fault points (base/fault.h), in every back end: READ and WRITE fail an operation or a blocking
 * call with EIO before it moves a byte; COMPLETION fails an operation after it moved all of them;
 * RESERVE fails reserve, and a blocking write, with ENOSPC; SYNC fails sync with EIO.
 * Threads: submit from any; done on the executor's or the back end's.
 * Tests: tests/unit/store/test_io.c (one body, every back end) */
#ifndef SC_STORE_IO_IO_H
#define SC_STORE_IO_IO_H

#include "base/exec.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/status.h"

#define SC_IO_PAGE_BYTES 4096u /* alignment of direct offsets, sizes and buffers */

enum sc_io_kind { SC_IO_READ, SC_IO_WRITE };

struct sc_io_file; /* made by open, ended by close */

struct sc_io_op {
    /* Set by the caller, constant until done. */
    struct sc_io_file *file;
    uint8_t *buffer; /* page-aligned for direct files */
    uint64_t offset; /* page-aligned for direct files */
    uint64_t bytes;  /* likewise; > 0 */
    uint32_t kind;
    uint32_t io_class; /* enum sc_io_class */
    void (*done)(struct sc_io_op *op);
    void *user;
    /* NULL, or called once, before the first byte moves and with no lock of the back end's held;
     * not for an operation that fails before. It may set buffer, and does not wait: so memory is
     * taken when the device takes the operation, not while that stands in a queue. false: nobody
     * wants it any more; it ends with SPEC_E_DROPPED, and the device never sees it. */
    bool (*start)(struct sc_io_op *op);
    bool is_long; /* done takes 100 us or more: what waits goes to the device before it is called */

    /* Set by the back end before done. SPEC_E_INVALID: bytes 0, offset + bytes overflows, or not
     * aligned in a file opened with SC_IO_OPEN_DIRECT (whether or not O_DIRECT was granted). */
    spec_status status; /* SPEC_OK, SPEC_E_IO, SPEC_E_NO_SPACE, SPEC_E_INVALID, SPEC_E_DROPPED */
    int32_t sys_errno;  /* 0 when status is not SPEC_E_IO or SPEC_E_NO_SPACE; past the end: EIO */

    /* The back end's. */
    struct sc_task task;
    struct sc_io_op *next;
    struct sc_io *io;
    uint64_t moved_bytes; /* of a transfer that came short */
    uint64_t state;
};

struct sc_io; /* a back end */

enum sc_io_open_flags {
    SC_IO_OPEN_CREATE = 1,    /* make it when absent */
    SC_IO_OPEN_EXCLUSIVE = 2, /* with CREATE: fail when present */
    SC_IO_OPEN_WRITE = 4,     /* otherwise read only */
    SC_IO_OPEN_DIRECT = 8,    /* O_DIRECT; where refused, buffered + DONTNEED, said once */
    SC_IO_OPEN_APPEND = 16    /* with WRITE, without DIRECT: written by sc_io_file_append only */
};

/* A back end that is not of this folder, in place of those that are. Constant while it is open. */
struct sc_io_custom {
    /* Sets io->backend and io->own (store/io/io_backend.h); the other members of io are set. */
    spec_status (*open)(struct sc_io *io, void *user, struct spec_error *reterr);
    void *user;
    uint64_t seed; /* a connector on it runs in the executor's loop, which has its order by this */
};

struct sc_io_params {
    struct sc_alloc *alloc;
    struct sc_exec *exec;
    struct sc_log *log;
    struct sc_fault *fault;
    uint32_t backend;    /* enum sc_config_backend; AUTO: io_uring where it works, else pread */
    uint32_t ring_count; /* io_uring: threads, each with a ring; 0: 2 */
    uint64_t in_flight_bytes; /* io_uring: the target, over all rings; 0: 8 MiB */
    /* NULL, or the back end; then the three above do not count. */
    const struct sc_io_custom *custom;
    bool allow_shared;       /* of posix files and directories: not only ours (base/path_owner.h) */
    bool allow_network_fs;   /* of posix directories: they may be on a network file system */
    uint64_t files_reserved; /* file objects made at open, so that opening them allocates nothing
                                later; 0: 64. More files than that allocate, one by one. */
};

/* Logs once which back end it is and, where AUTO had to leave io_uring, why. SPEC_E_UNSUPPORTED:
 * io_uring was asked for and does not work here. */
spec_status sc_io_open(const struct sc_io_params *params, struct sc_io **ret_io,
                       struct spec_error *reterr);
void sc_io_close(struct sc_io *io); /* files are closed, nothing in flight */
const char *sc_io_name(const struct sc_io *io);

/* Files and directories: blocking calls for open, recovery and background tasks. Paths are whole.
 * Errors: SPEC_E_IO with sys_errno and the path; SPEC_E_NO_SPACE; text says what and where.
 *
 * No write goes beyond what this process may write into a file (RLIMIT_FSIZE): it is
 * SPEC_E_NO_SPACE with EFBIG before a byte moves, since the kernel would send a signal that ends
 * the process. */
spec_status sc_io_mkdir(struct sc_io *io, const char *path, struct spec_error *reterr); /* 0700;
                                                                  present is fine, if it is ours */
/* SPEC_E_IO with EACCES: the directory is there, and not ours (base/path_owner.h).
 * SPEC_E_UNSUPPORTED: it is on a network file system, which may not forward locks. */
spec_status sc_io_dir_check(struct sc_io *io, const char *path, struct spec_error *reterr);
/* From now on, names directly in this directory are looked up in the very directory that it is now,
 * whatever becomes of its path: who moves or removes it, and makes another in its place, keeps that
 * one to himself. Once in a back end's life, while no other call runs. */
spec_status sc_io_dir_keep(struct sc_io *io, const char *path, struct spec_error *reterr);
/* RLIMIT_FSIZE of now: no file may be longer. UINT64_MAX: there is none. */
uint64_t sc_io_file_limit(void);
spec_status sc_io_file_open(struct sc_io *io, const char *path, uint32_t flags,
                            struct sc_io_file **ret_file, struct spec_error *reterr); /* 0600;
                                                     absent: SPEC_E_IO with sys_errno ENOENT;
                                                     not ours: SPEC_E_IO with EACCES */
void sc_io_file_close(struct sc_io *io, struct sc_io_file *file);
spec_status sc_io_file_size(struct sc_io *io, struct sc_io_file *file, uint64_t *ret_bytes,
                            struct spec_error *reterr);
/* Makes [0, bytes) allocated and inside the file's size. */
spec_status sc_io_file_reserve(struct sc_io *io, struct sc_io_file *file, uint64_t bytes,
                               struct spec_error *reterr);
spec_status sc_io_file_truncate(struct sc_io *io, struct sc_io_file *file, uint64_t bytes,
                                struct spec_error *reterr);
spec_status sc_io_file_sync(struct sc_io *io, struct sc_io_file *file, struct spec_error *reterr);
/* Blocking read/write of buffered files (the log, identity): whole or an error; a read past the end
 * is SPEC_E_IO. */
spec_status sc_io_file_pread(struct sc_io *io, struct sc_io_file *file, void *buffer,
                             uint64_t bytes, uint64_t offset, struct spec_error *reterr);
spec_status sc_io_file_pwrite(struct sc_io *io, struct sc_io_file *file, const void *buffer,
                              uint64_t bytes, uint64_t offset, struct spec_error *reterr);
/* One write at the file's end, whatever others append meanwhile: whole and in one piece, or an
 * error; after an error a first part may be there. SPEC_E_INVALID: not opened with APPEND. */
spec_status sc_io_file_append(struct sc_io *io, struct sc_io_file *file, const void *buffer,
                              uint64_t bytes, struct spec_error *reterr);
/* Whether path names the very file that is open (nothing there: no, and SPEC_OK). */
spec_status sc_io_file_same(struct sc_io *io, struct sc_io_file *file, const char *path,
                            bool *ret_same, struct spec_error *reterr);
spec_status sc_io_unlink(struct sc_io *io, const char *path, struct spec_error *reterr);
/* Gives a file another name, atomically in place of what had it, and syncs the directory (both in
 * one). Sync the file's data before. After an error either name may be there, now or later. */
spec_status sc_io_rename(struct sc_io *io, const char *from, const char *to,
                         struct spec_error *reterr);
/* Calls on_name for every entry of a directory but "." and "..". */
spec_status sc_io_list(struct sc_io *io, const char *path,
                       void (*on_name)(const char *name, void *user), void *user,
                       struct spec_error *reterr);
/* Bytes free on the file system of path, for the default of disk_bytes. */
spec_status sc_io_free_bytes(struct sc_io *io, const char *path, uint64_t *ret_bytes,
                             struct spec_error *reterr);
/* A random number, of the system, or of a back end that has its own, so that its runs repeat. */
spec_status sc_io_random(struct sc_io *io, uint64_t *ret_number, struct spec_error *reterr);
/* Takes the one-writer lock (an OFD write lock on the file), writing pid, boot id, host and start
 * time into it. SPEC_E_LOCKED: the text names the holder. Released by sc_io_file_close, also where
 * a forked child has the descriptor still; a process that ends otherwise leaves it to such a child.
 */
spec_status sc_io_file_lock(struct sc_io *io, struct sc_io_file *file, struct spec_error *reterr);
/* Says that this process reads the file (an OFD read lock), until it is closed. Takes no right to
 * write, and changes nothing on the disk. A failure is no error: nobody hears of the reader. */
void sc_io_file_share(struct sc_io *io, struct sc_io_file *file);
/* Whether somebody else has said so, of a file that nobody has locked. */
bool sc_io_file_is_shared(struct sc_io *io, struct sc_io_file *file);

/* Queues the operations; never blocks, allocates nothing. */
void sc_io_submit(struct sc_io *io, struct sc_io_op *const *ops, uint64_t count);

/* Moves those of the operations that still stand in a queue to a higher class, behind what is
 * there. They were submitted, and their done functions have not returned. Never blocks. */
void sc_io_raise(struct sc_io *io, struct sc_io_op *const *ops, uint64_t count, uint32_t io_class);

/* Bytes that were read and wait for their consumer (hold), and that wait no more (release). */
void sc_io_hold(struct sc_io *io, uint64_t bytes);
void sc_io_release(struct sc_io *io, uint64_t bytes);

/* Whether so few operations fly that a buffer is filled again while the cache of the processor that
 * read it still has its lines (pread: an operation a thread). */
bool sc_io_is_shallow(const struct sc_io *io);

/* Tells where most operations' buffers are: [base, base + bytes), none across a multiple of
 * piece_bytes from base. io_uring registers it bit by bit; the others need not know. Once in a back
 * end's life; base NULL takes it back, before the memory is freed and with nothing in flight. */
void sc_io_buffers(struct sc_io *io, const void *base, uint64_t bytes, uint64_t piece_bytes);

/* What io_uring counts since open; zeros for the others. */
struct sc_io_counts {
    uint64_t enters;           /* calls of io_uring_enter */
    uint64_t ops;              /* operations that ended */
    uint64_t short_ops;        /* transfers that moved a part and went on */
    uint64_t late;             /* completions that matched nothing in flight: ignored */
    uint64_t inflight_bytes_max; /* the most that was in flight at once */
};
void sc_io_stats(struct sc_io *io, struct sc_io_counts *ret_stats);

/* What a byte costs here, and one more operation when many are in flight: as this back end's reads
 * showed it (store/io/io_cost.c); a guess (2.5 GB/s, 5 us) of what none has shown yet. Any thread.
 */
struct sc_io_cost {
    uint64_t bytes_per_s, op_ns;
    bool is_measured; /* both were shown */
};
void sc_io_cost(const struct sc_io *io, struct sc_io_cost *ret_cost);

/* In a forked child, instead of everything else here: closes the descriptors that the child has of
 * the parent's, so that none outlives the parent (locks and disk space hang on them). Takes no lock
 * and frees nothing; files say EBADF after. A descriptor that another thread of the parent was just
 * about to open may be missed. */
void sc_io_fork_close(struct sc_io *io);

#endif
