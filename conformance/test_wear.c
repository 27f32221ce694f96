/* What is written, and what is kept: ABI-190.
 *
 * Holds, Does not, Threads, Tests: as fixture.h. */
#include "conformance/suite.h"

/* ---- 190 ---- */

/* Looks up, stores all that is not promised; how the ticket ended. */
static spec_status store_rest(struct fixture *fx, const struct prompt *prompt, uint64_t expected)
{
    struct spec_lookup_result found = fixture_find(fx, prompt);
    expect_match(&found, expected);
    spec_ticket ticket = 0;
    uint64_t first = found.matched_tokens;
    for (uint32_t layer = 0; layer < fx->shape.layers; layer++)
        assert_ok(fx, fixture_put(fx, found.request, prompt, first, prompt->count - first, layer,
                                  &ticket));
    spec_status status = fixture_wait(fx, ticket);
    fixture_release(fx, found.request);
    return status;
}

static void abi_190_what_comes_once_is_dropped_and_what_comes_again_is_stored(void **state)
{
    struct fixture *fx = *state;
    fixture_reconfigure(fx, "\"chunk_tokens\": 64, \"store\": {\"admit\": \"second\"}");
    struct prompt once = prompt_make(900, 500), twice = prompt_make(901, 500);
    assert_status(store_rest(fx, &once, 0), SPEC_E_DROPPED);
    assert_status(store_rest(fx, &twice, 0), SPEC_E_DROPPED);
    fixture_check(fx, &once, 0);
    fixture_check(fx, &twice, 0);
    uint64_t dropped = fixture_stats(fx).dropped_chunks;
    bool stored = store_rest(fx, &twice, 0) == SPEC_OK;
    assert_int_equal(fixture_stats(fx).unadmitted_chunks, 16);
    assert_int_equal(fixture_stats(fx).dropped_chunks, dropped);
    fixture_check(fx, &twice, stored ? 499 : 0);
    fixture_reopen(fx);
    fixture_check(fx, &twice, stored ? 499 : 0);
    prompt_free(&once);
    prompt_free(&twice);
}

static void abi_190_of_a_pass_the_beginning_that_came_before_is_stored(void **state)
{
    struct fixture *fx = *state;
    fixture_reconfigure(fx, "\"chunk_tokens\": 64, \"store\": {\"admit\": \"second\"}");
    struct prompt first = prompt_make(902, 500), second = prompt_diverge(&first, 300, 500, 1);
    assert_status(store_rest(fx, &first, 0), SPEC_E_DROPPED);
    assert_status(store_rest(fx, &second, 0), SPEC_E_DROPPED);
    struct spec_lookup_result found = fixture_find(fx, &first);
    expect_match(&found, 256);
    fixture_check_layers(fx, &found, &first, 0);
    /* What follows was seen with the first pass: it is stored from where the store ends. */
    spec_ticket ticket = 0;
    uint64_t at = found.matched_tokens;
    for (uint32_t layer = 0; layer < fx->shape.layers; layer++)
        assert_ok(fx, fixture_put(fx, found.request, &first, at, 500 - at, layer, &ticket));
    bool stored = fixture_wait(fx, ticket) == SPEC_OK;
    fixture_release(fx, found.request);
    fixture_check(fx, &first, stored ? 499 : 256);
    prompt_free(&first);
    prompt_free(&second);
}

/* A quarter of the budget may come at once: 256 KiB of a prompt of 800. */
static void abi_190_no_more_is_written_than_the_budget_allows(void **state)
{
    struct fixture *fx = *state;
    fixture_reconfigure(fx, "\"chunk_tokens\": 64, \"store\": {\"write_budget\": \"1MiB\"}");
    struct prompt large = prompt_make(903, 2000), other = prompt_make(904, 500);
    assert_status(store_rest(fx, &large, 0), SPEC_E_DROPPED);
    struct spec_stats stats = fixture_stats(fx);
    assert_true(stats.write_bytes <= 320 << 10);
    assert_true(stats.over_budget_chunks > 0);
    struct spec_lookup_result found = fixture_find(fx, &large);
    expect_match(&found, stats.stored_tokens);
    assert_true(found.matched_tokens < 1024);
    fixture_check_layers(fx, &found, &large, 0);
    fixture_release(fx, found.request);
    fixture_reopen(fx); /* which fills nothing */
    assert_status(store_rest(fx, &other, 0), SPEC_E_DROPPED);
    assert_true(fixture_stats(fx).write_bytes <= 32 << 10);
    prompt_free(&large);
    prompt_free(&other);
}

const struct conf_test CONF_WEAR[] = {
    BARE(abi_190_what_comes_once_is_dropped_and_what_comes_again_is_stored),
    BARE(abi_190_of_a_pass_the_beginning_that_came_before_is_stored),
    BARE(abi_190_no_more_is_written_than_the_budget_allows),
    END,
};
