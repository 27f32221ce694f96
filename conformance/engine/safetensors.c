/* safetensors: safetensors files and shards. See safetensors.h. */
#include "conformance/engine/safetensors.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "conformance/engine/json.h"
#include "conformance/engine/mapfile.h"

#define SHARDS_MAX 4096

struct shard {
    char *path;
    const char *file; /* inside path: the part after the directory */
    struct eng_mapfile map;
    struct json_object *header; /* owns the tensors' names */
};

struct eng_tensors {
    struct shard *shards;
    uint64_t shard_count;
    struct eng_tensor *tensors; /* sorted by name */
    uint64_t count;
};

static const struct {
    const char *name;
    uint64_t bytes;
} dtypes[ENG_TENSOR_DTYPES] = {
    [ENG_TENSOR_F32] = {"F32", 4},         [ENG_TENSOR_F16] = {"F16", 2},
    [ENG_TENSOR_BF16] = {"BF16", 2},       [ENG_TENSOR_F64] = {"F64", 8},
    [ENG_TENSOR_I64] = {"I64", 8},         [ENG_TENSOR_I32] = {"I32", 4},
    [ENG_TENSOR_I16] = {"I16", 2},         [ENG_TENSOR_I8] = {"I8", 1},
    [ENG_TENSOR_U64] = {"U64", 8},         [ENG_TENSOR_U32] = {"U32", 4},
    [ENG_TENSOR_U16] = {"U16", 2},         [ENG_TENSOR_U8] = {"U8", 1},
    [ENG_TENSOR_BOOL] = {"BOOL", 1},       [ENG_TENSOR_F8_E4M3] = {"F8_E4M3", 1},
    [ENG_TENSOR_F8_E5M2] = {"F8_E5M2", 1},
};

const char *eng_tensor_dtype_name(enum eng_tensor_dtype dtype)
{
    return dtype < ENG_TENSOR_DTYPES ? dtypes[dtype].name : "?";
}

uint64_t eng_tensor_dtype_bytes(enum eng_tensor_dtype dtype)
{
    return dtype < ENG_TENSOR_DTYPES ? dtypes[dtype].bytes : 0;
}

static int tensor_by_name(const void *a, const void *b)
{
    return strcmp(((const struct eng_tensor *)a)->name, ((const struct eng_tensor *)b)->name);
}

static int tensor_by_place(const void *a, const void *b)
{
    const struct eng_tensor *left = a;
    const struct eng_tensor *right = b;
    if (left->data != right->data)
        return left->data < right->data ? -1 : 1;
    return left->bytes < right->bytes ? -1 : left->bytes > right->bytes;
}

/* The tensor's name may be long or hold odd characters: errors show its first 100 bytes. */
static eng_status tensor_wrong(const struct eng_tensor *tensor, const char *text,
                               struct eng_error *reterr)
{
    return eng_fail(reterr, ENG_E_INPUT, "%s: tensor %.100s: %s", tensor->path, tensor->name, text);
}

static eng_status tensor_read_dtype(struct json_object *entry, struct eng_tensor *tensor,
                                    struct eng_error *reterr)
{
    struct json_object *dtype = eng_json_member(entry, "dtype");
    if (!json_object_is_type(dtype, json_type_string))
        return tensor_wrong(tensor, "no dtype, expected a string such as F16", reterr);
    const char *name = json_object_get_string(dtype);
    for (int i = 0; i < ENG_TENSOR_DTYPES; i++) {
        if (strcmp(dtypes[i].name, name) == 0) {
            tensor->dtype = (enum eng_tensor_dtype)i;
            return ENG_OK;
        }
    }
    return eng_fail(reterr, ENG_E_UNSUPPORTED, "%s: tensor %.100s: dtype %.20s is not known",
                    tensor->path, tensor->name, name);
}

/* Fills rank and shape, and gives the bytes that shape and dtype ask for. */
static eng_status tensor_read_shape(struct json_object *entry, struct eng_tensor *tensor,
                                    uint64_t *ret_bytes, struct eng_error *reterr)
{
    struct json_object *shape = eng_json_member(entry, "shape");
    if (!json_object_is_type(shape, json_type_array))
        return tensor_wrong(tensor, "no shape, expected an array of whole numbers", reterr);
    size_t rank = json_object_array_length(shape);
    if (rank > ENG_TENSOR_RANK_MAX)
        return tensor_wrong(tensor, "more than 8 dimensions", reterr);
    uint64_t bytes = dtypes[tensor->dtype].bytes;
    for (size_t i = 0; i < rank; i++) {
        struct json_object *dim = json_object_array_get_idx(shape, i);
        if (!json_object_is_type(dim, json_type_int) || json_object_get_int64(dim) < 0)
            return tensor_wrong(tensor, "shape holds something else than whole numbers", reterr);
        tensor->shape[i] = json_object_get_uint64(dim);
        if (__builtin_mul_overflow(bytes, tensor->shape[i], &bytes))
            return tensor_wrong(tensor, "shape x dtype overflows 64 bits", reterr);
    }
    tensor->rank = (uint32_t)rank;
    *ret_bytes = bytes;
    return ENG_OK;
}

