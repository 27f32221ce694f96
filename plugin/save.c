/* Saving: store passes to extents, extents to records, records to the index.
 *
 *   pass [first, first + count)   layers 0 .. L-1, one store call each
 *     -> saves: extents of <= SC_PLUGIN_SAVE_TOKENS rows, cut on the chunk grid
 *     -> on_written (executor): saves of a request resolve in the order of their tokens
 *     -> commit: what the index does not have yet; orphans and duplicates are discarded
 *
 * Holds: a chunk is inserted after its record was appended, and that after all its layers were
 * written; the first complete copy wins; a save keeps its request's tokens alive.
 * Threads: store, store_abort: the request's host thread; on_written: executor.
 * Tests: conformance (abi_080_* .. abi_091_*), tests/unit/plugin/test_save.c */
#include "plugin/args.h"
#include "plugin/connector.h"

#include <string.h>

#define SAVE_PIECES (SC_PLUGIN_SAVE_TOKENS / 16u + 2u) /* chunks are at least 16 tokens */

enum save_state { SAVE_WRITING, SAVE_WRITTEN };

struct sc_plugin_save {
    /* Set when taken, constant until resolved. */
    spec_connector *conn;
    struct sc_plugin_request *request;
    struct sc_store_extent *extent;
    uint64_t first, count; /* tokens */
    spec_ticket ticket;

    /* Guarded by index_lock. */
    struct sc_plugin_save *next;
    uint32_t state; /* enum save_state */
    spec_status status;
};

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

static struct sc_plugin_save *take_save(spec_connector *conn)
{
    pthread_mutex_lock(&conn->index_lock);
    struct sc_plugin_save *save = conn->save_free;
    if (save != NULL)
        conn->save_free = save->next;
    pthread_mutex_unlock(&conn->index_lock);
    return save;
}

static void untake_save(spec_connector *conn, struct sc_plugin_save *save)
{
    pthread_mutex_lock(&conn->index_lock);
    save->next = conn->save_free;
    conn->save_free = save;
    pthread_mutex_unlock(&conn->index_lock);
}

/* ---- Resolving, under index_lock ---- */

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

/* A piece that the log holds. Not believed (false): it is dropped for good, so that its space comes
 * back. A lack of memory is no reason for that: such a piece, and what hangs on it, stays on disk
 * unseen, and a later open finds it. */
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

/* Where chunk `first` begins on the grid. */
static uint64_t chunk_of(const spec_connector *conn, uint64_t position)
{
    return position - position % conn->config.chunk_tokens;
}

/* Inserts the committed pieces, ids from first_id on; a piece that cannot be indexed is dropped,
 * with all behind it. Returns where the tokens end that the index has now. */
static uint64_t index_save(spec_connector *conn, const struct sc_plugin_save *save,
                           uint64_t present, uint64_t first_id)
{
    const struct sc_plugin_request *request = save->request;
    uint64_t end = save->first + save->count;
    uint64_t id = first_id, indexed_end = present;
    struct sc_radix_query query = {.root = request->root,
                                   .tokens = request->tokens,
                                   .token_count = chunk_of(conn, present),
                                   .marks = request->marks,
                                   .mark_count = request->mark_count};
    struct sc_radix_match match;
    sc_radix_match(conn->radix, &query, NULL, 0, &match);
    struct sc_radix_inserted inserted = {.whole = match.whole, .whole_end = match.whole_end};
    for (uint64_t position = present; position < end; id++) {
        uint64_t chunk_first = chunk_of(conn, position);
        uint64_t chunk_end = chunk_first + conn->config.chunk_tokens;
        uint64_t piece_end = chunk_end < end ? chunk_end : end;
        uint64_t piece_first = chunk_first > save->first ? chunk_first : save->first;
        struct sc_radix_insertion insertion = {
            .root = request->root,
            .after = chunk_first > 0 ? inserted.whole : (struct sc_radix_ref){0},
            .first = chunk_first,
            .tokens = request->tokens + chunk_first,
            .token_count = piece_end - chunk_first,
            .run_first = position,
            .marks = request->marks,
            .mark_count = request->mark_count,
            .value = {id, (uint32_t)(position - piece_first), request->provenance.kind},
        };
        bool is_indexed = indexed_end == position && inserted.whole_end == chunk_first &&
                          insert_piece(conn, &insertion, &inserted) == SPEC_OK;
        if (!is_indexed || inserted.new_count == 0)
            sc_store_piece_drop(conn->store, id);
        else
            sc_store_piece_set_mark(conn->store, id, mark_of(inserted.last));
        indexed_end = is_indexed ? piece_end : indexed_end;
        position = piece_end;
    }
    return indexed_end;
}

