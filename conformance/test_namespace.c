/* test_namespace: which requests may share KV: ABI-010, ABI-011.
 *
 * Threads, Tests: see fixture.h. */
#include "conformance/suite.h"

#include <math.h>
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

/* ---- 183 ---- */

#define LAYERS_MAX 8u

/* Two groups over the layers, even ones and odd ones, that a change makes something of. */
struct groups {
    uint32_t layers[2][LAYERS_MAX];
    struct spec_layer_group group[2];
};

static void groups_of(struct spec_model *model, struct groups *groups, uint64_t count)
{
    uint64_t counts[2] = {0, 0};
    for (uint32_t layer = 0; layer < model->layer_count; layer++)
        groups->layers[layer % count][counts[layer % count]++] = layer;
    for (uint64_t i = 0; i < count; i++)
        groups->group[i] = (struct spec_layer_group){.struct_size = sizeof(groups->group[i]),
                                                     .kind = SPEC_GROUP_FULL,
                                                     .layers = groups->layers[i],
                                                     .layer_count = counts[i],
                                                     .kv_head_count = model->kv_head_count,
                                                     .head_size = model->head_size};
    model->groups = groups->group;
    model->group_count = count;
}

static void abi_183_groups_that_say_the_same_are_the_model_without_them(void **state)
{
    struct fixture *fx = *state;
    struct prompt prompt = prompt_make(34, 200);
    struct groups groups;
    fixture_open(fx);
    bool stored = fixture_store(fx, &prompt);
    for (int spelled = 0; spelled < 3; spelled++) {
        fixture_close(fx);
        groups_of(&fx->model, &groups, spelled < 2 ? 1 : 2);
        if (spelled == 1) {
            groups.group[0].dtype = fx->model.kv_dtype;
            groups.group[0].head_size_v = fx->model.head_size;
            groups.group[0].rope_theta = fx->model.rope_theta;
            fx->model.head_size_v = fx->model.head_size;
        }
        fixture_open(fx);
        fixture_check(fx, &prompt, stored ? 199 : 0);
    }
    prompt_free(&prompt);
}

static void expect_open(struct fixture *fx, const char *what, spec_status expected)
{
    spec_status status = fixture_try_open(fx);
    if (status != expected)
        fail_msg("%s: open said %d, expected %d (%s)", what, (int)status, (int)expected,
                 fx->error.text);
    assert_null(fx->conn);
    assert_true(strlen(fx->error.text) > 0);
}

/* Not a number is no other number. */
static void abi_183_groups_of_another_theta_are_another_model(void **state)
{
    struct fixture *fx = *state;
    static const double THETAS[] = {(double)NAN, (double)INFINITY, 1e-3};
    struct prompt prompt = prompt_make(36, 200);
    struct groups groups;
    fx->model.rope_theta = 1e4;
    fixture_open(fx);
    (void)fixture_store(fx, &prompt);
    for (uint32_t i = 0; i < 3; i++) {
        fixture_close(fx);
        groups_of(&fx->model, &groups, 2);
        groups.group[1].rope_theta = THETAS[i];
        spec_status status = fixture_try_open(fx);
        if (status == SPEC_E_UNSUPPORTED && conf_says_what_is_chosen())
            conf_skip("the command line's configuration says what is chosen or stored");
        assert_ok(fx, status);
        struct spec_lookup_result found = fixture_find(fx, &prompt);
        assert_int_equal(found.matched_tokens, 0);
        fixture_release(fx, found.request);
    }
    prompt_free(&prompt);
}

static void abi_183_sizes_beyond_all_are_invalid(void **state)
{
    struct fixture *fx = *state;
    struct spec_model *model = &fx->model;
    struct groups groups;
    struct spec_layer_group *other = &groups.group[1];
    groups_of(model, &groups, 2);
    *other = (struct spec_layer_group){.struct_size = sizeof(*other),
                                       .kind = SPEC_GROUP_STATE,
                                       .layers = other->layers,
                                       .layer_count = other->layer_count,
                                       .state_bytes = UINT64_MAX};
    expect_open(fx, "a state beyond all", SPEC_E_INVALID);
    model->groups = NULL;
    model->group_count = 0;
    model->head_size_v = UINT32_MAX;
    expect_open(fx, "a head_size_v beyond all", SPEC_E_INVALID);
    model->head_size_v = 0;
    model->reserved = 1;
    expect_open(fx, "reserved", SPEC_E_INVALID);
}

