/* What the host tier counts, keeps and forgets by piece, beside a plain list of what is there; then
 * counted by threads while others change it.
 *
 * Threads: one, but the last test: six. */
#include "store/cache/residency.h"
#include "tests/unit/store/host_tier_fixture.h"

#include <pthread.h>

#define PAGES  64u
#define PIECES 24u
#define LAYERS 5u
#define KEYS   (PIECES * LAYERS)

static void fixture_init_of(struct fixture *fx, enum sc_policy policy, uint64_t seed,
                            uint64_t slab_bytes)
{
    const struct sc_host_tier_params what = {
        .bytes = PAGES * PAGE, .slab_bytes = slab_bytes, .policy = policy};
    fixture_open(fx, &what, seed);
}

static void fixture_init(struct fixture *fx, enum sc_policy policy, uint64_t seed)
{
    fixture_init_of(fx, policy, seed, PAGE);
}

/* Pieces share copies, and some a first row. */
static struct sc_host_tier_key key_of(uint64_t piece, uint64_t layer)
{
    return (struct sc_host_tier_key){
        .copy = 7 + piece / 4, .first = (uint32_t)(piece % 4 * 64), .layer = (uint32_t)layer};
}

static bool put(struct fixture *fx, uint64_t piece, uint64_t layer, uint64_t pages)
{
    struct sc_host_tier_key key = key_of(piece, layer);
    struct sc_host_tier_memory_slab *slab =
        sc_host_tier_begin(fx->host, &key, 1, pages * PAGE, 1000);
    if (slab != NULL)
        sc_host_tier_publish(fx->host, slab);
    return slab != NULL;
}

static bool has(const struct fixture *fx, uint64_t piece, uint64_t layer)
{
    struct sc_host_tier_key key = key_of(piece, layer);
    return sc_host_tier_has(fx->host, &key);
}

static bool keep(struct fixture *fx, uint64_t piece, uint64_t layer, uint64_t keeper)
{
    struct sc_host_tier_key key = key_of(piece, layer);
    return sc_host_tier_keep(fx->host, &key, keeper);
}

static uint32_t layers(const struct fixture *fx, uint64_t piece)
{
    struct sc_host_tier_key key = key_of(piece, 0);
    return sc_host_tier_layers(fx->host, &key, NULL);
}

static struct sc_host_tier_stats stats_of(const struct fixture *fx)
{
    struct sc_host_tier_stats stats;
    sc_host_tier_stats(fx->host, &stats);
    return stats;
}

/* ---- Beside a list --------------------------------------------------------------------------- */

struct list { /* what is pinned or being filled; the tier itself is asked for what is there */
    struct sc_host_tier_memory_slab *slabs[KEYS];
    bool is_filling[KEYS];
};

static void counts_check(const struct fixture *fx)
{
    uint64_t slabs = 0;
    for (uint64_t piece = 0; piece < PIECES; piece++) {
        uint32_t count = 0;
        for (uint64_t layer = 0; layer < LAYERS; layer++)
            count += has(fx, piece, layer) ? 1 : 0;
        assert_int_equal(layers(fx, piece), count);
        slabs += count;
    }
    struct sc_host_tier_stats stats = stats_of(fx);
    assert_int_equal(stats.slabs, slabs);
    assert_in_range(stats.bytes_used, 0, PAGES * PAGE);
    assert_in_range(stats.bytes_kept, 0, (PAGES - PAGES / 4) * PAGE);
    assert_in_range(stats.bytes_kept, 0, stats.bytes_used);
}

