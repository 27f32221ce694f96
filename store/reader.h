/* What the two files of a load share: reader.c has operations in flight and the queue of slots,
 * reader_rows.c verifies the rows of the slot at the front and hands them out. Only these two
 * include it.
 *
 * Holds, Threads: store/reader.c. Tests: tests/unit/store/test_store.c */
#ifndef SC_STORE_READER_H
#define SC_STORE_READER_H

#include "store/picks.h"
#include "store/plan.h"

#define SC_READER_SLOTS 64u
#define SC_READER_UNITS 2048u /* a power of two: units of reads that were not consumed */

enum sc_reader_slot_state { SC_READER_SLOT_FREE, SC_READER_SLOT_FLYING, SC_READER_SLOT_READY };

struct sc_reader_read {
    struct sc_io_op op;
    struct sc_reader_slot *slot;
    struct sc_reader_read *next; /* of its slot, or free */
    uint64_t at;                 /* in the frame */
    uint64_t load;               /* for which it was planned */
    uint32_t unit;               /* picks: for which it reads */
    bool is_started, is_done, is_dropped;
};

struct sc_reader_unit { /* picks that lie in one read */
    uint32_t pick_first, pick_count;
    uint32_t range, range_first; /* of the first pick: store/picks.h */
    uint32_t at[2];              /* its row, or K and V, in the frame */
    spec_status status;
};

struct sc_reader_slot {
    struct sc_reader_read *reads, **reads_end; /* in the order of submission */
    struct sc_store_reader *reader;
    struct sc_reader_slot *next; /* free list */
    uint8_t *frame;              /* NULL: none, or one was laid down for it */
    uint64_t generation;
    uint64_t read_bytes, held_bytes; /* of its reads; of them, complete and not consumed */
    uint32_t state, left;            /* operations that have not completed */
    bool is_spare;                   /* the frame is the store's spare one */
    bool has_right;                  /* to a frame of the pool */
    spec_status status;
    int32_t sys_errno;
    struct sc_store_plan_op plan;
    uint32_t unit_first, unit_count; /* picks */
};

struct sc_store_reader {
    /* Set by open, constant after. */
    struct sc_store *store;
    struct sc_reader_slot *slots; /* [SC_READER_SLOTS] uninitialised from slots_used on */
    struct sc_reader_read *reads; /* [READS] likewise */
    struct sc_reader_unit *units; /* [SC_READER_UNITS] a ring */
    uint64_t *tags;               /* of the run at the front: [SC_STORE_ROWS_MAX * tags_per_row] */
    uint8_t *rows; /* split layout: K and V put together, SC_STORE_BITE_BYTES or a row */
    uint32_t flight_max;
    bool leaves; /* frames' lines: sc_frames_leave */

    /* Guarded by lock (rank 30). */
    pthread_mutex_t lock;
    struct sc_reader_slot *free_slots;
    struct sc_reader_read *free_reads;
    uint32_t slots_used, reads_used; /* at least once */
    uint32_t read_count;             /* not free */
    uint32_t unit_next;              /* of the ring */
    struct sc_reader_slot *fifo[SC_READER_SLOTS];
    uint32_t fifo_head, fifo_count, flying;
    uint64_t generation, load;  /* load: counts begins */
    bool is_active, is_planned; /* a load is begun; all of it is planned */
    bool has_op;                /* op is planned and has no slot yet */
    bool is_picks;              /* the load is one of picks */
    bool is_armed;              /* the waiter waits, or its task will run */
    bool is_awaited;            /* the consumer sleeps, or is about to */
    uint32_t lane;
    struct sc_store_plan plan;
    struct sc_store_plan_op op;
    struct sc_store_pick_plan pick_plan;
    struct sc_store_pick_op pick_op;
    struct sc_frames_waiter waiter;
    struct sc_store_read_cost cost;

    /* The consumer's. */
    uint64_t range, range_row;    /* of the next row to verify */
    struct sc_reader_slot *front; /* ready, its tags taken: read without the lock; or NULL */
    uint64_t slot_row;            /* rows of it that were handed out; of picks: of its unit */
    uint32_t slot_unit;           /* units of it that were handed out whole */
    const uint8_t *last[2]; /* what was handed out last: read until the caller asks for more */
    uint64_t last_bytes;    /* of each */
    uint64_t bite_count;
    uint64_t rows_least; /* sc_store_reader_apart */
    const uint64_t *pick_tags;
    const uint64_t *wanted_bits; /* NULL: all picks are wanted */
    struct {                     /* what the tags of a piece's rows are made with */
        uint64_t range;          /* UINT64_MAX: none */
        uint64_t position, base[2];
    } bases;

    struct sc_store_starved starved;

    _Atomic uint32_t word; /* changes when the front may be ready, or something ended */
};

/* Bytes of a picked row that are wanted. */
static inline uint64_t sc_reader_pick_bytes(const struct sc_store_reader *reader)
{
    const struct sc_store_shape *shape = &reader->store->shape;
    return reader->pick_plan.picks.wanted == SC_STORE_WANT_ROWS ? shape->row_bytes
                                                                : shape->k_row_bytes;
}

static inline struct sc_reader_unit *sc_reader_unit_of(const struct sc_store_reader *reader,
                                                       const struct sc_reader_slot *slot,
                                                       uint32_t i)
{
    return &reader->units[(slot->unit_first + i) % SC_READER_UNITS];
}

/* The consumer's: without the lock, but for the last. */

/* Whether the front slot holds a row that is still to be handed out; of picks, slot_unit and
 * slot_row say which. */
bool sc_reader_rows_left(struct sc_store_reader *reader);
/* Takes the next bite of the front slot: verified rows, moved where the sink says if there is one.
 */
spec_status sc_reader_rows_take(struct sc_store_reader *reader, const struct sc_reader_slot *slot,
                                const struct sc_store_sink *sink, struct sc_store_rows *ret_rows);
/* Takes the next run of picked rows of the front slot. */
spec_status sc_reader_picks_take(struct sc_store_reader *reader, const struct sc_reader_slot *slot,
                                 struct sc_store_rows *ret_rows);
/* The caller is through with what it got last. */
void sc_reader_rows_leave(struct sc_store_reader *reader);
/* Lock held. What the unit has of wanted rows that were not handed out: told in covered_bits. */
uint64_t sc_reader_unit_covered(const struct sc_store_reader *reader,
                                const struct sc_reader_unit *unit, uint64_t from,
                                uint64_t *covered_bits);

#endif
