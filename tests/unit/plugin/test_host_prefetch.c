/* stage: a match comes into host memory, layer by layer, while lookup says PENDING; what ends it,
 * and what is left then.
 *
 * Threads: the fixture's. On the simulated disk nothing happens but in waits. */
#include "store/internal.h"
#include "tests/unit/plugin/plugin_fixture.h"

#define COUNT  200u
#define LAYERS 4u
#define MS     UINT64_C(1000000)

static const char *const EXTRA[] = {
    "\"host_bytes\": \"64MiB\"",
    "\"host_bytes\": \"64MiB\", \"host_policy\": \"lru\", \"store\": {\"layout\": \"split\"}",
    "\"host_bytes\": \"64MiB\", \"chunk_tokens\": 16, \"host_policy\": \"lfu\"",
};
#define WAYS (sizeof(EXTRA) / sizeof(EXTRA[0]))

static void open_with(struct rig *rig, bool is_sim, const char *extra)
{
    rig_begin_shape(rig, is_sim, extra, LAYERS, 3, 10, SPEC_DTYPE_F16);
}

static spec_status poll_one(struct rig *rig, spec_ticket ticket)
{
    spec_status status;
    assert_int_equal(sc_plugin_poll(rig->conn, &ticket, 1, &status, NULL), SPEC_OK);
    return status;
}

static uint32_t state_of(struct rig *rig, const struct prompt *prompt, uint64_t from_token)
{
    struct spec_lookup_result result = rig_peeked(rig, prompt, from_token);
    assert_int_equal(result.request, 0);
    if (result.state == SPEC_LOOKUP_PENDING)
        assert_int_equal(result.matched_tokens, from_token);
    return result.state;
}

static void all_is_there_when_the_ticket_says_so(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 2 * WAYS; i++) {
        struct rig rig;
        struct prompt prompt = rig_prompt(5, 0, 0, COUNT);
        spec_status status;
        open_with(&rig, i < WAYS, EXTRA[i % WAYS]);
        assert_int_equal(rig_fill(&rig, &prompt), SPEC_OK);
        struct spec_lookup_result found = rig_lookup(&rig, &prompt);
        assert_int_equal(found.tier_bytes[SPEC_TIER_HOST], 0);
        spec_ticket ticket = rig_stage(&rig, found.request, 0);
        if (rig.is_sim) {
            struct spec_lookup_result pending;
            assert_int_equal(poll_one(&rig, ticket), SPEC_PENDING);
            assert_int_equal(state_of(&rig, &prompt, 0), SPEC_LOOKUP_PENDING);
            assert_int_equal(state_of(&rig, &prompt, 70), SPEC_LOOKUP_PENDING);
            assert_int_equal(rig_try_lookup(&rig, &prompt, 0, RIG_MAX, &pending), SPEC_OK);
            assert_int_equal(pending.state, SPEC_LOOKUP_PENDING);
            assert_int_equal(pending.request, 0);
        }
        assert_int_equal(rig_wait(&rig, ticket), SPEC_OK);
        struct spec_lookup_result again = rig_lookup(&rig, &prompt);
        assert_int_equal(again.state, SPEC_LOOKUP_HIT);
        assert_int_equal(again.tier_bytes[SPEC_TIER_DISK], 0);
        uint64_t before = rig_store_stats(&rig).read_bytes;
        assert_int_equal(rig_read(&rig, &prompt, &status), COUNT);
        assert_int_equal(rig_store_stats(&rig).read_bytes, before);
        assert_int_equal(rig_store_stats(&rig).host_bytes_kept, 0); /* all of it was used */
        rig_release(&rig, again.request);
        rig_release(&rig, found.request);
        rig_end(&rig, &prompt);
    }
}

