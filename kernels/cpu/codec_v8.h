/* codec_v8: AVX2 part of codec_rung.h, 8 channels a step. Scales of a tile of rows stay in
 * registers; codes are made by broadcast and shift, as in codec_v16.h.
 * Tests: tests/unit/kernels/test_codec.c */
#ifndef SC_KERNELS_CPU_CODEC_V8_H
#define SC_KERNELS_CPU_CODEC_V8_H

#include "kernels/cpu/codec_rung.h"
#include "kernels/cpu/unroll.h"

#define CODE_TILE      4u /* steps of 8 channels */
#define CODE_TILE_ROWS 4u /* mostly a multiple of 4 KiB apart: they share 8 lines of L1 */
#define CODE_STREAMS   false

/* Bits [0, width) of each lane are 8 channels' bits of a plane; higher bits are undefined. */
INLINE words plane_of(const uint8_t *src, uint32_t width)
{
    int32_t word = 0;
    if (width == 8)
        return _mm256_cvtepu8_epi32(_mm_loadl_epi64((const void *)src));
    memcpy(&word, src, width); /* 8 channels are `width` bytes */
    words shifts = width == 4   ? _mm256_set_epi32(28, 24, 20, 16, 12, 8, 4, 0)
                   : width == 2 ? _mm256_set_epi32(14, 12, 10, 8, 6, 4, 2, 0)
                                : _mm256_set_epi32(7, 6, 5, 4, 3, 2, 1, 0);
    return _mm256_srlv_epi32(_mm256_set1_epi32(word), shifts);
}

/* Returns code + 1/2 of 8 channels. low, high: their bits in the planes; `bits` is a constant. */
INLINE floats halves_of(const uint8_t *low, const uint8_t *high, uint32_t bits)
{
    uint32_t width = low_width(bits), rest = bits - width;
    words code = _mm256_and_si256(plane_of(low, width), _mm256_set1_epi32((1 << width) - 1));
    if (rest > 0) {
        words mask = _mm256_set1_epi32((1 << rest) - 1);
        words above = _mm256_and_si256(plane_of(high, rest), mask);
        code = _mm256_or_si256(code, _mm256_slli_epi32(above, (int)width));
    }
    code = _mm256_or_si256(code, _mm256_set1_epi32(0x4b000000)); /* + 2^23 */
    return _mm256_sub_ps(_mm256_castsi256_ps(code), _mm256_set1_ps(8388607.5f));
}

/* Returns code + 1/2 of a unit. 2-bit codes index a register, which ignores higher bits. */
INLINE void unit_halves(const uint8_t *low, const uint8_t *high, uint32_t bits, floats *ret_first,
                        floats *ret_second)
{
    uint32_t width = low_width(bits), rest = bits - width;
    if (bits != 2) {
        *ret_first = halves_of(low, high, bits);
        *ret_second = halves_of(low + width, high + rest, bits);
        return;
    }
    int32_t word;
    memcpy(&word, low, sizeof(word));
    words both = _mm256_set1_epi32(word);
    const floats centres = _mm256_set_ps(3.5f, 2.5f, 1.5f, 0.5f, 3.5f, 2.5f, 1.5f, 0.5f);
    const words first = _mm256_set_epi32(14, 12, 10, 8, 6, 4, 2, 0);
    const words second = _mm256_set_epi32(30, 28, 26, 24, 22, 20, 18, 16);
    *ret_first = _mm256_permutevar_ps(centres, _mm256_srlv_epi32(both, first));
    *ret_second = _mm256_permutevar_ps(centres, _mm256_srlv_epi32(both, second));
}

/* Stores a unit in whole registers: half registers would queue twice as many stores. */
INLINE void unit_store(uint8_t *dst, floats first, floats second, uint32_t dtype)
{
    if (dtype == SC_KERNELS_F32) {
        values_store(dst, first, dtype);
        values_store(dst + sizeof(first), second, dtype);
        return;
    }
    words low = _mm256_castsi128_si256(narrowed(first, dtype));
    _mm256_storeu_si256((void *)dst, _mm256_inserti128_si256(low, narrowed(second, dtype), 1));
}

/* Decodes steps [step, step + steps) of rows [first, end): one step or an even number. Ignores
 * `streams`: on Zen 3 computation stalls on non-temporal stores, and cached ones are a third
 * faster. */
