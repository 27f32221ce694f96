/* Attention: the written order of every sum, levels, threads, spans and neighbours bit for bit.
 *
 * Holds: the expectation is computed here from attention.h's formula with fmaf; only e^x is taken
 *   from eng_exp (held to 2 units in the last place by test_vecmath.c). A second expectation in
 *   double bounds the error of the whole.
 * Does not: measure speed.
 * Threads: pools of 1 to 4.
 * Tests: conformance/engine/attention.c, kernels_attention.h
 */
#include <math.h>

#include "conformance/engine/attention.h"
#include "conformance/engine/vecmath.h"
#include "tests/unit/engine/math_support.h"

#define GAP 5u /* cache rows between prefix and new rows, filled with NaN */

struct cache {
    struct eng_attention_shape shape;
    uint64_t ranks;   /* the list: prefix rows, then new rows */
    float *q, *k, *v; /* by rank: [ranks][heads][d], k and v as their dtype has them */
    uint64_t q_width, kv_width;
};

static void cache_init(struct cache *cache, uint64_t kv_heads, uint64_t group, uint64_t d,
                       uint64_t ranks, enum eng_dtype dtype, uint64_t seed)
{
    *cache = (struct cache){.shape = {.q_heads = kv_heads * group,
                                      .kv_heads = kv_heads,
                                      .head_dim = d,
                                      .scale = 1.0f / sqrtf((float)d),
                                      .kv_dtype = dtype},
                            .ranks = ranks,
                            .q_width = kv_heads * group * d,
                            .kv_width = kv_heads * d};
    uint64_t count = ranks * cache->kv_width;
    cache->q = random_floats(ranks * cache->q_width, seed);
    cache->k = random_floats(count, seed + 1);
    cache->v = random_floats(count, seed + 2);
    for (uint64_t i = 0; i < ranks * cache->q_width; i++)
        cache->q[i] *= 8.0f; /* scores far enough apart that weights differ much */
    for (uint64_t i = 0; i < count && dtype != ENG_F32; i++) {
        float *pair[2] = {&cache->k[i], &cache->v[i]};
        for (int j = 0; j < 2; j++)
            *pair[j] = dtype == ENG_F16 ? eng_f16_to_f32(eng_f32_to_f16(*pair[j]))
                                        : eng_bf16_to_f32(eng_f32_to_bf16(*pair[j]));
    }
}

static void cache_done(struct cache *cache)
{
    guarded_free(cache->q, cache->ranks * cache->q_width * sizeof(float));
    guarded_free(cache->k, cache->ranks * cache->kv_width * sizeof(float));
    guarded_free(cache->v, cache->ranks * cache->kv_width * sizeof(float));
}

/* A pass over the list whose first `prefix` ranks are the prefix, and new rows up to `end`. */
struct laid_out {
    struct eng_attention_pass pass;
    uint64_t kv_bytes, out_bytes;
    void *k, *v;
};

static void *lay_out_rows(const struct cache *cache, const float *by_rank, uint64_t prefix,
                          uint64_t end, uint64_t stride, uint64_t *ret_bytes)
{
    uint64_t value_bytes = eng_dtype_bytes(cache->shape.kv_dtype);
    *ret_bytes = (end + GAP) * stride * value_bytes;
    uint8_t *rows = guarded_new(*ret_bytes);
    memset(rows, 0xff, *ret_bytes); /* NaN in all three types */
    for (uint64_t rank = 0; rank < end; rank++) {
        uint64_t row = rank < prefix ? rank : rank + GAP;
        for (uint64_t i = 0; i < cache->kv_width; i++) {
            float value = by_rank[rank * cache->kv_width + i];
            uint64_t at = (row * stride + i) * value_bytes;
            uint16_t half =
                cache->shape.kv_dtype == ENG_F16 ? eng_f32_to_f16(value) : eng_f32_to_bf16(value);
            if (cache->shape.kv_dtype == ENG_F32)
                memcpy(rows + at, &value, sizeof(value));
            else
                memcpy(rows + at, &half, sizeof(half));
        }
    }
    return rows;
}

