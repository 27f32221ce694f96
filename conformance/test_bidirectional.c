/* test_bidirectional: bidirectional loads: ABI-132, ABI-205, ABI-206; of quantised rows: ABI-224,
 * ABI-225.
 *
 *   desk   a request's match, one area per layer. Computed rows have another truth of the same
 *          tokens, so that the writer of each row is known
 *
 * Invariants: every byte of every area is compared, also between the two ends after they have met.
 * Threads, Tests: see fixture.h. */
#include "conformance/disk.h"
#include "conformance/quantised.h"
#include "conformance/suite.h"

#include <stdlib.h>
#include <string.h>

#define LAYERS_MAX 8u
#define TOKENS     500u
#define GRID       64u

struct desk {
    struct fixture *fx;
    struct prompt prompt, other; /* `other`: what is computed */
    struct spec_lookup_result found;
    uint64_t from, front; /* positions: the request's first, the next to be given out */
    struct area areas[LAYERS_MAX];
    struct spec_important items[LAYERS_MAX];
    spec_ticket ticket;
};

/* Rows of 8 KiB, so that they come in several operations. */
static struct desk desk_make(struct fixture *fx, uint64_t seed)
{
    static const struct shape SHAPE = {2, 8, 128, SPEC_DTYPE_F32};
    if (fx->conn == NULL) {
        fixture_shape(fx, SHAPE);
        fixture_open(fx);
    }
    struct desk desk = {.fx = fx, .prompt = prompt_make(seed, TOKENS)};
    desk.other = prompt_make(seed, TOKENS);
    prompt_salt(&desk.other, seed + 1);
    assert_true(fx->shape.layers <= LAYERS_MAX);
    (void)fixture_store(fx, &desk.prompt);
    return desk;
}

static void desk_free(struct desk *desk)
{
    prompt_free(&desk->prompt);
    prompt_free(&desk->other);
}

/* expected: so many tokens are promised. */
static void desk_look(struct desk *desk, enum layout layout, uint64_t from, uint64_t expected)
{
    struct fixture *fx = desk->fx;
    struct spec_lookup_params params = lookup_params(&desk->prompt);
    params.from_token = desk->from = desk->front = from;
    desk->found = fixture_lookup(fx, &params);
    expect_match(&desk->found, expected);
    for (uint32_t layer = 0; layer < fx->shape.layers; layer++) {
        desk->areas[layer] = area_make(&fx->shape, layout, desk->found.matched_tokens - from);
        desk->items[layer] = important(desk->found.request, layer, &desk->areas[layer].memory);
        desk->items[layer].flags = SPEC_ITEM_BIDIRECTIONAL;
    }
}

static void desk_leave(struct desk *desk)
{
    for (uint32_t layer = 0; layer < desk->fx->shape.layers; layer++)
        area_free(&desk->areas[layer]);
    fixture_release(desk->fx, desk->found.request);
}

static void desk_submit(struct desk *desk)
{
    struct fixture *fx = desk->fx;
    assert_ok(fx, fx->api->get_important_submit(fx->conn, desk->items, fx->shape.layers,
                                                &desk->ticket, &fx->error));
}

static spec_status desk_wait(struct desk *desk)
{
    struct fixture *fx = desk->fx;
    return fx->api->get_important_wait(fx->conn, desk->ticket, CONF_WAIT_NS, &fx->error);
}

static void put_row(struct desk *desk, struct area *area, const struct prompt *prompt,
                    uint64_t position, uint32_t layer)
{
    const struct shape *shape = &desk->fx->shape;
    uint8_t *row = malloc(row_bytes(shape));
    assert_non_null(row);
    for (int value = 0; value < 2; value++) {
        truth_row(shape, prompt, position, layer, value, row);
        for (uint32_t head = 0; head < shape->heads; head++)
            area_put(area, position - desk->from, head, value, row + head * head_bytes(shape));
    }
    free(row);
}

