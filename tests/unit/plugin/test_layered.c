/* Layered delivery: every row there, exact ones bit by bit as stored and the others as their codes
 * decode; the exact set against a float64 reference over decoded keys; deadlines, budgets, damaged
 * and raw slabs. Everything through the calls of the ABI, on the simulated disk. */
#include "plugin/baselines/average.h"
#include "tests/unit/plugin/layered_fixture.h"

static void rows_are_exact_where_bits_say_and_decoded_elsewhere(void **state)
{
    (void)state;
    static const struct {
        uint32_t heads, group, head_size, dtype, bits_k, bits_v;
        uint64_t matched;
        const char *layout;
    } CASES[] = {
        {3, 1, 16, SPEC_DTYPE_F16, 4, 2, 300, "paired"},
        {4, 2, 16, SPEC_DTYPE_BF16, 5, 3, 333, "paired"},
        {2, 4, 8, SPEC_DTYPE_F32, 6, 2, 129, "split"},
        {1, 3, 48, SPEC_DTYPE_F16, 8, 8, 64, "split"},
        {3, 2, 20, SPEC_DTYPE_F16, 2, 4, 100, "paired"},
    };
    static const uint32_t PPM[] = {0, 50000, 250000, 900000};
    uint64_t told = 0, untold = 0;
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        struct world world;
        char extra[256];
        (void)snprintf(
            extra, sizeof(extra),
            "\"preset\": \"layered-uniform\", \"store\": {\"layout\": \"%s\"}, \"layered\": "
            "{\"bits_k\": %u, \"bits_v\": %u}",
            CASES[i].layout, CASES[i].bits_k, CASES[i].bits_v);
        world_open_quantised(&world, extra, CASES[i].heads, CASES[i].group, CASES[i].head_size,
                             CASES[i].dtype, CASES[i].matched, 3);
        for (uint64_t from = 0; from < 12; from += 11) {
            spec_request request = look(&world, from);
            for (uint32_t layer = 0; layer < 4; layer++) {
                struct shot shot;
                uint64_t rows = CASES[i].matched - from;
                shot_make(&shot, &world, request, layer, from, PPM[layer]);
                if (layer == 0)
                    shot.item.queries = NULL; /* nothing is ranked */
                assert_int_equal(fire(&world, &shot), SPEC_OK);
                assert_int_equal(shot.item.exact_rows, (rows * PPM[layer] + 999999) / 1000000);
                assert_int_equal(shot.item.result_flags, 0);
                assert_rows(&world, &shot, from, CASES[i].bits_k, CASES[i].bits_v);
                bool tells = set_is_the_best(&world, &shot, from, CASES[i].bits_k);
                told += tells;
                untold += !tells;
                assert_int_equal(shot.item.provenance.kind, SPEC_PROVENANCE_LOSSY);
                assert_int_equal(shot.item.provenance.bits_k, CASES[i].bits_k);
                assert_int_equal(shot.item.provenance.bits_v, CASES[i].bits_v);
                assert_int_equal(shot.item.provenance.exact_ppm,
                                 shot.item.exact_rows * 1000000 / rows);
                shot_free(&shot);
            }
            rig_release(&world.rig, request);
        }
        assert_int_equal(atomic_load(&world.rig.conn->stats.quantised_layers), 8);
        world_done(&world);
    }
    print_message("%lu sets compared, %lu too close to tell\n", told, untold);
    assert_true(told > 8 * untold);
}

/* Between lookup and the first layer a host does other things: codes come meanwhile. */
static void lookup_begins_the_first_codes(void **state)
{
    (void)state;
    struct world world;
    world_open_quantised(&world, "\"preset\": \"layered-uniform\"", 2, 2, 16, SPEC_DTYPE_F16, 200,
                         3);
    spec_request request = look(&world, 0);
    rig_pass_ns(&world.rig, 1000000000);
    for (uint32_t layer = 0; layer < SC_PLUGIN_AHEAD; layer++) {
        struct shot shot;
        shot_make(&shot, &world, request, layer, 0, 0);
        assert_int_equal(fire(&world, &shot), SPEC_OK);
        assert_int_equal(shot.item.io_exposed_ns, 0);
        assert_true(shot.item.read_bytes > 0);
        assert_rows(&world, &shot, 0, 4, 2);
        shot_free(&shot);
    }
    world_leave(&world, request);
}

