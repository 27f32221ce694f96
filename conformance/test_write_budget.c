/* test_write_budget: which rows are kept and written: ABI-189, ABI-190, ABI-221, ABI-222.
 *
 * Threads, Tests: see fixture.h. */
#include "conformance/suite.h"

#include <stdio.h>
#include <unistd.h>

/* Stores what the lookup does not promise, and ends its request; how the ticket ended. */
static spec_status store_found(struct fixture *fx, const struct prompt *prompt,
                               const struct spec_lookup_result *found)
{
    spec_ticket ticket = 0;
    uint64_t first = found->matched_tokens;
    for (uint32_t layer = 0; layer < fx->shape.layers; layer++)
        assert_ok(fx, fixture_put(fx, found->request, prompt, first, prompt->count - first, layer,
                                  &ticket));
    spec_status status = fixture_wait(fx, ticket);
    fixture_release(fx, found->request);
    return status;
}

/* ---- 189 ---- */

#define TOKENS 256u /* 512 KiB in a store of 8 MiB */

static void open_small(struct fixture *fx)
{
    fixture_shape(fx, (struct shape){2, 4, 64, SPEC_DTYPE_F16});
    fixture_reconfigure(fx, FIXTURE_SMALL_STORE);
}

/* As a host that gives these hints, until there is room; true: all of it is stored. */
static bool store_as(struct fixture *fx, const struct prompt *prompt, uint64_t retain_s,
                     int64_t priority)
{
    spec_status status;
    uint32_t tries = 0;
    do {
        struct spec_lookup_params params = lookup_params(prompt);
        params.retain_s = retain_s;
        params.priority = priority;
        struct spec_lookup_result found = fixture_lookup(fx, &params);
        status = store_found(fx, prompt, &found);
    } while (status != SPEC_OK && conf_wait(&tries) && (conf_options.require_hits || tries < 4));
    return status == SPEC_OK;
}

/* Far more prompts than fit. */
static void store_others(struct fixture *fx, uint64_t seed, int64_t priority)
{
    for (uint64_t i = 0; i < 40; i++) {
        struct prompt prompt = prompt_make(seed + i, TOKENS);
        (void)store_as(fx, &prompt, 0, priority);
        prompt_free(&prompt);
    }
}

static void abi_189_what_is_to_be_retained_outlives_what_came_later(void **state)
{
    struct fixture *fx = *state;
    open_small(fx);
    struct prompt kept = prompt_make(910, TOKENS), usual = prompt_make(911, TOKENS);
    bool stored = store_as(fx, &kept, 100000, 0) && store_as(fx, &usual, 0, 0);
    store_others(fx, 2600, 0);
    fixture_check(fx, &kept, stored ? TOKENS - 1 : 0);
    struct spec_lookup_result found = fixture_find(fx, &usual);
    assert_true(found.matched_tokens == 0 || !conf_options.require_hits);
    fixture_release(fx, found.request);
    prompt_free(&kept);
    prompt_free(&usual);
}

static void abi_189_a_low_priority_goes_first(void **state)
{
    struct fixture *fx = *state;
    open_small(fx);
    struct prompt usual = prompt_make(912, TOKENS), low = prompt_make(913, TOKENS);
    bool stored = store_as(fx, &usual, 0, 0) && store_as(fx, &low, 0, -1);
    store_others(fx, 2700, -1);
    fixture_check(fx, &usual, stored ? TOKENS - 1 : 0);
    struct spec_lookup_result found = fixture_find(fx, &low);
    assert_true(found.matched_tokens == 0 || !conf_options.require_hits);
    fixture_release(fx, found.request);
    prompt_free(&usual);
    prompt_free(&low);
}

