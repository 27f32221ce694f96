/* Both ends of a match, at random: shapes, configurations, what the host does before, meanwhile and
 * after, reads that fail. Whatever is told as loaded is what was stored, in every layer, what was
 * given out stays as the host wrote it, nothing is both; all ends, and leaves nothing behind.
 *
 *   alone    the simulated disk, one thread: the same every time
 *   beside   a directory, threads that load from requests of their own, little staging memory */
#include "tests/sim/io_sim.h"
#include "tests/unit/plugin/plugin_fixture.h"
#include "tests/unit/plugin/tail_desk.h"
#include "tests/unit/threads.h"

#define HOSTS 4u
#ifndef SEEDS
#define SEEDS      1u
#define SEED_FIRST 1u
#endif

struct dice {
    uint64_t state;
};

static uint64_t dice_below(struct dice *dice, uint64_t count)
{
    dice->state = rig_mix(dice->state);
    return dice->state % count;
}

struct shape {
    const char *extra, *op, *stage;
    uint32_t layers, heads, head_size;
    uint64_t rows;
    uint32_t bits_k, bits_v; /* of quantised rows that it delivers; 0: none */
};

static const struct shape SHAPES[] = {
    {"\"chunk_tokens\": 16, \"load_policy\": \"bidirectional\"", "64KiB", NULL, 3, 8, 128, 300, 0,
     0},
    {"\"chunk_tokens\": 16, \"submit\": {\"threads\": 1}", "1MiB", NULL, 5, 2, 8, 300, 0, 0},
    {"\"chunk_tokens\": 256, \"submit\": {\"threads\": 0}", "64KiB", NULL, 2, 2, 64, 700, 0, 0},
    {"\"chunk_tokens\": 16, \"load_policy\": \"bidirectional\", \"store\": {\"layout\": "
     "\"split\"}, \"submit\": "
     "{\"threads\": 3}",
     "128KiB", NULL, 3, 4, 128, 250, 0, 0},
    {"\"chunk_tokens\": 16, \"load_policy\": \"bidirectional\", \"host_bytes\": \"2MiB\"", "1MiB",
     NULL, 3, 4, 128, 300, 0, 0},
    {"\"chunk_tokens\": 16, \"load_policy\": \"bidirectional\"", "64KiB", NULL, 1, 64, 256, 60, 0,
     0},
    {"\"chunk_tokens\": 16, \"load_policy\": \"bidirectional\", \"preset\": \"impress-itf\"",
     "64KiB", NULL, 3, 4, 64, 200, 0, 0},
    {"\"chunk_tokens\": 16, \"load_policy\": \"bidirectional\", \"preset\": \"layered-uniform\"",
     "64KiB", NULL, 3, 4, 64, 200, 0, 0},
    {"\"chunk_tokens\": 16, \"load_policy\": \"bidirectional\", \"preset\": \"int8\"", "64KiB",
     NULL, 3, 8, 128, 300, 8, 8},
    {"\"chunk_tokens\": 16, \"preset\": \"layered-uniform\", \"layered\": {\"exact_ppm\": 0}, "
     "\"store\": {\"layout\": \"split\"}, \"host_bytes\": \"1MiB\", \"submit\": {\"threads\": 3}",
     "128KiB", NULL, 3, 4, 128, 250, 4, 2},
    {"\"chunk_tokens\": 64, \"preset\": \"int8\", \"select\": {\"selector_bytes\": \"256KiB\"}",
     "64KiB", NULL, 2, 4, 128, 400, 8, 8},
};
#define SHAPE_COUNT (sizeof(SHAPES) / sizeof(SHAPES[0]))

static void scene_open(struct rig *rig, struct prompt *prompt, const struct shape *shape,
                       bool is_sim)
{
    rig_init(rig, is_sim, shape->extra);
    rig_shape(rig, shape->layers, shape->heads, shape->head_size, SPEC_DTYPE_F16);
    rig->op = shape->op;
    rig->stage = shape->stage;
    rig_open(rig);
    *prompt = rig_prompt(shape->rows, 0, 0, shape->rows);
    assert_int_equal(rig_fill(rig, prompt), SPEC_OK);
}

/* Whatever a host may do with the request before: its loads are given up. */
static void desk_meddle(struct tail_desk *desk, struct dice *dice)
{
    spec_connector *conn = desk->rig->conn;
    uint32_t layer = (uint32_t)dice_below(dice, desk->rig->layers);
    uint64_t what = dice_below(dice, 6);
    if (what == 0)
        (void)sc_plugin_begin_layer(conn, &desk->request, 1, layer, NULL);
    if (what == 1)
        (void)sc_plugin_prefetch_next(conn, desk->request, layer, NULL, NULL);
    if (what == 2 && desk->front == 0) { /* all rows, as far as the configuration has it so */
        struct spec_important plain = rig_item(desk->request, layer, &desk->areas[layer].memory);
        (void)sc_plugin_get_important(conn, &plain, 1, NULL);
    }
}

