/* Chosen rows: sets against a float64 reference, delivered rows against the truth, and what happens
 * when there is nothing to choose by. Everything through the calls of the ABI, on the simulated
 * disk. */
#include "tests/unit/plugin/select_call.h"
#include "tests/unit/threads.h"

#include "plugin/select/issue_reads.h"

/* ---- Sets ----------------------------------------------------------------------------------- */

static double importances[8][CALL_ROWS_MAX];
static bool tops[8][CALL_ROWS_MAX];

struct wanted { /* what the reference says of one item */
    uint64_t rows, k, heads;
    double gap, similarity;
    bool voted[CALL_ROWS_MAX];
};

static uint64_t reference_k(const struct spec_select *select, const double *total, uint64_t rows)
{
    uint64_t ratio = (rows * select->retain_ppm + 999999) / 1000000;
    ratio = ratio > 0 ? ratio : 1;
    if (select->budget == SPEC_BUDGET_RATIO)
        return ratio;
    if (select->budget == SPEC_BUDGET_COUNT)
        return select->count < rows ? select->count : rows;
    double all = 0, sum = 0;
    uint64_t k = 0;
    static bool used[CALL_ROWS_MAX];
    memset(used, 0, sizeof(used));
    for (uint64_t j = 0; j < rows; j++)
        all += total[j];
    while (k < ratio && sum < all * select->mass_ppm / 1e6) {
        uint64_t best = rows;
        for (uint64_t j = 0; j < rows; j++)
            if (!used[j] && (best == rows || total[j] > total[best]))
                best = j;
        used[best] = true;
        sum += total[best];
        k++;
    }
    return k > 0 ? k : 1;
}

static void keep_ends(const struct world *world, const struct spec_select *select, uint64_t from,
                      double *scores)
{
    for (uint64_t p = from; p < world->matched; p++)
        if (p < select->keep_first || p + select->keep_last >= world->matched)
            scores[p - from] = INFINITY;
}

/* Sets of `probes` heads by the definition, and the vote. */
static struct wanted reference_sets(const struct world *world, const struct select_call *shot,
                                    uint64_t from, uint64_t probes)
{
    struct wanted wanted = {
        .rows = world->matched - from, .heads = world->rig.heads, .gap = 1, .similarity = 1};
    static double total[CALL_ROWS_MAX];
    static uint32_t votes[CALL_ROWS_MAX];
    memset(total, 0, sizeof(total));
    memset(votes, 0, sizeof(votes));
    for (uint64_t h = 0; h < wanted.heads; h++) {
        reference_importance(world, shot->item.layer, from, h, shot->item.new_keys != NULL,
                             shot->select.metric == SPEC_METRIC_LAST, importances[h]);
        for (uint64_t j = 0; j < wanted.rows && h < probes; j++)
            total[j] += importances[h][j];
    }
    wanted.k = reference_k(&shot->select, total, wanted.rows);
    for (uint64_t h = 0; h < wanted.heads; h++) {
        keep_ends(world, &shot->select, from, importances[h]);
        reference_top(importances[h], NULL, wanted.rows, wanted.k, tops[h], &wanted.gap);
        for (uint64_t j = 0; j < wanted.rows && h < probes; j++)
            votes[j] += tops[h][j];
    }
    double sum = 0;
    for (uint64_t a = 0; a < probes; a++)
        for (uint64_t b = a + 1; b < probes; b++)
            sum += reference_jaccard(tops[a], tops[b], wanted.rows);
    if (probes > 1)
        wanted.similarity = sum / ((double)probes * (double)(probes - 1) / 2);
    keep_ends(world, &shot->select, from, total);
    reference_top(total, votes, wanted.rows, wanted.k, wanted.voted, &wanted.gap);
    return wanted;
}

/* One item against the reference. false: two scores at a border are too close to tell. */
static bool assert_set(struct world *world, struct select_call *shot, uint64_t from,
                       uint64_t probes, double alpha)
{
    assert_int_equal(call_fire(world, shot), SPEC_OK);
    call_assert_rows(world, shot);
    struct spec_important *item = &shot->item;
    struct wanted wanted = reference_sets(world, shot, from, probes);
    double ratio = (double)wanted.k / (double)wanted.rows;
    double threshold = pow(ratio / (2 - ratio), alpha);
    if (wanted.gap < 1e-5)
        return false;
    assert_int_equal(item->row_count, wanted.k);
    assert_true(fabs((double)item->similarity - wanted.similarity) < 1e-5);
    assert_true(fabs((double)item->threshold - threshold) < 1e-5);
    bool parted = (item->result_flags & SPEC_IMPORTANT_FALLBACK) != 0;
    assert_int_equal(parted, wanted.k < wanted.rows && !(wanted.similarity > threshold));
    uint64_t union_rows = 0;
    for (uint64_t j = 0; j < wanted.rows; j++) {
        bool any = false;
        for (uint64_t h = 0; h < wanted.heads && parted; h++)
            any = any || tops[h][j];
        union_rows += parted ? any : wanted.voted[j];
    }
    assert_int_equal(item->union_rows, union_rows);
    for (uint64_t h = 0; h < (parted ? wanted.heads : 1); h++)
        for (uint64_t r = 0; r < wanted.k; r++)
            assert_true(
                (parted ? tops[h] : wanted.voted)[item->positions[h * wanted.k + r] - from]);
    assert_int_equal(item->provenance.kind,
                     wanted.k < wanted.rows ? SPEC_PROVENANCE_PRUNED : SPEC_PROVENANCE_EXACT);
    if (wanted.k < wanted.rows) {
        assert_int_equal(item->provenance.retain_ppm,
                         (wanted.k * 1000000 + wanted.rows - 1) / wanted.rows);
        assert_int_equal(item->provenance.metric, shot->select.metric);
    }
    return true;
}

static const struct spec_select SELECTS[] = {
    {.given = SPEC_SELECT_BUDGET, .retain_ppm = 250000},
    {.given = SPEC_SELECT_BUDGET, .retain_ppm = 1},
    {.given = SPEC_SELECT_BUDGET | SPEC_SELECT_METRIC,
     .retain_ppm = 100000,
     .metric = SPEC_METRIC_LAST},
    {.given = SPEC_SELECT_BUDGET, .budget = SPEC_BUDGET_COUNT, .count = 37},
    {.given = SPEC_SELECT_BUDGET,
     .budget = SPEC_BUDGET_MASS,
     .mass_ppm = 700000,
     .retain_ppm = 900000},
    {.given = SPEC_SELECT_BUDGET | SPEC_SELECT_KEEP,
     .retain_ppm = 250000,
     .keep_first = 4,
     .keep_last = 9},
    {.given = SPEC_SELECT_BUDGET | SPEC_SELECT_KEEP,
     .retain_ppm = 50000,
     .keep_first = 100,
     .keep_last = 3},
};
#define SELECT_COUNT (sizeof(SELECTS) / sizeof(SELECTS[0]))

