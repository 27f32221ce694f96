/* Counting and collecting scores by their order. Adds: AVX2: 8 orders a step; four histograms, so
 * that equal bins do not wait for each other; collecting walks the bits of a compare's mask.
 *
 * Threads: any. Tests: tests/unit/kernels/test_choose.c */
#include "kernels/kernels.h"

#if defined(__x86_64__)
#include <immintrin.h>
#include <string.h>

#define TABLES 4u

static inline __m256i order_of(__m256 score)
{
    __m256i bits = _mm256_castps_si256(score), sign = _mm256_set1_epi32(INT32_MIN);
    bits = _mm256_andnot_si256(_mm256_cmpeq_epi32(bits, sign), bits); /* -0 is 0 */
    __m256i flip = _mm256_or_si256(_mm256_srai_epi32(bits, 31), sign);
    return _mm256_and_si256(_mm256_xor_si256(bits, flip),
                            _mm256_castps_si256(_mm256_cmp_ps(score, score, _CMP_ORD_Q)));
}

static inline uint32_t mask_of(__m256i lanes)
{
    return (uint32_t)_mm256_movemask_ps(_mm256_castsi256_ps(lanes));
}

void sc_kernels_avx2_order_count(const float *scores, uint64_t count, uint32_t mask,
                                 uint32_t prefix, uint32_t shift, uint32_t *bins)
{
    uint32_t tables[TABLES][SC_KERNELS_BINS];
    memset(tables, 0, sizeof(tables));
    uint64_t i = 0;
    for (; i + 8 <= count; i += 8) {
        __m256i order = order_of(_mm256_loadu_ps(scores + i));
        __m256i bin = _mm256_and_si256(_mm256_srl_epi32(order, _mm_cvtsi32_si128((int32_t)shift)),
                                       _mm256_set1_epi32((int32_t)(SC_KERNELS_BINS - 1)));
        uint32_t found[8], of_prefix = mask_of(_mm256_cmpeq_epi32(
                               _mm256_and_si256(order, _mm256_set1_epi32((int32_t)mask)),
                               _mm256_set1_epi32((int32_t)prefix)));
        _mm256_storeu_si256((void *)found, bin);
        for (uint32_t n = 0; n < 8; n++)
            tables[n % TABLES][found[n]] += of_prefix >> n & 1;
    }
    sc_kernels_ref_order_count(scores + i, count - i, mask, prefix, shift, bins);
    for (uint32_t table = 0; table < TABLES; table++)
        for (uint32_t bin = 0; bin < SC_KERNELS_BINS; bin++)
            bins[bin] += tables[table][bin];
}

void sc_kernels_avx2_order_collect(const float *scores, uint64_t count, uint32_t edge,
                                   uint64_t equal_count, uint32_t *ret_rows)
{
    __m256i top = _mm256_set1_epi32(INT32_MIN); /* compares are signed */
    __m256i edges = _mm256_set1_epi32((int32_t)edge);
    __m256i signed_edges = _mm256_xor_si256(edges, top);
    for (uint64_t i = 0; i < count; i += 8) {
        uint64_t left = count - i;
        __m256i lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
        __m256i live = _mm256_cmpgt_epi32(_mm256_set1_epi32(left < 8 ? (int32_t)left : 8), lanes);
        __m256i order = order_of(_mm256_maskload_ps(scores + i, live));
        uint32_t keep = mask_of(live);
        uint32_t above = mask_of(_mm256_cmpgt_epi32(_mm256_xor_si256(order, top), signed_edges));
        uint32_t equal = mask_of(_mm256_cmpeq_epi32(order, edges)) & keep;
        while ((uint32_t)__builtin_popcount(equal) > equal_count) /* the last ones go first */
            equal &= ~(0x80000000u >> __builtin_clz(equal));
        equal_count -= (uint32_t)__builtin_popcount(equal);
        for (uint32_t found = (above & keep) | equal; found != 0; found &= found - 1)
            *ret_rows++ = (uint32_t)i + (uint32_t)__builtin_ctz(found);
    }
}
#endif
