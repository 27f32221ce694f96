/* bitplanes_score_rows: scores per-channel quantised keys with AVX-512; a vector is channels of a
 * key. For several queries a key's values are computed and rotated once. For one query the factors
 * are folded into it first.
 * Included by bitplanes_score_rung.h. Tests: tests/unit/kernels/test_bitplanes.c */
#ifndef SC_KERNELS_CPU_BITPLANES_SCORE_ROWS_H
#define SC_KERNELS_CPU_BITPLANES_SCORE_ROWS_H

#include "kernels/cpu/bitplanes_score_rung.h"

#define WANTED_TOGETHER 4u /* queries per computed value */

/* Queries in the order of a head's vectors: with ROPE_HALF a vector, then its partners; 0 in lanes
 * that an earlier vector covers. */
struct planes_wanted {
    _Alignas(64) float queries[WANTED_TOGETHER][HEAD_MOST + 4 * LANES];
};

/* Packs a vector that starts at `at` and whose lanes below c belong to another vector. */
INLINE void vector_pack(const float *query, uint64_t at, uint64_t c, float *dst)
{
    memset(dst, 0, LANES * sizeof(*dst));
    memcpy(dst + (c - at), query + c, (at + LANES - c) * sizeof(*dst));
}

INLINE uint64_t range_pack(const float *query, uint64_t first, uint64_t end, uint64_t partner,
                           float *dst)
{
    uint64_t n = 0;
    for (uint64_t c = first; c < end; c += LANES) {
        uint64_t at = vector_at(c, end, LANES);
        vector_pack(query, at, c, dst + LANES * n++);
        if (partner > 0)
            vector_pack(query + partner, at, c, dst + LANES * n++);
    }
    return n;
}

static void query_pack(const float *query, const struct planes_head *head, uint32_t rope,
                       float *dst)
{
    uint64_t n = 0;
    if (rope == ROPE_HALF)
        n = range_pack(query, 0, head->turned / 2, head->turned / 2, dst);
    if (rope == ROPE_INTERLEAVED)
        n = range_pack(query, 0, head->turned, 0, dst);
    range_pack(query, head->turned, head->size, 0, dst + n * LANES);
}

/* Adds channels [first, end) of LANES / queries keys from `key` on. n: vectors before these. All
 * but head, wanted, first, end and key are constants after inlining. */
INLINE uint64_t range_sum(const struct planes_head *head, const struct planes_wanted *wanted,
                          uint64_t n, uint64_t first, uint64_t end, uint64_t key, uint32_t rope,
                          uint32_t queries, floats *sums)
{
    uint64_t half = head->turned / 2;
    uint32_t keys = LANES / queries;
    for (uint64_t c = first; c < end; c += LANES) {
        uint64_t at = vector_at(c, end, LANES), other = rope == ROPE_HALF ? at + half : at;
        floats step = V(loadu_ps)(head->steps + at), base = V(loadu_ps)(head->bases + at);
        floats step_b = V(loadu_ps)(head->steps + other), base_b = V(loadu_ps)(head->bases + other);
        SC_UNROLL
        for (uint32_t k = 0; k < keys; k++) {
            const float *row_rope = head->rope[key + k] + (rope == ROPE_INTERLEAVED ? at / 2 : at);
            floats a = quant_values(head, key + k, at, step, base), b = a;
            if (rope == ROPE_HALF) {
                floats x = a, y = quant_values(head, key + k, other, step_b, base_b);
                floats cos = V(loadu_ps)(row_rope), sin = V(loadu_ps)(row_rope + half);
                a = V(fnmadd_ps)(y, sin, V(mul_ps)(x, cos));
                b = V(fmadd_ps)(x, sin, V(mul_ps)(y, cos));
            } else if (rope == ROPE_INTERLEAVED) {
                floats cos = pairs_both(row_rope), sin = pairs_signed(pairs_both(row_rope + half));
                a = V(fmadd_ps)(pairs_swapped(a), sin, V(mul_ps)(a, cos));
            }
            SC_UNROLL
            for (uint32_t v = 0; v < queries; v++) {
                floats *sum = &sums[v * keys + k];
                *sum = V(fmadd_ps)(a, V(load_ps)(wanted->queries[v] + n * LANES), *sum);
                if (rope == ROPE_HALF)
                    *sum = V(fmadd_ps)(b, V(load_ps)(wanted->queries[v] + (n + 1) * LANES), *sum);
            }
        }
        n += rope == ROPE_HALF ? 2 : 1;
    }
    return n;
}

/* One query's factors of the codes, which include span and min:
 *
 *   not rotated   sum += code * (q span), once a head + q min
 *   rotated       sum += cos * along + sin * across                     (a, b: the pair's values)
 *                 along  = q_a a + q_b b          across = q_b a - q_a b
 *
 * A pair of vectors takes 6 operations, not 8. */
