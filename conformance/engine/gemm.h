/* gemm: linear layers y = x W^T + bias, with one order of the sum for every output element.
 *
 * Weights are Hugging Face's [outputs n][inputs k], packed into panels of 32 outputs. They keep
 * their 16- or 32-bit type and are widened in registers, which is exact:
 *
 *   panel 0: k rows of 32 outputs      panel 1: outputs 32..63      last: filled with zeros
 *   +----------------------------+     +--------------------+
 *   | w[0..31][0]                |     | w[32..63][0]       |
 *   | w[0..31][1]                |     | ...                |
 *   +----------------------------+
 *
 * An output element is, with B = ENG_GEMM_K_BLOCK and s_b the sum over inputs bB .. bB + B - 1, one
 * chain of fused multiply-adds in ascending order that starts at +0:
 *
 *   y[i][j] = y_old[i][j] + ((((s_0 + s_1) + s_2) + ...) + bias[j])     (terms absent are left out)
 *
 * Invariants: the bits of a row of y depend on that row of x, the weights, the bias and that row's
 * old y only: not on m, the row's place, the thread count or the CPU level. (For a NaN only its
 * being one holds.) Nothing is allocated during a multiplication.
 * Threads: one caller at a time (pool.h); several pools may share weights.
 * Tests: tests/unit/engine/test_gemm.c */
#ifndef CONFORMANCE_ENGINE_GEMM_H
#define CONFORMANCE_ENGINE_GEMM_H

#include <stdbool.h>
#include <stdint.h>

#include "conformance/engine/error.h"
#include "conformance/engine/halffloat.h"
#include "conformance/engine/pool.h"

#define ENG_GEMM_K_BLOCK 192u
#define ENG_GEMM_PANEL   32u

struct eng_weights;

/* Packs `source` ([outputs][inputs], row-major, of `dtype`, any alignment), which is not needed
 * afterwards. Errors: ENG_E_INVALID (a zero count or a size past 2^48 bytes), ENG_E_NO_MEMORY. */
eng_status eng_weights_pack(struct eng_pool *pool, const void *source, enum eng_dtype dtype,
                            uint64_t outputs, uint64_t inputs, struct eng_weights **ret_weights,
                            struct eng_error *reterr);

/* NULL is allowed. */
void eng_weights_free(struct eng_weights *weights);

uint64_t eng_weights_outputs(const struct eng_weights *weights);
uint64_t eng_weights_inputs(const struct eng_weights *weights);

/* Bytes that one multiplication streams: panels, with the filling of the last one. */
uint64_t eng_weights_bytes(const struct eng_weights *weights);

/* Writes weight row `output` widened to float, so that a tied token table needs no second copy.
 *   ret_row [inputs] */
void eng_weights_row(const struct eng_weights *weights, uint64_t output, float *ret_row);

/* One multiplication. Rows of x and y are `*_stride` floats apart; x and y do not overlap. */
struct eng_gemm_job {
    const struct eng_weights *weights;
    const float *x;    /* [m][inputs] */
    const float *bias; /* [outputs], or NULL: none */
    float *y;          /* [m][outputs], and nothing else */
    uint64_t x_stride, y_stride;
    uint64_t outputs; /* only the first so many; 0: all */
    bool accumulate;  /* adds to the old y: the residual connection */
};

/* Runs jobs that do not read each other's outputs (q, k and v; gate and up), all with m rows, in
 * one go of the pool. m may be 0. */
void eng_gemm_many(struct eng_pool *pool, const struct eng_gemm_job *jobs, uint64_t job_count,
                   uint64_t m);

/* One job. */
void eng_gemm(struct eng_pool *pool, const struct eng_weights *weights, const float *x,
              uint64_t x_stride, uint64_t m, const float *bias, bool accumulate, float *y,
              uint64_t y_stride);

#endif
