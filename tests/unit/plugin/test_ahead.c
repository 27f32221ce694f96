/* Reading ahead, in time: the whole plugin on the simulated device and its clock, which moves only
 * while somebody waits for the device or while the test says that the host computes.
 *
 *   prefetch_next(l, hint)  | window: the host computes |  get_important(l + 1): what is exposed
 *
 * With a window of half a load much less is exposed than without reading ahead, with none nothing
 * more, and another request's reads do not wait for what is read ahead. And what a guess brought
 * changes no row, whichever way the layer is read then.
 *
 * Threads: one. */
#include "tests/unit/plugin/select_fixture.h"

#include "plugin/select/issue_reads.h"

#define MATCHED  768u
#define LAYERS   4u
#define RATE     1000000000u /* bytes a second of the device */
#define OP_NS    20000u
#define LONG_NS  100000000u
#define OP_BYTES ((1u << 20) + (64u << 10)) /* the longest operation: a frame */

#define DEVICE "\"sim\": {\"bytes_per_s\": 1000000000, \"op_ns\": 20000}"
#define CONFIG(predictor, layout)                                                                  \
    "\"preset\": \"impress-itf+range\", \"prefetch\": {\"predictor\": \"" predictor                \
    "\"}, \"store\": {\"layout\": \"" layout "\"}, " DEVICE

/* Rows of 4 KiB, so that a row read ahead is no neighbour of another; 32 heads, so that the probe
 * keys are the share of them that they are in models of 7 B parameters. */
static void open_world(struct world *world, const char *config, int64_t agree)
{
    *world = (struct world){.matched = MATCHED, .group = 1, .agree = agree};
    rig_init(&world->rig, true, config);
    rig_shape(&world->rig, LAYERS, 32, 32, SPEC_DTYPE_F16);
    world->rig.stage = "64MiB";
    world->prompt = rig_prompt(MATCHED, 0, 0, MATCHED + FRESH_ROWS);
    rig_open(&world->rig);
    world_store(world);
}

static uint64_t now_ns(const struct world *world)
{
    return sc_exec_now_ns(world->rig.conn->exec);
}

/* One get_important with room for all, and what it cost. */
struct shot {
    struct spec_important item;
    struct area area;
    uint32_t *positions;
    uint64_t took_ns;
};

static struct shot load(struct world *world, spec_request request, uint32_t layer, uint32_t heads)
{
    uint64_t capacity = (uint64_t)world->rig.heads * MATCHED;
    struct shot shot = {.area = rig_area(&world->rig, world->matched),
                        .positions = calloc(capacity, sizeof(uint32_t))};
    struct pass pass = world_pass(world, layer, world->rig.dtype);
    assert_non_null(shot.positions);
    pass.q.heads = heads;
    shot.item = (struct spec_important){.struct_size = sizeof(shot.item),
                                        .request = request,
                                        .layer = layer,
                                        .queries = &pass.q,
                                        .new_keys = &pass.fresh.memory,
                                        .destination = &shot.area.memory,
                                        .positions = shot.positions,
                                        .position_capacity = capacity};
    uint64_t begin_ns = now_ns(world);
    assert_int_equal(sc_plugin_get_important(world->rig.conn, &shot.item, 1, NULL), SPEC_OK);
    shot.took_ns = now_ns(world) - begin_ns;
    pass_free(&pass);
    return shot;
}

static void shot_free(struct shot *shot)
{
    rig_area_free(&shot->area);
    free(shot->positions);
}

static void assert_same(const struct world *world, const struct shot *a, const struct shot *b)
{
    bool parted = (a->item.result_flags & SPEC_IMPORTANT_FALLBACK) != 0;
    uint64_t lists = parted ? world->rig.heads : 1, bytes = a->item.row_count * 2048;
    assert_int_equal(a->item.result_flags, b->item.result_flags);
    assert_int_equal(a->item.row_count, b->item.row_count);
    assert_int_equal(a->item.union_rows, b->item.union_rows);
    assert_memory_equal(a->positions, b->positions, lists * a->item.row_count * sizeof(uint32_t));
    assert_int_equal(rig_part_bytes(&world->rig), 2048);
    assert_memory_equal(a->area.memory.k_base, b->area.memory.k_base, bytes);
    assert_memory_equal(a->area.memory.v_base, b->area.memory.v_base, bytes);
}

