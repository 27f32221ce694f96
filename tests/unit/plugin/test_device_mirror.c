/* Keys and codes go up once, as they are, and what the device reads of them stays until it has: see
 * plugin/device/mirror.h. That loads and choices are those of the host's memory either way,
 * test_device_loads.c and test_device_queries.c say.
 *
 * Holds: a stream that is held (fake_hold) runs nothing, and who waits for it ends the process. */
#include "tests/unit/plugin/device_fixture.h"

#include "gpu/work.h"
#include "plugin/device/mirror.h"

#define MATCHED      390u
#define LAYERS       3u
#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static struct device_host host;

static const struct rig_rope HALF = {.kind = SPEC_ROPE_HALF, .theta = 10000};

static void open_with(struct world *world, const char *extra)
{
    device_host_open(&host, 0);
    *world = (struct world){.matched = MATCHED, .group = 2, .agree = 3, .is_uneven = true};
    world_make(world, true, extra, LAYERS, 4, 32, MATCHED + 3);
    world->rig.rope = HALF;
    world_open_stored(world);
    wait_for_codes(world);
}

static void close_all(struct world *world)
{
    world_done(world);
    device_host_end(&host, "mirror");
}

static void shot_of(struct shot *shot, const struct world *world, spec_request request,
                    uint32_t layer)
{
    shot_make(shot, world, request, layer, 0, 100000);
    shot->select.given = SPEC_SELECT_EXACT;
}

/* The run of the layer's sketch, held by it. */
static struct sc_store_run run_of(struct world *world, spec_request handle, uint32_t layer)
{
    spec_connector *conn = world->rig.conn;
    struct sc_plugin_request *request = sc_plugin_request_find(conn, handle);
    struct sc_plugin_sketch *sketch = &request->sketches[layer % SC_PLUGIN_SKETCHES];
    struct sc_store_run run = {.at = NULL};
    assert_int_equal(sketch->layer, layer);
    assert_true(sc_store_run_of(conn->store, sc_store_sketch_keys(sketch->sketch), &run));
    return run;
}

/* ---- Once ----------------------------------------------------------------------------------- */

/* Bytes that go up for a layer whose queries and destination are there, beside the queries. */
static uint64_t fire_bytes(struct world *world, spec_request request, uint32_t layer)
{
    struct shot shot;
    shot_of(&shot, world, request, layer);
    shot.select.exact_ppm = 0; /* no rows */
    struct pass_there pass = pass_there_make(&host, &shot.pass, true, false);
    struct there there = there_make(&host, &shot.area);
    uint64_t before = fake_bytes_in();
    assert_int_equal(fire(world, &shot), SPEC_OK);
    uint64_t bytes = fake_bytes_in() - before;
    there_read(&there, &shot.area);
    there_free(&there);
    pass_there_free(&pass);
    shot_free(&shot);
    return bytes;
}

static void codes_go_up_once(void **state)
{
    static const char *const PRESETS[] = {"layered-even", "layered"};
    (void)state;
    fake_policy(FAKE_LAZY, 1);
    for (uint32_t p = 0; p < COUNT(PRESETS); p++) {
        struct world world;
        char extra[96];
        uint64_t bytes[2];
        (void)snprintf(extra, sizeof(extra), "\"preset\": \"%s\", \"gpu\": {\"mirror\": \"no\"}",
                       PRESETS[p]);
        open_with(&world, extra);
        spec_request request = look(&world, 0);
        bytes[0] = fire_bytes(&world, request, 1);
        rig_release(&world.rig, request);
        close_all(&world);
        (void)snprintf(extra, sizeof(extra), "\"preset\": \"%s\"", PRESETS[p]);
        open_with(&world, extra);
        request = look(&world, 0);
        bytes[1] = fire_bytes(&world, request, 1);
        struct sc_store_run run = run_of(&world, request, 1);
        uint64_t again = fire_bytes(&world, request, 1);
        assert_int_equal(bytes[1], run.bytes + again); /* what boxes have each time */
        /* Of 4 heads of 32 channels, in 2 bits or more: K's twice and V's. */
        assert_true(bytes[0] >= again + MATCHED * 3 * (4 * 32 * 2 / 8));
        rig_release(&world.rig, request);
        close_all(&world);
    }
}

/* ---- For as long as it is read -------------------------------------------------------------- */

/* A layer is on its way behind the host's work, its request is gone, and others, in whose memory it
 * might have stood, go up: what arrives is what was asked for. */