/* Asks, and computes what is given out; false: MET. */
static bool desk_compute(struct desk *desk, uint64_t budget)
{
    struct fixture *fx = desk->fx;
    struct spec_next_chunk chunk = {
        .struct_size = sizeof(chunk), .request = desk->found.request, .budget_tokens = budget};
    assert_ok(fx, fx->api->next_chunk(fx->conn, &chunk, &fx->error));
    assert_int_equal(chunk.first_token, desk->front);
    assert_int_equal(chunk.state, chunk.token_count > 0 ? SPEC_CHUNK_COMPUTE : SPEC_CHUNK_MET);
    assert_true(chunk.token_count <= budget);
    assert_true(chunk.first_token + chunk.token_count <= desk->found.matched_tokens);
    for (uint64_t i = 0; i < chunk.token_count; i++)
        for (uint32_t layer = 0; layer < fx->shape.layers; layer++)
            put_row(desk, &desk->areas[layer], &desk->other, desk->front + i, layer);
    desk->front += chunk.token_count;
    return chunk.token_count > 0;
}

/* What was reported, with this status; returns the first position that was loaded. */
static uint64_t desk_told(struct desk *desk, spec_status status)
{
    uint64_t end = desk->found.matched_tokens, rows = desk->items[0].row_count;
    assert_true(rows <= end - desk->front);
    for (uint32_t layer = 0; layer < desk->fx->shape.layers; layer++) {
        assert_int_equal(desk->items[layer].status, status);
        assert_int_equal(desk->items[layer].row_count, rows);
        assert_int_equal(desk->items[layer].next_position, end);
    }
    return end - rows;
}

/* They have met: what was given out is as it was computed, the rest as it was stored, and beside
 * them nothing was written. */
static void desk_expect(struct desk *desk)
{
    for (uint32_t layer = 0; layer < desk->fx->shape.layers; layer++) {
        struct area *area = &desk->areas[layer], right = area_twin(area);
        for (uint64_t p = desk->from; p < desk->found.matched_tokens; p++)
            put_row(desk, &right, p < desk->front ? &desk->other : &desk->prompt, p, layer);
        assert_memory_equal(area->bytes, right.bytes, area->byte_count);
        free(right.bytes);
    }
}

/* ---- 132 ---- */

static void abi_132_a_token_is_given_out_or_loaded_and_never_both(void **state)
{
    struct fixture *fx = *state;
    static const uint64_t BUDGETS[] = {1, 17, 64, 100, 512};
    struct desk desk = desk_make(fx, 1320);
    for (uint32_t i = 0; i < 24; i++) {
        desk_look(&desk, (enum layout)(i % LAYOUTS), i % 3 * 50, TOKENS - 1);
        if (i % 4 == 1 || i % 8 == 6)
            (void)desk_compute(&desk, 30); /* before there is another end */
        desk_submit(&desk);
        if (i % 8 < 6)
            while (desk_compute(&desk, BUDGETS[i % 5]))
                continue;
        assert_ok(fx, desk_wait(&desk));
        assert_int_equal(desk_told(&desk, SPEC_OK), desk.front);
        assert_false(desk_compute(&desk, 512));
        desk_expect(&desk);
        desk_leave(&desk);
    }
    desk_free(&desk);
}

/* Where a range ends that begins at `first`, when nothing is loaded. */
static uint64_t grid_end(const struct desk *desk, uint64_t first, uint64_t budget)
{
    uint64_t end = first + budget, even = end - end % GRID;
    if (end >= desk->found.matched_tokens)
        return desk->found.matched_tokens;
    return even > first ? even : end;
}

static void abi_132_ranges_end_on_the_chunk_grid(void **state)
{
    struct fixture *fx = *state;
    static const uint64_t BUDGETS[] = {1, 17, 63, 64, 65, 100, 128, 512};
    fixture_shape(fx, (struct shape){2, 4, 64, SPEC_DTYPE_F16});
    fixture_reconfigure(fx, "\"chunk_tokens\": 64");
    struct desk desk = desk_make(fx, 1323);
    for (uint32_t i = 0; i < 24; i++) {
        uint64_t budget = BUDGETS[i % 8], end;
        desk_look(&desk, LAYOUT_PACKED, i % 3 * 50, TOKENS - 1);
        for (;;) {
            end = grid_end(&desk, desk.front, budget);
            if (!desk_compute(&desk, budget))
                break;
            assert_int_equal(desk.front, end);
        }
        assert_int_equal(desk.front, desk.found.matched_tokens);
        desk_submit(&desk); /* nothing is left to be loaded */
        assert_ok(fx, desk_wait(&desk));
        assert_int_equal(desk_told(&desk, SPEC_OK), desk.front);
        desk_expect(&desk);
        desk_leave(&desk);
    }
    desk_free(&desk);
}

