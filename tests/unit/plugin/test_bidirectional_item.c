/* Computing from the front while loading from the back (plugin/load/bidirectional.h), from inside:
 * where the two meet, what a device that stands still or lies does to it, what it may not be asked.
 * Who wrote a row: tail_desk.h. */
#include "plugin/load/bidirectional.h"
#include "tests/sim/io_sim.h"
#include "tests/unit/awaits.h"
#include "tests/unit/plugin/gate.h"
#include "tests/unit/plugin/plugin_fixture.h"
#include "tests/unit/plugin/tail_desk.h"

#include <stdio.h>

#define LAYERS 3u
#define ROWS   500u

/* The work is wait's (the loop, and without threads), a thread's. */
static const struct {
    bool is_sim;
    const char *extra;
} WAYS[] = {{true, "\"chunk_tokens\": 16, \"host_bytes\": 0, \"load_policy\": \"bidirectional\""},
            {false, "\"chunk_tokens\": 16, \"host_bytes\": 0, \"submit\": {\"threads\": 0}"},
            {false, "\"chunk_tokens\": 16, \"host_bytes\": 0, \"load_policy\": \"bidirectional\""},
            {false, "\"chunk_tokens\": 16, \"store\": {\"layout\": \"split\"}"}};
#define WAY_COUNT (sizeof(WAYS) / sizeof(WAYS[0]))

struct scene {
    struct rig rig;
    struct prompt prompt;
};

/* Rows of 4 KiB, 16 of which are a block. */
static void scene_open(struct scene *scene, bool is_sim, const char *extra, uint64_t seed)
{
    rig_init(&scene->rig, is_sim, extra);
    rig_shape(&scene->rig, LAYERS, 8, 128, SPEC_DTYPE_F16);
    scene->rig.op = "64KiB";
    rig_open(&scene->rig);
    scene->prompt = rig_prompt(seed, 0, 0, ROWS);
    assert_int_equal(rig_fill(&scene->rig, &scene->prompt), SPEC_OK);
}

static void scene_close(struct scene *scene)
{
    rig_end(&scene->rig, &scene->prompt);
}

/* A request for all of it. */
static void scene_look(struct scene *scene, struct tail_desk *ret_desk)
{
    tail_desk_look(ret_desk, &scene->rig, &scene->prompt, 0, ROWS);
}

static void expect(struct tail_desk *desk, spec_status status, uint64_t loaded)
{
    assert_int_equal(desk->items[0].status, status);
    assert_int_equal(tail_desk_check(desk), loaded);
}

/* ---- Where they meet ------------------------------------------------------------------------ */

static void without_computing_all_is_loaded_and_nothing_allocated(void **state)
{
    (void)state;
    for (uint64_t way = 0; way < WAY_COUNT; way++) {
        struct scene scene;
        struct tail_desk desk;
        scene_open(&scene, WAYS[way].is_sim, WAYS[way].extra, way);
        sc_alloc_seal(&scene.rig.conn->alloc);
        for (uint32_t round = 0; round < 3; round++) {
            scene_look(&scene, &desk);
            assert_int_equal(tail_desk_submit(&desk), SPEC_OK);
            assert_int_equal(tail_desk_wait(&desk, UINT64_MAX), SPEC_OK);
            expect(&desk, SPEC_OK, ROWS);
            assert_false(tail_desk_next(&desk, 512, NULL));
            tail_desk_leave(&desk);
        }
        sc_alloc_unseal(&scene.rig.conn->alloc);
        assert_int_equal(atomic_load(&scene.rig.conn->alloc.sealed_refusals), 0);
        scene_close(&scene);
    }
}

