/* lookup: finds the pinned match of token ids, and the ranges of pieces that hold its rows.
 *
 *   tokens --root, marks--> radix match (lock-free, pinned) --cut--> [from_token, matched) ranges
 *                           the other ranks' indexes        --cut-^  + a lease, by time
 *
 *   peek: the same up to the lease, in a slot without a handle; everything is released again
 *
 * Invariants: allocates nothing, takes no writer's lock, does no I/O. A lease ends before its
 * pieces can be reused: the time is read before the index. A peek ends as a request does: if
 * something waits for pins, it posts a job, which takes a lock briefly. A match that is being
 * staged is PENDING (host_prefetch.c, which takes its lock briefly). During a bypass
 * (plugin/index/bypass.h), and for a salt being erased (erase.h beside it), the index is not read:
 * a request is made, with a miss.
 * Threads: any.
 * Tests: conformance (abi_020_* .. abi_027_*, abi_177_*, abi_178_*, abi_209_*),
 * tests/unit/plugin/test_lookup.c */
#include "plugin/args/args.h"
#include "plugin/args/handle.h"
#include "plugin/args/lease.h"
#include "plugin/args/provenance.h"
#include "plugin/args/request_memory.h"
#include "plugin/connector.h"
#include "plugin/load/bidirectional.h"
#include "plugin/load/load_recurrent.h"
#include "plugin/load_or_compute/tiers.h"
#include "plugin/request/requests.h"
#include "plugin/select/budget.h"
#include "plugin/select/delivery.h"
#include "plugin/select/item.h"
#include "plugin/select/prefetch.h"
#include "plugin/select/select.h"

#include <string.h>

#define KEYS_TOGETHER_MAX 16u /* extra keys that begin at one token */

static spec_status check_bytes(const struct spec_bytes *bytes, const char *name,
                               struct spec_error *reterr)
{
    if (bytes->data == NULL && bytes->byte_count > 0)
        return sc_fail(reterr, SPEC_E_INVALID, "lookup: %s has a size and no data", name);
    if (bytes->byte_count > SC_LIMIT_KEY_BYTES)
        return sc_fail(reterr, SPEC_E_INVALID, "lookup: %s has %" PRIu64 " bytes, at most %u", name,
                       bytes->byte_count, SC_LIMIT_KEY_BYTES);
    return SPEC_OK;
}

static spec_status check_params(const struct spec_lookup_params *params, struct spec_error *reterr)
{
    if (params->tokens == NULL || params->token_count == 0)
        return sc_fail(reterr, SPEC_E_INVALID, "lookup: no tokens, expected at least one");
    if (params->flags & ~(SPEC_LOOKUP_REQUIRE_EXACT | SPEC_LOOKUP_PEEK))
        return sc_fail(reterr, SPEC_E_INVALID, "lookup: unknown flags %#" PRIx32, params->flags);
    if (params->from_token > params->token_count)
        return sc_fail(reterr, SPEC_E_INVALID,
                       "lookup: from_token %" PRIu64 " is behind the %" PRIu64 " tokens",
                       params->from_token, params->token_count);
    if (params->max_tokens > params->token_count)
        return sc_fail(reterr, SPEC_E_INVALID,
                       "lookup: max_tokens %" PRIu64 " is more than the %" PRIu64 " tokens",
                       params->max_tokens, params->token_count);
    if (params->priority < -SC_RADIX_PRIORITY_MAX || params->priority > SC_RADIX_PRIORITY_MAX)
        return sc_fail(reterr, SPEC_E_INVALID,
                       "lookup: priority is %" PRId64 ", expected -%d .. %d", params->priority,
                       SC_RADIX_PRIORITY_MAX, SC_RADIX_PRIORITY_MAX);
    spec_status status = check_bytes(&params->salt, "salt", reterr);
    return status != SPEC_OK ? status : check_bytes(&params->lora, "lora", reterr);
}

/* Reads element i of the host's extra keys, which are struct_size apart. */
static spec_status read_extra_key(const struct spec_lookup_params *params, uint64_t i,
                                  struct spec_extra_key *ret_key, struct spec_error *reterr)
{
    spec_status status = sc_plugin_args_read_at(
        ret_key, &sc_plugin_form_extra_key, params->extra_keys, i, "lookup: extra_keys", reterr);
    if (status != SPEC_OK)
        return status;
    if (ret_key->first_token >= params->token_count)
        return sc_fail(reterr, SPEC_E_INVALID,
                       "lookup: extra_keys[%" PRIu64 "] begins at token %" PRIu64 " of %" PRIu64, i,
                       ret_key->first_token, params->token_count);
    return check_bytes(&ret_key->value, "extra key's value", reterr);
}

