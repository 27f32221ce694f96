/* config: reads config.json of OPT and Llama models. See config.h. */
#include "conformance/engine/config.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "conformance/engine/json.h"

/* Every getter of one file shares these; the first error stops all that follow. */
struct reader {
    const char *what;
    struct json_object *object;
    eng_status status;
    struct eng_error *reterr;
};

static uint64_t read_u64(struct reader *in, const char *name, uint64_t low, uint64_t high,
                         uint64_t absent)
{
    uint64_t value = absent;
    if (in->status == ENG_OK)
        in->status = eng_json_get_u64(in->what, in->object, name, low, high, &value, in->reterr);
    return value;
}

/* A number that must be there. */
static uint64_t need_u64(struct reader *in, const char *name, uint64_t high)
{
    if (in->status == ENG_OK && eng_json_member(in->object, name) == NULL)
        in->status = eng_fail(in->reterr, ENG_E_INPUT,
                              "%s: %s is missing, expected a whole number from 1 to %" PRIu64,
                              in->what, name, high);
    return read_u64(in, name, 1, high, 1);
}

static double read_real(struct reader *in, const char *name, double low, double high, double absent)
{
    double value = absent;
    if (in->status == ENG_OK)
        in->status = eng_json_get_real(in->what, in->object, name, low, high, &value, in->reterr);
    return value;
}

static bool read_bool(struct reader *in, const char *name, bool absent)
{
    bool value = absent;
    if (in->status == ENG_OK)
        in->status = eng_json_get_bool(in->what, in->object, name, &value, in->reterr);
    return value;
}

static const char *read_string(struct reader *in, const char *name, const char *absent)
{
    const char *value = absent;
    if (in->status == ENG_OK)
        in->status = eng_json_get_string(in->what, in->object, name, &value, in->reterr);
    return value;
}

static void refuse(struct reader *in, const char *name, const char *found, const char *allowed)
{
    if (in->status == ENG_OK)
        in->status = eng_fail(in->reterr, ENG_E_UNSUPPORTED, "%s: %s is %.80s, supported: %s",
                              in->what, name, found, allowed);
}

/* A member that changes the computation in a way that is not done here must be absent or null. */
static void refuse_member(struct reader *in, const char *name)
{
    struct json_object *member = eng_json_member(in->object, name);
    if (member != NULL)
        refuse(in, name, json_object_to_json_string_ext(member, JSON_C_TO_STRING_PLAIN), "null");
}

static void read_family(struct reader *in, struct eng_config *config)
{
    static const char *const allowed = "OPTForCausalLM, LlamaForCausalLM";
    struct json_object *list = eng_json_member(in->object, "architectures");
    if (!json_object_is_type(list, json_type_array) || json_object_array_length(list) != 1 ||
        !json_object_is_type(json_object_array_get_idx(list, 0), json_type_string)) {
        if (in->status == ENG_OK)
            in->status =
                eng_fail(in->reterr, ENG_E_INPUT,
                         "%s: architectures: expected a list of one of: %s", in->what, allowed);
        return;
    }
    const char *name = json_object_get_string(json_object_array_get_idx(list, 0));
    if (strcmp(name, "OPTForCausalLM") == 0)
        config->family = ENG_FAMILY_OPT;
    else if (strcmp(name, "LlamaForCausalLM") == 0)
        config->family = ENG_FAMILY_LLAMA;
    else
        refuse(in, "architectures", name, allowed);
}

/* The stored dtype is the file's; this only refuses a configuration that names an odd one. */
static void read_dtype(struct reader *in, const char *name)
{
    const char *dtype = read_string(in, name, "float32");
    if (strcmp(dtype, "float32") != 0 && strcmp(dtype, "float16") != 0 &&
        strcmp(dtype, "bfloat16") != 0)
        refuse(in, name, dtype, "float32, float16, bfloat16");
}

static void read_eos(struct reader *in, struct eng_config *config)
{
    struct json_object *member = eng_json_member(in->object, "eos_token_id");
    if (in->status != ENG_OK || member == NULL)
        return;
    bool list = json_object_is_type(member, json_type_array);
    size_t count = list ? json_object_array_length(member) : 1;
    for (size_t i = 0; i < count && i < ENG_CONFIG_EOS_MAX; i++) {
        struct json_object *item = list ? json_object_array_get_idx(member, i) : member;
        int64_t id = json_object_is_type(item, json_type_int) ? json_object_get_int64(item) : -1;
        if (id < 0 || (uint64_t)id >= config->vocab) {
            in->status = eng_fail(in->reterr, ENG_E_INPUT,
                                  "%s: eos_token_id: expected ids below vocab_size %" PRIu64,
                                  in->what, config->vocab);
            return;
        }
        config->eos[i] = (uint32_t)id;
        config->eos_count = (uint32_t)i + 1;
    }
    if (count > ENG_CONFIG_EOS_MAX)
        in->status = eng_fail(in->reterr, ENG_E_UNSUPPORTED, "%s: eos_token_id: more than %u ids",
                              in->what, ENG_CONFIG_EOS_MAX);
}

