/* io_posix: files on a POSIX file system.
 * O_DIRECT: statx tells support and alignment (Linux 6.1), otherwise a probe read does. If refused,
 * then or by a later transfer, the file is buffered and its pages are dropped after use.
 * Invariants: a failed reserve restores the file's size. EIO is not retried.
 * Tests: tests/unit/store/test_io.c, test_io_fallback.c */
#include "store/io/io_posix.h"

#include "base/path_owner.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define FILE_MODE  0600
#define DIR_MODE   0700
#define ZERO_BYTES 65536u
#define SETTLED_NS UINT64_C(3000000000) /* longer than any file system's step of time */

/* Never written. Zeros for file systems without fallocate; aligned for O_DIRECT. */
static uint8_t zeros[ZERO_BYTES] __attribute__((aligned(SC_IO_PAGE_BYTES)));

static spec_status file_fail(const char *verb, const char *path, int sys_errno,
                             struct spec_error *reterr)
{
    return sc_fail_errno(reterr, sc_io_status_of(sys_errno), sys_errno, "%s %s", verb, path);
}

/* The directory and name to look a path up by: relative to the kept directory if directly in it. */
struct place {
    int fd;
    const char *name;
};

static struct place place_of(const struct sc_io *io, const char *path)
{
    const size_t bytes = io->dir == NULL ? 0 : strlen(io->dir);
    const bool is_below = bytes > 0 && strncmp(path, io->dir, bytes) == 0 && path[bytes] == '/';
    if (is_below && strchr(path + bytes + 1, '/') == NULL)
        return (struct place){io->dir_fd, path + bytes + 1};
    return (struct place){AT_FDCWD, path};
}

static bool is_kept(const struct sc_io *io, const char *path)
{
    return io->dir != NULL && strcmp(path, io->dir) == 0;
}

spec_status sc_io_posix_dir_keep(struct sc_io *io, const char *path, struct spec_error *reterr)
{
    const int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return file_fail("open directory", path, errno, reterr);
    atomic_store(&io->dir_fd, fd);
    return SPEC_OK;
}

/* ---- Transfers ------------------------------------------------------------------------------ */

bool sc_io_posix_goes_buffered(struct sc_io_file *file, bool was_direct)
{
    if (!was_direct)
        return false;
    if (!atomic_load_explicit(&file->is_direct, memory_order_relaxed))
        return true; /* another transfer switched it meanwhile */
    const int flags = fcntl(file->fd, F_GETFL);
    if (flags < 0 || fcntl(file->fd, F_SETFL, flags & ~O_DIRECT) != 0)
        return false;
    atomic_store_explicit(&file->is_direct, 0, memory_order_relaxed);
    if (atomic_exchange(&file->io->said_buffered, 1) == 0)
        SC_LOG(file->io->log, 1, "direct transfer refused, buffered from now on: %s", file->path);
    return true;
}

/* For dirty pages this starts write-back; a later call or the kernel drops them. */
void sc_io_posix_moved(const struct sc_io_file *file, uint64_t bytes, uint64_t offset)
{
    if ((file->flags & SC_IO_OPEN_DIRECT) != 0 &&
        !atomic_load_explicit(&file->is_direct, memory_order_relaxed))
        (void)posix_fadvise(file->fd, (off_t)offset, (off_t)bytes, POSIX_FADV_DONTNEED);
}

bool sc_io_posix_is_end(const struct sc_io_file *file, uint64_t moved_bytes)
{
    return moved_bytes % SC_IO_PAGE_BYTES != 0 &&
           atomic_load_explicit(&file->is_direct, memory_order_relaxed);
}

