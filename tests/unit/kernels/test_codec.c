/* Coarse codes: the reference against the formulas in double, every rung against the reference bit
 * by bit, slabs that have no codes, ranges of channels, every described memory; scores of codes
 * against their values in double. */
#include "base/nt_copy.h"
#include "kernels/bitplanes.h"
#include "kernels/codec.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define ROWS        SC_KERNELS_CODEC_ROWS_MAX
#define CHANNELS    200u
#define GUARD_BYTES 64u
#define GUARD       0xa5

static const uint32_t BITS[] = {2, 3, 4, 5, 6, 8};
static const uint64_t WIDTHS[] = {1, 8, 15, 16, 17, 40, 64, 80, 128, 192, CHANNELS};
#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static uint64_t draw(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 33;
}

/* A finite 16-bit or 32-bit pattern: mostly of usual size, sometimes any. */
static void value_draw(uint64_t *state, uint32_t dtype, uint8_t *dst)
{
    float usual = (float)((double)draw(state) / (1u << 30) - 1.0) * 3;
    bool any = draw(state) % 16 == 0;
    uint32_t bits;
    memcpy(&bits, &usual, sizeof(bits));
    if (dtype == SC_KERNELS_F32) {
        uint32_t wild = (uint32_t)draw(state) & 0x43ffffffu;
        memcpy(dst, any ? &wild : &bits, 4);
        return;
    }
    uint16_t half = (uint16_t)(bits >> 16);
    if (dtype == SC_KERNELS_F16) /* 15 bits of fraction and exponent around 1 */
        half = (uint16_t)((draw(state) & 0x83ffu) | (12 + draw(state) % 5) << 10);
    uint16_t wild = (uint16_t)(draw(state) & (dtype == SC_KERNELS_F16 ? 0xebffu : 0xc3ffu));
    memcpy(dst, any ? &wild : &half, 2);
}

struct slab {
    uint8_t bytes[ROWS][CHANNELS * 4];
    const uint8_t *rows[ROWS];
    uint8_t scales[CHANNELS * 4 + 64], codes[ROWS * (CHANNELS + 16)];
};

static struct slab *slab_make(uint64_t seed, uint32_t dtype)
{
    struct slab *slab = malloc(sizeof(*slab));
    assert_non_null(slab);
    uint64_t size = sc_kernels_dtype_bytes(dtype);
    for (uint64_t i = 0; i < ROWS; i++) {
        slab->rows[i] = slab->bytes[i];
        for (uint64_t c = 0; c < CHANNELS; c++) {
            value_draw(&seed, dtype, slab->bytes[i] + c * size);
            if (c % 11 == 5) /* a constant channel */
                memcpy(slab->bytes[i] + c * size, slab->bytes[0] + c * size, size);
        }
    }
    return slab;
}

static double value_of(const struct slab *slab, uint32_t dtype, uint64_t row, uint64_t channel)
{
    float value;
    sc_kernels_ref_widen(&value, slab->bytes[row] + channel * sc_kernels_dtype_bytes(dtype), 1,
                         dtype);
    return (double)value;
}

