/* The dual cache of IMPRESS, section 4.4.2, in the host tier and the one above it: promote, stay,
 * drop, by score, beside a twin that keeps sorted lists; Figure 14's two chunks; then by threads.
 *
 * Threads: one, but the last test: nine. */
#include "abi/spec_connector.h"
#include "tests/unit/store/host_tier_fixture.h"

#include <pthread.h>

#define ROWS    64u
#define NOWHERE SPEC_TIER_DISK

/* Of so many slabs of one page each. */
static void fixture_init_by(struct fixture *fx, enum sc_policy upper_policy, enum sc_policy policy,
                            uint64_t upper, uint64_t low)
{
    const struct sc_host_tier_params what = {.bytes = low * PAGE,
                                             .upper_bytes = upper * PAGE,
                                             .slab_bytes = PAGE,
                                             .policy = policy,
                                             .upper_policy = upper_policy};
    fixture_open(fx, &what, 0);
}

static void fixture_init(struct fixture *fx, enum sc_policy policy, uint64_t upper, uint64_t low)
{
    fixture_init_by(fx, policy, policy, upper, low);
}

static struct sc_host_tier_key key_of(uint64_t chunk)
{
    return (struct sc_host_tier_key){.copy = chunk + 1};
}

/* A load of a chunk of which so many rows are wanted: where they were. */
static uint32_t load(struct sc_host_tier *host, uint64_t chunk, uint64_t rows)
{
    uint32_t tier;
    const struct sc_host_tier_key key = key_of(chunk);
    struct sc_host_tier_memory_slab *slab = sc_host_tier_find(host, &key, &tier);
    if (slab != NULL) {
        sc_host_tier_touch(host, slab, rows);
        sc_host_tier_unpin(host, slab);
        return tier;
    }
    slab = sc_host_tier_begin_used(host, &key, ROWS, PAGE, 1000, rows);
    if (slab != NULL)
        sc_host_tier_publish(host, slab);
    return NOWHERE;
}

/* Without a use. */
static uint32_t where(struct sc_host_tier *host, uint64_t chunk)
{
    const struct sc_host_tier_key key = key_of(chunk);
    uint32_t risen;
    if (sc_host_tier_layers(host, &key, &risen) == 0)
        return NOWHERE;
    return risen != 0 ? SPEC_TIER_UPPER : SPEC_TIER_HOST;
}

/* ---- What moves ------------------------------------------------------------------------------ */

static void chunks_rise_stay_sink_and_go_by_score(void **state)
{
    (void)state;
    struct fixture fx;
    fixture_init(&fx, SC_POLICY_SCORE, 1, 1);
    assert_int_equal(load(fx.host, 0, 16), NOWHERE); /* score 1 x .25: above, where there is room */
    assert_int_equal(where(fx.host, 0), SPEC_TIER_UPPER);
    assert_int_equal(load(fx.host, 1, 8),
                     NOWHERE); /* .125: below the least above, into host memory */
    assert_int_equal(where(fx.host, 1), SPEC_TIER_HOST);
    assert_int_equal(load(fx.host, 2, 4), NOWHERE); /* .06: it stays on the disk */
    assert_int_equal(where(fx.host, 2), NOWHERE);
    assert_int_equal(where(fx.host, 1), SPEC_TIER_HOST);
    assert_int_equal(load(fx.host, 0, 16), SPEC_TIER_UPPER); /* 2 x .25 */
    assert_int_equal(load(fx.host, 1, 8), SPEC_TIER_HOST);   /* 2 x .125: it stays */
    assert_int_equal(where(fx.host, 1), SPEC_TIER_HOST);
    assert_int_equal(load(fx.host, 3, 64), NOWHERE); /* 1: it goes up; .5 goes down; .25 goes */
    assert_int_equal(where(fx.host, 3), SPEC_TIER_UPPER);
    assert_int_equal(where(fx.host, 0), SPEC_TIER_HOST);
    assert_int_equal(where(fx.host, 1), NOWHERE);
    for (uint32_t i = 0; i < 3; i++) /* 3, 4, 5 x .25: from host memory up, and the other down */
        assert_int_equal(load(fx.host, 0, 16), SPEC_TIER_HOST);
    assert_int_equal(where(fx.host, 0), SPEC_TIER_UPPER);
    assert_int_equal(where(fx.host, 3), SPEC_TIER_HOST);
    fixture_done(&fx);
}

