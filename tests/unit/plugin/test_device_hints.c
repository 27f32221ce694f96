/* Hints on a device that are still in the air: when their request goes, when another comes to its
 * slot, when the connector closes while a task looks, when calls of the driver fail.
 *
 *   prefetch_next | the task looks for the hint .. ...    | release, another request, close
 *
 * Holds: what is delivered is what plain memory gets, whatever became of a hint; nothing of the
 * device is touched once it is closed (the fake, and sanitizers); nothing is left in the driver. */
#include "tests/unit/plugin/device_fixture.h"
#include "tests/unit/plugin/waits.h"

#include "plugin/device/fetch_scored.h"

#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#define MATCHED      130u
#define LAYERS       3u
#define ON_0         ", \"gpu\": {\"device\": 0}"
#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static const char *const WAYS[] = {
    "\"preset\": \"hinted\"",
    "\"preset\": \"layered-uniform\", \"prefetch\": {\"predictor\": \"hint\"}",
};

static const char *const CALLS[] = {
#define X(name, version, arguments) #name,
    SC_CU_CALLS(X)
#undef X
};

static struct device_host host;

/* ---- A task that looks, and is stopped there ------------------------------------------------- */

static _Atomic uint32_t stops, is_looking, is_awaited;
static const _Atomic uint32_t *looker; /* the word of who looks, that close waits for */

const uint8_t *__real_sc_plugin_hint_look(const struct sc_plugin_afar *afar,
                                          const struct sc_plugin_device_hint *hint,
                                          bool *ret_is_over);
const uint8_t *__wrap_sc_plugin_hint_look(const struct sc_plugin_afar *afar,
                                          const struct sc_plugin_device_hint *hint,
                                          bool *ret_is_over);
const uint8_t *__wrap_sc_plugin_hint_look(const struct sc_plugin_afar *afar,
                                          const struct sc_plugin_device_hint *hint,
                                          bool *ret_is_over)
{
    if (atomic_exchange(&stops, 0) != 0) {
        atomic_store(&is_looking, 1);
        atomic_store(&is_awaited, await_waiter(looker));
    }
    return __real_sc_plugin_hint_look(afar, hint, ret_is_over);
}

/* ---- A world --------------------------------------------------------------------------------- */

static void open_world(struct world *world, bool is_sim, const char *way, const char *more)
{
    static char extra[512]; /* the rig keeps it */
    (void)snprintf(extra, sizeof(extra), "%s%s", way, more);
    *world = (struct world){.matched = MATCHED, .group = 2, .agree = 3, .is_uneven = true};
    world_make(world, is_sim, extra, LAYERS, 3, 16, MATCHED + 3);
    world_open_stored(world);
    wait_for_quant(world);
}

static void shot_of(struct shot *shot, const struct world *world, spec_request request,
                    uint32_t layer)
{
    bool is_layered = world->rig.conn->config.base == SC_BASE_QUANTISED;
    shot_make(shot, world, request, layer, 0, 100000);
    shot->select.given = is_layered ? SPEC_SELECT_EXACT : SPEC_SELECT_BUDGET;
    shot->select.retain_ppm = 200000;
}

static void assert_same(const struct shot *a, const struct shot *b)
{
    assert_int_equal(a->item.row_count, b->item.row_count);
    assert_memory_equal(a->exact, b->exact, sizeof(a->exact));
    assert_memory_equal(a->positions, b->positions, sizeof(a->positions));
    assert_memory_equal(a->area.bytes, b->area.bytes, 3 * RIG_GUARD + 2 * a->area.part_bytes);
}

/* A hint of a layer, in device memory. */
struct hint {
    struct shot shot;
    struct pass_there there;
};

static void hint_make(struct hint *hint, const struct world *world, spec_request request,
                      uint32_t layer)
{
    shot_of(&hint->shot, world, request, layer);
    hint->there = pass_there_make(&host, &hint->shot.pass, true, false);
}