static void what_is_read_stays(void **state)
{
    static const char *const PRESETS[] = {"layered-even", "layered"};
    (void)state;
    for (uint32_t p = 0; p < COUNT(PRESETS); p++) {
        struct world world;
        struct shot plain, shots[LAYERS];
        struct there there[LAYERS];
        struct sc_store_run runs[LAYERS];
        char extra[128];
        (void)snprintf(extra, sizeof(extra),
                       "\"preset\": \"%s\", \"select\": {\"sketch_bytes\": \"512KiB\"}, \"gpu\": "
                       "{\"device\": 0}",
                       PRESETS[p]);
        fake_policy(FAKE_EAGER, 1);
        open_with(&world, extra);
        spec_connector *conn = world.rig.conn;
        for (uint32_t layer = 0; layer < LAYERS; layer++) {
            spec_ticket ticket;
            spec_request request = look(&world, 0);
            shot_of(&shots[layer], &world, request, layer);
            there[layer] = there_make(&host, &shots[layer].area);
            shots[layer].item.flags = SPEC_ITEM_AHEAD;
            shots[layer].item.queries = NULL;
            if (layer == 0)
                fake_hold(host.stream, 1);
            assert_int_equal(sc_plugin_submit(conn, &shots[layer].item, 1, &ticket, NULL), SPEC_OK);
            assert_int_equal(sc_plugin_submit_wait(conn, ticket, UINT64_MAX, NULL), SPEC_OK);
            runs[layer] = run_of(&world, request, layer);
            rig_release(&world.rig, request);
        }
        for (uint32_t layer = 0; layer < LAYERS; layer++) {
            struct sc_store_run now;
            assert_true(sc_store_run_of(conn->store, runs[layer].at, &now));
            assert_int_equal(now.serial, runs[layer].serial); /* nobody else's */
        }
        fake_hold(host.stream, 0);
        for (uint32_t layer = 0; layer < LAYERS; layer++) {
            spec_ticket ticket;
            spec_request request = look(&world, 0);
            there_read(&there[layer], &shots[layer].area);
            shot_of(&plain, &world, request, layer);
            plain.item.flags = SPEC_ITEM_AHEAD;
            plain.item.queries = NULL;
            assert_int_equal(sc_plugin_submit(conn, &plain.item, 1, &ticket, NULL), SPEC_OK);
            assert_int_equal(sc_plugin_submit_wait(conn, ticket, UINT64_MAX, NULL), SPEC_OK);
            assert_memory_equal(plain.area.bytes, shots[layer].area.bytes,
                                3 * RIG_GUARD + 2 * plain.area.part_bytes);
            rig_release(&world.rig, request);
            there_free(&there[layer]);
            shot_free(&plain);
            shot_free(&shots[layer]);
        }
        sc_plugin_mirror_reap(&conn->device);
        assert_int_equal(sc_store_sketch_bytes_used(conn->store), 0);
        close_all(&world);
    }
}

/* ---- Whose it is to bring ------------------------------------------------------------------- */

static void who_brings_it_is_followed(void **state)
{
    struct world world;
    struct shot shot;
    struct sc_store_run found;
    (void)state;
    fake_policy(FAKE_EAGER, 1);
    open_with(&world, "\"preset\": \"layered-even\", "
                      "\"gpu\": {\"device\": 0}");
    struct sc_plugin_device *device = &world.rig.conn->device;
    const uint8_t *somewhere = (const uint8_t *)&shot;
    assert_false(sc_plugin_mirror_up(device, 3, somewhere, false, &found));
    spec_request request = look(&world, 0);
    shot_of(&shot, &world, request, 1);
    assert_int_equal(fire(&world, &shot), SPEC_OK); /* of the host alone: nothing goes up */
    struct sc_store_run run = run_of(&world, request, 1);
    const uint8_t *inside = run.at + run.bytes - 1;
    void *held = device->gpu->slots[3].copies.stream;
    fake_hold(held, 1);
    uint64_t before = fake_bytes_in();
    assert_true(sc_plugin_mirror_up(device, 3, run.at, false, &found));
    assert_memory_equal(&found, &run, sizeof(run));
    assert_int_equal(fake_bytes_in(), before + run.bytes);
    assert_true(sc_plugin_mirror_up(device, 3, inside, false, &found)); /* behind its own copies */
    assert_true(sc_plugin_mirror_up(device, 3, inside, true, &found));
    assert_false(sc_plugin_mirror_up(device, 4, inside, false, &found)); /* it is not there yet */
    assert_false(sc_plugin_mirror_up(device, 4, inside, true, &found));
    fake_hold(held, 0);
    device_ok(host.cu->cuStreamSynchronize(held));
    assert_true(sc_plugin_mirror_up(device, 4, inside, true, &found)); /* and nobody had looked */
    assert_int_equal(fake_bytes_in(), before + run.bytes);
    shot_release(&shot, &world, request);

    /* The next one at that place is another. */
    request = look(&world, 0);
    shot_of(&shot, &world, request, 1);
    assert_int_equal(fire(&world, &shot), SPEC_OK);
    struct sc_store_run next = run_of(&world, request, 1);
    assert_ptr_equal(next.at, run.at);
    assert_true(next.serial > run.serial);
    before = fake_bytes_in();
    assert_true(sc_plugin_mirror_up(device, 4, next.at, false, &found));
    assert_int_equal(fake_bytes_in(), before + next.bytes);
    shot_release(&shot, &world, request);
    close_all(&world);
}

