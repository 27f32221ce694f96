/* The sim back end: a disk (store/io_sim_image.h) behind a device model, with faults.
 *
 *   submit -> queue of its lane -> [transfer: device busy, bytes move] -> [latency] -> done
 *                                        one at a time                  any number
 *
 * An operation's own task is stepped at the end of its transfer, which starts the next one, and
 * once more at its completion; so the device needs no task of its own that would outlive the last
 * operation.
 *
 * Tests: tests/unit/store/test_io_sim.c */
#include "store/io_sim.h"

#include "base/assert.h"
#include "store/io_backend.h"
#include "store/io_sim_image.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define CAPACITY_BYTES (1ull << 40)
#define LATE_NS        50000000u

enum { OP_SHORT = 1, OP_LATE = 2, OP_NEVER = 4, OP_PART_SHIFT = 8 }; /* op->state in the device */

struct sc_io_sim_disk {
    /* Set by open, constant after. */
    struct sc_alloc *alloc;
    struct sc_alloc content; /* libc's */
    uint64_t seed;
    uint64_t capacity_bytes;
    uint32_t journal_mode;

    /* Guarded by lock (rank 70). */
    pthread_mutex_t lock;
    struct sc_sim_image now, base;
    struct sc_sim_journal journal;
    uint64_t next_inode;
    struct sc_io_file *open_files;
    uint64_t attached;

    uint64_t random;
    uint64_t ppm[SC_SIM_FAULTS];
    int64_t nth[SC_SIM_FAULTS]; /* < 0: unarmed */
    uint64_t fired[SC_SIM_FAULTS];
    const char *scope;
    uint64_t late_ns;
    uint32_t is_off;
    uint64_t changes_left; /* until the power goes off */

    struct {
        struct sc_io_op *head, *tail;
    } queue[SC_LANES];
    uint32_t is_busy;
    struct sc_io_op *held; /* SC_SIM_NEVER */
};

struct sim { /* io->own */
    struct sc_io_sim_disk *disk;
    uint32_t owns_disk;
    uint64_t bytes_per_s, op_ns;
    uint64_t busy_ns_min; /* that an operation occupies the device for */
};

static struct sc_io_sim_disk *disk_of(const struct sc_io *io)
{
    return ((const struct sim *)io->own)->disk;
}

static void lock(struct sc_io_sim_disk *disk)
{
    (void)pthread_mutex_lock(&disk->lock);
}

static void unlock(struct sc_io_sim_disk *disk)
{
    (void)pthread_mutex_unlock(&disk->lock);
}

/* ---- The disk: open, close ------------------------------------------------------------------ */

static void disarm(struct sc_io_sim_disk *disk)
{
    for (uint32_t i = 0; i < SC_SIM_FAULTS; i++) {
        disk->ppm[i] = 0;
        disk->nth[i] = -1;
    }
    disk->scope = NULL;
    disk->is_off = 0;
    disk->changes_left = UINT64_MAX;
}

spec_status sc_io_sim_disk_open(const struct sc_io_sim_disk_params *params,
                                struct sc_io_sim_disk **ret_disk, struct spec_error *reterr)
{
    struct sc_io_sim_disk *disk = sc_alloc_zero(params->alloc, sizeof(*disk));
    if (disk == NULL || pthread_mutex_init(&disk->lock, NULL) != 0) {
        sc_alloc_free(params->alloc, disk);
        return sc_fail(reterr, SPEC_E_NO_MEMORY, "sim disk");
    }
    disk->alloc = params->alloc;
    disk->seed = disk->random = params->seed;
    disk->capacity_bytes = params->capacity_bytes == 0 ? CAPACITY_BYTES : params->capacity_bytes;
    disk->journal_mode = params->journal;
    disk->late_ns = LATE_NS;
    sc_alloc_init(&disk->content);
    sc_sim_image_init(&disk->now, &disk->content);
    sc_sim_image_init(&disk->base, &disk->content);
    sc_sim_journal_init(&disk->journal, &disk->content);
    disarm(disk);
    *ret_disk = disk;
    return SPEC_OK;
}

void sc_io_sim_disk_close(struct sc_io_sim_disk *disk)
{
    if (disk == NULL)
        return;
    SC_ASSERT(NULL, disk->attached == 0);
    SC_ASSERT(NULL, disk->open_files == NULL);
    sc_sim_image_done(&disk->now);
    sc_sim_image_done(&disk->base);
    sc_sim_journal_done(&disk->journal);
    (void)pthread_mutex_destroy(&disk->lock);
    sc_alloc_free(disk->alloc, disk);
}

/* ---- Faults --------------------------------------------------------------------------------- */

void sc_io_sim_fault_ppm(struct sc_io_sim_disk *disk, enum sc_io_sim_fault fault, uint64_t ppm)
{
    lock(disk);
    disk->ppm[fault] = ppm;
    unlock(disk);
}

void sc_io_sim_fault_nth(struct sc_io_sim_disk *disk, enum sc_io_sim_fault fault, uint64_t n)
{
    lock(disk);
    disk->nth[fault] = n > INT64_MAX ? INT64_MAX : (int64_t)n;
    unlock(disk);
}

void sc_io_sim_fault_scope(struct sc_io_sim_disk *disk, const char *text)
{
    lock(disk);
    disk->scope = text;
    unlock(disk);
}

