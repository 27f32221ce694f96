/* Rows in any described memory: seeded random layouts beside a twin that places one element at a
 * time from the formula in kernels.h; every byte of the memory is compared, so a byte written
 * beside its place is seen. */
#include "kernels/kernels.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define ROUNDS     2000u
#define TOKENS_MAX 24u
#define MEMORY_MAX (1u << 18)
#define ROWS_MAX   (1u << 16)

/* One layout: memory of elements, and rows of elements. */
struct layout {
    struct sc_kernels_memory memory;
    int64_t slots[TOKENS_MAX];
    uint64_t tokens, heads, head_size, row_element_bytes, memory_element_bytes, memory_bytes;
    uint32_t widen;
};

static uint64_t seed;
static uint8_t found[2 * MEMORY_MAX], wanted[2 * MEMORY_MAX], rows[ROWS_MAX], packed[ROWS_MAX];

static uint64_t draw(uint64_t below) /* splitmix64 */
{
    uint64_t z = (seed += 0x9e3779b97f4a7c15u);
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return (z ^ z >> 31) % below;
}

/* Slots are the first of a shuffled range: no two tokens share one. */
static void draw_slots(struct layout *layout, uint64_t slot_count, bool negative)
{
    int64_t order[2 * TOKENS_MAX];
    for (uint64_t i = 0; i < slot_count; i++) {
        uint64_t j = draw(i + 1);
        order[i] = order[j];
        order[j] = (int64_t)i;
    }
    for (uint64_t i = 0; i < layout->tokens; i++)
        layout->slots[i] = negative && draw(4) == 0 ? -1 - (int64_t)draw(9) : order[i];
    layout->memory.slots = layout->slots;
}

static void draw_layout(struct layout *layout, bool negative)
{
    *layout = (struct layout){.tokens = 1 + draw(TOKENS_MAX), .heads = 1 + draw(4)};
    layout->head_size = 1 + draw(20);
    layout->widen = (uint32_t)draw(3);
    layout->row_element_bytes = layout->widen == SC_KERNELS_SAME && draw(2) == 0 ? 4 : 2;
    layout->memory_element_bytes =
        layout->widen == SC_KERNELS_SAME ? layout->row_element_bytes : sizeof(float);
    struct sc_kernels_memory *memory = &layout->memory;
    uint64_t element = layout->memory_element_bytes, slot_count = layout->tokens;
    uint64_t head_bytes = layout->head_size * element;
    memory->head_stride_bytes = head_bytes + (draw(2) == 0 ? 0 : draw(5) * element);
    memory->token_stride_bytes = memory->head_stride_bytes * layout->heads + draw(5) * element;
    bool slots = draw(2) == 0;
    slot_count += slots ? draw(TOKENS_MAX) : 0;
    if (draw(2) == 0) {
        memory->block_tokens = 1 + draw(8);
        memory->block_stride_bytes =
            memory->block_tokens * memory->token_stride_bytes + draw(9) * element;
        uint64_t blocks = (slot_count + memory->block_tokens - 1) / memory->block_tokens;
        layout->memory_bytes = blocks * memory->block_stride_bytes;
    } else {
        layout->memory_bytes = slot_count * memory->token_stride_bytes;
    }
    assert_true(layout->memory_bytes <= MEMORY_MAX);
    if (slots)
        draw_slots(layout, slot_count, negative);
}

/* Where an element stands in the memory, or UINT64_MAX for a skipped token. */
static uint64_t element_offset(const struct layout *layout, uint64_t token, uint64_t part,
                               uint64_t head, uint64_t element)
{
    const struct sc_kernels_memory *memory = &layout->memory;
    int64_t slot = memory->slots == NULL ? (int64_t)token : memory->slots[token];
    if (slot < 0)
        return UINT64_MAX;
    uint64_t block = memory->block_tokens == 0 ? 0 : (uint64_t)slot / memory->block_tokens;
    uint64_t in_block = (uint64_t)slot - block * memory->block_tokens;
    return part * MEMORY_MAX + block * memory->block_stride_bytes +
           in_block * memory->token_stride_bytes + head * memory->head_stride_bytes +
           element * layout->memory_element_bytes;
}

static uint64_t row_offset(const struct layout *layout, uint64_t row, uint64_t part, uint64_t head,
                           uint64_t element)
{
    return (((row * 2 + part) * layout->heads + head) * layout->head_size + element) *
           layout->row_element_bytes;
}

