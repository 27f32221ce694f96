/* Rows of a delivery scored anew, by other queries: the rows of both are exact, the others as their
 * codes decode, whatever becomes of the codes, of a read or of the request. Through the calls of
 * the ABI, on the simulated disk.
 *
 * Holds: the queries are those of the layer, and the same the other way round, whose rows are
 * others. Threads: the loop. */
#include "plugin/baselines/average.h"
#include "plugin/select/select.h"
#include "tests/unit/plugin/layered_fixture.h"

#define LAYERED "\"preset\": \"layered-uniform\", \"prefetch\": {\"predictor\": \"none\"}"
#define WORDS   ((ROWS_MAX + 63) / 64)

/* The shot's item goes for what the ticket delivered, by its queries, the other way round. */
static void aim_other(struct shot *shot, spec_ticket ticket, uint32_t exact_ppm)
{
    aim(shot, ticket, exact_ppm);
    shot->item.flags = SPEC_ITEM_RESCORE;
    shot->item.queries = &shot->pass.q;
    shot->item.new_keys = &shot->pass.fresh.memory;
    negate(shot);
}

static void aim_plainly(struct shot *shot, spec_ticket ticket, uint32_t exact_ppm)
{
    aim(shot, ticket, exact_ppm);
    shot->item.flags = 0;
}

/* Rows of one call by the layer's queries, or the other way round, of a request of its own. */
static void set_of(struct world *world, uint32_t layer, uint32_t exact_ppm, bool is_other,
                   uint64_t *ret_bits)
{
    spec_request request = look(world, 0);
    struct shot shot;
    shot_make(&shot, world, request, layer, 0, exact_ppm);
    if (is_other)
        negate(&shot);
    assert_int_equal(fire(world, &shot), SPEC_OK);
    memcpy(ret_bits, shot.exact, sizeof(shot.exact));
    shot_release(&shot, world, request);
}

static void assert_union(const struct world *world, const struct shot *shot, const uint64_t *one,
                         const uint64_t *other)
{
    for (uint32_t w = 0; w < WORDS; w++)
        assert_int_equal(shot->exact[w], one[w] | other[w]);
    assert_rows(world, shot, 0, 4, 2);
}

/* Codes of layer 0 make room for those of layer 3. */
static void displace(struct world *world, spec_request request)
{
    assert_int_equal(sc_plugin_begin_layer(world->rig.conn, &request, 1, 1, NULL), SPEC_OK);
    rig_pass_ns(&world->rig, 1000000000);
}

/* ---- Rows ----------------------------------------------------------------------------------- */

/* A layer, by its queries; then by the others; then more of those. Returns rows that were added. */
static uint64_t score_twice(struct world *world, spec_request request, uint32_t layer)
{
    uint64_t sets[3][WORDS], before[WORDS];
    struct shot shot;
    set_of(world, layer, 100000, false, sets[0]);
    set_of(world, layer, 150000, true, sets[1]);
    set_of(world, layer, 400000, true, sets[2]);
    spec_ticket ticket = fire_first(world, &shot, request, layer, 100000, 0);
    uint64_t first = shot.item.exact_rows;
    for (uint32_t again = 0; again < 2; again++) { /* the second time nothing is missing */
        memcpy(before, shot.exact, sizeof(before));
        uint64_t was = shot.item.exact_rows;
        aim_other(&shot, ticket, 150000);
        assert_int_equal(fire(world, &shot), SPEC_OK);
        negate(&shot);
        assert_int_equal(shot.item.result_flags, 0);
        assert_union(world, &shot, before, sets[1]);
        uint64_t more = shot.item.exact_rows - was;
        assert_int_equal(shot.item.tier_rows[SPEC_TIER_DISK], more);
        assert_true(again == 0 || more == 0);
        /* Codes were there: rows and their tags, and no more. */
        assert_true(shot.item.wanted_bytes <= more * (2 * rig_part_bytes(&world->rig) + 16));
    }
    uint64_t added = shot.item.exact_rows - first;
    memcpy(before, shot.exact, sizeof(before));
    aim_plainly(&shot, ticket, 400000);
    assert_int_equal(fire(world, &shot), SPEC_OK);
    assert_union(world, &shot, before, sets[2]);
    shot_free(&shot);
    return added;
}

