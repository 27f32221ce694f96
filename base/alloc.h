/* alloc: all memory of the plugin, from the host's functions or libc. Counts bytes and blocks, can
 * fail the n-th allocation (base/fault.h), and can be sealed to prove that a path allocates
 * nothing.
 *
 * Invariants: live_bytes and live_blocks count what was returned and not freed. Memory is neither
 * pooled nor zeroed on free.
 * Threads: any (counters are atomic). Tests: tests/unit/base/test_alloc.c */
#ifndef SC_BASE_ALLOC_H
#define SC_BASE_ALLOC_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct spec_alloc; /* abi: the host's functions */

struct sc_alloc {
    /* Set by init, constant after. NULL: libc's aligned_alloc, calloc and free. */
    void *(*host_alloc)(uint64_t bytes, uint64_t align_bytes, void *user);
    void (*host_free)(void *memory, uint64_t bytes, void *user);
    void *user;
    struct sc_fault *fault; /* NULL: no injected failures */

    /* Any thread, relaxed: statistics. */
    _Atomic uint64_t live_bytes;
    _Atomic uint64_t live_blocks;
    _Atomic uint64_t peak_bytes;
    _Atomic uint64_t sealed_refusals; /* allocations while sealed: must stay 0 */

    _Atomic uint32_t seal_depth;
};

void sc_alloc_init(struct sc_alloc *alloc);
/* Asserts that all memory was freed. */
void sc_alloc_done(struct sc_alloc *alloc);

/* Return NULL if the host's function, the fault point or the seal refuses; 0 bytes count as 1.
 * sc_alloc: 64-byte aligned, uninitialised. _zero: zeroed; large blocks of libc are not touched for
 * that. _array: count * item_bytes with overflow check, zeroed. _aligned: align_bytes is a power of
 * two >= 64. */
void *sc_alloc(struct sc_alloc *alloc, uint64_t bytes);
void *sc_alloc_zero(struct sc_alloc *alloc, uint64_t bytes);
void *sc_alloc_array(struct sc_alloc *alloc, uint64_t count, uint64_t item_bytes);
void *sc_alloc_aligned(struct sc_alloc *alloc, uint64_t bytes, uint64_t align_bytes);
void *sc_alloc_zero_aligned(struct sc_alloc *alloc, uint64_t bytes, uint64_t align_bytes);
/* Returns memory that is advised to use huge pages if it has two or more of them, else page-aligned
 * memory. For buffers that the device transfers to or that are read throughout. The advice stays
 * until the allocator unmaps the range. */
void *sc_alloc_huge(struct sc_alloc *alloc, uint64_t bytes);
/* Copies a NUL-terminated string. */
char *sc_alloc_string(struct sc_alloc *alloc, const char *text);

/* Takes NULL. */
void sc_alloc_free(struct sc_alloc *alloc, void *memory);

/* While sealed (calls nest), every allocation is refused and counted; frees are allowed. */
void sc_alloc_seal(struct sc_alloc *alloc);
void sc_alloc_unseal(struct sc_alloc *alloc);

#endif
