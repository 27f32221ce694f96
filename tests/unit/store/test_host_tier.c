/* The host tier beside a twin: what is given is what was published; never more than host_bytes; who
 * is evicted is worth least; what is pinned stays; then by threads.
 *
 * Threads: one, but the last test: seventeen. */
#include "base/fault.h"
#include "tests/unit/store/host_tier_fixture.h"

#include <pthread.h>

#define KEYS    200u
#define PAGES   64u
#define WORKERS 16u

static void fixture_init(struct fixture *fx, enum sc_policy policy, uint64_t pages, uint64_t seed)
{
    const struct sc_host_tier_params what = {
        .bytes = pages * PAGE + 5, .slab_bytes = 4 * PAGE, .policy = policy};
    fixture_open(fx, &what, seed);
}

static struct sc_host_tier_key key_of(uint64_t i)
{
    return (struct sc_host_tier_key){.copy = 1000 + i / 20,
                                     .first = (uint32_t)(i % 5 * 64),
                                     .layer = (uint32_t)(i / 5 % 2),
                                     .kind = (uint32_t)(i / 10 % 2)};
}

static uint64_t bytes_of(uint64_t i)
{
    return 1 + i * 911 % (6 * PAGE);
}

static void slab_fill(struct sc_host_tier *host, struct sc_host_tier_memory_slab *slab, uint64_t i)
{
    memset(sc_host_tier_bytes(host, slab), (int)(i * 7 + 3) & 0xff, bytes_of(i));
}

static bool slab_holds(struct sc_host_tier *host, struct sc_host_tier_memory_slab *slab, uint64_t i)
{
    const uint8_t *bytes = sc_host_tier_bytes(host, slab);
    uint8_t value = (uint8_t)(i * 7 + 3);
    for (uint64_t b = 0; b < bytes_of(i); b++)
        if (bytes[b] != value)
            return false;
    return sc_host_tier_rows(slab) == i + 1;
}

static struct sc_host_tier_memory_slab *slab_begin(struct sc_host_tier *host, uint64_t i)
{
    struct sc_host_tier_key key = key_of(i);
    return sc_host_tier_begin(host, &key, (uint32_t)i + 1, bytes_of(i), 1000 + i);
}

static struct sc_host_tier_memory_slab *slab_get(struct sc_host_tier *host, uint64_t i)
{
    struct sc_host_tier_key key = key_of(i);
    return sc_host_tier_get(host, &key);
}

/* ---- Beside a twin --------------------------------------------------------------------------- */

struct twin {
    struct sc_host_tier_memory_slab *filling[KEYS], *pinned[KEYS];
    bool is_stale[KEYS]; /* pinned or being filled, and forgotten since */
};

static void twin_step(struct fixture *fx, struct twin *twin)
{
    uint64_t i = below(&fx->seed, KEYS);
    struct sc_host_tier_key key = key_of(i);
    switch (below(&fx->seed, 6)) {
    case 0:
    case 1:
        if (twin->filling[i] == NULL) {
            bool has = sc_host_tier_has(fx->host, &key);
            twin->filling[i] = slab_begin(fx->host, i);
            assert_true(!has || twin->filling[i] == NULL);
            twin->is_stale[i] = false;
        } else if (below(&fx->seed, 4) == 0) {
            sc_host_tier_abandon(fx->host, twin->filling[i]);
            twin->filling[i] = NULL;
            assert_false(sc_host_tier_has(fx->host, &key));
        } else {
            slab_fill(fx->host, twin->filling[i], i);
            sc_host_tier_publish(fx->host, twin->filling[i]);
            twin->filling[i] = NULL;
            assert_int_equal(sc_host_tier_has(fx->host, &key), !twin->is_stale[i]);
        }
        break;
    case 2:
        if (below(&fx->seed, 10) == 0) {
            sc_host_tier_forget(fx->host, &key);
            twin->is_stale[i] = true;
            assert_false(sc_host_tier_has(fx->host, &key));
        }
        break;
    default:
        if (twin->pinned[i] != NULL) {
            assert_true(slab_holds(fx->host, twin->pinned[i], i));
            sc_host_tier_unpin(fx->host, twin->pinned[i]);
            twin->pinned[i] = NULL;
            break;
        }
        twin->pinned[i] = slab_get(fx->host, i);
        if (twin->pinned[i] != NULL)
            assert_true(slab_holds(fx->host, twin->pinned[i], i));
    }
}

