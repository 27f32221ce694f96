/* disk: finds and changes bytes in a store's files. See disk.h. */
#include "conformance/disk.h"

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FLIP_AT 5u /* byte of the row that is changed, or at which the file ends */
#define HITS    16u

/* nftw has no user pointer. */
static struct {
    uint8_t needle[4096];
    uint64_t needle_bytes;
    uint64_t count; /* of hits; the first HITS are kept */
    struct {
        char path[4096];
        long offset;
    } hits[HITS];
    uint64_t bytes;
} walk;

static void search_file(const char *path, const uint8_t *bytes, uint64_t byte_count)
{
    const uint8_t *at = bytes;
    while ((at = memmem(at, byte_count - (uint64_t)(at - bytes), walk.needle, walk.needle_bytes)) !=
           NULL) {
        if (walk.count < HITS) {
            walk.hits[walk.count].offset = (long)(at - bytes);
            (void)snprintf(walk.hits[walk.count].path, sizeof(walk.hits[0].path), "%s", path);
        }
        walk.count++;
        at++;
    }
}

static int search_entry(const char *path, const struct stat *info, int type, struct FTW *at)
{
    (void)at;
    if (type != FTW_F || info->st_size < (off_t)walk.needle_bytes)
        return 0;
    uint8_t *bytes = malloc((size_t)info->st_size);
    FILE *file = fopen(path, "rb");
    if (bytes != NULL && file != NULL) {
        size_t got = fread(bytes, 1, (size_t)info->st_size, file);
        if (got >= walk.needle_bytes)
            search_file(path, bytes, got);
    }
    if (file != NULL)
        fclose(file);
    free(bytes);
    return 0;
}

/* The needle. */
static void search_files(const struct fixture *fx)
{
    walk.count = 0;
    assert_int_equal(nftw(fx->store, search_entry, 16, FTW_PHYS), 0);
    assert_true(walk.count <= HITS);
}

static void search(const struct fixture *fx, struct disk_row row, int value)
{
    assert_true(row_bytes(&fx->shape) <= sizeof(walk.needle));
    truth_row(&fx->shape, row.prompt, row.position, row.layer, value, walk.needle);
    walk.needle_bytes = row_bytes(&fx->shape);
    search_files(fx);
}

static void put(const char *path, long offset, const uint8_t *bytes, uint64_t count)
{
    FILE *file = fopen(path, "r+b");
    assert_non_null(file);
    assert_int_equal(fseek(file, offset, SEEK_SET), 0);
    assert_int_equal(fwrite(bytes, 1, count, file), count);
    assert_int_equal(fclose(file), 0);
}

uint64_t disk_damage(const struct fixture *fx, struct disk_row row, enum disk_damage how)
{
    search(fx, row, 1);
    for (uint64_t i = 0; i < walk.count; i++) {
        long at = walk.hits[i].offset + FLIP_AT;
        uint8_t wrong = walk.needle[FLIP_AT] ^ 0x10;
        if (how == DISK_CUT)
            assert_int_equal(truncate(walk.hits[i].path, at), 0);
        else
            put(walk.hits[i].path, at, &wrong, 1);
    }
    return walk.count;
}

bool disk_exchange(const struct fixture *fx, struct disk_row one, struct disk_row other)
{
    static char path[4096];
    static uint8_t bytes[sizeof(walk.needle)];
    for (int value = 0; value < 2; value++) {
        search(fx, one, value);
        if (walk.count != 1)
            return false;
        long offset = walk.hits[0].offset;
        memcpy(path, walk.hits[0].path, sizeof(path));
        memcpy(bytes, walk.needle, sizeof(bytes));
        search(fx, other, value);
        if (walk.count != 1)
            return false;
        put(path, offset, walk.needle, walk.needle_bytes);
        put(walk.hits[0].path, walk.hits[0].offset, bytes, walk.needle_bytes);
    }
    return true;
}

uint64_t disk_flip(const struct fixture *fx, const uint8_t *bytes, uint64_t byte_count, uint64_t at)
{
    assert_true(byte_count <= sizeof(walk.needle));
    memcpy(walk.needle, bytes, byte_count);
    walk.needle_bytes = byte_count;
    search_files(fx);
    for (uint64_t i = 0; i < walk.count; i++) {
        FILE *file = fopen(walk.hits[i].path, "r+b");
        assert_non_null(file);
        assert_int_equal(fseek(file, walk.hits[i].offset + (long)at, SEEK_SET), 0);
        int byte = fgetc(file);
        assert_int_equal(fclose(file), 0);
        uint8_t wrong = (uint8_t)byte ^ 0x10;
        if (byte != EOF)
            put(walk.hits[i].path, walk.hits[i].offset + (long)at, &wrong, 1);
    }
    return walk.count;
}

