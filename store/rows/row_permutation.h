/* The order of an extent's rows, layer by layer: which slot each row stands in
 * (docs/decisions/0045; IMPRESS section 4.4.1, there the mapping list m of a node, s'[m] = s).
 *
 *   rows     [t0][t1][t2][t3]      as they were stored; t0 and t3 are wanted most
 *   slots     0   2   3   1        m: row r stands in slot slots[r]
 *   ordered  [t0][t3][t1][t2]      on the disk
 *
 * A span is so many rows, from the extent's first on; none leaves its own.
 *
 * Holds: slots of a layer are a permutation of the extent's rows, also where some are void.
 * Threads: any.
 * Tests: tests/unit/store/test_row_permutation.c */
#ifndef SC_STORE_ROWS_ROW_PERMUTATION_H
#define SC_STORE_ROWS_ROW_PERMUTATION_H

#include <stdbool.h>
#include <stdint.h>

/* Words of 8 bytes that a layer's slots take. */
static inline uint64_t sc_store_permutation_words(uint64_t row_count)
{
    return (row_count + 3) / 4;
}

/* The slots of a layer, of all layers' in a row. */
static inline uint16_t *sc_store_permutation_of(uint16_t *slots, uint64_t row_count, uint32_t layer)
{
    return slots + layer * sc_store_permutation_words(row_count) * 4;
}

/* scores [row_count], not NaN: what a row is worth; 0: nobody knows. In each span rows in
 * descending score, equal ones by position. rows: scratch, [row_count]. */
void sc_store_permutation_make(const float *scores, uint64_t row_count, uint64_t span_rows,
                               uint16_t *rows, uint16_t *ret_slots);
/* Whether they are a permutation; seen: scratch, one bit a row, [(row_count + 63) / 64]. */
bool sc_store_permutation_is(const uint16_t *slots, uint64_t row_count, uint64_t *seen);

#endif
