/* Coarse codes into memory that struct spec_memory describes: addresses of a run of tokens, then
 * one call of the rung a head, or one for all heads where they lie side by side. Where K lies in
 * columns its values are decoded into rows on the stack, and turned.
 *
 * Threads: any. Tests: tests/unit/kernels/test_code.c, test_columns.c */
#include "kernels/code.h"
#include "kernels/columns.h"

#include <stddef.h>

#define TURN_ROWS     32u /* decoded at once, to be turned: a line of each column of 16 bits */
#define TURN_CHANNELS 64u

static uint8_t *token_at(const struct sc_kernels_memory *memory, uint32_t part, uint64_t token)
{
    uint8_t *base = part == 0 ? memory->k_base : memory->v_base;
    uint64_t stride = part == 0 || memory->v_token_stride_bytes == 0 ? memory->token_stride_bytes
                                                                     : memory->v_token_stride_bytes;
    int64_t slot = memory->slots != NULL ? memory->slots[token] : (int64_t)token;
    if (slot < 0)
        return NULL;
    uint64_t at = (uint64_t)slot;
    if (memory->block_tokens == 0)
        return base + at * stride;
    return base + at / memory->block_tokens * memory->block_stride_bytes +
           at % memory->block_tokens * stride;
}

static bool is_skipped(const struct sc_kernels_decode *how, uint64_t token)
{
    return how->skipped != NULL && (how->skipped[token / 64] >> (token % 64) & 1) != 0;
}

/* Channels of a head of a run, at most TURN_ROWS of them. codes: of its first row */
static void run_decode(const struct sc_kernels_decode *how, const struct sc_kernels_memory *memory,
                       const struct sc_kernels_code *code, const struct sc_kernels_run *run,
                       uint64_t head, const uint8_t *scales, const uint8_t *codes)
{
    float values[TURN_ROWS][TURN_CHANNELS]; /* or half of each, of 16 bits */
    uint8_t *dst[TURN_ROWS];
    struct sc_kernels_slice slice = {.head = head};
    for (uint64_t i = 0; i < run->count; i++)
        dst[i] = (uint8_t *)values[i];
    for (; slice.first < how->head_size; slice.first += slice.count) {
        uint64_t left = how->head_size - slice.first;
        slice.count = left < TURN_CHANNELS ? left : TURN_CHANNELS;
        how->kernels->code_decode(code, scales, codes, run->count,
                                  head * how->head_size + slice.first, slice.count, how->dst_dtype,
                                  false, dst);
        sc_kernels_columns_put(how->kernels, memory, run, &slice, (const uint8_t *)values,
                               sizeof(values[0]), false);
    }
}

/* K in columns. */
static void columns_decode(const struct sc_kernels_decode *how,
                           const struct sc_kernels_memory *memory,
                           const struct sc_kernels_code *code, uint64_t token_first,
                           uint64_t token_count, const uint8_t *scales, const uint8_t *codes)
{
    uint64_t row_bytes = sc_kernels_code_row_bytes(code->channels, code->bits);
    uint64_t end = token_first + token_count;
    for (uint64_t token = token_first; token < end;) {
        uint64_t stop = end - token < TURN_ROWS ? end : token + TURN_ROWS;
        struct sc_kernels_run run = sc_kernels_columns_run(memory, how->skipped, token, stop);
        for (uint64_t h = 0; h < how->head_count && run.offset != UINT64_MAX; h++)
            run_decode(how, memory, code, &run, h, scales, codes);
        codes += run.count * row_bytes;
        token += run.count;
    }
}

void sc_kernels_part_decode(const struct sc_kernels_decode *how,
                            const struct sc_kernels_memory *memory, uint32_t part,
                            uint64_t token_first, uint64_t token_count, const uint8_t *scales,
                            const uint8_t *codes)
{
    struct sc_kernels_code code = {
        .channels = how->head_count * how->head_size, .bits = how->bits, .dtype = how->dtype};
    uint64_t row_bytes = sc_kernels_code_row_bytes(code.channels, code.bits);
    uint64_t head_bytes = how->head_size * (how->dst_dtype == SC_KERNELS_F32 ? 4 : 2);
    bool whole = memory->head_stride_bytes == head_bytes;
    uint64_t runs = whole ? 1 : how->head_count, channels = code.channels / runs;
    uint8_t *dst[SC_KERNELS_CODE_ROWS_MAX];
    if (part == 0 && sc_kernels_is_columns(memory)) {
        columns_decode(how, memory, &code, token_first, token_count, scales, codes);
        return;
    }
    for (uint64_t done = 0, n; done < token_count; done += n, codes += n * row_bytes) {
        n = token_count - done;
        n = n < SC_KERNELS_CODE_ROWS_MAX ? n : SC_KERNELS_CODE_ROWS_MAX;
        for (uint64_t i = 0; i < n; i++)
            dst[i] = is_skipped(how, token_first + done + i)
                         ? NULL
                         : token_at(memory, part, token_first + done + i);
        for (uint64_t run = 0; run < runs; run++) {
            for (uint64_t i = 0; run > 0 && i < n; i++) /* of one head any stride will do */
                if (dst[i] != NULL)
                    dst[i] += memory->head_stride_bytes;
            how->kernels->code_decode(&code, scales, codes, n, run * channels, channels,
                                      how->dst_dtype, how->streams, dst);
        }
    }
}
