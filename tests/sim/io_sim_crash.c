/* What a test does to a simulated disk from outside: crashes, copies, looks, damage.
 *
 *   image at the last sync + [changes since: kept, lost, torn, reordered by a seed] -> a disk after
 *   a crash; at any event of the journal
 *
 * Holds: the same disk, event and seed give the same image.
 * Does not: count as changes: no fault hits what is done here, the power may be off.
 * Threads: any; the disk's lock.
 * Tests: tests/unit/store/test_io_sim.c */
#include "tests/sim/io_sim_disk.h"

#include "base/assert.h"

#include <stdio.h>

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
    sc_sim_lock(disk);
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
        sc_sim_disarm(disk);
    }
    sc_sim_unlock(disk);
    return sys_errno == 0 ? SPEC_OK : sc_fail(reterr, SPEC_E_NO_MEMORY, "crash image");
}

uint64_t sc_io_sim_disk_events(struct sc_io_sim_disk *disk)
{
    sc_sim_lock(disk);
    const uint64_t count = disk->journal.count;
    sc_sim_unlock(disk);
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
    if (status == SPEC_OK) {
        (*ret_disk)->next_inode = disk->next_inode;
        (*ret_disk)->drawn = disk->drawn;
        sc_io_sim_disk_device(*ret_disk, &disk->device);
    }
    return status;
}

spec_status sc_io_sim_disk_fork(struct sc_io_sim_disk *disk, uint64_t events, uint64_t seed,
                                struct sc_io_sim_disk **ret_disk, struct spec_error *reterr)
{
    if (disk->journal_mode == 0)
        return sc_fail(reterr, SPEC_E_INVALID, "a disk without a journal cannot fork");
    struct sc_io_sim_disk *fork = NULL;
    sc_sim_lock(disk);
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
    sc_sim_unlock(disk);
    if (status == SPEC_OK)
        *ret_disk = fork;
    return status;
}

spec_status sc_io_sim_disk_copy(struct sc_io_sim_disk *disk, struct sc_io_sim_disk **ret_disk,
                                struct spec_error *reterr)
{
    struct sc_io_sim_disk *copy = NULL;
    sc_sim_lock(disk);
    spec_status status = disk_like(disk, disk->seed, &copy, reterr);
    if (status == SPEC_OK && (sc_sim_image_copy(&copy->now, &disk->now) != 0 ||
                              image_twice(&copy->now, &copy->base) != 0)) {
        sc_io_sim_disk_close(copy);
        status = sc_fail(reterr, SPEC_E_NO_MEMORY, "copy of a sim disk");
    }
    sc_sim_unlock(disk);
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
        sc_sim_lock(disk);
        const bool is_there = i < disk->now.name_count;
        const bool is_file = is_there && disk->now.names[i].inode != SC_SIM_NO_INODE;
        if (is_file) {
            (void)snprintf(path, sizeof(path), "%s", disk->now.names[i].path);
            bytes = sc_sim_size_of(disk, disk->now.names[i].inode);
        }
        sc_sim_unlock(disk);
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
    const uint64_t size = sc_sim_size_of(disk, name->inode);
    return offset <= size && bytes <= size - offset ? name->inode : SC_SIM_NO_INODE;
}

bool sc_io_sim_disk_peek(struct sc_io_sim_disk *disk, const char *path, uint64_t offset,
                         void *buffer, uint64_t bytes)
{
    sc_sim_lock(disk);
    const uint64_t inode = file_with(disk, path, offset, bytes);
    if (inode != SC_SIM_NO_INODE)
        sc_sim_image_read(&disk->now, inode, offset, buffer, bytes);
    sc_sim_unlock(disk);
    return inode != SC_SIM_NO_INODE;
}

bool sc_io_sim_disk_poke(struct sc_io_sim_disk *disk, const char *path, uint64_t offset,
                         const void *buffer, uint64_t bytes)
{
    sc_sim_lock(disk);
    const uint64_t inode = file_with(disk, path, offset, bytes);
    const bool is_done = inode != SC_SIM_NO_INODE &&
                         sc_sim_image_write(&disk->now, inode, offset, buffer, bytes) == 0;
    sc_sim_unlock(disk);
    return is_done;
}

bool sc_io_sim_disk_resize(struct sc_io_sim_disk *disk, const char *path, uint64_t bytes)
{
    sc_sim_lock(disk);
    const uint64_t inode = file_with(disk, path, 0, 0);
    const bool is_done =
        inode != SC_SIM_NO_INODE && sc_sim_image_resize(&disk->now, inode, bytes) == 0;
    sc_sim_unlock(disk);
    return is_done;
}