/* What was dropped is not a stranger when it is loaded again. */
static void the_disk_alone_does_not_forget(void **state)
{
    (void)state;
    struct fixture fx;
    fixture_init(&fx, SC_POLICY_SCORE, 1, 0);
    for (uint32_t i = 0; i < 4; i++)
        (void)load(fx.host, 0, 32); /* 4 x .5 */
    for (uint32_t i = 0; i < 6; i++) {
        assert_int_equal(load(fx.host, 1, 28), NOWHERE); /* 1 .. 4 x .44, newer */
        assert_int_equal(where(fx.host, 1), i < 3 ? NOWHERE : SPEC_TIER_UPPER);
        if (i == 3)
            break;
    }
    assert_int_equal(where(fx.host, 0), NOWHERE);
    assert_int_equal(load(fx.host, 0, 32), NOWHERE); /* 5 x .5 beside 4 x .44 */
    assert_int_equal(where(fx.host, 0), SPEC_TIER_UPPER);
    fixture_done(&fx);
}

/* A pinned slab moves for its own use; it is no place for others, and nobody's bytes move. */
static void what_is_pinned_keeps_its_bytes_and_its_place(void **state)
{
    (void)state;
    struct fixture fx;
    uint32_t tier;
    fixture_init(&fx, SC_POLICY_SCORE, 1, 1);
    (void)load(fx.host, 0, 16);
    (void)load(fx.host, 1, 8);
    const struct sc_host_tier_key above = key_of(0), below = key_of(1);
    struct sc_host_tier_memory_slab *held = sc_host_tier_find(fx.host, &above, &tier);
    assert_int_equal(load(fx.host, 1, 64), SPEC_TIER_HOST);
    assert_int_equal(where(fx.host, 1), SPEC_TIER_HOST); /* who is held does not go for it */
    sc_host_tier_unpin(fx.host, held);
    held = sc_host_tier_find(fx.host, &below, &tier);
    uint8_t *bytes = sc_host_tier_bytes(fx.host, held);
    memset(bytes, 0x5a, PAGE);
    sc_host_tier_touch(fx.host, held, 64);
    assert_int_equal(where(fx.host, 1), SPEC_TIER_UPPER);
    assert_int_equal(where(fx.host, 0), SPEC_TIER_HOST);
    assert_ptr_equal(sc_host_tier_bytes(fx.host, held), bytes);
    sc_host_tier_forget(fx.host, &below);
    assert_int_equal(bytes[PAGE - 1], 0x5a);
    struct sc_host_tier_stats stats;
    sc_host_tier_stats(fx.host, &stats);
    assert_int_equal(stats.upper_bytes_used, PAGE); /* pinned: its place is taken */
    sc_host_tier_unpin(fx.host, held);
    sc_host_tier_stats(fx.host, &stats);
    assert_int_equal(stats.upper_bytes_used, 0);
    fixture_done(&fx);
}

/* Codes, and what is brought or stored for later, have no rows that anybody wants. */
static void rows_that_are_wanted_rise_alone(void **state)
{
    (void)state;
    struct fixture fx;
    struct sc_host_tier_memory_slab *slab;
    struct sc_host_tier_key key = {.copy = 1, .kind = SC_STORE_HOST_QUANT};
    fixture_init(&fx, SC_POLICY_SCORE, 4, 4);
    sc_host_tier_publish(fx.host, sc_host_tier_begin(fx.host, &key, ROWS, PAGE, 1));
    key.kind = SC_STORE_HOST_ROWS;
    sc_host_tier_publish(fx.host, sc_host_tier_begin_stored(fx.host, &key, ROWS, PAGE, 1));
    key.copy = 2;
    assert_int_equal(sc_host_tier_begin_kept(fx.host, &key, ROWS, PAGE, 1, 9, &slab),
                     SC_STORE_HOST_BEGUN);
    sc_host_tier_publish(fx.host, slab);
    struct sc_host_tier_stats stats;
    sc_host_tier_stats(fx.host, &stats);
    assert_true(stats.upper_bytes_used == 0 && stats.bytes_used == 3 * PAGE);
    assert_int_equal(load(fx.host, 1, 1), SPEC_TIER_HOST); /* and then it does */
    assert_int_equal(where(fx.host, 1), SPEC_TIER_UPPER);
    sc_host_tier_stats(fx.host, &stats);
    assert_true(stats.bytes_kept == 0 && stats.upper_bytes_used == PAGE);
    assert_int_equal(sc_host_tier_promoted_halves(fx.host), 2 * (ROWS - 1));
    key = (struct sc_host_tier_key){.copy = 3, .kind = SC_STORE_HOST_V};
    sc_host_tier_publish(fx.host, sc_host_tier_begin_used(fx.host, &key, ROWS, PAGE, 1, ROWS / 2));
    sc_host_tier_stats(fx.host, &stats);
    assert_int_equal(stats.upper_bytes_used, 2 * PAGE);
    assert_int_equal(sc_host_tier_promoted_halves(fx.host), 2 * (ROWS - 1) + ROWS / 2);
    fixture_done(&fx);
}

