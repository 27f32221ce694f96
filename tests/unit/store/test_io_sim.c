/* The sim disk: its device model, each fault, crash images, and that seeds decide everything.
 *
 * Holds: no test depends on time; those on the loop's virtual clock compare exact nanoseconds.
 * Threads: one (the seeded loop), but where a test says otherwise. */
#include "tests/unit/store/io_fixture.h"

#define SECTOR SC_IO_SIM_SECTOR_BYTES

static const struct setup sim_loop = {
    .name = "sim/loop", .backend = SC_BACKEND_SIM, .thread_count = 0};
static const struct setup sim_threads = {
    .name = "sim/threads", .backend = SC_BACKEND_SIM, .thread_count = 3};

static uint64_t size_of(struct fixture *fx, struct sc_io_file *file)
{
    uint64_t bytes = 0;
    assert_int_equal(sc_io_file_size(fx->io, file, &bytes, NULL), SPEC_OK);
    return bytes;
}

static void pwrite_at(struct fixture *fx, struct sc_io_file *file, const void *data, uint64_t bytes,
                      uint64_t offset)
{
    assert_int_equal(sc_io_file_pwrite(fx->io, file, data, bytes, offset, NULL), SPEC_OK);
}

static void pread_at(struct fixture *fx, struct sc_io_file *file, void *data, uint64_t bytes,
                     uint64_t offset)
{
    assert_int_equal(sc_io_file_pread(fx->io, file, data, bytes, offset, NULL), SPEC_OK);
}

/* ---- The device ----------------------------------------------------------------------------- */

/* 1 GB/s and 10 us: a page takes 4096 ns of the device, and completes 10 us after its turn. */
static void shares_bandwidth_and_overlaps_latency(void **state)
{
    (void)state;
    enum { OPS = 9 };
    struct fixture fx;
    struct test_op tests[OPS];
    fixture_init(&fx, &sim_loop, 1, 0, 0);
    uint8_t *data = page_memory(OPS * PAGE);
    memset(data, 1, OPS * PAGE);
    struct sc_io_file *file = open_file(&fx, "f", NEW_DIRECT);
    const uint64_t start_ns = sc_exec_now_ns(fx.exec);
    for (uint32_t i = 0; i < OPS; i++)
        op_set(&fx, &tests[i], file, SC_IO_WRITE, data, PAGE, (uint64_t)i * PAGE);
    submit(&fx, tests, OPS);
    wait_done(&fx, OPS);
    for (uint32_t i = 0; i < OPS; i++)
        assert_int_equal(tests[i].done_ns - start_ns, (i + 1) * 4096 + 10000);
    /* An idle device starts at once. */
    const uint64_t then_ns = sc_exec_now_ns(fx.exec);
    op_set(&fx, &tests[0], file, SC_IO_READ, data, OPS * PAGE, 0);
    submit(&fx, tests, 1);
    wait_done(&fx, OPS + 1);
    assert_int_equal(tests[0].done_ns - then_ns, OPS * 4096 + 10000);
    sc_io_file_close(fx.io, file);
    fixture_done(&fx);
    free(data);
}

/* 100,000 operations a second: a page takes 10,000 ns of the device, four take their bytes' time.
 */
static void begins_no_more_operations_than_the_device_can(void **state)
{
    (void)state;
    static const struct setup slow = {
        .name = "sim/slow", .backend = SC_BACKEND_SIM, .ops_per_s = 100000};
    struct fixture fx;
    struct test_op tests[3];
    fixture_init(&fx, &slow, 1, 0, 0);
    uint8_t *data = page_memory(6 * PAGE);
    memset(data, 1, 6 * PAGE);
    struct sc_io_file *file = open_file(&fx, "f", NEW_DIRECT);
    const uint64_t start_ns = sc_exec_now_ns(fx.exec);
    op_set(&fx, &tests[0], file, SC_IO_WRITE, data, PAGE, 0);
    op_set(&fx, &tests[1], file, SC_IO_WRITE, data, PAGE, PAGE);
    op_set(&fx, &tests[2], file, SC_IO_WRITE, data, 4 * PAGE, 2 * PAGE);
    submit(&fx, tests, 3);
    wait_done(&fx, 3);
    assert_int_equal(tests[0].done_ns - start_ns, 10000 + 10000);
    assert_int_equal(tests[1].done_ns - start_ns, 20000 + 10000);
    assert_int_equal(tests[2].done_ns - start_ns, 20000 + 4 * 4096 + 10000);
    sc_io_file_close(fx.io, file);
    fixture_done(&fx);
    free(data);
}

/* 1 GB/s, and from the end of the first page on a tenth of it. */
static void changes_its_rate_from_the_next_transfer_on(void **state)
{
    (void)state;
    struct fixture fx;
    struct test_op tests[3];
    fixture_init(&fx, &sim_loop, 1, 0, 0);
    uint8_t *data = page_memory(3 * PAGE);
    memset(data, 1, 3 * PAGE);
    struct sc_io_file *file = open_file(&fx, "f", NEW_DIRECT);
    const uint64_t start_ns = sc_exec_now_ns(fx.exec);
    for (uint32_t i = 0; i < 3; i++)
        op_set(&fx, &tests[i], file, SC_IO_WRITE, data, PAGE, (uint64_t)i * PAGE);
    submit(&fx, tests, 3);
    while (sc_exec_now_ns(fx.exec) == start_ns)
        assert_true(sc_exec_step_one(fx.exec)); /* the first has moved, the second has begun */
    sc_io_sim_disk_rate(fx.disk, 100000000);
    wait_done(&fx, 3);
    assert_int_equal(tests[0].done_ns - start_ns, 4096 + 10000);
    assert_int_equal(tests[1].done_ns - start_ns, 2 * 4096 + 10000);
    assert_int_equal(tests[2].done_ns - start_ns, 2 * 4096 + 40960 + 10000);
    sc_io_file_close(fx.io, file);
    fixture_done(&fx);
    free(data);
}

/* ---- Faults, one by one --------------------------------------------------------------------- */

