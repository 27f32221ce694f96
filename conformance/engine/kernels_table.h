/* kernels_table: the table of one level; the last include of each kernels_<level>.c. See
 * kernels.h. */
#ifndef CONFORMANCE_ENGINE_KERNELS_TABLE_H
#define CONFORMANCE_ENGINE_KERNELS_TABLE_H

#include "conformance/engine/kernels.h"
#include "conformance/engine/kernels_attention.h"
#include "conformance/engine/kernels_gemm.h"
#include "conformance/engine/kernels_math.h"

_Static_assert(TILE_ROWS <= ENG_TILE_ROWS, "buffers have room for ENG_TILE_ROWS rows");
_Static_assert(ENG_TILE_COLUMNS == ENG_GEMM_PANEL, "a tile is one panel wide");
_Static_assert(STREAM_SIDE <= ENG_STREAM_MAX, "buffers have room for ENG_STREAM_MAX panels");

const struct eng_kernels ENG_LEVEL(eng_kernels) = {
    .tile_rows = TILE_ROWS,
    .tile = tile,
    .stream = stream,
    .finish = finish,
    .widen = widen,
    .narrow = narrow,
    .exp = exp_row,
    .max = max_row,
    .dot = dot_row,
    .softmax_sum = softmax_sum,
    .divide = divide_row,
    .activate = activate,
    .silu_mul = silu_mul,
    .add = add_row,
    .mul = mul_row,
    .rmsnorm = rmsnorm_row,
    .layernorm = layernorm_row,
    .rope = rope_half,
    .transpose = transpose,
    .panels = panels,
};

#endif
