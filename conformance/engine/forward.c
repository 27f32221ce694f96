/* forward: the forward pass over a batch of sequences. See model.h.
 *
 * All passes' rows are contiguous in x. Linear layers process all of them at once, attention pass
 * by pass over its own cache:
 *
 *   x   | pass 0: count rows | pass 1 | ... |        each row `hidden` floats
 *
 * Invariants: kernels compute row by row with one order of sums (gemm.h, attention.h, vecmath.h),
 * so a row's bits do not depend on its neighbours. Scratch memory grows only to the largest
 * forward's size.
 * Threads: see model.h. Tests: tests/unit/engine/test_model.c, test_golden.c */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "conformance/engine/attention.h"
#include "conformance/engine/model_parts.h"
#include "conformance/engine/rope.h"
#include "conformance/engine/vecmath.h"

#define POSITION_OFFSET 2u   /* OPT: two rows in front of the table of positions */
#define MLP_ROWS        512u /* rows of the feed-forward's middle held at once: a cache's size */
#define ROWS_MAX        (1u << 24)

struct forward {
    struct eng_model *model;
    const struct eng_config *config;
    const struct eng_pass *passes;
    uint64_t pass_count;
    const struct eng_hooks *hooks; /* never NULL */
    struct eng_error *reterr;
    uint64_t rows;       /* of all passes */
    uint64_t last_count; /* passes that want the last row's logits */
    uint64_t q_width, kv_width;
    enum eng_dtype kv_dtype;
    /* Parts of the scratch memory. */
    float *x, *normed, *q, *k, *v, *attended, *middle, *gate;
    void *k_rounded, *v_rounded;
    float *cosine, *sine;
    uint32_t *table_rows; /* 0, 1, 2, ...: row i turns by entry i of the tables */
    float *last, *last_out, *last_logits;
    struct eng_attention_pass *attention; /* [pass_count] */
};

static const struct eng_hooks no_hooks;

static eng_status pass_check(const struct forward *fw, uint64_t index)
{
    const struct eng_pass *pass = &fw->passes[index];
    const struct eng_config *config = fw->config;
    const struct eng_kv *kv = pass->kv;
    if (pass->count == 0 || pass->count > ROWS_MAX)
        return eng_fail(fw->reterr, ENG_E_INVALID,
                        "pass %" PRIu64 ": %" PRIu64 " tokens, expected 1 to %u", index,
                        pass->count, ROWS_MAX);
    if (pass->first_position > config->positions ||
        pass->count > config->positions - pass->first_position)
        return eng_fail(
            fw->reterr, ENG_E_INVALID,
            "pass %" PRIu64 ": positions %" PRIu64 " to %" PRIu64 " of a model of %" PRIu64, index,
            pass->first_position, pass->first_position + pass->count - 1, config->positions);
    for (uint64_t i = 0; i < pass->count; i++) {
        if (pass->tokens[i] >= config->vocab)
            return eng_fail(fw->reterr, ENG_E_INVALID,
                            "pass %" PRIu64 ": token %" PRIu32 " at %" PRIu64
                            ", expected ids below %" PRIu64,
                            index, pass->tokens[i], i, config->vocab);
    }
    if (pass->want != ENG_LOGITS_NONE && pass->logits == NULL)
        return eng_fail(fw->reterr, ENG_E_INVALID, "pass %" PRIu64 ": no place for logits", index);
    if (kv->layers != config->layers || kv->kv_heads != config->kv_heads ||
        kv->head_dim != config->head_dim || kv->dtype != fw->kv_dtype)
        return eng_fail(fw->reterr, ENG_E_INVALID,
                        "pass %" PRIu64 ": its KV cache has another shape or dtype", index);
    for (uint64_t other = 0; other < index; other++) {
        if (fw->passes[other].kv == kv && !(pass->branch && fw->passes[other].branch))
            return eng_fail(fw->reterr, ENG_E_INVALID,
                            "passes %" PRIu64 " and %" PRIu64 " share a KV cache", other, index);
    }
    return ENG_OK;
}

