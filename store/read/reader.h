/* What the two files of a load share: reader.c plans what a flight reads and consumes its slots in
 * order, reader_rows.c verifies the rows of the slot at the front and hands them out. Only these
 * two include it.
 *
 * Holds, Threads: store/read/reader.c.
 * Tests: tests/unit/store/test_store.c, test_gather.c, test_host_tier_slab_slots.c */
#ifndef SC_STORE_READ_READER_H
#define SC_STORE_READ_READER_H

#include "store/cache/inflight.h"
#include "store/read/gather_plan.h"
#include "store/read/scan_plan.h"

#define SC_READER_SLOTS      64u   /* a reader's own, and most that it has while it is waited for */
#define SC_READER_HELPERS    8u    /* tasks that verify ahead of the consumer */
#define SC_READER_HELP_SLOTS 4u    /* slots for each of them: fewer are not worth waking a thread */
#define SC_READER_UNITS      2048u /* a power of two: units of reads that were not consumed */

struct sc_reader_unit { /* picks that lie in one read */
    uint32_t gather_first, gather_count;
    uint32_t range, range_first; /* of the first pick: store/read/gather_plan.h */
    uint32_t at[2];              /* its row, or K and V, in the frame */
    spec_status status;
    struct sc_store_gather_slab slab; /* in the frame; count 0 once it was kept, or not: the
                                     * consumer's, once it landed */
    const uint16_t *slots;          /* not NULL: as in the op, which it is of */
    uint64_t shift;
};

struct sc_reader_slot {
    struct sc_inflight_slot inflight;
    struct sc_store_plan_op plan;    /* of whole ranges */
    uint32_t unit_first, unit_count; /* of picks */
    uint32_t tier;                   /* of flight.host: SPEC_TIER_*, where it lay */
    uint64_t serial;                 /* of whole ranges: no other slot of the reader's had it */
    _Atomic uint32_t check;          /* likewise: enum sc_reader_check */
};

enum sc_reader_check {
    SC_READER_UNCHECKED,
    SC_READER_CLAIMED, /* the consumer, or a helper, verifies it */
    SC_READER_GOOD,    /* a helper has: all rows agree with their tags */
    SC_READER_DOUBTED  /* a helper has: not all do */
};

struct sc_reader_helper { /* verify_ahead.c */
    struct sc_task task;
    struct sc_store_reader *reader;
    bool is_out; /* posted, or running; guarded by flight.lock */
};

struct sc_reader_group { /* readers that were opened together. Set by open, constant after */
    struct sc_alloc *alloc;
    struct sc_store_reader *readers; /* [count], each with its part of what follows */
    struct sc_reader_slot *slots;    /* [count * SC_READER_SLOTS], then those of the commons */
    struct sc_inflight_read *reads;
    struct sc_reader_unit *units;
    uint64_t *tags;
    uint8_t *rows;
    struct sc_store_slot_memory *slot_memory;
    uint16_t *slot_rows;
    struct sc_inflight_commons commons;
};

struct sc_store_reader {
    struct sc_inflight inflight; /* its lock guards what is in flight and what is planned */

    /* Set by open, constant after. */
    struct sc_reader_group *group;
    struct sc_reader_unit *units; /* [SC_READER_UNITS] a ring */
    uint64_t *tags;               /* of the run at the front: [SC_STORE_ROWS_MAX * tags_per_row] */
    uint8_t *rows; /* split layout: K and V put together, SC_STORE_BITE_BYTES or a row */
    struct sc_store_slot_memory *slot_memory; /* the plan's */
    uint16_t *slot_rows; /* the consumer's, of the run at the front: [SC_STORE_ROWS_MAX] which row
                          * of it stands in a slot, + 1; 0: none */
    bool leaves;         /* frames' lines: sc_staging_leave */

    struct sc_reader_helper helpers[SC_READER_HELPERS];

    /* Guarded by flight.lock. */
    uint64_t serials;           /* that slots had */
    uint32_t unit_next;         /* of the ring */
    uint32_t frames_raised;     /* that it had when it was raised, and as many as may fly */
    bool is_active, is_planned; /* a load is begun; all of it is planned */
    bool has_op;                /* op is planned and has no slot yet */
    bool is_gather;             /* the load is one of picks */
    struct sc_store_plan plan;
    struct sc_store_plan_op op;
    struct sc_store_gather_plan gather_plan;
    struct sc_store_gather_op gather_op;

