/* A device that fails, and hosts that are wrong. Every call of the driver that attaching and a load
 * make fails once, a context dies at every step: a status comes back, or the bytes are right; what
 * was enqueued and told to have failed writes nothing later; host memory is loaded as before; a
 * later load to the device is UNSUPPORTED and says why; nothing is left in the driver.
 *
 *   open | fault armed: load to the device | disarmed: host memory, the device again | close
 *
 * Holds: what is refused has enqueued nothing, and a capture is intact (the fake ends the process
 * where it is not). */
#include "tests/unit/plugin/device_fixture.h"

#define MATCHED 130u
#define LAYERS  2u

static const char *const CALLS[] = {
#define X(name, version, arguments) #name,
    SC_CU_CALLS(X)
#undef X
};
#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static const struct rig_rope HALF = {.kind = SPEC_ROPE_HALF, .theta = 10000};
/* One stores rows alone; the others are layered, by even codes and by free ones. */
#define WHOLE "\"preset\": \"as-like\""
#define ON_0  ", \"gpu\": {\"device\": 0}"
#define EVEN  "\"preset\": \"layered-uniform\""
#define FREE  "\"preset\": \"layered\""

static void scene_open(struct world *world, const char *extra)
{
    *world = (struct world){.matched = MATCHED, .group = 2, .agree = 8, .is_uneven = true};
    world_make(world, true, extra, LAYERS, 3, 16, MATCHED + 3);
    world->rig.rope = HALF;
    world_open_stored(world);
    wait_for_quant(world);
}

static void shot_on(struct shot *shot, const struct world *world, spec_request request,
                    uint32_t layer)
{
    shot_make(shot, world, request, layer, 0, 100000);
    if (world->rig.conn->config.base != SC_BASE_QUANTISED)
        shot->select.given = 0;
}

/* One call, whose item has the call's status. */
static spec_status fire_one(struct world *world, struct shot *shot)
{
    world->rig.error = (struct spec_error){.struct_size = sizeof(world->rig.error)};
    spec_status status =
        sc_plugin_get_important(world->rig.conn, &shot->item, 1, &world->rig.error);
    assert_int_equal(world->rig.error.code, status);
    return status;
}

/* The same load to plain memory, whose bytes are a copy of an area. */
static uint8_t *plain_load(struct world *world, spec_request request, uint32_t layer)
{
    struct shot plain;
    shot_on(&plain, world, request, layer);
    assert_int_equal(fire_one(world, &plain), SPEC_OK);
    uint8_t *bytes = plain.area.bytes;
    plain.area.bytes = NULL;
    shot_free(&plain);
    return bytes;
}

static void assert_is_right(struct world *world, const struct there *there, struct shot *shot)
{
    uint8_t *right = plain_load(world, shot->item.request, shot->item.layer);
    there_read(there, &shot->area);
    assert_memory_equal(shot->area.bytes, right, there->used);
    free(right);
}

/* ---- What is refused ------------------------------------------------------------------------ */

static void assert_refused(struct world *world, struct shot *shot, const char *what)
{
    uint64_t enqueued = fake_enqueued();
    int depth = fake_depth(), mode = fake_mode();
    shot->item.status = SPEC_PENDING; /* poison: nothing of the item is written */
    spec_status status = fire_one(world, shot);
    if (status != SPEC_E_INVALID)
        fail_msg("%s: %s: %s", what, sc_status_name(status), world->rig.error.text);
    assert_int_equal(shot->item.status, SPEC_PENDING);
    assert_int_equal(fake_enqueued(), enqueued);
    assert_int_equal(fake_depth(), depth);
    assert_int_equal(fake_mode(), mode);
}

struct scene {
    struct device_host host;
    struct world world;
    spec_request request;
    struct shot shot;
    struct there there;
};

static void scene_begin(struct scene *scene, const char *extra, enum fake_policy policy)
{
    fake_policy(policy, 1);
    device_host_open(&scene->host, 0);
    scene_open(&scene->world, extra);
    scene->request = look(&scene->world, 0);
    shot_on(&scene->shot, &scene->world, scene->request, 1);
    scene->there = there_make(&scene->host, &scene->shot.area);
}

static void scene_leave(struct scene *scene)
{
    there_free(&scene->there);
    shot_free(&scene->shot);
    if (scene->world.rig.conn != NULL)
        rig_release(&scene->world.rig, scene->request);
    world_done(&scene->world);
    device_host_close(&scene->host);
}

