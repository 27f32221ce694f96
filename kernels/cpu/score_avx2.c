/* Scoring tiles of keys. Adds: AVX2 and FMA: 24 queries in three registers by 4 keys, 12 sums, as
 * the AVX-512 rung does it with its registers.
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

static inline __m256 exp2_of(__m256 x)
{
    __m256 live = _mm256_cmp_ps(x, _mm256_set1_ps(SC_KERNELS_EXP2_LEAST), _CMP_NLT_UQ);
    __m256 round = _mm256_set1_ps(SC_KERNELS_EXP2_ROUND), rounded = _mm256_add_ps(x, round);
    __m256 f = _mm256_sub_ps(x, _mm256_sub_ps(rounded, round));
    __m256 p = _mm256_set1_ps(SC_KERNELS_EXP2_P5);
    p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(SC_KERNELS_EXP2_P4));
    p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(SC_KERNELS_EXP2_P3));
    p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(SC_KERNELS_EXP2_P2));
    p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(SC_KERNELS_EXP2_P1));
    p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(1.0f));
    /* The whole number stands in the low bits of `rounded`; what is above them is shifted out. */
    __m256i power = _mm256_add_epi32(_mm256_slli_epi32(_mm256_castps_si256(rounded), 23),
                                     _mm256_set1_epi32(127 << 23));
    return _mm256_and_ps(live, _mm256_mul_ps(p, _mm256_castsi256_ps(power)));
}

/* -infinity counts as 0: a lane that has seen nothing finite subtracts nothing. */
static inline __m256 base_of(__m256 best)
{
    return _mm256_and_ps(best, _mm256_cmp_ps(best, _mm256_set1_ps(-INFINITY), _CMP_NEQ_UQ));
}

/* `dtype` is a constant where it is inlined. */
static inline __attribute__((always_inline)) __m256 widened(const uint8_t *row, uint64_t t,
                                                            uint32_t dtype)
{
    if (dtype == SC_KERNELS_F32)
        return _mm256_loadu_ps((const float *)(const void *)(row + 4 * t));
    __m128i half = _mm_loadu_si128((const void *)(row + 2 * t));
    if (dtype == SC_KERNELS_F16)
        return _mm256_cvtph_ps(half);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16));
}

static float one_widen(const uint8_t *row, uint64_t t, uint32_t dtype)
{
    float value;
    if (dtype == SC_KERNELS_F32)
        memcpy(&value, row + 4 * t, sizeof(value));
    else if (dtype == SC_KERNELS_F16)
        sc_kernels_ref_widen_f16(&value, (const uint16_t *)(const void *)row + t, 1);
    else
        sc_kernels_ref_widen_bf16(&value, (const uint16_t *)(const void *)row + t, 1);
    return value;
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
        for (; t + 32 <= head_size; t += 32)
            SC_UNROLL
        for (uint32_t v = 0; v < 32; v += 8)
            _mm256_storeu_ps(dst + t + v, widened(row, t + v, dtype));
        for (; t + 8 <= head_size; t += 8)
            _mm256_storeu_ps(dst + t, widened(row, t, dtype));
        for (; t < (head_size + 15) / 16 * 16; t++)
            dst[t] = t < head_size ? one_widen(row, t, dtype) : 0;
        dst += (head_size + 15) / 16 * 16;
    }
}

void sc_kernels_avx2_rows_widen(float *dst, const uint8_t *const *rows, uint64_t count,
                                uint64_t head_size, uint32_t dtype)
{
    if (dtype == SC_KERNELS_F32)
        rows_widen(dst, rows, count, head_size, SC_KERNELS_F32);
    else if (dtype == SC_KERNELS_F16)
        rows_widen(dst, rows, count, head_size, SC_KERNELS_F16);
    else
        rows_widen(dst, rows, count, head_size, SC_KERNELS_BF16);
}

