/* Calls that stand in the table and wait for their features: ABI-130 .. ABI-135.
 *
 * Holds: version 0.1 answers SPEC_E_UNSUPPORTED, writes no output and stays usable.
 * Does not, Threads, Tests: as fixture.h. */
#include "conformance/suite.h"

#include <string.h>

static void abi_130_stage_in_version_0_1_is_unsupported(void **state)
{
    struct fixture *fx = *state;
    struct prompt prompt = prompt_make(190, 10);
    struct spec_lookup_result found = fixture_find(fx, &prompt);
    struct spec_stage_params params = {.struct_size = sizeof(params), .request = found.request};
    spec_ticket ticket = 77;
    assert_status(fx->api->stage(fx->conn, &params, &ticket, &fx->error), SPEC_E_UNSUPPORTED);
    assert_int_equal(ticket, 77);
    assert_true(strlen(fx->error.text) > 0);
    fixture_release(fx, found.request);
    prompt_free(&prompt);
}

static void abi_131_attach_in_version_0_1_is_unsupported(void **state)
{
    struct fixture *fx = *state;
    uint8_t lease[64] = {0};
    struct spec_attach_params params = {.struct_size = sizeof(params),
                                        .lease = {lease, sizeof(lease)}};
    struct spec_lookup_result found = {.struct_size = sizeof(found)};
    assert_status(fx->api->attach(fx->conn, &params, &found, &fx->error), SPEC_E_UNSUPPORTED);
    assert_int_equal(found.request, 0);
}

static void abi_132_next_chunk_in_version_0_1_is_unsupported(void **state)
{
    struct fixture *fx = *state;
    struct prompt prompt = prompt_make(191, 10);
    struct spec_lookup_result found = fixture_find(fx, &prompt);
    struct spec_next_chunk chunk = {
        .struct_size = sizeof(chunk), .request = found.request, .budget_tokens = 5};
    assert_status(fx->api->next_chunk(fx->conn, &chunk, &fx->error), SPEC_E_UNSUPPORTED);
    assert_int_equal(chunk.token_count, 0);
    fixture_release(fx, found.request);
    prompt_free(&prompt);
}

static void abi_133_the_halves_in_version_0_1_are_unsupported(void **state)
{
    struct fixture *fx = *state;
    struct prompt prompt = prompt_make(192, 10);
    struct spec_lookup_result found = fixture_find(fx, &prompt);
    struct area area = area_make(&fx->shape, LAYOUT_PACKED, 10);
    struct spec_important item = important(found.request, 0, &area.memory);
    spec_ticket ticket = 77;
    assert_status(fx->api->get_important_submit(fx->conn, &item, 1, &ticket, &fx->error),
                  SPEC_E_UNSUPPORTED);
    assert_int_equal(ticket, 77);
    assert_status(fx->api->get_important_wait(fx->conn, ticket, 0, &fx->error), SPEC_E_UNSUPPORTED);
    area_expect(&area, &fx->shape, &prompt, 0, 0, 0);
    fixture_release(fx, found.request);
    area_free(&area);
    prompt_free(&prompt);
}

static void abi_134_reset_in_version_0_1_is_unsupported_and_drops_nothing(void **state)
{
    struct fixture *fx = *state;
    struct prompt prompt = prompt_make(193, 100);
    bool stored = fixture_store(fx, &prompt);
    assert_status(fx->api->reset(fx->conn, &fx->error), SPEC_E_UNSUPPORTED);
    fixture_check(fx, &prompt, stored ? 99 : 0);
    prompt_free(&prompt);
}

static void abi_135_maintain_in_version_0_1_is_unsupported(void **state)
{
    struct fixture *fx = *state;
    struct prompt prompt = prompt_make(194, 100);
    bool stored = fixture_store(fx, &prompt);
    struct spec_maintain_params params = {.struct_size = sizeof(params),
                                          .flags = SPEC_MAINTAIN_CHECKPOINT};
    assert_status(fx->api->maintain(fx->conn, &params, &fx->error), SPEC_E_UNSUPPORTED);
    fixture_check(fx, &prompt, stored ? 99 : 0);
    prompt_free(&prompt);
}

const struct conf_test CONF_LATER[] = {
    OPENED(abi_130_stage_in_version_0_1_is_unsupported),
    OPENED(abi_131_attach_in_version_0_1_is_unsupported),
    OPENED(abi_132_next_chunk_in_version_0_1_is_unsupported),
    OPENED(abi_133_the_halves_in_version_0_1_are_unsupported),
    OPENED(abi_134_reset_in_version_0_1_is_unsupported_and_drops_nothing),
    OPENED(abi_135_maintain_in_version_0_1_is_unsupported),
    END,
};
