/* ref_order: sifts, ranks and marks keys and sets in plain C, the reference for all rungs. */
#include "kernels/order.h"

#include <stdbool.h>

#define WORD_BITS 64u

static uint32_t key_at(const void *from, uint64_t i, enum sc_kernels_keys_are keys_are)
{
    uint32_t entry;
    memcpy(&entry, (const uint8_t *)from + i * sizeof(entry), sizeof(entry));
    return sc_kernels_key_of(entry, keys_are);
}

static bool is_among(const uint64_t *among, uint64_t i)
{
    return among == NULL || (among[i / WORD_BITS] >> i % WORD_BITS & 1);
}

void sc_kernels_ref_order_sift(const struct sc_kernels_sift *sift,
                               struct sc_kernels_sifted *ret_sifted)
{
    struct sc_kernels_sifted sifted = {0};
    for (uint64_t i = 0; i < sift->count; i++) {
        uint32_t key = key_at(sift->from, i, sift->keys_are);
        if (sift->keys_are == SC_KERNELS_KEYS_PLAIN && key > SC_KERNELS_PLAIN_MOST)
            sifted.strange = 1;
        if (!is_among(sift->among, i))
            continue;
        sifted.above += key > sift->high;
        if (key < sift->low || key > sift->high)
            continue;
        if (sifted.inside++ < sift->kept_max)
            sift->kept[sifted.inside - 1] = key - sift->low;
    }
    *ret_sifted = sifted;
}

void sc_kernels_ref_order_ranks(const uint32_t *keys, uint64_t count, const uint64_t ranks[2],
                                uint32_t ret_keys[2])
{
    ret_keys[0] = ret_keys[1] = UINT32_MAX;
    for (uint64_t i = 0; i < count; i++) {
        uint64_t above = 0;
        for (uint64_t j = 0; j < count; j++)
            above += keys[j] > keys[i];
        for (uint32_t r = 0; r < 2; r++) /* the least key with fewer than `rank` above */
            if (above < ranks[r] && keys[i] < ret_keys[r])
                ret_keys[r] = keys[i];
    }
}

void sc_kernels_ref_order_mark(const void *from, const uint64_t *among, uint64_t count,
                               struct sc_kernels_edge *edge, uint64_t *ret_bits)
{
    for (uint64_t first = 0; first < count; first += WORD_BITS) {
        uint64_t word = 0, end = count - first < WORD_BITS ? count - first : WORD_BITS;
        for (uint64_t i = 0; i < end; i++) {
            uint32_t key = key_at(from, first + i, edge->keys_are);
            bool is_equal = key == edge->key && edge->equal_count != UINT64_MAX;
            if (key < edge->key || (is_equal && edge->equal_count == 0) ||
                !is_among(among, first + i))
                continue;
            edge->equal_count -= is_equal;
            word |= UINT64_C(1) << i;
        }
        ret_bits[first / WORD_BITS] = word;
    }
}

uint64_t sc_kernels_ref_bits_rows(const uint64_t *bits, uint64_t word_count, uint32_t first,
                                  uint32_t *ret_rows, uint64_t room)
{
    uint64_t count = 0;
    for (uint64_t w = 0; w < word_count; w++, first += WORD_BITS)
        for (uint64_t left = bits[w]; left != 0 && count < room; left &= left - 1)
            ret_rows[count++] = first + (uint32_t)__builtin_ctzll(left);
    return count;
}

uint64_t sc_kernels_ref_bits_both(const uint64_t *a, const uint64_t *b, uint64_t word_count)
{
    uint64_t both = 0;
    for (uint64_t w = 0; w < word_count; w++)
        both += (uint64_t)__builtin_popcountll(a[w] & b[w]);
    return both;
}