/* ---- Figure 14 ------------------------------------------------------------------------------- */

/* A's chunk is asked for 15 times, B's 10 times, as often as before; half of A's rows are wanted,
 * and all of B's. Rows that go over the bus, of chunks of two. */
static uint64_t transfers(enum sc_policy policy)
{
    struct fixture fx;
    uint64_t rows = 0;
    fixture_init(&fx, policy, 1, 1);
    for (uint32_t i = 0; i < 50; i++) {
        bool is_a = i % 5 % 2 == 0; /* a b a b a */
        uint32_t was = load(fx.host, is_a ? 0 : 1, is_a ? ROWS / 2 : ROWS);
        rows += i >= 25 && was != SPEC_TIER_UPPER ? (is_a ? 1 : 2) : 0;
    }
    fixture_done(&fx);
    return rows;
}

static void figure_14_takes_15_transfers_for_20(void **state)
{
    (void)state;
    assert_int_equal(transfers(SC_POLICY_LFU), 20);
    assert_int_equal(transfers(SC_POLICY_SCORE), 15);
}

/* ---- Beside a twin --------------------------------------------------------------------------- */

#define CHUNKS 40u
#define UPPER  5u
#define LOW    9u

/* The paper's text in so many words, by ranks of base/policy.h. */
struct twin {
    enum sc_policy policies[2]; /* by tier */
    struct {
        struct sc_use use;
        uint32_t tier;
    } chunks[CHUNKS];
    uint64_t now, stamp;
};

static uint64_t rank_of(const struct twin *twin, uint32_t tier, uint32_t chunk)
{
    return sc_rank_by(twin->policies[tier], &twin->chunks[chunk].use);
}

/* The lowest of a tier, CHUNKS: it has room. */
static uint32_t least_of(const struct twin *twin, uint32_t tier, uint32_t capacity)
{
    uint32_t least = CHUNKS, count = 0;
    for (uint32_t i = 0; i < CHUNKS; i++) {
        if (twin->chunks[i].tier != tier)
            continue;
        count++;
        if (least == CHUNKS || rank_of(twin, tier, i) < rank_of(twin, tier, least))
            least = i;
    }
    return count < capacity ? CHUNKS : least;
}

/* Into a tier if it is worth more than the least, who leaves it: or the chunk itself; CHUNKS: none.
 */
static uint32_t offer(struct twin *twin, uint32_t chunk, uint32_t tier, uint32_t capacity)
{
    uint32_t least = least_of(twin, tier, capacity);
    if (least != CHUNKS && rank_of(twin, tier, least) >= rank_of(twin, tier, chunk))
        return chunk;
    twin->chunks[chunk].tier = tier;
    if (least != CHUNKS)
        twin->chunks[least].tier = NOWHERE;
    return least;
}

static uint32_t twin_load(struct twin *twin, uint32_t chunk, uint64_t rows)
{
    struct sc_use *use = &twin->chunks[chunk].use;
    uint32_t was = twin->chunks[chunk].tier;
    uint64_t half_life = twin->policies[SPEC_TIER_UPPER] == SC_POLICY_SCORE  ? 16 * UPPER
                         : twin->policies[SPEC_TIER_HOST] == SC_POLICY_SCORE ? 16 * (UPPER + LOW)
                                                                             : UPPER + LOW;
    twin->now += SC_HEAT_ONE / half_life + 1;
    use->heat = sc_heat_used(use->heat, twin->now);
    use->stamp = ++twin->stamp;
    use->count++;
    use->importance = sc_importance_touched(use->importance, (uint32_t)(rows * 1000000 / ROWS));
    if (was == SPEC_TIER_UPPER)
        return was;
    twin->chunks[chunk].tier = NOWHERE;
    uint32_t out = offer(twin, chunk, SPEC_TIER_UPPER, UPPER);
    if (out != CHUNKS)
        (void)offer(twin, out, SPEC_TIER_HOST, LOW);
    return was;
}

