/* save_recurrent: stores recurrent states from host memory in a branch's extents.
 *
 *   store(S layer) -> the rows of its layer of the store -> packed once all states of it are there
 *
 * A pass's extents and its branch's begin together and commit in that order: the parent is
 * committed first. Contract: save_recurrent.h. */
#include "plugin/save/save_recurrent.h"

#include "plugin/connector.h"
#include "plugin/save/queue.h"

#include <string.h>

/* Concurrent passes that store states; others store rows alone. They fit into a quarter of
 * staging_bytes and the extents for states; one is always allowed. */
#define PASSES_MAX   16u
#define PASSES_SHARE 4u

/* Returns the minimum extents of a branch, wherever its pass ends. */
static uint64_t extents_least(const spec_connector *conn)
{
    return sc_plugin_save_count(conn, conn->config.chunk_tokens - 1, sc_plugin_recurrent_rows(conn),
                                sc_plugin_save_rows_max(conn));
}

/* ---- Open and close -------------------------------------------------------------------------- */

static spec_status passes_make(spec_connector *conn, uint32_t count, struct spec_error *reterr)
{
    struct sc_plugin_recurrent *states = &conn->states;
    struct sc_alloc *alloc = &conn->alloc;
    uint64_t branch = sc_plugin_recurrent_rows(conn), row_bytes = conn->dims.row_bytes;
    uint64_t tokens = conn->config.max_request_tokens + branch, marks = SC_PLUGIN_MARKS + 1;
    states->passes = sc_alloc_array(alloc, count, sizeof(*states->passes));
    if (states->passes == NULL)
        return sc_fail(reterr, SPEC_E_NO_MEMORY, "%" PRIu32 " passes with states", count);
    states->pass_count = count;
    struct sc_plugin_recurrent_pass *first = &states->passes[0];
    first->tokens = sc_alloc(alloc, count * tokens * sizeof(*first->tokens));
    first->marks = sc_alloc(alloc, count * marks * sizeof(*first->marks));
    first->store_marks = sc_alloc(alloc, count * marks * sizeof(*first->store_marks));
    first->rows = sc_alloc(alloc, count * branch * row_bytes);
    if (first->tokens == NULL || first->marks == NULL || first->store_marks == NULL ||
        first->rows == NULL)
        return sc_fail(reterr, SPEC_E_NO_MEMORY,
                       "%" PRIu32 " passes with states of %" PRIu64 " bytes", count,
                       branch * row_bytes);
    for (uint32_t i = 0; i < count; i++) {
        struct sc_plugin_recurrent_pass *pass = &states->passes[i];
        pass->tokens = first->tokens + i * tokens;
        pass->marks = first->marks + i * marks;
        pass->store_marks = first->store_marks + i * marks;
        pass->rows = first->rows + i * branch * row_bytes;
        pass->next = states->free;
        states->free = pass;
    }
    return SPEC_OK;
}

/* Returns the extents that fit into `frames` frames of staging for a layer of layer_bytes: each has
 * one partly filled frame besides the full ones. */
static uint64_t saves_in(const spec_connector *conn, uint64_t frames, uint64_t layer_bytes)
{
    uint64_t full = layer_bytes / sc_store_op_bytes(conn->store);
    uint64_t left = frames > full ? frames - full : 0;
    return left < SC_PLUGIN_RECURRENT_SAVES ? left : SC_PLUGIN_RECURRENT_SAVES;
}

