/* Average importance: which rows requests have wanted so far, a code a row and layer.
 *
 *   piece -> slot [requests][layer 0: code of each row][layer 1: ...]      in memory, under a cap
 *                  \ flush, now and then                  ^ open: the store tells
 *                   store: a record of the log (the newest of a piece counts)
 *
 * A code is the store's, within one step (the store's own arithmetic is exact and slow): log scale
 * of the smoothed share imp / sum imp of its request.
 *
 * Holds: memory stays under the cap; what was not used for longest makes room, written or not:
 * averages order what is read ahead, and what a host without queries has exactly, so forgetting one
 * is never wrong. Who reads takes the lock beside others who do. Only a choice waits for it, until
 * what somebody copies in or out is copied; a guess and a sample that find it taken are left out.
 * Does not: know the store (it is given a function), allocate after open. What the plugin calls of
 * it stands in baselines.h.
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
    /* Rows of a piece; 0: it is not live. Any thread, called under the lock. */
    uint32_t (*rows_of)(void *user, uint64_t piece);
    void *user;
};
/* bytes_max too small for one piece: *ret_averages is NULL, which every function takes. */
spec_status sc_baseline_averages_open(const struct sc_baseline_averages_params *params,
                                      struct sc_baseline_averages **ret_averages,
                                      struct spec_error *reterr);

/* The averages of one layer, 0 where nothing is known; returns how many rows are known. waits: for
 * who changes them, else none are known then. */
uint64_t sc_baseline_averages_scores(struct sc_baseline_averages *averages,
                                     const struct sc_store_range *ranges, uint64_t range_count,
                                     uint32_t layer, bool waits, float *ret_scores);

/* The same of pieces that at least so many requests scored; of others' rows nothing is known.
 * Waits, and is no use of them. */
uint64_t sc_baseline_averages_touched(struct sc_baseline_averages *averages,
                                      const struct sc_store_range *ranges, uint64_t range_count,
                                      uint32_t layer, uint32_t requests_least, float *ret_scores);

#define SC_BASELINE_AVERAGES_BATCH 16u /* pieces that one call of put is given at most */
/* Writes up to a batch of what changed enough since it was written (all: at all). A piece is
 * written after its requests 1 .. 7, 9, 11, 14, 18, ... : a fourth more each time. true: there is
 * more. A batch that put refuses (INVALID excepted, which would be refused again) waits for a later
 * call, which begins with it. Blocks while another thread's put runs: background threads, close. */
bool sc_baseline_averages_flush(struct sc_baseline_averages *averages, bool all,
                                spec_status (*put)(void *user,
                                                   const struct sc_store_average *averages,
                                                   uint64_t count),
                                void *user);

#endif
