/* memory: checks described memory. Contract: memory.h. */
#include "plugin/args/memory.h"
#include "hashing/digest.h"
#include "plugin/args/args.h"
#include "plugin/args/dtype_table.h"
#include "plugin/args/target.h"

struct sc_kernels_move sc_plugin_move_of(const struct sc_plugin_shape *shape)
{
    return (struct sc_kernels_move){.head_count = shape->kv_head_count,
                                    .head_size = shape->head_size,
                                    .element_bytes = sc_plugin_dtype_bytes(shape->dtype),
                                    .dtype = sc_plugin_kernels_dtype(shape->dtype),
                                    .row_bytes = shape->row_bytes,
                                    .head_size_v = shape->head_size_v};
}

/* Adds count * stride. Returns false on overflow. */
static bool add_to(uint64_t *end, uint64_t count, uint64_t stride)
{
    uint64_t bytes;
    return !__builtin_mul_overflow(count, stride, &bytes) &&
           !__builtin_add_overflow(*end, bytes, end);
}

/* Returns true if all heads of one slot end inside k_bytes and v_bytes. */
static bool slot_is_inside(const struct spec_memory *memory, uint64_t slot,
                           const struct sc_plugin_memory_need *need)
{
    const struct sc_plugin_shape *shape = need->shape;
    uint64_t element = sc_plugin_dtype_bytes(memory->dtype), heads = shape->kv_head_count - 1;
    uint64_t size_v = need->use == SC_MEMORY_KEYS ? 0 : sc_plugin_head_size_v(shape);
    uint64_t k_end = element, v_end;
    if (memory->block_tokens != 0) {
        if (!add_to(&k_end, slot / memory->block_tokens, memory->block_stride_bytes))
            return false;
        slot %= memory->block_tokens;
    }
    v_end = k_end;
    if (!add_to(&k_end, heads, memory->head_stride_bytes) ||
        !add_to(&k_end, slot, memory->token_stride_bytes) ||
        !add_to(&k_end, shape->head_size - 1, memory->k_element_stride_bytes) ||
        k_end > memory->k_bytes)
        return false;
    return size_v == 0 || (add_to(&v_end, heads, memory->v_head_stride_bytes) &&
                           add_to(&v_end, slot, memory->v_token_stride_bytes) &&
                           add_to(&v_end, size_v - 1, element) && v_end <= memory->v_bytes);
}

static spec_status check_token(const struct spec_memory *memory,
                               const struct sc_plugin_memory_need *need, uint64_t token,
                               struct spec_error *reterr)
{
    uint64_t slot = memory->slots != NULL ? (uint64_t)memory->slots[token] : token;
    if (slot_is_inside(memory, slot, need))
        return SPEC_OK;
    return sc_fail(reterr, SPEC_E_INVALID,
                   "%s: token %" PRIu64 " (slot %" PRIu64 ") reaches beyond k_bytes %" PRIu64
                   " or v_bytes %" PRIu64,
                   need->name, token, slot, memory->k_bytes, memory->v_bytes);
}

static spec_status check_slots(const struct spec_memory *memory,
                               const struct sc_plugin_memory_need *need, bool *ret_has_negative,
                               struct spec_error *reterr)
{
    for (uint64_t j = 0; j < need->token_count; j++) {
        bool is_negative = memory->slots[j] < 0;
        *ret_has_negative = *ret_has_negative || is_negative;
        if (is_negative && need->use == SC_MEMORY_DESTINATION)
            continue;
        if (is_negative)
            return sc_fail(reterr, SPEC_E_INVALID,
                           "%s: slots[%" PRIu64 "] is negative, expected a slot to read from",
                           need->name, j);
        spec_status status = check_token(memory, need, j, reterr);
        if (status != SPEC_OK)
            return status;
    }
    return SPEC_OK;
}

/* Checks two tokens, the last one and the last one of the block before it. Without slots, ends
 * ascend inside a block and from block to block. */
