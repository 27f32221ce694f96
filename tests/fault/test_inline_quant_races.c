/* Codes that are made while rows are stored, beside everything that takes what they are made of:
 * loads and others that overwrite frames, extents that are given up after any layer, drops whose
 * pages are stored in again, builds, checkpoints, a close in the middle. The pools are as small as
 * they may be. Codes that are there are right, rows too, every frame comes back. Nobody has a
 * lease: pages that are dropped while they are read may be others' by then, which verification
 * says.
 *
 * Threads: two that store, one that loads, one that takes frames, one that drops; the executor's.
 */
#include "tests/unit/store/build_check.h"
#include "tests/unit/store/late_io.h"
#include "tests/unit/store/quant_check.h"
#include "tests/unit/store/space_check.h"
#include "tests/unit/threads.h"

#define FRAME_BYTES ((64u << 10) + SC_STAGING_SLACK_BYTES)
#define STORES      2u
#ifdef SC_SANITIZED
#define PASSES 25u
#else
#define PASSES 60u /* that each of them stores */
#endif

static const struct world_setup setups[] = {
    {"pread, paired, 2 threads, 9 frames", WORLD_ON(PREAD, 2), WORLD_SHAPE(PAIRED, 3, 512, 64),
     WORLD_DISK(24, 2, 64), .staging_bytes = 10 * FRAME_BYTES},
    {"pread, split, 3 threads, 12 frames, a slab is more than an operation", WORLD_ON(PREAD, 3),
     WORLD_SHAPE(SPLIT, 2, 1504, 0), WORLD_DISK(24, 2, 64), .staging_bytes = 13 * FRAME_BYTES},
    /* Its disk has room for all that is stored, and its codes, if nothing is dropped. */
    {"io_uring, paired, 2 threads, 16 frames", WORLD_ON(URING, 2), WORLD_SHAPE(PAIRED, 20, 64, 0),
     WORLD_DISK(40, 2, 64), .staging_bytes = 17 * FRAME_BYTES},
    {"pread, split, 2 threads, 4 frames", WORLD_ON(PREAD, 2), WORLD_SHAPE(SPLIT, 2, 256, 0),
     WORLD_DISK(24, 2, 64), .staging_bytes = 5 * FRAME_BYTES},
};
#define SETUPS (sizeof(setups) / sizeof(setups[0]))

struct shared {
    struct world *world;
    pthread_mutex_t lock; /* of the world's pieces */
    _Atomic bool is_dropped[WORLD_PIECES];
    _Atomic bool ends;
    _Atomic uint32_t loads_right, codes_right;
    _Atomic uint64_t bad_blocks; /* whose pages others had when they were read */
};

struct who {
    struct shared *shared;
    uint64_t seed;
};

static void *stores_main(void *argument)
{
    struct who *who = argument;
    struct shared *shared = who->shared;
    uint32_t layers = shared->world->setup->layers;
    for (uint64_t i = 0; i < PASSES; i++) {
        uint32_t rows = (uint32_t)(1 + random_below(&who->seed, i % 3 == 0 ? 2 : 150));
        struct pass *pass = pass_make(shared->world, 1 + who->seed % 1000000 * 2 + i % 2,
                                      random_below(&who->seed, 70), rows);
        uint64_t most =
            random_below(&who->seed, 4) == 0 ? random_below(&who->seed, layers) : layers;
        pass->discards = random_below(&who->seed, 8) == 0;
        if (pass_begin(pass) == SPEC_OK) {
            spec_status status = SPEC_OK;
            while (status == SPEC_OK && pass->layer < most)
                status = pass_put(pass);
            if (status == SPEC_OK && most < layers)
                sc_store_extent_abort(pass->extent);
            pass_wait(pass);
            pthread_mutex_lock(&shared->lock);
            if (pass->status == SPEC_OK && !pass->discards)
                pass_note(pass);
            pthread_mutex_unlock(&shared->lock);
        }
        pass_free(pass);
        if (i % 4 == 0)
            (void)usleep(4000); /* codes come */
    }
    return NULL;
}

