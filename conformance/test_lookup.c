/* test_lookup: lookups: ABI-020 .. ABI-027, 178, 215.
 *
 * Threads, Tests: see fixture.h. */
#include "conformance/suite.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define CHUNK 64u

/* ---- 020 ---- */

/* Prompts that leave a stored one at every offset of its second chunk. */
static void check_divergence(struct fixture *fx, const struct prompt *prompt, bool stored)
{
    for (uint64_t at = CHUNK; at <= 2 * CHUNK; at++) {
        struct prompt other = prompt_diverge(prompt, at, 3 * CHUNK, 1000 + at);
        fixture_check(fx, &other, stored ? at : 0);
        prompt_free(&other);
    }
}

static void abi_020_a_match_ends_at_any_offset_of_a_chunk(void **state)
{
    struct fixture *fx = *state;
    struct prompt prompt = prompt_make(40, 3 * CHUNK + 7);
    bool stored = fixture_store(fx, &prompt);
    check_divergence(fx, &prompt, stored);
    fixture_reopen(fx);
    check_divergence(fx, &prompt, stored);
    prompt_free(&prompt);
}

static void abi_020_branches_at_every_offset_are_all_found(void **state)
{
    struct fixture *fx = *state;
    struct prompt trunk = prompt_make(41, 3 * CHUNK);
    struct prompt branches[CHUNK];
    bool stored[CHUNK];
    bool trunk_stored = fixture_store(fx, &trunk);
    for (uint64_t i = 0; i < CHUNK; i++) {
        branches[i] = prompt_diverge(&trunk, CHUNK + i, 2 * CHUNK + 40, 2000 + i);
        stored[i] = fixture_store(fx, &branches[i]);
    }
    for (int round = 0; round < 2; round++) {
        for (uint64_t i = 0; i < CHUNK; i++)
            fixture_check(fx, &branches[i],
                          trunk_stored && stored[i] ? branches[i].count - 1 : branches[i].count);
        fixture_reopen(fx);
    }
    fixture_check(fx, &trunk, trunk.count - 1);
    for (uint64_t i = 0; i < CHUNK; i++)
        prompt_free(&branches[i]);
    prompt_free(&trunk);
}

static void abi_020_one_and_two_tokens_are_prompts_too(void **state)
{
    struct fixture *fx = *state;
    for (uint64_t count = 1; count <= 3; count++) {
        struct prompt prompt = prompt_make(42 + count, count);
        bool stored = fixture_store(fx, &prompt);
        fixture_check(fx, &prompt, stored ? count - 1 : 0);
        struct prompt longer = prompt_diverge(&prompt, count, 90, 7);
        fixture_check(fx, &longer, stored ? count : 0);
        prompt_free(&longer);
        prompt_free(&prompt);
    }
}

static void abi_020_a_prompt_that_grows_is_found_whole(void **state)
{
    struct fixture *fx = *state;
    struct prompt whole = prompt_make(46, 400);
    bool stored = true;
    for (uint64_t count = 5; count <= 400 && stored; count += 79) {
        struct prompt part = prompt_diverge(&whole, count, count, 1);
        stored = fixture_store(fx, &part);
        fixture_check(fx, &part, stored ? count - 1 : count);
        prompt_free(&part);
    }
    fixture_reopen(fx);
    fixture_check(fx, &whole, 399);
    prompt_free(&whole);
}

static void abi_020_exact_rows_match_where_exactness_is_required(void **state)
{
    struct fixture *fx = *state;
    struct prompt prompt = prompt_make(47, 300);
    bool stored = fixture_store(fx, &prompt);
    struct spec_lookup_params in = lookup_params(&prompt);
    in.flags = SPEC_LOOKUP_REQUIRE_EXACT;
    struct spec_lookup_result found = fixture_lookup(fx, &in);
    expect_match(&found, stored ? 299 : 0);
    assert_int_equal(found.provenance.kind, SPEC_PROVENANCE_EXACT);
    fixture_check_layers(fx, &found, &prompt, 0);
    fixture_release(fx, found.request);
    prompt_free(&prompt);
}

