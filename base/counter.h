/* counter: statistics that any thread changes, with relaxed order. */
#ifndef SC_BASE_COUNTER_H
#define SC_BASE_COUNTER_H

#include <stdatomic.h>
#include <stdint.h>

static inline void sc_count(_Atomic uint64_t *counter, uint64_t more)
{
    atomic_fetch_add_explicit(counter, more, memory_order_relaxed);
}

static inline void sc_uncount(_Atomic uint64_t *counter, uint64_t less)
{
    atomic_fetch_sub_explicit(counter, less, memory_order_relaxed);
}

static inline uint64_t sc_counted(const _Atomic uint64_t *counter)
{
    return atomic_load_explicit(counter, memory_order_relaxed);
}

#endif
