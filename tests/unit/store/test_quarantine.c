/* Dropping: pages come back when, and only when, no lease can be on their rows, page by page as
 * decision 0004 says, the same after a reopen; nothing is allocated, disk_bytes is never exceeded.
 *
 * Threads: the fixture's. */
#include "tests/unit/store/space_check.h"

#define LEASE_NS 30000000000ull

static const struct world_setup setups[] = {
    {"paired 1 KiB rows, 4 layers", WORLD_ON(SIM, 0), WORLD_SHAPE(PAIRED, 4, 512, 0),
     WORLD_DISK(10, 2, 64)},
    {"paired 768-byte rows, 30 layers", WORLD_ON(SIM, 0), WORLD_SHAPE(PAIRED, 30, 384, 0),
     WORLD_DISK(24, 1, 128)},
    {"paired 8 KiB rows, 3 layers", WORLD_ON(SIM, 0), WORLD_SHAPE(PAIRED, 3, 4096, 0),
     WORLD_DISK(32, 4, 1024)},
    {"split 200-byte K rows, 5 layers", WORLD_ON(SIM, 0), WORLD_SHAPE(SPLIT, 5, 200, 0),
     WORLD_DISK(8, 1, 64)},
};
#define SETUPS (sizeof(setups) / sizeof(setups[0]))

static struct world *leased_world(const struct world_setup *setup, uint64_t seed)
{
    struct world *world = world_make(setup, seed);
    world->config.lease_ns_max = LEASE_NS;
    world_open_ok(world);
    return world;
}

static void drop_twin(struct world *world, uint32_t i)
{
    sc_store_piece_drop(world->store, world->pieces[i].id);
    world->pieces[i] = world->pieces[--world->piece_count];
}

static void drop_all(struct world *world)
{
    uint64_t ids[WORLD_PIECES];
    for (uint32_t i = 0; i < world->piece_count; i++)
        ids[i] = world->pieces[i].id;
    sc_store_pieces_drop(world->store, ids, world->piece_count);
    world->piece_count = 0;
}

static void check_rows_right(struct world *world)
{
    struct sc_store_reader *reader = world_reader(world);
    for (uint32_t i = 0; i < world->piece_count; i++) {
        for (uint32_t layer = 0; layer < world->setup->layers; layer++) {
            struct loaded loaded = world_load_piece(world, reader, layer, &world->pieces[i]);
            assert_int_equal(loaded.status, SPEC_OK);
            assert_int_equal(loaded.rows, world->pieces[i].row_count);
        }
    }
    sc_store_readers_close(reader, 1);
}

static uint64_t fill(struct world *world, uint64_t *key, uint32_t rows)
{
    uint64_t stored = 0;
    for (;; stored++) {
        spec_status status = world_store(world, (*key)++, 0, rows);
        struct sc_store_stats stats = stats_of(world);
        assert_true(stats.disk_bytes_used <= stats.disk_bytes_max);
        if (status == SPEC_OK)
            continue;
        assert_int_equal(status, SPEC_E_NO_SPACE);
        return stored;
    }
}

/* ---- Time ------------------------------------------------------------------------------------ */

static void quarantine_pages_are_reused_after_the_lease_and_not_before(void **state)
{
    (void)state;
    for (uint32_t turn = 0; turn < 2 * SETUPS; turn++) {
        struct world *world = leased_world(&setups[turn / 2], turn);
        uint64_t key = 1, stored = fill(world, &key, 150);
        struct sc_store_free_space room;
        assert_true(stored > 0);
        uint64_t held = stats_of(world).extent_bytes;
        drop_all(world);
        uint64_t dropped_ns = sc_exec_wall_ns(world->exec);
        if (turn % 2 == 1) { /* the log remembers when */
            world_reopen(world);
        }
        space_check(world->store);
        assert_int_equal(stats_of(world).piece_count, 0);
        assert_int_equal(stats_of(world).extent_count, 0);
        assert_int_equal(stats_of(world).quarantine_bytes, held);
        assert_int_equal(stats_of(world).extent_bytes, held);
        assert_int_equal(world_store(world, key++, 0, 150), SPEC_E_NO_SPACE);
        world_wait_ns(world, dropped_ns + LEASE_NS - 1 - sc_exec_wall_ns(world->exec));
        assert_int_equal(world_store(world, key++, 0, 150), SPEC_E_NO_SPACE);
        sc_store_free_space(world->store, &room);
        assert_int_equal(room.quarantine_bytes, held);
        world_wait_ns(world, 1);
        assert_int_equal(world_store(world, key++, 0, 150), SPEC_OK);
        space_check(world->store);
        assert_int_equal(fill(world, &key, 150), stored - 1);
        assert_int_equal(stats_of(world).quarantine_bytes, 0);
        check_rows_right(world);
        world_reopen(world);
        space_check(world->store);
        check_rows_right(world);
        world_free(world);
    }
}