/* exact_ppm 10^6: bit-identical, and no codes are read. */
static void all_exact_is_the_whole_load(void **state)
{
    (void)state;
    struct world world;
    world_open_quantised(&world, "\"preset\": \"layered-uniform\"", 2, 2, 16, SPEC_DTYPE_F16, 200,
                         3);
    spec_request request = look(&world, 0);
    struct shot shot;
    shot_make(&shot, &world, request, 1, 0, 1000000);
    shot.item.queries = NULL;
    assert_int_equal(fire(&world, &shot), SPEC_OK);
    assert_int_equal(shot.item.exact_rows, 200);
    assert_rows(&world, &shot, 0, 4, 2);
    assert_int_equal(shot.item.provenance.kind, SPEC_PROVENANCE_EXACT);
    assert_int_equal(shot.item.wanted_bytes, 200 * (2 * rig_part_bytes(&world.rig) + 8));
    shot_end(&shot, &world, request);
}

/* Time or bytes run out: what is there is exact, the rest coarse, and the item says so. */
static void an_item_that_ends_early_says_so(void **state)
{
    (void)state;
    struct world world;
    world_open_quantised(&world,
                         "\"preset\": \"layered-uniform\", \"prefetch\": {\"predictor\": \"none\"}",
                         2, 2, 16, SPEC_DTYPE_F16, 200, 3);
    spec_request request = look(&world, 0);
    struct shot shot;
    shot_make(&shot, &world, request, 0, 0, 250000);
    shot.item.deadline_ns = 1;
    assert_int_equal(fire(&world, &shot), SPEC_OK);
    assert_int_equal(shot.item.result_flags, SPEC_IMPORTANT_PARTIAL);
    assert_true(shot.item.exact_rows < 50);
    assert_rows(&world, &shot, 0, 4, 2);
    shot_free(&shot);
    shot_make(&shot, &world, request, 1, 0, 250000);
    shot.item.budget_bytes = 10 * 2 * rig_part_bytes(&world.rig) + 1;
    assert_int_equal(fire(&world, &shot), SPEC_OK);
    assert_int_equal(shot.item.result_flags, SPEC_IMPORTANT_PARTIAL);
    assert_int_equal(shot.item.exact_rows, 10);
    assert_rows(&world, &shot, 0, 4, 2);
    assert_true(set_is_the_best(&world, &shot, 0, 4));
    shot_free(&shot);
    assert_int_equal(atomic_load(&world.rig.conn->stats.partial_layers), 2);
    world_leave(&world, request);
}

/* Rows whose codes are not there yet are exact, and more than were asked for. */
static void rows_without_codes_are_exact(void **state)
{
    (void)state;
    struct world world;
    world_open_quantised(&world,
                         "\"preset\": \"layered-uniform\", \"layered\": {\"quantise\": \"no\"}", 2,
                         2, 16, SPEC_DTYPE_F16, 200, 3);
    spec_request request = look(&world, 0);
    struct shot shot;
    shot_make(&shot, &world, request, 0, 0, 50000);
    assert_int_equal(fire(&world, &shot), SPEC_OK);
    assert_int_equal(shot.item.exact_rows, 200);
    assert_rows(&world, &shot, 0, 4, 2);
    assert_int_equal(shot.item.provenance.kind, SPEC_PROVENANCE_EXACT);
    shot_end(&shot, &world, request);
}

static void reopen_as(struct world *world, const char *extra)
{
    rig_close(&world->rig);
    world->rig.extra = extra;
    rig_open(&world->rig);
}

static uint64_t forced_rows(struct world *world)
{
    return atomic_load(&world->rig.conn->stats.layered_forced_rows);
}

/* One layer; every row is there. Returns how many rows were exact. */
static uint64_t deliver(struct world *world, uint32_t bits_k, uint32_t bits_v)
{
    spec_request request = look(world, 0);
    struct shot shot;
    shot_make(&shot, world, request, 1, 0, 50000);
    assert_int_equal(fire(world, &shot), SPEC_OK);
    assert_rows(world, &shot, 0, bits_k, bits_v);
    uint64_t exact = shot.item.exact_rows;
    if (exact < world->matched) {
        assert_int_equal(shot.item.provenance.bits_k, bits_k);
        assert_int_equal(shot.item.provenance.bits_v, bits_v);
    }
    shot_release(&shot, world, request);
    return exact;
}

