/* What only store/io/io_uring.c has: rings, the target of bytes in flight, what the kernel may say,
 * registration, and what happens where io_uring is forbidden. The linker puts this program's
 * functions in front of five of liburing's, so that a test can say how they behave.
 *
 * Holds: a behaviour that a test asked for was met (its counter is asserted); behave is written
 * while nothing is in flight.
 * Threads: the rings' beside the test's. */
#include "tests/unit/awaits.h"
#include "tests/unit/store/io_fixture.h"

#include <fcntl.h>
#include <liburing.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define MIB (1u << 20)

static struct {
    int enter_error;       /* of so many enters, nothing done */
    uint32_t enter_errors; /* UINT32_MAX: of all */
    uint64_t bytes_max;    /* of one transfer; 0: as asked */
    int32_t result;        /* instead of what so many completions said */
    uint32_t results;
    uint32_t strays;        /* completions that nobody waits for, one with each enter */
    uint32_t empties;       /* enters that a signal ends behind the submission */
    uint64_t stray_data[2]; /* their user_data, in turn */
    int setup_error, buffers_error, files_error;
    bool lacks_reads;
    /* Met: */
    uint32_t failed, shortened, changed, strayed;
    uint32_t early; /* enters that came back with less than they wait for: after WAIT_NS_MAX */
    uint32_t entries, fixed_files, fixed_buffers;
    uint64_t last_data;
} behave;

static pthread_mutex_t behave_lock = PTHREAD_MUTEX_INITIALIZER; /* between rings */

int __real_io_uring_submit_and_wait_timeout(struct io_uring *ring, struct io_uring_cqe **ret_cqe,
                                            unsigned wait_nr, struct __kernel_timespec *limit,
                                            sigset_t *mask);
int __real_io_uring_queue_init_params(unsigned entries, struct io_uring *ring,
                                      struct io_uring_params *params);
int __real_io_uring_register_probe(struct io_uring *ring, struct io_uring_probe *probe,
                                   unsigned count);
int __real_io_uring_register_buffers_sparse(struct io_uring *ring, unsigned count);
int __real_io_uring_register_files_sparse(struct io_uring *ring, unsigned count);
int __wrap_io_uring_submit_and_wait_timeout(struct io_uring *ring, struct io_uring_cqe **ret_cqe,
                                            unsigned wait_nr, struct __kernel_timespec *limit,
                                            sigset_t *mask);
int __wrap_io_uring_queue_init_params(unsigned entries, struct io_uring *ring,
                                      struct io_uring_params *params);
int __wrap_io_uring_register_probe(struct io_uring *ring, struct io_uring_probe *probe,
                                   unsigned count);
int __wrap_io_uring_register_buffers_sparse(struct io_uring *ring, unsigned count);
int __wrap_io_uring_register_files_sparse(struct io_uring *ring, unsigned count);

static void look_at_entries(struct io_uring *ring)
{
    for (unsigned at = *ring->sq.khead; at != ring->sq.sqe_tail; at++) {
        struct io_uring_sqe *sqe = &ring->sq.sqes[at & ring->sq.ring_mask];
        behave.entries++;
        behave.last_data = sqe->user_data;
        behave.fixed_files += (sqe->flags & IOSQE_FIXED_FILE) != 0;
        behave.fixed_buffers +=
            sqe->opcode == IORING_OP_READ_FIXED || sqe->opcode == IORING_OP_WRITE_FIXED;
        if (behave.bytes_max > 0 && sqe->len > behave.bytes_max) {
            sqe->len = (uint32_t)behave.bytes_max;
            behave.shortened++;
        }
    }
}

int __wrap_io_uring_submit_and_wait_timeout(struct io_uring *ring, struct io_uring_cqe **ret_cqe,
                                            unsigned wait_nr, struct __kernel_timespec *limit,
                                            sigset_t *mask)
{
    (void)pthread_mutex_lock(&behave_lock);
    if (behave.enter_errors > 0) {
        behave.enter_errors -= behave.enter_errors != UINT32_MAX;
        behave.failed++;
        const int error = behave.enter_error;
        (void)pthread_mutex_unlock(&behave_lock);
        return -error;
    }
    look_at_entries(ring);
    if (behave.empties > 0) {
        behave.empties--;
        *ret_cqe = NULL;
        (void)pthread_mutex_unlock(&behave_lock);
        return io_uring_submit(ring);
    }
    if (behave.strays > 0) {
        struct io_uring_sqe *sqe = io_uring_get_sqe(ring);
        assert_non_null(sqe);
        io_uring_prep_nop(sqe);
        sqe->user_data = behave.stray_data[behave.strayed++ % 2];
        behave.strays--;
        wait_nr++;
    }
    (void)pthread_mutex_unlock(&behave_lock);
    int result = __real_io_uring_submit_and_wait_timeout(ring, ret_cqe, wait_nr, limit, mask);
    (void)pthread_mutex_lock(&behave_lock);
    /* On a slow disk too, what the first enter waits for is changed in the first. */
    while (behave.results > 0 && io_uring_cq_ready(ring) < wait_nr &&
           (result >= 0 || result == -ETIME || result == -EINTR))
        result = __real_io_uring_submit_and_wait_timeout(ring, ret_cqe, wait_nr, limit, mask);
    behave.early += io_uring_cq_ready(ring) < wait_nr;
    unsigned head;
    struct io_uring_cqe *cqe;
    io_uring_for_each_cqe(ring, head, cqe)
    {
        if (behave.results > 0) {
            behave.results--;
            behave.changed++;
            cqe->res = behave.result;
        }
    }
    (void)pthread_mutex_unlock(&behave_lock);
    return result;
}

int __wrap_io_uring_queue_init_params(unsigned entries, struct io_uring *ring,
                                      struct io_uring_params *params)
{
    return behave.setup_error != 0 ? -behave.setup_error
                                   : __real_io_uring_queue_init_params(entries, ring, params);
}

int __wrap_io_uring_register_probe(struct io_uring *ring, struct io_uring_probe *probe,
                                   unsigned count)
{
    const int result = __real_io_uring_register_probe(ring, probe, count);
    if (behave.lacks_reads)
        probe->ops[IORING_OP_READ].flags = 0;
    return result;
}

int __wrap_io_uring_register_buffers_sparse(struct io_uring *ring, unsigned count)
{
    return behave.buffers_error != 0 ? -behave.buffers_error
                                     : __real_io_uring_register_buffers_sparse(ring, count);
}

int __wrap_io_uring_register_files_sparse(struct io_uring *ring, unsigned count)
{
    return behave.files_error != 0 ? -behave.files_error
                                   : __real_io_uring_register_files_sparse(ring, count);
}

/* ---- Fixture -------------------------------------------------------------------------------- */

static const struct setup one_ring = {
    .name = "one ring", .backend = SC_BACKEND_URING, .thread_count = 1, .ring_count = 1};
static const struct setup two_rings = {
    .name = "two rings", .backend = SC_BACKEND_URING, .thread_count = 1, .ring_count = 2};
static const struct setup small_target = {.name = "one ring, 1 MiB",
                                          .backend = SC_BACKEND_URING,
                                          .thread_count = 1,
                                          .ring_count = 1,
                                          .in_flight_bytes = MIB};
