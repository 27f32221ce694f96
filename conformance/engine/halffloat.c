/* halffloat: converts single values in integers; arrays use the kernels. See halffloat.h.
 *
 *   f32: s eeeeeeee mmmmmmmmmmmmmmmmmmmmmmm   f16: s eeeee mmmmmmmmmm   bf16: upper half of f32 */
#include "conformance/engine/halffloat.h"

#include <string.h>

#include "conformance/engine/kernels.h"

static float as_float(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

static uint32_t as_bits(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

uint64_t eng_dtype_bytes(enum eng_dtype dtype)
{
    return dtype == ENG_F32 ? 4 : 2;
}

const char *eng_dtype_name(enum eng_dtype dtype)
{
    static const char *const names[ENG_DTYPES] = {"f32", "f16", "bf16"};
    return names[dtype];
}

float eng_f16_to_f32(uint16_t bits)
{
    uint32_t sign = (uint32_t)(bits & 0x8000u) << 16;
    uint32_t exponent = (bits >> 10) & 0x1fu;
    uint32_t mantissa = bits & 0x3ffu;
    if (exponent == 0x1f)
        return as_float(sign | 0x7f800000u | (mantissa == 0 ? 0 : 0x400000u | mantissa << 13));
    if (exponent != 0)
        return as_float(sign | (exponent + 112u) << 23 | mantissa << 13);
    return as_float(sign | as_bits((float)mantissa * 0x1p-24f)); /* zero or denormal: exact */
}

float eng_bf16_to_f32(uint16_t bits)
{
    return as_float((uint32_t)bits << 16);
}

uint16_t eng_f32_to_f16(float value)
{
    uint32_t bits = as_bits(value);
    uint32_t sign = (bits >> 16) & 0x8000u;
    uint32_t rest = bits & 0x7fffffffu;
    if (rest > 0x7f800000u) /* NaN: quiet, with the upper payload bits */
        return (uint16_t)(sign | 0x7e00u | ((rest >> 13) & 0x3ffu));
    if (rest >= 0x477ff000u) /* 65520 and above round to infinity */
        return (uint16_t)(sign | 0x7c00u);
    if (rest >= 0x38800000u) { /* 2^-14 and above: normal; a carry may raise the exponent */
        uint32_t rounded = rest + 0xfffu + ((rest >> 13) & 1u);
        return (uint16_t)(sign | ((rounded >> 13) - (112u << 10)));
    }
    if (rest < 0x33000000u) /* below 2^-25 (and 2^-25 itself is a tie to even): zero */
        return (uint16_t)sign;
    uint32_t shift = 126u - (rest >> 23); /* 14 .. 24: the result counts units of 2^-24 */
    uint32_t mantissa = 0x800000u | (rest & 0x7fffffu);
    uint32_t kept = mantissa >> shift;
    uint32_t cut = mantissa & ((1u << shift) - 1u);
    uint32_t tie = 1u << (shift - 1u);
    kept += cut > tie || (cut == tie && (kept & 1u) != 0) ? 1u : 0u;
    return (uint16_t)(sign | kept);
}

uint16_t eng_f32_to_bf16(float value)
{
    uint32_t bits = as_bits(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u)
        return (uint16_t)((bits >> 16) | 0x40u);
    return (uint16_t)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

void eng_widen(const void *src, enum eng_dtype dtype, uint64_t count, float *dst)
{
    eng_kernels_get()->widen(src, dtype, count, dst);
}

void eng_narrow(const float *src, enum eng_dtype dtype, uint64_t count, void *dst)
{
    eng_kernels_get()->narrow(src, dtype, count, dst);
}
