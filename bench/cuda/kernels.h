/* Kernels of bench cuda: what is measured beside the product's, in an image of their own, so that
 * the product carries none of it. C11 and CUDA C++.
 *
 *   bench_cuda_ffma     multiply-adds of registers alone: what binds whoever multiplies in float32
 *   bench_cuda_product  to [m][n] = a [m][k] x b [n][k], bf16 by tensor cores, sums in float32:
 *                       what an engine computes while its next layer is placed. A plain one: tiles
 *                       of 128 x 128 in shared memory, no pipeline. cuBLAS is not carried along.
 *
 * Threads: of a device. Tests: ctest bench_cuda_on_the_fake. */
#ifndef BENCH_CUDA_KERNELS_H
#define BENCH_CUDA_KERNELS_H

#include "kernels/cuda/spec.h"

/* Each of all threads: steps x BENCH_CUDA_CHAINS multiply-adds; to [threads]. */
struct bench_ffma {
    float *to;
    float factor, addend;
    uint32_t steps;
    uint32_t reserved;
};

/* grid: (n / 128, m / 128); k is a multiple of 32. All 16-byte aligned. */
struct bench_product {
    const uint8_t *a, *b;
    float *to;
    uint32_t m, n, k;
    uint32_t reserved;
};

#define BENCH_CUDA_CHAINS  16u
#define BENCH_CUDA_THREADS 256u
#define BENCH_CUDA_SIDE    128u /* of a product's tile */
#define BENCH_CUDA_STEP    32u  /* of k */

#define BENCH_CUDA_KERNELS(X)                                                                      \
    X(bench_cuda_ffma, struct bench_ffma, BENCH_CUDA_THREADS)                                      \
    X(bench_cuda_product, struct bench_product, BENCH_CUDA_THREADS)

#endif
