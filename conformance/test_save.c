/* test_save: storing: ABI-080 .. ABI-087, 090, 091.
 *
 * Threads, Tests: see fixture.h. */
#include "conformance/suite.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- 080 ---- */

static void abi_080_layers_ascend_with_one_range(void **state)
{
    struct fixture *fx = *state;
    struct prompt prompt = prompt_make(150, 200);
    struct spec_lookup_result found = fixture_find(fx, &prompt);
    spec_request request = found.request;
    spec_ticket ticket;
    assert_status(fixture_put(fx, request, &prompt, 0, 200, 1, &ticket), SPEC_E_INVALID);
    assert_ok(fx, fixture_put(fx, request, &prompt, 0, 200, 0, &ticket));
    assert_status(fixture_put(fx, request, &prompt, 0, 200, 0, &ticket), SPEC_E_INVALID);
    assert_status(fixture_put(fx, request, &prompt, 0, 200, 2, &ticket), SPEC_E_INVALID);
    assert_status(fixture_put(fx, request, &prompt, 0, 199, 1, &ticket), SPEC_E_INVALID);
    assert_status(fixture_put(fx, request, &prompt, 1, 199, 1, &ticket), SPEC_E_INVALID);
    assert_ok(fx, fixture_put(fx, request, &prompt, 0, 200, 1, &ticket)); /* nothing changed */
    assert_ok(fx, fixture_put(fx, request, &prompt, 0, 200, 2, &ticket));
    bool stored = fixture_wait(fx, ticket) == SPEC_OK;
    assert_status(fixture_put(fx, request, &prompt, 0, 200, 3, &ticket), SPEC_E_INVALID);
    fixture_release(fx, request);
    fixture_check(fx, &prompt, stored ? 199 : 0);
    prompt_free(&prompt);
}

static void abi_080_a_range_has_no_gap_and_no_unknown_token(void **state)
{
    struct fixture *fx = *state;
    struct prompt prompt = prompt_make(151, 200);
    struct spec_lookup_result found = fixture_find(fx, &prompt);
    spec_request request = found.request;
    struct prompt longer = prompt_diverge(&prompt, 200, 300, 1);
    spec_ticket ticket;
    assert_status(fixture_put(fx, request, &longer, 10, 100, 0, &ticket), SPEC_E_INVALID);
    assert_status(fixture_put(fx, request, &longer, 0, 201, 0, &ticket), SPEC_E_INVALID);
    assert_status(fixture_put(fx, request, &longer, 0, 0, 0, &ticket), SPEC_E_INVALID);
    bool stored = fixture_store_range(fx, request, &prompt, 0, 100);
    assert_status(fixture_put(fx, request, &prompt, 101, 50, 0, &ticket), SPEC_E_INVALID);
    stored = fixture_store_range(fx, request, &prompt, 90, 60) && stored; /* earlier is allowed */
    stored = fixture_store_range(fx, request, &prompt, 150, 50) && stored;
    fixture_release(fx, request);
    fixture_check(fx, &prompt, 199);
    prompt_free(&prompt);
    prompt_free(&longer);
}

static void abi_080_decoded_tokens_are_appended(void **state)
{
    struct fixture *fx = *state;
    struct prompt whole = prompt_make(152, 240), prompt = prompt_diverge(&whole, 200, 200, 1);
    struct spec_lookup_result found = fixture_find(fx, &prompt);
    bool stored = fixture_store_range(fx, found.request, &prompt, 0, 200);
    spec_ticket ticket = 0;
    for (uint64_t at = 200; at < 240; at += 10)
        for (uint32_t layer = 0; layer < fx->shape.layers; layer++) {
            struct area area = area_make(&fx->shape, LAYOUT_PACKED, 10);
            area_fill(&area, &fx->shape, &whole, at, layer);
            struct spec_store_params params = {.struct_size = sizeof(params),
                                               .request = found.request,
                                               .layer = layer,
                                               .first_token = at,
                                               .token_count = 10,
                                               .memory = &area.memory,
                                               .tokens = layer == 0 ? whole.tokens + at : NULL,
                                               .tokens_count = layer == 0 ? 10 : 0};
            assert_ok(fx, fx->api->store(fx->conn, &params, 1, &ticket, &fx->error));
            area_free(&area);
            if (layer + 1 == fx->shape.layers)
                stored = fixture_wait(fx, ticket) == SPEC_OK && stored;
        }
    fixture_release(fx, found.request);
    fixture_reopen(fx);
    fixture_check(fx, &whole, 239);
    prompt_free(&whole);
    prompt_free(&prompt);
}

