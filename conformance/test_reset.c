/* test_reset: new weights epochs: ABI-134, 138, 139, 216.
 *
 * The truth of a row depends on its epoch. Threads, Tests: see fixture.h. */
#include "conformance/suite.h"

/* ---- 134 ---- */

static void abi_134_after_a_reset_nothing_stored_before_is_promised(void **state)
{
    struct fixture *fx = *state;
    for (uint64_t epoch = 0; epoch < 4; epoch++) {
        struct prompt prompts[3];
        assert_int_equal(fixture_stats(fx).epoch, epoch);
        for (uint64_t i = 0; i < 3; i++) {
            prompts[i] = prompt_make(1100 + i, 90 + 100 * i);
            prompt_salt(&prompts[i], epoch);
            fixture_check(fx, &prompts[i], 0);
            bool stored = fixture_store(fx, &prompts[i]);
            fixture_check(fx, &prompts[i], stored ? prompts[i].count - 1 : 0);
        }
        if (epoch % 2 == 1) { /* what is of this epoch outlives a restart */
            fixture_reopen(fx);
            fixture_check(fx, &prompts[2], prompts[2].count - 1);
        }
        assert_ok(fx, fx->api->reset(fx->conn, &fx->error));
        for (uint64_t i = 0; i < 3; i++)
            fixture_check(fx, &prompts[i], 0);
        if (epoch >= 2) /* and so does the reset */
            fixture_reopen(fx);
        for (uint64_t i = 0; i < 3; i++) {
            fixture_check(fx, &prompts[i], 0);
            prompt_free(&prompts[i]);
        }
    }
}

static void abi_134_a_reset_is_of_one_model(void **state)
{
    struct fixture *fx = *state;
    struct prompt prompt = prompt_make(1110, 200);
    struct spec_model mine = fx->model;
    bool stored = fixture_store(fx, &prompt);
    fixture_close(fx);
    fx->model.weights_id = (struct spec_bytes){"other weights", 13};
    fixture_open(fx);
    prompt_salt(&prompt, 1);
    (void)fixture_store(fx, &prompt);
    assert_ok(fx, fx->api->reset(fx->conn, &fx->error));
    fixture_check(fx, &prompt, 0);
    fixture_close(fx);
    fx->model = mine;
    prompt_salt(&prompt, 0);
    fixture_open(fx);
    fixture_check(fx, &prompt, stored ? 199 : 0);
    prompt_free(&prompt);
}

/* ---- 138 ---- */

static void abi_138_requests_made_before_a_reset_are_stale_but_for_release(void **state)
{
    struct fixture *fx = *state;
    struct prompt prompt = prompt_make(1120, 300), part = prompt_diverge(&prompt, 200, 200, 1);
    (void)fixture_store(fx, &part);
    struct spec_lookup_result found = fixture_find(fx, &prompt);
    struct area area = area_make(&fx->shape, LAYOUT_PACKED, found.matched_tokens);
    struct spec_important item = important(found.request, 0, &area.memory);
    spec_request request = found.request;
    spec_ticket ticket;
    assert_ok(fx, fx->api->begin_layer(fx->conn, &request, 1, 0, &fx->error));
    assert_ok(fx, fx->api->reset(fx->conn, &fx->error));
    assert_status(fx->api->begin_layer(fx->conn, &request, 1, 1, &fx->error), SPEC_E_STALE);
    assert_status(fx->api->get_important(fx->conn, &item, 1, &fx->error), SPEC_E_STALE);
    area_expect(&area, &fx->shape, &prompt, 0, 0, 0);
    assert_status(fx->api->prefetch_next(fx->conn, request, 0, NULL, &fx->error), SPEC_E_STALE);
    assert_status(fixture_put(fx, request, &prompt, found.matched_tokens, 50, 0, &ticket),
                  SPEC_E_STALE);
    assert_status(fx->api->store_abort(fx->conn, request, 0, &fx->error), SPEC_E_STALE);
    fixture_release(fx, request);
    assert_status(fx->api->release(fx->conn, request, &fx->error), SPEC_E_STALE);
    assert_int_equal(fixture_stats(fx).requests_open, 0);
    area_free(&area);
    prompt_free(&prompt);
    prompt_free(&part);
}

