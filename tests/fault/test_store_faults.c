/* The store while things break: the n-th allocation, read, write, reserve, sync or completion
 * fails; devices lie; power goes. After each the store opens again, and every row that it gives is
 * right. Random operations run beside a twin in memory; a failure prints its seed.
 *
 * Threads: the seeded loop; one test with threads. */
#include "tests/fault/store_twin.h"
#include "tests/sample.h"
#include "tests/unit/parts.h"
#include "tests/unit/threads.h"

#include <signal.h>
#include <sys/wait.h>

/* A sample has the first seeds, which have every setup, lease and choice of codes (they repeat
 * after 60). TSan, which makes the loop's one thread 20 times slower, runs fewest. Faults that are
 * counted, the n-th of each kind, all run in every build. */
#ifdef SC_SANITIZED_THREAD
#define SEEDS(n) ((n) / 10)
#else
#define SEEDS(n) SAMPLE_OF(n, (n) / 3)
#endif

static uint64_t seed_now; /* of the run that is on: printed when it fails */

static int seed_print(void **state)
{
    (void)state;
    print_message("last seed: %" PRIu64 "\n", seed_now);
    return 0;
}

/* ---- The n-th of a kind fails ------------------------------------------------------------------
 */

/* A short life of a store. Any status will do. */
static void scenario(struct twin *twin)
{
    struct world *world = twin->world;
    struct sc_store_reader *reader = NULL;
    for (uint32_t life = 0; life < 2; life++) {
        if (world_open(world) != SPEC_OK)
            return;
        if (sc_store_readers_open(world->store, 1, &reader, NULL) == SPEC_OK) {
            for (uint32_t i = 0; i < 18; i++)
                twin_step(twin, reader, false);
            sc_store_readers_close(reader, 1);
        }
        world_close(world);
    }
}

static void fault_the_nth_of_each_kind_is_survived(void **state)
{
    (void)state;
    uint64_t fired_total = 0;
    for (uint32_t kind = 0; kind < SC_FAULT_KINDS; kind++) {
        uint64_t n = 0;
        for (;; n++) {
            struct twin twin;
            seed_now = kind * 1000000 + n;
            twin_make(&twin, 3 + n % TWIN_SETUPS);
            twin.world->alloc.fault = &twin.world->fault;
            sc_fault_arm(&twin.world->fault, kind, n);
            scenario(&twin);
            bool fired = atomic_load(&twin.world->fault.fired[kind]) > 0;
            fired_total += fired;
            sc_fault_init(&twin.world->fault);
            world_open_ok(twin.world);
            space_check(twin.world->store);
            twin_forget_unseen(&twin);
            /* What a failed write or completion was about is not in the log, so all that is told
             * of comes back. */
            assert_int_equal(twin_load_all(&twin), 0);
            twin_store(&twin);
            world_free(twin.world);
            if (!fired)
                break;
        }
        print_message("fault kind %u: %" PRIu64 " points\n", kind, n);
        assert_true(n > 0);
    }
    assert_true(fired_total > 200);
}

/* A store that is full loses most of what it has, waits, and is filled again, in one life and over
 * a reopen. Any status will do. */
static void scenario_reuse(struct twin *twin)
{
    struct world *world = twin->world;
    for (uint32_t life = 0; life < 2; life++) {
        if (world_open(world) != SPEC_OK)
            return;
        for (uint32_t turn = 0; turn < 2; turn++) {
            uint64_t before = twin->stores_failed;
            for (uint32_t i = 0; i < 200 && twin->stores_failed < before + 2; i++)
                (void)(world_store(world, twin->key_next++, i, 80) == SPEC_OK ||
                       ++twin->stores_failed);
            uint32_t left = world->piece_count / 4;
            while (world->piece_count > left)
                twin_drop(twin);
            twin_space_check(twin);
            if (life == turn) /* else the reopen finds them waiting */
                twin_wait(twin);
        }
        world_close(world);
    }
}

static void fault_the_nth_while_pages_are_given_again_is_survived(void **state)
{
    (void)state;
    uint64_t fired_total = 0, rows = 0;
    for (uint32_t run = 0; run < SC_FAULT_KINDS * TWIN_SETUPS; run++) {
        uint32_t kind = run / TWIN_SETUPS;
        bool fired = true;
        for (uint64_t n = 0; fired; n += 1 + n / 8) { /* every one of the first, then fewer */
            struct twin twin;
            seed_now = run * 1000000 + n;
            twin_make(&twin, 3 + run % TWIN_SETUPS);
            twin.world->alloc.fault = &twin.world->fault;
            sc_fault_arm(&twin.world->fault, kind, n);
            scenario_reuse(&twin);
            fired = atomic_load(&twin.world->fault.fired[kind]) > 0;
            fired_total += fired;
            sc_fault_init(&twin.world->fault);
            world_open_ok(twin.world);
            space_check(twin.world->store);
            twin_forget_unseen(&twin);
            assert_int_equal(twin_load_all(&twin), 0);
            rows += twin.rows_right;
            world_free(twin.world);
        }
    }
    print_message("%" PRIu64 " faults, %" PRIu64 " rows right\n", fired_total, rows);
    assert_true(fired_total > 200);
}