/* ---- 081 ---- */

static void abi_081_the_source_is_free_at_return(void **state)
{
    struct fixture *fx = *state;
    struct prompt prompt = prompt_make(153, 1000);
    struct spec_lookup_result found = fixture_find(fx, &prompt);
    struct area area = area_make(&fx->shape, LAYOUT_PACKED, 1000);
    spec_ticket ticket = 0;
    for (uint32_t layer = 0; layer < fx->shape.layers; layer++) {
        area_fill(&area, &fx->shape, &prompt, 0, layer);
        struct spec_store_params params = {.struct_size = sizeof(params),
                                           .request = found.request,
                                           .layer = layer,
                                           .token_count = 1000,
                                           .memory = &area.memory};
        assert_ok(fx, fx->api->store(fx->conn, &params, 1, &ticket, &fx->error));
        area_poison(&area);
    }
    area_free(&area);
    bool stored = fixture_wait(fx, ticket) == SPEC_OK;
    fixture_release(fx, found.request);
    fixture_check(fx, &prompt, stored ? 999 : 0);
    fixture_reopen(fx);
    fixture_check(fx, &prompt, stored ? 999 : 0);
    prompt_free(&prompt);
}

/* ---- 082, 083 ---- */

static void abi_082_a_range_is_seen_only_when_all_layers_are_written(void **state)
{
    struct fixture *fx = *state;
    struct prompt prompt = prompt_make(154, 200);
    struct spec_lookup_result found = fixture_find(fx, &prompt);
    spec_ticket ticket;
    for (uint32_t layer = 0; layer < fx->shape.layers; layer++) {
        struct spec_lookup_result early = fixture_find(fx, &prompt);
        assert_int_equal(early.matched_tokens, 0);
        fixture_release(fx, early.request);
        assert_ok(fx, fixture_put(fx, found.request, &prompt, 0, 200, layer, &ticket));
        if (layer + 1 < fx->shape.layers)
            (void)fixture_wait(fx, ticket);
    }
    bool stored = fixture_wait(fx, ticket) == SPEC_OK;
    fixture_check(fx, &prompt, stored ? 199 : 0);
    fixture_release(fx, found.request);
    prompt_free(&prompt);
}

/* What was begun before and what is stored after it: when the later one is whole, the device has
 * had all of the earlier one that it will get without its last layer. */
static void abi_082_what_lacks_its_last_layer_is_not_seen_however_long_it_takes(void **state)
{
    struct fixture *fx = *state;
    for (uint64_t i = 0; i < 4; i++) {
        struct prompt prompt = prompt_make(820 + i, 200), later = prompt_make(830 + i, 400);
        struct spec_lookup_result found = fixture_find(fx, &prompt);
        spec_ticket ticket;
        uint32_t last = fx->shape.layers - 1;
        for (uint32_t layer = 0; layer < last; layer++)
            assert_ok(fx, fixture_put(fx, found.request, &prompt, 0, 200, layer, &ticket));
        (void)fixture_store(fx, &later);
        struct spec_lookup_result early = fixture_find(fx, &prompt);
        assert_int_equal(early.matched_tokens, 0);
        fixture_release(fx, early.request);
        assert_ok(fx, fixture_put(fx, found.request, &prompt, 0, 200, last, &ticket));
        bool stored = fixture_wait(fx, ticket) == SPEC_OK;
        fixture_release(fx, found.request);
        fixture_check(fx, &prompt, stored ? 199 : 0);
        prompt_free(&prompt);
        prompt_free(&later);
    }
}

static void abi_083_the_first_complete_copy_wins(void **state)
{
    struct fixture *fx = *state;
    struct prompt first = prompt_make(155, 200), second = prompt_make(155, 200);
    prompt_salt(&second, 1); /* the same tokens, other rows */
    struct spec_lookup_result early = fixture_find(fx, &second);
    bool stored = fixture_store(fx, &first);
    (void)fixture_store_range(fx, early.request, &second, 0, 200);
    fixture_release(fx, early.request);
    fixture_check(fx, &first, stored ? 199 : 0);
    fixture_reopen(fx);
    fixture_check(fx, &first, stored ? 199 : 0);
    prompt_free(&first);
    prompt_free(&second);
}