/* All of it may be computed, too, and then nothing is written that was loaded. */
static void what_is_given_out_before_is_not_loaded(void **state)
{
    (void)state;
    static const uint64_t BUDGETS[] = {1, 15, 16, 17, 100, 483, 484, 499, 500, 100000};
    for (uint64_t way = 0; way < WAY_COUNT; way++) {
        struct scene scene;
        struct tail_desk desk;
        scene_open(&scene, WAYS[way].is_sim, WAYS[way].extra, way);
        for (uint64_t i = 0; i < sizeof(BUDGETS) / sizeof(BUDGETS[0]); i++) {
            scene_look(&scene, &desk);
            assert_true(tail_desk_next(&desk, BUDGETS[i], NULL));
            uint64_t front = desk.front;
            assert_int_equal(tail_desk_submit(&desk), SPEC_OK);
            assert_int_equal(tail_desk_wait(&desk, UINT64_MAX), SPEC_OK);
            expect(&desk, SPEC_OK, ROWS - front);
            assert_false(tail_desk_next(&desk, 1, NULL));
            /* Once more, into the same memory. */
            assert_int_equal(tail_desk_submit(&desk), SPEC_OK);
            assert_int_equal(tail_desk_wait(&desk, UINT64_MAX), SPEC_OK);
            expect(&desk, SPEC_OK, ROWS - front);
            tail_desk_leave(&desk);
        }
        scene_close(&scene);
    }
}

static void ranges_end_on_the_grid_where_they_can(void **state)
{
    (void)state;
    static const uint64_t STEPS[][3] = {{20, 5, 11}, {16, 16, 16}, {3, 32, 3},   {40, 35, 29},
                                        {5, 64, 5},  {11, 69, 11}, {33, 80, 32}, {600, 112, 388}};
    struct scene scene;
    struct tail_desk desk;
    scene_open(&scene, true, WAYS[0].extra, 1);
    tail_desk_look(&desk, &scene.rig, &scene.prompt, 5, ROWS);
    for (uint64_t i = 0; i < sizeof(STEPS) / sizeof(STEPS[0]); i++) {
        struct spec_next_chunk chunk = {
            .struct_size = sizeof(chunk), .request = desk.request, .budget_tokens = STEPS[i][0]};
        assert_int_equal(sc_plugin_next_chunk(scene.rig.conn, &chunk, NULL), SPEC_OK);
        assert_int_equal(chunk.state, SPEC_CHUNK_COMPUTE);
        assert_int_equal(chunk.first_token, STEPS[i][1]);
        assert_int_equal(chunk.token_count, STEPS[i][2]);
    }
    tail_desk_leave(&desk);
    scene_close(&scene);
}

/* The loading side runs meanwhile, however fast it is. */
static void both_ends_at_once(void **state)
{
    (void)state;
    for (uint64_t way = 2; way < WAY_COUNT; way++) {
        struct scene scene;
        struct tail_desk desk;
        uint64_t computed = 0, loaded = 0;
        scene_open(&scene, WAYS[way].is_sim, WAYS[way].extra, way);
        for (uint64_t round = 0; round < 40; round++) {
            scene_look(&scene, &desk);
            assert_int_equal(tail_desk_submit(&desk), SPEC_OK);
            for (uint64_t step = 0;
                 tail_desk_next(&desk, 1 + rig_mix(round * 1000 + step) % 24, NULL);)
                step++;
            assert_int_equal(tail_desk_wait(&desk, UINT64_MAX), SPEC_OK);
            expect(&desk, SPEC_OK, ROWS - desk.front);
            assert_false(tail_desk_next(&desk, 1, NULL));
            computed += desk.front;
            loaded += ROWS - desk.front;
            tail_desk_leave(&desk);
        }
        assert_int_equal(computed + loaded, 40 * ROWS);
        assert_int_equal(atomic_load(&scene.rig.conn->stats.given_tokens), computed);
        assert_int_equal(atomic_load(&scene.rig.conn->stats.tail_tokens), loaded);
        scene_close(&scene);
    }
}

/* ---- Devices -------------------------------------------------------------------------------- */

/* Nothing comes: all is computed, and the wait is over although the device still stands. */
static void a_device_that_stands_still_costs_nothing(void **state)
{
    (void)state;
    struct gate gate = GATE_OPEN;
    for (uint32_t round = 0; round < 8; round++) {
        struct scene scene;
        struct tail_desk desk;
        scene_open(&scene, false, WAYS[2].extra, round);
        sc_fault_gate_set(&scene.rig.conn->fault, gate_pass, &gate);
        scene_look(&scene, &desk);
        gate_shut(&gate, true);
        assert_int_equal(tail_desk_submit(&desk), SPEC_OK);
        if (round % 2 == 0)
            assert_true(gate_await(&gate, 1)); /* reads are on their way */
        while (tail_desk_next(&desk, 100, NULL))
            continue;
        assert_int_equal(desk.front, ROWS);
        assert_int_equal(tail_desk_wait(&desk, UINT64_MAX), SPEC_OK);
        expect(&desk, SPEC_OK, 0);
        gate_shut(&gate, false);
        tail_desk_leave(&desk);
        scene_close(&scene);
    }
}

