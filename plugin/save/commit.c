/* commit: makes completely written saves durable and visible.
 *
 *   on_written (executor) -> saves without unresolved predecessor -> queue of commits
 *     -> one thread at a time takes from it; the others continue other work
 *     -> commit: what the index lacks; orphans and duplicates are discarded
 *     -> ticket: its part ends
 *
 * Invariants: all layers are written, then the record is appended, then the chunk is indexed. The
 * first complete copy wins among equals; rows of better provenance replace worse ones. Children of
 * inexact pieces are as inexact. A commit's prefix is pinned meanwhile. A save keeps its request's
 * tokens. Collisions with a stored prefix are dropped, without eviction.
 * Threads: executor; saves are taken by the host's.
 * Tests: conformance (abi_082_*, abi_083_*, abi_087_*), tests/unit/plugin/test_save.c */
#include "plugin/args/handle.h"
#include "plugin/args/provenance.h"
#include "plugin/connector.h"
#include "plugin/save/queue.h"
#include "plugin/save/save_recurrent.h"

#include <string.h>

static void commits_step(struct sc_task *task);

spec_status sc_plugin_saves_open(spec_connector *conn, struct spec_error *reterr)
{
    conn->saves.count = (uint64_t)conn->config.max_requests * 8 + SC_PLUGIN_PASS_SAVES;
    if (conn->states.count > 0)
        conn->saves.count += SC_PLUGIN_RECURRENT_EXTENTS;
    conn->saves.slots = sc_alloc_array(&conn->alloc, conn->saves.count, sizeof(*conn->saves.slots));
    conn->index.drops = sc_alloc_array(&conn->alloc, SC_PLUGIN_DROPS, sizeof(*conn->index.drops));
    if (conn->saves.slots == NULL || conn->index.drops == NULL)
        return sc_fail(reterr, SPEC_E_NO_MEMORY, "%" PRIu64 " saves", conn->saves.count);
    for (uint64_t i = 0; i < conn->saves.count; i++) {
        conn->saves.slots[i].conn = conn;
        conn->saves.slots[i].next = conn->saves.free;
        conn->saves.free = &conn->saves.slots[i];
    }
    conn->saves.commits.step = commits_step;
    sc_plugin_queue_open(conn);
    return sc_plugin_shared_open(conn, reterr);
}

/* Returns the save's provenance, no better than that of its prefix in the index now. */
static struct spec_provenance worth_of(spec_connector *conn, const struct sc_plugin_save *save,
                                       struct sc_radix_query query)
{
    struct spec_provenance worst = save->provenance;
    struct sc_radix_match match = {0};
    query.token_count = save->first;
    if (save->first > 0)
        sc_radix_match(conn->radix, &query, NULL, 0, &match);
    if (match.last_flags != SPEC_PROVENANCE_EXACT)
        sc_plugin_provenance_add_piece(&worst, conn->store, match.last_piece);
    return worst;
}

/* Matches and pins what the index has of the save's tokens that is no worse. All removals are
 * logged first, so that our record follows those of the pieces it replaces. */
static void match_save(spec_connector *conn, const struct sc_plugin_save *save,
                       struct sc_store_provenance *ret_provenance, struct sc_radix_match *ret_match)
{
    const struct sc_plugin_request *request = save->request;
    const struct sc_plugin_text text = sc_plugin_save_text(save);
    struct sc_radix_query query = {.root = request->root,
                                   .tokens = text.tokens,
                                   .token_count = save->first + save->count, /* later passes add */
                                   .marks = text.marks,
                                   .hint = sc_plugin_hint_of(conn, request)};
    for (;;) {
        sc_plugin_drops_flush(conn);
        struct spec_provenance worst = worth_of(conn, save, query);
        *ret_provenance = sc_plugin_provenance_stored(&worst);
        query.flags_end = worst.kind + 1;
        sc_radix_match_pin(conn->radix, &query, NULL, 0, ret_match);
        if (atomic_load(&conn->index.drop_count) == 0)
            return;
        sc_radix_unpin(conn->radix, ret_match->last);
        query.flags_end = 0;
    }
}

