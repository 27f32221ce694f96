/* bitplanes_rung: decodes and quantises per-channel rows, shared by the rungs.
 *
 *   decode   a head of a tile of rows at a time: its planes are spread to one code a byte in an L1
 *            buffer; values are made of any LANES codes, so pairs may have any distance
 *   encode   LANES channels of all rows at a time: widened and rotated back once, scales, byte
 *            codes; then each plane's bits are gathered
 *   ranges   of a head: rotated channels and others. A range's last vector ends at the range's end,
 *            so some channels are computed twice with the same result
 *
 * Requires v8.h or v16.h. bitplanes_v8.h or bitplanes_v16.h defines:
 *
 *   PLANES_TILE         rows of a tile; a multiple of SPREAD_ROWS
 *   SPREAD_ROWS         rows that group_spread takes
 *   STREAM_ROWS         rows whose lines are made together for non-temporal stores
 *   group_spread, quant_floats, pairs_both, pairs_swapped, line_put, plane_bits, bits_together
 *
 * Tests: tests/unit/kernels/test_bitplanes.c */
#ifndef SC_KERNELS_CPU_BITPLANES_RUNG_H
#define SC_KERNELS_CPU_BITPLANES_RUNG_H

#include "kernels/bitplanes.h"
#include "kernels/cpu/unroll.h"
#include "kernels/cpu/widen_rung.h"

#include <string.h>

#define HEAD_MOST SC_KERNELS_BITPLANES_HEAD

#if LANES == 8
#include "kernels/cpu/bitplanes_v8.h"
#else
#include "kernels/cpu/bitplanes_v16.h"
#endif

enum rope_are { ROPE_NONE, ROPE_HALF, ROPE_INTERLEAVED };

/* name(..., rope) with `rope` as a constant. */
#define BY_ROPE(rope, name, ...)                                                                   \
    ((rope) == ROPE_NONE   ? name(__VA_ARGS__, ROPE_NONE)                                          \
     : (rope) == ROPE_HALF ? name(__VA_ARGS__, ROPE_HALF)                                          \
                           : name(__VA_ARGS__, ROPE_INTERLEAVED))

struct planes_head {
    _Alignas(64) uint8_t codes[PLANES_TILE][HEAD_MOST];
    _Alignas(64) float steps[HEAD_MOST], bases[HEAD_MOST];
    const uint8_t *rows[PLANES_TILE];
    const float *rope[PLANES_TILE]; /* rotations of each row; anything if not rotated */
    uint8_t *dst[PLANES_TILE];      /* address of the head */
    uint64_t count, size, turned;
};

/* Returns the start of the vector for `channel`, moved so that it ends by `end`. */
INLINE uint64_t vector_at(uint64_t channel, uint64_t end, uint64_t lanes)
{
    return channel + lanes <= end ? channel : end - lanes;
}

/* Tells whether each range of a head is empty or at least one vector long. */
INLINE bool has_vectors(const struct sc_kernels_rotary *rotary, uint64_t size)
{
    uint64_t turned = rotary != NULL ? rotary->turned : 0, rest = size - turned;
    uint64_t range = turned > 0 && rotary->pairs == SC_KERNELS_ROTARY_HALF ? turned / 2 : turned;
    return (range == 0 || range >= LANES) && (rest == 0 || rest >= LANES);
}

INLINE uint32_t rope_of(const struct sc_kernels_rotary *rotary)
{
    if (rotary == NULL || rotary->turned == 0)
        return ROPE_NONE;
    return rotary->pairs == SC_KERNELS_ROTARY_HALF ? ROPE_HALF : ROPE_INTERLEAVED;
}

/* Negates sin in even lanes. */
INLINE floats pairs_signed(floats sin)
{
    const words even = V(srli_epi64)(V(set1_epi32)(INT32_MIN), 32);
    return floats_of(VI(xor)(VI(castps)(sin), even));
}

/* Returns the offset of a head's codes in a row; for head_count: the row's end. */
static inline uint64_t head_at(const struct sc_kernels_bitplanes *planes, uint64_t head)
{
    return head < planes->head_count ? planes->groups[head * planes->head_groups].offset
                                     : planes->row_bytes;
}

