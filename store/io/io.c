/* io: the calls of store/io/io.h: common checks and fault points, then the back end's function.
 * Files come from a pool: segments are opened while a request path may have sealed the allocator.
 * Tests: tests/unit/store/test_io.c */
#include "store/io/io.h"

#include "base/assert.h"
#include "base/config.h"
#include "store/io/io_backend.h"

#include <errno.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

/* ---- File objects --------------------------------------------------------------------------- */

static spec_status files_init(struct sc_io *io, uint64_t count, struct spec_error *reterr)
{
    if (count == 0)
        count = SC_IO_FILES_RESERVED;
    if (pthread_mutex_init(&io->files_lock, NULL) != 0)
        return sc_fail(reterr, SPEC_E_NO_MEMORY, "lock of the file objects");
    io->files = sc_alloc_array(io->alloc, count, sizeof(*io->files));
    if (io->files == NULL) {
        (void)pthread_mutex_destroy(&io->files_lock);
        return sc_fail(reterr, SPEC_E_NO_MEMORY, "%" PRIu64 " file objects", count);
    }
    for (uint64_t i = count; i-- > 0;) {
        io->files[i].is_pooled = 1;
        io->files[i].next_free = io->files_free;
        io->files_free = &io->files[i];
    }
    return SPEC_OK;
}

static void files_done(struct sc_io *io)
{
    SC_ASSERT(NULL, io->files_open == 0);
    sc_alloc_free(io->alloc, io->files);
    (void)pthread_mutex_destroy(&io->files_lock);
}

static struct sc_io_file *file_take(struct sc_io *io, const char *path)
{
    (void)pthread_mutex_lock(&io->files_lock);
    struct sc_io_file *file = io->files_free;
    if (file != NULL)
        io->files_free = file->next_free;
    io->files_open++;
    (void)pthread_mutex_unlock(&io->files_lock);
    if (file == NULL)
        file = sc_alloc_zero(io->alloc, sizeof(*file));
    if (file != NULL) {
        const uint32_t is_pooled = file->is_pooled;
        memset(file, 0, sizeof(*file));
        file->io = io;
        atomic_init(&file->fd, -1);
        file->is_pooled = is_pooled;
        const size_t bytes = strlen(path) + 1;
        if (bytes <= sizeof(file->path_inline)) {
            memcpy(file->path_inline, path, bytes);
            file->path = file->path_inline;
        } else {
            file->path = sc_alloc_string(io->alloc, path);
        }
    }
    return file;
}

static void file_give(struct sc_io *io, struct sc_io_file *file)
{
    if (file != NULL && file->path != file->path_inline)
        sc_alloc_free(io->alloc, (void *)(uintptr_t)file->path);
    (void)pthread_mutex_lock(&io->files_lock);
    io->files_open--;
    if (file != NULL && file->is_pooled) {
        file->next_free = io->files_free;
        io->files_free = file;
        file = NULL;
    }
    (void)pthread_mutex_unlock(&io->files_lock);
    sc_alloc_free(io->alloc, file);
}

/* Lists an open file, so that a forked child can close its descriptor. */
static void file_list(struct sc_io *io, struct sc_io_file *file)
{
    (void)pthread_mutex_lock(&io->files_lock);
    struct sc_io_file *first = atomic_load(&io->files_open_first);
    atomic_store(&file->next_open_file, first);
    file->prev_open_file = NULL;
    if (first != NULL)
        first->prev_open_file = file;
    atomic_store(&io->files_open_first, file);
    (void)pthread_mutex_unlock(&io->files_lock);
}

static void file_unlist(struct sc_io *io, struct sc_io_file *file)
{
    (void)pthread_mutex_lock(&io->files_lock);
    struct sc_io_file *next = atomic_load(&file->next_open_file);
    struct sc_io_file *prev = file->prev_open_file;
    atomic_store(prev != NULL ? &prev->next_open_file : &io->files_open_first, next);
    if (next != NULL)
        next->prev_open_file = prev;
    (void)pthread_mutex_unlock(&io->files_lock);
}

