/* test_bypass: maintenance BYPASS: ABI-209.
 *
 *   stored, promised -> maintain BYPASS -> misses, DROPPED, STALE -> its end -> all as before
 *
 * Connectors that never find anything pass. Threads, Tests: see fixture.h. */
#include "conformance/suite.h"

#include <string.h>
#include <time.h>

#define HOST  "\"host_bytes\": \"64MiB\""
#define COUNT 301u
#define PART  128u /* of a prompt: what is stored in one pass */
#define LONG  6001u

static spec_status maintain(struct fixture *fx, uint32_t flags, uint64_t deadline_ns)
{
    struct spec_maintain_params params = {
        .struct_size = sizeof(params), .flags = flags, .deadline_ns = deadline_ns};
    return fx->api->maintain(fx->conn, &params, &fx->error);
}

static void bypass(struct fixture *fx, uint64_t deadline_ns)
{
    assert_ok(fx, maintain(fx, SPEC_MAINTAIN_BYPASS, deadline_ns));
}

static uint64_t now_ns(void)
{
    struct timespec now;
    assert_int_equal(clock_gettime(CLOCK_MONOTONIC, &now), 0);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* Nothing is promised, nor said to be stored; a request comes of it all the same. */
static void expect_nothing(const struct spec_lookup_result *found, uint64_t from_token)
{
    static const uint8_t NONE[64];
    assert_int_equal(found->state, SPEC_LOOKUP_MISS);
    assert_int_equal(found->matched_tokens, from_token);
    assert_int_equal(found->stored_tokens, 0);
    assert_int_equal(found->provenance.kind, SPEC_PROVENANCE_EXACT);
    assert_int_equal(found->load_ns, 0);
    assert_int_equal(found->lease_expiry_ns, 0);
    assert_memory_equal(found->lease, NONE, sizeof(NONE));
    for (uint32_t tier = 0; tier < SPEC_TIERS; tier++)
        assert_int_equal(found->tier_bytes[tier], 0);
}

/* As a lookup, as a peek, and of a host that has its beginning. */
static void expect_misses(struct fixture *fx, const struct prompt *prompt)
{
    static const struct {
        uint32_t flags;
        uint64_t from_token;
    } CASES[] = {{0, 0}, {SPEC_LOOKUP_PEEK, 0}, {0, 70}, {SPEC_LOOKUP_PEEK, 70}};
    for (uint32_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        struct spec_lookup_params in = lookup_params(prompt);
        struct spec_lookup_result found;
        memset(&found, POISON, sizeof(found));
        found.struct_size = sizeof(found);
        in.flags = CASES[i].flags;
        in.from_token = CASES[i].from_token;
        assert_ok(fx, fx->api->lookup(fx->conn, &in, &found, &fx->error));
        expect_nothing(&found, in.from_token);
        assert_int_equal(found.request == 0, (in.flags & SPEC_LOOKUP_PEEK) != 0);
        if (found.request != 0)
            fixture_release(fx, found.request);
    }
}

/* ---- Lookups -------------------------------------------------------------------------------- */

static void abi_209_nothing_is_promised_and_all_is_there_again(void **state)
{
    struct fixture *fx = *state;
    struct prompt prompt = prompt_make(2090, COUNT);
    bool stored = fixture_store(fx, &prompt);
    struct spec_lookup_result before = fixture_find(fx, &prompt);
    expect_match(&before, stored ? COUNT - 1 : 0);
    assert_int_equal(fixture_stats(fx).bypassing, 0);
    bypass(fx, 0);
    expect_misses(fx, &prompt);
    fixture_check_layers(fx, &before, &prompt, 0); /* it was promised this */
    struct spec_stats stats = fixture_stats(fx);
    assert_int_equal(stats.bypassing, 1);
    assert_int_equal(stats.bypassed_lookups, 4);
    bypass(fx, SPEC_BYPASS_END);
    assert_int_equal(fixture_stats(fx).bypassing, 0);
    fixture_check(fx, &prompt, before.matched_tokens);
    fixture_check_layers(fx, &before, &prompt, 0);
    fixture_release(fx, before.request);
    bypass(fx, SPEC_BYPASS_END); /* there is none: nothing happens */
    fixture_check(fx, &prompt, stored ? COUNT - 1 : 0);
    assert_int_equal(fixture_stats(fx).bypassed_lookups, 4);
    bypass(fx, 0);
    fixture_reopen(fx); /* it ends with the connector */
    fixture_check(fx, &prompt, stored ? COUNT - 1 : 0);
    prompt_free(&prompt);
}

/* Never before its deadline, however late the call is that looks; and soon after. */
static void abi_209_its_deadline_ends_it(void **state)
{
    struct fixture *fx = *state;
    struct prompt prompt = prompt_make(2091, COUNT);
    bool stored = fixture_store(fx, &prompt);
    uint64_t limit_ns = UINT64_C(150000000), begun_ns = now_ns();
    bypass(fx, 0);
    bypass(fx, limit_ns); /* the last one counts */
    for (uint32_t tries = 0;;) {
        bool is_on = fixture_stats(fx).bypassing != 0;
        struct spec_lookup_result found = fixture_find(fx, &prompt);
        fixture_release(fx, found.request);
        uint64_t took_ns = now_ns() - begun_ns;
        if (found.matched_tokens > 0 || !is_on)
            assert_true(took_ns >= limit_ns);
        if (!is_on)
            break;
        if (!conf_wait(&tries))
            fail_msg("there is a bypass long after its deadline");
    }
    fixture_check(fx, &prompt, stored ? COUNT - 1 : 0);
    bypass(fx, UINT64_MAX); /* longer than any clock goes */
    expect_misses(fx, &prompt);
    bypass(fx, SPEC_BYPASS_END);
    fixture_check(fx, &prompt, stored ? COUNT - 1 : 0);
    prompt_free(&prompt);
}

/* ---- Stores --------------------------------------------------------------------------------- */

/* All layers of the range from `layer` on; how the last one's ticket ended. */
static spec_status put_rest(struct fixture *fx, spec_request request, const struct prompt *prompt,
                            uint64_t first, uint64_t count, uint32_t layer)
{
    spec_ticket ticket = 0;
    for (; layer < fx->shape.layers; layer++)
        assert_ok(fx, fixture_put(fx, request, prompt, first, count, layer, &ticket));
    return fixture_wait(fx, ticket);
}

static void abi_209_passes_that_begin_meanwhile_are_dropped(void **state)
{
    struct fixture *fx = *state;
    struct prompt begun = prompt_make(2092, COUNT), late = prompt_make(2093, COUNT);
    struct spec_lookup_result first = fixture_find(fx, &begun), second = fixture_find(fx, &late);
    spec_ticket none;
    assert_ok(fx, fixture_put(fx, first.request, &begun, 0, COUNT, 0, &none));
    bypass(fx, 0);
    spec_status stored = put_rest(fx, first.request, &begun, 0, COUNT, 1);
    assert_true(stored == SPEC_OK || !conf_options.require_hits);
    struct spec_stats before = fixture_stats(fx);
    assert_status(put_rest(fx, second.request, &late, 0, PART, 0), SPEC_E_DROPPED);
    struct spec_stats after = fixture_stats(fx);
    assert_int_equal(after.stored_chunks, before.stored_chunks);
    assert_int_equal(after.stored_row_bytes, before.stored_row_bytes);
    assert_int_equal(after.dropped_chunks, before.dropped_chunks);
    if (conf_options.require_hits)
        assert_int_equal(after.bypassed_chunks - before.bypassed_chunks, 2);
    expect_misses(fx, &begun);
    bypass(fx, SPEC_BYPASS_END);
    /* What hangs on what was dropped is, too. */
    assert_status(put_rest(fx, second.request, &late, PART, COUNT - PART, 0), SPEC_E_DROPPED);
    fixture_release(fx, first.request);
    fixture_release(fx, second.request);
    fixture_check(fx, &begun, stored == SPEC_OK ? COUNT - 1 : 0);
    fixture_check(fx, &late, 0);
    bool again = fixture_store(fx, &late);
    fixture_check(fx, &late, again ? COUNT - 1 : 0);
    prompt_free(&begun);
    prompt_free(&late);
}

/* ---- What else is asked for meanwhile ------------------------------------------------------- */

static spec_status stage(struct fixture *fx, spec_request request, spec_ticket *ret_ticket)
{
    const struct spec_prefetch_to_host_params params = {.struct_size = sizeof(params),
                                                        .request = request};
    return fx->api->prefetch_to_host(fx->conn, &params, ret_ticket, &fx->error);
}

static void abi_209_stage_brings_nothing(void **state)
{
    struct fixture *fx = *state;
    struct prompt prompt = prompt_make(2094, LONG);
    fixture_reconfigure(fx, HOST);
    (void)fixture_store(fx, &prompt);
    fixture_reopen(fx); /* nothing of it is in memory */
    struct spec_lookup_result found = fixture_find(fx, &prompt);
    if (found.state != SPEC_LOOKUP_HIT || fixture_stats(fx).host_bytes_max == 0)
        conf_skip("nothing is found, or no host memory is there, to stage");
    spec_ticket ticket = 0;
    assert_ok(fx, stage(fx, found.request, &ticket));
    bypass(fx, 0);
    spec_status status = fixture_wait(fx, ticket);
    assert_true(status == SPEC_E_DROPPED || status == SPEC_OK); /* OK: it was there before */
    expect_misses(fx, &prompt);                                 /* and not PENDING */
    uint64_t host_prefetched_bytes = fixture_stats(fx).host_prefetched_bytes;
    spec_status staged = SPEC_E_BUSY; /* the store may not have let go of the first yet */
    for (uint32_t tries = 0; staged == SPEC_E_BUSY;) {
        staged = stage(fx, found.request, &ticket);
        assert_true(staged == SPEC_OK || (staged == SPEC_E_BUSY && conf_wait(&tries)));
    }
    assert_status(fixture_wait(fx, ticket), SPEC_E_DROPPED);
    assert_ok(fx, stage(fx, found.request, NULL));
    assert_int_equal(fixture_stats(fx).host_prefetches_open, 0);
    if (status == SPEC_OK)
        assert_int_equal(fixture_stats(fx).host_prefetched_bytes, host_prefetched_bytes);
    fixture_check_layer(fx, &found, &prompt, 0, 0);
    bypass(fx, SPEC_BYPASS_END);
    assert_ok(fx, stage(fx, found.request, &ticket));
    assert_status(fixture_wait(fx, ticket), SPEC_OK);
    fixture_release(fx, found.request);
    prompt_free(&prompt);
}

static spec_status attach(struct fixture *fx, const uint8_t lease[64],
                          struct spec_lookup_result *ret_found)
{
    const struct spec_attach_params params = {.struct_size = sizeof(params), .lease = {lease, 64}};
    *ret_found = (struct spec_lookup_result){.struct_size = sizeof(*ret_found)};
    return fx->api->attach(fx->conn, &params, ret_found, &fx->error);
}

static void abi_209_leases_are_stale_meanwhile(void **state)
{
    struct fixture *fx = *state;
    struct prompt prompt = prompt_make(2095, COUNT);
    (void)fixture_store(fx, &prompt);
    struct spec_lookup_result found = fixture_find(fx, &prompt), attached;
    fixture_release(fx, found.request);
    if (found.lease_expiry_ns == 0)
        conf_skip("there is no lease");
    bypass(fx, 0);
    assert_status(attach(fx, found.lease, &attached), SPEC_E_STALE);
    uint8_t altered[64];
    memcpy(altered, found.lease, sizeof(altered));
    altered[20] ^= 1;
    assert_status(attach(fx, altered, &attached), SPEC_E_INVALID); /* as ever */
    bypass(fx, SPEC_BYPASS_END);
    spec_status status = attach(fx, found.lease, &attached);
    assert_true(status == SPEC_OK || status == SPEC_E_STALE); /* its time may be over by now */
    if (status == SPEC_OK) {
        assert_int_equal(attached.matched_tokens, found.matched_tokens);
        fixture_check_layers(fx, &attached, &prompt, 0);
        fixture_release(fx, attached.request);
    }
    prompt_free(&prompt);
}

/* Other work that is asked for is done. */
static void abi_209_a_checkpoint_and_a_reset_act_meanwhile(void **state)
{
    struct fixture *fx = *state;
    struct prompt prompt = prompt_make(2096, COUNT);
    bool stored = fixture_store(fx, &prompt);
    uint64_t checkpoints = fixture_stats(fx).checkpoints, epoch = fixture_stats(fx).epoch;
    assert_ok(fx, maintain(fx, SPEC_MAINTAIN_BYPASS | SPEC_MAINTAIN_CHECKPOINT, 0));
    for (uint32_t tries = 0; fixture_stats(fx).checkpoints == checkpoints;)
        assert_true(conf_wait(&tries));
    expect_misses(fx, &prompt);
    bypass(fx, SPEC_BYPASS_END);
    fixture_check(fx, &prompt, stored ? COUNT - 1 : 0);
    bypass(fx, 0);
    assert_ok(fx, fx->api->reset(fx->conn, &fx->error));
    bypass(fx, SPEC_BYPASS_END);
    assert_int_equal(fixture_stats(fx).epoch, epoch + 1);
    expect_misses(fx, &prompt); /* a reset's, by now */
    prompt_free(&prompt);
}

/* ---- Other connectors ----------------------------------------------------------------------- */

static void abi_209_it_is_of_one_connector_alone(void **state)
{
    struct fixture *fx = *state;
    struct prompt prompt = prompt_make(2097, COUNT);
    uint64_t expected = fixture_store(fx, &prompt) ? COUNT - 1 : 0;
    struct fixture reader = fixture_beside(fx, SPEC_ROLE_READER);
    fixture_open(&reader);
    struct spec_lookup_result found = fixture_await(&reader, &prompt, expected);
    fixture_release(&reader, found.request);
    bypass(&reader, 0);
    expect_misses(&reader, &prompt);
    fixture_check(fx, &prompt, expected);
    assert_int_equal(fixture_stats(fx).bypassing, 0);
    bypass(&reader, SPEC_BYPASS_END);
    fixture_check(&reader, &prompt, expected);
    bypass(fx, 0);
    expect_misses(fx, &prompt);
    fixture_check(&reader, &prompt, expected);
    bypass(fx, SPEC_BYPASS_END);
    /* A reader may do nothing else. */
    assert_status(maintain(&reader, SPEC_MAINTAIN_BYPASS | SPEC_MAINTAIN_EVICT, 0),
                  SPEC_E_UNSUPPORTED);
    fixture_check(&reader, &prompt, expected);
    assert_status(maintain(fx, SPEC_MAINTAIN_BYPASS | 1u << 20, 0), SPEC_E_INVALID);
    fixture_check(fx, &prompt, expected);
    fixture_close(&reader);
    prompt_free(&prompt);
}

const struct conf_test CONF_BYPASS[] = {
    OPENED(abi_209_nothing_is_promised_and_all_is_there_again),
    OPENED(abi_209_its_deadline_ends_it),
    OPENED(abi_209_passes_that_begin_meanwhile_are_dropped),
    OPENED(abi_209_stage_brings_nothing),
    OPENED(abi_209_leases_are_stale_meanwhile),
    OPENED(abi_209_a_checkpoint_and_a_reset_act_meanwhile),
    OPENED(abi_209_it_is_of_one_connector_alone),
    END,
};
