/* refine: reads more exact rows into a destination that a layered delivery has filled.
 * Threads: the owner of the request's loads.
 * Tests: tests/unit/plugin/test_refine.c, test_rescore.c, conformance (abi_163_* .. abi_168_*,
 * abi_184_*, abi_185_*) */
#ifndef SC_PLUGIN_LOAD_REFINE_H
#define SC_PLUGIN_LOAD_REFINE_H

#include "base/exec.h"
#include "base/status.h"

struct sc_plugin_item;

/* Finds the delivery that the item refines. Its destination was checked. */
spec_status sc_plugin_refine_check(spec_connector *conn, struct sc_plugin_item *item,
                                   struct spec_error *reterr);
/* Returns true if the delivery was SPEC_ITEM_AHEAD: items that refine it may have members that
 * select. */
bool sc_plugin_refine_came_ahead(const struct sc_plugin_item *item);
/* Returns true if the item's queries rank the delivery's rows, for the first time or again. */
bool sc_plugin_refine_chooses(const struct sc_plugin_item *item);
/* Selects the rows and begins their reads. Errors: STALE, an item of the same call wrote over the
 * delivery. */
spec_status sc_plugin_refine_start(spec_connector *conn, struct sc_plugin_item *item,
                                   enum sc_io_class io_class, struct spec_error *reterr);
/* Consumes the rows. Writes the results after an error, too. */
spec_status sc_plugin_refine_finish(spec_connector *conn, struct sc_plugin_item *item,
                                    struct spec_error *reterr);
/* Writes the results of an item that begins no reads, because the match is void. */
void sc_plugin_refine_tell(struct sc_plugin_item *item);

#endif