/* Cuts the request before the token whose keys do not fit, and drops a mark that was begun
 * there. */
static void cut_at_key(struct sc_plugin_request *request, uint64_t first_token, bool is_next)
{
    request->mark_count -= !is_next;
    request->token_count = first_token;
}

/* Folds the keys that begin at one token into a mark, key after key. Keys after the request's last
 * token are checked and ignored. */
static spec_status read_marks(const struct spec_lookup_params *params,
                              struct sc_plugin_request *request, struct spec_error *reterr)
{
    request->mark_count = 0;
    if (params->extra_key_count > 0 && params->extra_keys == NULL)
        return sc_fail(reterr, SPEC_E_INVALID, "lookup: extra_keys is NULL with a count");
    struct sc_chain_key group[KEYS_TOGETHER_MAX];
    struct sc_mark folded[KEYS_TOGETHER_MAX]; /* scratch: one per key of a mark */
    uint64_t group_count = 0, before = 0;
    for (uint64_t i = 0; i < params->extra_key_count; i++) {
        struct spec_extra_key key;
        spec_status status = read_extra_key(params, i, &key, reterr);
        if (status != SPEC_OK)
            return status;
        if (key.first_token < before)
            return sc_fail(reterr, SPEC_E_INVALID,
                           "lookup: extra_keys[%" PRIu64 "] is not ascending", i);
        before = key.first_token;
        if (key.first_token >= request->token_count)
            continue;
        bool is_next = group_count == 0 || key.first_token != group[0].first_token;
        if (is_next ? request->mark_count == SC_PLUGIN_MARKS : group_count == KEYS_TOGETHER_MAX) {
            cut_at_key(request, key.first_token, is_next);
            continue;
        }
        group_count = is_next ? 0 : group_count;
        request->mark_count += is_next;
        group[group_count++] = (struct sc_chain_key){.kind = key.kind,
                                                     .first_token = key.first_token,
                                                     .token_count = key.token_count,
                                                     .value = key.value.data,
                                                     .value_bytes = key.value.byte_count};
        sc_chain_marks(group, group_count, folded);
        request->marks[request->mark_count - 1] = folded[0];
    }
    sc_plugin_marks_stored((struct sc_marks){request->marks, request->mark_count},
                           request->store_marks);
    return SPEC_OK;
}

static uint64_t position_least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static bool is_peek(const struct spec_lookup_params *params)
{
    return (params->flags & SPEC_LOOKUP_PEEK) != 0;
}

/* Returns where a match of a model with states ends, with its branch pinned there. Sets *end to the
 * last place with states; the result is that or, if the load policy cuts below it and prefers so,
 * the last place up to the cut. */
static uint64_t cut_at_branch(spec_connector *conn, const struct spec_lookup_params *params,
                              struct sc_plugin_request *request, const struct sc_radix_query *query,
                              uint64_t *end)
{
    uint64_t multiple = params->multiple_of;
    struct spec_provenance before = request->provenance; /* ranks add the branch's provenance */
    *end = sc_plugin_recurrent_cut(conn, request, query, *end, multiple);
    uint64_t n = sc_plugin_load_policy_split(conn, request, query->tokens, *end, multiple);
    if (n >= *end)
        return n;
    sc_plugin_recurrent_unpin(conn, request);
    request->provenance = before;
    uint64_t low = sc_plugin_recurrent_cut(conn, request, query, n, multiple);
    if (sc_plugin_load_policy_choose(conn, request, query->tokens, low, *end, multiple) == low)
        return low;
    sc_plugin_recurrent_unpin(conn, request);
    request->provenance = before;
    return sc_plugin_recurrent_cut(conn, request, query, *end, multiple);
}

/* Cuts the match. stored_tokens: by capacity and the other ranks. matched_tokens: also by the
 * host's limits and the load policy; the host has the rows before from_token itself. */
static void cut_match(spec_connector *conn, const struct spec_lookup_params *params,
                      struct sc_plugin_request *request, const struct sc_radix_query *query,
                      const struct sc_radix_match *match)
{
    uint64_t end = match->token_count;
    if (match->segment_count > request->segment_capacity) {
        const struct sc_radix_segment *last = &request->segments[request->segment_capacity - 1];
        end = last->first + last->count;
    }
    end = sc_plugin_peers_match(conn, query, end);
    request->stored_tokens = end;
    end =
        position_least(end, params->max_tokens != 0 ? params->max_tokens : params->token_count - 1);
    if (params->multiple_of > 1)
        end -= end % params->multiple_of;
    uint64_t n = conn->states.count > 0 ? cut_at_branch(conn, params, request, query, &end)
                                        : sc_plugin_load_policy_split(conn, request, query->tokens,
                                                                      end, params->multiple_of);
    sc_plugin_load_policy_count(conn, end, n);
    request->matched_tokens = n > request->from_token ? n : request->from_token;
}

