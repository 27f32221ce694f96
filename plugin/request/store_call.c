/* store_call: the store call: for each of several requests, one layer of a pass.
 *
 *   params[0 .. count)  -> all checked: its place in the request's pass, its memory, its ticket
 *                       -> then each is taken: ids, extents (layer 0), rows
 *
 * Invariants: an error has changed nothing, in any request of the call. All checks precede the
 * first copy; later failures (space, objects) drop passes, not the call.
 * Threads: the requests' host thread.
 * Tests: conformance (abi_080_* .. abi_091_*, abi_169_*, abi_181_*, abi_182_*) */
#include "plugin/args/args.h"
#include "plugin/args/handle.h"
#include "plugin/args/provenance.h"
#include "plugin/args/request_memory.h"
#include "plugin/connector.h"
#include "plugin/device/h2d_batch.h"
#include "plugin/request/requests.h"
#include "plugin/save/save_recurrent.h"

#include <string.h>

/* Checks that this is the pass's next layer, with the host's range of layer 0: cuts at a limit may
 * differ between layers. */
static spec_status check_pass(const spec_connector *conn, const struct sc_plugin_request *request,
                              const struct spec_store_params *params, struct spec_error *reterr)
{
    if (params->layer != request->pass_layer)
        return sc_fail(reterr, SPEC_E_INVALID,
                       "store: layer is %" PRIu32 ", expected %" PRIu32 " (layers ascend by one)",
                       params->layer, request->pass_layer);
    uint64_t pass_count = request->pass_host_end - request->pass_first;
    if (params->layer > 0 &&
        (params->first_token != request->pass_first || params->token_count != pass_count))
        return sc_fail(reterr, SPEC_E_INVALID,
                       "store: layer %" PRIu32 " has range %" PRIu64 " + %" PRIu64
                       ", layer 0 had %" PRIu64 " + %" PRIu64,
                       params->layer, params->first_token, params->token_count, request->pass_first,
                       pass_count);
    if (params->layer >= sc_plugin_layers_named(conn))
        return sc_fail(reterr, SPEC_E_INVALID, "store: the model has %" PRIu32 " layers",
                       sc_plugin_layers_named(conn));
    if (params->layer == 0 && params->first_token > request->stored_end)
        return sc_fail(reterr, SPEC_E_INVALID,
                       "store: the range begins at %" PRIu64 ", rows end at %" PRIu64,
                       params->first_token, request->stored_end);
    return SPEC_OK;
}

/* Checks the tokens and the range against the tokens that the host counts. */
static spec_status check_tokens(const struct sc_plugin_request *request,
                                const struct spec_store_params *params, struct spec_error *reterr)
{
    if (params->tokens == NULL && params->tokens_count != 0)
        return sc_fail(reterr, SPEC_E_INVALID, "store: tokens is NULL with a count");
    if (params->tokens_count > SC_LIMIT_REQUEST_TOKENS)
        return sc_fail(reterr, SPEC_E_INVALID, "store: %" PRIu64 " tokens, at most %u",
                       params->tokens_count, SC_LIMIT_REQUEST_TOKENS);
    if (params->tokens_count > 0 &&
        (request->host_tokens < params->first_token ||
         request->host_tokens - params->first_token >= params->token_count))
        return sc_fail(reterr, SPEC_E_INVALID,
                       "store: tokens begin at position %" PRIu64
                       ", expected inside the range %" PRIu64 " + %" PRIu64,
                       request->host_tokens, params->first_token, params->token_count);
    uint64_t known = request->host_tokens + params->tokens_count;
    if (params->token_count == 0 || params->first_token > known ||
        params->token_count > known - params->first_token)
        return sc_fail(reterr, SPEC_E_INVALID,
                       "store: range %" PRIu64 " + %" PRIu64 " is not inside the %" PRIu64
                       " known tokens",
                       params->first_token, params->token_count, known);
    return SPEC_OK;
}

/* Cuts the range and its new tokens to what the request knows: less than all if the prompt was cut,
 * or if the tokens exceed max_request_tokens or the memory. Rows after the cut are not stored. */
static void cut_to_limit(spec_connector *conn, struct sc_plugin_request *request,
                         struct spec_store_params *params)
{
    bool is_whole = request->token_count == request->host_tokens;
    uint64_t room = is_whole ? sc_plugin_request_room(conn, request, params->tokens_count) : 0;
    if (params->tokens_count > room)
        params->tokens_count = room;
    uint64_t known = request->token_count + params->tokens_count;
    uint64_t most = known > params->first_token ? known - params->first_token : 0;
    if (params->token_count > most)
        params->token_count = most;
}

