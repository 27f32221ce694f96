/* The files of a store, seen and damaged from outside; see objects.h. No format is known here.
 *
 * Holds, Does not, Threads, Tests: as objects.h. */
#include "conformance/objects/objects.h"

#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* One walk over the files; nftw has no user pointer. */
static struct {
    void (*visit)(const char *path, const uint8_t *bytes, uint64_t byte_count);
    const uint8_t *needle;
    uint64_t needle_bytes, count;
    uint64_t page, at; /* of the page that is looked for */
    char path[4096];   /* of the last hit */
    uint64_t offset;
    bool is_found;
} walk;

static int visit_entry(const char *path, const struct stat *info, int type, struct FTW *place)
{
    (void)place;
    if (type != FTW_F || info->st_size == 0)
        return 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    uint64_t byte_count = (uint64_t)info->st_size;
    void *bytes = fd >= 0 ? mmap(NULL, byte_count, PROT_READ, MAP_SHARED, fd, 0) : MAP_FAILED;
    if (bytes != MAP_FAILED) {
        walk.visit(path, bytes, byte_count);
        (void)munmap(bytes, byte_count);
    }
    if (fd >= 0)
        (void)close(fd);
    return 0;
}

static void visit_files(const struct objects *fx,
                        void (*visit)(const char *path, const uint8_t *bytes, uint64_t byte_count))
{
    walk.visit = visit;
    walk.count = 0;
    walk.is_found = false;
    assert_int_equal(nftw(fx->rows.store, visit_entry, 16, FTW_PHYS), 0);
}

static void visit_needle(const char *path, const uint8_t *bytes, uint64_t byte_count)
{
    const uint8_t *end = bytes + byte_count, *at = bytes;
    while ((at = memmem(at, (size_t)(end - at), walk.needle, walk.needle_bytes)) != NULL) {
        (void)snprintf(walk.path, sizeof(walk.path), "%s", path);
        walk.offset = (uint64_t)(at - bytes);
        walk.count++;
        at++;
    }
}

uint64_t files_count(const struct objects *fx, const void *bytes, uint64_t byte_count)
{
    walk.needle = bytes;
    walk.needle_bytes = byte_count;
    visit_files(fx, visit_needle);
    return walk.count;
}

static bool is_zero(const uint8_t *bytes, uint64_t count)
{
    return bytes[0] == 0 && memcmp(bytes, bytes + 1, count - 1) == 0;
}

static void visit_pages(const char *path, const uint8_t *bytes, uint64_t byte_count)
{
    for (uint64_t at = 0; at < byte_count; at += PAGE) {
        uint64_t count = byte_count - at < PAGE ? byte_count - at : PAGE;
        if (is_zero(bytes + at, count) || walk.count++ != walk.page)
            continue;
        (void)snprintf(walk.path, sizeof(walk.path), "%s", path);
        walk.offset = at + walk.at % count;
        walk.is_found = true;
    }
}

uint64_t files_pages(const struct objects *fx)
{
    walk.page = UINT64_MAX;
    visit_files(fx, visit_pages);
    return walk.count;
}

static void flip(const char *path, uint64_t offset)
{
    uint8_t byte = 0;
    int fd = open(path, O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(pread(fd, &byte, 1, (off_t)offset), 1);
    byte ^= 0x10;
    assert_int_equal(pwrite(fd, &byte, 1, (off_t)offset), 1);
    (void)fsync(fd); /* a read past the page cache sees it, too */
    assert_int_equal(close(fd), 0);
}

bool files_flip(const struct objects *fx, uint64_t page, uint64_t at, char *ret_path)
{
    walk.page = page;
    walk.at = at;
    visit_files(fx, visit_pages);
    if (!walk.is_found)
        return false;
    flip(walk.path, walk.offset);
    if (ret_path != NULL)
        memcpy(ret_path, walk.path, sizeof(walk.path));
    return true;
}

bool files_flip_in(const struct objects *fx, const void *bytes, uint64_t byte_count, uint64_t at)
{
    if (files_count(fx, bytes, byte_count) != 1)
        return false;
    flip(walk.path, walk.offset + at);
    return true;
}

bool files_cut(const struct objects *fx, const void *bytes, uint64_t byte_count, uint64_t into)
{
    if (files_count(fx, bytes, byte_count) == 0)
        return false;
    assert_int_equal(truncate(walk.path, (off_t)(walk.offset + into)), 0);
    return true;
}

bool files_path_of(const struct objects *fx, const void *bytes, uint64_t byte_count, char *ret_path)
{
    if (files_count(fx, bytes, byte_count) == 0)
        return false;
    memcpy(ret_path, walk.path, sizeof(walk.path));
    return true;
}

static void copy_tree(const char *from, const char *to)
{
    char command[8192];
    conf_remove_tree(to);
    (void)snprintf(command, sizeof(command), "cp -a --sparse=always '%s' '%s'", from, to);
    assert_int_equal(system(command), 0);
}

void files_save(const struct objects *fx, const char *name)
{
    char path[4096];
    (void)snprintf(path, sizeof(path), "%s/%s", fx->rows.dir, name);
    copy_tree(fx->rows.store, path);
}

void files_restore(const struct objects *fx, const char *name)
{
    char path[4096];
    (void)snprintf(path, sizeof(path), "%s/%s", fx->rows.dir, name);
    copy_tree(path, fx->rows.store);
}
