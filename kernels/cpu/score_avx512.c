/* Scoring tiles of keys. Adds: AVX-512: 48 queries in three registers, so that a key's element is
 * broadcast once for three multiply-adds, and 24 sums hide their latency:
 *
 *            queries [t]   | 16 lanes | 16 lanes | 16 lanes |
 *   key 0 [t] broadcast    |   sum    |   sum    |   sum    |
 *   ...                    |   sum    |   sum    |   sum    |
 *   key 7 [t] broadcast    |   sum    |   sum    |   sum    |
 *
 * Threads: any. Tests: tests/unit/kernels/test_importance.c */
#include "kernels/exp2.h"
#include "kernels/kernels.h"

#if defined(__x86_64__)
#include <immintrin.h>
#include <math.h>

static __mmask16 tail_mask(uint64_t left)
{
    return left >= 16 ? (__mmask16)0xffff : (__mmask16)((1u << left) - 1);
}

static inline __m512 exp2_of(__m512 x)
{
    __mmask16 live = _mm512_cmp_ps_mask(x, _mm512_set1_ps(SC_KERNELS_EXP2_LEAST), _CMP_NLT_UQ);
    __m512 f = _mm512_reduce_ps(x, 0); /* less the nearest whole number */
    __m512 p = _mm512_set1_ps(SC_KERNELS_EXP2_P6);
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(SC_KERNELS_EXP2_P5));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(SC_KERNELS_EXP2_P4));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(SC_KERNELS_EXP2_P3));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(SC_KERNELS_EXP2_P2));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(SC_KERNELS_EXP2_P1));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(1.0f));
    return _mm512_maskz_scalef_ps(live, p, _mm512_sub_ps(x, f));
}

/* -infinity counts as 0: a lane that has seen nothing finite subtracts nothing. */
static inline __m512 base_of(__m512 best)
{
    return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(best, _mm512_set1_ps(-INFINITY), _CMP_NEQ_UQ),
                               best);
}

/* A block of `keys_at_once` keys by `vectors` * 16 lanes; both are constants where it is inlined.
 */
static inline __attribute__((always_inline)) void
block_score(const float *queries, uint64_t width, const float *keys, uint64_t key_stride,
            uint64_t head_size, float *scores, uint32_t keys_at_once, uint32_t vectors)
{
    __m512 sums[24];
#pragma GCC unroll 24
    for (uint32_t i = 0; i < keys_at_once * vectors; i++)
        sums[i] = _mm512_setzero_ps();
    for (uint64_t t = 0; t < head_size; t++, queries += width) {
        __m512 lanes[3];
#pragma GCC unroll 3
        for (uint32_t v = 0; v < vectors; v++)
            lanes[v] = _mm512_loadu_ps(queries + 16 * v);
#pragma GCC unroll 24
        for (uint32_t k = 0; k < keys_at_once; k++) {
            __m512 key = _mm512_set1_ps(keys[k * key_stride + t]);
#pragma GCC unroll 3
            for (uint32_t v = 0; v < vectors; v++)
                sums[k * vectors + v] = _mm512_fmadd_ps(key, lanes[v], sums[k * vectors + v]);
        }
    }
#pragma GCC unroll 24
    for (uint32_t k = 0; k < keys_at_once; k++)
#pragma GCC unroll 3
        for (uint32_t v = 0; v < vectors; v++)
            _mm512_storeu_ps(scores + k * width + 16 * v, sums[k * vectors + v]);
}

void sc_kernels_avx512_lanes_score(const float *queries, uint64_t width, const float *keys,
                                   uint64_t key_stride, uint64_t head_size, uint64_t key_count,
                                   float *scores)
{
    uint64_t j = 0;
    if (width == 48)
        for (; j < key_count; j += 8)
            block_score(queries, 48, keys + j * key_stride, key_stride, head_size,
                        scores + j * width, 8, 3);
    else if (width == 32)
        for (; j < key_count; j += 12)
            block_score(queries, 32, keys + j * key_stride, key_stride, head_size,
                        scores + j * width, 12, 2);
    else
        for (; j < key_count; j += 16)
            block_score(queries, 16, keys + j * key_stride, key_stride, head_size,
                        scores + j * width, 16, 1);
}

static inline __attribute__((always_inline)) void vector_soften(float *scores, uint64_t width,
                                                                uint64_t key_count,
                                                                const uint32_t *seen, float *best,
                                                                float *sums)
{
    __m512i limit = seen != NULL ? _mm512_loadu_si512(seen) : _mm512_set1_epi32(-1);
    __m512 old = _mm512_loadu_ps(best), most = old, most2 = old;
    if (seen != NULL)
        for (uint64_t j = 0; j < key_count; j++) {
            __mmask16 hidden = _mm512_cmple_epu32_mask(limit, _mm512_set1_epi32((int32_t)j));
            __m512 score = _mm512_mask_mov_ps(_mm512_loadu_ps(scores + j * width), hidden,
                                              _mm512_set1_ps(-INFINITY));
            _mm512_storeu_ps(scores + j * width, score);
        }
    uint64_t j = 0;
    for (; j + 2 <= key_count; j += 2) { /* max(score, most): most where the score is NaN */
        most = _mm512_max_ps(_mm512_loadu_ps(scores + j * width), most);
        most2 = _mm512_max_ps(_mm512_loadu_ps(scores + (j + 1) * width), most2);
    }
    if (j < key_count)
        most = _mm512_max_ps(_mm512_loadu_ps(scores + j * width), most);
    most = _mm512_max_ps(most, most2);
    __m512 base = base_of(most), sum = _mm512_setzero_ps();
    for (j = 0; j < key_count; j++) {
        __m512 power = exp2_of(_mm512_sub_ps(_mm512_loadu_ps(scores + j * width), base));
        _mm512_storeu_ps(scores + j * width, power);
        sum = _mm512_add_ps(sum, power);
    }
    __m512 before = exp2_of(_mm512_sub_ps(old, base));
    _mm512_storeu_ps(sums, _mm512_fmadd_ps(_mm512_loadu_ps(sums), before, sum));
    _mm512_storeu_ps(best, most);
}

