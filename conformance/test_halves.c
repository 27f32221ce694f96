/* test_halves: get_important in two halves: ABI-133, 160, 161, 162.
 *
 *   submit -> the host stores, releases, waits a moment -> wait
 *
 * The report of wait is compared like a result of get_important. Areas are not read before.
 * Threads, Tests: see fixture.h. */
#include "conformance/suite.h"

#include <stdlib.h>
#include <string.h>

#define BATCH 6u

/* Some layers of some requests, submitted together. */
struct batch {
    struct prompt prompts[2];
    struct spec_lookup_result found[2];
    struct area areas[BATCH];
    uint32_t positions[BATCH][400];
    struct spec_important items[BATCH];
    uint64_t count;
};

static const uint64_t COUNTS[2] = {300, 131};

static void batch_make(struct fixture *fx, struct batch *batch, uint64_t seed, uint64_t count)
{
    *batch = (struct batch){.count = count};
    for (uint64_t i = 0; i < 2; i++) {
        batch->prompts[i] = prompt_make(seed + i, COUNTS[i]);
        (void)fixture_store(fx, &batch->prompts[i]);
        batch->found[i] = fixture_find(fx, &batch->prompts[i]);
        expect_match(&batch->found[i], COUNTS[i] - 1);
    }
    for (uint64_t i = 0; i < count; i++) {
        const struct spec_lookup_result *found = &batch->found[i % 2];
        batch->areas[i] = area_make(&fx->shape, (enum layout)(i % LAYOUTS), found->matched_tokens);
        batch->items[i] = important(found->request, (uint32_t)(i / 2) % fx->shape.layers,
                                    &batch->areas[i].memory);
        batch->items[i].positions = batch->positions[i];
        batch->items[i].position_capacity = 400;
        batch->items[i].status = 77;
        batch->items[i].row_count = 777;
    }
}

static void batch_free(struct fixture *fx, struct batch *batch, bool is_released)
{
    for (uint64_t i = 0; i < batch->count; i++)
        area_free(&batch->areas[i]);
    for (uint64_t i = 0; i < 2; i++) {
        if (!is_released)
            fixture_release(fx, batch->found[i].request);
        prompt_free(&batch->prompts[i]);
    }
}

/* As get_important would have it. */
static void batch_expect(const struct fixture *fx, const struct batch *batch)
{
    for (uint64_t i = 0; i < batch->count; i++) {
        const struct spec_important *item = &batch->items[i];
        uint64_t rows = batch->found[i % 2].matched_tokens;
        assert_int_equal(item->status, SPEC_OK);
        assert_int_equal(item->row_count, rows);
        assert_int_equal(item->next_position, rows);
        for (uint64_t j = 0; j < rows; j++)
            assert_int_equal(batch->positions[i][j], j);
        area_expect(&batch->areas[i], &fx->shape, &batch->prompts[i % 2], 0, rows, item->layer);
    }
}

static spec_ticket submit(struct fixture *fx, struct batch *batch)
{
    spec_ticket ticket = 0;
    assert_ok(fx, fx->api->get_important_submit(fx->conn, batch->items, batch->count, &ticket,
                                                &fx->error));
    assert_true(ticket != 0);
    for (uint64_t i = 0; i < batch->count; i++) { /* results are the wait's */
        assert_int_equal(batch->items[i].status, 77);
        assert_int_equal(batch->items[i].row_count, 777);
    }
    return ticket;
}

static spec_status report(struct fixture *fx, spec_ticket ticket)
{
    return fx->api->get_important_wait(fx->conn, ticket, UINT64_MAX, &fx->error);
}

static void abi_133_the_halves_deliver_what_get_important_does(void **state)
{
    struct fixture *fx = *state;
    for (uint64_t count = 1; count <= BATCH; count++)
        for (uint32_t polls = 0; polls < 2; polls++) {
            struct batch batch;
            batch_make(fx, &batch, 1900 + 2 * count, count);
            spec_ticket ticket = submit(fx, &batch);
            uint32_t tries = 0;
            spec_status status = SPEC_E_TIMEOUT;
            while (polls && status == SPEC_E_TIMEOUT && conf_wait(&tries))
                status = fx->api->get_important_wait(fx->conn, ticket, 0, &fx->error);
            if (status == SPEC_E_TIMEOUT)
                status = report(fx, ticket);
            assert_ok(fx, status);
            batch_expect(fx, &batch);
            assert_ok(fx, fx->api->get_important(fx->conn, batch.items, count, &fx->error));
            batch_expect(fx, &batch);
            batch_free(fx, &batch, false);
        }
}

