/* loads_end: the one place that gives up the memory of a request's loads: readers, selectors,
 * predictions.
 * Threads: the owner of the request's loads, between items (request.c).
 * Tests: tests/unit/plugin/test_bidirectional.c */
#ifndef SC_PLUGIN_LOAD_LOADS_END_H
#define SC_PLUGIN_LOAD_LOADS_END_H

#include "abi/spec_connector.h"

struct sc_plugin_request;

void sc_plugin_loads_end(spec_connector *conn, struct sc_plugin_request *request);

#endif
