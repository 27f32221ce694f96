/* store/io/io.h: one body over every back end and every way to drive it.
 *
 * Holds: each test starts from an empty directory (or disk) and leaves nothing allocated.
 * Threads: as the setup says. */
#include "tests/unit/store/io_fixture.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

static const struct setup setups[] = {
    {.name = "pread/threads", .backend = SC_BACKEND_PREAD, .thread_count = 2},
    {.name = "pread/loop",
     .backend = SC_BACKEND_AUTO,
     .thread_count = 0}, /* the loop has no io_uring */
    {.name = "sim/threads", .backend = SC_BACKEND_SIM, .thread_count = 2},
    {.name = "sim/loop", .backend = SC_BACKEND_SIM, .thread_count = 0},
    {.name = "io_uring", .backend = SC_BACKEND_URING, .thread_count = 2},
    {.name = "io_uring/one ring, small target",
     .backend = SC_BACKEND_URING,
     .thread_count = 2,
     .ring_count = 1,
     .in_flight_bytes = 3 * PAGE},
};
#define SETUPS (sizeof(setups) / sizeof(setups[0]))

static int begin(void **state)
{
    const struct setup *setup = *state;
    struct fixture *fx = malloc(sizeof(*fx));
    assert_non_null(fx);
    fixture_init(fx, setup, 1, 1, 64u << 20);
    *state = fx;
    return 0;
}

static int end(void **state)
{
    struct fixture *fx = *state;
    fixture_done(fx);
    free(fx);
    return 0;
}

static void names_the_back_end(void **state)
{
    const struct fixture *fx = *state;
    const char *name = fx->setup->backend == SC_BACKEND_SIM     ? "sim"
                       : fx->setup->backend == SC_BACKEND_URING ? "io_uring"
                                                                : "pread";
    assert_string_equal(sc_io_name(fx->io), name);
    assert_int_equal(sc_io_is_shallow(fx->io), strcmp(name, "pread") == 0);
}

static void reads_back_what_was_written(void **state)
{
    struct fixture *fx = *state;
    const uint64_t bytes = 24 * PAGE;
    uint8_t *data = page_memory(bytes), *back = page_memory(bytes);
    fill(data, bytes, 1);
    struct sc_io_file *file = open_file(fx, "f", NEW_DIRECT);
    assert_int_equal(sc_io_file_reserve(fx->io, file, bytes, NULL), SPEC_OK);
    /* Out of order: the last third, the first, the middle. */
    static const uint64_t thirds[] = {2, 0, 1};
    for (uint32_t i = 0; i < 3; i++)
        assert_int_equal(transfer(fx, file, SC_IO_WRITE, data + thirds[i] * 8 * PAGE, 8 * PAGE,
                                  thirds[i] * 8 * PAGE),
                         SPEC_OK);
    for (uint64_t at = 0; at < bytes; at += 6 * PAGE) {
        memset(back, 0xee, (size_t)bytes);
        assert_int_equal(transfer(fx, file, SC_IO_READ, back, 6 * PAGE, at), SPEC_OK);
        assert_memory_equal(back, data + at, 6 * PAGE);
        assert_int_equal(back[6 * PAGE], 0xee); /* and not a byte more */
    }
    uint64_t size = 0;
    assert_int_equal(sc_io_file_size(fx->io, file, &size, NULL), SPEC_OK);
    assert_int_equal(size, bytes);
    sc_io_file_close(fx->io, file);
    free(data);
    free(back);
}

static void reads_back_after_reopening(void **state)
{
    struct fixture *fx = *state;
    uint8_t data[1000], back[1000];
    fill(data, sizeof(data), 2);
    struct sc_io_file *file = open_file(fx, "log", NEW_FILE);
    assert_int_equal(sc_io_file_pwrite(fx->io, file, data, 600, 0, NULL), SPEC_OK);
    assert_int_equal(sc_io_file_pwrite(fx->io, file, data + 600, 400, 600, NULL), SPEC_OK);
    assert_int_equal(sc_io_file_sync(fx->io, file, NULL), SPEC_OK);
    sc_io_file_close(fx->io, file);
    sc_io_close(fx->io);
    fixture_io_open(fx, &fx->io);
    file = open_file(fx, "log", 0);
    assert_int_equal(sc_io_file_pread(fx->io, file, back, sizeof(back), 0, NULL), SPEC_OK);
    assert_memory_equal(back, data, sizeof(data));
    /* An odd range. */
    assert_int_equal(sc_io_file_pread(fx->io, file, back, 7, 595, NULL), SPEC_OK);
    assert_memory_equal(back, data + 595, 7);
    /* Opened for reading only. */
    assert_int_equal(sc_io_file_pwrite(fx->io, file, data, 1, 0, NULL), SPEC_E_IO);
    sc_io_file_close(fx->io, file);
}

static void refuses_what_is_not_aligned_in_a_direct_file(void **state)
{
    struct fixture *fx = *state;
    uint8_t *memory = page_memory(4 * PAGE);
    memset(memory, 1, 4 * PAGE);
    struct sc_io_file *file = open_file(fx, "f", NEW_DIRECT);
    assert_int_equal(transfer(fx, file, SC_IO_WRITE, memory, PAGE, 0), SPEC_OK);
    memset(memory, 2, 4 * PAGE);
    assert_int_equal(transfer(fx, file, SC_IO_WRITE, memory, PAGE, 1), SPEC_E_INVALID);
    assert_int_equal(transfer(fx, file, SC_IO_WRITE, memory, PAGE - 1, 0), SPEC_E_INVALID);
    assert_int_equal(transfer(fx, file, SC_IO_WRITE, memory + 8, PAGE, 0), SPEC_E_INVALID);
    assert_int_equal(transfer(fx, file, SC_IO_WRITE, memory, 0, 0), SPEC_E_INVALID);
    assert_int_equal(transfer(fx, file, SC_IO_READ, memory, PAGE, INT64_MAX / PAGE * PAGE),
                     SPEC_E_INVALID);
    assert_int_equal(sc_io_file_pwrite(fx->io, file, memory, 3, 0, NULL), SPEC_E_INVALID);
    memset(memory, 3, 4 * PAGE);
    assert_int_equal(transfer(fx, file, SC_IO_READ, memory, PAGE, 0), SPEC_OK);
    for (uint32_t i = 0; i < PAGE; i++)
        assert_int_equal(memory[i], 1); /* nothing of the refused ones was written */
    sc_io_file_close(fx->io, file);
    free(memory);
}

static void fails_a_read_past_the_end(void **state)
{
    struct fixture *fx = *state;
    struct spec_error error = {.struct_size = sizeof(error)};
    uint8_t *memory = page_memory(4 * PAGE);
    memset(memory, 1, 4 * PAGE);
    struct sc_io_file *file = open_file(fx, "f", NEW_DIRECT);
    assert_int_equal(transfer(fx, file, SC_IO_WRITE, memory, 2 * PAGE, 0), SPEC_OK);
    struct test_op test;
    op_set(fx, &test, file, SC_IO_READ, memory, 2 * PAGE, PAGE); /* the half is there */
    submit(fx, &test, 1);
    wait_done(fx, 2);
    assert_int_equal(test.op.status, SPEC_E_IO);
    assert_int_equal(test.op.sys_errno, EIO);
    assert_int_equal(transfer(fx, file, SC_IO_READ, memory, PAGE, 100 * PAGE), SPEC_E_IO);
    sc_io_file_close(fx->io, file);

    file = open_file(fx, "log", NEW_FILE);
    assert_int_equal(sc_io_file_pwrite(fx->io, file, memory, 10, 0, NULL), SPEC_OK);
    assert_int_equal(sc_io_file_pread(fx->io, file, memory, 11, 0, &error), SPEC_E_IO);
    assert_int_equal(error.code, SPEC_E_IO);
    assert_int_equal(error.sys_errno, EIO);
    sc_io_file_close(fx->io, file);
    free(memory);
}