static void abi_133_submit_refuses_what_get_important_refuses(void **state)
{
    struct fixture *fx = *state;
    struct batch batch;
    spec_ticket ticket = 77;
    batch_make(fx, &batch, 1920, 2);
    batch.items[1].layer = fx->shape.layers;
    assert_status(fx->api->get_important_submit(fx->conn, batch.items, 2, &ticket, &fx->error),
                  SPEC_E_INVALID);
    batch.items[1].layer = 0;
    batch.items[1].request ^= UINT64_C(1) << 63;
    assert_status(fx->api->get_important_submit(fx->conn, batch.items, 2, &ticket, &fx->error),
                  SPEC_E_STALE);
    batch.items[1].request ^= UINT64_C(1) << 63;
    assert_status(fx->api->get_important_submit(fx->conn, NULL, 2, &ticket, &fx->error),
                  SPEC_E_INVALID);
    assert_status(fx->api->get_important_submit(fx->conn, batch.items, 0, &ticket, &fx->error),
                  SPEC_E_INVALID);
    assert_status(fx->api->get_important_submit(fx->conn, batch.items, 2, NULL, &fx->error),
                  SPEC_E_INVALID);
    assert_int_equal(ticket, 77);
    for (uint64_t i = 0; i < 2; i++)
        area_expect(&batch.areas[i], &fx->shape, &batch.prompts[i], 0, 0, 0);
    assert_ok(fx, report(fx, submit(fx, &batch))); /* nothing changed */
    batch_expect(fx, &batch);
    batch_free(fx, &batch, false);
}

static void abi_160_a_ticket_is_reported_once_by_its_own_wait(void **state)
{
    struct fixture *fx = *state;
    struct batch batch;
    batch_make(fx, &batch, 1930, 2);
    spec_ticket ticket = submit(fx, &batch);
    const spec_ticket unknown[] = {0, 1, UINT64_MAX, ticket + 1, ticket ^ UINT64_C(1) << 40};
    spec_status status = 77;
    for (size_t i = 0; i < sizeof(unknown) / sizeof(unknown[0]); i++)
        assert_status(report(fx, unknown[i]), SPEC_E_INVALID);
    assert_status(fx->api->poll(fx->conn, &ticket, 1, &status, &fx->error), SPEC_E_INVALID);
    assert_status(fx->api->wait(fx->conn, &ticket, 1, 0, &status, &fx->error), SPEC_E_INVALID);
    assert_int_equal(status, 77);
    assert_ok(fx, report(fx, ticket));
    batch_expect(fx, &batch);
    assert_status(report(fx, ticket), SPEC_E_INVALID);
    for (uint64_t i = 0; i < 2; i++)
        batch.items[i].status = 77, batch.items[i].row_count = 777;
    spec_ticket next = submit(fx, &batch);
    assert_true(next != ticket);
    assert_status(report(fx, ticket), SPEC_E_INVALID);
    assert_ok(fx, report(fx, next));
    batch_expect(fx, &batch);
    batch_free(fx, &batch, false);
}

static void abi_161_loads_of_a_submitted_request_are_busy_and_its_stores_are_not(void **state)
{
    struct fixture *fx = *state;
    struct prompt prompt = prompt_make(1940, 500), start = prompt_make(1940, 300);
    (void)fixture_store(fx, &start);
    struct spec_lookup_result found = fixture_find(fx, &prompt);
    uint64_t rows = found.matched_tokens;
    spec_ticket stored = 0, ticket, other = 77;
    for (uint32_t layer = 0; layer < fx->shape.layers; layer++) {
        struct area area = area_make(&fx->shape, LAYOUT_PACKED, rows);
        struct spec_important item = important(found.request, layer, &area.memory), next = item;
        assert_ok(fx, fx->api->get_important_submit(fx->conn, &item, 1, &ticket, &fx->error));
        assert_status(fx->api->get_important(fx->conn, &next, 1, &fx->error), SPEC_E_BUSY);
        assert_status(fx->api->get_important_submit(fx->conn, &next, 1, &other, &fx->error),
                      SPEC_E_BUSY);
        assert_status(fx->api->begin_layer(fx->conn, &found.request, 1, layer, &fx->error),
                      SPEC_E_BUSY);
        assert_status(fx->api->prefetch_next(fx->conn, found.request, layer, NULL, &fx->error),
                      SPEC_E_BUSY);
        assert_int_equal(other, 77);
        assert_ok(fx, fixture_put(fx, found.request, &prompt, rows, 500 - rows, layer, &stored));
        assert_ok(fx, report(fx, ticket));
        area_expect(&area, &fx->shape, &prompt, 0, rows, layer);
        assert_ok(fx, fx->api->prefetch_next(fx->conn, found.request, layer, NULL, &fx->error));
        area_free(&area);
    }
    bool is_stored = fixture_wait(fx, stored) == SPEC_OK;
    fixture_release(fx, found.request);
    fixture_check(fx, &prompt, is_stored ? 499 : rows);
    prompt_free(&start);
    prompt_free(&prompt);
}

