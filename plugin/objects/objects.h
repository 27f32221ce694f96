/* objects: state behind abi/spec_objects.h, values by key.
 *
 *   host -> object_entry.c (checks) -> exists.c                             no lock
 *                                   -> job.c -> get.c, put.c -> queues of transfers
 *   executor: follow (object_follow.c)     what other processes stored and removed
 *             loader (get.c)   queue of gets -> reads -> verify
 *             feeder (put.c)   queue of puts -> pages -> writes + tag -> committer
 *                              (object_commit.c)
 *             clock (job.c)    deadlines, and retries of a waiting put
 *             upkeep (object_upkeep.c)      rewrites the log
 *
 *   index     hashing/key_table.h: entries by number; struct sc_object has the same number
 *
 *   an object's life   PENDING (pages, data) -> record -> LIVE -> LEAVING (not found any more)
 *                      -> removal recorded, last reader ended -> pages and number are free
 *
 * Locks by rank: checkpoint_lock (6), the store's turn (7, with other processes), commit_lock (34),
 * lock (36), then the store's, from 40 on. `lock` is held for a few instructions per key, never
 * during I/O. commit_lock is held for an append and its publishing, so the log has the order of
 * publishing.
 *
 * Invariants: a key has one linked entry. Pages are freed only after the removal is logged and no
 * get reads them; or as soon as it is logged, if another process may have the segment, because that
 * one uses them then: a get that still reads there fails verification, and the key is absent. A
 * status is written before its completion. Threads: per member.
 * Tests: conformance/objects, tests/unit/plugin/test_objects*.c */
#ifndef SC_PLUGIN_OBJECTS_OBJECTS_H
#define SC_PLUGIN_OBJECTS_OBJECTS_H

#include "abi/spec_objects.h"
#include "base/config.h"
#include "base/counter.h"
#include "base/exec.h"
#include "hashing/key_table.h"
#include "store/object/object.h"

#define SC_OBJECT_TICK_NS     25000000ull /* unit of the last use */
#define SC_OBJECT_READS       256u        /* operations of gets in flight, maximum */
#define SC_OBJECT_WRITES      256u        /* the same for puts */
#define SC_OBJECT_OPS_AT_ONCE 8u          /* submitted by one call */
#define SC_OBJECT_EVENTS      65536u
#define SC_OBJECT_EVENT_KEYS  (8u << 20) /* bytes of the events' keys */
#define SC_OBJECT_DOMAIN_BITS 16u        /* index in a domain's handle; above: generation */
#define SC_OBJECT_PARTS_IN    2u         /* inline parts, enough for nearly all objects */
#define SC_OBJECT_TRIES       4096u      /* of an append beside other processes */

/* Statistics of the store and of each domain. Any thread, relaxed. */
struct sc_object_counts {
    _Atomic uint64_t exists_keys, exists_hits;
    _Atomic uint64_t get_keys, get_hits, get_bytes;
    _Atomic uint64_t put_keys, put_stored, put_bytes, put_present;
    _Atomic uint64_t put_no_space, put_timeouts, put_waits, put_wait_ns;
    _Atomic uint64_t evicted_objects, evicted_bytes, deleted_objects, damaged_objects;
    _Atomic uint64_t io_errors, bounce_bytes;
};

struct sc_object_transfer;

/* The part of an entry beside its key. Guarded by `lock`. Parts, copy, tag and bytes are constant
 * while it is pinned or its put runs. */
struct sc_object {
    uint64_t copy, tag, bytes;
    uint64_t rank;                             /* in the heap: tick and order of use */
    uint32_t heap_child, heap_next, heap_prev; /* numbers; heap_next also links removals */
    uint32_t pins;                             /* gets that read it */
    uint32_t round;                            /* checkpoints begun before it was recorded */
    uint32_t order;                            /* in a tick; later keys of a call are older */
    uint32_t domain;                           /* index */
    uint16_t part_count;
    bool in_heap;
    bool is_leaving, is_recorded; /* not found any more; its removal is logged, or needs none */
    bool has_pages;               /* its parts' pages are its own */
    bool is_placed;               /* and their segments must stay ours (sc_store_object_placed) */
    bool is_listed;               /* among the unrecorded, or in a record that is being appended */
    struct sc_object_transfer *put;     /* while PENDING: the put that brings its data */
    struct sc_store_object_part *parts; /* `first`, or allocated */
    struct sc_store_object_part first[SC_OBJECT_PARTS_IN];
};