int sc_io_posix_read(struct sc_io_file *file, uint8_t *buffer, uint64_t bytes, uint64_t offset)
{
    uint64_t moved = 0;
    while (moved < bytes) {
        const bool was_direct = atomic_load_explicit(&file->is_direct, memory_order_relaxed);
        const ssize_t n =
            pread(file->fd, buffer + moved, (size_t)(bytes - moved), (off_t)(offset + moved));
        if (n > 0) {
            moved += (uint64_t)n;
            if (moved < bytes && sc_io_posix_is_end(file, moved))
                return EIO;
            continue;
        }
        if (n == 0)
            return EIO; /* end of the file */
        if (errno == EINTR || (errno == EINVAL && sc_io_posix_goes_buffered(file, was_direct)))
            continue;
        return errno;
    }
    sc_io_posix_moved(file, bytes, offset);
    return 0;
}

int sc_io_posix_write(struct sc_io_file *file, const uint8_t *buffer, uint64_t bytes,
                      uint64_t offset)
{
    uint64_t moved = 0;
    while (moved < bytes) {
        const bool was_direct = atomic_load_explicit(&file->is_direct, memory_order_relaxed);
        const ssize_t n =
            pwrite(file->fd, buffer + moved, (size_t)(bytes - moved), (off_t)(offset + moved));
        if (n > 0) {
            moved += (uint64_t)n;
            continue;
        }
        if (n == 0)
            return EIO;
        if (errno == EINTR || (errno == EINVAL && sc_io_posix_goes_buffered(file, was_direct)))
            continue;
        return errno;
    }
    sc_io_posix_moved(file, bytes, offset);
    return 0;
}

/* ---- Open ----------------------------------------------------------------------------------- */

/* Returns true if transfers aligned to SC_IO_PAGE_BYTES work on an open O_DIRECT descriptor. */
static bool direct_works(int fd)
{
#ifdef STATX_DIOALIGN
    struct statx about;
    if (statx(fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &about) == 0 &&
        (about.stx_mask & STATX_DIOALIGN) != 0)
        return about.stx_dio_offset_align != 0 &&
               SC_IO_PAGE_BYTES % about.stx_dio_offset_align == 0 && about.stx_dio_mem_align != 0 &&
               SC_IO_PAGE_BYTES % about.stx_dio_mem_align == 0;
#endif
    uint8_t page[2 * SC_IO_PAGE_BYTES];
    uint8_t *aligned = page + (SC_IO_PAGE_BYTES - (uintptr_t)page % SC_IO_PAGE_BYTES);
    return pread(fd, aligned, SC_IO_PAGE_BYTES, 0) >= 0; /* an empty file returns 0 */
}

/* Opens with O_DIRECT if possible, else buffered. -1: errno of the buffered open. */
static int open_direct(struct sc_io_file *file, int flags)
{
    const struct place at = place_of(file->io, file->path);
    int fd = openat(at.fd, at.name, flags | O_DIRECT, FILE_MODE);
    if (fd >= 0 && direct_works(fd)) {
        atomic_store_explicit(&file->is_direct, 1, memory_order_relaxed);
        return fd;
    }
    if (fd >= 0) {
        const int old = fcntl(fd, F_GETFL);
        if (old < 0 || fcntl(fd, F_SETFL, old & ~O_DIRECT) != 0) {
            const int sys_errno = errno;
            (void)close(fd);
            errno = sys_errno;
            return -1;
        }
    } else if (errno == EINVAL) {
        /* Some kernels create the file before they refuse the flag. */
        fd = openat(at.fd, at.name, flags & ~O_EXCL, FILE_MODE);
    }
    if (fd < 0)
        return -1;
    (void)posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM); /* operations are planned: no read-ahead */
    if (atomic_exchange(&file->io->said_buffered, 1) == 0)
        SC_LOG(file->io->log, 1, "the file system refuses O_DIRECT, buffered instead: %s",
               file->path);
    return fd;
}

