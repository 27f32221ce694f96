/* An heir that takes over has the table, the space map, the quarantine and the log's room that a
 * writer's open would have made of the same log; it loads what it was told of before and after, and
 * stores. A store that it cannot take over stays with its files as they are.
 *
 * Threads: the seeded loop. */
#include "store/log/journal.h"
#include "store/log/log_room.h"
#include "store/replay/replay.h"
#include "tests/unit/store/build_trial.h"
#include "tests/unit/store/follower_fixture.h"
#include "tests/unit/store/permutation_check.h"
#include "tests/unit/store/space_check.h"
#include "tests/unit/store/state_check.h"

#include <sys/resource.h>

#define RANK_DIR    "/sim/store/rank-0000-of-0001"
#define LOG_PATH    RANK_DIR "/log"
#define LEASE_NS    UINT64_C(1000000000)
#define SOME        4u
#define LOCK_EVENTS 2u /* who holds the lock is written into its file */

static const struct world_setup small = {"small", WORLD_ON(SIM, 0), WORLD_SHAPE(PAIRED, 3, 48, 0),
                                         WORLD_DISK(8, 1, 64), .journal = 1};

/* As if the process had ended: no checkpoint, no sync. */
static void writer_dies(struct world *world)
{
    world->store->log.journal.synced_end = world->store->log.journal.end.offset;
    world_close(world);
}

static void take_over(struct follower *heir)
{
    if (sc_store_take_over(heir->store, &heir->error) != SPEC_OK)
        fail_msg("take over: %s", heir->error.text);
    assert_true(sc_store_can_store(heir->store));
}

/* The world goes on with the heir's store as its writer. */
static void inherit(struct world *world, struct follower *heir)
{
    world->store = heir->store;
    heir->store = NULL;
}

static bool believe(const struct sc_store_piece *piece, uint64_t *ret_mark, void *user)
{
    (void)piece;
    (void)user;
    *ret_mark = 1;
    return true;
}

/* ---- The same as a writer's open ------------------------------------------------------------- */

/* A writer opens a copy of the disk; both free what waits for leases, and are compared. */
static void same_as_an_open(struct world *world, struct follower *heir, uint64_t seed)
{
    struct world *fresh = world_make(world->setup, seed);
    struct sc_io_sim_disk *copy = NULL;
    sc_io_sim_disk_close(fresh->disk);
    assert_int_equal(sc_io_sim_disk_copy(world->disk, &copy, NULL), SPEC_OK);
    world_disk(fresh, copy);
    fresh->config = world->config;
    fresh->params.config = &fresh->config;
    fresh->params.space = heir->params.space;
    fresh->params.codes = world->params.codes;
    fresh->params.permutation = world->params.permutation;
    fresh->params.on_piece = believe;
    world_open_ok(fresh);
    release_all(fresh);
    struct world after = *world;
    after.store = heir->store;
    release_all(&after);
    maps_equal(heir->store, fresh->store);
    tables_equal(heir->store, fresh->store);
    ranges_hold(heir->store, fresh->store);
    logs_equal(heir->store, fresh->store);
    world_free(fresh);
}

/* ---- Tests ----------------------------------------------------------------------------------- */

