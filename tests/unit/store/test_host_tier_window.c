/* Which neighbours go for a slab, beside a twin that looks at every set of them. */
#include "store/cache/host_window.h"
#include "tests/unit/cases.h"

#define PAGES_MAX 120u
#define ROUNDS    20000u

struct slab {
    uint64_t page, pages;
    double lost;
};

struct world {
    uint32_t owners[PAGES_MAX], slab_count;
    struct slab slabs[PAGES_MAX], parts[PAGES_MAX]; /* parts: slabs and gaps, in order */
    uint32_t part_count;
    uint64_t page_count, seed;
};

static uint64_t below(uint64_t *seed, uint64_t end)
{
    *seed = *seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (*seed >> 33) % end;
}

static double lost_of(const void *user, uint32_t slab, uint64_t *ret_page, uint64_t *ret_pages)
{
    const struct world *world = user;
    *ret_page = world->slabs[slab].page;
    *ret_pages = world->slabs[slab].pages;
    return world->slabs[slab].lost;
}

/* Gaps are one part each, as the caller has them that looks from their first page on. */
static void world_make(struct world *world, uint64_t seed)
{
    bool was_gap = false;
    *world = (struct world){.seed = seed};
    uint64_t page_count = 20 + below(&world->seed, PAGES_MAX - 20);
    while (world->page_count < page_count) {
        uint64_t left = page_count - world->page_count, kind = below(&world->seed, 8);
        struct slab part = {.page = world->page_count, .pages = 1 + below(&world->seed, 9)};
        part.pages = part.pages < left ? part.pages : left;
        bool is_gap = kind == 0 && !was_gap;
        part.lost = is_gap ? 0 : kind == 1 ? -1 : (double)(1 + below(&world->seed, 100));
        for (uint64_t p = 0; p < part.pages; p++)
            world->owners[part.page + p] = is_gap ? SC_STORE_WINDOW_FREE : world->slab_count;
        if (!is_gap)
            world->slabs[world->slab_count++] = part;
        world->parts[world->part_count++] = part;
        world->page_count += part.pages;
        was_gap = is_gap;
    }
}

/* The least a page of all sets that are long enough, and not without their first or last; < 0: none
 * is. */
static double least_of(const struct world *world, uint64_t pages)
{
    double least = -1;
    for (uint32_t i = 0; i < world->part_count; i++) {
        double lost = 0;
        for (uint32_t k = i; k < world->part_count && world->parts[k].lost >= 0; k++) {
            uint64_t end = world->parts[k].page + world->parts[k].pages;
            uint64_t span = end - world->parts[i].page;
            lost += world->parts[k].lost;
            if (span < pages)
                continue;
            if ((k == i || span - world->parts[i].pages < pages) &&
                (least < 0 || lost / (double)span < least))
                least = lost / (double)span;
            break;
        }
    }
    return least;
}

/* From wherever it looks, it finds a set that is long enough and may go; from all pages, the least.
 */
static void what_loses_least_a_page_is_found(void **state)
{
    (void)state;
    uint64_t found_count = 0, none = 0;
    for (uint64_t seed = 1; seed <= ROUNDS; seed++) {
        static struct world world;
        world_make(&world, seed);
        const struct sc_store_window window = {.owners = world.owners,
                                               .page_count = world.page_count,
                                               .lost = lost_of,
                                               .user = &world};
        uint64_t pages = 1 + below(&world.seed, 60);
        struct sc_store_window_found found = {.each = -1};
        double least = least_of(&world, pages), before = -1;
        for (uint32_t i = 0; i < world.part_count; i++) {
            sc_store_window_find(&window, pages, world.parts[i].page, &found);
            assert_true(before < 0 || found.each <= before);
            before = found.each;
        }
        found_count += found.each >= 0;
        none += found.each < 0;
        assert_int_equal(found.each >= 0, least >= 0);
        if (found.each < 0)
            continue;
        assert_true(found.each <= least * 1.000001 + 1e-9);
        assert_true(found.page + pages <= world.page_count);
        for (uint64_t p = found.page; p < found.page + pages; p++)
            assert_true(world.owners[p] == SC_STORE_WINDOW_FREE ||
                        world.slabs[world.owners[p]].lost >= 0);
    }
    assert_true(found_count > 1000 && none > 1000);
}

/* What is worth 2^60 times as much beside it leaves no trace in the sum. */
static void what_is_worth_much_hides_nothing(void **state)
{
    (void)state;
    static struct world world;
    world = (struct world){.page_count = 3, .slab_count = 3};
    for (uint32_t i = 0; i < 3; i++) {
        world.owners[i] = i;
        world.slabs[i] = (struct slab){.page = i, .pages = 1, .lost = i == 0 ? 1e20 : 5 - i};
    }
    const struct sc_store_window window = {
        .owners = world.owners, .page_count = 3, .lost = lost_of, .user = &world};
    struct sc_store_window_found found = {.each = -1};
    sc_store_window_find(&window, 2, 0, &found);
    assert_int_equal(found.page, 1);
    assert_true(found.each > 3.4 && found.each < 3.6);
}

/* As many slabs as there are pages, all of which may go for a long one: it finds those that lose
 * least, within a set of more parts than are told apart. */
static void many_short_ones_go_for_a_long_one(void **state)
{
    (void)state;
    static struct world world;
    for (uint64_t pages = 60; pages <= PAGES_MAX; pages += 3) {
        world = (struct world){.page_count = PAGES_MAX, .slab_count = PAGES_MAX};
        for (uint32_t i = 0; i < PAGES_MAX; i++) {
            world.owners[i] = i;
            world.slabs[i] = (struct slab){.page = i, .pages = 1, .lost = 1 + i % 7};
        }
        const struct sc_store_window window = {
            .owners = world.owners, .page_count = PAGES_MAX, .lost = lost_of, .user = &world};
        struct sc_store_window_found found = {.each = -1};
        for (uint32_t i = 0; i < 8; i++)
            sc_store_window_find(&window, pages, i * 7, &found);
        assert_true(found.each >= 1 && found.each <= 7);
        assert_true(found.page + pages <= PAGES_MAX);
        world.slabs[PAGES_MAX / 2].lost = -1; /* one that stays, in the middle */
        found.each = -1;
        sc_store_window_find(&window, pages, PAGES_MAX / 2 - 1, &found);
        assert_int_equal(found.each >= 0, pages <= PAGES_MAX / 2);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_loses_least_a_page_is_found),
        cmocka_unit_test(what_is_worth_much_hides_nothing),
        cmocka_unit_test(many_short_ones_go_for_a_long_one),
    };
    return cmocka_run_group_tests_name("host window", tests, NULL, NULL);
}
