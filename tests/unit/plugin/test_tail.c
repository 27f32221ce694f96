/* Computing from the front while loading from the back (plugin/load/ends.h), from inside: where the
 * two meet, what a device that stands still or lies does to it, what it may not be asked.
 *
 *   desk   a request's whole match in memory, a place a layer; what is "computed" is written as the
 *          rows' bits turned over, so that it shows who wrote a row, and that one side alone did */
#include "plugin/choose/select.h"
#include "tests/sim/io_sim.h"
#include "tests/unit/plugin/plugin_fixture.h"

#include <pthread.h>
#include <sched.h>
#include <stdio.h>

#define LAYERS 3u
#define ROWS   500u

/* The work is wait's (the loop, and without threads), a thread's. */
static const struct {
    bool is_sim;
    const char *extra;
} WAYS[] = {{true, "\"chunk_tokens\": 16, \"host_bytes\": 0, \"fill\": \"ends\""},
            {false, "\"chunk_tokens\": 16, \"host_bytes\": 0, \"submit\": {\"threads\": 0}"},
            {false, "\"chunk_tokens\": 16, \"host_bytes\": 0, \"fill\": \"ends\""},
            {false, "\"chunk_tokens\": 16, \"store\": {\"layout\": \"split\"}"}};
#define WAY_COUNT (sizeof(WAYS) / sizeof(WAYS[0]))

struct desk {
    struct rig rig;
    struct prompt prompt;
    spec_request request;
    struct area areas[LAYERS];
    struct spec_important items[LAYERS];
    spec_ticket ticket;
    uint64_t rows, front;
};

/* Rows of 4 KiB, 16 of which are a block. */
static void desk_open(struct desk *desk, bool is_sim, const char *extra, uint64_t seed)
{
    *desk = (struct desk){.rows = ROWS};
    rig_init(&desk->rig, is_sim, extra);
    rig_shape(&desk->rig, LAYERS, 8, 128, SPEC_DTYPE_F16);
    desk->rig.op = "64KiB";
    rig_open(&desk->rig);
    desk->prompt = rig_prompt(seed, 0, 0, ROWS);
    assert_int_equal(rig_fill(&desk->rig, &desk->prompt), SPEC_OK);
}

static void desk_close(struct desk *desk)
{
    rig_prompt_free(&desk->prompt);
    rig_done(&desk->rig);
}

static void desk_look(struct desk *desk)
{
    struct spec_lookup_result found = rig_lookup(&desk->rig, &desk->prompt);
    desk->request = found.request;
    desk->rows = found.matched_tokens;
    desk->front = 0;
    for (uint32_t i = 0; i < LAYERS; i++) {
        desk->areas[i] = rig_area(&desk->rig, desk->rows);
        desk->items[i] = (struct spec_important){.struct_size = sizeof(desk->items[i]),
                                                 .flags = SPEC_ITEM_TAIL,
                                                 .request = found.request,
                                                 .layer = i,
                                                 .destination = &desk->areas[i].memory};
    }
}

static void desk_leave(struct desk *desk)
{
    for (uint32_t i = 0; i < LAYERS; i++)
        rig_area_free(&desk->areas[i]);
    if (desk->request != 0)
        rig_release(&desk->rig, desk->request);
}

static spec_status desk_submit(struct desk *desk)
{
    return sc_plugin_submit(desk->rig.conn, desk->items, LAYERS, &desk->ticket, NULL);
}

static spec_status desk_wait(struct desk *desk)
{
    return sc_plugin_submit_wait(desk->rig.conn, desk->ticket, UINT64_MAX, NULL);
}

/* K or V of a row, as it stands in an area. */
static uint8_t *row_at(struct desk *desk, uint32_t layer, uint32_t part, uint64_t row)
{
    const struct spec_memory *memory = &desk->areas[layer].memory;
    uint8_t *base = part == 0 ? memory->k_base : memory->v_base;
    return base + row * rig_part_bytes(&desk->rig);
}