/* ---- 021, 022 ---- */

static void abi_021_the_match_is_at_most_max_tokens(void **state)
{
    struct fixture *fx = *state;
    struct prompt prompt = prompt_make(50, 200);
    bool stored = fixture_store(fx, &prompt);
    static const uint64_t MAX[] = {0, 1, 63, 64, 65, 199, 200};
    for (size_t i = 0; i < sizeof(MAX) / sizeof(MAX[0]); i++) {
        struct spec_lookup_params in = lookup_params(&prompt);
        in.max_tokens = MAX[i];
        struct spec_lookup_result found = fixture_lookup(fx, &in);
        expect_match(&found, !stored ? 0 : MAX[i] == 0 ? 199 : MAX[i]);
        fixture_check_layers(fx, &found, &prompt, 0);
        fixture_release(fx, found.request);
    }
    struct spec_lookup_params in = lookup_params(&prompt);
    struct spec_lookup_result found = {.struct_size = sizeof(found)};
    in.max_tokens = 201;
    spec_status status = fx->api->lookup(fx->conn, &in, &found, &fx->error);
    assert_true(status == SPEC_E_INVALID || (status == SPEC_OK && found.matched_tokens <= 200));
    prompt_free(&prompt);
}

static void abi_022_the_match_is_a_multiple(void **state)
{
    struct fixture *fx = *state;
    struct prompt prompt = prompt_make(51, 200);
    bool stored = fixture_store(fx, &prompt);
    static const uint64_t MULTIPLE[] = {0, 1, 2, 7, 16, 64, 199, 200, 1000};
    for (size_t i = 0; i < sizeof(MULTIPLE) / sizeof(MULTIPLE[0]); i++) {
        struct spec_lookup_params in = lookup_params(&prompt);
        in.multiple_of = MULTIPLE[i];
        struct spec_lookup_result found = fixture_lookup(fx, &in);
        uint64_t step = MULTIPLE[i] > 0 ? MULTIPLE[i] : 1;
        assert_int_equal(found.matched_tokens % step, 0);
        expect_match(&found, stored ? 199 - 199 % step : 0);
        fixture_check_layers(fx, &found, &prompt, 0);
        fixture_release(fx, found.request);
    }
    prompt_free(&prompt);
}

/* ---- 023 ---- */

struct identity {
    struct spec_bytes salt, lora;
    struct spec_extra_key keys[2];
    uint64_t key_count;
    uint64_t shared; /* tokens that it shares with identity 0 */
};

static struct spec_extra_key extra_key(uint32_t kind, uint64_t first, const char *value)
{
    return (struct spec_extra_key){.struct_size = sizeof(struct spec_extra_key),
                                   .kind = kind,
                                   .first_token = first,
                                   .token_count = 5,
                                   .value = {value, strlen(value)}};
}

static struct spec_lookup_params identify(const struct prompt *prompt,
                                          const struct identity *identity)
{
    struct spec_lookup_params in = lookup_params(prompt);
    in.salt = identity->salt;
    in.lora = identity->lora;
    in.extra_keys = identity->key_count > 0 ? identity->keys : NULL;
    in.extra_key_count = identity->key_count;
    return in;
}

