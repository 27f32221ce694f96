/* score_rung: scores keys, shared by the rungs. Enough sums stay in registers to hide the latency
 * of a multiply-add; a key's element is broadcast once for all its lanes:
 *
 *            queries [t]   |  LANES   |  LANES   |  LANES   |
 *   key 0 [t] broadcast    |   sum    |   sum    |   sum    |
 *   ...                    |   sum    |   sum    |   sum    |
 *   the last [t]           |   sum    |   sum    |   sum    |
 *
 * Requires v8.h or v16.h. Tests: tests/unit/kernels/test_importance.c */
#ifndef SC_KERNELS_CPU_SCORE_RUNG_H
#define SC_KERNELS_CPU_SCORE_RUNG_H

#include "kernels/cpu/unroll.h"
#include "kernels/cpu/widen_rung.h"

#include <math.h>

#define LINE_BYTES    64u
#define HEADS_AT_ONCE 8u  /* heads of heads_score whose sums stay in the L1 cache */
#define LINE_STEPS    16u /* elements between two prefetched lines of each key */

INLINE void rows_widen(float *dst, const uint8_t *const *rows, uint64_t count, uint64_t head_size,
                       uint32_t dtype)
{
    uint64_t head_bytes = head_size * element_bytes(dtype), padded = (head_size + 15) / 16 * 16;
    for (uint64_t j = 0; j < count; j++, dst += padded) {
        const uint8_t *row = rows[j], *ahead = rows[j + SC_KERNELS_AHEAD_KEYS];
        for (uint64_t i = 0; i < head_bytes; i += LINE_BYTES)
            _mm_prefetch((const char *)ahead + i, _MM_HINT_T0);
        uint64_t t = 0;
        for (; t + 4 * LANES <= head_size; t += 4 * LANES)
            SC_UNROLL
        for (uint32_t v = 0; v < 4 * LANES; v += LANES)
            V(storeu_ps)(dst + t + v, widened(row, t + v, dtype));
        for (; t + LANES <= head_size; t += LANES)
            V(storeu_ps)(dst + t, widened(row, t, dtype));
        for (; t < padded; t += LANES)
            V(storeu_ps)(dst + t, widened_some(row, t, head_size, dtype));
    }
}

static void rung_rows_widen(float *dst, const uint8_t *const *rows, uint64_t count,
                            uint64_t head_size, uint32_t dtype)
{
    if (is_own(dtype))
        BY_DTYPE(dtype, rows_widen, dst, rows, count, head_size);
    else
        sc_kernels_ref_rows_widen(dst, rows, count, head_size, dtype);
}

/* ---- Many queries -------------------------------------------------------------------------- */

INLINE floats exp2_of(floats x)
{
    floats whole, f = exp2_fraction(x, &whole), p = V(set1_ps)(SC_KERNELS_EXP2_P5);
    p = V(fmadd_ps)(p, f, V(set1_ps)(SC_KERNELS_EXP2_P4));
    p = V(fmadd_ps)(p, f, V(set1_ps)(SC_KERNELS_EXP2_P3));
    p = V(fmadd_ps)(p, f, V(set1_ps)(SC_KERNELS_EXP2_P2));
    p = V(fmadd_ps)(p, f, V(set1_ps)(SC_KERNELS_EXP2_P1));
    p = V(fmadd_ps)(p, f, V(set1_ps)(1.0f));
    return exp2_scaled(p, x, whole);
}

/* Replaces -infinity by 0: a lane without a finite score subtracts nothing. */
INLINE floats base_of(floats best)
{
    words bits = VI(castps)(best);
    return floats_of(words_but_equal(bits, bits, VI(castps)(V(set1_ps)(-INFINITY))));
}

/* Scores keys j .. j + keys_at_once - 1 by `vectors` * LANES lanes, constants after inlining. */
INLINE void block_score(const struct sc_kernels_lanes_score *what, uint64_t j,
                        uint32_t keys_at_once, uint32_t vectors)
{
    uint64_t width = vectors * LANES, key_stride = what->key_stride, head_size = what->head_size;
    const float *queries = what->queries, *keys = what->keys + j * key_stride;
    float *scores = what->scores + j * width;
    floats sums[SCORE_SUMS];
    SC_UNROLL
    for (uint32_t i = 0; i < keys_at_once * vectors; i++)
        sums[i] = V(setzero_ps)();
    for (uint64_t t = 0, line = what->next_first; t < head_size; line += LINE_BYTES) {
        uint64_t end = head_size - t < LINE_STEPS ? head_size : t + LINE_STEPS;
        for (uint32_t k = 0; k < keys_at_once && line < what->next_end; k++)
            _mm_prefetch((const char *)what->next[j + k] + line, _MM_HINT_T1);
        for (; t < end; t++, queries += width) {
            floats lanes[3];
            SC_UNROLL
            for (uint32_t v = 0; v < vectors; v++)
                lanes[v] = V(loadu_ps)(queries + LANES * v);
            SC_UNROLL
            for (uint32_t k = 0; k < keys_at_once; k++) {
                floats key = V(set1_ps)(keys[k * key_stride + t]);
                SC_UNROLL
                for (uint32_t v = 0; v < vectors; v++)
                    sums[k * vectors + v] = V(fmadd_ps)(key, lanes[v], sums[k * vectors + v]);
            }
        }
    }
    SC_UNROLL
    for (uint32_t k = 0; k < keys_at_once; k++) {
        SC_UNROLL
        for (uint32_t v = 0; v < vectors; v++)
            V(storeu_ps)(scores + k * width + LANES * v, sums[k * vectors + v]);
    }
}