static void an_heir_takes_over_and_stores(void **state)
{
    (void)state;
    struct world *world = world_new(&small, 1);
    for (uint64_t key = 1; key <= 3; key++)
        assert_int_equal(world_store(world, key, 0, 130), SPEC_OK);
    struct follower *heir = follower_new(world, SC_STORE_HEIR);
    assert_int_equal(world_store(world, 4, 0, 100), SPEC_OK);
    world_drop(world, 3, 2);
    assert_false(sc_store_can_store(heir->store));
    assert_int_equal(sc_store_epoch_set(heir->store, 9, NULL), SPEC_E_UNSUPPORTED);
    follow(heir);
    check_same(heir);
    check_rows_told(heir);
    uint64_t events = sc_io_sim_disk_events(world->disk);
    assert_int_equal(sc_store_take_over(heir->store, &heir->error), SPEC_E_LOCKED);
    assert_int_equal(sc_io_sim_disk_events(world->disk), events);
    assert_int_equal(world_store(world, 5, 0, 64), SPEC_OK); /* which it has not read yet */
    writer_dies(world);
    take_over(heir);
    assert_int_equal(heir->told_count, 10);
    check_rows_told(heir);
    same_as_an_open(world, heir, 2);
    assert_int_equal(sc_store_take_over(heir->store, &heir->error), SPEC_E_UNSUPPORTED);
    inherit(world, heir);
    assert_int_equal(world_store(world, 6, 0, 130), SPEC_OK);
    world_drop(world, 0, 1);
    assert_int_equal(sc_store_checkpoint(world->store, &world->error), SPEC_OK);
    rows_ok(world, 6);
    space_check(world->store);
    struct follower *next = follower_new(world, SC_STORE_HEIR);
    check_same(next);
    assert_int_equal(sc_store_take_over(next->store, &next->error), SPEC_E_LOCKED);
    follower_free(next);
    world_reopen(world);
    rows_ok(world, 5);
    rows_ok(world, 6);
    follower_free(heir);
    world_free(world);
}

static void other_stores(struct world *world, uint64_t *random, uint64_t key)
{
    uint8_t digest = world->params.space.digest[0];
    struct world_piece *pieces = malloc(sizeof(world->pieces));
    bool (*on_piece)(const struct sc_store_piece *, uint64_t *, void *) = world->params.on_piece;
    uint32_t count = world->piece_count;
    assert_non_null(pieces);
    memcpy(pieces, world->pieces, sizeof(world->pieces));
    world_close(world);
    world->params.space.digest[0] = (uint8_t)(digest ^ (1 + random_below(random, 2)));
    world->params.on_piece = believe;
    world_open_ok(world);
    for (uint64_t i = random_below(random, 3); i-- > 0;)
        (void)world_store(world, key * 100 + i, 0, (uint32_t)random_below(random, 150) + 1);
    if (random_below(random, 3) == 0 && world->piece_count > count)
        sc_store_piece_drop(world->store, world->pieces[world->piece_count - 1].id);
    if (random_below(random, 4) == 0)
        assert_int_equal(sc_store_checkpoint(world->store, &world->error), SPEC_OK);
    world_close(world);
    world->params.space.digest[0] = digest;
    world->params.on_piece = on_piece;
    memcpy(world->pieces, pieces, sizeof(world->pieces));
    world->piece_count = count;
    free(pieces);
    world_open_ok(world);
}

static void epoch_next(struct world *world)
{
    uint64_t epoch = sc_store_epoch(world->store) + 1;
    assert_int_equal(sc_store_epoch_set(world->store, epoch, &world->error), SPEC_OK);
    world->piece_count = 0;
}

static void average_put(struct world *world, uint64_t *random)
{
    uint16_t codes[WORLD_LAYERS * 256];
    const struct world_piece *piece = &world->pieces[random_below(random, world->piece_count)];
    for (uint32_t i = 0; i < world->setup->layers * piece->row_count; i++)
        codes[i] = (uint16_t)random_below(random, 65536);
    const struct sc_store_average average = {
        .piece = piece->id, .requests = 3, .row_count = piece->row_count, .codes = codes};
    assert_int_equal(sc_store_average_put(world->store, &average, 1, &world->error), SPEC_OK);
}

/* One random step of the writer. */
static void writer_step(struct world *world, uint64_t *random, uint64_t *key)
{
    switch (random_below(random, 16)) {
    case 0:
    case 1:
    case 2:
    case 3:
    case 4:
        (void)world_store(world, ++*key, 0, (uint32_t)random_below(random, 300) + 1);
        break;
    case 5:
    case 6:
    case 7:
        if (world->piece_count > 0)
            world_drop(world, (uint32_t)random_below(random, world->piece_count), 1);
        break;
    case 8:
        if (random_below(random, 4) == 0)
            epoch_next(world);
        break;
    case 9:
        assert_int_equal(sc_store_checkpoint(world->store, &world->error), SPEC_OK);
        break;
    case 10:
        world_reopen(world);
        break;
    case 11:
        other_stores(world, random, ++*key);
        break;
    case 12:
        order_host.turn++;
        if (world->params.permutation.span_rows > 0)
            order_again(world);
        break;
    case 13:
        if (world->piece_count > 0)
            average_put(world, random);
        break;
    case 14:
        if (world->params.codes.shape.bits_k != 0)
            build_quantised(world);
        break;
    default:
        world_wait_ns(world, random_below(random, 2 * LEASE_NS));
    }
}

