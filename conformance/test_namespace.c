/* What KV is shared between: ABI-010, ABI-011.
 *
 * Holds, Does not, Threads, Tests: as fixture.h. */
#include "conformance/suite.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void change_dtype(struct spec_model *model)
{
    model->kv_dtype = SPEC_DTYPE_BF16; /* the same bytes a row, other numbers */
}

static void change_layers(struct spec_model *model)
{
    model->layer_count++;
}

static void change_heads(struct spec_model *model)
{
    model->kv_head_count *= 2;
    model->head_size /= 2;
    model->query_head_count = model->kv_head_count;
}

static void change_query_heads(struct spec_model *model)
{
    model->query_head_count *= 2;
}

static void change_rope_kind(struct spec_model *model)
{
    model->rope_kind = SPEC_ROPE_INTERLEAVED;
}

static void change_rope_theta(struct spec_model *model)
{
    model->rope_theta = 10000.0;
}

static void change_scaling(struct spec_model *model)
{
    model->rope_scaling[3] = 8192.0;
}

static void change_scaling_kind(struct spec_model *model)
{
    model->rope_scaling_kind = "llama3";
}

static void change_scales(struct spec_model *model)
{
    static const float SCALES[2] = {0.5f, 2.0f};
    model->kv_scales = SCALES;
    model->kv_scale_count = 2;
}

static void change_weights(struct spec_model *model)
{
    model->weights_id = (struct spec_bytes){"conformancf", 11};
}

static void shorten_weights(struct spec_model *model)
{
    model->weights_id.byte_count--;
}

static void change_revision(struct spec_model *model)
{
    model->revision = "main";
}

static void change_tp_size(struct spec_model *model)
{
    model->tp_size = 2;
}

static void change_tp_rank(struct spec_model *model)
{
    model->tp_size = 2;
    model->tp_rank = 1;
}

static void (*const CHANGES[])(struct spec_model *model) = {
    change_dtype,      change_layers,   change_heads,        change_query_heads, change_rope_kind,
    change_rope_theta, change_scaling,  change_scaling_kind, change_scales,      change_weights,
    shorten_weights,   change_revision, change_tp_size,      change_tp_rank};

static void abi_010_models_that_differ_in_anything_share_nothing(void **state)
{
    struct fixture *fx = *state;
    struct prompt prompt = prompt_make(30, 200);
    fixture_open(fx);
    bool stored = fixture_store(fx, &prompt);
    for (size_t i = 0; i < sizeof(CHANGES) / sizeof(CHANGES[0]); i++) {
        fixture_close(fx);
        CHANGES[i](&fx->model);
        fixture_open(fx);
        struct spec_lookup_result found = fixture_find(fx, &prompt);
        if (found.matched_tokens != 0)
            fail_msg("change %zu of the model still finds %llu tokens", i,
                     (unsigned long long)found.matched_tokens);
        fixture_release(fx, found.request);
        fixture_shape(fx, fx->shape);
    }
    fixture_reopen(fx); /* the original again */
    fixture_check(fx, &prompt, stored ? 199 : 0);
    prompt_free(&prompt);
}

static void abi_010_one_directory_holds_many_models(void **state)
{
    struct fixture *fx = *state;
    static const struct shape SHAPES[] = {
        {3, 2, 16, SPEC_DTYPE_F16}, {1, 1, 128, SPEC_DTYPE_F32}, {5, 3, 8, SPEC_DTYPE_BF16}};
    struct prompt prompt = prompt_make(31, 150);
    bool stored[3];
    for (int round = 0; round < 2; round++)
        for (uint64_t i = 0; i < 3; i++) {
            fixture_shape(fx, SHAPES[i]);
            prompt_salt(&prompt, i);
            fixture_open(fx);
            if (round == 0)
                stored[i] = fixture_store(fx, &prompt);
            fixture_check(fx, &prompt, stored[i] ? 149 : 0);
            fixture_close(fx);
        }
    prompt_free(&prompt);
}

/* ---- 011 ---- */

static void abi_011_a_model_without_weights_is_invalid(void **state)
{
    struct fixture *fx = *state;
    fx->model.weights_id = (struct spec_bytes){NULL, 0};
    assert_status(fixture_try_open(fx), SPEC_E_INVALID);
    assert_null(fx->conn);
    assert_true(strlen(fx->error.text) > 0);
}

static void write_file(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    fclose(file);
}

static void abi_011_weights_are_known_by_their_bytes(void **state)
{
    struct fixture *fx = *state;
    char first[4096], moved[4096];
    (void)snprintf(first, sizeof(first), "%s/first.safetensors", fx->dir);
    (void)snprintf(moved, sizeof(moved), "%s/moved.safetensors", fx->dir);
    const char *path = first;
    write_file(first, "these are weights");
    fx->model.weights_id = (struct spec_bytes){NULL, 0};
    fx->model.weights_paths = &path;
    fx->model.weights_path_count = 1;
    fixture_open(fx);
    struct prompt prompt = prompt_make(32, 100);
    bool stored = fixture_store(fx, &prompt);
    fixture_close(fx);
    assert_int_equal(rename(first, moved), 0);
    path = moved;
    fixture_open(fx);
    fixture_check(fx, &prompt, stored ? 99 : 0);
    fixture_close(fx);
    write_file(moved, "these are other weights");
    fixture_open(fx);
    struct spec_lookup_result found = fixture_find(fx, &prompt);
    assert_int_equal(found.matched_tokens, 0);
    prompt_free(&prompt);
}

static void abi_011_weights_that_are_missing_are_an_error(void **state)
{
    struct fixture *fx = *state;
    const char *path = "/nonexistent/model.safetensors";
    fx->model.weights_paths = &path;
    fx->model.weights_path_count = 1;
    assert_true(fixture_try_open(fx) < 0);
    assert_non_null(strstr(fx->error.text, "model.safetensors"));
    assert_null(fx->conn);
}

const struct conf_test CONF_NAMESPACE[] = {
    BARE(abi_010_models_that_differ_in_anything_share_nothing),
    BARE(abi_010_one_directory_holds_many_models),
    BARE(abi_011_a_model_without_weights_is_invalid),
    BARE(abi_011_weights_are_known_by_their_bytes),
    BARE(abi_011_weights_that_are_missing_are_an_error),
    END,
};
