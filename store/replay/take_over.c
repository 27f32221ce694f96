/* take_over: an heir becomes the rank's writer when nobody holds the writer's lock any more.
 *
 *   lock -> log, read to its end -> segments -> log, for appending -> ids -> drops without a record
 *        -> can_store
 *
 * The heir has applied every record to its table and space map, as a writer's open does; so nothing
 * is read again. Requests go on meanwhile.
 *
 * Invariants: nothing on disk changes before all checks are done. A failure gives the lock back,
 * and the heir stays a reader.
 * Threads: the thread that follows; loads and lookups run beside it.
 * Tests: tests/unit/store/test_take_over.c, tests/fault/test_processes.c */
#include "store/log/hints.h"
#include "store/log/identity.h"
#include "store/log/log_swap.h"
#include "store/replay/checkpoint.h"
#include "store/replay/replay.h"
#include "store/space/claims.h"

#include <stdio.h>

#define LOOKS_AGAIN 3u  /* a damaged frame is restored at the second look */
#define ASKS_OF_ONE 10u /* with one descriptor: then the file is opened again, by its name */

/* The log was one writer's: other members would not find the segments. */
static bool is_untold(const struct sc_store *store)
{
    bool untold = store->disk.limit_told == 0;
    for (uint64_t i = 0; i < store->disk.segment_count; i++)
        untold = untold || !store->disk.segments[i].is_told;
    return untold;
}

/* A member takes over from one writer: alone, until the log tells of everything. LOCKED: other
 * members are here, and do it. */
static spec_status alone_begin(struct sc_store *store, bool *ret_alone, struct spec_error *reterr)
{
    *ret_alone = sc_store_is_member(store) && is_untold(store);
    if (!*ret_alone)
        return SPEC_OK;
    spec_status status = sc_io_file_lock(store->io, store->lock_file, reterr);
    return status == SPEC_OK ? sc_store_segments_take_over(store, reterr) : status;
}

static void alone_end(struct sc_store *store)
{
    struct spec_error error = {.struct_size = sizeof(error)};
    spec_status status = sc_store_checkpoint(store, &error); /* it lists the segments */
    if (status == SPEC_OK)
        status = sc_io_file_lock_shared(store->io, store->lock_file, &error);
    if (status != SPEC_OK)
        sc_store_seal_over(store, error.text);
}

/* Asks who has the lock of the file that the last try left open: one call, as long as a writer
 * lives. "Nobody" is no answer: the lock has to be taken. */
static bool is_locked_still(struct sc_store *store)
{
    if (store->lock_file == NULL)
        return false;
    if (++store->follow.lock_asks < ASKS_OF_ONE &&
        sc_io_file_is_shared(store->io, store->lock_file))
        return true;
    sc_io_file_close(store->io, store->lock_file);
    store->lock_file = NULL;
    return false;
}

/* LOCKED: another process writes, or may write. */
static spec_status lock_take(struct sc_store *store, struct spec_error *reterr)
{
    char path[SC_LIMIT_PATH_BYTES + 64];
    struct spec_error error = {.struct_size = sizeof(error)};
    if (is_locked_still(store))
        return sc_fail(reterr, SPEC_E_LOCKED, "%s: another process stores here", store->dir);
    (void)snprintf(path, sizeof(path), "%s/lock", store->dir);
    spec_status status =
        sc_io_file_open(store->io, path, SC_IO_OPEN_WRITE, &store->lock_file, &error);
    if (status == SPEC_OK && sc_store_is_member(store))
        status = sc_io_file_lock_shared(store->io, store->lock_file, &error);
    else if (status == SPEC_OK)
        status = sc_io_file_lock(store->io, store->lock_file, &error);
    if (status == SPEC_OK)
        return SPEC_OK;
    store->follow.lock_asks = 0;
    bool asks = status == SPEC_E_LOCKED && !sc_store_is_member(store);
    if (store->lock_file != NULL && !asks) {
        sc_io_file_close(store->io, store->lock_file);
        store->lock_file = NULL;
    }
    /* Also if nobody can be asked now: the directory is being made, or a descriptor is lacking. */
    return sc_fail_errno(reterr, SPEC_E_LOCKED, error.sys_errno, "%s", error.text);
}

/* Another model's writer dropped all of ours, and a checkpoint left out our namespace: the next
 * commit names it again. */