static void abi_189_priorities_have_bounds(void **state)
{
    struct fixture *fx = *state;
    struct prompt prompt = prompt_make(914, 100);
    struct spec_lookup_params params = lookup_params(&prompt);
    struct spec_lookup_result result = {.struct_size = sizeof(result)};
    for (int64_t wrong = SPEC_PRIORITY_MIN - 1; wrong <= SPEC_PRIORITY_MAX + 1;
         wrong += SPEC_PRIORITY_MAX - SPEC_PRIORITY_MIN + 2) {
        params.priority = wrong;
        assert_status(fx->api->lookup(fx->conn, &params, &result, &fx->error), SPEC_E_INVALID);
    }
    params.priority = SPEC_PRIORITY_MAX;
    params.retain_s = UINT64_MAX;
    result = fixture_lookup(fx, &params);
    fixture_release(fx, result.request);
    prompt_free(&prompt);
}

/* ---- 221 ---- */

/* Once, as a host that gives these hints; how the ticket ended. */
static spec_status try_as(struct fixture *fx, const struct prompt *prompt, uint64_t retain_s,
                          int64_t priority)
{
    struct spec_lookup_params params = lookup_params(prompt);
    params.retain_s = retain_s;
    params.priority = priority;
    struct spec_lookup_result found = fixture_lookup(fx, &params);
    if (found.matched_tokens < prompt->count)
        return store_found(fx, prompt, &found);
    fixture_release(fx, found.request);
    return SPEC_OK;
}

/* A piece is new for a 16th of a lease after it was stored, and old after an eighth. */
static void open_with_leases(struct fixture *fx, const char *lease)
{
    char config[256];
    (void)snprintf(config, sizeof(config),
                   "\"disk_bytes\": \"8MiB\", \"segment_bytes\": \"1MiB\", "
                   "\"staging_bytes\": \"16MiB\", \"max_requests\": 16, "
                   "\"max_request_tokens\": 4096, \"lease_ns_max\": %s",
                   lease);
    fixture_shape(fx, (struct shape){2, 4, 64, SPEC_DTYPE_F16});
    fixture_reconfigure(fx, config);
}

/* Half of the disk is retained or of a higher priority, and old; then prompts without a hint, as
 * fast as they come, several times what fits. */
static void abi_221_what_is_new_goes_before_what_is_retained(void **state)
{
    struct fixture *fx = *state;
    open_with_leases(fx, "1000000000");
    struct prompt kept[6];
    uint64_t there[6];
    for (uint64_t i = 0; i < 6; i++) {
        kept[i] = prompt_make(940 + i, TOKENS);
        (void)store_as(fx, &kept[i], i % 3 == 2 ? 0 : 100000, i % 3);
    }
    usleep(1200000);                   /* nothing has to be free for passes like these any more */
    for (uint64_t i = 0; i < 6; i++) { /* some may have gone for the others */
        struct spec_lookup_result found = fixture_find(fx, &kept[i]);
        there[i] = found.matched_tokens;
        fixture_release(fx, found.request);
    }
    for (uint64_t i = 0; i < 60; i++) {
        struct prompt prompt = prompt_make(2800 + i, TOKENS);
        (void)try_as(fx, &prompt, 0, 0);
        prompt_free(&prompt);
        if (i % 20 < 19)
            continue;
        usleep(300000); /* the last ones are old by then */
        for (uint64_t k = 0; k < 6; k++)
            fixture_check(fx, &kept[k], there[k]);
    }
    for (uint64_t i = 0; i < 6; i++)
        prompt_free(&kept[i]);
}

/* Short passes that are to be retained take what is left of a disk that is full of new prompts: of
 * these, not of an old retained prefix, something goes for them. */
