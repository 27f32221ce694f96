/* test_groups: layers of several kinds, and V of another size than K: ABI-210, ABI-211.
 *
 *   model   one kind per layer: heads, sizes, dtype, window; a group has the layers of one kind
 *   box     [guard | K | guard | V | guard], poisoned, in one of a few layouts
 *
 * Every byte of a box is compared after every call. Threads, Tests: see fixture.h. */
#include "conformance/disk.h"
#include "conformance/suite.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LAYERS_MAX  6u
#define GUARD_BYTES 256u
#define BLOCK       16u
#define ROW_MAX     8192u

struct kind {
    uint32_t group, heads, size, size_v, dtype; /* size_v 0: no V */
    uint64_t window;
};

struct layers {
    const char *name;
    uint32_t count;
    struct kind kinds[LAYERS_MAX];
};

#define FULL(heads, size, dtype) {SPEC_GROUP_FULL, heads, size, size, SPEC_DTYPE_##dtype, 0}
#define UNLIKE(heads, size, size_v, dtype)                                                         \
    {SPEC_GROUP_FULL, heads, size, size_v, SPEC_DTYPE_##dtype, 0}
#define WINDOW(tokens, heads, size, dtype)                                                         \
    {SPEC_GROUP_WINDOW, heads, size, size, SPEC_DTYPE_##dtype, tokens}
#define LATENT(size, dtype) {SPEC_GROUP_LATENT, 1, size, 0, SPEC_DTYPE_##dtype, 0}
static const struct layers MODELS[] = {
    {"latent", 2, {LATENT(72, BF16), LATENT(72, BF16)}},
    {"V smaller", 2, {UNLIKE(4, 24, 16, F16), UNLIKE(4, 24, 16, F16)}},
    {"V larger", 2, {UNLIKE(3, 16, 40, F32), UNLIKE(3, 16, 40, F32)}},
    {"windows",
     4,
     {WINDOW(128, 8, 64, BF16), FULL(8, 64, BF16), WINDOW(128, 8, 64, BF16), FULL(8, 64, BF16)}},
    {"heads and windows",
     6,
     {WINDOW(70, 4, 16, F16), WINDOW(70, 4, 16, F16), FULL(1, 64, F16), WINDOW(70, 4, 16, F16),
      WINDOW(300, 2, 16, F16), FULL(1, 64, F16)}},
    {"everything",
     6,
     {LATENT(33, BYTES), UNLIKE(3, 5, 9, INT8), WINDOW(1, 2, 8, F32), WINDOW(2, 1, 7, FP8_E4M3),
      FULL(5, 13, F32), UNLIKE(1, 1, 31, F16)}},
};
#define MODEL_COUNT (sizeof(MODELS) / sizeof(MODELS[0]))

static bool are_one_kind(const struct kind *a, const struct kind *b)
{
    return memcmp(a, b, sizeof(*a)) == 0;
}

/* ---- The model ---- */

struct described {
    struct spec_layer_group groups[LAYERS_MAX];
    uint32_t layers[LAYERS_MAX][LAYERS_MAX];
};

/* The fixture's model becomes this one; described: lives as long as that is opened. */
static void describe(struct fixture *fx, const struct layers *layers, struct described *described)
{
    const struct kind *first = &layers->kinds[0];
    uint64_t count = 0;
    fixture_shape(fx, (struct shape){layers->count, first->heads, first->size, first->dtype});
    *described = (struct described){0};
    for (uint32_t l = 0; l < layers->count; l++) {
        const struct kind *kind = &layers->kinds[l];
        uint64_t g = 0;
        while (g < count && !are_one_kind(&layers->kinds[described->layers[g][0]], kind))
            g++;
        struct spec_layer_group *group = &described->groups[g];
        bool is_own = kind->group != SPEC_GROUP_LATENT && kind->size_v != kind->size;
        if (g == count)
            *group = (struct spec_layer_group){.struct_size = sizeof(*group),
                                               .kind = kind->group,
                                               .layers = described->layers[g],
                                               .kv_head_count = kind->heads,
                                               .head_size = kind->size,
                                               .head_size_v = is_own ? kind->size_v : 0,
                                               .dtype = kind->dtype,
                                               .window = kind->window};
        count += g == count;
        described->layers[g][group->layer_count++] = l;
    }
    fx->model.groups = described->groups;
    fx->model.group_count = count;
}

static void open_layers(struct fixture *fx, const struct layers *layers,
                        struct described *described)
{
    describe(fx, layers, described);
    fixture_open_unlike(fx);
}

/* ---- Boxes ---- */

enum box_layout {
    BOX_PACKED,     /* [token][head][d] */
    BOX_HEAD_MAJOR, /* [head][token][d] */
    BOX_SPREAD,     /* packed with gaps, tokens backwards by slots */
    BOX_COLUMNS,    /* [block][head]: K in columns, then V in rows */
    BOX_LAYOUTS
};

struct box {
    const struct kind *kind;
    uint8_t *bytes;
    uint64_t byte_count, count;
    int64_t *slots;
    struct spec_memory memory;
};

static void strides_set(struct spec_memory *memory, const struct kind *kind, enum box_layout layout,
                        uint64_t count)
{
    uint64_t e = dtype_bytes(kind->dtype), k = kind->size * e, v = kind->size_v * e;
    uint64_t gap = layout == BOX_SPREAD ? 3 * e : 0, heads = kind->heads;
    switch (layout) {
    case BOX_HEAD_MAJOR:
        memory->token_stride_bytes = k;
        memory->head_stride_bytes = count * k;
        memory->v_token_stride_bytes = v;
        memory->v_head_stride_bytes = count * v;
        break;
    case BOX_COLUMNS:
        memory->token_stride_bytes = e;
        memory->k_element_stride_bytes = BLOCK * e;
        memory->head_stride_bytes = BLOCK * (k + v);
        memory->v_token_stride_bytes = v;
        memory->block_tokens = BLOCK;
        memory->block_stride_bytes = heads * BLOCK * (k + v);
        break;
    default:
        memory->head_stride_bytes = k + gap;
        memory->token_stride_bytes = heads * (k + gap) + gap;
        memory->v_head_stride_bytes = v + gap;
        memory->v_token_stride_bytes = heads * (v + gap) + gap;
    }
    if (kind->size_v == 0)
        memory->v_token_stride_bytes = memory->v_head_stride_bytes = 0;
    else if (kind->size_v == kind->size)
        memory->v_head_stride_bytes = 0;
}

static struct box box_make(const struct kind *kind, enum box_layout layout, uint64_t count)
{
    struct box box = {.kind = kind, .count = count};
    struct spec_memory *memory = &box.memory;
    uint64_t e = dtype_bytes(kind->dtype), blocks = (count + BLOCK - 1) / BLOCK * BLOCK;
    uint64_t k_bytes = blocks * (kind->heads * (kind->size + 3ull) + 3) * e;
    uint64_t v_bytes = blocks * (kind->heads * (kind->size_v + 3ull) + 3) * e;
    memory->struct_size = sizeof(*memory);
    memory->dtype = kind->dtype;
    strides_set(memory, kind, layout, count);
    if (layout == BOX_COLUMNS)
        k_bytes = blocks * kind->heads * (kind->size + kind->size_v) * e;
    box.byte_count = 3 * GUARD_BYTES + k_bytes + v_bytes + 64;
    box.bytes = malloc(box.byte_count);
    assert_non_null(box.bytes);
    memset(box.bytes, POISON, box.byte_count);
    memory->k_base = box.bytes + GUARD_BYTES;
    memory->k_bytes = k_bytes;
    if (kind->size_v > 0 && layout == BOX_COLUMNS) {
        memory->v_base = box.bytes + GUARD_BYTES + BLOCK * kind->size * e;
        memory->v_bytes = k_bytes - BLOCK * kind->size * e;
    } else if (kind->size_v > 0) {
        memory->v_base = box.bytes + 2 * GUARD_BYTES + (k_bytes + 63) / 64 * 64;
        memory->v_bytes = v_bytes;
    }
    if (layout != BOX_SPREAD)
        return box;
    box.slots = malloc((count + 1) * sizeof(int64_t));
    assert_non_null(box.slots);
    for (uint64_t j = 0; j < count; j++)
        box.slots[j] = (int64_t)(count - 1 - j);
    memory->slots = box.slots;
    memory->slot_count = count;
    return box;
}

static void box_free(struct box *box)
{
    free(box->bytes);
    free(box->slots);
}

/* By the header's formula, in the bytes `base` that lie as the box's do. */
static uint8_t *element_of(const struct box *box, uint8_t *base, uint64_t j, uint32_t head,
                           int value, uint64_t i)
{
    const struct spec_memory *m = &box->memory;
    uint64_t slot = m->slots != NULL ? (uint64_t)m->slots[j] : j, at = 0;
    uint64_t e = dtype_bytes(m->dtype), token = m->token_stride_bytes, step = e;
    uint64_t head_stride = m->head_stride_bytes;
    if (value == 1) {
        token = m->v_token_stride_bytes != 0 ? m->v_token_stride_bytes : token;
        head_stride = m->v_head_stride_bytes != 0 ? m->v_head_stride_bytes : head_stride;
    } else if (m->k_element_stride_bytes != 0) {
        step = m->k_element_stride_bytes;
    }
    if (m->block_tokens != 0) {
        at = slot / m->block_tokens * m->block_stride_bytes;
        slot %= m->block_tokens;
    }
    const uint8_t *start = value == 1 ? m->v_base : m->k_base;
    return base + (start - box->bytes) + at + slot * token + head * head_stride + i * step;
}

/* The truth of a position as token j. */
static void put_row(const struct box *box, uint8_t *base, const struct prompt *prompt,
                    uint32_t layer, uint64_t position, uint64_t j)
{
    const struct kind *kind = box->kind;
    uint64_t e = dtype_bytes(kind->dtype);
    uint8_t row[ROW_MAX];
    for (int value = 0; value < (kind->size_v > 0 ? 2 : 1); value++) {
        uint32_t size = value == 0 ? kind->size : kind->size_v;
        struct shape shape = {LAYERS_MAX, kind->heads, size, kind->dtype};
        assert_true(row_bytes(&shape) <= sizeof(row));
        truth_row(&shape, prompt, position, layer, value, row);
        for (uint32_t h = 0; h < kind->heads; h++)
            for (uint64_t i = 0; i < size; i++)
                memcpy(element_of(box, base, j, h, value, i), row + (h * size + i) * e, e);
    }
}

/* Fails unless the box is poison but for the truth of positions first .. in tokens at .. */
static void box_expect(const struct box *box, const struct prompt *prompt, uint32_t layer,
                       uint64_t first, uint64_t at, uint64_t rows)
{
    uint8_t *right = malloc(box->byte_count);
    assert_non_null(right);
    memset(right, POISON, box->byte_count);
    for (uint64_t j = 0; j < rows; j++)
        put_row(box, right, prompt, layer, first + j, at + j);
    assert_memory_equal(box->bytes, right, box->byte_count);
    free(right);
}

/* ---- Storing and loading ---- */

static bool store_layers(struct fixture *fx, const struct layers *layers,
                         const struct prompt *prompt, enum box_layout layout)
{
    struct spec_lookup_result found = fixture_find(fx, prompt);
    uint64_t first = found.matched_tokens, count = prompt->count - first;
    spec_ticket ticket = 0;
    for (uint32_t l = 0; l < layers->count; l++) {
        struct box box = box_make(&layers->kinds[l], layout, count);
        for (uint64_t j = 0; j < count; j++)
            put_row(&box, box.bytes, prompt, l, first + j, j);
        struct spec_store_params params = {.struct_size = sizeof(params),
                                           .request = found.request,
                                           .layer = l,
                                           .first_token = first,
                                           .token_count = count,
                                           .memory = &box.memory};
        assert_ok(fx, fx->api->store(fx->conn, &params, 1, &ticket, &fx->error));
        box_free(&box);
    }
    fixture_release(fx, found.request);
    return fixture_wait(fx, ticket) == SPEC_OK;
}

/* Where rows begin that a match of [.., end) needs in a layer, of those from `from` on. */
static uint64_t first_needed(const struct kind *kind, uint64_t from, uint64_t end)
{
    uint64_t first = kind->window != 0 && end + 1 > kind->window ? end + 1 - kind->window : 0;
    return first > from ? first : from;
}

/* One layer of a match, as items, positions and bytes say it. */
static void load_layer(struct fixture *fx, const struct layers *layers, const struct prompt *prompt,
                       const struct spec_lookup_result *found, uint64_t from, uint32_t layer,
                       enum box_layout layout)
{
    const struct kind *kind = &layers->kinds[layer];
    uint64_t first = first_needed(kind, from, found->matched_tokens);
    uint64_t rows = found->matched_tokens - first;
    struct box box = box_make(kind, layout, rows);
    uint32_t *positions = malloc((rows + 1) * sizeof(*positions));
    uint64_t bits[64];
    assert_non_null(positions);
    assert_true(rows <= 64 * 64);
    memset(positions, POISON, (rows + 1) * sizeof(*positions));
    struct spec_important item = important(found->request, layer, &box.memory);
    item.positions = positions;
    item.position_capacity = rows;
    item.exact_bits = bits;
    item.exact_bit_words = (rows + 63) / 64;
    assert_ok(fx, fx->api->get_important(fx->conn, &item, 1, &fx->error));
    assert_int_equal(item.row_count, rows);
    assert_int_equal(item.exact_rows, rows);
    assert_int_equal(item.next_position, found->matched_tokens);
    for (uint64_t j = 0; j < rows; j++) {
        assert_int_equal(positions[j], first + j);
        assert_true(bits[j / 64] >> (j % 64) & 1);
    }
    assert_int_equal(positions[rows], POISON * 0x01010101u);
    box_expect(&box, prompt, layer, first, 0, rows);
    free(positions);
    box_free(&box);
}

static void load_layers(struct fixture *fx, const struct layers *layers,
                        const struct prompt *prompt, uint64_t from, uint64_t expected,
                        enum box_layout layout)
{
    struct spec_lookup_params params = lookup_params(prompt);
    params.from_token = from;
    struct spec_lookup_result found = fixture_lookup(fx, &params);
    expect_match(&found, expected > from ? expected : from);
    for (uint32_t l = 0; l < layers->count; l++) {
        if (l % 2 == 0) /* of every other layer reads have begun */
            assert_ok(fx, fx->api->begin_layer(fx->conn, &found.request, 1, l, &fx->error));
        load_layer(fx, layers, prompt, &found, from, l,
                   (enum box_layout)((layout + l) % BOX_LAYOUTS));
    }
    fixture_release(fx, found.request);
}

/* ---- 210 ---- */

static void abi_210_rows_of_every_kind_come_back_in_every_layout(void **state)
{
    struct fixture *fx = *state;
    static const uint64_t COUNTS[] = {2, 40, 65, 130, 700};
    for (uint32_t m = 0; m < MODEL_COUNT; m++) {
        struct described described;
        open_layers(fx, &MODELS[m], &described);
        for (uint32_t c = 0; c < 5; c++) {
            struct prompt prompt = prompt_make(2100 + m * 10 + c, COUNTS[c]);
            enum box_layout layout = (enum box_layout)((m + c) % BOX_LAYOUTS);
            bool stored = store_layers(fx, &MODELS[m], &prompt, layout);
            uint64_t expected = stored ? COUNTS[c] - 1 : 0;
            if (c == 4)
                fixture_reopen(fx);
            for (uint32_t i = 0; i < BOX_LAYOUTS; i++) {
                load_layers(fx, &MODELS[m], &prompt, 0, expected, (enum box_layout)i);
                load_layers(fx, &MODELS[m], &prompt, COUNTS[c] / 3, expected, (enum box_layout)i);
            }
            prompt_free(&prompt);
        }
        fixture_close(fx);
    }
}

static void abi_210_passes_that_go_on_and_part_are_one_match(void **state)
{
    struct fixture *fx = *state;
    for (uint32_t m = 0; m < MODEL_COUNT; m++) {
        struct described described;
        open_layers(fx, &MODELS[m], &described);
        struct prompt whole = prompt_make(2170 + m, 400), begun = prompt_make(2170 + m, 150);
        struct prompt other = prompt_diverge(&whole, 210, 300, 2180 + m);
        bool stored = store_layers(fx, &MODELS[m], &begun, BOX_PACKED);
        stored = store_layers(fx, &MODELS[m], &whole, BOX_HEAD_MAJOR) && stored;
        stored = store_layers(fx, &MODELS[m], &other, BOX_SPREAD) && stored;
        for (int i = 0; i < 2; i++) {
            load_layers(fx, &MODELS[m], &whole, 0, stored ? 399 : 0, BOX_PACKED);
            load_layers(fx, &MODELS[m], &other, 100, stored ? 299 : 0, BOX_COLUMNS);
            fixture_reopen(fx);
        }
        prompt_free(&whole);
        prompt_free(&begun);
        prompt_free(&other);
        fixture_close(fx);
    }
}

/* All layers from the match's end on: of every layer the same tokens, windows or not. */
static void abi_210_the_tail_of_every_layer_comes_whole(void **state)
{
    struct fixture *fx = *state;
    for (uint32_t m = 0; m < MODEL_COUNT; m++) {
        const struct layers *layers = &MODELS[m];
        struct described described;
        open_layers(fx, layers, &described);
        struct prompt prompt = prompt_make(2140 + m, 300);
        bool stored = store_layers(fx, layers, &prompt, BOX_PACKED);
        struct spec_lookup_params params = lookup_params(&prompt);
        params.from_token = 20;
        struct spec_lookup_result found = fixture_lookup(fx, &params);
        expect_match(&found, stored ? 299 : 20);
        uint64_t rows = found.matched_tokens - 20;
        struct box boxes[LAYERS_MAX];
        struct spec_important items[LAYERS_MAX];
        spec_ticket ticket;
        for (uint32_t l = 0; l < layers->count; l++) {
            boxes[l] = box_make(&layers->kinds[l], (enum box_layout)(l % BOX_LAYOUTS), rows);
            items[l] = important(found.request, l, &boxes[l].memory);
            items[l].flags = SPEC_ITEM_BIDIRECTIONAL;
        }
        assert_ok(
            fx, fx->api->get_important_submit(fx->conn, items, layers->count, &ticket, &fx->error));
        assert_ok(fx, fx->api->get_important_wait(fx->conn, ticket, CONF_WAIT_NS, &fx->error));
        for (uint32_t l = 0; l < layers->count; l++) {
            assert_int_equal(items[l].row_count, rows);
            box_expect(&boxes[l], &prompt, l, 20, 0, rows);
            box_free(&boxes[l]);
        }
        fixture_release(fx, found.request);
        prompt_free(&prompt);
        fixture_close(fx);
    }
}

static void abi_210_models_that_differ_in_a_layer_share_nothing(void **state)
{
    struct fixture *fx = *state;
    struct layers layers = MODELS[4];
    struct prompt prompt = prompt_make(2150, 200);
    struct described described;
    open_layers(fx, &layers, &described);
    bool stored = store_layers(fx, &layers, &prompt, BOX_PACKED);
    load_layers(fx, &layers, &prompt, 0, stored ? 199 : 0, BOX_PACKED);
    fixture_close(fx);
    layers.kinds[4].window++;
    for (int i = 0; i < 6; i++) {
        if (i == 4) { /* the same kinds in other layers, and then with other heads */
            layers.kinds[1] = MODELS[4].kinds[2];
            layers.kinds[2] = MODELS[4].kinds[1];
        } else if (i == 5) {
            layers = MODELS[4];
            layers.kinds[4].heads++;
        }
        open_layers(fx, &layers, &described);
        described.groups[0].rope_theta = i == 2 ? 5e5 : i == 3 ? (double)NAN : 0;
        fixture_reopen(fx);
        load_layers(fx, &layers, &prompt, 0, i == 1 && stored ? 199 : 0, BOX_PACKED);
        fixture_close(fx);
        if (i < 4)
            layers.kinds[4].window = MODELS[4].kinds[4].window;
    }
    prompt_free(&prompt);
}

static void expect_invalid(struct fixture *fx, const struct spec_lookup_result *found,
                           const struct box *box)
{
    struct spec_important item = important(found->request, 0, &box->memory);
    assert_status(fx->api->get_important(fx->conn, &item, 1, &fx->error), SPEC_E_INVALID);
    assert_true(strlen(fx->error.text) > 0);
}

static void abi_210_memory_of_another_form_is_invalid(void **state)
{
    struct fixture *fx = *state;
    static const uint32_t LAYERS_OF[] = {0, 1, 3}; /* latent, V smaller, alike */
    for (uint32_t i = 0; i < 3; i++) {
        const struct layers *layers = &MODELS[LAYERS_OF[i]];
        struct described described;
        open_layers(fx, layers, &described);
        struct prompt prompt = prompt_make(2160 + i, 100);
        (void)store_layers(fx, layers, &prompt, BOX_PACKED);
        struct spec_lookup_result found = fixture_find(fx, &prompt);
        struct box box = box_make(&layers->kinds[0], BOX_PACKED, found.matched_tokens);
        struct spec_memory good = box.memory;
        if (i == 0) {
            box.memory.v_base = box.bytes;
            expect_invalid(fx, &found, &box);
            box.memory.v_base = NULL;
            box.memory.v_bytes = 1;
            expect_invalid(fx, &found, &box);
        } else {
            box.memory.v_base = NULL;
            expect_invalid(fx, &found, &box);
            box.memory = good;
            box.memory.v_head_stride_bytes = good.head_stride_bytes + 4096;
            if (i == 2 || found.matched_tokens > 0) /* V of its own size: no row, no end */
                expect_invalid(fx, &found, &box);
            box.memory = good;
            box.memory.v_bytes = found.matched_tokens * layers->kinds[0].heads *
                                     layers->kinds[0].size_v * dtype_bytes(good.dtype) -
                                 1;
            if (found.matched_tokens > 0)
                expect_invalid(fx, &found, &box);
        }
        box_expect(&box, &prompt, 0, 0, 0, 0);
        box.memory = good;
        fixture_release(fx, found.request);
        load_layers(fx, layers, &prompt, 0, found.matched_tokens, BOX_PACKED);
        box_free(&box);
        prompt_free(&prompt);
        fixture_close(fx);
    }
}

static void abi_210_configurations_that_choose_rows_or_code_them_are_unsupported(void **state)
{
    struct fixture *fx = *state;
    static const char *const CHOOSING[] = {
        "\"preset\": \"impress\"", "\"select\": {\"retain_ppm\": 250000}",
        "\"select\": {\"probe_heads\": 1}", "\"layered\": {\"quantise\": \"yes\"}"};
    struct described described;
    if (conf_says_what_is_chosen())
        conf_skip("the command line's configuration says what is chosen or stored");
    for (uint32_t m = 0; m < MODEL_COUNT; m++)
        for (uint32_t i = 0; i < sizeof(CHOOSING) / sizeof(CHOOSING[0]); i++) {
            describe(fx, &MODELS[m], &described);
            fx->extra = CHOOSING[i];
            assert_status(fixture_try_open(fx), SPEC_E_UNSUPPORTED);
            assert_null(fx->conn);
            assert_true(strlen(fx->error.text) > 0);
            fx->extra = NULL;
        }
}

static void abi_210_fewer_rows_than_all_come_as_all(void **state)
{
    struct fixture *fx = *state;
    for (uint32_t m = 0; m < MODEL_COUNT; m++) {
        const struct layers *layers = &MODELS[m];
        struct described described;
        open_layers(fx, layers, &described);
        struct prompt prompt = prompt_make(2195 + m, 300);
        bool stored = store_layers(fx, layers, &prompt, BOX_PACKED);
        struct spec_lookup_result found = fixture_find(fx, &prompt);
        expect_match(&found, stored ? 299 : 0);
        for (uint32_t l = 0; l < layers->count && found.matched_tokens > 0; l++) {
            const struct spec_select select = {.struct_size = sizeof(select),
                                               .given = SPEC_SELECT_BUDGET,
                                               .budget = SPEC_BUDGET_RATIO,
                                               .retain_ppm = 100000};
            uint64_t first = first_needed(&layers->kinds[l], 0, found.matched_tokens);
            uint64_t rows = found.matched_tokens - first;
            struct box box = box_make(&layers->kinds[l], BOX_PACKED, rows);
            struct spec_important item = important(found.request, l, &box.memory);
            item.select = &select;
            assert_ok(fx, fx->api->get_important(fx->conn, &item, 1, &fx->error));
            assert_int_equal(item.row_count, rows);
            if (rows > 1)
                assert_true(item.result_flags & SPEC_IMPORTANT_DENSE);
            box_expect(&box, &prompt, l, first, 0, rows);
            box_free(&box);
        }
        fixture_release(fx, found.request);
        prompt_free(&prompt);
        fixture_close(fx);
    }
}

/* A hint is no more than a hint, whatever the next layer's heads are. */
static void abi_210_a_hint_has_the_size_of_its_layer(void **state)
{
    struct fixture *fx = *state;
    static const struct layers LAYERS = {"unlike", 2, {FULL(4, 64, F16), FULL(1, 8, F16)}};
    struct described described;
    float hint[4 * 8] = {0};
    open_layers(fx, &LAYERS, &described);
    struct prompt prompt = prompt_make(2199, 200);
    bool stored = store_layers(fx, &LAYERS, &prompt, BOX_PACKED);
    struct spec_lookup_result found = fixture_find(fx, &prompt);
    expect_match(&found, stored ? 199 : 0);
    const struct spec_queries queries = {.struct_size = sizeof(queries),
                                         .dtype = SPEC_DTYPE_F32,
                                         .data = hint,
                                         .byte_count = sizeof(hint),
                                         .row_count = 1,
                                         .row_stride_bytes = sizeof(hint),
                                         .head_stride_bytes = 8 * sizeof(float),
                                         .first_position = 199};
    assert_ok(fx, fx->api->prefetch_next(fx->conn, found.request, 0, &queries, &fx->error));
    load_layer(fx, &LAYERS, &prompt, &found, 0, 1, BOX_PACKED);
    fixture_release(fx, found.request);
    prompt_free(&prompt);
}

/* A lease, and what other ranks have, are of the very model. */
static void abi_210_ranks_and_leases_of_another_window_are_another_models(void **state)
{
    struct fixture *fx = *state;
    struct layers layers = {"a window", 2, {FULL(2, 16, F16), WINDOW(128, 2, 16, F16)}};
    struct prompt prompt = prompt_make(2198, 300);
    struct fixture ranks[2];
    struct described described[2];
    uint8_t lease[64];
    bool is_leased = false, stored = true;
    conf_skip_unlike_on_a_device();
    for (uint64_t window = 128; window >= 64; window /= 2) {
        layers.kinds[1].window = window;
        for (uint32_t rank = 0; rank < 2; rank++) {
            ranks[rank] = fixture_beside(fx, SPEC_ROLE_WRITER);
            describe(&ranks[rank], &layers, &described[rank]);
            ranks[rank].rank = ranks[rank].model.tp_rank = rank;
            ranks[rank].rank_count = ranks[rank].model.tp_size = 2;
            ranks[rank].model.kv_head_count = 1; /* of its own; groups say what counts */
            ranks[rank].model.query_head_count = 2;
            if (fixture_try_open(&ranks[rank]) == SPEC_E_UNSUPPORTED && conf_says_what_is_chosen())
                conf_skip("the command line's configuration says what is chosen or stored");
            assert_non_null(ranks[rank].conn);
        }
        for (uint32_t rank = 0; rank < (window == 128 ? 2 : 1); rank++)
            stored = store_layers(&ranks[rank], &layers, &prompt, BOX_PACKED) && stored;
        struct spec_lookup_result found =
            fixture_await(&ranks[0], &prompt, window == 128 && stored ? 299 : 0);
        if (window == 128)
            memcpy(lease, found.lease, sizeof(lease));
        else
            assert_int_equal(found.matched_tokens, 0); /* rank 1 has nothing of this model */
        is_leased = is_leased || found.matched_tokens > 0;
        fixture_release(&ranks[0], found.request);
        if (window == 64 && is_leased) {
            const struct spec_attach_params params = {.struct_size = sizeof(params),
                                                      .lease = {lease, sizeof(lease)}};
            found = (struct spec_lookup_result){.struct_size = sizeof(found)};
            assert_status(ranks[0].api->attach(ranks[0].conn, &params, &found, &ranks[0].error),
                          SPEC_E_INVALID);
        }
        fixture_close(&ranks[0]);
        fixture_close(&ranks[1]);
    }
    prompt_free(&prompt);
}

/* ---- 211 ---- */

static void abi_211_a_window_gives_the_rows_that_the_next_token_sees(void **state)
{
    struct fixture *fx = *state;
    static const uint64_t WINDOWS[] = {1, 2, 63, 64, 65, 99, 100, 101, 250, 299, 300, 301, 5000};
    for (uint32_t i = 0; i < sizeof(WINDOWS) / sizeof(WINDOWS[0]); i++) {
        const struct layers layers = {
            "a window", 2, {FULL(2, 16, F16), WINDOW(WINDOWS[i], 2, 16, F16)}};
        struct described described;
        open_layers(fx, &layers, &described);
        struct prompt prompt = prompt_make(2110 + i, 301);
        bool stored = store_layers(fx, &layers, &prompt, BOX_PACKED);
        for (uint64_t end = 300; end >= 60; end -= 60) {
            struct spec_lookup_params params = lookup_params(&prompt);
            params.max_tokens = end;
            for (params.from_token = 0; params.from_token < end; params.from_token += 59) {
                struct spec_lookup_result found = fixture_lookup(fx, &params);
                expect_match(&found, stored ? end : params.from_token);
                for (uint32_t l = 0; l < 2; l++)
                    load_layer(fx, &layers, &prompt, &found, params.from_token, l, BOX_PACKED);
                fixture_release(fx, found.request);
            }
        }
        prompt_free(&prompt);
        fixture_close(fx);
    }
}

/* Where a range of a window failed is told as of the whole match. */
static void abi_211_what_fails_in_a_window_is_where_it_is(void **state)
{
    struct fixture *fx = *state;
    const struct layers layers = {"a window", 2, {FULL(2, 16, F16), WINDOW(150, 2, 16, F16)}};
    struct described described;
    open_layers(fx, &layers, &described);
    struct prompt prompt = prompt_make(2190, 321);
    bool stored = store_layers(fx, &layers, &prompt, BOX_PACKED);
    fixture_close(fx);
    uint64_t copies = disk_damage(fx, (struct disk_row){&prompt, 260, 1}, DISK_FLIP);
    uint64_t unseen = disk_damage(fx, (struct disk_row){&prompt, 100, 1}, DISK_FLIP);
    fixture_open(fx);
    struct spec_lookup_result found = fixture_find(fx, &prompt);
    expect_match(&found, stored ? 320 : 0);
    if (copies == 0 || unseen == 0 || found.matched_tokens < 320)
        conf_skip("the row was not found on the disk as it was stored");
    struct box box = box_make(&layers.kinds[1], BOX_PACKED, 320);
    struct spec_important item = important(found.request, 1, &box.memory);
    assert_status(fx->api->get_important(fx->conn, &item, 1, &fx->error), SPEC_E_CORRUPT);
    assert_true(item.failed_position > 200 && item.failed_position <= 260);
    fixture_release(fx, found.request);
    found = fixture_find(fx, &prompt);
    assert_true(found.matched_tokens <= 260);
    fixture_release(fx, found.request);
    box_free(&box);
    prompt_free(&prompt);
}

/* Half of the model's rows are a window's that nobody reads: they count for nothing, and are
 * brought by nobody. */
static void abi_211_what_a_window_leaves_out_is_not_staged_or_counted(void **state)
{
    struct fixture *fx = *state;
    static const struct layers LAYERS = {"windows",
                                         4,
                                         {WINDOW(64, 4, 64, F16), WINDOW(64, 4, 64, F16),
                                          WINDOW(64, 4, 64, F16), WINDOW(64, 4, 64, F16)}};
    static const uint64_t ROW = 2 * 4 * 64 * 2;
    struct described described;
    if (strstr(conf_options.extra, "\"host_bytes\"") != NULL)
        conf_skip("the command line's configuration says how much host memory there is");
    char extra[8192];
    (void)snprintf(extra, sizeof(extra), "%s%s\"host_bytes\": \"1MiB\"", conf_options.extra,
                   conf_options.extra[0] != '\0' ? ", " : "");
    fx->extra = extra;
    open_layers(fx, &LAYERS, &described);
    struct prompt prompt = prompt_make(2191, 1025);
    bool stored = store_layers(fx, &LAYERS, &prompt, BOX_PACKED);
    fixture_reopen(fx); /* nothing of it is in memory */
    struct spec_lookup_result found = fixture_find(fx, &prompt);
    expect_match(&found, stored ? 1024 : 0);
    uint64_t told = 0, whole = 4 * 1024 * ROW;
    for (uint32_t tier = 0; tier < SPEC_TIERS; tier++)
        told += found.tier_bytes[tier];
    assert_true(found.matched_tokens == 0 || (told >= 4 * 63 * ROW && told < whole / 8));
    const struct spec_prefetch_to_host_params params = {.struct_size = sizeof(params),
                                                        .request = found.request};
    spec_ticket ticket;
    assert_ok(fx, fx->api->prefetch_to_host(fx->conn, &params, &ticket, &fx->error));
    assert_int_equal(fixture_wait(fx, ticket), SPEC_OK);
    for (uint32_t l = 0; l < LAYERS.count && found.matched_tokens > 0; l++) {
        struct box box = box_make(&LAYERS.kinds[l], BOX_PACKED, 63);
        struct spec_important item = important(found.request, l, &box.memory);
        assert_ok(fx, fx->api->get_important(fx->conn, &item, 1, &fx->error));
        assert_int_equal(item.tier_rows[SPEC_TIER_DISK], 0);
        box_expect(&box, &prompt, l, 1024 - 63, 0, 63);
        box_free(&box);
    }
    fixture_release(fx, found.request);
    fx->extra = NULL;
    prompt_free(&prompt);
}

const struct conf_test CONF_GROUPS[] = {
    BARE(abi_210_rows_of_every_kind_come_back_in_every_layout),
    BARE(abi_210_passes_that_go_on_and_part_are_one_match),
    BARE(abi_210_the_tail_of_every_layer_comes_whole),
    BARE(abi_210_models_that_differ_in_a_layer_share_nothing),
    BARE(abi_210_memory_of_another_form_is_invalid),
    BARE(abi_210_configurations_that_choose_rows_or_code_them_are_unsupported),
    BARE(abi_210_fewer_rows_than_all_come_as_all),
    BARE(abi_210_a_hint_has_the_size_of_its_layer),
    BARE(abi_210_ranks_and_leases_of_another_window_are_another_models),
    BARE(abi_211_what_a_window_leaves_out_is_not_staged_or_counted),
    BARE(abi_211_a_window_gives_the_rows_that_the_next_token_sees),
    BARE(abi_211_what_fails_in_a_window_is_where_it_is),
    END,
};