/* The loading ends at its deadline; the rest is given out. */
static void at_its_deadline_what_is_there_counts(void **state)
{
    (void)state;
    struct gate gate = GATE_OPEN;
    struct scene scene;
    struct tail_desk desk;
    scene_open(&scene, false, WAYS[2].extra, 1);
    sc_fault_gate_set(&scene.rig.conn->fault, gate_pass, &gate);
    scene_look(&scene, &desk);
    gate_shut(&gate, true);
    desk.items[1].deadline_ns = 1000000;
    assert_true(tail_desk_next(&desk, 100, NULL));
    assert_int_equal(tail_desk_submit(&desk), SPEC_OK);
    assert_int_equal(tail_desk_wait(&desk, UINT64_MAX), SPEC_OK);
    for (uint32_t i = 0; i < LAYERS; i++)
        assert_int_equal(desk.items[i].result_flags, SPEC_IMPORTANT_PARTIAL);
    expect(&desk, SPEC_OK, 0);
    gate_shut(&gate, false);
    while (tail_desk_next(&desk, 100, NULL))
        continue;
    assert_int_equal(desk.front, ROWS);
    tail_desk_leave(&desk);
    scene_close(&scene);
}

/* The only thread is at a tail that has no deadline, on a device that stands still: who waits for
 * the other, if not for ever, ends it at its first deadline, and not at its last. */
static void a_deadline_ends_one_that_no_thread_has_begun(void **state)
{
    (void)state;
    struct gate gate = GATE_OPEN;
    struct scene scene;
    struct tail_desk desk, late;
    scene_open(&scene, false,
               "\"chunk_tokens\": 16, \"host_bytes\": 0, \"submit\": {\"threads\": 1}", 1);
    sc_fault_gate_set(&scene.rig.conn->fault, gate_pass, &gate);
    scene_look(&scene, &desk);
    scene_look(&scene, &late);
    gate_shut(&gate, true);
    assert_int_equal(tail_desk_submit(&desk), SPEC_OK);
    assert_true(gate_await(&gate, 1));
    late.items[1].deadline_ns = 1000000;
    assert_int_equal(tail_desk_submit(&late), SPEC_OK);
    assert_int_equal(
        sc_plugin_submit_wait(scene.rig.conn, late.ticket, UINT64_C(30000000000), NULL), SPEC_OK);
    expect(&late, SPEC_OK, 0);
    assert_int_equal(late.items[0].result_flags, SPEC_IMPORTANT_PARTIAL);
    gate_shut(&gate, false);
    assert_int_equal(tail_desk_wait(&desk, UINT64_MAX), SPEC_OK);
    expect(&desk, SPEC_OK, ROWS);
    tail_desk_leave(&desk);
    tail_desk_leave(&late);
    scene_close(&scene);
}

/* Each read fails once, or has a bit that is wrong. What was loaded until then is right, in every
 * layer; the rest is given out, also where all had been. */
static void a_read_that_fails_ends_the_loading_alone(void **state)
{
    (void)state;
    static const enum sc_io_sim_fault FAULTS[] = {SC_SIM_READ_EIO, SC_SIM_FLIP};
    uint64_t failed = 0, partly = 0;
    for (uint32_t kind = 0; kind < 2; kind++)
        for (uint64_t n = 0;; n++) {
            struct scene scene;
            struct tail_desk desk;
            scene_open(&scene, true, WAYS[0].extra, n);
            scene_look(&scene, &desk);
            while (desk.front < n % 4 * 100 && tail_desk_next(&desk, 100, NULL))
                continue;
            uint64_t front = desk.front;
            sc_io_sim_fault_scope(scene.rig.disk, "seg-");
            sc_io_sim_fault_nth(scene.rig.disk, FAULTS[kind], n);
            assert_int_equal(tail_desk_submit(&desk), SPEC_OK);
            spec_status status = tail_desk_wait(&desk, UINT64_MAX);
            uint64_t loaded = desk.items[0].row_count;
            bool has_fired = sc_io_sim_fault_fired(scene.rig.disk, FAULTS[kind]) > 0;
            expect(&desk, status, loaded);
            if (status == SPEC_OK) {
                assert_int_equal(loaded, ROWS - front);
            } else {
                assert_int_equal(status, kind == 0 ? SPEC_E_IO : SPEC_E_CORRUPT);
                assert_true(has_fired && loaded < ROWS - front);
                assert_true(desk.items[0].failed_position < ROWS);
                failed++;
                partly += loaded > 0;
            }
            while (tail_desk_next(&desk, 100, NULL))
                continue;
            assert_int_equal(desk.front, ROWS - loaded);
            expect(&desk, status, loaded);
            if (status != SPEC_OK) { /* void: it does not load */
                assert_int_equal(tail_desk_submit(&desk), SPEC_OK);
                assert_int_equal(tail_desk_wait(&desk, UINT64_MAX), status);
            }
            tail_desk_leave(&desk);
            scene_close(&scene);
            if (!has_fired)
                break;
        }
    assert_true(failed > 40 && partly > 20);
}

