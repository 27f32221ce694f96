/* What a pass writes, in host memory: the first load of it reads nothing and is right; what is
 * given up, fails, is skipped or dropped leaves nothing; loads beside stores get what is right.
 *
 * Threads: the fixture's; the last test: three. */
#include "store/cache/host_tier_slab.h"
#include "store/internal.h"
#include "tests/unit/store/selector_check.h"

#include <pthread.h>

static const struct world_setup setups[] = {
    {"SIM PAIRED", WORLD_ON(SIM, 0), WORLD_SHAPE(PAIRED, 3, 512, 96), WORLD_DISK(64, 2, 64)},
    {"SIM SPLIT", WORLD_ON(SIM, 0), WORLD_SHAPE(SPLIT, 3, 1504, 96), WORLD_DISK(64, 2, 64)},
    /* A window has all layers. */
    {"SIM PAIRED", WORLD_ON(SIM, 0), WORLD_SHAPE(PAIRED, 3, 512, 96), WORLD_DISK(64, 2, 1024)},
    {"PREAD PAIRED", WORLD_ON(PREAD, 2), WORLD_SHAPE(PAIRED, 3, 1504, 96), WORLD_DISK(64, 2, 64)},
    {"URING SPLIT", WORLD_ON(URING, 3), WORLD_SHAPE(SPLIT, 3, 512, 96), WORLD_DISK(64, 2, 256)},
};
#define SETUPS (sizeof(setups) / sizeof(setups[0]))

/* NULL: the machine has no such back end. */
static struct world *world_keeping(const struct world_setup *setup, uint64_t host_bytes,
                                   uint64_t seed)
{
    struct world *world = world_make(setup, seed);
    world->config.host_bytes = host_bytes;
    world->config.host_write_through = 1;
    return world_opened(world);
}

static void the_next_turn_reads_nothing(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < SETUPS; i++) {
        struct world *world = world_keeping(&setups[i], 8u << 20, 1);
        if (world == NULL)
            continue;
        assert_int_equal(world_store(world, 1, 0, 300), SPEC_OK);
        rows_ok(world, 1);
        assert_int_equal(stats_of(world).read_bytes, 0);
        assert_int_equal(world_store(world, 1, 300, 23), SPEC_OK);
        assert_int_equal(world_store(world, 1, 323, 1), SPEC_OK);
        rows_ok(world, 1);
        assert_int_equal(stats_of(world).read_bytes, 0);
        world_reopen(world); /* what is on the disk is the same */
        rows_ok(world, 1);
        assert_true(stats_of(world).read_bytes > 0);
        world_free(world);
    }
}

/* Room for a part, and for none: what is there is right, and no byte too many is taken. */
static void passes_that_are_longer_than_memory_are_right(void **state)
{
    static const uint64_t sizes[] = {700u << 10, 150u << 10, 4096};
    (void)state;
    for (uint32_t i = 0; i < SETUPS; i++)
        for (uint32_t s = 0; s < 3; s++) {
            struct world *world = world_keeping(&setups[i], sizes[s], 2 + s);
            struct sc_host_tier_stats stats;
            if (world == NULL)
                continue;
            for (uint64_t key = 1; key <= 3; key++) {
                assert_int_equal(world_store(world, key, 7 * key, 200), SPEC_OK);
                for (uint64_t other = 1; other <= key; other++)
                    rows_ok(world, other);
                sc_host_tier_stats(world->store->host, &stats);
                assert_in_range(stats.bytes_used, 0, sizes[s]);
            }
            world_free(world); /* asserts that none is being filled */
        }
}

/* Passes that are given up in any layer, or whose writes fail. */
static void what_is_not_committed_leaves_nothing(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < SETUPS; i++)
        for (uint32_t layers = 0; layers <= setups[i].layers; layers++) {
            struct world *world = world_keeping(&setups[i], 8u << 20, 10 + layers);
            struct sc_host_tier_stats stats;
            if (world == NULL)
                continue;
            struct pass *pass = pass_make(world, 1, 0, 200);
            bool fails = layers == setups[i].layers;
            if (fails && world->disk != NULL)
                sc_io_sim_fault_nth(world->disk, SC_SIM_WRITE_EIO, 0);
            assert_int_equal(pass_begin(pass), SPEC_OK);
            while (pass->layer < layers)
                assert_int_equal(pass_put(pass), SPEC_OK);
            if (!fails)
                sc_store_extent_abort(pass->extent);
            pass_wait(pass);
            sc_host_tier_stats(world->store->host, &stats);
            if (!fails || world->disk != NULL) {
                assert_true(pass->status != SPEC_OK);
                assert_int_equal(stats.bytes_used, 0);
                assert_int_equal(stats.slabs, 0);
            }
            pass_free(pass);
            world_free(world);
        }
}

