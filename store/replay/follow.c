/* follow: applies a log that another process appends to, for a reader or a peer.
 *
 *   log   [accepted frames, applied][new frames][partial frame]
 *                                   ^ journal.end             ^ size, polled
 *
 * Each call polls the size, reads new bytes through a window, and applies complete frames as replay
 * does. A frame that is incomplete or fails its checksum is checked again by the next call. If it
 * is still incomplete then and the log has not grown, its writer has crashed, and it is the end.
 * (One check is not enough: a read may return a wrong length.) A damaged frame is restored at the
 * second check, if possible (store/log/frame_recover.c); for a frame still being appended the
 * result is the final frame. The log is read again from its start when its file was replaced (a
 * checkpoint), or when accepted frames are missing (a failed append was cut off and written over).
 * Records found again stay as they are; the others become void.
 *
 * Invariants: writes, creates, cuts and locks nothing. known_ns is read before the poll that finds
 * nothing new. So a later drop takes effect no sooner than a promise based on known_ns ends.
 * Limits: does not sleep or wait; calls nothing back with a lock held.
 * Threads: one at a time follows; sc_store_follow_ns: any. */
#include "store/replay/follow.h"
#include "store/internal.h"
#include "store/log/identity.h"
#include "store/replay/replay.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* ---- The file ------------------------------------------------------------------------------- */

static void log_restart(struct sc_store *store)
{
    struct sc_store_journal *journal = &store->log.journal;
    journal->end = journal->sequence = journal->damaged_count = 0;
    journal->chain =
        sc_store_frame_seed(store->store_id, store->params.rank, store->params.rank_count);
    journal->head = (struct sc_store_record_head){0};
    store->follow.rereads = store->replay->generation > 0;
    store->follow.lacks_pages = store->follow.is_second = false;
    store->follow.frame_offset = store->follow.bytes_seen = 0;
    store->follow.searches_left = SC_STORE_SEARCHES_MAX;
    store->follow.refused_bytes = 0;
    if (store->replay->extent_open != 0)
        sc_store_extent_unplace(store, store->replay->extent_open);
    sc_store_replay_restart(store);
    if (sc_store_keeps_space(store))
        sc_store_replay_places_forget(store);
}

/* Reads the identity. Another store under the same path voids what is known. */
static spec_status identity_refresh(struct sc_store *store, bool *ret_found,
                                    struct spec_error *reterr)
{
    struct sc_store_identity identity = {0};
    spec_status status = sc_io_dir_check(store->io, store->params.config->path, reterr);
    if (status == SPEC_OK)
        status = sc_io_dir_check(store->io, store->dir, reterr);
    if (status == SPEC_OK)
        status = sc_store_identity_find(store, &identity, ret_found, reterr);
    if (status != SPEC_OK || !*ret_found)
        return status;
    if (store->follow.has_identity &&
        memcmp(identity.store_id, store->store_id, sizeof(store->store_id)) != 0)
        sc_store_replay_forget(store);
    store->follow.has_identity = true;
    return sc_store_identity_set(store, &identity, reterr);
}

/* Opens the log that is in place, unless it is open. *ret_open false: there is none. */
static spec_status log_open(struct sc_store *store, bool *ret_open, struct spec_error *reterr)
{
    char path[SC_LIMIT_PATH_BYTES + 64];
    struct sc_io_file *file;
    struct spec_error error = {.struct_size = sizeof(error)};
    bool is_same = false;
    *ret_open = false;
    (void)snprintf(path, sizeof(path), "%s/log", store->dir);
    if (store->log.journal.file != NULL) {
        spec_status status =
            sc_io_file_same(store->io, store->log.journal.file, path, &is_same, reterr);
        if (status != SPEC_OK || is_same) {
            *ret_open = is_same;
            return status;
        }
    }
    spec_status status = identity_refresh(store, ret_open, reterr);
    if (status != SPEC_OK || !*ret_open)
        return status;
    *ret_open = false;
    status = sc_io_file_open(store->io, path, 0, &file, &error);
    if (status != SPEC_OK)
        return error.sys_errno == ENOENT ? SPEC_OK : sc_fail(reterr, status, "%s", error.text);
    if (store->log.journal.file != NULL)
        sc_io_file_close(store->io, store->log.journal.file);
    store->log.journal.file = file;
    if (sc_store_reads_leased(store))
        sc_io_file_share(store->io, file); /* tells the writer that it is followed */
    log_restart(store);
    *ret_open = true;
    return SPEC_OK;
}

/* Checks that the last accepted frame is still in place: a failed append is cut off, and the next
 * one may be as long. */
