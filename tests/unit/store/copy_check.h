/* Copies of the same tokens under test: stored again and again under one hash, with other rows and
 * another provenance each time.
 *
 * Threads: one test thread beside the executor's. */
#ifndef SC_TESTS_UNIT_STORE_COPY_CHECK_H
#define SC_TESTS_UNIT_STORE_COPY_CHECK_H

#include "store/internal.h"
#include "tests/unit/store/store_fixture.h"

#define COPY_KEY  99u /* of tokens and hashes; rows have keys of their own */
#define COPY_ROWS 150u

struct copy { /* of COPY_KEY's tokens */
    struct world_piece pieces[4];
    uint32_t piece_count;
};

/* Rows are those of row_key, which says what they were computed on too (world_store). */
spec_status copy_store(struct world *world, uint64_t row_key, struct copy *ret_copy);

void copy_drop(struct world *world, const struct copy *copy);
const struct sc_store_extent_entry *copy_extent(const struct sc_store *store,
                                                const struct copy *copy);

/* How many slabs of `store` come whole; rows that come are the copy's own. Others fail. */
uint32_t copy_load(const struct world *world, struct sc_store *store, const struct copy *copy);

#endif