static void scene_end(struct scene *scene)
{
    scene_leave(scene);
    device_assert_clean("scene");
}

static void assert_goes_on(struct scene *scene)
{
    assert_int_equal(fire_one(&scene->world, &scene->shot), SPEC_OK);
    assert_is_right(&scene->world, &scene->there, &scene->shot);
}

static void a_captured_stream_is_refused(void **state)
{
    (void)state;
    struct scene scene;
    scene_begin(&scene, FREE, FAKE_LAZY);
    for (int i = 0; i < 2; i++) { /* before the device is attached, and after */
        fake_capture(scene.host.stream, 1);
        assert_refused(&scene.world, &scene.shot, "captured");
        fake_capture(scene.host.stream, 0);
        assert_goes_on(&scene);
    }
    scene_end(&scene);
}

static void captures_on_other_streams_stay_whole(void **state)
{
    (void)state;
    struct scene scene;
    sc_cu_stream other;
    scene_begin(&scene, FREE, FAKE_LAZY);
    device_ok(scene.host.cu->cuStreamCreate(&other, SC_CU_STREAM_NON_BLOCKING));
    fake_capture(other, 1);
    assert_int_equal(fire_one(&scene.world, &scene.shot), SPEC_OK); /* attaches, too */
    fake_capture(other, 0);
    assert_is_right(&scene.world, &scene.there, &scene.shot);
    device_ok(scene.host.cu->cuStreamDestroy(other));
    scene_end(&scene);
}

/* Between submit and wait: nothing is put on the stream; when wait is back nothing is written. */
static void a_stream_that_is_captured_meanwhile_is_refused(void **state)
{
    (void)state;
    struct scene scene;
    spec_ticket ticket;
    scene_begin(&scene, FREE, FAKE_LAZY);
    assert_int_equal(sc_plugin_submit(scene.world.rig.conn, &scene.shot.item, 1, &ticket, NULL),
                     SPEC_OK);
    fake_capture(scene.host.stream, 1);
    struct spec_error error = {.struct_size = sizeof(error)};
    spec_status status = sc_plugin_submit_wait(scene.world.rig.conn, ticket, UINT64_MAX, &error);
    fake_capture(scene.host.stream, 0);
    assert_int_equal(scene.shot.item.status, SPEC_E_INVALID);
    assert_int_equal(status, SPEC_E_INVALID);
    assert_int_equal(error.code, status);
    there_put(&scene.there);
    device_ok(scene.host.cu->cuStreamSynchronize(scene.host.stream));
    device_ok(scene.host.cu->cuCtxSynchronize()); /* whatever there is runs */
    assert_true(there_is_untouched(&scene.there, &scene.shot.area));
    assert_goes_on(&scene);
    scene_end(&scene);
}

/* Each of these, when nothing is attached yet, and when the device is. */
static void wrong_memory(struct scene *scene, struct device_host *second)
{
    struct spec_memory *memory = &scene->shot.area.memory, right = *memory;
    uint8_t *plain = calloc(1, scene->there.bytes);
    sc_cu_ptr far;
    assert_non_null(plain);
    device_ok(second->cu->cuCtxPushCurrent(second->context));
    device_ok(second->cu->cuMemAlloc(&far, scene->there.bytes));
    device_ok(second->cu->cuCtxPopCurrent(NULL));
    memory->v_base = plain;
    assert_refused(&scene->world, &scene->shot, "plain memory");
    memory->v_base = scene->there.pinned;
    assert_refused(&scene->world, &scene->shot, "pinned memory");
    *memory = right;
    memory->k_base = plain;
    assert_refused(&scene->world, &scene->shot, "K in plain memory");
    memory->k_base = (void *)(uintptr_t)far;
    assert_refused(&scene->world, &scene->shot, "K on another device");
    *memory = right;
    memory->v_base = (void *)(uintptr_t)far;
    assert_refused(&scene->world, &scene->shot, "V on another device");
    *memory = right;
    memory->v_bytes = scene->there.bytes;
    assert_refused(&scene->world, &scene->shot, "V that ends beyond");
    *memory = right;
    memory->k_bytes = UINT64_MAX;
    assert_refused(&scene->world, &scene->shot, "K that wraps");
    *memory = right;
    memory->stream = second->stream;
    assert_refused(&scene->world, &scene->shot, "another context's stream");
    *memory = right;
    memory->device_index = -1;
    assert_refused(&scene->world, &scene->shot, "device -1");
    memory->device_index = INT32_MIN;
    assert_refused(&scene->world, &scene->shot, "the least device");
    *memory = right;
    memory->device = 7;
    assert_refused(&scene->world, &scene->shot, "a kind of memory that is none");
    *memory = right;
    device_ok(second->cu->cuMemFree(far));
    free(plain);
}

