/* test_recurrent: layers with a recurrent state instead of rows: ABI-212, ABI-213, ABI-214.
 *
 *   model   per layer: rows, or a state of a number of bytes
 *   state   bytes of (history of all tokens before m, layer): another end, prompt or layer differs
 *   box     [guard | state | guard], poisoned, compared whole
 *
 * Threads, Tests: see fixture.h. */
#include "conformance/disk.h"
#include "conformance/suite.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LAYERS_MAX  9u
#define GUARD_BYTES 256u

struct layers {
    const char *name;
    uint32_t count;
    uint64_t state_bytes[LAYERS_MAX]; /* 0: a layer with rows */
    uint64_t window;                  /* of the layers with rows; 0: none */
};

static const struct layers MODELS[] = {
    {"state, rows", 2, {1000, 0}, 0},
    {"rows, state", 2, {0, 40000}, 0},
    {"three states to one", 8, {4096, 4096, 4096, 0, 4096, 4096, 4096, 0}, 0},
    {"states alone", 3, {5000, 100, 5000}, 0},
    {"states of two sizes and windows", 9, {1, 0, 70001, 0, 70001, 1, 0, 0, 1}, 70},
};
#define MODEL_COUNT (sizeof(MODELS) / sizeof(MODELS[0]))

static const struct shape ROWS = {LAYERS_MAX, 2, 16, SPEC_DTYPE_F16};

/* ---- The model ---- */

struct described {
    struct spec_layer_group groups[LAYERS_MAX];
    uint32_t layers[LAYERS_MAX];
};

/* Each layer is a group. described: lives as long as the model is opened. */
static void describe(struct fixture *fx, const struct layers *layers, struct described *described)
{
    fixture_shape(fx, (struct shape){layers->count, ROWS.heads, ROWS.head_size, ROWS.dtype});
    for (uint32_t l = 0; l < layers->count; l++) {
        struct spec_layer_group *group = &described->groups[l];
        described->layers[l] = l;
        *group = (struct spec_layer_group){
            .struct_size = sizeof(*group), .layers = &described->layers[l], .layer_count = 1};
        group->kind = layers->state_bytes[l] > 0 ? SPEC_GROUP_STATE
                      : layers->window > 0       ? SPEC_GROUP_WINDOW
                                                 : SPEC_GROUP_FULL;
        group->state_bytes = layers->state_bytes[l];
        if (layers->state_bytes[l] > 0)
            continue;
        group->kv_head_count = ROWS.heads;
        group->head_size = ROWS.head_size;
        group->window = layers->window;
    }
    fx->model.groups = described->groups;
    fx->model.group_count = layers->count;
}

static void open_layers(struct fixture *fx, const struct layers *layers,
                        struct described *described)
{
    describe(fx, layers, described);
    fixture_open_unlike(fx);
}

/* ---- States ---- */

static void state_truth(const struct prompt *prompt, uint64_t end, uint32_t layer, uint64_t bytes,
                        uint8_t *dst)
{
    uint64_t x = prompt->history[end - 1] * UINT64_C(0x9e3779b97f4a7c15) + layer + 1;
    for (uint64_t i = 0; i < bytes; i++) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        dst[i] = (uint8_t)(x >> 32);
    }
}

struct box {
    uint8_t *bytes;
    uint64_t state_bytes;
    struct spec_memory memory;
};

static struct box box_make(uint64_t state_bytes)
{
    struct box box = {.bytes = malloc(state_bytes + 2 * GUARD_BYTES), .state_bytes = state_bytes};
    assert_non_null(box.bytes);
    memset(box.bytes, POISON, state_bytes + 2 * GUARD_BYTES);
    box.memory = (struct spec_memory){.struct_size = sizeof(box.memory),
                                      .dtype = ROWS.dtype,
                                      .k_base = box.bytes + GUARD_BYTES,
                                      .k_bytes = state_bytes};
    return box;
}

