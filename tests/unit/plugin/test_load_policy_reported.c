/* Compute or load for a host that stores later (SPEC_STORE_LATER) and tells what its steps took:
 * which steps are believed, and what lookup promises then. On the simulated device and its clock.
 *
 * Threads: one. */
#include "tests/unit/plugin/load_policy_rig.h"

#define STEP_NS UINT64_C(100000000)

static spec_status tell(struct rig *rig, uint64_t first, uint64_t tokens, uint64_t ns,
                        uint32_t flags)
{
    struct spec_computed step = {.struct_size = sizeof(step),
                                 .flags = flags,
                                 .tokens = tokens,
                                 .positions = tokens * first + tokens * (tokens - 1) / 2,
                                 .ns = ns};
    return sc_plugin_computed(rig->conn, &step, NULL);
}

/* A prompt of which nothing is loaded, stored after it was computed. */
static void store_later(struct rig *rig, const struct prompt *prompt)
{
    struct spec_lookup_result found = find(rig, prompt);
    struct spec_lookup_result none = {.request = found.request};
    run(rig, &none, prompt, &(struct pass){.end = prompt->count, .flags = SPEC_STORE_LATER});
    rig_release(rig, found.request);
    rig_settle(rig);
}

/* A stored prompt whose loads are measured. told: steps; 0: none. */
static struct prompt begin_told(struct rig *rig, uint64_t token_ns, uint32_t told)
{
    begin(rig, SPLIT);
    struct prompt prompt = plain(1, TOKENS);
    store_later(rig, &prompt);
    for (uint32_t i = 0; i < told; i++)
        assert_int_equal(tell(rig, 0, TOKENS, TOKENS * token_ns, 0), SPEC_OK);
    for (uint32_t i = 0; i < 2; i++)
        (void)read_all(rig, &prompt);
    return prompt;
}

static void without_told_steps_all_is_promised(void **state)
{
    (void)state;
    struct rig rig;
    struct prompt prompt = begin_told(&rig, 1, 0);
    assert_int_equal(stats_of(&rig).compute_token_ps, 0);
    assert_int_equal(promised(&rig, &prompt), TOKENS - 1);
    rig_end(&rig, &prompt);
}

static void told_steps_cut_as_timed_passes_do(void **state)
{
    (void)state;
    static const struct {
        uint64_t token_ns, least, most;
    } cases[] = {{TOKEN_NS * 100, TOKENS - 1, TOKENS - 1},
                 {TOKEN_NS / 50, 0, 64},
                 {TOKEN_NS, TOKENS * 4 / 10, TOKENS * 6 / 10},
                 {TOKEN_NS * 3, TOKENS * 6 / 10, TOKENS * 8 / 10}};
    for (uint32_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct rig rig;
        struct prompt prompt = begin_told(&rig, cases[i].token_ns, 2);
        assert_in_range(promised(&rig, &prompt), cases[i].least, cases[i].most);
        rig_end(&rig, &prompt);
    }
}

/* One step is not believed alone; two are. */
static void two_steps_are_needed(void **state)
{
    (void)state;
    struct rig rig;
    begin(&rig, SPLIT);
    assert_int_equal(tell(&rig, 0, TOKENS, STEP_NS, 0), SPEC_OK);
    assert_int_equal(stats_of(&rig).compute_token_ps, 0);
    assert_int_equal(tell(&rig, 0, TOKENS, STEP_NS, 0), SPEC_OK);
    assert_true(stats_of(&rig).compute_token_ps > 0);
    rig_done(&rig);
}

/* Positions far into a prompt cost more, and are told apart from tokens. */
static void later_positions_cost_what_they_are_told_to(void **state)
{
    (void)state;
    struct rig rig;
    begin(&rig, SPLIT);
    for (uint64_t i = 0; i < 32; i++) {
        uint64_t first = i % 4 * 4096, tokens = 512;
        uint64_t positions = tokens * first + tokens * (tokens - 1) / 2;
        assert_int_equal(tell(&rig, first, tokens, tokens * 100000 + positions * 20, 0), SPEC_OK);
    }
    struct spec_stats stats = stats_of(&rig);
    assert_in_range(stats.compute_token_ps, 95000000, 105000000);
    assert_in_range(stats.compute_position_ps, 19000, 21000);
    rig_done(&rig);
}

