/* Which cases of a test program begin threads. sc_add_test(... THREADS case ..) names them, and
 * ctest passes the names in the environment: SC_THREAD_CASES="case,case". TSan can find nothing in
 * a case with one thread, and takes ten times as long for it, so its stage runs the named cases
 * only. Without a sanitizer all cases run, and a case that begins a thread and is not named fails:
 * so no case leaves TSan's stage unnoticed. Without the variable a program runs all cases and
 * judges no names.
 *
 * Invariants: a name that no case has is an error.
 * Does not: see threads of other processes or of libraries; support setups of groups.
 * Threads: any may begin others. Tests: tests/unit/sim/test_thread_cases.c */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define CASES_MAX 64u

int __real__cmocka_run_group_tests(const char *name, const struct CMUnitTest *cases, size_t count,
                                   CMFixtureFunction setup, CMFixtureFunction teardown);
int __wrap__cmocka_run_group_tests(const char *name, const struct CMUnitTest *cases, size_t count,
                                   CMFixtureFunction setup, CMFixtureFunction teardown);
#ifndef SC_SANITIZED_THREAD
int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*run)(void *),
                          void *user);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*run)(void *),
                          void *user);
#endif

#define SEPARATOR ','

static bool is_named(const char *name)
{
    size_t length = strlen(name);
    for (const char *at = getenv("SC_THREAD_CASES"); at != NULL; at = strchr(at, SEPARATOR)) {
        at += *at == SEPARATOR;
        if (strncmp(at, name, length) == 0 && (at[length] == SEPARATOR || at[length] == '\0'))
            return true;
    }
    return false;
}

static size_t names_count(void)
{
    const char *names = getenv("SC_THREAD_CASES");
    size_t count = names[0] != '\0';
    for (size_t i = 0; names[i] != '\0'; i++)
        count += names[i] == SEPARATOR;
    return count;
}

#ifndef SC_SANITIZED_THREAD
static atomic_ulong begun;

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*run)(void *),
                          void *user)
{
    atomic_fetch_add(&begun, 1);
    return __real_pthread_create(thread, attr, run, user);
}

static const struct CMUnitTest *current;

static int case_begin(void **state)
{
    current = *state;
    *state = current->initial_state;
    atomic_store(&begun, 0);
    return current->setup_func != NULL ? current->setup_func(state) : 0;
}

static int case_end(void **state)
{
    int failed = current->teardown_func != NULL ? current->teardown_func(state) : 0;
    if (atomic_load(&begun) == 0 || is_named(current->name))
        return failed;
    print_error("%s begins threads: sc_add_test(... THREADS %s), so that TSan sees it\n",
                current->name, current->name);
    return -1;
}
#endif

int __wrap__cmocka_run_group_tests(const char *name, const struct CMUnitTest *cases, size_t count,
                                   CMFixtureFunction setup, CMFixtureFunction teardown)
{
    struct CMUnitTest mine[CASES_MAX];
    size_t mine_count = 0, names = 0;
    if (getenv("SC_THREAD_CASES") == NULL)
        return __real__cmocka_run_group_tests(name, cases, count, setup, teardown);
    if (setup != NULL || teardown != NULL || count > CASES_MAX) {
        print_error("%s: a group's own setup, or more than %u cases\n", name, CASES_MAX);
        return 1;
    }
    for (size_t i = 0; i < count; i++) {
        names += is_named(cases[i].name);
#ifdef SC_SANITIZED_THREAD
        if (is_named(cases[i].name))
            mine[mine_count++] = cases[i];
#else
        mine[mine_count] = cases[i];
        mine[mine_count].setup_func = case_begin;
        mine[mine_count].teardown_func = case_end;
        mine[mine_count++].initial_state = (void *)(uintptr_t)&cases[i];
#endif
    }
    if (names != names_count()) {
        print_error("%s: THREADS names %zu cases, %zu are there\n", name, names_count(), names);
        return 1;
    }
    return __real__cmocka_run_group_tests(name, mine, mine_count, NULL, NULL);
}
