/* The model's promises: row invariance over passes, neighbours and threads, hooks, rounding to the
 * cache's dtype, greedy decoding, and one clear error for each wrong argument or file.
 *
 * Models are random and small, with odd shapes, made by make_model.c into a folder of their own.
 *
 * Holds: "equal" means byte for byte.
 * Threads: one; models use one or two.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "conformance/engine/generate.h"
#include "conformance/engine/model.h"
#include "conformance/engine/model_parts.h"
#include "conformance/engine/vecmath.h"
#include "tests/unit/engine/make_model.h"

#define PROMPT 600u

static char folder[64];

static void folder_make(void)
{
    (void)snprintf(folder, sizeof(folder), "/tmp/eng_model_XXXXXX");
    assert_non_null(mkdtemp(folder));
}

static struct eng_model *model_of(const struct recipe *recipe, uint32_t threads)
{
    struct eng_model *model = NULL;
    struct eng_error error = {0};
    folder_make();
    make_model(folder, recipe);
    eng_status status = eng_model_open(folder, threads, &model, &error);
    remove_model(folder);
    if (status != ENG_OK)
        fail_msg("%s", error.text);
    return model;
}

static void prompt_fill(uint32_t *tokens, uint64_t count, uint32_t vocab, uint32_t seed)
{
    for (uint64_t i = 0; i < count; i++) {
        seed = seed * 1664525u + 1013904223u;
        tokens[i] = (seed >> 8) % vocab;
    }
}

/* A sequence: its prompt, cache and logits of every position. */
struct sequence {
    uint32_t tokens[PROMPT];
    uint64_t count;
    struct eng_kv kv;
    float *logits;
};

static void sequence_init(struct sequence *seq, const struct eng_model *model, enum eng_dtype dtype,
                          uint64_t count, uint32_t seed)
{
    const struct eng_config *config = eng_model_config(model);
    struct eng_error error = {0};
    seq->count = count;
    prompt_fill(seq->tokens, count, (uint32_t)config->vocab, seed);
    assert_int_equal(eng_kv_init(&seq->kv, config, dtype, count, &error), ENG_OK);
    seq->logits = calloc(count * config->vocab, sizeof(float));
    assert_non_null(seq->logits);
}

static void sequence_done(struct sequence *seq)
{
    eng_kv_done(&seq->kv);
    free(seq->logits);
}

/* The pass over tokens [first, first + count). */
static struct eng_pass sequence_pass(const struct sequence *seq, const struct eng_config *config,
                                     uint64_t first, uint64_t count)
{
    return (struct eng_pass){.kv = (struct eng_kv *)(uintptr_t)&seq->kv,
                             .tokens = seq->tokens + first,
                             .count = count,
                             .first_position = first,
                             .want = ENG_LOGITS_ALL,
                             .logits = seq->logits + first * config->vocab};
}

static void must_forward(struct eng_model *model, const struct eng_pass *passes, uint64_t count,
                         const struct eng_hooks *hooks)
{
    struct eng_error error = {0};
    if (eng_forward(model, passes, count, hooks, &error) != ENG_OK)
        fail_msg("%s", error.text);
}

static void compute_in_passes(struct eng_model *model, struct sequence *seq, uint64_t pass_size)
{
    const struct eng_config *config = eng_model_config(model);
    for (uint64_t first = 0; first < seq->count; first += pass_size) {
        uint64_t left = seq->count - first;
        struct eng_pass pass =
            sequence_pass(seq, config, first, left < pass_size ? left : pass_size);
        must_forward(model, &pass, 1, NULL);
    }
}

static void assert_same(const struct sequence *a, const struct sequence *b, uint64_t vocab)
{
    assert_memory_equal(a->logits, b->logits, a->count * vocab * sizeof(float));
    for (uint64_t layer = 0; layer < a->kv.layers; layer++) {
        assert_int_equal(a->kv.rows[layer], a->count);
        assert_int_equal(b->kv.rows[layer], a->count);
        assert_memory_equal(eng_kv_k(&a->kv, layer, 0), eng_kv_k(&b->kv, layer, 0),
                            a->count * a->kv.row_bytes);
        assert_memory_equal(eng_kv_v(&a->kv, layer, 0), eng_kv_v(&b->kv, layer, 0),
                            a->count * a->kv.row_bytes);
    }
}