static void fails_the_nth_operation(void **state)
{
    (void)state;
    struct fixture fx;
    fixture_init(&fx, &sim_loop, 1, 0, 0);
    uint8_t *data = page_memory(PAGE);
    memset(data, 1, PAGE);
    struct sc_io_file *file = open_file(&fx, "f", NEW_DIRECT);
    sc_io_sim_fault_nth(fx.disk, SC_SIM_WRITE_EIO, 1);
    sc_io_sim_fault_nth(fx.disk, SC_SIM_NO_SPACE, 1); /* the second that gets this far */
    static const spec_status expected[] = {SPEC_OK, SPEC_E_IO, SPEC_E_NO_SPACE, SPEC_OK};
    for (uint32_t i = 0; i < 4; i++)
        assert_int_equal(transfer(&fx, file, SC_IO_WRITE, data, PAGE, i * PAGE), expected[i]);
    assert_int_equal(sc_io_sim_fault_fired(fx.disk, SC_SIM_WRITE_EIO), 1);
    sc_io_sim_fault_nth(fx.disk, SC_SIM_NO_SPACE, 0);
    assert_int_equal(sc_io_file_reserve(fx.io, file, 100 * PAGE, NULL), SPEC_E_NO_SPACE);
    assert_int_equal(size_of(&fx, file), 4 * PAGE);
    sc_io_sim_fault_nth(fx.disk, SC_SIM_READ_EIO, 0);
    assert_int_equal(sc_io_file_pread(fx.io, file, data, PAGE, 0, NULL), SPEC_E_IO);
    assert_int_equal(sc_io_file_pread(fx.io, file, data, PAGE, 0, NULL), SPEC_OK);
    sc_io_file_close(fx.io, file);
    fixture_done(&fx);
    free(data);
}

static void keeps_faults_to_their_scope(void **state)
{
    (void)state;
    struct fixture fx;
    fixture_init(&fx, &sim_loop, 1, 0, 0);
    struct sc_io_file *log = open_file(&fx, "log", NEW_FILE);
    struct sc_io_file *seg = open_file(&fx, "seg-1", NEW_FILE);
    sc_io_sim_fault_scope(fx.disk, "/seg-");
    sc_io_sim_fault_ppm(fx.disk, SC_SIM_WRITE_EIO, 1000000);
    for (uint32_t i = 0; i < 10; i++) {
        assert_int_equal(sc_io_file_pwrite(fx.io, log, "x", 1, 0, NULL), SPEC_OK);
        assert_int_equal(sc_io_file_pwrite(fx.io, seg, "x", 1, 0, NULL), SPEC_E_IO);
    }
    assert_int_equal(sc_io_sim_fault_fired(fx.disk, SC_SIM_WRITE_EIO), 10);
    sc_io_file_close(fx.io, log);
    sc_io_file_close(fx.io, seg);
    fixture_done(&fx);
}

static void continues_a_short_transfer(void **state)
{
    (void)state;
    struct fixture fx;
    fixture_init(&fx, &sim_loop, 1, 0, 0);
    uint8_t *data = page_memory(5 * PAGE), *back = page_memory(5 * PAGE);
    fill(data, 5 * PAGE, 1);
    struct sc_io_file *file = open_file(&fx, "f", NEW_DIRECT);
    sc_io_sim_fault_ppm(fx.disk, SC_SIM_SHORT, 1000000);
    const uint64_t start_ns = sc_exec_now_ns(fx.exec);
    assert_int_equal(transfer(&fx, file, SC_IO_WRITE, data, 5 * PAGE, PAGE), SPEC_OK);
    assert_int_equal(sc_exec_now_ns(fx.exec) - start_ns, 5 * 4096 + 10000);
    assert_int_equal(transfer(&fx, file, SC_IO_READ, back, 5 * PAGE, PAGE), SPEC_OK);
    assert_memory_equal(back, data, 5 * PAGE);
    assert_int_equal(sc_io_sim_fault_fired(fx.disk, SC_SIM_SHORT), 2);
    /* The second part fails: the operation does, once. */
    sc_io_sim_fault_nth(fx.disk, SC_SIM_WRITE_EIO, 1);
    assert_int_equal(transfer(&fx, file, SC_IO_WRITE, data, 5 * PAGE, PAGE), SPEC_E_IO);
    sc_io_file_close(fx.io, file);
    fixture_done(&fx);
    free(data);
    free(back);
}

/* Writes ones over zeros under one fault that says success; returns what the file then holds. */
static void write_under(struct fixture *fx, enum sc_io_sim_fault fault, uint8_t *ret_back)
{
    uint8_t *data = page_memory(2 * PAGE);
    struct sc_io_file *file = open_file(fx, "f", NEW_DIRECT);
    memset(data, 0, 2 * PAGE);
    for (uint32_t i = 0; i < 8; i += 2)
        assert_int_equal(transfer(fx, file, SC_IO_WRITE, data, 2 * PAGE, i * PAGE), SPEC_OK);
    memset(data, 1, 2 * PAGE);
    sc_io_sim_fault_nth(fx->disk, fault, 0);
    assert_int_equal(transfer(fx, file, SC_IO_WRITE, data, 2 * PAGE, 2 * PAGE), SPEC_OK);
    assert_int_equal(size_of(fx, file), 8 * PAGE);
    pread_at(fx, file, ret_back, 8 * PAGE, 0);
    sc_io_file_close(fx->io, file);
    free(data);
}

static void loses_tears_and_misdirects_writes(void **state)
{
    (void)state;
    uint8_t *back = page_memory(8 * PAGE);
    uint32_t torn_inside = 0;
    for (uint64_t seed = 0; seed < 50; seed++) {
        struct fixture fx;
        fixture_init(&fx, &sim_loop, seed, 0, 0);
        write_under(&fx, SC_SIM_LOST, back);
        for (uint32_t i = 0; i < 8 * PAGE; i++)
            assert_int_equal(back[i], 0);

        write_under(&fx, SC_SIM_TORN, back);
        uint32_t ones = 0;
        while (ones < 2 * PAGE && back[2 * PAGE + ones] == 1)
            ones++;
        assert_int_equal(ones % SECTOR, 0);
        assert_true(ones < 2 * PAGE);
        for (uint32_t i = 0; i < 8 * PAGE; i++)
            assert_int_equal(back[i], i >= 2 * PAGE && i < 2 * PAGE + ones);
        torn_inside += ones > 0;

        write_under(&fx, SC_SIM_MISDIRECTED, back);
        uint32_t first = 0, count = 0;
        while (first < 8 * PAGE && back[first] == 0)
            first++;
        for (uint32_t i = 0; i < 8 * PAGE; i++)
            count += back[i];
        assert_int_not_equal(first, 2 * PAGE);
        assert_int_equal(first % PAGE, 0);
        assert_int_equal(count, first == 7 * PAGE ? PAGE : 2 * PAGE); /* cut at the file's end */
        fixture_done(&fx);
    }
    assert_true(torn_inside > 25);
    free(back);
}

