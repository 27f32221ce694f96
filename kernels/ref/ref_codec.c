/* ref_codec: uniformly quantised rows in plain C, the reference for all rungs (codec.h). */
#include "kernels/codec.h"
#include "kernels/ref/value.h"

#include <math.h>
#include <string.h>

static void code_put(uint8_t *row, uint64_t padded, uint32_t bits, uint64_t channel, uint32_t code)
{
    for (uint32_t width = 8; width > 0; width /= 2) {
        if (!(bits & width))
            continue;
        uint64_t at = channel * width;
        row[at / 8] |= (uint8_t)((code & ((1u << width) - 1)) << at % 8);
        code >>= width;
        row += padded * width / 8;
    }
}

static uint32_t code_at(const uint8_t *row, uint64_t padded, uint32_t bits, uint64_t channel)
{
    uint32_t code = 0, shift = 0;
    for (uint32_t width = 8; width > 0; width /= 2) {
        if (!(bits & width))
            continue;
        uint64_t at = channel * width;
        code |= ((uint32_t)row[at / 8] >> at % 8 & ((1u << width) - 1)) << shift;
        shift += width;
        row += padded * width / 8;
    }
    return code;
}

/* Returns false if a value or scale is not finite. */
static bool channel_scale(const struct sc_kernels_codec *code, const uint8_t *const *rows,
                          uint64_t row_count, uint64_t channel, uint8_t *scales)
{
    float least = INFINITY, most = -INFINITY;
    bool is_finite = true;
    for (uint64_t i = 0; i < row_count; i++) {
        float x = value_at(rows[i], channel, code->dtype);
        is_finite &= fabsf(x) < INFINITY;
        least = x < least ? x : least;
        most = x > most ? x : most;
    }
    uint8_t *min = scales + channel * 2, *step = min + sc_kernels_codec_padded(code->channels) * 2;
    float levels = (float)(1u << code->bits);
    return is_finite && scale_put(min, least) && scale_put(step, (most - least) * (1 / levels));
}

bool sc_kernels_ref_codec_encode(const struct sc_kernels_codec *code, const uint8_t *const *rows,
                                 uint64_t row_count, uint8_t *scales, uint8_t *codes)
{
    uint64_t padded = sc_kernels_codec_padded(code->channels);
    uint64_t row_bytes = sc_kernels_codec_row_bytes(code->channels, code->bits);
    float top = (float)((1u << code->bits) - 1);
    bool has_quant = true;
    memset(scales, 0, sc_kernels_codec_scale_bytes(code->channels));
    memset(codes, 0, row_count * row_bytes);
    for (uint64_t c = 0; c < code->channels && has_quant; c++) {
        has_quant = channel_scale(code, rows, row_count, c, scales);
        float min = value_at(scales, c, SC_KERNELS_F16);
        float step = value_at(scales, padded + c, SC_KERNELS_F16);
        for (uint64_t i = 0; i < row_count && has_quant && step > 0; i++) {
            float at = (value_at(rows[i], c, code->dtype) - min) / step;
            at = at > 0 ? at : 0;
            at = at < top ? at : top;
            code_put(codes + i * row_bytes, padded, code->bits, c, (uint32_t)at);
        }
    }
    if (!has_quant) {
        memset(scales, 0, sc_kernels_codec_scale_bytes(code->channels));
        memset(codes, 0, row_count * row_bytes);
    }
    return has_quant;
}

void sc_kernels_ref_codec_decode(const struct sc_kernels_codec_decode *what)
{
    uint64_t padded = sc_kernels_codec_padded(what->code->channels);
    uint64_t row_bytes = sc_kernels_codec_row_bytes(what->code->channels, what->code->bits);
    for (uint64_t i = 0; i < what->row_count; i++)
        for (uint64_t c = 0; what->dst[i] != NULL && c < what->channel_count; c++) {
            uint64_t channel = what->channel_first + c;
            float min = value_at(what->scales, channel, SC_KERNELS_F16);
            float step = value_at(what->scales, padded + channel, SC_KERNELS_F16);
            float half =
                (float)code_at(what->codes + i * row_bytes, padded, what->code->bits, channel) +
                0.5f;
            float value = fmaf(half, step, min);
            sc_kernels_dtypes[what->dst_dtype].narrow(
                what->dst[i] + c * sc_kernels_dtype_bytes(what->dst_dtype), &value, 1);
        }
}

void sc_kernels_ref_codec_score(const struct sc_kernels_codec_score *what)
{
    const struct sc_kernels_codec *code = what->code;
    uint64_t padded = sc_kernels_codec_padded(code->channels);
    uint64_t row_bytes = sc_kernels_codec_row_bytes(code->channels, code->bits);
    float half = (float)(1u << code->bits) / 2;
    for (uint64_t v = 0; v < what->query_count; v++)
        for (uint64_t i = 0; i < what->row_count; i++) {
            const float *query = what->queries + v * what->head_padded;
            float base = 0, sum = 0;
            for (uint64_t t = 0; t < what->head_size; t++) {
                uint64_t c = what->channel_first + t;
                float min = value_at(what->scales, c, SC_KERNELS_F16);
                float step = value_at(what->scales, padded + c, SC_KERNELS_F16);
                uint32_t at = code_at(what->codes + i * row_bytes, padded, code->bits, c);
                base += query[t] * (min + step * half);
                sum += query[t] * step * ((float)at - half + 0.5f);
            }
            what->scores[v * what->score_stride + i] = base + sum;
        }
}