/* Drops at many times: each waits its lease, at most a 32nd longer. */
static void quarantine_times_are_told_apart(void **state)
{
    (void)state;
    struct world *world = leased_world(&setups[0], 5);
    uint64_t dropped_ns[40];
    for (uint64_t key = 1; key <= 40; key++)
        assert_int_equal(world_store(world, key, 0, 20), SPEC_OK);
    for (uint32_t i = 0; i < 40; i++) {
        sc_store_piece_drop(world->store, world->pieces[i].id);
        dropped_ns[i] = sc_exec_wall_ns(world->exec);
        world_wait_ns(world, LEASE_NS / 50 * (1 + i % 3));
    }
    for (uint32_t step = 0; step < 150; step++) {
        struct sc_store_free_space room;
        world_wait_ns(world, LEASE_NS / 100);
        uint64_t now_ns = sc_exec_wall_ns(world->exec);
        sc_store_free_space(world->store, &room);
        space_check(world->store);
        for (uint32_t i = 0; i < 40; i++) {
            const struct sc_store_piece_entry *piece =
                sc_store_table_piece(&world->store->table, world->pieces[i].id);
            bool freed = atomic_load(&piece->state) == SC_STORE_PIECE_FREED;
            assert_true(!freed || now_ns >= dropped_ns[i] + LEASE_NS);
            assert_true(freed || now_ns < dropped_ns[i] + LEASE_NS + LEASE_NS / 32);
        }
    }
    assert_int_equal(stats_of(world).extent_bytes, 0);
    world->piece_count = 0;
    world_free(world);
}

#define HOUR_NS 3600000000000ll

/* A clock that was set back, or forward, makes nothing wait for longer than a lease, or shorter,
 * and not one after the other; over a reopen too, where what was dropped in a time to come counts
 * as dropped now. */
static void quarantine_survives_a_clock_that_is_set(void **state)
{
    (void)state;
    for (uint32_t way = 0; way < 3; way++) { /* back, forward, back and reopened */
        struct world *world = leased_world(&setups[0], 5);
        world_wait_ns(world, 5ull * HOUR_NS);
        for (uint64_t key = 1; key <= 20; key++)
            assert_int_equal(world_store(world, key, 0, 20), SPEC_OK);
        for (uint32_t i = 0; i < 20; i++) { /* over half a lease: several buckets */
            sc_store_piece_drop(world->store, world->pieces[i].id);
            world_wait_ns(world, LEASE_NS / 40);
        }
        uint64_t held = stats_of(world).extent_bytes;
        sc_exec_wall_set(world->exec, way == 1 ? 3 * HOUR_NS : -3 * HOUR_NS);
        if (way == 2) {
            world_reopen(world);
            world_wait_ns(world, LEASE_NS / 2);
        }
        world_wait_ns(world, LEASE_NS / 2 - LEASE_NS / 80);
        assert_int_equal(stats_of(world).extent_bytes, held);
        world_wait_ns(world, LEASE_NS / 2 + LEASE_NS / 16);
        assert_int_equal(stats_of(world).extent_bytes, 0);
        space_check(world->store);
        world->piece_count = 0;
        world_free(world);
    }
}

/* ---- Pages ----------------------------------------------------------------------------------- */

static void quarantine_a_tail_gives_its_pages_back_while_the_head_stays(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < SETUPS; i++) {
        struct world *world = world_make(&setups[i], 3); /* lease 0: at once */
        world_open_ok(world);
        assert_int_equal(world_store(world, 1, 0, 220), SPEC_OK);
        uint64_t row_bytes = 2 * setups[i].k_row_bytes, before = stats_of(world).extent_bytes;
        while (world->piece_count > 1) {
            uint32_t rows = world->pieces[world->piece_count - 1].row_count;
            uint64_t says =
                sc_store_piece_bytes(world->store, world->pieces[world->piece_count - 1].id);
            drop_twin(world, world->piece_count - 1);
            space_check(world->store);
            uint64_t after = stats_of(world).extent_bytes;
            assert_int_equal(before - after, says);
            uint64_t whole = setups[i].layers * rows * row_bytes;
            assert_true(before - after + setups[i].layers * 2 * 4096 >= whole);
            assert_true(before - after <= whole + setups[i].layers * 4096);
            before = after;
            check_rows_right(world);
            assert_int_equal(world_store(world, 100 + world->piece_count, 0, 30), SPEC_OK);
            drop_twin(world, world->piece_count - 1);
        }
        check_rows_right(world);
        world_reopen(world);
        space_check(world->store);
        assert_int_equal(stats_of(world).extent_bytes, before);
        assert_int_equal(sc_store_piece_bytes(world->store, world->pieces[0].id), before);
        drop_twin(world, 0);
        assert_int_equal(stats_of(world).extent_bytes, 0);
        world_free(world);
    }
}

