/* What a byte and an operation cost (store/io/io_cost.c): learned from reads whose cost is known,
 * and not from those that tell nothing.
 *
 * A page takes 10 us of the device here, a large operation 1 ns a byte: op_ns is 10,000 - 4,096.
 *
 * Threads: the fixture's. */
#include "store/load.h"
#include "tests/unit/store/io_fixture.h"

#define OPS_MAX    640u
#define LARGE      (1u << 20)
#define FILE_BYTES (8u << 20)
#define PREFETCH_GAP 12500.0

static const struct setup sim = {
    .name = "sim", .backend = SC_BACKEND_SIM, .thread_count = 0, .ops_per_s = 100000};

struct rig {
    struct fixture fx;
    struct sc_io_file *file;
    uint8_t *memory;
    struct test_op tests[OPS_MAX];
};

static struct rig *rig_make(const struct setup *setup)
{
    struct rig *rig = calloc(1, sizeof(*rig));
    assert_non_null(rig);
    fixture_init(&rig->fx, setup, 1, 0, 64u << 20);
    rig->file = open_file(&rig->fx, "f", NEW_DIRECT);
    rig->memory = aligned_alloc(PAGE, FILE_BYTES);
    assert_non_null(rig->memory);
    memset(rig->memory, 1, FILE_BYTES);
    assert_int_equal(transfer(&rig->fx, rig->file, SC_IO_WRITE, rig->memory, FILE_BYTES, 0),
                     SPEC_OK);
    return rig;
}

static void rig_free(struct rig *rig)
{
    sc_io_file_close(rig->fx.io, rig->file);
    fixture_done(&rig->fx);
    free(rig->memory);
    free(rig);
}

static struct sc_io_cost cost_of(const struct rig *rig)
{
    struct sc_io_cost cost;
    sc_io_cost(rig->fx.io, &cost);
    return cost;
}

static void begin(struct rig *rig, uint32_t kind, uint32_t first, uint32_t count, uint64_t bytes)
{
    struct sc_io_op *ops[OPS_MAX];
    for (uint32_t i = 0; i < count; i++) {
        uint64_t at = (first + i) * bytes % FILE_BYTES;
        op_set(&rig->fx, &rig->tests[first + i], rig->file, kind, rig->memory + at, bytes, at);
        ops[i] = &rig->tests[first + i].op;
    }
    sc_io_submit(rig->fx.io, ops, count);
}

/* A load: all at once, until all are there. */
static void load(struct rig *rig, uint32_t count, uint64_t bytes)
{
    uint32_t done = atomic_load(&rig->fx.done_count);
    begin(rig, SC_IO_READ, 0, count, bytes);
    wait_done(&rig->fx, done + count);
}

static void loads(struct rig *rig, uint32_t rounds)
{
    for (uint32_t i = 0; i < rounds; i++) {
        load(rig, 8, LARGE);
        load(rig, 256, PAGE);
    }
}

static void assert_near(double value, double expected, double share)
{
    if (!(value >= expected * (1 - share) && value <= expected * (1 + share)))
        fail_msg("%.0f, expected %.0f", value, expected);
}

static void assert_learned(const struct rig *rig)
{
    assert_true(cost_of(rig).is_measured);
    assert_near((double)cost_of(rig).bytes_per_s, 1e9, .02);
    assert_near((double)cost_of(rig).op_ns, 10000 - PAGE, .02);
}

static void assert_prediction(const struct rig *rig)
{
    assert_false(cost_of(rig).is_measured);
    assert_int_equal(cost_of(rig).bytes_per_s, 2500000000);
    assert_int_equal(cost_of(rig).op_ns, 5000);
}

static void both_numbers_come_from_loads_of_two_sizes(void **state)
{
    (void)state;
    struct rig *rig = rig_make(&sim);
    assert_prediction(rig);
    loads(rig, 3);
    assert_learned(rig);
    struct sc_io_cost first = cost_of(rig);
    rig_free(rig);
    rig = rig_make(&sim); /* and the same loads give the same numbers */
    loads(rig, 3);
    assert_int_equal(cost_of(rig).bytes_per_s, first.bytes_per_s);
    assert_int_equal(cost_of(rig).op_ns, first.op_ns);
    rig_free(rig);
}