/* Passes of each stage are under way: begun, all but whole, and submitted whole. */
static void abi_138_unfinished_stores_are_dropped_by_a_reset(void **state)
{
    struct fixture *fx = *state;
    for (uint32_t put = 1; put <= fx->shape.layers; put++) {
        struct prompt prompt = prompt_make(1130 + put, 300);
        struct spec_lookup_result found = fixture_find(fx, &prompt);
        spec_ticket ticket = 0;
        for (uint32_t layer = 0; layer < put; layer++)
            assert_ok(fx, fixture_put(fx, found.request, &prompt, 0, 300, layer, &ticket));
        assert_ok(fx, fx->api->reset(fx->conn, &fx->error));
        (void)fixture_wait(fx, ticket); /* any end is one */
        fixture_release(fx, found.request);
        struct prompt later = prompt_make(1140 + put, 200);
        bool stored = fixture_store(fx, &later);
        fixture_check(fx, &prompt, 0);
        fixture_check(fx, &later, stored ? 199 : 0);
        fixture_reopen(fx);
        fixture_check(fx, &prompt, 0);
        fixture_check(fx, &later, stored ? 199 : 0);
        prompt_free(&prompt);
        prompt_free(&later);
    }
}

/* ---- 139 ---- */

/* Others follow in a while: until they do, what they store is of the old epoch. */
static void await_epoch(struct fixture *fx, uint64_t epoch)
{
    for (uint32_t tries = 0; fixture_stats(fx).epoch < epoch;)
        assert_true(conf_wait(&tries));
    assert_int_equal(fixture_stats(fx).epoch, epoch);
}

/* Whoever resets, all follow, and find what is stored afterwards. */
static void check_all_follow(struct fixture *who, struct fixture *writer, struct fixture *all[3],
                             uint64_t seed)
{
    struct prompt prompt = prompt_make(seed, 300);
    bool stored = fixture_store(writer, &prompt);
    for (int i = 0; i < 3; i++) {
        struct spec_lookup_result found = fixture_await(all[i], &prompt, stored ? 299 : 0);
        fixture_check_layers(all[i], &found, &prompt, 0);
        fixture_release(all[i], found.request);
    }
    uint64_t epoch = fixture_stats(who).epoch;
    assert_ok(who, who->api->reset(who->conn, &who->error));
    fixture_check(who, &prompt, 0); /* at once where it was called */
    for (int i = 0; i < 3; i++) {
        await_epoch(all[i], epoch + 1);
        fixture_check(all[i], &prompt, 0);
    }
    prompt_salt(&prompt, 7);
    stored = fixture_store(writer, &prompt);
    for (int i = 0; i < 3; i++) {
        struct spec_lookup_result found = fixture_await(all[i], &prompt, stored ? 299 : 0);
        fixture_check_layers(all[i], &found, &prompt, 0);
        fixture_release(all[i], found.request);
    }
    prompt_free(&prompt);
}

static void abi_139_readers_and_writer_follow_whoever_resets(void **state)
{
    struct fixture *fx = *state;
    struct fixture one = fixture_beside(fx, SPEC_ROLE_READER);
    struct fixture other = fixture_beside(fx, SPEC_ROLE_READER);
    struct fixture *all[3] = {fx, &one, &other};
    fixture_open(&one);
    fixture_open(&other);
    check_all_follow(fx, fx, all, 1150);
    check_all_follow(&one, fx, all, 1151);
    check_all_follow(&other, fx, all, 1152);
    fixture_close(&one);
    fixture_close(&other);
}

