/* test_refine: refinements, which deliver more rows exactly: ABI-163 .. ABI-165.
 *
 * Invariants: see test_layered.c. Threads, Tests: see fixture.h. */
#include "conformance/quantised.h"
#include "conformance/suite.h"

/* ---- 163, 164, 165 ---- */

/* One delivery on its way to all rows; each step as if it had been asked for at once. */
static void refine_up(struct quantised *quantised, struct shot shot, bool submits)
{
    struct fixture *fx = quantised->scene.fx;
    uint64_t both = 2 * row_bytes(&fx->shape);
    spec_ticket ticket;
    struct spec_lookup_result found = scene_find(&quantised->scene, 0);
    bool in_time = fire_first(quantised, &shot, &found, &ticket);
    for (uint32_t step = 0; step < 6 && in_time && !shot.missed; step++) {
        static const uint32_t AIMS[] = {0, 50000, 300000, 300000, PPM, 10000};
        uint64_t before = shot.answer.item.exact_rows;
        aim(&shot, ticket, AIMS[step], step == 2 ? 7 * both + 1 : 0);
        assert_ok(fx, refine(quantised, &shot, submits));
        assert_int_equal(shot.answer.item.status, SPEC_OK);
        assert_int_equal(shot.answer.item.exact_rows, shot_count_bits(&shot));
        assert_true(shot.answer.item.exact_rows >= before);
        assert_true(step != 2 || shot.answer.item.exact_rows <= before + 7);
        assert_true(shot.answer.item.wanted_bytes <= /* rows and tags, and no codes */
                    (shot.answer.item.exact_rows - before) * (both + 16));
        shot_expect_area(quantised, &shot);
        shot_expect_worth(quantised, &shot);
        if (shot.answer.item.exact_rows < quantised->scene.matched)
            shot_expect_best(quantised, &shot);
        if (AIMS[step] == PPM)
            assert_int_equal(shot.answer.item.exact_rows, quantised->scene.matched);
    }
    shot_free(&shot);
    fixture_release(fx, found.request);
}

static void abi_163_refined_rows_are_those_of_a_larger_share(void **state)
{
    struct fixture *fx = *state;
    struct quantised quantised = quantised_open(fx, WIDE, 1670, 4, 2);
    uint64_t both = 2 * row_bytes(&fx->shape);
    for (uint32_t i = 0; i < 12; i++) {
        struct shot shot = shot_of(i % 3, i / 3 % 2 == 0 ? 0 : 50000);
        shot.layout = (enum layout)(i % LAYOUTS);
        refine_up(&quantised, shot, i % 2 == 0);
        shot = shot_of(i % 3, 500000);
        shot.budget_bytes = (uint64_t)i * both + 1;
        refine_up(&quantised, shot, i % 2 == 1);
    }
    quantised_expect_sure(&quantised);
    quantised_close(&quantised);
}

static void abi_163_what_a_deadline_left_out_comes_later(void **state)
{
    struct fixture *fx = *state;
    struct quantised quantised = quantised_open(fx, WIDE, 1680, 4, 2);
    for (uint32_t i = 0; i < 12; i++) {
        struct shot shot = shot_of(i % 3, 500000), whole = shot_of(i % 3, i < 6 ? 500000 : PPM);
        struct spec_lookup_result found = scene_find(&quantised.scene, 0);
        spec_ticket ticket;
        shot.deadline_ns = 1;
        shot.may_be_late = true;
        if (fire_first(&quantised, &shot, &found, &ticket)) {
            aim(&shot, ticket, i < 6 ? 500000 : PPM, 0);
            assert_ok(fx, refine(&quantised, &shot, i % 2 == 0));
            shot_expect(&quantised, &shot);
            assert_true(fire_in(&quantised, &whole, &found));
            assert_int_equal(shot.answer.area.byte_count, whole.answer.area.byte_count);
            assert_memory_equal(shot.answer.area.bytes, whole.answer.area.bytes,
                                whole.answer.area.byte_count);
            assert_memory_equal(shot.bits, whole.bits, sizeof(whole.bits));
            shot_free(&whole);
        }
        shot_free(&shot);
        fixture_release(fx, found.request);
    }
    quantised_close(&quantised);
}

static void abi_164_a_deadline_ends_refining_and_tells_what_is_there(void **state)
{
    struct fixture *fx = *state;
    struct quantised quantised = quantised_open(fx, WIDE, 1690, 4, 2);
    for (uint32_t i = 0; i < 9; i++) {
        struct shot shot = shot_of(i % 3, 0);
        struct spec_lookup_result found = scene_find(&quantised.scene, 0);
        spec_ticket ticket;
        (void)fire_first(&quantised, &shot, &found, &ticket);
        aim(&shot, ticket, 400000, 0);
        shot.deadline_ns = shot.answer.item.deadline_ns = 1;
        assert_ok(fx, refine(&quantised, &shot, i % 2 == 0));
        shot_expect(&quantised, &shot);
        aim(&shot, ticket, 400000, 0);
        assert_ok(fx, refine(&quantised, &shot, i % 2 == 1));
        shot_expect(&quantised, &shot);
        shot_free(&shot);
        fixture_release(fx, found.request);
    }
    quantised_expect_sure(&quantised);
    quantised_close(&quantised);
}

