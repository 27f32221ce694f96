/* A broken invariant of ours, in both builds: with SC_ASSERT_ABORTS it ends the process, without it
 * marks the poison and goes on. Compiled twice.
 *
 * Holds: what must abort runs in a child.
 * Threads: four in one test, else one. */
#include "base/assert.h"

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static void a_kept_invariant_does_nothing_and_is_evaluated_once(void **state)
{
    (void)state;
    struct sc_poison poison = {0};
    int evaluated = 0;
    SC_ASSERT(&poison, ++evaluated == 1);
    assert_int_equal(evaluated, 1);
    assert_int_equal(atomic_load(&poison.broken), 0);
    assert_null(atomic_load(&poison.expression));
}

#ifdef SC_ASSERT_ABORTS

static void a_broken_one_aborts(void **state)
{
    (void)state;
    for (int has_poison = 0; has_poison < 2; has_poison++) {
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            struct sc_poison poison = {0};
            signal(SIGABRT, SIG_DFL);
            close(STDERR_FILENO); /* its line would look like a failure of this test */
            SC_ASSERT(has_poison != 0 ? &poison : NULL, 1 + 1 == 3);
            _exit(0);
        }
        int status = 0;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFSIGNALED(status));
        assert_int_equal(WTERMSIG(status), SIGABRT);
    }
}

#else

static void a_broken_one_poisons_and_keeps_the_first_place(void **state)
{
    (void)state;
    struct sc_poison poison = {0};
    uint32_t line = __LINE__ + 1;
    SC_ASSERT(&poison, 1 + 1 == 3);
    assert_int_equal(atomic_load(&poison.broken), 1);
    assert_string_equal(atomic_load(&poison.expression), "1 + 1 == 3");
    assert_int_equal(atomic_load(&poison.line), line);
    assert_non_null(strstr(atomic_load(&poison.file), "test_assert.c"));
    SC_ASSERT(&poison, 2 + 2 == 5);
    assert_string_equal(atomic_load(&poison.expression), "1 + 1 == 3");
    assert_int_equal(atomic_load(&poison.line), line);
    SC_ASSERT(NULL, 2 + 2 == 5); /* nobody to tell: goes on */
}

static void *break_it(void *argument)
{
    struct sc_poison *poison = argument;
    SC_ASSERT(poison, poison == NULL);
    return (void *)(uintptr_t)atomic_load(&poison->broken);
}

static void four_threads_poison_once_and_each_sees_it(void **state)
{
    (void)state;
    struct sc_poison poison = {0};
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, break_it, &poison), 0);
    for (int i = 0; i < 4; i++) {
        void *broken = NULL;
        pthread_join(threads[i], &broken);
        assert_int_equal((uintptr_t)broken, 1);
    }
    assert_string_equal(atomic_load(&poison.expression), "poison == NULL");
}

#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_kept_invariant_does_nothing_and_is_evaluated_once),
#ifdef SC_ASSERT_ABORTS
        cmocka_unit_test(a_broken_one_aborts),
#else
        cmocka_unit_test(a_broken_one_poisons_and_keeps_the_first_place),
        cmocka_unit_test(four_threads_poison_once_and_each_sees_it),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
