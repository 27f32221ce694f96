/* What the device was written: counts by kind, and what it may be: the bucket of
 * store.write_budget (docs/decisions/0024). Both are of one run: neither outlives a close.
 *
 *   bucket    [ level ............ | full ]   in bytes: filled at the budget's rate, a quarter of a
 *                                             day's at most; what is written takes from it
 *
 * Holds: what was written counts once, when it is queued; an extent's pages are taken from the
 * bucket when it begins, what it did not write is given back when it ends; the level may fall below
 * nothing, and is made up for. After an open the bucket is empty, so that a restart fills nothing,
 * unless the store is new: then it is full. Time is the executor's clock's.
 * Does not: refuse a write: who begins one asks (store/space/write_allowance.c).
 * Threads: any; its lock (rank 58), a few instructions; counts are relaxed.
 * Tests: tests/unit/store/test_write_budget.c */
#ifndef SC_STORE_LOG_WRITE_BUDGET_H
#define SC_STORE_LOG_WRITE_BUDGET_H

#include "base/status.h"

#include <pthread.h>
#include <stdatomic.h>

#define SC_STORE_DAY_NS 86400000000000ull

enum sc_store_write_budget_kind {
    SC_STORE_WRITTEN_ROWS,  /* of passes, with their tags and probe rows */
    SC_STORE_WRITTEN_QUANT, /* and other derived sections */
    SC_STORE_WRITTEN_COMPACTION,
    SC_STORE_WRITTEN_LOG,
    SC_STORE_WRITTEN_CHECKPOINTS,
    SC_STORE_WRITTEN_KINDS
};

struct sc_store_write_budget {
    uint64_t budget; /* bytes a day, of this rank; 0: none. Set by open, constant after */

    _Atomic uint64_t written[SC_STORE_WRITTEN_KINDS]; /* bytes */

    pthread_mutex_t lock;
    /* Guarded by it. */
    double level;
    uint64_t filled_ns; /* executor's clock: up to then */
};

struct sc_store;

/* When the log is open and was not read yet. A writer's open. */
spec_status sc_store_write_budget_open(struct sc_store *store, struct spec_error *reterr);
/* The file `day_budget`, in which versions before 0.3 kept the level. When open will not fail. */
void sc_store_write_budget_file_remove(struct sc_store *store);

/* Bytes were queued, and taken from the bucket before. */
void sc_store_write_budget_count(struct sc_store *store, enum sc_store_write_budget_kind kind,
                                 uint64_t bytes);
/* The same, and they are taken from it now. */
void sc_store_write_budget_charge(struct sc_store *store, enum sc_store_write_budget_kind kind,
                                  uint64_t bytes);
/* Takes bytes from the bucket, or (less than 0) gives them back. */
void sc_store_write_budget_move(struct sc_store *store, int64_t bytes);
/* Takes what of `bytes` is there, and returns it; of a full bucket at least `least`. */
uint64_t sc_store_write_budget_take(struct sc_store *store, uint64_t least, uint64_t bytes);
/* How long until the bucket is a quarter full: work that can wait leaves the rest to passes. 0: it
 * is, or there is no budget. */
uint64_t sc_store_write_budget_wait_ns(struct sc_store *store);
/* What is left in the bucket; 0: nothing, or there is no budget. */
uint64_t sc_store_write_budget_left(struct sc_store *store);

#endif