static const struct setup one_page = {.name = "one ring, a page",
                                      .backend = SC_BACKEND_URING,
                                      .thread_count = 1,
                                      .ring_count = 1,
                                      .in_flight_bytes = PAGE};
static const struct setup automatic = {
    .name = "auto", .backend = SC_BACKEND_AUTO, .thread_count = 1};

static char lines[8][SC_LIMIT_LOG_LINE_BYTES];
static uint32_t line_count;

static void keep_line(int32_t level, const char *line, void *user)
{
    (void)level;
    (void)user;
    (void)snprintf(lines[line_count++ % 8], sizeof(lines[0]), "%s", line);
}

/* How many lines since the last call have the text. */
static uint32_t lines_with(struct fixture *fx, const char *text)
{
    uint32_t count = 0;
    line_count = 0;
    fx->log.callback = keep_line;
    sc_log_drain(&fx->log);
    for (uint32_t i = 0; i < line_count && i < 8; i++)
        count += strstr(lines[i], text) != NULL;
    return count;
}

static void start(struct fixture *fx, const struct setup *setup)
{
    memset(&behave, 0, sizeof(behave));
    fixture_init(fx, setup, 1, 0, 0);
}

static void stop(struct fixture *fx)
{
    fixture_done(fx);
    memset(&behave, 0, sizeof(behave));
}

/* Starts, with a file that is written past the page cache. */
static struct sc_io_file *start_file(struct fixture *fx, const struct setup *setup)
{
    start(fx, setup);
    return open_file(fx, "f", NEW_DIRECT);
}

/* Memory of a case, or NULL, is freed when no operation may reach it. */
static void stop_file(struct fixture *fx, struct sc_io_file *file, void *data, void *more)
{
    sc_io_file_close(fx->io, file);
    stop(fx);
    free(data);
    free(more);
}

static uint8_t *page_filled(uint64_t bytes)
{
    uint8_t *data = page_memory(bytes);
    fill(data, bytes, 1);
    return data;
}

static struct sc_io_counts stats_of(struct fixture *fx)
{
    struct sc_io_counts stats;
    sc_io_stats(fx->io, &stats);
    return stats;
}

static void round_trip(struct fixture *fx, struct sc_io_file *file, uint64_t bytes)
{
    uint8_t *data = page_filled(bytes), *back = page_memory(bytes);
    assert_int_equal(transfer(fx, file, SC_IO_WRITE, data, bytes, PAGE), SPEC_OK);
    memset(back, 0xee, (size_t)bytes);
    assert_int_equal(transfer(fx, file, SC_IO_READ, back, bytes, PAGE), SPEC_OK);
    assert_memory_equal(back, data, (size_t)bytes);
    free(data);
    free(back);
}

/* ---- Enters and bytes in flight ------------------------------------------------------------- */

static void enters_twice_for_a_batch_that_fills_the_target(void **state)
{
    (void)state;
    enum { OPS = 8, BATCHES = 10 };
    struct fixture fx;
    struct test_op tests[OPS];
    struct sc_io_file *file = start_file(&fx, &two_rings);
    uint8_t *data = page_filled(OPS * MIB);
    for (uint32_t i = 0; i < OPS; i++)
        assert_int_equal(transfer(&fx, file, SC_IO_WRITE, data + i * MIB, MIB, i * MIB), SPEC_OK);
    const struct sc_io_counts before = stats_of(&fx);
    const uint32_t early = behave.early;
    for (uint32_t n = 0; n < BATCHES; n++) {
        for (uint32_t i = 0; i < OPS; i++)
            op_set(&fx, &tests[i], file, SC_IO_READ, data + i * MIB, MIB, i * MIB);
        submit_at_once(&fx, tests, OPS);
        wait_done(&fx, OPS * (n + 2));
    }
    const struct sc_io_counts after = stats_of(&fx);
    assert_int_equal(after.ops - before.ops, OPS * BATCHES);
    /* A disk that takes longer than WAIT_NS_MAX for half a batch is asked once more each time. */
    assert_true(after.enters - before.enters <= 2 * BATCHES + behave.early - early);
    assert_int_equal(after.inflight_bytes_max, OPS * MIB); /* all at once */
    stop_file(&fx, file, data, NULL);
}

/* The most that a class brings into flight of a target of 1 MiB, while held_bytes wait for who
 * wants them. */
static uint64_t inflight_beside(uint32_t io_class, uint64_t op_bytes, uint64_t held_bytes)
{
    enum { OPS = 20 };
    struct fixture fx;
    struct test_op tests[OPS];
    struct sc_io_file *file = start_file(&fx, &small_target);
    uint8_t *data = page_memory(op_bytes);
    memset(data, 1, op_bytes);
    assert_int_equal(sc_io_file_reserve(fx.io, file, OPS * op_bytes, NULL), SPEC_OK);
    for (uint32_t i = 0; i < OPS; i++) {
        op_set(&fx, &tests[i], file, SC_IO_WRITE, data, op_bytes, i * op_bytes);
        tests[i].op.io_class = io_class;
    }
    sc_io_hold(fx.io, held_bytes);
    submit_at_once(&fx, tests, OPS);
    wait_done(&fx, OPS);
    sc_io_release(fx.io, held_bytes);
    for (uint32_t i = 0; i < OPS; i++)
        assert_int_equal(tests[i].op.status, SPEC_OK);
    const uint64_t inflight_bytes = stats_of(&fx).inflight_bytes_max;
    stop_file(&fx, file, data, NULL);
    return inflight_bytes;
}

static uint64_t inflight_of(uint32_t io_class, uint64_t op_bytes)
{
    return inflight_beside(io_class, op_bytes, 0);
}

static void keeps_each_lane_in_its_share_of_the_target(void **state)
{
    (void)state;
    assert_int_equal(inflight_of(SC_IO_CLASS_DEMAND, 64 << 10), MIB);
    assert_int_equal(inflight_of(SC_IO_CLASS_SPECULATIVE, 64 << 10), MIB / 4 * 3);
    assert_int_equal(inflight_of(SC_IO_CLASS_WRITER, 64 << 10), MIB / 2);
    assert_int_equal(inflight_of(SC_IO_CLASS_BACKGROUND, 64 << 10), MIB / 4);
    /* The last one may reach over it: eight of a little more than an eighth. */
    assert_int_equal(inflight_of(SC_IO_CLASS_DEMAND, 132 << 10), 8 * (132 << 10));
    /* What is larger than the share goes alone. */
    assert_int_equal(inflight_of(SC_IO_CLASS_BACKGROUND, 320 << 10), 320 << 10);
    assert_int_equal(inflight_of(SC_IO_CLASS_DEMAND, 2 * MIB), 2 * MIB);
}

static _Atomic uint32_t started, met;

static bool say_started(struct sc_io_op *op)
{
    (void)op;
    atomic_store(&started, 1);
    return true;
}