static spec_status hint_give(const struct world *world, const struct hint *hint,
                             spec_request request)
{
    uint32_t layer = hint->shot.item.layer;
    spec_status status =
        sc_plugin_prefetch_next(world->rig.conn, request, layer - 1, &hint->shot.pass.q, NULL);
    pass_there_spoil(&hint->there);
    return status;
}

static void hint_free(struct hint *hint)
{
    pass_there_free(&hint->there);
    shot_free(&hint->shot);
}

static void end_world(struct world *world, const char *what)
{
    world_done(world);
    device_host_close(&host);
    fake_policy(FAKE_EAGER, 1);
    device_assert_clean(what);
}

/* ---- Ends ------------------------------------------------------------------------------------ */

static void close_waits_for_a_task_that_looks(void **state)
{
    (void)state;
    for (uint32_t released = 0; released < 2; released++) {
        struct world world;
        struct hint hint;
        fake_policy(FAKE_EAGER, 1);
        device_host_open(&host, 0);
        open_world(&world, false, WAYS[0], ON_0);
        spec_request request = look(&world, 0);
        hint_make(&hint, &world, request, 1);
        assert_int_equal(sc_plugin_begin_layer(world.rig.conn, &request, 1, 0, NULL), SPEC_OK);
        looker = &world.rig.conn->requests.slots[(uint32_t)request - 1]
                      .predictions[1 % SC_PLUGIN_AHEAD]
                      .state;
        atomic_store(&is_looking, 0);
        atomic_store(&is_awaited, 0);
        atomic_store(&stops, 1);
        assert_int_equal(hint_give(&world, &hint, request), SPEC_OK);
        assert_true(await_word(&is_looking));
        if (released != 0)
            rig_release(&world.rig, request);
        rig_close(&world.rig);
        assert_int_equal(atomic_load(&is_awaited), 1);
        hint_free(&hint);
        end_world(&world, "close");
    }
}

/* ---- In the air ------------------------------------------------------------------------------ */

/* Of the layer, by plain memory. */
static void plain_fire(struct world *world, spec_request request, uint32_t layer,
                       struct shot *ret_shot)
{
    shot_of(ret_shot, world, request, layer);
    assert_int_equal(fire(world, ret_shot), SPEC_OK);
}

/* Hints follow one another, of any layer, on streams of their own; requests go and others come to
 * their slots meanwhile; then all layers are what they are without hints. */
static void air_run(const char *way, enum fake_policy policy, uint64_t seed)
{
    enum { REQUESTS = 20, HINTS = 3 };
    struct world world;
    struct shot right[LAYERS];
    struct hint hints[HINTS];
    spec_request requests[REQUESTS];
    struct device_host other;
    fake_policy(policy, seed);
    device_host_open(&host, 0);
    device_host_open(&other, 0);
    open_world(&world, true, way,
               ", \"max_requests\": 20, \"gpu\": {\"device\": 0, \"staging_bytes\": \"1MiB\"}");
    for (uint32_t i = 0; i < REQUESTS; i++)
        requests[i] = look(&world, 0);
    for (uint32_t layer = 0; layer < LAYERS; layer++)
        plain_fire(&world, requests[0], layer, &right[layer]);
    for (uint32_t i = 0; i < HINTS; i++) {
        hint_make(&hints[i], &world, requests[0], 1 + i % 2);
        if (i == 2)
            hints[i].shot.pass.q.stream = other.stream; /* spoilt on the host's, which is wrong
                                                           of a host, and harms none but its hint */
    }
    for (uint32_t turn = 0; turn < 200; turn++) {
        uint64_t drawn = rig_mix(seed * 1000 + turn);
        uint32_t i = (uint32_t)(drawn % REQUESTS);
        const struct hint *hint = &hints[(drawn >> 8) % HINTS];
        uint32_t layer = hint->shot.item.layer;
        assert_int_equal(sc_plugin_begin_layer(world.rig.conn, &requests[i], 1, layer - 1, NULL),
                         SPEC_OK);
        plain_there_put(&hint->there.queries);
        assert_int_equal(hint_give(&world, hint, requests[i]), SPEC_OK);
        if ((drawn >> 16) % 4 == 0) {
            rig_release(&world.rig, requests[i]);
            requests[i] = look(&world, 0);
        } else if ((drawn >> 16) % 4 == 1) {
            struct shot shot;
            plain_fire(&world, requests[i], layer, &shot);
            assert_same(&right[layer], &shot);
            shot_free(&shot);
        } else if ((drawn >> 16) % 8 == 2) {
            rig_pass_ns(&world.rig, 1000000);
        }
        if ((drawn >> 20) % 16 == 0)
            device_ok(host.cu->cuStreamSynchronize(host.stream));
    }
    for (uint32_t layer = 0; layer < LAYERS; layer++)
        shot_free(&right[layer]);
    rig_close(&world.rig); /* with all that flies, and requests that nobody released */
    for (uint32_t i = 0; i < HINTS; i++)
        hint_free(&hints[i]);
    device_host_close(&other);
    end_world(&world, "air");
}

