/* Logs that are written anew (checkpoint.c).
 *
 * Threads: open and close; a running store's are asked for by store.h.
 * Tests: tests/unit/store/test_checkpoint.c */
#ifndef SC_STORE_REPLAY_CHECKPOINT_H
#define SC_STORE_REPLAY_CHECKPOINT_H

#include "base/status.h"

struct sc_store;

/* sc_store_checkpoint without what is_erased marks in the table (store/erase.h), and zeros over the
 * old log behind it; an error of those leaves the new log in place. */
spec_status sc_store_checkpoint_erase(struct sc_store *store, struct spec_error *reterr);

/* At close: a checkpoint when it is worth it, else a sync, else nothing. Failures are logged. */
void sc_store_checkpoint_close(struct sc_store *store);

#endif
