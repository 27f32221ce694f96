/* open: the parts of an open that rows and objects share: back end, directory, lock, log files.
 * Threads: open and close.
 * Tests: tests/unit/store/test_store.c, tests/fault/test_store_faults.c */
#ifndef SC_STORE_OPEN_H
#define SC_STORE_OPEN_H

#include "store/internal.h"

/* Prefix of a rank's directory: PREFIX0000-of-0001. */
#define SC_STORE_ROWS_PREFIX    "rank-"
#define SC_STORE_OBJECTS_PREFIX "objects-"

/* Creates a store with only its locks; NULL: no memory. */
struct sc_store *sc_store_base_make(const struct sc_store_params *params);
/* Closes segments, log, lock and back end as far as open, and frees the store. */
void sc_store_base_free(struct sc_store *store);
/* Waits until no task is posted and no write is in flight. */
void sc_store_base_wait(struct sc_store *store);

spec_status sc_store_io_open(struct sc_store *store, struct spec_error *reterr);
/* Sets the name of the rank's directory. */
spec_status sc_store_dir_name(struct sc_store *store, const char *prefix,
                              struct spec_error *reterr);
/* CONFIG: a rank's directory beside ours has this prefix, so the store holds `what`. */
spec_status sc_store_kind_check(struct sc_store *store, const char *prefix, const char *what,
                                struct spec_error *reterr);
/* Creates the directory and takes its lock. */
spec_status sc_store_dir_open(struct sc_store *store, struct spec_error *reterr);

#endif
