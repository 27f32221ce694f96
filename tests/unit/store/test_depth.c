/* How far loads are read ahead: beyond the slots of a reader, as far as frames of the class go; who
 * is waited for beside them; ranges in the host tier, which need no frame, before others.
 *
 * Threads: the fixture's; the last test: LOADERS, with readers that were opened together. */
#include "tests/unit/store/store_fixture.h"

#include "store/internal.h"
#include "store/read/reader.h"

#include <pthread.h>

#define FRAMES   200u
#define ROWS     1000u /* 250 operations or more of 4 rows */
#define PASS     256u
#define OP_BYTES (64u << 10)
#define FLYING   64u /* at most: as many as a reader has slots */
#define LOADERS  4u
#define ROUNDS   12u

static const struct world_setup setup = {
    "sim, 16 KiB rows", WORLD_ON(SIM, 0), WORLD_SHAPE(PAIRED, 2, 8192, 0),
    WORLD_DISK(256, 64, OP_BYTES / 1024),
    .staging_bytes = FRAMES * (OP_BYTES + SC_STAGING_SLACK_BYTES)};

struct scene {
    struct world *world;
    struct sc_store_range ranges[ROWS / 64 + 1];
    uint64_t range_count;
    struct sc_store_reader *readers[2 * LOADERS];
};

/* In passes that staging has room for. */
static void store_some(struct world *world, uint32_t rows)
{
    for (uint32_t first = 0; first < rows; first += PASS) {
        uint32_t count = rows - first < PASS ? rows - first : PASS;
        assert_int_equal(world_store(world, 1, first, count), SPEC_OK);
    }
}

static void scene_open(struct scene *scene, const struct world_setup *how)
{
    *scene = (struct scene){.world = world_opened(world_make(how, 3))};
    assert_non_null(scene->world);
    store_some(scene->world, ROWS);
    scene->range_count = scene->world->piece_count;
    for (uint64_t i = 0; i < scene->range_count; i++)
        scene->ranges[i] = (struct sc_store_range){.piece = scene->world->pieces[i].id,
                                                   .row_count = scene->world->pieces[i].row_count};
    assert_int_equal(sc_store_readers_open(scene->world->store, 2 * LOADERS, scene->readers, NULL),
                     SPEC_OK);
}

static void scene_close(struct scene *scene)
{
    sc_store_readers_close(scene->readers[0], 2 * LOADERS);
    assert_int_equal(sc_staging_used(scene->world->store->frames), 0);
    world_free(scene->world);
}

static void begin(struct scene *scene, uint32_t reader, uint32_t layer, enum sc_io_class io_class)
{
    sc_store_reader_begin(scene->readers[reader], layer, scene->ranges, scene->range_count,
                          io_class);
}

/* Until nothing moves: nobody consumes. */
static void settle(const struct scene *scene)
{
    while (sc_exec_step_one(scene->world->exec))
        continue;
}

static uint64_t frames_used(const struct scene *scene)
{
    return sc_staging_used(scene->world->store->frames);
}

/* All rows come, right, one after the other. false: they do not. */
static bool takes_all(struct sc_store_reader *reader, uint32_t layer)
{
    uint8_t wanted[2 * 8192];
    struct sc_store_rows got;
    uint64_t next = 0;
    do {
        if (sc_store_reader_next(reader, SC_EXEC_FOREVER, NULL, &got, NULL) != SPEC_OK)
            return false;
        for (uint64_t i = 0; i < got.row_count; i++, next++) {
            row_fill(wanted, sizeof(wanted), 1, layer, next);
            if (memcmp(got.rows + i * got.stride, wanted, sizeof(wanted)) != 0)
                return false;
        }
    } while (got.row_count > 0);
    return next == ROWS;
}