/* A page that two pieces share is freed with the second, in either order. */
static void quarantine_a_shared_page_goes_with_the_second(void **state)
{
    (void)state;
    for (uint32_t order = 0; order < 2; order++) {
        struct world *world = world_make(&setups[1], 3); /* 64 rows: 12 pages */
        world_open_ok(world);
        assert_int_equal(world_store(world, 1, 10, 246), SPEC_OK); /* 54, 64, 64, 64 rows */
        uint64_t all = stats_of(world).extent_bytes;
        uint64_t first = world->pieces[1].id, second = world->pieces[2].id;
        uint64_t alone = sc_store_piece_bytes(world->store, order == 0 ? first : second);
        assert_true(alone <= 30 * 12 * 4096);
        sc_store_piece_drop(world->store, order == 0 ? first : second);
        assert_int_equal(all - stats_of(world).extent_bytes, alone);
        uint64_t then = sc_store_piece_bytes(world->store, order == 0 ? second : first);
        sc_store_piece_drop(world->store, order == 0 ? second : first);
        assert_int_equal(all - stats_of(world).extent_bytes, alone + then);
        assert_true(alone + then >= 30ull * 23 * 4096); /* 24 pages' worth of rows, unaligned */
        space_check(world->store);
        world_free(world);
    }
}

static void quarantine_rows_that_were_not_committed_come_back_at_once(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < SETUPS; i++) {
        struct world *world = leased_world(&setups[i], 3);
        struct pass *pass = pass_make(world, 1, 0, 256);
        pass->commit.piece_first = 3;
        pass->commit.skip = 60;
        assert_int_equal(pass_begin(pass), SPEC_OK);
        uint64_t begun = stats_of(world).extent_bytes;
        while (pass->layer < setups[i].layers)
            assert_int_equal(pass_put(pass), SPEC_OK);
        pass_wait(pass);
        assert_int_equal(pass->status, SPEC_OK);
        space_check(world->store);
        uint64_t held = stats_of(world).extent_bytes, row_bytes = 2 * setups[i].k_row_bytes;
        uint64_t gone = setups[i].layout == SC_STORE_SPLIT ? 192 : 252;
        assert_true(begun - held + setups[i].layers * 2 * 4096 >=
                    gone * row_bytes * setups[i].layers);
        assert_int_equal(stats_of(world).quarantine_bytes, 0);
        uint64_t id = pass->first_id;
        struct sc_store_reader *reader = world_reader(world);
        struct sc_store_range range = {id, 60, 4};
        struct world_piece piece = {.id = id, .key = 1, .first_position = 192, .row_count = 64};
        const struct world_piece *twin = &piece;
        for (uint32_t turn = 0; turn < 2; turn++) {
            assert_int_equal(world_load(world, reader, 1, &range, &twin, 1).rows, 4);
            assert_int_equal(world_store(world, 2 + turn, 0, 200), SPEC_OK); /* in those pages */
        }
        sc_store_readers_close(reader, 1);
        pass_free(pass);
        check_rows_right(world);
        world->refuse_id = id; /* or the twin would ask for the skipped rows too */
        world_reopen(world);
        space_check(world->store);
        check_rows_right(world);
        world_free(world);
    }
}

/* ---- What may fail --------------------------------------------------------------------------- */

static void quarantine_dropping_allocates_nothing(void **state)
{
    (void)state;
    struct world *world = leased_world(&setups[0], 3);
    uint64_t key = 1;
    while (world->piece_count < 1500 && world_store(world, key, 0, 3) == SPEC_OK)
        key++;
    assert_true(world->piece_count > 256); /* more than one append takes */
    sc_alloc_seal(&world->alloc);
    drop_all(world);
    world_wait_ns(world, LEASE_NS);
    assert_true(sc_store_quarantine_release(world->store, sc_exec_now_ns(world->exec)) > 256);
    sc_alloc_unseal(&world->alloc);
    assert_int_equal(atomic_load(&world->alloc.sealed_refusals), 0);
    space_check(world->store);
    assert_int_equal(stats_of(world).extent_bytes, 0);
    assert_int_equal(world->store->share.reserved, 0);
    world_reopen(world);
    assert_int_equal(world->open_count, 0);
    assert_int_equal(world->store->share.reserved, 0);
    world_free(world);
}

static struct world *drop_without_record(uint64_t *ret_held)
{
    struct world *world = world_new(&setups[0], 3);
    assert_int_equal(world_store(world, 1, 0, 128), SPEC_OK);
    *ret_held = stats_of(world).extent_bytes;
    uint64_t ids[4] = {0, world->pieces[1].id, UINT64_MAX, 777};
    uint8_t hash[SC_STORE_HASH_BYTES];
    sc_fault_arm(&world->fault, SC_FAULT_WRITE, 0);
    sc_store_pieces_drop(world->store, ids, 4);
    assert_int_equal(stats_of(world).extent_bytes, *ret_held);
    assert_int_equal(stats_of(world).piece_count, 1);
    assert_false(sc_store_piece_hash(world->store, ids[1], hash));
    assert_true(sc_store_piece_hash(world->store, world->pieces[0].id, hash));
    space_check(world->store);
    return world;
}

static void quarantine_a_drop_without_its_record_keeps_its_pages(void **state)
{
    (void)state;
    uint64_t held;
    struct world *world = drop_without_record(&held);
    world_close(world);
    world_open_ok(world); /* the piece lives again, and its rows are whole */
    assert_int_equal(world->open_count, 2);
    check_rows_right(world);
    world_free(world);
}

