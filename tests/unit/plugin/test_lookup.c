/* lookup: what the store holds beside what is promised, and lookups that leave no request.
 *
 * Each connector has a loop and a virtual clock of its own. Threads: one, but for the last test. */
#include "tests/unit/plugin/plugin_fixture.h"
#include "tests/unit/threads.h"

#define TURN UINT64_C(30000000) /* 25 ms between looks at a log */

static struct spec_lookup_result find(struct rig *rig, const struct prompt *prompt, uint64_t from,
                                      uint32_t flags)
{
    struct spec_lookup_params params = rig_lookup_params(prompt, from, RIG_MAX, flags);
    struct spec_lookup_result result = rig_lookup_as(rig, &params);
    if (result.request != 0)
        rig_release(rig, result.request);
    return result;
}

static void open_filled(struct rig *rig, const char *extra, const struct prompt *prompt)
{
    rig_begin(rig, true, extra);
    assert_int_equal(rig_fill(rig, prompt), SPEC_OK);
}

/* ---- stored_tokens --------------------------------------------------------------------------- */

static void the_store_has_what_every_rank_has(void **state)
{
    (void)state;
    static const uint64_t HAS[] = {300, 130, 210}, FROM[] = {0, 100, 130, 250, 299, 300};
    struct rig ranks[3];
    struct prompt prompt = rig_prompt(1, 0, 0, 300);
    rig_init(&ranks[0], true, "\"disk_bytes\": \"64MiB\", \"segment_bytes\": \"8MiB\"");
    ranks[0].rank_count = 3;
    for (uint32_t i = 1; i < 3; i++)
        rig_beside(&ranks[i], &ranks[0], SPEC_ROLE_WRITER, i);
    for (uint32_t i = 0; i < 3; i++) {
        struct prompt part = {HAS[i], prompt.tokens, prompt.history};
        rig_open(&ranks[i]);
        struct spec_lookup_result result = rig_lookup(&ranks[i], &part);
        assert_int_equal(
            rig_wait(&ranks[i], rig_store(&ranks[i], result.request, &part, 0, part.count)),
            SPEC_OK);
        rig_release(&ranks[i], result.request);
        assert_int_equal(find(&ranks[i], &prompt, 200, 0).stored_tokens, i < 2 ? 0 : 130);
    }
    for (uint32_t i = 0; i < 3; i++) {
        rig_pass_ns(&ranks[i], TURN);
        for (uint32_t j = 0; j < sizeof(FROM) / sizeof(FROM[0]); j++) {
            struct spec_lookup_result result = find(&ranks[i], &prompt, FROM[j], 0);
            assert_int_equal(result.stored_tokens, 130);
            assert_int_equal(result.matched_tokens, FROM[j] > 130 ? FROM[j] : 130);
        }
    }
    rig_leave(&ranks[2]);
    rig_leave(&ranks[1]);
    rig_end(&ranks[0], &prompt);
}

static void who_needs_exact_rows_is_told_of_those(void **state)
{
    (void)state;
    struct rig rig;
    struct prompt prompt = rig_prompt(2, 0, 0, 192);
    struct prompt front = {128, prompt.tokens, prompt.history};
    open_filled(&rig, "", &front);
    struct spec_lookup_result held = rig_lookup(&rig, &prompt);
    sc_plugin_request_find(rig.conn, held.request)->delivered =
        (struct spec_provenance){.kind = SPEC_PROVENANCE_LOSSY, .bits_k = 4, .bits_v = 4};
    assert_int_equal(rig_wait(&rig, rig_store(&rig, held.request, &prompt, 128, 64)), SPEC_OK);
    for (uint64_t from = 0; from <= 192; from += 48) {
        struct spec_lookup_result result = find(&rig, &prompt, from, SPEC_LOOKUP_REQUIRE_EXACT);
        assert_int_equal(result.stored_tokens, 128);
        assert_int_equal(result.matched_tokens, from > 128 ? from : 128);
        assert_int_equal(find(&rig, &prompt, from, 0).stored_tokens, 192);
    }
    rig_release(&rig, held.request);
    rig_end(&rig, &prompt);
}

static void what_a_request_has_no_room_for_is_not_told(void **state)
{
    (void)state;
    struct rig rig;
    struct prompt prompt = rig_prompt(3, 0, 0, 300);
    open_filled(&rig, "", &prompt);
    rig.conn->requests.segments_max = 2; /* of five */
    for (uint64_t from = 0; from <= 300; from += 100) {
        struct spec_lookup_result result = find(&rig, &prompt, from, 0);
        assert_int_equal(result.stored_tokens, 128);
        assert_int_equal(result.matched_tokens, from > 128 ? from : 128);
    }
    rig_end(&rig, &prompt);
}