static eng_status forward_begin(struct forward *fw)
{
    if (fw->pass_count == 0)
        return eng_fail(fw->reterr, ENG_E_INVALID, "a forward of no passes");
    fw->kv_dtype = fw->passes[0].kv->dtype;
    fw->q_width = fw->config->heads * fw->config->head_dim;
    fw->kv_width = fw->config->kv_heads * fw->config->head_dim;
    for (uint64_t i = 0; i < fw->pass_count; i++) {
        eng_status status = pass_check(fw, i);
        if (status != ENG_OK)
            return status;
        fw->rows += fw->passes[i].count;
        fw->last_count += fw->passes[i].want == ENG_LOGITS_LAST;
        if (fw->rows > ROWS_MAX)
            return eng_fail(fw->reterr, ENG_E_INVALID, "more than %u tokens in one forward",
                            ROWS_MAX);
    }
    return ENG_OK;
}

/* Lays out the scratch memory; with base NULL it only counts. Counts fit: rows <= 2^24 and widths
 * <= 2^24, so a part is below 2^50 bytes. */
static uint64_t forward_layout(struct forward *fw, uint8_t *base)
{
    const struct eng_config *config = fw->config;
    uint64_t rows = fw->rows;
    uint64_t block = rows < MLP_ROWS ? rows : MLP_ROWS;
    uint64_t wide = config->hidden > config->embed ? config->hidden : config->embed;
    uint64_t pairs = config->family == ENG_FAMILY_LLAMA ? config->head_dim / 2 : 0;
    uint64_t gate = config->family == ENG_FAMILY_LLAMA ? config->ffn : 0;
    const struct {
        void *place; /* the pointer to set */
        uint64_t bytes;
    } parts[] = {
        {&fw->x, rows * config->hidden * sizeof(float)},
        {&fw->normed, rows * wide * sizeof(float)},
        {&fw->q, rows * fw->q_width * sizeof(float)},
        {&fw->k, rows * fw->kv_width * sizeof(float)},
        {&fw->v, rows * fw->kv_width * sizeof(float)},
        {&fw->attended, rows * fw->q_width * sizeof(float)},
        {&fw->middle, block * config->ffn * sizeof(float)},
        {&fw->gate, block * gate * sizeof(float)},
        {&fw->k_rounded, rows * fw->kv_width * eng_dtype_bytes(fw->kv_dtype)},
        {&fw->v_rounded, rows * fw->kv_width * eng_dtype_bytes(fw->kv_dtype)},
        {&fw->cosine, rows * pairs * sizeof(float)},
        {&fw->sine, rows * pairs * sizeof(float)},
        {&fw->table_rows, rows * sizeof(uint32_t)},
        {&fw->last, fw->last_count * config->hidden * sizeof(float)},
        {&fw->last_out, rows * config->embed * sizeof(float)},
        {&fw->last_logits, fw->last_count * config->vocab * sizeof(float)},
        {&fw->attention, fw->pass_count * sizeof(struct eng_attention_pass)},
    };
    uint64_t used = 0;
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        void *at = base == NULL ? NULL : base + used;
        memcpy(parts[i].place, &at, sizeof(at));
        used += (parts[i].bytes + 127) / 64 * 64; /* aligned, and one cache line between parts */
    }
    return used;
}

static eng_status forward_scratch(struct forward *fw)
{
    struct eng_model *model = fw->model;
    uint64_t bytes = forward_layout(fw, NULL);
    if (bytes > model->scratch_bytes) {
        free(model->scratch);
        model->scratch_bytes = 0;
        model->scratch = aligned_alloc(64, bytes);
        if (model->scratch == NULL)
            return eng_fail(fw->reterr, ENG_E_NO_MEMORY, "no memory for %" PRIu64 " tokens at once",
                            fw->rows);
        model->scratch_bytes = bytes;
    }
    (void)forward_layout(fw, (uint8_t *)model->scratch);
    return ENG_OK;
}

/* The pass and the index inside it of row `row` of x; rows are asked for in ascending order. */
static const struct eng_pass *row_pass(const struct forward *fw, uint64_t row, uint64_t *ret_index)
{
    const struct eng_pass *pass = fw->passes;
    while (row >= pass->count) {
        row -= pass->count;
        pass++;
    }
    *ret_index = row;
    return pass;
}

