/* fingerprint: XXH3-128 over the bytes of a model's weight files, in the order given.
 *
 * weights.json in the store's directory caches fingerprints, because hashing gigabytes at every
 * open costs more than the KV cache saves. The key covers paths, sizes, inodes, modification and
 * change times; device numbers differ after a mount. Copy tools reset modification times, hence
 * change times. A file changed less than a second ago is not cached: its next change may have the
 * same time.
 *
 *   {"version": 2, "models": {"32 hex digits, the key": "32 hex digits, the fingerprint", ...}}
 *
 * Invariants: the cache file has at most one page (SC_STORE_FIXED_BYTES); the oldest entry is
 * dropped first. A damaged or foreign file is rewritten; one that others may write is refused,
 * because it decides which KV matches. The fingerprint does not depend on paths. Threads: any (open
 * only).
 * Tests: tests/unit/plugin/test_fingerprint.c, conformance/test_namespace.c (abi_011_*) */
#include "base/path_owner.h"
#include "plugin/args/identify.h"
#include "plugin/connector.h"
#include "store/io/io.h"

#include <errno.h>
#include <fcntl.h>
#include <json-c/json.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SETTLED_NS    UINT64_C(1000000000) /* more than the resolution of file systems' clocks */
#define READ_BYTES    (UINT64_C(4) << 20)
#define CACHE_NAME    "weights.json"
#define CACHE_VERSION 2
#define CACHE_BYTES   4096u /* maximum */
#define CACHE_MODELS  48u   /* 70 bytes each */
#define HEX_BYTES     (2 * SC_HASH_BYTES + 1)

/* Hashes one file's bytes as a chain over blocks, so that only one block is in memory. */
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

/* ---- The cache ------------------------------------------------------------------------------- */

static void to_hex(struct sc_hash hash, char hex[HEX_BYTES])
{
    snprintf(hex, HEX_BYTES, "%016" PRIx64 "%016" PRIx64, hash.hi, hash.lo);
}

static struct sc_hash key_add(struct sc_hash key, const char *path, const struct stat *info)
{
    struct sc_digest digest;
    sc_digest_init(&digest, "weights-key");
    sc_digest_hash(&digest, 1, key);
    sc_digest_hash(&digest, 2, sc_hash_bytes(path, strlen(path)));
    sc_digest_u64(&digest, 3, (uint64_t)info->st_size);
    sc_digest_u64(&digest, 4, time_ns(&info->st_mtim));
    sc_digest_u64(&digest, 5, time_ns(&info->st_ctim));
    sc_digest_u64(&digest, 6, (uint64_t)info->st_ino);
    return sc_digest_done(&digest);
}

static bool kept_find(struct json_object *models, struct sc_hash key, struct sc_hash *ret_hash)
{
    char name[HEX_BYTES];
    struct json_object *hash;
    to_hex(key, name);
    if (!json_object_object_get_ex(models, name, &hash) ||
        !json_object_is_type(hash, json_type_string) || json_object_get_string_len(hash) != 32)
        return false;
    const char *hex = json_object_get_string(hash);
    return strspn(hex, "0123456789abcdef") == 32 &&
           sscanf(hex, "%16" SCNx64 "%16" SCNx64, &ret_hash->hi, &ret_hash->lo) == 2;
}

/* Appends an entry. Entries are in the order of insertion, so the first is the oldest. */
static void kept_add(struct json_object *models, struct sc_hash key, struct sc_hash hash)
{
    char name[HEX_BYTES], hex[HEX_BYTES];
    to_hex(key, name);
    to_hex(hash, hex);
    json_object_object_del(models, name);
    while (json_object_object_length(models) >= (int)CACHE_MODELS) {
        struct json_object_iterator first = json_object_iter_begin(models);
        json_object_object_del(models, json_object_iter_peek_name(&first));
    }
    json_object_object_add(models, name, json_object_new_string(hex));
}

