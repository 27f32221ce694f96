/* From chosen rows to reads: picks of one layer, in their order, without their tags.
 *
 *   picks   2 3 4 | 9 | 70 71        ascending stretches; a descent begins anew
 *   slabs   [piece 7: rows 0..64    ][piece 8: rows 64..128 ]
 *   ops     [2 3 4 . . . . 9]  [70 71]     `range`: what lies closer than gap_bytes is one read, as
 *                                          long as gaps are a sixth of the rows or less
 *           [all of piece 7 ]  [all of 8]  `chunk`: whole slabs
 *
 * An op is one read of paired rows (or of K or V rows alone), or two of a split layout's K and V
 * rows. Its rows lie evenly from at[], by slot (store/rows/row_permutation.h): that of the first
 * pick is at at[]. Where a copy of the rows has another order, picks of one extent take turns by
 * their slots, and a slab is a chunk of slots.
 *
 * Picks of a range, or of a chunk of slots, that lies in the host tier are an op of their own, as
 * far as they ascend.
 *
 * Holds: ops hold every pick once, in order (turns: in theirs); the reads of one fit a frame; begin
 * and next allocate nothing and cost O(1) a pick, amortised over the ranges that a stretch passes;
 * after a descent a piece is found by a search in MARKS places of the ranges, then among ranges /
 * MARKS.
 * Does not: lock, do I/O, look at bytes or tags.
 * Threads: the reader's lock.
 * Tests: tests/unit/store/test_gather.c, test_host_tier_slab_slots.c, test_tiers_twin.c */
#ifndef SC_STORE_READ_GATHER_PLAN_H
#define SC_STORE_READ_GATHER_PLAN_H

#include "store/cache/host_tier_slab.h"
#include "store/internal.h"
#include "store/load.h"
#include "store/rows/where.h"

#define SC_STORE_GATHER_MARKS 128u

/* Scratch of a reader, for rows of editions in another order. */
struct sc_store_slot_memory {
    uint32_t turn[SC_STORE_ROWS_MAX]; /* picks in the order in which they are read */
    uint32_t at[SC_STORE_ROWS_MAX];   /* what stands in a slot, + 1; 0: nothing that is wanted */
};

/* Where the rows of a range lie: of halves, those that are wanted. */
struct sc_store_gather_place {
    const struct sc_store_extent_entry *extent;
    struct sc_store_slab_where where;
    uint64_t shift;                /* extent row - logical row, modulo 2^64 */
    uint64_t slab_first, slab_end; /* extent rows of the piece; where.slots: nothing */
};

struct sc_store_gather_plan {
    /* Set by begin. */
    const struct sc_store *store;
    const struct sc_store_range *ranges;
    uint64_t range_count;
    uint32_t layer;
    struct sc_store_gather_rows gather;

    uint64_t gathered;           /* the next one to plan */
    uint64_t range, range_first; /* the cursor, and the logical row that its range begins with */
    bool is_open;                /* place is the cursor's */
    struct sc_store_gather_place place;

    /* `chunk`: what is left of the slab; slab_next == slab_end: none is open. */
    struct sc_store_gather_place slab;
    uint64_t slab_next, slab_end, slab_rows; /* slots; of one op */
    uint64_t slab_range, slab_range_first;   /* where it was opened */

    uint64_t row_bytes, gap_bytes; /* picked so far, in pages; read through so far */

    uint64_t mark_stride;                /* 0: the marks are not made */
    uint64_t marks[SC_STORE_GATHER_MARKS]; /* logical row with which range i * mark_stride begins */
};

/* The caller's number of the pick that is the i-th to be read, and its row. */
static inline uint64_t sc_store_gather_index(const struct sc_store_gather_rows *gather, uint64_t i)
{
    return i < gather->turn_count ? gather->turn[i] : i;
}

static inline uint64_t sc_store_gather_row(const struct sc_store_gather_rows *gather, uint64_t i)
{
    uint64_t index = sc_store_gather_index(gather, i);
    return gather->rows != NULL ? gather->rows[index] : index;
}

/* What a read has of a slab, wanted or not: all of it, or a part, in succession. */
struct sc_store_gather_slab {
    uint32_t range, range_first; /* of the slab's first pick */
    uint32_t first, count;       /* extent rows, or slots; count 0: no whole slabs are read */
    uint32_t at[2];              /* where the first is, as of a pick's row */
};

struct sc_store_gather_op {
    spec_status status; /* SPEC_E_CORRUPT: the pick's range is no live piece's; nothing to read */
    uint32_t segment, part_count;
    struct {
        uint64_t offset, bytes; /* pages of the segment file */
    } parts[2];                 /* one behind the other in the frame */
    uint64_t gather_first, gather_count;
    uint64_t range, range_first; /* of the first pick, as in the plan */
    uint64_t at[2];              /* where the first pick's row is, from the op's first byte */
    const uint16_t *slots; /* NULL, or in which slots its rows are: extent row r in slots[r] */
    uint64_t shift;        /* of slots: extent row - logical row, modulo 2^64 */
    struct sc_store_gather_slab slab;
    struct sc_host_slab host; /* or from the slab's, if it is not NULL: then nothing is read, and
                                  * the slab is the caller's to unpin */
};

/* memory: until the plan is done. */
void sc_store_gather_plan_begin(struct sc_store_gather_plan *plan, const struct sc_store *store,
                                uint32_t layer, const struct sc_store_range *ranges,
                                uint64_t range_count, const struct sc_store_gather_rows *gather,
                                struct sc_store_slot_memory *memory);
/* The next operation (of a slab it may hold no pick); false: all is planned. */
bool sc_store_gather_plan_next(struct sc_store_gather_plan *plan,
                               struct sc_store_gather_op *ret_op);
/* Picks behind the slab that is open are not wanted any more: the plan ends with it, or now.
 * Returns the first of them. */
uint64_t sc_store_gather_plan_end(struct sc_store_gather_plan *plan);

#endif