static void rows_of_both_queries_are_exact(void **state)
{
    (void)state;
    static const char *const EXTRA[] = {LAYERED, LAYERED ", \"store\": {\"layout\": \"split\"}",
                                        LAYERED
                                        ", \"layered\": {\"keep_first\": 3, \"keep_last\": 4}"};
    for (uint32_t e = 0; e < 3; e++) {
        struct world world;
        world_open_quantised(&world, EXTRA[e], 3, 2, 16, SPEC_DTYPE_F16, 300, 3);
        struct sc_alloc *alloc = &world.rig.conn->alloc;
        const struct sc_plugin_stats *stats = &world.rig.conn->stats;
        uint64_t added = 0;
        for (uint32_t round = 0; round < 2; round++) {
            spec_request request = look(&world, 0);
            for (uint32_t layer = 0; layer < 4; layer++)
                added += score_twice(&world, request, layer);
            rig_release(&world.rig, request);
            if (round == 0) { /* averages make their place in the store's index */
                rig_background(&world.rig);
                sc_alloc_seal(alloc);
            }
        }
        sc_alloc_unseal(alloc);
        assert_int_equal(atomic_load(&alloc->sealed_refusals), 0);
        assert_true(added > 8 * 10);
        assert_int_equal(atomic_load(&stats->refined_layers), 8 * 3);
        assert_true(atomic_load(&stats->refined_rows) > added);
        world_done(&world);
    }
}

/* Averages are what two calls had made of them, one by these queries and one by the others. */
static void what_is_scored_anew_teaches_as_a_call_does(void **state)
{
    (void)state;
    float is[2][ROWS_MAX], first[ROWS_MAX];
    for (uint32_t way = 0; way < 2; way++) {
        struct world world;
        struct shot shot;
        uint64_t bits[WORDS];
        world_open_quantised(&world, LAYERED, 2, 2, 16, SPEC_DTYPE_F16, 200, 3);
        spec_request request = look(&world, 0);
        const struct sc_plugin_request *known = sc_plugin_request_find(world.rig.conn, request);
        spec_ticket ticket = fire_first(&world, &shot, request, 1, 100000, 0);
        assert_int_equal(sc_baseline_averages_scores(world.rig.conn->baseline.averages,
                                                     known->ranges, known->range_count, 1, false,
                                                     first),
                         200);
        aim_other(&shot, ticket, 100000);
        if (way == 0)
            assert_int_equal(fire(&world, &shot), SPEC_OK);
        else
            set_of(&world, 1, 100000, true, bits);
        assert_int_equal(sc_baseline_averages_scores(world.rig.conn->baseline.averages,
                                                     known->ranges, known->range_count, 1, false,
                                                     is[way]),
                         200);
        shot_end(&shot, &world, request);
    }
    assert_memory_equal(is[0], is[1], 200 * sizeof(float));
    assert_memory_not_equal(is[0], first, 200 * sizeof(float));
}

/* ---- Codes that went ------------------------------------------------------------------------ */

static void codes_that_went_are_read_again(void **state)
{
    (void)state;
    struct world world;
    struct shot shot;
    uint64_t set[WORDS], before[WORDS];
    world_open_quantised(&world, LAYERED, 2, 2, 16, SPEC_DTYPE_F16, 300, 3);
    set_of(&world, 0, 200000, true, set);
    spec_request request = look(&world, 0);
    spec_ticket ticket = fire_first(&world, &shot, request, 0, 100000, 0);
    memcpy(before, shot.exact, sizeof(before));
    displace(&world, request);
    aim_other(&shot, ticket, 200000);
    assert_int_equal(fire(&world, &shot), SPEC_OK);
    assert_union(&world, &shot, before, set);
    uint64_t rows = shot.item.tier_rows[SPEC_TIER_DISK];
    assert_true(shot.item.wanted_bytes > rows * (2 * rig_part_bytes(&world.rig) + 16));
    shot_end(&shot, &world, request);
}

/* Codes of every item are read from the call's begin on, and of an item that wants no rows never.
 */
