/* Contract: store/log/seal.h.
 *
 * A name is used once: it has the number of the checkpoint, which the next log's head has too, and
 * the place of the member that writes it. So a process that was stopped, and renames late, finds
 * nothing to rename. A member goes on behind a seal only after it made sure of the rename.
 *
 * Invariants: a seal is appended only when its file is complete and synced. The renamed file is
 * known by the checksum of its first frame. */
#include "store/log/seal.h"
#include "store/internal.h"
#include "store/log/identity.h"
#include "store/log/log_swap.h"

#include <errno.h>
#include <stdio.h>

spec_status sc_store_seal_first(struct sc_store *store, struct sc_io_file *file,
                                uint64_t *ret_first, struct spec_error *reterr)
{
    uint8_t frame[SC_STORE_FRAME_BYTES];
    spec_status status = sc_io_file_pread(store->io, file, frame, sizeof(frame), 0, reterr);
    *ret_first = status == SPEC_OK ? sc_store_frame_chain(frame) : 0;
    return status;
}

/* Fills in what a seal says of a new log, except its head and pieces. */
static spec_status seal_make(struct sc_store *store, struct sc_io_file *file,
                             const struct sc_store_log_end *end,
                             struct sc_store_record_seal *ret_seal, struct spec_error *reterr)
{
    *ret_seal = (struct sc_store_record_seal){.place = store->member_place,
                                              .bytes = end->offset,
                                              .sequence = end->sequence,
                                              .chain = end->chain,
                                              .resets = end->resets};
    return sc_store_seal_first(store, file, &ret_seal->first, reterr);
}

spec_status sc_store_seal_append(struct sc_store *store, struct sc_io_file *file,
                                 const struct sc_store_log_end *end, uint64_t pieces,
                                 const struct sc_store_record_head *head, struct spec_error *reterr)
{
    struct sc_store_record_seal seal;
    struct sc_store_append append;
    spec_status status = seal_make(store, file, end, &seal, reterr);
    if (status != SPEC_OK)
        return status;
    seal.pieces = pieces;
    seal.head = *head;
    sc_store_append_begin(store, &append);
    sc_store_append_frame(&append);
    sc_store_record_encode_seal(&append.writer, &seal);
    status = sc_store_append_commit(store, &append, reterr);
    if (status != SPEC_OK)
        return status;
    store->log.seal.record = seal;
    store->log.seal.is_set = true; /* until the swap: if that fails, reading on does it */
    return SPEC_OK;
}

spec_status sc_store_seal_name(struct sc_store *store, struct spec_error *reterr)
{
    const struct sc_store_record_seal *seal = &store->log.seal.record;
    char from[SC_LIMIT_PATH_BYTES + 64], to[SC_LIMIT_PATH_BYTES + 64];
    struct spec_error error = {.struct_size = sizeof(error)};
    sc_store_log_new_path(store, seal->head.number, seal->place, from);
    (void)snprintf(to, sizeof(to), "%s/log", store->dir);
    spec_status status = sc_store_is_ours(store, reterr);
    if (status != SPEC_OK)
        return status;
    status = sc_io_rename(store->io, from, to, &error);
    return status == SPEC_OK || error.sys_errno == ENOENT
               ? SPEC_OK
               : sc_fail_errno(reterr, status, error.sys_errno, "%s", error.text);
}

void sc_store_seal_old_close(struct sc_store *store)
{
    if (store->log.seal.old != NULL)
        sc_io_file_close(store->io, store->log.seal.old);
    store->log.seal.old = NULL;
    store->log.seal.keeps_old = false;
}

void sc_store_seal_over(struct sc_store *store, const char *why)
{
    if (store->log.seal.is_over)
        return;
    SC_LOG(store->params.log, SPEC_LOG_WARN,
           "%s: this process stores nothing more until it is opened again, and reads: %s",
           store->dir, why);
    store->log.seal.is_over = true;
    atomic_store(&store->keeps_space, false);
    atomic_store(&store->can_store, false);
    pthread_mutex_lock(&store->disk.lock);
    if (store->disk.segment_max < SC_STORE_FOLLOWED_SEGMENTS)  /* the table has room */
        store->disk.segment_max = SC_STORE_FOLLOWED_SEGMENTS;  /* as a reader's */
    for (uint64_t i = 0; i < store->disk.segment_count; i++) { /* others place rows there */
        struct sc_store_segment *segment = &store->disk.segments[i];
        if (segment->state == SC_STORE_SEGMENT_READY && segment->is_claimed && segment->users == 0)
            sc_io_file_unclaim(store->io, segment->file);
        segment->is_claimed = segment->is_claimed && segment->users > 0;
    }
    pthread_mutex_unlock(&store->disk.lock);
    pthread_mutex_lock(&store->log.lock);
    store->log.is_broken = store->log.is_beaten = true;
    pthread_mutex_unlock(&store->log.lock);
}