#if LANES == 8
#include "kernels/cpu/bitplanes_columns.h"
#endif

/* ---- Decoding ------------------------------------------------------------------------------- */

/* Computes span / 256 and the value of code 0. */
INLINE void head_scales(const struct sc_kernels_bitplanes *planes, const uint8_t *scales,
                        uint64_t head, struct planes_head *ret_head)
{
    uint64_t size = planes->head_size, first = head * size, channels = planes->head_count * size;
    for (uint64_t c = 0; c < size; c += LANES) {
        uint64_t at = vector_at(c, size, LANES);
        floats min = widened(scales, first + at, SC_KERNELS_F16);
        floats span = widened(scales, channels + first + at, SC_KERNELS_F16);
        floats step = V(mul_ps)(span, V(set1_ps)(0x1p-8f));
        words up = V(sub_epi32)(V(set1_epi32)(127 + 7), bytes_words(planes->to + first + at));
        floats gain = V(set1_ps)(1), middle = floats_of(V(slli_epi32)(up, 23)); /* 2^(7 - to) */
        for (int32_t few = 1; few <= SC_KERNELS_BITPLANES_FEW; few++) {
            words are = V(set1_epi32)(127 + 7 - few);
            gain = where_equal(up, are, V(set1_ps)(sc_kernels_bitplanes_gains[few]), gain);
            middle = where_equal(up, are, V(set1_ps)(sc_kernels_bitplanes_middles[few]), middle);
        }
        V(storeu_ps)(ret_head->steps + at, V(mul_ps)(step, gain));
        V(storeu_ps)(ret_head->bases + at, V(fmadd_ps)(middle, step, min));
    }
}

/* rows: [PLANES_TILE] codes from row 0 on; beyond head->count the last row repeats */
INLINE void head_spread(const struct sc_kernels_bitplanes *planes, const uint8_t *const *rows,
                        uint64_t head, struct planes_head *ret_head)
{
    const struct sc_kernels_bitplanes_group *groups = planes->groups + head * planes->head_groups;
    for (uint64_t r = 0; r < ret_head->count; r += SPREAD_ROWS)
        for (uint64_t g = 0; g < planes->head_groups; g++)
            group_spread(&groups[g], rows + r, ret_head->codes[r] + g * SC_KERNELS_BITPLANES_GROUP);
}

INLINE void tile_spread(const struct sc_kernels_bitplanes *planes, uint64_t head,
                        struct planes_head *ret_head)
{
#if LANES == 8
    struct planes_columns columns;
    if (ret_head->count > ROWS_FEW) {
        columns_spread(planes, ret_head->rows, head, &columns);
        rows_back(&columns, ret_head->size, ret_head->codes);
        return;
    }
#endif
    head_spread(planes, ret_head->rows, head, ret_head);
}

/* Returns values of LANES channels of a row, before the rotation. */
INLINE floats quant_values(const struct planes_head *head, uint64_t row, uint64_t channel,
                           floats step, floats base)
{
    return V(fmadd_ps)(quant_floats(head->codes[row] + channel), step, base);
}

/* Decodes `vectors` of LANES channels from c on, with ROPE_HALF also their partners. All but head,
 * rows and c are constants after inlining. */
