/* rows: packs rows from, and unpacks rows into, memory that struct spec_memory describes. It
 * computes addresses and copies; the table widens and transposes (columns.h). Compaction moves row
 * r from a slot >= r, so nothing is overwritten before it has moved.
 * Tests: tests/unit/kernels/test_rows.c, test_columns.c */
#include "base/nt_copy.h"
#include "kernels/columns.h"

#include <stdbool.h>
#include <string.h>

#define LINE_BYTES 64u
#define WIDE_COUNT 1024u /* floats widened on the stack, then streamed or transposed */
#define WIDE_ROWS  16u   /* tokens of such a piece: a line of each column */
#define K          1u    /* parts, as bits */
#define V          2u

/* K or V of a token in the memory: pieces one head stride apart. */
struct pieces {
    uint64_t count, elements, stride; /* elements and bytes of each; 0 pieces: no V */
};

static uint64_t head_size_of(const struct sc_kernels_move *how, uint32_t part)
{
    return part == 0 || how->row_bytes == 0 ? how->head_size : how->head_size_v;
}

static struct pieces pieces_of(const struct sc_kernels_move *how, uint32_t part,
                               uint64_t element_bytes)
{
    uint64_t size = head_size_of(how, part), stride = sc_kernels_head_stride_of(how->memory, part);
    if (size == 0)
        return (struct pieces){0};
    if (stride == size * element_bytes)
        return (struct pieces){1, how->head_count * size, stride};
    return (struct pieces){how->head_count, size, stride};
}

static uint64_t element_bytes_there(const struct sc_kernels_move *how)
{
    return how->widens ? sizeof(float) : how->element_bytes;
}

static uint64_t part_bytes_of(const struct sc_kernels_move *how, uint32_t part)
{
    return how->head_count * head_size_of(how, part) * how->element_bytes;
}

static uint64_t row_bytes_of(const struct sc_kernels_move *how)
{
    return how->row_bytes != 0 ? how->row_bytes : 2 * part_bytes_of(how, 0);
}

static void padding_clear(const struct sc_kernels_move *how, uint64_t token_count, uint8_t *dst)
{
    uint64_t row_bytes = row_bytes_of(how);
    uint64_t used = part_bytes_of(how, 0) + part_bytes_of(how, 1);
    for (uint64_t i = 0; used < row_bytes && i < token_count; i++)
        memset(dst + i * row_bytes + used, 0, row_bytes - used);
}

static void parts_pack(const struct sc_kernels_move *how, uint32_t parts, uint64_t token_first,
                       uint64_t token_count, uint8_t *dst, uint64_t dst_stride)
{
    const struct sc_kernels_memory *memory = how->memory;
    const struct pieces pieces[2] = {pieces_of(how, 0, how->element_bytes),
                                     pieces_of(how, 1, how->element_bytes)};
    for (uint64_t j = token_first; j < token_first + token_count; j++, dst += dst_stride) {
        uint64_t slot = (uint64_t)sc_kernels_slot_of(memory, j);
        struct sc_kernels_offsets offsets = sc_kernels_offsets_of(memory, slot);
        uint8_t *to = dst;
        for (uint32_t part = 0; part < 2; part++) {
            uint64_t bytes = pieces[part].elements * how->element_bytes;
            for (uint64_t i = 0; parts >> part & 1 && i < pieces[part].count; i++, to += bytes)
                memcpy(to,
                       sc_kernels_base_of(memory, part) + offsets.part[part] +
                           i * pieces[part].stride,
                       bytes);
        }
    }
}

/* Packs K from columns into rows dst_stride bytes apart. */
static void columns_pack(const struct sc_kernels_move *how, uint64_t token_first,
                         uint64_t token_count, uint8_t *dst, uint64_t dst_stride)
{
    struct sc_kernels_slice slice = {how->kernels, how->memory, .count = how->head_size};
    for (; slice.head < how->head_count; slice.head++)
        sc_kernels_columns_get(&slice, token_first, token_count,
                               dst + slice.head * how->head_size * how->element_bytes, dst_stride);
}

void sc_kernels_rows_pack(const struct sc_kernels_move *how, uint64_t token_first,
                          uint64_t token_count, uint8_t *dst)
{
    uint64_t row_bytes = row_bytes_of(how);
    padding_clear(how, token_count, dst);
    if (!sc_kernels_is_columns(how->memory)) {
        parts_pack(how, K | V, token_first, token_count, dst, row_bytes);
        return;
    }
    columns_pack(how, token_first, token_count, dst, row_bytes);
    parts_pack(how, V, token_first, token_count, dst + part_bytes_of(how, 0), row_bytes);
}

void sc_kernels_part_pack(const struct sc_kernels_move *how, uint32_t part, uint64_t token_first,
                          uint64_t token_count, uint8_t *dst)
{
    if (part == 0 && sc_kernels_is_columns(how->memory))
        columns_pack(how, token_first, token_count, dst, part_bytes_of(how, part));
    else
        parts_pack(how, K << part, token_first, token_count, dst, part_bytes_of(how, part));
}

