/* Who holds which page, reckoned anew page by page and row by row, and compared with what the store
 * keeps: the space map, extents' counts, quarantine.
 *
 * Threads: none beside the caller; no extent is being written. */
#ifndef SC_TESTS_UNIT_STORE_SPACE_CHECK_H
#define SC_TESTS_UNIT_STORE_SPACE_CHECK_H

#include "store/internal.h"
#include "store/log/where.h"
#include "tests/unit/store/store_fixture.h"

#define CHECK_PAGE ((uint64_t)SC_IO_PAGE_BYTES)

struct space_sums {
    uint64_t held_pages, void_pages, quarantined, live, unrecorded;
};

/* For every row of the extent: 0 free, 1 held by quarantined pieces, 2 by others. */
uint8_t check_rows(struct sc_store *store, uint64_t id, const struct sc_store_extent_entry *extent,
                   uint8_t *rows, struct space_sums *sums);

void space_check(struct sc_store *store);

/* Gives back all pages that wait for leases, then checks. */
void release_all(struct world *world);

#endif
