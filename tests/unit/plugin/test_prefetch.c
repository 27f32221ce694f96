/* Guesses: every predictor reads ahead and changes nothing that is delivered; trust and the window
 * decide how much; hints are ranked whenever their selector comes, and let go at any moment;
 * averages are learnt, written and come back. */
#include "tests/unit/plugin/select_fixture.h"
#include "tests/unit/threads.h"

#include "plugin/baselines/average.h"
#include "plugin/select/scratch.h"

#define MATCHED   260u
#define WINDOW_NS 50000000u /* of compute, where there is any: all of a layer can be read in it */
#define CONFIG(predictor, precision)                                                               \
    "\"preset\": \"impress-itf+range\", \"prefetch\": {\"predictor\": \"" predictor                \
    "\", \"min_precision_ppm\": " #precision "}"

struct tour { /* of one request through all layers */
    uint32_t positions[4][MATCHED];
    uint64_t row_count[4];
    uint64_t prefetched, chosen; /* of the layers above 0 */
    uint64_t read_bytes, unused_bytes;
};

/* One layer: chosen and delivered, each row where its position says. */
static void load(struct world *world, spec_request request, uint32_t layer, struct tour *tour)
{
    struct area area = rig_area(&world->rig, world->matched);
    struct pass pass = world_pass(world, layer, world->rig.dtype);
    struct spec_important item = {.struct_size = sizeof(item),
                                  .request = request,
                                  .layer = layer,
                                  .queries = &pass.q,
                                  .new_keys = &pass.fresh.memory,
                                  .destination = &area.memory,
                                  .position_capacity = 2 * MATCHED};
    uint32_t positions[2 * MATCHED];
    item.positions = positions;
    assert_int_equal(sc_plugin_get_important(world->rig.conn, &item, 1, NULL), SPEC_OK);
    assert_int_equal(item.result_flags & SPEC_IMPORTANT_FALLBACK, 0);
    uint64_t d = world->rig.head_size, element = sc_plugin_dtype_bytes(world->rig.dtype);
    for (uint64_t r = 0; r < item.row_count; r++)
        for (uint64_t n = 0; n < world->rig.heads * d; n++) {
            uint8_t bytes[8];
            world_put(bytes, world->rig.dtype,
                      world_kv(world, positions[r], layer, 0, n / d, n % d));
            assert_memory_equal((const uint8_t *)area.memory.k_base +
                                    r * rig_part_bytes(&world->rig) + n * element,
                                bytes, element);
        }
    memcpy(tour->positions[layer], positions, sizeof(tour->positions[layer]));
    tour->row_count[layer] = item.row_count;
    tour->read_bytes += item.read_bytes;
    tour->unused_bytes += item.unused_bytes;
    if (layer > 0) {
        tour->prefetched += item.prefetched_rows;
        tour->chosen += item.row_count;
    }
    rig_area_free(&area);
    pass_free(&pass);
}

/* The hint: queries of layer `of`; right where that is the layer above. */
static void prefetch_by(struct world *world, spec_request request, uint32_t layer, uint32_t of)
{
    struct pass pass = world_pass(world, of, world->rig.dtype);
    assert_int_equal(sc_plugin_prefetch_next(world->rig.conn, request, layer, &pass.q, NULL),
                     SPEC_OK);
    memset(pass.queries, 0xff, pass.q.byte_count); /* the hint was copied */
    pass_free(&pass);
}

static void prefetch(struct world *world, spec_request request, uint32_t layer)
{
    prefetch_by(world, request, layer, layer + 1);
}

enum { BEFORE = 1, AFTER = 2 }; /* get_important of the layer below: when prefetch_next is called */

/* A request through all layers, with `window_ns` of compute behind the calls. */
static struct tour travel_hinted(struct world *world, uint64_t window_ns, uint32_t when)
{
    struct tour tour = {.prefetched = 0};
    spec_request request = look(world, 0);
    for (uint32_t layer = 0; layer < 4; layer++) {
        assert_int_equal(sc_plugin_begin_layer(world->rig.conn, &request, 1, layer, NULL), SPEC_OK);
        if (when & BEFORE)
            prefetch(world, request, layer);
        load(world, request, layer, &tour);
        if (when & AFTER)
            prefetch(world, request, layer);
        if (window_ns > 0)
            rig_pass_ns(&world->rig, window_ns);
    }
    rig_release(&world->rig, request);
    return tour;
}