static void quarantine_a_drop_without_its_record_is_written_by_a_later_one(void **state)
{
    (void)state;
    for (uint32_t way = 0; way < 3; way++) {
        uint64_t held;
        struct world *world = drop_without_record(&held);
        uint64_t first = world->pieces[0].id, none = 777;
        if (way == 1) { /* that one fails too */
            sc_fault_arm(&world->fault, SC_FAULT_WRITE, 0);
            sc_store_piece_drop(world->store, none);
            assert_int_equal(stats_of(world).extent_bytes, held);
        }
        if (way == 2) /* a checkpoint keeps it as a piece that lives */
            assert_int_equal(sc_store_checkpoint(world->store, NULL), SPEC_OK);
        sc_store_piece_drop(world->store, none);
        space_check(world->store);
        assert_true(stats_of(world).extent_bytes < held);
        uint64_t left = stats_of(world).extent_bytes;
        world_reopen(world);
        assert_int_equal(world->open_count, 1);
        assert_int_equal(stats_of(world).extent_bytes, left);
        sc_store_piece_drop(world->store, first);
        assert_int_equal(stats_of(world).extent_bytes, 0);
        assert_int_equal(world->store->share.reserved, 0);
        world_free(world);
    }
}

static uint32_t pause_lines;

static void count_line(int32_t level, const char *line, void *user)
{
    (void)level;
    (void)user;
    pause_lines += strstr(line, "nothing is stored for 5 s") != NULL;
}

static void quarantine_a_failing_disk_pauses_storing_and_not_loading(void **state)
{
    (void)state;
    static const enum sc_io_sim_fault faults[] = {SC_SIM_WRITE_EIO, SC_SIM_NO_SPACE};
    for (uint32_t i = 0; i < 2; i++) {
        struct world *world = leased_world(&setups[0], 3);
        pause_lines = 0;
        sc_log_init(&world->log, count_line, world, 3);
        assert_int_equal(world_store(world, 1, 0, 100), SPEC_OK);
        sc_io_sim_fault_scope(world->disk, "/seg-");
        sc_io_sim_fault_ppm(world->disk, faults[i], 1000000);
        assert_int_not_equal(world_store(world, 2, 0, 100), SPEC_OK);
        for (uint64_t key = 3; key < 10; key++)
            assert_int_equal(world_store(world, key, 0, 100), SPEC_E_NO_SPACE);
        check_rows_right(world);
        world_wait_ns(world, SC_STORE_RETRY_NS);
        assert_int_not_equal(world_store(world, 10, 0, 100), SPEC_OK); /* tried, fails again */
        sc_io_sim_fault_ppm(world->disk, faults[i], 0);
        assert_int_equal(world_store(world, 11, 0, 100), SPEC_E_NO_SPACE);
        world_wait_ns(world, SC_STORE_RETRY_NS);
        assert_int_equal(world_store(world, 12, 0, 100), SPEC_OK);
        sc_log_drain(&world->log);
        assert_int_equal(pause_lines, 2);
        space_check(world->store);
        world_free(world);
    }
}

static void quarantine_a_bad_segment_does_not_stop_the_others(void **state)
{
    (void)state;
    struct world *world = leased_world(&setups[0], 3);
    for (uint64_t key = 1; key <= 5; key++) /* two segments, each with some room */
        assert_int_equal(world_store(world, key, 0, 120), SPEC_OK);
    sc_io_sim_fault_scope(world->disk, "/seg-00000000");
    sc_io_sim_fault_ppm(world->disk, SC_SIM_WRITE_EIO, 1000000);
    assert_int_equal(world_store(world, 11, 0, 20), SPEC_E_IO);
    for (uint64_t key = 12; key < 20; key++) {
        world_wait_ns(world, SC_STORE_RETRY_NS);
        assert_int_equal(world_store(world, key, 0, 20), SPEC_OK);
    }
    check_rows_right(world);
    space_check(world->store);
    world_free(world);
}

/* ---- Room, eviction -------------------------------------------------------------------------- */

static void room_counts_what_is_held_free_and_waiting(void **state)
{
    (void)state;
    struct world *world = leased_world(&setups[0], 3);
    struct sc_store_free_space room, before;
    uint64_t key = 1;
    sc_store_free_space(world->store, &before);
    assert_int_equal(before.free_bytes, before.bytes_max);
    uint64_t most = setups[0].disk_bytes - sc_store_disk_beside(world->store);
    assert_int_equal(before.bytes_max, most - most % SC_STORE_SEGMENT_MIN); /* no shorter ones */
    assert_true(before.bytes_max >= setups[0].disk_bytes / 4 * 3);
    uint64_t stored = fill(world, &key, 150);
    sc_store_free_space(world->store, &room);
    assert_true(room.free_bytes < stats_of(world).extent_bytes / stored + (1u << 20));
    while (world->piece_count > 0) {
        uint64_t held = stats_of(world).extent_bytes;
        drop_twin(world, world->piece_count / 2);
        sc_store_free_space(world->store, &room);
        assert_true(room.free_bytes + held <= room.bytes_max);
        assert_true(room.free_bytes + held + (1u << 20) > room.bytes_max);
    }
    assert_int_equal(room.quarantine_bytes, stats_of(world).extent_bytes);
    world_wait_ns(world, 2 * LEASE_NS);
    sc_store_free_space(world->store, &room);
    assert_int_equal(room.quarantine_bytes, 0);
    assert_true(room.free_bytes + (1u << 20) > before.bytes_max);
    world_free(world);
}