static void abi_083_a_longer_copy_adds_only_what_was_missing(void **state)
{
    struct fixture *fx = *state;
    struct prompt first = prompt_make(156, 150), second = prompt_diverge(&first, 150, 300, 1);
    struct spec_lookup_result early = fixture_find(fx, &second);
    bool stored = fixture_store(fx, &first);
    stored = fixture_store_range(fx, early.request, &second, 0, 300) && stored;
    fixture_release(fx, early.request);
    fixture_check(fx, &second, 299);
    fixture_reopen(fx);
    fixture_check(fx, &second, 299);
    prompt_free(&first);
    prompt_free(&second);
}

/* ---- 084, 085, 086 ---- */

static void abi_084_another_dtype_is_invalid_and_changes_nothing(void **state)
{
    struct fixture *fx = *state;
    struct prompt prompt = prompt_make(157, 100);
    struct spec_lookup_result found = fixture_find(fx, &prompt);
    static const uint32_t OTHERS[] = {SPEC_DTYPE_F32, SPEC_DTYPE_BF16, SPEC_DTYPE_BYTES, 0, 9};
    for (size_t i = 0; i < sizeof(OTHERS) / sizeof(OTHERS[0]); i++) {
        struct shape wide = fx->shape;
        wide.dtype = SPEC_DTYPE_F32; /* as much memory as any needs */
        struct area area = area_make(&wide, LAYOUT_PACKED, 100);
        area.memory.dtype = OTHERS[i];
        struct spec_store_params params = {.struct_size = sizeof(params),
                                           .request = found.request,
                                           .token_count = 100,
                                           .memory = &area.memory};
        spec_ticket ticket;
        assert_status(fx->api->store(fx->conn, &params, 1, &ticket, &fx->error), SPEC_E_INVALID);
        area_free(&area);
    }
    bool stored = fixture_store_range(fx, found.request, &prompt, 0, 100);
    fixture_release(fx, found.request);
    fixture_check(fx, &prompt, stored ? 99 : 0);
    prompt_free(&prompt);
}

static void abi_085_a_full_disk_gives_the_range_up_and_the_host_goes_on(void **state)
{
    struct fixture *fx = *state;
    fixture_shape(fx, (struct shape){2, 4, 64, SPEC_DTYPE_F16});
    fixture_reconfigure(fx, "\"disk_bytes\": \"2MiB\", \"segment_bytes\": \"1MiB\", "
                            "\"staging_bytes\": \"16MiB\", \"max_requests\": 4, "
                            "\"max_request_tokens\": 4096");
    struct prompt prompts[8];
    bool stored[8];
    for (uint64_t i = 0; i < 8; i++) { /* 512 KiB of rows each */
        prompts[i] = prompt_make(160 + i, 256);
        struct spec_lookup_result found = fixture_find(fx, &prompts[i]);
        spec_ticket ticket = 0;
        for (uint32_t layer = 0; layer < fx->shape.layers; layer++)
            assert_ok(fx, fixture_put(fx, found.request, &prompts[i], 0, 256, layer, &ticket));
        stored[i] = fixture_wait(fx, ticket) == SPEC_OK;
        fixture_release(fx, found.request);
    }
    struct spec_stats stats = fixture_stats(fx);
    if (stats.disk_bytes_max != 0)
        assert_true(stats.disk_bytes_used <= stats.disk_bytes_max);
    for (int round = 0; round < 2; round++) {
        for (uint64_t i = 0; i < 8; i++) { /* what was kept is right; it may be evicted too */
            struct spec_lookup_result found = fixture_find(fx, &prompts[i]);
            assert_true(found.matched_tokens == 0 || stored[i]);
            fixture_check_layers(fx, &found, &prompts[i], 0);
            fixture_release(fx, found.request);
        }
        fixture_reopen(fx);
    }
    for (uint64_t i = 0; i < 8; i++)
        prompt_free(&prompts[i]);
}

