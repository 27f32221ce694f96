/* ref_score: scores tiles of keys in plain C, the reference for all rungs. */
#include "kernels/exp2.h"
#include "kernels/kernels.h"

#include <math.h>
#include <string.h>

void sc_kernels_ref_rows_widen(float *dst, const uint8_t *const *rows, uint64_t count,
                               uint64_t head_size, uint32_t dtype)
{
    for (uint64_t j = 0; j < count; j++) {
        sc_kernels_ref_widen(dst, rows[j], head_size, dtype);
        dst += head_size;
        for (uint64_t t = head_size; t % 16 != 0; t++)
            *dst++ = 0;
    }
}

void sc_kernels_ref_lanes_score(const struct sc_kernels_lanes_score *what)
{
    uint64_t width = what->width;
    for (uint64_t j = 0; j < what->key_count; j++) {
        float *row = what->scores + j * width;
        for (uint64_t lane = 0; lane < width; lane++)
            row[lane] = 0;
        for (uint64_t t = 0; t < what->head_size; t++)
            for (uint64_t lane = 0; lane < width; lane++)
                row[lane] += what->keys[j * what->key_stride + t] * what->queries[t * width + lane];
    }
}

void sc_kernels_ref_lanes_soften(float *scores, uint64_t width, uint64_t key_count,
                                 const uint32_t *seen, float *best, float *sums)
{
    for (uint64_t lane = 0; lane < width; lane++) {
        uint64_t count = seen != NULL && seen[lane] < key_count ? seen[lane] : key_count;
        float most = best[lane];
        for (uint64_t j = 0; j < count; j++)
            if (scores[j * width + lane] > most)
                most = scores[j * width + lane];
        float base = most == -INFINITY ? 0 : most, sum = 0;
        for (uint64_t j = 0; j < key_count; j++) {
            float *score = &scores[j * width + lane];
            *score = j < count ? sc_kernels_exp2(*score - base) : 0;
            sum += *score;
        }
        sums[lane] = sums[lane] * sc_kernels_exp2(best[lane] - base) + sum;
        best[lane] = most;
    }
}

void sc_kernels_ref_lanes_weigh(const float *best_then, const float *best, const float *sums,
                                uint64_t width, uint64_t used, float *weights)
{
    for (uint64_t lane = 0; lane < width; lane++) {
        float base = best[lane] == -INFINITY ? 0 : best[lane];
        weights[lane] = lane < used ? sc_kernels_exp2(best_then[lane] - base) / sums[lane] : 0;
    }
}

void sc_kernels_ref_lanes_fold(const float *scores, uint64_t width, uint64_t key_count,
                               const float *weights, float *dst)
{
    for (uint64_t j = 0; j < key_count; j++) {
        float sum = 0;
        for (uint64_t lane = 0; lane < width; lane++)
            sum += scores[j * width + lane] * weights[lane];
        dst[j] += sum;
    }
}

void sc_kernels_ref_rows_score(const struct sc_kernels_rows_score *what)
{
    uint64_t padded = (what->head_size + 15) / 16 * 16;
    for (uint64_t v = 0; v < what->query_count; v++)
        for (uint64_t i = 0; i < what->key_count; i++) {
            const uint8_t *row = what->rows[i] + what->byte_first + v * what->head_step;
            float sum = 0, value;
            for (uint64_t t = 0; t < what->head_size; t++) {
                sc_kernels_ref_widen(&value, row + t * sc_kernels_dtype_bytes(what->dtype), 1,
                                     what->dtype);
                sum += value * what->queries[v * padded + t];
            }
            what->scores[v * what->score_stride + i] = sum;
        }
}

float sc_kernels_ref_few_best(const float *scores, uint64_t count, float floor)
{
    for (uint64_t i = 0; i < count; i++)
        if (scores[i] > floor)
            floor = scores[i];
    return floor;
}

float sc_kernels_ref_few_soften(float *scores, uint64_t count, float best)
{
    double sum = 0;
    for (uint64_t i = 0; i < count; i++) {
        scores[i] = sc_kernels_exp2(scores[i] - best);
        sum += (double)scores[i];
    }
    return (float)sum;
}

void sc_kernels_ref_accumulate(float *dst, const float *src, float factor, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++)
        dst[i] += src[i] * factor;
}
