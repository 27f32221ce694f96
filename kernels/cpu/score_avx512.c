/* Scoring tiles of keys. Adds: AVX-512: 48 queries in three registers, so that a key's element is
 * broadcast once for three multiply-adds, and 24 sums hide their latency:
 *
 *            queries [t]   | 16 lanes | 16 lanes | 16 lanes |
 *   key 0 [t] broadcast    |   sum    |   sum    |   sum    |
 *   ...                    |   sum    |   sum    |   sum    |
 *   key 7 [t] broadcast    |   sum    |   sum    |   sum    |
 *
 * Threads: any. Tests: tests/unit/kernels/test_importance.c */
#include "kernels/cpu/unroll.h"
#include "kernels/exp2.h"
#include "kernels/kernels.h"

#if defined(__x86_64__)
#include "kernels/cpu/reduce.h"

#include <immintrin.h>
#include <math.h>
#include <string.h>

#define LINE_BYTES 64u
#define LINE_STEPS 16u /* elements between two lines of each key that are asked for */

static __mmask16 tail_mask(uint64_t left)
{
    return left >= 16 ? (__mmask16)0xffff : (__mmask16)((1u << left) - 1);
}

static inline __m512 exp2_of(__m512 x)
{
    __mmask16 live = _mm512_cmp_ps_mask(x, _mm512_set1_ps(SC_KERNELS_EXP2_LEAST), _CMP_NLT_UQ);
    __m512 f = _mm512_reduce_ps(x, 0); /* less the nearest whole number */
    __m512 p = _mm512_set1_ps(SC_KERNELS_EXP2_P5);
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

/* `dtype` is a constant where it is inlined. */
static inline __attribute__((always_inline)) __m512 widened(const uint8_t *row, uint64_t t,
                                                            __mmask16 live, uint32_t dtype)
{
    if (dtype == SC_KERNELS_F32)
        return _mm512_maskz_loadu_ps(live, row + 4 * t);
    __m256i half = _mm256_maskz_loadu_epi16(live, row + 2 * t);
    if (dtype == SC_KERNELS_F16)
        return _mm512_cvtph_ps(half);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
}

static inline __attribute__((always_inline)) void rows_widen(float *dst, const uint8_t *const *rows,
                                                             uint64_t count, uint64_t head_size,
                                                             uint32_t dtype)
{
    uint64_t head_bytes = head_size * (dtype == SC_KERNELS_F32 ? 4 : 2);
    for (uint64_t j = 0; j < count; j++) {
        const uint8_t *row = rows[j], *ahead = rows[j + SC_KERNELS_AHEAD_KEYS];
        for (uint64_t i = 0; i < head_bytes; i += 64)
            _mm_prefetch((const char *)ahead + i, _MM_HINT_T0);
        uint64_t t = 0;
        for (; t + 64 <= head_size; t += 64, dst += 64)
            SC_UNROLL
        for (uint32_t v = 0; v < 64; v += 16)
            _mm512_storeu_ps(dst + v, widened(row, t + v, 0xffff, dtype));
        for (; t + 16 <= head_size; t += 16, dst += 16)
            _mm512_storeu_ps(dst, widened(row, t, 0xffff, dtype));
        if (t < head_size) {
            _mm512_storeu_ps(dst, widened(row, t, tail_mask(head_size - t), dtype));
            dst += 16;
        }
    }
}

void sc_kernels_avx512_rows_widen(float *dst, const uint8_t *const *rows, uint64_t count,
                                  uint64_t head_size, uint32_t dtype)
{
    if (dtype == SC_KERNELS_F32)
        rows_widen(dst, rows, count, head_size, SC_KERNELS_F32);
    else if (dtype == SC_KERNELS_F16)
        rows_widen(dst, rows, count, head_size, SC_KERNELS_F16);
    else
        rows_widen(dst, rows, count, head_size, SC_KERNELS_BF16);
}

/* A block of `keys_at_once` keys by `vectors` * 16 lanes; both are constants where it is inlined.
 */
static inline __attribute__((always_inline)) void
block_score(const float *queries, uint64_t width, const float *keys, uint64_t key_stride,
            uint64_t head_size, const struct sc_kernels_ahead *ahead, uint64_t ahead_key,
            float *scores, uint32_t keys_at_once, uint32_t vectors)
{
    __m512 sums[24];
    SC_UNROLL
    for (uint32_t i = 0; i < keys_at_once * vectors; i++)
        sums[i] = _mm512_setzero_ps();
    for (uint64_t t = 0, line = ahead->byte_first; t < head_size; line += LINE_BYTES) {
        uint64_t end = head_size - t < LINE_STEPS ? head_size : t + LINE_STEPS;
        for (uint32_t k = 0; k < keys_at_once && line < ahead->byte_end; k++)
            _mm_prefetch((const char *)ahead->rows[ahead_key + k] + line, _MM_HINT_T1);
        for (; t < end; t++, queries += width) {
            __m512 lanes[3];
            SC_UNROLL
            for (uint32_t v = 0; v < vectors; v++)
                lanes[v] = _mm512_loadu_ps(queries + 16 * v);
            SC_UNROLL
            for (uint32_t k = 0; k < keys_at_once; k++) {
                __m512 key = _mm512_set1_ps(keys[k * key_stride + t]);
                SC_UNROLL
                for (uint32_t v = 0; v < vectors; v++)
                    sums[k * vectors + v] = _mm512_fmadd_ps(key, lanes[v], sums[k * vectors + v]);
            }
        }
    }
    SC_UNROLL
    for (uint32_t k = 0; k < keys_at_once; k++) {
        SC_UNROLL
        for (uint32_t v = 0; v < vectors; v++)
            _mm512_storeu_ps(scores + k * width + 16 * v, sums[k * vectors + v]);
    }
}

void sc_kernels_avx512_lanes_score(const float *queries, uint64_t width, const float *keys,
                                   uint64_t key_stride, uint64_t head_size, uint64_t key_count,
                                   const struct sc_kernels_ahead *ahead, float *scores)
{
    uint64_t j = 0;
    if (width == 48)
        for (; j < key_count; j += 8)
            block_score(queries, 48, keys + j * key_stride, key_stride, head_size, ahead, j,
                        scores + j * width, 8, 3);
    else if (width == 32)
        for (; j < key_count; j += 12)
            block_score(queries, 32, keys + j * key_stride, key_stride, head_size, ahead, j,
                        scores + j * width, 12, 2);
    else
        for (; j < key_count; j += 16)
            block_score(queries, 16, keys + j * key_stride, key_stride, head_size, ahead, j,
                        scores + j * width, 16, 1);
}

static inline __attribute__((always_inline)) void vector_soften(float *scores, uint64_t width,
                                                                uint64_t key_count,
                                                                const uint32_t *seen, float *best,
                                                                float *sums)
{
    __m512i limit = seen != NULL ? _mm512_loadu_si512(seen) : _mm512_set1_epi32(-1);
    __m512 old = _mm512_loadu_ps(best);
    if (seen != NULL)
        for (uint64_t j = 0; j < key_count; j++) {
            __mmask16 hidden = _mm512_cmple_epu32_mask(limit, _mm512_set1_epi32((int32_t)j));
            __m512 score = _mm512_mask_mov_ps(_mm512_loadu_ps(scores + j * width), hidden,
                                              _mm512_set1_ps(-INFINITY));
            _mm512_storeu_ps(scores + j * width, score);
        }
    __m512 mosts[4] = {old, old, old, old};
    uint64_t j = 0;
    for (; j + 4 <= key_count; j += 4) /* max(score, most): most where the score is NaN */
        SC_UNROLL
    for (uint32_t k = 0; k < 4; k++)
        mosts[k] = _mm512_max_ps(_mm512_loadu_ps(scores + (j + k) * width), mosts[k]);
    for (; j < key_count; j++)
        mosts[0] = _mm512_max_ps(_mm512_loadu_ps(scores + j * width), mosts[0]);
    __m512 most =
        _mm512_max_ps(_mm512_max_ps(mosts[0], mosts[1]), _mm512_max_ps(mosts[2], mosts[3]));
    __m512 base = base_of(most), sum = _mm512_setzero_ps();
    j = 0;
    for (; j + 2 <= key_count; j += 2) {
        __m512 even = exp2_of(_mm512_sub_ps(_mm512_loadu_ps(scores + j * width), base));
        __m512 odd = exp2_of(_mm512_sub_ps(_mm512_loadu_ps(scores + (j + 1) * width), base));
        _mm512_storeu_ps(scores + j * width, even);
        _mm512_storeu_ps(scores + (j + 1) * width, odd);
        sum = _mm512_add_ps(sum, _mm512_add_ps(even, odd));
    }
    if (j < key_count) {
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

/* `vectors` is a constant where it is inlined; a group of 16 keys is whole but for the last. */
static inline __attribute__((always_inline)) void
fold(const float *scores, uint64_t key_count, const float *weights, float *dst, uint32_t vectors)
{
    uint64_t width = 16 * (uint64_t)vectors;
    __m512 by[3], rows[16];
    SC_UNROLL
    for (uint32_t v = 0; v < vectors; v++)
        by[v] = _mm512_loadu_ps(weights + 16 * v);
    for (uint64_t j = 0; j < key_count; j += 16, scores += 16 * width) {
        uint64_t count = key_count - j < 16 ? key_count - j : 16;
        SC_UNROLL
        for (uint32_t k = 0; k < 16; k++) { /* behind the last key: the last key again */
            const float *row = scores + (k < count ? k : count - 1) * width;
            rows[k] = _mm512_mul_ps(_mm512_loadu_ps(row), by[0]);
            SC_UNROLL
            for (uint32_t v = 1; v < vectors; v++)
                rows[k] = _mm512_fmadd_ps(_mm512_loadu_ps(row + 16 * v), by[v], rows[k]);
        }
        __mmask16 live = tail_mask(count);
        __m512 old = _mm512_maskz_loadu_ps(live, dst + j);
        _mm512_mask_storeu_ps(dst + j, live, _mm512_add_ps(old, sc_kernels_reduce16(rows)));
    }
}

void sc_kernels_avx512_lanes_fold(const float *scores, uint64_t width, uint64_t key_count,
                                  const float *weights, float *dst)
{
    if (width == 48)
        fold(scores, key_count, weights, dst, 3);
    else if (width == 32)
        fold(scores, key_count, weights, dst, 2);
    else
        fold(scores, key_count, weights, dst, 1);
}

#define SUMS 16u /* of rows_score, in registers: of some keys, by as many queries as fill them */

/* Keys i .. of queries v ..; `dtype`, `keys_at_once` and `whole`, whether vectors fill a key, are
 * constants where it is inlined. */
static inline __attribute__((always_inline)) void
rows_block(const struct sc_kernels_rows_score *what, uint64_t i, uint64_t v, uint32_t dtype,
           uint32_t keys_at_once, bool whole)
{
    uint64_t head_size = what->head_size, padded = (head_size + 15) / 16 * 16;
    uint32_t queries_at_once = SUMS / keys_at_once;
    uint64_t element_bytes = dtype == SC_KERNELS_F32 ? 4 : 2;
    const uint8_t *const *rows = what->rows + i;
    const uint8_t *const *next = what->next != NULL && v == 0 ? what->next + i : NULL;
    const float *queries = what->queries + v * padded;
    __m512 sums[SUMS];
    SC_UNROLL
    for (uint32_t k = 0; k < SUMS; k++)
        sums[k] = _mm512_setzero_ps();
    for (uint64_t t = 0; t < head_size; t += 16) {
        __mmask16 live = whole ? (__mmask16)0xffff : tail_mask(head_size - t);
        uint64_t at = what->byte_first + t * element_bytes;
        __m512 by[4];
        SC_UNROLL
        for (uint32_t q = 0; q < queries_at_once; q++)
            by[q] = _mm512_loadu_ps(queries + q * padded + t);
        if (next != NULL && t * element_bytes % LINE_BYTES == 0)
            for (uint32_t k = 0; k < keys_at_once; k++)
                _mm_prefetch((const char *)next[k] + at, _MM_HINT_T0);
        SC_UNROLL
        for (uint32_t k = 0; k < keys_at_once; k++) {
            __m512 key = widened(rows[k] + at, 0, live, dtype);
            SC_UNROLL
            for (uint32_t q = 0; q < queries_at_once; q++)
                sums[q * keys_at_once + k] =
                    _mm512_fmadd_ps(key, by[q], sums[q * keys_at_once + k]);
        }
    }
    float each[SUMS];
    _mm512_storeu_ps(each, sc_kernels_reduce16(sums));
    for (uint32_t q = 0; q < queries_at_once; q++)
        memcpy(what->scores + (v + q) * what->score_stride + i, each + q * keys_at_once,
               keys_at_once * sizeof(float));
}

/* `dtype` is a constant where it is inlined. */
static inline __attribute__((always_inline)) void
rows_score(const struct sc_kernels_rows_score *what, uint32_t dtype)
{
    uint64_t v = 0, count = what->query_count;
    for (; what->head_size % 16 != 0 && v < count; v++)
        rows_block(what, 0, v, dtype, 16, false);
    for (; v + 4 <= count; v += 4)
        for (uint64_t i = 0; i < what->key_count; i += 4)
            rows_block(what, i, v, dtype, 4, true);
    for (; v + 2 <= count; v += 2)
        for (uint64_t i = 0; i < what->key_count; i += 8)
            rows_block(what, i, v, dtype, 8, true);
    if (v < count)
        rows_block(what, 0, v, dtype, 16, true);
}

void sc_kernels_avx512_rows_score(const struct sc_kernels_rows_score *what)
{
    if (what->dtype == SC_KERNELS_F32)
        rows_score(what, SC_KERNELS_F32);
    else if (what->dtype == SC_KERNELS_F16)
        rows_score(what, SC_KERNELS_F16);
    else
        rows_score(what, SC_KERNELS_BF16);
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