/* Each of several identities stores the same tokens with rows of its own; each finds its own. */
static void check_identities(struct fixture *fx, const struct identity *identities, uint64_t count)
{
    struct prompt prompt = prompt_make(52, 200);
    for (uint64_t i = 0; i < count; i++) {
        struct prompt mine = prompt_diverge(&prompt, 200, 200, 1);
        struct spec_lookup_params in = identify(&mine, &identities[i]);
        struct spec_lookup_result found = fixture_lookup(fx, &in);
        expect_match(&found, i == 0 ? 0 : identities[i].shared);
        fixture_check_layers(fx, &found, &prompt, 0); /* what is shared is identity 0's */
        prompt_salt(&mine, i);
        memcpy(mine.history, prompt.history, found.matched_tokens * sizeof(uint64_t));
        bool stored = fixture_store_range(fx, found.request, &mine, found.matched_tokens,
                                          200 - found.matched_tokens);
        fixture_release(fx, found.request);
        found = fixture_lookup(fx, &in);
        expect_match(&found, stored ? 199 : 0);
        fixture_check_layers(fx, &found, &mine, 0);
        fixture_release(fx, found.request);
        prompt_free(&mine);
    }
    prompt_free(&prompt);
}

static void abi_023_other_salts_and_loras_share_nothing(void **state)
{
    struct fixture *fx = *state;
    const struct identity identities[] = {
        {.shared = 0},        {.salt = {"a", 1}}, {.salt = {"b", 1}},
        {.salt = {"a\0", 2}}, {.lora = {"a", 1}}, {.salt = {"a", 1}, .lora = {"a", 1}},
        {.salt = {"aa", 2}},
    };
    check_identities(fx, identities, sizeof(identities) / sizeof(identities[0]));
}

static void abi_023_extra_keys_part_from_where_they_take_effect(void **state)
{
    struct fixture *fx = *state;
    struct identity identities[] = {
        {.shared = 0},
        {.keys = {extra_key(1, 100, "cat")}, .key_count = 1, .shared = 100},
        {.keys = {extra_key(1, 100, "dog")}, .key_count = 1, .shared = 100},
        {.keys = {extra_key(2, 100, "cat")}, .key_count = 1, .shared = 100},
        {.keys = {extra_key(1, 128, "cat")}, .key_count = 1, .shared = 128},
        {.keys = {extra_key(1, 0, "cat")}, .key_count = 1, .shared = 0},
        {.keys = {extra_key(1, 1, "cat")}, .key_count = 1, .shared = 1},
    };
    check_identities(fx, identities, sizeof(identities) / sizeof(identities[0]));
}

static void abi_023_unordered_extra_keys_are_invalid(void **state)
{
    struct fixture *fx = *state;
    struct prompt prompt = prompt_make(53, 200);
    struct spec_extra_key keys[] = {extra_key(1, 100, "cat"), extra_key(1, 50, "dog")};
    struct spec_lookup_params in = lookup_params(&prompt);
    struct spec_lookup_result found = {.struct_size = sizeof(found)};
    in.extra_keys = keys;
    in.extra_key_count = 2;
    assert_status(fx->api->lookup(fx->conn, &in, &found, &fx->error), SPEC_E_INVALID);
    in.extra_keys = NULL;
    assert_status(fx->api->lookup(fx->conn, &in, &found, &fx->error), SPEC_E_INVALID);
    in.extra_key_count = 0;
    in.salt.byte_count = 4;
    assert_status(fx->api->lookup(fx->conn, &in, &found, &fx->error), SPEC_E_INVALID);
    assert_int_equal(found.request, 0);
    prompt_free(&prompt);
}

/* ---- 024, 025 ---- */

static void abi_024_what_the_engine_holds_is_not_promised(void **state)
{
    struct fixture *fx = *state;
    struct prompt prompt = prompt_make(54, 200);
    bool stored = fixture_store(fx, &prompt);
    static const uint64_t FROM[] = {1, 63, 64, 100, 198, 199, 200};
    for (size_t i = 0; i < sizeof(FROM) / sizeof(FROM[0]); i++) {
        struct spec_lookup_params in = lookup_params(&prompt);
        in.from_token = FROM[i];
        struct spec_lookup_result found = fixture_lookup(fx, &in);
        expect_match(&found, stored && FROM[i] < 199 ? 199 : FROM[i]);
        fixture_check_layers(fx, &found, &prompt, FROM[i]);
        fixture_release(fx, found.request);
    }
    prompt_free(&prompt);
}