static eng_status tensor_read(const char *name, struct json_object *entry,
                              const struct shard *shard, uint64_t data_start,
                              struct eng_tensor *tensor, struct eng_error *reterr)
{
    tensor->name = name;
    tensor->path = shard->path;
    if (!json_object_is_type(entry, json_type_object))
        return tensor_wrong(tensor, "expected an object of dtype, shape and data_offsets", reterr);
    eng_status status = tensor_read_dtype(entry, tensor, reterr);
    if (status != ENG_OK)
        return status;
    uint64_t bytes_expected = 0;
    status = tensor_read_shape(entry, tensor, &bytes_expected, reterr);
    if (status != ENG_OK)
        return status;
    struct json_object *offsets = eng_json_member(entry, "data_offsets");
    if (!json_object_is_type(offsets, json_type_array) || json_object_array_length(offsets) != 2)
        return tensor_wrong(tensor, "no data_offsets, expected [begin, end]", reterr);
    uint64_t place[2];
    for (size_t i = 0; i < 2; i++) {
        struct json_object *offset = json_object_array_get_idx(offsets, i);
        if (!json_object_is_type(offset, json_type_int) || json_object_get_int64(offset) < 0)
            return tensor_wrong(tensor, "data_offsets are not whole numbers", reterr);
        place[i] = json_object_get_uint64(offset);
    }
    uint64_t data_bytes = shard->map.bytes - data_start;
    if (place[0] > place[1] || place[1] > data_bytes)
        return eng_fail(reterr, ENG_E_INPUT,
                        "%s: tensor %.100s: bytes %" PRIu64 " to %" PRIu64
                        " do not lie in the file's %" PRIu64 " data bytes (truncated?)",
                        tensor->path, name, place[0], place[1], data_bytes);
    if (place[1] - place[0] != bytes_expected)
        return eng_fail(reterr, ENG_E_INPUT,
                        "%s: tensor %.100s: has %" PRIu64
                        " bytes, its shape and dtype need %" PRIu64,
                        tensor->path, name, place[1] - place[0], bytes_expected);
    tensor->data = shard->map.data + data_start + place[0];
    tensor->bytes = bytes_expected;
    return ENG_OK;
}

/* Tensors of one file must tile its data bytes. */
static eng_status shard_check_tiling(const struct shard *shard, uint64_t data_start,
                                     struct eng_tensor *tensors, uint64_t count,
                                     struct eng_error *reterr)
{
    qsort(tensors, count, sizeof(*tensors), tensor_by_place);
    const uint8_t *end = shard->map.data + data_start;
    for (uint64_t i = 0; i < count; i++) {
        if (tensors[i].data < end)
            return tensor_wrong(&tensors[i], "overlaps the tensor before it", reterr);
        if (tensors[i].data > end)
            return tensor_wrong(&tensors[i], "a hole stands before its data", reterr);
        end = tensors[i].data + tensors[i].bytes;
    }
    uint64_t left = (uint64_t)(shard->map.data + shard->map.bytes - end);
    if (left != 0)
        return eng_fail(reterr, ENG_E_INPUT, "%s: %" PRIu64 " bytes follow the last tensor",
                        shard->path, left);
    return ENG_OK;
}

static eng_status shard_read_tensors(struct eng_tensors *set, const struct shard *shard,
                                     uint64_t data_start, struct eng_error *reterr)
{
    uint64_t entries = (uint64_t)json_object_object_length(shard->header);
    struct eng_tensor *grown = reallocarray(set->tensors, set->count + entries + 1, sizeof(*grown));
    if (grown == NULL)
        return eng_fail(reterr, ENG_E_NO_MEMORY, "%s: no memory for %" PRIu64 " tensors",
                        shard->path, entries);
    set->tensors = grown;
    struct eng_tensor *first = grown + set->count;
    uint64_t count = 0;
    json_object_object_foreach(shard->header, name, entry)
    {
        if (strcmp(name, "__metadata__") == 0)
            continue;
        first[count] = (struct eng_tensor){0};
        eng_status status = tensor_read(name, entry, shard, data_start, &first[count], reterr);
        if (status != ENG_OK)
            return status;
        count++;
    }
    eng_status status = shard_check_tiling(shard, data_start, first, count, reterr);
    if (status == ENG_OK)
        set->count += count;
    return status;
}