static struct tour travel(struct world *world, uint64_t window_ns)
{
    return travel_hinted(world, window_ns, AFTER);
}

static uint64_t speculated(const struct world *world)
{
    return atomic_load(&world->rig.conn->stats.speculated_bytes);
}

static void assert_same_sets(const struct tour *a, const struct tour *b)
{
    for (uint32_t layer = 0; layer < 4; layer++) {
        assert_int_equal(a->row_count[layer], b->row_count[layer]);
        assert_memory_equal(a->positions[layer], b->positions[layer],
                            a->row_count[layer] * sizeof(uint32_t));
    }
}

static void no_predictor_changes_what_is_delivered(void **state)
{
    (void)state;
    static const char *const CONFIGS[] = {CONFIG("none", 0),  CONFIG("random", 0),
                                          CONFIG("sink", 0),  CONFIG("static", 0),
                                          CONFIG("layer", 0), CONFIG("hint", 0)};
    struct tour truth = {.prefetched = 0}, best = {.prefetched = 0};
    for (uint32_t i = 0; i < 6; i++) {
        struct world world;
        world_open(&world, CONFIGS[i], 2, 2, 16, SPEC_DTYPE_F16, MATCHED, 8);
        struct tour tour = travel(&world, WINDOW_NS);
        if (i == 0)
            truth = tour;
        assert_same_sets(&tour, &truth);
        tour = travel(&world, WINDOW_NS);
        assert_same_sets(&tour, &truth);
        assert_int_equal(tour.chosen, 3 * 65);
        if (i == 0) {
            assert_int_equal(tour.prefetched, 0);
            assert_int_equal(speculated(&world), 0);
        } else {
            assert_true(tour.prefetched > 0 && speculated(&world) > 0);
        }
        best = tour;
        for (uint32_t when = BEFORE; when <= (BEFORE | AFTER); when++) {
            tour = travel_hinted(&world, WINDOW_NS, when);
            assert_same_sets(&tour, &truth);
            bool ranks_too_late = i == 4 && when == BEFORE; /* of layer l, known by get_important */
            assert_int_equal(tour.prefetched > 0, i > 0 && !ranks_too_late);
        }
        world_done(&world);
    }
    assert_true(best.prefetched * 10 >= best.chosen * 7); /* the hint: the very queries */
}

/* Planner `chunk`: what a guess reads are slabs, and who wants other rows of them has them too. The
 * presets of the literature have no gate. */
static void a_slab_that_was_predicted_is_not_read_again(void **state)
{
    (void)state;
    static const char *const PRESETS[] = {"impress-itf", "spec-itf", "random"};
    struct tour truth = {.prefetched = 0};
    for (uint32_t i = 0; i < 3; i++) {
        struct world world;
        char config[64];
        (void)snprintf(config, sizeof(config), "\"preset\": \"%s\"", PRESETS[i]);
        world_open(&world, config, 2, 2, 16, SPEC_DTYPE_F16, 256, 8);
        struct tour tour = travel(&world, WINDOW_NS);
        tour = travel(&world, WINDOW_NS); /* the window is known */
        truth = i == 0 ? tour : truth;
        assert_same_sets(&tour, &truth);
        assert_int_equal(tour.read_bytes, truth.read_bytes); /* each slab holds a wanted row */
        assert_int_equal(tour.unused_bytes, 0);
        assert_int_equal(tour.prefetched, i > 0 ? tour.chosen : 0);
        world_done(&world);
    }
}

static uint32_t learnt(const struct world *world, uint32_t layer)
{
    return atomic_load(&world->rig.conn->ahead.trusts[layer].count);
}

/* A hint that stands before get_important of the layer below is not taken back by it, and neither
 * keeps the other from being judged. */