/* ---- What is exposed ------------------------------------------------------------------------ */

/* Queries of the layer above, of which every sixteenth number is another layer's: a hint as a host
 * has it, right mostly. */
static void hint(struct world *world, spec_request request, uint32_t layer)
{
    struct pass pass = world_pass(world, layer + 1, world->rig.dtype);
    struct pass wrong = world_pass(world, layer + 7, world->rig.dtype);
    for (uint64_t n = 0; n < pass.q.byte_count; n += 32)
        memcpy(pass.queries + n, wrong.queries + n, 2);
    assert_int_equal(sc_plugin_prefetch_next(world->rig.conn, request, layer, &pass.q, NULL),
                     SPEC_OK);
    pass_free(&wrong);
    pass_free(&pass);
}

struct tour { /* of one request: the layers above 0 */
    uint64_t exposed_ns, took_ns, wanted, ahead;
    uint32_t parted;
};

static struct tour travel(struct world *world, uint64_t window_ns)
{
    struct tour tour = {0};
    spec_request request = look(world, 0);
    for (uint32_t layer = 0; layer < LAYERS; layer++) {
        assert_int_equal(sc_plugin_begin_layer(world->rig.conn, &request, 1, layer, NULL), SPEC_OK);
        struct shot shot = load(world, request, layer, SPEC_QUERIES_ALL);
        if (layer > 0) {
            tour.exposed_ns += shot.item.io_exposed_ns;
            tour.took_ns += shot.took_ns;
            tour.wanted += shot.item.union_rows;
            tour.ahead += shot.item.prefetched_rows;
            tour.parted += shot.item.result_flags == SPEC_IMPORTANT_FALLBACK;
        }
        shot_free(&shot);
        if (layer + 1 == LAYERS)
            break;
        hint(world, request, layer);
        if (window_ns > 0)
            rig_pass_ns(&world->rig, window_ns);
    }
    rig_release(&world->rig, request);
    return tour;
}

/* The mean over the deciles of how right rankings by the hint were, in millionths. */
static uint64_t recall_ppm(const struct world *world)
{
    uint64_t sum = 0;
    for (uint32_t d = 0; d < SC_PLUGIN_DECILES; d++)
        sum += atomic_load(&world->rig.conn->ahead.trusts[LAYERS].right_ppm[d]);
    return sum / SC_PLUGIN_DECILES;
}

/* agree 8: one set for all heads; 0: heads part, and every layer is read whole. */
static void half_a_load_of_window_hides_a_good_part_of_it(void **state)
{
    (void)state;
    for (int64_t agree = 0; agree <= 8; agree += 8) {
        struct world none, ahead;
        open_world(&none, CONFIG("none", "paired"), agree);
        open_world(&ahead, CONFIG("hint", "paired"), agree);
        (void)travel(&none, LONG_NS);
        uint64_t load_ns = travel(&none, 0).took_ns / (LAYERS - 1); /* probe keys, and rows */
        uint64_t window_ns = load_ns / 2;
        for (uint32_t n = 0; n < 12; n++) /* what the window and the hint are worth is learnt */
            (void)travel(&ahead, window_ns);
        struct tour without = travel(&none, window_ns), with = travel(&ahead, window_ns);
        assert_int_equal(without.parted, agree == 0 ? LAYERS - 1 : 0);
        assert_int_equal(with.parted, without.parted);
        assert_int_equal(without.ahead, 0);
        print_message("agree %ld: a layer loads in %lu us; exposed %lu us without, %lu with\n",
                      agree, load_ns / 1000, without.exposed_ns / 1000, with.exposed_ns / 1000);
        assert_true(with.exposed_ns * 100 <= without.exposed_ns * 85);
        assert_true(with.took_ns * 100 <= without.took_ns * 85);
        assert_true(with.ahead > 0 && with.ahead < with.wanted); /* the window has an end */
        if (agree == 8)
            assert_in_range(recall_ppm(&ahead), 600000, 970000);
        const struct sc_plugin_stats *stats = &ahead.rig.conn->stats;
        assert_true(atomic_load(&stats->speculated_bytes) > 0);
        assert_true(atomic_load(&stats->unused_bytes) * 4 <= atomic_load(&stats->speculated_bytes));
        world_done(&ahead);
        world_done(&none);
    }
}