/* The subject's second half beside 7 other requests of other lengths, at places 0, 3 and 7. */
static void check_beside_others(struct eng_model *model, const struct sequence *expected,
                                enum eng_dtype dtype)
{
    static const uint64_t lengths[7] = {1, 90, 17, 2, 64, 33, 5};
    const struct eng_config *config = eng_model_config(model);
    static struct sequence subject;
    static struct sequence others[7];
    for (uint64_t place = 0; place < 8; place += place == 0 ? 3 : 4) {
        struct eng_pass passes[8];
        sequence_init(&subject, model, dtype, expected->count, 1);
        struct eng_pass half = sequence_pass(&subject, config, 0, 300);
        must_forward(model, &half, 1, NULL);
        for (uint64_t i = 0, other = 0; i < 8; i++) {
            if (i == place) {
                passes[i] = sequence_pass(&subject, config, 300, subject.count - 300);
                continue;
            }
            sequence_init(&others[other], model, dtype, lengths[other], 100 + (uint32_t)other);
            passes[i] = sequence_pass(&others[other], config, 0, lengths[other]);
            other++;
        }
        must_forward(model, passes, 8, NULL);
        assert_same(&subject, expected, config->vocab);
        sequence_done(&subject);
        for (int i = 0; i < 7; i++)
            sequence_done(&others[i]);
    }
}

static void check_invariance(const struct recipe *recipe, enum eng_dtype dtype)
{
    static const uint64_t sizes[] = {1, 17, 64, 500};
    static struct sequence expected;
    static struct sequence other;
    struct eng_model *one = model_of(recipe, 1);
    struct eng_model *two = model_of(recipe, 2);
    uint64_t vocab = eng_model_config(one)->vocab;
    sequence_init(&expected, one, dtype, PROMPT, 1);
    compute_in_passes(one, &expected, PROMPT);
    for (int threads = 1; threads <= 2; threads++) {
        struct eng_model *model = threads == 1 ? one : two;
        for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
            sequence_init(&other, model, dtype, PROMPT, 1);
            compute_in_passes(model, &other, sizes[i]);
            assert_same(&other, &expected, vocab);
            sequence_done(&other);
        }
        check_beside_others(model, &expected, dtype);
    }
    sequence_done(&expected);
    eng_model_close(one);
    eng_model_close(two);
}

static void opt_is_row_invariant(void **state)
{
    (void)state;
    struct recipe recipe = recipe_opt();
    check_invariance(&recipe, ENG_F32);
    check_invariance(&recipe, ENG_F16);
    check_invariance(&recipe, ENG_BF16);
    recipe.post_norm = true;
    recipe.embed = 36;
    recipe.dtype = ENG_F32;
    check_invariance(&recipe, ENG_F32);
}

static void llama_is_row_invariant(void **state)
{
    (void)state;
    struct recipe recipe = recipe_llama();
    check_invariance(&recipe, ENG_F32);
    check_invariance(&recipe, ENG_F16);
    check_invariance(&recipe, ENG_BF16);
    recipe.interleaved = true;
    recipe.untied = true;
    recipe.dtype = ENG_F16;
    check_invariance(&recipe, ENG_F32);
}

/* In layer 0 K and V do not depend on the cache, so they are the float ones, rounded once. Later
 * layers saw rounded rows: their values differ from the float run's. */
