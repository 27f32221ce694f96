/* test_prefetch_to_host: host memory in lookups, prefetches to it, and an upper tier: ABI-130, 191
 * .. 193, 208.
 *
 * Connectors without a host tier pass: every row is on disk. Threads, Tests: see fixture.h. */
#include "conformance/disk.h"
#include "conformance/suite.h"

#include <string.h>

#define HOST  "\"host_bytes\": \"64MiB\""
#define COUNT 301u
#define PIECE 16u   /* as few tokens as a chunk may have; others have a multiple */
#define WHOLE 321u  /* what a lookup of it promises ends with a chunk */
#define LONG  6001u /* 12 MB in all layers: that takes longer than a lookup */

/* Loads every layer; all rows right. Rows times layers by the tier they came from. */
static void load_tiers(struct fixture *fx, const struct prompt *prompt,
                       const struct spec_lookup_result *found, uint64_t ret_by[SPEC_TIERS])
{
    uint64_t rows = found->matched_tokens;
    struct area area = area_make(&fx->shape, LAYOUT_PACKED, rows);
    for (uint32_t tier = 0; tier < SPEC_TIERS; tier++)
        ret_by[tier] = 0;
    for (uint32_t layer = 0; layer < fx->shape.layers; layer++) {
        struct spec_important item = important(found->request, layer, &area.memory);
        area_poison(&area);
        assert_ok(fx, fx->api->get_important(fx->conn, &item, 1, &fx->error));
        assert_ok(fx, item.status);
        area_expect(&area, &fx->shape, prompt, 0, rows, layer);
        for (uint32_t tier = 0; tier < SPEC_TIERS; tier++)
            ret_by[tier] += item.tier_rows[tier];
    }
    area_free(&area);
}

/* Those that came from host memory. */
static uint64_t load_all(struct fixture *fx, const struct prompt *prompt,
                         const struct spec_lookup_result *found)
{
    uint64_t by[SPEC_TIERS];
    load_tiers(fx, prompt, found, by);
    return by[SPEC_TIER_HOST];
}

static uint64_t bytes_of(const struct spec_lookup_result *found)
{
    uint64_t bytes = 0;
    for (uint64_t tier = 0; tier < SPEC_TIERS; tier++)
        bytes += found->tier_bytes[tier];
    return bytes;
}

static void abi_191_tier_bytes_say_where_the_rows_lie_now(void **state)
{
    struct fixture *fx = *state;
    fixture_reconfigure(fx, HOST);
    struct prompt prompt = prompt_make(190, COUNT);
    bool stored = fixture_store(fx, &prompt);
    for (uint32_t round = 0; stored && round < 3; round++) {
        struct spec_lookup_result found = fixture_find(fx, &prompt);
        expect_match(&found, COUNT - 1);
        uint64_t rows = found.matched_tokens * fx->shape.layers, in_host_tier;
        if (rows == 0)
            break;
        uint64_t row_bytes = bytes_of(&found) / rows;
        assert_int_equal(row_bytes * rows, bytes_of(&found));
        in_host_tier = load_all(fx, &prompt, &found);
        assert_int_equal(found.tier_bytes[SPEC_TIER_HOST], in_host_tier * row_bytes);
        assert_int_equal(round == 0 ? in_host_tier : 0, 0); /* nobody had loaded it before */
        fixture_release(fx, found.request);
    }
    struct spec_stats stats = fixture_stats(fx);
    assert_in_range(stats.host_bytes_used, 0, stats.host_bytes_max);
    prompt_free(&prompt);
}

/* ---- 208 ---- */

/* As lookup said: into a device, what host memory stands for is told as host memory. */
static void expect_tiers(const struct spec_lookup_result *found, const uint64_t by[SPEC_TIERS],
                         uint64_t row_bytes)
{
    const uint64_t *bytes = found->tier_bytes;
    uint64_t memory = by[SPEC_TIER_UPPER] + by[SPEC_TIER_HOST];
    assert_int_equal(bytes[SPEC_TIER_UPPER] + bytes[SPEC_TIER_HOST], memory * row_bytes);
    if (!conf_options.one_set)
        assert_int_equal(bytes[SPEC_TIER_UPPER], by[SPEC_TIER_UPPER] * row_bytes);
    else
        assert_int_equal(by[SPEC_TIER_UPPER], 0);
}

