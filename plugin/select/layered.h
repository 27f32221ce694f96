/* layered: delivers every row decoded from its quantised row, and the selected rows exactly.
 * Threads: the owner of the request's loads; a worker helps to decode.
 * Tests: tests/unit/plugin/test_layered.c, test_bidirectional.c, conformance (abi_150_* ..
 * abi_156_*) */
#ifndef SC_PLUGIN_SELECT_LAYERED_H
#define SC_PLUGIN_SELECT_LAYERED_H

#include "base/status.h"

struct sc_plugin_item;
struct sc_plugin_placing;
struct sc_store_slab;

/* Decodes the layer, consumes the set's rows, writes the results. */
spec_status sc_plugin_layered_finish(spec_connector *conn, struct sc_plugin_item *item,
                                     struct spec_error *reterr);
/* Decodes `count` rows of a slab to tokens `row` and on, except those in `skipped` (bits). */
void sc_plugin_slab_decode(const spec_connector *conn, const struct sc_plugin_placing *to,
                           const struct sc_plugin_item *item, const struct sc_store_slab *slab,
                           uint64_t row, uint64_t count, const uint64_t *skipped);

struct sc_plugin_worst { /* fewest bits that were delivered; 0: none yet */
    uint32_t bits_k, bits_v;
};
void sc_plugin_worst_add(struct sc_plugin_worst *worst, uint32_t bits_k, uint32_t bits_v);

/* Records that some of the delivered rows are quantised, in the item's provenance and for what
 * passes store after it. */
void sc_plugin_layered_worth(struct sc_plugin_item *item, uint32_t bits_k, uint32_t bits_v);

#endif