static void abi_221_what_is_new_goes_for_what_is_retained(void **state)
{
    struct fixture *fx = *state;
    open_with_leases(fx, "8000000000");
    struct prompt kept = prompt_make(917, TOKENS);
    bool stored = store_as(fx, &kept, 100000, 0);
    usleep(1100000);
    for (uint64_t i = 0; i < 20; i++) {
        struct prompt prompt = prompt_make(2900 + i, TOKENS);
        (void)try_as(fx, &prompt, 0, 0);
        prompt_free(&prompt);
    }
    for (uint64_t i = 0; i < 20; i++) {
        struct prompt prompt = prompt_make(2930 + i, 20);
        (void)try_as(fx, &prompt, 200000, 0);
        prompt_free(&prompt);
        fixture_check(fx, &kept, stored ? TOKENS - 1 : 0);
    }
    prompt_free(&kept);
}

/* ---- 222 ---- */

struct hints {
    uint64_t retain_s;
    int64_t priority;
};

/* Of a disk that is full of what goes later a pass may take what is free, once or twice, and is
 * refused then, each time, without a write. */
static void check_refused(struct fixture *fx, uint64_t seed, struct hints full, struct hints pass)
{
    open_small(fx);
    struct prompt last = prompt_make(seed, TOKENS);
    for (uint64_t i = 40; i-- > 0;) {
        struct prompt prompt = prompt_make(seed + i, TOKENS);
        (void)store_as(fx, &prompt, full.retain_s, full.priority);
        prompt_free(&prompt);
    }
    bool is_full =
        fixture_stats(fx).evicted_chunks > 0; /* else there is room, or nothing is kept */
    struct prompt prompt = prompt_make(seed + 50, TOKENS);
    uint32_t wrote = 0, other = 0;
    for (uint32_t i = 0; i < 40 && is_full; i++) {
        uint64_t before = fixture_stats(fx).stored_chunks;
        spec_status status = try_as(fx, &prompt, pass.retain_s, pass.priority);
        wrote += fixture_stats(fx).stored_chunks > before;
        other += status != SPEC_E_NO_SPACE;
        usleep(1000); /* what is evicted is evicted by then, as a rule */
    }
    if (wrote > 4 || other > 4)
        fail_msg("%u of 40 tries wrote, %u were not refused for want of room", wrote, other);
    if (is_full)
        fixture_check(fx, &last, TOKENS - 1);
    prompt_free(&prompt);
    prompt_free(&last);
}

static void abi_222_a_lower_priority_is_refused(void **state)
{
    check_refused(*state, 3200, (struct hints){0, 0}, (struct hints){0, -1});
}

static void abi_222_what_is_not_to_be_retained_is_refused(void **state)
{
    check_refused(*state, 3300, (struct hints){100000, 0}, (struct hints){0, 3});
}

static void abi_222_what_is_to_be_retained_for_less_long_is_refused(void **state)
{
    check_refused(*state, 3400, (struct hints){100000, -3}, (struct hints){1000, 3});
}

/* ---- 190 ---- */

/* Looks up, stores all that is not promised; how the ticket ended. */
static spec_status store_rest(struct fixture *fx, const struct prompt *prompt, uint64_t expected)
{
    struct spec_lookup_result found = fixture_find(fx, prompt);
    expect_match(&found, expected);
    return store_found(fx, prompt, &found);
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

const struct conf_test CONF_WRITTEN[] = {
    BARE(abi_189_what_is_to_be_retained_outlives_what_came_later),
    BARE(abi_189_a_low_priority_goes_first),
    OPENED(abi_189_priorities_have_bounds),
    BARE(abi_221_what_is_new_goes_before_what_is_retained),
    BARE(abi_221_what_is_new_goes_for_what_is_retained),
    BARE(abi_222_a_lower_priority_is_refused),
    BARE(abi_222_what_is_not_to_be_retained_is_refused),
    BARE(abi_222_what_is_to_be_retained_for_less_long_is_refused),
    BARE(abi_190_what_comes_once_is_dropped_and_what_comes_again_is_stored),
    BARE(abi_190_of_a_pass_the_beginning_that_came_before_is_stored),
    BARE(abi_190_no_more_is_written_than_the_budget_allows),
    END,
};
