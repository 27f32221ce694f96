/* checkpoint: rewrites logs.
 * Threads: open and close; store.h starts those of a running store.
 * Tests: tests/unit/store/test_checkpoint.c, test_follow.c */
#ifndef SC_STORE_REPLAY_CHECKPOINT_H
#define SC_STORE_REPLAY_CHECKPOINT_H

#include "base/status.h"

struct sc_store;

/* Does a checkpoint without extents marked is_erased (store/erase.h), then overwrites the old log
 * with zeros; an error of that leaves the new log in place. */
spec_status sc_store_checkpoint_erase(struct sc_store *store, struct spec_error *reterr);

/* At close: does a checkpoint if it is worth it, else a sync if one is due. Failures are logged. */
void sc_store_checkpoint_close(struct sc_store *store);

#endif
