/* Packing rows out of, and unpacking rows into, memory that struct spec_memory describes. Pure
 * address arithmetic and memcpy: widening, and turning where K lies in columns (columns.h), are the
 * table's. Compacting goes upward: row r comes from a slot at or behind r, so nothing is
 * overwritten before it moved.
 *
 * Threads: any. Tests: tests/unit/kernels/test_rows.c, test_columns.c */
#include "base/stream.h"
#include "kernels/columns.h"
#include "kernels/importance.h"

#include <stdbool.h>
#include <string.h>

#define LINE_BYTES 64u
#define WIDE_COUNT 1024u /* floats that are widened on the stack, then streamed, or turned */
#define WIDE_ROWS  16u   /* tokens of such a piece that are turned: a line of each column */

/* Where a slot's K and V begin, from their bases. */
struct offsets {
    uint64_t part[2];
};

static struct offsets offsets_of(const struct sc_kernels_memory *memory, uint64_t slot)
{
    uint64_t v_stride = memory->v_token_stride_bytes, block = 0;
    v_stride = v_stride != 0 ? v_stride : memory->token_stride_bytes;
    if (memory->block_tokens != 0) {
        block = slot / memory->block_tokens * memory->block_stride_bytes;
        slot %= memory->block_tokens;
    }
    return (struct offsets){{block + slot * memory->token_stride_bytes, block + slot * v_stride}};
}

static uint8_t *base_of(const struct sc_kernels_memory *memory, uint32_t part)
{
    return part == 0 ? memory->k_base : memory->v_base;
}

/* Parts [first, end) of tokens: 0 is K, 1 is V. */
static void parts_pack(const struct sc_kernels_memory *memory, uint64_t token_first,
                       uint64_t token_count, uint32_t first, uint32_t end, uint64_t head_count,
                       uint64_t head_bytes, uint8_t *dst)
{
    uint64_t part_bytes = head_count * head_bytes;
    bool whole = memory->head_stride_bytes == head_bytes;
    for (uint64_t j = token_first; j < token_first + token_count; j++) {
        uint64_t slot = memory->slots ? (uint64_t)memory->slots[j] : j;
        struct offsets offsets = offsets_of(memory, slot);
        for (uint32_t part = first; part < end; part++, dst += part_bytes) {
            const uint8_t *src = base_of(memory, part) + offsets.part[part];
            if (whole) {
                memcpy(dst, src, part_bytes);
                continue;
            }
            for (uint64_t h = 0; h < head_count; h++)
                memcpy(dst + h * head_bytes, src + h * memory->head_stride_bytes, head_bytes);
        }
    }
}

/* K in columns, into rows dst_stride bytes apart. */
static void columns_pack(const struct sc_kernels *kernels, const struct sc_kernels_memory *memory,
                         uint64_t token_first, uint64_t token_count, uint64_t head_count,
                         uint64_t head_bytes, uint8_t *dst, uint64_t dst_stride)
{
    struct sc_kernels_slice slice = {.count = head_bytes / memory->element_bytes};
    for (; slice.head < head_count; slice.head++)
        sc_kernels_columns_get(kernels, memory, token_first, token_count, &slice,
                               dst + slice.head * head_bytes, dst_stride);
}

void sc_kernels_rows_pack(const struct sc_kernels *kernels, const struct sc_kernels_memory *memory,
                          uint64_t token_first, uint64_t token_count, uint64_t head_count,
                          uint64_t head_bytes, uint8_t *dst)
{
    uint64_t part_bytes = head_count * head_bytes;
    if (!sc_kernels_is_columns(memory)) {
        parts_pack(memory, token_first, token_count, 0, 2, head_count, head_bytes, dst);
        return;
    }
    columns_pack(kernels, memory, token_first, token_count, head_count, head_bytes, dst,
                 2 * part_bytes);
    for (uint64_t j = 0; j < token_count; j++)
        parts_pack(memory, token_first + j, 1, 1, 2, head_count, head_bytes,
                   dst + (2 * j + 1) * part_bytes);
}

