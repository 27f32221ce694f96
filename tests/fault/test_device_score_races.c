/* Threads that score on a device beside each other where room is for exactly one scoring, and boxes
 * are as few as there may be: one connector, queries and new keys there or here, hints between.
 *
 *   thread   what is asked comes to stand there | asked, at once or submitted | other bytes over it
 *
 * Holds: whoever asks gets what one alone gets, bit by bit; a hint gets that or is told BUSY; with
 * a byte less nobody is scored there. Rooms, boxes and flights come back. What threads do follows
 * from their number, when they do it does not.
 * Threads: a few, and the connector's. */
#include "tests/unit/plugin/score_desk.h"
#include "tests/unit/threads.h"

#ifdef SC_SANITIZED_THREAD /* to TSan each of a kernel's threads is one: 100 us and more */
#define ASKERS  3u
#define TURNS   1u
#define KEYS    9u
#define MATCHED 20u
#else
#define ASKERS  6u
#define TURNS   8u
#define KEYS    130u
#define MATCHED 130u
#endif
#define LAYERS 2u

static const struct question QUESTION = {.keys = CODES,
                                         .count = KEYS,
                                         .heads = 2,
                                         .size = 16,
                                         .group = 2,
                                         .rows = 2,
                                         .fresh = 3,
                                         .dtype = SC_KERNELS_F16,
                                         .query_dtype = SC_KERNELS_F16,
                                         .fresh_dtype = SC_KERNELS_F16,
                                         .has_slots = true,
                                         .is_total = true};

static const char *gpu_of(char text[128], uint64_t score_bytes)
{
    (void)snprintf(text, 128, "\"staging_bytes\": \"1MiB\", \"score_bytes\": %lu", score_bytes);
    return text;
}

/* ---- Scorings ------------------------------------------------------------------------------- */

struct asker {
    struct stand stand; /* its rig is a copy */
    const struct scene *scene;
    const float *right; /* of one alone */
    uint32_t number, scored, busy;
};

static void *ask(void *user)
{
    struct asker *asker = user;
    uint64_t count = sum_count(asker->scene->how);
    float *found = malloc(count * sizeof(float));
    assert_non_null(found);
    device_host_open(&asker->stand.host, 0);
    for (uint32_t turn = 0; turn < TURNS; turn++) {
        bool is_hint = (asker->number + turn) % 3 == 2;
        spec_status status = SPEC_OK;
        memset(found, 0x77, count * sizeof(float));
        if (is_hint)
            status = stand_hint(&asker->stand, asker->scene, found);
        else
            stand_score(&asker->stand, asker->scene, (asker->number + turn) % 4, found);
        assert_true(status == SPEC_OK || status == SPEC_E_BUSY);
        if (status == SPEC_OK)
            assert_memory_equal(found, asker->right, count * sizeof(float));
        asker->scored += status == SPEC_OK;
        asker->busy += status == SPEC_E_BUSY;
    }
    device_host_close(&asker->stand.host);
    free(found);
    return NULL;
}

/* The bytes of its room, and its sums. */
static uint64_t one_alone(const struct scene *scene, float *ret_sums)
{
    struct stand stand;
    char gpu[128];
    float *right = ref_sums(scene);
    fake_policy(FAKE_EAGER, 1);
    stand_open(&stand, true, gpu_of(gpu, 1 << 20));
    stand_score(&stand, scene, 0, ret_sums); /* all of it goes up */
    sums_compare(ret_sums, right, sum_count(scene->how));
    uint64_t bytes = stand.rig.conn->device.scores.head;
    stand_close(&stand);
    free(right);
    return bytes;
}

static void room_is_for_exactly_one(void **state)
{
    (void)state;
    struct scene *scene = scene_make(&QUESTION);
    float *right = calloc(sum_count(scene->how), sizeof(float));
    uint32_t scored = 0, busy = 0;
    struct stand stand;
    char gpu[128];
    assert_non_null(right);
    uint64_t bytes = one_alone(scene, right);
    stand_open(&stand, true, gpu_of(gpu, bytes - 1));
    assert_false(stand_takes(&stand, scene));
    stand_close(&stand);
    for (uint32_t policy = FAKE_EAGER; policy <= FAKE_RANDOM; policy++) {
        struct asker askers[ASKERS];
        fake_policy((enum fake_policy)policy, policy + 1);
        stand_open(&stand, false, gpu_of(gpu, bytes));
        assert_true(stand_takes(&stand, scene));
        for (uint32_t i = 0; i < ASKERS; i++)
            askers[i] = (struct asker){.stand = stand, .scene = scene, .right = right, .number = i};
        threads_run(ask, askers, sizeof(askers[0]), ASKERS);
        for (uint32_t i = 0; i < ASKERS; i++) {
            scored += askers[i].scored;
            busy += askers[i].busy;
        }
        stand_close(&stand);
    }
    print_message("%u were scored, %u hints found no room\n", scored, busy);
    assert_true(scored > 0);
    free(right);
    scene_free(scene);
}

/* ---- Items ---------------------------------------------------------------------------------- */

struct host {
    struct world world; /* a copy */
    const struct shot *right;
    uint32_t number;
    bool resets;
};

/* What fails in a thread of cmocka's ends that one alone. */
#define CHECK(host, turn, condition)                                                               \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            print_error("thread %u, turn %u: not %s\n", (host)->number, turn, #condition);         \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