/* Is over when the other operation has begun; that it never does is a failure, not a hang. */
static void await_started(struct sc_io_op *op)
{
    const struct test_op *test = op->user;
    const uint64_t end_ns = sc_exec_now_ns(test->fx->exec) + UINT64_C(20000000000);
    while (atomic_load(&started) == 0 && sc_exec_now_ns(test->fx->exec) < end_ns)
        (void)sched_yield();
    atomic_store(&met, atomic_load(&started));
    test_op_done(op);
}

/* With one operation in flight at a time, and one ring. */
static void gives_the_device_what_waits_before_a_long_done(void **state)
{
    (void)state;
    struct fixture fx;
    struct test_op tests[2];
    struct sc_io_file *file = start_file(&fx, &one_page);
    uint8_t *data = page_filled(2 * PAGE);
    for (uint32_t i = 0; i < 2; i++)
        op_set(&fx, &tests[i], file, SC_IO_WRITE, data + i * PAGE, PAGE, i * PAGE);
    atomic_store(&started, 0);
    tests[0].op.is_long = true;
    tests[0].op.done = await_started;
    tests[1].op.start = say_started;
    submit_at_once(&fx, tests, 2);
    wait_done(&fx, 2);
    assert_int_equal(atomic_load(&met), 1);
    for (uint32_t i = 0; i < 2; i++)
        assert_int_equal(tests[i].op.status, SPEC_OK);
    stop_file(&fx, file, data, NULL);
}

/* The most in flight while batches of writes of 64 KiB go out, with a target of 1 MiB; a read may
 * come before the last batch. */
static uint64_t inflight_of_writes(uint32_t batches, bool reads)
{
    enum { OPS = 20 };
    const uint64_t op_bytes = 64 << 10;
    struct fixture fx;
    struct test_op tests[OPS], read;
    struct sc_io_file *file = start_file(&fx, &small_target);
    uint8_t *data = page_memory(op_bytes), *back = page_memory(op_bytes);
    memset(data, 1, op_bytes);
    assert_int_equal(sc_io_file_reserve(fx.io, file, OPS * op_bytes, NULL), SPEC_OK);
    uint32_t done = 0;
    for (uint32_t n = 0; n < batches; n++) {
        if (reads && n + 1 == batches) {
            op_set(&fx, &read, file, SC_IO_READ, back, op_bytes, 0);
            submit_at_once(&fx, &read, 1);
            wait_done(&fx, ++done);
        }
        for (uint32_t i = 0; i < OPS; i++) {
            op_set(&fx, &tests[i], file, SC_IO_WRITE, data, op_bytes, i * op_bytes);
            tests[i].op.io_class = SC_IO_CLASS_WRITER;
        }
        submit_at_once(&fx, tests, OPS);
        wait_done(&fx, done += OPS);
    }
    const uint64_t inflight_bytes = stats_of(&fx).inflight_bytes_max;
    stop_file(&fx, file, data, back);
    return inflight_bytes;
}

/* Batches of 1.25 MiB: in the fourth one, four targets are written. */
static void writes_fill_the_target_when_nobody_reads(void **state)
{
    (void)state;
    assert_int_equal(inflight_of_writes(3, false), MIB / 2);
    assert_int_equal(inflight_of_writes(5, false), MIB);
    assert_int_equal(inflight_of_writes(4, true), MIB / 2);
}

static void flies_less_beside_what_waits_for_its_consumer(void **state)
{
    (void)state;
    const uint64_t op_bytes = 64 << 10;
    assert_int_equal(inflight_beside(SC_IO_CLASS_DEMAND, op_bytes, MIB / 4), MIB);
    assert_int_equal(inflight_beside(SC_IO_CLASS_DEMAND, op_bytes, MIB / 2), MIB / 4 * 3);
    assert_int_equal(inflight_beside(SC_IO_CLASS_DEMAND, op_bytes, MIB / 4 * 3), MIB / 2);
    /* Half of the target flies, whoever is away. */
    assert_int_equal(inflight_beside(SC_IO_CLASS_DEMAND, op_bytes, UINT64_MAX / 2), MIB / 2);
    assert_int_equal(inflight_beside(SC_IO_CLASS_SPECULATIVE, op_bytes, 64 * MIB), MIB / 2);
    /* Writes fill no such buffers. */
    assert_int_equal(inflight_beside(SC_IO_CLASS_WRITER, op_bytes, 64 * MIB), MIB / 2);
    assert_int_equal(inflight_beside(SC_IO_CLASS_BACKGROUND, op_bytes, 64 * MIB), MIB / 4);
}

struct gate {
    struct test_op test;
    pthread_mutex_t lock; /* held by the test until the ring's thread may go on */
};

static void gate_done(struct sc_io_op *op)
{
    struct gate *gate = op->user;
    struct fixture *fx = gate->test.fx;
    (void)pthread_mutex_lock(&gate->lock);
    (void)pthread_mutex_unlock(&gate->lock);
    (void)atomic_fetch_add_explicit(&fx->done_count, 1, memory_order_acq_rel);
    sc_exec_wake(fx->exec, &fx->done_count);
}

/* Writes a page at the gate, then `count` pages in the background, which wait for it. */
static void queue_behind(struct fixture *fx, struct sc_io_file *file, uint8_t *data,
                         struct gate *gate, struct test_op *background, uint32_t count)
{
    (void)pthread_mutex_init(&gate->lock, NULL);
    (void)pthread_mutex_lock(&gate->lock);
    op_set(fx, &gate->test, file, SC_IO_WRITE, data, PAGE, 0);
    gate->test.op.done = gate_done;
    gate->test.op.user = gate;
    submit(fx, &gate->test, 1);
    for (uint32_t i = 0; i < count; i++) {
        op_set(fx, &background[i], file, SC_IO_WRITE, data, PAGE, (1 + i) * PAGE);
        background[i].op.io_class = SC_IO_CLASS_BACKGROUND;
    }
    submit_at_once(fx, background, count);
}

/* The ring's thread is held in a completion until everything is queued. */
static void serves_demand_before_what_was_queued_in_the_background(void **state)
{
    (void)state;
    enum { OPS = 10 };
    struct fixture fx;
    struct test_op background[OPS], demand;
    static struct gate gate;
    struct sc_io_file *file = start_file(&fx, &one_page);
    uint8_t *data = page_memory(PAGE);
    memset(data, 1, PAGE);
    queue_behind(&fx, file, data, &gate, background, OPS);
    op_set(&fx, &demand, file, SC_IO_WRITE, data, PAGE, (1 + OPS) * PAGE);
    submit(&fx, &demand, 1);
    (void)pthread_mutex_unlock(&gate.lock);
    wait_done(&fx, OPS + 2);
    assert_int_equal(demand.order, 0);
    for (uint32_t i = 0; i < OPS; i++)
        assert_int_equal(background[i].order, 1 + i);
    (void)pthread_mutex_destroy(&gate.lock);
    stop_file(&fx, file, data, NULL);
}

/* As above; two of those queued become demand, in the order in which they are named. One that ended
 * long ago is named too. */