/* Updates statistics and compaction for rows indexed from `present` on. */
static void rows_committed(spec_connector *conn, const struct sc_plugin_save *save,
                           uint64_t present, uint64_t indexed_end, uint64_t first_id)
{
    uint64_t end = save->first + save->count, chunk = conn->config.chunk_tokens;
    bool is_begun = present > (end - 1) / chunk * chunk; /* others began the last chunk */
    if (is_begun && end % chunk == 0)
        sc_plugin_kick(conn, SC_JOB_COMPACT);
    bool is_tail = is_begun && end % chunk != 0 && indexed_end == end;
    atomic_store(&save->request->tail, is_tail ? first_id : 0);
    if (indexed_end == end && conn->ranks.is_member) /* new: it needs no use before the next tick */
        atomic_store_explicit(&save->request->used_pieces[SC_PLUGIN_USE_MATCH],
                              first_id + sc_plugin_chunk_count(conn, present, end) - 1,
                              memory_order_relaxed);
    sc_count(&conn->stats.stored_tokens, indexed_end - present);
    sc_count(&conn->stats.stored_chunks, sc_plugin_chunk_count(conn, present, indexed_end));
}

/* Appends records of the rows behind the match, then makes them visible. */
static spec_status commit_rows(spec_connector *conn, struct sc_plugin_save *save,
                               const struct sc_store_provenance *provenance,
                               const struct sc_radix_match *match)
{
    const struct sc_plugin_request *request = save->request;
    const struct sc_plugin_text text = sc_plugin_save_text(save);
    uint64_t end = save->first + save->count, present = match->token_count;
    struct sc_plugin_piece piece = sc_plugin_piece_at(conn, save->first, end, present);
    struct sc_store_commit commit = {
        .piece_first = (uint32_t)(sc_plugin_chunk_count(conn, save->first, present + 1) - 1),
        .skip = (uint32_t)(present - piece.first),
        .tokens = text.tokens,
        .marks = text.store_marks,
        .mark_count = text.marks.count,
        .provenance = provenance,
    };
    memcpy(commit.root, request->root.bytes, sizeof(commit.root));
    uint64_t first_id;
    struct spec_error error = {.struct_size = sizeof(error)};
    spec_status status = sc_store_extent_commit(save->extent, &commit, &first_id, &error);
    if (status == SPEC_PENDING)
        return status;
    if (status != SPEC_OK) {
        sc_log_write_limited(&conn->log, &conn->saves.lost, sc_exec_now_ns(conn->exec),
                             SPEC_LOG_WARN, "store of tokens %" PRIu64 " .. %" PRIu64 " failed: %s",
                             save->first, end, error.text);
        return status;
    }
    uint64_t indexed_end;
    pthread_mutex_lock(&conn->index.lock);
    status = sc_plugin_index_save(conn, save, &text, match, first_id, provenance->computed_on,
                                  &indexed_end);
    pthread_mutex_unlock(&conn->index.lock);
    if (atomic_load(&conn->index.drop_count) > 0) /* pieces that it replaced */
        sc_plugin_kick(conn, SC_JOB_TIDY);
    sc_store_build_quant(conn->store);
    if (save->states == NULL)
        rows_committed(conn, save, present, indexed_end, first_id);
    else
        save->states->piece_last =
            indexed_end == end ? first_id + sc_plugin_chunk_count(conn, present, end) - 1 : 0;
    if (status == SPEC_E_NO_MEMORY) /* the index is full; no other reason evicts */
        sc_plugin_evict_ask_runs(conn);
    return status;
}

/* Removes a branch that is partly evicted or incomplete, because states are of one pass. Returns
 * false if it is pinned: the new branch is dropped. */
