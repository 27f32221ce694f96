/* store.admit second: what comes twice is stored, what comes once is not. */
#include "tests/unit/plugin/plugin_fixture.h"
#include "tests/unit/threads.h"

#define SECOND "\"store\": {\"admit\": \"second\"}"

static uint64_t refused(const struct rig *rig)
{
    return atomic_load(&rig->conn->stats.unadmitted_chunks);
}

static uint64_t written(const struct rig *rig)
{
    struct sc_store_stats stats = rig_store_stats(rig);
    return stats.write_bytes;
}

/* Looks up, computes all that is not stored, stores it. */
static spec_status pass_of(struct rig *rig, const struct prompt *prompt)
{
    struct spec_lookup_result result = rig_lookup(rig, prompt);
    uint64_t first = result.matched_tokens;
    assert_true(first < prompt->count);
    spec_ticket ticket = rig_store(rig, result.request, prompt, first, prompt->count - first);
    spec_status status = rig_wait(rig, ticket);
    rig_release(rig, result.request);
    return status;
}

/* A stream of prefixes that come once; returns what it wrote. */
static uint64_t stream_of_strangers(const char *extra)
{
    struct rig rig;
    rig_begin(&rig, true, extra);
    for (uint64_t seed = 1; seed <= 2000; seed++) {
        struct prompt prompt = rig_prompt(seed, 0, 0, 200);
        spec_status status = pass_of(&rig, &prompt);
        assert_true(status == SPEC_OK || status == SPEC_E_DROPPED);
        rig_prompt_free(&prompt);
    }
    assert_int_equal(atomic_load(&rig.conn->stats.dropped_chunks), 0);
    uint64_t bytes = written(&rig);
    rig_done(&rig);
    return bytes;
}

static void what_comes_once_is_not_written(void **state)
{
    (void)state;
    uint64_t all = stream_of_strangers("\"store\": {\"admit\": \"all\"}");
    assert_true(all > 0);
    assert_true(stream_of_strangers(SECOND) * 20 <= all);
}

static void what_comes_twice_is_found_the_third_time(void **state)
{
    (void)state;
    struct rig rig;
    rig_begin(&rig, true, SECOND);
    struct prompt prompt = rig_prompt(1, 0, 0, 1000);
    assert_int_equal(pass_of(&rig, &prompt), SPEC_E_DROPPED);
    assert_int_equal(rig_read(&rig, &prompt, NULL), 0);
    assert_int_equal(pass_of(&rig, &prompt), SPEC_OK);
    assert_int_equal(refused(&rig), 16);
    assert_int_equal(rig_read(&rig, &prompt, NULL), 1000);
    rig_reopen(&rig);
    assert_int_equal(rig_read(&rig, &prompt, NULL), 1000);
    rig_end(&rig, &prompt);
}

/* Prompts that share a beginning: it is stored, whole chunks of it, and their ends are not. */
static void a_shared_beginning_is_stored_alone(void **state)
{
    (void)state;
    struct rig rig;
    rig_begin(&rig, true, SECOND);
    for (uint64_t branch = 1; branch <= 3; branch++) {
        struct prompt prompt = rig_prompt(1, 500, branch, 1000);
        struct spec_lookup_result result = rig_lookup(&rig, &prompt);
        assert_int_equal(result.matched_tokens, branch < 3 ? 0 : 448);
        rig_release(&rig, result.request);
        assert_int_equal(pass_of(&rig, &prompt), SPEC_E_DROPPED);
        assert_int_equal(rig_read(&rig, &prompt, NULL), branch < 2 ? 0 : 448);
        rig_prompt_free(&prompt);
    }
    assert_int_equal(refused(&rig), 16 + 9 + 9);
    rig_done(&rig);
}

/* In passes of a few tokens, as prefills in chunks and decoding make them: what hangs on a gap is
 * refused, too, also where its own chunk was seen. */
