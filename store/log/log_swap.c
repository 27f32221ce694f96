/* log_swap: see log_swap.h.
 * Invariants: either log is complete at any time; an error leaves the old one in use. */
#include "store/log/log_swap.h"
#include "store/internal.h"
#include "store/log/identity.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OTHERS_NS 100000000ull /* another member's checkpoint is waited for */
#define LEFT_MAX  256u         /* members die rarely within a checkpoint */

void sc_store_log_new_path(const struct sc_store *store, uint64_t number, uint64_t place,
                           char ret_path[SC_LIMIT_PATH_BYTES + 64])
{
    (void)snprintf(ret_path, SC_LIMIT_PATH_BYTES + 64,
                   "%s/" SC_STORE_LOG_NEW "-%" PRIx64 "-%" PRIx64, store->dir, number, place);
}

static void new_path(const struct sc_store *store, uint64_t number,
                     char ret_path[SC_LIMIT_PATH_BYTES + 64])
{
    if (sc_store_is_member(store))
        sc_store_log_new_path(store, number, store->member_place, ret_path);
    else
        (void)snprintf(ret_path, SC_LIMIT_PATH_BYTES + 64, "%s/" SC_STORE_LOG_NEW, store->dir);
}

void sc_store_log_new_remove(struct sc_store *store, uint64_t number)
{
    char path[SC_LIMIT_PATH_BYTES + 64];
    new_path(store, number, path);
    (void)sc_io_unlink(store->io, path, NULL);
}

struct left {
    uint64_t number_end; /* of members' files: those of earlier checkpoints; 0: all */
    bool found;
    char name[64]; /* of one */
};

static void left_note(const char *name, void *user)
{
    struct left *left = user;
    const size_t prefix = strlen(SC_STORE_LOG_NEW);
    if (strncmp(name, SC_STORE_LOG_NEW, prefix) != 0 || strlen(name) >= sizeof(left->name))
        return;
    if (left->number_end > 0 &&
        (name[prefix] != '-' || strtoull(name + prefix + 1, NULL, 16) >= left->number_end))
        return;
    memcpy(left->name, name, strlen(name) + 1);
    left->found = true;
}

static void left_remove(struct sc_store *store, uint64_t number_end)
{
    char path[SC_LIMIT_PATH_BYTES + 64];
    for (uint32_t i = 0; i < LEFT_MAX; i++) {
        struct left left = {.number_end = number_end};
        if (sc_io_list(store->io, store->dir, left_note, &left, NULL) != SPEC_OK || !left.found)
            return;
        (void)snprintf(path, sizeof(path), "%s/%s", store->dir, left.name);
        if (sc_io_unlink(store->io, path, NULL) != SPEC_OK)
            return;
    }
}

void sc_store_log_new_remove_all(struct sc_store *store)
{
    left_remove(store, 0);
}

void sc_store_log_new_remove_old(struct sc_store *store)
{
    left_remove(store, store->log.journal.head.number + 1);
}

spec_status sc_store_log_new(struct sc_store *store, uint64_t number, struct sc_io_file **ret_file,
                             struct spec_error *reterr)
{
    char path[SC_LIMIT_PATH_BYTES + 64];
    new_path(store, number, path);
    sc_store_log_new_remove(store, number);
    return sc_io_file_open(store->io, path,
                           SC_IO_OPEN_CREATE | SC_IO_OPEN_EXCLUSIVE | SC_IO_OPEN_WRITE |
                               SC_IO_OPEN_APPEND,
                           ret_file, reterr);
}

