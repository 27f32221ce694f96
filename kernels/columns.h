/* columns: moves rows to and from K memory with strided elements: a head's element is a column.
 *
 *   rows      [token 0: e0 e1 e2 ..][token 1: e0 e1 e2 ..] ...          packed, or anywhere
 *   columns   [e0: token 0, 1, 2 ..][e1: token 0, 1, 2 ..] ...          token stride: an element
 *
 * A run is a sequence of tokens with consecutive slots inside a block; it is transposed at once
 * (sc_kernels.transpose16, transpose32). If the token stride is more than an element, each token is
 * a run.
 *
 * Invariants: only the run's elements of a column are written, so others may write adjacent ones
 * concurrently. Nothing is widened or allocated; addresses are not checked.
 * Threads: any. Tests: tests/unit/kernels/test_columns.c */
#ifndef SC_KERNELS_COLUMNS_H
#define SC_KERNELS_COLUMNS_H

#include "kernels/kernels.h"

struct sc_kernels_run {
    uint64_t offset; /* offset of its first slot; UINT64_MAX: these tokens are not written */
    uint64_t count;
};

static inline bool sc_kernels_is_columns(const struct sc_kernels_memory *memory)
{
    return memory->k_element_stride_bytes != 0;
}

/* skipped: bits of tokens that are not written; NULL: none */
static inline bool sc_kernels_is_skipped(const uint64_t *skipped, uint64_t token)
{
    return skipped != NULL && (skipped[token / 64] >> (token % 64) & 1) != 0;
}

/* Returns how many tokens to move together (a line of each column); 0: any number. */
static inline uint64_t sc_kernels_rows_together(const struct sc_kernels_memory *memory)
{
    bool has_runs =
        sc_kernels_is_columns(memory) && memory->token_stride_bytes == memory->element_bytes;
    return has_runs ? 64 / memory->element_bytes : 0;
}

/* Returns the run that begins with `token` and ends at or before token_end (> token). */
struct sc_kernels_run sc_kernels_columns_run(const struct sc_kernels_memory *memory,
                                             const uint64_t *skipped, uint64_t token,
                                             uint64_t token_end);

/* Columns of a memory: elements [first, + count) of a head. */
struct sc_kernels_slice {
    const struct sc_kernels *kernels;
    const struct sc_kernels_memory *memory;
    uint64_t head, first, count;
};
/* Transposes rows into a slice of a run (offset is not UINT64_MAX).
 *   src [run->count], src_stride bytes apart, of the memory's type
 *   streams  allows non-temporal stores of whole lines; the caller calls sc_nt_copy_end */
void sc_kernels_columns_put(const struct sc_kernels_slice *slice, const struct sc_kernels_run *run,
                            const uint8_t *src, uint64_t src_stride, bool streams);
/* Transposes tokens [token_first, + token_count), of any runs, into rows.
 *   dst [token_count], dst_stride bytes apart. No slot is negative. */
void sc_kernels_columns_get(const struct sc_kernels_slice *slice, uint64_t token_first,
                            uint64_t token_count, uint8_t *dst, uint64_t dst_stride);
/* Moves a slice in place, from the tokens of `from` to those of `to`, of equal length. */
void sc_kernels_columns_move(const struct sc_kernels_slice *slice, const struct sc_kernels_run *to,
                             const struct sc_kernels_run *from);

#endif