static void abi_208_what_lies_above_host_memory_is_told_as_such(void **state)
{
    struct fixture *fx = *state;
    fixture_reconfigure(fx, HOST ", \"upper_bytes\": \"64MiB\"");
    struct prompt prompt = prompt_make(2080, WHOLE);
    bool stored = fixture_store(fx, &prompt);
    for (uint32_t round = 0; stored && round < 3; round++) {
        struct spec_lookup_result found = fixture_find(fx, &prompt);
        uint64_t rows = found.matched_tokens * fx->shape.layers, by[SPEC_TIERS];
        expect_match(&found, WHOLE - 1);
        if (rows == 0)
            break;
        assert_int_equal(bytes_of(&found) % rows, 0);
        load_tiers(fx, &prompt, &found, by);
        expect_tiers(&found, by, bytes_of(&found) / rows);
        struct spec_stats stats = fixture_stats(fx);
        if (conf_options.require_hits && stats.upper_bytes_max > 0 && round > 0)
            assert_int_equal(found.tier_bytes[SPEC_TIER_UPPER], bytes_of(&found));
        fixture_release(fx, found.request);
    }
    prompt_free(&prompt);
}

/* Three prompts in turn, each twice, of which one has no room above. */
static void abi_208_a_row_lies_in_one_tier(void **state)
{
    struct fixture *fx = *state;
    fixture_reconfigure(fx, HOST ", \"upper_bytes\": \"256KiB\", \"host_policy\": \"lru\"");
    struct prompt prompts[3];
    bool stored = true;
    uint64_t all[SPEC_TIERS] = {0};
    for (uint32_t p = 0; p < 3; p++) {
        prompts[p] = prompt_make(2081 + p, WHOLE);
        stored = fixture_store(fx, &prompts[p]) && stored;
    }
    for (uint32_t round = 0; stored && round < 18; round++) {
        struct spec_lookup_result found = fixture_find(fx, &prompts[round / 2 % 3]);
        uint64_t rows = found.matched_tokens * fx->shape.layers, by[SPEC_TIERS], told = 0;
        if (rows == 0)
            break;
        load_tiers(fx, &prompts[round / 2 % 3], &found, by);
        uint64_t row_bytes = bytes_of(&found) / rows;
        assert_int_equal(row_bytes * rows, bytes_of(&found));
        for (uint32_t tier = 0; tier < SPEC_TIERS; tier++) {
            told += by[tier];
            all[tier] += by[tier];
        }
        assert_int_equal(told, rows);
        fixture_release(fx, found.request);
        struct spec_stats stats = fixture_stats(fx);
        assert_in_range(stats.upper_bytes_used, 0, stats.upper_bytes_max);
        assert_in_range(stats.host_bytes_used, 0, stats.host_bytes_max);
    }
    if (conf_options.require_hits && fixture_stats(fx).upper_bytes_max > 0)
        assert_true(all[SPEC_TIER_HOST] > 0 && (all[SPEC_TIER_UPPER] > 0 || conf_options.one_set));
    for (uint32_t p = 0; p < 3; p++)
        prompt_free(&prompts[p]);
}

static spec_status try_stage(struct fixture *fx, spec_request request, uint64_t deadline_ns,
                             spec_ticket *ret_ticket)
{
    const struct spec_prefetch_to_host_params params = {
        .struct_size = sizeof(params), .request = request, .deadline_ns = deadline_ns};
    return fx->api->prefetch_to_host(fx->conn, &params, ret_ticket, &fx->error);
}

/* How it ended. */
static spec_status stage_wait(struct fixture *fx, spec_ticket ticket)
{
    spec_status status = SPEC_PENDING;
    assert_ok(fx, fx->api->wait(fx->conn, &ticket, 1, CONF_WAIT_NS, &status, &fx->error));
    return status;
}

static spec_status poll_one(struct fixture *fx, spec_ticket ticket)
{
    spec_status status;
    assert_ok(fx, fx->api->poll(fx->conn, &ticket, 1, &status, &fx->error));
    return status;
}

/* A match to stage, opened anew: nothing of it is in memory. Skips where the connector stores
 * nothing, or has no host memory. */