/* Half a step off at most, and the rounding of min and step on top: the formulas, in double. */
static void a_decoded_value_is_within_half_a_step(void **state)
{
    (void)state;
    for (uint32_t b = 0; b < COUNT(BITS); b++)
        for (uint32_t dtype = SC_KERNELS_F32; dtype <= SC_KERNELS_BF16; dtype++) {
            struct slab *slab = slab_make(7 + b, dtype);
            struct sc_kernels_codec code = {CHANNELS, BITS[b], dtype};
            static float out[ROWS][CHANNELS];
            uint8_t *dst[ROWS];
            for (uint64_t i = 0; i < ROWS; i++)
                dst[i] = (uint8_t *)out[i];
            assert_true(
                sc_kernels_ref_codec_encode(&code, slab->rows, ROWS, slab->scales, slab->codes));
            sc_kernels_ref_codec_decode(&(struct sc_kernels_codec_decode){
                &code, slab->scales, slab->codes, ROWS, 0, CHANNELS, dst, SC_KERNELS_F32, false});
            for (uint64_t c = 0; c < CHANNELS; c++) {
                double least = HUGE_VAL, most = -HUGE_VAL;
                for (uint64_t i = 0; i < ROWS; i++) {
                    least = fmin(least, value_of(slab, dtype, i, c));
                    most = fmax(most, value_of(slab, dtype, i, c));
                }
                double size = fmax(fabs(least), fabs(most)), step = (most - least) / (1 << BITS[b]);
                double most_off = step / 2 + size * 0x1p-10 + step * 0x1p-2 + 0x1p-23;
                for (uint64_t i = 0; i < ROWS; i++)
                    if (!(fabs((double)out[i][c] - value_of(slab, dtype, i, c)) <= most_off))
                        fail_msg("%u bits, dtype %u, row %u, channel %u: %g became %g (step %g)",
                                 BITS[b], dtype, (unsigned)i, (unsigned)c,
                                 value_of(slab, dtype, i, c), (double)out[i][c], step);
            }
            free(slab);
        }
}

static void every_rung_writes_the_same_codes(void **state)
{
    (void)state;
    struct slab *mine = NULL, *theirs = NULL;
    for (uint32_t dtype = SC_KERNELS_F32; dtype <= SC_KERNELS_BF16; dtype++)
        for (uint64_t w = 0; w < COUNT(WIDTHS); w++)
            for (uint32_t b = 0; b < COUNT(BITS); b++) {
                uint64_t count = 1 + (w * 7 + b * 13) % ROWS;
                struct sc_kernels_codec code = {WIDTHS[w], BITS[b], dtype};
                mine = slab_make(w * 31 + b, dtype);
                memset(mine->codes, GUARD, sizeof(mine->codes));
                memset(mine->scales, GUARD, sizeof(mine->scales));
                bool has = sc_kernels_ref_codec_encode(&code, mine->rows, count, mine->scales,
                                                       mine->codes);
                assert_true(has);
                for (uint32_t level = 1; level <= sc_kernels_level_best(); level++) {
                    theirs = slab_make(w * 31 + b, dtype);
                    memset(theirs->codes, GUARD, sizeof(theirs->codes));
                    memset(theirs->scales, GUARD, sizeof(theirs->scales));
                    assert_true(sc_kernels_get(level)->codec_encode(&code, theirs->rows, count,
                                                                    theirs->scales, theirs->codes));
                    assert_memory_equal(mine->scales, theirs->scales, sizeof(mine->scales));
                    assert_memory_equal(mine->codes, theirs->codes, sizeof(mine->codes));
                    free(theirs);
                }
                free(mine);
            }
}

static void a_slab_that_is_not_finite_has_no_codes(void **state)
{
    (void)state;
    static const uint32_t BAD32[] = {0x7fc00000u, 0x7f800000u, 0xff800000u, 0x7f7fffffu};
    static const uint16_t BAD16[] = {0x7e00, 0x7c00, 0xfc00, 0x7c01};
    static const uint16_t BADB16[] = {0x7fc0, 0x7f80, 0xff80, 0x7f7f}; /* the last: beyond f16 */
    for (uint32_t dtype = SC_KERNELS_F32; dtype <= SC_KERNELS_BF16; dtype++)
        for (uint32_t bad = 0; bad < 4; bad++)
            for (uint32_t level = 0; level <= sc_kernels_level_best(); level++) {
                struct slab *slab = slab_make(3, dtype);
                struct sc_kernels_codec code = {CHANNELS, 4, dtype};
                uint64_t row = (bad * 17 + level) % ROWS, channel = (bad * 61 + level) % CHANNELS;
                if (dtype == SC_KERNELS_F32)
                    memcpy(slab->bytes[row] + channel * 4, &BAD32[bad], 4);
                else
                    memcpy(slab->bytes[row] + channel * 2,
                           dtype == SC_KERNELS_F16 ? &BAD16[bad] : &BADB16[bad], 2);
                memset(slab->scales, GUARD, sizeof(slab->scales));
                memset(slab->codes, GUARD, sizeof(slab->codes));
                assert_false(sc_kernels_get(level)->codec_encode(&code, slab->rows, ROWS,
                                                                 slab->scales, slab->codes));
                for (uint64_t i = 0; i < sc_kernels_codec_scale_bytes(CHANNELS); i++)
                    assert_int_equal(slab->scales[i], 0);
                for (uint64_t i = 0; i < ROWS * sc_kernels_codec_row_bytes(CHANNELS, 4); i++)
                    assert_int_equal(slab->codes[i], 0);
                free(slab);
            }
}

