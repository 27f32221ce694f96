/* Sifting, ranking and marking keys, and sets as bits. Adds: AVX-512: 16 keys a step; keys and
 * indexes move together by compressing; compares write the bits of sets as they are. Compares,
 * compressing and masks share two ports, so that a step of sifting takes four cycles.
 *
 * Threads: any. Tests: tests/unit/kernels/test_choose.c */
#include "kernels/order.h"

#if defined(__x86_64__)
#include <immintrin.h>
#include <string.h>

#define LANES 16u

static __mmask16 live_mask(uint64_t left)
{
    return left >= LANES ? (__mmask16)0xffff : (__mmask16)((1u << left) - 1);
}

static inline __m512i order_of(__m512i bits)
{
    __m512i sign = _mm512_set1_epi32(INT32_MIN);
    __mmask16 number = _mm512_cmple_epu32_mask(_mm512_andnot_si512(sign, bits),
                                               _mm512_set1_epi32(SC_KERNELS_PLAIN_MOST));
    bits = _mm512_maskz_mov_epi32(_mm512_cmpneq_epi32_mask(bits, sign), bits); /* -0 is 0 */
    __m512i flip = _mm512_or_si512(_mm512_srai_epi32(bits, 31), sign);
    return _mm512_maskz_xor_epi32(number, bits, flip);
}

static inline __m512i key_of(__m512i entry, enum sc_kernels_keys_are keys_are)
{
    return keys_are == SC_KERNELS_KEYS_SCORES ? order_of(entry) : entry;
}

/* Bits i .. i + 15 of a set. */
static inline __mmask16 mask_at(const uint64_t *bits, uint64_t i)
{
    uint16_t mask;
    memcpy(&mask, (const uint8_t *)bits + i / 8, sizeof(mask));
    return mask;
}

/* `keys_are` and whether there is an `among` are constants where it is inlined. */
static inline __attribute__((always_inline)) void sift_as(const struct sc_kernels_sift *sift,
                                                          enum sc_kernels_keys_are keys_are,
                                                          const uint64_t *among,
                                                          struct sc_kernels_sifted *ret_sifted)
{
    __m512i low = _mm512_set1_epi32((int32_t)sift->low), most = _mm512_setzero_si512();
    __m512i high = _mm512_set1_epi32((int32_t)sift->high);
    __m512i width = _mm512_sub_epi32(high, low);
    const float *from = sift->from; /* or keys: loads do not mind */
    uint64_t above_count = 0, inside_count = 0, count = sift->count, kept_max = sift->kept_max;
    for (uint64_t i = 0; i < count; i += LANES) {
        __mmask16 live = live_mask(count - i);
        __m512i key = key_of(_mm512_maskz_loadu_epi32(live, from + i), keys_are);
        if (keys_are == SC_KERNELS_KEYS_PLAIN)
            most = _mm512_max_epu32(most, key);
        if (among != NULL)
            live &= mask_at(among, i);
        __m512i over = _mm512_sub_epi32(key, low);
        __mmask16 above = _mm512_mask_cmpgt_epu32_mask(live, key, high);
        __mmask16 inside = _mm512_mask_cmple_epu32_mask(live, over, width);
        uint64_t at = inside_count < kept_max ? inside_count : kept_max;
        _mm512_storeu_si512(sift->kept + at, _mm512_maskz_compress_epi32(inside, over));
        above_count += (uint32_t)__builtin_popcount(above);
        inside_count += (uint32_t)__builtin_popcount(inside);
    }
    *ret_sifted = (struct sc_kernels_sifted){
        .above = above_count,
        .inside = inside_count,
        .strange = _mm512_reduce_max_epu32(most) > SC_KERNELS_PLAIN_MOST,
    };
}

