/* Pieces that become one (compactor.c).
 *
 * Holds: one merge at a time; what it wrote is the caller's, the pieces stay as they were.
 * Threads: open and close; a merge is asked for by store.h.
 * Tests: tests/unit/plugin/test_compaction.c */
#ifndef SC_STORE_WRITE_COMPACTOR_H
#define SC_STORE_WRITE_COMPACTOR_H

#include "base/status.h"

struct sc_store;

spec_status sc_store_compactor_open(struct sc_store *store, struct spec_error *reterr);
/* No step is posted or will be once store->busy is 0. */
void sc_store_compactor_stop(struct sc_store *store);
void sc_store_compactor_close(struct sc_store *store);

#endif
