/* write_budget: bytes written to the device by kind, and the token bucket of store.write_budget
 * (docs/decisions/0024). Neither outlives a close.
 *
 *   bucket    [ level ............ | full ]   bytes; filled at the budget's rate, at most a quarter
 *                                             of a day's; writes take from it
 *
 * Invariants: a write counts once, when it is queued. An extent takes its pages when it begins and
 * returns what it did not write when it ends. The level may be negative and is made up for. An open
 * empties the bucket, so that restarts do not fill it; a new store's is full. No write is refused
 * here: callers ask first (store/space/write_allowance.c).
 * Threads: any; its lock (rank 58) for a few instructions. Counters are relaxed. Clock: the
 * executor's.
 * Tests: tests/unit/store/test_write_budget.c */
#ifndef SC_STORE_LOG_WRITE_BUDGET_H
#define SC_STORE_LOG_WRITE_BUDGET_H

#include "base/status.h"

#include <pthread.h>
#include <stdatomic.h>

#define SC_STORE_DAY_NS 86400000000000ull

enum sc_store_write_budget_kind {
    SC_STORE_WRITTEN_ROWS,     /* passes' rows with tags and probe rows */
    SC_STORE_WRITTEN_QUANT,    /* quantised rows and other derived sections */
    SC_STORE_WRITTEN_PERMUTED, /* permuted copies of rows */
    SC_STORE_WRITTEN_COMPACTION,
    SC_STORE_WRITTEN_LOG,
    SC_STORE_WRITTEN_CHECKPOINTS,
    SC_STORE_WRITTEN_KINDS
};

struct sc_store_write_budget {
    uint64_t budget; /* bytes per day for this rank; 0: none. Set by open */

    _Atomic uint64_t written[SC_STORE_WRITTEN_KINDS]; /* bytes */

    pthread_mutex_t lock;
    /* Guarded by lock. */
    double level;
    uint64_t filled_ns; /* executor's clock at the last fill */
};

struct sc_store;

/* Writer's open, after the log is open and before it is read. */
spec_status sc_store_write_budget_open(struct sc_store *store, struct spec_error *reterr);
/* An heir's open. */
void sc_store_write_budget_heir_open(struct sc_store *store);
/* An heir takes over: the bucket is empty, as at a writer's open of a store that is not new. */
void sc_store_write_budget_take_over(struct sc_store *store);
/* Removes the file `wear`, where versions before 0.3 kept the level. Call when open cannot fail. */
void sc_store_write_budget_file_remove(struct sc_store *store);

/* Counts bytes that were taken from the bucket before. */
void sc_store_write_budget_count(struct sc_store *store, enum sc_store_write_budget_kind kind,
                                 uint64_t bytes);
/* Counts bytes and takes them from the bucket. */
void sc_store_write_budget_charge(struct sc_store *store, enum sc_store_write_budget_kind kind,
                                  uint64_t bytes);
/* Takes bytes from the bucket; negative: gives them back. */
void sc_store_write_budget_move(struct sc_store *store, int64_t bytes);
/* Takes up to `bytes` and returns the amount; from a full bucket at least `least`. */
uint64_t sc_store_write_budget_take(struct sc_store *store, uint64_t least, uint64_t bytes);
/* Returns ns until the bucket is a quarter full, for work that can wait; 0: it is, or no budget. */
uint64_t sc_store_write_budget_wait_ns(struct sc_store *store);
/* Returns the bytes left; 0: none, or no budget. */
uint64_t sc_store_write_budget_left(struct sc_store *store);

#endif
