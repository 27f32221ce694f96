/* ref_bitplanes: per-channel quantised rows in plain C, the reference for all rungs. */
#include "kernels/bitplanes.h"
#include "kernels/ref/value.h"

#include <math.h>
#include <string.h>

#define GROUP SC_KERNELS_BITPLANES_GROUP

static const struct sc_kernels_bitplanes_group *group_of(const struct sc_kernels_bitplanes *planes,
                                                         uint64_t channel)
{
    uint64_t head = channel / planes->head_size, c = channel % planes->head_size;
    return &planes->groups[head * planes->head_groups + c / GROUP];
}

static void bits_put(const struct sc_kernels_bitplanes *planes, uint8_t *row, uint64_t channel,
                     uint32_t code)
{
    const struct sc_kernels_bitplanes_group *group = group_of(planes, channel);
    uint64_t c = channel % planes->head_size % GROUP;
    for (uint32_t p = 0; p < group->end; p++) {
        uint32_t place = group->places[p][c], bit = code >> (7 - p) & 1;
        if (group->masks[p] >> c & 1)
            row[group->offset + group->at[p] + place / 8] |= (uint8_t)(bit << place % 8);
    }
}

/* Returns the stored bits at their positions in an 8-bit code. */
static uint32_t bits_at(const struct sc_kernels_bitplanes *planes, const uint8_t *row,
                        uint64_t channel)
{
    const struct sc_kernels_bitplanes_group *group = group_of(planes, channel);
    uint64_t c = channel % planes->head_size % GROUP;
    uint32_t code = 0;
    for (uint32_t p = 0; p < group->end; p++) {
        uint32_t place = group->places[p][c];
        if (group->masks[p] >> c & 1)
            code |= ((uint32_t)row[group->offset + group->at[p] + place / 8] >> place % 8 & 1)
                    << (7 - p);
    }
    return code;
}

static bool is_turned(const struct sc_kernels_rotary *rotary, uint64_t head_size, uint64_t channel)
{
    return rotary != NULL && channel % head_size < rotary->turned;
}


static float back_at(const struct sc_kernels_bitplanes_encode *what, uint64_t row, uint64_t channel)
{
    uint64_t size = what->planes->head_size, pair;
    float x = value_at(what->rows[row], channel, what->dtype), sign;
    if (!is_turned(what->rotary, size, channel))
        return x;
    uint64_t c = channel % size;
    uint64_t other = sc_kernels_rotary_partner(what->rotary, c, &pair, &sign);
    const float *row_rope = what->rope + row * what->rotary->turned;
    float y = value_at(what->rows[row], channel - c + other, what->dtype);
    float along = x * row_rope[pair];
    return fmaf(-sign * y, row_rope[what->rotary->turned / 2 + pair], along);
}

static bool channel_scale(const struct sc_kernels_bitplanes_encode *what, uint64_t channel)
{
    bool has_rope = is_turned(what->rotary, what->planes->head_size, channel), is_small = true;
    float least = INFINITY, most = -INFINITY, bound = has_rope ? 32768.0f : INFINITY;
    for (uint64_t i = 0; i < what->row_count; i++) {
        float x = back_at(what, i, channel);
        is_small &= fabsf(x) < bound;
        least = x < least ? x : least;
        most = x > most ? x : most;
    }
    uint8_t *min = what->scales + channel * 2;
    uint8_t *span = min + sc_kernels_bitplanes_scale_bytes(what->planes) / 2;
    return is_small && scale_put(min, least) && scale_put(span, most - least);
}

static void all_clear(const struct sc_kernels_bitplanes_encode *what)
{
    memset(what->scales, 0, sc_kernels_bitplanes_scale_bytes(what->planes));
    memset(what->codes, 0, what->row_count * what->planes->row_bytes);
}

