/* bitplanes_score_columns: scores per-channel quantised keys with AVX2; a vector is LANES keys.
 * Codes stay in columns: no transpose back, no sum across lanes, and pairs of either kind are two
 * columns.
 *
 *   not rotated    sum += code * (q step), and sum of q base once for all keys
 *   rotated        a value is made and rotated once for several queries, then sum += q value
 *   one query      sum += cos * along + sin * across                  (a, b: the pair's values)
 *                  along  = q_a a + q_b b          across = q_b a - q_a b
 *                  with steps and bases in the factors: 6 operations a pair, not 8
 *   one query, not rotated, many keys: bitplanes_score_tables.h
 *
 * Included by bitplanes_score_rung.h. Tests: tests/unit/kernels/test_bitplanes.c */
#ifndef SC_KERNELS_CPU_BITPLANES_SCORE_COLUMNS_H
#define SC_KERNELS_CPU_BITPLANES_SCORE_COLUMNS_H

#include "kernels/cpu/bitplanes_score_rung.h"
#include "kernels/cpu/bitplanes_score_tables.h"

#define WANTED_TOGETHER 8u /* queries per spreading of a tile */
#define NUMBERS_FOR     4u /* queries per conversion of a code, at most */

/* Factors of the codes. Channel order: the first of each pair, the second of each pair, then those
 * that are not rotated. */
struct columns_wanted {
    float steps[HEAD_MOST], bases[HEAD_MOST];
    float queries[WANTED_TOGETHER][HEAD_MOST]; /* times the step if not rotated */
    float sums[WANTED_TOGETHER];               /* q base of channels that are not rotated */
    float folded[6][HEAD_MOST / 2];            /* factors of the last query, if it is alone */
    uint64_t count, size, half;                /* channels c and c + half are a pair */
    uint64_t apart, second;                    /* their codes: c * apart, c * apart + second */
};

INLINE void wanted_order(const struct columns_wanted *wanted, const float *numbers, float *ret)
{
    memcpy(ret, numbers, wanted->size * sizeof(*ret));
    for (uint64_t i = 0; wanted->apart == 2 && i < wanted->half; i++) {
        ret[i] = numbers[2 * i];
        ret[wanted->half + i] = numbers[2 * i + 1];
    }
}

static void wanted_begin(const struct planes_head *head, uint32_t rope,
                         struct columns_wanted *ret_wanted)
{
    ret_wanted->size = head->size;
    ret_wanted->half = head->turned / 2;
    ret_wanted->apart = rope == ROPE_INTERLEAVED ? 2 : 1;
    ret_wanted->second = rope == ROPE_INTERLEAVED ? 1 : ret_wanted->half;
    wanted_order(ret_wanted, head->steps, ret_wanted->steps);
    wanted_order(ret_wanted, head->bases, ret_wanted->bases);
}

/* Computes the last query's factors of a pair's codes, and the addends. */
static void last_fold(struct columns_wanted *wanted)
{
    uint64_t half = wanted->half;
    const float *q = wanted->queries[wanted->count - 1], *p = q + half;
    const float *steps = wanted->steps, *bases = wanted->bases;
    for (uint64_t i = 0; i < half; i++) {
        wanted->folded[0][i] = q[i] * steps[i];
        wanted->folded[1][i] = p[i] * steps[half + i];
        wanted->folded[2][i] = q[i] * bases[i] + p[i] * bases[half + i];
        wanted->folded[3][i] = p[i] * steps[i];
        wanted->folded[4][i] = -q[i] * steps[half + i];
        wanted->folded[5][i] = p[i] * bases[i] - q[i] * bases[half + i];
    }
}

/* Multiplies a query's other channels with the steps; returns the sum of their bases. */
INLINE float rest_fold(const struct columns_wanted *wanted, float *query)
{
    floats sums = V(setzero_ps)();
    float each[LANES], sum = 0;
    uint64_t c = 2 * wanted->half;
    for (; c + LANES <= wanted->size; c += LANES) {
        floats q = V(loadu_ps)(query + c);
        sums = V(fmadd_ps)(q, V(loadu_ps)(wanted->bases + c), sums);
        V(storeu_ps)(query + c, V(mul_ps)(q, V(loadu_ps)(wanted->steps + c)));
    }
    for (; c < wanted->size; c++) {
        sum += query[c] * wanted->bases[c];
        query[c] *= wanted->steps[c];
    }
    V(storeu_ps)(each, sums);
    for (uint32_t i = 0; i < LANES; i++)
        sum += each[i];
    return sum;
}