/* rare: the heir looks after so many steps on average. */
static void heir_trial(const struct world_setup *setup, uint64_t seed, uint64_t rare)
{
    uint64_t random = seed * 77, key = 0;
    struct world *world = world_make(setup, seed);
    world->config.lease_ns_max = seed % 3 == 0 ? 0 : LEASE_NS;
    if (seed % 2 == 0) {
        orders_on(world, 128);
        orders_again(world);
    }
    if (rare > SOME) /* pages have other owners before it looks */
        world->config.lease_ns_max = seed % 2 == 0 ? 0 : LEASE_NS / 1000;
    keep_quant(world, seed % 4 < 2);
    world_open_ok(world);
    for (uint64_t before = random_below(&random, 20); before-- > 0;)
        writer_step(world, &random, &key);
    struct follower *heir = follower_new(world, SC_STORE_HEIR);
    for (uint32_t step = 0; step < 50; step++) {
        writer_step(world, &random, &key);
        if (random_below(&random, rare) > 0)
            continue;
        follow(heir);
        assert_int_equal(heir->told_count, world->piece_count);
        check_rows_told(heir);
    }
    bool is_torn = random_below(&random, 2) == 0;
    uint64_t end = 0;
    if (random_below(&random, 2) == 0)
        world_close(world);
    else
        writer_dies(world);
    while (is_torn && sc_io_sim_disk_peek(world->disk, LOG_PATH, end, &(uint8_t){0}, 1))
        end++;
    if (is_torn)
        assert_true(sc_io_sim_disk_resize(world->disk, LOG_PATH, end + 70000));
    take_over(heir);
    check_rows_told(heir);
    same_as_an_open(world, heir, seed + 1000);
    inherit(world, heir);
    for (uint32_t step = 0; step < 20; step++)
        writer_step(world, &random, &key);
    release_all(world);
    world_reopen(world);
    assert_int_equal(stats_of(world).corrupt_records, 0);
    release_all(world);
    for (uint32_t i = 0; i < world->piece_count; i++)
        assert_true(world->pieces[i].seen || world->pieces[i].id == 0);
    follower_free(heir);
    world_free(world);
}

static void an_heir_has_what_an_open_would_make(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 60; seed++)
        heir_trial(seed % 5 == 0 ? &small : &build_setups[seed % 3], seed, SOME);
}

static void an_heir_that_looks_rarely_has_it_too(void **state)
{
    (void)state;
    for (uint64_t seed = 61; seed <= 140; seed++)
        heir_trial(seed % 3 == 0 ? &small : &build_setups[seed % 2], seed, 12);
}

static bool is_there(const struct sc_store *store, uint64_t id, uint32_t rows)
{
    const struct sc_store_range range = {.piece = id, .row_count = rows};
    return sc_store_range_is_there(store, &range);
}

/* As in any reader; a reset or an end of the lease ends that. */
static void rows_of_dropped_pieces_are_read_while_a_lease_may_name_them(void **state)
{
    (void)state;
    struct world *world = world_make(&small, 11);
    world->config.lease_ns_max = LEASE_NS;
    world_open_ok(world);
    assert_int_equal(world_store(world, 1, 0, 130), SPEC_OK);
    struct follower *heir = follower_new(world, SC_STORE_HEIR);
    world_drop(world, 2, 1);
    follow(heir);
    assert_int_equal(heir->told_count, 2);
    assert_true(is_there(heir->store, 3, 2));
    world_wait_ns(world, 2 * LEASE_NS);
    (void)sc_store_quarantine_release(heir->store, sc_exec_now_ns(world->exec));
    assert_false(is_there(heir->store, 3, 2)); /* its pages are others' now */
    world_drop(world, 1, 1);
    follow(heir);
    assert_true(is_there(heir->store, 2, 64));
    epoch_next(world);
    follow(heir);
    assert_false(is_there(heir->store, 1, 64));
    assert_false(is_there(heir->store, 2, 64));
    follower_free(heir);
    world_free(world);
}

