/* index: the radix index's writer, for log records, commits and failures.
 *
 *   log record   -> piece_holds  tokens match the hash
 *                -> on_piece     inserted if its parent is present
 *   commit       -> index_save   piece after piece, below the match
 *   failed piece -> piece_fail   hidden with all below it; pinned runs are removed at their unpin
 *                     -> drops   -> tidy (background): tombstones
 *   better piece -> replaces a worse one with all below it
 *
 * Invariants: a piece removed from the index gets a tombstone in the log, logged before any record
 * of its replacement. A better piece needs none: a replay replaces it again. A run is never better
 * than its parent. No file is written under index.lock, unless SC_PLUGIN_DROPS pieces wait.
 * Threads: index.lock, which on_piece takes itself; during open the opening thread alone. */
#include "plugin/index/index.h"
#include "plugin/args/provenance.h"
#include "plugin/connector.h"

#include <string.h>

#define INDEX_BYTES_MAX   (UINT64_C(64) << 30) /* maximum that the index can address */
#define INDEX_BYTES_LEAST (UINT64_C(1) << 20)  /* minimum for each rank that is followed */
#define DROPS_AT_ONCE     256u

spec_status sc_plugin_index_open(spec_connector *conn, struct sc_radix **ret_radix,
                                 struct spec_error *reterr)
{
    uint64_t share = conn->config.index_bytes_max / conn->ranks.count;
    if (share < INDEX_BYTES_LEAST)
        return sc_fail(reterr, SPEC_E_CONFIG,
                       "index_bytes_max is %" PRIu64 ", %" PRIu32 " ranks need %" PRIu64,
                       conn->config.index_bytes_max, conn->ranks.count,
                       conn->ranks.count * INDEX_BYTES_LEAST);
    struct sc_radix_params params = {.alloc = &conn->alloc,
                                     .poison = &conn->poison,
                                     .chunk_tokens = conn->config.chunk_tokens,
                                     .bytes_max = share < INDEX_BYTES_MAX ? share : INDEX_BYTES_MAX,
                                     .policy = (enum sc_policy)conn->config.evict_policy};
    return sc_radix_open(&params, ret_radix, reterr);
}

void sc_plugin_piece_drop_later(spec_connector *conn, uint64_t piece)
{
    uint64_t count = atomic_load_explicit(&conn->index.drop_count, memory_order_relaxed);
    if (count < SC_PLUGIN_DROPS) {
        conn->index.drops[count] = piece;
        atomic_store(&conn->index.drop_count, count + 1);
    } else {
        sc_store_piece_void(conn->store, piece); /* the next flush writes its record */
    }
}

void sc_plugin_drops_flush(spec_connector *conn)
{
    uint64_t pieces[DROPS_AT_ONCE], count;
    while (atomic_load(&conn->index.drop_count) > 0) {
        pthread_mutex_lock(&conn->index.lock);
        uint64_t left = atomic_load_explicit(&conn->index.drop_count, memory_order_relaxed);
        count = left < DROPS_AT_ONCE ? left : DROPS_AT_ONCE;
        memcpy(pieces, conn->index.drops + left - count, count * sizeof(*pieces));
        atomic_store(&conn->index.drop_count, left - count);
        pthread_mutex_unlock(&conn->index.lock);
        sc_store_pieces_drop(conn->store, pieces, count);
    }
}

static void piece_removed(const struct sc_radix_segment *segment, void *user)
{
    sc_plugin_piece_drop_later(user, segment->value.piece);
}

bool sc_plugin_index_remove(spec_connector *conn, struct sc_radix_ref last, uint64_t first)
{
    struct sc_radix_removal removal = {.removed = piece_removed, .user = conn};
    struct sc_radix_segment run;
    bool is_alone;
    pthread_mutex_lock(&conn->index.lock);
    bool found = sc_radix_get(conn->radix, last, &run);
    while (found && run.first > first)
        found = sc_radix_above(conn->radix, run.node, &run, &is_alone);
    found = found && run.first == first && !sc_radix_is_pinned(conn->radix, run.node) &&
            sc_radix_remove(conn->radix, run.node, SC_RADIX_RUN, &removal) == SPEC_OK;
    pthread_mutex_unlock(&conn->index.lock);
    return found;
}