/* Route of a domain's values: direct, or through staging (route.c). */
struct sc_object_route {
    uint64_t bytes, busy_ns; /* of this epoch */
    uint64_t busy_since_ns;  /* start of the current busy time */
    uint64_t since_bytes;    /* since the other route was tried */
    uint64_t trial_bytes;    /* bytes until the next trial; 0: none yet */
    uint64_t settle_bytes;   /* bytes left that do not count */
    uint64_t rates[2];       /* bytes per ms: direct, staged */
    uint32_t active, others; /* transfers in flight; those on the other route */
    bool is_staged, is_trial;
};

struct sc_object_domain {
    _Atomic uint64_t handle; /* 0: not open here */
    /* Guarded by `lock`. */
    uint64_t generation;
    uint32_t openers, log_id; /* log_id 0: no record tells of it; free, if it is empty too */
    uint32_t life;            /* another one with each identity of the slot */
    bool is_closing;          /* the last close runs; opens wait */
    bool is_stuck;            /* at its limit without evictable objects: others pass */
    uint8_t *identity;        /* constant while the slot is not free, like the digest */
    uint32_t identity_bytes;
    uint8_t digest[SC_STORE_HASH_BYTES];
    uint64_t pages_min, pages_max; /* pages_max UINT64_MAX: none */
    uint64_t pages;                /* of objects, and of puts that have some */
    uint64_t objects, bytes;       /* of LIVE objects */
    uint64_t live_pages;           /* of LIVE objects */
    uint32_t heap;                 /* number of the least recently used; 0: none */
    uint32_t job_count;            /* incomplete ones */
    struct sc_object_job *completed, *completed_last; /* submitted, not polled */
    int32_t event_fd;                                 /* -1: none */
    _Atomic uint32_t word;                            /* incremented by each completion */
    struct sc_object_route routes[2];                 /* of gets, of puts */
    struct sc_object_counts counts;
};

enum sc_object_state {
    SC_OBJECT_QUEUED,    /* in the queue of gets or of puts */
    SC_OBJECT_FOLLOWING, /* waits for another put of its key */
    SC_OBJECT_RUNNING,   /* handed to the device, or about to be */
    SC_OBJECT_FINISHED
};

/* One key of a get or a put. Guarded by `lock`; while RUNNING most members are its task's. */
struct sc_object_transfer {
    struct sc_task task; /* verifies, or computes the tag */
    /* Called once all operations are done, without a lock. */
    void (*ended)(spec_objects *objects, struct sc_object_transfer *transfer);
    struct sc_object_job *job;
    struct sc_object_transfer *next, *prev; /* in its queue, or among followers */
    struct sc_object_transfer *followers, *followers_last;
    const uint8_t *key;
    uint64_t bytes, issued; /* of the value; handed to the device */
    uint64_t tag, copy, log_bytes;
    uint64_t queued_ns; /* start of its wait for space; 0: none */
    uint32_t key_bytes, index;
    uint32_t entry;  /* 0: none yet */
    int32_t ends_as; /* not 0: it ends with this status, because its key was removed or stored */
    uint8_t state;   /* enum sc_object_state */
    bool bounces;    /* uses frames only: the device refused its memory */
    bool is_retried;
    bool is_logged; /* its append failed, but its record is whole */
    bool stages;    /* this run uses frames */
    bool is_routed; /* counted in its domain's route */
    _Atomic bool wants_bounce;
    _Atomic uint32_t pending; /* operations, and one for the issuer */
    _Atomic int32_t status;   /* the first failure */
};

