/* test_cut: compute or load: ABI-186, ABI-187, ABI-188, ABI-218.
 *
 * The machine's speed does not matter: the configuration says that computing takes no time (so
 * nothing is loaded), or infinitely long. Threads, Tests: see fixture.h. */
#include "conformance/suite.h"

#define TOKENS    512u
#define FREE      "\"load_policy\": \"split\", \"compute\": {\"tokens_per_s\": 1000000000}"
#define ENDLESS   "\"load_policy\": \"split\", \"compute\": {\"tokens_per_s\": 1}"
#define LOAD_ONLY "\"load_policy\": \"load\""

static void open_with(struct fixture *fx, const char *extra)
{
    fixture_shape(fx, (struct shape){4, 4, 64, SPEC_DTYPE_F32});
    fx->extra = extra;
    fixture_open(fx);
}

/* Stores the prompt and loads it once or twice, so that both sides are known. */
static bool teach(struct fixture *fx, const struct prompt *prompt)
{
    bool stored = fixture_store(fx, prompt);
    for (int i = 0; i < 2; i++) {
        struct spec_lookup_result found = fixture_find(fx, prompt);
        if (i == 0)
            expect_match(&found, stored ? TOKENS - 1 : 0); /* nothing is known yet */
        if (found.matched_tokens > 0)
            fixture_check_layers(fx, &found, prompt, 0);
        fixture_release(fx, found.request);
    }
    return stored;
}

/* A beginning of what is stored, the same each time, and what is stored is told as it is. */
static void expect_cut(struct fixture *fx, const struct prompt *prompt, uint64_t expected,
                       bool stored)
{
    for (uint32_t i = 0; i < 6; i++) {
        struct spec_lookup_params in = lookup_params(prompt);
        struct spec_lookup_result peek = {.struct_size = sizeof(peek)};
        struct spec_lookup_result found = fixture_lookup(fx, &in);
        expect_match(&found, expected);
        if (conf_options.require_hits && stored)
            assert_int_equal(found.stored_tokens, TOKENS);
        if (found.matched_tokens > 0)
            fixture_check_layers(fx, &found, prompt, 0);
        in.flags = SPEC_LOOKUP_PEEK;
        assert_ok(fx, fx->api->lookup(fx->conn, &in, &peek, &fx->error));
        assert_int_equal(peek.matched_tokens, found.matched_tokens);
        assert_int_equal(peek.stored_tokens, found.stored_tokens);
        fixture_release(fx, found.request);
    }
}

static void abi_186_what_is_not_worth_loading_is_not_promised(void **state)
{
    struct fixture *fx = *state;
    open_with(fx, FREE);
    struct prompt prompt = prompt_make(3861, TOKENS);
    bool stored = teach(fx, &prompt);
    expect_cut(fx, &prompt, 0, stored);
    assert_true(!conf_options.require_hits || fixture_stats(fx).lookups_cut > 0);
    fixture_reconfigure(fx, LOAD_ONLY); /* it is there all the same */
    fixture_check(fx, &prompt, stored ? TOKENS - 1 : 0);
    prompt_free(&prompt);
}

static void abi_186_what_takes_for_ever_to_compute_is_promised_whole(void **state)
{
    struct fixture *fx = *state;
    open_with(fx, ENDLESS);
    struct prompt prompt = prompt_make(3862, TOKENS);
    bool stored = teach(fx, &prompt);
    expect_cut(fx, &prompt, stored ? TOKENS - 1 : 0, stored);
    prompt_free(&prompt);
}

/* ---- 187: the same in all processes ---- */

static struct fixture process_of(const struct fixture *fx, uint32_t role, uint32_t rank)
{
    struct fixture of = fixture_beside(fx, role);
    of.rank = of.model.tp_rank = rank;
    of.rank_count = of.model.tp_size = 2;
    return of;
}

/* Rank 0 alone sees passes and loads; where nothing is worth loading there, nobody promises it. */
static void abi_187_all_ranks_and_readers_promise_what_rank_0_does(void **state)
{
    struct fixture *fx = *state;
    struct fixture all[4];
    struct prompt prompt = prompt_make(3871, TOKENS), rows[2];
    bool stored = true;
    fixture_shape(fx, (struct shape){4, 4, 64, SPEC_DTYPE_F32});
    fx->extra = FREE;
    for (uint32_t i = 0; i < 4; i++) {
        all[i] = process_of(fx, i < 2 ? SPEC_ROLE_WRITER : SPEC_ROLE_READER, i % 2);
        fixture_open(&all[i]);
    }
    for (uint32_t rank = 0; rank < 2; rank++) {
        rows[rank] = prompt_diverge(&prompt, TOKENS, TOKENS, 1);
        prompt_salt(&rows[rank], 1 + rank);
        stored = fixture_store(&all[rank], &rows[rank]) && stored;
    }
    for (uint32_t i = 0; i < 4; i++) { /* nothing is known yet */
        struct spec_lookup_result found =
            fixture_await(&all[i], &rows[i % 2], stored ? TOKENS - 1 : 0);
        fixture_release(&all[i], found.request);
    }
    fixture_check(&all[0], &rows[0], stored ? TOKENS - 1 : 0); /* now it is */
    for (uint32_t i = 0; i < 4; i++)
        fixture_await_gone(&all[i], &rows[i % 2], 0);
    for (uint32_t i = 0; i < 4; i++)
        expect_cut(&all[i], &rows[i % 2], 0, stored);
    for (uint32_t i = 0; i < 4; i++)
        fixture_close(&all[i]);
    prompt_free(&rows[0]);
    prompt_free(&rows[1]);
    prompt_free(&prompt);
}

