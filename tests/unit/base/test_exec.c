/* The executor, with threads and as the seeded loop. No test waits for a time to pass: where one
 * thread must wait for another, a gate (a semaphore) holds it.
 *
 * Holds: every test ends with an allocator that has nothing live.
 * Threads: up to four posters and four workers. */
#include "base/exec.h"

#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define STEPS_MAX 128

struct fixture {
    struct sc_alloc alloc;
    struct sc_exec *exec;
    _Atomic uint32_t done; /* the word that tests wait on: steps so far */
    uint32_t order[STEPS_MAX];
    uint64_t times_ns[STEPS_MAX];
    sem_t entered, gate;
};

/* A task that notes that it ran. */
struct noted {
    struct sc_task task; /* first: step casts */
    struct fixture *fx;
    uint32_t name;
    uint32_t again; /* posts itself this often */
};

static void open_exec(struct fixture *fx, uint32_t thread_count, uint64_t seed)
{
    struct sc_exec_params params = {
        .alloc = &fx->alloc, .thread_count = thread_count, .seed = seed, .name = "test"};
    struct spec_error error = {.struct_size = sizeof(error)};
    assert_int_equal(sc_exec_open(&params, &fx->exec, &error), SPEC_OK);
}

static int make(void **state)
{
    struct fixture *fx = calloc(1, sizeof(*fx));
    if (fx == NULL)
        return -1;
    sc_alloc_init(&fx->alloc);
    sem_init(&fx->entered, 0, 0);
    sem_init(&fx->gate, 0, 0);
    *state = fx;
    return 0;
}

static int done(void **state)
{
    struct fixture *fx = *state;
    sc_exec_close(fx->exec);
    sc_alloc_done(&fx->alloc);
    bool is_clean = atomic_load(&fx->alloc.live_blocks) == 0;
    sem_destroy(&fx->entered);
    sem_destroy(&fx->gate);
    free(fx);
    return is_clean ? 0 : -1;
}

static void note(struct sc_task *task)
{
    struct noted *noted = (struct noted *)task;
    struct fixture *fx = noted->fx;
    uint32_t i = atomic_load(&fx->done);
    if (i < STEPS_MAX) {
        fx->order[i] = noted->name;
        fx->times_ns[i] = sc_exec_now_ns(fx->exec);
    }
    if (noted->again > 0) {
        noted->again--;
        sc_exec_post(fx->exec, task, SC_IO_CLASS_BACKGROUND);
    }
    atomic_fetch_add_explicit(&fx->done, 1, memory_order_release);
    sc_exec_wake(fx->exec, &fx->done);
}

static struct noted noted_task(struct fixture *fx, uint32_t name)
{
    return (struct noted){.task = {.step = note}, .fx = fx, .name = name};
}

/* Waits until `count` steps were made. */
static void wait_done(struct fixture *fx, uint32_t count)
{
    for (uint32_t seen = atomic_load(&fx->done); seen < count; seen = atomic_load(&fx->done))
        assert_true(sc_exec_wait(fx->exec, &fx->done, seen, SC_EXEC_FOREVER));
    assert_int_equal(atomic_load(&fx->done), count);
}

static void hold(struct sc_task *task)
{
    struct noted *noted = (struct noted *)task;
    sem_post(&noted->fx->entered);
    sem_wait(&noted->fx->gate);
}

/* Keeps one worker busy until the gate opens. */
static struct noted hold_worker(struct fixture *fx)
{
    return (struct noted){.task = {.step = hold}, .fx = fx};
}

/* ---- Threads -------------------------------------------------------------------------------- */

static void a_worker_takes_the_highest_lane_first_and_the_oldest_inside_it(void **state)
{
    struct fixture *fx = *state;
    open_exec(fx, 1, 0);
    struct noted holder = hold_worker(fx), tasks[12];
    sc_exec_post(fx->exec, &holder.task, SC_IO_CLASS_DEMAND);
    sem_wait(&fx->entered);
    static const enum sc_io_class lanes[12] = {
        SC_IO_CLASS_BACKGROUND,  SC_IO_CLASS_WRITER,     SC_IO_CLASS_DEMAND,
        SC_IO_CLASS_SPECULATIVE, SC_IO_CLASS_DEMAND,     SC_IO_CLASS_SPECULATIVE,
        SC_IO_CLASS_WRITER,      SC_IO_CLASS_BACKGROUND, SC_IO_CLASS_WRITER,
        SC_IO_CLASS_DEMAND,      SC_IO_CLASS_BACKGROUND, SC_IO_CLASS_SPECULATIVE};
    for (uint32_t i = 0; i < 12; i++) {
        tasks[i] = noted_task(fx, i);
        sc_exec_post(fx->exec, &tasks[i].task, lanes[i]);
    }
    sem_post(&fx->gate);
    wait_done(fx, 12);
    static const uint32_t expected[12] = {2, 4, 9, 3, 5, 11, 1, 6, 8, 0, 7, 10};
    assert_memory_equal(fx->order, expected, sizeof(expected));
}