INLINE void lanes_score(const struct sc_kernels_lanes_score *what, uint32_t vectors)
{
    const struct sc_kernels_lanes_score own = *what; /* no vector store aliases it */
    uint32_t keys_at_once = SCORE_SUMS / vectors;
    for (uint64_t j = 0; j < own.key_count; j += keys_at_once)
        block_score(&own, j, keys_at_once, vectors);
}

static void rung_lanes_score(const struct sc_kernels_lanes_score *what)
{
    if (what->width == 3 * LANES)
        lanes_score(what, 3);
    else if (what->width == 2 * LANES)
        lanes_score(what, 2);
    else
        lanes_score(what, 1);
}

INLINE void vector_soften(float *scores, uint64_t width, uint64_t key_count, const uint32_t *seen,
                          float *best, float *sums)
{
    floats old = V(loadu_ps)(best), mosts[4] = {old, old, old, old};
    if (seen != NULL)
        for (uint64_t j = 0; j < key_count; j++) { /* visible: j < seen, both below 2^31 */
            floats score = V(loadu_ps)(scores + j * width);
            score = floats_above(VI(loadu)((const void *)seen), V(set1_epi32)((int32_t)j), score,
                                 V(set1_ps)(-INFINITY));
            V(storeu_ps)(scores + j * width, score);
        }
    uint64_t j = 0;
    for (; j + 4 <= key_count; j += 4) /* max(score, most): most if the score is NaN */
        SC_UNROLL
    for (uint32_t k = 0; k < 4; k++)
        mosts[k] = V(max_ps)(V(loadu_ps)(scores + (j + k) * width), mosts[k]);
    for (; j < key_count; j++)
        mosts[0] = V(max_ps)(V(loadu_ps)(scores + j * width), mosts[0]);
    floats most = V(max_ps)(V(max_ps)(mosts[0], mosts[1]), V(max_ps)(mosts[2], mosts[3]));
    floats base = base_of(most), sum = V(setzero_ps)();
    for (j = 0; j + 2 <= key_count; j += 2) {
        floats even = exp2_of(V(sub_ps)(V(loadu_ps)(scores + j * width), base));
        floats odd = exp2_of(V(sub_ps)(V(loadu_ps)(scores + (j + 1) * width), base));
        V(storeu_ps)(scores + j * width, even);
        V(storeu_ps)(scores + (j + 1) * width, odd);
        sum = V(add_ps)(sum, V(add_ps)(even, odd));
    }
    if (j < key_count) {
        floats power = exp2_of(V(sub_ps)(V(loadu_ps)(scores + j * width), base));
        V(storeu_ps)(scores + j * width, power);
        sum = V(add_ps)(sum, power);
    }
    floats before = exp2_of(V(sub_ps)(old, base));
    V(storeu_ps)(sums, V(fmadd_ps)(V(loadu_ps)(sums), before, sum));
    V(storeu_ps)(best, most);
}

static void rung_lanes_soften(float *scores, uint64_t width, uint64_t key_count,
                              const uint32_t *seen, float *best, float *sums)
{
    for (uint64_t lane = 0; lane < width; lane += LANES)
        vector_soften(scores + lane, width, key_count, seen != NULL ? seen + lane : NULL,
                      best + lane, sums + lane);
}

static void rung_lanes_weigh(const float *best_then, const float *best, const float *sums,
                             uint64_t width, uint64_t used, float *weights)
{
    for (uint64_t lane = 0; lane < width; lane += LANES) {
        floats base = base_of(V(loadu_ps)(best + lane));
        floats power = exp2_of(V(sub_ps)(V(loadu_ps)(best_then + lane), base));
        V(storeu_ps)(weights + lane, V(div_ps)(power, V(loadu_ps)(sums + lane)));
    }
    for (uint64_t lane = used; lane < width; lane++)
        weights[lane] = 0;
}