/* ---- Without faults: the twin knows it all -----------------------------------------------------
 */

static void fault_free_random_operations_equal_the_twin(void **state)
{
    (void)state;
    uint64_t full = 0, rows = 0, quantised = 0;
    for (seed_now = 1; seed_now <= SEEDS(60); seed_now++) {
        struct twin twin;
        struct sc_store_stats stats;
        twin_make(&twin, seed_now);
        for (uint32_t life = 0; life < 3; life++) {
            world_open_ok(twin.world);
            assert_int_equal(twin.world->open_count, twin.world->piece_count);
            struct sc_store_reader *reader = world_reader(twin.world);
            for (uint32_t i = 0; i < 60; i++) {
                twin_step(&twin, reader, true);
                sc_store_stats(twin.world->store, &stats);
                assert_int_equal(stats.piece_count, twin.world->piece_count);
                assert_true(stats.disk_bytes_used <= stats.disk_bytes_max);
            }
            sc_store_readers_close(reader, 1);
            assert_int_equal(twin_load_all(&twin), 0);
            sc_store_stats(twin.world->store, &stats);
            assert_int_equal(stats.corrupt_rows + stats.corrupt_records + stats.io_errors, 0);
            world_close(twin.world);
        }
        full += twin.stores_failed;
        quantised += twin.quantised;
        rows += twin.rows_right;
        world_free(twin.world);
    }
    print_message("%" PRIu64 " rows right, %" PRIu64 " slabs of codes, %" PRIu64
                  " stores found no space\n",
                  rows, quantised, full);
    assert_true(quantised > SEEDS(200));
    assert_true(rows > SEEDS(100000));
    assert_true(full > 0);
}

/* ---- A device that lies ------------------------------------------------------------------------
 */

static void fault_lying_devices_give_right_rows_or_none(void **state)
{
    (void)state;
    static const enum sc_io_sim_fault faults[] = {
        SC_SIM_READ_EIO, SC_SIM_WRITE_EIO, SC_SIM_NO_SPACE,   SC_SIM_SHORT,
        SC_SIM_TORN,     SC_SIM_FLIP,      SC_SIM_LOST,       SC_SIM_MISDIRECTED,
        SC_SIM_LATE,     SC_SIM_STALE,     SC_SIM_WRITE_PART, SC_SIM_CUT_EIO};
    const uint32_t fault_count = sizeof(faults) / sizeof(faults[0]);
    uint64_t failed = 0, rows = 0, fired = 0, quantised = 0;
    for (seed_now = 1; seed_now <= SEEDS(200); seed_now++) {
        struct twin twin;
        twin_make(&twin, seed_now);
        struct world *world = twin.world;
        world_open_ok(world);
        struct sc_store_reader *reader = world_reader(world);
        for (uint32_t f = 0; f < fault_count; f++)
            sc_io_sim_fault_ppm(world->disk, faults[f], (seed_now + f) % 3 == 0 ? 30000 : 0);
        for (uint32_t i = 0; i < 60; i++)
            twin_step(&twin, reader, false);
        sc_store_readers_close(reader, 1);
        world_close(world);
        for (uint32_t f = 0; f < fault_count; f++) {
            sc_io_sim_fault_ppm(world->disk, faults[f], 0);
            fired += sc_io_sim_fault_fired(world->disk, faults[f]);
        }
        world_open_ok(world);
        twin_forget_unseen(&twin);
        failed += twin_load_all(&twin) + twin.loads_failed;
        quantised += twin.quantised;
        rows += twin.rows_right;
        world_free(world);
    }
    print_message("%" PRIu64 " faults: %" PRIu64 " rows right, %" PRIu64 " slabs of codes, %" PRIu64
                  " loads missed\n",
                  fired, rows, quantised, failed);
    assert_true(quantised > SEEDS(200));
    assert_true(rows > SEEDS(100000));
    assert_true(failed > SEEDS(100));
}

/* ---- Power cuts ---------------------------------------------------------------------------------
 */

#define CRASH_SEEDS SEEDS(1500u)

