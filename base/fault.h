/* Fault points: "fail the n-th allocation, read, write, reserve, sync or completion, once", and a
 * gate at which completions are held up. Armed by tests, which hold the object; unarmed they cost
 * one relaxed load.
 *
 * Holds: an armed point fires exactly once; fired says that it did, so that a test can run
 * n = 0, 1, 2 ... until a run meets none.
 * Does not: know what failing means; the caller does.
 * Threads: any.
 * Tests: tests/unit/base/test_fault.c */
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
    _Atomic int64_t countdown[SC_FAULT_KINDS]; /* < 0: unarmed; 0: the next one fails */
    _Atomic uint64_t fired[SC_FAULT_KINDS];
    _Atomic uint64_t seen[SC_FAULT_KINDS]; /* operations that met the point while it was armed */
    void *gate_user;                       /* written before gate */
    void (*_Atomic gate)(void *user);
};

void sc_fault_init(struct sc_fault *fault);
/* The n-th operation from now (0: the next) of this kind fails, once. */
void sc_fault_arm(struct sc_fault *fault, enum sc_fault_kind kind, uint64_t n);
/* True: the caller's operation must fail now. fault NULL: false. */
bool sc_fault_hit(struct sc_fault *fault, enum sc_fault_kind kind);
/* From now on the gate is called before any operation is told to be complete, on the thread that
 * tells it: a gate that blocks is a device that stalls. Set once; the test outlives its users. */
void sc_fault_gate_set(struct sc_fault *fault, void (*gate)(void *user), void *user);
void sc_fault_gate_pass(struct sc_fault *fault); /* fault NULL, or no gate: nothing */

#endif
