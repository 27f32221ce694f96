/* From ranges to read operations: the rows of one layer, in order, with their tags.
 *
 *   ranges  piece 7 rows 0..64 | piece 8 rows 0..64 | piece 3 rows 5..9
 *   runs    [ one extent, adjacent rows             ] [ another          ]
 *   ops     [tags of the run + first rows][rows][rows]  [tags][rows]
 *
 * A run is a stretch of adjacent rows of one extent. Its tags are read once, before or with its
 * first rows: with them when the gap between is small, as operations of their own otherwise. An
 * operation takes up to op_bytes on row borders, rounded out to pages. A split layout reads the K
 * rows and the V rows of a piece as the two halves of one operation.
 *
 * A range that lies in the host tier is an operation of its own, which reads nothing, and ends a
 * run.
 *
 *   slots   [ . 7 3 . | 5 4 6 . ]     reordered rows: the tags, then stretches of
 *   ops     [tags] [7 3][5 4 6]       slots that have rows of the run, whichever these are; a chunk
 *                                     of slots that lies in the host tier is one of its own
 *
 * Holds: operations cover every wanted row once, tags first, in order but for such editions; each
 * fits a frame.
 * Does not: allocate, lock, do I/O, look at bytes.
 * Threads: the reader's lock.
 * Tests: tests/unit/store/test_store.c, test_host_tier_slab_slots.c */
#ifndef SC_STORE_READ_SCAN_PLAN_H
#define SC_STORE_READ_SCAN_PLAN_H

#include "store/cache/host_tier_slab.h"
#include "store/internal.h"
#include "store/load.h"
#include "store/rows/where.h"

struct sc_store_plan {
    /* Set by begin. */
    const struct sc_store *store;
    const struct sc_store_range *ranges;
    uint64_t range_count;
    uint32_t layer;

    uint64_t range, range_row; /* the next row to plan */
    uint64_t row_next;         /* its index in the order of the ranges */

    /* The run; row_count 0: none is open. */
    const struct sc_store_extent_entry *extent;
    struct sc_store_slab_where where; /* of its first piece */
    uint64_t run_first, run_count;    /* extent rows */
    uint64_t tags_planned, rows_planned;
    uint64_t slot_next;  /* where.slots: the next slot to look at */
    uint32_t *slot_rows; /* of those slots: the run's row there + 1; 0: none of it */

    bool is_crowded; /* other loads keep devices busy meanwhile: no operation is cut short */
};

struct sc_store_plan_op {
    spec_status status;        /* SPEC_E_CORRUPT: the range is no live piece's; nothing to read */
    uint64_t range, range_row; /* of its first row; of slots: of the run's */
    uint32_t segment, part_count;
    struct {
        uint64_t offset, bytes; /* pages of the segment file */
        uint64_t at;            /* where they go in the frame */
    } parts[2];
    /* Tags of run rows [tag_first, tag_first + tag_count) lie at tag_at of the frame. */
    uint64_t tag_first, tag_count, tag_at;
    /* Rows [run_row, run_row + row_count) of the run lie at row_at, packed; of a split layout the K
     * rows at row_at and the V rows at v_at. */
    uint64_t run_row, row_count, row_at, v_at;
    uint64_t row_first; /* index of the first (of slots: of the run's first) in the order
                         * of the ranges */
    /* Not NULL: slots [slot_first, + slot_count) lie at row_at, and at v_at, of which row_count
     * have rows of the run: extent rows [run_first, + run_count), row r in slot slots[r]. */
    const uint16_t *slots;
    uint64_t slot_first, slot_count, run_first, run_count;
    struct sc_host_slab host; /* where they lie already, if its slab is not NULL: then nothing is
                                  * read, and the slab is the caller's to unpin */
};

/* The extent that has the range, and the extent row at which it begins; NULL: no piece of this
 * namespace that may be read has these rows, or there is no such layer. Any thread. */
const struct sc_store_extent_entry *sc_store_range_find(const struct sc_store *store,
                                                        uint32_t layer,
                                                        const struct sc_store_range *range,
                                                        uint64_t *ret_extent_row);

/* slot_rows: scratch, [SC_STORE_ROWS_MAX], until the plan is done. */
void sc_store_plan_begin(struct sc_store_plan *plan, const struct sc_store *store, uint32_t layer,
                         const struct sc_store_range *ranges, uint64_t range_count,
                         uint32_t *slot_rows);
/* The next operation; false: all is planned. */
bool sc_store_plan_next(struct sc_store_plan *plan, struct sc_store_plan_op *ret_op);

#endif