/* The largest values there are, both signs: the top code's value is finite too, as codec.h says. */
static void the_largest_values_decode_to_finite_ones(void **state)
{
    (void)state;
    for (uint32_t b = 0; b < COUNT(BITS); b++)
        for (uint32_t level = 0; level <= sc_kernels_level_best(); level++) {
            struct slab *slab = slab_make(5, SC_KERNELS_F16);
            struct sc_kernels_codec code = {16, BITS[b], SC_KERNELS_F16};
            uint16_t ends[] = {0x7bff, 0xfbff}, out[ROWS][16]; /* +-65,504 */
            uint8_t *dst[ROWS];
            memset(slab->bytes, 0, sizeof(slab->bytes));
            for (uint64_t i = 0; i < ROWS; i++) {
                memcpy(slab->bytes[i], &ends[i % 2], 2);
                memcpy(slab->bytes[i] + 2, &ends[0], 2);
                dst[i] = (uint8_t *)out[i];
            }
            assert_true(sc_kernels_get(level)->codec_encode(&code, slab->rows, ROWS, slab->scales,
                                                            slab->codes));
            sc_kernels_get(level)->codec_decode(&(struct sc_kernels_codec_decode){
                &code, slab->scales, slab->codes, ROWS, 0, 16, dst, SC_KERNELS_F16, false});
            for (uint64_t i = 0; i < ROWS; i++) {
                assert_true((out[i][0] & 0x7fff) < 0x7c00);
                assert_int_equal(out[i][1], ends[0]);
            }
            free(slab);
        }
}

struct range {
    uint64_t first, count;
};

/* streams: rows at lines' borders, which stores past the caches need. */
static void decode_compare(const struct slab *slab, const struct sc_kernels_codec *code,
                           struct range range, uint64_t rows, uint32_t dst_dtype, uint32_t level,
                           bool streams)
{
    enum { STRIDE = (CHANNELS * 4 + GUARD_BYTES + 63) / 64 * 64 };
    static _Alignas(64) uint8_t expected[ROWS][STRIDE], found[ROWS][STRIDE];
    uint8_t *to[ROWS], *at[ROWS];
    memset(expected, GUARD, sizeof(expected));
    memset(found, GUARD, sizeof(found));
    for (uint64_t i = 0; i < ROWS; i++) {
        uint64_t offset = streams ? 0 : i % 3 * 4;
        to[i] = i % 5 == 3 ? NULL : expected[i] + offset;
        at[i] = i % 5 == 3 ? NULL : found[i] + offset;
    }
    sc_kernels_ref_codec_decode(&(struct sc_kernels_codec_decode){
        code, slab->scales, slab->codes, rows, range.first, range.count, to, dst_dtype, streams});
    sc_kernels_get(level)->codec_decode(&(struct sc_kernels_codec_decode){
        code, slab->scales, slab->codes, rows, range.first, range.count, at, dst_dtype, streams});
    sc_nt_copy_end();
    assert_memory_equal(expected, found, sizeof(expected));
}

