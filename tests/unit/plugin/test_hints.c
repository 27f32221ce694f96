/* Hints of a lookup: what is to be retained stays, what has a low priority goes first. */
#include "tests/unit/plugin/plugin_fixture.h"
#include "tests/unit/threads.h"

#define SMALL                                                                                      \
    "\"disk_bytes\": \"4MiB\", \"segment_bytes\": \"1MiB\", \"chunk_tokens\": 16, "                \
    "\"lease_ns_max\": 0"
#define TOKENS 160u /* 320 KiB */

/* Rows of 1 KiB, two layers. */
static void open_small(struct rig *rig, bool is_sim)
{
    rig_begin_shape(rig, is_sim, SMALL, 2, 2, 64, SPEC_DTYPE_F32);
}

static struct spec_lookup_result lookup_as(struct rig *rig, const struct prompt *prompt,
                                           uint64_t retain_s, int64_t priority)
{
    struct spec_lookup_params params = {.struct_size = sizeof(params),
                                        .tokens = prompt->tokens,
                                        .token_count = prompt->count,
                                        .max_tokens = prompt->count,
                                        .retain_s = retain_s,
                                        .priority = priority};
    struct spec_lookup_result result = rig_lookup_as(rig, &params);
    return result;
}

/* Stores what is not there of the prompt, as a host with these hints. */
static spec_status fill_as(struct rig *rig, uint64_t seed, uint64_t retain_s, int64_t priority)
{
    struct prompt prompt = rig_prompt(seed, 0, 0, TOKENS);
    struct spec_lookup_result result = lookup_as(rig, &prompt, retain_s, priority);
    uint64_t first = result.matched_tokens;
    spec_status status = SPEC_OK;
    if (first < TOKENS)
        status = rig_wait(rig, rig_store(rig, result.request, &prompt, first, TOKENS - first));
    rig_release(rig, result.request);
    rig_prompt_free(&prompt);
    if (!sc_exec_is_loop(rig->conn->exec))
        return status;
    rig_background(rig);
    return status;
}

/* So far is it stored. It is a use, of the lowest priority. */
static uint64_t stored(struct rig *rig, uint64_t seed)
{
    struct prompt prompt = rig_prompt(seed, 0, 0, TOKENS);
    struct spec_lookup_result result = lookup_as(rig, &prompt, 0, -3);
    uint64_t tokens = result.stored_tokens;
    rig_release(rig, result.request);
    rig_prompt_free(&prompt);
    return tokens;
}

static void what_is_retained_outlives_what_came_later(void **state)
{
    (void)state;
    struct rig rig;
    open_small(&rig, true);
    assert_int_equal(fill_as(&rig, 1, 60, 0), SPEC_OK);
    assert_int_equal(fill_as(&rig, 2, 0, 0), SPEC_OK);
    for (uint64_t seed = 100; seed < 130; seed++)
        (void)fill_as(&rig, seed, 0, 0);
    assert_int_equal(stored(&rig, 1), TOKENS);
    assert_int_equal(stored(&rig, 2), 0);
    rig_pass_ns(&rig, 80ull * 1000000000u); /* its time is over */
    for (uint64_t seed = 200; seed < 230; seed++)
        (void)fill_as(&rig, seed, 0, 0);
    assert_int_equal(stored(&rig, 1), 0);
    rig_check_index(&rig);
    rig_done(&rig);
}

/* A match renews, as a store does. */
static void a_match_with_a_hint_renews(void **state)
{
    (void)state;
    struct rig rig;
    open_small(&rig, true);
    assert_int_equal(fill_as(&rig, 1, 30, 0), SPEC_OK);
    for (uint64_t turn = 0; turn < 4; turn++) {
        rig_pass_ns(&rig, 25ull * 1000000000u);
        assert_int_equal(fill_as(&rig, 1, 30, 0), SPEC_OK);
        for (uint64_t seed = 0; seed < 15; seed++)
            (void)fill_as(&rig, 100 + turn * 15 + seed, 0, 0);
        assert_int_equal(stored(&rig, 1), TOKENS);
    }
    rig_done(&rig);
}

