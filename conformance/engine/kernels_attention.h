/* kernels_attention: kernels that lay out K and V for the tiles, over simd.h, for kernels_*.c only.
 *
 *   K rows [32 ranks][d] --transpose--> [d][32]        lanes are ranks: scores
 *   V rows [ranks][d]    --panels-----> [d / 32][ranks][32]     lanes are dimensions: outputs
 *
 * They only move and widen, so the levels cannot differ. Threads, Tests: see kernels.h. */
#ifndef CONFORMANCE_ENGINE_KERNELS_ATTENTION_H
#define CONFORMANCE_ENGINE_KERNELS_ATTENTION_H

#include "conformance/engine/kernels.h"
#include "conformance/engine/kernels_math.h"
#include "conformance/engine/simd.h"

#if defined(__AVX512F__)
/* r[i] lane j becomes r[j] lane i. */
ENG_INLINE void v_transpose(v16 r[V_LANES])
{
    v16 t[V_LANES];
    ENG_UNROLL
    for (unsigned i = 0; i < V_LANES; i += 2) { /* pairs of rows: elements interleaved */
        t[i] = _mm512_unpacklo_ps(r[i], r[i + 1]);
        t[i + 1] = _mm512_unpackhi_ps(r[i], r[i + 1]);
    }
    ENG_UNROLL
    for (unsigned i = 0; i < V_LANES; i += 4) { /* fours of rows: r[i + c], column c of each 4 */
        for (unsigned j = 0; j < 2; j++) {
            __m512d lo = _mm512_castps_pd(t[i + j]);
            __m512d hi = _mm512_castps_pd(t[i + 2 + j]);
            r[i + 2 * j] = _mm512_castpd_ps(_mm512_unpacklo_pd(lo, hi));
            r[i + 2 * j + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(lo, hi));
        }
    }
    ENG_UNROLL
    for (unsigned c = 0; c < 4; c++) { /* 128-bit groups: two rounds of shuffles */
        v16 a = _mm512_shuffle_f32x4(r[c], r[4 + c], 0x88);
        v16 b = _mm512_shuffle_f32x4(r[c], r[4 + c], 0xdd);
        v16 d = _mm512_shuffle_f32x4(r[8 + c], r[12 + c], 0x88);
        v16 e = _mm512_shuffle_f32x4(r[8 + c], r[12 + c], 0xdd);
        t[c] = _mm512_shuffle_f32x4(a, d, 0x88);
        t[8 + c] = _mm512_shuffle_f32x4(a, d, 0xdd);
        t[4 + c] = _mm512_shuffle_f32x4(b, e, 0x88);
        t[12 + c] = _mm512_shuffle_f32x4(b, e, 0xdd);
    }
    ENG_UNROLL
    for (unsigned i = 0; i < V_LANES; i++)
        r[i] = t[i];
}
#elif defined(__AVX2__)
ENG_INLINE void transpose_8(__m256 r[8])
{
    __m256 t[8];
    ENG_UNROLL
    for (unsigned i = 0; i < 8; i += 2) {
        t[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
        t[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
    }
    ENG_UNROLL
    for (unsigned i = 0; i < 8; i += 4) {
        for (unsigned j = 0; j < 2; j++) {
            r[i + 2 * j] = _mm256_shuffle_ps(t[i + j], t[i + 2 + j], 0x44);
            r[i + 2 * j + 1] = _mm256_shuffle_ps(t[i + j], t[i + 2 + j], 0xee);
        }
    }
    ENG_UNROLL
    for (unsigned c = 0; c < 4; c++) {
        t[c] = _mm256_permute2f128_ps(r[c], r[4 + c], 0x20);
        t[4 + c] = _mm256_permute2f128_ps(r[c], r[4 + c], 0x31);
    }
    ENG_UNROLL
    for (unsigned i = 0; i < 8; i++)
        r[i] = t[i];
}

/* r[i] lane j becomes r[j] lane i: four squares of 8, the two off the diagonal change places. */
ENG_INLINE void v_transpose(v16 r[V_LANES])
{
    __m256 square[8];
    __m256 other[8];
    for (unsigned i = 0; i < 8; i++) {
        square[i] = r[i].lo;
        other[i] = r[8 + i].hi;
    }
    transpose_8(square);
    transpose_8(other);
    for (unsigned i = 0; i < 8; i++) {
        r[i].lo = square[i];
        r[8 + i].hi = other[i];
        square[i] = r[i].hi;
        other[i] = r[8 + i].lo;
    }
    transpose_8(square);
    transpose_8(other);
    for (unsigned i = 0; i < 8; i++) {
        r[i].hi = other[i];
        r[8 + i].lo = square[i];
    }
}
#else
/* r[i] lane j becomes r[j] lane i. */
ENG_INLINE void v_transpose(v16 r[V_LANES])
{
    for (unsigned i = 0; i < V_LANES; i++) {
        for (unsigned j = 0; j < i; j++) {
            float moved = r[i].lane[j];
            r[i].lane[j] = r[j].lane[i];
            r[j].lane[i] = moved;
        }
    }
}
#endif

ENG_INLINE float widen_one(const void *src, uint64_t index, enum eng_dtype dtype)
{
    if (dtype == ENG_F32)
        return ((const float *)src)[index];
    uint16_t bits = ((const uint16_t *)src)[index];
    return dtype == ENG_F16 ? eng_f16_to_f32(bits) : eng_bf16_to_f32(bits);
}

ENG_INLINE void transpose_as(const void *const *rows, enum eng_dtype dtype, uint64_t width,
                             float *dst)
{
    uint64_t whole = width - width % V_LANES;
    for (uint64_t first = 0; first < ENG_TILE_COLUMNS; first += V_LANES) {
        for (uint64_t j = 0; j < whole; j += V_LANES) {
            v16 square[V_LANES];
            ENG_UNROLL
            for (unsigned r = 0; r < V_LANES; r++)
                square[r] = v_load_as(rows[first + r], j, dtype);
            v_transpose(square);
            ENG_UNROLL
            for (unsigned r = 0; r < V_LANES; r++)
                v_store(dst + (j + r) * ENG_TILE_COLUMNS + first, square[r]);
        }
        for (uint64_t j = whole; j < width; j++) {
            for (uint64_t r = first; r < first + V_LANES; r++)
                dst[j * ENG_TILE_COLUMNS + r] = widen_one(rows[r], j, dtype);
        }
    }
}

static void transpose(const void *const *rows, enum eng_dtype dtype, uint64_t width, float *dst)
{
    if (dtype == ENG_F32)
        transpose_as(rows, ENG_F32, width, dst);
    else if (dtype == ENG_F16)
        transpose_as(rows, ENG_F16, width, dst);
    else
        transpose_as(rows, ENG_BF16, width, dst);
}

ENG_INLINE void panels_as(const void *const *rows, uint64_t row_count, enum eng_dtype dtype,
                          uint64_t width, uint64_t panel_rows, float *dst)
{
    uint64_t whole = width - width % V_LANES;
    uint64_t padded = (width + ENG_TILE_COLUMNS - 1) / ENG_TILE_COLUMNS * ENG_TILE_COLUMNS;
    for (uint64_t r = 0; r < row_count; r++) {
        for (uint64_t j = 0; j < padded; j += V_LANES) {
            uint64_t panel = j / ENG_TILE_COLUMNS;
            float *out = dst + (panel * panel_rows + r) * ENG_TILE_COLUMNS + j % ENG_TILE_COLUMNS;
            if (j < whole) {
                v_store(out, v_load_as(rows[r], j, dtype));
            } else {
                for (uint64_t lane = 0; lane < V_LANES; lane++)
                    out[lane] = j + lane < width ? widen_one(rows[r], j + lane, dtype) : 0.0f;
            }
        }
    }
}

static void panels(const void *const *rows, uint64_t row_count, enum eng_dtype dtype,
                   uint64_t width, uint64_t panel_rows, float *dst)
{
    if (dtype == ENG_F32)
        panels_as(rows, row_count, ENG_F32, width, panel_rows, dst);
    else if (dtype == ENG_F16)
        panels_as(rows, row_count, ENG_F16, width, panel_rows, dst);
    else
        panels_as(rows, row_count, ENG_BF16, width, panel_rows, dst);
}

#endif
