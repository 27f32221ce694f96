/* Both ends of a match whose destinations are a device's: the host computes from the front on its
 * stream, rows are loaded from the back on another. What is given out is never written over, in
 * every policy of the fake driver, and whatever call of it fails; where one does, nothing was
 * loaded.
 *
 *   the host's stream   poison | rows computed .. | (the load is over) | more rows | a copy back */
#include "tests/unit/plugin/device_fixture.h"
#include "tests/unit/plugin/tail_desk.h"

#define LAYERS 3u
#define ROWS   200u
#define DISK   "\"chunk_tokens\": 16, \"host_bytes\": 0, \"load_policy\": \"bidirectional\""
#define QUANT  DISK ", \"preset\": \"int8\"" /* of scenes with an even seed: rows are decoded */

static const char *const CALLS[] = {
#define X(name, version, arguments) #name,
    SC_CU_CALLS(X)
#undef X
};
#define CALL_COUNT (sizeof(CALLS) / sizeof(CALLS[0]))

struct scene {
    struct device_host host;
    struct rig rig;
    struct prompt prompt;
    struct tail_desk desk;
    struct there theres[LAYERS];
    struct plain_there computed[LAYERS]; /* rows on their way: pinned memory */
    bool is_quant;
};

static void scene_open(struct scene *scene, enum fake_policy policy, uint64_t seed, bool is_sim)
{
    *scene = (struct scene){.is_quant = seed % 2 == 0};
    fake_policy(policy, seed);
    device_host_open(&scene->host, 0);
    rig_init(&scene->rig, is_sim, scene->is_quant ? QUANT : DISK);
    rig_shape(&scene->rig, LAYERS, 2, 16, SPEC_DTYPE_F16);
    scene->rig.op = "64KiB";
    rig_open(&scene->rig);
    scene->prompt = rig_prompt(7, 0, 0, ROWS);
    assert_int_equal(rig_fill(&scene->rig, &scene->prompt), SPEC_OK);
    rig_wait_for_quant(&scene->rig);
}

/* A request for all of it, into plain memory. */
static void plain_look(struct scene *scene, struct tail_desk *ret_desk)
{
    tail_desk_look(ret_desk, &scene->rig, &scene->prompt, 0, ROWS);
    ret_desk->bits_k = ret_desk->bits_v = scene->is_quant ? 8 : 0;
}

static void scene_close(struct scene *scene)
{
    rig_end(&scene->rig, &scene->prompt);
    device_host_end(&scene->host, "tails");
}

/* The row's bytes stand in its area; the host's stream brings them to the device. */
static void row_put(struct tail_desk *desk, uint32_t layer, const uint8_t *from)
{
    struct scene *scene = desk->user;
    const struct there *there = &scene->theres[layer];
    uint64_t part_bytes = rig_part_bytes(desk->rig);
    uint64_t at = (uint64_t)(from - desk->areas[layer].bytes);
    uint8_t *pinned = scene->computed[layer].junk + at;
    memcpy(pinned, from, part_bytes);
    device_ok(
        scene->host.cu->cuMemcpyHtoDAsync(there->at + at, pinned, part_bytes, scene->host.stream));
}

static void scene_look(struct scene *scene)
{
    plain_look(scene, &scene->desk);
    assert_int_equal(scene->desk.rows, ROWS);
    for (uint32_t i = 0; i < LAYERS; i++) {
        struct area *area = &scene->desk.areas[i];
        scene->theres[i] = there_make(&scene->host, area);
        scene->computed[i] = plain_there_make(&scene->host, area->bytes, scene->theres[i].used);
    }
    scene->desk.put = row_put;
    scene->desk.user = scene;
}

static uint64_t scene_check(struct scene *scene)
{
    for (uint32_t i = 0; i < LAYERS; i++)
        there_read(&scene->theres[i], &scene->desk.areas[i]);
    return tail_desk_check(&scene->desk);
}

static void scene_compare(struct scene *scene, uint64_t loaded)
{
    for (uint32_t i = 0; i < LAYERS; i++)
        there_read(&scene->theres[i], &scene->desk.areas[i]);
    tail_desk_compare(&scene->desk, loaded);
}

static void scene_leave(struct scene *scene)
{
    for (uint32_t i = 0; i < LAYERS; i++) {
        plain_there_free(&scene->computed[i]);
        there_free(&scene->theres[i]);
    }
    tail_desk_leave(&scene->desk);
}

static void assert_idle(struct scene *scene)
{
    struct sc_plugin_request *request =
        sc_plugin_request_find(scene->rig.conn, scene->desk.request);
    assert_non_null(request);
    for (uint32_t i = 0; i < SC_PLUGIN_READERS; i++)
        assert_true(sc_store_reader_is_idle(request->readers[i].reader));
}