static void what_is_given_is_what_was_published(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 30; seed++) {
        struct fixture fx;
        struct twin twin = {0};
        fixture_init(&fx, (enum sc_policy)(seed % 3), PAGES, seed);
        for (uint32_t step = 0; step < 20000; step++) {
            twin_step(&fx, &twin);
            struct sc_host_tier_stats stats;
            sc_host_tier_stats(fx.host, &stats);
            assert_in_range(stats.bytes_used, 0, PAGES * PAGE);
        }
        struct sc_host_tier_stats stats;
        sc_host_tier_stats(fx.host, &stats);
        assert_true(stats.hits > 0 && stats.misses > 0 && stats.evictions > 0);
        for (uint64_t i = 0; i < KEYS; i++) {
            struct sc_host_tier_key key = key_of(i);
            sc_host_tier_unpin(fx.host, twin.pinned[i]);
            sc_host_tier_abandon(fx.host, twin.filling[i]);
            sc_host_tier_forget(fx.host, &key);
        }
        sc_host_tier_stats(fx.host, &stats);
        assert_int_equal(stats.bytes_used, 0);
        assert_int_equal(stats.slabs, 0);
        fixture_done(&fx);
    }
}

/* ---- Who goes -------------------------------------------------------------------------------- */

static bool put_pages(struct fixture *fx, uint64_t i, uint64_t pages, uint64_t cost_ns)
{
    struct sc_host_tier_key key = {.copy = i};
    struct sc_host_tier_memory_slab *slab =
        sc_host_tier_begin(fx->host, &key, 1, pages * PAGE, cost_ns);
    if (slab != NULL)
        sc_host_tier_publish(fx->host, slab);
    return slab != NULL;
}

/* Slabs of one page; cost_ns: of having one again. */
static bool put(struct fixture *fx, uint64_t i, uint64_t cost_ns)
{
    return put_pages(fx, i, 1, cost_ns);
}

static bool use(struct fixture *fx, uint64_t i)
{
    struct sc_host_tier_key key = {.copy = i};
    struct sc_host_tier_memory_slab *slab = sc_host_tier_get(fx->host, &key);
    sc_host_tier_unpin(fx->host, slab);
    return slab != NULL;
}

static bool has(struct fixture *fx, uint64_t i)
{
    struct sc_host_tier_key key = {.copy = i};
    return sc_host_tier_has(fx->host, &key);
}

static void the_one_used_longest_ago_goes(void **state)
{
    (void)state;
    struct fixture fx;
    fixture_init(&fx, SC_POLICY_LRU, 3, 1);
    assert_true(put(&fx, 1, 1) && put(&fx, 2, 1000000) && put(&fx, 3, 1) && use(&fx, 1));
    assert_true(put(&fx, 4, 1));
    assert_true(has(&fx, 1) && !has(&fx, 2) && has(&fx, 3) && has(&fx, 4));
    fixture_done(&fx);
}

static void the_one_used_least_often_goes(void **state)
{
    (void)state;
    struct fixture fx;
    fixture_init(&fx, SC_POLICY_LFU, 3, 1);
    assert_true(put(&fx, 1, 1) && put(&fx, 2, 1) && put(&fx, 3, 1) && use(&fx, 1) && use(&fx, 2));
    assert_true(use(&fx, 1) && use(&fx, 3) && use(&fx, 3) && !use(&fx, 9));
    assert_false(put(&fx, 4, 1)); /* used once, as nobody here */
    assert_true(has(&fx, 1) && has(&fx, 2) && has(&fx, 3));
    fixture_done(&fx);
}

