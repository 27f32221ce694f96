/* inline_quant: quantises rows while they are being written to disk.
 *
 *   layer    [K blocks][V blocks]                made by a builder (store/section/section.h), which
 *                                                writes them as a derived section
 *
 *   the extent   begin -> window.. packed -> ... -> end(id)          never waits for the task
 *   the task           layer, put -> ... -> written -> wait for the id -> record
 *
 * A layer is quantised once it is packed, from frames in the cache; rows whose frames were reused
 * are read back from disk. If it cannot finish (no room, or no free object), build_sections.c
 * quantises the extent later.
 *
 * Invariants: a derived section's record follows its extent's.
 * Threads: begin, window, packed: the extent's producer; end: the thread that commits or discards
 * it; the task: the executor's, one step at a time. One lock (rank 54), outside the cache's.
 * Tests: tests/unit/store/test_inline_quant.c, tests/fault/test_store_faults.c */
#ifndef SC_STORE_WRITE_INLINE_QUANT_H
#define SC_STORE_WRITE_INLINE_QUANT_H

#include "base/status.h"

/* Extents quantised inline at once; build_sections.c quantises others later. */
#define SC_STORE_INLINE_QUANT_MAX 16u

struct sc_store;
struct sc_store_extent;
struct sc_store_part;
struct sc_store_inline_quant_job;

spec_status sc_store_inline_quant_open(struct sc_store *store, struct spec_error *reterr);
/* Aborts every job. No step is posted once store->busy is 0. */
void sc_store_inline_quant_stop(struct sc_store *store);
void sc_store_inline_quant_close(struct sc_store *store);
/* Returns true if a committed extent still waits for its quantised rows. Call it without locks. */
bool sc_store_inline_quant_runs(struct sc_store *store);

/* Begins a job once the extent's places and pieces are set. Returns NULL (accepted below) if it is
 * not quantised inline. */
struct sc_store_inline_quant_job *sc_store_inline_quant_begin(struct sc_store *store,
                                                              const struct sc_store_extent *extent);
/* Announces that the frame, just taken, will have bytes [start, end) of the part's segment. */
void sc_store_inline_quant_window(struct sc_store_inline_quant_job *job, uint8_t *frame,
                                  const struct sc_store_part *part, uint64_t start, uint64_t end);
/* Announces that only `bytes` of that frame were filled; another frame has the rest. */
void sc_store_inline_quant_window_cut(struct sc_store_inline_quant_job *job, uint8_t *frame,
                                      uint64_t bytes);
void sc_store_inline_quant_packed(struct sc_store_inline_quant_job *job);
/* Announces that the rows will never be complete; end is still called. Takes only the job's
 * lock. */
void sc_store_inline_quant_lose(struct sc_store_inline_quant_job *job);
/* Ends the extent's use of the job. extent_id: its id, or 0 if it is not committed. */
void sc_store_inline_quant_end(struct sc_store_inline_quant_job *job, uint64_t extent_id);

#endif