static void codes_are_read_from_the_submit_on(void **state)
{
    (void)state;
    struct world world;
    struct shot shot;
    world_open_quantised(&world, LAYERED, 2, 2, 16, SPEC_DTYPE_F16, 300, 3);
    for (uint32_t wants = 0; wants < 2; wants++) {
        spec_request handle = look(&world, 0);
        const struct sc_plugin_request *request = sc_plugin_request_find(world.rig.conn, handle);
        spec_ticket ticket = fire_first(&world, &shot, handle, 0, 100000, 0), next;
        displace(&world, handle);
        assert_int_equal(request->selectors[0].layer, 3);
        aim_other(&shot, ticket, wants * 200000);
        assert_int_equal(sc_plugin_submit(world.rig.conn, &shot.item, 1, &next, NULL), SPEC_OK);
        assert_int_equal(request->selectors[0].layer, wants ? 0 : 3);
        assert_int_equal(sc_plugin_submit_wait(world.rig.conn, next, UINT64_MAX, NULL), SPEC_OK);
        assert_int_equal(request->selectors[0].layer, wants ? 0 : 3);
        assert_rows(&world, &shot, 0, 4, 2);
        shot_release(&shot, &world, handle);
    }
    world_done(&world);
}

/* A slab's codes change on the disk after they were delivered: its rows come exactly, beside those
 * that the other codes choose. */
static void codes_that_fail_meanwhile_make_their_rows_exact(void **state)
{
    (void)state;
    static const char PATH[] = "/sim/store/rank-0000-of-0001/seg-00000000";
    struct world world;
    struct shot shot;
    struct slab slab;
    uint64_t before[WORDS], damaged = 0;
    uint8_t bytes[64];
    world_open_quantised(&world, LAYERED, 2, 2, 16, SPEC_DTYPE_F16, 300, 3);
    spec_request request = look(&world, 0);
    spec_ticket ticket = fire_first(&world, &shot, request, 0, 50000, 0);
    memcpy(before, shot.exact, sizeof(before));
    displace(&world, request);
    slab_make(&world, 64, 0, 0, 4, &slab);
    for (uint64_t at = 0; sc_io_sim_disk_peek(world.rig.disk, PATH, at, bytes, 64); at += 8)
        if (memcmp(bytes, slab.codes, 64) == 0) {
            bytes[5] ^= 0x10;
            assert_true(sc_io_sim_disk_poke(world.rig.disk, PATH, at, bytes, 64));
            damaged++;
        }
    assert_int_equal(damaged, 1);
    aim_other(&shot, ticket, 300000); /* 90 rows, those 64 among them */
    assert_int_equal(fire(&world, &shot), SPEC_OK);
    assert_rows(&world, &shot, 0, 4, 2);
    for (uint64_t row = 64; row < 128; row++)
        assert_true(is_exact(&shot, row));
    uint64_t others = 0, kept = 0;
    for (uint32_t w = 0; w < WORDS; w++) {
        assert_int_equal(before[w] & ~shot.exact[w], 0);
        others += w != 1 ? (uint64_t)__builtin_popcountll(shot.exact[w]) : 0;
        kept += w != 1 ? (uint64_t)__builtin_popcountll(before[w]) : 0;
    }
    assert_true(others >= 26 && others <= 26 + kept);
    shot_end(&shot, &world, request);
}

/* No memory is left for codes: every row comes, the best by the ranking that there is first, and
 * that one stays for who gives no queries. */
