/* save_extent: sizes and begins the extents of a pass, for rows (save.c) and for branches of
 * recurrent states (save_recurrent.c).
 *
 *   tokens  [first ..............................................) first + count
 *   extents [to a chunk's end][rows, a multiple of the chunk][rows] .. [the rest]
 *   pieces  the part of an extent in one chunk, with the chain's hash behind it
 *
 * Errors: a failure begins no save. Threads: the request's host thread.
 * Tests: tests/unit/plugin/test_save.c, test_recurrent.c, test_big_passes.c */
#include "plugin/connector.h"

#define SAVE_PIECES (SC_PLUGIN_SAVE_TOKENS / 16u + 2u) /* chunks are at least 16 tokens */

/* Returns a multiple of the chunk, so that extents are cut on the grid. */
uint64_t sc_plugin_save_rows_max(const spec_connector *conn)
{
    uint64_t rows = sc_store_extent_rows_max(conn->store);
    rows = rows < SC_PLUGIN_SAVE_TOKENS ? rows : SC_PLUGIN_SAVE_TOKENS;
    return rows - rows % conn->config.chunk_tokens;
}

uint64_t sc_plugin_save_rows(const spec_connector *conn, uint64_t token_count, uint64_t saves_max)
{
    uint64_t most = sc_plugin_save_rows_max(conn);
    uint64_t fit = sc_store_extent_rows_fit(conn->store, token_count);
    bool is_one = fit == 0 || fit == token_count || fit > most;
    return is_one || token_count / fit + 2 > saves_max ? most : fit;
}

uint64_t sc_plugin_save_count(const spec_connector *conn, uint64_t first, uint64_t count,
                              uint64_t step)
{
    uint64_t lead = first - first % conn->config.chunk_tokens;
    return step == 0 ? UINT64_MAX : (first + count - lead - 1) / step + 1;
}

/* Plans one extent's pieces. The chain is at `first`, and is moved to the end. */
static uint64_t plan_pieces(const spec_connector *conn, const struct sc_plugin_text *text,
                            struct sc_chain *chain, uint64_t first, uint64_t count,
                            struct sc_store_piece_plan *ret_plan)
{
    uint64_t piece_count = 0;
    uint64_t end = first + count;
    struct sc_plugin_piece piece;
    for (uint64_t position = first; position < end; position = piece.end) {
        piece = sc_plugin_piece_at(conn, first, end, position);
        struct sc_store_piece_plan *plan = &ret_plan[piece_count++];
        *plan = (struct sc_store_piece_plan){.first_position = position,
                                             .chunk_first = piece.chunk_first,
                                             .row_count = (uint32_t)(piece.end - position)};
        sc_hash_to_bytes(chain->grid, plan->chunk_hash);
        sc_chain_extend(chain, text->tokens + position, piece.end - position, text->marks);
        sc_hash_to_bytes(sc_chain_at(chain), plan->hash);
    }
    return piece_count;
}

spec_status sc_plugin_save_begin(spec_connector *conn, struct sc_plugin_request *request,
                                 struct sc_plugin_recurrent_pass *states, struct sc_chain *chain,
                                 uint64_t first, uint64_t count, struct sc_plugin_save **ret_save,
                                 struct spec_error *reterr)
{
    struct sc_store_piece_plan plan[SAVE_PIECES];
    struct sc_plugin_save *save = sc_plugin_save_take(conn);
    if (save == NULL)
        return sc_fail(reterr, SPEC_E_BUSY, "store: all %" PRIu64 " saves are in flight",
                       conn->saves.count);
    save->request = request;
    save->states = states;
    save->first = first;
    save->count = count;
    const struct sc_plugin_text text = sc_plugin_save_text(save);
    const struct sc_store_pass pass = {
        .pieces = plan,
        .piece_count = plan_pieces(conn, &text, chain, first, count, plan),
        .salt = request->salt,
        .user = save, /* the commit has its provenance */
        .share = &request->share,
        .order = states == NULL ? first - request->step.shared_end : 0,
        .is_part = states == NULL && request->step.save_count > 1,
        .is_firm = states != NULL};
    save->state = SC_SAVE_WRITING;
    save->is_open = conn->states.count > 0;
    save->is_void = false;
    save->refs = 2; /* the open pass and the ticket's part; not shared yet */
    spec_status status = sc_store_extent_begin(conn->store, &pass, &save->extent, reterr);
    if (status != SPEC_OK) {
        save->refs = 1;
        sc_plugin_save_put(conn, save);
        return status;
    }
    atomic_fetch_add_explicit(&request->holds, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&conn->saves.live, 1, memory_order_relaxed);
    sc_plugin_save_follow(conn, request, save);
    sc_plugin_shared_found(conn, request, save, sc_hash_from_bytes(plan[0].hash),
                           conn->states.count == 0);
    *ret_save = save;
    return SPEC_OK;
}
