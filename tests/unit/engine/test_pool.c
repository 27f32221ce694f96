/* The thread pool: every part once, results visible, threads apart, many runs, clean ends.
 *
 * Holds: nothing here waits for time to pass.
 * Does not: prove the absence of races; the same program under ThreadSanitizer looks for them.
 * Threads: up to 8.
 * Tests: conformance/engine/pool.c
 */
#include <stdatomic.h>

#include "tests/unit/engine/math_support.h"

#define PARTS_MAX 1000u

struct tally {
    uint32_t done[PARTS_MAX]; /* plain on purpose: a part done twice at once is a race */
    atomic_uint busy[ENG_POOL_THREADS_MAX];
    uint64_t part_count;
    uint32_t thread_count;
    atomic_uint wrong;
};

static void count_part(void *arg, uint64_t part, uint64_t part_count, uint32_t thread)
{
    struct tally *tally = arg;
    if (part >= part_count || part_count != tally->part_count || thread >= tally->thread_count) {
        atomic_fetch_add(&tally->wrong, 1);
        return;
    }
    if (atomic_fetch_add(&tally->busy[thread], 1) != 0)
        atomic_fetch_add(&tally->wrong, 1);
    tally->done[part]++;
    atomic_fetch_sub(&tally->busy[thread], 1);
}

static void every_part_is_done_once(void **state)
{
    (void)state;
    static struct tally tally;
    for (uint32_t threads = 1; threads <= 8; threads++) {
        struct eng_pool *pool = new_pool(threads);
        assert_int_equal(eng_pool_threads(pool), threads);
        tally.thread_count = threads;
        for (uint64_t parts = 0; parts <= PARTS_MAX; parts = parts * 2 + 1) {
            memset(tally.done, 0, sizeof(tally.done));
            tally.part_count = parts;
            eng_pool_run(pool, count_part, &tally, parts);
            for (uint64_t i = 0; i < PARTS_MAX; i++)
                assert_int_equal(tally.done[i], i < parts ? 1 : 0);
            assert_int_equal(tally.wrong, 0);
        }
        eng_pool_close(pool);
    }
}

static void runs_follow_each_other_without_mixing(void **state)
{
    (void)state;
    static struct tally tally;
    memset(&tally, 0, sizeof(tally));
    struct eng_pool *pool = new_pool(4);
    tally.thread_count = 4;
    for (uint32_t run = 0; run < 3000; run++) {
        tally.part_count = 1 + run % 9;
        eng_pool_run(pool, count_part, &tally, tally.part_count);
    }
    uint64_t sum = 0;
    for (uint64_t i = 0; i < PARTS_MAX; i++)
        sum += tally.done[i];
    uint64_t want = 0;
    for (uint32_t run = 0; run < 3000; run++)
        want += 1 + run % 9;
    assert_int_equal(sum, want);
    assert_int_equal(tally.wrong, 0);
    eng_pool_close(pool);
}

static void fill_scratch(void *arg, uint64_t part, uint64_t part_count, uint32_t thread)
{
    struct eng_pool *pool = *(struct eng_pool **)arg;
    uint8_t *scratch = eng_pool_scratch(pool, thread);
    (void)part_count;
    memset(scratch, (int)part, 3u << 20);
    for (uint64_t i = 0; i < 3u << 20; i += 4096) {
        if (scratch[i] != (uint8_t)part)
            abort();
    }
}

static void scratch_grows_and_belongs_to_one_thread(void **state)
{
    (void)state;
    struct eng_pool *pool = new_pool(3);
    struct eng_error error = {0};
    memset(eng_pool_scratch(pool, 2), 1, ENG_POOL_SCRATCH_MIN_BYTES);
    assert_int_equal(eng_pool_reserve(pool, 3u << 20, &error), ENG_OK);
    void *before = eng_pool_scratch(pool, 1);
    assert_int_equal((uintptr_t)before % 64, 0);
    assert_int_equal(eng_pool_reserve(pool, 1000, &error), ENG_OK); /* smaller: nothing moves */
    assert_ptr_equal(eng_pool_scratch(pool, 1), before);
    eng_pool_run(pool, fill_scratch, &pool, 40);
    assert_int_equal(eng_pool_reserve(pool, UINT64_MAX, &error), ENG_E_NO_MEMORY);
    assert_int_equal(eng_pool_reserve(pool, ENG_POOL_SCRATCH_MAX_BYTES + 1, &error),
                     ENG_E_NO_MEMORY);
    eng_pool_run(pool, fill_scratch, &pool, 40); /* still usable */
    eng_pool_close(pool);
}

static void wrong_thread_counts_are_refused(void **state)
{
    (void)state;
    struct eng_pool *pool = NULL;
    struct eng_error error = {0};
    assert_int_equal(eng_pool_open(0, &pool, &error), ENG_E_INVALID);
    assert_string_equal(error.text, "0 threads: expected 1 to 256");
    assert_int_equal(eng_pool_open(ENG_POOL_THREADS_MAX + 1, &pool, &error), ENG_E_INVALID);
    assert_null(pool);
    eng_pool_close(NULL);
}

static void shares_cover_all_items_once(void **state)
{
    (void)state;
    for (uint64_t count = 0; count < 40; count++) {
        for (uint64_t parts = 1; parts < 12; parts++) {
            uint64_t next = 0;
            for (uint64_t part = 0; part < parts; part++) {
                uint64_t first;
                uint64_t end;
                eng_pool_share(count, part, parts, &first, &end);
                assert_int_equal(first, next);
                assert_true(end - first == count / parts || end - first == count / parts + 1);
                next = end;
            }
            assert_int_equal(next, count);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_part_is_done_once),
        cmocka_unit_test(runs_follow_each_other_without_mixing),
        cmocka_unit_test(scratch_grows_and_belongs_to_one_thread),
        cmocka_unit_test(wrong_thread_counts_are_refused),
        cmocka_unit_test(shares_cover_all_items_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
