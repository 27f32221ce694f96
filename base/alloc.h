/* All memory comes through here: the host's functions, or libc's. Counts bytes and blocks, can fail
 * the n-th allocation (base/fault.h), and can be sealed: while sealed, an allocation is an error of
 * ours, which proves that per-layer and per-request paths allocate nothing.
 *
 * Holds: live_bytes and live_blocks count what was handed out and not freed; sc_alloc_done asserts
 * in tests that both are 0.
 * Does not: pool, cache, or zero on free.
 * Threads: any (counters are atomic).
 * Tests: tests/unit/base/test_alloc.c */
#ifndef SC_BASE_ALLOC_H
#define SC_BASE_ALLOC_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct spec_alloc; /* abi: the host's functions */

struct sc_alloc {
    /* Set by init, constant after. NULL functions: libc's aligned_alloc, calloc and free. */
    void *(*host_alloc)(uint64_t bytes, uint64_t align_bytes, void *user);
    void (*host_free)(void *memory, uint64_t bytes, void *user);
    void *user;
    struct sc_fault *fault; /* NULL: no injected failures */

    /* Any thread, relaxed: statistics. */
    _Atomic uint64_t live_bytes;
    _Atomic uint64_t live_blocks;
    _Atomic uint64_t peak_bytes;
    _Atomic uint64_t sealed_refusals; /* allocations asked for while sealed: must stay 0 */

    _Atomic uint32_t seal_depth;
};

void sc_alloc_init(struct sc_alloc *alloc);
/* Asserts that everything was freed. */
void sc_alloc_done(struct sc_alloc *alloc);

/* NULL when the host's function, the fault point or the seal refuses. bytes 0 is asked as 1.
 * sc_alloc: 64-byte aligned, uninitialised. _zero: the same, zeroed; libc's large ones are not
 * touched for that. _array: count * item_bytes with overflow check, zeroed. _aligned: align_bytes a
 * power of two >= 64. */
void *sc_alloc(struct sc_alloc *alloc, uint64_t bytes);
void *sc_alloc_zero(struct sc_alloc *alloc, uint64_t bytes);
void *sc_alloc_array(struct sc_alloc *alloc, uint64_t count, uint64_t item_bytes);
void *sc_alloc_aligned(struct sc_alloc *alloc, uint64_t bytes, uint64_t align_bytes);
void *sc_alloc_zero_aligned(struct sc_alloc *alloc, uint64_t bytes, uint64_t align_bytes);
/* Memory of that many bytes in huge pages, whole ones, where it takes two of them or more; else
 * page-aligned. For what the device transfers to and what is read throughout. Advice only: where it
 * is refused, nothing else changes. It stays on the range until the allocator unmaps it. */
void *sc_alloc_huge(struct sc_alloc *alloc, uint64_t bytes);
/* Copies a NUL-ended string. */
char *sc_alloc_string(struct sc_alloc *alloc, const char *text);

/* Takes NULL. The size is remembered in a header before the block. */
void sc_alloc_free(struct sc_alloc *alloc, void *memory);

/* While sealed (calls nest), every allocation is refused and counted. Frees are allowed. */
void sc_alloc_seal(struct sc_alloc *alloc);
void sc_alloc_unseal(struct sc_alloc *alloc);

#endif
