/* codec: the format of uniformly quantised rows: K or V of up to SC_KERNELS_CODEC_ROWS_MAX rows.
 *
 *   scales  [min: f16 x C][step: f16 x C]               C = channels, padded
 *   codes   [row 0][row 1] ...                          C * bits / 8 bytes a row
 *   row     [plane of the low bits][plane of the next]  bits = a sum of 8, 4, 2 and 1, widest low
 *   plane   w bits a channel: channel c at bit (c * w) % 8 of byte c * w / 8
 *
 *   step  = (largest - least) / 2^bits, min = least, both rounded to f16     (over the slab's rows)
 *   code  = clamp(floor((x - min) / step), 0, 2^bits - 1), 0 if step is 0             in float32
 *   value = min + (code + 1/2) * step, rounded once to float32, then to the destination's type
 *
 * Source: docs/decisions/0009-layered-kv.md. With planes and padding a row of any width decodes
 * with shifts, masks and one fused multiply-add, without tables.
 *
 * Invariants: every rung writes the same bits as ref/: scales, codes and values. Padding is 0.
 * Quantised rows decode to finite values of the rows' type. For f16 rows min is exact, and step is
 * off by at most 2^-11 of itself: up to 8 bits no decoded value exceeds the largest. Nothing is
 * allocated or verified.
 * Threads: any. Tests: tests/unit/kernels/test_codec.c */
#ifndef SC_KERNELS_CODEC_H
#define SC_KERNELS_CODEC_H

#include "kernels/kernels.h"

#include <stdbool.h>

struct sc_kernels_bitplanes;
struct sc_kernels_rotary;

#define SC_KERNELS_CODEC_UNIT     16u /* channels quantised and decoded together */
#define SC_KERNELS_CODEC_ROWS_MAX 256u

struct sc_kernels_codec {
    uint64_t channels; /* values of a row: heads * head_size */
    uint32_t bits;     /* 2 3 4 5 6 8 */
    uint32_t dtype;    /* enum sc_kernels_dtype of the rows */
};

static inline bool sc_kernels_codec_has(uint32_t bits)
{
    return (bits >= 2 && bits <= 6) || bits == 8;
}

/* Returns C. */
static inline uint64_t sc_kernels_codec_padded(uint64_t channels)
{
    return (channels + SC_KERNELS_CODEC_UNIT - 1) / SC_KERNELS_CODEC_UNIT * SC_KERNELS_CODEC_UNIT;
}

static inline uint64_t sc_kernels_codec_scale_bytes(uint64_t channels)
{
    return sc_kernels_codec_padded(channels) * 4;
}

static inline uint64_t sc_kernels_codec_row_bytes(uint64_t channels, uint32_t bits)
{
    return sc_kernels_codec_padded(channels) * bits / 8;
}

/* Decodes channels [channel_first, + channel_count) to float32 or the rows' type. */
struct sc_kernels_codec_decode {
    const struct sc_kernels_codec *code;
    const uint8_t *scales, *codes; /* codes of the first row; rows are contiguous */
    uint64_t row_count, channel_first, channel_count;
    uint8_t *const *dst; /* [row_count]; NULL: the row is skipped */
    uint32_t dst_dtype;
    /* Allows non-temporal stores (avx512: if all dst are line-aligned); caller: sc_nt_copy_end. */
    bool streams;
};

/* Scores of quantised keys, with the scales folded into the query once a slab:
 *
 *   sum over c of q[c] * value[c]
 *       = sum of q * middle + sum of (q * step) * (code - levels / 2 + 1/2)
 *
 *   middle = min + step * levels / 2         levels = 2^bits
 *
 * A key then costs two operations and a multiply-add for 16 channels. If a channel's values are far
 * from 0, the terms are smaller than the products q * value, so rounding errors are smaller.
 *   queries  [query_count, head_padded], 0 beyond head_size;  head_padded a multiple of 16
 *   codes    at the first key;  row_count, query_count at least 1
 *   scores   query v, key i: scores[v * score_stride + i] */
struct sc_kernels_codec_score {
    const struct sc_kernels_codec *code;
    const uint8_t *scales, *codes;
    uint64_t row_count, channel_first, head_size;
    const float *queries;
    uint64_t head_padded, query_count;
    float *scores;
    uint64_t score_stride;
    const uint8_t *ahead;   /* codes of as many keys, scored next: prefetched */
    uint64_t ahead_channel; /* their first channel */
};

/* K or V of some rows of a slab, quantised in either format. */
struct sc_kernels_quantised {
    const uint8_t *scales, *codes; /* codes of the first row */
    uint32_t bits;                 /* bits of every channel; unused if planes is not NULL */
    const struct sc_kernels_bitplanes *planes; /* not NULL: per-channel bits (bitplanes.h) */
    const struct sc_kernels_rotary *rotary;    /* with planes: keys were rotated back; NULL: not */
    const float *rope;                         /* [rows][rotary->turned] from the first row on */
    const float *rope_tiles; /* the same by bitplanes.h's rope_tiles; NULL: not available */
};

/* Decodes rows of a slab into a memory, as the rows' type or float32: one row a token, from
 * token_first on. Tokens with negative slots are skipped. */
struct sc_kernels_decode {
    const struct sc_kernels *kernels;
    const struct sc_kernels_memory *memory;
    uint64_t head_count, head_size;
    struct sc_kernels_quantised quantised; /* one part (0: K, 1: V), from the first wanted row on */
    uint32_t dst_dtype;
    bool streams;            /* allows non-temporal stores (base/nt_copy.h) */
    const uint64_t *skipped; /* bits of tokens that are not written; NULL: none */
};
void sc_kernels_part_decode(const struct sc_kernels_decode *how, uint32_t part,
                            uint64_t token_first, uint64_t token_count);

#endif