/* Four pages are written over two that hold ones: those may keep them, and no others. */
static void keeps_pages_that_held_something(void **state)
{
    (void)state;
    uint8_t *data = page_memory(4 * PAGE), *back = page_memory(6 * PAGE);
    uint32_t kept_all = 0, kept_some = 0;
    for (uint64_t seed = 0; seed < 64; seed++) {
        struct fixture fx;
        uint32_t kept = 0;
        fixture_init(&fx, &sim_loop, seed, 0, 0);
        struct sc_io_file *file = open_file(&fx, "f", NEW_DIRECT);
        assert_int_equal(sc_io_file_reserve(fx.io, file, 6 * PAGE, NULL), SPEC_OK);
        memset(data, 1, 2 * PAGE);
        assert_int_equal(transfer(&fx, file, SC_IO_WRITE, data, 2 * PAGE, 2 * PAGE), SPEC_OK);
        memset(data, 2, 4 * PAGE);
        sc_io_sim_fault_nth(fx.disk, SC_SIM_STALE, 0);
        assert_int_equal(transfer(&fx, file, SC_IO_WRITE, data, 4 * PAGE, PAGE), SPEC_OK);
        pread_at(&fx, file, back, 6 * PAGE, 0);
        for (uint32_t page = 0; page < 6; page++) {
            bool is_old = back[page * PAGE] == 1;
            assert_true(!is_old || page == 2 || page == 3);
            for (uint32_t i = 0; i < PAGE; i++)
                assert_int_equal(back[page * PAGE + i], page == 0 || page == 5 ? 0
                                                        : is_old               ? 1
                                                                               : 2);
            kept += is_old;
        }
        kept_all += kept == 2;
        kept_some += kept == 1;
        sc_io_file_close(fx.io, file);
        fixture_done(&fx);
    }
    assert_true(kept_all > 16 && kept_some > 8);
    free(back);
    free(data);
}

/* What a write that failed leaves is a first part of it, or all; a truncate that failed, all. */
static void fails_writes_half_way_and_truncates(void **state)
{
    (void)state;
    uint8_t data[1000], back[1000];
    uint32_t whole = 0, none = 0;
    memset(data, 3, sizeof(data));
    for (uint64_t seed = 0; seed < 64; seed++) {
        struct fixture fx;
        uint64_t size;
        fixture_init(&fx, &sim_loop, seed, 0, 0);
        struct sc_io_file *file = open_file(&fx, "f", SC_IO_OPEN_CREATE | SC_IO_OPEN_WRITE);
        sc_io_sim_fault_nth(fx.disk, SC_SIM_WRITE_PART, 0);
        assert_int_equal(sc_io_file_pwrite(fx.io, file, data, sizeof(data), 0, NULL), SPEC_E_IO);
        size = size_of(&fx, file);
        assert_true(size <= sizeof(data));
        if (size > 0)
            pread_at(&fx, file, back, size, 0);
        assert_memory_equal(back, data, size);
        whole += size == sizeof(data);
        none += size < 500;
        sc_io_sim_fault_nth(fx.disk, SC_SIM_CUT_EIO, 0);
        assert_int_equal(sc_io_file_truncate(fx.io, file, 0, NULL), SPEC_E_IO);
        assert_int_equal(size_of(&fx, file), size);
        assert_int_equal(sc_io_file_truncate(fx.io, file, 0, NULL), SPEC_OK);
        assert_int_equal(size_of(&fx, file), 0);
        sc_io_file_close(fx.io, file);
        fixture_done(&fx);
    }
    assert_true(whole > 16 && none > 8);
}

static void flips_one_bit_of_a_read(void **state)
{
    (void)state;
    struct fixture fx;
    fixture_init(&fx, &sim_loop, 1, 0, 0);
    uint8_t data[600], back[600];
    fill(data, sizeof(data), 1);
    struct sc_io_file *file = open_file(&fx, "f", NEW_FILE);
    pwrite_at(&fx, file, data, sizeof(data), 0);
    for (uint32_t i = 0; i < 100; i++) {
        sc_io_sim_fault_nth(fx.disk, SC_SIM_FLIP, 0);
        pread_at(&fx, file, back, sizeof(back), 0);
        uint32_t flips = 0;
        for (uint32_t j = 0; j < sizeof(data); j++)
            flips += (uint32_t)__builtin_popcount((unsigned)(data[j] ^ back[j]));
        assert_int_equal(flips, 1);
        pread_at(&fx, file, back, sizeof(back), 0);
        assert_memory_equal(back, data, sizeof(data)); /* the disk is right */
    }
    sc_io_file_close(fx.io, file);
    fixture_done(&fx);
}

