/* dtype.h: converts numbers to float32 and back in plain C, the reference for all rungs. */
#include "kernels/dtype.h"
#include "kernels/kernels.h"

#include <math.h>
#include <string.h>

static float from_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

static uint32_t bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

static void widen_f32(float *dst, const uint8_t *src, uint64_t count)
{
    memcpy(dst, src, count * sizeof(*dst));
}

static void narrow_f32(uint8_t *dst, const float *src, uint64_t count)
{
    memcpy(dst, src, count * sizeof(*src));
}

/* IEEE binary16 -> binary32: rebias 15 -> 127; subnormals by an exact multiplication with 2^-24; a
 * signalling NaN becomes quiet, as in hardware. */
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

/* Values out of range become infinity. */
static uint16_t narrow_one_f16(float value)
{
    uint32_t sign = bits_of(value) >> 16 & 0x8000u, magnitude = bits_of(value) & 0x7fffffffu;
    if (magnitude >= 0x477ff000u) /* 65,520: the smallest that rounds to 2^16 */
        return (uint16_t)(sign | 0x7c00u);
    if (magnitude < 0x38800000u) {         /* below 2^-14: whole multiples of 2^-24 */
        float whole = fabsf(value) + 0.5f; /* 0.5 has an ulp of 2^-24: the sum is rounded there */
        return (uint16_t)(sign | (bits_of(whole) - bits_of(0.5f)));
    }
    uint32_t odd = magnitude >> 13 & 1;
    return (uint16_t)(sign | ((magnitude - (112u << 23) + 0xfffu + odd) >> 13));
}

static float widen_one_bf16(uint16_t half)
{
    return from_bits((uint32_t)half << 16);
}

static uint16_t narrow_one_bf16(float value)
{
    return (uint16_t)((bits_of(value) + 0x7fffu + (bits_of(value) >> 16 & 1)) >> 16);
}

#define EACH(name, element)                                                                        \
    static void widen_##name(float *dst, const uint8_t *src, uint64_t count)                       \
    {                                                                                              \
        for (uint64_t i = 0; i < count; i++) {                                                     \
            element one;                                                                           \
            memcpy(&one, src + i * sizeof(one), sizeof(one));                                      \
            dst[i] = widen_one_##name(one);                                                        \
        }                                                                                          \
    }                                                                                              \
    static void narrow_##name(uint8_t *dst, const float *src, uint64_t count)                      \
    {                                                                                              \
        for (uint64_t i = 0; i < count; i++) {                                                     \
            element one = narrow_one_##name(src[i]);                                               \
            memcpy(dst + i * sizeof(one), &one, sizeof(one));                                      \
        }                                                                                          \
    }
EACH(f16, uint16_t)
EACH(bf16, uint16_t)

const struct sc_kernels_dtype_row sc_kernels_dtypes[SC_KERNELS_DTYPES] = {
    [SC_KERNELS_F32] = {4, widen_f32, narrow_f32},
    [SC_KERNELS_F16] = {2, widen_f16, narrow_f16},
    [SC_KERNELS_BF16] = {2, widen_bf16, narrow_bf16},
};

void sc_kernels_ref_widen(float *dst, const uint8_t *src, uint64_t count, uint32_t dtype)
{
    sc_kernels_dtypes[dtype].widen(dst, src, count);
}
