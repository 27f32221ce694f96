/* test_layered: important rows exactly, all others as values of quantised rows: ABI-150 .. ABI-156,
 * ABI-194 .. ABI-196.
 *
 * Connectors without quantised rows pass if they deliver every row exactly, unless hits are
 * required. Threads, Tests: see fixture.h. */
#include "conformance/bit_tables.h"
#include "conformance/disk.h"
#include "conformance/quantised.h"
#include "conformance/suite.h"

#include <string.h>

/* ---- 150 ---- */

static const uint32_t SHARES[] = {0, 50000, 500000, PPM};

static void abi_150_rows_are_stored_bytes_or_values_of_their_codes_in_every_dtype(void **state)
{
    struct fixture *fx = *state;
    static const struct {
        struct shape shape;
        uint32_t bits_k, bits_v;
    } CASES[] = {
        {{2, 4, 16, SPEC_DTYPE_F16}, 4, 2},  {{2, 1, 64, SPEC_DTYPE_BF16}, 5, 3},
        {{2, 3, 20, SPEC_DTYPE_F32}, 6, 4},  {{2, 2, 8, SPEC_DTYPE_F16}, 8, 8},
        {{2, 5, 16, SPEC_DTYPE_BF16}, 2, 6},
    };
    for (uint32_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        struct quantised quantised =
            quantised_open(fx, CASES[i].shape, 1500 + i, CASES[i].bits_k, CASES[i].bits_v);
        for (uint32_t s = 0; s < 4; s++)
            for (uint32_t layer = 0; layer < 2; layer++) {
                struct shot shot = shot_of(layer, SHARES[s]);
                shot.is_hinted = true;
                (void)fire(&quantised, shot);
                shot.dtype = SPEC_DTYPE_F32; /* a wider one has more digits of the values */
                (void)fire(&quantised, shot);
            }
        quantised_expect_sure(&quantised);
        quantised_close(&quantised);
    }
}

static void abi_150_rows_lie_where_any_memory_says(void **state)
{
    struct fixture *fx = *state;
    struct quantised quantised = quantised_open(fx, WIDE, 1510, 4, 2);
    for (enum layout layout = 0; layout < LAYOUTS; layout++)
        for (uint32_t s = 0; s < 4; s++) {
            struct shot shot = shot_of(layout % 3, SHARES[s]);
            shot.layout = layout;
            shot.is_hinted = s % 2 == 0;
            (void)fire(&quantised, shot);
            shot.has_slot_less =
                layout == LAYOUT_VLLM || layout == LAYOUT_BLOCK_HEADS || layout == LAYOUT_COLUMNS;
            (void)fire(&quantised, shot);
        }
    quantised_close(&quantised);
}

/* What a block codes is what its pass stored, not what a request matches of it. */
static void abi_150_codes_are_of_the_rows_that_one_pass_stored_of_a_chunk(void **state)
{
    struct fixture *fx = *state;
    static const uint64_t CUTS[] = {STORED, 100, 64, 65}, MATCHED[] = {STORED, 101, 128, 70, 30};
    static const uint64_t FROM[] = {0, 1, 29, 64, 69, 127};
    fixture_shape(fx, WIDE);
    quantised_configure(fx, 4, 2, "");
    for (uint32_t cut = 0; cut < 4; cut++) {
        struct quantised quantised = quantised_make(fx, 1520 + cut, 4, 2, STORED);
        quantised.cut = CUTS[cut];
        quantised_store(&quantised);
        for (uint32_t m = 0; m < 5; m++)
            for (uint32_t f = 0; f < 6 && FROM[f] < MATCHED[m]; f++) {
                struct shot shot = shot_of((m + f) % 3, SHARES[(m + f) % 2]);
                shot.ask.from = FROM[f];
                quantised.scene.matched = MATCHED[m];
                (void)fire(&quantised, shot);
            }
        quantised_close(&quantised);
    }
}

static void abi_150_the_next_process_finds_the_same_codes(void **state)
{
    struct fixture *fx = *state;
    struct quantised quantised = quantised_open(fx, WIDE, 1530, 3, 2);
    for (uint32_t opened = 0; opened < 2; opened++) {
        for (uint32_t layer = 0; layer < 3; layer++)
            (void)fire(&quantised, shot_of(layer, 50000));
        fixture_reopen(fx);
        quantised_settle(fx);
    }
    quantised_close(&quantised);
}

