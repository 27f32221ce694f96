/* Codes of even widths, decoded by the emulated kernel, against ref/: every width, type and layout,
 * slabs cut in two, rows that are skipped, codes at any address, over orders of threads. */
#include "tests/unit/kernels/cuda_run.h"

#define ROW_COUNT     70u
#define CUT           33u
#define CHANNELS_MOST 1280u

static const uint32_t WIDTHS[] = {2, 3, 4, 5, 6, 8};

struct code_case {
    enum layout layout;
    uint64_t heads, size;
    uint32_t bits, dtype, dst_dtype;
    uint64_t offset, shift;
    bool skips;
};

struct quantised_part {
    struct exact scales, codes;
    uint64_t row_bytes;
};

static struct quantised_part part_make(uint64_t seed, const struct sc_kernels_codec *code,
                                       uint64_t offset)
{
    static uint8_t rows[ROW_COUNT][CHANNELS_MOST * 4];
    static uint8_t scales[CHANNELS_MOST * 4], codes[ROW_COUNT * CHANNELS_MOST];
    const uint8_t *at[ROW_COUNT];
    struct quantised_part part = {.row_bytes =
                                      sc_kernels_codec_row_bytes(code->channels, code->bits)};
    assert_true(code->channels <= CHANNELS_MOST);
    for (uint32_t i = 0; i < ROW_COUNT; i++) {
        at[i] = rows[i];
        for (uint64_t c = 0; c < code->channels; c++)
            value_draw(&seed, c, code->dtype, rows[i] + c * sc_kernels_dtype_bytes(code->dtype));
    }
    assert_true(sc_kernels_get(SC_KERNELS_REF)->codec_encode(code, at, ROW_COUNT, scales, codes));
    part.scales = exact_copy(scales, sc_kernels_codec_scale_bytes(code->channels), offset);
    part.codes = exact_copy(codes, ROW_COUNT * part.row_bytes, offset);
    return part;
}

/* A part of the slab in two pieces, as a match may cut it. */
static void slabs_add(struct sc_cuda_codec_slab *slabs, const struct quantised_part *part,
                      uint16_t which, uint16_t bits)
{
    slabs[0] = (struct sc_cuda_codec_slab){part->scales.at, part->codes.at, 0, CUT, which, bits};
    slabs[1] = slabs[0];
    slabs[1].codes += CUT * part->row_bytes;
    slabs[1].token_first = CUT;
    slabs[1].row_count = ROW_COUNT - CUT;
}

static void case_run(const struct code_case *how, uint64_t orders)
{
    struct place_shape there = {ROW_COUNT, how->heads, how->size,
                                sc_kernels_dtype_bytes(how->dst_dtype)};
    struct place place = place_make(how->layout, &there, how->shift);
    struct quantised_part parts[2];
    struct sc_cuda_codec_slab slabs[4];
    uint64_t skipped[2] = {UINT64_C(0x8001000000000410), 0x21};
    for (uint32_t part = 0; part < 2; part++) {
        uint32_t bits = part == 0 ? how->bits : WIDTHS[how->bits % COUNT(WIDTHS)];
        struct sc_kernels_codec code = {how->heads * how->size, bits, how->dtype};
        parts[part] = part_make(part + bits, &code, how->offset);
        slabs_add(&slabs[2 * part], &parts[part], (uint16_t)part, (uint16_t)bits);
        struct sc_kernels_decode decode = {.kernels = sc_kernels_get(SC_KERNELS_REF),
                                           .memory = &place.memory[0],
                                           .head_count = how->heads,
                                           .head_size = how->size,
                                           .quantised = {.scales = parts[part].scales.at,
                                                         .codes = parts[part].codes.at,
                                                         .bits = bits},
                                           .dst_dtype = how->dst_dtype,
                                           .skipped = how->skips ? skipped : NULL};
        sc_kernels_part_decode(&decode, part, 0, ROW_COUNT);
    }
    struct sc_cuda_codec params = {
        place_cuda(&place),  slabs,          how->skips ? skipped : NULL, (uint32_t)how->heads,
        (uint32_t)how->size, how->dst_dtype, how->bits % 2 ? 256 : 16};
    struct sc_cuda_shape shape;
    for (uint64_t seed = 0; seed < orders; seed++) {
        assert_true(sc_cuda_codec_shape(&params, 4, ROW_COUNT - CUT, &shape));
        lend(slabs, sizeof(slabs));
        lend(skipped, sizeof(skipped));
        launch("sc_cuda_codec_decode", &params, sizeof(params), &shape, seed);
        place_check(&place, "code", how->bits, how->size);
    }
    for (uint32_t part = 0; part < 2; part++) {
        free(parts[part].scales.block);
        free(parts[part].codes.block);
    }
    place_free(&place);
}

static const uint64_t SHAPES_OF_CODES[][2] = {{1, 1}, {2, 8}, {3, 20}, {2, 64}, {8, 5}, {10, 128}};

