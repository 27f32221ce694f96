/* The simulated disk: an image, a journal of its changes, and faults that hit them.
 *
 *   change -> [power on?] -> [fault?] -> journal (what a crash may take back) -> image (what is
 * seen)
 *
 * Holds: a change is in the image and in the journal, or in neither; after the power went nothing
 * changes.
 * Does not: know of time (io_sim_device.c) or of open files' names (io_sim.c).
 * Threads: tests/sim/io_sim_disk.h.
 * Tests: tests/unit/store/test_io_sim.c */
#include "tests/sim/io_sim_disk.h"

#include "base/assert.h"

#include <errno.h>
#include <string.h>

#define CAPACITY_BYTES (1ull << 40)
#define LATE_NS        50000000u

/* ---- The disk: open, close ------------------------------------------------------------------ */

void sc_sim_disarm(struct sc_io_sim_disk *disk)
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
    disk->drawn = ~params->seed;
    disk->capacity_bytes = params->capacity_bytes == 0 ? CAPACITY_BYTES : params->capacity_bytes;
    disk->journal_mode = params->journal;
    disk->late_ns = LATE_NS;
    disk->custom = (struct sc_io_custom){.open = sc_sim_open, .user = disk};
    sc_alloc_init(&disk->content);
    sc_sim_image_init(&disk->now, &disk->content);
    sc_sim_image_init(&disk->base, &disk->content);
    sc_sim_journal_init(&disk->journal, &disk->content);
    sc_sim_disarm(disk);
    *ret_disk = disk;
    return SPEC_OK;
}

void sc_io_sim_disk_close(struct sc_io_sim_disk *disk)
{
    if (disk == NULL)
        return;
    SC_ASSERT(NULL, disk->attached == 0);
    SC_ASSERT(NULL, disk->open_files == NULL);
    while (disk->maps != NULL) {
        struct sc_sim_map *map = disk->maps;
        disk->maps = map->next;
        sc_alloc_free(&disk->content, map);
    }
    sc_sim_image_done(&disk->now);
    sc_sim_image_done(&disk->base);
    sc_sim_journal_done(&disk->journal);
    (void)pthread_mutex_destroy(&disk->lock);
    sc_alloc_free(disk->alloc, disk);
}

void sc_io_sim_disk_device(struct sc_io_sim_disk *disk, const struct sc_io_sim_device *device)
{
    sc_sim_lock(disk);
    disk->device = *device;
    disk->custom.seed = device->loop_seed;
    sc_sim_unlock(disk);
}

void sc_io_sim_disk_rate(struct sc_io_sim_disk *disk, uint64_t bytes_per_s)
{
    sc_sim_lock(disk);
    disk->device.bytes_per_s = bytes_per_s;
    sc_sim_unlock(disk);
}

const struct sc_io_custom *sc_io_sim_custom(struct sc_io_sim_disk *disk)
{
    return disk != NULL ? &disk->custom : NULL;
}

/* ---- Faults --------------------------------------------------------------------------------- */

void sc_io_sim_fault_ppm(struct sc_io_sim_disk *disk, enum sc_io_sim_fault fault, uint64_t ppm)
{
    sc_sim_lock(disk);
    disk->ppm[fault] = ppm;
    sc_sim_unlock(disk);
}

void sc_io_sim_fault_nth(struct sc_io_sim_disk *disk, enum sc_io_sim_fault fault, uint64_t n)
{
    sc_sim_lock(disk);
    disk->nth[fault] = n > INT64_MAX ? INT64_MAX : (int64_t)n;
    sc_sim_unlock(disk);
}

void sc_io_sim_fault_scope(struct sc_io_sim_disk *disk, const char *text)
{
    sc_sim_lock(disk);
    disk->scope = text;
    sc_sim_unlock(disk);
}

void sc_io_sim_fault_late_ns(struct sc_io_sim_disk *disk, uint64_t late_ns)
{
    sc_sim_lock(disk);
    disk->late_ns = late_ns;
    sc_sim_unlock(disk);
}

uint64_t sc_io_sim_fault_fired(struct sc_io_sim_disk *disk, enum sc_io_sim_fault fault)
{
    sc_sim_lock(disk);
    const uint64_t fired = disk->fired[fault];
    sc_sim_unlock(disk);
    return fired;
}

void sc_io_sim_power_off(struct sc_io_sim_disk *disk)
{
    sc_io_sim_power_off_after(disk, 0);
    sc_sim_lock(disk);
    disk->is_off = 1;
    sc_sim_unlock(disk);
}

void sc_io_sim_power_off_after(struct sc_io_sim_disk *disk, uint64_t n)
{
    sc_sim_lock(disk);
    disk->changes_left = n;
    sc_sim_unlock(disk);
}

bool sc_sim_fault_hits(struct sc_io_sim_disk *disk, enum sc_io_sim_fault fault, const char *path)
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

bool sc_sim_power_is_off(struct sc_io_sim_disk *disk)
{
    if (disk->changes_left == 0)
        disk->is_off = 1;
    else if (disk->changes_left != UINT64_MAX)
        disk->changes_left--;
    return disk->is_off;
}

