/* v16: 16-lane vectors (AVX-512), the counterpart of v8.h. Tests: tests/unit/kernels/ */
#ifndef SC_KERNELS_CPU_V16_H
#define SC_KERNELS_CPU_V16_H

#include "kernels/cpu/unroll.h"
#include "kernels/exp2.h"

#include <immintrin.h>
#include <stdint.h>
#include <string.h>

#define INLINE     static inline __attribute__((always_inline))
#define LANES      16u
#define V(name)    _mm512_##name
#define VI(name)   _mm512_##name##_si512
#define SCORE_SUMS 24u /* lanes_score: 3 vectors of queries use 27 of 32 registers */

typedef __m512 floats;
typedef __m512i words;
typedef __m256i halves;
typedef __mmask16 marks;

INLINE floats floats_of(words bits)
{
    return _mm512_castsi512_ps(bits);
}

INLINE words lane_numbers(void)
{
    return _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
}

INLINE marks marks_some(uint64_t left)
{
    return left >= LANES ? (marks)0xffff : (marks)((1u << left) - 1);
}

INLINE marks marks_at(const uint64_t *bits, uint64_t i)
{
    uint16_t mask;
    memcpy(&mask, (const uint8_t *)bits + i / 8, sizeof(mask));
    return mask;
}

INLINE marks marks_at_most(marks live, words a, words b)
{
    return _mm512_mask_cmple_epu32_mask(live, a, b);
}

INLINE marks marks_above(marks live, words a, words b)
{
    return _mm512_mask_cmpgt_epu32_mask(live, a, b);
}

INLINE marks marks_equal(marks live, words a, words b)
{
    return _mm512_mask_cmpeq_epi32_mask(live, a, b);
}

INLINE words words_load_some(const void *src, uint64_t left)
{
    return _mm512_maskz_loadu_epi32(marks_some(left), src);
}

INLINE void words_store_some(void *dst, uint64_t left, words x)
{
    _mm512_mask_storeu_epi32(dst, marks_some(left), x);
}

INLINE words words_compress(marks mask, words lanes)
{
    return _mm512_maskz_compress_epi32(mask, lanes);
}

INLINE words words_but_equal(words x, words a, words b)
{
    return _mm512_maskz_mov_epi32(_mm512_cmpneq_epi32_mask(a, b), x);
}

INLINE words words_but_above(words x, words a, words b)
{
    return _mm512_maskz_mov_epi32(_mm512_cmple_epu32_mask(a, b), x);
}

INLINE words words_most_above(words x, words a, words b)
{
    return _mm512_mask_mov_epi32(x, _mm512_cmpgt_epi32_mask(a, b), _mm512_set1_epi32(-1));
}

INLINE words words_count_above(words x, words a, words b)
{
    return _mm512_mask_add_epi32(x, _mm512_cmpgt_epu32_mask(a, b), x, _mm512_set1_epi32(1));
}

INLINE floats floats_above(words a, words b, floats x, floats y)
{
    return _mm512_mask_mov_ps(y, _mm512_cmpgt_epi32_mask(a, b), x);
}

INLINE halves halves_load(const void *src)
{
    return _mm256_loadu_si256(src);
}

INLINE halves halves_load_some(const void *src, uint64_t left)
{
    return _mm256_maskz_loadu_epi16(marks_some(left), src);
}

INLINE void halves_store(void *dst, halves x)
{
    _mm256_storeu_si256(dst, x);
}

INLINE halves halves_low(words x)
{
    return _mm512_cvtepi32_epi16(x);
}

INLINE __m128i bytes_of(const words *x)
{
    return _mm512_cvtepi32_epi8(x[0]);
}

INLINE floats floats_sums(const floats *rows)
{
    floats quads[4];
    SC_UNROLL /* otherwise the vectors are an array in memory */
        for (uint32_t i = 0; i < 4; i++)
    {
        const floats *r = rows + 4 * i;
        floats ab = _mm512_add_ps(_mm512_unpacklo_ps(r[0], r[1]), _mm512_unpackhi_ps(r[0], r[1]));
        floats cd = _mm512_add_ps(_mm512_unpacklo_ps(r[2], r[3]), _mm512_unpackhi_ps(r[2], r[3]));
        __m512d x = _mm512_castps_pd(ab), y = _mm512_castps_pd(cd);
        quads[i] = _mm512_add_ps(_mm512_castpd_ps(_mm512_unpacklo_pd(x, y)),
                                 _mm512_castpd_ps(_mm512_unpackhi_pd(x, y)));
    }
    floats low = _mm512_add_ps(_mm512_shuffle_f32x4(quads[0], quads[1], 0x44),
                               _mm512_shuffle_f32x4(quads[0], quads[1], 0xee));
    floats high = _mm512_add_ps(_mm512_shuffle_f32x4(quads[2], quads[3], 0x44),
                                _mm512_shuffle_f32x4(quads[2], quads[3], 0xee));
    return _mm512_add_ps(_mm512_shuffle_f32x4(low, high, 0x88),
                         _mm512_shuffle_f32x4(low, high, 0xdd));
}

INLINE floats exp2_fraction(floats x, floats *ret_whole)
{
    floats f = _mm512_reduce_ps(x, 0);
    *ret_whole = _mm512_sub_ps(x, f);
    return f;
}

INLINE floats exp2_scaled(floats p, floats x, floats whole)
{
    marks live = _mm512_cmp_ps_mask(x, _mm512_set1_ps(SC_KERNELS_EXP2_LEAST), _CMP_NLT_UQ);
    return _mm512_maskz_scalef_ps(live, p, whole);
}

#endif
