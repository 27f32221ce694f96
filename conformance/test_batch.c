/* Eight sequences in one forward of the reference engine, all through one connector: a batch as a
 * serving engine runs it.
 *
 *   prompts   8 of one trunk, left at places of their own (and one that shares nothing)
 *   round 0   all computed and stored, a store call a sequence and layer
 *   round 1   a new connector: prefixes of 8 lengths loaded inside one forward
 *
 * Holds: logits, K and V of every sequence are those of the engine alone, bit for bit.
 * Does not, Threads, Tests: as fixture.h. */
#include "conformance/suite.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "conformance/engine/model.h"

#define BATCH  8u
#define TOKENS 150u

struct sequence {
    uint32_t tokens[TOKENS];
    struct eng_kv kv;
    float *logits;
    spec_request request;
    uint64_t matched;
    spec_ticket ticket;
};

struct batch {
    struct fixture *fx;
    struct eng_model *model;
    const struct eng_config *config;
    enum eng_dtype dtype;
    struct sequence sequences[BATCH];
    struct eng_pass passes[BATCH];
    struct eng_error error;
};

static void must(struct batch *batch, eng_status status)
{
    if (status != ENG_OK)
        fail_msg("engine: %s", batch->error.text);
}

static struct spec_memory describe(const struct batch *batch, uint8_t *k, uint8_t *v, uint64_t rows)
{
    const struct eng_kv *kv = &batch->sequences[0].kv;
    return (struct spec_memory){.struct_size = sizeof(struct spec_memory),
                                .dtype = batch->fx->shape.dtype,
                                .k_base = k,
                                .v_base = v,
                                .k_bytes = rows * kv->row_bytes,
                                .v_bytes = rows * kv->row_bytes,
                                .token_stride_bytes = kv->row_bytes,
                                .head_stride_bytes = kv->row_bytes / kv->kv_heads};
}

/* ---- Hooks ---- */

static eng_status begin_layer(void *user, uint64_t layer, struct eng_error *reterr)
{
    struct batch *batch = user;
    struct fixture *fx = batch->fx;
    spec_request requests[BATCH];
    for (uint64_t i = 0; i < BATCH; i++)
        requests[i] = batch->sequences[i].request;
    if (fx->api->begin_layer(fx->conn, requests, BATCH, (uint32_t)layer, &fx->error) != SPEC_OK)
        return eng_fail(reterr, ENG_E_SYSTEM, "begin_layer: %s", fx->error.text);
    return ENG_OK;
}

static eng_status load(void *user, const struct eng_attention_view *view, struct eng_error *reterr)
{
    struct batch *batch = user;
    struct fixture *fx = batch->fx;
    struct sequence *sequence = &batch->sequences[view->pass_index];
    struct eng_kv *kv = &sequence->kv;
    uint64_t row = kv->rows[view->layer];
    struct spec_memory memory = describe(batch, eng_kv_k(kv, view->layer, row),
                                         eng_kv_v(kv, view->layer, row), sequence->matched);
    struct spec_important item = important(sequence->request, (uint32_t)view->layer, &memory);
    if (fx->api->get_important(fx->conn, &item, 1, &fx->error) != SPEC_OK)
        return eng_fail(reterr, ENG_E_SYSTEM, "get_important: %s", fx->error.text);
    if (item.row_count != sequence->matched)
        return eng_fail(reterr, ENG_E_SYSTEM, "get_important: fewer rows than were promised");
    kv->rows[view->layer] += item.row_count;
    return ENG_OK;
}

static eng_status prefetch(void *user, uint64_t layer, struct eng_error *reterr)
{
    struct batch *batch = user;
    struct fixture *fx = batch->fx;
    for (uint64_t i = 0; i < BATCH; i++)
        if (fx->api->prefetch_next(fx->conn, batch->sequences[i].request, (uint32_t)layer, NULL,
                                   &fx->error) != SPEC_OK)
            return eng_fail(reterr, ENG_E_SYSTEM, "prefetch_next: %s", fx->error.text);
    return ENG_OK;
}

static eng_status save(void *user, uint64_t layer, uint64_t pass_index, const struct eng_pass *pass,
                       struct eng_error *reterr)
{
    struct batch *batch = user;
    struct fixture *fx = batch->fx;
    struct sequence *sequence = &batch->sequences[pass_index];
    uint64_t row = pass->kv->rows[layer] - pass->count;
    struct spec_memory memory = describe(batch, eng_kv_k(pass->kv, layer, row),
                                         eng_kv_v(pass->kv, layer, row), pass->count);
    struct spec_store_params params = {.struct_size = sizeof(params),
                                       .request = sequence->request,
                                       .layer = (uint32_t)layer,
                                       .first_token = pass->first_position,
                                       .token_count = pass->count,
                                       .memory = &memory};
    if (fx->api->store(fx->conn, &params, &sequence->ticket, &fx->error) != SPEC_OK)
        return eng_fail(reterr, ENG_E_SYSTEM, "store: %s", fx->error.text);
    return ENG_OK;
}

/* ---- Rounds ---- */

static void forward(struct batch *batch, const struct eng_hooks *hooks)
{
    for (uint64_t i = 0; i < BATCH; i++) {
        struct sequence *sequence = &batch->sequences[i];
        eng_kv_truncate(&sequence->kv, 0);
        batch->passes[i] = (struct eng_pass){.kv = &sequence->kv,
                                             .tokens = sequence->tokens + sequence->matched,
                                             .count = TOKENS - sequence->matched,
                                             .first_position = sequence->matched,
                                             .want = ENG_LOGITS_LAST,
                                             .logits = sequence->logits};
    }
    must(batch, eng_forward(batch->model, batch->passes, BATCH, hooks, &batch->error));
}