/* A stream of low priority takes what is free and goes again; what is usual stays, whatever its
 * age. */
static void a_low_priority_evicts_nothing_usual(void **state)
{
    (void)state;
    struct rig rig;
    open_small(&rig, true);
    for (uint64_t seed = 1; seed <= 2; seed++)
        assert_int_equal(fill_as(&rig, seed, 0, 0), SPEC_OK);
    for (uint64_t seed = 100; seed < 140; seed++)
        (void)fill_as(&rig, seed, 0, -2);
    for (uint64_t seed = 1; seed <= 2; seed++)
        assert_int_equal(stored(&rig, seed), TOKENS);
    uint64_t found = 0; /* and it finds room */
    for (uint64_t seed = 100; seed < 140; seed++)
        found += stored(&rig, seed) > 0;
    assert_true(found > 0);
    for (uint64_t seed = 200; seed < 215; seed++)
        (void)fill_as(&rig, seed, 0, 1);
    for (uint64_t seed = 1; seed <= 2; seed++)
        assert_int_equal(stored(&rig, seed), 0);
    rig_check_index(&rig);
    rig_done(&rig);
}

/* All that there is shall be retained: who is to be retained longer finds room all the same. */
static void a_store_full_of_what_is_retained_makes_room(void **state)
{
    (void)state;
    struct rig rig;
    open_small(&rig, true);
    uint64_t refused = 0;
    for (uint64_t seed = 1; seed <= 40; seed++)
        refused += fill_as(&rig, seed, 1000 + seed, 3) != SPEC_OK;
    assert_true(refused < 25);            /* as many as without hints */
    assert_int_equal(stored(&rig, 1), 0); /* its time would have been over first */
    rig_reopen(&rig);                     /* hints end here */
    uint64_t taken = 0;
    for (uint64_t seed = 200; seed < 215; seed++)
        taken += fill_as(&rig, seed, 0, 0) == SPEC_OK;
    assert_true(taken > 3);
    assert_int_equal(stored(&rig, 40), 0);
    rig_check_index(&rig);
    rig_done(&rig);
}

#define LEASED                                                                                     \
    "\"disk_bytes\": \"4MiB\", \"segment_bytes\": \"1MiB\", \"chunk_tokens\": 16, "                \
    "\"lease_ns_max\": "

static const struct {
    const char *config;
    uint64_t step_ns; /* between two passes: many are stored within an eighth of a lease */
} LEASES[] = {{LEASED "0", 1000000},
              {LEASED "1000000000", 10000000},
              {LEASED "1000000000", 100000000},
              {LEASED "30000000000", 300000000},
              {LEASED "30000000000", 3000000000}};
#define LEASE_COUNT (sizeof(LEASES) / sizeof(LEASES[0]))

static void open_leased(struct rig *rig, uint64_t number)
{
    rig_begin_shape(rig, true, LEASES[number].config, 2, 2, 64, SPEC_DTYPE_F32);
}

/* ---- What would be evicted for itself ------------------------------------------------------- */

static const struct hint {
    uint64_t retain_s;
    int64_t priority;
} NONE = {0, 0}, LOW = {0, -1}, HIGH = {0, 2}, RETAINED = {1000, 0}, RETAINED_LONG = {100000, -3};

/* Stores prompts until one finds no room, or 40; returns behind the last. */
static uint64_t fill_up(struct rig *rig, uint64_t seed, struct hint hint)
{
    uint64_t end = seed + 40, evicted = atomic_load(&rig->conn->stats.evicted_chunks);
    while (seed < end && atomic_load(&rig->conn->stats.evicted_chunks) == evicted)
        (void)fill_as(rig, seed++, hint.retain_s, hint.priority);
    assert_true(seed < end);
    return seed;
}

