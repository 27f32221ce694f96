/* Slabs of rows with tables of free widths, their codes and their turns, drawn from a seed: what
 * the tests of planes, on any device, are made of.
 *
 * Threads: any. */
#ifndef SC_TESTS_UNIT_KERNELS_SLAB_H
#define SC_TESTS_UNIT_KERNELS_SLAB_H

#include "kernels/bitplanes.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define ROWS         SC_KERNELS_CODEC_ROWS_MAX
#define HEADS        2u
#define SIZE_MOST    SC_KERNELS_BITPLANES_HEAD
#define CHANNELS     (HEADS * SIZE_MOST)
#define GROUPS       (HEADS * SIZE_MOST / SC_KERNELS_BITPLANES_GROUP)
#define GUARD        0xa5
#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static const uint64_t SIZES[] = {8, 16, 40, 64, 72, 80, 96, 128, 256};

static inline uint64_t draw(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 33;
}

/* A slab, its table, its turns and what is made of it. */
struct slab {
    uint64_t size, rows;
    uint32_t dtype;
    uint8_t bytes[ROWS][CHANNELS * 4];
    const uint8_t *at[ROWS];
    uint8_t to[CHANNELS];
    struct sc_kernels_bitplanes_group groups[GROUPS];
    struct sc_kernels_bitplanes planes;
    struct sc_kernels_rotary rotary;
    float rope[ROWS * SIZE_MOST];
    struct sc_kernels_bitplanes_encode encode;
};

/* Where its codes go: guards in front of each and behind, and what may be read. */
struct made {
    uint8_t scales[64 + CHANNELS * 4 + 64];
    uint8_t codes[64 + ROWS * CHANNELS + 64];
};

/* A finite pattern: mostly of usual size around a middle of the channel's own, sometimes any. */
static inline void value_draw(uint64_t *state, uint64_t channel, uint32_t dtype, uint8_t *dst)
{
    float usual = (float)((double)draw(state) / (1u << 30) - 1.0) * (float)(1 + channel % 5);
    usual += channel % 9 == 4 ? 12.0f : 0;
    if (draw(state) % 32 == 0)
        usual *= 0x1p-12f;
    sc_kernels_dtypes[dtype].narrow(dst, &usual, 1);
}

/* Widths of which each plane has whole bytes. most, least: of the widths */
static inline void bit_counts_draw(uint64_t *state, uint64_t size, uint32_t least, uint32_t most,
                                   uint8_t *to)
{
    for (uint64_t first = 0; first < size; first += SC_KERNELS_BITPLANES_GROUP) {
        uint64_t left = size - first, count = left < 64 ? left : 64, bytes = count / 8;
        uint64_t order[64];
        for (uint64_t c = 0; c < count; c++) {
            uint64_t other = draw(state) % (c + 1);
            order[c] = order[other];
            order[other] = c;
        }
        memset(to + first, (int)least, count);
        for (uint32_t p = least; p < most; p++) {
            bytes = draw(state) % 3 == 0 ? bytes : draw(state) % (bytes + 1);
            for (uint64_t c = 0; c < bytes * 8; c++)
                to[first + order[c]] = (uint8_t)(p + 1);
        }
    }
}

struct shape {
    uint64_t size, rows;
    uint32_t dtype;
    uint32_t least, most; /* of widths */
    uint32_t turned, pairs;
};

static inline struct slab *slab_make(uint64_t seed, struct shape shape)
{
    struct slab *slab = calloc(1, sizeof(*slab));
    assert_non_null(slab);
    uint64_t bytes = sc_kernels_dtype_bytes(shape.dtype), all = HEADS * shape.size;
    slab->size = shape.size;
    slab->rows = shape.rows;
    slab->dtype = shape.dtype;
    slab->rotary = (struct sc_kernels_rotary){shape.pairs, shape.turned};
    for (uint64_t i = 0; i < ROWS; i++) {
        slab->at[i] = slab->bytes[i];
        for (uint64_t c = 0; c < all; c++) {
            value_draw(&seed, c, shape.dtype, slab->bytes[i] + c * bytes);
            if (c % 11 == 5) /* a constant channel */
                memcpy(slab->bytes[i] + c * bytes, slab->bytes[0] + c * bytes, bytes);
        }
    }
    double frequencies[SIZE_MOST / 2];
    for (uint64_t i = 0; i < shape.turned / 2; i++)
        frequencies[i] = pow(1e4, -2.0 * (double)i / shape.turned);
    for (uint64_t i = 0; i < shape.rows && shape.turned > 0; i++)
        sc_kernels_rope_row(1000 + i, frequencies, shape.turned, slab->rope + i * shape.turned);
    for (uint64_t h = 0; h < HEADS; h++)
        bit_counts_draw(&seed, shape.size, shape.least, shape.most, slab->to + h * shape.size);
    assert_true(
        sc_kernels_bitplanes_init(&slab->planes, HEADS, shape.size, slab->to, slab->groups));
    slab->encode =
        (struct sc_kernels_bitplanes_encode){.planes = &slab->planes,
                                             .rows = slab->at,
                                             .row_count = shape.rows,
                                             .dtype = shape.dtype,
                                             .rotary = shape.turned > 0 ? &slab->rotary : NULL,
                                             .rope = slab->rope};
    return slab;
}

static inline bool slab_encode(const struct slab *slab, uint32_t level, struct made *made)
{
    struct sc_kernels_bitplanes_encode what = slab->encode;
    memset(made, GUARD, sizeof(*made));
    what.scales = made->scales + 64;
    what.codes = made->codes + 64;
    return sc_kernels_get(level)->bitplanes_encode(&what);
}

/* dst [rows] */
static inline void slab_decode(const struct slab *slab, const struct made *made, uint32_t level,
                               uint8_t **dst, uint32_t dst_dtype)
{
    sc_kernels_get(level)->bitplanes_decode(
        &(struct sc_kernels_bitplanes_decode){.planes = &slab->planes,
                                              .scales = made->scales + 64,
                                              .codes = made->codes + 64,
                                              .row_count = slab->rows,
                                              .head_count = HEADS,
                                              .dst = dst,
                                              .dst_dtype = dst_dtype,
                                              .rotary = slab->encode.rotary,
                                              .rope = slab->rope});
}

/* Shapes that differ in all that a rung looks at. */
static inline struct shape shape_of(uint32_t n)
{
    static const uint32_t WIDTHS[][2] = {{0, 8}, {0, 0}, {8, 8}, {0, 4}, {2, 6}, {1, 1}, {3, 8}};
    static const uint64_t FEW[] = {1, 7, 8, 9, 16, 33, 64, 200, ROWS};
    uint64_t size = SIZES[n % COUNT(SIZES)];
    const uint32_t *bit_counts = WIDTHS[n / COUNT(SIZES) % COUNT(WIDTHS)];
    struct shape shape = {
        size, FEW[n * 5 / 3 % COUNT(FEW)], n % 3, bit_counts[0], bit_counts[1], 0, n / 2 % 2};
    shape.turned = (uint32_t)(n % 7 == 3 ? 0 : n % 7 == 4 ? size / 2 : size);
    if (n % 7 == 5 && size >= 32)
        shape.turned = 32;
    return shape;
}
#define SHAPES (COUNT(SIZES) * 7u * 3u)

#endif