INLINE void unit_decode(const struct planes_head *head, uint64_t row, uint64_t row_end, uint64_t c,
                        uint32_t rope, uint32_t vectors, uint32_t dtype, bool streams)
{
    uint64_t half = head->turned / 2, bytes = element_bytes(dtype);
    bool is_line = vectors == (dtype == SC_KERNELS_F32 ? 1 : 2);
    floats steps[4], bases[4];
    SC_UNROLL
    for (uint32_t v = 0; v < vectors; v++) {
        uint64_t at = c + v * LANES, other = rope == ROPE_HALF ? at + half : at;
        steps[v] = V(loadu_ps)(head->steps + at);
        bases[v] = V(loadu_ps)(head->bases + at);
        steps[2 + v] = V(loadu_ps)(head->steps + other);
        bases[2 + v] = V(loadu_ps)(head->bases + other);
    }
    for (uint64_t r = row; r < row_end; r++) {
        floats a[2], b[2];
        SC_UNROLL
        for (uint32_t v = 0; v < vectors; v++) {
            uint64_t at = c + v * LANES;
            const float *row_rope = head->rope[r] + at;
            a[v] = quant_values(head, r, at, steps[v], bases[v]);
            if (rope == ROPE_HALF) {
                floats x = a[v], y = quant_values(head, r, at + half, steps[2 + v], bases[2 + v]);
                floats cos = V(loadu_ps)(row_rope), sin = V(loadu_ps)(row_rope + half);
                a[v] = V(fnmadd_ps)(y, sin, V(mul_ps)(x, cos));
                b[v] = V(fmadd_ps)(x, sin, V(mul_ps)(y, cos));
            } else if (rope == ROPE_INTERLEAVED) {
                floats cos = V(loadu_ps)(row_rope), sin = V(loadu_ps)(row_rope + 2 * half);
                a[v] = V(fmadd_ps)(pairs_swapped(a[v]), sin, V(mul_ps)(a[v], cos));
            }
        }
        if (!is_line)
            values_store(head->dst[r] + c * bytes, a[0], dtype);
        if (!is_line && rope == ROPE_HALF)
            values_store(head->dst[r] + (c + half) * bytes, b[0], dtype);
        if (is_line)
            line_put(head->dst[r] + c * bytes, a, dtype, streams);
        if (is_line && rope == ROPE_HALF)
            line_put(head->dst[r] + (c + half) * bytes, b, dtype, streams);
    }
}

/* Decodes channels [first, end) of a head, with ROPE_HALF also the other half of each pair. */
INLINE void range_decode(const struct planes_head *head, uint64_t row, uint64_t row_end,
                         uint64_t first, uint64_t end, uint32_t rope, uint32_t dtype, bool streams)
{
    uint32_t vectors = dtype == SC_KERNELS_F32 ? 1 : 2;
    uint64_t line = vectors * LANES;
    if (end - first >= line) {
        for (uint64_t c = first; c < end; c += line)
            unit_decode(head, row, row_end, vector_at(c, end, line), rope, vectors, dtype, streams);
        return;
    }
    for (uint64_t c = first; c < end; c += LANES)
        unit_decode(head, row, row_end, vector_at(c, end, LANES), rope, 1, dtype, false);
}

INLINE void rows_decode(const struct planes_head *head, uint64_t row, uint64_t row_end,
                        uint32_t rope, bool streams, uint32_t dtype)
{
    if (rope == ROPE_HALF)
        range_decode(head, row, row_end, 0, head->turned / 2, ROPE_HALF, dtype, streams);
    if (rope == ROPE_INTERLEAVED)
        range_decode(head, row, row_end, 0, head->turned, ROPE_INTERLEAVED, dtype, streams);
    range_decode(head, row, row_end, head->turned, head->size, ROPE_NONE, dtype, streams);
}

/* Rows are mostly a multiple of 4 KiB apart, so lines of several rows evict each other from the L1
 * cache. Anything but one store of a whole line is therefore written row by row. */
INLINE void head_decode(const struct planes_head *head, uint32_t rope, bool streams, uint32_t dtype)
{
    if (!streams || STREAM_ROWS == 1) { /* lets the compiler see that it is one row */
        for (uint64_t row = 0; row < head->count; row++)
            rows_decode(head, row, row + 1, rope, streams, dtype);
        return;
    }
    for (uint64_t row = 0; row < head->count; row += STREAM_ROWS) {
        uint64_t left = head->count - row;
        rows_decode(head, row, row + (left < STREAM_ROWS ? left : STREAM_ROWS), rope, streams,
                    dtype);
    }
}

INLINE void tile_take(const struct sc_kernels_bitplanes_decode *what, uint64_t *row,
                      struct planes_head *ret_head)
{
    uint64_t n = 0;
    for (; n < PLANES_TILE && *row < what->row_count; *row += 1) {
        if (what->dst[*row] == NULL)
            continue;
        ret_head->rows[n] = what->codes + *row * what->planes->row_bytes;
        ret_head->rope[n] =
            ret_head->turned > 0 ? what->rope + *row * ret_head->turned : ret_head->steps;
        ret_head->dst[n++] = what->dst[*row];
    }
    ret_head->count = n;
    for (uint64_t i = n; n > 0 && i < PLANES_TILE; i++)
        ret_head->rows[i] = ret_head->rows[n - 1];
}

