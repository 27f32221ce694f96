/* Memory for the items of a get_important. A thread of an engine may have a small stack, and all
 * items of the largest call are more than one: a few stand on it, more in memory made at open.
 *
 *   call of up to SC_PLUGIN_ITEMS_FEW items   [items]   on the caller's stack
 *   of more                                   [256 items] .. [256 items]   one of BATCHES_MAX
 *
 * Holds: nobody waits while fewer such calls run at one time than there are batches; who waits does
 * so for a call to end, and no call waits for another one's batch while it has one.
 * Does not: allocate after open.
 * Threads: any.
 * Tests: tests/unit/plugin/test_stack.c */
#include "plugin/select.h"

#define BATCHES_MAX 32u /* 0.2 MB each, touched when used */

struct sc_plugin_batch {
    _Atomic uint32_t is_taken;
    struct sc_plugin_item *items; /* [SC_LIMIT_BATCH] */
};

spec_status sc_plugin_batches_open(spec_connector *conn, struct spec_error *reterr)
{
    uint32_t most = conn->config.max_requests, count = most < BATCHES_MAX ? most : BATCHES_MAX;
    uint64_t bytes = SC_LIMIT_BATCH * sizeof(struct sc_plugin_item);
    conn->batches = sc_alloc_array(&conn->alloc, count, sizeof(*conn->batches));
    conn->batch_items = sc_alloc(&conn->alloc, count * bytes);
    if (conn->batches == NULL || conn->batch_items == NULL)
        return sc_fail(reterr, SPEC_E_NO_MEMORY, "%" PRIu32 " calls of %u items", count,
                       SC_LIMIT_BATCH);
    for (uint32_t i = 0; i < count; i++)
        conn->batches[i].items = conn->batch_items + (uint64_t)i * SC_LIMIT_BATCH;
    conn->batch_count = count;
    return SPEC_OK;
}

void sc_plugin_batches_close(spec_connector *conn)
{
    sc_alloc_free(&conn->alloc, conn->batch_items);
    sc_alloc_free(&conn->alloc, conn->batches);
}

struct sc_plugin_item *sc_plugin_batch_take(spec_connector *conn)
{
    for (;;) {
        uint32_t seen = atomic_load_explicit(&conn->batch_word, memory_order_acquire);
        for (uint32_t i = 0; i < conn->batch_count; i++) {
            uint32_t taken = 0;
            if (atomic_compare_exchange_strong(&conn->batches[i].is_taken, &taken, 1))
                return conn->batches[i].items;
        }
        (void)sc_exec_wait(conn->exec, &conn->batch_word, seen, SC_EXEC_FOREVER);
    }
}

void sc_plugin_batch_put(spec_connector *conn, const struct sc_plugin_item *items)
{
    uint64_t i = (uint64_t)(items - conn->batch_items) / SC_LIMIT_BATCH;
    SC_ASSERT(&conn->poison, i < conn->batch_count);
    atomic_store_explicit(&conn->batches[i].is_taken, 0, memory_order_release);
    atomic_fetch_add_explicit(&conn->batch_word, 1, memory_order_release);
    sc_exec_wake(conn->exec, &conn->batch_word);
}