spec_status sc_io_posix_file_open(struct sc_io *io, struct sc_io_file *file,
                                  struct spec_error *reterr)
{
    const struct place at = place_of(io, file->path);
    /* O_NONBLOCK: a FIFO in the file's place is refused below instead of blocking the open. */
    int flags = O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
    flags |= (file->flags & SC_IO_OPEN_WRITE) != 0 ? O_RDWR : O_RDONLY;
    flags |= (file->flags & SC_IO_OPEN_APPEND) != 0 ? O_APPEND : 0;
    const bool makes = (file->flags & SC_IO_OPEN_CREATE) != 0;
    struct stat about;
    if (makes && (file->flags & SC_IO_OPEN_EXCLUSIVE) != 0) {
        if (fstatat(at.fd, at.name, &about, AT_SYMLINK_NOFOLLOW) == 0)
            return file_fail("create", file->path, EEXIST, reterr);
        flags |= O_EXCL;
    }
    if (makes) {
        flags |= O_CREAT;
        atomic_store_explicit(&file->is_new, 1, memory_order_relaxed);
    }
    int fd;
    do {
        if ((file->flags & SC_IO_OPEN_DIRECT) != 0)
            fd = open_direct(file, flags);
        else
            fd = openat(at.fd, at.name, flags, FILE_MODE);
    } while (fd < 0 && errno == EINTR);
    if (fd < 0)
        return file_fail(makes ? "create" : "open", file->path, errno, reterr);
    int sys_errno = fstat(fd, &about) == 0 ? 0 : errno;
    if (sys_errno == 0 && !S_ISREG(about.st_mode))
        sys_errno = S_ISDIR(about.st_mode) ? EISDIR : EINVAL;
    const int now = fcntl(fd, F_GETFL); /* io_uring does not wait on a file with O_NONBLOCK */
    if (sys_errno == 0 && (now < 0 || fcntl(fd, F_SETFL, now & ~O_NONBLOCK) != 0))
        sys_errno = errno;
    if (sys_errno != 0) {
        (void)close(fd);
        return file_fail("open as a regular file", file->path, sys_errno, reterr);
    }
    spec_status status =
        io->allow_shared ? SPEC_OK : sc_path_owner_check(&about, file->path, reterr);
    if (status != SPEC_OK) {
        (void)close(fd);
        return status;
    }
    file->fd = fd;
    return SPEC_OK;
}

void sc_io_posix_file_close(struct sc_io *io, struct sc_io_file *file)
{
    (void)io;
    const int fd = atomic_exchange(&file->fd, -1);
    if (fd < 0)
        return; /* a forked child has closed it */
    if (atomic_load_explicit(&file->is_locked, memory_order_relaxed)) {
        /* Forked children share an OFD lock, so closing our descriptor alone would keep it. */
        struct flock range = {.l_type = F_UNLCK, .l_whence = SEEK_SET};
        (void)fcntl(fd, F_OFD_SETLK, &range);
    }
    (void)close(fd); /* not retried: Linux frees the descriptor even on an error */
}

/* ---- Size and space ------------------------------------------------------------------------- */

spec_status sc_io_posix_file_size(struct sc_io *io, struct sc_io_file *file, uint64_t *ret_bytes,
                                  struct spec_error *reterr)
{
    (void)io;
    struct stat about;
    if (fstat(file->fd, &about) != 0)
        return file_fail("size of", file->path, errno, reterr);
    *ret_bytes = (uint64_t)about.st_size;
    return SPEC_OK;
}

/* Extends the file with zeros up to `bytes`; restores the size after an error. */
static int write_zeros(struct sc_io_file *file, uint64_t bytes)
{
    struct stat about;
    if (fstat(file->fd, &about) != 0)
        return errno;
    const uint64_t old_bytes = (uint64_t)about.st_size;
    for (uint64_t at = old_bytes; at < bytes;) {
        const uint64_t rest = ZERO_BYTES - at % ZERO_BYTES;
        const uint64_t n = rest < bytes - at ? rest : bytes - at;
        const int sys_errno = sc_io_posix_write(file, zeros, n, at);
        if (sys_errno != 0) {
            (void)!ftruncate(file->fd, (off_t)old_bytes);
            return sys_errno;
        }
        at += n;
    }
    return 0;
}

