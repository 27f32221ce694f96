/* Passes that staging cannot hold: their beginnings are stored, little is written in vain, and the
 * next pass goes on behind what is kept.
 *
 *   pass     layers come at a pace, on a simulated device of a steady rate
 *   limit    min(all tokens, what 0.7 x staging_bytes and the device take during the pass,
 *            what one layer may hold of staging)
 *
 * Threads: one. */
#include "tests/unit/plugin/plugin_fixture.h"

#define DEVICE_RATE UINT64_C(200000000)
#define STAGE_MIB   16u

/* A pass that is stored a layer at a time. */
struct pass {
    struct prompt prompt;
    spec_request request;
    uint64_t first;
    spec_ticket ticket;
};

static void rig_make(struct rig *rig, uint32_t layers, uint32_t heads, const char *extra)
{
    rig_init(rig, true, extra);
    rig_shape(rig, layers, heads, 64, SPEC_DTYPE_F16);
    rig->stage = "16MiB";
    rig_open(rig);
    sc_io_sim_disk_rate(rig->disk, DEVICE_RATE);
}

static uint64_t layer_bytes(const struct rig *rig, uint64_t tokens)
{
    return tokens * 2 * rig_part_bytes(rig);
}

/* What 0.7 of staging and the device can take of a pass that lasts so long, in tokens. */
static uint64_t limit_of(const struct rig *rig, uint64_t tokens, uint64_t pass_ns)
{
    uint64_t stage = UINT64_C(7) * (STAGE_MIB << 20) / 10;
    uint64_t bytes = stage + DEVICE_RATE / 1000 * pass_ns / 1000000;
    uint64_t fit = bytes / layer_bytes(rig, 1) / rig->layers;
    return fit < tokens ? fit : tokens;
}

static struct pass pass_begin(struct rig *rig, uint64_t seed, uint64_t tokens)
{
    struct pass pass = {.prompt = rig_prompt(seed, 0, 0, tokens)};
    struct spec_lookup_result found = rig_lookup(rig, &pass.prompt);
    pass.request = found.request;
    pass.first = found.matched_tokens;
    return pass;
}

static void pass_layer(struct rig *rig, struct pass *pass, uint32_t layer)
{
    assert_int_equal(rig_store_layer(rig, pass->request, &pass->prompt, pass->first,
                                     pass->prompt.count - pass->first, layer, &pass->ticket),
                     SPEC_OK);
}

/* Returns how the ticket ended; the request is released. */
static spec_status pass_end(struct rig *rig, struct pass *pass)
{
    spec_status status = rig_wait(rig, pass->ticket);
    rig_release(rig, pass->request);
    return status;
}

/* Stores the tokens behind the match, a layer each ns_each. */
static spec_status pass_run(struct rig *rig, struct pass *pass, uint64_t ns_each)
{
    for (uint32_t layer = 0; layer < rig->layers; layer++) {
        pass_layer(rig, pass, layer);
        rig_pass_ns(rig, ns_each);
    }
    return pass_end(rig, pass);
}

/* Time between layers of a pass that comes at so many percent of the device's rate. */
static uint64_t ns_between(const struct rig *rig, uint64_t tokens, uint64_t percent)
{
    return layer_bytes(rig, tokens) * UINT64_C(10000000) / (DEVICE_RATE / 10000 * percent);
}

