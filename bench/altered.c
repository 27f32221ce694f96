/* altered: changes delivered rows. See altered.h. */
#include "bench/altered.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "conformance/engine/cli/selector_source.h"

#define E4M3_MAX       448.0f
#define E4M3_EXP_MIN   (-6) /* of the smallest normal value; below it the step stays */
#define E4M3_MANT_BITS 3

struct altered {
    struct altered_params params;
    struct eng_source source;
    struct eng_selectr *selectr;
    uint64_t matched;
    float *wide;      /* [matched x row_elems] */
    uint64_t *stands; /* [matched]: whose KV a row takes */
};

float altered_e4m3(float x)
{
    if (x == 0.0f || isnan(x))
        return x;
    int exponent = ilogbf(x);
    float step = ldexpf(1.0f, (exponent < E4M3_EXP_MIN ? E4M3_EXP_MIN : exponent) - E4M3_MANT_BITS);
    float rounded = nearbyintf(x / step) * step;
    return fminf(fmaxf(rounded, -E4M3_MAX), E4M3_MAX);
}

static void round_rows(struct altered *altered, const struct eng_kv *kv, uint8_t *rows)
{
    uint64_t count = altered->matched * kv->row_elems;
    float largest = 0;
    eng_widen(rows, kv->dtype, count, altered->wide);
    for (uint64_t i = 0; i < count; i++)
        largest = fmaxf(largest, fabsf(altered->wide[i]));
    float scale = largest == 0 ? 1 : largest / E4M3_MAX;
    for (uint64_t i = 0; i < count; i++)
        altered->wide[i] = altered_e4m3(altered->wide[i] / scale) * scale;
    eng_narrow(altered->wide, kv->dtype, count, rows);
}

static float distance(const float *a, const float *b, uint64_t count)
{
    float sum = 0;
    for (uint64_t i = 0; i < count; i++)
        sum += (a[i] - b[i]) * (a[i] - b[i]);
    return sum;
}

/* stands[r] of one head: r itself if it is kept, else the kept row whose key is nearest. */
static void find_stand_ins(struct altered *altered, const struct eng_kv *kv, uint64_t head,
                           const uint32_t *kept, uint64_t kept_count)
{
    uint64_t next = 0;
    for (uint64_t r = 0; r < altered->matched; r++) {
        const float *key = altered->wide + r * kv->row_elems + head * kv->head_dim;
        float best = INFINITY;
        while (next < kept_count && kept[next] < r)
            next++;
        altered->stands[r] = r;
        if (next < kept_count && kept[next] == r)
            continue;
        for (uint64_t i = 0; i < kept_count; i++) {
            float far = distance(key, altered->wide + kept[i] * kv->row_elems + head * kv->head_dim,
                                 kv->head_dim);
            if (far < best) {
                best = far;
                altered->stands[r] = kept[i];
            }
        }
    }
}

static eng_status stand_in(struct altered *altered, const struct eng_attention_view *view,
                           struct eng_error *reterr)
{
    const struct eng_kv *kv = view->pass->kv;
    struct eng_choice choice = {0};
    const struct eng_select_input input = eng_select_input_of(
        eng_model_config(altered->params.model), view, kv, altered->matched, view->pass->count);
    eng_status status =
        eng_select(altered->selectr, &input, &altered->params.rule, &choice, reterr);
    if (status != ENG_OK)
        return status;
    uint64_t head_bytes = kv->row_bytes / kv->kv_heads;
    eng_widen(eng_kv_k(kv, view->layer, 0), kv->dtype, altered->matched * kv->row_elems,
              altered->wide);
    for (uint64_t h = 0; h < kv->kv_heads; h++) {
        find_stand_ins(altered, kv, h, choice.rows + (choice.lists == 1 ? 0 : h * choice.row_count),
                       choice.row_count);
        for (uint64_t r = 0; r < altered->matched; r++) {
            uint64_t from = altered->stands[r];
            if (from == r)
                continue;
            memcpy(eng_kv_k(kv, view->layer, r) + h * head_bytes,
                   eng_kv_k(kv, view->layer, from) + h * head_bytes, head_bytes);
            memcpy(eng_kv_v(kv, view->layer, r) + h * head_bytes,
                   eng_kv_v(kv, view->layer, from) + h * head_bytes, head_bytes);
        }
    }
    return ENG_OK;
}