void sc_io_sim_fault_late_ns(struct sc_io_sim_disk *disk, uint64_t late_ns)
{
    lock(disk);
    disk->late_ns = late_ns;
    unlock(disk);
}

uint64_t sc_io_sim_fault_fired(struct sc_io_sim_disk *disk, enum sc_io_sim_fault fault)
{
    lock(disk);
    const uint64_t fired = disk->fired[fault];
    unlock(disk);
    return fired;
}

void sc_io_sim_power_off(struct sc_io_sim_disk *disk)
{
    sc_io_sim_power_off_after(disk, 0);
    lock(disk);
    disk->is_off = 1;
    unlock(disk);
}

void sc_io_sim_power_off_after(struct sc_io_sim_disk *disk, uint64_t n)
{
    lock(disk);
    disk->changes_left = n;
    unlock(disk);
}

/* Lock held, as in all that follows until "The back end". */
static bool fault_hits(struct sc_io_sim_disk *disk, enum sc_io_sim_fault fault, const char *path)
{
    if (disk->scope != NULL && strstr(path, disk->scope) == NULL)
        return false;
    bool is_hit = disk->nth[fault] == 0;
    if (disk->nth[fault] >= 0)
        disk->nth[fault]--;
    if (disk->ppm[fault] > 0 && sc_sim_random_below(&disk->random, 1000000) < disk->ppm[fault])
        is_hit = true;
    disk->fired[fault] += is_hit;
    return is_hit;
}

/* ---- Changes -------------------------------------------------------------------------------- */

/* Every change asks first: after the power went, nothing has an effect. */
static bool power_is_off(struct sc_io_sim_disk *disk)
{
    if (disk->changes_left == 0)
        disk->is_off = 1;
    else if (disk->changes_left != UINT64_MAX)
        disk->changes_left--;
    return disk->is_off;
}

static int change(struct sc_io_sim_disk *disk, uint32_t kind, uint64_t inode, uint64_t offset,
                  uint64_t bytes, const void *data)
{
    if (disk->journal_mode != 0 &&
        sc_sim_journal_add(&disk->journal, kind, inode, offset, bytes, data) != 0)
        return ENOMEM;
    int sys_errno = 0;
    if (kind == SC_SIM_EVENT_WRITE)
        sys_errno = sc_sim_image_write(&disk->now, inode, offset, data, bytes);
    else if (kind == SC_SIM_EVENT_RESIZE)
        sys_errno = sc_sim_image_resize(&disk->now, inode, bytes);
    else if (kind == SC_SIM_EVENT_UNLINK)
        sc_sim_image_unname(&disk->now, data);
    else if (kind == SC_SIM_EVENT_RENAME)
        sys_errno = sc_sim_image_rename(&disk->now, data, (const char *)data + strlen(data) + 1);
    else
        sys_errno = sc_sim_image_name(&disk->now, data, inode);
    if (sys_errno != 0 && disk->journal_mode != 0) {
        disk->journal.count--; /* it did not happen */
        sc_alloc_free(&disk->content, disk->journal.events[disk->journal.count].data);
    }
    return sys_errno;
}

static uint64_t size_of(const struct sc_io_sim_disk *disk, uint64_t inode)
{
    return disk->now.inodes[inode].bytes;
}

static bool fits(const struct sc_io_sim_disk *disk, uint64_t inode, uint64_t end)
{
    const uint64_t bytes = size_of(disk, inode);
    return end <= bytes || (disk->now.used_bytes <= disk->capacity_bytes &&
                            end - bytes <= disk->capacity_bytes - disk->now.used_bytes);
}

/* Another place in the file for a write that goes astray, and how much of it fits there. */
static uint64_t stray(struct sc_io_sim_disk *disk, uint64_t inode, uint64_t offset, uint64_t *bytes)
{
    const uint64_t pages = size_of(disk, inode) / SC_IO_PAGE_BYTES;
    if (pages < 2) {
        *bytes = 0;
        return offset;
    }
    uint64_t page = sc_sim_random_below(&disk->random, pages);
    if (page == offset / SC_IO_PAGE_BYTES)
        page = (page + 1) % pages;
    const uint64_t to = page * SC_IO_PAGE_BYTES + offset % SC_IO_PAGE_BYTES;
    const uint64_t room = pages * SC_IO_PAGE_BYTES - to;
    *bytes = *bytes < room ? *bytes : room;
    return to;
}

static int disk_write(struct sc_io_sim_disk *disk, const struct sc_io_file *file, uint64_t offset,
                      const uint8_t *data, uint64_t bytes)
{
    if (power_is_off(disk) || fault_hits(disk, SC_SIM_WRITE_EIO, file->path))
        return EIO;
    if ((file->flags & SC_IO_OPEN_WRITE) == 0)
        return EBADF;
    if (fault_hits(disk, SC_SIM_NO_SPACE, file->path) || !fits(disk, file->inode, offset + bytes))
        return ENOSPC;
    if (fault_hits(disk, SC_SIM_LOST, file->path))
        return 0;
    if (fault_hits(disk, SC_SIM_TORN, file->path)) {
        const uint64_t lead = offset % SC_IO_SIM_SECTOR_BYTES;
        const uint64_t whole = (lead + bytes - 1) / SC_IO_SIM_SECTOR_BYTES;
        const uint64_t end = sc_sim_random_below(&disk->random, whole + 1) * SC_IO_SIM_SECTOR_BYTES;
        bytes = end <= lead ? 0 : end - lead;
    }
    if (fault_hits(disk, SC_SIM_MISDIRECTED, file->path))
        offset = stray(disk, file->inode, offset, &bytes);
    return bytes == 0 ? 0 : change(disk, SC_SIM_EVENT_WRITE, file->inode, offset, bytes, data);
}

