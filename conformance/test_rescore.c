/* test_rescore: rescoring of a delivery by the queries of another chunk: ABI-184, ABI-185.
 *
 *   submit, queries of chunk 0     the rows of set 0 are exact
 *   RESCORE, queries of chunk 1    those of sets 0 and 1
 *   RESCORE, queries of chunk 2    those of all three
 *   refine, without queries        and more of chunk 2's
 *
 * A set has the rows that one call with the chunk's queries delivers exactly; it is compared with
 * the truth. Invariants: see test_layered.c. Threads, Tests: see fixture.h. */
#include "conformance/quantised.h"
#include "conformance/suite.h"

#define CHUNK_ROWS 2u
#define CHUNKS     (FRESH / CHUNK_ROWS)
#define WORDS      (ROWS_MAX / 64)

/* Layers enough for three behind the third. */
static const struct shape DEEP = {6, 4, 16, SPEC_DTYPE_F16};

/* The n-th chunk's item. */
static struct shot chunk_of(uint32_t n, uint32_t layer, uint32_t exact_ppm)
{
    struct shot shot = shot_of(layer, exact_ppm);
    shot.ask.first = n * CHUNK_ROWS;
    shot.ask.rows = CHUNK_ROWS;
    return shot;
}

/* What one call with the chunk's queries has exactly, of a request of its own. */
static void set_of(struct quantised *quantised, struct shot chunk, uint64_t *ret_bits)
{
    struct spec_lookup_result beside = scene_find(&quantised->scene, 0);
    (void)fire_in(quantised, &chunk, &beside);
    memcpy(ret_bits, chunk.bits, sizeof(chunk.bits));
    shot_free(&chunk);
    fixture_release(quantised->scene.fx, beside.request);
}

/* As aim; all rows are scored by the chunk's queries, which has been made. */
static void aim_by(struct shot *shot, spec_ticket ticket, const struct shot *chunk,
                   uint64_t budget_bytes)
{
    struct spec_important *item = &shot->answer.item;
    aim(shot, ticket, chunk->ask.select.exact_ppm, budget_bytes);
    shot->answer.select = chunk->ask.select;
    item->flags = SPEC_ITEM_RESCORE;
    item->queries = chunk->answer.item.queries;
    item->new_keys = chunk->answer.item.new_keys;
}

/* As aim, plainly again. */
static void aim_plainly(struct shot *shot, spec_ticket ticket, uint32_t exact_ppm)
{
    aim(shot, ticket, exact_ppm, 0);
    shot->answer.select.given = SPEC_SELECT_EXACT;
    shot->answer.item.flags = 0;
}

static void expect_both(const struct quantised *quantised, const struct shot *shot,
                        const uint64_t *one, const uint64_t *other)
{
    assert_int_equal(shot->answer.item.result_flags & SPEC_IMPORTANT_PARTIAL, 0);
    for (uint32_t w = 0; w < WORDS; w++)
        assert_int_equal(shot->bits[w], one[w] | other[w]);
    shot_expect_told(quantised, shot);
}

static uint64_t count_missing(const uint64_t *bits, const uint64_t *of)
{
    uint64_t count = 0;
    for (uint32_t w = 0; w < WORDS; w++)
        count += (uint64_t)__builtin_popcountll(of[w] & ~bits[w]);
    return count;
}

/* Filled by the shot's own queries, or ahead of all. */
static spec_ticket fill(struct quantised *quantised, struct shot *shot,
                        const struct spec_lookup_result *found, bool is_ahead)
{
    struct fixture *fx = quantised->scene.fx;
    spec_ticket ticket;
    if (!is_ahead) {
        (void)fire_first(quantised, shot, found, &ticket);
        return ticket;
    }
    shot_make(quantised, shot, found);
    struct spec_important *item = &shot->answer.item;
    item->flags = SPEC_ITEM_AHEAD;
    item->queries = NULL;
    item->new_keys = NULL;
    assert_ok(fx, fx->api->get_important_submit(fx->conn, item, 1, &ticket, &fx->error));
    assert_ok(fx, fx->api->get_important_wait(fx->conn, ticket, UINT64_MAX, &fx->error));
    shot_expect_told(quantised, shot);
    return ticket;
}