static bool stump_remove(spec_connector *conn, const struct sc_plugin_save *save)
{
    const struct sc_plugin_text *text = &save->states->text;
    const struct sc_radix_query query = {.root = save->request->root,
                                         .tokens = text->tokens,
                                         .token_count = text->token_count,
                                         .marks = text->marks};
    struct sc_radix_match match;
    sc_radix_match_pin(conn->radix, &query, NULL, 0, &match);
    sc_radix_unpin(conn->radix, match.last); /* commit_lock excludes other removals */
    return match.token_count <= save->first || match.token_count == text->token_count ||
           sc_plugin_index_remove(conn, match.last, save->first);
}

/* Returns true if this extent continues the branch in the index. */
static bool branch_goes_on(const struct sc_plugin_save *save, const struct sc_radix_match *match)
{
    const struct sc_plugin_recurrent_pass *states = save->states;
    return match->token_count == save->first &&
           (save->first == states->first ||
            (states->piece_last != 0 && match->last_piece == states->piece_last));
}

/* Commits what the index lacks of a completely written save. */
static spec_status commit_save(spec_connector *conn, struct sc_plugin_save *save)
{
    uint64_t end = save->first + save->count;
    struct sc_radix_match match;
    struct sc_store_provenance provenance;
    bool is_first = save->states != NULL && save->first == save->states->first;
    bool is_stored = !is_first || stump_remove(conn, save);
    match_save(conn, save, &provenance, &match);
    spec_status status = SPEC_OK;
    is_stored = is_stored && sc_plugin_provenance_may_be_stored(conn, provenance.computed_on);
    is_stored = is_stored && (save->states == NULL || branch_goes_on(save, &match));
    if (match.token_count >= save->first && match.token_count < end && is_stored) {
        status = commit_rows(conn, save, &provenance, &match);
    } else {
        sc_store_extent_discard(save->extent);
        if (match.token_count < save->first) /* its prefix found no space, as a rule */
            sc_plugin_evict_missed(conn, save->request, save->count);
        if (match.token_count < end)
            status = SPEC_E_DROPPED; /* an orphan, or of insufficient provenance */
        else
            sc_count(&conn->stats.duplicate_chunks, sc_plugin_chunk_count(conn, save->first, end));
    }
    sc_radix_unpin(conn->radix, match.last);
    return status;
}

/* commit_lock held. Returns the tickets' status; PENDING: nothing was decided. */
static spec_status resolve_save(spec_connector *conn, struct sc_plugin_save *save)
{
    spec_status status = save->status;
    bool is_over = save->is_void || !sc_plugin_epoch_is_current(conn, save->request);
    if (status == SPEC_OK && is_over)
        status = SPEC_E_DROPPED; /* its pass was dropped, or a reset followed */
    if (status == SPEC_OK)
        status = commit_save(conn, save);
    else
        sc_store_extent_discard(save->extent);
    if (status == SPEC_PENDING)
        return status;
    if (status != SPEC_OK)
        sc_count(&conn->stats.dropped_chunks,
                 sc_plugin_chunk_count(conn, save->first, save->first + save->count));
    if (status == SPEC_E_NO_SPACE && !sc_store_is_paused(conn->store))
        sc_plugin_evict_ask(conn, save->request, save->count);
    return sc_plugin_ticket_status(status);
}

/* The same on the present log. Beside other processes that store, one of them may be faster: then
 * the save is resolved anew, because the index has what that one stored. */
static spec_status resolve_in_turn(spec_connector *conn, struct sc_plugin_save *save)
{
    spec_status status;
    do {
        sc_store_turn_begin(conn->store);
        status = resolve_save(conn, save);
        sc_store_turn_end(conn->store);
    } while (status == SPEC_PENDING);
    return status;
}

