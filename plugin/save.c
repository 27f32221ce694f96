/* Saving, the host's side: store passes to extents that are being written.
 *
 *   pass [first, first + count)   layers 0 .. L-1, one store call each
 *     -> saves: extents of <= SC_PLUGIN_SAVE_TOKENS rows, cut on the chunk grid
 *     -> each layer packed and queued; the last one leads to commit.c
 *
 * Holds: a call waits for nothing but short locks; a lack of anything gives the pass up.
 * Does not: decide what becomes visible (commit.c).
 * Threads: the request's host thread.
 * Tests: conformance (abi_080_* .. abi_091_*), tests/unit/plugin/test_save.c */
#include "base/stream.h"
#include "kernels/select.h"
#include "plugin/args.h"
#include "plugin/connector.h"

#include <string.h>

#define SAVE_PIECES (SC_PLUGIN_SAVE_TOKENS / 16u + 2u) /* chunks are at least 16 tokens */

/* What one extent holds, piece by piece. The chain stands at `first` when this begins. */
static uint64_t plan_pieces(const spec_connector *conn, const struct sc_plugin_request *request,
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
        sc_chain_extend(chain, request->tokens + position, piece.end - position, request->marks,
                        request->mark_count, NULL, 0);
        sc_hash_to_bytes(sc_chain_at(chain), plan->hash);
    }
    return piece_count;
}

/* Begins one extent for [first, first + count) and queues its save. */
static spec_status begin_save(spec_connector *conn, struct sc_plugin_request *request,
                              struct sc_chain *chain, uint64_t first, uint64_t count,
                              struct spec_error *reterr)
{
    struct sc_store_piece_plan plan[SAVE_PIECES];
    struct sc_plugin_save *save = sc_plugin_save_take(conn);
    if (save == NULL)
        return sc_fail(reterr, SPEC_E_BUSY, "store: all %" PRIu64 " saves are in flight",
                       conn->save_count);
    uint64_t piece_count = plan_pieces(conn, request, chain, first, count, plan);
    struct sc_store_provenance provenance = {0}; /* the commit says it */
    save->request = request;
    save->first = first;
    save->count = count;
    save->ticket = request->pass_ticket;
    save->state = SC_SAVE_WRITING;
    save->next = NULL;
    spec_status status = sc_store_extent_begin(conn->store, plan, piece_count, &provenance, save,
                                               &save->extent, reterr);
    if (status != SPEC_OK) {
        sc_plugin_save_put(conn, save);
        return status;
    }
    atomic_fetch_add_explicit(&request->holds, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&conn->saves_live, 1, memory_order_relaxed);
    sc_plugin_lock(conn, &conn->save_lock);
    if (request->save_head != NULL)
        request->save_tail->next = save;
    else
        request->save_head = save;
    request->save_tail = save;
    pthread_mutex_unlock(&conn->save_lock);
    request->pass[request->pass_saves++] = save;
    return SPEC_OK;
}

/* Where chunk `first` begins on the grid. */
static uint64_t chunk_of(const spec_connector *conn, uint64_t position)
{
    return position - position % conn->config.chunk_tokens;
}

/* Rows of one extent: a multiple of the chunk, so that extents part on the grid. */
static uint64_t save_tokens_max(const spec_connector *conn)
{
    uint64_t rows = sc_store_extent_rows_max(conn->store);
    rows = rows < SC_PLUGIN_SAVE_TOKENS ? rows : SC_PLUGIN_SAVE_TOKENS;
    return rows - rows % conn->config.chunk_tokens;
}

/* Rows of one extent of a pass: fewer, when what is free lies in short runs. */
static uint64_t save_tokens(const spec_connector *conn, uint64_t token_count)
{
    uint64_t most = save_tokens_max(conn);
    uint64_t fit = sc_store_extent_rows_fit(conn->store, token_count);
    bool is_one = fit == 0 || fit == token_count || fit > most;
    return is_one || token_count / fit + 2 > SC_PLUGIN_PASS_SAVES ? most : fit;
}

/* Of `step` rows at most. */
static uint64_t count_saves(const spec_connector *conn, uint64_t first, uint64_t count,
                            uint64_t step)
{
    uint64_t lead = chunk_of(conn, first);
    return step == 0 ? UINT64_MAX : (first + count - lead - 1) / step + 1;
}

