/* bitplanes_v16: AVX-512 part of bitplanes_rung.h.
 *
 * A plane's bits are spread to their channels by pdep (fast on all processors with AVX-512). The
 * result is a mask of 64 bytes: one masked addition a plane.
 * Tests: tests/unit/kernels/test_bitplanes.c */
#ifndef SC_KERNELS_CPU_BITPLANES_V16_H
#define SC_KERNELS_CPU_BITPLANES_V16_H

#include "kernels/cpu/bitplanes_rung.h"

#define PLANES_TILE 16u
#define SPREAD_ROWS 8u
#define STREAM_ROWS PLANES_TILE

/* Makes a group's codes of SPREAD_ROWS rows. ret_quant: the first row's; rows are a head apart */
INLINE void group_spread(const struct sc_kernels_bitplanes_group *group, const uint8_t *const *rows,
                         uint8_t *ret_quant)
{
    words codes[SPREAD_ROWS];
    SC_UNROLL
    for (uint32_t r = 0; r < SPREAD_ROWS; r++)
        codes[r] = _mm512_setzero_si512();
    for (uint32_t p = 0; p < group->end; p++) {
        const words bit = _mm512_set1_epi8((char)(0x80u >> p));
        uint64_t mask = group->masks[p], at = group->offset + group->at[p];
        SC_UNROLL
        for (uint32_t r = 0; r < SPREAD_ROWS; r++) {
            uint64_t bits;
            memcpy(&bits, rows[r] + at, sizeof(bits));
            __mmask64 there = _cvtu64_mask64(_pdep_u64(bits, mask));
            codes[r] = _mm512_mask_add_epi8(codes[r], there, codes[r], bit);
        }
    }
    SC_UNROLL
    for (uint32_t r = 0; r < SPREAD_ROWS; r++)
        _mm512_storeu_si512(ret_quant + r * SC_KERNELS_BITPLANES_HEAD, codes[r]);
}

INLINE words bytes_words(const uint8_t *src)
{
    return _mm512_cvtepu8_epi32(_mm_loadu_si128((const void *)src));
}

INLINE floats quant_floats(const uint8_t *codes)
{
    return _mm512_cvtepi32_ps(bytes_words(codes));
}

INLINE floats where_equal(words a, words b, floats equal, floats other)
{
    return _mm512_mask_blend_ps(_mm512_cmpeq_epi32_mask(a, b), other, equal);
}

/* Duplicates each pair's value to both lanes; pairs_swapped swaps the lanes of pairs. */
INLINE floats pairs_both(const float *pairs)
{
    const words places = _mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);
    return _mm512_permutexvar_ps(places, _mm512_castps256_ps512(_mm256_loadu_ps(pairs)));
}

INLINE floats pairs_swapped(floats x)
{
    return _mm512_permute_ps(x, 0xb1);
}

/* Stores a line: one vector of float32, two of 16-bit types. */
INLINE void line_put(uint8_t *dst, const floats *values, uint32_t dtype, bool streams)
{
    words line = VI(castps)(values[0]);
    if (dtype == SC_KERNELS_F16) {
        words low = _mm512_castsi256_si512(narrowed(values[0], dtype));
        line = _mm512_inserti64x4(low, narrowed(values[1], dtype), 1);
    } else if (dtype == SC_KERNELS_BF16) {
        const words upper =
            _mm512_add_epi32(/* words 1, 3, 5 .. of both */
                             _mm512_set1_epi32(0x00030001),
                             _mm512_mullo_epi32(lane_numbers(), _mm512_set1_epi32(0x00040004)));
        line = _mm512_permutex2var_epi16(rounded_bf16(values[0]), upper, rounded_bf16(values[1]));
    }
    if (streams)
        _mm512_stream_si512((void *)dst, line);
    else
        _mm512_storeu_si512((void *)dst, line);
}

/* Bit c: bit 7 - plane of the code of channel c of 64. */
INLINE uint64_t plane_bits(const uint8_t *codes, uint32_t plane)
{
    words shifted = _mm512_sll_epi16(_mm512_loadu_si512(codes), _mm_cvtsi32_si128((int)plane));
    return _cvtmask64_u64(_mm512_movepi8_mask(shifted));
}

INLINE void quant_put_bytes(uint8_t *dst, words codes)
{
    _mm_storeu_si128((void *)dst, _mm512_cvtepi32_epi8(codes));
}

/* Gathers bits of a mask with pext, as fast as pdep with AVX-512. */
struct bits_moves {
    uint64_t mask;
};

INLINE struct bits_moves bits_moves_of(uint64_t mask)
{
    return (struct bits_moves){mask};
}

INLINE uint64_t bits_together(uint64_t bits, const struct bits_moves *moves)
{
    return _pext_u64(bits, moves->mask);
}

#endif