/* Every budget and metric, with and without new keys, from the start and from inside the match. */
static void run_selects(struct world *world, uint64_t probes, double alpha, uint64_t *told,
                        uint64_t *untold)
{
    for (uint64_t from = 0; from < 42; from += 41) {
        spec_request request = look(world, from);
        for (uint64_t s = 0; s < SELECT_COUNT; s++) {
            uint32_t layer = (uint32_t)s % world->rig.layers;
            struct select_call shot = call_make(world, request, layer, from);
            shot.select = SELECTS[s];
            shot.select.struct_size = sizeof(shot.select);
            if (s % 3 == 1)
                assert_int_equal(sc_plugin_begin_layer(world->rig.conn, &request, 1, layer, NULL),
                                 SPEC_OK);
            if (assert_set(world, &shot, from, probes, alpha))
                ++*told;
            else
                ++*untold;
            call_free(&shot);
        }
        rig_release(&world->rig, request);
    }
}

static void sets_are_those_of_the_definition(void **state)
{
    (void)state;
    static const struct {
        uint32_t heads, group, head_size, dtype;
        uint64_t matched;
        int64_t agree;
    } CASES[] = {
        {3, 1, 8, SPEC_DTYPE_F32, 300, 8},   {3, 1, 8, SPEC_DTYPE_F32, 300, 0},
        {4, 2, 16, SPEC_DTYPE_F16, 333, 7},  {4, 2, 16, SPEC_DTYPE_F16, 333, 2},
        {2, 4, 32, SPEC_DTYPE_BF16, 129, 8}, {2, 4, 32, SPEC_DTYPE_BF16, 129, 4},
        {1, 3, 64, SPEC_DTYPE_F16, 100, 0},
    };
    uint64_t told = 0, untold = 0;
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        struct world world;
        world_open(&world, "\"preset\": \"impress-itf+range\", \"chunk_tokens\": 16",
                   CASES[i].heads, CASES[i].group, CASES[i].head_size, CASES[i].dtype,
                   CASES[i].matched, CASES[i].agree);
        run_selects(&world, CASES[i].heads < 3 ? CASES[i].heads : 3, 0.6, &told, &untold);
        world_done(&world);
    }
    print_message("%lu sets compared, %lu too close to tell\n", told, untold);
    assert_true(told > 8 * untold);
}

/* The prompt's tokens behind max_request_tokens rank the rows in front of it. */
static void queries_behind_the_limit_choose(void **state)
{
    (void)state;
    struct world world;
    world_open(&world, "\"preset\": \"impress-itf+range\", \"max_request_tokens\": 200", 3, 1, 8,
               SPEC_DTYPE_F32, 200, 8);
    spec_request request = look(&world, 0);
    uint64_t told = 0;
    for (uint32_t layer = 0; layer < 4; layer++) {
        struct select_call shot = call_make(&world, request, layer, 0);
        shot.select = SELECTS[layer];
        shot.select.struct_size = sizeof(shot.select);
        told += assert_set(&world, &shot, 0, 3, 0.6);
        call_free(&shot);
    }
    assert_true(told > 0);
    struct select_call shot = call_make(&world, request, 0, 0);
    shot.pass.fresh.memory.k_bytes = UINT64_C(1) << 40;
    shot.pass.q.first_position = 401 - FRESH_ROWS; /* more new keys than there is room for */
    assert_int_equal(call_fire(&world, &shot), SPEC_E_INVALID);
    call_free(&shot);
    world_leave(&world, request);
}

/* A short match beside a long prompt is delivered whole, wherever the prompt is cut. */
static void a_cut_prompt_is_as_long_as_it_was(void **state)
{
    (void)state;
    static const char *const LIMITS[] = {"16384", "100"};
    for (uint32_t i = 0; i < 2; i++) {
        char extra[160];
        struct world world;
        (void)snprintf(extra, sizeof(extra),
                       "\"preset\": \"impress-itf\", \"max_request_tokens\": %s, "
                       "\"select\": {\"min_tokens\": 0, \"min_share_ppm\": 500000}",
                       LIMITS[i]);
        world_open(&world, extra, 3, 1, 8, SPEC_DTYPE_F32, 100, 8);
        for (uint32_t is_long = 0; is_long < 2; is_long++) {
            struct prompt prompt = rig_prompt(103, 0, 0, is_long ? 400 : 105);
            struct spec_lookup_result found;
            assert_int_equal(rig_try_lookup(&world.rig, &prompt, 0, 100, &found), SPEC_OK);
            assert_int_equal(found.matched_tokens, 100);
            struct select_call shot = call_make(&world, found.request, 0, 0);
            assert_int_equal(call_fire(&world, &shot), SPEC_OK);
            assert_true(is_long ? shot.item.row_count == 100 : shot.item.row_count < 100);
            call_free(&shot);
            rig_release(&world.rig, found.request);
            rig_prompt_free(&prompt);
        }
        world_done(&world);
    }
}

/* alpha 0: the threshold is 1, and no similarity is more. 50: none is less, but that of sets that
 * share nothing. */
static void alpha_decides_who_parts(void **state)
{
    (void)state;
    static const char *const EXTRAS[] = {
        "\"preset\": \"impress-itf\", \"select\": {\"alpha_milli\": 0}",
        "\"preset\": \"impress-itf\", \"select\": {\"alpha_milli\": 50000}"};
    for (uint32_t way = 0; way < 2; way++)
        for (int64_t agree = 0; agree <= 8; agree += 8) {
            struct world world;
            world_open(&world, EXTRAS[way], 4, 2, 16, SPEC_DTYPE_F16, 200, agree);
            spec_request request = look(&world, 0);
            uint64_t told = 0;
            for (uint32_t layer = 0; layer < 4; layer++) {
                struct select_call shot = call_make(&world, request, layer, 0);
                shot.select = SELECTS[0];
                shot.select.struct_size = sizeof(shot.select);
                told += assert_set(&world, &shot, 0, 3, way == 0 ? 0 : 50);
                assert_int_equal(shot.item.result_flags, way == 0 ? SPEC_IMPORTANT_FALLBACK : 0);
                call_free(&shot);
            }
            assert_true(told > 0);
            const struct sc_plugin_stats *stats = &world.rig.conn->stats;
            assert_int_equal(atomic_load(&stats->selected_layers), 4);
            assert_int_equal(atomic_load(&stats->fallback_layers), way == 0 ? 4 : 0);
            assert_int_equal(atomic_load(&stats->selected_rows), 4 * 50);
            assert_int_equal(atomic_load(&stats->selected_from_rows), 4 * 200);
            assert_true(atomic_load(&stats->selector_read_bytes) > 0);
            world_leave(&world, request);
        }
}