/* Lock held. Queues the save if it is written and waits for nothing. */
static void queue_if_ready(struct sc_plugin_saves *saves, struct sc_plugin_save *save)
{
    if (save->state != SC_SAVE_WRITTEN || save->is_open || save->waits)
        return;
    save->next = NULL;
    if (saves->commit_head == NULL)
        saves->commit_head = save;
    else
        saves->commit_tail->next = save;
    saves->commit_tail = save;
}

/* Lock held. Returns true if the caller commits. */
static bool commits_begin(struct sc_plugin_saves *saves)
{
    bool commits = saves->commit_head != NULL && !saves->is_committing;
    saves->is_committing = saves->is_committing || commits;
    return commits;
}

/* Resolves the save and releases its successors. Returns its sharers. */
static struct sc_plugin_sharer *release_behind(spec_connector *conn, struct sc_plugin_save *save,
                                               spec_status status)
{
    pthread_mutex_lock(&conn->saves.lock);
    save->status = status; /* until here others may join it */
    save->life++;
    for (struct sc_plugin_save *at = save->behind, *next; at != NULL; at = next) {
        next = at->behind_next;
        at->waits = false;
        queue_if_ready(&conn->saves, at);
    }
    save->behind = NULL;
    struct sc_plugin_sharer *sharers = sc_plugin_shared_end(conn, save);
    pthread_mutex_unlock(&conn->saves.lock);
    return sharers;
}

/* Returns how many tokens of the sharer's pass a lookup finds with this commit; 0: no more than
 * before. With recurrent layers, rows are found only with the last extent of states. */
static uint64_t found_with(const spec_connector *conn, const struct sc_plugin_save *save,
                           const struct sc_plugin_sharer *sharer)
{
    const struct sc_plugin_recurrent_pass *states = save->states;
    if (conn->states.count == 0)
        return sharer->end - sharer->pass_first;
    return states != NULL && sharer->end == states->text.token_count
               ? states->first - sharer->pass_first
               : 0;
}

/* Raises the rows' hint to the sharer's; the commit used that of the tokens' owner. */
static void hint_raise(spec_connector *conn, const struct sc_plugin_save *save,
                       const struct sc_plugin_sharer *sharer)
{
    const struct sc_plugin_text text = sc_plugin_save_text(save);
    const struct sc_radix_query query = {.root = save->request->root,
                                         .tokens = text.tokens,
                                         .token_count = sharer->end,
                                         .marks = text.marks,
                                         .hint = sharer->hint};
    struct sc_radix_match match;
    sc_radix_match_pin(conn->radix, &query, NULL, 0, &match);
    sc_radix_unpin(conn->radix, match.last);
    sc_plugin_unpinned(conn);
}

/* Resolves the sharers' tickets with the save's status. Saves resolve in the order of tokens, so
 * the stored ones are the pass's beginning. */
static void tell_sharers(spec_connector *conn, struct sc_plugin_save *save,
                         struct sc_plugin_sharer *sharers)
{
    bool is_stored = save->status == SPEC_OK;
    bool is_shared = sharers != NULL && sharers->next != NULL;
    for (struct sc_plugin_sharer *at = sharers; at != NULL; at = at->next) {
        bool has_joined = at != &save->founder;
        uint64_t chunks = sc_plugin_chunk_count(conn, save->first, at->end);
        if (has_joined)
            sc_count(is_stored ? &conn->stats.duplicate_chunks : &conn->stats.dropped_chunks,
                     chunks);
        if (is_shared && is_stored && at->hint != 0)
            hint_raise(conn, save, at);
        if (is_stored)
            sc_plugin_ticket_kept(conn, at->ticket, found_with(conn, save, at));
        sc_plugin_ticket_resolve(conn, at->ticket, save->status);
    }
    sc_plugin_shared_free(conn, save, sharers);
}