static void abi_025_a_prompt_that_is_nowhere_stored_is_a_miss(void **state)
{
    struct fixture *fx = *state;
    struct prompt stored = prompt_make(55, 200), other = prompt_diverge(&stored, 0, 200, 8);
    (void)fixture_store(fx, &stored);
    struct spec_lookup_params in = lookup_params(&other);
    for (uint64_t from = 0; from <= 200; from += 100) {
        in.from_token = from;
        struct spec_lookup_result found = fixture_lookup(fx, &in);
        assert_int_equal(found.state, SPEC_LOOKUP_MISS);
        assert_int_equal(found.matched_tokens, from);
        for (uint64_t tier = 0; tier < SPEC_TIERS; tier++)
            assert_int_equal(found.tier_bytes[tier], 0);
        fixture_release(fx, found.request);
    }
    prompt_free(&stored);
    prompt_free(&other);
}

/* ---- 026, 027 ---- */

static void abi_026_promised_rows_stay_readable_until_release(void **state)
{
    struct fixture *fx = *state;
    fixture_shape(fx, (struct shape){2, 4, 64, SPEC_DTYPE_F16}); /* 2 KiB a token */
    fixture_reconfigure(fx, "\"disk_bytes\": \"4MiB\", \"segment_bytes\": \"1MiB\", "
                            "\"staging_bytes\": \"32MiB\", \"max_requests\": 8, "
                            "\"max_request_tokens\": 4096");
    struct prompt prompt = prompt_make(56, 500);
    bool stored = fixture_store(fx, &prompt);
    struct spec_lookup_result held = fixture_find(fx, &prompt);
    expect_match(&held, stored ? 499 : 0);
    for (uint64_t i = 0; i < 12; i++) { /* three times what the disk may hold */
        struct prompt other = prompt_make(500 + i, 500);
        struct spec_lookup_result found = fixture_find(fx, &other);
        spec_ticket ticket;
        for (uint32_t layer = 0; layer < fx->shape.layers; layer++) {
            assert_ok(fx, fixture_put(fx, found.request, &other, 0, 500, layer, &ticket));
            (void)fixture_wait(fx, ticket);
        }
        fixture_release(fx, found.request);
        prompt_free(&other);
    }
    fixture_check_layers(fx, &held, &prompt, 0);
    fixture_release(fx, held.request);
    prompt_free(&prompt);
}

/* A chunk that was stored token by token may become something else in the background, also while a
 * request has its first rows. When another one has too, what follows of the first is over. */
static void abi_026_rows_stored_one_by_one_stay_readable_until_release(void **state)
{
    struct fixture *fx = *state;
    struct prompt prompt = prompt_make(58, 129), most = prompt_diverge(&prompt, 64, 64, 1);
    struct spec_lookup_result writer = fixture_find(fx, &prompt);
    bool stored = true;
    for (uint64_t at = 0; at < 63; at++)
        stored = fixture_store_range(fx, writer.request, &prompt, at, 1) && stored;
    struct spec_lookup_result held = fixture_find(fx, &most); /* 63 of 64 */
    expect_match(&held, stored ? 63 : 0);
    for (uint64_t at = 63; at < 129; at++)
        stored = fixture_store_range(fx, writer.request, &prompt, at, 1) && stored;
    uint32_t tries = 0; /* a connector need not do so */
    while (held.matched_tokens > 0 && fixture_stats(fx).compacted_chunks < 2 && conf_wait(&tries) &&
           (conf_options.require_hits || tries < 2500))
        ;
    for (tries = 0; tries < 5; (void)conf_wait(&tries))
        fixture_check_layers(fx, &held, &most, 0);
    fixture_release(fx, held.request);
    fixture_release(fx, writer.request);
    for (tries = 0; tries < 5; (void)conf_wait(&tries))
        fixture_check(fx, &prompt, stored ? 128 : 0);
    prompt_free(&prompt);
    prompt_free(&most);
}