static void rounds_rows_to_the_dtype_of_the_cache(void **state)
{
    (void)state;
    static struct sequence wide;
    static struct sequence narrow;
    struct recipe recipe = recipe_llama();
    struct eng_model *model = model_of(&recipe, 1);
    uint64_t elems = 50 * recipe.kv_heads * recipe.head_dim;
    for (enum eng_dtype dtype = ENG_F16; dtype <= ENG_BF16; dtype++) {
        sequence_init(&wide, model, ENG_F32, 50, 3);
        sequence_init(&narrow, model, dtype, 50, 3);
        compute_in_passes(model, &wide, 50);
        compute_in_passes(model, &narrow, 50);
        uint16_t *rounded = calloc(elems, sizeof(*rounded));
        assert_non_null(rounded);
        eng_narrow((const float *)(const void *)eng_kv_k(&wide.kv, 0, 0), dtype, elems, rounded);
        assert_memory_equal(rounded, eng_kv_k(&narrow.kv, 0, 0), elems * 2);
        eng_narrow((const float *)(const void *)eng_kv_v(&wide.kv, 0, 0), dtype, elems, rounded);
        assert_memory_equal(rounded, eng_kv_v(&narrow.kv, 0, 0), elems * 2);
        eng_narrow((const float *)(const void *)eng_kv_k(&wide.kv, 2, 0), dtype, elems, rounded);
        assert_memory_not_equal(rounded, eng_kv_k(&narrow.kv, 2, 0), elems * 2);
        free(rounded);
        sequence_done(&wide);
        sequence_done(&narrow);
    }
    eng_model_close(model);
}

/* A hook's memory: supplies a stored prefix layer by layer, counts calls, and may fail in one. */
struct host {
    const struct eng_kv *stored; /* rows to supply, from row 0 on */
    uint64_t supply;
    uint64_t calls, fail_at; /* fails in call number fail_at */
    const float *q_seen;
};

static eng_status host_count(struct host *host, struct eng_error *reterr)
{
    if (host->calls++ == host->fail_at)
        return eng_fail(reterr, ENG_E_RESTART, "call %u was told to fail", (unsigned)host->fail_at);
    return ENG_OK;
}

static eng_status host_before_layer(void *user, uint64_t layer, struct eng_error *reterr)
{
    (void)layer;
    return host_count(user, reterr);
}

static eng_status host_before_attention(void *user, const struct eng_attention_view *view,
                                        struct eng_error *reterr)
{
    struct host *host = user;
    struct eng_kv *kv = view->pass->kv;
    uint64_t layer = view->layer;
    assert_int_equal(kv->rows[layer], 0);
    if (host->supply != 0) {
        memcpy(eng_kv_k(kv, layer, 0), eng_kv_k(host->stored, layer, 0),
               host->supply * kv->row_bytes);
        memcpy(eng_kv_v(kv, layer, 0), eng_kv_v(host->stored, layer, 0),
               host->supply * kv->row_bytes);
        kv->rows[layer] = host->supply;
    }
    /* The new rows are those that the stored cache holds behind the prefix. */
    assert_memory_equal(view->k, eng_kv_k(host->stored, layer, host->supply),
                        view->pass->count * kv->row_bytes);
    assert_memory_equal(view->v, eng_kv_v(host->stored, layer, host->supply),
                        view->pass->count * kv->row_bytes);
    host->q_seen = view->q;
    return host_count(host, reterr);
}

static eng_status host_after_attention(void *user, uint64_t layer, struct eng_error *reterr)
{
    (void)layer;
    return host_count(user, reterr);
}

static eng_status host_after_layer(void *user, uint64_t layer, uint64_t pass_index,
                                   const struct eng_pass *pass, struct eng_error *reterr)
{
    struct host *host = user;
    assert_int_equal(pass_index, 0);
    assert_int_equal(pass->kv->rows[layer], host->supply + pass->count);
    return host_count(host, reterr);
}

static struct eng_hooks host_hooks(struct host *host)
{
    return (struct eng_hooks){.user = host,
                              .before_layer = host_before_layer,
                              .before_attention = host_before_attention,
                              .after_attention = host_after_attention,
                              .after_layer = host_after_layer};
}

static void check_prefix_from_hook(const struct recipe *recipe, enum eng_dtype dtype)
{
    static struct sequence expected;
    static struct sequence fresh;
    struct eng_model *model = model_of(recipe, 2);
    const struct eng_config *config = eng_model_config(model);
    sequence_init(&expected, model, dtype, 120, 5);
    compute_in_passes(model, &expected, 120);
    sequence_init(&fresh, model, dtype, 120, 5);
    struct host host = {.stored = &expected.kv, .supply = 93, .fail_at = UINT64_MAX};
    struct eng_hooks hooks = host_hooks(&host);
    struct eng_pass pass = sequence_pass(&fresh, config, 93, 27);
    must_forward(model, &pass, 1, &hooks);
    assert_int_equal(host.calls, 4 * config->layers);
    assert_non_null(host.q_seen);
    memcpy(fresh.logits, expected.logits, 93 * config->vocab * sizeof(float));
    assert_same(&fresh, &expected, config->vocab);
    sequence_done(&expected);
    sequence_done(&fresh);
    eng_model_close(model);
}