/* ---- Devices and engines of known speeds, in virtual time ------------------------------------ */

/* Asks, computes as long as that takes, asks again, while the host waits. */
struct engine {
    struct sc_task task;
    struct tail_desk *desk;
    uint64_t budget, row_ns;
    _Atomic uint32_t is_met;
};

static void engine_step(struct sc_task *task)
{
    struct engine *engine = SC_TASK_OWNER(task, struct engine, task);
    struct sc_exec *exec = engine->desk->rig->conn->exec;
    uint64_t before = engine->desk->front;
    if (!tail_desk_next(engine->desk, engine->budget, NULL)) {
        atomic_store(&engine->is_met, 1);
        sc_exec_wake(exec, &engine->is_met);
        return;
    }
    uint64_t count = engine->desk->front - before;
    sc_exec_post_at(exec, task, SC_IO_CLASS_DEMAND, sc_exec_now_ns(exec) + count * engine->row_ns);
}

/* On a device of this rate; returns how long both ends took. */
static uint64_t scene_meet(struct scene *scene, struct tail_desk *desk, struct engine *engine,
                           uint64_t bytes_per_s)
{
    scene_open(scene, true, WAYS[0].extra, 1);
    scene_look(scene, desk);
    sc_io_sim_disk_rate(scene->rig.disk, bytes_per_s);
    struct sc_exec *exec = scene->rig.conn->exec;
    uint64_t begin_ns = sc_exec_now_ns(exec);
    engine->task.step = engine_step;
    engine->desk = desk;
    assert_int_equal(tail_desk_submit(desk), SPEC_OK);
    sc_exec_post(exec, &engine->task, SC_IO_CLASS_DEMAND);
    assert_int_equal(tail_desk_wait(desk, UINT64_MAX), SPEC_OK);
    assert_true(sc_exec_wait(exec, &engine->is_met, 0, SC_EXEC_FOREVER));
    uint64_t took_ns = sc_exec_now_ns(exec) - begin_ns;
    for (uint32_t i = 0; i < LAYERS; i++)
        assert_int_equal(desk->items[i].result_flags, 0);
    expect(desk, SPEC_OK, ROWS - desk->front);
    assert_false(tail_desk_next(desk, 1, NULL));
    sc_io_sim_disk_rate(scene->rig.disk, 0);
    return took_ns;
}

/* The first read brings a page of tags, and its rows would come long after all is computed. */
static void tags_alone_hold_nobody_up(void **state)
{
    (void)state;
    struct scene scene;
    struct tail_desk desk;
    struct engine engine = {.budget = 100, .row_ns = 4000000};
    assert_true(scene_meet(&scene, &desk, &engine, 4096) <= 500 * engine.row_ns);
    assert_int_equal(desk.front, ROWS);
    tail_desk_leave(&desk);
    scene_close(&scene);
}