/* Operations of random sizes on disjoint ranges, all in flight at once, in every class. */
static void completes_each_of_many_operations_once(void **state)
{
    enum { OPS = 300, SLOT = 8 * PAGE };
    struct fixture *fx = *state;
    uint64_t random = 42;
    uint8_t *data = page_memory((uint64_t)OPS * SLOT), *back = page_memory((uint64_t)OPS * SLOT);
    fill(data, (uint64_t)OPS * SLOT, 3);
    memset(back, 0, (size_t)OPS * SLOT);
    struct test_op *tests = calloc(OPS, sizeof(*tests));
    struct sc_io_op **batch = calloc(OPS, sizeof(*batch));
    assert_non_null(tests);
    assert_non_null(batch);
    struct sc_io_file *file = open_file(fx, "f", NEW_DIRECT);
    for (uint32_t pass = 0; pass < 2; pass++) {
        for (uint32_t i = 0; i < OPS; i++) {
            const uint64_t bytes =
                pass == 0 ? SLOT : (1 + random_below(&random, SLOT / PAGE)) * PAGE;
            uint8_t *buffer = (pass == 0 ? data : back) + (uint64_t)i * SLOT;
            op_set(fx, &tests[i], file, pass == 0 ? SC_IO_WRITE : SC_IO_READ, buffer, bytes,
                   (uint64_t)i * SLOT);
            tests[i].op.io_class = i % SC_IO_CLASSES;
            batch[i] = &tests[i].op;
        }
        sc_io_submit(fx->io, batch, OPS);
        wait_done(fx, (pass + 1) * OPS);
        for (uint32_t i = 0; i < OPS; i++) {
            assert_int_equal(atomic_load(&tests[i].done_count), 1);
            assert_int_equal(tests[i].op.status, SPEC_OK);
        }
    }
    for (uint32_t i = 0; i < OPS; i++) {
        const uint64_t bytes = tests[i].op.bytes, at = (uint64_t)i * SLOT;
        assert_memory_equal(back + at, data + at, bytes);
        for (uint64_t j = bytes; j < SLOT; j++)
            assert_int_equal(back[at + j], 0);
    }
    assert_int_equal(atomic_load(&fx->done_count), 2 * OPS);
    sc_io_file_close(fx->io, file);
    free(tests);
    free(batch);
    free(data);
    free(back);
}

/* A submitter on an executor thread: nothing else runs meanwhile, so the lanes alone decide. */
struct submitter {
    struct sc_task task;
    struct fixture *fx;
    struct test_op *tests;
    uint32_t count;
};

static void submit_step(struct sc_task *task)
{
    struct submitter *submitter = (struct submitter *)task;
    submit_at_once(submitter->fx, submitter->tests, submitter->count);
}

static void serves_a_higher_lane_first(void **state)
{
    struct fixture *fx = *state;
    if (fx->setup->thread_count == 0 && fx->setup->backend != SC_BACKEND_SIM)
        return; /* the loop steps tasks in seeded order, whatever their class */
    enum { OPS = 12 };
    /* One worker and one operation in flight, so that order of start is order of completion. */
    const struct setup *setup_before = fx->setup;
    struct sc_exec *exec_before = fx->exec;
    struct sc_io *io_before = fx->io;
    struct setup setup = *setup_before;
    setup.in_flight_bytes = PAGE;
    fx->setup = &setup;
    const struct sc_exec_params one = {
        .alloc = &fx->alloc, .thread_count = fx->setup->thread_count > 0, .name = "one"};
    assert_int_equal(sc_exec_open(&one, &fx->exec, NULL), SPEC_OK);
    fixture_io_open(fx, &fx->io);
    uint8_t *data = page_memory(PAGE);
    memset(data, 0, PAGE);
    struct sc_io_file *file = open_file(fx, "f", NEW_DIRECT);
    struct test_op tests[OPS];
    for (uint32_t i = 0; i < OPS; i++) {
        op_set(fx, &tests[i], file, SC_IO_WRITE, data, PAGE, (uint64_t)i * PAGE);
        tests[i].op.io_class = SC_IO_CLASS_BACKGROUND - i / 3; /* lowest first, three of each */
    }
    struct submitter submitter = {
        .task = {.step = submit_step}, .fx = fx, .tests = tests, .count = OPS};
    sc_exec_post(fx->exec, &submitter.task, SC_IO_CLASS_DEMAND);
    wait_done(fx, OPS);
    for (uint32_t i = 0; i < OPS; i++)
        for (uint32_t j = 0; j < OPS; j++) {
            const struct test_op *a = &tests[i], *b = &tests[j];
            if (a->op.io_class < b->op.io_class || (a->op.io_class == b->op.io_class && i < j))
                assert_true(a->order < b->order);
        }
    sc_io_file_close(fx->io, file);
    sc_io_close(fx->io);
    sc_exec_close(fx->exec);
    fx->io = io_before;
    fx->exec = exec_before;
    fx->setup = setup_before;
    free(data);
}

static void raise_step(struct sc_task *task)
{
    struct submitter *submitter = (struct submitter *)task;
    struct test_op *tests = submitter->tests;
    struct sc_io_op *raised[] = {&tests[3].op, &tests[1].op};
    submit_at_once(submitter->fx, tests, submitter->count);
    sc_io_raise(submitter->fx->io, raised, 2, SC_IO_CLASS_DEMAND);
}

/* The one worker submits and raises, so nothing starts meanwhile. io_uring's: test_io_uring.c. */
static void serves_what_was_raised_before_what_was_not(void **state)
{
    struct fixture *fx = *state;
    if (fx->setup->thread_count == 0 || fx->setup->backend != SC_BACKEND_PREAD)
        return;
    enum { OPS = 5 };
    static const uint32_t order[OPS] = {2, 1, 3, 0, 4};
    struct sc_exec *exec_before = fx->exec;
    struct sc_io *io_before = fx->io;
    const struct sc_exec_params one = {.alloc = &fx->alloc, .thread_count = 1, .name = "one"};
    assert_int_equal(sc_exec_open(&one, &fx->exec, NULL), SPEC_OK);
    fixture_io_open(fx, &fx->io);
    uint8_t *data = page_memory(PAGE);
    memset(data, 0, PAGE);
    struct sc_io_file *file = open_file(fx, "f", NEW_DIRECT);
    struct test_op tests[OPS];
    for (uint32_t i = 0; i < OPS; i++) {
        op_set(fx, &tests[i], file, SC_IO_WRITE, data, PAGE, (uint64_t)i * PAGE);
        tests[i].op.io_class = SC_IO_CLASS_SPECULATIVE;
    }
    struct submitter submitter = {
        .task = {.step = raise_step}, .fx = fx, .tests = tests, .count = OPS};
    sc_exec_post(fx->exec, &submitter.task, SC_IO_CLASS_DEMAND);
    wait_done(fx, OPS);
    for (uint32_t i = 0; i < OPS; i++)
        assert_int_equal(tests[i].order, order[i]);
    sc_io_file_close(fx->io, file);
    sc_io_close(fx->io);
    sc_exec_close(fx->exec);
    fx->io = io_before;
    fx->exec = exec_before;
    free(data);
}

struct late_op { /* its buffer is known when it starts */
    struct test_op test;
    uint8_t *buffer;
    _Atomic uint32_t starts;
};

static bool late_start(struct sc_io_op *op)
{
    struct late_op *late = op->user;
    op->buffer = late->buffer;
    (void)atomic_fetch_add(&late->starts, 1);
    return late->buffer != NULL;
}

static void asks_for_a_buffer_when_the_operation_starts(void **state)
{
    struct fixture *fx = *state;
    enum { OPS = 9 };
    uint8_t *data = page_memory(OPS * PAGE), *back = page_memory(OPS * PAGE);
    fill(data, OPS * PAGE, 5);
    struct sc_io_file *file = open_file(fx, "f", NEW_DIRECT);
    static struct late_op ops[2 * OPS];
    for (uint32_t i = 0; i < 2 * OPS; i++) {
        const bool writes = i < OPS;
        op_set(fx, &ops[i].test, file, writes ? SC_IO_WRITE : SC_IO_READ, NULL, PAGE,
               (uint64_t)(i % OPS) * PAGE);
        ops[i].test.op.start = late_start;
        ops[i].buffer = (writes ? data : back) + (uint64_t)(i % OPS) * PAGE;
        atomic_init(&ops[i].starts, 0);
        struct sc_io_op *op = &ops[i].test.op;
        sc_io_submit(fx->io, &op, 1);
        if (i + 1 == OPS)
            wait_done(fx, OPS);
    }
    wait_done(fx, 2 * OPS);
    for (uint32_t i = 0; i < 2 * OPS; i++) {
        assert_int_equal(ops[i].test.op.status, SPEC_OK);
        assert_int_equal(atomic_load(&ops[i].starts), 1);
    }
    assert_memory_equal(back, data, OPS * PAGE);
    sc_fault_arm(&fx->fault, SC_FAULT_READ, 0); /* fails before: nobody asks */
    ops[OPS].test.op.buffer = NULL;
    struct sc_io_op *op = &ops[OPS].test.op;
    sc_io_submit(fx->io, &op, 1);
    wait_done(fx, 2 * OPS + 1);
    assert_int_equal(ops[OPS].test.op.status, SPEC_E_IO);
    assert_int_equal(atomic_load(&ops[OPS].starts), 1);
    sc_io_file_close(fx->io, file);
    free(data);
    free(back);
}