/* ---- 151 ---- */

static void abi_151_exact_rows_are_the_most_important_by_the_values_of_codes(void **state)
{
    struct fixture *fx = *state;
    for (uint32_t bits = 2; bits <= 4; bits++) {
        struct quantised quantised = quantised_open(fx, WIDE, 1540 + bits, bits, 2);
        for (uint32_t ppm = 10000; ppm < PPM; ppm += 90000) {
            struct shot shot = shot_of(ppm / 90000 % 3, ppm);
            shot.is_hinted = true;
            (void)fire(&quantised, shot);
            shot.ask.select.given |= SPEC_SELECT_METRIC;
            shot.ask.select.metric = SPEC_METRIC_LAST;
            shot.ask.from = 33;
            (void)fire(&quantised, shot);
            shot.ask.lacks_new_keys = true;
            shot.ask.first = 2;
            shot.ask.rows = 3;
            (void)fire(&quantised, shot);
        }
        quantised_expect_sure(&quantised);
        quantised_close(&quantised);
    }
}

static void abi_151_rows_that_are_kept_count_within_the_share(void **state)
{
    struct fixture *fx = *state;
    struct quantised quantised = quantised_open(fx, WIDE, 1550, 4, 2);
    static const uint32_t KEEPS[][2] = {{4, 0}, {0, 8}, {4, 16}, {30, 0}};
    for (uint32_t i = 0; i < 4; i++) {
        struct shot shot = shot_of(i % 3, 200000); /* 34 rows */
        shot.ask.select.given |= SPEC_SELECT_KEEP;
        shot.ask.select.keep_first = KEEPS[i][0];
        shot.ask.select.keep_last = KEEPS[i][1];
        (void)fire(&quantised, shot);
        shot.ask.from = 3;
        (void)fire(&quantised, shot);
    }
    quantised_expect_sure(&quantised);
    quantised_close(&quantised);
}

/* Queries of zeros: every row is as important as every other. */
static void abi_151_ties_go_to_the_lower_position(void **state)
{
    struct fixture *fx = *state;
    struct quantised quantised = quantised_open(fx, WIDE, 1560, 4, 2);
    quantised.scene.is_still = true;
    for (uint32_t s = 0; s < 4; s++) {
        struct shot shot = shot_of(s % 3, SHARES[s]);
        (void)fire(&quantised, shot);
        shot.ask.from = 33;
        (void)fire(&quantised, shot);
    }
    assert_int_equal(quantised.scene.sure, quantised.scene.asked);
    quantised_close(&quantised);
}

/* Items with queries teach; items without, which need the configuration's word, go by that, also
 * when the store is opened once more. Before anybody taught they have the lowest positions. */
static void abi_151_without_queries_what_was_important_before_is_exact(void **state)
{
    struct fixture *fx = *state;
    struct quantised quantised = quantised_open(fx, WIDE, 1570, 4, 2);
    for (uint32_t opened = 0; opened < 3; opened++) {
        quantised_configure(fx, 4, 2, "\"select\": {\"identify\": \"static\"}");
        for (uint32_t layer = 0; layer < 3; layer++)
            for (uint32_t s = 0; s < 3; s++) {
                struct shot shot = shot_of(layer, SHARES[s]);
                shot.ask.lacks_queries = true;
                (void)fire(&quantised, shot);
            }
        if (opened > 0)
            continue;
        quantised_configure(fx, 4, 2, "");
        for (uint32_t layer = 0; layer < 3; layer++)
            (void)fire(&quantised, shot_of(layer, 100000));
        quantised.is_taught = true;
    }
    quantised_expect_sure(&quantised);
    quantised_close(&quantised);
}

/* ---- 152 ---- */

