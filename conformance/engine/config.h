/* config: a model's shape and switches, read from a Hugging Face config.json.
 *
 * Families: OPT (`OPTForCausalLM`) and Llama (`LlamaForCausalLM`), in the spellings of transformers
 * 4 (`rope_theta`, `rope_scaling`, `torch_dtype`) and 5 (`rope_parameters`, `dtype`).
 *
 * Invariants: an accepted model is computed exactly as Hugging Face does. Anything else (another
 * architecture or rotary type, a sliding window, quantised weights) is one clear error. Counts are
 * between 1 and their limits, heads divide, products of two counts fit 64 bits.
 * Threads: any. Tests: tests/unit/engine/test_config.c */
#ifndef CONFORMANCE_ENGINE_CONFIG_H
#define CONFORMANCE_ENGINE_CONFIG_H

#include <stdbool.h>
#include <stdint.h>

#include "conformance/engine/error.h"

#define ENG_CONFIG_LAYERS_MAX    1024u
#define ENG_CONFIG_WIDTH_MAX     (1u << 20) /* hidden, ffn, heads */
#define ENG_CONFIG_HEAD_DIM_MAX  1024u
#define ENG_CONFIG_VOCAB_MAX     (1u << 24)
#define ENG_CONFIG_POSITIONS_MAX (1u << 24)
#define ENG_CONFIG_EOS_MAX       8u

enum eng_family { ENG_FAMILY_OPT, ENG_FAMILY_LLAMA };

enum eng_activation { ENG_ACT_RELU, ENG_ACT_GELU, ENG_ACT_GELU_NEW, ENG_ACT_SILU };

struct eng_rotary {
    double theta;
    bool interleaved; /* pairs (2i, 2i + 1); Hugging Face's order turns (i, i + head_dim / 2) */
    bool llama3;      /* the four members below count */
    double factor, low_freq_factor, high_freq_factor;
    uint64_t original_positions;
};

struct eng_config {
    enum eng_family family;
    uint64_t layers, hidden, ffn, vocab, positions;
    uint64_t heads, kv_heads, head_dim;
    uint64_t embed; /* width of the token table: word_embed_proj_dim, or hidden */
    enum eng_activation activation;
    bool norm_before; /* OPT: layer norms in front of the sub-layers, else behind */
    bool final_norm;
    bool norm_affine;    /* OPT: layer norms have weight and bias */
    bool attention_bias; /* q, k, v and the output projection */
    bool mlp_bias;
    bool tied; /* the head is the token table */
    double norm_eps;
    struct eng_rotary rope; /* Llama */
    bool has_bos;
    uint32_t bos;
    uint32_t eos[ENG_CONFIG_EOS_MAX];
    uint32_t eos_count;
};

/* Reads dir/config.json. */
eng_status eng_config_load(const char *dir, struct eng_config *ret_config,
                           struct eng_error *reterr);

/* The same from text; `what` names it in errors. */
eng_status eng_config_parse(const char *what, const char *text, uint64_t bytes,
                            struct eng_config *ret_config, struct eng_error *reterr);

bool eng_config_is_eos(const struct eng_config *config, uint32_t token);

#endif
