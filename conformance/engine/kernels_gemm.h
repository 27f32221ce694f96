/* kernels_gemm: kernels of the matrix product, over simd.h, for kernels_*.c only.
 *
 *            b [k][32]                      The tile's accumulators stay in registers: AVX-512
 *          +-----------+                    14 rows x 2 values of 16 lanes, AVX2 6 x 1, plain
 *   a      |           |                    4 x 1. Lanes are outputs, never inputs, so a chain
 *   rows x k  -> c [rows][32]               runs over k in order whatever the tile's shape.
 *
 * Threads, Tests: see kernels.h. */
#ifndef CONFORMANCE_ENGINE_KERNELS_GEMM_H
#define CONFORMANCE_ENGINE_KERNELS_GEMM_H

#include "conformance/engine/gemm.h"
#include "conformance/engine/kernels.h"
#include "conformance/engine/simd.h"

#if defined(__AVX512F__)
#define TILE_ROWS   14
#define TILE_WIDTH  2 /* values of 16 lanes side by side */
#define STREAM_SIDE 4 /* panels that a stream reads side by side */
#elif defined(__AVX2__)
#define TILE_ROWS   6
#define TILE_WIDTH  1
#define STREAM_SIDE 2
#else
#define TILE_ROWS   4
#define TILE_WIDTH  1
#define STREAM_SIDE 1
#endif

#define ROW_GROUP 5 /* rows that one pointer reaches with the addressing modes of x86 */

ENG_INLINE void tile_fixed(const float *a, uint64_t lda, const void *b, enum eng_dtype dtype,
                           uint64_t k, float *c, uint64_t ldc, enum eng_tile_mode mode,
                           const unsigned rows)
{
    const float *group[3] = {a, a + (rows > ROW_GROUP ? ROW_GROUP * lda : 0),
                             a + (rows > 2 * ROW_GROUP ? 2 * ROW_GROUP * lda : 0)};
    for (uint64_t column = 0; column < ENG_TILE_COLUMNS; column += V_LANES * TILE_WIDTH) {
        v16 sum[TILE_ROWS][TILE_WIDTH];
        ENG_UNROLL
        for (unsigned r = 0; r < rows; r++) {
            ENG_UNROLL
            for (unsigned w = 0; w < TILE_WIDTH; w++)
                sum[r][w] = mode == ENG_TILE_CONTINUE ? v_load(c + r * ldc + column + w * V_LANES)
                                                      : v_zero();
        }
        for (uint64_t kk = 0; kk < k; kk++) {
            v16 weight[TILE_WIDTH];
            ENG_UNROLL
            for (unsigned w = 0; w < TILE_WIDTH; w++)
                weight[w] = v_load_as(b, kk * ENG_TILE_COLUMNS + column + w * V_LANES, dtype);
            ENG_UNROLL
            for (unsigned r = 0; r < rows; r++) {
                v16 x = v_set1(group[r / ROW_GROUP][(r % ROW_GROUP) * lda + kk]);
                ENG_UNROLL
                for (unsigned w = 0; w < TILE_WIDTH; w++)
                    sum[r][w] = v_fma(x, weight[w], sum[r][w]);
            }
        }
        ENG_UNROLL
        for (unsigned r = 0; r < rows; r++) {
            ENG_UNROLL
            for (unsigned w = 0; w < TILE_WIDTH; w++) {
                float *out = c + r * ldc + column + w * V_LANES;
                v_store(out, mode == ENG_TILE_ADD ? v_add(v_load(out), sum[r][w]) : sum[r][w]);
            }
        }
    }
}

#define TILE_CASE(rows_, dtype_)                                                                   \
    case rows_:                                                                                    \
        tile_fixed(a, lda, b, dtype_, k, c, ldc, mode, rows_);                                     \
        break;

#if TILE_ROWS == 14
#define TILE_MORE_CASES(dtype_)                                                                    \
    TILE_CASE(5, dtype_)                                                                           \
    TILE_CASE(6, dtype_)                                                                           \
    TILE_CASE(7, dtype_)                                                                           \
    TILE_CASE(8, dtype_)                                                                           \
    TILE_CASE(9, dtype_)                                                                           \
    TILE_CASE(10, dtype_)                                                                          \
    TILE_CASE(11, dtype_)                                                                          \
    TILE_CASE(12, dtype_)                                                                          \
    TILE_CASE(13, dtype_)                                                                          \
    TILE_CASE(14, dtype_)
#elif TILE_ROWS == 6
#define TILE_MORE_CASES(dtype_)                                                                    \
    TILE_CASE(5, dtype_)                                                                           \
    TILE_CASE(6, dtype_)
#else
#define TILE_MORE_CASES(dtype_)
#endif

