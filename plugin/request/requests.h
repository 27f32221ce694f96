/* requests: the host's calls about requests. Their state: plugin/request_state.h.
 * Tests: tests/unit/plugin/test_lookup.c, test_attach.c, test_load.c */
#ifndef SC_PLUGIN_REQUEST_REQUESTS_H
#define SC_PLUGIN_REQUEST_REQUESTS_H

#include "plugin/request_state.h"

/* request.c */
spec_status sc_plugin_release(spec_connector *conn, spec_request handle, struct spec_error *reterr);
/* Gives back all requests of the call, and ends those that were released meanwhile. */
void sc_plugin_visit_end(spec_connector *conn, struct sc_plugin_visit *visit);
/* Ends a released request: at once, or when the call that has it or the submission that owns its
 * loads ends. */
void sc_plugin_request_end(spec_connector *conn, struct sc_plugin_request *request);
/* Unpins the match; compactions may be waiting for that. */
void sc_plugin_request_unpin(spec_connector *conn, struct sc_plugin_request *request);

/* lookup.c */
spec_status sc_plugin_lookup(spec_connector *conn, const struct spec_lookup_params *params,
                             struct spec_lookup_result *ret_result, struct spec_error *reterr);

/* Does the last steps of lookup and attach: makes the ranges, opens the request, writes the result.
 * Root, tokens, marks, segments, pin, epoch, the match and memory for selection are set. */
void sc_plugin_request_open(spec_connector *conn, struct sc_plugin_request *request,
                            spec_request handle, const struct sc_plugin_promise *promise,
                            struct spec_lookup_result *ret_result);

/* store_call.c */
spec_status sc_plugin_store(spec_connector *conn, const struct spec_store_params *params,
                            uint64_t count, spec_ticket *ret_tickets, struct spec_error *reterr);
spec_status sc_plugin_store_abort(spec_connector *conn, spec_request handle, uint64_t from_token,
                                  struct spec_error *reterr);

/* load_call.c */
spec_status sc_plugin_begin_layer(spec_connector *conn, const spec_request *requests,
                                  uint64_t count, uint32_t layer, struct spec_error *reterr);
spec_status sc_plugin_get_important(spec_connector *conn, struct spec_important *items,
                                    uint64_t count, struct spec_error *reterr);
spec_status sc_plugin_prefetch_next(spec_connector *conn, spec_request handle, uint32_t layer,
                                    const struct spec_queries *hint, struct spec_error *reterr);

/* attach.c */
spec_status sc_plugin_attach(spec_connector *conn, const struct spec_attach_params *params,
                             struct spec_lookup_result *ret_result, struct spec_error *reterr);

#endif
