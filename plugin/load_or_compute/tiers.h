/* tiers: which tiers hold the rows of a match, and how long it takes to load them from there.
 *
 *   match     [piece][piece][piece] ...
 *   a piece   its rows of a layer are in the upper tier, in host memory or on the disk
 *
 * Invariants: no tier is asked for anything that waits for a lock.
 * Limits: all rows that a layer needs are counted, although a selected load reads some of them.
 * Threads: any that holds the request's segments.
 * Tests: tests/unit/plugin/test_host_tier.c, conformance (abi_191_*) */
#ifndef SC_PLUGIN_LOAD_OR_COMPUTE_TIERS_H
#define SC_PLUGIN_LOAD_OR_COMPUTE_TIERS_H

#include "abi/spec_connector.h"

struct sc_plugin_request;

/* Counts the bytes of rows [first, end) of the match, positions of the prompt, in all layers, by
 * the tier that has them now: ret_bytes [SPEC_TIERS]. The request's match is set, its ranges need
 * not be. Takes no lock. */
void sc_plugin_tier_bytes(const spec_connector *conn, const struct sc_plugin_request *request,
                          uint64_t first, uint64_t end, uint64_t ret_bytes[SPEC_TIERS]);
/* Returns the ns that loading so many bytes of each tier takes, by the loads that were measured; 0:
 * not known yet. */
uint64_t sc_plugin_load_ns(const spec_connector *conn, const uint64_t bytes[SPEC_TIERS]);

#endif