static void place(const struct sc_kernels_move *how, uint8_t *dst, const uint8_t *src,
                  uint64_t count)
{
    float wide[WIDE_COUNT];
    if (!how->widens && how->streams)
        sc_nt_copy(dst, src, count * how->element_bytes);
    else if (!how->widens)
        memcpy(dst, src, count * how->element_bytes);
    else if (!how->streams)
        how->kernels->widen((float *)(void *)dst, src, count, how->dtype);
    else
        for (uint64_t done = 0, now; done < count; done += now) {
            now = count - done < WIDE_COUNT ? count - done : WIDE_COUNT;
            how->kernels->widen(wide, src + done * how->element_bytes, now, how->dtype);
            sc_nt_copy(dst + done * sizeof(float), (const uint8_t *)wide, now * sizeof(float));
        }
}

/* Unpacks parts of tokens from rows src_stride bytes apart. */
static void parts_unpack(const struct sc_kernels_move *how, uint32_t parts, uint64_t token_first,
                         uint64_t token_count, const uint8_t *src, uint64_t src_stride)
{
    const struct sc_kernels_memory *memory = how->memory;
    const struct pieces pieces[2] = {pieces_of(how, 0, element_bytes_there(how)),
                                     pieces_of(how, 1, element_bytes_there(how))};
    for (uint64_t j = token_first; j < token_first + token_count; j++, src += src_stride) {
        int64_t slot = sc_kernels_slot_of(memory, j);
        if (slot < 0)
            continue;
        struct sc_kernels_offsets offsets = sc_kernels_offsets_of(memory, (uint64_t)slot);
        const uint8_t *from = src;
        for (uint32_t part = 0; part < 2; part++) {
            uint64_t bytes = pieces[part].elements * how->element_bytes;
            for (uint64_t i = 0; parts >> part & 1 && i < pieces[part].count; i++, from += bytes)
                place(how,
                      sc_kernels_base_of(memory, part) + offsets.part[part] +
                          i * pieces[part].stride,
                      from, pieces[part].elements);
        }
    }
    if (how->streams)
        sc_nt_copy_end();
}

/* Widens a run of tokens of one head, a piece at a time. */
static void run_widen(const struct sc_kernels_move *how, const struct sc_kernels_run *run,
                      uint64_t head, const uint8_t *src, uint64_t src_stride)
{
    float wide[WIDE_ROWS][WIDE_COUNT / WIDE_ROWS];
    struct sc_kernels_slice slice = {how->kernels, how->memory, .head = head};
    for (uint64_t row = 0, rows; row < run->count; row += rows) {
        rows = run->count - row < WIDE_ROWS ? run->count - row : WIDE_ROWS;
        struct sc_kernels_run piece = {run->offset + row * how->memory->token_stride_bytes, rows};
        for (slice.first = 0; slice.first < how->head_size; slice.first += slice.count) {
            uint64_t left = how->head_size - slice.first, most = WIDE_COUNT / WIDE_ROWS;
            slice.count = left < most ? left : most;
            for (uint64_t i = 0; i < rows; i++)
                how->kernels->widen(wide[i],
                                    src + (row + i) * src_stride + slice.first * how->element_bytes,
                                    slice.count, how->dtype);
            sc_kernels_columns_put(&slice, &piece, (const uint8_t *)wide, sizeof(wide[0]),
                                   how->streams);
        }
    }
}

static void columns_unpack(const struct sc_kernels_move *how, uint64_t token_first,
                           uint64_t token_count, const uint8_t *src, uint64_t src_stride)
{
    uint64_t head_bytes = how->head_size * how->element_bytes, end = token_first + token_count;
    for (uint64_t token = token_first; token < end;) {
        struct sc_kernels_run run = sc_kernels_columns_run(how->memory, NULL, token, end);
        for (uint64_t h = 0; h < how->head_count && run.offset != UINT64_MAX; h++) {
            struct sc_kernels_slice slice = {how->kernels, how->memory, h, 0, how->head_size};
            if (!how->widens)
                sc_kernels_columns_put(&slice, &run, src + h * head_bytes, src_stride,
                                       how->streams);
            else
                run_widen(how, &run, h, src + h * head_bytes, src_stride);
        }
        src += run.count * src_stride;
        token += run.count;
    }
    if (how->streams)
        sc_nt_copy_end();
}

void sc_kernels_rows_unpack(const struct sc_kernels_move *how, uint64_t token_first,
                            uint64_t token_count, const uint8_t *src)
{
    uint64_t row_bytes = row_bytes_of(how);
    if (!sc_kernels_is_columns(how->memory)) {
        parts_unpack(how, K | V, token_first, token_count, src, row_bytes);
        return;
    }
    columns_unpack(how, token_first, token_count, src, row_bytes);
    parts_unpack(how, V, token_first, token_count, src + part_bytes_of(how, 0), row_bytes);
}

void sc_kernels_part_unpack(const struct sc_kernels_move *how, uint32_t part, uint64_t token_first,
                            uint64_t token_count, const uint8_t *src, uint64_t src_stride)
{
    if (part == 0 && sc_kernels_is_columns(how->memory))
        columns_unpack(how, token_first, token_count, src, src_stride);
    else
        parts_unpack(how, K << part, token_first, token_count, src, src_stride);
}