/* A slab that holds a NaN has no codes: its rows come as they are, and count. */
static void abi_152_rows_of_a_slab_that_cannot_be_quantised_are_exact_and_count(void **state)
{
    struct fixture *fx = *state;
    static const uint64_t WHERE[] = {0, 63, 100, STORED - 1};
    static const uint32_t DTYPES[] = {SPEC_DTYPE_F16, SPEC_DTYPE_BF16, SPEC_DTYPE_F32};
    for (uint32_t i = 0; i < 4; i++) {
        fixture_shape(fx, (struct shape){2, 2, 16, DTYPES[i % 3]});
        quantised_configure(fx, 4, 2, "");
        struct quantised quantised = quantised_make(fx, 1570 + i, 4, 2, STORED);
        quantised.is_nan = true;
        quantised.lost = WHERE[i];
        quantised.lost_layer = i % 2;
        quantised.nan_value = (int)(i / 2);
        quantised_store(&quantised);
        for (uint32_t s = 0; s < 4; s++)
            for (uint32_t layer = 0; layer < 2; layer++) {
                struct shot shot = shot_of(layer, SHARES[s]);
                (void)fire(&quantised, shot);
                shot.ask.from = 20;
                (void)fire(&quantised, shot);
            }
        quantised_expect_sure(&quantised);
        quantised_close(&quantised);
    }
}

/* Stored by a configuration that makes no codes. */
static void abi_152_rows_without_codes_are_exact(void **state)
{
    struct fixture *fx = *state;
    fixture_shape(fx, WIDE);
    struct quantised quantised = quantised_make(fx, 1580, 4, 2, STORED);
    fixture_open(fx);
    (void)quantised_store_part(&quantised, STORED);
    quantised_configure(fx, 4, 2, "");
    for (uint32_t layer = 0; layer < 3; layer++) { /* they may get codes at any time */
        struct shot shot = shot_of(layer, 50000);
        struct spec_lookup_result found = scene_find(&quantised.scene, 0);
        shot_make(&quantised, &shot, &found);
        assert_ok(fx, fx->api->get_important(fx->conn, &shot.answer.item, 1, &fx->error));
        if (!shot.missed) {
            shot_expect_area(&quantised, &shot);
            assert_true(shot.answer.item.exact_rows >= 9);
            assert_int_equal(shot.answer.item.exact_rows, shot_count_bits(&shot));
        }
        shot_free(&shot);
        fixture_release(fx, found.request);
    }
    quantised_close(&quantised);
}

/* ---- 153 ---- */

static void abi_153_all_rows_exact_is_the_whole_load(void **state)
{
    struct fixture *fx = *state;
    struct quantised quantised = quantised_open(fx, WIDE, 1590, 4, 2);
    for (uint32_t layer = 0; layer < 3; layer++)
        for (uint32_t way = 0; way < 2; way++) {
            struct shot shot = shot_of(layer, PPM);
            struct spec_lookup_result found = scene_find(&quantised.scene, 0);
            struct spec_stats before = fixture_stats(fx);
            shot.ask.lacks_queries = true; /* nothing is ranked */
            if (way == 0) {                /* neither guessed nor asked for bits */
                (void)fire_in(&quantised, &shot, &found);
            } else {
                shot_make(&quantised, &shot, &found);
                shot.answer.item.exact_bits = NULL;
                shot.answer.item.exact_bit_words = 0;
                assert_ok(fx, fx->api->get_important(fx->conn, &shot.answer.item, 1, &fx->error));
                area_expect(&shot.answer.area, &fx->shape, &quantised.scene.prompt, 0,
                            shot.missed ? 0 : STORED, layer);
            }
            struct spec_stats after = fixture_stats(fx);
            assert_int_equal(shot.answer.item.exact_rows, shot.missed ? 0 : STORED);
            assert_int_equal(shot.answer.item.provenance.kind, SPEC_PROVENANCE_EXACT);
            assert_int_equal(after.quantised_layers, before.quantised_layers);
            shot_free(&shot);
            fixture_release(fx, found.request);
        }
    quantised_close(&quantised);
}

/* ---- 154 ---- */

static void abi_154_what_a_deadline_leaves_out_stays_quantised_and_is_told(void **state)
{
    struct fixture *fx = *state;
    struct quantised quantised = quantised_open(fx, WIDE, 1600, 4, 2);
    uint32_t in_time = 0;
    for (uint32_t round = 0; round < 12; round++) {
        struct shot shot = shot_of(round % 3, 500000);
        shot.deadline_ns = round % 2 == 0 ? 1 : 1000;
        shot.may_be_late = true; /* where codes take longer than the clause waits */
        in_time += fire(&quantised, shot);
        shot.deadline_ns = 0;
        (void)fire(&quantised, shot);
    }
    if (conf_options.require_hits)
        assert_true(in_time > 0);
    quantised_close(&quantised);
}