static void every_rung_decodes_the_same_values(void **state)
{
    (void)state;
    static const struct range RANGES[] = {{0, CHANNELS}, {0, 64}, {64, 64}, {80, 40}, {8, 8},
                                          {16, 16},      {3, 5},  {13, 7},  {192, 8}, {0, 192}};
    for (uint32_t dtype = SC_KERNELS_F32; dtype <= SC_KERNELS_BF16; dtype++)
        for (uint32_t b = 0; b < COUNT(BITS); b++) {
            struct slab *slab = slab_make(b, dtype);
            struct sc_kernels_codec code = {CHANNELS, BITS[b], dtype};
            assert_true(
                sc_kernels_ref_codec_encode(&code, slab->rows, ROWS, slab->scales, slab->codes));
            for (uint32_t level = 1; level <= sc_kernels_level_best(); level++)
                for (uint64_t r = 0; r < COUNT(RANGES); r++)
                    for (uint64_t rows = 1; rows <= ROWS; rows += 21) {
                        decode_compare(slab, &code, RANGES[r], rows, dtype, level, false);
                        decode_compare(slab, &code, RANGES[r], rows, dtype, level, true);
                        decode_compare(slab, &code, RANGES[r], rows, SC_KERNELS_F32, level, false);
                        decode_compare(slab, &code, RANGES[r], rows, SC_KERNELS_F32, level, true);
                    }
            free(slab);
        }
}

/* To the byte, as docs/reference/store-format.md has it. */
static void a_slab_of_known_bytes_has_known_codes(void **state)
{
    (void)state;
    static const float ROWS_OF[3][2] = {{-1.0f, 0.5f}, {0.0f, 0.5f}, {2.5f, 0.5f}};
    const uint8_t *rows[3] = {(const void *)ROWS_OF[0], (const void *)ROWS_OF[1],
                              (const void *)ROWS_OF[2]};
    struct sc_kernels_codec code = {2, 5, SC_KERNELS_F32};
    /* min -1 and .5; steps 3.5 / 32 = .109375 and 0; codes 0, floor(1 / .109375) = 9, 31 */
    static const uint8_t MIN[4] = {0x00, 0xbc, 0x00, 0x38}, STEP[4] = {0x00, 0x2f, 0x00, 0x00};
    static const uint8_t LOW[3] = {0x0, 0x9, 0xf}, HIGH[3] = {0, 0, 1};
    uint8_t scales[64], codes[3 * 10];
    for (uint32_t level = 0; level <= sc_kernels_level_best(); level++) {
        assert_true(sc_kernels_get(level)->codec_encode(&code, rows, 3, scales, codes));
        assert_memory_equal(scales, MIN, sizeof(MIN));
        assert_memory_equal(scales + 32, STEP, sizeof(STEP));
        for (uint32_t i = 0; i < 3; i++) {
            assert_int_equal(codes[i * 10], LOW[i]);
            assert_int_equal(codes[i * 10 + 8], HIGH[i]);
        }
    }
}

/* [block][K heads | V heads] with a slot and a token that are skipped, against rows decoded one by
 * one. */
