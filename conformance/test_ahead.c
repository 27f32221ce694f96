/* test_ahead: submissions ahead of their queries (SPEC_ITEM_AHEAD): ABI-166 .. ABI-168.
 *
 *   submit, SPEC_ITEM_AHEAD   every row as the value of its quantised row
 *   refine_of, with queries   the rows that one call with these queries delivers, bit for bit
 *
 * Invariants: see test_layered.c. Threads, Tests: see fixture.h. */
#include "conformance/quantised.h"
#include "conformance/suite.h"

/* Queries and new keys, which come late. */
struct late {
    const struct spec_queries *queries;
    const struct spec_memory *new_keys;
};

/* Made, submitted ahead with `guess` as queries (NULL: none), waited for. */
static struct late fire_ahead(struct quantised *quantised, struct shot *shot,
                              const struct spec_lookup_result *found, const struct shot *prediction,
                              spec_ticket *ret_ticket)
{
    struct fixture *fx = quantised->scene.fx;
    shot_make(quantised, shot, found);
    struct spec_important *item = &shot->answer.item;
    struct late late = {item->queries, item->new_keys};
    item->flags = SPEC_ITEM_AHEAD;
    item->queries = prediction != NULL ? prediction->answer.item.queries : NULL;
    item->new_keys = prediction != NULL ? prediction->answer.item.new_keys : NULL;
    assert_ok(fx, fx->api->get_important_submit(fx->conn, item, 1, ret_ticket, &fx->error));
    assert_ok(fx, fx->api->get_important_wait(fx->conn, *ret_ticket, UINT64_MAX, &fx->error));
    item->flags = 0;
    shot_expect_told(quantised, shot);
    return late;
}

/* As aim, and chosen by what came late. */
static void aim_at(struct shot *shot, spec_ticket ticket, uint32_t exact_ppm, struct late late)
{
    aim(shot, ticket, exact_ppm, 0);
    shot->answer.item.queries = late.queries;
    shot->answer.item.new_keys = late.new_keys;
}

/* The shot is what one call gives to another request. */
static void expect_one_call(struct quantised *quantised, const struct shot *shot, struct shot once)
{
    struct spec_lookup_result beside = scene_find(&quantised->scene, 0);
    (void)fire_in(quantised, &once, &beside);
    assert_int_equal(shot->answer.item.exact_rows, once.answer.item.exact_rows);
    assert_int_equal(shot->answer.area.byte_count, once.answer.area.byte_count);
    assert_memory_equal(shot->answer.area.bytes, once.answer.area.bytes,
                        once.answer.area.byte_count);
    assert_memory_equal(shot->bits, once.bits, sizeof(once.bits));
    shot_free(&once);
    fixture_release(quantised->scene.fx, beside.request);
}

/* ---- 166 ---- */

static void abi_166_what_came_ahead_becomes_what_one_call_delivers(void **state)
{
    struct fixture *fx = *state;
    static const uint32_t SHARES[] = {50000, 300000, PPM, 120000};
    struct quantised quantised = quantised_open(fx, WIDE, 1720, 4, 2);
    for (uint32_t i = 0; i < 12; i++) {
        struct shot shot = shot_of(i % 3, 50000), once = shot_of(i % 3, SHARES[i % 4]);
        struct spec_lookup_result found = scene_find(&quantised.scene, 0);
        spec_ticket ticket;
        shot.layout = once.layout = (enum layout)(i % LAYOUTS);
        shot.dtype = once.dtype = i < 6 ? 0 : SPEC_DTYPE_F32;
        struct late late = fire_ahead(&quantised, &shot, &found, NULL, &ticket);
        if (conf_options.require_hits) /* codes, all of them */
            assert_int_equal(shot.answer.item.exact_rows, 0);
        aim_at(&shot, ticket, SHARES[i % 4], late);
        assert_ok(fx, refine(&quantised, &shot, i % 2 == 0));
        shot_expect(&quantised, &shot);
        expect_one_call(&quantised, &shot, once);
        aim(&shot, ticket, SHARES[i % 4] < PPM ? 600000 : PPM, 0); /* its ranking stays */
        assert_ok(fx, refine(&quantised, &shot, false));
        shot_expect(&quantised, &shot);
        shot_free(&shot);
        fixture_release(fx, found.request);
    }
    quantised_expect_sure(&quantised);
    quantised_close(&quantised);
}

