/* codec_rung: decodes and quantises uniform rows, shared by the rungs. Loops are instantiated for
 * each number of bits and each type, so both are constants inside. Encoding takes 16 channels of
 * all rows at a time: widened once, then scales, then codes.
 *
 * Requires v8.h or v16.h. codec_v8.h or codec_v16.h defines:
 *
 *   CODE_TILE           registers for a tile's scales
 *   CODE_TILE_ROWS      rows of a tile;  CODE_STREAMS: whether non-temporal stores are used
 *   CODE_STEP_VECTORS   maximum of step_vectors
 *   tile_decode, step_vectors, centred_of, in_order
 *
 * Tests: tests/unit/kernels/test_codec.c */
#ifndef SC_KERNELS_CPU_CODEC_RUNG_H
#define SC_KERNELS_CPU_CODEC_RUNG_H

#include "kernels/codec.h"
#include "kernels/cpu/unroll.h"
#include "kernels/cpu/widen_rung.h"

#include <string.h>

#define LINE_BYTES 64u
#define UNIT       SC_KERNELS_CODEC_UNIT

struct code_rows { /* rows with a destination */
    const uint8_t *codes[SC_KERNELS_CODEC_ROWS_MAX];
    uint8_t *dst[SC_KERNELS_CODEC_ROWS_MAX];
    uint64_t count;
};

/* Arguments common to tiles; constants after inlining. */
struct tiles {
    const struct code_rows *rows;
    const uint8_t *scales;
    uint64_t padded, first, end; /* in steps; a row's dst is the address of `first` */
    uint32_t bits, dtype;
    bool streams;
};

/* Returns the bits of a code in its first plane. */
INLINE uint32_t low_width(uint32_t bits)
{
    return bits >= 8 ? 8 : bits >= 4 ? 4 : 2;
}

#if LANES == 8
#include "kernels/cpu/codec_v8.h"
#else
#include "kernels/cpu/codec_v16.h"
#endif

/* ---- Decoding ------------------------------------------------------------------------------- */

/* name(..., bits) with `bits` as a constant. */
#define BY_BITS(bits, name, ...)                                                                   \
    ((bits) == 2   ? name(__VA_ARGS__, 2)                                                          \
     : (bits) == 3 ? name(__VA_ARGS__, 3)                                                          \
     : (bits) == 4 ? name(__VA_ARGS__, 4)                                                          \
     : (bits) == 5 ? name(__VA_ARGS__, 5)                                                          \
     : (bits) == 6 ? name(__VA_ARGS__, 6)                                                          \
                   : name(__VA_ARGS__, 8))

INLINE void steps_decode(const struct tiles *of, uint32_t dtype)
{
    struct tiles tiles = *of;
    tiles.dtype = dtype;
    for (uint64_t r = 0; r < tiles.rows->count; r += CODE_TILE_ROWS) {
        uint64_t left = tiles.rows->count - r, s = tiles.first;
        uint64_t stop = r + (left < CODE_TILE_ROWS ? left : CODE_TILE_ROWS);
        for (; s + CODE_TILE <= tiles.end; s += CODE_TILE)
            tile_decode(&tiles, r, stop, s, CODE_TILE);
        for (; s < tiles.end; s++)
            tile_decode(&tiles, r, stop, s, 1);
    }
}

INLINE void bits_decode(const struct tiles *of, uint32_t bits)
{
    struct tiles tiles = *of;
    tiles.bits = bits;
    tiles.streams = true;
    if (CODE_STREAMS && of->streams)
        BY_DTYPE(of->dtype, steps_decode, &tiles);
    tiles.streams = false;
    if (!CODE_STREAMS || !of->streams)
        BY_DTYPE(of->dtype, steps_decode, &tiles);
}

static void rung_codec_decode(const struct sc_kernels_codec_decode *what)
{
    uint64_t row_bytes = sc_kernels_codec_row_bytes(what->code->channels, what->code->bits);
    uint64_t end = what->channel_first + what->channel_count;
    if (what->channel_first % LANES != 0 || end % LANES != 0 || !is_own(what->dst_dtype)) {
        sc_kernels_ref_codec_decode(what);
        return;
    }
    struct code_rows rows;
    struct tiles tiles = {&rows,
                          what->scales,
                          sc_kernels_codec_padded(what->code->channels),
                          what->channel_first / LANES,
                          end / LANES,
                          what->code->bits,
                          what->dst_dtype,
                          what->streams};
    rows.count = 0;
    for (uint64_t i = 0; i < what->row_count; i++) {
        rows.codes[rows.count] = what->codes + i * row_bytes;
        rows.dst[rows.count] = what->dst[i];
        rows.count += what->dst[i] != NULL;
        tiles.streams = tiles.streams && (uintptr_t)what->dst[i] % LINE_BYTES == 0;
    }
    BY_BITS(tiles.bits, bits_decode, &tiles);
}

