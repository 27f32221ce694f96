/* rotary: rotation of keys by position (RoPE), for kernels that quantise and decode keys.
 *
 *   rope    [cos: float32 x turned / 2][sin: float32 x turned / 2]   per row, equal for all heads
 *   pairs   of a head's first `turned` channels: i and i + turned / 2 (half), or 2 i and 2 i + 1
 *           (interleaved); later channels are not rotated
 *
 *   rotated       a' = fma(-b, sin, a * cos)     b' = fma(a, sin, b * cos)
 *   rotated back  a = fma(b', sin, a' * cos)     b = fma(-a', sin, b' * cos)
 *
 * A product is rounded to float32 before the addition, the fma once, so every rung and machine
 * computes the same bits. This holds for cos and sin too: the angle is position * frequency in
 * double, then only doubles are added and multiplied. libm is not used, because its last bits
 * differ between versions.
 *
 * Invariants: cos and sin are within 1 float32 ulp of the angle's, for positions up to
 * SC_KERNELS_ROTARY_POSITIONS and frequencies from 0 to 1. The caller scales the frequencies.
 * Threads: any. Tests: tests/unit/kernels/test_rotary.c */
#ifndef SC_KERNELS_ROTARY_H
#define SC_KERNELS_ROTARY_H

#include <stdint.h>

#define SC_KERNELS_ROTARY_POSITIONS (UINT64_C(1) << 24)

enum sc_kernels_rotary_pairs { SC_KERNELS_ROTARY_HALF, SC_KERNELS_ROTARY_INTERLEAVED };

struct sc_kernels_rotary {
    uint32_t pairs;  /* enum sc_kernels_rotary_pairs */
    uint32_t turned; /* rotated channels of a head; even, at most head_size */
};

/* frequencies [turned / 2];  ret_rope [turned] */
void sc_kernels_rope_row(uint64_t position, const double *frequencies, uint64_t turned,
                         float *ret_rope);

/* Returns the channel paired with `channel`. *ret_sign is the factor of sin for the partner's value
 * in the forward rotation. */
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
