/* test_bytes: one-byte dtypes, which the plugin stores and delivers as bytes: ABI-180.
 *
 *   any bytes, rows of any odd size, at any address  ->  the same bytes, into the same dtype
 *
 * Every row is compared, with the memory around it. Threads, Tests: see fixture.h. */
#include "conformance/choice.h"
#include "conformance/suite.h"

#include <stdio.h>
#include <string.h>

static const uint32_t DTYPES[] = {SPEC_DTYPE_FP8_E4M3, SPEC_DTYPE_FP8_E5M2, SPEC_DTYPE_INT8,
                                  SPEC_DTYPE_BYTES};
#define DTYPE_COUNT 4u

static void open_bytes(struct fixture *fx, struct shape shape)
{
    fixture_shape(fx, shape);
    spec_status status = fixture_try_open(fx);
    if (status == SPEC_E_UNSUPPORTED && conf_says_what_is_chosen())
        conf_skip("the command line's configuration says what is chosen or stored");
    assert_ok(fx, status);
}

static void abi_180_bytes_come_back_as_they_are_in_every_shape(void **state)
{
    struct fixture *fx = *state;
    static const struct shape SHAPES[] = {{1, 1, 1, 0},  {2, 3, 5, 0},    {3, 1, 257, 0},
                                          {2, 7, 33, 0}, {2, 5, 128, 0},  {1, 3, 1, 0},
                                          {2, 2, 64, 0}, {1, 1, 4095, 0}, {2, 9, 129, 0}};
    static const uint64_t COUNTS[] = {2, 65, 700};
    for (uint32_t i = 0; i < sizeof(SHAPES) / sizeof(SHAPES[0]); i++) {
        struct shape shape = SHAPES[i];
        shape.dtype = DTYPES[i % DTYPE_COUNT];
        open_bytes(fx, shape);
        for (uint32_t j = 0; j < 3; j++) {
            struct prompt prompt = prompt_make(1800 + i * 10 + j, COUNTS[j]);
            bool stored = fixture_store(fx, &prompt);
            fixture_check(fx, &prompt, stored ? COUNTS[j] - 1 : 0);
            if (j == 2)
                fixture_reopen(fx);
            fixture_check(fx, &prompt, stored ? COUNTS[j] - 1 : 0);
            prompt_free(&prompt);
        }
        fixture_close(fx);
    }
}

/* The area's rows begin `shift` bytes later than they did. */
static void area_shift(struct area *area, uint64_t shift)
{
    area->memory.k_base = (uint8_t *)area->memory.k_base + shift;
    area->memory.v_base = (uint8_t *)area->memory.v_base + shift;
}

static void put_row(const struct fixture *fx, const struct area *area, const struct prompt *prompt,
                    uint64_t position, uint32_t layer, uint64_t j)
{
    uint8_t row[64];
    assert_true(row_bytes(&fx->shape) <= sizeof(row));
    for (int value = 0; value < 2; value++) {
        truth_row(&fx->shape, prompt, position, layer, value, row);
        for (uint32_t h = 0; h < fx->shape.heads; h++)
            area_put(area, j, h, value, row + h * head_bytes(&fx->shape));
    }
}