/* Adds the provenance of the whole match: rows that are loaded were computed on those that are
 * not. */
static void add_worth(const spec_connector *conn, struct sc_plugin_request *request)
{
    uint64_t end = request->matched_tokens > request->from_token ? request->matched_tokens : 0;
    for (uint64_t i = 0, at = 0; at < end; i++) {
        const struct sc_radix_segment *segment = &request->segments[i];
        if (segment->value.flags != SPEC_PROVENANCE_EXACT)
            sc_plugin_provenance_add_piece(&request->provenance, conn->store, segment->value.piece);
        at = segment->first + segment->count;
    }
    if (end > 0)
        (void)sc_plugin_recurrent_worth(conn, request, &request->provenance);
}

/* Turns segments into the ranges of [from_token, matched_tokens). */
static void make_ranges(const spec_connector *conn, struct sc_plugin_request *request)
{
    struct spec_provenance none = {0};
    uint64_t piece_last = sc_plugin_recurrent_worth(conn, request, &none);
    request->range_count = 0;
    for (uint64_t i = 0; request->matched_tokens > request->from_token; i++) {
        const struct sc_radix_segment *segment = &request->segments[i];
        if (segment->first >= request->matched_tokens)
            break;
        uint64_t end = segment->first + segment->count;
        uint64_t last = end < request->matched_tokens ? end : request->matched_tokens;
        uint64_t first =
            segment->first > request->from_token ? segment->first : request->from_token;
        piece_last = segment->value.piece > piece_last ? segment->value.piece : piece_last;
        if (last > first)
            request->ranges[request->range_count++] = (struct sc_store_range){
                .piece = segment->value.piece,
                .row_first = (uint32_t)(segment->value.row_first + (first - segment->first)),
                .row_count = (uint32_t)(last - first)};
        if (end >= request->matched_tokens)
            break;
    }
    atomic_store(&request->piece_last, piece_last);
}

/* Encodes the promise as a lease: the match's last piece and its place, for other processes. */
static void make_lease(const spec_connector *conn, const struct sc_plugin_request *request,
                       const struct sc_radix_query *query, struct sc_plugin_promise *promise)
{
    uint64_t last = 0;
    while (request->segments[last].first + request->segments[last].count < request->matched_tokens)
        last++;
    struct sc_plugin_lease lease = {.piece = request->segments[last].value.piece,
                                    .expiry_ns = promise->expiry_ns,
                                    .rank = conn->ranks.rank,
                                    .epoch_bits = (uint32_t)request->epoch};
    sc_radix_place_of(conn->radix, query, request->segments, last + 1, request->matched_tokens,
                      &lease.place);
    sc_plugin_lease_encode(&lease, atomic_load(&conn->ranks.lease_seed), promise->lease);
}

static void match_request(spec_connector *conn, const struct spec_lookup_params *params,
                          bool promises_none, struct sc_plugin_request *request,
                          struct sc_plugin_promise *ret_promise)
{
    uint64_t promise_end = promises_none ? 0 : sc_plugin_promise_end(conn); /* 0: none possible */
    bool exact = (params->flags & SPEC_LOOKUP_REQUIRE_EXACT) != 0;
    struct sc_radix_match match = {0};
    request->pinned = (struct sc_radix_ref){0};
    request->matched_tokens = request->from_token;
    request->stored_tokens = 0;
    request->provenance = (struct spec_provenance){0};
    request->requires_exact = exact;
    if (conn->config.preset == SC_PRESET_RECOMPUTE || promise_end == 0) {
        sc_plugin_request_match_cut(conn, request, 0);
        return;
    }
    struct sc_radix_query query = sc_plugin_query_of(request);
    query.tokens = is_peek(params) ? params->tokens : request->tokens;
    query.flags_end = exact ? SPEC_PROVENANCE_LOSSY : 0;
    query.hint = sc_plugin_hint_of(conn, request);
    sc_radix_match_pin(conn->radix, &query, request->segments, request->segment_capacity, &match);
    sc_plugin_request_match_cut(conn, request, match.segment_count);
    if (match.token_count == 0)
        return;
    request->pinned = match.last;
    sc_plugin_uses_add(conn, request, SC_PLUGIN_USE_MATCH, match.last_piece);
    cut_match(conn, params, request, &query, &match);
    if (atomic_load(&conn->epoch) != request->epoch ||
        sc_plugin_erase_covers(conn, request)) {       /* reset or erased meanwhile: the */
        request->matched_tokens = request->from_token; /* request is stale and promises nothing */
        request->stored_tokens = 0;
    }
    if (request->matched_tokens == request->from_token)
        return;
    if (!exact)
        sc_plugin_peers_provenance(conn, &query, request->matched_tokens, &request->provenance);
    if (promise_end == UINT64_MAX)
        return;
    ret_promise->expiry_ns = promise_end;
    make_lease(conn, request, &query, ret_promise);
}

