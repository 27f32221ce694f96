/* batch: memory for the items of a get_important, since an engine's threads may have small stacks.
 * A small call has its items on the stack; a larger one takes a batch that was made at open.
 * Threads: any.
 * Tests: tests/unit/plugin/test_stack.c */
#ifndef SC_PLUGIN_LOAD_BATCH_H
#define SC_PLUGIN_LOAD_BATCH_H

#include "base/slot_pool.h"
#include "base/status.h"

struct sc_plugin_item;

#define SC_PLUGIN_ITEMS_FEW 8u /* items of a call that are on its stack: 6 KiB */

struct sc_plugin_batches {        /* set by open, constant after */
    struct sc_plugin_item *items; /* [slots][SC_LIMIT_BATCH] */
    struct sc_slot_pool slots;
};

spec_status sc_plugin_batches_open(spec_connector *conn, struct spec_error *reterr);
void sc_plugin_batches_close(spec_connector *conn);
/* Returns memory for SC_LIMIT_BATCH items. Waits while all batches are taken. */
struct sc_plugin_item *sc_plugin_batch_take(spec_connector *conn);
void sc_plugin_batch_put(spec_connector *conn, const struct sc_plugin_item *items);

#endif