/* Matches that end inside a piece, begin inside one, or of which some is there already. */
static void parts_are_staged_as_whole_pieces(void **state)
{
    (void)state;
    struct rig rig;
    struct prompt first = rig_prompt(5, 128, 0, 128), longer = rig_prompt(5, 128, 9, COUNT);
    struct prompt other = rig_prompt(5, 100, 7, 150);
    spec_status status;
    open_with(&rig, true, EXTRA[0]);
    assert_int_equal(rig_fill(&rig, &first), SPEC_OK);
    assert_int_equal(rig_fill(&rig, &longer), SPEC_OK);
    assert_int_equal(rig_read(&rig, &first, &status), 128);
    struct spec_lookup_result found = rig_lookup_from(&rig, &other, 10);
    assert_int_equal(found.matched_tokens, 100);
    uint64_t before = rig_store_stats(&rig).read_bytes;
    assert_int_equal(rig_wait(&rig, rig_stage(&rig, found.request, 0)), SPEC_OK);
    assert_int_equal(rig_store_stats(&rig).read_bytes, before); /* it was there */
    rig_release(&rig, found.request);
    rig_reopen(&rig);
    assert_int_equal(rig_try_lookup(&rig, &other, 10, RIG_MAX, &found), SPEC_OK);
    assert_int_equal(rig_wait(&rig, rig_stage(&rig, found.request, 0)), SPEC_OK);
    before = rig_store_stats(&rig).read_bytes;
    assert_int_equal(rig_load(&rig, found.request, &other, 10, 100, 2), SPEC_OK);
    assert_int_equal(rig_store_stats(&rig).read_bytes, before);
    rig_release(&rig, found.request);
    rig_end(&rig, &first, &longer, &other);
}

/* Only what is part of the match, or goes on from it, waits. */
static void others_do_not_wait(void **state)
{
    (void)state;
    struct rig rig;
    struct prompt one = rig_prompt(5, 64, 0, COUNT), two = rig_prompt(5, 64, 9, COUNT);
    struct prompt begin = rig_prompt(5, 64, 0, 60), else_ = rig_prompt(77, 0, 0, COUNT);
    struct prompt more = rig_prompt(5, 64, 0, COUNT + 50);
    open_with(&rig, true, EXTRA[0]);
    assert_int_equal(rig_fill(&rig, &one), SPEC_OK);
    assert_int_equal(rig_fill(&rig, &two), SPEC_OK);
    assert_int_equal(rig_fill(&rig, &else_), SPEC_OK);
    struct spec_lookup_result found = rig_lookup(&rig, &one);
    spec_ticket ticket = rig_stage(&rig, found.request, 0);
    assert_int_equal(state_of(&rig, &one, 0), SPEC_LOOKUP_PENDING);
    assert_int_equal(state_of(&rig, &begin, 0), SPEC_LOOKUP_PENDING);
    assert_int_equal(state_of(&rig, &two, 0), SPEC_LOOKUP_HIT); /* parts that differ follow */
    assert_int_equal(state_of(&rig, &else_, 0), SPEC_LOOKUP_HIT);
    struct spec_lookup_result miss = rig_peeked(&rig, &one, COUNT);
    assert_int_equal(miss.state, SPEC_LOOKUP_MISS);
    struct sc_plugin_request *request = sc_plugin_request_find(rig.conn, found.request);
    assert_non_null(request);
    assert_int_equal(rig_wait(&rig, ticket), SPEC_OK);
    assert_int_equal(rig_fill(&rig, &more), SPEC_OK);
    assert_int_equal(state_of(&rig, &one, 0), SPEC_LOOKUP_HIT);
    rig_release(&rig, found.request);
    /* What goes on from a staged match waits for it: it is its beginning. */
    rig_reopen(&rig);
    found = rig_lookup(&rig, &one);
    ticket = rig_stage(&rig, found.request, 0);
    assert_int_equal(state_of(&rig, &more, 0), SPEC_LOOKUP_PENDING);
    assert_int_equal(rig_wait(&rig, ticket), SPEC_OK);
    assert_int_equal(state_of(&rig, &more, 0), SPEC_LOOKUP_HIT);
    rig_release(&rig, found.request);
    rig_end(&rig, &one, &two, &begin, &else_, &more);
}

/* The front layers, and of one more the first rows, as far as three quarters of the memory go. */
static void what_does_not_fit_is_cut_behind(void **state)
{
    (void)state;
    struct rig rig;
    struct prompt prompt = rig_prompt(5, 0, 0, 320);
    spec_status status;
    open_with(&rig, true, "\"host_bytes\": \"160KiB\", \"chunk_tokens\": 32");
    assert_int_equal(rig_fill(&rig, &prompt), SPEC_OK);
    struct spec_lookup_result found = rig_lookup(&rig, &prompt);
    spec_ticket ticket = rig_stage(&rig, found.request, 0);
    assert_int_equal(rig_wait(&rig, ticket), SPEC_E_NO_SPACE);
    struct sc_store_stats stats = rig_store_stats(&rig);
    assert_in_range(stats.host_bytes_used, 1, stats.host_bytes_max);
    assert_in_range(stats.host_bytes_kept, 100u << 10, 120u << 10);
    struct sc_plugin_request *request = sc_plugin_request_find(rig.conn, found.request);
    uint32_t most = LAYERS, least = LAYERS, layers = 0;
    for (uint64_t r = 0; r < request->range_count; r++) {
        layers = sc_store_piece_host_layers(rig.conn->store, request->ranges[r].piece, NULL);
        assert_in_range(layers, 0, most); /* it falls along the rows, by one */
        most = layers;
        least = r == 0 ? layers : least;
    }
    assert_in_range(least - layers, 0, 1);
    assert_in_range(least, 1, LAYERS - 1);
    assert_int_equal(rig_read(&rig, &prompt, &status), 320);
    rig_release(&rig, found.request);
    rig_end(&rig, &prompt);
}