static uint64_t stored_of(struct rig *rig, uint64_t seed, uint64_t end)
{
    uint64_t tokens = 0;
    for (; seed < end; seed++)
        tokens += stored(rig, seed);
    return tokens;
}

static uint64_t write_bytes(struct rig *rig)
{
    return rig_store_stats(rig).write_bytes;
}

/* At most a beginning of the pass is stored, in what is free or for which its like goes, and stays;
 * its ticket says why. Then nothing is written and nothing goes, however often it is tried. */
static void check_refused(struct rig *rig, uint64_t seed, struct hint hint)
{
    for (uint32_t i = 0; i < 3; i++)
        assert_int_equal(fill_as(rig, seed, hint.retain_s, hint.priority), SPEC_E_NO_SPACE);
    uint64_t evicted = atomic_load(&rig->conn->stats.evicted_chunks);
    uint64_t begin = stored(rig, seed), before = write_bytes(rig);
    uint64_t dropped = atomic_load(&rig->conn->stats.dropped_chunks);
    assert_true(begin < TOKENS && begin % 16 == 0);
    for (uint32_t i = 0; i < 20; i++) {
        assert_int_equal(fill_as(rig, seed, hint.retain_s, hint.priority), SPEC_E_NO_SPACE);
        rig_pass_ns(rig, 10000000);
    }
    assert_int_equal(write_bytes(rig), before);
    assert_int_equal(atomic_load(&rig->conn->stats.evicted_chunks), evicted);
    assert_int_equal(atomic_load(&rig->conn->stats.dropped_chunks),
                     dropped + 20 * (TOKENS - begin) / 16);
    assert_int_equal(stored(rig, seed), begin);
}

/* The disk is full of what is evicted later. Leases of all lengths. */
static void what_would_be_the_next_victim_is_refused(void **state)
{
    (void)state;
    const struct hint PAIRS[][2] = {{NONE, LOW},      {HIGH, NONE},     {HIGH, LOW},
                                    {RETAINED, HIGH}, {RETAINED, NONE}, {RETAINED_LONG, RETAINED}};
    static const uint64_t CONFIGS[] = {0, 2, 4};
    for (uint64_t i = 0; i < 3 * sizeof(PAIRS) / sizeof(PAIRS[0]); i++) {
        const struct hint *pair = PAIRS[i / 3];
        struct rig rig;
        open_leased(&rig, CONFIGS[i % 3]);
        uint64_t end = fill_up(&rig, 1, pair[0]), taken = 0;
        rig_pass_ns(&rig, rig.conn->config.lease_ns_max / 8 * 10);
        uint64_t there = stored_of(&rig, 1, end);
        for (uint64_t seed = 1000; seed < 1004; seed++)
            check_refused(&rig, seed, pair[1]);
        assert_int_equal(stored_of(&rig, 1, end), there);
        for (uint64_t seed = end; seed < end + 6; seed++) { /* its like finds room */
            taken += fill_as(&rig, seed, pair[0].retain_s, pair[0].priority) == SPEC_OK;
            rig_pass_ns(&rig, rig.conn->config.lease_ns_max / 8 * 10);
        }
        assert_true(taken > 1);
        rig_check_index(&rig);
        rig_done(&rig);
    }
}
/* What a request stored before does not go for what it stores now: that hangs on it. */
static void a_request_that_goes_on_stores_what_stays(void **state)
{
    (void)state;
    struct rig rig;
    open_leased(&rig, 0);
    (void)fill_up(&rig, 1, NONE);
    struct prompt prompt = rig_prompt(1000, 0, 0, TOKENS);
    struct spec_lookup_result result = lookup_as(&rig, &prompt, 0, -1);
    uint64_t evicted = atomic_load(&rig.conn->stats.evicted_chunks), taken = 0, first = 0;
    for (; first < TOKENS; first += 16) {
        spec_status status = rig_wait(&rig, rig_store(&rig, result.request, &prompt, first, 16));
        rig_background(&rig);
        assert_true(status == SPEC_OK || status == SPEC_E_NO_SPACE);
        assert_true(status != SPEC_OK || taken == first); /* nothing behind what was refused */
        taken += status == SPEC_OK ? 16 : 0;
    }
    assert_true(taken < TOKENS);
    assert_int_equal(atomic_load(&rig.conn->stats.evicted_chunks), evicted);
    rig_release(&rig, result.request);
    assert_int_equal(stored(&rig, 1000), taken);
    rig_prompt_free(&prompt);
    rig_done(&rig);
}

