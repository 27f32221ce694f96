/* K whose elements are strided: of tokens that follow each other a head's element is a column.
 *
 *   rows      [token 0: e0 e1 e2 ..][token 1: e0 e1 e2 ..] ...          packed, or anywhere
 *   columns   [e0: token 0, 1, 2 ..][e1: token 0, 1, 2 ..] ...          token stride: an element
 *
 * A run is as many tokens as have their slots one behind the other inside a block: it is turned at
 * once (sc_kernels.rope16, rope32). Where the token stride is more than an element each token is a
 * run of its own.
 *
 * Holds: of a column the run's elements alone are written, so that others may write its neighbours
 * meanwhile.
 * Does not: widen, check addresses, allocate.
 * Threads: any.
 * Tests: tests/unit/kernels/test_columns.c */
#ifndef SC_KERNELS_COLUMNS_H
#define SC_KERNELS_COLUMNS_H

#include "kernels/kernels.h"

struct sc_kernels_run {
    uint64_t offset; /* of its first slot; UINT64_MAX: these tokens are not written */
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

/* Tokens that are best moved together: a line of each column; 0: it does not matter. */
static inline uint64_t sc_kernels_rows_together(const struct sc_kernels_memory *memory)
{
    bool has_runs =
        sc_kernels_is_columns(memory) && memory->token_stride_bytes == memory->element_bytes;
    return has_runs ? 64 / memory->element_bytes : 0;
}

/* The run that begins with a token, at most up to token_end, which is behind it. */
struct sc_kernels_run sc_kernels_columns_run(const struct sc_kernels_memory *memory,
                                             const uint64_t *skipped, uint64_t token,
                                             uint64_t token_end);

/* Columns of a memory: elements [first, + count) of a head. */
struct sc_kernels_slice {
    const struct sc_kernels *kernels;
    const struct sc_kernels_memory *memory;
    uint64_t head, first, count;
};
/* Rows into a slice of a run (offset is not UINT64_MAX).
 *   src [run->count], src_stride bytes apart; of the memory's type
 *   streams  whole lines may go past the caches; sc_nt_copy_end is the caller's */
void sc_kernels_columns_put(const struct sc_kernels_slice *slice, const struct sc_kernels_run *run,
                            const uint8_t *src, uint64_t src_stride, bool streams);
/* Tokens [token_first, + token_count), of any runs, into rows.
 *   dst [token_count], dst_stride bytes apart. No slot is negative. */
void sc_kernels_columns_get(const struct sc_kernels_slice *slice, uint64_t token_first,
                            uint64_t token_count, uint8_t *dst, uint64_t dst_stride);
/* Moves a slice down, in place: of the tokens of `from` to those of `to`, which is as long. */
void sc_kernels_columns_move(const struct sc_kernels_slice *slice, const struct sc_kernels_run *to,
                             const struct sc_kernels_run *from);

#endif
