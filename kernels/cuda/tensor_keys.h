/* tensor_keys: loads keys of a piece, and their factors, to shared memory for importance_tensor.cu.
 *
 *   keys    [key][stride]  16 bits a channel, in order, padded with 0 to a multiple of 32
 *   factor  [channel]      quantised: half a step, times the scale of scores and log2 e
 *   middle  [channel]      quantised: the middle of the codes' range, times the same
 *
 * A piece is the part of a tile in one slab, since each slab has its own scales:
 *
 *   value = least + (code + 1/2) step = middle + (2 code + 1 - levels) step / 2
 *
 * Keys are the odd numbers 2 code + 1 - levels, exact in f16; the other factors are applied to the
 * vector. 16-bit rows are kept unchanged.
 *
 * A lane loads 16 bytes of a key (8 channels) for two products of 16 channels. The assignment of
 * channels to products is arbitrary, if vectors use the same. stride * 2 bytes are 64 above a
 * multiple of 128, so 8 lanes, with 64 bytes each of two keys, have no bank conflicts.
 *
 * Invariants: only rows, codes and scales of the piece's keys are read.
 * Tests: tests/unit/kernels/test_cuda_tensor.c */
#ifndef SC_KERNELS_CUDA_TENSOR_KEYS_H
#define SC_KERNELS_CUDA_TENSOR_KEYS_H

#include "kernels/cuda/score_soft.h"
#include "kernels/cuda/tensor.h"

#define STEP_CHANNELS 32u /* channels of two products */

enum Form { CODES, HALVES, BRAINS }; /* f16 x f16 in two parts, f16 x f16, bf16 x bf16 */

struct TensorLay {
    uint32_t channels; /* of a head, rounded up to a multiple of 32 */
    uint32_t stride;   /* of a key, in 16-bit elements */
};

SC_DEVICE TensorLay tensor_lay_of(const sc_cuda_score &what)
{
    TensorLay lay;
    lay.channels = (what.head_size + STEP_CHANNELS - 1) / STEP_CHANNELS * STEP_CHANNELS;
    lay.stride = lay.channels | STEP_CHANNELS;
    return lay;
}

SC_DEVICE bool is_quantised(const sc_cuda_score &what, const KeyTile &tile)
{
    return !tile.is_fresh && what.slab_count != 0;
}

/* Returns the tile's keys from `first` on that are in one slab. */
SC_DEVICE KeyTile piece_of(const sc_cuda_score &what, const KeyTile &tile, uint32_t first,
                           uint32_t slab)
{
    KeyTile piece = tile;
    uint32_t end = tile.first + tile.count;
    if (is_quantised(what, tile) && slab + 1 < what.slab_count)
        end = lesser(end, what.slabs[slab + 1].key_first);
    piece.first = first;
    piece.count = end - first;
    return piece;
}

/* Loads up to 8 16-bit elements, contiguous or strided, at any address; 0 beyond `count`. */
SC_DEVICE uint4 run_bits(const uint8_t *at, uint64_t element_stride, uint32_t count)
{
    uint4 word = {};
    if (count >= SC_CUDA_RUN && element_stride == 2 && sc_off(at, 16) == 0)
        return sc_load16(at);
#pragma unroll 1
    for (uint32_t c = 0; c < SC_CUDA_RUN; c++) { /* shifts a new element in at the top */
        uint32_t bits = c < count ? element_load_any(at + c * element_stride, 2) : 0;
        word.x = word.x >> 16 | word.y << 16;
        word.y = word.y >> 16 | word.z << 16;
        word.z = word.z >> 16 | word.w << 16;
        word.w = word.w >> 16 | bits << 16;
    }
    return word;
}

SC_DEVICE uint32_t channels_left(const sc_cuda_score &what, uint32_t channel)
{
    return channel < what.head_size ? what.head_size - channel : 0;
}

SC_DEVICE void piece_rows(const sc_cuda_score &what, const TensorLay &lay, uint32_t head,
                          const KeyTile &piece, uint16_t *keys)
{
    sc_cuda_score_keys from = what.prefix;
    if (piece.is_fresh) /* avoids a second copy of the code */
        from = what.fresh;
    uint32_t runs = lay.channels / SC_CUDA_RUN;
    sc_cuda_part part = part_of(from.memory, 0);
    part.base += head * from.memory.head_stride_bytes;
    for (uint32_t i = threadIdx.x; i < piece.count * runs; i += SC_CUDA_SCORE_THREADS) {
        uint32_t key = i / runs, channel = i % runs * SC_CUDA_RUN;
        const uint8_t *row = token_at(from.memory, part, piece.first + key);
        sc_store16(keys + key * lay.stride + channel,
                   run_bits(row + channel * part.element_stride_bytes, part.element_stride_bytes,
                            channels_left(what, channel)));
    }
}

