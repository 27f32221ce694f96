/* pool: a pool of threads for the kernels: one call splits into parts and returns when all are
 * done.
 *
 *   caller:  run ──┬─ part 3 ─ part 1 ─┐
 *   thread 1:      └─ part 2 ─ part 0 ─┴─ run returns
 *
 * Invariants: each part runs exactly once, on any thread (the caller's included), and the caller
 * sees its writes after the run. Concurrent parts have different `thread` numbers, below
 * eng_pool_threads. A part owns its outputs, so kernels give the same bits for every thread count.
 * Parts are not ordered, and may not call eng_pool_run of their own pool.
 * Threads: open, run, reserve and close by one caller at a time.
 * Tests: tests/unit/engine/test_pool.c */
#ifndef CONFORMANCE_ENGINE_POOL_H
#define CONFORMANCE_ENGINE_POOL_H

#include <stdint.h>

#include "conformance/engine/error.h"

#define ENG_POOL_THREADS_MAX 256u
#define ENG_POOL_PARTS_MAX   0xffffffffu

struct eng_pool;

typedef void (*eng_pool_fn)(void *arg, uint64_t part, uint64_t part_count, uint32_t thread);

/* thread_count counts the caller: 1 makes no thread and runs everything inline.
 * Errors: ENG_E_INVALID (0, or above ENG_POOL_THREADS_MAX), ENG_E_NO_MEMORY, ENG_E_SYSTEM. */
eng_status eng_pool_open(uint32_t thread_count, struct eng_pool **ret_pool,
                         struct eng_error *reterr);

/* Ends and joins the threads; NULL is allowed. */
void eng_pool_close(struct eng_pool *pool);

uint32_t eng_pool_threads(const struct eng_pool *pool);

/* Calls fn(arg, part, part_count, thread) for every part below part_count (<= PARTS_MAX). */
void eng_pool_run(struct eng_pool *pool, eng_pool_fn fn, void *arg, uint64_t part_count);

/* Gives every thread at least `bytes` of scratch memory (64-byte aligned, contents undefined).
 * Errors: ENG_E_NO_MEMORY, also above ENG_POOL_SCRATCH_MAX_BYTES; what there was stays usable. */
eng_status eng_pool_reserve(struct eng_pool *pool, uint64_t bytes, struct eng_error *reterr);

/* The scratch of one thread, as large as the largest reserve so far, at least
 * ENG_POOL_SCRATCH_MIN_BYTES. Only the part that runs on `thread` may use it. */
void *eng_pool_scratch(struct eng_pool *pool, uint32_t thread);

#define ENG_POOL_SCRATCH_MIN_BYTES (512u << 10)
#define ENG_POOL_SCRATCH_MAX_BYTES (1ull << 38)

/* The share [*ret_first, *ret_end) of `count` items that part `part` of `part_count` works on:
 * ascending, without a gap, sizes differ by at most one. */
static inline void eng_pool_share(uint64_t count, uint64_t part, uint64_t part_count,
                                  uint64_t *ret_first, uint64_t *ret_end)
{
    uint64_t each = count / part_count;
    uint64_t more = count % part_count;
    *ret_first = part * each + (part < more ? part : more);
    *ret_end = *ret_first + each + (part < more ? 1 : 0);
}

#endif