static void lay_out(struct laid_out *laid, const struct cache *cache, uint64_t prefix, uint64_t end)
{
    uint64_t k_stride = cache->kv_width + 3;
    uint64_t v_stride = cache->kv_width + 1;
    uint64_t bytes;
    laid->k = lay_out_rows(cache, cache->k, prefix, end, k_stride, &laid->kv_bytes);
    laid->v = lay_out_rows(cache, cache->v, prefix, end, v_stride, &bytes);
    uint64_t out_stride = cache->q_width + 2;
    laid->out_bytes = (end - prefix) * out_stride * sizeof(float);
    laid->pass = (struct eng_attention_pass){.q = cache->q + prefix * cache->q_width,
                                             .k = laid->k,
                                             .v = laid->v,
                                             .out = guarded_new(laid->out_bytes),
                                             .q_stride = cache->q_width,
                                             .k_stride = k_stride,
                                             .v_stride = v_stride,
                                             .out_stride = out_stride,
                                             .prefix_count = prefix,
                                             .new_first = prefix + GAP,
                                             .new_count = end - prefix};
}

static void laid_out_done(struct laid_out *laid, const struct cache *cache)
{
    uint64_t rows = laid->pass.new_first + laid->pass.new_count;
    guarded_free(laid->pass.out, laid->out_bytes);
    guarded_free(laid->k, laid->kv_bytes);
    guarded_free(laid->v, rows * laid->pass.v_stride * eng_dtype_bytes(cache->shape.kv_dtype));
}

static float sum_of_lanes(const float *values, uint64_t count)
{
    float lane[16] = {0};
    for (uint64_t i = 0; i < count; i++)
        lane[i % 16] += values[i];
    for (unsigned half = 8; half > 0; half /= 2) {
        for (unsigned i = 0; i < half; i++)
            lane[i] += lane[i + half];
    }
    return lane[0];
}

/* One head of the row at `rank`, by attention.h's formula. p: room for rank + 1 floats. */
static void one_head(const struct cache *cache, uint64_t rank, uint64_t head, float *p,
                     float *ret_out)
{
    uint64_t d = cache->shape.head_dim;
    uint64_t kv = head / (cache->shape.q_heads / cache->shape.kv_heads);
    const float *q = cache->q + rank * cache->q_width + head * d;
    float largest = -INFINITY;
    for (uint64_t r = 0; r <= rank; r++) {
        float chain = 0.0f;
        for (uint64_t i = 0; i < d; i++)
            chain =
                fmaf(q[i] * cache->shape.scale, cache->k[r * cache->kv_width + kv * d + i], chain);
        p[r] = chain;
        largest = p[r] > largest ? p[r] : largest;
    }
    for (uint64_t r = 0; r <= rank; r++)
        p[r] = p[r] - largest;
    eng_exp(p, rank + 1, p);
    float z = sum_of_lanes(p, rank + 1);
    for (uint64_t i = 0; i < d; i++) {
        float total = 0.0f;
        for (uint64_t block = 0; block <= rank; block += ENG_ATTENTION_BLOCK) {
            float chain = 0.0f;
            for (uint64_t r = block; r <= rank && r < block + ENG_ATTENTION_BLOCK; r++)
                chain = fmaf(p[r], cache->v[r * cache->kv_width + kv * d + i], chain);
            total = block == 0 ? chain : total + chain;
        }
        ret_out[i] = total / z;
    }
}