/* What row i of the match is: stored, or as it is "computed" here. */
static void row_is(struct desk *desk, uint32_t layer, uint32_t part, uint64_t row, bool is_computed,
                   uint8_t *ret_bytes)
{
    rig_row(&desk->rig, &desk->prompt, row, layer, part, ret_bytes);
    for (uint64_t i = 0; is_computed && i < rig_part_bytes(&desk->rig); i++)
        ret_bytes[i] = (uint8_t)~ret_bytes[i];
}

/* The next tokens are computed; false: MET. */
static bool desk_compute(struct desk *desk, uint64_t budget)
{
    struct spec_next_chunk chunk = {
        .struct_size = sizeof(chunk), .request = desk->request, .budget_tokens = budget};
    assert_int_equal(sc_plugin_next_chunk(desk->rig.conn, &chunk, NULL), SPEC_OK);
    assert_int_equal(chunk.first_token, desk->front);
    assert_int_equal(chunk.state, chunk.token_count > 0 ? SPEC_CHUNK_COMPUTE : SPEC_CHUNK_MET);
    assert_true(chunk.token_count <= budget && chunk.token_count <= desk->rows - desk->front);
    for (uint64_t row = desk->front; row < desk->front + chunk.token_count; row++)
        for (uint32_t i = 0; i < 2 * LAYERS; i++)
            row_is(desk, i / 2, i % 2, row, true, row_at(desk, i / 2, i % 2, row));
    desk->front += chunk.token_count;
    return chunk.token_count > 0;
}

/* All items say the same; those rows are loaded, and those that were given out are as they were
 * written. Between the two nothing is known. */
static void desk_expect(struct desk *desk, spec_status status, uint64_t loaded)
{
    uint64_t part_bytes = rig_part_bytes(&desk->rig);
    uint8_t *right = malloc(part_bytes);
    assert_non_null(right);
    for (uint32_t i = 0; i < 2 * LAYERS; i++) {
        const struct spec_important *item = &desk->items[i / 2];
        assert_int_equal(item->status, status);
        assert_int_equal(item->row_count, loaded);
        assert_int_equal(item->exact_rows, loaded);
        assert_int_equal(item->next_position, desk->rows);
        for (uint64_t row = 0; row < desk->rows; row++) {
            bool is_loaded = row >= desk->rows - loaded;
            if (!is_loaded && row >= desk->front)
                continue;
            assert_false(is_loaded && row < desk->front);
            row_is(desk, i / 2, i % 2, row, !is_loaded, right);
            assert_memory_equal(row_at(desk, i / 2, i % 2, row), right, part_bytes);
        }
        assert_true(rig_is_poison(row_at(desk, i / 2, i % 2, 0) - RIG_GUARD, RIG_GUARD));
        assert_true(rig_is_poison(row_at(desk, i / 2, i % 2, desk->rows), RIG_GUARD));
    }
    free(right);
}

/* ---- Where they meet ------------------------------------------------------------------------ */

static void without_computing_all_is_loaded_and_nothing_allocated(void **state)
{
    (void)state;
    for (uint64_t way = 0; way < WAY_COUNT; way++) {
        struct desk desk;
        desk_open(&desk, WAYS[way].is_sim, WAYS[way].extra, way);
        sc_alloc_seal(&desk.rig.conn->alloc);
        for (uint32_t round = 0; round < 3; round++) {
            desk_look(&desk);
            assert_int_equal(desk_submit(&desk), SPEC_OK);
            assert_int_equal(desk_wait(&desk), SPEC_OK);
            desk_expect(&desk, SPEC_OK, ROWS);
            assert_false(desk_compute(&desk, 512));
            desk_leave(&desk);
        }
        sc_alloc_unseal(&desk.rig.conn->alloc);
        assert_int_equal(atomic_load(&desk.rig.conn->alloc.sealed_refusals), 0);
        desk_close(&desk);
    }
}