/* A store of another preset gets codes when it is opened; other bits do not touch what has some. */
static void what_was_stored_before_gets_codes(void **state)
{
    (void)state;
    struct world world;
    world_open(&world, "\"preset\": \"as-like\"", 2, 2, 16, SPEC_DTYPE_F16, 200, 3);
    reopen_as(&world, "\"preset\": \"layered-uniform\"");
    wait_for_quant(&world);
    assert_int_equal(deliver(&world, 4, 2), 10);
    assert_int_equal(forced_rows(&world), 0);
    reopen_as(&world,
              "\"preset\": \"layered-uniform\", \"layered\": {\"bits_k\": 8, \"bits_v\": 5}");
    wait_for_quant(&world);
    assert_int_equal(deliver(&world, 4, 2), 10);
    assert_int_equal(forced_rows(&world), 0);
    struct sc_store_stats stats = rig_store_stats(&world.rig);
    assert_int_equal(stats.built_pieces, 0);
    world_done(&world);
}

/* What a run could not read has no codes, until maintain tries again. */
static void what_was_passed_over_gets_codes_from_maintain(void **state)
{
    (void)state;
    struct world world;
    world_open(&world, "\"preset\": \"as-like\"", 2, 2, 16, SPEC_DTYPE_F16, 200, 3);
    reopen_as(&world, "\"preset\": \"layered-uniform\"");
    sc_fault_arm(&world.rig.conn->fault, SC_FAULT_READ, 0); /* the run has not read yet */
    wait_for_quant(&world);
    assert_int_equal(atomic_load(&world.rig.conn->fault.fired[SC_FAULT_READ]), 1);
    assert_int_equal(deliver(&world, 4, 2), 200);
    assert_int_equal(forced_rows(&world), 200);
    assert_int_equal(rig_maintain(&world.rig, SPEC_MAINTAIN_BUILD), SPEC_OK);
    wait_for_quant(&world);
    assert_int_equal(deliver(&world, 4, 2), 10);
    assert_int_equal(forced_rows(&world), 200);
    world_done(&world);
}

/* Without queries and averages: those that are always exact, then the lowest positions. */
static void static_sets_begin_at_the_front(void **state)
{
    (void)state;
    struct world world;
    world_open_quantised(
        &world,
        "\"preset\": \"layered-uniform\", \"select\": {\"identify\": \"static\"}, \"layered\": "
        "{\"keep_last\": 3}, \"prefetch\": {\"predictor\": \"none\"}",
        2, 2, 16, SPEC_DTYPE_F16, 200, 3);
    spec_request request = look(&world, 0);
    struct shot shot;
    shot_make(&shot, &world, request, 0, 0, 50000);
    shot.item.queries = NULL;
    shot.item.new_keys = NULL;
    assert_int_equal(fire(&world, &shot), SPEC_OK);
    assert_int_equal(shot.item.exact_rows, 10);
    assert_int_equal(shot.item.result_flags, 0);
    for (uint64_t row = 0; row < 200; row++)
        assert_int_equal(is_exact(&shot, row), row < 7 || row >= 197);
    assert_rows(&world, &shot, 0, 4, 2);
    shot_end(&shot, &world, request);
}

/* What a pass stores on coarse rows is lossy, and lookups say so. */
static void what_is_stored_on_quantised_rows_is_lossy(void **state)
{
    (void)state;
    struct world world;
    world_open_quantised(&world, "\"preset\": \"layered-uniform\"", 2, 2, 16, SPEC_DTYPE_F16, 128,
                         3);
    struct spec_lookup_result result = rig_lookup(&world.rig, &world.prompt);
    assert_int_equal(result.provenance.kind, SPEC_PROVENANCE_EXACT);
    spec_ticket ticket = 0;
    for (uint32_t layer = 0; layer < 4; layer++) {
        struct shot shot;
        shot_make(&shot, &world, result.request, layer, 0, 100000);
        assert_int_equal(fire(&world, &shot), SPEC_OK);
        ticket = store_fresh(&world, result.request, layer);
        shot_free(&shot);
    }
    assert_int_equal(rig_wait(&world.rig, ticket), SPEC_OK);
    rig_release(&world.rig, result.request);
    wait_for_quant(&world);
    expect_lossy(&world, 101562);
    world_done(&world);
}

/* ---- Averages ------------------------------------------------------------------------------- */

#define STATIC                                                                                     \
    "\"preset\": \"layered-uniform\", \"select\": {\"identify\": \"static\"}, \"prefetch\": "      \
    "{\"predictor\": "                                                                             \
    "\"static\"}"

/* All layers by their queries, a tenth exact; the shots are the caller's. */
static void teach(struct world *world, struct shot *ret_shots)
{
    spec_request request = look(world, 0);
    for (uint32_t layer = 0; layer < 4; layer++) {
        shot_make(&ret_shots[layer], world, request, layer, 0, 100000);
        assert_int_equal(fire(world, &ret_shots[layer]), SPEC_OK);
    }
    rig_release(&world->rig, request);
}

