/* The plugin's calls of the driver, timed: what a call through the ABI spends where.
 *
 *   begin -> first wish for sums -> the sums are there -> end          on the host's clock
 *            (a copy to the host)   (its event)
 *
 * The plugin is linked in, so that its table of calls is this process's: calls of a few kinds go
 * through functions of ours while a span is open.
 *
 * Threads: one opens and closes spans; any call the driver. Tests: ctest bench_cuda_on_the_fake */
#ifndef BENCH_CUDA_CALLS_H
#define BENCH_CUDA_CALLS_H

#include "bench/cuda/rig.h"

enum calls_kind { CALLS_COPY, CALLS_LAUNCH, CALLS_ORDER, CALLS_WAIT, CALLS_ASK, CALLS_KINDS };

struct calls_span {
    uint64_t count[CALLS_KINDS], ns[CALLS_KINDS];
    uint64_t begin_ns, end_ns;
    uint64_t asked_ns, there_ns; /* sums; 0: none were asked for */
};

/* From here on calls are counted, until end. */
void calls_begin(struct rig *rig);
struct calls_span calls_end(struct rig *rig);

#endif
