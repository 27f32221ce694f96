/* Codes of free widths, decoded by the emulated kernel, against ref/: tables of any widths, keys
 * turned by halves and by pairs, every layout and type, over orders of threads. Codes and
 * scales have nothing in front of them or behind that may be read. */
#include "tests/unit/kernels/cuda_run.h"

/* A slab on the device: what the kernel is given. */
struct device_slab {
    struct exact scales, codes, rope;
    struct sc_cuda_bitplanes_table *table;
    struct sc_cuda_bitplanes_slab slabs[2]; /* cut in two */
    uint32_t count;
};

static struct sc_cuda_bitplanes_table *table_make(const struct sc_kernels_bitplanes *planes,
                                                  const struct sc_kernels_rotary *rotary)
{
    void *table = NULL;
    uint64_t bytes = sc_cuda_bitplanes_table_bytes(planes, rotary);
    assert_true(bytes > 0);
    assert_int_equal(posix_memalign(&table, 16, bytes), 0);
    sc_cuda_bitplanes_table_make(planes, rotary, table);
    assert_int_equal(bytes, 16 + 16 * 9 * ((struct sc_cuda_bitplanes_table *)table)->unit_count);
    return table;
}

static struct device_slab *device_make(const struct slab *slab, const struct made *made,
                                       uint32_t part, uint64_t offset)
{
    struct device_slab *device = calloc(1, sizeof(*device));
    assert_non_null(device);
    const struct sc_kernels_rotary *rotary = slab->encode.rotary;
    uint64_t row_bytes = slab->planes.row_bytes, turned = rotary != NULL ? rotary->turned : 0;
    device->scales =
        exact_copy(made->scales + 64, sc_kernels_bitplanes_scale_bytes(&slab->planes), offset);
    device->codes = exact_copy(made->codes + 64, slab->rows * row_bytes, offset);
    device->rope = exact_copy(slab->rope, slab->rows * turned * sizeof(float), offset / 4 * 4);
    device->table = table_make(&slab->planes, rotary);
    uint32_t cut = slab->rows > 5 ? (uint32_t)slab->rows / 3 : (uint32_t)slab->rows;
    device->count = cut < slab->rows ? 2 : 1;
    device->slabs[0] =
        (struct sc_cuda_bitplanes_slab){.table = device->table,
                                        .scales = device->scales.at,
                                        .codes = device->codes.at,
                                        .rope = (const float *)(const void *)device->rope.at,
                                        .row_count = cut,
                                        .part = part};
    device->slabs[1] = device->slabs[0];
    device->slabs[1].codes += cut * row_bytes;
    device->slabs[1].rope += cut * turned;
    device->slabs[1].token_first = cut;
    device->slabs[1].row_count = (uint32_t)slab->rows - cut;
    return device;
}

static void device_free(struct device_slab *device)
{
    free(device->scales.block);
    free(device->codes.block);
    free(device->rope.block);
    free(device->table);
    free(device);
}

struct decode_case {
    enum layout layout;
    uint32_t dst_dtype;
    bool skips;
    uint64_t shift, offset, orders;
};

static void ref_decode(const struct slab *slab, const struct device_slab *device,
                       const struct sc_kernels_memory *memory, const struct decode_case *how,
                       const uint64_t *skipped, uint32_t part)
{
    struct sc_kernels_decode decode = {.kernels = sc_kernels_get(SC_KERNELS_REF),
                                       .memory = memory,
                                       .head_count = HEADS,
                                       .head_size = slab->size,
                                       .quantised = {.scales = device->scales.at,
                                                     .codes = device->codes.at,
                                                     .planes = &slab->planes,
                                                     .rotary = slab->encode.rotary,
                                                     .rope = slab->rope},
                                       .dst_dtype = how->dst_dtype,
                                       .skipped = skipped};
    sc_kernels_part_decode(&decode, part, 0, slab->rows);
}

/* Slab 0 is K, slab 1 V: of as many rows and channels. */
static void decode_compare(struct slab *const slab[2], const struct made *const made[2],
                           const struct decode_case *how, uint32_t n)
{
    struct place_shape there = {slab[0]->rows, HEADS, slab[0]->size,
                                sc_kernels_dtype_bytes(how->dst_dtype)};
    struct place place = place_make(how->layout, &there, how->shift);
    uint64_t skipped[ROWS / 64] = {0}, seed = n;
    struct sc_cuda_bitplanes_slab slabs[4];
    struct device_slab *device[2];
    uint32_t count = 0, units = 0;
    for (uint32_t i = 0; i < ROWS / 64 && how->skips; i++)
        skipped[i] = draw(&seed) & draw(&seed) << 17;
    for (uint32_t part = 0; part < 2; part++) {
        device[part] = device_make(slab[part], made[part], part, how->offset);
        memcpy(slabs + count, device[part]->slabs, sizeof(device[part]->slabs));
        count += device[part]->count;
        if (device[part]->table->unit_count > units)
            units = device[part]->table->unit_count;
        ref_decode(slab[part], device[part], &place.memory[0], how, skipped, part);
    }
    struct sc_cuda_bitplanes params = {.memory = place_cuda(&place),
                                       .slabs = slabs,
                                       .skipped = how->skips ? skipped : NULL,
                                       .head_count = HEADS,
                                       .head_size = (uint32_t)slab[0]->size,
                                       .dst_dtype = how->dst_dtype,
                                       .rows_each = 1 + n * 7 % 60};
    struct sc_cuda_shape shape;
    for (uint64_t order = 0; order < how->orders; order++) {
        assert_true(
            sc_cuda_bitplanes_shape(&params, units, count, (uint32_t)slab[0]->rows, &shape));
        lend(slabs, sizeof(slabs));
        lend(skipped, sizeof(skipped));
        launch("sc_cuda_bitplanes_decode", &params, sizeof(params), &shape, order);
        place_check(&place, "planes", n, slab[0]->size);
    }
    device_free(device[0]);
    device_free(device[1]);
    place_free(&place);
}

