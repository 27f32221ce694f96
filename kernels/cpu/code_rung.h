/* What the rungs of coarse codes share: which rows have a place, tiles of them, and one copy of the
 * loops for each number of bits and each type, so that both are constants inside.
 *
 * Included by code_avx2.c and code_avx512.c, which define before it
 *   CODE_NAME(name)     the rung's public names
 *   CODE_LANES          channels of a register;  CODE_TILE registers of scales that a tile keeps
 *   CODE_TILE_ROWS      rows of a tile;  CODE_STREAMS whether any store goes past the caches
 *   CODE_VECTOR         a register of floats;  CODE_SUMS how many of them are added up at once
 *   CODE_STEP_VECTORS   what step_vectors is at most
 *   struct rows and tile_decode, encode, step_vectors, centred_of, in_order, product_add, sums_of,
 *   scale_at
 * (their comments say what they do)
 *
 * Threads: any. Tests: tests/unit/kernels/test_code.c */
#ifndef SC_KERNELS_CPU_CODE_RUNG_H
#define SC_KERNELS_CPU_CODE_RUNG_H

#include "kernels/code.h"

#include <string.h>

#define LINE_BYTES 64u

static inline __attribute__((always_inline)) void
steps_decode(const struct rows *rows, const uint8_t *scales, uint64_t padded, uint64_t step,
             uint64_t end, uint32_t bits, uint32_t dtype, bool streams)
{
    for (uint64_t r = 0; r < rows->count; r += CODE_TILE_ROWS) {
        uint64_t stop = r + CODE_TILE_ROWS < rows->count ? r + CODE_TILE_ROWS : rows->count;
        uint64_t s = step;
        for (; s + CODE_TILE <= end; s += CODE_TILE)
            tile_decode(rows, r, stop, scales, padded, s, step, CODE_TILE, bits, dtype, streams);
        for (; s < end; s++)
            tile_decode(rows, r, stop, scales, padded, s, step, 1, bits, dtype, false);
    }
}

#define BY_STREAMS(bits, dtype)                                                                    \
    if (CODE_STREAMS && streams)                                                                   \
        steps_decode(rows, scales, padded, step, end, bits, dtype, true);                          \
    else                                                                                           \
        steps_decode(rows, scales, padded, step, end, bits, dtype, false)

#define BY_DTYPE(bits)                                                                             \
    if (dtype == SC_KERNELS_F16) {                                                                 \
        BY_STREAMS(bits, SC_KERNELS_F16);                                                          \
    } else if (dtype == SC_KERNELS_BF16) {                                                         \
        BY_STREAMS(bits, SC_KERNELS_BF16);                                                         \
    } else {                                                                                       \
        BY_STREAMS(bits, SC_KERNELS_F32);                                                          \
    }                                                                                              \
    break

static void steps_decode_any(const struct rows *rows, const uint8_t *scales, uint64_t padded,
                             uint64_t step, uint64_t end, uint32_t bits, uint32_t dtype,
                             bool streams)
{
    switch (bits) {
    case 2:
        BY_DTYPE(2);
    case 3:
        BY_DTYPE(3);
    case 4:
        BY_DTYPE(4);
    case 5:
        BY_DTYPE(5);
    case 6:
        BY_DTYPE(6);
    default:
        BY_DTYPE(8);
    }
}

void CODE_NAME(decode)(const struct sc_kernels_code *code, const uint8_t *scales,
                       const uint8_t *codes, uint64_t row_count, uint64_t channel_first,
                       uint64_t channel_count, uint32_t dst_dtype, bool streams,
                       uint8_t *const *dst)
{
    uint64_t padded = sc_kernels_code_padded(code->channels);
    uint64_t row_bytes = sc_kernels_code_row_bytes(code->channels, code->bits);
    uint64_t channel_end = channel_first + channel_count;
    if (channel_first % CODE_LANES != 0 || channel_end % CODE_LANES != 0) {
        sc_kernels_ref_code_decode(code, scales, codes, row_count, channel_first, channel_count,
                                   dst_dtype, streams, dst);
        return;
    }
    struct rows rows;
    rows.count = 0;
    for (uint64_t i = 0; i < row_count; i++) {
        rows.codes[rows.count] = codes + i * row_bytes;
        rows.dst[rows.count] = dst[i];
        rows.count += dst[i] != NULL;
        streams = streams && (uintptr_t)dst[i] % LINE_BYTES == 0;
    }
    steps_decode_any(&rows, scales, padded, channel_first / CODE_LANES, channel_end / CODE_LANES,
                     code->bits, dst_dtype, streams);
}