static void abi_132_without_a_match_both_ends_have_met(void **state)
{
    struct fixture *fx = *state;
    struct desk stored = desk_make(fx, 1321);
    struct desk desk = {.fx = fx, .prompt = prompt_make(1329, TOKENS)};
    desk_free(&stored);
    desk_look(&desk, LAYOUT_PACKED, 0, 0);
    assert_false(desk_compute(&desk, 64));
    desk_submit(&desk);
    assert_false(desk_compute(&desk, 64));
    assert_ok(fx, desk_wait(&desk));
    assert_int_equal(desk_told(&desk, SPEC_OK), 0);
    desk_leave(&desk);
    desk_free(&desk);
}

static void abi_132_what_is_no_range_is_invalid_and_a_released_request_stale(void **state)
{
    struct fixture *fx = *state;
    struct desk desk = desk_make(fx, 1322);
    desk_look(&desk, LAYOUT_PACKED, 0, TOKENS - 1);
    struct spec_next_chunk chunk = {
        .struct_size = sizeof(chunk), .request = desk.found.request, .token_count = 77};
    assert_status(fx->api->next_chunk(fx->conn, &chunk, &fx->error), SPEC_E_INVALID);
    assert_status(fx->api->next_chunk(fx->conn, NULL, &fx->error), SPEC_E_INVALID);
    chunk.budget_tokens = 64;
    chunk.request++;
    assert_status(fx->api->next_chunk(fx->conn, &chunk, &fx->error), SPEC_E_STALE);
    desk_leave(&desk);
    chunk.request--;
    assert_status(fx->api->next_chunk(fx->conn, &chunk, &fx->error), SPEC_E_STALE);
    assert_int_equal(chunk.token_count, 77);
    desk_free(&desk);
}

/* ---- 205 ---- */

static void abi_205_what_nobody_computes_is_loaded(void **state)
{
    struct fixture *fx = *state;
    struct desk desk = desk_make(fx, 2050);
    for (uint32_t i = 0; i < LAYOUTS; i++) {
        desk_look(&desk, (enum layout)i, i % 2 * 101, TOKENS - 1);
        desk_submit(&desk);
        assert_ok(fx, desk_wait(&desk));
        assert_int_equal(desk_told(&desk, SPEC_OK), desk.from);
        desk_expect(&desk);
        desk_leave(&desk);
    }
    desk_free(&desk);
}

/* However soon it comes, what is said to be there is, and the rest is given out. */
static void abi_205_a_deadline_ends_the_loading_alone(void **state)
{
    struct fixture *fx = *state;
    struct desk desk = desk_make(fx, 2051);
    for (uint64_t ns = 1; ns < 100000000; ns *= 10) {
        desk_look(&desk, LAYOUT_VLLM, 0, TOKENS - 1);
        for (uint32_t layer = 0; layer < fx->shape.layers; layer++)
            desk.items[layer].deadline_ns = ns;
        desk_submit(&desk);
        assert_ok(fx, desk_wait(&desk));
        uint64_t first = desk_told(&desk, SPEC_OK);
        bool is_partial = (desk.items[0].result_flags & SPEC_IMPORTANT_PARTIAL) != 0;
        assert_true(first == 0 || is_partial);
        while (desk_compute(&desk, 64))
            continue;
        assert_int_equal(desk.front, first);
        desk_expect(&desk);
        desk_leave(&desk);
    }
    desk_free(&desk);
}

