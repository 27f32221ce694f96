/* Coarse codes into memory that struct spec_memory describes: addresses of a run of tokens, then
 * one call of the rung a head, or one for all heads where they lie side by side.
 *
 * Threads: any. Tests: tests/unit/kernels/test_code.c */
#include "kernels/code.h"

#include <stddef.h>

static uint8_t *token_at(const struct sc_kernels_memory *memory, uint8_t *base, uint64_t token)
{
    int64_t slot = memory->slots != NULL ? memory->slots[token] : (int64_t)token;
    if (slot < 0)
        return NULL;
    uint64_t at = (uint64_t)slot;
    if (memory->block_tokens == 0)
        return base + at * memory->token_stride_bytes;
    return base + at / memory->block_tokens * memory->block_stride_bytes +
           at % memory->block_tokens * memory->token_stride_bytes;
}

static bool is_skipped(const struct sc_kernels_decode *how, uint64_t token)
{
    return how->skipped != NULL && (how->skipped[token / 64] >> (token % 64) & 1) != 0;
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
    uint8_t *base = part == 0 ? memory->k_base : memory->v_base;
    uint8_t *dst[SC_KERNELS_CODE_ROWS_MAX];
    for (uint64_t done = 0, n; done < token_count; done += n, codes += n * row_bytes) {
        n = token_count - done;
        n = n < SC_KERNELS_CODE_ROWS_MAX ? n : SC_KERNELS_CODE_ROWS_MAX;
        for (uint64_t i = 0; i < n; i++)
            dst[i] = is_skipped(how, token_first + done + i)
                         ? NULL
                         : token_at(memory, base, token_first + done + i);
        for (uint64_t run = 0; run < runs; run++) {
            how->kernels->code_decode(&code, scales, codes, n, run * channels, channels,
                                      how->dst_dtype, how->streams, dst);
            for (uint64_t i = 0; i < n; i++)
                if (dst[i] != NULL)
                    dst[i] += memory->head_stride_bytes;
        }
    }
}
