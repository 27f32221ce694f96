/* truth: prompts, the truth about their rows, and described memory. See fixture.h. */
#include "conformance/fixture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GUARD_BYTES 256u

const char *const LAYOUT_NAMES[LAYOUTS] = {
    "packed",           "head-major",      "padded",   "vllm [2][blocks]",
    "vllm [blocks][2]", "blocks [b][h]KV", "vllm cpu", "blocks"};

static uint64_t mix(uint64_t x)
{
    x += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

static void *must_alloc(uint64_t bytes)
{
    void *memory = malloc(bytes > 0 ? bytes : 1);
    if (memory == NULL) {
        fprintf(stderr, "spec-conformance: no memory for %llu bytes\n", (unsigned long long)bytes);
        exit(2);
    }
    return memory;
}

static void make_history(struct prompt *prompt)
{
    uint64_t hash = mix(prompt->salt);
    for (uint64_t i = 0; i < prompt->count; i++)
        prompt->history[i] = hash = mix(hash ^ (prompt->tokens[i] + UINT64_C(1)));
}

struct prompt prompt_make(uint64_t seed, uint64_t count)
{
    struct prompt prompt = {.count = count,
                            .tokens = must_alloc(count * sizeof(uint32_t)),
                            .history = must_alloc(count * sizeof(uint64_t))};
    for (uint64_t i = 0; i < count; i++)
        prompt.tokens[i] = (uint32_t)(mix(seed * 1000003 + i) % 50021);
    make_history(&prompt);
    return prompt;
}

struct prompt prompt_diverge(const struct prompt *from, uint64_t at, uint64_t count, uint64_t seed)
{
    struct prompt prompt = prompt_make(seed, count);
    memcpy(prompt.tokens, from->tokens, (at < count ? at : count) * sizeof(uint32_t));
    if (at < count && at < from->count && prompt.tokens[at] == from->tokens[at])
        prompt.tokens[at] ^= 1;
    prompt_salt(&prompt, from->salt);
    return prompt;
}

void prompt_salt(struct prompt *prompt, uint64_t salt)
{
    prompt->salt = salt;
    make_history(prompt);
}

void prompt_free(struct prompt *prompt)
{
    free(prompt->tokens);
    free(prompt->history);
}

uint64_t dtype_bytes(uint32_t dtype)
{
    return dtype == SPEC_DTYPE_F32 ? 4 : dtype <= SPEC_DTYPE_BF16 ? 2 : 1;
}

uint64_t head_bytes(const struct shape *shape)
{
    return shape->head_size * dtype_bytes(shape->dtype);
}

uint64_t row_bytes(const struct shape *shape)
{
    return shape->heads * head_bytes(shape);
}

/* -64 .. 64; of 8 parts numbers - 1 are the same for all heads. */
static int64_t number_of(const struct prompt *prompt, uint64_t key, uint32_t head)
{
    int64_t shared = (int64_t)prompt->numbers - 1, all = (int64_t)(mix(key) % 129) - 64;
    int64_t own = (int64_t)(mix(key + mix(head + UINT64_C(1))) % 129) - 64;
    return (all * shared + own * (8 - shared)) / 8;
}

double truth_number(const struct prompt *prompt, uint64_t position, uint32_t layer, int value,
                    uint32_t head, uint32_t i)
{
    uint64_t key = mix(prompt->history[position] ^ mix(layer * UINT64_C(2) + (uint64_t)value));
    double number = (double)number_of(prompt, key + i, head) / 64;
    bool is_less = prompt->is_steep || (prompt->is_uneven && number > 0);
    return is_less ? number / (1u << i % 8) : number;
}

/* The number in the dtype, without rounding: it has at most 7 bits. */
static void put_number(double number, uint32_t dtype, uint8_t *dst)
{
    float wide = (float)number;
    uint32_t bits;
    uint16_t narrow;
    memcpy(&bits, &wide, sizeof(bits));
    narrow = (uint16_t)(bits >> 16);
    if (dtype == SPEC_DTYPE_F16) /* another exponent, fewer digits; 0 stays 0 */
        narrow =
            (uint16_t)((bits >> 16 & 0x8000u) |
                       ((bits & 0x7fffffffu) == 0 ? 0 : (bits & 0x7fffffffu) - (112u << 23)) >> 13);
    if (dtype == SPEC_DTYPE_F32)
        memcpy(dst, &wide, sizeof(wide));
    else
        memcpy(dst, &narrow, sizeof(narrow));
}

static void number_row(const struct shape *shape, const struct prompt *prompt, uint64_t position,
                       uint32_t layer, int value, uint8_t *dst)
{
    uint64_t bytes = dtype_bytes(shape->dtype);
    for (uint32_t h = 0; h < shape->heads; h++)
        for (uint32_t i = 0; i < shape->head_size; i++)
            put_number(truth_number(prompt, position, layer, value, h, i), shape->dtype,
                       dst + (h * (uint64_t)shape->head_size + i) * bytes);
}

void truth_row(const struct shape *shape, const struct prompt *prompt, uint64_t position,
               uint32_t layer, int value, uint8_t *dst)
{
    if (prompt->numbers > 0) {
        number_row(shape, prompt, position, layer, value, dst);
        return;
    }
    uint64_t key = mix(prompt->history[position] ^ mix(layer * UINT64_C(2) + (uint64_t)value));
    key ^= position;
    uint64_t bytes = row_bytes(shape);
    for (uint64_t i = 0; i < bytes; i += sizeof(uint64_t)) {
        uint64_t word = mix(key + i);
        memcpy(dst + i, &word, bytes - i < sizeof(word) ? bytes - i : sizeof(word));
    }
}

/* ---- Areas ---- */

/* Slots in an order of their own, no two alike, over twice as many as there are tokens. */
static int64_t *make_slots(uint64_t count, uint64_t slot_count)
{
    int64_t *slots = must_alloc(count * sizeof(*slots));
    for (uint64_t j = 0; j < count; j++)
        slots[j] = (int64_t)((j * 2 + 1) % slot_count);
    for (uint64_t j = count; j > 1; j--) {
        uint64_t other = mix(j) % j;
        int64_t kept = slots[j - 1];
        slots[j - 1] = slots[other];
        slots[other] = kept;
    }
    return slots;
}

static uint64_t describe_blocks(const struct shape *shape, enum layout layout, uint64_t count,
                                struct spec_memory *memory, uint64_t *ret_v_offset)
{
    uint64_t head = head_bytes(shape), row = row_bytes(shape), block_tokens = memory->block_tokens;
    uint64_t blocks = (2 * count + block_tokens) / block_tokens + 1;
    uint64_t plane = block_tokens * row;
    memory->token_stride_bytes = row;
    memory->head_stride_bytes = head;
    memory->block_stride_bytes = layout == LAYOUT_VLLM ? plane : 2 * plane;
    *ret_v_offset = layout == LAYOUT_VLLM ? blocks * plane : plane;
    if (layout == LAYOUT_BLOCKS) { /* a gap of 3 rows behind each block; V behind all K */
        memory->block_stride_bytes = plane + 3 * row;
        *ret_v_offset = blocks * memory->block_stride_bytes;
        return 2 * *ret_v_offset;
    }
    if (layout == LAYOUT_BLOCK_HEADS) { /* [block][head]{ K [token][d], V [token][d] } */
        memory->token_stride_bytes = head;
        memory->head_stride_bytes = 2 * block_tokens * head;
        *ret_v_offset = block_tokens * head;
    }
    if (layout == LAYOUT_COLUMNS) { /* [block][head]{ K [d][token], V [token][d] } */
        memory->token_stride_bytes = dtype_bytes(shape->dtype);
        memory->k_element_stride_bytes = block_tokens * memory->token_stride_bytes;
        memory->v_token_stride_bytes = head;
        memory->head_stride_bytes = 2 * block_tokens * head;
        *ret_v_offset = block_tokens * head;
    }
    return 2 * blocks * plane;
}

static struct area make(const struct shape *shape, enum layout layout, uint64_t count,
                        uint64_t block_tokens)
{
    uint64_t head = head_bytes(shape), row = row_bytes(shape), v_offset = count * row, bytes;
    struct area area = {.count = count,
                        .head_size = shape->head_size,
                        .memory = {.struct_size = sizeof(struct spec_memory),
                                   .dtype = shape->dtype,
                                   .token_stride_bytes = row,
                                   .head_stride_bytes = head}};
    struct spec_memory *memory = &area.memory;
    bytes = 2 * v_offset;
    if (layout == LAYOUT_HEAD_MAJOR) {
        memory->token_stride_bytes = head;
        memory->head_stride_bytes = (count > 0 ? count : 1) * head;
    } else if (layout == LAYOUT_PADDED) {
        memory->head_stride_bytes = head + 8;
        memory->token_stride_bytes = shape->heads * (head + 8) + 24;
        v_offset = count * memory->token_stride_bytes;
        bytes = 2 * v_offset;
    } else if (layout != LAYOUT_PACKED) {
        memory->block_tokens = block_tokens;
        bytes = describe_blocks(shape, layout, count, memory, &v_offset);
    }
    area.byte_count = bytes + 2 * GUARD_BYTES;
    area.bytes = must_alloc(area.byte_count);
    memory->k_base = area.bytes + GUARD_BYTES;
    memory->v_base = area.bytes + GUARD_BYTES + v_offset;
    memory->k_bytes = v_offset < bytes / 2 ? bytes : v_offset;
    memory->v_bytes = bytes - v_offset;
    area_poison(&area);
    return area;
}

struct area area_make(const struct shape *shape, enum layout layout, uint64_t count)
{
    struct area area = make(shape, layout, count, 16);
    if (layout >= LAYOUT_VLLM && layout <= LAYOUT_COLUMNS) {
        area.slots = make_slots(count, 2 * count + 1);
        area.memory.slots = area.slots;
        area.memory.slot_count = count;
    }
    return area;
}

struct area area_columns(const struct shape *shape, uint64_t count, uint64_t block_tokens)
{
    return make(shape, LAYOUT_COLUMNS, count, block_tokens);
}

void area_free(struct area *area)
{
    free(area->bytes);
    free(area->slots);
}

void area_poison(struct area *area)
{
    memset(area->bytes, POISON, area->byte_count);
}

uint8_t *area_element(const struct area *area, uint64_t j, uint32_t head, int value, uint64_t i)
{
    const struct spec_memory *memory = &area->memory;
    uint64_t slot = area->slots != NULL ? (uint64_t)area->slots[j] : j;
    uint64_t offset = head * memory->head_stride_bytes, element = dtype_bytes(memory->dtype);
    uint64_t token = memory->token_stride_bytes;
    if (memory->block_tokens != 0) {
        offset += slot / memory->block_tokens * memory->block_stride_bytes;
        slot %= memory->block_tokens;
    }
    if (value != 0 && memory->v_token_stride_bytes != 0)
        token = memory->v_token_stride_bytes;
    if (value == 0 && memory->k_element_stride_bytes != 0)
        element = memory->k_element_stride_bytes;
    uint8_t *base = value == 0 ? memory->k_base : memory->v_base;
    return base + offset + slot * token + i * element;
}

uint8_t *area_at(const struct area *area, uint64_t j, uint32_t head, int value)
{
    return area_element(area, j, head, value, 0);
}

void area_put(const struct area *area, uint64_t j, uint32_t head, int value, const uint8_t *src)
{
    uint64_t bytes = dtype_bytes(area->memory.dtype);
    for (uint64_t i = 0; i < area->head_size; i++)
        memcpy(area_element(area, j, head, value, i), src + i * bytes, bytes);
}

bool area_has(const struct area *area, uint64_t j, uint32_t head, int value, const uint8_t *src)
{
    uint64_t bytes = dtype_bytes(area->memory.dtype);
    for (uint64_t i = 0; i < area->head_size; i++)
        if (memcmp(area_element(area, j, head, value, i), src + i * bytes, bytes) != 0)
            return false;
    return true;
}

/* Writes rows of truth; tokens with a negative slot are left out. */
static void put_rows(const struct area *area, const struct shape *shape,
                     const struct prompt *prompt, uint64_t first, uint64_t rows, uint32_t layer)
{
    uint8_t *row = must_alloc(row_bytes(shape));
    uint64_t head = head_bytes(shape);
    for (uint64_t j = 0; j < rows; j++)
        for (int value = 0; value < 2; value++) {
            if (area->slots != NULL && area->slots[j] < 0)
                continue;
            truth_row(shape, prompt, first + j, layer, value, row);
            for (uint32_t h = 0; h < shape->heads; h++)
                area_put(area, j, h, value, row + h * head);
        }
    free(row);
}

void area_fill(struct area *area, const struct shape *shape, const struct prompt *prompt,
               uint64_t first, uint32_t layer)
{
    put_rows(area, shape, prompt, first, area->count, layer);
}

struct area area_twin(const struct area *area)
{
    struct area twin = *area;
    twin.bytes = must_alloc(area->byte_count);
    uint64_t k_offset = (uint64_t)((uint8_t *)area->memory.k_base - area->bytes);
    uint64_t v_offset = (uint64_t)((uint8_t *)area->memory.v_base - area->bytes);
    twin.memory.k_base = twin.bytes + k_offset;
    twin.memory.v_base = twin.bytes + v_offset;
    area_poison(&twin);
    return twin;
}

bool area_is_right(const struct area *area, const struct shape *shape, const struct prompt *prompt,
                   uint64_t first, uint64_t rows, uint32_t layer)
{
    struct area twin = area_twin(area);
    put_rows(&twin, shape, prompt, first, rows, layer);
    bool same = memcmp(twin.bytes, area->bytes, area->byte_count) == 0;
    free(twin.bytes);
    return same;
}

void area_expect(const struct area *area, const struct shape *shape, const struct prompt *prompt,
                 uint64_t first, uint64_t rows, uint32_t layer)
{
    struct area twin = area_twin(area);
    put_rows(&twin, shape, prompt, first, rows, layer);
    for (uint64_t i = 0; i < area->byte_count; i++)
        if (twin.bytes[i] != area->bytes[i])
            fail_msg("layer %u, rows of positions %llu + %llu: byte %lld from k_base is %02x, "
                     "expected %02x (%s)",
                     layer, (unsigned long long)first, (unsigned long long)rows,
                     (long long)i - (long long)GUARD_BYTES, area->bytes[i], twin.bytes[i],
                     area->bytes[i] == POISON ? "never written" : "written");
    free(twin.bytes);
}