static void memory_that_is_not_the_devices_is_refused(void **state)
{
    (void)state;
    struct scene scene;
    struct device_host second;
    fake_policy(FAKE_LAZY, 1);
    device_host_open(&second, 1);
    device_ok(second.cu->cuCtxPopCurrent(NULL));
    scene_begin(&scene, FREE, FAKE_LAZY);
    wrong_memory(&scene, &second);
    assert_goes_on(&scene);
    wrong_memory(&scene, &second);
    scene.shot.area.memory.device_index = 1;
    assert_refused(&scene.world, &scene.shot, "another device than the connector's");
    scene.shot.area.memory.device_index = 63;
    assert_refused(&scene.world, &scene.shot, "a device that is not there");
    scene.shot.area.memory.device_index = 0;
    assert_goes_on(&scene);
    scene_leave(&scene);
    device_ok(second.cu->cuCtxPushCurrent(second.context));
    device_host_end(&second, "both devices");
}

/* A device that does not exist is the host's mistake, and not the end of the one that does. */
static void a_wrong_ordinal_first_leaves_the_right_one(void **state)
{
    (void)state;
    struct scene scene;
    scene_begin(&scene, WHOLE, FAKE_LAZY);
    scene.shot.area.memory.device_index = 5;
    spec_status status = fire_one(&scene.world, &scene.shot);
    assert_true(status == SPEC_E_UNSUPPORTED || status == SPEC_E_INVALID);
    assert_non_null(strstr(scene.world.rig.error.text, "5"));
    scene.shot.area.memory.device_index = 0;
    assert_goes_on(&scene);
    scene_end(&scene);
}

/* ---- Faults --------------------------------------------------------------------------------- */

/* What the connector still does after a load that ended so. */
static void afterwards(struct scene *scene, spec_status status, const char *call, int n)
{
    struct world *world = &scene->world;
    if (status != SPEC_OK && status != SPEC_E_IO && status != SPEC_E_UNSUPPORTED &&
        status != SPEC_E_NO_MEMORY)
        fail_msg("%s number %d: %s: %s", call, n, sc_status_name(status), world->rig.error.text);
    uint8_t *right = plain_load(world, scene->request, 0); /* host memory goes on */
    free(right);
    if (status == SPEC_OK)
        return;
    spec_status again = fire_one(world, &scene->shot);
    if (again != SPEC_E_UNSUPPORTED || world->rig.error.text[0] == 0)
        fail_msg("%s number %d: then %s: %s", call, n, sc_status_name(again),
                 world->rig.error.text);
}

/* A load with a fault; whether that was met. What failed writes nothing any more: the host has put
 * there what was there, and it stays. */
static bool load_with_fault(struct scene *scene, const char *call, int n, int code,
                            enum fake_policy policy)
{
    struct world *world = &scene->world;
    rig_open(&world->rig);
    fake_policy(policy, (uint64_t)n);
    scene->request = look(world, 0);
    shot_on(&scene->shot, world, scene->request, 1);
    uint8_t *right = plain_load(world, scene->request, 1);
    scene->there = there_make(&scene->host, &scene->shot.area);
    fake_fault(call, n, code);
    spec_status status = fire_one(world, &scene->shot);
    bool is_met = fake_fired() != 0;
    fake_fault(NULL, 0, 0);
    assert_true(status == SPEC_OK || is_met);
    assert_int_equal(fake_depth(), 1);
    assert_int_equal(fake_mode(), 0);
    if (status == SPEC_OK) {
        there_read(&scene->there, &scene->shot.area);
        assert_memory_equal(scene->shot.area.bytes, right, scene->there.used);
    } else {
        there_put(&scene->there); /* the host goes on, on its own stream */
        device_ok(scene->host.cu->cuStreamSynchronize(scene->host.stream));
    }
    afterwards(scene, status, call, n);
    rig_release(&world->rig, scene->request);
    if (!is_met)
        fake_fault(call, 1, code); /* at close, then */
    rig_close(&world->rig);
    fake_fault(NULL, 0, 0);
    if (status != SPEC_OK && !there_is_untouched(&scene->there, &scene->shot.area))
        fail_msg("%s number %d: what failed was written later", call, n);
    there_free(&scene->there);
    shot_free(&scene->shot);
    free(right);
    return is_met;
}