static void a_gap_is_what_an_operation_costs(void **state)
{
    (void)state;
    assert_int_equal(sc_store_device_gap(&(struct sc_store_device){2000000000, 4000, true}), 8000);
    assert_int_equal(sc_store_device_gap(&(struct sc_store_device){UINT64_MAX, UINT64_MAX, true}),
                     64 << 10);
}

static void one_size_alone_leaves_the_prediction_of_a_gap(void **state)
{
    static const struct {
        uint64_t bytes;
        uint32_t count;
        double ns;
    } sizes[] = {{LARGE, 8, 1048576}, {PAGE, 256, 10000}, {64u << 10, 64, 65536}};
    (void)state;
    for (uint32_t i = 0; i < 3; i++) {
        struct rig *rig = rig_make(&sim);
        for (uint32_t j = 0; j < 5; j++)
            load(rig, sizes[i].count, sizes[i].bytes);
        struct sc_io_cost cost = cost_of(rig);
        double gap = (double)cost.op_ns * (double)cost.bytes_per_s / 1e9;
        assert_false(cost.is_measured);
        assert_near(gap, PREFETCH_GAP, .01);
        assert_near((double)cost.op_ns + (double)sizes[i].bytes * 1e9 / (double)cost.bytes_per_s,
                    sizes[i].ns, .02); /* what was seen comes out */
        rig_free(rig);
    }
}

static void stretches_that_stand_out_do_not_matter(void **state)
{
    (void)state;
    struct rig *rig = rig_make(&sim);
    loads(rig, 9);
    for (uint32_t i = 0; i < 4; i++) { /* a neighbour, a lost processor, a clock that jumps */
        sc_io_sim_fault_late_ns(rig->fx.disk, 3000000000);
        sc_io_sim_fault_nth(rig->fx.disk, SC_SIM_LATE, i);
        load(rig, 8, LARGE);
        sc_io_sim_fault_nth(rig->fx.disk, SC_SIM_LATE, i);
        load(rig, 256, PAGE);
        assert_learned(rig);
    }
    loads(rig, 5);
    assert_learned(rig);
    rig_free(rig);
}

static void what_is_no_measure_changes_nothing(void **state)
{
    (void)state;
    struct rig *rig = rig_make(&sim);
    for (uint32_t i = 0; i < 40; i++)
        load(rig, 1, LARGE); /* one at a time: the device waits for its reader */
    for (uint32_t i = 0; i < 5; i++)
        load(rig, 64, PAGE); /* too few */
    assert_prediction(rig);
    for (uint32_t i = 0; i < 5; i++) { /* beside writes */
        uint32_t done = atomic_load(&rig->fx.done_count);
        begin(rig, SC_IO_READ, 0, 8, LARGE);
        begin(rig, SC_IO_WRITE, 8, 1, LARGE);
        wait_done(&rig->fx, done + 9);
    }
    for (uint32_t i = 0; i < 5; i++) { /* one that fails was served by no device */
        sc_io_sim_fault_nth(rig->fx.disk, SC_SIM_READ_EIO, 100);
        load(rig, 256, PAGE);
    }
    assert_prediction(rig);
    loads(rig, 3);
    assert_learned(rig);
    rig_free(rig);
}

static bool nobody_wants_it(struct sc_io_op *op)
{
    (void)op;
    return false;
}

static void reads_that_are_dropped_count_for_nothing(void **state)
{
    (void)state;
    struct rig *rig = rig_make(&sim);
    struct sc_io_op *ops[OPS_MAX];
    for (uint32_t i = 0; i < 5; i++) {
        uint32_t done = atomic_load(&rig->fx.done_count);
        for (uint32_t j = 0; j < 512; j++) {
            op_set(&rig->fx, &rig->tests[j], rig->file, SC_IO_READ, rig->memory, PAGE, 0);
            rig->tests[j].op.start = j % 2 == 1 ? nobody_wants_it : NULL;
            ops[j] = &rig->tests[j].op;
        }
        sc_io_submit(rig->fx.io, ops, 512);
        wait_done(&rig->fx, done + 512);
    }
    assert_prediction(rig);
    rig_free(rig);
}