/* One that was noted, at random; false: there is none. */
static bool piece_any(struct who *who, uint32_t *ret_index, struct world_piece *ret_piece)
{
    struct shared *shared = who->shared;
    pthread_mutex_lock(&shared->lock);
    bool has = shared->world->piece_count > 0;
    if (has) {
        *ret_index = (uint32_t)random_below(&who->seed, shared->world->piece_count);
        *ret_piece = shared->world->pieces[*ret_index];
    }
    pthread_mutex_unlock(&shared->lock);
    return has;
}

static uint64_t bad_blocks_of(struct sc_store *store)
{
    struct sc_store_stats stats;
    sc_store_stats(store, &stats);
    return stats.bad_blocks;
}

static void *loads_main(void *argument)
{
    struct who *who = argument;
    struct shared *shared = who->shared;
    struct world *mine = calloc(1, sizeof(*mine)); /* it has an error of its own */
    struct world_piece piece;
    uint32_t index;
    assert_non_null(mine);
    mine->setup = shared->world->setup;
    mine->store = shared->world->store;
    struct sc_store_reader *reader = world_reader(mine);
    struct sc_store_selector *selector = selector_make(mine);
    while (!atomic_load(&shared->ends)) {
        if (!piece_any(who, &index, &piece))
            continue;
        uint32_t layer = (uint32_t)random_below(&who->seed, mine->setup->layers);
        struct match match = {.count = 0};
        uint64_t bad_before = bad_blocks_of(mine->store);
        match_add(&match, &piece, 0, piece.row_count);
        if (sc_store_selector_begin(selector,
                                    &(struct sc_store_selector_want){.layer = layer,
                                                                     .io_class = SC_IO_CLASS_DEMAND,
                                                                     .ranges = match.ranges,
                                                                     .range_count = 1,
                                                                     .is_quant = true}) &&
            sc_store_selector_wait(selector, SC_EXEC_FOREVER) == SPEC_OK)
            (void)atomic_fetch_add(&shared->codes_right,
                                   (uint32_t)codes_check(mine, &match, 0, layer, false, selector));
        sc_store_selector_end(selector);
        uint64_t bad = bad_blocks_of(mine->store) - bad_before;
        assert_true(bad == 0 || atomic_load(&shared->is_dropped[index]));
        (void)atomic_fetch_add(&shared->bad_blocks, bad);
        if (world_load_piece(mine, reader, layer, &piece).status == SPEC_OK)
            (void)atomic_fetch_add(&shared->loads_right, 1);
        else
            assert_true(atomic_load(&shared->is_dropped[index]));
    }
    sc_store_selector_close(selector);
    sc_store_readers_close(reader, 1);
    free(mine);
    return NULL;
}

static void *takes_main(void *argument)
{
    struct who *who = argument;
    struct sc_staging *pool = who->shared->world->store->frames;
    uint8_t *frames[32];
    while (!atomic_load(&who->shared->ends)) {
        uint64_t count = 0, most = random_below(&who->seed, 6);
        while (count < most && (frames[count] = sc_staging_take(pool, SC_IO_CLASS_DEMAND)) != NULL)
            memset(frames[count++], 0x5a, FRAME_BYTES);
        while (count > 0)
            sc_staging_put(pool, frames[--count]);
        (void)usleep(500);
    }
    return NULL;
}

static void *drops_main(void *argument)
{
    struct who *who = argument;
    struct sc_store *store = who->shared->world->store;
    struct world_piece piece;
    uint32_t index;
    for (uint64_t i = 0; !atomic_load(&who->shared->ends); i++) {
        if (i % 3 != 0 && piece_any(who, &index, &piece)) {
            atomic_store(&who->shared->is_dropped[index], true);
            sc_store_piece_drop(store, piece.id);
        }
        if (i % 5 == 0)
            sc_store_build_start(store, 0);
        (void)usleep(3000);
    }
    return NULL;
}

