/* pool: the pool's threads. See pool.h.
 *
 *   ticket: | run number, 32 bits | parts left, 32 bits |
 *
 * A thread owns the part for which it lowers "parts left" by compare-and-swap. The run number in
 * the same word keeps a late thread from taking a part of a run whose begin it has not seen.
 *
 * Invariants: fn, arg and part_count change only while no part of a run is unfinished. A thread
 * spins for a moment (while decoding, runs follow within microseconds), then sleeps on `wake`; the
 * caller waits on `done` in the same way. `sleepers` lets the caller skip the lock when nobody
 * sleeps. */
#include "conformance/engine/pool.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define SPINS_MAX 2000u /* of some 20 to 60 ns each: the order of one futex wake-up */

struct worker {
    struct eng_pool *pool;
    pthread_t thread;
    uint32_t number;
};

struct eng_pool {
    /* Set by open, constant after. */
    uint32_t thread_count;
    struct worker *workers; /* [thread_count - 1], the caller is thread 0 */

    /* Set by the caller between runs, read by owners of a part. */
    eng_pool_fn fn;
    void *arg;
    uint64_t part_count;
    void **scratch; /* [thread_count] */
    uint64_t scratch_bytes;

    /* Any thread. */
    _Atomic uint64_t ticket;
    _Atomic uint64_t unfinished;
    atomic_uint sleepers;
    atomic_bool caller_sleeps;
    atomic_bool closing;

    pthread_mutex_t lock;
    pthread_cond_t wake; /* a run began, or closing */
    pthread_cond_t done; /* unfinished fell to 0 */
};

static void relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#else
    atomic_signal_fence(memory_order_seq_cst);
#endif
}

/* Takes parts until none is left. */
static void work(struct eng_pool *pool, uint32_t thread)
{
    uint64_t ticket = atomic_load(&pool->ticket);
    while ((ticket & ENG_POOL_PARTS_MAX) != 0) {
        if (!atomic_compare_exchange_weak(&pool->ticket, &ticket, ticket - 1))
            continue;
        uint64_t part = (ticket & ENG_POOL_PARTS_MAX) - 1;
        pool->fn(pool->arg, part, pool->part_count, thread);
        if (atomic_fetch_sub(&pool->unfinished, 1) == 1 && atomic_load(&pool->caller_sleeps)) {
            pthread_mutex_lock(&pool->lock);
            pthread_cond_signal(&pool->done);
            pthread_mutex_unlock(&pool->lock);
        }
        ticket = atomic_load(&pool->ticket);
    }
}

static bool has_news(struct eng_pool *pool)
{
    return (atomic_load(&pool->ticket) & ENG_POOL_PARTS_MAX) != 0 || atomic_load(&pool->closing);
}

static void *worker_main(void *arg)
{
    const struct worker *worker = arg;
    struct eng_pool *pool = worker->pool;
    while (!atomic_load(&pool->closing)) {
        for (uint32_t spin = 0; spin < SPINS_MAX && !has_news(pool); spin++)
            relax();
        if (!has_news(pool)) {
            pthread_mutex_lock(&pool->lock);
            atomic_fetch_add(&pool->sleepers, 1);
            while (!has_news(pool))
                pthread_cond_wait(&pool->wake, &pool->lock);
            atomic_fetch_sub(&pool->sleepers, 1);
            pthread_mutex_unlock(&pool->lock);
        }
        work(pool, worker->number);
    }
    return NULL;
}

static void wake_sleepers(struct eng_pool *pool)
{
    if (atomic_load(&pool->sleepers) == 0)
        return;
    pthread_mutex_lock(&pool->lock);
    pthread_cond_broadcast(&pool->wake);
    pthread_mutex_unlock(&pool->lock);
}

static void wait_unfinished(struct eng_pool *pool)
{
    for (uint32_t spin = 0; spin < SPINS_MAX; spin++) {
        if (atomic_load(&pool->unfinished) == 0)
            return;
        relax();
    }
    pthread_mutex_lock(&pool->lock);
    atomic_store(&pool->caller_sleeps, true);
    while (atomic_load(&pool->unfinished) != 0)
        pthread_cond_wait(&pool->done, &pool->lock);
    atomic_store(&pool->caller_sleeps, false);
    pthread_mutex_unlock(&pool->lock);
}

void eng_pool_run(struct eng_pool *pool, eng_pool_fn fn, void *arg, uint64_t part_count)
{
    if (part_count == 0)
        return;
    if (pool->thread_count == 1 || part_count == 1) {
        for (uint64_t part = 0; part < part_count; part++)
            fn(arg, part, part_count, 0);
        return;
    }
    pool->fn = fn;
    pool->arg = arg;
    pool->part_count = part_count;
    atomic_store(&pool->unfinished, part_count);
    uint64_t run = (atomic_load(&pool->ticket) >> 32) + 1;
    atomic_store(&pool->ticket, (run << 32) | part_count);
    wake_sleepers(pool);
    work(pool, 0);
    wait_unfinished(pool);
}