static void a_hint_before_the_layer_below_is_kept_and_judged(void **state)
{
    (void)state;
    for (uint32_t when = BEFORE; when <= (BEFORE | AFTER); when++) {
        struct world world;
        world_open(&world, CONFIG("hint", 0), 2, 2, 16, SPEC_DTYPE_F16, MATCHED, 8);
        for (uint32_t n = 1; n <= 3; n++) {
            struct tour tour = travel_hinted(&world, WINDOW_NS, when);
            if (n > 1) /* the window is known */
                assert_true(tour.prefetched * 10 >= tour.chosen * 7);
            for (uint32_t layer = 1; layer < 4; layer++)
                assert_int_equal(learnt(&world, layer), n);
            assert_int_equal(learnt(&world, 4), 3 * n); /* of all layers */
        }
        assert_int_equal(atomic_load(&world.rig.conn->ahead.window.count), 9);
        assert_true(atomic_load(&world.rig.conn->ahead.window.ns) >= WINDOW_NS);
        world_done(&world);
    }
}

/* How right the ranking of layer 1 was, over its deciles, of a request that hinted twice. */
static uint64_t right_after(uint32_t first, uint32_t second)
{
    struct world world;
    struct tour tour = {.prefetched = 0};
    world_open(&world, CONFIG("hint", 0), 2, 2, 16, SPEC_DTYPE_F16, MATCHED, 8);
    spec_request request = look(&world, 0);
    assert_int_equal(sc_plugin_begin_layer(world.rig.conn, &request, 1, 0, NULL), SPEC_OK);
    prefetch_by(&world, request, 0, first);
    rig_pass_ns(&world.rig, WINDOW_NS); /* ranked; without a window yet, nothing is begun */
    load(&world, request, 0, &tour);
    prefetch_by(&world, request, 0, second);
    rig_pass_ns(&world.rig, WINDOW_NS);
    load(&world, request, 1, &tour);
    assert_int_equal(learnt(&world, 1), 1);
    uint64_t right = 0;
    for (uint32_t d = 0; d < SC_PLUGIN_DECILES; d++)
        right += atomic_load(&world.rig.conn->ahead.trusts[1].right_ppm[d]);
    world_leave(&world, request);
    return right;
}

static void a_later_hint_replaces_one_that_has_not_begun(void **state)
{
    (void)state;
    uint64_t best = right_after(1, 1), worst = right_after(3, 3);
    assert_true(best > 2 * worst);
    assert_int_equal(right_after(3, 1), best);
    assert_int_equal(right_after(1, 3), worst);
}

/* The same of a request whose queries have one scale, and its hints one or another. */
static uint64_t right_scaled(float scale, float hint_scale)
{
    struct world world;
    struct tour tour = {.prefetched = 0};
    world_open(&world, CONFIG("hint", 0), 2, 2, 16, SPEC_DTYPE_F16, MATCHED, 8);
    spec_request request = look(&world, 0);
    assert_int_equal(sc_plugin_begin_layer(world.rig.conn, &request, 1, 0, NULL), SPEC_OK);
    load(&world, request, 0, &tour);
    world.scale = hint_scale;
    prefetch(&world, request, 0);
    rig_pass_ns(&world.rig, WINDOW_NS);
    world.scale = scale;
    load(&world, request, 1, &tour);
    assert_int_equal(learnt(&world, 1), 1);
    uint64_t right = 0;
    for (uint32_t d = 0; d < SC_PLUGIN_DECILES; d++)
        right += atomic_load(&world.rig.conn->ahead.trusts[1].right_ppm[d]);
    world_leave(&world, request);
    return right;
}

static void a_hint_is_scored_by_its_own_scale(void **state)
{
    (void)state;
    uint64_t best = right_scaled(2, 2);
    assert_int_equal(right_scaled(.02f, .02f), best);
    assert_true(right_scaled(2, .02f) < best);
    assert_true(right_scaled(.02f, 2) < best);
    assert_int_equal(right_scaled(.25f, 0), best); /* 1 / sqrt(16) */
}

/* As if one other waited for its loads all the time. */
static struct tour travel_contended(struct world *world)
{
    struct sc_plugin_contention *contention = &world->rig.conn->ahead.contention;
    atomic_store(&contention->ppm, 1000000);
    atomic_store(&contention->count, 8);
    return travel(world, WINDOW_NS);
}

static void what_was_right_too_seldom_is_not_read(void **state)
{
    (void)state;
    struct world world;
    world_open(&world, CONFIG("sink", 750000), 2, 2, 16, SPEC_DTYPE_F16, MATCHED, 8);
    for (uint32_t n = 0; n < 4; n++)
        assert_int_equal(travel_contended(&world).prefetched, 0);
    assert_int_equal(speculated(&world), 0);
    assert_true(atomic_load(&world.rig.conn->ahead.trusts[4].count) >=
                9); /* measured all the same */
    for (uint32_t d = 0; d < SC_PLUGIN_DECILES; d++)
        atomic_store(&world.rig.conn->ahead.trusts[2].right_ppm[d], 1000000);
    assert_true(travel_contended(&world).prefetched > 0);
    world_done(&world);
}