/* Always something in flight: the next ones are submitted when half are done. */
static void a_device_that_never_rests_is_measured(void **state)
{
    (void)state;
    struct rig *rig = rig_make(&sim);
    uint32_t due = atomic_load(&rig->fx.done_count), last = 0;
    for (uint32_t i = 0; i < 60; i++) {
        bool is_large = i / 3 % 2 == 1; /* three of a kind */
        uint32_t count = is_large ? 8 : 256, place = i % 2;
        wait_done(&rig->fx, due - last / 2); /* those of its place, the last but one, are done */
        begin(rig, SC_IO_READ, is_large ? 512 + place * 8 : place * 256, count,
              is_large ? LARGE : PAGE);
        due += count;
        last = count;
    }
    wait_done(&rig->fx, due);
    assert_true(cost_of(rig).is_measured);
    assert_near((double)cost_of(rig).bytes_per_s, 1e9, .05);
    assert_near((double)cost_of(rig).op_ns, 10000 - PAGE, .05);
    rig_free(rig);
}

#define THREADS 4u
#define EACH    160u

struct submitter {
    struct rig *rig;
    pthread_t thread;
    uint8_t *memory;
    struct sc_io_op ops[EACH];
    _Atomic uint32_t done_count;
};

static void one_is_done(struct sc_io_op *op)
{
    struct submitter *own = op->user;
    (void)atomic_fetch_add(&own->done_count, 1);
}

static void *submits(void *user)
{
    struct submitter *own = user;
    struct sc_io_op *ops[EACH];
    for (uint32_t i = 1; i <= 30; i++) {
        for (uint32_t j = 0; j < EACH; j++) {
            own->ops[j] = (struct sc_io_op){.file = own->rig->file,
                                            .buffer = own->memory + j * PAGE,
                                            .offset = j * PAGE,
                                            .bytes = PAGE,
                                            .kind = SC_IO_READ,
                                            .io_class = SC_IO_CLASS_DEMAND,
                                            .done = one_is_done,
                                            .user = own};
            ops[j] = &own->ops[j];
        }
        sc_io_submit(own->rig->fx.io, ops, EACH);
        while (atomic_load(&own->done_count) < i * EACH)
            (void)usleep(100);
    }
    return NULL;
}

static void threads_may_submit_and_ask_at_once(void **state)
{
    static const struct setup threads = {
        .name = "pread", .backend = SC_BACKEND_PREAD, .thread_count = 2};
    (void)state;
    struct rig *rig = rig_make(&threads);
    struct submitter *own = calloc(THREADS, sizeof(*own));
    assert_non_null(own);
    for (uint32_t i = 0; i < THREADS; i++) {
        own[i].rig = rig;
        own[i].memory = rig->memory + i * EACH * PAGE;
        assert_int_equal(pthread_create(&own[i].thread, NULL, submits, &own[i]), 0);
    }
    for (uint32_t i = 0; i < 200; i++) {
        assert_true(cost_of(rig).bytes_per_s > 0);
        assert_true(cost_of(rig).op_ns > 0);
        (void)usleep(200);
    }
    for (uint32_t i = 0; i < THREADS; i++)
        assert_int_equal(pthread_join(own[i].thread, NULL), 0);
    free(own);
    rig_free(rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_numbers_come_from_loads_of_two_sizes),
        cmocka_unit_test(a_gap_is_what_an_operation_costs),
        cmocka_unit_test(one_size_alone_leaves_the_prediction_of_a_gap),
        cmocka_unit_test(stretches_that_stand_out_do_not_matter),
        cmocka_unit_test(what_is_no_measure_changes_nothing),
        cmocka_unit_test(reads_that_are_dropped_count_for_nothing),
        cmocka_unit_test(a_device_that_never_rests_is_measured),
        cmocka_unit_test(threads_may_submit_and_ask_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
