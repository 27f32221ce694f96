/* store.write_budget: passes are stored as far as it goes, upkeep waits before they do. */
#include "tests/unit/plugin/compaction_fixture.h"
#include "tests/unit/threads.h"

#define HOUR 3600000000000ull

static uint64_t over_budget(const struct rig *rig)
{
    return atomic_load(&rig->conn->stats.over_budget_chunks);
}

/* Most of a prompt does not fit: its beginning is stored, what hangs on the rest is refused, and
 * later requests store on from where the store ends. */
static void a_pass_is_stored_as_far_as_the_budget_goes(void **state)
{
    (void)state;
    struct rig rig;
    rig_begin(&rig, true, "\"store\": {\"write_budget\": \"1MiB\"}");
    struct prompt prompt = rig_prompt(1, 0, 0, 3000);
    struct spec_lookup_result result = rig_lookup(&rig, &prompt);
    assert_int_equal(rig_wait(&rig, rig_store(&rig, result.request, &prompt, 0, 2000)),
                     SPEC_E_DROPPED);
    uint64_t stored = rig_read(&rig, &prompt, NULL);
    assert_true(stored >= 640 && stored < 2000 && stored % 64 == 0);
    uint64_t over = (2000 - stored + 63) / 64;
    assert_int_equal(over_budget(&rig), over);
    assert_int_equal(rig_wait(&rig, rig_store(&rig, result.request, &prompt, 2000, 1000)),
                     SPEC_E_DROPPED);
    assert_int_equal(over_budget(&rig), over + 16);
    assert_int_equal(atomic_load(&rig.conn->stats.unadmitted_chunks), 0);
    assert_int_equal(atomic_load(&rig.conn->stats.dropped_chunks), 0);
    assert_true(store_stats(&rig).budget_left < 64 << 10);
    rig_release(&rig, result.request);
    for (uint64_t turn = 0; turn < 20 && stored < 3000; turn++) {
        rig_pass_ns(&rig, 2 * HOUR);
        result = rig_lookup(&rig, &prompt);
        assert_int_equal(result.matched_tokens, stored);
        (void)rig_wait(&rig, rig_store(&rig, result.request, &prompt, stored, 3000 - stored));
        rig_release(&rig, result.request);
        assert_true(rig_read(&rig, &prompt, NULL) > stored);
        stored = rig_read(&rig, &prompt, NULL);
    }
    assert_int_equal(stored, 3000);
    assert_int_equal(atomic_load(&rig.conn->stats.tickets_open), 0);
    rig_end(&rig, &prompt);
}

/* A restart gives nothing back; of a budget that is spent not a byte of rows is written. */
static void a_restart_does_not_fill_it(void **state)
{
    (void)state;
    struct rig rig;
    rig_begin(&rig, true, "\"store\": {\"write_budget\": \"1MiB\"}");
    struct prompt prompt = rig_prompt(2, 0, 0, 3000), other = rig_prompt(3, 0, 0, 500);
    (void)rig_fill(&rig, &prompt);
    for (uint64_t turn = 0; turn < 3; turn++) {
        rig_reopen(&rig);
        assert_int_equal(rig_fill(&rig, &other), SPEC_E_DROPPED);
        assert_int_equal(store_stats(&rig).write_bytes, 0);
        assert_int_equal(rig_read(&rig, &other, NULL), 0);
    }
    rig_end(&rig, &other, &prompt);
}