/* ---- Encoding ------------------------------------------------------------------------------- */

/* Widens LANES channels of a unit and computes min and step; channels beyond the last are 0.
 * Returns false if one is not finite.
 *   values  of the first row; rows are UNIT apart */
INLINE bool lanes_scale(const struct sc_kernels_codec *code, const uint8_t *const *rows,
                        uint64_t row_count, uint64_t channel, float *values, halves *ret_scales)
{
    const words size = V(set1_epi32)(INT32_MAX), infinity = V(set1_epi32)(0x7f800000);
    floats least = V(set1_ps)(__builtin_inff()), most = V(set1_ps)(-__builtin_inff());
    words largest = VI(setzero)(); /* bits of the largest value and scale */
    for (uint64_t i = 0; i < row_count; i++) {
        floats x = channel + LANES <= code->channels
                       ? widened(rows[i], channel, code->dtype)
                       : widened_some(rows[i], channel, code->channels, code->dtype);
        V(storeu_ps)(values + i * UNIT, x);
        largest = V(max_epu32)(largest, VI(and)(VI(castps)(x), size));
        least = V(min_ps)(x, least);
        most = V(max_ps)(x, most);
    }
    float levels = (float)(1u << code->bits);
    floats step = V(mul_ps)(V(sub_ps)(most, least), V(set1_ps)(1 / levels));
    ret_scales[0] = V(cvtps_ph)(least, ROUND);
    ret_scales[1] = V(cvtps_ph)(step, ROUND);
    for (uint32_t i = 0; i < 2; i++)
        largest = V(max_epu32)(largest, VI(and)(VI(castps)(V(cvtph_ps)(ret_scales[i])), size));
    return marks_at_most(marks_some(LANES), infinity, largest) == 0;
}

/* Replaces a step of 0 by infinity: quotients become 0. */
INLINE floats divisor_of(halves step16)
{
    floats step = V(cvtph_ps)(step16), infinity = V(set1_ps)(__builtin_inff());
    return floats_above(VI(castps)(step), VI(setzero)(), step, infinity);
}

INLINE words lanes_code(const float *values, floats min, floats divisor, float top)
{
    floats at = V(div_ps)(V(sub_ps)(V(loadu_ps)(values), min), divisor);
    at = V(max_ps)(at, V(setzero_ps)());
    return V(cvttps_epi32)(V(min_ps)(at, V(set1_ps)(top)));
}

INLINE void quant_put(uint8_t *row, uint64_t padded, uint64_t channel, __m128i bytes, uint32_t bits)
{
    uint64_t width = low_width(bits), rest = bits - width;
    uint8_t *low = row + channel * width / 8, *high = row + (padded * width + channel * rest) / 8;
    __m128i kept = _mm_and_si128(bytes, _mm_set1_epi8((char)((1 << width) - 1)));
    __m128i above =
        _mm_and_si128(_mm_srli_epi16(bytes, (int)width), _mm_set1_epi8((char)((1 << rest) - 1)));
    if (width == 8)
        _mm_storeu_si128((void *)low, bytes);
    if (width == 4) {
        __m128i pairs = _mm_maddubs_epi16(kept, _mm_set1_epi16(0x1001));
        _mm_storel_epi64((void *)low, _mm_packus_epi16(pairs, pairs));
    }
    if (width == 2 || rest == 2) {
        __m128i two = _mm_maddubs_epi16(width == 2 ? kept : above, _mm_set1_epi16(0x0401));
        __m128i quads = _mm_madd_epi16(two, _mm_set1_epi32(0x100001));
        quads = _mm_packus_epi16(_mm_packus_epi32(quads, quads), quads);
        int32_t word = _mm_cvtsi128_si32(quads);
        memcpy(width == 2 ? low : high, &word, sizeof(word));
    }
    if (rest == 1) {
        uint16_t set = (uint16_t)_mm_movemask_epi8(_mm_slli_epi16(above, 7));
        memcpy(high, &set, sizeof(set));
    }
}

