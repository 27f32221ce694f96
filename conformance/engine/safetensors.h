/* safetensors: reads safetensors files: named tensors, mapped read-only and checked at open.
 *
 *   +--------+----------------------------+--------------------------------+
 *   | 8 byte | header: JSON, `n` bytes    | data: tensors back to back     |
 *   | LE n   | name -> dtype shape offsets| offsets count from here        |
 *   +--------+----------------------------+--------------------------------+
 *
 * A model is `model.safetensors`, or shards named by `model.safetensors.index.json`.
 *
 * Invariants: every tensor is inside its file and has shape x dtype bytes. Tensors do not overlap,
 * leave no hole and end at the file's end. No name occurs twice, in a file or over shards; the
 * index and the shards name the same tensors. `data` may be unaligned for its dtype.
 * Threads: open and close by one; any may read. Tests: tests/unit/engine/test_safetensors.c */
#ifndef CONFORMANCE_ENGINE_SAFETENSORS_H
#define CONFORMANCE_ENGINE_SAFETENSORS_H

#include <stdint.h>

#include "conformance/engine/error.h"

#define ENG_TENSOR_RANK_MAX   8
#define ENG_TENSOR_HEADER_MAX (100u << 20) /* bytes; the format's own limit is 100 MB */

enum eng_tensor_dtype {
    ENG_TENSOR_F32,
    ENG_TENSOR_F16,
    ENG_TENSOR_BF16,
    ENG_TENSOR_F64,
    ENG_TENSOR_I64,
    ENG_TENSOR_I32,
    ENG_TENSOR_I16,
    ENG_TENSOR_I8,
    ENG_TENSOR_U64,
    ENG_TENSOR_U32,
    ENG_TENSOR_U16,
    ENG_TENSOR_U8,
    ENG_TENSOR_BOOL,
    ENG_TENSOR_F8_E4M3,
    ENG_TENSOR_F8_E5M2,
    ENG_TENSOR_DTYPES
};

struct eng_tensor {
    const char *name;
    const char *path; /* the file it stands in, for errors */
    enum eng_tensor_dtype dtype;
    uint32_t rank;
    uint64_t shape[ENG_TENSOR_RANK_MAX];
    const uint8_t *data;
    uint64_t bytes;
};

struct eng_tensors;

/* Opens the model in directory `dir`: model.safetensors, else the index and its shards. */
eng_status eng_tensors_open(const char *dir, struct eng_tensors **ret_tensors,
                            struct eng_error *reterr);

/* Opens one file. */
eng_status eng_tensors_open_file(const char *path, struct eng_tensors **ret_tensors,
                                 struct eng_error *reterr);

void eng_tensors_close(struct eng_tensors *tensors);

uint64_t eng_tensors_count(const struct eng_tensors *tensors);

/* In order of names. */
const struct eng_tensor *eng_tensors_at(const struct eng_tensors *tensors, uint64_t index);

/* NULL: no tensor of that name. */
const struct eng_tensor *eng_tensors_find(const struct eng_tensors *tensors, const char *name);

const char *eng_tensor_dtype_name(enum eng_tensor_dtype dtype);
uint64_t eng_tensor_dtype_bytes(enum eng_tensor_dtype dtype);

#endif