/* Of many alike (an attach makes a thousand events) some. */
static int next_of(int n)
{
    return n < 12 ? n + 1 : n + n / 4;
}

static unsigned faults_run(const char *extra, const char *const *calls, size_t count, int code,
                           enum fake_policy policy)
{
    struct scene scene;
    unsigned met = 0;
    scene_open(&scene.world, extra);
    rig_close(&scene.world.rig);
    for (size_t i = 0; i < count; i++)
        for (int n = 1, goes = 1; goes != 0; n = next_of(n)) {
            fake_policy(FAKE_EAGER, 1);
            device_host_open(&scene.host, 0);
            goes = load_with_fault(&scene, calls[i], n, code, policy);
            met += (unsigned)goes;
            fake_policy(FAKE_EAGER, 1);
            device_host_end(&scene.host, calls[i]);
        }
    world_done(&scene.world);
    return met;
}

static void each_call_may_fail(void **state)
{
    (void)state;
    unsigned met = faults_run(FREE, CALLS, COUNT(CALLS), SC_CU_OUT_OF_MEMORY, FAKE_LAZY);
    print_message("%u faults, each a status\n", met);
    assert_true(met > 150);
}

/* What a load makes of calls, on a device that is attached. */
static const char *const LOADS[] = {"cuMemcpyHtoDAsync",     "cuEventRecord",
                                    "cuStreamWaitEvent",     "cuLaunchKernel",
                                    "cuStreamIsCapturing",   "cuStreamGetCtx",
                                    "cuPointerGetAttribute", "cuThreadExchangeStreamCaptureMode",
                                    "cuCtxPushCurrent",      "cuCtxPopCurrent",
                                    "cuEventQuery",          "cuEventSynchronize"};

static void each_call_of_a_load_may_fail(void **state)
{
    (void)state;
    assert_true(faults_run(EVEN ON_0, LOADS, COUNT(LOADS), SC_CU_LAUNCH_FAILED, FAKE_STARVE) > 30);
    assert_true(faults_run(WHOLE ON_0, LOADS, COUNT(LOADS), SC_CU_LAUNCH_FAILED, FAKE_RANDOM) > 30);
}

/* ---- The whole device dies ------------------------------------------------------------------ */

static bool load_until_crash(const char *extra, int n)
{
    struct scene scene;
    scene_begin(&scene, extra, FAKE_LAZY);
    fake_crash(n, SC_CU_LAUNCH_FAILED);
    spec_status status = fire_one(&scene.world, &scene.shot);
    fake_crash(0, 0);
    if (status != SPEC_OK) {
        assert_true(status == SPEC_E_IO || status == SPEC_E_UNSUPPORTED);
        afterwards(&scene, status, "crash", n);
    }
    rig_release(&scene.world.rig, scene.request);
    rig_close(&scene.world.rig);
    fake_sticky(0);
    fake_policy(FAKE_EAGER, 1);
    scene_end(&scene);
    return status != SPEC_OK;
}

static void a_context_may_die_at_each_step(void **state)
{
    (void)state;
    static const char *const all[] = {WHOLE, EVEN, FREE};
    for (size_t w = 0; w < COUNT(all); w++) {
        int n = 1;
        while (load_until_crash(all[w], n))
            n++;
        assert_true(n > 5);
    }
}

/* ---- Open, close ---------------------------------------------------------------------------- */

static void a_device_that_is_configured_is_there_when_open_returns(void **state)
{
    (void)state;
    struct scene scene;
    scene_begin(&scene, WHOLE ON_0, FAKE_LAZY);
    uint64_t calls = fake_calls();
    assert_non_null(scene.world.rig.conn->device.gpu);
    assert_goes_on(&scene);
    assert_true(fake_calls() - calls < 200); /* it attaches no more: that is a thousand */
    scene.shot.area.memory.device_index = 1;
    assert_refused(&scene.world, &scene.shot, "another device than the configured one");
    scene_end(&scene);
}