#define TILE_FUNCTION(name_, dtype_)                                                               \
    static void name_(const float *a, uint64_t lda, const void *b, uint64_t k, float *c,           \
                      uint64_t ldc, uint64_t rows, enum eng_tile_mode mode)                        \
    {                                                                                              \
        switch (rows) {                                                                            \
            TILE_CASE(1, dtype_)                                                                   \
            TILE_CASE(2, dtype_)                                                                   \
            TILE_CASE(3, dtype_)                                                                   \
            TILE_CASE(4, dtype_)                                                                   \
            TILE_MORE_CASES(dtype_)                                                                \
        default:                                                                                   \
            break;                                                                                 \
        }                                                                                          \
    }

TILE_FUNCTION(tile_f32, ENG_F32)
TILE_FUNCTION(tile_f16, ENG_F16)
TILE_FUNCTION(tile_bf16, ENG_BF16)

static void tile(const float *a, uint64_t lda, const void *b, enum eng_dtype dtype, uint64_t k,
                 float *c, uint64_t ldc, uint64_t rows, enum eng_tile_mode mode)
{
    if (dtype == ENG_F32)
        tile_f32(a, lda, b, k, c, ldc, rows, mode);
    else if (dtype == ENG_F16)
        tile_f16(a, lda, b, k, c, ldc, rows, mode);
    else
        tile_bf16(a, lda, b, k, c, ldc, rows, mode);
}

/* `side` panels side by side: enough chains to hide the multiplier's latency behind the loads. */
ENG_INLINE void stream_fixed(const float *x, const void *b, uint64_t panel_step,
                             enum eng_dtype dtype, uint64_t k, float *c, const unsigned side)
{
    for (uint64_t block = 0; block < k; block += ENG_GEMM_K_BLOCK) {
        uint64_t end = k - block < ENG_GEMM_K_BLOCK ? k : block + ENG_GEMM_K_BLOCK;
        v16 sum[STREAM_SIDE][2];
        ENG_UNROLL
        for (unsigned s = 0; s < side; s++) {
            sum[s][0] = v_zero();
            sum[s][1] = v_zero();
        }
        for (uint64_t kk = block; kk < end; kk++) {
            v16 value = v_set1(x[kk]);
            ENG_UNROLL
            for (unsigned s = 0; s < side; s++) {
                uint64_t at = s * panel_step + kk * ENG_TILE_COLUMNS;
                sum[s][0] = v_fma(value, v_load_as(b, at, dtype), sum[s][0]);
                sum[s][1] = v_fma(value, v_load_as(b, at + V_LANES, dtype), sum[s][1]);
            }
        }
        ENG_UNROLL
        for (unsigned s = 0; s < side * 2; s++) {
            float *out = c + s * V_LANES;
            v_store(out, block == 0 ? sum[s / 2][s % 2] : v_add(v_load(out), sum[s / 2][s % 2]));
        }
    }
}

ENG_INLINE void stream_as(const float *x, const void *b, uint64_t panel_step, enum eng_dtype dtype,
                          uint64_t k, uint64_t panels, float *c)
{
    const uint8_t *from = b;
    uint64_t step_bytes = panel_step * (dtype == ENG_F32 ? 4 : 2);
    while (panels > 0) {
        uint64_t side = panels < STREAM_SIDE ? panels : STREAM_SIDE;
        switch (side) {
#if STREAM_SIDE == 4
        case 4:
            stream_fixed(x, from, panel_step, dtype, k, c, 4);
            break;
        case 3:
            stream_fixed(x, from, panel_step, dtype, k, c, 3);
            break;
#endif
#if STREAM_SIDE >= 2
        case 2:
            stream_fixed(x, from, panel_step, dtype, k, c, 2);
            break;
#endif
        default:
            stream_fixed(x, from, panel_step, dtype, k, c, 1);
            break;
        }
        panels -= side;
        from += side * step_bytes;
        c += side * ENG_TILE_COLUMNS;
    }
}

static void stream(const float *x, const void *b, uint64_t panel_step, enum eng_dtype dtype,
                   uint64_t k, uint64_t panels, float *c)
{
    if (dtype == ENG_F32)
        stream_as(x, b, panel_step, ENG_F32, k, panels, c);
    else if (dtype == ENG_F16)
        stream_as(x, b, panel_step, ENG_F16, k, panels, c);
    else
        stream_as(x, b, panel_step, ENG_BF16, k, panels, c);
}

static void finish(const float *c, const float *bias, int accumulate, uint64_t columns, float *y)
{
    for (uint64_t j = 0; j < columns; j += V_LANES) {
        uint64_t left = columns - j;
        int whole = left >= V_LANES;
        v16 value = v_load(c + j); /* a tile's row is always 32 wide */
        if (bias != NULL)
            value = v_add(value, whole ? v_load(bias + j) : v_load_part(bias + j, left));
        if (accumulate)
            value = v_add(whole ? v_load(y + j) : v_load_part(y + j, left), value);
        if (whole)
            v_store(y + j, value);
        else
            v_store_part(y + j, left, value);
    }
}

#endif
