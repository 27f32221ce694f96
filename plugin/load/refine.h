/* refine: reads more exact rows into a destination that a layered delivery has filled.
 * Threads: whose turn the request's loads are.
 * Tests: tests/unit/plugin/test_refine.c, test_rescore.c, conformance (abi_163_* .. abi_168_*) */
#ifndef SC_PLUGIN_LOAD_REFINE_H
#define SC_PLUGIN_LOAD_REFINE_H

#include "base/exec.h"
#include "base/status.h"

struct sc_plugin_item;

/* Finds the delivery that the item refines. Its destination was checked. */
spec_status sc_plugin_refine_check(spec_connector *conn, struct sc_plugin_item *item,
                                   struct spec_error *reterr);
/* The delivery was SPEC_ITEM_AHEAD: an item that refines it may have what a choice takes. */
bool sc_plugin_refine_came_ahead(const struct sc_plugin_item *item);
/* The item's queries rank the delivery's rows: they are not ranked yet, or shall be ranked anew. */
bool sc_plugin_refine_chooses(const struct sc_plugin_item *item);
/* Chooses the rows and begins their reads. Errors: STALE, an item of the same call wrote over the
 * delivery. */
spec_status sc_plugin_refine_start(spec_connector *conn, struct sc_plugin_item *item,
                                   enum sc_io_class io_class, struct spec_error *reterr);
/* Consumes the rows. Writes the results after an error, too. */
spec_status sc_plugin_refine_finish(spec_connector *conn, struct sc_plugin_item *item,
                                    struct spec_error *reterr);
/* Writes the results of an item that begins nothing, because the match is void. */
void sc_plugin_refine_tell(struct sc_plugin_item *item);

#endif
