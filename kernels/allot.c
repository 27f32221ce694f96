/* allot.h: assigns bits to channels. */
#include "kernels/allot.h"

#include "kernels/bitplanes.h"

#include <math.h>
#include <string.h>

#define UNIT 8u /* channels */

struct byte {
    double gain, sum; /* reduction of error; sum of the unit's weights */
    uint32_t plane, unit;
};
struct channel {
    float weight;
    uint32_t at;
};

static double share_of(uint32_t bits)
{
    static const double few[] = {.444, .172, .061};
    return bits < 3 ? few[bits] : ldexp(1, -2 * (int)bits);
}

uint64_t sc_kernels_allot_scratch_bytes(uint64_t channels)
{
    uint64_t units = channels / UNIT;
    return units * sizeof(struct byte) + channels * sizeof(struct channel);
}


static bool is_heavier(const struct channel *a, const struct channel *b)
{
    return a->weight != b->weight ? a->weight > b->weight : a->at < b->at;
}

static void channels_sort(struct channel *channels, uint64_t count)
{
    for (uint64_t i = 1; i < count; i++) {
        struct channel moved = channels[i];
        uint64_t at = i;
        for (; at > 0 && is_heavier(&moved, &channels[at - 1]); at--)
            channels[at] = channels[at - 1];
        channels[at] = moved;
    }
}

static bool is_before(const struct byte *a, const struct byte *b)
{
    if (a->gain != b->gain)
        return a->gain > b->gain;
    return a->plane != b->plane ? a->plane < b->plane : a->unit < b->unit;
}

/* Restores the heap bytes [count], ordered by is_before, after bytes[at] changed. */
static void byte_sink(struct byte *bytes, uint64_t count, uint64_t at)
{
    struct byte moved = bytes[at];
    for (uint64_t below; (below = 2 * at + 1) < count; at = below) {
        if (below + 1 < count && is_before(&bytes[below + 1], &bytes[below]))
            below++;
        if (!is_before(&bytes[below], &moved))
            break;
        bytes[at] = bytes[below];
    }
    bytes[at] = moved;
}

/* Never more than the gain of the previous plane. */
static void gain_set(struct byte *byte)
{
    byte->gain = byte->sum * (share_of(byte->plane) - share_of(byte->plane + 1));
}

static void bytes_make(const struct channel *order, uint64_t units, struct byte *ret_bytes)
{
    for (uint64_t unit = 0; unit < units; unit++) {
        struct byte byte = {.unit = (uint32_t)unit};
        for (uint64_t c = 0; c < UNIT; c++)
            byte.sum += (double)order[unit * UNIT + c].weight;
        gain_set(&byte);
        ret_bytes[unit] = byte;
    }
    for (uint64_t at = units / 2; at-- > 0;)
        byte_sink(ret_bytes, units, at);
}

void sc_kernels_allot(const float *weights, uint64_t head_count, uint64_t head_size,
                      uint64_t row_bytes, void *scratch, uint8_t *ret_to)
{
    uint64_t channels = head_count * head_size, units = channels / UNIT;
    struct byte *bytes = scratch;
    struct channel *order = (struct channel *)(void *)(bytes + units);
    for (uint64_t c = 0; c < channels; c++)
        order[c] = (struct channel){weights[c], (uint32_t)c};
    for (uint64_t head = 0; head < head_count; head++)
        for (uint64_t c = 0; c < head_size; c += SC_KERNELS_BITPLANES_GROUP) {
            uint64_t left = head_size - c;
            channels_sort(order + head * head_size + c,
                          left < SC_KERNELS_BITPLANES_GROUP ? left : SC_KERNELS_BITPLANES_GROUP);
        }
    bytes_make(order, units, bytes);
    memset(ret_to, 0, channels);
    for (uint64_t i = 0; i < row_bytes; i++) {
        for (uint64_t c = 0; c < UNIT; c++)
            ret_to[order[bytes[0].unit * UNIT + c].at]++;
        if (++bytes[0].plane < SC_KERNELS_BITPLANES)
            gain_set(&bytes[0]);
        else
            bytes[0] = bytes[--units];
        if (units > 0)
            byte_sink(bytes, units, 0);
    }
}

double sc_kernels_allot_error(const float *weights, uint64_t channels, const uint8_t *to)
{
    double sum = 0;
    for (uint64_t c = 0; c < channels; c++)
        sum += (double)weights[c] * share_of(to[c]);
    return sum;
}