/* Reads the cache file; NULL and SPEC_OK if it is absent, not regular, not JSON or too long. */
static spec_status read_file(const spec_connector *conn, const char *path,
                             struct json_object **ret_cache, struct spec_error *reterr)
{
    char text[CACHE_BYTES + 1];
    struct stat info;
    spec_status status = SPEC_OK;
    *ret_cache = NULL;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW | O_NOCTTY);
    if (fd < 0)
        return SPEC_OK;
    if (fstat(fd, &info) == 0 && S_ISREG(info.st_mode)) {
        if (conn->config.allow_shared == 0)
            status = sc_path_owner_check(&info, path, reterr);
        ssize_t got = status == SPEC_OK ? read(fd, text, sizeof(text)) : -1;
        if (got > 0 && got <= (ssize_t)CACHE_BYTES) {
            text[got] = '\0';
            *ret_cache = json_tokener_parse(text);
        }
    }
    close(fd);
    return status;
}

/* Returns the cache's root object and its "models"; new ones if the file is absent or foreign. */
static spec_status read_cache(const spec_connector *conn, const char *path,
                              struct json_object **ret_cache, struct json_object **ret_models,
                              struct spec_error *reterr)
{
    struct json_object *cache, *version;
    spec_status status = read_file(conn, path, &cache, reterr);
    if (status != SPEC_OK)
        return status;
    bool is_ours = cache != NULL && json_object_is_type(cache, json_type_object) &&
                   json_object_object_length(cache) == 2 &&
                   json_object_object_get_ex(cache, "version", &version) &&
                   json_object_is_type(version, json_type_int) &&
                   json_object_get_uint64(version) == CACHE_VERSION &&
                   json_object_object_get_ex(cache, "models", ret_models) &&
                   json_object_is_type(*ret_models, json_type_object);
    if (!is_ours) {
        json_object_put(cache);
        cache = json_object_new_object();
        *ret_models = json_object_new_object();
        json_object_object_add(cache, "version", json_object_new_int(CACHE_VERSION));
        json_object_object_add(cache, "models", *ret_models);
    }
    *ret_cache = cache;
    return SPEC_OK;
}

/* Replaces the file by rename, so that no reader sees a part of it. Failures only cost time. */
static void write_cache(const char *cache_path, struct json_object *cache)
{
    char temporary[SC_LIMIT_PATH_BYTES];
    int length = snprintf(temporary, sizeof(temporary), "%s.%ld", cache_path, (long)getpid());
    if (length < 0 || (uint64_t)length >= sizeof(temporary))
        return;
    const char *text = json_object_to_json_string_ext(cache, JSON_C_TO_STRING_PLAIN);
    uint64_t bytes = strlen(text);
    if (bytes > CACHE_BYTES || bytes > sc_io_file_limit()) /* too long: it has foreign entries */
        return;
    (void)unlink(temporary); /* left by a process of the same id that died here */
    int fd = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return;
    bool whole = write(fd, text, bytes) == (ssize_t)bytes;
    whole = close(fd) == 0 && whole;
    if (!whole || rename(temporary, cache_path) != 0)
        unlink(temporary);
}

/* Returns true for a store's directory. A file of ours would make another one look foreign. */
static bool is_store(const char *path)
{
    char identity[SC_LIMIT_PATH_BYTES + sizeof(SC_STORE_IDENTITY_NAME) + 1];
    snprintf(identity, sizeof(identity), "%s/" SC_STORE_IDENTITY_NAME, path);
    return access(identity, F_OK) == 0;
}

/* ---- Files ----------------------------------------------------------------------------------- */