static void a_twin_says_the_same_of_every_load(void **state)
{
    (void)state;
    const enum sc_policy policies[][2] = {{SC_POLICY_SCORE, SC_POLICY_SCORE},
                                          {SC_POLICY_LFU, SC_POLICY_LFU},
                                          {SC_POLICY_LRU, SC_POLICY_LRU},
                                          {SC_POLICY_SCORE, SC_POLICY_LFU},
                                          {SC_POLICY_LFU, SC_POLICY_SCORE}};
    for (uint32_t p = 0; p < 5; p++) {
        struct twin twin = {.policies = {policies[p][0], policies[p][1]}, .now = SC_HEAT_FIRST};
        struct fixture fx;
        uint64_t seed = 77, seen[4] = {0};
        fixture_init_by(&fx, policies[p][0], policies[p][1], UPPER, LOW);
        for (uint32_t i = 0; i < CHUNKS; i++)
            twin.chunks[i].tier = NOWHERE;
        for (uint32_t step = 0; step < 4000; step++) {
            seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
            uint32_t a = (uint32_t)(seed >> 33) % CHUNKS, b = (uint32_t)(seed >> 45) % CHUNKS;
            uint32_t chunk = a < b ? a : b; /* low ones more often */
            uint64_t rows = 1 + (chunk * 23 + (seed >> 60)) % ROWS;
            uint32_t was = twin_load(&twin, chunk, rows);
            assert_int_equal(load(fx.host, chunk, rows), was);
            seen[was]++;
            for (uint32_t i = 0; i < CHUNKS; i++)
                assert_int_equal(where(fx.host, i), twin.chunks[i].tier);
        }
        assert_true(seen[SPEC_TIER_UPPER] > 400 && seen[SPEC_TIER_HOST] > 400 &&
                    seen[NOWHERE] > 400);
        fixture_done(&fx);
    }
}

/* ---- By threads ------------------------------------------------------------------------------ */

#define WORKERS 8u

struct shared {
    struct sc_host_tier *host;
    _Atomic uint64_t wrong, above;
};

static void *work(void *arg)
{
    struct shared *shared = arg;
    uint64_t seed = (uintptr_t)&seed >> 4;
    for (uint32_t step = 0; step < 3000; step++) {
        seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        uint64_t chunk = (seed >> 33) % 24;
        uint32_t tier;
        const struct sc_host_tier_key key = key_of(chunk);
        struct sc_host_tier_memory_slab *slab = sc_host_tier_find(shared->host, &key, &tier);
        if (slab == NULL) {
            slab = sc_host_tier_begin_used(shared->host, &key, ROWS, PAGE, 10, 1 + chunk);
            if (slab != NULL) {
                memset(sc_host_tier_bytes(shared->host, slab), (int)chunk, PAGE);
                sc_host_tier_publish(shared->host, slab);
            }
            continue;
        }
        sc_host_tier_touch(shared->host, slab, 1 + (seed >> 40) % ROWS);
        const uint8_t *bytes = sc_host_tier_bytes(shared->host, slab);
        for (uint32_t i = 0; i < PAGE; i += 64)
            shared->wrong += bytes[i] != chunk;
        shared->above += tier == SPEC_TIER_UPPER;
        if (seed >> 58 == 0)
            sc_host_tier_forget(shared->host, &key);
        uint32_t risen, layers = sc_host_tier_layers(shared->host, &key, &risen);
        shared->wrong += risen > layers;
        sc_host_tier_unpin(shared->host, slab);
    }
    return NULL;
}

static void threads_find_what_was_published(void **state)
{
    (void)state;
    struct fixture fx;
    fixture_init(&fx, SC_POLICY_SCORE, 6, 6);
    struct shared shared = {.host = fx.host};
    pthread_t threads[WORKERS];
    for (uint32_t i = 0; i < WORKERS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, work, &shared), 0);
    for (uint32_t i = 0; i < WORKERS; i++)
        pthread_join(threads[i], NULL);
    struct sc_host_tier_stats stats;
    sc_host_tier_stats(fx.host, &stats);
    assert_int_equal(shared.wrong, 0);
    assert_true(shared.above > 0 && stats.risen > 0 && stats.upper_hits == shared.above);
    assert_true(stats.upper_bytes_used <= 6 * PAGE && stats.bytes_used <= 6 * PAGE);
    fixture_done(&fx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chunks_rise_stay_sink_and_go_by_score),
        cmocka_unit_test(the_disk_alone_does_not_forget),
        cmocka_unit_test(what_is_pinned_keeps_its_bytes_and_its_place),
        cmocka_unit_test(rows_that_are_wanted_rise_alone),
        cmocka_unit_test(figure_14_takes_15_transfers_for_20),
        cmocka_unit_test(a_twin_says_the_same_of_every_load),
        cmocka_unit_test(threads_find_what_was_published),
    };
    return cmocka_run_group_tests_name("host dual", tests, NULL, NULL);
}
