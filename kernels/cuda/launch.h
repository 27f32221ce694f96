/* launch: converts CPU kernel arguments to those of the device: descriptors, tables, grids. It
 * calls no driver, checks no addresses and writes no device-visible memory.
 *
 * Invariants: true means that the result can be launched. Everything that kernels cannot do is
 * refused here, because a kernel cannot report errors.
 * Threads: any. Tests: tests/unit/kernels/test_cuda_*.c */
#ifndef SC_KERNELS_CUDA_LAUNCH_H
#define SC_KERNELS_CUDA_LAUNCH_H

#include "kernels/bitplanes.h"
#include "kernels/cuda/spec.h"
#include "kernels/kernels.h"

/* A launch. grid[0] 0: there is nothing to do; do not launch. */
struct sc_cuda_shape {
    uint32_t grid[3], block[3];
};

/* Converts a memory description. element_bytes: 1, 2 or 4. K in columns is supported, stored by
 * element. Returns false for other elements, or if a base or stride is not a multiple of them. */
bool sc_cuda_memory_of(const struct sc_kernels_memory *memory, uint64_t element_bytes,
                       struct sc_cuda_memory *ret_memory);

/* blocks_max: at least 1; blocks loop over rows. Returns false if 32-bit indexes do not suffice,
 * types are neither equal nor widened, there are no parts, or packing changes the type. */
bool sc_cuda_rows_shape(const struct sc_cuda_rows *rows, bool is_packing, uint32_t blocks_max,
                        struct sc_cuda_shape *ret_shape);

/* rows_most: rows of the largest slab. The caller sets what->rows_each >= 1. Returns false if the
 * grid is too large or the shape or type invalid. */
bool sc_cuda_codec_shape(const struct sc_cuda_codec *what, uint32_t slab_count, uint32_t rows_most,
                         struct sc_cuda_shape *ret_shape);
/* unit_count: of the largest table. */
bool sc_cuda_bitplanes_shape(const struct sc_cuda_bitplanes *what, uint32_t unit_count,
                             uint32_t slab_count, uint32_t rows_most,
                             struct sc_cuda_shape *ret_shape);

/* Scores: all of *what except pointers and tiles_each must be set. Launch on one stream, in order:
 * best, join, columns and, for a sum over heads, total.
 *
 * Returns the tiles_each that gives a large device enough blocks, or 0 for an invalid shape. It
 * determines the order of additions and depends only on the shape, so results are the same on every
 * device. */
uint32_t sc_cuda_score_tiles_each(const struct sc_cuda_score *what);
/* Returns the bytes of what->stats, given tiles_each; 0: invalid shape, or nothing is written. */
uint64_t sc_cuda_score_scratch_bytes(const struct sc_cuda_score *what);
/* Return false for a head of more than SC_CUDA_SCORE_HEAD channels, an invalid type, or fewer fresh
 * keys than rows. They also do if slabs lack heads, tiles_each is 0, or a grid or 32 bits do not
 * suffice. Without query rows the sums are 0. */
bool sc_cuda_score_best_shape(const struct sc_cuda_score *what, struct sc_cuda_shape *ret_shape);
bool sc_cuda_score_join_shape(const struct sc_cuda_score *what, struct sc_cuda_shape *ret_shape);
bool sc_cuda_score_columns_shape(const struct sc_cuda_score *what, struct sc_cuda_shape *ret_shape);
bool sc_cuda_score_total_shape(const struct sc_cuda_score *what, struct sc_cuda_shape *ret_shape);

/* Tells whether sc_cuda_score_best_tensor and sc_cuda_score_columns_tensor may replace
 * sc_cuda_score_best and sc_cuda_score_columns: same shapes and scratch, both or neither.
 *   capability   of the device, 10 * major + minor
 *   has_tables   some slab has per-channel bits
 * Returns true for a prefix of uniformly quantised slabs or of rows. All rows, prefix or fresh,
 * must have the queries' 16-bit type. Returns false for a capability below 8.0, float32 keys, other
 * types than the queries', tables, or an invalid shape. */
bool sc_cuda_score_has_tensor(const struct sc_cuda_score *what, bool has_tables,
                              uint32_t capability);

/* Returns the bytes of a part's table; 0: unsupported shape. rotary: NULL: no rotation */
uint64_t sc_cuda_bitplanes_table_bytes(const struct sc_kernels_bitplanes *planes,
                                       const struct sc_kernels_rotary *rotary);
/* ret_table: that many bytes, 16-byte aligned, written whole. */
void sc_cuda_bitplanes_table_make(const struct sc_kernels_bitplanes *planes,
                                  const struct sc_kernels_rotary *rotary,
                                  struct sc_cuda_bitplanes_table *ret_table);

#endif
