/* Memory limits: control groups of both versions, as files that stand elsewhere; limits of the
 * process itself. */
#include "base/memory_limit.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define MIB (UINT64_C(1) << 20)

static char dir[64];

static const char *in_dir(const char *name)
{
    static char path[2][256];
    static unsigned turn;
    turn = (turn + 1) % 2;
    (void)snprintf(path[turn], sizeof(path[turn]), "%s/%s", dir, name);
    return path[turn];
}

static void make_dirs(const char *name)
{
    char path[256];
    (void)snprintf(path, sizeof(path), "%s", in_dir(name));
    for (char *slash = strchr(path + strlen(dir) + 1, '/'); slash != NULL;
         slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        (void)mkdir(path, 0700);
        *slash = '/';
    }
}

static void put(const char *name, const char *text)
{
    make_dirs(name);
    FILE *file = fopen(in_dir(name), "we");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static uint64_t limit_of(const char *groups)
{
    put("groups", groups);
    return sc_memory_limit_of_groups(in_dir("groups"), in_dir("fs"));
}

static int set_up(void **state)
{
    (void)state;
    (void)snprintf(dir, sizeof(dir), "/tmp/sc-memory-XXXXXX");
    return mkdtemp(dir) != NULL ? 0 : -1;
}

static int tear_down(void **state)
{
    char command[96];
    (void)state;
    (void)snprintf(command, sizeof(command), "rm -rf %s", dir);
    return system(command);
}

static void test_v2_least_of_all_groups_above(void **state)
{
    (void)state;
    put("fs/a/b/memory.max", "max\n");
    assert_true(limit_of("0::/a/b\n") == UINT64_MAX);
    put("fs/a/memory.max", "3145728\n");
    assert_int_equal(limit_of("0::/a/b\n"), 3 * MIB);
    put("fs/a/b/memory.max", "2097152\n");
    assert_int_equal(limit_of("0::/a/b\n"), 2 * MIB);
    put("fs/memory.max", "1048576\n"); /* a container's root is a group of the host's */
    assert_int_equal(limit_of("0::/a/b\n"), MIB);
    assert_int_equal(limit_of("0::/\n"), MIB);
    assert_int_equal(limit_of("0::/not/here\n"), MIB);
}

static void test_v1_is_the_memory_controllers_group(void **state)
{
    (void)state;
    put("fs/memory/x/memory.limit_in_bytes", "5242880\n");
    put("fs/memory/memory.limit_in_bytes", "9223372036854771712\n");
    assert_int_equal(limit_of("12:cpu,cpuacct:/y\n4:memory:/x\n1:name=systemd:/z\n"), 5 * MIB);
    assert_int_equal(limit_of("4:hugetlb,memory:/x\n"), 5 * MIB);
    assert_int_equal(limit_of("4:memory,hugetlb:/x\n"), 5 * MIB);
    assert_true(limit_of("4:memoryless,nomemory:/x\n") == UINT64_MAX);
    assert_true(limit_of("4:memory:/y\n") == UINT64_C(9223372036854771712));
}

static void test_what_cannot_be_read_limits_nothing(void **state)
{
    (void)state;
    char longest[6000];
    memset(longest, 'a', sizeof(longest));
    memcpy(longest, "0::/", 4);
    longest[sizeof(longest) - 1] = '\0';
    put("fs/g/memory.max", "not a number");
    assert_true(limit_of("") == UINT64_MAX);
    assert_true(limit_of("no colon\n:\n::\n1:\n0::\n") == UINT64_MAX);
    assert_true(limit_of("0::/g") == UINT64_MAX);
    assert_true(limit_of(longest) == UINT64_MAX);
    assert_true(sc_memory_limit_of_groups(in_dir("absent"), in_dir("fs")) == UINT64_MAX);
}

static void test_the_process_own_limit_counts(void **state)
{
    (void)state;
    uint64_t all = sc_memory_limit();
    assert_in_range(all, MIB, UINT64_MAX - 1);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct rlimit limit = {.rlim_cur = all / 2, .rlim_max = RLIM_INFINITY};
        bool good = setrlimit(RLIMIT_DATA, &limit) == 0 && sc_memory_limit() == all / 2;
        _exit(good ? 0 : 1);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_v2_least_of_all_groups_above, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_v1_is_the_memory_controllers_group, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_what_cannot_be_read_limits_nothing, set_up, tear_down),
        cmocka_unit_test(test_the_process_own_limit_counts)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