/* Steps of one half that block leave a thread to the other half, whichever it is. */
static void a_half_that_blocks_leaves_one_thread_to_the_other(void **state)
{
    struct fixture *fx = *state;
    static const enum sc_io_class blocked[4] = {SC_IO_CLASS_WRITER, SC_IO_CLASS_BACKGROUND,
                                                SC_IO_CLASS_DEMAND, SC_IO_CLASS_SPECULATIVE};
    struct sc_exec_params params = {
        .alloc = &fx->alloc, .thread_count = 2, .keeps_one = true, .name = "test"};
    for (uint32_t way = 0; way < 4; way++) {
        struct noted holders[3], tasks[20];
        enum sc_io_class other = blocked[(way + 2) % 4];
        uint32_t before = atomic_load(&fx->done);
        assert_int_equal(sc_exec_open(&params, &fx->exec, NULL), SPEC_OK);
        for (uint32_t i = 0; i < 3; i++) {
            holders[i] = hold_worker(fx);
            sc_exec_post(fx->exec, &holders[i].task, blocked[way]);
        }
        sem_wait(&fx->entered);
        sem_wait(&fx->entered);
        for (uint32_t i = 0; i < 20; i++) { /* one by one: a thread that had gone would be missed */
            tasks[i] = noted_task(fx, i);
            sc_exec_post(fx->exec, &tasks[i].task, other);
            wait_done(fx, before + i + 1);
        }
        assert_int_equal(sem_trywait(&fx->entered), -1); /* the third waits for its turn */
        for (uint32_t i = 0; i < 3; i++)
            sem_post(&fx->gate);
        sem_wait(&fx->entered);
        sc_exec_close(fx->exec);
        fx->exec = NULL;
    }
}

static void a_due_task_is_never_early_and_the_nearest_comes_first(void **state)
{
    struct fixture *fx = *state;
    open_exec(fx, 1, 0);
    struct noted holder = hold_worker(fx), tasks[8];
    sc_exec_post(fx->exec, &holder.task, SC_IO_CLASS_DEMAND);
    sem_wait(&fx->entered);
    uint64_t due_ns[8], delay_ns = 500000, start_ns;
    static const uint32_t rank[8] = {5, 1, 7, 3, 0, 6, 2, 4};
    for (;;) {
        delay_ns *= 2;
        start_ns = sc_exec_now_ns(fx->exec) + delay_ns;
        for (uint32_t i = 0; i < 8; i++) {
            tasks[i] = noted_task(fx, i);
            due_ns[i] = start_ns + rank[i] * 100000;
            sc_exec_post_at(fx->exec, &tasks[i].task, SC_IO_CLASS_WRITER, due_ns[i]);
        }
        if (sc_exec_now_ns(fx->exec) < start_ns)
            break; /* else some were posted as due, behind each other: again, with more time */
        for (uint32_t i = 0; i < 8; i++)
            assert_true(sc_exec_cancel(fx->exec, &tasks[i].task));
    }
    sem_post(&fx->gate);
    wait_done(fx, 8);
    for (uint32_t i = 0; i < 8; i++) {
        assert_int_equal(rank[fx->order[i]], i);
        assert_true(fx->times_ns[i] >= due_ns[fx->order[i]]);
    }
}

static void a_timer_comes_due_while_the_other_worker_is_busy(void **state)
{
    struct fixture *fx = *state;
    open_exec(fx, 2, 0);
    for (uint32_t round = 1; round <= 50; round++) {
        struct noted timer = noted_task(fx, round), holder = hold_worker(fx);
        sc_exec_post_at(fx->exec, &timer.task, SC_IO_CLASS_DEMAND,
                        sc_exec_now_ns(fx->exec) + (round % 5) * 50000);
        sc_exec_post(fx->exec, &holder.task, SC_IO_CLASS_DEMAND);
        wait_done(fx, round); /* the holder holds one worker all this time */
        sem_post(&fx->gate);
        sem_wait(&fx->entered);
        while (atomic_load(&holder.task.posted) != 0)
            continue;
        /* The holder's memory ends with this round: wait until its worker is past its step. */
        sc_exec_close(fx->exec);
        open_exec(fx, 2, 0);
    }
}