spec_status sc_io_posix_file_reserve(struct sc_io *io, struct sc_io_file *file, uint64_t bytes,
                                     struct spec_error *reterr)
{
    if (bytes == 0)
        return SPEC_OK;
    if (bytes > INT64_MAX)
        return file_fail("reserve", file->path, EFBIG, reterr);
    struct stat about;
    if (fstat(file->fd, &about) != 0)
        return file_fail("size of", file->path, errno, reterr);
    int sys_errno;
    do {
        sys_errno = fallocate(file->fd, 0, 0, (off_t)bytes) == 0 ? 0 : errno;
    } while (sys_errno == EINTR);
    if (sys_errno == EOPNOTSUPP || sys_errno == ENOSYS) {
        if (atomic_exchange(&io->said_zeros, 1) == 0)
            SC_LOG(io->log, 1, "no fallocate on this file system, zeros are written instead: %s",
                   file->path);
        sys_errno = write_zeros(file, bytes);
    } else if (sys_errno != 0 && (uint64_t)about.st_size < bytes) {
        (void)!ftruncate(file->fd, about.st_size); /* frees what was allocated in part */
    }
    return sys_errno == 0 ? SPEC_OK : file_fail("reserve", file->path, sys_errno, reterr);
}

spec_status sc_io_posix_file_truncate(struct sc_io *io, struct sc_io_file *file, uint64_t bytes,
                                      struct spec_error *reterr)
{
    (void)io;
    int result;
    do {
        result = ftruncate(file->fd, (off_t)bytes);
    } while (result != 0 && errno == EINTR);
    return result == 0 ? SPEC_OK : file_fail("truncate", file->path, errno, reterr);
}

