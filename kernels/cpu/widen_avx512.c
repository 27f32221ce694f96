/* Widening 16-bit floats to float32. Adds: AVX-512: 16 values a step; the tail is the reference's.
 *
 * Threads: any. Tests: tests/unit/kernels/test_widen.c */
#include "kernels/kernels.h"

#if defined(__x86_64__)
#include <immintrin.h>

void sc_kernels_avx512_widen_f16(float *dst, const uint16_t *src, uint64_t count)
{
    uint64_t i = 0;
    for (; i + 16 <= count; i += 16)
        _mm512_storeu_ps(dst + i, _mm512_cvtph_ps(_mm256_loadu_si256((const void *)(src + i))));
    sc_kernels_ref_widen_f16(dst + i, src + i, count - i);
}

void sc_kernels_avx512_widen_bf16(float *dst, const uint16_t *src, uint64_t count)
{
    uint64_t i = 0;
    for (; i + 16 <= count; i += 16)
        _mm512_storeu_ps(
            dst + i, _mm512_castsi512_ps(_mm512_slli_epi32(
                         _mm512_cvtepu16_epi32(_mm256_loadu_si256((const void *)(src + i))), 16)));
    sc_kernels_ref_widen_bf16(dst + i, src + i, count - i);
}
#endif