static struct spec_lookup_result match_make(struct fixture *fx, const struct prompt *prompt)
{
    fixture_reconfigure(fx, HOST);
    bool stored = fixture_store(fx, prompt);
    fixture_reopen(fx);
    struct spec_lookup_result found = fixture_find(fx, prompt);
    expect_match(&found, stored ? prompt->count - 1 : 0);
    if (found.state != SPEC_LOOKUP_HIT || fixture_stats(fx).host_bytes_max == 0)
        conf_skip("nothing is found, or no host memory is there, to stage");
    return found;
}

/* ---- 130 ---- */

static void abi_130_staged_rows_come_from_host_memory(void **state)
{
    struct fixture *fx = *state;
    struct prompt prompt = prompt_make(191, COUNT);
    struct spec_lookup_result found = match_make(fx, &prompt);
    spec_ticket ticket;
    assert_ok(fx, try_stage(fx, found.request, 0, &ticket));
    assert_status(stage_wait(fx, ticket), SPEC_OK);
    struct spec_lookup_result again = fixture_find(fx, &prompt);
    assert_int_equal(again.tier_bytes[SPEC_TIER_HOST], bytes_of(&again));
    assert_int_equal(load_all(fx, &prompt, &again), again.matched_tokens * fx->shape.layers);
    assert_int_equal(load_all(fx, &prompt, &found), found.matched_tokens * fx->shape.layers);
    assert_true(fixture_stats(fx).host_prefetched_bytes >= bytes_of(&again));
    fixture_release(fx, again.request);
    fixture_release(fx, found.request);
    prompt_free(&prompt);
}

/* In how many layers the rows [first, end) lie in host memory now, which is the same for each. */
static uint64_t layers_of(struct fixture *fx, const struct prompt *prompt, uint64_t first,
                          uint64_t end, uint64_t row_bytes)
{
    struct spec_lookup_params in = lookup_params(prompt);
    struct spec_lookup_result found = {.struct_size = sizeof(found)};
    in.flags = SPEC_LOOKUP_PEEK;
    in.from_token = first;
    in.max_tokens = end;
    assert_ok(fx, fx->api->lookup(fx->conn, &in, &found, &fx->error));
    if (found.matched_tokens != end && !conf_options.require_hits)
        conf_skip("of a part of the match less is promised");
    assert_int_equal(found.matched_tokens, end);
    assert_int_equal(bytes_of(&found), (end - first) * fx->shape.layers * row_bytes);
    assert_int_equal(found.tier_bytes[SPEC_TIER_HOST] % ((end - first) * row_bytes), 0);
    return found.tier_bytes[SPEC_TIER_HOST] / ((end - first) * row_bytes);
}

/* Whole layers, and of one more the first rows: so many layers, falling by one along the rows.
 * Returns how many rows lie there in so many as the first do. */
static uint64_t expect_the_first(struct fixture *fx, const struct prompt *prompt,
                                 const struct spec_lookup_result *found, uint64_t row_bytes)
{
    uint64_t end = found->matched_tokens, most = 0, last = UINT64_MAX, count = 0;
    for (uint64_t at = 0; at < end; at += PIECE) {
        uint64_t next = at + PIECE < end ? at + PIECE : end;
        uint64_t layers = layers_of(fx, prompt, at, next, row_bytes);
        most = at == 0 ? layers : most;
        assert_true(layers <= last && layers + 1 >= most);
        count += layers == most ? next - at : 0;
        last = layers;
    }
    assert_in_range(most, 1, fx->shape.layers);
    return most == 1 ? 0 : count;
}

static void abi_130_what_finds_no_room_is_of_the_last_layers(void **state)
{
    struct fixture *fx = *state;
    struct prompt prompt = prompt_make(192, COUNT);
    struct spec_lookup_result found = match_make(fx, &prompt);
    uint64_t layer_bytes = bytes_of(&found) / fx->shape.layers;
    fixture_release(fx, found.request);
    char small[64];
    (void)snprintf(small, sizeof(small), "\"host_bytes\": %llu",
                   (unsigned long long)(layer_bytes * 2));
    fixture_reconfigure(fx, small);
    found = fixture_find(fx, &prompt);
    spec_ticket ticket;
    assert_ok(fx, try_stage(fx, found.request, 0, &ticket));
    spec_status status = stage_wait(fx, ticket);
    assert_true(status == SPEC_E_NO_SPACE || (status == SPEC_OK && fx->shape.layers == 1));
    struct spec_stats stats = fixture_stats(fx);
    assert_in_range(stats.host_bytes_used, 0, stats.host_bytes_max);
    uint64_t more = expect_the_first(fx, &prompt, &found, layer_bytes / found.matched_tokens);
    struct area area = area_make(&fx->shape, LAYOUT_PACKED, found.matched_tokens);
    for (uint32_t layer = 0; layer < 2 && layer < fx->shape.layers; layer++) {
        struct spec_important item = important(found.request, layer, &area.memory);
        area_poison(&area);
        assert_ok(fx, fx->api->get_important(fx->conn, &item, 1, &fx->error));
        area_expect(&area, &fx->shape, &prompt, 0, found.matched_tokens, layer);
        if (layer == 0)
            assert_int_equal(item.tier_rows[SPEC_TIER_HOST], found.matched_tokens);
        else /* what was brought stays until it is loaded */
            assert_true(item.tier_rows[SPEC_TIER_HOST] >= more);
    }
    area_free(&area);
    fixture_check_layers(fx, &found, &prompt, 0);
    fixture_release(fx, found.request);
    prompt_free(&prompt);
}