/* All of it is computed but what was loaded, whoever comes first. */
static void both_ends_on_a_device(void **state)
{
    (void)state;
    uint64_t loaded_of_all = 0;
    for (uint32_t policy = FAKE_EAGER; policy <= FAKE_RANDOM; policy++)
        for (uint64_t round = 0; round < 8; round++) {
            struct scene scene;
            scene_open(&scene, (enum fake_policy)policy, round + 1, round % 3 == 0);
            scene_look(&scene);
            if (round % 2 == 1)
                tail_desk_dress(&scene.desk, round);
            for (uint64_t i = 0; i < round % 4; i++)
                (void)tail_desk_next(&scene.desk, 17, NULL);
            assert_int_equal(tail_desk_submit(&scene.desk), SPEC_OK);
            for (uint64_t i = 0; i < round && tail_desk_next(&scene.desk, 1 + i, NULL); i++)
                continue;
            assert_int_equal(tail_desk_wait(&scene.desk, UINT64_MAX), SPEC_OK);
            uint64_t loaded = scene_check(&scene);
            for (uint32_t i = 0; i < LAYERS; i++)
                assert_int_equal(scene.desk.items[i].exact_rows, scene.is_quant ? 0 : loaded);
            while (tail_desk_next(&scene.desk, 16, NULL))
                continue;
            assert_int_equal(scene.desk.front, ROWS - loaded);
            scene_compare(&scene, loaded);
            loaded_of_all += loaded;
            assert_idle(&scene);
            scene_leave(&scene);
            scene_close(&scene);
        }
    assert_true(loaded_of_all > 0);
}

/* The last layer's stream is being captured, at submit or only at the wait: then what was loaded
 * cannot be put before the host's next work, and nothing was. */
static void a_captured_stream_has_nothing(void **state)
{
    (void)state;
    for (uint32_t at_wait = 0; at_wait < 2; at_wait++) {
        struct scene scene;
        sc_cu_stream captured;
        scene_open(&scene, FAKE_RANDOM, 1 + at_wait, true);
        scene_look(&scene);
        device_ok(scene.host.cu->cuStreamCreate(&captured, SC_CU_STREAM_NON_BLOCKING));
        device_ok(scene.host.cu->cuStreamSynchronize(scene.host.stream));
        scene.desk.areas[LAYERS - 1].memory.stream = captured;
        fake_capture(captured, !at_wait);
        assert_int_equal(tail_desk_submit(&scene.desk), at_wait ? SPEC_OK : SPEC_E_INVALID);
        assert_true(tail_desk_next(&scene.desk, 17, NULL));
        if (at_wait) {
            fake_capture(captured, 1);
            assert_int_not_equal(tail_desk_wait(&scene.desk, UINT64_MAX), SPEC_OK);
        }
        fake_capture(captured, 0);
        if (at_wait)
            assert_int_equal(scene_check(&scene), 0);
        while (tail_desk_next(&scene.desk, 64, NULL))
            continue;
        assert_int_equal(scene.desk.front, ROWS);
        scene_compare(&scene, 0);
        assert_int_equal(tail_desk_submit(&scene.desk), SPEC_OK);
        assert_int_equal(tail_desk_wait(&scene.desk, UINT64_MAX), SPEC_OK);
        assert_int_equal(scene_check(&scene), 0); /* all is computed */
        device_ok(scene.host.cu->cuStreamDestroy(captured));
        scene_leave(&scene);
        scene_close(&scene);
    }
}

/* Released, reset or closed while it runs: when that is reported, or closed, the memory is the
 * host's, and nothing comes to it any more. */
static void what_is_over_writes_nothing(void **state)
{
    (void)state;
    for (uint64_t round = 0; round < 18; round++) {
        struct scene scene;
        uint64_t how = round % 3;
        scene_open(&scene, (enum fake_policy)(round % (FAKE_RANDOM + 1)), round + 1, round >= 14);
        scene_look(&scene);
        assert_int_equal(tail_desk_submit(&scene.desk), SPEC_OK);
        struct sc_plugin_request *request =
            sc_plugin_request_find(scene.rig.conn, scene.desk.request);
        for (uint64_t i = 0; i < round * 50 && atomic_load(&request->turn) != 0; i++)
            sched_yield();
        if (how == 0) {
            rig_release(&scene.rig, scene.desk.request);
            scene.desk.request = 0;
        } else if (how == 1) {
            assert_int_equal(sc_plugin_reset(scene.rig.conn, NULL), SPEC_OK);
        } else {
            rig_close(&scene.rig);
            scene.desk.request = 0;
        }
        if (how != 2)
            (void)tail_desk_wait(&scene.desk, UINT64_MAX);
        for (uint32_t i = 0; i < LAYERS; i++)
            there_put(&scene.theres[i]);
        if (how != 2) { /* whoever has its place next */
            struct tail_desk other;
            plain_look(&scene, &other);
            assert_int_equal(tail_desk_submit(&other), SPEC_OK);
            assert_int_equal(tail_desk_wait(&other, UINT64_MAX), SPEC_OK);
            assert_int_equal(tail_desk_check(&other), other.rows);
            tail_desk_leave(&other);
        }
        for (uint32_t i = 0; i < LAYERS; i++)
            assert_true(there_is_untouched(&scene.theres[i], &scene.desk.areas[i]));
        scene_leave(&scene);
        scene_close(&scene);
    }
}

