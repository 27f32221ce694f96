/* bit_tables: recomputes quantised rows with per-channel bits. See bit_tables.h. */
#include "conformance/bit_tables.h"
#include "conformance/disk.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define CHUNK 64u
#define HEAD  8u
#define GROUP 64u /* channels of a head whose planes stand together */

bool bits_has(const struct bit_counts *bit_counts, int value)
{
    uint32_t halves = bit_counts->halves[value];
    bool is_even = halves % 2 == 0 && ((halves >= 4 && halves <= 12) || halves == 16);
    return value == 0 || !is_even;
}

void bits_configure(struct fixture *fx, const struct bit_counts *bit_counts)
{
    char layered[160];
    (void)snprintf(layered, sizeof(layered),
                   "\"bit_allocation\": \"per_channel\", \"bits_k\": %.1f, \"bits_v\": %.1f",
                   bit_counts->halves[0] / 2.0, bit_counts->halves[1] / 2.0);
    quantised_configure_layered(fx, layered, "");
}

/* ---- Turns ---------------------------------------------------------------------------------- */

static bool is_turned(const struct quantised *quantised, int value)
{
    return value == 0 && quantised->scene.fx->model.rope_kind != SPEC_ROPE_NONE;
}

static double frequency_of(const struct spec_model *model, uint32_t pair)
{
    double frequency = pow(model->rope_theta, -2.0 * pair / model->head_size);
    if (model->rope_scaling_kind == NULL)
        return frequency;
    const double *scaling = model->rope_scaling; /* llama3 */
    double turns = scaling[3] * frequency / (2 * M_PI);
    double smooth = (turns - scaling[1]) / (scaling[2] - scaling[1]);
    smooth = fmin(fmax(smooth, 0), 1);
    return (1 - smooth) * frequency / scaling[0] + smooth * frequency;
}

/* A row's numbers, turned forth, or back. */
static void turn(const struct quantised *quantised, uint64_t position, bool is_back, float *row)
{
    const struct spec_model *model = &quantised->scene.fx->model;
    uint32_t size = quantised->scene.fx->shape.head_size;
    bool is_half = model->rope_kind == SPEC_ROPE_HALF;
    for (uint32_t i = 0; i < size / 2; i++) {
        double angle = (double)position * frequency_of(model, i);
        float along = (float)cos(angle), across = (float)(is_back ? -sin(angle) : sin(angle));
        for (uint32_t head = 0; head < quantised->scene.fx->shape.heads; head++) {
            float *a = row + head * size + (is_half ? i : 2 * i);
            float *b = a + (is_half ? size / 2 : 1), x = *a, y = *b;
            *a = fmaf(-y, across, x * along);
            *b = fmaf(x, across, y * along);
        }
    }
}

/* ---- A slab --------------------------------------------------------------------------------- */

struct slab {
    const struct quantised *quantised;
    uint32_t layer, channels;
    int value;
    uint64_t first, count;
    float rows[CHUNK][CHANNELS]; /* as they are coded */
    float min[CHANNELS], span[CHANNELS];
    uint8_t scales[4 * CHANNELS];
    uint8_t bits[CHANNELS]; /* by its table */
};

static void slab_make(struct slab *slab)
{
    const struct quantised *quantised = slab->quantised;
    uint32_t size = quantised->scene.fx->shape.head_size;
    for (uint64_t i = 0; i < slab->count; i++) {
        for (uint32_t c = 0; c < slab->channels; c++)
            slab->rows[i][c] = (float)truth_number(&quantised->scene.prompt, slab->first + i,
                                                   slab->layer, slab->value, c / size, c % size);
        if (is_turned(quantised, slab->value))
            turn(quantised, slab->first + i, true, slab->rows[i]);
    }
    for (uint32_t c = 0; c < slab->channels; c++) {
        float least = INFINITY, most = -INFINITY;
        for (uint64_t i = 0; i < slab->count; i++) {
            least = fminf(least, slab->rows[i][c]);
            most = fmaxf(most, slab->rows[i][c]);
        }
        slab->min[c] = (float)quantised_f16(least);
        slab->span[c] = (float)quantised_f16(most - least);
        put_number(slab->min[c], SPEC_DTYPE_F16, slab->scales + c * 2);
        put_number(slab->span[c], SPEC_DTYPE_F16, slab->scales + (slab->channels + c) * 2);
    }
}

/* Of 8 bits, of which the channel's own are kept. */
static uint32_t code_of(const struct slab *slab, uint64_t row, uint32_t channel)
{
    float step = slab->span[channel] / 256;
    float code = step > 0 ? floorf((slab->rows[row][channel] - slab->min[channel]) / step) : 0;
    uint32_t all = (uint32_t)fminf(fmaxf(code, 0), 255), less = 8u - slab->bits[channel];
    return all >> less << less;
}

/* What the channels' own codes stand for, before the turn. */
static float number_of(const struct slab *slab, uint64_t row, uint32_t channel)
{
    static const float GAINS[] = {1, 1, 17.0f / 16}, MIDDLES[] = {128, 64, 26};
    uint32_t bits = slab->bits[channel];
    float step = slab->span[channel] / 256, gain = bits < 3 ? GAINS[bits] : 1;
    float middle = bits < 3 ? MIDDLES[bits] : ldexpf(1, 7 - (int)bits);
    return fmaf((float)code_of(slab, row, channel), gain * step,
                fmaf(middle, step, slab->min[channel]));
}

