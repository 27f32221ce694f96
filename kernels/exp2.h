/* exp2: 2^x for x <= 0 in float32, by the same polynomial on every rung; error within 2 ulp.
 *
 *   x = n + f, n = round(x), f in [-0.5, 0.5]     2^x = 2^n * P(f)
 *   P: degree 5, least relative error (Remez: 7.5e-8; P(0) is then set to 1)
 *
 * Invariants: below SC_KERNELS_EXP2_LEAST the result is 0, never a denormal, which would cost
 * hundreds of cycles in later operations. NaN stays NaN.
 * Threads: any. Tests: tests/unit/kernels/test_importance.c */
#ifndef SC_KERNELS_EXP2_H
#define SC_KERNELS_EXP2_H

#include "kernels/exp2_terms.h"

#include <stdint.h>
#include <string.h>

/* Requires SC_KERNELS_EXP2_LEAST <= x <= 0. */
static inline float sc_kernels_exp2_normal(float x)
{
    float rounded = x + SC_KERNELS_EXP2_ROUND;
    float whole = rounded - SC_KERNELS_EXP2_ROUND, f = x - whole;
    float p = SC_KERNELS_EXP2_P5;
    p = p * f + SC_KERNELS_EXP2_P4;
    p = p * f + SC_KERNELS_EXP2_P3;
    p = p * f + SC_KERNELS_EXP2_P2;
    p = p * f + SC_KERNELS_EXP2_P1;
    p = p * f + 1.0f;
    uint32_t bits = (uint32_t)((int32_t)whole + 127) << 23;
    float power;
    memcpy(&power, &bits, sizeof(power));
    return p * power;
}

static inline float sc_kernels_exp2(float x)
{
    if (x < SC_KERNELS_EXP2_LEAST)
        return 0;
    if (!(x <= 0)) /* NaN: no caller passes x > 0 */
        return x;
    return sc_kernels_exp2_normal(x);
}

#endif
