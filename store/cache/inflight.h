/* inflight: keeps the reads of one load after another in flight, each with its memory.
 *
 *   load    begun by its owner, planned slot by slot by its client (reader.c, selector.c)
 *   slot    what is read into one place: [read][read]...      one frame, or memory of the pool
 *   list    the load's slots, in start order: [completed][in flight][in flight][completed] ...
 *           Not in it: free slots, and slots of a cancelled load (the generation tells) whose reads
 *           have not ended; their memory is returned then.
 *   frame   counted when the slot is started, taken when the device accepts its first read. Queued
 *           reads hold no memory, so a few frames are reused while they are in the CPU's cache.
 *
 * Completions start the next slots without the owner, as far as slots, reads, frames and the
 * in-flight target allow. Without a frame a load waits in the pool's queue. If it is waited for and
 * its list is empty, it takes the reserve frame, so frames that others have not consumed
 * cannot block it.
 *
 * Invariants: after cancel the old load touches nothing of the next. An unwanted read that has not
 * started never reaches the device. A failed read is not retried. Nothing is allocated.
 * Threads: init, wait, raise, cancel, done: the owner, one at a time; completions and the frame
 * waiter: the executor's. One lock each (rank 30), which guards the client's state too.
 * Tests: tests/unit/store/test_inflight.c, test_store.c, test_gather.c, test_selector.c,
 * tests/fault/test_store_faults.c */
#ifndef SC_STORE_CACHE_INFLIGHT_H
#define SC_STORE_CACHE_INFLIGHT_H

#include "store/internal.h"
#include "store/load.h"

#define SC_INFLIGHT_READS_MAX 640u /* reads of one inflight, queued or in flight */

struct sc_inflight;
struct sc_inflight_slot;

struct sc_inflight_read {
    struct sc_io_op op;
    struct sc_inflight_slot *slot;
    struct sc_inflight_read *next;
    uint64_t at;                 /* bytes from the frame's start */
    uint64_t load;               /* number of the load that planned it */
    uint32_t unit;               /* set by the client: part of the slot */
    bool is_started, is_done, is_dropped;
};

struct sc_inflight_slot { /* first member of the client's slot */
    struct sc_inflight *inflight;
    struct sc_inflight_slot *prev, *next;       /* the list; next: also the free list */
    struct sc_inflight_read *reads, **read_end; /* in the order of submission */
    uint8_t *frame; /* destination of its reads; NULL: none yet */
    uint8_t *run;   /* memory of the store's pool, held instead of a frame; or NULL */
    struct sc_host_tier_memory_slab *host; /* held instead of a frame; or NULL */
    uint64_t generation;
    uint64_t read_bytes, held_bytes; /* bytes of its reads; bytes completed and not consumed */
    uint32_t left;
    bool is_common;
    bool is_completed;               /* all reads have ended; it waits for its consumer */
    bool is_spare;                   /* it has the store's reserve frame */
    bool has_right;                  /* it may take a frame of the pool */
    spec_status status;
    int32_t sys_errno;
};

/* Operations collected under the lock, to be submitted together. */
struct sc_inflight_batch {
    uint64_t count;
    struct sc_io_op *ops[SC_INFLIGHT_READS_MAX];
};

enum sc_inflight_need { SC_INFLIGHT_NOTHING, SC_INFLIGHT_FRAME, SC_INFLIGHT_NO_FRAME };

/* Functions of the planner (a reader, a selector). Called with the lock held. */
struct sc_inflight_client {
    /* Plans the next slot, unless the planned one was not filled yet. NOTHING: none, or none now.
     * NO_FRAME: it reads nothing, or to memory that `place` provides. */
    enum sc_inflight_need (*next)(struct sc_inflight *inflight);
    /* Adds the planned reads to the slot by sc_inflight_read_add. */
    void (*fill)(struct sc_inflight_slot *slot, struct sc_inflight_batch *batch);
    /* Optional. Sets frame and run of a slot without a frame, before its first read. */
    void (*place)(struct sc_inflight_slot *slot);
    /* Optional. A wanted read has failed; the slot has its status. */
    void (*read_failed)(const struct sc_inflight_read *read);
    /* All reads of a wanted slot have ended. May release the lock meanwhile. Returns true if the
     * slot waits for its consumer, who frees it; false frees it now. */
    bool (*completed)(struct sc_inflight_slot *slot);
    /* Optional. Returns true if so little is in flight that more is to be started. */
    bool (*refills)(const struct sc_inflight *inflight);
    /* Optional. Called when all that is possible was started. */
    void (*pumped)(struct sc_inflight *inflight);
};

/* Slots shared by the inflights of one kind, used when their own are taken. There is one per frame
 * of the staging pool, so that frames alone limit reading ahead, and some for slots without a
 * frame. Slots without a frame leave one per frame free: a frame's owner always finds one. */
struct sc_inflight_commons {
    /* Set by init, constant after. */
    uint8_t *slots; /* [slots_max] of slot_bytes each */
    uint64_t slot_bytes;
    uint32_t slots_max, frame_count;

    pthread_mutex_t lock; /* rank 37 */
    struct sc_inflight_slot *free;
    uint32_t used;         /* slots used at least once */
    _Atomic uint32_t left; /* changed under the lock; read by any thread as an estimate */
};

