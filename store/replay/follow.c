/* follow: applies a log that another process appends to, for a reader or a peer.
 *
 *   log   [accepted frames, applied][new frames][partial frame]
 *                                   ^ journal.end             ^ size, polled
 *
 * Each call polls the size, reads new bytes through a window, and applies complete frames as replay
 * does. Behind a frame that is torn or lost its race, the next one is searched (log_gap.h). Where
 * something is missing, or nothing follows, the next call looks again, because a read may return
 * wrong bytes. Then damage is restored, or skipped, with its records; or it is the log's end. For a
 * frame still being appended, the restored one is the final one. The log is read again from its
 * start when its file was replaced (a checkpoint), or when the last accepted frame is missing (an
 * append failed and was overwritten). Records found again stay as they are; the others become void.
 *
 * Invariants: writes, creates, cuts and locks nothing. known_ns is read before the poll that finds
 * nothing new. So a later drop takes effect no sooner than a promise based on known_ns ends.
 * Limits: does not sleep or wait; calls nothing back with a lock held.
 * Threads: one at a time follows; sc_store_follow_ns: any. */
#include "store/replay/follow.h"
#include "store/internal.h"
#include "store/log/identity.h"
#include "store/log/log_gap.h"
#include "store/log/members.h"
#include "store/replay/replay.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define LOOKS_AT_OPEN 2u
#define LOOKS_MAX     64u /* that apply nothing, of a log that others append to */

/* ---- The file ------------------------------------------------------------------------------- */

static void log_restart(struct sc_store *store)
{
    struct sc_store_journal *journal = &store->log.journal;
    journal->end = sc_store_log_start(store);
    sc_store_journal_undamaged(journal);
    journal->head = (struct sc_store_record_head){0};
    store->follow.lacks_pages = store->follow.is_second = false;
    store->follow.frame_offset = store->follow.frame_checksum = store->follow.bytes_seen = 0;
    store->follow.searches_left = SC_STORE_SEARCHES_MAX;
    store->follow.refused_bytes = 0;
    store->follow.is_doubtful = false;
    store->log.seal.is_set = false;
    store->follow.calls->restart(store);
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
        store->follow.calls->forget(store);
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
    if (sc_store_members_join(store, NULL) == SPEC_E_LOCKED)
        sc_store_heir_end(store, "16 other processes store here, or may, and no more can");
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
    bool is_there = file_bytes >= journal->end.offset;
    /* Beside members nobody takes an append back. */
    *ret_holds = is_there && (store->follow.frame_checksum == 0 || sc_store_appends_shared(store));
    if (*ret_holds || !is_there)
        return SPEC_OK;
    spec_status status = sc_io_file_pread(store->io, journal->file, frame, sizeof(frame),
                                          store->follow.frame_offset, reterr);
    *ret_holds = status == SPEC_OK && sc_store_frame_chain(frame) == store->follow.frame_checksum;
    return status;
}

static spec_status record_apply(struct sc_store *store, const struct sc_store_frame *frame,
                                struct spec_error *reterr)
{
    struct sc_store_journal *journal = &store->log.journal;
    const struct sc_store_payload payload = {
        .at = frame->payload, .bytes = frame->payload_bytes, .gap = journal->gap};
    spec_status status = store->follow.calls->apply(store, &payload, NULL, reterr);
    if (status == SPEC_OK)
        journal->gap = SC_STORE_GAP_NONE;
    return status;
}

/* For messages, and places of averages. */
static void end_offset_set(struct sc_store *store, uint64_t offset)
{
    pthread_mutex_lock(&store->log.lock);
    store->log.journal.end.offset = offset;
    pthread_mutex_unlock(&store->log.lock);
}

static void end_set(struct sc_store *store, const struct sc_store_log_end *end)
{
    pthread_mutex_lock(&store->log.lock); /* others ask how long the log is */
    store->log.journal.end = *end;
    pthread_mutex_unlock(&store->log.lock);
}

