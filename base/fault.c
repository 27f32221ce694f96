/* fault: the countdown falls by compare-and-exchange, so exactly one of many threads meets 0. */
#include "base/fault.h"

#include "base/assert.h"
#include "base/counter.h"

#include <stddef.h>

#define UNARMED (-1)

void sc_fault_init(struct sc_fault *fault)
{
    for (int kind = 0; kind < SC_FAULT_KINDS; kind++) {
        atomic_init(&fault->countdown[kind], UNARMED);
        atomic_init(&fault->fired[kind], 0);
        atomic_init(&fault->seen[kind], 0);
    }
    fault->gate_user = NULL;
    atomic_init(&fault->gate, NULL);
}

void sc_fault_arm(struct sc_fault *fault, enum sc_fault_kind kind, uint64_t n)
{
    SC_ASSERT(NULL, (uint32_t)kind < SC_FAULT_KINDS);
    SC_ASSERT(NULL, n <= INT64_MAX);
    atomic_store_explicit(&fault->countdown[kind], (int64_t)n, memory_order_relaxed);
}

bool sc_fault_hit(struct sc_fault *fault, enum sc_fault_kind kind)
{
    if (fault == NULL)
        return false;
    int64_t left = atomic_load_explicit(&fault->countdown[kind], memory_order_relaxed);
    do {
        if (left < 0)
            return false;
    } while (!atomic_compare_exchange_weak_explicit(&fault->countdown[kind], &left, left - 1,
                                                    memory_order_relaxed, memory_order_relaxed));
    sc_count(&fault->seen[kind], 1);
    if (left != 0)
        return false;
    sc_count(&fault->fired[kind], 1);
    return true;
}

void sc_fault_gate_set(struct sc_fault *fault, void (*gate)(void *user), void *user)
{
    fault->gate_user = user;
    atomic_store_explicit(&fault->gate, gate, memory_order_release);
}

void sc_fault_gate_pass(struct sc_fault *fault)
{
    if (fault == NULL)
        return;
    void (*gate)(void *user) = atomic_load_explicit(&fault->gate, memory_order_acquire);
    if (gate != NULL)
        gate(fault->gate_user);
}