/* All heads' keys: each head its own top k, whatever the others have. */
static void keys_of_all_heads_give_each_its_own(void **state)
{
    (void)state;
    static const char *const LAYOUTS[] = {"paired", "split"};
    for (uint32_t way = 0; way < 6; way++) { /* with keys of no head, of all, of some beside them */
        char extra[160];
        struct world world;
        (void)snprintf(extra, sizeof(extra),
                       "\"preset\": \"as-h2o-lru\", \"select\": {\"probe_heads\": %" PRIu32
                       "}, \"store\": {\"layout\": \"%s\"}",
                       (uint32_t[]){0, 3, 2}[way / 2], LAYOUTS[way % 2]);
        world_open(&world, extra, 3, 2, 16, SPEC_DTYPE_BF16, 210, 1);
        spec_request request = look(&world, 0);
        for (uint32_t layer = 0; layer < 4; layer++) {
            struct select_call shot = call_make(&world, request, layer, 0);
            if (layer % 2 == 1)
                assert_int_equal(sc_plugin_begin_layer(world.rig.conn, &request, 1, layer, NULL),
                                 SPEC_OK);
            shot.select.given = SPEC_SELECT_BUDGET;
            shot.select.retain_ppm = 200000;
            assert_int_equal(call_fire(&world, &shot), SPEC_OK);
            call_assert_rows(&world, &shot);
            assert_int_equal(shot.item.row_count, 42);
            assert_int_equal(shot.item.result_flags, SPEC_IMPORTANT_FALLBACK);
            struct wanted wanted = reference_sets(&world, &shot, 0, 3);
            for (uint64_t h = 0; h < 3 && wanted.gap >= 1e-5; h++)
                for (uint64_t r = 0; r < 42; r++)
                    assert_true(tops[h][shot.positions[h * 42 + r]]);
            call_free(&shot);
        }
        world_leave(&world, request);
    }
}

/* IMPRESS' Figure 9: 32 heads, a prefix of four tokens of which one is important, by loads: vectors
 * of a head that a layer wants. Keys of all heads and the value of the important token are 160;
 * keys of three probe heads, and key and value of the one that they agree on, 76. */
static void figure_9_wants_76_vectors_where_all_keys_are_160(void **state)
{
    (void)state;
    static const struct {
        const char *preset;
        uint64_t vectors, tags; /* a token's: of K, of V, of its probe keys */
    } WAYS[] = {{"as-h2o-lfu", 160, 2}, {"impress-itf", 76, 3}, {"impress", 76, 3}};
    for (uint32_t way = 0; way < 3; way++)
        for (uint32_t layer = 0; layer < 4; layer++) {
            struct world world;
            char extra[128];
            (void)snprintf(extra, sizeof(extra), "\"preset\": \"%s+range\"", WAYS[way].preset);
            world_open(&world, extra, 32, 1, 16, SPEC_DTYPE_F16, 4, 8);
            spec_request request = look(&world, 0);
            struct select_call shot = call_make(&world, request, layer, 0);
            assert_int_equal(call_fire(&world, &shot), SPEC_OK);
            call_assert_rows(&world, &shot);
            assert_int_equal(shot.item.row_count, 1);
            uint64_t bytes = shot.item.wanted_bytes - WAYS[way].tags * 4 * sizeof(uint64_t);
            assert_int_equal(bytes, WAYS[way].vectors * 16 * 2);
            assert_true(shot.item.read_bytes >= bytes && shot.item.io_ops > 1);
            call_free(&shot);
            world_leave(&world, request);
        }
}

/* Heads that differ, by the selector alone or by the rows: the same sets, but where the selector
 * has all heads' keys the union of the sets is all that is read. Without the selector the layer is.
 * */
static void where_all_heads_are_probes_the_union_is_read(void **state)
{
    (void)state;
    static const struct {
        const char *extra;
        bool by_selector, fails;
    } WAYS[] = {
        {"\"preset\": \"as-h2o-lru\", \"store\": {\"layout\": \"paired\"}", false, false},
        {"\"preset\": \"impress-itf\", \"select\": {\"alpha_milli\": 0}", true, false},
        {"\"preset\": \"as-h2o-lru\", \"select\": {\"probe_heads\": 3}", true, false},
        {"\"preset\": \"as-h2o-lru\", \"select\": {\"probe_heads\": 3}, "
         "\"store\": {\"layout\": \"paired\"}",
         true, false},
        {"\"preset\": \"as-h2o-lru\", \"select\": {\"probe_heads\": 3}, "
         "\"store\": {\"layout\": \"paired\"}",
         false, true},
    };
    uint32_t truth[3 * 30];
    for (uint32_t way = 0; way < sizeof(WAYS) / sizeof(WAYS[0]); way++) {
        struct world world;
        char extra[256];
        (void)snprintf(extra, sizeof(extra),
                       "%s, \"read\": {\"planner\": \"range\", \"gap_bytes\": 1}", WAYS[way].extra);
        world_open(&world, extra, 3, 1, 64, SPEC_DTYPE_F32, 600, 0);
        const struct sc_plugin_stats *stats = &world.rig.conn->stats;
        spec_request request = look(&world, 0);
        rig_pass_ns(&world.rig, 1000000000);
        struct select_call shot = call_make(&world, request, 3, 0);
        shot.select.given = SPEC_SELECT_BUDGET;
        shot.select.retain_ppm = 50000;
        if (WAYS[way].fails)
            sc_fault_arm(&world.rig.conn->fault, SC_FAULT_READ, 0);
        assert_int_equal(call_fire(&world, &shot), SPEC_OK);
        call_assert_rows(&world, &shot);
        assert_int_equal(shot.item.row_count, 30);
        assert_int_equal(shot.item.result_flags, SPEC_IMPORTANT_FALLBACK);
        assert_in_range(shot.item.union_rows, 31, 90);
        uint64_t rows_bytes = shot.item.read_bytes - atomic_load(&stats->selector_read_bytes);
        assert_int_equal(rows_bytes < 600 * world.rig.conn->dims.row_bytes, WAYS[way].by_selector);
        if (way == 0)
            memcpy(truth, shot.positions, sizeof(truth));
        assert_memory_equal(shot.positions, truth, sizeof(truth));
        assert_int_equal(atomic_load(&stats->fallback_layers), 1);
        assert_int_equal(atomic_load(&stats->demanded_rows), shot.item.union_rows);
        call_free(&shot);
        world_leave(&world, request);
    }
}