/* ---- Open and close ------------------------------------------------------------------------- */

static spec_status backend_open(struct sc_io *io, const struct sc_io_params *params,
                                struct spec_error *reterr)
{
    struct spec_error why = {.struct_size = sizeof(why)};
    spec_status status = SPEC_OK;
    if (params->custom != NULL) {
        status = params->custom->open(io, params->custom->user, reterr);
    } else if (params->backend == SC_BACKEND_PREAD) {
        status = sc_io_pread_open(io, params, reterr);
    } else if (params->backend == SC_BACKEND_URING) {
        status = sc_io_uring_open(io, params, reterr);
    } else {
        status = sc_io_uring_open(io, params, &why);
        if (status == SPEC_E_UNSUPPORTED)
            status = sc_io_pread_open(io, params, reterr);
        else if (status != SPEC_OK)
            (void)sc_fail(reterr, status, "%s", why.text);
    }
    if (status == SPEC_OK && why.code != SPEC_OK)
        SC_LOG(io->log, 2, "i/o back end %s: %s", io->backend->name, why.text);
    else if (status == SPEC_OK)
        SC_LOG(io->log, 2, "i/o back end %s", io->backend->name);
    return status;
}

spec_status sc_io_open(const struct sc_io_params *params, struct sc_io **ret_io,
                       struct spec_error *reterr)
{
    struct sc_io *io = sc_alloc_zero(params->alloc, sizeof(*io));
    if (io == NULL)
        return sc_fail(reterr, SPEC_E_NO_MEMORY, "I/O back end");
    io->alloc = params->alloc;
    io->exec = params->exec;
    io->log = params->log;
    io->fault = params->fault;
    io->allow_shared = params->allow_shared;
    io->allow_network_fs = params->allow_network_fs;
    atomic_init(&io->dir_fd, -1);
    spec_status status = files_init(io, params->files_reserved, reterr);
    if (status != SPEC_OK)
        goto free_io;
    status = backend_open(io, params, reterr);
    if (status != SPEC_OK)
        goto done_files;
    *ret_io = io;
    return SPEC_OK;
done_files:
    files_done(io);
free_io:
    sc_alloc_free(params->alloc, io);
    return status;
}

static void dir_close(struct sc_io *io)
{
    const int fd = atomic_exchange(&io->dir_fd, -1);
    if (fd >= 0)
        (void)close(fd);
}

void sc_io_close(struct sc_io *io)
{
    if (io == NULL)
        return;
    SC_ASSERT(NULL, atomic_load_explicit(&io->in_flight, memory_order_acquire) == 0);
    SC_ASSERT(NULL, atomic_load_explicit(&io->held_bytes, memory_order_relaxed) == 0);
    io->backend->close(io);
    files_done(io);
    dir_close(io);
    sc_alloc_free(io->alloc, io->dir);
    sc_alloc_free(io->alloc, io);
}

void sc_io_fork_close(struct sc_io *io)
{
    if (io->backend->fork_close != NULL)
        io->backend->fork_close(io);
    dir_close(io);
    for (struct sc_io_file *file = atomic_load(&io->files_open_first); file != NULL;
         file = atomic_load(&file->next_open_file)) {
        const int fd = atomic_exchange(&file->fd, -1);
        if (fd >= 0)
            (void)close(fd);
    }
}

const char *sc_io_name(const struct sc_io *io)
{
    return io->backend->name;
}

/* ---- Files and directories ------------------------------------------------------------------ */

spec_status sc_io_mkdir(struct sc_io *io, const char *path, struct spec_error *reterr)
{
    return io->backend->mkdir(io, path, reterr);
}

spec_status sc_io_dir_check(struct sc_io *io, const char *path, struct spec_error *reterr)
{
    return io->backend->dir_check != NULL ? io->backend->dir_check(io, path, reterr) : SPEC_OK;
}