static void without_a_window_nothing_takes_longer(void **state)
{
    (void)state;
    for (int64_t agree = 0; agree <= 8; agree += 8) {
        struct world none, ahead;
        open_world(&none, CONFIG("none", "paired"), agree);
        open_world(&ahead, CONFIG("hint", "paired"), agree);
        for (uint64_t n = 0; n < 9;
             n++) { /* in a nanosecond the hint is ranked, and all is begun */
            struct tour without = travel(&none, n % 2), with = travel(&ahead, n % 2);
            assert_true(with.took_ns <= without.took_ns);
            assert_true(with.exposed_ns <= without.exposed_ns);
        }
        assert_int_equal(atomic_load(&ahead.rig.conn->stats.speculated_bytes), 0);
        /* A window that closes after long ones: at most what the device was in the midst of. */
        for (uint32_t n = 0; n < 4; n++)
            (void)travel(&ahead, LONG_NS);
        assert_true(atomic_load(&ahead.rig.conn->stats.speculated_bytes) > 0);
        for (uint64_t n = 0; n < 9; n++) {
            struct tour without = travel(&none, n % 2), with = travel(&ahead, n % 2);
            uint64_t op_ns = OP_BYTES * UINT64_C(1000000000) / RATE + OP_NS;
            assert_true(with.took_ns <= without.took_ns + (LAYERS - 1) * op_ns);
        }
        world_done(&ahead);
        world_done(&none);
    }
}

/* The device is given to the other request as soon as it is through with what it does. */
static void a_demand_read_waits_for_one_operation_of_what_is_read_ahead(void **state)
{
    (void)state;
    for (int64_t agree = 0; agree <= 8; agree += 8) {
        struct world world;
        uint64_t took_ns[2], before = 0, most_bytes = agree == 0 ? OP_BYTES : 64u << 10;
        open_world(&world, CONFIG("hint", "paired"), agree);
        for (uint32_t n = 0; n < 3; n++)
            (void)travel(&world, LONG_NS);
        for (uint32_t busy = 0; busy < 2; busy++) {
            spec_request first = look(&world, 0), second = look(&world, 0);
            struct shot shot;
            assert_int_equal(sc_plugin_begin_layer(world.rig.conn, &first, 1, 0, NULL), SPEC_OK);
            assert_int_equal(sc_plugin_begin_layer(world.rig.conn, &second, 1, 2, NULL), SPEC_OK);
            rig_pass_ns(&world.rig, LONG_NS); /* selectors are there, the device is idle */
            before = atomic_load(&world.rig.conn->stats.speculated_bytes);
            if (busy == 1)
                hint(&world, first, 0);
            rig_pass_ns(&world.rig, 1000); /* it is ranked, and all reads are queued */
            shot = load(&world, second, 2, SPEC_QUERIES_ALL);
            took_ns[busy] = shot.took_ns;
            shot_free(&shot);
            rig_release(&world.rig, second);
            shot = load(&world, first, 1, SPEC_QUERIES_ALL);
            assert_int_equal(shot.item.prefetched_rows > 0, busy == 1);
            shot_free(&shot);
            rig_release(&world.rig, first);
        }
        uint64_t queued = atomic_load(&world.rig.conn->stats.speculated_bytes) - before;
        assert_true(queued >= (agree == 0 ? MATCHED * 4096u : MATCHED * 512u));
        assert_true(queued > 2 * most_bytes);
        assert_true(took_ns[1] <= took_ns[0] + most_bytes * UINT64_C(1000000000) / RATE + OP_NS);
        world_done(&world);
    }
}

/* ---- What is delivered ---------------------------------------------------------------------- */

enum way { RUN, SCATTERED, PACKED };