struct sc_object_job {
    struct sc_object_job *next, *prev; /* in the active list, or in the domain's completed */
    spec_objects *objects;
    struct sc_object_domain *domain;
    spec_operation operation; /* 0: a host waits in the call */
    uint64_t user, deadline_ns;
    const uint64_t *addresses, *sizes;
    uint64_t piece_bytes;
    int32_t *ret_status;
    uint32_t pieces, count, left, done_count;
    int32_t given_up; /* not 0: status of keys that waited; none waits again */
    bool is_put;
    _Atomic uint32_t word; /* 1: complete */
    struct sc_object_transfer transfers[];
};

struct sc_object_op {
    struct sc_store_write write; /* its op is also used for reads */
    struct sc_object_op *next;
    spec_objects *objects; /* set by open */
    struct sc_object_transfer *transfer;
    uint8_t *frame;        /* NULL: the host's memory is the buffer */
    uint64_t first, bytes; /* of the value; the operation has whole pages */
};

struct sc_object_ops { /* guarded by `lock` */
    struct sc_object_op *all, *free;
    bool is_waited_for; /* the issuer stopped for lack of operations or frames */
};

struct sc_object_queue { /* guarded by `lock` */
    struct sc_object_transfer *head, *last;
    struct sc_object_transfer *current; /* partly issued; the issuing task's */
    struct sc_task task;
    bool is_posted, runs_again;
};

struct sc_object_event {
    uint32_t domain, life;
    uint32_t kind, reason;
    uint64_t bytes;
    uint64_t key_at; /* position among all key bytes ever written */
    uint32_t key_bytes, reserved;
};

struct sc_object_events {         /* guarded by `lock` */
    struct sc_object_event *ring; /* [SC_OBJECT_EVENTS] */
    uint8_t *keys;                /* [SC_OBJECT_EVENT_KEYS] */
    uint64_t first, next;         /* sequence numbers at open, and of the next event */
    uint64_t key_next;
    uint64_t read_to, lost; /* events below read_to were read */
};

struct spec_objects {
    /* Set by open, constant after. */
    struct sc_alloc alloc;
    struct sc_config config;
    struct sc_log log;
    struct sc_fault fault;
    struct sc_poison poison;
    struct sc_exec *exec;
    struct sc_store *store;
    struct sc_staging *frames; /* the store's staging */
    uint64_t op_bytes;         /* maximum bytes of an operation */
    uint32_t *fork_guard;
    _Atomic uint32_t fork_closed;
    uint64_t open_ns;   /* executor's clock */
    uint64_t open_wall_ns;
    uint32_t tick_base; /* after open: above those of all objects found */
    bool is_closing;
    bool is_open; /* records come from other processes from here on */
    bool shares;  /* with other processes (store.writers many). Set by open, constant after */

    struct sc_key_table table;        /* searched by any thread, changed under `lock` */
    struct sc_object **slabs;         /* [SC_KEY_SLABS_MAX] slabs of SC_KEY_SLAB */
    struct sc_object_domain *domains; /* [SPEC_DOMAINS_MAX] */

    pthread_mutex_t checkpoint_lock; /* rank 6 */
    pthread_mutex_t commit_lock;     /* rank 34 */
    pthread_mutex_t lock;            /* rank 36 */

