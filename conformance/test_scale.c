/* test_scale: scores with the model's own scale instead of 1 / sqrt(head_size): ABI-179.
 *
 *   scale of the queries -> the reference's softmax -> the set, which differs from the default's
 *
 * Invariants: see choice.h and quantised.h. Threads, Tests: see fixture.h. */
#include "conformance/quantised.h"
#include "conformance/suite.h"

#include <math.h>
#include <string.h>

#define MATCHED 170u

static const float SCALES[] = {.0625f, 1.7f}; /* the default is .25 */
#define SCALE_COUNT 2u

static struct scene open_scene(struct fixture *fx, uint32_t agree, uint64_t seed)
{
    fixture_shape(fx, WIDE);
    scene_configure(fx, 3, "", "");
    return scene_open(fx, WIDE, 3, agree, seed, MATCHED);
}

/* One item, compared with the reference; its first rows. */
static uint64_t rows_of(struct scene *scene, const struct ask *ask, uint32_t ret_rows[MATCHED])
{
    struct fixture *fx = scene->fx;
    struct spec_lookup_result found = scene_find(scene, 0);
    struct answer answer = answer_make(scene, ask, &found);
    answer.item = answer_item(ask, &answer);
    assert_ok(fx, fx->api->get_important(fx->conn, &answer.item, 1, &fx->error));
    answer_expect(scene, ask, &answer);
    uint64_t count = answer.item.row_count;
    memcpy(ret_rows, answer.positions, count * sizeof(uint32_t));
    answer_free(&answer);
    fixture_release(fx, found.request);
    return count;
}

static void abi_179_rows_are_chosen_by_scores_of_the_queries_scale(void **state)
{
    struct fixture *fx = *state;
    static const uint32_t AGREES[] = {8, 7, 0};
    uint64_t apart = 0;
    for (uint32_t a = 0; a < 3; a++) {
        struct scene scene = open_scene(fx, AGREES[a], 1790 + a);
        for (uint32_t i = 0; i < 6 * SCALE_COUNT; i++) {
            uint32_t usual[MATCHED], rows[MATCHED];
            struct ask ask = ask_ratio(i % 3, 250000);
            ask.select.given |= SPEC_SELECT_METRIC;
            ask.select.metric = i / 3 % 2 == 0 ? SPEC_METRIC_H2O : SPEC_METRIC_LAST;
            uint64_t count = rows_of(&scene, &ask, usual);
            ask.scale = SCALES[i / 6];
            bool same = rows_of(&scene, &ask, rows) == count &&
                        memcmp(rows, usual, count * sizeof(uint32_t)) == 0;
            apart += !same;
        }
        if (scene.asked > 0)
            assert_true(scene.sure * 2 >= scene.asked);
        scene_close(&scene);
    }
    if (conf_options.require_hits)
        assert_true(apart > 0);
}

/* .25 is 1 / sqrt(16): what is not given, 0 and that are one scale. */
static void abi_179_no_scale_is_the_root_of_the_heads_size(void **state)
{
    struct fixture *fx = *state;
    struct scene scene = open_scene(fx, 8, 1795);
    for (uint32_t layer = 0; layer < 3; layer++) {
        uint32_t rows[2][MATCHED];
        uint64_t counts[2];
        struct ask ask = ask_ratio(layer, 250000);
        for (uint32_t i = 0; i < 2; i++) {
            ask.scale = i == 0 ? 0 : .25f;
            counts[i] = rows_of(&scene, &ask, rows[i]);
        }
        assert_int_equal(counts[0], counts[1]);
        assert_memory_equal(rows[0], rows[1], counts[0] * sizeof(uint32_t));
    }
    scene_close(&scene);
}

static void abi_179_exact_rows_are_chosen_by_scores_of_the_queries_scale(void **state)
{
    struct fixture *fx = *state;
    struct quantised quantised = quantised_open(fx, WIDE, 1796, 4, 2);
    uint64_t apart = 0;
    for (uint32_t i = 0; i < 6 * SCALE_COUNT; i++) {
        struct shot usual = shot_of(i % 3, 200000), shot = usual;
        struct spec_lookup_result found = scene_find(&quantised.scene, 0);
        (void)fire_in(&quantised, &usual, &found);
        shot.ask.scale = SCALES[i / 6];
        shot.is_hinted = i / 3 % 2 == 0;
        (void)fire_in(&quantised, &shot, &found);
        apart += memcmp(usual.bits, shot.bits, sizeof(shot.bits)) != 0;
        shot_free(&usual);
        shot_free(&shot);
        fixture_release(fx, found.request);
    }
    quantised_expect_sure(&quantised);
    if (conf_options.require_hits)
        assert_true(apart > 0);
    quantised_close(&quantised);
}

