/* Sifting, ranking and marking keys, and sets as bits. Adds: AVX2: 8 keys a step; what a compare
 * chose moves together by a permutation that BMI2 makes of its mask.
 *
 * Threads: any. Tests: tests/unit/kernels/test_choose.c */
#include "kernels/order.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define LANES 8u

static inline __m256i order_of(__m256i bits)
{
    __m256i sign = _mm256_set1_epi32(INT32_MIN);
    __m256i no_number = _mm256_cmpgt_epi32(_mm256_andnot_si256(sign, bits),
                                           _mm256_set1_epi32((int32_t)SC_KERNELS_PLAIN_MOST));
    bits = _mm256_andnot_si256(_mm256_cmpeq_epi32(bits, sign), bits); /* -0 is 0 */
    __m256i flip = _mm256_or_si256(_mm256_srai_epi32(bits, 31), sign);
    return _mm256_andnot_si256(no_number, _mm256_xor_si256(bits, flip));
}

static inline __m256i key_of(__m256i entry, enum sc_kernels_keys_are keys_are)
{
    return keys_are == SC_KERNELS_KEYS_SCORES ? order_of(entry) : entry;
}

static inline uint32_t mask_of(__m256i lanes)
{
    return (uint32_t)_mm256_movemask_ps(_mm256_castsi256_ps(lanes));
}

static inline uint32_t at_most(__m256i a, __m256i b) /* unsigned */
{
    return mask_of(_mm256_cmpeq_epi32(_mm256_min_epu32(a, b), a));
}

static inline uint32_t live_mask(uint64_t left)
{
    return left >= LANES ? 0xff : (1u << left) - 1;
}

static inline __m256i load(const void *from, uint64_t left)
{
    if (left >= LANES)
        return _mm256_loadu_si256(from);
    __m256i lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_maskload_epi32(from, _mm256_cmpgt_epi32(_mm256_set1_epi32((int32_t)left), lanes));
}

/* Lanes whose bit is set, moved together. */
static inline __m256i compress(uint32_t mask, __m256i lanes)
{
    uint64_t bytes = _pdep_u64(mask, UINT64_C(0x0101010101010101)) * 0xff;
    uint64_t from = _pext_u64(UINT64_C(0x0706050403020100), bytes);
    return _mm256_permutevar8x32_epi32(lanes,
                                       _mm256_cvtepu8_epi32(_mm_cvtsi64_si128((int64_t)from)));
}

static inline uint32_t byte_at(const uint64_t *bits, uint64_t i)
{
    return ((const uint8_t *)bits)[i / 8];
}

static inline __attribute__((always_inline)) void sift_as(const struct sc_kernels_sift *sift,
                                                          enum sc_kernels_keys_are keys_are,
                                                          struct sc_kernels_sifted *ret_sifted)
{
    __m256i low = _mm256_set1_epi32((int32_t)sift->low), signs = _mm256_setzero_si256();
    __m256i high = _mm256_set1_epi32((int32_t)sift->high), most = signs;
    __m256i width = _mm256_sub_epi32(high, low);
    uint64_t above_count = 0, inside_count = 0, count = sift->count, kept_max = sift->kept_max;
    for (uint64_t i = 0; i < count; i += LANES) {
        uint32_t live = live_mask(count - i);
        __m256i key = key_of(load((const float *)sift->from + i, count - i), keys_are);
        if (keys_are == SC_KERNELS_KEYS_PLAIN)
            most = _mm256_max_epu32(most, key);
        if (sift->among != NULL)
            live &= byte_at(sift->among, i);
        __m256i over = _mm256_sub_epi32(key, low);
        uint32_t above = live & ~at_most(key, high), inside = live & at_most(over, width);
        uint64_t at = inside_count < kept_max ? inside_count : kept_max;
        _mm256_storeu_si256((void *)(sift->kept + at), compress(inside, over));
        above_count += (uint32_t)__builtin_popcount(above);
        inside_count += (uint32_t)__builtin_popcount(inside);
    }
    *ret_sifted = (struct sc_kernels_sifted){
        .above = above_count,
        .inside = inside_count,
        .strange = at_most(most, _mm256_set1_epi32((int32_t)SC_KERNELS_PLAIN_MOST)) != 0xff,
    };
}

