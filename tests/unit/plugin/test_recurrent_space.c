/* What models with states take of a store: room on a full disk, staging, the write budget, objects;
 * and where their matches are cut.
 *
 * Threads: one. */
#include "tests/unit/plugin/hybrid_fixture.h"

#define MIB        (UINT64_C(1) << 20)
#define LARGE      (256u << 10)
#define TOKEN_NS   100000u
#define SHARED     2000u
#define PASS_COUNT 60u
#define REQUESTS   16u
#define DAY_NS     UINT64_C(86400000000000)
#define COMMON     4u /* where both ranks have states */

static struct spec_stats stats_of(const struct hybrid *model)
{
    const spec_connector *conn = model->rig.conn;
    struct sc_store_stats store;
    sc_store_stats(conn->store, &store);
    struct spec_stats stats = {.evicted_chunks = sc_counted(&conn->stats.evicted_chunks),
                               .over_budget_chunks = sc_counted(&conn->stats.over_budget_chunks),
                               .tickets_open = sc_counted(&conn->stats.tickets_open),
                               .write_bytes = store.write_bytes};
    sc_plugin_load_policy_stats(conn, &stats);
    return stats;
}

/* Two states of 256 KiB on a disk of 16 MiB: branches go for new ones as rows do, though what goes
 * for rows is of no use to them. */
static void a_full_disk_goes_on_taking_states(void **state)
{
    (void)state;
    static struct hybrid model;
    uint64_t late = 0;
    hybrid_make(
        &model, true,
        "\"disk_bytes\": \"16MiB\", \"segment_bytes\": \"1MiB\", \"lease_ns_max\": 1000000");
    model.rig.stage = "256MiB";
    model.state_bytes[2] = model.state_bytes[3] = LARGE;
    hybrid_open(&model);
    for (uint64_t i = 0; i < PASS_COUNT; i++) {
        struct prompt prompt = rig_prompt(i + 1, 0, 0, 100);
        spec_status status = hybrid_fill(&model, &prompt);
        assert_true(status == SPEC_OK || status == SPEC_E_NO_SPACE);
        rig_pass_ns(&model.rig, 20000000);
        bool is_there = hybrid_read(&model, &prompt) == prompt.count;
        assert_true(is_there == (status == SPEC_OK));
        late += is_there && i >= PASS_COUNT / 2;
        rig_prompt_free(&prompt);
    }
    assert_true(stats_of(&model).evicted_chunks > 0);
    assert_in_range(late, PASS_COUNT / 4, PASS_COUNT / 2);
    rig_done(&model.rig);
}

/* As hybrid_fill, by a request of a low priority. */
static spec_status fill_low(struct hybrid *model, const struct prompt *prompt)
{
    const struct spec_lookup_params params = {.struct_size = sizeof(params),
                                              .tokens = prompt->tokens,
                                              .token_count = prompt->count,
                                              .max_tokens = prompt->count,
                                              .priority = -1};
    struct spec_lookup_result found = rig_lookup_as(&model->rig, &params);
    spec_ticket ticket = 0;
    for (uint32_t l = 0; l < HYBRID_LAYERS; l++)
        assert_int_equal(hybrid_store(model, found.request, prompt, found.matched_tokens,
                                      prompt->count - found.matched_tokens, l, &ticket),
                         SPEC_OK);
    spec_status status = rig_wait(&model->rig, ticket);
    rig_release(&model->rig, found.request);
    rig_background(&model->rig);
    return status;
}

/* A disk full of what goes later: of a pass nothing is written, neither rows and states nor, where
 * the rows are there, states alone. */