uint32_t eng_pool_threads(const struct eng_pool *pool)
{
    return pool->thread_count;
}

eng_status eng_pool_reserve(struct eng_pool *pool, uint64_t bytes, struct eng_error *reterr)
{
    if (bytes <= pool->scratch_bytes)
        return ENG_OK;
    if (bytes > ENG_POOL_SCRATCH_MAX_BYTES)
        return eng_fail(reterr, ENG_E_NO_MEMORY, "scratch of %llu bytes a thread, at most %llu",
                        (unsigned long long)bytes, ENG_POOL_SCRATCH_MAX_BYTES);
    uint64_t rounded = (bytes + 4095u) & ~(uint64_t)4095u;
    for (uint32_t i = 0; i < pool->thread_count; i++) {
        void *bigger = aligned_alloc(4096, rounded);
        if (bigger == NULL)
            return eng_fail(reterr, ENG_E_NO_MEMORY, "scratch of %llu bytes a thread",
                            (unsigned long long)rounded);
        free(pool->scratch[i]); /* each is at least as large as scratch_bytes, also on failure */
        pool->scratch[i] = bigger;
    }
    pool->scratch_bytes = rounded;
    return ENG_OK;
}

void *eng_pool_scratch(struct eng_pool *pool, uint32_t thread)
{
    return pool->scratch[thread];
}

/* Ends the first `count` threads. */
static void stop_workers(struct eng_pool *pool, uint32_t count)
{
    atomic_store(&pool->closing, true);
    pthread_mutex_lock(&pool->lock);
    pthread_cond_broadcast(&pool->wake);
    pthread_mutex_unlock(&pool->lock);
    for (uint32_t i = 0; i < count; i++)
        pthread_join(pool->workers[i].thread, NULL);
}

static eng_status start_workers(struct eng_pool *pool, struct eng_error *reterr)
{
    for (uint32_t i = 0; i + 1 < pool->thread_count; i++) {
        struct worker *worker = &pool->workers[i];
        worker->pool = pool;
        worker->number = i + 1;
        int error = pthread_create(&worker->thread, NULL, worker_main, worker);
        if (error != 0) {
            stop_workers(pool, i);
            return eng_fail(reterr, ENG_E_SYSTEM, "thread %u of %u: %s", i + 2, pool->thread_count,
                            strerror(error));
        }
    }
    return ENG_OK;
}

static void free_pool(struct eng_pool *pool)
{
    for (uint32_t i = 0; pool->scratch != NULL && i < pool->thread_count; i++)
        free(pool->scratch[i]);
    free(pool->scratch);
    free(pool->workers);
    free(pool);
}

eng_status eng_pool_open(uint32_t thread_count, struct eng_pool **ret_pool,
                         struct eng_error *reterr)
{
    if (thread_count == 0 || thread_count > ENG_POOL_THREADS_MAX)
        return eng_fail(reterr, ENG_E_INVALID, "%u threads: expected 1 to %u", thread_count,
                        ENG_POOL_THREADS_MAX);
    struct eng_pool *pool = calloc(1, sizeof(*pool));
    if (pool == NULL)
        return eng_fail(reterr, ENG_E_NO_MEMORY, "thread pool");
    pool->thread_count = thread_count;
    pool->workers = calloc(thread_count, sizeof(*pool->workers));
    pool->scratch = calloc(thread_count, sizeof(*pool->scratch));
    eng_status status = ENG_OK;
    if (pool->workers == NULL || pool->scratch == NULL)
        status = eng_fail(reterr, ENG_E_NO_MEMORY, "thread pool");
    if (status == ENG_OK)
        status = eng_pool_reserve(pool, ENG_POOL_SCRATCH_MIN_BYTES, reterr);
    if (status != ENG_OK)
        goto free_memory;
    pthread_mutex_init(&pool->lock, NULL); /* cannot fail with default attributes on Linux */
    pthread_cond_init(&pool->wake, NULL);
    pthread_cond_init(&pool->done, NULL);
    status = start_workers(pool, reterr);
    if (status != ENG_OK)
        goto destroy_lock;
    *ret_pool = pool;
    return ENG_OK;
destroy_lock:
    pthread_cond_destroy(&pool->done);
    pthread_cond_destroy(&pool->wake);
    pthread_mutex_destroy(&pool->lock);
free_memory:
    free_pool(pool);
    return status;
}

void eng_pool_close(struct eng_pool *pool)
{
    if (pool == NULL)
        return;
    stop_workers(pool, pool->thread_count - 1);
    pthread_cond_destroy(&pool->done);
    pthread_cond_destroy(&pool->wake);
    pthread_mutex_destroy(&pool->lock);
    free_pool(pool);
}
