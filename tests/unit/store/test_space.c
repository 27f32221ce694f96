/* Free pages of segments, beside a dumb twin: an array of owners, a page each. */
#include "store/space/page_map.h"
#include "tests/unit/cases.h"

#define SEGMENTS 3u
#define PAGES    333u /* no multiple of 64 */

struct run {
    uint64_t segment, page, pages;
};

static uint64_t random_below(uint64_t *state, uint64_t bound)
{
    *state = *state * 6364136223846793005ull + 1442695040888963407ull;
    return (*state >> 33) % bound;
}

/* First run of free pages of the twin; PAGES when there is none. */
static uint64_t twin_find(const uint8_t *owned, uint64_t page_count, uint64_t pages)
{
    for (uint64_t page = 0; page + pages <= page_count; page++) {
        uint64_t n = 0;
        while (n < pages && owned[page + n] == 0)
            n++;
        if (n == pages)
            return page;
    }
    return PAGES;
}

static uint64_t twin_longest(const uint8_t *owned, uint64_t page_count)
{
    uint64_t longest = 0;
    while (longest < page_count && twin_find(owned, page_count, longest + 1) != PAGES)
        longest++;
    return longest;
}

/* How many of `bytes` fit into free runs, run by run; and the pages of runs that hold one. */
static uint64_t twin_fit(const uint8_t *owned, uint64_t page_count, uint64_t bytes, uint64_t *pages)
{
    uint64_t count = 0;
    *pages = 0;
    for (uint64_t page = 0; page < page_count;) {
        uint64_t run = 0;
        while (page + run < page_count && owned[page + run] == 0)
            run++;
        count += run * SC_STORE_SPACE_PAGE_BYTES / bytes;
        *pages += run * SC_STORE_SPACE_PAGE_BYTES >= bytes ? run : 0;
        page += run > 0 ? run : 1;
    }
    return count;
}

static void check_fit(struct sc_store_space *space, uint64_t s, const uint8_t *owned,
                      uint64_t page_count, uint64_t bytes)
{
    uint64_t pages, twin_pages;
    uint64_t count = twin_fit(owned, page_count, bytes, &twin_pages);
    assert_int_equal(sc_store_space_fit(space, s, bytes, UINT64_MAX, &pages), count);
    assert_int_equal(pages, twin_pages);
    assert_int_equal(sc_store_space_fit(space, s, bytes, 2, &pages), count < 2 ? count : 2);
    assert_int_equal(sc_store_space_fit(space, s, bytes, UINT64_MAX, &pages), count); /* kept */
    assert_int_equal(pages, twin_pages);
}

static void space_takes_the_first_fit_and_frees_like_the_twin(void **state)
{
    (void)state;
    const uint64_t sizes[SEGMENTS] = {PAGES, 64, 129};
    for (uint64_t seed = 1; seed <= 20; seed++) {
        static uint8_t owned[SEGMENTS][PAGES];
        static struct run runs[SEGMENTS * PAGES];
        struct sc_alloc alloc;
        struct sc_store_space space;
        uint64_t random = seed, run_count = 0, page = 0;
        memset(owned, 0, sizeof(owned));
        sc_alloc_init(&alloc);
        assert_true(sc_store_space_init(&space, &alloc, NULL, SEGMENTS, PAGES));
        for (uint64_t i = 0; i < SEGMENTS; i++)
            sc_store_space_add(&space, i, sizes[i]);
        for (uint32_t turn = 0; turn < 3000; turn++) {
            uint64_t s = random_below(&random, SEGMENTS);
            uint64_t pages = 1 + random_below(&random, random_below(&random, 8) == 0 ? 100 : 9);
            uint64_t choice = random_below(&random, 5);
            check_fit(&space, s, owned[s], sizes[s], 1 + random_below(&random, 40000));
            if (choice < 2) {
                uint64_t expected = twin_find(owned[s], sizes[s], pages);
                bool took = sc_store_space_take(&space, s, pages, &page);
                if (took != (expected != PAGES) || (took && page != expected))
                    fail_msg("seed %lu turn %u", (unsigned long)seed, turn);
                if (!took)
                    continue;
            } else if (choice == 2) {
                page = random_below(&random, PAGES + 10);
                bool is_free =
                    page + pages <= sizes[s] && twin_find(owned[s] + page, pages, pages) == 0;
                assert_int_equal(sc_store_space_take_at(&space, s, page, pages), is_free);
                if (!is_free)
                    continue;
            } else {
                if (run_count == 0)
                    continue;
                struct run *run = &runs[random_below(&random, run_count)];
                sc_store_space_free(&space, run->segment, run->page, run->pages);
                memset(owned[run->segment] + run->page, 0, run->pages);
                *run = runs[--run_count];
                continue;
            }
            memset(owned[s] + page, 1, pages);
            runs[run_count++] = (struct run){s, page, pages};
            assert_int_equal(sc_store_space_run_max(&space, s), twin_longest(owned[s], sizes[s]));
        }
        while (run_count > 0) {
            struct run *run = &runs[--run_count];
            sc_store_space_free(&space, run->segment, run->page, run->pages);
        }
        for (uint64_t i = 0; i < SEGMENTS; i++) {
            assert_int_equal(space.segments[i].free_pages, sizes[i]);
            assert_int_equal(sc_store_space_run_max(&space, i), sizes[i]); /* coalesced */
            sc_store_space_remove(&space, i);
        }
        sc_store_space_done(&space);
        assert_int_equal(atomic_load(&alloc.live_blocks), 0);
    }
}

static void space_outside_a_segment_is_never_taken(void **state)
{
    (void)state;
    struct sc_alloc alloc;
    struct sc_store_space space;
    uint64_t page;
    sc_alloc_init(&alloc);
    assert_true(sc_store_space_init(&space, &alloc, NULL, 2, 100));
    sc_store_space_add(&space, 1, 100);
    assert_false(sc_store_space_take_at(&space, 0, 0, 1)); /* an index without a segment */
    assert_false(sc_store_space_take_at(&space, 1, 100, 1));
    assert_false(sc_store_space_take_at(&space, 1, 99, 2));
    assert_false(sc_store_space_take_at(&space, 1, UINT64_MAX, 2));
    assert_false(sc_store_space_take_at(&space, 1, 1, UINT64_MAX));
    assert_false(sc_store_space_take(&space, 1, 101, &page));
    assert_true(sc_store_space_take_at(&space, 1, 0, 100));
    assert_false(sc_store_space_take(&space, 1, 1, &page));
    sc_store_space_done(&space);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(space_takes_the_first_fit_and_frees_like_the_twin),
        cmocka_unit_test(space_outside_a_segment_is_never_taken),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
