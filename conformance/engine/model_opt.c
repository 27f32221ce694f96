/* model_opt: names and shapes of OPT's weights. Takes exactly the tensors that the configuration
 * implies.
 *
 * Threads: the opener's. Tests: tests/unit/engine/test_golden.c, test_model.c */
#include <stdio.h>

#include "conformance/engine/model_parts.h"

#define OPT_POSITION_OFFSET 2u /* OPT's table has two rows in front, left from padding */

static eng_status opt_load_norm(struct eng_loader *loader, const char *name,
                                struct eng_norm *ret_norm)
{
    const struct eng_config *config = &loader->model->config;
    if (!config->norm_affine)
        return ENG_OK;
    return eng_loader_norm(loader, name, config->hidden, true, ret_norm);
}

static eng_status opt_load_layer(struct eng_loader *loader, uint64_t index)
{
    const struct eng_config *config = &loader->model->config;
    struct eng_layer *layer = &loader->model->layers[index];
    uint64_t hidden = config->hidden;
    bool bias = config->attention_bias;
    const struct {
        const char *name;
        uint64_t outputs, inputs;
        struct eng_linear *linear;
    } linears[] = {
        {"self_attn.q_proj", hidden, hidden, &layer->q},
        {"self_attn.k_proj", hidden, hidden, &layer->k},
        {"self_attn.v_proj", hidden, hidden, &layer->v},
        {"self_attn.out_proj", hidden, hidden, &layer->o},
        {"fc1", config->ffn, hidden, &layer->up},
        {"fc2", hidden, config->ffn, &layer->down},
    };
    char name[64];
    eng_status status = ENG_OK;
    for (size_t i = 0; i < sizeof(linears) / sizeof(linears[0]) && status == ENG_OK; i++) {
        (void)snprintf(name, sizeof(name), "layers.%u.%s", (unsigned)index, linears[i].name);
        status = eng_loader_linear(loader, name, linears[i].outputs, linears[i].inputs, bias,
                                   linears[i].linear);
    }
    if (status == ENG_OK) {
        (void)snprintf(name, sizeof(name), "layers.%u.self_attn_layer_norm", (unsigned)index);
        status = opt_load_norm(loader, name, &layer->attention_norm);
    }
    if (status == ENG_OK) {
        (void)snprintf(name, sizeof(name), "layers.%u.final_layer_norm", (unsigned)index);
        status = opt_load_norm(loader, name, &layer->mlp_norm);
    }
    return status;
}

eng_status eng_opt_load(struct eng_loader *loader)
{
    struct eng_model *model = loader->model;
    const struct eng_config *config = &model->config;
    bool full = eng_tensors_find(model->tensors, "model.decoder.embed_tokens.weight") != NULL;
    loader->prefix = full ? "model.decoder." : "decoder.";
    eng_status status = eng_loader_table(loader, "embed_tokens");
    if (status == ENG_OK)
        status = eng_loader_floats(loader, "embed_positions.weight",
                                   config->positions + OPT_POSITION_OFFSET, config->hidden,
                                   &model->positions);
    if (status == ENG_OK && config->embed != config->hidden)
        status = eng_loader_linear(loader, "project_in", config->hidden, config->embed, false,
                                   &model->project_in);
    if (status == ENG_OK && config->embed != config->hidden)
        status = eng_loader_linear(loader, "project_out", config->embed, config->hidden, false,
                                   &model->project_out);
    if (status == ENG_OK && config->final_norm)
        status = opt_load_norm(loader, "final_layer_norm", &model->final_norm);
    for (uint64_t i = 0; i < config->layers && status == ENG_OK; i++)
        status = opt_load_layer(loader, i);
    return status;
}