/* Who brought it up leaves at once, no box has it, and its request is gone. */
static void what_goes_up_stays_until_it_has(void **state)
{
    struct world world;
    struct shot shot;
    struct sc_store_run found, now;
    (void)state;
    fake_policy(FAKE_EAGER, 1);
    open_with(&world, "\"preset\": \"layered-even\", \"gpu\": {\"device\": 0}");
    spec_connector *conn = world.rig.conn;
    void *held = conn->device.gpu->slots[3].copies.stream;
    spec_request request = look(&world, 0);
    shot_of(&shot, &world, request, 1);
    assert_int_equal(fire(&world, &shot), SPEC_OK);
    struct sc_store_run run = run_of(&world, request, 1);
    fake_hold(held, 1);
    assert_true(sc_plugin_mirror_up(&conn->device, 3, run.at, false, &found));
    shot_release(&shot, &world, request);
    sc_plugin_mirror_reap(&conn->device);
    assert_int_equal(sc_store_sketch_bytes_used(conn->store), run.bytes);
    assert_true(sc_store_run_of(conn->store, run.at, &now));
    assert_int_equal(now.serial, run.serial);
    fake_hold(held, 0);
    device_ok(host.cu->cuStreamSynchronize(held));
    sc_plugin_mirror_reap(&conn->device);
    assert_int_equal(sc_store_sketch_bytes_used(conn->store), 0);
    close_all(&world);
}

/* Where all of a slot's flights are in the air, who never waits goes without, and leaves nothing.
 */
static void who_never_waits_goes_without(void **state)
{
    struct world world;
    struct shot shot;
    struct sc_store_run found;
    (void)state;
    fake_policy(FAKE_EAGER, 1);
    open_with(&world, "\"preset\": \"layered-even\", \"gpu\": {\"device\": 0}");
    struct sc_plugin_device *device = &world.rig.conn->device;
    struct sc_gpu_lane *lane = &device->gpu->slots[5].copies;
    spec_request request = look(&world, 0);
    shot_of(&shot, &world, request, 1);
    assert_int_equal(fire(&world, &shot), SPEC_OK);
    struct sc_store_run run = run_of(&world, request, 1);
    fake_hold(lane->stream, 1);
    while (sc_gpu_flight_begin(device->gpu, lane)) {
        struct sc_gpu_entry entry;
        assert_int_equal(sc_gpu_enter(device->gpu, &entry, NULL), SPEC_OK);
        assert_int_equal(
            sc_gpu_copy_in(device->gpu, lane, device->range.at, device->host, 64, NULL), SPEC_OK);
        assert_int_equal(sc_gpu_flight_depart(device->gpu, lane, NULL), SPEC_OK);
        sc_gpu_leave(device->gpu, &entry);
    }
    uint64_t before = fake_bytes_in();
    assert_false(sc_plugin_mirror_up(device, 5, run.at, true, &found));
    assert_true(sc_plugin_mirror_up(device, 6, run.at, true, &found));
    assert_int_equal(fake_bytes_in(), before + run.bytes);
    fake_hold(lane->stream, 0);
    shot_release(&shot, &world, request);
    sc_plugin_mirror_reap(device);
    assert_int_equal(sc_store_sketch_bytes_used(world.rig.conn->store), 0);
    close_all(&world);
}

/* ---- Whatever memory there is --------------------------------------------------------------- */

