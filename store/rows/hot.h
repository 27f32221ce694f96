/* Hot blocks: the rows of an extent that earlier requests wanted most, a second time and side by
 * side, in an annex of their own (docs/decisions/0028).
 *
 *   extent   [r0][r1][r2][r3][r4][r5][r6] ...       a layer
 *   bits      0   1   0   0   1   1   0             which rows its block has, in the record
 *   block    [r1][r4][r5][zeros to a page]          as many in every layer; of a split layout
 *            [K1 K4 K5][V1 V4 V5][zeros]
 *
 * A row of a block is byte for byte the extent's, and is verified by the extent's tag of it.
 *
 * Holds: bits of a layer are whole words; none stands behind the extent's last row.
 * Threads: any.
 * Tests: tests/unit/store/test_hot.c */
#ifndef SC_STORE_HOT_H
#define SC_STORE_HOT_H

#include <stdbool.h>
#include <stdint.h>

/* Words of a layer's bits. */
static inline uint64_t sc_store_hot_words(uint64_t row_count)
{
    return (row_count + 63) / 64;
}

static inline bool sc_store_hot_has(const uint64_t *bits, uint64_t row)
{
    return (bits[row / 64] >> (row % 64) & 1) != 0;
}

/* How many rows of the block stand before row `row`. bits: of the layer. */
static inline uint64_t sc_store_hot_rank(const uint64_t *bits, uint64_t row)
{
    uint64_t rank = 0;
    for (uint64_t i = 0; i < row / 64; i++)
        rank += (uint64_t)__builtin_popcountll(bits[i]);
    if (row % 64 != 0)
        rank += (uint64_t)__builtin_popcountll(bits[row / 64] << (64 - row % 64));
    return rank;
}

/* The first row of the block from `row` on; `end`: there is none before it. */
static inline uint64_t sc_store_hot_next(const uint64_t *bits, uint64_t row, uint64_t end)
{
    while (row < end) {
        uint64_t word = bits[row / 64] >> (row % 64);
        if (word != 0) {
            row += (uint64_t)__builtin_ctzll(word);
            return row < end ? row : end;
        }
        row = (row / 64 + 1) * 64;
    }
    return end;
}

#endif