/* Token and (Llama) rotary tables of the rows of one part. */
static void embed_part(void *arg, uint64_t part, uint64_t part_count, uint32_t thread)
{
    struct forward *fw = arg;
    const struct eng_model *model = fw->model;
    const struct eng_config *config = fw->config;
    float *to = config->embed == config->hidden ? fw->x : fw->normed;
    uint64_t row_bytes = config->embed * eng_dtype_bytes(model->table_dtype);
    uint64_t pairs = config->head_dim / 2;
    uint64_t first = 0;
    uint64_t end = 0;
    (void)thread;
    eng_pool_share(fw->rows, part, part_count, &first, &end);
    for (uint64_t row = first; row < end; row++) {
        uint64_t index = 0;
        const struct eng_pass *pass = row_pass(fw, row, &index);
        uint32_t token = pass->tokens[index];
        float *embedded = to + row * config->embed;
        if (config->tied)
            eng_weights_row(model->head.weights, token, embedded);
        else
            eng_widen(model->table->data + token * row_bytes, model->table_dtype, config->embed,
                      embedded);
        fw->table_rows[row] = (uint32_t)row;
        if (config->family == ENG_FAMILY_LLAMA)
            eng_rope_angles(model->inv_freq, pairs, pass->first_position + index,
                            fw->cosine + row * pairs, fw->sine + row * pairs);
    }
}

/* Adds OPT's learned positions. */
static void position_part(void *arg, uint64_t part, uint64_t part_count, uint32_t thread)
{
    struct forward *fw = arg;
    uint64_t hidden = fw->config->hidden;
    uint64_t first = 0;
    uint64_t end = 0;
    (void)thread;
    eng_pool_share(fw->rows, part, part_count, &first, &end);
    for (uint64_t row = first; row < end; row++) {
        uint64_t index = 0;
        const struct eng_pass *pass = row_pass(fw, row, &index);
        uint64_t position = pass->first_position + index + POSITION_OFFSET;
        const float *learned = fw->model->positions + position * hidden;
        float *x = fw->x + row * hidden;
        for (uint64_t i = 0; i < hidden; i++)
            x[i] += learned[i];
    }
}

static uint64_t forward_parts(const struct forward *fw)
{
    uint64_t threads = eng_pool_threads(fw->model->pool);
    return fw->rows < threads ? fw->rows : threads;
}

static void forward_linear(struct forward *fw, const struct eng_linear *linear, const float *x,
                           uint64_t rows, bool accumulate, float *y)
{
    eng_gemm(fw->model->pool, linear->weights, x, eng_weights_inputs(linear->weights), rows,
             linear->bias, accumulate, y, eng_weights_outputs(linear->weights));
}

static void forward_embed(struct forward *fw)
{
    eng_pool_run(fw->model->pool, embed_part, fw, forward_parts(fw));
    if (fw->model->project_in.weights != NULL)
        forward_linear(fw, &fw->model->project_in, fw->normed, fw->rows, false, fw->x);
    if (fw->config->family == ENG_FAMILY_OPT)
        eng_pool_run(fw->model->pool, position_part, fw, forward_parts(fw));
}

/* y = norm(x), rows of `hidden`; y may be x. */
static void forward_norm(struct forward *fw, const struct eng_norm *norm, const float *x,
                         uint64_t rows, float *y)
{
    const struct eng_config *config = fw->config;
    uint64_t hidden = config->hidden;
    float eps = (float)config->norm_eps;
    if (config->family == ENG_FAMILY_LLAMA)
        eng_rmsnorm(fw->model->pool, x, hidden, rows, hidden, norm->weight, eps, y, hidden);
    else
        eng_layernorm(fw->model->pool, x, hidden, rows, hidden, norm->weight, norm->bias, eps, y,
                      hidden);
}

/* q, k, v of all rows: linear layers and the rotary turn. */
static void layer_project(struct forward *fw, const struct eng_layer *layer, const float *in)
{
    const struct eng_config *config = fw->config;
    struct eng_pool *pool = fw->model->pool;
    const struct {
        const struct eng_linear *linear;
        float *y;
    } to[3] = {{&layer->q, fw->q}, {&layer->k, fw->k}, {&layer->v, fw->v}};
    struct eng_gemm_job jobs[3];
    for (int i = 0; i < 3; i++)
        jobs[i] = (struct eng_gemm_job){.weights = to[i].linear->weights,
                                        .x = in,
                                        .bias = to[i].linear->bias,
                                        .y = to[i].y,
                                        .x_stride = config->hidden,
                                        .y_stride = eng_weights_outputs(to[i].linear->weights)};
    eng_gemm_many(pool, jobs, 3, fw->rows);
    if (config->family != ENG_FAMILY_LLAMA)
        return;
    eng_rope(pool, fw->q, fw->q_width, fw->rows, config->heads, config->head_dim, fw->table_rows,
             fw->cosine, fw->sine, config->rope.interleaved);
    eng_rope(pool, fw->k, fw->kv_width, fw->rows, config->kv_heads, config->head_dim,
             fw->table_rows, fw->cosine, fw->sine, config->rope.interleaved);
}