/* All of it may be computed, too, and then nothing is written that was loaded. */
static void what_is_given_out_before_is_not_loaded(void **state)
{
    (void)state;
    static const uint64_t BUDGETS[] = {1, 15, 16, 17, 100, 483, 484, 499, 500, 100000};
    for (uint64_t way = 0; way < WAY_COUNT; way++) {
        struct desk desk;
        desk_open(&desk, WAYS[way].is_sim, WAYS[way].extra, way);
        for (uint64_t i = 0; i < sizeof(BUDGETS) / sizeof(BUDGETS[0]); i++) {
            desk_look(&desk);
            assert_true(desk_compute(&desk, BUDGETS[i]));
            uint64_t front = desk.front;
            assert_int_equal(desk_submit(&desk), SPEC_OK);
            assert_int_equal(desk_wait(&desk), SPEC_OK);
            desk_expect(&desk, SPEC_OK, ROWS - front);
            assert_false(desk_compute(&desk, 1));
            /* Once more, into the same memory. */
            assert_int_equal(desk_submit(&desk), SPEC_OK);
            assert_int_equal(desk_wait(&desk), SPEC_OK);
            desk_expect(&desk, SPEC_OK, ROWS - front);
            desk_leave(&desk);
        }
        desk_close(&desk);
    }
}

static void ranges_end_on_the_grid_where_they_can(void **state)
{
    (void)state;
    static const uint64_t STEPS[][3] = {{20, 5, 11}, {16, 16, 16}, {3, 32, 3},   {40, 35, 29},
                                        {5, 64, 5},  {11, 69, 11}, {33, 80, 32}, {600, 112, 388}};
    struct desk desk;
    desk_open(&desk, true, WAYS[0].extra, 1);
    const struct spec_lookup_params params = {.struct_size = sizeof(params),
                                              .tokens = desk.prompt.tokens,
                                              .token_count = ROWS,
                                              .max_tokens = ROWS,
                                              .from_token = 5};
    struct spec_lookup_result found = {.struct_size = sizeof(found)};
    assert_int_equal(sc_plugin_lookup(desk.rig.conn, &params, &found, NULL), SPEC_OK);
    for (uint64_t i = 0; i < sizeof(STEPS) / sizeof(STEPS[0]); i++) {
        struct spec_next_chunk chunk = {
            .struct_size = sizeof(chunk), .request = found.request, .budget_tokens = STEPS[i][0]};
        assert_int_equal(sc_plugin_next_chunk(desk.rig.conn, &chunk, NULL), SPEC_OK);
        assert_int_equal(chunk.state, SPEC_CHUNK_COMPUTE);
        assert_int_equal(chunk.first_token, STEPS[i][1]);
        assert_int_equal(chunk.token_count, STEPS[i][2]);
    }
    rig_release(&desk.rig, found.request);
    desk_close(&desk);
}

/* The loading side runs meanwhile, however fast it is. */
static void both_ends_at_once(void **state)
{
    (void)state;
    for (uint64_t way = 2; way < WAY_COUNT; way++) {
        struct desk desk;
        uint64_t computed = 0, loaded = 0;
        desk_open(&desk, WAYS[way].is_sim, WAYS[way].extra, way);
        for (uint64_t round = 0; round < 40; round++) {
            desk_look(&desk);
            assert_int_equal(desk_submit(&desk), SPEC_OK);
            for (uint64_t step = 0; desk_compute(&desk, 1 + rig_mix(round * 1000 + step) % 24);)
                step++;
            assert_int_equal(desk_wait(&desk), SPEC_OK);
            desk_expect(&desk, SPEC_OK, ROWS - desk.front);
            assert_false(desk_compute(&desk, 1));
            computed += desk.front;
            loaded += ROWS - desk.front;
            desk_leave(&desk);
        }
        assert_int_equal(computed + loaded, 40 * ROWS);
        assert_int_equal(atomic_load(&desk.rig.conn->stats.given_tokens), computed);
        assert_int_equal(atomic_load(&desk.rig.conn->stats.tail_tokens), loaded);
        desk_close(&desk);
    }
}

/* ---- Devices -------------------------------------------------------------------------------- */

struct gate { /* completions of a device wait at it */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool is_shut;     /* guarded by lock */
    uint64_t waiting; /* guarded by lock */
};

