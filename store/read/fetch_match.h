/* A match into host memory, ahead of the load that will ask for it, in the background: what its
 * rows are chosen by, and rows.
 *
 *   ranges   [piece][piece] ...            of a match: whole pieces of them are brought
 *   passes   [choice of layer 0][of 1] ..  codes, probe keys or row tags, where loads choose rows:
 *                                          they read these for certain (fetch_selectors.h)
 *            [rows of layer 0][of 1] ..    but of pieces that are read as codes alone
 *   pass p   what is there is kept; for the others slabs are begun, in their order, until there is
 *            no room; then they are read, window after window, verified, published
 *   windows  [stretch of neighbouring pieces][stretch] ..   of rows: readback.h
 *            [block of pieces of one layer][block] ..       of choice: fetch_selectors.h
 *                                                           two, in memory of their own: loads need
 *                                                           the pool's frames
 *
 *   begin -> windows, pass after pass -> done            loads go layer by layer: so does what is
 *            \-> cancel, a failure, no room ---^         there of a match that does not fit
 *
 * Holds: what is published agreed with its tags, or checksums; a slab is begun before it is read,
 * so nothing is read in vain; at most WINDOWS windows are in flight, in the lowest class, in
 * operations of io.op_bytes or one piece; the caller's ranges and `what` are not touched once done
 * has run.
 * Does not: know requests, deadlines or tickets (plugin/request/host_prefetch.c), wait, retry.
 * Threads: begin, cancel any; steps the executor's, one at a time for each window.
 * Tests: tests/unit/plugin/test_host_prefetch.c, test_host_prefetch_meanwhile.c,
 * test_host_prefetch_random.c, test_host_prefetch_choice.c, test_host_prefetch_choice_random.c,
 * tests/fault/test_host_races.c, test_choice_races.c */
#ifndef SC_STORE_READ_FETCH_MATCH_H
#define SC_STORE_READ_FETCH_MATCH_H

#include "store/internal.h"
#include "store/load.h"

spec_status sc_store_match_fetcher_open(struct sc_store *store, struct spec_error *reterr);
/* What runs ends soon, and nothing begins any more. */
void sc_store_match_fetcher_stop(struct sc_store *store);
void sc_store_match_fetcher_close(struct sc_store *store);

#endif