static void drops_what_nobody_wants_when_its_turn_comes(void **state)
{
    struct fixture *fx = *state;
    enum { OPS = 60 };
    uint8_t *data = page_memory(OPS * PAGE), *back = page_memory(OPS * PAGE);
    fill(data, OPS * PAGE, 6);
    memset(back, 0xee, OPS * PAGE);
    struct sc_io_file *file = open_file(fx, "f", NEW_DIRECT);
    assert_int_equal(transfer(fx, file, SC_IO_WRITE, data, OPS * PAGE, 0), SPEC_OK);
    static struct late_op ops[OPS];
    struct sc_io_op *batch[OPS];
    for (uint32_t round = 0; round < 2; round++) { /* two of three are wanted; none is */
        for (uint32_t i = 0; i < OPS; i++) {
            const bool is_wanted = round == 0 && i % 3 != 0;
            op_set(fx, &ops[i].test, file, SC_IO_READ, NULL, PAGE, (uint64_t)i * PAGE);
            ops[i].test.op.start = late_start;
            ops[i].buffer = is_wanted ? back + (uint64_t)i * PAGE : NULL;
            batch[i] = &ops[i].test.op;
        }
        sc_io_submit(fx->io, batch, OPS);
        wait_done(fx, 1 + (round + 1) * OPS);
        for (uint32_t i = 0; i < OPS; i++) {
            const bool is_wanted = round == 0 && i % 3 != 0;
            assert_int_equal(ops[i].test.op.status, is_wanted ? SPEC_OK : SPEC_E_DROPPED);
            assert_int_equal(ops[i].test.op.sys_errno, 0);
        }
    }
    for (uint32_t i = 0; i < OPS; i++) {
        if (i % 3 != 0)
            assert_memory_equal(back + (uint64_t)i * PAGE, data + (uint64_t)i * PAGE, PAGE);
        else
            assert_int_equal(back[(uint64_t)i * PAGE], 0xee);
    }
    sc_io_file_close(fx->io, file);
    free(data);
    free(back);
}

static void locks_out_a_second_writer_and_names_the_first(void **state)
{
    struct fixture *fx = *state;
    struct spec_error error = {.struct_size = sizeof(error)};
    struct sc_io_file *first = open_file(fx, "lock", NEW_FILE);
    struct sc_io_file *second = open_file(fx, "lock", NEW_FILE);
    assert_int_equal(sc_io_file_lock(fx->io, first, &error), SPEC_OK);
    assert_int_equal(sc_io_file_lock(fx->io, second, &error), SPEC_E_LOCKED);
    assert_int_equal(error.code, SPEC_E_LOCKED);
    char expected[64];
    const int pid = fx->setup->backend == SC_BACKEND_SIM ? 1 : (int)getpid();
    (void)snprintf(expected, sizeof(expected), "locked by pid %d on host ", pid);
    assert_ptr_equal(strstr(error.text, expected), error.text);
    assert_non_null(strstr(error.text, "/lock"));
    char line[256] = "";
    uint64_t bytes = 0;
    assert_int_equal(sc_io_file_size(fx->io, second, &bytes, NULL), SPEC_OK);
    assert_true(bytes > 0 && bytes < sizeof(line));
    assert_int_equal(sc_io_file_pread(fx->io, second, line, bytes, 0, NULL), SPEC_OK);
    assert_int_equal(line[0], '{');
    assert_int_equal(line[bytes - 1], '\n');
    assert_non_null(strstr(line, "\"boot_id\":\""));
    sc_io_file_close(fx->io, first); /* releases */
    assert_int_equal(sc_io_file_lock(fx->io, second, &error), SPEC_OK);
    sc_io_file_close(fx->io, second);
}

static void says_whether_somebody_else_reads_a_file(void **state)
{
    struct fixture *fx = *state;
    struct sc_io_file *writer = open_file(fx, "log", NEW_FILE);
    struct sc_io_file *reader = open_file(fx, "log", 0), *second = open_file(fx, "log", 0);
    assert_false(sc_io_file_is_shared(fx->io, writer)); /* open is not enough */
    sc_io_file_share(fx->io, reader);
    sc_io_file_share(fx->io, second);
    assert_true(sc_io_file_is_shared(fx->io, writer));
    sc_io_file_close(fx->io, reader);
    assert_true(sc_io_file_is_shared(fx->io, writer));
    assert_false(sc_io_file_is_shared(fx->io, second)); /* itself alone */
    sc_io_file_close(fx->io, second);
    assert_false(sc_io_file_is_shared(fx->io, writer));
    second = open_file(fx, "log", NEW_FILE);
    assert_int_equal(sc_io_file_lock(fx->io, second, NULL), SPEC_OK);
    assert_true(sc_io_file_is_shared(fx->io, writer));
    assert_false(sc_io_file_is_shared(fx->io, second));
    sc_io_file_close(fx->io, second);
    assert_false(sc_io_file_is_shared(fx->io, writer));
    sc_io_file_close(fx->io, writer);
}

static void names_an_unreadable_holder_as_unknown(void **state)
{
    struct fixture *fx = *state;
    struct spec_error error = {.struct_size = sizeof(error)};
    struct sc_io_file *first = open_file(fx, "lock", NEW_FILE);
    struct sc_io_file *second = open_file(fx, "lock", NEW_FILE);
    assert_int_equal(sc_io_file_lock(fx->io, first, NULL), SPEC_OK);
    assert_int_equal(sc_io_file_truncate(fx->io, first, 0, NULL), SPEC_OK);
    assert_int_equal(sc_io_file_lock(fx->io, second, &error), SPEC_E_LOCKED);
    assert_non_null(strstr(error.text, "unknown process"));
    uint8_t noise[300];
    fill(noise, sizeof(noise), 4);
    assert_int_equal(sc_io_file_pwrite(fx->io, first, noise, sizeof(noise), 0, NULL), SPEC_OK);
    assert_int_equal(sc_io_file_lock(fx->io, second, &error), SPEC_E_LOCKED);
    assert_non_null(strstr(error.text, "unknown process"));
    sc_io_file_close(fx->io, first);
    sc_io_file_close(fx->io, second);
}

struct listing {
    char names[8][64];
    uint32_t count;
};

static void listing_add(const char *name, void *user)
{
    struct listing *listing = user;
    assert_true(listing->count < 8);
    (void)snprintf(listing->names[listing->count++], sizeof(listing->names[0]), "%s", name);
}

static bool listing_has(const struct listing *listing, const char *name)
{
    for (uint32_t i = 0; i < listing->count; i++)
        if (strcmp(listing->names[i], name) == 0)
            return true;
    return false;
}

