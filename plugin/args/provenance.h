/* What rows are worth, from pieces to a match to pieces (provenance.c).
 *
 * Threads: any, but for a request's: its host's.
 * Tests: tests/unit/plugin/test_provenance.c */
#ifndef SC_PLUGIN_ARGS_PROVENANCE_H
#define SC_PLUGIN_ARGS_PROVENANCE_H

#include "store/store.h"

struct sc_plugin_request;

/* Makes each member the worse of the two. */
void sc_plugin_provenance_add(struct spec_provenance *worst, const struct spec_provenance *more);
void sc_plugin_provenance_add_piece(struct spec_provenance *worst, const struct sc_store *store,
                                    uint64_t piece);
/* What is computed now by the request is computed on this: its match, and what was delivered. */
struct spec_provenance sc_plugin_provenance_so_far(const struct sc_plugin_request *request);
/* The layer was delivered, or refined. worth: it came ahead as codes; NULL: it did not. */
void sc_plugin_provenance_ahead(struct sc_plugin_request *request, uint32_t layer,
                                const struct spec_provenance *worth);
/* The layer has been computed, on what came ahead if nothing has refined that: adds it. */
void sc_plugin_provenance_computed(const struct sc_plugin_request *request, uint32_t layer,
                                   struct spec_provenance *worst);
struct sc_store_provenance sc_plugin_provenance_stored(const struct spec_provenance *worst);
/* store.lossy, store.pruned. */
bool sc_plugin_provenance_may_be_stored(const spec_connector *conn, uint32_t kind);

#endif
