/* average: average importance, a code per row and layer: which rows requests have wanted so far.
 *
 *   piece -> slot [requests][layer 0: code of each row][layer 1: ...]      in memory, up to a cap
 *                  \ flush, periodically                  ^ open, from the store
 *                   store: a record of the log (the newest of a piece counts)
 *
 * A code is the log of the smoothed share imp / sum imp of a request, within one step of the
 * store's own (exact and slow) arithmetic.
 *
 * Invariants: memory stays below the cap; the slots unused for longest are reused, written or not.
 * Forgetting is never wrong: averages only order prefetches, and rows that a host without queries
 * gets exactly. Readers share the lock. Only a selection waits for it; a prediction or a sample
 * that finds it taken is skipped.
 * Limits: allocates nothing after open.
 * Threads: any.
 * Tests: tests/unit/plugin/test_average.c */
#ifndef SC_PLUGIN_BASELINES_AVERAGE_H
#define SC_PLUGIN_BASELINES_AVERAGE_H

#include "base/alloc.h"
#include "plugin/baselines/baselines.h"
#include "store/load.h"

struct sc_baseline_averages_params {
    struct sc_alloc *alloc;
    uint32_t layer_count;
    uint32_t rows_max;  /* of a piece */
    uint64_t bytes_max; /* of memory */
    /* Returns the rows of a piece; 0: it does not exist. Any thread, called under the lock. */
    uint32_t (*rows_of)(void *user, uint64_t piece);
    void *user;
};
/* Opens the averages. If bytes_max is too small for one piece, *ret_averages is NULL, which every
 * function accepts. */
spec_status sc_baseline_averages_open(const struct sc_baseline_averages_params *params,
                                      struct sc_baseline_averages **ret_averages,
                                      struct spec_error *reterr);

/* Writes one layer's averages, 0 for unknown rows; returns how many rows are known. waits: for
 * writers; without it nothing is known while one has the lock. */
uint64_t sc_baseline_averages_scores(struct sc_baseline_averages *averages,
                                     const struct sc_store_range *ranges, uint64_t range_count,
                                     uint32_t layer, bool waits, float *ret_scores);

/* Does the same for pieces that at least requests_least requests scored; other rows are unknown.
 * Waits; does not mark the slots as used. */
uint64_t sc_baseline_averages_touched(struct sc_baseline_averages *averages,
                                      const struct sc_store_range *ranges, uint64_t range_count,
                                      uint32_t layer, uint32_t requests_least, float *ret_scores);

/* Returns how many requests scored a row of the ranges, on average. Waits; does not mark the slots
 * as used. */
uint64_t sc_baseline_averages_requests(struct sc_baseline_averages *averages,
                                       const struct sc_store_range *ranges, uint64_t range_count);

#define SC_BASELINE_AVERAGES_BATCH 16u /* pieces per call of put at most */
/* Writes up to a batch of pieces that are due (all: that changed). A piece is due after 1 .. 7, 9,
 * 11, 14, 18, .. requests, a fourth more each time. Returns true if there is more. A batch that put
 * refuses is first in a later call, except INVALID, which would be refused again. Blocks while
 * another thread's put runs; for background threads and close. */
bool sc_baseline_averages_flush(struct sc_baseline_averages *averages, bool all,
                                spec_status (*put)(void *user,
                                                   const struct sc_store_average *averages,
                                                   uint64_t count),
                                void *user);

#endif
