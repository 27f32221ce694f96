/* launch.h: descriptors and grids. */
#include "kernels/cuda/launch.h"

#include <limits.h>

#define GRID_YZ_MAX       65535u
#define BLOCKS_AIM        528u /* blocks of score_best: four for each of 132 multiprocessors */
#define TENSOR_CAPABILITY 80u  /* least capability for mma.m16n8k16, and of the images */
#define SPLITS_AIM        96u  /* each is a step of score_join, and 8 bytes a vector */

_Static_assert((int)SC_CUDA_F32 == SC_KERNELS_F32 && (int)SC_CUDA_F16 == SC_KERNELS_F16 &&
                   (int)SC_CUDA_BF16 == SC_KERNELS_BF16,
               "one numbering of types, where kernels have a type");
_Static_assert(SC_CUDA_UNIT == SC_KERNELS_CODEC_UNIT, "channels that are coded together");
_Static_assert(sizeof(struct sc_cuda_bitplanes_table) == 16 && sizeof(struct sc_cuda_unit) == 16 &&
                   sizeof(struct sc_cuda_unit_plane) == 16,
               "records that a load of 16 bytes takes");
_Static_assert(sizeof(struct sc_cuda_rows) <= 4096 && sizeof(struct sc_cuda_bitplanes) <= 4096 &&
                   sizeof(struct sc_cuda_score) <= 4096,
               "what a launch's parameters may have");

static uint64_t ceil_of(uint64_t a, uint64_t b)
{
    return (a + b - 1) / b;
}

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

/* Tells whether 32 bits can count the bytes of a row's part, with a margin. */
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