static void slab_step(struct fixture *fx, struct list *list, uint64_t i)
{
    struct sc_host_tier_key key = key_of(i / LAYERS, i % LAYERS);
    struct sc_host_tier_memory_slab *slab = list->slabs[i];
    list->slabs[i] = NULL;
    if (slab == NULL) {
        list->slabs[i] = sc_host_tier_get(fx->host, &key);
        list->is_filling[i] = list->slabs[i] == NULL;
        if (list->is_filling[i])
            list->slabs[i] = sc_host_tier_begin(fx->host, &key, 1, (1 + i % 3) * PAGE, 1000 + i);
    } else if (!list->is_filling[i]) {
        sc_host_tier_unpin(fx->host, slab);
    } else if (below(&fx->seed, 5) == 0) {
        sc_host_tier_abandon(fx->host, slab);
    } else {
        sc_host_tier_publish(fx->host, slab);
    }
}

static void counts_follow_every_change(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 12; seed++) {
        struct fixture fx;
        struct list list = {0};
        fixture_init(&fx, (enum sc_policy)(seed % 3), seed);
        for (uint32_t step = 0; step < 6000; step++) {
            uint64_t i = below(&fx.seed, KEYS), piece = i / LAYERS;
            struct sc_host_tier_key key = key_of(piece, i % LAYERS);
            uint64_t what = below(&fx.seed, 40);
            if (what < 28) {
                slab_step(&fx, &list, i);
            } else if (what < 36) {
                assert_true(!keep(&fx, piece, key.layer, 1 + what % 3) ||
                            has(&fx, piece, key.layer));
            } else if (what == 36) {
                sc_host_tier_forget(fx.host, &key);
            } else if (what == 37) {
                sc_host_tier_forget_layers(fx.host, &key);
                assert_int_equal(layers(&fx, piece), 0);
            } else if (what == 38) {
                sc_host_tier_let_go(fx.host, 1 + step % 3, step % 2 == 0 ? 0 : step + 100);
            } else {
                sc_host_tier_expire(fx.host, step);
            }
            counts_check(&fx);
        }
        for (uint64_t i = 0; i < KEYS; i++)
            if (list.slabs[i] != NULL)
                slab_step(&fx, &list, i);
        for (uint64_t piece = 0; piece < PIECES; piece++) {
            struct sc_host_tier_key key = key_of(piece, 0);
            sc_host_tier_forget_layers(fx.host, &key);
        }
        counts_check(&fx);
        assert_int_equal(stats_of(&fx).bytes_used, 0);
        assert_int_equal(stats_of(&fx).bytes_kept, 0);
        fixture_done(&fx);
    }
}

/* ---- Kept ------------------------------------------------------------------------------------ */

static void what_is_kept_stays_until_it_was_used(void **state)
{
    (void)state;
    for (uint32_t policy = 0; policy < 3; policy++) {
        struct fixture fx;
        struct sc_host_tier_key key = key_of(0, 0);
        fixture_init(&fx, (enum sc_policy)policy, 1);
        assert_true(put(&fx, 0, 0, PAGES / 4));
        assert_true(keep(&fx, 0, 0, 1));
        for (uint64_t i = LAYERS; i < 20u * KEYS; i++)
            (void)put(&fx, 1 + i % (PIECES - 1), i / PIECES % LAYERS, 1 + i % 2);
        assert_true(stats_of(&fx).evictions > 0);
        assert_true(has(&fx, 0, 0));
        sc_host_tier_unpin(fx.host, sc_host_tier_get(fx.host, &key));
        assert_int_equal(stats_of(&fx).bytes_kept, 0);
        for (uint64_t i = 0; i < 40u * KEYS && has(&fx, 0, 0); i++)
            (void)put(&fx, 1 + i % (PIECES - 1), i / PIECES % LAYERS, 1);
        assert_int_equal(has(&fx, 0, 0), policy == SC_POLICY_LFU); /* by use it is worth more */
        fixture_done(&fx);
    }
}

