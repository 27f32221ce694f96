/* Fuzz target: the text of a model's config.json.
 *
 * Holds: what is accepted satisfies every bound that the loader and the forward pass rely on; what
 * is refused has one line of text and has changed nothing; nothing leaks.
 * Threads: one.
 * Tests: tests/fuzz/replay.c with tests/fuzz/corpus/model_config */
#include "conformance/engine/config.h"
#include "tests/fuzz/fuzz.h"

#include <string.h>

int fuzz_was_accepted;

static void check_accepted(const struct eng_config *config)
{
    FUZZ_CHECK(config->layers >= 1 && config->layers <= ENG_CONFIG_LAYERS_MAX);
    FUZZ_CHECK(config->hidden >= 1 && config->hidden <= ENG_CONFIG_WIDTH_MAX);
    FUZZ_CHECK(config->embed >= 1 && config->embed <= ENG_CONFIG_WIDTH_MAX);
    FUZZ_CHECK(config->ffn >= 1 && config->ffn <= ENG_CONFIG_WIDTH_MAX);
    FUZZ_CHECK(config->vocab >= 1 && config->vocab <= ENG_CONFIG_VOCAB_MAX);
    FUZZ_CHECK(config->positions >= 1 && config->positions <= ENG_CONFIG_POSITIONS_MAX);
    FUZZ_CHECK(config->head_dim >= 1 && config->head_dim <= ENG_CONFIG_HEAD_DIM_MAX);
    FUZZ_CHECK(config->heads >= 1 && config->heads * config->head_dim <= ENG_CONFIG_WIDTH_MAX);
    FUZZ_CHECK(config->kv_heads >= 1 && config->heads % config->kv_heads == 0);
    FUZZ_CHECK(config->norm_eps >= 0 && config->norm_eps <= 1);
    FUZZ_CHECK(config->eos_count <= ENG_CONFIG_EOS_MAX);
    FUZZ_CHECK(!config->has_bos || config->bos < config->vocab);
    for (uint32_t i = 0; i < config->eos_count; i++)
        FUZZ_CHECK(config->eos[i] < config->vocab);
    if (config->family == ENG_FAMILY_OPT) {
        FUZZ_CHECK(config->heads * config->head_dim == config->hidden);
        FUZZ_CHECK(config->kv_heads == config->heads);
        return;
    }
    FUZZ_CHECK(config->head_dim % 2 == 0 && config->rope.theta > 0);
    if (config->rope.llama3) {
        FUZZ_CHECK(config->rope.factor >= 1 && config->rope.low_freq_factor > 0);
        FUZZ_CHECK(config->rope.high_freq_factor > config->rope.low_freq_factor);
        FUZZ_CHECK(config->rope.original_positions >= 1);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct eng_config config;
    struct eng_error error = {0};
    memset(&config, 0x5a, sizeof(config));
    eng_status status = eng_config_parse("config.json", (const char *)data, size, &config, &error);
    fuzz_was_accepted = status == ENG_OK;
    if (status == ENG_OK) {
        check_accepted(&config);
        return 0;
    }
    FUZZ_CHECK(error.code == status && strncmp(error.text, "config.json: ", 13) == 0);
    for (const char *at = error.text; *at != '\0'; at++)
        FUZZ_CHECK((unsigned char)*at >= 0x20 && *at != 0x7f);
    const unsigned char *bytes = (const unsigned char *)&config;
    for (size_t i = 0; i < sizeof(config); i++)
        FUZZ_CHECK(bytes[i] == 0x5a);
    return 0;
}