static void completes_late_or_only_when_released(void **state)
{
    (void)state;
    struct fixture fx;
    struct test_op tests[3];
    fixture_init(&fx, &sim_loop, 1, 0, 0);
    uint8_t *data = page_memory(3 * PAGE), *back = page_memory(3 * PAGE);
    fill(data, 3 * PAGE, 1);
    struct sc_io_file *file = open_file(&fx, "f", NEW_DIRECT);
    for (uint32_t i = 0; i < 3; i++)
        op_set(&fx, &tests[i], file, SC_IO_WRITE, data + i * PAGE, PAGE, i * PAGE);
    sc_io_sim_fault_late_ns(fx.disk, 7000000);
    sc_io_sim_fault_nth(fx.disk, SC_SIM_LATE, 0);
    sc_io_sim_fault_nth(fx.disk, SC_SIM_NEVER, 1);
    const uint64_t start_ns = sc_exec_now_ns(fx.exec);
    submit(&fx, tests, 3);
    wait_done(&fx, 2);
    assert_int_equal(tests[0].done_ns - start_ns, 4096 + 10000 + 7000000);
    assert_int_equal(atomic_load(&tests[1].done_count), 0);
    assert_int_equal(tests[2].order, 0);     /* overtakes the late one */
    assert_false(sc_exec_step_one(fx.exec)); /* nothing will happen by itself */
    assert_int_equal(sc_io_sim_release_all(fx.disk), 1);
    wait_done(&fx, 3);
    assert_int_equal(tests[1].op.status, SPEC_OK);
    assert_int_equal(sc_io_sim_release_all(fx.disk), 0);
    assert_int_equal(transfer(&fx, file, SC_IO_READ, back, 3 * PAGE, 0), SPEC_OK);
    assert_memory_equal(back, data, 3 * PAGE);
    sc_io_file_close(fx.io, file);
    fixture_done(&fx);
    free(data);
    free(back);
}

static void runs_out_of_space_and_gets_it_back(void **state)
{
    (void)state;
    struct fixture fx;
    uint64_t bytes = 0;
    fixture_init(&fx, &sim_loop, 1, 1, 10 * PAGE);
    uint8_t *data = page_memory(8 * PAGE);
    memset(data, 1, 8 * PAGE);
    struct sc_io_file *file = open_file(&fx, "f", NEW_DIRECT);
    assert_int_equal(sc_io_file_reserve(fx.io, file, 11 * PAGE, NULL), SPEC_E_NO_SPACE);
    assert_int_equal(size_of(&fx, file), 0);
    assert_int_equal(sc_io_file_reserve(fx.io, file, 8 * PAGE, NULL), SPEC_OK);
    assert_int_equal(transfer(&fx, file, SC_IO_WRITE, data, 8 * PAGE, 0), SPEC_OK); /* inside */
    struct test_op test;
    op_set(&fx, &test, file, SC_IO_WRITE, data, 4 * PAGE, 8 * PAGE);
    submit(&fx, &test, 1);
    wait_done(&fx, 2);
    assert_int_equal(test.op.status, SPEC_E_NO_SPACE);
    assert_int_equal(test.op.sys_errno, ENOSPC);
    assert_int_equal(size_of(&fx, file), 8 * PAGE);
    assert_int_equal(sc_io_unlink(fx.io, path_of(&fx, "f"), NULL), SPEC_OK);
    assert_int_equal(sc_io_free_bytes(fx.io, fx.dir, &bytes, NULL), SPEC_OK);
    assert_int_equal(bytes, 2 * PAGE); /* still open */
    sc_io_file_close(fx.io, file);
    assert_int_equal(sc_io_free_bytes(fx.io, fx.dir, &bytes, NULL), SPEC_OK);
    assert_int_equal(bytes, 10 * PAGE);
    fixture_done(&fx);
    free(data);
}

/* ---- Power cuts ----------------------------------------------------------------------------- */

/* Closes the back end, crashes the disk, opens again: what a killed process and machine leave. */
static void crash(struct fixture *fx, uint64_t seed)
{
    sc_io_close(fx->io);
    assert_int_equal(sc_io_sim_disk_crash(fx->disk, seed, NULL), SPEC_OK);
    fixture_io_open(fx, &fx->io);
}

static bool file_exists(struct fixture *fx, const char *name)
{
    return sc_io_sim_disk_peek(fx->disk, path_of(fx, name), 0, NULL, 0);
}

static void stops_everything_when_the_power_goes(void **state)
{
    (void)state;
    struct fixture fx;
    uint8_t *data = page_memory(PAGE);
    memset(data, 1, PAGE);
    fixture_init(&fx, &sim_loop, 1, 1, 0);
    struct sc_io_file *file = open_file(&fx, "f", NEW_DIRECT);
    assert_int_equal(sc_io_file_reserve(fx.io, file, 8 * PAGE, NULL), SPEC_OK);
    assert_int_equal(sc_io_file_sync(fx.io, file, NULL), SPEC_OK);
    sc_io_sim_power_off_after(fx.disk, 2);
    assert_int_equal(transfer(&fx, file, SC_IO_WRITE, data, PAGE, 0), SPEC_OK);
    assert_int_equal(transfer(&fx, file, SC_IO_READ, data, PAGE, 0), SPEC_OK); /* no change */
    assert_int_equal(sc_io_file_sync(fx.io, file, NULL), SPEC_OK);
    assert_int_equal(transfer(&fx, file, SC_IO_WRITE, data, PAGE, PAGE), SPEC_E_IO);
    assert_int_equal(transfer(&fx, file, SC_IO_READ, data, PAGE, 0), SPEC_E_IO);
    assert_int_equal(sc_io_file_sync(fx.io, file, NULL), SPEC_E_IO);
    assert_int_equal(sc_io_file_reserve(fx.io, file, 9 * PAGE, NULL), SPEC_E_IO);
    assert_int_equal(sc_io_file_truncate(fx.io, file, 0, NULL), SPEC_E_IO);
    assert_int_equal(sc_io_mkdir(fx.io, path_of(&fx, "d"), NULL), SPEC_E_IO);
    assert_int_equal(sc_io_unlink(fx.io, path_of(&fx, "f"), NULL), SPEC_E_IO);
    struct sc_io_file *other = NULL;
    assert_int_equal(sc_io_file_open(fx.io, path_of(&fx, "f"), 0, &other, NULL), SPEC_E_IO);
    sc_io_file_close(fx.io, file);
    crash(&fx, 1);
    file = open_file(&fx, "f", SC_IO_OPEN_WRITE | SC_IO_OPEN_DIRECT); /* power is back */
    assert_int_equal(size_of(&fx, file), 8 * PAGE);
    assert_int_equal(transfer(&fx, file, SC_IO_READ, data, PAGE, 0), SPEC_OK);
    assert_int_equal(data[0], 1);
    assert_int_equal(transfer(&fx, file, SC_IO_READ, data, PAGE, PAGE), SPEC_OK);
    assert_int_equal(data[0], 0);
    sc_io_file_close(fx.io, file);
    fixture_done(&fx);
    free(data);
}

