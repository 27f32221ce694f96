/* Eviction in several processes that store: what any of them uses stays, and nothing stays for a
 * word in shared memory that nobody wrote any more. Here: connectors of one process, each with a
 * virtual clock of its own, which move together. */
#include "tests/sim/io_sim_disk.h"
#include "tests/unit/plugin/plugin_fixture.h"

#define SECOND_NS UINT64_C(1000000000)
#define TOKENS    64u
#define FLOOD     400u /* prompts: twice what the disk holds */

/* Rows of 1 KiB, two layers: a prompt takes 128 KiB. */
#define CONFIG                                                                                     \
    "\"disk_bytes\": \"24MiB\", \"segment_bytes\": \"1MiB\", \"chunk_tokens\": 16, "               \
    "\"lease_ns_max\": %s, \"evict\": {\"policy\": \"%s\"}, \"store\": {\"writers\": \"many\"}"

struct pair {
    struct rig a, b;
    char config[400];
    uint64_t next; /* prompt of the flood */
    uint64_t stored, refused;
};

static void pair_pass(struct pair *pair, uint64_t ns)
{
    rig_pass_ns(&pair->a, ns);
    rig_pass_ns(&pair->b, ns);
}

/* B opens beside A: of the same model, or of one whose rows are as long. */
static void b_open(struct pair *pair, bool is_other_model)
{
    rig_beside(&pair->b, &pair->a, SPEC_ROLE_AUTO, 0);
    if (is_other_model)
        rig_shape(&pair->b, 2, 4, 32, SPEC_DTYPE_F32);
    rig_open(&pair->b);
    rig_pass_ns(&pair->b, sc_exec_now_ns(pair->a.conn->exec) - sc_exec_now_ns(pair->b.conn->exec));
    pair_pass(pair, SECOND_NS);
    assert_true(sc_plugin_can_store(pair->a.conn) && sc_plugin_can_store(pair->b.conn));
}

static void a_open(struct pair *pair, const char *policy, const char *lease_ns)
{
    memset(pair, 0, sizeof(*pair));
    pair->next = 1000;
    (void)snprintf(pair->config, sizeof(pair->config), CONFIG, lease_ns, policy);
    rig_begin_shape(&pair->a, true, pair->config, 2, 2, 64, SPEC_DTYPE_F32);
}

static void pair_open(struct pair *pair, const char *policy, const char *lease_ns)
{
    a_open(pair, policy, lease_ns);
    b_open(pair, false);
}

static void pair_close(struct pair *pair)
{
    rig_leave(&pair->b);
    rig_done(&pair->a);
}

static spec_status fill(struct rig *rig, uint64_t seed)
{
    struct prompt prompt = rig_prompt(seed, 0, 0, TOKENS);
    spec_status status = rig_fill(rig, &prompt);
    rig_prompt_free(&prompt);
    rig_background(rig);
    return status;
}

static uint64_t matched(struct rig *rig, uint64_t seed)
{
    struct prompt prompt = rig_prompt(seed, 0, 0, TOKENS);
    uint64_t count = rig_matched(rig, &prompt);
    rig_prompt_free(&prompt);
    return count;
}

/* One of them stores one prompt after the other. */
static void flood_by(struct pair *pair, struct rig *rig, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        spec_status status = fill(rig, pair->next++);
        assert_true(status == SPEC_OK || status == SPEC_E_NO_SPACE);
        pair->stored += status == SPEC_OK;
        pair->refused += status != SPEC_OK;
        pair_pass(pair, SECOND_NS / 10);
    }
}

static void flood(struct pair *pair, uint64_t count)
{
    flood_by(pair, &pair->b, count);
}

static const char *const policies[] = {"value", "lru", "lfu"};
#define POLICIES 3u

/* A looks a prompt up that B never uses, while B stores twice what fits; one that A used once goes.
 */
