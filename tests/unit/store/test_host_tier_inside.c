/* The host tier looked at from inside after each of many random steps: one slab a key, pages that
 * are taken once and no more than there are, a heap in order of all that may go and of nothing
 * else, as many pins as there are holders.
 *
 * The file under test is included: what it keeps is its own. */
#include "store/cache/host_tier.c"

#include "tests/unit/cases.h"

#define PAGES       64u
#define COPIES      12u
#define LAYERS      4u
#define HELD        16u
#define FILLING_MAX 6u
#define KEEPERS     3u
#define STEPS       3000u
#define SEEDS_TRIED 24u

struct world {
    struct sc_alloc alloc;
    struct sc_poison poison;
    struct sc_host_tier *host;
    struct sc_host_tier_memory_slab *held[HELD], *filling[FILLING_MAX];
    uint64_t seed, now_ns, begun, refused;
};

static uint64_t below(uint64_t *seed, uint64_t end)
{
    *seed = *seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (*seed >> 33) % end;
}

/* ---- What holds ------------------------------------------------------------------------------ */

static uint32_t pins_of(const struct world *w, const struct sc_host_tier_memory_slab *slab)
{
    uint32_t pins = 0;
    for (uint32_t i = 0; i < HELD; i++)
        pins += w->held[i] == slab;
    return pins;
}

static bool is_filling(const struct world *w, const struct sc_host_tier_memory_slab *slab)
{
    bool is = false;
    for (uint32_t i = 0; i < FILLING_MAX; i++)
        is |= w->filling[i] == slab;
    return is;
}

static void slab_check(const struct world *w, const struct sc_host_tier_memory_slab *slab)
{
    const struct sc_host_tier *host = w->host;
    bool is_known = slab->state == FILLING || slab->state == PUBLISHED;
    bool may_go = slab->state == PUBLISHED && slab->pins == 0 && slab->keeper == 0;
    assert_true(slab_find(host, &slab->key) == slab || !is_known);
    assert_int_equal(slab->pins, pins_of(w, slab));
    assert_true(is_filling(w, slab) == (slab->state == FILLING) || slab->state == FORGOTTEN);
    assert_true(slab->state != FORGOTTEN || slab->pins > 0 || is_filling(w, slab));
    assert_true(slab->pages > 0 && slab->page + slab->pages <= host->page_count);
    for (uint64_t p = slab->page; p < slab->page + slab->pages; p++)
        assert_int_equal(host->owners[p], slab - host->slabs);
    assert_true(slab->tier == HOST || (host->is_dual && slab->key.kind == SC_STORE_HOST_ROWS));
    if (may_go) {
        const struct sc_heap *heap = &host->tiers[slab->tier].heap;
        uint32_t place = heap->places[slab - host->slabs];
        assert_true(place < heap->count);
        assert_int_equal(heap->nodes[place].item, slab - host->slabs);
        assert_true(slab->rank == sc_rank_by(host->tiers[slab->tier].policy, &slab->use));
    }
}

static void heap_check(const struct sc_host_tier *host, uint32_t tier)
{
    const struct sc_heap *heap = &host->tiers[tier].heap;
    for (uint32_t i = 0; i < heap->count; i++) {
        const struct sc_host_tier_memory_slab *slab = &host->slabs[heap->nodes[i].item];
        assert_true(slab->state == PUBLISHED && slab->pins == 0 && slab->keeper == 0);
        assert_int_equal(slab->tier, tier);
        assert_true(slab->rank == heap->nodes[i].rank);
        assert_true(i == 0 || heap->nodes[(i - 1) / 2].rank <= slab->rank);
    }
}