/* The clock was set back before the heir read of drops, so it counts their lease from then; the
 * writer reuses the pages earlier. The heir frees these, and nothing that was dropped later. */
static void a_reused_page_ends_no_other_lease(void **state)
{
    (void)state;
    struct world *world = world_make(&small, 16);
    const int64_t hour = INT64_C(3600000000000);
    uint64_t key = 0;
    world->config.lease_ns_max = LEASE_NS;
    world->config.disk_bytes = 3u << 20;
    sc_exec_wall_set(world->exec, 2 * hour);
    world_open_ok(world);
    while (world_store(world, ++key, 0, 512) == SPEC_OK)
        ;
    assert_true(key > 10);
    struct follower *heir = follower_new(world, SC_STORE_HEIR);
    uint64_t id = world->pieces[world->piece_count - 1].id, first = world->pieces[0].id;
    uint32_t rows = world->pieces[world->piece_count - 1].row_count;
    world_drop(world, 0, 16); /* the first two keys */
    sc_exec_wall_set(world->exec, -hour);
    world_wait_ns(world, LEASE_NS / 2);
    follow(heir);
    world_wait_ns(world, LEASE_NS / 16);
    world_drop(world, world->piece_count - 1, 1);
    follow(heir);
    world_wait_ns(world, LEASE_NS / 2);
    (void)sc_store_quarantine_release(world->store, sc_exec_now_ns(world->exec));
    assert_int_equal(world_store(world, ++key, 0, 512), SPEC_OK); /* where the first was */
    uint32_t told = heir->told_count;
    assert_true(is_there(heir->store, first, 64));
    follow(heir);
    assert_int_equal(heir->told_count, told + 8);
    assert_false(is_there(heir->store, first, 64));
    check_rows_told(heir);
    assert_true(is_there(heir->store, id, rows));
    follower_free(heir);
    world_free(world);
}

/* Pieces that failed in the reader, and one whose chain it did not believe: they get drop records,
 * so that no later open finds them. */
static void what_failed_in_the_heir_is_dropped_for_all(void **state)
{
    (void)state;
    struct world *world = world_new(&small, 12);
    for (uint64_t key = 1; key <= 3; key++)
        assert_int_equal(world_store(world, key, 0, 130), SPEC_OK);
    struct follower *heir = follower_make(world, SC_STORE_HEIR);
    heir->refuse_id = 6;
    follower_open(heir);
    assert_int_equal(heir->told_count, 8);
    sc_store_piece_drop(heir->store, 2);
    sc_store_piece_drop(heir->store, 9);
    writer_dies(world);
    take_over(heir);
    assert_int_equal(heir->store->log.unwritten, 0);
    inherit(world, heir);
    space_check(world->store);
    world->params.on_piece = believe;
    world_reopen(world);
    for (uint64_t id = 1; id <= 9; id++)
        assert_int_equal(is_there(world->store, id, 1), id != 2 && id != 6 && id != 9);
    release_all(world);
    follower_free(heir);
    world_free(world);
}

