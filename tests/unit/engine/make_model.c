/* Small random models; see make_model.h.
 *
 * Holds, Does not, Threads: as make_model.h.
 */
#include "tests/unit/engine/make_model.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct writer {
    const struct recipe *recipe;
    FILE *data;
    char header[1 << 16];
    size_t header_used;
    uint64_t data_used;
    uint64_t random;
};

static void must(bool ok, const char *what)
{
    if (!ok) {
        (void)fprintf(stderr, "make_model: %s failed\n", what);
        exit(1);
    }
}

struct recipe recipe_opt(void)
{
    return (struct recipe){.dtype = ENG_F16,
                           .layers = 3,
                           .hidden = 60,
                           .ffn = 100,
                           .heads = 5,
                           .kv_heads = 5,
                           .head_dim = 12,
                           .vocab = 131,
                           .positions = 1024,
                           .seed = 7};
}

struct recipe recipe_llama(void)
{
    return (struct recipe){.llama = true,
                           .dtype = ENG_BF16,
                           .layers = 3,
                           .hidden = 54,
                           .ffn = 100,
                           .heads = 6,
                           .kv_heads = 2,
                           .head_dim = 10,
                           .vocab = 131,
                           .positions = 1024,
                           .seed = 8};
}

/* xorshift64*, as a number from -1 to 1. */
static float random_value(struct writer *out)
{
    uint64_t x = out->random;
    x ^= x >> 12;
    x ^= x << 25;
    x ^= x >> 27;
    out->random = x;
    return (float)((double)((x * 0x2545f4914f6cdd1dull) >> 11) / (double)(1ull << 52)) - 1.0f;
}

static bool ends_with(const char *name, const char *end)
{
    size_t length = strlen(name);
    return end != NULL && length >= strlen(end) && strcmp(name + length - strlen(end), end) == 0;
}

/* rows 0: a vector. Values are `around` plus or minus `spread`. */
static void add_tensor(struct writer *out, const char *name, uint32_t rows, uint32_t columns,
                       float around, float spread)
{
    static const char *const dtype_names[] = {"F32", "F16", "BF16"};
    const struct recipe *recipe = out->recipe;
    if (ends_with(name, recipe->leave_out))
        return;
    uint64_t count = (uint64_t)(rows == 0 ? 1 : rows) * columns;
    uint64_t each = eng_dtype_bytes(recipe->dtype);
    for (uint64_t i = 0; i < count; i++) {
        float value = around + spread * random_value(out);
        uint8_t bytes[4];
        eng_narrow(&value, recipe->dtype, 1, bytes);
        must(fwrite(bytes, 1, each, out->data) == each, "write");
    }
    bool turned = ends_with(name, recipe->transpose);
    const char *dtype = dtype_names[recipe->dtype];
    if (ends_with(name, recipe->call_i32))
        dtype = each == 4 ? "I32" : "I16";
    char shape[64];
    if (rows == 0)
        (void)snprintf(shape, sizeof(shape), "%" PRIu32, columns);
    else
        (void)snprintf(shape, sizeof(shape), "%" PRIu32 ",%" PRIu32, turned ? columns : rows,
                       turned ? rows : columns);
    int used = snprintf(out->header + out->header_used, sizeof(out->header) - out->header_used,
                        "%s\"%s\":{\"dtype\":\"%s\",\"shape\":[%s],\"data_offsets\":[%" PRIu64
                        ",%" PRIu64 "]}",
                        out->header_used == 1 ? "" : ",", name, dtype, shape, out->data_used,
                        out->data_used + count * each);
    out->header_used += (size_t)used;
    must(out->header_used < sizeof(out->header) - 2, "header");
    out->data_used += count * each;
}

static void add_linear(struct writer *out, const char *name, uint32_t outputs, uint32_t inputs,
                       bool bias)
{
    char full[128];
    (void)snprintf(full, sizeof(full), "%s.weight", name);
    add_tensor(out, full, outputs, inputs, 0, 0.3f);
    if (bias) {
        (void)snprintf(full, sizeof(full), "%s.bias", name);
        add_tensor(out, full, 0, outputs, 0, 0.2f);
    }
}

static void add_norm(struct writer *out, const char *name, bool bias)
{
    char full[128];
    (void)snprintf(full, sizeof(full), "%s.weight", name);
    add_tensor(out, full, 0, out->recipe->hidden, 1, 0.2f);
    if (bias) {
        (void)snprintf(full, sizeof(full), "%s.bias", name);
        add_tensor(out, full, 0, out->recipe->hidden, 0, 0.2f);
    }
}