static void gate_pass(void *user)
{
    struct gate *gate = user;
    pthread_mutex_lock(&gate->lock);
    gate->waiting++;
    pthread_cond_broadcast(&gate->changed);
    while (gate->is_shut)
        pthread_cond_wait(&gate->changed, &gate->lock);
    gate->waiting--;
    pthread_mutex_unlock(&gate->lock);
}

static void gate_shut(struct gate *gate, bool is_shut)
{
    pthread_mutex_lock(&gate->lock);
    gate->is_shut = is_shut;
    pthread_cond_broadcast(&gate->changed);
    pthread_mutex_unlock(&gate->lock);
}

static void gate_await(struct gate *gate)
{
    pthread_mutex_lock(&gate->lock);
    while (gate->waiting == 0)
        pthread_cond_wait(&gate->changed, &gate->lock);
    pthread_mutex_unlock(&gate->lock);
}

/* Nothing comes: all is computed, and the wait is over although the device still stands. */
static void a_device_that_stands_still_costs_nothing(void **state)
{
    (void)state;
    struct gate gate = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, false, 0};
    for (uint32_t round = 0; round < 8; round++) {
        struct desk desk;
        desk_open(&desk, false, WAYS[2].extra, round);
        sc_fault_gate_set(&desk.rig.conn->fault, gate_pass, &gate);
        desk_look(&desk);
        gate_shut(&gate, true);
        assert_int_equal(desk_submit(&desk), SPEC_OK);
        if (round % 2 == 0)
            gate_await(&gate); /* reads are on their way */
        while (desk_compute(&desk, 100))
            continue;
        assert_int_equal(desk.front, ROWS);
        assert_int_equal(desk_wait(&desk), SPEC_OK);
        desk_expect(&desk, SPEC_OK, 0);
        gate_shut(&gate, false);
        desk_leave(&desk);
        desk_close(&desk);
    }
}

/* The loading ends at its deadline; the rest is given out. */
static void at_its_deadline_what_is_there_counts(void **state)
{
    (void)state;
    struct gate gate = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, false, 0};
    struct desk desk;
    desk_open(&desk, false, WAYS[2].extra, 1);
    sc_fault_gate_set(&desk.rig.conn->fault, gate_pass, &gate);
    desk_look(&desk);
    gate_shut(&gate, true);
    desk.items[1].deadline_ns = 1000000;
    assert_true(desk_compute(&desk, 100));
    assert_int_equal(desk_submit(&desk), SPEC_OK);
    assert_int_equal(desk_wait(&desk), SPEC_OK);
    for (uint32_t i = 0; i < LAYERS; i++)
        assert_int_equal(desk.items[i].result_flags, SPEC_IMPORTANT_PARTIAL);
    desk_expect(&desk, SPEC_OK, 0);
    gate_shut(&gate, false);
    while (desk_compute(&desk, 100))
        continue;
    assert_int_equal(desk.front, ROWS);
    desk_leave(&desk);
    desk_close(&desk);
}

/* The only thread is at a tail that has no deadline, on a device that stands still: who waits for
 * the other, if not for ever, ends it at its first deadline, and not at its last. */