/* Prefetches a tile's codes of the next head. */
INLINE void tile_ahead(const struct sc_kernels_bitplanes *planes, const uint8_t *const *rows,
                       uint64_t count, uint64_t head)
{
    uint64_t next = head + 1 < planes->head_count ? head + 1 : head;
    uint64_t at = head_at(planes, next), end = head_at(planes, next + 1);
    for (uint64_t r = 0; r < count; r++)
        for (uint64_t line = at; line < end; line += 64)
            __builtin_prefetch(rows[r] + line + 63, 0, 3);
}

/* Tells whether each row's head is whole lines, as non-temporal stores require. */
static bool has_lines(const struct sc_kernels_bitplanes_decode *what)
{
    uint64_t bytes = element_bytes(what->dst_dtype), turned = 0;
    if (what->rotary != NULL)
        turned = what->rotary->pairs == SC_KERNELS_ROTARY_HALF ? what->rotary->turned / 2
                                                               : what->rotary->turned;
    bool has =
        what->streams && turned * bytes % 64 == 0 && what->planes->head_size * bytes % 64 == 0;
    for (uint64_t i = 0; has && i < what->row_count; i++)
        has = (uintptr_t)what->dst[i] % 64 == 0;
    return has;
}

/* With ROPE_INTERLEAVED: computes the factors of each channel of a tile's rows, once for all heads.
 *   ret_pairs [PLANES_TILE][cos x turned, sin x turned], which replace the rows' rotations */
INLINE void pairs_make(struct planes_head *head, float (*ret_pairs)[2 * HEAD_MOST])
{
    for (uint64_t r = 0; r < head->count; r++) {
        for (uint64_t c = 0; c < head->turned; c += LANES) {
            uint64_t at = vector_at(c, head->turned, LANES);
            const float *row_rope = head->rope[r] + at / 2;
            floats sin = pairs_signed(pairs_both(row_rope + head->turned / 2));
            V(storeu_ps)(ret_pairs[r] + at, pairs_both(row_rope));
            V(storeu_ps)(ret_pairs[r] + head->turned + at, sin);
        }
        head->rope[r] = ret_pairs[r];
    }
}

static void rung_bitplanes_decode(const struct sc_kernels_bitplanes_decode *what)
{
    const struct sc_kernels_bitplanes *planes = what->planes;
    float pairs[PLANES_TILE][2 * HEAD_MOST];
    struct planes_head head;
    if (!is_own(what->dst_dtype) || !has_vectors(what->rotary, planes->head_size)) {
        sc_kernels_ref_bitplanes_decode(what);
        return;
    }
    bool streams = has_lines(what);
    uint32_t rope = rope_of(what->rotary);
    head.size = planes->head_size;
    head.turned = what->rotary != NULL ? what->rotary->turned : 0;
    for (uint64_t row = 0; row < what->row_count;) {
        tile_take(what, &row, &head);
        if (rope == ROPE_INTERLEAVED)
            pairs_make(&head, pairs);
        for (uint64_t h = what->head_first; h < what->head_first + what->head_count; h++) {
            head_scales(planes, what->scales, h, &head);
            tile_ahead(planes, head.rows, head.count, h);
            tile_spread(planes, h, &head);
            if (streams)
                BY_DTYPE(what->dst_dtype, head_decode, &head, rope, true);
            else
                BY_DTYPE(what->dst_dtype, head_decode, &head, rope, false);
            for (uint64_t r = 0; r < head.count; r++)
                head.dst[r] += head.size * element_bytes(what->dst_dtype);
        }
    }
}

/* ---- Encoding ------------------------------------------------------------------------------- */

struct bitplanes_quantised {
    _Alignas(64) float values[SC_KERNELS_CODEC_ROWS_MAX][LANES];
    _Alignas(64) uint8_t codes[SC_KERNELS_CODEC_ROWS_MAX * HEAD_MOST]; /* stride bytes a row */
    uint64_t head, stride;
};