/* All layers without queries: the rows that were taught, but for one at the border: averages have
 * steps. Where they are guessed, all of them are read ahead. */
static void assert_taught(struct world *world, const struct shot *taught, bool is_predicted)
{
    spec_request request = look(world, 0);
    for (uint32_t layer = 0; layer < 4; layer++) {
        struct shot shot;
        uint64_t both = 0;
        shot_make(&shot, world, request, layer, 0, 100000);
        shot.item.queries = NULL;
        shot.item.new_keys = NULL;
        if (is_predicted && layer > 0)
            assert_int_equal(
                sc_plugin_prefetch_next(world->rig.conn, request, layer - 1, NULL, NULL), SPEC_OK);
        rig_pass_ns(&world->rig, 1000000000);
        assert_int_equal(fire(world, &shot), SPEC_OK);
        assert_int_equal(shot.item.result_flags, 0);
        assert_int_equal(shot.item.exact_rows, 20);
        for (uint64_t row = 0; row < 200; row++)
            both += is_exact(&shot, row) && is_exact(&taught[layer], row);
        assert_in_range(both, 19, 20);
        if (is_predicted && layer >= 2) /* guesses are trusted from the second on */
            assert_int_equal(shot.item.prefetched_rows, 20);
        assert_rows(world, &shot, 0, 4, 2);
        shot_free(&shot);
    }
    rig_release(&world->rig, request);
}

/* Who has queries teaches; who has none gets what was important to those, also after the taught
 * store was opened again, and from a log that was written anew. */
static void scores_teach_what_is_exact_without_queries(void **state)
{
    (void)state;
    static const char *const LAYOUTS[] = {"paired", "split"};
    for (uint32_t way = 0; way < 2; way++) {
        struct world world;
        struct shot taught[4];
        char layered[128], without[192];
        float before[200], after[200];
        (void)snprintf(layered, sizeof(layered),
                       "\"preset\": \"layered-uniform\", \"store\": {\"layout\": \"%s\"}",
                       LAYOUTS[way]);
        (void)snprintf(without, sizeof(without), STATIC ", \"store\": {\"layout\": \"%s\"}",
                       LAYOUTS[way]);
        world_open_quantised(&world, layered, 2, 2, 16, SPEC_DTYPE_F16, 200, 3);
        teach(&world, taught);
        assert_int_equal(world_averages(&world, 2, before), 200);
        reopen_as(&world, without);
        assert_taught(&world, taught, false);
        reopen_as(&world, layered);
        assert_int_equal(world_averages(&world, 2, after),
                         200); /* who was taught teaches nothing */
        assert_memory_equal(before, after, sizeof(before));
        assert_int_equal(sc_store_checkpoint(world.rig.conn->store, NULL), SPEC_OK);
        reopen_as(&world, without);
        assert_taught(&world, taught, true);
        for (uint32_t layer = 0; layer < 4; layer++)
            shot_free(&taught[layer]);
        world_done(&world);
    }
}

/* Layer 1 of a request of its own, by its queries or (is_other) by those the other way round. One
 * is submitted and refined, the other is not. */
static void choose(struct world *world, bool is_other)
{
    spec_request request = look(world, 0);
    struct shot shot;
    if (is_other) {
        shot_make(&shot, world, request, 1, 0, 100000);
        negate(&shot);
        assert_int_equal(fire(world, &shot), SPEC_OK);
    } else {
        spec_ticket ticket = fire_first(world, &shot, request, 1, 100000, 1);
        assert_int_equal(refine(world, &shot, ticket, 200000), SPEC_OK);
        assert_int_equal(refine(world, &shot, ticket, 1000000), SPEC_OK);
    }
    shot_release(&shot, world, request);
}

/* The ninth choice counts an eighth, so one that counted twice would show; and what was submitted
 * and left before it was chosen counts nothing. */