static void abi_205_a_tail_is_all_layers_of_one_request_in_order(void **state)
{
    struct fixture *fx = *state;
    struct desk desk = desk_make(fx, 2052);
    uint32_t layers = fx->shape.layers;
    desk_look(&desk, LAYOUT_PACKED, 0, TOKENS - 1);
    struct spec_important good[LAYERS_MAX];
    memcpy(good, desk.items, sizeof(good));
    struct spec_select select = {.struct_size = sizeof(select)};
    for (uint32_t wrong = 0; wrong < 7; wrong++) {
        struct spec_important *last = &desk.items[layers - 1];
        memcpy(desk.items, good, sizeof(good));
        last->layer = wrong == 0 ? 0 : last->layer;
        last->flags = wrong == 1   ? 0
                      : wrong == 2 ? SPEC_ITEM_BIDIRECTIONAL | SPEC_ITEM_AHEAD
                                   : last->flags;
        last->budget_bytes = wrong == 3;
        last->select = wrong == 4 ? &select : NULL;
        last->refine_of = wrong == 5;
        assert_status(fx->api->get_important_submit(fx->conn, desk.items, layers - (wrong == 6),
                                                    &desk.ticket, &fx->error),
                      SPEC_E_INVALID);
    }
    memcpy(desk.items, good, sizeof(good));
    assert_status(fx->api->get_important(fx->conn, desk.items, layers, &fx->error), SPEC_E_INVALID);
    desk_submit(&desk);
    assert_ok(fx, desk_wait(&desk));
    desk_expect(&desk);
    desk_leave(&desk);
    desk_free(&desk);
}

/* ---- 206 ---- */

/* A row of one layer is damaged: what lies above its block was loaded and is good, in all layers;
 * the rest is given out, also where it was said that the ends have met. */
static void abi_206_what_fails_is_given_out_and_the_rest_is_good(void **state)
{
    struct fixture *fx = *state;
    static const uint64_t AT[] = {0, 130, 300, 498};
    for (uint32_t i = 0; i < 8; i++) {
        struct desk desk = desk_make(fx, 2060 + 10 * i);
        uint64_t at = AT[i % 4];
        fixture_close(fx);
        uint64_t copies =
            disk_damage(fx, (struct disk_row){&desk.prompt, at, i % fx->shape.layers}, DISK_FLIP);
        assert_true(copies > 0 || !conf_options.require_hits);
        fixture_open(fx);
        desk_look(&desk, LAYOUT_VLLM, 0, TOKENS - 1);
        bool is_met = i % 3 == 0;
        desk_submit(&desk);
        if (is_met)
            while (desk_compute(&desk, 8))
                continue;
        spec_status status = desk_wait(&desk);
        assert_true(status == SPEC_OK || status == SPEC_E_CORRUPT);
        assert_true(status == SPEC_E_CORRUPT || copies == 0 || desk.front > at ||
                    desk.found.matched_tokens <= at);
        uint64_t first = desk_told(&desk, status);
        assert_true(status == SPEC_OK || first > at);
        assert_true(status == SPEC_OK || desk.items[0].failed_position <= at);
        while (desk_compute(&desk, 64))
            continue;
        assert_int_equal(desk.front, first);
        desk_expect(&desk);
        desk_leave(&desk);
        struct spec_lookup_result again = fixture_find(fx, &desk.prompt);
        assert_true(status == SPEC_OK || again.matched_tokens <= at);
        fixture_release(fx, again.request);
        desk_free(&desk);
    }
}

/* ---- 224 ---- */

/* A request whose items may get quantised rows: a shot for each layer has its area. */
struct quant_desk {
    struct quantised *quantised;
    struct prompt other; /* what is computed */
    struct spec_lookup_result found;
    uint64_t from, front; /* positions */
    struct shot shots[LAYERS_MAX];
    struct spec_important items[LAYERS_MAX];
    spec_ticket ticket;
};

