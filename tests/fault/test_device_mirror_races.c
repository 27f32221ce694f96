/* Runs go up beside each other: threads on slots of their own, and on the same ones, want the run
 * of the moment on the device, while requests come and go, whose runs take each other's places.
 *
 * Holds: who is told that a run is up finds its bytes in the twin, behind its slot's copies, unless
 * the device is closed; when all have left, nothing is held, on a device that is closed too. What
 * threads do follows from their number, when they do it does not. Threads: a few, and the one whose
 * requests they are. */
#include "tests/unit/plugin/device_fixture.h"
#include "tests/unit/threads.h"

#include "plugin/device/lane.h"
#include "plugin/device/mirror.h"

#define MATCHED 200u
#define LAYERS  2u
#define ASKERS  6u
#define SLOTS   4u /* of which two are two askers' each */
#define TURNS   60u
#define TAKEN   5u    /* turns of a request: then the next one's come */
#define LOOKED  4096u /* bytes from a place of the run on */

static struct device_host host;

struct scene {
    struct world world;
    pthread_mutex_t lock;
    pthread_cond_t moved;             /* what follows, which the lock guards */
    struct sc_store_run runs[LAYERS]; /* of the request of the moment; at NULL: none */
    uint32_t taken, over;             /* turns of the moment; askers */
};

struct asker {
    struct scene *scene;
    uint32_t number, up, boxed;
};

/* A run of the moment, held: the layer's, or where that has none another's. Waits for one. */
static void run_take(struct scene *scene, uint32_t layer, struct sc_store_run *ret_run)
{
    pthread_mutex_lock(&scene->lock);
    for (ret_run->at = NULL;;) {
        for (uint32_t i = 0; i < LAYERS && ret_run->at == NULL && scene->taken < TAKEN; i++)
            *ret_run = scene->runs[(layer + i) % LAYERS];
        if (ret_run->at != NULL)
            break;
        pthread_cond_wait(&scene->moved, &scene->lock);
    }
    sc_store_run_hold(scene->world.rig.conn->store, ret_run);
    scene->taken++;
    pthread_cond_broadcast(&scene->moved);
    pthread_mutex_unlock(&scene->lock);
}

/* Bytes of the twin, as the slot's kernels would read them. false: the device is closed. */
static bool twin_read(struct sc_plugin_device *device, uint32_t slot, const uint8_t *at,
                      struct sc_plugin_box *box)
{
    struct sc_gpu_slot *lanes = &device->gpu->slots[slot];
    struct sc_gpu_entry entry;
    _Atomic uint32_t over = 0;
    const struct sc_gpu_hold hold = sc_plugin_lane_hold(&over);
    if (sc_gpu_enter(device->gpu, &entry, NULL) != SPEC_OK)
        return false;
    pthread_mutex_lock(&device->slot_locks[slot]);
    sc_plugin_lane_board_wait(device, &lanes->kernels, &hold);
    spec_status status = sc_gpu_follow(device->gpu, &lanes->kernels, &lanes->copies, NULL);
    if (status == SPEC_OK)
        status = sc_gpu_copy_out(device->gpu, &lanes->kernels, box->host,
                                 sc_plugin_mirror_of(device, at), LOOKED, NULL);
    status = sc_plugin_lane_depart(device, &lanes->kernels, status, NULL);
    pthread_mutex_unlock(&device->slot_locks[slot]);
    sc_gpu_leave(device->gpu, &entry);
    sc_plugin_lane_await(device, &lanes->kernels, &over);
    return status == SPEC_OK && !sc_gpu_has_failed(device->gpu);
}

static void *ask(void *user)
{
    struct asker *asker = user;
    struct scene *scene = asker->scene;
    spec_connector *conn = scene->world.rig.conn;
    struct sc_plugin_device *device = &conn->device;
    uint32_t slot = asker->number % SLOTS;
    for (uint32_t turn = 0; turn < TURNS; turn++) {
        struct sc_store_run run, found;
        run_take(scene, (asker->number + turn) % LAYERS, &run);
        const uint8_t *at = run.at + rig_mix(turn) % (run.bytes - LOOKED);
        if (sc_plugin_mirror_up(device, slot, at, turn % 3 == 0, &found)) {
            struct sc_plugin_box *box = sc_plugin_box_take(device, slot);
            assert_int_equal(found.serial, run.serial);
            if (twin_read(device, slot, at, box)) {
                assert_memory_equal(box->host, at, LOOKED);
                asker->up++;
            } else {
                assert_true(sc_gpu_has_failed(device->gpu));
            }
            sc_plugin_box_give(box);
        } else {
            asker->boxed++;
        }
        sc_store_run_leave(conn->store, &run);
        if (turn % 7 == 0)
            sc_plugin_mirror_reap(device);
    }
    pthread_mutex_lock(&scene->lock);
    scene->over++;
    pthread_cond_broadcast(&scene->moved);
    pthread_mutex_unlock(&scene->lock);
    return NULL;
}