static void read_common(struct reader *in, struct eng_config *config)
{
    read_dtype(in, "dtype");
    read_dtype(in, "torch_dtype");
    refuse_member(in, "quantization_config");
    refuse_member(in, "sliding_window");
    refuse_member(in, "layer_types");
    config->layers = need_u64(in, "num_hidden_layers", ENG_CONFIG_LAYERS_MAX);
    config->hidden = need_u64(in, "hidden_size", ENG_CONFIG_WIDTH_MAX);
    config->heads = need_u64(in, "num_attention_heads", ENG_CONFIG_WIDTH_MAX);
    config->vocab = need_u64(in, "vocab_size", ENG_CONFIG_VOCAB_MAX);
    config->positions = need_u64(in, "max_position_embeddings", ENG_CONFIG_POSITIONS_MAX);
    config->has_bos = eng_json_member(in->object, "bos_token_id") != NULL;
    config->bos = (uint32_t)read_u64(in, "bos_token_id", 0, config->vocab - 1, 0);
    read_eos(in, config);
}

static void read_head_dim(struct reader *in, struct eng_config *config)
{
    bool given = eng_json_member(in->object, "head_dim") != NULL;
    config->head_dim =
        read_u64(in, "head_dim", 1, ENG_CONFIG_HEAD_DIM_MAX, config->hidden / config->heads);
    if (in->status != ENG_OK)
        return;
    if (!given && (config->hidden % config->heads != 0 || config->head_dim == 0))
        in->status = eng_fail(in->reterr, ENG_E_INPUT,
                              "%s: hidden_size %" PRIu64
                              " is not a multiple of num_attention_heads %" PRIu64,
                              in->what, config->hidden, config->heads);
    else if (config->head_dim > ENG_CONFIG_HEAD_DIM_MAX)
        in->status =
            eng_fail(in->reterr, ENG_E_UNSUPPORTED, "%s: head size %" PRIu64 ", at most %u",
                     in->what, config->head_dim, ENG_CONFIG_HEAD_DIM_MAX);
}

static void read_opt(struct reader *in, struct eng_config *config)
{
    static const char *const allowed = "relu, gelu, gelu_new";
    config->ffn = need_u64(in, "ffn_dim", ENG_CONFIG_WIDTH_MAX);
    config->kv_heads = config->heads;
    read_head_dim(in, config);
    if (in->status == ENG_OK && config->head_dim * config->heads != config->hidden)
        in->status = eng_fail(in->reterr, ENG_E_INPUT,
                              "%s: head_dim x num_attention_heads is not hidden_size", in->what);
    config->embed = read_u64(in, "word_embed_proj_dim", 1, ENG_CONFIG_WIDTH_MAX, config->hidden);
    config->norm_before = read_bool(in, "do_layer_norm_before", true);
    config->final_norm = config->norm_before && !read_bool(in, "_remove_final_layer_norm", false);
    config->norm_affine = read_bool(in, "layer_norm_elementwise_affine", true);
    config->attention_bias = config->mlp_bias = read_bool(in, "enable_bias", true);
    config->tied = read_bool(in, "tie_word_embeddings", true);
    config->norm_eps = 1e-5; /* torch's LayerNorm default, which OPT takes */
    const char *activation = read_string(in, "activation_function", "relu");
    if (strcmp(activation, "relu") == 0)
        config->activation = ENG_ACT_RELU;
    else if (strcmp(activation, "gelu") == 0)
        config->activation = ENG_ACT_GELU;
    else if (strcmp(activation, "gelu_new") == 0)
        config->activation = ENG_ACT_GELU_NEW;
    else
        refuse(in, "activation_function", activation, allowed);
}

/* The rotary switches, from `rope_parameters` (transformers 5) or `rope_scaling` (4). */
static void read_rope_type(struct reader *in, struct eng_config *config)
{
    struct eng_rotary *rope = &config->rope;
    const char *type = read_string(in, "rope_type", NULL);
    if (type == NULL)
        type = read_string(in, "type", "default");
    if (strcmp(type, "llama3") == 0)
        rope->llama3 = true;
    else if (strcmp(type, "default") != 0)
        refuse(in, "rope_type", type, "default, llama3");
    if (read_real(in, "partial_rotary_factor", 0, 1, 1) != 1)
        refuse(in, "partial_rotary_factor", "below 1", "1");
    if (!rope->llama3 || in->status != ENG_OK)
        return;
    static const char *const needed[] = {"factor", "low_freq_factor", "high_freq_factor",
                                         "original_max_position_embeddings"};
    for (size_t i = 0; i < sizeof(needed) / sizeof(needed[0]); i++) {
        if (eng_json_member(in->object, needed[i]) == NULL) {
            in->status = eng_fail(in->reterr, ENG_E_INPUT, "%s: rope_type llama3 needs %s",
                                  in->what, needed[i]);
            return;
        }
    }
    rope->factor = read_real(in, "factor", 1, 1e6, 1);
    rope->low_freq_factor = read_real(in, "low_freq_factor", 1e-6, 1e6, 1);
    rope->high_freq_factor = read_real(in, "high_freq_factor", 1e-6, 1e6, 1);
    rope->original_positions =
        read_u64(in, "original_max_position_embeddings", 1, ENG_CONFIG_POSITIONS_MAX, 1);
    if (in->status == ENG_OK && !(rope->high_freq_factor > rope->low_freq_factor))
        in->status = eng_fail(in->reterr, ENG_E_INPUT,
                              "%s: high_freq_factor must be above low_freq_factor", in->what);
}