/* Codes of three more layers are read: their memory may be that of the layer's. */
static void displace(struct fixture *fx, const struct spec_lookup_result *found, uint32_t layer)
{
    assert_ok(fx, fx->api->begin_layer(fx->conn, &found->request, 1, layer + 1, &fx->error));
}

/* ---- 184 ---- */

/* One layer of a prefill in chunks. Returns how many rows later chunks added. */
static uint64_t prefill(struct quantised *quantised, uint32_t i)
{
    struct fixture *fx = quantised->scene.fx;
    static const uint32_t SHARES[CHUNKS] = {50000, 120000, 30000};
    uint32_t layer = i % 3;
    uint64_t set[WORDS], before[WORDS], added = 0;
    struct spec_lookup_result found = scene_find(&quantised->scene, 0);
    struct shot shot = chunk_of(0, layer, SHARES[0]);
    shot.layout = (enum layout)(i % LAYOUTS);
    shot.dtype = i < 6 ? 0 : SPEC_DTYPE_F32;
    bool is_ahead = i % 4 == 3;
    spec_ticket ticket = fill(quantised, &shot, &found, is_ahead);
    for (uint32_t n = is_ahead ? 0 : 1; n < CHUNKS; n++) {
        struct shot chunk = chunk_of(n, layer, SHARES[n]);
        if (n == 1) {
            chunk.ask.select.given |= SPEC_SELECT_METRIC | SPEC_SELECT_KEEP;
            chunk.ask.select.metric = SPEC_METRIC_LAST;
            chunk.ask.select.keep_first = 2;
            chunk.ask.select.keep_last = 3;
        }
        if (i % 2 == 1)
            displace(fx, &found, layer);
        set_of(quantised, chunk, set);
        memcpy(before, shot.bits, sizeof(before));
        shot_make(quantised, &chunk, &found);
        aim_by(&shot, ticket, &chunk, 0);
        assert_ok(fx, refine(quantised, &shot, (i + n) % 2 == 0));
        expect_both(quantised, &shot, before, set);
        added += n > 0 ? count_missing(before, set) : 0;
        shot_free(&chunk);
    }
    set_of(quantised, chunk_of(CHUNKS - 1, layer, 400000), set); /* the last one's ranking stays */
    memcpy(before, shot.bits, sizeof(before));
    aim_plainly(&shot, ticket, 400000);
    assert_ok(fx, refine(quantised, &shot, i % 2 == 0));
    expect_both(quantised, &shot, before, set);
    shot_free(&shot);
    fixture_release(fx, found.request);
    return added;
}

static void abi_184_each_chunk_adds_the_rows_of_its_queries(void **state)
{
    struct fixture *fx = *state;
    struct quantised quantised = quantised_open(fx, DEEP, 1780, 4, 2);
    uint64_t added = 0;
    for (uint32_t i = 0; i < 12; i++)
        added += prefill(&quantised, i);
    if (conf_options.require_hits)
        assert_true(added > 12);
    quantised_expect_sure(&quantised);
    quantised_close(&quantised);
}

/* Nobody's rows are taken back: not by a smaller share, and not where all are there. */
static void abi_184_what_is_exact_stays(void **state)
{
    struct fixture *fx = *state;
    struct quantised quantised = quantised_open(fx, WIDE, 1785, 4, 2);
    static const uint32_t SHARES[] = {300000, 20000, 0, PPM, 20000};
    for (uint32_t layer = 0; layer < 3; layer++) {
        struct spec_lookup_result found = scene_find(&quantised.scene, 0);
        struct shot shot = chunk_of(0, layer, SHARES[0]);
        spec_ticket ticket = fill(&quantised, &shot, &found, false);
        for (uint32_t step = 1; step < 5; step++) {
            uint64_t set[WORDS], before[WORDS];
            struct shot chunk = chunk_of(SHARES[step] > 0 ? 1 : 2, layer, SHARES[step]);
            set_of(&quantised, chunk, set);
            memcpy(before, shot.bits, sizeof(before));
            shot_make(&quantised, &chunk, &found);
            aim_by(&shot, ticket, &chunk, 0);
            assert_ok(fx, refine(&quantised, &shot, step % 2 == 0));
            expect_both(&quantised, &shot, before, set);
            if (step == 2) { /* no row was wanted: the ranking is the one of the step before */
                set_of(&quantised, chunk_of(1, layer, 350000), set);
                memcpy(before, shot.bits, sizeof(before));
                aim_plainly(&shot, ticket, 350000);
                assert_ok(fx, refine(&quantised, &shot, false));
                expect_both(&quantised, &shot, before, set);
            }
            shot_free(&chunk);
        }
        if (!shot.missed)
            assert_int_equal(shot.answer.item.exact_rows, quantised.scene.matched);
        shot_free(&shot);
        fixture_release(fx, found.request);
    }
    quantised_expect_sure(&quantised);
    quantised_close(&quantised);
}

