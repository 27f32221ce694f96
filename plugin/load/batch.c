/* batch: memory for the items of a get_important. Contract: batch.h.
 *
 *   call of up to SC_PLUGIN_ITEMS_FEW items   [items]   on the caller's stack
 *   of more                                   [256 items] .. [256 items]   one of BATCHES_MAX
 *
 * Invariants: a call waits for other calls to end, and holds no batch while it waits. */
#include "plugin/load/batch.h"
#include "plugin/select/item.h"

#define BATCHES_MAX SC_SLOT_POOL_MAX /* 0.2 MB each, touched when used */

spec_status sc_plugin_batches_open(spec_connector *conn, struct spec_error *reterr)
{
    uint32_t most = conn->config.max_requests, count = most < BATCHES_MAX ? most : BATCHES_MAX;
    conn->batches.items =
        sc_alloc(&conn->alloc, (uint64_t)count * SC_LIMIT_BATCH * sizeof(*conn->batches.items));
    if (conn->batches.items == NULL)
        return sc_fail(reterr, SPEC_E_NO_MEMORY, "%" PRIu32 " calls of %u items", count,
                       SC_LIMIT_BATCH);
    sc_slot_pool_init(&conn->batches.slots, count, conn->exec, &conn->poison);
    return SPEC_OK;
}

void sc_plugin_batches_close(spec_connector *conn)
{
    sc_alloc_free(&conn->alloc, conn->batches.items);
}

struct sc_plugin_item *sc_plugin_batch_take(spec_connector *conn)
{
    uint32_t slot = sc_slot_pool_take(&conn->batches.slots, SC_EXEC_FOREVER);
    return conn->batches.items + (uint64_t)slot * SC_LIMIT_BATCH;
}

void sc_plugin_batch_put(spec_connector *conn, const struct sc_plugin_item *items)
{
    uint64_t slot = (uint64_t)(items - conn->batches.items) / SC_LIMIT_BATCH;
    sc_slot_pool_put(&conn->batches.slots, (uint32_t)slot);
}