/* A layer that came ahead of its queries: theirs is the scale, not a guess's. */
static void abi_179_what_came_ahead_is_chosen_by_the_late_queries_scale(void **state)
{
    struct fixture *fx = *state;
    struct quantised quantised = quantised_open(fx, WIDE, 1797, 4, 2);
    for (uint32_t i = 0; i < 6 * SCALE_COUNT; i++) {
        struct shot shot = shot_of(i % 3, 0);
        struct spec_lookup_result found = scene_find(&quantised.scene, 0);
        struct spec_queries prediction;
        spec_ticket ticket;
        shot.ask.scale = SCALES[i / 6];
        shot_make(&quantised, &shot, &found);
        struct spec_important *item = &shot.answer.item;
        const struct spec_queries *queries = item->queries;
        const struct spec_memory *new_keys = item->new_keys;
        prediction = *queries;
        prediction.scale = 0;
        item->flags = SPEC_ITEM_AHEAD;
        item->queries = i / 3 % 2 == 0 ? NULL : &prediction;
        item->new_keys = item->queries != NULL ? new_keys : NULL;
        assert_ok(fx, fx->api->get_important_submit(fx->conn, item, 1, &ticket, &fx->error));
        assert_ok(fx, fx->api->get_important_wait(fx->conn, ticket, UINT64_MAX, &fx->error));
        item->flags = 0;
        aim(&shot, ticket, 200000, 0);
        item->queries = queries;
        item->new_keys = new_keys;
        assert_ok(fx, refine(&quantised, &shot, i % 2 == 0));
        shot_expect(&quantised, &shot);
        shot_free(&shot);
        fixture_release(fx, found.request);
    }
    quantised_expect_sure(&quantised);
    quantised_close(&quantised);
}

static void abi_179_a_scale_that_is_negative_or_no_number_is_invalid(void **state)
{
    struct fixture *fx = *state;
    static const float WRONG[] = {-.25f, NAN, INFINITY, -INFINITY, -1e-45f};
    struct scene scene = open_scene(fx, 8, 1798);
    struct spec_lookup_result found = scene_find(&scene, 0);
    struct ask ask = ask_ratio(0, 250000);
    struct answer answer = answer_make(&scene, &ask, &found);
    answer.item = answer_item(&ask, &answer);
    if (found.matched_tokens > 0)
        for (uint32_t i = 0; i <= sizeof(WRONG) / sizeof(WRONG[0]); i++) {
            bool is_scale = i < sizeof(WRONG) / sizeof(WRONG[0]);
            answer.queries.scale = is_scale ? WRONG[i] : 0;
            answer.queries.reserved = !is_scale;
            assert_status(fx->api->get_important(fx->conn, &answer.item, 1, &fx->error),
                          SPEC_E_INVALID);
            assert_status(
                fx->api->prefetch_next(fx->conn, found.request, 0, &answer.queries, &fx->error),
                SPEC_E_INVALID);
        }
    answer.queries.scale = answer.queries.reserved = 0;
    assert_ok(fx, fx->api->get_important(fx->conn, &answer.item, 1, &fx->error));
    answer_expect(&scene, &ask, &answer);
    answer_free(&answer);
    fixture_release(fx, found.request);
    scene_close(&scene);
}

const struct conf_test CONF_SCALE[] = {
    BARE(abi_179_rows_are_chosen_by_scores_of_the_queries_scale),
    BARE(abi_179_no_scale_is_the_root_of_the_heads_size),
    BARE(abi_179_exact_rows_are_chosen_by_scores_of_the_queries_scale),
    BARE(abi_179_what_came_ahead_is_chosen_by_the_late_queries_scale),
    BARE(abi_179_a_scale_that_is_negative_or_no_number_is_invalid),
    END,
};
