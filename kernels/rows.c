/* Packing rows out of, and unpacking rows into, memory that struct spec_memory describes. Pure
 * address arithmetic and memcpy: the widening inside is the table's. Compacting goes upward: row r
 * comes from a slot at or behind r, so nothing is overwritten before it moved.
 *
 * Threads: any. Tests: tests/unit/kernels/test_rows.c */
#include "base/stream.h"
#include "kernels/select.h"

#include <stdbool.h>
#include <string.h>

#define LINE_BYTES 64u
#define WIDE_COUNT 1024u /* floats that are widened on the stack, then streamed */

static uint64_t slot_offset(const struct sc_kernels_memory *memory, uint64_t slot)
{
    if (memory->block_tokens == 0)
        return slot * memory->token_stride_bytes;
    return slot / memory->block_tokens * memory->block_stride_bytes +
           slot % memory->block_tokens * memory->token_stride_bytes;
}

void sc_kernels_rows_pack(const struct sc_kernels_memory *memory, uint64_t token_first,
                          uint64_t token_count, uint64_t head_count, uint64_t head_bytes,
                          uint8_t *dst)
{
    uint64_t part_bytes = head_count * head_bytes;
    bool whole = memory->head_stride_bytes == head_bytes;
    for (uint64_t j = token_first; j < token_first + token_count; j++) {
        uint64_t slot = memory->slots ? (uint64_t)memory->slots[j] : j;
        uint64_t offset = slot_offset(memory, slot);
        for (uint32_t part = 0; part < 2; part++, dst += part_bytes) {
            const uint8_t *src = (part ? memory->v_base : memory->k_base) + offset;
            if (whole) {
                memcpy(dst, src, part_bytes);
                continue;
            }
            for (uint64_t h = 0; h < head_count; h++)
                memcpy(dst + h * head_bytes, src + h * memory->head_stride_bytes, head_bytes);
        }
    }
}

static void widen(const struct sc_kernels_unpack *how, float *dst, const uint8_t *src,
                  uint64_t count)
{
    if (how->widen == SC_KERNELS_F16_TO_F32)
        how->kernels->widen_f16(dst, (const uint16_t *)(const void *)src, count);
    else
        how->kernels->widen_bf16(dst, (const uint16_t *)(const void *)src, count);
}

static void place(const struct sc_kernels_unpack *how, uint8_t *dst, const uint8_t *src,
                  uint64_t count)
{
    float wide[WIDE_COUNT];
    if (how->widen == SC_KERNELS_SAME && how->streams)
        sc_stream_copy(dst, src, count * how->element_bytes);
    else if (how->widen == SC_KERNELS_SAME)
        memcpy(dst, src, count * how->element_bytes);
    else if (!how->streams)
        widen(how, (float *)(void *)dst, src, count);
    else
        for (uint64_t done = 0, now; done < count; done += now) {
            now = count - done < WIDE_COUNT ? count - done : WIDE_COUNT;
            widen(how, wide, src + done * how->element_bytes, now);
            sc_stream_copy(dst + done * sizeof(float), (const uint8_t *)wide, now * sizeof(float));
        }
}

/* Parts [first, end) of tokens: 0 is K, 1 is V. */
static void parts_unpack(const struct sc_kernels_unpack *how,
                         const struct sc_kernels_memory *memory, uint64_t token_first,
                         uint64_t token_count, uint32_t first, uint32_t end, const uint8_t *src)
{
    uint64_t head_bytes = how->head_size * how->element_bytes;
    uint64_t dst_element_bytes = how->widen == SC_KERNELS_SAME ? how->element_bytes : sizeof(float);
    uint64_t part_bytes = how->head_count * head_bytes;
    bool whole = memory->head_stride_bytes == how->head_size * dst_element_bytes;
    for (uint64_t j = token_first; j < token_first + token_count; j++) {
        int64_t slot = memory->slots ? memory->slots[j] : (int64_t)j;
        uint64_t offset = slot < 0 ? 0 : slot_offset(memory, (uint64_t)slot);
        for (uint32_t part = first; part < end; part++, src += part_bytes) {
            uint8_t *dst = (part ? memory->v_base : memory->k_base) + offset;
            if (slot < 0)
                continue;
            if (whole) {
                place(how, dst, src, how->head_count * how->head_size);
                continue;
            }
            for (uint64_t h = 0; h < how->head_count; h++)
                place(how, dst + h * memory->head_stride_bytes, src + h * head_bytes,
                      how->head_size);
        }
    }
    if (how->streams)
        sc_stream_end();
}

void sc_kernels_rows_unpack(const struct sc_kernels_unpack *how,
                            const struct sc_kernels_memory *memory, uint64_t token_first,
                            uint64_t token_count, const uint8_t *src)
{
    parts_unpack(how, memory, token_first, token_count, 0, 2, src);
}

