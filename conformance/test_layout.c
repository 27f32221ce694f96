/* test_layout: destination layouts, and dtypes that rows may be widened to: ABI-053 .. ABI-055.
 *
 * Threads, Tests: see fixture.h. */
#include "conformance/suite.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Stores a prompt of 150 tokens from memory in one layout. */
static bool store_from(struct fixture *fx, const struct prompt *prompt, enum layout layout)
{
    struct spec_lookup_result found = fixture_find(fx, prompt);
    assert_int_equal(found.matched_tokens, 0);
    spec_status ended = SPEC_OK;
    for (uint32_t layer = 0; layer < fx->shape.layers; layer++) {
        struct area area = area_make(&fx->shape, layout, prompt->count);
        area_fill(&area, &fx->shape, prompt, 0, layer);
        struct spec_store_params params = {.struct_size = sizeof(params),
                                           .request = found.request,
                                           .layer = layer,
                                           .token_count = prompt->count,
                                           .memory = &area.memory};
        spec_ticket ticket;
        assert_ok(fx, fx->api->store(fx->conn, &params, 1, &ticket, &fx->error));
        area_expect(&area, &fx->shape, prompt, 0, prompt->count, layer); /* it only reads */
        area_free(&area);
        ended = fixture_wait(fx, ticket);
    }
    fixture_release(fx, found.request);
    return ended == SPEC_OK;
}

static void abi_053_rows_are_written_into_every_layout_and_nowhere_else(void **state)
{
    struct fixture *fx = *state;
    for (enum layout from = 0; from < LAYOUTS; from++) {
        struct prompt prompt = prompt_make(110 + from, 150);
        bool stored = store_from(fx, &prompt, from);
        struct spec_lookup_result found = fixture_find(fx, &prompt);
        expect_match(&found, stored ? 149 : 0);
        for (enum layout to = 0; to < LAYOUTS; to++)
            for (uint32_t layer = 0; layer < fx->shape.layers; layer++) {
                struct area area = area_make(&fx->shape, to, found.matched_tokens);
                struct spec_important item = important(found.request, layer, &area.memory);
                assert_ok(fx, fx->api->get_important(fx->conn, &item, 1, &fx->error));
                if (!area_is_right(&area, &fx->shape, &prompt, 0, found.matched_tokens, layer))
                    fail_msg("stored from %s, loaded into %s: other bytes", LAYOUT_NAMES[from],
                             LAYOUT_NAMES[to]);
                area_free(&area);
            }
        fixture_release(fx, found.request);
        prompt_free(&prompt);
    }
}

/* ---- 054 ---- */

static float widen_f16(uint16_t bits)
{
    uint32_t exponent = bits >> 10 & 31, fraction = bits & 1023;
    float sign = bits >> 15 ? -1.0f : 1.0f;
    if (exponent == 31)
        return fraction != 0 ? NAN : sign * INFINITY;
    if (exponent == 0)
        return sign * ldexpf((float)fraction, -24);
    return sign * ldexpf((float)(fraction + 1024), (int)exponent - 25);
}

static float widen_bf16(uint16_t bits)
{
    uint32_t wide = (uint32_t)bits << 16;
    float value;
    memcpy(&value, &wide, sizeof(value));
    return value;
}

/* True when the float holds exactly the narrow number (any NaN for a NaN). */
static bool is_widened(uint32_t dtype, const uint8_t *narrow, const uint8_t *wide)
{
    uint16_t bits;
    float have, want;
    memcpy(&bits, narrow, sizeof(bits));
    memcpy(&have, wide, sizeof(have));
    want = dtype == SPEC_DTYPE_F16 ? widen_f16(bits) : widen_bf16(bits);
    if (isnan(want))
        return isnan(have);
    return memcmp(&have, &want, sizeof(have)) == 0;
}

static void check_widened(struct fixture *fx, const struct prompt *prompt, uint32_t layer)
{
    struct spec_lookup_result found = fixture_find(fx, prompt);
    expect_match(&found, prompt->count - 1);
    struct shape wide = fx->shape;
    wide.dtype = SPEC_DTYPE_F32;
    struct area area = area_make(&wide, LAYOUT_VLLM, found.matched_tokens);
    struct spec_important item = important(found.request, layer, &area.memory);
    assert_ok(fx, fx->api->get_important(fx->conn, &item, 1, &fx->error));
    uint8_t *row = malloc(row_bytes(&fx->shape));
    assert_non_null(row);
    for (uint64_t j = 0; j < found.matched_tokens; j++)
        for (int value = 0; value < 2; value++) {
            truth_row(&fx->shape, prompt, j, layer, value, row);
            for (uint32_t i = 0; i < fx->shape.heads * fx->shape.head_size; i++)
                assert_true(is_widened(fx->shape.dtype, row + i * 2,
                                       area_at(&area, j, i / fx->shape.head_size, value) +
                                           i % fx->shape.head_size * sizeof(float)));
            for (uint32_t h = 0; h < fx->shape.heads; h++) /* so that the rest must be poison */
                memset(area_at(&area, j, h, value), POISON, head_bytes(&wide));
        }
    area_expect(&area, &wide, prompt, 0, 0, layer);
    free(row);
    area_free(&area);
    fixture_release(fx, found.request);
}

