/* From what the CPU's kernels take to what the device's take: descriptors, tables, grids. Nothing
 * here calls a driver.
 *
 * Holds: what returns true can be launched as it is; what no kernel can do is refused here, since a
 *   kernel has no way to say so.
 * Does not: check addresses, or put anything into memory that the device sees.
 * Threads: any. Tests: tests/unit/kernels/test_cuda_*.c */
#ifndef SC_KERNELS_CUDA_LAUNCH_H
#define SC_KERNELS_CUDA_LAUNCH_H

#include "kernels/cuda/spec.h"
#include "kernels/kernels.h"
#include "kernels/planes.h"

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
bool sc_cuda_code_shape(const struct sc_cuda_code *what, uint32_t slab_count, uint32_t rows_most,
                        struct sc_cuda_shape *ret_shape);
/* unit_count: of the table with most of them. */
bool sc_cuda_planes_shape(const struct sc_cuda_planes *what, uint32_t unit_count,
                          uint32_t slab_count, uint32_t rows_most, struct sc_cuda_shape *ret_shape);

/* Bytes of the table of a part; 0: a shape that no table holds. rotary: NULL: nothing turns. A
 * finer table is made with the rotary of the table that it goes on from. */
uint64_t sc_cuda_planes_table_bytes(const struct sc_kernels_planes *planes,
                                    const struct sc_kernels_rotary *rotary);
/* ret_table: so many bytes, at a multiple of 16, written whole. */
void sc_cuda_planes_table_make(const struct sc_kernels_planes *planes,
                               const struct sc_kernels_rotary *rotary,
                               struct sc_cuda_planes_table *ret_table);

#endif