/* The same in double, the plain way. */
static void one_head_exact(const struct cache *cache, uint64_t rank, uint64_t head, double *p,
                           double *ret_out)
{
    uint64_t d = cache->shape.head_dim;
    uint64_t kv = head / (cache->shape.q_heads / cache->shape.kv_heads);
    const float *q = cache->q + rank * cache->q_width + head * d;
    double largest = -INFINITY;
    double z = 0.0;
    for (uint64_t r = 0; r <= rank; r++) {
        p[r] = 0.0;
        for (uint64_t i = 0; i < d; i++)
            p[r] += (double)q[i] * (double)cache->k[r * cache->kv_width + kv * d + i];
        p[r] *= (double)cache->shape.scale;
        largest = p[r] > largest ? p[r] : largest;
    }
    for (uint64_t i = 0; i < d; i++)
        ret_out[i] = 0.0;
    for (uint64_t r = 0; r <= rank; r++) {
        double weight = exp(p[r] - largest);
        z += weight;
        for (uint64_t i = 0; i < d; i++)
            ret_out[i] += weight * (double)cache->v[r * cache->kv_width + kv * d + i];
    }
    for (uint64_t i = 0; i < d; i++)
        ret_out[i] /= z;
}

/* [ranks][q_width], checked against double on the way. */
static float *expected_outputs(const struct cache *cache)
{
    uint64_t d = cache->shape.head_dim;
    float *expected = guarded_new(cache->ranks * cache->q_width * sizeof(float));
    float *p = malloc(cache->ranks * sizeof(*p));
    double *exact_p = malloc(cache->ranks * sizeof(*exact_p));
    double *exact = malloc(d * sizeof(*exact));
    assert_true(p != NULL && exact_p != NULL && exact != NULL);
    eng_cpu_force(ENG_CPU_PLAIN);
    for (uint64_t rank = 0; rank < cache->ranks; rank++) {
        for (uint64_t head = 0; head < cache->shape.q_heads; head++) {
            float *out = expected + rank * cache->q_width + head * d;
            one_head(cache, rank, head, p, out);
            one_head_exact(cache, rank, head, exact_p, exact);
            for (uint64_t i = 0; i < d; i++) {
                if (!(fabs((double)out[i] - exact[i]) <= 4e-6)) /* values are below 1 */
                    fail_msg("rank %llu: %g, exact %g", (unsigned long long)rank, (double)out[i],
                             exact[i]);
            }
        }
    }
    free(p);
    free(exact_p);
    free(exact);
    return expected;
}

static void compare_outputs(const struct cache *cache, const struct laid_out *laid,
                            const float *expected, const char *what)
{
    for (uint64_t i = 0; i < laid->pass.new_count; i++)
        assert_same_floats(laid->pass.out + i * laid->pass.out_stride,
                           expected + (laid->pass.prefix_count + i) * cache->q_width,
                           cache->q_width, what);
}

/* All ranks, cut into passes of `step` rows, at one level. */
static void run_in_steps(struct eng_pool *pool, const struct cache *cache, uint64_t step,
                         const float *expected)
{
    for (uint64_t prefix = 0; prefix < cache->ranks; prefix += step) {
        uint64_t end = prefix + step < cache->ranks ? prefix + step : cache->ranks;
        struct laid_out laid;
        char what[96];
        struct eng_error error = {0};
        lay_out(&laid, cache, prefix, end);
        if (eng_attention(pool, &cache->shape, &laid.pass, 1, &error) != ENG_OK)
            fail_msg("%s", error.text);
        (void)snprintf(what, sizeof(what), "%s d %llu group %llu prefix %llu new %llu",
                       eng_cpu_name(eng_cpu_get()), (unsigned long long)cache->shape.head_dim,
                       (unsigned long long)(cache->shape.q_heads / cache->shape.kv_heads),
                       (unsigned long long)prefix, (unsigned long long)(end - prefix));
        compare_outputs(cache, &laid, expected, what);
        laid_out_done(&laid, cache);
    }
}