/* What was brought is not evicted by what others load before it is used; but not for ever. */
static void what_was_brought_stays_for_a_while(void **state)
{
    (void)state;
    struct rig rig;
    struct prompt prompt = rig_prompt(5, 0, 0, 96), others[6];
    spec_status status;
    open_with(&rig, true,
              "\"host_bytes\": \"128KiB\", \"chunk_tokens\": 32, \"host_policy\": \"lru\"");
    assert_int_equal(rig_fill(&rig, &prompt), SPEC_OK);
    for (uint64_t i = 0; i < 6; i++) {
        others[i] = rig_prompt(70 + i, 0, 0, 96);
        assert_int_equal(rig_fill(&rig, &others[i]), SPEC_OK);
    }
    for (uint32_t late = 0; late < 2; late++) {
        struct spec_lookup_result found = rig_lookup(&rig, &prompt);
        assert_int_equal(rig_wait(&rig, rig_stage(&rig, found.request, 0)), SPEC_OK);
        rig_release(&rig, found.request);
        rig_pass_ns(&rig, late ? 11000 * MS : 9000 * MS);
        for (uint64_t i = 0; i < 6; i++)
            assert_int_equal(rig_read(&rig, &others[i], &status), 96);
        assert_true(rig_store_stats(&rig).host_evictions > 0);
        found = rig_lookup(&rig, &prompt);
        if (late)
            assert_int_equal(found.tier_bytes[SPEC_TIER_HOST], 0);
        else
            assert_int_equal(found.tier_bytes[SPEC_TIER_DISK], 0);
        rig_release(&rig, found.request);
        assert_int_equal(rig_read(&rig, &prompt, &status), 96);
    }
    rig_prompts_free_all(others, 6);
    rig_end(&rig, &prompt);
}

/* ---- What ends it ---------------------------------------------------------------------------- */

static void a_deadline_ends_it(void **state)
{
    (void)state;
    struct rig rig;
    struct prompt prompt = rig_prompt(5, 0, 0, COUNT);
    spec_status status;
    open_with(&rig, true, EXTRA[0]);
    assert_int_equal(rig_fill(&rig, &prompt), SPEC_OK);
    sc_io_sim_fault_scope(rig.disk, "/seg-");
    sc_io_sim_fault_ppm(rig.disk, SC_SIM_LATE, 1000000);
    sc_io_sim_fault_late_ns(rig.disk, 200 * MS);
    struct spec_lookup_result found = rig_lookup(&rig, &prompt);
    spec_ticket ticket = rig_stage(&rig, found.request, 100 * MS);
    rig_pass_ns(&rig, 99 * MS);
    assert_int_equal(state_of(&rig, &prompt, 0), SPEC_LOOKUP_PENDING);
    rig_pass_ns(&rig, 1 * MS);
    assert_int_equal(state_of(&rig, &prompt, 0), SPEC_LOOKUP_HIT);
    assert_int_equal(rig_wait(&rig, ticket), SPEC_E_TIMEOUT);
    sc_io_sim_fault_ppm(rig.disk, SC_SIM_LATE, 0);
    assert_int_equal(rig_read(&rig, &prompt, &status), COUNT);
    ticket =
        rig_stage(&rig, found.request, 1000 * MS); /* the store may not have let go: it waits */
    assert_int_equal(rig_wait(&rig, ticket), SPEC_OK);
    rig_release(&rig, found.request);
    rig_end(&rig, &prompt);
}