/* exact_ppm: of the items; PPM + 1: as configured. */
static void quant_look(struct quant_desk *desk, struct quantised *quantised, enum layout layout,
                       uint64_t from, uint32_t exact_ppm)
{
    struct fixture *fx = quantised->scene.fx;
    *desk = (struct quant_desk){.quantised = quantised, .from = from, .front = from};
    desk->other = prompt_make(2240, quantised->scene.prompt.count);
    desk->other.numbers = 1;
    prompt_salt(&desk->other, 2241);
    desk->found = scene_find(&quantised->scene, from);
    for (uint32_t layer = 0; layer < fx->shape.layers; layer++) {
        struct shot *shot = &desk->shots[layer];
        *shot = shot_of(layer, exact_ppm);
        shot->ask.from = from;
        shot->layout = layout;
        shot_make(quantised, shot, &desk->found);
        desk->items[layer] = important(desk->found.request, layer, &shot->answer.area.memory);
        desk->items[layer].flags = SPEC_ITEM_BIDIRECTIONAL;
        desk->items[layer].select = exact_ppm <= PPM ? &shot->answer.select : NULL;
    }
}

static void quant_leave(struct quant_desk *desk)
{
    for (uint32_t layer = 0; layer < desk->quantised->scene.fx->shape.layers; layer++)
        shot_free(&desk->shots[layer]);
    prompt_free(&desk->other);
    fixture_release(desk->quantised->scene.fx, desk->found.request);
}

static void quant_submit(struct quant_desk *desk)
{
    struct fixture *fx = desk->quantised->scene.fx;
    assert_ok(fx, fx->api->get_important_submit(fx->conn, desk->items, fx->shape.layers,
                                                &desk->ticket, &fx->error));
}

static void quant_wait(struct quant_desk *desk)
{
    struct fixture *fx = desk->quantised->scene.fx;
    assert_ok(fx, fx->api->get_important_wait(fx->conn, desk->ticket, CONF_WAIT_NS, &fx->error));
}

/* One head of a row that is exact: as it was stored, or as the host computed it. */
static void head_of(const struct quant_desk *desk, uint64_t position, uint32_t layer, uint32_t head,
                    int value, bool is_computed, uint8_t *ret_bytes)
{
    const struct quantised *quantised = desk->quantised;
    const struct shape *shape = &quantised->scene.fx->shape;
    const struct prompt *prompt = is_computed ? &desk->other : &quantised->scene.prompt;
    uint64_t size = dtype_bytes(shape->dtype);
    for (uint32_t i = 0; i < shape->head_size; i++)
        put_number(truth_number(prompt, position, layer, value, head, i), shape->dtype,
                   ret_bytes + i * size);
    if (!is_computed && quantised->is_nan && position == quantised->lost && head == 0 &&
        layer == quantised->lost_layer && value == quantised->nan_value)
        memset(ret_bytes, 0xff, size);
}

static void quant_put(struct quant_desk *desk, uint32_t layer, uint64_t position, bool is_computed)
{
    const struct shape *shape = &desk->quantised->scene.fx->shape;
    uint8_t bytes[CHANNELS * sizeof(float)];
    for (uint32_t i = 0; i < 2 * shape->heads; i++) {
        head_of(desk, position, layer, i / 2, i % 2, is_computed, bytes);
        area_put(&desk->shots[layer].answer.area, position - desk->from, i / 2, i % 2, bytes);
    }
}

static bool quant_has(const struct quant_desk *desk, uint32_t layer, uint64_t position,
                      bool is_computed)
{
    const struct shape *shape = &desk->quantised->scene.fx->shape;
    uint8_t bytes[CHANNELS * sizeof(float)];
    for (uint32_t i = 0; i < 2 * shape->heads; i++) {
        head_of(desk, position, layer, i / 2, i % 2, is_computed, bytes);
        if (!area_has(&desk->shots[layer].answer.area, position - desk->from, i / 2, i % 2, bytes))
            return false;
    }
    return true;
}