static void check_pace(uint32_t layers, uint32_t heads, uint64_t tokens, uint64_t percent,
                       uint64_t least_percent)
{
    struct rig rig;
    rig_make(&rig, layers, heads, "\"load_policy\": \"load\", \"host_bytes\": 0");
    struct pass pass = pass_begin(&rig, 1, tokens);
    uint64_t each_ns = ns_between(&rig, tokens, percent);
    spec_status status = pass_run(&rig, &pass, each_ns);
    uint64_t kept = rig_read(&rig, &pass.prompt, NULL); /* every row is compared */
    uint64_t limit = limit_of(&rig, tokens, each_ns * (layers - 1));
    uint64_t bytes = rig_store_stats(&rig).write_bytes, wanted = layer_bytes(&rig, kept) * layers;
    print_message("%u layers of %llu KiB, %llu %% of the device: kept %llu of %llu (limit %llu), "
                  "written %llu %%\n",
                  layers, (unsigned long long)(layer_bytes(&rig, tokens) >> 10),
                  (unsigned long long)percent, (unsigned long long)kept, (unsigned long long)tokens,
                  (unsigned long long)limit,
                  (unsigned long long)(wanted > 0 ? bytes * 100 / wanted : 0));
    assert_true(kept == tokens ? status == SPEC_OK : status == SPEC_E_BUSY);
    assert_true(kept * 100 >= limit * least_percent);
    assert_true(bytes * 100 <= wanted * 115);
    assert_int_equal(rig_store_stats(&rig).staging_bytes_used, 0);
    rig_end(&rig, &pass.prompt);
}

static void abi_085_of_a_pass_beyond_staging_the_beginning_is_kept(void **state)
{
    (void)state;
    static const uint64_t PERCENT[] = {50, 100, 200, 400, 800, 2000};
    for (uint32_t i = 0; i < sizeof(PERCENT) / sizeof(PERCENT[0]); i++)
        check_pace(16, 4, 4096, PERCENT[i], 90);
}

static void abi_085_shapes_of_passes_beyond_staging(void **state)
{
    (void)state;
    check_pace(48, 2, 2048, 400, 90);
    check_pace(8, 16, 2048, 400, 90);
    check_pace(32, 1, 8192, 800, 88); /* of frames so many are filled in part */
    check_pace(4, 8, 4096, 1000, 90);
}

/* A ticket tells how much of its range is stored, while it is stored and when it is done. */
static void abi_217_the_ticket_tells_how_many_tokens_are_kept(void **state)
{
    (void)state;
    struct rig rig;
    rig_make(&rig, 16, 4, "\"load_policy\": \"load\", \"host_bytes\": 0");
    struct prompt begun = rig_prompt(1, 0, 0, 300);
    assert_int_equal(rig_fill(&rig, &begun), SPEC_OK);
    struct pass pass = pass_begin(&rig, 1, 4096);
    pass.first = 100; /* of this range 200 tokens are stored already */
    for (uint32_t layer = 0; layer < rig.layers; layer++)
        pass_layer(&rig, &pass, layer);
    spec_status status = SPEC_PENDING;
    uint64_t kept = 0, before = 0, looks = 0, grown = 0;
    for (; status == SPEC_PENDING; looks++, before = kept) {
        spec_status waited =
            sc_plugin_wait_kept(rig.conn, &pass.ticket, 1, 1000000, &status, &kept, NULL);
        assert_int_equal(waited, status == SPEC_PENDING ? SPEC_E_TIMEOUT : SPEC_OK);
        assert_true(kept >= before);
        grown += kept > before;
    }
    assert_true(grown > 2 && looks > grown);
    assert_int_equal(status, SPEC_E_BUSY);
    assert_int_equal(sc_plugin_wait_kept(rig.conn, &pass.ticket, 1, 0, &status, &kept, NULL),
                     SPEC_E_INVALID);
    rig_release(&rig, pass.request);
    assert_true(before > 200);
    assert_int_equal(rig_read(&rig, &pass.prompt, NULL), 100 + before);
    rig_prompt_free(&begun);
    rig_end(&rig, &pass.prompt);
}

/* The request itself goes on where the kept part ends: without a new lookup. What hangs on the lost
 * part meanwhile is not stored. */
