/* order_rung: sifts, ranks and marks keys, LANES a step, shared by the rungs. Selected keys are
 * compressed; compare results are the bits of sets. With AVX-512 compares, compressing and masks
 * share two ports, so a step of sifting takes four cycles.
 * Requires v8.h or v16.h. Tests: tests/unit/kernels/test_topk.c */
#ifndef SC_KERNELS_CPU_ORDER_RUNG_H
#define SC_KERNELS_CPU_ORDER_RUNG_H

#include "kernels/cpu/unroll.h"
#include "kernels/order.h"

INLINE words order_of(words bits)
{
    words sign = V(set1_epi32)(INT32_MIN), size = VI(andnot)(sign, bits);
    bits = words_but_equal(bits, bits, sign); /* -0 is 0 */
    words flip = VI(or)(V(srai_epi32)(bits, 31), sign);
    return words_but_above(VI(xor)(bits, flip), size,
                           V(set1_epi32)((int32_t)SC_KERNELS_PLAIN_MOST)); /* NaN: 0 */
}

INLINE words key_of(words entry, enum sc_kernels_keys_are keys_are)
{
    return keys_are == SC_KERNELS_KEYS_SCORES ? order_of(entry) : entry;
}

/* `keys_are` and the presence of `among` are constants after inlining. */
INLINE void sift_as(const struct sc_kernels_sift *sift, enum sc_kernels_keys_are keys_are,
                    const uint64_t *among, struct sc_kernels_sifted *ret_sifted)
{
    words low = V(set1_epi32)((int32_t)sift->low), most = VI(setzero)();
    words high = V(set1_epi32)((int32_t)sift->high), width = V(sub_epi32)(high, low);
    const float *from = sift->from; /* or keys, loaded as bits */
    uint64_t above_count = 0, inside_count = 0, count = sift->count, kept_max = sift->kept_max;
    uint32_t *kept = sift->kept;
    for (uint64_t i = 0; i < count; i += LANES) {
        marks live = marks_some(count - i);
        words key = key_of(words_load_some(from + i, count - i), keys_are);
        if (keys_are == SC_KERNELS_KEYS_PLAIN)
            most = V(max_epu32)(most, key);
        if (among != NULL)
            live &= marks_at(among, i);
        words over = V(sub_epi32)(key, low);
        marks above = marks_above(live, key, high), inside = marks_at_most(live, over, width);
        uint64_t at = inside_count < kept_max ? inside_count : kept_max;
        VI(storeu)((void *)(kept + at), words_compress(inside, over));
        above_count += (uint32_t)__builtin_popcount(above);
        inside_count += (uint32_t)__builtin_popcount(inside);
    }
    words plain = V(set1_epi32)((int32_t)SC_KERNELS_PLAIN_MOST);
    *ret_sifted = (struct sc_kernels_sifted){
        .above = above_count,
        .inside = inside_count,
        .strange = marks_above(marks_some(LANES), most, plain) != 0,
    };
}

static void rung_order_sift(const struct sc_kernels_sift *sift,
                            struct sc_kernels_sifted *ret_sifted)
{
    if (sift->keys_are == SC_KERNELS_KEYS_KEYS)
        sift_as(sift, SC_KERNELS_KEYS_KEYS, NULL, ret_sifted);
    else if (sift->keys_are == SC_KERNELS_KEYS_SCORES && sift->among == NULL)
        sift_as(sift, SC_KERNELS_KEYS_SCORES, NULL, ret_sifted);
    else if (sift->keys_are == SC_KERNELS_KEYS_SCORES)
        sift_as(sift, SC_KERNELS_KEYS_SCORES, sift->among, ret_sifted);
    else if (sift->among == NULL)
        sift_as(sift, SC_KERNELS_KEYS_PLAIN, NULL, ret_sifted);
    else
        sift_as(sift, SC_KERNELS_KEYS_PLAIN, sift->among, ret_sifted);
}

/* Lanes beyond the last key are the largest: nothing is above them, and none is less. */
static void rung_order_ranks(const uint32_t *keys, uint64_t count, const uint64_t ranks[2],
                             uint32_t ret_keys[2])
{
    words least[2] = {V(set1_epi32)(-1), V(set1_epi32)(-1)};
    words fewer[2] = {V(set1_epi32)((int32_t)ranks[0] - 1), V(set1_epi32)((int32_t)ranks[1] - 1)};
    for (uint64_t i = 0; i < count; i += LANES) {
        words last = V(set1_epi32)((int32_t)(count - i) - 1), above = VI(setzero)();
        words mine = words_load_some(keys + i, count - i);
        mine = words_most_above(mine, lane_numbers(), last);
        uint64_t j = 0;
        for (; j + 4 <= count; j += 4)
            SC_UNROLL
        for (uint32_t k = 0; k < 4; k++)
            above = words_count_above(above, V(set1_epi32)((int32_t)keys[j + k]), mine);
        for (; j < count; j++)
            above = words_count_above(above, V(set1_epi32)((int32_t)keys[j]), mine);
        for (uint32_t r = 0; r < 2; r++)
            least[r] = V(min_epu32)(least[r], words_most_above(mine, above, fewer[r]));
    }
    for (uint32_t r = 0; r < 2; r++) {
        uint32_t lanes[LANES];
        VI(storeu)((void *)lanes, least[r]);
        ret_keys[r] = UINT32_MAX;
        for (uint32_t lane = 0; lane < LANES; lane++)
            ret_keys[r] = lanes[lane] < ret_keys[r] ? lanes[lane] : ret_keys[r];
    }
}