static spec_status check_tokens(const struct spec_memory *memory,
                                const struct sc_plugin_memory_need *need, struct spec_error *reterr)
{
    if (need->token_count == 0)
        return SPEC_OK;
    uint64_t last = need->token_count - 1;
    spec_status status = check_token(memory, need, last, reterr);
    if (status == SPEC_OK && memory->block_tokens != 0 && last >= memory->block_tokens)
        status = check_token(memory, need, last - last % memory->block_tokens - 1, reterr);
    return status;
}

static spec_status check_dtype(uint32_t dtype, const struct sc_plugin_memory_need *need,
                               bool *ret_widens, struct spec_error *reterr)
{
    uint32_t stored_dtype = need->shape->dtype;
    bool may_widen = need->use == SC_MEMORY_DESTINATION && stored_dtype != SPEC_DTYPE_F32 &&
                     sc_plugin_dtype_is_scored(stored_dtype);
    *ret_widens = dtype != stored_dtype;
    if (dtype == stored_dtype || (may_widen && dtype == SPEC_DTYPE_F32))
        return SPEC_OK;
    return sc_fail(reterr, SPEC_E_INVALID,
                   "%s: dtype is %" PRIu32 ", expected the namespace's %" PRIu32 "%s", need->name,
                   dtype, stored_dtype, may_widen ? " or float32 (wider)" : "");
}

/* Replaces 0 in optional strides by its default. */
static void strides_resolve(struct spec_memory *memory, enum sc_plugin_memory_use use)
{
    if (use == SC_MEMORY_KEYS) { /* V is absent or not read */
        memory->v_base = memory->k_base;
        memory->v_bytes = memory->k_bytes;
        memory->v_token_stride_bytes = memory->v_head_stride_bytes = 0;
    }
    if (memory->v_head_stride_bytes == 0)
        memory->v_head_stride_bytes = memory->head_stride_bytes;
    if (memory->v_token_stride_bytes == 0)
        memory->v_token_stride_bytes = memory->token_stride_bytes;
    if (memory->k_element_stride_bytes == 0)
        memory->k_element_stride_bytes = sc_plugin_dtype_bytes(memory->dtype);
}

/* Checks V's base, which is NULL exactly if rows have no V. V may have its own head stride only
 * with its own head size. Kernels for one size use one stride. */
static spec_status check_v(const struct spec_memory *memory,
                           const struct sc_plugin_memory_need *need, struct spec_error *reterr)
{
    uint32_t size_v = sc_plugin_head_size_v(need->shape);
    bool has_v = need->use == SC_MEMORY_KEYS || size_v > 0;
    if (memory->k_base == NULL || (has_v && memory->v_base == NULL))
        return sc_fail(reterr, SPEC_E_INVALID, "%s: k_base or v_base is NULL", need->name);
    if (!has_v && (memory->v_base != NULL || memory->v_bytes != 0))
        return sc_fail(reterr, SPEC_E_INVALID,
                       "%s: v_base %p with %" PRIu64
                       " bytes, expected NULL and 0: the layer's rows have no V",
                       need->name, memory->v_base, memory->v_bytes);
    if (memory->v_head_stride_bytes != memory->head_stride_bytes &&
        size_v == need->shape->head_size)
        return sc_fail(reterr, SPEC_E_INVALID,
                       "%s: v_head_stride_bytes is %" PRIu64 ", expected 0 or %" PRIu64
                       ": V's heads have K's size",
                       need->name, memory->v_head_stride_bytes, memory->head_stride_bytes);
    return SPEC_OK;
}

/* Runs the device's checks; its error text follows the memory's name. */
static spec_status way_check(const struct sc_plugin_memory_need *need,
                             const struct sc_plugin_memory_way *way,
                             const struct spec_memory *memory, struct sc_plugin_memory *checked,
                             struct spec_error *reterr)
{
    struct spec_error error = {.struct_size = sizeof(error)};
    spec_status status = way->check(way->user, memory, checked, &error);
    if (status == SPEC_OK)
        return SPEC_OK;
    return sc_fail(reterr, status, "%s: %s", need->name, error.text);
}

