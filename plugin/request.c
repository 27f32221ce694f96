/* Requests: slots made at open, taken and given back without a lock.
 *
 *   spec_request  [generation 32][slot + 1 32]
 *
 * Who may end what. One thread at a time has a request's turn (a call of the host for it, or its
 * submission), and only that one begins, consumes or ends what its loads work on: readers,
 * sketches, guesses, the set. So:
 *   - a load that fails says so (sc_plugin_request_fail: a position, a status, the piece's end in
 *     index and log) and ends nothing: callers further up may still work on it, and so may workers;
 *   - who posts work on a request's memory cancels it or waits for it before it returns, in failure
 *     too (layered.c, choose.c); a guess holds what it reads (guess.c);
 *   - the memory is given up in sc_plugin_loads_end, which is called between items alone: after the
 *     item that failed, and at release (by a submission that has the turn, when it ends);
 *   - resets, by whomever, and the epochs' turn (peers.c, reset.c) touch no request: they move
 *     numbers that finds and loads look at. A call looks its handles up once: asked again a moment
 *     later, the answer may be another.
 *
 * A peek is a lookup without a request: it has one of SC_PLUGIN_PEEKS slots behind the requests'
 * for the moment of its call, so that what it reads of the index stays there meanwhile, and no
 * handle.
 *
 * Holds: a slot is FREE only when its handle was released and no save needs its tokens. Of several
 * releases of one handle one does it, the others are STALE.
 * Threads: take and find any; end the request's host thread, or whose turn its loads were when it
 * was released; the rest the request's host thread or the last holder.
 * Tests: test_ends.c, tests/fault/test_races.c, conformance (abi_027_*, abi_110_*) */
#include "plugin/connector.h"

/* Any free one of the slots [first, first + count). */
static struct sc_plugin_request *slot_take(spec_connector *conn, uint32_t first, uint32_t count)
{
    uint32_t hint = atomic_fetch_add_explicit(&conn->request_hint, 1, memory_order_relaxed);
    for (uint32_t i = 0; i < count; i++) {
        struct sc_plugin_request *request = &conn->requests[first + (hint + i) % count];
        uint32_t free = SC_REQUEST_FREE;
        if (atomic_load_explicit(&request->state, memory_order_relaxed) != SC_REQUEST_FREE ||
            !atomic_compare_exchange_strong(&request->state, &free, SC_REQUEST_TAKEN))
            continue;
        atomic_store_explicit(&request->holds, 1, memory_order_relaxed);
        /* Before the index is asked: merge.c. */
        atomic_store(&request->taken, atomic_fetch_add(&conn->requests_taken, 1));
        return request;
    }
    return NULL;
}

struct sc_plugin_request *sc_plugin_request_take(spec_connector *conn, spec_request *ret_handle)
{
    struct sc_plugin_request *request = slot_take(conn, 0, conn->config.max_requests);
    if (request == NULL)
        return NULL;
    uint64_t generation = atomic_load_explicit(&request->generation, memory_order_relaxed);
    *ret_handle = generation << 32 | (uint64_t)(request - conn->requests + 1);
    return request;
}

struct sc_plugin_request *sc_plugin_request_take_peek(spec_connector *conn)
{
    return slot_take(conn, conn->config.max_requests, SC_PLUGIN_PEEKS);
}

struct sc_plugin_request *sc_plugin_request_find_any(spec_connector *conn, spec_request handle)
{
    uint64_t slot = (handle & UINT32_MAX) - 1;
    if (slot >= conn->config.max_requests)
        return NULL;
    struct sc_plugin_request *request = &conn->requests[slot];
    if (atomic_load_explicit(&request->state, memory_order_acquire) != SC_REQUEST_OPEN ||
        atomic_load_explicit(&request->generation, memory_order_acquire) != handle >> 32)
        return NULL;
    return request;
}

struct sc_plugin_request *sc_plugin_request_find(spec_connector *conn, spec_request handle)
{
    struct sc_plugin_request *request = sc_plugin_request_find_any(conn, handle);
    return request != NULL && request->epoch == atomic_load(&conn->epoch) ? request : NULL;
}

spec_status sc_plugin_stale(spec_request handle, struct spec_error *reterr)
{
    return sc_fail(reterr, SPEC_E_STALE,
                   "request %#" PRIx64 " is unknown, released, or older than a reset", handle);
}

spec_status sc_plugin_submitted(spec_request handle, struct spec_error *reterr)
{
    return sc_fail(reterr, SPEC_E_BUSY,
                   "request %#" PRIx64 " is in a submission: get_important_wait first", handle);
}

void sc_plugin_request_unhold(struct sc_plugin_request *request)
{
    if (atomic_fetch_sub_explicit(&request->holds, 1, memory_order_acq_rel) != 1)
        return;
    atomic_store(&request->piece_last, UINT64_MAX);
    atomic_store(&request->tail, 0);
    atomic_store_explicit(&request->state, SC_REQUEST_FREE, memory_order_release);
}

spec_status sc_plugin_release(spec_connector *conn, spec_request handle, struct spec_error *reterr)
{
    struct sc_plugin_request *request = sc_plugin_request_find_any(conn, handle);
    if (request == NULL)
        return sc_plugin_stale(handle, reterr);
    uint32_t generation = (uint32_t)(handle >> 32); /* of several that release, one is it */
    if (!atomic_compare_exchange_strong(&request->generation, &generation, generation + 1))
        return sc_plugin_stale(handle, reterr);
    atomic_store_explicit(&request->state, SC_REQUEST_TAKEN, memory_order_relaxed);
    if (!sc_plugin_submit_leaves(request))
        sc_plugin_request_end(conn, request);
    return SPEC_OK;
}

void sc_plugin_request_unpin(spec_connector *conn, struct sc_plugin_request *request)
{
    sc_radix_unpin(conn->radix, request->pinned);
    request->pinned = (struct sc_radix_ref){0};
    atomic_store(&request->piece_last, 0);
    sc_plugin_unpinned(conn);
    if (atomic_load(&conn->merges_waiting) > 0)
        sc_plugin_kick(conn, SC_JOB_MERGE);
}

void sc_plugin_request_end(spec_connector *conn, struct sc_plugin_request *request)
{
    sc_plugin_loads_end(conn, request);
    sc_plugin_pass_abort(conn, request);
    uint64_t tail = atomic_exchange(&request->tail, 0);
    if (tail != 0)
        sc_plugin_merge_tail(conn, tail);
    sc_plugin_request_unpin(conn, request);
    atomic_fetch_sub_explicit(&conn->stats.requests_open, 1, memory_order_relaxed);
    sc_plugin_request_unhold(request);
}