/* Begins a guess of `count` rows: a run from the first, every third, or a run told row by row. */
static void begin(struct world *world, struct sc_plugin_request *request, enum way way,
                  uint64_t count)
{
    uint32_t *rows = sc_plugin_prefetch_rows(request, 2);
    assert_non_null(rows);
    if (way == RUN) {
        sc_plugin_prefetch_begin_run(world->rig.conn, request, 2, count);
        return;
    }
    for (uint64_t i = 0; i < count; i++)
        rows[i] = (uint32_t)(way == PACKED ? i : i * 3);
    sc_plugin_prefetch_begin(world->rig.conn, request, 2, count, count);
}

/* agree, heads of the queries: sets agree; sets a head; all rows, because heads part and only the
 * probes' queries are there. */
static const struct {
    int64_t agree;
    uint32_t heads, flags;
} CASES[] = {{8, SPEC_QUERIES_ALL, 0},
             {0, SPEC_QUERIES_ALL, SPEC_IMPORTANT_FALLBACK},
             {0, SPEC_QUERIES_PROBE, SPEC_IMPORTANT_DENSE}};

static void assert_prediction(struct world *world, uint32_t c, enum way way, uint64_t count,
                              const struct shot *truth)
{
    bool is_split = world->rig.conn->config.layout == SC_STORE_SPLIT;
    uint64_t before = atomic_load(&world->rig.conn->stats.unused_bytes);
    spec_request handle = look(world, 0);
    begin(world, sc_plugin_request_find(world->rig.conn, handle), way, count);
    rig_pass_ns(&world->rig, LONG_NS); /* all of it is there */
    struct shot shot = load(world, handle, 2, CASES[c].heads);
    assert_same(world, &shot, truth);
    uint64_t unused = atomic_load(&world->rig.conn->stats.unused_bytes) - before;
    bool is_read =
        way != RUN || !is_split || count == MATCHED; /* of a split layout K, or nothing */
    bool is_kept = way != SCATTERED && !(is_split && CASES[c].flags != 0);
    assert_int_equal(shot.item.unused_bytes, unused);
    assert_true(shot.item.read_bytes >= unused);
    if (CASES[c].flags == SPEC_IMPORTANT_DENSE && is_kept && is_read)
        assert_int_equal(shot.item.prefetched_rows, count);
    else if (CASES[c].flags != 0 && is_kept && is_read)
        assert_in_range(shot.item.prefetched_rows, count * shot.item.union_rows / MATCHED * 8 / 10,
                        count);
    if (CASES[c].flags != 0 && is_kept)
        assert_int_equal(unused, 0); /* every row was wanted */
    else if (CASES[c].flags != 0 && way == SCATTERED)
        assert_true(unused >= count * 4096 / 2 && shot.item.prefetched_rows == 0);
    shot_free(&shot);
    rig_release(&world->rig, handle);
}

static void whatever_was_predicted_the_rows_are_the_same(void **state)
{
    (void)state;
    static const char *const LAYOUTS[] = {CONFIG("hint", "paired"), CONFIG("hint", "split")};
    static const uint64_t COUNTS[] = {8, 40, MATCHED / 2, MATCHED};
    for (uint32_t c = 0; c < 3; c++)
        for (uint32_t layout = 0; layout < 2; layout++) {
            struct world world;
            open_world(&world, LAYOUTS[layout], CASES[c].agree);
            spec_request request = look(&world, 0);
            struct shot truth = load(&world, request, 2, CASES[c].heads);
            assert_int_equal(truth.item.result_flags, CASES[c].flags);
            assert_int_equal(truth.item.prefetched_rows + truth.item.unused_bytes, 0);
            rig_release(&world.rig, request);
            for (uint32_t n = 0; n < 4; n++)
                assert_prediction(&world, c, RUN, COUNTS[n], &truth);
            assert_prediction(&world, c, PACKED, MATCHED / 2, &truth);
            assert_prediction(&world, c, SCATTERED, MATCHED / 3, &truth);
            shot_free(&truth);
            world_done(&world);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(half_a_load_of_window_hides_a_good_part_of_it),
        cmocka_unit_test(without_a_window_nothing_takes_longer),
        cmocka_unit_test(a_demand_read_waits_for_one_operation_of_what_is_read_ahead),
        cmocka_unit_test(whatever_was_predicted_the_rows_are_the_same),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
