/* test_lease: leases, and peeks, which return them: ABI-029, 131, 136, 137, 177.
 *
 *   lookup -> 64 bytes, valid until a time -> attach, in this connector or another -> the same rows
 *
 * Rows read before a lease's end are right; after it they are right or refused. A test that is too
 * late for "before" tests "after". Threads, Tests: see fixture.h. */
#include "conformance/suite.h"

#include <string.h>
#include <time.h>
#include <unistd.h>

static uint64_t wall_ns(void)
{
    struct timespec now;
    assert_int_equal(clock_gettime(CLOCK_REALTIME, &now), 0);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void sleep_until(uint64_t wall)
{
    while (wall_ns() <= wall)
        usleep(2000);
}

static bool is_promise(const struct spec_lookup_result *found)
{
    static const uint8_t NONE[64];
    bool is = memcmp(found->lease, NONE, sizeof(NONE)) != 0;
    assert_int_equal(is, found->lease_expiry_ns != 0);
    if (conf_options.require_hits && found->matched_tokens > 0)
        assert_true(is);
    return is;
}

static struct spec_attach_params attach_params(const uint8_t lease[64], uint64_t from_token)
{
    return (struct spec_attach_params){.struct_size = sizeof(struct spec_attach_params),
                                       .lease = {lease, 64},
                                       .from_token = from_token};
}

/* Asks until the connector has followed far enough. */
static spec_status attach(struct fixture *fx, const uint8_t lease[64], uint64_t from_token,
                          struct spec_lookup_result *ret_found)
{
    struct spec_attach_params params = attach_params(lease, from_token);
    for (uint32_t tries = 0;;) {
        memset(ret_found, POISON, sizeof(*ret_found));
        ret_found->struct_size = sizeof(*ret_found);
        spec_status status = fx->api->attach(fx->conn, &params, ret_found, &fx->error);
        if (status != SPEC_OK || ret_found->state != SPEC_LOOKUP_PENDING)
            return status;
        assert_int_equal(ret_found->request, 0);
        assert_true(conf_wait(&tries));
    }
}

/* ---- 131 ---- */

static void check_attached(struct fixture *fx, const struct spec_lookup_result *leased,
                           const struct prompt *prompt, uint64_t from_token)
{
    struct spec_lookup_result found;
    assert_ok(fx, attach(fx, leased->lease, from_token, &found));
    assert_int_not_equal(found.request, 0);
    assert_int_equal(found.matched_tokens, leased->matched_tokens);
    assert_int_equal(found.stored_tokens, leased->matched_tokens);
    if (from_token < leased->matched_tokens)
        assert_int_equal(found.state, SPEC_LOOKUP_HIT);
    fixture_check_layers(fx, &found, prompt, from_token);
    fixture_release(fx, found.request);
}

static void abi_131_attach_gives_the_rows_that_were_promised(void **state)
{
    struct fixture *fx = *state;
    static const uint64_t ENDS[] = {1, 63, 64, 65, 150, 256, 299};
    struct prompt whole = prompt_make(1200, 300);
    struct fixture reader = fixture_beside(fx, SPEC_ROLE_READER);
    fixture_open(&reader);
    (void)fixture_store(fx, &whole);
    for (size_t i = 0; i < sizeof(ENDS) / sizeof(ENDS[0]); i++) {
        struct prompt prompt = prompt_diverge(&whole, ENDS[i], 300, 1 + i);
        struct spec_lookup_result leased = fixture_find(fx, &prompt);
        expect_match(&leased, ENDS[i]);
        if (is_promise(&leased)) {
            assert_true(leased.lease_expiry_ns > 0);
            fixture_release(fx, leased.request); /* the lease goes on without it */
            for (uint64_t from = 0; from <= leased.matched_tokens; from += 1 + ENDS[i] / 3) {
                check_attached(fx, &leased, &prompt, from);
                check_attached(&reader, &leased, &prompt, from);
            }
        } else {
            fixture_release(fx, leased.request);
        }
        prompt_free(&prompt);
    }
    fixture_close(&reader);
    prompt_free(&whole);
}

static void abi_131_a_lease_of_a_reader_is_good_in_the_writer(void **state)
{
    struct fixture *fx = *state;
    struct prompt prompt = prompt_make(1201, 200);
    struct fixture reader = fixture_beside(fx, SPEC_ROLE_READER);
    fixture_open(&reader);
    bool stored = fixture_store(fx, &prompt);
    struct spec_lookup_result leased = fixture_await(&reader, &prompt, stored ? 199 : 0);
    if (is_promise(&leased)) {
        check_attached(fx, &leased, &prompt, 0);
        check_attached(&reader, &leased, &prompt, 100);
    }
    fixture_release(&reader, leased.request);
    fixture_close(&reader);
    prompt_free(&prompt);
}

/* The attached request has no tokens: the host passes those that it stores. */
static void abi_131_what_follows_an_attached_match_can_be_stored(void **state)
{
    struct fixture *fx = *state;
    struct prompt whole = prompt_make(1202, 300), part = prompt_diverge(&whole, 200, 200, 1);
    (void)fixture_store(fx, &part);
    struct spec_lookup_params in = lookup_params(&part);
    in.max_tokens = 200;
    struct spec_lookup_result leased = fixture_lookup(fx, &in), found;
    bool promised = is_promise(&leased);
    fixture_release(fx, leased.request);
    if (promised) {
        uint64_t at = leased.matched_tokens;
        spec_ticket ticket = 0;
        assert_ok(fx, attach(fx, leased.lease, 0, &found));
        for (uint32_t layer = 0; layer < fx->shape.layers; layer++) {
            struct area area = area_make(&fx->shape, LAYOUT_PACKED, 300 - at);
            area_fill(&area, &fx->shape, &whole, at, layer);
            struct spec_store_params params = {.struct_size = sizeof(params),
                                               .request = found.request,
                                               .layer = layer,
                                               .first_token = at,
                                               .token_count = 300 - at,
                                               .memory = &area.memory,
                                               .tokens = layer == 0 ? whole.tokens + at : NULL,
                                               .tokens_count = layer == 0 ? 300 - at : 0};
            assert_ok(fx, fx->api->store(fx->conn, &params, 1, &ticket, &fx->error));
            area_free(&area);
        }
        bool stored = fixture_wait(fx, ticket) == SPEC_OK;
        fixture_release(fx, found.request);
        fixture_check(fx, &whole, stored ? 299 : at);
        fixture_reopen(fx);
        fixture_check(fx, &whole, stored ? 299 : at);
    }
    prompt_free(&whole);
    prompt_free(&part);
}

static void abi_131_attach_checks_its_arguments(void **state)
{
    struct fixture *fx = *state;
    struct prompt prompt = prompt_make(1203, 200);
    (void)fixture_store(fx, &prompt);
    struct spec_lookup_result leased = fixture_find(fx, &prompt), found, poison;
    struct spec_attach_params params = attach_params(leased.lease, leased.matched_tokens + 1);
    memset(&found, POISON, sizeof(found));
    found.struct_size = sizeof(found);
    poison = found;
    assert_status(fx->api->attach(fx->conn, &params, &found, &fx->error), SPEC_E_INVALID);
    params = attach_params(leased.lease, 0);
    params.reserved = 1;
    assert_status(fx->api->attach(fx->conn, &params, &found, &fx->error), SPEC_E_INVALID);
    assert_status(fx->api->attach(fx->conn, NULL, &found, &fx->error), SPEC_E_INVALID);
    params.reserved = 0;
    assert_status(fx->api->attach(fx->conn, &params, NULL, &fx->error), SPEC_E_INVALID);
    assert_status(fx->api->attach(NULL, &params, &found, &fx->error), SPEC_E_INVALID);
    assert_memory_equal(&found, &poison, sizeof(found));
    fixture_release(fx, leased.request);
    assert_int_equal(fixture_stats(fx).requests_open, 0);
    prompt_free(&prompt);
}

/* ---- 177 ---- */

static struct spec_lookup_result peek(struct fixture *fx, struct spec_lookup_params in)
{
    struct spec_lookup_result found;
    memset(&found, POISON, sizeof(found));
    found.struct_size = sizeof(found);
    in.flags |= SPEC_LOOKUP_PEEK;
    assert_ok(fx, fx->api->lookup(fx->conn, &in, &found, &fx->error));
    assert_int_equal(found.request, 0);
    return found;
}

static void abi_177_a_peek_answers_as_a_lookup_and_makes_no_request(void **state)
{
    struct fixture *fx = *state;
    struct prompt whole = prompt_make(1230, 300), start = prompt_diverge(&whole, 200, 200, 1);
    (void)fixture_store(fx, &start);
    for (uint64_t from = 0; from <= 300; from += 50)
        for (uint32_t flags = 0; flags <= SPEC_LOOKUP_REQUIRE_EXACT; flags++) {
            struct spec_lookup_params in = lookup_params(&whole);
            in.from_token = from;
            in.flags = flags;
            in.multiple_of = from == 50 ? 64 : 0;
            struct spec_lookup_result told = fixture_lookup(fx, &in);
            fixture_release(fx, told.request);
            struct spec_stats before = fixture_stats(fx);
            struct spec_lookup_result found = peek(fx, in);
            struct spec_stats after = fixture_stats(fx);
            assert_int_equal(found.state, told.state);
            assert_int_equal(found.matched_tokens, told.matched_tokens);
            assert_int_equal(found.stored_tokens, told.stored_tokens);
            assert_memory_equal(&found.provenance, &told.provenance, sizeof(told.provenance));
            assert_memory_equal(found.tier_bytes, told.tier_bytes, sizeof(told.tier_bytes));
            if (found.state == SPEC_LOOKUP_HIT)
                assert_int_equal(is_promise(&found), is_promise(&told));
            else
                assert_int_equal(found.lease_expiry_ns, 0);
            assert_int_equal(after.requests_open, 0);
            assert_int_equal(after.lookups, before.lookups + 1);
            assert_int_equal(after.lookup_hits - before.lookup_hits,
                             found.state == SPEC_LOOKUP_HIT);
            assert_int_equal(after.read_ops, before.read_ops);
        }
    prompt_free(&whole);
    prompt_free(&start);
}

/* A scheduler that peeks at all that waits, and releases nothing; a worker that loads some of it.
 */
static void abi_177_peeks_of_a_scheduler_are_attached_by_the_worker(void **state)
{
    struct fixture *fx = *state;
    fixture_reconfigure(fx, "\"disk_bytes\": \"64MiB\", \"staging_bytes\": \"32MiB\", "
                            "\"max_requests\": 4, \"max_request_tokens\": 4096");
    struct prompt whole = prompt_make(1231, 300);
    struct fixture scheduler = fixture_beside(fx, SPEC_ROLE_READER);
    spec_request open[4];
    fixture_open(&scheduler);
    bool stored = fixture_store(fx, &whole);
    for (uint32_t i = 0; i < 4; i++) /* all that it may have */
        open[i] = fixture_await(&scheduler, &whole, stored ? 299 : 0).request;
    for (uint64_t i = 0; i < 1000; i++) {
        struct prompt prompt = prompt_diverge(&whole, 1 + i % 299, 300, 1 + i);
        struct spec_lookup_params in = lookup_params(&prompt);
        struct spec_lookup_result leased = peek(&scheduler, in), found;
        expect_match(&leased, stored ? 1 + i % 299 : 0);
        if (i % 50 == 0 && is_promise(&leased)) {
            uint64_t from = i % 100 == 0 ? 0 : leased.matched_tokens / 2;
            check_attached(fx, &leased, &prompt, from);
            assert_status(attach(&scheduler, leased.lease, 0, &found), SPEC_E_BUSY);
        }
        prompt_free(&prompt);
    }
    assert_int_equal(fixture_stats(&scheduler).requests_open, 4);
    for (uint32_t i = 0; i < 4; i++)
        fixture_release(&scheduler, open[i]);
    struct spec_lookup_result leased = peek(&scheduler, lookup_params(&whole));
    if (is_promise(&leased)) /* in the connector that peeked */
        check_attached(&scheduler, &leased, &whole, 0);
    fixture_close(&scheduler);
    prompt_free(&whole);
}

/* ---- 136, 137 ---- */

static void abi_136_an_expired_lease_is_stale(void **state)
{
    struct fixture *fx = *state;
    fixture_reconfigure(fx, "\"disk_bytes\": \"64MiB\", \"staging_bytes\": \"32MiB\", "
                            "\"max_requests\": 16, \"max_request_tokens\": 8192, "
                            "\"lease_ns_max\": 50000000");
    struct prompt prompt = prompt_make(1210, 200);
    struct fixture reader = fixture_beside(fx, SPEC_ROLE_READER);
    fixture_open(&reader);
    bool stored = fixture_store(fx, &prompt);
    fixture_release(&reader, fixture_await(&reader, &prompt, stored ? 199 : 0).request);
    struct spec_lookup_result leased = fixture_find(fx, &prompt), found;
    assert_true(leased.lease_expiry_ns <= wall_ns() + 50000000);
    if (is_promise(&leased)) {
        sleep_until(leased.lease_expiry_ns);
        assert_status(attach(fx, leased.lease, 0, &found), SPEC_E_STALE);
        assert_status(attach(&reader, leased.lease, 0, &found), SPEC_E_STALE);
    }
    fixture_release(fx, leased.request);
    fixture_check(fx, &prompt, stored ? 199 : 0); /* the rows are there, the promise is not */
    fixture_close(&reader);
    prompt_free(&prompt);
}

static void expect_refused(struct fixture *fx, const uint8_t lease[64], bool may_be_stale)
{
    struct spec_lookup_result found;
    spec_status status = attach(fx, lease, 0, &found);
    if (status != SPEC_E_INVALID && !(may_be_stale && status == SPEC_E_STALE))
        fail_msg("attach of a lease that was never given: status %d", (int)status);
}

static void abi_137_an_altered_lease_is_never_taken(void **state)
{
    struct fixture *fx = *state;
    struct prompt prompt = prompt_make(1211, 200);
    struct fixture reader = fixture_beside(fx, SPEC_ROLE_READER);
    fixture_open(&reader);
    bool stored = fixture_store(fx, &prompt);
    fixture_release(&reader, fixture_await(&reader, &prompt, stored ? 199 : 0).request);
    struct spec_lookup_result leased = fixture_find(fx, &prompt);
    static const uint8_t BITS[] = {0x01, 0x80, 0xff};
    for (uint32_t i = 0; i < 64 && is_promise(&leased); i++)
        for (uint32_t j = 0; j < sizeof(BITS); j++) {
            uint8_t lease[64];
            memcpy(lease, leased.lease, sizeof(lease));
            lease[i] ^= BITS[j];
            expect_refused(fx, lease, true);
            expect_refused(&reader, lease, true);
        }
    uint8_t none[64] = {0}, full[64];
    memset(full, 0xff, sizeof(full));
    expect_refused(fx, none, false);
    expect_refused(fx, full, true);
    struct spec_lookup_result found = {.struct_size = sizeof(found)};
    for (uint64_t bytes = 0; bytes < 64; bytes += 21) {
        struct spec_attach_params params = attach_params(leased.lease, 0);
        params.lease.byte_count = bytes;
        assert_status(fx->api->attach(fx->conn, &params, &found, &fx->error), SPEC_E_INVALID);
    }
    struct spec_attach_params params = attach_params(NULL, 0);
    assert_status(fx->api->attach(fx->conn, &params, &found, &fx->error), SPEC_E_INVALID);
    fixture_release(fx, leased.request);
    fixture_close(&reader);
    prompt_free(&prompt);
}

static void abi_137_a_lease_of_another_store_or_model_is_invalid(void **state)
{
    struct fixture *fx = *state;
    struct prompt prompt = prompt_make(1212, 200);
    (void)fixture_store(fx, &prompt);
    struct spec_lookup_result leased = fixture_find(fx, &prompt);
    bool promised = is_promise(&leased);
    struct fixture elsewhere = fixture_beside(fx, SPEC_ROLE_WRITER);
    (void)snprintf(elsewhere.store, sizeof(elsewhere.store), "%s/elsewhere", fx->dir);
    fixture_open(&elsewhere);
    (void)fixture_store(&elsewhere, &prompt); /* the same prompt, the same model */
    if (promised)
        expect_refused(&elsewhere, leased.lease, false);
    fixture_close(&elsewhere);
    struct fixture other = fixture_beside(fx, SPEC_ROLE_READER);
    other.model.weights_id = (struct spec_bytes){"other weights", 13};
    fixture_open(&other);
    if (promised)
        expect_refused(&other, leased.lease, false);
    fixture_close(&other);
    fixture_release(fx, leased.request);
    prompt_free(&prompt);
}

/* ---- 029 ---- */

#define LEASE_NS UINT64_C(2000000000)

/* Other prompts, and evictions, until the reader has heard that the prompt has gone: to ask the
 * writer would be a use of it. */
static void drive_out(struct fixture *fx, struct fixture *reader, const struct prompt *prompt,
                      uint64_t seed)
{
    struct spec_maintain_params params = {.struct_size = sizeof(params),
                                          .flags = SPEC_MAINTAIN_EVICT};
    uint32_t tries = 0;
    for (uint64_t i = 0;; i++) {
        struct prompt other = prompt_make(seed + i, 256);
        spec_ticket ticket = 0;
        struct spec_lookup_result found = fixture_find(fx, &other);
        for (uint32_t layer = 0; layer < fx->shape.layers; layer++)
            assert_ok(fx, fixture_put(fx, found.request, &other, 0, 256, layer, &ticket));
        (void)fixture_wait(fx, ticket);
        fixture_release(fx, found.request);
        assert_ok(fx, fx->api->maintain(fx->conn, &params, &fx->error));
        prompt_free(&other);
        found = fixture_find(reader, prompt);
        fixture_release(reader, found.request);
        if (found.matched_tokens == 0)
            return;
        if (!conf_wait(&tries) || (!conf_options.require_hits && tries == 400))
            break;
    }
    if (conf_options.require_hits)
        fail_msg("%u evictions did not reach it", (unsigned)tries);
}

/* Loads what a request or a lease promised. Right, always; a request's rows are refused only when
 * the lease has ended. attach may say STALE earlier: this process may have heard of the eviction.
 */
static void check_until(struct fixture *fx, const struct spec_lookup_result *leased,
                        const struct prompt *prompt)
{
    struct spec_lookup_result attached;
    spec_status status = attach(fx, leased->lease, 0, &attached);
    uint64_t good = fixture_load_until_broken(fx, prompt, leased);
    uint64_t attached_good = leased->matched_tokens;
    if (status == SPEC_OK) {
        attached_good = fixture_load_until_broken(fx, prompt, &attached);
        fixture_release(fx, attached.request);
    } else {
        assert_int_equal(status, SPEC_E_STALE);
    }
    if (wall_ns() < leased->lease_expiry_ns) { /* it was good all the while */
        assert_int_equal(good, leased->matched_tokens);
        assert_int_equal(attached_good, leased->matched_tokens);
    }
}

static void abi_029_a_lease_outlives_eviction_until_it_ends(void **state)
{
    struct fixture *fx = *state;
    fixture_shape(fx, (struct shape){2, 4, 64, SPEC_DTYPE_F16});
    fixture_reconfigure(fx, "\"disk_bytes\": \"8MiB\", \"segment_bytes\": \"1MiB\", "
                            "\"staging_bytes\": \"16MiB\", \"max_requests\": 16, "
                            "\"max_request_tokens\": 4096, \"lease_ns_max\": 2000000000");
    struct fixture reader = fixture_beside(fx, SPEC_ROLE_READER);
    fixture_open(&reader);
    struct prompt prompt = prompt_make(1220, 256);
    bool stored = fixture_store(fx, &prompt);
    struct spec_lookup_result leased = fixture_await(&reader, &prompt, stored ? 255 : 0);
    assert_true(leased.lease_expiry_ns <= wall_ns() + LEASE_NS);
    drive_out(fx, &reader, &prompt, 1300);
    if (is_promise(&leased)) {
        check_until(&reader, &leased, &prompt);
        sleep_until(leased.lease_expiry_ns);
        for (uint64_t i = 0; i < 60; i++) { /* its place may be another's from here on */
            struct prompt other = prompt_make(UINT64_C(1000000) + i, 256);
            struct spec_lookup_result found = fixture_find(fx, &other);
            spec_ticket ticket = 0;
            for (uint32_t layer = 0; layer < fx->shape.layers; layer++)
                assert_ok(fx, fixture_put(fx, found.request, &other, 0, 256, layer, &ticket));
            (void)fixture_wait(fx, ticket);
            fixture_release(fx, found.request);
            prompt_free(&other);
        }
        check_until(&reader, &leased, &prompt);
    }
    fixture_release(&reader, leased.request);
    if (conf_options.require_hits)
        fixture_await_gone(&reader, &prompt, 0);
    fixture_close(&reader);
    prompt_free(&prompt);
}

const struct conf_test CONF_LEASE[] = {
    BARE(abi_029_a_lease_outlives_eviction_until_it_ends),
    OPENED(abi_131_attach_gives_the_rows_that_were_promised),
    OPENED(abi_131_a_lease_of_a_reader_is_good_in_the_writer),
    OPENED(abi_131_what_follows_an_attached_match_can_be_stored),
    OPENED(abi_131_attach_checks_its_arguments),
    OPENED(abi_177_a_peek_answers_as_a_lookup_and_makes_no_request),
    BARE(abi_177_peeks_of_a_scheduler_are_attached_by_the_worker),
    BARE(abi_136_an_expired_lease_is_stale),
    OPENED(abi_137_an_altered_lease_is_never_taken),
    OPENED(abi_137_a_lease_of_another_store_or_model_is_invalid),
    END,
};