/* Applies the frames of a window that begins at the journal's end. *ret_at: in the file, behind the
 * last whole one. */
static spec_status window_apply(struct sc_store *store, uint64_t count, uint64_t *ret_at,
                                struct spec_error *reterr)
{
    struct sc_store_journal *journal = &store->log.journal;
    const uint64_t begin = journal->end.offset;
    struct sc_store_frame frame;
    for (uint64_t at = 0;; at += frame.bytes) {
        struct sc_store_log_end end = journal->end;
        enum sc_store_frame_state state =
            sc_store_frame_check(journal->buffer + at, count - at, begin + at, &end, &frame);
        *ret_at = begin + at;
        if (state == SC_STORE_FRAME_LOST)
            continue;
        if (state != SC_STORE_FRAME_OK)
            return SPEC_OK;
        end_offset_set(store, begin + at);
        spec_status status = record_apply(store, &frame, reterr);
        if (status != SPEC_OK)
            return status;
        store->follow.frame_offset = begin + at;
        store->follow.frame_checksum = end.chain;
        end_set(store, &end);
        if (store->log.seal.is_set && sc_store_appends_shared(store)) {
            *ret_at = end.offset; /* nothing behind a seal is believed */
            return SPEC_OK;
        }
    }
}

/* Applies a damaged frame at `at` that was restored. */
static spec_status restored_apply(struct sc_store *store, uint64_t at,
                                  const struct sc_store_frame *frame, struct spec_error *reterr)
{
    struct sc_store_journal *journal = &store->log.journal;
    uint8_t stored[SC_STORE_FRAME_BYTES];
    spec_status status =
        sc_io_file_pread(store->io, journal->file, stored, sizeof(stored), at, reterr);
    end_offset_set(store, at);
    if (status == SPEC_OK)
        status = record_apply(store, frame, reterr);
    if (status != SPEC_OK)
        return status;
    SC_LOG(store->params.log, 1, "%s/log: a damaged record at byte %" PRIu64 " was restored",
           store->dir, at);
    store->follow.frame_offset = at;
    store->follow.frame_checksum = sc_store_frame_chain(stored); /* as in the file */
    return SPEC_OK;
}

/* Goes on behind the frame at `at`, which is not believed. *ret_what NONE: it cannot yet, or this
 * is the log's end. */