/* From and into any layout that may begin at any byte; tokens [0, count) of an area of one more. */
static void abi_180_bytes_lie_at_any_address_of_any_layout(void **state)
{
    struct fixture *fx = *state;
    static const struct shape SHAPE = {2, 3, 5, SPEC_DTYPE_INT8};
    open_bytes(fx, SHAPE);
    for (uint32_t i = 0; i < LAYOUTS * LAYOUTS; i++) {
        enum layout from = (enum layout)(i / LAYOUTS), to = (enum layout)(i % LAYOUTS);
        struct prompt prompt = prompt_make(1900 + i, 70);
        struct spec_lookup_result found = fixture_find(fx, &prompt);
        spec_status ended = SPEC_OK;
        for (uint32_t layer = 0; layer < SHAPE.layers; layer++) {
            struct area area = area_make(&SHAPE, from, 71);
            area_shift(&area, i % 2); /* within the guard behind it */
            area.memory.k_bytes -= i % 2;
            area.memory.v_bytes -= i % 2;
            for (uint64_t j = 0; j < 70; j++)
                put_row(fx, &area, &prompt, j, layer, j);
            struct spec_store_params params = {.struct_size = sizeof(params),
                                               .request = found.request,
                                               .layer = layer,
                                               .token_count = 70,
                                               .memory = &area.memory};
            spec_ticket ticket;
            assert_ok(fx, fx->api->store(fx->conn, &params, 1, &ticket, &fx->error));
            ended = fixture_wait(fx, ticket);
            area_free(&area);
        }
        fixture_release(fx, found.request);
        found = fixture_find(fx, &prompt);
        expect_match(&found, ended == SPEC_OK ? 69 : 0);
        for (uint32_t layer = 0; layer < SHAPE.layers; layer++) {
            uint64_t count = found.matched_tokens;
            struct area area = area_make(&SHAPE, to, count + 1),
                        want = area_make(&SHAPE, to, count + 1);
            area_shift(&area, i / 2 % 2);
            area_shift(&want, i / 2 % 2);
            for (uint64_t j = 0; j < count; j++)
                put_row(fx, &want, &prompt, j, layer, j);
            struct spec_important item = important(found.request, layer, &area.memory);
            assert_ok(fx, fx->api->get_important(fx->conn, &item, 1, &fx->error));
            assert_memory_equal(area.bytes, want.bytes, want.byte_count);
            area_free(&area);
            area_free(&want);
        }
        fixture_release(fx, found.request);
        prompt_free(&prompt);
    }
}

/* No type is a wider one of theirs, and they are none of another's. */
static void abi_180_bytes_go_from_and_into_their_own_dtype_alone(void **state)
{
    struct fixture *fx = *state;
    for (uint32_t i = 0; i < DTYPE_COUNT; i++) {
        open_bytes(fx, (struct shape){2, 2, 16, DTYPES[i]});
        struct prompt prompt = prompt_make(2000 + i, 100);
        (void)fixture_store(fx, &prompt);
        struct spec_lookup_result found = fixture_find(fx, &prompt);
        for (uint32_t dtype = 0; dtype <= SPEC_DTYPE_BYTES + 1; dtype++) {
            struct shape wide = fx->shape;
            wide.dtype = SPEC_DTYPE_F32; /* as much memory as any needs */
            struct area area = area_make(&wide, LAYOUT_PACKED, 100);
            struct spec_important item = important(found.request, 0, &area.memory);
            struct spec_store_params params = {.struct_size = sizeof(params),
                                               .request = found.request,
                                               .token_count = 100,
                                               .memory = &area.memory};
            spec_ticket ticket;
            area.memory.dtype = dtype;
            if (dtype != DTYPES[i]) {
                assert_status(fx->api->get_important(fx->conn, &item, 1, &fx->error),
                              SPEC_E_INVALID);
                assert_status(fx->api->store(fx->conn, &params, 1, &ticket, &fx->error),
                              SPEC_E_INVALID);
            }
            area_expect(&area, &wide, &prompt, 0, 0, 0); /* nothing was written */
            area_free(&area);
        }
        fixture_check_layers(fx, &found, &prompt, 0);
        fixture_release(fx, found.request);
        prompt_free(&prompt);
        fixture_close(fx);
    }
}

/* As many bytes a row, and another meaning: another model's. */
static void abi_180_each_dtype_is_a_model_of_its_own(void **state)
{
    struct fixture *fx = *state;
    struct prompt prompt = prompt_make(2010, 150);
    bool stored[DTYPE_COUNT];
    for (uint32_t round = 0; round < 2; round++)
        for (uint32_t i = 0; i < DTYPE_COUNT; i++) {
            open_bytes(fx, (struct shape){2, 2, 16, DTYPES[i]});
            prompt_salt(&prompt, i); /* rows of each its own */
            if (round == 0) {
                struct spec_lookup_result found = fixture_find(fx, &prompt);
                assert_int_equal(found.matched_tokens, 0);
                assert_int_equal(found.stored_tokens, 0);
                fixture_release(fx, found.request);
                stored[i] = fixture_store(fx, &prompt);
            }
            fixture_check(fx, &prompt, stored[i] ? 149 : 0);
            fixture_close(fx);
        }
    prompt_free(&prompt);
}