/* More than this process may have on disk; another store in the first one's place. */
static void an_heir_that_cannot_stays_a_reader(void **state)
{
    (void)state;
    for (uint32_t round = 0; round < 2; round++) {
        struct world *world = world_new(&small, 13 + round);
        struct sc_config config = world->config;
        for (uint64_t key = 1; key <= 30; key++)
            assert_int_equal(world_store(world, key, 0, 300), SPEC_OK);
        struct follower *heir = follower_make(world, SC_STORE_HEIR);
        config.disk_bytes = round == 0 ? 3u << 20 : config.disk_bytes;
        heir->params.config = &config;
        follower_open(heir);
        check_rows_told(heir);
        writer_dies(world);
        if (round == 1)
            assert_true(sc_io_sim_disk_resize(world->disk, RANK_DIR "/seg-00000000", 4096));
        uint64_t events = sc_io_sim_disk_events(world->disk);
        assert_int_equal(sc_store_take_over(heir->store, &heir->error), SPEC_E_STALE);
        assert_true(strlen(heir->error.text) > 0);
        assert_int_equal(sc_io_sim_disk_events(world->disk), events + LOCK_EVENTS);
        assert_int_equal(sc_store_take_over(heir->store, NULL), SPEC_E_UNSUPPORTED); /* said once */
        assert_false(sc_store_can_store(heir->store));
        if (round == 0) {
            world_open_ok(world); /* a process that can */
            assert_int_equal(world_store(world, 40, 0, 64), SPEC_OK);
            follow(heir);
            check_rows_told(heir);
        }
        follower_free(heir);
        world_free(world);
    }
}

/* However often it has asked: the first question after the writer's end is answered. */
static void an_heir_takes_over_at_once(void **state)
{
    (void)state;
    for (uint32_t asks = 0; asks <= 25; asks++) {
        struct world *world = world_new(&small, 16);
        assert_int_equal(world_store(world, 1, 0, 130), SPEC_OK);
        struct follower *heir = follower_new(world, SC_STORE_HEIR);
        for (uint32_t i = 0; i < asks; i++)
            assert_int_equal(sc_store_take_over(heir->store, &heir->error), SPEC_E_LOCKED);
        writer_dies(world);
        take_over(heir);
        assert_int_equal(world_open(world), SPEC_E_LOCKED);
        follower_free(heir);
        world_open_ok(world); /* it has no lock any more */
        world_free(world);
    }
}

/* The writer's directory was removed and made again, beside its old process. */
static void an_heir_finds_another_lock_under_the_name(void **state)
{
    (void)state;
    struct world *world = world_new(&small, 17);
    assert_int_equal(world_store(world, 1, 0, 130), SPEC_OK);
    struct follower *heir = follower_new(world, SC_STORE_HEIR);
    assert_int_equal(sc_store_take_over(heir->store, &heir->error), SPEC_E_LOCKED);
    assert_int_equal(sc_io_unlink(heir->store->io, RANK_DIR "/lock", NULL), SPEC_OK);
    struct sc_io_file *file;
    assert_int_equal(sc_io_file_open(heir->store->io, RANK_DIR "/lock",
                                     SC_IO_OPEN_CREATE | SC_IO_OPEN_WRITE, &file, NULL),
                     SPEC_OK);
    sc_io_file_close(heir->store->io, file);
    uint32_t asks = 1;
    while (sc_store_take_over(heir->store, &heir->error) == SPEC_E_LOCKED)
        assert_true(asks++ < 20);
    assert_true(asks < 12); /* a second, at ten a second */
    follower_free(heir);
    world_free(world);
}

static void an_heir_whose_log_is_another_stays_a_reader(void **state)
{
    (void)state;
    struct world *world = world_new(&small, 15);
    assert_int_equal(world_store(world, 1, 0, 130), SPEC_OK);
    struct follower *heir = follower_new(world, SC_STORE_HEIR);
    world_close(world);
    sc_store_replay_forget(heir->store); /* as test_follow.c makes it happen */
    assert_int_equal(heir->told_count, 0);
    assert_int_equal(sc_store_take_over(heir->store, &heir->error), SPEC_E_UNSUPPORTED);
    follower_free(heir);
    world_free(world);
}

/* ---- What an heir misses while it does not look ---------------------------------------------- */

/* The writer dropped a piece, and a checkpoint left it out before the heir looked. Its pages are
 * others' now. */