/* `vectors` is a constant after inlining; all groups of LANES keys but the last are whole. */
INLINE void lanes_fold(const float *scores, uint64_t key_count, const float *weights, float *dst,
                       uint32_t vectors)
{
    uint64_t width = vectors * LANES;
    floats by[3], rows[LANES];
    SC_UNROLL
    for (uint32_t v = 0; v < vectors; v++)
        by[v] = V(loadu_ps)(weights + LANES * v);
    for (uint64_t j = 0; j < key_count; j += LANES, scores += LANES * width) {
        uint64_t count = key_count - j < LANES ? key_count - j : LANES;
        SC_UNROLL
        for (uint32_t k = 0; k < LANES; k++) { /* beyond the last key: repeats it */
            const float *row = scores + (k < count ? k : count - 1) * width;
            rows[k] = V(mul_ps)(V(loadu_ps)(row), by[0]);
            SC_UNROLL
            for (uint32_t v = 1; v < vectors; v++)
                rows[k] = V(fmadd_ps)(V(loadu_ps)(row + LANES * v), by[v], rows[k]);
        }
        floats sums = V(add_ps)(floats_of(words_load_some(dst + j, count)), floats_sums(rows));
        words_store_some(dst + j, count, VI(castps)(sums));
    }
}

static void rung_lanes_fold(const float *scores, uint64_t width, uint64_t key_count,
                            const float *weights, float *dst)
{
    if (width == 3 * LANES)
        lanes_fold(scores, key_count, weights, dst, 3);
    else if (width == 2 * LANES)
        lanes_fold(scores, key_count, weights, dst, 2);
    else
        lanes_fold(scores, key_count, weights, dst, 1);
}

/* ---- Few queries --------------------------------------------------------------------------- */

/* Scores LANES / queries_at_once keys from i on for queries from v on: LANES sums. `dtype`,
 * `queries_at_once` and `whole` (vectors fill a key) are constants after inlining. */
INLINE void rows_block(const struct sc_kernels_rows_score *what, uint64_t i, uint64_t v,
                       uint32_t queries_at_once, bool whole, uint32_t dtype)
{
    uint64_t head_size = what->head_size, padded = (head_size + 15) / 16 * 16;
    uint32_t keys_at_once = LANES / queries_at_once;
    const uint8_t *const *rows = what->rows + i;
    const uint8_t *const *next = what->next != NULL && v == 0 ? what->next + i : NULL;
    const float *queries = what->queries + v * padded;
    floats sums[LANES];
    SC_UNROLL
    for (uint32_t k = 0; k < LANES; k++)
        sums[k] = V(setzero_ps)();
    for (uint64_t t = 0; t < head_size; t += LANES) {
        uint64_t at = what->byte_first + t * element_bytes(dtype);
        floats by[4];
        SC_UNROLL
        for (uint32_t q = 0; q < queries_at_once; q++)
            by[q] = V(loadu_ps)(queries + q * padded + t);
        if (next != NULL && t * element_bytes(dtype) % LINE_BYTES == 0)
            for (uint32_t k = 0; k < keys_at_once; k++) /* the L2 cache tracks more misses */
                _mm_prefetch((const char *)next[k] + at, _MM_HINT_T1);
        SC_UNROLL
        for (uint32_t k = 0; k < keys_at_once; k++) {
            floats key = whole ? widened(rows[k] + at, 0, dtype)
                               : widened_some(rows[k] + at, 0, head_size - t, dtype);
            SC_UNROLL
            for (uint32_t q = 0; q < queries_at_once; q++)
                sums[q * keys_at_once + k] = V(fmadd_ps)(key, by[q], sums[q * keys_at_once + k]);
        }
    }
    float each[LANES];
    V(storeu_ps)(each, floats_sums(sums));
    for (uint32_t q = 0; q < queries_at_once; q++)
        memcpy(what->scores + (v + q) * what->score_stride + i, each + q * keys_at_once,
               keys_at_once * sizeof(float));
}

/* Scores groups of queries_at_once from v on; returns the next query. */
INLINE uint64_t queries_block(const struct sc_kernels_rows_score *what, uint64_t v,
                              uint32_t queries_at_once, bool whole, uint32_t dtype)
{
    for (; v + queries_at_once <= what->query_count; v += queries_at_once)
        for (uint64_t i = 0; i < what->key_count; i += LANES / queries_at_once)
            rows_block(what, i, v, queries_at_once, whole, dtype);
    return v;
}

