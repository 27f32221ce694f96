/* Loads over the host tier: the second of the same rows reads nothing, whatever the layout and the
 * back end; rows that rot in memory are found by their tags and read again; rows come from both at
 * once; who loads beside evictions gets what is right.
 *
 * Threads: the fixture's. */
#include "store/cache/hosted.h"
#include "store/internal.h"

#include "tests/unit/store/store_fixture.h"

static const struct world_setup setups[] = {
    {.name = "sim, paired",
     .backend = SC_BACKEND_SIM,
     .layers = 3,
     .k_row_bytes = 1504,
     .disk_bytes = 64u << 20,
     .segment_bytes = 4u << 20,
     .op_bytes = 64u << 10},
    {.name = "sim, split, probe rows",
     .backend = SC_BACKEND_SIM,
     .layers = 3,
     .layout = SC_STORE_SPLIT,
     .k_row_bytes = 1504,
     .probe_row_bytes = 96,
     .disk_bytes = 64u << 20,
     .segment_bytes = 2u << 20,
     .op_bytes = 64u << 10},
    {.name = "pread, paired",
     .backend = SC_BACKEND_PREAD,
     .layers = 3,
     .k_row_bytes = 512,
     .disk_bytes = 64u << 20,
     .segment_bytes = 4u << 20,
     .op_bytes = 64u << 10},
};
#define SETUPS (sizeof(setups) / sizeof(setups[0]))

/* NULL: the machine has no such back end. */
static struct world *world_hosted(const struct world_setup *setup, uint64_t host_bytes,
                                  uint64_t seed)
{
    struct world *world = world_make(setup, seed);
    world->config.host_bytes = host_bytes;
    return world_opened(world);
}

static uint64_t read_bytes(struct world *world)
{
    struct sc_store_stats stats;
    sc_store_stats(world->store, &stats);
    return stats.read_bytes;
}

static void load_all(struct world *world, uint64_t key)
{
    struct sc_store_reader *reader = world_reader(world);
    for (uint32_t layer = 0; layer < world->setup->layers; layer++) {
        struct loaded loaded = world_load_key(world, reader, layer, key);
        if (loaded.status != SPEC_OK)
            fail_msg("%s: %s", world->setup->name, world->error.text);
    }
    sc_store_readers_close(reader, 1);
}

static void the_second_load_reads_nothing(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < SETUPS; i++) {
        struct world *world = world_hosted(&setups[i], 8u << 20, 1);
        if (world == NULL)
            continue;
        assert_int_equal(world_store(world, 1, 0, 300), SPEC_OK);
        assert_int_equal(world_store(world, 1, 300, 23), SPEC_OK);
        assert_int_equal(world_store(world, 1, 323, 1), SPEC_OK);
        load_all(world, 1);
        uint64_t before = read_bytes(world);
        assert_true(before > 0);
        load_all(world, 1);
        assert_int_equal(read_bytes(world), before);
        world_reopen(world); /* memory is forgotten */
        load_all(world, 1);
        assert_true(read_bytes(world) > 0);
        world_free(world);
    }
}

/* Every part of every piece, before, behind and between what is there. */
static void parts_and_mixtures_are_right(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < SETUPS; i++) {
        struct world *world = world_hosted(&setups[i], 8u << 20, 2);
        if (world == NULL)
            continue;
        assert_int_equal(world_store(world, 1, 10, 300), SPEC_OK);
        struct sc_store_reader *reader = world_reader(world);
        uint64_t seed = 3, hosted = 0;
        for (uint32_t p = 0; p < world->piece_count; p += 2) /* every second one is there */
            assert_int_equal(world_load_piece(world, reader, 1, &world->pieces[p]).status, SPEC_OK);
        for (uint32_t round = 0; round < 200; round++) {
            struct sc_store_range ranges[8];
            const struct world_piece *twins[8];
            uint64_t count = 1 + random_below(&seed, 8), rows = 0;
            for (uint64_t r = 0; r < count; r++) {
                twins[r] = &world->pieces[random_below(&seed, world->piece_count)];
                uint32_t first = (uint32_t)random_below(&seed, twins[r]->row_count);
                ranges[r] = (struct sc_store_range){
                    .piece = twins[r]->id,
                    .row_first = first,
                    .row_count = (uint32_t)random_below(&seed, twins[r]->row_count - first + 1)};
                rows += ranges[r].row_count;
                hosted += sc_store_hosted_has(world->store, 1, &ranges[r]);
            }
            struct loaded loaded = world_load(world, reader, 1, ranges, twins, count);
            assert_int_equal(loaded.status, SPEC_OK);
            assert_int_equal(loaded.rows, rows);
        }
        assert_true(hosted > 0);
        sc_store_readers_close(reader, 1);
        world_free(world);
    }
}

