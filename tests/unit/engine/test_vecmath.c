/* Element and row functions and the half floats: levels bit for bit, and errors against double.
 *
 * Holds: e^x is held to 2 units in the last place over its whole range; conversions of half
 *   floats over all 65,536 patterns and the neighbourhood of every rounding border.
 * Does not: measure speed.
 * Threads: pools of 1 to 3.
 * Tests: conformance/engine/vecmath.c, halffloat.c, cpuid.c, simd.h, kernels_math.h
 */
#include <math.h>

#include "conformance/engine/vecmath.h"
#include "tests/unit/engine/math_support.h"

#define COUNT_MAX 1000u

static void a_forced_level_is_never_above_the_best(void **state)
{
    (void)state;
    enum eng_cpu_level best = eng_cpu_best();
    assert_int_equal(eng_cpu_force(ENG_CPU_LEVELS), best);
    for (int level = ENG_CPU_PLAIN; level < ENG_CPU_LEVELS; level++) {
        enum eng_cpu_level want = level < (int)best ? (enum eng_cpu_level)level : best;
        assert_int_equal(eng_cpu_force((enum eng_cpu_level)level), want);
        assert_int_equal(eng_cpu_get(), want);
    }
    assert_string_equal(eng_cpu_name(ENG_CPU_PLAIN), "plain");
    print_levels();
}

/* The distance of `got` from `exact` in units in the last place of exact's float. */
static double error_in_units(float got, double exact)
{
    if (exact > 0x1.fffffep127)
        return isinf(got) || got == 0x1.fffffep127f ? 0.0 : 1e9;
    int exponent;
    (void)frexp(exact, &exponent);
    double unit = ldexp(1.0, exponent - 24 < -149 ? -149 : exponent - 24);
    return fabs((double)got - exact) / unit;
}

static void exp_is_within_two_units(void **state)
{
    (void)state;
    float x[64];
    float y[64];
    double worst = 0.0;
    eng_cpu_force(ENG_CPU_LEVELS);
    for (double at = -106.0; at < 90.0; at += 64 * 0.0007) {
        for (int i = 0; i < 64; i++)
            x[i] = (float)(at + i * 0.0007);
        eng_exp(x, 64, y);
        for (int i = 0; i < 64; i++) {
            double error = error_in_units(y[i], exp((double)x[i]));
            worst = error > worst ? error : worst;
            if (!(error <= 2.0))
                fail_msg("e^%a is %a: %.2f units off", (double)x[i], (double)y[i], error);
        }
    }
    print_message("largest error of e^x: %.3f units in the last place\n", worst);
}

static void exp_at_the_edges(void **state)
{
    (void)state;
    const float x[] = {-INFINITY, INFINITY, NAN, 0.0f, -0.0f, -1000.0f, 1000.0f, 0x1p-149f};
    float y[8];
    for (int level = ENG_CPU_PLAIN; level <= (int)eng_cpu_best(); level++) {
        eng_cpu_force((enum eng_cpu_level)level);
        eng_exp(x, 8, y);
        assert_int_equal(bits_of(y[0]), 0);
        assert_true(isinf(y[1]) && y[1] > 0);
        assert_true(isnan(y[2]));
        assert_true(y[3] == 1.0f && y[4] == 1.0f && y[7] == 1.0f);
        assert_int_equal(bits_of(y[5]), 0);
        assert_true(isinf(y[6]) && y[6] > 0);
    }
}

enum function {
    F_EXP,
    F_MAX,
    F_SOFTMAX,
    F_DOT,
    F_SILU,
    F_GELU,
    F_GELU_NEW,
    F_RELU,
    F_SILU_MUL,
    F_ADD,
    F_MUL,
    F_RMSNORM,
    F_LAYERNORM,
    F_LAYERNORM_BARE,
    F_ROPE,
    F_ROPE_INTERLEAVED,
    F_ARGMAX,
    FUNCTIONS
};