spec_status sc_io_dir_keep(struct sc_io *io, const char *path, struct spec_error *reterr)
{
    SC_ASSERT(NULL, io->dir == NULL);
    if (io->backend->dir_keep == NULL)
        return SPEC_OK;
    char *dir = sc_alloc_string(io->alloc, path);
    if (dir == NULL)
        return sc_fail(reterr, SPEC_E_NO_MEMORY, "path of a directory");
    const spec_status status = io->backend->dir_keep(io, path, reterr);
    if (status == SPEC_OK)
        io->dir = dir;
    else
        sc_alloc_free(io->alloc, dir);
    return status;
}

spec_status sc_io_file_open(struct sc_io *io, const char *path, uint32_t flags,
                            struct sc_io_file **ret_file, struct spec_error *reterr)
{
    struct sc_io_file *file = file_take(io, path);
    spec_status status;
    if (file == NULL || file->path == NULL) {
        status = sc_fail(reterr, SPEC_E_NO_MEMORY, "file object");
        goto give;
    }
    if ((flags & SC_IO_OPEN_APPEND) != 0 &&
        (flags & (SC_IO_OPEN_WRITE | SC_IO_OPEN_DIRECT)) != SC_IO_OPEN_WRITE) {
        status = sc_fail(reterr, SPEC_E_INVALID, "append needs write, and no direct: %s", path);
        goto give;
    }
    file->flags = flags;
    status = io->backend->file_open(io, file, reterr);
    if (status != SPEC_OK)
        goto give;
    file_list(io, file);
    *ret_file = file;
    return SPEC_OK;
give:
    file_give(io, file);
    return status;
}

void sc_io_file_close(struct sc_io *io, struct sc_io_file *file)
{
    if (file == NULL)
        return;
    SC_ASSERT(NULL, file->io == io);
    file_unlist(io, file);
    io->backend->file_close(io, file);
    file_give(io, file);
}

spec_status sc_io_file_size(struct sc_io *io, struct sc_io_file *file, uint64_t *ret_bytes,
                            struct spec_error *reterr)
{
    return io->backend->file_size(io, file, ret_bytes, reterr);
}

static spec_status too_long(const char *verb, const struct sc_io_file *file,
                            struct spec_error *reterr)
{
    return sc_fail_errno(reterr, SPEC_E_NO_SPACE, EFBIG, "%s beyond RLIMIT_FSIZE: %s", verb,
                         file->path);
}

static spec_status fail_injected(const struct sc_io_file *file, const char *verb, int sys_errno,
                                 struct spec_error *reterr)
{
    return sc_fail_errno(reterr, sc_io_status_of(sys_errno), sys_errno, "%s %s (injected)", verb,
                         file->path);
}

spec_status sc_io_file_reserve(struct sc_io *io, struct sc_io_file *file, uint64_t bytes,
                               struct spec_error *reterr)
{
    if (sc_fault_hit(io->fault, SC_FAULT_RESERVE))
        return fail_injected(file, "reserve", ENOSPC, reterr);
    if (bytes > sc_io_file_limit())
        return too_long("reserve", file, reterr);
    return io->backend->file_reserve(io, file, bytes, reterr);
}

spec_status sc_io_file_truncate(struct sc_io *io, struct sc_io_file *file, uint64_t bytes,
                                struct spec_error *reterr)
{
    return io->backend->file_truncate(io, file, bytes, reterr);
}

spec_status sc_io_file_sync(struct sc_io *io, struct sc_io_file *file, struct spec_error *reterr)
{
    if (sc_fault_hit(io->fault, SC_FAULT_SYNC))
        return fail_injected(file, "sync", EIO, reterr);
    return io->backend->file_sync(io, file, reterr);
}