static void what_another_uses_stays(void **state)
{
    (void)state;
    for (uint32_t p = 0; p < POLICIES; p++) {
        struct pair pair;
        pair_open(&pair, policies[p], "2000000000");
        assert_int_equal(fill(&pair.a, 1), SPEC_OK);
        assert_int_equal(fill(&pair.a, 2), SPEC_OK);
        assert_int_equal(matched(&pair.a, 2), TOKENS);
        for (uint64_t i = 0; i < FLOOD; i += 5) {
            assert_int_equal(matched(&pair.a, 1), TOKENS);
            flood(&pair, 5);
        }
        assert_int_equal(matched(&pair.a, 1), TOKENS);
        assert_int_equal(matched(&pair.b, 1), TOKENS);
        if (strcmp(policies[p], "lfu") != 0) /* which evicts the flood first: it was used once */
            assert_true(matched(&pair.a, 2) < TOKENS);
        assert_true(pair.stored > FLOOD / 2); /* leases delay what is dropped */
        pair_close(&pair);
    }
}

/* A request that is open, and asks for nothing, keeps its match; when it ends that becomes old. */
static void an_open_request_keeps_its_match_young(void **state)
{
    (void)state;
    struct pair pair;
    pair_open(&pair, "value", "2000000000");
    assert_int_equal(fill(&pair.a, 1), SPEC_OK);
    struct prompt prompt = rig_prompt(1, 0, 0, TOKENS);
    struct spec_lookup_result result = rig_lookup(&pair.a, &prompt);
    flood(&pair, FLOOD);
    assert_int_equal(matched(&pair.b, 1), TOKENS);
    rig_load_all(&pair.a, result.request, &prompt, 0, result.matched_tokens);
    rig_release(&pair.a, result.request);
    rig_prompt_free(&prompt);
    flood(&pair, FLOOD);
    assert_true(matched(&pair.b, 1) < TOKENS);
    pair_close(&pair);
}

/* All that fits was used within a lease: a pass is refused, and its repetition stored. */
static void what_all_use_is_evicted_for_who_asks_twice(void **state)
{
    (void)state;
    struct pair pair;
    uint64_t wanted = 0;
    pair_open(&pair, "lru", "60000000000");
    flood(&pair, 240);
    for (uint64_t seed = 1000; seed < pair.next; seed++) /* all that is there is in use */
        (void)matched(&pair.a, seed);
    pair.stored = pair.refused = 0;
    for (uint32_t round = 0; round < 60 && pair.stored < 20; round++) {
        flood(&pair, 1);
        pair_pass(&pair, 2 * SECOND_NS);
        wanted++;
    }
    assert_true(pair.stored >= 20); /* it is a minute until what was dropped may be overwritten */
    assert_true(wanted > 20);
    pair_close(&pair);
}

/* Whatever is in the words, B stores, and what it uses itself stays. */
static void noise_in_the_words_costs_a_victim_at_most(void **state)
{
    (void)state;
    const uint64_t kinds[] = {1, UINT32_MAX, 0x9E3779B97F4A7C15, 7};
    for (uint32_t kind = 0; kind < 4; kind++) {
        struct pair pair;
        uint64_t random = kinds[kind];
        pair_open(&pair, "value", "500000000");
        assert_int_equal(fill(&pair.b, 1), SPEC_OK);
        for (uint64_t i = 0; i < FLOOD; i += 10) {
            struct sc_sim_map *map = pair.a.disk->maps;
            assert_non_null(map);
            for (uint64_t at = 0; at + 4 <= map->bytes; at += 4) {
                uint32_t word = (uint32_t)kinds[kind];
                random = rig_mix(random);
                word = kind >= 2 ? (uint32_t)random : word;
                word =
                    kind == 3 ? (uint32_t)(sc_exec_wall_ns(pair.b.conn->exec) / SECOND_NS) : word;
                memcpy(map->memory + at, &word, sizeof(word));
            }
            assert_int_equal(matched(&pair.b, 1), TOKENS);
            flood(&pair, 10);
        }
        assert_true(pair.stored > FLOOD / 2);
        pair_close(&pair);
    }
}

/* ---- Two models ------------------------------------------------------------------------------ */

static uint64_t whole_count(struct rig *rig, uint64_t first, uint64_t count)
{
    uint64_t whole = 0;
    for (uint64_t seed = first; seed < first + count; seed++)
        whole += matched(rig, seed) == TOKENS;
    return whole;
}