/* Returns LANES channels of a row, rotated back. channel: relative to `first`, the head's first */
INLINE floats lanes_back(const struct sc_kernels_bitplanes_encode *what, uint64_t row,
                         uint64_t first, uint64_t channel, uint32_t rope, uint32_t dtype)
{
    const uint8_t *from = what->rows[row];
    floats x = widened(from, first + channel, dtype);
    if (rope == ROPE_NONE)
        return x;
    uint64_t half = what->rotary->turned / 2;
    const float *row_rope = what->rope + row * what->rotary->turned;
    if (rope == ROPE_INTERLEAVED) {
        floats sin = pairs_signed(pairs_both(row_rope + half + channel / 2));
        floats along = V(mul_ps)(x, pairs_both(row_rope + channel / 2));
        return V(fnmadd_ps)(pairs_swapped(x), sin, along);
    }
    if (channel < half) {
        floats y = widened(from, first + channel + half, dtype);
        floats along = V(mul_ps)(x, V(loadu_ps)(row_rope + channel));
        return V(fmadd_ps)(y, V(loadu_ps)(row_rope + half + channel), along);
    }
    floats y = widened(from, first + channel - half, dtype);
    floats along = V(mul_ps)(x, V(loadu_ps)(row_rope + channel - half));
    return V(fnmadd_ps)(y, V(loadu_ps)(row_rope + channel), along);
}

/* Writes scales and codes of LANES channels; `rope` and dtype are constants. false: not finite. */
INLINE bool lanes_encode(const struct sc_kernels_bitplanes_encode *what,
                         struct bitplanes_quantised *quantised, uint64_t channel, uint32_t rope,
                         uint32_t dtype)
{
    uint64_t size = what->planes->head_size, first = quantised->head * size;
    uint64_t channels = what->planes->head_count * size;
    const words positive = V(set1_epi32)(INT32_MAX);
    const words infinity = V(set1_epi32)(0x7f800000);
    const words bound = rope == ROPE_NONE ? infinity : V(set1_epi32)(0x47000000); /* 2^15 */
    floats least = V(set1_ps)(__builtin_inff()), most = V(set1_ps)(-__builtin_inff());
    words largest = VI(setzero)(); /* of the values' bits */
    for (uint64_t i = 0; i < what->row_count; i++) {
        __builtin_prefetch(what->rows[i] + (first + channel) * element_bytes(dtype) + 128, 0, 3);
        floats x = lanes_back(what, i, first, channel, rope, dtype);
        V(store_ps)(quantised->values[i], x);
        largest = V(max_epu32)(largest, VI(and)(VI(castps)(x), positive));
        least = V(min_ps)(x, least);
        most = V(max_ps)(x, most);
    }
    halves scales[2] = {V(cvtps_ph)(least, ROUND), V(cvtps_ph)(V(sub_ps)(most, least), ROUND)};
    floats min = V(cvtph_ps)(scales[0]), span = V(cvtph_ps)(scales[1]);
    words wide = V(max_epu32)(VI(and)(VI(castps)(min), positive), VI(castps)(span));
    if ((marks_at_most(marks_some(LANES), bound, largest) |
         marks_at_most(marks_some(LANES), infinity, wide)) != 0)
        return false;
    halves_store(what->scales + (first + channel) * 2, scales[0]);
    halves_store(what->scales + (channels + first + channel) * 2, scales[1]);
    floats step = V(mul_ps)(span, V(set1_ps)(0x1p-8f)); /* if 0, codes are 0 */
    step = floats_above(VI(castps)(step), VI(setzero)(), step, V(set1_ps)(__builtin_inff()));
    for (uint64_t i = 0; i < what->row_count; i++) {
        floats at = V(div_ps)(V(sub_ps)(V(load_ps)(quantised->values[i]), min), step);
        at = V(min_ps)(V(max_ps)(at, V(setzero_ps)()), V(set1_ps)(255));
        quant_put_bytes(quantised->codes + i * quantised->stride + channel, V(cvttps_epi32)(at));
    }
    return true;
}

