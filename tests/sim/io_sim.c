/* The sim back end: files and directories of a simulated disk (tests/sim/io_sim_disk.h).
 *
 *   path --names of the image--> inode --file--> bytes of the image; a change by io_sim_disk.c
 *
 * Holds: what a call changed is there for the next one, and lasts when a sync says so.
 * Does not: block: nothing here takes time; only operations do (io_sim_device.c).
 * Threads: any; the disk's lock.
 * Tests: tests/unit/store/test_io_sim.c, test_io.c */
#include "tests/sim/io_sim_disk.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* ---- Files ---------------------------------------------------------------------------------- */

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
    struct sc_io_sim_disk *disk = sc_sim_disk_of(io);
    int sys_errno;
    sc_sim_lock(disk);
    const struct sc_sim_name *name = sc_sim_image_find(&disk->now, path);
    if (disk->is_off)
        sys_errno = EIO;
    else if (name != NULL)
        sys_errno = name->inode == SC_SIM_NO_INODE ? 0 : ENOTDIR;
    else if (!parent_exists(disk, path))
        sys_errno = ENOENT;
    else if (sc_sim_power_is_off(disk))
        sys_errno = EIO;
    else
        sys_errno = sc_sim_change(disk, SC_SIM_EVENT_MKDIR, SC_SIM_NO_INODE, 0, 0, path);
    sc_sim_unlock(disk);
    return result("make directory", path, sys_errno, reterr);
}

/* Lock held. */
static int open_locked(struct sc_io_sim_disk *disk, const struct sc_io_file *file,
                       struct sc_sim_file *own)
{
    const struct sc_sim_name *name = sc_sim_image_find(&disk->now, file->path);
    if (disk->is_off)
        return EIO;
    if (own == NULL)
        return ENOMEM;
    if (name != NULL) {
        if (name->inode == SC_SIM_NO_INODE)
            return EISDIR;
        const uint32_t exclusive = SC_IO_OPEN_CREATE | SC_IO_OPEN_EXCLUSIVE;
        own->inode = name->inode;
        return (file->flags & exclusive) == exclusive ? EEXIST : 0;
    }
    if ((file->flags & SC_IO_OPEN_CREATE) == 0 || !parent_exists(disk, file->path))
        return ENOENT;
    if (sc_sim_power_is_off(disk))
        return EIO;
    own->inode = disk->next_inode;
    const int sys_errno = sc_sim_change(disk, SC_SIM_EVENT_CREATE, own->inode, 0, 0, file->path);
    disk->next_inode += sys_errno == 0;
    return sys_errno;
}

static spec_status sim_file_open(struct sc_io *io, struct sc_io_file *file,
                                 struct spec_error *reterr)
{
    struct sc_io_sim_disk *disk = sc_sim_disk_of(io);
    sc_sim_lock(disk);
    struct sc_sim_file *own = sc_alloc_zero(&disk->content, sizeof(*own));
    const int sys_errno = open_locked(disk, file, own);
    if (sys_errno == 0) {
        own->next_open = disk->open_files;
        disk->open_files = own;
        file->own = own;
    } else {
        sc_alloc_free(&disk->content, own);
    }
    sc_sim_unlock(disk);
    return result((file->flags & SC_IO_OPEN_CREATE) != 0 ? "create" : "open", file->path, sys_errno,
                  reterr);
}

static bool inode_is_open(uint64_t inode, const void *user)
{
    const struct sc_io_sim_disk *disk = user;
    for (const struct sc_sim_file *file = disk->open_files; file != NULL; file = file->next_open)
        if (file->inode == inode)
            return true;
    return false;
}

static void sim_file_close(struct sc_io *io, struct sc_io_file *file)
{
    struct sc_io_sim_disk *disk = sc_sim_disk_of(io);
    sc_sim_lock(disk);
    struct sc_sim_file **at = &disk->open_files;
    while (*at != NULL && *at != file->own)
        at = &(*at)->next_open;
    SC_ASSERT(NULL, *at == file->own);
    if (*at == file->own)
        *at = (*at)->next_open;
    sc_alloc_free(&disk->content, file->own);
    sc_sim_image_sweep(&disk->now, inode_is_open, disk);
    sc_sim_unlock(disk);
}