    /* Guarded by `lock`. */
    uint32_t domain_id_next;
    uint32_t alone_count; /* erasures that run: with shares, no other process is here then */
    uint32_t unrecorded;  /* first object whose removal is not logged; 0: none */
    uint32_t round;       /* checkpoints begun; written under commit_lock, too */
    /* Approximate log bytes of LIVE objects and domains: sc_objects_log_live. */
    uint64_t live_log_bytes;
    uint64_t kept_log_bytes, kept_live_bytes; /* after a checkpoint: the log, live_log_bytes */
    struct sc_object_job *active;
    struct sc_object_job **jobs; /* [submitted_max] by operation slot; NULL: free */
    uint64_t *job_generations;   /* [submitted_max] */
    uint32_t job_hint;           /* a slot that may be free */
    uint32_t job_count;          /* active ones, including those of waiting hosts */
    _Atomic uint32_t job_word;   /* incremented when a job completes or a domain closes */
    struct sc_object_queue gets, puts;
    struct sc_object_ops reads, writes;
    struct sc_object_transfer *commits, *commits_last; /* written, without a record */
    struct sc_object_commit *batch;                    /* under commit_lock (object_commit.c) */
    struct sc_task committer, clock, upkeep, follow;
    bool commits_posted, upkeep_posted, clock_armed, follow_armed;
    uint64_t checkpoint_ns; /* no automatic checkpoint before: one failed */
    bool put_waits;         /* the head of the queue of puts found no space, */
    uint64_t put_wake_ns;   /* and is retried then */
    uint64_t stuck_ns;      /* next reset of is_stuck; 0: no domain is stuck */
    uint64_t clock_ns;      /* due time of the clock */
    uint64_t waiting_puts;
    uint64_t unindexed_puts; /* of them, those without an entry: the index is full */
    uint64_t inflight_bytes;
    struct sc_object_events events;
    _Atomic uint32_t tasks; /* posted or running */
    struct sc_object_counts counts;
};

/* ---- Counting ------------------------------------------------------------------------------- */

#define SC_OBJECT_COUNT(objects, domain, name, n)                                                  \
    do {                                                                                           \
        sc_count(&(objects)->counts.name, (n));                                                    \
        sc_count(&(domain)->counts.name, (n));                                                     \
    } while (0)

static inline uint64_t sc_object_pages(uint64_t bytes)
{
    return (bytes + SC_IO_PAGE_BYTES - 1) / SC_IO_PAGE_BYTES;
}

static inline uint32_t sc_object_tick(const spec_objects *objects)
{
    return objects->tick_base +
           (uint32_t)((sc_exec_now_ns(objects->exec) - objects->open_ns) / SC_OBJECT_TICK_NS);
}

static inline struct sc_object *sc_object_of(const spec_objects *objects, uint32_t id)
{
    return &objects->slabs[id / SC_KEY_SLAB][id % SC_KEY_SLAB];
}

/* ---- Tasks and queues (object_queue.c) ------------------------------------------------------ */

/* Post a task, and end its step as the last action. */
void sc_objects_post(spec_objects *objects, struct sc_task *task, enum sc_io_class io_class);
void sc_objects_task_end(spec_objects *objects);
/* The others: `lock` held. */
void sc_objects_queue_add(struct sc_object_queue *queue, struct sc_object_transfer *transfer,
                          bool is_first);
void sc_objects_queue_remove(struct sc_object_queue *queue, struct sc_object_transfer *transfer);
/* Makes the queue's task examine it (again). */
void sc_objects_queue_wake(spec_objects *objects, struct sc_object_queue *queue,
                           enum sc_io_class io_class);
/* Retries a waiting put: pages, index or log may have space. */
void sc_objects_room_came(spec_objects *objects);

/* ---- Events and lists (events.c) ------------------------------------------------------------ */

bool sc_objects_events_open(spec_objects *objects);
/* `lock` held. id: the object's entry; 0: the whole domain. */
void sc_objects_event_add(spec_objects *objects, uint32_t domain, uint32_t id, uint32_t kind,
                          uint32_t reason);
void sc_objects_events_read(spec_objects *objects, struct spec_read_events *events);
/* domain NULL: the domains. */
void sc_objects_list(spec_objects *objects, const struct sc_object_domain *domain,
                     struct spec_list *list);
void sc_objects_stats(spec_objects *objects, struct sc_object_domain *domain,
                      struct spec_object_stats *ret_stats);

/* ---- Entries and order of use (catalog.c). `lock` held -------------------------------------- */

/* Allocates the entry's struct sc_object. False: no memory (lacks_memory), or index_bytes_max. */
bool sc_catalog_reserve(spec_objects *objects, uint32_t id);
/* Copies parts into an object without any. False: no memory. */
bool sc_catalog_parts_set(spec_objects *objects, struct sc_object *object,
                          const struct sc_store_object_part *parts, uint32_t part_count);
