/* selector_source: a prefix in memory, of which chosen rows are used. See selector_source.h. */
#include "conformance/engine/cli/selector_source.h"

#include <stdlib.h>
#include <string.h>

struct eng_selectr_source {
    struct eng_selectr_source_params params;
    struct eng_source source;
    struct eng_selectr *chooser;
    uint64_t salt; /* of the request */
    uint64_t matched, prompt_end, position, pass;
};

static eng_status begin_request(void *user, const struct eng_request *request,
                                const uint32_t *tokens, uint64_t token_count,
                                struct eng_result *result, uint64_t *ret_matched,
                                struct eng_error *reterr)
{
    struct eng_selectr_source *source = user;
    (void)tokens;
    (void)result;
    (void)reterr;
    source->salt = request->index;
    source->matched = *source->params.held_tokens;
    source->position = source->matched;
    source->prompt_end = token_count;
    source->pass = 0;
    *ret_matched = source->matched;
    return ENG_OK;
}

struct eng_select_input eng_select_input_of(const struct eng_config *config,
                                            const struct eng_attention_view *view,
                                            const struct eng_kv *held, uint64_t matched,
                                            uint64_t fresh_count)
{
    return (struct eng_select_input){
        .heads = config->heads,
        .kv_heads = config->kv_heads,
        .head_dim = config->head_dim,
        .dtype = held->dtype,
        .q = view->q,
        .q_stride = config->heads * config->head_dim,
        .rows = view->pass->count,
        .prefix = eng_kv_k(held, view->layer, 0),
        .prefix_count = matched,
        .fresh = eng_kv_k(view->pass->kv, view->layer, matched),
        .fresh_count = fresh_count,
        .layer = view->layer,
    };
}

/* Row r of the cache becomes the r-th chosen one of each head. */
static void place_rows(const struct eng_selectr_source *source,
                       const struct eng_attention_view *view, const struct eng_choice *choice)
{
    const struct eng_kv *held = source->params.held;
    struct eng_kv *kv = view->pass->kv;
    uint64_t head_bytes = kv->row_bytes / kv->kv_heads;
    for (uint64_t h = 0; h < kv->kv_heads; h++) {
        const uint32_t *rows = choice->rows + (choice->lists == 1 ? 0 : h * choice->row_count);
        for (uint64_t r = 0; r < choice->row_count; r++) {
            memcpy(eng_kv_k(kv, view->layer, r) + h * head_bytes,
                   eng_kv_k(held, view->layer, rows[r]) + h * head_bytes, head_bytes);
            memcpy(eng_kv_v(kv, view->layer, r) + h * head_bytes,
                   eng_kv_v(held, view->layer, rows[r]) + h * head_bytes, head_bytes);
        }
    }
    eng_kv_set_prefix(kv, view->layer, source->matched, choice->row_count);
}

static eng_status before_attention(void *user, const struct eng_attention_view *view,
                                   struct eng_error *reterr)
{
    struct eng_selectr_source *source = user;
    const struct eng_selectr_source_params *params = &source->params;
    struct eng_kv *kv = view->pass->kv;
    struct eng_choice choice = {0};
    if (source->matched == 0 || source->position >= source->prompt_end)
        return ENG_OK;
    if (source->pass == 0)
        eng_kv_set_prefix(kv, view->layer, source->matched, source->matched);
    uint64_t held_rows = kv->rows[view->layer];
    if (held_rows > kv->capacity || view->pass->count > kv->capacity - held_rows)
        return eng_fail(reterr, ENG_E_INVALID, "the KV cache is too small for the prompt");
    memcpy(eng_kv_k(kv, view->layer, held_rows), view->k, view->pass->count * kv->row_bytes);
    uint64_t fresh = held_rows - source->matched + view->pass->count;
    struct eng_select_input input =
        eng_select_input_of(eng_model_config(params->model), view, params->held, source->matched,
                            params->no_new_keys ? 0 : fresh);
    input.salt = source->salt;
    eng_status status =
        params->choose != NULL
            ? params->choose(params->select_user, view, source->pass, &choice, reterr)
            : eng_select(source->chooser, &input, &params->rule, &choice, reterr);
    if (status == ENG_OK && params->seen != NULL)
        status = params->seen(params->seen_user, view, source->pass, &input, &choice, reterr);
    if (status == ENG_OK)
        place_rows(source, view, &choice);
    return status;
}

static eng_status after_layer(void *user, uint64_t layer, uint64_t pass_index,
                              const struct eng_pass *pass, struct eng_error *reterr)
{
    struct eng_selectr_source *source = user;
    (void)pass_index;
    (void)reterr;
    if (layer + 1 == eng_model_config(source->params.model)->layers) {
        source->position = pass->first_position + pass->count;
        source->pass++;
    }
    return ENG_OK;
}

static eng_status give_hint(void *user, const struct eng_hint_view *view, struct eng_error *reterr)
{
    struct eng_selectr_source *source = user;
    if (source->matched == 0 || source->position >= source->prompt_end)
        return ENG_OK;
    return source->params.hint(source->params.hint_user, view, reterr);
}

static eng_status settle_request(void *user, struct eng_result *result, struct eng_error *reterr)
{
    (void)user;
    (void)result;
    (void)reterr;
    return ENG_OK;
}

eng_status eng_selectr_source_open(const struct eng_selectr_source_params *params,
                                   struct eng_selectr_source **ret_source, struct eng_error *reterr)
{
    struct eng_selectr_source *source = calloc(1, sizeof(*source));
    if (source == NULL)
        return eng_fail(reterr, ENG_E_NO_MEMORY, "no memory for a source");
    source->params = *params;
    source->source = (struct eng_source){.user = source,
                                         .hooks = {.user = source,
                                                   .hint = params->hint == NULL ? NULL : give_hint,
                                                   .hint_before = params->hint != NULL,
                                                   .hint_after = params->hint != NULL,
                                                   .before_attention = before_attention,
                                                   .after_layer = after_layer},
                                         .begin = begin_request,
                                         .settle = settle_request};
    eng_status status = eng_selectr_open(&source->chooser, reterr);
    if (status != ENG_OK) {
        free(source);
        return status;
    }
    *ret_source = source;
    return ENG_OK;
}

void eng_selectr_source_close(struct eng_selectr_source *source)
{
    if (source == NULL)
        return;
    eng_selectr_close(source->chooser);
    free(source);
}

const struct eng_source *eng_selectr_source_get(const struct eng_selectr_source *source)
{
    return &source->source;
}
