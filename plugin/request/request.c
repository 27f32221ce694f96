/* request: release, and what it gives up. Handles and slots: handle.c.
 *
 * One host call at a time has a request (handle.c); a release during the call leaves the end to it.
 * One thread at a time owns a request's loads: that call, or the request's submission. Only the
 * owner begins, consumes or ends readers, selectors, predictions and the set:
 *   - a load that fails records that (sc_plugin_request_fail) and ends nothing: its callers, and
 *     workers, may still use the memory;
 *   - a thread that posts work on a request's memory cancels it or waits for it before it returns,
 *     also after a failure (layered.c, row_scores.c); predictions hold what they read (prefetch.c);
 *   - sc_plugin_loads_end gives the memory up, between items alone: after the item that failed, and
 *     at release (by the submission that owns the loads, when it ends);
 *   - resets and ticks (tick.c, reset.c) touch no request: they change numbers that calls and loads
 *     compare. A call looks up its handles once, since a second answer may differ.
 *
 * Invariants: of several releases of one handle one succeeds, the others are STALE.
 * Threads: release any; end whoever released the request, or had it or owned its loads then.
 * Tests: tests/unit/plugin/test_bidirectional.c, tests/fault/test_release_races.c, test_races.c,
 * conformance (abi_027_*, abi_110_*, abi_220_*) */
#include "plugin/args/handle.h"
#include "plugin/connector.h"
#include "plugin/load/load_recurrent.h"
#include "plugin/load/loads_end.h"
#include "plugin/request/requests.h"
#include "plugin/select/submission.h"

/* Ends a request whose handle is STALE and which no call has, or leaves that to its submission. */
static void request_released(spec_connector *conn, struct sc_plugin_request *request)
{
    sc_plugin_host_prefetch_leave(conn, request);
    if (!sc_plugin_submit_leaves(request))
        sc_plugin_request_end(conn, request);
}

spec_status sc_plugin_release(spec_connector *conn, spec_request handle, struct spec_error *reterr)
{
    struct sc_plugin_request *request = sc_plugin_request_find_any(conn, handle);
    if (request == NULL)
        return sc_plugin_stale(handle, reterr);
    uint64_t generation = handle >> 32, gate = sc_plugin_gate_of(generation, SC_REQUEST_OPEN);
    for (;;) {
        bool is_called = (uint32_t)gate == SC_REQUEST_CALLED;
        uint32_t phase = is_called ? SC_REQUEST_LEFT : SC_REQUEST_TAKEN;
        if (atomic_compare_exchange_strong(&request->gate, &gate,
                                           sc_plugin_gate_of(generation + 1, phase))) {
            if (!is_called)
                request_released(conn, request);
            return SPEC_OK;
        }
        if (gate != sc_plugin_gate_of(generation, SC_REQUEST_OPEN) &&
            gate != sc_plugin_gate_of(generation, SC_REQUEST_CALLED))
            return sc_plugin_stale(handle, reterr); /* another thread released it */
    }
}

void sc_plugin_visit_end(spec_connector *conn, struct sc_plugin_visit *visit)
{
    for (struct sc_plugin_request *request = visit->first, *next; request != NULL; request = next) {
        next = request->visit_next;
        atomic_store_explicit(&request->visit, NULL, memory_order_relaxed);
        uint64_t generation = atomic_load_explicit(&request->gate, memory_order_relaxed) >> 32;
        uint64_t gate = sc_plugin_gate_of(generation, SC_REQUEST_CALLED);
        if (atomic_compare_exchange_strong(&request->gate, &gate,
                                           sc_plugin_gate_of(generation, SC_REQUEST_OPEN)))
            continue;
        atomic_store(&request->gate, sc_plugin_gate_of(gate >> 32, SC_REQUEST_TAKEN));
        request_released(conn, request);
    }
    visit->first = NULL;
}

void sc_plugin_request_unpin(spec_connector *conn, struct sc_plugin_request *request)
{
    sc_plugin_recurrent_unpin(conn, request);
    sc_radix_unpin(conn->radix, request->pinned);
    request->pinned = (struct sc_radix_ref){0};
    atomic_store(&request->piece_last, 0);
    sc_plugin_unpinned(conn);
    if (atomic_load(&conn->compaction.waiting) > 0)
        sc_plugin_kick(conn, SC_JOB_COMPACT);
}

void sc_plugin_request_end(spec_connector *conn, struct sc_plugin_request *request)
{
    sc_plugin_loads_end(conn, request);
    sc_plugin_pass_abort(conn, request);
    request->save_last = NULL;
    uint64_t tail = atomic_exchange(&request->tail, 0);
    if (tail != 0)
        sc_plugin_compact_tail(conn, tail);
    sc_plugin_request_unpin(conn, request);
    sc_uncount(&conn->stats.requests_open, 1);
    sc_plugin_request_unhold(request);
}