/* Returns what the pass is computed on: what was delivered, what was delivered ahead and never
 * refined, and what the host says. The request's later passes see these rows, too. */
static struct spec_provenance computed_on(const struct sc_plugin_request *request,
                                          const struct spec_store_params *params)
{
    struct spec_provenance said = {.kind = params->computed_on, .computed_on = params->computed_on};
    struct spec_provenance worst = request->delivered;
    sc_plugin_provenance_computed(request, params->layer, &worst);
    sc_plugin_provenance_add(&worst, &said);
    return worst;
}

static spec_status check_memory(spec_connector *conn, const struct spec_store_params *params,
                                struct sc_plugin_request *request, struct spec_error *reterr)
{
    struct sc_plugin_memory *memory = &request->step.memory;
    if (sc_plugin_keeps_recurrent(conn, params->layer))
        return sc_plugin_recurrent_memory(conn, params->layer, "store: memory", params->memory,
                                          memory, reterr);
    uint32_t layer = sc_plugin_row_layer(conn, params->layer);
    const struct sc_plugin_memory_need need = {
        "store: memory", SC_MEMORY_SOURCE, sc_plugin_shape_of(conn, layer), params->token_count};
    struct sc_plugin_device_seat seat = {&conn->device, (uint64_t)(request - conn->requests.slots)};
    const struct sc_plugin_memory_way way = {sc_plugin_h2d_batch_check, &seat};
    return sc_plugin_memory_check_on(params->memory, &need, &way, memory, reterr);
}

static spec_status check_step(spec_connector *conn, const struct spec_store_params *params,
                              struct sc_plugin_request *request, struct spec_error *reterr)
{
    struct sc_plugin_step *step = &request->step;
    if (step->is_named)
        return sc_fail(reterr, SPEC_E_INVALID,
                       "store: request %#" PRIx64 " stands in the call twice", params->request);
    spec_status status = check_tokens(request, params, reterr);
    if (status != SPEC_OK)
        return status;
    status = check_pass(conn, request, params, reterr);
    if (status != SPEC_OK)
        return status;
    struct spec_store_params cut = *params;
    cut_to_limit(conn, request, &cut);
    status = check_memory(conn, &cut, request, reterr);
    if (status != SPEC_OK)
        return status;
    step->params = cut;
    step->is_cut = cut.token_count < params->token_count;
    step->host_tokens = request->host_tokens + params->tokens_count;
    step->host_end = params->first_token + params->token_count;
    step->delivered = computed_on(request, params);
    if (params->layer == 0)
        status = sc_plugin_pass_plan(conn, request, reterr);
    step->is_named = status == SPEC_OK;
    return status;
}

static spec_status check_one(spec_connector *conn, struct sc_plugin_visit *visit,
                             const struct spec_store_params *host_params, uint64_t i,
                             struct sc_plugin_request **ret_request, struct spec_error *reterr)
{
    struct spec_store_params params;
    spec_status status = sc_plugin_args_read_at(&params, &sc_plugin_form_store, host_params, i,
                                                "store: params", reterr);
    if (status != SPEC_OK)
        return status;
    if ((params.flags & ~(SPEC_STORE_LATER | SPEC_STORE_WAIT)) != 0)
        return sc_fail(reterr, SPEC_E_INVALID,
                       "store: flags is %#" PRIx32 ", SPEC_STORE_* expected", params.flags);
    if (params.wait_ns != 0 && (params.flags & SPEC_STORE_WAIT) == 0)
        return sc_fail(reterr, SPEC_E_INVALID, "store: wait_ns without SPEC_STORE_WAIT");
    if (params.computed_on > SPEC_PROVENANCE_PRUNED)
        return sc_fail(reterr, SPEC_E_INVALID,
                       "store: computed_on is %" PRIu32 ", expected SPEC_PROVENANCE_*",
                       params.computed_on);
    status = sc_plugin_request_enter(conn, visit, params.request, ret_request, reterr);
    return status == SPEC_OK ? check_step(conn, &params, *ret_request, reterr) : status;
}

static void steps_forget(spec_connector *conn, struct sc_plugin_request *const *requests,
                         uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        if (requests[i]->step.params.layer == 0)
            sc_plugin_pass_unplan(conn, requests[i]);
        requests[i]->step.is_named = false;
    }
}