/* A request through all layers; while each is computed another loads all rows, over and over, or
 * (others 0) nobody does. */
static struct tour travel_beside(struct world *world, uint32_t others)
{
    struct tour tour = {.prefetched = 0};
    spec_request request = look(world, 0), other = look(world, 0);
    struct spec_select all = {
        .struct_size = sizeof(all), .given = SPEC_SELECT_BUDGET, .retain_ppm = 1000000};
    struct area area = rig_area(&world->rig, world->matched);
    struct spec_important item = {
        .struct_size = sizeof(item), .request = other, .select = &all, .destination = &area.memory};
    for (uint32_t layer = 0; layer < 4; layer++) {
        assert_int_equal(sc_plugin_begin_layer(world->rig.conn, &request, 1, layer, NULL), SPEC_OK);
        load(world, request, layer, &tour);
        prefetch(world, request, layer);
        for (uint32_t n = 0; n < others; n++) {
            item.layer = (layer + n) % 4;
            assert_int_equal(sc_plugin_get_important(world->rig.conn, &item, 1, NULL), SPEC_OK);
        }
        if (others == 0)
            rig_pass_ns(&world->rig, WINDOW_NS);
    }
    rig_area_free(&area);
    rig_release(&world->rig, other);
    rig_release(&world->rig, request);
    return tour;
}

/* What is seldom right is read as long as nobody else waits for the device, and no longer. */
static void what_others_wait_for_decides_what_is_predicted(void **state)
{
    (void)state;
    struct world world;
    world_open(&world, CONFIG("sink", 750000) ", \"sim\": {\"op_ns\": 100000}", 2, 2, 16,
               SPEC_DTYPE_F16, MATCHED, 8);
    spec_connector *conn = world.rig.conn;
    (void)travel(&world, WINDOW_NS);
    assert_true(travel(&world, WINDOW_NS).prefetched > 0);
    assert_int_equal(atomic_load(&conn->ahead.contention.ppm), 0);
    for (uint32_t n = 0; n < 8; n++)
        (void)travel_beside(&world, 20);
    assert_in_range(atomic_load(&conn->ahead.contention.ppm), 600000, 1000000);
    uint64_t before = speculated(&world);
    (void)travel_beside(&world, 20);
    assert_int_equal(speculated(&world), before);
    for (uint32_t n = 0; n < 40; n++)
        (void)travel_beside(&world, 0);
    assert_true(travel(&world, WINDOW_NS).prefetched > 0); /* they have left */
    world_done(&world);
}

/* A hint stands before the layer below is asked for: what that waits for is its own. */
static void what_a_request_waits_for_is_no_others(void **state)
{
    (void)state;
    struct world world;
    world_open(&world, CONFIG("hint", 750000) ", \"sim\": {\"op_ns\": 100000}", 2, 2, 16,
               SPEC_DTYPE_F16, MATCHED, 8);
    for (uint32_t n = 0; n < 3; n++)
        (void)travel_hinted(&world, 1000000, BEFORE);
    assert_true(atomic_load(&world.rig.conn->ahead.contention.count) >= 9);
    assert_int_equal(atomic_load(&world.rig.conn->ahead.contention.ppm), 0);
    world_done(&world);
}

static void a_window_of_nothing_reads_nothing(void **state)
{
    (void)state;
    struct world world;
    world_open(&world, CONFIG("hint", 0), 2, 2, 16, SPEC_DTYPE_F16, MATCHED, 8);
    for (uint32_t n = 0; n < 3; n++)
        assert_int_equal(travel(&world, 0).prefetched, 0);
    assert_int_equal(speculated(&world), 0);
    assert_true(atomic_load(&world.rig.conn->ahead.window.count) > 0);
    assert_true(travel(&world, WINDOW_NS).prefetched > 0); /* and grows with it */
    world_done(&world);
}

