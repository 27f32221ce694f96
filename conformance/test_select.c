/* test_select: rows chosen by importance: ABI-061 .. ABI-069, ABI-072, ABI-140, ABI-207,
 * ABI-226, ABI-227.
 *
 * Threads, Tests: see choice.h. */
#include "conformance/choice.h"
#include "conformance/suite.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define COMPUTE_US 3000
#define MATCHED    170u
#define ALIKE      7u /* of 8 parts: the heads' sets agree by more than the threshold */
#define APART      0u

static const struct shape NARROW = {3, 1, 16, SPEC_DTYPE_F16};
static const struct shape FOUR = {3, 4, 16, SPEC_DTYPE_F16};

/* At least this part of the answers must have been compared set by set: a check that is never sure
 * would be none. */
static void expect_sure(const struct scene *scene)
{
    if (scene->asked > 0 && scene->sure * 2 < scene->asked)
        fail_msg("only %u of %u sets were sure enough to be compared", (unsigned)scene->sure,
                 (unsigned)scene->asked);
}

static struct scene open_scene(struct fixture *fx, struct shape shape, uint32_t agree,
                               uint64_t seed)
{
    uint32_t probes = shape.heads < 3 ? shape.heads : 3;
    fixture_shape(fx, shape);
    scene_configure(fx, probes, "", "");
    return scene_open(fx, shape, probes, agree, seed, MATCHED);
}

/* One answer to each ask, layer by layer, through one request. */
static void ask_all(struct scene *scene, struct ask ask)
{
    for (ask.layer = 0; ask.layer < scene->fx->shape.layers; ask.layer++)
        (void)scene_ask(scene, &ask);
}

/* ---- 061 ---- */

static void abi_061_rows_of_a_ratio_are_the_most_important_ones_in_every_dtype(void **state)
{
    struct fixture *fx = *state;
    static const uint32_t DTYPES[] = {SPEC_DTYPE_F32, SPEC_DTYPE_F16, SPEC_DTYPE_BF16};
    static const uint32_t AGREES[] = {8, ALIKE, 4, APART};
    static const uint32_t RATIOS[] = {1, 60000, 250000, 500000, 999999};
    for (uint32_t d = 0; d < 3; d++)
        for (uint32_t a = 0; a < 4; a++) {
            struct scene scene =
                open_scene(fx, (struct shape){2, 4, 16, DTYPES[d]}, AGREES[a], 200 + d * 4 + a);
            for (uint32_t r = 0; r < 5; r++)
                ask_all(&scene, ask_ratio(0, RATIOS[r]));
            expect_sure(&scene);
            scene_close(&scene);
        }
}

static void abi_061_metrics_are_the_sum_over_rows_the_last_row_or_none(void **state)
{
    struct fixture *fx = *state;
    for (uint32_t agree = 0; agree <= 8; agree += 4) {
        struct scene scene = open_scene(fx, FOUR, agree, 220 + agree);
        for (uint32_t metric = SPEC_METRIC_H2O; metric <= SPEC_METRIC_RANDOM; metric++) {
            struct ask ask = ask_ratio(0, 200000);
            ask.select.given |= SPEC_SELECT_METRIC;
            ask.select.metric = metric;
            ask.lacks_queries = metric == SPEC_METRIC_RANDOM;
            ask_all(&scene, ask);
        }
        expect_sure(&scene);
        scene_close(&scene);
    }
}

static void abi_061_scores_run_over_new_keys_up_to_each_row_or_over_the_prefix_alone(void **state)
{
    struct fixture *fx = *state;
    struct scene scene = open_scene(fx, NARROW, 8, 230);
    for (uint64_t first = 0; first < FRESH; first++)
        for (uint64_t rows = 1; first + rows <= FRESH; rows++) {
            struct ask ask = ask_ratio(0, 250000);
            ask.first = first; /* a later pass of a long prompt begins behind the match */
            ask.rows = rows;
            ask.layer = (uint32_t)(first % 3);
            (void)scene_ask(&scene, &ask);
            ask.lacks_new_keys = true;
            (void)scene_ask(&scene, &ask);
        }
    expect_sure(&scene);
    scene_close(&scene);
}