void sc_kernels_avx512_order_sift(const struct sc_kernels_sift *sift,
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

void sc_kernels_avx512_order_ranks(const uint32_t *keys, uint64_t count, const uint64_t ranks[2],
                                   uint32_t ret_keys[2])
{
    __m512i first = _mm512_set1_epi32((int32_t)ranks[0]), least = _mm512_set1_epi32(-1);
    __m512i second = _mm512_set1_epi32((int32_t)ranks[1]), other = least;
    for (uint64_t i = 0; i < count; i += LANES) {
        __mmask16 live = live_mask(count - i);
        __m512i mine = _mm512_maskz_loadu_epi32(live, keys + i), above = _mm512_setzero_si512();
        __m512i one = _mm512_set1_epi32(1);
        for (uint64_t j = 0; j < count; j++)
            above = _mm512_mask_add_epi32(
                above, _mm512_cmpgt_epu32_mask(_mm512_set1_epi32((int32_t)keys[j]), mine), above,
                one);
        least = _mm512_mask_min_epu32(least, _mm512_mask_cmplt_epu32_mask(live, above, first),
                                      least, mine);
        other = _mm512_mask_min_epu32(other, _mm512_mask_cmplt_epu32_mask(live, above, second),
                                      other, mine);
    }
    ret_keys[0] = _mm512_reduce_min_epu32(least);
    ret_keys[1] = _mm512_reduce_min_epu32(other);
}

static inline __attribute__((always_inline)) void mark_as(const float *from, const uint64_t *among,
                                                          uint64_t count,
                                                          enum sc_kernels_keys_are keys_are,
                                                          uint32_t edge, uint64_t *ret_bits)
{
    __m512i edges = _mm512_set1_epi32((int32_t)edge);
    uint64_t i = 0;
    for (; i + 64 <= count; i += 64) {
        uint64_t word = 0;
        for (uint32_t n = 0; n < 64; n += LANES) {
            __m512i key = key_of(_mm512_loadu_si512(from + i + n), keys_are);
            word |= (uint64_t)_mm512_cmpge_epu32_mask(key, edges) << n;
        }
        ret_bits[i / 64] = among != NULL ? word & among[i / 64] : word;
    }
    if (i == count)
        return;
    uint64_t word = 0;
    for (uint32_t n = 0; i + n < count; n += LANES) {
        __mmask16 live = live_mask(count - i - n);
        __m512i key = key_of(_mm512_maskz_loadu_epi32(live, from + i + n), keys_are);
        word |= (uint64_t)_mm512_mask_cmpge_epu32_mask(live, key, edges) << n;
    }
    ret_bits[i / 64] = among != NULL ? word & among[i / 64] : word;
}

/* Of those at the edge that are marked, the first *equal_count stay so. */
static void unmark(const float *from, uint64_t count, enum sc_kernels_keys_are keys_are,
                   uint32_t edge, uint64_t *equal_count, uint64_t *bits)
{
    for (uint64_t w = 0; w < (count + 63) / 64; w++) {
        uint64_t equal = 0;
        for (uint32_t n = 0; n < 64 && 64 * w + n < count; n += LANES) {
            __mmask16 live = live_mask(count - 64 * w - n);
            __m512i key = key_of(_mm512_maskz_loadu_epi32(live, from + 64 * w + n), keys_are);
            equal |=
                (uint64_t)_mm512_mask_cmpeq_epi32_mask(live, key, _mm512_set1_epi32((int32_t)edge))
                << n;
        }
        equal &= bits[w];
        uint64_t kept =
            _pdep_u64(*equal_count < 64 ? (UINT64_C(1) << *equal_count) - 1 : UINT64_MAX, equal);
        bits[w] ^= equal ^ kept;
        *equal_count -= (uint64_t)__builtin_popcountll(kept);
    }
}

void sc_kernels_avx512_order_mark(const void *from, const uint64_t *among, uint64_t count,
                                  enum sc_kernels_keys_are keys_are, uint32_t edge,
                                  uint64_t *equal_count, uint64_t *ret_bits)
{
    if (keys_are == SC_KERNELS_KEYS_SCORES)
        mark_as(from, among, count, SC_KERNELS_KEYS_SCORES, edge, ret_bits);
    else
        mark_as(from, among, count, SC_KERNELS_KEYS_PLAIN, edge, ret_bits);
    if (equal_count != NULL)
        unmark(from, count, keys_are, edge, equal_count, ret_bits);
}

uint64_t sc_kernels_avx512_bits_rows(const uint64_t *bits, uint64_t word_count, uint32_t first,
                                     uint32_t *ret_rows, uint64_t room)
{
    __m512i rows =
        _mm512_add_epi32(_mm512_set1_epi32((int32_t)first),
                         _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15));
    __m512i step = _mm512_set1_epi32(LANES);
    uint64_t count = 0;
    for (uint64_t i = 0; i < word_count * 64; i += LANES) {
        __mmask16 mask = mask_at(bits, i);
        __m512i found = _mm512_maskz_compress_epi32(mask, rows);
        if (room - count >= LANES)
            _mm512_storeu_si512(ret_rows + count, found);
        else
            _mm512_mask_storeu_epi32(ret_rows + count,
                                     live_mask((uint32_t)__builtin_popcount(mask)), found);
        count += (uint32_t)__builtin_popcount(mask);
        rows = _mm512_add_epi32(rows, step);
    }
    return count;
}

uint64_t sc_kernels_avx512_bits_both(const uint64_t *a, const uint64_t *b, uint64_t word_count)
{
    uint64_t both = 0;
    for (uint64_t w = 0; w < word_count; w++)
        both += (uint64_t)__builtin_popcountll(a[w] & b[w]);
    return both;
}
#endif