bool sc_kernels_ref_bitplanes_encode(const struct sc_kernels_bitplanes_encode *what)
{
    const struct sc_kernels_bitplanes *planes = what->planes;
    uint64_t channels = planes->head_count * planes->head_size;
    bool has_quant = true;
    all_clear(what);
    for (uint64_t c = 0; c < channels && has_quant; c++) {
        has_quant = channel_scale(what, c);
        float min = value_at(what->scales, c, SC_KERNELS_F16);
        float step = value_at(what->scales, channels + c, SC_KERNELS_F16) * 0x1p-8f;
        for (uint64_t i = 0; i < what->row_count && has_quant && step > 0; i++) {
            float at = (back_at(what, i, c) - min) / step;
            at = at > 0 ? at : 0;
            at = at < 255 ? at : 255;
            bits_put(planes, what->codes + i * planes->row_bytes, c, (uint32_t)at);
        }
    }
    if (!has_quant)
        all_clear(what);
    return has_quant;
}

/* Codes of a row; row_value returns a channel in float32, before the rotation. */
struct row {
    const struct sc_kernels_bitplanes *planes;
    const uint8_t *scales, *codes;
};

static float row_value(const struct row *row, uint64_t channel)
{
    uint64_t channels = row->planes->head_count * row->planes->head_size;
    uint32_t to = row->planes->to[channel];
    uint32_t code = bits_at(row->planes, row->codes, channel);
    float min = value_at(row->scales, channel, SC_KERNELS_F16);
    float step = value_at(row->scales, channels + channel, SC_KERNELS_F16) * 0x1p-8f;
    float gain = to <= SC_KERNELS_BITPLANES_FEW ? sc_kernels_bitplanes_gains[to] : 1;
    float middle = to <= SC_KERNELS_BITPLANES_FEW ? sc_kernels_bitplanes_middles[to]
                                                  : (float)(1u << (8 - to)) / 2;
    return fmaf((float)code, step * gain, fmaf(middle, step, min));
}

static float turned_value(const struct row *row, uint64_t channel,
                          const struct sc_kernels_rotary *rotary, const float *row_rope)
{
    uint64_t size = row->planes->head_size, c = channel % size, pair;
    float x = row_value(row, channel), sign;
    if (!is_turned(rotary, size, channel))
        return x;
    uint64_t other = sc_kernels_rotary_partner(rotary, c, &pair, &sign);
    float y = row_value(row, channel - c + other), along = x * row_rope[pair];
    return fmaf(sign * y, row_rope[rotary->turned / 2 + pair], along);
}

void sc_kernels_ref_bitplanes_decode(const struct sc_kernels_bitplanes_decode *what)
{
    uint64_t size = what->planes->head_size, first = what->head_first * size;
    for (uint64_t i = 0; i < what->row_count; i++) {
        struct row row = {what->planes, what->scales, what->codes + i * what->planes->row_bytes};
        const float *row_rope =
            what->rotary != NULL ? what->rope + i * what->rotary->turned : NULL;
        for (uint64_t c = 0; what->dst[i] != NULL && c < what->head_count * size; c++) {
            float value = turned_value(&row, first + c, what->rotary, row_rope);
            sc_kernels_dtypes[what->dst_dtype].narrow(
                what->dst[i] + c * sc_kernels_dtype_bytes(what->dst_dtype), &value, 1);
        }
    }
}

void sc_kernels_ref_bitplanes_score(const struct sc_kernels_bitplanes_score *what)
{
    uint64_t size = what->planes->head_size, first = what->head * size;
    for (uint64_t i = 0; i < what->row_count; i++) {
        struct row row = {what->planes, what->scales, what->codes + i * what->planes->row_bytes};
        const float *row_rope =
            what->rotary != NULL ? what->rope + i * what->rotary->turned : NULL;
        for (uint64_t v = 0; v < what->query_count; v++) {
            float sum = 0;
            for (uint64_t t = 0; t < size; t++)
                sum += what->queries[v * what->head_padded + t] *
                       turned_value(&row, first + t, what->rotary, row_rope);
            what->scores[v * what->score_stride + i] = sum;
        }
    }
}