void sc_catalog_parts_free(spec_objects *objects, struct sc_object *object);
/* Gives the pages back, whoever reads them. */
void sc_catalog_pages_give(spec_objects *objects, uint32_t id);
/* Changes PENDING to LIVE, counts it, and adds it to the order of use. */
void sc_catalog_publish(spec_objects *objects, uint32_t id, uint32_t used);
/* Removes a LEAVING entry from the search. was_live: counts it; writes an event by reason
 * (SPEC_REMOVED_*); queues its removal record. CLEARED: the caller logs, counts and reports. */
#define SC_CATALOG_CLEARED UINT32_MAX
void sc_catalog_leave(spec_objects *objects, uint32_t id, uint32_t reason, bool was_live);
/* A record removed it: another process's, or a clear. */
void sc_catalog_removed(spec_objects *objects, uint32_t id);
/* Queues an object that has left for the next record of removals. */
void sc_catalog_removal_add(spec_objects *objects, uint32_t id);
/* Frees entry, pages and memory if nothing needs them. */
void sc_catalog_settle(spec_objects *objects, uint32_t id);
void sc_catalog_pin(spec_objects *objects, uint32_t id);
void sc_catalog_unpin(spec_objects *objects, uint32_t id);
/* Evicts and returns the least recently used object for a put of the domain; 0: none. Domains above
 * their floor give first, then the domain itself; is_limited: only the domain itself. */
uint32_t sc_catalog_evict_one(spec_objects *objects, const struct sc_object_domain *domain,
                              bool is_limited);
/* Returns when the first held object may be evicted; UINT64_MAX: none is held. */
uint64_t sc_catalog_evict_ns(const spec_objects *objects);

/* ---- Completion (completion.c). `lock` held, but for event_fd_set --------------------------- */

/* Writes the status of a key; the last one completes the job. */
void sc_objects_finish(spec_objects *objects, struct sc_object_transfer *transfer, int32_t status);
/* Sets the clock to this time or earlier. */
void sc_objects_clock_set(spec_objects *objects, uint64_t due_ns);
void sc_objects_event_fd_set(spec_objects *objects, struct sc_object_domain *domain, int32_t fd);

/* ---- Checkpoints (object_upkeep.c) ---------------------------------------------------------- */

void sc_objects_upkeep_open(spec_objects *objects);
/* Rewrites the log. No lock held; blocks. */
spec_status sc_objects_checkpoint(spec_objects *objects, bool erases, struct spec_error *reterr);
/* `lock` held. Estimates what the next checkpoint would leave, by the last one's result. */
uint64_t sc_objects_log_live(const spec_objects *objects);
/* `lock` held. Posts the upkeep task if the log should be rewritten. */
void sc_objects_upkeep_wake(spec_objects *objects);

/* ---- Other processes (object_follow.c) ------------------------------------------------------ */

/* Set the store's callbacks; begin and end the task that follows. */
void sc_objects_follow_params(spec_objects *objects, struct sc_store_objects_params *ret_params);
void sc_objects_follow_begin(spec_objects *objects);
void sc_objects_follow_end(spec_objects *objects);
/* Take the store alone for an erasure, and give it back. Errors: BUSY, other processes are here. */
spec_status sc_objects_alone_begin(spec_objects *objects, struct spec_error *reterr);
void sc_objects_alone_end(spec_objects *objects);

/* ---- Removal from the log (removal.c, removal_append.c). No lock held ------------------------ */

/* Returns true if some removals are not logged. */
bool sc_objects_has_removals(spec_objects *objects);
/* Appends unlogged removals, and frees what they held. */
spec_status sc_objects_record_removals(spec_objects *objects, struct spec_error *reterr);
/* The same, but does not rewrite a log that cannot be appended. */
spec_status sc_objects_append_removals(spec_objects *objects, struct spec_error *reterr);
/* The same, with the turn and commit_lock held. */
spec_status sc_objects_append_removals_first(spec_objects *objects, struct spec_error *reterr);
/* Evicts objects of at least `pages` pages, or only appends removals if some are not logged.
 * Returns about how many objects have freed their pages. */