static void left_the_log(bool fails)
{
    struct world *world = world_new(&small, 21);
    for (uint64_t key = 1; key <= 2; key++)
        assert_int_equal(world_store(world, key, 0, 64), SPEC_OK);
    struct follower *heir = follower_new(world, SC_STORE_HEIR);
    if (fails) /* in this reader alone, so far */
        sc_store_piece_drop(heir->store, 1);
    world_drop(world, 0, 1);
    assert_int_equal(sc_store_checkpoint(world->store, &world->error), SPEC_OK);
    for (uint64_t key = 3; key <= 6; key++)
        assert_int_equal(world_store(world, key, 0, 64), SPEC_OK);
    writer_dies(world);
    take_over(heir);
    assert_int_equal(heir->told_count, fails ? 6 : 5); /* who drops it knows it is gone */
    if (!fails)
        check_rows_told(heir);
    same_as_an_open(world, heir, 22);
    inherit(world, heir);
    assert_int_equal(stats_of(world).corrupt_records, 0);
    world_reopen(world);
    for (uint64_t key = 2; key <= 6; key++)
        rows_ok(world, key);
    follower_free(heir);
    world_free(world);
}

static void a_piece_that_left_the_log_gives_its_pages_back(void **state)
{
    (void)state;
    left_the_log(false);
    left_the_log(true);
}

/* A piece failed here before the log dropped it by a reset: its pages are others' afterwards. */
static void a_piece_that_failed_here_goes_with_a_reset(void **state)
{
    (void)state;
    struct world *world = world_new(&small, 29);
    for (uint64_t key = 1; key <= 2; key++)
        assert_int_equal(world_store(world, key, 0, 64), SPEC_OK);
    struct follower *heir = follower_new(world, SC_STORE_HEIR);
    sc_store_piece_drop(heir->store, 1);
    epoch_next(world);
    for (uint64_t key = 3; key <= 6; key++)
        assert_int_equal(world_store(world, key, 0, 64), SPEC_OK);
    writer_dies(world);
    take_over(heir);
    check_rows_told(heir);
    assert_int_equal(heir->told_count, 4);
    same_as_an_open(world, heir, 30);
    inherit(world, heir);
    follower_free(heir);
    world_free(world);
}

/* The heir saw an extent's record before its pieces', and a checkpoint left out both since. */
static void an_extent_without_its_pieces_holds_nothing(void **state)
{
    (void)state;
    struct world *world = world_new(&small, 31);
    assert_int_equal(world_store(world, 1, 0, 64), SPEC_OK);
    struct follower *heir = follower_new(world, SC_STORE_HEIR);
    uint64_t begin = world->store->log.journal.end.offset;
    uint8_t frames[4096], first[SC_STORE_FRAME_BYTES];
    assert_int_equal(world_store(world, 2, 0, 64), SPEC_OK);
    uint64_t bytes = world->store->log.journal.end.offset - begin;
    assert_true(bytes <= sizeof(frames));
    assert_true(sc_io_sim_disk_peek(world->disk, LOG_PATH, begin, frames, bytes));
    memcpy(first, frames, sizeof(first));
    assert_true(sc_io_sim_disk_resize(world->disk, LOG_PATH, begin + sc_store_frame_bytes(first)));
    follow(heir); /* of an append that is under way */
    assert_true(sc_io_sim_disk_resize(world->disk, LOG_PATH, begin + bytes));
    assert_true(sc_io_sim_disk_poke(world->disk, LOG_PATH, begin, frames, bytes));
    world_drop(world, 1, 1);
    assert_int_equal(sc_store_checkpoint(world->store, &world->error), SPEC_OK);
    writer_dies(world);
    take_over(heir);
    same_as_an_open(world, heir, 32);
    inherit(world, heir);
    follower_free(heir);
    world_free(world);
}

/* A piece that was refused has no pages any more, also where a second reading would believe it. */
static void a_refused_piece_stays_refused(void **state)
{
    (void)state;
    struct world *world = world_new(&small, 23);
    for (uint64_t key = 1; key <= 3; key++)
        assert_int_equal(world_store(world, key, 0, 130), SPEC_OK);
    struct follower *heir = follower_make(world, SC_STORE_HEIR);
    heir->refuse_id = 5;
    follower_open(heir);
    assert_int_equal(heir->told_count, 8);
    heir->refuse_id = 0; /* its parent is there now */
    assert_int_equal(sc_store_checkpoint(world->store, &world->error), SPEC_OK);
    follow(heir);
    writer_dies(world);
    take_over(heir);
    check_rows_told(heir);
    inherit(world, heir);
    space_check(world->store);
    world_wait_ns(world, UINT64_C(3000000000));
    for (uint64_t key = 11; key <= 30; key++)
        assert_int_equal(world_store(world, key, 0, 130), SPEC_OK);
    follower_free(heir);
    world_free(world);
}