static bool decodec_shape(uint64_t units, uint32_t slab_count, uint32_t rows_most,
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

bool sc_cuda_codec_shape(const struct sc_cuda_codec *what, uint32_t slab_count, uint32_t rows_most,
                         struct sc_cuda_shape *ret_shape)
{
    if (what->dst_dtype >= SC_CUDA_DTYPES || !is_part(what->head_count, what->head_size))
        return false;
    uint64_t channels = (uint64_t)what->head_count * what->head_size;
    return decodec_shape((channels + SC_CUDA_UNIT - 1) / SC_CUDA_UNIT, slab_count, rows_most,
                         what->rows_each, ret_shape);
}

bool sc_cuda_bitplanes_shape(const struct sc_cuda_bitplanes *what, uint32_t unit_count,
                             uint32_t slab_count, uint32_t rows_most,
                             struct sc_cuda_shape *ret_shape)
{
    return what->dst_dtype < SC_CUDA_DTYPES && is_part(what->head_count, what->head_size) &&
           what->head_size <= SC_KERNELS_BITPLANES_HEAD &&
           decodec_shape(unit_count, slab_count, rows_most, what->rows_each, ret_shape);
}


static uint64_t score_vectors(const struct sc_cuda_score *what)
{
    return (uint64_t)(what->queries.row_count - what->row_first) * what->group;
}

static uint64_t score_tile_keys(const struct sc_cuda_score *what)
{
    return what->head_size > SC_CUDA_SCORE_CHANNELS ? SC_CUDA_SCORE_KEYS / 2 : SC_CUDA_SCORE_KEYS;
}

static uint64_t score_tiles(const struct sc_cuda_score *what)
{
    return ceil_of(what->prefix.count, score_tile_keys(what)) +
           ceil_of(what->fresh.count, score_tile_keys(what));
}

static bool score_has_keys(const struct sc_cuda_score *what)
{
    uint64_t head_end = (uint64_t)what->head_first + what->head_count;
    if (what->prefix.count > INT_MAX || what->fresh.count > INT_MAX)
        return false;
    if (what->fresh.count > 0 &&
        (what->fresh.count < what->queries.row_count || what->fresh.dtype >= SC_CUDA_DTYPES))
        return false;
    if (what->slab_count == 0)
        return what->prefix.dtype < SC_CUDA_DTYPES;
    return what->code_heads >= head_end && is_part(what->code_heads, what->head_size);
}

static bool is_score(const struct sc_cuda_score *what)
{
    uint64_t head_end = (uint64_t)what->head_first + what->head_count;
    bool has_rows = what->row_first < what->queries.row_count ||
                    (what->row_first == 0 && what->queries.row_count == 0);
    return what->head_size > 0 && what->head_size <= SC_CUDA_SCORE_HEAD && what->head_count > 0 &&
           what->group > 0 && head_end * what->group <= INT_MAX && has_rows &&
           what->queries.dtype < SC_CUDA_DTYPES && score_vectors(what) <= INT_MAX &&
           score_has_keys(what);
}

uint32_t sc_cuda_score_tiles_each(const struct sc_cuda_score *what)
{
    if (!is_score(what))
        return 0;
    uint64_t blocks = ceil_of(score_vectors(what), SC_CUDA_SCORE_VECTORS) * what->head_count;
    uint64_t splits = blocks > 0 ? ceil_of(BLOCKS_AIM, blocks) : 1;
    splits = splits < SPLITS_AIM ? splits : SPLITS_AIM;
    uint64_t each = ceil_of(score_tiles(what), splits);
    return each > 0 ? (uint32_t)each : 1;
}

uint64_t sc_cuda_score_scratch_bytes(const struct sc_cuda_score *what)
{
    if (!is_score(what) || what->tiles_each == 0 || what->prefix.count == 0)
        return 0;
    return (ceil_of(score_tiles(what), what->tiles_each) + 1) * what->head_count *
           score_vectors(what) * 2 * sizeof(float);
}

static bool score_shape(const struct sc_cuda_score *what, bool is_nothing, const uint64_t grid[3],
                        struct sc_cuda_shape *ret_shape)
{
    if (!is_score(what) || what->tiles_each == 0 || grid[0] > INT_MAX || grid[1] > GRID_YZ_MAX ||
        grid[2] > GRID_YZ_MAX)
        return false;
    is_nothing |= what->prefix.count == 0;
    *ret_shape = (struct sc_cuda_shape){
        {is_nothing ? 0 : (uint32_t)grid[0], (uint32_t)grid[1], (uint32_t)grid[2]},
        {SC_CUDA_SCORE_THREADS, 1, 1}};
    return true;
}

bool sc_cuda_score_best_shape(const struct sc_cuda_score *what, struct sc_cuda_shape *ret_shape)
{
    uint64_t vectors = score_vectors(what), each = what->tiles_each != 0 ? what->tiles_each : 1;
    return score_shape(what, vectors == 0,
                       (const uint64_t[]){what->head_count, ceil_of(vectors, SC_CUDA_SCORE_VECTORS),
                                          ceil_of(score_tiles(what), each)},
                       ret_shape);
}

bool sc_cuda_score_join_shape(const struct sc_cuda_score *what, struct sc_cuda_shape *ret_shape)
{
    uint64_t vectors = score_vectors(what);
    return score_shape(
        what, vectors == 0,
        (const uint64_t[]){ceil_of(vectors, SC_CUDA_SCORE_THREADS), what->head_count, 1},
        ret_shape);
}

bool sc_cuda_score_columns_shape(const struct sc_cuda_score *what, struct sc_cuda_shape *ret_shape)
{
    return score_shape(
        what, false,
        (const uint64_t[]){what->head_count, 1, ceil_of(what->prefix.count, score_tile_keys(what))},
        ret_shape);
}

bool sc_cuda_score_total_shape(const struct sc_cuda_score *what, struct sc_cuda_shape *ret_shape)
{
    return score_shape(what, false,
                       (const uint64_t[]){ceil_of(what->prefix.count, SC_CUDA_SCORE_THREADS), 1, 1},
                       ret_shape);
}

/* Products of rows are exact in one step if both sides have the same 16-bit type. */
static bool is_tensor_rows(const struct sc_cuda_score *what, const struct sc_cuda_score_keys *rows)
{
    return rows->dtype == what->queries.dtype && rows->dtype != SC_CUDA_F32;
}

bool sc_cuda_score_has_tensor(const struct sc_cuda_score *what, bool has_tables,
                              uint32_t capability)
{
    bool is_quantised = what->slab_count > 0;
    return is_score(what) && capability >= TENSOR_CAPABILITY && !has_tables &&
           (is_quantised || what->prefix.count == 0 || is_tensor_rows(what, &what->prefix)) &&
           (what->fresh.count == 0 || is_tensor_rows(what, &what->fresh));
}
