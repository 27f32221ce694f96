/* An extent's copy of the rows in another order: see permute_extent.c.
 *
 * Threads: build_sections.c's task.
 * Tests: tests/unit/store/test_reorder.c */
#ifndef SC_STORE_SECTION_PERMUTE_EXTENT_H
#define SC_STORE_SECTION_PERMUTE_EXTENT_H

#include "store/internal.h"

/* The records of a copy of the rows that is found and that nobody reads beside the one before it,
 * which goes then. DROPPED: the extent has gone. NO_SPACE: the log has no room now. What else fails
 * pauses the store; the copy of the rows is read, and is gone after a reopen. */
spec_status sc_store_permutation_commit(struct sc_store *store, uint64_t extent_id,
                                        struct spec_error *reterr);

#endif