struct disk_kept {
    struct disk_kept *next; /* each is a file; the first is none */
    uint64_t byte_count;
    uint8_t *bytes;
    char path[4096];
};

static struct disk_kept *keeping; /* for nftw */

static int keep_entry(const char *path, const struct stat *info, int type, struct FTW *at)
{
    (void)at;
    if (type != FTW_F)
        return 0;
    struct disk_kept *kept = calloc(1, sizeof(*kept));
    assert_non_null(kept);
    kept->byte_count = (uint64_t)info->st_size;
    kept->bytes = malloc(kept->byte_count + 1);
    FILE *file = fopen(path, "rb");
    assert_true(kept->bytes != NULL && file != NULL);
    assert_int_equal(fread(kept->bytes, 1, kept->byte_count, file), kept->byte_count);
    (void)fclose(file);
    (void)snprintf(kept->path, sizeof(kept->path), "%s", path);
    kept->next = keeping->next;
    keeping->next = kept;
    return 0;
}

struct disk_kept *disk_keep(const struct fixture *fx)
{
    keeping = calloc(1, sizeof(*keeping));
    assert_non_null(keeping);
    assert_int_equal(nftw(fx->store, keep_entry, 16, FTW_PHYS), 0);
    return keeping;
}

void disk_kept_free(struct disk_kept *kept)
{
    while (kept != NULL) {
        struct disk_kept *next = kept->next;
        free(kept->bytes);
        free(kept);
        kept = next;
    }
}

const uint8_t *disk_kept_find(const struct disk_kept *kept, const uint8_t *at,
                              const uint8_t *bytes, uint64_t byte_count, uint64_t before,
                              uint64_t behind)
{
    for (const struct disk_kept *file = kept->next; file != NULL; file = file->next) {
        const uint8_t *end = file->bytes + file->byte_count;
        bool is_here = at != NULL && at >= file->bytes && at < end;
        if (at != NULL && !is_here)
            continue;
        const uint8_t *from = is_here ? at + 1 : file->bytes;
        for (; (from = memmem(from, (size_t)(end - from), bytes, byte_count)) != NULL; from++)
            if ((uint64_t)(from - file->bytes) >= before &&
                (uint64_t)(end - from) - byte_count >= behind)
                return from;
        at = NULL; /* the next file is looked at from its beginning */
    }
    return NULL;
}

uint64_t disk_put_back(const struct fixture *fx, const struct disk_kept *kept, struct disk_row row)
{
    static char path[4096];
    uint64_t count = 0;
    for (search(fx, row, 0); walk.count > 0; search(fx, row, 0), count++) {
        struct stat info;
        memcpy(path, walk.hits[0].path, sizeof(path));
        const struct disk_kept *file = kept->next;
        while (file != NULL && strcmp(file->path, path) != 0)
            file = file->next;
        assert_int_equal(stat(path, &info), 0);
        assert_int_equal(truncate(path, 0), 0);
        if (file != NULL)
            put(path, 0, file->bytes, file->byte_count);
        uint64_t end = file != NULL ? file->byte_count : 0;
        if (end < (uint64_t)info.st_size)
            assert_int_equal(truncate(path, info.st_size), 0);
    }
    return count;
}

static int overwrite_entry(const char *path, const struct stat *info, int type, struct FTW *at)
{
    (void)at;
    if (type != FTW_F)
        return 0;
    FILE *file = fopen(path, "r+b");
    for (off_t i = 0; file != NULL && i < info->st_size; i++)
        fputc((int)(i * 7 % 251), file);
    if (file != NULL)
        fclose(file);
    return 0;
}

void disk_overwrite(const struct fixture *fx)
{
    assert_int_equal(nftw(fx->store, overwrite_entry, 16, FTW_PHYS), 0);
}

static int count_entry(const char *path, const struct stat *info, int type, struct FTW *at)
{
    (void)path, (void)at;
    if (type == FTW_F)
        walk.bytes += (uint64_t)info->st_blocks * 512;
    return 0;
}

uint64_t disk_bytes(const struct fixture *fx)
{
    walk.bytes = 0;
    (void)nftw(fx->store, count_entry, 16, FTW_PHYS); /* files may go while they are counted */
    return walk.bytes;
}
