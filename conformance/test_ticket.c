/* test_ticket: tickets, release, statistics: ABI-100, 101, 110, 111.
 *
 * Threads, Tests: see fixture.h. */
#include "conformance/suite.h"

#include <string.h>

/* Submits all layers of a prompt. */
static spec_ticket submit(struct fixture *fx, spec_request request, const struct prompt *prompt)
{
    spec_ticket ticket = 0;
    for (uint32_t layer = 0; layer < fx->shape.layers; layer++)
        assert_ok(fx, fixture_put(fx, request, prompt, 0, prompt->count, layer, &ticket));
    return ticket;
}

static void abi_100_a_ticket_that_was_reported_done_is_ended(void **state)
{
    struct fixture *fx = *state;
    struct prompt prompt = prompt_make(180, 300);
    struct spec_lookup_result found = fixture_find(fx, &prompt);
    spec_ticket tickets[3];
    spec_status ended[3] = {SPEC_PENDING, SPEC_PENDING, SPEC_PENDING};
    for (uint64_t i = 0; i < 3; i++) {
        assert_ok(fx, fx->api->store_abort(fx->conn, found.request, 0, &fx->error));
        tickets[i] = submit(fx, found.request, &prompt);
    }
    assert_true(tickets[0] != tickets[1] && tickets[1] != tickets[2] && tickets[0] != tickets[2]);
    for (uint64_t i = 0; i < 3; i++)
        do
            assert_ok(fx, fx->api->poll(fx->conn, &tickets[i], 1, &ended[i], &fx->error));
        while (ended[i] == SPEC_PENDING);
    for (uint64_t i = 0; i < 3; i++) {
        spec_status again = 77;
        assert_status(fx->api->poll(fx->conn, &tickets[i], 1, &again, &fx->error), SPEC_E_INVALID);
        assert_status(fx->api->wait(fx->conn, &tickets[i], 1, 0, &again, &fx->error),
                      SPEC_E_INVALID);
        assert_int_equal(again, 77);
    }
    fixture_release(fx, found.request);
    fixture_check(fx, &prompt, ended[0] == SPEC_OK ? 299 : 0);
    prompt_free(&prompt);
}

static void abi_100_unknown_tickets_are_invalid_and_end_no_other(void **state)
{
    struct fixture *fx = *state;
    struct prompt prompt = prompt_make(181, 300);
    struct spec_lookup_result found = fixture_find(fx, &prompt);
    spec_ticket tickets[2] = {submit(fx, found.request, &prompt), UINT64_MAX / 3};
    spec_status ended[2];
    static const spec_ticket UNKNOWN[] = {0, 1, UINT64_MAX, UINT64_MAX - 1};
    for (size_t i = 0; i < sizeof(UNKNOWN) / sizeof(UNKNOWN[0]); i++)
        if (UNKNOWN[i] != tickets[0])
            assert_status(fx->api->poll(fx->conn, &UNKNOWN[i], 1, ended, &fx->error),
                          SPEC_E_INVALID);
    assert_status(fx->api->poll(fx->conn, tickets, 2, ended, &fx->error), SPEC_E_INVALID);
    assert_status(fx->api->poll(fx->conn, NULL, 1, ended, &fx->error), SPEC_E_INVALID);
    assert_status(fx->api->poll(fx->conn, tickets, 1, NULL, &fx->error), SPEC_E_INVALID);
    bool stored = fixture_wait(fx, tickets[0]) == SPEC_OK; /* it is still there */
    fixture_release(fx, found.request);
    fixture_check(fx, &prompt, stored ? 299 : 0);
    prompt_free(&prompt);
}

static void abi_101_wait_writes_the_statuses_it_has_when_time_is_up(void **state)
{
    struct fixture *fx = *state;
    fixture_shape(fx, (struct shape){2, 8, 128, SPEC_DTYPE_F32});
    fixture_reopen(fx);
    struct prompt prompt = prompt_make(182, 2000); /* 32 MB are seldom there at once */
    struct prompt small = prompt_make(185, 64);
    struct spec_lookup_result found = fixture_find(fx, &prompt), first = fixture_find(fx, &small);
    spec_ticket tickets[2];
    spec_status ended[2] = {77, 77};
    tickets[0] = submit(fx, first.request, &small);
    tickets[1] = submit(fx, found.request, &prompt);
    spec_status status = fx->api->wait(fx->conn, tickets, 2, 0, ended, &fx->error);
    assert_true(status == SPEC_OK || status == SPEC_E_TIMEOUT);
    assert_true(ended[0] != 77 && ended[1] != 77);
    assert_true((status == SPEC_E_TIMEOUT) ==
                (ended[0] == SPEC_PENDING || ended[1] == SPEC_PENDING));
    for (uint64_t i = 0; i < 2; i++)
        if (ended[i] == SPEC_PENDING)
            ended[i] = fixture_wait(fx, tickets[i]);
    fixture_release(fx, first.request);
    fixture_release(fx, found.request);
    if (ended[1] == SPEC_OK) {
        fixture_check(fx, &prompt, 1999);
    } else { /* given up: chunks that had all layers by then may be there, and are right */
        found = fixture_find(fx, &prompt);
        assert_true(found.matched_tokens <= 1999);
        fixture_check_layers(fx, &found, &prompt, 0);
        fixture_release(fx, found.request);
    }
    prompt_free(&small);
    prompt_free(&prompt);
}

