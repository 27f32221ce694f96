/* Commits: saves that were written whole become records, and records become visible.
 *
 *   on_written (executor) -> saves of a request resolve in the order of their tokens
 *     -> commit: what the index does not have yet; orphans and duplicates are discarded
 *     -> ticket: its part ended
 *
 * Holds: a chunk is inserted after its record was appended, and that after all its layers were
 * written; the first complete copy wins; a save keeps its request's tokens alive.
 * Threads: executor, but taking a save, which is the host's.
 * Tests: conformance (abi_082_*, abi_083_*, abi_087_*), tests/unit/plugin/test_save.c */
#include "plugin/connector.h"

spec_status sc_plugin_saves_open(spec_connector *conn, struct spec_error *reterr)
{
    conn->save_count = (uint64_t)conn->config.max_requests * 4 + SC_PLUGIN_PASS_SAVES;
    conn->saves = sc_alloc_array(&conn->alloc, conn->save_count, sizeof(*conn->saves));
    if (conn->saves == NULL)
        return sc_fail(reterr, SPEC_E_NO_MEMORY, "%" PRIu64 " saves", conn->save_count);
    for (uint64_t i = 0; i < conn->save_count; i++) {
        conn->saves[i].conn = conn;
        conn->saves[i].next = conn->save_free;
        conn->save_free = &conn->saves[i];
    }
    return SPEC_OK;
}

struct sc_plugin_save *sc_plugin_save_take(spec_connector *conn)
{
    pthread_mutex_lock(&conn->index_lock);
    struct sc_plugin_save *save = conn->save_free;
    if (save != NULL)
        conn->save_free = save->next;
    pthread_mutex_unlock(&conn->index_lock);
    return save;
}

void sc_plugin_save_put(spec_connector *conn, struct sc_plugin_save *save)
{
    pthread_mutex_lock(&conn->index_lock);
    save->next = conn->save_free;
    conn->save_free = save;
    pthread_mutex_unlock(&conn->index_lock);
}

/* ---- Resolving, under index_lock ---- */

uint64_t sc_plugin_chunk_count(const spec_connector *conn, uint64_t first, uint64_t end)
{
    uint64_t chunk = conn->config.chunk_tokens;
    return end > first ? (end - 1) / chunk - first / chunk + 1 : 0;
}

spec_status sc_plugin_ticket_status(spec_status status)
{
    switch (status) {
    case SPEC_OK:
    case SPEC_E_DROPPED:
    case SPEC_E_BUSY:
    case SPEC_E_IO:
    case SPEC_E_NO_SPACE:
        return status;
    case SPEC_E_NO_MEMORY: /* a table or the index may not grow: a limit */
        return SPEC_E_BUSY;
    default:
        return SPEC_E_DROPPED;
    }
}

/* Commits what the index lacks of a save that was written whole. */
static spec_status commit_save(spec_connector *conn, struct sc_plugin_save *save)
{
    const struct sc_plugin_request *request = save->request;
    uint64_t end = save->first + save->count;
    struct sc_radix_query query = {.root = request->root,
                                   .tokens = request->tokens,
                                   .token_count = end,
                                   .marks = request->marks,
                                   .mark_count = request->mark_count};
    struct sc_radix_match match;
    sc_radix_match(conn->radix, &query, NULL, 0, &match);
    uint64_t present = match.token_count;
    if (present < save->first || present >= end) {
        sc_store_extent_discard(save->extent);
        if (present >= end)
            atomic_fetch_add_explicit(&conn->stats.duplicate_chunks,
                                      sc_plugin_chunk_count(conn, save->first, end),
                                      memory_order_relaxed);
        return present >= end ? SPEC_OK : SPEC_E_DROPPED;
    }
    struct sc_plugin_piece piece = sc_plugin_piece_at(conn, save->first, end, present);
    struct sc_store_commit commit = {
        .piece_first = (uint32_t)(sc_plugin_chunk_count(conn, save->first, present + 1) - 1),
        .skip = (uint32_t)(present - piece.first),
        .tokens = request->tokens,
        .marks = request->store_marks,
        .mark_count = request->mark_count,
    };
    sc_hash_to_bytes(request->root, commit.root);
    uint64_t first_id;
    struct spec_error error = {.struct_size = sizeof(error)};
    spec_status status = sc_store_extent_commit(save->extent, &commit, &first_id, &error);
    if (status != SPEC_OK) {
        SC_LOG(&conn->log, SPEC_LOG_WARN, "store of tokens %" PRIu64 " .. %" PRIu64 " failed: %s",
               save->first, end, error.text);
        return status;
    }
    uint64_t indexed_end = sc_plugin_index_save(conn, save, &match, first_id);
    atomic_fetch_add_explicit(&conn->stats.stored_tokens, indexed_end - present,
                              memory_order_relaxed);
    atomic_fetch_add_explicit(&conn->stats.stored_chunks,
                              sc_plugin_chunk_count(conn, present, indexed_end),
                              memory_order_relaxed);
    return indexed_end == end ? SPEC_OK : SPEC_E_BUSY; /* the index is full */
}

static void resolve_save(spec_connector *conn, struct sc_plugin_save *save)
{
    spec_status status = save->status;
    if (status == SPEC_OK)
        status = commit_save(conn, save);
    else
        sc_store_extent_discard(save->extent);
    if (status != SPEC_OK)
        atomic_fetch_add_explicit(
            &conn->stats.dropped_chunks,
            sc_plugin_chunk_count(conn, save->first, save->first + save->count),
            memory_order_relaxed);
    save->status = sc_plugin_ticket_status(status);
}

void sc_plugin_on_written(struct sc_store_extent *extent, spec_status status, void *extent_user,
                          void *user)
{
    spec_connector *conn = user;
    struct sc_plugin_save *written = extent_user;
    struct sc_plugin_save *resolved = NULL, **resolved_end = &resolved;
    struct sc_plugin_request *request = written->request;
    pthread_mutex_lock(&conn->index_lock);
    SC_ASSERT(&conn->poison, written->extent == extent && written->state == SC_SAVE_WRITING);
    written->state = SC_SAVE_WRITTEN;
    written->status = status;
    while (request->save_head != NULL && request->save_head->state == SC_SAVE_WRITTEN) {
        struct sc_plugin_save *save = request->save_head;
        request->save_head = save->next;
        if (request->save_head == NULL)
            request->save_tail = NULL;
        resolve_save(conn, save);
        save->next = NULL;
        *resolved_end = save;
        resolved_end = &save->next;
    }
    sc_plugin_sweep(conn);
    pthread_mutex_unlock(&conn->index_lock);
    while (resolved != NULL) {
        struct sc_plugin_save *save = resolved;
        resolved = save->next;
        spec_ticket ticket = save->ticket;
        spec_status ended = save->status;
        sc_plugin_save_put(conn, save);
        sc_plugin_request_unhold(request);
        sc_plugin_ticket_resolve(conn, ticket, ended);
        atomic_fetch_sub_explicit(&conn->saves_live, 1, memory_order_release);
        atomic_fetch_add_explicit(&conn->save_word, 1, memory_order_release);
        sc_exec_wake(conn->exec, &conn->save_word);
    }
}
