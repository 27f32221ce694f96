/* Two open stores that have read one log to its end, compared: pages, pieces, what the log says.
 *
 * Threads: none beside the caller; both have freed what waits for leases. */
#ifndef SC_TESTS_UNIT_STORE_STATE_CHECK_H
#define SC_TESTS_UNIT_STORE_STATE_CHECK_H

#include "store/internal.h"
#include "tests/unit/store/store_fixture.h"

void maps_equal(const struct sc_store *heir, const struct sc_store *fresh);
void tables_equal(const struct sc_store *heir, const struct sc_store *fresh);
/* The heir may know of void pieces that a checkpoint left out. */
void ranges_hold(const struct sc_store *heir, const struct sc_store *fresh);
void logs_equal(struct sc_store *heir, struct sc_store *fresh);

#endif