/* Granules of 16 on the prompt's grid, the last one cut; sums over their tokens. */
static void granules_are_taken_whole(void **state)
{
    (void)state;
    struct world world;
    world_open(&world, "\"preset\": \"impress-itf\", \"select\": {\"unit\": 16}", 1, 2, 16,
               SPEC_DTYPE_F32, 250, 8);
    static double sums[CALL_ROWS_MAX];
    for (uint64_t from = 0; from < 8; from += 7) {
        spec_request request = look(&world, from);
        for (uint32_t layer = 0; layer < 4; layer++) {
            struct select_call shot = call_make(&world, request, layer, from);
            shot.select.given = SPEC_SELECT_BUDGET;
            shot.select.budget = SPEC_BUDGET_COUNT;
            shot.select.count = 70;
            assert_int_equal(call_fire(&world, &shot), SPEC_OK);
            call_assert_rows(&world, &shot);
            assert_int_equal(shot.item.row_count, 70);
            reference_importance(&world, layer, from, 0, true, false, importances[0]);
            memset(sums, 0, sizeof(sums));
            for (uint64_t p = from; p < 250; p++)
                sums[p / 16] += importances[0][p - from];
            for (uint64_t p = from; p < 250; p++)
                importances[0][p - from] = sums[p / 16];
            double gap = 1;
            reference_top(importances[0], NULL, 250 - from, 70, tops[0], &gap);
            for (uint64_t r = 0; r < 70; r++)
                assert_true(tops[0][shot.positions[r] - from]);
            call_free(&shot);
        }
        rig_release(&world.rig, request);
    }
    world_done(&world);
}

/* Any rows: as many as asked, the same for the same prompt and layer, others elsewhere. */
static void random_rows_are_the_same_for_the_same_call(void **state)
{
    (void)state;
    struct world world;
    world_open(&world, "\"preset\": \"impress-itf\"", 2, 1, 8, SPEC_DTYPE_F16, 300, 8);
    struct select_call shots[3];
    static const uint32_t LAYERS[] = {1, 1, 2};
    for (uint32_t i = 0; i < 3; i++) {
        spec_request request = look(&world, 0);
        shots[i] = call_make(&world, request, LAYERS[i], 0);
        shots[i].select.given = SPEC_SELECT_METRIC | SPEC_SELECT_KEEP;
        shots[i].select.metric = SPEC_METRIC_RANDOM;
        shots[i].select.keep_first = 2;
        call_aim(&shots[i]);
        shots[i].item.queries = NULL; /* nothing is scored */
        shots[i].item.new_keys = NULL;
        shots[i].item.position_capacity = 300;
        assert_int_equal(sc_plugin_get_important(world.rig.conn, &shots[i].item, 1, NULL), SPEC_OK);
        call_assert_rows(&world, &shots[i]);
        assert_int_equal(shots[i].item.row_count, 75);
        assert_int_equal(shots[i].positions[1], 1);
        assert_int_equal(shots[i].item.provenance.metric, SPEC_METRIC_RANDOM);
        rig_release(&world.rig, request);
    }
    assert_memory_equal(shots[0].positions, shots[1].positions, 75 * sizeof(uint32_t));
    assert_memory_not_equal(shots[0].positions, shots[2].positions, 75 * sizeof(uint32_t));
    for (uint32_t i = 0; i < 3; i++)
        call_free(&shots[i]);
    world_done(&world);
}

/* Averages of what requests wanted choose without a query; before anything is known, all rows. */
static void averages_choose_without_queries(void **state)
{
    (void)state;
    struct world world;
    world_open(&world, "\"preset\": \"impress-itf\"", 2, 2, 16, SPEC_DTYPE_F16, 200, 8);
    struct select_call scored, stored;
    for (uint32_t known = 0; known < 2; known++) {
        if (known == 1) { /* one request at every layer, by its keys */
            world.rig.extra = "\"preset\": \"impress-itf\"";
            rig_reopen(&world.rig);
            for (uint32_t layer = 0; layer < 4; layer++) {
                call_alone(&world, layer, &scored);
                if (layer < 3)
                    call_free(&scored);
            }
        }
        world.rig.extra = "\"preset\": \"spi\"";
        rig_reopen(&world.rig);
        spec_request request = look(&world, 0);
        stored = call_make(&world, request, 3, 0);
        call_aim(&stored);
        stored.item.queries = NULL;
        assert_int_equal(sc_plugin_get_important(world.rig.conn, &stored.item, 1, NULL), SPEC_OK);
        call_assert_rows(&world, &stored);
        assert_int_equal(stored.item.row_count, known == 1 ? 50 : 200);
        assert_int_equal(stored.item.result_flags, known == 1 ? 0 : SPEC_IMPORTANT_DENSE);
        rig_release(&world.rig, request);
        if (known == 0)
            call_free(&stored);
    }
    uint64_t both = 0; /* codes are steps of .03 %: only rows at the border may differ */
    for (uint64_t a = 0; a < 50; a++)
        for (uint64_t b = 0; b < 50; b++)
            both += scored.positions[a] == stored.positions[b];
    assert_true(both >= 49);
    call_free(&scored);
    call_free(&stored);
    world_done(&world);
}

/* A budget by mass measures averages without those rows, and still chooses them. */
static void averages_by_mass_choose_the_rows_that_are_always_kept(void **state)
{
    (void)state;
    struct world world;
    struct select_call shot;
    world_open(&world, "\"preset\": \"impress-itf\"", 2, 2, 16, SPEC_DTYPE_F16, 200, 8);
    for (uint32_t layer = 0; layer < 4; layer++) {
        call_alone(&world, layer, &shot);
        call_free(&shot);
    }
    world.rig.extra = "\"preset\": \"spi\", \"select\": {\"budget\": \"mass\", "
                      "\"mass_ppm\": 300000, \"keep_first\": 5, \"keep_last\": 3}";
    rig_reopen(&world.rig);
    spec_request request = look(&world, 0);
    shot = call_make(&world, request, 3, 0);
    call_aim(&shot);
    shot.item.queries = NULL;
    assert_int_equal(sc_plugin_get_important(world.rig.conn, &shot.item, 1, NULL), SPEC_OK);
    assert_in_range(shot.item.row_count, 9, 49);
    for (uint64_t i = 0; i < 5; i++)
        assert_int_equal(shot.positions[i], i);
    for (uint64_t i = 0; i < 3; i++)
        assert_int_equal(shot.positions[shot.item.row_count - 1 - i], 199 - i);
    call_free(&shot);
    world_leave(&world, request);
}

/* A second pass asks with other queries, of a layer that one set or one a head stands for: it gets
 * other rows, and with the first one's queries those of the first. */