static void abi_162_a_released_request_is_stale_and_its_wait_still_due(void **state)
{
    struct fixture *fx = *state;
    for (uint32_t round = 0; round < 20; round++) {
        struct batch batch;
        batch_make(fx, &batch, 1950, BATCH);
        spec_ticket ticket = submit(fx, &batch);
        fixture_release(fx, batch.found[0].request);
        struct spec_important item = batch.items[0];
        assert_status(fx->api->get_important(fx->conn, &item, 1, &fx->error), SPEC_E_STALE);
        assert_status(fx->api->release(fx->conn, batch.found[0].request, &fx->error), SPEC_E_STALE);
        spec_status status = report(fx, ticket);
        assert_true(status == SPEC_OK || status == SPEC_E_STALE);
        for (uint64_t i = 0; i < BATCH; i++) {
            assert_true(batch.items[i].status == SPEC_OK ||
                        (i % 2 == 0 && batch.items[i].status == SPEC_E_STALE));
            if (batch.items[i].status == SPEC_OK)
                area_expect(&batch.areas[i], &fx->shape, &batch.prompts[i % 2], 0,
                            batch.found[i % 2].matched_tokens, batch.items[i].layer);
        }
        fixture_release(fx, batch.found[1].request);
        batch_free(fx, &batch, true);
    }
    assert_int_equal(fixture_stats(fx).requests_open, 0);
}

/* A failure says what it was instead. */
static void assert_ok_or_stale(const struct fixture *fx, spec_status status)
{
    if (status != SPEC_OK && status != SPEC_E_STALE)
        fail_msg("status %d, neither OK nor STALE: %s", (int)status, fx->error.text);
}

static void abi_162_what_a_reset_outruns_is_stale(void **state)
{
    struct fixture *fx = *state;
    for (uint32_t round = 0; round < 10; round++) {
        struct batch batch;
        batch_make(fx, &batch, 1960, BATCH);
        spec_ticket ticket = submit(fx, &batch);
        assert_ok(fx, fx->api->reset(fx->conn, &fx->error));
        assert_ok_or_stale(fx, report(fx, ticket));
        for (uint64_t i = 0; i < BATCH; i++)
            assert_ok_or_stale(fx, batch.items[i].status);
        assert_status(report(fx, ticket), SPEC_E_INVALID);
        batch_free(fx, &batch, false);
    }
}

static void abi_162_close_needs_no_wait_and_writes_nothing_after(void **state)
{
    struct fixture *fx = *state;
    for (uint32_t round = 0; round < 10; round++) {
        static struct batch batch;
        static uint8_t *copies[BATCH];
        batch_make(fx, &batch, 1970 + 2 * round, BATCH);
        (void)submit(fx, &batch);
        if (round % 2 == 0) {
            fixture_release(fx, batch.found[0].request);
            fixture_release(fx, batch.found[1].request);
        }
        fixture_close(fx);
        for (uint64_t i = 0; i < BATCH; i++) {
            copies[i] = malloc(batch.areas[i].byte_count);
            assert_non_null(copies[i]);
            memcpy(copies[i], batch.areas[i].bytes, batch.areas[i].byte_count);
        }
        fixture_open(fx); /* takes longer than a read that was late */
        for (uint64_t i = 0; i < BATCH; i++) {
            assert_memory_equal(copies[i], batch.areas[i].bytes, batch.areas[i].byte_count);
            free(copies[i]);
        }
        for (uint64_t i = 0; i < 2; i++)
            fixture_check(fx, &batch.prompts[i], batch.found[i].matched_tokens);
        batch_free(fx, &batch, true);
    }
}

const struct conf_test CONF_HALVES[] = {
    OPENED(abi_133_the_halves_deliver_what_get_important_does),
    OPENED(abi_133_submit_refuses_what_get_important_refuses),
    OPENED(abi_160_a_ticket_is_reported_once_by_its_own_wait),
    OPENED(abi_161_loads_of_a_submitted_request_are_busy_and_its_stores_are_not),
    OPENED(abi_162_a_released_request_is_stale_and_its_wait_still_due),
    OPENED(abi_162_what_a_reset_outruns_is_stale),
    OPENED(abi_162_close_needs_no_wait_and_writes_nothing_after),
    END,
};
