/* handle: finds the request of a handle, and gives it to one call at a time (handle.c).
 * Tests: tests/unit/plugin/test_lookup.c, test_attach.c */
#ifndef SC_PLUGIN_ARGS_HANDLE_H
#define SC_PLUGIN_ARGS_HANDLE_H

#include "plugin/request_state.h"

/* Gives the request to the call until its visit ends (request.c): no other call has it meanwhile,
 * and a release leaves the end to that moment. A call may enter a request again. Errors: STALE
 * (unknown or released), BUSY (another call has it). */
spec_status sc_plugin_request_enter_any(spec_connector *conn, struct sc_plugin_visit *visit,
                                        spec_request handle, struct sc_plugin_request **ret_request,
                                        struct spec_error *reterr);
/* Does the same; a request that is older than a reset is STALE, too. */
spec_status sc_plugin_request_enter(spec_connector *conn, struct sc_plugin_visit *visit,
                                    spec_request handle, struct sc_plugin_request **ret_request,
                                    struct spec_error *reterr);
/* Returns the open request of a handle, or NULL. Its slot is not reused until unhold; calls may use
 * it meanwhile, and it may be released. */
struct sc_plugin_request *sc_plugin_request_hold(spec_connector *conn, spec_request handle);
/* Returns true if no reset and no erasure that covers the request happened since it was made. Any
 * thread. */
bool sc_plugin_request_is_current(spec_connector *conn, const struct sc_plugin_request *request);
/* Returns the open request of a handle, or NULL. The caller holds it or is its only caller. */
struct sc_plugin_request *sc_plugin_request_find(spec_connector *conn, spec_request handle);
/* Does the same, also for a request that a reset made stale. */
struct sc_plugin_request *sc_plugin_request_find_any(spec_connector *conn, spec_request handle);
struct sc_plugin_request *sc_plugin_request_take(spec_connector *conn, spec_request *ret_handle);
/* Takes a slot without a handle for a peek; NULL: all are taken. */
struct sc_plugin_request *sc_plugin_request_take_peek(spec_connector *conn);
void sc_plugin_request_unhold(struct sc_plugin_request *request);
spec_status sc_plugin_stale(spec_request handle, struct spec_error *reterr);
spec_status sc_plugin_submitted(spec_request handle, struct spec_error *reterr);

#endif
