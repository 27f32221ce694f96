/* Power cuts after rows got another order: the pages of what stood before are others' by then, so
 * the record that says so must be there for good. On the simulated disk.
 *
 * Threads: the loop's. */
#include "tests/unit/plugin/select_fixture.h"

#define LAYERS 3u
#define ROWS   200u
#define CUTS   60u

static struct rig rig;

static void maintain(uint32_t flags)
{
    assert_int_equal(rig_maintain(&rig, flags), SPEC_OK);
    rig_background(&rig);
}

static void rows_store(const struct world *world)
{
    struct prompt prompt = {ROWS, world->prompt.tokens, world->prompt.history};
    struct spec_lookup_result found;
    spec_ticket ticket = 0;
    assert_int_equal(rig_try_lookup(&rig, &prompt, 0, RIG_MAX, &found), SPEC_OK);
    for (uint32_t layer = 0; layer < LAYERS; layer++) {
        struct area area = world_area(world, 0, ROWS, layer);
        const struct spec_store_params params =
            rig_store_params(found.request, layer, 0, ROWS, &area.memory);
        assert_int_equal(sc_plugin_store(rig.conn, &params, 1, &ticket, NULL), SPEC_OK);
        rig_area_free(&area);
    }
    assert_int_equal(rig_wait(&rig, ticket), SPEC_OK);
    rig_release(&rig, found.request);
}

/* All layers of what is promised; returns the worst. */
static spec_status rows_load(struct rig *reading, struct world *world)
{
    struct prompt prompt = {ROWS, world->prompt.tokens, world->prompt.history};
    struct spec_lookup_result found;
    uint32_t positions[2 * ROWS]; /* heads may part */
    spec_status status = SPEC_OK;
    assert_int_equal(rig_try_lookup(reading, &prompt, 0, RIG_MAX, &found), SPEC_OK);
    assert_int_equal(found.matched_tokens, ROWS);
    world->matched = ROWS;
    for (uint32_t layer = 0; layer < LAYERS && status == SPEC_OK; layer++) {
        struct area area = rig_area(reading, ROWS);
        struct pass pass = world_pass(world, layer, reading->dtype);
        struct spec_important item = {.struct_size = sizeof(item),
                                      .request = found.request,
                                      .layer = layer,
                                      .queries = &pass.q,
                                      .new_keys = &pass.fresh.memory,
                                      .destination = &area.memory,
                                      .positions = positions,
                                      .position_capacity = 2 * ROWS};
        status = sc_plugin_get_important(reading->conn, &item, 1, NULL);
        rig_area_free(&area);
        pass_free(&pass);
    }
    rig_release(reading, found.request);
    return status;
}

/* What is on the disk is there for good from here on. */
static void disk_settle(void)
{
    struct sc_io_sim_disk *disk;
    rig_close(&rig);
    assert_int_equal(sc_io_sim_disk_copy(rig.disk, &disk, NULL), SPEC_OK);
    sc_io_sim_disk_close(rig.disk);
    rig.disk = disk;
    rig_open(&rig);
}

static void one_permuted_copy_is_whole_after_every_cut(void **state)
{
    (void)state;
    struct world worlds[4];
    rig_init(&rig, true,
             "\"preset\": \"impress\", \"select\": {\"retain_ppm\": 250000, \"min_tokens\": 0, "
             "\"min_share_ppm\": 0}, \"chunk_tokens\": 16, \"disk_bytes\": \"16MiB\", "
             "\"segment_bytes\": \"4MiB\", \"host_bytes\": \"1MiB\", \"upper_bytes\": \"1MiB\", "
             "\"lease_ns_max\": 1000000000, \"maintain\": {\"bytes_per_s\": 0}, "
             "\"reorder\": {\"interval_s\": 0}");
    sc_io_sim_disk_close(rig.disk);
    struct sc_io_sim_disk_params params = {.alloc = &rig.disk_alloc, .seed = 1, .journal = 1};
    assert_int_equal(sc_io_sim_disk_open(&params, &rig.disk, NULL), SPEC_OK);
    rig_shape(&rig, LAYERS, 2, 256, SPEC_DTYPE_F16);
    rig.query_group = 2;
    rig_open(&rig);
    for (uint64_t p = 0; p < 4; p++)
        worlds[p] = (struct world){.rig = rig,
                                   .prompt = rig_prompt(p + 1, 0, 0, ROWS + FRESH_ROWS),
                                   .group = 2,
                                   .agree = 4};
    rows_store(&worlds[0]);
    rig_pass_ns(&rig, UINT64_C(5000000000));
    maintain(SPEC_MAINTAIN_CHECKPOINT);
    disk_settle();
    for (uint32_t p = 0; p < 4; p++)
        worlds[p].rig = rig;
    for (uint32_t i = 0; i < 3; i++)
        assert_int_equal(rows_load(&rig, &worlds[0]), SPEC_OK);
    maintain(SPEC_MAINTAIN_CHECKPOINT);
    maintain(SPEC_MAINTAIN_REORDER);
    rig_pass_ns(&rig, UINT64_C(20000000000));
    struct sc_store_stats stats = rig_store_stats(&rig);
    assert_true(stats.permuted_pieces > 0);
    for (uint32_t i = 1; i < 4; i++) { /* in the pages of the first edition */
        rows_store(&worlds[i]);
        rig_pass_ns(&rig, UINT64_C(3000000000));
    }
    for (uint64_t seed = 0; seed < CUTS; seed++) {
        struct sc_io_sim_disk *disk;
        struct rig reading;
        uint64_t events = sc_io_sim_disk_events(rig.disk);
        assert_int_equal(sc_io_sim_disk_fork(rig.disk, events, seed, &disk, NULL), SPEC_OK);
        rig_beside(&reading, &rig, 0, 0);
        reading.disk = disk;
        rig_open(&reading);
        struct world world = worlds[0];
        world.rig = reading;
        if (rows_load(&reading, &world) != SPEC_OK)
            fail_msg("seed %lu: neither edition is whole", seed);
        rig_leave(&reading);
        sc_io_sim_disk_close(disk);
    }
    for (uint64_t p = 0; p < 4; p++)
        rig_prompt_free(&worlds[p].prompt);
    rig_done(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_permuted_copy_is_whole_after_every_cut)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