static void a_part_goes_to_the_places_of_its_memory(void **state)
{
    (void)state;
    enum { HEADS = 4, SIZE = 48, TOKENS = ROWS + 9, BLOCK = 7, SKIPPED = 17 };
    struct slab *slab = slab_make(21, SC_KERNELS_F16);
    struct sc_kernels_codec code = {HEADS * SIZE, 4, SC_KERNELS_F16};
    assert_true(sc_kernels_ref_codec_encode(&code, slab->rows, ROWS, slab->scales, slab->codes));
    static float out[TOKENS][HEADS][SIZE + 16], row[HEADS * SIZE];
    static int64_t slots[TOKENS];
    for (int64_t j = 0; j < TOKENS; j++)
        slots[j] = j == 12 ? -1 : TOKENS - 1 - j;
    static uint64_t skipped[(TOKENS + 63) / 64];
    memset(skipped, 0, sizeof(skipped));
    skipped[SKIPPED / 64] |= UINT64_C(1) << SKIPPED % 64;
    for (uint32_t level = 0; level <= sc_kernels_level_best(); level++) {
        memset(out, 0, sizeof(out));
        struct sc_kernels_memory memory = {.v_base = (uint8_t *)out,
                                           .token_stride_bytes = sizeof(out[0]),
                                           .head_stride_bytes = sizeof(out[0][0]),
                                           .block_tokens = BLOCK,
                                           .block_stride_bytes = BLOCK * sizeof(out[0]),
                                           .slots = slots};
        struct sc_kernels_decode how = {
            .kernels = sc_kernels_get(level),
            .memory = &memory,
            .head_count = HEADS,
            .head_size = SIZE,
            .quantised = {.scales = slab->scales, .codes = slab->codes, .bits = 4},
            .dst_dtype = SC_KERNELS_F32,
            .skipped = skipped};
        sc_kernels_part_decode(&how, 1, 5, ROWS);
        for (uint64_t i = 0; i < ROWS; i++) {
            uint8_t *dst = (uint8_t *)row;
            int64_t slot = slots[5 + i];
            if (slot < 0 || 5 + i == SKIPPED)
                continue;
            sc_kernels_ref_codec_decode(&(struct sc_kernels_codec_decode){
                &code, slab->scales,
                slab->codes + i * sc_kernels_codec_row_bytes(code.channels, code.bits), 1, 0,
                code.channels, &dst, SC_KERNELS_F32, false});
            for (uint64_t h = 0; h < HEADS; h++)
                assert_memory_equal(out[slot][h], row + h * SIZE, SIZE * sizeof(float));
        }
        for (uint64_t d = 0; d < SIZE; d++) { /* places of what was skipped */
            assert_true(out[TOKENS - 1 - 12][0][d] == 0);
            assert_true(out[TOKENS - 1 - SKIPPED][0][d] == 0);
        }
    }
    free(slab);
}

/* The same of free widths, from a token on; heads apart, or side by side (gap 0). */
static void planes_place(uint32_t level, uint64_t gap, uint32_t dst_dtype, uint32_t part,
                         const struct sc_kernels_quantised *quantised)
{
    enum { HEADS = 4, SIZE = 48, TOKENS = ROWS + 9, BLOCK = 7, SKIPPED = 17, FIRST = 5 };
    static uint8_t out[TOKENS * HEADS * (SIZE + 16) * 4], row[HEADS * SIZE * 4];
    static int64_t slots[TOKENS];
    static uint64_t skipped[(TOKENS + 63) / 64];
    uint64_t bytes = sc_kernels_dtype_bytes(dst_dtype), head = (SIZE + gap) * bytes;
    uint64_t token = HEADS * head, row_bytes = quantised->planes->row_bytes;
    for (int64_t j = 0; j < TOKENS; j++)
        slots[j] = j == 12 ? -1 : TOKENS - 1 - j;
    skipped[SKIPPED / 64] = UINT64_C(1) << SKIPPED % 64;
    memset(out, GUARD, sizeof(out));
    struct sc_kernels_memory memory = {.k_base = out,
                                       .v_base = out,
                                       .token_stride_bytes = token,
                                       .head_stride_bytes = head,
                                       .block_tokens = BLOCK,
                                       .block_stride_bytes = BLOCK * token,
                                       .slots = slots};
    struct sc_kernels_decode how = {.kernels = sc_kernels_get(level),
                                    .memory = &memory,
                                    .head_count = HEADS,
                                    .head_size = SIZE,
                                    .quantised = *quantised,
                                    .dst_dtype = dst_dtype,
                                    .skipped = skipped};
    sc_kernels_part_decode(&how, part, FIRST, ROWS);
    for (uint64_t j = 0; j < TOKENS; j++) {
        uint8_t *dst = row, *at = out + (TOKENS - 1 - j) * token;
        bool is_there = j >= FIRST && j < FIRST + ROWS && j != 12 && j != SKIPPED;
        memset(row, GUARD, sizeof(row));
        if (is_there)
            sc_kernels_ref_bitplanes_decode(&(struct sc_kernels_bitplanes_decode){
                .planes = quantised->planes,
                .scales = quantised->scales,
                .codes = quantised->codes + (j - FIRST) * row_bytes,
                .row_count = 1,
                .head_count = HEADS,
                .dst = &dst,
                .dst_dtype = dst_dtype,
                .rotary = quantised->rotary,
                .rope = sc_kernels_quantised_rope(quantised, j - FIRST)});
        for (uint64_t h = 0; h < HEADS; h++) {
            assert_memory_equal(at + h * head, row + h * SIZE * bytes, SIZE * bytes);
            for (uint64_t b = 0; b < gap * bytes; b++)
                assert_int_equal(at[h * head + SIZE * bytes + b], GUARD);
        }
    }
}