void sc_kernels_avx512_lanes_soften(float *scores, uint64_t width, uint64_t key_count,
                                    const uint32_t *seen, float *best, float *sums)
{
    for (uint64_t lane = 0; lane < width; lane += 16)
        vector_soften(scores + lane, width, key_count, seen != NULL ? seen + lane : NULL,
                      best + lane, sums + lane);
}

void sc_kernels_avx512_lanes_weigh(const float *best_then, const float *best, const float *sums,
                                   uint64_t width, uint64_t used, float *weights)
{
    for (uint64_t lane = 0; lane < width; lane += 16) {
        __m512 base = base_of(_mm512_loadu_ps(best + lane));
        __m512 power = exp2_of(_mm512_sub_ps(_mm512_loadu_ps(best_then + lane), base));
        __mmask16 live = tail_mask(used > lane ? used - lane : 0);
        _mm512_storeu_ps(weights + lane,
                         _mm512_maskz_div_ps(live, power, _mm512_loadu_ps(sums + lane)));
    }
}

/* Sums of the lanes of 16 vectors: lane i of the result is the sum of rows[i]. */
static inline __m512 reduce16(const __m512 *rows)
{
    __m512 quads[4];
    for (uint32_t i = 0; i < 4; i++) {
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

void sc_kernels_avx512_lanes_fold(const float *scores, uint64_t width, uint64_t key_count,
                                  const float *weights, float *dst)
{
    for (uint64_t j = 0; j < key_count; j += 16) {
        __mmask16 live = tail_mask(key_count - j);
        __m512 rows[16];
        for (uint64_t k = 0; k < 16; k++) {
            const float *row = scores + (j + k) * width;
            rows[k] = _mm512_setzero_ps();
            if (j + k >= key_count)
                continue;
            for (uint64_t lane = 0; lane < width; lane += 16)
                rows[k] = _mm512_fmadd_ps(_mm512_loadu_ps(row + lane),
                                          _mm512_loadu_ps(weights + lane), rows[k]);
        }
        __m512 old = _mm512_maskz_loadu_ps(live, dst + j);
        _mm512_mask_storeu_ps(dst + j, live, _mm512_add_ps(old, reduce16(rows)));
    }
}

void sc_kernels_avx512_few_score(const float *query, const float *keys, uint64_t head_padded,
                                 uint64_t key_count, float *scores)
{
    for (uint64_t j = 0; j < key_count; j += 16) {
        __m512 sums[16];
        const float *rows = keys + j * head_padded;
#pragma GCC unroll 16
        for (uint32_t k = 0; k < 16; k++)
            sums[k] = _mm512_setzero_ps();
        for (uint64_t t = 0; t < head_padded; t += 16) {
            __m512 q = _mm512_loadu_ps(query + t);
#pragma GCC unroll 16
            for (uint32_t k = 0; k < 16; k++)
                sums[k] = _mm512_fmadd_ps(_mm512_loadu_ps(rows + k * head_padded + t), q, sums[k]);
        }
        _mm512_storeu_ps(scores + j, reduce16(sums));
    }
}

float sc_kernels_avx512_few_best(const float *scores, uint64_t count, float floor)
{
    __m512 most = _mm512_set1_ps(floor);
    for (uint64_t i = 0; i < count; i += 16) {
        __mmask16 live = tail_mask(count - i);
        most = _mm512_mask_max_ps(most, live, _mm512_maskz_loadu_ps(live, scores + i), most);
    }
    return _mm512_reduce_max_ps(most);
}

float sc_kernels_avx512_few_soften(float *scores, uint64_t count, float best)
{
    __m512 base = _mm512_set1_ps(best), sums[2] = {_mm512_setzero_ps(), _mm512_setzero_ps()};
    for (uint64_t i = 0, turn = 0; i < count; i += 16, turn ^= 1) {
        __mmask16 live = tail_mask(count - i);
        __m512 power = exp2_of(_mm512_sub_ps(_mm512_maskz_loadu_ps(live, scores + i), base));
        _mm512_mask_storeu_ps(scores + i, live, power);
        sums[turn] = _mm512_mask_add_ps(sums[turn], live, sums[turn], power);
    }
    return _mm512_reduce_add_ps(_mm512_add_ps(sums[0], sums[1]));
}

void sc_kernels_avx512_accumulate(float *dst, const float *src, float factor, uint64_t count)
{
    __m512 by = _mm512_set1_ps(factor);
    uint64_t i = 0;
    for (; i + 16 <= count; i += 16)
        _mm512_storeu_ps(dst + i,
                         _mm512_fmadd_ps(_mm512_loadu_ps(src + i), by, _mm512_loadu_ps(dst + i)));
    if (i < count) {
        __mmask16 live = tail_mask(count - i);
        __m512 old = _mm512_maskz_loadu_ps(live, dst + i);
        _mm512_mask_storeu_ps(dst + i, live,
                              _mm512_fmadd_ps(_mm512_maskz_loadu_ps(live, src + i), by, old));
    }
}
#endif