static void each_pass_chooses_anew(void **state)
{
    (void)state;
    for (uint32_t way = 0; way < 2; way++) {
        struct world world;
        world_open(&world, "\"preset\": \"impress-itf\"", 2, 2, 16, SPEC_DTYPE_F16, 200,
                   way == 0 ? 8 : 0);
        uint32_t flags = way == 0 ? 0 : SPEC_IMPORTANT_FALLBACK;
        struct select_call shots[3];
        spec_request request = look(&world, 0);
        for (uint32_t pass = 0; pass < 3; pass++) {
            shots[pass] = call_make(&world, request, 1, 0);
            shots[pass].pass.q.row_count = pass == 1 ? 1 : FRESH_ROWS; /* another query */
            assert_int_equal(call_fire(&world, &shots[pass]), SPEC_OK);
            assert_int_equal(shots[pass].item.result_flags, flags);
            assert_int_equal(shots[pass].item.row_count, 50);
            call_assert_rows(&world, &shots[pass]);
        }
        rig_release(&world.rig, request);
        uint64_t bytes = 50 * (flags != 0 ? 2 : 1) * sizeof(uint32_t);
        assert_memory_not_equal(shots[0].positions, shots[1].positions, bytes);
        assert_memory_equal(shots[0].positions, shots[2].positions, bytes);
        for (uint32_t pass = 0; pass < 3; pass++)
            call_free(&shots[pass]);
        world_done(&world);
    }
}

/* ---- Where there is nothing to choose by ---------------------------------------------------- */

static void assert_all_rows(const struct world *world, const struct select_call *shot,
                            uint32_t flags)
{
    assert_int_equal(shot->item.row_count, world->matched);
    assert_int_equal(shot->item.result_flags, flags);
    assert_int_equal(shot->item.provenance.kind, SPEC_PROVENANCE_EXACT);
    for (uint64_t j = 0; j < world->matched; j++)
        assert_int_equal(shot->positions[j], j);
    call_assert_rows(world, shot);
}

static void all_rows_are_not_looked_at(void **state)
{
    (void)state;
    struct world world;
    world_open(&world, "\"preset\": \"impress-itf\", \"select\": {\"dense_layers\": 1}", 2, 1, 8,
               SPEC_DTYPE_F16, 150, 3);
    spec_request request = look(&world, 0);
    for (uint32_t layer = 0; layer < 4; layer++) {
        struct select_call shot = call_make(&world, request, layer, 0);
        shot.select.given = layer == 0 ? 0 : SPEC_SELECT_BUDGET;
        shot.select.retain_ppm = 1000000;
        call_aim(&shot);
        shot.item.queries = NULL;
        assert_int_equal(sc_plugin_get_important(world.rig.conn, &shot.item, 1, NULL), SPEC_OK);
        assert_all_rows(&world, &shot, 0);
        assert_int_equal(shot.item.probe_ns, 0);
        call_free(&shot);
    }
    assert_int_equal(atomic_load(&world.rig.conn->stats.selector_read_bytes), 0);
    assert_int_equal(atomic_load(&world.rig.conn->stats.dense_layers), 0);
    world_leave(&world, request);
}

/* A match of 200 rows and 5 tokens behind it, whole or chosen as configured: the same at every
 * layer, and with no look at a selector. An item's own budget rules. */
static void a_short_match_is_whole_unless_an_item_has_a_budget(void **state)
{
    (void)state;
    static const struct {
        uint32_t min_tokens, min_share_ppm;
        uint64_t from;
        bool is_whole;
    } CASES[] = {{0, 0, 0, false},       {200, 0, 0, false},   {201, 0, 0, true},
                 {0, 975609, 0, false},  {0, 975610, 0, true}, {0, 1000000, 0, true},
                 {100, 0, 101, true},    {100, 0, 100, false}, {0, 500000, 196, true},
                 {0, 500000, 195, false}};
    for (uint32_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        struct world world;
        char extra[160];
        (void)snprintf(extra, sizeof(extra),
                       "\"preset\": \"impress-itf\", \"select\": {\"min_tokens\": %" PRIu32
                       ", \"min_share_ppm\": %" PRIu32 "}",
                       CASES[i].min_tokens, CASES[i].min_share_ppm);
        world_open(&world, extra, 2, 1, 8, SPEC_DTYPE_F16, 200, 8);
        spec_request request = look(&world, CASES[i].from);
        uint64_t rows = 200 - CASES[i].from, quarter = (rows + 3) / 4;
        for (uint32_t layer = 0; layer < 4; layer++) {
            struct select_call shot = call_make(&world, request, layer, CASES[i].from);
            assert_int_equal(sc_plugin_begin_layer(world.rig.conn, &request, 1, layer, NULL),
                             SPEC_OK);
            call_aim(&shot);
            if (CASES[i].is_whole)
                shot.item.queries = NULL;
            assert_int_equal(sc_plugin_get_important(world.rig.conn, &shot.item, 1, NULL), SPEC_OK);
            assert_int_equal(shot.item.row_count, CASES[i].is_whole ? rows : quarter);
            assert_int_equal(shot.item.result_flags, CASES[i].is_whole ? SPEC_IMPORTANT_DENSE : 0);
            assert_int_equal(shot.item.provenance.kind,
                             CASES[i].is_whole ? SPEC_PROVENANCE_EXACT : SPEC_PROVENANCE_PRUNED);
            call_assert_rows(&world, &shot);
            call_free(&shot);
        }
        struct sc_plugin_stats *stats = &world.rig.conn->stats;
        assert_int_equal(atomic_load(&stats->dense_layers), CASES[i].is_whole ? 4 : 0);
        assert_int_equal(atomic_load(&stats->selector_read_bytes) == 0, CASES[i].is_whole);
        struct select_call own = call_make(&world, request, 1, CASES[i].from);
        own.select.given = SPEC_SELECT_BUDGET;
        own.select.retain_ppm = 250000;
        assert_int_equal(call_fire(&world, &own), SPEC_OK);
        assert_int_equal(own.item.row_count, quarter);
        call_assert_rows(&world, &own);
        call_free(&own);
        world_leave(&world, request);
    }
}

/* With queries of the probe heads, or a slot that is not there, sets a head cannot be given. */
static void what_cannot_part_is_dense(void **state)
{
    (void)state;
    for (int64_t agree = 0; agree <= 8; agree += 8)
        for (uint32_t way = 0; way < 2; way++) {
            struct world world;
            world_open(&world, "\"preset\": \"impress-itf\"", 4, 1, 16, SPEC_DTYPE_F16, 200, agree);
            spec_request request = look(&world, 0);
            struct select_call shot = call_make(&world, request, 2, 0);
            int64_t slots[200];
            for (int64_t j = 0; j < 200; j++)
                slots[j] = j == 40 ? -1 : j;
            if (way == 0) {
                shot.pass.q.heads = SPEC_QUERIES_PROBE;
                shot.pass.q.byte_count -= 16 * 2; /* the last head of the last row is not there */
                shot.item.position_capacity = 200;
            } else {
                shot.area.memory.slots = slots;
                shot.area.memory.slot_count = 200;
            }
            assert_int_equal(call_fire(&world, &shot), SPEC_OK);
            assert_int_equal(shot.item.result_flags, agree == 8 ? 0 : SPEC_IMPORTANT_DENSE);
            assert_int_equal(shot.item.row_count, agree == 8 ? 50 : 200);
            if (way == 0)
                call_assert_rows(&world, &shot);
            else
                assert_true(rig_is_poison((uint8_t *)shot.area.memory.k_base + 40 * 128, 128));
            assert_int_equal(atomic_load(&world.rig.conn->stats.dense_layers), agree != 8);
            call_free(&shot);
            world_leave(&world, request);
        }
}

