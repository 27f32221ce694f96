/* request_memory: the memory of requests: tokens, segments of the match, row selection
 * (request_memory.c, decision 0058).
 * Tests: tests/unit/plugin/test_request_memory.c */
#ifndef SC_PLUGIN_ARGS_REQUEST_MEMORY_H
#define SC_PLUGIN_ARGS_REQUEST_MEMORY_H

#include "plugin/request_state.h"

spec_status sc_plugin_request_memory_open(spec_connector *conn, struct spec_error *reterr);
/* Call it after every request was released. */
void sc_plugin_request_memory_close(spec_connector *conn);
/* Returns the pieces that a match of so many tokens may have; a longer one is cut. Short requests
 * may be stored token by token; long ones are expected to average 16 tokens a piece. */
uint64_t sc_plugin_segments_of(const spec_connector *conn, uint64_t tokens);
/* Takes memory for the tokens (not for a peek) and for a match's segments. Returns false if the
 * pool has none; what was taken is freed with the request's last hold. */
bool sc_plugin_request_memory_take(spec_connector *conn, struct sc_plugin_request *request,
                                   uint64_t tokens, bool is_peek);
/* Sets the match's segments and places its ranges; frees the rest. */
void sc_plugin_request_match_cut(spec_connector *conn, struct sc_plugin_request *request,
                                 uint64_t segments);
/* Takes memory for selecting rows of the match, if the configuration selects. Returns false if
 * there is none. */
bool sc_plugin_request_choice_take(spec_connector *conn, struct sc_plugin_request *request);
/* Returns how many tokens fit after those that the request has: `more`, unless there is a limit.
 * The request's tokens may move. */
uint64_t sc_plugin_request_room(spec_connector *conn, struct sc_plugin_request *request,
                                uint64_t more);
/* Frees the memory after the last hold has ended. */
void sc_plugin_request_memory_put(struct sc_plugin_request *request);
spec_status sc_plugin_request_memory_busy(spec_connector *conn, const char *call,
                                          struct spec_error *reterr);

#endif
