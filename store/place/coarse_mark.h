/* Rows that go while codes stay: what becomes of an extent's entry (coarse_mark.c).
 *
 * Threads: per call, below.
 * Tests: tests/unit/store/test_coarse.c */
#ifndef SC_STORE_COARSE_MARK_H
#define SC_STORE_COARSE_MARK_H

#include "store/log/table.h"

struct sc_store;

/* What a piece of it is worth beyond what its record says. */
void sc_store_coarse_worth(const struct sc_store_extent_entry *extent,
                           struct sc_store_provenance *provenance);
/* Log lock held, or replay: the record is in the log. */
void sc_store_coarse_set(struct sc_store *store, struct sc_store_extent_entry *extent,
                         const struct sc_store_record_coarse *record);
/* The same: a live piece of the extent is not live any more. */
void sc_store_coarse_piece_gone(struct sc_store *store, const struct sc_store_extent_entry *extent);

#endif