static bool quant_compute(struct quant_desk *desk, uint64_t budget)
{
    struct fixture *fx = desk->quantised->scene.fx;
    struct spec_next_chunk chunk = {
        .struct_size = sizeof(chunk), .request = desk->found.request, .budget_tokens = budget};
    assert_ok(fx, fx->api->next_chunk(fx->conn, &chunk, &fx->error));
    assert_int_equal(chunk.first_token, desk->front);
    for (uint64_t i = 0; i < chunk.token_count; i++)
        for (uint32_t layer = 0; layer < fx->shape.layers; layer++)
            quant_put(desk, layer, desk->front + i, true);
    desk->front += chunk.token_count;
    return chunk.token_count > 0;
}

/* The layer's numbers and every byte of its area. Rows that the host computed are taken for exact
 * ones, after they were compared. Returns the exact rows that were loaded. */
static uint64_t quant_expect_layer(struct quant_desk *desk, uint32_t layer)
{
    const struct spec_important *item = &desk->items[layer];
    struct shot *shot = &desk->shots[layer];
    uint64_t end = desk->found.matched_tokens, exact = 0;
    for (uint64_t p = desk->from; p < end; p++) {
        bool is_computed = p < desk->front;
        if (is_computed) {
            assert_true(quant_has(desk, layer, p, true));
            quant_put(desk, layer, p, false);
        }
        if (!quant_has(desk, layer, p, false))
            continue;
        exact += !is_computed;
        shot->bits[(p - desk->from) / 64] |= 1ull << ((p - desk->from) % 64);
    }
    shot_expect_area(desk->quantised, shot);
    assert_int_equal(item->status, SPEC_OK);
    assert_int_equal(item->row_count, end - desk->front);
    assert_int_equal(item->next_position, end);
    assert_int_equal(item->exact_rows, exact);
    if (exact == item->row_count) {
        assert_int_equal(item->provenance.kind, SPEC_PROVENANCE_EXACT);
        return exact;
    }
    assert_int_equal(item->provenance.kind, SPEC_PROVENANCE_LOSSY);
    assert_int_equal(item->provenance.bits_k, desk->quantised->bits[0]);
    assert_int_equal(item->provenance.bits_v, desk->quantised->bits[1]);
    assert_int_equal(item->provenance.exact_ppm, exact * PPM / item->row_count);
    return exact;
}

/* Both ends have met. is_exact: all rows have to be; else, with hits required, none may. */
static void quant_expect(struct quant_desk *desk, bool is_exact)
{
    for (uint32_t layer = 0; layer < desk->quantised->scene.fx->shape.layers; layer++) {
        uint64_t exact = quant_expect_layer(desk, layer);
        if (is_exact || desk->front == desk->found.matched_tokens)
            assert_int_equal(exact, desk->items[layer].row_count);
        else if (conf_options.require_hits)
            assert_int_equal(exact, 0);
    }
}

static void abi_224_rows_are_the_values_of_their_codes(void **state)
{
    struct fixture *fx = *state;
    static const struct {
        struct shape shape;
        uint32_t bits_k, bits_v;
    } CASES[] = {{{3, 4, 16, SPEC_DTYPE_F16}, 8, 8},
                 {{2, 1, 64, SPEC_DTYPE_BF16}, 4, 2},
                 {{2, 3, 20, SPEC_DTYPE_F32}, 6, 5}};
    for (uint32_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        struct quantised quantised =
            quantised_open(fx, CASES[i].shape, 2240 + i, CASES[i].bits_k, CASES[i].bits_v);
        for (enum layout layout = 0; layout < LAYOUTS; layout++) {
            struct quant_desk desk;
            quant_look(&desk, &quantised, layout, layout % 3 * 37, 0);
            if (layout % 2 == 1)
                (void)quant_compute(&desk, 41);
            quant_submit(&desk);
            quant_wait(&desk);
            quant_expect(&desk, false);
            quant_leave(&desk);
        }
        quantised_close(&quantised);
    }
}

