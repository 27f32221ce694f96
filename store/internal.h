/* The store's state, put together from its parts: each part is declared in the header of the room
 * that works on it. Of the product only store/ includes this. Which room is on which floor:
 * docs/internals/architecture.md.
 *
 * Locks, by rank: a flight's own (30), the spare frame's (35), space (40), log (50), live (54),
 * cache (55), write budget (58), frames (60), the pool's of selectors (61), the back end's (62 and
 * more). The log lock is never held while space is taken: space freed by a drop is given back after
 * it.
 *
 * Threads: per member, below.
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
#include "store/log/spaces.h"
#include "store/log/table.h"
#include "store/log/write_budget.h"
#include "store/replay/averages.h"
#include "store/replay/follow.h"
#include "store/rows/where.h"
#include "store/space/quarantine.h"
#include "store/space/reserve.h"
#include "store/space/segment.h"

#include "store/write/write_queue.h"

#include <pthread.h>

#define SC_STORE_EPOCHS_DIR    "epochs"      /* a reader makes it, too, before there is a store */
#define SC_STORE_SEGMENT_MIN   (1ull << 20)  /* the shortest that is made when space runs out */
#define SC_STORE_FIXED_BYTES   (48ull << 10) /* identity, locks, directories, notification */
#define SC_STORE_DEFAULT_BYTES (20ull << 30) /* disk_bytes when the configuration says 0 */
#define SC_STORE_RETRY_NS      5000000000ull /* after ENOSPC or EIO: no new extents for so long */

struct sc_store_limits { /* constant after open */
    uint64_t rows_max, pieces_max, op_bytes;
    uint64_t pass_extents_max; /* extents that a pass is cut into if free space is fragmented */
};

/* Extents that are being written, and the writes that carry them. Guarded by the space lock. */
struct sc_store_writing {
    struct sc_store_extent *extents, *extents_free;
    uint64_t extent_free_count;
    struct sc_store_write *writes, *writes_free;
    uint64_t extent_max, write_max;    /* constant after open */
    _Atomic uint32_t word, waiters;    /* who waits for a frame; the word moves when one is free */
    struct sc_store_write_queue queue; /* with a lock of its own */
};

/* Guarded by its lock (rank 50), but for what any thread reads. */
struct sc_store_log {
    pthread_mutex_t lock;
    struct sc_store_journal journal;
    struct sc_store_spaces spaces;
    _Atomic uint32_t space_id; /* of this connector's namespace: 0, then recorded once */
    _Atomic uint64_t epoch;    /* its; of a peer, the family's */
    bool is_broken;            /* an append failed and could not be undone */
    bool has_late;             /* some extent's record stands behind records of larger ids */
    bool is_copied;            /* a checkpoint runs: no record is put behind larger ids meanwhile */
    uint64_t copies;           /* checkpoints that were begun */
    struct sc_store_averages averages;
    uint32_t unwritten; /* DROPPED pieces without a record, linked by their entries */
};

/* Statistics. Any thread, relaxed. */
struct sc_store_counts {
    _Atomic uint64_t log_bytes, piece_count, extent_count;
    _Atomic uint64_t held_count; /* pieces that hold pages: live, or dropped and not freed yet */
    _Atomic uint64_t read_bytes, read_ops, write_bytes, write_ops, verify_ns;
    _Atomic uint64_t stored_row_bytes; /* of passes, without anything that was added */
    _Atomic uint64_t awaited_ns;       /* by who waits for loads on demand */
    _Atomic uint64_t corrupt_rows, corrupt_records, io_errors, no_space, stage_full;
    _Atomic uint64_t evicted_pieces, checkpoints, built_pieces, built_bytes;
    _Atomic uint64_t bad_blocks, quantised_bytes;
    _Atomic uint64_t permute_queue; /* editions in another order that were ever found or made */
    _Atomic uint64_t permutations_waiting; /* made, and without a record yet */
    _Atomic uint64_t permuted_pieces;      /* made since open */
    _Atomic uint32_t loads;          /* that are begun and not complete */
};

struct sc_store {
    /* Set by open, constant after. */
    struct sc_store_params params;
    char *descriptor; /* a copy of params.space.descriptor */
    struct sc_io *io;
    struct sc_staging *frames;
    struct sc_store_shape shape;    /* this connector's namespace */
    struct sc_store_replay *replay; /* during a writer's open; all of a follower's life */
    char *dir;                      /* .../rank-RRRR-of-NNNN */
    struct sc_io_file *lock_file;
    uint8_t store_id[16];
    struct sc_store_limits limits;

    /* Places on the disk: guarded by disk.lock. */
    struct sc_store_disk disk;
    struct sc_store_log_share share;
    struct sc_store_quarantine quarantine;
    struct sc_store_reserve demand;
    struct sc_store_writing writing;
    _Atomic uint32_t busy;      /* tasks posted and writes in flight; close waits for 0 */
    _Atomic uint64_t copy_next; /* of the next extent or derived section (copy_number.c) */

    /* What the log says: guarded by log.lock; table: lookups from any thread. */
    struct sc_store_log log;
    struct sc_store_table table;
    struct sc_store_follow follow;
    struct sc_store_notifybox notify;
    struct sc_store_write_budget day_budget; /* any thread */
    struct sc_store_erasures erasures;
    struct sc_store_eraser *eraser; /* of a writer, while one runs: store/erase/eraser.c */

    /* Memory of loads: any thread. */
    struct sc_store_reserve_frame spare;
    struct sc_host_tier *host;              /* NULL: host_bytes is 0 */
    struct sc_store_match_fetcher *fetcher; /* with host */
    struct sc_store_pool
        pool; /* of params.selector_bytes_max: memory of selectors that are begun */

    /* Work in the background. NULL: this store is not a writer. */
    struct sc_store_build *build;
    struct sc_store_compactor *compactor;
    struct sc_store_inline_quant *live; /* NULL, too, if rows are not coded while they are stored */
    struct sc_store_cache *cache; /* with live: nothing else asks it for bytes */

    /* Set by open: what a commit tells others, no lock held. */
    void (*quant_missed)(struct sc_store *store, uint64_t extent_id); /* build_sections.c */
    /* Set by open: a piece is void from now on, the log lock held (cache/host_tier_slab.c). NULL:
     * nobody asks. */
    void (*piece_gone)(const struct sc_store *store, const struct sc_store_piece_entry *piece);

    struct sc_store_counts counts;
};

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

/* Any thread. */
static inline bool sc_store_piece_holds(const struct sc_store *store,
                                        const struct sc_store_piece *piece)
{
    return store->params.piece_holds == NULL ||
           store->params.piece_holds(piece, store->params.user);
}

#endif