static void space_leave(struct sc_store *store)
{
    struct sc_store_spaces *spaces = &store->log.spaces;
    pthread_mutex_lock(&store->log.lock);
    struct sc_store_shape *shape = sc_store_space_find(spaces, atomic_load(&store->log.space_id));
    if (shape != NULL && store->replay->space_own == 0) {
        shape->is_left_out = true;
        spaces->record_count--;
        spaces->record_bytes -= shape->record_bytes;
        atomic_store(&store->log.space_id, 0);
    }
    pthread_mutex_unlock(&store->log.lock);
}

/* The log was sealed: its next file may have its first name still, if everybody else died. */
static spec_status seal_pass(struct sc_store *store, struct spec_error *reterr)
{
    bool is_again = false;
    pthread_mutex_lock(&store->log.turn.lock);
    spec_status status =
        store->log.seal.is_set ? sc_store_seal_pass(store, &is_again, reterr) : SPEC_OK;
    pthread_mutex_unlock(&store->log.turn.lock);
    return status == SPEC_OK && is_again
               ? sc_fail(reterr, SPEC_E_LOCKED, "%s/log is written anew all the time", store->dir)
               : status;
}

/* Nobody appends any more; or all do so beside each other, and reading goes on behind what is read
 * here. */
static spec_status log_read(struct sc_store *store, struct spec_error *reterr)
{
    struct sc_store_journal *journal = &store->log.journal;
    uint64_t end;
    do {
        end = journal->end.offset;
        for (uint32_t looks = 0; looks < LOOKS_AGAIN; looks++)
            for (bool more = true; more;) {
                spec_status status = sc_store_follow(store, &more, reterr);
                if (status != SPEC_OK)
                    return status;
            }
        if (journal->file == NULL || store->follow.is_over || store->follow.is_doubtful)
            return sc_fail(reterr, SPEC_E_STALE, "%s/log cannot be read%s", store->dir,
                           store->follow.is_doubtful ? ": a reset may be lost at its end" : "");
        if (sc_store_is_member(store) && store->log.seal.is_set) {
            spec_status status = seal_pass(store, reterr);
            if (status != SPEC_OK)
                return status;
        }
        if (journal->end.offset == end)
            sc_store_follow_end(store);
    } while (journal->end.offset != end || sc_store_follow_again(store));
    if (!sc_store_keeps_space(store) || (store->replay != NULL && store->replay->piece_base != 0))
        return sc_fail(reterr, SPEC_E_STALE, "%s/log is not the one that was followed", store->dir);
    if (!sc_store_is_member(store)) {
        sc_store_replay_extent_end(store);
        space_leave(store);
    }
    return sc_store_is_ours(store, reterr);
}

/* Opens the log for appending, behind what is not believed. */
static spec_status log_take(struct sc_store *store, struct spec_error *reterr)
{
    struct sc_store_journal *journal = &store->log.journal;
    char path[SC_LIMIT_PATH_BYTES + 64];
    struct sc_io_file *file = NULL;
    bool is_same = false;
    (void)snprintf(path, sizeof(path), "%s/log", store->dir);
    spec_status status = sc_io_file_same(store->io, journal->file, path, &is_same, reterr);
    if (status == SPEC_OK && !is_same)
        status = sc_fail(reterr, SPEC_E_STALE, "%s was replaced", path);
    if (status == SPEC_OK)
        status =
            sc_io_file_open(store->io, path, SC_IO_OPEN_WRITE | SC_IO_OPEN_APPEND, &file, reterr);
    if (status == SPEC_OK && !sc_store_is_member(store))
        status = sc_io_file_size(store->io, file, &journal->file_end, reterr);
    else if (status == SPEC_OK)
        journal->file_end = journal->end.offset; /* what is behind it is read before an append */
    if (status != SPEC_OK) {
        if (file != NULL)
            sc_io_file_close(store->io, file);
        return status;
    }
    pthread_mutex_lock(&store->log.lock);
    struct sc_io_file *followed = journal->file;
    journal->file = file;
    atomic_store(&store->counts.log_bytes, journal->file_end);
    if (store->replay != NULL)
        status = sc_store_replay_begin_log(store, reterr);
    pthread_mutex_unlock(&store->log.lock);
    sc_io_file_close(store->io, followed);
    return status;
}

spec_status sc_store_take_over_log(struct sc_store *store, struct spec_error *reterr)
{
    spec_status status = log_read(store, reterr);
    return status == SPEC_OK ? log_take(store, reterr) : status;
}

/* Pieces that are void here and lack a drop record: refused ones, and those whose rows failed in
 * this reader. Reserves room for the records of refused pieces. */
