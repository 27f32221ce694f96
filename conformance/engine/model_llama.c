/* model_llama: names and shapes of Llama's weights. Takes exactly the tensors that the
 * configuration implies.
 *
 * Threads: the opener's. Tests: tests/unit/engine/test_golden.c, test_model.c */
#include <stdio.h>
#include <stdlib.h>

#include "conformance/engine/model_parts.h"
#include "conformance/engine/rope.h"

static eng_status llama_load_layer(struct eng_loader *loader, uint64_t index)
{
    const struct eng_config *config = &loader->model->config;
    struct eng_layer *layer = &loader->model->layers[index];
    uint64_t hidden = config->hidden;
    uint64_t q_width = config->heads * config->head_dim;
    uint64_t kv_width = config->kv_heads * config->head_dim;
    const struct {
        const char *name;
        uint64_t outputs, inputs;
        bool bias;
        struct eng_linear *linear;
    } linears[] = {
        {"self_attn.q_proj", q_width, hidden, config->attention_bias, &layer->q},
        {"self_attn.k_proj", kv_width, hidden, config->attention_bias, &layer->k},
        {"self_attn.v_proj", kv_width, hidden, config->attention_bias, &layer->v},
        {"self_attn.o_proj", hidden, q_width, config->attention_bias, &layer->o},
        {"mlp.gate_proj", config->ffn, hidden, config->mlp_bias, &layer->gate},
        {"mlp.up_proj", config->ffn, hidden, config->mlp_bias, &layer->up},
        {"mlp.down_proj", hidden, config->ffn, config->mlp_bias, &layer->down},
    };
    char name[64];
    eng_status status = ENG_OK;
    for (size_t i = 0; i < sizeof(linears) / sizeof(linears[0]) && status == ENG_OK; i++) {
        (void)snprintf(name, sizeof(name), "layers.%u.%s", (unsigned)index, linears[i].name);
        status = eng_loader_linear(loader, name, linears[i].outputs, linears[i].inputs,
                                   linears[i].bias, linears[i].linear);
    }
    if (status == ENG_OK) {
        (void)snprintf(name, sizeof(name), "layers.%u.input_layernorm", (unsigned)index);
        status = eng_loader_norm(loader, name, hidden, false, &layer->attention_norm);
    }
    if (status == ENG_OK) {
        (void)snprintf(name, sizeof(name), "layers.%u.post_attention_layernorm", (unsigned)index);
        status = eng_loader_norm(loader, name, hidden, false, &layer->mlp_norm);
    }
    return status;
}

eng_status eng_llama_load(struct eng_loader *loader)
{
    struct eng_model *model = loader->model;
    const struct eng_config *config = &model->config;
    loader->prefix = "model.";
    model->inv_freq = calloc(config->head_dim / 2, sizeof(*model->inv_freq));
    if (model->inv_freq == NULL)
        return eng_fail(loader->reterr, ENG_E_NO_MEMORY, "no memory for rotary frequencies");
    eng_rope_frequencies(&config->rope, config->head_dim, model->inv_freq);
    eng_status status = eng_loader_table(loader, "embed_tokens");
    if (status == ENG_OK)
        status = eng_loader_norm(loader, "norm", config->hidden, false, &model->final_norm);
    for (uint64_t i = 0; i < config->layers && status == ENG_OK; i++)
        status = llama_load_layer(loader, i);
    return status;
}