static void abi_187_what_was_measured_is_known_at_the_next_open(void **state)
{
    struct fixture *fx = *state;
    open_with(fx, FREE);
    struct prompt prompt = prompt_make(3872, TOKENS);
    bool stored = teach(fx, &prompt);
    expect_cut(fx, &prompt, 0, stored);
    for (uint32_t i = 0; i < 3; i++) {
        fixture_reopen(fx);
        expect_cut(fx, &prompt, 0, stored);
    }
    fixture_reconfigure(fx, ENDLESS); /* it is there all the same */
    fixture_check(fx, &prompt, stored ? TOKENS - 1 : 0);
    prompt_free(&prompt);
}

/* A whole pass over tokens that are stored, and some behind them. */
static void store_whole(struct fixture *fx, const struct prompt *prompt, uint32_t computed_on)
{
    struct spec_lookup_result found = fixture_find(fx, prompt);
    struct area area = area_make(&fx->shape, LAYOUT_PACKED, prompt->count);
    spec_ticket ticket = 0;
    for (uint32_t layer = 0; layer < fx->shape.layers; layer++) {
        area_fill(&area, &fx->shape, prompt, 0, layer);
        struct spec_store_params params = {.struct_size = sizeof(params),
                                           .request = found.request,
                                           .layer = layer,
                                           .computed_on = computed_on,
                                           .token_count = prompt->count,
                                           .memory = &area.memory};
        assert_ok(fx, fx->api->store(fx->conn, &params, 1, &ticket, &fx->error));
    }
    spec_status ended = fixture_wait(fx, ticket);
    assert_true(ended == SPEC_OK || !conf_options.require_hits);
    fixture_release(fx, found.request);
    area_free(&area);
}

static void abi_188_what_is_stored_is_not_written_again(void **state)
{
    struct fixture *fx = *state;
    open_with(fx, FREE);
    struct prompt prompt = prompt_make(3881, TOKENS);
    struct prompt more = prompt_diverge(&prompt, TOKENS, TOKENS + 40, 1);
    bool stored = teach(fx, &prompt);
    uint64_t before = fixture_stats(fx).write_bytes;
    store_whole(fx, &prompt, 0);
    if (stored)
        assert_int_equal(fixture_stats(fx).write_bytes, before);
    store_whole(fx, &more, 0);
    if (stored) /* 40 rows of 512, beside their tags and what pages add */
        assert_true(fixture_stats(fx).write_bytes - before <
                    TOKENS * 2 * row_bytes(&fx->shape) * fx->shape.layers / 2);
    fixture_reconfigure(fx, LOAD_ONLY);
    struct spec_lookup_result found = fixture_find(fx, &more);
    if (conf_options.require_hits)
        assert_int_equal(found.matched_tokens, TOKENS + 39);
    fixture_check_layers(fx, &found, &more, 0);
    fixture_release(fx, found.request);
    prompt_free(&prompt);
    prompt_free(&more);
}

/* Nobody loads the worse rows, so what is computed in their place is as good as new. */
static void abi_188_worse_rows_are_replaced_all_the_same(void **state)
{
    struct fixture *fx = *state;
    open_with(fx, FREE);
    struct prompt prompt = prompt_make(3882, TOKENS);
    store_whole(fx, &prompt, SPEC_PROVENANCE_LOSSY);
    (void)teach(fx, &prompt);
    store_whole(fx, &prompt, 0);
    fixture_reconfigure(fx, LOAD_ONLY);
    struct spec_lookup_params in = lookup_params(&prompt);
    in.flags = SPEC_LOOKUP_REQUIRE_EXACT;
    struct spec_lookup_result found = fixture_lookup(fx, &in);
    expect_match(&found, TOKENS - 1);
    fixture_check_layers(fx, &found, &prompt, 0);
    fixture_release(fx, found.request);
    prompt_free(&prompt);
}

/* ---- 218: a host tells what its steps took ---- */

#define MEASURED "\"load_policy\": \"split\""
#define STEPS    8u /* two are enough, and three in turn outweigh what a pass has shown */