/* What costs more stays, unless the other is used more often; what was used often once goes when
 * others have passed by. */
static void the_one_that_is_worth_least_goes(void **state)
{
    (void)state;
    struct fixture fx;
    fixture_init(&fx, SC_POLICY_VALUE, 3, 1);
    assert_true(put(&fx, 1, 40960) && put(&fx, 2, 4096) && put(&fx, 3, 40960));
    assert_true(put(&fx, 4, 40960));
    assert_true(has(&fx, 1) && !has(&fx, 2) && has(&fx, 3) && has(&fx, 4));
    for (uint32_t i = 0; i < 5; i++)
        assert_true(use(&fx, 3));
    uint64_t next = 10;
    for (; has(&fx, 3) && next < 100; next++)
        (void)put(&fx, next, 81920); /* each once: it holds out for a while */
    assert_true(has(&fx, next - 1));
    assert_in_range(next, 13, 30);
    fixture_done(&fx);
}

/* Nothing is evicted for what is worth less, and what is pinned not at all. */
static void nothing_goes_for_less(void **state)
{
    (void)state;
    struct fixture fx;
    fixture_init(&fx, SC_POLICY_VALUE, 2, 1);
    assert_true(put(&fx, 1, 1000000) && put(&fx, 2, 1000000));
    assert_false(put(&fx, 3, 1));
    struct sc_host_tier_key keys[] = {{.copy = 1}, {.copy = 2}};
    struct sc_host_tier_memory_slab *pins[] = {sc_host_tier_get(fx.host, &keys[0]),
                                               sc_host_tier_get(fx.host, &keys[1])};
    assert_false(put(&fx, 3, UINT64_C(1) << 60));
    assert_true(has(&fx, 1) && has(&fx, 2));
    sc_host_tier_unpin(fx.host, pins[0]);
    assert_true(put(&fx, 3, UINT64_C(1) << 60));
    assert_true(!has(&fx, 1) && has(&fx, 2) && has(&fx, 3));
    sc_host_tier_unpin(fx.host, pins[1]);
    fixture_done(&fx);
}

/* Others go by at a third of a half-life each, and come in at half of what they are worth: what
 * costs ten times as much stays for 13 of them after each use. */
static void a_use_counts_from_when_it_was(void **state)
{
    (void)state;
    struct fixture fx;
    uint64_t next = 10;
    fixture_init(&fx, SC_POLICY_VALUE, 3, 1);
    assert_true(put(&fx, 1, 40960));
    for (; next < 20; next++)
        (void)put(&fx, next, 4096);
    assert_true(use(&fx, 1));
    for (; has(&fx, 1) && next < 100; next++)
        (void)put(&fx, next, 4096);
    assert_true(has(&fx, next - 1));
    assert_in_range(next - 20, 13, 15); /* less than 5, if it counted from the begin */
    fixture_done(&fx);
}

/* What was stored and not asked for gives way to what was loaded a little before; one use makes up
 * for it. */
static void what_was_only_stored_is_worth_half(void **state)
{
    (void)state;
    struct fixture fx;
    struct sc_host_tier_key key = {.copy = 3};
    fixture_init(&fx, SC_POLICY_VALUE, 3, 1);
    assert_true(put(&fx, 1, 4096) && put(&fx, 2, 4096));
    sc_host_tier_publish(fx.host, sc_host_tier_begin_stored(fx.host, &key, 1, PAGE, 4096));
    assert_true(put(&fx, 4, 4096));
    assert_true(has(&fx, 1) && has(&fx, 2) && !has(&fx, 3) && has(&fx, 4));
    assert_null(sc_host_tier_begin_stored(fx.host, &key, 1, PAGE, 4096));
    sc_host_tier_publish(fx.host, sc_host_tier_begin_stored(fx.host, &key, 1, PAGE, 16384));
    assert_true(!has(&fx, 1) && use(&fx, 3) && put(&fx, 5, 16384) && has(&fx, 3));
    fixture_done(&fx);
}