static void release_and_reset_end_it(void **state)
{
    (void)state;
    for (uint32_t how = 0; how < 6; how++) {
        struct rig rig;
        struct prompt prompt = rig_prompt(5, 0, 0, COUNT);
        spec_status status;
        open_with(&rig, true, EXTRA[how % WAYS]);
        assert_int_equal(rig_fill(&rig, &prompt), SPEC_OK);
        struct spec_lookup_result found = rig_lookup(&rig, &prompt);
        struct spec_lookup_result second = rig_lookup(&rig, &prompt);
        spec_ticket ticket = rig_stage(&rig, found.request, 0),
                    waits = rig_stage(&rig, second.request, 0);
        for (uint32_t i = 0; i < how / 2; i++)
            (void)sc_exec_step_one(rig.conn->exec); /* somewhere on its way */
        if (how % 2 == 0) {
            rig_release(&rig, found.request);
            rig_release(&rig, second.request);
        } else {
            assert_int_equal(sc_plugin_reset(rig.conn, NULL), SPEC_OK);
        }
        assert_int_equal(rig_wait(&rig, ticket), SPEC_E_DROPPED);
        assert_int_equal(rig_wait(&rig, waits), SPEC_E_DROPPED);
        assert_int_not_equal(state_of(&rig, &prompt, 0), SPEC_LOOKUP_PENDING);
        if (how % 2 == 1) {
            assert_int_equal(rig_try_stage(&rig, found.request, 0, &ticket), SPEC_E_STALE);
            rig_release(&rig, found.request);
            rig_release(&rig, second.request);
            rig_background(&rig);
            assert_int_equal(rig_fill(&rig, &prompt), SPEC_OK);
        }
        assert_int_equal(rig_read(&rig, &prompt, &status), COUNT);
        rig_background(&rig);
        assert_int_equal(rig_store_stats(&rig).host_bytes_kept, 0);
        rig_end(&rig, &prompt);
    }
}

/* A connector that is closed meanwhile leaves nothing: rig_done looks. */
static void close_ends_it(void **state)
{
    (void)state;
    for (uint32_t steps = 0; steps < 12; steps++) {
        struct rig rig;
        struct prompt prompt = rig_prompt(5, 0, 0, COUNT);
        open_with(&rig, steps % 3 != 2, EXTRA[steps % WAYS]);
        assert_int_equal(rig_fill(&rig, &prompt), SPEC_OK);
        for (uint32_t i = 0; i < 3; i++) {
            struct spec_lookup_result found = rig_lookup(&rig, &prompt);
            if (found.request != 0)
                (void)rig_stage(&rig, found.request, i * 1000 * MS);
        }
        for (uint32_t i = 0; rig.is_sim && i < steps; i++)
            (void)sc_exec_step_one(rig.conn->exec);
        rig_end(&rig, &prompt);
    }
}

/* Every read in turn fails, or returns a flipped bit: the match is shorter, or all of it is right.
 */
static void what_fails_is_never_served(void **state)
{
    (void)state;
    for (uint64_t n = 0; n < 24; n++) {
        struct rig rig;
        struct prompt prompt = rig_prompt(5, 0, 0, COUNT);
        enum sc_io_sim_fault fault = n % 2 == 0 ? SC_SIM_READ_EIO : SC_SIM_FLIP;
        spec_status status, ended;
        open_with(&rig, true, EXTRA[n % WAYS]);
        assert_int_equal(rig_fill(&rig, &prompt), SPEC_OK);
        struct spec_lookup_result found = rig_lookup(&rig, &prompt);
        sc_io_sim_fault_scope(rig.disk, "/seg-");
        sc_io_sim_fault_nth(rig.disk, fault, n / 2);
        ended = rig_wait(&rig, rig_stage(&rig, found.request, 0));
        bool fired = sc_io_sim_fault_fired(rig.disk, fault) > 0;
        sc_io_sim_fault_nth(rig.disk, fault, UINT64_MAX);
        if (ended != SPEC_OK)
            assert_int_equal(ended, n % 2 == 0 ? SPEC_E_IO : SPEC_E_CORRUPT);
        assert_true(ended == SPEC_OK || fired);
        rig_release(&rig, found.request);
        uint64_t matched = rig_read(&rig, &prompt, &status);
        assert_true(ended == SPEC_OK ? matched == COUNT : matched < COUNT);
        assert_int_equal(rig_fill(&rig, &prompt), SPEC_OK);
        assert_int_equal(rig_read(&rig, &prompt, &status), COUNT);
        rig_end(&rig, &prompt);
    }
}

/* ---- The call -------------------------------------------------------------------------------- */