/* ---- The source: the inner one's calls, and rows that change behind its before_attention ---- */

static eng_status begin(void *user, const struct eng_request *request, const uint32_t *tokens,
                        uint64_t token_count, struct eng_result *result, uint64_t *ret_matched,
                        struct eng_error *reterr)
{
    struct altered *altered = user;
    const struct eng_source *inner = altered->params.inner;
    const struct eng_config *config = eng_model_config(altered->params.model);
    eng_status status =
        inner->begin(inner->user, request, tokens, token_count, result, ret_matched, reterr);
    if (status != ENG_OK)
        return status;
    altered->matched = *ret_matched;
    free(altered->wide);
    free(altered->stands);
    altered->wide =
        calloc(altered->matched * config->kv_heads * config->head_dim + 1, sizeof(float));
    altered->stands = calloc(altered->matched + 1, sizeof(*altered->stands));
    return altered->wide != NULL && altered->stands != NULL
               ? ENG_OK
               : eng_fail(reterr, ENG_E_NO_MEMORY, "no memory for a prefix's rows");
}

static eng_status settle(void *user, struct eng_result *result, struct eng_error *reterr)
{
    const struct eng_source *inner = ((struct altered *)user)->params.inner;
    return inner->settle(inner->user, result, reterr);
}

static eng_status before_layer(void *user, uint64_t layer, struct eng_error *reterr)
{
    const struct eng_hooks *inner = &((struct altered *)user)->params.inner->hooks;
    return inner->before_layer(inner->user, layer, reterr);
}

static eng_status after_attention(void *user, uint64_t layer, struct eng_error *reterr)
{
    const struct eng_hooks *inner = &((struct altered *)user)->params.inner->hooks;
    return inner->after_attention(inner->user, layer, reterr);
}

static eng_status after_layer(void *user, uint64_t layer, uint64_t pass_index,
                              const struct eng_pass *pass, struct eng_error *reterr)
{
    const struct eng_hooks *inner = &((struct altered *)user)->params.inner->hooks;
    return inner->after_layer(inner->user, layer, pass_index, pass, reterr);
}

static eng_status before_attention(void *user, const struct eng_attention_view *view,
                                   struct eng_error *reterr)
{
    struct altered *altered = user;
    const struct eng_hooks *inner = &altered->params.inner->hooks;
    const struct eng_kv *kv = view->pass->kv;
    eng_status status = inner->before_attention(inner->user, view, reterr);
    if (status != ENG_OK || altered->matched == 0 || view->pass->first_position != altered->matched)
        return status;
    if (kv->gap_first[view->layer] != kv->gap_end[view->layer])
        return eng_fail(reterr, ENG_E_INVALID, "rows can be altered in whole prefixes only");
    if (altered->params.kind == ALTERED_STAND_IN)
        return stand_in(altered, view, reterr);
    round_rows(altered, kv, eng_kv_k(kv, view->layer, 0));
    round_rows(altered, kv, eng_kv_v(kv, view->layer, 0));
    return ENG_OK;
}

eng_status altered_open(const struct altered_params *params, struct altered **ret_altered,
                        struct eng_error *reterr)
{
    struct altered *altered = calloc(1, sizeof(*altered));
    if (altered == NULL)
        return eng_fail(reterr, ENG_E_NO_MEMORY, "no memory for a source");
    const struct eng_hooks *inner = &params->inner->hooks;
    altered->params = *params;
    altered->source = (struct eng_source){
        .user = altered,
        .hooks = {.user = altered,
                  .before_layer = inner->before_layer == NULL ? NULL : before_layer,
                  .before_attention = before_attention,
                  .after_attention = inner->after_attention == NULL ? NULL : after_attention,
                  .after_layer = inner->after_layer == NULL ? NULL : after_layer},
        .begin = begin,
        .settle = settle};
    eng_status status = eng_selectr_open(&altered->selectr, reterr);
    if (status != ENG_OK) {
        free(altered);
        return status;
    }
    *ret_altered = altered;
    return ENG_OK;
}

void altered_close(struct altered *altered)
{
    if (altered == NULL)
        return;
    eng_selectr_close(altered->selectr);
    free(altered->wide);
    free(altered->stands);
    free(altered);
}

const struct eng_source *altered_source(const struct altered *altered)
{
    return &altered->source;
}
