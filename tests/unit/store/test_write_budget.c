/* What the device was written: counts, and the bucket of the write budget. The clock is virtual:
 * what takes a week here takes a second.
 *
 * Threads: the fixture's; one test has its own. */
#include "tests/unit/store/store_fixture.h"

#include "store/internal.h"

#define DAY_NS SC_STORE_DAY_NS
#define MINUTE 60000000000ull
#define BUDGET (4u << 20) /* bytes a day */
#define FULL   (BUDGET / 4)
#define ROWS   256u /* of a pass that is wanted: a quarter of a MiB */
#define WRITTEN "/sim/store/rank-0000-of-0001/wear"

static const struct world_setup sim = {"paired 512-byte rows, 2 layers", WORLD_ON(SIM, 0),
                                       WORLD_SHAPE(PAIRED, 2, 256, 0), WORLD_DISK(256, 4, 64)};

static uint64_t written(struct world *world)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < SC_STORE_WRITTEN_KINDS; i++)
        bytes += atomic_load(&world->store->day_budget.written[i]);
    return bytes;
}

static int64_t left(struct world *world)
{
    return (int64_t)sc_store_write_budget_left(world->store);
}

static struct world *world_of(uint64_t budget)
{
    struct world *world = world_make(&sim, 1);
    world->config.write_budget = budget;
    world_open_ok(world);
    return world;
}

/* What the plugin does with a pass; returns the rows that were stored. */
static uint64_t store_allowed(struct world *world, uint64_t key, uint64_t rows)
{
    uint64_t held, allowed = sc_store_budget_take(world->store, 0, rows, &held);
    struct pass *pass = allowed > 0 ? pass_make(world, key, 0, (uint32_t)allowed) : NULL;
    if (pass != NULL)
        assert_int_equal(pass_begin(pass), SPEC_OK);
    sc_store_budget_give(world->store, held);
    for (uint32_t layer = 0; pass != NULL && layer < world->setup->layers; layer++)
        assert_int_equal(pass_put(pass), SPEC_OK);
    if (pass != NULL) {
        pass_wait(pass);
        assert_int_equal(pass->status, SPEC_OK);
        pass_note(pass);
        pass_free(pass);
    }
    return allowed;
}

/* A week in which far more is wanted than may be written. */
static uint64_t week(struct world *world, bool reopens)
{
    uint64_t key = 1, bytes = 0;
    for (uint64_t day = 0; day < 7; day++) {
        uint64_t begun = written(world);
        for (uint64_t minute = 0; minute < 24 * 60; minute += 5) {
            (void)store_allowed(world, key++, ROWS);
            world_wait_ns(world, 5 * MINUTE);
        }
        bytes += written(world) - begun;
        if (reopens)
            world_reopen(world);
    }
    return bytes;
}

static void check_week(uint64_t bytes)
{
    print_message("%.3f of the budget\n", (double)bytes / (7.0 * BUDGET));
    assert_true(bytes * 100 <= 7ull * BUDGET * 105);
    assert_true(bytes * 100 >= 7ull * BUDGET * 95);
}

static void a_week_is_within_five_percent_of_the_budget(void **state)
{
    (void)state;
    struct world *world = world_of(BUDGET);
    check_week(week(world, false));
    world_free(world);
}

static void restarts_fill_nothing(void **state)
{
    (void)state;
    struct world *world = world_of(BUDGET);
    check_week(week(world, true));
    world_free(world);
}

/* What is there is what may be written, up to a chunk's end; a full bucket gives one chunk at
 * least; what begins together does not spend the same bytes. */