/* Returns the bits of at most 64 keys, LANES a step, that are >= `edge`, or equal to it. */
INLINE uint64_t steps_mark(const float *from, uint64_t count, enum sc_kernels_keys_are keys_are,
                           words edge, bool is_equal)
{
    uint64_t word = 0;
    for (uint32_t n = 0; n < count; n += LANES) {
        marks live = marks_some(count - n);
        words key = key_of(words_load_some(from + n, count - n), keys_are);
        marks some = is_equal ? marks_equal(live, key, edge) : marks_at_most(live, edge, key);
        word |= (uint64_t)some << n;
    }
    return word;
}

/* Does the same; for whole words the count is a constant. */
INLINE uint64_t word_mark(const float *from, uint64_t count, enum sc_kernels_keys_are keys_are,
                          words edge, bool is_equal)
{
    return count >= 64 ? steps_mark(from, 64, keys_are, edge, is_equal)
                       : steps_mark(from, count, keys_are, edge, is_equal);
}

INLINE void mark_as(const float *from, const uint64_t *among, uint64_t count,
                    enum sc_kernels_keys_are keys_are, words edge, uint64_t *ret_bits)
{
    for (uint64_t i = 0; i < count; i += 64) {
        uint64_t word = word_mark(from + i, count - i, keys_are, edge, false);
        ret_bits[i / 64] = among != NULL ? word & among[i / 64] : word;
    }
}

/* Keeps the first equal_count of the marked keys that equal the edge. */
static void unmark(const float *from, uint64_t count, struct sc_kernels_edge *edge, uint64_t *bits)
{
    words key = V(set1_epi32)((int32_t)edge->key);
    for (uint64_t i = 0; i < count; i += 64) {
        uint64_t equal = word_mark(from + i, count - i, edge->keys_are, key, true) & bits[i / 64];
        if (equal == 0)
            continue;
        uint64_t left = edge->equal_count,
                 first = left < 64 ? (UINT64_C(1) << left) - 1 : UINT64_MAX;
        uint64_t kept = _pdep_u64(first, equal);
        bits[i / 64] ^= equal ^ kept;
        edge->equal_count -= (uint64_t)__builtin_popcountll(kept);
    }
}

static void rung_order_mark(const void *from, const uint64_t *among, uint64_t count,
                            struct sc_kernels_edge *edge, uint64_t *ret_bits)
{
    words key = V(set1_epi32)((int32_t)edge->key);
    if (edge->keys_are == SC_KERNELS_KEYS_SCORES)
        mark_as(from, among, count, SC_KERNELS_KEYS_SCORES, key, ret_bits);
    else
        mark_as(from, among, count, SC_KERNELS_KEYS_PLAIN, key, ret_bits);
    if (edge->equal_count != UINT64_MAX)
        unmark(from, count, edge, ret_bits);
}

static uint64_t rung_bits_rows(const uint64_t *bits, uint64_t word_count, uint32_t first,
                               uint32_t *ret_rows, uint64_t room)
{
    words rows = V(add_epi32)(V(set1_epi32)((int32_t)first), lane_numbers());
    words step = V(set1_epi32)(LANES);
    uint64_t count = 0;
    for (uint64_t i = 0; i < word_count * 64; i += LANES) {
        marks mask = marks_at(bits, i);
        uint32_t found = (uint32_t)__builtin_popcount(mask);
        if (room - count >= LANES)
            VI(storeu)((void *)(ret_rows + count), words_compress(mask, rows));
        else
            words_store_some(ret_rows + count, found, words_compress(mask, rows));
        count += found;
        rows = V(add_epi32)(rows, step);
    }
    return count;
}

static uint64_t rung_bits_both(const uint64_t *a, const uint64_t *b, uint64_t word_count)
{
    uint64_t both = 0;
    for (uint64_t w = 0; w < word_count; w++)
        both += (uint64_t)__builtin_popcountll(a[w] & b[w]);
    return both;
}

#endif