static void wanted_take(const float *queries, uint64_t padded, uint64_t count,
                        struct columns_wanted *wanted)
{
    wanted->count = count;
    for (uint64_t v = 0; v < count; v++) {
        wanted_order(wanted, queries + v * padded, wanted->queries[v]);
        wanted->sums[v] = rest_fold(wanted, wanted->queries[v]);
    }
    if (count % 2 == 1)
        last_fold(wanted);
}

/* ---- Rotations ----------------------------------------------------------------------------- */

/* Transposes LANES floats of LANES rows. */
INLINE void floats_transpose(const float *const *rows, uint64_t at, float *ret_columns)
{
    floats twos[LANES], fours[LANES];
    SC_UNROLL
    for (uint32_t i = 0; i < 4; i++) { /* rows i and i + 4: floats below 4, then the others */
        floats low = _mm256_castps128_ps256(_mm_loadu_ps(rows[i] + at));
        floats high = _mm256_castps128_ps256(_mm_loadu_ps(rows[i] + at + 4));
        twos[i] = _mm256_insertf128_ps(low, _mm_loadu_ps(rows[i + 4] + at), 1);
        twos[4 + i] = _mm256_insertf128_ps(high, _mm_loadu_ps(rows[i + 4] + at + 4), 1);
    }
    SC_UNROLL
    for (uint32_t i = 0; i < LANES; i += 2) {
        fours[i] = _mm256_unpacklo_ps(twos[i], twos[i + 1]);
        fours[i + 1] = _mm256_unpackhi_ps(twos[i], twos[i + 1]);
    }
    SC_UNROLL
    for (uint32_t i = 0; i < LANES; i += 4) {
        SC_UNROLL
        for (uint32_t k = 0; k < 2; k++) {
            floats *to = (void *)(ret_columns + (i + 2 * k) * PLANES_TILE);
            floats a = fours[i + k], b = fours[i + 2 + k];
            _mm256_store_ps((float *)to, _mm256_shuffle_ps(a, b, 0x44));
            _mm256_store_ps((float *)to + PLANES_TILE, _mm256_shuffle_ps(a, b, 0xee));
        }
    }
}

/* Transposes the rotations of a tile's keys: [turned][PLANES_TILE] */
static void rope_make(const struct planes_head *head, float *ret_columns)
{
    uint64_t turned = head->turned, most = turned / LANES * LANES;
    for (uint64_t k = 0; k < PLANES_TILE; k += LANES) {
        for (uint64_t t = 0; t < most; t += LANES)
            floats_transpose(head->rope + k, t, ret_columns + t * PLANES_TILE + k);
        for (uint64_t t = most; t < turned; t++)
            for (uint64_t i = k; i < k + LANES; i++)
                ret_columns[t * PLANES_TILE + i] = head->rope[i][t];
    }
}

/* ---- Scores --------------------------------------------------------------------------------- */

struct columns_keys {
    const uint8_t *codes; /* [channel][PLANES_TILE], at the first key */
    const float *rope;    /* [turned][PLANES_TILE], at the first key */
    float *scores;        /* of the first query */
    uint64_t stride, left;
};

/* Adds a channel that is not rotated; queries and vectors are constants. v: the first query */
INLINE void channel_add(const struct columns_wanted *wanted, const struct columns_keys *keys,
                        uint64_t c, uint64_t v, uint32_t queries, uint32_t vectors, floats *sums)
{
    floats by[NUMBERS_FOR];
    SC_UNROLL
    for (uint32_t q = 0; q < queries; q++)
        by[q] = V(set1_ps)(wanted->queries[v + q][c]);
    SC_UNROLL
    for (uint32_t i = 0; i < vectors; i++) {
        floats code = quant_floats(keys->codes + c * PLANES_TILE + i * LANES);
        SC_UNROLL
        for (uint32_t q = 0; q < queries; q++)
            sums[q * vectors + i] = V(fmadd_ps)(code, by[q], sums[q * vectors + i]);
    }
}