static spec_status frame_check_last(struct sc_store *store, uint64_t file_bytes, bool *ret_holds,
                                    struct spec_error *reterr)
{
    const struct sc_store_journal *journal = &store->log.journal;
    uint8_t frame[SC_STORE_FRAME_BYTES];
    *ret_holds = journal->end == 0;
    if (*ret_holds || file_bytes < journal->end)
        return SPEC_OK;
    spec_status status = sc_io_file_pread(store->io, journal->file, frame, sizeof(frame),
                                          store->follow.frame_offset, reterr);
    *ret_holds = status == SPEC_OK && sc_store_frame_chain(frame) == store->follow.frame_checksum;
    return status;
}

/* Applies the window's complete frames. Returns the state of the first other one. */
static spec_status window_apply(struct sc_store *store, uint64_t count,
                                enum sc_store_frame_state *ret_state, struct spec_error *reterr)
{
    struct sc_store_journal *journal = &store->log.journal;
    uint64_t at = 0, frame_bytes;
    for (;;) {
        const uint8_t *frame = journal->buffer + at;
        uint64_t chain = journal->chain;
        *ret_state =
            sc_store_frame_check(frame, count - at, journal->sequence + 1, &chain, &frame_bytes);
        if (*ret_state != SC_STORE_FRAME_OK)
            return SPEC_OK;
        struct sc_store_payload payload = {.at = frame + SC_STORE_FRAME_BYTES,
                                           .bytes = frame_bytes - SC_STORE_FRAME_BYTES};
        spec_status status = sc_store_replay_record(store, &payload, NULL, reterr);
        if (status != SPEC_OK)
            return status;
        store->follow.frame_offset = journal->end;
        store->follow.frame_checksum = chain;
        journal->end += frame_bytes;
        journal->sequence++;
        journal->chain = chain;
        at += frame_bytes;
    }
}

/* Tries to restore the frame at the journal's end, the window's start, which the last call did not
 * accept either. *ret_found: it was restored and applied. */
static spec_status frame_restore(struct sc_store *store, uint64_t count, bool *ret_found,
                                 struct spec_error *reterr)
{
    struct sc_store_journal *journal = &store->log.journal;
    struct sc_store_follow *follow = &store->follow;
    struct sc_store_recovered found;
    uint8_t *scratch = sc_alloc(
        store->params.alloc, count < SC_STORE_FRAME_BYTES_MAX ? count : SC_STORE_FRAME_BYTES_MAX);
    if (scratch == NULL)
        return sc_fail(reterr, SPEC_E_NO_MEMORY, "a damaged frame of the log");
    spec_status status = SPEC_OK;
    *ret_found = sc_store_frame_recover(journal->buffer, count, journal->sequence + 1,
                                        journal->chain, scratch, &follow->searches_left, &found);
    if (*ret_found) {
        const struct sc_store_payload payload = {.at = found.payload,
                                                 .bytes = found.frame_bytes - SC_STORE_FRAME_BYTES};
        status = sc_store_replay_record(store, &payload, NULL, reterr);
    }
    if (*ret_found && status == SPEC_OK) {
        sc_store_count(&store->counts.corrupt_records, 1);
        journal->damaged_count++; /* an heir that takes over rewrites it */
        SC_LOG(store->params.log, 1, "%s/log: a damaged record at byte %" PRIu64 " was restored",
               store->dir, journal->end);
        follow->frame_offset = journal->end;
        follow->frame_checksum = sc_store_frame_chain(journal->buffer); /* as in the file */
        journal->end += found.frame_bytes;
        journal->sequence++;
        journal->chain = found.chain;
    }
    sc_alloc_free(store->params.alloc, scratch);
    return status;
}

bool sc_store_follow_again(struct sc_store *store)
{
    if (!store->follow.lacks_pages || !sc_store_keeps_space(store))
        return false;
    sc_store_pages_forget(store);
    log_restart(store);
    store->follow.forgot_ns = sc_exec_now_ns(store->params.exec);
    store->follow.is_second = true;
    return true;
}

/* Updates what is known after the whole log was applied. */
static void caught_up(struct sc_store *store, uint64_t wall_ns, uint64_t now_ns)
{
    const struct sc_store_record_head *head = &store->log.journal.head;
    struct sc_store_replay *replay = store->replay;
    struct sc_store_table *table = &store->table;
    if (store->follow.rereads) {
        store->follow.rereads = false;
        sc_store_replay_sweep(store, false);
    }
    /* Ids below the head's that are not in the log are void. */
    uint64_t next = replay->piece_base + head->piece_next;
    pthread_mutex_lock(&store->log.lock);
    if (next > table->piece_next && next <= SC_STORE_IDS)
        table->piece_next = next;
    pthread_mutex_unlock(&store->log.lock);
    if (replay->piece_next < head->piece_next)
        replay->piece_next = head->piece_next;
    if (replay->extent_next < head->extent_next)
        replay->extent_next = head->extent_next;
    atomic_store(&store->counts.log_bytes, store->log.journal.end);
    atomic_store(&store->follow.known_ns, wall_ns);
    atomic_store(&store->follow.known_now_ns, now_ns);
}