static void write_result(spec_connector *conn, const struct sc_plugin_request *request,
                         spec_request handle, const struct sc_plugin_promise *promise,
                         struct spec_lookup_result *ret_result)
{
    uint64_t rows = sc_plugin_row_total(request);
    struct spec_lookup_result result = {
        .state = rows > 0 ? SPEC_LOOKUP_HIT : SPEC_LOOKUP_MISS,
        .request = handle,
        .matched_tokens = request->matched_tokens,
        .provenance = request->provenance,
        .lease_expiry_ns = promise->expiry_ns,
        .stored_tokens = request->stored_tokens,
    };
    sc_plugin_tier_bytes(conn, request, request->from_token, rows > 0 ? request->matched_tokens : 0,
                         result.tier_bytes);
    result.load_ns = sc_plugin_load_ns(conn, result.tier_bytes);
    memcpy(result.lease, promise->lease, sizeof(result.lease));
    sc_plugin_args_write(ret_result, &result, sizeof(result));
}

void sc_plugin_request_open(spec_connector *conn, struct sc_plugin_request *request,
                            spec_request handle, const struct sc_plugin_promise *promise,
                            struct spec_lookup_result *ret_result)
{
    add_worth(conn, request);
    make_ranges(conn, request);
    atomic_store(&request->submission, 0);
    request->failed_position = UINT64_MAX;
    request->failed_status = SPEC_OK;
    request->delivered = request->ahead = (struct spec_provenance){0};
    memset(request->unrefined, 0, sizeof(request->unrefined));
    request->pass_layer = 0;
    request->pass_saves = 0;
    request->stored_end = request->stored_tokens > request->matched_tokens
                              ? request->stored_tokens
                              : request->matched_tokens;
    request->refused_from = UINT64_MAX;
    request->is_short = sc_plugin_match_is_short(conn, request);
    sc_count(&conn->stats.requests_open, 1);
    sc_plugin_bidirectional_forget(request);
    sc_plugin_load_policy_forget(request);
    sc_plugin_prefetch_forget(request);
    sc_plugin_deliveries_forget(request);
    if (request->range_count > 0 && conn->choice.can_select &&
        conn->config.load_policy != SC_LOAD_POLICY_BIDIRECTIONAL)
        for (uint32_t layer = 0; layer < SC_PLUGIN_AHEAD && layer < conn->dims.layer_count; layer++)
            sc_plugin_select_ahead(conn, request, layer, false);
    write_result(conn, request, handle, promise, ret_result);
    /* Last: from here on a call that guesses the handle may use or release the request. */
    atomic_store_explicit(&request->gate, sc_plugin_gate_of(handle >> 32, SC_REQUEST_OPEN),
                          memory_order_release);
}

/* Computes the request's root. A reader that has found no store has no secret and matches
 * nothing. */
static void find_root(const spec_connector *conn, const struct spec_lookup_params *params,
                      struct sc_plugin_request *request)
{
    const struct sc_chain_secret *secret = sc_radix_secret(conn->radix);
    const struct sc_chain_scope scope = {.family = conn->family,
                                         .epoch = request->epoch,
                                         .salt = params->salt.data,
                                         .salt_bytes = params->salt.byte_count,
                                         .lora = params->lora.data,
                                         .lora_bytes = params->lora.byte_count};
    request->salt = sc_plugin_salt(conn, &params->salt);
    request->root = (struct sc_sha256){{0}};
    if (secret != NULL)
        request->root = sc_chain_root(secret, &scope);
}

static void count_lookup(spec_connector *conn, const struct sc_plugin_request *request)
{
    uint64_t rows = sc_plugin_row_total(request);
    sc_count(&conn->stats.lookups, 1);
    sc_count(&conn->stats.lookup_hits, rows > 0);
    sc_count(&conn->stats.lookup_tokens, request->token_count);
    sc_count(&conn->stats.matched_tokens, rows);
}