#define POSTERS      4
#define POSTER_TASKS 32
#define ROUNDS       100

struct counted {
    struct sc_task task;
    struct poster *poster;
    uint32_t steps; /* its worker writes it; the poster reads it after the round's wait */
};

struct poster {
    struct fixture *fx;
    uint32_t number;
    _Atomic uint32_t done;
    _Atomic uint32_t taken; /* taken back: the canceller's */
    struct counted tasks[POSTER_TASKS];
};

static void count_step(struct sc_task *task)
{
    struct counted *counted = (struct counted *)task;
    struct poster *poster = counted->poster;
    counted->steps++;
    atomic_fetch_add_explicit(&poster->done, 1, memory_order_release);
    sc_exec_wake(poster->fx->exec, &poster->done);
}

static void *poster_main(void *argument)
{
    struct poster *poster = argument;
    struct sc_exec *exec = poster->fx->exec;
    for (uint32_t i = 0; i < POSTER_TASKS; i++)
        poster->tasks[i] = (struct counted){.task = {.step = count_step}, .poster = poster};
    for (uint32_t round = 1; round <= ROUNDS; round++) {
        for (uint32_t i = 0; i < POSTER_TASKS; i++) {
            struct sc_task *task = &poster->tasks[i].task;
            enum sc_io_class io_class = (enum sc_io_class)((i + round) % SC_IO_CLASSES);
            if (i % 8 == poster->number)
                sc_exec_post_at(exec, task, io_class, sc_exec_now_ns(exec) + 1000 * i);
            else
                sc_exec_post(exec, task, io_class);
        }
        uint32_t target = round * POSTER_TASKS;
        for (uint32_t seen = atomic_load(&poster->done); seen < target;
             seen = atomic_load(&poster->done))
            sc_exec_wait(exec, &poster->done, seen, SC_EXEC_FOREVER);
    }
    return NULL;
}

static void four_threads_post_and_each_post_is_stepped_exactly_once(void **state)
{
    struct fixture *fx = *state;
    open_exec(fx, 4, 0);
    sc_alloc_seal(&fx->alloc);
    struct poster *posters = calloc(POSTERS, sizeof(*posters));
    assert_non_null(posters);
    pthread_t threads[POSTERS];
    for (uint32_t i = 0; i < POSTERS; i++) {
        posters[i].fx = fx;
        posters[i].number = i;
        assert_int_equal(pthread_create(&threads[i], NULL, poster_main, &posters[i]), 0);
    }
    for (uint32_t i = 0; i < POSTERS; i++)
        pthread_join(threads[i], NULL);
    sc_alloc_unseal(&fx->alloc);
    assert_int_equal(atomic_load(&fx->alloc.sealed_refusals), 0);
    sc_exec_close(fx->exec); /* joins: what the workers wrote is visible */
    fx->exec = NULL;
    for (uint32_t i = 0; i < POSTERS; i++) {
        assert_int_equal(atomic_load(&posters[i].done), ROUNDS * POSTER_TASKS);
        for (uint32_t j = 0; j < POSTER_TASKS; j++)
            assert_int_equal(posters[i].tasks[j].steps, ROUNDS);
    }
    free(posters);
}

/* What a thread posts, another takes back or does not, while it is being posted: each post is
 * taken back or stepped, never both, and TSan sees no field read while it is written. */
static void *canceller_main(void *argument)
{
    struct poster *poster = argument;
    uint32_t taken = 0;
    while (atomic_load(&poster->done) + taken < ROUNDS * POSTER_TASKS) {
        for (uint32_t i = 0; i < POSTER_TASKS; i++)
            taken += sc_exec_cancel(poster->fx->exec, &poster->tasks[i].task);
        atomic_store(&poster->taken, taken);
    }
    return NULL;
}