/* What is worth less lies apart from each other: it would go in vain. */
static void who_is_refused_has_evicted_nobody(void **state)
{
    (void)state;
    for (uint32_t policy = 0; policy < 3; policy++) {
        struct fixture fx;
        struct sc_host_tier_stats stats;
        fixture_init(&fx, (enum sc_policy)policy, 6, 1);
        for (uint64_t i = 1; i <= 6; i++)
            assert_true(put(&fx, i, i % 2 == 0 ? 40960000 : 1));
        for (uint64_t i = 2; i <= 6; i += 2)
            assert_true(use(&fx, i) && use(&fx, i));
        bool begun = put_pages(&fx, 7, 2, 4096);
        sc_host_tier_stats(fx.host, &stats);
        assert_int_equal(begun, policy == SC_POLICY_LRU); /* which refuses nobody */
        assert_int_equal(stats.evictions, begun ? 2 : 0);
        assert_true(put(&fx, 8, 4096)); /* one of them makes room for one */
        fixture_done(&fx);
    }
}

/* Two pages that are had again in the time of one and a half are worth less a byte. */
static void worth_is_by_the_byte(void **state)
{
    (void)state;
    struct fixture fx;
    fixture_init(&fx, SC_POLICY_VALUE, 3, 1);
    assert_true(put_pages(&fx, 1, 2, 45000) && put(&fx, 2, 30000) && put(&fx, 3, 90000));
    assert_true(!has(&fx, 1) && has(&fx, 2) && has(&fx, 3));
    fixture_done(&fx);
}

/* What is larger than all of it is refused, and nothing goes for it. */
static void what_has_no_room_at_all_evicts_nothing(void **state)
{
    (void)state;
    struct fixture fx;
    fixture_init(&fx, SC_POLICY_VALUE, 3, 1);
    assert_true(put(&fx, 1, 1) && put(&fx, 2, 1) && put(&fx, 3, 1));
    assert_false(put_pages(&fx, 4, 4, UINT64_C(1) << 60));
    assert_true(has(&fx, 1) && has(&fx, 2) && has(&fx, 3));
    assert_true(put_pages(&fx, 4, 3, UINT64_C(1) << 60));
    assert_true(!has(&fx, 1) && !has(&fx, 2) && !has(&fx, 3) && has(&fx, 4));
    fixture_done(&fx);
}

/* Slabs so short that there is room for more of them than there are entries. */
static void short_slabs_take_turns_for_entries(void **state)
{
    (void)state;
    struct fixture fx;
    struct sc_host_tier_stats stats;
    fixture_init(&fx, SC_POLICY_LRU, PAGES, 1);
    struct sc_host_tier *host = fx.host;
    const struct sc_host_tier_params params = {.alloc = &fx.alloc,
                                               .poison = &fx.poison,
                                               .bytes = PAGES * PAGE,
                                               .slab_bytes = PAGES * PAGE,
                                               .policy = SC_POLICY_LRU};
    sc_alloc_unseal(&fx.alloc);
    assert_int_equal(sc_host_tier_open(&params, &fx.host, NULL), SPEC_OK);
    sc_alloc_seal(&fx.alloc);
    for (uint64_t i = 1; i <= 20; i++)
        assert_true(put(&fx, i, 1) && has(&fx, i));
    sc_host_tier_stats(fx.host, &stats);
    assert_in_range(stats.slabs, 4, 6);
    assert_true(stats.slabs + stats.evictions == 20);
    sc_host_tier_close(host);
    fixture_done(&fx);
}