static void abi_027_more_requests_than_there_may_be_are_busy(void **state)
{
    struct fixture *fx = *state;
    fixture_reconfigure(fx, "\"disk_bytes\": \"64MiB\", \"max_requests\": 3, "
                            "\"max_request_tokens\": 100");
    struct prompt prompt = prompt_make(57, 100);
    struct spec_lookup_result found = {.struct_size = sizeof(found)};
    spec_request open[3];
    for (int i = 0; i < 3; i++)
        open[i] = fixture_find(fx, &prompt).request;
    assert_true(open[0] != open[1] && open[1] != open[2] && open[0] != open[2]);
    struct spec_lookup_params in = lookup_params(&prompt);
    assert_status(fx->api->lookup(fx->conn, &in, &found, &fx->error), SPEC_E_BUSY);
    assert_int_equal(found.request, 0);
    fixture_release(fx, open[1]);
    spec_request again = fixture_find(fx, &prompt).request;
    assert_true(again != open[1]); /* an old handle never comes to life again */
    prompt_free(&prompt);
}

/* Stores [first, first + count) as the host counts its tokens. Returns what the ticket said. */
static spec_status store_part(struct fixture *fx, spec_request request, const struct prompt *prompt,
                              uint64_t first, uint64_t count)
{
    spec_ticket ticket = 0;
    for (uint32_t layer = 0; layer < fx->shape.layers; layer++)
        assert_ok(fx, fixture_put(fx, request, prompt, first, count, layer, &ticket));
    return fixture_wait(fx, ticket);
}

/* Looks up and stores all of a prompt, in two passes. Nothing behind the cut is stored, whatever
 * the ticket of the first pass says, and the second one is BUSY. Then looks up again, and loads. */
static void check_cut(struct fixture *fx, const struct prompt *prompt,
                      const struct spec_lookup_params *in, uint64_t cut)
{
    struct spec_lookup_result found = fixture_lookup(fx, in);
    expect_match(&found, 0);
    uint64_t half = cut + (prompt->count - cut) / 2;
    assert_true(store_part(fx, found.request, prompt, 0, half) != SPEC_OK);
    spec_ticket ticket; /* a pass behind the cut is aborted as any other, and run again */
    assert_ok(fx, fixture_put(fx, found.request, prompt, half, 1, 0, &ticket));
    assert_ok(fx, fx->api->store_abort(fx->conn, found.request, half, &fx->error));
    assert_true(store_part(fx, found.request, prompt, half, prompt->count - half) != SPEC_OK);
    fixture_release(fx, found.request);
    found = fixture_lookup(fx, in);
    assert_true(found.matched_tokens <= cut && found.stored_tokens <= cut);
    if (conf_options.require_hits)
        assert_int_equal(found.matched_tokens, cut);
    if (found.matched_tokens > 0)
        fixture_check_layers(fx, &found, prompt, 0);
    fixture_release(fx, found.request);
}

static void abi_215_a_prompt_beyond_the_limit_is_stored_and_found_up_to_it(void **state)
{
    struct fixture *fx = *state;
    fixture_reconfigure(fx, "\"disk_bytes\": \"64MiB\", \"max_requests\": 3, "
                            "\"max_request_tokens\": 100");
    struct prompt prompt = prompt_make(57, 150);
    struct spec_lookup_params in = lookup_params(&prompt);
    check_cut(fx, &prompt, &in, 100);
    in.from_token = 120; /* rows behind the cut may be held by the host */
    struct spec_lookup_result found = fixture_lookup(fx, &in);
    assert_int_equal(found.matched_tokens, 120);
    fixture_release(fx, found.request);
    prompt_free(&prompt);
}