uint64_t sc_kernels_spans_bytes(const struct sc_kernels_move *how)
{
    bool is_alike = how->row_bytes == 0 && how->memory->v_head_stride_bytes == 0;
    if (how->widens || sc_kernels_is_columns(how->memory) || !is_alike)
        return 0;
    return pieces_of(how, 0, how->element_bytes).elements * how->element_bytes;
}

void sc_kernels_rows_spans(const struct sc_kernels_move *how, uint64_t token_first,
                           uint64_t token_count, uint8_t **ret_spans)
{
    const struct sc_kernels_memory *memory = how->memory;
    struct pieces pieces = pieces_of(how, 0, how->element_bytes);
    for (uint64_t j = token_first; j < token_first + token_count; j++) {
        int64_t slot = sc_kernels_slot_of(memory, j);
        struct sc_kernels_offsets offsets =
            sc_kernels_offsets_of(memory, slot < 0 ? 0 : (uint64_t)slot);
        for (uint32_t part = 0; part < 2; part++) {
            uint8_t *dst = sc_kernels_base_of(memory, part) + offsets.part[part];
            for (uint64_t i = 0; i < pieces.count; i++)
                *ret_spans++ = slot < 0 ? NULL : dst + i * pieces.stride;
        }
    }
}

void sc_kernels_rows_prefetch(const struct sc_kernels_move *how, uint64_t token_first,
                              uint64_t token_count)
{
    if (how->streams)
        return; /* streamed lines are not fetched */
    const struct sc_kernels_memory *memory = how->memory;
    const struct pieces pieces[2] = {pieces_of(how, 0, element_bytes_there(how)),
                                     pieces_of(how, 1, element_bytes_there(how))};
    uint32_t first = sc_kernels_is_columns(memory) ? 1 : 0; /* K columns: a line has many tokens */
    for (uint64_t j = token_first; j < token_first + token_count; j++) {
        int64_t slot = sc_kernels_slot_of(memory, j);
        if (slot < 0)
            continue;
        struct sc_kernels_offsets offsets = sc_kernels_offsets_of(memory, (uint64_t)slot);
        for (uint32_t part = first; part < 2; part++) {
            uint64_t bytes = pieces[part].elements * element_bytes_there(how);
            for (uint64_t i = 0; i < pieces[part].count; i++)
                for (uint64_t at = 0; at < bytes; at += LINE_BYTES)
                    __builtin_prefetch(sc_kernels_base_of(memory, part) + offsets.part[part] +
                                           i * pieces[part].stride + at,
                                       1, 3);
        }
    }
}

/* Moves rows from rows[r] on that form a run to slots from r on; returns their number. */
static uint64_t columns_compact(const struct sc_kernels_slice *slice, const uint32_t *rows,
                                uint64_t r, uint64_t row_count)
{
    uint64_t count = 1;
    while (r + count < row_count && rows[r + count] == rows[r] + count)
        count++;
    struct sc_kernels_run to = sc_kernels_columns_run(slice->memory, NULL, r, r + count);
    struct sc_kernels_run from =
        sc_kernels_columns_run(slice->memory, NULL, rows[r], rows[r] + to.count);
    to.count = from.count;
    sc_kernels_columns_move(slice, &to, &from);
    return to.count;
}

void sc_kernels_rows_compact(const struct sc_kernels_move *how, uint64_t head, const uint32_t *rows,
                             uint64_t row_count)
{
    const struct sc_kernels_memory *memory = how->memory;
    uint64_t first = head == UINT64_MAX ? 0 : head;
    uint64_t count = head == UINT64_MAX ? how->head_count : 1;
    bool is_columns = sc_kernels_is_columns(memory);
    struct sc_kernels_slice slice = {how->kernels, memory, first, 0, how->head_size};
    for (; is_columns && slice.head < first + count; slice.head++)
        for (uint64_t r = 0; r < row_count;)
            r += rows[r] == r ? 1 : columns_compact(&slice, rows, r, row_count);
    uint64_t bytes = how->head_size * element_bytes_there(how);
    if (memory->head_stride_bytes == bytes) { /* contiguous heads move as one */
        bytes *= count;
        count = 1;
    }
    for (uint64_t r = 0; r < row_count; r++) {
        if (rows[r] == r)
            continue;
        struct sc_kernels_offsets to =
            sc_kernels_offsets_of(memory, (uint64_t)sc_kernels_slot_of(memory, r));
        struct sc_kernels_offsets from =
            sc_kernels_offsets_of(memory, (uint64_t)sc_kernels_slot_of(memory, rows[r]));
        for (uint32_t part = is_columns ? 1 : 0; part < 2; part++) {
            for (uint64_t h = 0; h < count; h++) {
                uint8_t *base =
                    sc_kernels_base_of(memory, part) + (first + h) * memory->head_stride_bytes;
                memmove(base + to.part[part], base + from.part[part], bytes);
            }
        }
    }
}