static void steps_that_say_too_little_do_not_count(void **state)
{
    (void)state;
    static const struct {
        uint64_t tokens, ns;
    } cases[] = {{0, STEP_NS}, {127, STEP_NS}, {TOKENS, 0}, {TOKENS, 1999999}};
    for (uint32_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct rig rig;
        begin(&rig, SPLIT);
        for (uint32_t j = 0; j < 8; j++)
            assert_int_equal(tell(&rig, 0, cases[i].tokens, cases[i].ns, 0), SPEC_OK);
        assert_int_equal(stats_of(&rig).compute_token_ps, 0);
        rig_done(&rig);
    }
}

static void with_another_fill_nothing_is_learnt(void **state)
{
    (void)state;
    struct rig rig;
    begin(&rig, "\"load_policy\": \"load\"");
    for (uint32_t i = 0; i < 4; i++)
        assert_int_equal(tell(&rig, 0, TOKENS, STEP_NS, 0), SPEC_OK);
    assert_int_equal(stats_of(&rig).compute_token_ps, 0);
    rig_done(&rig);
}

static void a_step_that_was_interrupted_does_not_count(void **state)
{
    (void)state;
    struct rig rig;
    begin(&rig, SPLIT);
    for (uint32_t i = 0; i < 4; i++)
        assert_int_equal(tell(&rig, 0, TOKENS, STEP_NS, 0), SPEC_OK);
    uint64_t before = stats_of(&rig).compute_token_ps;
    assert_int_equal(tell(&rig, 0, TOKENS, 30 * STEP_NS, 0), SPEC_OK);
    assert_int_equal(tell(&rig, 0, TOKENS, UINT64_MAX, 0), SPEC_OK);
    assert_int_equal(tell(&rig, 0, TOKENS, STEP_NS, 0), SPEC_OK);
    assert_int_equal(stats_of(&rig).compute_token_ps, before);
    rig_done(&rig);
}

/* An engine that computes 256 tokens a step loads beside the first step alone; what the later ones
 * take comes on top of the load. So less is worth loading than if one step computed all. */
static void prompts_of_several_steps_load_beside_the_first(void **state)
{
    (void)state;
    static const uint32_t FLAGS[] = {0, SPEC_COMPUTED_PART};
    uint64_t ends[2];
    for (uint32_t i = 0; i < 2; i++) {
        struct rig rig;
        struct prompt prompt = begin_told(&rig, TOKEN_NS, 0);
        for (uint32_t j = 0; j < 2; j++)
            assert_int_equal(tell(&rig, 0, 256, 256 * TOKEN_NS, FLAGS[i]), SPEC_OK);
        ends[i] = promised(&rig, &prompt);
        rig_end(&rig, &prompt);
    }
    assert_in_range(ends[0], TOKENS * 4 / 10, TOKENS * 6 / 10);
    assert_in_range(ends[1], 128, 320);
}

static void what_is_wrong_is_refused(void **state)
{
    (void)state;
    struct rig rig;
    struct spec_error error = {.struct_size = sizeof(error)};
    begin(&rig, SPLIT);
    assert_int_equal(tell(&rig, 0, TOKENS, STEP_NS, 2), SPEC_E_INVALID);
    assert_int_equal(sc_plugin_computed(rig.conn, NULL, &error), SPEC_E_INVALID);
    struct spec_computed step = {.struct_size = 8, .tokens = TOKENS, .ns = STEP_NS};
    assert_int_equal(sc_plugin_computed(rig.conn, &step, &error), SPEC_E_INVALID);
    assert_int_equal(stats_of(&rig).compute_token_ps, 0);
    rig_done(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_told_steps_all_is_promised),
        cmocka_unit_test(told_steps_cut_as_timed_passes_do),
        cmocka_unit_test(two_steps_are_needed),
        cmocka_unit_test(later_positions_cost_what_they_are_told_to),
        cmocka_unit_test(steps_that_say_too_little_do_not_count),
        cmocka_unit_test(with_another_fill_nothing_is_learnt),
        cmocka_unit_test(a_step_that_was_interrupted_does_not_count),
        cmocka_unit_test(prompts_of_several_steps_load_beside_the_first),
        cmocka_unit_test(what_is_wrong_is_refused),
    };
    return cmocka_run_group_tests_name("plugin_fill_told", tests, NULL, NULL);
}