/* One KV head, never alike enough: its rows move down in place, but not over a slot that is not
 * there. */
static void one_head_alone_parts_too(void **state)
{
    (void)state;
    struct world world;
    world_open(&world, "\"preset\": \"impress-itf\", \"select\": {\"alpha_milli\": 0}", 1, 2, 16,
               SPEC_DTYPE_F16, 120, 8);
    spec_request request = look(&world, 0);
    int64_t slots[120];
    for (int64_t j = 0; j < 120; j++)
        slots[j] = j == 7 ? INT64_MIN : j;
    for (uint32_t way = 0; way < 2; way++) {
        struct select_call shot = call_make(&world, request, 1, 0);
        shot.area.memory.slots = way == 1 ? slots : NULL;
        shot.area.memory.slot_count = way == 1 ? 120 : 0;
        assert_int_equal(call_fire(&world, &shot), SPEC_OK);
        assert_int_equal(shot.item.result_flags,
                         way == 1 ? SPEC_IMPORTANT_DENSE : SPEC_IMPORTANT_FALLBACK);
        assert_int_equal(shot.item.row_count, way == 1 ? 120 : 30);
        if (way == 0)
            call_assert_rows(&world, &shot);
        else
            assert_true(rig_is_poison((uint8_t *)shot.area.memory.k_base + 7 * 32, 32));
        call_free(&shot);
    }
    world_leave(&world, request);
}

/* A selector that cannot be read, had, or paid for: all rows, and the match stands. */
static void without_selector_keys_a_layer_is_dense(void **state)
{
    (void)state;
    static const char *const EXTRAS[] = {
        "\"preset\": \"impress-itf\"",
        "\"preset\": \"impress-itf\", \"select\": {\"selector_bytes\": 0}",
        "\"preset\": \"as-like\"",
        "\"preset\": \"impress-itf\", \"select\": {\"probe_heads\": 0}",
    };
    for (uint32_t way = 0; way < 4; way++) {
        struct world world;
        world_open(&world, EXTRAS[way], 2, 1, 8, SPEC_DTYPE_F16, 150, 8);
        spec_request request = look(&world, 0);
        rig_pass_ns(&world.rig, 1000000000); /* what lookup began is there */
        struct select_call shot = call_make(&world, request, 3, 0);
        shot.select = SELECTS[0];
        shot.select.struct_size = sizeof(shot.select);
        if (way == 0)
            sc_fault_arm(&world.rig.conn->fault, SC_FAULT_READ, 0);
        assert_int_equal(call_fire(&world, &shot), SPEC_OK);
        assert_all_rows(&world, &shot, SPEC_IMPORTANT_DENSE);
        call_free(&shot);
        world_leave(&world, request);
    }
}

/* Rows that were stored without probes, met by a configuration that probes. */
static void rows_without_probes_are_dense(void **state)
{
    (void)state;
    struct world world;
    world_open(&world, "\"preset\": \"as-like\", \"store\": {\"layout\": \"split\"}", 2, 1, 8,
               SPEC_DTYPE_F16, 150, 8);
    world.rig.extra = "\"preset\": \"impress-itf\"";
    rig_reopen(&world.rig);
    spec_request request = look(&world, 0);
    for (uint32_t layer = 0; layer < 4; layer++) {
        struct select_call shot = call_make(&world, request, layer, 0);
        assert_int_equal(sc_plugin_begin_layer(world.rig.conn, &request, 1, layer, NULL), SPEC_OK);
        assert_int_equal(call_fire(&world, &shot), SPEC_OK);
        assert_all_rows(&world, &shot, SPEC_IMPORTANT_DENSE);
        call_free(&shot);
    }
    world_leave(&world, request);
}

/* Rows of the other layout are another namespace's. */
static void the_other_layout_is_not_found(void **state)
{
    (void)state;
    struct world world;
    world_open(&world, "\"preset\": \"impress-itf\"", 2, 1, 8, SPEC_DTYPE_F16, 150, 8);
    world.rig.extra = "\"preset\": \"impress-itf\", \"store\": {\"layout\": \"paired\"}";
    rig_reopen(&world.rig);
    world_store(&world); /* asserts that nothing is found */
    spec_request request = look(&world, 0);
    struct select_call shot = call_make(&world, request, 1, 0);
    assert_int_equal(call_fire(&world, &shot), SPEC_OK);
    assert_int_equal(shot.item.row_count, 38);
    call_assert_rows(&world, &shot);
    call_free(&shot);
    world_leave(&world, request);
}

/* ---- Arrays, order, threads, memory --------------------------------------------------------- */

static void assert_same(const struct select_call *a, const struct select_call *b)
{
    assert_int_equal(a->item.row_count, b->item.row_count);
    assert_int_equal(a->item.result_flags, b->item.result_flags);
    bool parted = (a->item.result_flags & SPEC_IMPORTANT_FALLBACK) != 0;
    assert_memory_equal(a->positions, b->positions,
                        a->item.row_count * (parted ? 2 : 1) * sizeof(uint32_t));
}

