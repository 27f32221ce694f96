/* log_swap: see log_swap.h.
 * Invariants: either log is complete at any time; an error leaves the old one in use. */
#include "store/log/log_swap.h"
#include "store/internal.h"
#include "store/log/identity.h"

#include <stdio.h>
#include <string.h>

static void new_path(const struct sc_store *store, char path[SC_LIMIT_PATH_BYTES + 64])
{
    (void)snprintf(path, SC_LIMIT_PATH_BYTES + 64, "%s/log.new", store->dir);
}

void sc_store_log_new_remove(struct sc_store *store)
{
    char path[SC_LIMIT_PATH_BYTES + 64];
    new_path(store, path);
    (void)sc_io_unlink(store->io, path, NULL);
}

spec_status sc_store_log_new(struct sc_store *store, struct sc_io_file **ret_file,
                             struct spec_error *reterr)
{
    char path[SC_LIMIT_PATH_BYTES + 64];
    new_path(store, path);
    sc_store_log_new_remove(store);
    return sc_io_file_open(store->io, path,
                           SC_IO_OPEN_CREATE | SC_IO_OPEN_EXCLUSIVE | SC_IO_OPEN_WRITE |
                               SC_IO_OPEN_APPEND,
                           ret_file, reterr);
}

spec_status sc_store_log_swap(struct sc_store *store, struct sc_store_log_next *next,
                              struct spec_error *reterr)
{
    struct sc_store_journal *journal = &store->log.journal;
    char from[SC_LIMIT_PATH_BYTES + 64], to[SC_LIMIT_PATH_BYTES + 64];
    bool in_place = false, is_log = false;
    new_path(store, from);
    (void)snprintf(to, sizeof(to), "%s/log", store->dir);
    spec_status status = sc_store_is_ours(store, reterr);
    if (status == SPEC_OK)
        status = sc_io_file_same(store->io, journal->file, to, &is_log, reterr);
    if (status == SPEC_OK && !is_log)
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