static void abi_139_a_reset_of_one_rank_is_of_every_rank(void **state)
{
    struct fixture *fx = *state;
    struct prompt prompt = prompt_make(1160, 200);
    struct fixture ranks[2];
    bool all = true;
    for (uint32_t rank = 0; rank < 2; rank++) {
        ranks[rank] = fixture_beside(fx, SPEC_ROLE_WRITER);
        ranks[rank].rank = ranks[rank].model.tp_rank = rank;
        ranks[rank].rank_count = ranks[rank].model.tp_size = 2;
        fixture_open(&ranks[rank]);
    }
    for (uint32_t round = 0; round < 2; round++) {
        prompt_salt(&prompt, round);
        for (uint32_t rank = 0; rank < 2; rank++)
            all = fixture_store(&ranks[rank], &prompt) && all;
        for (uint32_t rank = 0; rank < 2; rank++) {
            struct spec_lookup_result found = fixture_await(&ranks[rank], &prompt, all ? 199 : 0);
            fixture_check_layers(&ranks[rank], &found, &prompt, 0);
            fixture_release(&ranks[rank], found.request);
        }
        struct fixture *who = &ranks[round];
        assert_ok(who, who->api->reset(who->conn, &who->error));
        for (uint32_t rank = 0; rank < 2; rank++) {
            await_epoch(&ranks[rank], round + 1);
            fixture_check(&ranks[rank], &prompt, 0);
        }
    }
    for (uint32_t rank = 0; rank < 2; rank++)
        fixture_close(&ranks[rank]);
    prompt_free(&prompt);
}

/* ---- 216 ---- */

#define SIZES "\"disk_bytes\": \"64MiB\", \"max_requests\": 16, \"max_request_tokens\": 4096"

/* Opens the store as one of several configurations of the same weights. */
static void open_as(struct fixture *fx, uint32_t which)
{
    static const char *const EXTRA[] = {SIZES, SIZES ", \"store\": {\"layout\": \"split\"}",
                                        SIZES ", \"chunk_tokens\": 128", SIZES, SIZES};
    if (fx->conn != NULL)
        fixture_close(fx);
    fx->rank_count = which == 3 ? 2 : 1;
    fx->model.revision = which == 4 ? "another" : NULL;
    fixture_reconfigure(fx, EXTRA[which]);
}

static void abi_216_a_reset_reaches_what_other_configurations_stored(void **state)
{
    struct fixture *fx = *state;
    struct prompt prompt = prompt_make(1120, 200);
    for (uint32_t i = 1; i < 10; i++) { /* from the first to each other one, and back */
        uint32_t stores = i % 2 == 1 ? 0 : i / 2, resets = i % 2 == 1 ? (i + 1) / 2 : 0;
        if (stores == 5 || resets == 5)
            break;
        prompt_salt(&prompt, i);
        open_as(fx, stores);
        bool stored = stores != 3 && fixture_store(fx, &prompt);
        if (stores == 3) /* the other rank has nothing: no hit is promised, but rows are there */
            (void)fixture_try_store(fx, &prompt);
        fixture_check(fx, &prompt, stored ? 199 : 0);
        open_as(fx, resets);
        assert_ok(fx, fx->api->reset(fx->conn, &fx->error));
        open_as(fx, stores);
        fixture_check(fx, &prompt, 0);
    }
    prompt_free(&prompt);
}

/* A reader of another configuration resets; the writer learns of it within 100 ms. */
static void abi_216_a_reset_reaches_connectors_that_are_open(void **state)
{
    struct fixture *fx = *state;
    struct prompt prompt = prompt_make(1121, 200);
    open_as(fx, 0);
    struct fixture other = fixture_beside(fx, SPEC_ROLE_READER);
    other.extra = SIZES ", \"chunk_tokens\": 128";
    fixture_open(&other);
    for (uint64_t epoch = 1; epoch <= 3; epoch++) {
        prompt_salt(&prompt, epoch);
        bool stored = fixture_store(fx, &prompt);
        fixture_check(fx, &prompt, stored ? 199 : 0);
        assert_ok(&other, other.api->reset(other.conn, &other.error));
        await_epoch(fx, epoch);
        fixture_check(fx, &prompt, 0);
    }
    fixture_close(&other);
    prompt_free(&prompt);
}

const struct conf_test CONF_RESET[] = {
    OPENED(abi_134_after_a_reset_nothing_stored_before_is_promised),
    OPENED(abi_134_a_reset_is_of_one_model),
    OPENED(abi_138_requests_made_before_a_reset_are_stale_but_for_release),
    OPENED(abi_138_unfinished_stores_are_dropped_by_a_reset),
    OPENED(abi_139_readers_and_writer_follow_whoever_resets),
    BARE(abi_139_a_reset_of_one_rank_is_of_every_rank),
    BARE(abi_216_a_reset_reaches_what_other_configurations_stored),
    BARE(abi_216_a_reset_reaches_connectors_that_are_open),
    END,
};
