/* How many bits each channel of free widths gets (bitplanes.h), by reverse water-filling.
 *
 *   error of a channel  weight * share of bits   weight = E[q^2] * range^2
 *   share               what is left of the square error of 128 values of a normal distribution, in
 *                       1/12 of range^2: .444 .172 .061, then 4^-bits
 *   unit                8 channels of a group, neighbours by weight: a byte of each plane
 *   each byte of a row  to the unit whose error it makes smaller by most
 *
 * Holds: a row has exactly row_bytes; the same weights give the same widths on every machine (ties
 * go to the plane above, then to the unit of lower channels).
 * Does not: allocate. Source: docs/decisions/0030-tables-of-widths.md. Threads: any.
 * Tests: tests/unit/kernels/test_allot.c */
#ifndef SC_KERNELS_ALLOT_H
#define SC_KERNELS_ALLOT_H

#include <stdbool.h>
#include <stdint.h>

/* weights [head_count * head_size] finite, not negative; head_size a multiple of 8
 * row_bytes <= head_count * head_size;  ret_to [head_count * head_size] 0 .. 8
 * scratch   sc_kernels_allot_scratch_bytes(head_count * head_size), 8-aligned */
uint64_t sc_kernels_allot_scratch_bytes(uint64_t channels);
void sc_kernels_allot(const float *weights, uint64_t head_count, uint64_t head_size,
                      uint64_t row_bytes, void *scratch, uint8_t *ret_to);
/* Sum over channels of weight * share of bits. */
double sc_kernels_allot_error(const float *weights, uint64_t channels, const uint8_t *to);

#endif
