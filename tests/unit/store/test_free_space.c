/* Room for two logs: what segments leave, what is refused, what an open cuts.
 *
 * Threads: the fixture's. */
#include "tests/unit/store/space_check.h"

#include "store/internal.h"

static const struct world_setup tiny = {"paired 64-byte rows, 2 layers", WORLD_ON(SIM, 0),
                                        WORLD_SHAPE(PAIRED, 2, 32, 0), WORLD_DISK(8, 1, 64)};

static const struct world_setup large = {"paired 16 KiB rows, 8 layers", WORLD_ON(SIM, 0),
                                         WORLD_SHAPE(PAIRED, 8, 8192, 0), WORLD_DISK(64, 4, 1024)};

static void check_all_layers(struct world *world, uint64_t key, uint64_t rows)
{
    struct sc_store_reader *reader = world_reader(world);
    for (uint32_t layer = 0; layer < world->setup->layers; layer++) {
        struct loaded loaded = world_load_key(world, reader, layer, key);
        assert_int_equal(loaded.status, SPEC_OK);
        assert_int_equal(loaded.rows, rows);
    }
    sc_store_readers_close(reader, 1);
}

static uint64_t segments_room(struct world *world)
{
    pthread_mutex_lock(&world->store->disk.lock);
    uint64_t bytes = sc_store_segment_room(world->store);
    pthread_mutex_unlock(&world->store->disk.lock);
    return bytes;
}

/* Large rows leave a 64th, short ones what records of single rows take, twice: a disk full of them
 * has room for it. */
static void room_of_the_log_follows_from_the_rows(void **state)
{
    (void)state;
    struct world *world = world_new(&large, 1);
    assert_true(segments_room(world) > (64u << 20) / 64 * 62);
    world_free(world);
    world = world_make(&tiny, 1);
    world_open_ok(world);
    uint64_t rows = segments_room(world) / SC_IO_PAGE_BYTES; /* a page each */
    assert_true(rows > 8u << 20 >> 13);
    for (uint64_t key = 1; key <= 200; key++)
        assert_int_equal(world_store(world, key, 32, 1), SPEC_OK);
    struct sc_store_stats stats = stats_of(world);
    uint64_t logs = 2 * (stats.log_bytes / 200 + SC_STORE_DROP_BYTES) * rows;
    assert_true(logs < (8u << 20) - segments_room(world) - stats.disk_bytes_used);
    world_free(world);
}

/* The text says how much is needed, and with so much it goes. */
static void room_that_is_too_small_is_refused_with_the_minimum(void **state)
{
    (void)state;
    struct world *world = world_make(&tiny, 1);
    unsigned long long bytes = 0, least = 0;
    world->config.disk_bytes = 1u << 20;
    assert_int_equal(world_open(world), SPEC_E_NO_SPACE);
    const char *text = strstr(world->error.text, "at least ");
    assert_non_null(text);
    assert_int_equal(sscanf(world->error.text, "%llu", &bytes), 1);
    assert_int_equal(sscanf(text, "at least %llu", &least), 1);
    assert_true(bytes == 1u << 20 && least > bytes);
    world->config.disk_bytes = least - SC_IO_PAGE_BYTES;
    assert_int_equal(world_open(world), SPEC_E_NO_SPACE);
    world->config.disk_bytes = least;
    world_open_ok(world);
    assert_true(segments_room(world) >= SC_STORE_SEGMENT_MIN);
    assert_int_equal(world_store(world, 1, 0, 64), SPEC_OK);
    check_all_layers(world, 1, 64);
    world_free(world);
}

/* Passes of one row, drops and checkpoints at random: what is counted holds both logs, and is never
 * above its bound; who is refused is not when room was made. */