/* Of passes that stand at the same place each finds room, and is there when it has been stored. */
static void among_equals_what_was_stored_is_there(void **state)
{
    (void)state;
    static const struct hint HINTS[] = {{0, 0}, {0, -1}, {0, 2}, {1000, 0}};
    static const char *const POLICIES[] = {"lru", "value", "lfu"};
    for (uint64_t i = 0; i < 12; i++) {
        struct rig rig;
        char config[256];
        struct hint hint = HINTS[i / 3];
        (void)snprintf(config, sizeof(config), SMALL ", \"evict\": {\"policy\": \"%s\"}",
                       POLICIES[i % 3]);
        rig_begin_shape(&rig, true, config, 2, 2, 64, SPEC_DTYPE_F32);
        uint64_t taken = 0;
        for (uint64_t seed = 1; seed <= 40; seed++) {
            if (fill_as(&rig, seed, hint.retain_s, hint.priority) != SPEC_OK)
                continue;
            struct prompt prompt = rig_prompt(seed, 0, 0, TOKENS);
            struct spec_lookup_result result =
                lookup_as(&rig, &prompt, hint.retain_s, hint.priority);
            assert_int_equal(result.stored_tokens, TOKENS);
            rig_release(&rig, result.request);
            rig_prompt_free(&prompt);
            taken++;
        }
        assert_true(taken > 15);
        rig_check_index(&rig);
        rig_done(&rig);
    }
}

/* ---- Retained prefixes and new ones --------------------------------------------------------- */

/* Many passes, several times what fits, tried again where there was no room. Returns how many were
 * stored. */
static uint64_t stream(struct rig *rig, uint64_t seed, uint64_t count, int64_t priority,
                       uint64_t step_ns)
{
    uint64_t taken = 0;
    for (uint64_t i = 0; i < count; i++) {
        taken += fill_as(rig, seed + i, 0, priority) == SPEC_OK;
        rig_pass_ns(rig, step_ns);
    }
    return taken;
}

/* However new what is not retained is, and however long leases are. */
static void what_is_retained_outlives_what_is_new(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < LEASE_COUNT; i++) {
        struct rig rig;
        open_leased(&rig, i);
        assert_int_equal(fill_as(&rig, 1, 100000, 0), SPEC_OK);
        assert_int_equal(fill_as(&rig, 2, 0, 2), SPEC_OK);
        assert_true(stream(&rig, 100, 60, 0, LEASES[i].step_ns) > 2);
        assert_int_equal(stored(&rig, 1), TOKENS);
        assert_int_equal(stored(&rig, 2), TOKENS);
        (void)stream(&rig, 200, 60, 0, LEASES[i].step_ns);
        assert_int_equal(stored(&rig, 1), TOKENS);
        assert_int_equal(stored(&rig, 2), TOKENS);
        rig_check_index(&rig);
        rig_done(&rig);
    }
}

/* A third of the disk is retained; whatever the other passes of a lease take, they take it of the
 * rest. A retained pass makes them give way, however new they are. */