static void shape_run(uint32_t n, struct shape shape, struct decode_case how)
{
    static struct made made_k, made_v;
    const struct made *made[2] = {&made_k, &made_v};
    struct shape of_v = shape;
    of_v.turned = 0;
    of_v.least = n % 3;
    of_v.most = 3 + n % 5;
    struct slab *slab[2] = {slab_make(n, shape), slab_make(n + 1000, of_v)};
    assert_true(slab_encode(slab[0], SC_KERNELS_REF, &made_k));
    assert_true(slab_encode(slab[1], SC_KERNELS_REF, &made_v));
    decode_compare(slab, made, &how, n);
    free(slab[0]);
    free(slab[1]);
}

static struct decode_case case_of(uint32_t n)
{
    struct decode_case how = {.layout = n % LAYOUTS, .orders = 1};
    how.dst_dtype = n % 4 == 1 ? (uint32_t)SC_KERNELS_F32 : n / 3 % 3;
    how.skips = n % 3 == 0;
    how.shift = n % 6 == 5 ? 1 : 0;
    how.offset = n % 4 == 3 ? n % 16 : 0;
    return how;
}

static void planes_become_the_bits_that_ref_makes(void **state)
{
    (void)state;
    for (uint32_t n = 0; n < SHAPES; n++) {
        struct decode_case how = case_of(n);
        struct shape shape = shape_of(n);
        if (n % 16 == 3) {
            how.orders = ORDERS;
            shape.rows = 1 + shape.rows % 40;
        }
        if (is_due(n, 16, 3))
            shape_run(n, shape, how);
    }
}

/* Turns that end at no multiple of 8, and heads that do not either: pairs whose channels are of two
 * groups, runs of less than 8. */
static void odd_turns_and_heads_decode_as_in_ref(void **state)
{
    (void)state;
    static const uint32_t TURNED[][2] = {{80, 20},   {128, 100}, {128, 124}, {96, 90}, {72, 2},
                                         {256, 134}, {256, 250}, {16, 10},   {40, 30}, {200, 126}};
    for (uint32_t n = 0; n < 4 * COUNT(TURNED); n++) {
        struct shape shape = {.rows = 1 + n * 3 % 11, .dtype = n % 3, .most = 6};
        shape.size = TURNED[n % COUNT(TURNED)][0];
        struct decode_case how = case_of(n);
        shape.turned = TURNED[n % COUNT(TURNED)][1];
        shape.pairs = n / COUNT(TURNED) % 2;
        shape_run(n, shape, how);
    }
}

static uint16_t finite_f16(uint64_t bits)
{
    return (uint16_t)((bits & 0x7c00) == 0x7c00 ? bits & 0xfbff : bits);
}

/* 9 heads of 128 are 72 units: a block and a bit. Codes are any bits, scales any finite f16: all of
 * them are values, and of f16 many are infinity. */