static void apply(enum function function, struct eng_pool *pool, float *x, const float *y,
                  const float *z, uint64_t n, float *ret_scalar)
{
    static const uint32_t position[1] = {0};
    switch (function) {
    case F_EXP:
        eng_exp(x, n, x);
        break;
    case F_MAX:
        *ret_scalar = eng_max(x, n);
        break;
    case F_SOFTMAX:
        eng_softmax(x, n);
        break;
    case F_DOT:
        *ret_scalar = eng_dot(x, y, n);
        break;
    case F_SILU:
        eng_silu(pool, x, n);
        break;
    case F_GELU:
        eng_gelu(pool, x, n);
        break;
    case F_GELU_NEW:
        eng_gelu_new(pool, x, n);
        break;
    case F_RELU:
        eng_relu(pool, x, n);
        break;
    case F_SILU_MUL:
        eng_silu_mul(pool, x, y, n);
        break;
    case F_ADD:
        eng_add(pool, x, y, n);
        break;
    case F_MUL:
        eng_mul(pool, x, y, n);
        break;
    case F_RMSNORM:
        eng_rmsnorm(pool, x, n, 1, n, y, 1e-5f, x, n);
        break;
    case F_LAYERNORM:
        eng_layernorm(pool, x, n, 1, n, y, z, 1e-5f, x, n);
        break;
    case F_LAYERNORM_BARE:
        eng_layernorm(pool, x, n, 1, n, NULL, NULL, 1e-5f, x, n);
        break;
    case F_ROPE:
        eng_rope(pool, x, n, 1, 1, n / 2 * 2, position, y, z, false);
        break;
    case F_ROPE_INTERLEAVED:
        eng_rope(pool, x, n, 1, 1, n / 2 * 2, position, y, z, true);
        break;
    case F_ARGMAX:
        *ret_scalar = (float)eng_argmax(x, n);
        break;
    default:
        fail();
    }
}

static void every_level_gives_the_same_bits(void **state)
{
    struct eng_pool *pool = *state;
    static const float specials[] = {NAN, INFINITY, -INFINITY, -0.0f, 0x1p-149f, 0x1p127f, 90.0f};
    for (uint64_t n = 1; n <= COUNT_MAX; n += n < 70 ? 1 : 93) {
        uint64_t bytes = n * sizeof(float);
        float *y = random_floats(n, n + 1);
        float *z = random_floats(n, n + 2);
        for (int function = 0; function < FUNCTIONS; function++) {
            for (int special = 0; special < 2; special++) {
                float scalar[ENG_CPU_LEVELS] = {0};
                float *x[ENG_CPU_LEVELS];
                for (int level = ENG_CPU_PLAIN; level <= (int)eng_cpu_best(); level++) {
                    x[level] = random_floats(n, n);
                    for (uint64_t i = 0; special && i < n; i += 3)
                        x[level][i] = specials[(i + n) % 7];
                    eng_cpu_force((enum eng_cpu_level)level);
                    apply((enum function)function, pool, x[level], y, z, n, &scalar[level]);
                    assert_same_floats(x[level], x[0], n, "level");
                    assert_same_floats(&scalar[level], scalar, 1, "level");
                }
                for (int level = ENG_CPU_PLAIN; level <= (int)eng_cpu_best(); level++)
                    guarded_free(x[level], bytes);
            }
        }
        guarded_free(y, bytes);
        guarded_free(z, bytes);
    }
}

static void close_to(float got, double want, double tolerance, const char *what)
{
    if (!(fabs((double)got - want) <= tolerance))
        fail_msg("%s: %.9g, expected %.9g", what, (double)got, want);
}

static void activations_are_close_to_double(void **state)
{
    struct eng_pool *pool = *state;
    eng_cpu_force(ENG_CPU_LEVELS);
    for (int i = -3000; i <= 3000; i++) {
        float x = (float)i * 0.004f;
        double d = (double)x;
        double size = fabs(d) * 4e-7 + 1e-30;
        float value[5] = {x, x, x, x, x};
        float up = 1.5f;
        double cube = sqrt(2.0 / acos(-1.0)) * (d + 0.044715 * d * d * d);
        eng_silu(pool, &value[0], 1);
        eng_gelu(pool, &value[1], 1);
        eng_gelu_new(pool, &value[2], 1);
        eng_relu(pool, &value[3], 1);
        eng_silu_mul(pool, &value[4], &up, 1);
        close_to(value[0], d / (1.0 + exp(-d)), size, "silu");
        close_to(value[1], d * 0.5 * (1.0 + erf(d / sqrt(2.0))), size, "gelu");
        close_to(value[2], 0.5 * d * (1.0 + tanh(cube)), size, "gelu_new");
        close_to(value[3], i > 0 ? d : 0.0, 0.0, "relu");
        close_to(value[4], d / (1.0 + exp(-d)) * 1.5, 1.5 * size, "silu_mul");
    }
    float nan = NAN;
    eng_relu(pool, &nan, 1);
    assert_true(isnan(nan));
}

