/* bitplanes_v8: AVX2 part of bitplanes_rung.h.
 *
 *   spread     of most tiles in columns (bitplanes_columns.h), of few rows here: each channel
 *              selects the byte of the plane with its bit, and tests the bit
 *   together   gathers bits: in rounds, bits move by 1, 2, 4 .. 32, by masks made once a plane and
 *              slab
 *
 * Neither uses pdep or pext, which take hundreds of cycles on some processors with AVX2 (AMD family
 * 17h).
 * Tests: tests/unit/kernels/test_bitplanes.c */
#ifndef SC_KERNELS_CPU_BITPLANES_V8_H
#define SC_KERNELS_CPU_BITPLANES_V8_H

#include "kernels/cpu/bitplanes_rung.h"

#define PLANES_TILE SC_KERNELS_BITPLANES_TILE
#define ROWS_FEW    8u /* rows at most that are spread row by row */
#define SPREAD_ROWS 4u
#define STREAM_ROWS 1u

/* For 32 channels of a plane: the byte with a channel's bit, and the bit; without one, a 0 bit. */
INLINE void places_load(const uint8_t *places, words *ret_bytes, words *ret_bits)
{
    const words powers = _mm256_set1_epi64x((int64_t)0x8040201008040201u);
    words place = _mm256_loadu_si256((const void *)places);
    words nowhere = _mm256_and_si256(place, _mm256_set1_epi8((char)0x80));
    words byte = _mm256_and_si256(_mm256_srli_epi16(place, 3), _mm256_set1_epi8(7));
    *ret_bytes = _mm256_or_si256(byte, nowhere);
    *ret_bits = _mm256_shuffle_epi8(powers, _mm256_and_si256(place, _mm256_set1_epi8(7)));
}

/* Makes a group's codes of SPREAD_ROWS rows. ret_quant: the first row's; rows are a head apart */
INLINE void group_spread(const struct sc_kernels_bitplanes_group *group, const uint8_t *const *rows,
                         uint8_t *ret_quant)
{
    words codes[SPREAD_ROWS][2];
    SC_UNROLL
    for (uint32_t r = 0; r < SPREAD_ROWS; r++)
        SC_UNROLL
    for (uint32_t v = 0; v < 2; v++)
        codes[r][v] = _mm256_setzero_si256();
    for (uint32_t p = 0; p < group->end; p++) {
        uint64_t at = group->offset + group->at[p];
        words bytes[2], bits[2], bit = _mm256_set1_epi8((char)(0x80u >> p));
        places_load(group->places[p], &bytes[0], &bits[0]);
        places_load(group->places[p] + 32, &bytes[1], &bits[1]);
        SC_UNROLL
        for (uint32_t r = 0; r < SPREAD_ROWS; r++) {
            int64_t plane;
            memcpy(&plane, rows[r] + at, sizeof(plane));
            words all = _mm256_set1_epi64x(plane);
            SC_UNROLL
            for (uint32_t v = 0; v < 2; v++) {
                words found = _mm256_and_si256(_mm256_shuffle_epi8(all, bytes[v]), bits[v]);
                found = _mm256_and_si256(_mm256_cmpeq_epi8(found, bits[v]), bit);
                codes[r][v] = _mm256_or_si256(codes[r][v], found);
            }
        }
    }
    SC_UNROLL
    for (uint32_t r = 0; r < SPREAD_ROWS; r++)
        SC_UNROLL
    for (uint32_t v = 0; v < 2; v++)
        _mm256_storeu_si256((void *)(ret_quant + r * SC_KERNELS_BITPLANES_HEAD + v * 32),
                            codes[r][v]);
}

INLINE words bytes_words(const uint8_t *src)
{
    return _mm256_cvtepu8_epi32(_mm_loadl_epi64((const void *)src));
}

INLINE floats quant_floats(const uint8_t *codes)
{
    return _mm256_cvtepi32_ps(bytes_words(codes));
}

/* Duplicates each pair's value to both lanes; pairs_swapped swaps the lanes of pairs. */
INLINE floats pairs_both(const float *pairs)
{
    return _mm256_permutevar8x32_ps(_mm256_castps128_ps256(_mm_loadu_ps(pairs)),
                                    _mm256_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3));
}

INLINE floats pairs_swapped(floats x)
{
    return _mm256_permute_ps(x, 0xb1);
}

INLINE floats where_equal(words a, words b, floats equal, floats other)
{
    return _mm256_blendv_ps(other, equal, _mm256_castsi256_ps(_mm256_cmpeq_epi32(a, b)));
}

/* Stores half a line: one vector of float32, two of 16-bit types. */
INLINE void line_put(uint8_t *dst, const floats *values, uint32_t dtype, bool streams)
{
    words both = VI(castps)(values[0]);
    if (dtype == SC_KERNELS_F16) {
        words low = _mm256_castsi128_si256(narrowed(values[0], dtype));
        both = _mm256_inserti128_si256(low, narrowed(values[1], dtype), 1);
    } else if (dtype == SC_KERNELS_BF16) {
        words low = _mm256_srli_epi32(rounded_bf16(values[0]), 16);
        words high = _mm256_srli_epi32(rounded_bf16(values[1]), 16);
        both = _mm256_permute4x64_epi64(_mm256_packus_epi32(low, high), 0xd8);
    }
    if (streams)
        _mm256_stream_si256((void *)dst, both);
    else
        _mm256_storeu_si256((void *)dst, both);
}

/* Bit c: bit 7 - plane of the code of channel c of 64. */
INLINE uint64_t plane_bits(const uint8_t *codes, uint32_t plane)
{
    __m128i shift = _mm_cvtsi32_si128((int)plane);
    words low = _mm256_sll_epi16(_mm256_loadu_si256((const void *)codes), shift);
    words high = _mm256_sll_epi16(_mm256_loadu_si256((const void *)(codes + 32)), shift);
    return (uint32_t)_mm256_movemask_epi8(low) | (uint64_t)(uint32_t)_mm256_movemask_epi8(high)
                                                     << 32;
}

INLINE void quant_put_bytes(uint8_t *dst, words codes)
{
    words pairs = _mm256_packus_epi32(codes, codes);
    __m128i halved =
        _mm_unpacklo_epi64(_mm256_castsi256_si128(pairs), _mm256_extracti128_si256(pairs, 1));
    _mm_storel_epi64((void *)dst, _mm_packus_epi16(halved, halved));
}

/* Gathers bits of a mask: moved[i] are the bits that move by 2^i. */
struct bits_moves {
    uint64_t mask, moved[6];
};

INLINE struct bits_moves bits_moves_of(uint64_t mask)
{
    struct bits_moves moves = {.mask = mask};
    uint64_t gaps = ~mask << 1; /* counted below each bit, one binary digit a round */
    for (uint32_t i = 0; i < 6; i++) {
        uint64_t odd = gaps;
        for (uint32_t shift = 1; shift < 64; shift *= 2)
            odd ^= odd << shift;
        moves.moved[i] = odd & mask;
        mask = (mask ^ moves.moved[i]) | moves.moved[i] >> (1u << i);
        gaps &= ~odd;
    }
    return moves;
}

INLINE uint64_t bits_together(uint64_t bits, const struct bits_moves *moves)
{
    bits &= moves->mask;
    SC_UNROLL
    for (uint32_t i = 0; i < 6; i++) {
        uint64_t moved = bits & moves->moved[i];
        bits = (bits ^ moved) | moved >> (1u << i);
    }
    return bits;
}

#endif
