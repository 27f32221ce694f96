/* Writes small models with random weights, for tests that need any shape, or a spoilt file.
 *
 * Holds: the same recipe and seed give the same bytes.
 * Does not: belong to the engine; a failure to write ends the test program.
 * Threads: one.
 */
#ifndef TESTS_UNIT_ENGINE_MAKE_MODEL_H
#define TESTS_UNIT_ENGINE_MAKE_MODEL_H

#include <stdbool.h>
#include <stdint.h>

#include "conformance/engine/halffloat.h"

struct recipe {
    bool llama; /* else OPT */
    enum eng_dtype dtype;
    uint32_t layers, hidden, ffn, heads, kv_heads, head_dim, vocab, positions;
    uint32_t embed; /* OPT: 0 means hidden */
    bool post_norm; /* OPT */
    bool untied;
    bool interleaved; /* Llama */
    uint64_t seed;
    /* Spoilt files. */
    const char *leave_out; /* a tensor's name ends with it: not written */
    const char *call_i32;  /* a tensor's name ends with it: its dtype is said to be I32 */
    const char *transpose; /* a tensor's name ends with it: its shape is turned round */
    const char *add;       /* a tensor [1] of this name is written too */
};

/* A shape that fits no vector length: prefix of the common ones. */
struct recipe recipe_opt(void);
struct recipe recipe_llama(void);

/* Writes config.json and model.safetensors into the folder. */
void make_model(const char *folder, const struct recipe *recipe);

/* Removes what make_model wrote, and the folder. */
void remove_model(const char *folder);

#endif