INLINE bool encode(const struct sc_kernels_codec *code, const uint8_t *const *rows,
                   uint64_t row_count, uint8_t *scales, uint8_t *codes, uint32_t dtype)
{
    const struct sc_kernels_codec as = {code->channels, code->bits, dtype};
    uint64_t padded = sc_kernels_codec_padded(as.channels);
    uint64_t row_bytes = sc_kernels_codec_row_bytes(as.channels, as.bits);
    float top = (float)((1u << as.bits) - 1), values[SC_KERNELS_CODEC_ROWS_MAX * UNIT];
    for (uint64_t c = 0; c < as.channels; c += UNIT) {
        floats min[UNIT / LANES], divisor[UNIT / LANES];
        SC_UNROLL
        for (uint32_t v = 0; v < UNIT / LANES; v++) {
            uint64_t channel = c + v * LANES;
            halves both[2];
            if (!lanes_scale(&as, rows, row_count, channel, values + v * LANES, both))
                return false;
            halves_store(scales + channel * 2, both[0]);
            halves_store(scales + (padded + channel) * 2, both[1]);
            min[v] = V(cvtph_ps)(both[0]);
            divisor[v] = divisor_of(both[1]);
        }
        for (uint64_t i = 0; i < row_count; i++) {
            words some[UNIT / LANES];
            SC_UNROLL
            for (uint32_t v = 0; v < UNIT / LANES; v++)
                some[v] = lanes_code(values + i * UNIT + v * LANES, min[v], divisor[v], top);
            quant_put(codes + i * row_bytes, padded, c, bytes_of(some), as.bits);
        }
    }
    return true;
}

INLINE bool bits_encode(const struct sc_kernels_codec *code, const uint8_t *const *rows,
                        uint64_t row_count, uint8_t *scales, uint8_t *codes, uint32_t bits)
{
    const struct sc_kernels_codec as = {code->channels, bits, code->dtype};
    return BY_DTYPE(code->dtype, encode, &as, rows, row_count, scales, codes);
}

static bool rung_codec_encode(const struct sc_kernels_codec *code, const uint8_t *const *rows,
                              uint64_t row_count, uint8_t *scales, uint8_t *codes)
{
    if (!is_own(code->dtype))
        return sc_kernels_ref_codec_encode(code, rows, row_count, scales, codes);
    bool has_quant = BY_BITS(code->bits, bits_encode, code, rows, row_count, scales, codes);
    if (!has_quant) {
        memset(scales, 0, sc_kernels_codec_scale_bytes(code->channels));
        memset(codes, 0, row_count * sc_kernels_codec_row_bytes(code->channels, code->bits));
    }
    return has_quant;
}

/* ---- Scores --------------------------------------------------------------------------------- */

#define SCORED_TOGETHER 4u   /* queries per conversion of a code */
#define SCORED_CHANNELS 256u /* channels of a head; ref/ handles larger ones */

/* Queries of a slab with the scales folded in. */
struct folded {
    float steps[SCORED_TOGETHER][SCORED_CHANNELS]; /* query * step, ordered by in_order */
    float bases[SCORED_TOGETHER];                  /* sum of query * middle */
};

/* Returns the first channel of a step for `channel`, moved so that none reads beyond the row. Other
 * channels of that step are multiplied with 0. */
static inline uint64_t step_at(uint64_t channel, uint64_t padded, uint64_t step)
{
    return channel + step <= padded ? channel : padded - step;
}

INLINE void queries_fold(const struct sc_kernels_codec_score *what, uint64_t query, uint64_t count,
                         uint32_t bits, struct folded *ret_folded)
{
    uint64_t padded = sc_kernels_codec_padded(what->code->channels), first = what->channel_first;
    uint64_t step = step_vectors(bits) * LANES;
    const uint8_t *mins = what->scales, *steps = mins + padded * 2;
    floats half = V(set1_ps)((float)(1u << bits) / 2), sums[LANES];
    float bases[LANES];
    for (uint32_t v = 0; v < LANES; v++)
        sums[v] = V(set1_ps)(0);
    for (uint64_t v = 0; v < count; v++) {
        const float *queries = what->queries + (query + v) * what->head_padded;
        for (uint64_t t = 0; t < what->head_size; t += step) {
            uint64_t start = step_at(first + t, padded, step);
            floats values[CODE_STEP_VECTORS];
            SC_UNROLL
            for (uint32_t i = 0; i < step_vectors(bits); i++) {
                uint64_t channel = start + i * LANES;
                values[i] = V(set1_ps)(0);
                if (channel < first + t || channel >= first + what->head_size)
                    continue;
                floats q = V(loadu_ps)(queries + channel - first);
                floats size = widened(steps, channel, SC_KERNELS_F16);
                floats middle = V(fmadd_ps)(size, half, widened(mins, channel, SC_KERNELS_F16));
                sums[v] = V(fmadd_ps)(q, middle, sums[v]);
                values[i] = V(mul_ps)(q, size);
            }
            in_order(values, bits);
            SC_UNROLL
            for (uint32_t i = 0; i < step_vectors(bits); i++)
                V(storeu_ps)(ret_folded->steps[v] + t + i * LANES, values[i]);
        }
    }
    V(storeu_ps)(bases, floats_sums(sums));
    memcpy(ret_folded->bases, bases, sizeof(ret_folded->bases));
}

