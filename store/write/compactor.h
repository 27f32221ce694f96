/* compactor: joins pieces into one (compactor.c). One compaction runs at a time, begun through
 * store.h.
 *
 * Invariants: the new extent is the caller's; the source pieces are unchanged.
 * Tests: tests/unit/plugin/test_compaction.c */
#ifndef SC_STORE_WRITE_COMPACTOR_H
#define SC_STORE_WRITE_COMPACTOR_H

#include "base/status.h"

struct sc_store;

spec_status sc_store_compactor_open(struct sc_store *store, struct spec_error *reterr);
/* No step is posted once store->busy is 0. */
void sc_store_compactor_stop(struct sc_store *store);
void sc_store_compactor_close(struct sc_store *store);

#endif