static void passes_behind_a_gap_are_refused(void **state)
{
    (void)state;
    struct rig rig;
    rig_begin(&rig, true, SECOND);
    struct prompt prompt = rig_prompt(2, 0, 0, 640);
    for (uint64_t turn = 0; turn < 3; turn++) {
        struct spec_lookup_result result = rig_lookup(&rig, &prompt);
        uint64_t first = result.matched_tokens;
        assert_int_equal(first, turn < 2 ? 0 : 640);
        for (uint64_t step = turn == 0 ? 10 : 80; first < prompt.count; first += step) {
            spec_ticket ticket = rig_store(&rig, result.request, &prompt, first, step);
            assert_int_equal(rig_wait(&rig, ticket), turn == 0 ? SPEC_E_DROPPED : SPEC_OK);
        }
        rig_release(&rig, result.request);
        assert_int_equal(rig_read(&rig, &prompt, NULL), turn == 0 ? 0 : 640);
    }
    assert_true(written(&rig) > 0);
    struct prompt other = rig_prompt(3, 0, 0, 128);
    struct spec_lookup_result result = rig_lookup(&rig, &other);
    for (uint64_t again = 0; again < 2; again++) /* no request sees what it stored itself */
        assert_int_equal(rig_wait(&rig, rig_store(&rig, result.request, &other, 0, 60)),
                         SPEC_E_DROPPED);
    assert_int_equal(rig_wait(&rig, rig_store(&rig, result.request, &other, 60, 68)),
                     SPEC_E_DROPPED);
    rig_release(&rig, result.request);
    assert_int_equal(rig_read(&rig, &other, NULL), 0);
    assert_int_equal(pass_of(&rig, &other), SPEC_OK);
    assert_int_equal(rig_read(&rig, &other, NULL), 128);
    rig_end(&rig, &other, &prompt);
}

/* A pass that is refused in part can be taken back, and is one ticket over several extents. */
static void refused_passes_end_like_others(void **state)
{
    (void)state;
    struct rig rig;
    rig_begin_shape(&rig, true, SECOND, 2, 1, 4, SPEC_DTYPE_F32);
    uint64_t count = 3 * SC_PLUGIN_SAVE_TOKENS + 17;
    struct prompt prompt = rig_prompt(4, 0, 0, count);
    struct prompt part = {SC_PLUGIN_SAVE_TOKENS + 640, prompt.tokens, prompt.history};
    assert_int_equal(pass_of(&rig, &part), SPEC_E_DROPPED);
    struct spec_lookup_result result = rig_lookup(&rig, &prompt);
    spec_ticket ticket;
    assert_int_equal(rig_store_layer(&rig, result.request, &prompt, 0, count, 0, &ticket), SPEC_OK);
    assert_int_equal(sc_plugin_store_abort(rig.conn, result.request, 0, NULL), SPEC_OK);
    rig_settle(&rig);
    assert_int_equal(rig_read(&rig, &prompt, NULL), 0);
    rig_release(&rig, result.request);
    assert_int_equal(pass_of(&rig, &prompt), SPEC_OK); /* the aborted one was seen as well */
    assert_int_equal(rig_read(&rig, &prompt, NULL), count);
    assert_int_equal(atomic_load(&rig.conn->stats.tickets_open), 0);
    rig_end(&rig, &prompt);
}

/* Stored chunks need no second access, although an open begins with nothing remembered. */
static void what_is_stored_is_not_refused(void **state)
{
    (void)state;
    struct rig rig;
    rig_begin(&rig, true, SECOND);
    struct prompt prompt = rig_prompt(5, 0, 0, 200);
    assert_int_equal(pass_of(&rig, &prompt), SPEC_E_DROPPED);
    assert_int_equal(pass_of(&rig, &prompt), SPEC_OK);
    rig_reopen(&rig);
    struct spec_lookup_result result = rig_lookup(&rig, &prompt);
    assert_int_equal(result.stored_tokens, 200);
    assert_int_equal(rig_wait(&rig, rig_store(&rig, result.request, &prompt, 190, 10)), SPEC_OK);
    rig_release(&rig, result.request);
    assert_int_equal(refused(&rig), 0);
    rig_end(&rig, &prompt);
}

/* The filter by itself: what was noted within the last generation is seen, what is two generations
 * old is not, and few that never were. */
