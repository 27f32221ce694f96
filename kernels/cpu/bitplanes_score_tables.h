/* bitplanes_score_tables: scores for one query without rotation, with AVX2, directly from bit
 * planes. A score is the sum of the weights of a head's set bits; a table of 8 entries has the sums
 * of 3 bits.
 *
 *   bit      weight   query * span / 256 * gain * (128 >> plane)     of its channel
 *   word     32 bits of a key's bytes, 8 keys a vector: 10 tables of 3 bits and one of 2
 *   table    one permutation looks up 8 keys, by the lowest 3 bits of each word
 *
 * Bits are neither spread nor converted, and missing planes cost nothing. Tables are made once for
 * all rows of a call, which pays only for many rows.
 * Included by bitplanes_score_columns.h. Tests: tests/unit/kernels/test_bitplanes.c */
#ifndef SC_KERNELS_CPU_BITPLANES_SCORE_TABLES_H
#define SC_KERNELS_CPU_BITPLANES_SCORE_TABLES_H

#include "kernels/cpu/bitplanes_score_rung.h"

#define TABLES_ROWS   48u /* for fewer rows columns are faster (Zen 3) */
#define TABLES_A_WORD 11u
#define TABLE_BITS    3u
#define WORDS_TURNED  4u /* words of a key transposed at once */
#define TURNED_BYTES  (WORDS_TURNED * 4u)
#define WORDS_MOST    (HEAD_MOST / 4u) /* words of a head with 8 bits a channel */
#define WEIGHTS_MOST  (WORDS_MOST * 32u + 1u)

struct score_tables {
    _Alignas(32) float sums[WORDS_MOST * TABLES_A_WORD][LANES];
};

/* Computes the weight of each of a head's bits, then 0 to the end of the words transposed together,
 * and one more 0. Returns the number of words.
 *   steps        [head_size]  factors of the codes
 *   ret_weights  [WEIGHTS_MOST] */
static uint64_t bits_weigh(const struct sc_kernels_bitplanes *planes, uint64_t head,
                           const float *steps, float *ret_weights)
{
    const struct sc_kernels_bitplanes_group *groups = planes->groups + head * planes->head_groups;
    uint64_t first = head_at(planes, head), bytes = head_at(planes, head + 1) - first;
    for (uint64_t g = 0; g < planes->head_groups; g++, steps += SC_KERNELS_BITPLANES_GROUP)
        for (uint32_t p = 0; p < groups[g].end; p++) {
            float *weights = ret_weights + (groups[g].offset - first + groups[g].at[p]) * 8;
            float bit = (float)(0x80u >> p);
            for (uint32_t i = 0; i < groups[g].bytes[p] * 8u; i++)
                weights[i] = bit * steps[groups[g].channels[p][i]];
        }
    uint64_t words_count = (bytes + TURNED_BYTES - 1) / TURNED_BYTES * WORDS_TURNED;
    memset(ret_weights + bytes * 8, 0, (words_count * 32 + 1 - bytes * 8) * sizeof(*ret_weights));
    return words_count;
}

/* Makes the tables of some words. A word's last table includes a weight beyond the word, which is
 * never looked up. */
static void tables_make(const float *weights, uint64_t words_count, struct score_tables *ret_tables)
{
    const words lanes = lane_numbers(), one = V(set1_epi32)(1);
    floats has[TABLE_BITS];
    SC_UNROLL
    for (uint32_t b = 0; b < TABLE_BITS; b++) {
        words bit = VI(and)(V(srli_epi32)(lanes, (int)b), one);
        has[b] = floats_of(_mm256_cmpeq_epi32(bit, one));
    }
    for (uint64_t w = 0; w < words_count; w++)
        for (uint32_t t = 0; t < TABLES_A_WORD; t++) {
            const float *weight = weights + w * 32 + (uint64_t)t * TABLE_BITS;
            floats sums = V(and_ps)(V(set1_ps)(weight[0]), has[0]);
            sums = V(add_ps)(sums, V(and_ps)(V(set1_ps)(weight[1]), has[1]));
            sums = V(add_ps)(sums, V(and_ps)(V(set1_ps)(weight[2]), has[2]));
            V(store_ps)(ret_tables->sums[w * TABLES_A_WORD + t], sums);
        }
}

