/* bitplanes_columns: spreads bit planes of a tile with AVX2; a vector is one byte of all rows.
 *
 *   row      a head's bytes                                  [row][byte]
 *   column   a byte of each row, 8 channels of a plane       [byte][row]
 *   codes    one channel of each row                         [channel][row]
 *
 * A channel's bits have the same position in a column for all rows. A shift, a mask and an addition
 * spread 32 of them, and channels without a bit in a plane cost nothing. Transposing bytes to
 * columns, and codes back to rows, takes a third of the time.
 * Included by bitplanes_rung.h. Tests: tests/unit/kernels/test_bitplanes.c */
#ifndef SC_KERNELS_CPU_BITPLANES_COLUMNS_H
#define SC_KERNELS_CPU_BITPLANES_COLUMNS_H

#include "kernels/cpu/bitplanes_rung.h"

struct planes_columns {
    _Alignas(32) uint8_t bytes[HEAD_MOST][PLANES_TILE]; /* bytes of a head */
    _Alignas(32) uint8_t codes[HEAD_MOST][PLANES_TILE];
};

/* Interleaves 8 bytes of rows a, a + 1 | b, b + 1. */
INLINE words rows_pairs(const uint8_t *const *rows, uint64_t at, uint32_t a, uint32_t b)
{
    const words pairs = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15));
    __m128 low = _mm_castsi128_ps(_mm_loadl_epi64((const void *)(rows[a] + at)));
    __m128 high = _mm_castsi128_ps(_mm_loadl_epi64((const void *)(rows[b] + at)));
    low = _mm_loadh_pi(low, (const void *)(rows[a + 1] + at));
    high = _mm_loadh_pi(high, (const void *)(rows[b + 1] + at));
    words both = _mm256_set_m128i(_mm_castps_si128(high), _mm_castps_si128(low));
    return _mm256_shuffle_epi8(both, pairs);
}

/* Transposes 8 bytes of each row to columns. */
INLINE void eight_transpose(const uint8_t *const *rows, uint64_t at,
                            uint8_t (*ret_columns)[PLANES_TILE])
{
    words twos[8], fours[8], eights[8];
    SC_UNROLL
    for (uint32_t i = 0; i < 8; i++)
        twos[i] = rows_pairs(rows, at, 2 * i, 2 * i + 16);
    SC_UNROLL
    for (uint32_t i = 0; i < 4; i++) { /* bytes 0 .. 3, 4 .. 7 */
        fours[i] = _mm256_unpacklo_epi16(twos[2 * i], twos[2 * i + 1]);
        fours[4 + i] = _mm256_unpackhi_epi16(twos[2 * i], twos[2 * i + 1]);
    }
    SC_UNROLL
    for (uint32_t i = 0; i < 4; i++) { /* by half: rows below 8, then the others, from byte 2 i */
        const words *of = fours + 4 * (i / 2);
        eights[i * 2] = i % 2 == 0 ? _mm256_unpacklo_epi32(of[0], of[1])
                                   : _mm256_unpackhi_epi32(of[0], of[1]);
        eights[i * 2 + 1] = i % 2 == 0 ? _mm256_unpacklo_epi32(of[2], of[3])
                                       : _mm256_unpackhi_epi32(of[2], of[3]);
    }
    SC_UNROLL
    for (uint32_t i = 0; i < 4; i++) {
        words even = _mm256_unpacklo_epi64(eights[2 * i], eights[2 * i + 1]);
        words odd = _mm256_unpackhi_epi64(eights[2 * i], eights[2 * i + 1]);
        _mm256_store_si256((void *)ret_columns[2 * i], even);
        _mm256_store_si256((void *)ret_columns[2 * i + 1], odd);
    }
}

/* Moves bit k of each byte to plane p's position in a code. Both are constants. */
INLINE words column_bit(words column, uint32_t k, uint32_t p)
{
    words moved = k > 7 - p ? _mm256_srli_epi16(column, (int)(k - (7 - p)))
                            : _mm256_slli_epi16(column, (int)(7 - p - k));
    return _mm256_and_si256(moved, _mm256_set1_epi8((char)(0x80u >> p)));
}