static void demand_evicts_nothing_of_a_higher_class(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < LEASE_COUNT; i++) {
        struct rig rig;
        open_leased(&rig, i);
        uint64_t lease_ns = rig.conn->config.lease_ns_max / 8 * 10 + 1;
        for (uint64_t seed = 1; seed <= 2; seed++)
            assert_int_equal(fill_as(&rig, seed, 100000, -3), SPEC_OK);
        assert_true(stream(&rig, 100, 80, 3, LEASES[i].step_ns) > 0);
        for (uint64_t seed = 1; seed <= 2; seed++)
            assert_int_equal(stored(&rig, seed), TOKENS);
        rig_pass_ns(&rig, lease_ns);
        (void)stream(&rig, 200, 8, 3, LEASES[i].step_ns);
        uint32_t tries = 0; /* the first ones ask */
        while (fill_as(&rig, 3, 100000, 0) != SPEC_OK && tries++ < 3)
            rig_pass_ns(&rig, lease_ns);
        for (uint64_t seed = 1; seed <= 3; seed++)
            assert_int_equal(stored(&rig, seed), TOKENS);
        rig_check_index(&rig);
        rig_done(&rig);
    }
}

static void hints_are_checked(void **state)
{
    (void)state;
    struct rig rig;
    open_small(&rig, true);
    struct prompt prompt = rig_prompt(1, 0, 0, TOKENS);
    static const int64_t WRONG[] = {-4, 4, INT64_MAX, INT64_MIN};
    struct spec_lookup_params params = {
        .struct_size = sizeof(params), .tokens = prompt.tokens, .token_count = TOKENS};
    struct spec_lookup_result result = {.struct_size = sizeof(result)};
    for (uint32_t i = 0; i < 4; i++) {
        params.priority = WRONG[i];
        assert_int_equal(sc_plugin_lookup(rig.conn, &params, &result, NULL), SPEC_E_INVALID);
    }
    params.priority = 3;
    params.retain_s = UINT64_MAX;
    assert_int_equal(sc_plugin_lookup(rig.conn, &params, &result, NULL), SPEC_OK);
    rig_release(&rig, result.request);
    params.struct_size = offsetof(struct spec_lookup_params, retain_s); /* an older host */
    params.priority = 77;
    assert_int_equal(sc_plugin_lookup(rig.conn, &params, &result, NULL), SPEC_OK);
    rig_release(&rig, result.request);
    rig_end(&rig, &prompt);
}

struct caller {
    struct rig *rig;
    uint64_t seed;
};

static void *fill_many(void *user)
{
    struct caller *own = user;
    for (uint64_t i = 0; i < 40; i++) {
        spec_status status = fill_as(own->rig, own->seed + rig_mix(own->seed + i) % 12, i % 3 * 20,
                                     (int64_t)(i % 7) - 3);
        assert_true(status == SPEC_OK || status == SPEC_E_DROPPED || status == SPEC_E_BUSY ||
                    status == SPEC_E_NO_SPACE);
    }
    return NULL;
}

static void several_threads_hint_beside_evictions(void **state)
{
    (void)state;
    struct rig rig;
    open_small(&rig, false);
    struct caller callers[4];
    for (uint64_t i = 0; i < 4; i++)
        callers[i] = (struct caller){&rig, 10 * i};
    threads_run(fill_many, callers, sizeof(callers[0]), 4);
    rig_settle(&rig);
    rig_background(&rig);
    rig_check_index(&rig);
    rig_done(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_retained_outlives_what_came_later),
        cmocka_unit_test(a_match_with_a_hint_renews),
        cmocka_unit_test(a_low_priority_evicts_nothing_usual),
        cmocka_unit_test(a_store_full_of_what_is_retained_makes_room),
        cmocka_unit_test(what_would_be_the_next_victim_is_refused),
        cmocka_unit_test(a_request_that_goes_on_stores_what_stays),
        cmocka_unit_test(among_equals_what_was_stored_is_there),
        cmocka_unit_test(what_is_retained_outlives_what_is_new),
        cmocka_unit_test(demand_evicts_nothing_of_a_higher_class),
        cmocka_unit_test(hints_are_checked),
        cmocka_unit_test(several_threads_hint_beside_evictions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
