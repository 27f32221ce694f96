/* The radix index's writer: what the log tells, what is committed, what fails.
 *
 *   log record   -> on_piece     chain and tokens checked, then inserted
 *   committed    -> index_save   piece after piece, below what is there
 *   failed piece -> piece_fail   hidden with all below it; what is pinned goes with its last pin
 *
 * Holds: a piece that leaves the index leaves the log too (a tombstone), so that it stays away.
 * Threads: under index_lock, but on_piece, which open calls alone.
 * Tests: conformance (abi_058_*, abi_083_*), tests/unit/plugin/test_save.c, test_load.c */
#include "plugin/connector.h"

static void piece_removed(const struct sc_radix_segment *segment, void *user)
{
    spec_connector *conn = user;
    sc_store_piece_drop(conn->store, segment->value.piece);
}

/* What was pinned below a failed piece goes with its last pin, and its records with it. */
void sc_plugin_sweep(spec_connector *conn)
{
    struct sc_radix_removal removal = {.removed = piece_removed, .user = conn};
    sc_radix_sweep(conn->radix, &removal);
}

void sc_plugin_sweep_try(spec_connector *conn)
{
    struct sc_radix_stats stats;
    sc_radix_stats(conn->radix, &stats);
    if (stats.hidden == 0 || pthread_mutex_trylock(&conn->index_lock) != 0)
        return;
    sc_plugin_sweep(conn);
    pthread_mutex_unlock(&conn->index_lock);
}

void sc_plugin_piece_fail(spec_connector *conn, struct sc_radix_ref node, uint64_t piece)
{
    pthread_mutex_lock(&conn->index_lock);
    sc_store_piece_drop(conn->store, piece);
    struct sc_radix_removal removal = {.removed = piece_removed, .user = conn};
    sc_radix_remove(conn->radix, node, SC_RADIX_PIECE, SC_RADIX_LATER, &removal, NULL, NULL);
    pthread_mutex_unlock(&conn->index_lock);
}

/* One piece into the index; new_count 0: it had the tokens, from another piece. */
static spec_status insert_piece(spec_connector *conn, const struct sc_radix_insertion *insertion,
                                struct sc_radix_inserted *ret_inserted)
{
    struct spec_error error = {.struct_size = sizeof(error)};
    spec_status status = sc_radix_insert(conn->radix, insertion, ret_inserted, &error);
    if (status != SPEC_OK)
        SC_LOG(&conn->log, SPEC_LOG_WARN, "piece %" PRIu64 " not indexed: %s",
               insertion->value.piece, error.text);
    return status;
}

/* The store keeps, with each piece, the run that ends it: a piece that another process drops is
 * found in the index by it. */
static uint64_t mark_of(struct sc_radix_ref run)
{
    return (uint64_t)run.generation << 32 | run.id;
}

bool sc_plugin_on_piece(const struct sc_store_piece *piece, uint64_t *ret_mark, void *user)
{
    spec_connector *conn = user;
    uint64_t end = piece->first_position + piece->row_count;
    struct sc_mark marks[SC_CHAIN_CHUNK_TOKENS_MAX];
    if (piece->mark_count > SC_CHAIN_CHUNK_TOKENS_MAX)
        return false;
    for (uint32_t i = 0; i < piece->mark_count; i++)
        marks[i] =
            (struct sc_mark){piece->marks[i].token, sc_hash_from_bytes(piece->marks[i].digest)};
    struct sc_hash root = sc_hash_from_bytes(piece->root);
    struct sc_hash chunk_hash = sc_hash_from_bytes(piece->chunk_hash);
    uint64_t token_count = end - piece->chunk_first;
    struct sc_hash hash = sc_chain_step(chunk_hash, piece->chunk_first, piece->tokens,
                                        (uint32_t)token_count, marks, piece->mark_count);
    if (!sc_hash_equal(hash, sc_hash_from_bytes(piece->hash)) ||
        (piece->chunk_first == 0 && !sc_hash_equal(chunk_hash, root)))
        return false; /* the record's tokens are not those its rows were tagged with */
    struct sc_radix_ref after = {0};
    if (piece->chunk_first > 0) {
        after = sc_radix_find(conn->radix, chunk_hash, piece->chunk_first);
        if (after.generation == 0)
            return conn->replay_lacks_memory; /* its parent is gone, or is one that stays unseen */
    }
    struct sc_radix_insertion insertion = {
        .root = root,
        .after = after,
        .first = piece->chunk_first,
        .tokens = piece->tokens,
        .token_count = token_count,
        .run_first = piece->first_position + piece->skip,
        .marks = marks,
        .mark_count = piece->mark_count,
        .value = {piece->id, piece->skip, piece->provenance.computed_on},
    };
    struct sc_radix_inserted inserted;
    spec_status status = insert_piece(conn, &insertion, &inserted);
    if (status == SPEC_OK) {
        *ret_mark = mark_of(inserted.last);
        return inserted.new_count > 0;
    }
    conn->replay_lacks_memory = conn->replay_lacks_memory || status == SPEC_E_NO_MEMORY;
    return conn->replay_lacks_memory;
}

struct sc_plugin_piece sc_plugin_piece_at(const spec_connector *conn, uint64_t first, uint64_t end,
                                          uint64_t position)
{
    uint64_t chunk_first = position - position % conn->config.chunk_tokens;
    uint64_t chunk_end = chunk_first + conn->config.chunk_tokens;
    return (struct sc_plugin_piece){.chunk_first = chunk_first,
                                    .first = chunk_first > first ? chunk_first : first,
                                    .end = chunk_end < end ? chunk_end : end};
}

uint64_t sc_plugin_index_save(spec_connector *conn, const struct sc_plugin_save *save,
                              const struct sc_radix_match *match, uint64_t first_id)
{
    const struct sc_plugin_request *request = save->request;
    uint64_t end = save->first + save->count, id = first_id, indexed_end = match->token_count;
    struct sc_plugin_piece piece;
    struct sc_radix_inserted inserted = {.whole = match->whole, .whole_end = match->whole_end};
    for (uint64_t position = indexed_end; position < end; position = piece.end, id++) {
        piece = sc_plugin_piece_at(conn, save->first, end, position);
        struct sc_radix_insertion insertion = {
            .root = request->root,
            .after = inserted.whole,
            .first = inserted.whole_end,
            .tokens = request->tokens + inserted.whole_end,
            .token_count = piece.end - inserted.whole_end,
            .run_first = position,
            .marks = request->marks,
            .mark_count = request->mark_count,
            .value = {id, (uint32_t)(position - piece.first), request->provenance.kind},
        };
        bool is_indexed =
            indexed_end == position && insert_piece(conn, &insertion, &inserted) == SPEC_OK;
        if (!is_indexed || inserted.new_count == 0)
            sc_store_piece_drop(conn->store, id);
        else
            sc_store_piece_set_mark(conn->store, id, mark_of(inserted.last));
        indexed_end = is_indexed ? piece.end : indexed_end;
    }
    return indexed_end;
}