/* Who has the request loads meanwhile, as if nothing were staged. */
static void abi_130_loads_go_on_while_a_match_is_staged(void **state)
{
    struct fixture *fx = *state;
    struct prompt prompt = prompt_make(198, LONG);
    struct spec_lookup_result found = match_make(fx, &prompt);
    spec_ticket ticket;
    assert_ok(fx, try_stage(fx, found.request, 0, &ticket));
    fixture_check_layers(fx, &found, &prompt, 0);
    assert_status(stage_wait(fx, ticket), SPEC_OK);
    assert_int_equal(load_all(fx, &prompt, &found), found.matched_tokens * fx->shape.layers);
    fixture_release(fx, found.request);
    prompt_free(&prompt);
}

static void abi_130_a_range_that_fails_is_found_no_more(void **state)
{
    struct fixture *fx = *state;
    struct prompt prompt = prompt_make(193, COUNT);
    struct spec_lookup_result found = match_make(fx, &prompt);
    fixture_release(fx, found.request);
    fixture_close(fx);
    uint64_t copies = disk_damage(fx, (struct disk_row){&prompt, 150, 1}, DISK_FLIP);
    fixture_open(fx);
    found = fixture_find(fx, &prompt);
    spec_ticket ticket;
    assert_ok(fx, try_stage(fx, found.request, 0, &ticket));
    spec_status status = stage_wait(fx, ticket);
    assert_true(copies == 0 || status == SPEC_E_CORRUPT);
    fixture_release(fx, found.request);
    found = fixture_find(fx, &prompt);
    assert_true(copies == 0 || found.matched_tokens <= 150);
    fixture_check_layers(fx, &found, &prompt, 0);
    fixture_release(fx, found.request);
    prompt_free(&prompt);
}

/* ---- 192 ---- */

static void abi_192_lookup_is_pending_until_the_match_is_there(void **state)
{
    struct fixture *fx = *state;
    struct prompt prompt = prompt_make(194, LONG);
    struct spec_lookup_result found = match_make(fx, &prompt), told;
    struct spec_lookup_params in = lookup_params(&prompt);
    spec_ticket ticket;
    uint64_t pending = 0;
    assert_ok(fx, try_stage(fx, found.request, 0, &ticket));
    for (uint32_t tries = 0;; pending++) {
        in.flags = pending % 2 == 0 ? SPEC_LOOKUP_PEEK : 0;
        told = (struct spec_lookup_result){.struct_size = sizeof(told), .request = 77};
        assert_ok(fx, fx->api->lookup(fx->conn, &in, &told, &fx->error));
        if (told.state != SPEC_LOOKUP_PENDING)
            break;
        assert_int_equal(told.request, 0);
        if (!conf_wait(&tries))
            fail_msg("PENDING for longer than patience");
    }
    bool is_whole = told.tier_bytes[SPEC_TIER_HOST] == bytes_of(&told);
    spec_status status = poll_one(fx, ticket);
    assert_int_equal(told.state, SPEC_LOOKUP_HIT);
    assert_true(status != SPEC_PENDING || is_whole);
    assert_true(is_whole); /* nothing failed, and there is room */
    if (status == SPEC_PENDING)
        status = stage_wait(fx, ticket);
    assert_int_equal(status, SPEC_OK);
    if (told.request != 0)
        fixture_release(fx, told.request);
    fixture_release(fx, found.request);
    prompt_free(&prompt);
}

