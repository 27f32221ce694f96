/* attach: makes a request of a lease from another process, by the piece that the lease names.
 *
 *   64 bytes --tag, expiry, epoch--> rank, piece, place
 *     own rank     --index.lock, sc_radix_attach--> tokens, marks, pieces, a pin
 *     other rank   --the peer's lock, sc_radix_recall in the index of its log--> tokens, marks
 *                  --sc_radix_match_pin in our index, by value--> pieces, a pin
 *
 * Invariants: only rows of the lease's tokens are delivered; a hash alone finds nothing. A lease of
 * pieces that this process's log has not delivered yet is PENDING; of lost pieces, STALE.
 * Threads: any; takes index.lock for the search, which no lookup waits for.
 * Tests: tests/unit/plugin/test_attach.c, tests/fault/test_processes.c */
#include "plugin/args/args.h"
#include "plugin/args/handle.h"
#include "plugin/args/lease.h"
#include "plugin/args/request_memory.h"
#include "plugin/connector.h"
#include "plugin/load/load_recurrent.h"
#include "plugin/request/requests.h"

#include <string.h>

static spec_status check_lease(const spec_connector *conn, const struct spec_attach_params *params,
                               uint64_t seed, struct sc_plugin_lease *ret_lease,
                               struct spec_error *reterr)
{
    if (!sc_plugin_lease_decode(params->lease.data, seed, ret_lease))
        return sc_fail(reterr, SPEC_E_INVALID,
                       "attach: the lease was altered, or is of another store or model");
    uint64_t length = ret_lease->place.length;
    if (params->from_token > length)
        return sc_fail(reterr, SPEC_E_INVALID,
                       "attach: from_token %" PRIu64 " is behind the lease's %" PRIu64 " tokens",
                       params->from_token, length);
    if (length > conn->config.max_request_tokens)
        return sc_fail(reterr, SPEC_E_BUSY,
                       "attach: %" PRIu64 " tokens, max_request_tokens is %" PRIu32, length,
                       conn->config.max_request_tokens);
    return SPEC_OK;
}

/* Returns true if our log may still deliver the run of a valid lease. Call it before the search of
 * the index, which has all that the log has delivered by then. */
static bool may_come(const spec_connector *conn, const struct sc_plugin_lease *lease)
{
    bool reads = sc_plugin_follows(conn);
    if (lease->rank == conn->ranks.rank) /* compacted pieces follow larger ids */
        return reads && (atomic_load(&conn->ranks.pieces_followed) <= lease->piece ||
                         sc_store_piece_is_left(conn->store, lease->piece));
    if (!sc_plugin_peer_has(conn, lease->rank, lease->piece))
        return lease->rank < conn->ranks.count;
    /* Every rank's log had it when the lease was given. */
    return reads && sc_store_follow_ns(conn->store) < lease->expiry_ns - conn->config.lease_ns_max;
}

static spec_status find_own(spec_connector *conn, const struct sc_plugin_lease *lease,
                            const struct sc_radix_room *room,
                            struct sc_radix_attached *ret_attached)
{
    struct sc_radix_claim claim = {.piece = lease->piece,
                                   .piece_first = sc_store_piece_first(conn->store, lease->piece),
                                   .place = lease->place};
    sc_plugin_lock(conn, &conn->index.lock);
    claim.run = sc_plugin_ref_of(sc_store_piece_mark(conn->store, lease->piece));
    claim.is_kept = sc_plugin_grace_entry_find(conn, claim.run); /* dropped, but kept for leases */
    spec_status status = sc_radix_attach(conn->radix, &claim, room, ret_attached, NULL);
    pthread_mutex_unlock(&conn->index.lock);
    return status;
}

/* Finds a lease of another rank, whose log has the piece's tokens. */
static spec_status find_other(spec_connector *conn, const struct sc_plugin_lease *lease,
                              const struct sc_radix_room *room,
                              struct sc_radix_attached *ret_attached)
{
    struct sc_radix_room theirs = *room;
    theirs.segments = NULL; /* their pieces are not ours */
    theirs.segment_capacity = 0;
    spec_status status = sc_plugin_peer_recall(conn, lease, &theirs, ret_attached);
    if (status != SPEC_OK || ret_attached->mark_count > room->mark_capacity)
        return SPEC_E_STALE;
    struct sc_radix_query query = {.root = ret_attached->root,
                                   .tokens = room->tokens,
                                   .token_count = lease->place.length,
                                   .marks = {room->marks, ret_attached->mark_count}};
    struct sc_radix_match *match = &ret_attached->match;
    sc_radix_match_pin(conn->radix, &query, room->segments, room->segment_capacity, match);
    if (match->token_count == lease->place.length)
        return SPEC_OK;
    sc_radix_unpin(conn->radix, match->last);
    return SPEC_E_STALE;
}

