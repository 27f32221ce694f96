/* Counting and collecting scores by their order, plain C: the reference of every other rung.
 * Adds: nothing.
 *
 * Threads: any. Tests: tests/unit/kernels/test_choose.c */
#include "kernels/order.h"
#include "kernels/kernels.h"

void sc_kernels_ref_order_count(const float *scores, uint64_t count, uint32_t mask, uint32_t prefix,
                                uint32_t shift, uint32_t *bins)
{
    for (uint64_t i = 0; i < count; i++) {
        uint32_t order = sc_kernels_order_of(scores[i]);
        if ((order & mask) == prefix)
            bins[order >> shift & (SC_KERNELS_BINS - 1)]++;
    }
}

void sc_kernels_ref_order_collect(const float *scores, uint64_t count, uint32_t edge,
                                  uint64_t equal_count, uint32_t *ret_rows)
{
    for (uint64_t i = 0; i < count; i++) {
        uint32_t order = sc_kernels_order_of(scores[i]);
        if (order == edge && equal_count > 0) {
            equal_count--;
            *ret_rows++ = (uint32_t)i;
        } else if (order > edge) {
            *ret_rows++ = (uint32_t)i;
        }
    }
}
