/* Codes of rows that are being stored, made from the frames in which those go to the disk.
 *
 *   frames   [ window ][ window ][ window ]      filled, written, then kept: free, not overwritten
 *   slab              [k v k v k v]              of one to three windows; coded by one task
 *   layer    [K blocks][V blocks]                in memory, one at a time; put into an annex
 *
 *   the extent   begin -> window.. packed -> ... -> end(id)          never waits for any of this
 *   the task            code, put -> ... -> written -> wait for the id -> record
 *
 * A window's frame goes back to the pool when its write ends, as it would without codes, but the
 * pool gives it to somebody only when it has no other (store/frames.h, keep). Whoever takes one
 * ends the codes of its extent, and build.c makes them later from what is on the disk. So what
 * waits to be coded is bounded by the staging memory, and takes none of it from anybody.
 *
 * Holds: codes come from bytes that were packed whole and that nobody wrote since; an annex' record
 * stands behind its extent's; an extent whose codes end early is given to build.c.
 * Does not: delay rows, read the disk, know what codes mean.
 * Threads: window, packed: the extent's producer; end: who commits or discards it; the rest the
 * executor's, one step at a time. One lock (rank 55), the frames' inside it.
 * Tests: tests/unit/store/test_coding.c, tests/fault/test_store_faults.c */
#ifndef SC_STORE_CODING_H
#define SC_STORE_CODING_H

#include "store/internal.h"
#include "store/where.h"

#define SC_STORE_CODERS 16u /* extents that are stored and coded at once; others are build.c's */

spec_status sc_store_coding_open(struct sc_store *store, struct spec_error *reterr);
/* Whoever is coded is given up; no step is posted or will be once store->busy is 0. */
void sc_store_coding_stop(struct sc_store *store);
void sc_store_coding_close(struct sc_store *store);
/* An extent that was committed gets its codes from here. No lock held. */
bool sc_store_coding_runs(struct sc_store *store);

struct sc_store_coder;

/* What is to be coded; copied. */
struct sc_store_coder_plan {
    const struct sc_store_piece_plan *pieces;
    const struct sc_store_part *parts;
    struct sc_store_place place;
    uint64_t piece_count, part_count, row_count;
};
/* NULL: it is not coded here. */
struct sc_store_coder *sc_store_coder_begin(struct sc_store *store,
                                            const struct sc_store_coder_plan *plan);
/* NULL coder: no effect. The frame, which was just taken, is filled with these bytes of a part. */
void sc_store_coder_window(struct sc_store_coder *coder, const uint8_t *frame,
                           const struct sc_store_part *part, uint64_t start, uint64_t end);
/* One more layer lies in frames. */
void sc_store_coder_packed(struct sc_store_coder *coder);
/* The extent has this id now, 0: it never will. The coder is not the extent's any more. */
void sc_store_coder_end(struct sc_store_coder *coder, uint64_t extent_id);

/* Of frames in which extents go to the disk: taken from the pool, and given back to it. */
uint8_t *sc_store_coding_take(struct sc_store *store);
void sc_store_coding_put(struct sc_store *store, uint8_t *frame);

#endif