static void not_all_of_the_memory_is_kept(void **state)
{
    (void)state;
    struct fixture fx;
    uint64_t kept = 0;
    fixture_init(&fx, SC_POLICY_LRU, 1);
    for (uint64_t i = 0; i < PAGES; i++)
        assert_true(put(&fx, i / LAYERS, i % LAYERS, 1));
    for (uint64_t i = 0; i < PAGES; i++)
        kept += keep(&fx, i / LAYERS, i % LAYERS, 5) ? 1 : 0;
    assert_int_equal(kept, PAGES - PAGES / 4);
    assert_true(keep(&fx, 0, 0, 6)); /* by another: no more than before */
    for (uint64_t i = PAGES; i < KEYS; i++)
        assert_true(put(&fx, i / LAYERS, i % LAYERS, 1)); /* others find room */
    for (uint64_t i = 0; i < kept; i++)
        assert_true(has(&fx, i / LAYERS, i % LAYERS));
    sc_host_tier_let_go(fx.host, 5, 0);
    assert_int_equal(stats_of(&fx).bytes_kept, PAGE);
    sc_host_tier_let_go(fx.host, 6, 0);
    assert_int_equal(stats_of(&fx).bytes_kept, 0);
    fixture_done(&fx);
}

/* Slabs a 16th as long as the usual one: there are no more of them long before memory is full. */
static void not_all_of_the_slabs_are_kept(void **state)
{
    (void)state;
    for (uint32_t way = 0; way < 2; way++) {
        struct fixture fx;
        uint64_t kept = 0;
        fixture_init_of(&fx, SC_POLICY_LRU, 1, 16 * PAGE);
        for (uint64_t i = 0; i < PAGES; i++) {
            struct sc_host_tier_key key = key_of(i / LAYERS, i % LAYERS);
            struct sc_host_tier_memory_slab *slab = NULL;
            bool is_there = way == 0 && put(&fx, i / LAYERS, i % LAYERS, 1);
            assert_true(way == 1 || is_there);
            if (way == 0) /* that is there */
                kept += keep(&fx, i / LAYERS, i % LAYERS, 5);
            else if (sc_host_tier_begin_kept(fx.host, &key, 1, PAGE, 1000, 5, &slab) ==
                     SC_STORE_HOST_BEGUN) {
                sc_host_tier_publish(fx.host, slab);
                kept++;
            }
        }
        assert_int_equal(kept, 17 - 17 / 4);
        for (uint64_t i = PAGES; i < KEYS; i++)
            assert_true(put(&fx, i / LAYERS, i % LAYERS, 1)); /* others find room */
        sc_host_tier_let_go(fx.host, 5, 0);
        assert_int_equal(stats_of(&fx).bytes_kept, 0);
        fixture_done(&fx);
    }
}

static void time_lets_go(void **state)
{
    (void)state;
    struct fixture fx;
    fixture_init(&fx, SC_POLICY_VALUE, 1);
    for (uint64_t layer = 0; layer < 2; layer++) {
        assert_true(put(&fx, 0, layer, 1));
        assert_true(keep(&fx, 0, layer, 1 + layer));
    }
    sc_host_tier_expire(fx.host, UINT64_MAX - 1); /* nobody has let go of it */
    assert_int_equal(stats_of(&fx).bytes_kept, 2 * PAGE);
    sc_host_tier_let_go(fx.host, 1, 100);
    sc_host_tier_let_go(fx.host, 2, 200);
    sc_host_tier_expire(fx.host, 99);
    assert_int_equal(stats_of(&fx).bytes_kept, 2 * PAGE);
    sc_host_tier_expire(fx.host, 100);
    assert_int_equal(stats_of(&fx).bytes_kept, PAGE);
    sc_host_tier_expire(fx.host, 200);
    assert_int_equal(stats_of(&fx).bytes_kept, 0);
    assert_int_equal(layers(&fx, 0), 2); /* as any other now */
    fixture_done(&fx);
}