/* What was stored or missed counts for a lease and a 16th; what was stored just now is told. */
static void room_knows_what_a_lease_takes(void **state)
{
    (void)state;
    struct world *world = leased_world(&setups[0], 3);
    struct sc_store_free_space room;
    sc_store_free_space(world->store, &room);
    assert_int_equal(room.demand_bytes, 0);
    assert_int_equal(world_store(world, 1, 0, 64), SPEC_OK);
    uint64_t first = stats_of(world).extent_bytes, next = sc_store_piece_next(world->store);
    sc_store_free_space(world->store, &room);
    assert_int_equal(room.demand_bytes, first);
    assert_true(room.piece_new < next); /* it is new */
    world_wait_ns(world, LEASE_NS / 16);
    sc_store_free_space(world->store, &room);
    assert_true(room.piece_new < next); /* for a 16th at least */
    world_wait_ns(world, LEASE_NS / 2 - LEASE_NS / 16);
    assert_int_equal(sc_store_rows_bytes(world->store, 64), first);
    sc_store_free_space_missed(world->store, 64);
    sc_store_free_space(world->store, &room);
    assert_int_equal(room.demand_bytes, 2 * first);
    assert_int_equal(room.piece_new, next); /* it is not any more */
    world_wait_ns(world, LEASE_NS / 16 * 10);
    sc_store_free_space(world->store, &room);
    assert_int_equal(room.demand_bytes, first);
    world_wait_ns(world, LEASE_NS);
    sc_store_free_space(world->store, &room);
    assert_int_equal(room.demand_bytes, 0);
    world_free(world);
}

static void room_evicts_other_namespaces_oldest_first(void **state)
{
    (void)state;
    struct world *world = leased_world(&setups[0], 3);
    for (uint64_t key = 1; key <= 8; key++)
        assert_int_equal(world_store(world, key, 0, 128), SPEC_OK);
    world_close(world);
    world->params.space.digest[0] ^= 1; /* other weights */
    world_open_ok(world);
    uint32_t strangers = world->piece_count;
    for (uint64_t key = 101; key <= 104; key++)
        assert_int_equal(world_store(world, key, 0, 128), SPEC_OK);
    assert_int_equal(sc_store_evict_unreachable(world->store, 0), 0);
    uint64_t evicted = sc_store_evict_unreachable(world->store, 1);
    assert_true(evicted > 0 && evicted <= strangers);
    assert_int_equal(stats_of(world).evicted_pieces, evicted);
    uint8_t hash[SC_STORE_HASH_BYTES];
    for (uint32_t i = 0; i < world->piece_count; i++)
        assert_int_equal(sc_store_piece_hash(world->store, world->pieces[i].id, hash),
                         i >= evicted);
    assert_true(stats_of(world).quarantine_bytes > 0);
    space_check(world->store);
    assert_int_equal(sc_store_evict_unreachable(world->store, UINT64_MAX), strangers - evicted);
    assert_int_equal(sc_store_evict_unreachable(world->store, UINT64_MAX), 0);
    memmove(world->pieces, world->pieces + strangers, 8 * sizeof(world->pieces[0]));
    world->piece_count = 8;
    check_rows_right(world);
    world_reopen(world);
    assert_int_equal(world->open_count, 8);
    space_check(world->store);
    world_free(world);
}

static void room_a_bulk_of_void_pieces_waits_as_dropped_ones_do(void **state)
{
    (void)state;
    struct world *world = leased_world(&setups[0], 3);
    for (uint64_t key = 1; key <= 12; key++)
        assert_int_equal(world_store(world, key, 0, 128), SPEC_OK);
    uint64_t held = stats_of(world).extent_bytes, log_bytes = stats_of(world).log_bytes;
    uint32_t space = atomic_load(&world->store->log.space_id);
    uint64_t end = world->pieces[13].id, now_ns = sc_exec_wall_ns(world->exec);
    assert_int_equal(sc_store_pieces_void(world->store, space + 1, end, now_ns), 0);
    assert_int_equal(sc_store_pieces_void(world->store, space, end, now_ns), 13);
    assert_int_equal(sc_store_pieces_void(world->store, space, end, now_ns), 0);
    assert_int_equal(stats_of(world).log_bytes, log_bytes);
    assert_int_equal(stats_of(world).piece_count, 11);
    assert_int_equal(stats_of(world).extent_bytes, held);
    space_check(world->store);
    world_wait_ns(world, LEASE_NS);
    assert_true(stats_of(world).extent_bytes < held / 2 + (64u << 10));
    space_check(world->store);
    world_free(world);
}