static inline __attribute__((always_inline)) void
block_score(const float *queries, uint64_t width, const float *keys, uint64_t key_stride,
            uint64_t head_size, const struct sc_kernels_ahead *ahead, uint64_t ahead_key,
            float *scores, uint32_t keys_at_once, uint32_t vectors)
{
    __m256 sums[12];
    SC_UNROLL
    for (uint32_t i = 0; i < keys_at_once * vectors; i++)
        sums[i] = _mm256_setzero_ps();
    for (uint64_t t = 0, line = ahead->byte_first; t < head_size; line += LINE_BYTES) {
        uint64_t end = head_size - t < LINE_STEPS ? head_size : t + LINE_STEPS;
        for (uint32_t k = 0; k < keys_at_once && line < ahead->byte_end; k++)
            _mm_prefetch((const char *)ahead->rows[ahead_key + k] + line, _MM_HINT_T1);
        for (; t < end; t++, queries += width) {
            __m256 lanes[3];
            SC_UNROLL
            for (uint32_t v = 0; v < vectors; v++)
                lanes[v] = _mm256_loadu_ps(queries + 8 * v);
            SC_UNROLL
            for (uint32_t k = 0; k < keys_at_once; k++) {
                __m256 key = _mm256_broadcast_ss(keys + k * key_stride + t);
                SC_UNROLL
                for (uint32_t v = 0; v < vectors; v++)
                    sums[k * vectors + v] = _mm256_fmadd_ps(key, lanes[v], sums[k * vectors + v]);
            }
        }
    }
    SC_UNROLL
    for (uint32_t k = 0; k < keys_at_once; k++) {
        SC_UNROLL
        for (uint32_t v = 0; v < vectors; v++)
            _mm256_storeu_ps(scores + k * width + 8 * v, sums[k * vectors + v]);
    }
}

void sc_kernels_avx2_lanes_score(const float *queries, uint64_t width, const float *keys,
                                 uint64_t key_stride, uint64_t head_size, uint64_t key_count,
                                 const struct sc_kernels_ahead *ahead, float *scores)
{
    uint64_t j = 0;
    if (width == 24)
        for (; j < key_count; j += 4)
            block_score(queries, 24, keys + j * key_stride, key_stride, head_size, ahead, j,
                        scores + j * width, 4, 3);
    else if (width == 16)
        for (; j < key_count; j += 6)
            block_score(queries, 16, keys + j * key_stride, key_stride, head_size, ahead, j,
                        scores + j * width, 6, 2);
    else
        for (; j < key_count; j += 12)
            block_score(queries, 8, keys + j * key_stride, key_stride, head_size, ahead, j,
                        scores + j * width, 12, 1);
}

static inline __attribute__((always_inline)) void vector_soften(float *scores, uint64_t width,
                                                                uint64_t key_count,
                                                                const uint32_t *seen, float *best,
                                                                float *sums)
{
    __m256 old = _mm256_loadu_ps(best), mosts[4] = {old, old, old, old};
    if (seen != NULL)
        for (uint64_t j = 0; j < key_count; j++) { /* visible: j < seen, both below 2^31 */
            __m256i visible = _mm256_cmpgt_epi32(_mm256_loadu_si256((const void *)seen),
                                                 _mm256_set1_epi32((int32_t)j));
            __m256 score =
                _mm256_blendv_ps(_mm256_set1_ps(-INFINITY), _mm256_loadu_ps(scores + j * width),
                                 _mm256_castsi256_ps(visible));
            _mm256_storeu_ps(scores + j * width, score);
        }
    uint64_t next = 0;
    for (; next + 4 <= key_count; next += 4) /* max(score, most): most where the score is NaN */
        SC_UNROLL
    for (uint32_t k = 0; k < 4; k++)
        mosts[k] = _mm256_max_ps(_mm256_loadu_ps(scores + (next + k) * width), mosts[k]);
    for (; next < key_count; next++)
        mosts[0] = _mm256_max_ps(_mm256_loadu_ps(scores + next * width), mosts[0]);
    __m256 most =
        _mm256_max_ps(_mm256_max_ps(mosts[0], mosts[1]), _mm256_max_ps(mosts[2], mosts[3]));
    __m256 base = base_of(most), sum = _mm256_setzero_ps();
    for (uint64_t j = 0; j < key_count; j++) {
        __m256 power = exp2_of(_mm256_sub_ps(_mm256_loadu_ps(scores + j * width), base));
        _mm256_storeu_ps(scores + j * width, power);
        sum = _mm256_add_ps(sum, power);
    }
    __m256 before = exp2_of(_mm256_sub_ps(old, base));
    _mm256_storeu_ps(sums, _mm256_fmadd_ps(_mm256_loadu_ps(sums), before, sum));
    _mm256_storeu_ps(best, most);
}