/* Errors: STALE, BUSY; PENDING if our log may still deliver it. */
static spec_status lease_find(spec_connector *conn, const struct sc_plugin_lease *lease,
                              struct sc_plugin_request *request,
                              struct sc_radix_attached *ret_attached, struct spec_error *reterr)
{
    struct sc_radix_room room = {.tokens = request->tokens,
                                 .token_capacity = request->token_capacity,
                                 .marks = request->marks,
                                 .mark_capacity = SC_PLUGIN_MARKS,
                                 .segments = request->segments,
                                 .segment_capacity = request->segment_capacity};
    bool is_to_come = may_come(conn, lease);
    spec_status status = lease->rank == conn->ranks.rank
                             ? find_own(conn, lease, &room, ret_attached)
                             : find_other(conn, lease, &room, ret_attached);
    if (status != SPEC_OK && is_to_come)
        return SPEC_PENDING;
    if (status != SPEC_OK)
        return sc_fail(reterr, SPEC_E_STALE,
                       "attach: the %" PRIu64 " tokens of the lease are not stored any more",
                       lease->place.length);
    if (ret_attached->match.segment_count <= request->segment_capacity &&
        ret_attached->mark_count <= SC_PLUGIN_MARKS)
        return SPEC_OK;
    sc_radix_unpin(conn->radix, ret_attached->match.last);
    return sc_fail(reterr, SPEC_E_BUSY,
                   "attach: %" PRIu64 " pieces and %" PRIu64 " extra keys, at most %" PRIu64
                   " and %u",
                   ret_attached->match.segment_count, ret_attached->mark_count,
                   request->segment_capacity, SC_PLUGIN_MARKS);
}

static void request_fill(struct sc_plugin_request *request, const struct sc_plugin_lease *lease,
                         const struct sc_radix_attached *attached, uint64_t from_token)
{
    request->token_count = request->host_tokens = lease->place.length;
    request->mark_count = attached->mark_count;
    sc_plugin_marks_stored((struct sc_marks){request->marks, request->mark_count},
                           request->store_marks);
    request->root = attached->root;
    request->provenance = (struct spec_provenance){0};
    request->requires_exact = false;
    request->pinned = attached->match.last;
    request->from_token = from_token;
    request->retain_s = 0;
    request->priority = 0;
    request->matched_tokens = request->stored_tokens = lease->place.length;
    request->present_hint = UINT64_MAX; /* more may be stored than was promised */
}

/* Attaches a valid lease of this epoch. Errors: STALE, BUSY; PENDING. */
static spec_status lease_attach(spec_connector *conn, const struct spec_attach_params *params,
                                const struct sc_plugin_lease *lease, uint64_t epoch,
                                struct spec_lookup_result *ret_result, struct spec_error *reterr)
{
    spec_request handle;
    struct sc_radix_attached attached;
    struct sc_plugin_request *request = sc_plugin_request_take(conn, &handle);
    if (request == NULL)
        return sc_fail(reterr, SPEC_E_BUSY,
                       "attach: all %" PRIu32 " requests (max_requests) are open",
                       conn->config.max_requests);
    request->pinned = (struct sc_radix_ref){0};
    request->epoch = epoch;
    request->erasures = atomic_load(&conn->erasures.heard);
    spec_status status = SPEC_OK;
    if (!sc_plugin_request_memory_take(conn, request, lease->place.length, false))
        status = sc_plugin_request_memory_busy(conn, "attach", reterr);
    if (status == SPEC_OK)
        status = lease_find(conn, lease, request, &attached, reterr);
    if (status != SPEC_OK) {
        sc_plugin_request_unhold(request);
        return status;
    }
    sc_plugin_request_match_cut(conn, request, attached.match.segment_count);
    request_fill(request, lease, &attached, params->from_token);
    sc_plugin_uses_add(conn, request, SC_PLUGIN_USE_MATCH, attached.match.last_piece);
    request->salt = sc_store_piece_salt(conn->store, attached.match.last_piece);
    if (sc_store_piece_is_erased(conn->store, attached.match.last_piece) ||
        sc_store_erases(conn->store, &request->salt)) {
        sc_plugin_request_unpin(conn, request);
        sc_plugin_request_unhold(request);
        return sc_fail(reterr, SPEC_E_STALE, "attach: the lease's tokens were erased");
    }
    struct sc_radix_query query = sc_plugin_query_of(request);
    if (conn->states.count > 0 && request->matched_tokens > request->from_token &&
        sc_plugin_recurrent_cut(conn, request, &query, request->matched_tokens, 1) !=
            request->matched_tokens) {
        sc_plugin_request_unpin(conn, request);
        sc_plugin_request_unhold(request);
        return sc_fail(reterr, SPEC_E_STALE,
                       "attach: the states at token %" PRIu64 " are not stored any more",
                       lease->place.length);
    }
    if (!sc_plugin_request_choice_take(conn, request)) {
        sc_plugin_request_unpin(conn, request);
        sc_plugin_request_unhold(request);
        return sc_plugin_request_memory_busy(conn, "attach", reterr);
    }
    sc_plugin_peers_provenance(conn, &query, request->matched_tokens, &request->provenance);
    struct sc_plugin_promise promise = {.expiry_ns = lease->expiry_ns};
    memcpy(promise.lease, params->lease.data, sizeof(promise.lease));
    sc_plugin_request_open(conn, request, handle, &promise, ret_result);
    return SPEC_OK;
}

