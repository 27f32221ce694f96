/* The device model of the simulated disk.
 *
 *   submit -> queue of its class -> [transfer: device busy, bytes move] -> [latency] -> done
 *                                        one at a time                  any number
 *
 * An operation's own task is stepped at the end of its transfer, which starts the next one, and
 * once more at its completion; so the device needs no task of its own that would outlive the last
 * operation.
 *
 * If the environment names a file in SC_SIM_TRACE, each transfer is appended to it as a line, so
 * that two builds can be compared (tools/op_stream.py).
 *
 * Holds: one operation at a time has the device, the highest class's first.
 * Does not: sleep: time is the executor's, a virtual clock in its seeded loop.
 * Threads: tests/sim/io_sim_disk.h; steps are the executor's.
 * Tests: tests/unit/store/test_io_sim.c */
#include "tests/sim/io_sim_disk.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OP_SHORT = 1, OP_LATE = 2, OP_NEVER = 4, OP_PART_SHIFT = 8 }; /* op->state in the device */

static struct sc_io_op *op_of(struct sc_task *task)
{
    return (struct sc_io_op *)((char *)task - offsetof(struct sc_io_op, task));
}

static void complete_step(struct sc_task *task)
{
    struct sc_io_op *op = op_of(task);
    sc_io_op_complete(op, (int)op->state);
}

static void enqueue(struct sc_io_sim_disk *disk, struct sc_io_op *op)
{
    op->next = NULL;
    if (disk->queue[op->io_class].tail != NULL)
        disk->queue[op->io_class].tail->next = op;
    else
        disk->queue[op->io_class].head = op;
    disk->queue[op->io_class].tail = op;
}

/* Takes the next operation when the device is free; the caller posts it with the lock released. */
static struct sc_io_op *start_next(struct sc_io_sim_disk *disk)
{
    struct sc_io_op *op = NULL;
    for (uint32_t io_class = 0; io_class < SC_IO_CLASSES && op == NULL && !disk->is_busy;
         io_class++) {
        op = disk->queue[io_class].head;
        if (op != NULL)
            disk->queue[io_class].head = op->next;
        if (disk->queue[io_class].head == NULL)
            disk->queue[io_class].tail = NULL;
    }
    if (op == NULL)
        return NULL;
    disk->is_busy = 1;
    uint64_t part = op->bytes - op->moved_bytes;
    if (op->moved_bytes == 0) { /* else drawn before */
        const char *path = op->file->path;
        op->state = sc_sim_fault_hits(disk, SC_SIM_SHORT, path) ? OP_SHORT : 0;
        op->state |= sc_sim_fault_hits(disk, SC_SIM_LATE, path) ? OP_LATE : 0;
        op->state |= sc_sim_fault_hits(disk, SC_SIM_NEVER, path) ? OP_NEVER : 0;
        const uint64_t half = part / 2 / SC_IO_SIM_SECTOR_BYTES * SC_IO_SIM_SECTOR_BYTES;
        if ((op->state & OP_SHORT) != 0 && half > 0)
            part = half;
    }
    const uint64_t flags = op->state & ((1u << OP_PART_SHIFT) - 1);
    op->state = part << OP_PART_SHIFT | flags;
    return op;
}

static void transfer_step(struct sc_task *task);

static FILE *trace;

static void trace_open(void)
{
    const char *path = getenv("SC_SIM_TRACE");
    trace = path != NULL ? fopen(path, "a") : NULL;
}

/* A line for each transfer: kind, file, offset, bytes, class, and the time at which it begins. */
static void trace_transfer(const struct sc_io_op *op, uint64_t bytes)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    (void)pthread_once(&once, trace_open);
    if (trace == NULL)
        return;
    const char *name = strrchr(op->file->path, '/');
    fprintf(trace, "%s %s %" PRIu64 " %" PRIu64 " %u %" PRIu64 "\n",
            op->kind == SC_IO_READ ? "read" : "write", name != NULL ? name + 1 : op->file->path,
            op->offset + op->moved_bytes, bytes, (unsigned)op->io_class,
            sc_exec_now_ns(op->io->exec));
}