bool sc_plugin_tidy(spec_connector *conn)
{
    struct sc_radix_removal removal = {.removed = piece_removed, .user = conn};
    pthread_mutex_lock(&conn->commit_lock);
    pthread_mutex_lock(&conn->index.lock);
    (void)sc_radix_sweep(conn->radix, &removal);
    pthread_mutex_unlock(&conn->index.lock);
    sc_plugin_drops_flush(conn);
    pthread_mutex_unlock(&conn->commit_lock);
    return false;
}

void sc_plugin_unpinned(spec_connector *conn)
{
    struct sc_radix_stats stats;
    sc_radix_stats(conn->radix, &stats);
    if (stats.hidden > 0)
        sc_plugin_kick(conn, SC_JOB_TIDY);
}

void sc_plugin_piece_fail(spec_connector *conn, struct sc_radix_ref node, uint64_t piece)
{
    struct sc_radix_removal removal = {.removed = piece_removed, .user = conn};
    struct sc_radix_segment run;
    sc_plugin_lock(conn, &conn->index.lock);
    sc_plugin_piece_drop_later(conn, piece);
    /* Otherwise it was compacted since: another piece has its rows. */
    if (sc_radix_get(conn->radix, node, &run) && run.value.piece == piece)
        sc_radix_remove(conn->radix, node, SC_RADIX_PIECE, &removal);
    pthread_mutex_unlock(&conn->index.lock);
    sc_plugin_kick(conn, SC_JOB_TIDY);
}

void sc_plugin_piece_erase(spec_connector *conn, struct sc_radix_ref node, uint64_t piece)
{
    bool writes = sc_plugin_can_store(conn);
    struct sc_radix_removal removal = {.removed = writes ? piece_removed : NULL, .user = conn};
    struct sc_radix_segment run;
    pthread_mutex_lock(&conn->index.lock);
    if (sc_radix_get(conn->radix, node, &run) && run.value.piece == piece)
        (void)sc_radix_remove(conn->radix, node, SC_RADIX_PIECE, &removal);
    pthread_mutex_unlock(&conn->index.lock);
}

/* Inserts one piece; new_count 0: another piece had the tokens. */
static spec_status insert_piece(spec_connector *conn, struct sc_radix *radix,
                                const struct sc_radix_insertion *insertion,
                                struct sc_radix_inserted *ret_inserted)
{
    struct spec_error error; /* not cleared: that takes as long as a piece */
    error.struct_size = sizeof(error);
    spec_status status = sc_radix_insert(radix, insertion, ret_inserted, &error);
    if (status != SPEC_OK)
        SC_LOG(&conn->log, SPEC_LOG_WARN, "piece %" PRIu64 " not indexed: %s",
               insertion->value.piece, error.text);
    return status;
}

/* A later record replaced it; its own drop record may be missing. */
static void replay_replaced(const struct sc_radix_segment *segment, void *user)
{
    spec_connector *conn = user;
    (void)segment;
    conn->index.has_orphans = true;
}

static uint64_t piece_token_count(const struct sc_store_piece *piece)
{
    return piece->first_position + piece->row_count - piece->chunk_first;
}

/* marks: [SC_CHAIN_CHUNK_TOKENS_MAX]. */
static void piece_marks(const struct sc_store_piece *piece, struct sc_mark *marks)
{
    for (uint32_t i = 0; i < piece->mark_count; i++) {
        marks[i].token = piece->marks[i].token;
        memcpy(marks[i].digest.bytes, piece->marks[i].digest, sizeof(marks[i].digest));
    }
}

bool sc_plugin_index_holds(const struct sc_radix *radix, const struct sc_store_piece *piece)
{
    struct sc_mark marks[SC_CHAIN_CHUNK_TOKENS_MAX];
    uint64_t token_count = piece_token_count(piece);
    if (piece->mark_count > SC_CHAIN_CHUNK_TOKENS_MAX || token_count > SC_CHAIN_CHUNK_TOKENS_MAX)
        return false;
    if (piece->chunk_first == 0 && memcmp(piece->chunk_hash, piece->root, SC_HASH_BYTES) != 0)
        return false;
    piece_marks(piece, marks);
    struct sc_hash hash = sc_chain_step(
        sc_radix_secret(radix), sc_hash_from_bytes(piece->chunk_hash), piece->chunk_first,
        piece->tokens, (uint32_t)token_count, (struct sc_marks){marks, piece->mark_count});
    return sc_hash_equal(hash, sc_hash_from_bytes(piece->hash));
}

