/* Runs of the background build under test: started and waited for.
 *
 * Threads: one test thread beside the executor's. */
#ifndef SC_TESTS_UNIT_STORE_BUILD_CHECK_H
#define SC_TESTS_UNIT_STORE_BUILD_CHECK_H

#include "store/internal.h"
#include "tests/unit/store/store_fixture.h"

bool build_runs(struct world *world);

/* Until the run is over: busy moves when it ends. */
void build_wait(struct world *world);

/* bytes_per_s: the build's rate, 0: unbounded. */
void build_all(struct world *world, uint64_t bytes_per_s);

/* Quantised rows are built, of all that lacks them and may have them. */
void build_quantised(struct world *world);

/* While a run goes on: drops prompts 1, 3 and 5 of six (four pieces each), and reads prompt 6 each
 * time; until the run is over. */
void build_beside_drops(struct world *world);

#endif
