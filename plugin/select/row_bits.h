/* row_bits: sets of a layer's rows, one bit per row. */
#ifndef SC_PLUGIN_SELECT_ROW_BITS_H
#define SC_PLUGIN_SELECT_ROW_BITS_H

#include <stdbool.h>
#include <stdint.h>

static inline void sc_plugin_bit_set(uint64_t *bits, uint64_t row)
{
    bits[row / 64] |= UINT64_C(1) << (row % 64);
}

static inline bool sc_plugin_bit_get(const uint64_t *bits, uint64_t row)
{
    return (bits[row / 64] >> (row % 64) & 1) != 0;
}

/* Returns true if a bit of [first, end) is set. */
static inline bool sc_plugin_bits_any(const uint64_t *bits, uint64_t first, uint64_t end)
{
    while (first < end) {
        uint64_t word = bits[first / 64] >> (first % 64), left = 64 - first % 64;
        if (end - first < left)
            word &= (UINT64_C(1) << (end - first)) - 1;
        if (word != 0)
            return true;
        first += left;
    }
    return false;
}

/* Sets the bits of `count` rows and clears the rest of the last word. */
static inline void sc_plugin_bits_all(uint64_t *bits, uint64_t count)
{
    for (uint64_t w = 0; w < (count + 63) / 64; w++)
        bits[w] = count - 64 * w < 64 ? (UINT64_C(1) << (count - 64 * w)) - 1 : UINT64_MAX;
}

/* Writes the set bits as ascending rows; returns their number. */
static inline uint64_t sc_plugin_rows_of(const uint64_t *bits, uint64_t words, uint32_t *ret_rows)
{
    uint64_t count = 0;
    for (uint64_t w = 0; w < words; w++)
        for (uint64_t left = bits[w]; left != 0; left &= left - 1)
            ret_rows[count++] = (uint32_t)(w * 64 + (uint64_t)__builtin_ctzll(left));
    return count;
}

#endif