#define USED   10u
#define UNUSED 60u

/* Model B stores twice what the disk holds: what A uses stays, what A used once goes. Then A does,
 * beside what B uses. */
static void two_models_keep_what_they_use(void **state)
{
    (void)state;
    for (uint32_t p = 0; p < POLICIES; p++) {
        struct pair pair;
        a_open(&pair, policies[p], "1000000000");
        b_open(&pair, true);
        for (uint64_t seed = 1; seed <= USED + UNUSED; seed++)
            assert_int_equal(fill(&pair.a, seed), SPEC_OK);
        pair_pass(&pair, 5 * SECOND_NS);
        for (uint64_t i = 0; i < FLOOD; i += 10) {
            assert_int_equal(whole_count(&pair.a, 1, USED), USED);
            flood(&pair, 10);
        }
        assert_true(whole_count(&pair.a, USED + 1, UNUSED) < UNUSED / 2);
        assert_true(pair.stored > FLOOD / 2);
        uint64_t used = pair.next - USED;
        pair.stored = 0;
        uint64_t before = whole_count(&pair.b, used, USED);
        assert_true(before > 0);
        for (uint64_t i = 0; i < FLOOD; i += 10) {
            assert_int_equal(whole_count(&pair.b, used, USED), before);
            flood_by(&pair, &pair.a, 10);
        }
        assert_true(pair.stored > FLOOD / 2);
        pair_close(&pair);
    }
}

/* One model has filled the disk, and uses all of it; then another comes, and both store. */
static void a_second_model_finds_room(void **state)
{
    (void)state;
    struct pair pair;
    a_open(&pair, "value", "1000000000");
    rig_pass_ns(&pair.a, SECOND_NS);
    for (uint64_t seed = 1; seed <= 240; seed++) {
        (void)fill(&pair.a, seed);
        rig_pass_ns(&pair.a, SECOND_NS / 20);
    }
    b_open(&pair, true);
    for (uint64_t i = 0; i < 200; i++) {
        (void)whole_count(&pair.a, 1, 240);
        flood(&pair, 1);
    }
    assert_true(pair.stored > 20);
    for (uint32_t i = 0; i < 100; i++) { /* both fill it */
        flood(&pair, 2);
        flood_by(&pair, &pair.a, 2);
    }
    pair.stored = 0;
    flood(&pair, 50);
    assert_true(pair.stored > 20);
    pair.stored = 0;
    flood_by(&pair, &pair.a, 50);
    assert_true(pair.stored > 20);
    pair_close(&pair);
}

/* Nobody evicts for a model whose last member ended; what it stored is evicted first. */
static void rows_of_a_model_that_ended_go_first(void **state)
{
    (void)state;
    struct pair pair;
    a_open(&pair, "value", "1000000000");
    b_open(&pair, true);
    for (uint64_t seed = 1; seed <= UNUSED; seed++)
        assert_int_equal(fill(&pair.a, seed), SPEC_OK);
    assert_int_equal(fill(&pair.b, 1), SPEC_OK);
    rig_close(&pair.a);
    rig_pass_ns(&pair.b, 20 * SECOND_NS);
    for (uint64_t i = 0; i < FLOOD / 4; i++) {
        (void)fill(&pair.b, pair.next++);
        rig_pass_ns(&pair.b, SECOND_NS / 10);
    }
    assert_int_equal(matched(&pair.b, 1), TOKENS); /* its own first one, never used since */
    rig_open(&pair.a);
    assert_true(whole_count(&pair.a, 1, UNUSED) < UNUSED / 2);
    pair_close(&pair);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_another_uses_stays),
        cmocka_unit_test(an_open_request_keeps_its_match_young),
        cmocka_unit_test(what_all_use_is_evicted_for_who_asks_twice),
        cmocka_unit_test(noise_in_the_words_costs_a_victim_at_most),
        cmocka_unit_test(two_models_keep_what_they_use),
        cmocka_unit_test(a_second_model_finds_room),
        cmocka_unit_test(rows_of_a_model_that_ended_go_first),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