/* Eight synced pages of 1s; then page i is overwritten with 2s, in order. After the cut each sector
 * is all 1s or all 2s; over the seeds every kind of loss appears. */
static void keeps_what_was_synced_and_a_seeded_part_of_the_rest(void **state)
{
    (void)state;
    enum { PAGES = 8, SECTORS = PAGES * 8, SEEDS = 400 };
    uint32_t nothing = 0, everything = 0, prefix = 0, torn = 0, newer_without_older = 0;
    uint8_t *data = page_memory(PAGES * PAGE);
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        struct fixture fx;
        fixture_init(&fx, &sim_loop, 1, 1, 0);
        struct sc_io_file *file = open_file(&fx, "f", NEW_DIRECT);
        memset(data, 1, PAGES * PAGE);
        assert_int_equal(transfer(&fx, file, SC_IO_WRITE, data, PAGES * PAGE, 0), SPEC_OK);
        assert_int_equal(sc_io_file_sync(fx.io, file, NULL), SPEC_OK);
        memset(data, 2, PAGES * PAGE);
        for (uint32_t i = 0; i < PAGES; i++)
            assert_int_equal(transfer(&fx, file, SC_IO_WRITE, data, PAGE, i * PAGE), SPEC_OK);
        sc_io_file_close(fx.io, file);
        crash(&fx, seed);
        assert_true(sc_io_sim_disk_peek(fx.disk, path_of(&fx, "f"), 0, data, PAGES * PAGE));
        uint32_t kept = 0, boundaries = 0, split_pages = 0;
        for (uint32_t i = 0; i < SECTORS; i++) {
            for (uint32_t j = 1; j < SECTOR; j++)
                assert_int_equal(data[i * SECTOR + j], data[i * SECTOR]);
            const bool is_new = data[i * SECTOR] == 2;
            assert_true(is_new || data[i * SECTOR] == 1);
            kept += is_new;
            if (i > 0 && data[i * SECTOR] != data[(i - 1) * SECTOR]) {
                boundaries++;
                split_pages += i % 8 != 0;
            }
        }
        const bool is_prefix = boundaries == 1 && data[0] == 2;
        nothing += kept == 0;
        everything += kept == SECTORS;
        prefix += is_prefix;
        torn += is_prefix && split_pages == 1;
        newer_without_older += kept > 0 && kept < SECTORS && !is_prefix;
        fixture_done(&fx);
    }
    assert_true(nothing > SEEDS / 10);
    assert_true(everything > SEEDS / 10);
    assert_true(prefix > SEEDS / 20);
    assert_true(torn > SEEDS / 40);
    assert_true(newer_without_older > SEEDS / 5);
    free(data);
}

static void loses_names_that_no_sync_covered_from_the_last(void **state)
{
    (void)state;
    enum { SEEDS = 200 };
    uint32_t counts[4] = {0};
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        struct fixture fx;
        fixture_init(&fx, &sim_loop, 1, 1, 0);
        struct sc_io_file *log = open_file(&fx, "log", NEW_FILE);
        struct sc_io_file *a = open_file(&fx, "a", NEW_FILE);
        pwrite_at(&fx, a, "aaaa", 4, 0);
        assert_int_equal(sc_io_file_sync(fx.io, log, NULL), SPEC_OK); /* the names of both */
        struct sc_io_file *b = open_file(&fx, "b", NEW_FILE);
        assert_int_equal(sc_io_unlink(fx.io, path_of(&fx, "a"), NULL), SPEC_OK);
        struct sc_io_file *c = open_file(&fx, "c", NEW_FILE);
        pwrite_at(&fx, c, "cccc", 4, 0);
        sc_io_file_close(fx.io, log);
        sc_io_file_close(fx.io, a);
        sc_io_file_close(fx.io, b);
        sc_io_file_close(fx.io, c);
        crash(&fx, seed);
        assert_true(file_exists(&fx, "log"));
        /* Names last in order: b, then a's end, then c. */
        const bool has_b = file_exists(&fx, "b"), has_a = file_exists(&fx, "a");
        const bool has_c = file_exists(&fx, "c");
        assert_true(has_b || has_a);
        assert_false(has_c && has_a);
        counts[has_b + !has_a + has_c]++;
        fixture_done(&fx);
    }
    for (uint32_t i = 0; i < 4; i++)
        assert_true(counts[i] > SEEDS / 20);
}

/* With history, so that the cut can fall between the rename and the sync of its directory. */
static void renames_whole_or_not_at_all(void **state)
{
    (void)state;
    struct fixture fx;
    fixture_init(&fx, &sim_loop, 1, 2, 0);
    struct sc_io_file *old = open_file(&fx, "log", NEW_FILE);
    pwrite_at(&fx, old, "old", 3, 0);
    assert_int_equal(sc_io_file_sync(fx.io, old, NULL), SPEC_OK);
    struct sc_io_file *new = open_file(&fx, "log.new", NEW_FILE);
    pwrite_at(&fx, new, "new", 3, 0);
    assert_int_equal(sc_io_file_sync(fx.io, new, NULL), SPEC_OK);
    const uint64_t before = sc_io_sim_disk_events(fx.disk);
    assert_int_equal(sc_io_rename(fx.io, path_of(&fx, "log.new"), path_of(&fx, "log"), NULL),
                     SPEC_OK);
    const uint64_t after = sc_io_sim_disk_events(fx.disk);
    assert_int_equal(after, before + 2);
    uint32_t renamed[3] = {0};
    enum { SEEDS = 100 };
    for (uint64_t events = before; events <= after; events++)
        for (uint64_t seed = 0; seed < SEEDS; seed++) {
            struct sc_io_sim_disk *fork = NULL;
            char text[3] = "";
            assert_int_equal(sc_io_sim_disk_fork(fx.disk, events, seed, &fork, NULL), SPEC_OK);
            assert_true(sc_io_sim_disk_peek(fork, path_of(&fx, "log"), 0, text, 3));
            const bool is_old = memcmp(text, "old", 3) == 0;
            assert_true(is_old || memcmp(text, "new", 3) == 0);
            assert_int_equal(sc_io_sim_disk_peek(fork, path_of(&fx, "log.new"), 0, text, 3),
                             is_old);
            renamed[events - before] += !is_old;
            sc_io_sim_disk_close(fork);
        }
    assert_int_equal(renamed[0], 0);
    assert_true(renamed[1] > SEEDS / 10 && renamed[1] < SEEDS - SEEDS / 10);
    assert_int_equal(renamed[2], SEEDS);
    sc_io_file_close(fx.io, old);
    sc_io_file_close(fx.io, new);
    fixture_done(&fx);
}

