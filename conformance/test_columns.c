/* test_columns: memory with K in columns and different token strides of K and V: ABI-175.
 *
 *   one (block, head)   [K: d 0 of all tokens | d 1 of all | ..][V: token 0 | token 1 | ..]
 *
 * Every area is compared whole, guards and gaps included. Threads, Tests: see fixture.h. */
#include "conformance/quantised.h"
#include "conformance/suite.h"

#include <stdlib.h>
#include <string.h>

static const uint64_t BLOCKS[] = {32, 128};

/* Slots of the area's tokens, of which there are fewer than twice as many as tokens. */
enum order {
    SHIFTED,   /* one behind the other, from inside a block on */
    BLOCKWISE, /* as a block table has them: blocks in any order */
    BACKWARDS,
    ANY,
    ORDERS
};

static void slots_set(struct area *area, enum order order, uint64_t shift)
{
    uint64_t block = area->memory.block_tokens;
    uint64_t blocks = (area->count + block - 1) / block, at = 0;
    area->slots = malloc((area->count + 1) * sizeof(int64_t));
    assert_non_null(area->slots);
    for (uint64_t j = 0; j < area->count; j++) {
        at = order == SHIFTED     ? j + shift % block
             : order == BACKWARDS ? area->count - 1 - j
             : order == ANY       ? (j * 37 + shift) % area->count
                                  : (blocks - 1 - j / block) * block + j % block;
        area->slots[j] = (int64_t)at;
    }
    area->memory.slots = area->slots;
    area->memory.slot_count = area->count;
}

static void load(struct fixture *fx, const struct spec_lookup_result *found, uint32_t layer,
                 const struct area *area)
{
    struct spec_important item = important(found->request, layer, &area->memory);
    assert_ok(fx, fx->api->get_important(fx->conn, &item, 1, &fx->error));
}

static spec_status store_from(struct fixture *fx, const struct spec_lookup_result *found,
                              const struct area *area, uint32_t layer)
{
    struct spec_store_params params = {.struct_size = sizeof(params),
                                       .request = found->request,
                                       .layer = layer,
                                       .first_token = found->matched_tokens,
                                       .token_count = area->count,
                                       .memory = &area->memory};
    spec_ticket ticket;
    assert_ok(fx, fx->api->store(fx->conn, &params, 1, &ticket, &fx->error));
    return fixture_wait(fx, ticket);
}

/* Stores what is not matched, from columns of such blocks and slots. */
static bool store_columns(struct fixture *fx, const struct prompt *prompt, uint64_t block,
                          enum order order, uint64_t shift)
{
    struct spec_lookup_result found = fixture_find(fx, prompt);
    uint64_t first = found.matched_tokens, count = prompt->count - first;
    spec_status ended = SPEC_OK;
    for (uint32_t layer = 0; layer < fx->shape.layers; layer++) {
        struct area area = area_columns(&fx->shape, count, block);
        if (order != ORDERS)
            slots_set(&area, order, shift);
        area_fill(&area, &fx->shape, prompt, first, layer);
        ended = store_from(fx, &found, &area, layer);
        area_expect(&area, &fx->shape, prompt, first, count, layer); /* it only reads */
        area_free(&area);
    }
    fixture_release(fx, found.request);
    return ended == SPEC_OK;
}

/* Moves element by element what stands in rows into columns: `want` is poison else. */
static void rearrange(const struct area *from, const struct area *want, uint32_t heads)
{
    uint8_t head[128 * sizeof(float)];
    uint64_t bytes = dtype_bytes(from->memory.dtype);
    assert_true(from->head_size * bytes <= sizeof(head));
    for (uint64_t j = 0; j < from->count; j++)
        for (uint32_t part = 0; part < 2 * heads; part++) {
            for (uint64_t i = 0; i < from->head_size; i++)
                memcpy(head + i * bytes, area_element(from, j, part / 2, part % 2, i), bytes);
            area_put(want, j, part / 2, part % 2, head);
        }
}

