/* scan_plan: turns ranges into read operations for all rows of one layer, in order, with tags.
 *
 *   ranges  piece 7 rows 0..64 | piece 8 rows 0..64 | piece 3 rows 5..9
 *   runs    [ one extent, adjacent rows             ] [ another          ]
 *   ops     [tags of the run + first rows][rows][rows]  [tags][rows]
 *
 * A run is a stretch of adjacent rows of one extent. Its tags are read once: with its first rows if
 * the gap between is small, else by their own operations. An operation takes up to op_bytes of
 * whole rows, rounded out to pages. In a split layout it reads K rows and V rows of a piece.
 *
 * A range in the host tier ends a run and is an operation that reads nothing.
 *
 *   slots   [ . 7 3 . | 5 4 6 . ]     permuted copy: the tags, then stretches of slots
 *   ops     [tags] [7 3][5 4 6]       that have rows of the run; a chunk of slots in the
 *                                     host tier is an operation of its own
 *
 * Invariants: operations cover every wanted row once, tags first; in order except for permuted
 * copies. Each fits a frame. Nothing is allocated.
 * Threads: the reader's lock.
 * Tests: tests/unit/store/test_store.c, test_host_tier_slab_slots.c */
#ifndef SC_STORE_READ_SCAN_PLAN_H
#define SC_STORE_READ_SCAN_PLAN_H

#include "store/cache/host_tier_slab.h"
#include "store/internal.h"
#include "store/load.h"
#include "store/log/where.h"

struct sc_store_plan {
    const struct sc_store *store;
    const struct sc_store_range *ranges;
    uint64_t range_count;
    uint32_t layer;

    uint64_t range, range_row; /* next row to plan */
    uint64_t row_next;         /* its index in the order of the ranges */

    /* The run; run_count 0: none is open. */
    const struct sc_store_extent_entry *extent;
    struct sc_store_slab_where where; /* its first piece's */
    uint64_t run_first, run_count;    /* extent rows */
    uint64_t tags_planned, rows_planned;
    uint64_t slot_next;  /* permuted: next slot to examine */
    uint32_t *slot_rows; /* permuted: the run's row in each slot + 1; 0: none */

    bool is_crowded; /* other loads keep the device busy: operations are not split */
};

struct sc_store_plan_op {
    spec_status status;        /* SPEC_E_CORRUPT: the range has no live piece; nothing to read */
    uint64_t range, range_row; /* first row; permuted: the run's first row */
    uint32_t segment, part_count;
    struct {
        uint64_t offset, bytes; /* pages of the segment file */
        uint64_t at;            /* offset in the frame */
    } parts[2];
    /* Tags of run rows [tag_first, tag_first + tag_count) are at tag_at of the frame. */
    uint64_t tag_first, tag_count, tag_at;
    /* Rows [run_row, + row_count) of the run are packed at row_at (split: K at row_at, V at
     * v_at). */
    uint64_t run_row, row_count, row_at, v_at;
    uint64_t row_first; /* index of the first row (permuted: the run's) in the order of ranges */
    /* Permuted (not NULL): slots [slot_first, + slot_count) are at row_at and v_at; row_count of
     * them have rows of the run. Extent row r of [run_first, + run_count) is in slot slots[r]. */
    const uint16_t *slots;
    uint64_t slots_copy; /* number of the copy with these slots; there may be a newer one */
    uint64_t slot_first, slot_count, run_first, run_count;
    struct sc_host_slab host; /* if its slab is not NULL, the rows are in it; the caller unpins
                               * it */
};

/* Returns the range's extent and first extent row; NULL if no readable piece of this namespace has
 * these rows, or the layer does not exist. Any thread. */
const struct sc_store_extent_entry *sc_store_range_find(const struct sc_store *store,
                                                        uint32_t layer,
                                                        const struct sc_store_range *range,
                                                        uint64_t *ret_extent_row);

/* slot_rows: scratch [SC_STORE_ROWS_MAX], in use until the plan is done. */
void sc_store_plan_begin(struct sc_store_plan *plan, const struct sc_store *store, uint32_t layer,
                         const struct sc_store_range *ranges, uint64_t range_count,
                         uint32_t *slot_rows);
/* Returns the next operation, or false at the end. */
bool sc_store_plan_next(struct sc_store_plan *plan, struct sc_store_plan_op *ret_op);

#endif