spec_status sc_plugin_recurrent_saves_open(spec_connector *conn, struct spec_error *reterr)
{
    const struct sc_config *config = &conn->config;
    if (conn->states.count == 0 || !sc_plugin_may_store(conn))
        return SPEC_OK;
    uint64_t each = sc_plugin_recurrent_rows(conn) * conn->dims.row_bytes;
    uint64_t passes = config->staging_bytes / PASSES_SHARE / each;
    passes = passes < PASSES_MAX ? passes : PASSES_MAX;
    passes = passes < config->max_requests ? passes : config->max_requests;
    /* The other half holds the previous layer, still being written. */
    uint64_t frames = config->staging_bytes / sc_store_op_bytes(conn->store);
    uint64_t least = extents_least(conn), most = saves_in(conn, frames / 2, each);
    if (least > most)
        return sc_fail(reterr, SPEC_E_INVALID,
                       "model: its states are %" PRIu64 " rows of %" PRIu64 " bytes, %" PRIu64
                       " extents; there is room for %" PRIu64
                       " in a half of staging_bytes %" PRIu64,
                       sc_plugin_recurrent_rows(conn), conn->dims.row_bytes, least, most,
                       config->staging_bytes);
    passes =
        passes < SC_PLUGIN_RECURRENT_EXTENTS / least ? passes : SC_PLUGIN_RECURRENT_EXTENTS / least;
    passes = passes > 0 ? passes : 1;
    most = saves_in(conn, frames / PASSES_SHARE, each); /* beside those of the pass's rows */
    most =
        most < SC_PLUGIN_RECURRENT_EXTENTS / passes ? most : SC_PLUGIN_RECURRENT_EXTENTS / passes;
    conn->states.saves_max = most > least ? most : least;
    return passes_make(conn, (uint32_t)passes, reterr);
}

void sc_plugin_recurrent_saves_close(spec_connector *conn)
{
    struct sc_plugin_recurrent *states = &conn->states;
    if (states->passes != NULL) { /* the first has all of each */
        sc_alloc_free(&conn->alloc, states->passes[0].tokens);
        sc_alloc_free(&conn->alloc, states->passes[0].marks);
        sc_alloc_free(&conn->alloc, states->passes[0].store_marks);
        sc_alloc_free(&conn->alloc, states->passes[0].rows);
    }
    sc_alloc_free(&conn->alloc, states->passes);
}

uint64_t sc_plugin_recurrent_saves(const struct sc_plugin_request *request)
{
    return request->pass_states != NULL ? request->pass_states->save_count : 0;
}

/* ---- Passes ---------------------------------------------------------------------------------- */

static struct sc_plugin_recurrent_pass *pass_take(spec_connector *conn)
{
    sc_plugin_lock(conn, &conn->saves.lock);
    struct sc_plugin_recurrent_pass *pass = conn->states.free;
    if (pass != NULL) {
        conn->states.free = pass->next;
        pass->refs = 1;
    }
    pthread_mutex_unlock(&conn->saves.lock);
    if (pass != NULL) {
        pass->save_count = 0;
        pass->is_given_up = false;
        pass->piece_last = 0; /* nothing is committed for it yet */
    }
    return pass;
}

/* Copies the request's tokens up to the pass's end, then appends the branch's. */
static void text_make(const spec_connector *conn, const struct sc_plugin_request *request,
                      struct sc_plugin_recurrent_pass *pass)
{
    uint64_t rows = sc_plugin_recurrent_rows(conn), marks = 0;
    pass->first = request->pass_first + request->pass_count;
    memcpy(pass->tokens, request->tokens, pass->first * sizeof(*pass->tokens));
    for (uint64_t i = 0; i + 1 < rows; i++)
        pass->tokens[pass->first + i] = SC_PLUGIN_RECURRENT_TOKEN;
    pass->tokens[pass->first + rows - 1] = SC_PLUGIN_RECURRENT_TOKEN_END;
    for (; marks < request->mark_count && request->marks[marks].token < pass->first; marks++)
        pass->marks[marks] = request->marks[marks];
    pass->marks[marks] = (struct sc_mark){pass->first, conn->states.mark};
    pass->text = (struct sc_plugin_text){.tokens = pass->tokens,
                                         .token_count = pass->first + rows,
                                         .marks = {pass->marks, marks + 1},
                                         .store_marks = pass->store_marks};
    sc_plugin_marks_stored(pass->text.marks, pass->store_marks);
}