static void world_check(const struct world *w)
{
    const struct sc_host_tier *host = w->host;
    uint64_t used = 0, kept = 0, published = 0, may_go = 0, slabs = 0, owned = 0;
    uint64_t low_max = host->tiers[HOST].pages_max, by_tier[2] = {0};
    uint32_t risen[COPIES + 1] = {0};
    for (uint32_t i = 0; i < host->slabs_max; i++) {
        const struct sc_host_tier_memory_slab *slab = &host->slabs[i];
        if (slab->state == FREE)
            continue;
        slab_check(w, slab);
        slabs++;
        used += slab->pages;
        by_tier[slab->tier] += slab->pages;
        risen[slab->key.copy] += slab->state == PUBLISHED && slab->tier == UPPER;
        kept += slab->keeper != 0 ? slab->pages : 0;
        published += slab->state == PUBLISHED;
        may_go += slab->state == PUBLISHED && slab->pins == 0 && slab->keeper == 0;
    }
    for (uint64_t p = 0; p < host->page_count; p++)
        owned += host->owners[p] != NONE;
    for (uint32_t i = host->free; i != NONE; i = host->slabs[i].next)
        slabs++;
    slabs += host->slabs_max - host->fresh;
    assert_int_equal(slabs, host->slabs_max);
    for (uint32_t tier = 0; tier < 2; tier++) {
        assert_int_equal(by_tier[tier], host->tiers[tier].pages_used);
        assert_true(by_tier[tier] <= host->tiers[tier].pages_max);
    }
    for (uint64_t copy = 1; copy <= COPIES; copy++) {
        const struct sc_host_tier_key key = {.copy = copy};
        uint32_t in_upper;
        (void)sc_host_tier_layers(host, &key, &in_upper);
        assert_int_equal(in_upper, risen[copy]);
    }
    assert_true(used <= host->page_count);
    assert_int_equal(used, owned);
    assert_int_equal(host->map.segments[0].free_pages, host->page_count - used);
    assert_true(kept == host->pages_kept && kept <= low_max - low_max / KEPT);
    assert_int_equal(published, host->published);
    assert_int_equal(may_go, host->tiers[UPPER].heap.count + host->tiers[HOST].heap.count);
    heap_check(host, UPPER);
    heap_check(host, HOST);
}

/* ---- Steps ----------------------------------------------------------------------------------- */

static struct sc_host_tier_key key_any(struct world *w)
{
    return (struct sc_host_tier_key){.copy = 1 + below(&w->seed, COPIES),
                                     .layer = (uint32_t)below(&w->seed, LAYERS)};
}

static void step_fill(struct world *w)
{
    struct sc_host_tier_key key = key_any(w);
    struct sc_host_tier_memory_slab **at = &w->filling[below(&w->seed, FILLING_MAX)];
    uint64_t bytes = 1 + below(&w->seed, 12 * PAGE), cost_ns = below(&w->seed, 100000);
    uint64_t evictions = w->host->evictions;
    if (*at != NULL && below(&w->seed, 4) == 0) {
        sc_host_tier_abandon(w->host, *at);
        *at = NULL;
    } else if (*at != NULL) {
        sc_host_tier_publish(w->host, *at);
        *at = NULL;
    } else {
        bool has = sc_host_tier_has(w->host, &key);
        uint64_t rows = 1 + below(&w->seed, 8);
        *at = below(&w->seed, 3) == 0
                  ? sc_host_tier_begin_stored(w->host, &key, 8, bytes, cost_ns)
                  : sc_host_tier_begin_used(w->host, &key, 8, bytes, cost_ns, rows);
        assert_true(!has || *at == NULL);
        assert_true(*at != NULL || w->host->is_dual ||
                    w->host->evictions == evictions); /* refused: nothing went */
        w->begun += *at != NULL;
        w->refused += *at == NULL && !has;
    }
}

static void step_hold(struct world *w)
{
    struct sc_host_tier_key key = key_any(w);
    struct sc_host_tier_memory_slab **at = &w->held[below(&w->seed, HELD)];
    if (*at != NULL) {
        sc_host_tier_unpin(w->host, *at);
        *at = NULL;
        return;
    }
    bool has = sc_host_tier_has(w->host, &key);
    *at = sc_host_tier_get(w->host, &key);
    assert_int_equal(*at != NULL, has);
    if (*at != NULL && below(&w->seed, 4) != 0)
        sc_host_tier_touch(w->host, *at, 1 + below(&w->seed, 8));
}