static void norms_are_close_to_double(void **state)
{
    struct eng_pool *pool = *state;
    eng_cpu_force(ENG_CPU_LEVELS);
    for (uint64_t n = 1; n <= COUNT_MAX; n = n * 3 / 2 + 1) {
        float *x = random_floats(n, n);
        float *w = random_floats(n, n + 1);
        float *b = random_floats(n, n + 2);
        float *y = random_floats(n, n + 3);
        double squares = 0.0;
        double mean = 0.0;
        double variance = 0.0;
        for (uint64_t i = 0; i < n; i++) {
            x[i] += 3.0f; /* a mean far from 0: one pass over squares would lose digits */
            squares += (double)x[i] * (double)x[i] / (double)n;
            mean += (double)x[i] / (double)n;
        }
        for (uint64_t i = 0; i < n; i++)
            variance += ((double)x[i] - mean) * ((double)x[i] - mean) / (double)n;
        eng_rmsnorm(pool, x, n, 1, n, w, 1e-5f, y, n);
        for (uint64_t i = 0; i < n; i++)
            close_to(y[i], (double)w[i] * (double)x[i] / sqrt(squares + 1e-5), 1e-6, "rmsnorm");
        eng_layernorm(pool, x, n, 1, n, w, b, 0.01f, y, n);
        for (uint64_t i = 0; i < n; i++)
            close_to(y[i],
                     ((double)x[i] - mean) / sqrt(variance + 0.01) * (double)w[i] + (double)b[i],
                     6e-6, "layernorm");
        guarded_free(x, n * sizeof(float));
        guarded_free(w, n * sizeof(float));
        guarded_free(b, n * sizeof(float));
        guarded_free(y, n * sizeof(float));
    }
}

static void softmax_sums_to_one_and_survives_infinities(void **state)
{
    (void)state;
    float x[37];
    double exact[37];
    double total = 0.0;
    eng_cpu_force(ENG_CPU_LEVELS);
    for (int i = 0; i < 37; i++) {
        x[i] = (float)(i * i % 23);
        exact[i] = exp((double)x[i] - 22.0);
        total += exact[i];
    }
    eng_softmax(x, 37);
    for (int i = 0; i < 37; i++)
        close_to(x[i], exact[i] / total, 3e-7, "softmax");
    float masked[3] = {-INFINITY, 5.0f, -INFINITY};
    eng_softmax(masked, 3);
    assert_true(masked[0] == 0.0f && masked[1] == 1.0f && masked[2] == 0.0f);
}

static void rope_turns_pairs_in_both_orders(void **state)
{
    struct eng_pool *pool = *state;
    enum { ROWS = 3, HEADS = 2, DIM = 36, HALF = DIM / 2, STRIDE = HEADS * DIM + 7 };
    static const uint32_t positions[ROWS] = {4, 0, 2};
    float *cos_table = random_floats(5 * HALF, 1);
    float *sin_table = random_floats(5 * HALF, 2);
    float *before = random_floats(ROWS * STRIDE, 3);
    eng_cpu_force(ENG_CPU_LEVELS);
    for (int interleaved = 0; interleaved < 2; interleaved++) {
        float *x = random_floats(ROWS * STRIDE, 3);
        eng_rope(pool, x, STRIDE, ROWS, HEADS, DIM, positions, cos_table, sin_table, interleaved);
        for (uint64_t at = 0; at < ROWS * STRIDE; at++) {
            uint64_t row = at / STRIDE;
            uint64_t in_head = at % STRIDE % DIM;
            if (at % STRIDE >= HEADS * DIM) { /* between the rows */
                assert_int_equal(bits_of(x[at]), bits_of(before[at]));
                continue;
            }
            uint64_t pair = interleaved ? in_head / 2 : in_head % HALF;
            int second = interleaved ? (int)(in_head % 2) : in_head >= HALF;
            uint64_t other =
                interleaved ? (second ? at - 1 : at + 1) : (second ? at - HALF : at + HALF);
            double c = (double)cos_table[positions[row] * HALF + pair];
            double s = (double)sin_table[positions[row] * HALF + pair];
            double want = (double)before[at] * c + (second ? 1 : -1) * (double)before[other] * s;
            close_to(x[at], want, 1.5e-7, "rope");
        }
        guarded_free(x, ROWS * STRIDE * sizeof(float));
    }
    guarded_free(before, ROWS * STRIDE * sizeof(float));
    guarded_free(cos_table, 5 * HALF * sizeof(float));
    guarded_free(sin_table, 5 * HALF * sizeof(float));
}

