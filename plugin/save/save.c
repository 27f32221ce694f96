/* save: makes extents of a request's pass and has them written.
 *
 *   pass [first, first + count)   layers 0 .. L-1, a step each (request/store_call.c)
 *     -> saves: extents of <= SC_PLUGIN_SAVE_TOKENS rows, cut on the chunk grid (save_extent.c)
 *     -> each layer is packed and queued; queue.c: from a device; commit.c: after the last layer
 *
 * Calls wait for short locks only. If a resource is lacking, the pass's end is dropped and its
 * beginning is stored. request/store_call.c has checked the host's values.
 * Threads: the request's host thread.
 * Tests: conformance (abi_080_* .. abi_091_*, abi_209_*), test_save.c, test_bypass.c */
#include "base/nt_copy.h"
#include "kernels/columns.h"
#include "plugin/args/dtype_table.h"
#include "plugin/args/provenance.h"
#include "plugin/connector.h"
#include "plugin/save/queue.h"
#include "plugin/save/save_recurrent.h"

#include <string.h>

#define STAGE_PARTS       12u /* extents that fill the writers' staging: the unit of cuts */
#define STAGE_PARTS_LEAST 4u  /* the same for long passes with larger extents */
#define LAYERS_AHEAD      2u  /* initial pass, in rows that staging holds */

/* Sets the rows per extent and the tokens begun, if staging may not hold the pass whole. Extents
 * are small, because passes are cut by extents. But each holds a partly filled frame, and rows
 * beyond staging's capacity for a layer, or beyond the extents' frames, would be lost. */
static void part_pass(const spec_connector *conn, struct sc_plugin_step *step, uint64_t token_count)
{
    uint64_t frames = sc_store_write_frames(conn->store), chunk = conn->config.chunk_tokens;
    uint64_t bytes = sc_store_write_bytes(conn->store);
    uint64_t token_bytes = conn->dims.row_bytes * conn->dims.layer_count;
    step->rows_most = sc_plugin_save_rows(conn, token_count, SC_PLUGIN_PASS_SAVES);
    step->tokens_most = UINT64_MAX;
    if (token_count <= bytes / 2 / token_bytes)
        return;
    uint64_t parts = frames / 2 < SC_PLUGIN_PASS_SAVES ? frames / 2 : SC_PLUGIN_PASS_SAVES;
    parts = parts > 2 ? parts - 1 : 1; /* the first may begin within a chunk */
    uint64_t rows = bytes / token_bytes / STAGE_PARTS, least = (token_count + parts - 1) / parts;
    uint64_t most = bytes / token_bytes / STAGE_PARTS_LEAST;
    if (step->params.wait_ns == 0) {
        least = least < most ? least : most;
        step->tokens_most = bytes / conn->dims.row_bytes * LAYERS_AHEAD;
    }
    rows = rows > least ? rows : least;
    rows = rows > 0 ? (rows + chunk - 1) / chunk * chunk : chunk;
    step->rows_most = rows < step->rows_most ? rows : step->rows_most;
    if (step->params.wait_ns == 0 && parts * step->rows_most < step->tokens_most)
        step->tokens_most = parts * step->rows_most;
}

/* Returns the end of the extent at `first`: on the grid, within `rows`, at a cut or at `end`. */
static uint64_t extent_end(const spec_connector *conn, const struct sc_plugin_step *step,
                           uint64_t first, uint64_t end, uint64_t rows)
{
    uint64_t next = first - first % conn->config.chunk_tokens + rows;
    for (uint32_t i = step->cut_count; i > 0 && step->cuts[i - 1] > first; i--)
        next = step->cuts[i - 1] < next ? step->cuts[i - 1] : next;
    return next < end ? next : end;
}

static uint64_t extent_count(const spec_connector *conn, const struct sc_plugin_step *step,
                             uint64_t first, uint64_t end, uint64_t rows)
{
    uint64_t count = 0;
    for (; first < end; first = extent_end(conn, step, first, end, rows))
        count++;
    return count;
}

