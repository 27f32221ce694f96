/* Compute or load from both ends (Cake): the engine computes the match's tokens from the front, a
 * submission loads them from the back, until they meet. docs/decisions/0044.
 *
 *   request->ends   {front 32 | back 32}, rows of the match
 *   next_chunk      [0, front) was given out to be computed   ->
 *   the tail                                      <-  [back, R) is loaded, or being placed
 *
 * Holds: a row is given out or claimed to be loaded, never both; what is claimed was verified
 * before, at its first layer. What does not come is given back when the tail is reported: back
 * rises to where all came.
 * Does not: estimate anything; read a row twice.
 * Threads: next_chunk any, one at a time for a request; the tail its submission's.
 * Tests: tests/unit/plugin/test_bidirectional_item.c, test_bidirectional_item_random.c,
 * test_device_bidirectional.c, conformance (abi_132_*, abi_205_*, abi_206_*) */
#ifndef SC_PLUGIN_LOAD_BIDIRECTIONAL_H
#define SC_PLUGIN_LOAD_BIDIRECTIONAL_H

#include "base/status.h"

struct sc_plugin_item;
struct sc_plugin_request;

spec_status sc_plugin_next_chunk(spec_connector *conn, struct spec_next_chunk *chunk,
                                 struct spec_error *reterr);
/* Resets both ends in a slot that a new request takes: nothing is given out or loaded. */
void sc_plugin_bidirectional_forget(struct sc_plugin_request *request);
/* Whether the item, of the i-th place of a call of `count`, is one of a tail as it shall be, beside
 * the first. */
spec_status sc_plugin_tail_check(const spec_connector *conn, const struct spec_important *first,
                                 const struct spec_important *in, uint64_t i, uint64_t count,
                                 struct spec_error *reterr);
/* A tail that is submitted loads from the end of the match, whatever an earlier one did. */
void sc_plugin_tail_begin(struct sc_plugin_request *request);
/* Loads until both ends meet, or as far as it can; what the items say of it. Returns their status,
 * which is that of all. */
spec_status sc_plugin_tail_serve(spec_connector *conn, struct sc_plugin_item *work, uint64_t count,
                                 struct spec_error *reterr);
/* The host's call: the destinations are the host's again, and what was claimed and did not come is
 * given back. Not before: a device may still be writing rows of it. served: what serve returned.
 * Returns what the call does. */
spec_status sc_plugin_tail_end(spec_connector *conn, struct sc_plugin_item *work, uint64_t count,
                               spec_status served, struct spec_error *reterr);

#endif