static void a_part_of_bits_per_channel_goes_to_the_places_of_its_memory(void **state)
{
    (void)state;
    enum { HEADS = 4, SIZE = 48 };
    struct slab *slab = slab_make(22, SC_KERNELS_BF16);
    static uint8_t to[HEADS * SIZE], scales[HEADS * SIZE * 4], codes[ROWS * HEADS * SIZE + 7];
    static float rope[ROWS * SIZE];
    static struct sc_kernels_bitplanes_group groups[HEADS];
    struct sc_kernels_bitplanes planes;
    double frequencies[SIZE / 2];
    for (uint64_t c = 0; c < HEADS * SIZE; c++) /* a plane has whole bytes */
        to[c] = (uint8_t)(c % SIZE / 8 * 5 % 9);
    assert_true(sc_kernels_bitplanes_init(&planes, HEADS, SIZE, to, groups));
    for (uint64_t i = 0; i < SIZE / 2; i++)
        frequencies[i] = pow(1e4, -2.0 * (double)i / SIZE);
    for (uint64_t i = 0; i < ROWS; i++)
        sc_kernels_rope_row(77 + i, frequencies, SIZE, rope + i * SIZE);
    for (uint32_t pairs = 0; pairs < 3; pairs++) { /* 2: not turned */
        const struct sc_kernels_rotary rotary = {pairs, SIZE};
        const struct sc_kernels_quantised quantised = {.scales = scales,
                                                       .codes = codes,
                                                       .planes = &planes,
                                                       .rotary = pairs < 2 ? &rotary : NULL,
                                                       .rope = pairs < 2 ? rope : NULL};
        assert_true(sc_kernels_ref_bitplanes_encode(
            &(struct sc_kernels_bitplanes_encode){.planes = &planes,
                                                  .rows = slab->rows,
                                                  .row_count = ROWS,
                                                  .dtype = SC_KERNELS_BF16,
                                                  .rotary = quantised.rotary,
                                                  .rope = quantised.rope,
                                                  .scales = scales,
                                                  .codes = codes}));
        for (uint32_t level = 0; level <= sc_kernels_level_best(); level++)
            for (uint64_t gap = 0; gap <= 16; gap += 16)
                for (uint32_t part = 0; part < 2; part++) {
                    planes_place(level, gap, SC_KERNELS_F32, part, &quantised);
                    planes_place(level, gap, SC_KERNELS_BF16, part, &quantised);
                }
    }
    free(slab);
}