static void abi_061_budgets_are_a_ratio_a_count_or_a_mass(void **state)
{
    struct fixture *fx = *state;
    struct scene scene = open_scene(fx, NARROW, 8, 231);
    static const uint64_t COUNTS[] = {0, 1, 2, 50, MATCHED - 1, MATCHED, MATCHED + 1, UINT64_MAX};
    for (uint32_t i = 0; i < 8; i++) {
        struct ask ask = ask_ratio(1, 0);
        ask.select.budget = SPEC_BUDGET_COUNT;
        ask.select.count = COUNTS[i];
        (void)scene_ask(&scene, &ask);
    }
    for (uint32_t ppm = 0; ppm <= 1000000; ppm += 100000) {
        struct ask ask = ask_ratio(2, ppm < 600000 ? 1000000 : 300000);
        ask.select.budget = SPEC_BUDGET_MASS;
        ask.select.mass_ppm = ppm;
        (void)scene_ask(&scene, &ask);
        ask_all(&scene, ask_ratio(0, ppm));
    }
    expect_sure(&scene);
    scene_close(&scene);
}

static void abi_061_rows_that_are_kept_always_count_within_the_budget(void **state)
{
    struct fixture *fx = *state;
    for (uint32_t agree = 0; agree <= 8; agree += 8) {
        struct scene scene = open_scene(fx, FOUR, agree, 240 + agree);
        static const uint32_t KEEPS[][2] = {{4, 0}, {0, 8}, {4, 16}, {30, 30}, {200, 0}};
        for (uint32_t i = 0; i < 5; i++) {
            struct ask ask = ask_ratio(0, 250000); /* 43 rows */
            ask.select.given |= SPEC_SELECT_KEEP;
            ask.select.keep_first = KEEPS[i][0];
            ask.select.keep_last = KEEPS[i][1];
            ask_all(&scene, ask);
            ask.from = 3;
            (void)scene_ask(&scene, &ask);
        }
        expect_sure(&scene);
        scene_close(&scene);
    }
}

/* ---- 062, 063 ---- */

static void abi_062_positions_ascend_wherever_the_loaded_rows_begin(void **state)
{
    struct fixture *fx = *state;
    for (uint32_t agree = 0; agree <= 8; agree += 8) {
        struct scene scene = open_scene(fx, FOUR, agree, 250 + agree);
        static const uint64_t FROM[] = {0, 1, 63, 64, 65, 100, MATCHED - 2, MATCHED - 1};
        for (uint32_t i = 0; i < 8; i++) {
            struct ask ask = ask_ratio(i % 3, 300000);
            ask.from = FROM[i];
            (void)scene_ask(&scene, &ask);
        }
        expect_sure(&scene);
        scene_close(&scene);
    }
}

/* Queries of zeros: every row is as important as every other, in any arithmetic. */
static void abi_063_ties_go_to_the_lower_position(void **state)
{
    struct fixture *fx = *state;
    static const uint32_t RATIOS[] = {1, 100000, 250000, 900000};
    for (uint32_t heads = 1; heads <= 4; heads += 3) {
        struct scene scene =
            open_scene(fx, (struct shape){2, heads, 16, SPEC_DTYPE_F16}, APART, 260);
        scene.is_still = true;
        for (uint32_t r = 0; r < 4; r++) {
            ask_all(&scene, ask_ratio(0, RATIOS[r]));
            struct ask ask = ask_ratio(1, RATIOS[r]);
            ask.from = 33;
            (void)scene_ask(&scene, &ask);
            ask.select.given |= SPEC_SELECT_KEEP; /* the last ones, then the lowest */
            ask.select.keep_last = 2;
            (void)scene_ask(&scene, &ask);
        }
        assert_int_equal(scene.sure, scene.asked);
        scene_close(&scene);
    }
}

