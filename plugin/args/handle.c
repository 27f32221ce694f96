/* Handles of requests: slots made at open, taken and given back without a lock.
 *
 *   spec_request  [generation 32][slot + 1 32]
 *
 * A peek is a lookup without a request: it has one of SC_PLUGIN_PEEKS slots behind the requests'
 * for the moment of its call, so that what it reads of the index stays there meanwhile, and no
 * handle.
 *
 * Holds: a slot is FREE only when its handle was released and no save needs its tokens.
 * Threads: take and find any; unhold the last holder.
 * Tests: test_ends.c, tests/fault/test_races.c, conformance (abi_027_*, abi_110_*) */
#include "plugin/connector.h"

/* Any free one of the slots [first, first + count). */
static struct sc_plugin_request *slot_take(spec_connector *conn, uint32_t first, uint32_t count)
{
    uint32_t hint = atomic_fetch_add_explicit(&conn->requests.hint, 1, memory_order_relaxed);
    for (uint32_t i = 0; i < count; i++) {
        struct sc_plugin_request *request = &conn->requests.slots[first + (hint + i) % count];
        uint32_t free = SC_REQUEST_FREE;
        if (atomic_load_explicit(&request->state, memory_order_relaxed) != SC_REQUEST_FREE ||
            !atomic_compare_exchange_strong(&request->state, &free, SC_REQUEST_TAKEN))
            continue;
        atomic_store_explicit(&request->holds, 1, memory_order_relaxed);
        /* Before the index is asked: merge.c. */
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
    uint64_t generation = atomic_load_explicit(&request->generation, memory_order_relaxed);
    *ret_handle = generation << 32 | (uint64_t)(request - conn->requests.slots + 1);
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
    struct sc_plugin_request *request = &conn->requests.slots[slot];
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