static void abi_101_wait_for_nothing_returns(void **state)
{
    struct fixture *fx = *state;
    assert_ok(fx, fx->api->wait(fx->conn, NULL, 0, UINT64_MAX, NULL, &fx->error));
    assert_ok(fx, fx->api->poll(fx->conn, NULL, 0, NULL, &fx->error));
}

static void abi_110_a_released_request_is_stale_everywhere(void **state)
{
    struct fixture *fx = *state;
    struct prompt prompt = prompt_make(183, 100);
    struct spec_lookup_result found = fixture_find(fx, &prompt);
    struct area area = area_make(&fx->shape, LAYOUT_PACKED, 100);
    spec_request requests[] = {found.request, 0, UINT64_MAX, found.request + 1};
    fixture_release(fx, found.request);
    for (size_t i = 0; i < sizeof(requests) / sizeof(requests[0]); i++) {
        spec_request request = requests[i];
        struct spec_important item = important(request, 0, &area.memory);
        spec_ticket ticket;
        assert_status(fx->api->release(fx->conn, request, &fx->error), SPEC_E_STALE);
        assert_status(fx->api->begin_layer(fx->conn, &request, 1, 0, &fx->error), SPEC_E_STALE);
        assert_status(fx->api->get_important(fx->conn, &item, 1, &fx->error), SPEC_E_STALE);
        assert_status(fx->api->prefetch_next(fx->conn, request, 0, NULL, &fx->error), SPEC_E_STALE);
        assert_status(fixture_put(fx, request, &prompt, 0, 100, 0, &ticket), SPEC_E_STALE);
        assert_status(fx->api->store_abort(fx->conn, request, 0, &fx->error), SPEC_E_STALE);
    }
    area_free(&area);
    prompt_free(&prompt);
}

static void abi_110_submitted_stores_go_on_and_tickets_stay_pollable(void **state)
{
    struct fixture *fx = *state;
    struct prompt prompt = prompt_make(184, 1000);
    struct spec_lookup_result found = fixture_find(fx, &prompt);
    spec_ticket ticket = submit(fx, found.request, &prompt);
    fixture_release(fx, found.request);
    bool stored = fixture_wait(fx, ticket) == SPEC_OK;
    fixture_check(fx, &prompt, stored ? 999 : 0);
    prompt_free(&prompt);
}

static void abi_111_counters_count(void **state)
{
    struct fixture *fx = *state;
    struct spec_stats before = fixture_stats(fx);
    assert_int_equal(before.struct_size, sizeof(before));
    assert_int_equal(before.poisoned, 0);
    assert_int_equal(before.requests_open, 0);
    assert_int_equal(before.tickets_open, 0);
    struct prompt prompt = prompt_make(185, 300);
    bool stored = fixture_store(fx, &prompt);
    struct spec_lookup_result found = fixture_find(fx, &prompt);
    struct spec_stats after = fixture_stats(fx);
    assert_int_equal(after.lookups, before.lookups + 2);
    assert_int_equal(after.requests_open, 1);
    assert_int_equal(after.matched_tokens, before.matched_tokens + found.matched_tokens);
    if (stored)
        assert_true(after.stored_tokens >= before.stored_tokens + found.matched_tokens);
    if (found.state == SPEC_LOOKUP_HIT) {
        uint64_t bytes = 300 * 2 * row_bytes(&fx->shape) * fx->shape.layers;
        assert_true(after.extent_bytes >= bytes);
        assert_true(after.disk_bytes_used >= after.extent_bytes);
        fixture_check_layers(fx, &found, &prompt, 0);
        struct spec_stats loaded = fixture_stats(fx);
        assert_true(loaded.read_bytes >= after.read_bytes);
        assert_int_equal(loaded.prefetched_rows + loaded.demanded_rows,
                         found.matched_tokens * fx->shape.layers);
    }
    fixture_release(fx, found.request);
    assert_int_equal(fixture_stats(fx).requests_open, 0);
    assert_int_equal(fixture_stats(fx).tickets_open, 0);
    assert_status(fx->api->stats(fx->conn, NULL, &fx->error), SPEC_E_INVALID);
    prompt_free(&prompt);
}

const struct conf_test CONF_TICKET[] = {
    OPENED(abi_100_a_ticket_that_was_reported_done_is_ended),
    OPENED(abi_100_unknown_tickets_are_invalid_and_end_no_other),
    OPENED(abi_101_wait_writes_the_statuses_it_has_when_time_is_up),
    OPENED(abi_101_wait_for_nothing_returns),
    OPENED(abi_110_a_released_request_is_stale_everywhere),
    OPENED(abi_110_submitted_stores_go_on_and_tickets_stay_pollable),
    OPENED(abi_111_counters_count),
    END,
};
