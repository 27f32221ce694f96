/* Sums of importance on the device: keys and what else is the host's go up, kernels score, sums
 * come back (kernels/cuda/importance.cu).
 *
 *   host     codes | keys of probes, host queries, new keys       sums [keys], or [heads][keys]
 *               \  pinned buffers, as they are                               ^ a pinned buffer
 *   device       '-> room: [slabs][tables, scales, codes, turns][..][stats][sums][total]
 *   queries and new keys of the device's are read where they lie, behind what their stream had been
 *   given (fetch_scored.h: begin)
 *
 * Holds: whether the device scores, and by tensor cores or not, follows from shapes, the
 *   configuration and what the device is, and so does the order of every addition: the same
 *   question, the same bits. When it returns, the device is
 *   through with all that is the host's, or has failed.
 * Does not: choose by sums.
 * Threads: any, several side by side; waits for the slot's streams, whatever a deadline says.
 * Tests: tests/unit/plugin/test_device_scores.c */
#ifndef SC_PLUGIN_DEVICE_DEVICE_SCORES_H
#define SC_PLUGIN_DEVICE_DEVICE_SCORES_H

#include "plugin/device/fetch_scored.h"

struct sc_plugin_score {
    struct sc_plugin_device *device; /* attached */
    uint32_t slot;                   /* of it: where the request asks */
    /* Its prefix is host memory. Queries and new keys, too, or they are where these two say. */
    const struct sc_kernels_importance *what;
    const struct sc_plugin_afar *queries, *fresh;
    uint64_t head_count; /* KV heads from the first on that are scored */
    bool is_total;       /* their sums are added, in order */
    bool never_waits;    /* for room or pinned buffers, which may wait for a host's stream */
};

/* Whether the device can: a shape that kernels take, and gpu.score_bytes that hold it. */
bool sc_plugin_score_takes(const struct sc_plugin_score *score);
/* ret_sums: [prefix.count] if is_total, else [head_count][prefix.count]. The device takes it.
 * Errors: IO or UNSUPPORTED (the device is closed), what begin said of queries or new keys; BUSY,
 * if it never waits: there is no room, or no pinned buffer. */
spec_status sc_plugin_score_sum(const struct sc_plugin_score *score, float *ret_sums,
                                struct spec_error *reterr);

#endif
