/* Runs of the background build under test: started and waited for.
 *
 * Threads: one test thread beside the executor's. */
#ifndef SC_TESTS_UNIT_STORE_BUILD_CHECK_H
#define SC_TESTS_UNIT_STORE_BUILD_CHECK_H

#include "store/internal.h"
#include "tests/unit/store/store_fixture.h"

static inline bool build_runs(struct world *world)
{
    struct sc_store_stats stats;
    sc_store_stats(world->store, &stats);
    return stats.is_building;
}

/* Until the run is over: busy moves when it ends. */
static inline void build_wait(struct world *world)
{
    while (build_runs(world)) {
        uint32_t busy = atomic_load(&world->store->busy);
        if (build_runs(world) &&
            !sc_exec_wait(world->exec, &world->store->busy, busy,
                          sc_exec_now_ns(world->exec) + 20000000) &&
            sc_exec_is_loop(world->exec) && !build_runs(world))
            break;
    }
}

/* bytes_per_s: the build's rate, 0: unbounded. */
static inline void build_all(struct world *world, uint64_t bytes_per_s)
{
    sc_store_build_start(world->store, bytes_per_s);
    build_wait(world);
}

#endif