/* The key at the 257th position does not fit, or the 17th at one. */
static void abi_215_a_prompt_is_cut_in_front_of_the_key_that_does_not_fit(void **state)
{
    struct fixture *fx = *state;
    struct prompt prompt = prompt_make(59, 300);
    static struct spec_extra_key keys[260];
    for (uint64_t i = 0; i < 260; i++)
        keys[i] = extra_key(1, i, "cat");
    struct spec_lookup_params in = lookup_params(&prompt);
    in.extra_keys = keys;
    in.extra_key_count = 260;
    check_cut(fx, &prompt, &in, 256);
    prompt_free(&prompt);
    prompt = prompt_make(60, 130);
    for (uint32_t i = 0; i < 20; i++)
        keys[i] = extra_key(i, i < 2 ? 5 : 70, "dog");
    in = lookup_params(&prompt);
    in.extra_keys = keys;
    in.extra_key_count = 20;
    check_cut(fx, &prompt, &in, 70);
    keys[19] = extra_key(1, 6, "dog"); /* keys behind the cut are checked as ever */
    struct spec_lookup_result found = {.struct_size = sizeof(found)};
    assert_status(fx->api->lookup(fx->conn, &in, &found, &fx->error), SPEC_E_INVALID);
    prompt_free(&prompt);
}

/* Decoded tokens may go beyond the limit, and others behind them. */
static void abi_215_decoded_tokens_beyond_the_limit_are_not_stored(void **state)
{
    struct fixture *fx = *state;
    fixture_reconfigure(fx, "\"disk_bytes\": \"64MiB\", \"max_requests\": 3, "
                            "\"max_request_tokens\": 100");
    struct prompt prompt = prompt_make(61, 140);
    struct spec_lookup_params in = lookup_params(&prompt);
    in.token_count = 80;
    struct spec_lookup_result found = fixture_lookup(fx, &in);
    for (uint64_t first = 0, end = 90; end <= 140; first = end, end += 25) {
        struct area area = area_make(&fx->shape, LAYOUT_PACKED, end - first);
        spec_ticket ticket = 0;
        for (uint32_t layer = 0; layer < fx->shape.layers; layer++) {
            area_fill(&area, &fx->shape, &prompt, first, layer);
            uint64_t known = first == 0 ? 80 : first;
            struct spec_store_params params = {.struct_size = sizeof(params),
                                               .request = found.request,
                                               .layer = layer,
                                               .first_token = first,
                                               .token_count = end - first,
                                               .tokens = prompt.tokens + known,
                                               .tokens_count = layer == 0 ? end - known : 0,
                                               .memory = &area.memory};
            if (layer > 0)
                params.tokens = NULL;
            assert_ok(fx, fx->api->store(fx->conn, &params, 1, &ticket, &fx->error));
        }
        bool is_within = end <= 100;
        spec_status ended = fixture_wait(fx, ticket);
        assert_true(is_within ? ended == SPEC_OK || !conf_options.require_hits : ended != SPEC_OK);
        area_free(&area);
    }
    fixture_release(fx, found.request);
    in = lookup_params(&prompt);
    found = fixture_lookup(fx, &in);
    assert_true(found.matched_tokens <= 100);
    if (conf_options.require_hits)
        assert_int_equal(found.matched_tokens, 100);
    fixture_release(fx, found.request);
    prompt_free(&prompt);
}

static void abi_027_prompts_that_cannot_be_are_invalid(void **state)
{
    struct fixture *fx = *state;
    struct prompt prompt = prompt_make(58, 10);
    struct spec_lookup_params in = lookup_params(&prompt);
    struct spec_lookup_result found = {.struct_size = sizeof(found)};
    assert_status(fx->api->lookup(fx->conn, NULL, &found, &fx->error), SPEC_E_INVALID);
    assert_status(fx->api->lookup(fx->conn, &in, NULL, &fx->error), SPEC_E_INVALID);
    in.token_count = 0;
    assert_status(fx->api->lookup(fx->conn, &in, &found, &fx->error), SPEC_E_INVALID);
    in = lookup_params(&prompt);
    in.tokens = NULL;
    assert_status(fx->api->lookup(fx->conn, &in, &found, &fx->error), SPEC_E_INVALID);
    in = lookup_params(&prompt);
    in.from_token = 11;
    assert_status(fx->api->lookup(fx->conn, &in, &found, &fx->error), SPEC_E_INVALID);
    assert_int_equal(found.request, 0);
    prompt_free(&prompt);
}

