/* Compute or load: which passes and loads are believed, what lookup promises then, and that what is
 * computed though it is stored is not stored again. On the simulated device and its clock, which
 * moves while the device is waited for or the test says that the host computes.
 *
 * Threads: one, but where a test makes some. */
#include "tests/unit/plugin/load_policy_rig.h"

static void all_is_promised_until_both_sides_are_known(void **state)
{
    (void)state;
    struct rig rig;
    begin(&rig, SPLIT);
    struct prompt prompt = plain(1, TOKENS), other = plain(2, TOKENS);
    serve(&rig, &prompt, TOKEN_NS);
    assert_int_equal(serve(&rig, &prompt, TOKEN_NS).matched, TOKENS - 1); /* the first load */
    assert_int_equal(serve(&rig, &prompt, TOKEN_NS).matched, TOKENS - 1);
    assert_int_equal(stats_of(&rig).compute_token_ps, 0);
    serve(&rig, &other, TOKEN_NS); /* the second pass that counts */
    assert_in_range(serve(&rig, &prompt, TOKEN_NS).matched, 1, TOKENS - 2);
    assert_true(stats_of(&rig).compute_token_ps > 0);
    rig_end(&rig, &prompt, &other);
}

/* Where both take as long half of the match is promised, each time the same. */
static void the_cut_is_where_both_sides_end_together(void **state)
{
    (void)state;
    struct rig rig;
    struct prompt prompt = begin_taught(&rig, SPLIT, TOKEN_NS);
    uint64_t n = 0;
    for (uint32_t i = 0; i < 12; i++) {
        struct served served = serve(&rig, &prompt, TOKEN_NS);
        assert_int_equal(served.stored, TOKENS);
        assert_in_range(served.matched, TOKENS * 4 / 10, TOKENS * 6 / 10);
        assert_int_equal(served.matched % 64, 0);
        assert_true(i == 0 || served.matched == n);
        assert_true(served.took_ns <= TOKENS * TOKEN_NS * 65 / 100);
        n = served.matched;
    }
    struct spec_stats stats = stats_of(&rig);
    assert_int_equal(stats.lookups_cut, 12);
    assert_int_equal(stats.tokens_cut, 12 * (TOKENS - 1 - n));
    assert_in_range(stats.compute_token_ps, TOKEN_NS * 900, TOKEN_NS * 1100);
    assert_in_range(stats.load_token_ps, TOKEN_NS * 900, TOKEN_NS * 1200);
    rig_end(&rig, &prompt);
}

static void the_faster_side_gets_all(void **state)
{
    (void)state;
    static const struct {
        uint64_t token_ns, least, most;
    } cases[] = {{TOKEN_NS * 100, TOKENS - 1, TOKENS - 1},
                 {TOKEN_NS / 50, 0, 64},
                 {TOKEN_NS * 3, TOKENS * 6 / 10, TOKENS * 8 / 10},
                 {TOKEN_NS / 3, TOKENS * 2 / 10, TOKENS * 3 / 10}};
    for (uint32_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct rig rig;
        struct prompt prompt = begin_taught(&rig, SPLIT, cases[i].token_ns);
        assert_in_range(serve(&rig, &prompt, cases[i].token_ns).matched, cases[i].least,
                        cases[i].most);
        rig_end(&rig, &prompt);
    }
}

/* Passes that say nothing of computing leave the first guess alone. */
static void passes_that_tell_nothing_do_not_count(void **state)
{
    (void)state;
    static const struct {
        uint64_t tokens;
        struct pass pass;
    } cases[] = {
        {TOKENS, {.layer_ns = 0}},      /* a host that computes nothing */
        {TOKENS, {.layer_ns = 100000}}, /* all in less than 2 ms */
        {127, {.layer_ns = 5000000}},   /* few tokens */
        {TOKENS, {.layer_ns = 5000000, .flags = SPEC_STORE_LATER}},
        {TOKENS, {.layer_ns = 5000000, .slow = 3, .slow_ns = 100000000}}, /* it was interrupted */
    };
    for (uint32_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct rig rig;
        begin(&rig, SPLIT);
        for (uint64_t j = 0; j < 4; j++) {
            struct prompt prompt = plain(10 + j, cases[i].tokens);
            struct spec_lookup_result found = find(&rig, &prompt);
            struct pass pass = cases[i].pass;
            pass.end = prompt.count;
            run(&rig, &found, &prompt, &pass);
            rig_release(&rig, found.request);
            rig_settle(&rig);
            assert_int_equal(read_all(&rig, &prompt), cases[i].tokens - 1);
            rig_prompt_free(&prompt);
        }
        assert_int_equal(stats_of(&rig).compute_token_ps, 0);
        rig_done(&rig);
    }
}

