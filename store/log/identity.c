/* identity: DIR/store.msgpack: one frame with magic, version, store id, time and the chains'
 * secret.
 *
 * Written by the first rank, under DIR/store.lock, and synced before anything else is created. The
 * first writer with a later format replaces it once more (sc_store_identity_upgrade).
 *
 *   no directory                  create it and the identity
 *   empty, a torn identity, or    create the identity
 *   epochs/ of a reader only
 *   identity                      read it; other version: SPEC_E_VERSION
 *   anything else                 SPEC_E_VERSION, names what was found; nothing is touched
 *
 * Invariants: a foreign directory is never written to. A damaged identity beside data is not
 * repaired: that store cannot be told from a foreign one.
 * Threads: one open at a time in a process; several processes by the lock.
 * Tests: tests/unit/store/test_store.c, tests/fault/test_store_faults.c */
#include "store/log/identity.h"
#include "store/internal.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define IDENTITY_NAME      "store.msgpack"
#define IDENTITY_NEW_NAME  "store.msgpack.new"
#define IDENTITY_LOCK_NAME "store.lock"
#define IDENTITY_BYTES_MAX 4096u
#define LOCK_RETRY_NS      10000000ull   /* 10 ms */
#define LOCK_WAIT_NS       5000000000ull /* another rank may be creating the identity */

enum identity_state { IDENTITY_ABSENT, IDENTITY_TORN, IDENTITY_FOREIGN, IDENTITY_FOUND };

struct path {
    char text[SC_LIMIT_PATH_BYTES + 64];
};

static const char *path_in(const struct sc_store *store, const char *name, struct path *path)
{
    (void)snprintf(path->text, sizeof(path->text), "%s/%s", store->params.config->path, name);
    return path->text;
}

/* A crash leaves nothing of a started write, zeros, or a part of our frame. */
static bool is_torn(const uint8_t *bytes, uint64_t count)
{
    if (count >= 4 && memcmp(bytes, "SCL1", 4) == 0)
        return true;
    for (uint64_t i = 0; i < count; i++)
        if (bytes[i] != 0)
            return false;
    return true;
}

static spec_status identity_read(struct sc_store *store, enum identity_state *ret_state,
                                 struct sc_store_identity *ret_identity, struct spec_error *reterr)
{
    struct path path;
    struct sc_io_file *file;
    struct spec_error error = {.struct_size = sizeof(error)};
    *ret_state = IDENTITY_ABSENT;
    spec_status status =
        sc_io_file_open(store->io, path_in(store, IDENTITY_NAME, &path), 0, &file, &error);
    if (status != SPEC_OK && error.sys_errno == ENOENT)
        return SPEC_OK;
    if (status != SPEC_OK)
        return sc_fail_errno(reterr, status, error.sys_errno, "%s", error.text);
    uint8_t bytes[IDENTITY_BYTES_MAX];
    uint64_t count, chain = 0;
    struct sc_store_frame frame;
    status = sc_io_file_size(store->io, file, &count, reterr);
    count = status == SPEC_OK && count > sizeof(bytes) ? sizeof(bytes) : count;
    if (status == SPEC_OK && count > 0)
        status = sc_io_file_pread(store->io, file, bytes, count, 0, reterr);
    sc_io_file_close(store->io, file);
    if (status != SPEC_OK)
        return status;
    if (sc_store_old_frame_check(bytes, count, 0, &chain, &frame) != SC_STORE_FRAME_OK)
        *ret_state = is_torn(bytes, count) ? IDENTITY_TORN : IDENTITY_FOREIGN;
    else if (sc_store_record_get_identity(frame.payload, frame.payload_bytes, ret_identity))
        *ret_state = IDENTITY_FOUND;
    else
        *ret_state = IDENTITY_FOREIGN;
    return SPEC_OK;
}

struct listing {
    char other[64]; /* first name that a new store does not have; "": none */
};

static void listing_add(const char *name, void *user)
{
    struct listing *listing = user;
    if (strcmp(name, IDENTITY_NAME) != 0 && strcmp(name, IDENTITY_LOCK_NAME) != 0 &&
        strcmp(name, SC_STORE_EPOCHS_DIR) != 0 && strcmp(name, "lost+found") != 0 &&
        listing->other[0] == '\0')
        (void)snprintf(listing->other, sizeof(listing->other), "%.60s", name);
}