/* It is poison but for the state at `end`; end 0: all of it. */
static void box_expect(const struct box *box, const struct prompt *prompt, uint64_t end,
                       uint32_t layer)
{
    uint64_t all = box->state_bytes + 2 * GUARD_BYTES;
    uint8_t *right = malloc(all);
    assert_non_null(right);
    memset(right, POISON, all);
    if (end > 0)
        state_truth(prompt, end, layer, box->state_bytes, right + GUARD_BYTES);
    assert_memory_equal(box->bytes, right, all);
    free(right);
}

/* ---- Storing ---- */

static spec_ticket store_layer(struct fixture *fx, const struct layers *layers,
                               const struct prompt *prompt, spec_request request, uint32_t layer,
                               uint64_t first, uint64_t count)
{
    spec_ticket ticket = 0;
    struct spec_store_params params = {.struct_size = sizeof(params),
                                       .request = request,
                                       .layer = layer,
                                       .first_token = first,
                                       .token_count = count};
    if (layers->state_bytes[layer] > 0) {
        struct box box = box_make(layers->state_bytes[layer]);
        state_truth(prompt, first + count, layer, box.state_bytes, box.memory.k_base);
        params.memory = &box.memory;
        assert_ok(fx, fx->api->store(fx->conn, &params, 1, &ticket, &fx->error));
        free(box.bytes);
        return ticket;
    }
    struct area area = area_make(&ROWS, LAYOUT_PADDED, count);
    area_fill(&area, &ROWS, prompt, first, layer);
    params.memory = &area.memory;
    assert_ok(fx, fx->api->store(fx->conn, &params, 1, &ticket, &fx->error));
    area_free(&area);
    return ticket;
}

/* Tokens [first, end) of the request, as one pass. */
static bool store_pass(struct fixture *fx, const struct layers *layers, const struct prompt *prompt,
                       spec_request request, uint64_t first, uint64_t end)
{
    spec_ticket ticket = 0;
    for (uint32_t l = 0; l < layers->count; l++)
        ticket = store_layer(fx, layers, prompt, request, l, first, end - first);
    return fixture_wait(fx, ticket) == SPEC_OK;
}

/* Passes that end there, from what is matched on. */
static bool store_passes(struct fixture *fx, const struct layers *layers,
                         const struct prompt *prompt, const uint64_t *ends, uint32_t count)
{
    struct spec_lookup_result found = fixture_find(fx, prompt);
    uint64_t first = found.matched_tokens;
    bool stored = true;
    for (uint32_t i = 0; i < count; i++) {
        if (ends[i] <= first)
            continue;
        stored = store_pass(fx, layers, prompt, found.request, first, ends[i]) && stored;
        first = ends[i];
    }
    fixture_release(fx, found.request);
    return stored;
}

/* ---- Loading ---- */

static void load_state(struct fixture *fx, const struct layers *layers, const struct prompt *prompt,
                       const struct spec_lookup_result *found, uint64_t from, uint32_t layer)
{
    uint64_t rows = found->matched_tokens > from, bits = 0;
    uint32_t positions[2] = {7, 7};
    struct box box = box_make(layers->state_bytes[layer]);
    struct spec_important item = important(found->request, layer, &box.memory);
    item.positions = positions;
    item.position_capacity = 1;
    item.exact_bits = &bits;
    item.exact_bit_words = 1;
    assert_ok(fx, fx->api->get_important(fx->conn, &item, 1, &fx->error));
    assert_int_equal(item.layer, layer);
    assert_int_equal(item.row_count, rows);
    assert_int_equal(item.exact_rows, rows);
    assert_int_equal(item.union_rows, rows);
    assert_int_equal(item.next_position, found->matched_tokens);
    assert_int_equal(positions[0], rows > 0 ? found->matched_tokens - 1 : 7);
    assert_int_equal(positions[1], 7);
    assert_int_equal(bits, rows);
    box_expect(&box, prompt, rows > 0 ? found->matched_tokens : 0, layer);
    free(box.bytes);
}