/* Syncs the directory of path, which makes a new name durable. Returns 0 or an errno. */
static int sync_directory_of(const struct sc_io *io, const char *path)
{
    const struct place at = place_of(io, path);
    if (at.fd != AT_FDCWD) {
        const int kept_errno = fsync(at.fd) == 0 ? 0 : errno;
        return kept_errno == EINVAL ? 0 : kept_errno;
    }
    char dir[4096];
    const char *slash = strrchr(path, '/');
    const size_t bytes = slash == NULL ? 0 : (size_t)(slash - path);
    if (bytes >= sizeof(dir))
        return ENAMETOOLONG;
    memcpy(dir, path, bytes);
    dir[bytes] = '\0';
    const int fd =
        open(slash == NULL ? "." : (bytes == 0 ? "/" : dir), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return errno;
    const int sys_errno = fsync(fd) == 0 ? 0 : errno;
    (void)close(fd);
    return sys_errno == EINVAL ? 0 : sys_errno; /* EINVAL: directories need no sync here */
}

spec_status sc_io_posix_file_sync(struct sc_io *io, struct sc_io_file *file,
                                  struct spec_error *reterr)
{
    if (fdatasync(file->fd) != 0)
        return file_fail("sync", file->path, errno, reterr);
    if (atomic_load_explicit(&file->is_new, memory_order_relaxed)) {
        const int sys_errno = sync_directory_of(io, file->path);
        if (sys_errno != 0)
            return file_fail("sync the directory of", file->path, sys_errno, reterr);
        atomic_store_explicit(&file->is_new, 0, memory_order_relaxed);
    }
    return SPEC_OK;
}

spec_status sc_io_posix_file_pread(struct sc_io *io, struct sc_io_file *file, void *buffer,
                                   uint64_t bytes, uint64_t offset, struct spec_error *reterr)
{
    (void)io;
    const int sys_errno = sc_io_posix_read(file, buffer, bytes, offset);
    if (sys_errno == 0)
        return SPEC_OK;
    return sc_fail_errno(reterr, sc_io_status_of(sys_errno), sys_errno,
                         "read %" PRIu64 " bytes at %" PRIu64 " of %s", bytes, offset, file->path);
}

spec_status sc_io_posix_file_pwrite(struct sc_io *io, struct sc_io_file *file, const void *buffer,
                                    uint64_t bytes, uint64_t offset, struct spec_error *reterr)
{
    (void)io;
    const int sys_errno = sc_io_posix_write(file, buffer, bytes, offset);
    if (sys_errno == 0)
        return SPEC_OK;
    return sc_fail_errno(reterr, sc_io_status_of(sys_errno), sys_errno,
                         "write %" PRIu64 " bytes at %" PRIu64 " of %s", bytes, offset, file->path);
}

spec_status sc_io_posix_file_append(struct sc_io *io, struct sc_io_file *file, const void *buffer,
                                    uint64_t bytes, uint64_t *ret_end, struct spec_error *reterr)
{
    (void)io;
    ssize_t n;
    off_t end = 0;
    do {
        n = write(file->fd, buffer, (size_t)bytes);
    } while (n < 0 && errno == EINTR);
    if (n == (ssize_t)bytes)
        end = lseek(file->fd, 0, SEEK_CUR); /* O_APPEND moved it behind what was written */
    if (n == (ssize_t)bytes && end >= 0) {
        *ret_end = (uint64_t)end;
        return SPEC_OK;
    }
    /* Not continued: a second write could follow another process's append. */
    const int sys_errno = n < 0 || end < 0 ? errno : EIO;
    return sc_fail_errno(reterr, sc_io_status_of(sys_errno), sys_errno,
                         "append %" PRIu64 " bytes to %s", bytes, file->path);
}

spec_status sc_io_posix_file_same(struct sc_io *io, struct sc_io_file *file, const char *path,
                                  bool *ret_same, struct spec_error *reterr)
{
    const struct place at = place_of(io, path);
    struct stat open_one, named;
    if (fstat(file->fd, &open_one) != 0)
        return file_fail("look at", file->path, errno, reterr);
    if (fstatat(at.fd, at.name, &named, AT_SYMLINK_NOFOLLOW) != 0) {
        if (errno != ENOENT)
            return file_fail("look at", path, errno, reterr);
        *ret_same = false;
        return SPEC_OK;
    }
    *ret_same = open_one.st_dev == named.st_dev && open_one.st_ino == named.st_ino;
    return SPEC_OK;
}

/* ---- Names ---------------------------------------------------------------------------------- */

/* Refuses a file system on which two hosts may both hold a lock. */
static spec_status network_check(const struct sc_io *io, const char *path,
                                 struct spec_error *reterr)
{
    uint32_t type = 0;
    if (io->allow_network_fs)
        return SPEC_OK;
    const int sys_errno = sc_io_posix_fs_type(path, &type);
    if (sys_errno == ENOENT)
        return SPEC_OK;
    if (sys_errno != 0)
        return file_fail("ask for the file system of", path, sys_errno, reterr);
    const char *name = sc_io_posix_network_name(type);
    if (name == NULL)
        return SPEC_OK;
    return sc_fail(reterr, SPEC_E_UNSUPPORTED,
                   "%s is on %s (type 0x%08" PRIx32 "), where a second host may not see the "
                   "writer's lock, expected a local file system (store.allow_network_fs)",
                   path, name, type);
}

spec_status sc_io_posix_dir_check(struct sc_io *io, const char *path, struct spec_error *reterr)
{
    spec_status status = io->allow_shared ? SPEC_OK : sc_path_owner_check_directory(path, reterr);
    return status == SPEC_OK ? network_check(io, path, reterr) : status;
}

spec_status sc_io_posix_mkdir(struct sc_io *io, const char *path, struct spec_error *reterr)
{
    if (mkdir(path, DIR_MODE) == 0) {
        /* the name may have been replaced since mkdir */
        spec_status status = sc_io_posix_dir_check(io, path, reterr);
        if (status != SPEC_OK)
            (void)rmdir(path); /* fails unless it is empty and ours */
        return status;
    }
    const int sys_errno = errno;
    struct stat about;
    if (sys_errno != EEXIST)
        return file_fail("make directory", path, sys_errno, reterr);
    if (stat(path, &about) != 0)
        return file_fail("make directory", path, errno, reterr);
    return S_ISDIR(about.st_mode) ? sc_io_posix_dir_check(io, path, reterr)
                                  : file_fail("make directory", path, ENOTDIR, reterr);
}

static uint64_t time_ns(const struct timespec *time)
{
    return (uint64_t)time->tv_sec * 1000000000u + (uint64_t)time->tv_nsec;
}

uint64_t sc_io_posix_stamp(struct sc_io *io, const char *path)
{
    const struct place at = place_of(io, path);
    struct stat about;
    if (fstatat(at.fd, at.name, &about, 0) != 0)
        return errno == ENOENT ? SC_IO_STAMP_ABSENT : SC_IO_STAMP_UNKNOWN;
    const uint64_t parts[] = {(uint64_t)about.st_dev, (uint64_t)about.st_ino,
                              (uint64_t)about.st_size, time_ns(&about.st_mtim),
                              time_ns(&about.st_ctim)};
    const uint64_t changed_ns = parts[3] > parts[4] ? parts[3] : parts[4];
    if (sc_exec_wall_ns(io->exec) < changed_ns + SETTLED_NS)
        return SC_IO_STAMP_UNKNOWN;
    uint64_t stamp = 0;
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        stamp = (stamp ^ parts[i]) * UINT64_C(0x9e3779b97f4a7c15);
        stamp ^= stamp >> 32; /* both steps map no two values to one */
    }
    return stamp > SC_IO_STAMP_ABSENT ? stamp : stamp + SC_IO_STAMP_ABSENT + 1;
}

