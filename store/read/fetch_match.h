/* fetch_match: prefetches a match from disk to host memory, ahead of the load that will read it.
 *
 *   passes   [selector keys of layer 0][of 1] ..  quantised rows, probe keys or row tags, if loads
 *                                                 select rows: they always read these
 *            [rows of layer 0][of 1] ..           not of pieces that loads read quantised only
 *   pass p   Keeps slabs that exist. Begins the others in order, until there is no room; then reads
 *            them window by window, verifies and publishes them.
 *   windows  [stretch of neighbouring pieces][stretch] ..   rows: readback.h
 *            [block of pieces of one layer][block] ..       selector keys: fetch_selectors.h
 *            There are two, in their own memory: loads need the pool's frames.
 *
 *   begin -> windows, pass after pass -> done
 *            \-> cancel, a failure, no room ---^
 *
 * Invariants: whole pieces are prefetched. Published bytes agreed with their tags or checksums. A
 * slab is begun before its read, so no read is wasted. Reads are in the lowest I/O class, in
 * operations of io.op_bytes or one piece. After done has run, the caller's ranges and `what` are
 * not touched.
 * Threads: begin, cancel: any; steps: the executor's, one at a time per window.
 * Tests: tests/unit/plugin/test_host_prefetch.c, test_host_prefetch_meanwhile.c,
 * test_host_prefetch_random.c, test_host_prefetch_choice.c, test_host_prefetch_choice_random.c,
 * tests/fault/test_host_races.c, test_choice_races.c */
#ifndef SC_STORE_READ_FETCH_MATCH_H
#define SC_STORE_READ_FETCH_MATCH_H

#include "store/internal.h"
#include "store/load.h"

spec_status sc_store_match_fetcher_open(struct sc_store *store, struct spec_error *reterr);
/* Cancels what runs; nothing can begin any more. */
void sc_store_match_fetcher_stop(struct sc_store *store);
void sc_store_match_fetcher_close(struct sc_store *store);

#endif
