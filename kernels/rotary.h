/* The rotary turn of keys by their position, as kernels that decode and code keys want it.
 *
 *   turn    [cos: float32 x turned / 2][sin: float32 x turned / 2]      a row's, of all heads
 *   pairs   of a head's first `turned` channels: i and i + turned / 2 (half), or 2 i and 2 i + 1
 *           (interleaved); channels behind them are not turned
 *
 *   turned       a' = fma(-b, sin, a * cos)     b' = fma(a, sin, b * cos)
 *   turned back  a = fma(b', sin, a' * cos)     b = fma(-a', sin, b' * cos)
 *
 * A product is rounded to float32 before it is added to, the fma once: the same bits on every rung
 * and machine. So are cos and sin: the angle is position * frequency in double, and what follows
 * adds and multiplies doubles alone (no libm, whose last bits differ from version to version).
 *
 * Holds: cos and sin within 1 unit in the last place of float32 of the angle's, for positions up to
 *   SC_KERNELS_ROTARY_POSITIONS and frequencies from 0 to 1.
 * Does not: know how a model spaces or scales its frequencies. Threads: any.
 * Tests: tests/unit/kernels/test_rotary.c */
#ifndef SC_KERNELS_ROTARY_H
#define SC_KERNELS_ROTARY_H

#include <stdint.h>

#define SC_KERNELS_ROTARY_POSITIONS (UINT64_C(1) << 24)

enum sc_kernels_rotary_pairs { SC_KERNELS_ROTARY_HALF, SC_KERNELS_ROTARY_INTERLEAVED };

struct sc_kernels_rotary {
    uint32_t pairs;  /* enum sc_kernels_rotary_pairs */
    uint32_t turned; /* channels of a head; even, at most head_size */
};

/* frequencies [turned / 2];  ret_rope [turned] */
void sc_kernels_rope_row(uint64_t position, const double *frequencies, uint64_t turned,
                         float *ret_rope);

/* The channel that turns with this one, and how: *ret_sign is what sin is multiplied with where the
 * partner's value is added, turning forth. */
static inline uint64_t sc_kernels_rotary_partner(const struct sc_kernels_rotary *rotary,
                                                 uint64_t channel, uint64_t *ret_pair,
                                                 float *ret_sign)
{
    uint64_t half = rotary->turned / 2;
    if (rotary->pairs == SC_KERNELS_ROTARY_INTERLEAVED) {
        *ret_pair = channel / 2;
        *ret_sign = channel % 2 == 0 ? -1.0f : 1.0f;
        return channel ^ 1;
    }
    *ret_pair = channel % half;
    *ret_sign = channel < half ? -1.0f : 1.0f;
    return channel < half ? channel + half : channel - half;
}

#endif