/* Returns SPEC_OK if the directory may get an identity; else the text names a foreign entry. */
static spec_status identity_check_fresh(struct sc_store *store, enum identity_state state,
                                        struct spec_error *reterr)
{
    const char *dir = store->params.config->path;
    struct listing listing = {{0}};
    if (state == IDENTITY_FOREIGN)
        return sc_fail(
            reterr, SPEC_E_VERSION,
            "%s is not a spec_connector store (found a " IDENTITY_NAME " that is not ours)", dir);
    spec_status status = sc_io_list(store->io, dir, listing_add, &listing, reterr);
    if (status != SPEC_OK)
        return status;
    if (listing.other[0] != '\0' && state == IDENTITY_TORN)
        return sc_fail(reterr, SPEC_E_CORRUPT,
                       "%s/" IDENTITY_NAME " is damaged; remove the directory to start anew", dir);
    if (listing.other[0] != '\0')
        return sc_fail(reterr, SPEC_E_VERSION, "%s is not a spec_connector store (found %s)", dir,
                       listing.other);
    return SPEC_OK;
}

/* Draws the store id and the secret from the system's random numbers. */
static spec_status identity_draw(struct sc_store *store, struct sc_store_identity *ret_identity,
                                 struct spec_error *reterr)
{
    uint64_t drawn[(sizeof(ret_identity->store_id) + sizeof(ret_identity->secret)) / 8];
    for (size_t i = 0; i < sizeof(drawn) / sizeof(drawn[0]); i++) {
        spec_status status = sc_io_random(store->io, &drawn[i], reterr);
        if (status != SPEC_OK)
            return status;
    }
    memcpy(ret_identity->store_id, drawn, sizeof(ret_identity->store_id));
    memcpy(ret_identity->secret, drawn + sizeof(ret_identity->store_id) / 8,
           sizeof(ret_identity->secret));
    return SPEC_OK;
}

/* Its frame has the format that every build reads. */
static spec_status identity_put(struct sc_store *store, const char *name,
                                const struct sc_store_identity *identity, struct spec_error *reterr)
{
    uint8_t bytes[IDENTITY_BYTES_MAX];
    struct sc_store_writer writer = {bytes, 0, sizeof(bytes), false};
    struct path path;
    struct sc_io_file *file;
    uint64_t chain = 0, frame = sc_store_old_frame_begin(&writer);
    sc_store_record_encode_identity(&writer, identity);
    sc_store_old_frame_end(&writer, frame, 0, &chain);
    spec_status status = sc_io_file_open(store->io, path_in(store, name, &path),
                                         SC_IO_OPEN_CREATE | SC_IO_OPEN_WRITE, &file, reterr);
    if (status != SPEC_OK)
        return status;
    status = sc_io_file_truncate(store->io, file, 0, reterr);
    if (status == SPEC_OK)
        status = sc_io_file_pwrite(store->io, file, bytes, writer.used, 0, reterr);
    if (status == SPEC_OK)
        status = sc_io_file_sync(store->io, file, reterr);
    sc_io_file_close(store->io, file);
    return status;
}

static spec_status identity_write(struct sc_store *store, struct spec_error *reterr)
{
    struct sc_store_identity identity = {.version = SC_STORE_FORMAT_VERSION,
                                         .created_ns = sc_exec_wall_ns(store->params.exec)};
    spec_status status = identity_draw(store, &identity, reterr);
    return status == SPEC_OK ? identity_put(store, IDENTITY_NAME, &identity, reterr) : status;
}