static void without_memory_for_codes_every_row_comes(void **state)
{
    (void)state;
    uint64_t used = 0, sets[2][WORDS];
    for (uint32_t round = 0; round < 2; round++) {
        struct world world;
        struct shot shot;
        char extra[160];
        (void)snprintf(extra, sizeof(extra), LAYERED ", \"select\": {\"selector_bytes\": %lu}",
                       round == 0 ? UINT64_C(1) << 20 : used);
        world_open_quantised(&world, extra, 2, 2, 16, SPEC_DTYPE_F16, 200, 3);
        if (round == 0) {
            set_of(&world, 0, 125000, false, sets[0]);
            set_of(&world, 0, 200000, false, sets[1]);
            rig_landed(&world.rig);
        }
        spec_request request = look(&world, 0);
        spec_ticket ticket = fire_first(&world, &shot, request, 0, 100000, 0);
        sc_plugin_selectors_end(world.rig.conn, sc_plugin_request_find(world.rig.conn, request));
        rig_landed(&world.rig);
        spec_request other = look(&world, 0);
        assert_int_equal(sc_plugin_begin_layer(world.rig.conn, &other, 1, 0, NULL), SPEC_OK);
        used = sc_store_selector_bytes_used(world.rig.conn->store);
        if (round == 1) {
            uint64_t none[WORDS] = {0};
            aim_other(&shot, ticket, 100000);
            shot.item.budget_bytes = 5 * 2 * rig_part_bytes(&world.rig);
            assert_int_equal(fire(&world, &shot), SPEC_OK);
            assert_int_equal(shot.item.result_flags, SPEC_IMPORTANT_PARTIAL);
            assert_union(&world, &shot, sets[0], none); /* 20, then 5 more of the same ranking */
            shot.item.budget_bytes = 0;
            aim_plainly(&shot, ticket, 200000);
            assert_int_equal(fire(&world, &shot), SPEC_OK);
            assert_union(&world, &shot, sets[1], none);
            aim_other(&shot, ticket, 0); /* none is wanted, and none comes */
            assert_int_equal(fire(&world, &shot), SPEC_OK);
            assert_union(&world, &shot, sets[1], none);
            aim_other(&shot, ticket, 100000);
            assert_int_equal(fire(&world, &shot), SPEC_OK);
            assert_int_equal(shot.item.exact_rows, 200);
            assert_int_equal(shot.item.result_flags, 0);
            assert_int_equal(shot.item.provenance.kind, SPEC_PROVENANCE_EXACT);
            assert_rows(&world, &shot, 0, 4, 2);
        }
        shot_release(&shot, &world, request);
        world_leave(&world, other);
    }
}

/* ---- Failures ------------------------------------------------------------------------------- */

#define APART 390u /* rows of 256 bytes: those of a small share lie on pages apart */

/* The n-th read from the call on fails, of rows, or (is_displaced) of codes first. What is there is
 * told, nothing is worse, and where rows failed the match is void. false: fewer were made. */
static bool fail_at(bool is_displaced, uint64_t n, uint64_t *ret_failed, uint64_t *ret_midway)
{
    struct world world;
    struct shot shot;
    uint64_t before[WORDS], set[WORDS];
    world_open_quantised(&world, LAYERED ", \"read\": {\"gap_bytes\": 1}", 4, 2, 16, SPEC_DTYPE_F16,
                         APART, 3);
    set_of(&world, 0, 30000, true, set);
    spec_request request = look(&world, 0);
    spec_ticket ticket = fire_first(&world, &shot, request, 0, 10000, 0);
    memcpy(before, shot.exact, sizeof(before));
    if (is_displaced)
        displace(&world, request);
    rig_pass_ns(&world.rig, 1000000000);
    aim_other(&shot, ticket, 30000);
    struct sc_fault *fault = &world.rig.conn->fault;
    uint64_t fired = atomic_load(&fault->fired[SC_FAULT_READ]);
    sc_fault_arm(fault, SC_FAULT_READ, n);
    spec_status status = fire(&world, &shot);
    bool has_fired = atomic_load(&fault->fired[SC_FAULT_READ]) > fired;
    sc_fault_arm(fault, SC_FAULT_READ, UINT64_MAX >> 1);
    assert_rows(&world, &shot, 0, 4, 2);
    uint64_t missing = 0;
    for (uint32_t w = 0; w < WORDS; w++) {
        assert_int_equal(before[w] & ~shot.exact[w], 0);
        missing += (uint64_t)__builtin_popcountll(set[w] & ~shot.exact[w]);
    }
    if (status == SPEC_OK) {
        assert_true(!has_fired || is_displaced); /* codes failed: their rows came */
        assert_true(missing == 0 || has_fired);
    } else {
        assert_int_equal(status, SPEC_E_IO);
        assert_true(has_fired && missing > 0);
        assert_int_not_equal(shot.item.failed_position, UINT64_MAX);
        *ret_midway += shot.item.tier_rows[SPEC_TIER_DISK] > 0;
        uint64_t exact = shot.item.exact_rows;
        memset(shot.exact, 0xa5, sizeof(shot.exact));

        assert_int_equal(fire(&world, &shot), SPEC_E_IO); /* stays void, and is told */
        assert_int_equal(shot.item.exact_rows, exact);
        assert_rows(&world, &shot, 0, 4, 2);
        ++*ret_failed;
    }
    shot_release(&shot, &world, request);
    rig_landed(&world.rig);
    world_done(&world);
    return has_fired;
}