/* Begins every extent of the pass, of `step` rows at most. */
static spec_status begin_saves(spec_connector *conn, struct sc_plugin_request *request,
                               const struct spec_store_params *params, uint64_t step,
                               struct spec_error *reterr)
{
    struct sc_chain chain;
    sc_chain_init(&chain, sc_radix_secret(conn->radix), &request->root, conn->config.chunk_tokens);
    sc_chain_extend(&chain, request->tokens, params->first_token, request->marks,
                    request->mark_count, NULL, 0);
    uint64_t end = params->first_token + params->token_count;
    spec_status status = SPEC_OK;
    for (uint64_t first = params->first_token; first < end && status == SPEC_OK;) {
        uint64_t next = chunk_of(conn, first) + step;
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

#define NO_SAVE UINT64_MAX

/* Gives the open pass up: no later layer is packed, and its saves from `from` on are discarded, but
 * the one that has `ended` by itself. */
static void give_pass_up(struct sc_plugin_request *request, uint64_t from, uint64_t ended,
                         spec_status why)
{
    for (uint64_t i = from; i < request->pass_saves; i++)
        if (i != ended)
            sc_store_extent_abort(request->pass[i]->extent);
    request->pass_status = why;
}

/* Whether what the request computes now may be stored, after all that was delivered to it. */
static bool is_good_enough(const spec_connector *conn, const struct sc_plugin_request *request)
{
    struct spec_provenance so_far = sc_plugin_provenance_so_far(request);
    return sc_plugin_provenance_may_be_stored(conn, so_far.kind);
}

static void count_dropped(spec_connector *conn, uint64_t first, uint64_t end)
{
    atomic_fetch_add_explicit(&conn->stats.dropped_chunks, sc_plugin_chunk_count(conn, first, end),
                              memory_order_relaxed);
}

/* Opens the pass: its extents and its ticket. A lack of space or of objects gives the pass up. */
static spec_status begin_pass(spec_connector *conn, struct sc_plugin_request *request,
                              const struct spec_store_params *params, struct spec_error *reterr)
{
    bool good_enough = is_good_enough(conn, request);
    bool unwanted = is_unwanted(conn, request, params->token_count) || !good_enough;
    uint64_t step = unwanted ? save_tokens_max(conn) : save_tokens(conn, params->token_count);
    uint64_t save_count = count_saves(conn, params->first_token, params->token_count, step);
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
    if (unwanted)
        request->pass_status = SPEC_E_DROPPED; /* nothing to log */
    else if (!fits)
        status = sc_fail(&why, SPEC_E_BUSY, "%" PRIu64 " extents at once, at most %u", save_count,
                         SC_PLUGIN_PASS_SAVES);
    else
        status = begin_saves(conn, request, params, step, &why);
    if (!good_enough)
        count_dropped(conn, params->first_token, params->first_token + params->token_count);
    if (status != SPEC_OK) {
        SC_LOG(&conn->log, SPEC_LOG_WARN, "store of %" PRIu64 " tokens given up: %s",
               params->token_count, why.text);
        uint64_t begun_end = params->first_token;
        if (request->pass_saves > 0)
            begun_end = request->pass[request->pass_saves - 1]->first +
                        request->pass[request->pass_saves - 1]->count;
        count_dropped(conn, begun_end, params->first_token + params->token_count);
        give_pass_up(request, 0, NO_SAVE, sc_plugin_ticket_status(status));
        if (status == SPEC_E_NO_SPACE)
            sc_plugin_evict_ask(conn, params->token_count);
    }
    /* Extents that were begun resolve their parts themselves. */
    for (uint64_t i = request->pass_saves; i < part_count; i++)
        sc_plugin_ticket_resolve(conn, request->pass_ticket, request->pass_status);
    return SPEC_OK;
}

struct pack_source {
    const spec_connector *conn;
    const struct sc_kernels_memory *memory;
    uint64_t first;               /* token of the memory that is the extent's row 0 */
    struct sc_kernels_unpack how; /* spans: as they are */
};

static void pack_rows(void *user, uint32_t part, uint64_t row_first, uint64_t row_count,
                      uint8_t *dst)
{
    const struct pack_source *source = user;
    const struct sc_plugin_shape *shape = &source->conn->shape;
    uint64_t first = source->first + row_first, head_count = shape->kv_head_count;
    uint64_t head_bytes = (uint64_t)shape->head_size * sc_plugin_dtype_bytes(shape->dtype);
    struct sc_kernels_memory half = *source->memory; /* keys, or values in their place */
    if (part == SC_STORE_PART_ROW) {
        sc_kernels_rows_pack(source->memory, first, row_count, head_count, head_bytes, dst);
        return;
    }
    if (part == SC_STORE_PART_V)
        half.k_base = half.v_base;
    if (part == SC_STORE_PART_PROBE)
        head_count = sc_store_probe_row_bytes(source->conn->store) / head_bytes;
    sc_kernels_keys_pack(&half, first, row_count, head_count, head_bytes, dst);
}

static void source_spans(void *user, uint64_t row, uint64_t count, uint8_t **ret_spans)
{
    const struct pack_source *source = user;
    sc_kernels_rows_spans(&source->how, source->memory, source->first + row, count, ret_spans);
}

/* Where stores past the caches are faster rows go into their frames that way: nobody looks at them
 * soon but the device, and what codes them. */
static struct sc_store_source source_of(struct pack_source *source)
{
    const struct sc_plugin_shape *shape = &source->conn->shape;
    source->how = (struct sc_kernels_unpack){
        .head_count = shape->kv_head_count,
        .head_size = shape->head_size,
        .element_bytes = sc_plugin_dtype_bytes(shape->dtype),
        .widen = SC_KERNELS_SAME,
    };
    uint64_t span_bytes = sc_kernels_spans_bytes(&source->how, source->memory);
    bool moves =
        sc_stream_is_faster() && source->conn->row_bytes / span_bytes <= SC_STORE_SPANS_MAX;
    return (struct sc_store_source){.pack = pack_rows,
                                    .spans = moves ? source_spans : NULL,
                                    .span_bytes = span_bytes,
                                    .user = source};
}

static void put_layer(spec_connector *conn, struct sc_plugin_request *request, uint32_t layer,
                      const struct sc_kernels_memory *memory)
{
    bool last = layer + 1 == conn->layer_count;
    struct spec_provenance so_far = sc_plugin_provenance_so_far(request);
    for (uint64_t i = 0; i < request->pass_saves && request->pass_status == SPEC_OK; i++) {
        if (last) /* before it can be committed */
            request->pass[i]->provenance = so_far;
        struct pack_source from = {
            .conn = conn, .memory = memory, .first = request->pass[i]->first - request->pass_first};
        const struct sc_store_source source = source_of(&from);
        struct spec_error why = {.struct_size = sizeof(why)};
        spec_status status =
            sc_store_extent_put_layer(request->pass[i]->extent, layer, &source, &why);
        if (status == SPEC_OK)
            continue;
        SC_LOG(&conn->log, SPEC_LOG_WARN, "store of layer %" PRIu32 " given up: %s", layer,
               why.text);
        /* With the last layer, those before the failed one have all they need. */
        give_pass_up(request, last ? i + 1 : 0, i, sc_plugin_ticket_status(status));
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
    if (params->tokens_count > 0 &&
        (request->token_count < params->first_token ||
         request->token_count - params->first_token >= params->token_count))
        return sc_fail(reterr, SPEC_E_INVALID,
                       "store: tokens begin at position %" PRIu64
                       ", expected inside the range %" PRIu64 " + %" PRIu64,
                       request->token_count, params->first_token, params->token_count);
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
        sc_plugin_args_read(&params, &sc_plugin_form_store, host_params, "store: params", reterr);
    if (status == SPEC_OK && ret_ticket == NULL)
        status = sc_fail(reterr, SPEC_E_INVALID, "store: ret_ticket is NULL");
    if (status == SPEC_OK && conn->role == SPEC_ROLE_READER)
        status = sc_fail(reterr, SPEC_E_UNSUPPORTED, "store: this process is a reader");
    if (status == SPEC_OK)
        status = check_store(conn, &params, &request, &memory, reterr);
    if (status != SPEC_OK)
        return status;
    bool last = params.layer + 1 == conn->layer_count;
    spec_ticket ticket = last ? 0 : sc_plugin_ticket_take(conn, 1);
    if (!last && ticket == 0)
        return sc_fail(reterr, SPEC_E_BUSY, "store: %u tickets were not asked for yet",
                       SC_LIMIT_TICKETS);
    uint64_t known_before = request->token_count;
    struct spec_provenance delivered_before = request->delivered;
    if (params.tokens_count > 0)
        memcpy(request->tokens + request->token_count, params.tokens,
               params.tokens_count * sizeof(uint32_t));
    request->token_count += params.tokens_count;
    sc_plugin_provenance_computed(request, params.layer);
    if (params.layer == 0)
        status = begin_pass(conn, request, &params, reterr);
    if (status != SPEC_OK) {
        request->token_count = known_before;
        request->delivered = delivered_before;
        if (ticket != 0) { /* nobody will ask for it, and nothing is left to be done for it */
            sc_plugin_ticket_forget(conn, ticket);
            sc_plugin_ticket_resolve(conn, ticket, status);
        }
        return status;
    }
    if (request->pass_status == SPEC_OK && !is_good_enough(conn, request))
        give_pass_up(request, 0, NO_SAVE, SPEC_E_DROPPED); /* a layer was delivered in part */
    if (params.layer == 0)
        request->pass_known = known_before;
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

/* Ids that came with the pass go with it: the step may be run again with others, and no save that
 * will be committed reads these. */
void sc_plugin_pass_abort(spec_connector *conn, struct sc_plugin_request *request)
{
    if (request->pass_layer == 0)
        return;
    if (request->pass_status == SPEC_OK)
        give_pass_up(request, 0, NO_SAVE, SPEC_E_DROPPED);
    sc_plugin_ticket_forget(conn, request->pass_ticket);
    request->token_count = request->pass_known;
    request->pass_layer = 0;
    request->pass_saves = 0;
    atomic_fetch_add_explicit(&conn->stats.aborted_stores, 1, memory_order_relaxed);
}

void sc_plugin_pass_void(struct sc_plugin_request *request)
{
    if (request->pass_layer > 0 && request->pass_status == SPEC_OK)
        give_pass_up(request, 0, NO_SAVE, SPEC_E_DROPPED);
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