static void serves_what_was_raised_before_what_was_not(void **state)
{
    (void)state;
    enum { OPS = 10 };
    struct fixture fx;
    struct test_op background[OPS], ended;
    static struct gate gate;
    struct sc_io_file *file = start_file(&fx, &one_page);
    uint8_t *data = page_memory(PAGE);
    memset(data, 1, PAGE);
    op_set(&fx, &ended, file, SC_IO_WRITE, data, PAGE, 0);
    ended.op.io_class = SC_IO_CLASS_BACKGROUND;
    submit(&fx, &ended, 1);
    wait_done(&fx, 1);
    queue_behind(&fx, file, data, &gate, background, OPS);
    struct sc_io_op *raised[] = {&background[OPS - 1].op, &ended.op, &background[4].op};
    sc_io_raise(fx.io, raised, 3, SC_IO_CLASS_DEMAND);
    (void)pthread_mutex_unlock(&gate.lock);
    wait_done(&fx, OPS + 2);
    assert_int_equal(background[OPS - 1].order, 1);
    assert_int_equal(background[4].order, 2);
    for (uint32_t i = 0, order = 3; i < OPS - 1; i++)
        if (i != 4)
            assert_int_equal(background[i].order, order++);
    (void)pthread_mutex_destroy(&gate.lock);
    stop_file(&fx, file, data, NULL);
}

/* A pipe in place of an open file's descriptor, so that a read of it does not end. */
static void put_in_place_of(struct fixture *fx, const char *name, int end)
{
    for (int fd = 3; fd < 256; fd++) {
        char link[64], target[1100];
        (void)snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
        const ssize_t n = readlink(link, target, sizeof(target) - 1);
        if (n > 0 && strncmp(target, path_of(fx, name), (size_t)n) == 0) {
            assert_int_equal(dup2(end, fd), fd);
            return;
        }
    }
    fail_msg("%s is not open", name);
}

static void looks_at_the_queue_while_an_operation_hangs(void **state)
{
    (void)state;
    struct fixture fx;
    struct test_op tests[2];
    start(&fx, &one_ring);
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    uint8_t byte = 0, *data = page_memory(PAGE);
    memset(data, 1, PAGE);
    struct sc_io_file *file = open_file(&fx, "f", NEW_DIRECT);
    struct sc_io_file *stuck = open_file(&fx, "g", NEW_FILE);
    put_in_place_of(&fx, "g", ends[0]);
    op_set(&fx, &tests[0], stuck, SC_IO_READ, &byte, 1, 0);
    op_set(&fx, &tests[1], file, SC_IO_WRITE, data, PAGE, 0);
    submit_at_once(&fx, tests, 2);
    wait_done(&fx, 1);
    for (uint32_t i = 0; i < 3; i++)
        round_trip(&fx, file, 2 * PAGE); /* while the ring waits for the one that hangs */
    assert_int_equal(atomic_load(&tests[0].done_count), 0);
    assert_int_equal(write(ends[1], "a", 1), 1);
    wait_done(&fx, 8);
    assert_int_equal(tests[0].op.status, SPEC_OK);
    assert_int_equal(byte, 'a');
    sc_io_file_close(fx.io, file);
    sc_io_file_close(fx.io, stuck);
    (void)close(ends[0]);
    (void)close(ends[1]);
    stop(&fx);
    free(data);
}

/* A ring whose thread waits does not hold up what comes: another ring takes it. */
static void serves_by_another_ring_while_one_waits(void **state)
{
    (void)state;
    enum { PARTS = 2 };
    struct fixture fx;
    start(&fx, &two_rings);
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    struct sc_io_file *file = open_file(&fx, "f", NEW_DIRECT);
    struct sc_io_file *stuck = open_file(&fx, "g", NEW_FILE);
    put_in_place_of(&fx, "g", ends[0]);
    uint8_t bytes[PARTS] = {0};
    struct test_op test;
    op_set(&fx, &test, stuck, SC_IO_READ, bytes, PARTS, 0);
    submit(&fx, &test, 1);
    /* Once it is in flight (nothing else shows that it is) the others overtake it. */
    while (stats_of(&fx).inflight_bytes_max == 0)
        ;
    round_trip(&fx, file, 2 * PAGE);
    assert_int_equal(atomic_load(&test.done_count), 0);
    assert_int_equal(write(ends[1], "a", 1), 1); /* short */
    round_trip(&fx, file, 2 * PAGE);
    for (int left = 1; left > 0;) /* else both bytes may be read at once */
        assert_int_equal(ioctl(ends[0], FIONREAD, &left), 0);
    assert_int_equal(write(ends[1], "b", 1), 1);
    wait_done(&fx, 5);
    assert_int_equal(test.op.status, SPEC_OK);
    assert_memory_equal(bytes, "ab", 2);
    assert_int_equal(stats_of(&fx).short_ops, 1);
    sc_io_file_close(fx.io, file);
    sc_io_file_close(fx.io, stuck);
    (void)close(ends[0]);
    (void)close(ends[1]);
    stop(&fx);
}

/* ---- What the kernel may say ---------------------------------------------------------------- */

static void continues_short_transfers(void **state)
{
    (void)state;
    struct fixture fx;
    start(&fx, &one_ring);
    struct sc_io_file *direct = open_file(&fx, "f", NEW_DIRECT);
    struct sc_io_file *buffered = open_file(&fx, "g", NEW_FILE);
    behave.entries = 0; /* open tried one */
    behave.bytes_max = 3 * PAGE;
    round_trip(&fx, direct, 10 * PAGE);
    assert_int_equal(behave.shortened, 2 * 3);
    behave.bytes_max = 5000;
    round_trip(&fx, buffered, 3 * PAGE);
    assert_int_equal(behave.shortened, 2 * 3 + 2 * 2);
    const struct sc_io_counts stats = stats_of(&fx);
    assert_int_equal(stats.short_ops, 10);
    assert_int_equal(stats.ops, 4);
    assert_int_equal(behave.entries, 4 + 10);
    sc_io_file_close(fx.io, direct);
    sc_io_file_close(fx.io, buffered);
    stop(&fx);
}

static void fails_a_read_whose_file_was_cut_meanwhile(void **state)
{
    (void)state;
    struct fixture fx;
    struct sc_io_file *file = start_file(&fx, &one_ring);
    uint8_t *data = page_filled(8 * PAGE);
    (void)lines_with(&fx, "buffered"); /* there is no O_DIRECT here at all */
    assert_int_equal(transfer(&fx, file, SC_IO_WRITE, data, 8 * PAGE, 0), SPEC_OK);
    static const uint64_t sizes[] = {5 * PAGE, 5 * PAGE + 512, 5 * PAGE + 100, 0};
    for (uint32_t i = 0; i < 4; i++) {
        assert_int_equal(sc_io_file_truncate(fx.io, file, sizes[i], NULL), SPEC_OK);
        assert_int_equal(transfer(&fx, file, SC_IO_READ, data, 8 * PAGE, 0), SPEC_E_IO);
    }
    round_trip(&fx, file, 8 * PAGE);
    assert_int_equal(lines_with(&fx, "buffered"), 0); /* an end is no reason to leave O_DIRECT */
    stop_file(&fx, file, data, NULL);
}