/* Whatever state the guess is in. */
static void a_request_ends_while_its_hint_is_ranked(void **state)
{
    (void)state;
    struct world world;
    world_open(&world, CONFIG("hint", 0), 2, 2, 16, SPEC_DTYPE_F16, MATCHED, 8);
    (void)travel(&world, WINDOW_NS);
    for (uint64_t steps = 0; steps < 40; steps++) {
        struct tour tour = {.prefetched = 0};
        spec_request request = look(&world, 0);
        assert_int_equal(sc_plugin_begin_layer(world.rig.conn, &request, 1, 0, NULL), SPEC_OK);
        if (steps % 2 == 0)
            load(&world, request, 0, &tour);
        prefetch(&world, request, 0);
        for (uint64_t n = 0; n < steps; n++)
            (void)sc_exec_step_one(world.rig.conn->exec);
        if (steps % 3 == 0)
            prefetch(&world, request, 0); /* again: replaces it, or does nothing */
        if (steps % 5 == 0)
            load(&world, request, 3, &tour); /* another layer than the one guessed */
        rig_release(&world.rig, request);
    }
    struct sc_plugin_request *request = &world.rig.conn->requests.slots[0];
    rig_pass_ns(&world.rig, WINDOW_NS);
    for (uint32_t i = 0; i < world.rig.conn->config.max_requests; i++, request++) {
        assert_int_equal(atomic_load(&request->holds), 0);
        assert_int_equal(sc_plugin_request_phase(request), SC_REQUEST_FREE);
    }
    assert_true(atomic_load(&world.rig.conn->stats.unused_bytes) > 0); /* guesses nobody came for */
    world_done(&world);
}

/* One for layer 1 that nobody has come for yet, one for layer 2. */
static void two_predictions_live_side_by_side_and_end_at_any_moment(void **state)
{
    (void)state;
    struct world world;
    world_open(&world, CONFIG("hint", 0), 2, 2, 16, SPEC_DTYPE_F16, MATCHED, 8);
    struct tour truth = travel(&world, WINDOW_NS);
    uint32_t both = 0;
    for (uint64_t steps = 0; steps < 60; steps++) {
        struct tour tour = {.prefetched = 0};
        spec_request handle = look(&world, 0);
        struct sc_plugin_request *request = sc_plugin_request_find(world.rig.conn, handle);
        assert_int_equal(sc_plugin_begin_layer(world.rig.conn, &handle, 1, 0, NULL), SPEC_OK);
        prefetch(&world, handle, 0);
        if (steps % 2 == 0)
            load(&world, handle, 0, &tour);
        assert_int_equal(sc_plugin_begin_layer(world.rig.conn, &handle, 1, 1, NULL), SPEC_OK);
        prefetch(&world, handle, 1);
        both += atomic_load(&request->holds) == 3; /* the handle's, and two of tasks */
        for (uint64_t n = 0; n < steps; n++)
            (void)sc_exec_step_one(world.rig.conn->exec);
        if (steps % 3 == 0) {
            load(&world, handle, 1, &tour);
            assert_memory_equal(tour.positions[1], truth.positions[1], sizeof(uint32_t) * 65);
        }
        if (steps % 5 == 0)
            prefetch(&world, handle, 2); /* the parity of the guess of layer 1 */
        if (steps % 7 == 0) {
            load(&world, handle, 2, &tour);
            assert_memory_equal(tour.positions[2], truth.positions[2], sizeof(uint32_t) * 65);
        }
        rig_release(&world.rig, handle);
    }
    assert_true(both > 0);
    struct sc_plugin_request *request = world.rig.conn->requests.slots;
    rig_pass_ns(&world.rig, WINDOW_NS);
    for (uint32_t i = 0; i < world.rig.conn->config.max_requests; i++) {
        assert_int_equal(atomic_load(&request[i].holds), 0);
        assert_int_equal(sc_plugin_request_phase(&request[i]), SC_REQUEST_FREE);
    }
    world_done(&world);
}

struct worker {
    struct world *world;
    const struct tour *truth;
};

static void *work(void *user)
{
    struct worker *worker = user;
    for (uint32_t n = 0; n < 12; n++) {
        struct tour tour =
            travel_hinted(worker->world, n % 3 == 0 ? 0 : n % 3 * 200000, 1 + n / 3 % 3);
        assert_same_sets(&tour, worker->truth);
        spec_request request = look(worker->world, 0);
        (void)sc_plugin_begin_layer(worker->world->rig.conn, &request, 1, 0, NULL);
        prefetch(worker->world, request, 0);
        if (n % 2 == 0)
            prefetch(worker->world, request, 1);
        rig_release(&worker->world->rig, request);
    }
    return NULL;
}