/* Decoded tokens that would become one piece a chunk stay what they are until there is enough. */
static void merges_wait_for_the_budget(void **state)
{
    (void)state;
    struct rig rig;
    rig_begin(&rig, true, "\"store\": {\"write_budget\": \"2MiB\"}");
    struct prompt prompt = rig_prompt(4, 0, 0, 128), large = rig_prompt(5, 0, 0, 3000);
    struct spec_lookup_result result = rig_lookup(&rig, &prompt);
    for (uint64_t p = 0; p < 8; p++)
        assert_int_equal(rig_wait(&rig, rig_store(&rig, result.request, &prompt, 7 * p, 7)),
                         SPEC_OK);
    (void)rig_fill(&rig, &large); /* the rest of the bucket */
    rig_release(&rig, result.request);
    settle(&rig);
    assert_int_equal(atomic_load(&rig.conn->stats.compacted_chunks), 0);
    rig_pass_ns(&rig, 4 * HOUR);
    sc_plugin_kick(rig.conn, SC_JOB_COMPACT);
    settle(&rig);
    assert_int_equal(atomic_load(&rig.conn->stats.compacted_chunks), 1);
    assert_int_equal(rig_read(&rig, &prompt, NULL), 56);
    rig_end(&rig, &large, &prompt);
}

/* Codes of what was stored without any are made when there is budget for them, and close does not
 * wait for that. */
static void codes_that_are_made_later_wait_for_the_budget(void **state)
{
    (void)state;
    struct rig rig;
    rig_begin(&rig, true, "\"store\": {\"write_budget\": \"1MiB\"}");
    struct prompt prompt = rig_prompt(6, 0, 0, 1000);
    assert_int_equal(rig_fill(&rig, &prompt), SPEC_OK);
    rig.extra = "\"preset\": \"layered-uniform\", \"store\": {\"write_budget\": \"1MiB\"}";
    for (uint64_t turn = 0; turn < 2; turn++) {
        rig_reopen(&rig);
        rig_pass_ns(&rig, HOUR / 60);
        assert_int_equal(store_stats(&rig).is_building, 1);
        assert_int_equal(store_stats(&rig).quantised_bytes, 0);
    }
    rig_pass_ns(&rig, 4 * HOUR);
    assert_int_equal(store_stats(&rig).is_building, 0);
    assert_true(store_stats(&rig).quantised_bytes > 0);
    rig_end(&rig, &prompt);
}

/* What is shared by more ranks than it has bytes is nearly nothing, not without end. */
static void ranks_share_what_there_is(void **state)
{
    (void)state;
    struct rig rig;
    rig_init(&rig, true, "\"store\": {\"write_budget\": 1}");
    rig.rank_count = 2;
    rig_open(&rig);
    struct prompt prompt = rig_prompt(7, 0, 0, 3000);
    assert_int_equal(rig_fill(&rig, &prompt), SPEC_E_DROPPED);
    assert_true(over_budget(&rig) > 0);
    rig_end(&rig, &prompt);
}

static void *fill_prompts(void *user)
{
    struct rig *rig = user;
    static _Atomic uint64_t seed;
    for (uint64_t i = 0; i < 20; i++) {
        struct prompt prompt = rig_prompt(100 + atomic_fetch_add(&seed, 1), 0, 0, 300);
        spec_status status = rig_fill(rig, &prompt);
        assert_true(status == SPEC_OK || status == SPEC_E_DROPPED || status == SPEC_E_BUSY);
        rig_prompt_free(&prompt);
    }
    return NULL;
}

static void several_threads_share_it(void **state)
{
    (void)state;
    struct rig rig;
    rig_begin(&rig, false, "\"store\": {\"write_budget\": \"4MiB\"}");
    threads_run(fill_prompts, &rig, 0, 4);
    rig_settle(&rig);
    struct sc_store_stats stats = store_stats(&rig);
    assert_true(stats.write_bytes > 1 << 19 && stats.write_bytes <= (1 << 20) + (64 << 10));
    assert_true(over_budget(&rig) > 0);
    rig_done(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_pass_is_stored_as_far_as_the_budget_goes),
        cmocka_unit_test(a_restart_does_not_fill_it),
        cmocka_unit_test(merges_wait_for_the_budget),
        cmocka_unit_test(codes_that_are_made_later_wait_for_the_budget),
        cmocka_unit_test(ranks_share_what_there_is),
        cmocka_unit_test(several_threads_share_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
