/* kernels_math: kernels of row and element functions, over simd.h, for kernels_*.c only.
 *
 * A row is processed in steps of 16 elements. The last step is padded with +0 and stores only its
 * real elements, so no element's bits depend on the row's end. Threads, Tests: see kernels.h. */
#ifndef CONFORMANCE_ENGINE_KERNELS_MATH_H
#define CONFORMANCE_ENGINE_KERNELS_MATH_H

#include <math.h>

#include "conformance/engine/kernels.h"
#include "conformance/engine/simd.h"

/* Elements i .. i+15 of x, +0 past count. */
ENG_INLINE v16 row_load(const float *x, uint64_t i, uint64_t count)
{
    return count - i >= V_LANES ? v_load(x + i) : v_load_part(x + i, count - i);
}

ENG_INLINE void row_store(float *y, uint64_t i, uint64_t count, v16 value)
{
    if (count - i >= V_LANES)
        v_store(y + i, value);
    else
        v_store_part(y + i, count - i, value);
}

/* Lanes in halves: j + (j+8), then +4, +2, +1. */
ENG_INLINE float lanes_sum(v16 a)
{
    float lane[V_LANES];
    v_store(lane, a);
    for (unsigned half = V_LANES / 2; half > 0; half /= 2) {
        for (unsigned i = 0; i < half; i++)
            lane[i] += lane[i + half];
    }
    return lane[0];
}

ENG_INLINE float lanes_max(v16 a)
{
    float lane[V_LANES];
    v_store(lane, a);
    for (unsigned half = V_LANES / 2; half > 0; half /= 2) {
        for (unsigned i = 0; i < half; i++)
            lane[i] = lane[i + half] > lane[i] ? lane[i + half] : lane[i];
    }
    return lane[0];
}

/* e^x: x = n ln 2 + r with |r| <= ln 2 / 2, a polynomial of degree 7 in r (Cephes' expf
 * coefficients), then the scaling by 2^n, which rounds once, also where the result is denormal. */
ENG_INLINE v16 v_exp(v16 x)
{
    const v16 magic = v_set1(12582912.0f); /* 1.5 * 2^23: adding it rounds to an integer */
    x = v_max(v_set1(-104.0f), x);         /* e^-104 rounds to 0; a NaN passes both bounds */
    x = v_min(v_set1(89.0f), x);           /* e^89 is infinite */
    v16 biased = v_fma(x, v_set1(1.44269504088896341f), magic);
    v16 n = v_sub(biased, magic);
    v16 r = v_fma(n, v_set1(-0.693359375f), x); /* exact: 9 bits of ln 2 */
    r = v_fma(n, v_set1(2.12194440e-4f), r);
    v16 p = v_set1(1.9875691500e-4f);
    p = v_fma(p, r, v_set1(1.3981999507e-3f));
    p = v_fma(p, r, v_set1(8.3334519073e-3f));
    p = v_fma(p, r, v_set1(4.1665795894e-2f));
    p = v_fma(p, r, v_set1(1.6666665459e-1f));
    p = v_fma(p, r, v_set1(5.0000001201e-1f));
    p = v_fma(p, v_mul(r, r), r);
    p = v_add(p, v_set1(1.0f));
    return v_scale(p, n, biased);
}

static void exp_row(const float *x, uint64_t count, float *y)
{
    for (uint64_t i = 0; i < count; i += V_LANES)
        row_store(y, i, count, v_exp(row_load(x, i, count)));
}

/* The largest x[i]. Four values at a time, since a maximum has no order to keep (but for
 * the sign of a zero, which no user of a maximum can see). */
static float max_row(const float *x, uint64_t count)
{
    v16 best[4];
    uint64_t whole = count - count % V_LANES;
    for (unsigned j = 0; j < 4; j++)
        best[j] = v_set1(-INFINITY);
    uint64_t i = 0;
    for (; i + 4 * V_LANES <= whole; i += 4 * V_LANES) {
        ENG_UNROLL
        for (unsigned j = 0; j < 4; j++) /* a NaN on the left is passed over */
            best[j] = v_max(v_load(x + i + j * V_LANES), best[j]);
    }
    for (; i < whole; i += V_LANES)
        best[0] = v_max(v_load(x + i), best[0]);
    float largest = lanes_max(v_max(v_max(best[0], best[1]), v_max(best[2], best[3])));
    for (; i < count; i++)
        largest = x[i] > largest ? x[i] : largest;
    return largest;
}

static float dot_row(const float *a, const float *b, uint64_t count)
{
    v16 sum = v_zero();
    for (uint64_t i = 0; i < count; i += V_LANES)
        sum = v_fma(row_load(a, i, count), row_load(b, i, count), sum);
    return lanes_sum(sum);
}

static float softmax_sum(float *x, uint64_t count)
{
    v16 largest = v_set1(max_row(x, count));
    v16 sum = v_zero();
    uint64_t whole = count - count % V_LANES;
    for (uint64_t i = 0; i < whole; i += V_LANES) {
        v16 e = v_exp(v_sub(v_load(x + i), largest));
        v_store(x + i, e);
        sum = v_add(sum, e);
    }
    if (whole < count) {
        v16 e = v_exp(v_sub(v_load_part(x + whole, count - whole), largest));
        v_store_part(x + whole, count - whole, e);
        sum = v_add(sum, v_load_part(x + whole, count - whole));
    }
    return lanes_sum(sum);
}

static void divide_row(const float *x, float by, uint64_t count, float *y)
{
    for (uint64_t i = 0; i < count; i += V_LANES)
        row_store(y, i, count, v_div(row_load(x, i, count), v_set1(by)));
}

