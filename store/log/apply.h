/* apply: what records say of extents and pieces, in the table: for our own commits and for records
 * that are read.
 *
 *   extent's record -> its entry          piece's record -> its entry, LIVE or DOOMED; its extent
 *   and the counters count it             void           -> DROPPED or FREED; they count it no more
 *
 * Does not: check records, take or free pages, reserve the log's room, call the host back.
 * Threads: the log lock is held, or a writer opens.
 * Tests: tests/unit/store/test_store.c, test_log.c, test_follow.c, test_quarantine.c */
#ifndef SC_STORE_LOG_APPLY_H
#define SC_STORE_LOG_APPLY_H

#include "store/log/table.h"

struct sc_store;

/* Fills the entry of an extent without pieces. The table has room; parts name segments by the open
 * store's indices. Returns the entry. */
struct sc_store_extent_entry *sc_store_apply_extent(struct sc_store *store, uint64_t id,
                                                    const struct sc_store_record_extent *record);
/* Fills the entry of a piece; id and extent are the table's.
 *   state    LIVE or DOOMED; published last
 *   mark     the caller's number
 *   at_open  a writer opens: no other thread counts */
void sc_store_apply_piece(struct sc_store *store, const struct sc_store_piece *piece,
                          uint32_t state, uint64_t mark, bool at_open);
/* LIVE, or DOOMED with its record read, becomes `state`: DROPPED, or FREED, which is not readable
 * on a lease. Returns false for other pieces and NULL, which stay as they are. */
bool sc_store_apply_void(struct sc_store *store, struct sc_store_piece_entry *piece,
                         uint32_t state);

#endif