static void load_rows(struct fixture *fx, const struct layers *layers, const struct prompt *prompt,
                      const struct spec_lookup_result *found, uint64_t from, uint32_t layer)
{
    uint64_t end = found->matched_tokens, first = from;
    if (layers->window > 0 && end + 1 > layers->window && end + 1 - layers->window > from)
        first = end + 1 - layers->window;
    struct area area = area_make(&ROWS, LAYOUT_PACKED, end - first);
    struct spec_important item = important(found->request, layer, &area.memory);
    assert_ok(fx, fx->api->get_important(fx->conn, &item, 1, &fx->error));
    assert_int_equal(item.layer, layer);
    assert_int_equal(item.row_count, end - first);
    area_expect(&area, &ROWS, prompt, first, end - first, layer);
    area_free(&area);
}

/* The first `tokens` of the prompt are asked for; all layers of what is found. */
static void load_layers(struct fixture *fx, const struct layers *layers,
                        const struct prompt *prompt, uint64_t tokens, uint64_t from,
                        uint64_t multiple_of, uint64_t expected)
{
    struct spec_lookup_params params = lookup_params(prompt);
    params.token_count = tokens;
    params.from_token = from;
    params.multiple_of = multiple_of;
    struct spec_lookup_result found = fixture_lookup(fx, &params);
    expect_match(&found, expected > from ? expected : from);
    for (uint32_t l = 0; l < layers->count; l++) {
        if (l % 2 == 0)
            assert_ok(fx, fx->api->begin_layer(fx->conn, &found.request, 1, l, &fx->error));
        if (l % 3 == 0)
            assert_ok(fx, fx->api->prefetch_next(fx->conn, found.request, l, NULL, &fx->error));
        if (layers->state_bytes[l] > 0)
            load_state(fx, layers, prompt, &found, from, l);
        else
            load_rows(fx, layers, prompt, &found, from, l);
    }
    fixture_release(fx, found.request);
}

/* ---- 212 ---- */

static void abi_212_a_match_ends_where_all_states_stand(void **state)
{
    struct fixture *fx = *state;
    static const uint64_t ENDS[] = {100, 260, 400};
    for (uint32_t m = 0; m < MODEL_COUNT; m++) {
        const struct layers *layers = &MODELS[m];
        struct described described;
        open_layers(fx, layers, &described);
        struct prompt prompt = prompt_make(3200 + m, 420);
        struct prompt other = prompt_diverge(&prompt, 250, 420, 3210 + m);
        bool stored = store_passes(fx, layers, &prompt, ENDS, 3);
        for (int i = 0; i < 2; i++) {
            load_layers(fx, layers, &prompt, 420, 0, 0, stored ? 400 : 0);
            load_layers(fx, layers, &prompt, 420, 150, 0, stored ? 400 : 0);
            load_layers(fx, layers, &prompt, 400, 0, 0, stored ? 260 : 0);
            load_layers(fx, layers, &prompt, 300, 0, 0, stored ? 260 : 0);
            load_layers(fx, layers, &prompt, 300, 260, 0, 0);
            load_layers(fx, layers, &prompt, 260, 0, 0, stored ? 100 : 0);
            load_layers(fx, layers, &prompt, 100, 0, 0, 0);
            load_layers(fx, layers, &prompt, 420, 0, 20, stored ? 400 : 0);
            load_layers(fx, layers, &prompt, 420, 0, 52, stored ? 260 : 0);
            load_layers(fx, layers, &prompt, 420, 0, 64, 0);
            load_layers(fx, layers, &other, 420, 0, 0, stored ? 100 : 0);
            fixture_reopen(fx);
        }
        prompt_free(&prompt);
        prompt_free(&other);
        fixture_close(fx);
    }
}