static void twin_unpack(const struct layout *layout, uint64_t first, uint64_t count)
{
    for (uint64_t j = 0; j < count; j++)
        for (uint64_t i = 0; i < 2 * layout->heads * layout->head_size; i++) {
            uint64_t element = i % layout->head_size, head = i / layout->head_size % layout->heads;
            uint64_t part = i / layout->head_size / layout->heads;
            uint64_t to = element_offset(layout, first + j, part, head, element);
            const uint8_t *from = rows + row_offset(layout, j, part, head, element);
            uint16_t half;
            float wide;
            if (to == UINT64_MAX)
                continue;
            memcpy(&half, from, sizeof(half));
            if (layout->widen == SC_KERNELS_F16_TO_F32)
                sc_kernels_ref_widen_f16(&wide, &half, 1);
            else if (layout->widen == SC_KERNELS_BF16_TO_F32)
                sc_kernels_ref_widen_bf16(&wide, &half, 1);
            if (layout->widen == SC_KERNELS_SAME)
                memcpy(wanted + to, from, layout->row_element_bytes);
            else
                memcpy(wanted + to, &wide, sizeof(wide));
        }
}

static void fill(uint8_t *bytes, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++)
        bytes[i] = (uint8_t)draw(256);
}

static void unpacking_writes_what_the_twin_writes_and_nothing_else(void **state)
{
    (void)state;
    for (uint64_t round = 0; round < ROUNDS; round++) {
        struct layout layout;
        seed = round;
        draw_layout(&layout, true);
        uint64_t first = draw(layout.tokens), count = draw(layout.tokens - first + 1);
        fill(rows, row_offset(&layout, count, 0, 0, 0));
        memset(found, 0x5a, sizeof(found));
        memset(wanted, 0x5a, sizeof(wanted));
        layout.memory.k_base = found;
        layout.memory.v_base = found + MEMORY_MAX;
        for (int level = SC_KERNELS_REF; level <= (int)sc_kernels_level_best(); level++) {
            const struct sc_kernels_unpack how = {.kernels =
                                                      sc_kernels_get((enum sc_kernels_level)level),
                                                  .head_count = layout.heads,
                                                  .head_size = layout.head_size,
                                                  .element_bytes = layout.row_element_bytes,
                                                  .widen = layout.widen};
            sc_kernels_rows_unpack(&how, &layout.memory, first, count, rows);
            twin_unpack(&layout, first, count);
            if (memcmp(found, wanted, sizeof(found)) != 0)
                fail_msg("seed %" PRIu64 ", level %d: other bytes than the twin's", round, level);
        }
    }
}

static void packing_gives_each_element_its_place_in_the_row(void **state)
{
    (void)state;
    for (uint64_t round = 0; round < ROUNDS; round++) {
        struct layout layout;
        seed = round;
        draw_layout(&layout, false);
        layout.row_element_bytes = layout.memory_element_bytes; /* packing never converts */
        uint64_t first = draw(layout.tokens), count = draw(layout.tokens - first + 1);
        uint64_t bytes = row_offset(&layout, count, 0, 0, 0);
        fill(found, layout.memory_bytes);
        fill(found + MEMORY_MAX, layout.memory_bytes);
        memset(packed, 0xc3, sizeof(packed));
        memset(rows, 0xc3, sizeof(rows));
        layout.memory.k_base = found;
        layout.memory.v_base = found + MEMORY_MAX;
        sc_kernels_rows_pack(&layout.memory, first, count, layout.heads,
                             layout.head_size * layout.row_element_bytes, packed);
        for (uint64_t at = 0; at < bytes; at += layout.row_element_bytes) {
            uint64_t i = at / layout.row_element_bytes, element = i % layout.head_size;
            uint64_t head = i / layout.head_size % layout.heads;
            uint64_t part = i / layout.head_size / layout.heads % 2;
            uint64_t token = first + i / layout.head_size / layout.heads / 2;
            memcpy(rows + at, found + element_offset(&layout, token, part, head, element),
                   layout.row_element_bytes);
        }
        if (memcmp(packed, rows, sizeof(rows)) != 0)
            fail_msg("seed %" PRIu64 ": other rows than the twin's", round);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(unpacking_writes_what_the_twin_writes_and_nothing_else),
        cmocka_unit_test(packing_gives_each_element_its_place_in_the_row),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
