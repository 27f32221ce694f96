/* codec.h: decodes quantised rows into memory that struct spec_memory describes. A run's addresses
 * are collected, then the rung is called once a head, or once for contiguous heads. If K is stored
 * in columns, its values are decoded into rows on the stack and transposed.
 * Tests: tests/unit/kernels/test_codec.c, test_columns.c */
#include "kernels/codec.h"
#include "kernels/bitplanes.h"
#include "kernels/columns.h"

#include <stddef.h>

/* rows decoded at once for the transpose: a line of each 16-bit column */
#define TRANSPOSE_ROWS 32u
#define TRANSPOSE_CHANNELS 64u

static uint8_t *token_at(const struct sc_kernels_decode *how, uint32_t part, uint64_t token)
{
    int64_t slot = sc_kernels_slot_of(how->memory, token);
    if (slot < 0 || sc_kernels_is_skipped(how->skipped, token))
        return NULL;
    return sc_kernels_base_of(how->memory, part) +
           sc_kernels_offsets_of(how->memory, (uint64_t)slot).part[part];
}

/* Decodes one head of at most TRANSPOSE_ROWS rows of a run. what: has the first row's codes */
static void run_decode(const struct sc_kernels_decode *how, struct sc_kernels_codec_decode *what,
                       const struct sc_kernels_run *run, uint64_t head)
{
    float values[TRANSPOSE_ROWS][TRANSPOSE_CHANNELS]; /* half of each is used for 16 bits */
    uint8_t *dst[TRANSPOSE_ROWS];
    struct sc_kernels_slice slice = {how->kernels, how->memory, .head = head};
    for (uint64_t i = 0; i < run->count; i++)
        dst[i] = (uint8_t *)values[i];
    what->dst = dst;
    what->row_count = run->count;
    for (; slice.first < how->head_size; slice.first += slice.count) {
        uint64_t left = how->head_size - slice.first;
        slice.count = left < TRANSPOSE_CHANNELS ? left : TRANSPOSE_CHANNELS;
        what->channel_first = head * how->head_size + slice.first;
        what->channel_count = slice.count;
        how->kernels->codec_decode(what);
        sc_kernels_columns_put(&slice, run, (const uint8_t *)values, sizeof(values[0]), false);
    }
}

static void columns_decode(const struct sc_kernels_decode *how,
                           struct sc_kernels_codec_decode *what, uint64_t token_first,
                           uint64_t token_count)
{
    uint64_t row_bytes = sc_kernels_codec_row_bytes(what->code->channels, what->code->bits);
    uint64_t end = token_first + token_count;
    what->streams = false;
    for (uint64_t token = token_first; token < end;) {
        uint64_t stop = end - token < TRANSPOSE_ROWS ? end : token + TRANSPOSE_ROWS;
        struct sc_kernels_run run = sc_kernels_columns_run(how->memory, how->skipped, token, stop);
        for (uint64_t h = 0; h < how->head_count && run.offset != UINT64_MAX; h++)
            run_decode(how, what, &run, h);
        what->codes += run.count * row_bytes;
        token += run.count;
    }
}

#define PLANES_ROWS 16u /* rows decoded at once for the transpose; at most 16 KiB a head */

/* Decodes a run's keys, at most PLANES_ROWS, head by head. what: has the first row's codes */
static void planes_run_decode(const struct sc_kernels_decode *how,
                              struct sc_kernels_bitplanes_decode *what,
                              const struct sc_kernels_run *run)
{
    float values[PLANES_ROWS][SC_KERNELS_BITPLANES_HEAD]; /* half of each is used for 16 bits */
    uint8_t *dst[PLANES_ROWS];
    for (uint64_t i = 0; i < run->count; i++)
        dst[i] = (uint8_t *)values[i];
    what->dst = dst;
    what->row_count = run->count;
    what->head_count = 1;
    for (uint64_t head = 0; head < how->head_count; head++) {
        struct sc_kernels_slice slice = {how->kernels, how->memory, .head = head,
                                         .count = how->head_size};
        what->head_first = head;
        how->kernels->bitplanes_decode(what);
        sc_kernels_columns_put(&slice, run, (const uint8_t *)values, sizeof(values[0]), false);
    }
}

static void planes_skip(struct sc_kernels_bitplanes_decode *what, uint64_t rows)
{
    what->codes += rows * what->planes->row_bytes;
    if (what->rotary != NULL)
        what->rope += rows * what->rotary->turned;
}