void sc_kernels_part_unpack(const struct sc_kernels_unpack *how,
                            const struct sc_kernels_memory *memory, uint32_t part,
                            uint64_t token_first, uint64_t token_count, const uint8_t *src)
{
    parts_unpack(how, memory, token_first, token_count, part, part + 1, src);
}

uint64_t sc_kernels_spans_bytes(const struct sc_kernels_unpack *how,
                                const struct sc_kernels_memory *memory)
{
    uint64_t head_bytes = how->head_size * how->element_bytes;
    if (how->widen != SC_KERNELS_SAME)
        return 0;
    return memory->head_stride_bytes == head_bytes ? how->head_count * head_bytes : head_bytes;
}

void sc_kernels_rows_spans(const struct sc_kernels_unpack *how,
                           const struct sc_kernels_memory *memory, uint64_t token_first,
                           uint64_t token_count, uint8_t **ret_spans)
{
    uint64_t part_bytes = how->head_count * how->head_size * how->element_bytes;
    uint64_t part_spans = part_bytes / sc_kernels_spans_bytes(how, memory);
    for (uint64_t j = token_first; j < token_first + token_count; j++) {
        int64_t slot = memory->slots ? memory->slots[j] : (int64_t)j;
        uint64_t offset = slot < 0 ? 0 : slot_offset(memory, (uint64_t)slot);
        for (uint32_t part = 0; part < 2; part++) {
            uint8_t *dst = (part ? memory->v_base : memory->k_base) + offset;
            for (uint64_t h = 0; h < part_spans; h++)
                *ret_spans++ = slot < 0 ? NULL : dst + h * memory->head_stride_bytes;
        }
    }
}

static void lines_prefetch(const uint8_t *at, uint64_t bytes)
{
    for (uint64_t i = 0; i < bytes; i += LINE_BYTES)
        __builtin_prefetch(at + i, 1, 3);
}

void sc_kernels_rows_prefetch(const struct sc_kernels_unpack *how,
                              const struct sc_kernels_memory *memory, uint64_t token_first,
                              uint64_t token_count)
{
    if (how->streams)
        return; /* those lines are not fetched */
    uint64_t element_bytes = how->widen == SC_KERNELS_SAME ? how->element_bytes : sizeof(float);
    uint64_t head_bytes = how->head_size * element_bytes;
    bool whole = memory->head_stride_bytes == head_bytes;
    for (uint64_t j = token_first; j < token_first + token_count; j++) {
        int64_t slot = memory->slots ? memory->slots[j] : (int64_t)j;
        if (slot < 0)
            continue;
        uint64_t offset = slot_offset(memory, (uint64_t)slot);
        for (uint32_t part = 0; part < 2; part++) {
            const uint8_t *dst = (part ? memory->v_base : memory->k_base) + offset;
            if (whole) {
                lines_prefetch(dst, how->head_count * head_bytes);
                continue;
            }
            for (uint64_t h = 0; h < how->head_count; h++)
                lines_prefetch(dst + h * memory->head_stride_bytes, head_bytes);
        }
    }
}

void sc_kernels_rows_compact(const struct sc_kernels_memory *memory, uint64_t head_count,
                             uint64_t head_bytes, uint64_t head, const uint32_t *rows,
                             uint64_t row_count)
{
    uint64_t first = head == UINT64_MAX ? 0 : head, count = head == UINT64_MAX ? head_count : 1;
    uint64_t piece_bytes = head_bytes;
    if (memory->head_stride_bytes == head_bytes) { /* heads side by side move as one */
        piece_bytes *= count;
        count = 1;
    }
    for (uint64_t r = 0; r < row_count; r++) {
        if (rows[r] == r)
            continue;
        uint64_t to = slot_offset(memory, memory->slots ? (uint64_t)memory->slots[r] : r);
        uint64_t from = slot_offset(memory, memory->slots ? (uint64_t)memory->slots[rows[r]]
                                                          : (uint64_t)rows[r]);
        for (uint32_t part = 0; part < 2; part++) {
            uint8_t *base =
                (part ? memory->v_base : memory->k_base) + first * memory->head_stride_bytes;
            for (uint64_t h = 0; h < count; h++, base += memory->head_stride_bytes)
                memcpy(base + to, base + from, piece_bytes);
        }
    }
}

void sc_kernels_keys_pack(const struct sc_kernels_memory *memory, uint64_t token_first,
                          uint64_t token_count, uint64_t head_count, uint64_t head_bytes,
                          uint8_t *dst)
{
    for (uint64_t j = token_first; j < token_first + token_count; j++) {
        const uint8_t *src =
            memory->k_base + slot_offset(memory, memory->slots ? (uint64_t)memory->slots[j] : j);
        for (uint64_t h = 0; h < head_count; h++, dst += head_bytes)
            memcpy(dst, src + h * memory->head_stride_bytes, head_bytes);
    }
}
