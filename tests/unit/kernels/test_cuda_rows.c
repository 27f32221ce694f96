/* Rows to their places and back, emulated, against kernels/rows.c over ref/: every layout, width of
 * elements and alignment, both parts and one, any bits at all, over orders of threads. */
#include "tests/unit/kernels/cuda_run.h"

struct rows_case {
    enum layout layout;
    struct place_shape shape; /* element: of the rows */
    uint64_t wide;            /* of the memory */
    uint32_t dtype, parts;
    uint64_t shift;  /* of the memory, elements */
    uint64_t offset; /* of packed rows, bytes */
    bool is_listed;  /* rows and tokens by lists */
};

/* What both sides are given. */
struct rows_run {
    struct rows_case how;
    struct place place;
    uint64_t row_bytes, stride;
    uint8_t *rows; /* [tokens], stride apart */
    uint8_t **at;
    uint32_t *tokens;
    struct sc_kernels_move move;
    struct sc_cuda_rows params;
};

/* Any bits: NaN of every payload, infinities, numbers that are not normal. */
static void bits_draw(uint64_t *state, uint8_t *dst, uint64_t bytes)
{
    static const uint16_t STRANGE[] = {0x7c01, 0xfe00, 0x7c00, 0xfc00, 0x0001, 0x83ff,
                                       0x8000, 0x7f81, 0xffc1, 0x7f80, 0x0040, 0x7bff};
    for (uint64_t i = 0; i + 1 < bytes; i += 2) {
        uint16_t half = (uint16_t)draw(state);
        half = draw(state) % 4 == 0 ? STRANGE[draw(state) % COUNT(STRANGE)] : half;
        memcpy(dst + i, &half, 2);
    }
}

static struct rows_run run_make(const struct rows_case *how)
{
    struct rows_run run = {.how = *how};
    struct place_shape there = how->shape;
    uint64_t seed = how->layout * 977 + how->shape.size, tokens = how->shape.tokens;
    uint64_t elements = how->shape.heads * how->shape.size;
    there.element = how->wide;
    run.place = place_make(how->layout, &there, how->shift);
    run.row_bytes = elements * how->shape.element * (how->parts == 3 ? 2 : 1);
    run.stride = run.row_bytes + (how->is_listed ? 16 : 0);
    run.rows = aligned_alloc(64, (64 + tokens * run.stride + 64 + 63) / 64 * 64);
    run.at = malloc((tokens + 1) * sizeof(*run.at));
    run.tokens = malloc((tokens + 1) * sizeof(*run.tokens));
    assert_true(run.rows != NULL && run.at != NULL && run.tokens != NULL);
    bits_draw(&seed, run.rows, 64 + tokens * run.stride + 64);
    for (uint64_t i = 0; i < tokens; i++) { /* lists go backwards */
        run.at[i] = run.rows + how->offset + (tokens - 1 - i) * run.stride;
        run.tokens[i] = (uint32_t)(tokens - 1 - i);
    }
    run.move = (struct sc_kernels_move){.kernels = sc_kernels_get(SC_KERNELS_REF),
                                        .head_count = how->shape.heads,
                                        .head_size = how->shape.size,
                                        .element_bytes = how->shape.element,
                                        .dtype = how->dtype,
                                        .widens = how->wide != how->shape.element};
    run.params = (struct sc_cuda_rows){
        .memory = place_cuda(&run.place),
        .at = how->is_listed ? run.at : NULL,
        .tokens = how->is_listed ? run.tokens : NULL,
        .rows = how->is_listed ? NULL : run.rows + how->offset,
        .row_stride_bytes = run.stride,
        .row_count = (uint32_t)tokens,
        .head_count = (uint32_t)how->shape.heads,
        .head_size = (uint32_t)how->shape.size,
        .parts = how->parts,
        .element_bytes = (uint32_t)how->shape.element,
        .there_bytes = (uint32_t)how->wide,
        .dtype = how->dtype,
    };
    return run;
}

static void run_free(struct rows_run *run)
{
    place_free(&run->place);
    free(run->rows);
    free(run->at);
    free(run->tokens);
}

static uint8_t *row_of(const struct rows_run *run, uint64_t token)
{
    return run->rows + run->how.offset + token * run->stride;
}

