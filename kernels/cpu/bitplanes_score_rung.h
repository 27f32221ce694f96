/* bitplanes_score_rung: scores per-channel quantised keys; includes the rung's own file:
 *
 *   bitplanes_score_columns.h   AVX2: a vector is a channel of several keys
 *   bitplanes_score_tables.h    AVX2, one query, no rotation: a vector is bits of 8 keys
 *   bitplanes_score_rows.h      AVX-512: a vector is several channels of a key
 *
 * Requires v8.h or v16.h. Tests: tests/unit/kernels/test_bitplanes.c */
#ifndef SC_KERNELS_CPU_BITPLANES_SCORE_RUNG_H
#define SC_KERNELS_CPU_BITPLANES_SCORE_RUNG_H

#include "kernels/cpu/bitplanes_rung.h"

/* Prefetches the codes of a tile's keys that are scored next. */
INLINE void keys_ahead(const struct sc_kernels_bitplanes_score *what, uint64_t key, uint64_t count)
{
    const struct sc_kernels_bitplanes *planes = what->planes;
    const struct sc_kernels_bitplanes_group *first =
        &planes->groups[what->ahead_head * planes->head_groups];
    const struct sc_kernels_bitplanes_group *last = first + planes->head_groups - 1;
    const uint8_t *row = what->ahead + key * planes->row_bytes + first->offset;
    uint64_t bytes = last->offset + last->at[SC_KERNELS_BITPLANES - 1] +
                     last->bytes[SC_KERNELS_BITPLANES - 1] - first->offset;
    for (uint64_t i = 0; i < count; i++, row += planes->row_bytes) {
        __builtin_prefetch(row, 0, 2);
        for (uint64_t at = LINE_BYTES; at < bytes; at += LINE_BYTES)
            __builtin_prefetch(row + at, 0, 2);
        __builtin_prefetch(row + bytes, 0, 2);
    }
}

/* Takes a tile of keys from `key` on; beyond the slab's end the last one repeats. */
INLINE void keys_take(const struct sc_kernels_bitplanes_score *what, uint64_t key,
                      struct planes_head *ret_head)
{
    uint64_t left = what->row_count - key, turned = ret_head->turned;
    ret_head->count = left < PLANES_TILE ? left : PLANES_TILE;
    for (uint64_t i = 0; i < PLANES_TILE; i++) {
        uint64_t row = key + (i < left ? i : left - 1);
        ret_head->rows[i] = what->codes + row * what->planes->row_bytes;
        ret_head->rope[i] = turned > 0 ? what->rope + row * turned : ret_head->steps;
    }
}

#if LANES == 8
#include "kernels/cpu/bitplanes_score_columns.h"
#else
#include "kernels/cpu/bitplanes_score_rows.h"
#endif

#endif