static void fault_power_cuts_leave_right_rows_or_none(void **state)
{
    (void)state;
    uint64_t rows = 0, told = 0, missed = 0, refused = 0;
    for (seed_now = 1; seed_now <= CRASH_SEEDS; seed_now++) {
        struct twin twin;
        struct sc_store_reader *reader = NULL;
        twin_make(&twin, seed_now);
        struct world *world = twin.world;
        uint64_t chance = random_below(&twin.random, 4) == 0 ? 12 : 160;
        sc_io_sim_power_off_after(world->disk, random_below(&twin.random, chance));
        for (uint32_t life = 0; life < 2 && world_open(world) == SPEC_OK; life++) {
            assert_int_equal(sc_store_readers_open(world->store, 1, &reader, NULL), SPEC_OK);
            for (uint32_t i = 0; i < 25; i++)
                twin_step(&twin, reader, false);
            sc_store_readers_close(reader, 1);
            world_close(world);
        }
        assert_int_equal(sc_io_sim_disk_crash(world->disk, seed_now, NULL), SPEC_OK);
        if (world_open(world) != SPEC_OK) {
            refused++; /* identity and data cannot part: identity is synced before all else */
            print_message("seed %" PRIu64 ": %s\n", seed_now, world->error.text);
        } else {
            twin_forget_unseen(&twin);
            told += world->piece_count;
            missed += twin_load_all(&twin);
            /* Life goes on: what is stored now is whole after the next reopen. */
            uint32_t before = world->piece_count;
            twin_store(&twin);
            uint32_t added = world->piece_count - before;
            world_reopen(world);
            space_check(world->store);
            assert_int_equal(world->open_count, before + added);
        }
        rows += twin.rows_right;
        world_free(world);
    }
    print_message("%u power cuts: %" PRIu64 " pieces told of, %" PRIu64 " rows right, %" PRIu64
                  " loads missed\n",
                  CRASH_SEEDS, told, rows, missed);
    assert_int_equal(refused, 0);
    assert_true(told > SEEDS(1000));
    assert_true(missed > SEEDS(100)); /* crash images do tear things */
}

/* ---- Threads ------------------------------------------------------------------------------------
 */

struct producer {
    struct world *world;
    uint64_t key_first;
    uint64_t stored, seen_free;
};

/* Half of the pass in one call, the rest one by one, while others look at the room. */
static void producer_drop(struct producer *producer, const struct pass *pass)
{
    struct sc_store *store = producer->world->store;
    struct sc_store_free_space room;
    uint64_t ids[8];
    for (uint32_t p = 0; p < pass->piece_count; p++)
        ids[p] = pass->first_id + p;
    sc_store_pieces_drop(store, ids, pass->piece_count / 2);
    for (uint32_t p = 0; p < pass->piece_count; p++)
        sc_store_piece_drop(store, ids[p]);
    sc_store_free_space(store, &room);
    producer->seen_free += room.free_bytes;
}

static void *producer_main(void *argument)
{
    struct producer *producer = argument;
    for (uint64_t i = 0; i < 12; i++) {
        struct pass *pass = pass_make(producer->world, producer->key_first + i, 0, 130);
        spec_status status = pass_begin(pass);
        if (status == SPEC_OK) {
            while (status == SPEC_OK && pass->layer < producer->world->setup->layers)
                status = pass_put(pass);
            pass_wait(pass);
            status = pass->status;
        }
        struct sc_store_reader *reader = NULL;
        if (status == SPEC_OK &&
            sc_store_readers_open(producer->world->store, 1, &reader, NULL) == SPEC_OK) {
            for (uint32_t p = 0; p < pass->piece_count; p++) {
                struct world_piece piece = {.id = pass->first_id + p,
                                            .key = pass->key,
                                            .first_position = pass->plans[p].first_position,
                                            .row_count = pass->plans[p].row_count};
                const struct world_piece *twins = &piece;
                struct sc_store_range range = {piece.id, 0, piece.row_count};
                for (uint32_t layer = 0; layer < producer->world->setup->layers; layer++)
                    if (world_load(producer->world, reader, layer, &range, &twins, 1).rows !=
                        piece.row_count)
                        status = SPEC_E_CORRUPT;
            }
            if (i % 3 == 0)
                producer_drop(producer, pass);
            sc_store_readers_close(reader, 1);
            producer->stored += status == SPEC_OK ? 1 : 0;
        }
        pass_free(pass);
    }
    return NULL;
}