/* Opens path as the set's next shard; takes path, also when it fails. */
static eng_status tensors_add_shard(struct eng_tensors *set, char *path, struct eng_error *reterr)
{
    struct shard *shard = &set->shards[set->shard_count++]; /* close frees what is filled in */
    shard->path = path;
    const char *slash = strrchr(path, '/');
    shard->file = slash == NULL ? path : slash + 1;
    eng_status status = eng_mapfile_open(path, &shard->map, reterr);
    if (status != ENG_OK)
        return status;
    if (shard->map.bytes < 8)
        return eng_fail(reterr, ENG_E_INPUT,
                        "%s: %" PRIu64 " bytes, expected at least the 8 of a header length", path,
                        shard->map.bytes);
    uint64_t header_bytes = 0;
    for (int i = 7; i >= 0; i--)
        header_bytes = header_bytes << 8 | shard->map.data[i];
    if (header_bytes > ENG_TENSOR_HEADER_MAX)
        return eng_fail(reterr, ENG_E_INPUT, "%s: header of %" PRIu64 " bytes, at most %u", path,
                        header_bytes, ENG_TENSOR_HEADER_MAX);
    if (header_bytes > shard->map.bytes - 8)
        return eng_fail(reterr, ENG_E_INPUT,
                        "%s: header of %" PRIu64 " bytes in a file of %" PRIu64 " (truncated?)",
                        path, header_bytes, shard->map.bytes);
    status = eng_json_parse(path, (const char *)shard->map.data + 8, header_bytes, &shard->header,
                            reterr);
    if (status != ENG_OK)
        return status;
    return shard_read_tensors(set, shard, 8 + header_bytes, reterr);
}

static eng_status tensors_new(uint64_t shards, struct eng_tensors **ret_set,
                              struct eng_error *reterr)
{
    struct eng_tensors *set = calloc(1, sizeof(*set));
    if (set != NULL)
        set->shards = calloc(shards + 1, sizeof(*set->shards));
    if (set == NULL || set->shards == NULL) {
        free(set);
        return eng_fail(reterr, ENG_E_NO_MEMORY, "no memory for a list of tensors");
    }
    *ret_set = set;
    return ENG_OK;
}

static eng_status tensors_sort(struct eng_tensors *set, struct eng_error *reterr)
{
    if (set->count != 0)
        qsort(set->tensors, set->count, sizeof(*set->tensors), tensor_by_name);
    for (uint64_t i = 1; i < set->count; i++) {
        if (strcmp(set->tensors[i - 1].name, set->tensors[i].name) == 0)
            return eng_fail(reterr, ENG_E_INPUT, "tensor %.100s stands in %s and in %s",
                            set->tensors[i].name, set->tensors[i - 1].path, set->tensors[i].path);
    }
    return ENG_OK;
}

eng_status eng_tensors_open_file(const char *path, struct eng_tensors **ret_tensors,
                                 struct eng_error *reterr)
{
    struct eng_tensors *set = NULL;
    eng_status status = tensors_new(1, &set, reterr);
    if (status != ENG_OK)
        return status;
    char *copy = strdup(path);
    status = copy == NULL ? eng_fail(reterr, ENG_E_NO_MEMORY, "no memory for a path")
                          : tensors_add_shard(set, copy, reterr);
    if (status == ENG_OK)
        status = tensors_sort(set, reterr);
    if (status != ENG_OK) {
        eng_tensors_close(set);
        return status;
    }
    *ret_tensors = set;
    return ENG_OK;
}

static bool tensors_has_shard(const struct eng_tensors *set, const char *file)
{
    for (uint64_t i = 0; i < set->shard_count; i++) {
        if (strcmp(set->shards[i].file, file) == 0)
            return true;
    }
    return false;
}

/* Opens each file that the map names, once. */
static eng_status index_open_shards(const char *dir, const char *index_path,
                                    struct json_object *map, struct eng_tensors *set,
                                    struct eng_error *reterr)
{
    json_object_object_foreach(map, name, value)
    {
        const char *file =
            json_object_is_type(value, json_type_string) ? json_object_get_string(value) : "";
        if (file[0] == '\0' || file[0] == '.' || strchr(file, '/') != NULL)
            return eng_fail(reterr, ENG_E_INPUT,
                            "%s: tensor %.100s: expected the name of a file in the same folder",
                            index_path, name);
        if (tensors_has_shard(set, file))
            continue;
        if (set->shard_count == SHARDS_MAX)
            return eng_fail(reterr, ENG_E_UNSUPPORTED, "%s: more than %d shards", index_path,
                            SHARDS_MAX);
        char *path = NULL;
        if (asprintf(&path, "%s/%s", dir, file) < 0)
            return eng_fail(reterr, ENG_E_NO_MEMORY, "no memory for a path");
        eng_status status = tensors_add_shard(set, path, reterr);
        if (status != ENG_OK)
            return status;
    }
    return ENG_OK;
}