/* Any items of three requests in one call, also several of one request, whole ones between them. */
static void items_do_not_change_each_other(void **state)
{
    (void)state;
    struct world world;
    world_open(&world, "\"preset\": \"impress-itf+range\"", 2, 2, 16, SPEC_DTYPE_F16, 260, 6);
    struct select_call truth[4], shots[8];
    struct spec_important items[8];
    spec_request requests[3];
    for (uint32_t layer = 0; layer < 4; layer++)
        call_alone(&world, layer, &truth[layer]);
    for (uint32_t r = 0; r < 3; r++)
        requests[r] = look(&world, 0);
    uint64_t random = 5;
    for (uint32_t round = 0; round < 60; round++) {
        random = rig_mix(random);
        uint64_t count = 1 + random % 8;
        if (random >> 8 & 1)
            assert_int_equal(sc_plugin_begin_layer(world.rig.conn, requests, 3,
                                                   (uint32_t)(random >> 9) % 4, NULL),
                             SPEC_OK);
        if (random >> 12 & 1)
            assert_int_equal(sc_plugin_prefetch_next(world.rig.conn, requests[random % 3],
                                                     (uint32_t)(random >> 13) % 4, NULL, NULL),
                             SPEC_OK);
        for (uint64_t i = 0; i < count; i++) {
            random = rig_mix(random);
            shots[i] = call_make(&world, requests[random % 3], (uint32_t)(random >> 8) % 4, 0);
            shots[i].select.given = random >> 16 & 1 ? SPEC_SELECT_BUDGET : 0;
            shots[i].select.retain_ppm = 1000000;
            call_aim(&shots[i]);
            items[i] = shots[i].item;
        }
        assert_int_equal(sc_plugin_get_important(world.rig.conn, items, count, NULL), SPEC_OK);
        for (uint64_t i = 0; i < count; i++) {
            shots[i].item = items[i];
            if (shots[i].select.given)
                assert_all_rows(&world, &shots[i], 0);
            else
                assert_same(&shots[i], &truth[items[i].layer]);
            call_assert_rows(&world, &shots[i]);
            call_free(&shots[i]);
        }
    }
    for (uint32_t i = 0; i < 4; i++)
        call_free(&truth[i]);
    for (uint32_t r = 0; r < 3; r++)
        rig_release(&world.rig, requests[r]);
    world_done(&world);
}

/* A guess decides what is read ahead, never what comes. */
static void a_prediction_changes_nothing_but_reads(void **state)
{
    (void)state;
    struct world world;
    world_open(&world, "\"preset\": \"spec-itf+range\"", 2, 2, 16, SPEC_DTYPE_F16, 260, 8);
    struct select_call truth;
    call_alone(&world, 2, &truth);
    assert_int_equal(truth.item.row_count, 65);
    for (uint32_t way = 0; way < 5; way++) {
        spec_request handle = look(&world, 0);
        struct sc_plugin_request *request = sc_plugin_request_find(world.rig.conn, handle);
        uint32_t *rows = sc_plugin_prefetch_rows(request, 2);
        assert_non_null(rows);
        uint64_t count = 0, covered = 0;
        bool right[260] = {false};
        for (uint64_t r = 0; r < 65; r++)
            right[truth.positions[r]] = true;
        for (uint64_t j = 260; j-- > 0;) { /* descending: the order is the guesser's */
            bool take = way == 0   ? right[j]
                        : way == 1 ? !right[j]
                        : way == 2 ? j % 2 == 0
                        : way == 3 ? true
                                   : j == 7;
            if (take)
                rows[count++] = (uint32_t)j;
            covered += take && right[j];
        }
        sc_plugin_prefetch_begin(world.rig.conn, request, 2, count, count);
        assert_null(sc_plugin_prefetch_rows(request, 2));
        rig_pass_ns(&world.rig, 1000000000); /* all of it is there */
        struct select_call shot = call_make(&world, handle, 2, 0);
        assert_int_equal(call_fire(&world, &shot), SPEC_OK);
        assert_same(&shot, &truth);
        call_assert_rows(&world, &shot);
        assert_int_equal(shot.item.prefetched_rows, covered);
        if (way == 0)
            assert_true(shot.item.unused_bytes < shot.item.read_bytes);
        if (way == 1)
            assert_true(shot.item.unused_bytes > 0);
        call_free(&shot);
        rig_release(&world.rig, handle);
    }
    call_free(&truth);
    world_done(&world);
}

static void calls_allocate_nothing(void **state)
{
    (void)state;
    struct world world;
    world_open(&world, "\"preset\": \"impress-itf\"", 2, 2, 16, SPEC_DTYPE_F16, 260, 4);
    struct sc_alloc *alloc = &world.rig.conn->alloc;
    for (uint32_t round = 0; round < 4; round++) {
        rig_background(&world.rig);
        if (round == 1) /* the first averages make their place in the store's index */
            sc_alloc_seal(alloc);
        spec_request request = look(&world, 0);
        for (uint32_t layer = 0; layer < 4; layer++) {
            struct select_call shot = call_make(&world, request, layer, 0);
            assert_int_equal(sc_plugin_begin_layer(world.rig.conn, &request, 1, layer, NULL),
                             SPEC_OK);
            assert_int_equal(call_fire(&world, &shot), SPEC_OK);
            call_assert_rows(&world, &shot);
            assert_int_equal(sc_plugin_prefetch_next(world.rig.conn, request, layer, NULL, NULL),
                             SPEC_OK);
            call_free(&shot);
        }
        rig_release(&world.rig, request);
    }
    sc_alloc_unseal(alloc);
    assert_int_equal(atomic_load(&alloc->sealed_refusals), 0);
    world_done(&world);
}

struct worker {
    struct world *world;
    const struct select_call *truth;
    uint64_t number;
};

static void *work(void *user)
{
    struct worker *worker = user;
    struct world *world = worker->world;
    for (uint32_t round = 0; round < 8; round++) {
        spec_request request = look(world, 0);
        for (uint32_t layer = 0; layer < 4; layer++) {
            struct select_call shot = call_make(world, request, layer, 0);
            if ((worker->number + round) % 2 == 0)
                (void)sc_plugin_begin_layer(world->rig.conn, &request, 1, layer, NULL);
            assert_int_equal(call_fire(world, &shot), SPEC_OK);
            assert_same(&shot, &worker->truth[layer]);
            call_assert_rows(world, &shot);
            call_free(&shot);
        }
        rig_release(&world->rig, request);
    }
    return NULL;
}

static void threads_get_the_same_sets(void **state)
{
    (void)state;
    struct world world = {.matched = 150, .group = 2, .agree = 6};
    world_make(&world, false, "\"preset\": \"impress-itf+range\", \"max_requests\": 6", 4, 2, 16,
               1);
    world_open_stored(&world);
    struct select_call truth[4];
    struct worker workers[6];
    for (uint32_t layer = 0; layer < 4; layer++)
        call_alone(&world, layer, &truth[layer]);
    for (uint64_t i = 0; i < 6; i++)
        workers[i] = (struct worker){.world = &world, .truth = truth, .number = i};
    threads_run(work, workers, sizeof(workers[0]), 6);
    for (uint32_t i = 0; i < 4; i++)
        call_free(&truth[i]);
    world_done(&world);
}

/* ---- Failures ------------------------------------------------------------------------------- */