/* What is stored of rows is told all the same, and a pass may begin there. */
static void abi_212_rows_that_are_there_get_their_states_later(void **state)
{
    struct fixture *fx = *state;
    static const uint64_t WHOLE[] = {300};
    for (uint32_t m = 0; m < MODEL_COUNT; m++) {
        const struct layers *layers = &MODELS[m];
        struct described described;
        open_layers(fx, layers, &described);
        struct prompt prompt = prompt_make(3220 + m, 320);
        struct prompt other = prompt_diverge(&prompt, 200, 320, 3230 + m);
        bool stored = store_passes(fx, layers, &prompt, WHOLE, 1);
        struct spec_lookup_result found = fixture_find(fx, &other);
        expect_match(&found, 0);
        assert_int_equal(found.stored_tokens, stored ? 200 : 0);
        stored = store_pass(fx, layers, &other, found.request, 0, 200) && stored;
        stored = store_pass(fx, layers, &other, found.request, 200, 310) && stored;
        fixture_release(fx, found.request);
        for (int i = 0; i < 2; i++) {
            load_layers(fx, layers, &prompt, 250, 0, 0, stored ? 200 : 0);
            load_layers(fx, layers, &prompt, 320, 0, 0, stored ? 300 : 0);
            load_layers(fx, layers, &other, 320, 0, 0, stored ? 310 : 0);
            load_layers(fx, layers, &other, 310, 0, 0, stored ? 200 : 0);
            fixture_reopen(fx);
        }
        prompt_free(&prompt);
        prompt_free(&other);
        fixture_close(fx);
    }
}

static void abi_212_a_pass_that_is_dropped_has_no_states(void **state)
{
    struct fixture *fx = *state;
    const struct layers *layers = &MODELS[2];
    static const uint64_t ENDS[] = {100};
    struct described described;
    open_layers(fx, layers, &described);
    for (uint32_t most = 1; most < layers->count; most++) {
        struct prompt prompt = prompt_make(3240 + most, 220);
        bool stored = store_passes(fx, layers, &prompt, ENDS, 1);
        struct spec_lookup_result found = fixture_find(fx, &prompt);
        uint64_t first = found.matched_tokens;
        for (uint32_t l = 0; l < most; l++)
            (void)store_layer(fx, layers, &prompt, found.request, l, first, 200 - first);
        assert_ok(fx, fx->api->store_abort(fx->conn, found.request, first, &fx->error));
        load_layers(fx, layers, &prompt, 220, 0, 0, stored ? 100 : 0);
        stored = store_pass(fx, layers, &prompt, found.request, first, 200) && stored;
        fixture_release(fx, found.request);
        load_layers(fx, layers, &prompt, 220, 0, 0, stored ? 200 : 0);
        prompt_free(&prompt);
    }
}