/* Rows that other branches of the same cache have put there in this layer. */
static uint64_t branch_rows(const struct forward *fw, uint64_t index)
{
    uint64_t rows = 0;
    for (uint64_t i = 0; i < index; i++)
        rows += fw->passes[i].kv == fw->passes[index].kv ? fw->passes[i].count : 0;
    return rows;
}

/* Hands the pass's rounded K and V to the hook, then puts them behind the layer's rows. */
static eng_status layer_append(struct forward *fw, uint64_t layer, uint64_t index, uint64_t row)
{
    const struct eng_pass *pass = &fw->passes[index];
    struct eng_kv *kv = pass->kv;
    const struct eng_attention_view view = {
        .layer = layer,
        .pass_index = index,
        .pass = pass,
        .q = fw->q + row * fw->q_width,
        .k = (const uint8_t *)fw->k_rounded + row * kv->row_bytes,
        .v = (const uint8_t *)fw->v_rounded + row * kv->row_bytes,
    };
    if (fw->hooks->before_attention != NULL) {
        eng_status status = fw->hooks->before_attention(fw->hooks->user, &view, fw->reterr);
        if (status != ENG_OK)
            return status;
    }
    uint64_t held = kv->rows[layer];
    if (held > kv->capacity || pass->count > kv->capacity - held)
        return eng_fail(fw->reterr, ENG_E_INVALID,
                        "layer %" PRIu64 ": %" PRIu64 " new rows behind %" PRIu64
                        " in a KV cache of %" PRIu64,
                        layer, pass->count, held, kv->capacity);
    memcpy(eng_kv_k(kv, layer, held), view.k, pass->count * kv->row_bytes);
    memcpy(eng_kv_v(kv, layer, held), view.v, pass->count * kv->row_bytes);
    bool gap = kv->gap_first[layer] < kv->gap_end[layer];
    uint64_t before = held - branch_rows(fw, index);
    fw->attention[index] = (struct eng_attention_pass){
        .q = view.q,
        .k = eng_kv_k(kv, layer, 0),
        .v = eng_kv_v(kv, layer, 0),
        .out = fw->attended + row * fw->q_width,
        .q_stride = fw->q_width,
        .k_stride = kv->row_elems,
        .v_stride = kv->row_elems,
        .out_stride = fw->q_width,
        .prefix_count = gap ? kv->gap_first[layer] : before,
        .seen_first = kv->gap_end[layer],
        .seen_count = gap ? before - kv->gap_end[layer] : 0,
        .new_first = held,
        .new_count = pass->count,
    };
    kv->rows[layer] = held + pass->count;
    return ENG_OK;
}

/* Takes the new rows of layers before `layer`, and of its first `passes` passes, back. */
static void forward_undo(struct forward *fw, uint64_t layer, uint64_t passes)
{
    for (uint64_t i = 0; i < fw->pass_count; i++) {
        const struct eng_pass *pass = &fw->passes[i];
        for (uint64_t l = 0; l < layer + (i < passes ? 1 : 0); l++)
            pass->kv->rows[l] -= pass->count;
    }
}

/* Gives the hook queries of layer `index` + 1 as far as they can be known; q and normed are free.
 */
