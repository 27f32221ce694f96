/* Slots: what is taken is nobody else's, takes end with their deadline, puts wake. On the loop time
 * is exact; with threads nothing waits for a time to pass. */
#include "base/slot_pool.h"

#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define NOW     1u /* on the clock long ago */
#define THREADS 6u
#define ROUNDS  4000u

struct bench {
    struct sc_alloc alloc;
    struct sc_poison poison;
    struct sc_exec *exec;
    struct sc_slot_pool slots;
};

static void bench_open(struct bench *bench, uint32_t thread_count, uint32_t slot_count)
{
    memset(bench, 0, sizeof(*bench));
    sc_alloc_init(&bench->alloc);
    struct sc_exec_params params = {.alloc = &bench->alloc,
                                    .thread_count = thread_count,
                                    .seed = 1,
                                    .name = "slots",
                                    .poison = &bench->poison};
    assert_int_equal(sc_exec_open(&params, &bench->exec, NULL), SPEC_OK);
    sc_slot_pool_init(&bench->slots, slot_count, bench->exec, &bench->poison);
    sc_alloc_seal(&bench->alloc);
}

static void bench_close(struct bench *bench)
{
    assert_int_equal(atomic_load(&bench->alloc.sealed_refusals), 0);
    sc_alloc_unseal(&bench->alloc);
    sc_exec_close(bench->exec);
    sc_alloc_done(&bench->alloc);
}

static void every_slot_has_one_taker_and_is_given_again(void **state)
{
    (void)state;
    for (uint32_t count = 1; count <= SC_SLOT_POOL_MAX; count++) {
        struct bench bench;
        bench_open(&bench, 0, count);
        for (uint32_t i = 0; i < count; i++)
            assert_int_equal(sc_slot_pool_take(&bench.slots, NOW), i);
        assert_int_equal(sc_slot_pool_take(&bench.slots, NOW), SC_SLOT_POOL_NONE);
        for (uint32_t i = count; i-- > 0;) {
            sc_slot_pool_put(&bench.slots, i);
            assert_int_equal(sc_slot_pool_take(&bench.slots, NOW), i);
            assert_int_equal(sc_slot_pool_take(&bench.slots, NOW), SC_SLOT_POOL_NONE);
        }
        for (uint32_t i = count; i-- > 0;)
            sc_slot_pool_put(&bench.slots, i);
        assert_int_equal(sc_slot_pool_take(&bench.slots, NOW), 0); /* the lowest */
        bench_close(&bench);
    }
}

struct putter {
    struct sc_task task; /* first: step casts */
    struct sc_slot_pool *slots;
    uint32_t slot;
};

static void put_step(struct sc_task *task)
{
    struct putter *putter = (struct putter *)(void *)task;
    sc_slot_pool_put(putter->slots, putter->slot);
}

/* One is put 5 us from now: who waits for 5 us at most goes without, who waits longer has it. */
static void a_take_waits_for_a_put_until_its_deadline(void **state)
{
    (void)state;
    struct bench bench;
    bench_open(&bench, 0, 3);
    for (uint32_t i = 0; i < 3; i++)
        (void)sc_slot_pool_take(&bench.slots, NOW);
    uint64_t begin_ns = sc_exec_now_ns(bench.exec);
    struct putter putter = {.task.step = put_step, .slots = &bench.slots, .slot = 1};
    sc_exec_post_at(bench.exec, &putter.task, SC_IO_CLASS_DEMAND, begin_ns + 5000);
    assert_int_equal(sc_slot_pool_take(&bench.slots, begin_ns + 3000), SC_SLOT_POOL_NONE);
    assert_int_equal(sc_exec_now_ns(bench.exec), begin_ns + 3000);
    assert_int_equal(sc_slot_pool_take(&bench.slots, begin_ns + 5000), SC_SLOT_POOL_NONE);
    assert_int_equal(sc_slot_pool_take(&bench.slots, begin_ns + 9000), 1);
    assert_int_equal(sc_exec_now_ns(bench.exec), begin_ns + 5000);
    putter.slot = 2;
    sc_exec_post_at(bench.exec, &putter.task, SC_IO_CLASS_DEMAND, begin_ns + 8000);
    assert_int_equal(sc_slot_pool_take(&bench.slots, SC_EXEC_FOREVER), 2);
    assert_int_equal(sc_exec_now_ns(bench.exec), begin_ns + 8000);
    bench_close(&bench);
}