/* The file system refuses to let files grow past a size: writes fail, whoever asks for them. */
static void abi_085_a_file_system_that_refuses_writes_is_survived(void **state)
{
    struct fixture *fx = *state;
    struct prompt before = prompt_make(168, 300);
    bool stored = fixture_store(fx, &before);
    struct rlimit limit, small = {64 << 10, 64 << 10};
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    small.rlim_max = limit.rlim_max;
    assert_true(signal(SIGXFSZ, SIG_IGN) != SIG_ERR);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    for (uint64_t i = 0; i < 20; i++) {
        struct prompt prompt = prompt_make(600 + i, 1000);
        struct spec_lookup_result found = fixture_find(fx, &prompt);
        spec_ticket ticket = 0;
        for (uint32_t layer = 0; layer < fx->shape.layers; layer++)
            assert_ok(fx, fixture_put(fx, found.request, &prompt, 0, 1000, layer, &ticket));
        bool kept = fixture_wait(fx, ticket) == SPEC_OK;
        fixture_release(fx, found.request);
        found = fixture_find(fx, &prompt);
        assert_true(found.matched_tokens == 0 || kept);
        fixture_check_layers(fx, &found, &prompt, 0);
        fixture_release(fx, found.request);
        prompt_free(&prompt);
    }
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    fixture_check(fx, &before, stored ? 299 : 0);
    fixture_reopen(fx); /* with room again it stores again */
    fixture_check(fx, &before, stored ? 299 : 0);
    struct prompt after = prompt_make(169, 300);
    stored = fixture_store(fx, &after);
    fixture_check(fx, &after, stored ? 299 : 0);
    prompt_free(&before);
    prompt_free(&after);
}

static const uint32_t SPECIAL_F32[] = {0x7fc00000, 0xffc00000, 0x7f800001, 0xff812345, 0x7f800000,
                                       0xff800000, 0x80000000, 0x00000001, 0x807fffff, 0};
static const uint16_t SPECIAL_F16[] = {0x7e00, 0xfe00, 0x7c01, 0xfc55, 0x7c00,
                                       0xfc00, 0x8000, 0x0001, 0x83ff, 0};

/* Fills an area with numbers that arithmetic would change. */
static void fill_special(const struct fixture *fx, struct area *area)
{
    uint64_t bytes = dtype_bytes(fx->shape.dtype), n = 0;
    for (uint64_t j = 0; j < area->count; j++)
        for (int value = 0; value < 2; value++)
            for (uint32_t h = 0; h < fx->shape.heads; h++)
                for (uint64_t d = 0; d < fx->shape.head_size; d++, n++)
                    memcpy(area_at(area, j, h, value) + d * bytes,
                           bytes == 4 ? (const void *)&SPECIAL_F32[n % 10]
                                      : (const void *)&SPECIAL_F16[n % 10],
                           bytes);
}

static void check_special(struct fixture *fx)
{
    struct prompt prompt = prompt_make(170, 90);
    struct spec_lookup_result found = fixture_find(fx, &prompt);
    spec_ticket ticket = 0;
    struct area stored = area_make(&fx->shape, LAYOUT_PACKED, 90);
    fill_special(fx, &stored);
    for (uint32_t layer = 0; layer < fx->shape.layers; layer++) {
        struct spec_store_params params = {.struct_size = sizeof(params),
                                           .request = found.request,
                                           .layer = layer,
                                           .token_count = 90,
                                           .memory = &stored.memory};
        assert_ok(fx, fx->api->store(fx->conn, &params, 1, &ticket, &fx->error));
    }
    bool kept = fixture_wait(fx, ticket) == SPEC_OK;
    fixture_release(fx, found.request);
    found = fixture_find(fx, &prompt);
    expect_match(&found, kept ? 89 : 0);
    for (uint32_t layer = 0; layer < fx->shape.layers; layer++) {
        struct area loaded = area_make(&fx->shape, LAYOUT_PACKED, 90);
        struct spec_important item = important(found.request, layer, &loaded.memory);
        assert_ok(fx, fx->api->get_important(fx->conn, &item, 1, &fx->error));
        uint64_t bytes = found.matched_tokens * row_bytes(&fx->shape);
        assert_memory_equal(loaded.memory.k_base, stored.memory.k_base, bytes);
        assert_memory_equal(loaded.memory.v_base, stored.memory.v_base, bytes);
        area_free(&loaded);
    }
    fixture_release(fx, found.request);
    area_free(&stored);
    prompt_free(&prompt);
}

static void abi_086_nan_and_infinities_are_stored_as_they_are(void **state)
{
    struct fixture *fx = *state;
    static const uint32_t DTYPES[] = {SPEC_DTYPE_F32, SPEC_DTYPE_F16, SPEC_DTYPE_BF16};
    for (size_t i = 0; i < 3; i++) {
        fixture_shape(fx, (struct shape){2, 2, 24, DTYPES[i]});
        fixture_open(fx);
        check_special(fx);
        fixture_close(fx);
    }
}

/* ---- 087, 091: death ---- */

struct dying {
    struct fixture *fx;
    const struct prompt *whole, *part;
    bool *stored; /* shared with the parent */
};