static void abi_224_the_host_decides_whether_rows_are_exact(void **state)
{
    struct fixture *fx = *state;
    static const struct {
        const char *layered;
        uint32_t exact_ppm;
        bool is_exact;
    } CASES[] = {
        {"\"bits_k\": 8, \"bits_v\": 8, \"exact_ppm\": 0", PPM + 1, false},
        {"\"bits_k\": 8, \"bits_v\": 8, \"exact_ppm\": 0", 1, true},
        {"\"bits_k\": 8, \"bits_v\": 8, \"exact_ppm\": 0", PPM, true},
        {"\"bits_k\": 8, \"bits_v\": 8, \"exact_ppm\": 100000", PPM + 1, true},
        {"\"bits_k\": 8, \"bits_v\": 8, \"exact_ppm\": 100000", 0, false},
    };
    fixture_shape(fx, WIDE);
    for (uint32_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        struct quant_desk desk;
        quantised_configure_layered(fx, CASES[i].layered, "");
        struct quantised quantised = quantised_make(fx, 2250 + i, 8, 8, STORED);
        quantised_store(&quantised);
        for (uint32_t flags = 0; flags <= SPEC_LOOKUP_REQUIRE_EXACT; flags++) {
            quant_look(&desk, &quantised, LAYOUT_PACKED, 0, CASES[i].exact_ppm);
            struct spec_lookup_params params = lookup_params(&quantised.scene.prompt);
            params.max_tokens = quantised.scene.matched;
            params.flags = flags;
            fixture_release(fx, desk.found.request);
            desk.found = fixture_lookup(fx, &params);
            for (uint32_t layer = 0; layer < fx->shape.layers; layer++)
                desk.items[layer].request = desk.found.request;
            quant_submit(&desk);
            quant_wait(&desk);
            quant_expect(&desk, CASES[i].is_exact || flags != 0);
            quant_leave(&desk);
        }
        quant_look(&desk, &quantised, LAYOUT_PACKED, 0, 0);
        desk.shots[1].answer.select.given |= SPEC_SELECT_METRIC;
        assert_status(fx->api->get_important_submit(fx->conn, desk.items, fx->shape.layers,
                                                    &desk.ticket, &fx->error),
                      SPEC_E_INVALID);
        quant_leave(&desk);
        quantised_close(&quantised);
    }
}

/* A number of one slab that is none: the slab has no codes in that layer, and is exact there. */
static void abi_224_rows_without_codes_are_exact(void **state)
{
    struct fixture *fx = *state;
    fixture_shape(fx, WIDE);
    quantised_configure(fx, 8, 8, "");
    for (uint32_t i = 0; i < 4; i++) {
        struct quantised quantised = quantised_make(fx, 2260 + i, 8, 8, STORED);
        struct quant_desk desk;
        quantised.lost = i * 50;
        quantised.lost_layer = i % 3;
        quantised.is_nan = true;
        quantised.nan_value = (int)(i % 2);
        quantised_store(&quantised);
        quant_look(&desk, &quantised, LAYOUT_VLLM, 0, 0);
        if (i == 3)
            (void)quant_compute(&desk, 140);
        quant_submit(&desk);
        quant_wait(&desk);
        uint64_t first, end;
        quantised_slab(&quantised, quantised.lost, &first, &end);
        first = first > desk.front ? first : desk.front;
        for (uint32_t layer = 0; layer < fx->shape.layers; layer++) {
            uint64_t exact = quant_expect_layer(&desk, layer);
            if (conf_options.require_hits)
                assert_int_equal(exact, layer == quantised.lost_layer ? end - first : 0);
        }
        quant_leave(&desk);
        quantised_close(&quantised);
    }
}

/* ---- 225 ---- */

static void abi_225_a_token_is_given_out_or_decoded_and_never_both(void **state)
{
    struct fixture *fx = *state;
    static const uint64_t BUDGETS[] = {1, 7, 17, 30, 64, 512};
    struct quantised quantised = quantised_open(fx, WIDE, 2252, 8, 8);
    for (uint32_t i = 0; i < 36; i++) {
        struct quant_desk desk;
        quant_look(&desk, &quantised, (enum layout)(i % LAYOUTS), i % 3 * 30, 0);
        if (i % 3 > 0)
            (void)quant_compute(&desk, BUDGETS[i % 6]); /* before there is another end */
        quant_submit(&desk);
        while (i % 4 > 0 && quant_compute(&desk, BUDGETS[i / 6]))
            continue;
        quant_wait(&desk);
        while (quant_compute(&desk, 64))
            fail_msg("a row was given back though nothing failed");
        quant_expect(&desk, false);
        quant_leave(&desk);
    }
    quantised_close(&quantised);
}