bool sc_plugin_piece_holds(const struct sc_store_piece *piece, void *user)
{
    const spec_connector *conn = user;
    return sc_plugin_index_holds(conn->radix, piece);
}

spec_status sc_plugin_on_secret(const uint8_t secret[SC_STORE_SECRET_BYTES], void *user,
                                struct spec_error *reterr)
{
    spec_connector *conn = user;
    pthread_mutex_lock(&conn->index.lock);
    spec_status status = sc_radix_secret_set(conn->radix, secret, reterr);
    pthread_mutex_unlock(&conn->index.lock);
    return status;
}

/* Handles a piece whose parent, named by chain hash, is not indexed. If two prefixes have one hash,
 * the second's pieces stay logged until their drop records, or forever if the log ends before. */
static bool piece_unseen(struct sc_radix *radix, const struct sc_store_piece *piece,
                         bool lacks_memory)
{
    sc_radix_doubt(radix, sc_hash_from_bytes(piece->hash),
                   piece->first_position + piece->row_count);
    return lacks_memory;
}

bool sc_plugin_piece_index(spec_connector *conn, struct sc_radix *radix, bool *lacks_memory,
                           const struct sc_store_piece *piece, uint64_t *ret_mark)
{
    struct sc_mark marks[SC_CHAIN_CHUNK_TOKENS_MAX];
    struct sc_hash chunk_hash = sc_hash_from_bytes(piece->chunk_hash);
    struct sc_hash piece_hash = sc_hash_from_bytes(piece->hash);
    piece_marks(piece, marks);
    struct sc_radix_ref after = {0};
    if (piece->chunk_first > 0) {
        after = sc_radix_find(radix, chunk_hash, piece->chunk_first);
        if (after.generation == 0)
            return piece_unseen(radix, piece, *lacks_memory); /* its parent is not in the index */
    }
    bool is_own = radix == conn->radix;
    struct sc_radix_removal replaces = {.removed = is_own ? replay_replaced : NULL, .user = conn};
    struct sc_radix_insertion insertion = {
        .after = after,
        .first = piece->chunk_first,
        .tokens = piece->tokens,
        .token_count = piece_token_count(piece),
        .run_first = piece->first_position + piece->skip,
        .marks = {marks, piece->mark_count},
        .end_hash = &piece_hash,
        .value = {piece->id, piece->skip, piece->provenance.computed_on},
        .replaces = &replaces,
        .replacing = is_own ? sc_plugin_on_replacing : NULL,
        .merges = true,
    };
    memcpy(insertion.root.bytes, piece->root, sizeof(insertion.root));
    struct sc_radix_inserted inserted;
    spec_status status = insert_piece(conn, radix, &insertion, &inserted);
    if (status == SPEC_OK) {
        *ret_mark = sc_plugin_mark_of(inserted.last);
        return inserted.new_count > 0;
    }
    *lacks_memory = *lacks_memory || status == SPEC_E_NO_MEMORY;
    return piece_unseen(radix, piece, *lacks_memory);
}

void sc_plugin_on_pieces_soon(uint64_t count, void *user)
{
    const spec_connector *conn = user;
    sc_radix_expect(conn->radix, count);
}

/* Only the opening thread inserts then, so it reads without the lock. */
void sc_plugin_on_piece_soon(const uint8_t hash[SC_STORE_HASH_BYTES], void *user)
{
    const spec_connector *conn = user;
    sc_radix_insert_soon(conn->radix, sc_hash_from_bytes(hash));
}

/* Takes no lock during open: a lock per piece would prevent the overlap of memory accesses. */
bool sc_plugin_on_piece(const struct sc_store_piece *piece, uint64_t *ret_mark, void *user)
{
    spec_connector *conn = user;
    if (!conn->index.is_opening)
        pthread_mutex_lock(&conn->index.lock);
    bool believed =
        sc_plugin_piece_index(conn, conn->radix, &conn->index.lacks_memory, piece, ret_mark);
    struct sc_radix_spare spare;
    if (sc_radix_spare_take(conn->radix, &spare)) {
        pthread_mutex_lock(&conn->jobs.lock);
        conn->index.spare = spare; /* replaces one that the job was too slow for */
        pthread_mutex_unlock(&conn->jobs.lock);
        sc_plugin_kick(conn, SC_JOB_SPARE);
    }
    if (!conn->index.is_opening)
        pthread_mutex_unlock(&conn->index.lock);
    return believed;
}