/* Stores one prompt to its last ticket and another to all layers but the last, then dies. */
static void store_and_die(void *user)
{
    struct dying *dying = user;
    struct fixture *fx = dying->fx;
    spec_ticket ticket;
    fixture_open(fx);
    *dying->stored = fixture_store(fx, dying->whole);
    struct spec_lookup_result found = fixture_find(fx, dying->part);
    for (uint32_t layer = 0; layer + 1 < fx->shape.layers; layer++) {
        (void)fixture_put(fx, found.request, dying->part, 0, 200, layer, &ticket);
        (void)fixture_wait(fx, ticket);
    }
    raise(SIGKILL);
}

static void store_in_a_dying_child(struct fixture *fx, const struct prompt *whole,
                                   const struct prompt *part, bool *ret_stored)
{
    /* hits and misses are counted in shared memory too */
    uint64_t *word = &conf_options.shared->misses;
    uint64_t before = *word;
    bool *stored = (bool *)conf_options.shared->reason;
    *stored = false;
    struct dying dying = {fx, whole, part, stored};
    int status = fixture_in_child(store_and_die, &dying);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    *ret_stored = *stored;
    *word = before;
}

static void abi_087_what_a_ticket_says_is_stored_outlives_a_kill(void **state)
{
    struct fixture *fx = *state;
    struct prompt whole = prompt_make(171, 300), part = prompt_make(172, 200);
    bool stored;
    store_in_a_dying_child(fx, &whole, &part, &stored);
    fixture_open(fx);
    fixture_check(fx, &whole, 299);
    prompt_free(&whole);
    prompt_free(&part);
}

static void abi_091_an_incomplete_store_dies_with_its_process(void **state)
{
    struct fixture *fx = *state;
    struct prompt whole = prompt_make(173, 300), part = prompt_make(174, 200);
    bool stored;
    store_in_a_dying_child(fx, &whole, &part, &stored);
    fixture_open(fx);
    struct spec_lookup_result found = fixture_find(fx, &part);
    assert_int_equal(found.matched_tokens, 0);
    fixture_release(fx, found.request);
    stored = fixture_store(fx, &part);
    fixture_check(fx, &part, stored ? 199 : 0);
    prompt_free(&whole);
    prompt_free(&part);
}

/* ---- 090, 091 ---- */

static void abi_090_abort_drops_what_is_incomplete(void **state)
{
    struct fixture *fx = *state;
    struct prompt prompt = prompt_make(175, 300);
    struct spec_lookup_result found = fixture_find(fx, &prompt);
    spec_request request = found.request;
    bool stored = fixture_store_range(fx, request, &prompt, 0, 100);
    spec_ticket ticket;
    for (uint32_t layer = 0; layer + 1 < fx->shape.layers; layer++) {
        assert_ok(fx, fixture_put(fx, request, &prompt, 100, 200, layer, &ticket));
        (void)fixture_wait(fx, ticket);
    }
    assert_ok(fx, fx->api->store_abort(fx->conn, request, 100, &fx->error));
    fixture_check(fx, &prompt, stored ? 100 : 0);
    stored = fixture_store_range(fx, request, &prompt, 100, 200) && stored; /* from layer 0 again */
    fixture_check(fx, &prompt, 299);
    assert_ok(fx, fx->api->store_abort(fx->conn, request, 0, &fx->error)); /* complete ones stay */
    fixture_check(fx, &prompt, 299);
    fixture_release(fx, request);
    assert_status(fx->api->store_abort(fx->conn, request, 0, &fx->error), SPEC_E_STALE);
    prompt_free(&prompt);
}

static void abi_091_release_drops_what_is_incomplete(void **state)
{
    struct fixture *fx = *state;
    struct prompt prompt = prompt_make(176, 300);
    struct spec_lookup_result found = fixture_find(fx, &prompt);
    spec_ticket ticket;
    for (uint32_t layer = 0; layer + 1 < fx->shape.layers; layer++)
        assert_ok(fx, fixture_put(fx, found.request, &prompt, 0, 300, layer, &ticket));
    fixture_release(fx, found.request);
    found = fixture_find(fx, &prompt);
    assert_int_equal(found.matched_tokens, 0);
    fixture_release(fx, found.request);
    bool stored = fixture_store(fx, &prompt);
    fixture_check(fx, &prompt, stored ? 299 : 0);
    prompt_free(&prompt);
}

/* ---- 169 ---- */

