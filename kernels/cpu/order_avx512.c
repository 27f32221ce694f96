/* Counting and collecting scores by their order. Adds: AVX-512: 16 orders a step; indexes move
 * together by compressing stores; four histograms, so that equal bins do not wait for each other.
 *
 * Threads: any. Tests: tests/unit/kernels/test_choose.c */
#include "kernels/kernels.h"

#if defined(__x86_64__)
#include <immintrin.h>
#include <string.h>

#define TABLES 4u

static inline __m512i order_of(__m512 score)
{
    __m512i bits = _mm512_castps_si512(score), sign = _mm512_set1_epi32(INT32_MIN);
    bits = _mm512_maskz_mov_epi32(_mm512_cmpneq_epi32_mask(bits, sign), bits); /* -0 is 0 */
    __m512i flip = _mm512_or_si512(_mm512_srai_epi32(bits, 31), sign);
    return _mm512_maskz_xor_epi32(_mm512_cmp_ps_mask(score, score, _CMP_ORD_Q), bits, flip);
}

void sc_kernels_avx512_order_count(const float *scores, uint64_t count, uint32_t mask,
                                   uint32_t prefix, uint32_t shift, uint32_t *bins)
{
    uint32_t tables[TABLES][SC_KERNELS_BINS];
    memset(tables, 0, sizeof(tables));
    uint64_t i = 0;
    for (; i + 16 <= count; i += 16) {
        __m512i order = order_of(_mm512_loadu_ps(scores + i));
        __m512i bin = _mm512_and_si512(_mm512_srli_epi32(order, shift),
                                       _mm512_set1_epi32((int32_t)(SC_KERNELS_BINS - 1)));
        uint32_t found[16],
            of_prefix =
                _mm512_cmpeq_epi32_mask(_mm512_and_si512(order, _mm512_set1_epi32((int32_t)mask)),
                                        _mm512_set1_epi32((int32_t)prefix));
        if (of_prefix == 0xffff) {
            _mm512_storeu_si512(found, bin);
            for (uint32_t n = 0; n < 16; n++)
                tables[n % TABLES][found[n]]++;
        } else if (of_prefix != 0) {
            _mm512_mask_compressstoreu_epi32(found, (__mmask16)of_prefix, bin);
            for (uint32_t n = 0; n < (uint32_t)__builtin_popcount(of_prefix); n++)
                tables[n % TABLES][found[n]]++;
        }
    }
    sc_kernels_ref_order_count(scores + i, count - i, mask, prefix, shift, bins);
    for (uint32_t table = 0; table < TABLES; table++)
        for (uint32_t bin = 0; bin < SC_KERNELS_BINS; bin++)
            bins[bin] += tables[table][bin];
}

void sc_kernels_avx512_order_collect(const float *scores, uint64_t count, uint32_t edge,
                                     uint64_t equal_count, uint32_t *ret_rows)
{
    __m512i edges = _mm512_set1_epi32((int32_t)edge),
            rows = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    for (uint64_t i = 0; i < count; i += 16) {
        uint64_t left = count - i;
        __mmask16 live = left >= 16 ? (__mmask16)0xffff : (__mmask16)((1u << left) - 1);
        __m512i order = order_of(_mm512_maskz_loadu_ps(live, scores + i));
        uint32_t above = _mm512_mask_cmpgt_epu32_mask(live, order, edges);
        uint32_t equal = _mm512_mask_cmpeq_epi32_mask(live, order, edges);
        while ((uint32_t)__builtin_popcount(equal) > equal_count) /* the last ones go first */
            equal &= ~(0x80000000u >> __builtin_clz(equal));
        equal_count -= (uint32_t)__builtin_popcount(equal);
        _mm512_mask_compressstoreu_epi32(ret_rows, (__mmask16)(above | equal), rows);
        ret_rows += __builtin_popcount(above | equal);
        rows = _mm512_add_epi32(rows, _mm512_set1_epi32(16));
    }
}
#endif