spec_status sc_io_posix_unlink(struct sc_io *io, const char *path, struct spec_error *reterr)
{
    const struct place at = place_of(io, path);
    return unlinkat(at.fd, at.name, 0) == 0 ? SPEC_OK : file_fail("remove", path, errno, reterr);
}

spec_status sc_io_posix_rename(struct sc_io *io, const char *from, const char *to,
                               struct spec_error *reterr)
{
    const struct place src = place_of(io, from), dst = place_of(io, to);
    if (renameat(src.fd, src.name, dst.fd, dst.name) != 0)
        return file_fail("rename", from, errno, reterr);
    const int sys_errno = sync_directory_of(io, to);
    return sys_errno == 0 ? SPEC_OK : file_fail("sync the directory of", to, sys_errno, reterr);
}

spec_status sc_io_posix_list(struct sc_io *io, const char *path,
                             void (*on_name)(const char *name, void *user), void *user,
                             struct spec_error *reterr)
{
    const int kept = is_kept(io, path) ? io->dir_fd : -1; /* a separate read position */
    const int fd = kept >= 0 ? openat(kept, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC)
                             : open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
    if (dir == NULL) {
        const int list_errno = errno;
        if (fd >= 0)
            (void)close(fd);
        return file_fail("list", path, list_errno, reterr);
    }
    int sys_errno;
    for (;;) {
        errno = 0;
        const struct dirent *entry = readdir(dir);
        sys_errno = errno;
        if (entry == NULL)
            break;
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            on_name(entry->d_name, user);
    }
    (void)closedir(dir);
    return sys_errno == 0 ? SPEC_OK : file_fail("list", path, sys_errno, reterr);
}

spec_status sc_io_posix_free_bytes(struct sc_io *io, const char *path, uint64_t *ret_bytes,
                                   struct spec_error *reterr)
{
    struct statvfs about;
    if ((is_kept(io, path) ? fstatvfs(io->dir_fd, &about) : statvfs(path, &about)) != 0)
        return file_fail("free space of", path, errno, reterr);
    *ret_bytes = (uint64_t)about.f_bavail * (uint64_t)about.f_frsize;
    return SPEC_OK;
}

/* ---- The lock ------------------------------------------------------------------------------- */