static void a_hook_supplies_the_prefix_bit_for_bit(void **state)
{
    (void)state;
    struct recipe opt = recipe_opt();
    struct recipe llama = recipe_llama();
    for (enum eng_dtype dtype = ENG_F32; dtype < ENG_DTYPES; dtype++) {
        check_prefix_from_hook(&opt, dtype);
        check_prefix_from_hook(&llama, dtype);
    }
}

/* Every hook call of a forward fails once: its status comes back, the cache holds no new row, and
 * the pass can be computed again from the start. */
static void a_hook_that_fails_anywhere_leaves_nothing_behind(void **state)
{
    (void)state;
    static struct sequence expected;
    static struct sequence fresh;
    struct recipe recipe = recipe_llama();
    struct eng_model *model = model_of(&recipe, 2);
    const struct eng_config *config = eng_model_config(model);
    sequence_init(&expected, model, ENG_F16, 40, 6);
    compute_in_passes(model, &expected, 40);
    for (uint64_t fail_at = 0; fail_at < 4 * config->layers; fail_at++) {
        struct eng_error error = {0};
        struct host host = {.stored = &expected.kv, .fail_at = fail_at};
        struct eng_hooks hooks = host_hooks(&host);
        sequence_init(&fresh, model, ENG_F16, 40, 6);
        struct eng_pass pass = sequence_pass(&fresh, config, 0, 40);
        assert_int_equal(eng_forward(model, &pass, 1, &hooks, &error), ENG_E_RESTART);
        assert_non_null(strstr(error.text, "told to fail"));
        for (uint64_t layer = 0; layer < config->layers; layer++)
            assert_int_equal(fresh.kv.rows[layer], 0);
        must_forward(model, &pass, 1, NULL);
        assert_same(&fresh, &expected, config->vocab);
        sequence_done(&fresh);
    }
    sequence_done(&expected);
    eng_model_close(model);
}

/* Layers may hold fewer rows than there are positions, and different ones: new tokens stand at
 * their own positions all the same. */
static void packed_rows_need_not_cover_the_prefix(void **state)
{
    (void)state;
    static struct sequence full;
    static struct sequence some;
    struct recipe recipe = recipe_opt();
    struct eng_model *model = model_of(&recipe, 1);
    const struct eng_config *config = eng_model_config(model);
    sequence_init(&full, model, ENG_F32, 64, 9);
    compute_in_passes(model, &full, 64);
    sequence_init(&some, model, ENG_F32, 64, 9);
    for (uint64_t layer = 0; layer < config->layers; layer++) {
        some.kv.rows[layer] = 20 + layer;
        for (uint64_t row = 0; row < some.kv.rows[layer]; row++) {
            memcpy(eng_kv_k(&some.kv, layer, row), eng_kv_k(&full.kv, layer, 2 * row),
                   some.kv.row_bytes);
            memcpy(eng_kv_v(&some.kv, layer, row), eng_kv_v(&full.kv, layer, 2 * row),
                   some.kv.row_bytes);
        }
    }
    struct eng_pass pass = sequence_pass(&some, config, 60, 4);
    must_forward(model, &pass, 1, NULL);
    for (uint64_t layer = 0; layer < config->layers; layer++)
        assert_int_equal(some.kv.rows[layer], 24 + layer);
    /* Layer 0's new K depends on token and position alone: position 60 .. 63, row 20 .. 23. */
    assert_memory_equal(eng_kv_k(&some.kv, 0, 20), eng_kv_k(&full.kv, 0, 60),
                        4 * some.kv.row_bytes);
    assert_memory_not_equal(some.logits + 60 * config->vocab, full.logits + 60 * config->vocab,
                            config->vocab * sizeof(float));
    sequence_done(&full);
    sequence_done(&some);
    eng_model_close(model);
}

