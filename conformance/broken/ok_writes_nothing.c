/* A connector that says yes to everything, claims every prompt, and writes no row anywhere. The
 * suite must catch it at every clause that promises data.
 *
 * Holds: results look right (state, counts, positions, tickets); rows are never written or kept.
 * Does not: check arguments.
 * Threads: any; a counter for handles is all there is. Tests: conformance/broken/test_broken.py */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "abi/spec_connector.h"

#define REQUESTS 65536u

struct claim {
    uint64_t from_token, matched_tokens;
};

struct spec_connector {
    _Atomic uint64_t handles;
    uint32_t layer_count;
    struct claim claims[REQUESTS];
};

static spec_status open_ok(const struct spec_open_params *params, spec_connector **ret_conn,
                           struct spec_error *reterr)
{
    (void)reterr;
    *ret_conn = calloc(1, sizeof(**ret_conn));
    if (*ret_conn == NULL)
        return SPEC_E_NO_MEMORY;
    (*ret_conn)->layer_count = params->model->layer_count;
    return SPEC_OK;
}

static void close_ok(spec_connector *conn)
{
    free(conn);
}

static spec_status lookup_ok(spec_connector *conn, const struct spec_lookup_params *params,
                             struct spec_lookup_result *ret_result, struct spec_error *reterr)
{
    (void)reterr;
    uint64_t handle = atomic_fetch_add(&conn->handles, 1) + 1;
    uint64_t matched = params->max_tokens != 0 ? params->max_tokens : params->token_count - 1;
    if (params->multiple_of > 1)
        matched -= matched % params->multiple_of;
    if (matched < params->from_token)
        matched = params->from_token;
    conn->claims[handle % REQUESTS] = (struct claim){params->from_token, matched};
    *ret_result = (struct spec_lookup_result){
        .struct_size = ret_result->struct_size,
        .state = matched > params->from_token ? SPEC_LOOKUP_HIT : SPEC_LOOKUP_MISS,
        .request = handle,
        .matched_tokens = matched,
        .tier_bytes = {[SPEC_TIER_DISK] = matched - params->from_token}};
    return SPEC_OK;
}

static spec_status begin_layer_ok(spec_connector *conn, const spec_request *requests,
                                  uint64_t count, uint32_t layer, struct spec_error *reterr)
{
    (void)conn, (void)requests, (void)count, (void)layer, (void)reterr;
    return SPEC_OK;
}

static spec_status get_important_ok(spec_connector *conn, struct spec_important *items,
                                    uint64_t count, struct spec_error *reterr)
{
    (void)reterr;
    for (uint64_t i = 0; i < count; i++) {
        const struct claim *claim = &conn->claims[items[i].request % REQUESTS];
        memset(&items[i].status, 0, sizeof(items[i]) - offsetof(struct spec_important, status));
        items[i].row_count = items[i].exact_rows = items[i].tier_rows[SPEC_TIER_DISK] =
            claim->matched_tokens - claim->from_token;
        items[i].next_position = claim->matched_tokens;
        items[i].failed_position = UINT64_MAX;
        for (uint64_t j = 0; items[i].positions != NULL && j < items[i].row_count; j++)
            items[i].positions[j] = (uint32_t)(claim->from_token + j);
    }
    return SPEC_OK;
}

static spec_status prefetch_ok(spec_connector *conn, spec_request request, uint32_t layer,
                               const struct spec_queries *hint, struct spec_error *reterr)
{
    (void)conn, (void)request, (void)layer, (void)hint, (void)reterr;
    return SPEC_OK;
}

static spec_status store_ok(spec_connector *conn, const struct spec_store_params *params,
                            uint64_t count, spec_ticket *ret_tickets, struct spec_error *reterr)
{
    (void)reterr;
    for (uint64_t i = 0; i < count && ret_tickets != NULL; i++)
        ret_tickets[i] =
            params[i].layer + 1 == conn->layer_count ? atomic_fetch_add(&conn->handles, 1) + 1 : 0;
    return SPEC_OK;
}