/* Scores LANES / queries keys; if fewer are left, the last repeats. `queries` and `bits` are
 * constants after inlining. */
INLINE void keys_score(const struct sc_kernels_codec_score *what, const struct folded *folded,
                       uint64_t key, uint32_t queries, uint32_t bits, float *ret_scores)
{
    uint64_t padded = sc_kernels_codec_padded(what->code->channels);
    uint64_t row_bytes = sc_kernels_codec_row_bytes(padded, bits), low_bits = low_width(bits);
    uint64_t rest = bits - low_bits, first = what->channel_first;
    uint64_t step = step_vectors(bits) * LANES, left = what->row_count - key;
    const uint8_t *ahead = what->ahead + key * row_bytes + what->ahead_channel * low_bits / 8;
    const uint8_t *rows[LANES];
    floats sums[LANES];
    uint32_t keys = LANES / queries;
    SC_UNROLL
    for (uint32_t k = 0; k < keys; k++)
        rows[k] = what->codes + (key + (k < left ? k : left - 1)) * row_bytes;
    SC_UNROLL
    for (uint32_t k = 0; k < LANES; k++)
        sums[k] = V(set1_ps)(0);
    for (uint64_t t = 0; t < what->head_size; t += step) {
        uint64_t start = step_at(first + t, padded, step);
        uint64_t low = start * low_bits / 8, high = (padded * low_bits + start * rest) / 8;
        if (t * low_bits / 8 % LINE_BYTES == 0)
            for (uint32_t k = 0; k < keys; k++)
                __builtin_prefetch(ahead + (k < left ? k : 0) * row_bytes + t * low_bits / 8, 0, 2);
        SC_UNROLL
        for (uint32_t k = 0; k < keys; k++) {
            floats values[CODE_STEP_VECTORS];
            centred_of(rows[k] + low, rows[k] + high, bits, values);
            SC_UNROLL
            for (uint32_t i = 0; i < step_vectors(bits); i++) {
                SC_UNROLL
                for (uint32_t v = 0; v < queries; v++) {
                    floats folded_step = V(loadu_ps)(folded->steps[v] + t + i * LANES);
                    sums[v * keys + k] = V(fmadd_ps)(values[i], folded_step, sums[v * keys + k]);
                }
            }
        }
    }
    if (queries == 1 && left >= LANES) {
        V(storeu_ps)(ret_scores, V(add_ps)(floats_sums(sums), V(set1_ps)(folded->bases[0])));
        return;
    }
    float values[LANES];
    V(storeu_ps)(values, floats_sums(sums));
    SC_UNROLL
    for (uint32_t v = 0; v < queries; v++)
        for (uint32_t k = 0; k < keys && k < left; k++)
            ret_scores[v * what->score_stride + k] = values[v * keys + k] + folded->bases[v];
}

INLINE void folded_score(const struct sc_kernels_codec_score *what, const struct folded *folded,
                         uint32_t queries, uint32_t bits, float *ret_scores)
{
    for (uint64_t key = 0; key < what->row_count; key += LANES / queries)
        keys_score(what, folded, key, queries, bits, ret_scores + key);
}

INLINE void slab_score(const struct sc_kernels_codec_score *what, uint32_t bits)
{
    struct folded folded;
    for (uint64_t v = 0, count; v < what->query_count; v += count) {
        uint64_t left = what->query_count - v;
        float *scores = what->scores + v * what->score_stride;
        count = left >= 4 ? 4 : left >= 2 ? 2 : 1;
        queries_fold(what, v, count, bits, &folded);
        if (count == 4)
            folded_score(what, &folded, 4, bits, scores);
        else if (count == 2)
            folded_score(what, &folded, 2, bits, scores);
        else
            folded_score(what, &folded, 1, bits, scores);
    }
}

static void rung_codec_score(const struct sc_kernels_codec_score *what)
{
    uint64_t padded = sc_kernels_codec_padded(what->code->channels);
    if (what->channel_first % LANES != 0 || what->head_size % LANES != 0 ||
        what->head_size > SCORED_CHANNELS || padded < step_vectors(what->code->bits) * LANES) {
        sc_kernels_ref_codec_score(what);
        return;
    }
    BY_BITS(what->code->bits, slab_score, what);
}

#endif
