/* layered: delivers every row decoded from its quantised row, and the selected rows exactly.
 * Threads: the owner of the request's loads; a worker helps to decode.
 * Tests: tests/unit/plugin/test_layered.c, test_bidirectional.c, conformance (abi_150_* ..
 * abi_156_*) */
#ifndef SC_PLUGIN_SELECT_LAYERED_H
#define SC_PLUGIN_SELECT_LAYERED_H

#include "base/status.h"

struct sc_plugin_item;

/* Decodes the layer, consumes the set's rows, writes the results. */
spec_status sc_plugin_layered_finish(spec_connector *conn, struct sc_plugin_item *item,
                                     struct spec_error *reterr);
/* Records that some rows are quantised, in the item's provenance and for what passes store after
 * it. */
void sc_plugin_layered_worth(struct sc_plugin_item *item, uint32_t bits_k, uint32_t bits_v);

#endif