static void fault_free_threads_write_read_and_drop_at_once(void **state)
{
    (void)state;
    struct world_setup setup = twin_setups[0];
    setup.backend = SC_BACKEND_PREAD;
    setup.thread_count = 2;
    setup.disk_bytes = 64u << 20;
    struct world *world = world_make(&setup, 1);
    struct producer producers[4];
    world->config.lease_ns_max = 1000000; /* some pages come back while others write */
    world_open_ok(world);
    for (uint64_t i = 0; i < 4; i++)
        producers[i] = (struct producer){.world = world, .key_first = 1000 * (i + 1)};
    threads_run(producer_main, producers, sizeof(producers[0]), 4);
    for (uint64_t i = 0; i < 4; i++) {
        assert_int_equal(producers[i].stored, 12);
        assert_true(producers[i].seen_free > 0);
    }
    space_check(world->store);
    struct sc_store_stats stats = stats_of(world);
    assert_int_equal(stats.corrupt_rows, 0);
    assert_int_equal(stats.piece_count, 4 * 8 * 3);
    world_reopen(world);
    assert_int_equal(world->open_count, 4 * 8 * 3);
    space_check(world->store);
    world_free(world);
}

/* ---- Kill
 * ---------------------------------------------------------------------------------------- */

#define KILLS SEEDS(60u)

/* Stores until it is killed; a byte into the pipe for each store that was committed. */
static void victim_main(struct world *world, int pipe_end)
{
    if (world_open(world) != SPEC_OK)
        _exit(1);
    for (uint64_t key = (uint64_t)getpid() << 20;; key++) {
        spec_status status = world_store(world, key, 0, 200);
        if (status == SPEC_OK && write(pipe_end, "+", 1) != 1)
            _exit(1);
        if (status == SPEC_OK)
            continue;
        while (world->piece_count > 0) /* full: begin anew */
            sc_store_piece_drop(world->store, world->pieces[--world->piece_count].id);
    }
}

/* A kill takes nothing from the page cache, so here every piece that is told of must be whole: its
 * record was written after its last row. */
static void fault_killed_writers_leave_whole_pieces(void **state)
{
    (void)state;
    struct world_setup setup = twin_setups[2];
    setup.backend = SC_BACKEND_PREAD;
    setup.disk_bytes = 64u << 20;
    struct twin twin = {.random = 4711, .key_next = 1};
    setup.thread_count = 1;
    twin.world = world_make(&setup, 1);
    uint64_t told = 0;
    for (uint32_t i = 0; i < KILLS; i++) {
        sc_exec_close(twin.world->exec); /* a fork with threads is no business of this test */
        int ends[2];
        assert_int_equal(pipe(ends), 0);
        pid_t child = fork();
        assert_true(child >= 0);
        world_exec(twin.world, i); /* each its own */
        if (child == 0)
            victim_main(twin.world, ends[1]);
        assert_int_equal(close(ends[1]), 0); /* a child that ends by itself fails the read */
        char byte;                           /* after some commits, at any point of the next */
        for (uint64_t n = 1 + random_below(&twin.random, 5); n > 0; n--)
            assert_int_equal(read(ends[0], &byte, 1), 1);
        usleep((useconds_t)random_below(&twin.random, 10000));
        assert_int_equal(kill(child, SIGKILL), 0);
        assert_int_equal(waitpid(child, NULL, 0), child);
        assert_int_equal(close(ends[0]), 0);
        world_open_ok(twin.world);
        twin_forget_unseen(&twin);
        told += twin.world->open_count;
        assert_int_equal(twin_load_all(&twin), 0);
        for (uint32_t p = 0; p < twin.world->piece_count; p++) /* make room for the next */
            if (p % 2 == 0 || i % 8 == 0)
                sc_store_piece_drop(twin.world->store, twin.world->pieces[p].id);
        world_close(twin.world);
    }
    print_message("%u kills: %" PRIu64 " pieces told of, all whole\n", KILLS, told);
    assert_true(told >= KILLS);
    world_free(twin.world);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(fault_the_nth_of_each_kind_is_survived, seed_print),
        cmocka_unit_test_teardown(fault_the_nth_while_pages_are_given_again_is_survived,
                                  seed_print),
        cmocka_unit_test_teardown(fault_free_random_operations_equal_the_twin, seed_print),
        cmocka_unit_test_teardown(fault_lying_devices_give_right_rows_or_none, seed_print),
        cmocka_unit_test(fault_free_threads_write_read_and_drop_at_once),
        cmocka_unit_test_teardown(fault_power_cuts_leave_right_rows_or_none, seed_print),
        cmocka_unit_test(fault_killed_writers_leave_whole_pieces),
    };
    return parts_run(argc, argv, tests, sizeof(tests) / sizeof(tests[0]));
}
