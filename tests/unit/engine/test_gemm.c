/* Linear layers: the written order of the sums, levels, threads and row counts bit for bit.
 *
 * Holds: the expectation is computed here from gemm.h's formula with fmaf, not by the kernels.
 * Does not: measure speed.
 * Threads: pools of 1 to 5.
 * Tests: conformance/engine/gemm.c, kernels_gemm.h
 */
#include <math.h>

#include "conformance/engine/gemm.h"
#include "tests/unit/engine/math_support.h"

struct layer {
    uint64_t m, k, n, x_stride, y_stride;
    enum eng_dtype dtype;
    float *x;       /* [m][x_stride] */
    void *source;   /* [n][k] of dtype, at an odd address */
    float *widened; /* [n][k] */
    float *bias;    /* [n] */
    float *y_old;   /* [m][y_stride] */
    float *expected;
    struct eng_weights *weights;
};

static void layer_init(struct layer *layer, struct eng_pool *pool, uint64_t m, uint64_t k,
                       uint64_t n, enum eng_dtype dtype)
{
    uint64_t value_bytes = eng_dtype_bytes(dtype);
    *layer = (struct layer){
        .m = m, .k = k, .n = n, .x_stride = k + 3, .y_stride = n + 5, .dtype = dtype};
    layer->x = random_floats(m * layer->x_stride, m * 31 + k);
    layer->widened = random_floats(n * k, n * 17 + k);
    layer->bias = random_floats(n, n);
    layer->y_old = random_floats(m * layer->y_stride, 99);
    layer->expected = guarded_new(m * layer->y_stride * sizeof(float));
    void *narrow = malloc(n * k * value_bytes);
    layer->source = (uint8_t *)malloc(n * k * value_bytes + 1) + 1;
    assert_non_null(narrow);
    for (uint64_t i = 0; i < n * k; i++) { /* one by one: no kernel takes part */
        if (dtype == ENG_F32) {
            ((float *)narrow)[i] = layer->widened[i];
        } else if (dtype == ENG_F16) {
            ((uint16_t *)narrow)[i] = eng_f32_to_f16(layer->widened[i]);
            layer->widened[i] = eng_f16_to_f32(((uint16_t *)narrow)[i]);
        } else {
            ((uint16_t *)narrow)[i] = eng_f32_to_bf16(layer->widened[i]);
            layer->widened[i] = eng_bf16_to_f32(((uint16_t *)narrow)[i]);
        }
    }
    memcpy(layer->source, narrow, n * k * value_bytes);
    free(narrow);
    struct eng_error error = {0};
    if (eng_weights_pack(pool, layer->source, dtype, n, k, &layer->weights, &error) != ENG_OK)
        fail_msg("%s", error.text);
}

static void layer_done(struct layer *layer)
{
    eng_weights_free(layer->weights);
    guarded_free(layer->x, layer->m * layer->x_stride * sizeof(float));
    guarded_free(layer->widened, layer->n * layer->k * sizeof(float));
    guarded_free(layer->bias, layer->n * sizeof(float));
    guarded_free(layer->y_old, layer->m * layer->y_stride * sizeof(float));
    guarded_free(layer->expected, layer->m * layer->y_stride * sizeof(float));
    free((uint8_t *)layer->source - 1);
}

/* gemm.h's formula for one element; also by double, for the tolerance. */
static float one_output(const struct layer *layer, uint64_t i, uint64_t j, double *ret_exact,
                        double *ret_size)
{
    const float *x = layer->x + i * layer->x_stride;
    const float *w = layer->widened + j * layer->k;
    float total = 0.0f;
    *ret_exact = 0.0;
    *ret_size = 0.0;
    for (uint64_t block = 0; block < layer->k; block += ENG_GEMM_K_BLOCK) {
        float sum = 0.0f;
        for (uint64_t kk = block; kk < layer->k && kk < block + ENG_GEMM_K_BLOCK; kk++) {
            sum = fmaf(x[kk], w[kk], sum);
            *ret_exact += (double)x[kk] * (double)w[kk];
            *ret_size += fabs((double)x[kk] * (double)w[kk]);
        }
        total = block == 0 ? sum : total + sum;
    }
    return total;
}

