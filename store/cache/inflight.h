/* Operations in flight: the reads of one load after another, each with the memory it goes to.
 *
 *   load    begun by its owner, planned bit by bit by its client (reader.c, selector.c)
 *   slot    what is read into one place: [read][read]...      one frame, or memory of the pool
 *   list    slots of the load in the order in which they were started
 *           [landed][flying][flying][landed] ...
 *           not in the list: free, or flying for a load that was cancelled (its memory goes back
 *           when its reads have ended; the generation tells)
 *   frame   counted when the slot is started, picked when a device takes its first read, so that
 *           what stands in queues keeps no memory from being used again while it is in cache
 *
 * Completions pump: as long as slots, reads, frames and the in-flight target allow, the next slots
 * are started without the owner. A flight has a few slots of its own, with which it always goes on,
 * and beyond them takes those that it shares with others (the commons). Without a frame a flight
 * waits in the pool's queue; one that is waited for, has nothing in its list and gets no frame
 * takes the store's spare frame, so that loads whose frames nobody consumes yet cannot stop it.
 *
 * Holds: after cancel nothing of the old load touches the next; a read that nobody wants any more
 * never reaches the device.
 * Does not: know what is read, or why; allocate; retry a failed read.
 * Threads: init, wait, raise, cancel, done: the owner, one at a time; completions and the frame
 * waiter: the executor's. One lock a flight (rank 30), which its client's state is under too.
 * Tests: tests/unit/store/test_inflight.c, test_store.c, test_gather.c, test_selector.c,
 * tests/fault/test_store_faults.c */
#ifndef SC_STORE_CACHE_INFLIGHT_H
#define SC_STORE_CACHE_INFLIGHT_H

#include "store/internal.h"
#include "store/load.h"

#define SC_INFLIGHT_READS_MAX 640u /* of a flight, queued or in flight */

struct sc_inflight;
struct sc_inflight_slot;

struct sc_inflight_read {
    struct sc_io_op op;
    struct sc_inflight_slot *slot;
    struct sc_inflight_read *next; /* of its slot, or free */
    uint64_t at;                 /* in the frame */
    uint64_t load;               /* for which it was planned */
    uint32_t unit;               /* the client's: which part of the slot */
    bool is_started, is_done, is_dropped;
};

struct sc_inflight_slot { /* the first member of the client's */
    struct sc_inflight *inflight;
    struct sc_inflight_slot *prev, *next;       /* of the list; next: free, too */
    struct sc_inflight_read *reads, **read_end; /* in the order of submission */
    uint8_t *frame; /* where its reads go to; NULL: none, or one was laid down for it */
    uint8_t *run;   /* memory of the store's pool that it holds instead of a frame; or NULL */
    struct sc_host_tier_memory_slab *host; /* likewise, of the host tier */
    uint64_t generation;
    uint64_t read_bytes, held_bytes; /* of its reads; of them, landed and not consumed */
    uint32_t left;                   /* reads that have not ended */
    bool is_common;                  /* it goes back to the commons */
    bool is_completed;               /* all have, and it waits for its consumer */
    bool is_spare;                   /* the frame is the store's spare one */
    bool has_right;                  /* to a frame of the pool */
    spec_status status;              /* of the first read that failed */
    int32_t sys_errno;
};

/* Operations gathered under the lock, to go out together. */
struct sc_inflight_batch {
    uint64_t count;
    struct sc_io_op *ops[SC_INFLIGHT_READS_MAX];
};

enum sc_inflight_need { SC_INFLIGHT_NOTHING, SC_INFLIGHT_FRAME, SC_INFLIGHT_NO_FRAME };

/* What a flight asks of its planner (a reader, a selector). All with the lock held. */
struct sc_inflight_client {
    /* Plans the next slot, unless one is planned and was not filled. NOTHING: there is none, or
     * none now. NO_FRAME: it reads nothing, or to memory that `place` gives. */
    enum sc_inflight_need (*next)(struct sc_inflight *inflight);
    /* What is planned goes into the slot, by sc_inflight_read_add. */
    void (*fill)(struct sc_inflight_slot *slot, struct sc_inflight_batch *batch);
    /* NULL, or: the first read of a slot without a frame begins; sets its frame, and its run. */
    void (*place)(struct sc_inflight_slot *slot);
    /* NULL, or: a read that is wanted failed; its slot knows. */
    void (*read_failed)(const struct sc_inflight_read *read);
    /* All reads of a slot of this load have ended. It may give up the lock meanwhile. true: the
     * slot waits for its consumer, who frees it; false: it is free now. */
    bool (*completed)(struct sc_inflight_slot *slot);
    /* NULL, or: whether so little flies that more is to be started. */
    bool (*refills)(const struct sc_inflight *inflight);
    /* NULL, or: as much as may fly was started. */
    void (*pumped)(struct sc_inflight *inflight);
};

/* Slots that flights of one kind take when their own are taken: as many as the staging pool has
 * frames, so that a load is read ahead as far as frames go, and some for slots that need no frame;
 * these leave as many as there are frames, so that who gets a frame finds a slot. */
struct sc_inflight_commons {
    /* Set by init, constant after. */
    uint8_t *slots; /* [slots_max] of slot_bytes each */
    uint64_t slot_bytes;
    uint32_t slots_max, frame_count;

