/* tests/unit/thread_cases.c: what begins threads is named; ctest runs this with an argument, too,
 * and looks for what it says.
 *
 * Threads: of the cases. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static atomic_int ran;

static void *run(void *user)
{
    (void)user;
    atomic_fetch_add(&ran, 1);
    return NULL;
}

static void begin_one(void)
{
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, run, NULL), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
}

static int setup(void **state)
{
    static int made;
    made++;
    *state = &made;
    return 0;
}

static int teardown(void **state)
{
    (*(int *)*state)--;
    return 0;
}

static void begins_one(void **state)
{
    begin_one();
    assert_int_equal(atomic_load(&ran), 1);
    assert_int_equal(*(int *)*state, 1); /* its own setup was called */
}

static void begins_none(void **state)
{
    assert_int_equal(**(int **)state, 7);
}

static void is_not_named(void **state)
{
    (void)state;
    begin_one();
}

int main(int argc, char **argv)
{
    static int seven = 7;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(begins_one, setup, teardown),
        cmocka_unit_test_prestate(begins_none, &seven),
        cmocka_unit_test(is_not_named),
    };
    size_t first = argc == 2 && strcmp(argv[1], "lacks") == 0;
    size_t end = argc == 2 && strcmp(argv[1], "unnamed") == 0 ? 3 : 2;
    return _cmocka_run_group_tests("thread cases", tests + first, end - first, NULL, NULL);
}