static void a_deadline_leaves_the_request_usable(void **state)
{
    (void)state;
    for (int64_t agree = 0; agree <= 8; agree += 8) {
        struct world world;
        world_open(&world, "\"preset\": \"impress-itf\", \"sim\": {\"op_ns\": 1000000000}", 4, 1,
                   16, SPEC_DTYPE_F16, 200, agree);
        spec_request request = look(&world, 0);
        struct select_call shot = call_make(&world, request, 3, 0);
        static const uint64_t WITHIN_NS[] = {1000000, 1500000000, 0}; /* selector, rows, none */
        for (uint32_t i = 0; i < 3; i++) {
            shot.item.deadline_ns = WITHIN_NS[i];
            assert_int_equal(call_fire(&world, &shot), i < 2 ? SPEC_E_TIMEOUT : SPEC_OK);
            assert_int_equal(shot.item.status, i < 2 ? SPEC_E_TIMEOUT : SPEC_OK);
            if (i == 0) { /* the next try begins the selector anew */
                rig_release(&world.rig, request);
                request = look(&world, 0);
                shot.item.request = request;
            }
        }
        call_assert_rows(&world, &shot);
        assert_int_equal(shot.item.row_count, 50);
        call_free(&shot);
        world_leave(&world, request);
    }
}

/* The selector is read, a chosen row is not: the match is void, as in a whole load. */
static void a_chosen_row_that_fails_voids_the_match(void **state)
{
    (void)state;
    struct world world;
    world_open(&world, "\"preset\": \"impress-itf\"", 2, 1, 16, SPEC_DTYPE_F16, 200, 8);
    spec_request request = look(&world, 0), beside = look(&world, 0);
    rig_pass_ns(&world.rig, 1000000000);
    struct select_call shot = call_make(&world, request, 0, 0); /* its selector is there */
    sc_fault_arm(&world.rig.conn->fault, SC_FAULT_READ, 0);
    assert_int_equal(call_fire(&world, &shot), SPEC_E_IO);
    assert_true(shot.item.failed_position < 200);
    assert_int_equal(shot.item.row_count, 0);
    shot.item.layer = 1;
    assert_int_equal(call_fire(&world, &shot), SPEC_E_IO);
    rig_release(&world.rig, request);
    struct spec_lookup_result result = rig_lookup(&world.rig, &world.prompt);
    assert_int_equal(result.matched_tokens, shot.item.failed_position);
    rig_release(&world.rig, result.request);
    rig_release(&world.rig, beside);
    call_free(&shot);
    world_done(&world);
}

/* One wrong thing; returns what is answered. */
static spec_status spoil(struct select_call *shot, uint32_t wrong)
{
    struct spec_memory *fresh = &shot->pass.fresh.memory;
    struct spec_queries *q = &shot->pass.q;
    struct spec_select *select = &shot->select;
    if (wrong == 0)
        shot->item.queries = NULL;
    q->data = wrong == 1 ? NULL : q->data;
    q->row_count = wrong == 2 ? 0 : q->row_count;
    q->dtype = wrong == 3 ? 9 : q->dtype;
    q->heads = wrong == 4 ? 2 : q->heads;
    q->byte_count -= wrong == 5;
    q->row_stride_bytes = wrong == 6 ? UINT64_MAX - 1 : q->row_stride_bytes;
    q->head_stride_bytes += wrong == 7;
    q->first_position -= wrong == 8;
    q->first_position = wrong == 9 ? UINT64_MAX - 1 : q->first_position;
    q->device = wrong == 10 ? SPEC_DEVICE_CUDA : q->device;
    fresh->k_bytes -= wrong == 11;
    fresh->k_base = wrong == 12 ? NULL : fresh->k_base;
    fresh->dtype = wrong == 13 ? 0 : fresh->dtype;
    q->first_position += wrong == 14; /* one key more is needed than there is */
    select->given = wrong == 15   ? 16
                    : wrong == 16 ? SPEC_SELECT_BUDGET
                    : wrong == 17 ? SPEC_SELECT_METRIC
                                  : 0;
    select->retain_ppm = wrong == 16 ? 1000001 : 0;
    select->metric = wrong == 17 ? 3 : 0;
    shot->item.position_capacity = wrong == 18 ? 2 * 150 - 1 : shot->item.position_capacity;
    select->struct_size = wrong == 19 ? 4 : select->struct_size;
    return wrong == 10 ? SPEC_E_UNSUPPORTED : SPEC_E_INVALID;
}

/* Everything that a host can get wrong is one clear error, and changes nothing. */
static void wrong_arguments_are_refused(void **state)
{
    (void)state;
    struct world world;
    world_open(&world, "\"preset\": \"impress-itf\"", 2, 2, 8, SPEC_DTYPE_F16, 150, 8);
    spec_request request = look(&world, 0);
    for (uint32_t wrong = 0; wrong < 20; wrong++) {
        struct select_call shot = call_make(&world, request, 1, 0);
        call_aim(&shot);
        spec_status status = spoil(&shot, wrong);
        struct spec_error error = {.struct_size = sizeof(error)};
        assert_int_equal(sc_plugin_get_important(world.rig.conn, &shot.item, 1, &error), status);
        assert_int_equal(strncmp(error.text, "get_important: ", 15), 0);
        assert_true(rig_is_poison(shot.area.memory.k_base, 150 * 32));
        call_free(&shot);
    }
    struct select_call shot = call_make(&world, request, 1, 0);
    assert_int_equal(call_fire(&world, &shot), SPEC_OK);
    call_assert_rows(&world, &shot);
    call_free(&shot);
    world_leave(&world, request);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sets_are_those_of_the_definition),
        cmocka_unit_test(queries_behind_the_limit_choose),
        cmocka_unit_test(a_cut_prompt_is_as_long_as_it_was),
        cmocka_unit_test(alpha_decides_who_parts),
        cmocka_unit_test(keys_of_all_heads_give_each_its_own),
        cmocka_unit_test(figure_9_wants_76_vectors_where_all_keys_are_160),
        cmocka_unit_test(where_all_heads_are_probes_the_union_is_read),
        cmocka_unit_test(granules_are_taken_whole),
        cmocka_unit_test(random_rows_are_the_same_for_the_same_call),
        cmocka_unit_test(averages_choose_without_queries),
        cmocka_unit_test(averages_by_mass_choose_the_rows_that_are_always_kept),
        cmocka_unit_test(each_pass_chooses_anew),
        cmocka_unit_test(all_rows_are_not_looked_at),
        cmocka_unit_test(a_short_match_is_whole_unless_an_item_has_a_budget),
        cmocka_unit_test(what_cannot_part_is_dense),
        cmocka_unit_test(one_head_alone_parts_too),
        cmocka_unit_test(without_selector_keys_a_layer_is_dense),
        cmocka_unit_test(rows_without_probes_are_dense),
        cmocka_unit_test(the_other_layout_is_not_found),
        cmocka_unit_test(items_do_not_change_each_other),
        cmocka_unit_test(a_prediction_changes_nothing_but_reads),
        cmocka_unit_test(calls_allocate_nothing),
        cmocka_unit_test(threads_get_the_same_sets),
        cmocka_unit_test(a_deadline_leaves_the_request_usable),
        cmocka_unit_test(a_chosen_row_that_fails_voids_the_match),
        cmocka_unit_test(wrong_arguments_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