static spec_status blocking_check(const struct sc_io_file *file, const void *buffer, uint64_t bytes,
                                  uint64_t offset, struct spec_error *reterr)
{
    if (offset > INT64_MAX || bytes > INT64_MAX - offset)
        return sc_fail(reterr, SPEC_E_INVALID, "%" PRIu64 " bytes at %" PRIu64 " overflow: %s",
                       bytes, offset, file->path);
    if (!sc_io_is_aligned(file, buffer, offset, bytes))
        return sc_fail(reterr, SPEC_E_INVALID,
                       "%" PRIu64 " bytes at %" PRIu64 " are not aligned to %u: %s", bytes, offset,
                       SC_IO_PAGE_BYTES, file->path);
    return SPEC_OK;
}

spec_status sc_io_file_pread(struct sc_io *io, struct sc_io_file *file, void *buffer,
                             uint64_t bytes, uint64_t offset, struct spec_error *reterr)
{
    spec_status status = blocking_check(file, buffer, bytes, offset, reterr);
    if (status != SPEC_OK || bytes == 0)
        return status;
    if (sc_fault_hit(io->fault, SC_FAULT_READ))
        return fail_injected(file, "read", EIO, reterr);
    return io->backend->file_pread(io, file, buffer, bytes, offset, reterr);
}

static spec_status write_fault(struct sc_io *io, const struct sc_io_file *file,
                               struct spec_error *reterr)
{
    if (sc_fault_hit(io->fault, SC_FAULT_WRITE))
        return fail_injected(file, "write", EIO, reterr);
    if (sc_fault_hit(io->fault, SC_FAULT_RESERVE))
        return fail_injected(file, "write", ENOSPC, reterr);
    return SPEC_OK;
}

spec_status sc_io_file_pwrite(struct sc_io *io, struct sc_io_file *file, const void *buffer,
                              uint64_t bytes, uint64_t offset, struct spec_error *reterr)
{
    spec_status status = blocking_check(file, buffer, bytes, offset, reterr);
    if (status != SPEC_OK || bytes == 0)
        return status;
    if ((file->flags & SC_IO_OPEN_APPEND) != 0)
        return sc_fail(reterr, SPEC_E_INVALID, "a write at %" PRIu64 " of a file for appending: %s",
                       offset, file->path); /* Linux would append instead */
    status = write_fault(io, file, reterr);
    if (status != SPEC_OK)
        return status;
    if (offset + bytes > sc_io_file_limit())
        return too_long("write", file, reterr);
    return io->backend->file_pwrite(io, file, buffer, bytes, offset, reterr);
}

spec_status sc_io_file_append(struct sc_io *io, struct sc_io_file *file, const void *buffer,
                              uint64_t bytes, uint64_t *ret_end, struct spec_error *reterr)
{
    uint64_t size = 0, end;
    if ((file->flags & SC_IO_OPEN_APPEND) == 0 || bytes > INT64_MAX)
        return sc_fail(reterr, SPEC_E_INVALID, "%" PRIu64 " bytes cannot be appended: %s", bytes,
                       file->path);
    if (bytes == 0)
        return ret_end != NULL ? io->backend->file_size(io, file, ret_end, reterr) : SPEC_OK;
    spec_status status = write_fault(io, file, reterr);
    const uint64_t limit = sc_io_file_limit();
    if (status == SPEC_OK && limit != UINT64_MAX)
        status = io->backend->file_size(io, file, &size, reterr);
    if (status != SPEC_OK)
        return status;
    if (size > limit || bytes > limit - size)
        return too_long("append", file, reterr);
    return io->backend->file_append(io, file, buffer, bytes, ret_end != NULL ? ret_end : &end,
                                    reterr);
}

spec_status sc_io_file_same(struct sc_io *io, struct sc_io_file *file, const char *path,
                            bool *ret_same, struct spec_error *reterr)
{
    return io->backend->file_same(io, file, path, ret_same, reterr);
}