/* Memory of an inflight, owned by the caller, in use until done returns. */
struct sc_inflight_memory {
    struct sc_inflight_commons *commons;
    void *slots;                       /* [slots_max] of slot_bytes each: the client's slots */
    uint64_t slot_bytes;
    struct sc_inflight_read *reads; /* [reads_max], shared by all slots */
    uint32_t slots_max, reads_max;  /* reads_max <= SC_INFLIGHT_READS_MAX */
};

struct sc_inflight { /* first member of the client's structure */
    /* Set by init, constant after. */
    struct sc_store *store;
    const struct sc_inflight_client *client;
    struct sc_inflight_memory memory; /* uninitialised from slots_used and reads_used on */
    uint32_t flying_max;

    /* Guarded by lock (rank 30). */
    pthread_mutex_t lock;
    struct sc_inflight_slot *first, *last;
    struct sc_inflight_slot *free_slots;
    struct sc_inflight_read *free_reads;
    uint32_t slot_count;             /* slots in the list */
    uint32_t frame_count;            /* slots in the list with a frame, or the right to one */
    uint32_t own_count;              /* own slots in use */
    uint32_t flying;                 /* slots with reads that have not ended, of any load */
    uint32_t slots_used, reads_used; /* entries used at least once */
    uint32_t read_count;             /* reads in use */
    uint32_t slot_reads;             /* most reads of a slot of this load */
    uint32_t task_count;             /* client's tasks, posted or running; done waits for them */
    uint64_t generation, load;       /* loads ended; loads begun */
    bool is_armed;                   /* the waiter is queued, or its task will run */
    bool is_awaited;                 /* the owner sleeps on word, or is about to */
    bool has_paused;                 /* the load has paused; its time is no longer the device's */
    uint32_t io_class;
    struct sc_staging_waiter waiter;
    struct sc_store_read_cost cost; /* current load's */

    struct sc_store_starved starved;

    _Atomic uint32_t word; /* changes when the owner may continue */
};

/* Returns the number of shared slots to allocate: one per frame, and `plain` more. */
uint64_t sc_inflight_commons_count(const struct sc_store *store, uint64_t plain);
/* *commons is zero. `slots` has `count` slots of slot_bytes each. */
void sc_inflight_commons_init(struct sc_inflight_commons *commons, const struct sc_store *store,
                              void *slots, uint64_t slot_bytes, uint64_t count);
/* Call it after `done` of all inflights that use it. */
void sc_inflight_commons_done(struct sc_inflight_commons *commons);
/* Returns the available slots; an estimate, as others take shared ones. Lock held. */
uint64_t sc_inflight_slots_left(const struct sc_inflight *inflight);

/* *inflight is zero. */
void sc_inflight_init(struct sc_inflight *inflight, struct sc_store *store,
                      const struct sc_inflight_client *client,
                      const struct sc_inflight_memory *memory);
/* Call it after cancel. Blocks until nothing is in flight. */
void sc_inflight_done(struct sc_inflight *inflight);

/* The functions below need the lock, but for submit, raise and cost. */

/* Begins a load whose slots have at most slot_reads reads each; pump starts it. */
void sc_inflight_begin(struct sc_inflight *inflight, enum sc_io_class io_class,
                       uint32_t slot_reads);
/* Starts as many slots as possible; the caller submits the batch. */
void sc_inflight_pump(struct sc_inflight *inflight, struct sc_inflight_batch *batch);
/* Submits the batch. The owner, which also raises the load, calls it without the lock, all others
 * with it. So reads in the list are submitted, or will be by the owner. */
void sc_inflight_submit(struct sc_inflight *inflight, struct sc_inflight_batch *batch);
/* Adds a read of [where.offset, + bytes) to `at` bytes into the slot's memory. Called by fill. */
struct sc_inflight_read *sc_inflight_read_add(struct sc_inflight_slot *slot,
                                              struct sc_store_where where, uint64_t bytes,
                                              uint64_t at, struct sc_inflight_batch *batch);
/* Returns true if the slot is of the current load, and so in the list. */
static inline bool sc_inflight_is_wanted(const struct sc_inflight_slot *slot)
{
    return slot->generation == slot->inflight->generation;
}
/* Frees a completed slot that was consumed or is unwanted; removes it from the list. */
void sc_inflight_slot_free(struct sc_inflight_slot *slot);
/* Removes an unwanted slot from the list; it is freed when its reads end. */
void sc_inflight_slot_drop(struct sc_inflight_slot *slot);
void sc_inflight_disarm(struct sc_inflight *inflight);
/* Ends the load. Reads in flight complete by themselves. */
void sc_inflight_cancel(struct sc_inflight *inflight);
void sc_inflight_signal(struct sc_inflight *inflight);
/* Submits the batch and sleeps until the owner may continue; a starved load gets the reserve frame.
 * Releases the lock meanwhile. Returns false if the deadline passed. */
bool sc_inflight_wait(struct sc_inflight *inflight, uint64_t deadline_ns,
                      struct sc_inflight_batch *batch);

/* Raises the load, and those of its reads that are queued, to demand. */
void sc_inflight_raise(struct sc_inflight *inflight);
void sc_inflight_cost(const struct sc_inflight *inflight, struct sc_store_read_cost *ret_cost);

#endif
