/* Trials of what is built; see build_trial.h. */
#include "tests/unit/store/build_trial.h"

#include "tests/unit/store/quant_check.h"
#include "tests/unit/store/space_check.h"

const struct world_setup build_setups[BUILD_SETUPS] = {
    {"sim, paired", WORLD_ON(SIM, 0), WORLD_SHAPE(PAIRED, 3, 512, 96), WORLD_DISK(64, 4, 64)},
    {"sim, split, windows cut pieces", WORLD_ON(SIM, 0), WORLD_SHAPE(SPLIT, 2, 1504, 198),
     WORLD_DISK(64, 2, 64)},
    {"sim, paired rows of 8 KiB", WORLD_ON(SIM, 0), WORLD_SHAPE(PAIRED, 2, 4096, 2048),
     WORLD_DISK(256, 16, 256)},
    {"pread, paired, 2 threads", WORLD_ON(PREAD, 2), WORLD_SHAPE(PAIRED, 3, 512, 96),
     WORLD_DISK(64, 4, 64)},
    {"io_uring, split, 3 threads", WORLD_ON(URING, 3), WORLD_SHAPE(SPLIT, 2, 512, 256),
     WORLD_DISK(64, 4, 64)},
};

static void reopen(const struct build_trial *trial, struct world *world)
{
    world_close(world);
    trial->open(world);
}

static void build(const struct build_trial *trial, struct world *world)
{
    if (trial->build != NULL)
        trial->build(world);
    else
        build_all(world, 0);
}

static void is_whole(const struct build_trial *trial, struct world *world, uint64_t key)
{
    if (trial->is_whole != NULL)
        trial->is_whole(world, key);
    else
        assert_true(trial->had(world, key, false) > 0);
}

#ifndef SC_SANITIZED_THREAD

/* One fault; false: nothing failed. */
static bool fault_try(const struct build_trial *trial, enum sc_fault_kind kind, uint64_t n)
{
    struct world *world = trial->bare(trial->setup, 6);
    world_store_two(world, 200, 130);
    world_faults(world);
    reopen(trial, world);
    sc_fault_arm(&world->fault, kind, n);
    build(trial, world);
    sc_fault_arm(&world->fault, kind, INT64_MAX);
    bool fires = atomic_load(&world->fault.fired[kind]) > 0;
    space_check(world->store);
    rows_ok(world, 1);
    rows_ok(world, 2);
    (void)trial->had(world, 1, false);
    reopen(trial, world);
    space_check(world->store);
    rows_ok(world, 2);
    build(trial, world);
    is_whole(trial, world, 1);
    is_whole(trial, world, 2);
    world_free(world);
    return fires;
}

void build_trial_faults(const struct build_trial *trial)
{
    static const enum sc_fault_kind KINDS[] = {SC_FAULT_ALLOC, SC_FAULT_READ, SC_FAULT_WRITE,
                                               SC_FAULT_COMPLETION, SC_FAULT_RESERVE};
    for (uint32_t kind = 0; kind < 5; kind++) {
        uint64_t fired = 0;
        while (fault_try(trial, KINDS[kind], fired))
            fired += trial->fault_step > 0 ? trial->fault_step : 1;
        assert_true(fired > 0 || KINDS[kind] == SC_FAULT_RESERVE);
    }
}

/* All rows that were synced, and of what was built what is right. Returns how much of both keys. */
static uint64_t image_check(const struct build_trial *trial, const struct world *origin,
                            uint64_t events, uint64_t seed)
{
    struct world *world = world_cut(origin, events, seed, seed);
    uint64_t had = 0;
    trial->open(world);
    assert_int_equal(world->open_count, origin->piece_count);
    space_check(world->store);
    for (uint64_t key = 1; key <= 2; key++) {
        had += trial->had(world, key, true);
        rows_ok(world, key);
    }
    build(trial, world); /* what is still missing */
    space_check(world->store);
    rows_ok(world, 1);
    world_free(world);
    return had;
}

void build_trial_cuts(const struct build_trial *trial, uint64_t all)
{
    struct world_setup setup = *trial->setup;
    setup.journal = 2;
    struct world *world = trial->bare(&setup, 12);
    uint32_t with_none = 0, with_all = 0, cuts = 0;
    world_store_two(world, 200, 130);
    reopen(trial, world); /* close syncs the log; the rows: */
    assert_int_equal(sc_io_file_sync(world->store->io, world->store->disk.segments[0].file, NULL),
                     SPEC_OK);
    uint64_t from = sc_io_sim_disk_events(world->disk);
    build(trial, world);
    assert_int_equal(sc_store_checkpoint(world->store, NULL), SPEC_OK);
    uint64_t to = sc_io_sim_disk_events(world->disk);
    assert_true(to > from);
    for (uint64_t events = from; events <= to; events++)
        for (uint64_t seed = 0; seed < 8; seed++, cuts++) {
            uint64_t had = image_check(trial, world, events, seed * 1000 + events);
            with_none += had == 0;
            with_all += all > 0 ? had == all : had > 0;
        }
    print_message("%u power cuts: %u with nothing built, %u with %s\n", cuts, with_none, with_all,
                  all > 0 ? "all" : "something");
    assert_true(with_none > 0 && with_all > 0);
    world_free(world);
}

#endif

void build_trial_follower(const struct build_trial *trial)
{
    struct world *world = trial->bare(trial->setup, 2);
    assert_non_null(world);
    assert_int_equal(world_store(world, 1, 0, 300), SPEC_OK);
    reopen(trial, world);
    struct sc_store_params params = world->params;
    struct sc_store *reader = NULL, *writer = world->store;
    bool more = true;
    params.role = SC_STORE_READER;
    assert_int_equal(sc_store_open(&params, &reader, NULL), SPEC_OK);
    world->store = reader;
    assert_int_equal(trial->had(world, 1, false), 0);
    world->store = writer;
    build(trial, world);
    for (uint32_t round = 0; round < 2; round++) { /* appended; then read again from its start */
        world->store = reader;
        while (more)
            assert_int_equal(sc_store_follow(reader, &more, NULL), SPEC_OK);
        is_whole(trial, world, 1);
        rows_ok(world, 1);
        world->store = writer;
        assert_int_equal(sc_store_checkpoint(writer, NULL), SPEC_OK);
        more = true;
    }
    sc_store_close(reader);
    world_free(world);
}
