/* load: the items of a get_important, in four parts: check, begin, serve, report (drawing: load.c).
 * Threads: serve the host's, or a submission's; the others the host's.
 * Tests: conformance (abi_040_* .. abi_071_*), tests/unit/plugin/test_load.c */
#ifndef SC_PLUGIN_LOAD_LOAD_H
#define SC_PLUGIN_LOAD_LOAD_H

#include "base/status.h"

struct sc_plugin_item;
struct sc_plugin_visit;

/* Errors: INVALID, the model has no such layer. */
spec_status sc_plugin_layer_check(const spec_connector *conn, uint32_t layer, const char *call,
                                  struct spec_error *reterr);
/* Checks all items and enters their requests. If one fails, writes the statuses of items that are
 * not submitted; changes nothing else. ret_work: NULL, or [count]. */
spec_status sc_plugin_items_check(spec_connector *conn, struct sc_plugin_visit *visit,
                                  struct spec_important *items, uint64_t count, bool is_submitted,
                                  struct sc_plugin_item *ret_work, struct spec_error *reterr);
/* Begins the reads that need no selection. Never waits. begin_ns: start of the call, from which
 * deadlines count. */
void sc_plugin_items_begin(spec_connector *conn, struct sc_plugin_item *work, uint64_t count,
                           uint64_t begin_ns);
/* Delivers, and writes statuses and results to the items. Returns the first that is not SPEC_OK. */
spec_status sc_plugin_items_serve(spec_connector *conn, struct sc_plugin_item *work, uint64_t count,
                                  struct spec_error *reterr);
/* Writes results to the host, and provenance to the requests. served: the call's status so far.
 * Returns the status of the first item that failed. */
spec_status sc_plugin_items_report(spec_connector *conn, struct spec_important *items,
                                   struct sc_plugin_item *work, uint64_t count, spec_status served,
                                   struct spec_error *reterr);

#endif