void sc_kernels_avx2_order_sift(const struct sc_kernels_sift *sift,
                                struct sc_kernels_sifted *ret_sifted)
{
    if (sift->keys_are == SC_KERNELS_KEYS_KEYS)
        sift_as(sift, SC_KERNELS_KEYS_KEYS, ret_sifted);
    else if (sift->keys_are == SC_KERNELS_KEYS_SCORES)
        sift_as(sift, SC_KERNELS_KEYS_SCORES, ret_sifted);
    else
        sift_as(sift, SC_KERNELS_KEYS_PLAIN, ret_sifted);
}

void sc_kernels_avx2_order_ranks(const uint32_t *keys, uint64_t count, const uint64_t ranks[2],
                                 uint32_t ret_keys[2])
{
    ret_keys[0] = ret_keys[1] = UINT32_MAX;
    __m256i top = _mm256_set1_epi32(INT32_MIN); /* compares are signed */
    for (uint64_t i = 0; i < count; i += LANES) {
        uint32_t mine[LANES], above[LANES];
        __m256i keys_mine = load(keys + i, count - i), sum = _mm256_setzero_si256();
        __m256i flipped = _mm256_xor_si256(keys_mine, top);
        for (uint64_t j = 0; j < count; j++)
            sum = _mm256_sub_epi32(
                sum, _mm256_cmpgt_epi32(_mm256_xor_si256(_mm256_set1_epi32((int32_t)keys[j]), top),
                                        flipped));
        _mm256_storeu_si256((void *)mine, keys_mine);
        _mm256_storeu_si256((void *)above, sum);
        for (uint32_t n = 0; n < LANES && i + n < count; n++)
            for (uint32_t r = 0; r < 2; r++)
                if (above[n] < ranks[r] && mine[n] < ret_keys[r])
                    ret_keys[r] = mine[n];
    }
}

void sc_kernels_avx2_order_mark(const void *from, const uint64_t *among, uint64_t count,
                                enum sc_kernels_keys_are keys_are, uint32_t edge,
                                uint64_t *equal_count, uint64_t *ret_bits)
{
    __m256i edges = _mm256_set1_epi32((int32_t)edge);
    for (uint64_t first = 0; first < count; first += 64) {
        uint64_t keep = 0, equal = 0;
        for (uint32_t n = 0; n < 64 && first + n < count; n += LANES) {
            uint64_t left = count - first - n;
            __m256i key = key_of(load((const float *)from + first + n, left), keys_are);
            keep |= (uint64_t)(at_most(edges, key) & live_mask(left)) << n;
            equal |= (uint64_t)mask_of(_mm256_cmpeq_epi32(key, edges)) << n;
        }
        keep &= among != NULL ? among[first / 64] : UINT64_MAX;
        equal &= keep;
        if (equal != 0 && equal_count != NULL) {
            uint64_t kept = _pdep_u64(
                *equal_count < 64 ? (UINT64_C(1) << *equal_count) - 1 : UINT64_MAX, equal);
            keep ^= equal ^ kept;
            *equal_count -= (uint64_t)__builtin_popcountll(kept);
        }
        ret_bits[first / 64] = keep;
    }
}

uint64_t sc_kernels_avx2_bits_rows(const uint64_t *bits, uint64_t word_count, uint32_t first,
                                   uint32_t *ret_rows, uint64_t room)
{
    __m256i lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    uint64_t count = 0, w = 0;
    for (; w < word_count && room - count >= 64; w++, first += 64)
        for (uint32_t n = 0; n < 64; n += LANES) {
            uint32_t mask = (uint32_t)(bits[w] >> n) & 0xff;
            __m256i rows = _mm256_add_epi32(lanes, _mm256_set1_epi32((int32_t)(first + n)));
            _mm256_storeu_si256((void *)(ret_rows + count), compress(mask, rows));
            count += (uint32_t)__builtin_popcount(mask);
        }
    return count + sc_kernels_ref_bits_rows(bits + w, word_count - w, first, ret_rows + count,
                                            room - count);
}

uint64_t sc_kernels_avx2_bits_both(const uint64_t *a, const uint64_t *b, uint64_t word_count)
{
    uint64_t both = 0;
    for (uint64_t w = 0; w < word_count; w++)
        both += (uint64_t)__builtin_popcountll(a[w] & b[w]);
    return both;
}
#endif