static void take_tokens(struct sc_plugin_request *request)
{
    const struct spec_store_params *params = &request->step.params;
    uint64_t known_before = request->token_count, host_before = request->host_tokens;
    if (params->tokens_count > 0)
        memcpy(request->tokens + request->token_count, params->tokens,
               params->tokens_count * sizeof(uint32_t));
    request->token_count += params->tokens_count;
    request->host_tokens = request->step.host_tokens;
    request->delivered = request->step.delivered;
    if (params->layer > 0)
        return;
    request->pass_known = known_before;
    request->pass_host = host_before;
    request->pass_host_end = request->step.host_end;
}

/* Stores the step. Returns the pass's ticket with its last layer, else 0. */
static spec_ticket put_step(spec_connector *conn, struct sc_plugin_request *request)
{
    struct sc_plugin_step *step = &request->step;
    const struct spec_store_params *params = &step->params;
    bool is_last = params->layer + 1 == sc_plugin_layers_named(conn);
    sc_plugin_pass_judge(conn, request);
    if (sc_plugin_keeps_recurrent(conn, params->layer))
        sc_plugin_recurrent_put(conn, request);
    if (!sc_plugin_keeps_recurrent(conn, params->layer) || (conn->states.is_alone && is_last))
        sc_plugin_pass_put(conn, request);
    request->pass_layer = params->layer + 1;
    step->is_named = false;
    if (!is_last)
        return 0;
    request->pass_layer = 0;
    sc_plugin_pass_end(conn, request);
    request->stored_end = step->host_end;
    return request->pass_ticket;
}

/* Takes the checked steps; nothing fails any more. */
static void take_steps(spec_connector *conn, struct sc_plugin_request *const *requests,
                       uint64_t count, uint64_t begin_ns)
{
    for (uint64_t i = 0; i < count; i++) {
        struct sc_plugin_step *step = &requests[i]->step;
        uint64_t wait_ns = step->params.wait_ns;
        step->wait_until_ns = 0;
        if (wait_ns > 0)
            step->wait_until_ns =
                wait_ns < SC_EXEC_FOREVER - begin_ns ? begin_ns + wait_ns : SC_EXEC_FOREVER;
        take_tokens(requests[i]);
    }
    sc_plugin_shared_part(conn, requests, count);
    for (uint64_t i = 0; i < count; i++)
        if (requests[i]->step.params.layer == 0)
            sc_plugin_pass_begin(conn, requests[i]);
}

static spec_status store_steps(spec_connector *conn, struct sc_plugin_visit *visit,
                               const struct spec_store_params *params, uint64_t count,
                               spec_ticket *ret_tickets, struct spec_error *reterr)
{
    if (params == NULL || count == 0 || count > SC_LIMIT_BATCH)
        return sc_fail(reterr, SPEC_E_INVALID, "store: 1 .. %u params expected", SC_LIMIT_BATCH);
    if (!sc_plugin_can_store(conn))
        return sc_fail(reterr, SPEC_E_UNSUPPORTED, "store: this process is a reader");
    uint64_t begin_ns = sc_exec_now_ns(conn->exec);
    struct sc_plugin_request *requests[SC_LIMIT_BATCH]; /* looked up once: a reset may happen */
    for (uint64_t i = 0; i < count; i++) {
        spec_status status = check_one(conn, visit, params, i, &requests[i], reterr);
        if (status != SPEC_OK) {
            steps_forget(conn, requests, i);
            return status;
        }
    }
    take_steps(conn, requests, count, begin_ns);
    for (uint64_t i = 0; i < count; i++) {
        spec_ticket ticket = put_step(conn, requests[i]);
        if (ret_tickets != NULL)
            ret_tickets[i] = ticket;
        else if (ticket != 0)
            sc_plugin_ticket_forget(conn, ticket);
    }
    sc_plugin_load_policy_step(conn, requests, count, begin_ns);
    return SPEC_OK;
}

spec_status sc_plugin_store(spec_connector *conn, const struct spec_store_params *params,
                            uint64_t count, spec_ticket *ret_tickets, struct spec_error *reterr)
{
    struct sc_plugin_visit visit = {NULL};
    spec_status status = store_steps(conn, &visit, params, count, ret_tickets, reterr);
    sc_plugin_visit_end(conn, &visit);
    return status;
}

spec_status sc_plugin_store_abort(spec_connector *conn, spec_request handle, uint64_t from_token,
                                  struct spec_error *reterr)
{
    struct sc_plugin_visit visit = {NULL};
    struct sc_plugin_request *request;
    spec_status status = sc_plugin_request_enter(conn, &visit, handle, &request, reterr);
    if (status == SPEC_OK && request->pass_layer > 0 && from_token < request->pass_host_end)
        sc_plugin_pass_abort(conn, request);
    sc_plugin_visit_end(conn, &visit);
    return status;
}