/* Dropped when all its rows are stored, and run again with other ids. */
static void abi_212_a_pass_that_is_dropped_behind_its_rows_leaves_none(void **state)
{
    struct fixture *fx = *state;
    static const struct layers LAYERS = {"rows, then states", 4, {0, 0, 2000, 3000}, 0};
    static const uint64_t ENDS[] = {100};
    struct described described;
    open_layers(fx, &LAYERS, &described);
    for (uint32_t i = 0; i < 8; i++) {
        struct prompt prompt = prompt_make(3280 + i, 220);
        struct prompt other = prompt_diverge(&prompt, 100 + i * 7, 220, 3290 + i);
        struct prompt start = {.count = 100, .tokens = prompt.tokens, .history = prompt.history};
        bool stored = store_passes(fx, &LAYERS, &prompt, ENDS, 1);
        struct spec_lookup_result found = fixture_find(fx, &start);
        uint64_t known = 100;
        for (uint32_t run = 0; run < 2; run++) { /* ids come with the pass */
            const struct prompt *of = run == 0 ? &prompt : &other;
            spec_ticket ticket = 0;
            uint32_t most = run == 0 ? 2 + i % 2 : LAYERS.count;
            for (uint32_t l = 0; l < most; l++) {
                struct area area = area_make(&ROWS, LAYOUT_PADDED, 200 - found.matched_tokens);
                struct box box = box_make(l >= 2 ? LAYERS.state_bytes[l] : 1);
                struct spec_store_params params = {.struct_size = sizeof(params),
                                                   .request = found.request,
                                                   .layer = l,
                                                   .first_token = found.matched_tokens,
                                                   .token_count = 200 - found.matched_tokens,
                                                   .memory = l >= 2 ? &box.memory : &area.memory};
                params.tokens = l == 0 ? of->tokens + known : NULL;
                params.tokens_count = l == 0 ? 200 - known : 0;
                area_fill(&area, &ROWS, of, found.matched_tokens, l);
                if (l >= 2)
                    state_truth(of, 200, l, box.state_bytes, box.memory.k_base);
                assert_ok(fx, fx->api->store(fx->conn, &params, 1, &ticket, &fx->error));
                area_free(&area);
                free(box.bytes);
            }
            if (run == 0)
                assert_ok(fx, fx->api->store_abort(fx->conn, found.request, found.matched_tokens,
                                                   &fx->error));
            else
                stored = fixture_wait(fx, ticket) == SPEC_OK && stored;
        }
        fixture_release(fx, found.request);
        load_layers(fx, &LAYERS, &other, 220, 0, 0, stored ? 200 : 0);
        struct spec_lookup_params params = lookup_params(&prompt);
        found = fixture_lookup(fx, &params);
        assert_true(found.stored_tokens <= 100 + i * 7);
        fixture_release(fx, found.request);
        prompt_free(&prompt);
        prompt_free(&other);
    }
}

static void abi_212_a_reset_ends_states_too(void **state)
{
    struct fixture *fx = *state;
    static const uint64_t ENDS[] = {100, 200};
    struct described described;
    open_layers(fx, &MODELS[2], &described);
    struct prompt prompt = prompt_make(3250, 220);
    bool stored = store_passes(fx, &MODELS[2], &prompt, ENDS, 2);
    load_layers(fx, &MODELS[2], &prompt, 220, 0, 0, stored ? 200 : 0);
    assert_ok(fx, fx->api->reset(fx->conn, &fx->error));
    load_layers(fx, &MODELS[2], &prompt, 220, 0, 0, 0);
    stored = store_passes(fx, &MODELS[2], &prompt, ENDS, 1);
    load_layers(fx, &MODELS[2], &prompt, 220, 0, 0, stored ? 100 : 0);
    prompt_free(&prompt);
}

static void abi_212_states_of_another_size_are_another_models(void **state)
{
    struct fixture *fx = *state;
    static const uint64_t ENDS[] = {200};
    struct layers layers = MODELS[2];
    struct described described;
    open_layers(fx, &layers, &described);
    struct prompt prompt = prompt_make(3260, 220);
    bool stored = store_passes(fx, &layers, &prompt, ENDS, 1);
    load_layers(fx, &layers, &prompt, 220, 0, 0, stored ? 200 : 0);
    fixture_close(fx);
    layers.state_bytes[1]--;
    open_layers(fx, &layers, &described);
    load_layers(fx, &layers, &prompt, 220, 0, 0, 0);
    fixture_close(fx);
    open_layers(fx, &MODELS[2], &described);
    load_layers(fx, &MODELS[2], &prompt, 220, 0, 0, stored ? 200 : 0);
    prompt_free(&prompt);
}

