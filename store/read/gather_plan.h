/* gather_plan: turns chosen rows of one layer, in the caller's order and without tags, into reads.
 *
 *   rows    2 3 4 | 9 | 70 71        ascending stretches; a descent begins a new one
 *   slabs   [piece 7: rows 0..64    ][piece 8: rows 64..128 ]
 *   ops     [2 3 4 . . . . 9]  [70 71]     `range`: rows closer than gap_bytes are one read, while
 *                                          gaps are at most a sixth of the rows
 *           [all of piece 7 ]  [all of 8]  `chunk`: whole slabs
 *
 * An op is one read of paired rows, or of K or V rows alone; or two reads, of a split layout's K
 * and V rows. Its rows are evenly spaced by slot (store/rows/row_permutation.h); at[] is the first
 * one's. In a permuted copy, rows of one extent are read in slot order, and a slab is a chunk of
 * slots. If the host tier has a range, or a chunk of slots, its ascending rows are an op of their
 * own.
 *
 * Invariants: ops have every gathered row once, in read order. The reads of an op fit a frame.
 * Nothing is allocated. A row costs O(1), amortised over the ranges that a stretch passes; a
 * descent costs a binary search over MARKS marks and a scan of ranges / MARKS ranges.
 * Threads: the reader's lock.
 * Tests: tests/unit/store/test_gather.c, test_host_tier_slab_slots.c, test_tiers_twin.c */
#ifndef SC_STORE_READ_GATHER_PLAN_H
#define SC_STORE_READ_GATHER_PLAN_H

#include "store/cache/host_tier_slab.h"
#include "store/internal.h"
#include "store/load.h"
#include "store/log/where.h"

#define SC_STORE_GATHER_MARKS 128u

/* Scratch memory of a reader, for permuted copies. */
struct sc_store_slot_memory {
    uint32_t turn[SC_STORE_ROWS_MAX]; /* indexes of gathered rows, in read order */
    uint32_t at[SC_STORE_ROWS_MAX];   /* per slot: index of the wanted row + 1, or 0 */
};

/* Position of a range's rows; if one half is wanted, of that half. */
struct sc_store_gather_place {
    const struct sc_store_extent_entry *extent;
    struct sc_store_slab_where where;
    uint64_t shift;                /* extent row - logical row, modulo 2^64 */
    uint64_t slab_first, slab_end; /* extent rows of the piece; empty with where.slots */
};

struct sc_store_gather_plan {
    const struct sc_store *store;
    const struct sc_store_range *ranges;
    uint64_t range_count;
    uint32_t layer;
    struct sc_store_gather_rows gather;

    uint64_t gathered;           /* next row to plan */
    uint64_t range, range_first; /* the cursor; logical row of its range's start */
    bool is_open;                /* place is of the cursor's range */
    struct sc_store_gather_place place;

    /* `chunk`: the rest of the open slab; slab_next == slab_end: none is open. */
    struct sc_store_gather_place slab;
    uint64_t slab_next, slab_end, slab_rows; /* slots, extent rows; slab_rows: per op */
    uint64_t slab_range, slab_range_first;   /* cursor when it was opened */

    uint64_t row_bytes, gap_bytes; /* page bytes of rows, and of gaps, planned so far */

    uint64_t mark_stride;                /* 0: no marks yet */
    uint64_t marks[SC_STORE_GATHER_MARKS]; /* logical row at which range i * mark_stride begins */
};

/* Returns the caller's index of the i-th row in read order; gather_row returns the row. */
static inline uint64_t sc_store_gather_index(const struct sc_store_gather_rows *gather, uint64_t i)
{
    return i < gather->turn_count ? gather->turn[i] : i;
}

static inline uint64_t sc_store_gather_row(const struct sc_store_gather_rows *gather, uint64_t i)
{
    uint64_t index = sc_store_gather_index(gather, i);
    return gather->rows != NULL ? gather->rows[index] : index;
}

/* A slab, or contiguous part of one, as read: wanted rows and others. */
struct sc_store_gather_slab {
    uint32_t range, range_first; /* range of the slab's first gathered row */
    uint32_t first, count;       /* extent rows, or slots; count 0: no whole slab is read */
    uint32_t at[2];
};

struct sc_store_gather_op {
    spec_status status; /* SPEC_E_CORRUPT: the range has no live piece; nothing to read */
    uint32_t segment, part_count;
    struct {
        uint64_t offset, bytes; /* pages of the segment file */
    } parts[2];
    uint64_t gather_first, gather_count;
    uint64_t range, range_first; /* range of the first gathered row, as in the plan */
    uint64_t at[2];              /* first gathered row, in bytes from the op's first byte */
    const uint16_t *slots; /* NULL, or the slot of each extent row */
    uint64_t slots_copy;   /* number of the copy with these slots; there may be a newer one */
    uint64_t shift;        /* with slots: extent row - logical row, modulo 2^64 */
    struct sc_store_gather_slab slab;
    struct sc_host_slab host; /* if its slab is not NULL, at[] is in it; the caller unpins it */
};

/* memory: in use until the plan is done. */
void sc_store_gather_plan_begin(struct sc_store_gather_plan *plan, const struct sc_store *store,
                                uint32_t layer, const struct sc_store_range *ranges,
                                uint64_t range_count, const struct sc_store_gather_rows *gather,
                                struct sc_store_slot_memory *memory);
/* Returns the next op (an op of a slab may have no gathered row), or false at the end. */
bool sc_store_gather_plan_next(struct sc_store_gather_plan *plan,
                               struct sc_store_gather_op *ret_op);
/* Ends the plan after the open slab, or now. Returns the index of the first row that is dropped. */
uint64_t sc_store_gather_plan_end(struct sc_store_gather_plan *plan);

#endif