/* Chunks that [first, end) touches. */
static uint64_t count_chunks(const spec_connector *conn, uint64_t first, uint64_t end)
{
    uint64_t chunk = conn->config.chunk_tokens;
    return end > first ? (end - 1) / chunk - first / chunk + 1 : 0;
}

/* What a ticket says (the ABI lists the statuses) for what went wrong inside. */
static spec_status ticket_status(spec_status status)
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
                                      count_chunks(conn, save->first, end), memory_order_relaxed);
        return present >= end ? SPEC_OK : SPEC_E_DROPPED;
    }
    uint64_t chunk = conn->config.chunk_tokens;
    uint64_t piece_first =
        chunk_of(conn, present) > save->first ? chunk_of(conn, present) : save->first;
    struct sc_store_commit commit = {
        .piece_first = (uint32_t)(present / chunk - save->first / chunk),
        .skip = (uint32_t)(present - piece_first),
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
    uint64_t indexed_end = index_save(conn, save, present, first_id);
    atomic_fetch_add_explicit(&conn->stats.stored_tokens, indexed_end - present,
                              memory_order_relaxed);
    atomic_fetch_add_explicit(&conn->stats.stored_chunks, count_chunks(conn, present, indexed_end),
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
        atomic_fetch_add_explicit(&conn->stats.dropped_chunks,
                                  count_chunks(conn, save->first, save->first + save->count),
                                  memory_order_relaxed);
    save->status = ticket_status(status);
}

void sc_plugin_on_written(struct sc_store_extent *extent, spec_status status, void *extent_user,
                          void *user)
{
    spec_connector *conn = user;
    struct sc_plugin_save *written = extent_user;
    struct sc_plugin_save *resolved = NULL, **resolved_end = &resolved;
    struct sc_plugin_request *request = written->request;
    pthread_mutex_lock(&conn->index_lock);
    SC_ASSERT(&conn->poison, written->extent == extent && written->state == SAVE_WRITING);
    written->state = SAVE_WRITTEN;
    written->status = status;
    while (request->save_head != NULL && request->save_head->state == SAVE_WRITTEN) {
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
        untake_save(conn, save);
        sc_plugin_request_unhold(request);
        sc_plugin_ticket_resolve(conn, ticket, ended);
        atomic_fetch_sub_explicit(&conn->saves_live, 1, memory_order_release);
        atomic_fetch_add_explicit(&conn->save_word, 1, memory_order_release);
        sc_exec_wake(conn->exec, &conn->save_word);
    }
}

/* ---- The host's side ---- */

/* What one extent holds, piece by piece. The chain stands at `first` when this begins. */
static uint64_t plan_pieces(const spec_connector *conn, const struct sc_plugin_request *request,
                            struct sc_chain *chain, uint64_t first, uint64_t count,
                            struct sc_store_piece_plan *ret_plan)
{
    uint64_t piece_count = 0;
    uint64_t end = first + count;
    for (uint64_t position = first; position < end;) {
        uint64_t chunk_first = chunk_of(conn, position);
        uint64_t chunk_end = chunk_first + conn->config.chunk_tokens;
        uint64_t piece_end = chunk_end < end ? chunk_end : end;
        struct sc_store_piece_plan *piece = &ret_plan[piece_count++];
        *piece = (struct sc_store_piece_plan){.first_position = position,
                                              .chunk_first = chunk_first,
                                              .row_count = (uint32_t)(piece_end - position)};
        sc_hash_to_bytes(chain->grid, piece->chunk_hash);
        sc_chain_extend(chain, request->tokens + position, piece_end - position, request->marks,
                        request->mark_count, NULL, 0);
        sc_hash_to_bytes(sc_chain_at(chain), piece->hash);
        position = piece_end;
    }
    return piece_count;
}

/* Begins one extent for [first, first + count) and queues its save. */
static spec_status begin_save(spec_connector *conn, struct sc_plugin_request *request,
                              struct sc_chain *chain, uint64_t first, uint64_t count,
                              struct spec_error *reterr)
{
    struct sc_store_piece_plan plan[SAVE_PIECES];
    struct sc_plugin_save *save = take_save(conn);
    if (save == NULL)
        return sc_fail(reterr, SPEC_E_BUSY, "store: all %" PRIu64 " saves are in flight",
                       conn->save_count);
    uint64_t piece_count = plan_pieces(conn, request, chain, first, count, plan);
    struct sc_store_provenance provenance = {.computed_on = request->provenance.kind};
    save->request = request;
    save->first = first;
    save->count = count;
    save->ticket = request->pass_ticket;
    save->state = SAVE_WRITING;
    save->next = NULL;
    spec_status status = sc_store_extent_begin(conn->store, plan, piece_count, &provenance, save,
                                               &save->extent, reterr);
    if (status != SPEC_OK) {
        untake_save(conn, save);
        return status;
    }
    atomic_fetch_add_explicit(&request->holds, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&conn->saves_live, 1, memory_order_relaxed);
    pthread_mutex_lock(&conn->index_lock);
    if (request->save_tail != NULL)
        request->save_tail->next = save;
    else
        request->save_head = save;
    request->save_tail = save;
    pthread_mutex_unlock(&conn->index_lock);
    request->pass[request->pass_saves++] = save;
    return SPEC_OK;
}

/* Rows of one extent: a multiple of the chunk, so that extents part on the grid. */
static uint64_t save_tokens_max(const spec_connector *conn)
{
    uint64_t rows = sc_store_extent_rows_max(conn->store);
    rows = rows < SC_PLUGIN_SAVE_TOKENS ? rows : SC_PLUGIN_SAVE_TOKENS;
    return rows - rows % conn->config.chunk_tokens;
}

static uint64_t count_saves(const spec_connector *conn, uint64_t first, uint64_t count)
{
    uint64_t step = save_tokens_max(conn);
    uint64_t lead = chunk_of(conn, first);
    return step == 0 ? UINT64_MAX : (first + count - lead - 1) / step + 1;
}

/* Begins every extent of the pass. */
static spec_status begin_saves(spec_connector *conn, struct sc_plugin_request *request,
                               const struct spec_store_params *params, struct spec_error *reterr)
{
    struct sc_chain chain;
    sc_chain_init(&chain, request->root, conn->config.chunk_tokens);
    sc_chain_extend(&chain, request->tokens, params->first_token, request->marks,
                    request->mark_count, NULL, 0);
    uint64_t end = params->first_token + params->token_count;
    spec_status status = SPEC_OK;
    for (uint64_t first = params->first_token; first < end && status == SPEC_OK;) {
        uint64_t next = chunk_of(conn, first) + save_tokens_max(conn);
        next = next < end ? next : end;
        status = begin_save(conn, request, &chain, first, next - first, reterr);
        first = next;
    }
    return status;
}

/* Nothing of the pass is wanted: so configured, or what it was computed on is void (the engine
 * was told so by get_important, and its rows after that are of no prompt). */
static bool is_unwanted(const spec_connector *conn, const struct sc_plugin_request *request,
                        uint64_t token_count)
{
    return conn->config.preset == SC_PRESET_RECOMPUTE ||
           token_count < conn->config.store_min_tokens || request->failed_position != UINT64_MAX;
}

/* Gives the open pass up: no later layer is packed, and what is begun is discarded. */
static void give_pass_up(struct sc_plugin_request *request, spec_status why)
{
    for (uint64_t i = 0; i < request->pass_saves; i++)
        sc_store_extent_abort(request->pass[i]->extent);
    request->pass_status = why;
}

/* Opens the pass: its extents and its ticket. A lack of space or of objects gives the pass up. */
static spec_status begin_pass(spec_connector *conn, struct sc_plugin_request *request,
                              const struct spec_store_params *params, struct spec_error *reterr)
{
    uint64_t save_count = count_saves(conn, params->first_token, params->token_count);
    bool fits = save_count <= SC_PLUGIN_PASS_SAVES;
    uint64_t part_count = fits ? save_count : 1;
    request->pass_ticket = sc_plugin_ticket_take(conn, (uint32_t)part_count);
    if (request->pass_ticket == 0)
        return sc_fail(reterr, SPEC_E_BUSY, "store: %u tickets were not asked for yet",
                       SC_LIMIT_TICKETS);
    request->pass_saves = 0;
    request->pass_first = params->first_token;
    request->pass_count = params->token_count;
    request->pass_status = SPEC_OK;
    struct spec_error why = {.struct_size = sizeof(why)};
    spec_status status = SPEC_OK;
    if (is_unwanted(conn, request, params->token_count))
        request->pass_status = SPEC_E_DROPPED; /* nothing to log */
    else if (!fits)
        status = sc_fail(&why, SPEC_E_BUSY, "%" PRIu64 " extents at once, at most %u", save_count,
                         SC_PLUGIN_PASS_SAVES);
    else
        status = begin_saves(conn, request, params, &why);
    if (status != SPEC_OK) {
        SC_LOG(&conn->log, SPEC_LOG_WARN, "store of %" PRIu64 " tokens given up: %s",
               params->token_count, why.text);
        uint64_t begun_end = params->first_token;
        if (request->pass_saves > 0)
            begun_end = request->pass[request->pass_saves - 1]->first +
                        request->pass[request->pass_saves - 1]->count;
        atomic_fetch_add_explicit(
            &conn->stats.dropped_chunks,
            count_chunks(conn, begun_end, params->first_token + params->token_count),
            memory_order_relaxed);
        give_pass_up(request, ticket_status(status));
    }
    /* Extents that were begun resolve their parts themselves. */
    for (uint64_t i = request->pass_saves; i < part_count; i++)
        sc_plugin_ticket_resolve(conn, request->pass_ticket, request->pass_status);
    return SPEC_OK;
}

struct pack_source {
    const spec_connector *conn;
    const struct sc_kernels_memory *memory;
    uint64_t first; /* token of the memory that is the extent's row 0 */
};

static void pack_rows(void *user, uint64_t row_first, uint64_t row_count, uint8_t *dst)
{
    const struct pack_source *source = user;
    const struct sc_plugin_shape *shape = &source->conn->shape;
    sc_kernels_rows_pack(source->memory, source->first + row_first, row_count, shape->kv_head_count,
                         (uint64_t)shape->head_size * sc_plugin_dtype_bytes(shape->dtype), dst);
}

static void put_layer(spec_connector *conn, struct sc_plugin_request *request, uint32_t layer,
                      const struct sc_kernels_memory *memory)
{
    for (uint64_t i = 0; i < request->pass_saves && request->pass_status == SPEC_OK; i++) {
        struct pack_source source = {conn, memory, request->pass[i]->first - request->pass_first};
        struct spec_error why = {.struct_size = sizeof(why)};
        request->pass_status = ticket_status(
            sc_store_extent_put_layer(request->pass[i]->extent, layer, pack_rows, &source, &why));
        if (request->pass_status == SPEC_OK)
            continue;
        SC_LOG(&conn->log, SPEC_LOG_WARN, "store of layer %" PRIu32 " given up: %s", layer,
               why.text);
        /* The failed one is ended; with the last layer, those before it have all they need. */
        for (uint64_t j = layer + 1 == conn->layer_count ? i + 1 : 0; j < request->pass_saves; j++)
            if (j != i)
                sc_store_extent_abort(request->pass[j]->extent);
    }
}

static spec_status check_pass(const spec_connector *conn, const struct sc_plugin_request *request,
                              const struct spec_store_params *params, struct spec_error *reterr)
{
    if (params->layer != request->pass_layer)
        return sc_fail(reterr, SPEC_E_INVALID,
                       "store: layer is %" PRIu32 ", expected %" PRIu32 " (layers ascend by one)",
                       params->layer, request->pass_layer);
    if (params->layer > 0 &&
        (params->first_token != request->pass_first || params->token_count != request->pass_count))
        return sc_fail(reterr, SPEC_E_INVALID,
                       "store: layer %" PRIu32 " has range %" PRIu64 " + %" PRIu64
                       ", layer 0 had %" PRIu64 " + %" PRIu64,
                       params->layer, params->first_token, params->token_count, request->pass_first,
                       request->pass_count);
    if (params->layer >= conn->layer_count)
        return sc_fail(reterr, SPEC_E_INVALID, "store: the model has %" PRIu32 " layers",
                       conn->layer_count);
    if (params->layer == 0 && params->first_token > request->stored_end)
        return sc_fail(reterr, SPEC_E_INVALID,
                       "store: the range begins at %" PRIu64 ", rows end at %" PRIu64,
                       params->first_token, request->stored_end);
    return SPEC_OK;
}

static spec_status check_tokens(const spec_connector *conn, const struct sc_plugin_request *request,
                                const struct spec_store_params *params, struct spec_error *reterr)
{
    if (params->tokens == NULL && params->tokens_count != 0)
        return sc_fail(reterr, SPEC_E_INVALID, "store: tokens is NULL with a count");
    if (params->tokens_count > conn->config.max_request_tokens - request->token_count)
        return sc_fail(reterr, SPEC_E_BUSY, "store: more than max_request_tokens %" PRIu32,
                       conn->config.max_request_tokens);
    uint64_t known = request->token_count + params->tokens_count;
    if (params->token_count == 0 || params->first_token > known ||
        params->token_count > known - params->first_token)
        return sc_fail(reterr, SPEC_E_INVALID,
                       "store: range %" PRIu64 " + %" PRIu64 " is not inside the %" PRIu64
                       " known tokens",
                       params->first_token, params->token_count, known);
    return SPEC_OK;
}

static spec_status check_store(spec_connector *conn, const struct spec_store_params *params,
                               struct sc_plugin_request **ret_request,
                               struct sc_kernels_memory *ret_memory, struct spec_error *reterr)
{
    if (params->flags != 0 || params->reserved != 0)
        return sc_fail(reterr, SPEC_E_INVALID, "store: flags and reserved must be 0");
    struct sc_plugin_request *request = sc_plugin_request_find(conn, params->request);
    if (request == NULL)
        return sc_plugin_stale(params->request, reterr);
    *ret_request = request;
    spec_status status = check_tokens(conn, request, params, reterr);
    if (status == SPEC_OK)
        status = check_pass(conn, request, params, reterr);
    uint32_t widen;
    if (status == SPEC_OK)
        status =
            sc_plugin_memory_check(params->memory, "store: memory", SC_MEMORY_SOURCE, &conn->shape,
                                   params->token_count, ret_memory, &widen, reterr);
    return status;
}

spec_status sc_plugin_store(spec_connector *conn, const struct spec_store_params *host_params,
                            spec_ticket *ret_ticket, struct spec_error *reterr)
{
    struct spec_store_params params;
    struct sc_plugin_request *request = NULL;
    struct sc_kernels_memory memory;
    spec_status status =
        sc_plugin_args_read(&params, sizeof(params), host_params, "store: params", reterr);
    if (status == SPEC_OK && ret_ticket == NULL)
        status = sc_fail(reterr, SPEC_E_INVALID, "store: ret_ticket is NULL");
    if (status == SPEC_OK)
        status = check_store(conn, &params, &request, &memory, reterr);
    if (status != SPEC_OK)
        return status;
    bool last = params.layer + 1 == conn->layer_count;
    spec_ticket ticket = last ? 0 : sc_plugin_ticket_take(conn, 1);
    if (!last && ticket == 0)
        return sc_fail(reterr, SPEC_E_BUSY, "store: %u tickets were not asked for yet",
                       SC_LIMIT_TICKETS);
    if (params.tokens_count > 0)
        memcpy(request->tokens + request->token_count, params.tokens,
               params.tokens_count * sizeof(uint32_t));
    request->token_count += params.tokens_count;
    if (params.layer == 0)
        status = begin_pass(conn, request, &params, reterr);
    if (status != SPEC_OK) {
        request->token_count -= params.tokens_count;
        if (ticket != 0) { /* nobody will ask for it, and nothing is left to be done for it */
            sc_plugin_ticket_forget(conn, ticket);
            sc_plugin_ticket_resolve(conn, ticket, status);
        }
        return status;
    }
    put_layer(conn, request, params.layer, &memory);
    request->pass_layer = params.layer + 1;
    if (!last)
        sc_plugin_ticket_resolve(conn, ticket, request->pass_status);
    else
        ticket = request->pass_ticket;
    if (last) {
        request->pass_layer = 0;
        request->stored_end = params.first_token + params.token_count;
    }
    *ret_ticket = ticket;
    return SPEC_OK;
}

void sc_plugin_pass_abort(spec_connector *conn, struct sc_plugin_request *request)
{
    if (request->pass_layer == 0)
        return;
    if (request->pass_status == SPEC_OK)
        give_pass_up(request, SPEC_E_DROPPED);
    sc_plugin_ticket_forget(conn, request->pass_ticket);
    request->pass_layer = 0;
    request->pass_saves = 0;
    atomic_fetch_add_explicit(&conn->stats.aborted_stores, 1, memory_order_relaxed);
}

void sc_plugin_pass_void(struct sc_plugin_request *request)
{
    if (request->pass_layer > 0 && request->pass_status == SPEC_OK)
        give_pass_up(request, SPEC_E_DROPPED);
}

spec_status sc_plugin_store_abort(spec_connector *conn, spec_request handle, uint64_t from_token,
                                  struct spec_error *reterr)
{
    struct sc_plugin_request *request = sc_plugin_request_find(conn, handle);
    if (request == NULL)
        return sc_plugin_stale(handle, reterr);
    if (request->pass_layer > 0 && from_token < request->pass_first + request->pass_count)
        sc_plugin_pass_abort(conn, request);
    return SPEC_OK;
}