static void abi_217_the_request_goes_on_where_the_kept_part_ends(void **state)
{
    (void)state;
    struct rig rig;
    rig_make(&rig, 16, 4, "\"load_policy\": \"load\", \"host_bytes\": 0");
    struct pass pass = {.prompt = rig_prompt(1, 0, 0, 4196)};
    struct spec_lookup_result found;
    assert_int_equal(rig_try_lookup(&rig, &pass.prompt, 0, RIG_MAX, &found), SPEC_OK);
    pass.request = found.request;
    uint64_t first = 0, passes = 0;
    for (; first < 4096 && passes < 8; passes++) {
        spec_status status;
        uint64_t kept;
        spec_ticket ticket = rig_store(&rig, pass.request, &pass.prompt, first, 4096 - first);
        spec_ticket orphan = rig_store(&rig, pass.request, &pass.prompt, 4096, 100);
        assert_int_equal(
            sc_plugin_wait_kept(rig.conn, &ticket, 1, UINT64_MAX, &status, &kept, NULL), SPEC_OK);
        assert_true(kept > 0);
        assert_int_equal(status, first + kept == 4096 ? SPEC_OK : SPEC_E_BUSY);
        first += kept;
        assert_int_equal(rig_wait(&rig, orphan), first == 4096 ? SPEC_OK : SPEC_E_DROPPED);
    }
    assert_true(passes > 1 && passes < 8);
    rig_release(&rig, pass.request);
    assert_int_equal(rig_read(&rig, &pass.prompt, NULL), 4196);
    assert_true(rig_store_stats(&rig).write_bytes * 100 <= layer_bytes(&rig, 4196) * 16 * 115);
    rig_end(&rig, &pass.prompt);
}

/* A host that may wait loses nothing, and waits no longer than it said. */
static void abi_217_a_host_that_waits_keeps_all(void **state)
{
    (void)state;
    struct rig rig;
    rig_make(&rig, 16, 4, "\"load_policy\": \"load\", \"host_bytes\": 0");
    static const uint64_t WAITS[] = {UINT64_MAX, 3000000, 1};
    uint64_t kept[3], tokens = 4096;
    for (uint32_t i = 0; i < 3; i++) {
        struct pass pass = pass_begin(&rig, 1 + i, tokens);
        for (uint32_t layer = 0; layer < rig.layers; layer++) {
            struct area area = rig_area(&rig, tokens);
            rig_area_fill(&rig, &area, &pass.prompt, 0, tokens, layer);
            struct spec_store_params params =
                rig_store_params(pass.request, layer, 0, tokens, &area.memory);
            params.flags |= SPEC_STORE_WAIT;
            params.wait_ns = WAITS[i];
            uint64_t from_ns = sc_exec_now_ns(rig.conn->exec);
            assert_int_equal(sc_plugin_store(rig.conn, &params, 1, &pass.ticket, NULL), SPEC_OK);
            uint64_t took_ns = sc_exec_now_ns(rig.conn->exec) - from_ns;
            assert_true(took_ns <= WAITS[i]);
            rig_area_free(&area);
        }
        spec_status status = pass_end(&rig, &pass);
        kept[i] = rig_read(&rig, &pass.prompt, NULL);
        assert_int_equal(status, kept[i] == tokens ? SPEC_OK : SPEC_E_BUSY);
        rig_prompt_free(&pass.prompt);
    }
    assert_int_equal(kept[0], tokens);
    assert_true(kept[1] > kept[2] && kept[1] < tokens);
    rig_done(&rig);
}

/* A host that does not ask what was kept names the same range again, in the same request. */
static void abi_085_a_range_that_is_stored_again_is_written_from_where_it_was_cut(void **state)
{
    (void)state;
    struct rig rig;
    rig_make(&rig, 16, 4, "\"load_policy\": \"load\", \"host_bytes\": 0");
    struct pass pass = pass_begin(&rig, 1, 2048);
    uint64_t tries = 0;
    for (spec_status status = SPEC_E_BUSY; status == SPEC_E_BUSY && tries < 8; tries++)
        status = rig_wait(&rig, rig_store(&rig, pass.request, &pass.prompt, 0, 2048));
    rig_release(&rig, pass.request);
    assert_true(tries > 1 && tries < 8);
    assert_int_equal(rig_read(&rig, &pass.prompt, NULL), 2048);
    assert_true(rig_store_stats(&rig).write_bytes * 100 <= layer_bytes(&rig, 2048) * 16 * 115);
    rig_end(&rig, &pass.prompt);
}

