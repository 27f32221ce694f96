/* write_allowance: how much of a pass the write budget allows, and whether background work may run.
 *
 *   level of the bucket (store/log/write_budget.h)   0 ...... a quarter ............... full
 *                                         | passes | passes, compaction, builds, checkpoints
 *
 * Invariants: allowed bytes are taken at once, so concurrent passes do not spend the same bytes. A
 * full bucket allows the first chunk, or one whole request, however large, and makes up for it.
 * Threads: any.
 * Tests: tests/unit/store/test_write_budget.c, tests/unit/plugin/test_budget.c */
#include "store/internal.h"
#include "store/store.h"

uint64_t sc_store_budget_take(struct sc_store *store, uint64_t first, uint64_t count,
                              uint64_t *ret_bytes)
{
    uint64_t chunk = store->params.config->chunk_tokens, lead = chunk - first % chunk;
    lead = lead < count ? lead : count;
    *ret_bytes = 0;
    if (store->day_budget.budget == 0)
        return count;
    uint64_t wanted = sc_store_rows_bytes(store, count), least = sc_store_rows_bytes(store, lead);
    uint64_t taken = sc_store_write_budget_take(store, least, wanted), end = first + count;
    if (taken < wanted) {
        end = first + (uint64_t)((double)count * ((double)taken / (double)wanted));
        end = sc_store_down(end, chunk);
        end = end < first + lead && taken >= least ? first + lead : end;
    }
    if (end <= first) {
        sc_store_write_budget_move(store, -(int64_t)taken);
        return 0;
    }
    *ret_bytes = taken;
    return end - first;
}

bool sc_store_budget_take_whole(struct sc_store *store, uint64_t count, uint64_t *ret_bytes)
{
    *ret_bytes = 0;
    if (store->day_budget.budget == 0)
        return true;
    uint64_t wanted = sc_store_rows_bytes(store, count);
    uint64_t taken = sc_store_write_budget_take(store, wanted, wanted);
    if (taken < wanted) {
        sc_store_write_budget_move(store, -(int64_t)taken);
        return false;
    }
    *ret_bytes = taken;
    return true;
}

void sc_store_budget_give(struct sc_store *store, uint64_t bytes)
{
    sc_store_write_budget_move(store, -(int64_t)bytes);
}

uint64_t sc_store_budget_wait_ns(struct sc_store *store)
{
    return sc_store_write_budget_wait_ns(store);
}
