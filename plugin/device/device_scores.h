/* device_scores: computes importance sums on the device (kernels/cuda/importance.cu).
 *
 *   host     codes | probe keys, host queries, new keys              sums [keys], or [heads][keys]
 *               \  pinned buffers, unchanged                                    ^ a pinned buffer
 *   device       '-> room: [slabs][tables, scales, codes, ropes][..][stats][sums][total]
 *   Queries and new keys on the device are read in place, behind earlier work of their stream
 *   (fetch_scored.h: begin).
 *
 * Invariants: shapes, configuration and device determine whether the device scores, whether by
 * tensor cores, and the order of additions: equal inputs give equal bits. On return the device no
 * longer uses host memory, or has failed.
 * Threads: any, concurrently. Waits for the slot's streams, even beyond a deadline.
 * Tests: tests/unit/plugin/test_device_scores.c */
#ifndef SC_PLUGIN_DEVICE_DEVICE_SCORES_H
#define SC_PLUGIN_DEVICE_DEVICE_SCORES_H

#include "plugin/device/fetch_scored.h"

struct sc_plugin_score {
    struct sc_plugin_device *device; /* attached */
    uint32_t slot;                   /* the request's slot for asks */
    /* Prefix in host memory. Queries and new keys too, unless these two name device memory. */
    const struct sc_kernels_importance *what;
    const struct sc_plugin_afar *queries, *fresh;
    uint64_t head_count; /* KV heads to score, from the first on */
    bool is_total;       /* adds the sums of the heads, in order */
    bool never_waits;    /* not for room or pinned buffers, which may depend on a host's stream */
};

/* Tells whether kernels support the shape and gpu.score_bytes suffice. */
bool sc_plugin_score_takes(const struct sc_plugin_score *score);
/* Requires sc_plugin_score_takes. ret_sums: [prefix.count] if is_total, else
 * [head_count][prefix.count].
 * Errors: IO or UNSUPPORTED (the device is closed); the error of begin of queries or new keys; BUSY
 * with never_waits: no room or no pinned buffer. */
spec_status sc_plugin_score_sum(const struct sc_plugin_score *score, float *ret_sums,
                                struct spec_error *reterr);

#endif