#define BY_DTYPE_ENCODE(bits)                                                                      \
    has_codes = code->dtype == SC_KERNELS_F16                                                      \
                    ? encode(code, rows, row_count, scales, codes, bits, SC_KERNELS_F16)           \
                : code->dtype == SC_KERNELS_BF16                                                   \
                    ? encode(code, rows, row_count, scales, codes, bits, SC_KERNELS_BF16)          \
                    : encode(code, rows, row_count, scales, codes, bits, SC_KERNELS_F32);          \
    break

bool CODE_NAME(encode)(const struct sc_kernels_code *code, const uint8_t *const *rows,
                       uint64_t row_count, uint8_t *scales, uint8_t *codes)
{
    bool has_codes = false;
    switch (code->bits) {
    case 2:
        BY_DTYPE_ENCODE(2);
    case 3:
        BY_DTYPE_ENCODE(3);
    case 4:
        BY_DTYPE_ENCODE(4);
    case 5:
        BY_DTYPE_ENCODE(5);
    case 6:
        BY_DTYPE_ENCODE(6);
    default:
        BY_DTYPE_ENCODE(8);
    }
    if (!has_codes) {
        memset(scales, 0, sc_kernels_code_scale_bytes(code->channels));
        memset(codes, 0, row_count * sc_kernels_code_row_bytes(code->channels, code->bits));
    }
    return has_codes;
}

/* ---- Scores --------------------------------------------------------------------------------- */

#define SCORED_TOGETHER 4u   /* queries for which a code is made a float once */
#define SCORED_CHANNELS 256u /* of a head; ref/ takes larger ones */

/* Some queries of a slab, ready to be multiplied with codes. */
struct folded {
    float steps[SCORED_TOGETHER][SCORED_CHANNELS]; /* query * step, as in_order has them */
    float bases[SCORED_TOGETHER];                  /* sum of query * middle */
};

/* The first channel of a step that would begin at `channel`: none reads behind the row. What of a
 * step is not its own, for it is another's or another head's, is multiplied with 0. */
static inline uint64_t step_at(uint64_t channel, uint64_t padded, uint64_t step)
{
    return channel + step <= padded ? channel : padded - step;
}

static inline __attribute__((always_inline)) void fold(const struct sc_kernels_code_score *what,
                                                       uint64_t query, uint64_t count,
                                                       uint32_t bits, struct folded *ret_folded)
{
    uint64_t padded = sc_kernels_code_padded(what->code->channels), first = what->channel_first;
    uint64_t step = step_vectors(bits) * CODE_LANES;
    const uint8_t *mins = what->scales, *steps = mins + padded * 2;
    CODE_VECTOR half = CODE_SET((float)(1u << bits) / 2), sums[CODE_SUMS];
    float bases[CODE_SUMS];
    for (uint32_t v = 0; v < CODE_SUMS; v++)
        sums[v] = CODE_SET(0);
    for (uint64_t v = 0; v < count; v++) {
        const float *queries = what->queries + (query + v) * what->head_padded;
        for (uint64_t t = 0; t < what->head_size; t += step) {
            uint64_t start = step_at(first + t, padded, step);
            CODE_VECTOR values[CODE_STEP_VECTORS];
            SC_UNROLL
            for (uint32_t i = 0; i < step_vectors(bits); i++) {
                uint64_t channel = start + i * CODE_LANES;
                values[i] = CODE_SET(0);
                if (channel < first + t || channel >= first + what->head_size)
                    continue;
                CODE_VECTOR q = CODE_LOAD(queries + channel - first);
                CODE_VECTOR size = scale_at(steps + channel * 2);
                CODE_VECTOR middle = product_add(size, half, scale_at(mins + channel * 2));
                sums[v] = product_add(q, middle, sums[v]);
                values[i] = CODE_MULTIPLY(q, size);
            }
            in_order(values, bits);
            SC_UNROLL
            for (uint32_t i = 0; i < step_vectors(bits); i++)
                CODE_STORE(ret_folded->steps[v] + t + i * CODE_LANES, values[i]);
        }
    }
    CODE_STORE(bases, sums_of(sums));
    memcpy(ret_folded->bases, bases, sizeof(ret_folded->bases));
}

/* Scores of CODE_SUMS / queries keys, the last ones again where `left` are fewer. `queries` and
 * `bits` are constants where it is inlined. */