/* Takes DIR/store.lock; ranks that start together hold it in turn. */
static spec_status identity_lock(struct sc_store *store, struct sc_io_file **ret_file,
                                 struct spec_error *reterr)
{
    struct path path;
    _Atomic uint32_t never = 0;
    spec_status status = sc_io_file_open(store->io, path_in(store, IDENTITY_LOCK_NAME, &path),
                                         SC_IO_OPEN_CREATE | SC_IO_OPEN_WRITE, ret_file, reterr);
    if (status != SPEC_OK)
        return status;
    struct sc_exec *exec = store->params.exec;
    uint64_t end_ns = sc_exec_now_ns(exec) + LOCK_WAIT_NS;
    status = sc_io_file_lock(store->io, *ret_file, reterr);
    while (status == SPEC_E_LOCKED && sc_exec_now_ns(exec) < end_ns) {
        (void)sc_exec_wait(exec, &never, 0, sc_exec_now_ns(exec) + LOCK_RETRY_NS);
        status = sc_io_file_lock(store->io, *ret_file, reterr);
    }
    if (status != SPEC_OK)
        sc_io_file_close(store->io, *ret_file);
    return status;
}

static spec_status identity_make(struct sc_store *store, struct sc_store_identity *ret_identity,
                                 struct spec_error *reterr)
{
    struct sc_io_file *lock;
    enum identity_state state;
    spec_status status = identity_lock(store, &lock, reterr);
    if (status != SPEC_OK)
        return status;
    /* another rank may have been first */
    status = identity_read(store, &state, ret_identity, reterr);
    if (status == SPEC_OK && state != IDENTITY_FOUND) {
        status = identity_check_fresh(store, state, reterr);
        if (status == SPEC_OK)
            status = identity_write(store, reterr);
        if (status == SPEC_OK)
            status = identity_read(store, &state, ret_identity, reterr);
        if (status == SPEC_OK && state != IDENTITY_FOUND)
            status = sc_fail(reterr, SPEC_E_IO, "%s/" IDENTITY_NAME " does not read back",
                             store->params.config->path);
    }
    sc_io_file_close(store->io, lock);
    return status;
}

/* Creates the first identity. The directory was checked without the lock, because a foreign one
 * must not get a lock file. Another rank may have written the identity and its own folder since, so
 * the directory is refused only after a second look. */
static spec_status identity_first(struct sc_store *store, enum identity_state state,
                                  struct sc_store_identity *ret_identity, struct spec_error *reterr)
{
    if (identity_check_fresh(store, state, NULL) != SPEC_OK) {
        spec_status status = identity_read(store, &state, ret_identity, reterr);
        if (status != SPEC_OK || state == IDENTITY_FOUND)
            return status;
        status = identity_check_fresh(store, state, reterr);
        if (status != SPEC_OK)
            return status;
    }
    return identity_make(store, ret_identity, reterr);
}

static spec_status identity_check_version(const struct sc_store *store,
                                          const struct sc_store_identity *identity,
                                          struct spec_error *reterr)
{
    if (identity->version >= SC_STORE_FORMAT_OLDEST && identity->version <= SC_STORE_FORMAT_VERSION)
        return SPEC_OK;
    return sc_fail(reterr, SPEC_E_VERSION,
                   "%s has store format %" PRIu64 ", this build reads %u to %u: %s",
                   store->params.config->path, identity->version, SC_STORE_FORMAT_OLDEST,
                   SC_STORE_FORMAT_VERSION,
                   identity->version < SC_STORE_FORMAT_OLDEST ? "remove the directory"
                                                              : "use the build that wrote it");
}

/* Under store.lock: the new identity replaces the old one by a rename. */
static spec_status upgrade_locked(struct sc_store *store, struct spec_error *reterr)
{
    struct sc_store_identity identity = {0};
    struct path from, to;
    bool is_found;
    spec_status status = sc_store_identity_find(store, &identity, &is_found, reterr);
    if (status == SPEC_OK && !is_found)
        status = sc_fail(reterr, SPEC_E_IO, "%s/" IDENTITY_NAME " was removed",
                         store->params.config->path);
    if (status != SPEC_OK || identity.version == SC_STORE_FORMAT_VERSION)
        return status;
    const uint64_t was = identity.version;
    identity.version = SC_STORE_FORMAT_VERSION;
    status = identity_put(store, IDENTITY_NEW_NAME, &identity, reterr);
    if (status == SPEC_OK)
        status = sc_io_rename(store->io, path_in(store, IDENTITY_NEW_NAME, &from),
                              path_in(store, IDENTITY_NAME, &to), reterr);
    if (status == SPEC_OK)
        SC_LOG(store->params.log, SPEC_LOG_INFO, "%s: store format %" PRIu64 " becomes %u",
               store->params.config->path, was, SC_STORE_FORMAT_VERSION);
    return status;
}