/* Codes lie at the end of their memory, scores between others that stay. */
static void scores_compare(const struct sc_kernels_codec *code, uint64_t heads, uint64_t rows,
                           uint64_t queries)
{
    enum { HEADS_MAX = 3, SIZE_MOST = 256, KEYS = 21, STRIDE = KEYS + 2, QUERIES = 7 };
    static float values[KEYS][HEADS_MAX * SIZE_MOST], wanted[QUERIES][SIZE_MOST + 16];
    static float scores[QUERIES + 1][STRIDE];
    uint64_t seed = code->channels + code->bits * 7 + rows, size = code->channels / heads;
    uint64_t codes_bytes = rows * sc_kernels_codec_row_bytes(code->channels, code->bits);
    uint64_t scale_bytes = sc_kernels_codec_scale_bytes(code->channels);
    uint8_t *codes = malloc(codes_bytes), *scales = malloc(scale_bytes), *dst[KEYS];
    const uint8_t *src[KEYS];
    assert_true(codes != NULL && scales != NULL);
    for (uint64_t i = 0; i < rows; i++) {
        src[i] = dst[i] = (uint8_t *)values[i];
        for (uint64_t c = 0; c < code->channels; c++)
            values[i][c] = (float)draw(&seed) / (1u << 30) - 1.0f + (c % 9 == 4 ? 8 : 0);
    }
    assert_true(sc_kernels_ref_codec_encode(code, src, rows, scales, codes));
    sc_kernels_ref_codec_decode(&(struct sc_kernels_codec_decode){
        code, scales, codes, rows, 0, code->channels, dst, SC_KERNELS_F32, false});
    memset(wanted, 0, sizeof(wanted));
    for (uint64_t v = 0; v < queries; v++)
        for (uint64_t t = 0; t < size; t++)
            wanted[v][t] = (float)draw(&seed) / (1u << 30) - 1.0f;
    for (uint32_t level = 0; level <= sc_kernels_level_best(); level++)
        for (uint64_t h = 0; h < heads; h++) {
            struct sc_kernels_codec_score what = {.code = code,
                                                  .scales = scales,
                                                  .codes = codes,
                                                  .row_count = rows,
                                                  .channel_first = h * size,
                                                  .head_size = size,
                                                  .queries = wanted[0],
                                                  .head_padded = SIZE_MOST + 16,
                                                  .query_count = queries,
                                                  .scores = scores[0] + 1,
                                                  .score_stride = STRIDE,
                                                  .ahead = codes};
            memset(scores, GUARD, sizeof(scores));
            sc_kernels_get(level)->codec_score(&what);
            for (uint64_t v = 0; v <= QUERIES; v++)
                for (uint64_t i = 0; i < STRIDE; i++) {
                    bool is_score = v < queries && i >= 1 && i <= rows;
                    double sum = 0, most = 0;
                    for (uint64_t t = 0; is_score && t < size; t++) {
                        double product = (double)wanted[v][t] * (double)values[i - 1][h * size + t];
                        sum += product;
                        most += fabs(product) + fabs((double)wanted[v][t]);
                    }
                    if (is_score && !(fabs((double)scores[v][i] - sum) <= most * 0x1p-20))
                        fail_msg("level %u, %u bits, head %u of %u: query %u, key %u: %.9g is %.9g",
                                 level, code->bits, (unsigned)h, (unsigned)size, (unsigned)v,
                                 (unsigned)(i - 1), (double)scores[v][i], sum);
                    static const uint8_t GUARDS[4] = {GUARD, GUARD, GUARD, GUARD};
                    if (!is_score)
                        assert_memory_equal(&scores[v][i], GUARDS, 4);
                }
        }
    free(codes);
    free(scales);
}

static void every_rung_scores_codes_as_their_values(void **state)
{
    (void)state;
    static const uint64_t SIZES[] = {5,  8,  16, 20,  24,  32,  40,  48,  56, 64,
                                     72, 80, 96, 104, 112, 120, 128, 160, 256};
    for (uint32_t b = 0; b < COUNT(BITS); b++)
        for (uint64_t i = 0; i < COUNT(SIZES); i++)
            for (uint64_t heads = 1; heads <= 3; heads++) {
                struct sc_kernels_codec code = {heads * SIZES[i], BITS[b], SC_KERNELS_F32};
                for (uint64_t rows = 1; rows <= 21; rows += 4)
                    scores_compare(&code, heads, rows, 1 + (rows + i) % 7);
            }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_decoded_value_is_within_half_a_step),
        cmocka_unit_test(every_rung_writes_the_same_codes),
        cmocka_unit_test(a_slab_that_is_not_finite_has_no_codes),
        cmocka_unit_test(the_largest_values_decode_to_finite_ones),
        cmocka_unit_test(every_rung_decodes_the_same_values),
        cmocka_unit_test(a_slab_of_known_bytes_has_known_codes),
        cmocka_unit_test(every_rung_scores_codes_as_their_values),
        cmocka_unit_test(a_part_goes_to_the_places_of_its_memory),
        cmocka_unit_test(a_part_of_bits_per_channel_goes_to_the_places_of_its_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