/* Returns true if that branch is indexed with no worse provenance. */
static bool is_there(spec_connector *conn, const struct sc_plugin_request *request,
                     const struct sc_plugin_recurrent_pass *pass)
{
    uint32_t kind = request->provenance.kind, delivered = request->delivered.kind;
    const struct sc_radix_query query = {.root = request->root,
                                         .tokens = pass->text.tokens,
                                         .token_count = pass->text.token_count,
                                         .marks = pass->text.marks,
                                         .flags_end = (kind > delivered ? kind : delivered) + 1};
    struct sc_radix_match match;
    sc_radix_match(conn->radix, &query, NULL, 0, &match);
    return match.token_count == query.token_count;
}

static spec_status saves_begin(spec_connector *conn, struct sc_plugin_request *request,
                               struct sc_plugin_recurrent_pass *pass, struct spec_error *reterr)
{
    uint64_t end = pass->text.token_count;
    uint64_t step = sc_plugin_save_rows(conn, end - pass->first, conn->states.saves_max);
    uint64_t chunk = conn->config.chunk_tokens;
    struct sc_chain chain;
    sc_chain_init(&chain, sc_radix_secret(conn->radix), &request->root, conn->config.chunk_tokens);
    sc_chain_extend(&chain, pass->tokens, pass->first, pass->text.marks);
    for (uint64_t first = pass->first, next; first < end; first = next) {
        next = first - first % chunk + step;
        next = next < end ? next : end;
        spec_status status = sc_plugin_save_begin(conn, request, pass, &chain, first, next - first,
                                                  &pass->saves[pass->save_count], reterr);
        if (status != SPEC_OK)
            return status;
        pass->save_count++;
        sc_plugin_lock(conn, &conn->saves.lock);
        pass->refs++;
        pthread_mutex_unlock(&conn->saves.lock);
    }
    return SPEC_OK;
}

spec_status sc_plugin_recurrent_begin(spec_connector *conn, struct sc_plugin_request *request,
                                      struct spec_error *reterr)
{
    struct sc_plugin_recurrent_pass *pass = pass_take(conn);
    if (pass == NULL)
        return sc_fail(reterr, SPEC_E_BUSY, "%" PRIu32 " passes store states already",
                       conn->states.pass_count);
    text_make(conn, request, pass);
    request->pass_states = pass;
    if (is_there(conn, request, pass)) { /* so are all of the pass's rows */
        sc_plugin_ticket_kept(conn, request->pass_ticket, request->pass_count);
        sc_plugin_recurrent_let_go(conn, request);
        return SPEC_OK;
    }
    uint64_t rows = sc_plugin_recurrent_rows(conn); /* those of a pass were admitted together */
    if (request->pass_saves == 0 &&
        sc_plugin_evict_admits(conn, request, pass->first, rows) < rows) {
        sc_count(&conn->stats.dropped_chunks,
                 sc_plugin_chunk_count(conn, pass->first, pass->text.token_count));
        sc_plugin_recurrent_let_go(conn, request);
        return sc_fail(reterr, SPEC_E_NO_SPACE, "all that is stored is to be evicted later");
    }
    uint64_t *held_bytes = &request->step.held_bytes; /* with rows they were taken together */
    if (*held_bytes == 0 && !sc_store_budget_take_whole(conn->store, rows, held_bytes)) {
        sc_count(&conn->stats.over_budget_chunks,
                 sc_plugin_chunk_count(conn, pass->first, pass->text.token_count));
        sc_plugin_recurrent_let_go(conn, request);
        return SPEC_E_DROPPED;
    }
    spec_status status = saves_begin(conn, request, pass, reterr);
    if (status != SPEC_OK)
        sc_plugin_recurrent_give_up(conn, request, sc_plugin_ticket_status(status));
    return status;
}