static void world_step(struct world *w)
{
    struct sc_host_tier_key key = key_any(w);
    uint64_t keeper = 1 + below(&w->seed, KEEPERS);
    switch (below(&w->seed, 12)) {
    case 0:
        sc_host_tier_forget(w->host, &key);
        assert_false(sc_host_tier_has(w->host, &key));
        break;
    case 1:
        if (below(&w->seed, 4) == 0)
            sc_host_tier_forget_layers(w->host, &key);
        break;
    case 2:
        (void)sc_host_tier_keep(w->host, &key, keeper);
        break;
    case 3:
        sc_host_tier_let_go(w->host, keeper,
                            below(&w->seed, 2) == 0 ? 0 : w->now_ns + below(&w->seed, 50));
        break;
    case 4:
        sc_host_tier_expire(w->host, w->now_ns += below(&w->seed, 20));
        break;
    case 5:
    case 6:
    case 7:
    case 8:
        step_hold(w);
        break;
    default:
        step_fill(w);
    }
}

static void world_end(struct world *w)
{
    for (uint32_t i = 0; i < HELD; i++)
        sc_host_tier_unpin(w->host, w->held[i]);
    for (uint32_t i = 0; i < FILLING_MAX; i++)
        sc_host_tier_abandon(w->host, w->filling[i]);
    for (uint64_t i = 0; i < (uint64_t)COPIES * LAYERS; i++) {
        const struct sc_host_tier_key key = {.copy = 1 + i / LAYERS,
                                             .layer = (uint32_t)(i % LAYERS)};
        sc_host_tier_forget(w->host, &key);
    }
    memset(w->held, 0, sizeof(w->held));
    memset(w->filling, 0, sizeof(w->filling));
    world_check(w);
    assert_int_equal(w->host->tiers[UPPER].pages_used + w->host->tiers[HOST].pages_used, 0);
    sc_alloc_unseal(&w->alloc);
    sc_host_tier_close(w->host);
    assert_int_equal(atomic_load(&w->alloc.live_blocks), 0);
}

static void all_holds_after_every_step(void **state)
{
    (void)state;
    const enum sc_policy policies[] = {SC_POLICY_VALUE, SC_POLICY_LRU, SC_POLICY_LFU,
                                       SC_POLICY_SCORE};
    uint64_t sunk = 0;
    for (uint64_t seed = 1; seed <= SEEDS_TRIED; seed++) {
        static struct world w;
        memset(&w, 0, sizeof(w));
        w.seed = seed;
        sc_alloc_init(&w.alloc);
        uint64_t upper = seed % 3 == 0 ? 0 : seed % 3 * 12 * PAGE + 5;
        const struct sc_host_tier_params params = {
            .alloc = &w.alloc,
            .poison = &w.poison,
            .bytes = (seed % 5 == 0 ? 3 : PAGES) * PAGE + 17,
            .upper_bytes = upper,
            .slab_bytes = seed % 2 == 0 ? 4 * PAGE : 40 * PAGE, /* 40: few entries */
            .policy = policies[seed / 2 % 4],
            .upper_policy = policies[seed / (seed % 2 == 0 ? 2 : 5) % 4]};
        assert_int_equal(sc_host_tier_open(&params, &w.host, NULL), SPEC_OK);
        sc_alloc_seal(&w.alloc);
        for (uint32_t step = 0; step < STEPS; step++) {
            world_step(&w);
            world_check(&w);
        }
        assert_true(w.begun > 0 && w.refused > 0 && w.host->evictions > 0 &&
                    w.host->hits[HOST] > 0);
        assert_true(upper == 0 || (w.host->hits[UPPER] > 0 && w.host->risen > 0));
        sunk += w.host->sunk;
        assert_int_equal(atomic_load(&w.alloc.sealed_refusals), 0);
        world_end(&w);
    }
    assert_true(sunk > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_holds_after_every_step),
    };
    return cmocka_run_group_tests_name("host inside", tests, NULL, NULL);
}