int sc_sim_change(struct sc_io_sim_disk *disk, uint32_t kind, uint64_t inode, uint64_t offset,
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

uint64_t sc_sim_size_of(const struct sc_io_sim_disk *disk, uint64_t inode)
{
    return disk->now.inodes[inode].bytes;
}

bool sc_sim_fits(const struct sc_io_sim_disk *disk, uint64_t inode, uint64_t end)
{
    const uint64_t bytes = sc_sim_size_of(disk, inode);
    return end <= bytes || (disk->now.used_bytes <= disk->capacity_bytes &&
                            end - bytes <= disk->capacity_bytes - disk->now.used_bytes);
}

/* Another place in the file for a write that goes astray, and how much of it fits there. */
static uint64_t stray(struct sc_io_sim_disk *disk, uint64_t inode, uint64_t offset, uint64_t *bytes)
{
    const uint64_t pages = sc_sim_size_of(disk, inode) / SC_IO_PAGE_BYTES;
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

static int write_change(struct sc_io_sim_disk *disk, const struct sc_io_file *file, uint64_t offset,
                        const uint8_t *data, uint64_t bytes)
{
    return bytes == 0 ? 0
                      : sc_sim_change(disk, SC_SIM_EVENT_WRITE, sc_sim_inode_of(file), offset,
                                      bytes, data);
}

/* Whether there is anything but zeros, or the end of the file. */
static bool holds_something(struct sc_io_sim_disk *disk, uint64_t inode, uint64_t offset,
                            uint64_t bytes)
{
    uint8_t held[SC_IO_PAGE_BYTES];
    if (offset + bytes > sc_sim_size_of(disk, inode))
        return false;
    sc_sim_image_read(&disk->now, inode, offset, held, bytes);
    for (uint64_t i = 0; i < bytes; i++)
        if (held[i] != 0)
            return true;
    return false;
}

/* Page by page, but for a part of those that held something. */
static int write_stale(struct sc_io_sim_disk *disk, const struct sc_io_file *file, uint64_t offset,
                       const uint8_t *data, uint64_t bytes)
{
    const uint64_t lost_of_4 = 1 + sc_sim_random_below(&disk->random, 4);
    int sys_errno = 0;
    for (uint64_t at = 0, now; at < bytes && sys_errno == 0; at += now) {
        now = SC_IO_PAGE_BYTES - (offset + at) % SC_IO_PAGE_BYTES;
        now = now < bytes - at ? now : bytes - at;
        if (sc_sim_random_below(&disk->random, 4) >= lost_of_4 ||
            !holds_something(disk, sc_sim_inode_of(file), offset + at, now))
            sys_errno = write_change(disk, file, offset + at, data + at, now);
    }
    return sys_errno;
}

int sc_sim_disk_write(struct sc_io_sim_disk *disk, const struct sc_io_file *file, uint64_t offset,
                      const uint8_t *data, uint64_t bytes)
{
    if (sc_sim_power_is_off(disk) || sc_sim_fault_hits(disk, SC_SIM_WRITE_EIO, file->path))
        return EIO;
    if ((file->flags & SC_IO_OPEN_WRITE) == 0)
        return EBADF;
    if (sc_sim_fault_hits(disk, SC_SIM_NO_SPACE, file->path) ||
        !sc_sim_fits(disk, sc_sim_inode_of(file), offset + bytes))
        return ENOSPC;
    if (sc_sim_fault_hits(disk, SC_SIM_LOST, file->path))
        return 0;
    if (sc_sim_fault_hits(disk, SC_SIM_STALE, file->path))
        return write_stale(disk, file, offset, data, bytes);
    if (sc_sim_fault_hits(disk, SC_SIM_WRITE_PART, file->path)) {
        const uint64_t part = sc_sim_random_below(&disk->random, 2) * bytes;
        bytes = part > 0 ? part : sc_sim_random_below(&disk->random, bytes + 1);
        const int sys_errno = write_change(disk, file, offset, data, bytes);
        return sys_errno != 0 ? sys_errno : EIO;
    }
    if (sc_sim_fault_hits(disk, SC_SIM_TORN, file->path)) {
        const uint64_t lead = offset % SC_IO_SIM_SECTOR_BYTES;
        const uint64_t whole = (lead + bytes - 1) / SC_IO_SIM_SECTOR_BYTES;
        const uint64_t end = sc_sim_random_below(&disk->random, whole + 1) * SC_IO_SIM_SECTOR_BYTES;
        bytes = end <= lead ? 0 : end - lead;
    }
    if (sc_sim_fault_hits(disk, SC_SIM_MISDIRECTED, file->path))
        offset = stray(disk, sc_sim_inode_of(file), offset, &bytes);
    return write_change(disk, file, offset, data, bytes);
}

int sc_sim_disk_read(struct sc_io_sim_disk *disk, const struct sc_io_file *file, uint64_t offset,
                     uint8_t *data, uint64_t bytes)
{
    if (disk->is_off || sc_sim_fault_hits(disk, SC_SIM_READ_EIO, file->path))
        return EIO;
    const uint64_t size = sc_sim_size_of(disk, sc_sim_inode_of(file));
    if (offset > size || bytes > size - offset)
        return EIO;
    sc_sim_image_read(&disk->now, sc_sim_inode_of(file), offset, data, bytes);
    if (sc_sim_fault_hits(disk, SC_SIM_FLIP, file->path)) {
        const uint64_t bit = sc_sim_random_below(&disk->random, bytes * 8);
        data[bit / 8] ^= (uint8_t)(1u << (bit % 8));
    }
    return 0;
}