/* Begins the pass's extents from shared_end, where the chain is, to `end`. */
static spec_status begin_saves(spec_connector *conn, struct sc_plugin_request *request,
                               struct sc_chain *chain, uint64_t end, struct spec_error *reterr)
{
    struct sc_plugin_step *step = &request->step;
    spec_status status = SPEC_OK;
    for (uint64_t first = step->shared_end; first < end;) {
        uint64_t next = extent_end(conn, step, first, end, step->rows_most);
        status = sc_plugin_save_begin(conn, request, NULL, chain, first, next - first,
                                      &request->pass[request->pass_saves], reterr);
        if (status != SPEC_OK)
            break;
        request->pass_saves++;
        step->begun_parts++;
        step->begun_end = first = next;
    }
    return status;
}

/* Returns true if the configuration wants nothing of the pass, or a failed range made it void
 * (which get_important reported). */
static bool is_unwanted(const spec_connector *conn, const struct sc_plugin_request *request,
                        uint64_t token_count)
{
    return conn->config.preset == SC_PRESET_RECOMPUTE ||
           token_count < conn->config.store_min_tokens || request->failed_position != UINT64_MAX;
}

/* Refuses tokens from `first` on. A later pass may begin there; it searches the index again. */
static void refuse_from(struct sc_plugin_request *request, uint64_t first,
                        enum sc_plugin_refusal why)
{
    request->present_hint = UINT64_MAX;
    if (first >= request->refused_from)
        return;
    request->refused_from = first;
    request->refused_by = why;
}

/* Abandons the open pass: no later layer is packed; unended saves from `from` on are discarded. */
static void give_pass_up(spec_connector *conn, struct sc_plugin_request *request, uint64_t from,
                         spec_status why)
{
    sc_plugin_shared_leave(conn, request, request->pass + from, request->pass_saves - from, why);
    sc_plugin_recurrent_give_up(conn, request, why);
    request->pass_status = why;
}

/* Abandons the pass's saves from `from` on, and its states; earlier saves continue. */
static void cut_pass(spec_connector *conn, struct sc_plugin_request *request, uint64_t from,
                     spec_status why)
{
    if (from == 0) {
        give_pass_up(conn, request, 0, why);
        return;
    }
    struct sc_plugin_save **cut = request->pass + from;
    uint64_t count = request->pass_saves - from, end = cut[0]->first;
    sc_plugin_shared_leave(conn, request, cut, count, why);
    sc_plugin_recurrent_give_up(conn, request, why);
    sc_plugin_saves_leave(conn, request, cut, count, false);
    request->pass_saves = from;
    refuse_from(request, end, SC_REFUSED_STAGING);
}

/* Releases the pass's saves: it is abandoned, or has its last layer. */
static void let_saves_go(spec_connector *conn, struct sc_plugin_request *request)
{
    sc_plugin_shared_leave(conn, request, request->pass, request->pass_saves, SPEC_E_DROPPED);
    sc_plugin_saves_leave(conn, request, request->pass, request->pass_saves,
                          request->pass_status == SPEC_OK);
    request->pass_saves = 0;
}

void sc_plugin_pass_end(spec_connector *conn, struct sc_plugin_request *request)
{
    let_saves_go(conn, request);
    sc_plugin_recurrent_let_go(conn, request);
    sc_plugin_pass_unpin(conn, request);
}

/* Returns true if the request may store what it computes on its deliveries. */
static bool is_good_enough(const spec_connector *conn, const struct sc_plugin_request *request,
                           const struct spec_provenance *delivered)
{
    uint32_t match = request->provenance.kind;
    return sc_plugin_provenance_may_be_stored(conn,
                                              match > delivered->kind ? match : delivered->kind);
}

static void count_dropped(spec_connector *conn, uint64_t first, uint64_t end)
{
    sc_count(&conn->stats.dropped_chunks, sc_plugin_chunk_count(conn, first, end));
}

void sc_plugin_pass_unpin(spec_connector *conn, struct sc_plugin_request *request)
{
    struct sc_radix_ref none = {0};
    if (memcmp(&request->pass_present, &none, sizeof(none)) == 0)
        return;
    sc_radix_unpin(conn->radix, request->pass_present);
    request->pass_present = none;
    sc_plugin_unpinned(conn);
}

/* Returns where unstored tokens begin, and pins what is stored before until the pass ends. A
 * request may compute more than it was promised. The commit decides finally. */
