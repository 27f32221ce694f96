/* Who has which of a few things that were made at open: slots are numbers, the things are the
 * owner's.
 *
 *   free   [0 .. 0 1 0 1 1]   bit i = slot i may be taken; 0: takers sleep on this word
 *
 * Holds: a slot has one taker; nothing is allocated, and there is no lock: who takes and who puts
 * change one word.
 * Does not: know what a slot stands for, or let takers queue: who wakes first has it.
 * Threads: any.
 * Tests: tests/unit/base/test_slots.c */
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

/* All of `count` slots, 1 .. SC_SLOT_POOL_MAX, are free. There is nothing to undo. */
void sc_slot_pool_init(struct sc_slot_pool *slots, uint32_t count, struct sc_exec *exec,
                       struct sc_poison *poison);
/* The lowest free slot. Waits for one: sc_exec_wait, whose rules for callers hold.
 * SC_SLOT_POOL_NONE: the deadline came first; never with SC_EXEC_FOREVER. */
uint32_t sc_slot_pool_take(struct sc_slot_pool *slots, uint64_t deadline_ns);
/* The slot was taken (asserted). */
void sc_slot_pool_put(struct sc_slot_pool *slots, uint32_t slot);

#endif
