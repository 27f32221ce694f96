/* Widening 16-bit floats to float32, plain C: the reference of every other rung. Adds: nothing.
 *
 * Threads: any. Tests: tests/unit/kernels/test_widen.c */
#include "kernels/kernels.h"

#include <string.h>

static float from_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

/* IEEE binary16 -> binary32: rebias 15 -> 127; subnormals by an exact multiplication with 2^-24;
 * a signalling NaN becomes quiet, as the hardware conversion makes it. */
static float widen_one_f16(uint16_t half)
{
    uint32_t sign = (uint32_t)(half & 0x8000u) << 16;
    uint32_t exponent = half >> 10 & 0x1fu;
    uint32_t fraction = half & 0x3ffu;
    if (exponent == 0x1f)
        return from_bits(sign | 0x7f800000u | fraction << 13 | (fraction ? 0x00400000u : 0));
    if (exponent == 0) {
        float magnitude = (float)fraction * 0x1p-24f;
        return sign ? -magnitude : magnitude;
    }
    return from_bits(sign | (exponent + 112) << 23 | fraction << 13);
}

void sc_kernels_ref_widen_f16(float *dst, const uint16_t *src, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++)
        dst[i] = widen_one_f16(src[i]);
}

void sc_kernels_ref_widen_bf16(float *dst, const uint16_t *src, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++)
        dst[i] = from_bits((uint32_t)src[i] << 16);
}
