/* Branches of states that are matched and loaded (plugin/args/recurrent.h).
 *
 * Threads: per call, below.
 * Tests: conformance (abi_212_*, abi_213_*), tests/unit/plugin/test_recurrent.c,
 * test_recurrent_space.c */
#ifndef SC_PLUGIN_LOAD_LOAD_RECURRENT_H
#define SC_PLUGIN_LOAD_LOAD_RECURRENT_H

#include "base/status.h"

struct sc_plugin_item;
struct sc_plugin_request;
struct sc_radix_query;

/* What requests need for branches. Errors: NO_MEMORY. Open. */
spec_status sc_plugin_recurrent_loads_open(spec_connector *conn, struct spec_error *reterr);
void sc_plugin_recurrent_loads_close(spec_connector *conn);
/* Where the match ends at last: the longest end <= `end` and behind from_token, of multiple_of
 * tokens, at which this rank and all others have all states; it is pinned, with the request.
 * from_token: there is none, or the ranks have had to be asked too often for it. Allocates nothing.
 * The match's last run is pinned. Any thread. */
uint64_t sc_plugin_recurrent_cut(spec_connector *conn, struct sc_plugin_request *request,
                                 const struct sc_radix_query *query, uint64_t end,
                                 uint64_t multiple_of);
/* It is let go again. */
void sc_plugin_recurrent_unpin(spec_connector *conn, struct sc_plugin_request *request);
/* The highest id of its pieces; the worst of them is added to `worst`. */
uint64_t sc_plugin_recurrent_worth(const spec_connector *conn,
                                   const struct sc_plugin_request *request,
                                   struct spec_provenance *worst);
/* The state of the item's layer goes to its destination. Whose turn the request's loads are. */
spec_status sc_plugin_recurrent_load(spec_connector *conn, struct sc_plugin_item *item,
                                     struct spec_error *reterr);

#endif
