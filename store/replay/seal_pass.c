/* seal_pass: a member goes on in the log that a seal names. It has applied all that is in it, so
 * nothing is read again. Contract: store/log/seal.h. */
#include "store/log/seal.h"
#include "store/replay/replay.h"

#include <stdio.h>

/* Opens the log. *ret_again: it is not the file that the seal names. */
static spec_status next_open(struct sc_store *store, struct sc_io_file **ret_file, bool *ret_again,
                             struct spec_error *reterr)
{
    const struct sc_store_record_seal *seal = &store->log.seal.record;
    char path[SC_LIMIT_PATH_BYTES + 64];
    uint64_t first = 0, bytes = 0;
    bool is_same = false;
    (void)snprintf(path, sizeof(path), "%s/log", store->dir);
    spec_status status =
        sc_io_file_open(store->io, path, SC_IO_OPEN_WRITE | SC_IO_OPEN_APPEND, ret_file, reterr);
    if (status != SPEC_OK)
        return status;
    status = sc_io_file_size(store->io, *ret_file, &bytes, reterr);
    if (status == SPEC_OK)
        status = sc_store_seal_first(store, *ret_file, &first, reterr);
    *ret_again = status == SPEC_OK && first != seal->first;
    if (*ret_again)
        status = sc_io_file_same(store->io, store->log.journal.file, path, &is_same, reterr);
    if (status == SPEC_OK && is_same)
        status = sc_fail(reterr, SPEC_E_STALE, "%s is sealed, and what goes on is missing", path);
    if (status == SPEC_OK && !*ret_again && bytes < seal->bytes)
        status = sc_fail(reterr, SPEC_E_STALE, "%s was cut", path);
    if (status != SPEC_OK)
        sc_io_file_close(store->io, *ret_file);
    return status;
}

/* Log lock held. Returns the file that is not the log any more; NULL: a checkpoint reads it. */
static struct sc_io_file *file_replace(struct sc_store *store, struct sc_io_file *file)
{
    struct sc_store_journal *journal = &store->log.journal;
    struct sc_io_file *old = journal->file;
    journal->file = file;
    if (!store->log.seal.keeps_old || store->log.seal.old != NULL)
        return old;
    store->log.seal.old = old;
    return NULL;
}

/* Log lock held. What is before the seal was applied. */
static void end_replace(struct sc_store *store)
{
    struct sc_store_journal *journal = &store->log.journal;
    const struct sc_store_record_seal *seal = &store->log.seal.record;
    journal->end.offset = seal->bytes;
    journal->end.sequence = seal->sequence;
    journal->end.chain = seal->chain;
    journal->end.resets = (uint16_t)seal->resets;
    journal->end.is_old = false;
    journal->file_end = journal->synced_end = journal->kept_bytes = seal->bytes;
    journal->head = seal->head;
    journal->pieces_read = seal->pieces;
    journal->is_short = false;
    sc_store_journal_undamaged(journal);
    atomic_store(&store->counts.log_bytes, seal->bytes);
}

spec_status sc_store_seal_pass(struct sc_store *store, bool *ret_again, struct spec_error *reterr)
{
    struct sc_store_seal *seal = &store->log.seal;
    struct sc_io_file *file = NULL;
    spec_status status = sc_store_seal_name(store, reterr);
    if (status == SPEC_OK)
        status = next_open(store, &file, ret_again, reterr);
    if (status != SPEC_OK)
        return status;
    store->follow.calls->sealed(store);
    pthread_mutex_lock(&store->log.lock);
    struct sc_io_file *old = file_replace(store, file);
    if (!*ret_again)
        end_replace(store);
    pthread_mutex_unlock(&store->log.lock);
    if (old != NULL)
        sc_io_file_close(store->io, old);
    store->follow.bytes_seen = store->follow.refused_bytes = 0;
    store->follow.frame_offset = store->follow.frame_checksum = 0;
    seal->is_set = false;
    seal->passed++;
    return SPEC_OK;
}