static void open_fails_where_a_configured_device_cannot_be(void **state)
{
    (void)state;
    struct rig rig;
    rig_init(&rig, true, "\"preset\": \"as-like\", \"gpu\": {\"device\": 1}");
    fake_devices(1);
    assert_int_equal(rig_try_open(&rig), SPEC_E_UNSUPPORTED);
    assert_non_null(strstr(rig.error.text, "no CUDA device 1"));
    assert_int_equal(atomic_load(&rig.memory.live_blocks), 0);
    device_assert_clean("open");
    fake_devices(FAKE_DEVICES);
    fake_capability(70);
    assert_int_equal(rig_try_open(&rig), SPEC_E_UNSUPPORTED);
    assert_non_null(strstr(rig.error.text, "7.0"));
    fake_capability(90);
    rig_open(&rig);
    rig_close(&rig);
    device_assert_clean("open again");
    rig_done(&rig);
}

static void each_call_may_fail_at_open(void **state)
{
    (void)state;
    struct rig rig;
    unsigned met = 0;
    rig_init(&rig, true, WHOLE ON_0);
    for (size_t i = 0; i < COUNT(CALLS); i++)
        for (int n = 1, fired = 1; fired; n = next_of(n)) {
            fake_fault(CALLS[i], n, SC_CU_OUT_OF_MEMORY);
            spec_status status = rig_try_open(&rig);
            fired = fake_fired();
            fake_fault(NULL, 0, 0);
            if (fired ? status != SPEC_E_UNSUPPORTED : status != SPEC_OK)
                fail_msg("%s number %d: %s: %s", CALLS[i], n, sc_status_name(status),
                         rig.error.text);
            if (status == SPEC_OK)
                rig_close(&rig);
            assert_int_equal(atomic_load(&rig.memory.live_blocks), 0);
            device_assert_clean(CALLS[i]);
            met += fired != 0;
        }
    assert_true(met > 60);
    rig_done(&rig);
}

/* The host's allocations fail one by one while a device is attached: a status, and the next call
 * attaches. */
static void attaching_without_memory_is_a_status(void **state)
{
    (void)state;
    struct scene scene;
    bool is_over = false;
    scene_begin(&scene, WHOLE, FAKE_LAZY);
    for (int64_t n = 0; !is_over; n = next_of((int)n)) {
        uint64_t blocks = atomic_load(&scene.world.rig.memory.live_blocks);
        atomic_store(&scene.world.rig.memory.failed, 0);
        atomic_store(&scene.world.rig.memory.countdown, n);
        spec_status status = fire_one(&scene.world, &scene.shot);
        atomic_store(&scene.world.rig.memory.countdown, -1);
        is_over = atomic_load(&scene.world.rig.memory.failed) == 0;
        assert_int_equal(status, is_over ? SPEC_OK : SPEC_E_NO_MEMORY);
        if (!is_over)
            assert_int_equal(atomic_load(&scene.world.rig.memory.live_blocks), blocks);
    }
    assert_goes_on(&scene);
    scene_end(&scene);
}

static void nothing_is_allocated_once_it_is_attached(void **state)
{
    (void)state;
    static const char *const all[] = {WHOLE, EVEN, FREE};
    for (size_t w = 0; w < COUNT(all); w++) {
        struct scene scene;
        scene_begin(&scene, all[w], FAKE_LAZY);
        struct sc_alloc *alloc = &scene.world.rig.conn->alloc;
        assert_goes_on(&scene);
        sc_alloc_seal(alloc);
        for (int i = 0; i < 40; i++) /* more than a lane's flights */
            assert_int_equal(fire_one(&scene.world, &scene.shot), SPEC_OK);
        sc_alloc_unseal(alloc);
        assert_int_equal(atomic_load(&alloc->sealed_refusals), 0);
        assert_is_right(&scene.world, &scene.there, &scene.shot);
        scene_end(&scene);
    }
}