/* Adds a rotated pair of channels to each query's sums. */
INLINE void pair_add(const struct columns_wanted *wanted, const struct columns_keys *keys,
                     uint64_t c, uint64_t v, uint32_t queries, uint32_t vectors, floats *sums)
{
    uint64_t half = wanted->half;
    const uint8_t *first = keys->codes + c * wanted->apart * PLANES_TILE;
    const uint8_t *second = first + wanted->second * PLANES_TILE;
    const float *row_rope = keys->rope + c * PLANES_TILE;
    floats a[4], b[4];
    SC_UNROLL
    for (uint32_t i = 0; i < vectors; i++) {
        floats x = V(fmadd_ps)(quant_floats(first + i * LANES), V(set1_ps)(wanted->steps[c]),
                               V(set1_ps)(wanted->bases[c]));
        floats y =
            V(fmadd_ps)(quant_floats(second + i * LANES), V(set1_ps)(wanted->steps[half + c]),
                        V(set1_ps)(wanted->bases[half + c]));
        floats cos = V(loadu_ps)(row_rope + i * LANES);
        floats sin = V(loadu_ps)(row_rope + half * PLANES_TILE + i * LANES);
        a[i] = V(fnmadd_ps)(y, sin, V(mul_ps)(x, cos));
        b[i] = V(fmadd_ps)(x, sin, V(mul_ps)(y, cos));
    }
    SC_UNROLL
    for (uint32_t q = 0; q < queries; q++) {
        floats by_a = V(set1_ps)(wanted->queries[v + q][c]);
        floats by_b = V(set1_ps)(wanted->queries[v + q][half + c]);
        SC_UNROLL
        for (uint32_t i = 0; i < vectors; i++) {
            floats *sum = &sums[q * vectors + i];
            *sum = V(fmadd_ps)(b[i], by_b, V(fmadd_ps)(a[i], by_a, *sum));
        }
    }
}

/* Does the same for one query. sums: of cos, then of sin */
INLINE void pair_fold(const struct columns_wanted *wanted, const struct columns_keys *keys,
                      uint64_t c, uint32_t vectors, floats *sums)
{
    const uint8_t *first = keys->codes + c * wanted->apart * PLANES_TILE;
    const uint8_t *second = first + wanted->second * PLANES_TILE;
    const float *row_rope = keys->rope + c * PLANES_TILE;
    floats by[6];
    SC_UNROLL
    for (uint32_t i = 0; i < 6; i++)
        by[i] = V(set1_ps)(wanted->folded[i][c]);
    SC_UNROLL
    for (uint32_t i = 0; i < vectors; i++) {
        floats a = quant_floats(first + i * LANES), b = quant_floats(second + i * LANES);
        floats along = V(fmadd_ps)(a, by[0], V(fmadd_ps)(b, by[1], by[2]));
        floats across = V(fmadd_ps)(a, by[3], V(fmadd_ps)(b, by[4], by[5]));
        floats cos = V(loadu_ps)(row_rope + i * LANES);
        floats sin = V(loadu_ps)(row_rope + wanted->half * PLANES_TILE + i * LANES);
        sums[i] = V(fmadd_ps)(along, cos, sums[i]);
        sums[vectors + i] = V(fmadd_ps)(across, sin, sums[vectors + i]);
    }
}

/* Scores vectors * LANES keys for `queries` queries from v on; queries * vectors is 4 or 8. Each of
 * 4 sums is split in two to hide the latency of additions. */
INLINE void columns_score(const struct columns_wanted *wanted, const struct columns_keys *keys,
                       uint64_t v, uint32_t queries, uint32_t vectors)
{
    const uint32_t count = queries * vectors, more = count < 8 ? count : 0;
    floats sums[8];
    uint64_t c = 2 * wanted->half;
    SC_UNROLL
    for (uint32_t i = 0; i < 8; i++)
        sums[i] = V(setzero_ps)();
    for (uint64_t i = 0; queries > 1 && i < wanted->half; i++)
        pair_add(wanted, keys, i, v, queries, vectors, sums);
    for (uint64_t i = 0; queries == 1 && i < wanted->half; i++)
        pair_fold(wanted, keys, i, vectors, sums);
    for (; c + 2 <= wanted->size; c += 2) {
        channel_add(wanted, keys, c, v, queries, vectors, sums);
        channel_add(wanted, keys, c + 1, v, queries, vectors, sums + more);
    }
    if (c < wanted->size)
        channel_add(wanted, keys, c, v, queries, vectors, sums);
    SC_UNROLL
    for (uint32_t q = 0; q < queries; q++)
        SC_UNROLL
    for (uint32_t i = 0; i < vectors; i++) {
        floats sum = sums[q * vectors + i];
        if (more > 0)
            sum = V(add_ps)(sum, sums[more + q * vectors + i]);
        sum = V(add_ps)(sum, V(set1_ps)(wanted->sums[v + q]));
        if (i * LANES < keys->left)
            words_store_some(keys->scores + (v + q) * keys->stride + i * LANES,
                             keys->left - i * LANES, VI(castps)(sum));
    }
}