/* A device may still be writing rows of the block that failed: only the wait gives them back. */
static void what_failed_is_given_out_when_it_is_reported_and_not_before(void **state)
{
    (void)state;
    uint32_t taken = 0;
    for (uint64_t n = 0; n < 12; n++) {
        struct scene scene;
        struct tail_desk desk;
        scene_open(&scene, false, WAYS[2].extra, n);
        char path[160];
        (void)snprintf(path, sizeof(path), "%s/rank-0000-of-0001/seg-00000000", scene.rig.path);
        FILE *file = fopen(path, "r+b");
        assert_non_null(file);
        assert_int_equal(fseek(file, (long)(2000000 + n * 333000), SEEK_SET), 0);
        for (uint64_t i = 0; i < 4096; i++)
            assert_int_not_equal(fputc(0xee, file), EOF);
        assert_int_equal(fclose(file), 0);
        scene_look(&scene, &desk);
        assert_int_equal(tail_desk_submit(&desk), SPEC_OK);
        struct sc_plugin_request *request = sc_plugin_request_find(scene.rig.conn, desk.request);
        uint32_t looks = 0;
        while (atomic_load(&request->turn) != 0)
            await_or_fail(&looks, "the submission's work is done");
        while (tail_desk_next(&desk, 100, NULL))
            continue;
        uint64_t early = desk.front;
        spec_status status = tail_desk_wait(&desk, UINT64_MAX);
        uint64_t loaded = desk.items[0].row_count;
        assert_int_equal(status, SPEC_E_CORRUPT);
        while (tail_desk_next(&desk, 100, NULL))
            continue;
        assert_int_equal(desk.front, ROWS - loaded);
        expect(&desk, status, loaded);
        assert_true(desk.front - early <= 20); /* a block */
        taken += desk.front > early;           /* not if layer 0 failed, which comes first */
        tail_desk_leave(&desk);
        scene_close(&scene);
    }
    assert_true(taken >= 8);
}

/* ---- Ends ----------------------------------------------------------------------------------- */

/* Released or reset while the device stands: STALE, and nothing is left behind. */
static void released_or_reset_meanwhile_it_is_stale(void **state)
{
    (void)state;
    struct gate gate = GATE_OPEN;
    for (uint32_t how = 0; how < 4; how++) {
        struct scene scene;
        struct tail_desk desk;
        scene_open(&scene, false, WAYS[2].extra, how);
        sc_fault_gate_set(&scene.rig.conn->fault, gate_pass, &gate);
        scene_look(&scene, &desk);
        gate_shut(&gate, true);
        assert_int_equal(tail_desk_submit(&desk), SPEC_OK);
        if (how < 2)
            assert_true(gate_await(&gate, 1));
        struct spec_next_chunk chunk = {
            .struct_size = sizeof(chunk), .request = desk.request, .budget_tokens = 16};
        if (how % 2 == 0) {
            rig_release(&scene.rig, desk.request);
            desk.request = 0;
        } else {
            gate_shut(&gate, false); /* it writes to the log, too */
            assert_int_equal(sc_plugin_reset(scene.rig.conn, NULL), SPEC_OK);
        }
        assert_int_equal(sc_plugin_next_chunk(scene.rig.conn, &chunk, NULL), SPEC_E_STALE);
        assert_int_equal(chunk.token_count, 0);
        gate_shut(&gate, false);
        spec_status status = tail_desk_wait(&desk, UINT64_MAX);
        assert_true(status == SPEC_E_STALE || (how % 2 == 1 && status == SPEC_OK));
        tail_desk_leave(&desk);
        scene_close(&scene);
    }
}