/* A lower disk_bytes holds at once, whatever is live; what fits under it is kept. */
static void room_shrinks_with_disk_bytes(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 2 * SETUPS; i++) {
        struct world_setup setup = setups[i / 2];
        setup.backend = i % 2 == 0 ? SC_BACKEND_SIM : SC_BACKEND_PREAD;
        setup.thread_count = i % 2;
        struct world *world = leased_world(&setup, 3);
        uint64_t key = 1;
        (void)fill(world, &key, 100);
        uint32_t pieces = world->piece_count;
        for (uint32_t turn = 0; turn < 3; turn++) {
            world_close(world);
            world->config.disk_bytes = setup.disk_bytes / 3 * 2 >> (turn / 2);
            world_open_ok(world);
            space_check(world->store);
            assert_true(turn == 1 ? world->open_count == world->piece_count
                                  : world->open_count < world->piece_count);
            assert_true(world->open_count > 0);
            uint32_t kept = 0;
            for (uint32_t p = 0; p < world->piece_count; p++)
                if (world->pieces[p].seen)
                    world->pieces[kept++] = world->pieces[p];
            world->piece_count = kept;
            check_rows_right(world);
            assert_true(stats_of(world).disk_bytes_used <= world->config.disk_bytes);
        }
        assert_true(world->piece_count >= pieces / 5);
        drop_all(world);
        assert_true(sc_store_quarantine_release(world->store, UINT64_MAX) > 0);
        assert_int_equal(world_store(world, key, 0, 64), SPEC_OK); /* the log has its share */
        world_free(world);
    }
}

/* ---- Fragments ------------------------------------------------------------------------------- */

enum pattern { WHOLE_PASSES, TAILS, CHUNKS };

/* Drops as the pattern says until a tenth is free, as far as room tells. */
static void evict(struct world *world, enum pattern pattern, uint64_t *random,
                  struct sc_store_free_space *ret_room)
{
    sc_store_free_space(world->store, ret_room);
    while (ret_room->free_bytes < ret_room->bytes_max / 10 && world->piece_count > 0) {
        uint32_t i = (uint32_t)random_below(random, world->piece_count), last = i;
        uint64_t key = world->pieces[i].key;
        for (uint32_t j = 0; j < world->piece_count; j++)
            if (world->pieces[j].key == key && world->pieces[j].id > world->pieces[last].id)
                last = j;
        drop_twin(world, pattern == CHUNKS ? i : last);
        for (uint32_t j = world->piece_count; pattern == WHOLE_PASSES && j-- > 0;)
            if (world->pieces[j].key == key)
                drop_twin(world, j);
        sc_store_free_space(world->store, ret_room);
    }
}

/* Stores a pass as the plugin does: in extents as long as there are runs for. */
static bool store_cut(struct world *world, uint64_t key, uint32_t rows)
{
    uint32_t fit = (uint32_t)sc_store_extent_rows_fit(world->store, rows);
    for (uint32_t first = 0; first < rows && fit > 0; first += fit)
        assert_int_equal(world_store(world, key, first, rows - first < fit ? rows - first : fit),
                         SPEC_OK);
    return fit > 0;
}

/* A store that is full, and loses passes, their ends, or chunks here and there: how much of what is
 * said to be free can be given to passes of typical lengths? */
static void room_in_fragments_is_used(void **state)
{
    (void)state;
    static const char *const names[] = {"whole passes", "ends of passes", "chunks anywhere"};
    for (uint32_t i = 0; i < 3 * SETUPS; i++) {
        struct world_setup setup = setups[i / 3];
        setup.disk_bytes *= 4;
        struct world *world = world_make(&setup, 9);
        uint64_t random = 77, key = 1, given = 0, asked = 0;
        struct sc_store_free_space room, before;
        world_open_ok(world);
        for (uint32_t failed = 0; failed < 8;)
            failed += world_store(world, key++, 0, (uint32_t)(20 + random_below(&random, 400))) !=
                      SPEC_OK;
        for (uint32_t turn = 0; turn < 30; turn++) {
            evict(world, (enum pattern)(i % 3), &random, &before);
            for (uint32_t failed = 0; failed < 6;)
                failed += !store_cut(world, key++, (uint32_t)(20 + random_below(&random, 200)));
            sc_store_free_space(world->store, &room);
            asked += before.free_bytes;
            given += before.free_bytes - room.free_bytes;
        }
        space_check(world->store);
        check_rows_right(world);
        uint64_t held = stats_of(world).extent_bytes * 100 / room.bytes_max;
        print_message("%s, %s: %lu %% of the room was used, rows and tags take %lu %% of all\n",
                      setup.name, names[i % 3], (unsigned long)(given * 100 / asked),
                      (unsigned long)held);
        assert_true(held >= 50);
        assert_true(given * 4 >= asked * 3);
        world_free(world);
    }
}

/* ---- Random ---------------------------------------------------------------------------------- */