static void lists_and_removes_names(void **state)
{
    struct fixture *fx = *state;
    struct spec_error error = {.struct_size = sizeof(error)};
    struct listing listing = {0};
    assert_int_equal(sc_io_list(fx->io, fx->dir, listing_add, &listing, NULL), SPEC_OK);
    assert_int_equal(listing.count, 0);
    assert_int_equal(sc_io_mkdir(fx->io, path_of(fx, "sub"), NULL), SPEC_OK);
    assert_int_equal(sc_io_mkdir(fx->io, path_of(fx, "sub"), NULL), SPEC_OK); /* present is fine */
    sc_io_file_close(fx->io, open_file(fx, "a", NEW_FILE));
    sc_io_file_close(fx->io, open_file(fx, "b", NEW_FILE));
    sc_io_file_close(fx->io, open_file(fx, "sub/c", NEW_FILE));
    assert_int_equal(sc_io_list(fx->io, fx->dir, listing_add, &listing, NULL), SPEC_OK);
    assert_int_equal(listing.count, 3);
    assert_true(listing_has(&listing, "a") && listing_has(&listing, "b") &&
                listing_has(&listing, "sub"));

    struct sc_io_file *open_one = open_file(fx, "a", SC_IO_OPEN_WRITE);
    assert_int_equal(sc_io_file_pwrite(fx->io, open_one, "xyz", 3, 0, NULL), SPEC_OK);
    assert_int_equal(sc_io_unlink(fx->io, path_of(fx, "a"), NULL), SPEC_OK);
    char text[3];
    assert_int_equal(sc_io_file_pread(fx->io, open_one, text, 3, 0, NULL), SPEC_OK);
    assert_memory_equal(text, "xyz", 3); /* a file without a name lives until it is closed */
    sc_io_file_close(fx->io, open_one);
    listing.count = 0;
    assert_int_equal(sc_io_list(fx->io, fx->dir, listing_add, &listing, NULL), SPEC_OK);
    assert_int_equal(listing.count, 2);
    assert_false(listing_has(&listing, "a"));

    assert_int_equal(sc_io_unlink(fx->io, path_of(fx, "a"), &error), SPEC_E_IO);
    assert_int_equal(error.sys_errno, ENOENT);
    assert_int_equal(sc_io_list(fx->io, path_of(fx, "none"), listing_add, &listing, &error),
                     SPEC_E_IO);
    assert_int_equal(error.sys_errno, ENOENT);
    assert_int_equal(sc_io_list(fx->io, path_of(fx, "b"), listing_add, &listing, &error),
                     SPEC_E_IO);
    assert_int_equal(error.sys_errno, ENOTDIR);
    assert_int_equal(sc_io_mkdir(fx->io, path_of(fx, "b"), &error), SPEC_E_IO);
    assert_int_equal(error.sys_errno, ENOTDIR);
}

static void says_why_a_file_cannot_be_opened(void **state)
{
    struct fixture *fx = *state;
    struct sc_io_file *file = NULL;
    const struct {
        const char *name;
        uint32_t flags;
        int sys_errno;
    } cases[] = {
        {"none", 0, ENOENT},
        {"none", SC_IO_OPEN_WRITE | SC_IO_OPEN_DIRECT, ENOENT},
        {"none/f", NEW_FILE, ENOENT},
        {"there", NEW_FILE | SC_IO_OPEN_EXCLUSIVE, EEXIST},
        {"there", NEW_DIRECT | SC_IO_OPEN_EXCLUSIVE, EEXIST},
        {"sub", SC_IO_OPEN_WRITE, EISDIR},
        {"sub", 0, EISDIR},
    };
    sc_io_file_close(fx->io, open_file(fx, "there", NEW_FILE | SC_IO_OPEN_EXCLUSIVE));
    assert_int_equal(sc_io_mkdir(fx->io, path_of(fx, "sub"), NULL), SPEC_OK);
    for (uint32_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct spec_error error = {.struct_size = sizeof(error)};
        const char *path = path_of(fx, cases[i].name);
        assert_int_equal(sc_io_file_open(fx->io, path, cases[i].flags, &file, &error), SPEC_E_IO);
        assert_int_equal(error.sys_errno, cases[i].sys_errno);
        assert_non_null(strstr(error.text, path));
        assert_null(file);
    }
}

static void read_whole(struct fixture *fx, const char *name, char text[64])
{
    uint64_t bytes = 0;
    struct sc_io_file *file = open_file(fx, name, 0);
    memset(text, 0, 64);
    assert_int_equal(sc_io_file_size(fx->io, file, &bytes, NULL), SPEC_OK);
    assert_true(bytes < 64);
    assert_int_equal(sc_io_file_pread(fx->io, file, text, bytes, 0, NULL), SPEC_OK);
    sc_io_file_close(fx->io, file);
}

static void appends_at_the_end_wherever_that_is(void **state)
{
    struct fixture *fx = *state;
    struct spec_error error = {.struct_size = sizeof(error)};
    char text[64];
    struct sc_io_file *one = open_file(fx, "mail", NEW_FILE | SC_IO_OPEN_APPEND);
    struct sc_io_file *other = open_file(fx, "mail", SC_IO_OPEN_WRITE | SC_IO_OPEN_APPEND);
    assert_int_equal(sc_io_file_append(fx->io, one, "one,", 4, NULL, NULL), SPEC_OK);
    assert_int_equal(sc_io_file_append(fx->io, other, "two,", 4, NULL, NULL), SPEC_OK);
    assert_int_equal(sc_io_file_append(fx->io, one, "", 0, NULL, NULL), SPEC_OK);
    assert_int_equal(sc_io_file_append(fx->io, one, "three", 5, NULL, NULL), SPEC_OK);
    read_whole(fx, "mail", text);
    assert_string_equal(text, "one,two,three");
    assert_int_equal(sc_io_file_truncate(fx->io, other, 3, NULL), SPEC_OK);
    assert_int_equal(sc_io_file_append(fx->io, one, "!", 1, NULL, NULL), SPEC_OK);
    /* A write at an offset would be appended by some kernels and not by others. */
    assert_int_equal(sc_io_file_pwrite(fx->io, one, "x", 1, 0, &error), SPEC_E_INVALID);
    sc_fault_arm(&fx->fault, SC_FAULT_WRITE, 0);
    assert_int_equal(sc_io_file_append(fx->io, one, "x", 1, NULL, &error), SPEC_E_IO);
    assert_int_equal(error.sys_errno, EIO);
    sc_fault_arm(&fx->fault, SC_FAULT_RESERVE, 0);
    assert_int_equal(sc_io_file_append(fx->io, one, "x", 1, NULL, &error), SPEC_E_NO_SPACE);
    read_whole(fx, "mail", text);
    assert_string_equal(text, "one!");
    sc_io_file_close(fx->io, one);
    sc_io_file_close(fx->io, other);

    one = open_file(fx, "mail", SC_IO_OPEN_WRITE);
    assert_int_equal(sc_io_file_append(fx->io, one, "x", 1, NULL, &error), SPEC_E_INVALID);
    sc_io_file_close(fx->io, one);
    static const uint32_t wrong[] = {SC_IO_OPEN_APPEND, NEW_DIRECT | SC_IO_OPEN_APPEND};
    for (uint32_t i = 0; i < 2; i++) {
        one = NULL;
        assert_int_equal(sc_io_file_open(fx->io, path_of(fx, "mail"), wrong[i], &one, &error),
                         SPEC_E_INVALID);
        assert_null(one);
    }
}

static void renames_in_place_of_what_was_there(void **state)
{
    struct fixture *fx = *state;
    struct spec_error error = {.struct_size = sizeof(error)};
    char text[64];
    struct sc_io_file *old = open_file(fx, "log", NEW_FILE);
    struct sc_io_file *new = open_file(fx, "log.new", NEW_FILE);
    assert_int_equal(sc_io_file_pwrite(fx->io, old, "old", 3, 0, NULL), SPEC_OK);
    assert_int_equal(sc_io_file_pwrite(fx->io, new, "new", 3, 0, NULL), SPEC_OK);
    sc_fault_arm(&fx->fault, SC_FAULT_SYNC, 0);
    assert_int_equal(sc_io_rename(fx->io, path_of(fx, "log.new"), path_of(fx, "log"), &error),
                     SPEC_E_IO);
    read_whole(fx, "log", text);
    assert_string_equal(text, "old");
    assert_int_equal(sc_io_rename(fx->io, path_of(fx, "log.new"), path_of(fx, "log"), NULL),
                     SPEC_OK);
    read_whole(fx, "log", text);
    assert_string_equal(text, "new");
    assert_int_equal(sc_io_file_pread(fx->io, old, text, 3, 0, NULL), SPEC_OK);
    assert_memory_equal(text, "old", 3); /* a reader that is in it goes on */
    assert_int_equal(sc_io_file_pwrite(fx->io, new, "NEWER", 5, 0, NULL), SPEC_OK);
    read_whole(fx, "log", text);
    assert_string_equal(text, "NEWER");
    struct sc_io_file *none = NULL;
    assert_int_equal(sc_io_file_open(fx->io, path_of(fx, "log.new"), 0, &none, &error), SPEC_E_IO);
    assert_int_equal(error.sys_errno, ENOENT);
    assert_int_equal(sc_io_rename(fx->io, path_of(fx, "log.new"), path_of(fx, "log"), &error),
                     SPEC_E_IO);
    assert_int_equal(error.sys_errno, ENOENT);
    assert_int_equal(sc_io_rename(fx->io, path_of(fx, "log"), path_of(fx, "no/log"), &error),
                     SPEC_E_IO);
    assert_int_equal(error.sys_errno, ENOENT);
    sc_io_file_close(fx->io, old);
    sc_io_file_close(fx->io, new);
}

