/* Threads of a test that run the same function, each on an item of an array, or all on one.
 *
 * Holds: a thread that returns something else than NULL fails the test, when all have been joined.
 * Threads: whoever begins them joins them. */
#ifndef SC_TESTS_UNIT_THREADS_H
#define SC_TESTS_UNIT_THREADS_H

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define THREADS_MAX 64u

struct threads {
    pthread_t of[THREADS_MAX];
    uint64_t count;
};

/* Begins one more thread. */
static inline void threads_add(struct threads *threads, void *(*body)(void *), void *item)
{
    assert_true(threads->count < THREADS_MAX);
    assert_int_equal(pthread_create(&threads->of[threads->count], NULL, body, item), 0);
    threads->count++;
}

/* Begins `count` threads, on items that are item_bytes apart; 0: all on the same one. */
static inline struct threads threads_begin(void *(*body)(void *), void *items, uint64_t item_bytes,
                                           uint64_t count)
{
    struct threads threads = {.count = 0};
    for (uint64_t i = 0; i < count; i++)
        threads_add(&threads, body, (uint8_t *)items + i * item_bytes);
    return threads;
}

static inline void threads_join(const struct threads *threads)
{
    void *returned[THREADS_MAX];
    for (uint64_t i = 0; i < threads->count; i++)
        assert_int_equal(pthread_join(threads->of[i], &returned[i]), 0);
    for (uint64_t i = 0; i < threads->count; i++)
        assert_null(returned[i]);
}

/* Begins them and joins them. */
static inline void threads_run(void *(*body)(void *), void *items, uint64_t item_bytes,
                               uint64_t count)
{
    const struct threads threads = threads_begin(body, items, item_bytes, count);
    threads_join(&threads);
}

#endif