static void add_layer(struct writer *out, uint32_t layer)
{
    const struct recipe *r = out->recipe;
    const struct {
        const char *opt, *llama;
        uint32_t outputs, inputs;
    } linears[] = {
        {"self_attn.q_proj", "self_attn.q_proj", r->heads * r->head_dim, r->hidden},
        {"self_attn.k_proj", "self_attn.k_proj", r->kv_heads * r->head_dim, r->hidden},
        {"self_attn.v_proj", "self_attn.v_proj", r->kv_heads * r->head_dim, r->hidden},
        {"self_attn.out_proj", "self_attn.o_proj", r->hidden, r->heads * r->head_dim},
        {"fc1", "mlp.up_proj", r->ffn, r->hidden},
        {"fc2", "mlp.down_proj", r->hidden, r->ffn},
        {NULL, "mlp.gate_proj", r->ffn, r->hidden},
    };
    const char *prefix = r->llama ? "model.layers" : "model.decoder.layers";
    char name[96];
    for (size_t i = 0; i < sizeof(linears) / sizeof(linears[0]); i++) {
        const char *part = r->llama ? linears[i].llama : linears[i].opt;
        if (part == NULL)
            continue;
        (void)snprintf(name, sizeof(name), "%s.%" PRIu32 ".%s", prefix, layer, part);
        add_linear(out, name, linears[i].outputs, linears[i].inputs, !r->llama);
    }
    (void)snprintf(name, sizeof(name), "%s.%" PRIu32 ".%s", prefix, layer,
                   r->llama ? "input_layernorm" : "self_attn_layer_norm");
    add_norm(out, name, !r->llama);
    (void)snprintf(name, sizeof(name), "%s.%" PRIu32 ".%s", prefix, layer,
                   r->llama ? "post_attention_layernorm" : "final_layer_norm");
    add_norm(out, name, !r->llama);
}

static void add_all(struct writer *out)
{
    const struct recipe *r = out->recipe;
    uint32_t embed = r->embed == 0 ? r->hidden : r->embed;
    for (uint32_t layer = 0; layer < r->layers; layer++)
        add_layer(out, layer);
    if (r->llama) {
        add_tensor(out, "model.embed_tokens.weight", r->vocab, r->hidden, 0, 1);
        add_norm(out, "model.norm", false);
    } else {
        add_tensor(out, "model.decoder.embed_tokens.weight", r->vocab, embed, 0, 1);
        add_tensor(out, "model.decoder.embed_positions.weight", r->positions + 2, r->hidden, 0,
                   0.5f);
        if (!r->post_norm)
            add_norm(out, "model.decoder.final_layer_norm", true);
        if (embed != r->hidden) {
            add_linear(out, "model.decoder.project_in", r->hidden, embed, false);
            add_linear(out, "model.decoder.project_out", embed, r->hidden, false);
        }
    }
    if (r->untied)
        add_tensor(out, "lm_head.weight", r->vocab, r->llama ? r->hidden : embed, 0, 0.3f);
    if (r->add != NULL)
        add_tensor(out, r->add, 0, 1, 0, 1);
}

static void write_config(const char *folder, const struct recipe *r)
{
    char path[512];
    (void)snprintf(path, sizeof(path), "%s/config.json", folder);
    FILE *file = fopen(path, "w");
    must(file != NULL, "fopen");
    (void)fprintf(file,
                  "{\"architectures\":[\"%s\"],\"hidden_size\":%" PRIu32
                  ",\"num_hidden_layers\":%" PRIu32 ",\"num_attention_heads\":%" PRIu32
                  ",\"vocab_size\":%" PRIu32 ",\"max_position_embeddings\":%" PRIu32
                  ",\"eos_token_id\":2,\"tie_word_embeddings\":%s,",
                  r->llama ? "LlamaForCausalLM" : "OPTForCausalLM", r->hidden, r->layers, r->heads,
                  r->vocab, r->positions, r->untied ? "false" : "true");
    if (r->llama)
        (void)fprintf(file,
                      "\"intermediate_size\":%" PRIu32 ",\"num_key_value_heads\":%" PRIu32
                      ",\"head_dim\":%" PRIu32 ",\"rms_norm_eps\":1e-5,\"rope_interleaved\":%s}",
                      r->ffn, r->kv_heads, r->head_dim, r->interleaved ? "true" : "false");
    else
        (void)fprintf(file,
                      "\"ffn_dim\":%" PRIu32 ",\"word_embed_proj_dim\":%" PRIu32
                      ",\"activation_function\":\"gelu_new\",\"do_layer_norm_before\":%s}",
                      r->ffn, r->embed == 0 ? r->hidden : r->embed,
                      r->post_norm ? "false" : "true");
    must(fclose(file) == 0, "fclose");
}

void make_model(const char *folder, const struct recipe *recipe)
{
    struct writer *out = calloc(1, sizeof(*out));
    must(out != NULL, "calloc");
    out->recipe = recipe;
    out->random = recipe->seed;
    out->data = tmpfile();
    must(out->data != NULL, "tmpfile");
    out->header[out->header_used++] = '{';
    add_all(out);
    out->header[out->header_used++] = '}';
    write_config(folder, recipe);
    char path[512];
    (void)snprintf(path, sizeof(path), "%s/model.safetensors", folder);
    FILE *file = fopen(path, "wb");
    must(file != NULL, "fopen");
    for (int i = 0; i < 8; i++)
        (void)fputc((int)((uint64_t)out->header_used >> (8 * i) & 255), file);
    must(fwrite(out->header, 1, out->header_used, file) == out->header_used, "write");
    rewind(out->data);
    for (int c = fgetc(out->data); c != EOF; c = fgetc(out->data))
        (void)fputc(c, file);
    must(fclose(file) == 0, "fclose");
    (void)fclose(out->data);
    free(out);
}

void remove_model(const char *folder)
{
    char path[512];
    (void)snprintf(path, sizeof(path), "%s/config.json", folder);
    (void)unlink(path);
    (void)snprintf(path, sizeof(path), "%s/model.safetensors", folder);
    (void)unlink(path);
    (void)rmdir(folder);
}
