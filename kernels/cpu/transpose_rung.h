/* rope_rung: transposes rows to columns, shared by the rungs. Tiles of 16 bytes of each row are
 * transposed within 128-bit lanes; the lanes of a register hold distant rows, so nothing crosses
 * lanes.
 *
 *   16-bit, 256 bits   register i: [row i, 8 columns | row i + 8]  -> column c: [rows 0-7 | 8-15]
 *   32-bit, 256 bits   register i: [row i, 4 columns | row i + 4]  -> column c: [rows 0-3 | 4-7]
 *
 * Tiles of a block (a line by a line) are processed together, to fill destination lines soon. The
 * last tile or block in each direction overlaps the one before and rewrites the same values.
 * Requires v8.h or v16.h; with AVX-512 whole lines of columns are transposed at once.
 * Tests: tests/unit/kernels/test_columns.c */
#ifndef SC_KERNELS_CPU_TRANSPOSE_RUNG_H
#define SC_KERNELS_CPU_TRANSPOSE_RUNG_H

#include "kernels/cpu/unroll.h"
#include "kernels/kernels.h"

#define LINE_BYTES 64u

INLINE __m128i load128(const uint8_t *src, uint64_t stride)
{
    (void)stride;
    return _mm_loadu_si128((const void *)src);
}

/* Loads 16 bytes at src, and 16 at src + stride. */
INLINE __m256i load256(const uint8_t *src, uint64_t stride)
{
    return _mm256_inserti128_si256(_mm256_castsi128_si256(load128(src, 0)),
                                   load128(src + stride, 0), 1);
}

#if LANES == 16
/* Loads 16 bytes at each of src + 0, 1, 2 and 3 * stride. */
INLINE __m512i load512(const uint8_t *src, uint64_t stride)
{
    __m512i value = _mm512_castsi256_si512(load256(src, stride));
    return _mm512_inserti64x4(value, load256(src + 2 * stride, stride), 1);
}

INLINE void store512(uint8_t *dst, __m512i value)
{
    _mm512_storeu_si512((void *)dst, value);
}
#endif

INLINE void store128(uint8_t *dst, __m128i value)
{
    _mm_storeu_si128((void *)dst, value);
}

INLINE void store256(uint8_t *dst, __m256i value)
{
    _mm256_storeu_si256((void *)dst, value);
}

