/* model_parts: the structure of a model, for loaders and the forward pass only.
 *
 * After a load, members that the configuration asks for are set; the others are NULL.
 * Threads: see model.h. Tests: tests/unit/engine/test_model.c, test_golden.c */
#ifndef CONFORMANCE_ENGINE_MODEL_PARTS_H
#define CONFORMANCE_ENGINE_MODEL_PARTS_H

#include <stdbool.h>
#include <stdint.h>

#include "conformance/engine/gemm.h"
#include "conformance/engine/model.h"
#include "conformance/engine/pool.h"
#include "conformance/engine/safetensors.h"

struct eng_linear {
    struct eng_weights *weights;
    float *bias; /* NULL: none */
};

struct eng_norm {
    float *weight; /* NULL: no affine part */
    float *bias;   /* NULL: none */
};

struct eng_layer {
    struct eng_norm attention_norm, mlp_norm;
    struct eng_linear q, k, v, o;
    struct eng_linear gate; /* Llama */
    struct eng_linear up;   /* Llama's up_proj, OPT's fc1 */
    struct eng_linear down; /* Llama's down_proj, OPT's fc2 */
};

struct eng_model {
    /* Set by open, constant after. */
    struct eng_config config;
    struct eng_tensors *tensors; /* maps stay: the token table of an untied model is read there */
    struct eng_pool *pool;
    struct eng_layer *layers;
    struct eng_norm final_norm;
    struct eng_linear head;         /* tied: also the token table */
    const struct eng_tensor *table; /* untied: the token table, in its file */
    enum eng_dtype table_dtype;
    float *positions; /* OPT: [config.positions + 2][hidden] */
    struct eng_linear project_in, project_out;
    float *inv_freq; /* Llama: [head_dim / 2] */
    uint64_t weight_bytes;
    /* One forward at a time. */
    float *scratch;
    uint64_t scratch_bytes;
};

/* Takes tensors by name while a model is loaded and remembers which were taken. */
struct eng_loader {
    struct eng_model *model;
    bool *taken;        /* [tensors] */
    const char *prefix; /* in front of every name but the head's */
    struct eng_error *reterr;
};

/* A float tensor of shape [rows][columns], or [columns] where rows is 0. */
eng_status eng_loader_take(struct eng_loader *loader, const char *name, uint64_t rows,
                           uint64_t columns, const struct eng_tensor **ret_tensor,
                           enum eng_dtype *ret_dtype);

/* The same, widened into memory of its own. */
eng_status eng_loader_floats(struct eng_loader *loader, const char *name, uint64_t rows,
                             uint64_t columns, float **ret_floats);

/* NAME.weight [outputs][inputs], packed, and NAME.bias [outputs] where bias is asked for. */
eng_status eng_loader_linear(struct eng_loader *loader, const char *name, uint64_t outputs,
                             uint64_t inputs, bool bias, struct eng_linear *ret_linear);

/* NAME.weight and, where bias is asked for, NAME.bias, each [width]. */
eng_status eng_loader_norm(struct eng_loader *loader, const char *name, uint64_t width, bool bias,
                           struct eng_norm *ret_norm);

/* Loads NAME.weight [vocab][embed] as the token table: packed as the head where the model is
 * tied, else kept in its file beside the head `lm_head.weight`. */
eng_status eng_loader_table(struct eng_loader *loader, const char *name);

/* Fill every member of the model that their family has. */
eng_status eng_opt_load(struct eng_loader *loader);
eng_status eng_llama_load(struct eng_loader *loader);

#endif