struct planes_folded {
    _Alignas(64) float parts[4 * HEAD_MOST + 12 * LANES];
    float base;
};

/* Computes q * x + p * y from a pair's steps and bases: 3 vectors. */
INLINE void pair_fold(const struct planes_head *head, floats q, floats p, uint64_t at,
                      uint64_t other, float *ret_parts)
{
    floats base = V(mul_ps)(p, V(loadu_ps)(head->bases + other));
    V(store_ps)(ret_parts, V(mul_ps)(q, V(loadu_ps)(head->steps + at)));
    V(store_ps)(ret_parts + LANES, V(mul_ps)(p, V(loadu_ps)(head->steps + other)));
    V(store_ps)
    (ret_parts + 2 * LANES, V(fmadd_ps)(q, V(loadu_ps)(head->bases + at), base));
}

/* Folds channels [first, end) of the packed query *query; advances both pointers. */
INLINE void range_fold(const struct planes_head *head, uint64_t first, uint64_t end, uint32_t rope,
                       const float **query, float **parts, floats *base)
{
    uint64_t half = head->turned / 2;
    for (uint64_t c = first; c < end; c += LANES, *query += LANES) {
        uint64_t at = vector_at(c, end, LANES);
        floats q = V(load_ps)(*query), step = V(loadu_ps)(head->steps + at);
        floats min = V(loadu_ps)(head->bases + at);
        if (rope == ROPE_HALF) {
            floats p = V(load_ps)(*query + LANES);
            pair_fold(head, q, p, at, at + half, *parts);
            pair_fold(head, p, V(sub_ps)(V(setzero_ps)(), q), at, at + half, *parts + 3 * LANES);
            *query += LANES;
            *parts += 6 * LANES;
            continue;
        }
        V(store_ps)(*parts, V(mul_ps)(q, step));
        *parts += LANES;
        if (rope == ROPE_NONE) {
            *base = V(fmadd_ps)(q, min, *base);
            continue;
        }
        floats across = V(sub_ps)(V(setzero_ps)(), pairs_signed(pairs_swapped(q)));
        V(store_ps)(*parts, V(mul_ps)(q, min));
        V(store_ps)(*parts + LANES, V(mul_ps)(across, step));
        V(store_ps)(*parts + 2 * LANES, V(mul_ps)(across, min));
        *parts += 3 * LANES;
    }
}

INLINE void query_fold(const struct planes_head *head, const float *packed, uint32_t rope,
                       struct planes_folded *ret_folded)
{
    floats bases[LANES];
    float *parts = ret_folded->parts, sums[LANES];
    SC_UNROLL
    for (uint32_t i = 0; i < LANES; i++)
        bases[i] = V(setzero_ps)();
    if (rope == ROPE_HALF)
        range_fold(head, 0, head->turned / 2, ROPE_HALF, &packed, &parts, bases);
    if (rope == ROPE_INTERLEAVED)
        range_fold(head, 0, head->turned, ROPE_INTERLEAVED, &packed, &parts, bases);
    range_fold(head, head->turned, head->size, ROPE_NONE, &packed, &parts, bases);
    V(storeu_ps)(sums, floats_sums(bases));
    ret_folded->base = sums[0];
}

/* Adds channels [first, end) of LANES keys to their sums. */
INLINE const float *range_add(const struct planes_head *head, const float *parts, uint64_t first,
                              uint64_t end, uint64_t key, uint32_t rope, floats *sums)
{
    uint64_t half = head->turned / 2;
    uint32_t count = rope == ROPE_HALF ? 6 : rope == ROPE_INTERLEAVED ? 4 : 1;
    for (uint64_t c = first; c < end; c += LANES, parts += count * LANES) {
        uint64_t at = vector_at(c, end, LANES);
        floats part[6];
        SC_UNROLL
        for (uint32_t i = 0; i < count; i++)
            part[i] = V(load_ps)(parts + i * LANES);
        SC_UNROLL
        for (uint32_t k = 0; k < LANES; k++) {
            floats a = quant_floats(head->codes[key + k] + at);
            const float *row_rope = head->rope[key + k];
            if (rope == ROPE_NONE) {
                sums[k] = V(fmadd_ps)(a, part[0], sums[k]);
            } else if (rope == ROPE_HALF) {
                floats b = quant_floats(head->codes[key + k] + at + half);
                floats along = V(fmadd_ps)(a, part[0], V(fmadd_ps)(b, part[1], part[2]));
                floats across = V(fmadd_ps)(a, part[3], V(fmadd_ps)(b, part[4], part[5]));
                sums[k] = V(fmadd_ps)(along, V(loadu_ps)(row_rope + at), sums[k]);
                sums[k] = V(fmadd_ps)(across, V(loadu_ps)(row_rope + half + at), sums[k]);
            } else {
                floats along = V(fmadd_ps)(a, part[0], part[1]);
                floats across = V(fmadd_ps)(a, part[2], part[3]);
                sums[k] = V(fmadd_ps)(along, pairs_both(row_rope + at / 2), sums[k]);
                sums[k] = V(fmadd_ps)(across, pairs_both(row_rope + half + at / 2), sums[k]);
            }
        }
    }
    return parts;
}