static void states_that_would_go_at_once_are_refused(void **state)
{
    (void)state;
    static struct hybrid model;
    hybrid_make(&model, true,
                "\"disk_bytes\": \"16MiB\", \"segment_bytes\": \"1MiB\", \"lease_ns_max\": 0");
    model.rig.stage = "256MiB";
    model.state_bytes[2] = model.state_bytes[3] = LARGE;
    hybrid_open(&model);
    struct prompt full = rig_prompt(1, 0, 0, 100), low = rig_prompt(1000, 0, 0, 100);
    for (uint64_t i = 0; stats_of(&model).evicted_chunks == 0; i++) {
        assert_true(i < PASS_COUNT);
        rig_prompt_free(&full);
        full = rig_prompt(i + 1, 0, 0, 100);
        (void)hybrid_fill(&model, &full);
        rig_background(&model.rig);
    }
    assert_int_equal(hybrid_read(&model, &full), full.count);
    struct prompt start = {50, full.tokens, full.history};
    struct spec_stats before = stats_of(&model);
    for (uint32_t i = 0; i < 10; i++) {
        assert_int_equal(fill_low(&model, &low), SPEC_E_NO_SPACE);
        assert_int_equal(fill_low(&model, &start), SPEC_E_NO_SPACE);
    }
    assert_int_equal(stats_of(&model).write_bytes, before.write_bytes);
    assert_int_equal(stats_of(&model).evicted_chunks, before.evicted_chunks);
    assert_int_equal(stats_of(&model).tickets_open, 0);
    assert_int_equal(hybrid_read(&model, &low), 0);
    assert_int_equal(hybrid_read(&model, &full), full.count);
    rig_end(&model.rig, &low, &full);
}

/* What staging has no room for at once would be dropped in every pass: it is said once, at open. */
static void states_that_staging_cannot_take_are_refused_at_open(void **state)
{
    (void)state;
    static struct hybrid model;
    hybrid_make(&model, true, "\"disk_bytes\": \"1GiB\"");
    model.rig.stage = "16MiB";
    model.state_bytes[2] = 4 * MIB;
    assert_int_equal(hybrid_try_open(&model), SPEC_E_INVALID);
    assert_non_null(strstr(model.rig.error.text, "staging_bytes 16777216"));
    model.rig.stage = "256MiB";
    hybrid_open(&model);
    struct prompt prompt = rig_prompt(1, 0, 0, 100);
    assert_int_equal(hybrid_fill(&model, &prompt), SPEC_OK);
    assert_int_equal(hybrid_read(&model, &prompt), prompt.count);
    rig_end(&model.rig, &prompt);
}

/* Passes that end inside of what is stored write states alone; those count as rows do. */
static void the_write_budget_counts_states(void **state)
{
    (void)state;
    static struct hybrid model;
    hybrid_make(&model, true, "\"disk_bytes\": \"1GiB\", \"store\": {\"write_budget\": \"40MiB\"}");
    model.state_bytes[2] = model.state_bytes[3] = LARGE;
    hybrid_open(&model);
    struct prompt prompt = rig_prompt(1, 0, 0, 100);
    uint64_t stored = 0, dropped = 0;
    assert_int_equal(hybrid_fill(&model, &prompt), SPEC_OK);
    for (uint64_t end = 1; end < prompt.count; end++) {
        struct prompt start = {end, prompt.tokens, prompt.history};
        spec_status status = hybrid_fill(&model, &start);
        assert_true(status == SPEC_OK || status == SPEC_E_DROPPED);
        stored += status == SPEC_OK;
        dropped += status == SPEC_E_DROPPED;
        assert_int_equal(hybrid_read(&model, &start) == end, status == SPEC_OK);
    }
    struct spec_stats stats = stats_of(&model);
    assert_in_range(stats.write_bytes, 2 * LARGE, 40 * MIB);
    assert_true(stored > 0 && dropped > 0);
    assert_true(stats.over_budget_chunks >= dropped);
    assert_int_equal(stats.tickets_open, 0);
    struct prompt other = rig_prompt(2, 0, 0, 100); /* rows without their states are of no use */
    assert_int_equal(hybrid_fill(&model, &other), SPEC_E_DROPPED);
    struct spec_lookup_result found = rig_lookup(&model.rig, &other);
    assert_int_equal(found.stored_tokens, 0);
    rig_release(&model.rig, found.request);
    rig_pass_ns(&model.rig, DAY_NS); /* a quarter of it may come at once */
    assert_int_equal(hybrid_fill(&model, &other), SPEC_OK);
    assert_int_equal(hybrid_read(&model, &other), other.count);
    rig_end(&model.rig, &other, &prompt);
}