/* Adds a plane of a group to codes, or initialises them with it; p is a constant. */
INLINE void plane_add(const struct sc_kernels_bitplanes_group *group,
                      const uint8_t (*columns)[PLANES_TILE], uint32_t p, bool begins,
                      uint8_t (*ret_quant)[PLANES_TILE])
{
    for (uint32_t j = 0; j < group->bytes[p]; j++) {
        words column = _mm256_load_si256((const void *)columns[group->at[p] + j]);
        const uint8_t *channels = group->channels[p] + 8 * (uint64_t)j;
        SC_UNROLL
        for (uint32_t k = 0; k < 8; k++) {
            words *codes = (void *)ret_quant[channels[k]], bit = column_bit(column, k, p);
            _mm256_store_si256(codes,
                               begins ? bit : _mm256_or_si256(bit, _mm256_load_si256(codes)));
        }
    }
}

/* Makes a group's codes of all rows from its columns; plane 0 initialises its channels' codes. */
INLINE void group_add(const struct sc_kernels_bitplanes_group *group,
                      const uint8_t (*columns)[PLANES_TILE], uint8_t (*ret_quant)[PLANES_TILE])
{
    for (uint64_t rest = ~group->masks[0]; rest != 0; rest &= rest - 1)
        _mm256_store_si256((void *)ret_quant[__builtin_ctzll(rest)], _mm256_setzero_si256());
    plane_add(group, columns, 0, true, ret_quant);
    SC_UNROLL
    for (uint32_t p = 1; p < SC_KERNELS_BITPLANES; p++)
        if (p < group->end)
            plane_add(group, columns, p, false, ret_quant);
}

static void columns_spread(const struct sc_kernels_bitplanes *planes, const uint8_t *const *rows,
                           uint64_t head, struct planes_columns *ret_columns)
{
    const struct sc_kernels_bitplanes_group *groups = planes->groups + head * planes->head_groups;
    uint64_t first = head_at(planes, head), end = head_at(planes, head + 1);
    for (uint64_t at = first; at < end; at += 8)
        eight_transpose(rows, at, ret_columns->bytes + (at - first));
    for (uint64_t g = 0; g < planes->head_groups; g++)
        group_add(&groups[g],
                  (const uint8_t(*)[PLANES_TILE])ret_columns->bytes + (groups[g].offset - first),
                  ret_columns->codes + g * SC_KERNELS_BITPLANES_GROUP);
}

/* Transposes 16 channels' codes of 8 rows below 16, and of those 16 later, back to rows. */
INLINE void quant_back(const uint8_t (*codes)[PLANES_TILE], bool is_high, uint8_t *ret_quant)
{
    words v[8], w[8];
    SC_UNROLL
    for (uint32_t i = 0; i < 8; i++) { /* channels i, i + 8 */
        words a = _mm256_load_si256((const void *)codes[i]);
        words b = _mm256_load_si256((const void *)codes[i + 8]);
        v[i] = is_high ? _mm256_unpackhi_epi8(a, b) : _mm256_unpacklo_epi8(a, b);
    }
    SC_UNROLL
    for (uint32_t round = 0; round < 3; round++) { /* i, i + 4 ..; then i, i + 2 ..; then all */
        SC_UNROLL
        for (uint32_t i = 0; i < 4; i++) {
            w[2 * i] = _mm256_unpacklo_epi8(v[i], v[i + 4]);
            w[2 * i + 1] = _mm256_unpackhi_epi8(v[i], v[i + 4]);
        }
        SC_UNROLL
        for (uint32_t i = 0; i < 8; i++)
            v[i] = w[i];
    }
    SC_UNROLL
    for (uint32_t i = 0; i < 8; i++) {
        uint8_t *to = ret_quant + i * (uint64_t)HEAD_MOST;
        _mm_store_si128((void *)to, _mm256_castsi256_si128(v[i]));
        _mm_store_si128((void *)(to + 16 * HEAD_MOST), _mm256_extracti128_si256(v[i], 1));
    }
}

static void rows_back(const struct planes_columns *columns, uint64_t size,
                      uint8_t (*ret_quant)[HEAD_MOST])
{
    for (uint64_t c = 0; c < size; c += 16) {
        quant_back((const uint8_t(*)[PLANES_TILE])columns->codes + c, false, ret_quant[0] + c);
        quant_back((const uint8_t(*)[PLANES_TILE])columns->codes + c, true, ret_quant[8] + c);
    }
}

#endif
