/* ref_rope: transposes rows to columns in plain C, the reference for all rungs. */
#include "kernels/kernels.h"

#include <string.h>

void sc_kernels_ref_transpose16(const struct sc_kernels_transpose *what)
{
    for (uint64_t r = 0; r < what->row_count; r++)
        for (uint64_t c = 0; c < what->column_count; c++)
            memcpy(what->dst + c * what->dst_stride + r * 2,
                   what->src + r * what->src_stride + c * 2, 2);
}

void sc_kernels_ref_transpose32(const struct sc_kernels_transpose *what)
{
    for (uint64_t r = 0; r < what->row_count; r++)
        for (uint64_t c = 0; c < what->column_count; c++)
            memcpy(what->dst + c * what->dst_stride + r * 4,
                   what->src + r * what->src_stride + c * 4, 4);
}
