/* slot_pool: who has which of a few objects that were created at open. Slots are numbers; the
 * objects are the owner's.
 *
 *   free   [0 .. 0 1 0 1 1]   bit i: slot i is free; 0: takers sleep on this word
 *
 * Invariants: a slot has one taker. There is no lock and no queue: the first waiter that wakes gets
 * it.
 * Threads: any. Tests: tests/unit/base/test_slots.c */
#ifndef SC_BASE_SLOT_POOL_H
#define SC_BASE_SLOT_POOL_H

#include "base/exec.h"

#define SC_SLOT_POOL_MAX  32u
#define SC_SLOT_POOL_NONE UINT32_MAX

struct sc_slot_pool {
    /* Set by init, constant after. */
    struct sc_exec *exec;
    struct sc_poison *poison;
    uint32_t count;

    /* Any thread. */
    _Atomic uint32_t free;
};

/* Frees all of `count` slots, 1 .. SC_SLOT_POOL_MAX. There is no matching done. */
void sc_slot_pool_init(struct sc_slot_pool *slots, uint32_t count, struct sc_exec *exec,
                       struct sc_poison *poison);
/* Takes the lowest free slot; waits for one by sc_exec_wait, whose rules hold. SC_SLOT_POOL_NONE:
 * the deadline passed; never with SC_EXEC_FOREVER. */
uint32_t sc_slot_pool_take(struct sc_slot_pool *slots, uint64_t deadline_ns);
/* The slot must be taken (asserted). */
void sc_slot_pool_put(struct sc_slot_pool *slots, uint32_t slot);

#endif