static void abi_054_a_wider_destination_is_filled_exactly(void **state)
{
    struct fixture *fx = *state;
    static const uint32_t DTYPES[] = {SPEC_DTYPE_F16, SPEC_DTYPE_BF16};
    for (size_t i = 0; i < 2; i++) {
        fixture_shape(fx, (struct shape){2, 3, 37, DTYPES[i]});
        fixture_open(fx);
        struct prompt prompt = prompt_make(120 + i, 300); /* 133,200 of the 65,536 patterns */
        (void)fixture_store(fx, &prompt);
        for (uint32_t layer = 0; layer < 2; layer++)
            check_widened(fx, &prompt, layer);
        prompt_free(&prompt);
        fixture_close(fx);
    }
}

static void abi_054_a_narrower_or_other_destination_is_invalid(void **state)
{
    struct fixture *fx = *state;
    static const struct {
        uint32_t stored, asked;
    } PAIRS[] = {{SPEC_DTYPE_F32, SPEC_DTYPE_F16},
                 {SPEC_DTYPE_F32, SPEC_DTYPE_BF16},
                 {SPEC_DTYPE_F16, SPEC_DTYPE_BF16},
                 {SPEC_DTYPE_BF16, SPEC_DTYPE_F16}};
    for (size_t i = 0; i < sizeof(PAIRS) / sizeof(PAIRS[0]); i++) {
        fixture_shape(fx, (struct shape){2, 2, 16, PAIRS[i].stored});
        fixture_open(fx);
        struct prompt prompt = prompt_make(122, 100);
        (void)fixture_store(fx, &prompt);
        struct spec_lookup_result found = fixture_find(fx, &prompt);
        struct area area = area_make(&fx->shape, LAYOUT_PACKED, 100);
        area.memory.dtype = PAIRS[i].asked;
        struct spec_important item = important(found.request, 0, &area.memory);
        assert_status(fx->api->get_important(fx->conn, &item, 1, &fx->error), SPEC_E_INVALID);
        area_expect(&area, &fx->shape, &prompt, 0, 0, 0);
        area_free(&area);
        prompt_free(&prompt);
        fixture_close(fx);
    }
}

/* ---- 055 ---- */

static void abi_055_negative_slots_are_skipped(void **state)
{
    struct fixture *fx = *state;
    struct prompt prompt = prompt_make(123, 200);
    bool stored = fixture_store(fx, &prompt);
    struct spec_lookup_result found = fixture_find(fx, &prompt);
    expect_match(&found, stored ? 199 : 0);
    for (enum layout layout = LAYOUT_VLLM; layout <= LAYOUT_COLUMNS; layout++)
        for (uint64_t step = 1; step <= 7; step += 3) {
            struct area area = area_make(&fx->shape, layout, found.matched_tokens);
            for (uint64_t j = 0; j < found.matched_tokens; j += step)
                area.slots[j] = j % 2 == 0 ? -1 : INT64_MIN;
            struct spec_important item = important(found.request, 2, &area.memory);
            assert_ok(fx, fx->api->get_important(fx->conn, &item, 1, &fx->error));
            assert_int_equal(item.row_count, found.matched_tokens);
            area_expect(&area, &fx->shape, &prompt, 0, found.matched_tokens, 2);
            area_free(&area);
        }
    fixture_release(fx, found.request);
    prompt_free(&prompt);
}

static void abi_055_a_store_from_a_negative_slot_is_invalid(void **state)
{
    struct fixture *fx = *state;
    struct prompt prompt = prompt_make(124, 100);
    struct spec_lookup_result found = fixture_find(fx, &prompt);
    struct area area = area_make(&fx->shape, LAYOUT_VLLM, 100);
    area.slots[40] = -1;
    struct spec_store_params params = {.struct_size = sizeof(params),
                                       .request = found.request,
                                       .token_count = 100,
                                       .memory = &area.memory};
    spec_ticket ticket;
    assert_status(fx->api->store(fx->conn, &params, 1, &ticket, &fx->error), SPEC_E_INVALID);
    fixture_release(fx, found.request);
    area_free(&area);
    prompt_free(&prompt);
}

const struct conf_test CONF_LAYOUT[] = {
    OPENED(abi_053_rows_are_written_into_every_layout_and_nowhere_else),
    BARE(abi_054_a_wider_destination_is_filled_exactly),
    BARE(abi_054_a_narrower_or_other_destination_is_invalid),
    OPENED(abi_055_negative_slots_are_skipped),
    OPENED(abi_055_a_store_from_a_negative_slot_is_invalid),
    END,
};