/* x / (1 + e^-t) */
ENG_INLINE v16 v_gate(v16 x, v16 t)
{
    v16 one = v_set1(1.0f);
    return v_div(x, v_add(one, v_exp(v_sub(v_zero(), t))));
}

ENG_INLINE v16 v_gelu_new(v16 x)
{
    v16 cube = v_mul(v_mul(x, x), x);
    v16 inner = v_fma(cube, v_set1(0.044715f), x);
    return v_gate(x, v_mul(inner, v_set1(1.59576912160573071f))); /* 2 sqrt(2 / pi) */
}

static void activate(enum eng_activation_kind kind, float *x, uint64_t count)
{
    for (uint64_t i = 0; i < count; i += V_LANES) {
        v16 value = row_load(x, i, count);
        if (kind == ENG_KIND_SILU)
            value = v_gate(value, value);
        else if (kind == ENG_KIND_GELU_NEW)
            value = v_gelu_new(value);
        else
            value = v_max(v_zero(), value); /* returns the right one for NaN */
        row_store(x, i, count, value);
    }
}

static void silu_mul(float *gate, const float *up, uint64_t count)
{
    for (uint64_t i = 0; i < count; i += V_LANES) {
        v16 value = row_load(gate, i, count);
        row_store(gate, i, count, v_mul(v_gate(value, value), row_load(up, i, count)));
    }
}

static void add_row(float *x, const float *y, uint64_t count)
{
    for (uint64_t i = 0; i < count; i += V_LANES)
        row_store(x, i, count, v_add(row_load(x, i, count), row_load(y, i, count)));
}

static void mul_row(float *x, const float *y, uint64_t count)
{
    for (uint64_t i = 0; i < count; i += V_LANES)
        row_store(x, i, count, v_mul(row_load(x, i, count), row_load(y, i, count)));
}

static void rmsnorm_row(const float *x, uint64_t width, const float *weight, float eps, float *y)
{
    float mean = dot_row(x, x, width) / (float)width;
    v16 factor = v_set1(1.0f / sqrtf(mean + eps));
    for (uint64_t i = 0; i < width; i += V_LANES) {
        v16 value = v_mul(row_load(x, i, width), factor);
        row_store(y, i, width, v_mul(row_load(weight, i, width), value));
    }
}

static void layernorm_row(const float *x, uint64_t width, const float *weight, const float *bias,
                          float eps, float *y)
{
    v16 sum = v_zero();
    for (uint64_t i = 0; i < width; i += V_LANES)
        sum = v_add(sum, row_load(x, i, width));
    v16 mean = v_set1(lanes_sum(sum) / (float)width);
    v16 squares = v_zero();
    uint64_t whole = width - width % V_LANES;
    for (uint64_t i = 0; i < whole; i += V_LANES) {
        v16 off = v_sub(v_load(x + i), mean);
        squares = v_fma(off, off, squares);
    }
    if (whole < width) { /* the filling is +0, not the mean: it must not count */
        float last[V_LANES] = {0};
        v_store_part(last, width - whole, v_sub(v_load_part(x + whole, width - whole), mean));
        squares = v_fma(v_load(last), v_load(last), squares);
    }
    v16 factor = v_set1(1.0f / sqrtf(lanes_sum(squares) / (float)width + eps));
    for (uint64_t i = 0; i < width; i += V_LANES) {
        v16 value = v_mul(v_sub(row_load(x, i, width), mean), factor);
        if (weight != NULL)
            value = v_mul(value, row_load(weight, i, width));
        if (bias != NULL)
            value = v_add(value, row_load(bias, i, width));
        row_store(y, i, width, value);
    }
}

static void rope_half(float *a, float *b, uint64_t half, const float *cos_row, const float *sin_row)
{
    for (uint64_t i = 0; i < half; i += V_LANES) {
        v16 c = row_load(cos_row, i, half);
        v16 s = row_load(sin_row, i, half);
        v16 left = row_load(a, i, half);
        v16 right = row_load(b, i, half);
        v16 minus = v_sub(v_zero(), v_mul(right, s));
        row_store(a, i, half, v_fma(left, c, minus));
        row_store(b, i, half, v_fma(right, c, v_mul(left, s)));
    }
}

static void widen(const void *src, enum eng_dtype dtype, uint64_t count, float *dst)
{
    if (dtype == ENG_F32) {
        memcpy(dst, src, count * sizeof(*dst));
        return;
    }
    const uint16_t *half = src;
    uint64_t whole = count - count % V_LANES;
    for (uint64_t i = 0; i < whole; i += V_LANES)
        v_store(dst + i, dtype == ENG_F16 ? v_load_f16(half + i) : v_load_bf16(half + i));
    for (uint64_t i = whole; i < count; i++) {
        uint16_t bits = half_get(half + i);
        dst[i] = dtype == ENG_F16 ? eng_f16_to_f32(bits) : eng_bf16_to_f32(bits);
    }
}

static void narrow(const float *src, enum eng_dtype dtype, uint64_t count, void *dst)
{
    if (dtype == ENG_F32) {
        memcpy(dst, src, count * sizeof(*src));
        return;
    }
    uint16_t *half = dst;
    uint64_t whole = count - count % V_LANES;
    for (uint64_t i = 0; i < whole; i += V_LANES) {
        if (dtype == ENG_F16)
            v_store_f16(half + i, v_load(src + i));
        else
            v_store_bf16(half + i, v_load(src + i));
    }
    for (uint64_t i = whole; i < count; i++)
        half_put(half + i, dtype == ENG_F16 ? eng_f32_to_f16(src[i]) : eng_f32_to_bf16(src[i]));
}

#endif