/* Computes each channel's factors; 0 beyond the last. */
SC_DEVICE void piece_factors(const sc_cuda_score &what, const sc_cuda_score_slab &slab,
                             const TensorLay &lay, uint64_t first, uint64_t padded, float *factor,
                             float *middle)
{
    float scale = __fmul_rn(what.scale, LOG2_E), half_levels = (float)(1u << (slab.bits - 1));
    for (uint32_t c = threadIdx.x; c < lay.channels; c += SC_CUDA_SCORE_THREADS) {
        float least = 0, step = 0;
        if (c < what.head_size) {
            const uint8_t *at = slab.scales + 2 * (first + c);
            least = __uint_as_float(widen_f16(sc_load2_any(at)));
            step = __uint_as_float(widen_f16(sc_load2_any(at + 2 * padded)));
        }
        factor[c] = __fmul_rn(__fmul_rn(step, 0.5f), scale);
        middle[c] = __fmul_rn(__fmaf_rn(half_levels, step, least), scale);
    }
}

/* Computes 2 code + 1 - levels of a run of a unit. */
SC_DEVICE uint4 run_odd(const uint32_t code[4], uint32_t run, uint32_t bits)
{
    float least = __fadd_rn(1.0f, -(float)(1u << bits)), odd[SC_CUDA_RUN];
#pragma unroll
    for (uint32_t c = 0; c < SC_CUDA_RUN; c++) {
        uint32_t i = run * SC_CUDA_RUN + c;
        odd[c] = __fmaf_rn(2.0f, code_float(code[i / 4], i), least);
    }
    return uint4{sc_pack_f16(odd[0], odd[1]), sc_pack_f16(odd[2], odd[3]),
                 sc_pack_f16(odd[4], odd[5]), sc_pack_f16(odd[6], odd[7])};
}

/* Stores those of the 8 channels that belong to the head; `to` is its channel 0. A run may begin
 * before the head and end after it. */
SC_DEVICE void run_put(const sc_cuda_score &what, uint32_t channel, uint4 word, uint16_t *to)
{
    if (channel % SC_CUDA_RUN == 0 && channel < what.head_size &&
        channel + SC_CUDA_RUN <= what.head_size) {
        sc_store16(to + channel, word);
        return;
    }
#pragma unroll
    for (uint32_t c = 0; c < SC_CUDA_RUN; c++) {
        uint32_t pair = c / 2 == 0 ? word.x : c / 2 == 1 ? word.y : c / 2 == 2 ? word.z : word.w;
        if (channel + c < what.head_size) /* channels before the head wrap to large numbers */
            sc_store2(to + (channel + c), pair >> c % 2 * 16 & 0xffff);
    }
}

SC_DEVICE void piece_quant(const sc_cuda_score &what, const TensorLay &lay, uint32_t head,
                           const KeyTile &piece, uint32_t number, uint16_t *keys, float *factor,
                           float *middle)
{
    const sc_cuda_score_slab slab = what.slabs[number];
    uint32_t all = (what.code_heads * what.head_size + SC_CUDA_UNIT - 1) / SC_CUDA_UNIT;
    uint32_t head_first = head * what.head_size, unit_first = head_first / SC_CUDA_UNIT;
    uint32_t unit_end = (head_first + what.head_size + SC_CUDA_UNIT - 1) / SC_CUDA_UNIT;
    uint64_t padded = (uint64_t)all * SC_CUDA_UNIT, row_bytes = padded * slab.bits / 8;
    SlabRows rows = {piece.first - slab.key_first, piece.count};
    piece_factors(what, slab, lay, head_first, padded, factor, middle);
    for (uint32_t i = threadIdx.x; i < piece.count; i += SC_CUDA_SCORE_THREADS)
        for (uint32_t c = what.head_size; c < lay.channels; c++)
            sc_store2(keys + i * lay.stride + c, 0);
    TileShare share = tile_share(unit_end - unit_first);
    if (share.is_none)
        return;
    uint32_t unit = unit_first + share.unit, channel = unit * SC_CUDA_UNIT - head_first;
    for (uint32_t first = share.row; first < rows.count; first += SHARE_ROWS * share.step) {
        uint32_t code[SHARE_ROWS][4] = {}, row[SHARE_ROWS];
        const uint8_t *from[SHARE_ROWS];
        quant_locate(rows, slab.codes, row_bytes, first, share.step, row, from);
        quant_of(from, padded, slab.bits, unit, code);
#pragma unroll 1
        for (uint32_t k = 0; k < SHARE_ROWS && row[0] != NO_ROW; k++, rows_shift(row, code)) {
#pragma unroll
            for (uint32_t run = 0; run < 2; run++)
                run_put(what, channel + run * SC_CUDA_RUN, run_odd(code[0], run, slab.bits),
                        keys + row[0] * lay.stride);
        }
    }
}

/* head: index among all KV heads; number: of the slab */
SC_DEVICE void piece_load(const sc_cuda_score &what, const TensorLay &lay, uint32_t head,
                          const KeyTile &piece, uint32_t number, uint16_t *keys, float *factor,
                          float *middle)
{
    if (is_quantised(what, piece))
        piece_quant(what, lay, head, piece, number, keys, factor, middle);
    else
        piece_rows(what, lay, head, piece, keys);
}

#endif