static uint64_t refused_reserve(struct sc_store *store)
{
    const struct sc_store_table *table = &store->table;
    uint64_t count = 0;
    for (uint64_t id = 1; (id = sc_store_table_piece_from(table, id)) < table->piece_next; id++)
        count += atomic_load(&sc_store_table_piece(table, id)->state) == SC_STORE_PIECE_REFUSED;
    pthread_mutex_lock(&store->disk.lock);
    store->share.reserved += count * SC_STORE_DROP_BYTES;
    pthread_mutex_unlock(&store->disk.lock);
    return count;
}

/* Log lock held, under which pieces become void: lists those without a record. */
static void unwritten_list(struct sc_store *store)
{
    const struct sc_store_table *table = &store->table;
    for (uint64_t id = 1; (id = sc_store_table_piece_from(table, id)) < table->piece_next; id++) {
        struct sc_store_piece_entry *piece = sc_store_table_piece(table, id);
        uint32_t state = atomic_load(&piece->state);
        if (state != SC_STORE_PIECE_REFUSED &&
            (state != SC_STORE_PIECE_DROPPED || piece->extent == 0))
            continue;
        atomic_store(&piece->state, SC_STORE_PIECE_DROPPED);
        piece->next = store->log.unwritten;
        store->log.unwritten = (uint32_t)id;
    }
}

static void begin_writing(struct sc_store *store)
{
    uint64_t refused = refused_reserve(store);
    sc_store_count(&store->counts.corrupt_records, refused);
    pthread_mutex_lock(&store->disk.lock);
    sc_store_reserve_open(store);
    store->disk.segment_max = store->disk.space.segment_max;
    if (store->follow.forgot_ns > 0) /* quarantined pieces held no pages since then */
        store->disk.retry_ns = store->follow.forgot_ns + store->params.config->lease_ns_max;
    pthread_mutex_unlock(&store->disk.lock);
    pthread_mutex_lock(&store->log.lock);
    unwritten_list(store);
    atomic_store_explicit(&store->can_store, true, memory_order_release);
    pthread_mutex_unlock(&store->log.lock);
    sc_store_pieces_drop(store, NULL, 0); /* writes some of the records; later drops the rest */
    if (sc_store_is_member(store)) {
        sc_store_hints_open(store);
        sc_store_claims_tick(store);
        return;
    }
    sc_store_replay_shorten(store);
    sc_store_replay_close(store);
}

spec_status sc_store_take_over(struct sc_store *store, struct spec_error *reterr)
{
    struct spec_error error = {.struct_size = sizeof(error)};
    if (store->params.role != SC_STORE_HEIR || sc_store_can_store(store) ||
        !sc_store_keeps_space(store))
        return sc_fail(reterr, SPEC_E_UNSUPPORTED, "%s: this store does not take over", store->dir);
    bool is_alone = false;
    spec_status status = lock_take(store, reterr);
    if (status != SPEC_OK)
        return status;
    status = log_read(store, &error);
    (void)sc_store_quarantine_release(store, sc_exec_now_ns(store->params.exec));
    if (status == SPEC_OK && !sc_store_is_member(store))
        status = sc_store_segments_take_over(store, &error);
    else if (status == SPEC_OK)
        status = alone_begin(store, &is_alone, &error);
    if (status == SPEC_E_LOCKED) { /* until they have */
        sc_io_file_close(store->io, store->lock_file);
        store->lock_file = NULL;
        return sc_fail_errno(reterr, status, error.sys_errno, "%s", error.text);
    }
    if (status == SPEC_OK)
        status = sc_store_notify_open(store, &error);
    if (status == SPEC_OK)
        status = sc_store_identity_upgrade(store, &error);
    if (status == SPEC_OK)
        status = log_take(store, &error);
    if (status == SPEC_OK && sc_store_is_member(store) && store->members == NULL)
        status = sc_fail(&error, SPEC_E_LOCKED, "16 processes store here, and no more can");
    if (status != SPEC_OK) {
        sc_store_heir_end(store, error.text);
        sc_io_file_close(store->io, store->lock_file);
        store->lock_file = NULL;
        return sc_fail_errno(reterr, status, error.sys_errno, "%s", error.text);
    }
    sc_store_write_budget_take_over(store);
    if (!sc_store_is_member(store)) {
        sc_store_log_new_remove_all(store);
        sc_store_write_budget_file_remove(store);
    }
    begin_writing(store);
    if (is_alone)
        alone_end(store);
    return SPEC_OK;
}