/* The same layer into rows and into columns. */
static void expect_like_rows(struct fixture *fx, const struct spec_lookup_result *found,
                             uint32_t layer, uint32_t dtype, uint64_t block)
{
    struct shape shape = fx->shape;
    shape.dtype = dtype;
    struct area rows = area_make(&shape, LAYOUT_PACKED, found->matched_tokens);
    struct area columns = area_columns(&shape, found->matched_tokens, block);
    struct area want = area_twin(&columns);
    load(fx, found, layer, &rows);
    load(fx, found, layer, &columns);
    rearrange(&rows, &want, shape.heads);
    assert_memory_equal(columns.bytes, want.bytes, want.byte_count);
    area_free(&rows);
    area_free(&columns);
    area_free(&want);
}

static void abi_175_columns_of_every_shape_hold_what_rows_hold(void **state)
{
    struct fixture *fx = *state;
    for (uint32_t head_size = 32; head_size <= 128; head_size *= 2)
        for (uint32_t dtype = SPEC_DTYPE_F32; dtype <= SPEC_DTYPE_BF16; dtype++) {
            fixture_shape(fx, (struct shape){2, 2, head_size, dtype});
            fixture_open(fx);
            for (uint32_t b = 0; b < 2; b++) {
                struct prompt prompt = prompt_make(1750 + b, 230);
                bool stored = store_columns(fx, &prompt, BLOCKS[b], ORDERS, 0);
                struct spec_lookup_result found = fixture_find(fx, &prompt);
                expect_match(&found, stored ? 229 : 0);
                fixture_check_layers(fx, &found, &prompt, 0); /* as rows that rows were stored of */
                for (uint32_t layer = 0; layer < 2; layer++) {
                    expect_like_rows(fx, &found, layer, dtype, BLOCKS[b]);
                    expect_like_rows(fx, &found, layer, SPEC_DTYPE_F32, BLOCKS[1 - b]);
                }
                fixture_release(fx, found.request);
                prompt_free(&prompt);
            }
            fixture_close(fx);
        }
}

static void abi_175_prompts_may_part_at_every_offset_inside_a_block(void **state)
{
    struct fixture *fx = *state;
    fixture_shape(fx, (struct shape){2, 1, 32, SPEC_DTYPE_F16});
    fixture_open(fx);
    struct prompt whole = prompt_make(1760, 110);
    bool stored = fixture_store(fx, &whole);
    for (uint64_t at = 31; at < 100; at++) {
        struct prompt parted = prompt_diverge(&whole, at, at + 45, at);
        struct spec_lookup_params params = lookup_params(&parted);
        params.from_token = at % 3 * 10;
        struct spec_lookup_result found = fixture_lookup(fx, &params);
        expect_match(&found, stored ? at : 0);
        for (uint32_t layer = 0; layer < 2 && found.matched_tokens > params.from_token; layer++) {
            uint64_t rows = found.matched_tokens - params.from_token;
            struct area area = area_columns(&fx->shape, rows, 32);
            slots_set(&area, SHIFTED, at * 5 + layer);
            load(fx, &found, layer, &area);
            area_expect(&area, &fx->shape, &parted, params.from_token, rows, layer);
            area_free(&area);
        }
        fixture_release(fx, found.request);
        if (store_columns(fx, &parted, 32, SHIFTED, at))
            fixture_check(fx, &parted, at + 44);
        prompt_free(&parted);
    }
    prompt_free(&whole);
}

static void abi_175_slots_come_in_any_order_and_negative_ones_are_skipped(void **state)
{
    struct fixture *fx = *state;
    fixture_shape(fx, (struct shape){2, 3, 64, SPEC_DTYPE_BF16});
    fixture_open(fx);
    for (enum order order = 0; order < ORDERS; order++) {
        struct prompt prompt = prompt_make(1770 + order, 211);
        bool stored = store_columns(fx, &prompt, BLOCKS[order % 2], order, 17);
        struct spec_lookup_result found = fixture_find(fx, &prompt);
        expect_match(&found, stored ? 210 : 0);
        fixture_check_layers(fx, &found, &prompt, 0);
        for (uint64_t skips = 0; skips < 9; skips++) {
            struct area area = area_columns(&fx->shape, found.matched_tokens, BLOCKS[skips % 2]);
            slots_set(&area, order, skips);
            for (uint64_t j = 0; j < area.count; j++)
                if (skips > 0 && j * skips % 11 < 3)
                    area.slots[j] = j % 2 == 0 ? -1 : INT64_MIN;
            load(fx, &found, 1, &area);
            area_expect(&area, &fx->shape, &prompt, 0, found.matched_tokens, 1);
            area_free(&area);
        }
        fixture_release(fx, found.request);
        prompt_free(&prompt);
    }
}