static bool is_same(struct fixture *fx, struct sc_io_file *file, const char *name)
{
    bool same = true;
    assert_int_equal(sc_io_file_same(fx->io, file, path_of(fx, name), &same, NULL), SPEC_OK);
    return same;
}

static void tells_whether_a_path_still_names_the_open_file(void **state)
{
    struct fixture *fx = *state;
    struct sc_io_file *old = open_file(fx, "log", NEW_FILE);
    struct sc_io_file *new = open_file(fx, "log.new", NEW_FILE);
    assert_true(is_same(fx, old, "log"));
    assert_false(is_same(fx, old, "log.new"));
    assert_false(is_same(fx, old, "none"));
    assert_int_equal(sc_io_rename(fx->io, path_of(fx, "log.new"), path_of(fx, "log"), NULL),
                     SPEC_OK);
    assert_false(is_same(fx, old, "log"));
    assert_true(is_same(fx, new, "log"));
    assert_false(is_same(fx, new, "log.new"));
    assert_int_equal(sc_io_unlink(fx->io, path_of(fx, "log"), NULL), SPEC_OK);
    assert_false(is_same(fx, new, "log"));
    sc_io_file_close(fx->io, open_file(fx, "log", NEW_FILE)); /* the name is back, another file */
    assert_false(is_same(fx, new, "log"));
    sc_io_file_close(fx->io, old);
    sc_io_file_close(fx->io, new);
}

static void reserves_zeros_and_keeps_what_was_there(void **state)
{
    struct fixture *fx = *state;
    const uint64_t bytes = 1u << 20;
    uint8_t *data = page_memory(bytes);
    fill(data, PAGE, 5);
    struct sc_io_file *file = open_file(fx, "seg", NEW_DIRECT);
    assert_int_equal(transfer(fx, file, SC_IO_WRITE, data, PAGE, 0), SPEC_OK);
    uint64_t size = 0;
    assert_int_equal(sc_io_file_reserve(fx->io, file, 0, NULL), SPEC_OK);
    assert_int_equal(sc_io_file_reserve(fx->io, file, bytes, NULL), SPEC_OK);
    assert_int_equal(sc_io_file_reserve(fx->io, file, PAGE, NULL), SPEC_OK); /* never shrinks */
    assert_int_equal(sc_io_file_size(fx->io, file, &size, NULL), SPEC_OK);
    assert_int_equal(size, bytes);
    uint8_t *back = page_memory(bytes);
    assert_int_equal(transfer(fx, file, SC_IO_READ, back, bytes, 0), SPEC_OK);
    assert_memory_equal(back, data, PAGE);
    for (uint64_t i = PAGE; i < bytes; i++)
        assert_int_equal(back[i], 0);
    if (fx->setup->backend != SC_BACKEND_SIM) {
        struct stat about;
        assert_int_equal(stat(path_of(fx, "seg"), &about), 0);
        assert_true((uint64_t)about.st_blocks * 512 >= bytes); /* allocated, not promised */
    }
    assert_int_equal(sc_io_file_truncate(fx->io, file, 2 * PAGE, NULL), SPEC_OK);
    assert_int_equal(sc_io_file_size(fx->io, file, &size, NULL), SPEC_OK);
    assert_int_equal(size, 2 * PAGE);
    sc_io_file_close(fx->io, file);
    free(data);
    free(back);
}

static void says_how_much_is_free(void **state)
{
    struct fixture *fx = *state;
    uint64_t before = 0, after = 0;
    assert_int_equal(sc_io_free_bytes(fx->io, fx->dir, &before, NULL), SPEC_OK);
    assert_true(before > 0);
    if (fx->setup->backend != SC_BACKEND_SIM) {
        struct spec_error error = {.struct_size = sizeof(error)};
        assert_int_equal(sc_io_free_bytes(fx->io, path_of(fx, "none"), &after, &error), SPEC_E_IO);
        assert_int_equal(error.sys_errno, ENOENT);
        return; /* others write to a real file system too */
    }
    struct sc_io_file *file = open_file(fx, "f", NEW_FILE);
    assert_int_equal(sc_io_file_reserve(fx->io, file, 1000, NULL), SPEC_OK);
    assert_int_equal(sc_io_free_bytes(fx->io, fx->dir, &after, NULL), SPEC_OK);
    assert_int_equal(before - after, 1000);
    sc_io_file_close(fx->io, file);
}

static void opens_names_longer_than_its_inline_buffer(void **state)
{
    struct fixture *fx = *state;
    char name[800] = "";
    for (uint32_t i = 0; i < 3; i++) {
        const size_t at = strlen(name);
        memset(name + at, 'a' + (int)i, 200);
        name[at + 200] = '\0';
        assert_int_equal(sc_io_mkdir(fx->io, path_of(fx, name), NULL), SPEC_OK);
        (void)strcat(name, "/");
    }
    (void)strcat(name, "file");
    struct sc_io_file *file = open_file(fx, name, NEW_FILE);
    assert_int_equal(sc_io_file_pwrite(fx->io, file, "abc", 3, 0, NULL), SPEC_OK);
    assert_int_equal(sc_io_file_sync(fx->io, file, NULL), SPEC_OK);
    sc_io_file_close(fx->io, file);
}

/* The fixture reserves four file objects. */
static void opens_more_files_than_were_reserved(void **state)
{
    struct fixture *fx = *state;
    struct sc_io_file *files[10];
    char text[2] = "";
    for (uint32_t i = 0; i < 10; i++) {
        char name[8];
        (void)snprintf(name, sizeof(name), "f%u", i);
        files[i] = open_file(fx, name, NEW_FILE);
        assert_int_equal(sc_io_file_pwrite(fx->io, files[i], name, 2, 0, NULL), SPEC_OK);
    }
    for (uint32_t i = 0; i < 10; i++) {
        assert_int_equal(sc_io_file_pread(fx->io, files[i], text, 2, 0, NULL), SPEC_OK);
        assert_int_equal(text[1], '0' + (char)i);
        sc_io_file_close(fx->io, files[i]);
    }
}

static void allocates_nothing_while_sealed(void **state)
{
    struct fixture *fx = *state;
    uint8_t *data = page_memory(2 * PAGE);
    memset(data, 7, 2 * PAGE);
    sc_alloc_seal(&fx->alloc);
    struct sc_io_file *file = open_file(fx, "f", NEW_DIRECT);
    assert_int_equal(sc_io_file_reserve(fx->io, file, 4 * PAGE, NULL), SPEC_OK);
    assert_int_equal(transfer(fx, file, SC_IO_WRITE, data, 2 * PAGE, PAGE), SPEC_OK);
    assert_int_equal(transfer(fx, file, SC_IO_READ, data, 2 * PAGE, 0), SPEC_OK);
    assert_int_equal(sc_io_file_sync(fx->io, file, NULL), SPEC_OK);
    sc_io_file_close(fx->io, file);
    assert_int_equal(sc_io_unlink(fx->io, path_of(fx, "f"), NULL), SPEC_OK);
    sc_alloc_unseal(&fx->alloc);
    free(data);
}

/* ---- Fault points --------------------------------------------------------------------------- */

/* Every kind of call, once or more. Counts the calls that failed; a failed one changed nothing, and
 * a read that said OK has the right bytes. */