static void the_filter_forgets_what_is_old(void **state)
{
    (void)state;
    struct rig rig;
    rig_begin(&rig, true, SECOND);
    struct sc_plugin_admit *admit = &rig.conn->admit;
    uint64_t wrong = 0;
    for (uint64_t i = 0; i < 3 * SC_PLUGIN_SIGHTS; i++)
        wrong +=
            sc_plugin_admit_sees(admit, (struct sc_hash){rig_mix(2 * i), rig_mix(2 * i + 1)}, true);
    assert_true(wrong < 3 * SC_PLUGIN_SIGHTS / 100);
    uint64_t seen = 0, old = 0;
    for (uint64_t i = 3 * SC_PLUGIN_SIGHTS - 1000; i < 3 * SC_PLUGIN_SIGHTS; i++)
        seen +=
            sc_plugin_admit_sees(admit, (struct sc_hash){rig_mix(2 * i), rig_mix(2 * i + 1)}, true);
    for (uint64_t i = 0; i < 1000; i++)
        old +=
            sc_plugin_admit_sees(admit, (struct sc_hash){rig_mix(2 * i), rig_mix(2 * i + 1)}, true);
    assert_int_equal(seen, 1000);
    assert_true(old < 20);
    rig_done(&rig);
}

/* What comes again and again stays, however long ago it came first. */
static void the_filter_keeps_what_comes_again(void **state)
{
    (void)state;
    struct rig rig;
    rig_init(&rig, true, SECOND);
    rig_open(&rig);
    struct sc_plugin_admit *admit = &rig.conn->admit;
    const struct sc_hash often = {rig_mix(1), rig_mix(2)};
    assert_false(sc_plugin_admit_sees(admit, often, true));
    for (uint64_t i = 1; i < 3 * SC_PLUGIN_SIGHTS; i++) {
        (void)sc_plugin_admit_sees(admit, (struct sc_hash){rig_mix(2 * i + 1), rig_mix(2 * i + 2)},
                                   true);
        if (i % (SC_PLUGIN_SIGHTS / 2) == 0)
            assert_true(sc_plugin_admit_sees(admit, often, true));
    }
    rig_done(&rig);
}

struct sighting {
    struct rig *rig;
    uint64_t seed;
};

static void *access_prompts(void *user)
{
    struct sighting *own = user;
    for (uint64_t i = 0; i < 30; i++) {
        struct prompt prompt = rig_prompt(own->seed + i / 3 % 5, 128, i % 2, 300);
        struct spec_lookup_result result = rig_lookup(own->rig, &prompt);
        uint64_t first = result.matched_tokens;
        if (first < prompt.count) {
            spec_status status = rig_wait(
                own->rig, rig_store(own->rig, result.request, &prompt, first, 300 - first));
            assert_true(status == SPEC_OK || status == SPEC_E_DROPPED || status == SPEC_E_BUSY);
        }
        rig_release(own->rig, result.request);
        rig_prompt_free(&prompt);
    }
    return NULL;
}

static void several_threads_see_and_store(void **state)
{
    (void)state;
    struct rig rig;
    rig_begin(&rig, false, SECOND);
    atomic_store(&rig.conn->admit.noted, SC_PLUGIN_SIGHTS - 40); /* generations change meanwhile */
    struct sighting own[4];
    for (uint64_t i = 0; i < 4; i++)
        own[i] = (struct sighting){&rig, 10 * (i / 2)};
    threads_run(access_prompts, own, sizeof(own[0]), 4);
    rig_settle(&rig);
    assert_int_equal(atomic_load(&rig.conn->stats.tickets_open), 0);
    struct prompt prompt = rig_prompt(0, 128, 0, 300);
    assert_true(rig_read(&rig, &prompt, NULL) >= 128);
    rig_end(&rig, &prompt);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_comes_once_is_not_written),
        cmocka_unit_test(what_comes_twice_is_found_the_third_time),
        cmocka_unit_test(a_shared_beginning_is_stored_alone),
        cmocka_unit_test(passes_behind_a_gap_are_refused),
        cmocka_unit_test(refused_passes_end_like_others),
        cmocka_unit_test(what_is_stored_is_not_refused),
        cmocka_unit_test(the_filter_forgets_what_is_old),
        cmocka_unit_test(the_filter_keeps_what_comes_again),
        cmocka_unit_test(several_threads_see_and_store),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