static uint64_t find_present(spec_connector *conn, struct sc_plugin_request *request)
{
    const struct spec_store_params *params = &request->step.params;
    uint64_t first = params->first_token, known = request->token_count + params->tokens_count;
    uint32_t kind = request->provenance.kind, delivered = request->step.delivered.kind;
    if (first >= request->present_hint)
        return first;
    if (params->tokens_count > 0) /* behind known tokens: no other thread reads there */
        memcpy(request->tokens + request->token_count, params->tokens,
               params->tokens_count * sizeof(uint32_t));
    struct sc_radix_query query = sc_plugin_query_of(request);
    struct sc_radix_match match = {0};
    query.token_count = first + params->token_count < known ? first + params->token_count : known;
    query.flags_end = (kind > delivered ? kind : delivered) + 1;
    sc_radix_match_pin(conn->radix, &query, NULL, 0, &match);
    request->pass_present = match.last;
    if (match.token_count > first)
        return match.token_count;
    sc_plugin_pass_unpin(conn, request);
    request->present_hint = first; /* commits find what others store meanwhile */
    return first;
}

spec_status sc_plugin_pass_plan(spec_connector *conn, struct sc_plugin_request *request,
                                struct spec_error *reterr)
{
    struct sc_plugin_step *step = &request->step;
    uint64_t first = step->params.first_token, count = step->params.token_count;
    step->is_good = is_good_enough(conn, request, &step->delivered);
    step->is_wanted = step->is_good && !is_unwanted(conn, request, count);
    step->is_bypassed = step->is_wanted && sc_plugin_is_bypassed(conn);
    step->is_wanted = step->is_wanted && !step->is_bypassed;
    /* States belong to the last token, so such a pass is stored whole or not at all. */
    step->is_over = step->is_wanted && (count == 0 || (step->is_cut && conn->states.count > 0));
    step->is_wanted = step->is_wanted && !step->is_over;
    step->present_end = step->is_wanted ? find_present(conn, request) : first;
    uint64_t left = first + count - step->present_end;
    step->rows_most = sc_plugin_save_rows_max(conn);
    step->tokens_most = UINT64_MAX;
    if (step->is_wanted)
        part_pass(conn, step, left);
    step->shared_end = step->begun_end = step->present_end;
    step->cut_count = 0;
    step->save_count = step->begun_parts = 0;
    uint64_t parts = SC_PLUGIN_PASS_SAVES + 1;                   /* one for what is not admitted */
    parts +=
        /* the maximum number of cuts */
        conn->states.count > 0 ? SC_PLUGIN_RECURRENT_SAVES : 0;
    request->pass_ticket = sc_plugin_ticket_take(conn, (uint32_t)parts);
    if (request->pass_ticket == 0) {
        sc_plugin_pass_unpin(conn, request);
        return sc_fail(reterr, SPEC_E_BUSY, "store: %u tickets were not asked for yet",
                       SC_LIMIT_TICKETS);
    }
    step->part_count = parts;
    return SPEC_OK;
}

void sc_plugin_pass_unplan(spec_connector *conn, struct sc_plugin_request *request)
{
    sc_plugin_pass_unpin(conn, request);
    sc_plugin_ticket_forget(conn, request->pass_ticket);
    sc_plugin_ticket_resolve_parts(conn, request->pass_ticket, request->step.part_count,
                                   SPEC_E_DROPPED);
}

static void count_refused(spec_connector *conn, enum sc_plugin_refusal why, uint64_t first,
                          uint64_t end)
{
    _Atomic uint64_t *const counts[] = {
        [SC_REFUSED_UNSEEN] = &conn->stats.unadmitted_chunks,
        [SC_REFUSED_ROOM] = &conn->stats.dropped_chunks,
        [SC_REFUSED_BUDGET] = &conn->stats.over_budget_chunks,
        [SC_REFUSED_STAGING] = &conn->stats.dropped_chunks,
        [SC_REFUSED_INTENDED] = &conn->stats.duplicate_chunks,
        [SC_REFUSED_BYPASS] = &conn->stats.bypassed_chunks,
    };
    sc_count(counts[why], sc_plugin_chunk_count(conn, first, end));
}

/* Returns the ticket's status for refused tokens. */
static spec_status refusal_status(const struct sc_plugin_request *request)
{
    return request->refused_by == SC_REFUSED_ROOM      ? SPEC_E_NO_SPACE
           : request->refused_by == SC_REFUSED_STAGING ? SPEC_E_BUSY
                                                       : SPEC_E_DROPPED;
}