static void fill_expected(struct layer *layer, int with_bias, int accumulate)
{
    memcpy(layer->expected, layer->y_old, layer->m * layer->y_stride * sizeof(float));
    for (uint64_t i = 0; i < layer->m; i++) {
        for (uint64_t j = 0; j < layer->n; j++) {
            double exact;
            double size;
            float *want = &layer->expected[i * layer->y_stride + j];
            float value = one_output(layer, i, j, &exact, &size);
            if (isfinite(exact) && !(fabs((double)value - exact) <= 4e-7 * size))
                fail_msg("sum %g, exact %g", (double)value, exact);
            if (with_bias)
                value = value + layer->bias[j];
            *want = accumulate ? *want + value : value;
        }
    }
}

static void compare(struct layer *layer, struct eng_pool *pool, int with_bias, int accumulate)
{
    uint64_t bytes = layer->m * layer->y_stride * sizeof(float);
    fill_expected(layer, with_bias, accumulate);
    for (int level = ENG_CPU_PLAIN; level <= (int)eng_cpu_best(); level++) {
        char what[96];
        (void)snprintf(what, sizeof(what), "%s %s m %llu k %llu n %llu", eng_cpu_name(level),
                       eng_dtype_name(layer->dtype), (unsigned long long)layer->m,
                       (unsigned long long)layer->k, (unsigned long long)layer->n);
        assert_int_equal(eng_cpu_force(level), level);
        float *y = guarded_new(bytes);
        memcpy(y, layer->y_old, bytes);
        eng_gemm(pool, layer->weights, layer->x, layer->x_stride, layer->m,
                 with_bias ? layer->bias : NULL, accumulate, y, layer->y_stride);
        /* all of it: what lies between the rows is unchanged too */
        assert_same_floats(y, layer->expected, layer->m * layer->y_stride, what);
        guarded_free(y, bytes);
    }
}

static void every_level_follows_the_written_order(void **state)
{
    struct eng_pool *pool = *state;
    static const uint64_t rows[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 28, 29};
    static const uint64_t inputs[] = {1, 7, 64, 191, 192, 193, 400};
    static const uint64_t outputs[] = {1, 15, 16, 17, 31, 32, 33, 100, 129};
    print_levels();
    uint64_t turn = 0;
    for (uint64_t a = 0; a < sizeof(rows) / sizeof(rows[0]); a++) {
        for (uint64_t b = 0; b < sizeof(inputs) / sizeof(inputs[0]); b++) {
            for (uint64_t c = 0; c < sizeof(outputs) / sizeof(outputs[0]); c++, turn++) {
                struct layer layer;
                if (rows[a] > 8 && (a + b + c) % 3 != 0)
                    continue; /* the plain level is slow: a third of the larger shapes */
                layer_init(&layer, pool, rows[a], inputs[b], outputs[c],
                           (enum eng_dtype)(turn % ENG_DTYPES));
                compare(&layer, pool, turn % 2 == 0, turn % 5 < 2);
                layer_done(&layer);
            }
        }
    }
}

static void every_dtype_and_option_at_a_large_odd_shape(void **state)
{
    struct eng_pool *pool = *state;
    for (int dtype = 0; dtype < ENG_DTYPES; dtype++) {
        struct layer layer;
        layer_init(&layer, pool, 131, 389, 99, (enum eng_dtype)dtype);
        for (int options = 0; options < 4; options++)
            compare(&layer, pool, options & 1, options >> 1);
        layer_done(&layer);
    }
}

