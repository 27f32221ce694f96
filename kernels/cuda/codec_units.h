/* codec_units: reads codes and scales of a unit of uniformly quantised rows (codec.h). A unit is 16
 * channels of a row: 2 w bytes of a plane of w bits.
 * Tests: tests/unit/kernels/test_cuda_codec.c, test_cuda_importance.c */
#ifndef SC_KERNELS_CUDA_CODEC_UNITS_H
#define SC_KERNELS_CUDA_CODEC_UNITS_H

#include "kernels/cuda/decode.h"

#define WORDS(width) ((width) < 4 ? 1 : (width) / 2) /* words of 2 * width bytes */

/* Loads 2 * WIDTH bytes of a plane as words, from an aligned address or any other. */
template <uint32_t WIDTH>
SC_DEVICE void plane_load(const uint8_t *at, bool is_aligned, uint32_t word[WORDS(WIDTH)])
{
    if (!is_aligned) {
#pragma unroll
        for (uint32_t i = 0; i < WORDS(WIDTH); i++)
            word[i] = sc_load2_any(at + 4 * i);
#pragma unroll
        for (uint32_t i = 0; i < WORDS(WIDTH); i++)
            if (2 * i + 1 < WIDTH)
                word[i] |= sc_load2_any(at + 4 * i + 2) << 16;
    } else if (WIDTH == 8) {
        uint4 all = sc_load16(at);
        word[0] = all.x;
        word[WORDS(WIDTH) > 1 ? 1 : 0] = all.y;
        word[WORDS(WIDTH) > 2 ? 2 : 0] = all.z;
        word[WORDS(WIDTH) > 3 ? 3 : 0] = all.w;
    } else if (WIDTH == 4) {
        uint2 all = sc_load8(at);
        word[0] = all.x;
        word[WORDS(WIDTH) > 1 ? 1 : 0] = all.y;
    } else {
        word[0] = WIDTH == 2 ? sc_load4(at) : sc_load2(at);
    }
}

/* Spreads fields of WIDTH bits to one byte each, four at a time. */
template <uint32_t WIDTH> SC_DEVICE uint32_t fields_spread(uint32_t fields)
{
    if (WIDTH == 8)
        return fields;
    if (WIDTH == 1)
        return bits_spread(fields & 0xf);
    if (WIDTH == 2) {
        fields &= 0xff;
        fields = (fields | fields << 12) & 0x000f000fu;
        return (fields | fields << 6) & 0x03030303u;
    }
    fields &= 0xffff;
    fields = (fields | fields << 8) & 0x00ff00ffu;
    return (fields | fields << 4) & 0x0f0f0f0fu;
}

/* Adds a plane of a unit of all rows; loads first. */
template <uint32_t WIDTH>
SC_DEVICE void plane_add(const uint8_t *const row[SHARE_ROWS], uint64_t at, uint32_t shift,
                         uint32_t code[SHARE_ROWS][4])
{
    uint32_t word[SHARE_ROWS][WORDS(WIDTH)], off = 0;
#pragma unroll
    for (uint32_t k = 0; k < SHARE_ROWS; k++)
        off |= sc_off(row[k] + at, 2 * WIDTH);
#pragma unroll
    for (uint32_t k = 0; k < SHARE_ROWS; k++)
        plane_load<WIDTH>(row[k] + at, off == 0, word[k]);
#pragma unroll
    for (uint32_t k = 0; k < SHARE_ROWS; k++)
#pragma unroll
        for (uint32_t i = 0; i < 4; i++)
            code[k][i] |= fields_spread<WIDTH>(word[k][i * WIDTH / 8] >> i * WIDTH * 4 % 32)
                          << shift;
}

SC_DEVICE void quant_of(const uint8_t *const row[SHARE_ROWS], uint64_t padded, uint32_t bits,
                        uint32_t unit, uint32_t code[SHARE_ROWS][4])
{
    uint32_t shift = 0;
    uint64_t at = 0;
    if (bits & 8) {
        plane_add<8>(row, unit * 16ull, shift, code);
        at += padded;
        shift += 8;
    }
    if (bits & 4) {
        plane_add<4>(row, at + unit * 8ull, shift, code);
        at += padded / 2;
        shift += 4;
    }
    if (bits & 2) {
        plane_add<2>(row, at + unit * 4ull, shift, code);
        at += padded / 4;
        shift += 2;
    }
    if (bits & 1)
        plane_add<1>(row, at + unit * 2ull, shift, code);
}

#define RUN_ROWS 4u /* rows of a run in flight */

/* Loads WIDTH bytes of a plane: a run of a row. off: 0 if `at` is a multiple of WIDTH or 8. */
template <uint32_t WIDTH>
SC_DEVICE void run_plane_load(const uint8_t *at, uint32_t off, uint32_t word[2])
{
    if (WIDTH == 1) {
        word[0] = sc_load1(at);
    } else if (off != 0) {
#pragma unroll
        for (uint32_t i = 0; i < (WIDTH + 3) / 4; i++)
            word[i] = sc_load2_any(at + 4 * i);
#pragma unroll
        for (uint32_t i = 0; i < 2; i++)
            if (4 * i + 2 < WIDTH)
                word[i] |= sc_load2_any(at + 4 * i + 2) << 16;
    } else if (WIDTH == 8) {
        uint2 all = sc_load8(at);
        word[0] = all.x;
        word[1] = all.y;
    } else {
        word[0] = WIDTH == 4 ? sc_load4(at) : sc_load2(at);
    }
}