/* What is BUSY for a request that was submitted. */
static void desk_disturb(struct tail_desk *desk, struct dice *dice)
{
    spec_connector *conn = desk->rig->conn;
    spec_ticket ticket = 0;
    spec_status status = SPEC_E_BUSY;
    switch (dice_below(dice, 6)) {
    case 0:
        status = sc_plugin_submit(conn, desk->items, desk->rig->layers, &ticket, NULL);
        break;
    case 1:
        status = sc_plugin_begin_layer(conn, &desk->request, 1, 0, NULL);
        break;
    case 2:
        status = sc_plugin_prefetch_next(conn, desk->request, 0, NULL, NULL);
        break;
    default:
        break;
    }
    assert_int_equal(status, SPEC_E_BUSY);
}

static void assert_idle(const struct tail_desk *desk)
{
    struct sc_plugin_request *request = sc_plugin_request_find(desk->rig->conn, desk->request);
    assert_non_null(request);
    for (uint32_t i = 0; i < SC_PLUGIN_READERS; i++)
        assert_true(sc_store_reader_is_idle(request->readers[i].reader));
}

/* Waits, if need be several times, asking for more meanwhile. */
static spec_status desk_wait(struct tail_desk *desk, struct dice *dice)
{
    for (;;) {
        uint64_t timeout_ns = dice_below(dice, 2) == 0 ? UINT64_MAX : dice_below(dice, 300000);
        spec_status status = tail_desk_wait(desk, timeout_ns);
        if (status != SPEC_E_TIMEOUT)
            return status;
        (void)tail_desk_next(desk, 1 + dice_below(dice, 40), NULL);
    }
}

static void desk_ask(struct tail_desk *desk, struct dice *dice, uint64_t most)
{
    static const uint64_t BUDGETS[] = {1, 7, 16, 33, 100, UINT64_MAX};
    for (uint64_t i = dice_below(dice, most); i > 0; i--)
        if (!tail_desk_next(desk, BUDGETS[dice_below(dice, dice_below(dice, 8) == 0 ? 6 : 5)],
                            NULL))
            break;
}

/* One request, to its end. Returns the rows that were loaded of all that it had. */
static void desk_live(struct rig *rig, const struct prompt *prompt, const struct shape *shape,
                      struct dice *dice, bool may_fail)
{
    struct tail_desk desk;
    uint64_t from = dice_below(dice, 2) == 0 ? 0 : dice_below(dice, prompt->count - 1);
    uint64_t most = from + 1 + dice_below(dice, prompt->count - from);
    tail_desk_look(&desk, rig, prompt, from, most < prompt->count ? most : prompt->count);
    desk.bits_k = shape->bits_k;
    desk.bits_v = shape->bits_v;
    if (dice_below(dice, 3) == 0)
        tail_desk_dress(&desk, dice_below(dice, 5));
    bool may_partly = dice_below(dice, 4) == 0;
    desk_meddle(&desk, dice);
    desk_ask(&desk, dice, 4);
    for (uint64_t turn = 1 + dice_below(dice, 2); turn > 0; turn--) {
        for (uint32_t i = 0; i < rig->layers; i++)
            desk.items[i].deadline_ns = may_partly ? 1 + dice_below(dice, 1000000) : 0;
        assert_int_equal(tail_desk_submit(&desk), SPEC_OK);
        desk_disturb(&desk, dice);
        desk_ask(&desk, dice, 12);
        if (dice_below(dice, 10) == 0) {
            rig_release(rig, desk.request);
            desk.request = 0;
            (void)tail_desk_wait(&desk, UINT64_MAX);
            break;
        }
        spec_status status = desk_wait(&desk, dice);
        if (!may_fail)
            assert_int_equal(status, SPEC_OK);
        uint64_t loaded = tail_desk_check(&desk);
        if (status == SPEC_OK && !may_partly && rig->conn->config.base != SC_BASE_QUANTISED)
            assert_false(tail_desk_next(&desk, 1, NULL));
        assert_idle(&desk);
        if (turn == 1) {
            while (tail_desk_next(&desk, 64, NULL))
                continue;
            assert_int_equal(desk.front, desk.rows - loaded);
            tail_desk_compare(&desk, loaded);
        }
        desk_meddle(&desk, dice);
    }
    tail_desk_leave(&desk);
}