/* Whatever was put, used and forgotten before. */
static void the_heap_always_has_the_oldest_at_hand(void **state)
{
    (void)state;
    struct fixture fx;
    uint64_t stamps[KEYS] = {0}, stamp = 0; /* 0: not there */
    fixture_init(&fx, SC_POLICY_LRU, PAGES, 7);
    for (uint32_t step = 0; step < 20000; step++) {
        uint64_t i = below(&fx.seed, KEYS), oldest = KEYS, count = 0;
        struct sc_host_tier_key key = {.copy = i};
        for (uint64_t k = 0; k < KEYS; k++) {
            assert_true(k != i || has(&fx, k) == (stamps[k] > 0));
            count += stamps[k] > 0;
            if (stamps[k] > 0 && (oldest == KEYS || stamps[k] < stamps[oldest]))
                oldest = k;
        }
        if (below(&fx.seed, 4) == 0) {
            sc_host_tier_forget(fx.host, &key);
            stamps[i] = 0;
        } else if (use(&fx, i)) {
            stamps[i] = ++stamp;
        } else {
            assert_true(put(&fx, i, 1));
            stamps[i] = ++stamp;
            if (count == PAGES) {
                assert_false(has(&fx, oldest));
                stamps[oldest] = 0;
            }
        }
    }
    fixture_done(&fx);
}

/* Any allocation of open may fail: nothing is left, and there is no tier. */
static void open_without_memory_leaves_nothing(void **state)
{
    (void)state;
    struct sc_fault fault;
    struct sc_alloc alloc;
    struct sc_host_tier *host;
    spec_status status = SPEC_E_NO_MEMORY;
    uint64_t n = 0;
    for (; status != SPEC_OK && n < 20; n++) {
        sc_fault_init(&fault);
        sc_alloc_init(&alloc);
        alloc.fault = &fault;
        const struct sc_host_tier_params params = {
            .alloc = &alloc, .bytes = PAGES * PAGE, .slab_bytes = PAGE};
        sc_fault_arm(&fault, SC_FAULT_ALLOC, n);
        status = sc_host_tier_open(&params, &host, NULL);
        assert_true(status == SPEC_OK ? host != NULL : status == SPEC_E_NO_MEMORY && host == NULL);
        sc_host_tier_close(host);
        assert_int_equal(atomic_load(&alloc.live_blocks), 0);
    }
    assert_in_range(n, 6, 19);
}

/* What is worth least is pinned, and stays; the next goes, however much more it is worth. */
static void what_is_pinned_hides_nobody(void **state)
{
    (void)state;
    struct fixture fx;
    struct sc_host_tier_key key = {.copy = 1};
    fixture_init(&fx, SC_POLICY_VALUE, 2, 1);
    assert_true(put(&fx, 1, 1) && put(&fx, 2, 4096000));
    struct sc_host_tier_memory_slab *pinned = sc_host_tier_get(fx.host, &key);
    assert_true(put(&fx, 3, 40960000));
    assert_true(has(&fx, 1) && !has(&fx, 2) && has(&fx, 3));
    sc_host_tier_unpin(fx.host, pinned);
    assert_true(put(&fx, 4, 4096)); /* nor was it used meanwhile */
    assert_true(!has(&fx, 1) && has(&fx, 3));
    fixture_done(&fx);
}

/* All that is there was used often, and is used no more: it makes room for what is used now. */
static void others_take_over_in_the_end(void **state)
{
    (void)state;
    struct fixture fx;
    fixture_init(&fx, SC_POLICY_VALUE, 3, 1);
    for (uint64_t i = 1; i <= 3; i++)
        assert_true(put(&fx, i, 4096) && use(&fx, i) && use(&fx, i));
    assert_false(put(&fx, 10, 1024));
    for (uint64_t i = 0; i < 60; i++)
        if (!use(&fx, 10 + i % 3))
            (void)put(&fx, 10 + i % 3, 1024);
    assert_true(has(&fx, 10) && has(&fx, 11) && has(&fx, 12));
    fixture_done(&fx);
}

static void none_is_as_good_as_an_empty_one(void **state)
{
    (void)state;
    struct spec_error error = {.struct_size = sizeof(error)};
    struct sc_host_tier_key key = {.copy = 1};
    struct sc_host_tier_stats stats;
    struct sc_host_tier *host;
    const struct sc_host_tier_params params = {.bytes = PAGE - 1};
    assert_int_equal(sc_host_tier_open(&params, &host, &error), SPEC_OK);
    assert_null(host);
    assert_null(sc_host_tier_begin(host, &key, 1, 1, 1));
    assert_null(sc_host_tier_get(host, &key));
    assert_false(sc_host_tier_has(host, &key));
    sc_host_tier_forget(host, &key);
    sc_host_tier_unpin(host, NULL);
    sc_host_tier_abandon(host, NULL);
    sc_host_tier_stats(host, &stats);
    assert_int_equal(stats.bytes_max, 0);
    sc_host_tier_close(host);
}

