/* The fingerprint of a model's weights: XXH3-128 over the files' bytes, in the order given. Reading
 * gigabytes at every open would cost more than the cache saves, so each file's hash is kept in the
 * store's directory (weights.json) by path, size, modification and change time, and inode. The
 * change time is there because copying tools set the modification time back; a file that changed
 * less than a second ago is hashed but not kept, since the next change could get the same times.
 *
 *   {"version": 1, "files": {"/models/m.safetensors": {"size": …, "mtime_ns": …, "ctime_ns": …,
 *                                                      "inode": …, "hash": "32 hex digits"}}}
 *
 * Holds: a damaged or foreign cache file is ignored and written anew; the fingerprint never depends
 * on the path.
 * Threads: any (open only). Tests: conformance/test_namespace.c (abi_011_*) */
#include "plugin/connector.h"

#include <errno.h>
#include <fcntl.h>
#include <json-c/json.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SETTLED_NS    UINT64_C(1000000000) /* file systems' clocks tick in milliseconds */
#define READ_BYTES    (UINT64_C(4) << 20)
#define CACHE_NAME    "weights.json"
#define CACHE_VERSION 1

/* Hash of one file's bytes: a chain over blocks, so that a block at a time is in memory. */
static spec_status hash_file(spec_connector *conn, const char *path, int fd,
                             struct sc_hash *ret_hash, struct spec_error *reterr)
{
    uint8_t *block = sc_alloc(&conn->alloc, READ_BYTES);
    if (block == NULL)
        return sc_fail(reterr, SPEC_E_NO_MEMORY, "fingerprint of %s", path);
    struct sc_hash hash = {0, 0};
    spec_status status = SPEC_OK;
    for (uint64_t i = 0;; i++) {
        uint64_t have = 0;
        ssize_t got = 1;
        while (have < READ_BYTES && got != 0) {
            got = read(fd, block + have, READ_BYTES - have);
            if (got < 0 && errno != EINTR)
                break;
            have += got > 0 ? (uint64_t)got : 0;
        }
        if (got < 0) {
            status = sc_fail_errno(reterr, SPEC_E_IO, errno, "cannot read weights %s", path);
            break;
        }
        struct sc_digest digest;
        sc_digest_init(&digest, "weights-block");
        sc_digest_hash(&digest, 1, hash);
        sc_digest_u64(&digest, 2, i);
        sc_digest_hash(&digest, 3, sc_hash_bytes(block, have));
        hash = sc_digest_done(&digest);
        if (have < READ_BYTES)
            break;
    }
    sc_alloc_free(&conn->alloc, block);
    *ret_hash = hash;
    return status;
}

static uint64_t time_ns(const struct timespec *time)
{
    return (uint64_t)time->tv_sec * UINT64_C(1000000000) + (uint64_t)time->tv_nsec;
}

static bool is_same(const struct stat *a, const struct stat *b)
{
    return a->st_size == b->st_size && a->st_ino == b->st_ino && a->st_dev == b->st_dev &&
           time_ns(&a->st_mtim) == time_ns(&b->st_mtim) &&
           time_ns(&a->st_ctim) == time_ns(&b->st_ctim);
}

static bool member_is(struct json_object *entry, const char *name, uint64_t value)
{
    struct json_object *member;
    return json_object_object_get_ex(entry, name, &member) &&
           json_object_is_type(member, json_type_int) && json_object_get_uint64(member) == value;
}

static bool cached_hash(struct json_object *files, const char *path, const struct stat *info,
                        struct sc_hash *ret_hash)
{
    struct json_object *entry, *hash;
    if (!json_object_object_get_ex(files, path, &entry) ||
        !json_object_is_type(entry, json_type_object) ||
        !member_is(entry, "size", (uint64_t)info->st_size) ||
        !member_is(entry, "mtime_ns", time_ns(&info->st_mtim)) ||
        !member_is(entry, "ctime_ns", time_ns(&info->st_ctim)) ||
        !member_is(entry, "inode", (uint64_t)info->st_ino) ||
        !json_object_object_get_ex(entry, "hash", &hash) ||
        !json_object_is_type(hash, json_type_string) || json_object_get_string_len(hash) != 32)
        return false;
    const char *hex = json_object_get_string(hash);
    return strspn(hex, "0123456789abcdef") == 32 &&
           sscanf(hex, "%16" SCNx64 "%16" SCNx64, &ret_hash->hi, &ret_hash->lo) == 2;
}

static void keep_hash(struct json_object *files, const char *path, const struct stat *info,
                      struct sc_hash hash)
{
    char hex[2 * SC_HASH_BYTES + 1];
    snprintf(hex, sizeof(hex), "%016" PRIx64 "%016" PRIx64, hash.hi, hash.lo);
    struct json_object *entry = json_object_new_object();
    json_object_object_add(entry, "size", json_object_new_uint64((uint64_t)info->st_size));
    json_object_object_add(entry, "mtime_ns", json_object_new_uint64(time_ns(&info->st_mtim)));
    json_object_object_add(entry, "ctime_ns", json_object_new_uint64(time_ns(&info->st_ctim)));
    json_object_object_add(entry, "inode", json_object_new_uint64((uint64_t)info->st_ino));
    json_object_object_add(entry, "hash", json_object_new_string(hex));
    json_object_object_add(files, path, entry);
}

