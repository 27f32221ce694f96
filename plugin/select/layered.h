/* layered: delivers every row as the values of its quantised row, and the chosen rows exactly.
 * Threads: the request's host thread; a worker helps to decode.
 * Tests: tests/unit/plugin/test_layered.c, conformance (abi_150_* .. abi_156_*) */
#ifndef SC_PLUGIN_SELECT_LAYERED_H
#define SC_PLUGIN_SELECT_LAYERED_H

#include "base/status.h"

struct sc_plugin_item;

/* Decodes the layer, consumes the set's rows, writes the results. */
spec_status sc_plugin_layered_finish(spec_connector *conn, struct sc_plugin_item *item,
                                     struct spec_error *reterr);
/* Adds to the item's provenance, and to what passes after it store, that some of its rows are
 * quantised to so many bits. */
void sc_plugin_layered_worth(struct sc_plugin_item *item, uint32_t bits_k, uint32_t bits_v);

#endif
