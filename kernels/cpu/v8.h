/* v8: 8-lane vectors (AVX2, FMA, F16C; BMI2 permutes marks). Loops are written once, for all
 * widths, with V(add_ps), the intrinsic of that name, and VI(and), its form for integer registers.
 * The functions here have other names or implementations for each width; v16.h is the counterpart.
 *
 *   floats, words   LANES floats; LANES uint32            halves   LANES 16-bit floats
 *   marks           one bit a lane, from a compare        some     only the first `left` lanes
 *                                                                  are accessed
 *
 * Tests: tests/unit/kernels/ (each level against ref/) */
#ifndef SC_KERNELS_CPU_V8_H
#define SC_KERNELS_CPU_V8_H

#include "kernels/exp2.h"

#include <immintrin.h>
#include <stdint.h>
#include <string.h>

#define INLINE     static inline __attribute__((always_inline))
#define LANES      8u
#define V(name)    _mm256_##name
#define VI(name)   _mm256_##name##_si256
#define SCORE_SUMS 12u /* lanes_score: 3 vectors of queries use 15 of 16 registers */

typedef __m256 floats;
typedef __m256i words;
typedef __m128i halves;
typedef uint32_t marks;

INLINE floats floats_of(words bits)
{
    return _mm256_castsi256_ps(bits);
}

INLINE words lane_numbers(void)
{
    return _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
}

INLINE words lanes_some(uint64_t left)
{
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(left < LANES ? (int32_t)left : (int32_t)LANES),
                              lane_numbers());
}

INLINE marks marks_some(uint64_t left)
{
    return left >= LANES ? 0xff : (1u << left) - 1;
}

INLINE marks marks_at(const uint64_t *bits, uint64_t i)
{
    return ((const uint8_t *)bits)[i / 8];
}

INLINE marks marks_of(words lanes)
{
    return (marks)_mm256_movemask_ps(_mm256_castsi256_ps(lanes));
}

/* Unsigned: a <= b, a > b, among `live`. */
INLINE marks marks_at_most(marks live, words a, words b)
{
    return live & marks_of(_mm256_cmpeq_epi32(_mm256_min_epu32(a, b), a));
}

INLINE marks marks_above(marks live, words a, words b)
{
    return live & ~marks_of(_mm256_cmpeq_epi32(_mm256_min_epu32(a, b), a));
}

INLINE marks marks_equal(marks live, words a, words b)
{
    return live & marks_of(_mm256_cmpeq_epi32(a, b));
}

INLINE words words_load_some(const void *src, uint64_t left)
{
    return left >= LANES ? _mm256_loadu_si256(src) : _mm256_maskload_epi32(src, lanes_some(left));
}

INLINE void words_store_some(void *dst, uint64_t left, words x)
{
    if (left >= LANES)
        _mm256_storeu_si256(dst, x);
    else
        _mm256_maskstore_epi32(dst, lanes_some(left), x);
}

INLINE words words_compress(marks mask, words lanes)
{
    uint64_t bytes = _pdep_u64(mask, UINT64_C(0x0101010101010101)) * 0xff;
    uint64_t from = _pext_u64(UINT64_C(0x0706050403020100), bytes);
    return _mm256_permutevar8x32_epi32(lanes,
                                       _mm256_cvtepu8_epi32(_mm_cvtsi64_si128((int64_t)from)));
}

/* x, but 0 if a == b; 0 if a > b; all ones if a > b (both below 2^31). */
INLINE words words_but_equal(words x, words a, words b)
{
    return _mm256_andnot_si256(_mm256_cmpeq_epi32(a, b), x);
}

INLINE words words_but_above(words x, words a, words b)
{
    return _mm256_andnot_si256(_mm256_cmpgt_epi32(a, b), x);
}

INLINE words words_most_above(words x, words a, words b)
{
    return _mm256_or_si256(x, _mm256_cmpgt_epi32(a, b));
}

/* Returns x, plus 1 if a > b, unsigned. */
INLINE words words_count_above(words x, words a, words b)
{
    words top = _mm256_set1_epi32(INT32_MIN); /* compares are signed */
    return _mm256_sub_epi32(x,
                            _mm256_cmpgt_epi32(_mm256_xor_si256(a, top), _mm256_xor_si256(b, top)));
}

/* Returns a > b (both below 2^31) ? x : y. */
INLINE floats floats_above(words a, words b, floats x, floats y)
{
    return _mm256_blendv_ps(y, x, _mm256_castsi256_ps(_mm256_cmpgt_epi32(a, b)));
}

INLINE halves halves_load(const void *src)
{
    return _mm_loadu_si128(src);
}

INLINE halves halves_load_some(const void *src, uint64_t left)
{
    uint16_t some[LANES] = {0};
    if (left >= LANES)
        return halves_load(src);
    memcpy(some, src, left * sizeof(some[0]));
    return halves_load(some);
}

INLINE void halves_store(void *dst, halves x)
{
    _mm_storeu_si128(dst, x);
}

/* Returns the low 16 bits of words below 2^16. */
INLINE halves halves_low(words x)
{
    return _mm256_castsi256_si128(_mm256_permute4x64_epi64(_mm256_packus_epi32(x, x), 0x08));
}

INLINE __m128i bytes_of(const words *x)
{
    words pairs = _mm256_permute4x64_epi64(_mm256_packus_epi32(x[0], x[1]), 0xd8);
    return _mm_packus_epi16(_mm256_castsi256_si128(pairs), _mm256_extracti128_si256(pairs, 1));
}

/* Lane i: the sum of rows[i], LANES rows. */
INLINE floats floats_sums(const floats *r)
{
    floats ab = _mm256_hadd_ps(r[0], r[1]), cd = _mm256_hadd_ps(r[2], r[3]);
    floats ef = _mm256_hadd_ps(r[4], r[5]), gh = _mm256_hadd_ps(r[6], r[7]);
    floats low = _mm256_hadd_ps(ab, cd), high = _mm256_hadd_ps(ef, gh);
    return _mm256_add_ps(_mm256_permute2f128_ps(low, high, 0x20),
                         _mm256_permute2f128_ps(low, high, 0x31));
}

/* Returns x minus the nearest integer, which exp2_scaled needs. */
INLINE floats exp2_fraction(floats x, floats *ret_whole)
{
    floats round = _mm256_set1_ps(SC_KERNELS_EXP2_ROUND);
    *ret_whole = _mm256_add_ps(x, round);
    return _mm256_sub_ps(x, _mm256_sub_ps(*ret_whole, round));
}

/* Returns p * 2^whole, or 0 if x is below SC_KERNELS_EXP2_LEAST. The integer is in the low bits;
 * the shift removes the others. */
INLINE floats exp2_scaled(floats p, floats x, floats whole)
{
    floats live = _mm256_cmp_ps(x, _mm256_set1_ps(SC_KERNELS_EXP2_LEAST), _CMP_NLT_UQ);
    words power = _mm256_add_epi32(_mm256_slli_epi32(_mm256_castps_si256(whole), 23),
                                   _mm256_set1_epi32(127 << 23));
    return _mm256_and_ps(live, _mm256_mul_ps(p, _mm256_castsi256_ps(power)));
}

#endif