/* Another keeper that gives up at once takes nothing from what the first one was promised. */
static void a_second_keeper_shortens_nothing(void **state)
{
    (void)state;
    struct fixture fx;
    fixture_init(&fx, SC_POLICY_VALUE, 1);
    assert_true(put(&fx, 0, 0, 1) && keep(&fx, 0, 0, 1));
    sc_host_tier_let_go(fx.host, 1, 100);
    assert_true(keep(&fx, 0, 0, 2));
    assert_true(keep(&fx, 0, 0, 2));    /* found a second time */
    sc_host_tier_expire(fx.host, 150);  /* it is not over for this one */
    assert_int_equal(stats_of(&fx).bytes_kept, PAGE);
    sc_host_tier_let_go(fx.host, 2, 0);
    sc_host_tier_expire(fx.host, 99);
    assert_int_equal(stats_of(&fx).bytes_kept, PAGE);
    sc_host_tier_expire(fx.host, 100);
    assert_int_equal(stats_of(&fx).bytes_kept, 0);
    assert_true(keep(&fx, 0, 0, 3)); /* what is over is no promise */
    sc_host_tier_let_go(fx.host, 3, 0);
    assert_int_equal(stats_of(&fx).bytes_kept, 0);
    fixture_done(&fx);
}

/* ---- Threads --------------------------------------------------------------------------------- */

/* Piece 0 is there in two layers all the while, kept; others come and go. */
struct worker {
    struct fixture *fx;
    uint64_t seed;
    _Atomic uint32_t *ends;
    pthread_t thread;
};

static void *changer_main(void *argument)
{
    struct worker *worker = argument;
    for (uint32_t step = 0; step < 15000; step++) {
        uint64_t i = LAYERS + below(&worker->seed, KEYS - LAYERS);
        struct sc_host_tier_key key = key_of(i / LAYERS, i % LAYERS);
        (void)put(worker->fx, i / LAYERS, i % LAYERS, 1 + i % 2);
        if (i % 3 == 0)
            sc_host_tier_forget_layers(worker->fx->host, &key);
    }
    return NULL;
}

static void *counter_main(void *argument)
{
    struct worker *worker = argument;
    uint32_t wrong = 0;
    while (atomic_load(worker->ends) == 0) {
        uint32_t found = layers(worker->fx, 0);
        wrong += found != 0 && found != 2; /* 0: somebody changes, and may have lost its turn */
        wrong += layers(worker->fx, 1 + below(&worker->seed, PIECES - 1)) > LAYERS;
    }
    return wrong > 0 ? argument : NULL;
}

static void counting_needs_no_lock(void **state)
{
    (void)state;
    struct fixture fx;
    struct worker workers[6] = {0};
    _Atomic uint32_t ends = 0;
    fixture_init(&fx, SC_POLICY_VALUE, 1);
    for (uint64_t layer = 0; layer < 2; layer++) {
        assert_true(put(&fx, 0, layer, 1));
        assert_true(keep(&fx, 0, layer, 1));
    }
    for (uint32_t w = 0; w < 6; w++) {
        workers[w] = (struct worker){.fx = &fx, .seed = w + 1, .ends = &ends};
        assert_int_equal(pthread_create(&workers[w].thread, NULL,
                                        w < 3 ? changer_main : counter_main, &workers[w]),
                         0);
    }
    for (uint32_t w = 0; w < 6; w++) {
        void *wrong;
        atomic_store(&ends, w >= 3);
        assert_int_equal(pthread_join(workers[w].thread, &wrong), 0);
        assert_null(wrong);
    }
    assert_int_equal(layers(&fx, 0), 2);
    counts_check(&fx);
    fixture_done(&fx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counts_follow_every_change),
        cmocka_unit_test(what_is_kept_stays_until_it_was_used),
        cmocka_unit_test(not_all_of_the_memory_is_kept),
        cmocka_unit_test(not_all_of_the_slabs_are_kept),
        cmocka_unit_test(time_lets_go),
        cmocka_unit_test(a_second_keeper_shortens_nothing),
        cmocka_unit_test(counting_needs_no_lock),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
