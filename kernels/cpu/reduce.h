/* Sums of the lanes of as many vectors as a vector has lanes: lane i of the result is the sum of
 * rows[i]. For the rungs that have such vectors.
 *
 * Threads: any. Tests: tests/unit/kernels/test_importance.c, test_code.c */
#ifndef SC_KERNELS_CPU_REDUCE_H
#define SC_KERNELS_CPU_REDUCE_H

#include "kernels/cpu/unroll.h"

#include <immintrin.h>

#if defined(__AVX2__)
static inline __m256 sc_kernels_reduce8(const __m256 *r)
{
    __m256 ab = _mm256_hadd_ps(r[0], r[1]), cd = _mm256_hadd_ps(r[2], r[3]);
    __m256 ef = _mm256_hadd_ps(r[4], r[5]), gh = _mm256_hadd_ps(r[6], r[7]);
    __m256 low = _mm256_hadd_ps(ab, cd), high = _mm256_hadd_ps(ef, gh);
    return _mm256_add_ps(_mm256_permute2f128_ps(low, high, 0x20),
                         _mm256_permute2f128_ps(low, high, 0x31));
}
#endif

#if defined(__AVX512F__)
static inline __m512 sc_kernels_reduce16(const __m512 *rows)
{
    __m512 quads[4];
    SC_UNROLL /* else the vectors are an array in memory, stored wherever they are added to */
        for (uint32_t i = 0; i < 4; i++)
    {
        const __m512 *r = rows + 4 * i;
        __m512 ab = _mm512_add_ps(_mm512_unpacklo_ps(r[0], r[1]), _mm512_unpackhi_ps(r[0], r[1]));
        __m512 cd = _mm512_add_ps(_mm512_unpacklo_ps(r[2], r[3]), _mm512_unpackhi_ps(r[2], r[3]));
        __m512d x = _mm512_castps_pd(ab), y = _mm512_castps_pd(cd);
        quads[i] = _mm512_add_ps(_mm512_castpd_ps(_mm512_unpacklo_pd(x, y)),
                                 _mm512_castpd_ps(_mm512_unpackhi_pd(x, y)));
    }
    __m512 low = _mm512_add_ps(_mm512_shuffle_f32x4(quads[0], quads[1], 0x44),
                               _mm512_shuffle_f32x4(quads[0], quads[1], 0xee));
    __m512 high = _mm512_add_ps(_mm512_shuffle_f32x4(quads[2], quads[3], 0x44),
                                _mm512_shuffle_f32x4(quads[2], quads[3], 0xee));
    return _mm512_add_ps(_mm512_shuffle_f32x4(low, high, 0x88),
                         _mm512_shuffle_f32x4(low, high, 0xdd));
}
#endif

#endif