void sc_kernels_avx2_lanes_soften(float *scores, uint64_t width, uint64_t key_count,
                                  const uint32_t *seen, float *best, float *sums)
{
    for (uint64_t lane = 0; lane < width; lane += 8)
        vector_soften(scores + lane, width, key_count, seen != NULL ? seen + lane : NULL,
                      best + lane, sums + lane);
}

void sc_kernels_avx2_lanes_weigh(const float *best_then, const float *best, const float *sums,
                                 uint64_t width, uint64_t used, float *weights)
{
    for (uint64_t lane = 0; lane < width; lane += 8) {
        __m256 base = base_of(_mm256_loadu_ps(best + lane));
        __m256 power = exp2_of(_mm256_sub_ps(_mm256_loadu_ps(best_then + lane), base));
        _mm256_storeu_ps(weights + lane, _mm256_div_ps(power, _mm256_loadu_ps(sums + lane)));
    }
    for (uint64_t lane = used; lane < width; lane++)
        weights[lane] = 0;
}

/* `vectors` is a constant where it is inlined; a group of 8 keys is whole but for the last. */
static inline __attribute__((always_inline)) void
fold(const float *scores, uint64_t key_count, const float *weights, float *dst, uint32_t vectors)
{
    uint64_t width = 8 * (uint64_t)vectors;
    __m256 by[3], rows[8];
    SC_UNROLL
    for (uint32_t v = 0; v < vectors; v++)
        by[v] = _mm256_loadu_ps(weights + 8 * v);
    for (uint64_t j = 0; j < key_count; j += 8, scores += 8 * width) {
        uint64_t count = key_count - j < 8 ? key_count - j : 8;
        SC_UNROLL
        for (uint32_t k = 0; k < 8; k++) { /* behind the last key: the last key again */
            const float *row = scores + (k < count ? k : count - 1) * width;
            rows[k] = _mm256_mul_ps(_mm256_loadu_ps(row), by[0]);
            SC_UNROLL
            for (uint32_t v = 1; v < vectors; v++)
                rows[k] = _mm256_fmadd_ps(_mm256_loadu_ps(row + 8 * v), by[v], rows[k]);
        }
        float sums[8];
        _mm256_storeu_ps(sums, sc_kernels_reduce8(rows));
        for (uint64_t k = 0; k < count; k++)
            dst[j + k] += sums[k];
    }
}

void sc_kernels_avx2_lanes_fold(const float *scores, uint64_t width, uint64_t key_count,
                                const float *weights, float *dst)
{
    if (width == 24)
        fold(scores, key_count, weights, dst, 3);
    else if (width == 16)
        fold(scores, key_count, weights, dst, 2);
    else
        fold(scores, key_count, weights, dst, 1);
}

#define SUMS 8u /* of rows_score, in registers: of some keys, by as many queries as fill them */

/* Keys i .. of queries v ..; `dtype` and `keys_at_once` are constants where it is inlined. */
static inline __attribute__((always_inline)) void
rows_block(const struct sc_kernels_rows_score *what, uint64_t i, uint64_t v, uint32_t dtype,
           uint32_t keys_at_once)
{
    uint64_t head_size = what->head_size, padded = (head_size + 15) / 16 * 16, t = 0;
    uint32_t queries_at_once = SUMS / keys_at_once;
    uint64_t element_bytes = dtype == SC_KERNELS_F32 ? 4 : 2;
    const uint8_t *const *rows = what->rows + i;
    const uint8_t *const *next = what->next != NULL && v == 0 ? what->next + i : NULL;
    const float *queries = what->queries + v * padded;
    __m256 sums[SUMS];
    SC_UNROLL
    for (uint32_t k = 0; k < SUMS; k++)
        sums[k] = _mm256_setzero_ps();
    for (; t + 8 <= head_size; t += 8) {
        uint64_t at = what->byte_first + t * element_bytes;
        __m256 by[4];
        SC_UNROLL
        for (uint32_t q = 0; q < queries_at_once; q++)
            by[q] = _mm256_loadu_ps(queries + q * padded + t);
        if (next != NULL && t * element_bytes % LINE_BYTES == 0)
            for (uint32_t k = 0; k < keys_at_once; k++)
                _mm_prefetch((const char *)next[k] + at, _MM_HINT_T0);
        SC_UNROLL
        for (uint32_t k = 0; k < keys_at_once; k++) {
            __m256 key = widened(rows[k] + at, 0, dtype);
            SC_UNROLL
            for (uint32_t q = 0; q < queries_at_once; q++)
                sums[q * keys_at_once + k] =
                    _mm256_fmadd_ps(key, by[q], sums[q * keys_at_once + k]);
        }
    }
    float each[SUMS];
    _mm256_storeu_ps(each, sc_kernels_reduce8(sums));
    for (; t < head_size; t++)
        for (uint32_t k = 0; k < SUMS; k++)
            each[k] += one_widen(rows[k % keys_at_once] + what->byte_first, t, dtype) *
                       queries[k / keys_at_once * padded + t];
    for (uint32_t q = 0; q < queries_at_once; q++)
        memcpy(what->scores + (v + q) * what->score_stride + i, each + q * keys_at_once,
               keys_at_once * sizeof(float));
}

