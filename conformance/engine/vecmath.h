/* vecmath: element-wise and row-wise functions of the forward pass, in float.
 *
 * Sums over a row run in 16 lanes (element i in lane i mod 16, ascending, fused multiply-adds from
 * +0; missing elements of the last 16 count as +0). Then they fold in halves: lane j + lane j+8,
 * then +4, +2, +1.
 *
 * Invariants: bits depend on the row's inputs only: not on the row's place, the number of rows, the
 * thread count or the CPU level (for a NaN only its being one holds). Floating-point flags are not
 * changed; denormals are kept. Nothing is allocated. `y` may be the input if a comment says "in
 * place".
 * Threads: functions with a pool: see pool.h; without: any.
 * Tests: tests/unit/engine/test_vecmath.c */
#ifndef CONFORMANCE_ENGINE_VECMATH_H
#define CONFORMANCE_ENGINE_VECMATH_H

#include <stdbool.h>
#include <stdint.h>

#include "conformance/engine/pool.h"

/* y[i] = e^x[i], within 2 units in the last place; -infinity gives 0. In place allowed. */
void eng_exp(const float *x, uint64_t count, float *y);

/* The largest x[i]; -infinity for count 0. NaNs are passed over. */
float eng_max(const float *x, uint64_t count);

/* x[i] = e^(x[i] - max), divided by their sum; count >= 1. In place. */
void eng_softmax(float *x, uint64_t count);

/* sum of a[i] * b[i]. */
float eng_dot(const float *a, const float *b, uint64_t count);

/* x[i] = activation of x[i], in place.
 *   silu      x / (1 + e^-x)
 *   gelu      x / 2 * (1 + erf(x / sqrt 2)), by libm's erff
 *   gelu_new  the tanh form, x / (1 + e^(-2u)) with u = sqrt(2 / pi) (x + .044715 x^3)
 *   relu      x > 0 ? x : +0, NaN stays NaN */
void eng_silu(struct eng_pool *pool, float *x, uint64_t count);
void eng_gelu(struct eng_pool *pool, float *x, uint64_t count);
void eng_gelu_new(struct eng_pool *pool, float *x, uint64_t count);
void eng_relu(struct eng_pool *pool, float *x, uint64_t count);

/* gate[i] = silu(gate[i]) * up[i]: SwiGLU's middle. */
void eng_silu_mul(struct eng_pool *pool, float *gate, const float *up, uint64_t count);

/* x[i] = x[i] + y[i];  x[i] = x[i] * y[i] */
void eng_add(struct eng_pool *pool, float *x, const float *y, uint64_t count);
void eng_mul(struct eng_pool *pool, float *x, const float *y, uint64_t count);

/* y = weight * (x / sqrt(mean of x^2 + eps)), row by row. In place allowed.
 *   x, y    rows of `width` floats, *_stride apart
 *   weight  [width] */
void eng_rmsnorm(struct eng_pool *pool, const float *x, uint64_t x_stride, uint64_t rows,
                 uint64_t width, const float *weight, float eps, float *y, uint64_t y_stride);

/* y = (x - mean) / sqrt(variance + eps) * weight + bias, row by row. In place allowed.
 *   weight, bias  [width], or NULL: 1 and 0 */
void eng_layernorm(struct eng_pool *pool, const float *x, uint64_t x_stride, uint64_t rows,
                   uint64_t width, const float *weight, const float *bias, float eps, float *y,
                   uint64_t y_stride);

/* Rotary turn, in place, of `heads` heads of `head_dim` (even) that stand back to back in a row:
 * (a, b) becomes (a cos - b sin, b cos + a sin), one product of each rounded, the other fused.
 *   x          [rows], x_stride floats apart
 *   positions  [rows], each a row of the tables
 *   cos, sin   [positions][head_dim / 2], entry i for pair i
 *   interleaved: pairs are (2i, 2i + 1); else (i, i + head_dim / 2) */
void eng_rope(struct eng_pool *pool, float *x, uint64_t x_stride, uint64_t rows, uint64_t heads,
              uint64_t head_dim, const uint32_t *positions, const float *cos_table,
              const float *sin_table, bool interleaved);

/* The index of the largest x[i], the lowest one among equals; count >= 1. NaNs are passed over. */
uint64_t eng_argmax(const float *x, uint64_t count);

#endif