static void close_takes_back_what_flies(void **state)
{
    (void)state;
    for (uint32_t policy = FAKE_LAZY; policy <= FAKE_RANDOM; policy++)
        for (uint64_t seed = 1; seed < 6; seed++) {
            struct scene scene;
            scene_begin(&scene, FREE, (enum fake_policy)policy);
            fake_policy((enum fake_policy)policy, seed);
            uint8_t *right = plain_load(&scene.world, scene.request, 1);
            assert_int_equal(fire_one(&scene.world, &scene.shot), SPEC_OK);
            rig_release(&scene.world.rig, scene.request);
            rig_close(&scene.world.rig); /* the host has waited for nothing */
            there_read(&scene.there, &scene.shot.area);
            assert_memory_equal(scene.shot.area.bytes, right, scene.there.used);
            free(right);
            scene_end(&scene);
        }
}

/* ---- Several -------------------------------------------------------------------------------- */

/* Their streams and boxes are their own; either may go first. */
static void two_connectors_share_a_device(void **state)
{
    (void)state;
    for (uint32_t policy = FAKE_LAZY; policy <= FAKE_RANDOM; policy++) {
        struct scene scene;
        struct world other;
        struct shot shot;
        scene_begin(&scene, FREE, (enum fake_policy)policy);
        scene_open(&other, EVEN);
        spec_request request = look(&other, 0);
        shot_on(&shot, &other, request, 1);
        struct there there = there_make(&scene.host, &shot.area);
        for (int i = 0; i < 3; i++) {
            assert_int_equal(fire_one(&scene.world, &scene.shot), SPEC_OK);
            assert_int_equal(fire_one(&other, &shot), SPEC_OK);
        }
        assert_is_right(&other, &there, &shot);
        there_free(&there);
        shot_end(&shot, &other, request);
        assert_goes_on(&scene);
        scene_end(&scene);
    }
}

/* The host lets go of a request whose load is submitted; wait is due, and what it tells is so. */
static void a_request_may_be_released_while_it_is_loaded(void **state)
{
    (void)state;
    for (uint32_t policy = FAKE_EAGER; policy <= FAKE_RANDOM; policy++) {
        struct scene scene;
        spec_ticket ticket;
        scene_begin(&scene, FREE, (enum fake_policy)policy);
        assert_int_equal(sc_plugin_submit(scene.world.rig.conn, &scene.shot.item, 1, &ticket, NULL),
                         SPEC_OK);
        rig_release(&scene.world.rig, scene.request);
        spec_status status = sc_plugin_submit_wait(scene.world.rig.conn, ticket, UINT64_MAX, NULL);
        assert_int_equal(scene.shot.item.status, status);
        assert_true(status == SPEC_OK || status == SPEC_E_STALE);
        scene.request = look(&scene.world, 0); /* the slot is taken anew */
        scene.shot.item.request = scene.request;
        assert_goes_on(&scene);
        scene_end(&scene);
    }
}

/* Submitted, and closed without a wait. */
static void close_ends_what_was_submitted(void **state)
{
    (void)state;
    struct scene scene;
    spec_ticket ticket;
    scene_begin(&scene, FREE, FAKE_LAZY);
    assert_goes_on(&scene);
    assert_int_equal(sc_plugin_submit(scene.world.rig.conn, &scene.shot.item, 1, &ticket, NULL),
                     SPEC_OK);
    rig_close(&scene.world.rig);
    there_put(&scene.there);
    assert_true(there_is_untouched(&scene.there, &scene.shot.area));
    scene_end(&scene);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_captured_stream_is_refused),
        cmocka_unit_test(captures_on_other_streams_stay_whole),
        cmocka_unit_test(a_stream_that_is_captured_meanwhile_is_refused),
        cmocka_unit_test(memory_that_is_not_the_devices_is_refused),
        cmocka_unit_test(a_wrong_ordinal_first_leaves_the_right_one),
        cmocka_unit_test(each_call_may_fail),
        cmocka_unit_test(each_call_of_a_load_may_fail),
        cmocka_unit_test(a_context_may_die_at_each_step),
        cmocka_unit_test(a_device_that_is_configured_is_there_when_open_returns),
        cmocka_unit_test(open_fails_where_a_configured_device_cannot_be),
        cmocka_unit_test(each_call_may_fail_at_open),
        cmocka_unit_test(attaching_without_memory_is_a_status),
        cmocka_unit_test(nothing_is_allocated_once_it_is_attached),
        cmocka_unit_test(close_takes_back_what_flies),
        cmocka_unit_test(two_connectors_share_a_device),
        cmocka_unit_test(a_request_may_be_released_while_it_is_loaded),
        cmocka_unit_test(close_ends_what_was_submitted),
    };
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