uint64_t sc_objects_evict(spec_objects *objects, const struct sc_object_domain *domain,
                          bool is_limited, uint64_t pages);

/* ---- Routes (route.c). `lock` held ---------------------------------------------------------- */

bool sc_objects_route_begin(const spec_objects *objects, struct sc_object_route *route,
                            uint64_t now_ns);
void sc_objects_route_end(const spec_objects *objects, struct sc_object_route *route,
                          bool was_staged, uint64_t bytes, uint64_t now_ns);

/* ---- Operations of the device (transfer.c) -------------------------------------------------- */

bool sc_objects_ops_open(spec_objects *objects, struct sc_object_ops *ops, uint32_t count);
/* Hands the rest of a transfer to the device. Returns false for lack of operations or frames; then
 * the queue's task is posted when some are free. No lock held. */
bool sc_objects_issue(spec_objects *objects, struct sc_object_transfer *transfer,
                      struct sc_object_ops *ops);
/* `lock` held. Bracket a run: choose its route, and measure it. */
void sc_objects_run_begin(spec_objects *objects, struct sc_object_transfer *transfer,
                          uint32_t pending);
void sc_objects_run_end(spec_objects *objects, struct sc_object_transfer *transfer);
/* Ends one operation, or the issuer's part. The last calls transfer->ended. No lock held. */
void sc_objects_unref(spec_objects *objects, struct sc_object_transfer *transfer);
/* Return the bytes of a transfer's pieces, and the tag of the value in them. */
uint64_t sc_objects_pieces_bytes(const struct sc_object_transfer *transfer);
uint64_t sc_objects_tag(const struct sc_object_transfer *transfer, uint64_t copy);

/* ---- Gets and puts (get.c, put.c, object_commit.c) ------------------------------------------ */

void sc_objects_gets_open(spec_objects *objects);
void sc_objects_puts_open(spec_objects *objects);
bool sc_objects_commits_open(spec_objects *objects);
/* The committer's turn is held. Returns true, and the entry, if it appended a record of this
 * copy. */
bool sc_objects_commit_found(spec_objects *objects, uint64_t copy, uint32_t *ret_id);
/* The others: `lock` held. begin looks the keys up, and queues reads or writes. */
void sc_objects_get_begin(spec_objects *objects, struct sc_object_job *job);
void sc_objects_put_begin(spec_objects *objects, struct sc_object_job *job);
/* Ends a QUEUED or FOLLOWING put with this status. */
void sc_objects_put_give_up(spec_objects *objects, struct sc_object_transfer *transfer,
                            int32_t status);
/* Fails a put: frees its place, or its first follower takes over. */
void sc_objects_put_failed(spec_objects *objects, struct sc_object_transfer *transfer,
                           int32_t status);
/* Ends unindexed puts of a removed key, DROPPED. key NULL: those of all keys of the domain. */
void sc_objects_put_unindexed_removed(spec_objects *objects, uint32_t space, const uint8_t *key,
                                      uint32_t key_bytes);
/* Ends a key's put and its followers: DROPPED, the key was removed; STORED, by another process. */
void sc_objects_put_end(spec_objects *objects, uint32_t id, int32_t status);

/* ---- Calls (job.c, remove.c, exists.c, domain.c, domain_open.c) ----------------------------- */

struct sc_object_call {
    struct sc_object_domain *domain;
    const struct spec_keys *keys;
    const struct spec_pieces *pieces;
    const struct spec_transfer_params *params;
    bool is_put;
    spec_operation *ret_operation; /* of a submitted one */
};
void sc_objects_jobs_open(spec_objects *objects);
/* Makes a job and begins it. Submitted: copies all arrays, and writes the operation before anything
 * can complete. ret_job: of a waiting call. */
spec_status sc_objects_job_make(spec_objects *objects, const struct sc_object_call *call,
                                bool is_submitted, struct sc_object_job **ret_job,
                                struct spec_error *reterr);