/* A lease of it names a match that ends at states. */
static void abi_212_a_lease_brings_states(void **state)
{
    struct fixture *fx = *state;
    static const uint64_t ENDS[] = {100, 200};
    struct described described;
    open_layers(fx, &MODELS[2], &described);
    struct prompt prompt = prompt_make(3270, 220);
    bool stored = store_passes(fx, &MODELS[2], &prompt, ENDS, 2);
    struct spec_lookup_result found = fixture_find(fx, &prompt), attached;
    expect_match(&found, stored ? 200 : 0);
    const struct spec_attach_params params = {.struct_size = sizeof(params),
                                              .lease = {found.lease, sizeof(found.lease)}};
    attached = (struct spec_lookup_result){.struct_size = sizeof(attached)};
    if (found.lease_expiry_ns != 0) {
        assert_ok(fx, fx->api->attach(fx->conn, &params, &attached, &fx->error));
        assert_int_equal(attached.matched_tokens, found.matched_tokens);
        for (uint32_t l = 0; l < MODELS[2].count; l++)
            if (MODELS[2].state_bytes[l] > 0)
                load_state(fx, &MODELS[2], &prompt, &attached, 0, l);
        fixture_release(fx, attached.request);
    }
    fixture_release(fx, found.request);
    prompt_free(&prompt);
}

/* ---- 213 ---- */

static void abi_213_all_layers_come_in_one_submission(void **state)
{
    struct fixture *fx = *state;
    static const uint64_t ENDS[] = {100, 350};
    for (uint32_t m = 0; m < MODEL_COUNT; m++) {
        const struct layers *layers = &MODELS[m];
        struct described described;
        struct box boxes[LAYERS_MAX];
        struct area areas[LAYERS_MAX];
        struct spec_important items[LAYERS_MAX];
        spec_ticket ticket;
        open_layers(fx, layers, &described);
        struct prompt prompt = prompt_make(3300 + m, 360);
        bool stored = store_passes(fx, layers, &prompt, ENDS, 2);
        struct spec_lookup_result found = fixture_find(fx, &prompt);
        expect_match(&found, stored ? 350 : 0);
        uint64_t end = found.matched_tokens;
        uint64_t rows = layers->window > 0 && end > layers->window - 1 ? layers->window - 1 : end;
        for (uint32_t l = 0; l < layers->count; l++) {
            bool keeps = layers->state_bytes[l] > 0;
            boxes[l] = box_make(keeps ? layers->state_bytes[l] : 1);
            areas[l] = area_make(&ROWS, LAYOUT_PACKED, keeps ? 1 : rows);
            items[l] = important(found.request, l, keeps ? &boxes[l].memory : &areas[l].memory);
        }
        assert_ok(
            fx, fx->api->get_important_submit(fx->conn, items, layers->count, &ticket, &fx->error));
        assert_ok(fx, fx->api->get_important_wait(fx->conn, ticket, CONF_WAIT_NS, &fx->error));
        for (uint32_t l = 0; l < layers->count; l++) {
            bool keeps = layers->state_bytes[l] > 0;
            assert_int_equal(items[l].layer, l);
            assert_int_equal(items[l].row_count, keeps ? end > 0 : rows);
            box_expect(&boxes[l], &prompt, keeps ? end : 0, l);
            if (!keeps)
                area_expect(&areas[l], &ROWS, &prompt, end - rows, rows, l);
            free(boxes[l].bytes);
            area_free(&areas[l]);
        }
        fixture_release(fx, found.request);
        prompt_free(&prompt);
        fixture_close(fx);
    }
}

static void expect_invalid(struct fixture *fx, spec_request request, const struct box *box,
                           uint32_t flags, spec_ticket refine_of)
{
    struct spec_important item = important(request, 0, &box->memory);
    item.flags = flags;
    item.refine_of = refine_of;
    assert_status(fx->api->get_important(fx->conn, &item, 1, &fx->error), SPEC_E_INVALID);
    assert_true(strlen(fx->error.text) > 0);
}