static void a_pass_gets_what_is_there(void **state)
{
    (void)state;
    struct world *world = world_of(BUDGET);
    world_wait_ns(world, DAY_NS);
    uint64_t held, more, chunk = sc_store_rows_bytes(world->store, 64);
    uint64_t rows = sc_store_budget_take(world->store, 10, 100000, &held);
    assert_true(rows > 0 && (10 + rows) % 64 == 0);
    assert_true(held <= FULL && held + 2 * chunk > FULL);
    assert_int_equal(sc_store_budget_take(world->store, 0, 1, &more), 0);
    assert_int_equal(more, 0);
    sc_store_budget_give(world->store, held);
    assert_int_equal(left(world), FULL);
    world_close(world);
    world->config.write_budget = 4 * chunk / 2; /* half a chunk is a full bucket */
    world_open_ok(world);
    world_wait_ns(world, DAY_NS);
    assert_int_equal(store_allowed(world, 1, 128), 64);
    assert_int_equal(store_allowed(world, 2, 128), 0);
    world_wait_ns(world, 6 * 60 * MINUTE);
    assert_int_equal(store_allowed(world, 3, 128), 0); /* half of it is made up for */
    world_wait_ns(world, 2 * 60 * MINUTE);
    assert_int_equal(store_allowed(world, 3, 128), 0); /* there is some, but it is not full */
    world_wait_ns(world, 5 * 60 * MINUTE);
    assert_int_equal(store_allowed(world, 4, 128), 64);
    world_close(world);
    world->config.write_budget = 1;
    world_open_ok(world);
    assert_int_equal(store_allowed(world, 5, 64), 0);
    world->config.write_budget = 0;
    world_reopen(world);
    assert_int_equal(store_allowed(world, 6, 4096), 4096);
    assert_int_equal(sc_store_budget_wait_ns(world->store), 0);
    world_free(world);
}

/* A pass that is given up took what it wrote, no more. */
static void what_was_not_written_is_given_back(void **state)
{
    (void)state;
    struct world *world = world_of(BUDGET);
    world_wait_ns(world, DAY_NS);
    struct pass *pass = pass_make(world, 1, 0, 512);
    pass->discards = true;
    assert_int_equal(pass_begin(pass), SPEC_OK);
    uint64_t bytes = sc_store_rows_bytes(world->store, 512);
    assert_int_equal(left(world), FULL - (int64_t)bytes);
    assert_int_equal(pass_put(pass), SPEC_OK);
    sc_store_extent_abort(pass->extent);
    pass_wait(pass);
    uint64_t rows = atomic_load(&world->store->day_budget.written[SC_STORE_WRITTEN_ROWS]);
    assert_true(rows > 0 && rows < bytes);
    int64_t more = left(world) - (FULL - (int64_t)rows); /* the device took a moment */
    assert_true(more >= 0 && more < 1024);
    assert_int_equal(stats_of(world).stored_row_bytes, 0);
    pass_free(pass);
    world_free(world);
}

/* Below a quarter of a full bucket only passes are written. */
static void upkeep_waits_before_passes_do(void **state)
{
    (void)state;
    struct world *world = world_of(BUDGET);
    assert_int_equal(sc_store_budget_wait_ns(world->store), 0);
    while (left(world) > (int64_t)FULL / 4)
        assert_true(store_allowed(world, 1 + world->piece_count, 64) > 0);
    uint64_t wait_ns = sc_store_budget_wait_ns(world->store);
    assert_true(wait_ns > 0 && wait_ns < DAY_NS / 16);
    assert_true(store_allowed(world, 5000, 64) > 0);
    world_wait_ns(world, sc_store_budget_wait_ns(world->store));
    assert_int_equal(sc_store_budget_wait_ns(world->store), 0);
    world_free(world);
}

/* The bucket of a new store is full, and of any other empty after an open. A file of an older
 * version says nothing, and goes. */
static void an_open_begins_with_an_empty_bucket(void **state)
{
    (void)state;
    struct world *world = world_of(BUDGET);
    struct sc_io_file *file;
    assert_true(left(world) >= FULL - 1024);
    assert_true(store_allowed(world, 1, 64) == 64);
    uint64_t bytes = written(world);
    assert_int_equal(sc_io_file_open(world->store->io, WRITTEN,
                                     SC_IO_OPEN_CREATE | SC_IO_OPEN_WRITE, &file, &world->error),
                     SPEC_OK);
    assert_int_equal(sc_io_file_pwrite(world->store->io, file, "SCW1", 4, 0, NULL), SPEC_OK);
    sc_io_file_close(world->store->io, file);
    world_reopen(world);
    assert_true(left(world) < 1024);
    assert_true(written(world) < bytes);
    uint8_t byte;
    assert_false(sc_io_sim_disk_peek(world->disk, WRITTEN, 0, &byte, 1));
    world_wait_ns(world, 3 * 60 * MINUTE);
    assert_true(left(world) > (int64_t)FULL / 4); /* and goes on filling */
    world_free(world);
}

