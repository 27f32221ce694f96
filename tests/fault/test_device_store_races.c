/* Threads that store from a device beside each other, on streams of their own: one connector, one
 * device, one task that puts what comes.
 *
 *   actor   lookup -> layers from the device, or from host memory between -> its pass ends: stored,
 *           released, aborted, or with a reset of everything -> read back
 *
 * Holds: what a ticket calls stored is read, row by row as it stood in the source at the call; what
 * is read of others is right all the same; nothing is left in the driver, and all that flew comes
 * back. What actors do follows from the seed, when they do it does not.
 * Threads: a few, and the connector's. */
#include "tests/unit/plugin/store_desk.h"
#include "tests/unit/threads.h"

#define ON_0                                                                                       \
    "\"preset\": \"as-like\", \"gpu\": {\"device\": 0, \"staging_bytes\": \"1MiB\", "              \
    "\"store_bytes\": \"4MiB\"}"

#ifdef SC_SANITIZED_THREAD /* to TSan each of a kernel's threads is one: 100 us and more */
#define ACTORS 3u
#define ROWS   8u
#define TURNS  2u
#else
#define ACTORS 4u
#define ROWS   70u
#define TURNS  12u
#endif

enum how { STORE, STORE_RELEASE, ABORT, RELEASE, RESET, HOWS };

struct actor {
    struct desk desk; /* its rig is a copy */
    uint64_t seed;
    bool is_rough; /* passes end in any way, else they are stored, but for the last */
    uint32_t stored, ended[HOWS];
};

static uint64_t draw(struct actor *actor, uint64_t below)
{
    actor->seed = rig_mix(actor->seed);
    return actor->seed % below;
}

/* false: a reset came, and the request is over. */
static bool store_layers(struct actor *actor, uint32_t layers)
{
    struct desk *desk = &actor->desk;
    uint64_t mask = draw(actor, 4);
    enum dress dress = (enum dress)draw(actor, DRESSES);
    for (uint32_t layer = 0; layer < layers; layer++) {
        spec_status status = layer > 0 && (mask >> (layer - 1) & 1) != 0
                                 ? desk_store_host_layer(desk, 0, ROWS, layer)
                                 : desk_store_layer(desk, 0, ROWS, layer, dress);
        if (status == SPEC_E_STALE)
            return false;
        assert_int_equal(status, SPEC_OK);
    }
    return true;
}

/* A whole pass is told; a reset of somebody's drops it. */
static spec_status ticket_end(struct actor *actor)
{
    spec_status status = rig_wait(&actor->desk.rig, actor->desk.ticket);
    assert_true(status == SPEC_OK || status == SPEC_E_DROPPED || status == SPEC_E_BUSY);
    return status;
}

/* A request may end between its calls: then nothing is said of the item. */
static spec_status load(struct desk *desk, spec_request request, uint64_t rows, uint32_t layer)
{
    struct area area = rig_area(&desk->rig, rows + 1);
    struct spec_important item = rig_item(request, layer, &area.memory);
    spec_status status = sc_plugin_get_important(desk->rig.conn, &item, 1, NULL);
    if (status == SPEC_OK) {
        assert_int_equal(item.row_count, rows);
        assert_true(rig_area_is_right(&desk->rig, &area, &desk->prompt, 0, rows, layer));
    }
    rig_area_free(&area);
    return status;
}

/* As rig_read, beside resets: UINT64_MAX where one came between. */
static uint64_t read_back(struct desk *desk)
{
    struct rig *rig = &desk->rig;
    struct spec_lookup_result result = rig_lookup(rig, &desk->prompt);
    spec_status status = SPEC_OK;
    for (uint32_t layer = 0; layer < rig->layers && status == SPEC_OK; layer++) {
        status = sc_plugin_begin_layer(rig->conn, &result.request, 1, layer, NULL);
        if (status == SPEC_OK)
            status = load(desk, result.request, result.matched_tokens, layer);
    }
    assert_true(status == SPEC_OK || status == SPEC_E_STALE);
    rig_release(rig, result.request);
    return status == SPEC_OK ? result.matched_tokens : UINT64_MAX;
}