/* One layer of one token at the end of what is known, with its id where one is given. */
static spec_status put_step(struct fixture *fx, spec_request request, const struct prompt *prompt,
                            uint64_t at, uint32_t layer, bool with_id, spec_ticket *ret_ticket)
{
    struct area area = area_make(&fx->shape, LAYOUT_PACKED, 1);
    area_fill(&area, &fx->shape, prompt, at, layer);
    struct spec_store_params params = {.struct_size = sizeof(params),
                                       .request = request,
                                       .layer = layer,
                                       .first_token = at,
                                       .token_count = 1,
                                       .memory = &area.memory,
                                       .tokens = with_id ? prompt->tokens + at : NULL,
                                       .tokens_count = with_id};
    spec_status status = fx->api->store(fx->conn, &params, 1, ret_ticket, &fx->error);
    area_free(&area);
    return status;
}

static void put_layers(struct fixture *fx, spec_request request, const struct prompt *prompt,
                       uint64_t at, uint32_t first, uint32_t end)
{
    for (uint32_t layer = first; layer < end; layer++) {
        spec_ticket ticket = 0;
        assert_ok(fx, put_step(fx, request, prompt, at, layer, layer == 0, &ticket));
        (void)fixture_wait(fx, ticket);
    }
}

/* A request for the first 100 tokens, which are stored. */
static spec_request begin_decoding(struct fixture *fx, const struct prompt *prompt)
{
    struct prompt start = {.count = 100, .tokens = prompt->tokens, .history = prompt->history};
    struct spec_lookup_result found = fixture_find(fx, &start);
    (void)fixture_store_range(fx, found.request, prompt, 0, 100);
    return found.request;
}

/* Given up behind each layer, from below, at and above its first token (but inside it); then run
 * again with another token, twice over. */
static void abi_169_an_aborted_step_is_stored_again_with_another_token(void **state)
{
    struct fixture *fx = *state;
    static const uint64_t FROM[] = {0, 99, 100};
    for (uint32_t layers = 1; layers < fx->shape.layers; layers++)
        for (uint32_t f = 0; f < 3; f++) {
            struct prompt gone = prompt_make(180 + layers * 3 + f, 102);
            struct prompt other = prompt_diverge(&gone, 100, 102, 181);
            struct prompt kept = prompt_diverge(&gone, 100, 102, 182);
            spec_request request = begin_decoding(fx, &gone);
            put_layers(fx, request, &gone, 100, 0, layers);
            assert_ok(fx, fx->api->store_abort(fx->conn, request, FROM[f], &fx->error));
            put_layers(fx, request, &other, 100, 0, layers);
            assert_ok(fx, fx->api->store_abort(fx->conn, request, FROM[f], &fx->error));
            put_layers(fx, request, &kept, 100, 0, fx->shape.layers);
            fixture_check(fx, &gone, 100);
            fixture_check(fx, &other, 100);
            fixture_check(fx, &kept, 101);
            fixture_release(fx, request);
            fixture_check(fx, &gone, 100);
            prompt_free(&gone);
            prompt_free(&other);
            prompt_free(&kept);
        }
}

/* What lookup was given, and what complete passes were, stays known. */
static void abi_169_an_abort_forgets_no_token_of_before_the_pass(void **state)
{
    struct fixture *fx = *state;
    struct prompt prompt = prompt_make(183, 103);
    spec_request request = begin_decoding(fx, &prompt);
    put_layers(fx, request, &prompt, 100, 0, fx->shape.layers);
    put_layers(fx, request, &prompt, 101, 0, 1);
    assert_ok(fx, fx->api->store_abort(fx->conn, request, 102, &fx->error)); /* behind it: open */
    put_layers(fx, request, &prompt, 101, 1, fx->shape.layers);
    put_layers(fx, request, &prompt, 102, 0, 1);
    assert_ok(fx, fx->api->store_abort(fx->conn, request, 0, &fx->error));
    spec_ticket ticket = 0; /* the last one's id is forgotten, those before are not */
    assert_status(put_step(fx, request, &prompt, 102, 0, false, &ticket), SPEC_E_INVALID);
    assert_ok(fx, put_step(fx, request, &prompt, 101, 0, false, &ticket));
    (void)fixture_wait(fx, ticket);
    fixture_release(fx, request);
    fixture_check(fx, &prompt, 102);
    prompt_free(&prompt);
}