/* ---- 185 ---- */

/* Rows before, less than the whole set, nothing else: then the whole. */
static void abi_185_a_deadline_ends_it_and_leaves_what_was_there(void **state)
{
    struct fixture *fx = *state;
    struct quantised quantised = quantised_open(fx, DEEP, 1790, 4, 2);
    for (uint32_t i = 0; i < 9; i++) {
        uint64_t set[WORDS], before[WORDS];
        struct spec_lookup_result found = scene_find(&quantised.scene, 0);
        struct shot shot = chunk_of(0, i % 3, 60000), chunk = chunk_of(1, i % 3, 400000);
        spec_ticket ticket = fill(&quantised, &shot, &found, i % 2 == 0);
        set_of(&quantised, chunk, set);
        memcpy(before, shot.bits, sizeof(before));
        shot_make(&quantised, &chunk, &found);
        if (i % 3 == 0)
            displace(fx, &found, i % 3);
        aim_by(&shot, ticket, &chunk, 0);
        shot.answer.item.deadline_ns = 1;
        assert_ok(fx, refine(&quantised, &shot, i % 2 == 0));
        shot_expect_told(&quantised, &shot);
        for (uint32_t w = 0; w < WORDS; w++) {
            assert_int_equal(before[w] & ~shot.bits[w], 0);
            assert_int_equal(shot.bits[w] & ~(before[w] | set[w]), 0);
        }
        bool is_partial = (shot.answer.item.result_flags & SPEC_IMPORTANT_PARTIAL) != 0;
        assert_true(is_partial || count_missing(shot.bits, set) == 0);
        aim_by(&shot, ticket, &chunk, 0);
        assert_ok(fx, refine(&quantised, &shot, i % 2 == 1));
        expect_both(&quantised, &shot, before, set);
        shot_free(&chunk);
        shot_free(&shot);
        fixture_release(fx, found.request);
    }
    quantised_close(&quantised);
}

/* Those that the budget takes are the best by the new queries. */
static void abi_185_a_budget_takes_the_best_of_the_missing_rows(void **state)
{
    struct fixture *fx = *state;
    struct quantised quantised = quantised_open(fx, WIDE, 1795, 4, 2);
    uint64_t both = 2 * row_bytes(&fx->shape);
    for (uint32_t layer = 0; layer < 3; layer++) {
        uint64_t best[WORDS], set[WORDS], before[WORDS], wanted = 3 + 2 * layer;
        struct spec_lookup_result found = scene_find(&quantised.scene, 0);
        struct shot shot = chunk_of(0, layer, 60000), chunk = chunk_of(1, layer, 300000);
        spec_ticket ticket = fill(&quantised, &shot, &found, layer == 2);
        memcpy(before, shot.bits, sizeof(before));
        uint64_t k = 0;
        do /* the fewest rows of the ranking of which so many are missing */
            set_of(&quantised, chunk_of(1, layer, (uint32_t)(++k * PPM / quantised.scene.matched)),
                   best);
        while (count_missing(before, best) < wanted && k < 40);
        set_of(&quantised, chunk, set);
        shot_make(&quantised, &chunk, &found);
        aim_by(&shot, ticket, &chunk, wanted * both + 1);
        assert_ok(fx, refine(&quantised, &shot, layer == 1));
        if (!shot.missed && count_missing(before, set) > wanted)
            assert_int_equal(shot.answer.item.result_flags, SPEC_IMPORTANT_PARTIAL);
        shot.answer.item.result_flags = 0;
        expect_both(&quantised, &shot, before, best);
        aim_plainly(&shot, ticket, 300000); /* it ranked them all, and they come in that order */
        assert_ok(fx, refine(&quantised, &shot, layer == 0));
        expect_both(&quantised, &shot, before, set);
        shot_free(&chunk);
        shot_free(&shot);
        fixture_release(fx, found.request);
    }
    quantised_expect_sure(&quantised);
    quantised_close(&quantised);
}