/* Frees the slot without a request for the host. */
static void let_go(spec_connector *conn, struct sc_plugin_request *request)
{
    sc_plugin_request_unpin(conn, request);
    sc_plugin_request_unhold(request);
}

/* Writes the result of a peek while its match is pinned, then frees the slot. */
static void write_peek(spec_connector *conn, struct sc_plugin_request *request,
                       const struct sc_plugin_promise *promise,
                       struct spec_lookup_result *ret_result)
{
    add_worth(conn, request);
    write_result(conn, request, 0, promise, ret_result);
    let_go(conn, request);
}

/* Writes PENDING: the match is being read into host memory, and the host asks again. */
static void write_pending(spec_connector *conn, struct sc_plugin_request *request,
                          struct spec_lookup_result *ret_result)
{
    struct spec_lookup_result result = {.state = SPEC_LOOKUP_PENDING,
                                        .matched_tokens = request->from_token,
                                        .stored_tokens = request->stored_tokens};
    sc_count(&conn->stats.lookups, 1);
    sc_plugin_args_write(ret_result, &result, sizeof(result));
    let_go(conn, request);
}

static struct sc_plugin_request *take_slot(spec_connector *conn,
                                           const struct spec_lookup_params *params,
                                           spec_request *ret_handle, struct spec_error *reterr)
{
    struct sc_plugin_request *request = is_peek(params) ? sc_plugin_request_take_peek(conn)
                                                        : sc_plugin_request_take(conn, ret_handle);
    if (request == NULL && is_peek(params))
        (void)sc_fail(reterr, SPEC_E_BUSY, "lookup: %u peeks run at the moment", SC_PLUGIN_PEEKS);
    else if (request == NULL)
        (void)sc_fail(reterr, SPEC_E_BUSY,
                      "lookup: all %" PRIu32 " requests (max_requests) are open",
                      conn->config.max_requests);
    return request;
}

spec_status sc_plugin_lookup(spec_connector *conn, const struct spec_lookup_params *host_params,
                             struct spec_lookup_result *ret_result, struct spec_error *reterr)
{
    struct spec_lookup_params params;
    spec_status status =
        sc_plugin_args_read(&params, &sc_plugin_form_lookup, host_params, "lookup: params", reterr);
    if (status == SPEC_OK)
        status = sc_plugin_args_check_output(ret_result, &sc_plugin_form_lookup_result,
                                             "lookup: ret_result", reterr);
    if (status == SPEC_OK)
        status = check_params(&params, reterr);
    if (status != SPEC_OK)
        return status;
    spec_request handle;
    struct sc_plugin_request *request = take_slot(conn, &params, &handle, reterr);
    if (request == NULL)
        return SPEC_E_BUSY;
    request->host_tokens = params.token_count;
    request->token_count = position_least(params.token_count, conn->config.max_request_tokens);
    status = read_marks(&params, request, reterr);
    if (status == SPEC_OK &&
        !sc_plugin_request_memory_take(conn, request, request->token_count, is_peek(&params)))
        status = sc_plugin_request_memory_busy(conn, "lookup", reterr);
    if (status != SPEC_OK) {
        request->pinned = (struct sc_radix_ref){0};
        sc_plugin_request_unhold(request);
        return status;
    }
    if (!is_peek(&params))
        memcpy(request->tokens, params.tokens, request->token_count * sizeof(uint32_t));
    request->from_token = params.from_token;
    request->retain_s = params.retain_s;
    request->priority = (int32_t)params.priority;
    request->epoch = atomic_load(&conn->epoch);
    request->erasures = atomic_load(&conn->erasures.heard);
    struct sc_plugin_promise promise = {0};
    bool is_bypassed = sc_plugin_is_bypassed(conn);
    find_root(conn, &params, request);
    bool is_erased = sc_store_erases(conn->store, &request->salt);
    match_request(conn, &params, is_bypassed || is_erased, request, &promise);
    if (sc_plugin_host_prefetch_covers(conn, request)) {
        write_pending(conn, request, ret_result);
        return SPEC_OK;
    }
    if (!is_peek(&params) && !sc_plugin_request_choice_take(conn, request)) {
        let_go(conn, request);
        return sc_plugin_request_memory_busy(conn, "lookup", reterr);
    }
    /* During a bypass more may be stored than was promised. */
    request->present_hint = is_bypassed ? UINT64_MAX : request->stored_tokens;
    sc_count(&conn->stats.bypassed_lookups, is_bypassed);
    count_lookup(conn, request);
    if (is_peek(&params))
        write_peek(conn, request, &promise, ret_result);
    else
        sc_plugin_request_open(conn, request, handle, &promise, ret_result);
    return SPEC_OK;
}