/* Returns how many of `count` tokens would stay. With states: all with their states, or 0. */
static uint64_t room_admits(spec_connector *conn, const struct sc_plugin_request *request,
                            uint64_t first, uint64_t count)
{
    uint64_t states = conn->states.count > 0 ? sc_plugin_recurrent_rows(conn) : 0;
    uint64_t admitted = sc_plugin_evict_admits(conn, request, first, count + states);
    return admitted == count + states ? count : states > 0 ? 0 : admitted;
}

/* Returns true if another process that stores here is storing the pass's first chunk that no log
 * has. The rest depends on it, and is stored with the next pass of these tokens. */
static bool is_intended(spec_connector *conn, const struct sc_plugin_request *request,
                        const struct sc_chain *chain, uint64_t first)
{
    struct sc_chain at = *chain;
    uint64_t chunk = conn->config.chunk_tokens, end = first - first % chunk + chunk;
    if (!conn->ranks.is_member)
        return false;
    end = end < request->token_count ? end : request->token_count;
    sc_chain_extend(&at, request->tokens + first, end - first,
                    (struct sc_marks){request->marks, request->mark_count});
    return !sc_store_intend(conn->store, sc_chain_at(&at).lo);
}

/* Returns how many unstored tokens of the pass are stored: limited by admission, eviction, the
 * write budget and earlier refusals of this request. The rest is counted. With states: all or 0. */
static uint64_t pass_wanted(spec_connector *conn, struct sc_plugin_request *request,
                            const struct sc_chain *chain)
{
    uint64_t *held_bytes = &request->step.held_bytes;
    uint64_t first = request->step.shared_end;
    uint64_t pass_end = request->pass_first + request->pass_count;
    uint64_t end = pass_end;
    if (request->step.tokens_most < pass_end - first)
        end = first + request->step.tokens_most;
    uint64_t seen = sc_plugin_admit_tokens(conn, request, chain, first, end - first);
    bool has_before = first > request->pass_first; /* stored by now */
    if (first > request->refused_from && !has_before) {
        count_refused(conn, request->refused_by, first, pass_end);
        return 0;
    }
    if (seen > 0 && is_intended(conn, request, chain, first)) {
        count_refused(conn, SC_REFUSED_INTENDED, first, pass_end);
        refuse_from(request, first, SC_REFUSED_INTENDED);
        request->step.wanted_end = first;
        return 0;
    }
    uint64_t stay = seen > 0 ? room_admits(conn, request, first, seen) : 0, allowed = stay;
    if (allowed > 0 && conn->states.count == 0)
        allowed = sc_store_budget_take(conn->store, first, allowed, held_bytes);
    else if (allowed > 0 && !sc_store_budget_take_whole(
                                conn->store, allowed + sc_plugin_recurrent_rows(conn), held_bytes))
        allowed = 0; /* rows are useless without their states */
    count_refused(conn, SC_REFUSED_UNSEEN, first + seen, end);
    count_refused(conn, SC_REFUSED_ROOM, first + stay, first + seen);
    count_refused(conn, SC_REFUSED_BUDGET, first + allowed, first + stay);
    request->refused_by = allowed < stay ? SC_REFUSED_BUDGET
                          : stay < seen  ? SC_REFUSED_ROOM
                                         : SC_REFUSED_UNSEEN;
    request->refused_from = first + allowed < end ? first + allowed : UINT64_MAX;
    request->step.wanted_end = first + allowed;
    if (end < pass_end) {
        count_refused(conn, SC_REFUSED_STAGING, end, pass_end);
        refuse_from(request, end, SC_REFUSED_STAGING);
    }
    return allowed;
}