/* A pass that waits for its rows computes no slower than one that does not. */
static void waiting_for_rows_is_not_computing(void **state)
{
    (void)state;
    struct rig rig;
    begin(&rig,
          "\"load_policy\": \"split\", \"sim\": {\"bytes_per_s\": 10000000, \"op_ns\": 20000}");
    struct prompt first = plain(1, TOKENS), second = rig_prompt(1, TOKENS, 1, 2 * TOKENS);
    struct prompt third = plain(2, TOKENS);
    serve(&rig, &first, TOKEN_NS);
    assert_int_equal(serve(&rig, &second, TOKEN_NS).matched, TOKENS);
    assert_in_range(stats_of(&rig).compute_token_ps, TOKEN_NS * 950, TOKEN_NS * 1050);
    serve(&rig, &third, TOKEN_NS);
    assert_in_range(stats_of(&rig).compute_token_ps, TOKEN_NS * 950, TOKEN_NS * 1050);
    rig_end(&rig, &first, &second, &third);
}

static void a_prediction_stands_in_for_passes(void **state)
{
    (void)state;
    struct rig rig;
    begin(&rig, SPLIT ", \"compute\": {\"tokens_per_s\": 6000}"); /* 1e9 / TOKEN_NS */
    struct prompt prompt = plain(1, TOKENS);
    struct spec_lookup_result found = find(&rig, &prompt);
    assert_int_equal(rig_wait(&rig, rig_store(&rig, found.request, &prompt, 0, TOKENS)), SPEC_OK);
    rig_release(&rig, found.request);
    assert_int_equal(read_all(&rig, &prompt), TOKENS - 1); /* nothing of the device is known */
    assert_in_range(read_all(&rig, &prompt), TOKENS * 4 / 10, TOKENS * 6 / 10);
    rig_end(&rig, &prompt);
}

/* from_token, max_tokens, multiple_of, peeks, leases: all are of what is promised. */
static void limits_of_the_host_hold(void **state)
{
    (void)state;
    struct rig rig;
    struct prompt prompt = begin_taught(&rig, SPLIT, TOKEN_NS);
    struct spec_lookup_params params = rig_lookup_params(&prompt, 0, 0, SPEC_LOOKUP_PEEK);
    struct spec_lookup_result found = rig_lookup_as(&rig, &params);
    uint64_t n = found.matched_tokens;
    assert_in_range(n, 64, TOKENS - 64);
    assert_int_equal(found.stored_tokens, TOKENS);
    assert_int_equal(found.tier_bytes[SPEC_TIER_DISK], n * LAYERS * (ROW_BYTES + 8));
    struct spec_lookup_result held = {.struct_size = sizeof(held)};
    assert_int_equal(rig_attach(&rig, found.lease, 0, &held), SPEC_OK);
    assert_int_equal(held.matched_tokens, n);
    rig_release(&rig, held.request);
    params.multiple_of = 48;
    assert_int_equal(sc_plugin_lookup(rig.conn, &params, &found, NULL), SPEC_OK);
    assert_int_equal(found.matched_tokens % 48, 0);
    assert_in_range(found.matched_tokens, n - 48, n);
    params.multiple_of = 0;
    params.max_tokens = 100;
    assert_int_equal(sc_plugin_lookup(rig.conn, &params, &found, NULL), SPEC_OK);
    assert_int_equal(found.matched_tokens, 100);
    params.max_tokens = 0;
    params.from_token = n; /* the rest of the prompt is half as long */
    assert_int_equal(sc_plugin_lookup(rig.conn, &params, &found, NULL), SPEC_OK);
    assert_in_range(found.matched_tokens, n + (TOKENS - n) * 3 / 10, n + (TOKENS - n) * 7 / 10);
    rig_end(&rig, &prompt);
}