static bool can_tell(const struct fixture *fx)
{
    if (SPEC_HAS(fx->api, computed) && fx->api->computed != NULL)
        return true;
    print_message("skipped: the connector has no computed\n");
    return false;
}

static void tell(struct fixture *fx, uint64_t tokens, uint64_t ns)
{
    struct spec_computed step = {.struct_size = sizeof(step), .tokens = tokens, .ns = ns};
    for (uint32_t i = 0; i < STEPS; i++)
        assert_ok(fx, fx->api->computed(fx->conn, &step, &fx->error));
}

static void abi_218_fast_steps_that_are_told_end_the_promise(void **state)
{
    struct fixture *fx = *state;
    open_with(fx, MEASURED);
    if (!can_tell(fx))
        return;
    struct prompt prompt = prompt_make(3891, TOKENS);
    bool stored = teach(fx, &prompt);
    tell(fx, 4000000, 4000000); /* a token a nanosecond */
    expect_cut(fx, &prompt, 0, stored);
    fixture_reopen(fx); /* it is known to the next open */
    expect_cut(fx, &prompt, 0, stored);
    fixture_reconfigure(fx, LOAD_ONLY); /* it is there all the same */
    fixture_check(fx, &prompt, stored ? TOKENS - 1 : 0);
    prompt_free(&prompt);
}

static void abi_218_slow_steps_that_are_told_leave_the_promise_whole(void **state)
{
    struct fixture *fx = *state;
    open_with(fx, MEASURED);
    if (!can_tell(fx))
        return;
    struct prompt prompt = prompt_make(3892, TOKENS);
    bool stored = teach(fx, &prompt);
    tell(fx, TOKENS, TOKENS * UINT64_C(1000000000)); /* a token a second */
    expect_cut(fx, &prompt, stored ? TOKENS - 1 : 0, stored);
    prompt_free(&prompt);
}

static void abi_218_steps_that_say_too_little_have_no_effect(void **state)
{
    struct fixture *fx = *state;
    open_with(fx, MEASURED);
    if (!can_tell(fx))
        return;
    tell(fx, 0, UINT64_MAX);
    tell(fx, 127, UINT64_C(1000000000));
    tell(fx, TOKENS, 1999999);
    assert_int_equal(fixture_stats(fx).compute_token_ps, 0);
    fixture_reconfigure(fx, LOAD_ONLY);
    tell(fx, TOKENS, UINT64_C(1000000000));
    assert_int_equal(fixture_stats(fx).compute_token_ps, 0);
}

static void abi_218_a_reader_may_tell_and_learns_nothing(void **state)
{
    struct fixture *fx = *state;
    open_with(fx, MEASURED);
    if (!can_tell(fx))
        return;
    struct fixture reader = fixture_beside(fx, SPEC_ROLE_READER);
    fixture_open(&reader);
    tell(&reader, TOKENS, UINT64_C(1000000000));
    assert_int_equal(fixture_stats(&reader).compute_token_ps, 0);
    assert_int_equal(fixture_stats(fx).compute_token_ps, 0);
    fixture_close(&reader);
}

static void abi_218_a_step_that_is_wrong_is_invalid(void **state)
{
    struct fixture *fx = *state;
    open_with(fx, MEASURED);
    if (!can_tell(fx))
        return;
    struct spec_computed step = {
        .struct_size = sizeof(step), .flags = 2, .tokens = TOKENS, .ns = UINT64_C(1000000000)};
    assert_status(fx->api->computed(fx->conn, &step, &fx->error), SPEC_E_INVALID);
    assert_status(fx->api->computed(fx->conn, NULL, &fx->error), SPEC_E_INVALID);
    step.flags = 0;
    assert_status(fx->api->computed(NULL, &step, &fx->error), SPEC_E_INVALID);
    for (uint32_t size = 0; size < sizeof(step); size += 4) {
        step.struct_size = size;
        assert_status(fx->api->computed(fx->conn, &step, &fx->error), SPEC_E_INVALID);
    }
    assert_int_equal(fixture_stats(fx).compute_token_ps, 0);
}

const struct conf_test CONF_CUT[] = {
    BARE(abi_186_what_is_not_worth_loading_is_not_promised),
    BARE(abi_186_what_takes_for_ever_to_compute_is_promised_whole),
    BARE(abi_187_all_ranks_and_readers_promise_what_rank_0_does),
    BARE(abi_187_what_was_measured_is_known_at_the_next_open),
    BARE(abi_188_what_is_stored_is_not_written_again),
    BARE(abi_188_worse_rows_are_replaced_all_the_same),
    BARE(abi_218_fast_steps_that_are_told_end_the_promise),
    BARE(abi_218_slow_steps_that_are_told_leave_the_promise_whole),
    BARE(abi_218_steps_that_say_too_little_have_no_effect),
    BARE(abi_218_a_reader_may_tell_and_learns_nothing),
    BARE(abi_218_a_step_that_is_wrong_is_invalid),
    END,
};