/* ---- 064, 065, 066 ---- */

static void abi_064_probes_that_agree_give_one_voted_set_for_all_heads(void **state)
{
    struct fixture *fx = *state;
    struct scene scene = open_scene(fx, FOUR, ALIKE, 270);
    uint32_t parted = 0;
    for (uint32_t ppm = 50000; ppm < 1000000; ppm += 50000) {
        struct ask ask = ask_ratio(ppm / 50000 % 3, ppm);
        parted += (scene_ask(&scene, &ask) & SPEC_IMPORTANT_FALLBACK) != 0;
        ask.heads = SPEC_QUERIES_PROBE; /* those of the other heads are not looked at */
        ask.may_be_dense = true;
        (void)scene_ask(&scene, &ask);
    }
    assert_true(parted <= 4); /* the verdict of each was compared; this is the scene's own */
    expect_sure(&scene);
    scene_close(&scene);
}

static void abi_065_probes_that_differ_give_each_head_its_own_rows(void **state)
{
    struct fixture *fx = *state;
    for (uint32_t heads = 2; heads <= 5; heads++) {
        struct scene scene =
            open_scene(fx, (struct shape){2, heads, 16, SPEC_DTYPE_BF16}, APART, 280 + heads);
        uint32_t parted = 0, asked = 0;
        for (uint32_t ppm = 100000; ppm <= 700000; ppm += 150000)
            for (uint32_t layer = 0; layer < 2; layer++, asked++) {
                struct ask ask = ask_ratio(layer, ppm);
                parted += (scene_ask(&scene, &ask) & SPEC_IMPORTANT_FALLBACK) != 0;
            }
        if (conf_options.require_hits)
            assert_true(conf_options.one_set ? parted == 0 : parted * 2 > asked);
        expect_sure(&scene);
        scene_close(&scene);
    }
}

static void abi_065_rows_per_head_lie_where_any_memory_says(void **state)
{
    struct fixture *fx = *state;
    struct scene scene = open_scene(fx, FOUR, APART, 286);
    for (enum layout layout = 0; layout < LAYOUTS; layout++) {
        struct ask ask = ask_ratio(layout % 3, 250000);
        struct spec_lookup_result found = scene_find(&scene, 0);
        struct answer answer = answer_make(&scene, &ask, &found);
        area_free(&answer.area);
        answer.area = area_make(&fx->shape, layout, found.matched_tokens);
        answer.item = answer_item(&ask, &answer);
        assert_ok(fx, fx->api->get_important(fx->conn, &answer.item, 1, &fx->error));
        answer_expect(&scene, &ask, &answer);
        answer_free(&answer);
        fixture_release(fx, found.request);
    }
    expect_sure(&scene);
    scene_close(&scene);
}

static void abi_066_with_probe_queries_alone_heads_that_differ_get_every_row(void **state)
{
    struct fixture *fx = *state;
    struct scene scene = open_scene(fx, FOUR, APART, 290);
    for (uint32_t layer = 0; layer < 3; layer++) {
        struct ask ask = ask_ratio(layer, 250000);
        ask.heads = SPEC_QUERIES_PROBE;
        ask.may_be_dense = true;
        uint32_t flags = scene_ask(&scene, &ask);
        assert_int_equal(flags & SPEC_IMPORTANT_FALLBACK, 0);
        if (conf_options.require_hits)
            assert_int_equal(flags, SPEC_IMPORTANT_DENSE);
    }
    scene_close(&scene);
}