static void codes_become_the_bits_that_ref_makes(void **state)
{
    (void)state;
    uint32_t n = 0;
    for (uint32_t layout = 0; layout < LAYOUTS; layout++)
        for (uint32_t s = 0; s < COUNT(SHAPES_OF_CODES); s++)
            for (uint32_t w = 0; w < COUNT(WIDTHS); w++, n++) {
                struct code_case how = {.layout = layout, .bits = WIDTHS[w], .dtype = n % 3};
                how.heads = SHAPES_OF_CODES[s][0];
                how.size = SHAPES_OF_CODES[s][1];
                how.dst_dtype = n % 4 == 0 ? SC_KERNELS_F32 : n % 3;
                how.offset = n % 3 == 1 ? 8 : n % 5 == 2 ? 2 : n % 7 == 3 ? 1 : 0;
                how.shift = n % 5 == 1 ? 1 : 0;
                how.skips = n % 2 == 0;
                if (is_due(n, 8, 5))
                    case_run(&how, n % 27 == 0 ? ORDERS : 1);
            }
}

/* Of f16 the least and the most there are, infinite steps aside: values reach both ends. */
static void the_largest_and_the_smallest_scales_decode_as_in_ref(void **state)
{
    (void)state;
    enum { CHANNELS_HERE = 32 };
    static const uint16_t LEAST[] = {0xfbff, 0x0001, 0x8001, 0x03ff,
                                     0x0000, 0x8000, 0x3c00, 0x7bff};
    static const uint16_t STEP[] = {0x7bff, 0x0001, 0x0000, 0x3c00, 0x5c00, 0x0400};
    uint8_t codes[CHANNELS_HERE * 2];
    uint16_t scales[2 * CHANNELS_HERE];
    for (uint32_t n = 0; n < COUNT(LEAST) * COUNT(STEP); n++)
        for (uint32_t dtype = 0; dtype < SC_CUDA_DTYPES; dtype++) {
            for (uint32_t c = 0; c < CHANNELS_HERE; c++) {
                scales[c] = LEAST[n % COUNT(LEAST)];
                scales[CHANNELS_HERE + c] = STEP[n / COUNT(LEAST)];
                codes[c] = (uint8_t)(c * 8 + n);
                codes[CHANNELS_HERE + c] = (uint8_t)~codes[c];
            }
            struct place_shape there = {2, 1, CHANNELS_HERE, sc_kernels_dtype_bytes(dtype)};
            struct place place = place_make(PACKED, &there, 0);
            struct sc_kernels_decode decode = {
                .kernels = sc_kernels_get(SC_KERNELS_REF),
                .memory = &place.memory[0],
                .head_count = 1,
                .head_size = CHANNELS_HERE,
                .quantised = {.scales = (uint8_t *)scales, .codes = codes, .bits = 8},
                .dst_dtype = dtype};
            sc_kernels_part_decode(&decode, 1, 0, 2);
            struct sc_cuda_codec_slab slab = {(uint8_t *)scales, codes, 0, 2, 1, 8};
            struct sc_cuda_codec params = {place_cuda(&place), &slab, NULL, 1,
                                           CHANNELS_HERE,      dtype, 1};
            struct sc_cuda_shape shape;
            assert_true(sc_cuda_codec_shape(&params, 1, 2, &shape));
            lend(scales, sizeof(scales));
            lend(codes, sizeof(codes));
            lend(&slab, sizeof(slab));
            launch("sc_cuda_codec_decode", &params, sizeof(params), &shape, 0);
            place_check(&place, "scales", n, dtype);
            place_free(&place);
        }
}

static void nothing_is_launched_for_nothing(void **state)
{
    (void)state;
    struct sc_cuda_codec params = {.head_count = 8, .head_size = 128, .dst_dtype = SC_CUDA_F16};
    struct sc_cuda_shape shape;
    assert_false(sc_cuda_codec_shape(&params, 1, 1, &shape)); /* rows_each is 0 */
    params.rows_each = 32;
    assert_true(sc_cuda_codec_shape(&params, 0, 100, &shape));
    assert_int_equal(shape.grid[0], 0);
    assert_true(sc_cuda_codec_shape(&params, 3, 0, &shape));
    assert_int_equal(shape.grid[0], 0);
    assert_true(sc_cuda_codec_shape(&params, 3, 65, &shape));
    assert_int_equal(shape.grid[0], 3);
    assert_int_equal(shape.grid[1], 1);
    assert_int_equal(shape.grid[2], 3);
    params.dst_dtype = SC_CUDA_DTYPES;
    assert_false(sc_cuda_codec_shape(&params, 3, 65, &shape));
    params.dst_dtype = SC_CUDA_F32;
    params.rows_each = 1;
    assert_false(sc_cuda_codec_shape(&params, 1, 1u << 20, &shape));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(codes_become_the_bits_that_ref_makes),
        cmocka_unit_test(the_largest_and_the_smallest_scales_decode_as_in_ref),
        cmocka_unit_test(nothing_is_launched_for_nothing),
    };
    return cmocka_run_group_tests(tests, cuda_open, cuda_close);
}