static void a_deadline_ends_one_that_no_thread_has_begun(void **state)
{
    (void)state;
    struct gate gate = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, false, 0};
    struct desk desk, late;
    desk_open(&desk, false, "\"chunk_tokens\": 16, \"host_bytes\": 0, \"submit\": {\"threads\": 1}",
              1);
    sc_fault_gate_set(&desk.rig.conn->fault, gate_pass, &gate);
    late = desk;
    desk_look(&desk);
    desk_look(&late);
    gate_shut(&gate, true);
    assert_int_equal(desk_submit(&desk), SPEC_OK);
    gate_await(&gate);
    late.items[1].deadline_ns = 1000000;
    assert_int_equal(desk_submit(&late), SPEC_OK);
    assert_int_equal(sc_plugin_submit_wait(desk.rig.conn, late.ticket, UINT64_C(30000000000), NULL),
                     SPEC_OK);
    desk_expect(&late, SPEC_OK, 0);
    assert_int_equal(late.items[0].result_flags, SPEC_IMPORTANT_PARTIAL);
    gate_shut(&gate, false);
    assert_int_equal(desk_wait(&desk), SPEC_OK);
    desk_expect(&desk, SPEC_OK, ROWS);
    desk_leave(&desk);
    desk_leave(&late);
    desk_close(&desk);
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
            struct desk desk;
            desk_open(&desk, true, WAYS[0].extra, n);
            desk_look(&desk);
            while (desk.front < n % 4 * 100 && desk_compute(&desk, 100))
                continue;
            uint64_t front = desk.front;
            sc_io_sim_fault_scope(desk.rig.disk, "seg-");
            sc_io_sim_fault_nth(desk.rig.disk, FAULTS[kind], n);
            assert_int_equal(desk_submit(&desk), SPEC_OK);
            spec_status status = desk_wait(&desk);
            uint64_t loaded = desk.items[0].row_count;
            bool has_fired = sc_io_sim_fault_fired(desk.rig.disk, FAULTS[kind]) > 0;
            desk_expect(&desk, status, loaded);
            if (status == SPEC_OK) {
                assert_int_equal(loaded, ROWS - front);
            } else {
                assert_int_equal(status, kind == 0 ? SPEC_E_IO : SPEC_E_CORRUPT);
                assert_true(has_fired && loaded < ROWS - front);
                assert_true(desk.items[0].failed_position < ROWS);
                failed++;
                partly += loaded > 0;
            }
            while (desk_compute(&desk, 100))
                continue;
            assert_int_equal(desk.front, ROWS - loaded);
            desk_expect(&desk, status, loaded);
            if (status != SPEC_OK) { /* void: it does not load */
                assert_int_equal(desk_submit(&desk), SPEC_OK);
                assert_int_equal(desk_wait(&desk), status);
            }
            desk_leave(&desk);
            desk_close(&desk);
            if (!has_fired)
                break;
        }
    assert_true(failed > 40 && partly > 20);
}

/* ---- Devices and engines of known speeds, in virtual time ------------------------------------ */

/* Asks, computes as long as that takes, asks again, while the host waits. */
struct engine {
    struct sc_task task;
    struct desk *desk;
    uint64_t budget, row_ns;
    _Atomic uint32_t is_met;
};

static void engine_step(struct sc_task *task)
{
    struct engine *engine = SC_TASK_OWNER(task, struct engine, task);
    struct sc_exec *exec = engine->desk->rig.conn->exec;
    uint64_t before = engine->desk->front;
    if (!desk_compute(engine->desk, engine->budget)) {
        atomic_store(&engine->is_met, 1);
        sc_exec_wake(exec, &engine->is_met);
        return;
    }
    uint64_t count = engine->desk->front - before;
    sc_exec_post_at(exec, task, SC_LANE_DEMAND, sc_exec_now_ns(exec) + count * engine->row_ns);
}

/* On a device of this rate; returns how long both ends took. */
static uint64_t desk_meet(struct desk *desk, struct engine *engine, uint64_t bytes_per_s)
{
    desk_open(desk, true, WAYS[0].extra, 1);
    desk_look(desk);
    sc_io_sim_disk_rate(desk->rig.disk, bytes_per_s);
    struct sc_exec *exec = desk->rig.conn->exec;
    uint64_t begin_ns = sc_exec_now_ns(exec);
    engine->task.step = engine_step;
    engine->desk = desk;
    assert_int_equal(desk_submit(desk), SPEC_OK);
    sc_exec_post(exec, &engine->task, SC_LANE_DEMAND);
    assert_int_equal(desk_wait(desk), SPEC_OK);
    assert_true(sc_exec_wait(exec, &engine->is_met, 0, SC_EXEC_FOREVER));
    uint64_t took_ns = sc_exec_now_ns(exec) - begin_ns;
    for (uint32_t i = 0; i < LAYERS; i++)
        assert_int_equal(desk->items[i].result_flags, 0);
    desk_expect(desk, SPEC_OK, ROWS - desk->front);
    assert_false(desk_compute(desk, 1));
    sc_io_sim_disk_rate(desk->rig.disk, 0);
    return took_ns;
}

