/* columns.h: K stored in columns. */
#include "kernels/columns.h"

#include <string.h>

struct sc_kernels_run sc_kernels_columns_run(const struct sc_kernels_memory *memory,
                                             const uint64_t *skipped, uint64_t token,
                                             uint64_t token_end)
{
    struct sc_kernels_run run = {.offset = UINT64_MAX};
    int64_t slot = sc_kernels_slot_of(memory, token);
    uint64_t left = token_end - token, slots;
    if (slot < 0 || sc_kernels_is_skipped(skipped, token)) {
        while (++run.count < left && (sc_kernels_slot_of(memory, token + run.count) < 0 ||
                                      sc_kernels_is_skipped(skipped, token + run.count)))
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
    slots = (uint64_t)INT64_MAX - (uint64_t)slot + 1; /* no slot follows the last */
    left = left < slots ? left : slots;
    while (++run.count < left &&
           sc_kernels_slot_of(memory, token + run.count) == slot + (int64_t)run.count &&
           !sc_kernels_is_skipped(skipped, token + run.count))
        continue;
    return run;
}

/* No known engine stores 1-byte elements in columns: correct, not fast. */
static void transpose8(const struct sc_kernels_transpose *what)
{
    for (uint64_t r = 0; r < what->row_count; r++)
        for (uint64_t c = 0; c < what->column_count; c++)
            what->dst[c * what->dst_stride + r] = what->src[r * what->src_stride + c];
}

static void transpose(const struct sc_kernels_slice *slice, const struct sc_kernels_transpose *what)
{
    uint64_t bytes = slice->memory->element_bytes;
    (bytes == 1   ? transpose8
     : bytes == 2 ? slice->kernels->transpose16
                  : slice->kernels->transpose32)(what);
}

/* Returns the slice's first column of the slot at `offset`. */
static uint8_t *column_at(const struct sc_kernels_slice *slice, uint64_t offset)
{
    const struct sc_kernels_memory *memory = slice->memory;
    return memory->k_base + offset + slice->head * memory->head_stride_bytes +
           slice->first * memory->k_element_stride_bytes;
}

void sc_kernels_columns_put(const struct sc_kernels_slice *slice, const struct sc_kernels_run *run,
                            const uint8_t *src, uint64_t src_stride, bool streams)
{
    transpose(slice,
              &(struct sc_kernels_transpose){.dst = column_at(slice, run->offset),
                                             .dst_stride = slice->memory->k_element_stride_bytes,
                                             .src = src,
                                             .src_stride = src_stride,
                                             .row_count = run->count,
                                             .column_count = slice->count,
                                             .streams = streams});
}

void sc_kernels_columns_get(const struct sc_kernels_slice *slice, uint64_t token_first,
                            uint64_t token_count, uint8_t *dst, uint64_t dst_stride)
{
    uint64_t end = token_first + token_count;
    for (uint64_t token = token_first; token < end;) {
        struct sc_kernels_run run = sc_kernels_columns_run(slice->memory, NULL, token, end);
        transpose(slice, &(struct sc_kernels_transpose){.dst = dst,
                                                        .dst_stride = dst_stride,
                                                        .src = column_at(slice, run.offset),
                                                        .src_stride =
                                                            slice->memory->k_element_stride_bytes,
                                                        .row_count = slice->count,
                                                        .column_count = run.count});
        dst += run.count * dst_stride;
        token += run.count;
    }
}

void sc_kernels_columns_move(const struct sc_kernels_slice *slice, const struct sc_kernels_run *to,
                             const struct sc_kernels_run *from)
{
    uint64_t bytes = to->count * slice->memory->element_bytes;
    for (uint64_t i = 0; i < slice->count; i++) {
        uint8_t *column = column_at(slice, i * slice->memory->k_element_stride_bytes);
        memmove(column + to->offset, column + from->offset, bytes);
    }
}
