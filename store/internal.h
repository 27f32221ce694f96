/* internal: the store's state, composed of parts declared in their modules' headers. Only store/
 * includes it. Layers: docs/internals/architecture.md.
 *
 * Locks, by rank: the turn (7, log/turn.h), in-flight operations (30), reserve frame (35), space
 * (40), log (50), write queue (53), inline quantisation (54), written frames (55), write budget
 * (58), erasures (59), staging frames (60), selector pool (61), back end (62 and above). Space is
 * never taken while log is held: a drop frees its pages after it released the log lock.
 * Tests: tests/unit/store/, tests/fault/ */
#ifndef SC_STORE_INTERNAL_H
#define SC_STORE_INTERNAL_H

#include "store/cache/reserve_frame.h"
#include "store/cache/selector_pool.h"
#include "store/cache/staging_pool.h"
#include "store/log/erasures.h"
#include "store/log/journal.h"
#include "store/log/log_room.h"
#include "store/log/notify_file.h"
#include "store/log/seal.h"
#include "store/log/spaces.h"
#include "store/log/table.h"
#include "store/log/turn.h"
#include "store/log/watch.h"
#include "store/log/where.h"
#include "store/log/write_budget.h"
#include "store/replay/averages.h"
#include "store/replay/follow.h"
#include "store/space/quarantine.h"
#include "store/space/reserve.h"
#include "store/space/segment.h"

#include "store/write/write_queue.h"

#include <pthread.h>

#define SC_STORE_EPOCHS_DIR    "epochs"      /* a reader may create it before the store exists */
#define SC_STORE_SEGMENT_MIN   (1ull << 20)  /* smallest segment created when space runs out */
#define SC_STORE_FIXED_BYTES   (48ull << 10) /* identity, locks, directories, notification */
#define SC_STORE_DEFAULT_BYTES (20ull << 30) /* disk_bytes when the configuration says 0 */
#define SC_STORE_RETRY_NS      5000000000ull /* after ENOSPC or EIO: no new extents for this long */

struct sc_store_limits { /* constant after open */
    uint64_t rows_max, pieces_max, op_bytes;
    uint64_t pass_extents_max; /* extents per pass if free space is fragmented */
};

/* Extents being written, and their writes. Guarded by the space lock. */
struct sc_store_writing {
    struct sc_store_extent *extents, *extents_free;
    uint64_t extent_free_count;
    struct sc_store_write *writes, *writes_free;
    uint64_t extent_max, write_max;    /* constant after open */
    _Atomic uint32_t word, waiters;    /* word changes when a frame is freed; waiters wait on it */
    struct sc_store_write_queue queue; /* has its own lock */
};

/* Guarded by lock (rank 50), except atomics. */
struct sc_store_log {
    pthread_mutex_t lock;
    struct sc_store_journal journal;
    struct sc_store_spaces spaces;
    _Atomic uint32_t space_id; /* this connector's namespace record; 0: not recorded yet */
    _Atomic uint64_t epoch;    /* the namespace's; a peer's: the family's */
    bool is_broken;            /* a failed append could not be undone */
    bool is_beaten;            /* another process appended: this one appends nothing more */
    struct sc_store_turn turn; /* with its own lock */
    struct sc_store_seal seal; /* guarded by the turn */
    bool has_late;             /* an extent's record follows records of larger ids */
    bool is_copied;            /* a checkpoint runs: no record may follow larger ids */
    uint64_t copies;           /* checkpoints begun */
    struct sc_store_averages averages;
    bool averages_are_lost; /* places of averages are not known: another process wrote the log */
    uint32_t unwritten;     /* DROPPED pieces without a record, linked by their entries */
};

/* Counters. Any thread, relaxed. */
struct sc_store_counts {
    _Atomic uint64_t log_bytes, piece_count, extent_count;
    _Atomic uint64_t held_count; /* pieces that hold pages: live, or dropped and not freed */
    _Atomic uint64_t read_bytes, read_ops, write_bytes, write_ops, verify_ns;
    _Atomic uint64_t stored_row_bytes; /* passes' rows alone */
    _Atomic uint64_t awaited_ns;       /* ns that requests waited for demand loads */
    _Atomic uint64_t corrupt_rows, corrupt_records, io_errors, no_space, stage_full;
    _Atomic uint64_t evicted_pieces, checkpoints, built_pieces, built_bytes;
    _Atomic uint64_t bad_blocks, quantised_bytes;
    _Atomic uint64_t permute_queue;        /* permuted copies ever found or made */
    _Atomic uint64_t permutations_waiting; /* made, without a record so far */
    _Atomic uint64_t permuted_pieces;      /* made since open */
    _Atomic uint64_t permuted_again;       /* of these, permuted before */
    _Atomic uint32_t loads;                /* begun and not complete */
};

struct sc_store {
    /* Set by open, constant after. */
    struct sc_store_params params;
    char *descriptor; /* copy of params.space.descriptor */
    struct sc_io *io;
    struct sc_staging *frames;
    struct sc_store_shape shape;    /* this connector's namespace */
    struct sc_store_replay *replay; /* a writer's during open, a follower's until close */
    struct sc_store_object_replay *objects; /* of objects by key, until close */
    char *dir;                      /* .../rank-RRRR-of-NNNN */
    struct sc_io_file *lock_file;
    struct sc_io_file *members; /* with this process's place (log/members.h); NULL: it has none */
    uint32_t member_place;
    struct sc_store_hints *_Atomic hints; /* shared with other members (log/hints.h); NULL: none */
    uint64_t hints_bytes;                 /* constant once they are set */
    uint8_t store_id[16];
    struct sc_store_limits limits;

