/* importance.h: arithmetic of row sets, and sums of scores. */
#include "kernels/importance.h"

#include <math.h>

double sc_kernels_jaccard(uint64_t both, uint64_t a_count, uint64_t b_count)
{
    if (a_count + b_count == 0)
        return 1;
    return (double)both / (double)(a_count + b_count - both);
}

double sc_kernels_similarity(const struct sc_kernels *kernels, const uint64_t *sets,
                             uint64_t set_count, uint64_t count, uint64_t k)
{
    uint64_t words = SC_KERNELS_WORDS(count);
    if (set_count < 2)
        return 1;
    double sum = 0;
    for (uint64_t a = 0; a < set_count; a++)
        for (uint64_t b = a + 1; b < set_count; b++)
            sum += sc_kernels_jaccard(kernels->bits_both(sets + a * words, sets + b * words, words),
                                      k, k);
    return sum / (double)(set_count * (set_count - 1) / 2);
}

double sc_kernels_threshold(uint64_t k, uint64_t row_total, double alpha)
{
    double share = (double)k / (double)row_total;
    return pow(share / (2 - share), alpha);
}

void sc_kernels_add(const struct sc_kernels *kernels, float *dst, const float *src, uint64_t count)
{
    kernels->accumulate(dst, src, 1, count);
}

uint64_t sc_kernels_granules(const float *scores, uint64_t count, uint64_t position, uint64_t unit,
                             float *ret_sums)
{
    uint64_t granules = 0;
    for (uint64_t j = 0; j < count; granules++) {
        uint64_t end = j + unit - (position + j) % unit;
        float sum = 0;
        for (; j < end && j < count; j++)
            sum += scores[j];
        ret_sums[granules] = sum;
    }
    return granules;
}
