/* From what the CPU's kernels take to what the device's take: descriptors, tables, grids. Nothing
 * here calls a driver.
 *
 * Holds: what returns true can be launched as it is; what no kernel can do is refused here, since a
 *   kernel has no way to say so.
 * Does not: check addresses, or put anything into memory that the device sees.
 * Threads: any. Tests: tests/unit/kernels/test_cuda_*.c */
#ifndef SC_KERNELS_CUDA_LAUNCH_H
#define SC_KERNELS_CUDA_LAUNCH_H

#include "kernels/bitplanes.h"
#include "kernels/cuda/spec.h"
#include "kernels/kernels.h"

/* Of a launch. grid[0] 0: there is nothing to do, and nothing may be launched. */
struct sc_cuda_shape {
    uint32_t grid[3], block[3];
};

/* element_bytes: of the memory; 1, 2 or 4. K in columns is taken, at a store an element. false: no
 * such elements, or a base or stride that is no multiple of them. */
bool sc_cuda_memory_of(const struct sc_kernels_memory *memory, uint64_t element_bytes,
                       struct sc_cuda_memory *ret_memory);

/* blocks_max: at least 1; rows go round. false: a shape that indexes of 32 bits do not hold, types
 * that are neither the same nor widened, no parts, or packing into another type. */
bool sc_cuda_rows_shape(const struct sc_cuda_rows *rows, bool is_packing, uint32_t blocks_max,
                        struct sc_cuda_shape *ret_shape);

/* rows_most: of the slab with most of them. what->rows_each is set by the caller, at least 1.
 * false: more than a grid holds, or no such shape or type. */
bool sc_cuda_codec_shape(const struct sc_cuda_codec *what, uint32_t slab_count, uint32_t rows_most,
                         struct sc_cuda_shape *ret_shape);
/* unit_count: of the table with most of them. */
bool sc_cuda_bitplanes_shape(const struct sc_cuda_bitplanes *what, uint32_t unit_count,
                             uint32_t slab_count, uint32_t rows_most,
                             struct sc_cuda_shape *ret_shape);

/* Scores: everything of *what but pointers and tiles_each is set. Launched one behind the other on
 * one stream: best, join, columns and, where a sum over heads is wanted, total.
 *
 * tiles_each that gives a large device enough blocks. It decides in which order sums are added: of
 * this shape alone, so that the same call has the same bits wherever it runs. 0: no such shape. */
uint32_t sc_cuda_score_tiles_each(const struct sc_cuda_score *what);
/* Of what->stats, with tiles_each set; 0: no such shape, or nothing is written there. */
uint64_t sc_cuda_score_scratch_bytes(const struct sc_cuda_score *what);
/* false: a head of more than SC_CUDA_SCORE_HEAD channels, no such type, fewer fresh keys than rows,
 * slabs that have not all of the heads, tiles_each 0, or more than a grid or 32 bits hold. No query
 * rows: sums are 0. */
bool sc_cuda_score_best_shape(const struct sc_cuda_score *what, struct sc_cuda_shape *ret_shape);
bool sc_cuda_score_join_shape(const struct sc_cuda_score *what, struct sc_cuda_shape *ret_shape);
bool sc_cuda_score_columns_shape(const struct sc_cuda_score *what, struct sc_cuda_shape *ret_shape);
bool sc_cuda_score_total_shape(const struct sc_cuda_score *what, struct sc_cuda_shape *ret_shape);

/* Whether sc_cuda_score_best_tensor and sc_cuda_score_columns_tensor may be launched in place of
 * sc_cuda_score_best and sc_cuda_score_columns: in the same shapes, with the same scratch, both or
 * neither. capability: the device's, 10 * major + minor; has_tables: some slab has codes of free
 * widths. Prefix: codes of even widths, or rows; rows, of the prefix or new ones, of the 16 bits
 * that queries have too. false: a capability below 8.0, keys of float32, rows of another type than
 * queries', tables, or no such shape. */
bool sc_cuda_score_has_tensor(const struct sc_cuda_score *what, bool has_tables,
                              uint32_t capability);

/* Bytes of the table of a part; 0: a shape that no table holds. rotary: NULL: nothing turns. */
uint64_t sc_cuda_bitplanes_table_bytes(const struct sc_kernels_bitplanes *planes,
                                       const struct sc_kernels_rotary *rotary);
/* ret_table: so many bytes, at a multiple of 16, written whole. */
void sc_cuda_bitplanes_table_make(const struct sc_kernels_bitplanes *planes,
                                  const struct sc_kernels_rotary *rotary,
                                  struct sc_cuda_bitplanes_table *ret_table);

#endif