static void abi_154_exact_rows_end_at_the_budget_of_bytes(void **state)
{
    struct fixture *fx = *state;
    struct quantised quantised = quantised_open(fx, WIDE, 1610, 4, 2);
    uint64_t both = 2 * row_bytes(&fx->shape);
    static const uint64_t ROWS[] = {1, 10, 42, 84, 85, 170};
    for (uint32_t i = 0; i < 6; i++) {
        struct shot shot = shot_of(i % 3, 500000); /* 85 rows */
        struct spec_lookup_result found = scene_find(&quantised.scene, 0);
        shot.budget_bytes = ROWS[i] * both + both - 1;
        (void)fire_in(&quantised, &shot, &found);
        if (shot.answer.item.result_flags & SPEC_IMPORTANT_PARTIAL)
            assert_true(shot.answer.item.exact_rows * both <= shot.budget_bytes);
        if (conf_options.require_hits)
            assert_int_equal(shot.answer.item.result_flags,
                             ROWS[i] < 85 ? SPEC_IMPORTANT_PARTIAL : 0);
        shot_free(&shot);
        fixture_release(fx, found.request);
    }
    quantised_close(&quantised);
}

/* ---- 155, and what follows of it: 120, 121, 122 ---- */

/* A pass over the match: delivered at the share, it stores what is fresh. True: it is stored. */
static bool run_pass(struct quantised *quantised, uint32_t exact_ppm, uint32_t *ret_exact_ppm)
{
    struct fixture *fx = quantised->scene.fx;
    struct spec_lookup_result found = scene_find(&quantised->scene, 0);
    spec_status status = SPEC_E_DROPPED;
    *ret_exact_ppm = PPM;
    for (uint32_t layer = 0; layer < fx->shape.layers; layer++) {
        struct shot shot = shot_of(layer, exact_ppm);
        (void)fire_in(quantised, &shot, &found);
        *ret_exact_ppm = shot_worse(&shot, *ret_exact_ppm);
        shot_free(&shot);
        status = quantised_put(quantised, &found, layer);
    }
    fixture_release(fx, found.request);
    return status == SPEC_OK && found.matched_tokens > 0;
}

static void abi_155_what_is_stored_on_quantised_rows_says_so(void **state)
{
    struct fixture *fx = *state;
    static const uint32_t PPMS[] = {0, 33333, 500000, PPM};
    fixture_shape(fx, WIDE);
    quantised_configure(fx, 5, 3, "");
    for (uint32_t i = 0; i < 4; i++) {
        struct quantised quantised = quantised_make(fx, 1620 + i, 5, 3, STORED);
        uint32_t worst;
        quantised_store(&quantised);
        bool stored = run_pass(&quantised, PPMS[i], &worst);
        for (uint32_t opened = 0; opened < 2; opened++, fixture_reopen(fx)) {
            struct spec_lookup_params params = lookup_params(&quantised.scene.prompt);
            params.max_tokens = quantised.scene.prompt.count;
            struct spec_lookup_result found = fixture_lookup(fx, &params);
            if (stored)
                expect_match(&found, quantised.scene.prompt.count);
            if (stored && found.matched_tokens > STORED && worst < PPM) {
                assert_int_equal(found.provenance.kind, SPEC_PROVENANCE_LOSSY);
                assert_int_equal(found.provenance.computed_on, SPEC_PROVENANCE_LOSSY);
                assert_int_equal(found.provenance.bits_k, 5);
                assert_int_equal(found.provenance.bits_v, 3);
                assert_int_equal(found.provenance.exact_ppm, worst);
            } else {
                assert_int_equal(found.provenance.kind, SPEC_PROVENANCE_EXACT);
            }
            fixture_release(fx, found.request);
            params.flags = SPEC_LOOKUP_REQUIRE_EXACT; /* ends before it */
            found = fixture_lookup(fx, &params);
            expect_match(&found, worst < PPM ? STORED : quantised.scene.prompt.count);
            assert_int_equal(found.provenance.kind, SPEC_PROVENANCE_EXACT);
            fixture_release(fx, found.request);
        }
        quantised_close(&quantised);
    }
}