static void abi_185_a_row_that_fails_stays_quantised_and_is_told(void **state)
{
    struct fixture *fx = *state;
    static const uint64_t WHERE[] = {0, 77, STORED - 1};
    for (uint32_t i = 0; i < 3; i++) {
        struct quantised quantised = quantised_open(fx, WIDE, 1800 + i, 4, 2);
        uint64_t copies = quantised_damage(&quantised, WHERE[i], 1);
        struct spec_lookup_result found = scene_find(&quantised.scene, 0);
        struct shot shot = chunk_of(0, 1, 0), chunk = chunk_of(1, 1, PPM);
        spec_ticket ticket = fill(&quantised, &shot, &found, false);
        shot_make(&quantised, &chunk, &found);
        for (uint32_t again = 0; again < 2; again++) { /* void from there on, at every layer */
            aim_by(&shot, ticket, &chunk, 0);
            spec_status status = refine(&quantised, &shot, (i + again) % 2 == 0);
            assert_int_equal(status, shot.answer.item.status);
            shot_expect_told(&quantised, &shot);
            if (copies == 0 || shot.missed)
                continue;
            assert_true(status == SPEC_E_CORRUPT || status == SPEC_E_IO);
            assert_false(shot_bit(&shot, WHERE[i]));
            assert_true(shot.answer.item.failed_position <= WHERE[i]);
        }
        shot_free(&chunk);
        shot_free(&shot);
        fixture_release(fx, found.request);
        quantised_close(&quantised);
    }
}

/* Submitted, and then its request goes, or everything is void: it is delivered or STALE. */
static void abi_185_a_release_or_a_reset_beside_it(void **state)
{
    struct fixture *fx = *state;
    struct quantised quantised = quantised_open(fx, WIDE, 1805, 4, 2);
    for (uint32_t i = 0; i < 10; i++) {
        uint64_t set[WORDS], before[WORDS];
        quantised_store(&quantised);
        struct spec_lookup_result found = scene_find(&quantised.scene, 0);
        struct shot shot = chunk_of(0, i % 3, 60000), chunk = chunk_of(1, i % 3, 400000);
        spec_ticket ticket = fill(&quantised, &shot, &found, false), next;
        set_of(&quantised, chunk, set);
        memcpy(before, shot.bits, sizeof(before));
        shot_make(&quantised, &chunk, &found);
        aim_by(&shot, ticket, &chunk, 0);
        struct spec_important *item = &shot.answer.item;
        assert_ok(fx, fx->api->get_important_submit(fx->conn, item, 1, &next, &fx->error));
        if (i % 2 == 0)
            fixture_release(fx, found.request);
        else
            assert_ok(fx, fx->api->reset(fx->conn, &fx->error));
        spec_status status = fx->api->get_important_wait(fx->conn, next, UINT64_MAX, &fx->error);
        assert_int_equal(status, item->status);
        if (status == SPEC_OK)
            expect_both(&quantised, &shot, before, set);
        else
            assert_int_equal(status, SPEC_E_STALE);
        if (i % 2 == 1)
            (void)fx->api->release(fx->conn, found.request, &fx->error);
        shot_free(&chunk);
        shot_free(&shot);
    }
    assert_int_equal(fixture_stats(fx).requests_open, 0);
    quantised_close(&quantised);
}

/* Each of these once; what is there stays, and can be scored anew afterwards. */
static void expect_refused(struct quantised *quantised, struct shot *shot, const struct shot *chunk,
                           const struct spec_lookup_result *beside, spec_ticket ticket)
{
    struct fixture *fx = quantised->scene.fx;
    struct spec_important *item = &shot->answer.item;
    struct spec_queries late = *item->queries, few = *item->queries;
    struct area elsewhere = area_make(&fx->shape, shot->layout, shot->answer.area.count);
    late.first_position = 0;
    few.byte_count = 1;
    for (uint32_t way = 0; way < 10; way++) {
        aim_by(shot, way == 0 ? 0 : way == 1 ? ticket ^ UINT64_C(1) << 50 : ticket, chunk, 0);
        item->queries = way == 2 ? NULL : way == 3 ? &late : way == 4 ? &few : item->queries;
        item->flags |= way == 5 ? SPEC_ITEM_AHEAD : way == 6 ? 4u : 0; /* 4: unknown */
        item->layer = (shot->ask.layer + (way == 7)) % fx->shape.layers;
        item->destination = way == 8 ? &elsewhere.memory : &shot->answer.area.memory;
        item->request = way == 9 ? beside->request : item->request;
        bool needs_rows = way == 3 || way == 4;
        if (needs_rows && !conf_options.require_hits)
            continue; /* delivered whole: they are not looked at */
        spec_ticket next;
        spec_status expected = way == 9 ? SPEC_E_STALE : SPEC_E_INVALID;
        assert_status(fx->api->get_important(fx->conn, item, 1, &fx->error), expected);
        assert_status(fx->api->get_important_submit(fx->conn, item, 1, &next, &fx->error),
                      expected);
    }
    area_free(&elsewhere);
    shot_expect_area(quantised, shot);
}