static spec_status log_beyond(struct sc_store *store, uint64_t at, uint64_t file_bytes,
                              bool restores, enum sc_store_beyond *ret_what, bool *ret_torn,
                              struct spec_error *reterr)
{
    struct sc_store_journal *journal = &store->log.journal;
    struct sc_store_log_beyond beyond = {.restores = restores,
                                         .appends = sc_store_appends_shared(store),
                                         .is_spent = journal->damaged_count >= SC_STORE_DAMAGED_MAX,
                                         .searches_left = store->follow.searches_left};
    struct sc_store_log_end end = journal->end;
    spec_status status =
        sc_store_log_beyond(store, journal->file, at, file_bytes, &end, &beyond, ret_what, reterr);
    store->follow.searches_left = beyond.searches_left;
    store->follow.is_doubtful = beyond.is_doubtful;
    *ret_torn = beyond.appends && *ret_what == SC_STORE_BEYOND_NONE && !beyond.is_found;
    if (status == SPEC_OK && *ret_what == SC_STORE_BEYOND_RESTORED)
        status = restored_apply(store, at, &beyond.frame, reterr);
    sc_store_log_beyond_done(store, &beyond);
    if (status != SPEC_OK || *ret_what == SC_STORE_BEYOND_NONE)
        return status;
    if (*ret_what == SC_STORE_BEYOND_GAP) {
        SC_LOG(store->params.log, 1,
               "%s/log is damaged from byte %" PRIu64 " to %" PRIu64
               ": the records there are lost%s",
               store->dir, journal->end.offset, end.offset,
               beyond.gap == SC_STORE_GAP_RESETS ? ", and a reset may be among them" : "");
        sc_store_journal_gap(journal, beyond.gap, end.offset);
    }
    if (*ret_what != SC_STORE_BEYOND_NEXT) {
        sc_store_count(&store->counts.corrupt_records, 1);
        journal->damaged_count++; /* an heir that takes over rewrites it */
    }
    end_set(store, &end);
    return SPEC_OK;
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

static void known_set(struct sc_store *store, uint64_t wall_ns, uint64_t now_ns)
{
    atomic_store(&store->follow.known_ns, wall_ns);
    atomic_store(&store->follow.known_now_ns, now_ns);
}

/* Updates what is known after the whole log was applied. */
static void caught_up(struct sc_store *store, uint64_t wall_ns, uint64_t now_ns)
{
    store->follow.calls->caught_up(store);
    atomic_store(&store->counts.log_bytes, sc_store_appends_shared(store)
                                               ? store->log.journal.file_end
                                               : store->log.journal.end.offset);
    known_set(store, wall_ns, now_ns);
}

/* An append goes there. */
static void file_end_set(struct sc_store *store, uint64_t file_bytes)
{
    pthread_mutex_lock(&store->log.lock);
    store->log.journal.file_end = file_bytes;
    pthread_mutex_unlock(&store->log.lock);
}

/* Reads and applies at most a window after the last accepted frame. */
static spec_status log_read(struct sc_store *store, uint64_t wall_ns, uint64_t now_ns,
                            bool *ret_more, struct spec_error *reterr)
{
    struct sc_store_journal *journal = &store->log.journal;
    struct sc_store_follow *follow = &store->follow;
    uint64_t file_bytes, end = journal->end.offset;
    bool holds, is_torn = false;
    spec_status status = sc_io_file_size(store->io, journal->file, &file_bytes, reterr);
    if (status == SPEC_OK)
        status = frame_check_last(store, file_bytes, &holds, reterr);
    if (status == SPEC_OK && !holds && sc_store_appends_shared(store))
        status = sc_fail(reterr, SPEC_E_STALE, "%s/log was cut", store->dir);
    if (status != SPEC_OK)
        return status;
    if (!holds) {
        log_restart(store);
        *ret_more = true;
        return SPEC_OK;
    }
    bool is_cut = file_bytes - end > journal->buffer_bytes;
    uint64_t count = is_cut ? journal->buffer_bytes : file_bytes - end, at = end;
    if (count > 0)
        status = sc_io_file_pread(store->io, journal->file, journal->buffer, count, end, reterr);
    if (status == SPEC_OK && count > 0)
        status = window_apply(store, count, &at, reterr);
    if (status != SPEC_OK)
        return status;
    enum sc_store_beyond what = SC_STORE_BEYOND_NONE;
    bool is_still = file_bytes == follow->bytes_seen && journal->end.offset == follow->end_seen;
    bool stops = at < file_bytes && (!is_cut || journal->end.offset == end);
    if (stops && !(is_still && file_bytes == follow->refused_bytes)) {
        bool is_again =
            journal->end.offset == end && end == follow->end_seen && follow->bytes_seen > 0;
        status = log_beyond(store, at, file_bytes, is_again, &what, &is_torn, reterr);
        if (status != SPEC_OK)
            return status;
        bool is_refused = is_again && what == SC_STORE_BEYOND_NONE;
        follow->refused_bytes = is_refused ? file_bytes : 0; /* no search without a change */
    }
    follow->bytes_seen = file_bytes;
    follow->end_seen = journal->end.offset;
    *ret_more = what != SC_STORE_BEYOND_NONE || (is_cut && journal->end.offset > end);
    if (what == SC_STORE_BEYOND_NONE &&
        (at == file_bytes || is_torn || (stops && is_still && !follow->is_doubtful))) {
        if (sc_store_appends_shared(store))
            file_end_set(store, file_bytes);
        caught_up(store, wall_ns, now_ns);
        bool is_again = sc_store_follow_again(store);
        if (is_again && sc_store_appends_shared(store))
            file_end_set(store, 0); /* it is not at the end */
        *ret_more = is_again || *ret_more;
        follow->is_at_end = at == file_bytes && !*ret_more;
    }
    return SPEC_OK;
}

/* ---- Rows ----------------------------------------------------------------------------------- */

static void rows_restart(struct sc_store *store)
{
    store->follow.rereads = store->replay->generation > 0;
    if (store->replay->extent_open != 0)
        sc_store_extent_unplace(store, store->replay->extent_open);
    sc_store_replay_restart(store);
    if (sc_store_keeps_space(store))
        sc_store_replay_places_forget(store);
}

static void rows_caught_up(struct sc_store *store)
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
}