static void abi_122_passes_over_quantised_rows_are_dropped_where_lossy_is_no(void **state)
{
    struct fixture *fx = *state;
    fixture_shape(fx, WIDE);
    quantised_configure(fx, 4, 2, "\"store\": {\"lossy\": \"no\"}");
    for (uint32_t i = 0; i < 2; i++) {
        struct quantised quantised = quantised_make(fx, 1630 + i, 4, 2, STORED);
        uint32_t worst;
        quantised_store(&quantised);
        bool stored = run_pass(&quantised, i == 0 ? 50000 : PPM, &worst);
        assert_true(!stored || worst == PPM);
        struct spec_lookup_params params = lookup_params(&quantised.scene.prompt);
        params.max_tokens = quantised.scene.prompt.count;
        struct spec_lookup_result found = fixture_lookup(fx, &params);
        assert_int_equal(found.provenance.kind, SPEC_PROVENANCE_EXACT);
        if (conf_options.require_hits)
            assert_int_equal(found.matched_tokens, i == 0 ? STORED : quantised.scene.prompt.count);
        fixture_release(fx, found.request);
        quantised_close(&quantised);
    }
}

/* ---- 156 ---- */

enum wound { IN_CODES, IN_SCALES, IN_CHECKSUM, WOUNDS };

/* A row's codes of 4 bits, or the least values of its slab: as they stand on the disk. */
static uint64_t bytes_of(const struct quantised *quantised, uint64_t position, uint32_t layer,
                         int value, enum wound wound, uint8_t *bytes)
{
    const struct shape *shape = &quantised->scene.fx->shape;
    uint32_t channels = shape->heads * shape->head_size; /* a multiple of 16: no padding */
    memset(bytes, 0, 2ull * channels);
    for (uint32_t c = 0; c < channels; c++) {
        struct scale scale = quantised_scale(quantised, position, layer, value, c);
        double x = truth_number(&quantised->scene.prompt, position, layer, value,
                                c / shape->head_size, c % shape->head_size);
        if (wound == IN_SCALES)
            put_number(scale.min, SPEC_DTYPE_F16, bytes + 2ull * c);
        else
            bytes[c / 2] |= (uint8_t)(scale_code(x, scale, 4) << c % 2 * 4);
    }
    return wound == IN_SCALES ? 2ull * channels : channels / 2;
}

static void abi_156_rows_of_a_damaged_block_are_exact(void **state)
{
    struct fixture *fx = *state;
    static const uint64_t WHERE[] = {5, 127, 128};
    for (uint32_t i = 0; i < 2 * WOUNDS; i++) {
        struct quantised quantised = quantised_open(fx, WIDE, 1640 + i, 4, 4);
        enum wound wound = i % WOUNDS;
        uint64_t position = WHERE[i % 3], first, end;
        uint8_t bytes[2 * CHANNELS];
        int value = (int)(i / WOUNDS);
        quantised_slab(&quantised, position, &first, &end);
        if (wound == IN_CHECKSUM) /* behind the last row's codes */
            position = end - 1;
        uint64_t count = bytes_of(&quantised, position, 1, value, wound, bytes);
        fixture_close(fx);
        uint64_t copies =
            disk_flip(fx, bytes, count, wound == IN_CHECKSUM ? count : (uint64_t)i * 3 + 1);
        if (conf_options.require_hits)
            assert_int_equal(copies, 1);
        fixture_open(fx);
        quantised.lost = copies > 0 ? position : NOWHERE;
        quantised.lost_layer = 1;
        for (uint32_t s = 0; s < 4; s++)
            for (uint32_t layer = 0; layer < 3; layer++)
                (void)fire(&quantised, shot_of(layer, SHARES[s]));
        if (conf_options.require_hits)
            assert_true(fixture_stats(fx).bad_blocks > 0);
        quantised_expect_sure(&quantised);
        quantised_close(&quantised);
    }
}