static void what_is_no_tail_is_invalid(void **state)
{
    (void)state;
    struct scene scene;
    struct tail_desk desk;
    scene_open(&scene, true, WAYS[0].extra, 1);
    scene_look(&scene, &desk);
    struct spec_important good[LAYERS];
    memcpy(good, desk.items, sizeof(good));
    struct spec_queries queries = {.struct_size = sizeof(queries)};
    struct spec_select select = {.struct_size = sizeof(select)};
    uint64_t bits[8] = {0};
    uint32_t positions[ROWS];
    for (uint32_t wrong = 0; wrong < 13; wrong++) {
        struct spec_important *item = &desk.items[1];
        uint64_t count = LAYERS;
        memcpy(desk.items, good, sizeof(good));
        item->queries = wrong == 0 ? &queries : NULL;
        item->select = wrong == 1 ? &select : NULL;
        item->new_keys = wrong == 2 ? &desk.areas[1].memory : NULL;
        item->positions = wrong == 3 ? positions : NULL;
        item->position_capacity = ROWS;
        item->exact_bits = wrong == 4 ? bits : NULL;
        item->budget_bytes = wrong == 5;
        item->refine_of = wrong == 6;
        item->flags = wrong == 7   ? SPEC_ITEM_BIDIRECTIONAL | SPEC_ITEM_AHEAD
                      : wrong == 8 ? 0
                      : wrong == 9 ? 8
                                   : SPEC_ITEM_BIDIRECTIONAL;
        item->layer = wrong == 10 ? 2 : 1;
        desk.items[0].flags = wrong == 11 ? 0 : SPEC_ITEM_BIDIRECTIONAL;
        count = wrong == 12 ? LAYERS - 1 : count;
        assert_int_equal(sc_plugin_submit(scene.rig.conn, desk.items, count, &desk.ticket, NULL),
                         SPEC_E_INVALID);
    }
    memcpy(desk.items, good, sizeof(good));
    assert_int_equal(sc_plugin_get_important(scene.rig.conn, desk.items, LAYERS, NULL),
                     SPEC_E_INVALID);
    struct spec_next_chunk chunk = {.struct_size = sizeof(chunk), .request = desk.request};
    assert_int_equal(sc_plugin_next_chunk(scene.rig.conn, &chunk, NULL), SPEC_E_INVALID);
    assert_int_equal(sc_plugin_next_chunk(scene.rig.conn, NULL, NULL), SPEC_E_INVALID);
    chunk.struct_size = 24;
    assert_int_equal(sc_plugin_next_chunk(scene.rig.conn, &chunk, NULL), SPEC_E_INVALID);
    assert_int_equal(tail_desk_submit(&desk), SPEC_OK);
    assert_int_equal(tail_desk_wait(&desk, UINT64_MAX), SPEC_OK);
    expect(&desk, SPEC_OK, ROWS);
    tail_desk_leave(&desk);
    scene_close(&scene);
}

/* As many as may be are out: what would be wrong later, too, is said first. */
static void what_is_no_tail_is_invalid_though_all_are_out(void **state)
{
    (void)state;
    struct scene scene;
    static struct tail_desk desk, out[64];
    scene_open(&scene, true,
               "\"chunk_tokens\": 16, \"host_bytes\": 0, \"max_requests\": 65, "
               "\"max_request_tokens\": 1024",
               1);
    for (uint32_t i = 0; i < 64; i++) {
        scene_look(&scene, &out[i]);
        assert_int_equal(tail_desk_submit(&out[i]), SPEC_OK);
    }
    scene_look(&scene, &desk);
    assert_int_equal(tail_desk_submit(&desk), SPEC_E_BUSY);
    assert_int_equal(sc_plugin_submit(scene.rig.conn, desk.items, LAYERS - 1, &desk.ticket, NULL),
                     SPEC_E_INVALID);
    desk.items[2].layer = 1;
    assert_int_equal(tail_desk_submit(&desk), SPEC_E_INVALID);
    for (uint32_t i = 0; i < 64; i++) {
        assert_int_equal(tail_desk_wait(&out[i], UINT64_MAX), SPEC_OK);
        if (i % 32 == 0)
            expect(&out[i], SPEC_OK, ROWS);
        tail_desk_leave(&out[i]);
    }
    tail_desk_leave(&desk);
    scene_close(&scene);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_computing_all_is_loaded_and_nothing_allocated),
        cmocka_unit_test(what_is_given_out_before_is_not_loaded),
        cmocka_unit_test(ranges_end_on_the_grid_where_they_can),
        cmocka_unit_test(both_ends_at_once),
        cmocka_unit_test(a_device_that_stands_still_costs_nothing),
        cmocka_unit_test(at_its_deadline_what_is_there_counts),
        cmocka_unit_test(a_deadline_ends_one_that_no_thread_has_begun),
        cmocka_unit_test(a_read_that_fails_ends_the_loading_alone),
        cmocka_unit_test(tags_alone_hold_nobody_up),
        cmocka_unit_test(what_failed_is_given_out_when_it_is_reported_and_not_before),
        cmocka_unit_test(released_or_reset_meanwhile_it_is_stale),
        cmocka_unit_test(what_is_no_tail_is_invalid),
        cmocka_unit_test(what_is_no_tail_is_invalid_though_all_are_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