static void a_row_has_the_same_bits_alone_and_among_others(void **state)
{
    struct eng_pool *pool = *state;
    static const uint64_t counts[] = {2, 3, 13, 14, 15, 16, 27, 29, 126, 127, 250};
    struct layer layer;
    layer_init(&layer, pool, 300, 576, 200, ENG_BF16);
    float *alone = guarded_new(300 * 200 * sizeof(float));
    eng_cpu_force(ENG_CPU_LEVELS);
    for (uint64_t i = 0; i < 300; i++)
        eng_gemm(pool, layer.weights, layer.x + i * layer.x_stride, layer.x_stride, 1, layer.bias,
                 false, alone + i * 200, 200);
    float *y = guarded_new(300 * 200 * sizeof(float));
    for (uint64_t c = 0; c < sizeof(counts) / sizeof(counts[0]); c++) {
        uint64_t first = 300 - counts[c] - c; /* another place in every batch */
        eng_gemm(pool, layer.weights, layer.x + first * layer.x_stride, layer.x_stride, counts[c],
                 layer.bias, false, y, 200);
        assert_same_floats(y, alone + first * 200, counts[c] * 200, "beside others");
    }
    guarded_free(y, 300 * 200 * sizeof(float));
    guarded_free(alone, 300 * 200 * sizeof(float));
    layer_done(&layer);
}

static void threads_change_no_bit(void **state)
{
    static const uint64_t counts[] = {1, 5, 40, 150};
    struct layer layer;
    layer_init(&layer, *state, 150, 300, 333, ENG_F16);
    eng_cpu_force(ENG_CPU_LEVELS);
    for (uint64_t c = 0; c < sizeof(counts) / sizeof(counts[0]); c++) {
        uint64_t bytes = counts[c] * 333 * sizeof(float);
        float *y[2] = {guarded_new(bytes), guarded_new(bytes)};
        for (uint32_t threads = 1; threads <= 5; threads++) {
            struct eng_pool *pool = new_pool(threads);
            eng_gemm(pool, layer.weights, layer.x, layer.x_stride, counts[c], NULL, false,
                     y[threads > 1], 333);
            assert_same_floats(y[threads > 1], y[0], counts[c] * 333, "thread count");
            eng_pool_close(pool);
        }
        guarded_free(y[0], bytes);
        guarded_free(y[1], bytes);
    }
    layer_done(&layer);
}

static void jobs_run_together_as_they_do_alone(void **state)
{
    struct eng_pool *pool = *state;
    static const uint64_t outputs[3] = {96, 33, 7};
    eng_cpu_force(ENG_CPU_LEVELS);
    for (uint64_t m = 0; m <= 40; m = m * 3 + 1) {
        struct layer layers[3];
        struct eng_gemm_job jobs[3];
        float *together[3];
        for (uint64_t j = 0; j < 3; j++) {
            layer_init(&layers[j], pool, m == 0 ? 1 : m, 200, outputs[j], ENG_F16);
            together[j] = guarded_new(layers[j].m * outputs[j] * sizeof(float));
            memset(together[j], 0, layers[j].m * outputs[j] * sizeof(float));
            jobs[j] = (struct eng_gemm_job){.weights = layers[j].weights,
                                            .x = layers[j].x,
                                            .bias = layers[j].bias,
                                            .y = together[j],
                                            .x_stride = layers[j].x_stride,
                                            .y_stride = outputs[j],
                                            .accumulate = false};
        }
        eng_gemm_many(pool, jobs, 3, m);
        for (uint64_t j = 0; j < 3; j++) {
            uint64_t count = layers[j].m * outputs[j];
            float *alone = guarded_new(count * sizeof(float));
            memset(alone, 0, count * sizeof(float));
            eng_gemm(pool, layers[j].weights, layers[j].x, layers[j].x_stride, m, layers[j].bias,
                     false, alone, outputs[j]);
            assert_same_floats(together[j], alone, count, "many");
            guarded_free(alone, count * sizeof(float));
            guarded_free(together[j], count * sizeof(float));
            layer_done(&layers[j]);
        }
    }
}