uint64_t sc_io_stamp(struct sc_io *io, const char *path)
{
    return io->backend->stamp != NULL ? io->backend->stamp(io, path) : SC_IO_STAMP_UNKNOWN;
}

spec_status sc_io_unlink(struct sc_io *io, const char *path, struct spec_error *reterr)
{
    return io->backend->unlink(io, path, reterr);
}

spec_status sc_io_rename(struct sc_io *io, const char *from, const char *to,
                         struct spec_error *reterr)
{
    if (sc_fault_hit(io->fault, SC_FAULT_SYNC))
        return sc_fail_errno(reterr, SPEC_E_IO, EIO, "rename %s (injected)", from);
    return io->backend->rename(io, from, to, reterr);
}

spec_status sc_io_list(struct sc_io *io, const char *path,
                       void (*on_name)(const char *name, void *user), void *user,
                       struct spec_error *reterr)
{
    return io->backend->list(io, path, on_name, user, reterr);
}

spec_status sc_io_free_bytes(struct sc_io *io, const char *path, uint64_t *ret_bytes,
                             struct spec_error *reterr)
{
    return io->backend->free_bytes(io, path, ret_bytes, reterr);
}

spec_status sc_io_file_lock(struct sc_io *io, struct sc_io_file *file, struct spec_error *reterr)
{
    if (SC_IO_HOLDER_BYTES > sc_io_file_limit())
        return too_long("write the holder", file, reterr);
    return io->backend->file_lock(io, file, reterr);
}

spec_status sc_io_file_claim(struct sc_io *io, struct sc_io_file *file, struct spec_error *reterr)
{
    return io->backend->file_claim != NULL ? io->backend->file_claim(io, file, reterr) : SPEC_OK;
}

void sc_io_file_unclaim(struct sc_io *io, struct sc_io_file *file)
{
    if (io->backend->file_unclaim != NULL)
        io->backend->file_unclaim(io, file);
}

spec_status sc_io_file_lock_shared(struct sc_io *io, struct sc_io_file *file,
                                   struct spec_error *reterr)
{
    if (io->backend->file_lock_shared != NULL)
        return io->backend->file_lock_shared(io, file, reterr);
    return sc_fail(reterr, SPEC_E_UNSUPPORTED, "%s: this back end has no shared locks", file->path);
}

spec_status sc_io_file_join(struct sc_io *io, struct sc_io_file *file, uint32_t places,
                            uint32_t *ret_place, struct spec_error *reterr)
{
    *ret_place = 0;
    if ((uint64_t)places * SC_IO_PLACE_BYTES > sc_io_file_limit())
        return too_long("write the process's line", file, reterr);
    return io->backend->file_join != NULL
               ? io->backend->file_join(io, file, places, ret_place, reterr)
               : SPEC_OK;
}

uint32_t sc_io_file_joined(struct sc_io *io, struct sc_io_file *file, uint32_t places)
{
    return io->backend->file_joined != NULL ? io->backend->file_joined(io, file, places) : 0;
}

void *sc_io_file_map(struct sc_io *io, struct sc_io_file *file, uint64_t bytes)
{
    if (io->backend->file_map == NULL || bytes > sc_io_file_limit())
        return NULL;
    return io->backend->file_map(io, file, bytes);
}

void sc_io_unmap(struct sc_io *io, void *memory, uint64_t bytes)
{
    io->backend->unmap(io, memory, bytes);
}

void sc_io_file_share(struct sc_io *io, struct sc_io_file *file)
{
    if (io->backend->file_share != NULL)
        io->backend->file_share(io, file);
}

bool sc_io_file_is_shared(struct sc_io *io, struct sc_io_file *file)
{
    return io->backend->file_is_shared != NULL && io->backend->file_is_shared(io, file);
}

/* ---- Operations ----------------------------------------------------------------------------- */

static void refused_step(struct sc_task *task)
{
    struct sc_io_op *op = (struct sc_io_op *)((char *)task - offsetof(struct sc_io_op, task));
    sc_io_op_complete(op, (int)(int64_t)op->state);
}