static void abi_225_a_deadline_ends_the_decoding_alone(void **state)
{
    struct fixture *fx = *state;
    struct quantised quantised = quantised_open(fx, WIDE, 2253, 8, 8);
    for (uint64_t ns = 1; ns < 100000000; ns *= 10) {
        struct quant_desk desk;
        quant_look(&desk, &quantised, LAYOUT_VLLM, 0, 0);
        for (uint32_t layer = 0; layer < fx->shape.layers; layer++)
            desk.items[layer].deadline_ns = ns;
        quant_submit(&desk);
        quant_wait(&desk);
        uint64_t first = desk.found.matched_tokens - desk.items[0].row_count;
        bool is_partial = (desk.items[0].result_flags & SPEC_IMPORTANT_PARTIAL) != 0;
        assert_true(first == 0 || is_partial);
        while (quant_compute(&desk, 64))
            continue;
        assert_int_equal(desk.front, first);
        quant_expect(&desk, false);
        quant_leave(&desk);
    }
    quantised_close(&quantised);
}

static void abi_225_passes_over_decoded_rows_are_lossy(void **state)
{
    struct fixture *fx = *state;
    for (uint32_t i = 0; i < 2; i++) {
        struct quantised quantised = quantised_open(fx, WIDE, 2254 + i, 8, 8);
        struct quant_desk desk;
        quant_look(&desk, &quantised, LAYOUT_PACKED, 0, i == 0 ? 0 : PPM);
        bool is_hit = desk.found.matched_tokens > 0;
        quant_submit(&desk);
        quant_wait(&desk);
        bool is_lossy = desk.items[0].provenance.kind == SPEC_PROVENANCE_LOSSY;
        spec_status ended = SPEC_OK;
        for (uint32_t layer = 0; layer < fx->shape.layers; layer++)
            ended = quantised_put(&quantised, &desk.found, layer);
        quant_leave(&desk);
        struct spec_lookup_params params = lookup_params(&quantised.scene.prompt);
        params.max_tokens = quantised.scene.prompt.count;
        struct spec_lookup_result found = fixture_lookup(fx, &params);
        if (is_hit && ended == SPEC_OK && found.matched_tokens > STORED)
            assert_int_equal(found.provenance.kind,
                             is_lossy ? SPEC_PROVENANCE_LOSSY : SPEC_PROVENANCE_EXACT);
        if (conf_options.require_hits) {
            assert_int_equal(found.matched_tokens, quantised.scene.prompt.count);
            assert_int_equal(is_lossy, i == 0);
        }
        fixture_release(fx, found.request);
        quantised_close(&quantised);
    }
}

const struct conf_test CONF_ENDS[] = {
    BARE(abi_132_a_token_is_given_out_or_loaded_and_never_both),
    BARE(abi_132_ranges_end_on_the_chunk_grid),
    BARE(abi_132_without_a_match_both_ends_have_met),
    BARE(abi_132_what_is_no_range_is_invalid_and_a_released_request_stale),
    BARE(abi_205_what_nobody_computes_is_loaded),
    BARE(abi_205_a_deadline_ends_the_loading_alone),
    BARE(abi_205_a_tail_is_all_layers_of_one_request_in_order),
    BARE(abi_206_what_fails_is_given_out_and_the_rest_is_good),
    BARE(abi_224_rows_are_the_values_of_their_codes),
    BARE(abi_224_the_host_decides_whether_rows_are_exact),
    BARE(abi_224_rows_without_codes_are_exact),
    BARE(abi_225_a_token_is_given_out_or_decoded_and_never_both),
    BARE(abi_225_a_deadline_ends_the_decoding_alone),
    BARE(abi_225_passes_over_decoded_rows_are_lossy),
    END,
};