static spec_status request_ok(spec_connector *conn, spec_request request, struct spec_error *reterr)
{
    (void)conn, (void)request, (void)reterr;
    return SPEC_OK;
}

static spec_status store_abort_ok(spec_connector *conn, spec_request request, uint64_t from_token,
                                  struct spec_error *reterr)
{
    (void)from_token;
    return request_ok(conn, request, reterr);
}

static spec_status poll_ok(spec_connector *conn, const spec_ticket *tickets, uint64_t count,
                           spec_status *ret_statuses, struct spec_error *reterr)
{
    (void)conn, (void)tickets, (void)reterr;
    for (uint64_t i = 0; i < count; i++)
        ret_statuses[i] = SPEC_OK;
    return SPEC_OK;
}

static spec_status wait_ok(spec_connector *conn, const spec_ticket *tickets, uint64_t count,
                           uint64_t timeout_ns, spec_status *ret_statuses,
                           struct spec_error *reterr)
{
    (void)timeout_ns;
    return poll_ok(conn, tickets, count, ret_statuses, reterr);
}

static spec_status stats_ok(spec_connector *conn, struct spec_stats *ret_stats,
                            struct spec_error *reterr)
{
    (void)conn, (void)reterr;
    *ret_stats = (struct spec_stats){.struct_size = ret_stats->struct_size};
    return SPEC_OK;
}

static spec_status stage_ok(spec_connector *conn, const struct spec_prefetch_to_host_params *params,
                            spec_ticket *ret_ticket, struct spec_error *reterr)
{
    (void)conn, (void)params, (void)ret_ticket, (void)reterr;
    return SPEC_OK;
}

static spec_status attach_ok(spec_connector *conn, const struct spec_attach_params *params,
                             struct spec_lookup_result *ret_result, struct spec_error *reterr)
{
    (void)conn, (void)params, (void)ret_result, (void)reterr;
    return SPEC_OK;
}

static spec_status next_chunk_ok(spec_connector *conn, struct spec_next_chunk *chunk,
                                 struct spec_error *reterr)
{
    (void)conn, (void)chunk, (void)reterr;
    return SPEC_OK;
}

static spec_status submit_ok(spec_connector *conn, struct spec_important *items, uint64_t count,
                             spec_ticket *ret_ticket, struct spec_error *reterr)
{
    (void)conn, (void)items, (void)count, (void)ret_ticket, (void)reterr;
    return SPEC_OK;
}

static spec_status important_wait_ok(spec_connector *conn, spec_ticket ticket, uint64_t timeout_ns,
                                     struct spec_error *reterr)
{
    (void)timeout_ns;
    return request_ok(conn, ticket, reterr);
}

static spec_status reset_ok(spec_connector *conn, struct spec_error *reterr)
{
    return request_ok(conn, 1, reterr);
}

static spec_status maintain_ok(spec_connector *conn, const struct spec_maintain_params *params,
                               struct spec_error *reterr)
{
    (void)params;
    return request_ok(conn, 1, reterr);
}

static const struct spec_api API = {
    .struct_size = sizeof(struct spec_api),
    .major = SPEC_ABI_MAJOR,
    .minor = SPEC_ABI_MINOR,
    .open = open_ok,
    .close = close_ok,
    .lookup = lookup_ok,
    .prefetch_to_host = stage_ok,
    .attach = attach_ok,
    .next_chunk = next_chunk_ok,
    .begin_layer = begin_layer_ok,
    .get_important = get_important_ok,
    .get_important_submit = submit_ok,
    .get_important_wait = important_wait_ok,
    .prefetch_next = prefetch_ok,
    .store = store_ok,
    .store_abort = store_abort_ok,
    .poll = poll_ok,
    .wait = wait_ok,
    .release = request_ok,
    .reset = reset_ok,
    .stats = stats_ok,
    .maintain = maintain_ok,
};

const struct spec_api *spec_connector_api(uint32_t major)
{
    return major == SPEC_ABI_MAJOR ? &API : NULL;
}