/* Adds a plane of a run of all rows; loads first. from: the first row; last: the last's index */
template <uint32_t WIDTH>
SC_DEVICE void run_plane_add(const uint8_t *from, uint64_t row_bytes, uint32_t step, uint32_t last,
                             uint32_t shift, uint32_t code[RUN_ROWS][2])
{
    uint32_t word[RUN_ROWS][2] = {};
    uint32_t off = (sc_off(from, WIDTH) | (uint32_t)(row_bytes * step)) & (WIDTH - 1);
#pragma unroll
    for (uint32_t k = 0; k < RUN_ROWS; k++) {
        run_plane_load<WIDTH>(from, off, word[k]);
        from += k < last ? row_bytes * step : 0;
    }
#pragma unroll
    for (uint32_t k = 0; k < RUN_ROWS; k++)
#pragma unroll
        for (uint32_t i = 0; i < 2; i++)
            code[k][i] |= fields_spread<WIDTH>(word[k][i * WIDTH / 8] >> i * WIDTH * 4 % 32)
                          << shift;
}

/* Reads codes of a run of every step-th row at `from`; beyond `last` the last row repeats. */
SC_DEVICE void run_quant(const uint8_t *from, uint64_t row_bytes, uint32_t step, uint32_t last,
                         uint64_t padded, uint32_t bits, uint32_t run, uint32_t code[RUN_ROWS][2])
{
    uint32_t shift = 0;
    if (bits & 8) {
        run_plane_add<8>(from + run * 8ull, row_bytes, step, last, shift, code);
        from += padded;
        shift += 8;
    }
    if (bits & 4) {
        run_plane_add<4>(from + run * 4ull, row_bytes, step, last, shift, code);
        from += padded / 2;
        shift += 4;
    }
    if (bits & 2) {
        run_plane_add<2>(from + run * 2ull, row_bytes, step, last, shift, code);
        from += padded / 4;
        shift += 2;
    }
    if (bits & 1)
        run_plane_add<1>(from + run, row_bytes, step, last, shift, code);
}

SC_DEVICE void eight_widen(const uint8_t *at, float value[SC_CUDA_RUN])
{
    if (sc_off(at, 16) == 0) {
        uint4 word = sc_load16(at);
        value[0] = number_widen(word.x & 0xffff);
        value[1] = number_widen(word.x >> 16);
        value[2] = number_widen(word.y & 0xffff);
        value[3] = number_widen(word.y >> 16);
        value[4] = number_widen(word.z & 0xffff);
        value[5] = number_widen(word.z >> 16);
        value[6] = number_widen(word.w & 0xffff);
        value[7] = number_widen(word.w >> 16);
        return;
    }
    uint32_t half[SC_CUDA_RUN];
    if (sc_off(at, 2) == 0) {
#pragma unroll
        for (uint32_t c = 0; c < SC_CUDA_RUN; c++)
            half[c] = sc_load2(at + 2 * c);
    } else {
#pragma unroll
        for (uint32_t c = 0; c < SC_CUDA_RUN; c++)
            half[c] = sc_load1(at + 2 * c) | (uint32_t)sc_load1(at + 2 * c + 1) << 8;
    }
#pragma unroll
    for (uint32_t c = 0; c < SC_CUDA_RUN; c++)
        value[c] = number_widen(half[c]);
}

struct RunScales {
    float least[SC_CUDA_RUN], step[SC_CUDA_RUN];
};

SC_DEVICE RunScales run_scales_of(const uint8_t *at, uint64_t padded, uint32_t run)
{
    RunScales scales;
    eight_widen(at + run * 16ull, scales.least);
    eight_widen(at + run * 16ull + 2 * padded, scales.step);
    return scales;
}

/* Computes fma(code + 1/2, step, least): code + 1/2 is exact in one addition. */
SC_DEVICE void run_decode(const uint32_t code[2], const RunScales &scales, float value[SC_CUDA_RUN])
{
#pragma unroll
    for (uint32_t c = 0; c < SC_CUDA_RUN; c++)
        value[c] = __fmaf_rn(__fadd_rn(code_high(code[c / 4], c), -8388607.5f), scales.step[c],
                             scales.least[c]);
}


struct Scales {
    float least[SC_CUDA_UNIT], step[SC_CUDA_UNIT];
};

/* at: scales of a slab with `padded` channels */
SC_DEVICE Scales scales_of(const uint8_t *at, uint64_t padded, uint32_t unit)
{
    Scales scales;
#pragma unroll
    for (uint32_t c = 0; c < SC_CUDA_UNIT; c++) {
        const uint8_t *least = at + 2 * (unit * (uint64_t)SC_CUDA_UNIT + c);
        scales.least[c] = __uint_as_float(widen_f16(sc_load2_any(least)));
        scales.step[c] = __uint_as_float(widen_f16(sc_load2_any(least + 2 * padded)));
    }
    return scales;
}

SC_DEVICE void run_values(const uint32_t code[4], const Scales &scales, uint32_t run,
                          float value[SC_CUDA_RUN])
{
#pragma unroll
    for (uint32_t c = 0; c < SC_CUDA_RUN; c++) {
        uint32_t i = run * SC_CUDA_RUN + c;
        value[c] =
            __fmaf_rn(__fadd_rn(code_float(code[i / 4], i), 0.5f), scales.step[i], scales.least[i]);
    }
}

#endif