static eng_status layer_hint(struct forward *fw, uint64_t index, bool after)
{
    const struct eng_config *config = fw->config;
    const struct eng_hooks *hooks = fw->hooks;
    if (hooks->hint == NULL || !(after ? hooks->hint_after : hooks->hint_before) ||
        index + 1 == config->layers)
        return ENG_OK;
    const struct eng_layer *next = &fw->model->layers[index + 1];
    uint64_t heads = hooks->hint_heads == 0 || hooks->hint_heads > config->heads
                         ? config->heads
                         : hooks->hint_heads;
    if (config->norm_before)
        forward_norm(fw, &next->attention_norm, fw->x, fw->rows, fw->normed);
    const struct eng_gemm_job job = {.weights = next->q.weights,
                                     .x = config->norm_before ? fw->normed : fw->x,
                                     .bias = next->q.bias,
                                     .y = fw->q,
                                     .x_stride = config->hidden,
                                     .y_stride = fw->q_width,
                                     .outputs = heads * config->head_dim};
    eng_gemm_many(fw->model->pool, &job, 1, fw->rows);
    if (config->family == ENG_FAMILY_LLAMA)
        eng_rope(fw->model->pool, fw->q, fw->q_width, fw->rows, heads, config->head_dim,
                 fw->table_rows, fw->cosine, fw->sine, config->rope.interleaved);
    uint64_t row = 0;
    eng_status status = ENG_OK;
    for (uint64_t i = 0; i < fw->pass_count && status == ENG_OK; i++) {
        const struct eng_hint_view view = {.layer = index + 1,
                                           .after = after,
                                           .pass_index = i,
                                           .pass = &fw->passes[i],
                                           .q = fw->q + row * fw->q_width,
                                           .q_stride = fw->q_width,
                                           .query_heads = heads};
        status = hooks->hint(hooks->user, &view, fw->reterr);
        row += fw->passes[i].count;
    }
    return status;
}

static eng_status layer_attend(struct forward *fw, uint64_t index)
{
    struct eng_pool *pool = fw->model->pool;
    const struct eng_config *config = fw->config;
    const struct eng_layer *layer = &fw->model->layers[index];
    if (config->norm_before)
        forward_norm(fw, &layer->attention_norm, fw->x, fw->rows, fw->normed);
    layer_project(fw, layer, config->norm_before ? fw->normed : fw->x);
    eng_narrow(fw->k, fw->kv_dtype, fw->rows * fw->kv_width, fw->k_rounded);
    eng_narrow(fw->v, fw->kv_dtype, fw->rows * fw->kv_width, fw->v_rounded);
    uint64_t row = 0;
    for (uint64_t i = 0; i < fw->pass_count; i++) {
        eng_status status = layer_append(fw, index, i, row);
        if (status != ENG_OK) {
            forward_undo(fw, index, i);
            return status;
        }
        row += fw->passes[i].count;
    }
    const struct eng_attention_shape shape = {
        .q_heads = config->heads,
        .kv_heads = config->kv_heads,
        .head_dim = config->head_dim,
        .scale = (float)(1.0 / sqrt((double)config->head_dim)),
        .kv_dtype = fw->kv_dtype,
    };
    eng_status status = eng_attention(pool, &shape, fw->attention, fw->pass_count, fw->reterr);
    if (status == ENG_OK) {
        forward_linear(fw, &layer->o, fw->attended, fw->rows, true, fw->x);
        if (!config->norm_before)
            forward_norm(fw, &layer->attention_norm, fw->x, fw->rows, fw->x);
        if (fw->hooks->after_attention != NULL)
            status = fw->hooks->after_attention(fw->hooks->user, index, fw->reterr);
        if (status == ENG_OK)
            status = layer_hint(fw, index, true);
    }
    if (status != ENG_OK)
        forward_undo(fw, index + 1, 0);
    return status;
}

static void mlp_middle(struct forward *fw, const struct eng_layer *layer, const float *in,
                       uint64_t rows)
{
    struct eng_pool *pool = fw->model->pool;
    uint64_t hidden = fw->config->hidden;
    uint64_t ffn = fw->config->ffn;
    struct eng_gemm_job jobs[2] = {
        {.weights = layer->up.weights,
         .x = in,
         .bias = layer->up.bias,
         .y = fw->middle,
         .x_stride = hidden,
         .y_stride = ffn},
        {.weights = layer->gate.weights,
         .x = in,
         .bias = layer->gate.bias,
         .y = fw->gate,
         .x_stride = hidden,
         .y_stride = ffn},
    };
    eng_gemm_many(pool, jobs, layer->gate.weights == NULL ? 1 : 2, rows);
    switch (fw->config->activation) {
    case ENG_ACT_SILU:
        eng_silu_mul(pool, fw->gate, fw->middle, rows * ffn);
        break;
    case ENG_ACT_RELU:
        eng_relu(pool, fw->middle, rows * ffn);
        break;
    case ENG_ACT_GELU:
        eng_gelu(pool, fw->middle, rows * ffn);
        break;
    case ENG_ACT_GELU_NEW:
        eng_gelu_new(pool, fw->middle, rows * ffn);
        break;
    }
}