/* Rows in a gap are not there: not for the next pass, nor for later ones, until they are cut. */
static void rows_in_a_gap_are_not_attended(void **state)
{
    (void)state;
    static struct sequence packed;
    static struct sequence gapped;
    struct recipe recipe = recipe_llama();
    struct eng_model *model = model_of(&recipe, 2);
    const struct eng_config *config = eng_model_config(model);
    sequence_init(&packed, model, ENG_F16, 64, 9);
    sequence_init(&gapped, model, ENG_F16, 64, 9);
    struct eng_pass pass = sequence_pass(&packed, config, 0, 50);
    must_forward(model, &pass, 1, NULL);
    eng_kv_copy(&gapped.kv, &packed.kv, 50);
    for (uint64_t layer = 0; layer < config->layers; layer++) {
        packed.kv.rows[layer] = 30 + layer;
        eng_kv_set_prefix(&gapped.kv, layer, 50, 30 + layer);
        memset(eng_kv_k(&gapped.kv, layer, 30 + layer), 0xff, (20 - layer) * gapped.kv.row_bytes);
        memset(eng_kv_v(&gapped.kv, layer, 30 + layer), 0xff, (20 - layer) * gapped.kv.row_bytes);
    }
    for (uint64_t first = 50; first < 64; first += 7) {
        struct eng_pass passes[2] = {sequence_pass(&packed, config, first, 7),
                                     sequence_pass(&gapped, config, first, 7)};
        must_forward(model, passes, 2, NULL);
    }
    assert_memory_equal(packed.logits + 50 * config->vocab, gapped.logits + 50 * config->vocab,
                        14 * config->vocab * sizeof(float));
    assert_int_equal(gapped.kv.rows[0], 64);
    eng_kv_truncate(&gapped.kv, 57);
    assert_int_equal(gapped.kv.rows[1], 57);
    assert_int_equal(gapped.kv.gap_first[1], 31);
    eng_kv_truncate(&gapped.kv, 49);
    assert_int_equal(gapped.kv.rows[1], 31);
    assert_int_equal(gapped.kv.gap_end[1], 0);
    sequence_done(&packed);
    sequence_done(&gapped);
    eng_model_close(model);
}

/* Continuations that share a cache, in one forward, are as each is alone. */
static void branches_see_what_was_there_and_themselves(void **state)
{
    (void)state;
    static const uint64_t lengths[3] = {5, 1, 8};
    static struct sequence alone;
    static struct sequence together;
    struct recipe recipe = recipe_llama();
    struct eng_model *model = model_of(&recipe, 2);
    const struct eng_config *config = eng_model_config(model);
    struct eng_pass passes[3];
    struct eng_error error = {0};
    uint64_t first = 30;
    sequence_init(&alone, model, ENG_BF16, 60, 3);
    sequence_init(&together, model, ENG_BF16, 60, 3);
    struct eng_pass pass = sequence_pass(&alone, config, 0, 30);
    must_forward(model, &pass, 1, NULL);
    eng_kv_copy(&together.kv, &alone.kv, 30);
    for (uint64_t layer = 0; layer < config->layers; layer++) {
        eng_kv_set_prefix(&alone.kv, layer, 20, 11);
        eng_kv_set_prefix(&together.kv, layer, 20, 11);
    }
    for (int i = 0; i < 3; first += lengths[i], i++) {
        pass = sequence_pass(&alone, config, first, lengths[i]);
        pass.first_position = 30;
        must_forward(model, &pass, 1, NULL);
        eng_kv_truncate(&alone.kv, 30);
        passes[i] = sequence_pass(&together, config, first, lengths[i]);
        passes[i].first_position = 30;
        passes[i].branch = true;
    }
    must_forward(model, passes, 3, NULL);
    assert_memory_equal(alone.logits + 30 * config->vocab, together.logits + 30 * config->vocab,
                        14 * config->vocab * sizeof(float));
    assert_int_equal(together.kv.rows[0], 44);
    passes[1].branch = false;
    assert_int_equal(eng_forward(model, passes, 3, NULL, &error), ENG_E_INVALID);
    sequence_done(&alone);
    sequence_done(&together);
    eng_model_close(model);
}

/* What a hook was told of a layer's queries in advance, beside the queries themselves. */
struct foresight {
    const struct eng_config *config;
    float *before, *after; /* [count][heads][head_dim] of the layer that comes */
    uint64_t heads, count, hints;
    bool before_right, after_right; /* of layer 1 */
};