/* Reads and applies at most a window after the last accepted frame. */
static spec_status log_read(struct sc_store *store, uint64_t wall_ns, uint64_t now_ns,
                            bool *ret_more, struct spec_error *reterr)
{
    struct sc_store_journal *journal = &store->log.journal;
    struct sc_store_follow *follow = &store->follow;
    enum sc_store_frame_state state = SC_STORE_FRAME_SHORT;
    uint64_t file_bytes, end = journal->end;
    bool holds;
    spec_status status = sc_io_file_size(store->io, journal->file, &file_bytes, reterr);
    if (status == SPEC_OK)
        status = frame_check_last(store, file_bytes, &holds, reterr);
    if (status != SPEC_OK)
        return status;
    if (!holds) {
        log_restart(store);
        *ret_more = true;
        return SPEC_OK;
    }
    bool is_cut = file_bytes - end > journal->buffer_bytes;
    uint64_t count = is_cut ? journal->buffer_bytes : file_bytes - end;
    if (count > 0)
        status = sc_io_file_pread(store->io, journal->file, journal->buffer, count, end, reterr);
    if (status == SPEC_OK && count > 0)
        status = window_apply(store, count, &state, reterr);
    if (status != SPEC_OK)
        return status;
    bool is_whole = journal->end == file_bytes, is_restored = false;
    bool is_again = !is_whole && journal->end == end && end == follow->end_seen;
    follow->refused_bytes = journal->end > end ? 0 : follow->refused_bytes;
    if (is_again && follow->bytes_seen > 0 && file_bytes != follow->refused_bytes) {
        status = frame_restore(store, count, &is_restored, reterr);
        if (status != SPEC_OK)
            return status;
        follow->refused_bytes = is_restored ? 0 : file_bytes; /* no search without a change */
        is_whole = journal->end == file_bytes;
    }
    bool is_still = file_bytes == follow->bytes_seen && journal->end == follow->end_seen;
    follow->bytes_seen = file_bytes;
    follow->end_seen = journal->end;
    *ret_more = (is_cut || is_restored) && journal->end > end;
    if (is_whole || (state == SC_STORE_FRAME_SHORT && !is_cut && is_still)) {
        caught_up(store, wall_ns, now_ns);
        *ret_more = sc_store_follow_again(store) || *ret_more;
    }
    return SPEC_OK;
}

/* ---- Interface ------------------------------------------------------------------------------ */

spec_status sc_store_follow_open(struct sc_store *store, struct spec_error *reterr)
{
    struct sc_store_journal *journal = &store->log.journal;
    bool is_reader = store->params.role == SC_STORE_READER, more = true;
    if (is_reader) { /* an heir has its table, a peer none */
        store->disk.segment_max = SC_STORE_FOLLOWED_SEGMENTS;
        store->disk.segments = sc_alloc_array(store->params.alloc, store->disk.segment_max,
                                              sizeof(*store->disk.segments));
    }
    journal->buffer_bytes = SC_STORE_WINDOW_BYTES;
    journal->buffer = sc_alloc(store->params.alloc, journal->buffer_bytes);
    if ((is_reader && store->disk.segments == NULL) || journal->buffer == NULL)
        return sc_fail(reterr, SPEC_E_NO_MEMORY, "following a log");
    spec_status status = sc_store_replay_open(store, reterr);
    while (status == SPEC_OK && more)
        status = sc_store_follow(store, &more, reterr);
    return status;
}

spec_status sc_store_follow(struct sc_store *store, bool *ret_more, struct spec_error *reterr)
{
    bool is_open = false;
    *ret_more = false;
    if (!sc_store_follows(store) || store->follow.is_over)
        return SPEC_OK;
    uint64_t wall_ns = sc_exec_wall_ns(store->params.exec);
    uint64_t now_ns = sc_exec_now_ns(store->params.exec);
    spec_status status = log_open(store, &is_open, reterr);
    if (status == SPEC_OK && is_open)
        status = log_read(store, wall_ns, now_ns, ret_more, reterr);
    store->follow.is_over = status == SPEC_E_VERSION;
    return status;
}

void sc_store_follow_end(struct sc_store *store)
{
    caught_up(store, sc_exec_wall_ns(store->params.exec), sc_exec_now_ns(store->params.exec));
}

uint64_t sc_store_follow_ns(const struct sc_store *store)
{
    return atomic_load(&store->follow.known_ns);
}

uint64_t sc_store_follow_now_ns(const struct sc_store *store)
{
    return atomic_load(&store->follow.known_now_ns);
}

bool sc_store_is_followed(struct sc_store *store)
{
    if (sc_store_follows(store))
        return false;
    pthread_mutex_lock(&store->log.lock); /* a checkpoint replaces the file */
    bool is_followed = sc_io_file_is_shared(store->io, store->log.journal.file);
    pthread_mutex_unlock(&store->log.lock);
    return is_followed;
}
