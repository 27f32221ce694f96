/* Rounding to fp8: values of e4m3 stay, values between two become the nearer one, half-way the even
 * one, and nothing exceeds 448. In a model, a prefix's rows become such values times a scale, or
 * rows that are kept and the nearest of those; the logits follow. */
#include "bench/altered.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "conformance/engine/cli/selector_source.h"
#include "tests/unit/engine/make_model.h"

enum { CODES = 127 }; /* of one sign; the last pattern is NaN */
enum { PREFIX = 80, QUERY = 6, KEPT = 20 };

/* The value of a code as the format defines it: 4 bits of exponent, bias 7, 3 of mantissa. */
static float value_of(int code)
{
    int exponent = code >> 3;
    float mantissa = (float)(code & 7) / 8;
    return exponent == 0 ? ldexpf(mantissa, -6) : ldexpf(1 + mantissa, exponent - 7);
}

static void every_value_of_the_format_stays(void **state)
{
    (void)state;
    assert_true(value_of(CODES - 1) == 448.0f);
    for (int code = 0; code < CODES; code++) {
        assert_true(altered_e4m3(value_of(code)) == value_of(code));
        assert_true(altered_e4m3(-value_of(code)) == -value_of(code));
    }
}

static void others_go_to_the_nearest_and_half_way_to_the_even_one(void **state)
{
    (void)state;
    for (int code = 0; code + 1 < CODES; code++) {
        float low = value_of(code);
        float high = value_of(code + 1);
        float middle = (low + high) / 2;
        assert_true(altered_e4m3(middle) == (code % 2 == 0 ? low : high));
        assert_true(altered_e4m3(nextafterf(middle, 0)) == low);
        assert_true(altered_e4m3(nextafterf(middle, INFINITY)) == high);
    }
}

static void too_large_values_become_448_and_nan_stays(void **state)
{
    (void)state;
    assert_true(altered_e4m3(449) == 448.0f);
    assert_true(altered_e4m3(-1e30f) == -448.0f);
    assert_true(isnan(altered_e4m3(NAN)));
}

/* ---- A model ---- */

struct fixture {
    struct eng_model *model;
    struct eng_runner *prefix, *runner;
    struct eng_result result;
    uint32_t tokens[PREFIX + QUERY];
};

static void must(eng_status status, const struct eng_error *error)
{
    if (status != ENG_OK)
        fail_msg("%s", error->text);
}

static void fixture_init(struct fixture *fx)
{
    struct eng_error error;
    struct recipe recipe = recipe_llama();
    char folder[] = "/tmp/spec-altered-XXXXXX";
    assert_non_null(mkdtemp(folder));
    make_model(folder, &recipe);
    must(eng_model_open(folder, 1, &fx->model, &error), &error);
    remove_model(folder);
    must(eng_runner_open(fx->model, ENG_F32, PREFIX + QUERY, &fx->prefix, &error), &error);
    must(eng_runner_open(fx->model, ENG_F32, PREFIX + QUERY, &fx->runner, &error), &error);
    for (uint32_t i = 0; i < PREFIX + QUERY; i++)
        fx->tokens[i] = (i * i * 7 + i * 37 + 5) % recipe.vocab;
    must(eng_run_hold(fx->prefix, fx->tokens, PREFIX, 0, &error), &error);
}

/* Asks over the prefix's altered rows, which are in the runner's cache afterwards. */
static void ask(struct fixture *fx, enum altered_kind kind, uint64_t kept)
{
    static const uint64_t held_tokens = PREFIX;
    struct eng_error error;
    struct eng_selectr_source *whole = NULL;
    struct altered *altered = NULL;
    const struct eng_selectr_source_params all = {.model = fx->model,
                                                  .held = eng_runner_kv(fx->prefix),
                                                  .held_tokens = &held_tokens,
                                                  .rule = eng_select_rule_default(1)};
    const struct eng_request request = {.prefix = fx->tokens,
                                        .query = fx->tokens + PREFIX,
                                        .prefix_count = PREFIX,
                                        .query_count = QUERY,
                                        .max_new = 1};
    must(eng_selectr_source_open(&all, &whole, &error), &error);
    struct altered_params params = {.kind = kind,
                                    .inner = eng_selectr_source_get(whole),
                                    .model = fx->model,
                                    .rule = eng_select_rule_default(1)};
    params.rule.count = kept;
    params.rule.per_head = true;
    must(altered_open(&params, &altered, &error), &error);
    must(eng_run(fx->runner, &request, altered_source(altered), &fx->result, &error), &error);
    altered_close(altered);
    eng_selectr_source_close(whole);
}