static eng_status foresee(void *user, const struct eng_hint_view *view, struct eng_error *reterr)
{
    struct foresight *access = user;
    float *to = view->after ? access->after : access->before;
    uint64_t width = access->heads * access->config->head_dim;
    (void)reterr;
    assert_int_equal(view->query_heads, access->heads);
    for (uint64_t i = 0; view->layer == 1 && i < access->count; i++)
        memcpy(to + i * width, view->q + i * view->q_stride, width * sizeof(float));
    access->hints++;
    return ENG_OK;
}

static eng_status look_back(void *user, const struct eng_attention_view *view,
                            struct eng_error *reterr)
{
    struct foresight *access = user;
    uint64_t width = access->heads * access->config->head_dim;
    uint64_t stride = access->config->heads * access->config->head_dim;
    (void)reterr;
    if (view->layer != 1)
        return ENG_OK;
    access->before_right = access->after_right = true;
    for (uint64_t i = 0; i < access->count; i++) {
        const float *q = view->q + i * stride;
        access->before_right &= memcmp(access->before + i * width, q, width * sizeof(float)) == 0;
        access->after_right &= memcmp(access->after + i * width, q, width * sizeof(float)) == 0;
    }
    return ENG_OK;
}

static void silence(struct eng_model *model, struct eng_linear *linear)
{
    struct eng_error error;
    uint64_t outputs = eng_weights_outputs(linear->weights);
    uint64_t inputs = eng_weights_inputs(linear->weights);
    float *zeros = calloc(outputs * inputs, sizeof(*zeros));
    assert_non_null(zeros);
    eng_weights_free(linear->weights);
    free(linear->bias);
    linear->bias = NULL;
    assert_int_equal(
        eng_weights_pack(model->pool, zeros, ENG_F32, outputs, inputs, &linear->weights, &error),
        ENG_OK);
    free(zeros);
}

/* Where a layer adds nothing to the hidden state, what is foreseen before it is what comes; where
 * its feed-forward adds nothing, what is foreseen after its attention. */
static void check_foresight(const struct recipe *recipe)
{
    static struct sequence seq;
    struct eng_model *model = model_of(recipe, 2);
    const struct eng_config *config = eng_model_config(model);
    uint64_t floats = 20 * config->heads * config->head_dim;
    for (int silent = 0; silent < 3; silent++) {
        struct foresight access = {.config = config,
                                   .count = 20,
                                   .heads = config->heads / config->kv_heads,
                                   .before = calloc(floats, sizeof(float)),
                                   .after = calloc(floats, sizeof(float))};
        const struct eng_hooks hooks = {.user = &access,
                                        .hint = foresee,
                                        .hint_heads = access.heads,
                                        .hint_before = true,
                                        .hint_after = true,
                                        .before_attention = look_back};
        sequence_init(&seq, model, ENG_F32, 20, 4);
        struct eng_pass pass = sequence_pass(&seq, config, 0, 20);
        must_forward(model, &pass, 1, &hooks);
        assert_int_equal(access.hints, 2 * (config->layers - 1));
        assert_int_equal(access.after_right, silent >= 1);
        assert_int_equal(access.before_right, silent == 2);
        silence(model, silent == 0 ? &model->layers[0].down : &model->layers[0].o);
        sequence_done(&seq);
        free(access.before);
        free(access.after);
    }
    eng_model_close(model);
}

static void queries_are_foreseen_by_a_layer(void **state)
{
    (void)state;
    struct recipe opt = recipe_opt();
    struct recipe llama = recipe_llama();
    check_foresight(&opt);
    check_foresight(&llama);
}