/* The host stores the rest of the same prompt again, and again. */
static void abi_085_the_next_pass_goes_on_behind_what_is_kept(void **state)
{
    (void)state;
    struct rig rig;
    uint64_t kept = 0, tries = 0;
    rig_make(&rig, 16, 4, "\"load_policy\": \"load\", \"host_bytes\": 0");
    for (spec_status status = SPEC_E_BUSY; status == SPEC_E_BUSY && tries < 8; tries++) {
        struct pass pass = pass_begin(&rig, 1, 4096);
        assert_true(pass.first > kept || tries == 0);
        kept = pass.first;
        status = pass_run(&rig, &pass, ns_between(&rig, 4096 - kept, 800));
        rig_prompt_free(&pass.prompt);
    }
    struct prompt prompt = rig_prompt(1, 0, 0, 4096);
    assert_int_equal(rig_read(&rig, &prompt, NULL), 4096);
    assert_true(tries > 1 && tries < 8);
    assert_true(rig_store_stats(&rig).write_bytes * 100 <= layer_bytes(&rig, 4096) * 16 * 115);
    rig_end(&rig, &prompt);
}

/* Eight passes in turn, layer by layer, and tokens that other requests decode meanwhile. */
static void abi_085_passes_at_once_share_staging_and_no_decoded_token_is_lost(void **state)
{
    (void)state;
    enum { PASSES = 8, TOKENS = 2048, LAYERS = 16, DECODED = 4 };
    struct rig rig;
    struct pass passes[PASSES];
    uint64_t kept = 0, least = UINT64_MAX;
    rig_make(&rig, LAYERS, 4, "\"load_policy\": \"load\", \"host_bytes\": 0");
    struct pass decoder = pass_begin(&rig, 100, 300);
    assert_int_equal(pass_run(&rig, &decoder, 100000000), SPEC_OK);
    rig_prompt_free(&decoder.prompt);
    for (uint32_t i = 0; i < PASSES; i++)
        passes[i] = pass_begin(&rig, 1 + i, TOKENS);
    struct spec_lookup_result found;
    decoder.prompt = rig_prompt(100, 0, 0, 300 + LAYERS * DECODED);
    assert_int_equal(rig_try_lookup(&rig, &decoder.prompt, 0, RIG_MAX, &found), SPEC_OK);
    assert_int_equal(found.matched_tokens, 300);
    uint64_t each_ns = ns_between(&rig, PASSES * TOKENS, 400);
    for (uint32_t layer = 0; layer < LAYERS; layer++) {
        for (uint32_t i = 0; i < PASSES; i++)
            pass_layer(&rig, &passes[i], layer);
        for (uint32_t i = 0; i < DECODED; i++) {
            spec_ticket ticket =
                rig_store(&rig, found.request, &decoder.prompt, 300 + layer * DECODED + i, 1);
            rig_pass_ns(&rig, each_ns / DECODED);
            assert_int_equal(rig_wait(&rig, ticket), SPEC_OK);
        }
    }
    rig_release(&rig, found.request);
    for (uint32_t i = 0; i < PASSES; i++) {
        (void)pass_end(&rig, &passes[i]);
        uint64_t tokens = rig_read(&rig, &passes[i].prompt, NULL);
        kept += tokens;
        least = tokens < least ? tokens : least;
        rig_prompt_free(&passes[i].prompt);
    }
    assert_int_equal(rig_read(&rig, &decoder.prompt, NULL), decoder.prompt.count);
    uint64_t limit = limit_of(&rig, PASSES * TOKENS, each_ns * (LAYERS - 1));
    print_message("8 passes: kept %llu of at most %llu, the smallest %llu\n",
                  (unsigned long long)kept, (unsigned long long)limit, (unsigned long long)least);
    assert_true(kept * 100 >= limit * 75);
    assert_true(least * PASSES * 10 >= kept * 7); /* the beginnings of all come first */
    rig_end(&rig, &decoder.prompt);
}