/* Scores a tile's keys for groups of `queries` from v on; returns the next query. */
INLINE uint64_t some_score(const struct columns_wanted *wanted, const struct columns_keys *tile,
                           uint64_t v, uint32_t queries, uint32_t vectors)
{
    for (; v + queries <= wanted->count; v += queries)
        for (uint64_t key = 0; key < PLANES_TILE && key < tile->left; key += vectors * LANES) {
            const struct columns_keys keys = {tile->codes + key, tile->rope + key,
                                              tile->scores + key, tile->stride, tile->left - key};
            columns_score(wanted, &keys, v, queries, vectors);
        }
    return v;
}

/* Separate functions, so that sums stay in registers. */
static __attribute__((noinline)) uint64_t fours_score(const struct columns_wanted *wanted,
                                                      const struct columns_keys *tile, uint64_t v)
{
    return some_score(wanted, tile, v, 4, 2);
}

static __attribute__((noinline)) uint64_t twos_score(const struct columns_wanted *wanted,
                                                     const struct columns_keys *tile, uint64_t v)
{
    return some_score(wanted, tile, v, 2, 4);
}

static __attribute__((noinline)) void ones_score(const struct columns_wanted *wanted,
                                                 const struct columns_keys *tile, uint64_t v)
{
    (void)some_score(wanted, tile, v, 1, 4);
}

/* Scores for one query without rotation, by the weight of each bit. */
static void one_score(const struct sc_kernels_bitplanes_score *what, struct columns_wanted *wanted)
{
    float weights[WEIGHTS_MOST];
    struct score_tables tables;
    wanted_take(what->queries, what->head_padded, 1, wanted);
    tables_make(weights, bits_weigh(what->planes, what->head, wanted->queries[0], weights),
                &tables);
    tables_score(what, &tables, wanted->sums[0]);
}

static void rung_bitplanes_score(const struct sc_kernels_bitplanes_score *what)
{
    struct columns_wanted wanted;
    _Alignas(32) float rope[HEAD_MOST * PLANES_TILE]; /* used if the caller has none */
    struct planes_columns columns;
    struct planes_head head;
    head.size = what->planes->head_size;
    head.turned = what->rotary != NULL ? what->rotary->turned : 0;
    if (head.size < LANES) {
        sc_kernels_ref_bitplanes_score(what);
        return;
    }
    head_scales(what->planes, what->scales, what->head, &head);
    wanted_begin(&head, rope_of(what->rotary), &wanted);
    if (head.turned == 0 && what->query_count == 1 && what->row_count >= TABLES_ROWS) {
        one_score(what, &wanted);
        return;
    }
    for (uint64_t v = 0; v < what->query_count; v += wanted.count) {
        uint64_t left = what->query_count - v;
        wanted_take(what->queries + v * what->head_padded, what->head_padded,
                    left < WANTED_TOGETHER ? left : WANTED_TOGETHER, &wanted);
        for (uint64_t key = 0; key < what->row_count; key += PLANES_TILE) {
            struct columns_keys tile = {columns.codes[0], rope,
                                        what->scores + v * what->score_stride + key,
                                        what->score_stride, what->row_count - key};
            keys_take(what, key, &head);
            keys_ahead(what, key, head.count);
            columns_spread(what->planes, head.rows, what->head, &columns);
            if (what->rope_tiles != NULL)
                tile.rope = what->rope_tiles + key * head.turned;
            else if (head.turned > 0)
                rope_make(&head, rope);
            ones_score(&wanted, &tile, twos_score(&wanted, &tile, fours_score(&wanted, &tile, 0)));
        }
    }
}

#endif