/* The first read brings a page of tags, and its rows would come long after all is computed. */
static void tags_alone_hold_nobody_up(void **state)
{
    (void)state;
    struct desk desk;
    struct engine engine = {.budget = 100, .row_ns = 4000000};
    assert_true(desk_meet(&desk, &engine, 4096) <= 500 * engine.row_ns);
    assert_int_equal(desk.front, ROWS);
    desk_leave(&desk);
    desk_close(&desk);
}

/* A device may still be writing rows of the block that failed: only the wait gives them back. */
static void what_failed_is_given_out_when_it_is_reported_and_not_before(void **state)
{
    (void)state;
    uint32_t taken = 0;
    for (uint64_t n = 0; n < 12; n++) {
        struct desk desk;
        desk_open(&desk, false, WAYS[2].extra, n);
        char path[160];
        (void)snprintf(path, sizeof(path), "%s/rank-0000-of-0001/seg-00000000", desk.rig.path);
        FILE *file = fopen(path, "r+b");
        assert_non_null(file);
        assert_int_equal(fseek(file, (long)(2000000 + n * 333000), SEEK_SET), 0);
        for (uint64_t i = 0; i < 4096; i++)
            assert_int_not_equal(fputc(0xee, file), EOF);
        assert_int_equal(fclose(file), 0);
        desk_look(&desk);
        assert_int_equal(desk_submit(&desk), SPEC_OK);
        struct sc_plugin_request *request = sc_plugin_request_find(desk.rig.conn, desk.request);
        while (atomic_load(&request->turn) != 0) /* until the work is done */
            sched_yield();
        while (desk_compute(&desk, 100))
            continue;
        uint64_t early = desk.front;
        spec_status status = desk_wait(&desk);
        uint64_t loaded = desk.items[0].row_count;
        assert_int_equal(status, SPEC_E_CORRUPT);
        while (desk_compute(&desk, 100))
            continue;
        assert_int_equal(desk.front, ROWS - loaded);
        desk_expect(&desk, status, loaded);
        assert_true(desk.front - early <= 20); /* a block */
        taken += desk.front > early;           /* not if layer 0 failed, which comes first */
        desk_leave(&desk);
        desk_close(&desk);
    }
    assert_true(taken >= 8);
}

/* ---- Ends ----------------------------------------------------------------------------------- */

/* Released or reset while the device stands: STALE, and nothing is left behind. */
static void released_or_reset_meanwhile_it_is_stale(void **state)
{
    (void)state;
    struct gate gate = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, false, 0};
    for (uint32_t how = 0; how < 4; how++) {
        struct desk desk;
        desk_open(&desk, false, WAYS[2].extra, how);
        sc_fault_gate_set(&desk.rig.conn->fault, gate_pass, &gate);
        desk_look(&desk);
        gate_shut(&gate, true);
        assert_int_equal(desk_submit(&desk), SPEC_OK);
        if (how < 2)
            gate_await(&gate);
        struct spec_next_chunk chunk = {
            .struct_size = sizeof(chunk), .request = desk.request, .budget_tokens = 16};
        if (how % 2 == 0) {
            rig_release(&desk.rig, desk.request);
            desk.request = 0;
        } else {
            gate_shut(&gate, false); /* it writes to the log, too */
            assert_int_equal(sc_plugin_reset(desk.rig.conn, NULL), SPEC_OK);
        }
        assert_int_equal(sc_plugin_next_chunk(desk.rig.conn, &chunk, NULL), SPEC_E_STALE);
        assert_int_equal(chunk.token_count, 0);
        gate_shut(&gate, false);
        spec_status status = desk_wait(&desk);
        assert_true(status == SPEC_E_STALE || (how % 2 == 1 && status == SPEC_OK));
        desk_leave(&desk);
        desk_close(&desk);
    }
}