static void what_flies_changes_nothing(void **state)
{
    (void)state;
    for (uint32_t policy = FAKE_EAGER; policy <= FAKE_RANDOM; policy++)
        for (uint32_t w = 0; w < COUNT(WAYS); w++)
            air_run(WAYS[w], (enum fake_policy)policy, policy + 7 * w);
}

/* ---- A driver that fails --------------------------------------------------------------------- */

struct failing {
    struct world world;
    spec_request request;
    struct shot right;
    struct hint hint;
};

static void failing_begin(struct failing *failing, enum fake_policy policy, bool is_attached)
{
    fake_policy(policy, 3);
    device_host_open(&host, 0);
    open_world(&failing->world, true, WAYS[0], is_attached ? ON_0 : "");
    failing->request = look(&failing->world, 0);
    plain_fire(&failing->world, failing->request, 1, &failing->right);
    hint_make(&failing->hint, &failing->world, failing->request, 1);
    spec_connector *conn = failing->world.rig.conn;
    assert_int_equal(sc_plugin_begin_layer(conn, &failing->request, 1, 0, NULL), SPEC_OK);
}

static void failing_end(struct failing *failing, const char *what)
{
    struct shot shot;
    plain_fire(&failing->world, failing->request, 1, &shot);
    assert_same(&failing->right, &shot);
    shot_free(&shot);
    shot_free(&failing->right);
    rig_close(&failing->world.rig);
    hint_free(&failing->hint);
    end_world(&failing->world, what);
}

static void status_check(spec_status status, const char *name, int n, int code)
{
    if (status != SPEC_OK && status != SPEC_E_IO && status != SPEC_E_UNSUPPORTED &&
        status != SPEC_E_INVALID && status != SPEC_E_NO_MEMORY)
        fail_msg("%s %d with %d: %s", name, n, code, sc_status_name(status));
}

/* false: so many calls there are not. */
static bool hint_with_fault(const char *name, int n, int code, enum fake_policy policy)
{
    struct failing failing;
    failing_begin(&failing, policy, n % 2 == 0);
    spec_connector *conn = failing.world.rig.conn;
    fake_fault(name, n / 2, code);
    spec_status status =
        sc_plugin_prefetch_next(conn, failing.request, 0, &failing.hint.shot.pass.q, NULL);
    bool is_met = fake_fired() != 0;
    for (uint32_t i = 0; i < 20; i++)
        rig_pass_ns(&failing.world.rig, 100000);
    is_met = is_met || fake_fired() != 0;
    fake_fault(name, 0, 0);
    pass_there_spoil(&failing.hint.there);
    status_check(status, name, n, code);
    failing_end(&failing, name);
    return is_met;
}

static void each_call_of_a_hint_may_fail(void **state)
{
    (void)state;
    static const int CODES[] = {2, 400};
    uint32_t met = 0;
    for (uint32_t c = 0; c < COUNT(CALLS); c++)
        for (uint32_t k = 0; k < COUNT(CODES); k++)
            for (uint32_t attached = 0; attached < 2; attached++)
                for (int n = 1; n < 12; n++) {
                    bool is_met = hint_with_fault(CALLS[c], 2 * n + (int)attached, CODES[k],
                                                  (c + k) % 2 == 0 ? FAKE_LAZY : FAKE_RANDOM);
                    met += is_met;
                    if (!is_met)
                        break;
                }
    assert_true(met > 40);
}