static void read_rope(struct reader *in, struct eng_config *config)
{
    config->rope.theta = read_real(in, "rope_theta", 1e-3, 1e12, 10000.0);
    config->rope.interleaved = read_bool(in, "rope_interleaved", false);
    struct json_object *outer = in->object;
    static const char *const names[] = {"rope_scaling", "rope_parameters"};
    for (size_t i = 0; i < 2; i++) {
        struct json_object *inner = eng_json_member(outer, names[i]);
        if (inner == NULL || in->status != ENG_OK)
            continue;
        if (!json_object_is_type(inner, json_type_object)) {
            in->status = eng_fail(in->reterr, ENG_E_INPUT, "%s: %s: expected an object or null",
                                  in->what, names[i]);
            return;
        }
        in->object = inner;
        config->rope.theta = read_real(in, "rope_theta", 1e-3, 1e12, config->rope.theta);
        read_rope_type(in, config);
        in->object = outer;
    }
    if (in->status == ENG_OK && config->head_dim % 2 != 0)
        in->status = eng_fail(in->reterr, ENG_E_INPUT,
                              "%s: head size %" PRIu64 " is odd, rotary pairs need an even one",
                              in->what, config->head_dim);
}

static void read_llama(struct reader *in, struct eng_config *config)
{
    config->ffn = need_u64(in, "intermediate_size", ENG_CONFIG_WIDTH_MAX);
    config->kv_heads = read_u64(in, "num_key_value_heads", 1, ENG_CONFIG_WIDTH_MAX, config->heads);
    if (in->status == ENG_OK && config->heads % config->kv_heads != 0)
        in->status = eng_fail(in->reterr, ENG_E_INPUT,
                              "%s: num_attention_heads %" PRIu64
                              " is not a multiple of num_key_value_heads %" PRIu64,
                              in->what, config->heads, config->kv_heads);
    read_head_dim(in, config);
    config->embed = config->hidden;
    config->norm_before = config->final_norm = config->norm_affine = true;
    config->attention_bias = read_bool(in, "attention_bias", false);
    config->mlp_bias = read_bool(in, "mlp_bias", false);
    config->tied = read_bool(in, "tie_word_embeddings", false);
    config->norm_eps = read_real(in, "rms_norm_eps", 0, 1, 1e-6);
    const char *activation = read_string(in, "hidden_act", "silu");
    if (strcmp(activation, "silu") != 0)
        refuse(in, "hidden_act", activation, "silu");
    config->activation = ENG_ACT_SILU;
    read_rope(in, config);
}

static eng_status config_read(const char *what, struct json_object *object,
                              struct eng_config *ret_config, struct eng_error *reterr)
{
    struct reader in = {.what = what, .object = object, .status = ENG_OK, .reterr = reterr};
    struct eng_config config = {0};
    read_family(&in, &config);
    read_common(&in, &config);
    if (in.status == ENG_OK && config.family == ENG_FAMILY_OPT)
        read_opt(&in, &config);
    else if (in.status == ENG_OK)
        read_llama(&in, &config);
    if (in.status == ENG_OK && config.heads * config.head_dim > ENG_CONFIG_WIDTH_MAX)
        in.status = eng_fail(reterr, ENG_E_UNSUPPORTED, "%s: heads x head size is above %u", what,
                             ENG_CONFIG_WIDTH_MAX);
    if (in.status == ENG_OK)
        *ret_config = config;
    return in.status;
}

eng_status eng_config_parse(const char *what, const char *text, uint64_t bytes,
                            struct eng_config *ret_config, struct eng_error *reterr)
{
    struct json_object *object = NULL;
    eng_status status = eng_json_parse(what, text, bytes, &object, reterr);
    if (status == ENG_OK)
        status = config_read(what, object, ret_config, reterr);
    json_object_put(object);
    return status;
}

eng_status eng_config_load(const char *dir, struct eng_config *ret_config, struct eng_error *reterr)
{
    char *path = NULL;
    struct json_object *object = NULL;
    if (asprintf(&path, "%s/config.json", dir) < 0)
        return eng_fail(reterr, ENG_E_NO_MEMORY, "no memory for a path");
    eng_status status = eng_json_load(path, &object, reterr);
    if (status == ENG_OK)
        status = config_read(path, object, ret_config, reterr);
    json_object_put(object);
    free(path);
    return status;
}

bool eng_config_is_eos(const struct eng_config *config, uint32_t token)
{
    for (uint32_t i = 0; i < config->eos_count; i++) {
        if (config->eos[i] == token)
            return true;
    }
    return false;
}