/* Branches of many extents are few at a time; rows of all requests are stored beside them. */
static void many_extents_leave_room_for_rows(void **state)
{
    (void)state;
    static struct hybrid model;
    struct prompt prompts[REQUESTS];
    struct spec_lookup_result found[REQUESTS];
    spec_ticket tickets[REQUESTS] = {0};
    uint64_t whole = 0;
    hybrid_make(&model, true, "\"disk_bytes\": \"4GiB\", \"max_requests\": 16");
    model.rig.stage = "1GiB";
    model.state_bytes[2] = 2 * MIB;
    hybrid_open(&model);
    for (uint64_t i = 0; i < REQUESTS; i++) {
        prompts[i] = rig_prompt(i + 1, 0, 0, 100);
        found[i] = rig_lookup(&model.rig, &prompts[i]);
    }
    for (uint32_t l = 0; l < HYBRID_LAYERS; l++)
        for (uint64_t i = 0; i < REQUESTS; i++)
            assert_int_equal(
                hybrid_store(&model, found[i].request, &prompts[i], 0, 100, l, &tickets[i]),
                SPEC_OK);
    for (uint64_t i = 0; i < REQUESTS; i++) {
        spec_status status = rig_wait(&model.rig, tickets[i]);
        assert_true(status == SPEC_OK || status == SPEC_E_BUSY);
        rig_release(&model.rig, found[i].request);
        found[i] = rig_lookup(&model.rig, &prompts[i]);
        assert_int_equal(found[i].stored_tokens, 100);
        assert_int_equal(found[i].matched_tokens, status == SPEC_OK ? 100 : 0);
        whole += status == SPEC_OK;
        rig_release(&model.rig, found[i].request);
        rig_prompt_free(&prompts[i]);
    }
    assert_in_range(whole, 1, REQUESTS - 1); /* so many passes' states are written at a time */
    rig_done(&model.rig);
}

static void readers_open_and_find_them(void **state)
{
    (void)state;
    static struct hybrid writer, reader;
    static const uint32_t ROLES[] = {SPEC_ROLE_READER, SPEC_ROLE_AUTO};
    hybrid_make(&writer, true, "\"disk_bytes\": \"64MiB\"");
    hybrid_open(&writer);
    struct prompt prompt = rig_prompt(1, 0, 0, 100);
    assert_int_equal(hybrid_fill(&writer, &prompt), SPEC_OK);
    for (uint32_t i = 0; i < 2; i++) {
        hybrid_beside(&reader, &writer, ROLES[i], 0);
        hybrid_open(&reader);
        rig_pass_ns(&reader.rig, 200000000); /* it reads the log */
        assert_int_equal(hybrid_read(&reader, &prompt), prompt.count);
        rig_close(&reader.rig);
        rig_leave(&reader.rig);
    }
    rig_end(&writer.rig, &prompt);
}

/* A pass to `end`; no_states: as where they find no room. */
static void pass_to(struct hybrid *model, const struct prompt *prompt, uint64_t end, bool no_states)
{
    struct sc_plugin_recurrent *states = &model->rig.conn->states;
    struct sc_plugin_recurrent_pass *all = states->free;
    struct prompt start = {end, prompt->tokens, prompt->history};
    if (no_states)
        states->free = NULL;
    assert_int_equal(hybrid_fill(model, &start), no_states ? SPEC_E_BUSY : SPEC_OK);
    if (no_states)
        states->free = all;
}

/* Ends of two ranks take turns behind one that both have. However many there are, and whoever is
 * asked, the match ends at the same place: there, or nowhere when they are too many. */
static void ranks_give_up_together(void **state)
{
    (void)state;
    static const uint64_t ENDS[] = {10, 20, 30, 31, 32, 33, 62, 63, 64, 65, 66};
    static struct hybrid ranks[2];
    uint64_t found = 0, none = 0;
    for (uint32_t n = 0; n < sizeof(ENDS) / sizeof(ENDS[0]); n++) {
        hybrid_make(&ranks[0], true, "\"disk_bytes\": \"64MiB\", \"chunk_tokens\": 16");
        ranks[0].rig.rank_count = 2;
        hybrid_open(&ranks[0]);
        hybrid_beside(&ranks[1], &ranks[0], 0, 1);
        hybrid_open(&ranks[1]);
        struct prompt prompt = rig_prompt(1, 0, 0, COMMON + ENDS[n]);
        for (uint32_t rank = 0; rank < 2; rank++)
            for (uint64_t end = COMMON; end <= prompt.count; end++)
                pass_to(&ranks[rank], &prompt, end, end > COMMON && end % 2 != rank);
        uint64_t ends[2];
        for (uint32_t rank = 0; rank < 2; rank++)
            rig_pass_ns(&ranks[rank].rig, UINT64_C(2000000000)); /* each reads the other's log */
        for (uint32_t rank = 0; rank < 2; rank++)
            ends[rank] = hybrid_read(&ranks[rank], &prompt);
        assert_int_equal(ends[0], ends[1]);
        assert_true(ends[0] == COMMON || ends[0] == 0);
        found += ends[0] > 0;
        none += ends[0] == 0;
        rig_prompt_free(&prompt);
        rig_close(&ranks[1].rig);
        rig_leave(&ranks[1].rig);
        rig_done(&ranks[0].rig);
    }
    assert_true(found >= 2 && none >= 1);
}

