/* The device model (store/device.c): measured once when there are rows enough and nobody reads,
 * kept in a file, and believed only when that is whole.
 *
 * Threads: the fixture's. */
#include "tests/unit/store/store_fixture.h"

static const struct world_setup setup = {.name = "sim, 8 KiB rows",
                                         .backend = SC_BACKEND_SIM,
                                         .layers = 4,
                                         .k_row_bytes = 4096,
                                         .disk_bytes = 512u << 20,
                                         .segment_bytes = 32u << 20,
                                         .op_bytes = 256u << 10};

static struct sc_store_device model_of(const struct world *world)
{
    struct sc_store_device device;
    sc_store_device(world->store, &device);
    return device;
}

static void run_all(struct world *world)
{
    while (sc_exec_step_one(world->exec)) {
    }
}

/* 16 MiB an extent. */
static void store_passes(struct world *world, uint64_t first, uint64_t count)
{
    world->config.stage_bytes = 64u << 20;
    for (uint64_t i = 0; i < count; i++)
        assert_int_equal(world_store(world, first + i, 0, 512), SPEC_OK);
}

static struct world *world_with(uint64_t passes)
{
    struct world *world = world_make(&setup, 3);
    world->config.stage_bytes = 64u << 20;
    sc_io_sim_disk_device(
        world->disk, &(const struct sc_io_sim_device){.bytes_per_s = 2000000000u, .op_ns = 100000});
    world_open_ok(world);
    store_passes(world, 1, passes);
    return world;
}

static void device_path(const struct world *world, char path[SC_LIMIT_PATH_BYTES + 64])
{
    (void)snprintf(path, SC_LIMIT_PATH_BYTES + 64, "%.4000s/rank-0000-of-0001/device",
                   world->config.path);
}

static void device_is_measured_once_there_are_rows_and_kept(void **state)
{
    (void)state;
    struct world *world = world_with(3);
    struct sc_store_stats before, after;
    run_all(world);
    assert_false(model_of(world).is_measured); /* 48 MiB: too little */
    assert_true(model_of(world).bytes_per_s > 0);
    assert_true(sc_store_device_gap(&(struct sc_store_device){2000000000, 4000, true}) == 8000);
    assert_true(sc_store_device_gap(&(struct sc_store_device){UINT64_MAX, UINT64_MAX, true}) ==
                64u << 10);
    store_passes(world, 10, 2);
    sc_store_stats(world->store, &before);
    run_all(world);
    sc_store_stats(world->store, &after);
    struct sc_store_device device = model_of(world);
    assert_true(device.is_measured);
    assert_true(device.bytes_per_s > 500000000 && device.bytes_per_s <= 2000000000);
    assert_true(device.op_ns >= 1 && device.op_ns < 100000); /* latencies overlap */
    assert_int_equal(before.read_ops, after.read_ops);       /* not what a host has asked for */
    assert_int_equal(after.stage_bytes_used, 0);
    world_close(world);
    world_open_ok(world);
    assert_int_equal(model_of(world).bytes_per_s, device.bytes_per_s);
    assert_int_equal(model_of(world).op_ns, device.op_ns);
    assert_true(model_of(world).is_measured);
    world_free(world);
}

static void device_file_that_is_damaged_is_not_believed(void **state)
{
    char path[SC_LIMIT_PATH_BYTES + 64];
    uint8_t byte;
    (void)state;
    struct world *world = world_with(5);
    run_all(world);
    assert_true(model_of(world).is_measured);
    world_close(world);
    device_path(world, path);
    for (uint64_t at = 0; sc_io_sim_disk_peek(world->disk, path, at, &byte, 1); at++) {
        byte ^= 1u << at % 8;
        assert_true(sc_io_sim_disk_poke(world->disk, path, at, &byte, 1));
        world_open_ok(world);
        assert_false(model_of(world).is_measured);
        world_close(world);
        byte ^= 1u << at % 8;
        assert_true(sc_io_sim_disk_poke(world->disk, path, at, &byte, 1));
    }
    assert_true(sc_io_sim_disk_resize(world->disk, path, 30)); /* torn */
    world_open_ok(world);
    assert_false(model_of(world).is_measured);
    store_passes(world, 20, 1); /* and it is measured anew */
    run_all(world);
    assert_true(model_of(world).is_measured);
    world_close(world);
    world_open_ok(world);
    assert_true(model_of(world).is_measured);
    world_free(world);
}

static void device_waits_while_others_read_and_ends_with_the_store(void **state)
{
    (void)state;
    struct world *world = world_with(5);
    struct sc_store_reader *reader = world_reader(world);
    struct sc_store_range range = {.piece = world->pieces[0].id, .row_count = 64};
    struct sc_store_rows rows;
    sc_store_reader_begin(reader, 0, &range, 1, SC_LANE_DEMAND); /* frames that nobody consumes */
    run_all(world);
    assert_false(model_of(world).is_measured);
    while (sc_store_reader_next(reader, SC_EXEC_FOREVER, &rows, NULL) == SPEC_OK &&
           rows.row_count > 0) {
    }
    sc_store_reader_close(reader);
    store_passes(world, 20, 1); /* the next commit tries again */
    sc_io_sim_fault_nth(world->disk, SC_SIM_READ_EIO, 3);
    run_all(world); /* a read that fails: later again */
    assert_true(model_of(world).is_measured);
    assert_int_equal(sc_io_sim_fault_fired(world->disk, SC_SIM_READ_EIO), 1);
    world_free(world);

    for (uint32_t steps = 0; steps < 400; steps += 7) { /* closed in every state of it */
        world = world_with(4);
        for (uint32_t i = 0; i < steps; i++)
            (void)sc_exec_step_one(world->exec);
        world_free(world);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(device_is_measured_once_there_are_rows_and_kept),
        cmocka_unit_test(device_file_that_is_damaged_is_not_believed),
        cmocka_unit_test(device_waits_while_others_read_and_ends_with_the_store),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