/* Joins saves of others and begins the rest of what is wanted. */
static spec_status begin_wanted(spec_connector *conn, struct sc_plugin_request *request,
                                struct spec_error *reterr)
{
    struct sc_plugin_step *step = &request->step;
    uint64_t pass_end = request->pass_first + request->pass_count;
    struct sc_chain chain;
    if (step->present_end > request->pass_first) /* all before it is stored */
        request->refused_from = UINT64_MAX;
    if (step->present_end == pass_end)
        return SPEC_OK;
    sc_chain_init(&chain, sc_radix_secret(conn->radix), &request->root, conn->config.chunk_tokens);
    sc_chain_extend(&chain, request->tokens, step->present_end,
                    (struct sc_marks){request->marks, request->mark_count});
    step->shared_end = sc_plugin_shared_join(conn, request, &chain, step->present_end,
                                             SC_PLUGIN_PASS_SAVES / 2, &step->begun_parts);
    step->begun_end = step->shared_end;
    if (step->shared_end > request->pass_first) /* or is being stored */
        request->refused_from = UINT64_MAX;
    if (step->shared_end == pass_end)
        return SPEC_OK;
    uint64_t count = pass_wanted(conn, request, &chain), end = step->shared_end + count;
    step->save_count = extent_count(conn, step, step->shared_end, end, step->rows_most);
    if (step->save_count + step->begun_parts > SC_PLUGIN_PASS_SAVES && step->cut_count > 0) {
        step->cut_count = 0;
        step->save_count = extent_count(conn, step, step->shared_end, end, step->rows_most);
    }
    if (step->save_count + step->begun_parts > SC_PLUGIN_PASS_SAVES)
        return sc_fail(reterr, SPEC_E_BUSY, "%" PRIu64 " extents at once, at most %u",
                       step->save_count + step->begun_parts, SC_PLUGIN_PASS_SAVES);
    if (count == 0 && request->pass_saves == 0)
        request->pass_status = /* nothing to pack */
            request->refused_by == SC_REFUSED_ROOM ? SPEC_E_NO_SPACE : SPEC_E_DROPPED;
    return begin_saves(conn, request, &chain, end, reterr);
}

/* Refuses the pass, and what follows it after the bypass. */
static void pass_bypass(spec_connector *conn, struct sc_plugin_request *request)
{
    uint64_t first = request->pass_first;
    count_refused(conn, SC_REFUSED_BYPASS, first, first + request->pass_count);
    refuse_from(request, first, SC_REFUSED_BYPASS);
}

/* Begins the states of a pass whose rows are all stored or being stored. Returns the status for
 * ticket parts without a save. */
static spec_status states_begin(spec_connector *conn, struct sc_plugin_request *request,
                                bool is_paused)
{
    struct spec_error why = {.struct_size = sizeof(why)};
    spec_status status = sc_plugin_recurrent_begin(conn, request, &why);
    bool asks = status == SPEC_E_NO_SPACE && request->pass_states != NULL; /* else it is refused */
    if (asks && !is_paused) /* the next pass's rows also use what is evicted */
        sc_plugin_evict_ask(conn, request,
                            request->pass_first + request->pass_count - request->step.present_end +
                                sc_plugin_recurrent_rows(conn));
    if (status != SPEC_OK && status != SPEC_E_DROPPED)
        sc_log_write_limited(&conn->log, &conn->saves.lost, sc_exec_now_ns(conn->exec),
                             SPEC_LOG_WARN, "store of states at token %" PRIu64 " given up: %s",
                             request->pass_first + request->pass_count, why.text);
    return sc_plugin_ticket_status(status);
}