static void alone_with_reads_that_fail(void **state)
{
    (void)state;
    static const enum sc_io_sim_fault FAULTS[] = {SC_SIM_READ_EIO, SC_SIM_FLIP};
    for (uint64_t seed = 0; seed < SEEDS * SHAPE_COUNT; seed++) {
        struct rig rig;
        struct prompt prompt;
        struct dice dice = {seed + SEED_FIRST};
        scene_open(&rig, &prompt, &SHAPES[seed % SHAPE_COUNT], true);
        sc_io_sim_fault_scope(rig.disk, "seg-");
        for (uint32_t round = 0; round < 12; round++) {
            bool may_fail = dice_below(&dice, 3) == 0;
            if (may_fail)
                sc_io_sim_fault_nth(rig.disk, FAULTS[dice_below(&dice, 2)], dice_below(&dice, 30));
            desk_live(&rig, &prompt, &SHAPES[seed % SHAPE_COUNT], &dice, may_fail || round > 0);
            (void)rig_fill(&rig, &prompt); /* what failed; it may meet the fault, too */
        }
        rig_end(&rig, &prompt);
    }
}

struct host {
    pthread_t thread;
    struct rig *rig;
    const struct prompt *prompt;
    const struct shape *shape;
    struct dice dice;
};

static void *host_run(void *argument)
{
    struct host *host = argument;
    for (uint32_t round = 0; round < 10; round++)
        desk_live(host->rig, host->prompt, host->shape, &host->dice, false);
    return NULL;
}

static void beside_each_other(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < SEEDS * SHAPE_COUNT; seed++) {
        struct rig rig;
        struct prompt prompt;
        struct host hosts[HOSTS];
        scene_open(&rig, &prompt, &SHAPES[seed % SHAPE_COUNT], false);
        bool is_sealed = !rig.conn->choice.reads_quant; /* of what is stored, they are made later */
        if (is_sealed)
            sc_alloc_seal(&rig.conn->alloc);
        for (uint32_t i = 0; i < HOSTS; i++)
            hosts[i] = (struct host){.rig = &rig,
                                     .prompt = &prompt,
                                     .shape = &SHAPES[seed % SHAPE_COUNT],
                                     .dice = {(seed + SEED_FIRST) * HOSTS + i}};
        threads_run(host_run, hosts, sizeof(hosts[0]), HOSTS);
        if (is_sealed)
            sc_alloc_unseal(&rig.conn->alloc);
        assert_int_equal(atomic_load(&rig.conn->alloc.sealed_refusals), 0);
        rig_end(&rig, &prompt);
    }
}

/* Asks until all is met and the wait has reported. */
struct asker {
    pthread_t thread;
    struct tail_desk *desk;
    struct dice dice;
    _Atomic bool is_reported;
};

static void *asker_run(void *argument)
{
    struct asker *asker = argument;
    bool is_last = false;
    while (!is_last) {
        is_last = atomic_load(&asker->is_reported);
        while (tail_desk_next(asker->desk, 1 + dice_below(&asker->dice, 20), NULL))
            continue;
    }
    return NULL;
}

/* Ranges are given out by one thread while another waits; some reads fail. */
static void asked_while_another_waits(void **state)
{
    (void)state;
    for (uint64_t round = 0; round < 2 * SEEDS * SHAPE_COUNT; round++) {
        struct rig rig;
        struct prompt prompt;
        struct tail_desk desk;
        scene_open(&rig, &prompt, &SHAPES[round % SHAPE_COUNT], false);
        for (uint64_t i = 0; i < 4; i++) {
            struct asker asker = {.desk = &desk, .dice = {round * 4 + i + SEED_FIRST}};
            tail_desk_look(&desk, &rig, &prompt, 0, prompt.count);
            desk.bits_k = SHAPES[round % SHAPE_COUNT].bits_k;
            desk.bits_v = SHAPES[round % SHAPE_COUNT].bits_v;
            if (i % 2 == 1)
                sc_fault_arm(&rig.conn->fault, SC_FAULT_READ, dice_below(&asker.dice, 12));
            assert_int_equal(tail_desk_submit(&desk), SPEC_OK);
            assert_int_equal(pthread_create(&asker.thread, NULL, asker_run, &asker), 0);
            (void)tail_desk_wait(&desk, UINT64_MAX);
            atomic_store(&asker.is_reported, true);
            assert_int_equal(pthread_join(asker.thread, NULL), 0);
            assert_int_equal(desk.front + tail_desk_check(&desk), desk.rows);
            assert_idle(&desk);
            tail_desk_leave(&desk);
            (void)rig_fill(&rig, &prompt); /* what failed; it may meet the fault, too */
        }
        rig_end(&rig, &prompt);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(alone_with_reads_that_fail),
        cmocka_unit_test(beside_each_other),
        cmocka_unit_test(asked_while_another_waits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
