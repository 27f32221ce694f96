/* Rows of pieces, read back in the background and verified, to be written once more (pieces that
 * become one) or to make something of them (probe rows and codes that an extent lacks).
 *
 *   window   [stretch][stretch] ...      in memory of its own: loads need the pool's frames
 *   stretch  [rows, in whole pages][their tags, likewise]     of neighbouring pieces of an extent,
 *                                                             in one layer
 *
 * Bytes that the cache holds are taken from there. Only the others are read. Rows of a copy of the
 * rows in another order (store/rows/row_permutation.h) are read one by one, and put together when
 * they are given.
 *
 * Holds: the rows that are given agree with their tags, whether the cache or the disk had them; one
 * task is posted when all reads of a window have ended, also those that failed.
 * Does not: choose rows, wait, keep to a rate.
 * Threads: one at a time; completions only count.
 * Tests: tests/unit/store/test_build.c, test_quant.c, test_inline_quant.c,
 * tests/unit/plugin/test_compaction.c */
#ifndef SC_STORE_CACHE_READBACK_H
#define SC_STORE_CACHE_READBACK_H

#include "store/internal.h"
#include "store/rows/where.h"

#define SC_STORE_STRETCHES 16u /* of a window */

struct sc_store_stretch_rows {
    const struct sc_store_extent_entry *extent;
    const struct sc_store_piece_entry *from, *to; /* pieces that have the first row, the last */
    uint64_t first, end;                          /* rows of the extent */
    uint32_t layer;
    bool k_alone; /* of a split layout K alone, of one piece */
};

struct sc_store_stretch_bytes { /* [start, end) of a segment */
    const uint8_t *bytes;       /* of start; once they are there */
    struct sc_io_op op;         /* its status says whether they are */
    struct sc_store_cache_entry *pin;
};

/* Rows of another order, of memory of its own: [read of each half of each row][pointers to them]
 * [pages of each][rows, or K rows, then V rows]. */
struct sc_store_gather {
    uint8_t *memory; /* NULL: it is none, or there was no memory */
    struct sc_io_op *ops, **reads;
    uint8_t *pages, *rows;
    uint64_t page_bytes; /* of a half of a row */
    uint32_t count, halves;
};

struct sc_store_stretch {
    struct sc_store_stretch_rows what;
    struct sc_store_slab_where from; /* of what.from, when it was added */
    struct sc_store_gather gather;
    uint64_t rows_at, tags_at; /* of the segment: where the two begin */
    struct sc_store_stretch_bytes rows, tags;
};

struct sc_store_readback {
    struct sc_store *store;
    struct sc_task *task; /* posted when a window has come; constant */
    bool pins;            /* the cache's frames are used in place, pinned until clear; constant */
    uint8_t *memory;      /* NULL: none is taken */
    uint64_t memory_bytes, used, read_bytes;
    struct sc_store_stretch stretches[SC_STORE_STRETCHES];
    struct sc_io_op *reads[2 * SC_STORE_STRETCHES];
    uint32_t stretch_count, read_count;
    _Atomic uint32_t flying;
};

struct sc_store_back { /* rows that were read back; half 1: V of a split layout */
    const uint8_t *halves[2];
    uint64_t stride;      /* from row to row, of each half */
    const uint64_t *tags; /* of the rows, as they lie */
};

/* Bytes of a window for a stretch of so many rows. */
uint64_t sc_store_stretch_bytes(const struct sc_store *store, uint64_t row_count);
/* false: no memory. Memory that was taken before is given back. */
bool sc_store_readback_take(struct sc_store_readback *readback, uint64_t bytes);
void sc_store_readback_leave(struct sc_store_readback *readback);

/* Adds rows to the window, which has room for them. */
void sc_store_readback_add(struct sc_store_readback *readback,
                           const struct sc_store_stretch_rows *what);
/* Reads what the cache did not have. true: the task is posted when it has come; false: there is
 * nothing to read. */
bool sc_store_readback_submit(struct sc_store_readback *readback);
/* Empties the window. Returns how many bytes of it were read from the disk. */
uint64_t sc_store_readback_clear(struct sc_store_readback *readback);

/* Extent rows [first, + count) of the piece, from the window's stretch i, verified. false: they
 * cannot be had, or are not what they were. */
bool sc_store_readback_rows(const struct sc_store_readback *readback, uint32_t i,
                            const struct sc_store_piece_entry *piece, uint64_t first,
                            uint64_t count, struct sc_store_back *ret_back);
/* Why rows of the window's stretch i could not be had: NO_MEMORY to put them together, IO: they
 * were not read, or CORRUPT: they are not what they were. */
spec_status sc_store_readback_why(const struct sc_store_readback *readback, uint32_t i);

#endif
