/* Numbers of copies: every extent and every derived section has one of its own, and its tags are
 * made with it.
 *
 *   open 1   base a: a, a + 1, a + 2 ..        open 2   base b: b, b + 1 ..
 *            extent 7  section  extent 8                extent 8, given again after a crash
 *
 * Ids do not do: a crash takes records from the log's end, and their ids are given again. Then the
 * same tokens may be stored in the same place once more, and what a device lost of the later write
 * must not pass for it. A base is drawn at random each time a writer opens: a thousand opens that
 * store a million extents each give a number twice with a chance of 2^-24.
 *
 * Holds: no number is given twice, whatever a crash made undone.
 * Does not: keep anything on disk (records say which number is whose).
 * Threads: open; next any.
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