static void holder_self(struct sc_io_holder *ret_holder, uint64_t wall_ns)
{
    *ret_holder = (struct sc_io_holder){.pid = (uint64_t)getpid(),
                                        .start_s = wall_ns / 1000000000u,
                                        .boot_id = "unknown",
                                        .host = "unknown"};
    const int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
        char text[36];
        if (read(fd, text, sizeof(text)) == (ssize_t)sizeof(text)) {
            memcpy(ret_holder->boot_id, text, sizeof(text));
            ret_holder->boot_id[sizeof(text)] = '\0';
        }
        (void)close(fd);
    }
    char host[sizeof(ret_holder->host)];
    if (gethostname(host, sizeof(host)) != 0)
        return;
    host[sizeof(host) - 1] = '\0';
    for (char *at = host; *at != '\0'; at++)
        if (*at <= ' ' || *at > '~' || *at == '"' || *at == '\\')
            *at = '_';
    if (host[0] != '\0')
        memcpy(ret_holder->host, host, sizeof(host));
}

spec_status sc_io_posix_file_lock(struct sc_io *io, struct sc_io_file *file,
                                  struct spec_error *reterr)
{
    struct flock range = {.l_type = F_WRLCK, .l_whence = SEEK_SET}; /* l_len 0: the whole file */
    char text[SC_IO_HOLDER_BYTES];
    int result;
    do {
        result = fcntl(file->fd, F_OFD_SETLK, &range);
    } while (result != 0 && errno == EINTR);
    if (result != 0 && (errno == EAGAIN || errno == EACCES)) {
        const ssize_t bytes = pread(file->fd, text, sizeof(text), 0);
        return sc_io_holder_locked(file, text, bytes > 0 ? (uint64_t)bytes : 0, reterr);
    }
    if (result != 0)
        return file_fail("lock", file->path, errno, reterr);

    struct sc_io_holder holder;
    holder_self(&holder, sc_exec_wall_ns(io->exec));
    const uint64_t bytes = sc_io_holder_format(&holder, text);
    int sys_errno = ftruncate(file->fd, 0) == 0 ? 0 : errno;
    if (sys_errno == 0)
        sys_errno = sc_io_posix_write(file, (const uint8_t *)text, bytes, 0);
    atomic_store_explicit(&file->is_locked, sys_errno == 0, memory_order_relaxed);
    if (sys_errno == 0)
        return SPEC_OK;
    range.l_type = F_UNLCK;
    (void)fcntl(file->fd, F_OFD_SETLK, &range);
    return file_fail("write the holder into", file->path, sys_errno, reterr);
}

spec_status sc_io_posix_file_claim(struct sc_io *io, struct sc_io_file *file,
                                   struct spec_error *reterr)
{
    (void)io;
    struct flock range = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    int result;
    do {
        result = fcntl(file->fd, F_OFD_SETLK, &range);
    } while (result != 0 && errno == EINTR);
    if (result != 0 && (errno == EAGAIN || errno == EACCES))
        return sc_fail(reterr, SPEC_E_LOCKED, "%s: another process writes to it", file->path);
    if (result != 0)
        return file_fail("claim", file->path, errno, reterr);
    atomic_store_explicit(&file->is_locked, true, memory_order_relaxed);
    return SPEC_OK;
}

void sc_io_posix_file_unclaim(struct sc_io *io, struct sc_io_file *file)
{
    (void)io;
    struct flock range = {.l_type = F_UNLCK, .l_whence = SEEK_SET};
    (void)fcntl(file->fd, F_OFD_SETLK, &range);
    atomic_store_explicit(&file->is_locked, false, memory_order_relaxed);
}