static inline __attribute__((always_inline)) void
keys_score(const struct sc_kernels_code_score *what, const struct folded *folded, uint64_t key,
           uint64_t left, uint32_t queries, uint32_t bits, float *ret_scores)
{
    uint64_t padded = sc_kernels_code_padded(what->code->channels);
    uint64_t row_bytes = sc_kernels_code_row_bytes(padded, bits), low_bits = bits >= 8   ? 8
                                                                             : bits >= 4 ? 4
                                                                                         : 2;
    uint64_t rest = bits - low_bits, first = what->channel_first;
    uint64_t step = step_vectors(bits) * CODE_LANES;
    const uint8_t *ahead = what->ahead + key * row_bytes + what->ahead_channel * low_bits / 8;
    const uint8_t *rows[CODE_SUMS];
    CODE_VECTOR sums[CODE_SUMS];
    uint32_t keys = CODE_SUMS / queries;
    SC_UNROLL
    for (uint32_t k = 0; k < keys; k++)
        rows[k] = what->codes + (key + (k < left ? k : left - 1)) * row_bytes;
    SC_UNROLL
    for (uint32_t k = 0; k < CODE_SUMS; k++)
        sums[k] = CODE_SET(0);
    for (uint64_t t = 0; t < what->head_size; t += step) {
        uint64_t start = step_at(first + t, padded, step);
        uint64_t low = start * low_bits / 8, high = (padded * low_bits + start * rest) / 8;
        if (t * low_bits / 8 % LINE_BYTES == 0)
            for (uint32_t k = 0; k < keys; k++)
                __builtin_prefetch(ahead + (k < left ? k : 0) * row_bytes + t * low_bits / 8);
        SC_UNROLL
        for (uint32_t k = 0; k < keys; k++) {
            CODE_VECTOR values[CODE_STEP_VECTORS];
            centred_of(rows[k] + low, rows[k] + high, bits, values);
            SC_UNROLL
            for (uint32_t i = 0; i < step_vectors(bits); i++) {
                SC_UNROLL
                for (uint32_t v = 0; v < queries; v++) {
                    CODE_VECTOR folded_step = CODE_LOAD(folded->steps[v] + t + i * CODE_LANES);
                    sums[v * keys + k] = product_add(values[i], folded_step, sums[v * keys + k]);
                }
            }
        }
    }
    if (queries == 1 && left >= CODE_SUMS) {
        CODE_STORE(ret_scores, CODE_ADD(sums_of(sums), CODE_SET(folded->bases[0])));
        return;
    }
    float values[CODE_SUMS];
    CODE_STORE(values, sums_of(sums));
    SC_UNROLL
    for (uint32_t v = 0; v < queries; v++)
        for (uint32_t k = 0; k < keys && k < left; k++)
            ret_scores[v * what->score_stride + k] = values[v * keys + k] + folded->bases[v];
}

static inline __attribute__((always_inline)) void
queries_score(const struct sc_kernels_code_score *what, const struct folded *folded,
              uint32_t queries, uint32_t bits, float *ret_scores)
{
    for (uint64_t key = 0; key < what->row_count; key += CODE_SUMS / queries)
        keys_score(what, folded, key, what->row_count - key, queries, bits, ret_scores + key);
}

static inline __attribute__((always_inline)) void score(const struct sc_kernels_code_score *what,
                                                        uint32_t bits)
{
    struct folded folded;
    for (uint64_t v = 0, count; v < what->query_count; v += count) {
        uint64_t left = what->query_count - v;
        float *scores = what->scores + v * what->score_stride;
        count = left >= 4 ? 4 : left >= 2 ? 2 : 1;
        fold(what, v, count, bits, &folded);
        if (count == 4)
            queries_score(what, &folded, 4, bits, scores);
        else if (count == 2)
            queries_score(what, &folded, 2, bits, scores);
        else
            queries_score(what, &folded, 1, bits, scores);
    }
}

void CODE_NAME(score)(const struct sc_kernels_code_score *what)
{
    uint64_t padded = sc_kernels_code_padded(what->code->channels);
    if (what->channel_first % CODE_LANES != 0 || what->head_size % CODE_LANES != 0 ||
        what->head_size > SCORED_CHANNELS || padded < step_vectors(what->code->bits) * CODE_LANES) {
        sc_kernels_ref_code_score(what);
        return;
    }
    switch (what->code->bits) {
    case 2:
        score(what, 2);
        break;
    case 3:
        score(what, 3);
        break;
    case 4:
        score(what, 4);
        break;
    case 5:
        score(what, 5);
        break;
    case 6:
        score(what, 6);
        break;
    default:
        score(what, 8);
    }
}

#endif
