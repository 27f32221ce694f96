/* decode: work division and stores, common to both formats. Codes are bytes, four to a word.
 *
 *   block   up to SC_CUDA_TILE units of a slab; the other threads take further rows
 *   thread  one unit; every step-th row, SHARE_ROWS of them in flight
 *
 * A channel's scales are thus computed once a thread, neighbours write adjacent bytes, and threads
 * do not exchange data.
 * Tests: tests/unit/kernels/test_cuda_codec.c, test_cuda_bitplanes.c */
#ifndef SC_KERNELS_CUDA_DECODE_H
#define SC_KERNELS_CUDA_DECODE_H

#include "kernels/cuda/numbers.h"

#define SHARE_ROWS 4u
#define PLACE_ROWS 16u /* rows whose offsets a block keeps */

struct Share {
    uint32_t unit;
    uint32_t row, step;          /* rows row, row + step, ... of the block's rows */
    uint32_t row_begin, row_end; /* the block's rows; row_end 0: none */
    bool is_none;
};

SC_DEVICE Share share_of(uint32_t unit_count, uint32_t tile, uint32_t row_count, uint32_t rows_each)
{
    Share share = {0, 0, 1, 0, 0, true};
    uint32_t first = blockIdx.y * tile, row = blockIdx.z * rows_each;
    if (first >= unit_count || row >= row_count)
        return share;
    uint32_t width = unit_count - first < tile ? unit_count - first : tile;
    share.step = blockDim.x / width;
    share.unit = first + threadIdx.x % width;
    share.row = threadIdx.x / width;
    share.row_begin = row;
    share.row_end = row_count - row < rows_each ? row_count : row + rows_each;
    share.is_none = threadIdx.x / width >= share.step;
    return share;
}

SC_DEVICE bool is_skipped(const uint64_t *skipped, uint64_t token)
{
    return skipped != nullptr &&
           (sc_load4(reinterpret_cast<const uint8_t *>(skipped) + token / 32 * 4) >> token % 32 &
            1) != 0;
}

/* Moves the codes of the next row to the front. So row code is not duplicated and every index is
 * constant; others would put arrays on a stack. */
SC_DEVICE void quant_shift(uint32_t code[SHARE_ROWS][4])
{
#pragma unroll
    for (uint32_t k = 0; k + 1 < SHARE_ROWS; k++)
#pragma unroll
        for (uint32_t i = 0; i < 4; i++)
            code[k][i] = code[k + 1][i];
}

/* Moves the next row in flight, with its codes, to the front; see quant_shift. */
template <class Row> SC_DEVICE void rows_shift(Row row[SHARE_ROWS], uint32_t code[SHARE_ROWS][4])
{
#pragma unroll
    for (uint32_t k = 0; k + 1 < SHARE_ROWS; k++) {
        row[k] = row[k + 1];
#pragma unroll
        for (uint32_t i = 0; i < 4; i++)
            code[k][i] = code[k + 1][i];
    }
}

/* Returns 2^23 + code, byte c % 4 of the word: there the float's ulp is 1. */
SC_DEVICE float code_high(uint32_t word, uint32_t c)
{
    return __uint_as_float(__byte_perm(word, 0x4b000000u, 0x7440u | c % 4));
}

SC_DEVICE float code_float(uint32_t word, uint32_t c)
{
    return __fadd_rn(code_high(word, c), -8388608.0f);
}

/* Computes offsets of tokens token .. token + count - 1 from the part's base, by all threads of a
 * block; NO_PLACE: not written. Offsets, because a pointer from shared memory has no known address
 * space. No barriers. */
SC_DEVICE void places_make(const sc_cuda_memory &memory, const sc_cuda_part &part,
                           const uint64_t *skipped, uint64_t token, uint32_t count,
                           uint64_t *places)
{
    for (uint32_t i = threadIdx.x; i < count; i += SC_CUDA_DECODE_THREADS)
        places[i] =
            is_skipped(skipped, token + i) ? NO_PLACE : token_offset(memory, part, token + i);
}

SC_DEVICE uint32_t bits_spread(uint32_t bits)
{
    return bits * 0x00204081u & 0x01010101u;
}

/* A run's values as stored: float32, or two to a word. */
struct Words {
    uint32_t word[SC_CUDA_RUN];
};

SC_DEVICE Words words_of(uint32_t dtype, const float value[SC_CUDA_RUN])
{
    Words made;
#pragma unroll
    for (uint32_t c = 0; c < SC_CUDA_RUN; c++)
        made.word[c] = __float_as_uint(value[c]);
    if (dtype == SC_CUDA_F32)
        return made;
#pragma unroll
    for (uint32_t c = 0; c < SC_CUDA_RUN; c++)
        made.word[c] = narrow(value[c], dtype);
    return made;
}

template <uint32_t DTYPE> SC_DEVICE uint4 eight_narrow(const float value[SC_CUDA_RUN])
{
    return uint4{narrow_pair<DTYPE>(value[0], value[1]), narrow_pair<DTYPE>(value[2], value[3]),
                 narrow_pair<DTYPE>(value[4], value[5]), narrow_pair<DTYPE>(value[6], value[7])};
}

SC_DEVICE void run_store_whole(uint8_t *at, uint32_t dtype, const float value[SC_CUDA_RUN])
{
    if (dtype == SC_CUDA_F32) {
        sc_store16(at, uint4{__float_as_uint(value[0]), __float_as_uint(value[1]),
                             __float_as_uint(value[2]), __float_as_uint(value[3])});
        sc_store16(at + 16, uint4{__float_as_uint(value[4]), __float_as_uint(value[5]),
                                  __float_as_uint(value[6]), __float_as_uint(value[7])});
        return;
    }
    if (dtype == SC_CUDA_F16)
        sc_store16(at, eight_narrow<SC_CUDA_F16>(value));
    else
        sc_store16(at, eight_narrow<SC_CUDA_BF16>(value));
}

/* Stores up to 8 values, contiguous or strided. */
SC_DEVICE void run_store(uint8_t *at, uint64_t element_stride, uint32_t bytes, uint32_t count,
                         Words made)
{
    uint32_t *word = made.word;
    bool is_whole = count == SC_CUDA_RUN && element_stride == bytes && sc_off(at, 16) == 0;
    if (is_whole && bytes == 4) {
        sc_store16(at, uint4{word[0], word[1], word[2], word[3]});
        sc_store16(at + 16, uint4{word[4], word[5], word[6], word[7]});
        return;
    }
    if (is_whole) {
        sc_store16(at, uint4{word[0] | word[1] << 16, word[2] | word[3] << 16,
                             word[4] | word[5] << 16, word[6] | word[7] << 16});
        return;
    }
#pragma unroll 1
    for (uint32_t c = 0; c < count; c++, at += element_stride) {
        element_store(at, word[0], bytes);
#pragma unroll
        for (uint32_t i = 0; i + 1 < SC_CUDA_RUN; i++) /* constant indexes only */
            word[i] = word[i + 1];
    }
}

#endif
