/* Descriptors and grids: see launch.h.
 *
 * Threads: any. Tests: tests/unit/kernels/test_cuda_rows.c, test_cuda_code.c */
#include "kernels/cuda/launch.h"

#include <limits.h>

#define GRID_YZ_MAX 65535u

_Static_assert((int)SC_CUDA_F32 == SC_KERNELS_F32 && (int)SC_CUDA_F16 == SC_KERNELS_F16 &&
                   (int)SC_CUDA_BF16 == SC_KERNELS_BF16,
               "one numbering of types");
_Static_assert(SC_KERNELS_DTYPES == 3, "kernels/cuda/numbers.h has these alone");
_Static_assert(SC_CUDA_UNIT == SC_KERNELS_CODE_UNIT, "channels that are coded together");
_Static_assert(sizeof(struct sc_cuda_planes_table) == 16 && sizeof(struct sc_cuda_unit) == 16 &&
                   sizeof(struct sc_cuda_unit_plane) == 16,
               "records that a load of 16 bytes takes");
_Static_assert(sizeof(struct sc_cuda_rows) <= 4096 && sizeof(struct sc_cuda_planes) <= 4096,
               "what a launch's parameters may have");

static bool is_element(uint64_t bytes)
{
    return bytes == 1 || bytes == 2 || bytes == 4;
}

bool sc_cuda_memory_of(const struct sc_kernels_memory *memory, uint64_t element_bytes,
                       struct sc_cuda_memory *ret_memory)
{
    uint64_t columns = memory->k_element_stride_bytes, v_stride = memory->v_token_stride_bytes;
    uint64_t all = (uintptr_t)memory->k_base | (uintptr_t)memory->v_base |
                   memory->token_stride_bytes | memory->head_stride_bytes | columns | v_stride |
                   memory->block_stride_bytes;
    if (!is_element(element_bytes) || all % element_bytes != 0)
        return false;
    v_stride = v_stride != 0 ? v_stride : memory->token_stride_bytes;
    *ret_memory = (struct sc_cuda_memory){
        {{memory->k_base, memory->token_stride_bytes, columns != 0 ? columns : element_bytes},
         {memory->v_base, v_stride, element_bytes}},
        memory->head_stride_bytes,
        memory->block_tokens,
        memory->block_stride_bytes,
        memory->slots};
    return true;
}

/* Whether the bytes of a row's part are counted in 32 bits, with some to spare. */
static bool is_part(uint64_t head_count, uint64_t head_size)
{
    return head_count > 0 && head_size > 0 &&
           head_count <= (UINT64_C(1) << 26) / sizeof(float) / head_size;
}

bool sc_cuda_rows_shape(const struct sc_cuda_rows *rows, bool is_packing, uint32_t blocks_max,
                        struct sc_cuda_shape *ret_shape)
{
    const uint32_t warps = SC_CUDA_ROWS_THREADS / SC_CUDA_WARP;
    bool is_same = rows->element_bytes == rows->there_bytes;
    bool is_wider = !is_packing && rows->element_bytes == 2 && rows->there_bytes == 4 &&
                    (rows->dtype == SC_CUDA_F16 || rows->dtype == SC_CUDA_BF16);
    if (!is_element(rows->element_bytes) || (!is_same && !is_wider) || rows->parts == 0 ||
        rows->parts > (SC_CUDA_K | SC_CUDA_V) || blocks_max == 0 || blocks_max > INT_MAX ||
        !is_part(rows->head_count, rows->head_size))
        return false;
    uint64_t jobs = (uint64_t)rows->row_count * (rows->parts == (SC_CUDA_K | SC_CUDA_V) ? 2 : 1);
    uint64_t blocks = (jobs + warps - 1) / warps;
    *ret_shape = (struct sc_cuda_shape){{blocks < blocks_max ? (uint32_t)blocks : blocks_max, 1, 1},
                                        {SC_CUDA_ROWS_THREADS, 1, 1}};
    return true;
}

static bool decode_shape(uint64_t units, uint32_t slab_count, uint32_t rows_most,
                         uint32_t rows_each, struct sc_cuda_shape *ret_shape)
{
    if (rows_each == 0 || slab_count > INT_MAX)
        return false;
    uint64_t tiles = (units + SC_CUDA_TILE - 1) / SC_CUDA_TILE;
    uint64_t pieces = ((uint64_t)rows_most + rows_each - 1) / rows_each;
    if (tiles > GRID_YZ_MAX || pieces > GRID_YZ_MAX)
        return false;
    bool is_nothing = slab_count == 0 || units == 0 || rows_most == 0;
    *ret_shape =
        (struct sc_cuda_shape){{is_nothing ? 0 : slab_count, (uint32_t)tiles, (uint32_t)pieces},
                               {SC_CUDA_DECODE_THREADS, 1, 1}};
    return true;
}

bool sc_cuda_code_shape(const struct sc_cuda_code *what, uint32_t slab_count, uint32_t rows_most,
                        struct sc_cuda_shape *ret_shape)
{
    if (what->dst_dtype >= SC_KERNELS_DTYPES || !is_part(what->head_count, what->head_size))
        return false;
    uint64_t channels = (uint64_t)what->head_count * what->head_size;
    return decode_shape((channels + SC_CUDA_UNIT - 1) / SC_CUDA_UNIT, slab_count, rows_most,
                        what->rows_each, ret_shape);
}

bool sc_cuda_planes_shape(const struct sc_cuda_planes *what, uint32_t unit_count,
                          uint32_t slab_count, uint32_t rows_most, struct sc_cuda_shape *ret_shape)
{
    return what->dst_dtype < SC_KERNELS_DTYPES && is_part(what->head_count, what->head_size) &&
           what->head_size <= SC_KERNELS_PLANES_HEAD &&
           decode_shape(unit_count, slab_count, rows_most, what->rows_each, ret_shape);
}
