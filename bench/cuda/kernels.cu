/* See kernels.h. */
#include "bench/cuda/kernels.h"

#define PITCH 80u /* bytes of a tile's row in shared memory: rows begin in different banks */

SC_KERNEL(bench_cuda_ffma, bench_ffma, BENCH_CUDA_THREADS)
{
    float sums[BENCH_CUDA_CHAINS], sum = 0;
    uint32_t thread = blockIdx.x * BENCH_CUDA_THREADS + threadIdx.x;
#pragma unroll
    for (uint32_t i = 0; i < BENCH_CUDA_CHAINS; i++)
        sums[i] = (float)(thread % 7 + i);
    for (uint32_t step = 0; step < what.steps; step++) {
#pragma unroll
        for (uint32_t i = 0; i < BENCH_CUDA_CHAINS; i++)
            sums[i] = __fmaf_rn(sums[i], what.factor, what.addend);
    }
#pragma unroll
    for (uint32_t i = 0; i < BENCH_CUDA_CHAINS; i++)
        sum = __fadd_rn(sum, sums[i]);
    what.to[thread] = sum;
}

/* sums [4] of a warp's 16 x 8 += 16 rows of a x 8 rows of b, over 16 channels. */
SC_DEVICE void product_step(float *sums, const uint8_t *a, const uint8_t *b, uint32_t lane)
{
    uint32_t row = lane / 4, pair = lane % 4;
#if defined(SC_EMULATED) /* the same sums, each by itself */
    for (uint32_t i = 0; i < 4; i++) {
        const uint8_t *of_a = a + (row + i / 2 * 8) * PITCH;
        const uint8_t *of_b = b + (2 * pair + i % 2) * PITCH;
        for (uint32_t k = 0; k < 16; k++)
            sums[i] = __fmaf_rn(
                __uint_as_float((uint32_t) * (const uint16_t *)(of_a + 2 * k) << 16),
                __uint_as_float((uint32_t) * (const uint16_t *)(of_b + 2 * k) << 16), sums[i]);
    }
#else
    const uint8_t *at = a + row * PITCH + pair * 4, *of = b + row * PITCH + pair * 4;
    uint32_t a0 = *(const uint32_t *)at, a1 = *(const uint32_t *)(at + 8 * PITCH);
    uint32_t a2 = *(const uint32_t *)(at + 16), a3 = *(const uint32_t *)(at + 8 * PITCH + 16);
    uint32_t b0 = *(const uint32_t *)of, b1 = *(const uint32_t *)(of + 16);
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, "
                 "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
                 : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
#endif
}

/* 128 rows of 32 channels, 16 bytes a thread and turn. */
SC_DEVICE void tile_load(uint8_t *tile, const uint8_t *from, uint64_t row_bytes)
{
#pragma unroll
    for (uint32_t i = 0; i < 2; i++) {
        uint32_t at = threadIdx.x + i * BENCH_CUDA_THREADS;
        uint4 four = sc_load16(from + at / 4 * row_bytes + at % 4 * 16);
        sc_store16(tile + at / 4 * PITCH + at % 4 * 16, four);
    }
}

/* A warp has 64 x 32 of the tile: 4 x 4 pieces of 16 x 8. */
SC_KERNEL(bench_cuda_product, bench_product, BENCH_CUDA_THREADS)
{
    SC_SHARED(uint8_t, a, BENCH_CUDA_SIDE * PITCH);
    SC_SHARED(uint8_t, b, BENCH_CUDA_SIDE * PITCH);
    uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    uint32_t first_row = warp / 4 * 64, first_column = warp % 4 * 32;
    uint64_t row_bytes = (uint64_t)what.k * 2;
    const uint8_t *of_a = what.a + (uint64_t)blockIdx.y * BENCH_CUDA_SIDE * row_bytes;
    const uint8_t *of_b = what.b + (uint64_t)blockIdx.x * BENCH_CUDA_SIDE * row_bytes;
    float sums[4][4][4];
#pragma unroll
    for (uint32_t i = 0; i < 64; i++)
        sums[i / 16][i / 4 % 4][i % 4] = 0;
    for (uint32_t k = 0; k < what.k; k += BENCH_CUDA_STEP) {
        tile_load(a, of_a + 2 * (uint64_t)k, row_bytes);
        tile_load(b, of_b + 2 * (uint64_t)k, row_bytes);
        __syncthreads();
#pragma unroll
        for (uint32_t i = 0; i < 32; i++) /* half of the step, then pieces */
            product_step(sums[i / 4 % 4][i % 4],
                         a + (first_row + i / 4 % 4 * 16) * PITCH + i / 16 * 32,
                         b + (first_column + i % 4 * 8) * PITCH + i / 16 * 32, lane);
        __syncthreads();
    }
#pragma unroll
    for (uint32_t i = 0; i < 64; i++) {
        uint32_t row = first_row + i / 16 * 16 + lane / 4 + i % 4 / 2 * 8;
        uint32_t column = first_column + i / 4 % 4 * 8 + lane % 4 * 2 + i % 2;
        what.to[((uint64_t)blockIdx.y * BENCH_CUDA_SIDE + row) * what.n +
                blockIdx.x * BENCH_CUDA_SIDE + column] = sums[i / 16][i / 4 % 4][i % 4];
    }
}