static void more_units_than_a_block_has_are_decoded(void **state)
{
    (void)state;
    enum { MANY = 9, SIZE = 128, COUNT_OF_ROWS = 13 };
    static uint8_t to[MANY * SIZE], codes[COUNT_OF_ROWS * MANY * SIZE];
    static struct sc_kernels_bitplanes_group groups[MANY * SIZE / SC_KERNELS_BITPLANES_GROUP];
    static uint16_t scales[2 * MANY * SIZE];
    static float rope[COUNT_OF_ROWS * SIZE];
    uint64_t seed = 5;
    struct sc_kernels_bitplanes planes;
    for (uint32_t h = 0; h < MANY; h++)
        bit_counts_draw(&seed, SIZE, 0, 8, to + h * SIZE);
    for (uint32_t i = 0; i < 2 * MANY * SIZE; i++)
        scales[i] = finite_f16(draw(&seed));
    for (uint32_t i = 0; i < sizeof(codes); i++)
        codes[i] = (uint8_t)draw(&seed);
    for (uint32_t i = 0; i < COUNT(rope); i++)
        rope[i] = (float)draw(&seed) / (1u << 30) - 1.0f;
    assert_true(sc_kernels_bitplanes_init(&planes, MANY, SIZE, to, groups));
    for (uint32_t n = 0; n < 2 * SC_CUDA_DTYPES; n++) {
        uint32_t pairs = n % 2, dtype = n / 2;
        struct sc_kernels_rotary rotary = {pairs, SIZE};
        struct place_shape there = {COUNT_OF_ROWS, MANY, SIZE, sc_kernels_dtype_bytes(dtype)};
        struct place place = place_make(BLOCKS, &there, 0);
        struct sc_cuda_bitplanes_table *table = table_make(&planes, &rotary);
        sc_kernels_part_decode(
            &(struct sc_kernels_decode){.kernels = sc_kernels_get(SC_KERNELS_REF),
                                        .memory = &place.memory[0],
                                        .head_count = MANY,
                                        .head_size = SIZE,
                                        .quantised = {.scales = (uint8_t *)scales,
                                                      .codes = codes,
                                                      .planes = &planes,
                                                      .rotary = &rotary,
                                                      .rope = rope},
                                        .dst_dtype = dtype},
            0, 0, COUNT_OF_ROWS);
        struct sc_cuda_bitplanes_slab slab = {.table = table,
                                              .scales = (uint8_t *)scales,
                                              .codes = codes,
                                              .rope = rope,
                                              .row_count = COUNT_OF_ROWS};
        struct sc_cuda_bitplanes params = {place_cuda(&place), &slab, NULL, MANY, SIZE, dtype, 4};
        struct sc_cuda_shape shape;
        assert_true(sc_cuda_bitplanes_shape(&params, table->unit_count, 1, COUNT_OF_ROWS, &shape));
        assert_int_equal(shape.grid[1], 2);
        lend(scales, sizeof(scales));
        lend(codes, sizeof(codes));
        lend(rope, sizeof(rope));
        lend(&slab, sizeof(slab));
        launch("sc_cuda_bitplanes_decode", &params, sizeof(params), &shape, pairs);
        place_check(&place, "many units", pairs, dtype);
        free(table);
        place_free(&place);
    }
}

static void a_table_names_each_bit_once(void **state)
{
    (void)state;
    for (uint32_t n = 0; n < SHAPES; n++) {
        struct shape shape = shape_of(n);
        struct slab *slab = slab_make(n, shape);
        struct sc_cuda_bitplanes_table *table = table_make(&slab->planes, slab->encode.rotary);
        const struct sc_cuda_unit *units = (const struct sc_cuda_unit *)(table + 1);
        const struct sc_cuda_unit_plane *bits =
            (const struct sc_cuda_unit_plane *)(units + table->unit_count);
        uint64_t channels = 0, found = 0, expected = 0;
        for (uint32_t u = 0; u < table->unit_count; u++)
            for (uint32_t run = 0; run < 2; run++) {
                channels += units[u].count[run];
                for (uint32_t p = 0; p < SC_KERNELS_BITPLANES; p++)
                    found += bits[p * table->unit_count + u].where[run] & 15;
            }
        for (uint64_t c = 0; c < HEADS * slab->size; c++)
            expected += slab->to[c];
        assert_int_equal(channels, HEADS * slab->size);
        assert_int_equal(found, expected);
        assert_int_equal(table->row_bytes * 8, expected);
        free(table);
        free(slab);
    }
}

static void a_shape_that_no_table_holds_is_refused(void **state)
{
    (void)state;
    struct sc_kernels_bitplanes planes = {.head_count = 2, .head_size = 128, .row_bytes = 10};
    struct sc_kernels_rotary rotary = {SC_KERNELS_ROTARY_HALF, 130};
    assert_true(sc_cuda_bitplanes_table_bytes(&planes, NULL) > 0);
    assert_int_equal(sc_cuda_bitplanes_table_bytes(&planes, &rotary), 0);
    rotary.turned = 127;
    assert_int_equal(sc_cuda_bitplanes_table_bytes(&planes, &rotary), 0);
    planes.row_bytes = 1u << 24;
    assert_int_equal(sc_cuda_bitplanes_table_bytes(&planes, NULL), 0);
    planes.row_bytes = 10;
    planes.head_count = 70000;
    assert_int_equal(sc_cuda_bitplanes_table_bytes(&planes, NULL), 0);
    struct sc_cuda_bitplanes params = {.head_count = 2, .head_size = 300, .rows_each = 8};
    struct sc_cuda_shape shape;
    assert_false(sc_cuda_bitplanes_shape(&params, 8, 1, 1, &shape));
    params.head_size = 128;
    assert_true(sc_cuda_bitplanes_shape(&params, 8, 1, 1, &shape));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(planes_become_the_bits_that_ref_makes),
        cmocka_unit_test(odd_turns_and_heads_decode_as_in_ref),
        cmocka_unit_test(more_units_than_a_block_has_are_decoded),
        cmocka_unit_test(a_table_names_each_bit_once),
        cmocka_unit_test(a_shape_that_no_table_holds_is_refused),
    };
    return cmocka_run_group_tests(tests, cuda_open, cuda_close);
}
