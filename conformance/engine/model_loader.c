/* model_loader: checks a model's tensors against the configuration, and widens or packs them.
 *
 * Contract: model_parts.h. Tests: tests/unit/engine/test_model.c */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "conformance/engine/model_parts.h"

#define NAME_BYTES 128

static void shape_text(const struct eng_tensor *tensor, char *text, size_t bytes)
{
    size_t used = (size_t)snprintf(text, bytes, "[");
    for (uint32_t i = 0; i < tensor->rank && used < bytes; i++)
        used += (size_t)snprintf(text + used, bytes - used, "%s%" PRIu64, i == 0 ? "" : ", ",
                                 tensor->shape[i]);
    if (used < bytes)
        (void)snprintf(text + used, bytes - used, "]");
}

/* full: the whole name. */
static eng_status loader_take(struct eng_loader *loader, const char *full, uint64_t rows,
                              uint64_t columns, const struct eng_tensor **ret_tensor,
                              enum eng_dtype *ret_dtype)
{
    struct eng_tensors *tensors = loader->model->tensors;
    const struct eng_tensor *tensor = eng_tensors_find(tensors, full);
    if (tensor == NULL)
        return eng_fail(
            loader->reterr, ENG_E_INPUT, "%s: tensor %s is missing",
            eng_tensors_count(tensors) == 0 ? "weights" : eng_tensors_at(tensors, 0)->path, full);
    bool fits = rows == 0
                    ? tensor->rank == 1 && tensor->shape[0] == columns
                    : tensor->rank == 2 && tensor->shape[0] == rows && tensor->shape[1] == columns;
    if (!fits) {
        char found[160];
        shape_text(tensor, found, sizeof(found));
        char expected[64];
        if (rows == 0)
            (void)snprintf(expected, sizeof(expected), "[%" PRIu64 "]", columns);
        else
            (void)snprintf(expected, sizeof(expected), "[%" PRIu64 ", %" PRIu64 "]", rows, columns);
        return eng_fail(loader->reterr, ENG_E_INPUT,
                        "%s: tensor %s has shape %s, config.json asks for %s", tensor->path, full,
                        found, expected);
    }
    switch (tensor->dtype) {
    case ENG_TENSOR_F32:
        *ret_dtype = ENG_F32;
        break;
    case ENG_TENSOR_F16:
        *ret_dtype = ENG_F16;
        break;
    case ENG_TENSOR_BF16:
        *ret_dtype = ENG_BF16;
        break;
    default:
        return eng_fail(loader->reterr, ENG_E_UNSUPPORTED,
                        "%s: tensor %s is %s, supported: F32, F16, BF16", tensor->path, full,
                        eng_tensor_dtype_name(tensor->dtype));
    }
    loader->taken[tensor - eng_tensors_at(tensors, 0)] = true;
    *ret_tensor = tensor;
    return ENG_OK;
}

eng_status eng_loader_take(struct eng_loader *loader, const char *name, uint64_t rows,
                           uint64_t columns, const struct eng_tensor **ret_tensor,
                           enum eng_dtype *ret_dtype)
{
    char full[NAME_BYTES];
    (void)snprintf(full, sizeof(full), "%s%s", loader->prefix, name);
    return loader_take(loader, full, rows, columns, ret_tensor, ret_dtype);
}

eng_status eng_loader_floats(struct eng_loader *loader, const char *name, uint64_t rows,
                             uint64_t columns, float **ret_floats)
{
    const struct eng_tensor *tensor = NULL;
    enum eng_dtype dtype = ENG_F32;
    eng_status status = eng_loader_take(loader, name, rows, columns, &tensor, &dtype);
    if (status != ENG_OK)
        return status;
    uint64_t count = (rows == 0 ? 1 : rows) * columns; /* fits: the file holds as many */
    float *floats = calloc(count, sizeof(*floats));
    if (floats == NULL)
        return eng_fail(loader->reterr, ENG_E_NO_MEMORY, "no memory for tensor %s", name);
    eng_widen(tensor->data, dtype, count, floats);
    *ret_floats = floats;
    return ENG_OK;
}

static eng_status loader_pack(struct eng_loader *loader, const struct eng_tensor *tensor,
                              enum eng_dtype dtype, struct eng_linear *ret_linear)
{
    eng_status status = eng_weights_pack(loader->model->pool, tensor->data, dtype, tensor->shape[0],
                                         tensor->shape[1], &ret_linear->weights, loader->reterr);
    if (status == ENG_OK)
        loader->model->weight_bytes += eng_weights_bytes(ret_linear->weights);
    return status;
}

eng_status eng_loader_linear(struct eng_loader *loader, const char *name, uint64_t outputs,
                             uint64_t inputs, bool bias, struct eng_linear *ret_linear)
{
    char full[NAME_BYTES];
    const struct eng_tensor *tensor = NULL;
    enum eng_dtype dtype = ENG_F32;
    (void)snprintf(full, sizeof(full), "%s.weight", name);
    eng_status status = eng_loader_take(loader, full, outputs, inputs, &tensor, &dtype);
    if (status == ENG_OK)
        status = loader_pack(loader, tensor, dtype, ret_linear);
    if (status == ENG_OK && bias) {
        (void)snprintf(full, sizeof(full), "%s.bias", name);
        status = eng_loader_floats(loader, full, 0, outputs, &ret_linear->bias);
    }
    return status;
}

eng_status eng_loader_norm(struct eng_loader *loader, const char *name, uint64_t width, bool bias,
                           struct eng_norm *ret_norm)
{
    char full[NAME_BYTES];
    (void)snprintf(full, sizeof(full), "%s.weight", name);
    eng_status status = eng_loader_floats(loader, full, 0, width, &ret_norm->weight);
    if (status == ENG_OK && bias) {
        (void)snprintf(full, sizeof(full), "%s.bias", name);
        status = eng_loader_floats(loader, full, 0, width, &ret_norm->bias);
    }
    return status;
}

eng_status eng_loader_table(struct eng_loader *loader, const char *name)
{
    struct eng_model *model = loader->model;
    const struct eng_config *config = &model->config;
    char full[NAME_BYTES];
    (void)snprintf(full, sizeof(full), "%s.weight", name);
    const struct eng_tensor *head = NULL;
    enum eng_dtype head_dtype = ENG_F32;
    eng_status status = eng_loader_take(loader, full, config->vocab, config->embed, &model->table,
                                        &model->table_dtype);
    if (status != ENG_OK)
        return status;
    if (config->tied)
        return loader_pack(loader, model->table, model->table_dtype, &model->head);
    status =
        loader_take(loader, "lm_head.weight", config->vocab, config->embed, &head, &head_dtype);
    return status == ENG_OK ? loader_pack(loader, head, head_dtype, &model->head) : status;
}