/* ---- 178 ---- */

/* What lookup says of the store, whatever the host asks it to promise. */
static void expect_stored(struct fixture *fx, const struct prompt *prompt, uint64_t expected)
{
    static const uint64_t FROM[] = {0, 1, 64, 130, 299, 300}, MAX[] = {0, 1, 64, 300},
                          MULTIPLE[] = {0, 64, 1000};
    for (size_t i = 0; i < sizeof(FROM) / sizeof(FROM[0]); i++)
        for (size_t j = 0; j < 4 * 3; j++) {
            struct spec_lookup_params in = lookup_params(prompt);
            in.from_token = FROM[i] < prompt->count ? FROM[i] : prompt->count;
            in.max_tokens = MAX[j / 3] < prompt->count ? MAX[j / 3] : prompt->count;
            in.multiple_of = MULTIPLE[j % 3];
            struct spec_lookup_result found = fixture_lookup(fx, &in);
            assert_in_range(found.stored_tokens, 0, expected);
            if (conf_options.require_hits)
                assert_int_equal(found.stored_tokens, expected);
            fixture_release(fx, found.request);
        }
}

static void abi_178_stored_tokens_are_told_whatever_is_asked_for(void **state)
{
    struct fixture *fx = *state;
    struct prompt prompt = prompt_make(60, 200);
    expect_stored(fx, &prompt, 0);
    (void)fixture_store(fx, &prompt);
    for (int round = 0; round < 2; round++) {
        expect_stored(fx, &prompt, 200);
        for (uint64_t at = 0; at <= 200; at += 50) { /* other tokens from there on, or more */
            struct prompt other = prompt_diverge(&prompt, at, 300, 60 + at);
            expect_stored(fx, &other, at);
            prompt_free(&other);
        }
        fixture_reopen(fx);
    }
    struct spec_extra_key key = extra_key(1, 100, "cat");
    struct spec_lookup_params in = lookup_params(&prompt);
    in.from_token = 200;
    in.extra_keys = &key;
    in.extra_key_count = 1;
    struct spec_lookup_result found = fixture_lookup(fx, &in);
    assert_in_range(found.stored_tokens, conf_options.require_hits ? 100 : 0, 100);
    fixture_release(fx, found.request);
    in.salt = (struct spec_bytes){"a", 1};
    found = fixture_lookup(fx, &in);
    assert_int_equal(found.stored_tokens, 0);
    fixture_release(fx, found.request);
    prompt_free(&prompt);
}

/* An engine that holds 200 of 300 tokens, of which the store has 100. */
static void abi_178_a_store_from_stored_tokens_on_closes_the_gap(void **state)
{
    struct fixture *fx = *state;
    struct prompt prompt = prompt_make(61, 300), start = prompt_diverge(&prompt, 100, 100, 1);
    struct spec_lookup_params in = lookup_params(&prompt);
    bool stored = fixture_store(fx, &start);
    in.from_token = 200;
    for (int round = 0; round < 2; round++) { /* behind the gap; then from its beginning on */
        struct spec_lookup_result found = fixture_lookup(fx, &in);
        assert_int_equal(found.state, SPEC_LOOKUP_MISS);
        assert_in_range(found.stored_tokens, conf_options.require_hits ? 100 : 0, 100);
        uint64_t first = round == 0 ? 200 : found.stored_tokens;
        spec_ticket ticket = 0;
        spec_status ended = SPEC_OK;
        for (uint32_t l = 0; l < fx->shape.layers; l++) {
            assert_ok(fx, fixture_put(fx, found.request, &prompt, first, 300 - first, l, &ticket));
            ended = fixture_wait(fx, ticket);
        }
        fixture_release(fx, found.request);
        stored = ended == SPEC_OK;
        if (conf_options.require_hits)
            assert_int_equal(ended, round == 0 ? SPEC_E_DROPPED : SPEC_OK);
        assert_false(stored && round == 0);
    }
    expect_stored(fx, &prompt, 300);
    fixture_check(fx, &prompt, stored ? 299 : 100);
    prompt_free(&start);
    prompt_free(&prompt);
}

