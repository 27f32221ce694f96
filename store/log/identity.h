/* identity: identity and ownership of a store's directory, and unique copy numbers.
 * Threads: open, except sc_store_is_ours and sc_store_copy_next.
 * Tests: tests/unit/store/test_store.c, test_copy.c */
#ifndef SC_STORE_LOG_IDENTITY_H
#define SC_STORE_LOG_IDENTITY_H

#include "store/log/record.h"

struct sc_store;

/* Finds or creates DIR/store.msgpack and applies it. */
spec_status sc_store_identity_open(struct sc_store *store, struct spec_error *reterr);
/* Reads it without changing anything. *ret_found false: absent so far. VERSION: not our format. */
spec_status sc_store_identity_find(struct sc_store *store, struct sc_store_identity *ret_identity,
                                   bool *ret_found, struct spec_error *reterr);
/* Raises the directory's format to this build's, so that earlier builds refuse it, before anything
 * is written that they cannot read. For a writer that holds its rank's lock. Errors: IO, NO_SPACE,
 * LOCKED, VERSION; the identity is as it was. */
spec_status sc_store_identity_upgrade(struct sc_store *store, struct spec_error *reterr);
/* Applies the identity and reports its secret. Errors: those of params.on_secret. */
spec_status sc_store_identity_set(struct sc_store *store, const struct sc_store_identity *identity,
                                  struct spec_error *reterr);

/* Fails if the lock file in the directory is no longer ours (by inode): another writer may use it,
 * so nothing may be created, renamed or removed. Caller holds no lock or the log lock. */
spec_status sc_store_is_ours(struct sc_store *store, struct spec_error *reterr);

/* Draws the base of this open's copy numbers. */
spec_status sc_store_copies_open(struct sc_store *store, struct spec_error *reterr);
/* Returns a number that no other extent or derived section has (copy_number.c). Any thread. */
uint64_t sc_store_copy_next(struct sc_store *store);

#endif
