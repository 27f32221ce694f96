/* cache_tiers: IMPRESS' dual cache: chunks in two exclusive memory tiers above a disk that has all,
 * with the ranks of base/policy.h.
 *
 *   device   a heap by rank; a requested chunk of higher rank replaces the lowest
 *   host     the same of chunks that are not on the device, by its own policy
 *
 * Threads: one. Tests: none of its own; bench/run cache runs it */
#ifndef BENCH_CACHE_TIERS_H
#define BENCH_CACHE_TIERS_H

#include "base/policy.h"
#include "bench/cache_stream.h"

struct cache_tiers_params {
    const struct cache_stream *stream; /* rows: of a use, how many are important */
    uint64_t chunk_rows;
    uint64_t device_chunks, host_chunks;
    enum sc_policy device_policy, host_policy;
    uint64_t half_life;      /* in uses */
    double row_ms, chunk_ms; /* that a row to the device takes, a chunk from the disk */
    uint64_t warm_count;     /* requests that are not counted: the tiers begin empty */
};

struct cache_tiers_counts {
    uint64_t uses, rows;  /* important ones */
    uint64_t device_rows; /* of them, found on the device */
    uint64_t host_uses, disk_uses;
};

/* ret_ms: [request_count - warm_count] what each of those counted waits for its rows. */
void cache_tiers_replay(const struct cache_tiers_params *params,
                        struct cache_tiers_counts *ret_counts, double *ret_ms);

#endif