/* To be told in advance changes no bit of what is computed. */
static void hints_change_nothing(void **state)
{
    (void)state;
    static struct sequence with;
    static struct sequence without;
    struct recipe recipe = recipe_opt();
    struct eng_model *model = model_of(&recipe, 1);
    const struct eng_config *config = eng_model_config(model);
    struct foresight access = {.config = config, .count = 50, .heads = config->heads};
    access.before = calloc(50 * config->heads * config->head_dim, sizeof(float));
    access.after = calloc(50 * config->heads * config->head_dim, sizeof(float));
    const struct eng_hooks hooks = {
        .user = &access, .hint = foresee, .hint_before = true, .hint_after = true};
    sequence_init(&with, model, ENG_F16, 50, 4);
    sequence_init(&without, model, ENG_F16, 50, 4);
    struct eng_pass pass = sequence_pass(&with, config, 0, 50);
    must_forward(model, &pass, 1, &hooks);
    compute_in_passes(model, &without, 50);
    assert_same(&with, &without, config->vocab);
    sequence_done(&with);
    sequence_done(&without);
    free(access.before);
    free(access.after);
    eng_model_close(model);
}

static void generates_greedily_until_the_end_of_room(void **state)
{
    (void)state;
    static struct sequence seq;
    struct recipe recipe = recipe_llama();
    struct eng_model *model = model_of(&recipe, 1);
    const struct eng_config *config = eng_model_config(model);
    struct eng_error error = {0};
    uint32_t tokens[20];
    uint64_t count = 0;
    sequence_init(&seq, model, ENG_F32, 40, 11);
    struct eng_pass pass = sequence_pass(&seq, config, 0, 30);
    must_forward(model, &pass, 1, NULL);
    assert_int_equal(eng_generate(model, &seq.kv, 30, seq.logits + 29 * config->vocab, 20, NULL,
                                  tokens, &count, &error),
                     ENG_OK);
    assert_true(count >= 1 && count <= 11); /* room for ten rows: eleven tokens */
    /* Teacher forcing gives the same tokens. */
    memcpy(seq.tokens + 30, tokens, (count - 1) * sizeof(*tokens));
    eng_kv_truncate(&seq.kv, 0);
    pass = sequence_pass(&seq, config, 0, 30 + count - 1);
    must_forward(model, &pass, 1, NULL);
    for (uint64_t i = 0; i < count; i++)
        assert_int_equal(eng_argmax(seq.logits + (29 + i) * config->vocab, config->vocab),
                         tokens[i]);
    bool ended = eng_config_is_eos(config, tokens[count - 1]);
    assert_true(ended || count == 11);
    /* An end-of-sequence token in front ends the run at once. */
    float *logits = calloc(config->vocab, sizeof(float));
    assert_non_null(logits);
    logits[2] = 1;
    assert_int_equal(eng_generate(model, &seq.kv, 39, logits, 20, NULL, tokens, &count, &error),
                     ENG_OK);
    assert_int_equal(count, 1);
    assert_int_equal(tokens[0], 2);
    free(logits);
    sequence_done(&seq);
    eng_model_close(model);
}

static void expect_refused(struct eng_model *model, const struct eng_pass *passes, uint64_t count,
                           const char *fragment)
{
    struct eng_error error = {0};
    assert_int_equal(eng_forward(model, passes, count, NULL, &error), ENG_E_INVALID);
    if (strstr(error.text, fragment) == NULL)
        fail_msg("\"%s\" is not in: %s", fragment, error.text);
}

static void refuses_wrong_passes(void **state)
{
    (void)state;
    static struct sequence seq;
    struct recipe recipe = recipe_opt();
    struct eng_model *model = model_of(&recipe, 1);
    const struct eng_config *config = eng_model_config(model);
    sequence_init(&seq, model, ENG_F32, 10, 1);
    const struct eng_pass good = sequence_pass(&seq, config, 0, 10);
    struct eng_pass bad[2] = {good, good};
    expect_refused(model, bad, 0, "no passes");
    expect_refused(model, bad, 2, "share a KV cache");
    bad[0].count = 0;
    expect_refused(model, bad, 1, "0 tokens");
    bad[0] = good;
    bad[0].first_position = 1020;
    expect_refused(model, bad, 1, "positions 1020 to 1029 of a model of 1024");
    bad[0].first_position = UINT64_MAX;
    expect_refused(model, bad, 1, "of a model of 1024");
    bad[0] = good;
    bad[0].logits = NULL;
    expect_refused(model, bad, 1, "no place for logits");
    seq.tokens[3] = 131;
    expect_refused(model, &good, 1, "token 131 at 3");
    seq.tokens[3] = 0;
    seq.kv.rows[1] = 5;
    expect_refused(model, &good, 1, "10 new rows behind 5 in a KV cache of 10");
    assert_int_equal(seq.kv.rows[0], 0);
    assert_int_equal(seq.kv.rows[1], 5);
    seq.kv.rows[1] = 0;
    must_forward(model, &good, 1, NULL);
    sequence_done(&seq);
    eng_model_close(model);
}

