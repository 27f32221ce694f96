/* config.json: both families in both spellings, and one clear error for each wrong or
 * unsupported member.
 *
 * Holds: every refusal starts from a text that is accepted and changes one member.
 * Threads: one.
 */
#include "conformance/engine/config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "conformance/engine/json.h"

static const char *const opt_text =
    "{\"architectures\":[\"OPTForCausalLM\"],\"activation_function\":\"relu\",\"hidden_size\":64,"
    "\"ffn_dim\":192,\"num_hidden_layers\":3,\"num_attention_heads\":4,\"vocab_size\":512,"
    "\"max_position_embeddings\":160,\"word_embed_proj_dim\":32,\"do_layer_norm_before\":true,"
    "\"bos_token_id\":2,\"eos_token_id\":2,\"torch_dtype\":\"float16\"}";

static const char *const llama_text =
    "{\"architectures\":[\"LlamaForCausalLM\"],\"hidden_act\":\"silu\",\"hidden_size\":64,"
    "\"intermediate_size\":160,\"num_hidden_layers\":3,\"num_attention_heads\":8,"
    "\"num_key_value_heads\":2,\"vocab_size\":512,\"max_position_embeddings\":160,"
    "\"rms_norm_eps\":1e-06,\"tie_word_embeddings\":false,\"eos_token_id\":[2,7],"
    "\"dtype\":\"bfloat16\",\"rope_parameters\":{\"rope_type\":\"llama3\",\"factor\":8.0,"
    "\"low_freq_factor\":1.0,\"high_freq_factor\":4.0,\"original_max_position_embeddings\":64,"
    "\"rope_theta\":500000.0}}";

static eng_status parse(const char *text, struct eng_config *config, struct eng_error *error)
{
    return eng_config_parse("config", text, strlen(text), config, error);
}

/* The text with the first `old` replaced by `new_`. */
static const char *changed(const char *text, const char *old, const char *new_)
{
    static char buffer[2048];
    const char *at = strstr(text, old);
    if (at == NULL)
        fail_msg("%s is not in the text", old);
    (void)snprintf(buffer, sizeof(buffer), "%.*s%s%s", (int)(at - text), text, new_,
                   at + strlen(old));
    return buffer;
}

static void reads_opt(void **state)
{
    (void)state;
    struct eng_config config;
    assert_int_equal(parse(opt_text, &config, NULL), ENG_OK);
    assert_int_equal(config.family, ENG_FAMILY_OPT);
    assert_int_equal(config.head_dim, 16);
    assert_int_equal(config.kv_heads, 4);
    assert_int_equal(config.embed, 32);
    assert_int_equal(config.activation, ENG_ACT_RELU);
    assert_true(config.tied && config.final_norm && config.norm_affine && config.attention_bias);
    assert_true(eng_config_is_eos(&config, 2));
    assert_false(eng_config_is_eos(&config, 3));
    assert_int_equal(parse(changed(opt_text, "before\":true", "before\":false"), &config, NULL),
                     ENG_OK);
    assert_false(config.final_norm);
    assert_int_equal(
        parse(changed(opt_text, "\"bos_token_id\":2", "\"enable_bias\":false"), &config, NULL),
        ENG_OK);
    assert_false(config.attention_bias || config.mlp_bias || config.has_bos);
}

static void reads_llama_in_both_spellings(void **state)
{
    (void)state;
    struct eng_config config;
    assert_int_equal(parse(llama_text, &config, NULL), ENG_OK);
    assert_int_equal(config.family, ENG_FAMILY_LLAMA);
    assert_int_equal(config.kv_heads, 2);
    assert_int_equal(config.eos_count, 2);
    assert_true(config.rope.llama3 && !config.rope.interleaved && !config.tied);
    assert_true(config.rope.theta == 500000.0 && config.rope.factor == 8.0);
    assert_int_equal(config.rope.original_positions, 64);
    const char *old = changed(llama_text, "rope_parameters", "rope_scaling");
    assert_int_equal(parse(old, &config, NULL), ENG_OK);
    assert_true(config.rope.llama3 && config.rope.theta == 500000.0);
    old = changed(llama_text, "\"rope_type\":\"llama3\"", "\"type\":\"default\"");
    assert_int_equal(parse(old, &config, NULL), ENG_OK);
    assert_false(config.rope.llama3);
    old = changed(llama_text, "\"eos_token_id\":[2,7]",
                  "\"head_dim\":32,\"rope_interleaved\":true,\"rope_scaling\":null");
    assert_int_equal(parse(old, &config, NULL), ENG_OK);
    assert_int_equal(config.head_dim, 32);
    assert_true(config.rope.interleaved);
}

struct refusal {
    const char *old, *new_, *fragment;
    eng_status status;
};

static void expect_refusals(const char *text, const struct refusal *cases, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        struct eng_config config = {.layers = 99};
        struct eng_error error = {0};
        eng_status status = parse(changed(text, cases[i].old, cases[i].new_), &config, &error);
        if (status != cases[i].status || strstr(error.text, cases[i].fragment) == NULL)
            fail_msg("%s: status %d, \"%s\" expected in: %s", cases[i].new_, status,
                     cases[i].fragment, error.text);
        assert_int_equal(config.layers, 99); /* an error writes no output */
        assert_null(strchr(error.text, '\n'));
    }
}

