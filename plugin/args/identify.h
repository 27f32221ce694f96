/* identify: checks the model and computes its namespace. Threads: open.
 * Tests: tests/unit/plugin/test_connector.c, test_fingerprint.c */
#ifndef SC_PLUGIN_ARGS_IDENTIFY_H
#define SC_PLUGIN_ARGS_IDENTIFY_H

#include "base/status.h"

#include <stdbool.h>

struct sc_alloc;
struct sc_hash;
struct sc_plugin_layer_form;

/* model.c */
spec_status sc_plugin_model_check(const struct spec_model *model, struct spec_error *reterr);
/* Returns the form of each layer of a checked model; NULL if all are as the model's members say.
 *   ret_layers  [layer_count] from alloc, owned by the caller */
spec_status sc_plugin_model_layers(const struct spec_model *model, struct sc_alloc *alloc,
                                   struct sc_plugin_layer_form **ret_layers,
                                   struct spec_error *reterr);
/* Returns true if some layer has recurrent state (args/recurrent.h). */
bool sc_plugin_model_is_recurrent(const struct spec_model *model,
                                  const struct sc_plugin_layer_form *layers);

/* namespace.c: sets conn->weights; returns both digests and canonical JSON (caller frees). */
spec_status sc_plugin_namespace(spec_connector *conn, const struct spec_model *model,
                                struct sc_hash *ret_digest, struct sc_hash *ret_family,
                                char **ret_descriptor, struct spec_error *reterr);

/* fingerprint.c: returns XXH3-128 over the weight files, cached in the store's directory. */
spec_status sc_plugin_fingerprint(spec_connector *conn, const char *const *paths,
                                  uint64_t path_count, struct sc_hash *ret_hash,
                                  struct spec_error *reterr);

#endif