static bool has_free_leaf(struct rig *rig)
{
    struct sc_radix_segment leaf;
    pthread_mutex_lock(&rig->conn->index.lock);
    bool has = sc_radix_victim(rig->conn->radix, &leaf);
    pthread_mutex_unlock(&rig->conn->index.lock);
    return has;
}

/* What it will be stored behind must not go before it comes. */
static void what_a_miss_is_stored_behind_stays_until_release(void **state)
{
    (void)state;
    struct rig rig;
    struct prompt whole = rig_prompt(4, 0, 0, 300);
    struct prompt start = {128, whole.tokens, whole.history};
    open_filled(&rig, "", &start);
    struct spec_lookup_result result = rig_lookup_from(&rig, &whole, 300);
    assert_int_equal(result.state, SPEC_LOOKUP_MISS);
    assert_int_equal(result.stored_tokens, 128);
    assert_false(has_free_leaf(&rig));
    assert_int_equal(rig_maintain(&rig, SPEC_MAINTAIN_EVICT), SPEC_OK);
    rig_background(&rig);
    assert_int_equal(rig_wait(&rig, rig_store(&rig, result.request, &whole, 128, 172)), SPEC_OK);
    rig_release(&rig, result.request);
    assert_true(has_free_leaf(&rig));
    assert_int_equal(rig_read(&rig, &whole, NULL), 300);
    rig_end(&rig, &whole);
}

/* ---- Peeks ----------------------------------------------------------------------------------- */

static void assert_all_free(struct rig *rig)
{
    for (uint32_t i = 0; i < rig->conn->config.max_requests + SC_PLUGIN_PEEKS; i++) {
        assert_int_equal(sc_plugin_request_phase(&rig->conn->requests.slots[i]), SC_REQUEST_FREE);
        assert_int_equal(atomic_load(&rig->conn->requests.slots[i].piece_last), UINT64_MAX);
    }
    assert_int_equal(atomic_load(&rig->conn->stats.requests_open), 0);
}

static void a_peek_says_what_a_lookup_says_and_leaves_nothing(void **state)
{
    (void)state;
    struct rig rig;
    struct prompt whole = rig_prompt(5, 0, 0, 300);
    struct prompt start = {200, whole.tokens, whole.history};
    open_filled(&rig, "", &start);
    for (uint64_t from = 0; from <= 300; from += 50)
        for (uint32_t flags = 0; flags <= SPEC_LOOKUP_REQUIRE_EXACT; flags++) {
            struct spec_lookup_result told = find(&rig, &whole, from, flags);
            uint64_t lookups = atomic_load(&rig.conn->stats.lookups);
            uint64_t matched = atomic_load(&rig.conn->stats.matched_tokens);
            struct spec_lookup_result peek = find(&rig, &whole, from, flags | SPEC_LOOKUP_PEEK);
            assert_int_equal(peek.request, 0);
            assert_int_equal(peek.matched_tokens, from < 200 ? 200 : from);
            assert_int_equal(peek.stored_tokens, 200);
            told.request = 0;
            assert_memory_equal(&peek, &told, sizeof(peek)); /* the clock stands: leases too */
            assert_int_equal(atomic_load(&rig.conn->stats.lookups), lookups + 1);
            assert_int_equal(atomic_load(&rig.conn->stats.matched_tokens),
                             matched + (from < 200 ? 200 - from : 0));
            assert_all_free(&rig);
            assert_true(has_free_leaf(&rig));
        }
    rig_end(&rig, &whole);
}

static void peeks_have_slots_of_their_own(void **state)
{
    (void)state;
    struct rig rig;
    struct prompt prompt = rig_prompt(6, 0, 0, 100);
    open_filled(&rig, "\"max_requests\": 2", &prompt);
    struct spec_lookup_result found[2] = {rig_lookup(&rig, &prompt), rig_lookup(&rig, &prompt)},
                              more;
    struct sc_plugin_request *slots[SC_PLUGIN_PEEKS];
    assert_int_equal(rig_try_lookup(&rig, &prompt, 0, RIG_MAX, &more), SPEC_E_BUSY);
    for (uint32_t i = 0; i < 1000; i++) {
        assert_int_equal(rig_peek(&rig, &prompt, 0, &more), SPEC_OK);
        assert_int_equal(more.matched_tokens, 100);
    }
    rig_release(&rig, found[0].request);
    rig_release(&rig, found[1].request);
    for (uint32_t i = 0; i < SC_PLUGIN_PEEKS; i++) {
        assert_int_equal(rig_peek(&rig, &prompt, 0, &more), SPEC_OK);
        slots[i] = sc_plugin_request_take_peek(rig.conn); /* as other threads do */
        assert_non_null(slots[i]);
    }
    struct spec_lookup_result before = {.struct_size = sizeof(before), .request = 77};
    assert_int_equal(rig_peek(&rig, &prompt, 0, &more), SPEC_E_BUSY);
    assert_memory_equal(&more, &before, sizeof(before));
    rig_release(&rig, rig_lookup(&rig, &prompt).request); /* no peek needs a request's slot */
    for (uint32_t i = 0; i < SC_PLUGIN_PEEKS; i++)
        sc_plugin_request_unhold(slots[i]);
    assert_int_equal(rig_peek(&rig, &prompt, 0, &more), SPEC_OK);
    assert_all_free(&rig);
    rig_end(&rig, &prompt);
}

