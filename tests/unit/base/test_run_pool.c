/* Runs of pages: no page has two owners, gaps are found where they are, and what was given back is
 * given again. A twin that knows nothing but an array of owners judges random orders. */
#include "base/run_pool.h"

#include "base/counter.h"
#include "base/fault.h"
#include "tests/unit/threads.h"

#include <stdlib.h>
#include <string.h>

#define PAGE       SC_RUN_PAGE_BYTES
#define LONG_PAGES (SC_RUN_LONG_BYTES / SC_RUN_PAGE_BYTES + 1)
#define RUNS       40u

struct bench {
    struct sc_alloc alloc;
    struct sc_poison poison;
    struct sc_run_pool pool;
};

static void bench_open(struct bench *bench, uint64_t pages)
{
    memset(bench, 0, sizeof(*bench));
    sc_alloc_init(&bench->alloc);
    assert_true(sc_run_pool_open(&bench->pool, &bench->alloc, &bench->poison, pages * PAGE));
    sc_alloc_seal(&bench->alloc);
}

static void bench_close(struct bench *bench)
{
    assert_int_equal(atomic_load(&bench->alloc.sealed_refusals), 0);
    sc_alloc_unseal(&bench->alloc);
    sc_run_pool_close(&bench->pool);
    sc_run_pool_close(&bench->pool); /* a closed one may be closed */
    sc_alloc_done(&bench->alloc);
    assert_int_equal(atomic_load(&bench->poison.broken), 0);
}

static uint64_t page_of(const struct bench *bench, const struct sc_run *run)
{
    assert_int_equal((uint64_t)(run->at - bench->pool.base) % PAGE, 0);
    return (uint64_t)(run->at - bench->pool.base) / PAGE;
}

static struct sc_run take(struct bench *bench, uint64_t pages)
{
    struct sc_run run;
    assert_true(sc_run_take(&bench->pool, pages * PAGE, &run));
    assert_int_equal(run.bytes, pages * PAGE);
    memset(run.at, 0x5a, run.bytes);
    return run;
}

static void short_runs_fill_the_first_gap_and_long_ones_the_last(void **state)
{
    (void)state;
    struct bench bench;
    bench_open(&bench, 1000);
    struct sc_run a = take(&bench, 3), b = take(&bench, 2), c = take(&bench, 1);
    struct sc_run last = take(&bench, LONG_PAGES), more = take(&bench, LONG_PAGES);
    assert_int_equal(page_of(&bench, &a), 0);
    assert_int_equal(page_of(&bench, &b), 3);
    assert_int_equal(page_of(&bench, &c), 5);
    assert_int_equal(page_of(&bench, &last), 1000 - LONG_PAGES);
    assert_int_equal(page_of(&bench, &more), 1000 - 2 * LONG_PAGES);
    sc_run_put(&bench.pool, &b);
    assert_null(b.at);
    b = take(&bench, 3); /* the gap of two is too short */
    assert_int_equal(page_of(&bench, &b), 6);
    struct sc_run d = take(&bench, 2);
    assert_int_equal(page_of(&bench, &d), 3);
    sc_run_put(&bench.pool, &last);
    last = take(&bench, LONG_PAGES);
    assert_int_equal(page_of(&bench, &last), 1000 - LONG_PAGES);
    struct sc_run *const all[] = {&a, &b, &c, &d, &last, &more};
    for (uint32_t i = 0; i < 6; i++)
        sc_run_put(&bench.pool, all[i]);
    bench_close(&bench);
}

static void bytes_are_whole_pages_and_none_is_no_run(void **state)
{
    (void)state;
    struct bench bench;
    struct sc_run run = {NULL, 1};
    bench_open(&bench, 2);
    assert_true(sc_run_take(&bench.pool, 0, &run));
    assert_null(run.at);
    assert_int_equal(run.bytes, 0);
    sc_run_put(&bench.pool, &run);
    assert_true(sc_run_take(&bench.pool, PAGE + 1, &run));
    assert_int_equal(run.bytes, 2 * PAGE);
    struct sc_run none;
    assert_false(sc_run_take(&bench.pool, 1, &none));
    assert_null(none.at);
    assert_int_equal(sc_counted(&bench.pool.refused), 1);
    sc_run_trim(&bench.pool, &run, PAGE + 1); /* both pages are still in use */
    assert_int_equal(run.bytes, 2 * PAGE);
    sc_run_trim(&bench.pool, &run, 1);
    assert_int_equal(run.bytes, PAGE);
    assert_true(sc_run_take(&bench.pool, 1, &none));
    assert_int_equal(page_of(&bench, &none), 1);
    sc_run_put(&bench.pool, &none);
    sc_run_put(&bench.pool, &run);
    assert_false(sc_run_take(&bench.pool, UINT64_MAX, &run));
    assert_false(sc_run_take(&bench.pool, 3 * PAGE, &run));
    bench_close(&bench);
}