static void what_is_no_tail_is_invalid(void **state)
{
    (void)state;
    struct desk desk;
    desk_open(&desk, true, WAYS[0].extra, 1);
    desk_look(&desk);
    struct spec_important good[LAYERS];
    memcpy(good, desk.items, sizeof(good));
    struct spec_queries queries = {.struct_size = sizeof(queries)};
    struct spec_select select = {.struct_size = sizeof(select)};
    uint64_t bits[8] = {0};
    uint32_t positions[ROWS];
    for (uint32_t wrong = 0; wrong < 14; wrong++) {
        struct spec_important *item = &desk.items[1];
        uint64_t count = LAYERS;
        memcpy(desk.items, good, sizeof(good));
        item->queries = wrong == 0 ? &queries : NULL;
        item->select = wrong == 1 ? &select : NULL;
        item->new_keys = wrong == 2 ? &desk.areas[1].memory : NULL;
        item->positions = wrong == 3 ? positions : NULL;
        item->position_capacity = ROWS;
        item->exact_bits = wrong == 4 ? bits : NULL;
        item->refined_bits = wrong == 5 ? bits : NULL;
        item->budget_bytes = wrong == 6;
        item->refine_of = wrong == 7;
        item->flags = wrong == 8    ? SPEC_ITEM_TAIL | SPEC_ITEM_AHEAD
                      : wrong == 9  ? 0
                      : wrong == 10 ? 8
                                    : SPEC_ITEM_TAIL;
        item->layer = wrong == 11 ? 2 : 1;
        desk.items[0].flags = wrong == 12 ? 0 : SPEC_ITEM_TAIL;
        count = wrong == 13 ? LAYERS - 1 : count;
        assert_int_equal(sc_plugin_submit(desk.rig.conn, desk.items, count, &desk.ticket, NULL),
                         SPEC_E_INVALID);
    }
    memcpy(desk.items, good, sizeof(good));
    assert_int_equal(sc_plugin_get_important(desk.rig.conn, desk.items, LAYERS, NULL),
                     SPEC_E_INVALID);
    struct spec_next_chunk chunk = {.struct_size = sizeof(chunk), .request = desk.request};
    assert_int_equal(sc_plugin_next_chunk(desk.rig.conn, &chunk, NULL), SPEC_E_INVALID);
    assert_int_equal(sc_plugin_next_chunk(desk.rig.conn, NULL, NULL), SPEC_E_INVALID);
    chunk.struct_size = 24;
    assert_int_equal(sc_plugin_next_chunk(desk.rig.conn, &chunk, NULL), SPEC_E_INVALID);
    assert_int_equal(desk_submit(&desk), SPEC_OK);
    assert_int_equal(desk_wait(&desk), SPEC_OK);
    desk_expect(&desk, SPEC_OK, ROWS);
    desk_leave(&desk);
    desk_close(&desk);
}

/* As many as may be are out: what would be wrong later, too, is said first. */
static void what_is_no_tail_is_invalid_though_all_are_out(void **state)
{
    (void)state;
    static struct desk desk, out[64];
    desk_open(&desk, true,
              "\"chunk_tokens\": 16, \"host_bytes\": 0, \"max_requests\": 65, "
              "\"max_request_tokens\": 1024",
              1);
    for (uint32_t i = 0; i < 64; i++) {
        out[i] = desk;
        desk_look(&out[i]);
        assert_int_equal(desk_submit(&out[i]), SPEC_OK);
    }
    desk_look(&desk);
    assert_int_equal(desk_submit(&desk), SPEC_E_BUSY);
    assert_int_equal(sc_plugin_submit(desk.rig.conn, desk.items, LAYERS - 1, &desk.ticket, NULL),
                     SPEC_E_INVALID);
    desk.items[2].layer = 1;
    assert_int_equal(desk_submit(&desk), SPEC_E_INVALID);
    for (uint32_t i = 0; i < 64; i++) {
        out[i].rig = desk.rig;
        assert_int_equal(desk_wait(&out[i]), SPEC_OK);
        if (i % 32 == 0)
            desk_expect(&out[i], SPEC_OK, ROWS);
        desk_leave(&out[i]);
    }
    desk_leave(&desk);
    desk_close(&desk);
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
