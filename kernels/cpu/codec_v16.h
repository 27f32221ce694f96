/* codec_v16: AVX-512 part of codec_rung.h, 16 channels a step.
 *
 *   decode   four units of 16 channels, with scales in registers, over several rows: a row of a
 *            tile is whole cache lines, and a scale is widened once for those rows
 *   codes    a plane's bits are broadcast and shifted into their lanes; OR with the bits of 2^23,
 *            minus (2^23 - 1/2), makes code + 1/2 without a conversion
 *
 * Tests: tests/unit/kernels/test_codec.c */
#ifndef SC_KERNELS_CPU_CODEC_V16_H
#define SC_KERNELS_CPU_CODEC_V16_H

#include "kernels/cpu/codec_rung.h"
#include "kernels/cpu/unroll.h"

#define CODE_TILE      4u /* units */
#define CODE_TILE_ROWS 8u
#define CODE_STREAMS   true

INLINE int32_t word_at(const uint8_t *src)
{
    int32_t word;
    memcpy(&word, src, sizeof(word));
    return word;
}

/* Bits [0, width) of each lane are the unit's bits of a plane; higher bits are undefined. */
INLINE words plane_of(const uint8_t *src, uint32_t width)
{
    const words twos = _mm512_set_epi32(30, 28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
    const words fours = _mm512_set_epi32(28, 24, 20, 16, 12, 8, 4, 0, 28, 24, 20, 16, 12, 8, 4, 0);
    if (width == 8)
        return _mm512_cvtepu8_epi32(_mm_loadu_si128((const void *)src));
    if (width == 2)
        return _mm512_srlv_epi32(_mm512_set1_epi32(word_at(src)), twos);
    words both = _mm512_mask_set1_epi32(_mm512_set1_epi32(word_at(src)), 0xff00, word_at(src + 4));
    return _mm512_srlv_epi32(both, fours);
}

/* Returns code + 1/2 of a unit. low, high: its bits in the two planes; `bits` is a constant. */
INLINE floats halves_of(const uint8_t *low, const uint8_t *high, uint32_t bits)
{
    uint32_t width = low_width(bits), rest = bits - width;
    const words whole = _mm512_set1_epi32(0x4b000000); /* 2^23 */
    const words mask = _mm512_set1_epi32((1 << width) - 1);
    words code = _mm512_ternarylogic_epi32(plane_of(low, width), mask, whole, 0xea);
    if (rest == 2) {
        words above = _mm512_and_si512(plane_of(high, 2), _mm512_set1_epi32(3));
        code = _mm512_or_si512(code, _mm512_slli_epi32(above, 4));
    } else if (rest == 1) {
        uint16_t set;
        memcpy(&set, high, sizeof(set));
        code = _mm512_mask_or_epi32(code, set, code, _mm512_set1_epi32(1 << width));
    }
    return _mm512_sub_ps(_mm512_castsi512_ps(code), _mm512_set1_ps(8388607.5f));
}

/* Stores a line non-temporally: one unit of float32, two of 16-bit types. */
INLINE void line_stream(uint8_t *dst, const floats *values, uint32_t dtype)
{
    if (dtype == SC_KERNELS_F32) {
        _mm512_stream_ps((float *)(void *)dst, values[0]);
        return;
    }
    words low = _mm512_castsi256_si512(narrowed(values[0], dtype));
    _mm512_stream_si512((void *)dst, _mm512_inserti64x4(low, narrowed(values[1], dtype), 1));
}

/* Decodes units [unit, unit + units) of rows [first, end). A single unit is never a line. */
INLINE void tile_decode(const struct tiles *tiles, uint64_t first, uint64_t end, uint64_t unit,
                        uint32_t units)
{
    uint32_t bits = tiles->bits, dtype = tiles->dtype;
    uint64_t width = low_width(bits), rest = bits - width, padded = tiles->padded;
    uint64_t unit_bytes = LANES * element_bytes(dtype);
    bool streams = tiles->streams && units > 1;
    floats min[CODE_TILE], step[CODE_TILE];
    SC_UNROLL
    for (uint32_t u = 0; u < units; u++) {
        min[u] = widened(tiles->scales, (unit + u) * LANES, SC_KERNELS_F16);
        step[u] = widened(tiles->scales, padded + (unit + u) * LANES, SC_KERNELS_F16);
    }
    for (uint64_t r = first; r < end; r++) {
        const uint8_t *low = tiles->rows->codes[r] + unit * width * 2;
        const uint8_t *high = tiles->rows->codes[r] + padded * width / 8 + unit * rest * 2;
        uint8_t *dst = tiles->rows->dst[r] + (unit - tiles->first) * unit_bytes;
        floats values[CODE_TILE];
        SC_UNROLL
        for (uint32_t u = 0; u < units; u++) {
            floats half = halves_of(low + u * width * 2, high + u * rest * 2, bits);
            values[u] = _mm512_fmadd_ps(half, step[u], min[u]);
            if (!streams)
                values_store(dst + u * unit_bytes, values[u], dtype);
        }
        SC_UNROLL
        for (uint32_t u = 0; streams && u < units; u += dtype == SC_KERNELS_F32 ? 1 : 2)
            line_stream(dst + u * unit_bytes, values + u, dtype);
    }
}

/* Returns code - levels / 2 + 1/2 of a unit, in the order of in_order. Codes of 4 and 2 bits index
 * a table in a register, which ignores a lane's higher bits, or maps them alike. */
INLINE floats unit_centred(const uint8_t *low, const uint8_t *high, uint32_t bits)
{
    if (bits != 4 && bits != 2)
        return _mm512_sub_ps(halves_of(low, high, bits), _mm512_set1_ps((float)(1u << bits) / 2));
    if (bits == 2) {
        const words twos =
            _mm512_set_epi32(30, 28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
        const floats values = _mm512_setr_ps(-1.5f, -0.5f, 0.5f, 1.5f, -1.5f, -0.5f, 0.5f, 1.5f,
                                             -1.5f, -0.5f, 0.5f, 1.5f, -1.5f, -0.5f, 0.5f, 1.5f);
        return _mm512_permutexvar_ps(_mm512_srlv_epi32(_mm512_set1_epi32(word_at(low)), twos),
                                     values);
    }
    int64_t both;
    memcpy(&both, low, sizeof(both));
    const words fours = /* lane 2 i: channel i, lane 2 i + 1: channel 8 + i */
        _mm512_set_epi32(28, 28, 24, 24, 20, 20, 16, 16, 12, 12, 8, 8, 4, 4, 0, 0);
    const floats values = _mm512_setr_ps(-7.5f, -6.5f, -5.5f, -4.5f, -3.5f, -2.5f, -1.5f, -0.5f,
                                         0.5f, 1.5f, 2.5f, 3.5f, 4.5f, 5.5f, 6.5f, 7.5f);
    return _mm512_permutexvar_ps(_mm512_srlv_epi32(_mm512_set1_epi64(both), fours), values);
}

#define CODE_STEP_VECTORS 1u
INLINE uint32_t step_vectors(uint32_t bits)
{
    (void)bits;
    return 1;
}

INLINE void centred_of(const uint8_t *low, const uint8_t *high, uint32_t bits, floats *ret_values)
{
    *ret_values = unit_centred(low, high, bits);
}

/* Puts 16 values into the order of centred_of. */
INLINE void in_order(floats *values, uint32_t bits)
{
    const words places = _mm512_setr_epi32(0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15);
    if (bits == 4)
        *values = _mm512_permutexvar_ps(places, *values);
}

#endif
