/* allot: assigns bits to channels of quantised rows (bitplanes.h) by reverse water-filling.
 *
 *   error of a channel  weight * share(bits)   weight = E[q^2] * range^2
 *   share(bits)         remaining square error of 128 normally distributed values, in units of
 *                       range^2 / 12: 0.444 0.172 0.061, then 4^-bits
 *   unit                8 channels of a group with adjacent weights: one byte of each plane
 *   each byte of a row  assigned to the unit whose error it reduces most
 *
 * Invariants: a row has exactly row_bytes. Equal weights give equal bits on every machine: ties
 * select the higher plane, then the unit of lower channels. Nothing is allocated.
 * Source: docs/decisions/0030-tables-of-widths.md. Threads: any.
 * Tests: tests/unit/kernels/test_allot.c */
#ifndef SC_KERNELS_ALLOT_H
#define SC_KERNELS_ALLOT_H

#include <stdbool.h>
#include <stdint.h>

/* weights   [head_count * head_size] finite, not negative; head_size a multiple of 8
 * row_bytes <= head_count * head_size;  ret_to [head_count * head_size] 0 .. 8
 * scratch   sc_kernels_allot_scratch_bytes(head_count * head_size), 8-aligned */
uint64_t sc_kernels_allot_scratch_bytes(uint64_t channels);
void sc_kernels_allot(const float *weights, uint64_t head_count, uint64_t head_size,
                      uint64_t row_bytes, void *scratch, uint8_t *ret_to);
/* Returns the sum of weight * share(bits) over all channels. */
double sc_kernels_allot_error(const float *weights, uint64_t channels, const uint8_t *to);

#endif