/* The gap of so many pages that the twin finds. */
static bool twin_has_gap(const uint8_t *owners, uint64_t page_count, uint64_t pages)
{
    for (uint64_t page = 0, length = 0; page < page_count; page++) {
        length = owners[page] == 0 ? length + 1 : 0;
        if (length >= pages)
            return true;
    }
    return false;
}

static void owners_set(uint8_t *owners, uint64_t first, uint64_t count, uint8_t before, uint8_t now)
{
    for (uint64_t page = first; page < first + count; page++) {
        assert_int_equal(owners[page], before);
        owners[page] = now;
    }
}

static void any_order_gives_each_page_one_owner(void **state)
{
    (void)state;
    static const uint64_t PAGES[] = {1, 63, 64, 65, 700, 1024};
    for (uint32_t p = 0; p < sizeof(PAGES) / sizeof(PAGES[0]); p++) {
        struct bench bench;
        struct sc_run runs[RUNS] = {{NULL, 0}};
        uint8_t *owners = calloc(PAGES[p], 1);
        unsigned seed = 7 + p;
        bench_open(&bench, PAGES[p]);
        for (uint32_t step = 0; step < 4000; step++) {
            uint32_t i = (uint32_t)rand_r(&seed) % RUNS;
            uint64_t pages = 1 + (uint64_t)rand_r(&seed) % (i == 0 ? 400 : 1 + PAGES[p] / 20);
            uint64_t kept = pages < runs[i].bytes / PAGE ? pages : runs[i].bytes / PAGE;
            if (runs[i].at == NULL) {
                bool has = twin_has_gap(owners, PAGES[p], pages);
                assert_int_equal(sc_run_take(&bench.pool, pages * PAGE, &runs[i]), has);
                if (has)
                    owners_set(owners, page_of(&bench, &runs[i]), pages, 0, (uint8_t)(i + 1));
                continue;
            }
            uint64_t first = page_of(&bench, &runs[i]), count = runs[i].bytes / PAGE;
            kept = step % 3 == 0 ? kept : 0;
            owners_set(owners, first + kept, count - kept, (uint8_t)(i + 1), 0);
            sc_run_trim(&bench.pool, &runs[i], kept * PAGE);
        }
        for (uint32_t i = 0; i < RUNS; i++)
            sc_run_put(&bench.pool, &runs[i]);
        assert_int_equal(sc_counted(&bench.pool.used_bytes), 0);
        bench_close(&bench);
        free(owners);
    }
}

static void *taker(void *user)
{
    struct bench *bench = user;
    unsigned seed = (unsigned)(uintptr_t)&bench;
    for (uint32_t i = 0; i < 3000; i++) {
        uint64_t pages = 1 + (uint64_t)rand_r(&seed) % 9;
        struct sc_run run;
        if (!sc_run_take(&bench->pool, pages * PAGE, &run))
            continue;
        uint8_t mine = (uint8_t)rand_r(&seed);
        memset(run.at, mine, run.bytes);
        sc_run_trim(&bench->pool, &run, pages / 2 * PAGE);
        for (uint64_t j = 0; j < run.bytes; j += 64)
            if (run.at[j] != mine)
                return bench;
        sc_run_put(&bench->pool, &run);
    }
    return NULL;
}

static void threads_share_no_page(void **state)
{
    (void)state;
    struct bench bench;
    bench_open(&bench, 24);
    struct threads threads = threads_begin(taker, &bench, 0, 6);
    threads_join(&threads);
    assert_int_equal(sc_counted(&bench.pool.used_bytes), 0);
    bench_close(&bench);
}

static void without_memory_it_is_not_opened(void **state)
{
    (void)state;
    struct sc_alloc alloc;
    struct sc_fault fault;
    sc_alloc_init(&alloc);
    sc_fault_init(&fault);
    alloc.fault = &fault;
    for (uint64_t n = 0; n < 2; n++) {
        struct sc_run_pool pool;
        sc_fault_arm(&fault, SC_FAULT_ALLOC, n);
        assert_false(sc_run_pool_open(&pool, &alloc, NULL, PAGE));
        sc_run_pool_close(&pool);
    }
    sc_alloc_done(&alloc);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(short_runs_fill_the_first_gap_and_long_ones_the_last),
        cmocka_unit_test(bytes_are_whole_pages_and_none_is_no_run),
        cmocka_unit_test(any_order_gives_each_page_one_owner),
        cmocka_unit_test(threads_share_no_page),
        cmocka_unit_test(without_memory_it_is_not_opened),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