static void a_read_that_fails_midway_is_told(void **state)
{
    (void)state;
    for (uint32_t is_displaced = 0; is_displaced < 2; is_displaced++) {
        uint64_t failed = 0, midway = 0, n = 0;
        while (fail_at(is_displaced != 0, n, &failed, &midway))
            n++;
        assert_true(n > 3 && failed > 2 && midway > 0);
    }
}

/* A reset so long after the call's begin. false: it came behind its end. */
static bool outrun(bool is_submitted, uint64_t ns, uint64_t *ret_stale)
{
    struct world world;
    struct shot shot;
    uint64_t before[WORDS];
    world_open_quantised(&world, LAYERED, 2, 2, 16, SPEC_DTYPE_F16, 200, 3);
    spec_request request = look(&world, 0);
    spec_ticket ticket = fire_first(&world, &shot, request, 0, 50000, 0);
    memcpy(before, shot.exact, sizeof(before));
    displace(&world, request); /* so that codes are read while it comes */
    aim_other(&shot, ticket, 250000);
    struct resetter resetter = {.task.step = reset_step, .rig = &world.rig};
    struct sc_exec *exec = world.rig.conn->exec;
    sc_exec_post_at(exec, &resetter.task, SC_IO_CLASS_DEMAND, sc_exec_now_ns(exec) + ns);
    spec_status status;
    if (is_submitted) {
        assert_int_equal(sc_plugin_submit(world.rig.conn, &shot.item, 1, &ticket, NULL), SPEC_OK);
        status = sc_plugin_submit_wait(world.rig.conn, ticket, UINT64_MAX, NULL);
    } else {
        status = fire(&world, &shot);
    }
    bool is_over = sc_exec_cancel(exec, &resetter.task);
    assert_true(status == SPEC_OK || (status == SPEC_E_STALE && !is_over));
    if (status == SPEC_OK)
        assert_rows(&world, &shot, 0, 4, 2);
    for (uint32_t w = 0; w < WORDS && status == SPEC_OK; w++)
        assert_int_equal(before[w] & ~shot.exact[w], 0);
    *ret_stale += status == SPEC_E_STALE;
    assert_int_equal(atomic_load(&world.rig.conn->stats.corrupt_ranges), 0);
    shot_release(&shot, &world, request);
    rig_landed(&world.rig);
    assert_int_equal(atomic_load(&world.rig.conn->stats.requests_open), 0);
    world_done(&world);
    return !is_over;
}

static void a_reset_while_codes_are_read_again_is_no_damage(void **state)
{
    (void)state;
    for (uint32_t is_submitted = 0; is_submitted < 2; is_submitted++) {
        uint64_t stale = 0;
        for (uint64_t ns = 5000; outrun(is_submitted != 0, ns, &stale);)
            ns += 20000;
        assert_true(stale > 0);
    }
}

/* ---- Errors --------------------------------------------------------------------------------- */

