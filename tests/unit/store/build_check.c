/* Runs of the background build, started and waited for; see build_check.h. */
#include "tests/unit/store/build_check.h"

bool build_runs(struct world *world)
{
    return stats_of(world).is_building;
}

void build_wait(struct world *world)
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

void build_all(struct world *world, uint64_t bytes_per_s)
{
    sc_store_build_start(world->store, bytes_per_s);
    build_wait(world);
}

void build_quantised(struct world *world)
{
    sc_store_build_quant(world->store);
    build_wait(world);
}

void build_beside_drops(struct world *world)
{
    for (uint32_t round = 0; build_runs(world) || round < 3; round++) {
        if (round < 3)
            for (uint32_t p = 0; p < 4; p++)
                sc_store_piece_drop(world->store, world->pieces[4 * (2 * round) + p].id);
        rows_ok(world, 6);
        sc_store_build_settle(world->store);
    }
    build_wait(world);
}
