/* Coarse codes of free widths: a channel has 0 to 8 bits, in planes of single bits.
 *
 *   group   64 channels of one KV head, the last of a head filled up with channels of no bits
 *   table   of each channel how many planes are there; plane 0 is the most significant bit
 *   row     [group 0: plane 0, plane 1 ..][group 1 ..] ...
 *   plane   a bit of each channel that has it, ascending, in a byte the lowest bit first
 *   scales  [min: f16 x C][span: f16 x C]             C = heads * head_size, nothing filled up
 *
 *   min = least, span = most - least, each rounded to f16                   (over the slab's rows)
 *   code  = clamp(floor((x - min) / (span / 256)), 0, 255), 0 where span is 0           in float32
 *   kept  = the code's bits of the planes that are there, the others 0
 *   value = fma(kept, gain * span / 256, fma(middle, span / 256, min)), rounded twice to float32,
 *           turned where keys were turned back (rotary.h), then the destination's type
 *           bits of the code  0    1    2      3 and more
 *           gain              1    1    17/16  1
 *           middle            128  64   26     2^(7 - bits)
 *
 * Codes of 2 bits lie a little further apart than their ranges' middles: so their values have no
 * bias, slope 1 on what was coded. Means of ranges have .93 of the square error and are worse: sums
 * over many rows average noise out, and a factor not (docs/decisions/0031).
 *
 * So a narrower code is the beginning of a wider one. Of no bits at all the value is the middle.
 *
 * Holds: every rung writes the same bits as ref/, scales, codes and values. What has codes decodes
 *   to finite values of the rows' type: span is beyond f16 before they are not, and of keys that
 *   are turned back none is 2^15 or larger.
 * Does not: check addresses or checksums, allocate. Source: docs/decisions/0029-codes-of-free-
 *   widths.md. Threads: any. Tests: tests/unit/kernels/test_bitplanes.c */
#ifndef SC_KERNELS_BITPLANES_H
#define SC_KERNELS_BITPLANES_H

#include "kernels/codec.h"
#include "kernels/rotary.h"

#define SC_KERNELS_BITPLANES       8u
#define SC_KERNELS_BITPLANES_GROUP 64u
#define SC_KERNELS_BITPLANES_AHEAD 7u   /* bytes behind a row that may be read */
#define SC_KERNELS_BITPLANES_HEAD  256u /* channels of a head, at most */
#define SC_KERNELS_BITPLANES_TILE  32u  /* rows whose turns stand side by side, see rope_tiles */

#define SC_KERNELS_BITPLANES_FEW 2
static const float sc_kernels_bitplanes_gains[SC_KERNELS_BITPLANES_FEW + 1] = {1, 1, 1.0625f};
static const float sc_kernels_bitplanes_middles[SC_KERNELS_BITPLANES_FEW + 1] = {128, 64, 26};

struct sc_kernels_bitplanes_group {
    uint64_t masks[SC_KERNELS_BITPLANES]; /* bit c: channel c has the plane */
    /* Where in the plane a channel's bit is; 0x80: nowhere. */
    uint8_t places[SC_KERNELS_BITPLANES][SC_KERNELS_BITPLANES_GROUP];
    /* The other way: of which channel a plane's bits are. */
    uint8_t channels[SC_KERNELS_BITPLANES][SC_KERNELS_BITPLANES_GROUP];
    uint16_t at[SC_KERNELS_BITPLANES];   /* where the plane begins: bytes behind the group's */
    uint8_t bytes[SC_KERNELS_BITPLANES]; /* of the plane */
    uint32_t end;                     /* planes from here on are empty */
    uint32_t offset;                  /* of the group in a row, bytes */
};

struct sc_kernels_bitplanes {
    uint64_t head_count, head_size, head_groups;
    uint64_t row_bytes;
    const struct sc_kernels_bitplanes_group *groups; /* [head_count * head_groups] */
    const uint8_t *to;                            /* [head_count * head_size] bits of a code */
};

static inline uint64_t sc_kernels_bitplanes_head_groups(uint64_t head_size)
{
    return (head_size + SC_KERNELS_BITPLANES_GROUP - 1) / SC_KERNELS_BITPLANES_GROUP;
}

/* Turns of the rows from `row` on; NULL where nothing is turned. */
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
 * *ret_planes keeps `to` and groups.
 * false: of some group a plane has bits that are no whole bytes, or the shape is not one. */
bool sc_kernels_bitplanes_init(struct sc_kernels_bitplanes *ret_planes, uint64_t head_count,
                               uint64_t head_size, const uint8_t *to,
                               struct sc_kernels_bitplanes_group *groups);

/* Turns as scores want them where vectors are keys: of SC_KERNELS_BITPLANES_TILE rows side by side.
 *   turns  [row_count][turned]
 *   ret_tiles [rows / TILE][turned][TILE], rows = row_count filled up to whole tiles with 0 */
static inline uint64_t sc_kernels_bitplanes_tile_floats(uint64_t row_count, uint64_t turned)
{
    uint64_t tiles = (row_count + SC_KERNELS_BITPLANES_TILE - 1) / SC_KERNELS_BITPLANES_TILE;
    return tiles * turned * SC_KERNELS_BITPLANES_TILE;
}

void sc_kernels_bitplanes_rope_tiles(const float *rope, uint64_t row_count, uint64_t turned,
                                     float *ret_tiles);

/* Codes of a slab, row_count from 1 to SC_KERNELS_CODEC_ROWS_MAX. */
struct sc_kernels_bitplanes_encode {
    const struct sc_kernels_bitplanes *planes;
    const uint8_t *const *rows; /* [row_count] of the first channel of each */
    uint64_t row_count;
    uint32_t dtype;                         /* of the rows */
    const struct sc_kernels_rotary *rotary; /* NULL: as they are; else they are turned back */
    const float *rope;                      /* [row_count][rotary->turned] */
    uint8_t *scales, *codes;                /* written whole; rows follow each other */
};

struct sc_kernels_bitplanes_decode {
    const struct sc_kernels_bitplanes *planes;
    const uint8_t *scales, *codes; /* codes at the first row; rows follow each other */
    uint64_t row_count, head_first, head_count;
    uint8_t *const *dst; /* [row_count] of head_first, heads side by side; NULL: skipped */
    uint32_t dst_dtype;
    const struct sc_kernels_rotary *rotary; /* NULL: not turned */
    const float *rope;                      /* [row_count][rotary->turned] */
    bool streams; /* stores may go past the caches (they do where every dst lies on a line's
                   * border); sc_nt_copy_end is the caller's */
};

/* Scores of the keys of one head, by their values in float32, turned where they were turned back.
 *   queries  [query_count, head_padded], 0 behind head_size;  head_padded a multiple of 16
 *   codes    at the first key;  row_count, query_count at least 1
 *   scores   query v, key i: scores[v * score_stride + i] */
struct sc_kernels_bitplanes_score {
    const struct sc_kernels_bitplanes *planes;
    const uint8_t *scales, *codes;
    uint64_t row_count, head;
    const float *queries;
    uint64_t head_padded, query_count;
    const struct sc_kernels_rotary *rotary; /* NULL: not turned */
    const float *rope;                      /* [row_count][rotary->turned] */
    float *scores;
    uint64_t score_stride;
    const uint8_t *ahead; /* codes of as many keys, scored next: asked for meanwhile */
    uint64_t ahead_head;  /* and this head of them */
    /* The turns of the same keys by sc_kernels_bitplanes_rope_tiles, which are one for all heads
     * and layers. NULL: a rung that wants them makes them in each call. */
    const float *rope_tiles;
};

#endif
