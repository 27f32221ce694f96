/* store/log/watch.c and the stamps it compares (store/io/io_posix.c), on a real directory: a change
 * is not overlooked, also where the file system's clock stands.
 *
 * This program replaces fstatat, so that the times of files are the test's.
 * Threads: the seeded loop. */
#include "store/log/watch.h"
#include "tests/unit/store/io_fixture.h"

#include <fcntl.h>
#include <sys/syscall.h>

#define SECOND UINT64_C(1000000000)
#define NOW    (UINT64_C(100000) * SECOND)

static uint64_t modified_ns, changed_ns; /* of all files */

static struct timespec timespec_of(uint64_t ns)
{
    return (struct timespec){(time_t)(ns / SECOND), (long)(ns % SECOND)};
}

int fstatat(int fd, const char *restrict path, struct stat *restrict about, int flags)
{
    int result = (int)syscall(SYS_newfstatat, fd, path, about, flags);
    about->st_mtim = timespec_of(modified_ns);
    about->st_ctim = timespec_of(changed_ns);
    return result;
}

static const struct setup pread_loop = {
    .name = "pread/loop", .backend = SC_BACKEND_PREAD, .thread_count = 0};

static int begin(void **state)
{
    struct fixture *fx = malloc(sizeof(*fx));
    assert_non_null(fx);
    fixture_init(fx, &pread_loop, 1, 0, 0);
    *state = fx;
    return 0;
}

static int end(void **state)
{
    fixture_done(*state);
    free(*state);
    return 0;
}

/* Both clocks. */
static void times_set(struct fixture *fx, uint64_t wall_ns, uint64_t file_ns)
{
    sc_exec_wall_set(fx->exec, (int64_t)(wall_ns - sc_exec_wall_ns(fx->exec)));
    modified_ns = changed_ns = file_ns;
}

static uint64_t stamp(const struct fixture *fx, const char *name)
{
    return sc_store_watch_stamp(fx->io, fx->dir, name);
}

/* The stamp, which stands. */
static uint64_t settled(const struct fixture *fx, const char *name)
{
    uint64_t now = stamp(fx, name);
    assert_true(now != SC_IO_STAMP_UNKNOWN && now != SC_IO_STAMP_ABSENT);
    assert_true(now == stamp(fx, name));
    return now;
}

static void file_make(struct fixture *fx, const char *name, uint64_t bytes)
{
    static const uint8_t zeros[64];
    struct sc_io_file *file = open_file(fx, name, NEW_FILE);
    assert_int_equal(sc_io_file_pwrite(fx->io, file, zeros, bytes, 0, NULL), SPEC_OK);
    sc_io_file_close(fx->io, file);
}

static void a_young_change_is_not_believed(void **state)
{
    struct fixture *fx = *state;
    times_set(fx, NOW, NOW);
    assert_true(stamp(fx, "log") == SC_IO_STAMP_ABSENT);
    file_make(fx, "log", 10);
    for (uint64_t at = NOW - 3600 * SECOND; at < NOW + 3600 * SECOND; at += SECOND) {
        bool is_young = NOW < at + 3 * SECOND; /* or later than now: the clock was set back */
        times_set(fx, NOW, at);
        assert_int_equal(stamp(fx, "log") == SC_IO_STAMP_UNKNOWN, is_young);
        assert_int_equal(stamp(fx, ".") == SC_IO_STAMP_UNKNOWN, is_young);
        modified_ns = 1; /* set by hand: the inode's own time is young still */
        assert_int_equal(stamp(fx, "log") == SC_IO_STAMP_UNKNOWN, is_young);
        modified_ns = at; /* on file systems whose inodes have no such time */
        changed_ns = 1;
        assert_int_equal(stamp(fx, "log") == SC_IO_STAMP_UNKNOWN, is_young);
    }
    assert_int_equal(sc_io_unlink(fx->io, path_of(fx, "log"), NULL), SPEC_OK);
    assert_true(stamp(fx, "log") == SC_IO_STAMP_ABSENT);
}

static void size_and_name_tell_while_the_clock_stands(void **state)
{
    struct fixture *fx = *state;
    uint64_t seen[3];
    char from[1100];
    times_set(fx, NOW, NOW - 60 * SECOND);
    file_make(fx, "log", 10);
    seen[0] = settled(fx, "log");
    file_make(fx, "log", 11); /* appended to */
    seen[1] = settled(fx, "log");
    file_make(fx, "new", 11); /* replaced, with the same size */
    (void)snprintf(from, sizeof(from), "%s", path_of(fx, "new"));
    assert_int_equal(sc_io_rename(fx->io, from, path_of(fx, "log"), NULL), SPEC_OK);
    seen[2] = settled(fx, "log");
    for (uint32_t i = 0; i < 3; i++)
        for (uint32_t j = 0; j < i; j++)
            assert_true(seen[i] != seen[j]);
}

static void any_time_tells(void **state)
{
    struct fixture *fx = *state;
    assert_int_equal(sc_io_mkdir(fx->io, path_of(fx, "epochs"), NULL), SPEC_OK);
    times_set(fx, NOW, NOW - 60 * SECOND);
    uint64_t before = settled(fx, "epochs");
    modified_ns++;
    uint64_t after = settled(fx, "epochs");
    assert_true(before != after);
    changed_ns++;
    assert_true(settled(fx, "epochs") != before && settled(fx, "epochs") != after);
    modified_ns--;
    changed_ns--;
    assert_true(settled(fx, "epochs") == before);
}

static void a_path_that_is_too_long_has_no_answer(void **state)
{
    struct fixture *fx = *state;
    char *name = malloc(8192);
    assert_non_null(name);
    memset(name, 'x', 8191);
    name[8191] = '\0';
    assert_true(stamp(fx, name) == SC_IO_STAMP_UNKNOWN);
    free(name);
}

static void a_look_is_due_until_the_stamp_stands(void **state)
{
    (void)state;
    struct sc_store_watch watch = {0};
    static const struct {
        uint64_t stamp;
        bool is_due;
    } asks[] = {{SC_IO_STAMP_UNKNOWN, true},
                {SC_IO_STAMP_UNKNOWN, true},
                {7, true},
                {7, false},
                {7, false},
                {8, true},
                {8, false},
                {7, true},
                {SC_IO_STAMP_UNKNOWN, true},
                {7, true},
                {7, false},
                {SC_IO_STAMP_ABSENT, true},
                {SC_IO_STAMP_ABSENT, false},
                {7, true}};
    for (uint32_t i = 0; i < sizeof(asks) / sizeof(asks[0]); i++)
        assert_int_equal(sc_store_watch_due(&watch, asks[i].stamp), asks[i].is_due);
}

static void a_look_is_due_now_and_then(void **state)
{
    (void)state;
    struct sc_store_watch watch = {0};
    for (uint32_t i = 0; i < 5 * SC_STORE_WATCH_ASKS; i++)
        assert_int_equal(sc_store_watch_due(&watch, 7), i % SC_STORE_WATCH_ASKS == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_young_change_is_not_believed, begin, end),
        cmocka_unit_test_setup_teardown(size_and_name_tell_while_the_clock_stands, begin, end),
        cmocka_unit_test_setup_teardown(any_time_tells, begin, end),
        cmocka_unit_test_setup_teardown(a_path_that_is_too_long_has_no_answer, begin, end),
        cmocka_unit_test(a_look_is_due_until_the_stamp_stands),
        cmocka_unit_test(a_look_is_due_now_and_then),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