static void repeats_what_was_interrupted(void **state)
{
    (void)state;
    static const int32_t results[] = {-EINTR, -EAGAIN};
    static const int errors[] = {EINTR, EAGAIN, EBUSY, ENOMEM};
    struct fixture fx;
    struct sc_io_file *file = start_file(&fx, &one_ring);
    for (uint32_t i = 0; i < 2; i++) {
        behave.result = results[i];
        behave.results = 5;
        round_trip(&fx, file, 2 * PAGE);
        assert_int_equal(behave.changed, 5 * (i + 1));
    }
    for (uint32_t i = 0; i < 4; i++) {
        behave.enter_error = errors[i];
        behave.enter_errors = 3;
        round_trip(&fx, file, 2 * PAGE);
        assert_int_equal(behave.failed, 3 * (i + 1));
    }
    behave.empties = 2;
    round_trip(&fx, file, 2 * PAGE);
    assert_int_equal(behave.empties, 0);
    assert_int_equal(stats_of(&fx).ops, 14);
    stop_file(&fx, file, NULL, NULL);
}

static void reports_what_the_kernel_reports(void **state)
{
    (void)state;
    static const struct {
        int32_t result;
        uint32_t results;
        spec_status status;
        int32_t sys_errno;
    } cases[] = {{-EIO, 1, SPEC_E_IO, EIO},
                 {-ENOSPC, 1, SPEC_E_NO_SPACE, ENOSPC},
                 {-EAGAIN, 100, SPEC_E_IO, EAGAIN}, /* for ever */
                 {0, 1, SPEC_E_IO, EIO}};
    struct fixture fx;
    struct sc_io_file *file = start_file(&fx, &one_ring);
    uint8_t *data = page_memory(PAGE);
    memset(data, 1, PAGE);
    for (uint32_t i = 0; i < 4; i++) {
        struct test_op test;
        behave.result = cases[i].result;
        behave.results = cases[i].results;
        op_set(&fx, &test, file, SC_IO_WRITE, data, PAGE, 0);
        submit(&fx, &test, 1);
        wait_done(&fx, i + 1);
        behave.results = 0;
        assert_int_equal(test.op.status, cases[i].status);
        assert_int_equal(test.op.sys_errno, cases[i].sys_errno);
    }
    stop_file(&fx, file, data, NULL);
}

static void goes_buffered_where_a_transfer_refuses_direct(void **state)
{
    (void)state;
    enum { OPS = 8 };
    struct fixture fx;
    struct test_op tests[OPS];
    struct sc_io_file *file = start_file(&fx, &one_ring);
    uint8_t *data = page_filled(OPS * PAGE);
    const uint32_t said = lines_with(&fx, "buffered"); /* no O_DIRECT here at all */
    behave.result = -EINVAL;
    behave.results = said > 0 ? 0 : OPS / 2; /* as many as the first enter waits for */
    for (uint32_t i = 0; i < OPS; i++)
        op_set(&fx, &tests[i], file, SC_IO_WRITE, data + i * PAGE, PAGE, i * PAGE);
    submit_at_once(&fx, tests, OPS);
    wait_done(&fx, OPS);
    for (uint32_t i = 0; i < OPS; i++)
        assert_int_equal(tests[i].op.status, SPEC_OK);
    assert_int_equal(lines_with(&fx, "buffered"), said > 0 ? 0 : 1);
    behave.result = -EINVAL;
    behave.results = 1; /* a buffered file has no such way out */
    assert_int_equal(transfer(&fx, file, SC_IO_READ, data, PAGE, 0), SPEC_E_IO);
    round_trip(&fx, file, 3 * PAGE);
    stop_file(&fx, file, data, NULL);
}

static void ignores_completions_that_match_nothing_in_flight(void **state)
{
    (void)state;
    enum { OPS = 40 };
    struct fixture fx;
    struct test_op tests[OPS];
    struct sc_io_file *file = start_file(&fx, &small_target);
    uint8_t *data = page_filled(OPS * PAGE), *back = page_memory(OPS * PAGE);
    round_trip(&fx, file, 4 * PAGE);
    behave.stray_data[0] = behave.last_data; /* an earlier operation of a slot that is used again */
    behave.stray_data[1] = UINT64_MAX;       /* no slot */
    for (uint32_t pass = 0; pass < 2; pass++) {
        behave.strays = 20;
        for (uint32_t i = 0; i < OPS; i++) {
            uint8_t *buffer = (pass == 0 ? data : back) + i * PAGE;
            op_set(&fx, &tests[i], file, pass == 0 ? SC_IO_WRITE : SC_IO_READ, buffer, PAGE,
                   i * PAGE);
        }
        for (uint32_t i = 0; i < OPS; i++) {
            const uint32_t done = atomic_load(&fx.done_count);
            submit(&fx, &tests[i], 1);
            wait_done(&fx, done + 1);
        }
        for (uint32_t i = 0; i < OPS; i++) {
            assert_int_equal(atomic_load(&tests[i].done_count), 1);
            assert_int_equal(tests[i].op.status, SPEC_OK);
        }
    }
    assert_memory_equal(back, data, OPS * PAGE);
    assert_int_equal(behave.strayed, 40);
    assert_int_equal(stats_of(&fx).late, 40);
    stop_file(&fx, file, data, back);
}

/* A filter set after open, say: the thread does the work without the ring. */
static void goes_on_with_blocking_calls_when_enter_is_forbidden(void **state)
{
    (void)state;
    enum { OPS = 30 };
    struct fixture fx;
    struct test_op tests[OPS];
    struct sc_io_file *file = start_file(&fx, &two_rings);
    uint8_t *data = page_filled(OPS * PAGE), *back = page_memory(OPS * PAGE);
    round_trip(&fx, file, PAGE);
    behave.enter_error = EPERM;
    behave.enter_errors = UINT32_MAX;
    for (uint32_t pass = 0; pass < 2; pass++) {
        for (uint32_t i = 0; i < OPS; i++)
            op_set(&fx, &tests[i], file, pass == 0 ? SC_IO_WRITE : SC_IO_READ,
                   (pass == 0 ? data : back) + i * PAGE, PAGE, i * PAGE);
        submit_at_once(&fx, tests, OPS);
        wait_done(&fx, 2 + (pass + 1) * OPS);
        for (uint32_t i = 0; i < OPS; i++) {
            assert_int_equal(atomic_load(&tests[i].done_count), 1);
            assert_int_equal(tests[i].op.status, SPEC_OK);
        }
    }
    assert_memory_equal(back, data, OPS * PAGE);
    assert_int_equal(transfer(&fx, file, SC_IO_READ, back, PAGE, 1000 * PAGE), SPEC_E_IO);
    assert_true(behave.failed >= 1 && behave.failed <= 2); /* a ring asks once */
    assert_int_equal(lines_with(&fx, "going on with blocking calls"), 1);
    stop_file(&fx, file, data, back);
}

/* ---- Registration --------------------------------------------------------------------------- */

