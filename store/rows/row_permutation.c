/* row_permutation: see row_permutation.h. */
#include "store/rows/row_permutation.h"

#include <string.h>

/* Stable merge of two halves. */
static void merge(const float *scores, const uint16_t *from, uint64_t middle, uint64_t end,
                  uint16_t *to)
{
    uint64_t left = 0, right = middle;
    for (uint64_t i = 0; i < end; i++) {
        bool takes_left =
            left < middle && (right == end || scores[from[left]] >= scores[from[right]]);
        to[i] = takes_left ? from[left++] : from[right++];
    }
}

void sc_store_permutation_make(const float *scores, uint64_t row_count, uint64_t span_rows,
                               uint16_t *rows, uint16_t *ret_slots)
{
    for (uint64_t first = 0; first < row_count; first += span_rows) {
        uint64_t count = row_count - first < span_rows ? row_count - first : span_rows;
        uint16_t *from = rows + first, *to = ret_slots + first;
        for (uint64_t i = 0; i < count; i++)
            from[i] = (uint16_t)(first + i);
        for (uint64_t width = 1; width < count; width *= 2) {
            for (uint64_t at = 0; at < count; at += 2 * width) {
                uint64_t end = count - at < 2 * width ? count - at : 2 * width;
                merge(scores, from + at, width < end ? width : end, end, to + at);
            }
            uint16_t *last = from;
            from = to;
            to = last;
        }
        if (from != rows + first)
            memcpy(rows + first, from, count * sizeof(*rows));
    }
    for (uint64_t i = 0; i < row_count; i++)
        ret_slots[rows[i]] = (uint16_t)i;
}

/* Counts the rows in each chunk; returns how many chunks have one. */
static uint64_t chunks_count(const uint16_t *slots, const uint16_t *rows, uint64_t count,
                             uint64_t row_count, uint64_t chunk_rows, uint16_t *ret_counts)
{
    uint64_t chunks = 0;
    memset(ret_counts, 0, (row_count + 1) * sizeof(*ret_counts));
    for (uint64_t i = 0; i < count; i++)
        chunks += ret_counts[slots[rows[i]] / chunk_rows]++ == 0;
    return chunks;
}

uint64_t sc_store_permutation_outside(const uint16_t *slots, const uint16_t *best_slots,
                                      const uint16_t *rows, uint64_t count, uint64_t row_count,
                                      uint64_t chunk_rows, uint16_t *counts, uint16_t *sizes)
{
    uint64_t left = chunks_count(best_slots, rows, count, row_count, chunk_rows, counts);
    uint64_t inside = 0, largest = chunk_rows < row_count ? chunk_rows : row_count;
    (void)chunks_count(slots, rows, count, row_count, chunk_rows, counts);
    memset(sizes, 0, (row_count + 1) * sizeof(*sizes)); /* chunks of each count */
    for (uint64_t i = 0; i <= (row_count - 1) / chunk_rows; i++)
        sizes[counts[i]]++;
    for (uint64_t size = largest; size > 0 && left > 0; size--) {
        uint64_t taken = sizes[size] < left ? sizes[size] : left;
        inside += taken * size;
        left -= taken;
    }
    return count - inside;
}

bool sc_store_permutation_is(const uint16_t *slots, uint64_t row_count, uint64_t *seen)
{
    memset(seen, 0, (row_count + 63) / 64 * sizeof(*seen));
    for (uint64_t i = 0; i < row_count; i++) {
        if (slots[i] >= row_count || (seen[slots[i] / 64] >> (slots[i] % 64) & 1) != 0)
            return false;
        seen[slots[i] / 64] |= UINT64_C(1) << (slots[i] % 64);
    }
    return true;
}
