/* copy_number: draws a unique copy number for every extent and derived section; tags include it.
 *
 *   open 1   base a: a, a + 1, a + 2 ..        open 2   base b: b, b + 1 ..
 *            extent 7  section  extent 8                extent 8, id reused after a crash
 *
 * Ids are not unique: a crash can drop records at the log's end, and their ids are given again. A
 * lost write over the same tokens must then fail its tags. Each open of a writer draws a random
 * base: 1,000 opens of a million extents each repeat a number with probability 2^-24.
 * Threads: open; sc_store_copy_next any.
 * Tests: tests/unit/store/test_copy.c */
#include "store/internal.h"
#include "store/log/identity.h"

spec_status sc_store_copies_open(struct sc_store *store, struct spec_error *reterr)
{
    uint64_t base;
    spec_status status = sc_io_random(store->io, &base, reterr);
    if (status == SPEC_OK)
        atomic_store(&store->copy_next, base);
    return status;
}

uint64_t sc_store_copy_next(struct sc_store *store)
{
    return atomic_fetch_add_explicit(&store->copy_next, 1, memory_order_relaxed);
}