/* More threads than slots: each is in its slot alone, and all come to their end. A put that wakes
 * nobody leaves them asleep. */
struct taker {
    struct bench *bench;
    uint64_t *uses;           /* [slots] plain: the slot's taker alone counts here */
    _Atomic uint32_t *inside; /* [slots] */
    uint64_t wrong;
};

static void *take_and_put(void *user)
{
    struct taker *taker = user;
    for (uint32_t round = 0; round < ROUNDS; round++) {
        uint32_t slot = sc_slot_pool_take(&taker->bench->slots, SC_EXEC_FOREVER);
        if (slot >= taker->bench->slots.count) {
            taker->wrong++;
            continue;
        }
        taker->wrong += atomic_fetch_add(&taker->inside[slot], 1) != 0;
        taker->uses[slot]++;
        if (round % 8 == 0)
            sched_yield(); /* others find all taken */
        atomic_fetch_sub(&taker->inside[slot], 1);
        sc_slot_pool_put(&taker->bench->slots, slot);
    }
    return NULL;
}

static void threads_have_a_slot_each_and_end_all(void **state)
{
    (void)state;
    for (uint32_t count = 1; count <= 3; count++) {
        struct bench bench;
        uint64_t uses[3] = {0}, sum = 0;
        _Atomic uint32_t inside[3] = {0};
        struct taker takers[THREADS];
        pthread_t threads[THREADS];
        bench_open(&bench, 1, count);
        for (uint32_t i = 0; i < THREADS; i++) {
            takers[i] = (struct taker){.bench = &bench, .uses = uses, .inside = inside};
            assert_int_equal(pthread_create(&threads[i], NULL, take_and_put, &takers[i]), 0);
        }
        for (uint32_t i = 0; i < THREADS; i++) {
            assert_int_equal(pthread_join(threads[i], NULL), 0);
            assert_int_equal(takers[i].wrong, 0);
        }
        for (uint32_t i = 0; i < count; i++) {
            assert_int_equal(sc_slot_pool_take(&bench.slots, NOW), i); /* all are free again */
            sum += uses[i];
        }
        assert_int_equal(sum, THREADS * ROUNDS);
        bench_close(&bench);
    }
}

/* Of two slots, of which one is taken. */
static void a_put_of_what_nobody_took_is_found(void **state)
{
    (void)state;
    static const uint32_t WRONG[] = {1, 2, 32, SC_SLOT_POOL_NONE};
    for (uint32_t i = 0; i < sizeof(WRONG) / sizeof(WRONG[0]); i++) {
        struct bench bench;
        bench_open(&bench, 0, 2);
        assert_int_equal(sc_slot_pool_take(&bench.slots, NOW), 0);
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) { /* aborts, or marks */
            (void)signal(SIGABRT, SIG_DFL);
            (void)close(STDERR_FILENO); /* its line would look like a failure of this test */
            sc_slot_pool_put(&bench.slots, WRONG[i]);
            uint32_t next = sc_slot_pool_take(&bench.slots, NOW);
            _exit(atomic_load(&bench.poison.broken) == 1 && next == 1 ? 3 : 0);
        }
        int how = 0;
        assert_int_equal(waitpid(child, &how, 0), child);
        assert_true((WIFSIGNALED(how) && WTERMSIG(how) == SIGABRT) ||
                    (WIFEXITED(how) && WEXITSTATUS(how) == 3));
        bench_close(&bench);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_slot_has_one_taker_and_is_given_again),
        cmocka_unit_test(a_take_waits_for_a_put_until_its_deadline),
        cmocka_unit_test(threads_have_a_slot_each_and_end_all),
        cmocka_unit_test(a_put_of_what_nobody_took_is_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