/* A device that was slow for a while is not given up for ever. */
static void a_device_that_recovers_is_used_again(void **state)
{
    (void)state;
    struct rig rig;
    struct prompt prompt = begin_taught(&rig,
                                        "\"load_policy\": \"split\", \"host_bytes\": 0, "
                                        "\"sim\": {\"bytes_per_s\": 2000000, \"op_ns\": 20000}",
                                        TOKEN_NS);
    assert_int_equal(serve(&rig, &prompt, TOKEN_NS).matched, 0);
    sc_io_sim_disk_device(rig.disk, &(struct sc_io_sim_device){.bytes_per_s = 100000000});
    uint32_t count = 0;
    for (uint64_t matched = 0; matched < TOKENS / 4; assert_true(++count < 5000)) {
        struct spec_lookup_result found = rig_peeked(&rig, &prompt, 0);
        matched = found.matched_tokens;
        if (matched > 0) { /* a probe, or more; what a peek was promised, a lease gets */
            struct spec_lookup_result held = {.struct_size = sizeof(held)};
            assert_int_equal(rig_attach(&rig, found.lease, 0, &held), SPEC_OK);
            for (uint32_t layer = 0; layer < LAYERS; layer++)
                assert_int_equal(rig_load(&rig, held.request, &prompt, 0, matched, layer), SPEC_OK);
            rig_release(&rig, held.request);
        }
    }
    rig_end(&rig, &prompt);
}

/* A host that loads all layers before it computes, as far as is promised. */
static struct served serve_apart(struct rig *rig, const struct prompt *prompt, uint64_t token_ns)
{
    struct spec_lookup_result found = find(rig, prompt), none = found;
    struct pass pass = {.first = found.matched_tokens, .end = prompt->count};
    for (uint32_t layer = 0; layer < rig->layers && found.matched_tokens > 0; layer++)
        assert_int_equal(rig_load(rig, found.request, prompt, 0, found.matched_tokens, layer),
                         SPEC_OK);
    none.matched_tokens = 0; /* run loads no more */
    pass.layer_ns = token_ns * (pass.end - pass.first) / LAYERS;
    run(rig, &none, prompt, &pass);
    rig_release(rig, found.request);
    rig_settle(rig);
    return (struct served){.matched = found.matched_tokens, .stored = found.stored_tokens};
}

/* Nor where hosts load all before they compute, so that all or nothing is best; whatever a chunk
 * is, and what memory has of it. */
static void a_few_requests_find_that_a_device_recovered(void **state)
{
    (void)state;
    static const char *const cases[] = {
        "\"chunk_tokens\": 16, \"host_bytes\": 0", "\"chunk_tokens\": 64, \"host_bytes\": 0",
        "\"chunk_tokens\": 256, \"host_bytes\": 0", "\"host_bytes\": \"64MiB\""};
    for (uint32_t c = 0; c < sizeof(cases) / sizeof(cases[0]); c++) {
        struct rig rig;
        char extra[160];
        snprintf(extra, sizeof(extra),
                 "\"load_policy\": \"split\", %s, \"sim\": {\"bytes_per_s\": 30000000, \"op_ns\": "
                 "20000}",
                 cases[c]);
        begin(&rig, extra);
        for (uint64_t i = 0; i < 4; i++) {
            struct prompt prompt = plain(900 + i, TOKENS / 2 + i * 64);
            struct prompt longer = rig_prompt(900 + i, prompt.count, 1, TOKENS + i);
            (void)serve_apart(&rig, &prompt, TOKEN_NS);
            (void)serve_apart(&rig, &longer, TOKEN_NS);
            rig_prompts_free(&prompt, &longer);
        }
        struct prompt shared = plain(1, TOKENS * 2);
        (void)serve_apart(&rig, &shared, TOKEN_NS);
        sc_io_sim_disk_device(rig.disk, &(struct sc_io_sim_device){.bytes_per_s = 1000000000});
        uint64_t matched = 0;
        for (uint64_t i = 0; matched < TOKENS * 2; i++) {
            struct prompt next = rig_prompt(1, shared.count, i, shared.count + 65 + i % 50);
            assert_true(i < 300);
            matched = serve_apart(&rig, &next, TOKEN_NS).matched;
            rig_prompt_free(&next);
        }
        rig_end(&rig, &shared);
    }
}