INLINE bool range_encode(const struct sc_kernels_bitplanes_encode *what,
                         struct bitplanes_quantised *quantised, uint64_t first, uint64_t end,
                         uint32_t rope, uint32_t dtype)
{
    bool has_quant = true;
    for (uint64_t c = first; c < end && has_quant; c += LANES)
        has_quant = lanes_encode(what, quantised, vector_at(c, end, LANES), rope, dtype);
    return has_quant;
}

INLINE bool head_encode(const struct sc_kernels_bitplanes_encode *what,
                        struct bitplanes_quantised *quantised, uint32_t dtype)
{
    uint32_t rope = rope_of(what->rotary);
    uint64_t turned = rope == ROPE_NONE ? 0 : what->rotary->turned;
    bool has_quant =
        range_encode(what, quantised, turned, what->planes->head_size, ROPE_NONE, dtype);
    if (rope == ROPE_HALF)
        return has_quant && range_encode(what, quantised, 0, turned / 2, ROPE_HALF, dtype) &&
               range_encode(what, quantised, turned / 2, turned, ROPE_HALF, dtype);
    return has_quant && range_encode(what, quantised, 0, turned, ROPE_INTERLEAVED, dtype);
}

/* Writes a group of all rows, row by row: a row's planes share a line. The 8-byte stores overrun a
 * plane, and later stores overwrite the excess; the last ones of a row are exact. */
INLINE void group_put(const struct sc_kernels_bitplanes *planes,
                      const struct sc_kernels_bitplanes_group *group, const uint8_t *codes,
                      uint64_t stride, uint64_t row_count, uint8_t *dst)
{
    struct bits_moves moves[SC_KERNELS_BITPLANES];
    for (uint32_t p = 0; p < group->end; p++)
        moves[p] = bits_moves_of(group->masks[p]);
    for (uint64_t i = 0; i < row_count; i++)
        for (uint32_t p = 0; p < group->end; p++) {
            uint64_t bits = bits_together(plane_bits(codes + i * stride, p), &moves[p]);
            uint64_t at = group->offset + group->at[p];
            uint8_t *to = dst + i * planes->row_bytes + at;
            if (at + 8 <= planes->row_bytes)
                memcpy(to, &bits, 8);
            else
                memcpy(to, &bits, group->bytes[p]);
        }
}

static void planes_put(const struct sc_kernels_bitplanes *planes,
                       const struct bitplanes_quantised *quantised, uint64_t row_count,
                       uint8_t *dst)
{
    for (uint64_t g = 0; g < planes->head_groups; g++)
        group_put(planes, &planes->groups[quantised->head * planes->head_groups + g],
                  quantised->codes + g * SC_KERNELS_BITPLANES_GROUP, quantised->stride, row_count,
                  dst);
}

static void quant_ahead(const struct sc_kernels_bitplanes *planes, uint64_t head,
                        uint64_t row_count, uint8_t *dst)
{
    uint64_t at = head_at(planes, head), end = head_at(planes, head + 1);
    for (uint64_t i = 0; i < row_count; i++)
        for (uint64_t line = at; line < end; line += 64)
            __builtin_prefetch(dst + i * planes->row_bytes + line, 1, 3);
}

static bool rung_bitplanes_encode(const struct sc_kernels_bitplanes_encode *what)
{
    const struct sc_kernels_bitplanes *planes = what->planes;
    if (!is_own(what->dtype) || !has_vectors(what->rotary, planes->head_size))
        return sc_kernels_ref_bitplanes_encode(what);
    struct bitplanes_quantised quantised;
    bool has_quant = true;
    quantised.stride = planes->head_groups * SC_KERNELS_BITPLANES_GROUP;
    for (quantised.head = 0; quantised.head < planes->head_count && has_quant; quantised.head++) {
        quant_ahead(planes, quantised.head, what->row_count, what->codes);
        has_quant = BY_DTYPE(what->dtype, head_encode, what, &quantised);
        if (has_quant)
            planes_put(planes, &quantised, what->row_count, what->codes);
    }
    if (!has_quant) {
        memset(what->scales, 0, sc_kernels_bitplanes_scale_bytes(planes));
        memset(what->codes, 0, what->row_count * planes->row_bytes);
    }
    return has_quant;
}

#endif
