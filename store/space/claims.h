/* claims: which segments a member places rows in (claims.c), and the segments that records tell of.
 *
 *   segment   told by a record -> opened -> claimed -> read on -> rows are placed
 *                                   \-> another process has it: it counts as full
 *
 * Threads: as each call says. Only members call these, unless stated.
 * Tests: tests/unit/store/test_many_writers.c */
#ifndef SC_STORE_SPACE_CLAIMS_H
#define SC_STORE_SPACE_CLAIMS_H

#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

struct sc_store;

struct sc_store_segment_list {
    struct {
        uint32_t number;
        uint64_t bytes;
    } * list; /* [count] owned by the caller */
    uint64_t count;
};

/* Space lock held. Rows may be placed there now, or once it is claimed: for estimates. Any
 * store. */
bool sc_store_segment_may_take(struct sc_store *store, uint64_t index);

/* Opens a told segment. The thread that follows; no lock held. */
spec_status sc_store_segment_told_open(struct sc_store *store, uint64_t index,
                                       struct spec_error *reterr);
/* Lists the segments that the log tells of. No lock held. Any store with params.shares. */
spec_status sc_store_segments_list(struct sc_store *store, struct sc_store_segment_list *ret_list,
                                   struct spec_error *reterr);
#endif