/* The sync of a rename covers names, not the data of the file that it renames. */
static void loses_data_that_was_renamed_and_not_synced(void **state)
{
    (void)state;
    uint32_t lost = 0;
    for (uint64_t seed = 0; seed < 50; seed++) {
        struct fixture fx;
        fixture_init(&fx, &sim_loop, 1, 1, 0);
        struct sc_io_file *new = open_file(&fx, "log.new", NEW_FILE);
        pwrite_at(&fx, new, "new", 3, 0);
        assert_int_equal(sc_io_rename(fx.io, path_of(&fx, "log.new"), path_of(&fx, "log"), NULL),
                         SPEC_OK);
        sc_io_file_close(fx.io, new);
        crash(&fx, seed);
        assert_true(file_exists(&fx, "log"));
        assert_false(file_exists(&fx, "log.new"));
        char text[3];
        lost += !sc_io_sim_disk_peek(fx.disk, path_of(&fx, "log"), 0, text, 3);
        fixture_done(&fx);
    }
    assert_true(lost > 5 && lost < 45);
}

/* After a failed sync, a sync that succeeds does not bring back what was lost. */
static void forgets_a_part_of_what_a_failed_sync_covered(void **state)
{
    (void)state;
    enum { SEEDS = 100, RECORDS = 6 };
    for (uint32_t journal = 1; journal <= 2; journal++) {
        uint32_t lost = 0, kept = 0;
        for (uint64_t seed = 0; seed < SEEDS; seed++) {
            struct fixture fx;
            uint8_t back[RECORDS + 2];
            fixture_init(&fx, &sim_loop, seed, journal, 0);
            struct sc_io_file *file = open_file(&fx, "f", NEW_FILE);
            pwrite_at(&fx, file, "00000000", 8, 0);
            assert_int_equal(sc_io_file_sync(fx.io, file, NULL), SPEC_OK);
            for (uint32_t i = 0; i < RECORDS; i++)
                pwrite_at(&fx, file, "1", 1, i);
            sc_io_sim_fault_nth(fx.disk, SC_SIM_SYNC_EIO, 0);
            assert_int_equal(sc_io_file_sync(fx.io, file, NULL), SPEC_E_IO);
            pwrite_at(&fx, file, "2", 1, RECORDS);
            assert_int_equal(sc_io_file_sync(fx.io, file, NULL), SPEC_OK);
            pread_at(&fx, file, back, RECORDS, 0);
            assert_memory_equal(back, "111111", RECORDS); /* the cache still shows them */
            sc_io_file_close(fx.io, file);
            crash(&fx, seed);
            assert_true(sc_io_sim_disk_peek(fx.disk, path_of(&fx, "f"), 0, back, sizeof(back)));
            assert_int_equal(back[RECORDS], '2');
            assert_int_equal(back[RECORDS + 1], '0');
            for (uint32_t i = 0; i < RECORDS; i++) {
                lost += back[i] == '0';
                kept += back[i] == '1';
            }
            fixture_done(&fx);
        }
        assert_int_equal(lost + kept, SEEDS * RECORDS);
        assert_true(lost > SEEDS && kept > SEEDS);
    }
}

/* A log of records, synced after every third: whatever the point of the cut, all records that a
 * sync covered are there. */
static void forks_at_every_event_of_its_history(void **state)
{
    (void)state;
    enum { RECORDS = 20, BYTES = 700 };
    struct fixture fx;
    uint64_t synced_at[RECORDS]; /* events after the sync that covers record i */
    uint8_t record[BYTES], back[BYTES];
    fixture_init(&fx, &sim_loop, 1, 2, 0);
    struct sc_io_file *file = open_file(&fx, "log", NEW_FILE);
    for (uint32_t i = 0; i < RECORDS; i++) {
        fill(record, BYTES, i);
        pwrite_at(&fx, file, record, BYTES, (uint64_t)i * BYTES);
        synced_at[i] = UINT64_MAX;
        if (i % 3 == 2) {
            assert_int_equal(sc_io_file_sync(fx.io, file, NULL), SPEC_OK);
            for (uint32_t j = i - 2; j <= i; j++)
                synced_at[j] = sc_io_sim_disk_events(fx.disk);
        }
    }
    const uint64_t events = sc_io_sim_disk_events(fx.disk);
    assert_int_equal(events, 1 + 1 + RECORDS + RECORDS / 3);
    uint64_t missing = 0;
    for (uint64_t event = 0; event <= events; event++)
        for (uint64_t seed = 0; seed < 20; seed++) {
            struct sc_io_sim_disk *fork = NULL;
            assert_int_equal(sc_io_sim_disk_fork(fx.disk, event, seed, &fork, NULL), SPEC_OK);
            for (uint32_t i = 0; i < RECORDS; i++) {
                fill(record, BYTES, i);
                const bool is_there = sc_io_sim_disk_peek(fork, path_of(&fx, "log"),
                                                          (uint64_t)i * BYTES, back, BYTES) &&
                                      memcmp(back, record, BYTES) == 0;
                if (event >= synced_at[i])
                    assert_true(is_there);
                missing += event >= 3 + i + i / 3 && !is_there; /* was written by then */
            }
            assert_int_equal(sc_io_sim_disk_events(fork), 0);
            sc_io_sim_disk_close(fork);
        }
    assert_true(missing > 0);
    struct sc_io_sim_disk *fork = NULL;
    assert_int_equal(sc_io_sim_disk_fork(fx.disk, events + 1, 1, &fork, NULL), SPEC_E_INVALID);
    assert_null(fork);
    sc_io_file_close(fx.io, file);
    fixture_done(&fx);
}

