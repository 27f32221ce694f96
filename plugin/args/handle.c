/* handle: request handles, slots made at open, taken and released without a lock.
 *
 *   spec_request  [generation 32][slot + 1 32]
 *   gate          FREE -> TAKEN -> OPEN <-> CALLED -> LEFT -> TAKEN -> FREE
 *                                    '---- release ----------'
 *
 * A host call enters its requests (OPEN to CALLED) and leaves them when it ends; a second call is
 * BUSY meanwhile. A release during a call advances the generation and sets LEFT: later calls are
 * STALE, and the running call ends the request. A peek is a lookup without a handle. It uses one of
 * SC_PLUGIN_PEEKS slots behind the requests', which pins what it reads of the index.
 *
 * A slot is FREE only after its handle was released and no save needs its tokens.
 * Threads: take, enter and hold any; unhold the last holder.
 * Tests: test_bidirectional.c, tests/fault/test_races.c, conformance (abi_027_*, abi_110_*) */
#include "plugin/args/handle.h"
#include "plugin/args/request_memory.h"
#include "plugin/connector.h"

/* Takes a free slot of [first, first + count). Returns NULL if there is none. */
static struct sc_plugin_request *slot_take(spec_connector *conn, uint32_t first, uint32_t count)
{
    uint32_t hint = atomic_fetch_add_explicit(&conn->requests.hint, 1, memory_order_relaxed);
    for (uint32_t i = 0; i < count; i++) {
        struct sc_plugin_request *request = &conn->requests.slots[first + (hint + i) % count];
        uint64_t gate = atomic_load_explicit(&request->gate, memory_order_relaxed);
        if ((uint32_t)gate != SC_REQUEST_FREE ||
            !atomic_compare_exchange_strong(&request->gate, &gate,
                                            sc_plugin_gate_of(gate >> 32, SC_REQUEST_TAKEN)))
            continue;
        atomic_store_explicit(&request->holds, 1, memory_order_relaxed);
        /* Set before the index is searched: compact.c relies on it. */
        atomic_store(&request->taken, atomic_fetch_add(&conn->requests.taken, 1));
        return request;
    }
    return NULL;
}

struct sc_plugin_request *sc_plugin_request_take(spec_connector *conn, spec_request *ret_handle)
{
    struct sc_plugin_request *request = slot_take(conn, 0, conn->config.max_requests);
    if (request == NULL)
        return NULL;
    uint64_t generation = atomic_load_explicit(&request->gate, memory_order_relaxed) >> 32;
    *ret_handle = generation << 32 | (uint64_t)(request - conn->requests.slots + 1);
    return request;
}

struct sc_plugin_request *sc_plugin_request_take_peek(spec_connector *conn)
{
    return slot_take(conn, conn->config.max_requests, SC_PLUGIN_PEEKS);
}

static struct sc_plugin_request *slot_of(spec_connector *conn, spec_request handle)
{
    uint64_t slot = (handle & UINT32_MAX) - 1;
    return slot < conn->config.max_requests ? &conn->requests.slots[slot] : NULL;
}

/* Returns true if the gate's request has this handle and was not released. */
static bool gate_has(uint64_t gate, spec_request handle)
{
    uint32_t phase = (uint32_t)gate;
    return gate >> 32 == handle >> 32 && (phase == SC_REQUEST_OPEN || phase == SC_REQUEST_CALLED);
}

spec_status sc_plugin_request_enter_any(spec_connector *conn, struct sc_plugin_visit *visit,
                                        spec_request handle, struct sc_plugin_request **ret_request,
                                        struct spec_error *reterr)
{
    struct sc_plugin_request *request = slot_of(conn, handle);
    if (request == NULL)
        return sc_plugin_stale(handle, reterr);
    uint64_t gate = sc_plugin_gate_of(handle >> 32, SC_REQUEST_OPEN);
    if (atomic_compare_exchange_strong_explicit(&request->gate, &gate,
                                                sc_plugin_gate_of(handle >> 32, SC_REQUEST_CALLED),
                                                memory_order_acquire, memory_order_relaxed)) {
        request->visit_next = visit->first;
        visit->first = request;
        atomic_store_explicit(&request->visit, visit, memory_order_relaxed);
    } else if (!gate_has(gate, handle)) {
        return sc_plugin_stale(handle, reterr);
    } else if (atomic_load_explicit(&request->visit, memory_order_relaxed) != visit) {
        return sc_fail(reterr, SPEC_E_BUSY, "request %#" PRIx64 " is in a call of another thread",
                       handle);
    }
    *ret_request = request;
    return SPEC_OK;
}

bool sc_plugin_request_is_current(spec_connector *conn, const struct sc_plugin_request *request)
{
    return request->epoch == atomic_load(&conn->epoch) && !sc_plugin_erase_covers(conn, request);
}

spec_status sc_plugin_request_enter(spec_connector *conn, struct sc_plugin_visit *visit,
                                    spec_request handle, struct sc_plugin_request **ret_request,
                                    struct spec_error *reterr)
{
    struct sc_plugin_request *request = NULL;
    spec_status status = sc_plugin_request_enter_any(conn, visit, handle, &request, reterr);
    if (status != SPEC_OK)
        return status;
    if (!sc_plugin_request_is_current(conn, request))
        return sc_plugin_stale(handle, reterr);
    *ret_request = request;
    return SPEC_OK;
}

struct sc_plugin_request *sc_plugin_request_hold(spec_connector *conn, spec_request handle)
{
    struct sc_plugin_request *request = sc_plugin_request_find_any(conn, handle);
    uint32_t holds = request != NULL ? atomic_load(&request->holds) : 0;
    while (holds > 0 && !atomic_compare_exchange_weak(&request->holds, &holds, holds + 1))
        ;
    if (holds == 0)
        return NULL;
    if (gate_has(atomic_load(&request->gate),
                 handle)) /* the slot may have been reused before the hold */
        return request;
    sc_plugin_request_unhold(request);
    return NULL;
}

struct sc_plugin_request *sc_plugin_request_find_any(spec_connector *conn, spec_request handle)
{
    struct sc_plugin_request *request = slot_of(conn, handle);
    return request != NULL && gate_has(atomic_load(&request->gate), handle) ? request : NULL;
}

struct sc_plugin_request *sc_plugin_request_find(spec_connector *conn, spec_request handle)
{
    struct sc_plugin_request *request = sc_plugin_request_find_any(conn, handle);
    return request != NULL && sc_plugin_request_is_current(conn, request) ? request : NULL;
}

spec_status sc_plugin_stale(spec_request handle, struct spec_error *reterr)
{
    return sc_fail(reterr, SPEC_E_STALE,
                   "request %#" PRIx64 " is unknown, released, or older than a reset or an erasure",
                   handle);
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
    sc_plugin_request_memory_put(request);
    atomic_store(&request->piece_last, UINT64_MAX);
    atomic_store(&request->tail, 0);
    for (uint32_t i = 0; i < SC_PLUGIN_USES; i++)
        atomic_store_explicit(&request->used_pieces[i], 0, memory_order_relaxed);
    uint64_t generation = atomic_load_explicit(&request->gate, memory_order_relaxed) >> 32;
    atomic_store_explicit(&request->gate, sc_plugin_gate_of(generation, SC_REQUEST_FREE),
                          memory_order_release);
}
