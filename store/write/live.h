/* Codes of rows that are being stored, made while they go to the disk.
 *
 *   frames   [ window ][ window ][ window ]      filled, written, then kept in the cache
 *   layer    [K blocks][V blocks]                a sidecar's (store/sidecar/sidecar.h), put into an
 * annex
 *
 *   the extent   begin -> window.. packed -> ... -> end(id)          never waits for any of this
 *   the task            layer, put -> ... -> written -> wait for the id -> record
 *
 * A layer is made when it is packed, of rows that the cache still has; those whose frames somebody
 * took meanwhile are read back from the disk, where they are by then. An extent whose codes end
 * early (there is no room for them, or it has no object) is given to build.c.
 *
 * Holds: an annex' record stands behind its extent's.
 * Does not: delay rows, know what codes mean.
 * Threads: begin, window, packed: the extent's producer; end: who commits or discards it; the rest
 * the executor's, one step at a time. One lock (rank 54), the cache's inside it.
 * Tests: tests/unit/store/test_live.c, tests/fault/test_store_faults.c */
#ifndef SC_STORE_LIVE_H
#define SC_STORE_LIVE_H

#include "base/status.h"

#define SC_STORE_LIVE_MAX                                                                          \
    16u /* extents that are stored and coded at once; others are build.c's                         \
         */

struct sc_store;
struct sc_store_extent;
struct sc_store_part;
struct sc_store_live_job; /* of an extent */

spec_status sc_store_live_open(struct sc_store *store, struct spec_error *reterr);
/* Every job is given up; no step is posted or will be once store->busy is 0. */
void sc_store_live_stop(struct sc_store *store);
void sc_store_live_close(struct sc_store *store);
/* An extent that was committed gets its codes from here. No lock held. */
bool sc_store_live_runs(struct sc_store *store);

/* The extent's places and pieces are set. NULL: it is not coded here. */
struct sc_store_live_job *sc_store_live_begin(struct sc_store *store,
                                              const struct sc_store_extent *extent);
/* NULL job: no effect, of both. The frame, which was just taken, is filled with bytes
 * [start, end) of the part's segment. */
void sc_store_live_window(struct sc_store_live_job *job, uint8_t *frame,
                          const struct sc_store_part *part, uint64_t start, uint64_t end);
/* One more layer lies in frames. */
void sc_store_live_packed(struct sc_store_live_job *job);
/* The extent has this id now, 0: it never will. The job is not the extent's any more. NULL job: no
 * effect. */
void sc_store_live_end(struct sc_store_live_job *job, uint64_t extent_id);

#endif