static void depth_a_layer_is_read_ahead_to_half_of_the_frames(void **state)
{
    (void)state;
    struct scene scene;
    scene_open(&scene, &setup);
    uint64_t half = FRAMES / 2;
    begin(&scene, 0, 0, SC_IO_CLASS_SPECULATIVE);
    settle(&scene);
    assert_true(half > SC_READER_SLOTS);
    assert_in_range(frames_used(&scene), half - 1, half);
    uint64_t had = frames_used(&scene);
    assert_false(sc_store_reader_is_there(scene.readers[0]));
    sc_store_reader_demand(scene.readers[0]); /* the caller is about to consume it */
    settle(&scene);
    assert_in_range(frames_used(&scene), had + 1, had + FLYING);
    assert_true(takes_all(scene.readers[0], 0));
    assert_int_equal(frames_used(&scene), 0);
    scene_close(&scene);
}

static void depth_a_load_that_is_waited_for_and_left_holds_what_it_did(void **state)
{
    (void)state;
    struct scene scene;
    scene_open(&scene, &setup);
    begin(&scene, 0, 0, SC_IO_CLASS_DEMAND); /* and its caller goes away */
    settle(&scene);
    assert_int_equal(frames_used(&scene), SC_READER_SLOTS);
    begin(&scene, 1, 1, SC_IO_CLASS_SPECULATIVE); /* what it reads ahead */
    settle(&scene);
    assert_true(frames_used(&scene) < FRAMES - SC_READER_SLOTS);
    begin(&scene, 2, 0, SC_IO_CLASS_DEMAND);
    assert_true(takes_all(scene.readers[2], 0));
    sc_store_reader_cancel(scene.readers[1]);
    assert_true(takes_all(scene.readers[0], 0));
    assert_int_equal(frames_used(&scene), 0);
    scene_close(&scene);
}

static void depth_loads_read_ahead_share_their_half(void **state)
{
    (void)state;
    struct scene scene;
    scene_open(&scene, &setup);
    for (uint32_t i = 0; i < 6; i++)
        begin(&scene, i, i % 2, SC_IO_CLASS_SPECULATIVE);
    settle(&scene);
    assert_true(frames_used(&scene) <= FRAMES / 2);
    for (uint32_t i = 0; i < 6; i++)
        assert_true(scene.readers[i]->inflight.frame_count <= SC_READER_SLOTS);
    begin(&scene, 6, 1, SC_IO_CLASS_DEMAND);
    assert_true(takes_all(scene.readers[6], 1));
    for (uint32_t i = 6; i-- > 0;) {
        sc_store_reader_demand(scene.readers[i]);
        assert_true(takes_all(scene.readers[i], i % 2));
    }
    assert_int_equal(frames_used(&scene), 0);
    scene_close(&scene);
}

/* Alone a load takes all of the half; who comes later gets what it consumes. */
static void depth_a_load_alone_leaves_frames_to_one_that_comes(void **state)
{
    (void)state;
    struct scene scene;
    scene_open(&scene, &setup);
    begin(&scene, 0, 0, SC_IO_CLASS_SPECULATIVE);
    settle(&scene);
    begin(&scene, 1, 1, SC_IO_CLASS_SPECULATIVE);
    settle(&scene);
    assert_true(scene.readers[0]->inflight.frame_count > SC_READER_SLOTS);
    assert_int_equal(scene.readers[1]->inflight.frame_count, 0);
    assert_true(takes_all(scene.readers[0], 0)); /* what it consumes goes to who waits */
    settle(&scene);
    assert_true(scene.readers[1]->inflight.frame_count > SC_READER_SLOTS);
    sc_store_reader_cancel(scene.readers[1]);
    settle(&scene);
    assert_int_equal(frames_used(&scene), 0);
    scene_close(&scene);
}