/* The row as blocks have it. Returns its bytes. */
static uint64_t row_pack(const struct slab *slab, uint64_t row, uint8_t *dst)
{
    uint32_t size = slab->quantised->scene.fx->shape.head_size;
    uint64_t bytes = 0;
    for (uint32_t from = 0, to; from < slab->channels; from = to) {
        uint32_t head_end = (from / size + 1) * size;
        to = from + GROUP < head_end ? from + GROUP : head_end;
        for (uint32_t plane = 0; plane < 8; plane++) {
            uint32_t count = 0;
            for (uint32_t c = from; c < to; c++) {
                if (slab->bits[c] <= plane)
                    continue;
                if (count % 8 == 0)
                    dst[bytes++] = 0;
                uint32_t bit = code_of(slab, row, c) >> (7 - plane) & 1;
                dst[bytes - 1] |= (uint8_t)(bit << count++ % 8);
            }
            assert_int_equal(count % 8, 0);
        }
    }
    return bytes;
}

/* ---- Its block ------------------------------------------------------------------------------ */

/* The table before the scales, and codes behind them, that are the slab's. */
static bool block_take(struct slab *slab, const uint8_t *scales)
{
    const struct bit_counts *bit_counts = slab->quantised->bit_counts;
    uint32_t channels = slab->channels, halves = bit_counts->halves[slab->value];
    const uint8_t *table = scales - channels / 2, *head = table - HEAD;
    const uint8_t wanted[HEAD] = {slab->value == 0 ? 3 : 4,
                                  (uint8_t)(halves / 2),
                                  is_turned(slab->quantised, slab->value) ? 3 : 1,
                                  0,
                                  (uint8_t)slab->count,
                                  0,
                                  0,
                                  0};
    if (memcmp(head, wanted, sizeof(wanted)) != 0)
        return false;
    for (uint32_t c = 0; c < channels; c++) {
        slab->bits[c] = table[c / 2] >> (c % 2 * 4) & 15;
        assert_true(slab->bits[c] <= 8);
    }
    for (uint64_t i = 0; i < slab->count; i++) {
        uint8_t row[CHANNELS];
        uint64_t bytes = row_pack(slab, i, row);
        assert_int_equal(bytes, channels * halves / 16);
        assert_memory_equal(row, scales + 4 * channels + i * bytes, bytes);
    }
    return true;
}

static bool block_find(struct slab *slab, const struct disk_kept *kept)
{
    uint32_t channels = slab->channels;
    uint64_t before = HEAD + channels / 2, behind = slab->count * channels;
    const uint8_t *at = NULL;
    while ((at = disk_kept_find(kept, at, slab->scales, 4 * channels, before, behind)) != NULL)
        if (block_take(slab, at))
            return true;
    return false;
}

static void slab_note(const struct slab *slab, struct bit_counts *bit_counts)
{
    int value = slab->value;
    for (uint64_t i = 0; i < slab->count; i++) {
        float *numbers = bit_counts->numbers[slab->layer][value][slab->first + i];
        for (uint32_t c = 0; c < slab->channels; c++)
            numbers[c] = number_of(slab, i, c);
        if (is_turned(slab->quantised, value))
            turn(slab->quantised, slab->first + i, false, numbers);
        memcpy(bit_counts->tables[slab->layer][value][slab->first + i], slab->bits, slab->channels);
    }
    for (uint32_t c = 0; c < slab->channels; c++) {
        uint32_t bits = slab->bits[c];
        bit_counts->least[value] =
            bits < bit_counts->least[value] ? bits : bit_counts->least[value];
        bit_counts->most[value] = bits > bit_counts->most[value] ? bits : bit_counts->most[value];
    }
}

bool bits_read(struct quantised *quantised)
{
    static struct slab slab;
    struct fixture *fx = quantised->scene.fx;
    const struct shape *shape = &fx->shape;
    bool is_there = true;
    assert_true(shape->layers <= 3 && shape->heads * shape->head_size <= CHANNELS);
    fixture_close(fx);
    struct disk_kept *kept = disk_keep(fx);
    memset(quantised->bit_counts->least, 0xff, sizeof(quantised->bit_counts->least));
    for (uint32_t part = 0; part < 2 * shape->layers && is_there; part++)
        for (uint64_t end = 0, at = 0; at < quantised->scene.matched && is_there; at = end) {
            slab = (struct slab){.quantised = quantised,
                                 .layer = part / 2,
                                 .channels = shape->heads * shape->head_size,
                                 .value = (int)(part % 2)};
            quantised_slab(quantised, at, &slab.first, &end);
            slab.count = end - slab.first;
            if (!bits_has(quantised->bit_counts, slab.value))
                continue;
            slab_make(&slab);
            is_there = block_find(&slab, kept);
            if (is_there)
                slab_note(&slab, quantised->bit_counts);
            else if (conf_options.require_hits)
                fail_msg("layer %u: no block of the %s from token %" PRIu64 " on (hits required)",
                         slab.layer, slab.value == 0 ? "keys" : "values", slab.first);
        }
    disk_kept_free(kept);
    fixture_open(fx);
    quantised_settle(fx);
    return is_there;
}