/* Other presets, and what a configuration makes of metric and keep. */
static void what_cannot_be_scored_anew_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *extra;
        spec_status expected;
    } CASES[] = {
        {LAYERED, SPEC_OK},
        {"\"preset\": \"layered-uniform\", \"layered\": {\"refine_bytes\": 0}", SPEC_E_STALE},
        {"\"preset\": \"hinted\"", SPEC_E_UNSUPPORTED},
        {"\"preset\": \"as-like\"", SPEC_E_UNSUPPORTED},
    };
    for (uint32_t i = 0; i < 4; i++) {
        struct world world;
        struct shot shot;
        world_open_quantised(&world, CASES[i].extra, 2, 2, 16, SPEC_DTYPE_F16, 200, 3);
        spec_request request = look(&world, 0);
        shot_make(&shot, &world, request, 1, 0, 100000);
        spec_ticket ticket = rig_submit_whole(&world.rig, &shot.item, 1);
        aim_other(&shot, ticket, 100000);
        shot.item.queries = NULL;
        assert_int_equal(fire(&world, &shot), SPEC_E_INVALID);
        shot.item.queries = &shot.pass.q;
        shot.item.refine_of = 0;
        assert_int_equal(fire(&world, &shot), SPEC_E_INVALID);
        shot.item.refine_of = ticket;
        for (uint32_t ppm = 0; ppm <= 1000000 && i == 0; ppm += 500000) { /* whatever the share */
            shot.select.exact_ppm = ppm;
            shot.pass.q.heads = SPEC_QUERIES_PROBE;
            assert_int_equal(fire(&world, &shot), SPEC_E_INVALID);
            shot.pass.q.heads = SPEC_QUERIES_ALL;
        }
        shot.select.exact_ppm = 100000;
        shot.select.given |= SPEC_SELECT_METRIC | SPEC_SELECT_KEEP;
        shot.select.metric = SPEC_METRIC_RANDOM; /* a ranking, and no scores: queries are no use */
        shot.select.keep_first = 7;
        assert_int_equal(fire(&world, &shot), CASES[i].expected);
        for (uint64_t row = 0; row < 7 && i == 0; row++)
            assert_true(is_exact(&shot, row));
        if (i == 0)
            assert_rows(&world, &shot, 0, 4, 2);
        shot_end(&shot, &world, request);
    }
}

/* Several of one call: each sees what the one before it left. */
static void items_of_one_call_follow_one_another(void **state)
{
    (void)state;
    struct world world;
    struct shot shots[3];
    uint64_t sets[3][WORDS], one[WORDS];
    world_open_quantised(&world, LAYERED, 2, 2, 16, SPEC_DTYPE_F16, 200, 3);
    set_of(&world, 0, 100000, true, sets[0]);
    set_of(&world, 0, 200000, true, sets[1]);
    set_of(&world, 0, 250000, false, sets[2]);
    spec_request request = look(&world, 0);
    spec_ticket ticket = fire_first(&world, &shots[0], request, 0, 50000, 0);
    memcpy(one, shots[0].exact, sizeof(one));
    for (uint32_t i = 1; i < 3; i++) {
        shot_make(&shots[i], &world, request, 0, 0, 0);
        rig_area_free(&shots[i].area);
        shots[i].area = shots[0].area; /* the same place */
    }
    aim_other(&shots[0], ticket, 100000);
    aim_plainly(&shots[1], ticket, 200000);
    aim_other(&shots[2], ticket, 250000);
    negate(&shots[2]); /* the layer's own again */
    struct spec_important items[3] = {shots[0].item, shots[1].item, shots[2].item};
    assert_int_equal(sc_plugin_get_important(world.rig.conn, items, 3, NULL), SPEC_OK);
    for (uint32_t i = 0; i < 3; i++)
        for (uint32_t w = 0; w < WORDS; w++) {
            one[w] |= sets[i][w];
            assert_int_equal(shots[i].exact[w], one[w]);
        }
    shots[2].item = items[2];
    assert_rows(&world, &shots[2], 0, 4, 2);
    shot_free(&shots[0]);
    pass_free(&shots[1].pass);
    pass_free(&shots[2].pass);
    world_leave(&world, request);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_of_both_queries_are_exact),
        cmocka_unit_test(what_is_scored_anew_teaches_as_a_call_does),
        cmocka_unit_test(codes_that_went_are_read_again),
        cmocka_unit_test(codes_are_read_from_the_submit_on),
        cmocka_unit_test(codes_that_fail_meanwhile_make_their_rows_exact),
        cmocka_unit_test(without_memory_for_codes_every_row_comes),
        cmocka_unit_test(a_read_that_fails_midway_is_told),
        cmocka_unit_test(a_reset_while_codes_are_read_again_is_no_damage),
        cmocka_unit_test(what_cannot_be_scored_anew_is_refused),
        cmocka_unit_test(items_of_one_call_follow_one_another),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