    /* Places on the disk: guarded by disk.lock. */
    struct sc_store_disk disk;
    struct sc_store_log_share share;
    struct sc_store_quarantine quarantine;
    struct sc_store_reserve demand;
    struct sc_store_writing writing;
    _Atomic uint32_t busy;      /* posted tasks and writes in flight; close waits for 0 */
    _Atomic uint64_t copy_next; /* next copy number (copy_number.c) */

    /* State of the log: guarded by log.lock; table: lookups from any thread. */
    struct sc_store_log log;
    struct sc_store_table table;
    struct sc_store_follow follow;
    struct sc_store_notifybox notify;
    struct sc_store_write_budget day_budget; /* any thread */
    struct sc_store_watch epochs_watch;      /* the tick's */
    struct sc_store_erasures erasures;
    struct sc_store_eraser *eraser; /* a writer's running erasure (store/erase/eraser.c) */

    /* Memory for loads: any thread. */
    struct sc_store_reserve_frame spare;
    struct sc_host_tier *host;              /* NULL: host_bytes is 0 */
    struct sc_store_match_fetcher *fetcher; /* with host */
    struct sc_store_pool pool;              /* selectors' memory: params.selector_bytes_max */

    /* Background work. NULL: not a writer. */
    struct sc_store_build *build;
    struct sc_store_compactor *compactor;
    struct sc_store_inline_quant *live; /* also NULL if rows are not quantised while stored */
    struct sc_store_cache *cache;       /* set with live, its only user */

    /* Hooks set by open. Called without a lock, when inline quantisation missed an extent, */
    void (*quant_missed)(struct sc_store *store, uint64_t extent_id); /* by build_sections.c */
    const struct sc_store_turn_calls *turn_calls;                     /* NULL: no member */
    /* when the record of an extent of our own is read, behind which our append was torn: its pages
     * are the record's; and, space lock held, when the map was cleared (write/extent.c), */
    bool (*extent_hand)(struct sc_store *store, uint64_t copy);
    void (*extents_retake)(struct sc_store *store);
    /* and with the log lock held, when a piece becomes void (cache/host_tier_slab.c). Optional. */
    void (*piece_gone)(const struct sc_store *store, const struct sc_store_piece_entry *piece);

    struct sc_store_counts counts;

    _Atomic bool can_store, keeps_space; /* see sc_store_can_store, sc_store_keeps_space */
};

/* Returns the start of this rank's log. */
static inline struct sc_store_log_end sc_store_log_start(const struct sc_store *store)
{
    struct sc_store_log_end end;
    sc_store_log_begin(&end, store->store_id, store->params.rank, store->params.rank_count);
    return end;
}

static inline uint64_t sc_store_up(uint64_t value, uint64_t multiple)
{
    return (value + multiple - 1) / multiple * multiple;
}

static inline uint64_t sc_store_down(uint64_t value, uint64_t multiple)
{
    return value / multiple * multiple;
}

static inline void sc_store_count(_Atomic uint64_t *counter, uint64_t n)
{
    atomic_fetch_add_explicit(counter, n, memory_order_relaxed);
}

static inline uint64_t sc_store_counted(const _Atomic uint64_t *counter)
{
    return atomic_load_explicit(counter, memory_order_relaxed);
}

/* ---- What the role means, each asked by its meaning. Any thread. ----------------------------- */

/* Writes rows and appends records: a writer, or an heir that took over. True for good, but for a
 * member (sc_store_seal_over). */
static inline bool sc_store_can_store(const struct sc_store *store)
{
    return atomic_load_explicit(&store->can_store, memory_order_acquire);
}

/* Has a map of all extents' pages, those of other namespaces too, the quarantine of dropped pieces,
 * and the log's reserved room. All follow the records. A writer or an heir; false for good after
 * sc_store_heir_end. */
static inline bool sc_store_keeps_space(const struct sc_store *store)
{
    return atomic_load_explicit(&store->keeps_space, memory_order_acquire);
}

/* Stores, or will, beside others that do (params.shares). Constant. */
static inline bool sc_store_is_member(const struct sc_store *store)
{
    return store->params.shares && store->params.role == SC_STORE_HEIR;
}

/* Appends beside others. Turn held. */
static inline bool sc_store_appends_shared(const struct sc_store *store)
{
    return sc_store_is_member(store) && sc_store_can_store(store) && !store->log.seal.is_over;
}

/* Follows a log to which other processes append. */
static inline bool sc_store_follows(const struct sc_store *store)
{
    return !sc_store_can_store(store) || sc_store_is_member(store);
}

/* Loads rows of dropped pieces until leases on them end. */
static inline bool sc_store_reads_leased(const struct sc_store *store)
{
    return store->params.role == SC_STORE_READER || store->params.role == SC_STORE_HEIR;
}

/* Any thread. */
static inline bool sc_store_piece_holds(const struct sc_store *store,
                                        const struct sc_store_piece *piece)
{
    return store->params.piece_holds == NULL ||
           store->params.piece_holds(piece, store->params.user);
}

#endif
