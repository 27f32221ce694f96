/* erase: makes token ids and rows unreadable in the store's files, permanently.
 *
 *   put    PATH/erase/RANK-all or RANK-SALT: a durable intent for each rank's directory
 *   hear   a store reads its intents; from then on covered data is void here and not stored again
 *   step   the writer: a log without it, zeros over the old log and over every page of its
 *          segments that nothing else holds; then the intent is removed
 *
 * Covered data is void while the intent's file exists, in every process and after any crash. Every
 * intent covers rows whose record has no salt (older versions).
 *
 * Invariants: an intent is removed only after the zeros were written, synced and read back. Free
 * pages are zeroed too, because they may hold evicted data. Copy-on-write by the file system or
 * device is not handled.
 * Tests: tests/unit/store/test_erase.c, tests/unit/plugin/test_erase.c, conformance abi_219_* */
#ifndef SC_STORE_ERASE_H
#define SC_STORE_ERASE_H

#include "store/store.h"

#define SC_STORE_ERASURES_MAX 256u /* pending intents of a rank */

struct sc_store_erasure {
    bool is_all;
    uint8_t salt[SC_STORE_HASH_BYTES]; /* unless is_all: the salt (sc_store_salt) */
};

/* Stores the intent for every rank's directory, of any rank set. Any role. Blocks: creates and
 * syncs small files. Errors: BUSY (too many pending), IO, NO_SPACE; some ranks may have theirs. */
spec_status sc_store_erase_put(struct sc_store *store, const struct sc_store_erasure *what,
                               struct spec_error *reterr);
/* Reads this rank's intents; calls on_new for each unknown one. Lists one directory. One thread at
 * a time. Errors: IO; the known ones stay. */
spec_status sc_store_erase_hear(struct sc_store *store,
                                void (*on_new)(const struct sc_store_erasure *what, void *user),
                                void *user, struct spec_error *reterr);
/* Returns false if intents were neither put nor ended since the last question that was answered
 * with true. The tick's. */
bool sc_store_erase_due(struct sc_store *store);
/* Adds an intent if unknown; call erase_hear afterwards. The writer may complete an intent before
 * the process that put it has read it. */
void sc_store_erase_know(struct sc_store *store, const struct sc_store_erasure *what,
                         void (*on_new)(const struct sc_store_erasure *what, void *user),
                         void *user);
/* Returns the number of pending intents. Any thread. */
uint32_t sc_store_erasures(const struct sc_store *store);
/* Returns true if a pending intent covers this salt. Any thread. */
bool sc_store_erases(struct sc_store *store, const struct sc_store_salt *salt);
bool sc_store_erasure_covers(const struct sc_store_erasure *what, const struct sc_store_salt *salt);
/* Returns the salt of a piece, live or not; UNKNOWN for unknown ids. Any thread. */
struct sc_store_salt sc_store_piece_salt(const struct sc_store *store, uint64_t piece);
/* Returns true if the piece is or was covered by an intent. Any thread. */
bool sc_store_piece_is_erased(const struct sc_store *store, uint64_t piece);

/* Voids all pieces that known intents cover. on_gone (optional) gets those that were live, with the
 * caller's number. No commit of this store may run meanwhile. */
void sc_store_erase_mark(struct sc_store *store,
                         void (*on_gone)(uint64_t piece, uint64_t mark, void *user), void *user);
/* Writer, after erase_mark: does up to about 8 MiB of the work. *ret_more: call again now.
 * SPEC_PENDING: writes must end first, call later. Not during a checkpoint. After an error the next
 * call restarts and writes every zero again. Errors: IO, NO_SPACE, NO_MEMORY. */
spec_status sc_store_erase_step(struct sc_store *store, bool *ret_more, struct spec_error *reterr);

/* Counters since open. Any thread. */
struct sc_store_erase_counts {
    uint64_t erased;   /* completed intents */
    uint64_t failures; /* failed steps */
    uint64_t zeroed_bytes;
    uint64_t left_bytes; /* gauge: bytes left in the running erasure */
};
struct sc_store_erase_counts sc_store_erase_counts(const struct sc_store *store);

#endif