static void random_commit(struct world *world, uint64_t *random, uint64_t key)
{
    struct pass *pass =
        pass_make(world, key, random_below(random, 100), (uint32_t)(1 + random_below(random, 300)));
    pass->commit.piece_first = (uint32_t)random_below(random, pass->piece_count);
    uint32_t rows = pass->plans[pass->commit.piece_first].row_count;
    pass->commit.skip = (uint32_t)random_below(random, rows);
    if (pass_begin(pass) == SPEC_OK) {
        while (pass->layer < world->setup->layers)
            assert_int_equal(pass_put(pass), SPEC_OK);
        pass_wait(pass);
        assert_int_equal(pass->status, SPEC_OK);
        pass_note(pass);
        /* What is skipped is not asked for: the twin's first piece is only dropped. */
        struct world_piece *skipped =
            &world->pieces[world->piece_count - (pass->piece_count - pass->commit.piece_first)];
        skipped->first_position += pass->commit.skip;
        skipped->row_count -= pass->commit.skip;
        skipped->id |= (uint64_t)pass->commit.skip << 48;
    }
    pass_free(pass);
}

#define PIECE_ID(id) ((id) & ((1ull << 48) - 1))

static void random_rows_right(struct world *world)
{
    struct sc_store_reader *reader = world_reader(world);
    for (uint32_t i = 0; i < world->piece_count; i++) {
        const struct world_piece *twin = &world->pieces[i];
        struct sc_store_range range = {PIECE_ID(twin->id), (uint32_t)(twin->id >> 48),
                                       twin->row_count};
        uint32_t layer = i % world->setup->layers;
        struct world_piece moved = *twin; /* world_load adds row_first to the position */
        moved.first_position -= range.row_first;
        const struct world_piece *moved_twin = &moved;
        struct loaded loaded = world_load(world, reader, layer, &range, &moved_twin, 1);
        if (loaded.status != SPEC_OK || loaded.rows != twin->row_count)
            fail_msg("piece %lu: %s", (unsigned long)range.piece, world->error.text);
    }
    sc_store_readers_close(reader, 1);
}

static bool believe(const struct sc_store_piece *piece, uint64_t *ret_mark, void *user)
{
    struct world *world = user;
    *ret_mark = 0;
    for (uint32_t i = 0; i < world->piece_count; i++)
        world->open_count += PIECE_ID(world->pieces[i].id) == piece->id;
    return true;
}

static void random_step(struct world *world, uint64_t *random, uint64_t *key)
{
    uint64_t ids[16], count = 0, choice = random_below(random, 10);
    if (choice < 4) {
        random_commit(world, random, (*key)++);
    } else if (choice < 8) {
        for (uint64_t n = random_below(random, 16); n > 0 && world->piece_count > 0; n--) {
            uint32_t i = (uint32_t)random_below(random, world->piece_count);
            ids[count++] = PIECE_ID(world->pieces[i].id);
            world->pieces[i] = world->pieces[--world->piece_count];
        }
        sc_store_pieces_drop(world->store, ids, count);
    } else if (choice == 8) {
        world_wait_ns(world, random_below(random, LEASE_NS / 2));
        (void)stats_of(world);
    } else if (random_below(random, 8) == 0) {
        world->params.space.digest[1] ^= 1; /* the other of two namespaces, and back */
        world_reopen(world);
        (void)sc_store_evict_unreachable(world->store, UINT64_MAX);
        world->params.space.digest[1] ^= 1;
        world->piece_count = 0;
        world_reopen(world);
    } else {
        world_reopen(world);
        assert_int_equal(world->open_count, world->piece_count);
    }
}

static void quarantine_random_lives_keep_every_page_accounted_for(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 24; seed++) {
        struct world *world = world_make(&setups[seed % SETUPS], seed);
        uint64_t random = seed, key = 1;
        world->config.lease_ns_max = seed % 5 == 0 ? 0 : LEASE_NS;
        world->params.on_piece = believe;
        print_message("seed %lu\n", (unsigned long)seed);
        world_open_ok(world);
        for (uint32_t step = 0; step < 120; step++) {
            random_step(world, &random, &key);
            space_check(world->store);
            if (step % 10 == 0)
                random_rows_right(world);
        }
        world_free(world);
    }
}

/* ---- A reader beside the writer ---------------------------------------------------------------
 */

static void follow_all(struct world *world, struct sc_store *follower)
{
    bool more = true;
    while (more)
        assert_int_equal(sc_store_follow(follower, &more, &world->error), SPEC_OK);
}