/* A bit of memory that changes: the row fails its tag, as one of the disk would, and the slab is
 * not there for the next load. */
static void rot_in_memory_is_found(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < SETUPS; i++) {
        struct world *world = world_hosted(&setups[i], 8u << 20, 4);
        if (world == NULL)
            continue;
        assert_int_equal(world_store(world, 1, 0, 100), SPEC_OK);
        struct sc_store_reader *reader = world_reader(world);
        const struct world_piece *piece = &world->pieces[0];
        struct sc_store_range range = {.piece = piece->id, .row_count = piece->row_count};
        assert_int_equal(world_load_piece(world, reader, 2, piece).status, SPEC_OK);
        struct sc_store_hosted hosted = sc_store_hosted_get(world->store, 2, &range);
        assert_non_null(hosted.slab);
        hosted.bytes[hosted.row_at + 700] ^= 4;
        sc_store_host_unpin(world->store->host, hosted.slab);
        assert_int_equal(world_load_piece(world, reader, 2, piece).status, SPEC_E_CORRUPT);
        assert_false(sc_store_hosted_has(world->store, 2, &range));
        assert_int_equal(world_load_piece(world, reader, 2, piece).status, SPEC_OK);
        sc_store_readers_close(reader, 1);
        world_free(world);
    }
}

/* Loads that end early leave nothing half filled, and nothing pinned. */
static void what_ends_early_leaves_nothing(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < SETUPS; i++)
        for (uint32_t runs = 0; runs < 12; runs++) {
            struct world *world = world_hosted(&setups[i], 8u << 20, runs);
            if (world == NULL)
                continue;
            assert_int_equal(world_store(world, 1, 0, 200), SPEC_OK);
            struct sc_store_reader *reader = world_reader(world);
            struct sc_store_range ranges[4];
            assert_in_range(world->piece_count, 1, 4);
            for (uint32_t p = 0; p < world->piece_count; p++)
                ranges[p] = (struct sc_store_range){.piece = world->pieces[p].id,
                                                    .row_count = world->pieces[p].row_count};
            for (uint32_t way = 0; way < 3; way++) {
                sc_store_reader_begin(reader, 0, ranges, world->piece_count, SC_LANE_DEMAND);
                for (uint32_t r = 0; r < runs; r++) {
                    struct sc_store_rows rows;
                    assert_int_equal(
                        sc_store_reader_next(reader, SC_EXEC_FOREVER, NULL, &rows, &world->error),
                        SPEC_OK);
                }
                sc_store_reader_cancel(reader);
            }
            load_all(world, 1);
            sc_store_readers_close(reader, 1);
            world_free(world); /* asserts that nothing is pinned */
        }
}

/* Room for a third of what is loaded (of the last, for all), by several readers in turn. */
static void evictions_beside_loads_are_right(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < SETUPS; i++) {
        struct world *world = world_hosted(&setups[i], 2u << 20, 5);
        if (world == NULL)
            continue;
        for (uint64_t key = 1; key <= 4; key++)
            assert_int_equal(world_store(world, key, key * 7, 150), SPEC_OK);
        for (uint32_t round = 0; round < 30; round++)
            load_all(world, round % 2 == 0 ? 1 : 2 + round / 2 % 3);
        struct sc_store_host_stats stats;
        sc_store_host_stats(world->store->host, &stats);
        assert_in_range(stats.bytes_used, 1, 2u << 20);
        assert_true(stats.hits > 0);
        world_free(world);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_second_load_reads_nothing),
        cmocka_unit_test(parts_and_mixtures_are_right),
        cmocka_unit_test(rot_in_memory_is_found),
        cmocka_unit_test(what_ends_early_leaves_nothing),
        cmocka_unit_test(evictions_beside_loads_are_right),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