static void abi_213_what_is_no_place_for_a_state_is_invalid(void **state)
{
    struct fixture *fx = *state;
    static const uint64_t ENDS[] = {100};
    struct described described;
    open_layers(fx, &MODELS[0], &described);
    struct prompt prompt = prompt_make(3320, 120);
    bool stored = store_passes(fx, &MODELS[0], &prompt, ENDS, 1);
    struct spec_lookup_result found = fixture_find(fx, &prompt);
    struct box box = box_make(MODELS[0].state_bytes[0]);
    struct spec_memory good = box.memory;
    int64_t slot = 0;
    box.memory.k_bytes--;
    expect_invalid(fx, found.request, &box, 0, 0);
    box.memory = good;
    box.memory.k_base = NULL;
    expect_invalid(fx, found.request, &box, 0, 0);
    box.memory = good;
    box.memory.v_base = box.bytes;
    expect_invalid(fx, found.request, &box, 0, 0);
    box.memory = good;
    box.memory.slots = &slot;
    box.memory.slot_count = 1;
    expect_invalid(fx, found.request, &box, 0, 0);
    box.memory = good;
    expect_invalid(fx, found.request, &box, SPEC_ITEM_AHEAD, 0);
    expect_invalid(fx, found.request, &box, SPEC_ITEM_BIDIRECTIONAL, 0);
    struct spec_store_params params = {.struct_size = sizeof(params),
                                       .request = found.request,
                                       .memory = &box.memory,
                                       .first_token = found.matched_tokens,
                                       .token_count = 120 - found.matched_tokens};
    box.memory.k_bytes--;
    assert_status(fx->api->store(fx->conn, &params, 1, NULL, &fx->error), SPEC_E_INVALID);
    box.memory = good;
    params.layer = 2;
    assert_status(fx->api->store(fx->conn, &params, 1, NULL, &fx->error), SPEC_E_INVALID);
    box_expect(&box, &prompt, 0, 0);
    free(box.bytes);
    fixture_release(fx, found.request);
    load_layers(fx, &MODELS[0], &prompt, 120, 0, 0, stored ? 100 : 0);
    prompt_free(&prompt);
}

/* A state is no thing to go on from in part: the whole match is void. */
static void abi_213_a_state_that_is_damaged_is_never_delivered(void **state)
{
    struct fixture *fx = *state;
    static const uint64_t ENDS[] = {100, 200};
    const struct layers *layers = &MODELS[2];
    struct described described;
    open_layers(fx, layers, &described);
    struct prompt prompt = prompt_make(3330, 220);
    bool stored = store_passes(fx, layers, &prompt, ENDS, 2);
    fixture_close(fx);
    uint8_t truth[4096];
    state_truth(&prompt, 200, 1, sizeof(truth), truth);
    uint64_t copies = disk_flip(fx, truth + 100, 20, 5);
    fixture_open(fx);
    struct spec_lookup_result found = fixture_find(fx, &prompt);
    expect_match(&found, stored ? 200 : 0);
    if (copies == 0 || found.matched_tokens < 200)
        conf_skip("the row was not found on the disk as it was stored");
    struct box box = box_make(sizeof(truth));
    struct spec_important item = important(found.request, 1, &box.memory);
    assert_status(fx->api->get_important(fx->conn, &item, 1, &fx->error), SPEC_E_CORRUPT);
    assert_int_equal(item.row_count, 0);
    assert_int_equal(item.failed_position, 0);
    fixture_release(fx, found.request);
    free(box.bytes);
    load_layers(fx, layers, &prompt, 220, 0, 0, 100); /* the other state is good */
    prompt_free(&prompt);
}

const struct conf_test CONF_STATES[] = {
    BARE(abi_212_a_match_ends_where_all_states_stand),
    BARE(abi_212_rows_that_are_there_get_their_states_later),
    BARE(abi_212_a_pass_that_is_dropped_has_no_states),
    BARE(abi_212_a_pass_that_is_dropped_behind_its_rows_leaves_none),
    BARE(abi_212_a_reset_ends_states_too),
    BARE(abi_212_states_of_another_size_are_another_models),
    BARE(abi_212_a_lease_brings_states),
    BARE(abi_213_all_layers_come_in_one_submission),
    BARE(abi_213_what_is_no_place_for_a_state_is_invalid),
    BARE(abi_213_a_state_that_is_damaged_is_never_delivered),
    END,
};