/* A position that has an id keeps it: others are refused, and change nothing. */
static void abi_169_ids_outside_the_range_are_invalid(void **state)
{
    struct fixture *fx = *state;
    struct prompt prompt = prompt_make(184, 103), other = prompt_diverge(&prompt, 100, 103, 185);
    spec_request request = begin_decoding(fx, &prompt);
    spec_ticket ticket = 0;
    assert_status(put_step(fx, request, &other, 99, 0, true, &ticket), SPEC_E_INVALID);
    put_layers(fx, request, &prompt, 100, 0, 1);
    assert_status(put_step(fx, request, &prompt, 100, 1, true, &ticket), SPEC_E_INVALID);
    put_layers(fx, request, &prompt, 100, 1, fx->shape.layers);
    assert_ok(fx, fx->api->store_abort(fx->conn, request, 100, &fx->error)); /* it is complete */
    assert_status(put_step(fx, request, &other, 100, 0, true, &ticket), SPEC_E_INVALID);
    assert_int_equal(ticket, 0);
    put_layers(fx, request, &prompt, 101, 0, fx->shape.layers);
    fixture_release(fx, request);
    fixture_check(fx, &prompt, 102);
    fixture_check(fx, &other, 100);
    prompt_free(&prompt);
    prompt_free(&other);
}

/* ---- 217 ---- */

#define STAGED_LAYERS 16u

/* Rows of 32 KiB a token over all layers: 16 MiB of staging hold no more than 512 tokens. */
static bool opens_small_staging(struct fixture *fx)
{
    fixture_shape(fx, (struct shape){STAGED_LAYERS, 8, 64, SPEC_DTYPE_F16});
    fixture_reconfigure(fx, "\"disk_bytes\": \"512MiB\", \"staging_bytes\": \"16MiB\", "
                            "\"max_requests\": 8, \"max_request_tokens\": 8192, "
                            "\"load_policy\": \"load\"");
    if (SPEC_HAS(fx->api, wait_kept))
        return true;
    print_message("skipped: the connector has no wait_kept\n");
    return false;
}

/* All layers one behind the other, as fast as memory allows. */
static spec_ticket put_pass(struct fixture *fx, spec_request request, const struct prompt *prompt,
                            uint64_t first, uint64_t wait_ns)
{
    struct area areas[STAGED_LAYERS];
    spec_ticket ticket = 0;
    for (uint32_t layer = 0; layer < STAGED_LAYERS; layer++) {
        areas[layer] = area_make(&fx->shape, LAYOUT_PACKED, prompt->count - first);
        area_fill(&areas[layer], &fx->shape, prompt, first, layer);
    }
    for (uint32_t layer = 0; layer < STAGED_LAYERS; layer++) {
        struct spec_store_params params = {.struct_size = sizeof(params),
                                           .flags = wait_ns > 0 ? SPEC_STORE_WAIT : 0,
                                           .request = request,
                                           .layer = layer,
                                           .first_token = first,
                                           .token_count = prompt->count - first,
                                           .memory = &areas[layer].memory,
                                           .wait_ns = wait_ns};
        assert_ok(fx, fx->api->store(fx->conn, &params, 1, &ticket, &fx->error));
    }
    for (uint32_t layer = 0; layer < STAGED_LAYERS; layer++)
        area_free(&areas[layer]);
    return ticket;
}

static uint64_t wait_kept(struct fixture *fx, spec_ticket ticket, spec_status *ret_status)
{
    uint64_t kept = 0;
    assert_ok(fx,
              fx->api->wait_kept(fx->conn, &ticket, 1, UINT64_MAX, ret_status, &kept, &fx->error));
    return kept;
}

/* As fast as memory allows, and again behind what was kept, until all of it is stored. */
static void abi_217_of_a_pass_beyond_staging_what_is_kept_is_told_and_found(void **state)
{
    struct fixture *fx = *state;
    if (!opens_small_staging(fx))
        return;
    struct prompt prompt = prompt_make(190, 1200);
    struct spec_lookup_result found = fixture_find(fx, &prompt);
    struct prompt begun = prompt;
    spec_status status;
    begun.count = 100; /* the ranges that follow begin behind others */
    uint64_t first = wait_kept(fx, put_pass(fx, found.request, &begun, 0, 0), &status), passes = 0;
    assert_int_equal(first, status == SPEC_OK ? 100 : 0);
    for (; first < prompt.count && passes < 64; passes++) {
        uint64_t kept = wait_kept(fx, put_pass(fx, found.request, &prompt, first, 0), &status);
        assert_true(status == SPEC_OK ? kept == prompt.count - first : kept < prompt.count - first);
        if (conf_options.require_hits)
            assert_true(kept > 0);
        first += kept;
        struct prompt stored = prompt;
        stored.count = first < prompt.count ? first + 1 : first; /* the last is always computed */
        fixture_check(fx, &stored, stored.count - 1);
    }
    if (conf_options.require_hits)
        assert_int_equal(first, prompt.count);
    fixture_release(fx, found.request);
    fixture_reopen(fx);
    fixture_check(fx, &prompt, first == prompt.count ? first - 1 : first);
    prompt_free(&prompt);
}