static void refuses_to_crash_without_a_journal(void **state)
{
    (void)state;
    struct fixture fx;
    struct sc_io_sim_disk *fork = NULL;
    fixture_init(&fx, &sim_loop, 1, 0, 0);
    assert_int_equal(sc_io_sim_disk_crash(fx.disk, 1, NULL), SPEC_E_INVALID);
    assert_int_equal(sc_io_sim_disk_fork(fx.disk, 0, 1, &fork, NULL), SPEC_E_INVALID);
    fixture_done(&fx);
}

/* ---- Seeds decide --------------------------------------------------------------------------- */

struct digest {
    struct sc_io_sim_disk *disk;
    uint64_t hash;
};

static void digest_file(const char *path, uint64_t bytes, void *user)
{
    struct digest *digest = user;
    uint8_t *data = malloc((size_t)bytes + 1);
    assert_non_null(data);
    assert_true(sc_io_sim_disk_peek(digest->disk, path, 0, data, bytes));
    for (uint64_t i = 0; i < bytes; i++)
        digest->hash = (digest->hash ^ data[i]) * 0x100000001b3u;
    for (const char *at = path; *at != '\0'; at++)
        digest->hash = (digest->hash ^ (uint8_t)*at) * 0x100000001b3u;
    free(data);
}

/* Random operations, several in flight, under every fault; then a crash. Statuses, times and the
 * disk's bytes go into the result. */
static uint64_t run_of(uint64_t seed)
{
    enum { OPS = 8, ROUNDS = 30 };
    struct fixture fx;
    struct test_op tests[OPS];
    uint64_t random = seed;
    fixture_init(&fx, &sim_loop, seed, 1, 0);
    uint8_t *data = page_memory(OPS * 4 * PAGE);
    struct sc_io_file *file = open_file(&fx, "f", NEW_DIRECT);
    assert_int_equal(sc_io_file_reserve(fx.io, file, 64 * PAGE, NULL), SPEC_OK);
    for (uint32_t i = 0; i < SC_SIM_FAULTS; i++)
        sc_io_sim_fault_ppm(fx.disk, (enum sc_io_sim_fault)i, 40000);
    struct digest digest = {.disk = fx.disk, .hash = 0xcbf29ce484222325u};
    for (uint32_t round = 0; round < ROUNDS; round++) {
        fill(data, OPS * 4 * PAGE, random_next(&random));
        for (uint32_t i = 0; i < OPS; i++) {
            const uint64_t bytes = (1 + random_below(&random, 4)) * PAGE;
            op_set(&fx, &tests[i], file, (uint32_t)random_below(&random, 2), data + i * 4 * PAGE,
                   bytes, random_below(&random, 60) * PAGE);
            tests[i].op.io_class = (uint32_t)random_below(&random, SC_IO_CLASSES);
        }
        submit(&fx, tests, OPS);
        while (atomic_load(&fx.done_count) < (round + 1) * OPS)
            if (!sc_exec_step_one(fx.exec))
                assert_true(sc_io_sim_release_all(fx.disk) > 0);
        for (uint32_t i = 0; i < OPS; i++) {
            assert_int_equal(atomic_load(&tests[i].done_count), 1);
            digest.hash =
                (digest.hash ^ (uint64_t)(uint32_t)tests[i].op.status) * 31 + tests[i].done_ns;
        }
        if (round % 10 == 9)
            digest.hash += sc_io_file_sync(fx.io, file, NULL) == SPEC_OK;
    }
    sc_io_file_close(fx.io, file);
    crash(&fx, seed);
    sc_io_sim_disk_files(fx.disk, digest_file, &digest);
    fixture_done(&fx);
    free(data);
    return digest.hash;
}

static void depends_on_its_seeds_alone(void **state)
{
    (void)state;
    uint64_t hashes[20];
    for (uint64_t seed = 0; seed < 20; seed++) {
        hashes[seed] = run_of(seed);
        assert_int_equal(run_of(seed), hashes[seed]);
        for (uint64_t i = 0; i < seed; i++)
            assert_int_not_equal(hashes[i], hashes[seed]);
    }
}

/* The disk beside a plain array: writes, truncates, reserves and reads of random ranges. */
static void agrees_with_a_plain_array(void **state)
{
    (void)state;
    enum { BYTES_MAX = 100000, STEPS = 3000 };
    uint8_t *twin = malloc(BYTES_MAX), *data = malloc(BYTES_MAX);
    assert_non_null(twin);
    assert_non_null(data);
    for (uint64_t seed = 1; seed <= 5; seed++) {
        struct fixture fx;
        uint64_t random = seed, size = 0;
        memset(twin, 0, BYTES_MAX);
        fixture_init(&fx, &sim_loop, seed, 1, 0);
        struct sc_io_file *file = open_file(&fx, "f", NEW_FILE);
        for (uint32_t step = 0; step < STEPS; step++) {
            const uint64_t choice = random_below(&random, 20);
            const uint64_t at = random_below(&random, BYTES_MAX);
            uint64_t bytes = random_below(&random, choice < 2 ? BYTES_MAX - at : 2000) + 1;
            bytes = bytes < BYTES_MAX - at ? bytes : BYTES_MAX - at;
            if (choice < 8) {
                fill(data, bytes, random_next(&random));
                pwrite_at(&fx, file, data, bytes, at);
                memcpy(twin + at, data, (size_t)bytes);
                size = size > at + bytes ? size : at + bytes;
            } else if (choice == 8) {
                assert_int_equal(sc_io_file_truncate(fx.io, file, at, NULL), SPEC_OK);
                memset(twin + at, 0, (size_t)(BYTES_MAX - at));
                size = at;
            } else if (choice == 9) {
                assert_int_equal(sc_io_file_reserve(fx.io, file, at, NULL), SPEC_OK);
                size = size > at ? size : at;
            } else if (choice == 10) {
                assert_int_equal(sc_io_file_sync(fx.io, file, NULL), SPEC_OK);
            } else {
                const bool is_inside = at + bytes <= size;
                assert_int_equal(sc_io_file_pread(fx.io, file, data, bytes, at, NULL),
                                 is_inside ? SPEC_OK : SPEC_E_IO);
                if (is_inside && memcmp(data, twin + at, (size_t)bytes) != 0)
                    fail_msg("seed %llu step %u differs", (unsigned long long)seed, step);
            }
            assert_int_equal(size_of(&fx, file), size);
        }
        /* Synced: a crash changes nothing. */
        assert_int_equal(sc_io_file_sync(fx.io, file, NULL), SPEC_OK);
        sc_io_file_close(fx.io, file);
        crash(&fx, seed);
        assert_true(sc_io_sim_disk_peek(fx.disk, path_of(&fx, "f"), 0, data, size));
        assert_memory_equal(data, twin, size);
        assert_false(sc_io_sim_disk_peek(fx.disk, path_of(&fx, "f"), size, data, 1));
        fixture_done(&fx);
    }
    free(twin);
    free(data);
}