spec_status sc_store_log_new_lock(struct sc_store *store, struct sc_io_file **ret_file,
                                  struct spec_error *reterr)
{
    char path[SC_LIMIT_PATH_BYTES + 64];
    *ret_file = NULL;
    if (!sc_store_is_member(store))
        return SPEC_OK;
    (void)snprintf(path, sizeof(path), "%s/checkpoint.lock", store->dir);
    spec_status status =
        sc_io_file_open(store->io, path, SC_IO_OPEN_CREATE | SC_IO_OPEN_WRITE, ret_file, reterr);
    if (status != SPEC_OK || sc_io_file_claim(store->io, *ret_file, NULL) == SPEC_OK)
        return status;
    sc_io_file_close(store->io, *ret_file);
    *ret_file = NULL;
    pthread_mutex_lock(&store->log.lock);
    store->log.journal.retry_ns = sc_exec_now_ns(store->params.exec) + OTHERS_NS;
    pthread_mutex_unlock(&store->log.lock);
    return sc_fail(reterr, SPEC_E_BUSY, "%s/log: another process writes it anew", store->dir);
}

spec_status sc_store_log_swap(struct sc_store *store, struct sc_store_log_next *next,
                              struct spec_error *reterr)
{
    struct sc_store_journal *journal = &store->log.journal;
    char from[SC_LIMIT_PATH_BYTES + 64], to[SC_LIMIT_PATH_BYTES + 64];
    bool in_place = false, is_log = false;
    new_path(store, next->head.number, from);
    (void)snprintf(to, sizeof(to), "%s/log", store->dir);
    spec_status status = sc_store_is_ours(store, reterr);
    if (status == SPEC_OK)
        status = sc_io_file_same(store->io, journal->file, to, &is_log, reterr);
    if (status == SPEC_OK && !is_log && !sc_store_is_member(store)) /* else another renamed it */
        status = sc_fail(reterr, SPEC_E_IO, "%s is not our log any more", to);
    if (status != SPEC_OK)
        return status;
    status = sc_io_rename(store->io, from, to, reterr);
    if (status != SPEC_OK && /* renamed, perhaps not synced */
        (sc_io_file_same(store->io, next->file, to, &in_place, NULL) != SPEC_OK || !in_place))
        return status;
    struct sc_io_file *old = journal->file;
    journal->file = next->file;
    next->file = old;
    journal->end = next->end;
    journal->file_end = journal->synced_end = journal->kept_bytes = next->end.offset;
    journal->head = next->head;
    sc_store_journal_undamaged(journal);
    store->log.is_broken = journal->is_short = false;
    atomic_store(&store->counts.log_bytes, next->end.offset);
    return SPEC_OK;
}

spec_status sc_store_log_open_old(struct sc_store *store, struct sc_io_file **ret_file,
                                  struct spec_error *reterr)
{
    char path[SC_LIMIT_PATH_BYTES + 64];
    (void)snprintf(path, sizeof(path), "%s/log", store->dir);
    return sc_io_file_open(store->io, path, SC_IO_OPEN_WRITE, ret_file, reterr);
}

spec_status sc_store_log_zero(struct sc_store *store, struct sc_io_file *file, uint8_t *buffer,
                              uint64_t buffer_bytes, struct spec_error *reterr)
{
    uint64_t end;
    spec_status status = sc_io_file_size(store->io, file, &end, reterr);
    memset(buffer, 0, buffer_bytes);
    for (uint64_t at = 0; status == SPEC_OK && at < end; at += buffer_bytes) {
        uint64_t bytes = end - at < buffer_bytes ? end - at : buffer_bytes;
        status = sc_io_file_pwrite(store->io, file, buffer, bytes, at, reterr);
    }
    return status == SPEC_OK ? sc_io_file_sync(store->io, file, reterr) : status;
}

/* Opens its own descriptor. If a checkpoint swaps the log meanwhile, the new log was synced before
 * the swap and has everything that this one had. */
spec_status sc_store_log_sync(struct sc_store *store, struct spec_error *reterr)
{
    char path[SC_LIMIT_PATH_BYTES + 64];
    struct sc_io_file *file;
    (void)snprintf(path, sizeof(path), "%s/log", store->dir);
    spec_status status = sc_io_file_open(store->io, path, 0, &file, reterr);
    if (status != SPEC_OK)
        return status;
    status = sc_io_file_sync(store->io, file, reterr);
    sc_io_file_close(store->io, file);
    return status;
}