static spec_status sim_file_size(struct sc_io *io, struct sc_io_file *file, uint64_t *ret_bytes,
                                 struct spec_error *reterr)
{
    struct sc_io_sim_disk *disk = sc_sim_disk_of(io);
    sc_sim_lock(disk);
    const uint64_t bytes = sc_sim_size_of(disk, sc_sim_inode_of(file));
    const int sys_errno = disk->is_off ? EIO : 0;
    sc_sim_unlock(disk);
    if (sys_errno == 0)
        *ret_bytes = bytes;
    return result("size of", file->path, sys_errno, reterr);
}

static spec_status sim_file_reserve(struct sc_io *io, struct sc_io_file *file, uint64_t bytes,
                                    struct spec_error *reterr)
{
    struct sc_io_sim_disk *disk = sc_sim_disk_of(io);
    int sys_errno = 0;
    sc_sim_lock(disk);
    if (sc_sim_power_is_off(disk))
        sys_errno = EIO;
    else if ((file->flags & SC_IO_OPEN_WRITE) == 0)
        sys_errno = EBADF;
    else if (sc_sim_fault_hits(disk, SC_SIM_NO_SPACE, file->path) ||
             !sc_sim_fits(disk, sc_sim_inode_of(file), bytes))
        sys_errno = ENOSPC;
    else if (sc_sim_size_of(disk, sc_sim_inode_of(file)) < bytes)
        sys_errno = sc_sim_change(disk, SC_SIM_EVENT_RESIZE, sc_sim_inode_of(file), 0, bytes, NULL);
    sc_sim_unlock(disk);
    return result("reserve", file->path, sys_errno, reterr);
}

static spec_status sim_file_truncate(struct sc_io *io, struct sc_io_file *file, uint64_t bytes,
                                     struct spec_error *reterr)
{
    struct sc_io_sim_disk *disk = sc_sim_disk_of(io);
    int sys_errno;
    sc_sim_lock(disk);
    if (sc_sim_power_is_off(disk))
        sys_errno = EIO;
    else if ((file->flags & SC_IO_OPEN_WRITE) == 0)
        sys_errno = EBADF;
    else if (sc_sim_fault_hits(disk, SC_SIM_CUT_EIO, file->path))
        sys_errno = EIO;
    else if (!sc_sim_fits(disk, sc_sim_inode_of(file), bytes))
        sys_errno = ENOSPC;
    else
        sys_errno = sc_sim_change(disk, SC_SIM_EVENT_RESIZE, sc_sim_inode_of(file), 0, bytes, NULL);
    sc_sim_unlock(disk);
    return result("truncate", file->path, sys_errno, reterr);
}

