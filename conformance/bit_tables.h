/* bit_tables: recomputes quantised rows with per-channel bits from the truth and from the tables at
 * the start of the store's blocks (docs/reference/store-format.md).
 *
 *   rows of a slab, rope undone  ->  scales  ->  their place in a file: a block
 *   block   [head][table][scales][codes]   ->  bits of each channel; codes, which are compared
 *   codes by the table  ->  numbers, rope applied again
 *
 * Rope uses libm's cosine and sine in double, rounded once to float32. Blocks are found by their
 * scales.
 * Threads: one. Tests: see fixture.h. */
#ifndef CONFORMANCE_BIT_TABLES_H
#define CONFORMANCE_BIT_TABLES_H

#include "conformance/quantised.h"

struct bit_counts {
    uint32_t halves[2];                       /* bits a channel on average, of K, of V; in halves */
    float numbers[3][2][ROWS_MAX][CHANNELS];  /* [layer][K, V][position], what codes stand for */
    uint32_t least[2], most[2];               /* bits that a channel has, of all that was read */
    uint8_t tables[3][2][ROWS_MAX][CHANNELS]; /* bits of each channel, of each row */
};

/* Whether the part has tables: K always, V where its bits are none that even codes have. */
bool bits_has(const struct bit_counts *bit_counts, int value);
/* Configures free widths, with no store open or one that is closed for it. */
void bits_configure(struct fixture *fx, const struct bit_counts *bit_counts);
/* Finds the blocks of all rows that are matched and works out what their codes stand for; the store
 * is closed for it, and opened again. False: they are not there (hits required: that fails). */
bool bits_read(struct quantised *quantised);

#endif
