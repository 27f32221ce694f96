/* row_permutation: the order of an extent's rows in each layer (docs/decisions/0045; IMPRESS
 * section 4.4.1: a node's mapping list m, s'[m] = s).
 *
 *   rows     [t0][t1][t2][t3]      as stored; t0 and t3 have the highest scores
 *   slots     0   2   3   1        m: row r is in slot slots[r]
 *   permuted [t0][t3][t1][t2]      on disk
 *
 * Rows stay within their span: span_rows consecutive rows from the extent's start.
 *
 * Invariants: a layer's slots permute all rows of the extent, void ones included.
 * Threads: any.
 * Tests: tests/unit/store/test_row_permutation.c */
#ifndef SC_STORE_ROWS_ROW_PERMUTATION_H
#define SC_STORE_ROWS_ROW_PERMUTATION_H

#include <stdbool.h>
#include <stdint.h>

/* 8-byte words of a layer's slots. */
static inline uint64_t sc_store_permutation_words(uint64_t row_count)
{
    return (row_count + 3) / 4;
}

/* A layer's slots in the array of all layers. */
static inline uint16_t *sc_store_permutation_of(uint16_t *slots, uint64_t row_count, uint32_t layer)
{
    return slots + layer * sc_store_permutation_words(row_count) * 4;
}

/* Orders each span by descending score, equal scores by position. scores [row_count], not NaN; 0:
 * unknown. rows: scratch, [row_count]. */
void sc_store_permutation_make(const float *scores, uint64_t row_count, uint64_t span_rows,
                               uint16_t *rows, uint16_t *ret_slots);
/* Returns how many of the rows [count] are not in the fullest chunks of `chunk_rows` slots, if as
 * many chunks are taken as hold all of them by `best_slots`: what a read of so many chunks would
 * miss. counts: scratch, [row_count + 1] for either. */
uint64_t sc_store_permutation_outside(const uint16_t *slots, const uint16_t *best_slots,
                                      const uint16_t *rows, uint64_t count, uint64_t row_count,
                                      uint64_t chunk_rows, uint16_t *counts, uint16_t *sizes);
/* Checks that slots are a permutation. seen: scratch, [(row_count + 63) / 64]. */
bool sc_store_permutation_is(const uint16_t *slots, uint64_t row_count, uint64_t *seen);

#endif
