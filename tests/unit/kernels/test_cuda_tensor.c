/* Importance sums by tensor cores, which the emulation has twice: as float32 would add them, and
 * cut off as devices do. Both are held against ref/: codes of every even width, rows of 16 bits,
 * new keys, numbers of any size, and the same bits over orders of threads. */
#include "tests/unit/kernels/cuda_score.h"

static const struct score_way TENSOR = {"sc_cuda_score_best_tensor",
                                        "sc_cuda_score_columns_tensor"};

static void case_run(const struct score_case *how, uint64_t orders, uint64_t n)
{
    emu_mma_set(n % 4 == 1 ? EMU_MMA_NEAREST : EMU_MMA_TRUNCATED);
    case_run_by(&TENSOR, how, orders, n);
}

/* 16 bits, of both sides the same. */
static void types_meet(struct score_case *how, uint64_t n)
{
    how->query_dtype = n / 2 % 2 == 0 ? SC_KERNELS_F16 : SC_KERNELS_BF16;
    how->fresh_dtype = how->query_dtype;
    how->spread = how->spread > 8 ? 8 : how->spread; /* of greater scores float32 has no 1e-5 */
    if (how->kinds == PLAIN)
        how->key_dtype = how->query_dtype;
    else if (how->fresh == 0)
        how->query_dtype = (uint32_t)(n / 3 % 3); /* codes take any */
}

static void rows_of_16_bits_are_scored_as_ref_scores_them(void **state)
{
    (void)state;
    static const uint64_t SIZES_OF_ROWS[] = {64, 128, 80, 5, 256, 20, 132};
    for (uint64_t n = 0; n < LAYOUTS * COUNT(SIZES_OF_ROWS); n++) {
        struct score_case how = {.layout = n % LAYOUTS, .heads = 2 + n % 2};
        how.size = SIZES_OF_ROWS[n / LAYOUTS % COUNT(SIZES_OF_ROWS)];
        rest_of(&how, n);
        types_meet(&how, n);
        if (FEW(n))
            case_run(&how, n % 32 == 3 ? ORDERS : 1, n);
    }
}

static void codes_of_uniform_bits_are_scored_as_what_they_decode_to(void **state)
{
    (void)state;
    static const uint64_t SIZES_OF_CODES[] = {64, 128, 80, 96, 256, 5, 24};
    static const uint32_t WIDTHS[] = {4, 2, 3, 5, 6, 8};
    for (uint64_t n = 0; n < COUNT(SIZES_OF_CODES) * COUNT(WIDTHS); n++) {
        struct score_case how = {.kinds = EVEN, .layout = n % LAYOUTS, .heads = 2 + n % 2};
        how.size = SIZES_OF_CODES[n % COUNT(SIZES_OF_CODES)];
        how.bits = n % 3 != 2 ? WIDTHS[n / 2 % COUNT(WIDTHS)] : 0;
        rest_of(&how, n);
        how.prefix = 1 + n * 37 % 270;
        types_meet(&how, n);
        if (FEW(n))
            case_run(&how, n % 32 == 3 ? ORDERS : 1, n);
    }
}

/* More vectors than a block has, more tiles than a split: prefix and new keys in several. */
static void many_rows_over_a_long_prefix_stay_within_the_contract(void **state)
{
    (void)state;
#if defined(SC_SANITIZED_THREAD)
    const uint64_t rows = 18, prefix = 130;
#else
    const uint64_t rows = 130, prefix = 1301;
#endif
    for (uint32_t n = 0; n < 4; n++) {
        struct score_case how = {.kinds = n < 2 ? EVEN : PLAIN,
                                 .heads = 1,
                                 .size = n % 2 == 1 ? 136 : 32,
                                 .group = 4,
                                 .rows = rows,
                                 .prefix = prefix,
                                 .fresh = rows + 9,
                                 .query_dtype = SC_KERNELS_BF16,
                                 .key_dtype = SC_KERNELS_BF16,
                                 .fresh_dtype = SC_KERNELS_BF16,
                                 .tiles_each = n == 0 ? 3 : 0,
                                 .bits = 4,
                                 .spread = 4};
        case_run(&how, 2, n);
    }
}