static void abi_180_configurations_that_choose_rows_or_code_them_are_unsupported(void **state)
{
    struct fixture *fx = *state;
    static const char *const CHOOSING[] = {
        "\"select\": {\"retain_ppm\": 250000}",
        "\"select\": {\"budget\": \"count\", \"count\": 10}",
        "\"preset\": \"impress-itf\"",
        "\"preset\": \"hinted\"",
        "\"preset\": \"layered-uniform\"",
        "\"preset\": \"spi\"",
        "\"select\": {\"base\": \"quantised\"}",
        "\"layered\": {\"quantise\": \"yes\"}",
    };
    if (conf_says_what_is_chosen())
        conf_skip("the command line's configuration says what is chosen or stored");
    for (uint32_t i = 0; i < sizeof(CHOOSING) / sizeof(CHOOSING[0]); i++) {
        char text[8192];
        const char *extra = conf_options.extra;
        int length = snprintf(text, sizeof(text), "%s%s%s", extra, extra[0] != '\0' ? ", " : "",
                              CHOOSING[i]);
        assert_true(length > 0 && (size_t)length < sizeof(text));
        fixture_shape(fx, (struct shape){2, 2, 16, DTYPES[i % DTYPE_COUNT]});
        fx->extra = text;
        assert_status(fixture_try_open(fx), SPEC_E_UNSUPPORTED);
        assert_null(fx->conn);
        assert_true(strlen(fx->error.text) > 0);
        fixture_shape(fx, (struct shape){2, 2, 16, SPEC_DTYPE_F16}); /* else it would open */
        fixture_open(fx);
        fixture_close(fx);
        fx->extra = NULL;
    }
}

/* Rows that are numbers are not scored by what is none. */
static void abi_180_queries_and_new_keys_of_bytes_are_invalid(void **state)
{
    struct fixture *fx = *state;
    static const struct shape SHAPE = {3, 4, 16, SPEC_DTYPE_F16};
    fixture_shape(fx, SHAPE);
    scene_configure(fx, 3, "", "");
    struct scene scene = scene_open(fx, SHAPE, 3, 8, 2020, 170);
    struct spec_lookup_result found = scene_find(&scene, 0);
    struct ask ask = ask_ratio(0, 250000);
    struct answer answer = answer_make(&scene, &ask, &found);
    answer.item = answer_item(&ask, &answer);
    for (uint32_t i = 0; i < 2 * DTYPE_COUNT && found.matched_tokens > 0; i++) {
        bool is_query = i < DTYPE_COUNT;
        *(is_query ? &answer.queries.dtype : &answer.new_keys.memory.dtype) =
            DTYPES[i % DTYPE_COUNT];
        assert_status(fx->api->get_important(fx->conn, &answer.item, 1, &fx->error),
                      SPEC_E_INVALID);
        if (is_query)
            assert_status(
                fx->api->prefetch_next(fx->conn, found.request, 0, &answer.queries, &fx->error),
                SPEC_E_INVALID);
        answer.queries.dtype = SPEC_DTYPE_F32;
        answer.new_keys.memory.dtype = SHAPE.dtype;
    }
    assert_ok(fx, fx->api->get_important(fx->conn, &answer.item, 1, &fx->error));
    answer_expect(&scene, &ask, &answer);
    answer_free(&answer);
    fixture_release(fx, found.request);
    scene_close(&scene);
}

const struct conf_test CONF_BYTES[] = {
    BARE(abi_180_bytes_come_back_as_they_are_in_every_shape),
    BARE(abi_180_bytes_lie_at_any_address_of_any_layout),
    BARE(abi_180_bytes_go_from_and_into_their_own_dtype_alone),
    BARE(abi_180_each_dtype_is_a_model_of_its_own),
    BARE(abi_180_configurations_that_choose_rows_or_code_them_are_unsupported),
    BARE(abi_180_queries_and_new_keys_of_bytes_are_invalid),
    END,
};