static void planes_columns_decode(const struct sc_kernels_decode *how,
                                  struct sc_kernels_bitplanes_decode *what, uint64_t token_first,
                                  uint64_t token_count)
{
    uint64_t end = token_first + token_count;
    what->streams = false;
    for (uint64_t token = token_first; token < end;) {
        uint64_t stop = end - token < PLANES_ROWS ? end : token + PLANES_ROWS;
        struct sc_kernels_run run = sc_kernels_columns_run(how->memory, how->skipped, token, stop);
        if (run.offset != UINT64_MAX)
            planes_run_decode(how, what, &run);
        planes_skip(what, run.count);
        token += run.count;
    }
}

static void planes_part_decode(const struct sc_kernels_decode *how, uint32_t part,
                               uint64_t token_first, uint64_t token_count)
{
    uint64_t head_bytes = how->head_size * sc_kernels_dtype_bytes(how->dst_dtype);
    bool whole = how->memory->head_stride_bytes == head_bytes;
    uint8_t *dst[SC_KERNELS_CODEC_ROWS_MAX];
    struct sc_kernels_bitplanes_decode what = {.planes = how->quantised.planes,
                                               .scales = how->quantised.scales,
                                               .codes = how->quantised.codes,
                                               .head_count = whole ? how->head_count : 1,
                                               .dst_dtype = how->dst_dtype,
                                               .rotary = how->quantised.rotary,
                                               .rope = how->quantised.rope,
                                               .streams = how->streams};
    if (part == 0 && sc_kernels_is_columns(how->memory)) {
        planes_columns_decode(how, &what, token_first, token_count);
        return;
    }
    what.dst = dst;
    for (uint64_t done = 0, n; done < token_count; done += n, planes_skip(&what, n)) {
        n = token_count - done;
        n = what.row_count = n < SC_KERNELS_CODEC_ROWS_MAX ? n : SC_KERNELS_CODEC_ROWS_MAX;
        for (uint64_t i = 0; i < n; i++)
            dst[i] = token_at(how, part, token_first + done + i);
        for (what.head_first = 0; what.head_first < how->head_count;
             what.head_first += what.head_count) {
            for (uint64_t i = 0; what.head_first > 0 && i < n; i++)
                if (dst[i] != NULL)
                    dst[i] += how->memory->head_stride_bytes;
            how->kernels->bitplanes_decode(&what);
        }
    }
}

void sc_kernels_part_decode(const struct sc_kernels_decode *how, uint32_t part,
                            uint64_t token_first, uint64_t token_count)
{
    if (how->quantised.planes != NULL) {
        planes_part_decode(how, part, token_first, token_count);
        return;
    }
    struct sc_kernels_codec code = {how->head_count * how->head_size, how->quantised.bits,
                                    how->dst_dtype};
    uint64_t row_bytes = sc_kernels_codec_row_bytes(code.channels, code.bits);
    uint64_t head_bytes = how->head_size * sc_kernels_dtype_bytes(how->dst_dtype);
    bool whole = how->memory->head_stride_bytes == head_bytes;
    uint64_t runs = whole ? 1 : how->head_count, channels = code.channels / runs;
    uint8_t *dst[SC_KERNELS_CODEC_ROWS_MAX];
    struct sc_kernels_codec_decode what = {.code = &code,
                                           .scales = how->quantised.scales,
                                           .codes = how->quantised.codes,
                                           .channel_count = channels,
                                           .dst = dst,
                                           .dst_dtype = how->dst_dtype,
                                           .streams = how->streams};
    if (part == 0 && sc_kernels_is_columns(how->memory)) {
        columns_decode(how, &what, token_first, token_count);
        return;
    }
    for (uint64_t done = 0, n; done < token_count; done += n, what.codes += n * row_bytes) {
        n = token_count - done;
        n = what.row_count = n < SC_KERNELS_CODEC_ROWS_MAX ? n : SC_KERNELS_CODEC_ROWS_MAX;
        for (uint64_t i = 0; i < n; i++)
            dst[i] = token_at(how, part, token_first + done + i);
        for (uint64_t run = 0; run < runs; run++) {
            for (uint64_t i = 0; run > 0 && i < n; i++) /* any stride works for one head */
                if (dst[i] != NULL)
                    dst[i] += how->memory->head_stride_bytes;
            what.channel_first = run * channels;
            how->kernels->codec_decode(&what);
        }
    }
}