/* ---- Threads --------------------------------------------------------------------------------- */

struct worker {
    struct fixture *fx;
    uint64_t seed, hits;
    pthread_t thread;
};

static void *worker_main(void *argument)
{
    struct worker *worker = argument;
    struct sc_host_tier *host = worker->fx->host;
    for (uint32_t step = 0; step < 5000; step++) {
        uint64_t i = below(&worker->seed, KEYS / 4), keeper = 1 + i % 3;
        struct sc_host_tier_key key = key_of(i);
        struct sc_host_tier_memory_slab *slab = slab_get(host, i);
        if (slab != NULL) {
            worker->hits++;
            if (!slab_holds(host, slab, i))
                return argument;
            sc_host_tier_unpin(host, slab);
        } else if ((slab = slab_begin(host, i)) != NULL) {
            slab_fill(host, slab, i);
            if (below(&worker->seed, 8) == 0)
                sc_host_tier_abandon(host, slab);
            else
                sc_host_tier_publish(host, slab);
            if (below(&worker->seed, 8) == 0)
                (void)sc_host_tier_keep(host, &key, keeper);
        }
        if (below(&worker->seed, 20) == 0) {
            sc_host_tier_let_go(host, keeper, step);
            sc_host_tier_expire(host, step);
        }
        if (below(&worker->seed, 50) == 0)
            sc_host_tier_forget(host, &key);
    }
    return NULL;
}

static void threads_see_whole_slabs(void **state)
{
    (void)state;
    struct fixture fx;
    struct worker workers[WORKERS] = {0};
    fixture_init(&fx, SC_POLICY_VALUE, PAGES, 1);
    for (uint32_t w = 0; w < WORKERS; w++) {
        workers[w] = (struct worker){.fx = &fx, .seed = w + 1};
        assert_int_equal(pthread_create(&workers[w].thread, NULL, worker_main, &workers[w]), 0);
    }
    for (uint32_t w = 0; w < WORKERS; w++) {
        void *wrong;
        assert_int_equal(pthread_join(workers[w].thread, &wrong), 0);
        assert_null(wrong);
        assert_true(workers[w].hits > 0);
    }
    for (uint64_t keeper = 1; keeper <= 3; keeper++)
        sc_host_tier_let_go(fx.host, keeper, 0);
    struct sc_host_tier_stats stats;
    sc_host_tier_stats(fx.host, &stats);
    assert_true(stats.bytes_kept == 0 && stats.bytes_used <= stats.bytes_max);
    fixture_done(&fx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_given_is_what_was_published),
        cmocka_unit_test(the_one_used_longest_ago_goes),
        cmocka_unit_test(the_one_used_least_often_goes),
        cmocka_unit_test(the_one_that_is_worth_least_goes),
        cmocka_unit_test(nothing_goes_for_less),
        cmocka_unit_test(a_use_counts_from_when_it_was),
        cmocka_unit_test(what_was_only_stored_is_worth_half),
        cmocka_unit_test(who_is_refused_has_evicted_nobody),
        cmocka_unit_test(worth_is_by_the_byte),
        cmocka_unit_test(what_has_no_room_at_all_evicts_nothing),
        cmocka_unit_test(short_slabs_take_turns_for_entries),
        cmocka_unit_test(the_heap_always_has_the_oldest_at_hand),
        cmocka_unit_test(open_without_memory_leaves_nothing),
        cmocka_unit_test(what_is_pinned_hides_nobody),
        cmocka_unit_test(others_take_over_in_the_end),
        cmocka_unit_test(none_is_as_good_as_an_empty_one),
        cmocka_unit_test(threads_see_whole_slabs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