static void rows_sealed(struct sc_store *store)
{
    sc_store_replay_extent_end(store);
    sc_store_replay_places_forget(store);
}

/* What is before an append of our own is complete. */
static void rows_appended(struct sc_store *store)
{
    struct sc_store_replay *replay = store->replay;
    if (replay->extent_open == 0)
        return;
    store->log.turn.extent_ended = replay->extent_open;
    replay->extent_open = replay->left_open = replay->late_open = 0;
}

static const struct sc_store_follow_calls rows = {.open = sc_store_replay_open,
                                                  .restart = rows_restart,
                                                  .apply = sc_store_replay_record,
                                                  .caught_up = rows_caught_up,
                                                  .sealed = rows_sealed,
                                                  .forget = sc_store_replay_forget,
                                                  .appended = rows_appended};

/* ---- Interface ------------------------------------------------------------------------------ */

spec_status sc_store_follow_open(struct sc_store *store, struct spec_error *reterr)
{
    return sc_store_follow_open_as(store, &rows, reterr);
}

spec_status sc_store_follow_open_as(struct sc_store *store,
                                    const struct sc_store_follow_calls *calls,
                                    struct spec_error *reterr)
{
    struct sc_store_journal *journal = &store->log.journal;
    bool is_reader = store->params.role == SC_STORE_READER, more = true;
    if (is_reader) { /* an heir has its table, a peer none */
        store->disk.segment_max = SC_STORE_FOLLOWED_SEGMENTS;
        store->disk.segments = sc_alloc_array(store->params.alloc, store->disk.segment_max,
                                              sizeof(*store->disk.segments));
    }
    store->follow.calls = calls;
    journal->buffer_bytes = SC_STORE_WINDOW_BYTES;
    journal->buffer = sc_alloc(store->params.alloc, journal->buffer_bytes);
    if ((is_reader && store->disk.segments == NULL) || journal->buffer == NULL)
        return sc_fail(reterr, SPEC_E_NO_MEMORY, "following a log");
    spec_status status = calls->open(store, reterr);
    /* Behind a torn append the log's end is known at the second look. */
    for (uint32_t look = 0; look < LOOKS_AT_OPEN && sc_store_follow_ns(store) == 0; look++) {
        more = true;
        while (status == SPEC_OK && more)
            status = sc_store_follow(store, &more, reterr);
    }
    return status;
}

/* Nothing was appended since, and no seal waits. */
static spec_status is_at_end(struct sc_store *store, bool *ret_is, struct spec_error *reterr)
{
    uint64_t bytes = 0;
    spec_status status = sc_io_file_size(store->io, store->log.journal.file, &bytes, reterr);
    *ret_is = status == SPEC_OK && bytes == store->log.journal.file_end && !store->log.seal.is_set;
    return status;
}

/* Returns true if the error means that this process must not append any more. */
static bool is_final(spec_status status)
{
    return status == SPEC_E_STALE || status == SPEC_E_VERSION;
}

