/* reserve: bytes stored, or refused for want of space, within a lease time. That much must be free
 * or in quarantine for storing to continue (plugin/index/evict.c).
 *
 *   demand       [ 1/16 lease | 1/16 | ... | 1/16 | now ]   a ring
 *
 * Threads: the space lock.
 * Tests: tests/unit/store/test_quarantine.c */
#include "store/space/reserve.h"
#include "store/internal.h"

#define DEMAND_NS_MIN 1000000ull /* shorter leases: dropped pages are free at once */

/* Returns the newest slot, after clearing slots that have passed. */
static struct sc_store_reserve_slot *demand_now(struct sc_store *store)
{
    struct sc_store_reserve *demand = &store->demand;
    uint64_t span_ns = store->params.config->lease_ns_max;
    span_ns = span_ns > DEMAND_NS_MIN ? span_ns : DEMAND_NS_MIN;
    uint64_t slot = sc_exec_now_ns(store->params.exec) / (span_ns / (SC_STORE_RESERVE_SLOTS - 1));
    uint64_t gone = slot > demand->slot ? slot - demand->slot : 0;
    demand->slot += gone;
    gone = gone < SC_STORE_RESERVE_SLOTS ? gone : SC_STORE_RESERVE_SLOTS;
    for (uint64_t i = 0; i < gone; i++)
        demand->slots[(slot - i) % SC_STORE_RESERVE_SLOTS] =
            (struct sc_store_reserve_slot){.piece_first = demand->piece_seen};
    return &demand->slots[demand->slot % SC_STORE_RESERVE_SLOTS];
}

void sc_store_reserve_open(struct sc_store *store)
{
    store->demand.piece_seen = store->table.piece_next; /* existing pieces are not new */
    (void)demand_now(store);
    for (uint32_t i = 0; i < SC_STORE_RESERVE_SLOTS; i++)
        store->demand.slots[i] = (struct sc_store_reserve_slot){
            .bytes = store->quarantine.bytes / SC_STORE_RESERVE_SLOTS, /* recent demand */
            .piece_first = store->table.piece_next};
}

void sc_store_reserve_add(struct sc_store *store, uint64_t bytes)
{
    demand_now(store)->bytes += bytes;
}

void sc_store_reserve_sub(struct sc_store *store, uint64_t bytes)
{
    struct sc_store_reserve_slot *now = demand_now(store);
    now->bytes -= bytes < now->bytes ? bytes : now->bytes;
}

void sc_store_reserve_look(struct sc_store *store, uint64_t piece_next, uint64_t *ret_bytes,
                           uint64_t *ret_piece_new)
{
    struct sc_store_reserve *demand = &store->demand;
    uint64_t before = (uint64_t)(demand_now(store) - demand->slots) + SC_STORE_RESERVE_SLOTS - 1;
    demand->piece_seen = piece_next > demand->piece_seen ? piece_next : demand->piece_seen;
    *ret_bytes = 0;
    *ret_piece_new = UINT64_MAX;
    if (store->params.config->lease_ns_max < DEMAND_NS_MIN)
        return;
    *ret_piece_new = demand->slots[before % SC_STORE_RESERVE_SLOTS].piece_first;
    for (uint32_t i = 0; i < SC_STORE_RESERVE_SLOTS; i++)
        *ret_bytes += demand->slots[i].bytes;
}