static void run_place(struct rows_run *run, uint64_t orders)
{
    struct sc_cuda_shape shape;
    uint32_t part = run->how.parts >> 1;
    run->move.memory = &run->place.memory[0];
    for (uint64_t j = 0; j < run->how.shape.tokens; j++)
        if (run->how.parts == 3)
            sc_kernels_rows_unpack(&run->move, j, 1, row_of(run, j));
        else
            sc_kernels_part_unpack(&run->move, part, j, 1, row_of(run, j), run->stride);
    for (uint64_t seed = 0; seed < orders; seed++) {
        assert_true(sc_cuda_rows_shape(&run->params, false, 1 + (uint32_t)seed % 3, &shape));
        launch("sc_cuda_rows_place", &run->params, sizeof(run->params), &shape, seed);
        place_check(&run->place, "place", run->how.layout, run->how.shape.size);
    }
}

/* The memories' bytes are any; packed rows lie between guards. */
static void run_pack(struct rows_run *run, uint64_t orders)
{
    uint64_t seed_bits = 7, bytes = 64 + run->how.shape.tokens * run->stride + 64;
    uint8_t *expected = malloc(bytes);
    struct sc_cuda_shape shape;
    uint32_t part = run->how.parts >> 1;
    assert_non_null(expected);
    run->move.memory = &run->place.memory[0];
    bits_draw(&seed_bits, run->place.bytes[0], run->place.byte_count);
    memcpy(run->place.bytes[1], run->place.bytes[0], run->place.byte_count);
    memset(run->rows, GUARD, bytes);
    for (uint64_t j = 0; j < run->how.shape.tokens; j++)
        if (sc_kernels_slot_of(&run->place.memory[0], j) >= 0) {
            if (run->how.parts == 3)
                sc_kernels_rows_pack(&run->move, j, 1, row_of(run, j));
            else
                sc_kernels_part_pack(&run->move, part, j, 1, row_of(run, j));
        }
    memcpy(expected, run->rows, bytes);
    for (uint64_t seed = 0; seed < orders; seed++) {
        memset(run->rows, GUARD, bytes);
        assert_true(sc_cuda_rows_shape(&run->params, true, 1 + (uint32_t)seed % 3, &shape));
        launch("sc_cuda_rows_pack", &run->params, sizeof(run->params), &shape, seed);
        assert_memory_equal(run->rows, expected, bytes);
    }
    assert_memory_equal(run->place.bytes[0], run->place.bytes[1], run->place.byte_count);
    free(expected);
}

static const struct place_shape SHAPES_OF_ROWS[] = {{1, 1, 1, 0}, {0, 2, 8, 0},  {9, 2, 64, 0},
                                                    {7, 3, 5, 0}, {5, 1, 20, 0}, {3, 4, 72, 0}};

static void rows_all(void (*run_one)(struct rows_run *run, uint64_t orders), bool is_packing)
{
    uint32_t n = 0;
    for (uint32_t layout = 0; layout < LAYOUTS; layout++)
        for (uint32_t s = 0; s < COUNT(SHAPES_OF_ROWS); s++)
            for (uint32_t kind = 0; kind < 5; kind++, n++) {
                static const uint64_t ELEMENTS[] = {2, 4, 2, 2, 1};
                struct rows_case how = {.layout = layout, .shape = SHAPES_OF_ROWS[s]};
                bool is_columns = layout >= COLUMNS, widens = kind == 2 || kind == 3;
                if ((widens && is_packing) || (kind == 4 && is_columns))
                    continue;
                if (!is_due(n, 7, 1))
                    continue;
                how.shape.element = ELEMENTS[kind];
                how.wide = widens ? 4 : how.shape.element;
                how.dtype = kind == 2 ? SC_KERNELS_F16 : SC_KERNELS_BF16;
                how.parts = n % 5 < 3 ? 3 : n % 5 - 2;
                how.shift = n % 4 == 3 ? 1 : 0;
                how.offset = n % 3 == 0 ? 0 : is_columns ? 16 : n % 3 == 1 ? n % 16 : 8;
                how.is_listed = n % 2 == 0;
                struct rows_run run = run_make(&how);
                run_one(&run, n % 14 == 1 ? ORDERS : 2);
                run_free(&run);
            }
}

static void rows_are_placed_as_ref_places_them(void **state)
{
    (void)state;
    rows_all(run_place, false);
}

static void rows_are_packed_as_ref_packs_them(void **state)
{
    (void)state;
    rows_all(run_pack, true);
}

/* As many pieces as several turns of a warp take, with a rest; of one part and of both. */
static void large_rows_go_by_16_bytes_and_by_less(void **state)
{
    (void)state;
    for (uint32_t n = 0; n < 8; n++) {
        struct rows_case how = {.layout = n % 2 ? HEAD_MAJOR : PACKED,
                                .shape = {3, 5, 1032, 2},
                                .wide = 2,
                                .dtype = SC_KERNELS_F16};
        how.parts = 1 + n % 3;
        how.shift = n / 2 % 4;
        how.offset = n / 2 % 4 * 2;
        how.wide = n >= 4 && n % 2 ? 4 : 2;
        struct rows_run run = run_make(&how);
        run_place(&run, 2);
        if (how.wide == 2)
            run_pack(&run, 2);
        run_free(&run);
    }
}

