/* Runs of the pool, beside a dumb twin that fills each with its own number; and from several
 * threads. */
#include "base/fault.h"
#include "store/cache/selector_pool.h"
#include "tests/unit/cases.h"

#define BLOCK  SC_STORE_POOL_BLOCK_BYTES
#define BLOCKS 70u /* more than a word of the bitmap */

struct bench {
    struct sc_alloc alloc;
    struct sc_poison poison;
    struct sc_store_pool pool;
};

static void bench_open(struct bench *bench, uint64_t bytes)
{
    memset(bench, 0, sizeof(*bench));
    sc_alloc_init(&bench->alloc);
    assert_true(sc_store_pool_open(&bench->pool, &bench->alloc, &bench->poison, bytes));
}

static void bench_close(struct bench *bench)
{
    sc_store_pool_close(&bench->pool);
    sc_store_pool_close(&bench->pool); /* again is fine */
    assert_int_equal(atomic_load(&bench->alloc.live_blocks), 0);
}

static void pool_of_no_block_gives_nothing(void **state)
{
    (void)state;
    struct bench bench;
    bench_open(&bench, BLOCK - 1);
    assert_int_equal(atomic_load(&bench.alloc.live_bytes), 0);
    assert_null(sc_store_pool_take(&bench.pool, 1));
    assert_int_equal(atomic_load(&bench.pool.refused), 1);
    bench_close(&bench);
}

static void pool_without_memory_may_be_closed(void **state)
{
    (void)state;
    struct sc_fault fault;
    uint32_t failed = 0;
    sc_fault_init(&fault);
    for (uint64_t n = 0;; n++, failed++) {
        struct bench bench;
        memset(&bench, 0, sizeof(bench));
        sc_alloc_init(&bench.alloc);
        bench.alloc.fault = &fault;
        sc_fault_arm(&fault, SC_FAULT_ALLOC, n);
        bool opened = sc_store_pool_open(&bench.pool, &bench.alloc, &bench.poison, 4 * BLOCK);
        sc_fault_arm(&fault, SC_FAULT_ALLOC, INT64_MAX);
        assert_true(opened || sc_store_pool_take(&bench.pool, 1) == NULL);
        bench_close(&bench);
        if (opened)
            break;
    }
    assert_true(failed >= 3);
}

static uint64_t random_below(uint64_t *state, uint64_t bound)
{
    *state = *state * 6364136223846793005ull + 1442695040888963407ull;
    return (*state >> 33) % bound;
}

struct run {
    uint8_t *memory;
    uint64_t bytes;
    uint32_t holds;
    uint8_t number;
};

static uint64_t blocks_of(uint64_t bytes)
{
    return (bytes + BLOCK - 1) / BLOCK;
}

/* No run overlaps another: each byte that counts still has its run's number. */
static void run_check(const struct run *run)
{
    for (uint64_t at = 0; at < run->bytes; at += 997)
        assert_int_equal(run->memory[at], run->number);
    assert_int_equal(run->memory[run->bytes - 1], run->number);
}

/* Whether `blocks` neighbours are free. */
static bool twin_fits(const struct bench *bench, const struct run *runs, uint32_t count,
                      uint64_t blocks)
{
    bool taken[BLOCKS] = {false};
    uint64_t length = 0;
    for (uint32_t i = 0; i < count; i++)
        for (uint64_t b = 0; runs[i].holds > 0 && b < blocks_of(runs[i].bytes); b++)
            taken[(uint64_t)(runs[i].memory - bench->pool.base) / BLOCK + b] = true;
    for (uint64_t b = 0; b < BLOCKS && length < blocks; b++)
        length = taken[b] ? 0 : length + 1;
    return length >= blocks;
}

static void pool_runs_are_their_holders_alone(void **state)
{
    (void)state;
    struct bench bench;
    struct run runs[40] = {{0}};
    uint64_t random = 5, refused = 0, blocks = 0;
    bench_open(&bench, BLOCKS * BLOCK + 7);
    for (uint32_t turn = 0; turn < 20000; turn++) {
        struct run *run = &runs[random_below(&random, 40)];
        if (run->holds == 0) {
            run->bytes =
                1 + random_below(&random, random_below(&random, 10) == 0 ? 40 * BLOCK : 4 * BLOCK);
            bool fits = twin_fits(&bench, runs, 40, blocks_of(run->bytes));
            run->memory = sc_store_pool_take(&bench.pool, run->bytes);
            assert_int_equal(run->memory != NULL, fits);
            refused += !fits;
            if (!fits)
                continue;
            assert_int_equal((uintptr_t)run->memory % 4096, 0);
            blocks += blocks_of(run->bytes);
            run->holds = 1;
            run->number = (uint8_t)turn;
            memset(run->memory, run->number, run->bytes);
        } else if (random_below(&random, 3) == 0) {
            sc_store_pool_hold(&bench.pool, run->memory);
            run->holds++;
        } else {
            run_check(run);
            sc_store_pool_leave(&bench.pool, run->memory);
            blocks -= --run->holds == 0 ? blocks_of(run->bytes) : 0;
        }
        assert_int_equal(atomic_load(&bench.pool.used_bytes), blocks * BLOCK);
    }
    assert_true(refused > 100);
    assert_int_equal(atomic_load(&bench.pool.refused), refused);
    assert_null(sc_store_pool_take(&bench.pool, UINT64_MAX));
    for (uint32_t i = 0; i < 40; i++)
        for (; runs[i].holds > 0; runs[i].holds--)
            sc_store_pool_leave(&bench.pool, runs[i].memory);
    bench_close(&bench);
}

struct worker {
    struct bench *bench;
    uint64_t random;
    pthread_t thread;
};

static void *work(void *user)
{
    struct worker *worker = user;
    struct sc_store_pool *pool = &worker->bench->pool;
    for (uint32_t turn = 0; turn < 2000; turn++) {
        uint64_t bytes = 1 + random_below(&worker->random, 3 * BLOCK);
        uint8_t *run = sc_store_pool_take(pool, bytes);
        if (run == NULL)
            continue;
        run[0] = run[bytes - 1] = (uint8_t)turn;
        sc_store_pool_hold(pool, run);
        sc_store_pool_leave(pool, run);
        assert_int_equal(run[0], (uint8_t)turn); /* also for ThreadSanitizer */
        sc_store_pool_leave(pool, run);
    }
    return NULL;
}

static void pool_serves_threads(void **state)
{
    (void)state;
    struct bench bench;
    struct worker workers[3];
    bench_open(&bench, 4 * BLOCK);
    for (uint32_t i = 0; i < 3; i++) {
        workers[i] = (struct worker){.bench = &bench, .random = i};
        assert_int_equal(pthread_create(&workers[i].thread, NULL, work, &workers[i]), 0);
    }
    for (uint32_t i = 0; i < 3; i++)
        pthread_join(workers[i].thread, NULL);
    bench_close(&bench);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pool_of_no_block_gives_nothing),
        cmocka_unit_test(pool_without_memory_may_be_closed),
        cmocka_unit_test(pool_runs_are_their_holders_alone),
        cmocka_unit_test(pool_serves_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