static void a_context_may_die_with_a_hint(void **state)
{
    (void)state;
    for (int n = 1; n < 8; n++) {
        struct failing failing;
        failing_begin(&failing, FAKE_LAZY, true);
        fake_crash(n, 719);
        spec_status status = sc_plugin_prefetch_next(failing.world.rig.conn, failing.request, 0,
                                                     &failing.hint.shot.pass.q, NULL);
        for (uint32_t i = 0; i < 20; i++)
            rig_pass_ns(&failing.world.rig, 100000);
        fake_sticky(0);
        fake_crash(0, 0);
        status_check(status, "crash", n, 719);
        failing_end(&failing, "crash");
    }
}

/* ---- Whom a hint holds up -------------------------------------------------------------------- */

/* A hint's stream has work that nobody waits for; an item of the same request, asked with queries
 * that lie there on another stream, and a later hint, leave it undone. */
static void a_load_waits_for_no_hints_stream(void **state)
{
    (void)state;
    struct world world;
    struct hint hint, asked;
    struct shot right;
    struct device_host other;
    device_host_open(&host, 0);
    device_host_open(&other, 0);
    open_world(&world, true, WAYS[0], ON_0);
    spec_request request = look(&world, 0);
    plain_fire(&world, request, 1, &right);
    hint_make(&hint, &world, request, 2);
    hint_make(&asked, &world, request, 1);
    device_ok(host.cu->cuStreamSynchronize(host.stream));
    fake_policy(FAKE_LAZY, 1);
    uint8_t *done = hint.there.queries.before; /* poisoned until the other stream comes to it */
    uint8_t meant = done[0];
    assert_int_not_equal(meant, FAKE_POISON_H);
    device_ok(host.cu->cuMemcpyDtoHAsync(done, hint.there.queries.at, hint.there.queries.bytes,
                                         other.stream));
    hint.shot.pass.q.stream = other.stream;
    spec_connector *conn = world.rig.conn;
    assert_int_equal(sc_plugin_begin_layer(conn, &request, 1, 1, NULL), SPEC_OK);
    for (uint32_t i = 0; i < 2; i++)
        assert_int_equal(sc_plugin_prefetch_next(conn, request, 1, &hint.shot.pass.q, NULL),
                         SPEC_OK);
    assert_int_equal(fire(&world, &asked.shot), SPEC_OK);
    assert_same(&right, &asked.shot);
    assert_int_equal(done[0], FAKE_POISON_H);
    device_ok(host.cu->cuStreamSynchronize(other.stream));
    assert_int_equal(done[0], meant);
    shot_free(&right);
    rig_close(&world.rig);
    hint_free(&asked);
    hint_free(&hint);
    device_host_close(&other);
    end_world(&world, "streams");
}

/* ---- Rooms ----------------------------------------------------------------------------------- */

/* What is scored there is read as numbers, whatever size a room was given. */
static void rooms_are_lines(void **state)
{
    (void)state;
    struct world world;
    device_host_open(&host, 0);
    open_world(&world, true, WAYS[0], ", \"gpu\": {\"device\": 0, \"query_bytes\": 4097}");
    for (uint64_t i = 0; i < 3; i++) {
        uint8_t *room = sc_plugin_afar_room(&world.rig.conn->device, i);
        assert_int_equal((uintptr_t)room % 64, 0);
    }
    end_world(&world, "rooms");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(close_waits_for_a_task_that_looks),
        cmocka_unit_test(a_load_waits_for_no_hints_stream),
        cmocka_unit_test(rooms_are_lines),
        cmocka_unit_test(what_flies_changes_nothing),
        cmocka_unit_test(each_call_of_a_hint_may_fail),
        cmocka_unit_test(a_context_may_die_with_a_hint),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