/* Bit by bit, whatever ref/ says: all f16 there are, and all bf16. */
static void every_number_of_16_bits_is_widened_with_its_payload(void **state)
{
    (void)state;
    for (uint32_t dtype = SC_KERNELS_F16; dtype <= SC_KERNELS_BF16; dtype++)
        for (uint64_t shift = 0; shift < 2; shift++) {
            struct rows_case how = {.shape = {8, 4, 2048, 2},
                                    .wide = 4,
                                    .dtype = dtype,
                                    .parts = SC_CUDA_K,
                                    .shift = shift};
            struct rows_run run = run_make(&how);
            for (uint32_t i = 0; i < 65536; i++)
                memcpy(run.rows + 2 * i, &(uint16_t){(uint16_t)i}, 2);
            run_place(&run, 1);
            run_free(&run);
        }
}

/* The bits that hardware's conversions lose, by hand. */
static void a_nan_keeps_its_payload_and_becomes_quiet(void **state)
{
    (void)state;
    static const uint16_t FROM[] = {0x7c01, 0xfd55, 0x7e00, 0x7c00, 0xfc00, 0x8001, 0x03ff};
    static const uint32_t TO[] = {0x7fc02000, 0xffeaa000, 0x7fc00000, 0x7f800000,
                                  0xff800000, 0xb3800000, 0x387fc000};
    struct rows_case how = {
        .shape = {1, 1, COUNT(FROM), 2}, .wide = 4, .dtype = SC_KERNELS_F16, .parts = SC_CUDA_K};
    struct rows_run run = run_make(&how);
    struct sc_cuda_shape shape;
    memcpy(run.rows, FROM, sizeof(FROM));
    assert_true(sc_cuda_rows_shape(&run.params, false, 1, &shape));
    launch("sc_cuda_rows_place", &run.params, sizeof(run.params), &shape, 0);
    assert_memory_equal(run.place.memory[1].k_base, TO, sizeof(TO));
    run_free(&run);
}

static void what_no_kernel_can_do_is_refused(void **state)
{
    (void)state;
    struct rows_case how = {.shape = {2, 2, 8, 2}, .wide = 2, .dtype = SC_KERNELS_F16, .parts = 3};
    struct rows_run run = run_make(&how);
    struct sc_cuda_shape shape;
    struct sc_cuda_rows good = run.params, bad;
    assert_true(sc_cuda_rows_shape(&good, false, 1, &shape));
    for (uint32_t n = 0; n < 8; n++) {
        bad = good;
        bad.element_bytes = n == 0 ? 8 : n == 1 ? 3 : bad.element_bytes;
        bad.there_bytes = n == 2 ? 1 : n == 3 ? 4 : bad.there_bytes;
        bad.dtype = n == 3 ? SC_CUDA_F32 : bad.dtype;
        bad.parts = n == 4 ? 0 : n == 5 ? 4 : bad.parts;
        bad.head_size = n == 6 ? 1u << 25 : n == 7 ? 0 : bad.head_size;
        assert_false(sc_cuda_rows_shape(&bad, false, 1, &shape));
    }
    bad = good;
    bad.there_bytes = 4;
    assert_true(sc_cuda_rows_shape(&bad, false, 1, &shape));
    assert_false(sc_cuda_rows_shape(&bad, true, 1, &shape));
    assert_false(sc_cuda_rows_shape(&good, false, 0, &shape));
    struct sc_kernels_memory memory = run.place.memory[1];
    struct sc_cuda_memory found;
    memory.k_base++;
    assert_false(sc_cuda_memory_of(&memory, 2, &found));
    memory.k_base--;
    memory.v_token_stride_bytes = 33;
    assert_false(sc_cuda_memory_of(&memory, 2, &found));
    assert_false(sc_cuda_memory_of(&run.place.memory[1], 8, &found));
    run_free(&run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_placed_as_ref_places_them),
        cmocka_unit_test(rows_are_packed_as_ref_packs_them),
        cmocka_unit_test(large_rows_go_by_16_bytes_and_by_less),
        cmocka_unit_test(every_number_of_16_bits_is_widened_with_its_payload),
        cmocka_unit_test(a_nan_keeps_its_payload_and_becomes_quiet),
        cmocka_unit_test(what_no_kernel_can_do_is_refused),
    };
    return cmocka_run_group_tests(tests, cuda_open, cuda_close);
}