/* Returns 0, SC_IO_INVALID, or an errno: a fault point's, or EFBIG beyond `limit`. */
static int op_refusal(const struct sc_io *io, const struct sc_io_op *op, uint64_t limit)
{
    if (op->bytes == 0 || op->offset > INT64_MAX || op->bytes > INT64_MAX - op->offset)
        return SC_IO_INVALID;
    if (!sc_io_is_aligned(op->file, op->buffer, op->offset, op->bytes))
        return SC_IO_INVALID;
    if (sc_fault_hit(io->fault, op->kind == SC_IO_READ ? SC_FAULT_READ : SC_FAULT_WRITE))
        return EIO;
    return op->kind == SC_IO_WRITE && op->offset + op->bytes > limit ? EFBIG : 0;
}

void sc_io_submit(struct sc_io *io, struct sc_io_op *const *ops, uint64_t count)
{
    struct sc_io_op *first = NULL, **link = &first;
    uint64_t bytes = 0;
    bool writes = false;
    for (uint64_t i = 0; i < count; i++) {
        writes |= ops[i]->kind == SC_IO_WRITE;
        bytes += ops[i]->bytes;
    }
    const uint64_t limit = writes ? sc_io_file_limit() : UINT64_MAX;
    const uint64_t before = atomic_fetch_add_explicit(&io->in_flight, count, memory_order_relaxed);
    sc_io_cost_submitted(io, before, count, bytes, !writes);
    for (uint64_t i = 0; i < count; i++) {
        struct sc_io_op *op = ops[i];
        SC_ASSERT(NULL, op->file->io == io);
        op->io = io;
        op->next = NULL;
        op->moved_bytes = 0;
        op->state = 0;
        op->task = (struct sc_task){0};
        const int refusal = op_refusal(io, op, limit);
        if (refusal == 0) {
            *link = op;
            link = &op->next;
            continue;
        }
        op->state = (uint64_t)(int64_t)refusal;
        op->task.step = refused_step;
        sc_exec_post(io->exec, &op->task, (enum sc_io_class)op->io_class);
    }
    if (first != NULL)
        io->backend->submit(io, first);
}

void sc_io_raise(struct sc_io *io, struct sc_io_op *const *ops, uint64_t count, uint32_t io_class)
{
    if (io->backend->raise != NULL && count > 0)
        io->backend->raise(io, ops, count, io_class);
}

void sc_io_hold(struct sc_io *io, uint64_t bytes)
{
    (void)atomic_fetch_add_explicit(&io->held_bytes, bytes, memory_order_relaxed);
}

void sc_io_release(struct sc_io *io, uint64_t bytes)
{
    (void)atomic_fetch_sub_explicit(&io->held_bytes, bytes, memory_order_relaxed);
}

spec_status sc_io_random(struct sc_io *io, uint64_t *ret_number, struct spec_error *reterr)
{
    if (io->backend->random != NULL)
        *ret_number = io->backend->random(io);
    else if (getrandom(ret_number, sizeof(*ret_number), 0) != sizeof(*ret_number))
        return sc_fail_errno(reterr, SPEC_E_IO, errno, "random bytes");
    return SPEC_OK;
}

bool sc_io_is_shallow(const struct sc_io *io)
{
    return io->backend->is_shallow;
}

void sc_io_buffers(struct sc_io *io, const void *base, uint64_t bytes, uint64_t piece_bytes)
{
    SC_ASSERT(NULL, base == NULL || piece_bytes > 0);
    if (io->backend->buffers != NULL)
        io->backend->buffers(io, base, base == NULL ? 0 : bytes, piece_bytes);
}

void sc_io_stats(struct sc_io *io, struct sc_io_counts *ret_stats)
{
    *ret_stats = (struct sc_io_counts){0};
    if (io->backend->stats != NULL)
        io->backend->stats(io, ret_stats);
}