static void a_choice_counts_once(void **state)
{
    (void)state;
    float is[3][200], ended[200];
    struct world world;
    for (uint32_t way = 0; way < 3; way++) { /* one; the other; eight of the other, then one */
        if (way > 0)
            world_done(&world);
        world_open_quantised(&world, "\"preset\": \"layered-uniform\"", 2, 2, 16, SPEC_DTYPE_F16,
                             200, 3);
        for (uint32_t i = way == 2 ? 9 : 1; i-- > 0;)
            choose(&world, way == 1 || i > 0);
        assert_int_equal(world_averages(&world, 1, is[way]), 200);
    }
    for (uint64_t row = 0; row < 200; row++) {
        float expected = is[1][row] + (is[0][row] - is[1][row]) / 8;
        assert_true(fabsf(is[2][row] - expected) < 5e-3f * expected); /* steps of codes: .03 % */
    }
    spec_request request = look(&world, 0);
    struct shot shot;
    spec_ticket ticket;
    shot_make(&shot, &world, request, 1, 0, 100000);
    assert_int_equal(sc_plugin_submit(world.rig.conn, &shot.item, 1, &ticket, NULL), SPEC_OK);
    rig_release(&world.rig, request);
    assert_int_equal(sc_plugin_submit_wait(world.rig.conn, ticket, UINT64_MAX, NULL), SPEC_E_STALE);
    shot_free(&shot);
    assert_int_equal(world_averages(&world, 1, ended), 200);
    assert_memory_equal(is[2], ended, sizeof(ended));
    world_done(&world);
}

/* Rows [world->matched, end) in a pass of their own. */
static void store_more(struct world *world, uint64_t end)
{
    struct rig *rig = &world->rig;
    struct prompt stored = {end, world->prompt.tokens, world->prompt.history};
    struct spec_lookup_result result = rig_lookup(rig, &stored);
    spec_ticket ticket = 0;
    assert_int_equal(result.matched_tokens, world->matched);
    for (uint32_t layer = 0; layer < rig->layers; layer++) {
        struct area area = world_area(world, world->matched, end - world->matched, layer);
        struct spec_store_params params = rig_store_params(result.request, layer, world->matched,
                                                           end - world->matched, &area.memory);
        assert_int_equal(sc_plugin_store(rig->conn, &params, 1, &ticket, NULL), SPEC_OK);
        rig_area_free(&area);
    }
    assert_int_equal(rig_wait(rig, ticket), SPEC_OK);
    rig_release(rig, result.request);
    world->matched = end;
}

/* That rows were not looked at says nothing of them: theirs stay, the others' move by a share of
 * what was looked at. */
static void rows_without_codes_keep_their_averages(void **state)
{
    (void)state;
    struct world world = {.matched = 200, .group = 2, .agree = 3};
    float sums[200], before[200], after[200], moved = 0;
    world_make(&world, true, "\"preset\": \"layered-uniform\"", 4, 2, 16, 9);
    world.matched = 128;
    world_open_stored(&world);
    wait_for_quant(&world);
    reopen_as(&world, "\"preset\": \"layered-uniform\", \"layered\": {\"quantise\": \"no\"}");
    store_more(&world, 200);
    spec_request handle = look(&world, 0);
    struct sc_plugin_request *request = sc_plugin_request_find(world.rig.conn, handle);
    for (uint64_t row = 0; row < 200; row++)
        sums[row] = 1;
    (void)sc_baseline_averages_note(
        world.rig.conn->baseline.averages,
        &(struct sc_baseline_sample){.ranges = request->ranges,
                                     .range_count = request->range_count,
                                     .layer = 1,
                                     .sums = sums});
    assert_int_equal(world_averages(&world, 1, before), 200);
    struct shot shot;
    shot_make(&shot, &world, handle, 1, 0, 500000);
    assert_int_equal(fire(&world, &shot), SPEC_OK);
    assert_int_equal(shot.item.exact_rows, 100);
    assert_int_equal(forced_rows(&world), 72);
    assert_rows(&world, &shot, 0, 4, 2);
    shot_release(&shot, &world, handle);
    assert_int_equal(world_averages(&world, 1, after), 200);
    for (uint64_t row = 0; row < 128; row++)
        moved += after[row];
    assert_true(fabsf(moved - (128 / 200.0f + 1) / 2) < 1e-2f);
    assert_memory_equal(before + 128, after + 128, 72 * sizeof(float));
    world_done(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_exact_where_bits_say_and_decoded_elsewhere),
        cmocka_unit_test(lookup_begins_the_first_codes),
        cmocka_unit_test(all_exact_is_the_whole_load),
        cmocka_unit_test(an_item_that_ends_early_says_so),
        cmocka_unit_test(rows_without_codes_are_exact),
        cmocka_unit_test(what_was_stored_before_gets_codes),
        cmocka_unit_test(what_was_passed_over_gets_codes_from_maintain),
        cmocka_unit_test(static_sets_begin_at_the_front),
        cmocka_unit_test(what_is_stored_on_quantised_rows_is_lossy),
        cmocka_unit_test(scores_teach_what_is_exact_without_queries),
        cmocka_unit_test(a_choice_counts_once),
        cmocka_unit_test(rows_without_codes_keep_their_averages),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