/* Opens a file of weights, which may be a symbolic link, and reads its stat. */
static spec_status weights_open(const char *path, uint64_t i, int *ret_fd, struct stat *ret_info,
                                struct spec_error *reterr)
{
    if (path == NULL)
        return sc_fail(reterr, SPEC_E_INVALID, "model: weights_paths[%" PRIu64 "] is NULL", i);
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* opening a pipe must not block */
    if (fd < 0 || fstat(fd, ret_info) != 0) {
        int why = errno;
        if (fd >= 0)
            close(fd);
        return sc_fail_errno(reterr, SPEC_E_IO, why, "cannot open weights %s", path);
    }
    if (!S_ISREG(ret_info->st_mode)) {
        close(fd);
        return sc_fail(reterr, SPEC_E_INVALID, "weights %s: expected a regular file", path);
    }
    *ret_fd = fd;
    return SPEC_OK;
}

static spec_status find_key(const char *const *paths, uint64_t path_count, struct sc_hash *ret_key,
                            struct spec_error *reterr)
{
    *ret_key = (struct sc_hash){0, 0};
    for (uint64_t i = 0; i < path_count; i++) {
        int fd;
        struct stat info;
        spec_status status = weights_open(paths[i], i, &fd, &info, reterr);
        if (status != SPEC_OK)
            return status;
        close(fd);
        *ret_key = key_add(*ret_key, paths[i], &info);
    }
    return SPEC_OK;
}

/* The files hashed so far. */
struct reading {
    struct sc_hash key, hash;
    bool is_settled; /* false: some file changed too recently to be cached */
};

static spec_status hash_one(spec_connector *conn, const char *path, uint64_t i,
                            struct reading *reading, struct spec_error *reterr)
{
    struct sc_hash one = {0, 0};
    int fd;
    struct stat info, after;
    spec_status status = weights_open(path, i, &fd, &info, reterr);
    if (status != SPEC_OK)
        return status;
    status = hash_file(conn, path, fd, &one, reterr);
    if (status == SPEC_OK && (fstat(fd, &after) != 0 || !is_same(&info, &after)))
        status = sc_fail(reterr, SPEC_E_IO, "weights %s changed while they were read", path);
    close(fd);
    uint64_t now_ns = sc_exec_wall_ns(conn->exec);
    if (now_ns < SETTLED_NS || time_ns(&info.st_ctim) > now_ns - SETTLED_NS)
        reading->is_settled = false;
    reading->key = key_add(reading->key, path, &info);
    struct sc_digest digest;
    sc_digest_init(&digest, "weights-files");
    sc_digest_hash(&digest, 1, reading->hash);
    sc_digest_hash(&digest, 2, one);
    reading->hash = sc_digest_done(&digest);
    return status;
}

spec_status sc_plugin_fingerprint(spec_connector *conn, const char *const *paths,
                                  uint64_t path_count, struct sc_hash *ret_hash,
                                  struct spec_error *reterr)
{
    char cache_path[SC_LIMIT_PATH_BYTES + sizeof(CACHE_NAME) + 1];
    struct json_object *cache, *models;
    struct sc_hash key;
    snprintf(cache_path, sizeof(cache_path), "%s/" CACHE_NAME, conn->config.path);
    spec_status status = SPEC_OK;
    if (conn->config.allow_shared == 0)
        status = sc_path_owner_check_directory(conn->config.path, reterr);
    if (status == SPEC_OK)
        status = find_key(paths, path_count, &key, reterr);
    if (status == SPEC_OK)
        status = read_cache(conn, cache_path, &cache, &models, reterr);
    if (status != SPEC_OK)
        return status;
    if (!kept_find(models, key, ret_hash)) {
        struct reading reading = {.is_settled = true};
        for (uint64_t i = 0; i < path_count && status == SPEC_OK; i++)
            status = hash_one(conn, paths[i], i, &reading, reterr);
        *ret_hash = reading.hash;
        if (status == SPEC_OK && reading.is_settled && is_store(conn->config.path)) {
            kept_add(models, reading.key, reading.hash);
            write_cache(cache_path, cache);
        }
    }
    json_object_put(cache);
    return status;
}