/* Queries of any size, made up for by the scale: f16 alone would have neither the greatest nor the
 * least of them. */
static void numbers_of_any_size_keep_their_bits(void **state)
{
    (void)state;
    static const float SIZES_OF[] = {1e-30f, 1e-6f, 1, 3e4f, 1e30f};
    static const uint32_t WIDTHS[] = {8, 4, 2};
    for (uint32_t n = 0; n < COUNT(SIZES_OF) * COUNT(WIDTHS); n++) {
        struct score_case how = {.kinds = EVEN, .heads = 1, .size = 128, .group = 4, .rows = 3};
        how.prefix = 200;
        how.bits = WIDTHS[n % COUNT(WIDTHS)];
        how.spread = SIZES_OF[n / COUNT(WIDTHS)];
        struct call call = call_make(&how);
        call.cpu.scale = call.device.scale = 0.25f / how.spread;
        struct scored scored = scored_make(&call.device);
        for (uint32_t mma = EMU_MMA_NEAREST; mma <= EMU_MMA_TRUNCATED && FEW(n); mma++) {
            emu_mma_set((enum emu_mma)mma);
            score_run_by(&TENSOR, &call.device, &scored, n);
            ref_compare(&call.cpu, &call.device, n);
        }
        scored_free(&scored);
        call_free(&call);
    }
}

/* The sums of a head in float64, of the values that codes decode to and of new keys. */
static float number_get(const uint8_t *at, uint32_t dtype)
{
    float value;
    sc_kernels_dtypes[dtype].widen(&value, at, 1);
    return value;
}

static void truth_decode(const struct call *call, const struct score_case *how, float *keys)
{
    uint64_t channels = how->heads * how->size;
    for (uint32_t s = 0; s < call->slabs->count; s++) {
        const struct sc_kernels_slab *slab = &call->slabs->cpu[s];
        uint64_t end = s + 1 < call->slabs->count ? slab[1].key_first : how->prefix;
        uint8_t *rows[ROWS];
        for (uint64_t i = slab->key_first; i < end; i++)
            rows[i - slab->key_first] = (uint8_t *)(void *)(keys + i * channels);
        struct sc_kernels_codec code = {channels, slab->quantised.bits, how->key_dtype};
        struct sc_kernels_codec_decode what = {.code = &code,
                                               .scales = slab->quantised.scales,
                                               .codes = slab->quantised.codes,
                                               .row_count = end - slab->key_first,
                                               .channel_count = channels,
                                               .dst = rows,
                                               .dst_dtype = SC_KERNELS_F32};
        sc_kernels_get(SC_KERNELS_REF)->codec_decode(&what);
    }
}

/* sums [prefix] of a head. */
static void truth_sums(const struct call *call, const struct score_case *how, uint64_t head,
                       double *sums)
{
    const struct sc_kernels_importance *cpu = &call->cpu;
    uint64_t bytes = sc_kernels_dtype_bytes(how->query_dtype), all = how->prefix + how->fresh;
    float *keys = malloc(how->prefix * how->heads * how->size * sizeof(float));
    double *score = malloc(all * sizeof(double));
    assert_true(keys != NULL && score != NULL);
    truth_decode(call, how, keys);
    memset(sums, 0, how->prefix * sizeof(double));
    for (uint64_t v = 0; v < how->rows * how->group; v++) {
        const uint8_t *query =
            cpu->queries.data + v / how->group * cpu->queries.row_stride_bytes +
            (head * how->group + v % how->group) * cpu->queries.head_stride_bytes;
        uint64_t seen = how->fresh > 0 ? all - how->rows + v / how->group + 1 : all;
        double most = -INFINITY, sum = 0;
        for (uint64_t j = 0; j < seen; j++) {
            score[j] = 0;
            for (uint64_t c = 0; c < how->size; c++) {
                float key = j < how->prefix
                                ? keys[(j * how->heads + head) * how->size + c]
                                : number_get(key_at(&call->fresh.memory, head, j - how->prefix, c),
                                             how->fresh_dtype);
                score[j] += (double)number_get(query + c * bytes, how->query_dtype) * (double)key;
            }
            score[j] *= (double)cpu->scale;
            most = score[j] > most ? score[j] : most;
        }
        for (uint64_t j = 0; j < seen; j++)
            sum += exp(score[j] - most);
        for (uint64_t j = 0; j < how->prefix; j++)
            sums[j] += exp(score[j] - most) / sum;
    }
    free(keys);
    free(score);
}

