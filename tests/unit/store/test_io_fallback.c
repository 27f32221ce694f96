/* What store/io/io_posix.c does when the system refuses or comes short. This program defines the
 * system calls' functions itself, in front of libc's, and lets each test say how they behave.
 *
 * Holds: a behaviour that a test asked for was met (its counter is asserted).
 * Threads: one (the seeded loop). */
#include "tests/unit/store/io_fixture.h"

#include <fcntl.h>
#include <sys/syscall.h>

static struct {
    bool refuses_direct_open;     /* EINVAL, having made the file, as tmpfs did before Linux 6.6 */
    bool refuses_direct_transfer; /* EINVAL while the descriptor is direct */
    bool refuses_fallocate;
    uint64_t transfer_bytes_max; /* short transfers; 0: as asked */
    uint32_t interrupts;         /* EINTR so many times */
    uint32_t refused, shortened, interrupted;
    int write_errno; /* of the write after writes_left more */
    uint32_t writes_left;
} behave;

int openat(int at, const char *path, int flags, ...)
{
    va_list arguments;
    va_start(arguments, flags);
    const mode_t mode = (flags & O_CREAT) != 0 ? (mode_t)va_arg(arguments, unsigned) : 0;
    va_end(arguments);
    const bool is_refused = behave.refuses_direct_open && (flags & O_DIRECT) != 0;
    const int fd = (int)syscall(SYS_openat, at, path, is_refused ? flags & ~O_DIRECT : flags, mode);
    if (is_refused && fd >= 0) {
        (void)close(fd);
        behave.refused++;
        errno = EINVAL;
        return -1;
    }
    return fd;
}

/* The bytes that a transfer may move; 0: it fails, errno says why. */
static size_t allowed(int fd, size_t bytes)
{
    if (behave.interrupts > 0) {
        behave.interrupts--;
        behave.interrupted++;
        errno = EINTR;
        return 0;
    }
    if (behave.refuses_direct_transfer && (fcntl(fd, F_GETFL) & O_DIRECT) != 0) {
        behave.refused++;
        errno = EINVAL;
        return 0;
    }
    if (behave.transfer_bytes_max > 0 && bytes > behave.transfer_bytes_max) {
        behave.shortened++;
        return behave.transfer_bytes_max;
    }
    return bytes;
}

ssize_t pread(int fd, void *buffer, size_t bytes, off_t offset)
{
    bytes = allowed(fd, bytes);
    return bytes == 0 ? -1 : syscall(SYS_pread64, fd, buffer, bytes, offset);
}

ssize_t pwrite(int fd, const void *buffer, size_t bytes, off_t offset)
{
    if (behave.write_errno != 0 && behave.writes_left-- == 0) {
        errno = behave.write_errno;
        return -1;
    }
    bytes = allowed(fd, bytes);
    return bytes == 0 ? -1 : syscall(SYS_pwrite64, fd, buffer, bytes, offset);
}

int fallocate(int fd, int mode, off_t offset, off_t bytes)
{
    if (!behave.refuses_fallocate)
        return (int)syscall(SYS_fallocate, fd, mode, offset, bytes);
    behave.refused++;
    errno = EOPNOTSUPP;
    return -1;
}

/* ---- Fixture -------------------------------------------------------------------------------- */

static const struct setup pread_loop = {
    .name = "pread/loop", .backend = SC_BACKEND_PREAD, .thread_count = 0};
static uint32_t line_count;
static char last_line[SC_LIMIT_LOG_LINE_BYTES];

static void keep_line(int32_t level, const char *line, void *user)
{
    (void)user;
    if (level == 2)
        return; /* which back end it is */
    assert_int_equal(level, 1);
    line_count++;
    (void)snprintf(last_line, sizeof(last_line), "%s", line);
}

static int begin(void **state)
{
    struct fixture *fx = malloc(sizeof(*fx));
    assert_non_null(fx);
    memset(&behave, 0, sizeof(behave));
    fixture_init(fx, &pread_loop, 1, 0, 0);
    fx->log.callback = keep_line;
    line_count = 0;
    last_line[0] = '\0';
    *state = fx;
    return 0;
}

static int end(void **state)
{
    memset(&behave, 0, sizeof(behave));
    fixture_done(*state);
    free(*state);
    return 0;
}

static void round_trip(struct fixture *fx, struct sc_io_file *file)
{
    const uint64_t bytes = 5 * PAGE;
    uint8_t *data = page_memory(bytes), *back = page_memory(bytes);
    fill(data, bytes, 1);
    assert_int_equal(transfer(fx, file, SC_IO_WRITE, data, bytes, PAGE), SPEC_OK);
    assert_int_equal(transfer(fx, file, SC_IO_READ, back, bytes, PAGE), SPEC_OK);
    assert_memory_equal(back, data, bytes);
    free(data);
    free(back);
}

/* ---- Tests ---------------------------------------------------------------------------------- */

