/* bitplanes: format of per-channel quantised rows: 0 to 8 bits a channel, in planes of bits.
 *
 *   group   64 channels of one KV head; a head's last group is padded with channels of 0 bits
 *   table   number of planes of each channel; plane 0 is the most significant bit
 *   row     [group 0: plane 0, plane 1 ..][group 1 ..] ...
 *   plane   one bit of each channel that has it, ascending, lowest bit of a byte first
 *   scales  [min: f16 x C][span: f16 x C]             C = heads * head_size, no padding
 *
 *   min = least, span = most - least, each rounded to f16                   (over the slab's rows)
 *   code  = clamp(floor((x - min) / (span / 256)), 0, 255), 0 if span is 0              in float32
 *   kept  = the code with the bits of missing planes set to 0
 *   value = fma(kept, gain * span / 256, fma(middle, span / 256, min)), rounded twice to float32,
 *           then rotated if keys were rotated back (rotary.h), then the destination's type
 *           bits of the code  0    1    2      3 and more
 *           gain              1    1    17/16  1
 *           middle            128  64   26     2^(7 - bits)
 *
 * A narrower code is a prefix of a wider one; 0 bits give the middle of the range. Values of 2-bit
 * codes are slightly further apart than the middles of their ranges. This makes them unbiased, with
 * slope 1 against the input. Range means have 0.93 of the square error but score worse: sums over
 * many rows average noise out, not a factor (docs/decisions/0031).
 *
 * Invariants: every rung writes the same bits as ref/: scales, codes and values. Quantised rows
 * decode to finite values of the rows' type: span overflows f16 before they do, and rotated-back
 * keys are below 2^15. Nothing is allocated or verified.
 * Source: docs/decisions/0029-codes-of-free-widths.md. Threads: any.
 * Tests: tests/unit/kernels/test_bitplanes.c */
#ifndef SC_KERNELS_BITPLANES_H
#define SC_KERNELS_BITPLANES_H

#include "kernels/codec.h"
#include "kernels/rotary.h"

#define SC_KERNELS_BITPLANES       8u
#define SC_KERNELS_BITPLANES_GROUP 64u
#define SC_KERNELS_BITPLANES_AHEAD 7u   /* readable bytes required after a row */
#define SC_KERNELS_BITPLANES_HEAD  256u /* maximum channels of a head */
#define SC_KERNELS_BITPLANES_TILE  32u  /* rows whose rotations are interleaved, see rope_tiles */

#define SC_KERNELS_BITPLANES_FEW 2
static const float sc_kernels_bitplanes_gains[SC_KERNELS_BITPLANES_FEW + 1] = {1, 1, 1.0625f};
static const float sc_kernels_bitplanes_middles[SC_KERNELS_BITPLANES_FEW + 1] = {128, 64, 26};

struct sc_kernels_bitplanes_group {
    uint64_t masks[SC_KERNELS_BITPLANES]; /* bit c: channel c has the plane */
    /* Position of a channel's bit in the plane; 0x80: none. */
    uint8_t places[SC_KERNELS_BITPLANES][SC_KERNELS_BITPLANES_GROUP];
    /* Inverse: the channel of each of a plane's bits. */
    uint8_t channels[SC_KERNELS_BITPLANES][SC_KERNELS_BITPLANES_GROUP];
    uint16_t at[SC_KERNELS_BITPLANES];   /* offset of the plane from the group's start, bytes */
    uint8_t bytes[SC_KERNELS_BITPLANES]; /* length of the plane */
    uint32_t end;                        /* planes from this one on are empty */
    uint32_t offset;                     /* offset of the group in a row, bytes */
};

struct sc_kernels_bitplanes {
    uint64_t head_count, head_size, head_groups;
    uint64_t row_bytes;
    const struct sc_kernels_bitplanes_group *groups; /* [head_count * head_groups] */
    const uint8_t *to; /* [head_count * head_size] bits of a channel */
};

static inline uint64_t sc_kernels_bitplanes_head_groups(uint64_t head_size)
{
    return (head_size + SC_KERNELS_BITPLANES_GROUP - 1) / SC_KERNELS_BITPLANES_GROUP;
}