static void world_begin(struct world *world, bool is_sim, uint64_t score_bytes, char extra[512])
{
    char gpu[128];
    (void)snprintf(extra, 512,
                   "\"preset\": \"layered-uniform\", \"prefetch\": {\"predictor\": \"hint\"}, "
                   "\"submit\": {\"threads\": %u}, \"max_requests\": 20, "
                   "\"gpu\": {\"device\": 0, %s}",
                   is_sim ? 0u : 2u, gpu_of(gpu, score_bytes));
    *world = (struct world){.matched = MATCHED, .group = 2, .agree = 3, .is_uneven = true};
    world_make(world, is_sim, extra, LAYERS, 2, 16, MATCHED);
    world_open_stored(world);
    wait_for_quant(world);
}

static spec_status shot_fire(struct host *host, struct shot *shot, bool is_late)
{
    spec_connector *conn = host->world.rig.conn;
    spec_ticket ticket;
    if (!is_late)
        return sc_plugin_get_important(conn, &shot->item, 1, NULL);
    spec_status status = sc_plugin_submit(conn, &shot->item, 1, &ticket, NULL);
    return status != SPEC_OK ? status : sc_plugin_submit_wait(conn, ticket, UINT64_MAX, NULL);
}

static void turn_run(struct host *host, struct device_host *device, uint32_t turn)
{
    spec_connector *conn = host->world.rig.conn;
    uint32_t drawn = host->number + turn;
    struct spec_lookup_result found;
    if (rig_try_lookup(&host->world.rig, &host->world.prompt, 0, MATCHED, &found) != SPEC_OK ||
        found.request == 0)
        return;
    bool is_whole = found.matched_tokens == MATCHED; /* else a reset came */
    if (is_whole && drawn % 2 == 0)
        (void)sc_plugin_begin_layer(conn, &found.request, 1, 0, NULL);
    if (is_whole) {
        struct shot shot;
        shot_make(&shot, &host->world, found.request, 1, 0, 200000);
        struct pass_there pass =
            pass_there_make(device, &shot.pass, drawn % 3 != 1, drawn % 3 != 0);
        if (drawn % 3 != 1)
            (void)sc_plugin_prefetch_next(conn, found.request, 0, &shot.pass.q, NULL);
        spec_status status = shot_fire(host, &shot, drawn % 4 < 2);
        pass_there_spoil(&pass);
        if (status != SPEC_OK)
            CHECK(host, turn, status == SPEC_E_STALE && host->resets);
        if (status == SPEC_OK) {
            CHECK(host, turn, memcmp(shot.exact, host->right->exact, sizeof(shot.exact)) == 0);
            CHECK(host, turn,
                  memcmp(shot.area.bytes, host->right->area.bytes,
                         3 * RIG_GUARD + 2 * shot.area.part_bytes) == 0);
        }
        pass_there_free(&pass);
        shot_free(&shot);
    }
    rig_release(&host->world.rig, found.request);
}

static void *host_run(void *user)
{
    struct host *host = user;
    struct device_host device;
    device_host_open(&device, 0);
    for (uint32_t turn = 0; turn < TURNS; turn++) {
        if (host->resets && host->number == 0 && turn == TURNS - 1)
            CHECK(host, turn, sc_plugin_reset(host->world.rig.conn, NULL) == SPEC_OK);
        turn_run(host, &device, turn);
    }
    device_host_close(&device);
    return NULL;
}

/* By one that is alone; the bytes of its room. */
static uint64_t item_alone(struct shot *ret_right)
{
    struct world world;
    struct device_host device;
    char extra[512];
    fake_policy(FAKE_EAGER, 1);
    device_host_open(&device, 0);
    world_begin(&world, true, 1 << 20, extra);
    spec_request request = look(&world, 0);
    shot_make(ret_right, &world, request, 1, 0, 200000);
    struct pass_there pass = pass_there_make(&device, &ret_right->pass, false, true);
    assert_int_equal(fire(&world, ret_right), SPEC_OK); /* queries of the host need the most */
    uint64_t bytes = world.rig.conn->device.scores.head;
    assert_true(bytes > 0);
    pass_there_free(&pass);
    world_leave(&world, request);
    device_host_close(&device);
    return bytes;
}

static void items_share_room_for_one(void **state)
{
    (void)state;
    struct shot right;
    uint64_t bytes = item_alone(&right);
    for (uint32_t policy = FAKE_EAGER; policy <= FAKE_RANDOM; policy++) {
        struct world world;
        struct host hosts[ASKERS];
        char extra[512];
        fake_policy((enum fake_policy)policy, policy + 1);
        /* A byte less: those whose queries come from the host are scored by its processor. */
        world_begin(&world, false, bytes - policy / 2, extra);
        struct world plain = world; /* as long as no thread but this one counts */
        for (uint32_t i = 0; i < ASKERS; i++)
            hosts[i] = (struct host){
                .world = plain, .right = &right, .number = i, .resets = policy % 2 == 1};
        threads_run(host_run, hosts, sizeof(hosts[0]), ASKERS);
        assert_true(hosts[0].resets || world.rig.conn->device.scores.taken > 0);
        stand_assert_idle(world.rig.conn);
        world_done(&world);
        fake_policy(FAKE_EAGER, 1);
        device_assert_clean("items");
    }
    shot_free(&right);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(room_is_for_exactly_one),
        cmocka_unit_test(items_share_room_for_one),
    };
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