void sc_plugin_recurrent_give_up(spec_connector *conn, struct sc_plugin_request *request,
                                 spec_status why)
{
    struct sc_plugin_recurrent_pass *pass = request->pass_states;
    if (pass == NULL || pass->is_given_up)
        return;
    pass->is_given_up = true;
    sc_plugin_shared_leave(conn, request, pass->saves, pass->save_count, why);
}

void sc_plugin_recurrent_let_go(spec_connector *conn, struct sc_plugin_request *request)
{
    struct sc_plugin_recurrent_pass *pass = request->pass_states;
    request->pass_states = NULL;
    if (pass == NULL)
        return;
    sc_plugin_saves_leave(conn, request, pass->saves, pass->save_count,
                          request->pass_status == SPEC_OK);
    sc_plugin_recurrent_unref(conn, pass);
}

/* ---- Layers ---------------------------------------------------------------------------------- */

struct state_source {
    const uint8_t *rows; /* the layer's, from the extent's first on */
    uint64_t row_bytes;
};

static void pack_states(void *user, uint32_t part, uint64_t row_first, uint64_t row_count,
                        uint8_t *dst)
{
    const struct state_source *source = user;
    (void)part; /* whole rows: the layout is paired */
    memcpy(dst, source->rows + row_first * source->row_bytes, row_count * source->row_bytes);
}

/* Puts a complete layer of the store. */
static spec_status put_layer(spec_connector *conn, struct sc_plugin_request *request,
                             struct sc_plugin_recurrent_pass *pass, uint32_t layer,
                             struct spec_error *reterr)
{
    for (uint64_t i = 0; i < pass->save_count; i++) {
        struct sc_plugin_save *save = pass->saves[i];
        uint64_t row_bytes = conn->dims.row_bytes;
        struct state_source from = {pass->rows + (save->first - pass->first) * row_bytes,
                                    row_bytes};
        const struct sc_store_source source = {.pack = pack_states, .user = &from};
        spec_status why;
        if (sc_plugin_shared_tick(conn, request, save, layer, &request->step.memory, &why) !=
            SC_PUTTER_HOST)
            return sc_fail(reterr, why, "an earlier layer did not come");
        spec_status status = sc_plugin_save_put_layer(conn, save, layer, &source, reterr);
        sc_plugin_shared_packed(conn, save);
        if (status != SPEC_OK)
            return status;
    }
    return SPEC_OK;
}

void sc_plugin_recurrent_put(spec_connector *conn, struct sc_plugin_request *request)
{
    const struct sc_plugin_recurrent *states = &conn->states;
    struct sc_plugin_recurrent_pass *pass = request->pass_states;
    uint32_t named = request->step.params.layer, number = sc_plugin_recurrent_number(conn, named);
    uint64_t each = states->rows_each * conn->dims.row_bytes, at = number % states->together;
    uint64_t bytes = states->forms[named].state_bytes;
    bool is_last = number + 1 == states->count;
    if (pass == NULL || pass->is_given_up)
        return;
    memcpy(pass->rows + at * each, request->step.memory.at.k_base, bytes);
    memset(pass->rows + at * each + bytes, 0, each - bytes);
    if (at + 1 < states->together && !is_last)
        return;
    memset(pass->rows + (at + 1) * each, 0, (states->together - at - 1) * each);
    uint32_t layer = (uint32_t)(number / states->together);
    uint32_t end = is_last ? conn->dims.layer_count : layer + 1;
    spec_status status = SPEC_OK;
    struct spec_error why = {.struct_size = sizeof(why)};
    for (; layer < end && status == SPEC_OK; layer++) {
        status = put_layer(conn, request, pass, layer, &why);
        if (is_last) /* later layers have no state */
            memset(pass->rows, 0, states->together * each);
    }
    if (status == SPEC_OK)
        return;
    sc_log_write_limited(&conn->log, &conn->saves.lost, sc_exec_now_ns(conn->exec), SPEC_LOG_WARN,
                         "store of the state of layer %" PRIu32 " given up: %s", named, why.text);
    sc_plugin_recurrent_give_up(conn, request, sc_plugin_ticket_status(status));
}