spec_status sc_store_identity_upgrade(struct sc_store *store, struct spec_error *reterr)
{
    struct sc_store_identity identity = {0};
    struct sc_io_file *lock;
    bool is_found;
    spec_status status = sc_store_identity_find(store, &identity, &is_found, reterr);
    if (status != SPEC_OK || (is_found && identity.version == SC_STORE_FORMAT_VERSION))
        return status;
    status = identity_lock(store, &lock, reterr);
    if (status != SPEC_OK)
        return status;
    status = upgrade_locked(store, reterr);
    sc_io_file_close(store->io, lock);
    return status;
}

spec_status sc_store_identity_find(struct sc_store *store, struct sc_store_identity *ret_identity,
                                   bool *ret_found, struct spec_error *reterr)
{
    enum identity_state state;
    *ret_found = false;
    spec_status status = identity_read(store, &state, ret_identity, reterr);
    if (status != SPEC_OK)
        return status;
    if (state == IDENTITY_FOREIGN)
        return sc_fail(reterr, SPEC_E_VERSION,
                       "%s is not a spec_connector store (its " IDENTITY_NAME " is not ours)",
                       store->params.config->path);
    if (state != IDENTITY_FOUND) /* absent, or being written */
        return SPEC_OK;
    status = identity_check_version(store, ret_identity, reterr);
    *ret_found = status == SPEC_OK;
    return status;
}

/* Checks the ownership of the lock file, although nobody takes it again. */
static spec_status lock_check(struct sc_store *store, struct spec_error *reterr)
{
    struct path path;
    struct sc_io_file *file;
    struct spec_error error = {.struct_size = sizeof(error)};
    spec_status status =
        sc_io_file_open(store->io, path_in(store, IDENTITY_LOCK_NAME, &path), 0, &file, &error);
    if (status == SPEC_OK)
        sc_io_file_close(store->io, file);
    return status == SPEC_OK || error.sys_errno == ENOENT
               ? SPEC_OK
               : sc_fail_errno(reterr, status, error.sys_errno, "%s", error.text);
}

spec_status sc_store_identity_set(struct sc_store *store, const struct sc_store_identity *identity,
                                  struct spec_error *reterr)
{
    memcpy(store->store_id, identity->store_id, sizeof(store->store_id));
    if (store->params.on_secret == NULL)
        return SPEC_OK;
    return store->params.on_secret(identity->secret, store->params.user, reterr);
}

spec_status sc_store_identity_open(struct sc_store *store, struct spec_error *reterr)
{
    struct sc_store_identity identity = {0};
    enum identity_state state;
    spec_status status = sc_io_mkdir(store->io, store->params.config->path, reterr);
    if (status == SPEC_OK)
        status = identity_read(store, &state, &identity, reterr);
    if (status == SPEC_OK && state != IDENTITY_FOUND)
        status = identity_first(store, state, &identity, reterr);
    if (status == SPEC_OK)
        status = identity_check_version(store, &identity, reterr);
    if (status == SPEC_OK)
        status = lock_check(store, reterr);
    return status == SPEC_OK ? sc_store_identity_set(store, &identity, reterr) : status;
}

bool sc_store_id(const struct sc_store *store, uint8_t ret_id[16])
{
    static const uint8_t none[sizeof(store->store_id)];
    memcpy(ret_id, store->store_id, sizeof(store->store_id));
    return memcmp(ret_id, none, sizeof(none)) != 0;
}

spec_status sc_store_is_ours(struct sc_store *store, struct spec_error *reterr)
{
    char path[SC_LIMIT_PATH_BYTES + 64];
    bool is_same = false;
    (void)snprintf(path, sizeof(path), "%s/lock", store->dir);
    spec_status status = sc_io_file_same(store->io, store->lock_file, path, &is_same, reterr);
    if (status == SPEC_OK && !is_same)
        status = sc_fail(reterr, SPEC_E_IO,
                         "%s is not ours any more: its lock was removed or replaced", store->dir);
    return status;
}