/* The context dies as soon as n more operations were enqueued. */
static void a_device_that_crashes_has_nothing(void **state)
{
    (void)state;
    uint64_t crashed = 0;
    for (int n = 1; n <= 40; n += 3) {
        struct scene scene;
        scene_open(&scene, (enum fake_policy)(n % (FAKE_RANDOM + 1)), (uint64_t)n, n % 2 == 0);
        scene_look(&scene);
        device_ok(scene.host.cu->cuStreamSynchronize(scene.host.stream));
        fake_crash(n, 700);
        spec_status status = tail_desk_submit(&scene.desk);
        if (status == SPEC_OK)
            status = tail_desk_wait(&scene.desk, UINT64_MAX);
        if (status != SPEC_OK) {
            crashed++;
            for (uint32_t i = 0; i < LAYERS; i++)
                assert_int_equal(scene.desk.items[i].row_count, 0);
        }
        fake_crash(0, 0);
        fake_sticky(0);
        scene.desk.put = NULL; /* in its areas alone */
        while (tail_desk_next(&scene.desk, 64, NULL))
            continue;
        assert_int_equal(scene.desk.front, ROWS - scene.desk.items[0].row_count);
        assert_idle(&scene);
        scene_leave(&scene);
        scene_close(&scene);
    }
    assert_true(crashed > 5);
}

/* Returns whether the call was made so often. */
static bool fault_one(const char *call, int n, enum fake_policy policy, bool is_sim)
{
    struct scene scene;
    scene_open(&scene, policy, (uint64_t)n, is_sim);
    scene_look(&scene);
    for (int i = 0; i < n % 3; i++)
        (void)tail_desk_next(&scene.desk, 17, NULL);
    fake_fault(call, n, 700);
    spec_status status = tail_desk_submit(&scene.desk);
    bool is_submitted = status == SPEC_OK;
    if (is_submitted)
        status = tail_desk_wait(&scene.desk, UINT64_MAX);
    bool has_fired = fake_fired() != 0;
    fake_fault(call, 0, 0);
    uint64_t loaded = 0;
    if (is_submitted)
        loaded = scene_check(&scene);
    if (is_submitted && status != SPEC_OK)
        assert_int_equal(loaded, 0);
    if (!has_fired)
        assert_int_equal(status, SPEC_OK);
    while (tail_desk_next(&scene.desk, 16, NULL))
        continue;
    assert_int_equal(scene.desk.front, ROWS - loaded);
    scene_compare(&scene, loaded);
    assert_idle(&scene);
    scene_leave(&scene);
    /* Plain memory is loaded as before. */
    plain_look(&scene, &scene.desk);
    assert_int_equal(tail_desk_submit(&scene.desk), SPEC_OK);
    assert_int_equal(tail_desk_wait(&scene.desk, UINT64_MAX), SPEC_OK);
    assert_int_equal(tail_desk_check(&scene.desk), ROWS);
    tail_desk_leave(&scene.desk);
    scene_close(&scene);
    return has_fired;
}

static void every_call_fails_once(void **state)
{
    (void)state;
    uint64_t fired = 0;
    for (uint32_t i = 0; i < CALL_COUNT; i++)
        for (int n = 1; n <= 24; n += n < 4 ? 1 : 5) {
            enum fake_policy policy = (enum fake_policy)((i + (uint32_t)n) % (FAKE_RANDOM + 1));
            if (!fault_one(CALLS[i], n, policy, n % 2 == 0))
                break;
            fired++;
        }
    assert_true(fired > 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_ends_on_a_device),
        cmocka_unit_test(a_captured_stream_has_nothing),
        cmocka_unit_test(what_is_over_writes_nothing),
        cmocka_unit_test(a_device_that_crashes_has_nothing),
        cmocka_unit_test(every_call_fails_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