/* The writer is of another model, and the last piece of the heir's left its log. */
static void an_heir_whose_namespace_left_the_log_names_it_again(void **state)
{
    (void)state;
    struct world *world = world_new(&small, 24);
    uint8_t digest = world->params.space.digest[0];
    assert_int_equal(world_store(world, 1, 0, 64), SPEC_OK);
    struct follower *heir = follower_new(world, SC_STORE_HEIR);
    assert_int_equal(heir->told_count, 1);
    world_close(world);
    world->params.space.digest[0] ^= 1;
    world->params.on_piece = believe;
    world_open_ok(world);
    follow(heir);
    world_drop(world, 0, 1);
    assert_int_equal(world_store(world, 2, 0, 64), SPEC_OK);
    assert_int_equal(sc_store_checkpoint(world->store, &world->error), SPEC_OK);
    follow(heir);
    assert_int_equal(heir->told_count, 0);
    writer_dies(world);
    take_over(heir);
    world->params.space.digest[0] = digest;
    inherit(world, heir);
    world_wait_ns(world, UINT64_C(3000000000));
    assert_int_equal(world_store(world, 3, 0, 64), SPEC_OK);
    rows_ok(world, 3);
    world_reopen(world);
    rows_ok(world, 3);
    follower_free(heir);
    world_free(world);
}

/* An heir that lacks memory while it follows applies the record again, and has lost nothing. */
static void an_heir_without_memory_goes_on(void **state)
{
    (void)state;
    uint64_t fired = 1, taken = 0;
    for (uint64_t n = 0; fired > 0; n++) {
        struct world *world = world_make(&build_setups[0], 25);
        orders_on(world, 128);
        keep_quant(world, false);
        world_open_ok(world);
        assert_int_equal(world_store(world, 1, 0, 64), SPEC_OK);
        struct follower *heir = follower_new(world, SC_STORE_HEIR);
        for (uint64_t key = 2; key <= 20; key++) /* a second segment */
            assert_int_equal(world_store(world, key, 0, 300), SPEC_OK);
        build_quantised(world);
        order_all(world);
        average_put(world, &(uint64_t){n});
        uint64_t before = atomic_load(&world->fault.fired[SC_FAULT_ALLOC]);
        world->alloc.fault = &world->fault;
        sc_fault_arm(&world->fault, SC_FAULT_ALLOC, n);
        bool more = true;
        while (more || n % 2 == 0) {
            spec_status status = sc_store_follow(heir->store, &more, &heir->error);
            assert_true(status == SPEC_OK || status == SPEC_E_NO_MEMORY);
            if (status == SPEC_OK && !more)
                break;
        }
        writer_dies(world);
        spec_status status = sc_store_take_over(heir->store, &heir->error);
        sc_fault_arm(&world->fault, SC_FAULT_ALLOC, INT64_MAX);
        world->alloc.fault = NULL;
        fired = atomic_load(&world->fault.fired[SC_FAULT_ALLOC]) - before;
        taken += status == SPEC_OK;
        if (status == SPEC_OK) {
            check_rows_told(heir);
            same_as_an_open(world, heir, 26);
            inherit(world, heir);
        }
        assert_int_equal(heir->told_count, 96);
        world_reopen(world);
        for (uint64_t key = 1; key <= 20; key++)
            rows_ok(world, key);
        follower_free(heir);
        world_free(world);
    }
    assert_true(taken > 0);
}