/* Transposes `bytes` of LANES keys to WORDS_TURNED vectors: TURNED_BYTES, or 8, and then half of
 * the words are 0. */
INLINE void words_transpose(const uint8_t *const *rows, uint64_t at, uint32_t bytes,
                            words *ret_words)
{
    words both[4], twos[4];
    SC_UNROLL
    for (uint32_t r = 0; r < 4; r++) {
        const void *low = rows[r] + at, *high = rows[r + 4] + at;
        if (bytes == TURNED_BYTES)
            both[r] = _mm256_set_m128i(_mm_loadu_si128(high), _mm_loadu_si128(low));
        else
            both[r] = _mm256_set_m128i(_mm_loadl_epi64(high), _mm_loadl_epi64(low));
    }
    twos[0] = _mm256_unpacklo_epi32(both[0], both[1]);
    twos[1] = _mm256_unpacklo_epi32(both[2], both[3]);
    twos[2] = _mm256_unpackhi_epi32(both[0], both[1]);
    twos[3] = _mm256_unpackhi_epi32(both[2], both[3]);
    ret_words[0] = _mm256_unpacklo_epi64(twos[0], twos[1]);
    ret_words[1] = _mm256_unpackhi_epi64(twos[0], twos[1]);
    ret_words[2] = _mm256_unpacklo_epi64(twos[2], twos[3]);
    ret_words[3] = _mm256_unpackhi_epi64(twos[2], twos[3]);
}

/* Adds `bytes` (TURNED_BYTES or 8, a constant) of 2 * LANES keys. tables: of the first word */
INLINE void words_add(const uint8_t *const *rows, uint64_t at, uint32_t bytes,
                      const float (*tables)[LANES], floats (*sums)[2])
{
    words keys[2][WORDS_TURNED];
    words_transpose(rows, at, bytes, keys[0]);
    words_transpose(rows + LANES, at, bytes, keys[1]);
    SC_UNROLL
    for (uint32_t first = 0; first < bytes / 4; first += 2)
        SC_ROLLED
        for (uint32_t t = 0; t < TABLES_A_WORD; t++) {
            SC_UNROLL
            for (uint32_t w = first; w < first + 2; w++) {
                floats table = V(load_ps)(tables[w * TABLES_A_WORD + t]);
                __asm__("" : "+x"(table)); /* Zen 3 permutes at half the rate from memory */
                SC_UNROLL
                for (uint32_t i = 0; i < 2; i++) {
                    floats found = _mm256_permutevar8x32_ps(table, keys[i][w]);
                    sums[i][w % 2] = V(add_ps)(sums[i][w % 2], found);
                    keys[i][w] = V(srli_epi32)(keys[i][w], TABLE_BITS);
                }
            }
        }
}

static void tables_score(const struct sc_kernels_bitplanes_score *what,
                         const struct score_tables *tables, float base)
{
    uint64_t first = head_at(what->planes, what->head);
    uint64_t bytes = head_at(what->planes, what->head + 1) - first;
    const uint8_t *codes = what->codes + first;
    uint64_t row_bytes = what->planes->row_bytes;
    for (uint64_t key = 0; key < what->row_count; key += 2 * LANES) {
        const uint8_t *rows[2 * LANES];
        uint64_t left = what->row_count - key, at = 0;
        const float(*table)[LANES] = tables->sums;
        floats sums[2][2];
        SC_UNROLL
        for (uint32_t i = 0; i < 4; i++)
            sums[i / 2][i % 2] = V(setzero_ps)();
        for (uint64_t i = 0; i < 2 * LANES; i++)
            rows[i] = codes + (key + (i < left ? i : left - 1)) * row_bytes;
        keys_ahead(what, key, left < 2 * LANES ? left : 2 * LANES);
        for (; at + SC_KERNELS_BITPLANES_AHEAD + 1 < bytes; at += TURNED_BYTES) {
            words_add(rows, at, TURNED_BYTES, table, sums);
            table += WORDS_TURNED * TABLES_A_WORD;
        }
        if (at < bytes)
            words_add(rows, at, 8, table, sums);
        for (uint64_t i = 0; i < 2 && i * LANES < left; i++) {
            floats sum = V(add_ps)(V(add_ps)(sums[i][0], sums[i][1]), V(set1_ps)(base));
            words_store_some(what->scores + key + i * LANES, left - i * LANES, VI(castps)(sum));
        }
    }
}

#endif