static void abi_185_what_cannot_be_scored_anew_is_refused(void **state)
{
    struct fixture *fx = *state;
    struct quantised quantised = quantised_open(fx, WIDE, 1810, 4, 2);
    uint64_t set[WORDS], before[WORDS];
    struct spec_lookup_result found = scene_find(&quantised.scene, 0);
    struct spec_lookup_result beside = scene_find(&quantised.scene, 0);
    struct shot shot = chunk_of(0, 1, 50000), chunk = chunk_of(1, 1, 200000);
    spec_ticket ticket = fill(&quantised, &shot, &found, false);
    set_of(&quantised, chunk, set);
    memcpy(before, shot.bits, sizeof(before));
    shot_make(&quantised, &chunk, &found);
    expect_refused(&quantised, &shot, &chunk, &beside, ticket);
    aim_by(&shot, ticket, &chunk, 0);
    shot.answer.item.request = found.request;
    shot.answer.select.given |= SPEC_SELECT_BUDGET;
    assert_status(refine(&quantised, &shot, false), SPEC_E_INVALID);
    aim_by(&shot, ticket, &chunk, 0);
    assert_ok(fx, refine(&quantised, &shot, true));
    expect_both(&quantised, &shot, before, set);
    struct shot anew = chunk_of(2, 1, 50000);
    (void)fire_in(&quantised, &anew, &found); /* the layer again: this one's ranking is gone */
    aim_by(&shot, ticket, &chunk, 0);
    assert_status(refine(&quantised, &shot, false), SPEC_E_STALE);
    shot_expect_area(&quantised, &shot);
    fixture_release(fx, found.request);
    assert_status(refine(&quantised, &shot, false), SPEC_E_STALE);
    fixture_release(fx, beside.request);
    shot_free(&anew);
    shot_free(&chunk);
    shot_free(&shot);
    quantised_close(&quantised);
}

static void abi_185_without_codes_nothing_is_scored_anew(void **state)
{
    struct fixture *fx = *state;
    struct prompt prompt = prompt_make(1815, 40);
    fixture_store(fx, &prompt);
    struct spec_lookup_params params = lookup_params(&prompt);
    struct spec_lookup_result found = fixture_lookup(fx, &params);
    struct area area = area_make(&fx->shape, (enum layout)0, found.matched_tokens);
    struct spec_queries queries = {.struct_size = sizeof(queries)};
    struct spec_important item = {.struct_size = sizeof(item),
                                  .flags = SPEC_ITEM_RESCORE,
                                  .request = found.request,
                                  .destination = &area.memory,
                                  .queries = &queries,
                                  .refine_of = 1};
    assert_status(fx->api->get_important(fx->conn, &item, 1, &fx->error), SPEC_E_UNSUPPORTED);
    area_free(&area);
    fixture_release(fx, found.request);
    prompt_free(&prompt);
}

const struct conf_test CONF_RESCORE[] = {
    BARE(abi_184_each_chunk_adds_the_rows_of_its_queries),
    BARE(abi_184_what_is_exact_stays),
    BARE(abi_185_a_deadline_ends_it_and_leaves_what_was_there),
    BARE(abi_185_a_budget_takes_the_best_of_the_missing_rows),
    BARE(abi_185_a_row_that_fails_stays_quantised_and_is_told),
    BARE(abi_185_a_release_or_a_reset_beside_it),
    BARE(abi_185_what_cannot_be_scored_anew_is_refused),
    OPENED(abi_185_without_codes_nothing_is_scored_anew),
    END,
};