static void copies_looks_and_damages(void **state)
{
    (void)state;
    struct fixture fx;
    char text[4] = "";
    fixture_init(&fx, &sim_loop, 1, 1, 0);
    struct sc_io_file *file = open_file(&fx, "f", NEW_FILE);
    pwrite_at(&fx, file, "abcd", 4, 0);
    struct sc_io_sim_disk *copy = NULL;
    assert_int_equal(sc_io_sim_disk_copy(fx.disk, &copy, NULL), SPEC_OK);
    const char *path = path_of(&fx, "f");
    assert_true(sc_io_sim_disk_poke(copy, path, 1, "XY", 2));
    assert_false(sc_io_sim_disk_poke(copy, path, 3, "XY", 2)); /* would reach past the end */
    assert_true(sc_io_sim_disk_peek(copy, path, 0, text, 4));
    assert_memory_equal(text, "aXYd", 4);
    assert_true(sc_io_sim_disk_resize(copy, path, 2));
    assert_false(sc_io_sim_disk_peek(copy, path, 0, text, 3));
    assert_false(sc_io_sim_disk_resize(copy, "/none", 2));
    pread_at(&fx, file, text, 4, 0);
    assert_memory_equal(text, "abcd", 4); /* the origin is as it was */
    sc_io_sim_disk_close(copy);
    sc_io_file_close(fx.io, file);
    fixture_done(&fx);
}

/* Real threads and real time: nothing is asserted about when, only that all complete once. */
static void completes_everything_on_threads_too(void **state)
{
    (void)state;
    enum { OPS = 400 };
    struct fixture fx;
    struct test_op *tests = calloc(OPS, sizeof(*tests));
    assert_non_null(tests);
    fixture_init(&fx, &sim_threads, 1, 1, 0);
    uint8_t *data = page_memory(OPS * PAGE);
    memset(data, 1, OPS * PAGE);
    struct sc_io_file *file = open_file(&fx, "f", NEW_DIRECT);
    assert_int_equal(sc_io_file_reserve(fx.io, file, OPS * PAGE, NULL), SPEC_OK);
    sc_io_sim_fault_late_ns(fx.disk, 100000);
    sc_io_sim_fault_ppm(fx.disk, SC_SIM_LATE, 100000);
    sc_io_sim_fault_ppm(fx.disk, SC_SIM_SHORT, 100000);
    sc_io_sim_fault_ppm(fx.disk, SC_SIM_NEVER, 20000);
    sc_io_sim_fault_ppm(fx.disk, SC_SIM_WRITE_EIO, 50000);
    for (uint32_t i = 0; i < OPS; i++) {
        op_set(&fx, &tests[i], file, i % 2, data + i * PAGE, PAGE, i * PAGE);
        tests[i].op.io_class = i % SC_IO_CLASSES;
    }
    submit(&fx, tests, OPS);
    uint64_t released = 0;
    for (uint32_t done; (done = atomic_load(&fx.done_count)) < OPS;) {
        const uint64_t deadline_ns = sc_exec_now_ns(fx.exec) + 1000000;
        if (!sc_exec_wait(fx.exec, &fx.done_count, done, deadline_ns))
            released += sc_io_sim_release_all(fx.disk);
    }
    uint32_t failures = 0;
    for (uint32_t i = 0; i < OPS; i++) {
        assert_int_equal(atomic_load(&tests[i].done_count), 1);
        failures += tests[i].op.status != SPEC_OK;
    }
    assert_int_equal(failures, sc_io_sim_fault_fired(fx.disk, SC_SIM_WRITE_EIO));
    assert_int_equal(released, sc_io_sim_fault_fired(fx.disk, SC_SIM_NEVER));
    sc_io_file_close(fx.io, file);
    fixture_done(&fx);
    free(data);
    free(tests);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shares_bandwidth_and_overlaps_latency),
        cmocka_unit_test(begins_no_more_operations_than_the_device_can),
        cmocka_unit_test(changes_its_rate_from_the_next_transfer_on),
        cmocka_unit_test(fails_the_nth_operation),
        cmocka_unit_test(keeps_faults_to_their_scope),
        cmocka_unit_test(continues_a_short_transfer),
        cmocka_unit_test(loses_tears_and_misdirects_writes),
        cmocka_unit_test(keeps_pages_that_held_something),
        cmocka_unit_test(fails_writes_half_way_and_truncates),
        cmocka_unit_test(flips_one_bit_of_a_read),
        cmocka_unit_test(completes_late_or_only_when_released),
        cmocka_unit_test(runs_out_of_space_and_gets_it_back),
        cmocka_unit_test(stops_everything_when_the_power_goes),
        cmocka_unit_test(keeps_what_was_synced_and_a_seeded_part_of_the_rest),
        cmocka_unit_test(loses_names_that_no_sync_covered_from_the_last),
        cmocka_unit_test(renames_whole_or_not_at_all),
        cmocka_unit_test(loses_data_that_was_renamed_and_not_synced),
        cmocka_unit_test(forgets_a_part_of_what_a_failed_sync_covered),
        cmocka_unit_test(forks_at_every_event_of_its_history),
        cmocka_unit_test(refuses_to_crash_without_a_journal),
        cmocka_unit_test(depends_on_its_seeds_alone),
        cmocka_unit_test(agrees_with_a_plain_array),
        cmocka_unit_test(copies_looks_and_damages),
        cmocka_unit_test(completes_everything_on_threads_too),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