/* ---- 058 ---- */

/* A row of layer 1 changed on the disk. Whoever does not want it exactly gets what was asked for;
 * else nothing is delivered, at no layer, also of a request beside it, and nobody is promised the
 * row again. */
/* ---- 194 ---- */

/* Nothing of a match is of the disk for which nothing was read of it, and the other way round; what
 * comes from memory is what the disk has, also of a part of the match. */
static void abi_194_tier_rows_say_where_codes_came_from(void **state)
{
    struct fixture *fx = *state;
    fixture_shape(fx, WIDE);
    quantised_configure(fx, 4, 2, "\"host_bytes\": \"64MiB\"");
    struct quantised quantised = quantised_make(fx, 1940, 4, 2, STORED);
    quantised_store(&quantised);
    for (uint32_t round = 0; round < 3; round++)
        for (uint32_t layer = 0; layer < 3; layer++) {
            struct shot shot = shot_of(layer, 0);
            shot.ask.from = round * 29;
            struct spec_lookup_result found = scene_find(&quantised.scene, shot.ask.from);
            (void)fire_in(&quantised, &shot, &found);
            const struct spec_important *item = &shot.answer.item;
            uint64_t disk = item->tier_rows[SPEC_TIER_DISK], rows = 0;
            for (uint32_t tier = 0; tier < SPEC_TIERS; tier++)
                rows += item->tier_rows[tier];
            assert_int_equal(rows, shot.missed ? 0 : item->row_count);
            assert_int_equal(item->read_bytes > 0, disk > 0);
            shot_free(&shot);
            fixture_release(fx, found.request);
            struct shot exact = shot_of(layer, 500000); /* rows that agree with their tags */
            exact.ask.from = round * 29;
            (void)fire(&quantised, exact);
        }
    quantised_close(&quantised);
}

/* Of every layer: after it loads read nothing of the disk, neither codes nor chosen rows. */
static void abi_195_what_rows_are_chosen_by_is_staged_too(void **state)
{
    struct fixture *fx = *state;
    fixture_shape(fx, WIDE);
    quantised_configure(fx, 4, 2, "\"host_bytes\": \"64MiB\"");
    struct quantised quantised = quantised_make(fx, 1950, 4, 2, STORED);
    quantised_store(&quantised);
    fixture_reopen(fx);
    struct spec_lookup_result found = scene_find(&quantised.scene, 0);
    const struct spec_prefetch_to_host_params params = {.struct_size = sizeof(params),
                                                        .request = found.request};
    spec_ticket ticket = 0;
    spec_status status = fx->api->prefetch_to_host(fx->conn, &params, &ticket, &fx->error);
    spec_status ended = status;
    if (status == SPEC_OK)
        assert_ok(fx, fx->api->wait(fx->conn, &ticket, 1, CONF_WAIT_NS, &ended, &fx->error));
    if (conf_options.require_hits)
        assert_status(ended, SPEC_OK);
    for (uint32_t layer = 0; layer < 2 * WIDE.layers && ended == SPEC_OK; layer++) {
        struct spec_lookup_result again = scene_find(&quantised.scene, 0);
        struct shot shot = shot_of(layer / 2, layer % 2 * 300000);
        (void)fire_in(&quantised, &shot, &again);
        assert_int_equal(shot.answer.item.read_bytes, 0);
        assert_int_equal(shot.answer.item.tier_rows[SPEC_TIER_DISK], 0);
        shot_free(&shot);
        fixture_release(fx, again.request);
    }
    fixture_release(fx, found.request);
    quantised_close(&quantised);
}

