/* readback: reads rows of pieces back in the background and verifies them.
 *
 * Used to compact pieces, and to build sections (probe keys, quantised rows) that an extent lacks.
 *
 *   window   [stretch][stretch] ...      in its own memory: loads need the pool's frames
 *   stretch  [rows, in whole pages][their tags, in whole pages]
 *            neighbouring pieces of an extent, in one layer
 *
 * Bytes in the cache of written frames are taken from there; only the others are read. Permuted
 * rows (store/rows/row_permutation.h) are read one by one, or together with short gaps between
 * them, and joined when they are requested.
 *
 * Invariants: rows that are returned agree with their tags, whether from cache or disk. One task is
 * posted when all reads of a window have ended, failed ones included.
 * Threads: one at a time; completions only count.
 * Tests: tests/unit/store/test_build.c, test_quant.c, test_inline_quant.c,
 * tests/unit/plugin/test_compaction.c */
#ifndef SC_STORE_CACHE_READBACK_H
#define SC_STORE_CACHE_READBACK_H

#include "store/internal.h"
#include "store/log/where.h"

#define SC_STORE_STRETCHES 16u

struct sc_store_stretch_rows {
    const struct sc_store_extent_entry *extent;
    const struct sc_store_piece_entry *from, *to; /* pieces of the first and the last row */
    uint64_t first, end;
    uint32_t layer;
    bool k_alone; /* reads K only, of one piece of a split layout */
};

struct sc_store_stretch_bytes { /* bytes [start, end) of a segment */
    const uint8_t *bytes;       /* bytes from `start` on; valid when the read has completed */
    struct sc_io_op op;         /* op.status: SPEC_OK if the bytes are valid */
    struct sc_store_cache_entry *pin;
};

struct sc_store_gather_place { /* a half of a row */
    uint64_t start;            /* in the segment */
    uint32_t index;            /* row * halves + half */
    uint32_t op;               /* that reads it */
    const uint8_t *bytes;      /* in the op's pages */
};

/* Permuted rows, in own memory: [places of each half of each row][reads][pointers][pages][rows, or
 * K, then V]. */
struct sc_store_gather {
    uint8_t *memory; /* NULL: no permuted rows, or no memory */
    struct sc_store_gather_place *places; /* by index */
    struct sc_io_op *ops, **reads;
    uint8_t *pages, *rows;
    uint32_t count, halves; /* count: reads that were planned */
};

struct sc_store_stretch {
    struct sc_store_stretch_rows what;
    struct sc_store_slab_where from; /* position of what.from when it was added */
    struct sc_store_gather gather;
    uint64_t rows_at, tags_at; /* first byte of rows and of tags, in the segment */
    struct sc_store_stretch_bytes rows, tags;
};

struct sc_store_readback {
    struct sc_store *store;
    struct sc_task *task; /* posted when a window is complete; constant */
    bool pins;            /* cached frames are used in place, pinned until clear; constant */
    uint8_t *memory;
    uint64_t memory_bytes, used, read_bytes;
    struct sc_store_stretch stretches[SC_STORE_STRETCHES];
    struct sc_io_op *reads[2 * SC_STORE_STRETCHES];
    uint32_t stretch_count, read_count;
    _Atomic uint32_t flying;
};

struct sc_store_back { /* verified rows; half 1: V of a split layout */
    const uint8_t *halves[2];
    uint64_t stride;      /* bytes from row to row, in each half */
    const uint64_t *tags;
};

/* Returns the window bytes that a stretch of row_count rows needs. */
uint64_t sc_store_stretch_bytes(const struct sc_store *store, uint64_t row_count);
/* Allocates the window, freeing an earlier one. Returns false without memory. */
bool sc_store_readback_take(struct sc_store_readback *readback, uint64_t bytes);
void sc_store_readback_leave(struct sc_store_readback *readback);

/* Adds rows to the window, which must have room. */
void sc_store_readback_add(struct sc_store_readback *readback,
                           const struct sc_store_stretch_rows *what);
/* Reads what the cache lacks. Returns true if the task will be posted, false if there is nothing to
 * read. */
bool sc_store_readback_submit(struct sc_store_readback *readback);
/* Empties the window. Returns the bytes of it that were read from disk. */
uint64_t sc_store_readback_clear(struct sc_store_readback *readback);

/* Returns extent rows [first, + count) of the piece from stretch i; false if not read or not
 * verified. */
bool sc_store_readback_rows(const struct sc_store_readback *readback, uint32_t i,
                            const struct sc_store_piece_entry *piece, uint64_t first,
                            uint64_t count, struct sc_store_back *ret_back);
/* Returns why rows of stretch i failed: NO_MEMORY (to join them), IO, or CORRUPT. */
spec_status sc_store_readback_why(const struct sc_store_readback *readback, uint32_t i);

#endif