static void shared_run(struct shared *shared, uint64_t seed)
{
    void *(*const mains[])(void *) = {stores_main, stores_main, loads_main, takes_main, drops_main};
    struct who whos[5];
    struct threads stores = {.count = 0}, others = {.count = 0};
    for (uint32_t i = 0; i < 5; i++) {
        whos[i] = (struct who){.shared = shared, .seed = seed * 100 + i};
        threads_add(i < STORES ? &stores : &others, mains[i], &whos[i]);
    }
    threads_join(&stores);
    atomic_store(&shared->ends, true);
    threads_join(&others);
}

static void settle(struct world *world)
{
    uint32_t busy;
    build_wait(world);
    while ((busy = atomic_load(&world->store->busy)) != 0)
        (void)sc_exec_wait(world->exec, &world->store->busy, busy,
                           sc_exec_now_ns(world->exec) + 20000000);
}

/* What was not dropped has rows, and (all_codes) codes but where they are raw. */
static void pieces_check(struct shared *shared, bool all_codes)
{
    struct world *world = shared->world;
    struct sc_store_reader *reader = world_reader(world);
    struct sc_store_selector *selector = selector_make(world);
    for (uint32_t i = 0; i < world->piece_count; i++) {
        if (atomic_load(&shared->is_dropped[i]))
            continue;
        for (uint32_t layer = 0; layer < world->setup->layers; layer++) {
            struct match match = {.count = 0};
            match_add(&match, &world->pieces[i], 0, world->pieces[i].row_count);
            assert_int_equal(world_load_piece(world, reader, layer, &world->pieces[i]).status,
                             SPEC_OK);
            if (!all_codes)
                continue;
            codes_load(&match, selector, layer, false);
            assert_int_equal(codes_check(world, &match, 0, layer, false, selector),
                             1 - raw_count(world, &match, layer));
        }
    }
    sc_store_selector_close(selector);
    sc_store_readers_close(reader, 1);
}

static void codes_are_right_beside_everything(const struct world_setup *setup, bool is_late)
{
    static struct shared shared;
    for (uint64_t seed = 1; seed <= 2; seed++) {
        struct world *world = world_make(setup, seed);
        struct sc_store_stats stats;
        keep_quant(world, true);
        world->params.codes.with_rows = true;
        world->params.custom = is_late ? &late_io : NULL;
        world = world_opened(world);
        if (world == NULL)
            return;
        memset(&shared, 0, sizeof(shared));
        shared.world = world;
        pthread_mutex_init(&shared.lock, NULL);
        shared_run(&shared, seed);
        if (seed % 2 == 0) { /* what is on its way ends with the store */
            world_reopen(world);
            atomic_store(&shared.bad_blocks, 0);
            pieces_check(&shared, false);
        }
        sc_store_build_quant(world->store);
        sc_store_build_start(world->store, 0);
        settle(world);
        sc_store_stats(world->store, &stats);
        assert_int_equal(stats.staging_bytes_used, 0);
        assert_int_equal(stats.bad_blocks, atomic_load(&shared.bad_blocks));
        pieces_check(&shared, true);
        space_check(world->store);
        print_message("%s%s: %u pieces, %u loads, %u with codes, %u built\n", setup->name,
                      is_late ? ", late" : "", world->piece_count, atomic_load(&shared.loads_right),
                      atomic_load(&shared.codes_right), (unsigned)stats.built_pieces);
        pthread_mutex_destroy(&shared.lock);
        world_free(world);
    }
}

static void with_9_frames(void **state)
{
    (void)state;
    codes_are_right_beside_everything(&setups[0], false);
    codes_are_right_beside_everything(&setups[0], true);
}

static void with_12_frames(void **state)
{
    (void)state;
    codes_are_right_beside_everything(&setups[1], false);
}

static void with_16_frames(void **state)
{
    (void)state;
    codes_are_right_beside_everything(&setups[2], false);
}

static void with_4_frames(void **state)
{
    (void)state;
    codes_are_right_beside_everything(&setups[3], false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(with_9_frames),
        cmocka_unit_test(with_12_frames),
        cmocka_unit_test(with_16_frames),
        cmocka_unit_test(with_4_frames),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