static void every_level_and_split_follows_the_written_order(void **state)
{
    struct eng_pool *pool = *state;
    static const uint64_t dims[] = {1, 8, 13, 32, 33, 64, 80, 128};
    static const uint64_t groups[] = {1, 3, 8, 2};
    static const uint64_t steps[] = {150, 1, 17, 64, 100};
    print_levels();
    for (uint64_t i = 0; i < sizeof(dims) / sizeof(dims[0]); i++) {
        struct cache cache;
        cache_init(&cache, 2, groups[i % 4], dims[i], 150, (enum eng_dtype)(i % ENG_DTYPES), i);
        float *expected = expected_outputs(&cache);
        for (int level = ENG_CPU_PLAIN; level <= (int)eng_cpu_best(); level++) {
            assert_int_equal(eng_cpu_force(level), level);
            /* the plain level is slow: two of the five splits */
            for (uint64_t s = 0; s < (level == ENG_CPU_PLAIN ? 2u : 5u); s++)
                run_in_steps(pool, &cache, steps[(s + i) % 5], expected);
        }
        guarded_free(expected, cache.ranks * cache.q_width * sizeof(float));
        cache_done(&cache);
    }
}

static void long_lists_and_many_threads_change_no_bit(void **state)
{
    (void)state;
    struct cache cache;
    cache_init(&cache, 1, 3, 64, 700, ENG_BF16, 5);
    float *expected = expected_outputs(&cache);
    eng_cpu_force(ENG_CPU_LEVELS);
    for (uint32_t threads = 1; threads <= 4; threads++) {
        struct eng_pool *pool = new_pool(threads);
        run_in_steps(pool, &cache, 700, expected);
        run_in_steps(pool, &cache, 333, expected);
        eng_pool_close(pool);
    }
    guarded_free(expected, cache.ranks * cache.q_width * sizeof(float));
    cache_done(&cache);
}

static void requests_of_a_batch_do_not_feel_each_other(void **state)
{
    struct eng_pool *pool = *state;
    static const uint64_t prefixes[8] = {0, 90, 1, 64, 149, 33, 0, 128};
    static const uint64_t ends[8] = {150, 91, 1, 130, 150, 34, 1, 150};
    struct cache cache;
    cache_init(&cache, 3, 3, 64, 150, ENG_F32, 11);
    float *expected = expected_outputs(&cache);
    eng_cpu_force(ENG_CPU_LEVELS);
    struct laid_out laid[8];
    struct eng_attention_pass passes[8];
    for (uint64_t i = 0; i < 8; i++) {
        lay_out(&laid[i], &cache, prefixes[i], ends[i]); /* number 2 has no new row */
        passes[i] = laid[i].pass;
    }
    assert_int_equal(eng_attention(pool, &cache.shape, passes, 8, NULL), ENG_OK);
    for (uint64_t i = 0; i < 8; i++) {
        compare_outputs(&cache, &laid[i], expected, "batch");
        laid_out_done(&laid[i], &cache);
    }
    assert_int_equal(eng_attention(pool, &cache.shape, passes, 0, NULL), ENG_OK);
    guarded_free(expected, cache.ranks * cache.q_width * sizeof(float));
    cache_done(&cache);
}

static void a_later_nan_never_reaches_an_earlier_row(void **state)
{
    struct eng_pool *pool = *state;
    struct cache cache;
    cache_init(&cache, 1, 2, 40, 100, ENG_F32, 3);
    float *expected = expected_outputs(&cache);
    for (uint64_t i = 0; i < 40; i++) {
        cache.v[71 * cache.kv_width + i] = NAN;
        cache.v[90 * cache.kv_width + i] = INFINITY;
    }
    for (int level = ENG_CPU_PLAIN; level <= (int)eng_cpu_best(); level++) {
        struct laid_out laid;
        eng_cpu_force(level);
        lay_out(&laid, &cache, 30, 100);
        assert_int_equal(eng_attention(pool, &cache.shape, &laid.pass, 1, NULL), ENG_OK);
        for (uint64_t i = 0; i < 70; i++) {
            const float *out = laid.pass.out + i * laid.pass.out_stride;
            if (30 + i < 71)
                assert_same_floats(out, expected + (30 + i) * cache.q_width, cache.q_width,
                                   "before the NaN");
            else
                assert_true(isnan(out[0]) && isnan(out[cache.q_width - 1]));
        }
        laid_out_done(&laid, &cache);
    }
    guarded_free(expected, cache.ranks * cache.q_width * sizeof(float));
    cache_done(&cache);
}