static void abi_066_heads_that_differ_get_every_row_where_a_slot_is_negative(void **state)
{
    struct fixture *fx = *state;
    for (uint32_t agree = APART; agree <= ALIKE; agree += ALIKE) {
        struct scene scene = open_scene(fx, FOUR, agree, 291 + agree);
        struct ask ask = ask_ratio(1, 250000);
        ask.has_negative_slot = true;
        ask.may_be_dense = true;
        uint32_t flags = scene_ask(&scene, &ask);
        assert_int_equal(flags & SPEC_IMPORTANT_FALLBACK, 0);
        if (conf_options.require_hits && agree == APART)
            assert_int_equal(flags, SPEC_IMPORTANT_DENSE);
        scene_close(&scene);
    }
}

/* Stored by a configuration that keeps no keys for probes. */
static void abi_066_rows_without_selector_keys_are_all_delivered(void **state)
{
    struct fixture *fx = *state;
    fixture_shape(fx, FOUR);
    scene_configure(fx, 0, "", "");
    struct scene scene = scene_open(fx, FOUR, 3, ALIKE, 299, MATCHED);
    scene_configure(fx, 3, "", "");
    for (uint32_t layer = 0; layer < 3; layer++) {
        struct ask ask = ask_ratio(layer, 250000);
        ask.may_be_dense = true;
        (void)scene_ask(&scene, &ask);
    }
    scene_close(&scene);
}

/* ---- 140 ---- */

/* The same, and then they get one, in a store that has others that need none. */
static void abi_140_rows_that_lack_selector_keys_get_one_when_it_is_asked_for(void **state)
{
    struct fixture *fx = *state;
    struct spec_maintain_params params = {.struct_size = sizeof(params),
                                          .flags = SPEC_MAINTAIN_BUILD};
    fixture_shape(fx, FOUR);
    scene_configure(fx, 0, "", "");
    struct scene scene = scene_open(fx, FOUR, 3, ALIKE, 1400, MATCHED);
    scene_configure(fx, 3, "", "");
    struct scene other = scene_open(fx, FOUR, 3, ALIKE, 1401, MATCHED);
    assert_ok(fx, fx->api->maintain(fx->conn, &params, &fx->error));
    struct ask ask = ask_ratio(0, 250000);
    ask.may_be_dense = true;
    for (uint32_t tries = 0; scene_ask(&scene, &ask) == SPEC_IMPORTANT_DENSE;)
        assert_true(!conf_options.require_hits || conf_wait(&tries));
    if (conf_options.require_hits)
        assert_true(fixture_stats(fx).built_chunks > 0);
    for (uint32_t opened = 0; opened < 2; opened++) {
        for (uint32_t layer = 0; layer < 3; layer++) {
            ask = ask_ratio(layer, 250000);
            (void)scene_ask(&scene, &ask);
            (void)scene_ask(&other, &ask);
        }
        fixture_reopen(fx);
    }
    scene_close(&other);
    scene_close(&scene);
}

/* ---- 207 ---- */

static void reorder(struct fixture *fx)
{
    struct spec_maintain_params params = {.struct_size = sizeof(params),
                                          .flags = SPEC_MAINTAIN_REORDER};
    assert_ok(fx, fx->api->maintain(fx->conn, &params, &fx->error));
}

/* Chosen rows and whole matches, before, meanwhile and after, over a reopen; two scenes at once. */
static void abi_207_rows_in_another_order_are_the_same_rows(void **state)
{
    struct fixture *fx = *state;
    for (uint32_t agree = 0; agree <= 8; agree += 4) {
        struct scene scene = open_scene(fx, FOUR, agree, 2070 + agree);
        struct scene other = scene_open(fx, FOUR, 3, agree, 2071 + agree, MATCHED);
        for (uint32_t i = 0; i < 2; i++)
            ask_all(&scene, ask_ratio(0, 250000));
        reorder(fx);
        uint64_t done = 0;
        for (uint32_t tries = 0; done == 0;) {
            if (tries % 16 == 0) { /* a score may be lost on a busy machine: ask again, and again */
                ask_all(&scene, ask_ratio(0, 100000));
                reorder(fx);
            }
            done = fixture_stats(fx).reordered_chunks;
            if (!conf_options.require_hits)
                break;
            assert_true(done > 0 || conf_wait(&tries));
        }
        ask_all(&other, ask_ratio(0, 250000));
        ask_all(&other, ask_ratio(0, 250000));
        reorder(fx);
        for (uint32_t opened = 0; opened < 3; opened++) {
            for (uint32_t ppm = 50000; ppm <= 1000000; ppm += 190000) {
                struct ask ask = ask_ratio(0, ppm);
                ask.from = opened * 40;
                ask_all(&scene, ask);
                ask_all(&other, ask);
            }
            fixture_reopen(fx);
        }
        expect_sure(&scene);
        scene_close(&other);
        scene_close(&scene);
    }
}