static void expect_no_model(const char *fragment)
{
    struct eng_model *model = NULL;
    struct eng_error error = {0};
    assert_int_not_equal(eng_model_open(folder, 1, &model, &error), ENG_OK);
    assert_null(model);
    if (strstr(error.text, fragment) == NULL)
        fail_msg("\"%s\" is not in: %s", fragment, error.text);
    assert_null(strchr(error.text, '\n'));
}

static void refuses_weights_that_do_not_fit_the_configuration(void **state)
{
    static const struct {
        const char *leave_out, *call_i32, *transpose, *add, *fragment;
        bool llama;
    } cases[] = {
        {"layers.1.fc1.bias", NULL, NULL, NULL, "layers.1.fc1.bias is missing", false},
        {"embed_tokens.weight", NULL, NULL, NULL, "embed_tokens.weight is missing", false},
        {"norm.weight", NULL, NULL, NULL, "is missing", true},
        {NULL, "2.fc2.weight", NULL, NULL, "is I16, supported: F32, F16, BF16", false},
        {NULL, NULL, "2.fc2.weight", NULL, "has shape [100, 60], config.json asks for [60, 100]",
         false},
        {NULL, NULL, "embed_tokens.weight", NULL, "config.json asks for [131, 54]", true},
        {NULL, NULL, NULL, "model.layers.0.self_attn.q_norm.weight", "is not part of the model",
         true},
        {NULL, NULL, NULL, "model.layers.7.fc1.bias", "is not part of the model", false},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct recipe recipe = cases[i].llama ? recipe_llama() : recipe_opt();
        recipe.leave_out = cases[i].leave_out;
        recipe.call_i32 = cases[i].call_i32;
        recipe.transpose = cases[i].transpose;
        recipe.add = cases[i].add;
        folder_make();
        make_model(folder, &recipe);
        expect_no_model(cases[i].fragment);
        remove_model(folder);
    }
}

static void refuses_missing_and_cut_files(void **state)
{
    (void)state;
    char path[128];
    struct recipe recipe = recipe_llama();
    folder_make();
    expect_no_model("config.json: cannot open");
    make_model(folder, &recipe);
    (void)snprintf(path, sizeof(path), "%s/model.safetensors", folder);
    for (off_t bytes = 3000; bytes >= 0; bytes -= 500) {
        assert_int_equal(truncate(path, bytes), 0);
        expect_no_model("model.safetensors");
    }
    assert_int_equal(unlink(path), 0);
    expect_no_model("no model.safetensors");
    remove_model(folder);
}

static void idle_tensors_are_let_in(void **state)
{
    (void)state;
    struct recipe recipe = recipe_llama();
    recipe.add = "model.layers.0.self_attn.rotary_emb.inv_freq";
    eng_model_close(model_of(&recipe, 1));
    eng_model_close(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(opt_is_row_invariant),
        cmocka_unit_test(llama_is_row_invariant),
        cmocka_unit_test(rounds_rows_to_the_dtype_of_the_cache),
        cmocka_unit_test(a_hook_supplies_the_prefix_bit_for_bit),
        cmocka_unit_test(a_hook_that_fails_anywhere_leaves_nothing_behind),
        cmocka_unit_test(packed_rows_need_not_cover_the_prefix),
        cmocka_unit_test(rows_in_a_gap_are_not_attended),
        cmocka_unit_test(branches_see_what_was_there_and_themselves),
        cmocka_unit_test(queries_are_foreseen_by_a_layer),
        cmocka_unit_test(hints_change_nothing),
        cmocka_unit_test(generates_greedily_until_the_end_of_room),
        cmocka_unit_test(refuses_wrong_passes),
        cmocka_unit_test(refuses_weights_that_do_not_fit_the_configuration),
        cmocka_unit_test(refuses_missing_and_cut_files),
        cmocka_unit_test(idle_tensors_are_let_in),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
