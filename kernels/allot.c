/* Widths of channels: see allot.h.
 *
 * Threads: any. Tests: tests/unit/kernels/test_allot.c */
#include "kernels/allot.h"

#include "kernels/planes.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define UNIT 8u /* channels */

/* A byte that a row may have. */
struct byte {
    double gain; /* of error */
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
    return units * SC_KERNELS_PLANES * sizeof(struct byte) + channels * sizeof(struct channel);
}

static int by_weight(const void *a, const void *b)
{
    const struct channel *x = a, *y = b;
    if (x->weight != y->weight)
        return x->weight > y->weight ? -1 : 1;
    return x->at < y->at ? -1 : x->at > y->at;
}

static int by_gain(const void *a, const void *b)
{
    const struct byte *x = a, *y = b;
    if (x->gain != y->gain)
        return x->gain > y->gain ? -1 : 1;
    if (x->plane != y->plane)
        return x->plane < y->plane ? -1 : 1;
    return x->unit < y->unit ? -1 : x->unit > y->unit;
}

void sc_kernels_allot(const float *weights, uint64_t head_count, uint64_t head_size,
                      uint64_t row_bytes, void *scratch, uint8_t *ret_to)
{
    uint64_t channels = head_count * head_size, count = channels / UNIT * SC_KERNELS_PLANES;
    struct byte *bytes = scratch;
    struct channel *order = (struct channel *)(void *)(bytes + count);
    for (uint64_t c = 0; c < channels; c++)
        order[c] = (struct channel){weights[c], (uint32_t)c};
    for (uint64_t head = 0; head < head_count; head++)
        for (uint64_t c = 0; c < head_size; c += SC_KERNELS_PLANES_GROUP) {
            uint64_t left = head_size - c;
            qsort(order + head * head_size + c,
                  left < SC_KERNELS_PLANES_GROUP ? left : SC_KERNELS_PLANES_GROUP, sizeof(*order),
                  by_weight);
        }
    for (uint64_t i = 0; i < count; i++) {
        uint64_t unit = i / SC_KERNELS_PLANES, plane = i % SC_KERNELS_PLANES;
        double sum = 0;
        for (uint64_t c = 0; c < UNIT; c++)
            sum += (double)order[unit * UNIT + c].weight;
        double gain = sum * (share_of((uint32_t)plane) - share_of((uint32_t)plane + 1));
        bytes[i] = (struct byte){gain, (uint32_t)plane, (uint32_t)unit};
    }
    qsort(bytes, count, sizeof(*bytes), by_gain); /* of a unit planes stay in their order */
    memset(ret_to, 0, channels);
    for (uint64_t i = 0; i < row_bytes; i++)
        for (uint64_t c = 0; c < UNIT; c++)
            ret_to[order[bytes[i].unit * UNIT + c].at]++;
}

double sc_kernels_allot_error(const float *weights, uint64_t channels, const uint8_t *to)
{
    double sum = 0;
    for (uint64_t c = 0; c < channels; c++)
        sum += (double)weights[c] * share_of(to[c]);
    return sum;
}