/* One forward through the connector. Sequence i asks for at most TOKENS - 1 - 11 i tokens. */
static void forward_through(struct batch *batch, bool expects_hits)
{
    struct fixture *fx = batch->fx;
    const struct eng_hooks hooks = {.user = batch,
                                    .before_layer = begin_layer,
                                    .before_attention = load,
                                    .after_attention = prefetch,
                                    .after_layer = save};
    for (uint64_t i = 0; i < BATCH; i++) {
        struct sequence *sequence = &batch->sequences[i];
        struct spec_lookup_params params = {.struct_size = sizeof(params),
                                            .tokens = sequence->tokens,
                                            .token_count = TOKENS,
                                            .max_tokens = TOKENS - 1 - 11 * i};
        struct spec_lookup_result found = fixture_lookup(fx, &params);
        expect_match(&found, expects_hits ? params.max_tokens : 0);
        sequence->request = found.request;
        sequence->matched = found.matched_tokens;
    }
    forward(batch, &hooks);
    for (uint64_t i = 0; i < BATCH; i++) {
        (void)fixture_wait(fx, batch->sequences[i].ticket);
        fixture_release(fx, batch->sequences[i].request);
    }
}

/* Logits and caches of all sequences, one behind the other. */
static uint8_t *collect(const struct batch *batch, uint64_t *ret_bytes)
{
    const struct eng_kv *kv = &batch->sequences[0].kv;
    uint64_t logits_bytes = batch->config->vocab * sizeof(float);
    uint64_t plane = TOKENS * kv->row_bytes;
    *ret_bytes = BATCH * (logits_bytes + 2 * kv->layers * plane);
    uint8_t *all = malloc(*ret_bytes), *at = all;
    assert_non_null(all);
    for (uint64_t i = 0; i < BATCH; i++) {
        const struct sequence *sequence = &batch->sequences[i];
        memcpy(at, sequence->logits, logits_bytes);
        at += logits_bytes;
        for (uint64_t layer = 0; layer < kv->layers; layer++) {
            assert_int_equal(sequence->kv.rows[layer], TOKENS);
            memcpy(at, eng_kv_k(&sequence->kv, layer, 0), plane);
            memcpy(at + plane, eng_kv_v(&sequence->kv, layer, 0), plane);
            at += 2 * plane;
        }
    }
    return all;
}

static void open_batch(struct batch *batch, struct fixture *fx, const char *dir,
                       enum eng_dtype dtype)
{
    batch->fx = fx;
    batch->dtype = dtype;
    must(batch, eng_model_open(dir, 2, &batch->model, &batch->error));
    batch->config = eng_model_config(batch->model);
    uint64_t vocab = batch->config->vocab;
    for (uint64_t i = 0; i < BATCH; i++) {
        struct sequence *sequence = &batch->sequences[i];
        must(batch, eng_kv_init(&sequence->kv, batch->config, dtype, TOKENS, &batch->error));
        sequence->logits = calloc(vocab, sizeof(float));
        assert_non_null(sequence->logits);
        uint64_t leaves = i == 7 ? 0 : 20 + 17 * i;
        for (uint64_t j = 0; j < TOKENS; j++)
            sequence->tokens[j] =
                (uint32_t)((j * 29 + j * j * 7 + (j >= leaves ? 1 + i : 0)) % vocab);
    }
    fixture_shape(fx,
                  (struct shape){(uint32_t)batch->config->layers, (uint32_t)batch->config->kv_heads,
                                 (uint32_t)batch->config->head_dim,
                                 dtype == ENG_F32   ? SPEC_DTYPE_F32
                                 : dtype == ENG_F16 ? SPEC_DTYPE_F16
                                                    : SPEC_DTYPE_BF16});
    fx->model.query_head_count = (uint32_t)batch->config->heads;
}

static void check_batch(struct fixture *fx, const char *name, enum eng_dtype dtype)
{
    struct batch batch = {0};
    char dir[4096];
    uint64_t bytes;
    (void)snprintf(dir, sizeof(dir), "%s/tests/data/golden/%s", SC_SOURCE_DIR, name);
    if (access(dir, R_OK) != 0)
        conf_skip("the tree's models are absent");
    open_batch(&batch, fx, dir, dtype);
    forward(&batch, NULL);
    uint8_t *alone = collect(&batch, &bytes);
    for (int round = 0; round < 3; round++) {
        fixture_open(fx);
        forward_through(&batch, round > 0);
        uint8_t *through = collect(&batch, &bytes);
        if (memcmp(alone, through, bytes) != 0)
            fail_msg("%s, round %d: other bits than the engine alone", name, round);
        free(through);
        fixture_close(fx);
    }
    free(alone);
    for (uint64_t i = 0; i < BATCH; i++) {
        eng_kv_done(&batch.sequences[i].kv);
        free(batch.sequences[i].logits);
    }
    eng_model_close(batch.model);
}

static void abi_051_opt_eight_at_once_have_the_same_bits(void **state)
{
    check_batch(*state, "opt-gelu-new-fp16", ENG_F16);
}

static void abi_051_llama_eight_at_once_have_the_same_bits(void **state)
{
    check_batch(*state, "llama-gqa-rope3-sharded-fp16", ENG_BF16);
}

static void abi_051_opt_post_norm_eight_at_once_have_the_same_bits(void **state)
{
    check_batch(*state, "opt-postln-proj-fp32", ENG_F32);
}

const struct conf_test CONF_BATCH[] = {
    BARE(abi_051_opt_eight_at_once_have_the_same_bits),
    BARE(abi_051_llama_eight_at_once_have_the_same_bits),
    BARE(abi_051_opt_post_norm_eight_at_once_have_the_same_bits),
    END,
};
