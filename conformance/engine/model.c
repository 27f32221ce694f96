/* model: opens a model: configuration, then its family's weights. See model.h.
 *
 * A tensor that the configuration does not imply is refused, except known idle ones: an unused bias
 * would mean a wrong answer.
 * Threads: see model.h. Tests: tests/unit/engine/test_model.c, test_golden.c */
#include "conformance/engine/model.h"

#include <stdlib.h>
#include <string.h>

#include "conformance/engine/model_parts.h"

/* Tensors that files of real models carry and nobody computes with. */
static bool tensor_is_idle(const struct eng_config *config, const char *name)
{
    size_t length = strlen(name);
    static const char inv_freq[] = ".rotary_emb.inv_freq";
    if (config->tied && strcmp(name, "lm_head.weight") == 0)
        return true;
    return length > sizeof(inv_freq) &&
           strcmp(name + length - (sizeof(inv_freq) - 1), inv_freq) == 0;
}

static eng_status model_load(struct eng_model *model, struct eng_error *reterr)
{
    uint64_t count = eng_tensors_count(model->tensors);
    struct eng_loader loader = {.model = model, .reterr = reterr};
    loader.taken = calloc(count + 1, sizeof(*loader.taken));
    model->layers = calloc(model->config.layers, sizeof(*model->layers));
    eng_status status = ENG_OK;
    if (loader.taken == NULL || model->layers == NULL)
        status = eng_fail(reterr, ENG_E_NO_MEMORY, "no memory for a model");
    else if (model->config.family == ENG_FAMILY_OPT)
        status = eng_opt_load(&loader);
    else
        status = eng_llama_load(&loader);
    for (uint64_t i = 0; i < count && status == ENG_OK; i++) {
        const struct eng_tensor *tensor = eng_tensors_at(model->tensors, i);
        if (!loader.taken[i] && !tensor_is_idle(&model->config, tensor->name))
            status = eng_fail(reterr, ENG_E_INPUT,
                              "%s: tensor %.100s is not part of the model that config.json tells",
                              tensor->path, tensor->name);
    }
    free(loader.taken);
    return status;
}

eng_status eng_model_open(const char *dir, uint32_t threads, struct eng_model **ret_model,
                          struct eng_error *reterr)
{
    struct eng_model *model = calloc(1, sizeof(*model));
    if (model == NULL)
        return eng_fail(reterr, ENG_E_NO_MEMORY, "no memory for a model");
    eng_status status = eng_config_load(dir, &model->config, reterr);
    if (status == ENG_OK)
        status = eng_tensors_open(dir, &model->tensors, reterr);
    if (status == ENG_OK)
        status = eng_pool_open(threads, &model->pool, reterr);
    if (status == ENG_OK)
        status = model_load(model, reterr);
    if (status != ENG_OK) {
        eng_model_close(model);
        return status;
    }
    *ret_model = model;
    return ENG_OK;
}

static void linear_free(struct eng_linear *linear)
{
    eng_weights_free(linear->weights);
    free(linear->bias);
}

static void norm_free(struct eng_norm *norm)
{
    free(norm->weight);
    free(norm->bias);
}

static void layer_free(struct eng_layer *layer)
{
    struct eng_linear *linears[] = {&layer->q,    &layer->k,  &layer->v,   &layer->o,
                                    &layer->gate, &layer->up, &layer->down};
    for (size_t i = 0; i < sizeof(linears) / sizeof(linears[0]); i++)
        linear_free(linears[i]);
    norm_free(&layer->attention_norm);
    norm_free(&layer->mlp_norm);
}

void eng_model_close(struct eng_model *model)
{
    if (model == NULL)
        return;
    for (uint64_t i = 0; model->layers != NULL && i < model->config.layers; i++)
        layer_free(&model->layers[i]);
    free(model->layers);
    norm_free(&model->final_norm);
    linear_free(&model->head);
    linear_free(&model->project_in);
    linear_free(&model->project_out);
    free(model->positions);
    free(model->inv_freq);
    free(model->scratch);
    eng_pool_close(model->pool);
    eng_tensors_close(model->tensors);
    free(model);
}

const struct eng_config *eng_model_config(const struct eng_model *model)
{
    return &model->config;
}

uint64_t eng_model_weight_bytes(const struct eng_model *model)
{
    return model->weight_bytes;
}
