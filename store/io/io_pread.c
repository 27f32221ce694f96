/* io_pread: the pread back end: an operation is an executor task, its I/O class the task's class.
 * Needed because containers forbid io_uring by default.
 * Tests: tests/unit/store/test_io.c */
#include "store/io/io_posix.h"

static void op_step(struct sc_task *task)
{
    struct sc_io_op *op = (struct sc_io_op *)((char *)task - offsetof(struct sc_io_op, task));
    int sys_errno;
    if (!sc_io_op_start(op))
        sys_errno = SC_IO_DROPPED;
    else if (op->kind == SC_IO_READ)
        sys_errno = sc_io_posix_read(op->file, op->buffer, op->bytes, op->offset);
    else
        sys_errno = sc_io_posix_write(op->file, op->buffer, op->bytes, op->offset);
    sc_io_op_complete(op, sys_errno);
}

static void pread_submit(struct sc_io *io, struct sc_io_op *ops)
{
    while (ops != NULL) {
        struct sc_io_op *op = ops;
        ops = op->next; /* a posted operation may complete, and be freed, at once */
        op->task.step = op_step;
        sc_exec_post(io->exec, &op->task, (enum sc_io_class)op->io_class);
    }
}

static void pread_raise(struct sc_io *io, struct sc_io_op *const *ops, uint64_t count,
                        uint32_t io_class)
{
    for (uint64_t i = 0; i < count; i++) {
        struct sc_io_op *op = ops[i];
        if (!sc_exec_cancel(io->exec, &op->task))
            continue; /* a worker has started it */
        op->io_class = io_class;
        sc_exec_post(io->exec, &op->task, (enum sc_io_class)io_class);
    }
}

static void pread_close(struct sc_io *io)
{
    (void)io; /* files are closed and nothing is in flight */
}

static const struct sc_io_backend pread_backend = {
    .name = "pread",
    .is_shallow = true,
    .close = pread_close,
    .mkdir = sc_io_posix_mkdir,
    .dir_check = sc_io_posix_dir_check,
    .dir_keep = sc_io_posix_dir_keep,
    .file_open = sc_io_posix_file_open,
    .file_close = sc_io_posix_file_close,
    .file_size = sc_io_posix_file_size,
    .file_reserve = sc_io_posix_file_reserve,
    .file_truncate = sc_io_posix_file_truncate,
    .file_sync = sc_io_posix_file_sync,
    .file_pread = sc_io_posix_file_pread,
    .file_pwrite = sc_io_posix_file_pwrite,
    .file_append = sc_io_posix_file_append,
    .file_same = sc_io_posix_file_same,
    .stamp = sc_io_posix_stamp,
    .unlink = sc_io_posix_unlink,
    .rename = sc_io_posix_rename,
    .list = sc_io_posix_list,
    .free_bytes = sc_io_posix_free_bytes,
    .file_lock = sc_io_posix_file_lock,
    .file_claim = sc_io_posix_file_claim,
    .file_unclaim = sc_io_posix_file_unclaim,
    .file_lock_shared = sc_io_posix_file_lock_shared,
    .file_join = sc_io_posix_file_join,
    .file_joined = sc_io_posix_file_joined,
    .file_map = sc_io_posix_file_map,
    .unmap = sc_io_posix_unmap,
    .file_share = sc_io_posix_file_share,
    .file_is_shared = sc_io_posix_file_is_shared,
    .submit = pread_submit,
    .raise = pread_raise,
};

spec_status sc_io_pread_open(struct sc_io *io, const struct sc_io_params *params,
                             struct spec_error *reterr)
{
    (void)params;
    (void)reterr;
    io->backend = &pread_backend;
    return SPEC_OK;
}