spec_status sc_io_posix_file_lock_shared(struct sc_io *io, struct sc_io_file *file,
                                         struct spec_error *reterr)
{
    (void)io;
    struct flock range = {.l_type = F_RDLCK, .l_whence = SEEK_SET};
    char text[SC_IO_HOLDER_BYTES];
    int result;
    do {
        result = fcntl(file->fd, F_OFD_SETLK, &range);
    } while (result != 0 && errno == EINTR);
    if (result != 0 && (errno == EAGAIN || errno == EACCES)) {
        const ssize_t bytes = pread(file->fd, text, sizeof(text), 0);
        return sc_io_holder_locked(file, text, bytes > 0 ? (uint64_t)bytes : 0, reterr);
    }
    if (result != 0)
        return file_fail("lock", file->path, errno, reterr);
    atomic_store_explicit(&file->is_locked, true, memory_order_relaxed);
    return SPEC_OK;
}

/* A place is locked at its first byte. */
static struct flock place_range(uint32_t place)
{
    return (struct flock){.l_type = F_WRLCK,
                          .l_whence = SEEK_SET,
                          .l_start = (off_t)place * SC_IO_PLACE_BYTES,
                          .l_len = 1};
}

/* The text only says who it is: a place without one counts as well. */
static void place_write(struct sc_io *io, struct sc_io_file *file, uint32_t place)
{
    char text[SC_IO_PLACE_BYTES];
    struct sc_io_holder holder;
    holder_self(&holder, sc_exec_wall_ns(io->exec));
    const uint64_t bytes = sc_io_holder_format(&holder, text);
    memset(text + bytes, 0, sizeof(text) - bytes);
    (void)sc_io_posix_write(file, (const uint8_t *)text, sizeof(text),
                            (uint64_t)place * SC_IO_PLACE_BYTES);
}

spec_status sc_io_posix_file_join(struct sc_io *io, struct sc_io_file *file, uint32_t places,
                                  uint32_t *ret_place, struct spec_error *reterr)
{
    for (uint32_t place = 0; place < places; place++) {
        struct flock range = place_range(place);
        int result;
        do {
            result = fcntl(file->fd, F_OFD_SETLK, &range);
        } while (result != 0 && errno == EINTR);
        if (result != 0 && errno != EAGAIN && errno != EACCES)
            return file_fail("take a place in", file->path, errno, reterr);
        if (result != 0)
            continue;
        atomic_store_explicit(&file->is_locked, true, memory_order_relaxed);
        place_write(io, file, place);
        *ret_place = place;
        return SPEC_OK;
    }
    return sc_fail(reterr, SPEC_E_LOCKED, "%s: all %" PRIu32 " places are taken", file->path,
                   places);
}

uint32_t sc_io_posix_file_joined(struct sc_io *io, struct sc_io_file *file, uint32_t places)
{
    uint32_t count = 0;
    (void)io;
    for (uint32_t place = 0; place < places; place++) {
        struct flock range = place_range(place);
        count += fcntl(file->fd, F_OFD_GETLK, &range) == 0 && range.l_type != F_UNLCK;
    }
    return count;
}

void *sc_io_posix_file_map(struct sc_io *io, struct sc_io_file *file, uint64_t bytes)
{
    if (sc_io_posix_file_reserve(io, file, bytes, NULL) != SPEC_OK) /* else a write could fault */
        return NULL;
    void *memory = mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file->fd, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

void sc_io_posix_unmap(struct sc_io *io, void *memory, uint64_t bytes)
{
    (void)io;
    (void)munmap(memory, (size_t)bytes);
}

void sc_io_posix_file_share(struct sc_io *io, struct sc_io_file *file)
{
    (void)io;
    struct flock range = {.l_type = F_RDLCK, .l_whence = SEEK_SET};
    if (fcntl(file->fd, F_OFD_SETLK, &range) == 0)
        atomic_store_explicit(&file->is_locked, true, memory_order_relaxed);
}

bool sc_io_posix_file_is_shared(struct sc_io *io, struct sc_io_file *file)
{
    (void)io;
    struct flock range = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    return fcntl(file->fd, F_OFD_GETLK, &range) == 0 && range.l_type != F_UNLCK;
}