/* Until the log was read, no page is given: some of those that look free are not. */
static void places_hold(struct sc_store *store, uint64_t until_ns)
{
    pthread_mutex_lock(&store->disk.lock);
    store->disk.retry_ns = until_ns;
    pthread_mutex_unlock(&store->disk.lock);
}

/* Goes on behind a seal; or, where more than one log was missed, because this process was stopped,
 * at the start of the present one. */
static spec_status next_log(struct sc_store *store, struct spec_error *reterr)
{
    bool is_again = false;
    spec_status status = sc_store_seal_pass(store, &is_again, reterr);
    if (status != SPEC_OK || !is_again)
        return status;
    places_hold(store, UINT64_MAX);
    file_end_set(store, 0);
    log_restart(store);
    store->follow.holds_places = true;
    return SPEC_OK;
}

/* Reads on to the log's end, and into the next file behind a seal. Turn held. */
static spec_status read_on(struct sc_store *store, struct spec_error *reterr)
{
    struct spec_error error = {.struct_size = sizeof(error)};
    bool is_end = false, more;
    spec_status status = is_at_end(store, &is_end, &error);
    store->log.turn.is_reading = true;
    for (uint32_t looks = 0; status == SPEC_OK && !is_end && !store->log.seal.is_over; looks++) {
        uint64_t end = store->log.journal.end.offset;
        uint64_t wall_ns = sc_exec_wall_ns(store->params.exec);
        status = log_read(store, wall_ns, sc_exec_now_ns(store->params.exec), &more, &error);
        if (status == SPEC_OK && store->log.seal.is_set)
            status = next_log(store, &error);
        if (status == SPEC_OK)
            status = is_at_end(store, &is_end, &error);
        looks = store->log.journal.end.offset != end ? 0 : looks;
        if (status == SPEC_OK && looks > LOOKS_MAX)
            status = sc_fail(&error, SPEC_E_IO, "%s/log cannot be read to its end", store->dir);
    }
    store->log.turn.is_reading = false;
    if (status == SPEC_OK)
        store->log.turn.has_torn = false;
    if (status == SPEC_OK && store->follow.holds_places) {
        store->follow.holds_places = false; /* pages of void pieces were not kept for leases */
        places_hold(store,
                    sc_exec_now_ns(store->params.exec) +
                        (store->follow.forgot_ns > 0 ? store->params.config->lease_ns_max : 0));
        store->follow.forgot_ns = 0;
    }
    if (is_final(status))
        sc_store_seal_over(store, error.text);
    return status == SPEC_OK ? status
                             : sc_fail_errno(reterr, status, error.sys_errno, "%s", error.text);
}

/* The same at every tick. An idle one also renews what is known. */
static spec_status member_follow(struct sc_store *store, struct spec_error *reterr)
{
    char path[SC_LIMIT_PATH_BYTES + 64];
    bool is_same = false, is_passed = true;
    uint64_t wall_ns = 0, now_ns = 0;
    spec_status status = SPEC_OK;
    store->follow.is_at_end = false;
    (void)snprintf(path, sizeof(path), "%s/log", store->dir);
    while (status == SPEC_OK && !is_same && is_passed) {
        uint64_t passed = store->log.seal.passed;
        wall_ns = sc_exec_wall_ns(store->params.exec);
        now_ns = sc_exec_now_ns(store->params.exec);
        status = sc_io_file_same(store->io, store->log.journal.file, path, &is_same, reterr);
        if (status == SPEC_OK)
            status = read_on(store, reterr); /* the log was sealed before it was replaced */
        is_passed = store->log.seal.passed != passed;
    }
    if (status == SPEC_OK && !is_same) {
        sc_store_seal_over(store, "its log was replaced, and no record says so");
        return sc_fail(reterr, SPEC_E_STALE, "%s is not the log that was followed", path);
    }
    if (status == SPEC_OK)
        caught_up(store, wall_ns, now_ns);
    store->follow.is_at_end = status == SPEC_OK;
    return status;
}

