/* What the rungs of coarse codes share: which rows have a place, tiles of them, and one copy of the
 * loops for each number of bits and each type, so that both are constants inside.
 *
 * Included by code_avx2.c and code_avx512.c, which define before it
 *   CODE_NAME(name)     the rung's public names
 *   CODE_LANES          channels of a register;  CODE_TILE registers of scales that a tile keeps
 *   struct rows and tile_decode, encode (their comments say what they do)
 *
 * Threads: any. Tests: tests/unit/kernels/test_code.c */
#ifndef SC_KERNELS_CPU_CODE_RUNG_H
#define SC_KERNELS_CPU_CODE_RUNG_H

#include "kernels/code.h"

#include <string.h>

#define CODE_TILE_ROWS 8u

static inline __attribute__((always_inline)) void
steps_decode(const struct rows *rows, const uint8_t *scales, uint64_t padded, uint64_t step,
             uint64_t end, uint32_t bits, uint32_t dtype)
{
    for (uint64_t r = 0; r < rows->count; r += CODE_TILE_ROWS) {
        uint64_t stop = r + CODE_TILE_ROWS < rows->count ? r + CODE_TILE_ROWS : rows->count;
        uint64_t s = step;
        for (; s + CODE_TILE <= end; s += CODE_TILE)
            tile_decode(rows, r, stop, scales, padded, s, step, CODE_TILE, bits, dtype);
        for (; s < end; s++)
            tile_decode(rows, r, stop, scales, padded, s, step, 1, bits, dtype);
    }
}

#define BY_DTYPE(bits)                                                                             \
    if (dtype == SC_KERNELS_F16)                                                                   \
        steps_decode(rows, scales, padded, step, end, bits, SC_KERNELS_F16);                       \
    else if (dtype == SC_KERNELS_BF16)                                                             \
        steps_decode(rows, scales, padded, step, end, bits, SC_KERNELS_BF16);                      \
    else                                                                                           \
        steps_decode(rows, scales, padded, step, end, bits, SC_KERNELS_F32);                       \
    break

static void steps_decode_any(const struct rows *rows, const uint8_t *scales, uint64_t padded,
                             uint64_t step, uint64_t end, uint32_t bits, uint32_t dtype)
{
    switch (bits) {
    case 2:
        BY_DTYPE(2);
    case 3:
        BY_DTYPE(3);
    case 4:
        BY_DTYPE(4);
    case 5:
        BY_DTYPE(5);
    case 6:
        BY_DTYPE(6);
    default:
        BY_DTYPE(8);
    }
}

void CODE_NAME(decode)(const struct sc_kernels_code *code, const uint8_t *scales,
                       const uint8_t *codes, uint64_t row_count, uint64_t channel_first,
                       uint64_t channel_count, uint32_t dst_dtype, uint8_t *const *dst)
{
    uint64_t padded = sc_kernels_code_padded(code->channels);
    uint64_t row_bytes = sc_kernels_code_row_bytes(code->channels, code->bits);
    uint64_t channel_end = channel_first + channel_count;
    if (channel_first % CODE_LANES != 0 || channel_end % CODE_LANES != 0) {
        sc_kernels_ref_code_decode(code, scales, codes, row_count, channel_first, channel_count,
                                   dst_dtype, dst);
        return;
    }
    struct rows rows;
    rows.count = 0;
    for (uint64_t i = 0; i < row_count; i++) {
        rows.codes[rows.count] = codes + i * row_bytes;
        rows.dst[rows.count] = dst[i];
        rows.count += dst[i] != NULL;
    }
    steps_decode_any(&rows, scales, padded, channel_first / CODE_LANES, channel_end / CODE_LANES,
                     code->bits, dst_dtype);
}

#define BY_DTYPE_ENCODE(bits)                                                                      \
    has_codes = code->dtype == SC_KERNELS_F16                                                      \
                    ? encode(code, rows, row_count, scales, codes, bits, SC_KERNELS_F16)           \
                : code->dtype == SC_KERNELS_BF16                                                   \
                    ? encode(code, rows, row_count, scales, codes, bits, SC_KERNELS_BF16)          \
                    : encode(code, rows, row_count, scales, codes, bits, SC_KERNELS_F32);          \
    break

bool CODE_NAME(encode)(const struct sc_kernels_code *code, const uint8_t *const *rows,
                       uint64_t row_count, uint8_t *scales, uint8_t *codes)
{
    bool has_codes = false;
    switch (code->bits) {
    case 2:
        BY_DTYPE_ENCODE(2);
    case 3:
        BY_DTYPE_ENCODE(3);
    case 4:
        BY_DTYPE_ENCODE(4);
    case 5:
        BY_DTYPE_ENCODE(5);
    case 6:
        BY_DTYPE_ENCODE(6);
    default:
        BY_DTYPE_ENCODE(8);
    }
    if (!has_codes) {
        memset(scales, 0, sc_kernels_code_scale_bytes(code->channels));
        memset(codes, 0, row_count * sc_kernels_code_row_bytes(code->channels, code->bits));
    }
    return has_codes;
}

#endif