/* The same layer, here and there. */
static void assert_alike(struct world *world, uint32_t layer)
{
    struct shot plain, asked;
    spec_request request = look(world, 0);
    shot_of(&plain, world, request, layer);
    assert_int_equal(fire(world, &plain), SPEC_OK);
    shot_of(&asked, world, request, layer);
    struct pass_there pass = pass_there_make(&host, &asked.pass, true, true);
    struct there there = there_make(&host, &asked.area);
    assert_int_equal(fire(world, &asked), SPEC_OK);
    there_read(&there, &asked.area);
    assert_memory_equal(plain.exact, asked.exact, sizeof(plain.exact));
    assert_memory_equal(plain.area.bytes, asked.area.bytes,
                        3 * RIG_GUARD + 2 * plain.area.part_bytes);
    there_free(&there);
    pass_there_free(&pass);
    shot_free(&plain);
    shot_release(&asked, world, request);
}

static void sketches_memory_is_of_any_size(void **state)
{
    static const char *const SIZES[] = {"0", "1", "65535", "65536", "65537", "393217", "\"1TiB\""};
    (void)state;
    fake_policy(FAKE_LAZY, 1);
    for (uint32_t i = 0; i < COUNT(SIZES); i++) {
        struct world world;
        char extra[96];
        (void)snprintf(extra, sizeof(extra),
                       "\"preset\": \"layered-even\", \"select\": {\"sketch_bytes\": %s}",
                       SIZES[i]);
        open_with(&world, extra);
        for (uint32_t layer = 0; layer < LAYERS; layer++)
            assert_alike(&world, layer);
        assert_int_equal(world.rig.conn->device.mirror.base != NULL, i >= 3);
        close_all(&world);
    }
}

/* Where there is no memory for a twin, or it cannot be pinned, there is no device, for as long as
 * the connector is open, and host memory is loaded as before. Another connector has what it needs.
 */
static void without_a_twin_there_is_no_device(void **state)
{
    static const struct {
        const char *call;
        int n;
    } REFUSED[] = {{"cuMemAlloc", 1}, {"cuMemHostRegister", 2}, {"cuMemHostGetDevicePointer", 2}};
    (void)state;
    fake_policy(FAKE_LAZY, 1);
    for (uint32_t i = 0; i < COUNT(REFUSED); i++) {
        struct world world;
        struct shot shot;
        struct spec_error error = {.struct_size = sizeof(error)};
        open_with(&world, "\"preset\": \"layered-even\"");
        spec_request request = look(&world, 0);
        shot_of(&shot, &world, request, 1);
        assert_int_equal(fire(&world, &shot), SPEC_OK);
        struct there there = there_make(&host, &shot.area);
        fake_fault(REFUSED[i].call, REFUSED[i].n, 2);
        for (uint32_t turn = 0; turn < 2; turn++) {
            assert_int_equal(sc_plugin_get_important(world.rig.conn, &shot.item, 1, &error),
                             SPEC_E_UNSUPPORTED);
            assert_true(error.text[0] != '\0');
            assert_int_equal(fake_fired(), 1);
        }
        fake_fault("cuInit", 0, 0);
        there_free(&there);
        shot_free(&shot);
        shot_of(&shot, &world, request, 1);
        assert_int_equal(fire(&world, &shot), SPEC_OK);
        shot_release(&shot, &world, request);
        struct world beside;
        struct device_host first = host;
        open_with(&beside, "\"preset\": \"layered-even\"");
        assert_alike(&beside, 1);
        world_done(&beside);
        device_host_close(&host);
        host = first;
        close_all(&world);
    }
}

/* Each has a twin of its own, and its own runs. */
static void two_connectors_have_a_device(void **state)
{
    (void)state;
    for (uint32_t policy = FAKE_EAGER; policy <= FAKE_RANDOM; policy++) {
        struct world worlds[2];
        struct device_host first;
        fake_policy((enum fake_policy)policy, 1);
        open_with(&worlds[0], "\"preset\": \"layered-even\"");
        first = host;
        open_with(&worlds[1], "\"preset\": \"layered\"");
        for (uint32_t turn = 0; turn < 4; turn++)
            assert_alike(&worlds[turn % 2], turn % LAYERS);
        world_done(&worlds[1]);
        assert_alike(&worlds[0], 1);
        device_host_close(&host);
        host = first;
        close_all(&worlds[0]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(codes_go_up_once),
        cmocka_unit_test(what_is_read_stays),
        cmocka_unit_test(who_brings_it_is_followed),
        cmocka_unit_test(what_goes_up_stays_until_it_has),
        cmocka_unit_test(who_never_waits_goes_without),
        cmocka_unit_test(sketches_memory_is_of_any_size),
        cmocka_unit_test(without_a_twin_there_is_no_device),
        cmocka_unit_test(two_connectors_have_a_device),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