static void registers_direct_files_and_does_without_beyond_the_table(void **state)
{
    (void)state;
    enum { FILES = 7 }; /* the fixture reserves four */
    struct fixture fx;
    start(&fx, &one_ring);
    for (uint32_t pass = 0; pass < 3; pass++) { /* places are used again */
        struct sc_io_file *files[FILES];
        for (uint32_t i = 0; i < FILES; i++) {
            char name[8];
            (void)snprintf(name, sizeof(name), "f%u", i);
            files[i] = open_file(&fx, name, i == 0 ? NEW_FILE : NEW_DIRECT);
        }
        behave.entries = behave.fixed_files = 0;
        for (uint32_t i = 0; i < FILES; i++)
            round_trip(&fx, files[i], (1 + i) * PAGE);
        assert_int_equal(behave.entries, 2 * FILES);
        assert_int_equal(behave.fixed_files, 2 * 4);
        for (uint32_t i = 0; i < FILES; i++)
            sc_io_file_close(fx.io, files[i]);
    }
    stop(&fx);

    memset(&behave, 0, sizeof(behave));
    behave.files_error = EMFILE;
    fixture_init(&fx, &one_ring, 1, 0, 0);
    assert_int_equal(lines_with(&fx, "files are not registered"), 1);
    struct sc_io_file *file = open_file(&fx, "f", NEW_DIRECT);
    round_trip(&fx, file, 2 * PAGE);
    assert_true(behave.entries > 0);
    assert_int_equal(behave.fixed_files, 0);
    stop_file(&fx, file, NULL, NULL);
}

/* A registered file that was closed is held by nothing: its space comes back. */
static void lets_go_of_a_file_that_was_closed(void **state)
{
    (void)state;
    struct fixture fx;
    start(&fx, &two_rings);
    struct sc_io_file *file = open_file(&fx, "lock", NEW_DIRECT);
    round_trip(&fx, file, PAGE);
    assert_int_equal(sc_io_file_lock(fx.io, file, NULL), SPEC_OK);
    const int fd = open(path_of(&fx, "lock"), O_RDWR);
    assert_true(fd >= 0);
    struct flock range = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    assert_int_equal(fcntl(fd, F_OFD_SETLK, &range), -1);
    sc_io_file_close(fx.io, file);
    /* The lock goes with the last reference to the open file; some kernels drop theirs later. */
    uint32_t looks = 0;
    while (fcntl(fd, F_OFD_SETLK, &range) != 0)
        await_or_fail(&looks, "the closed file's lock is free");
    (void)close(fd);
    stop(&fx);
}

/* Reads the pages of a region one by one, through its slices. */
static void read_region(struct fixture *fx, struct sc_io_file *file, uint8_t *memory,
                        uint64_t bytes, uint32_t rounds)
{
    for (uint32_t round = 0; round < rounds; round++)
        for (uint64_t at = 0; at < bytes; at += 16 * PAGE) {
            memory[at] = 0xee;
            assert_int_equal(transfer(fx, file, SC_IO_READ, memory + at, PAGE, 0), SPEC_OK);
            assert_int_equal(memory[at], 7);
        }
}

/* Others of the same user may have pinned as much. */
static bool may_pin(uint64_t bytes)
{
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct has[2] = {{0}, {0}};
    struct rlimit limit;
    return (syscall(SYS_capget, &head, has) == 0 && (has[0].effective >> CAP_IPC_LOCK & 1) != 0) ||
           (getrlimit(RLIMIT_MEMLOCK, &limit) == 0 && limit.rlim_cur / 4 >= bytes);
}

static void registers_staging_memory_as_it_is_used(void **state)
{
    (void)state;
    const uint64_t bytes = 40 * MIB;
    struct fixture fx;
    if (!may_pin(bytes)) {
        print_message("skipped: RLIMIT_MEMLOCK is less than what is pinned here\n");
        skip();
    }
    start(&fx, &one_ring);
    uint8_t *memory = page_memory(bytes), *other = page_memory(PAGE);
    memset(other, 7, PAGE);
    struct sc_io_file *file = open_file(&fx, "f", NEW_DIRECT);
    assert_int_equal(transfer(&fx, file, SC_IO_WRITE, other, PAGE, 0), SPEC_OK);
    sc_io_buffers(fx.io, memory, bytes, MIB);
    behave.entries = behave.fixed_buffers = 0;
    read_region(&fx, file, memory, bytes, 1);
    assert_int_equal(behave.entries, bytes / (16 * PAGE));
    /* Three slices, each pinned when the ring rests, or after 64 plain operations. */
    assert_true(behave.fixed_buffers >= behave.entries - 3 * 65);
    behave.entries = behave.fixed_buffers = 0;
    read_region(&fx, file, memory, bytes, 1);
    assert_int_equal(behave.fixed_buffers, behave.entries);
    /* Beside the region, and across the border of two slices (which its owner does not do). */
    assert_int_equal(transfer(&fx, file, SC_IO_READ, other, PAGE, 0), SPEC_OK);
    assert_int_equal(other[PAGE - 1], 7);
    assert_int_equal(transfer(&fx, file, SC_IO_WRITE, memory + 16 * MIB - PAGE, 2 * PAGE, PAGE),
                     SPEC_OK);
    assert_int_equal(behave.fixed_buffers, behave.entries - 2);
    sc_io_buffers(fx.io, NULL, 0, 0);
    behave.entries = behave.fixed_buffers = 0;
    read_region(&fx, file, memory, bytes, 1);
    assert_int_equal(behave.fixed_buffers, 0);
    stop_file(&fx, file, memory, other);
}

static void does_without_registered_memory(void **state)
{
    (void)state;
    const uint64_t bytes = 20 * MIB;
    struct fixture fx;
    start(&fx, &two_rings);
    behave.buffers_error = ENOMEM;
    uint8_t *memory = page_memory(bytes);
    memset(memory, 7, PAGE);
    struct sc_io_file *file = open_file(&fx, "f", NEW_DIRECT);
    sc_io_buffers(fx.io, memory, bytes, MIB);
    assert_int_equal(transfer(&fx, file, SC_IO_WRITE, memory, PAGE, 0), SPEC_OK);
    read_region(&fx, file, memory, bytes, 2);
    assert_int_equal(behave.fixed_buffers, 0);
    assert_int_equal(lines_with(&fx, "staging memory is not registered"), 1);
    stop_file(&fx, file, memory, NULL);
}

/* ---- In a child, because limits and filters stay -------------------------------------------- */

static int in_child(int (*body)(void))
{
    (void)fflush(NULL);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0)
        _exit(body());
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 100 + WTERMSIG(status);
}