/* ---- 226 ---- */

/* Asks what each of some requests would, then reorders, and waits until that has ended. */
static void ask_and_reorder(struct scene *scene, uint32_t requests)
{
    struct fixture *fx = scene->fx;
    for (uint32_t i = 0; i < requests; i++)
        ask_all(scene, ask_ratio(0, 250000));
    reorder(fx);
    for (uint32_t tries = 0; fixture_stats(fx).building != 0;)
        assert_true(conf_wait(&tries));
}

/* never: as configured. */
static void reordered_again(struct fixture *fx, bool never)
{
    static const char *const OWN[] = {"\"select\"", "\"preset\"", "\"reorder\"", "lease_ns_max"};
    static char text[8192];
    const char *extra = conf_options.extra;
    for (uint32_t i = 0; i < 4; i++)
        if (strstr(extra, OWN[i]) != NULL)
            conf_skip("the command line's configuration says when rows are reordered");
    int length = snprintf(text, sizeof(text),
                          "%s%s\"lease_ns_max\": 1000000, \"select\": {\"probe_heads\": 3, "
                          "\"selector_bytes\": \"16MiB\"}, \"reorder\": {\"repeat_ppm\": %s}",
                          extra, extra[0] != '\0' ? ", " : "", never ? "0" : "200000");
    assert_true(length > 0 && (size_t)length < sizeof(text));
    fixture_shape(fx, FOUR);
    fixture_reconfigure(fx, text);
    struct scene scene = scene_open(fx, FOUR, 3, 8, 2260, MATCHED);
    uint64_t done = 0;
    for (uint32_t tries = 0; done == 0 && (tries == 0 || conf_options.require_hits);) {
        ask_and_reorder(&scene, 2);
        done = fixture_stats(fx).reordered_chunks;
        assert_true(done > 0 || conf_wait(&tries) || !conf_options.require_hits);
        tries++;
    }
    for (uint32_t i = 0; i < 4; i++)
        ask_and_reorder(&scene, 16);
    assert_int_equal(fixture_stats(fx).reordered_again_chunks, 0);
    uint64_t written = fixture_stats(fx).reordered_write_bytes;
    scene.turn = 1;
    for (uint32_t i = 0; i < 4 || (!never && conf_options.require_hits && i < 1000); i++) {
        ask_and_reorder(&scene, 17);
        if (fixture_stats(fx).reordered_again_chunks > 0)
            break;
    }
    bool is_again = fixture_stats(fx).reordered_again_chunks > 0;
    assert_true(!never || !is_again);
    assert_true(never || is_again || !conf_options.require_hits);
    assert_int_equal(is_again, fixture_stats(fx).reordered_write_bytes > written);
    for (uint32_t opened = 0; opened < 3; opened++) {
        for (uint32_t ppm = 50000; ppm <= 1000000; ppm += 190000)
            ask_all(&scene, ask_ratio(0, ppm));
        fixture_reopen(fx);
    }
    expect_sure(&scene);
    scene_close(&scene);
}

