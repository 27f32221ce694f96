/* Codes of rows that are being stored, made while they go to the disk.
 *
 *   frames   [ window ][ window ][ window ]      filled, written, then kept in the cache
 *   layer    [K blocks][V blocks]                made by a builder (store/section/section.h), which
 *                                                writes them as a derived section
 *
 *   the extent   begin -> window.. packed -> ... -> end(id)          never waits for any of this
 *   the task            layer, put -> ... -> written -> wait for the id -> record
 *
 * A layer's codes are made once it is packed, from the rows that the cache still has. Rows whose
 * frames were given away meanwhile are on the disk by then and are read back. If the codes cannot
 * be finished (no room, or no free object) the extent is left to build_sections.c.
 *
 * Holds: a derived section' record stands behind its extent's.
 * Does not: delay rows, know what codes mean.
 * Threads: begin, window, packed: the extent's producer; end: who commits or discards it; the task
 * is the executor's, one step at a time. One lock (rank 54), the cache's inside it.
 * Tests: tests/unit/store/test_inline_quant.c, tests/fault/test_store_faults.c */
#ifndef SC_STORE_WRITE_INLINE_QUANT_H
#define SC_STORE_WRITE_INLINE_QUANT_H

#include "base/status.h"

/* Extents that are coded at once while they are stored; codes of others come later
 * (build_sections.c). */
#define SC_STORE_INLINE_QUANT_MAX 16u

struct sc_store;
struct sc_store_extent;
struct sc_store_part;
struct sc_store_inline_quant_job; /* of an extent */

spec_status sc_store_inline_quant_open(struct sc_store *store, struct spec_error *reterr);
/* Every job is given up; no step is posted or will be once store->busy is 0. */
void sc_store_inline_quant_stop(struct sc_store *store);
void sc_store_inline_quant_close(struct sc_store *store);
/* Whether some extent that was committed still waits for codes from here. No lock held. */
bool sc_store_inline_quant_runs(struct sc_store *store);

/* Called once the extent's places and pieces are set. NULL: it is not coded here; the calls below
 * take that. */
struct sc_store_inline_quant_job *sc_store_inline_quant_begin(struct sc_store *store,
                                                              const struct sc_store_extent *extent);
/* The frame, which was just taken, will be filled with bytes [start, end) of the part's segment. */
void sc_store_inline_quant_window(struct sc_store_inline_quant_job *job, uint8_t *frame,
                                  const struct sc_store_part *part, uint64_t start, uint64_t end);
/* Of that frame only so many bytes were filled: another one has those behind them. */
void sc_store_inline_quant_window_cut(struct sc_store_inline_quant_job *job, uint8_t *frame,
                                      uint64_t bytes);
/* One more layer was packed. */
void sc_store_inline_quant_packed(struct sc_store_inline_quant_job *job);
/* The extent's rows will never be complete; its end still comes. Only the job's lock is taken. */
void sc_store_inline_quant_lose(struct sc_store_inline_quant_job *job);
/* The extent has this id now; 0: it never will. The job is not the extent's any more. */
void sc_store_inline_quant_end(struct sc_store_inline_quant_job *job, uint64_t extent_id);

#endif