static void act_once(struct actor *actor, enum how how)
{
    struct desk *desk = &actor->desk;
    spec_connector *conn = desk->rig.conn;
    spec_status told = SPEC_E_DROPPED, status = SPEC_PENDING;
    bool is_whole = how == STORE || how == STORE_RELEASE;
    uint32_t layers = is_whole ? DESK_LAYERS : 1 + (uint32_t)draw(actor, DESK_LAYERS - 1);
    desk->found = rig_lookup(&desk->rig, &desk->prompt);
    bool is_over = !store_layers(actor, layers);
    if (how == ABORT) {
        status = sc_plugin_store_abort(conn, desk->found.request, 0, NULL);
        assert_true(status == SPEC_OK || status == SPEC_E_STALE);
    }
    if (how == RESET)
        assert_int_equal(sc_plugin_reset(conn, NULL), SPEC_OK);
    if (how == STORE && !is_over)
        told = ticket_end(actor);
    rig_release(&desk->rig, desk->found.request);
    if (how == STORE_RELEASE && !is_over)
        told = ticket_end(actor);
    uint64_t read = read_back(desk);
    if (!actor->is_rough)
        assert_int_equal(read, told == SPEC_OK ? ROWS : 0);
    assert_true(read == 0 || (read == ROWS && told == SPEC_OK) || read == UINT64_MAX);
    actor->stored += told == SPEC_OK;
    actor->ended[how]++;
}

static void *act(void *user)
{
    struct actor *actor = user;
    struct desk *desk = &actor->desk;
    device_host_open(&desk->host, 0);
    for (uint32_t turn = 0; turn < TURNS; turn++) {
        desk->prompt = rig_prompt(actor->seed, 0, 0, ROWS);
        act_once(actor, actor->is_rough     ? (enum how)draw(actor, HOWS)
                        : turn == TURNS - 1 ? RELEASE
                                            : STORE);
        rig_prompt_free(&desk->prompt);
        desk_sources_free(desk);
    }
    device_host_close(&desk->host);
    return NULL;
}

/* ret_sum [HOWS]: how passes ended; returns how many were stored. */
static uint32_t run(enum fake_policy policy, bool is_rough, uint32_t *ret_sum)
{
    static struct actor actors[ACTORS];
    struct desk desk = {.there_count = 0};
    uint32_t stored = 0;
    fake_policy(policy, policy + 1);
    rig_init(&desk.rig, false, ON_0);
    rig_shape(&desk.rig, DESK_LAYERS, 3, 16, SPEC_DTYPE_F16);
    struct rig plain = desk.rig; /* as long as no thread but this one counts */
    rig_open(&desk.rig);
    plain.conn = desk.rig.conn;
    for (uint32_t i = 0; i < ACTORS; i++) {
        memset(&actors[i], 0, sizeof(actors[i]));
        actors[i].desk.rig = plain;
        actors[i].seed = rig_mix(policy * 100 + i);
        actors[i].is_rough = is_rough;
    }
    threads_run(act, actors, sizeof(actors[0]), ACTORS);
    for (uint32_t i = 0; i < ACTORS; i++) {
        stored += actors[i].stored;
        for (uint32_t how = 0; how < HOWS; how++)
            ret_sum[how] += actors[i].ended[how];
    }
    assert_int_equal(atomic_load(&desk.rig.conn->poison.broken), 0);
    desk_assert_idle(&desk);
    fake_policy(FAKE_EAGER, 1);
    rig_done(&desk.rig);
    device_assert_clean("threads");
    return stored;
}

static void threads_store_and_load_beside_each_other(void **state)
{
    (void)state;
    for (uint32_t policy = FAKE_LAZY; policy <= FAKE_RANDOM; policy++) {
        uint32_t sum[HOWS] = {0};
        uint32_t stored = run((enum fake_policy)policy, false, sum);
        assert_int_equal(stored, sum[STORE]);
        assert_int_equal(sum[STORE] + sum[RELEASE], ACTORS * TURNS);
    }
}

static void passes_end_in_any_way_while_others_store(void **state)
{
    (void)state;
    uint32_t sum[HOWS] = {0}, stored = 0;
    for (uint32_t policy = FAKE_EAGER; policy <= FAKE_RANDOM; policy++)
        stored += run((enum fake_policy)policy, true, sum);
    print_message("stored %" PRIu32 " of %" PRIu32 ", aborted %" PRIu32 ", released %" PRIu32
                  ", resets %" PRIu32 "\n",
                  stored, sum[STORE] + sum[STORE_RELEASE], sum[ABORT], sum[RELEASE], sum[RESET]);
    assert_true(stored > 0 && sum[ABORT] > 0 && sum[RELEASE] > 0 && sum[RESET] > 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_store_and_load_beside_each_other),
        cmocka_unit_test(passes_end_in_any_way_while_others_store),
    };
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