/* Later rows of the same list, over a prefix, a gap, and what earlier passes left. */
static void rows_seen_behind_a_gap_are_attended_in_turn(void **state)
{
    struct eng_pool *pool = *state;
    for (int dtype = 0; dtype < ENG_DTYPES; dtype++) {
        struct cache cache;
        struct laid_out whole;
        struct eng_error error = {0};
        cache_init(&cache, 3, 2, 40, 190, (enum eng_dtype)dtype, 77);
        lay_out(&whole, &cache, 30, 190);
        assert_int_equal(eng_attention(pool, &cache.shape, &whole.pass, 1, &error), ENG_OK);
        const uint64_t splits[] = {1, 97, 98, 159};
        for (int i = 0; i < 4; i++) {
            struct eng_attention_pass part = whole.pass;
            uint64_t count = 160 - splits[i];
            uint64_t bytes = count * whole.pass.out_stride * sizeof(float);
            part.q += splits[i] * part.q_stride;
            part.out = guarded_new(bytes);
            part.seen_first = whole.pass.new_first;
            part.seen_count = splits[i];
            part.new_first += splits[i];
            part.new_count = count;
            assert_int_equal(eng_attention(pool, &cache.shape, &part, 1, &error), ENG_OK);
            for (uint64_t row = 0; row < count; row++)
                assert_memory_equal(part.out + row * part.out_stride,
                                    whole.pass.out + (splits[i] + row) * part.out_stride,
                                    cache.q_width * sizeof(float));
            guarded_free(part.out, bytes);
        }
        laid_out_done(&whole, &cache);
        cache_done(&cache);
    }
}

static void wrong_shapes_are_refused(void **state)
{
    struct eng_pool *pool = *state;
    struct eng_error error = {0};
    struct eng_attention_shape shape = {.q_heads = 9, .kv_heads = 2, .head_dim = 64};
    assert_int_equal(eng_attention(pool, &shape, NULL, 0, &error), ENG_E_INVALID);
    assert_string_equal(error.text, "9 query heads over 2 KV heads");
    shape.kv_heads = 0;
    assert_int_equal(eng_attention(pool, &shape, NULL, 0, &error), ENG_E_INVALID);
    shape.kv_heads = 3;
    shape.head_dim = 0;
    assert_int_equal(eng_attention(pool, &shape, NULL, 0, &error), ENG_E_INVALID);
    shape.head_dim = 64;
    struct eng_attention_pass pass = {.prefix_count = 8, .new_first = 7, .new_count = 1};
    assert_int_equal(eng_attention(pool, &shape, &pass, 1, &error), ENG_E_INVALID);
    pass = (struct eng_attention_pass){
        .prefix_count = 8, .seen_first = 7, .seen_count = 1, .new_first = 9, .new_count = 1};
    assert_int_equal(eng_attention(pool, &shape, &pass, 1, &error), ENG_E_INVALID);
    pass = (struct eng_attention_pass){
        .prefix_count = 8, .seen_first = 8, .seen_count = 2, .new_first = 9, .new_count = 1};
    assert_int_equal(eng_attention(pool, &shape, &pass, 1, &error), ENG_E_INVALID);
    pass = (struct eng_attention_pass){.new_count = 1ull << 63};
    assert_int_equal(eng_attention(pool, &shape, &pass, 1, &error), ENG_E_INVALID);
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
        cmocka_unit_test(every_level_and_split_follows_the_written_order),
        cmocka_unit_test(long_lists_and_many_threads_change_no_bit),
        cmocka_unit_test(requests_of_a_batch_do_not_feel_each_other),
        cmocka_unit_test(a_later_nan_never_reaches_an_earlier_row),
        cmocka_unit_test(rows_seen_behind_a_gap_are_attended_in_turn),
        cmocka_unit_test(wrong_shapes_are_refused),
    };
    return cmocka_run_group_tests(tests, open_pool, close_pool);
}