static void refuses_wrong_members(void **state)
{
    static const struct refusal opt[] = {
        {"{", "[", "bad JSON", ENG_E_INPUT},
        {"64,", "NaN,", "hidden_size is NaN", ENG_E_INPUT},
        {"64,", "64.5,", "hidden_size is 64.5", ENG_E_INPUT},
        {"64,", "\"64\",", "expected a whole number", ENG_E_INPUT},
        {"64,", "-64,", "hidden_size is -64", ENG_E_INPUT},
        {"64,", "0,", "hidden_size is 0", ENG_E_INPUT},
        {"64,", "99999999999999999999,", "expected a whole number", ENG_E_INPUT},
        {"64,", "66,", "not a multiple of num_attention_heads", ENG_E_INPUT},
        {"\"hidden_size\":64,", "", "hidden_size is missing", ENG_E_INPUT},
        {"\"ffn_dim\":192", "\"ffn_dim\":null", "ffn_dim is missing", ENG_E_INPUT},
        {"\"vocab_size\":512", "\"vocab_size\":2", "bos_token_id", ENG_E_INPUT},
        {"_id\":2,\"t", "_id\":512,\"t", "eos_token_id", ENG_E_INPUT},
        {"_id\":2,\"t", "_id\":\"2\",\"t", "eos_token_id", ENG_E_INPUT},
        {"before\":true", "before\":1", "true or false", ENG_E_INPUT},
        {"[\"OPTForCausalLM\"]", "\"OPT\"", "architectures", ENG_E_INPUT},
        {"\"ffn_dim\":192", "\"ffn_dim\":192,\"ffn_dim\":192", "stands twice", ENG_E_INPUT},
        {"OPTForCausalLM", "MistralForCausalLM", "MistralForCausalLM", ENG_E_UNSUPPORTED},
        {"relu", "swish", "activation_function is swish", ENG_E_UNSUPPORTED},
        {"float16", "int8", "torch_dtype is int8", ENG_E_UNSUPPORTED},
        {"\"ffn_dim\"", "\"quantization_config\":{},\"ffn_dim\"", "quantization_config",
         ENG_E_UNSUPPORTED},
    };
    static const struct refusal llama[] = {
        {"heads\":2", "heads\":3", "multiple of num_key_value_heads", ENG_E_INPUT},
        {"1e-06", "NaN", "rms_norm_eps is NaN", ENG_E_INPUT},
        {"1e-06", "-1.0", "rms_norm_eps is -1", ENG_E_INPUT},
        {"500000.0", "0", "rope_theta is 0", ENG_E_INPUT},
        {"500000.0", "Infinity", "rope_theta is Infinity", ENG_E_INPUT},
        {"llama3", "yarn", "rope_type is yarn", ENG_E_UNSUPPORTED},
        {"\"factor\":8.0,", "", "llama3 needs factor", ENG_E_INPUT},
        {"high_freq_factor\":4.0", "high_freq_factor\":1.0", "above low_freq", ENG_E_INPUT},
        {"\"rope_parameters\":{", "\"rope_scaling\":5,\"x\":{", "expected an object", ENG_E_INPUT},
        {"silu", "gelu", "hidden_act is gelu", ENG_E_UNSUPPORTED},
        {"\"hidden_act\"", "\"sliding_window\":4096,\"hidden_act\"", "sliding_window is 4096",
         ENG_E_UNSUPPORTED},
        {"\"hidden_act\"", "\"head_dim\":7,\"hidden_act\"", "odd", ENG_E_INPUT},
        {"\"rope_theta\"", "\"partial_rotary_factor\":0.5,\"rope_theta\"", "partial_rotary",
         ENG_E_UNSUPPORTED},
    };
    (void)state;
    expect_refusals(opt_text, opt, sizeof(opt) / sizeof(opt[0]));
    expect_refusals(llama_text, llama, sizeof(llama) / sizeof(llama[0]));
}

static void refuses_a_text_cut_anywhere(void **state)
{
    (void)state;
    for (size_t bytes = 0; bytes < strlen(llama_text); bytes++) {
        struct eng_config config;
        struct eng_error error = {0};
        assert_int_equal(eng_config_parse("config", llama_text, bytes, &config, &error),
                         ENG_E_INPUT);
        assert_true(error.text[0] != '\0');
    }
}

/* Every 61st character that JSON escapes as a pair, its value's UTF-8 written out here. */
static void surrogate_pairs_are_the_characters_they_name(void **state)
{
    (void)state;
    for (unsigned c = 0x10000; c < 0x110000; c += 61) {
        char text[64];
        char wanted[5] = {(char)(0xf0 | c >> 18), (char)(0x80 | (c >> 12 & 63)),
                          (char)(0x80 | (c >> 6 & 63)), (char)(0x80 | (c & 63)), '\0'};
        struct json_object *value = NULL;
        const char *found = "";
        int bytes = snprintf(text, sizeof(text), "{\"a\": \"\\\\\\u%04x\\u%04X\\\\u\"}",
                             0xd800 + ((c - 0x10000) >> 10), 0xdc00 + (c & 0x3ff));
        assert_int_equal(eng_json_parse("t", text, (uint64_t)bytes, &value, NULL), ENG_OK);
        assert_int_equal(eng_json_get_string("t", value, "a", &found, NULL), ENG_OK);
        assert_true(found[0] == '\\' && memcmp(found + 1, wanted, 4) == 0);
        assert_string_equal(found + 5, "\\u");
        json_object_put(value);
    }
}

static void names_the_missing_file(void **state)
{
    (void)state;
    struct eng_config config;
    struct eng_error error = {0};
    assert_int_equal(eng_config_load("/nonexistent", &config, &error), ENG_E_SYSTEM);
    assert_non_null(strstr(error.text, "/nonexistent/config.json"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_opt),
        cmocka_unit_test(reads_llama_in_both_spellings),
        cmocka_unit_test(refuses_wrong_members),
        cmocka_unit_test(refuses_a_text_cut_anywhere),
        cmocka_unit_test(surrogate_pairs_are_the_characters_they_name),
        cmocka_unit_test(names_the_missing_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