static void abi_226_rows_are_reordered_again_when_their_importance_moves(void **state)
{
    reordered_again(*state, false);
}

static void abi_226_rows_are_reordered_once_where_that_is_configured(void **state)
{
    reordered_again(*state, true);
}

/* ---- 227 ---- */

/* Heads that agree at some ratios and disagree at others: what a layer did before changes what is
 * read first, if anything. */
static void abi_227_selections_do_not_depend_on_earlier_ones(void **state)
{
    struct fixture *fx = *state;
    static const char *const STORES[] = {"", "\"layout\": \"split\""};
    for (uint32_t s = 0; s < 2; s++) {
        uint32_t parted = 0, asked = 0;
        for (uint32_t agree = 5; agree <= 6; agree++) {
            fixture_shape(fx, FOUR);
            scene_configure(fx, 3, "", STORES[s]);
            struct scene scene = scene_open(fx, FOUR, 3, agree, 2270 + agree, MATCHED);
            for (uint32_t i = 0; i < 36; i++, asked++) {
                struct ask ask = ask_ratio(i % 2, 20000 + i / 2 % 9 * 110000);
                parted += (scene_ask(&scene, &ask) & SPEC_IMPORTANT_FALLBACK) != 0;
            }
            expect_sure(&scene);
            scene_close(&scene);
        }
        if (conf_options.require_hits && !conf_options.one_set)
            assert_in_range(parted, asked / 10, asked * 9 / 10);
    }
}

/* ---- 067, 068, 069 ---- */

static void ask_beside(struct scene *scenes, const struct ask *asks, uint32_t count)
{
    struct fixture *fx = scenes[0].fx;
    struct answer answers[4];
    struct spec_lookup_result found[4];
    struct spec_important items[4];
    for (uint32_t i = 0; i < count; i++) {
        found[i] = scene_find(&scenes[i], asks[i].from);
        answers[i] = answer_make(&scenes[i], &asks[i], &found[i]);
    }
    for (uint32_t i = 0; i < count; i++)
        items[i] = answer_item(&asks[i], &answers[i]);
    assert_ok(fx, fx->api->get_important(fx->conn, items, count, &fx->error));
    for (uint32_t i = 0; i < count; i++) {
        answers[i].item = items[i];
        answer_expect(&scenes[i], &asks[i], &answers[i]);
        answer_free(&answers[i]);
        fixture_release(fx, found[i].request);
    }
}

static void abi_067_items_of_one_call_have_sets_of_their_own(void **state)
{
    struct fixture *fx = *state;
    struct scene scenes[4];
    struct ask asks[4];
    scenes[0] = open_scene(fx, FOUR, ALIKE, 300);
    for (uint32_t i = 1; i < 4; i++)
        scenes[i] = scene_open(fx, FOUR, 3, i == 2 ? APART : ALIKE, 300 + i, MATCHED - 20 * i);
    for (uint32_t round = 0; round < 6; round++) {
        for (uint32_t i = 0; i < 4; i++)
            asks[i] = ask_ratio((round + i) % 3, 100000 + 100000 * ((round + i) % 4));
        ask_beside(scenes, asks, 4);
    }
    for (uint32_t i = 0; i < 4; i++) {
        expect_sure(&scenes[i]);
        scene_close(&scenes[i]);
    }
}

/* Passes of one request over the same layer: each by its own rows, in any order, and again. */
static void abi_067_passes_of_one_request_have_sets_of_their_own(void **state)
{
    struct fixture *fx = *state;
    static const uint64_t FIRSTS[] = {0, 2, 4, 0, 4, 2, 2, 0};
    struct scene scene = open_scene(fx, FOUR, ALIKE, 310);
    struct spec_lookup_result found = scene_find(&scene, 0);
    for (uint32_t layer = 0; layer < 3; layer++)
        for (uint32_t i = 0; i < 8; i++) {
            struct ask ask = ask_ratio(layer, 200000);
            ask.first = FIRSTS[i];
            ask.rows = 2;
            struct answer answer = answer_make(&scene, &ask, &found);
            answer.item = answer_item(&ask, &answer);
            assert_ok(fx, fx->api->get_important(fx->conn, &answer.item, 1, &fx->error));
            answer_expect(&scene, &ask, &answer);
            answer_free(&answer);
        }
    fixture_release(fx, found.request);
    expect_sure(&scene);
    scene_close(&scene);
}