/* Scores of 100 and more, where ref/ itself, in float32, is off by more than the contract allows:
 * held against float64. */
static void great_scores_are_as_near_to_the_truth(void **state)
{
    (void)state;
    static const uint32_t WIDTHS[] = {4, 8, 2, 6};
    for (uint64_t n = 0; n < 2 * COUNT(WIDTHS); n++) {
        struct score_case how = {.kinds = EVEN, .heads = 2, .size = 64, .group = 3, .rows = 7};
        how.prefix = 260;
        how.fresh = n % 2 == 0 ? 0 : 9;
        how.query_dtype = how.fresh_dtype = SC_KERNELS_BF16;
        how.bits = WIDTHS[n / 2];
        how.spread = 30;
        struct call call = call_make(&how);
        struct scored scored = scored_make(&call.device);
        double sums[260];
        float expected[260];
        emu_mma_set(EMU_MMA_TRUNCATED);
        score_run_by(&TENSOR, &call.device, &scored, 0);
        for (uint64_t h = 0; h < how.heads; h++) {
            truth_sums(&call, &how, h, sums);
            for (uint64_t j = 0; j < how.prefix; j++)
                expected[j] = (float)sums[j];
            sums_compare(call.device.sums + h * how.prefix, expected, how.prefix, "truth", n);
        }
        scored_free(&scored);
        call_free(&call);
    }
}

/* Each row's own new key has nearly all its weight: who sees one too many or one too few shows. */
static void a_row_sees_new_keys_up_to_its_own(void **state)
{
    (void)state;
    enum { SIZE = 16, FRESH = 70, HERE = 70 };
    struct score_case how = {.heads = 1, .size = SIZE, .group = 1, .rows = HERE, .prefix = 3};
    how.fresh = FRESH;
    how.query_dtype = how.key_dtype = how.fresh_dtype = SC_KERNELS_F16;
    how.spread = 1;
    struct call call = call_make(&how);
    for (uint64_t j = 0; j < FRESH; j++) /* scores grow from key to key */
        for (uint64_t c = 0; c < SIZE; c++) {
            float value = c == 0 ? (float)j : 0;
            sc_kernels_dtypes[SC_KERNELS_F16].narrow(key_at(&call.fresh.memory, 0, j, c), &value,
                                                     1);
        }
    for (uint64_t i = 0; i < HERE * SIZE; i++) {
        float value = i % SIZE == 0 ? 4.0f : 0.001f;
        sc_kernels_dtypes[SC_KERNELS_F16].narrow(call.queries.block + i * 2, &value, 1);
    }
    splits_compare(&TENSOR, &call);
    call_free(&call);
}

/* As ref/ has it, of rows and of codes: a row whose softmax is not a number leaves no number in its
 * head. */
