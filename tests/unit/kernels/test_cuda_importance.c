/* Importance sums by the emulated kernels, against those of ref/: keys of every type and layout,
 * codes of even and of free widths beside each other, turned and not, new keys, the last row alone;
 * per head and in total, the same bits over orders of threads. What is read has nothing in front of
 * it or behind that may be read; what is written has guards. */
#include "tests/unit/kernels/cuda_score.h"

static const struct score_way FFMA = {"sc_cuda_score_best", "sc_cuda_score_columns"};

static void score_run(struct sc_cuda_score *what, const struct scored *to, uint64_t seed)
{
    score_run_by(&FFMA, what, to, seed);
}

static void case_run(const struct score_case *how, uint64_t orders, uint64_t n)
{
    case_run_by(&FFMA, how, orders, n);
}

/* ---- Cases ---------------------------------------------------------------------------------- */

static void rows_are_scored_as_ref_scores_them(void **state)
{
    (void)state;
    static const uint64_t SIZES_OF_ROWS[] = {64, 128, 80, 5, 256, 20, 132};
    for (uint64_t n = 0; n < LAYOUTS * COUNT(SIZES_OF_ROWS); n++) {
        struct score_case how = {.layout = n % LAYOUTS, .heads = 2 + n % 2};
        how.size = SIZES_OF_ROWS[n / LAYOUTS % COUNT(SIZES_OF_ROWS)];
        rest_of(&how, n);
        if (FEW(n))
            case_run(&how, n % 32 == 3 ? ORDERS : 1, n);
    }
}

static void codes_of_uniform_bits_are_scored_as_what_they_decode_to(void **state)
{
    (void)state;
    static const uint64_t SIZES_OF_CODES[] = {64, 128, 80, 5, 256, 20, 24};
    static const uint32_t WIDTHS[] = {2, 3, 4, 5, 6, 8};
    for (uint64_t n = 0; n < COUNT(SIZES_OF_CODES) * COUNT(WIDTHS); n++) {
        struct score_case how = {.kinds = EVEN, .layout = n % LAYOUTS, .heads = 2 + n % 2};
        how.size = SIZES_OF_CODES[n % COUNT(SIZES_OF_CODES)];
        how.bits = n % 2 == 0 ? WIDTHS[n / 2 % COUNT(WIDTHS)] : 0;
        rest_of(&how, n);
        how.prefix = 1 + n * 37 % 270;
        if (FEW(n))
            case_run(&how, n % 32 == 3 ? ORDERS : 1, n);
    }
}

static void codes_of_bits_per_channel_are_scored_beside_even_ones(void **state)
{
    (void)state;
    static const uint32_t TURNED[][2] = {{64, 64},   {128, 128}, {80, 20}, {8, 0},  {256, 256},
                                         {128, 100}, {40, 30},   {96, 0},  {72, 2}, {256, 250}};
    for (uint64_t n = 0; n < COUNT(TURNED) * 6; n++) {
        struct score_case how = {.kinds = n % 3 == 0 ? FREE : MIXED, .heads = 2 + n % 2};
        how.layout = n % LAYOUTS;
        how.size = TURNED[n % COUNT(TURNED)][0];
        how.turned = TURNED[n % COUNT(TURNED)][1];
        how.pairs = n / COUNT(TURNED) % 2;
        rest_of(&how, n);
        how.prefix = 1 + n * 37 % 270;
        if (FEW(n))
            case_run(&how, n % 32 == 3 ? ORDERS : 1, n);
    }
}

/* More vectors than a block has, more tiles than a split: prefix and new keys in several. */
static void many_rows_over_a_long_prefix_stay_within_the_contract(void **state)
{
    (void)state;
#if defined(SC_SANITIZED_THREAD)
    const uint64_t rows = 33, prefix = 130;
#else
    const uint64_t rows = 130, prefix = 1301;
#endif
    for (uint32_t kinds = PLAIN; kinds <= MIXED; kinds++) {
        struct score_case how = {.kinds = kinds,
                                 .heads = 1,
                                 .size = kinds == MIXED ? 136 : 32,
                                 .group = 4,
                                 .rows = rows,
                                 .prefix = prefix,
                                 .fresh = rows + 9,
                                 .query_dtype = SC_KERNELS_BF16,
                                 .key_dtype = SC_KERNELS_F16,
                                 .fresh_dtype = SC_KERNELS_F16,
                                 .tiles_each = kinds == EVEN ? 3 : 0,
                                 .turned = 32,
                                 .spread = 4};
        case_run(&how, 2, kinds);
    }
}