static void no_groups(struct spec_model *model, struct groups *groups)
{
    (void)groups;
    model->groups = NULL;
}

static void too_many_groups(struct spec_model *model, struct groups *groups)
{
    (void)groups;
    model->group_count = UINT64_MAX;
}

static void unknown_kind(struct spec_model *model, struct groups *groups)
{
    (void)model;
    groups->group[1].kind = SPEC_GROUP_STATE + 1;
}

static void unknown_dtype(struct spec_model *model, struct groups *groups)
{
    (void)model;
    groups->group[1].dtype = 99;
}

static void other_size(struct spec_model *model, struct groups *groups)
{
    (void)model;
    groups->group[1].struct_size -= 8;
}

static void missing_layer(struct spec_model *model, struct groups *groups)
{
    (void)model;
    groups->group[0].layer_count--;
}

static void layer_twice(struct spec_model *model, struct groups *groups)
{
    (void)model;
    groups->layers[1][0] = 0;
}

static void layer_beyond(struct spec_model *model, struct groups *groups)
{
    groups->layers[1][0] = model->layer_count;
}

static void layers_null(struct spec_model *model, struct groups *groups)
{
    (void)model;
    groups->group[1].layers = NULL;
}

static void full_with_window(struct spec_model *model, struct groups *groups)
{
    (void)model;
    groups->group[1].window = 1;
}

static void window_without(struct spec_model *model, struct groups *groups)
{
    (void)model;
    groups->group[1].kind = SPEC_GROUP_WINDOW;
}

static void state_with_heads(struct spec_model *model, struct groups *groups)
{
    (void)model;
    groups->group[1].kind = SPEC_GROUP_STATE;
    groups->group[1].state_bytes = 1;
}

static void latent_with_v(struct spec_model *model, struct groups *groups)
{
    (void)model;
    groups->group[1].kind = SPEC_GROUP_LATENT;
    groups->group[1].kv_head_count = 1;
    groups->group[1].head_size_v = 16;
}

static void no_heads(struct spec_model *model, struct groups *groups)
{
    (void)model;
    groups->group[1].kv_head_count = 0;
}

static void (*const WRONG[])(struct spec_model *model, struct groups *groups) = {
    no_groups,      too_many_groups,  unknown_kind,  unknown_dtype, other_size,
    missing_layer,  layer_twice,      layer_beyond,  layers_null,   full_with_window,
    window_without, state_with_heads, latent_with_v, no_heads};

static void abi_183_groups_that_contradict_themselves_are_invalid(void **state)
{
    struct fixture *fx = *state;
    for (size_t i = 0; i < sizeof(WRONG) / sizeof(WRONG[0]); i++) {
        struct groups groups;
        char what[64];
        groups_of(&fx->model, &groups, 2);
        WRONG[i](&fx->model, &groups);
        (void)snprintf(what, sizeof(what), "wrong groups, number %zu", i);
        expect_open(fx, what, SPEC_E_INVALID);
    }
}

const struct conf_test CONF_NAMESPACE[] = {
    BARE(abi_010_models_that_differ_in_anything_share_nothing),
    BARE(abi_010_one_directory_holds_many_models),
    BARE(abi_011_a_model_without_weights_is_invalid),
    BARE(abi_011_weights_are_known_by_their_bytes),
    BARE(abi_011_weights_that_are_missing_are_an_error),
    BARE(abi_183_groups_that_say_the_same_are_the_model_without_them),
    BARE(abi_183_groups_of_another_theta_are_another_model),
    BARE(abi_183_sizes_beyond_all_are_invalid),
    BARE(abi_183_groups_that_contradict_themselves_are_invalid),
    END,
};