static void threads_prediction_side_by_side(void **state)
{
    (void)state;
    struct world world = {.matched = MATCHED, .group = 2, .agree = 8};
    world_make(&world, false, CONFIG("hint", 300000), 4, 2, 16, MATCHED + 2);
    world_open_stored(&world);
    struct tour truth = travel(&world, 0);
    struct worker workers[3];
    for (uint32_t i = 0; i < 3; i++)
        workers[i] = (struct worker){.world = &world, .truth = &truth};
    threads_run(work, workers, sizeof(workers[0]), 3);
    world_done(&world);
}

static void wrong_hints_are_refused(void **state)
{
    (void)state;
    struct world world;
    world_open(&world, CONFIG("hint", 0), 2, 2, 16, SPEC_DTYPE_F16, MATCHED, 8);
    spec_request request = look(&world, 0);
    struct pass pass = world_pass(&world, 1, world.rig.dtype);
    struct spec_queries hint = pass.q;
    hint.byte_count -= 2;
    assert_int_equal(sc_plugin_prefetch_next(world.rig.conn, request, 0, &hint, NULL),
                     SPEC_E_INVALID);
    hint = pass.q;
    hint.dtype = SPEC_DTYPE_BYTES + 1;
    assert_int_equal(sc_plugin_prefetch_next(world.rig.conn, request, 0, &hint, NULL),
                     SPEC_E_INVALID);
    hint = pass.q;
    hint.row_count = 0;
    assert_int_equal(sc_plugin_prefetch_next(world.rig.conn, request, 0, &hint, NULL),
                     SPEC_E_INVALID);
    assert_int_equal(sc_plugin_prefetch_next(world.rig.conn, request, 3, &pass.q, NULL), SPEC_OK);
    pass_free(&pass);
    world_leave(&world, request);
}

static void averages_survive_a_restart_and_choose_without_queries(void **state)
{
    (void)state;
    struct world world;
    float before[MATCHED], after[MATCHED];
    world_open(&world, CONFIG("none", 0), 2, 2, 16, SPEC_DTYPE_F16, MATCHED, 8);
    assert_int_equal(world_averages(&world, 2, before), 0);
    struct tour truth = travel(&world, 0);
    assert_int_equal(world_averages(&world, 2, before), MATCHED);
    rig_reopen(&world.rig);
    assert_int_equal(world_averages(&world, 2, after), MATCHED);
    assert_memory_equal(before, after, sizeof(before));
    (void)travel(&world, 0);
    assert_int_equal(rig_maintain(&world.rig, SPEC_MAINTAIN_CHECKPOINT), SPEC_OK);
    rig_background(&world.rig);
    world.rig.extra = "\"preset\": \"spi+range\"";
    rig_reopen(&world.rig);
    struct tour tour = travel(&world, 0); /* the sum over the probes, as the vote of equal sets */
    uint64_t same = 0;
    for (uint32_t layer = 0; layer < 4; layer++) {
        assert_int_equal(tour.row_count[layer], truth.row_count[layer]);
        for (uint64_t i = 0; i < tour.row_count[layer]; i++)
            for (uint64_t j = 0; j < truth.row_count[layer]; j++)
                same += tour.positions[layer][i] == truth.positions[layer][j];
    }
    assert_true(same >= 4 * 62); /* codes have steps: rows at the border may change places */
    world_done(&world);
}