static void rows_and_threads_change_no_bit(void **state)
{
    (void)state;
    enum { ROWS = 70, WIDTH = 701 };
    uint64_t count = ROWS * WIDTH;
    float *weight = random_floats(WIDTH, 8);
    float *up = random_floats(count, 9);
    float *first[3] = {NULL};
    eng_cpu_force(ENG_CPU_LEVELS);
    for (uint32_t threads = 1; threads <= 3; threads++) {
        struct eng_pool *pool = new_pool(threads);
        float *x[3];
        for (int i = 0; i < 3; i++)
            x[i] = random_floats(count, 10);
        eng_rmsnorm(pool, x[0], WIDTH, ROWS, WIDTH, weight, 1e-6f, x[0], WIDTH);
        eng_silu_mul(pool, x[1], up, count);
        for (uint64_t row = 0; row < ROWS && threads == 1; row++)
            eng_rmsnorm(pool, x[2] + row * WIDTH, WIDTH, 1, WIDTH, weight, 1e-6f,
                        x[2] + row * WIDTH, WIDTH);
        for (int i = 0; i < 3; i++) {
            if (threads == 1)
                first[i] = x[i];
        }
        assert_same_floats(x[0], first[0], count, "rows over threads");
        assert_same_floats(x[0], first[2], count, "rows one by one");
        assert_same_floats(x[1], first[1], count, "elements over threads");
        for (int i = 0; i < 3 && threads > 1; i++)
            guarded_free(x[i], count * sizeof(float));
        eng_pool_close(pool);
    }
    for (int i = 0; i < 3; i++)
        guarded_free(first[i], count * sizeof(float));
    guarded_free(weight, WIDTH * sizeof(float));
    guarded_free(up, count * sizeof(float));
}

static void argmax_takes_the_lowest_of_equals(void **state)
{
    (void)state;
    const float x[] = {NAN, 1.0f, 3.0f, NAN, 3.0f, -1.0f};
    const float nans[] = {NAN, NAN};
    assert_int_equal(eng_argmax(x, 6), 2);
    assert_int_equal(eng_argmax(x + 3, 3), 1);
    assert_int_equal(eng_argmax(nans, 2), 0);
    assert_true(eng_max(x, 6) == 3.0f);
    assert_true(isinf(eng_max(x, 0)) && eng_max(x, 0) < 0);
}

/* The value of an f16 pattern by its definition. */
static double f16_value(uint16_t bits)
{
    int exponent = (bits >> 10) & 0x1f;
    double mantissa = (double)(bits & 0x3ff);
    double size = exponent == 0 ? ldexp(mantissa, -24) : ldexp(mantissa + 1024.0, exponent - 25);
    return bits & 0x8000u ? -size : size;
}

static void every_half_float_widens_exactly_and_comes_back(void **state)
{
    (void)state;
    for (uint32_t bits = 0; bits <= 0xffff; bits++) {
        uint16_t half = (uint16_t)bits;
        float value = eng_f16_to_f32(half);
        if ((bits & 0x7fff) > 0x7c00) {
            assert_true(isnan(value));
            assert_int_equal(eng_f32_to_f16(value), bits | 0x200);
        } else if ((bits & 0x7fff) == 0x7c00) {
            assert_true(isinf(value) && (value < 0) == (bits >> 15 != 0));
            assert_int_equal(eng_f32_to_f16(value), bits);
        } else {
            assert_true((double)value == f16_value(half));
            assert_int_equal(eng_f32_to_f16(value), bits);
        }
        value = eng_bf16_to_f32(half);
        assert_int_equal(bits_of(value), bits << 16);
        assert_int_equal(eng_f32_to_bf16(value), (bits & 0x7fff) > 0x7f80 ? bits | 0x40 : bits);
    }
}

/* Around the middle between each pattern and the next: below, at and above the tie. */
static void narrowing_rounds_to_nearest_even(void **state)
{
    (void)state;
    for (uint32_t bits = 0; bits < 0x7c00; bits++) {
        uint16_t even = (uint16_t)(bits % 2 == 0 ? bits : bits + 1);
        double above = bits == 0x7bff ? 65536.0 : f16_value((uint16_t)(bits + 1));
        float tie = (float)((f16_value((uint16_t)bits) + above) / 2.0);
        assert_int_equal(eng_f32_to_f16(tie), even);
        assert_int_equal(eng_f32_to_f16(-tie), even | 0x8000);
        assert_int_equal(eng_f32_to_f16(nextafterf(tie, 0.0f)), bits);
        assert_int_equal(eng_f32_to_f16(nextafterf(tie, 1e9f)), bits + 1);
    }
    for (uint32_t bits = 0; bits < 0x7f80; bits++) {
        uint32_t even = bits % 2 == 0 ? bits : bits + 1;
        assert_int_equal(eng_f32_to_bf16(float_of(bits << 16 | 0x8000)), even);
        assert_int_equal(eng_f32_to_bf16(float_of(bits << 16 | 0x7fff)), bits);
        assert_int_equal(eng_f32_to_bf16(float_of(bits << 16 | 0x8001)), bits + 1);
    }
}