static uint32_t scenario(struct fixture *fx)
{
    uint32_t failures = 0;
    uint8_t *data = page_memory(4 * PAGE), *back = page_memory(4 * PAGE);
    fill(data, 4 * PAGE, 6);
    struct sc_io_file *file = NULL;
    if (sc_io_file_open(fx->io, path_of(fx, "f"), NEW_DIRECT, &file, NULL) != SPEC_OK) {
        failures++;
        goto out;
    }
    const bool is_reserved = sc_io_file_reserve(fx->io, file, 4 * PAGE, NULL) == SPEC_OK;
    failures += !is_reserved;
    struct test_op tests[4];
    const uint32_t before = atomic_load(&fx->done_count);
    for (uint32_t i = 0; i < 4; i++)
        op_set(fx, &tests[i], file, SC_IO_WRITE, data + i * PAGE, PAGE, i * PAGE);
    submit(fx, tests, 4);
    wait_done(fx, before + 4);
    bool written[4];
    for (uint32_t i = 0; i < 4; i++) {
        written[i] = tests[i].op.status == SPEC_OK;
        failures += !written[i];
    }
    failures += sc_io_file_sync(fx->io, file, NULL) != SPEC_OK;
    for (uint32_t i = 0; i < 4; i++) {
        memset(back, 0xee, PAGE);
        const spec_status status = transfer(fx, file, SC_IO_READ, back, PAGE, i * PAGE);
        if (written[i] && status == SPEC_OK)
            assert_memory_equal(back, data + i * PAGE, PAGE);
        /* Past the end, because the write failed, is a failure that was counted. */
        failures += status != SPEC_OK && (written[i] || is_reserved);
    }
    sc_io_file_close(fx->io, file);

    file = NULL;
    if (sc_io_file_open(fx->io, path_of(fx, "log"), NEW_FILE, &file, NULL) != SPEC_OK) {
        failures++;
        goto out;
    }
    const bool is_logged = sc_io_file_pwrite(fx->io, file, "record", 6, 0, NULL) == SPEC_OK;
    failures += !is_logged;
    if (is_logged) {
        char text[6] = "";
        const bool is_read = sc_io_file_pread(fx->io, file, text, 6, 0, NULL) == SPEC_OK;
        failures += !is_read;
        if (is_read)
            assert_memory_equal(text, "record", 6);
    } else {
        uint64_t size = 1;
        assert_int_equal(sc_io_file_size(fx->io, file, &size, NULL), SPEC_OK);
        assert_int_equal(size, 0);
    }
    sc_io_file_close(fx->io, file);
out:
    (void)sc_io_unlink(fx->io, path_of(fx, "f"), NULL);
    (void)sc_io_unlink(fx->io, path_of(fx, "log"), NULL);
    free(data);
    free(back);
    return failures;
}

static void reports_each_injected_fault_once(void **state)
{
    struct fixture *fx = *state;
    static const struct {
        enum sc_fault_kind kind;
        uint64_t points; /* how many the scenario meets */
    } kinds[] = {{SC_FAULT_READ, 5},
                 {SC_FAULT_WRITE, 5},
                 {SC_FAULT_COMPLETION, 8},
                 {SC_FAULT_RESERVE, 2},
                 {SC_FAULT_SYNC, 1}};
    assert_int_equal(scenario(fx), 0);
    for (uint32_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        uint64_t n = 0;
        for (;; n++) {
            const uint64_t fired = atomic_load(&fx->fault.fired[kinds[i].kind]);
            sc_fault_arm(&fx->fault, kinds[i].kind, n);
            const uint32_t failures = scenario(fx);
            if (atomic_load(&fx->fault.fired[kinds[i].kind]) == fired)
                break;
            assert_int_equal(failures, 1);
        }
        assert_int_equal(n, kinds[i].points);
        sc_fault_init(&fx->fault);
    }
}

static void maps_faults_to_statuses(void **state)
{
    struct fixture *fx = *state;
    struct spec_error error = {.struct_size = sizeof(error)};
    uint8_t *data = page_memory(PAGE);
    memset(data, 1, PAGE);
    struct sc_io_file *file = open_file(fx, "f", NEW_DIRECT);
    sc_fault_arm(&fx->fault, SC_FAULT_RESERVE, 0);
    assert_int_equal(sc_io_file_reserve(fx->io, file, PAGE, &error), SPEC_E_NO_SPACE);
    assert_int_equal(error.sys_errno, ENOSPC);
    sc_fault_arm(&fx->fault, SC_FAULT_WRITE, 0);
    struct test_op test;
    op_set(fx, &test, file, SC_IO_WRITE, data, PAGE, 0);
    submit(fx, &test, 1);
    wait_done(fx, 1);
    assert_int_equal(test.op.status, SPEC_E_IO);
    assert_int_equal(test.op.sys_errno, EIO);
    sc_fault_arm(&fx->fault, SC_FAULT_SYNC, 0);
    assert_int_equal(sc_io_file_sync(fx->io, file, &error), SPEC_E_IO);
    assert_int_equal(error.sys_errno, EIO);
    sc_io_file_close(fx->io, file);
    free(data);
}

/* Opening a back end with the n-th allocation failing leaves nothing behind. */
static void opens_or_says_no_memory(void **state)
{
    struct fixture *fx = *state;
    const uint64_t live = atomic_load(&fx->alloc.live_blocks);
    fx->alloc.fault = &fx->fault;
    uint32_t refusals = 0;
    for (uint64_t n = 0;; n++) {
        struct spec_error error = {.struct_size = sizeof(error)};
        struct sc_io *io = NULL;
        struct sc_io_sim_disk *disk = NULL; /* another one: its allocations fail, too */
        const struct sc_io_sim_disk_params like = {.alloc = &fx->alloc};
        struct sc_io_params params = {.alloc = &fx->alloc,
                                      .exec = fx->exec,
                                      .log = &fx->log,
                                      .fault = &fx->fault,
                                      .backend = fx->setup->backend};
        sc_fault_init(&fx->fault);
        sc_fault_arm(&fx->fault, SC_FAULT_ALLOC, n);
        spec_status status = SPEC_OK;
        if (fx->setup->backend == SC_BACKEND_SIM)
            status = sc_io_sim_disk_open(&like, &disk, &error);
        params.custom = sc_io_sim_custom(disk);
        if (status == SPEC_OK)
            status = sc_io_open(&params, &io, &error);
        sc_io_close(io);
        sc_io_sim_disk_close(disk);
        if (status == SPEC_OK)
            break;
        assert_int_equal(status, SPEC_E_NO_MEMORY);
        assert_int_equal(error.code, SPEC_E_NO_MEMORY);
        assert_null(io);
        assert_int_equal(atomic_load(&fx->alloc.live_blocks), live);
        refusals++;
    }
    assert_true(refusals >= 2);
    assert_int_equal(atomic_load(&fx->alloc.live_blocks), live);
    fx->alloc.fault = NULL;
    sc_fault_init(&fx->fault);
}

/* ---- Only real files ------------------------------------------------------------------------ */

static void makes_files_for_the_owner_only(void **state)
{
    struct fixture *fx = *state;
    if (fx->setup->backend == SC_BACKEND_SIM)
        return; /* the sim disk has no modes */
    const mode_t mask = umask(0);
    sc_io_file_close(fx->io, open_file(fx, "f", NEW_FILE));
    sc_io_file_close(fx->io, open_file(fx, "g", NEW_DIRECT));
    assert_int_equal(sc_io_mkdir(fx->io, path_of(fx, "sub"), NULL), SPEC_OK);
    (void)umask(mask);
    struct stat about;
    assert_int_equal(stat(path_of(fx, "f"), &about), 0);
    assert_int_equal(about.st_mode & 07777, 0600);
    assert_int_equal(stat(path_of(fx, "g"), &about), 0);
    assert_int_equal(about.st_mode & 07777, 0600);
    assert_int_equal(stat(path_of(fx, "sub"), &about), 0);
    assert_int_equal(about.st_mode & 07777, 0700);
}

static void follows_no_link_in_place_of_a_file(void **state)
{
    struct fixture *fx = *state;
    if (fx->setup->backend == SC_BACKEND_SIM)
        return; /* the sim disk has no links */
    struct sc_io_file *file = NULL;
    struct spec_error error = {.struct_size = sizeof(error)};
    sc_io_file_close(fx->io, open_file(fx, "f", NEW_FILE));
    assert_int_equal(symlink(path_of(fx, "f"), path_of(fx, "link")), 0);
    assert_int_equal(sc_io_file_open(fx->io, path_of(fx, "link"), NEW_FILE, &file, &error),
                     SPEC_E_IO);
    assert_int_equal(error.sys_errno, ELOOP);
    assert_int_equal(mkfifo(path_of(fx, "pipe"), 0600), 0);
    assert_int_equal(sc_io_file_open(fx->io, path_of(fx, "pipe"), 0, &file, &error), SPEC_E_IO);
    assert_int_equal(sc_io_file_open(fx->io, path_of(fx, "pipe"), SC_IO_OPEN_WRITE, &file, NULL),
                     SPEC_E_IO);
}