static int disk_read(struct sc_io_sim_disk *disk, const struct sc_io_file *file, uint64_t offset,
                     uint8_t *data, uint64_t bytes)
{
    if (disk->is_off || fault_hits(disk, SC_SIM_READ_EIO, file->path))
        return EIO;
    const uint64_t size = size_of(disk, file->inode);
    if (offset > size || bytes > size - offset)
        return EIO;
    sc_sim_image_read(&disk->now, file->inode, offset, data, bytes);
    if (fault_hits(disk, SC_SIM_FLIP, file->path)) {
        const uint64_t bit = sc_sim_random_below(&disk->random, bytes * 8);
        data[bit / 8] ^= (uint8_t)(1u << (bit % 8));
    }
    return 0;
}

/* ---- The device ----------------------------------------------------------------------------- */

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
    if (disk->queue[op->lane].tail != NULL)
        disk->queue[op->lane].tail->next = op;
    else
        disk->queue[op->lane].head = op;
    disk->queue[op->lane].tail = op;
}

/* Takes the next operation when the device is free; the caller posts it with the lock released. */
static struct sc_io_op *start_next(struct sc_io_sim_disk *disk)
{
    struct sc_io_op *op = NULL;
    for (uint32_t lane = 0; lane < SC_LANES && op == NULL && !disk->is_busy; lane++) {
        op = disk->queue[lane].head;
        if (op != NULL)
            disk->queue[lane].head = op->next;
        if (disk->queue[lane].head == NULL)
            disk->queue[lane].tail = NULL;
    }
    if (op == NULL)
        return NULL;
    disk->is_busy = 1;
    uint64_t part = op->bytes - op->moved_bytes;
    if (op->moved_bytes == 0) { /* else drawn before */
        const char *path = op->file->path;
        op->state = fault_hits(disk, SC_SIM_SHORT, path) ? OP_SHORT : 0;
        op->state |= fault_hits(disk, SC_SIM_LATE, path) ? OP_LATE : 0;
        op->state |= fault_hits(disk, SC_SIM_NEVER, path) ? OP_NEVER : 0;
        const uint64_t half = part / 2 / SC_IO_SIM_SECTOR_BYTES * SC_IO_SIM_SECTOR_BYTES;
        if ((op->state & OP_SHORT) != 0 && half > 0)
            part = half;
    }
    const uint64_t flags = op->state & ((1u << OP_PART_SHIFT) - 1);
    op->state = part << OP_PART_SHIFT | flags;
    return op;
}

static void transfer_step(struct sc_task *task);

static void transfer_go(struct sc_io_op *op)
{
    const struct sim *sim = op->io->own;
    const uint64_t part = op->state >> OP_PART_SHIFT;
    uint64_t ns = 0;
    if (sim->bytes_per_s > 0) /* no overflow: the quotient is seconds, the rest below one */
        ns = part / sim->bytes_per_s * 1000000000u +
             (uint64_t)((double)(part % sim->bytes_per_s) * 1e9 / (double)sim->bytes_per_s);
    ns = ns > sim->busy_ns_min ? ns : sim->busy_ns_min;
    op->task.step = transfer_step;
    struct sc_exec *exec = op->io->exec;
    sc_exec_post_at(exec, &op->task, (enum sc_exec_lane)op->lane, sc_exec_now_ns(exec) + ns);
}

static void post_transfer(struct sc_io_op *op);

/* The device is the operation's. One that nobody wants any more ends without it. */
static void start_step(struct sc_task *task)
{
    struct sc_io_op *op = op_of(task);
    struct sc_io_sim_disk *disk = ((const struct sim *)op->io->own)->disk;
    if (sc_io_op_start(op)) {
        transfer_go(op);
        return;
    }
    lock(disk);
    disk->is_busy = 0;
    struct sc_io_op *next = start_next(disk);
    unlock(disk);
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
    sc_exec_post(op->io->exec, &op->task, (enum sc_exec_lane)op->lane);
}

