/* reader.h: state shared by the files of a load; only they include it.
 *
 * reader.c plans the reads and consumes completed slots in order. reader_rows.c verifies the rows
 * of the front slot and returns them. verify_ahead.c verifies slots behind it. Contract:
 * store/read/reader.c.
 *
 * Tests: tests/unit/store/test_store.c, test_gather.c, test_host_tier_slab_slots.c */
#ifndef SC_STORE_READ_READER_H
#define SC_STORE_READ_READER_H

#include "store/cache/inflight.h"
#include "store/read/gather_plan.h"
#include "store/read/scan_plan.h"

#define SC_READER_SLOTS      64u   /* own slots of a reader, and its limit while it is waited for */
#define SC_READER_HELPERS    8u    /* tasks that verify ahead of the consumer */
#define SC_READER_HELP_SLOTS 4u    /* slots per task; fewer are not worth waking a thread */
#define SC_READER_UNITS      2048u /* a power of two: units of reads not yet consumed */

struct sc_reader_unit { /* gathered rows of one read */
    uint32_t gather_first, gather_count;
    uint32_t range, range_first; /* range of the first row (gather_plan.h) */
    uint32_t at[2];              /* first row, or its K and V, in the frame */
    spec_status status;
    struct sc_store_gather_slab slab; /* in the frame; count 0 once it was examined */
    const uint16_t *slots;          /* NULL, or as in the op */
    uint64_t slots_copy, shift;
};

struct sc_reader_slot {
    struct sc_inflight_slot inflight;
    struct sc_store_plan_op plan;    /* whole ranges */
    uint32_t unit_first, unit_count; /* gathered rows */
    uint32_t tier;                   /* SPEC_TIER_* of inflight.host when it was found */
    uint64_t serial;                 /* whole ranges: unique among the reader's slots */
    _Atomic uint32_t check;          /* whole ranges: enum sc_reader_check */
};

enum sc_reader_check {
    SC_READER_UNCHECKED,
    SC_READER_CLAIMED, /* the consumer or a helper verifies it */
    SC_READER_GOOD,    /* a helper has verified all rows */
    SC_READER_DOUBTED  /* a helper found a row that fails */
};

struct sc_reader_helper {
    struct sc_task task;
    struct sc_store_reader *reader;
    bool is_out; /* posted or running; guarded by inflight.lock */
};

struct sc_reader_group { /* readers opened together; set by open, constant after */
    struct sc_alloc *alloc;
    struct sc_store_reader *readers; /* [count]; each has a part of the arrays below */
    struct sc_reader_slot *slots;    /* [count * SC_READER_SLOTS], then the shared slots */
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
    uint64_t *tags;               /* [SC_STORE_ROWS_MAX * tags_per_row] tags of the front's run */
    uint8_t *rows; /* split layout: joined K and V, SC_STORE_BITE_BYTES or one row */
    struct sc_store_slot_memory *slot_memory;
    uint16_t *slot_rows; /* the consumer's: [SC_STORE_ROWS_MAX] the run's row in each slot, + 1; 0:
                          * none */
    bool leaves;         /* calls sc_staging_leave */

    struct sc_reader_helper helpers[SC_READER_HELPERS];

    /* Guarded by inflight.lock. */
    uint64_t serials;           /* serials given to slots */
    uint32_t unit_next;         /* next entry of the ring */
    uint32_t frames_raised;     /* its frames when it was raised, plus the in-flight limit; or 0 */
    bool is_active, is_planned; /* a load has begun; all of it is planned */
    bool has_op;                /* op is planned and has no slot yet */
    bool is_gather;             /* the load gathers rows */
    struct sc_store_plan plan;
    struct sc_store_plan_op op;
    struct sc_store_gather_plan gather_plan;
    struct sc_store_gather_op gather_op;

    /* Owned by the consumer. */
    uint64_t rows_due, rows_gone; /* rows of the load; rows returned so far */
    uint64_t range, range_row;    /* next row to verify */
    struct sc_reader_slot *front; /* completed, its tags copied; read without the lock */
    uint64_t slot_row;            /* whole ranges: rows returned, or slots passed; gather: of the
                                   * unit */
    uint64_t run_range_first;     /* permuted: logical row at which `range` begins */
    uint64_t slots_kept;          /* permuted: slots below were offered to the host tier */
    uint32_t slot_unit;           /* units returned completely */
    const uint8_t *last[2]; /* rows returned last, in use until the next call */
    uint64_t last_bytes;
    uint64_t bite_count;
    uint64_t fronts;    /* whole ranges from the host tier, ever */
    bool is_front_good; /* the front slot was verified ahead */
    const uint8_t
        *behind_front;   /* gather: first row of the next slot; NULL: not available */
    uint64_t rows_least; /* sc_store_reader_apart */
    struct sc_host_slab_fill fill; /* slab of the range, or chunk, being returned */
    const uint64_t *gather_tags;
    const uint64_t *wanted_bits; /* NULL: all rows are wanted */
    struct {                     /* tag inputs of one range's rows */
        uint64_t range;          /* UINT64_MAX: none */
        uint64_t position, base[2];
    } bases;
};

static inline struct sc_reader_slot *sc_reader_slot_of(struct sc_inflight_slot *slot)
{
    return (struct sc_reader_slot *)(void *)slot;
}

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

/* verify_ahead.c. init is called by open. The consumer calls help when a slot of the host tier is
 * at the front: tasks then verify the slots behind it. */
void sc_reader_helpers_init(struct sc_store_reader *reader);
void sc_reader_help(struct sc_store_reader *reader);
/* Returns true if all rows of the front slot were verified ahead. Waits briefly for a helper that
 * is verifying it. On false the consumer verifies. */
bool sc_reader_is_good(struct sc_reader_slot *slot);

/* For the consumer, without the lock but for the last function. */

/* Makes the front slot, of whole ranges, the consumer's. */
void sc_reader_rows_open(struct sc_store_reader *reader, const struct sc_reader_slot *slot);
/* Returns true if the front slot has a row to return (of a gather, at slot_unit and slot_row).
 * Offers slabs that it passes to host memory: call it once without the lock before calling it with
 * it. */
bool sc_reader_rows_left(struct sc_store_reader *reader);
/* Verifies and returns the next bite of the front slot, or moves it to the sink. */
spec_status sc_reader_rows_take(struct sc_store_reader *reader, const struct sc_reader_slot *slot,
                                const struct sc_store_sink *sink, struct sc_store_rows *ret_rows);
/* Verifies and returns the next run of gathered rows of the front slot. */
spec_status sc_reader_gather_take(struct sc_store_reader *reader, const struct sc_reader_slot *slot,
                                  struct sc_store_rows *ret_rows);
/* Ends the use of the rows that were returned last. */
void sc_reader_rows_leave(struct sc_store_reader *reader);
/* Returns how many of these rows are wanted; sets their bits in covered_bits (or NULL). Consumer,
 * or lock held. */
uint64_t sc_reader_gather_wanted(const struct sc_store_reader *reader, uint64_t first,
                                 uint64_t count, uint64_t *covered_bits);

#endif