/* A request whose layers are read: its runs become those of the moment. */
static spec_request request_open(struct scene *scene)
{
    struct world *world = &scene->world;
    spec_connector *conn = world->rig.conn;
    spec_request handle = look(world, 0);
    struct sc_store_run runs[LAYERS];
    for (uint32_t layer = 0; layer < LAYERS; layer++) {
        struct shot shot;
        shot_make(&shot, world, handle, layer, 0, 100000);
        shot.select.given = SPEC_SELECT_EXACT;
        assert_int_equal(fire(world, &shot), SPEC_OK);
        const struct sc_plugin_request *request = sc_plugin_request_find(conn, handle);
        struct sc_store_sketch *sketch = request->sketches[layer % SC_PLUGIN_SKETCHES].sketch;
        if (!sc_store_run_of(conn->store, sc_store_sketch_keys(sketch), &runs[layer]))
            runs[layer].at = NULL; /* no memory was free: those before it are held */
        shot_free(&shot);
    }
    pthread_mutex_lock(&scene->lock);
    memcpy(scene->runs, runs, sizeof(runs));
    pthread_cond_broadcast(&scene->moved);
    pthread_mutex_unlock(&scene->lock);
    return handle;
}

/* Until its turns are taken, not over; true: all are. */
static bool request_use(struct scene *scene)
{
    bool has_run = false;
    pthread_mutex_lock(&scene->lock);
    for (uint32_t layer = 0; layer < LAYERS; layer++)
        has_run = has_run || scene->runs[layer].at != NULL;
    while (has_run && scene->taken < TAKEN && scene->over < ASKERS)
        pthread_cond_wait(&scene->moved, &scene->lock);
    bool is_over = scene->over == ASKERS;
    pthread_mutex_unlock(&scene->lock);
    return is_over;
}

static void request_close(struct scene *scene, spec_request handle)
{
    pthread_mutex_lock(&scene->lock);
    memset(scene->runs, 0, sizeof(scene->runs));
    scene->taken = 0;
    pthread_mutex_unlock(&scene->lock);
    rig_release(&scene->world.rig, handle);
}

/* call: that fails once, so that the device is closed; NULL: none. */
static void scene_run(enum fake_policy policy, const char *call)
{
    static struct scene scene;
    struct asker askers[ASKERS];
    uint32_t up = 0;
    memset(&scene, 0, sizeof(scene));
    pthread_mutex_init(&scene.lock, NULL);
    pthread_cond_init(&scene.moved, NULL);
    fake_policy(policy, 1);
    device_host_open(&host, 0);
    scene.world = (struct world){.matched = MATCHED, .group = 2, .agree = 3, .is_uneven = true};
    rig_init(&scene.world.rig, false,
             "\"preset\": \"layered-even\", \"select\": {\"sketch_bytes\": \"512KiB\"}, "
             "\"gpu\": {\"device\": 0}");
    rig_shape(&scene.world.rig, LAYERS, 2, 16, SPEC_DTYPE_F16);
    scene.world.rig.query_group = 2;
    scene.world.prompt = rig_prompt(MATCHED + 3, 0, 0, MATCHED + FRESH_ROWS);
    rig_open(&scene.world.rig);
    world_store(&scene.world);
    wait_for_codes(&scene.world);
    spec_request handle = request_open(&scene);
    assert_non_null(scene.runs[0].at);
    if (call != NULL)
        fake_fault(call, 20, 700);
    /* Who waits asks a few hundred times before it sleeps. */
    fake_done_by_asking(call == NULL || strcmp(call, "cuEventSynchronize") != 0);
    for (uint32_t i = 0; i < ASKERS; i++)
        askers[i] = (struct asker){.scene = &scene, .number = i};
    const struct threads threads = threads_begin(ask, askers, sizeof(askers[0]), ASKERS);
    while (!request_use(&scene)) {
        request_close(&scene, handle);
        handle = request_open(&scene);
    }
    threads_join(&threads);
    for (uint32_t i = 0; i < ASKERS; i++)
        up += askers[i].up;
    assert_true(up > 0);
    assert_int_equal(fake_fired(), call != NULL);
    fake_fault("cuInit", 0, 0);
    fake_done_by_asking(1);
    request_close(&scene, handle);
    struct sc_plugin_device *device = &scene.world.rig.conn->device;
    for (uint32_t slot = 0; slot < SLOTS; slot++)
        (void)sc_gpu_flights_wait(device->gpu, &device->gpu->slots[slot].copies, 0);
    assert_int_equal(sc_store_sketch_bytes_used(scene.world.rig.conn->store), 0);
    world_done(&scene.world);
    device_host_end(&host, "mirror races");
    pthread_cond_destroy(&scene.moved);
    pthread_mutex_destroy(&scene.lock);
}

static void runs_go_up_beside_each_other(void **state)
{
    (void)state;
    for (uint32_t policy = FAKE_EAGER; policy <= FAKE_RANDOM; policy++)
        scene_run((enum fake_policy)policy, NULL);
}

static void a_device_is_closed_beside_them(void **state)
{
    static const char *const CALLS[] = {
        "cuMemcpyHtoDAsync", "cuMemcpyDtoHAsync",  "cuEventRecord",    "cuStreamWaitEvent",
        "cuEventQuery",      "cuEventSynchronize", "cuCtxPushCurrent", "cuCtxPopCurrent"};
    (void)state;
    /* Where all calls make work run, a few hundred queries suffice, and nobody sleeps. */
    for (uint32_t policy = FAKE_LAZY; policy <= FAKE_RANDOM; policy += 2)
        for (uint32_t i = 0; i < sizeof(CALLS) / sizeof(CALLS[0]); i++)
            if (policy == FAKE_LAZY || strcmp(CALLS[i], "cuEventSynchronize") != 0)
                scene_run((enum fake_policy)policy, CALLS[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(runs_go_up_beside_each_other),
        cmocka_unit_test(a_device_is_closed_beside_them),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