/* Scores a tile's keys for one query. */
INLINE void tile_add(const struct planes_head *head, const struct planes_folded *folded,
                     uint32_t rope, float *ret_scores)
{
    for (uint64_t key = 0; key < head->count; key += LANES) {
        const float *parts = folded->parts;
        floats sums[LANES];
        uint64_t left = head->count - key;
        SC_UNROLL
        for (uint32_t i = 0; i < LANES; i++)
            sums[i] = V(setzero_ps)();
        if (rope == ROPE_HALF)
            parts = range_add(head, parts, 0, head->turned / 2, key, ROPE_HALF, sums);
        if (rope == ROPE_INTERLEAVED)
            parts = range_add(head, parts, 0, head->turned, key, ROPE_INTERLEAVED, sums);
        range_add(head, parts, head->turned, head->size, key, ROPE_NONE, sums);
        floats scores = V(add_ps)(floats_sums(sums), V(set1_ps)(folded->base));
        words_store_some(ret_scores + key, left, VI(castps)(scores));
    }
}

/* Scores a tile's keys for several queries. */
INLINE void tile_score(const struct planes_head *head, const struct planes_wanted *wanted,
                       uint32_t rope, uint32_t queries, uint64_t stride, float *ret_scores)
{
    uint32_t keys = LANES / queries;
    for (uint64_t key = 0; key < head->count; key += keys) {
        floats sums[LANES];
        uint64_t n = 0, left = head->count - key;
        SC_UNROLL
        for (uint32_t i = 0; i < LANES; i++)
            sums[i] = V(setzero_ps)();
        if (rope == ROPE_HALF)
            n = range_sum(head, wanted, 0, 0, head->turned / 2, key, ROPE_HALF, queries, sums);
        if (rope == ROPE_INTERLEAVED)
            n = range_sum(head, wanted, 0, 0, head->turned, key, ROPE_INTERLEAVED, queries, sums);
        range_sum(head, wanted, n, head->turned, head->size, key, ROPE_NONE, queries, sums);
        float values[LANES];
        V(storeu_ps)(values, floats_sums(sums));
        for (uint32_t v = 0; v < queries; v++)
            for (uint32_t k = 0; k < keys && k < left; k++)
                ret_scores[v * stride + key + k] = values[v * keys + k];
    }
}

INLINE void rope_score(const struct planes_head *head, const struct planes_wanted *wanted,
                       const struct planes_folded *folded, uint32_t queries, uint64_t stride,
                       float *ret_scores, uint32_t rope)
{
    if (queries == 4)
        tile_score(head, wanted, rope, 4, stride, ret_scores);
    else if (queries == 2)
        tile_score(head, wanted, rope, 2, stride, ret_scores);
    else
        tile_add(head, folded, rope, ret_scores);
}

static void rung_bitplanes_score(const struct sc_kernels_bitplanes_score *what)
{
    struct planes_wanted wanted;
    struct planes_folded folded;
    struct planes_head head;
    uint32_t rope = rope_of(what->rotary);
    head.size = what->planes->head_size;
    head.turned = what->rotary != NULL ? what->rotary->turned : 0;
    if (!has_vectors(what->rotary, head.size)) {
        sc_kernels_ref_bitplanes_score(what);
        return;
    }
    head_scales(what->planes, what->scales, what->head, &head);
    for (uint64_t v = 0, count; v < what->query_count; v += count) {
        uint64_t left = what->query_count - v;
        count = left >= 4 ? 4 : left >= 2 ? 2 : 1;
        for (uint64_t i = 0; i < count; i++)
            query_pack(what->queries + (v + i) * what->head_padded, &head, rope, wanted.queries[i]);
        if (count == 1)
            query_fold(&head, wanted.queries[0], rope, &folded);
        for (uint64_t key = 0; key < what->row_count; key += PLANES_TILE) {
            float *scores = what->scores + v * what->score_stride + key;
            keys_take(what, key, &head);
            keys_ahead(what, key, head.count);
            tile_spread(what->planes, what->head, &head);
            BY_ROPE(rope, rope_score, &head, &wanted, &folded, (uint32_t)count, what->score_stride,
                    scores);
        }
    }
}

#endif
