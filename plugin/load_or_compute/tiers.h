/* tiers: counts the rows of a match by tier, and estimates their load time. All rows that a layer
 * needs are counted, although a selected load reads only some. No call waits for a lock.
 *
 *   match     [piece][piece][piece] ...
 *   a piece   its rows of a layer are in the upper tier, in host memory or on the disk
 *
 * Threads: any that holds the request's segments.
 * Tests: tests/unit/plugin/test_host_tier.c, conformance (abi_191_*) */
#ifndef SC_PLUGIN_LOAD_OR_COMPUTE_TIERS_H
#define SC_PLUGIN_LOAD_OR_COMPUTE_TIERS_H

#include "abi/spec_connector.h"

struct sc_plugin_request;

/* Counts the bytes of prompt positions [first, end) of the match, all layers, by their current
 * tier: ret_bytes [SPEC_TIERS]. Needs the request's match, not its ranges. Takes no lock. */
void sc_plugin_tier_bytes(const spec_connector *conn, const struct sc_plugin_request *request,
                          uint64_t first, uint64_t end, uint64_t ret_bytes[SPEC_TIERS]);
/* Returns the estimated ns to load so many bytes of each tier; 0: unknown. */
uint64_t sc_plugin_load_ns(const spec_connector *conn, const uint64_t bytes[SPEC_TIERS]);

#endif