/* Its slot is no request's: no handle names it, also while a peek runs in it. */
static void no_handle_names_a_peek(void **state)
{
    (void)state;
    struct rig rig;
    struct prompt prompt = rig_prompt(7, 0, 0, 100);
    open_filled(&rig, "\"max_requests\": 2", &prompt);
    struct sc_plugin_request *slot = sc_plugin_request_take_peek(rig.conn);
    for (uint64_t i = 0; i < 2 + SC_PLUGIN_PEEKS + 1; i++)
        for (uint64_t generation = 0; generation < 3; generation++)
            assert_int_equal(sc_plugin_release(rig.conn, generation << 32 | (i + 1), NULL),
                             SPEC_E_STALE);
    sc_plugin_request_unhold(slot);
    rig_end(&rig, &prompt);
}

static void a_peek_that_is_refused_gives_its_slot_back(void **state)
{
    (void)state;
    struct rig rig;
    struct prompt prompt = rig_prompt(8, 0, 0, 100);
    open_filled(&rig, "", &prompt);
    struct spec_extra_key keys[] = {
        {.struct_size = sizeof(keys[0]), .first_token = 50, .value = {"a", 1}},
        {.struct_size = sizeof(keys[0]), .first_token = 10, .value = {"b", 1}}};
    struct spec_lookup_params params = {.struct_size = sizeof(params),
                                        .flags = SPEC_LOOKUP_PEEK,
                                        .tokens = prompt.tokens,
                                        .token_count = prompt.count,
                                        .extra_keys = keys,
                                        .extra_key_count = 2};
    struct spec_lookup_result result = {.struct_size = sizeof(result)};
    for (uint32_t i = 0; i < 2 * SC_PLUGIN_PEEKS; i++)
        assert_int_equal(sc_plugin_lookup(rig.conn, &params, &result, NULL), SPEC_E_INVALID);
    params.extra_key_count = 1;
    assert_int_equal(sc_plugin_lookup(rig.conn, &params, &result, NULL), SPEC_OK);
    assert_int_equal(result.matched_tokens, 50);
    params.flags = 4;
    assert_int_equal(sc_plugin_lookup(rig.conn, &params, &result, NULL), SPEC_E_INVALID);
    assert_all_free(&rig);
    rig_end(&rig, &prompt);
}

/* ---- Extra keys ------------------------------------------------------------------------------ */

static void keys_at_the_last_position_stay_in_their_request(void **state)
{
    (void)state;
    enum { TOGETHER = 16, COUNT = SC_PLUGIN_MARKS - 1 + TOGETHER };
    struct rig rig;
    struct prompt prompt = rig_prompt(9, 0, 0, 300);
    rig_begin(&rig, true, "\"max_requests\": 2");
    struct spec_extra_key keys[COUNT + 1];
    for (uint64_t i = 0; i <= COUNT; i++)
        keys[i] = (struct spec_extra_key){
            .struct_size = sizeof(keys[0]), .first_token = i, .value = {"key", 3}};
    for (uint64_t i = SC_PLUGIN_MARKS; i < COUNT; i++)
        keys[i].first_token = SC_PLUGIN_MARKS - 1;
    struct spec_lookup_params params = {.struct_size = sizeof(params),
                                        .tokens = prompt.tokens,
                                        .token_count = prompt.count,
                                        .extra_keys = keys,
                                        .extra_key_count = 1};
    struct spec_lookup_result results[2] = {{.struct_size = sizeof(results[0])},
                                            {.struct_size = sizeof(results[0])}};
    for (uint32_t i = 0; i < 2; i++)
        assert_int_equal(sc_plugin_lookup(rig.conn, &params, &results[i], NULL), SPEC_OK);
    const struct sc_plugin_request *upper = &rig.conn->requests.slots[1];
    bool is_first = sc_plugin_request_find(rig.conn, results[0].request) == upper;
    const struct sc_mark before = upper->marks[0];
    rig_release(&rig, results[is_first ? 1 : 0].request); /* the slot below it is free again */
    params.extra_key_count = COUNT;
    assert_int_equal(sc_plugin_lookup(rig.conn, &params, &results[is_first ? 1 : 0], NULL),
                     SPEC_OK);
    assert_int_equal(rig.conn->requests.slots[0].mark_count, SC_PLUGIN_MARKS);
    assert_memory_equal(&upper->marks[0], &before, sizeof(before));
    for (uint32_t i = 0; i < 2; i++)
        rig_release(&rig, results[i].request);
    params.extra_key_count = COUNT + 1; /* a position more; then one key more at a position */
    for (uint32_t i = 0; i < 2; i++) {
        uint64_t cut = keys[COUNT].first_token;
        assert_int_equal(sc_plugin_lookup(rig.conn, &params, &results[0], NULL), SPEC_OK);
        const struct sc_plugin_request *request =
            sc_plugin_request_find(rig.conn, results[0].request);
        assert_int_equal(request->token_count, cut);
        assert_int_equal(request->host_tokens, prompt.count);
        assert_int_equal(request->mark_count, SC_PLUGIN_MARKS - i);
        rig_release(&rig, results[0].request);
        keys[COUNT].first_token = SC_PLUGIN_MARKS - 1;
    }
    rig_end(&rig, &prompt);
}