static void what_is_not_a_number_is_seen_where_ref_sees_it(void **state)
{
    (void)state;
    static const float BAD[] = {NAN, INFINITY, -INFINITY};
    static const uint64_t ROWS_HERE[] = {1, 40};
    for (uint32_t n = 0; n < 2 * COUNT(BAD) * 4; n++) {
        uint32_t where = n / 6; /* 0: a key, 1: a query, 2: a new key, 3: a query, of codes */
        struct score_case how = {.heads = 2, .size = 16, .group = 1, .prefix = 100, .spread = 1};
        how.rows = ROWS_HERE[n % 2];
        how.kinds = where == 3 ? EVEN : PLAIN;
        how.query_dtype = how.key_dtype = how.fresh_dtype = SC_KERNELS_BF16;
        how.fresh = where == 2 ? how.rows : 0;
        how.tiles_each = 1;
        how.bits = 4;
        struct call call = call_make(&how);
        float value = BAD[n / 2 % 3];
        uint16_t *queries = (void *)call.queries.block, bits;
        sc_kernels_dtypes[SC_KERNELS_BF16].narrow((uint8_t *)&bits, &value, 1);
        for (uint64_t i = 0; i < how.rows * 32; i++) /* none is below 0 */
            queries[i] &= 0x7fff;
        if (where == 0)
            memcpy(key_at(&call.prefix.memory, 0, 70, 3), &bits, sizeof(bits));
        else if (where == 2)
            memcpy(key_at(&call.fresh.memory, 0, how.rows - 1, 3), &bits, sizeof(bits));
        else
            queries[(how.rows - 1) * 32 + 3] = bits;
        struct scored scored = scored_make(&call.device);
        emu_mma_set(n % 4 < 2 ? EMU_MMA_NEAREST : EMU_MMA_TRUNCATED);
        score_run_by(&TENSOR, &call.device, &scored, n);
        heads_compare(&call, &how, n);
        scored_free(&scored);
        call_free(&call);
    }
}

static void no_rows_give_zeros(void **state)
{
    (void)state;
    struct score_case how = {.kinds = EVEN, .heads = 2, .size = 32, .group = 2, .prefix = 70};
    how.spread = 1;
    zeros_check(&TENSOR, &how);
}

static void a_device_and_a_shape_decide_who_may(void **state)
{
    (void)state;
    struct sc_cuda_score quantised = {.queries = {.row_count = 64, .dtype = SC_CUDA_F32},
                                      .prefix = {.count = 8192, .dtype = SC_CUDA_F32},
                                      .slab_count = 32,
                                      .code_heads = 8,
                                      .head_count = 8,
                                      .head_size = 128,
                                      .group = 4,
                                      .scale = 1};
    assert_true(sc_cuda_score_has_tensor(&quantised, false, 80));
    assert_true(sc_cuda_score_has_tensor(&quantised, false, 121));
    assert_false(sc_cuda_score_has_tensor(&quantised, false, 75));
    assert_false(sc_cuda_score_has_tensor(&quantised, true, 90));
    struct sc_cuda_score what = quantised;
    what.head_size = 257;
    assert_false(sc_cuda_score_has_tensor(&what, false, 90));
    what = quantised;
    what.fresh.count = 64;
    for (uint32_t q = 0; q < SC_CUDA_DTYPES; q++)
        for (uint32_t k = 0; k < SC_CUDA_DTYPES; k++) {
            bool is_same = q == k && q != SC_CUDA_F32;
            what.queries.dtype = q;
            what.fresh.dtype = k;
            assert_int_equal(sc_cuda_score_has_tensor(&what, false, 90), is_same);
            struct sc_cuda_score rows = what;
            rows.slab_count = 0;
            rows.fresh.count = 0;
            rows.prefix.dtype = k;
            assert_int_equal(sc_cuda_score_has_tensor(&rows, false, 90), is_same);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_of_16_bits_are_scored_as_ref_scores_them),
        cmocka_unit_test(codes_of_uniform_bits_are_scored_as_what_they_decode_to),
        cmocka_unit_test(many_rows_over_a_long_prefix_stay_within_the_contract),
        cmocka_unit_test(numbers_of_any_size_keep_their_bits),
        cmocka_unit_test(great_scores_are_as_near_to_the_truth),
        cmocka_unit_test(a_row_sees_new_keys_up_to_its_own),
        cmocka_unit_test(what_is_not_a_number_is_seen_where_ref_sees_it),
        cmocka_unit_test(no_rows_give_zeros),
        cmocka_unit_test(a_device_and_a_shape_decide_who_may),
    };
    return cmocka_run_group_tests(tests, cuda_open, cuda_close);
}