/* Each row's own new key has nearly all its weight: who sees one too many or one too few shows. */
static void a_row_sees_new_keys_up_to_its_own(void **state)
{
    (void)state;
    enum { SIZE = 16, FRESH = 70, HERE = 70 };
    struct score_case how = {.heads = 1, .size = SIZE, .group = 1, .rows = HERE, .prefix = 3};
    how.fresh = FRESH;
    how.spread = 1;
    struct call call = call_make(&how);
    for (uint64_t j = 0; j < FRESH; j++) /* scores grow from key to key */
        for (uint64_t c = 0; c < SIZE; c++) {
            float value = c == 0 ? (float)j : 0;
            memcpy(key_at(&call.fresh.memory, 0, j, c), &value, sizeof(value));
        }
    for (uint64_t i = 0; i < HERE; i++)
        for (uint64_t c = 0; c < SIZE; c++) {
            float value = c == 0 ? 4.0f : 0.001f;
            memcpy(call.queries.block + (i * SIZE + c) * sizeof(value), &value, sizeof(value));
        }
    splits_compare(&FFMA, &call);
    call_free(&call);
}

/* As ref/ has it: a row whose softmax is not a number leaves no number in its head. */
static void what_is_not_a_number_is_seen_where_ref_sees_it(void **state)
{
    (void)state;
    static const float BAD[] = {NAN, INFINITY, -INFINITY};
    static const uint64_t ROWS_HERE[] = {1, 40};
    for (uint32_t n = 0; n < 2 * COUNT(BAD) * 3; n++) {
        struct score_case how = {.heads = 2, .size = 16, .group = 1, .prefix = 100, .spread = 1};
        how.rows = ROWS_HERE[n % 2];
        how.fresh = n / 6 == 2 ? how.rows : 0;
        how.tiles_each = 1;
        struct call call = call_make(&how);
        float value = BAD[n / 2 % 3], *queries = (void *)call.queries.block;
        for (uint64_t i = 0; i < how.rows * 32; i++)
            queries[i] = fabsf(queries[i]) + 0.5f;
        if (n / 6 == 0)
            memcpy(key_at(&call.prefix.memory, 0, 70, 3), &value, sizeof(value));
        else if (n / 6 == 1)
            queries[(how.rows - 1) * 32 + 3] = value;
        else
            memcpy(key_at(&call.fresh.memory, 0, how.rows - 1, 3), &value, sizeof(value));
        struct scored scored = scored_make(&call.device);
        score_run(&call.device, &scored, n);
        heads_compare(&call, &how, n);
        scored_free(&scored);
        call_free(&call);
    }
}

static void no_rows_give_zeros(void **state)
{
    (void)state;
    struct score_case how = {.heads = 2, .size = 32, .group = 2, .prefix = 70, .spread = 1};
    zeros_check(&FFMA, &how);
}

static const struct sc_cuda_score GOOD = {.queries = {.row_count = 64, .dtype = SC_CUDA_BF16},
                                          .prefix = {.count = 8192, .dtype = SC_CUDA_F16},
                                          .fresh = {.count = 64, .dtype = SC_CUDA_BF16},
                                          .code_heads = 8,
                                          .head_count = 8,
                                          .head_size = 128,
                                          .group = 4,
                                          .tiles_each = 4,
                                          .scale = 1};