static void goes_buffered_where_open_refuses_direct(void **state)
{
    struct fixture *fx = *state;
    behave.refuses_direct_open = true;
    for (uint32_t i = 0; i < 3; i++) {
        char name[8];
        (void)snprintf(name, sizeof(name), "f%u", i);
        struct sc_io_file *file = open_file(fx, name, NEW_DIRECT | SC_IO_OPEN_EXCLUSIVE);
        round_trip(fx, file);
        uint8_t byte = 0;
        assert_int_equal(transfer(fx, file, SC_IO_READ, &byte, 1, 0), SPEC_E_INVALID);
        sc_io_file_close(fx->io, file);
    }
    assert_int_equal(behave.refused, 3);
    sc_log_drain(&fx->log);
    assert_int_equal(line_count, 1); /* said once */
    assert_non_null(strstr(last_line, "refuses O_DIRECT"));
}

static void goes_buffered_where_a_transfer_refuses_direct(void **state)
{
    struct fixture *fx = *state;
    struct sc_io_file *file = open_file(fx, "f", NEW_DIRECT);
    behave.refuses_direct_transfer = true;
    round_trip(fx, file);
    round_trip(fx, file);
    sc_io_file_close(fx->io, file);
    sc_log_drain(&fx->log);
    if (line_count == 0) /* the directory's file system has no O_DIRECT at all */
        assert_int_equal(behave.refused, 0);
    assert_true(behave.refused <= 1);
    assert_int_equal(line_count, behave.refused);
}

static void continues_short_and_interrupted_transfers(void **state)
{
    struct fixture *fx = *state;
    struct sc_io_file *file = open_file(fx, "f", NEW_FILE);
    behave.transfer_bytes_max = 1000;
    behave.interrupts = 3;
    round_trip(fx, file);
    assert_int_equal(behave.interrupted, 3);
    assert_int_equal(behave.shortened, 2 * 20); /* 20,480 bytes, 1,000 at a time */
    char text[2500], back[2500];
    memset(text, 'x', sizeof(text));
    assert_int_equal(sc_io_file_pwrite(fx->io, file, text, sizeof(text), 7, NULL), SPEC_OK);
    assert_int_equal(sc_io_file_pread(fx->io, file, back, sizeof(back), 7, NULL), SPEC_OK);
    assert_memory_equal(back, text, sizeof(text));
    sc_io_file_close(fx->io, file);
}

static void writes_zeros_where_fallocate_is_refused(void **state)
{
    struct fixture *fx = *state;
    const uint64_t bytes = 50 * PAGE;
    uint64_t size = 0;
    uint8_t *back = page_memory(bytes);
    behave.refuses_fallocate = true;
    struct sc_io_file *file = open_file(fx, "seg", NEW_DIRECT);
    memset(back, 9, PAGE);
    assert_int_equal(transfer(fx, file, SC_IO_WRITE, back, PAGE, 0), SPEC_OK);
    assert_int_equal(sc_io_file_reserve(fx->io, file, bytes, NULL), SPEC_OK);
    assert_int_equal(sc_io_file_reserve(fx->io, file, bytes, NULL), SPEC_OK);
    assert_int_equal(behave.refused, 2);
    assert_int_equal(sc_io_file_size(fx->io, file, &size, NULL), SPEC_OK);
    assert_int_equal(size, bytes);
    assert_int_equal(transfer(fx, file, SC_IO_READ, back, bytes, 0), SPEC_OK);
    for (uint64_t i = 0; i < bytes; i++)
        assert_int_equal(back[i], i < PAGE ? 9 : 0);
    struct stat about;
    assert_int_equal(stat(path_of(fx, "seg"), &about), 0);
    assert_true((uint64_t)about.st_blocks * 512 >= bytes);
    sc_log_drain(&fx->log);
    assert_true(line_count >= 1); /* and one more where O_DIRECT is refused */
    assert_non_null(strstr(last_line, "zeros are written instead"));
    sc_io_file_close(fx->io, file);
    free(back);
}

static void takes_back_a_reservation_that_meets_a_full_disk(void **state)
{
    struct fixture *fx = *state;
    struct spec_error error = {.struct_size = sizeof(error)};
    uint64_t size = 1;
    struct sc_io_file *file = open_file(fx, "seg", NEW_FILE);
    behave.refuses_fallocate = true;
    behave.write_errno = ENOSPC;
    behave.writes_left = 2;
    assert_int_equal(sc_io_file_reserve(fx->io, file, 1u << 20, &error), SPEC_E_NO_SPACE);
    assert_int_equal(error.sys_errno, ENOSPC);
    assert_int_equal(sc_io_file_size(fx->io, file, &size, NULL), SPEC_OK);
    assert_int_equal(size, 0);
    behave.write_errno = EDQUOT;
    behave.writes_left = 0;
    assert_int_equal(sc_io_file_pwrite(fx->io, file, "x", 1, 0, &error), SPEC_E_NO_SPACE);
    assert_int_equal(error.sys_errno, EDQUOT);
    behave.write_errno = 0;
    sc_io_file_close(fx->io, file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(goes_buffered_where_open_refuses_direct, begin, end),
        cmocka_unit_test_setup_teardown(goes_buffered_where_a_transfer_refuses_direct, begin, end),
        cmocka_unit_test_setup_teardown(continues_short_and_interrupted_transfers, begin, end),
        cmocka_unit_test_setup_teardown(writes_zeros_where_fallocate_is_refused, begin, end),
        cmocka_unit_test_setup_teardown(takes_back_a_reservation_that_meets_a_full_disk, begin,
                                        end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
