/* through: runs the reference engine over a connector. See through.h. */
#include "conformance/through.h"

#include <stdlib.h>
#include <unistd.h>

static void must(struct through *through, eng_status status)
{
    if (status != ENG_OK)
        fail_msg("engine: %s", through->error.text);
}

static struct spec_memory describe(const struct through *through, uint8_t *k, uint8_t *v,
                                   uint64_t rows)
{
    const struct eng_kv *kv = &through->sequences[0].kv;
    return (struct spec_memory){.struct_size = sizeof(struct spec_memory),
                                .dtype = through->fx->shape.dtype,
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
    struct through *through = user;
    struct fixture *fx = through->fx;
    spec_request requests[SEQUENCES_MAX];
    for (uint64_t i = 0; i < through->sequence_count; i++)
        requests[i] = through->sequences[i].request;
    if (fx->api->begin_layer(fx->conn, requests, through->sequence_count, (uint32_t)layer,
                             &fx->error) != SPEC_OK)
        return eng_fail(reterr, ENG_E_SYSTEM, "begin_layer: %s", fx->error.text);
    return ENG_OK;
}

static eng_status load(void *user, const struct eng_attention_view *view, struct eng_error *reterr)
{
    struct through *through = user;
    struct fixture *fx = through->fx;
    struct sequence *sequence = &through->sequences[view->pass_index];
    struct eng_kv *kv = &sequence->kv;
    uint64_t row = kv->rows[view->layer];
    struct spec_memory memory = describe(through, eng_kv_k(kv, view->layer, row),
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
    struct through *through = user;
    struct fixture *fx = through->fx;
    for (uint64_t i = 0; i < through->sequence_count; i++)
        if (fx->api->prefetch_next(fx->conn, through->sequences[i].request, (uint32_t)layer, NULL,
                                   &fx->error) != SPEC_OK)
            return eng_fail(reterr, ENG_E_SYSTEM, "prefetch_next: %s", fx->error.text);
    return ENG_OK;
}

static eng_status save(void *user, uint64_t layer, uint64_t pass_index, const struct eng_pass *pass,
                       struct eng_error *reterr)
{
    struct through *through = user;
    struct fixture *fx = through->fx;
    struct sequence *sequence = &through->sequences[pass_index];
    uint64_t row = pass->kv->rows[layer] - pass->count;
    struct spec_memory memory = describe(through, eng_kv_k(pass->kv, layer, row),
                                         eng_kv_v(pass->kv, layer, row), pass->count);
    struct spec_store_params params = {.struct_size = sizeof(params),
                                       .request = sequence->request,
                                       .layer = (uint32_t)layer,
                                       .first_token = pass->first_position,
                                       .token_count = pass->count,
                                       .memory = &memory};
    if (fx->api->store(fx->conn, &params, 1, &sequence->ticket, &fx->error) != SPEC_OK)
        return eng_fail(reterr, ENG_E_SYSTEM, "store: %s", fx->error.text);
    return ENG_OK;
}

/* ---- Forwards ---- */

/* Computes what stands behind each cache's rows. */
static void forward(struct through *through, const struct eng_hooks *hooks)
{
    for (uint64_t i = 0; i < through->sequence_count; i++) {
        struct sequence *sequence = &through->sequences[i];
        through->passes[i] = (struct eng_pass){.kv = &sequence->kv,
                                               .tokens = sequence->tokens + sequence->matched,
                                               .count = sequence->count - sequence->matched,
                                               .first_position = sequence->matched,
                                               .want = ENG_LOGITS_LAST,
                                               .logits = sequence->logits};
    }
    must(through, eng_forward(through->model, through->passes, through->sequence_count, hooks,
                              &through->error));
}

void through_alone(struct through *through)
{
    for (uint64_t i = 0; i < through->sequence_count; i++)
        through->sequences[i].matched = through->sequences[i].kv.rows[0];
    forward(through, NULL);
}

void through_connector(struct through *through, const uint64_t *expected)
{
    struct fixture *fx = through->fx;
    const struct eng_hooks hooks = {.user = through,
                                    .before_layer = begin_layer,
                                    .before_attention = load,
                                    .after_attention = prefetch,
                                    .after_layer = through->loads_only ? NULL : save};
    for (uint64_t i = 0; i < through->sequence_count; i++) {
        struct sequence *sequence = &through->sequences[i];
        struct spec_lookup_params params = {.struct_size = sizeof(params),
                                            .tokens = sequence->tokens,
                                            .token_count = sequence->count,
                                            .max_tokens = sequence->max_tokens};
        struct spec_lookup_result found = fixture_lookup(fx, &params);
        expect_match(&found, expected[i]);
        sequence->request = found.request;
        sequence->matched = found.matched_tokens;
        eng_kv_truncate(&sequence->kv, 0);
    }
    forward(through, &hooks);
    for (uint64_t i = 0; i < through->sequence_count; i++) {
        if (!through->loads_only)
            (void)fixture_wait(fx, through->sequences[i].ticket);
        fixture_release(fx, through->sequences[i].request);
    }
}

void through_expect_same(const struct through *have, const struct through *want, uint64_t index,
                         uint64_t count)
{
    const struct sequence *ours = &have->sequences[index], *theirs = &want->sequences[index];
    assert_memory_equal(ours->logits, theirs->logits, want->config->vocab * sizeof(float));
    for (uint64_t layer = 0; layer < theirs->kv.layers; layer++) {
        uint64_t bytes = count * theirs->kv.row_bytes;
        assert_true(ours->kv.rows[layer] >= count && theirs->kv.rows[layer] >= count);
        assert_memory_equal(eng_kv_k(&ours->kv, layer, 0), eng_kv_k(&theirs->kv, layer, 0), bytes);
        assert_memory_equal(eng_kv_v(&ours->kv, layer, 0), eng_kv_v(&theirs->kv, layer, 0), bytes);
    }
}

/* ---- Opening ---- */

void through_open(struct through *through, struct fixture *fx, const char *dir, uint64_t count,
                  uint64_t capacity, enum eng_dtype dtype)
{
    if (access(dir, R_OK) != 0)
        conf_skip("the tree's models are absent");
    through->fx = fx;
    through->sequence_count = count;
    must(through, eng_model_open(dir, 1, &through->model, &through->error));
    through->config = eng_model_config(through->model);
    for (uint64_t i = 0; i < count; i++) {
        struct sequence *sequence = &through->sequences[i];
        must(through,
             eng_kv_init(&sequence->kv, through->config, dtype, capacity, &through->error));
        sequence->logits = calloc(through->config->vocab, sizeof(float));
        assert_non_null(sequence->logits);
    }
    fixture_shape(fx, (struct shape){(uint32_t)through->config->layers,
                                     (uint32_t)through->config->kv_heads,
                                     (uint32_t)through->config->head_dim,
                                     dtype == ENG_F32   ? SPEC_DTYPE_F32
                                     : dtype == ENG_F16 ? SPEC_DTYPE_F16
                                                        : SPEC_DTYPE_BF16});
    fx->model.query_head_count = (uint32_t)through->config->heads;
}

void through_close(struct through *through)
{
    for (uint64_t i = 0; i < through->sequence_count; i++) {
        eng_kv_done(&through->sequences[i].kv);
        free(through->sequences[i].logits);
    }
    eng_model_close(through->model);
}