/* Enough for a ring, not for a slice of the staging memory. Others of the same user count too. */
static int read_with_little_memlock(void)
{
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct none[2] = {{0}, {0}};
    const uint64_t bytes = 96 * MIB;
    struct rlimit limit;
    if (getrlimit(RLIMIT_MEMLOCK, &limit) != 0)
        return 1;
    limit.rlim_cur = limit.rlim_cur < bytes / 2 ? limit.rlim_cur : bytes / 2;
    limit.rlim_max = limit.rlim_cur;
    if (setrlimit(RLIMIT_MEMLOCK, &limit) != 0)
        return 1;
    struct fixture fx;
    start(&fx, &one_ring); /* its directory may need the capabilities */
    uint8_t *memory = page_memory(bytes);
    memset(memory, 7, PAGE);
    struct sc_io_file *file = open_file(&fx, "f", NEW_DIRECT);
    sc_io_file_close(fx.io, file);
    sc_io_close(fx.io);
    if (syscall(SYS_capset, &head, none) != 0)
        return 2;
    sc_exec_close(fx.exec); /* threads made before keep theirs */
    const struct sc_exec_params exec = {.alloc = &fx.alloc, .thread_count = 1, .name = "test"};
    if (sc_exec_open(&exec, &fx.exec, NULL) != SPEC_OK)
        return 3;
    fixture_io_open(&fx, &fx.io);
    file = open_file(&fx, "f", SC_IO_OPEN_WRITE | SC_IO_OPEN_DIRECT);
    sc_io_buffers(fx.io, memory, bytes, bytes); /* one slice */
    for (uint32_t i = 0; i < 4; i++)
        round_trip(&fx, file, 2 * PAGE);
    if (transfer(&fx, file, SC_IO_WRITE, memory, PAGE, 0) != SPEC_OK)
        return 4;
    read_region(&fx, file, memory, 2 * MIB, 2);
    const uint32_t said = lines_with(&fx, "staging memory is not registered");
    const bool is_fixed = behave.fixed_buffers > 0;
    stop_file(&fx, file, memory, NULL);
    return said == 1 && !is_fixed ? 0 : 5;
}

static void works_with_little_memlock(void **state)
{
    (void)state;
    assert_int_equal(in_child(read_with_little_memlock), 0);
}

static bool forbid_io_uring(void)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (uint32_t)offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_io_uring_setup, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const struct sock_fprog program = {.len = 4, .filter = filter};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

/* What every refusal must lead to. 0, or which expectation failed. */
static int falls_back(const char *reason)
{
    struct spec_error error = {.struct_size = sizeof(error)};
    struct fixture fx;
    fixture_init(&fx, &automatic, 1, 0, 0);
    if (strcmp(sc_io_name(fx.io), "pread") != 0)
        return 2;
    if (lines_with(&fx, "i/o back end pread: ") != 1 || strstr(lines[0], reason) == NULL)
        return 3;
    struct sc_io_file *file = open_file(&fx, "f", NEW_DIRECT);
    round_trip(&fx, file, 3 * PAGE);
    sc_io_file_close(fx.io, file);
    const uint64_t live = atomic_load(&fx.alloc.live_blocks);
    struct sc_io *io = NULL;
    const struct sc_io_params params = {
        .alloc = &fx.alloc, .exec = fx.exec, .log = &fx.log, .backend = SC_BACKEND_URING};
    if (sc_io_open(&params, &io, &error) != SPEC_E_UNSUPPORTED || io != NULL)
        return 4;
    if (strstr(error.text, reason) == NULL || atomic_load(&fx.alloc.live_blocks) != live)
        return 5;
    fixture_done(&fx);
    return 0;
}

static int open_under_a_filter(void)
{
    return forbid_io_uring() ? falls_back("io_uring_setup (kernel.io_uring_disabled, or a seccomp")
                             : 1;
}

static void falls_back_to_pread_where_io_uring_is_forbidden(void **state)
{
    (void)state;
    assert_int_equal(in_child(open_under_a_filter), 0);
}

static void falls_back_to_pread_where_io_uring_does_not_do(void **state)
{
    (void)state;
    memset(&behave, 0, sizeof(behave));
    behave.setup_error = ENOSYS;
    assert_int_equal(falls_back("io_uring_setup: Function not implemented"), 0);
    behave.setup_error = ENOMEM;
    assert_int_equal(falls_back("RLIMIT_MEMLOCK"), 0);
    behave.setup_error = 0;
    behave.lacks_reads = true;
    assert_int_equal(falls_back("is not supported"), 0);
    behave.lacks_reads = false;
    behave.result = -EOPNOTSUPP;
    behave.results = UINT32_MAX; /* the read that is tried at open */
    assert_int_equal(falls_back("a read by io_uring: Operation not supported"), 0);
    behave.results = 0;
    behave.empties = 3; /* a signal while the read that is tried flies is no reason */
    struct fixture fx;
    fixture_init(&fx, &automatic, 1, 0, 0);
    assert_int_equal(behave.empties, 0);
    assert_string_equal(sc_io_name(fx.io), "io_uring");
    assert_int_equal(lines_with(&fx, "i/o back end io_uring"), 1);
    stop(&fx);
}

/* Files may not grow, with the default of the signal that says so. */
static int open_where_nothing_may_be_written(void)
{
    const struct rlimit limit = {.rlim_cur = 0, .rlim_max = RLIM_INFINITY};
    const struct rlimit none = {.rlim_cur = RLIM_INFINITY, .rlim_max = RLIM_INFINITY};
    struct fixture fx;
    fixture_init(&fx, &one_ring, 1, 0, 0); /* makes the directory */
    sc_io_close(fx.io);
    if (signal(SIGXFSZ, SIG_DFL) == SIG_ERR || setrlimit(RLIMIT_FSIZE, &limit) != 0)
        return 1;
    struct spec_error error = {.struct_size = sizeof(error)};
    struct sc_io_params params = {
        .alloc = &fx.alloc, .exec = fx.exec, .log = &fx.log, .backend = SC_BACKEND_URING};
    if (sc_io_open(&params, &fx.io, &error) != SPEC_E_UNSUPPORTED)
        return 2;
    if (error.sys_errno != EFBIG || strstr(error.text, "RLIMIT_FSIZE") == NULL)
        return 3;
    params.backend = SC_BACKEND_AUTO;
    if (sc_io_open(&params, &fx.io, NULL) != SPEC_OK || strcmp(sc_io_name(fx.io), "pread") != 0)
        return 4;
    if (setrlimit(RLIMIT_FSIZE, &none) != 0)
        return 5;
    fixture_done(&fx);
    return 0;
}

static void falls_back_to_pread_where_nothing_may_be_written(void **state)
{
    (void)state;
    assert_int_equal(in_child(open_where_nothing_may_be_written), 0);
}

static struct fixture forked;

static int close_in_child(void)
{
    uint32_t rings = 0;
    sc_io_fork_close(forked.io);
    for (int fd = 0; fd < 256; fd++) {
        char name[64], target[64] = "";
        (void)snprintf(name, sizeof(name), "/proc/self/fd/%d", fd);
        if (readlink(name, target, sizeof(target) - 1) > 0)
            rings += strcmp(target, "anon_inode:[io_uring]") == 0;
    }
    sc_io_buffers(forked.io, NULL, 0, 0);
    sc_io_close(forked.io); /* frees memory; there are no threads and no rings here */
    return rings == 0 ? 0 : 1;
}

static void leaves_the_parents_rings_alone_in_a_forked_child(void **state)
{
    (void)state;
    start(&forked, &two_rings);
    assert_int_equal(in_child(close_in_child), 0);
    struct sc_io_file *file = open_file(&forked, "f", NEW_DIRECT);
    round_trip(&forked, file, 5 * PAGE);
    sc_io_file_close(forked.io, file);
    stop(&forked);
}

/* ---- Many threads --------------------------------------------------------------------------- */

struct swimmer {
    struct fixture *fx;
    struct sc_io_file *file;
    uint64_t seed;
    uint8_t *memory; /* of its own part of the file, written before */
    uint64_t base;
    struct test_op tests[8];
    _Atomic uint32_t done_count;
};