static void room_holds_both_logs_whatever_comes(void **state)
{
    (void)state;
    struct world *world = world_make(&tiny, 1);
    world->config.lease_ns_max = 0;
    world->config.disk_bytes = 3u << 20;
    world_open_ok(world);
    struct sc_store_free_space room;
    uint64_t random = 7, refused = 0, oldest = 0;
    for (uint64_t key = 1; key < 4000; key++) {
        spec_status status = world_store(world, key, random_below(&random, 64), 1);
        assert_true(status == SPEC_OK || status == SPEC_E_NO_SPACE);
        refused += status != SPEC_OK;
        sc_store_free_space(world->store, &room);
        bool is_full = status != SPEC_OK || room.free_bytes < 64u << 10;
        uint64_t drops = is_full ? 40 : room.log_pieces_over;
        for (; drops > 0 && oldest < world->piece_count; drops--)
            sc_store_piece_drop(world->store, world->pieces[oldest++].id);
        assert_true(sc_store_disk_used(world->store) <= world->store->disk.bytes_max);
        if (sc_store_checkpoint_due(world->store))
            assert_int_equal(sc_store_checkpoint(world->store, &world->error), SPEC_OK);
        assert_true(sc_store_disk_used(world->store) <= world->store->disk.bytes_max);
    }
    struct sc_store_stats stats = stats_of(world);
    assert_true(stats.checkpoints > 5 && stats.checkpoints < 400);
    assert_true(refused < 40);
    space_check(world->store);
    world_free(world);
}

/* Nothing more is stored, and the namespace is reset all the same, ten times. */
static void room_for_resets_is_left_when_all_else_is_full(void **state)
{
    (void)state;
    struct world *world = world_new(&tiny, 1);
    for (uint64_t key = 1; key <= 20; key++)
        assert_int_equal(world_store(world, key, 0, 64), SPEC_OK);
    uint64_t promised = 0;
    pthread_mutex_lock(&world->store->disk.lock);
    while (sc_store_log_take(world->store, 100)) /* as passes that are under way may */
        promised += 100;
    pthread_mutex_unlock(&world->store->disk.lock);
    assert_int_equal(world_store(world, 21, 0, 64), SPEC_E_NO_SPACE);
    for (uint64_t epoch = 1; epoch <= 5; epoch++) {
        assert_int_equal(sc_store_epoch_set(world->store, epoch, &world->error), SPEC_OK);
        assert_true(sc_store_disk_used(world->store) <= world->store->disk.bytes_max);
    }
    sc_store_log_unreserve(world->store, promised);
    assert_int_equal(world->store->share.reserved, 0);
    assert_int_equal(world_store(world, 22, 0, 64), SPEC_OK);
    world_free(world);
}

/* A bound that only the end of a segment exceeds: what stands before that end stays. */
static void room_that_was_lowered_cuts_the_end_alone(void **state)
{
    (void)state;
    struct world_setup setup = large;
    setup.segment_bytes = 32u << 20;
    struct world *world = world_new(&setup, 1);
    for (uint64_t key = 1; key <= 20; key++)
        assert_int_equal(world_store(world, key, 0, 16), SPEC_OK); /* 2 MiB each */
    world_close(world);
    world->config.disk_bytes = 24u << 20;
    world_open_ok(world);
    struct sc_store_stats stats = stats_of(world);
    assert_true(stats.disk_bytes_used <= 24u << 20);
    assert_true(sc_store_disk_used(world->store) <= world->store->disk.bytes_max);
    assert_true(world->open_count >= 9 && world->open_count <= 11);
    for (uint64_t key = 1; key <= 9; key++)
        check_all_layers(world, key, 16);
    space_check(world->store);
    world_close(world);
    world->config.disk_bytes = 64u << 20;
    world_open_ok(world); /* what was cut is cut for good */
    assert_true(world->open_count >= 9 && world->open_count <= 11);
    assert_int_equal(world_store(world, 30, 0, 16), SPEC_OK);
    check_all_layers(world, 30, 16);
    space_check(world->store);
    world_free(world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(room_of_the_log_follows_from_the_rows),
        cmocka_unit_test(room_that_is_too_small_is_refused_with_the_minimum),
        cmocka_unit_test(room_holds_both_logs_whatever_comes),
        cmocka_unit_test(room_for_resets_is_left_when_all_else_is_full),
        cmocka_unit_test(room_that_was_lowered_cuts_the_end_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