static void a_cancel_beside_the_post_takes_it_back_or_leaves_it(void **state)
{
    struct fixture *fx = *state;
    open_exec(fx, 1, 0);
    struct noted holder = hold_worker(fx);
    sc_exec_post(fx->exec, &holder.task, SC_IO_CLASS_DEMAND);
    sem_wait(&fx->entered); /* of the first round all is taken back: nobody could step it */
    struct poster *poster = calloc(1, sizeof(*poster));
    assert_non_null(poster);
    poster->fx = fx;
    for (uint32_t i = 0; i < POSTER_TASKS; i++)
        poster->tasks[i] = (struct counted){.task = {.step = count_step}, .poster = poster};
    pthread_t canceller;
    assert_int_equal(pthread_create(&canceller, NULL, canceller_main, poster), 0);
    for (uint32_t round = 0; round < ROUNDS; round++) {
        if (round == 2)
            sem_post(&fx->gate); /* by now a round was taken back */
        for (uint32_t i = 0; i < POSTER_TASKS; i++) {
            struct sc_task *task = &poster->tasks[i].task;
            while (atomic_load(&task->posted) != 0)
                sched_yield();
            uint64_t due_ns = i % 2 == 0 ? 0 : sc_exec_now_ns(fx->exec) + 20000;
            sc_exec_post_at(fx->exec, task, (enum sc_io_class)((i + round) % SC_IO_CLASSES),
                            due_ns);
        }
    }
    pthread_join(canceller, NULL);
    sc_exec_close(fx->exec); /* joins: what the worker wrote is visible */
    fx->exec = NULL;
    uint32_t steps = 0;
    for (uint32_t i = 0; i < POSTER_TASKS; i++)
        steps += poster->tasks[i].steps;
    assert_int_equal(steps + atomic_load(&poster->taken), ROUNDS * POSTER_TASKS);
    assert_true(atomic_load(&poster->taken) >= POSTER_TASKS);
    free(poster);
}

static void free_own_task(struct sc_task *task)
{
    struct noted *noted = (struct noted *)task;
    struct fixture *fx = noted->fx;
    free(noted); /* ASan sees it when the executor touches the task after its step */
    atomic_fetch_add_explicit(&fx->done, 1, memory_order_release);
    sc_exec_wake(fx->exec, &fx->done);
}

static void a_step_may_free_its_task(void **state)
{
    struct fixture *fx = *state;
    for (uint32_t thread_count = 0; thread_count <= 2; thread_count += 2) {
        atomic_store(&fx->done, 0);
        open_exec(fx, thread_count, 0);
        for (uint32_t i = 0; i < 100; i++) {
            struct noted *noted = calloc(1, sizeof(*noted));
            assert_non_null(noted);
            *noted = (struct noted){.task = {.step = free_own_task}, .fx = fx};
            sc_exec_post(fx->exec, &noted->task, (enum sc_io_class)(i % SC_IO_CLASSES));
        }
        wait_done(fx, 100);
        sc_exec_close(fx->exec);
        fx->exec = NULL;
    }
}

static void a_step_may_post_its_own_task_again(void **state)
{
    struct fixture *fx = *state;
    for (uint32_t thread_count = 0; thread_count <= 2; thread_count += 2) {
        atomic_store(&fx->done, 0);
        open_exec(fx, thread_count, 0);
        struct noted task = noted_task(fx, 1);
        task.again = 49;
        sc_exec_post(fx->exec, &task.task, SC_IO_CLASS_DEMAND);
        for (uint32_t seen = 0; seen < 50; seen = atomic_load(&fx->done))
            sc_exec_wait(fx->exec, &fx->done, seen, SC_EXEC_FOREVER);
        sc_exec_close(fx->exec);
        fx->exec = NULL;
        assert_int_equal(atomic_load(&fx->done), 50);
    }
}

static void a_wait_ends_at_its_deadline_and_not_before(void **state)
{
    struct fixture *fx = *state;
    open_exec(fx, 1, 0);
    _Atomic uint32_t word = 5;
    assert_true(sc_exec_wait(fx->exec, &word, 4, SC_EXEC_FOREVER));
    assert_true(sc_exec_wait(fx->exec, &word, 4, 0)); /* differs: the deadline does not matter */
    assert_false(sc_exec_wait(fx->exec, &word, 5, 0));
    uint64_t deadline_ns = sc_exec_now_ns(fx->exec) + 2000000;
    assert_false(sc_exec_wait(fx->exec, &word, 5, deadline_ns));
    assert_true(sc_exec_now_ns(fx->exec) >= deadline_ns);
    assert_true(sc_exec_wall_ns(fx->exec) > 1600000000ull * 1000000000ull); /* after 2020 */
}