/* Queries that are a guess bring rows, and the real ones choose as if there had been none. */
static void abi_166_a_prediction_of_the_queries_decides_nothing(void **state)
{
    struct fixture *fx = *state;
    struct quantised quantised = quantised_open(fx, WIDE, 1730, 4, 2);
    uint64_t apart = 0;
    for (uint32_t i = 0; i < 6; i++) {
        struct shot prediction = shot_of((i + 1) % 3, 100000), shot = shot_of(i % 3, 100000);
        struct shot once = shot_of(i % 3, 100000);
        struct spec_lookup_result found = scene_find(&quantised.scene, 0);
        spec_ticket ticket;
        shot_make(&quantised, &prediction, &found); /* its queries are another layer's */
        struct late late = fire_ahead(&quantised, &shot, &found, &prediction, &ticket);
        struct shot before = shot; /* the bits */
        aim_at(&shot, ticket, 100000, late);
        assert_ok(fx, refine(&quantised, &shot, i % 2 == 0));
        shot_expect_told(&quantised, &shot);
        struct spec_lookup_result beside = scene_find(&quantised.scene, 0);
        (void)fire_in(&quantised, &once, &beside);
        for (uint32_t w = 0; w < ROWS_MAX / 64; w++)
            assert_int_equal(shot.bits[w], before.bits[w] | once.bits[w]);
        apart += shot_count_bits(&shot) > shot_count_bits(&once);
        shot_free(&once);
        shot_free(&shot);
        shot_free(&prediction);
        fixture_release(fx, beside.request);
        fixture_release(fx, found.request);
    }
    if (conf_options.require_hits)
        assert_true(apart > 0);
    quantised_close(&quantised);
}

/* ---- 167 ---- */

/* What a pass that ended with `status` says it was computed on: codes with so large a share of
 * exact rows (PPM: exact rows alone). */
static void expect_pass(struct quantised *quantised, const struct spec_lookup_result *pass,
                        spec_status status, uint32_t exact_ppm)
{
    struct fixture *fx = quantised->scene.fx;
    bool was_stored = status == SPEC_OK && pass->matched_tokens > 0;
    fixture_release(fx, pass->request);
    struct spec_lookup_params params = lookup_params(&quantised->scene.prompt);
    params.max_tokens = quantised->scene.prompt.count;
    struct spec_lookup_result found = fixture_lookup(fx, &params);
    if (was_stored)
        expect_match(&found, quantised->scene.prompt.count);
    bool is_lossy = was_stored && found.matched_tokens > STORED && exact_ppm < PPM;
    assert_int_equal(found.provenance.kind,
                     is_lossy ? SPEC_PROVENANCE_LOSSY : SPEC_PROVENANCE_EXACT);
    if (is_lossy)
        assert_int_equal(found.provenance.exact_ppm, exact_ppm);
    fixture_release(fx, found.request);
}

static void abi_167_what_came_ahead_is_not_what_a_pass_is_computed_on(void **state)
{
    struct fixture *fx = *state;
    static const uint32_t SHARES[] = {0, 33333, PPM};
    fixture_shape(fx, WIDE);
    quantised_configure(fx, 5, 3, "");
    for (uint32_t i = 0; i < 3; i++) {
        struct quantised quantised = quantised_make(fx, 1740 + i, 5, 3, STORED);
        uint32_t worst = PPM;
        quantised_store(&quantised);
        struct spec_lookup_result found = scene_find(&quantised.scene, 0);
        spec_status status = SPEC_E_DROPPED;
        for (uint32_t layer = 0; layer < fx->shape.layers; layer++) {
            struct shot shot = shot_of(layer, 50000);
            spec_ticket ticket;
            struct late late = fire_ahead(&quantised, &shot, &found, NULL, &ticket);
            aim_at(&shot, ticket, SHARES[i], late);
            assert_ok(fx, refine(&quantised, &shot, layer % 2 == 0));
            shot_expect(&quantised, &shot);
            worst = shot_worse(&shot, worst);
            shot_free(&shot);
            status = quantised_put(&quantised, &found, layer);
        }
        expect_pass(&quantised, &found, status, worst);
        quantised_close(&quantised);
    }
}

/* A host that stores a layer and never refined what came ahead of it has computed on codes, and
 * what it stored says so; not where the layer was delivered anew before. */
static void abi_167_what_was_never_refined_is_told_of_what_is_stored(void **state)
{
    struct fixture *fx = *state;
    fixture_shape(fx, WIDE);
    quantised_configure(fx, 5, 3, "");
    for (uint32_t is_anew = 0; is_anew < 2; is_anew++) {
        struct quantised quantised = quantised_make(fx, 1745 + is_anew, 5, 3, STORED);
        uint32_t worst = PPM;
        quantised_store(&quantised);
        struct spec_lookup_result found = scene_find(&quantised.scene, 0);
        spec_status status = SPEC_E_DROPPED;
        for (uint32_t layer = 0; layer < fx->shape.layers; layer++) {
            struct shot shot = shot_of(layer, 50000), anew = shot_of(layer, PPM);
            spec_ticket ticket;
            struct late late = fire_ahead(&quantised, &shot, &found, NULL, &ticket);
            if (layer != 1) {
                aim_at(&shot, ticket, PPM, late);
                assert_ok(fx, refine(&quantised, &shot, layer % 2 == 0));
            } else if (is_anew) {
                (void)fire_in(&quantised, &anew, &found);
            } else {
                worst = shot_worse(&shot, worst);
            }
            shot_free(&anew);
            shot_free(&shot);
            status = quantised_put(&quantised, &found, layer);
        }
        if (conf_options.require_hits)
            assert_int_equal(worst, is_anew ? PPM : 0);
        expect_pass(&quantised, &found, status, worst);
        quantised_close(&quantised);
    }
}

