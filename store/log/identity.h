/* Whose directory it is, and numbers of copies in it that never come again.
 *
 * Threads: open, but for sc_store_is_ours and sc_store_copy_next (below).
 * Tests: tests/unit/store/test_store.c, test_copy.c */
#ifndef SC_STORE_LOG_IDENTITY_H
#define SC_STORE_LOG_IDENTITY_H

#include "store/log/record.h"

struct sc_store;

/* Finds or makes DIR/store.msgpack, and sets it. */
spec_status sc_store_identity_open(struct sc_store *store, struct spec_error *reterr);
/* Only finds it; makes and changes nothing. *ret_found false: not there yet. VERSION: not ours. */
spec_status sc_store_identity_find(struct sc_store *store, struct sc_store_identity *ret_identity,
                                   bool *ret_found, struct spec_error *reterr);
/* It is this one's from now on; its secret is told. Errors: those of params.on_secret. */
spec_status sc_store_identity_set(struct sc_store *store, const struct sc_store_identity *identity,
                                  struct spec_error *reterr);

/* Whether the directory still has our lock, by inode: else another writer may be at work in it, and
 * nothing in it is made, renamed or removed any more. No lock held, or the log's. */
spec_status sc_store_is_ours(struct sc_store *store, struct spec_error *reterr);

/* Where the numbers of this open begin. */
spec_status sc_store_copies_open(struct sc_store *store, struct spec_error *reterr);
/* A number that no extent and no derived section had or will have, whatever a crash made undone.
 * Any thread.
 */
uint64_t sc_store_copy_next(struct sc_store *store);

#endif