static void a_forked_child_can_close(void **state)
{
    struct fixture *fx = *state;
    open_exec(fx, 2, 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        sc_exec_close(fx->exec); /* the workers are not here: must not wait for them */
        _exit(atomic_load(&fx->alloc.live_blocks) == 0 ? 0 : 1);
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

/* ---- Open ----------------------------------------------------------------------------------- */

static void open_refuses_too_many_threads_and_no_memory(void **state)
{
    struct fixture *fx = *state;
    struct spec_error error = {.struct_size = sizeof(error)};
    struct sc_exec_params params = {.alloc = &fx->alloc, .thread_count = 65};
    assert_int_equal(sc_exec_open(&params, &fx->exec, &error), SPEC_E_INVALID);
    assert_string_equal(error.text, "65 worker threads, expected at most 64");
    params.thread_count = 64;
    sc_alloc_seal(&fx->alloc);
    assert_int_equal(sc_exec_open(&params, &fx->exec, &error), SPEC_E_NO_MEMORY);
    sc_alloc_unseal(&fx->alloc);
    assert_null(fx->exec);
    assert_int_equal(sc_exec_open(&params, &fx->exec, &error), SPEC_OK);
    assert_false(sc_exec_is_loop(fx->exec));
}

/* ---- The seeded loop ------------------------------------------------------------------------ */

#define LOOP_TASKS 6

static void loop_order(struct fixture *fx, uint64_t seed, uint32_t *ret_order)
{
    open_exec(fx, 0, seed);
    assert_true(sc_exec_is_loop(fx->exec));
    atomic_store(&fx->done, 0);
    memset(fx->order, 0xff, sizeof(fx->order));
    struct noted tasks[LOOP_TASKS];
    for (uint32_t i = 0; i < LOOP_TASKS; i++) {
        tasks[i] = noted_task(fx, i);
        sc_exec_post(fx->exec, &tasks[i].task, (enum sc_io_class)(i % SC_IO_CLASSES));
    }
    wait_done(fx, LOOP_TASKS);
    memcpy(ret_order, fx->order, LOOP_TASKS * sizeof(*ret_order));
    sc_exec_close(fx->exec);
    fx->exec = NULL;
}

static void the_loop_repeats_by_its_seed_and_differs_between_seeds(void **state)
{
    struct fixture *fx = *state;
    uint32_t first[LOOP_TASKS], again[LOOP_TASKS], previous[LOOP_TASKS] = {0};
    uint32_t changes = 0;
    for (uint64_t seed = 0; seed < 64; seed++) {
        loop_order(fx, seed, first);
        loop_order(fx, seed, again);
        assert_memory_equal(first, again, sizeof(first));
        uint32_t seen = 0;
        for (uint32_t i = 0; i < LOOP_TASKS; i++)
            seen |= 1u << first[i];
        assert_int_equal(seen, (1u << LOOP_TASKS) - 1); /* each exactly once */
        changes += memcmp(first, previous, sizeof(first)) != 0;
        memcpy(previous, first, sizeof(first));
    }
    assert_true(changes > 48);
}

static void the_loop_moves_its_clock_to_the_next_due_task_and_no_further(void **state)
{
    struct fixture *fx = *state;
    open_exec(fx, 0, 7);
    uint64_t start_ns = sc_exec_now_ns(fx->exec);
    assert_int_equal(sc_exec_wall_ns(fx->exec), start_ns);
    struct noted tasks[3];
    for (uint32_t i = 0; i < 3; i++) {
        tasks[i] = noted_task(fx, i);
        sc_exec_post_at(fx->exec, &tasks[i].task, SC_IO_CLASS_DEMAND, start_ns + 1000 * (3 - i));
    }
    for (uint32_t i = 0; i < 3; i++) {
        assert_true(sc_exec_step_one(fx->exec));
        assert_int_equal(fx->order[i], 2 - i);
        assert_int_equal(fx->times_ns[i], start_ns + 1000 * (i + 1));
    }
    assert_false(sc_exec_step_one(fx->exec));
    assert_int_equal(sc_exec_now_ns(fx->exec), start_ns + 3000);
}

static void a_loop_wait_stops_at_its_deadline(void **state)
{
    struct fixture *fx = *state;
    open_exec(fx, 0, 7);
    _Atomic uint32_t word = 0;
    uint64_t start_ns = sc_exec_now_ns(fx->exec);
    struct noted before = noted_task(fx, 1), at = noted_task(fx, 2);
    sc_exec_post_at(fx->exec, &before.task, SC_IO_CLASS_DEMAND, start_ns + 499);
    sc_exec_post_at(fx->exec, &at.task, SC_IO_CLASS_DEMAND, start_ns + 500);
    assert_false(sc_exec_wait(fx->exec, &word, 0, start_ns));
    assert_int_equal(atomic_load(&fx->done), 0);
    assert_false(sc_exec_wait(fx->exec, &word, 0, start_ns + 500));
    assert_int_equal(atomic_load(&fx->done), 1);
    assert_int_equal(sc_exec_now_ns(fx->exec), start_ns + 500);
    assert_false(sc_exec_wait(fx->exec, &word, 0, start_ns + 9000));
    assert_int_equal(atomic_load(&fx->done), 2);
    assert_int_equal(sc_exec_now_ns(fx->exec), start_ns + 9000);
    /* Nothing can change the word any more: a deadlock is told, the clock stands. */
    assert_false(sc_exec_wait(fx->exec, &word, 0, SC_EXEC_FOREVER));
    assert_int_equal(sc_exec_now_ns(fx->exec), start_ns + 9000);
}

static void a_post_in_the_past_is_runnable_at_once(void **state)
{
    struct fixture *fx = *state;
    open_exec(fx, 0, 7);
    uint64_t start_ns = sc_exec_now_ns(fx->exec);
    struct noted task = noted_task(fx, 1);
    sc_exec_post_at(fx->exec, &task.task, SC_IO_CLASS_WRITER, start_ns - 1);
    assert_int_equal(atomic_load(&task.task.posted), 1);
    wait_done(fx, 1);
    assert_int_equal(atomic_load(&task.task.posted), 0);
    assert_int_equal(sc_exec_now_ns(fx->exec), start_ns);
}

/* A timer or a queued task that is taken back never runs, and may be posted again. */
static void cancel_takes_back_what_no_worker_has(void **state)
{
    struct fixture *fx = *state;
    open_exec(fx, 0, 7);
    struct noted timer = {.task = {.step = note}, .fx = fx, .name = 1};
    struct noted queued = {.task = {.step = note}, .fx = fx, .name = 2};
    struct noted kept = {.task = {.step = note}, .fx = fx, .name = 3};
    sc_exec_post_at(fx->exec, &timer.task, SC_IO_CLASS_DEMAND, sc_exec_now_ns(fx->exec) + 1000);
    sc_exec_post(fx->exec, &queued.task, SC_IO_CLASS_WRITER);
    sc_exec_post(fx->exec, &kept.task, SC_IO_CLASS_BACKGROUND);
    assert_true(sc_exec_cancel(fx->exec, &timer.task));
    assert_true(sc_exec_cancel(fx->exec, &queued.task));
    assert_false(sc_exec_cancel(fx->exec, &queued.task));
    while (sc_exec_step_one(fx->exec))
        ;
    assert_int_equal(atomic_load(&fx->done), 1);
    assert_int_equal(fx->order[0], 3);
    assert_false(sc_exec_cancel(fx->exec, &kept.task));
    sc_exec_post(fx->exec, &timer.task, SC_IO_CLASS_DEMAND);
    while (sc_exec_step_one(fx->exec))
        ;
    assert_int_equal(atomic_load(&fx->done), 2);
    assert_int_equal(fx->order[1], 1);
}

int main(void)
{
#define EXEC_TEST(test) cmocka_unit_test_setup_teardown(test, make, done)
    const struct CMUnitTest tests[] = {
        EXEC_TEST(cancel_takes_back_what_no_worker_has),
        EXEC_TEST(a_worker_takes_the_highest_lane_first_and_the_oldest_inside_it),
        EXEC_TEST(a_half_that_blocks_leaves_one_thread_to_the_other),
        EXEC_TEST(a_due_task_is_never_early_and_the_nearest_comes_first),
        EXEC_TEST(a_timer_comes_due_while_the_other_worker_is_busy),
        EXEC_TEST(four_threads_post_and_each_post_is_stepped_exactly_once),
        EXEC_TEST(a_cancel_beside_the_post_takes_it_back_or_leaves_it),
        EXEC_TEST(a_step_may_free_its_task),
        EXEC_TEST(a_step_may_post_its_own_task_again),
        EXEC_TEST(a_wait_ends_at_its_deadline_and_not_before),
        EXEC_TEST(a_forked_child_can_close),
        EXEC_TEST(open_refuses_too_many_threads_and_no_memory),
        EXEC_TEST(the_loop_repeats_by_its_seed_and_differs_between_seeds),
        EXEC_TEST(the_loop_moves_its_clock_to_the_next_due_task_and_no_further),
        EXEC_TEST(a_loop_wait_stops_at_its_deadline),
        EXEC_TEST(a_post_in_the_past_is_runnable_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