/* Log lock held. */
static void on_appended(struct sc_store *store)
{
    store->follow.bytes_seen = 0;
    store->follow.calls->appended(store);
}

static void on_extent_appended(struct sc_store *store, uint64_t extent_next, uint64_t piece_next)
{
    store->replay->extent_next = extent_next;
    store->replay->piece_next = piece_next;
}

static void on_space_appended(struct sc_store *store, uint64_t space)
{
    struct sc_store_replay *replay = store->replay;
    replay->space_next = space + 1;
    replay->space_count++;
    replay->space_own = replay->space_own == 0 ? space : replay->space_own;
}

/* Frees rows without a piece, of an extent that ended before our own append. */
static void on_end(struct sc_store *store)
{
    uint64_t extent = store->log.turn.extent_ended;
    store->log.turn.extent_ended = 0;
    if (extent != 0)
        sc_store_extent_trim(store, extent);
}

void sc_store_follow_members(struct sc_store *store)
{
    static const struct sc_store_turn_calls calls = {.read_on = read_on,
                                                     .appended = on_appended,
                                                     .extent_appended = on_extent_appended,
                                                     .space_appended = on_space_appended,
                                                     .ends = on_end};
    store->turn_calls = &calls;
}

static spec_status follow(struct sc_store *store, bool *ret_more, struct spec_error *reterr)
{
    bool is_open = false;
    store->follow.is_at_end = false;
    uint64_t wall_ns = sc_exec_wall_ns(store->params.exec);
    uint64_t now_ns = sc_exec_now_ns(store->params.exec);
    spec_status status = log_open(store, &is_open, reterr);
    if (status == SPEC_OK && is_open)
        status = log_read(store, wall_ns, now_ns, ret_more, reterr);
    store->follow.is_over = status == SPEC_E_VERSION;
    return status;
}

/* False also renews what is known: it was read before the stamp. */
static bool is_due(struct sc_store *store)
{
    uint64_t wall_ns = sc_exec_wall_ns(store->params.exec);
    uint64_t now_ns = sc_exec_now_ns(store->params.exec);
    if (store->log.journal.file == NULL)
        return true;
    uint64_t stamp = sc_store_watch_stamp(store->io, store->dir, "log");
    if (sc_store_watch_due(&store->follow.watch, stamp))
        store->follow.is_at_end = false; /* until it was read */
    if (!store->follow.is_at_end)
        return true;
    known_set(store, wall_ns, now_ns);
    return false;
}

bool sc_store_follow_due(struct sc_store *store)
{
    if (!sc_store_follows(store) || store->follow.is_over)
        return true;
    if (!sc_store_is_member(store))
        return is_due(store);
    pthread_mutex_lock(&store->log.turn.lock);
    bool is = is_due(store);
    pthread_mutex_unlock(&store->log.turn.lock);
    return is;
}

spec_status sc_store_follow(struct sc_store *store, bool *ret_more, struct spec_error *reterr)
{
    *ret_more = false;
    if (!sc_store_follows(store) || store->follow.is_over)
        return SPEC_OK;
    if (!sc_store_is_member(store))
        return follow(store, ret_more, reterr);
    pthread_mutex_lock(&store->log.turn.lock);
    spec_status status;
    if (sc_store_appends_shared(store)) {
        status = member_follow(store, reterr);
    } else {
        store->log.turn.is_reading = true;
        status = follow(store, ret_more, reterr);
        store->log.turn.is_reading = false;
    }
    pthread_mutex_unlock(&store->log.turn.lock);
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
    if (sc_store_is_member(store) && sc_store_can_store(store))
        return true;
    if (sc_store_follows(store))
        return false;
    pthread_mutex_lock(&store->log.lock); /* a checkpoint replaces the file */
    bool is_followed = sc_io_file_is_shared(store->io, store->log.journal.file);
    pthread_mutex_unlock(&store->log.lock);
    return is_followed;
}