/* A lack of space or of objects abandons the pass. */
void sc_plugin_pass_begin(spec_connector *conn, struct sc_plugin_request *request)
{
    const struct sc_plugin_step *step = &request->step;
    uint64_t first = step->params.first_token, count = step->params.token_count;
    request->pass_saves = 0;
    request->step.held_bytes = 0;
    request->step.wanted_end = first + count;
    request->pass_first = first;
    request->pass_count = count;
    request->pass_status = step->is_wanted ? SPEC_OK : SPEC_E_DROPPED; /* nothing to log */
    struct spec_error why = {.struct_size = sizeof(why)};
    bool is_paused = sc_store_is_paused(conn->store); /* its refusals are no lack of space */
    spec_status status = step->is_wanted ? begin_wanted(conn, request, &why) : SPEC_OK;
    if (!step->is_good)
        count_dropped(conn, first, first + count);
    if (step->is_cut)
        count_dropped(conn, step->is_over ? first : first + count, step->host_end);
    if (step->is_bypassed)
        pass_bypass(conn, request);
    sc_count(&conn->stats.duplicate_chunks, sc_plugin_chunk_count(conn, first, step->present_end));
    if (conn->states.count == 0) /* else rows alone are not found */
        sc_plugin_ticket_kept(conn, request->pass_ticket, step->present_end - first);
    if (status != SPEC_OK) {
        sc_log_write_limited(&conn->log, &conn->saves.lost, sc_exec_now_ns(conn->exec),
                             SPEC_LOG_WARN, "store of %" PRIu64 " tokens given up: %s", count,
                             why.text);
        count_dropped(conn, step->begun_end, step->wanted_end);
        if (step->begun_parts == 0)
            give_pass_up(conn, request, 0, sc_plugin_ticket_status(status));
        else
            refuse_from(request, step->begun_end, SC_REFUSED_STAGING);
        if (status == SPEC_E_NO_SPACE && !is_paused)
            sc_plugin_evict_ask(conn, request, step->wanted_end - step->shared_end);
    }
    /* Extents that were begun resolve their parts themselves. */
    status = sc_plugin_ticket_status(status);
    if (status == SPEC_OK)
        status = request->pass_status;
    if (status == SPEC_OK && request->refused_from != UINT64_MAX)
        status = refusal_status(request);
    if (step->is_over || (step->is_cut && status == SPEC_OK))
        status = SPEC_E_BUSY;
    if (status == SPEC_OK && conn->states.count > 0)
        status = states_begin(conn, request, is_paused);
    uint64_t saves = step->begun_parts + sc_plugin_recurrent_saves(request);
    sc_plugin_ticket_resolve_parts(conn, request->pass_ticket, step->part_count - saves, status);
    sc_store_budget_give(conn->store, request->step.held_bytes); /* its extents have taken theirs */
}

/* Returns the store's layer that the step fills. */
static uint32_t step_layer(const spec_connector *conn, const struct sc_plugin_request *request)
{
    return conn->states.is_alone ? 0 : sc_plugin_row_layer(conn, request->step.params.layer);
}

struct pack_source {
    const spec_connector *conn;
    uint64_t first; /* the memory's token that is the extent's row 0 */
    uint64_t wait_until_ns;
    struct sc_kernels_move how;
};

static void pack_rows(void *user, uint32_t part, uint64_t row_first, uint64_t row_count,
                      uint8_t *dst)
{
    const struct pack_source *source = user;
    struct sc_kernels_move how = source->how;
    uint64_t first = source->first + row_first;
    if (part == SC_STORE_PART_ROW) {
        sc_kernels_rows_pack(&how, first, row_count, dst);
        return;
    }
    if (part == SC_STORE_PART_PROBE)
        how.head_count =
            sc_store_probe_row_bytes(source->conn->store) / (how.head_size * how.element_bytes);
    sc_kernels_part_pack(&how, part == SC_STORE_PART_V ? 1 : 0, first, row_count, dst);
}

static void pack_blank(void *user, uint32_t part, uint64_t row_first, uint64_t row_count,
                       uint8_t *dst)
{
    const struct pack_source *source = user;
    (void)part;
    (void)row_first;
    memset(dst, 0, row_count * source->conn->dims.row_bytes);
}

static void source_spans(void *user, uint64_t row, uint64_t count, uint8_t **ret_spans)
{
    const struct pack_source *source = user;
    sc_kernels_rows_spans(&source->how, source->first + row, count, ret_spans);
}

/* Uses non-temporal stores if faster: only the device and quantisation read them soon. */
static struct sc_store_source source_of(struct pack_source *source, uint32_t layer)
{
    const struct sc_kernels_memory *memory = source->how.memory;
    if (source->conn->states.is_alone)
        return (struct sc_store_source){
            .pack = pack_blank, .user = source, .wait_until_ns = source->wait_until_ns};
    source->how = sc_plugin_move_of(sc_plugin_shape_of(source->conn, layer));
    source->how.kernels = source->conn->kernels;
    source->how.memory = memory;
    uint64_t span_bytes = sc_kernels_spans_bytes(&source->how);
    bool moves = sc_nt_copy_is_faster() && span_bytes > 0 &&
                 source->conn->dims.row_bytes / span_bytes <= SC_STORE_SPANS_MAX;
    return (struct sc_store_source){.pack = pack_rows,
                                    .spans = moves ? source_spans : NULL,
                                    .span_bytes = span_bytes,
                                    .rows_least = sc_kernels_rows_together(source->how.memory),
                                    .wait_until_ns = source->wait_until_ns,
                                    .user = source};
}