/* `dtype` is a constant where it is inlined. */
static inline __attribute__((always_inline)) void
rows_score(const struct sc_kernels_rows_score *what, uint32_t dtype)
{
    uint64_t v = 0, count = what->query_count;
    for (; v + 4 <= count; v += 4)
        for (uint64_t i = 0; i < what->key_count; i += 2)
            rows_block(what, i, v, dtype, 2);
    for (; v + 2 <= count; v += 2)
        for (uint64_t i = 0; i < what->key_count; i += 4)
            rows_block(what, i, v, dtype, 4);
    for (uint64_t i = 0; v < count && i < what->key_count; i += 8)
        rows_block(what, i, v, dtype, 8);
}

void sc_kernels_avx2_rows_score(const struct sc_kernels_rows_score *what)
{
    if (what->dtype == SC_KERNELS_F32)
        rows_score(what, SC_KERNELS_F32);
    else if (what->dtype == SC_KERNELS_F16)
        rows_score(what, SC_KERNELS_F16);
    else
        rows_score(what, SC_KERNELS_BF16);
}

float sc_kernels_avx2_few_best(const float *scores, uint64_t count, float floor)
{
    __m256 most = _mm256_set1_ps(floor);
    uint64_t i = 0;
    for (; i + 8 <= count; i += 8)
        most = _mm256_max_ps(_mm256_loadu_ps(scores + i), most);
    float lanes[8];
    _mm256_storeu_ps(lanes, most);
    floor = sc_kernels_ref_few_best(lanes, 8, floor);
    return sc_kernels_ref_few_best(scores + i, count - i, floor);
}

float sc_kernels_avx2_few_soften(float *scores, uint64_t count, float best)
{
    __m256 base = _mm256_set1_ps(best), sums[2] = {_mm256_setzero_ps(), _mm256_setzero_ps()};
    uint64_t i = 0;
    for (uint64_t turn = 0; i + 8 <= count; i += 8, turn ^= 1) {
        __m256 power = exp2_of(_mm256_sub_ps(_mm256_loadu_ps(scores + i), base));
        _mm256_storeu_ps(scores + i, power);
        sums[turn] = _mm256_add_ps(sums[turn], power);
    }
    float lanes[8];
    _mm256_storeu_ps(lanes, _mm256_add_ps(sums[0], sums[1]));
    float sum = 0;
    for (uint32_t lane = 0; lane < 8; lane++)
        sum += lanes[lane];
    return sum + sc_kernels_ref_few_soften(scores + i, count - i, best);
}

void sc_kernels_avx2_accumulate(float *dst, const float *src, float factor, uint64_t count)
{
    __m256 by = _mm256_set1_ps(factor);
    uint64_t i = 0;
    for (; i + 8 <= count; i += 8)
        _mm256_storeu_ps(dst + i,
                         _mm256_fmadd_ps(_mm256_loadu_ps(src + i), by, _mm256_loadu_ps(dst + i)));
    sc_kernels_ref_accumulate(dst + i, src + i, factor, count - i);
}
#endif