INLINE void tile_decode(const struct tiles *tiles, uint64_t first, uint64_t end, uint64_t step,
                        uint32_t steps)
{
    uint32_t bits = tiles->bits, dtype = tiles->dtype;
    uint64_t width = low_width(bits), rest = bits - width, padded = tiles->padded;
    uint64_t step_bytes = LANES * element_bytes(dtype);
    floats mins[CODE_TILE], sizes[CODE_TILE];
    SC_UNROLL
    for (uint32_t s = 0; s < steps; s++) {
        mins[s] = widened(tiles->scales, (step + s) * LANES, SC_KERNELS_F16);
        sizes[s] = widened(tiles->scales, padded + (step + s) * LANES, SC_KERNELS_F16);
    }
    for (uint64_t r = first; r < end; r++) {
        const uint8_t *low = tiles->rows->codes[r] + step * width;
        const uint8_t *high = tiles->rows->codes[r] + padded * width / 8 + step * rest;
        uint8_t *dst = tiles->rows->dst[r] + (step - tiles->first) * step_bytes;
        if (steps == 1) {
            floats half = halves_of(low, high, bits);
            values_store(dst, _mm256_fmadd_ps(half, sizes[0], mins[0]), dtype);
            continue;
        }
        SC_UNROLL
        for (uint32_t s = 0; s < steps; s += 2) {
            floats even, odd;
            unit_halves(low + s * width, high + s * rest, bits, &even, &odd);
            unit_store(dst + s * step_bytes, _mm256_fmadd_ps(even, sizes[s], mins[s]),
                       _mm256_fmadd_ps(odd, sizes[s + 1], mins[s + 1]), dtype);
        }
    }
}


#define CODE_STEP_VECTORS 4u
#define SIXTEEN(...)      _mm256_broadcastsi128_si256(_mm_setr_epi8(__VA_ARGS__))

INLINE uint32_t step_vectors(uint32_t bits)
{
    return bits == 8 ? 1 : CODE_STEP_VECTORS;
}

/* Returns 0 or `value` by each byte's bit of a single-bit plane. bytes, bits: its position */
INLINE words single_of(const uint8_t *src, words bytes, words bits, char value)
{
    int32_t word;
    memcpy(&word, src, sizeof(word));
    words some = _mm256_and_si256(_mm256_shuffle_epi8(_mm256_set1_epi32(word), bytes), bits);
    return _mm256_and_si256(_mm256_cmpeq_epi8(some, bits), _mm256_set1_epi8(value));
}

/* Returns 32 codes as bytes. Byte 16 l + i is channel 2 i + l. */
INLINE words fours_of(const uint8_t *low, const uint8_t *high, uint32_t bits)
{
    words codes = _mm256_broadcastsi128_si256(_mm_loadu_si128((const void *)low));
    codes = _mm256_and_si256(_mm256_srlv_epi64(codes, _mm256_setr_epi64x(0, 0, 4, 4)),
                             _mm256_set1_epi8(15));
    if (bits == 5) {
        const words bytes = SIXTEEN(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3);
        const words places =
            _mm256_setr_epi32(0x40100401, 0x40100401, 0x40100401, 0x40100401, (int32_t)0x80200802,
                              (int32_t)0x80200802, (int32_t)0x80200802, (int32_t)0x80200802);
        codes = _mm256_or_si256(codes, single_of(high, bytes, places, 16));
    } else if (bits == 6) {
        int64_t both;
        memcpy(&both, high, sizeof(both));
        words twos = _mm256_srlv_epi64(_mm256_set1_epi64x(both), _mm256_setr_epi64x(0, 0, 2, 2));
        twos = _mm256_unpacklo_epi8(_mm256_slli_epi16(twos, 4), twos);
        codes = _mm256_or_si256(codes, _mm256_and_si256(twos, _mm256_set1_epi8(0x30)));
    }
    return codes;
}

/* Does the same for codes of 2 and 3 bits. Byte 8 j + i is channel 4 i + j. */
INLINE words twos_of(const uint8_t *low, const uint8_t *high, uint32_t bits)
{
    int64_t all;
    memcpy(&all, low, sizeof(all));
    words codes = _mm256_srlv_epi64(_mm256_set1_epi64x(all), _mm256_setr_epi64x(0, 2, 4, 6));
    codes = _mm256_and_si256(codes, _mm256_set1_epi8(3));
    if (bits == 3) {
        const words bytes = SIXTEEN(0, 0, 1, 1, 2, 2, 3, 3, 0, 0, 1, 1, 2, 2, 3, 3);
        const words places =
            _mm256_setr_epi32(0x10011001, 0x10011001, 0x20022002, 0x20022002, 0x40044004,
                              0x40044004, (int32_t)0x80088008, (int32_t)0x80088008);
        codes = _mm256_or_si256(codes, single_of(high, bytes, places, 4));
    }
    return codes;
}