/* Puts one layer of a save, directly or by the queue. */
static spec_status put_taken(spec_connector *conn, struct sc_plugin_request *request,
                             struct sc_plugin_save *save, enum sc_plugin_putter putter,
                             struct spec_error *reterr)
{
    uint32_t layer = step_layer(conn, request);
    struct pack_source from = {.conn = conn,
                               .wait_until_ns = request->step.wait_until_ns,
                               .how.memory = &request->step.memory.at,
                               .first = save->first - request->pass_first};
    const struct sc_store_source source = source_of(&from, layer);
    if (putter == SC_PUTTER_HOST)
        return sc_plugin_save_put_layer(conn, save, layer, &source, reterr);
    const struct sc_plugin_layer queued = {&request->step.memory, from.how, from.first, layer};
    return sc_plugin_queue_put(conn, request, save, &queued, reterr);
}

/* Puts one layer of a save unless another request has. After an error the save has ended, or
 * continues without this request. */
static spec_status put_layer(spec_connector *conn, struct sc_plugin_request *request,
                             struct sc_plugin_save *save, struct spec_error *reterr)
{
    spec_status why;
    enum sc_plugin_putter putter = sc_plugin_shared_tick(
        conn, request, save, step_layer(conn, request), &request->step.memory, &why);
    if (putter == SC_PUTTER_OTHER)
        return SPEC_OK;
    if (putter == SC_PUTTER_NONE)
        return sc_fail(reterr, why, "an earlier layer did not come");
    spec_status status = put_taken(conn, request, save, putter, reterr);
    bool is_untouched = status != SPEC_OK && putter == SC_PUTTER_QUEUE;
    if (is_untouched && sc_plugin_shared_hand_back(conn, request, save))
        return status;
    sc_plugin_shared_packed(conn, save);
    if (status != SPEC_OK)
        sc_plugin_save_give_up(conn, save, sc_plugin_ticket_status(status));
    return status;
}

void sc_plugin_pass_judge(spec_connector *conn, struct sc_plugin_request *request)
{
    if (request->pass_status != SPEC_OK || is_good_enough(conn, request, &request->delivered))
        return;
    give_pass_up(conn, request, 0, SPEC_E_DROPPED);
    let_saves_go(conn, request);
}

void sc_plugin_pass_put(spec_connector *conn, struct sc_plugin_request *request)
{
    uint32_t layer = step_layer(conn, request);
    bool last = layer + 1 == conn->dims.layer_count;
    for (uint64_t i = 0; i < request->pass_saves && request->pass_status == SPEC_OK; i++) {
        struct spec_error why = {.struct_size = sizeof(why)};
        spec_status status = put_layer(conn, request, request->pass[i], &why);
        if (status == SPEC_OK)
            continue;
        sc_log_write_limited(&conn->log, &conn->saves.lost, sc_exec_now_ns(conn->exec),
                             SPEC_LOG_WARN, "store of layer %" PRIu32 " given up: %s", layer,
                             why.text);
        cut_pass(conn, request, i, sc_plugin_ticket_status(status));
    }
    bool is_over = last && conn->states.count == 0; /* else layers without rows may follow */
    if (is_over || request->pass_status != SPEC_OK)
        let_saves_go(conn, request);
}

/* Forgets the pass's tokens: the step may be repeated with others, and no commit reads these. */
void sc_plugin_pass_abort(spec_connector *conn, struct sc_plugin_request *request)
{
    if (request->pass_layer == 0)
        return;
    if (request->pass_status == SPEC_OK)
        give_pass_up(conn, request, 0, SPEC_E_DROPPED);
    sc_plugin_pass_end(conn, request);
    sc_plugin_ticket_forget(conn, request->pass_ticket);
    request->token_count = request->pass_known;
    request->host_tokens = request->pass_host;
    request->pass_layer = 0;
    sc_count(&conn->stats.aborted_stores, 1);
}

void sc_plugin_pass_void(spec_connector *conn, struct sc_plugin_request *request)
{
    if (request->pass_layer > 0 && request->pass_status == SPEC_OK)
        give_pass_up(conn, request, 0, SPEC_E_DROPPED);
}
