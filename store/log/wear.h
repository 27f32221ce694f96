/* What the device was written, and what it may be: counts by kind, and the bucket of
 * store.write_budget (docs/decisions/0024).
 *
 *   bucket    [ level ............ | full ]   in bytes: filled at the budget's rate, a quarter of a
 *                                             day's at most; what is written takes from it
 *   rank-RRRR-of-NNNN/wear                    two slots of 512 bytes, written in turn
 *
 *   slot      magic "SCW1" u32 | form 1 u32 | sequence u64 | struct sc_store_wear_sum, little-
 *             endian u64 each | checksum u64: XXH3-64 of what stands before, seeded as the log's
 *             frames
 *
 * Holds: what was written counts once, when it is queued; an extent's pages are taken from the
 * bucket when it begins, what it did not write is given back when it ends; the level may fall below
 * nothing, and is made up for. The file says what was left, so a restart fills nothing: without a
 * file, or with a damaged one, the bucket of a store that holds something is empty. Time that
 * passes while the store is open is the executor's clock's; between two runs it is the wall
 * clock's, forward alone and up to a full bucket, so that a clock that is set neither stops the
 * budget nor frees it.
 * Does not: refuse a write: who begins one asks (store/place/budget.c).
 * Threads: any; its lock (rank 58), a few instructions. Save: the executor's, one at a time.
 * Tests: tests/unit/store/test_wear.c */
#ifndef SC_STORE_WEAR_H
#define SC_STORE_WEAR_H

#include "base/status.h"

#include <pthread.h>

#define SC_STORE_WEAR_SLOT_BYTES 512u
#define SC_STORE_WEAR_SLOTS      2u
#define SC_STORE_WEAR_DAYS       8u /* today, and a week */
#define SC_STORE_DAY_NS          86400000000000ull

enum sc_store_wear_kind {
    SC_STORE_WEAR_ROWS,  /* of passes, with their tags and probe rows */
    SC_STORE_WEAR_CODES, /* annexes, but for SC_STORE_WEAR_REORDERED */
    SC_STORE_WEAR_MERGES,
    SC_STORE_WEAR_LOG,
    SC_STORE_WEAR_CHECKPOINTS,
    SC_STORE_WEAR_REORDERED, /* rows written anew in another order; form 0 has none of these */
    SC_STORE_WEAR_KINDS
};

struct sc_store_wear_sum {                 /* of all runs; 64-bit words alone */
    uint64_t since_ns;                     /* wall clock when it began */
    uint64_t at_ns;                        /* wall clock when it was saved */
    int64_t level;                         /* of the bucket then */
    uint64_t written[SC_STORE_WEAR_KINDS]; /* bytes */
    uint64_t stored_bytes;                 /* of rows that passes stored, bare */
    uint64_t day;                          /* wall clock / a day, of the last write */
    uint64_t days[SC_STORE_WEAR_DAYS];     /* bytes of day d at d % SC_STORE_WEAR_DAYS */
};

struct sc_store_wear {
    /* Set by open, constant after. */
    uint64_t budget; /* bytes a day, of this rank; 0: none */

    pthread_mutex_t lock;
    /* Guarded by it. */
    struct sc_store_wear_sum sum;
    uint64_t begun[SC_STORE_WEAR_KINDS]; /* sum.written when the store was opened */
    uint64_t begun_stored;
    double level;
    uint64_t filled_ns; /* executor's clock: up to then */
    uint64_t sequence;  /* of the slot that was written last */
    uint64_t unsaved;   /* bytes since then */
    bool is_saving;
};

struct sc_store;

/* Reads the file, when the log is open and was not read yet. A writer's open. */
spec_status sc_store_wear_open(struct sc_store *store, struct spec_error *reterr);
/* Writes the file when much has changed since, or (ends) anything. A failure loses the counts since
 * the last one. */
void sc_store_wear_save(struct sc_store *store, bool ends);

/* Bytes were queued, and taken from the bucket before. */
void sc_store_wear_count(struct sc_store *store, enum sc_store_wear_kind kind, uint64_t bytes);
/* The same, and they are taken from it now. */
void sc_store_wear_charge(struct sc_store *store, enum sc_store_wear_kind kind, uint64_t bytes);
/* Rows that a pass stored, without anything that was added. */
void sc_store_wear_stored(struct sc_store *store, uint64_t bytes);
/* Takes bytes from the bucket, or (less than 0) gives them back. */
void sc_store_wear_move(struct sc_store *store, int64_t bytes);
/* Takes what of `bytes` is there, and returns it; of a full bucket at least `least`. */
uint64_t sc_store_wear_take(struct sc_store *store, uint64_t least, uint64_t bytes);
/* How long until the bucket is a quarter full: work that can wait leaves the rest to passes. 0: it
 * is, or there is no budget. */
uint64_t sc_store_wear_wait_ns(struct sc_store *store);
/* Since open, and what is left in the bucket (0: nothing, or there is none). */
void sc_store_wear_since(struct sc_store *store, uint64_t ret_written[SC_STORE_WEAR_KINDS],
                         uint64_t *ret_stored, uint64_t *ret_left);

/* The newest whole slot of a file's bytes, from its front; 0: none, else its sequence. */
uint64_t sc_store_wear_decode(const uint8_t *bytes, uint64_t byte_count, uint64_t seed,
                              struct sc_store_wear_sum *ret_sum);

#endif
