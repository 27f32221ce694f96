/* Erasing: token ids and rows become unreadable in the store's files, for good.
 *
 *   put    PATH/erase/RANK-all or RANK-SALT, one durable file for each rank's directory: the intent
 *   hear   a store reads its intents; from then on what they cover is void here, and nothing of it
 *          is stored
 *   step   the writer: a log without it, zeros over the old log, zeros over every page of its
 *          segments that nothing else holds; then the intent is taken away
 *
 * What an intent covers is void as long as its file is there, in every process and after any crash.
 * Rows whose record does not say their salt (an older version's) are covered by every intent.
 *
 * Holds: an intent is taken away only after the zeros were written, synced and read back. A page
 * that was free is zeroed too: what was evicted before cannot be told from anything else.
 * Does not: overwrite in place what the file system, or the device below it, copies on write.
 * Threads: as each call says.
 * Tests: tests/unit/store/test_erase.c, tests/unit/plugin/test_erase.c, conformance abi_219_* */
#ifndef SC_STORE_ERASE_H
#define SC_STORE_ERASE_H

#include "store/store.h"

#define SC_STORE_ERASURES_MAX 256u /* intents of a rank at one time */

struct sc_store_erasure {
    bool is_all;
    uint8_t salt[SC_STORE_HASH_BYTES]; /* else what was stored under it (sc_store_salt) */
};

/* Puts the intent for every rank's directory that the store has, of this rank set and of others.
 * Any role. Blocks: makes and syncs small files. Errors: BUSY (too many wait), IO, NO_SPACE: some
 * ranks may have theirs. */
spec_status sc_store_erase_put(struct sc_store *store, const struct sc_store_erasure *what,
                               struct spec_error *reterr);
/* Reads this rank's intents; calls on_new for each that was not known. Lists one directory. One
 * thread at a time. Errors: IO; what was known stays. */
spec_status sc_store_erase_hear(struct sc_store *store,
                                void (*on_new)(const struct sc_store_erasure *what, void *user),
                                void *user, struct spec_error *reterr);
/* This one is known from now on, unless it was; then hear again. The writer may carry an intent out
 * before the process that put it has read it. */
void sc_store_erase_know(struct sc_store *store, const struct sc_store_erasure *what,
                         void (*on_new)(const struct sc_store_erasure *what, void *user),
                         void *user);
/* How many are known and not carried out. Any thread. */
uint32_t sc_store_erasures(const struct sc_store *store);
/* Whether one of them covers what is stored under this salt. Any thread. */
bool sc_store_erases(struct sc_store *store, const struct sc_store_salt *salt);
bool sc_store_erasure_covers(const struct sc_store_erasure *what, const struct sc_store_salt *salt);
/* Under which salt the piece was stored, live or not; UNKNOWN for unknown ids. Any thread. */
struct sc_store_salt sc_store_piece_salt(const struct sc_store *store, uint64_t piece);
/* Whether the piece is of what was or is being erased. Any thread. */
bool sc_store_piece_is_erased(const struct sc_store *store, uint64_t piece);

/* All pieces that known intents cover are void from now on; on_gone (may be NULL) is told of those
 * that were live, with the caller's number. No commit of this store runs meanwhile. */
void sc_store_erase_mark(struct sc_store *store,
                         void (*on_gone)(uint64_t piece, uint64_t mark, void *user), void *user);
/* Writer: a part of the work, at most about 8 MiB; after erase_mark. *ret_more: call again now.
 * SPEC_PENDING: writes have to end first, call again later. Not at the same time as a checkpoint.
 * After an error nothing counts as erased; the next call begins anew, and writes every zero again.
 * Errors: IO, NO_SPACE, NO_MEMORY. */
spec_status sc_store_erase_step(struct sc_store *store, bool *ret_more, struct spec_error *reterr);

/* Counted since open. Any thread. */
struct sc_store_erase_counts {
    uint64_t erased;       /* intents that were carried out */
    uint64_t failures;     /* of steps */
    uint64_t zeroed_bytes; /* written over */
    uint64_t left_bytes;   /* level: still to be looked at by the one that runs */
};
struct sc_store_erase_counts sc_store_erase_counts(const struct sc_store *store);

#endif