static void abi_068_what_one_item_wants_changes_no_other(void **state)
{
    struct fixture *fx = *state;
    struct scene scenes[3];
    scenes[0] = open_scene(fx, FOUR, ALIKE, 320);
    for (uint32_t i = 1; i < 3; i++)
        scenes[i] = scene_open(fx, FOUR, 3, ALIKE, 320 + i, MATCHED);
    for (uint32_t who = 0; who < 3; who++) {
        struct ask asks[3];
        for (uint32_t i = 0; i < 3; i++) {
            asks[i] = ask_ratio(who, i == who ? 150000 : 1000000);
            if (i != who)
                asks[i].select.given = 0; /* as configured: every row */
            asks[i].select.metric = i == who ? SPEC_METRIC_LAST : SPEC_METRIC_H2O;
            asks[i].select.given |= i == who ? SPEC_SELECT_METRIC : 0;
        }
        ask_beside(scenes, asks, 3);
        ask_beside(&scenes[who], &asks[(who + 1) % 3], 1); /* nor a later call of its own */
    }
    for (uint32_t i = 0; i < 3; i++)
        scene_close(&scenes[i]);
}

/* answer_expect compares kind, share and metric of every answer; here the shares that do not come
 * out even. */
static void abi_069_fewer_rows_say_their_share_rounded_up_and_the_metric(void **state)
{
    struct fixture *fx = *state;
    struct scene scene = open_scene(fx, FOUR, ALIKE, 330);
    static const uint64_t COUNTS[] = {1, 3, 7, 33, 100, 169, 170};
    for (uint32_t i = 0; i < 7; i++)
        for (uint32_t metric = SPEC_METRIC_H2O; metric <= SPEC_METRIC_RANDOM; metric++) {
            struct ask ask = ask_ratio(i % 3, 0);
            ask.select.given |= SPEC_SELECT_METRIC;
            ask.select.metric = metric;
            ask.select.budget = SPEC_BUDGET_COUNT;
            ask.select.count = COUNTS[i];
            (void)scene_ask(&scene, &ask);
        }
    scene_close(&scene);
}

/* ---- 072 ---- */

/* Hints that are right, of other tokens, of another layer, of zeros, and none: what is delivered is
 * the same. */
static void ask_with_hint(struct scene *scene, uint32_t kind, uint32_t probe_heads,
                          const struct answer *without, struct answer *ret_answer)
{
    struct fixture *fx = scene->fx;
    struct spec_lookup_result found = scene_find(scene, 0);
    struct ask ask = ask_ratio(1, 250000), other = ask;
    other.heads = probe_heads;
    other.layer = kind == 1 ? 2 : 1;
    other.first = kind == 2 ? 3 : 0;
    other.rows = kind == 2 ? 3 : FRESH;
    struct answer hint = answer_make(scene, &other, &found);
    if (kind == 3)
        memset(hint.query_numbers, 0, hint.queries.byte_count);
    assert_ok(fx, fx->api->begin_layer(fx->conn, &found.request, 1, 0, &fx->error));
    assert_ok(fx, fx->api->prefetch_next(fx->conn, found.request, 0, &hint.queries, &fx->error));
    memset(hint.query_numbers, 0xff, hint.queries.byte_count); /* it was copied */
    if (kind == 4)                                             /* a later one replaces it */
        assert_ok(fx, fx->api->prefetch_next(fx->conn, found.request, 0, NULL, &fx->error));
    answer_free(&hint);
    (void)usleep(COMPUTE_US); /* a connector reads ahead no more than a layer's computing hides */
    *ret_answer = answer_make(scene, &ask, &found);
    ret_answer->item = answer_item(&ask, ret_answer);
    assert_ok(fx, fx->api->get_important(fx->conn, &ret_answer->item, 1, &fx->error));
    answer_expect(scene, &ask, ret_answer);
    if (without != NULL && found.matched_tokens > 0)
        answer_expect_same(scene, without, ret_answer);
    fixture_release(fx, found.request);
}