/* Staging is full of a pass that has all its layers, so that none of it can be given up. */
static void abi_085_tokens_of_many_requests_find_room_behind_a_pass(void **state)
{
    (void)state;
    enum { REQUESTS = 24, PROMPT = 64 };
    struct rig rig;
    struct prompt prompts[REQUESTS];
    struct spec_lookup_result found[REQUESTS];
    spec_ticket tickets[REQUESTS];
    rig_make(&rig, 16, 4, "\"load_policy\": \"load\", \"host_bytes\": 0, \"max_requests\": 64");
    for (uint32_t i = 0; i < REQUESTS; i++) {
        struct prompt begun = rig_prompt(10 + i, 0, 0, PROMPT);
        assert_int_equal(rig_fill(&rig, &begun), SPEC_OK);
        rig_prompt_free(&begun);
        prompts[i] = rig_prompt(10 + i, 0, 0, PROMPT + 1);
        found[i] = rig_lookup(&rig, &prompts[i]);
        assert_int_equal(found[i].matched_tokens, PROMPT);
    }
    struct pass pass = pass_begin(&rig, 1, 4096);
    for (uint32_t layer = 0; layer < rig.layers; layer++)
        pass_layer(&rig, &pass, layer);
    for (uint32_t layer = 0; layer < rig.layers; layer++) /* all of them a layer, then the next */
        for (uint32_t i = 0; i < REQUESTS; i++)
            assert_int_equal(
                rig_store_layer(&rig, found[i].request, &prompts[i], PROMPT, 1, layer, &tickets[i]),
                SPEC_OK);
    for (uint32_t i = 0; i < REQUESTS; i++) {
        assert_int_equal(rig_wait(&rig, tickets[i]), SPEC_OK);
        rig_release(&rig, found[i].request);
        assert_int_equal(rig_read(&rig, &prompts[i], NULL), PROMPT + 1);
    }
    assert_int_equal(pass_end(&rig, &pass), SPEC_E_BUSY);
    rig_prompt_free(&pass.prompt);
    rig_prompts_free_all(prompts, REQUESTS);
    rig_done(&rig);
}

/* A pass that ends at once gives its frames back, whatever of it was queued. */
static void abi_090_an_aborted_pass_leaves_nothing_in_staging(void **state)
{
    (void)state;
    struct rig rig;
    rig_make(&rig, 16, 4, "\"load_policy\": \"load\", \"host_bytes\": 0");
    struct pass pass = pass_begin(&rig, 1, 4096);
    for (uint32_t layer = 0; layer < 9; layer++)
        pass_layer(&rig, &pass, layer);
    assert_true(rig_store_stats(&rig).staging_bytes_used > 4u << 20);
    assert_int_equal(sc_plugin_store_abort(rig.conn, pass.request, 0, NULL), SPEC_OK);
    rig_pass_ns(&rig, 20000000); /* a tenth of what was queued: the device had that already */
    assert_int_equal(rig_store_stats(&rig).staging_bytes_used, 0);
    rig_release(&rig, pass.request);
    assert_int_equal(rig_read(&rig, &pass.prompt, NULL), 0);
    rig_end(&rig, &pass.prompt);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(abi_085_of_a_pass_beyond_staging_the_beginning_is_kept),
        cmocka_unit_test(abi_085_shapes_of_passes_beyond_staging),
        cmocka_unit_test(abi_217_the_ticket_tells_how_many_tokens_are_kept),
        cmocka_unit_test(abi_217_the_request_goes_on_where_the_kept_part_ends),
        cmocka_unit_test(abi_217_a_host_that_waits_keeps_all),
        cmocka_unit_test(abi_085_a_range_that_is_stored_again_is_written_from_where_it_was_cut),
        cmocka_unit_test(abi_085_the_next_pass_goes_on_behind_what_is_kept),
        cmocka_unit_test(abi_085_passes_at_once_share_staging_and_no_decoded_token_is_lost),
        cmocka_unit_test(abi_085_tokens_of_many_requests_find_room_behind_a_pass),
        cmocka_unit_test(abi_090_an_aborted_pass_leaves_nothing_in_staging),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