/* Lock held. The file of an inode, or (SC_SIM_NO_INODE) a directory. */
static int sync_locked(struct sc_io_sim_disk *disk, const char *path, uint64_t inode)
{
    if (sc_sim_power_is_off(disk))
        return EIO;
    if (sc_sim_fault_hits(disk, SC_SIM_SYNC_EIO, path)) {
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
    struct sc_io_sim_disk *disk = sc_sim_disk_of(io);
    sc_sim_lock(disk);
    const int sys_errno = sync_locked(disk, file->path, sc_sim_inode_of(file));
    sc_sim_unlock(disk);
    return result("sync", file->path, sys_errno, reterr);
}

static spec_status sim_file_pread(struct sc_io *io, struct sc_io_file *file, void *buffer,
                                  uint64_t bytes, uint64_t offset, struct spec_error *reterr)
{
    struct sc_io_sim_disk *disk = sc_sim_disk_of(io);
    sc_sim_lock(disk);
    const int sys_errno = sc_sim_disk_read(disk, file, offset, buffer, bytes);
    sc_sim_unlock(disk);
    return result("read", file->path, sys_errno, reterr);
}

static spec_status sim_file_pwrite(struct sc_io *io, struct sc_io_file *file, const void *buffer,
                                   uint64_t bytes, uint64_t offset, struct spec_error *reterr)
{
    struct sc_io_sim_disk *disk = sc_sim_disk_of(io);
    sc_sim_lock(disk);
    const int sys_errno = sc_sim_disk_write(disk, file, offset, buffer, bytes);
    sc_sim_unlock(disk);
    return result("write", file->path, sys_errno, reterr);
}

static spec_status sim_file_append(struct sc_io *io, struct sc_io_file *file, const void *buffer,
                                   uint64_t bytes, uint64_t *ret_end, struct spec_error *reterr)
{
    struct sc_io_sim_disk *disk = sc_sim_disk_of(io);
    sc_sim_lock(disk);
    const uint64_t end = sc_sim_size_of(disk, sc_sim_inode_of(file));
    const int sys_errno =
        bytes > INT64_MAX - end ? EFBIG : sc_sim_disk_write(disk, file, end, buffer, bytes);
    sc_sim_unlock(disk);
    *ret_end = end + bytes;
    return result("append to", file->path, sys_errno, reterr);
}

static spec_status sim_file_same(struct sc_io *io, struct sc_io_file *file, const char *path,
                                 bool *ret_same, struct spec_error *reterr)
{
    struct sc_io_sim_disk *disk = sc_sim_disk_of(io);
    sc_sim_lock(disk);
    const struct sc_sim_name *name = sc_sim_image_find(&disk->now, path);
    const bool is_same = name != NULL && name->inode == sc_sim_inode_of(file);
    const int sys_errno = disk->is_off ? EIO : 0;
    sc_sim_unlock(disk);
    if (sys_errno == 0)
        *ret_same = is_same;
    return result("look at", path, sys_errno, reterr);
}

static uint64_t sim_stamp(struct sc_io *io, const char *path)
{
    struct sc_io_sim_disk *disk = sc_sim_disk_of(io);
    uint64_t stamp = SC_IO_STAMP_ABSENT;
    sc_sim_lock(disk);
    const struct sc_sim_name *name = sc_sim_image_find(&disk->now, path);
    if (disk->is_off)
        stamp = SC_IO_STAMP_UNKNOWN;
    else if (name != NULL && name->inode == SC_SIM_NO_INODE)
        stamp += 1 + disk->now.name_changes;
    else if (name != NULL)
        stamp += (name->inode + 1) << 32 | disk->now.inodes[name->inode].changes;
    sc_sim_unlock(disk);
    return stamp;
}

/* Lock held. The change, and then the sync of the directory, with a power cut possible between. */
static int rename_locked(struct sc_io_sim_disk *disk, const char *from, const char *to)
{
    char paths[2 * SC_LIMIT_PATH_BYTES];
    const size_t from_bytes = strlen(from) + 1, to_bytes = strlen(to) + 1;
    const struct sc_sim_name *name = sc_sim_image_find(&disk->now, from);
    const struct sc_sim_name *old = sc_sim_image_find(&disk->now, to);
    if (sc_sim_power_is_off(disk))
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
        sc_sim_change(disk, SC_SIM_EVENT_RENAME, SC_SIM_NO_INODE, 0, from_bytes + to_bytes, paths);
    if (sys_errno != 0)
        return sys_errno;
    sc_sim_image_sweep(&disk->now, inode_is_open, disk);
    return sync_locked(disk, to, SC_SIM_NO_INODE);
}

static spec_status sim_rename(struct sc_io *io, const char *from, const char *to,
                              struct spec_error *reterr)
{
    struct sc_io_sim_disk *disk = sc_sim_disk_of(io);
    sc_sim_lock(disk);
    const int sys_errno = rename_locked(disk, from, to);
    sc_sim_unlock(disk);
    return result("rename", from, sys_errno, reterr);
}

static spec_status sim_unlink(struct sc_io *io, const char *path, struct spec_error *reterr)
{
    struct sc_io_sim_disk *disk = sc_sim_disk_of(io);
    int sys_errno;
    sc_sim_lock(disk);
    const struct sc_sim_name *name = sc_sim_image_find(&disk->now, path);
    if (sc_sim_power_is_off(disk))
        sys_errno = EIO;
    else if (name == NULL)
        sys_errno = ENOENT;
    else if (name->inode == SC_SIM_NO_INODE)
        sys_errno = EISDIR;
    else
        sys_errno = sc_sim_change(disk, SC_SIM_EVENT_UNLINK, name->inode, 0, 0, path);
    if (sys_errno == 0)
        sc_sim_image_sweep(&disk->now, inode_is_open, disk);
    sc_sim_unlock(disk);
    return result("remove", path, sys_errno, reterr);
}

/* Copies the i-th name of a directory. The lock is released between two names, because on_name may
 * call back; a name removed meanwhile may hide another, as readdir allows. */
static bool list_at(struct sc_io_sim_disk *disk, const char *path, uint64_t *i, char *ret_name,
                    size_t name_bytes)
{
    const size_t length = strlen(path);
    bool is_found = false;
    sc_sim_lock(disk);
    while (*i < disk->now.name_count && !is_found) {
        const char *at = disk->now.names[(*i)++].path;
        if (strncmp(at, path, length) != 0 || at[length] != '/' || strchr(at + length + 1, '/'))
            continue;
        is_found = strlen(at + length + 1) < name_bytes;
        if (is_found)
            memcpy(ret_name, at + length + 1, strlen(at + length + 1) + 1);
    }
    sc_sim_unlock(disk);
    return is_found;
}

static spec_status sim_list(struct sc_io *io, const char *path,
                            void (*on_name)(const char *name, void *user), void *user,
                            struct spec_error *reterr)
{
    struct sc_io_sim_disk *disk = sc_sim_disk_of(io);
    sc_sim_lock(disk);
    const struct sc_sim_name *dir = sc_sim_image_find(&disk->now, path);
    int sys_errno = disk->is_off ? EIO : 0;
    if (sys_errno == 0 && dir == NULL)
        sys_errno = ENOENT;
    else if (sys_errno == 0 && dir->inode != SC_SIM_NO_INODE)
        sys_errno = ENOTDIR;
    sc_sim_unlock(disk);
    char name[256]; /* NAME_MAX and its NUL */
    for (uint64_t i = 0; sys_errno == 0 && list_at(disk, path, &i, name, sizeof(name));)
        on_name(name, user);
    return result("list", path, sys_errno, reterr);
}

static spec_status sim_free_bytes(struct sc_io *io, const char *path, uint64_t *ret_bytes,
                                  struct spec_error *reterr)
{
    struct sc_io_sim_disk *disk = sc_sim_disk_of(io);
    sc_sim_lock(disk);
    const uint64_t used_bytes = disk->now.used_bytes;
    const int sys_errno = disk->is_off ? EIO : 0;
    sc_sim_unlock(disk);
    if (sys_errno == 0)
        *ret_bytes = used_bytes < disk->capacity_bytes ? disk->capacity_bytes - used_bytes : 0;
    return result("free space of", path, sys_errno, reterr);
}

static spec_status sim_file_lock(struct sc_io *io, struct sc_io_file *file,
                                 struct spec_error *reterr)
{
    struct sc_io_sim_disk *disk = sc_sim_disk_of(io);
    struct sc_sim_file *own = file->own;
    /* Constants and the clock: the disk's bytes depend on the seeds alone. */
    const struct sc_io_holder holder = {.pid = 1,
                                        .start_s = sc_exec_wall_ns(io->exec) / 1000000000u,
                                        .boot_id = "00000000-0000-0000-0000-000000000000",
                                        .host = "sim"};
    char text[SC_IO_HOLDER_BYTES];
    uint64_t bytes = sc_io_holder_format(&holder, text);
    int sys_errno = 0;
    sc_sim_lock(disk);
    bool is_held = false;
    for (const struct sc_sim_file *at = disk->open_files; at != NULL; at = at->next_open)
        is_held |= at != own && at->inode == own->inode && (at->holds_lock || at->is_sharing);
    if ((file->flags & SC_IO_OPEN_WRITE) == 0) {
        sys_errno = EBADF;
    } else if (is_held) {
        const uint64_t size = sc_sim_size_of(disk, own->inode);
        bytes = size < sizeof(text) ? size : sizeof(text);
        sc_sim_image_read(&disk->now, own->inode, 0, (uint8_t *)text, bytes);
    } else if (sc_sim_power_is_off(disk)) {
        sys_errno = EIO;
    } else {
        sys_errno = sc_sim_change(disk, SC_SIM_EVENT_RESIZE, own->inode, 0, 0, NULL);
        if (sys_errno == 0 && !sc_sim_fits(disk, own->inode, bytes))
            sys_errno = ENOSPC;
        if (sys_errno == 0)
            sys_errno = sc_sim_change(disk, SC_SIM_EVENT_WRITE, own->inode, 0, bytes, text);
        own->holds_lock = sys_errno == 0;
    }
    sc_sim_unlock(disk);
    if (sys_errno == 0 && is_held)
        return sc_io_holder_locked(file, text, bytes, reterr);
    return result("lock", file->path, sys_errno, reterr);
}

static void sim_file_unclaim(struct sc_io *io, struct sc_io_file *file)
{
    struct sc_io_sim_disk *disk = sc_sim_disk_of(io);
    struct sc_sim_file *own = file->own;
    sc_sim_lock(disk);
    own->holds_lock = false;
    sc_sim_unlock(disk);
}

static spec_status sim_file_lock_shared(struct sc_io *io, struct sc_io_file *file,
                                        struct spec_error *reterr)
{
    struct sc_io_sim_disk *disk = sc_sim_disk_of(io);
    struct sc_sim_file *own = file->own;
    sc_sim_lock(disk);
    bool is_held = false;
    for (const struct sc_sim_file *at = disk->open_files; at != NULL; at = at->next_open)
        is_held |= at != own && at->inode == own->inode && at->holds_lock;
    own->is_sharing = own->is_sharing || !is_held;
    own->holds_lock = own->holds_lock && is_held;
    sc_sim_unlock(disk);
    return is_held ? sc_fail(reterr, SPEC_E_LOCKED, "%s: another process has it", file->path)
                   : SPEC_OK;
}

static spec_status sim_file_claim(struct sc_io *io, struct sc_io_file *file,
                                  struct spec_error *reterr)
{
    struct sc_io_sim_disk *disk = sc_sim_disk_of(io);
    struct sc_sim_file *own = file->own;
    sc_sim_lock(disk);
    bool is_held = false;
    for (const struct sc_sim_file *at = disk->open_files; at != NULL; at = at->next_open)
        is_held |= at != own && at->inode == own->inode && (at->holds_lock || at->is_sharing);
    own->holds_lock = own->holds_lock || !is_held;
    sc_sim_unlock(disk);
    return is_held ? sc_fail(reterr, SPEC_E_LOCKED, "%s: another process writes to it", file->path)
                   : SPEC_OK;
}

/* Lock held. Places of the inode that others have. */
static uint32_t places_of_others(const struct sc_io_sim_disk *disk, const struct sc_sim_file *own)
{
    uint32_t places = 0;
    for (const struct sc_sim_file *at = disk->open_files; at != NULL; at = at->next_open)
        places |= at != own && at->inode == own->inode ? at->places : 0;
    return places;
}

static spec_status sim_file_join(struct sc_io *io, struct sc_io_file *file, uint32_t places,
                                 uint32_t *ret_place, struct spec_error *reterr)
{
    struct sc_io_sim_disk *disk = sc_sim_disk_of(io);
    struct sc_sim_file *own = file->own;
    uint32_t place = 0;
    sc_sim_lock(disk);
    const uint32_t taken = places_of_others(disk, own);
    while (place < places && (taken >> place & 1) != 0)
        place++;
    own->places |= place < places ? UINT32_C(1) << place : 0;
    *ret_place = place;
    sc_sim_unlock(disk);
    return place < places ? SPEC_OK
                          : sc_fail(reterr, SPEC_E_LOCKED, "%s: all %" PRIu32 " places are taken",
                                    file->path, places);
}

static uint32_t sim_file_joined(struct sc_io *io, struct sc_io_file *file, uint32_t places)
{
    struct sc_io_sim_disk *disk = sc_sim_disk_of(io);
    sc_sim_lock(disk);
    const uint32_t taken = places_of_others(disk, file->own);
    sc_sim_unlock(disk);
    return (uint32_t)__builtin_popcount(taken & ((UINT32_C(1) << places) - 1));
}

static void sim_file_share(struct sc_io *io, struct sc_io_file *file)
{
    struct sc_io_sim_disk *disk = sc_sim_disk_of(io);
    struct sc_sim_file *own = file->own;
    sc_sim_lock(disk);
    own->is_sharing = true;
    sc_sim_unlock(disk);
}

static bool sim_file_is_shared(struct sc_io *io, struct sc_io_file *file)
{
    struct sc_io_sim_disk *disk = sc_sim_disk_of(io);
    const struct sc_sim_file *own = file->own;
    bool is_shared = false;
    sc_sim_lock(disk);
    for (const struct sc_sim_file *at = disk->open_files; at != NULL; at = at->next_open)
        is_shared |= at != own && at->inode == own->inode && (at->is_sharing || at->holds_lock);
    sc_sim_unlock(disk);
    return is_shared;
}

/* A process that maps another number of bytes has none. */
static void *sim_file_map(struct sc_io *io, struct sc_io_file *file, uint64_t bytes)
{
    struct sc_io_sim_disk *disk = sc_sim_disk_of(io);
    if (sim_file_reserve(io, file, bytes, NULL) != SPEC_OK)
        return NULL;
    sc_sim_lock(disk);
    const uint64_t inode = sc_sim_inode_of(file);
    struct sc_sim_map *map = disk->maps;
    while (map != NULL && map->inode != inode)
        map = map->next;
    if (map == NULL) {
        map = sc_alloc_zero(&disk->content, sizeof(*map) + bytes);
        if (map != NULL) {
            map->inode = inode;
            map->bytes = bytes;
            map->next = disk->maps;
            disk->maps = map;
        }
    }
    sc_sim_unlock(disk);
    return map != NULL && map->bytes == bytes ? map->memory : NULL;
}

static void sim_unmap(struct sc_io *io, void *memory, uint64_t bytes)
{
    (void)io;
    (void)memory;
    (void)bytes;
}

static uint64_t sim_random(struct sc_io *io)
{
    struct sc_io_sim_disk *disk = sc_sim_disk_of(io);
    sc_sim_lock(disk);
    const uint64_t number = sc_sim_random(&disk->drawn);
    sc_sim_unlock(disk);
    return number;
}

/* ---- Open, close ---------------------------------------------------------------------------- */

static void sim_close(struct sc_io *io)
{
    struct sc_io_sim_disk *disk = sc_sim_disk_of(io);
    sc_sim_lock(disk);
    disk->attached--;
    sc_sim_unlock(disk);
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
    .stamp = sim_stamp,
    .unlink = sim_unlink,
    .rename = sim_rename,
    .list = sim_list,
    .free_bytes = sim_free_bytes,
    .file_lock = sim_file_lock,
    .file_claim = sim_file_claim,
    .file_unclaim = sim_file_unclaim,
    .file_lock_shared = sim_file_lock_shared,
    .file_join = sim_file_join,
    .file_joined = sim_file_joined,
    .file_share = sim_file_share,
    .file_is_shared = sim_file_is_shared,
    .file_map = sim_file_map,
    .unmap = sim_unmap,
    .random = sim_random,
    .submit = sc_sim_submit,
};

spec_status sc_sim_open(struct sc_io *io, void *user, struct spec_error *reterr)
{
    struct sc_io_sim_disk *disk = user;
    (void)reterr; /* it cannot fail */
    sc_sim_lock(disk);
    disk->attached++;
    sc_sim_unlock(disk);
    io->own = disk;
    io->backend = &sim_backend;
    return SPEC_OK;
}
