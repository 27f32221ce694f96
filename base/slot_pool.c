/* slot_pool: one word of bits. */
#include "base/slot_pool.h"

void sc_slot_pool_init(struct sc_slot_pool *slots, uint32_t count, struct sc_exec *exec,
                       struct sc_poison *poison)
{
    SC_ASSERT(poison, count >= 1 && count <= SC_SLOT_POOL_MAX);
    slots->exec = exec;
    slots->poison = poison;
    slots->count = count;
    atomic_init(&slots->free, UINT32_MAX >> (SC_SLOT_POOL_MAX - count));
}

uint32_t sc_slot_pool_take(struct sc_slot_pool *slots, uint64_t deadline_ns)
{
    for (;;) {
        uint32_t free = atomic_load_explicit(&slots->free, memory_order_relaxed);
        while (free != 0)
            if (atomic_compare_exchange_weak_explicit(&slots->free, &free, free & (free - 1),
                                                      memory_order_acquire, memory_order_relaxed))
                return (uint32_t)__builtin_ctz(free);
        if (!sc_exec_wait(slots->exec, &slots->free, 0, deadline_ns) &&
            deadline_ns != SC_EXEC_FOREVER)
            return SC_SLOT_POOL_NONE;
    }
}

void sc_slot_pool_put(struct sc_slot_pool *slots, uint32_t slot)
{
    SC_ASSERT(slots->poison, slot < slots->count);
    uint32_t bit = slot < slots->count ? UINT32_C(1) << slot : 0;
    uint32_t free = atomic_fetch_or_explicit(&slots->free, bit, memory_order_release);
    SC_ASSERT(slots->poison, (free & bit) == 0);
    if (free == 0) /* else no taker sleeps that an earlier put did not wake */
        sc_exec_wake(slots->exec, &slots->free);
}
