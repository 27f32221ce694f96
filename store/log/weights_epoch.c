/* weights_epoch: a reset counter for all data of the same weights, over all layouts, chunk sizes,
 * dtypes and rank counts in the directory.
 *
 *   PATH/epochs/WEIGHTS-EPOCH     empty files; WEIGHTS: 32 hex digits, EPOCH: 16 hex digits
 *
 * The epoch is the highest number with a file. A reset creates the next file exclusively, so two
 * resets never share a number. Files older than the last KEPT are removed.
 *
 * Invariants: the epoch never decreases; a number taken is durable.
 * Threads: any executor thread, or open. Calls block on the file system.
 * Tests: tests/unit/store/test_weights_epoch.c, conformance abi_216_* */
#include "store/internal.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PREFIX_CHARS 33u /* in a name: the weights and '-' */
#define NAME_CHARS   (PREFIX_CHARS + 16u)
#define KEPT         64u

struct epoch_names {
    char prefix[PREFIX_CHARS + 1];
    uint64_t highest;
    struct sc_store *store; /* remove old files; NULL: keep them */
};

static void prefix_of(const uint8_t weights[SC_STORE_HASH_BYTES], char prefix[PREFIX_CHARS + 1])
{
    for (uint32_t i = 0; i < SC_STORE_HASH_BYTES; i++)
        (void)snprintf(prefix + 2 * i, 3, "%02x", weights[i]);
    (void)snprintf(prefix + PREFIX_CHARS - 1, 2, "-");
}

/* Returns the epoch in a file's name; 0: other weights, or not ours. */
static uint64_t epoch_of(const struct epoch_names *names, const char *name)
{
    if (strlen(name) != NAME_CHARS || strncmp(name, names->prefix, PREFIX_CHARS) != 0 ||
        strspn(name + PREFIX_CHARS, "0123456789abcdef") != NAME_CHARS - PREFIX_CHARS)
        return 0;
    return strtoull(name + PREFIX_CHARS, NULL, 16);
}

static void path_of(const struct sc_store *store, const struct epoch_names *names, uint64_t epoch,
                    char path[SC_LIMIT_PATH_BYTES + 128])
{
    (void)snprintf(path, SC_LIMIT_PATH_BYTES + 128, "%s/" SC_STORE_EPOCHS_DIR "/%s%016" PRIx64,
                   store->params.config->path, names->prefix, epoch);
}

static void on_name(const char *name, void *user)
{
    struct epoch_names *names = user;
    uint64_t epoch = epoch_of(names, name);
    char path[SC_LIMIT_PATH_BYTES + 128];
    if (names->store == NULL) {
        names->highest = epoch > names->highest ? epoch : names->highest;
        return;
    }
    if (epoch == 0 || names->highest < KEPT || epoch > names->highest - KEPT)
        return;
    path_of(names->store, names, epoch, path);
    (void)sc_io_unlink(names->store->io, path, NULL); /* else removed by a later reset */
}

static spec_status epochs_list(struct sc_store *store, struct epoch_names *names,
                               struct spec_error *reterr)
{
    char path[SC_LIMIT_PATH_BYTES + 64];
    struct spec_error error = {.struct_size = sizeof(error)};
    (void)snprintf(path, sizeof(path), "%s/" SC_STORE_EPOCHS_DIR, store->params.config->path);
    spec_status status = sc_io_list(store->io, path, on_name, names, &error);
    if (status == SPEC_OK || error.sys_errno == ENOENT)
        return SPEC_OK;
    return sc_fail_errno(reterr, status, error.sys_errno, "%s", error.text);
}

spec_status sc_store_weights_epoch(struct sc_store *store,
                                   const uint8_t weights[SC_STORE_HASH_BYTES], uint64_t *ret_epoch,
                                   struct spec_error *reterr)
{
    struct epoch_names names = {.highest = 0};
    prefix_of(weights, names.prefix);
    spec_status status = epochs_list(store, &names, reterr);
    *ret_epoch = names.highest;
    return status;
}

bool sc_store_weights_epoch_due(struct sc_store *store)
{
    uint64_t stamp =
        sc_store_watch_stamp(store->io, store->params.config->path, SC_STORE_EPOCHS_DIR);
    return sc_store_watch_due(&store->epochs_watch, stamp);
}

spec_status sc_store_weights_epoch_put(struct sc_store *store,
                                       const uint8_t weights[SC_STORE_HASH_BYTES], uint64_t epoch,
                                       bool *ret_is_new, struct spec_error *reterr)
{
    char path[SC_LIMIT_PATH_BYTES + 128];
    struct epoch_names names = {.highest = epoch};
    struct spec_error error = {.struct_size = sizeof(error)};
    struct sc_io_file *file;
    prefix_of(weights, names.prefix);
    (void)snprintf(path, sizeof(path), "%s/" SC_STORE_EPOCHS_DIR, store->params.config->path);
    spec_status status = sc_io_mkdir(store->io, path, reterr);
    if (status != SPEC_OK)
        return status;
    path_of(store, &names, epoch, path);
    status =
        sc_io_file_open(store->io, path,
                        SC_IO_OPEN_CREATE | SC_IO_OPEN_EXCLUSIVE | SC_IO_OPEN_WRITE, &file, &error);
    *ret_is_new = status == SPEC_OK;
    if (status != SPEC_OK && error.sys_errno == EEXIST)
        return SPEC_OK;
    if (status != SPEC_OK)
        return sc_fail_errno(reterr, status, error.sys_errno, "%s", error.text);
    status = sc_io_file_sync(store->io, file, reterr);
    sc_io_file_close(store->io, file);
    names.store = store;
    if (status == SPEC_OK)
        (void)epochs_list(store, &names, NULL);
    return status;
}