/* Returns the rotations from `row` on, or NULL if nothing is rotated. */
static inline const float *sc_kernels_quantised_rope(const struct sc_kernels_quantised *quantised,
                                                     uint64_t row)
{
    return quantised->rotary != NULL ? quantised->rope + row * quantised->rotary->turned : NULL;
}

static inline uint64_t sc_kernels_bitplanes_scale_bytes(const struct sc_kernels_bitplanes *planes)
{
    return planes->head_count * planes->head_size * 4;
}

/* to [head_count * head_size] <= 8
 * groups [head_count * sc_kernels_bitplanes_head_groups(head_size)] written whole
 * *ret_planes keeps pointers to `to` and groups. Returns false if a group's plane is not whole
 * bytes, or if the shape is invalid. */
bool sc_kernels_bitplanes_init(struct sc_kernels_bitplanes *ret_planes, uint64_t head_count,
                               uint64_t head_size, const uint8_t *to,
                               struct sc_kernels_bitplanes_group *groups);

/* Rotations in the layout that scoring of keys wants: SC_KERNELS_BITPLANES_TILE rows interleaved.
 *   turns     [row_count][turned]
 *   ret_tiles [rows / TILE][turned][TILE], rows = row_count padded with 0 to whole tiles */
static inline uint64_t sc_kernels_bitplanes_tile_floats(uint64_t row_count, uint64_t turned)
{
    uint64_t tiles = (row_count + SC_KERNELS_BITPLANES_TILE - 1) / SC_KERNELS_BITPLANES_TILE;
    return tiles * turned * SC_KERNELS_BITPLANES_TILE;
}

void sc_kernels_bitplanes_rope_tiles(const float *rope, uint64_t row_count, uint64_t turned,
                                     float *ret_tiles);

/* Quantises a slab of 1 to SC_KERNELS_CODEC_ROWS_MAX rows. */
struct sc_kernels_bitplanes_encode {
    const struct sc_kernels_bitplanes *planes;
    const uint8_t *const *rows; /* [row_count] first channel of each row */
    uint64_t row_count;
    uint32_t dtype;                         /* of the rows */
    const struct sc_kernels_rotary *rotary; /* NULL: not rotated; else rotate keys back first */
    const float *rope;                      /* [row_count][rotary->turned] */
    uint8_t *scales, *codes;                /* written whole; rows are contiguous */
};

struct sc_kernels_bitplanes_decode {
    const struct sc_kernels_bitplanes *planes;
    const uint8_t *scales, *codes; /* codes of the first row; rows are contiguous */
    uint64_t row_count, head_first, head_count;
    uint8_t *const *dst; /* [row_count] address of head_first, heads contiguous; NULL: skipped */
    uint32_t dst_dtype;
    const struct sc_kernels_rotary *rotary; /* NULL: not rotated */
    const float *rope;                      /* [row_count][rotary->turned] */
    /* Allows non-temporal stores (if every dst is line-aligned); the caller calls
     * sc_nt_copy_end. */
    bool streams;
};

/* Scores of one head's keys, from decoded float32 values, rotated if they were rotated back.
 *   queries  [query_count, head_padded], 0 beyond head_size;  head_padded a multiple of 16
 *   codes    at the first key;  row_count, query_count at least 1
 *   scores   query v, key i: scores[v * score_stride + i] */
struct sc_kernels_bitplanes_score {
    const struct sc_kernels_bitplanes *planes;
    const uint8_t *scales, *codes;
    uint64_t row_count, head;
    const float *queries;
    uint64_t head_padded, query_count;
    const struct sc_kernels_rotary *rotary; /* NULL: not rotated */
    const float *rope;                      /* [row_count][rotary->turned] */
    float *scores;
    uint64_t score_stride;
    const uint8_t *ahead; /* codes of as many keys, scored next: prefetched */
    uint64_t ahead_head;  /* their head */
    /* The same keys' rotations by sc_kernels_bitplanes_rope_tiles, equal for all heads and layers.
     * NULL: a rung that needs them computes them in each call. */
    const float *rope_tiles;
};

#endif