/* A prompt that has SHARED tokens, served: what it was promised. The host ends a pass where the
 * shared ones end, and one at `stop`, and computes a token in TOKEN_NS. */
static uint64_t serve(struct hybrid *model, uint64_t number, uint64_t stop)
{
    struct rig *rig = &model->rig;
    struct prompt prompt = rig_prompt(7, SHARED, number, SHARED + 500);
    struct spec_lookup_result found = {.struct_size = sizeof(found)};
    assert_int_equal(rig_try_lookup(rig, &prompt, 0, 0, &found), SPEC_OK);
    const uint64_t stops[3] = {stop, SHARED, SHARED + 500};
    uint64_t first = found.matched_tokens;
    for (uint32_t i = 0; i < 3; i++) {
        spec_ticket ticket = 0;
        for (uint32_t l = 0; l < HYBRID_LAYERS && first < stops[i]; l++) {
            if (first > 0 && first == found.matched_tokens)
                assert_int_equal(hybrid_load(model, found.request, &prompt, 0, first, l), SPEC_OK);
            rig_pass_ns(rig, (stops[i] - first) * TOKEN_NS / HYBRID_LAYERS);
            assert_int_equal(
                hybrid_store(model, found.request, &prompt, first, stops[i] - first, l, &ticket),
                SPEC_OK);
        }
        if (first < stops[i]) {
            assert_int_equal(rig_wait(rig, ticket), SPEC_OK);
            first = stops[i];
        }
    }
    rig_release(rig, found.request);
    rig_settle(rig);
    rig_prompt_free(&prompt);
    return found.matched_tokens;
}

/* Where a match of rows would be cut in its midst, one of a model with states ends where a pass
 * did: with the last one, one before, or with none, whatever is sooner. */
static void a_cut_falls_on_the_end_of_a_pass(void **state)
{
    (void)state;
    static struct hybrid model;
    static const struct {
        uint64_t bytes_per_s, stop, expected;
    } CASES[] = {{80000000, 0, SHARED}, {80000000, SHARED / 2, SHARED / 2}, {3000000, 0, 0}};
    for (uint32_t c = 0; c < 3; c++) {
        char extra[256];
        (void)snprintf(extra, sizeof(extra),
                       "\"disk_bytes\": \"1GiB\", \"load_policy\": \"split\", "
                       "\"sim\": {\"bytes_per_s\": %lu, \"op_ns\": 20000}",
                       CASES[c].bytes_per_s);
        hybrid_make(&model, true, extra);
        rig_shape(&model.rig, HYBRID_LAYERS, 8, 128, SPEC_DTYPE_F16);
        model.rig.stage = "256MiB";
        hybrid_open(&model);
        for (uint64_t i = 0; i < 4; i++)
            (void)serve(&model, i, CASES[c].stop);
        struct spec_stats before = stats_of(&model);
        for (uint64_t i = 4; i < 10; i++)
            assert_int_equal(serve(&model, i, CASES[c].stop), CASES[c].expected);
        struct spec_stats after = stats_of(&model);
        uint64_t left_out = SHARED - CASES[c].expected;
        assert_true(before.compute_token_ps > 0 && before.load_token_ps > 0);
        assert_int_equal(after.lookups_cut - before.lookups_cut, left_out > 0 ? 6 : 0);
        assert_int_equal(after.tokens_cut - before.tokens_cut, 6 * left_out);
        rig_done(&model.rig);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_full_disk_goes_on_taking_states),
        cmocka_unit_test(states_that_would_go_at_once_are_refused),
        cmocka_unit_test(states_that_staging_cannot_take_are_refused_at_open),
        cmocka_unit_test(the_write_budget_counts_states),
        cmocka_unit_test(many_extents_leave_room_for_rows),
        cmocka_unit_test(readers_open_and_find_them),
        cmocka_unit_test(ranks_give_up_together),
        cmocka_unit_test(a_cut_falls_on_the_end_of_a_pass),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