enum { SWIMMERS = 4, PART = 64 * PAGE };

static void swimmer_done(struct sc_io_op *op)
{
    struct swimmer *swimmer = op->user;
    struct sc_exec *exec = swimmer->fx->exec;
    (void)atomic_fetch_add_explicit(&swimmer->done_count, 1, memory_order_acq_rel);
    sc_exec_wake(exec, &swimmer->done_count);
}

/* Nobody wants it any more. */
static bool swimmer_leaves(struct sc_io_op *op)
{
    (void)op;
    return false;
}

static void *swim(void *argument)
{
    struct swimmer *swimmer = argument;
    struct fixture *fx = swimmer->fx;
    uint64_t random = swimmer->seed;
    uint8_t *back = page_memory(8 * 8 * PAGE);
    for (uint32_t round = 0; round < 60; round++) {
        const uint32_t count = 1 + (uint32_t)random_below(&random, 8);
        const uint32_t before = atomic_load(&swimmer->done_count);
        for (uint32_t i = 0; i < count; i++) {
            const uint64_t pages = 1 + random_below(&random, 8);
            const uint64_t at = random_below(&random, 64 - pages + 1) * PAGE;
            op_set(fx, &swimmer->tests[i], swimmer->file, SC_IO_READ, back + i * 8 * PAGE,
                   pages * PAGE, swimmer->base + at);
            swimmer->tests[i].op.io_class = (uint32_t)random_below(&random, SC_IO_CLASSES);
            swimmer->tests[i].op.done = swimmer_done;
            swimmer->tests[i].op.user = swimmer;
            swimmer->tests[i].op.is_long = random_below(&random, 2) == 0;
            swimmer->tests[i].op.start = random_below(&random, 4) == 0 ? swimmer_leaves : NULL;
        }
        submit_at_once(fx, swimmer->tests, count);
        for (uint32_t now; (now = atomic_load(&swimmer->done_count)) < before + count;)
            (void)sc_exec_wait(fx->exec, &swimmer->done_count, now, SC_EXEC_FOREVER);
        for (uint32_t i = 0; i < count; i++) {
            const struct test_op *test = &swimmer->tests[i];
            if (test->op.start != NULL && test->op.status == SPEC_E_DROPPED)
                continue;
            if (test->op.start != NULL || test->op.status != SPEC_OK ||
                memcmp(test->op.buffer, swimmer->memory + (test->op.offset - swimmer->base),
                       (size_t)test->op.bytes) != 0)
                return swimmer; /* wrong */
        }
    }
    free(back);
    return NULL;
}

/* enter_error: what enter says to each ring for a while, once they are under way; 0: nothing. */
static void serve_swimmers(int enter_error, uint32_t enter_errors)
{
    struct fixture fx;
    const struct setup setup = {.name = "busy",
                                .backend = SC_BACKEND_URING,
                                .thread_count = 1,
                                .ring_count = 3,
                                .in_flight_bytes = 16 * PAGE};
    static struct swimmer swimmers[SWIMMERS];
    pthread_t threads[SWIMMERS];
    struct sc_io_file *file = start_file(&fx, &setup);
    for (uint32_t i = 0; i < SWIMMERS; i++) {
        swimmers[i] = (struct swimmer){.fx = &fx,
                                       .file = file,
                                       .seed = i,
                                       .memory = page_memory(PART),
                                       .base = (uint64_t)i * PART};
        fill(swimmers[i].memory, PART, i);
        assert_int_equal(
            transfer(&fx, file, SC_IO_WRITE, swimmers[i].memory, PART, swimmers[i].base), SPEC_OK);
    }
    for (uint32_t i = 0; i < SWIMMERS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, swim, &swimmers[i]), 0);
    for (uint32_t now; (now = atomic_load(&swimmers[0].done_count)) < 20;)
        (void)sc_exec_wait(fx.exec, &swimmers[0].done_count, now, SC_EXEC_FOREVER);
    (void)pthread_mutex_lock(&behave_lock);
    behave.enter_error = enter_error;
    behave.enter_errors = enter_errors;
    (void)pthread_mutex_unlock(&behave_lock);
    for (uint32_t i = 0; i < SWIMMERS; i++) {
        void *result = &fx;
        assert_int_equal(pthread_join(threads[i], &result), 0);
        assert_null(result);
    }
    assert_true(stats_of(&fx).inflight_bytes_max <= PART);
    sc_io_file_close(fx.io, file);
    stop(&fx);
    for (uint32_t i = 0; i < SWIMMERS; i++)
        free(swimmers[i].memory);
}

static void serves_many_submitters_at_once(void **state)
{
    (void)state;
    serve_swimmers(0, 0);
}

static void serves_many_submitters_while_enter_fails(void **state)
{
    (void)state;
    serve_swimmers(EAGAIN, 50);
    serve_swimmers(EPERM, UINT32_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(enters_twice_for_a_batch_that_fills_the_target),
        cmocka_unit_test(keeps_each_lane_in_its_share_of_the_target),
        cmocka_unit_test(gives_the_device_what_waits_before_a_long_done),
        cmocka_unit_test(writes_fill_the_target_when_nobody_reads),
        cmocka_unit_test(flies_less_beside_what_waits_for_its_consumer),
        cmocka_unit_test(serves_demand_before_what_was_queued_in_the_background),
        cmocka_unit_test(serves_what_was_raised_before_what_was_not),
        cmocka_unit_test(serves_by_another_ring_while_one_waits),
        cmocka_unit_test(looks_at_the_queue_while_an_operation_hangs),
        cmocka_unit_test(continues_short_transfers),
        cmocka_unit_test(fails_a_read_whose_file_was_cut_meanwhile),
        cmocka_unit_test(repeats_what_was_interrupted),
        cmocka_unit_test(reports_what_the_kernel_reports),
        cmocka_unit_test(goes_buffered_where_a_transfer_refuses_direct),
        cmocka_unit_test(ignores_completions_that_match_nothing_in_flight),
        cmocka_unit_test(goes_on_with_blocking_calls_when_enter_is_forbidden),
        cmocka_unit_test(registers_direct_files_and_does_without_beyond_the_table),
        cmocka_unit_test(lets_go_of_a_file_that_was_closed),
        cmocka_unit_test(registers_staging_memory_as_it_is_used),
        cmocka_unit_test(does_without_registered_memory),
        cmocka_unit_test(works_with_little_memlock),
        cmocka_unit_test(falls_back_to_pread_where_io_uring_is_forbidden),
        cmocka_unit_test(falls_back_to_pread_where_io_uring_does_not_do),
        cmocka_unit_test(falls_back_to_pread_where_nothing_may_be_written),
        cmocka_unit_test(leaves_the_parents_rings_alone_in_a_forked_child),
        cmocka_unit_test(serves_many_submitters_at_once),
        cmocka_unit_test(serves_many_submitters_while_enter_fails),
    };
    const char *refusal = uring_refusal();
    if (refusal != NULL) {
        print_message("skipped: no io_uring here: %s\n", refusal);
        return 0;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