spec_status sc_plugin_memory_check_on(const struct spec_memory *host,
                                      const struct sc_plugin_memory_need *need,
                                      const struct sc_plugin_memory_way *way,
                                      struct sc_plugin_memory *ret_memory,
                                      struct spec_error *reterr)
{
    const char *name = need->name;
    struct spec_memory memory;
    struct sc_plugin_memory checked = {.target = &sc_plugin_target_host};
    spec_status status = sc_plugin_args_read(&memory, &sc_plugin_form_memory, host, name, reterr);
    if (status != SPEC_OK)
        return status;
    bool is_cuda = memory.device == SPEC_DEVICE_CUDA;
    if (is_cuda && way == NULL)
        return sc_fail(reterr, SPEC_E_UNSUPPORTED,
                       "%s: CUDA memory: only loads go there, and stores come from it", name);
    if (!is_cuda && (memory.device != SPEC_DEVICE_HOST || memory.device_index != 0))
        return sc_fail(reterr, SPEC_E_INVALID,
                       "%s: device is %" PRIu32 ", expected SPEC_DEVICE_HOST with index 0", name,
                       memory.device);
    status = check_dtype(memory.dtype, need, &checked.widens, reterr);
    if (status != SPEC_OK)
        return status;
    strides_resolve(&memory, need->use);
    status = check_v(&memory, need, reterr);
    if (status != SPEC_OK)
        return status;
    if (memory.slots != NULL && memory.slot_count < need->token_count)
        return sc_fail(reterr, SPEC_E_INVALID,
                       "%s: slot_count is %" PRIu64 ", expected at least %" PRIu64, name,
                       memory.slot_count, need->token_count);
    uint64_t element_bytes = sc_plugin_dtype_bytes(memory.dtype);
    if (((uintptr_t)memory.k_base | (uintptr_t)memory.v_base | memory.token_stride_bytes |
         memory.head_stride_bytes | memory.block_stride_bytes | memory.v_token_stride_bytes |
         memory.k_element_stride_bytes | memory.v_head_stride_bytes) %
            element_bytes !=
        0)
        return sc_fail(reterr, SPEC_E_INVALID,
                       "%s: bases and strides must be multiples of the element's %" PRIu64 " bytes",
                       name, element_bytes);
    status = memory.slots != NULL ? check_slots(&memory, need, &checked.has_negative_slot, reterr)
                                  : check_tokens(&memory, need, reterr);
    if (status != SPEC_OK)
        return status;
    checked.at = (struct sc_kernels_memory){
        .k_base = memory.k_base,
        .v_base = memory.v_base,
        .token_stride_bytes = memory.token_stride_bytes,
        .head_stride_bytes = memory.head_stride_bytes,
        .block_tokens = memory.block_tokens,
        .block_stride_bytes = memory.block_stride_bytes,
        .slots = memory.slots,
        .v_token_stride_bytes = memory.v_token_stride_bytes,
        .k_element_stride_bytes =
            memory.k_element_stride_bytes != element_bytes ? memory.k_element_stride_bytes : 0,
        .element_bytes = element_bytes,
        .v_head_stride_bytes =
            memory.v_head_stride_bytes != memory.head_stride_bytes ? memory.v_head_stride_bytes : 0,
    };
    if (is_cuda)
        status = way_check(need, way, &memory, &checked, reterr);
    if (status == SPEC_OK)
        *ret_memory = checked;
    return status;
}

spec_status sc_plugin_memory_check(const struct spec_memory *host,
                                   const struct sc_plugin_memory_need *need,
                                   struct sc_plugin_memory *ret_memory, struct spec_error *reterr)
{
    return sc_plugin_memory_check_on(host, need, NULL, ret_memory, reterr);
}

uint64_t sc_plugin_memory_digest(const struct sc_plugin_memory *memory, uint64_t token_count)
{
    const struct sc_kernels_memory *at = &memory->at;
    const uint64_t numbers[] = {at->token_stride_bytes,     at->head_stride_bytes,
                                at->block_tokens,           at->block_stride_bytes,
                                at->k_element_stride_bytes, at->v_token_stride_bytes,
                                at->v_head_stride_bytes,    memory->widens};
    uint64_t digest = sc_hash_bytes64(numbers, sizeof(numbers), at->slots != NULL);
    if (at->slots != NULL)
        digest = sc_hash_bytes64(at->slots, token_count * sizeof(int64_t), digest);
    return digest;
}