static void layer_mlp(struct forward *fw, const struct eng_layer *layer)
{
    const struct eng_config *config = fw->config;
    uint64_t hidden = config->hidden;
    if (config->norm_before)
        forward_norm(fw, &layer->mlp_norm, fw->x, fw->rows, fw->normed);
    const float *in = config->norm_before ? fw->normed : fw->x;
    const float *middle = layer->gate.weights == NULL ? fw->middle : fw->gate;
    for (uint64_t row = 0; row < fw->rows; row += MLP_ROWS) {
        uint64_t rows = fw->rows - row < MLP_ROWS ? fw->rows - row : MLP_ROWS;
        mlp_middle(fw, layer, in + row * hidden, rows);
        forward_linear(fw, &layer->down, middle, rows, true, fw->x + row * hidden);
    }
    if (!config->norm_before)
        forward_norm(fw, &layer->mlp_norm, fw->x, fw->rows, fw->x);
}

static eng_status forward_layer(struct forward *fw, uint64_t index)
{
    const struct eng_hooks *hooks = fw->hooks;
    eng_status status = ENG_OK;
    if (hooks->before_layer != NULL)
        status = hooks->before_layer(hooks->user, index, fw->reterr);
    if (status == ENG_OK)
        status = layer_hint(fw, index, false);
    if (status != ENG_OK) {
        forward_undo(fw, index, 0);
        return status;
    }
    status = layer_attend(fw, index);
    if (status != ENG_OK)
        return status;
    layer_mlp(fw, &fw->model->layers[index]);
    for (uint64_t i = 0; hooks->after_layer != NULL && i < fw->pass_count; i++) {
        status = hooks->after_layer(hooks->user, index, i, &fw->passes[i], fw->reterr);
        if (status != ENG_OK) {
            forward_undo(fw, index + 1, 0);
            return status;
        }
    }
    return ENG_OK;
}

/* logits [rows][vocab] of rows x, which is overwritten. */
static void forward_head(struct forward *fw, float *x, uint64_t rows, float *logits)
{
    if (fw->config->final_norm)
        forward_norm(fw, &fw->model->final_norm, x, rows, x);
    if (fw->model->project_out.weights != NULL) {
        forward_linear(fw, &fw->model->project_out, x, rows, false, fw->last_out);
        x = fw->last_out;
    }
    forward_linear(fw, &fw->model->head, x, rows, false, logits);
}

static void forward_logits(struct forward *fw)
{
    uint64_t hidden = fw->config->hidden;
    uint64_t vocab = fw->config->vocab;
    uint64_t end = 0;
    uint64_t last = 0;
    for (uint64_t i = 0; i < fw->pass_count; i++) {
        const struct eng_pass *pass = &fw->passes[i];
        end += pass->count;
        if (pass->want == ENG_LOGITS_LAST)
            memcpy(fw->last + last++ * hidden, fw->x + (end - 1) * hidden, hidden * sizeof(float));
        else if (pass->want == ENG_LOGITS_ALL)
            forward_head(fw, fw->x + (end - pass->count) * hidden, pass->count, pass->logits);
    }
    if (last == 0)
        return;
    forward_head(fw, fw->last, last, fw->last_logits);
    last = 0;
    for (uint64_t i = 0; i < fw->pass_count; i++) {
        if (fw->passes[i].want == ENG_LOGITS_LAST)
            memcpy(fw->passes[i].logits, fw->last_logits + last++ * vocab, vocab * sizeof(float));
    }
}

eng_status eng_forward(struct eng_model *model, const struct eng_pass *passes, uint64_t pass_count,
                       const struct eng_hooks *hooks, struct eng_error *reterr)
{
    struct forward fw = {.model = model,
                         .config = &model->config,
                         .passes = passes,
                         .pass_count = pass_count,
                         .hooks = hooks == NULL ? &no_hooks : hooks,
                         .reterr = reterr};
    eng_status status = forward_begin(&fw);
    if (status == ENG_OK)
        status = forward_scratch(&fw);
    if (status != ENG_OK)
        return status;
    forward_embed(&fw);
    for (uint64_t layer = 0; layer < model->config.layers; layer++) {
        status = forward_layer(&fw, layer);
        if (status != ENG_OK)
            return status;
    }
    forward_logits(&fw);
    return ENG_OK;
}