INLINE floats key_score(const uint8_t *key, const float *query, uint64_t head_size, uint32_t dtype)
{
    floats sum = V(setzero_ps)();
    uint64_t t = 0;
    for (; t + 4 * LANES <= head_size; t += 4 * LANES)
        SC_UNROLL
    for (uint32_t v = 0; v < 4 * LANES; v += LANES)
        sum = V(fmadd_ps)(widened(key, t + v, dtype), V(loadu_ps)(query + t + v), sum);
    for (; t + LANES <= head_size; t += LANES)
        sum = V(fmadd_ps)(widened(key, t, dtype), V(loadu_ps)(query + t), sum);
    if (t < head_size)
        sum = V(fmadd_ps)(widened_some(key, t, head_size, dtype), V(loadu_ps)(query + t), sum);
    return sum;
}

/* Scores one query per head, key by key: memory is read in order, so the hardware prefetches. Sums
 * are added in the order of rows_block. */
INLINE void heads_score(const struct sc_kernels_rows_score *what, uint64_t v, uint32_t dtype)
{
    uint64_t padded = (what->head_size + 15) / 16 * 16, left = what->query_count - v;
    uint64_t heads = left < HEADS_AT_ONCE ? left : HEADS_AT_ONCE;
    floats sums[HEADS_AT_ONCE][LANES];
    for (uint64_t i = 0; i < what->key_count; i += LANES) {
        for (uint32_t k = 0; k < LANES; k++) {
            const uint8_t *key = what->rows[i + k] + what->byte_first + v * what->head_step;
            for (uint64_t h = 0; h < heads; h++)
                sums[h][k] = key_score(key + h * what->head_step, what->queries + (v + h) * padded,
                                       what->head_size, dtype);
        }
        for (uint64_t h = 0; h < heads; h++)
            V(storeu_ps)(what->scores + (v + h) * what->score_stride + i, floats_sums(sums[h]));
    }
}

INLINE void rows_score(const struct sc_kernels_rows_score *what, uint32_t dtype)
{
    uint64_t v = 0;
    for (; what->head_step != 0 && v < what->query_count; v += HEADS_AT_ONCE)
        heads_score(what, v, dtype);
    if (what->head_step != 0)
        return;
    if (what->head_size % LANES != 0) {
        (void)queries_block(what, v, 1, false, dtype);
        return;
    }
    v = queries_block(what, v, 4, true, dtype);
    v = queries_block(what, v, 2, true, dtype);
    (void)queries_block(what, v, 1, true, dtype);
}

static void rung_rows_score(const struct sc_kernels_rows_score *what)
{
    if (is_own(what->dtype))
        BY_DTYPE(what->dtype, rows_score, what);
    else
        sc_kernels_ref_rows_score(what);
}

static float rung_few_best(const float *scores, uint64_t count, float floor)
{
    floats most = V(set1_ps)(floor);
    uint64_t i = 0;
    for (; i + LANES <= count; i += LANES)
        most = V(max_ps)(V(loadu_ps)(scores + i), most);
    float lanes[LANES];
    V(storeu_ps)(lanes, most);
    floor = sc_kernels_ref_few_best(lanes, LANES, floor);
    return sc_kernels_ref_few_best(scores + i, count - i, floor);
}

static float rung_few_soften(float *scores, uint64_t count, float best)
{
    floats base = V(set1_ps)(best), sums[2] = {V(setzero_ps)(), V(setzero_ps)()};
    uint64_t i = 0;
    for (; i + 2 * LANES <= count; i += 2 * LANES)
        SC_UNROLL
    for (uint32_t v = 0; v < 2; v++) {
        float *at = scores + i + v * LANES;
        floats power = exp2_of(V(sub_ps)(V(loadu_ps)(at), base));
        V(storeu_ps)(at, power);
        sums[v] = V(add_ps)(sums[v], power);
    }
    for (; i + LANES <= count; i += LANES) {
        floats power = exp2_of(V(sub_ps)(V(loadu_ps)(scores + i), base));
        V(storeu_ps)(scores + i, power);
        sums[0] = V(add_ps)(sums[0], power);
    }
    float lanes[LANES], sum = 0;
    V(storeu_ps)(lanes, V(add_ps)(sums[0], sums[1]));
    for (uint32_t lane = 0; lane < LANES; lane++)
        sum += lanes[lane];
    return sum + sc_kernels_ref_few_soften(scores + i, count - i, best);
}

static void rung_accumulate(float *dst, const float *src, float factor, uint64_t count)
{
    floats by = V(set1_ps)(factor);
    uint64_t i = 0;
    for (; i + LANES <= count; i += LANES)
        V(storeu_ps)(dst + i, V(fmadd_ps)(V(loadu_ps)(src + i), by, V(loadu_ps)(dst + i)));
    sc_kernels_ref_accumulate(dst + i, src + i, factor, count - i);
}

#endif