    pthread_mutex_t lock; /* rank 37 */
    struct sc_inflight_slot *free;
    uint32_t used;         /* at least once */
    _Atomic uint32_t left; /* changed under the lock; any thread looks, for a guess */
};

/* Memory of a flight: the caller's, and no longer needed when done returns. */
struct sc_inflight_memory {
    struct sc_inflight_commons *commons; /* or NULL */
    void *slots;                       /* [slots_max] of slot_bytes each, the client's */
    uint64_t slot_bytes;
    struct sc_inflight_read *reads; /* [reads_max] of all slots */
    uint32_t slots_max, reads_max;  /* reads_max <= SC_INFLIGHT_READS_MAX */
};

struct sc_inflight { /* the first member of the client's */
    /* Set by init, constant after. */
    struct sc_store *store;
    const struct sc_inflight_client *client;
    struct sc_inflight_memory memory; /* uninitialised from slots_used and reads_used on */
    uint32_t flying_max;

    /* Guarded by lock (rank 30). */
    pthread_mutex_t lock;
    struct sc_inflight_slot *first, *last; /* the list */
    struct sc_inflight_slot *free_slots;
    struct sc_inflight_read *free_reads;
    uint32_t slot_count;             /* in the list */
    uint32_t frame_count;            /* of them, those with a frame, or a right to one */
    uint32_t own_count;              /* of its own memory's, that are not free */
    uint32_t flying;                 /* slots with reads that have not ended, of any load */
    uint32_t slots_used, reads_used; /* at least once */
    uint32_t read_count;             /* not free */
    uint32_t slot_reads;             /* most of a slot of this load */
    uint32_t task_count;             /* the client's, posted or running: done waits for them */
    uint64_t generation, load;       /* ends of loads; begins */
    bool is_armed;                   /* the waiter waits, or its task will run */
    bool is_awaited;                 /* the owner sleeps on word, or is about to */
    bool has_paused;                 /* the load; from there on its time is the consumer's */
    uint32_t io_class;
    struct sc_staging_waiter waiter;
    struct sc_store_read_cost cost; /* of the load begun last */

    struct sc_store_starved starved;

    _Atomic uint32_t word; /* changes when the owner may go on */
};

/* Slots in the caller's memory for as many frames as the pool has, and `plain` more: count of them.
 */
uint64_t sc_inflight_commons_count(const struct sc_store *store, uint64_t plain);
/* commons is zero. count: of slots of slot_bytes each. */
void sc_inflight_commons_init(struct sc_inflight_commons *commons, const struct sc_store *store,
                              void *slots, uint64_t slot_bytes, uint64_t count);
/* After done of all flights that have it. */
void sc_inflight_commons_done(struct sc_inflight_commons *commons);
/* Slots that may be had, while nobody else takes any; lock held. */
uint64_t sc_inflight_slots_left(const struct sc_inflight *inflight);

/* flight is zero. */
void sc_inflight_init(struct sc_inflight *inflight, struct sc_store *store,
                      const struct sc_inflight_client *client,
                      const struct sc_inflight_memory *memory);
/* After cancel: waits for what flies. */
void sc_inflight_done(struct sc_inflight *inflight);

/* Lock held, by all that follow but submit, cost and raise. */

/* A load begins, whose slots have at most slot_reads reads each; pump starts it. */
void sc_inflight_begin(struct sc_inflight *inflight, enum sc_io_class io_class,
                       uint32_t slot_reads);
/* Starts what may fly; submit is the caller's. */
void sc_inflight_pump(struct sc_inflight *inflight, struct sc_inflight_batch *batch);
/* By the owner without the lock, by anybody else with it: so every read of the list was submitted,
 * or will be by the owner, which is also the thread that raises the load. */
void sc_inflight_submit(struct sc_inflight *inflight, struct sc_inflight_batch *batch);
/* From fill: a read of [where.offset, + bytes), `at` bytes into the slot's place. */
struct sc_inflight_read *sc_inflight_read_add(struct sc_inflight_slot *slot,
                                              struct sc_store_where where, uint64_t bytes,
                                              uint64_t at, struct sc_inflight_batch *batch);
/* It is of the load that runs, so it is in the list. */
static inline bool sc_inflight_is_wanted(const struct sc_inflight_slot *slot)
{
    return slot->generation == slot->inflight->generation;
}
/* A slot that has landed was consumed, or is not wanted: it leaves the list. */
void sc_inflight_slot_free(struct sc_inflight_slot *slot);
/* Nobody wants the slot any more: it leaves the list, and is free now or when its reads end. */
void sc_inflight_slot_drop(struct sc_inflight_slot *slot);
/* Waits for no frame any more. */
void sc_inflight_disarm(struct sc_inflight *inflight);
/* The load is over; what flies is left to end by itself. */
void sc_inflight_cancel(struct sc_inflight *inflight);
/* Wakes the owner. */
void sc_inflight_signal(struct sc_inflight *inflight);
/* Submits the batch and sleeps until the owner may go on; a load that starves gets the spare frame.
 * false: the deadline passed. The lock is given up meanwhile. */
bool sc_inflight_wait(struct sc_inflight *inflight, uint64_t deadline_ns,
                      struct sc_inflight_batch *batch);

/* Raises the load to demand, with those of its reads that still stand in queues. */
void sc_inflight_raise(struct sc_inflight *inflight);
void sc_inflight_cost(const struct sc_inflight *inflight, struct sc_store_read_cost *ret_cost);

#endif