static void the_call_says_what_is_wrong(void **state)
{
    (void)state;
    struct rig rig;
    struct prompt prompt = rig_prompt(5, 0, 0, COUNT);
    spec_ticket ticket = 77;
    open_with(&rig, true, "\"host_bytes\": 4095");
    assert_int_equal(rig_fill(&rig, &prompt), SPEC_OK);
    struct spec_lookup_result found = rig_lookup(&rig, &prompt);
    assert_int_equal(rig_try_stage(&rig, found.request, 0, &ticket), SPEC_E_UNSUPPORTED);
    assert_non_null(strstr(rig.error.text, "host_bytes"));
    assert_int_equal(ticket, 77);
    rig_release(&rig, found.request);
    rig.extra = EXTRA[0];
    rig_reopen(&rig);
    struct spec_prefetch_to_host_params params = {
        .struct_size = sizeof(params), .reserved = 1, .request = found.request};
    assert_int_equal(sc_plugin_host_prefetch(rig.conn, &params, &ticket, NULL), SPEC_E_INVALID);
    assert_int_equal(sc_plugin_host_prefetch(rig.conn, NULL, &ticket, NULL), SPEC_E_INVALID);
    found = rig_lookup(&rig, &prompt);
    assert_int_equal(rig_try_stage(&rig, found.request + (1ull << 32), 0, &ticket), SPEC_E_STALE);
    assert_int_equal(ticket, 77);
    assert_int_equal(rig_try_stage(&rig, found.request, 0, NULL), SPEC_OK); /* nobody asks */
    assert_int_equal(rig_try_stage(&rig, found.request, 0, &ticket), SPEC_E_BUSY);
    rig_background(&rig);
    rig_release(&rig, found.request);
    struct prompt nowhere = rig_prompt(99, 0, 0, COUNT);
    found = rig_lookup(&rig, &nowhere);
    ticket = rig_stage(&rig, found.request, 0);
    assert_int_equal(poll_one(&rig, ticket), SPEC_OK); /* all of nothing */
    rig_release(&rig, found.request);
    rig_end(&rig, &nowhere, &prompt);
}

/* More than run at one time: the earliest deadline first; one too many is BUSY. */
static void many_take_their_turns(void **state)
{
    (void)state;
    struct rig rig;
    struct prompt prompts[17];
    struct spec_lookup_result found[17];
    spec_ticket tickets[17];
    open_with(&rig, true, "\"host_bytes\": \"64MiB\", \"max_requests\": 20");
    for (uint64_t i = 0; i < 17; i++) {
        prompts[i] = rig_prompt(100 + i, 0, 0, 70);
        assert_int_equal(rig_fill(&rig, &prompts[i]), SPEC_OK);
        found[i] = rig_lookup(&rig, &prompts[i]);
    }
    for (uint64_t i = 0; i < 16; i++)
        tickets[i] = rig_stage(&rig, found[i].request, i == 15 ? 500 * MS : i == 14 ? 0 : 900 * MS);
    assert_int_equal(rig_try_stage(&rig, found[16].request, 0, &tickets[16]), SPEC_E_BUSY);
    assert_int_equal(rig_wait(&rig, tickets[15]), SPEC_OK);
    assert_int_equal(poll_one(&rig, tickets[13]), SPEC_PENDING);
    for (uint64_t i = 0; i < 15; i++)
        assert_int_equal(rig_wait(&rig, tickets[i]), SPEC_OK);
    tickets[16] = rig_stage(&rig, found[16].request, 0);
    assert_int_equal(rig_wait(&rig, tickets[16]), SPEC_OK);
    for (uint64_t i = 0; i < 17; i++) {
        rig_release(&rig, found[i].request);
        rig_prompt_free(&prompts[i]);
    }
    rig_done(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_is_there_when_the_ticket_says_so),
        cmocka_unit_test(parts_are_staged_as_whole_pieces),
        cmocka_unit_test(others_do_not_wait),
        cmocka_unit_test(what_does_not_fit_is_cut_behind),
        cmocka_unit_test(what_was_brought_stays_for_a_while),
        cmocka_unit_test(a_deadline_ends_it),
        cmocka_unit_test(release_and_reset_end_it),
        cmocka_unit_test(close_ends_it),
        cmocka_unit_test(what_fails_is_never_served),
        cmocka_unit_test(the_call_says_what_is_wrong),
        cmocka_unit_test(many_take_their_turns),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