/* The host's process stood still in the middle of a load: that is no measure of what rows take. */
static void one_load_that_was_interrupted_does_not_count(void **state)
{
    (void)state;
    struct rig rig;
    struct prompt prompt = begin_taught(&rig, SPLIT, TOKEN_NS);
    assert_in_range(serve(&rig, &prompt, TOKEN_NS).matched, TOKENS / 4, TOKENS * 3 / 4);
    struct spec_lookup_result found = find(&rig, &prompt);
    struct sc_plugin_request *request = sc_plugin_request_find(rig.conn, found.request);
    for (uint32_t layer = 0; layer < LAYERS; layer++) {
        sc_plugin_load_policy_call(request, layer == 3 ? UINT64_C(60000000000) : 0, 0);
        assert_int_equal(rig_load(&rig, found.request, &prompt, 0, found.matched_tokens, layer),
                         SPEC_OK);
    }
    rig_release(&rig, found.request);
    assert_in_range(serve(&rig, &prompt, TOKEN_NS).matched, TOKENS / 4, TOKENS * 3 / 4);
    rig_end(&rig, &prompt);
}

/* Rows that lie in host memory are no work for the device: all of them are promised. */
static void what_host_memory_has_is_promised(void **state)
{
    (void)state;
    struct rig rig;
    begin(&rig, SPLIT ", \"host_bytes\": \"64MiB\"");
    struct prompt prompt = plain(1, TOKENS), other = plain(2, TOKENS / 2);
    serve(&rig, &prompt, TOKEN_NS);
    assert_int_equal(serve(&rig, &prompt, TOKEN_NS).matched, TOKENS - 1); /* and stays there */
    serve(&rig, &other, TOKEN_NS);
    assert_int_equal(serve(&rig, &prompt, TOKEN_NS).matched, TOKENS - 1);
    assert_in_range(serve(&rig, &other, TOKEN_NS).matched, 64, TOKENS / 2 - 64);
    rig_end(&rig, &prompt, &other);
}

/* ---- What is computed though it is stored ---------------------------------------------------- */

static void stored_rows_are_not_stored_again(void **state)
{
    (void)state;
    struct rig rig;
    begin(&rig, SPLIT);
    teach(&rig, TOKEN_NS);
    struct prompt prompt = plain(1, TOKENS);
    struct prompt child = rig_prompt(1, TOKENS, 1, TOKENS + 300); /* its beginning is the prompt */
    serve(&rig, &prompt, TOKEN_NS);
    struct spec_stats before = stats_of(&rig);
    struct served served = serve(&rig, &prompt, TOKEN_NS);
    struct spec_stats after = stats_of(&rig);
    assert_in_range(served.matched, 1, TOKENS - 2);
    assert_int_equal(after.write_bytes, before.write_bytes);
    assert_int_equal(after.stored_chunks, before.stored_chunks);
    assert_int_equal(after.duplicate_chunks - before.duplicate_chunks,
                     (TOKENS - served.matched) / 64);
    served = serve(&rig, &child, TOKEN_NS);
    assert_int_equal(served.stored, TOKENS);
    assert_int_equal(stats_of(&rig).stored_tokens - after.stored_tokens, 300);
    assert_true(stats_of(&rig).write_bytes - after.write_bytes < 400 * LAYERS * (ROW_BYTES + 8));
    assert_int_equal(find(&rig, &child).stored_tokens, TOKENS + 300);
    rig_close(&rig); /* and all of it is found again, and right */
    rig.extra = "\"sim\": {\"bytes_per_s\": 0}";
    rig_open(&rig);
    assert_int_equal(read_all(&rig, &child), TOKENS + 299);
    rig_end(&rig, &prompt, &child);
}

/* An attached request does not know how much more is stored than its lease promises. */
static void an_attached_request_stores_what_is_lacking(void **state)
{
    (void)state;
    struct rig rig;
    struct prompt prompt = begin_taught(&rig, SPLIT, TOKEN_NS);
    struct spec_lookup_result found, held = {.struct_size = sizeof(held)};
    assert_int_equal(rig_peek(&rig, &prompt, 0, &found), SPEC_OK);
    assert_int_equal(rig_attach(&rig, found.lease, 0, &held), SPEC_OK);
    uint64_t n = held.matched_tokens, before = stats_of(&rig).write_bytes;
    assert_in_range(n, 1, TOKENS - 2);
    struct area area = rig_area(&rig, TOKENS - n);
    spec_ticket ticket = 0;
    for (uint32_t layer = 0; layer < LAYERS; layer++) {
        struct spec_store_params params = {.struct_size = sizeof(params),
                                           .request = held.request,
                                           .layer = layer,
                                           .first_token = n,
                                           .token_count = TOKENS - n,
                                           .memory = &area.memory,
                                           .tokens = layer == 0 ? prompt.tokens + n : NULL,
                                           .tokens_count = layer == 0 ? TOKENS - n : 0};
        assert_int_equal(sc_plugin_store(rig.conn, &params, 1, &ticket, NULL), SPEC_OK);
    }
    assert_int_equal(rig_wait(&rig, ticket), SPEC_OK);
    rig_release(&rig, held.request);
    rig_area_free(&area);
    assert_int_equal(stats_of(&rig).write_bytes, before);
    rig_end(&rig, &prompt);
}