/* Any strides that do not let elements meet: K's tokens with gaps, V's further apart than K's. */
static void abi_175_strides_of_k_and_v_have_nothing_in_common(void **state)
{
    struct fixture *fx = *state;
    struct prompt prompt = prompt_make(1780, 130);
    bool stored = fixture_store(fx, &prompt);
    struct spec_lookup_result found = fixture_find(fx, &prompt);
    expect_match(&found, stored ? 129 : 0);
    uint64_t element = dtype_bytes(fx->shape.dtype), head = head_bytes(&fx->shape);
    for (uint32_t way = 0; way < 3; way++) {
        struct area area = area_make(&fx->shape, LAYOUT_PADDED, 2 * (found.matched_tokens + 1));
        struct spec_memory *memory = &area.memory;
        area.count = found.matched_tokens;
        if (way == 0) { /* K rows as they are; V's as if each had room for two */
            memory->v_token_stride_bytes = 2 * memory->token_stride_bytes;
        } else { /* K [head][d][token], a gap behind each token where way is 2 */
            memory->token_stride_bytes = way * element;
            memory->k_element_stride_bytes = way * (area.count + 1) * element;
            memory->head_stride_bytes = fx->shape.head_size * memory->k_element_stride_bytes;
            memory->v_token_stride_bytes = head;
        }
        if (way > 0) { /* V [head][token][d], heads as far apart as K's */
            uint64_t bytes = fx->shape.heads * memory->head_stride_bytes;
            free(area.bytes);
            area.byte_count = 2 * bytes + 2 * 4096;
            area.bytes = malloc(area.byte_count);
            assert_non_null(area.bytes);
            memory->k_base = area.bytes + 4096;
            memory->v_base = area.bytes + 4096 + bytes;
            memory->k_bytes = memory->v_bytes = bytes;
            area_poison(&area);
        }
        load(fx, &found, 2, &area);
        area_expect(&area, &fx->shape, &prompt, 0, found.matched_tokens, 2);
        area_free(&area);
    }
    fixture_release(fx, found.request);
    prompt_free(&prompt);
}

/* ---- What may be asked for ---- */

static void expect_refused(struct fixture *fx, const struct spec_lookup_result *found,
                           const struct area *area, const struct spec_memory *wrong,
                           bool is_for_any)
{
    struct spec_important item = important(found->request, 0, wrong);
    struct spec_store_params params = {.struct_size = sizeof(params),
                                       .request = found->request,
                                       .token_count = 1,
                                       .first_token = found->matched_tokens,
                                       .memory = wrong};
    spec_ticket ticket;
    assert_status(fx->api->get_important(fx->conn, &item, 1, &fx->error), SPEC_E_INVALID);
    for (uint64_t i = 0; i < area->byte_count; i++)
        assert_int_equal(area->bytes[i], POISON);
    if (is_for_any) /* token, so of a store of one */
        assert_status(fx->api->store(fx->conn, &params, 1, &ticket, &fx->error), SPEC_E_INVALID);
}

