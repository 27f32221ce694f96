/* kernels: the table of inner kernels, one per CPU level; internal to gemm.c, attention.c and
 * vecmath.c.
 *
 * For the same arguments every table writes the same bits (NaN payloads aside).
 * Threads: any. Tests: through test_gemm.c, test_attention.c and test_vecmath.c. */
#ifndef CONFORMANCE_ENGINE_KERNELS_H
#define CONFORMANCE_ENGINE_KERNELS_H

#include <stdint.h>

#include "conformance/engine/halffloat.h"

#define ENG_TILE_COLUMNS 32u /* outputs of a panel, columns of a tile */
#define ENG_TILE_ROWS    14u /* no level's tile has more rows */
#define ENG_STREAM_MAX   4u  /* panels of one stream call */

enum eng_tile_mode {
    ENG_TILE_SET,     /* c = chain from +0 */
    ENG_TILE_ADD,     /* c = c + chain from +0 */
    ENG_TILE_CONTINUE /* c = chain from c */
};

enum eng_activation_kind { ENG_KIND_SILU, ENG_KIND_GELU_NEW, ENG_KIND_RELU };

struct eng_kernels {
    uint64_t tile_rows; /* the most rows that one tile call takes */

    /* c[r][j] by `mode` from the fused chain over kk < k of a[r][kk] * b[kk][j], j < 32.
     *   a  rows `lda` apart     b  [k][32] of dtype     c  rows `ldc` apart */
    void (*tile)(const float *a, uint64_t lda, const void *b, enum eng_dtype dtype, uint64_t k,
                 float *c, uint64_t ldc, uint64_t rows, enum eng_tile_mode mode);

    /* One row times `panels` (1 .. ENG_STREAM_MAX) whole panels that stand `panel_step` values
     * apart: block sums of ENG_GEMM_K_BLOCK, added in order.   c  [panels][32] */
    void (*stream)(const float *x, const void *b, uint64_t panel_step, enum eng_dtype dtype,
                   uint64_t k, uint64_t panels, float *c);

    /* y = [y +] (c [+ bias]) for `columns` <= 32 columns of one row; bias may be NULL. */
    void (*finish)(const float *c, const float *bias, int accumulate, uint64_t columns, float *y);

    void (*widen)(const void *src, enum eng_dtype dtype, uint64_t count, float *dst);
    void (*narrow)(const float *src, enum eng_dtype dtype, uint64_t count, void *dst);

    void (*exp)(const float *x, uint64_t count, float *y);
    float (*max)(const float *x, uint64_t count);
    float (*dot)(const float *a, const float *b, uint64_t count);

    /* x[i] = e^(x[i] - largest x[i]); returns their sum in the order of vecmath.h. count >= 1. */
    float (*softmax_sum)(float *x, uint64_t count);
    void (*divide)(const float *x, float by, uint64_t count, float *y);

    void (*activate)(enum eng_activation_kind kind, float *x, uint64_t count);
    void (*silu_mul)(float *gate, const float *up, uint64_t count);
    void (*add)(float *x, const float *y, uint64_t count);
    void (*mul)(float *x, const float *y, uint64_t count);
    void (*rmsnorm)(const float *x, uint64_t width, const float *weight, float eps, float *y);
    void (*layernorm)(const float *x, uint64_t width, const float *weight, const float *bias,
                      float eps, float *y);
    /* One head: `half` pairs (a[i], b[i]). */
    void (*rope)(float *a, float *b, uint64_t half, const float *cos_row, const float *sin_row);

    /* dst[j][r] = rows[r][j] widened, for r < 32 and j < width; dst [width][32]. */
    void (*transpose)(const void *const *rows, enum eng_dtype dtype, uint64_t width, float *dst);

    /* dst[p][r][j] = rows[r][32 p + j] widened, +0 past width; dst [panels][panel_rows][32]. */
    void (*panels)(const void *const *rows, uint64_t row_count, enum eng_dtype dtype,
                   uint64_t width, uint64_t panel_rows, float *dst);
};

extern const struct eng_kernels eng_kernels_plain;
extern const struct eng_kernels eng_kernels_avx2;
extern const struct eng_kernels eng_kernels_avx512;

/* The table of eng_cpu_get(). */
const struct eng_kernels *eng_kernels_get(void);

#endif