static void abi_192_after_the_deadline_lookup_answers_as_things_stand(void **state)
{
    struct fixture *fx = *state;
    struct prompt prompt = prompt_make(195, LONG);
    struct spec_lookup_result found = match_make(fx, &prompt);
    spec_ticket ticket;
    assert_ok(fx, try_stage(fx, found.request, 1, &ticket)); /* a nanosecond */
    struct spec_lookup_result again = fixture_find(fx, &prompt);
    assert_int_equal(again.state, SPEC_LOOKUP_HIT);
    expect_match(&again, prompt.count - 1);
    spec_status status = stage_wait(fx, ticket);
    assert_true(status == SPEC_OK || status == SPEC_E_TIMEOUT);
    fixture_check_layer(fx, &again, &prompt, 0, 0);
    fixture_release(fx, again.request);
    fixture_release(fx, found.request);
    prompt_free(&prompt);
}

/* ---- 193 ---- */

static void abi_193_a_release_or_a_reset_ends_what_is_staged(void **state)
{
    struct fixture *fx = *state;
    struct prompt prompt = prompt_make(196, LONG);
    for (uint32_t i = 0; i < 4; i++) {
        struct spec_lookup_result found = match_make(fx, &prompt);
        spec_ticket ticket;
        assert_ok(fx, try_stage(fx, found.request, 0, &ticket));
        if (i < 3)
            fixture_release(fx, found.request);
        else
            assert_ok(fx, fx->api->reset(fx->conn, &fx->error));
        spec_status status = poll_one(fx, ticket);
        assert_true(status == SPEC_OK || status == SPEC_E_DROPPED);
        struct spec_lookup_result after = fixture_find(fx, &prompt); /* not PENDING, therefore */
        fixture_release(fx, after.request);
        if (i == 3)
            fixture_release(fx, found.request);
    }
    prompt_free(&prompt);
}

static void abi_193_stage_says_what_is_wrong_and_changes_nothing(void **state)
{
    struct fixture *fx = *state;
    struct prompt prompt = prompt_make(197, LONG);
    struct spec_lookup_result found = match_make(fx, &prompt);
    struct spec_prefetch_to_host_params params = {
        .struct_size = sizeof(params), .reserved = 1, .request = found.request};
    spec_ticket ticket = 77, other;
    assert_status(fx->api->prefetch_to_host(fx->conn, NULL, &ticket, &fx->error), SPEC_E_INVALID);
    assert_status(fx->api->prefetch_to_host(fx->conn, &params, &ticket, &fx->error),
                  SPEC_E_INVALID);
    assert_status(try_stage(fx, found.request + (1ull << 32), 0, &ticket), SPEC_E_STALE);
    assert_int_equal(ticket, 77);
    assert_ok(fx, try_stage(fx, found.request, 0, &ticket));
    spec_status status = try_stage(fx, found.request, 0, &other);
    assert_true(status == SPEC_E_BUSY || poll_one(fx, ticket) == SPEC_OK);
    fixture_release(fx, found.request);
    fixture_reconfigure(fx, "\"host_bytes\": 0");
    found = fixture_find(fx, &prompt);
    ticket = 77;
    assert_status(try_stage(fx, found.request, 0, &ticket), SPEC_E_UNSUPPORTED);
    assert_int_equal(ticket, 77);
    assert_true(strlen(fx->error.text) > 0);
    fixture_release(fx, found.request);
    prompt_free(&prompt);
}

const struct conf_test CONF_STAGE[] = {
    OPENED(abi_130_staged_rows_come_from_host_memory),
    OPENED(abi_130_what_finds_no_room_is_of_the_last_layers),
    OPENED(abi_130_loads_go_on_while_a_match_is_staged),
    OPENED(abi_130_a_range_that_fails_is_found_no_more),
    OPENED(abi_191_tier_bytes_say_where_the_rows_lie_now),
    OPENED(abi_192_lookup_is_pending_until_the_match_is_there),
    OPENED(abi_192_after_the_deadline_lookup_answers_as_things_stand),
    OPENED(abi_193_a_release_or_a_reset_ends_what_is_staged),
    OPENED(abi_193_stage_says_what_is_wrong_and_changes_nothing),
    OPENED(abi_208_what_lies_above_host_memory_is_told_as_such),
    OPENED(abi_208_a_row_lies_in_one_tier),
    END,
};