/* ---- 168 ---- */

/* Whether the deadline came before the choice or after, the next item has the whole set. */
static void abi_168_a_deadline_leaves_the_choice_to_the_next(void **state)
{
    struct fixture *fx = *state;
    struct quantised quantised = quantised_open(fx, WIDE, 1750, 4, 2);
    for (uint32_t i = 0; i < 9; i++) {
        struct shot shot = shot_of(i % 3, 0), once = shot_of(i % 3, 400000);
        struct spec_lookup_result found = scene_find(&quantised.scene, 0);
        spec_ticket ticket;
        struct late late = fire_ahead(&quantised, &shot, &found, NULL, &ticket);
        if (i % 2 == 0) /* the layers behind it take the memory of its codes */
            for (uint32_t ahead = 0; ahead < fx->shape.layers; ahead++)
                assert_ok(fx, fx->api->begin_layer(fx->conn, &found.request, 1,
                                                   (i + ahead) % fx->shape.layers, &fx->error));
        aim_at(&shot, ticket, 400000, late);
        shot.answer.item.deadline_ns = 1;
        assert_ok(fx, refine(&quantised, &shot, i % 2 == 0));
        shot_expect_told(&quantised, &shot);
        aim_at(&shot, ticket, 400000, late);
        assert_ok(fx, refine(&quantised, &shot, i % 2 == 1));
        shot_expect(&quantised, &shot);
        expect_one_call(&quantised, &shot, once);
        shot_free(&shot);
        fixture_release(fx, found.request);
    }
    quantised_expect_sure(&quantised);
    quantised_close(&quantised);
}

static void abi_168_what_cannot_be_ahead_is_refused(void **state)
{
    struct fixture *fx = *state;
    struct quantised quantised = quantised_open(fx, WIDE, 1760, 4, 2);
    struct shot shot = shot_of(1, 50000);
    struct spec_lookup_result found = scene_find(&quantised.scene, 0);
    spec_ticket ticket;
    struct late late = fire_ahead(&quantised, &shot, &found, NULL, &ticket);
    struct spec_important *item = &shot.answer.item;
    aim_at(&shot, ticket, 50000, late);
    for (uint32_t way = 0; way < 3; way++) {
        item->flags = way == 2 ? 4u : SPEC_ITEM_AHEAD; /* unknown */
        item->refine_of = way == 0 ? ticket : 0;       /* both; one that does not submit */
        if (way != 1)
            assert_status(
                fx->api->get_important_submit(fx->conn, item, 1, &(spec_ticket){0}, &fx->error),
                SPEC_E_INVALID);
        assert_status(fx->api->get_important(fx->conn, item, 1, &fx->error), SPEC_E_INVALID);
    }
    item->flags = 0;
    item->refine_of = ticket;
    shot_expect_area(&quantised, &shot); /* nothing of that changed it */
    item->queries = NULL;            /* the choice needs them, and has had none */
    if (conf_options.require_hits)
        assert_status(fx->api->get_important(fx->conn, item, 1, &fx->error), SPEC_E_INVALID);
    aim_at(&shot, ticket, 50000, late);
    assert_ok(fx, refine(&quantised, &shot, false));
    shot_expect(&quantised, &shot);
    shot_free(&shot);
    fixture_release(fx, found.request);
    quantised_close(&quantised);
}

static void abi_168_without_codes_nothing_is_ahead(void **state)
{
    struct fixture *fx = *state;
    struct prompt prompt = prompt_make(1770, 40);
    spec_ticket ticket;
    fixture_store(fx, &prompt);
    struct spec_lookup_params params = lookup_params(&prompt);
    struct spec_lookup_result found = fixture_lookup(fx, &params);
    struct area area = area_make(&fx->shape, (enum layout)0, found.matched_tokens);
    struct spec_important item = {.struct_size = sizeof(item),
                                  .flags = SPEC_ITEM_AHEAD,
                                  .request = found.request,
                                  .destination = &area.memory};
    assert_status(fx->api->get_important_submit(fx->conn, &item, 1, &ticket, &fx->error),
                  SPEC_E_UNSUPPORTED);
    area_free(&area);
    fixture_release(fx, found.request);
    prompt_free(&prompt);
}

const struct conf_test CONF_AHEAD[] = {
    BARE(abi_166_what_came_ahead_becomes_what_one_call_delivers),
    BARE(abi_166_a_prediction_of_the_queries_decides_nothing),
    BARE(abi_167_what_came_ahead_is_not_what_a_pass_is_computed_on),
    BARE(abi_167_what_was_never_refined_is_told_of_what_is_stored),
    BARE(abi_168_a_deadline_leaves_the_choice_to_the_next),
    BARE(abi_168_what_cannot_be_ahead_is_refused),
    OPENED(abi_168_without_codes_nothing_is_ahead),
    END,
};