static void arrays_convert_as_single_values_do(void **state)
{
    (void)state;
    uint64_t seed = 42;
    for (uint64_t n = 0; n <= 2000; n += n < 70 ? 1 : 157) {
        uint32_t *source = guarded_new(n * 4);
        for (uint64_t i = 0; i < n; i++) {
            source[i] = (uint32_t)next_random(&seed); /* any pattern: NaNs and denormals too */
            if (i % 2 == 0) /* near f16's range, else most are infinite or 0 */
                source[i] = (source[i] & 0x8fffffffu) | 0x30000000u;
        }
        for (int level = ENG_CPU_PLAIN; level <= (int)eng_cpu_best(); level++) {
            eng_cpu_force((enum eng_cpu_level)level);
            for (int dtype = ENG_F32; dtype < ENG_DTYPES; dtype++) {
                uint64_t bytes = n * eng_dtype_bytes((enum eng_dtype)dtype);
                void *narrow = guarded_new(bytes);
                float *wide = guarded_new(n * 4);
                eng_narrow((const float *)(const void *)source, (enum eng_dtype)dtype, n, narrow);
                eng_widen(narrow, (enum eng_dtype)dtype, n, wide);
                for (uint64_t i = 0; i < n; i++) {
                    float value = float_of(source[i]);
                    uint16_t half =
                        dtype == ENG_F16 ? eng_f32_to_f16(value) : eng_f32_to_bf16(value);
                    float back = dtype == ENG_F16 ? eng_f16_to_f32(half) : eng_bf16_to_f32(half);
                    if (dtype != ENG_F32)
                        assert_int_equal(((const uint16_t *)narrow)[i], half);
                    assert_int_equal(bits_of(wide[i]),
                                     dtype == ENG_F32 ? source[i] : bits_of(back));
                }
                guarded_free(narrow, bytes);
                guarded_free(wide, n * 4);
            }
        }
        guarded_free(source, n * 4);
    }
    assert_string_equal(eng_dtype_name(ENG_BF16), "bf16");
    assert_int_equal(eng_dtype_bytes(ENG_F32), 4);
}

static void signalling_nans_widen_alike(void **state)
{
    (void)state;
    uint16_t patterns[64];
    float wide[64];
    for (int i = 0; i < 64; i++)
        patterns[i] = (uint16_t)((i % 2 ? 0xfc00 : 0x7c00) | (1 + i * 15));
    for (int level = ENG_CPU_PLAIN; level <= (int)eng_cpu_best(); level++) {
        eng_cpu_force((enum eng_cpu_level)level);
        for (int dtype = ENG_F16; dtype < ENG_DTYPES; dtype++) {
            eng_widen(patterns, (enum eng_dtype)dtype, 64, wide);
            for (int i = 0; i < 64; i++) {
                float one =
                    dtype == ENG_F16 ? eng_f16_to_f32(patterns[i]) : eng_bf16_to_f32(patterns[i]);
                assert_int_equal(bits_of(wide[i]), bits_of(one));
            }
        }
    }
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
        cmocka_unit_test(a_forced_level_is_never_above_the_best),
        cmocka_unit_test(exp_is_within_two_units),
        cmocka_unit_test(exp_at_the_edges),
        cmocka_unit_test(every_level_gives_the_same_bits),
        cmocka_unit_test(activations_are_close_to_double),
        cmocka_unit_test(norms_are_close_to_double),
        cmocka_unit_test(softmax_sums_to_one_and_survives_infinities),
        cmocka_unit_test(rope_turns_pairs_in_both_orders),
        cmocka_unit_test(rows_and_threads_change_no_bit),
        cmocka_unit_test(argmax_takes_the_lowest_of_equals),
        cmocka_unit_test(every_half_float_widens_exactly_and_comes_back),
        cmocka_unit_test(narrowing_rounds_to_nearest_even),
        cmocka_unit_test(arrays_convert_as_single_values_do),
        cmocka_unit_test(signalling_nans_widen_alike),
    };
    return cmocka_run_group_tests(tests, open_pool, close_pool);
}