/* Rows that another piece has are in no slab: the piece's is not kept, the others' are. */
static void a_piece_that_skips_rows_is_read(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < SETUPS; i++) {
        struct world *world = world_keeping(&setups[i], 8u << 20, 20);
        if (world == NULL)
            continue;
        holes_store(world);
        struct match match = holes_match(world);
        struct sc_store_reader *reader = world_reader(world);
        assert_false(sc_host_slab_has(world->store, 1, &match.ranges[0], SC_STORE_WANT_ROWS));
        assert_true(sc_host_slab_has(world->store, 1, &match.ranges[1], SC_STORE_WANT_ROWS));
        assert_int_equal(world_load(world, reader, 1, match.ranges, match.twins, match.count).rows,
                         match.rows);
        assert_true(sc_host_slab_has(world->store, 1, &match.ranges[0], SC_STORE_WANT_ROWS));
        sc_store_piece_drop(world->store, match.ranges[1].piece);
        assert_false(sc_host_slab_has(world->store, 1, &match.ranges[1], SC_STORE_WANT_ROWS));
        sc_store_readers_close(reader, 1);
        world_free(world);
    }
}

/* ---- Threads --------------------------------------------------------------------------------- */

struct loader {
    struct world *world;
    struct sc_store_range range;
    _Atomic bool ends;
    uint64_t loads;
    bool is_wrong;
    pthread_t thread;
};

static void *loader_main(void *argument)
{
    struct loader *loader = argument;
    struct sc_store_reader *reader;
    if (sc_store_readers_open(loader->world->store, 1, &reader, NULL) != SPEC_OK)
        return argument;
    while (!atomic_load(&loader->ends)) {
        struct sc_store_rows rows = {.row_count = 1};
        uint64_t came = 0;
        sc_store_reader_begin(reader, loader->loads++ % loader->world->setup->layers,
                              &loader->range, 1, SC_IO_CLASS_DEMAND);
        for (; rows.row_count > 0 && !loader->is_wrong; came += rows.row_count)
            loader->is_wrong =
                sc_store_reader_next(reader, SC_EXEC_FOREVER, NULL, &rows, NULL) != SPEC_OK;
        loader->is_wrong = loader->is_wrong || came != loader->range.row_count;
    }
    sc_store_readers_close(reader, 1);
    return loader->is_wrong ? argument : NULL;
}

static void stores_beside_loads_are_right(void **state)
{
    static const struct world_setup threaded = {
        "PREAD PAIRED", WORLD_ON(PREAD, 2), WORLD_SHAPE(PAIRED, 3, 512, 96), WORLD_DISK(64, 2, 64)};
    (void)state;
    struct world *world = world_make(&threaded, 30);
    struct loader loaders[2] = {0};
    world->config.host_bytes = 700u << 10;
    world->config.host_write_through = 1;
    world_open_ok(world);
    assert_int_equal(world_store(world, 1, 0, 128), SPEC_OK);
    for (uint32_t l = 0; l < 2; l++) {
        loaders[l].world = world;
        loaders[l].range = (struct sc_store_range){.piece = world->pieces[l].id, .row_count = 64};
        assert_int_equal(pthread_create(&loaders[l].thread, NULL, loader_main, &loaders[l]), 0);
    }
    for (uint64_t key = 2; key < 20; key++)
        assert_int_equal(world_store(world, key, key, 100), SPEC_OK);
    for (uint32_t l = 0; l < 2; l++) {
        void *wrong;
        atomic_store(&loaders[l].ends, true);
        assert_int_equal(pthread_join(loaders[l].thread, &wrong), 0);
        assert_null(wrong);
    }
    for (uint64_t key = 1; key < 20; key++)
        rows_ok(world, key);
    world_free(world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_next_turn_reads_nothing),
        cmocka_unit_test(passes_that_are_longer_than_memory_are_right),
        cmocka_unit_test(what_is_not_committed_leaves_nothing),
        cmocka_unit_test(a_piece_that_skips_rows_is_read),
        cmocka_unit_test(stores_beside_loads_are_right),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