/* The end of a transfer: its bytes move, the next one starts, this one's latency begins. */
static void transfer_step(struct sc_task *task)
{
    struct sc_io_op *op = op_of(task);
    const struct sim *sim = op->io->own;
    struct sc_io_sim_disk *disk = sim->disk;
    struct sc_exec *exec = op->io->exec;
    const uint64_t part = op->state >> OP_PART_SHIFT;
    const uint64_t flags = op->state;

    lock(disk);
    int sys_errno;
    if (op->kind == SC_IO_READ)
        sys_errno = disk_read(disk, op->file, op->offset + op->moved_bytes,
                              op->buffer + op->moved_bytes, part);
    else
        sys_errno = disk_write(disk, op->file, op->offset + op->moved_bytes,
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
    unlock(disk);

    post_transfer(next);
    if (!is_over)
        return;
    if (sim->op_ns + late_ns == 0) {
        sc_io_op_complete(op, sys_errno);
        return;
    }
    op->task.step = complete_step;
    sc_exec_post_at(exec, &op->task, (enum sc_exec_lane)op->lane,
                    sc_exec_now_ns(exec) + sim->op_ns + late_ns);
}

static void sim_submit(struct sc_io *io, struct sc_io_op *ops)
{
    struct sc_io_sim_disk *disk = disk_of(io);
    lock(disk);
    while (ops != NULL) {
        struct sc_io_op *op = ops;
        ops = op->next;
        enqueue(disk, op);
    }
    struct sc_io_op *start = start_next(disk);
    unlock(disk);
    post_transfer(start);
}

uint64_t sc_io_sim_release_all(struct sc_io_sim_disk *disk)
{
    lock(disk);
    struct sc_io_op *held = disk->held;
    disk->held = NULL;
    unlock(disk);
    uint64_t count = 0;
    while (held != NULL) {
        struct sc_io_op *op = held;
        held = op->next;
        count++;
        op->task.step = complete_step;
        sc_exec_post(op->io->exec, &op->task, (enum sc_exec_lane)op->lane);
    }
    return count;
}

/* ---- The back end: files -------------------------------------------------------------------- */

static spec_status result(const char *verb, const char *path, int sys_errno,
                          struct spec_error *reterr)
{
    if (sys_errno == 0)
        return SPEC_OK;
    return sc_fail_errno(reterr, sc_io_status_of(sys_errno), sys_errno, "%s %s", verb, path);
}

/* Lock held. On an empty disk every parent is taken to be there, as below a mount point. */
static bool parent_exists(struct sc_io_sim_disk *disk, const char *path)
{
    char parent[SC_LIMIT_PATH_BYTES];
    const char *slash = strrchr(path, '/');
    if (slash == NULL || slash == path || disk->now.name_count == 0)
        return true;
    if ((size_t)(slash - path) >= sizeof(parent))
        return false;
    memcpy(parent, path, (size_t)(slash - path));
    parent[slash - path] = '\0';
    const struct sc_sim_name *name = sc_sim_image_find(&disk->now, parent);
    return name != NULL && name->inode == SC_SIM_NO_INODE;
}

static spec_status sim_mkdir(struct sc_io *io, const char *path, struct spec_error *reterr)
{
    struct sc_io_sim_disk *disk = disk_of(io);
    int sys_errno;
    lock(disk);
    const struct sc_sim_name *name = sc_sim_image_find(&disk->now, path);
    if (disk->is_off)
        sys_errno = EIO;
    else if (name != NULL)
        sys_errno = name->inode == SC_SIM_NO_INODE ? 0 : ENOTDIR;
    else if (!parent_exists(disk, path))
        sys_errno = ENOENT;
    else if (power_is_off(disk))
        sys_errno = EIO;
    else
        sys_errno = change(disk, SC_SIM_EVENT_MKDIR, SC_SIM_NO_INODE, 0, 0, path);
    unlock(disk);
    return result("make directory", path, sys_errno, reterr);
}

/* Lock held. */
static int open_locked(struct sc_io_sim_disk *disk, struct sc_io_file *file)
{
    const struct sc_sim_name *name = sc_sim_image_find(&disk->now, file->path);
    if (disk->is_off)
        return EIO;
    if (name != NULL) {
        if (name->inode == SC_SIM_NO_INODE)
            return EISDIR;
        const uint32_t exclusive = SC_IO_OPEN_CREATE | SC_IO_OPEN_EXCLUSIVE;
        file->inode = name->inode;
        return (file->flags & exclusive) == exclusive ? EEXIST : 0;
    }
    if ((file->flags & SC_IO_OPEN_CREATE) == 0 || !parent_exists(disk, file->path))
        return ENOENT;
    if (power_is_off(disk))
        return EIO;
    file->inode = disk->next_inode;
    const int sys_errno = change(disk, SC_SIM_EVENT_CREATE, file->inode, 0, 0, file->path);
    disk->next_inode += sys_errno == 0;
    return sys_errno;
}

static spec_status sim_file_open(struct sc_io *io, struct sc_io_file *file,
                                 struct spec_error *reterr)
{
    struct sc_io_sim_disk *disk = disk_of(io);
    lock(disk);
    const int sys_errno = open_locked(disk, file);
    if (sys_errno == 0) {
        file->next_open = disk->open_files;
        disk->open_files = file;
    }
    unlock(disk);
    return result((file->flags & SC_IO_OPEN_CREATE) != 0 ? "create" : "open", file->path, sys_errno,
                  reterr);
}

static bool inode_is_open(uint64_t inode, const void *user)
{
    const struct sc_io_sim_disk *disk = user;
    for (const struct sc_io_file *file = disk->open_files; file != NULL; file = file->next_open)
        if (file->inode == inode)
            return true;
    return false;
}

static void sim_file_close(struct sc_io *io, struct sc_io_file *file)
{
    struct sc_io_sim_disk *disk = disk_of(io);
    lock(disk);
    struct sc_io_file **at = &disk->open_files;
    while (*at != NULL && *at != file)
        at = &(*at)->next_open;
    SC_ASSERT(NULL, *at == file);
    if (*at == file)
        *at = file->next_open;
    sc_sim_image_sweep(&disk->now, inode_is_open, disk);
    unlock(disk);
}

static spec_status sim_file_size(struct sc_io *io, struct sc_io_file *file, uint64_t *ret_bytes,
                                 struct spec_error *reterr)
{
    struct sc_io_sim_disk *disk = disk_of(io);
    lock(disk);
    const uint64_t bytes = size_of(disk, file->inode);
    const int sys_errno = disk->is_off ? EIO : 0;
    unlock(disk);
    if (sys_errno == 0)
        *ret_bytes = bytes;
    return result("size of", file->path, sys_errno, reterr);
}

static spec_status sim_file_reserve(struct sc_io *io, struct sc_io_file *file, uint64_t bytes,
                                    struct spec_error *reterr)
{
    struct sc_io_sim_disk *disk = disk_of(io);
    int sys_errno = 0;
    lock(disk);
    if (power_is_off(disk))
        sys_errno = EIO;
    else if ((file->flags & SC_IO_OPEN_WRITE) == 0)
        sys_errno = EBADF;
    else if (fault_hits(disk, SC_SIM_NO_SPACE, file->path) || !fits(disk, file->inode, bytes))
        sys_errno = ENOSPC;
    else if (size_of(disk, file->inode) < bytes)
        sys_errno = change(disk, SC_SIM_EVENT_RESIZE, file->inode, 0, bytes, NULL);
    unlock(disk);
    return result("reserve", file->path, sys_errno, reterr);
}

static spec_status sim_file_truncate(struct sc_io *io, struct sc_io_file *file, uint64_t bytes,
                                     struct spec_error *reterr)
{
    struct sc_io_sim_disk *disk = disk_of(io);
    int sys_errno;
    lock(disk);
    if (power_is_off(disk))
        sys_errno = EIO;
    else if ((file->flags & SC_IO_OPEN_WRITE) == 0)
        sys_errno = EBADF;
    else if (!fits(disk, file->inode, bytes))
        sys_errno = ENOSPC;
    else
        sys_errno = change(disk, SC_SIM_EVENT_RESIZE, file->inode, 0, bytes, NULL);
    unlock(disk);
    return result("truncate", file->path, sys_errno, reterr);
}

/* Lock held. The file of an inode, or (SC_SIM_NO_INODE) a directory. */
static int sync_locked(struct sc_io_sim_disk *disk, const char *path, uint64_t inode)
{
    if (power_is_off(disk))
        return EIO;
    if (fault_hits(disk, SC_SIM_SYNC_EIO, path)) {
        sc_sim_journal_forsake(&disk->journal, inode, sc_sim_random(&disk->random));
        return EIO;
    }
    if (disk->journal_mode == 0)
        return 0;
    if (disk->journal_mode == 2)
        return sc_sim_journal_add(&disk->journal, SC_SIM_EVENT_SYNC, inode, 0, 0, NULL);
    const int sys_errno = sc_sim_journal_collapse(&disk->journal, &disk->base, inode);
    if (sys_errno == 0)
        sc_sim_image_sweep(&disk->base, inode_is_open, disk);
    return sys_errno;
}

static spec_status sim_file_sync(struct sc_io *io, struct sc_io_file *file,
                                 struct spec_error *reterr)
{
    struct sc_io_sim_disk *disk = disk_of(io);
    lock(disk);
    const int sys_errno = sync_locked(disk, file->path, file->inode);
    unlock(disk);
    return result("sync", file->path, sys_errno, reterr);
}

static spec_status sim_file_pread(struct sc_io *io, struct sc_io_file *file, void *buffer,
                                  uint64_t bytes, uint64_t offset, struct spec_error *reterr)
{
    struct sc_io_sim_disk *disk = disk_of(io);
    lock(disk);
    const int sys_errno = disk_read(disk, file, offset, buffer, bytes);
    unlock(disk);
    return result("read", file->path, sys_errno, reterr);
}

static spec_status sim_file_pwrite(struct sc_io *io, struct sc_io_file *file, const void *buffer,
                                   uint64_t bytes, uint64_t offset, struct spec_error *reterr)
{
    struct sc_io_sim_disk *disk = disk_of(io);
    lock(disk);
    const int sys_errno = disk_write(disk, file, offset, buffer, bytes);
    unlock(disk);
    return result("write", file->path, sys_errno, reterr);
}

static spec_status sim_file_append(struct sc_io *io, struct sc_io_file *file, const void *buffer,
                                   uint64_t bytes, struct spec_error *reterr)
{
    struct sc_io_sim_disk *disk = disk_of(io);
    lock(disk);
    const uint64_t end = size_of(disk, file->inode);
    const int sys_errno =
        bytes > INT64_MAX - end ? EFBIG : disk_write(disk, file, end, buffer, bytes);
    unlock(disk);
    return result("append to", file->path, sys_errno, reterr);
}

static spec_status sim_file_same(struct sc_io *io, struct sc_io_file *file, const char *path,
                                 bool *ret_same, struct spec_error *reterr)
{
    struct sc_io_sim_disk *disk = disk_of(io);
    lock(disk);
    const struct sc_sim_name *name = sc_sim_image_find(&disk->now, path);
    const bool is_same = name != NULL && name->inode == file->inode;
    const int sys_errno = disk->is_off ? EIO : 0;
    unlock(disk);
    if (sys_errno == 0)
        *ret_same = is_same;
    return result("look at", path, sys_errno, reterr);
}

/* Lock held. The change, and then the sync of the directory, with a power cut possible between. */
static int rename_locked(struct sc_io_sim_disk *disk, const char *from, const char *to)
{
    char paths[2 * SC_LIMIT_PATH_BYTES];
    const size_t from_bytes = strlen(from) + 1, to_bytes = strlen(to) + 1;
    const struct sc_sim_name *name = sc_sim_image_find(&disk->now, from);
    const struct sc_sim_name *old = sc_sim_image_find(&disk->now, to);
    if (power_is_off(disk))
        return EIO;
    if (name == NULL || !parent_exists(disk, to))
        return ENOENT;
    if (name->inode == SC_SIM_NO_INODE || (old != NULL && old->inode == SC_SIM_NO_INODE))
        return EISDIR;
    if (from_bytes + to_bytes > sizeof(paths))
        return ENAMETOOLONG;
    memcpy(paths, from, from_bytes);
    memcpy(paths + from_bytes, to, to_bytes);
    const int sys_errno =
        change(disk, SC_SIM_EVENT_RENAME, SC_SIM_NO_INODE, 0, from_bytes + to_bytes, paths);
    if (sys_errno != 0)
        return sys_errno;
    sc_sim_image_sweep(&disk->now, inode_is_open, disk);
    return sync_locked(disk, to, SC_SIM_NO_INODE);
}

static spec_status sim_rename(struct sc_io *io, const char *from, const char *to,
                              struct spec_error *reterr)
{
    struct sc_io_sim_disk *disk = disk_of(io);
    lock(disk);
    const int sys_errno = rename_locked(disk, from, to);
    unlock(disk);
    return result("rename", from, sys_errno, reterr);
}

static spec_status sim_unlink(struct sc_io *io, const char *path, struct spec_error *reterr)
{
    struct sc_io_sim_disk *disk = disk_of(io);
    int sys_errno;
    lock(disk);
    const struct sc_sim_name *name = sc_sim_image_find(&disk->now, path);
    if (power_is_off(disk))
        sys_errno = EIO;
    else if (name == NULL)
        sys_errno = ENOENT;
    else if (name->inode == SC_SIM_NO_INODE)
        sys_errno = EISDIR;
    else
        sys_errno = change(disk, SC_SIM_EVENT_UNLINK, name->inode, 0, 0, path);
    if (sys_errno == 0)
        sc_sim_image_sweep(&disk->now, inode_is_open, disk);
    unlock(disk);
    return result("remove", path, sys_errno, reterr);
}

/* Copies the i-th name of a directory. The lock is released between two names, because on_name may
 * call back; a name removed meanwhile may hide another, as readdir allows. */
static bool list_at(struct sc_io_sim_disk *disk, const char *path, uint64_t *i, char *ret_name,
                    size_t name_bytes)
{
    const size_t length = strlen(path);
    bool is_found = false;
    lock(disk);
    while (*i < disk->now.name_count && !is_found) {
        const char *at = disk->now.names[(*i)++].path;
        if (strncmp(at, path, length) != 0 || at[length] != '/' || strchr(at + length + 1, '/'))
            continue;
        is_found = strlen(at + length + 1) < name_bytes;
        if (is_found)
            memcpy(ret_name, at + length + 1, strlen(at + length + 1) + 1);
    }
    unlock(disk);
    return is_found;
}

static spec_status sim_list(struct sc_io *io, const char *path,
                            void (*on_name)(const char *name, void *user), void *user,
                            struct spec_error *reterr)
{
    struct sc_io_sim_disk *disk = disk_of(io);
    lock(disk);
    const struct sc_sim_name *dir = sc_sim_image_find(&disk->now, path);
    int sys_errno = disk->is_off ? EIO : 0;
    if (sys_errno == 0 && dir == NULL)
        sys_errno = ENOENT;
    else if (sys_errno == 0 && dir->inode != SC_SIM_NO_INODE)
        sys_errno = ENOTDIR;
    unlock(disk);
    char name[256]; /* NAME_MAX and its NUL */
    for (uint64_t i = 0; sys_errno == 0 && list_at(disk, path, &i, name, sizeof(name));)
        on_name(name, user);
    return result("list", path, sys_errno, reterr);
}

static spec_status sim_free_bytes(struct sc_io *io, const char *path, uint64_t *ret_bytes,
                                  struct spec_error *reterr)
{
    struct sc_io_sim_disk *disk = disk_of(io);
    lock(disk);
    const uint64_t used_bytes = disk->now.used_bytes;
    const int sys_errno = disk->is_off ? EIO : 0;
    unlock(disk);
    if (sys_errno == 0)
        *ret_bytes = used_bytes < disk->capacity_bytes ? disk->capacity_bytes - used_bytes : 0;
    return result("free space of", path, sys_errno, reterr);
}

static spec_status sim_file_lock(struct sc_io *io, struct sc_io_file *file,
                                 struct spec_error *reterr)
{
    struct sc_io_sim_disk *disk = disk_of(io);
    /* Constants and the clock: the disk's bytes depend on the seeds alone. */
    const struct sc_io_holder holder = {.pid = 1,
                                        .start_s = sc_exec_wall_ns(io->exec) / 1000000000u,
                                        .boot_id = "00000000-0000-0000-0000-000000000000",
                                        .host = "sim"};
    char text[SC_IO_HOLDER_BYTES];
    uint64_t bytes = sc_io_holder_format(&holder, text);
    int sys_errno = 0;
    lock(disk);
    bool is_held = false;
    for (const struct sc_io_file *at = disk->open_files; at != NULL; at = at->next_open)
        is_held |= at != file && at->inode == file->inode && at->holds_lock;
    if ((file->flags & SC_IO_OPEN_WRITE) == 0) {
        sys_errno = EBADF;
    } else if (is_held) {
        const uint64_t size = size_of(disk, file->inode);
        bytes = size < sizeof(text) ? size : sizeof(text);
        sc_sim_image_read(&disk->now, file->inode, 0, (uint8_t *)text, bytes);
    } else if (power_is_off(disk)) {
        sys_errno = EIO;
    } else {
        sys_errno = change(disk, SC_SIM_EVENT_RESIZE, file->inode, 0, 0, NULL);
        if (sys_errno == 0 && !fits(disk, file->inode, bytes))
            sys_errno = ENOSPC;
        if (sys_errno == 0)
            sys_errno = change(disk, SC_SIM_EVENT_WRITE, file->inode, 0, bytes, text);
        file->holds_lock = sys_errno == 0;
    }
    unlock(disk);
    if (sys_errno == 0 && is_held)
        return sc_io_holder_locked(file, text, bytes, reterr);
    return result("lock", file->path, sys_errno, reterr);
}

/* ---- The back end: open, close -------------------------------------------------------------- */

static void sim_close(struct sc_io *io)
{
    struct sim *sim = io->own;
    lock(sim->disk);
    sim->disk->attached--;
    unlock(sim->disk);
    if (sim->owns_disk)
        sc_io_sim_disk_close(sim->disk);
    sc_alloc_free(io->alloc, sim);
}

static const struct sc_io_backend sim_backend = {
    .name = "sim",
    .close = sim_close,
    .mkdir = sim_mkdir,
    .file_open = sim_file_open,
    .file_close = sim_file_close,
    .file_size = sim_file_size,
    .file_reserve = sim_file_reserve,
    .file_truncate = sim_file_truncate,
    .file_sync = sim_file_sync,
    .file_pread = sim_file_pread,
    .file_pwrite = sim_file_pwrite,
    .file_append = sim_file_append,
    .file_same = sim_file_same,
    .unlink = sim_unlink,
    .rename = sim_rename,
    .list = sim_list,
    .free_bytes = sim_free_bytes,
    .file_lock = sim_file_lock,
    .submit = sim_submit,
};

spec_status sc_io_sim_open(struct sc_io *io, const struct sc_io_params *params,
                           struct spec_error *reterr)
{
    struct sim *sim = sc_alloc_zero(io->alloc, sizeof(*sim));
    if (sim == NULL)
        return sc_fail(reterr, SPEC_E_NO_MEMORY, "sim back end");
    sim->disk = params->sim_disk;
    sim->bytes_per_s = params->sim_bytes_per_s;
    sim->op_ns = params->sim_op_ns;
    if (params->sim_ops_per_s > 0)
        sim->busy_ns_min = 1000000000u / params->sim_ops_per_s;
    if (sim->disk == NULL) {
        const struct sc_io_sim_disk_params own = {.alloc = io->alloc, .seed = params->sim_seed};
        const spec_status status = sc_io_sim_disk_open(&own, &sim->disk, reterr);
        if (status != SPEC_OK) {
            sc_alloc_free(io->alloc, sim);
            return status;
        }
        sim->owns_disk = 1;
    }
    lock(sim->disk);
    sim->disk->attached++;
    unlock(sim->disk);
    io->own = sim;
    io->backend = &sim_backend;
    return SPEC_OK;
}

/* ---- Crash images --------------------------------------------------------------------------- */

/* An image twice: as what is seen and as what lasts. 0 or ENOMEM; then nothing is left to be done
 * but what the caller inits again. */
static int image_twice(struct sc_sim_image *now, struct sc_sim_image *base)
{
    const int sys_errno = sc_sim_image_copy(base, now);
    if (sys_errno != 0) {
        sc_sim_image_done(now);
        sc_sim_image_done(base);
    }
    return sys_errno;
}

spec_status sc_io_sim_disk_crash(struct sc_io_sim_disk *disk, uint64_t seed,
                                 struct spec_error *reterr)
{
    if (disk->journal_mode == 0)
        return sc_fail(reterr, SPEC_E_INVALID, "a disk without a journal cannot crash");
    struct sc_sim_image now, base;
    sc_sim_image_init(&now, &disk->content);
    sc_sim_image_init(&base, &disk->content);
    lock(disk);
    SC_ASSERT(NULL, disk->open_files == NULL);
    SC_ASSERT(NULL, !disk->is_busy && disk->held == NULL);
    int sys_errno =
        sc_sim_journal_crash(&disk->journal, &disk->base, disk->journal.count, seed, &now);
    if (sys_errno != 0)
        sc_sim_image_done(&now);
    else
        sys_errno = image_twice(&now, &base);
    if (sys_errno == 0) {
        sc_sim_image_done(&disk->now);
        sc_sim_image_done(&disk->base);
        sc_sim_journal_done(&disk->journal);
        disk->now = now;
        disk->base = base;
        disarm(disk);
    }
    unlock(disk);
    return sys_errno == 0 ? SPEC_OK : sc_fail(reterr, SPEC_E_NO_MEMORY, "crash image");
}

uint64_t sc_io_sim_disk_events(struct sc_io_sim_disk *disk)
{
    lock(disk);
    const uint64_t count = disk->journal.count;
    unlock(disk);
    return count;
}

static spec_status disk_like(const struct sc_io_sim_disk *disk, uint64_t seed,
                             struct sc_io_sim_disk **ret_disk, struct spec_error *reterr)
{
    const struct sc_io_sim_disk_params params = {.alloc = disk->alloc,
                                                 .seed = seed,
                                                 .capacity_bytes = disk->capacity_bytes,
                                                 .journal = disk->journal_mode};
    const spec_status status = sc_io_sim_disk_open(&params, ret_disk, reterr);
    if (status == SPEC_OK)
        (*ret_disk)->next_inode = disk->next_inode;
    return status;
}

spec_status sc_io_sim_disk_fork(struct sc_io_sim_disk *disk, uint64_t events, uint64_t seed,
                                struct sc_io_sim_disk **ret_disk, struct spec_error *reterr)
{
    if (disk->journal_mode == 0)
        return sc_fail(reterr, SPEC_E_INVALID, "a disk without a journal cannot fork");
    struct sc_io_sim_disk *fork = NULL;
    lock(disk);
    const uint64_t count = disk->journal.count;
    spec_status status;
    if (events > count)
        status =
            sc_fail(reterr, SPEC_E_INVALID, "fork at event %" PRIu64 " of %" PRIu64, events, count);
    else
        status = disk_like(disk, seed, &fork, reterr);
    if (status == SPEC_OK &&
        (sc_sim_journal_crash(&disk->journal, &disk->base, events, seed, &fork->now) != 0 ||
         image_twice(&fork->now, &fork->base) != 0)) {
        sc_io_sim_disk_close(fork);
        status = sc_fail(reterr, SPEC_E_NO_MEMORY, "crash image");
    }
    unlock(disk);
    if (status == SPEC_OK)
        *ret_disk = fork;
    return status;
}

spec_status sc_io_sim_disk_copy(struct sc_io_sim_disk *disk, struct sc_io_sim_disk **ret_disk,
                                struct spec_error *reterr)
{
    struct sc_io_sim_disk *copy = NULL;
    lock(disk);
    spec_status status = disk_like(disk, disk->seed, &copy, reterr);
    if (status == SPEC_OK && (sc_sim_image_copy(&copy->now, &disk->now) != 0 ||
                              image_twice(&copy->now, &copy->base) != 0)) {
        sc_io_sim_disk_close(copy);
        status = sc_fail(reterr, SPEC_E_NO_MEMORY, "copy of a sim disk");
    }
    unlock(disk);
    if (status == SPEC_OK)
        *ret_disk = copy;
    return status;
}

/* ---- Looking and damaging ------------------------------------------------------------------- */

void sc_io_sim_disk_files(struct sc_io_sim_disk *disk,
                          void (*on_file)(const char *path, uint64_t bytes, void *user), void *user)
{
    for (uint64_t i = 0;; i++) {
        char path[SC_LIMIT_PATH_BYTES];
        uint64_t bytes = 0;
        lock(disk);
        const bool is_there = i < disk->now.name_count;
        const bool is_file = is_there && disk->now.names[i].inode != SC_SIM_NO_INODE;
        if (is_file) {
            (void)snprintf(path, sizeof(path), "%s", disk->now.names[i].path);
            bytes = size_of(disk, disk->now.names[i].inode);
        }
        unlock(disk);
        if (!is_there)
            return;
        if (is_file)
            on_file(path, bytes, user);
    }
}

/* Lock held. The inode of a file that has the range, else SC_SIM_NO_INODE. */
static uint64_t file_with(struct sc_io_sim_disk *disk, const char *path, uint64_t offset,
                          uint64_t bytes)
{
    const struct sc_sim_name *name = sc_sim_image_find(&disk->now, path);
    if (name == NULL || name->inode == SC_SIM_NO_INODE)
        return SC_SIM_NO_INODE;
    const uint64_t size = size_of(disk, name->inode);
    return offset <= size && bytes <= size - offset ? name->inode : SC_SIM_NO_INODE;
}

bool sc_io_sim_disk_peek(struct sc_io_sim_disk *disk, const char *path, uint64_t offset,
                         void *buffer, uint64_t bytes)
{
    lock(disk);
    const uint64_t inode = file_with(disk, path, offset, bytes);
    if (inode != SC_SIM_NO_INODE)
        sc_sim_image_read(&disk->now, inode, offset, buffer, bytes);
    unlock(disk);
    return inode != SC_SIM_NO_INODE;
}

bool sc_io_sim_disk_poke(struct sc_io_sim_disk *disk, const char *path, uint64_t offset,
                         const void *buffer, uint64_t bytes)
{
    lock(disk);
    const uint64_t inode = file_with(disk, path, offset, bytes);
    const bool is_done = inode != SC_SIM_NO_INODE &&
                         sc_sim_image_write(&disk->now, inode, offset, buffer, bytes) == 0;
    unlock(disk);
    return is_done;
}

bool sc_io_sim_disk_resize(struct sc_io_sim_disk *disk, const char *path, uint64_t bytes)
{
    lock(disk);
    const uint64_t inode = file_with(disk, path, 0, 0);
    const bool is_done =
        inode != SC_SIM_NO_INODE && sc_sim_image_resize(&disk->now, inode, bytes) == 0;
    unlock(disk);
    return is_done;
}