/* A hundred slabs of host memory, then rows of the disk: these are begun at once. */
static void depth_what_lies_behind_in_host_tier_ranges_is_read_ahead(void **state)
{
    (void)state;
    enum { PIECES = 120, IN_HOST_TIER = 100 };
    struct world_setup small = setup;
    small.k_row_bytes = 512;
    struct world *world = world_make(&small, 3);
    world->config.host_bytes = 16u << 20;
    world_open_ok(world);
    store_some(world, PIECES * 64);
    struct sc_store_range ranges[PIECES];
    const struct world_piece *twins[PIECES];
    assert_int_equal(world->piece_count, PIECES);
    for (uint32_t i = 0; i < PIECES; i++) {
        twins[i] = &world->pieces[i];
        ranges[i] = (struct sc_store_range){.piece = twins[i]->id, .row_count = 64};
    }
    struct sc_store_reader *reader = world_reader(world);
    assert_int_equal(world_load(world, reader, 1, ranges, twins, IN_HOST_TIER).rows,
                     IN_HOST_TIER * 64);
    sc_store_reader_begin(reader, 1, ranges, PIECES, SC_IO_CLASS_SPECULATIVE);
    while (sc_exec_step_one(world->exec))
        continue;
    assert_true(sc_store_reader_is_there(reader));
    struct sc_store_read_cost cost;
    sc_store_reader_cost(reader, &cost);
    assert_true(cost.read_bytes >= (PIECES - IN_HOST_TIER) * UINT64_C(64) * 1024);
    assert_int_equal(world_load(world, reader, 1, ranges, twins, PIECES).rows, PIECES * 64);
    sc_store_readers_close(reader, 1);
    world_free(world);
}

struct loader {
    struct scene *scene;
    pthread_t thread;
    uint32_t first; /* of its two readers */
    bool is_right;
};

static void *loader_main(void *argument)
{
    struct loader *loader = argument;
    uint64_t seed = loader->first + 1;
    loader->is_right = true;
    for (uint32_t round = 0; round < ROUNDS && loader->is_right; round++) {
        for (uint32_t layer = 0; layer < 2; layer++)
            begin(loader->scene, loader->first + layer, layer, SC_IO_CLASS_SPECULATIVE);
        for (uint32_t layer = 0; layer < 2; layer++) {
            struct sc_store_reader *reader = loader->scene->readers[loader->first + layer];
            struct sc_store_rows got;
            uint64_t does = random_below(&seed, 4);
            if (does == 0) { /* the host let the request go */
                (void)sc_store_reader_next(reader, 0, NULL, &got, NULL);
                sc_store_reader_cancel(reader);
                continue;
            }
            if (does != 1)
                sc_store_reader_demand(reader);
            loader->is_right = loader->is_right && takes_all(reader, layer);
        }
    }
    return NULL;
}

static void depth_readers_of_many_threads_share_slots_and_frames(void **state)
{
    (void)state;
    struct world_setup threads = setup;
    struct loader loaders[LOADERS];
    struct scene scene;
    threads.backend = SC_BACKEND_PREAD;
    threads.thread_count = 2;
    scene_open(&scene, &threads);
    for (uint32_t i = 0; i < LOADERS; i++) {
        loaders[i] = (struct loader){.scene = &scene, .first = 2 * i};
        assert_int_equal(pthread_create(&loaders[i].thread, NULL, loader_main, &loaders[i]), 0);
    }
    for (uint32_t i = 0; i < LOADERS; i++) {
        assert_int_equal(pthread_join(loaders[i].thread, NULL), 0);
        assert_true(loaders[i].is_right);
    }
    scene_close(&scene);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(depth_a_layer_is_read_ahead_to_half_of_the_frames),
        cmocka_unit_test(depth_a_load_that_is_waited_for_and_left_holds_what_it_did),
        cmocka_unit_test(depth_loads_read_ahead_share_their_half),
        cmocka_unit_test(depth_a_load_alone_leaves_frames_to_one_that_comes),
        cmocka_unit_test(depth_what_lies_behind_in_host_tier_ranges_is_read_ahead),
        cmocka_unit_test(depth_readers_of_many_threads_share_slots_and_frames),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