static void transfer_go(struct sc_io_op *op)
{
    struct sc_io_sim_disk *disk = sc_sim_disk_of(op->io);
    sc_sim_lock(disk);
    const struct sc_io_sim_device device = disk->device;
    sc_sim_unlock(disk);
    const uint64_t part = op->state >> OP_PART_SHIFT;
    uint64_t ns = 0;
    if (device.bytes_per_s > 0) /* no overflow: the quotient is seconds, the rest below one */
        ns = part / device.bytes_per_s * 1000000000u +
             (uint64_t)((double)(part % device.bytes_per_s) * 1e9 / (double)device.bytes_per_s);
    const uint64_t ns_min = device.ops_per_s > 0 ? 1000000000u / device.ops_per_s : 0;
    ns = ns > ns_min ? ns : ns_min;
    trace_transfer(op, part);
    op->task.step = transfer_step;
    struct sc_exec *exec = op->io->exec;
    sc_exec_post_at(exec, &op->task, (enum sc_io_class)op->io_class, sc_exec_now_ns(exec) + ns);
}

static void post_transfer(struct sc_io_op *op);

/* The device is the operation's. One that nobody wants any more ends without it. */
static void start_step(struct sc_task *task)
{
    struct sc_io_op *op = op_of(task);
    struct sc_io_sim_disk *disk = sc_sim_disk_of(op->io);
    if (sc_io_op_start(op)) {
        transfer_go(op);
        return;
    }
    sc_sim_lock(disk);
    disk->is_busy = 0;
    struct sc_io_op *next = start_next(disk);
    sc_sim_unlock(disk);
    post_transfer(next);
    sc_io_op_complete(op, SC_IO_DROPPED);
}

/* Submitters may hold locks that start takes: it is asked by a task. */
static void post_transfer(struct sc_io_op *op)
{
    if (op == NULL)
        return;
    if (op->start == NULL || op->moved_bytes > 0) {
        transfer_go(op);
        return;
    }
    op->task.step = start_step;
    sc_exec_post(op->io->exec, &op->task, (enum sc_io_class)op->io_class);
}

/* The end of a transfer: its bytes move, the next one starts, this one's latency begins. */
static void transfer_step(struct sc_task *task)
{
    struct sc_io_op *op = op_of(task);
    struct sc_io_sim_disk *disk = sc_sim_disk_of(op->io);
    struct sc_exec *exec = op->io->exec;
    const uint64_t part = op->state >> OP_PART_SHIFT;
    const uint64_t flags = op->state;

    sc_sim_lock(disk);
    int sys_errno;
    if (op->kind == SC_IO_READ)
        sys_errno = sc_sim_disk_read(disk, op->file, op->offset + op->moved_bytes,
                                     op->buffer + op->moved_bytes, part);
    else
        sys_errno = sc_sim_disk_write(disk, op->file, op->offset + op->moved_bytes,
                                      op->buffer + op->moved_bytes, part);
    op->moved_bytes += part;
    bool is_over = true;
    const uint64_t late_ns = (flags & OP_LATE) != 0 ? disk->late_ns : 0;
    if (sys_errno == 0 && op->moved_bytes < op->bytes) {
        is_over = false;
        enqueue(disk, op);
    } else {
        op->state = (uint64_t)sys_errno;
        if ((flags & OP_NEVER) != 0) {
            is_over = false;
            op->next = disk->held;
            disk->held = op;
        }
    }
    disk->is_busy = 0;
    struct sc_io_op *next = start_next(disk);
    sc_sim_unlock(disk);

    post_transfer(next);
    if (!is_over)
        return;
    if (disk->device.op_ns + late_ns == 0) {
        sc_io_op_complete(op, sys_errno);
        return;
    }
    op->task.step = complete_step;
    sc_exec_post_at(exec, &op->task, (enum sc_io_class)op->io_class,
                    sc_exec_now_ns(exec) + disk->device.op_ns + late_ns);
}

void sc_sim_submit(struct sc_io *io, struct sc_io_op *ops)
{
    struct sc_io_sim_disk *disk = sc_sim_disk_of(io);
    sc_sim_lock(disk);
    while (ops != NULL) {
        struct sc_io_op *op = ops;
        ops = op->next;
        enqueue(disk, op);
    }
    struct sc_io_op *start = start_next(disk);
    sc_sim_unlock(disk);
    post_transfer(start);
}

uint64_t sc_io_sim_release_all(struct sc_io_sim_disk *disk)
{
    sc_sim_lock(disk);
    struct sc_io_op *held = disk->held;
    disk->held = NULL;
    sc_sim_unlock(disk);
    uint64_t count = 0;
    while (held != NULL) {
        struct sc_io_op *op = held;
        held = op->next;
        count++;
        op->task.step = complete_step;
        sc_exec_post(op->io->exec, &op->task, (enum sc_io_class)op->io_class);
    }
    return count;
}