static void abi_072_a_hint_decides_nothing_that_is_delivered(void **state)
{
    struct fixture *fx = *state;
    static const char *const PREDICTORS[] = {"none", "hint", "layer", "sink", "random", "static"};
    for (uint32_t p = 0; p < 6; p++)
        for (uint32_t agree = APART; agree <= ALIKE; agree += ALIKE) {
            char members[256];
            (void)snprintf(members, sizeof(members),
                           "\"retain_ppm\": 250000, \"min_tokens\": 0}, \"prefetch\": "
                           "{\"predictor\": \"%s\", \"min_precision_ppm\": 0",
                           PREDICTORS[p]);
            fixture_shape(fx, FOUR);
            scene_configure(fx, 3, members, "");
            struct scene scene = scene_open(fx, FOUR, 3, agree, 340 + agree, MATCHED);
            struct answer first, again;
            ask_with_hint(&scene, 0, SPEC_QUERIES_ALL, NULL, &first);
            for (uint32_t kind = 0; kind < 5; kind++) {
                ask_with_hint(&scene, kind, kind % 2 == 0 ? SPEC_QUERIES_PROBE : SPEC_QUERIES_ALL,
                              &first, &again);
                answer_free(&again);
            }
            answer_free(&first);
            expect_sure(&scene);
            scene_close(&scene);
        }
}

const struct conf_test CONF_SELECT[] = {
    BARE(abi_061_rows_of_a_ratio_are_the_most_important_ones_in_every_dtype),
    BARE(abi_061_metrics_are_the_sum_over_rows_the_last_row_or_none),
    BARE(abi_061_scores_run_over_new_keys_up_to_each_row_or_over_the_prefix_alone),
    BARE(abi_061_budgets_are_a_ratio_a_count_or_a_mass),
    BARE(abi_061_rows_that_are_kept_always_count_within_the_budget),
    BARE(abi_062_positions_ascend_wherever_the_loaded_rows_begin),
    BARE(abi_063_ties_go_to_the_lower_position),
    BARE(abi_064_probes_that_agree_give_one_voted_set_for_all_heads),
    BARE(abi_065_probes_that_differ_give_each_head_its_own_rows),
    BARE(abi_065_rows_per_head_lie_where_any_memory_says),
    BARE(abi_066_with_probe_queries_alone_heads_that_differ_get_every_row),
    BARE(abi_066_heads_that_differ_get_every_row_where_a_slot_is_negative),
    BARE(abi_066_rows_without_selector_keys_are_all_delivered),
    BARE(abi_140_rows_that_lack_selector_keys_get_one_when_it_is_asked_for),
    BARE(abi_207_rows_in_another_order_are_the_same_rows),
    BARE(abi_226_rows_are_reordered_again_when_their_importance_moves),
    BARE(abi_226_rows_are_reordered_once_where_that_is_configured),
    BARE(abi_227_selections_do_not_depend_on_earlier_ones),
    BARE(abi_067_items_of_one_call_have_sets_of_their_own),
    BARE(abi_067_passes_of_one_request_have_sets_of_their_own),
    BARE(abi_068_what_one_item_wants_changes_no_other),
    BARE(abi_069_fewer_rows_say_their_share_rounded_up_and_the_metric),
    BARE(abi_072_a_hint_decides_nothing_that_is_delivered),
    END,
};