/* Byte 0 or 1 of code - levels / 2 + 1/2 in bfloat16, for each code of up to 4 bits. */
INLINE words table_of(uint32_t bits, uint32_t byte)
{
    if (bits == 2)
        return byte == 0 ? SIXTEEN(-64, 0, 0, -64, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
                         : SIXTEEN(-65, -65, 63, 63, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
    if (bits == 3)
        return byte == 0 ? SIXTEEN(96, 32, -64, 0, 0, -64, 32, 96, 0, 0, 0, 0, 0, 0, 0, 0)
                         : SIXTEEN(-64, -64, -65, -65, 63, 63, 64, 64, 0, 0, 0, 0, 0, 0, 0, 0);
    return byte == 0
               ? SIXTEEN(-16, -48, -80, -112, 96, 32, -64, 0, 0, -64, 32, 96, -112, -80, -48, -16)
               : SIXTEEN(-64, -64, -64, -64, -64, -64, -65, -65, 63, 63, 64, 64, 64, 64, 64, 64);
}

/* Computes code - levels / 2 + 1/2 of 32 channels (8 bits: of 8), in the order of in_order. Up to 6
 * bits the values are exact in bfloat16, the upper half of a float32. Its two bytes are looked up,
 * or are 0x43 and the code, which is 128 + code. */
INLINE void centred_of(const uint8_t *low, const uint8_t *high, uint32_t bits, floats *ret_values)
{
    if (bits == 8) {
        floats code = _mm256_cvtepi32_ps(plane_of(low, 8));
        ret_values[0] = _mm256_sub_ps(code, _mm256_set1_ps(127.5f));
        return;
    }
    words codes = bits < 4 ? twos_of(low, high, bits) : fours_of(low, high, bits);
    words above = _mm256_set1_epi8(0x43);
    if (bits <= 4) {
        above = _mm256_shuffle_epi8(table_of(bits, 1), codes);
        codes = _mm256_shuffle_epi8(table_of(bits, 0), codes);
    }
    const words odd = _mm256_set1_epi32((int32_t)0xffff0000);
    words pairs[2] = {_mm256_unpacklo_epi8(codes, above), _mm256_unpackhi_epi8(codes, above)};
    SC_UNROLL
    for (uint32_t i = 0; i < CODE_STEP_VECTORS; i++) {
        words wide =
            i % 2 == 0 ? _mm256_slli_epi32(pairs[i / 2], 16) : _mm256_and_si256(pairs[i / 2], odd);
        ret_values[i] = _mm256_castsi256_ps(wide);
        if (bits > 4)
            ret_values[i] =
                _mm256_sub_ps(ret_values[i], _mm256_set1_ps(127.5f + (float)(1u << bits) / 2));
    }
}

/* Puts as many values as centred_of makes into its order. */
INLINE void in_order(floats *values, uint32_t bits)
{
    if (bits == 8)
        return;
    if (bits >= 4) { /* of 16: 0 4 8 12 1 5 9 13, then these + 2 */
        const words places = _mm256_setr_epi32(0, 4, 2, 6, 1, 5, 3, 7);
        SC_UNROLL
        for (uint32_t i = 0; i < CODE_STEP_VECTORS; i += 2) {
            __m256d a = _mm256_castps_pd(_mm256_permutevar8x32_ps(values[i], places));
            __m256d b = _mm256_castps_pd(_mm256_permutevar8x32_ps(values[i + 1], places));
            values[i] = _mm256_castpd_ps(_mm256_unpacklo_pd(a, b));
            values[i + 1] = _mm256_castpd_ps(_mm256_unpackhi_pd(a, b));
        }
        return;
    }
    /* 0 8 16 24 2 10 18 26, then these + 4, + 1, + 5 */
    const words places = _mm256_setr_epi32(0, 2, 4, 6, 1, 3, 5, 7);
    floats v[CODE_STEP_VECTORS];
    SC_UNROLL
    for (uint32_t i = 0; i < CODE_STEP_VECTORS; i++) /* channels 0 2 4 6 of 8, then 1 3 5 7 */
        v[i] = _mm256_permutevar8x32_ps(values[i], places);
    __m256d ab = _mm256_castps_pd(_mm256_unpacklo_ps(v[0], v[1]));
    __m256d cd = _mm256_castps_pd(_mm256_unpacklo_ps(v[2], v[3]));
    __m256d ab4 = _mm256_castps_pd(_mm256_unpackhi_ps(v[0], v[1]));
    __m256d cd4 = _mm256_castps_pd(_mm256_unpackhi_ps(v[2], v[3]));
    floats all[CODE_STEP_VECTORS] = {/* channel | channel of each 8 */
                                     _mm256_castpd_ps(_mm256_unpacklo_pd(ab, cd)),   /* 0 | 1 */
                                     _mm256_castpd_ps(_mm256_unpackhi_pd(ab, cd)),   /* 2 | 3 */
                                     _mm256_castpd_ps(_mm256_unpacklo_pd(ab4, cd4)), /* 4 | 5 */
                                     _mm256_castpd_ps(_mm256_unpackhi_pd(ab4, cd4))};
    values[0] = _mm256_permute2f128_ps(all[0], all[1], 0x20);
    values[1] = _mm256_permute2f128_ps(all[2], all[3], 0x20);
    values[2] = _mm256_permute2f128_ps(all[0], all[1], 0x31);
    values[3] = _mm256_permute2f128_ps(all[2], all[3], 0x31);
}

#endif