/* A segment that cannot be opened now is no reason to drop what is in it, for all. */
static void without_descriptors(bool fills)
{
    static const struct world_setup files = {"files", WORLD_ON(PREAD, 1),
                                             WORLD_SHAPE(PAIRED, 3, 48, 0), WORLD_DISK(8, 1, 64)};
    struct world *world = world_opened(world_make(&files, 27));
    assert_non_null(world);
    assert_int_equal(world_store(world, 1, 0, 64), SPEC_OK);
    struct follower *heir = follower_new(world, SC_STORE_HEIR);
    for (uint64_t key = 2; key <= (fills ? 20u : 1u); key++)
        assert_int_equal(world_store(world, key, 0, 300), SPEC_OK);
    struct rlimit before, none;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    none = (struct rlimit){.rlim_cur = 0, .rlim_max = before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    bool more = true;
    while (more && sc_store_follow(heir->store, &more, &heir->error) == SPEC_OK)
        ;
    writer_dies(world);
    /* That the lock cannot be opened now is no reason to ask for it no more. */
    bool keeps = sc_store_keeps_space(heir->store);
    assert_int_equal(sc_store_take_over(heir->store, &heir->error),
                     keeps ? SPEC_E_LOCKED : SPEC_E_UNSUPPORTED);
    assert_int_equal(sc_store_keeps_space(heir->store), keeps);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    if (sc_store_take_over(heir->store, &heir->error) == SPEC_OK)
        inherit(world, heir);
    else
        world_open_ok(world);
    world->params.on_piece = believe;
    world_reopen(world);
    for (uint64_t key = 1; key <= (fills ? 20u : 1u); key++)
        rows_ok(world, key);
    follower_free(heir);
    world_free(world);
}

static void a_segment_that_cannot_be_opened_loses_nothing(void **state)
{
    (void)state;
    without_descriptors(true);
    without_descriptors(false);
}

/* More segments than its map has room for, or longer ones: it stays a reader that reads all. */
static void an_heir_whose_map_is_too_small_stays_a_reader(void **state)
{
    (void)state;
    for (uint32_t round = 0; round < 2; round++) {
        struct world *world = world_make(&build_setups[0], 28);
        struct sc_config config = world->config;
        world->config.segment_bytes = round == 0 ? 1u << 20 : 4u << 20;
        world_open_ok(world);
        struct follower *heir = follower_make(world, SC_STORE_HEIR);
        config.disk_bytes = 4u << 20;
        config.segment_bytes = 1u << 20;
        heir->params.config = &config;
        follower_open(heir);
        for (uint64_t key = 1; key <= 40; key++)
            assert_int_equal(world_store(world, key, 0, 300), SPEC_OK);
        follow(heir);
        assert_int_equal(heir->told_count, 200);
        check_rows_told(heir);
        assert_false(sc_store_keeps_space(heir->store));
        follower_free(heir);
        world_free(world);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_heir_takes_over_and_stores),
        cmocka_unit_test(an_heir_has_what_an_open_would_make),
        cmocka_unit_test(an_heir_that_looks_rarely_has_it_too),
        cmocka_unit_test(rows_of_dropped_pieces_are_read_while_a_lease_may_name_them),
        cmocka_unit_test(a_reused_page_ends_no_other_lease),
        cmocka_unit_test(what_failed_in_the_heir_is_dropped_for_all),
        cmocka_unit_test(an_heir_takes_over_at_once),
        cmocka_unit_test(an_heir_finds_another_lock_under_the_name),
        cmocka_unit_test(an_heir_that_cannot_stays_a_reader),
        cmocka_unit_test(an_heir_whose_log_is_another_stays_a_reader),
        cmocka_unit_test(a_piece_that_left_the_log_gives_its_pages_back),
        cmocka_unit_test(a_piece_that_failed_here_goes_with_a_reset),
        cmocka_unit_test(an_extent_without_its_pieces_holds_nothing),
        cmocka_unit_test(a_refused_piece_stays_refused),
        cmocka_unit_test(an_heir_whose_namespace_left_the_log_names_it_again),
        cmocka_unit_test(an_heir_without_memory_goes_on),
        cmocka_unit_test(an_heir_whose_map_is_too_small_stays_a_reader),
        cmocka_unit_test(a_segment_that_cannot_be_opened_loses_nothing),
    };
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