static void abi_058_a_changed_row_ends_a_layered_load(void **state)
{
    struct fixture *fx = *state;
    static const uint64_t WHERE[] = {0, 64, 77, STORED - 1};
    uint64_t ended = 0;
    for (uint32_t i = 0; i < 4; i++) {
        struct quantised quantised = quantised_open(fx, WIDE, 1650 + i, 4, 2);
        uint64_t copies = quantised_damage(&quantised, WHERE[i], 1);
        struct shot shot = shot_of(1, PPM - 6000); /* all but one */
        struct spec_lookup_result found = scene_find(&quantised.scene, 0);
        struct spec_lookup_result beside = scene_find(&quantised.scene, 0);
        shot_make(&quantised, &shot, &found);
        spec_status status = fx->api->get_important(fx->conn, &shot.answer.item, 1, &fx->error);
        assert_int_equal(status, shot.answer.item.status);
        if (status == SPEC_OK) {
            shot_expect(&quantised, &shot);
            assert_true(copies == 0 || !shot_bit(&shot, WHERE[i]));
        } else {
            assert_true(status == SPEC_E_CORRUPT || status == SPEC_E_IO);
            assert_true(shot.answer.item.failed_position <= WHERE[i]);
            shot.answer.item.layer = 2;
            assert_status(fx->api->get_important(fx->conn, &shot.answer.item, 1, &fx->error),
                          status);
            shot.answer.item.request = beside.request;
            shot.answer.item.layer = 1;
            status = fx->api->get_important(fx->conn, &shot.answer.item, 1, &fx->error);
            assert_true(status == SPEC_E_CORRUPT || status == SPEC_E_IO);
            ended++;
        }
        shot_free(&shot);
        fixture_release(fx, found.request);
        fixture_release(fx, beside.request);
        struct spec_lookup_params params = lookup_params(&quantised.scene.prompt);
        found = fixture_lookup(fx, &params);
        assert_true(status == SPEC_OK || found.matched_tokens <= WHERE[i]);
        fixture_release(fx, found.request);
        quantised_close(&quantised);
    }
    if (conf_options.require_hits)
        assert_true(ended > 0);
}

/* ---- 196 ---- */

struct rope {
    uint32_t kind;
    double theta;
    bool is_llama3;
};

/* Configured and described, not stored. */
static struct quantised free_open(struct fixture *fx, struct shape shape, const struct rope *rope,
                                  struct bit_counts *bit_counts, uint64_t seed)
{
    static const double LLAMA3[4] = {8, 1, 4, 8192};
    fixture_shape(fx, shape);
    fx->model.rope_kind = rope->kind;
    fx->model.rope_theta = rope->theta;
    if (rope->is_llama3) {
        fx->model.rope_scaling_kind = "llama3";
        memcpy(fx->model.rope_scaling, LLAMA3, sizeof(LLAMA3));
    }
    bits_configure(fx, bit_counts);
    struct quantised quantised =
        quantised_make(fx, seed, bit_counts->halves[0] / 2, bit_counts->halves[1] / 2, STORED);
    quantised.bit_counts = bit_counts;
    quantised.scene.prompt.is_steep = true;
    return quantised;
}

struct free_case {
    struct shape shape;
    struct rope rope;
    uint32_t halves[2];
};

/* Stored, and what its codes stand for is known; or the test is skipped. */
static struct quantised free_stored(struct fixture *fx, const struct free_case *how,
                                    struct bit_counts *bit_counts, uint64_t seed)
{
    memcpy(bit_counts->halves, how->halves, sizeof(bit_counts->halves));
    struct quantised quantised = free_open(fx, how->shape, &how->rope, bit_counts, seed);
    quantised_store(&quantised);
    if (!bits_read(&quantised))
        conf_skip("no codes of free widths were found");
    return quantised;
}

static void
abi_196_codes_of_bits_per_channel_are_turned_where_they_are_read_in_every_dtype(void **state)
{
    struct fixture *fx = *state;
    static struct bit_counts bit_counts;
    static const struct free_case CASES[] = {
        {{2, 4, 16, SPEC_DTYPE_F16}, {SPEC_ROPE_HALF, 10000, false}, {6, 4}},
        {{2, 1, 64, SPEC_DTYPE_BF16}, {SPEC_ROPE_INTERLEAVED, 500000, false}, {7, 5}},
        {{2, 2, 24, SPEC_DTYPE_F32}, {SPEC_ROPE_HALF, 500000, true}, {8, 3}},
        {{2, 1, 128, SPEC_DTYPE_F16}, {SPEC_ROPE_NONE, 0, false}, {5, 8}},
    };
    for (uint32_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        struct quantised quantised = free_stored(fx, &CASES[i], &bit_counts, 1700 + i);
        assert_true(bit_counts.least[0] <
                    bit_counts.most[0]); /* or there is little to turn wrong */
        for (uint32_t s = 0; s < 4; s++)
            for (uint32_t layer = 0; layer < 2; layer++) {
                struct shot shot = shot_of(layer, SHARES[s]);
                shot.is_hinted = true;
                (void)fire(&quantised, shot);
                shot.dtype = SPEC_DTYPE_F32;
                shot.layout = (enum layout)((2 * i + s) % LAYOUTS);
                (void)fire(&quantised, shot);
                shot.ask.from = 21 + 32 * s;
                (void)fire(&quantised, shot);
            }
        quantised_expect_sure(&quantised);
        quantised_close(&quantised);
    }
}

