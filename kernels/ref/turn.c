/* Rows to columns, plain C: the reference of every other rung. Adds: nothing.
 *
 * Threads: any. Tests: tests/unit/kernels/test_columns.c */
#include "kernels/kernels.h"

#include <string.h>

void sc_kernels_ref_turn16(uint8_t *dst, uint64_t dst_stride, const uint8_t *src,
                           uint64_t src_stride, uint64_t row_count, uint64_t column_count,
                           bool streams)
{
    (void)streams;
    for (uint64_t r = 0; r < row_count; r++)
        for (uint64_t c = 0; c < column_count; c++)
            memcpy(dst + c * dst_stride + r * 2, src + r * src_stride + c * 2, 2);
}

void sc_kernels_ref_turn32(uint8_t *dst, uint64_t dst_stride, const uint8_t *src,
                           uint64_t src_stride, uint64_t row_count, uint64_t column_count,
                           bool streams)
{
    (void)streams;
    for (uint64_t r = 0; r < row_count; r++)
        for (uint64_t c = 0; c < column_count; c++)
            memcpy(dst + c * dst_stride + r * 4, src + r * src_stride + c * 4, 4);
}