static void abi_175_strides_are_elements_and_end_inside_the_memory(void **state)
{
    struct fixture *fx = *state;
    struct prompt prompt = prompt_make(1785, 101);
    bool stored = fixture_store(fx, &prompt);
    struct spec_lookup_result found = fixture_find(fx, &prompt);
    expect_match(&found, stored ? 100 : 0);
    bool asks = found.matched_tokens == 100; /* a miss asks for no row, so no address is wrong */
    struct area area = area_columns(&fx->shape, 100, 32);
    struct spec_memory *memory = &area.memory;
    uint64_t element = dtype_bytes(fx->shape.dtype), last = fx->shape.head_size - 1;
    uint32_t heads = fx->shape.heads;
    uint8_t *k_end = area_element(&area, 99, heads - 1, 0, last) + element, *k = memory->k_base;
    uint8_t *v_end = area_element(&area, 95, heads - 1, 1, last) + element, *v = memory->v_base;
    uint8_t *v_last = area_element(&area, 99, heads - 1, 1, last) + element;
    memory->k_bytes = (uint64_t)(k_end - k); /* to the byte */
    memory->v_bytes = (uint64_t)((v_end > v_last ? v_end : v_last) - v);
    const struct spec_memory right = *memory;
    const uint64_t STRIDES[] = {1,
                                element - 1,
                                element + 1,
                                UINT64_MAX,
                                UINT64_MAX - element + 1,
                                UINT64_C(1) << 63,
                                UINT64_MAX / last / element * element,
                                (UINT64_MAX / last / element + 1) * element,
                                right.k_bytes};
    for (uint64_t i = 0; i < sizeof(STRIDES) / sizeof(STRIDES[0]) && asks; i++) {
        struct spec_memory wrong = right;
        wrong.k_element_stride_bytes = STRIDES[i];
        expect_refused(fx, &found, &area, &wrong, true);
        wrong = right;
        wrong.v_token_stride_bytes = STRIDES[i];
        expect_refused(fx, &found, &area, &wrong, STRIDES[i] % element != 0);
    }
    struct spec_memory wrong = right;
    wrong.k_bytes--;
    if (asks)
        expect_refused(fx, &found, &area, &wrong, false);
    wrong = right;
    wrong.v_bytes--;
    if (asks)
        expect_refused(fx, &found, &area, &wrong, false);
    load(fx, &found, 0, &area);
    area_expect(&area, &fx->shape, &prompt, 0, found.matched_tokens, 0);
    fixture_release(fx, found.request);
    area_free(&area);
    prompt_free(&prompt);
}

/* ---- Chosen rows, codes ---- */

/* One item, with destination and new keys in such layouts; the caller frees the answer. */
static struct answer ask_in(struct scene *scene, const struct ask *ask,
                            const struct spec_lookup_result *found, enum layout layout)
{
    struct fixture *fx = scene->fx;
    struct answer answer = answer_make(scene, ask, found);
    uint64_t fresh = answer.new_keys.count;
    area_free(&answer.area);
    area_free(&answer.new_keys);
    answer.area = area_make(&fx->shape, layout, found->matched_tokens - ask->from);
    answer.new_keys = area_make(&fx->shape, layout, fresh);
    area_fill(&answer.new_keys, &fx->shape, &scene->prompt, scene->matched, ask->layer);
    answer.item = answer_item(ask, &answer);
    assert_ok(fx, fx->api->get_important(fx->conn, &answer.item, 1, &fx->error));
    return answer;
}

/* The rows that count, element by element. */
static void expect_same_rows(const struct answer *plain, const struct answer *columns,
                             uint32_t heads)
{
    uint64_t element = dtype_bytes(plain->area.memory.dtype);
    for (uint64_t r = 0; r < plain->item.row_count; r++)
        for (uint32_t part = 0; part < 2 * heads; part++)
            for (uint64_t i = 0; i < plain->area.head_size; i++)
                assert_memory_equal(area_element(&plain->area, r, part / 2, part % 2, i),
                                    area_element(&columns->area, r, part / 2, part % 2, i),
                                    element);
}

/* Chosen by the keys of all heads, which are scored in the destination and compacted there. */
static void abi_175_keys_are_scored_and_moved_where_they_stand(void **state)
{
    struct fixture *fx = *state;
    static const char *const STORES[] = {"\"layout\": \"paired\"", "\"layout\": \"split\""};
    for (uint32_t i = 0; i < 4; i++) {
        fixture_shape(fx, (struct shape){2, 4, i < 2 ? 64 : 40, SPEC_DTYPE_BF16});
        scene_configure(fx, 0, "\"identify\": \"keys\", \"retain_ppm\": 300000", STORES[i % 2]);
        struct scene scene = scene_open(fx, fx->shape, 1, 0, 1796 + i, 170);
        for (uint64_t rows = 1; rows <= FRESH; rows += FRESH - 1) {
            struct ask ask = ask_ratio((uint32_t)(rows % 2), 300000);
            ask.rows = rows;
            struct spec_lookup_result found = scene_find(&scene, 0);
            struct answer plain = ask_in(&scene, &ask, &found, LAYOUT_PACKED);
            struct answer columns = ask_in(&scene, &ask, &found, LAYOUT_COLUMNS);
            if (conf_options.require_hits)
                assert_int_equal(columns.item.result_flags, conf_options.one_set
                                                                ? SPEC_IMPORTANT_DENSE
                                                                : SPEC_IMPORTANT_FALLBACK);
            answer_expect_same(&scene, &plain, &columns);
            expect_same_rows(&plain, &columns, fx->shape.heads);
            answer_free(&plain);
            answer_free(&columns);
            fixture_release(fx, found.request);
        }
        scene_close(&scene);
    }
}

