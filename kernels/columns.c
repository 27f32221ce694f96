/* K in columns; columns.h.
 *
 * Threads: any. Tests: tests/unit/kernels/test_columns.c */
#include "kernels/columns.h"

#include <string.h>

static bool is_skipped(const uint64_t *skipped, uint64_t token)
{
    return skipped != NULL && (skipped[token / 64] >> (token % 64) & 1) != 0;
}

static int64_t slot_of(const struct sc_kernels_memory *memory, uint64_t token)
{
    return memory->slots != NULL ? memory->slots[token] : (int64_t)token;
}

struct sc_kernels_run sc_kernels_columns_run(const struct sc_kernels_memory *memory,
                                             const uint64_t *skipped, uint64_t token,
                                             uint64_t token_end)
{
    struct sc_kernels_run run = {.offset = UINT64_MAX};
    int64_t slot = slot_of(memory, token);
    uint64_t left = token_end - token, slots;
    if (slot < 0 || is_skipped(skipped, token)) {
        while (++run.count < left &&
               (slot_of(memory, token + run.count) < 0 || is_skipped(skipped, token + run.count)))
            continue;
        return run;
    }
    uint64_t at = (uint64_t)slot, block = 0;
    if (memory->block_tokens != 0) {
        block = at / memory->block_tokens * memory->block_stride_bytes;
        at %= memory->block_tokens;
        left = left < memory->block_tokens - at ? left : memory->block_tokens - at;
    }
    run.offset = block + at * memory->token_stride_bytes;
    if (memory->token_stride_bytes != memory->element_bytes)
        left = 1;
    slots = (uint64_t)INT64_MAX - (uint64_t)slot + 1; /* there is none behind the last */
    left = left < slots ? left : slots;
    while (++run.count < left && slot_of(memory, token + run.count) == slot + (int64_t)run.count &&
           !is_skipped(skipped, token + run.count))
        continue;
    return run;
}

/* Elements of one byte are in no engine's columns that we know: they need be right, not fast. */
static void turn8(uint8_t *dst, uint64_t dst_stride, const uint8_t *src, uint64_t src_stride,
                  uint64_t row_count, uint64_t column_count)
{
    for (uint64_t r = 0; r < row_count; r++)
        for (uint64_t c = 0; c < column_count; c++)
            dst[c * dst_stride + r] = src[r * src_stride + c];
}

static void turn(const struct sc_kernels *kernels, uint64_t element_bytes, uint8_t *dst,
                 uint64_t dst_stride, const uint8_t *src, uint64_t src_stride, uint64_t row_count,
                 uint64_t column_count, bool streams)
{
    if (element_bytes == 1)
        turn8(dst, dst_stride, src, src_stride, row_count, column_count);
    else
        (element_bytes == 2 ? kernels->turn16 : kernels->turn32)(dst, dst_stride, src, src_stride,
                                                                 row_count, column_count, streams);
}

/* The slice's first column, of the slot at `offset`. */
static uint8_t *column_at(const struct sc_kernels_memory *memory, uint64_t offset,
                          const struct sc_kernels_slice *slice)
{
    return memory->k_base + offset + slice->head * memory->head_stride_bytes +
           slice->first * memory->k_element_stride_bytes;
}

void sc_kernels_columns_put(const struct sc_kernels *kernels,
                            const struct sc_kernels_memory *memory,
                            const struct sc_kernels_run *run, const struct sc_kernels_slice *slice,
                            const uint8_t *src, uint64_t src_stride, bool streams)
{
    turn(kernels, memory->element_bytes, column_at(memory, run->offset, slice),
         memory->k_element_stride_bytes, src, src_stride, run->count, slice->count, streams);
}

void sc_kernels_columns_get(const struct sc_kernels *kernels,
                            const struct sc_kernels_memory *memory, uint64_t token_first,
                            uint64_t token_count, const struct sc_kernels_slice *slice,
                            uint8_t *dst, uint64_t dst_stride)
{
    uint64_t end = token_first + token_count;
    for (uint64_t token = token_first; token < end;) {
        struct sc_kernels_run run = sc_kernels_columns_run(memory, NULL, token, end);
        turn(kernels, memory->element_bytes, dst, dst_stride, column_at(memory, run.offset, slice),
             memory->k_element_stride_bytes, slice->count, run.count, false);
        dst += run.count * dst_stride;
        token += run.count;
    }
}

void sc_kernels_columns_move(const struct sc_kernels_memory *memory,
                             const struct sc_kernels_run *to, const struct sc_kernels_run *from,
                             uint64_t head_first, uint64_t head_end, uint64_t head_size)
{
    uint64_t bytes = to->count * memory->element_bytes;
    for (uint64_t h = head_first; h < head_end; h++) {
        uint8_t *base = memory->k_base + h * memory->head_stride_bytes;
        for (uint64_t i = 0; i < head_size; i++) {
            uint8_t *column = base + i * memory->k_element_stride_bytes;
            memmove(column + to->offset, column + from->offset, bytes);
        }
    }
}