/* Notes of kind 1, which older versions wrote, are none to this one. */
static void a_note_of_accuracy_in_an_old_store_is_ignored(void **state)
{
    (void)state;
    struct world world;
    world_open(&world, CONFIG("layer", 0), 2, 2, 16, SPEC_DTYPE_F16, MATCHED, 8);
    uint16_t words[SC_STORE_NOTE_HEAD + 2 + 5 * 15];
    for (uint32_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        words[i] = 50000;
    words[SC_STORE_NOTE_HEAD] = 1 << 8 | SC_PREDICTOR_LAYER << 4 | SC_PLANNER_RANGE;
    words[SC_STORE_NOTE_HEAD + 1] = 4;
    assert_int_equal(sc_store_note_put(world.rig.conn->store, words, 2 + 5 * 15, NULL), SPEC_OK);
    rig_reopen(&world.rig);
    assert_int_equal(learnt(&world, 4), 0);
    (void)travel(&world, WINDOW_NS);
    assert_int_equal(learnt(&world, 4), 3);
    world_done(&world);
}

/* The one request there may be is scored while its next hint is ranked. */
static void a_hint_is_ranked_beside_a_scoring(void **state)
{
    (void)state;
    struct world world;
    world_open(&world, CONFIG("hint", 0) ", \"max_requests\": 1", 2, 2, 16, SPEC_DTYPE_F16, MATCHED,
               8);
    spec_connector *conn = world.rig.conn;
    spec_request request = look(&world, 0);
    struct sc_plugin_request *open = sc_plugin_request_find(conn, request);
    assert_int_equal(sc_plugin_begin_layer(conn, &request, 1, 0, NULL), SPEC_OK);
    struct sc_plugin_scratch *scores = sc_plugin_scratch_take(conn, 1, SC_EXEC_FOREVER);
    assert_non_null(scores);
    prefetch(&world, request, 0);
    rig_pass_ns(&world.rig, 1000000000);
    assert_int_equal(open->predictions[1].layer, 1);
    assert_int_equal(open->predictions[1].count, 65);
    sc_plugin_scratch_put(scores);
    world_leave(&world, request);
}

/* The log does not take them once: a later turn writes them, though no request comes any more. */
static void averages_that_the_log_refused_are_written_by_a_later_turn(void **state)
{
    (void)state;
    struct world world;
    float before[MATCHED], after[MATCHED];
    world_open(&world, CONFIG("none", 0), 2, 2, 16, SPEC_DTYPE_F16, MATCHED, 8);
    rig_background(&world.rig);
    sc_fault_arm(&world.rig.conn->fault, SC_FAULT_WRITE, 0);
    (void)travel(&world, 0);
    rig_background(&world.rig);
    assert_int_equal(atomic_load(&world.rig.conn->fault.fired[SC_FAULT_WRITE]), 1);
    for (uint32_t turn = 0;
         turn < 100000 && sc_baseline_averages_refused(world.rig.conn->baseline.averages); turn++)
        rig_pass_ns(&world.rig, 25000000);
    assert_false(sc_baseline_averages_refused(world.rig.conn->baseline.averages));
    assert_int_equal(world_averages(&world, 2, before), MATCHED);
    struct sc_io_sim_disk *disk = NULL; /* as a crash leaves it: close would write them */
    assert_int_equal(sc_io_sim_disk_copy(world.rig.disk, &disk, NULL), SPEC_OK);
    rig_close(&world.rig);
    sc_io_sim_disk_close(world.rig.disk);
    world.rig.disk = disk;
    rig_open(&world.rig);
    assert_int_equal(world_averages(&world, 2, after), MATCHED);
    assert_memory_equal(before, after, sizeof(before));
    world_done(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_predictor_changes_what_is_delivered),
        cmocka_unit_test(a_slab_that_was_predicted_is_not_read_again),
        cmocka_unit_test(a_hint_before_the_layer_below_is_kept_and_judged),
        cmocka_unit_test(a_later_hint_replaces_one_that_has_not_begun),
        cmocka_unit_test(a_hint_is_scored_by_its_own_scale),
        cmocka_unit_test(what_was_right_too_seldom_is_not_read),
        cmocka_unit_test(what_others_wait_for_decides_what_is_predicted),
        cmocka_unit_test(what_a_request_waits_for_is_no_others),
        cmocka_unit_test(a_window_of_nothing_reads_nothing),
        cmocka_unit_test(a_request_ends_while_its_hint_is_ranked),
        cmocka_unit_test(two_predictions_live_side_by_side_and_end_at_any_moment),
        cmocka_unit_test(threads_prediction_side_by_side),
        cmocka_unit_test(wrong_hints_are_refused),
        cmocka_unit_test(averages_survive_a_restart_and_choose_without_queries),
        cmocka_unit_test(a_note_of_accuracy_in_an_old_store_is_ignored),
        cmocka_unit_test(a_hint_is_ranked_beside_a_scoring),
        cmocka_unit_test(averages_that_the_log_refused_are_written_by_a_later_turn),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
