/* provenance: how exact rows are, from pieces over matches to new pieces (provenance.c).
 * Threads: any; for a request: its host's. Tests: tests/unit/plugin/test_provenance.c */
#ifndef SC_PLUGIN_ARGS_PROVENANCE_H
#define SC_PLUGIN_ARGS_PROVENANCE_H

#include "store/store.h"

struct sc_plugin_request;

/* Sets each member to the worse of the two. */
void sc_plugin_provenance_add(struct spec_provenance *worst, const struct spec_provenance *more);
void sc_plugin_provenance_add_piece(struct spec_provenance *worst, const struct sc_store *store,
                                    uint64_t piece);
/* Returns the worst of the request's match and deliveries: the base of all that it computes now. */
struct spec_provenance sc_plugin_provenance_so_far(const struct sc_plugin_request *request);
/* Notes a delivered or refined layer. `worth`: of quantised rows delivered ahead, or NULL. */
void sc_plugin_provenance_ahead(struct sc_plugin_request *request, uint32_t layer,
                                const struct spec_provenance *worth);
/* Adds the provenance that a computed layer got from an unrefined delivery ahead, if any. */
void sc_plugin_provenance_computed(const struct sc_plugin_request *request, uint32_t layer,
                                   struct spec_provenance *worst);
struct sc_store_provenance sc_plugin_provenance_stored(const struct spec_provenance *worst);
/* Applies store.lossy and store.pruned. */
bool sc_plugin_provenance_may_be_stored(const spec_connector *conn, uint32_t kind);

#endif