static spec_status try_attach(spec_connector *conn, const struct spec_attach_params *params,
                              struct spec_lookup_result *ret_result, struct spec_error *reterr)
{
    struct sc_plugin_lease lease;
    uint64_t seed = atomic_load(&conn->ranks.lease_seed), epoch = atomic_load(&conn->epoch);
    bool is_bypassed = sc_plugin_is_bypassed(conn);
    if (seed == 0 && !is_bypassed)
        return SPEC_PENDING; /* no store yet, so no lease of it */
    spec_status status = seed != 0 ? check_lease(conn, params, seed, &lease, reterr) : SPEC_OK;
    if (status != SPEC_OK)
        return status;
    if (is_bypassed)
        return sc_fail(reterr, SPEC_E_STALE, "attach: the connector is bypassed");
    enum sc_plugin_lease_age age = sc_plugin_lease_age(&lease, epoch);
    if (sc_exec_wall_ns(conn->exec) >= lease.expiry_ns)
        return sc_fail(reterr, SPEC_E_STALE, "attach: the lease has expired");
    if (age == SC_LEASE_OLDER)
        return sc_fail(reterr, SPEC_E_STALE, "attach: the lease was given before a reset");
    if (age == SC_LEASE_NEWER)
        return SPEC_PENDING; /* the reset has not arrived yet */
    return lease_attach(conn, params, &lease, epoch, ret_result, reterr);
}

spec_status sc_plugin_attach(spec_connector *conn, const struct spec_attach_params *host_params,
                             struct spec_lookup_result *ret_result, struct spec_error *reterr)
{
    struct spec_attach_params params;
    spec_status status =
        sc_plugin_args_read(&params, &sc_plugin_form_attach, host_params, "attach: params", reterr);
    if (status == SPEC_OK)
        status = sc_plugin_args_check_output(ret_result, &sc_plugin_form_lookup_result,
                                             "attach: ret_result", reterr);
    if (status != SPEC_OK)
        return status;
    if (params.reserved != 0)
        return sc_fail(reterr, SPEC_E_INVALID, "attach: reserved must be 0");
    if (params.lease.data == NULL || params.lease.byte_count != SC_PLUGIN_LEASE_BYTES)
        return sc_fail(
            reterr, SPEC_E_INVALID, "attach: the lease has %" PRIu64 " bytes, expected %u",
            params.lease.data != NULL ? params.lease.byte_count : 0, SC_PLUGIN_LEASE_BYTES);
    status = try_attach(conn, &params, ret_result, reterr);
    bool refused = status != SPEC_OK && status != SPEC_PENDING;
    if (status == SPEC_OK)
        sc_count(&conn->stats.leases_attached, 1);
    if (refused)
        sc_count(&conn->stats.leases_refused, 1);
    if (status != SPEC_PENDING)
        return status;
    struct spec_lookup_result result = {.state = SPEC_LOOKUP_PENDING,
                                        .matched_tokens = params.from_token};
    sc_plugin_args_write(ret_result, &result, sizeof(result));
    return SPEC_OK;
}
