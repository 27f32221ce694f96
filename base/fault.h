/* fault: fault points for tests: fail the n-th allocation, read, write, reserve, sync or completion
 * once; hold completions at a gate. An unarmed point costs one relaxed load.
 *
 * Invariants: an armed point fires exactly once. `fired` reports it, so a test runs n = 0, 1, 2 ...
 * until a run meets none.
 * Threads: any. Tests: tests/unit/base/test_fault.c */
#ifndef SC_BASE_FAULT_H
#define SC_BASE_FAULT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum sc_fault_kind {
    SC_FAULT_ALLOC,
    SC_FAULT_READ,
    SC_FAULT_WRITE,
    SC_FAULT_RESERVE, /* file space: ENOSPC */
    SC_FAULT_SYNC,
    SC_FAULT_COMPLETION,
    SC_FAULT_KINDS
};

struct sc_fault {
    _Atomic int64_t countdown[SC_FAULT_KINDS]; /* < 0: unarmed; 0: the next operation fails */
    _Atomic uint64_t fired[SC_FAULT_KINDS];
    _Atomic uint64_t seen[SC_FAULT_KINDS]; /* operations that passed the armed point */
    void *gate_user;                       /* written before gate */
    void (*_Atomic gate)(void *user);
};

void sc_fault_init(struct sc_fault *fault);
/* Makes the n-th operation of this kind from now (0: the next) fail, once. */
void sc_fault_arm(struct sc_fault *fault, enum sc_fault_kind kind, uint64_t n);
/* Returns true if the caller's operation must fail now. fault may be NULL. */
bool sc_fault_hit(struct sc_fault *fault, enum sc_fault_kind kind);
/* Sets a function that is called before each completion is reported, on the reporting thread. A
 * gate that blocks simulates a stalled device. Set once; the test outlives its users. */
void sc_fault_gate_set(struct sc_fault *fault, void (*gate)(void *user), void *user);
void sc_fault_gate_pass(struct sc_fault *fault); /* fault may be NULL */

#endif
