/* load_recurrent: matches and loads of recurrent states (plugin/args/recurrent.h).
 * Tests: conformance (abi_212_*, abi_213_*), tests/unit/plugin/test_recurrent.c,
 * test_recurrent_space.c */
#ifndef SC_PLUGIN_LOAD_LOAD_RECURRENT_H
#define SC_PLUGIN_LOAD_LOAD_RECURRENT_H

#include "base/status.h"

struct sc_plugin_item;
struct sc_plugin_request;
struct sc_radix_query;

/* Allocates what requests need for branches. Errors: NO_MEMORY. */
spec_status sc_plugin_recurrent_loads_open(spec_connector *conn, struct spec_error *reterr);
void sc_plugin_recurrent_loads_close(spec_connector *conn);
/* Returns where the match ends: the longest end in (from_token, end], a multiple of multiple_of, at
 * which all ranks have all states. Pins it with the request. Returns from_token if there is none,
 * or after too many rounds of queries to the ranks. Allocates nothing. The match's last run is
 * pinned. Any thread. */
uint64_t sc_plugin_recurrent_cut(spec_connector *conn, struct sc_plugin_request *request,
                                 const struct sc_radix_query *query, uint64_t end,
                                 uint64_t multiple_of);
/* Unpins the branch. */
void sc_plugin_recurrent_unpin(spec_connector *conn, struct sc_plugin_request *request);
/* Returns the highest piece id of the branch, and adds the provenance of its pieces to `worst`. */
uint64_t sc_plugin_recurrent_worth(const spec_connector *conn,
                                   const struct sc_plugin_request *request,
                                   struct spec_provenance *worst);
/* Loads the state of the item's layer into its destination. Called by the owner of the request's
 * loads. */
spec_status sc_plugin_recurrent_load(spec_connector *conn, struct sc_plugin_item *item,
                                     struct spec_error *reterr);

#endif
