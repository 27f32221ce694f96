/* permute_extent: commits an extent's permuted copy of its rows.
 * Threads: build_sections.c's task.
 * Tests: tests/unit/store/test_reorder.c */
#ifndef SC_STORE_SECTION_PERMUTE_EXTENT_H
#define SC_STORE_SECTION_PERMUTE_EXTENT_H

#include "store/internal.h"

/* Commits a permuted copy, and frees the older copy, which nobody reads any more. Errors: DROPPED,
 * all pieces are void; NO_SPACE, the log has no room now. Other errors pause the store; the copy is
 * read, but lost after a reopen. */
spec_status sc_store_permutation_commit(struct sc_store *store, uint64_t extent_id,
                                        struct spec_error *reterr);

#endif
