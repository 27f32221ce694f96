/* See wrong.h: one mistake each, of those that only a device would punish, and there not always.
 *
 * Tests: tests/unit/kernels/test_cuda_emu.c */
#include "kernels/cuda/tensor.h"
#include "tests/cuda/emu/wrong.h"

#define FULL        0xffffffffu
#define WRONG(name) SC_KERNEL(name, emu_wrong, 256)

/* Right: the sum of count .. count + threads - 1, by shuffles and then shared memory. */
WRONG(emu_sum)
{
    SC_SHARED(uint32_t, sums, 8);
    uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32, sum = what.count + threadIdx.x;
    for (uint32_t step = 16; step > 0; step /= 2)
        sum += __shfl_xor_sync(FULL, sum, step);
    if (lane == 0)
        sums[warp] = sum;
    __syncthreads();
    sum = 0;
    for (uint32_t w = 0; w < blockDim.x / 32; w++)
        sum += sums[w];
    what.out[blockIdx.x * 256 + threadIdx.x] = sum;
}

/* Right: a warp's lanes hand on by shared memory; and every collective that there is. */
WRONG(emu_exchange)
{
    SC_SHARED(uint32_t, words, 256);
    uint32_t lane = threadIdx.x % 32, next = threadIdx.x - lane + (lane + 1) % 32;
    words[threadIdx.x] = threadIdx.x;
    __syncwarp();
    uint32_t value = words[next] - threadIdx.x + lane; /* (lane + 1) % 32 */
    value += __shfl_up_sync(FULL, lane, 1) * 100;      /* lane 0: its own */
    value += __shfl_down_sync(FULL, lane, 1) * 10000;
    value += __shfl_sync(FULL, lane, 3) * 1000000;
    value += __popc(__ballot_sync(FULL, lane < 5)) * 10000000;
    value += __any_sync(FULL, lane == 9) && __all_sync(FULL, lane < 32) ? 100000000 : 0;
    value += __syncthreads_count(lane == 0) == (int)blockDim.x / 32 ? 1000000000 : 0;
    what.out[blockIdx.x * 256 + threadIdx.x] = value;
}

/* A number of 8 bits, as both kinds of 16 bits have it. */
SC_DEVICE uint32_t half_of(uint32_t whole, bool is_brain)
{
    return is_brain ? __float_as_uint((float)whole) >> 16 : sc_pack_f16((float)whole, 0) & 0xffff;
}

SC_DEVICE uint32_t pair_of_a(uint32_t row, uint32_t k, bool is_brain)
{
    return half_of(16 * row + k, is_brain) | half_of(16 * row + k + 1, is_brain) << 16;
}

SC_DEVICE uint32_t pair_of_b(uint32_t k, uint32_t column, bool is_brain)
{
    return half_of(3 * k + 5 * column, is_brain) | half_of(3 * k + 3 + 5 * column, is_brain) << 16;
}

/* Right: out[128 w + 8 row + column] = row + 100 column + the sum over k of (16 row + k)(3 k + 5
 * column), by f16 in warp 0 and by bf16 in warp 1. */
WRONG(emu_product)
{
    uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
    uint32_t *out = what.out + blockIdx.x * 256 + warp * 128;
    bool is_brain = warp == 1;
    const uint32_t a[4] = {pair_of_a(g, 2 * t, is_brain), pair_of_a(g + 8, 2 * t, is_brain),
                           pair_of_a(g, 2 * t + 8, is_brain),
                           pair_of_a(g + 8, 2 * t + 8, is_brain)};
    uint32_t low = pair_of_b(2 * t, g, is_brain), high = pair_of_b(2 * t + 8, g, is_brain);
    float c[4];
    if (warp > 1)
        return;
    for (uint32_t i = 0; i < 4; i++)
        c[i] = (float)(g + i / 2 * 8 + 100 * (2 * t + i % 2));
    if (is_brain)
        sc_mma_bf16(a, low, high, c);
    else
        sc_mma_f16(a, low, high, c);
    for (uint32_t i = 0; i < 4; i++)
        out[(g + i / 2 * 8) * 8 + 2 * t + i % 2] = (uint32_t)c[i];
}

/* Right: 1 and 1.5 * 2^-24, which is nearest to 1 + 2^-23 and cut off is 1. */
WRONG(emu_product_rounded)
{
    bool is_first = threadIdx.x % 4 == 0;
    const uint32_t a[4] = {is_first ? sc_pack_f16(0x1p-12f, 0) : 0, 0, 0, 0};
    float c[4] = {1, 1, 1, 1};
    sc_mma_f16(a, is_first ? sc_pack_f16(0x1.8p-12f, 0) : 0, 0, c);
    what.out[blockIdx.x * 256 + threadIdx.x] = __float_as_uint(c[0]);
}

WRONG(emu_product_by_half_a_warp)
{
    const uint32_t a[4] = {};
    float c[4] = {};
    if (threadIdx.x % 32 < 16)
        sc_mma_f16(a, 0, 0, c);
    what.out[threadIdx.x] = (uint32_t)c[0];
}

WRONG(emu_barrier_in_a_branch)
{
    if (threadIdx.x < 32)
        __syncthreads();
    else
        __syncthreads();
    what.out[threadIdx.x] = 1;
}

WRONG(emu_exit_before_barrier)
{
    if (threadIdx.x == 7)
        return;
    __syncthreads();
    what.out[threadIdx.x] = 1;
}

WRONG(emu_lane_has_ended)
{
    if (threadIdx.x % 32 == 31)
        return;
    what.out[threadIdx.x] = __shfl_xor_sync(FULL, what.count, 1);
}

WRONG(emu_lane_outside_the_mask)
{
    what.out[threadIdx.x] = __ballot_sync(0xffffu, true);
}

WRONG(emu_shuffle_of_a_stranger)
{
    if (threadIdx.x % 32 < 16)
        what.out[threadIdx.x] = __shfl_sync(0xffffu, what.count, 20);
}

WRONG(emu_warp_waits_for_barrier)
{
    if (threadIdx.x == 0)
        what.out[0] = __ballot_sync(FULL, true);
    else
        __syncthreads();
}

WRONG(emu_unaligned)
{
    sc_store16(what.out + 1, uint4{1, 2, 3, 4});
}

WRONG(emu_much_shared)
{
    SC_SHARED(uint32_t, most, 200 * 256);
    SC_SHARED(uint32_t, more, 28 * 256);
    what.out[threadIdx.x] = most[0] + more[0];
}

/* A barrier is missing: found by some orders, and by TSan in any. */
WRONG(emu_race)
{
    SC_SHARED(uint32_t, words, 256);
    words[threadIdx.x] = threadIdx.x;
    what.out[threadIdx.x] = words[(threadIdx.x + 1) % blockDim.x];
}

WRONG(emu_race_in_a_warp)
{
    SC_SHARED(uint32_t, words, 256);
    uint32_t next = threadIdx.x - threadIdx.x % 32 + (threadIdx.x + 1) % 32;
    words[threadIdx.x] = threadIdx.x;
    (void)__ballot_sync(FULL, true); /* orders no memory */
    what.out[threadIdx.x] = words[next];
}

/* Blocks have no order: TSan alone sees it, since the value is the same. */
WRONG(emu_race_of_blocks)
{
    if (threadIdx.x == 0)
        what.out[0] = what.count;
}

/* ASan alone sees it. */
WRONG(emu_shared_overrun)
{
    SC_SHARED(uint32_t, words, 64);
    words[threadIdx.x] = threadIdx.x;
    __syncthreads();
    what.out[threadIdx.x] = words[0];
}