static void quarantine_lets_a_reader_finish_on_its_lease(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < SETUPS; i++) {
        struct world *world = leased_world(&setups[i], 3);
        struct sc_store_params params = world->params;
        struct sc_store *follower = NULL;
        struct sc_store_extent *extent = NULL;
        struct sc_store_reader *reader = NULL;
        struct sc_store_free_space room;
        uint8_t hash[SC_STORE_HASH_BYTES];
        uint64_t key = 2;
        params.role = SC_STORE_READER;
        params.on_piece = believe;
        assert_int_equal(world_store(world, 1, 0, 128), SPEC_OK);
        assert_int_equal(sc_store_open(&params, &follower, &world->error), SPEC_OK);
        follow_all(world, follower);
        struct pass *pass = pass_make(world, 9, 0, 20);
        const struct sc_store_pass what = {.pieces = pass->plans, .piece_count = 1, .user = pass};
        assert_int_equal(sc_store_extent_begin(follower, &what, &extent, &world->error),
                         SPEC_E_UNSUPPORTED);
        assert_int_equal(sc_store_extent_rows_fit(follower, 1), 0);
        sc_store_free_space(follower, &room);
        assert_int_equal(room.bytes_max, 0);
        pass_free(pass);

        struct world_piece pieces[2] = {world->pieces[0], world->pieces[1]};
        drop_all(world);
        follow_all(world, follower);
        (void)fill(world, &key, 100); /* around what is in quarantine */
        assert_false(sc_store_piece_hash(follower, pieces[0].id, hash)); /* not promised again */
        assert_int_equal(sc_store_readers_open(follower, 1, &reader, NULL), SPEC_OK);
        for (uint32_t layer = 0; layer < setups[i].layers; layer++)
            assert_int_equal(world_load_piece(world, reader, layer, &pieces[0]).rows, 64);
        world_wait_ns(world, LEASE_NS);
        (void)fill(world, &key, 100); /* in its pages */
        uint32_t missed = 0;          /* a layer whose pages nobody wanted is right still */
        for (uint32_t layer = 0; layer < setups[i].layers; layer++)
            missed += world_load_piece(world, reader, layer, &pieces[0]).status == SPEC_E_CORRUPT;
        assert_true(missed > 0);
        follow_all(world, follower);
        uint64_t id = world->pieces[0].id, log_bytes = stats_of(world).log_bytes;
        assert_int_equal(world_load_piece(world, reader, 0, &world->pieces[0]).rows, 64);
        sc_store_piece_drop(follower, id); /* void here, at once, and nowhere else */
        assert_int_equal(world_load_piece(world, reader, 0, &world->pieces[0]).status,
                         SPEC_E_CORRUPT);
        assert_true(sc_store_piece_hash(world->store, id, hash));
        assert_int_equal(stats_of(world).log_bytes, log_bytes);
        sc_store_readers_close(reader, 1);
        sc_store_close(follower);
        space_check(world->store);
        check_rows_right(world);
        world_free(world);
    }
}

/* ---- A real disk ----------------------------------------------------------------------------- */

static uint64_t blocks_below(const char *path)
{
    char name[SC_LIMIT_PATH_BYTES + 300];
    uint64_t bytes = 0;
    DIR *dir = opendir(path);
    assert_non_null(dir);
    for (struct dirent *entry = readdir(dir); entry != NULL; entry = readdir(dir)) {
        struct stat st;
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        (void)snprintf(name, sizeof(name), "%s/%s", path, entry->d_name);
        assert_int_equal(lstat(name, &st), 0);
        bytes += (uint64_t)st.st_blocks * 512;
        bytes += S_ISDIR(st.st_mode) ? blocks_below(name) : 0;
    }
    (void)closedir(dir);
    return bytes;
}

static void quarantine_counts_under_disk_bytes_in_allocated_blocks(void **state)
{
    (void)state;
    struct world_setup setup = setups[0];
    setup.backend = SC_BACKEND_PREAD;
    setup.thread_count = 1;
    struct world *world = world_make(&setup, 3);
    uint64_t key = 1;
    world->config.lease_ns_max = 3600 * LEASE_NS / 30; /* an hour */
    world_open_ok(world);
    for (uint32_t turn = 0; turn < 4; turn++) {
        (void)fill(world, &key, 150);
        assert_true(blocks_below(world->root) <= setup.disk_bytes);
        drop_all(world);
        assert_true(blocks_below(world->root) <= setup.disk_bytes);
        if (turn == 1)
            assert_true(sc_store_quarantine_release(world->store, UINT64_MAX) > 0);
    }
    space_check(world->store);
    world_free(world);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(quarantine_pages_are_reused_after_the_lease_and_not_before),
        cmocka_unit_test(quarantine_times_are_told_apart),
        cmocka_unit_test(quarantine_survives_a_clock_that_is_set),
        cmocka_unit_test(quarantine_a_tail_gives_its_pages_back_while_the_head_stays),
        cmocka_unit_test(quarantine_a_shared_page_goes_with_the_second),
        cmocka_unit_test(quarantine_rows_that_were_not_committed_come_back_at_once),
        cmocka_unit_test(quarantine_dropping_allocates_nothing),
        cmocka_unit_test(quarantine_a_drop_without_its_record_keeps_its_pages),
        cmocka_unit_test(quarantine_a_drop_without_its_record_is_written_by_a_later_one),
        cmocka_unit_test(quarantine_a_failing_disk_pauses_storing_and_not_loading),
        cmocka_unit_test(quarantine_a_bad_segment_does_not_stop_the_others),
        cmocka_unit_test(room_counts_what_is_held_free_and_waiting),
        cmocka_unit_test(room_knows_what_a_lease_takes),
        cmocka_unit_test(room_evicts_other_namespaces_oldest_first),
        cmocka_unit_test(room_a_bulk_of_void_pieces_waits_as_dropped_ones_do),
        cmocka_unit_test(room_shrinks_with_disk_bytes),
        cmocka_unit_test(room_in_fragments_is_used),
        cmocka_unit_test(quarantine_random_lives_keep_every_page_accounted_for),
        cmocka_unit_test(quarantine_lets_a_reader_finish_on_its_lease),
        cmocka_unit_test(quarantine_counts_under_disk_bytes_in_allocated_blocks),
    };
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