/* Descriptors of this process that name something under the fixture's directory. */
static uint32_t descriptors_in(const struct fixture *fx)
{
    uint32_t count = 0;
    DIR *dir = opendir("/proc/self/fd");
    assert_non_null(dir);
    for (const struct dirent *entry; (entry = readdir(dir)) != NULL;) {
        char target[4096] = "";
        if (readlinkat(dirfd(dir), entry->d_name, target, sizeof(target) - 1) > 0)
            count += strncmp(target, fx->dir, strlen(fx->dir)) == 0;
    }
    (void)closedir(dir);
    return count;
}

/* The child; its exit status says what was wrong. */
static int use_in_child(struct fixture *fx, struct sc_io_file *file)
{
    char byte;
    if (descriptors_in(fx) != 5)
        return 1;
    sc_io_fork_close(fx->io);
    if (descriptors_in(fx) != 0)
        return 2;
    if (sc_io_file_pread(fx->io, file, &byte, 1, 0, NULL) != SPEC_E_IO)
        return 3;
    sc_io_fork_close(fx->io); /* again is fine */
    return 0;
}

/* More files than were reserved; one was closed from the middle of them. */
static void closes_every_descriptor_in_a_forked_child(void **state)
{
    struct fixture *fx = *state;
    if (fx->setup->backend == SC_BACKEND_SIM) {
        sc_io_fork_close(fx->io); /* it has none */
        return;
    }
    struct sc_io_file *files[6];
    for (uint32_t i = 0; i < 6; i++) {
        char name[8];
        (void)snprintf(name, sizeof(name), "f%u", i);
        files[i] = open_file(fx, name, i % 2 == 0 ? NEW_FILE : NEW_DIRECT);
    }
    assert_int_equal(sc_io_file_pwrite(fx->io, files[0], "abc", 3, 0, NULL), SPEC_OK);
    assert_int_equal(sc_io_file_lock(fx->io, files[4], NULL), SPEC_OK);
    sc_io_file_close(fx->io, files[2]);
    int say[2], hear[2];
    assert_int_equal(pipe(say), 0);
    assert_int_equal(pipe(hear), 0);
    const pid_t child = fork();
    assert_true(child >= 0);
    char byte = 'x';
    if (child == 0) {
        const int code = use_in_child(fx, files[0]);
        (void)!write(say[1], &byte, 1);
        (void)!read(hear[0], &byte, 1); /* lives on while the parent looks */
        _exit(code);
    }
    assert_int_equal(read(say[0], &byte, 1), 1);
    sc_io_file_close(fx->io, files[4]); /* the child holds the lock no more */
    files[4] = open_file(fx, "f4", SC_IO_OPEN_WRITE);
    assert_int_equal(sc_io_file_lock(fx->io, files[4], NULL), SPEC_OK);
    assert_int_equal(sc_io_file_pread(fx->io, files[0], &byte, 1, 2, NULL), SPEC_OK);
    assert_int_equal(byte, 'c');
    assert_int_equal(write(hear[1], &byte, 1), 1);
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    for (uint32_t i = 0; i < 6; i++)
        if (i != 2)
            sc_io_file_close(fx->io, files[i]);
    for (uint32_t i = 0; i < 2; i++) {
        (void)close(say[i]);
        (void)close(hear[i]);
    }
}

/* In a child with the signal's default, which ends the process: 0, or the line that failed. */
#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition))                                                                          \
            return __LINE__ % 200 + 1;                                                             \
    } while (0)

static int write_beyond_the_limit(struct fixture *fx, struct sc_io_file *file,
                                  struct sc_io_file *tail)
{
    const struct rlimit limit = {.rlim_cur = 3 * PAGE, .rlim_max = RLIM_INFINITY};
    static const uint8_t bytes[4 * PAGE];
    struct spec_error error = {.struct_size = sizeof(error)};
    (void)signal(SIGXFSZ, SIG_DFL);
    CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0);
    CHECK(sc_io_file_limit() == 3 * PAGE);
    CHECK(sc_io_file_pwrite(fx->io, file, bytes, 3 * PAGE, 0, NULL) == SPEC_OK);
    CHECK(sc_io_file_pwrite(fx->io, file, bytes, 2, 3 * PAGE - 1, &error) == SPEC_E_NO_SPACE);
    CHECK(error.sys_errno == EFBIG && strstr(error.text, "RLIMIT_FSIZE") != NULL);
    CHECK(sc_io_file_pwrite(fx->io, file, bytes, 1, 3 * PAGE, NULL) == SPEC_E_NO_SPACE);
    CHECK(sc_io_file_reserve(fx->io, file, 3 * PAGE, NULL) == SPEC_OK);
    CHECK(sc_io_file_reserve(fx->io, file, 3 * PAGE + 1, NULL) == SPEC_E_NO_SPACE);
    CHECK(sc_io_file_append(fx->io, tail, bytes, 2 * PAGE, NULL, NULL) == SPEC_OK);
    CHECK(sc_io_file_append(fx->io, tail, bytes, PAGE + 1, NULL, NULL) == SPEC_E_NO_SPACE);
    CHECK(sc_io_file_append(fx->io, tail, bytes, PAGE, NULL, NULL) == SPEC_OK);
    uint64_t size = 0;
    CHECK(sc_io_file_size(fx->io, file, &size, NULL) == SPEC_OK && size == 3 * PAGE);
    return 0;
}

/* Nothing is written beyond the limit of the process: no signal, an error that says so. */
static void nothing_is_written_beyond_the_limit(void **state)
{
    struct fixture *fx = *state;
    struct sc_io_file *file = open_file(fx, "limited", NEW_FILE);
    struct sc_io_file *tail = open_file(fx, "tail", NEW_FILE | SC_IO_OPEN_APPEND);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0)
        _exit(write_beyond_the_limit(fx, file, tail));
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    sc_io_file_close(fx->io, tail);
    sc_io_file_close(fx->io, file);
    file = open_file(fx, "direct", NEW_DIRECT);
    uint8_t *memory = page_memory(2 * PAGE);
    struct rlimit before, limit;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    limit = (struct rlimit){.rlim_cur = 2 * PAGE, .rlim_max = before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0); /* operations, on other threads */
    const spec_status within = transfer(fx, file, SC_IO_WRITE, memory, 2 * PAGE, 0);
    const spec_status beyond = transfer(fx, file, SC_IO_WRITE, memory, 2 * PAGE, PAGE);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(within, SPEC_OK);
    assert_int_equal(beyond, SPEC_E_NO_SPACE);
    assert_int_equal(transfer(fx, file, SC_IO_WRITE, memory, 2 * PAGE, PAGE), SPEC_OK);
    sc_io_file_close(fx->io, file);
    free(memory);
}