void sc_kernels_part_pack(const struct sc_kernels *kernels, const struct sc_kernels_memory *memory,
                          uint32_t part, uint64_t token_first, uint64_t token_count,
                          uint64_t head_count, uint64_t head_bytes, uint8_t *dst)
{
    if (part == 0 && sc_kernels_is_columns(memory))
        columns_pack(kernels, memory, token_first, token_count, head_count, head_bytes, dst,
                     head_count * head_bytes);
    else
        parts_pack(memory, token_first, token_count, part, part + 1, head_count, head_bytes, dst);
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

/* Parts [first, end) of tokens, whose rows are src_stride bytes apart. */
static void parts_unpack(const struct sc_kernels_unpack *how,
                         const struct sc_kernels_memory *memory, uint64_t token_first,
                         uint64_t token_count, uint32_t first, uint32_t end, const uint8_t *src,
                         uint64_t src_stride)
{
    uint64_t head_bytes = how->head_size * how->element_bytes;
    uint64_t dst_element_bytes = how->widen == SC_KERNELS_SAME ? how->element_bytes : sizeof(float);
    uint64_t part_bytes = how->head_count * head_bytes;
    bool whole = memory->head_stride_bytes == how->head_size * dst_element_bytes;
    for (uint64_t j = token_first; j < token_first + token_count; j++, src += src_stride) {
        int64_t slot = memory->slots ? memory->slots[j] : (int64_t)j;
        if (slot < 0)
            continue;
        struct offsets offsets = offsets_of(memory, (uint64_t)slot);
        const uint8_t *from = src;
        for (uint32_t part = first; part < end; part++, from += part_bytes) {
            uint8_t *dst = base_of(memory, part) + offsets.part[part];
            if (whole) {
                place(how, dst, from, how->head_count * how->head_size);
                continue;
            }
            for (uint64_t h = 0; h < how->head_count; h++)
                place(how, dst + h * memory->head_stride_bytes, from + h * head_bytes,
                      how->head_size);
        }
    }
    if (how->streams)
        sc_stream_end();
}

/* A run of tokens of one head, widened a piece at a time on the way. */
static void run_widen(const struct sc_kernels_unpack *how, const struct sc_kernels_memory *memory,
                      const struct sc_kernels_run *run, uint64_t head, const uint8_t *src,
                      uint64_t src_stride)
{
    float wide[WIDE_ROWS][WIDE_COUNT / WIDE_ROWS];
    struct sc_kernels_slice slice = {.head = head};
    for (uint64_t row = 0, rows; row < run->count; row += rows) {
        rows = run->count - row < WIDE_ROWS ? run->count - row : WIDE_ROWS;
        struct sc_kernels_run piece = {run->offset + row * memory->token_stride_bytes, rows};
        for (slice.first = 0; slice.first < how->head_size; slice.first += slice.count) {
            uint64_t left = how->head_size - slice.first, most = WIDE_COUNT / WIDE_ROWS;
            slice.count = left < most ? left : most;
            for (uint64_t i = 0; i < rows; i++)
                widen(how, wide[i], src + (row + i) * src_stride + slice.first * how->element_bytes,
                      slice.count);
            sc_kernels_columns_put(how->kernels, memory, &piece, &slice, (const uint8_t *)wide,
                                   sizeof(wide[0]), how->streams != 0);
        }
    }
}

/* K of tokens, into columns. */
static void columns_unpack(const struct sc_kernels_unpack *how,
                           const struct sc_kernels_memory *memory, uint64_t token_first,
                           uint64_t token_count, const uint8_t *src, uint64_t src_stride)
{
    uint64_t head_bytes = how->head_size * how->element_bytes, end = token_first + token_count;
    for (uint64_t token = token_first; token < end;) {
        struct sc_kernels_run run = sc_kernels_columns_run(memory, NULL, token, end);
        for (uint64_t h = 0; h < how->head_count && run.offset != UINT64_MAX; h++) {
            struct sc_kernels_slice slice = {h, 0, how->head_size};
            if (how->widen == SC_KERNELS_SAME)
                sc_kernels_columns_put(how->kernels, memory, &run, &slice, src + h * head_bytes,
                                       src_stride, how->streams != 0);
            else
                run_widen(how, memory, &run, h, src + h * head_bytes, src_stride);
        }
        src += run.count * src_stride;
        token += run.count;
    }
    if (how->streams)
        sc_stream_end();
}

void sc_kernels_rows_unpack(const struct sc_kernels_unpack *how,
                            const struct sc_kernels_memory *memory, uint64_t token_first,
                            uint64_t token_count, const uint8_t *src)
{
    uint64_t part_bytes = how->head_count * how->head_size * how->element_bytes;
    if (!sc_kernels_is_columns(memory)) {
        parts_unpack(how, memory, token_first, token_count, 0, 2, src, 2 * part_bytes);
        return;
    }
    columns_unpack(how, memory, token_first, token_count, src, 2 * part_bytes);
    parts_unpack(how, memory, token_first, token_count, 1, 2, src + part_bytes, 2 * part_bytes);
}

void sc_kernels_part_unpack(const struct sc_kernels_unpack *how,
                            const struct sc_kernels_memory *memory, uint32_t part,
                            uint64_t token_first, uint64_t token_count, const uint8_t *src,
                            uint64_t src_stride)
{
    if (part == 0 && sc_kernels_is_columns(memory))
        columns_unpack(how, memory, token_first, token_count, src, src_stride);
    else
        parts_unpack(how, memory, token_first, token_count, part, part + 1, src, src_stride);
}

uint64_t sc_kernels_spans_bytes(const struct sc_kernels_unpack *how,
                                const struct sc_kernels_memory *memory)
{
    uint64_t head_bytes = how->head_size * how->element_bytes;
    if (how->widen != SC_KERNELS_SAME || sc_kernels_is_columns(memory))
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
        struct offsets offsets = offsets_of(memory, slot < 0 ? 0 : (uint64_t)slot);
        for (uint32_t part = 0; part < 2; part++) {
            uint8_t *dst = base_of(memory, part) + offsets.part[part];
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
    uint32_t first = sc_kernels_is_columns(memory) ? 1 : 0; /* K: a line has many tokens */
    for (uint64_t j = token_first; j < token_first + token_count; j++) {
        int64_t slot = memory->slots ? memory->slots[j] : (int64_t)j;
        if (slot < 0)
            continue;
        struct offsets offsets = offsets_of(memory, (uint64_t)slot);
        for (uint32_t part = first; part < 2; part++) {
            const uint8_t *dst = base_of(memory, part) + offsets.part[part];
            if (whole) {
                lines_prefetch(dst, how->head_count * head_bytes);
                continue;
            }
            for (uint64_t h = 0; h < how->head_count; h++)
                lines_prefetch(dst + h * memory->head_stride_bytes, head_bytes);
        }
    }
}

/* The rows from rows[r] on that go, as one run, to the run of slots from r on. */
static uint64_t columns_compact(const struct sc_kernels_memory *memory, uint64_t head_first,
                                uint64_t head_end, uint64_t head_size, const uint32_t *rows,
                                uint64_t r, uint64_t row_count)
{
    uint64_t count = 1;
    while (r + count < row_count && rows[r + count] == rows[r] + count)
        count++;
    struct sc_kernels_run to = sc_kernels_columns_run(memory, NULL, r, r + count);
    struct sc_kernels_run from = sc_kernels_columns_run(memory, NULL, rows[r], rows[r] + to.count);
    to.count = from.count;
    sc_kernels_columns_move(memory, &to, &from, head_first, head_end, head_size);
    return to.count;
}

void sc_kernels_rows_compact(const struct sc_kernels_memory *memory, uint64_t head_count,
                             uint64_t head_bytes, uint64_t head, const uint32_t *rows,
                             uint64_t row_count)
{
    uint64_t first = head == UINT64_MAX ? 0 : head, count = head == UINT64_MAX ? head_count : 1;
    bool is_columns = sc_kernels_is_columns(memory);
    for (uint64_t r = 0; is_columns && r < row_count;)
        r += rows[r] == r ? 1
                          : columns_compact(memory, first, first + count,
                                            head_bytes / memory->element_bytes, rows, r, row_count);
    uint64_t piece_bytes = head_bytes;
    if (memory->head_stride_bytes == head_bytes) { /* heads side by side move as one */
        piece_bytes *= count;
        count = 1;
    }
    for (uint64_t r = 0; r < row_count; r++) {
        if (rows[r] == r)
            continue;
        struct offsets to = offsets_of(memory, memory->slots ? (uint64_t)memory->slots[r] : r);
        struct offsets from = offsets_of(memory, memory->slots ? (uint64_t)memory->slots[rows[r]]
                                                               : (uint64_t)rows[r]);
        for (uint32_t part = is_columns ? 1 : 0; part < 2; part++) {
            for (uint64_t h = 0; h < count; h++) {
                uint8_t *base = base_of(memory, part) + (first + h) * memory->head_stride_bytes;
                memmove(base + to.part[part], base + from.part[part], piece_bytes);
            }
        }
    }
}