static void abi_175_rows_are_chosen_of_columns_and_into_columns(void **state)
{
    struct fixture *fx = *state;
    for (uint32_t agree = 0; agree <= 7; agree += 7) { /* a set a head, and one set */
        fixture_shape(fx, (struct shape){3, 4, 32, SPEC_DTYPE_F16});
        scene_configure(fx, 3, "", "");
        struct scene scene = scene_open(fx, fx->shape, 3, agree, 1790 + agree, 170);
        for (uint32_t layer = 0; layer < 3; layer++)
            for (uint64_t rows = 1; rows <= FRESH; rows += FRESH - 1) {
                struct ask ask = ask_ratio(layer, 300000);
                ask.rows = rows;
                struct spec_lookup_result found = scene_find(&scene, 0);
                struct answer plain = ask_in(&scene, &ask, &found, LAYOUT_PACKED);
                struct answer columns = ask_in(&scene, &ask, &found, LAYOUT_COLUMNS);
                answer_expect(&scene, &ask, &columns);
                answer_expect_same(&scene, &plain, &columns);
                expect_same_rows(&plain, &columns, fx->shape.heads);
                answer_free(&plain);
                answer_free(&columns);
                fixture_release(fx, found.request);
            }
        scene_close(&scene);
    }
}

static void abi_175_codes_and_exact_rows_stand_in_columns(void **state)
{
    struct fixture *fx = *state;
    static const uint32_t SHARES[] = {0, 50000, 400000, PPM};
    struct quantised quantised =
        quantised_open(fx, (struct shape){3, 4, 32, SPEC_DTYPE_BF16}, 1795, 4, 3);
    for (uint32_t i = 0; i < 12; i++) {
        struct shot plain = shot_of(i % 3, SHARES[i / 3]), columns = plain;
        struct spec_lookup_result found = scene_find(&quantised.scene, 0);
        plain.dtype = columns.dtype = i % 2 == 0 ? 0 : SPEC_DTYPE_F32;
        columns.layout = LAYOUT_COLUMNS;
        assert_true(fire_in(&quantised, &plain, &found));
        assert_true(fire_in(&quantised, &columns, &found));
        assert_memory_equal(plain.bits, columns.bits, sizeof(plain.bits));
        struct area want = area_twin(&columns.answer.area);
        rearrange(&plain.answer.area, &want, fx->shape.heads);
        assert_memory_equal(want.bytes, columns.answer.area.bytes, want.byte_count);
        free(want.bytes);
        shot_free(&plain);
        shot_free(&columns);
        fixture_release(fx, found.request);
    }
    quantised_close(&quantised);
}

const struct conf_test CONF_COLUMNS[] = {
    BARE(abi_175_columns_of_every_shape_hold_what_rows_hold),
    BARE(abi_175_prompts_may_part_at_every_offset_inside_a_block),
    BARE(abi_175_slots_come_in_any_order_and_negative_ones_are_skipped),
    OPENED(abi_175_strides_of_k_and_v_have_nothing_in_common),
    OPENED(abi_175_strides_are_elements_and_end_inside_the_memory),
    OPENED(abi_175_rows_are_chosen_of_columns_and_into_columns),
    OPENED(abi_175_keys_are_scored_and_moved_where_they_stand),
    OPENED(abi_175_codes_and_exact_rows_stand_in_columns),
    END,
};