/* The cache's root object and its "files"; a fresh one when the file is absent or not ours. */
static struct json_object *read_cache(const char *cache_path, struct json_object **ret_files)
{
    struct json_object *cache = json_object_from_file(cache_path);
    if (cache != NULL && json_object_is_type(cache, json_type_object) &&
        member_is(cache, "version", CACHE_VERSION) &&
        json_object_object_get_ex(cache, "files", ret_files) &&
        json_object_is_type(*ret_files, json_type_object))
        return cache;
    json_object_put(cache);
    cache = json_object_new_object();
    *ret_files = json_object_new_object();
    json_object_object_add(cache, "version", json_object_new_int(CACHE_VERSION));
    json_object_object_add(cache, "files", *ret_files);
    return cache;
}

/* Written beside and renamed, so that no reader meets half of it. A failure costs time, not truth.
 */
static void write_cache(const char *cache_path, struct json_object *cache)
{
    char temporary[SC_LIMIT_PATH_BYTES];
    int length = snprintf(temporary, sizeof(temporary), "%s.%ld", cache_path, (long)getpid());
    if (length < 0 || (uint64_t)length >= sizeof(temporary))
        return;
    int fd = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0)
        return;
    const char *text = json_object_to_json_string_ext(cache, JSON_C_TO_STRING_PLAIN);
    uint64_t bytes = strlen(text);
    bool whole = write(fd, text, bytes) == (ssize_t)bytes;
    whole = close(fd) == 0 && whole;
    if (!whole || rename(temporary, cache_path) != 0)
        unlink(temporary);
}

/* A directory that is not a store yet stays as it is: a file of ours would make it look foreign. */
static bool is_store(const char *path)
{
    char identity[SC_LIMIT_PATH_BYTES + sizeof(SC_STORE_IDENTITY_NAME) + 1];
    snprintf(identity, sizeof(identity), "%s/" SC_STORE_IDENTITY_NAME, path);
    return access(identity, F_OK) == 0;
}

/* Hashes the file; keeps the hash when the file's times can be told from a later change's. */
static spec_status hash_and_keep(spec_connector *conn, const char *path, int fd,
                                 const struct stat *info, struct json_object *files,
                                 bool *ret_changed, struct sc_hash *ret_hash,
                                 struct spec_error *reterr)
{
    spec_status status = hash_file(conn, path, fd, ret_hash, reterr);
    if (status != SPEC_OK)
        return status;
    struct stat after;
    if (fstat(fd, &after) != 0 || !is_same(info, &after))
        return sc_fail(reterr, SPEC_E_IO, "weights %s changed while they were read", path);
    uint64_t now_ns = sc_exec_wall_ns(conn->exec);
    if (now_ns < SETTLED_NS || time_ns(&info->st_ctim) > now_ns - SETTLED_NS)
        return SPEC_OK;
    keep_hash(files, path, info, *ret_hash);
    *ret_changed = true;
    return SPEC_OK;
}

static spec_status fingerprint_one(spec_connector *conn, const char *path,
                                   struct json_object *files, bool *ret_changed,
                                   struct sc_hash *ret_hash, struct spec_error *reterr)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe must not hold open up */
    struct stat info;
    if (fd < 0 || fstat(fd, &info) != 0) {
        int why = errno;
        if (fd >= 0)
            close(fd);
        return sc_fail_errno(reterr, SPEC_E_IO, why, "cannot open weights %s", path);
    }
    spec_status status = SPEC_OK;
    if (!S_ISREG(info.st_mode))
        status = sc_fail(reterr, SPEC_E_INVALID, "weights %s: expected a regular file", path);
    else if (!cached_hash(files, path, &info, ret_hash))
        status = hash_and_keep(conn, path, fd, &info, files, ret_changed, ret_hash, reterr);
    close(fd);
    return status;
}

spec_status sc_plugin_fingerprint(spec_connector *conn, const char *const *paths,
                                  uint64_t path_count, struct sc_hash *ret_hash,
                                  struct spec_error *reterr)
{
    char cache_path[SC_LIMIT_PATH_BYTES + sizeof(CACHE_NAME) + 1];
    snprintf(cache_path, sizeof(cache_path), "%s/" CACHE_NAME, conn->config.path);
    struct json_object *files;
    struct json_object *cache = read_cache(cache_path, &files);
    bool changed = false;
    spec_status status = SPEC_OK;
    struct sc_hash all = {0, 0};
    for (uint64_t i = 0; i < path_count && status == SPEC_OK; i++) {
        struct sc_hash one;
        if (paths[i] == NULL)
            status =
                sc_fail(reterr, SPEC_E_INVALID, "model: weights_paths[%" PRIu64 "] is NULL", i);
        else
            status = fingerprint_one(conn, paths[i], files, &changed, &one, reterr);
        if (status != SPEC_OK)
            break;
        struct sc_digest digest;
        sc_digest_init(&digest, "weights-files");
        sc_digest_hash(&digest, 1, all);
        sc_digest_hash(&digest, 2, one);
        all = sc_digest_done(&digest);
    }
    if (changed && status == SPEC_OK && is_store(conn->config.path))
        write_cache(cache_path, cache);
    json_object_put(cache);
    *ret_hash = all;
    return status;
}