/* A pass whose beginning is stored keeps it where it is until the pass has ended. */
static void what_a_pass_stands_on_stays_until_it_ends(void **state)
{
    (void)state;
    struct rig rig;
    begin(&rig, SPLIT);
    struct prompt prompt = plain(1, TOKENS), longer = rig_prompt(1, TOKENS, 1, TOKENS + 64);
    struct spec_lookup_result found = find(&rig, &prompt);
    struct spec_lookup_result early = find(&rig, &longer); /* before anything is stored */
    assert_int_equal(early.stored_tokens, 0);
    assert_int_equal(rig_wait(&rig, rig_store(&rig, found.request, &prompt, 0, TOKENS)), SPEC_OK);
    rig_release(&rig, found.request);
    rig_settle(&rig);
    /* what others stored meanwhile is found when it is written */
    uint64_t before = stats_of(&rig).stored_tokens;
    assert_int_equal(rig_wait(&rig, rig_store(&rig, early.request, &longer, 0, TOKENS + 64)),
                     SPEC_OK);
    assert_int_equal(stats_of(&rig).stored_tokens - before, 64);
    rig_release(&rig, early.request);
    found = find(&rig, &longer);
    spec_ticket ticket;
    assert_int_equal(rig_store_layer(&rig, found.request, &longer, 0, TOKENS + 64, 0, &ticket),
                     SPEC_OK);
    assert_int_equal(sc_plugin_store_abort(rig.conn, found.request, 0, NULL), SPEC_OK);
    ticket = rig_store(&rig, found.request, &longer, 64, TOKENS);
    assert_int_equal(rig_wait(&rig, ticket), SPEC_OK);
    rig_release(&rig, found.request);
    rig_settle(&rig);
    assert_int_equal(read_all(&rig, &longer), TOKENS + 63);
    rig_check_index(&rig); /* no pin is left */
    rig_end(&rig, &prompt, &longer);
}

/* The time of a pass is the time of all its tokens, also of those beyond a limit. */
static void a_cut_pass_is_measured_as_a_whole(void **state)
{
    (void)state;
    for (uint64_t limit = 100; limit <= 400; limit += 300) {
        struct rig rig;
        struct prompt prompt = rig_prompt(90, 0, 0, 400);
        char extra[96];
        (void)snprintf(extra, sizeof(extra),
                       "\"load_policy\": \"split\", \"max_request_tokens\": %" PRIu64, limit);
        rig_begin(&rig, true, extra);
        struct spec_lookup_result found = rig_lookup(&rig, &prompt);
        const struct sc_plugin_request *request = sc_plugin_request_find(rig.conn, found.request);
        spec_ticket ticket = 0;
        assert_int_equal(rig_store_layer(&rig, found.request, &prompt, 0, 330, 0, &ticket),
                         SPEC_OK);
        assert_true(request->pass_clock.tokens == 330);
        assert_true(request->pass_clock.goes_on);
        rig_release(&rig, found.request);
        rig_end(&rig, &prompt);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_cut_pass_is_measured_as_a_whole),
        cmocka_unit_test(all_is_promised_until_both_sides_are_known),
        cmocka_unit_test(the_cut_is_where_both_sides_end_together),
        cmocka_unit_test(the_faster_side_gets_all),
        cmocka_unit_test(passes_that_tell_nothing_do_not_count),
        cmocka_unit_test(waiting_for_rows_is_not_computing),
        cmocka_unit_test(a_prediction_stands_in_for_passes),
        cmocka_unit_test(limits_of_the_host_hold),
        cmocka_unit_test(a_device_that_recovers_is_used_again),
        cmocka_unit_test(a_few_requests_find_that_a_device_recovered),
        cmocka_unit_test(one_load_that_was_interrupted_does_not_count),
        cmocka_unit_test(what_host_memory_has_is_promised),
        cmocka_unit_test(stored_rows_are_not_stored_again),
        cmocka_unit_test(an_attached_request_stores_what_is_lacking),
        cmocka_unit_test(what_a_pass_stands_on_stays_until_it_ends),
    };
    return cmocka_run_group_tests_name("plugin_fill", tests, NULL, NULL);
}