bool sc_plugin_index_spare(spec_connector *conn)
{
    pthread_mutex_lock(&conn->jobs.lock);
    struct sc_radix_spare spare = conn->index.spare;
    conn->index.spare = (struct sc_radix_spare){0};
    pthread_mutex_unlock(&conn->jobs.lock);
    sc_radix_spare_touch(&spare);
    return spare.memory != NULL;
}

void sc_plugin_orphans_drop(spec_connector *conn)
{
    uint64_t pieces[DROPS_AT_ONCE], count = 0, end = sc_store_piece_next(conn->store);
    if (!sc_plugin_can_store(conn) || !conn->index.has_orphans)
        return;
    for (uint64_t id = 1; (id = sc_store_piece_from(conn->store, id)) < end; id++) {
        struct sc_radix_segment segment;
        uint8_t hash[SC_STORE_HASH_BYTES];
        uint64_t mark = sc_store_piece_mark(conn->store, id); /* 0: it was not reported */
        if (mark == 0 || !sc_store_piece_hash(conn->store, id, hash) ||
            (sc_radix_get(conn->radix, sc_plugin_ref_of(mark), &segment) &&
             segment.value.piece == id))
            continue;
        pieces[count++] = id;
        if (count < DROPS_AT_ONCE)
            continue;
        sc_store_pieces_drop(conn->store, pieces, count);
        count = 0;
    }
    sc_store_pieces_drop(conn->store, pieces, count);
}

bool sc_plugin_index_leaf(spec_connector *conn, struct sc_radix_among among,
                          struct sc_radix_segment *ret_leaf)
{
    sc_radix_clock_set(conn->radix, sc_exec_now_ns(conn->exec) / 1000000000u);
    if (conn->config.evict_policy != SC_POLICY_LRU)
        return sc_radix_victim_old(conn->radix, among, ret_leaf);
    return sc_radix_victim_first(conn->radix, among, ret_leaf); /* all others: used later */
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

uint32_t sc_plugin_hint_of(const spec_connector *conn, const struct sc_plugin_request *request)
{
    uint64_t now_s = sc_exec_now_ns(conn->exec) / 1000000000u;
    if (request->retain_s == 0 && request->priority == 0)
        return 0;
    uint64_t most = UINT64_MAX - now_s;
    uint64_t retain_s = request->retain_s < most ? request->retain_s : most;
    return sc_radix_hint(request->priority, retain_s > 0 ? now_s + retain_s : 0);
}

spec_status sc_plugin_index_save(spec_connector *conn, const struct sc_plugin_save *save,
                                 const struct sc_plugin_text *text,
                                 const struct sc_radix_match *match, uint64_t first_id,
                                 uint32_t kind, uint64_t *ret_indexed_end)
{
    const struct sc_plugin_request *request = save->request;
    struct sc_radix_removal replaces = {.removed = piece_removed, .user = conn};
    uint64_t end = save->first + save->count, id = first_id, indexed_end = match->token_count;
    spec_status status = SPEC_OK;
    struct sc_plugin_piece piece;
    struct sc_radix_inserted inserted = {.whole = match->whole, .whole_end = match->whole_end};
    for (uint64_t position = indexed_end; position < end; position = piece.end, id++) {
        piece = sc_plugin_piece_at(conn, save->first, end, position);
        struct sc_radix_insertion insertion = {
            .root = request->root,
            .after = inserted.whole,
            .first = inserted.whole_end,
            .tokens = text->tokens + inserted.whole_end,
            .token_count = piece.end - inserted.whole_end,
            .run_first = position,
            .marks = text->marks,
            .value = {id, (uint32_t)(position - piece.first), kind},
            .hint = sc_plugin_hint_of(conn, request),
            .replaces = &replaces,
        };
        if (status == SPEC_OK)
            status = insert_piece(conn, conn->radix, &insertion, &inserted);
        if (status != SPEC_OK || inserted.new_count == 0)
            sc_plugin_piece_drop_later(conn, id);
        else
            sc_store_piece_set_mark(conn->store, id, sc_plugin_mark_of(inserted.last));
        indexed_end = status == SPEC_OK ? piece.end : indexed_end;
    }
    *ret_indexed_end = indexed_end;
    return status;
}