static void abi_164_a_row_that_fails_stays_quantised_and_is_told(void **state)
{
    struct fixture *fx = *state;
    static const uint64_t WHERE[] = {0, 77, STORED - 1};
    for (uint32_t i = 0; i < 3; i++) {
        struct quantised quantised = quantised_open(fx, WIDE, 1700 + i, 4, 2);
        uint64_t copies = quantised_damage(&quantised, WHERE[i], 1);
        struct shot shot = shot_of(1, 0);
        struct spec_lookup_result found = scene_find(&quantised.scene, 0);
        spec_ticket ticket;
        (void)fire_first(&quantised, &shot, &found, &ticket);
        aim(&shot, ticket, PPM, 0);
        spec_status status = refine(&quantised, &shot, i % 2 == 0);
        assert_int_equal(status, shot.answer.item.status);
        assert_int_equal(shot.answer.item.exact_rows, shot_count_bits(&shot));
        shot_expect_area(&quantised, &shot);
        if (copies > 0 && !shot.missed) {
            assert_true(status == SPEC_E_CORRUPT || status == SPEC_E_IO);
            assert_false(shot_bit(&shot, WHERE[i]));
            assert_true(shot.answer.item.failed_position <= WHERE[i]);
            shot.bits[0] ^= 0xa5;
            assert_status(refine(&quantised, &shot, false), status); /* void, at every layer */
            assert_int_equal(shot.answer.item.exact_rows, shot_count_bits(&shot));
            shot_expect_area(&quantised, &shot);
        }
        shot_free(&shot);
        fixture_release(fx, found.request);
        quantised_close(&quantised);
    }
}

static void abi_165_what_cannot_be_refined_is_told_apart(void **state)
{
    struct fixture *fx = *state;
    struct quantised quantised = quantised_open(fx, WIDE, 1710, 4, 2);
    struct shot shot = shot_of(1, 50000), other = shot_of(2, 50000);
    struct spec_lookup_result found = scene_find(&quantised.scene, 0);
    struct spec_lookup_result beside = scene_find(&quantised.scene, 0);
    spec_ticket ticket, next;
    (void)fire_first(&quantised, &shot, &found, &ticket);
    aim(&shot, ticket, 500000, 0);
    shot.missed = shot.missed || found.matched_tokens == 0;
    const spec_ticket unknown[] = {1, UINT64_MAX, ticket + 1, ticket ^ UINT64_C(1) << 50};
    struct spec_important *item = &shot.answer.item;
    for (uint32_t i = 0; i < 4; i++) {
        item->refine_of = unknown[i];
        assert_status(refine(&quantised, &shot, false), SPEC_E_INVALID);
    }
    item->refine_of = ticket;
    item->layer = 2;
    assert_status(refine(&quantised, &shot, false), SPEC_E_INVALID);
    item->layer = 1;
    struct area elsewhere = area_make(&fx->shape, shot.layout, shot.answer.area.count);
    item->destination = &elsewhere.memory;
    assert_status(refine(&quantised, &shot, false), SPEC_E_INVALID);
    struct spec_memory strided = shot.answer.area.memory; /* the same place, V's rows elsewhere */
    item->destination = &strided;
    strided.v_token_stride_bytes = dtype_bytes(fx->shape.dtype);
    assert_status(refine(&quantised, &shot, false), SPEC_E_INVALID);
    item->destination = &shot.answer.area.memory;
    item->request = beside.request;
    assert_status(refine(&quantised, &shot, false), SPEC_E_STALE);
    item->request = found.request;
    shot.answer.select.given |= SPEC_SELECT_METRIC;
    assert_status(refine(&quantised, &shot, false), SPEC_E_INVALID);
    shot.answer.select.given = SPEC_SELECT_EXACT;
    shot_expect_area(&quantised, &shot);                 /* nothing of all that changed it */
    (void)fire_first(&quantised, &other, &found, &next); /* another layer's is another's */
    assert_ok(fx, refine(&quantised, &shot, false));
    shot_expect(&quantised, &shot);
    shot_free(&other);
    other = shot_of(1, 50000);
    (void)fire_in(&quantised, &other, &found); /* the layer again: only the last is refined */
    assert_status(refine(&quantised, &shot, false), SPEC_E_STALE);
    shot_expect_area(&quantised, &shot);
    fixture_release(fx, found.request);
    assert_status(refine(&quantised, &shot, false), SPEC_E_STALE);
    area_free(&elsewhere);
    shot_free(&other);
    shot_free(&shot);
    fixture_release(fx, beside.request);
    quantised_close(&quantised);
}

const struct conf_test CONF_REFINE[] = {
    BARE(abi_163_refined_rows_are_those_of_a_larger_share),
    BARE(abi_163_what_a_deadline_left_out_comes_later),
    BARE(abi_164_a_deadline_ends_refining_and_tells_what_is_there),
    BARE(abi_164_a_row_that_fails_stays_quantised_and_is_told),
    BARE(abi_165_what_cannot_be_refined_is_told_apart),
    END,
};