/* The store has more than the host lets it promise: it goes on where that ends. */
static void abi_178_a_store_may_begin_behind_what_is_promised(void **state)
{
    struct fixture *fx = *state;
    struct prompt prompt = prompt_make(62, 300), start = prompt_diverge(&prompt, 150, 150, 1);
    (void)fixture_store(fx, &start);
    struct spec_lookup_params in = lookup_params(&prompt);
    in.max_tokens = 10;
    struct spec_lookup_result found = fixture_lookup(fx, &in);
    assert_in_range(found.matched_tokens, 0, 10);
    fixture_check_layers(fx, &found, &prompt, 0);
    uint64_t first =
        found.stored_tokens > found.matched_tokens ? found.stored_tokens : found.matched_tokens;
    struct area area = area_make(&fx->shape, LAYOUT_PACKED, 300);
    struct spec_store_params params = {.struct_size = sizeof(params),
                                       .request = found.request,
                                       .first_token = first + 1,
                                       .token_count = 1,
                                       .memory = &area.memory};
    spec_ticket ticket;
    assert_status(fx->api->store(fx->conn, &params, 1, &ticket, &fx->error), SPEC_E_INVALID);
    bool stored = fixture_store_range(fx, found.request, &prompt, first, 300 - first);
    fixture_release(fx, found.request);
    fixture_check(fx, &prompt, stored ? 299 : 150);
    area_free(&area);
    prompt_free(&start);
    prompt_free(&prompt);
}

const struct conf_test CONF_LOOKUP[] = {
    OPENED(abi_020_a_match_ends_at_any_offset_of_a_chunk),
    OPENED(abi_020_branches_at_every_offset_are_all_found),
    OPENED(abi_020_one_and_two_tokens_are_prompts_too),
    OPENED(abi_020_a_prompt_that_grows_is_found_whole),
    OPENED(abi_020_exact_rows_match_where_exactness_is_required),
    OPENED(abi_021_the_match_is_at_most_max_tokens),
    OPENED(abi_022_the_match_is_a_multiple),
    OPENED(abi_023_other_salts_and_loras_share_nothing),
    OPENED(abi_023_extra_keys_part_from_where_they_take_effect),
    OPENED(abi_023_unordered_extra_keys_are_invalid),
    OPENED(abi_024_what_the_engine_holds_is_not_promised),
    OPENED(abi_025_a_prompt_that_is_nowhere_stored_is_a_miss),
    BARE(abi_026_promised_rows_stay_readable_until_release),
    OPENED(abi_026_rows_stored_one_by_one_stay_readable_until_release),
    BARE(abi_027_more_requests_than_there_may_be_are_busy),
    OPENED(abi_027_prompts_that_cannot_be_are_invalid),
    BARE(abi_215_a_prompt_beyond_the_limit_is_stored_and_found_up_to_it),
    OPENED(abi_215_a_prompt_is_cut_in_front_of_the_key_that_does_not_fit),
    BARE(abi_215_decoded_tokens_beyond_the_limit_are_not_stored),
    OPENED(abi_178_stored_tokens_are_told_whatever_is_asked_for),
    OPENED(abi_178_a_store_from_stored_tokens_on_closes_the_gap),
    OPENED(abi_178_a_store_may_begin_behind_what_is_promised),
    END,
};