static void fixture_done(struct fixture *fx)
{
    eng_result_done(&fx->result);
    eng_runner_close(fx->prefix);
    eng_runner_close(fx->runner);
    eng_model_close(fx->model);
}

static void rows_become_e4m3_times_one_scale_a_layer(void **state)
{
    struct fixture fx;
    (void)state;
    fixture_init(&fx);
    ask(&fx, ALTERED_FP8, 0);
    const struct eng_kv *was = eng_runner_kv(fx.prefix);
    const struct eng_kv *is = eng_runner_kv(fx.runner);
    for (uint64_t layer = 0; layer < is->layers; layer++)
        for (int part = 0; part < 2; part++) {
            uint8_t *(*rows)(const struct eng_kv *, uint64_t, uint64_t) =
                part == 0 ? eng_kv_k : eng_kv_v;
            const float *from = (const float *)(const void *)rows(was, layer, 0);
            const float *to = (const float *)(const void *)rows(is, layer, 0);
            float largest = 0;
            for (uint64_t i = 0; i < PREFIX * is->row_elems; i++)
                largest = fmaxf(largest, fabsf(from[i]));
            for (uint64_t i = 0; i < PREFIX * is->row_elems; i++)
                assert_true(to[i] == altered_e4m3(from[i] / (largest / 448)) * (largest / 448));
        }
    fixture_done(&fx);
}

static float apart(const float *a, const float *b, uint64_t count)
{
    float sum = 0;
    for (uint64_t i = 0; i < count; i++)
        sum += (a[i] - b[i]) * (a[i] - b[i]);
    return sum;
}

/* Every row of a head is one of KEPT rows of that head, K and V of the same one, and none of those
 * is nearer to the key that it replaces. */
static void check_head(const struct eng_kv *was, const struct eng_kv *is, uint64_t layer,
                       uint64_t head)
{
    uint64_t size = was->head_dim;
    uint64_t from[PREFIX];
    bool kept[PREFIX] = {false};
    uint64_t count = 0;
    const float *keys = (const float *)(const void *)eng_kv_k(was, layer, 0) + head * size;
    const float *values = (const float *)(const void *)eng_kv_v(was, layer, 0) + head * size;
    const float *new_keys = (const float *)(const void *)eng_kv_k(is, layer, 0) + head * size;
    const float *new_values = (const float *)(const void *)eng_kv_v(is, layer, 0) + head * size;
    uint64_t row = was->row_elems;
    for (uint64_t r = 0; r < PREFIX; r++) {
        for (from[r] = 0; from[r] < PREFIX; from[r]++)
            if (memcmp(new_keys + r * row, keys + from[r] * row, size * sizeof(float)) == 0)
                break;
        assert_true(from[r] < PREFIX);
        assert_memory_equal(new_values + r * row, values + from[r] * row, size * sizeof(float));
        count += !kept[from[r]];
        kept[from[r]] = true;
    }
    assert_int_equal(count, KEPT);
    for (uint64_t r = 0; r < PREFIX; r++)
        for (uint64_t other = 0; other < PREFIX; other++)
            assert_true(!kept[other] || apart(keys + r * row, keys + from[r] * row, size) <=
                                            apart(keys + r * row, keys + other * row, size));
}

static void dropped_rows_take_the_nearest_kept_one(void **state)
{
    struct fixture fx;
    (void)state;
    fixture_init(&fx);
    ask(&fx, ALTERED_STAND_IN, KEPT);
    const struct eng_kv *is = eng_runner_kv(fx.runner);
    for (uint64_t layer = 0; layer < is->layers; layer++)
        for (uint64_t head = 0; head < is->kv_heads; head++)
            check_head(eng_runner_kv(fx.prefix), is, layer, head);
    fixture_done(&fx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_value_of_the_format_stays),
        cmocka_unit_test(others_go_to_the_nearest_and_half_way_to_the_even_one),
        cmocka_unit_test(too_large_values_become_448_and_nan_stays),
        cmocka_unit_test(rows_become_e4m3_times_one_scale_a_layer),
        cmocka_unit_test(dropped_rows_take_the_nearest_kept_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