    /* The consumer's. */
    uint64_t rows_due, rows_gone; /* of the load; of them, those that went out */
    uint64_t range, range_row;    /* of the next row to verify */
    struct sc_reader_slot *front; /* ready, its tags taken: read without the lock; or NULL */
    uint64_t slot_row;            /* rows of it that were handed out, or its slots that were passed;
                                   * of picks: of its unit */
    uint64_t run_range_first;     /* of such slots: index of the first row of `range` */
    uint64_t slots_kept;          /* of such slots: those below were looked at for the host tier */
    uint32_t slot_unit;           /* units of it that were handed out whole */
    const uint8_t *last[2]; /* what was handed out last: read until the caller asks for more */
    uint64_t last_bytes;    /* of each */
    uint64_t bite_count;
    uint64_t fronts;    /* of whole ranges in the host tier, ever */
    bool is_front_good; /* the front slot was verified ahead */
    const uint8_t
        *behind_front;   /* of picks: the first row of the slot behind it; NULL: not there */
    uint64_t rows_least; /* sc_store_reader_apart */
    struct sc_host_slab_fill fill; /* of the range, or the chunk, that is handed out */
    const uint64_t *gather_tags;
    const uint64_t *wanted_bits; /* NULL: all picks are wanted */
    struct {                     /* what the tags of a piece's rows are made with */
        uint64_t range;          /* UINT64_MAX: none */
        uint64_t position, base[2];
    } bases;
};

static inline struct sc_reader_slot *sc_reader_slot_of(struct sc_inflight_slot *slot)
{
    return (struct sc_reader_slot *)(void *)slot;
}

/* Bytes of a picked row that are wanted. */
static inline uint64_t sc_reader_gather_bytes(const struct sc_store_reader *reader)
{
    const struct sc_store_shape *shape = &reader->inflight.store->shape;
    return reader->gather_plan.gather.wanted == SC_STORE_WANT_ROWS ? shape->row_bytes
                                                                   : shape->k_row_bytes;
}

static inline struct sc_reader_unit *sc_reader_unit_of(const struct sc_store_reader *reader,
                                                       const struct sc_reader_slot *slot,
                                                       uint32_t i)
{
    return &reader->units[(slot->unit_first + i) % SC_READER_UNITS];
}

/* verify_ahead.c: open calls it; then the consumer, when a slot of the tier is at the front: what
 * lies behind it is verified by tasks. */
void sc_reader_helpers_init(struct sc_store_reader *reader);
void sc_reader_help(struct sc_store_reader *reader);
/* The front slot, which is the consumer's, was verified ahead: all rows of it. Waits, not for long,
 * for who is at it; false: the consumer does it, once more or for the first time. */
bool sc_reader_is_good(struct sc_reader_slot *slot);

/* The consumer's: without the lock, but for the last. */

/* The front slot, of whole ranges, is the consumer's from now on. */
void sc_reader_rows_open(struct sc_store_reader *reader, const struct sc_reader_slot *slot);
/* Whether the front slot holds a row that is still to be handed out; of picks, slot_unit and
 * slot_row say which. What was read of slabs on the way there is kept in host memory, or not: so
 * it is called without the lock before it is called with it. */
bool sc_reader_rows_left(struct sc_store_reader *reader);
/* Takes the next bite of the front slot: verified rows, moved where the sink says if there is one.
 */
spec_status sc_reader_rows_take(struct sc_store_reader *reader, const struct sc_reader_slot *slot,
                                const struct sc_store_sink *sink, struct sc_store_rows *ret_rows);
/* Takes the next run of picked rows of the front slot. */
spec_status sc_reader_gather_take(struct sc_store_reader *reader, const struct sc_reader_slot *slot,
                                  struct sc_store_rows *ret_rows);
/* The caller is through with what it got last. */
void sc_reader_rows_leave(struct sc_store_reader *reader);
/* Lock held, or the consumer's. How many of these picks are wanted; covered_bits: NULL, or tells
 * them there. */
uint64_t sc_reader_gather_wanted(const struct sc_store_reader *reader, uint64_t first,
                                 uint64_t count, uint64_t *covered_bits);

#endif