/* Ranges behind the part that was given up are not stored until it is. */
static void abi_217_what_hangs_on_a_lost_end_is_dropped(void **state)
{
    struct fixture *fx = *state;
    if (!opens_small_staging(fx))
        return;
    struct prompt prompt = prompt_make(191, 1300), part = prompt;
    part.count = 1200;
    struct spec_lookup_result found = fixture_find(fx, &prompt);
    spec_status status, behind;
    spec_ticket ticket = put_pass(fx, found.request, &part, 0, 0);
    spec_ticket later = put_pass(fx, found.request, &prompt, part.count, 0);
    uint64_t kept = wait_kept(fx, ticket, &status);
    uint64_t kept_behind = wait_kept(fx, later, &behind);
    if (status != SPEC_OK) {
        assert_int_equal(kept_behind, 0);
        assert_true(behind != SPEC_OK);
    }
    fixture_release(fx, found.request);
    struct spec_lookup_result again = fixture_find(fx, &prompt);
    if (conf_options.require_hits && status != SPEC_OK)
        assert_int_equal(again.matched_tokens, kept);
    fixture_check_layers(fx, &again, &prompt, 0);
    fixture_release(fx, again.request);
    prompt_free(&prompt);
}

/* With time to wait all of it is stored. */
static void abi_217_a_host_that_waits_loses_nothing(void **state)
{
    struct fixture *fx = *state;
    if (!opens_small_staging(fx))
        return;
    struct prompt prompt = prompt_make(192, 1200);
    struct spec_lookup_result found = fixture_find(fx, &prompt);
    struct area area = area_make(&fx->shape, LAYOUT_PACKED, prompt.count);
    struct spec_store_params params = {.struct_size = sizeof(params),
                                       .request = found.request,
                                       .token_count = prompt.count,
                                       .memory = &area.memory,
                                       .wait_ns = 1}; /* without the flag */
    assert_status(fx->api->store(fx->conn, &params, 1, NULL, &fx->error), SPEC_E_INVALID);
    area_free(&area);
    spec_ticket ticket = put_pass(fx, found.request, &prompt, 0, UINT64_C(600000000000));
    spec_status status;
    uint64_t kept = wait_kept(fx, ticket, &status);
    if (conf_options.require_hits)
        assert_status(status, SPEC_OK);
    fixture_release(fx, found.request);
    fixture_check(fx, &prompt, kept == prompt.count ? kept - 1 : kept);
    prompt_free(&prompt);
}

const struct conf_test CONF_SAVE[] = {
    OPENED(abi_080_layers_ascend_with_one_range),
    OPENED(abi_080_a_range_has_no_gap_and_no_unknown_token),
    OPENED(abi_080_decoded_tokens_are_appended),
    OPENED(abi_081_the_source_is_free_at_return),
    OPENED(abi_082_a_range_is_seen_only_when_all_layers_are_written),
    OPENED(abi_082_what_lacks_its_last_layer_is_not_seen_however_long_it_takes),
    OPENED(abi_083_the_first_complete_copy_wins),
    OPENED(abi_083_a_longer_copy_adds_only_what_was_missing),
    OPENED(abi_084_another_dtype_is_invalid_and_changes_nothing),
    BARE(abi_085_a_full_disk_gives_the_range_up_and_the_host_goes_on),
    OPENED(abi_085_a_file_system_that_refuses_writes_is_survived),
    BARE(abi_086_nan_and_infinities_are_stored_as_they_are),
    BARE(abi_087_what_a_ticket_says_is_stored_outlives_a_kill),
    OPENED(abi_090_abort_drops_what_is_incomplete),
    OPENED(abi_091_release_drops_what_is_incomplete),
    BARE(abi_091_an_incomplete_store_dies_with_its_process),
    OPENED(abi_169_an_aborted_step_is_stored_again_with_another_token),
    OPENED(abi_169_an_abort_forgets_no_token_of_before_the_pass),
    OPENED(abi_169_ids_outside_the_range_are_invalid),
    BARE(abi_217_of_a_pass_beyond_staging_what_is_kept_is_told_and_found),
    BARE(abi_217_what_hangs_on_a_lost_end_is_dropped),
    BARE(abi_217_a_host_that_waits_loses_nothing),
    END,
};