static void each_kind_is_counted(void **state)
{
    (void)state;
    struct world *world = world_of(0);
    assert_int_equal(world_store(world, 1, 0, 640), SPEC_OK);
    struct sc_store_stats stats = stats_of(world);
    assert_int_equal(stats.stored_row_bytes, 640 * 512 * 2);
    assert_true(stats.write_bytes >= 640 * 520 * 2);
    assert_int_equal(stats.write_bytes,
                     atomic_load(&world->store->day_budget.written[SC_STORE_WRITTEN_ROWS]));
    uint64_t log = stats.log_write_bytes;
    assert_true(log > 0 && stats.checkpoint_write_bytes == 0);
    assert_int_equal(sc_store_checkpoint(world->store, NULL), SPEC_OK);
    stats = stats_of(world);
    assert_true(stats.checkpoint_write_bytes > 0);
    assert_int_equal(stats.log_write_bytes, log);
    assert_int_equal(world_store(world, 2, 0, 64), SPEC_OK);
    assert_int_equal(stats_of(world).stored_row_bytes, (640 + 64) * 512 * 2);
    assert_int_equal(stats.budget_left, 0);
    world_free(world);
}

/* A budget of next to nothing is none for ever after, and no number is too large for its clock. */
static void a_budget_of_a_byte_is_one(void **state)
{
    (void)state;
    struct world *world = world_of(1);
    sc_store_write_budget_move(world->store, 1 << 20);
    for (uint64_t day = 0; day < 3; day++, world_wait_ns(world, DAY_NS)) {
        assert_int_equal(store_allowed(world, 2 + day, ROWS), 0);
        uint64_t wait_ns = sc_store_write_budget_wait_ns(world->store);
        assert_true(wait_ns > DAY_NS / 24 && wait_ns <= DAY_NS + 1);
    }
    world_free(world);
}

struct spender {
    struct world *world;
    uint64_t taken;
};

static void *spend(void *user)
{
    struct spender *own = user;
    for (uint32_t i = 0; i < 2000; i++) {
        uint64_t held, rows = sc_store_budget_take(own->world->store, 0, 64, &held);
        own->taken += held;
        sc_store_write_budget_count(own->world->store, SC_STORE_WRITTEN_ROWS, held);
        assert_true(rows == 0 || rows == 64);
    }
    return NULL;
}

static void several_threads_spend_one_bucket(void **state)
{
    (void)state;
    static const struct world_setup real = {"pread", WORLD_ON(PREAD, 2),
                                            WORLD_SHAPE(PAIRED, 2, 256, 0), WORLD_DISK(64, 4, 64)};
    struct world *world = world_make(&real, 1);
    world->config.write_budget = 16 * BUDGET;
    world_open_ok(world);
    pthread_t threads[4];
    struct spender own[4];
    uint64_t taken = 0;
    for (uint32_t i = 0; i < 4; i++) {
        own[i] = (struct spender){.world = world};
        assert_int_equal(pthread_create(&threads[i], NULL, spend, &own[i]), 0);
    }
    for (uint32_t i = 0; i < 4; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        taken += own[i].taken;
    }
    assert_true(taken >= 16 * FULL - (128 << 10) && taken <= 16 * FULL + (1 << 20));
    world_free(world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_week_is_within_five_percent_of_the_budget),
        cmocka_unit_test(restarts_fill_nothing),
        cmocka_unit_test(a_pass_gets_what_is_there),
        cmocka_unit_test(what_was_not_written_is_given_back),
        cmocka_unit_test(upkeep_waits_before_passes_do),
        cmocka_unit_test(an_open_begins_with_an_empty_bucket),
        cmocka_unit_test(each_kind_is_counted),
        cmocka_unit_test(a_budget_of_a_byte_is_one),
        cmocka_unit_test(several_threads_spend_one_bucket),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