static void end_save(spec_connector *conn, struct sc_plugin_save *save, spec_status status)
{
    struct sc_plugin_request *request = save->request;
    tell_sharers(conn, save, release_behind(conn, save, status));
    if (save->states != NULL)
        sc_plugin_recurrent_unref(conn, save->states);
    sc_plugin_save_put(conn, save);
    sc_plugin_request_unhold(request);
    atomic_fetch_sub_explicit(&conn->saves.live, 1, memory_order_release);
    atomic_fetch_add_explicit(&conn->saves.word, 1, memory_order_release);
    sc_exec_wake(conn->exec, &conn->saves.word);
}

/* Returns the next save to commit; NULL: none, and another thread may become the committer. */
static struct sc_plugin_save *commit_next(spec_connector *conn)
{
    pthread_mutex_lock(&conn->saves.lock);
    struct sc_plugin_save *save = conn->saves.commit_head;
    if (save != NULL)
        conn->saves.commit_head = save->next;
    else
        conn->saves.is_committing = false;
    pthread_mutex_unlock(&conn->saves.lock);
    return save;
}

/* Called by the one committing thread. */
static void commit_all(spec_connector *conn)
{
    struct sc_plugin_save *save;
    while ((save = commit_next(conn)) != NULL) {
        uint64_t place = sc_plugin_evict_place(conn, save->request), rows = save->count;
        pthread_mutex_lock(&conn->commit_lock);
        spec_status status = resolve_in_turn(conn, save);
        pthread_mutex_unlock(&conn->commit_lock);
        end_save(conn, save, status);
        sc_plugin_unpinned(conn);
        sc_plugin_evict_check(conn, place, rows);
        if (sc_store_checkpoint_due(conn->store))
            sc_plugin_kick(conn, SC_JOB_CHECKPOINT);
    }
}

void sc_plugin_on_written(struct sc_store_extent *extent, spec_status status, void *extent_user,
                          void *user)
{
    spec_connector *conn = user;
    struct sc_plugin_save *save = extent_user;
    pthread_mutex_lock(&conn->saves.lock);
    SC_ASSERT(&conn->poison, save->extent == extent && save->state == SC_SAVE_WRITING);
    save->state = SC_SAVE_WRITTEN;
    save->status = status != SPEC_OK && save->lost != SPEC_OK ? save->lost : status;
    queue_if_ready(&conn->saves, save);
    bool commits = commits_begin(&conn->saves);
    pthread_mutex_unlock(&conn->saves.lock);
    if (commits)
        commit_all(conn);
}

/* Counts as a save while posted, so that close waits. */
static void commits_step(struct sc_task *task)
{
    struct sc_plugin_saves *saves = SC_TASK_OWNER(task, struct sc_plugin_saves, commits);
    spec_connector *conn = saves->queue.conn;
    commit_all(conn);
    atomic_fetch_sub_explicit(&saves->live, 1, memory_order_release);
    atomic_fetch_add_explicit(&saves->word, 1, memory_order_release);
    sc_exec_wake(conn->exec, &saves->word);
}

void sc_plugin_saves_leave(spec_connector *conn, struct sc_plugin_request *request,
                           struct sc_plugin_save *const *saves, uint64_t count, bool keeps)
{
    if (count == 0)
        return;
    struct spec_provenance worth = sc_plugin_provenance_so_far(request);
    sc_plugin_lock(conn, &conn->saves.lock);
    for (uint64_t i = 0; i < count; i++) { /* others may be committed now */
        if (!saves[i]->is_open)
            continue;
        saves[i]->provenance = worth; /* includes layers behind the last with rows */
        saves[i]->is_void = !keeps;
        saves[i]->is_open = false;
        queue_if_ready(&conn->saves, saves[i]);
    }
    bool commits = commits_begin(&conn->saves);
    pthread_mutex_unlock(&conn->saves.lock);
    for (uint64_t i = 0; i < count; i++)
        sc_plugin_save_put(conn, saves[i]);
    if (!commits)
        return;
    atomic_fetch_add_explicit(&conn->saves.live, 1, memory_order_relaxed);
    sc_exec_post(conn->exec, &conn->saves.commits, SC_IO_CLASS_WRITER);
}