/* Waits for a job without an operation, and frees it. */
void sc_objects_job_wait(spec_objects *objects, struct sc_object_job *job);
spec_status sc_objects_poll(spec_objects *objects, struct sc_object_domain *domain,
                            struct spec_completion *ret_completions, uint64_t capacity,
                            uint64_t timeout_ns, uint64_t *ret_count);
spec_status sc_objects_cancel(spec_objects *objects, spec_operation operation,
                              struct spec_error *reterr);
/* Cancels a domain's jobs (NULL: all), waits for them, and drops completions. */
void sc_objects_jobs_end(spec_objects *objects, struct sc_object_domain *domain);

spec_status sc_objects_remove(spec_objects *objects, struct sc_object_domain *domain,
                              const struct spec_keys *keys, uint32_t flags, int8_t *ret_status,
                              struct spec_error *reterr);
spec_status sc_objects_clear(spec_objects *objects, struct sc_object_domain *domain, uint32_t flags,
                             struct spec_error *reterr);

void sc_objects_exists(spec_objects *objects, struct sc_object_domain *domain,
                       const struct spec_keys *keys, const struct spec_exists_params *params,
                       uint64_t *ret_leading);
void sc_objects_touch(spec_objects *objects, const struct sc_object_domain *domain,
                      const struct spec_keys *keys);

/* Returns the handle's domain; NULL: not open. Any thread, no lock. */
struct sc_object_domain *sc_objects_domain(spec_objects *objects, spec_domain handle);
spec_status sc_objects_domain_open(spec_objects *objects, const struct spec_domain_params *params,
                                   spec_domain *ret_domain, struct spec_error *reterr);
spec_status sc_objects_domain_close(spec_objects *objects, struct sc_object_domain *domain);
/* Turn and checkpoint_lock held. Returns the identity's slot; makes and logs it if there is none.
 * Errors: BUSY (too many domains). */
spec_status sc_objects_domain_make(spec_objects *objects, const struct spec_domain_params *params,
                                   struct sc_object_domain **ret_domain, struct spec_error *reterr);
/* Turn held. Logs a domain that is in use here, if another process has forgotten it since; returns
 * its id. PENDING: another process appended first. */
spec_status sc_objects_domain_tell(spec_objects *objects, struct sc_object_domain *domain,
                                   uint32_t *ret_log_id, struct spec_error *reterr);
/* Turn held. Logs that a domain is forgotten, if it is not used here: whoever uses it logs it
 * again. Without other processes the next log leaves it out instead. PENDING: as tell. */
spec_status sc_objects_domain_forget_logged(spec_objects *objects, struct sc_object_domain *domain,
                                            struct spec_error *reterr);
/* Turn held. The same for all domains, as far as it succeeds. */
void sc_objects_domains_forget(spec_objects *objects);
/* `lock` held, for the four. Returns true if it is not open and has nothing. */
bool sc_objects_domain_is_empty(const struct sc_object_domain *domain);
/* The same, and no other process can have it open. */
bool sc_objects_domain_may_go(const spec_objects *objects, const struct sc_object_domain *domain);
/* No record tells of it from here on; its slot is free if it is empty. */
void sc_objects_domain_forget(spec_objects *objects, struct sc_object_domain *domain);
/* Returns the domain with this id in the log, or NULL. Also during open. */
struct sc_object_domain *sc_objects_domain_by_id(spec_objects *objects, uint32_t log_id);
/* Takes a record of a domain. */
spec_status sc_objects_domain_found(spec_objects *objects, uint32_t log_id, const uint8_t *identity,
                                    uint32_t bytes, struct spec_error *reterr);

/* ---- Open and close (object_open.c) --------------------------------------------------------- */

/* custom: NULL, or the tests' back end; then everything runs in the executor's loop. */
spec_status sc_objects_open_on(const struct spec_objects_params *params,
                               const struct sc_io_custom *custom, spec_objects **ret_objects,
                               struct spec_error *reterr);
void sc_objects_close(spec_objects *objects);

#endif