/* Queries came between the passes: what is coded from then on may have other tables. */
static void abi_196_each_block_is_read_by_the_table_that_it_begins_with(void **state)
{
    struct fixture *fx = *state;
    static struct bit_counts bit_counts; /* no initialiser: it would be 3 MB of the program */
    bit_counts.halves[0] = 6, bit_counts.halves[1] = 5;
    static const struct rope ROPE = {SPEC_ROPE_HALF, 10000, false};
    struct quantised quantised = free_open(fx, WIDE, &ROPE, &bit_counts, 1710);
    quantised.cut = 64;
    (void)quantised_store_part(&quantised, quantised.cut);
    quantised_settle(fx);
    quantised.scene.matched = quantised.cut;
    if (!bits_read(&quantised))
        conf_skip("no codes of free widths were found");
    for (uint32_t i = 0; i < 4 * 3; i++) /* some rows of queries say nothing yet */
        (void)fire(&quantised, shot_of(i % 3, 50000));
    assert_true(quantised_store_part(&quantised, STORED) <= quantised.cut);
    quantised_settle(fx);
    quantised.scene.matched = STORED;
    bool is_another = false;
    for (uint32_t opened = 0; opened < 2 && bits_read(&quantised); opened++)
        for (uint32_t layer = 0; layer < 3; layer++) {
            struct shot shot = shot_of(layer, SHARES[opened]);
            (void)fire(&quantised, shot);
            shot.ask.from = 70;
            (void)fire(&quantised, shot);
            is_another |= memcmp(bit_counts.tables[layer][0][0],
                                 bit_counts.tables[layer][0][STORED - 1], CHANNELS) != 0;
        }
    if (conf_options.require_hits)
        assert_true(is_another);
    quantised_close(&quantised);
}

const struct conf_test CONF_LAYERED[] = {
    BARE(abi_150_rows_are_stored_bytes_or_values_of_their_codes_in_every_dtype),
    BARE(abi_150_rows_lie_where_any_memory_says),
    BARE(abi_150_codes_are_of_the_rows_that_one_pass_stored_of_a_chunk),
    BARE(abi_150_the_next_process_finds_the_same_codes),
    BARE(abi_151_exact_rows_are_the_most_important_by_the_values_of_codes),
    BARE(abi_151_rows_that_are_kept_count_within_the_share),
    BARE(abi_151_ties_go_to_the_lower_position),
    BARE(abi_151_without_queries_what_was_important_before_is_exact),
    BARE(abi_152_rows_of_a_slab_that_cannot_be_quantised_are_exact_and_count),
    BARE(abi_152_rows_without_codes_are_exact),
    BARE(abi_153_all_rows_exact_is_the_whole_load),
    BARE(abi_154_what_a_deadline_leaves_out_stays_quantised_and_is_told),
    BARE(abi_154_exact_rows_end_at_the_budget_of_bytes),
    BARE(abi_155_what_is_stored_on_quantised_rows_says_so),
    BARE(abi_122_passes_over_quantised_rows_are_dropped_where_lossy_is_no),
    BARE(abi_156_rows_of_a_damaged_block_are_exact),
    BARE(abi_194_tier_rows_say_where_codes_came_from),
    BARE(abi_195_what_rows_are_chosen_by_is_staged_too),
    BARE(abi_058_a_changed_row_ends_a_layered_load),
    BARE(abi_196_codes_of_bits_per_channel_are_turned_where_they_are_read_in_every_dtype),
    BARE(abi_196_each_block_is_read_by_the_table_that_it_begins_with),
    END,
};