/* The map and the shards must name the same tensors, each in the same file. */
static eng_status index_check(const char *index_path, struct json_object *map,
                              const struct eng_tensors *set, struct eng_error *reterr)
{
    json_object_object_foreach(map, name, value)
    {
        const struct eng_tensor *tensor = eng_tensors_find(set, name);
        const char *file = json_object_get_string(value);
        const char *slash = tensor == NULL ? NULL : strrchr(tensor->path, '/');
        if (slash == NULL || strcmp(slash + 1, file) != 0)
            return eng_fail(reterr, ENG_E_INPUT, "%s: tensor %.100s is not in %.100s", index_path,
                            name, file);
    }
    if ((uint64_t)json_object_object_length(map) != set->count)
        return eng_fail(reterr, ENG_E_INPUT, "%s: names %d tensors, its shards hold %" PRIu64,
                        index_path, json_object_object_length(map), set->count);
    return ENG_OK;
}

static eng_status tensors_open_index(const char *dir, const char *index_path,
                                     struct eng_tensors **ret_tensors, struct eng_error *reterr)
{
    struct json_object *index = NULL;
    struct eng_tensors *set = NULL;
    eng_status status = eng_json_load(index_path, &index, reterr);
    if (status != ENG_OK)
        return status;
    struct json_object *map = eng_json_member(index, "weight_map");
    if (!json_object_is_type(map, json_type_object))
        status = eng_fail(reterr, ENG_E_INPUT, "%s: no weight_map, expected an object", index_path);
    if (status == ENG_OK)
        status = tensors_new(SHARDS_MAX, &set, reterr);
    if (status == ENG_OK)
        status = index_open_shards(dir, index_path, map, set, reterr);
    if (status == ENG_OK)
        status = tensors_sort(set, reterr);
    if (status == ENG_OK)
        status = index_check(index_path, map, set, reterr);
    json_object_put(index);
    if (status != ENG_OK) {
        eng_tensors_close(set);
        return status;
    }
    *ret_tensors = set;
    return ENG_OK;
}

eng_status eng_tensors_open(const char *dir, struct eng_tensors **ret_tensors,
                            struct eng_error *reterr)
{
    char *single = NULL;
    char *index = NULL;
    eng_status status = ENG_OK;
    if (asprintf(&single, "%s/model.safetensors", dir) < 0)
        return eng_fail(reterr, ENG_E_NO_MEMORY, "no memory for a path");
    if (asprintf(&index, "%s/model.safetensors.index.json", dir) < 0) {
        free(single);
        return eng_fail(reterr, ENG_E_NO_MEMORY, "no memory for a path");
    }
    if (access(single, F_OK) == 0)
        status = eng_tensors_open_file(single, ret_tensors, reterr);
    else if (access(index, F_OK) == 0)
        status = tensors_open_index(dir, index, ret_tensors, reterr);
    else
        status = eng_fail(reterr, ENG_E_INPUT,
                          "%s: no model.safetensors and no model.safetensors.index.json", dir);
    free(index);
    free(single);
    return status;
}

void eng_tensors_close(struct eng_tensors *tensors)
{
    if (tensors == NULL)
        return;
    for (uint64_t i = 0; i < tensors->shard_count; i++) {
        json_object_put(tensors->shards[i].header);
        eng_mapfile_close(&tensors->shards[i].map);
        free(tensors->shards[i].path);
    }
    free(tensors->shards);
    free(tensors->tensors);
    free(tensors);
}

uint64_t eng_tensors_count(const struct eng_tensors *tensors)
{
    return tensors->count;
}

const struct eng_tensor *eng_tensors_at(const struct eng_tensors *tensors, uint64_t index)
{
    return index < tensors->count ? &tensors->tensors[index] : NULL;
}

const struct eng_tensor *eng_tensors_find(const struct eng_tensors *tensors, const char *name)
{
    struct eng_tensor key = {.name = name};
    if (tensors->count == 0)
        return NULL;
    return bsearch(&key, tensors->tensors, tensors->count, sizeof(key), tensor_by_name);
}
