/* Exact choices by a total order: top-k, ranked top-k, mass, votes.
 *
 *   order (uint32)   [ 11 bits | 11 bits | 10 bits ]     three histograms, from the top: each one
 *                                                        says which bin holds the k-th score
 *   collect          above the edge, and the first few that equal it: ascending indexes
 *
 * Threads: any. Tests: tests/unit/kernels/test_choose.c */
#include "kernels/order.h"
#include "kernels/select.h"

#include <string.h>

#define DIGITS    3u
#define BINS_LAST 1024u /* of the last digit, which has 10 bits */
#define BYTE      256u

static const uint32_t SHIFTS[DIGITS] = {21, 10, 0};
static const uint32_t MASKS[DIGITS] = {0, 0xffe00000u, 0xfffffc00u};

/* The bin, from the top, in which the k-th falls; *ret_left: how many of that bin belong to the k.
 * Bins hold at least k. */
static uint32_t bin_find(const uint32_t *bins, uint64_t k, uint64_t *ret_left)
{
    uint32_t bin = SC_KERNELS_BINS - 1;
    while (bins[bin] < k)
        k -= bins[bin--];
    *ret_left = k;
    return bin;
}

void sc_kernels_topk(const struct sc_kernels *kernels, const float *scores, uint64_t count,
                     uint64_t k, uint32_t *ret_rows)
{
    uint32_t bins[SC_KERNELS_BINS], edge = 0;
    uint64_t left = k;
    for (uint32_t digit = 0; digit < DIGITS; digit++) {
        memset(bins, 0, sizeof(bins));
        kernels->order_count(scores, count, MASKS[digit], edge, SHIFTS[digit], bins);
        if (digit == DIGITS - 1) /* its lowest bit belongs to the digit above */
            for (uint32_t bin = BINS_LAST; bin < SC_KERNELS_BINS; bin++) {
                bins[bin - BINS_LAST] += bins[bin];
                bins[bin] = 0;
            }
        edge |= bin_find(bins, left, &left) << SHIFTS[digit];
    }
    kernels->order_collect(scores, count, edge, left, ret_rows);
}

/* Ascending by the upper 32 bits, stable, four passes of a byte: the result is in `keys` again. */
static void keys_sort(uint64_t *keys, uint64_t *other, uint64_t count)
{
    for (uint32_t shift = 32; shift < 64; shift += 8) {
        uint64_t starts[BYTE] = {0}, sum = 0;
        for (uint64_t i = 0; i < count; i++)
            starts[keys[i] >> shift & (BYTE - 1)]++;
        for (uint32_t byte = 0; byte < BYTE; byte++) {
            uint64_t size = starts[byte];
            starts[byte] = sum;
            sum += size;
        }
        for (uint64_t i = 0; i < count; i++)
            other[starts[keys[i] >> shift & (BYTE - 1)]++] = keys[i];
        uint64_t *sorted = other;
        other = keys;
        keys = sorted;
    }
}

/* keys[i] = ~order << 32 | row, for rows that ascend: their sort is the ranking. */
static void rank(const float *scores, const uint32_t *rows, uint64_t k, uint64_t *keys,
                 uint64_t *other)
{
    for (uint64_t i = 0; i < k; i++)
        keys[i] = (uint64_t)~sc_kernels_order_of(scores[rows[i]]) << 32 | rows[i];
    keys_sort(keys, other, k);
}

void sc_kernels_topk_ranked(const struct sc_kernels *kernels, const float *scores, uint64_t count,
                            uint64_t k, uint64_t *scratch, uint32_t *ret_rows)
{
    sc_kernels_topk(kernels, scores, count, k, ret_rows);
    rank(scores, ret_rows, k, scratch, scratch + k);
    for (uint64_t i = 0; i < k; i++)
        ret_rows[i] = (uint32_t)scratch[i];
}

uint64_t sc_kernels_mass_count(const struct sc_kernels *kernels, const float *scores,
                               uint64_t count, double share, uint64_t k_max, uint64_t *scratch)
{
    double total = 0, mass = 0;
    for (uint64_t i = 0; i < count; i++)
        total += (double)scores[i];
    uint32_t *rows = (uint32_t *)(void *)(scratch + k_max);
    sc_kernels_topk(kernels, scores, count, k_max, rows);
    rank(scores, rows, k_max, scratch, scratch + k_max);
    uint64_t k = 0;
    do
        mass += (double)scores[(uint32_t)scratch[k++]];
    while (k < k_max && !(mass >= share * total));
    return k;
}

double sc_kernels_mass_of(const float *scores, const uint32_t *rows, uint64_t row_count)
{
    double mass = 0;
    for (uint64_t i = 0; i < row_count; i++)
        mass += (double)scores[rows[i]];
    return mass;
}

/* The same three digits, among the rows that have exactly `voted` votes. */
static uint32_t vote_edge(const float *scores, const uint8_t *votes, uint32_t voted, uint64_t count,
                          uint64_t k, uint64_t *ret_left)
{
    uint32_t bins[SC_KERNELS_BINS], edge = 0;
    for (uint32_t digit = 0; digit < DIGITS; digit++) {
        memset(bins, 0, sizeof(bins));
        uint32_t most = digit == DIGITS - 1 ? BINS_LAST - 1 : SC_KERNELS_BINS - 1;
        for (uint64_t j = 0; j < count; j++) {
            uint32_t order = votes[j] == voted ? sc_kernels_order_of(scores[j]) : 0;
            if (votes[j] == voted && (order & MASKS[digit]) == edge)
                bins[order >> SHIFTS[digit] & most]++;
        }
        edge |= bin_find(bins, k, &k) << SHIFTS[digit];
    }
    *ret_left = k;
    return edge;
}

void sc_kernels_vote(const struct sc_kernels *kernels, const uint32_t *sets, uint64_t set_count,
                     uint64_t k, const float *scores, uint64_t count, uint8_t *votes,
                     uint32_t *ret_rows)
{
    if (set_count == 0) {
        sc_kernels_topk(kernels, scores, count, k, ret_rows);
        return;
    }
    uint32_t bins[SC_KERNELS_BINS] = {0};
    memset(votes, 0, count);
    for (uint64_t i = 0; i < set_count * k; i++)
        votes[sets[i]]++;
    for (uint64_t j = 0; j < count; j++)
        bins[votes[j]]++;
    uint64_t left;
    uint32_t voted = bin_find(bins, k, &left);
    uint32_t edge = vote_edge(scores, votes, voted, count, left, &left);
    for (uint64_t j = 0; j < count; j++) {
        if (votes[j] < voted)
            continue;
        uint32_t order = votes[j] > voted ? UINT32_MAX : sc_kernels_order_of(scores[j]);
        if (order < edge || (order == edge && votes[j] == voted && left == 0))
            continue;
        if (order == edge && votes[j] == voted)
            left--;
        *ret_rows++ = (uint32_t)j;
    }
}
