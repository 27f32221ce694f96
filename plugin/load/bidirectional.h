/* bidirectional: the engine computes the match's tokens from the front, a submission (the tail)
 * loads them from the back, until they meet (Cake; docs/decisions/0044).
 *
 *   request->ends   {front 32 | back 32}, rows of the match
 *   next_chunk      [0, front) was given out to be computed   ->
 *   tail                                          <-  [back, R) is loaded, or being placed
 *
 * Invariants: a row is given out or claimed for loading, never both. A block is claimed when the
 * first rows of its first layer are verified. Rows that were claimed but not loaded are given back
 * when the tail is reported: back rises to the rows loaded in all layers.
 * Threads: next_chunk any, one at a time for a request; the tail its submission's.
 * Tests: tests/unit/plugin/test_bidirectional_item.c, test_bidirectional_item_random.c,
 * test_bidirectional_quant.c, test_device_bidirectional.c, conformance (abi_132_*, abi_205_*,
 * abi_206_*, abi_224_*, abi_225_*) */
#ifndef SC_PLUGIN_LOAD_BIDIRECTIONAL_H
#define SC_PLUGIN_LOAD_BIDIRECTIONAL_H

#include "base/status.h"

struct sc_plugin_item;
struct sc_plugin_request;

spec_status sc_plugin_next_chunk(spec_connector *conn, struct spec_next_chunk *chunk,
                                 struct spec_error *reterr);
/* Resets both ends in a slot for a new request. */
void sc_plugin_bidirectional_forget(struct sc_plugin_request *request);
/* Checks item i of a call of `count`: a tail has all layers of one request, in order. Errors:
 * INVALID. */
spec_status sc_plugin_tail_check(const spec_connector *conn, const struct spec_important *first,
                                 const struct spec_important *in, uint64_t i, uint64_t count,
                                 struct spec_error *reterr);
/* Begins a tail at the end of the match, whatever an earlier one loaded. */
void sc_plugin_tail_begin(struct sc_plugin_request *request);
/* Loads until both ends meet, a load fails or the deadline passes; writes the items' results.
 * Returns the status of all items. */
spec_status sc_plugin_tail_serve(spec_connector *conn, struct sc_plugin_item *work, uint64_t count,
                                 struct spec_error *reterr);
/* Returns the destinations to the host, and gives back rows that were claimed but not loaded. A
 * device may write rows until then. served: what serve returned. Returns the call's status. */
spec_status sc_plugin_tail_end(spec_connector *conn, struct sc_plugin_item *work, uint64_t count,
                               spec_status served, struct spec_error *reterr);

#endif
