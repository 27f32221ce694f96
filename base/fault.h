/* Fault points: "fail the n-th allocation, read, write, reserve, sync or completion, once". Armed
 * by tests, which hold the object; unarmed they cost one relaxed load.
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
};

void sc_fault_init(struct sc_fault *fault);
/* The n-th operation from now (0: the next) of this kind fails, once. */
void sc_fault_arm(struct sc_fault *fault, enum sc_fault_kind kind, uint64_t n);
/* True: the caller's operation must fail now. fault NULL: false. */
bool sc_fault_hit(struct sc_fault *fault, enum sc_fault_kind kind);

#endif