static void put_text(const char *dir, const char *name, const char *text)
{
    char path[1200];
    (void)snprintf(path, sizeof(path), "%s/%s", dir, name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static bool has_text(const char *dir, const char *name, const char *text)
{
    char path[1200], found[64] = "";
    (void)snprintf(path, sizeof(path), "%s/%s", dir, name);
    FILE *file = fopen(path, "r");
    if (file == NULL)
        return false;
    (void)!fgets(found, sizeof(found), file);
    (void)fclose(file);
    return strcmp(found, text) == 0;
}

static void count_name(const char *name, void *user)
{
    (void)name;
    (*(uint32_t *)user)++;
}

/* The directory is moved away, and another takes its path: every name goes on in the first. */
static void a_kept_directory_stays_what_it_was(void **state)
{
    struct fixture *fx = *state;
    if (fx->setup->backend == SC_BACKEND_SIM)
        return; /* its directories have no identity beside their path */
    char path[1100], moved[1100], text[1200];
    uint32_t names = 0;
    bool is_same = false;
    (void)snprintf(path, sizeof(path), "%s/kept", fx->dir);
    (void)snprintf(moved, sizeof(moved), "%s/moved", fx->dir);
    assert_int_equal(sc_io_mkdir(fx->io, path, NULL), SPEC_OK);
    assert_int_equal(sc_io_dir_keep(fx->io, path, NULL), SPEC_OK);
    (void)snprintf(text, sizeof(text), "%s/log", path);
    struct sc_io_file *log = NULL, *fresh = NULL;
    assert_int_equal(sc_io_file_open(fx->io, text, NEW_FILE, &log, NULL), SPEC_OK);
    assert_int_equal(sc_io_file_pwrite(fx->io, log, "ours", 4, 0, NULL), SPEC_OK);
    assert_int_equal(rename(path, moved), 0);
    assert_int_equal(mkdir(path, 0700), 0);
    put_text(path, "log", "another's");
    assert_int_equal(sc_io_file_same(fx->io, log, text, &is_same, NULL), SPEC_OK);
    assert_true(is_same);
    char made[1200];
    (void)snprintf(made, sizeof(made), "%s/log.new", path);
    assert_int_equal(sc_io_file_open(fx->io, made, NEW_FILE, &fresh, NULL), SPEC_OK);
    assert_int_equal(sc_io_file_pwrite(fx->io, fresh, "new", 3, 0, NULL), SPEC_OK);
    assert_int_equal(sc_io_file_sync(fx->io, fresh, NULL), SPEC_OK);
    assert_int_equal(sc_io_rename(fx->io, made, text, NULL), SPEC_OK);
    assert_true(has_text(moved, "log", "new"));
    assert_true(has_text(path, "log", "another's"));
    put_text(moved, "more", "x");
    assert_int_equal(sc_io_list(fx->io, path, count_name, &names, NULL), SPEC_OK);
    assert_int_equal(names, 2);
    (void)snprintf(made, sizeof(made), "%s/more", path);
    assert_int_equal(sc_io_unlink(fx->io, made, NULL), SPEC_OK);
    assert_int_equal(sc_io_unlink(fx->io, text, NULL), SPEC_OK);
    assert_true(has_text(path, "log", "another's"));
    uint64_t bytes = 0;
    assert_int_equal(sc_io_free_bytes(fx->io, path, &bytes, NULL), SPEC_OK);
    sc_io_file_close(fx->io, fresh);
    sc_io_file_close(fx->io, log);
}

static uint32_t buffered_lines;

static void count_buffered_line(int32_t level, const char *line, void *user)
{
    (void)level;
    (void)user;
    buffered_lines += strstr(line, "buffered") != NULL;
}

/* tmpfs refuses O_DIRECT before Linux 6.6. Either way the calls work, and a refusal is said once.
 */
static void works_where_direct_is_refused(void **state)
{
    struct fixture *fx = *state;
    if (fx->setup->backend == SC_BACKEND_SIM || access("/dev/shm", W_OK) != 0)
        return;
    char made[] = "/dev/shm/sc-io-XXXXXX";
    if (mkdtemp(made) == NULL)
        return;
    char path[64];
    uint8_t *data = page_memory(2 * PAGE), *back = page_memory(2 * PAGE);
    fill(data, 2 * PAGE, 8);
    buffered_lines = 0;
    fx->log.callback = count_buffered_line;
    uint32_t refused = 0;
    for (uint32_t i = 0; i < 3; i++) {
        struct sc_io_file *file = NULL;
        (void)snprintf(path, sizeof(path), "%s/f%u", made, i);
        assert_int_equal(
            sc_io_file_open(fx->io, path, NEW_DIRECT | SC_IO_OPEN_EXCLUSIVE, &file, NULL), SPEC_OK);
        assert_int_equal(transfer(fx, file, SC_IO_WRITE, data, 2 * PAGE, PAGE), SPEC_OK);
        assert_int_equal(transfer(fx, file, SC_IO_READ, back, 2 * PAGE, PAGE), SPEC_OK);
        assert_memory_equal(back, data, 2 * PAGE);
        assert_int_equal(transfer(fx, file, SC_IO_READ, back, 2 * PAGE, 1), SPEC_E_INVALID);
        sc_io_file_close(fx->io, file);
        const int fd = open(path, O_RDWR | O_DIRECT);
        refused += fd < 0;
        if (fd >= 0)
            (void)close(fd);
    }
    sc_log_drain(&fx->log);
    assert_int_equal(buffered_lines, refused > 0 ? 1 : 0);
    remove_tree(made);
    free(data);
    free(back);
}

/* ---- Every test over every setup ------------------------------------------------------------ */

static const struct {
    const char *name;
    CMUnitTestFunction function;
} bodies[] = {
    {"names_the_back_end", names_the_back_end},
    {"reads_back_what_was_written", reads_back_what_was_written},
    {"reads_back_after_reopening", reads_back_after_reopening},
    {"refuses_what_is_not_aligned_in_a_direct_file", refuses_what_is_not_aligned_in_a_direct_file},
    {"fails_a_read_past_the_end", fails_a_read_past_the_end},
    {"completes_each_of_many_operations_once", completes_each_of_many_operations_once},
    {"serves_a_higher_lane_first", serves_a_higher_lane_first},
    {"serves_what_was_raised_before_what_was_not", serves_what_was_raised_before_what_was_not},
    {"asks_for_a_buffer_when_the_operation_starts", asks_for_a_buffer_when_the_operation_starts},
    {"drops_what_nobody_wants_when_its_turn_comes", drops_what_nobody_wants_when_its_turn_comes},
    {"says_whether_somebody_else_reads_a_file", says_whether_somebody_else_reads_a_file},
    {"locks_out_a_second_writer_and_names_the_first",
     locks_out_a_second_writer_and_names_the_first},
    {"names_an_unreadable_holder_as_unknown", names_an_unreadable_holder_as_unknown},
    {"lists_and_removes_names", lists_and_removes_names},
    {"says_why_a_file_cannot_be_opened", says_why_a_file_cannot_be_opened},
    {"appends_at_the_end_wherever_that_is", appends_at_the_end_wherever_that_is},
    {"renames_in_place_of_what_was_there", renames_in_place_of_what_was_there},
    {"tells_whether_a_path_still_names_the_open_file",
     tells_whether_a_path_still_names_the_open_file},
    {"reserves_zeros_and_keeps_what_was_there", reserves_zeros_and_keeps_what_was_there},
    {"says_how_much_is_free", says_how_much_is_free},
    {"opens_names_longer_than_its_inline_buffer", opens_names_longer_than_its_inline_buffer},
    {"opens_more_files_than_were_reserved", opens_more_files_than_were_reserved},
    {"allocates_nothing_while_sealed", allocates_nothing_while_sealed},
    {"reports_each_injected_fault_once", reports_each_injected_fault_once},
    {"maps_faults_to_statuses", maps_faults_to_statuses},
    {"opens_or_says_no_memory", opens_or_says_no_memory},
    {"makes_files_for_the_owner_only", makes_files_for_the_owner_only},
    {"follows_no_link_in_place_of_a_file", follows_no_link_in_place_of_a_file},
    {"closes_every_descriptor_in_a_forked_child", closes_every_descriptor_in_a_forked_child},
    {"works_where_direct_is_refused", works_where_direct_is_refused},
    {"nothing_is_written_beyond_the_limit", nothing_is_written_beyond_the_limit},
    {"a_kept_directory_stays_what_it_was", a_kept_directory_stays_what_it_was},
};
#define BODIES (sizeof(bodies) / sizeof(bodies[0]))

int main(void)
{
    static struct CMUnitTest tests[SETUPS * BODIES];
    static char names[SETUPS * BODIES][96];
    size_t count = 0;
    const char *refusal = uring_refusal();
    if (refusal != NULL)
        print_message("skipped: no io_uring here: %s\n", refusal);
    for (size_t i = 0; i < SETUPS * BODIES; i++) {
        const struct setup *setup = &setups[i / BODIES];
        if (setup->backend == SC_BACKEND_URING && refusal != NULL)
            continue;
        (void)snprintf(names[count], sizeof(names[0]), "%s: %s", setup->name,
                       bodies[i % BODIES].name);
        tests[count] = (struct CMUnitTest){.name = names[count],
                                           .test_func = bodies[i % BODIES].function,
                                           .setup_func = begin,
                                           .teardown_func = end,
                                           .initial_state = (void *)(uintptr_t)setup};
        count++;
    }
    return _cmocka_run_group_tests("io", tests, count, NULL, NULL);
}