/* Transposes 8 columns of 8 rows a lane. op: the prefix of the vector's intrinsics */
#define TRANSPOSE_TILE16(name, vector, op, load, store)                                            \
    INLINE void name(uint8_t *dst, uint64_t dst_stride, const uint8_t *src, uint64_t src_stride)   \
    {                                                                                              \
        vector a[8], b[8], c[8];                                                                   \
        SC_UNROLL                                                                                  \
        for (uint32_t i = 0; i < 8; i++)                                                           \
            a[i] = load(src + i * src_stride, 8 * src_stride);                                     \
        SC_UNROLL                                                                                  \
        for (uint32_t i = 0; i < 8;                                                                \
             i += 2) { /* b[i]: columns 0 .. 3 of two rows; b[i + 1]: 4 .. 7 */                    \
            b[i] = op##unpacklo_epi16(a[i], a[i + 1]);                                             \
            b[i + 1] = op##unpackhi_epi16(a[i], a[i + 1]);                                         \
        }                                                                                          \
        SC_UNROLL                                                                                  \
        for (uint32_t i = 0; i < 8; i += 4) { /* c[i + j]: columns 2j and 2j + 1 of four rows */   \
            c[i] = op##unpacklo_epi32(b[i], b[i + 2]);                                             \
            c[i + 1] = op##unpackhi_epi32(b[i], b[i + 2]);                                         \
            c[i + 2] = op##unpacklo_epi32(b[i + 1], b[i + 3]);                                     \
            c[i + 3] = op##unpackhi_epi32(b[i + 1], b[i + 3]);                                     \
        }                                                                                          \
        SC_UNROLL                                                                                  \
        for (uint32_t i = 0; i < 4; i++) {                                                         \
            store(dst + 2 * i * dst_stride, op##unpacklo_epi64(c[i], c[i + 4]));                   \
            store(dst + (2 * i + 1) * dst_stride, op##unpackhi_epi64(c[i], c[i + 4]));             \
        }                                                                                          \
    }

/* Transposes 4 columns of 4 rows a lane. */
#define TRANSPOSE_TILE32(name, vector, op, load, store)                                            \
    INLINE void name(uint8_t *dst, uint64_t dst_stride, const uint8_t *src, uint64_t src_stride)   \
    {                                                                                              \
        vector a[4], b[4];                                                                         \
        SC_UNROLL                                                                                  \
        for (uint32_t i = 0; i < 4; i++)                                                           \
            a[i] = load(src + i * src_stride, 4 * src_stride);                                     \
        SC_UNROLL                                                                                  \
        for (uint32_t i = 0; i < 4;                                                                \
             i += 2) { /* b[i]: columns 0 and 1 of two rows; b[i + 1]: 2, 3 */                     \
            b[i] = op##unpacklo_epi32(a[i], a[i + 1]);                                             \
            b[i + 1] = op##unpackhi_epi32(a[i], a[i + 1]);                                         \
        }                                                                                          \
        SC_UNROLL                                                                                  \
        for (uint32_t i = 0; i < 2; i++) {                                                         \
            store(dst + 2 * i * dst_stride, op##unpacklo_epi64(b[i], b[i + 2]));                   \
            store(dst + (2 * i + 1) * dst_stride, op##unpackhi_epi64(b[i], b[i + 2]));             \
        }                                                                                          \
    }

TRANSPOSE_TILE16(tile8_transpose16, __m128i, _mm_, load128, store128)
TRANSPOSE_TILE16(tile16_transpose16, __m256i, _mm256_, load256, store256)
TRANSPOSE_TILE32(tile4_transpose32, __m128i, _mm_, load128, store128)
TRANSPOSE_TILE32(tile8_transpose32, __m256i, _mm256_, load256, store256)
#if LANES == 16 /* whole lines of columns */
TRANSPOSE_TILE16(tile32_transpose16, __m512i, _mm512_, load512, store512)
TRANSPOSE_TILE32(tile16_transpose32, __m512i, _mm512_, load512, store512)
#endif

/* Transposes 8 columns of 4 rows. */
INLINE void tile4_transpose16(uint8_t *dst, uint64_t dst_stride, const uint8_t *src,
                              uint64_t src_stride)
{
    __m128i a[4], c[4];
    SC_UNROLL
    for (uint32_t i = 0; i < 4; i++)
        a[i] = load128(src + i * src_stride, 0);
    __m128i low = _mm_unpacklo_epi16(a[0], a[1]), high = _mm_unpackhi_epi16(a[0], a[1]);
    __m128i next_low = _mm_unpacklo_epi16(a[2], a[3]), next_high = _mm_unpackhi_epi16(a[2], a[3]);
    c[0] = _mm_unpacklo_epi32(low, next_low);
    c[1] = _mm_unpackhi_epi32(low, next_low);
    c[2] = _mm_unpacklo_epi32(high, next_high);
    c[3] = _mm_unpackhi_epi32(high, next_high);
    SC_UNROLL
    for (uint32_t i = 0; i < 4; i++) {
        _mm_storel_epi64((void *)(dst + 2 * i * dst_stride), c[i]);
        _mm_storel_epi64((void *)(dst + (2 * i + 1) * dst_stride), _mm_unpackhi_epi64(c[i], c[i]));
    }
}

/* Returns the start of the piece of `each` at `at`, moved so that it ends by `count`. */
INLINE uint64_t inside(uint64_t at, uint64_t each, uint64_t count)
{
    return at + each <= count ? at : count - each;
}

/* Transposes 16 bytes of each of row_count rows: 4 up to the elements of a line. */
INLINE void rows_transpose16(uint8_t *dst, uint64_t dst_stride, const uint8_t *src,
                             uint64_t src_stride, uint64_t row_count)
{
    uint64_t tile = row_count >= 16 ? 16 : row_count >= 8 ? 8 : 4;
#if LANES == 16
    if (row_count == LINE_BYTES / 2) {
        tile32_transpose16(dst, dst_stride, src, src_stride);
        return;
    }
#endif
    for (uint64_t r = 0; r < row_count; r += tile) {
        uint64_t at = inside(r, tile, row_count);
        if (tile == 16)
            tile16_transpose16(dst + at * 2, dst_stride, src + at * src_stride, src_stride);
        else if (tile == 8)
            tile8_transpose16(dst + at * 2, dst_stride, src + at * src_stride, src_stride);
        else
            tile4_transpose16(dst + at * 2, dst_stride, src + at * src_stride, src_stride);
    }
}

INLINE void rows_transpose32(uint8_t *dst, uint64_t dst_stride, const uint8_t *src,
                             uint64_t src_stride, uint64_t row_count)
{
    uint64_t tile = row_count >= 8 ? 8 : 4;
#if LANES == 16
    if (row_count == LINE_BYTES / 4) {
        tile16_transpose32(dst, dst_stride, src, src_stride);
        return;
    }
#endif
    for (uint64_t r = 0; r < row_count; r += tile) {
        uint64_t at = inside(r, tile, row_count);
        if (tile == 8)
            tile8_transpose32(dst + at * 4, dst_stride, src + at * src_stride, src_stride);
        else
            tile4_transpose32(dst + at * 4, dst_stride, src + at * src_stride, src_stride);
    }
}

/* Writes a line of each column non-temporally: dst and dst_stride are whole lines. */
INLINE void lines_stream(uint8_t *dst, uint64_t dst_stride, const uint8_t *src, uint64_t src_stride,
                         uint32_t columns, uint32_t element)
{
    __m256i lines[2 * 8];
    if (element == 2)
        rows_transpose16((uint8_t *)lines, LINE_BYTES, src, src_stride, LINE_BYTES / 2);
    else
        rows_transpose32((uint8_t *)lines, LINE_BYTES, src, src_stride, LINE_BYTES / 4);
    SC_UNROLL
    for (uint32_t c = 0; c < columns; c++) {
        _mm256_stream_si256((void *)(dst + c * dst_stride), lines[2 * c]);
        _mm256_stream_si256((void *)(dst + c * dst_stride + 32), lines[2 * c + 1]);
    }
}

/* Transposes at most a line of rows and columns. For whole lines the source is copied once: strides
 * are mostly large powers of two, whose lines evict each other. */
INLINE void block_transpose(const struct sc_kernels_transpose *what, uint32_t element)
{
    __m256i copy[LINE_BYTES];
    const uint8_t *src = what->src;
    uint64_t columns = 16 / element, src_stride = what->src_stride;
    bool streams = what->streams && what->row_count * element == LINE_BYTES &&
                   ((uintptr_t)what->dst | what->dst_stride) % LINE_BYTES == 0;
    if (what->column_count * element == LINE_BYTES) {
        for (uint64_t r = 0; r < what->row_count; r++) {
            copy[2 * r] = _mm256_loadu_si256((const void *)(src + r * src_stride));
            copy[2 * r + 1] = _mm256_loadu_si256((const void *)(src + r * src_stride + 32));
        }
        src = (const uint8_t *)copy;
        src_stride = LINE_BYTES;
    }
    for (uint64_t c = 0; c < what->column_count; c += columns) {
        uint64_t at = inside(c, columns, what->column_count);
        uint8_t *to = what->dst + at * what->dst_stride;
        if (streams)
            lines_stream(to, what->dst_stride, src + at * element, src_stride, (uint32_t)columns,
                         element);
        else if (element == 2)
            rows_transpose16(to, what->dst_stride, src + at * 2, src_stride, what->row_count);
        else
            rows_transpose32(to, what->dst_stride, src + at * 4, src_stride, what->row_count);
    }
}

INLINE void transpose(const struct sc_kernels_transpose *what, uint32_t element)
{
    uint64_t most = LINE_BYTES / element;
    struct sc_kernels_transpose block = *what;
    block.row_count = what->row_count < most ? what->row_count : most;
    block.column_count = what->column_count < most ? what->column_count : most;
    for (uint64_t r = 0; r < what->row_count; r += block.row_count)
        for (uint64_t c = 0; c < what->column_count; c += block.column_count) {
            uint64_t row = inside(r, block.row_count, what->row_count);
            uint64_t column = inside(c, block.column_count, what->column_count);
            block.dst = what->dst + column * what->dst_stride + row * element;
            block.src = what->src + row * what->src_stride + column * element;
            block_transpose(&block, element);
        }
}

static void rung_transpose16(const struct sc_kernels_transpose *what)
{
    if (what->row_count < 4 || what->column_count < 8)
        sc_kernels_ref_transpose16(what);
    else
        transpose(what, 2);
}

static void rung_transpose32(const struct sc_kernels_transpose *what)
{
    if (what->row_count < 4 || what->column_count < 4)
        sc_kernels_ref_transpose32(what);
    else
        transpose(what, 4);
}

#endif