static void a_grid_has_what_there_is(void **state)
{
    (void)state;
    struct sc_cuda_score what = GOOD;
    struct sc_cuda_shape shape;
    assert_int_equal(sc_cuda_score_tiles_each(&what), 2); /* 129 tiles in 65 splits */
    assert_int_equal(sc_cuda_score_scratch_bytes(&what), 8 * 34 * 256 * 8);
    assert_true(sc_cuda_score_best_shape(&what, &shape));
    assert_int_equal(shape.grid[0], 8);
    assert_int_equal(shape.grid[1], 1);
    assert_int_equal(shape.grid[2], 33);
    assert_int_equal(shape.block[0], SC_CUDA_SCORE_THREADS);
    assert_true(sc_cuda_score_join_shape(&what, &shape));
    assert_int_equal(shape.grid[0], 2);
    assert_int_equal(shape.grid[1], 8);
    assert_true(sc_cuda_score_columns_shape(&what, &shape));
    assert_int_equal(shape.grid[0], 8);
    assert_int_equal(shape.grid[2], 128);
    assert_true(sc_cuda_score_total_shape(&what, &shape));
    assert_int_equal(shape.grid[0], 64);
    what.row_first = 63; /* the last row: 4 vectors */
    assert_int_equal(sc_cuda_score_tiles_each(&what), 2);
    what.head_size = 256;
    assert_true(sc_cuda_score_columns_shape(&what, &shape));
    assert_int_equal(shape.grid[2], 256);
    what.prefix.count = 0;
    assert_true(sc_cuda_score_best_shape(&what, &shape));
    assert_int_equal(shape.grid[0], 0);
    assert_true(sc_cuda_score_columns_shape(&what, &shape));
    assert_int_equal(shape.grid[0], 0);
    assert_int_equal(sc_cuda_score_scratch_bytes(&what), 0);
}

static void refused(const struct sc_cuda_score *what)
{
    struct sc_cuda_shape shape;
    assert_false(sc_cuda_score_best_shape(what, &shape));
    assert_false(sc_cuda_score_join_shape(what, &shape));
    assert_false(sc_cuda_score_columns_shape(what, &shape));
    assert_false(sc_cuda_score_total_shape(what, &shape));
    assert_int_equal(sc_cuda_score_scratch_bytes(what), 0);
}

static void what_no_kernel_can_do_is_refused(void **state)
{
    (void)state;
#define REFUSED(member, value)                                                                     \
    do {                                                                                           \
        struct sc_cuda_score what = GOOD;                                                          \
        what.member = value;                                                                       \
        refused(&what);                                                                            \
    } while (0)
    REFUSED(head_size, 257);
    REFUSED(head_size, 0);
    REFUSED(head_count, 0);
    REFUSED(group, 0);
    REFUSED(group, 1u << 30);
    REFUSED(tiles_each, 0);
    REFUSED(row_first, 64);
    REFUSED(fresh.count, 63);
    REFUSED(fresh.dtype, SC_CUDA_DTYPES);
    REFUSED(prefix.dtype, SC_CUDA_DTYPES);
    REFUSED(queries.dtype, SC_CUDA_DTYPES);
    REFUSED(prefix.count, UINT32_MAX);
    REFUSED(fresh.count, UINT32_MAX);
    struct sc_cuda_score what = GOOD;
    what.slab_count = 3;
    what.head_first = 1; /* of 8 heads with codes, 1 .. 8 */
    refused(&what);
    what.head_first = 0;
    what.prefix.dtype = SC_CUDA_DTYPES; /* of slabs: not looked at */
    struct sc_cuda_shape shape;
    assert_true(sc_cuda_score_best_shape(&what, &shape));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_scored_as_ref_scores_them),
        cmocka_unit_test(codes_of_uniform_bits_are_scored_as_what_they_decode_to),
        cmocka_unit_test(codes_of_bits_per_channel_are_scored_beside_even_ones),
        cmocka_unit_test(many_rows_over_a_long_prefix_stay_within_the_contract),
        cmocka_unit_test(a_row_sees_new_keys_up_to_its_own),
        cmocka_unit_test(what_is_not_a_number_is_seen_where_ref_sees_it),
        cmocka_unit_test(no_rows_give_zeros),
        cmocka_unit_test(a_grid_has_what_there_is),
        cmocka_unit_test(what_no_kernel_can_do_is_refused),
    };
    return cmocka_run_group_tests(tests, cuda_open, cuda_close);
}