/* ---- Threads --------------------------------------------------------------------------------- */

#define PEEKERS 24u /* more than there are slots */

struct peeker {
    struct rig *rig;
    const struct prompt *prompt;
    _Atomic uint32_t *stop;
    _Atomic uint64_t peeks; /* answered or refused */
    uint64_t wrong;
};

static void *peek_on(void *user)
{
    struct peeker *peeker = user;
    while (atomic_load(peeker->stop) == 0) {
        struct spec_lookup_result result;
        spec_status status = rig_peek(peeker->rig, peeker->prompt, 0, &result);
        peeker->wrong += status == SPEC_OK ? result.request != 0 : status != SPEC_E_BUSY;
        atomic_fetch_add(&peeker->peeks, 1);
    }
    return NULL;
}

static bool all_peeked(struct peeker *peekers)
{
    bool all = true;
    for (uint32_t i = 0; i < PEEKERS; i++)
        all = all && atomic_load(&peekers[i].peeks) > 0;
    return all;
}

/* Peeks from many threads, over and over, beside stores, evictions and resets: as many rounds as
 * it takes until each thread has peeked beside them, for no system says when a thread starts. */
static void any_thread_may_peek_at_any_time(void **state)
{
    (void)state;
    struct rig rig;
    struct prompt prompt = rig_prompt(9, 0, 0, 300);
    struct peeker peekers[PEEKERS];
    _Atomic uint32_t stop = 0;
    rig_begin(&rig, false, "\"max_requests\": 2, \"lease_ns_max\": 0");
    for (uint32_t i = 0; i < PEEKERS; i++)
        peekers[i] = (struct peeker){.rig = &rig, .prompt = &prompt, .stop = &stop};
    const struct threads threads = threads_begin(peek_on, peekers, sizeof(peekers[0]), PEEKERS);
    for (uint32_t round = 0; round < 20 || !all_peeked(peekers); round++) {
        assert_int_equal(rig_fill(&rig, &prompt), SPEC_OK);
        assert_int_equal(rig_read(&rig, &prompt, NULL), 300);
        assert_int_equal(rig_maintain(&rig, SPEC_MAINTAIN_EVICT), SPEC_OK);
        assert_int_equal(sc_plugin_reset(rig.conn, NULL), SPEC_OK);
    }
    atomic_store(&stop, 1);
    threads_join(&threads);
    for (uint32_t i = 0; i < PEEKERS; i++)
        assert_int_equal(peekers[i].wrong, 0);
    assert_all_free(&rig);
    rig_end(&rig, &prompt);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_store_has_what_every_rank_has),
        cmocka_unit_test(who_needs_exact_rows_is_told_of_those),
        cmocka_unit_test(what_a_request_has_no_room_for_is_not_told),
        cmocka_unit_test(what_a_miss_is_stored_behind_stays_until_release),
        cmocka_unit_test(a_peek_says_what_a_lookup_says_and_leaves_nothing),
        cmocka_unit_test(peeks_have_slots_of_their_own),
        cmocka_unit_test(no_handle_names_a_peek),
        cmocka_unit_test(a_peek_that_is_refused_gives_its_slot_back),
        cmocka_unit_test(keys_at_the_last_position_stay_in_their_request),
        cmocka_unit_test(any_thread_may_peek_at_any_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
