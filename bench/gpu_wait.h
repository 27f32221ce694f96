/* gpu_wait: a GPU as a wait: its times for a layer and for scoring keys, from two numbers of its
 * data sheet. A kernel takes the longer of its operations and its bytes.
 *
 * Threads: any. Tests: none (a table; bench/run prints what it says) */
#ifndef BENCH_GPU_WAIT_H
#define BENCH_GPU_WAIT_H

#include <stdint.h>

#define BENCH_LAUNCH_NS 20000.0 /* of the kernels that score: an assumption, printed */

struct bench_gpu {
    double layer_params; /* of attention and feed-forward matrices, 16 bits each */
    double flop_per_s, bytes_per_s;
    double slower;       /* all of it takes so many times as long */
    uint64_t width;      /* query heads x head size */
    uint64_t head_size;  /* elements */
    uint64_t half_bytes; /* of a row: its K, its V */
};

/* One layer over `new_count` tokens that attend to `rows` rows of the prefix, and to each other. */
double bench_gpu_layer_ns(const struct bench_gpu *gpu, uint64_t new_count, uint64_t rows);
/* Scores of new_count rows against `rows` keys of so many query heads, which pass that memory. */
double bench_gpu_score_ns(const struct bench_gpu *gpu, uint64_t new_count, uint64_t rows,
                          uint64_t query_heads);

#endif