/* The first outputs alone, and not a float behind them. */
static void the_first_outputs_alone_have_the_same_bits(void **state)
{
    static const uint64_t rows[] = {1, 5, 140};
    static const uint64_t outputs[] = {1, 31, 32, 50, 75};
    struct eng_pool *pool = *state;
    for (int i = 0; i < 3; i++) {
        struct layer layer;
        uint64_t m = rows[i];
        layer_init(&layer, pool, m, 200, 75, ENG_F16);
        float *all = guarded_new(m * 75 * sizeof(float));
        eng_gemm(pool, layer.weights, layer.x, layer.x_stride, m, layer.bias, false, all, 75);
        for (int j = 0; j < 5; j++) {
            float *some = guarded_new(m * outputs[j] * sizeof(float));
            const struct eng_gemm_job job = {.weights = layer.weights,
                                             .x = layer.x,
                                             .bias = layer.bias,
                                             .y = some,
                                             .x_stride = layer.x_stride,
                                             .y_stride = outputs[j],
                                             .outputs = outputs[j]};
            eng_gemm_many(pool, &job, 1, m);
            for (uint64_t row = 0; row < m; row++)
                assert_same_floats(some + row * outputs[j], all + row * 75, outputs[j], "first");
            guarded_free(some, m * outputs[j] * sizeof(float));
        }
        guarded_free(all, m * 75 * sizeof(float));
        layer_done(&layer);
    }
}

static void a_packed_row_reads_back(void **state)
{
    struct eng_pool *pool = *state;
    for (int dtype = 0; dtype < ENG_DTYPES; dtype++) {
        struct layer layer;
        layer_init(&layer, pool, 1, 77, 70, (enum eng_dtype)dtype);
        assert_int_equal(eng_weights_outputs(layer.weights), 70);
        assert_int_equal(eng_weights_inputs(layer.weights), 77);
        assert_int_equal(eng_weights_bytes(layer.weights), 96 * 77 * eng_dtype_bytes(dtype));
        float *row = guarded_new(77 * sizeof(float));
        for (uint64_t j = 0; j < 70; j++) {
            eng_weights_row(layer.weights, j, row);
            assert_same_floats(row, layer.widened + j * 77, 77, "row");
        }
        guarded_free(row, 77 * sizeof(float));
        layer_done(&layer);
    }
}

static void a_nan_stays_in_its_row(void **state)
{
    struct eng_pool *pool = *state;
    struct layer layer;
    layer_init(&layer, pool, 20, 50, 40, ENG_F32);
    layer.x[7 * layer.x_stride + 3] = NAN;
    layer.x[9 * layer.x_stride + 3] = INFINITY;
    compare(&layer, pool, 0, 0);
    layer_done(&layer);
}

static void impossible_sizes_are_refused(void **state)
{
    struct eng_pool *pool = *state;
    struct eng_weights *weights = NULL;
    struct eng_error error = {0};
    uint64_t huge = 1ull << 46;
    assert_int_equal(eng_weights_pack(pool, "", ENG_F16, 0, 4, &weights, &error), ENG_E_INVALID);
    assert_string_equal(error.text, "weights of 0 outputs x 4 inputs");
    assert_int_equal(eng_weights_pack(pool, "", ENG_F16, 4, 0, &weights, &error), ENG_E_INVALID);
    assert_int_equal(eng_weights_pack(pool, "", ENG_F32, huge, huge, &weights, &error),
                     ENG_E_INVALID);
    assert_int_equal(eng_weights_pack(pool, "", ENG_F32, 1, huge, &weights, &error), ENG_E_INVALID);
    assert_null(weights);
    eng_weights_free(NULL);
}

static int open_pool(void **state)
{
    *state = new_pool(2);
    return 0;
}

static int close_pool(void **state)
{
    eng_pool_close(*state);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_level_follows_the_written_order),
        cmocka_unit_test(every_dtype_and_option_at_a_large_odd_shape),
        cmocka_unit_test(a_row_has_the_same_bits_alone_and_among_others),
        cmocka_unit_test(threads_change_no_bit),
        cmocka_unit_test(jobs_run_together_as_they_do_alone),
        cmocka_unit_test(the_first_outputs_alone_have_the_same_bits),
        cmocka_unit_test(a_packed_row_reads_back),
        cmocka_unit_test(a_nan_stays_in_its_row),
        cmocka_unit_test(impossible_sizes_are_refused),
    };
    return cmocka_run_group_tests(tests, open_pool, close_pool);
}
