/* Permuted copies that replace permuted copies (store/section/permute_queue.h): rows are permuted
 * again when their scores have moved, and not for noise or too early; the copy before is freed when
 * nobody reads it; whatever is read, of whichever copy, is what was stored; faults, power cuts,
 * reopens, checkpoints and a clock that is set back lose nothing.
 *
 * Threads: the fixture's. */
#include "store/rows/row_permutation.h"
#include "store/space/quarantine.h"
#include "tests/unit/store/build_trial.h"
#include "tests/unit/store/permutation_check.h"
#include "tests/unit/store/space_check.h"

static const struct world_setup *const setups = build_setups;

#define REUSE_NS UINT64_C(61000000000) /* after that, a replaced copy's memory may be reused */

static struct world *world_again(const struct world_setup *setup, uint64_t seed, uint64_t span)
{
    struct world *world = world_make(setup, seed);
    orders_on(world, span);
    orders_again(world);
    return world_opened(world);
}

/* The next scores; all is permuted by them, and the copies before are freed. */
static void turn_and_free(struct world *world)
{
    order_host.turn++;
    order_again(world);
    release_all(world);
}

static uint64_t again(struct world *world)
{
    return stats_of(world).permuted_again;
}

static void all_by_turn(struct world *world, uint64_t key)
{
    uint64_t rows = 0;
    for (uint32_t i = 0; i < world->piece_count; i++)
        rows += world->pieces[i].key == key ? world->pieces[i].row_count : 0;
    assert_true(rows > 0);
    assert_int_equal(rows_by_turn(world, key), rows * world->setup->layers);
    rows_ok(world, key);
}

/* ---- When ------------------------------------------------------------------------------------ */

static void moved_scores_permute_again(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < BUILD_SETUPS; i++) {
        struct world *world = world_again(&setups[i], 7, i % 2 == 0 ? 128 : 16384);
        if (world == NULL)
            continue;
        world_store_two(world, 300, 250);
        order_all(world);
        release_all(world);
        uint64_t one = stats_of(world).extent_bytes, pieces = stats_of(world).permuted_pieces;
        uint64_t written = stats_of(world).permuted_write_bytes;
        for (uint32_t turn = 1; turn <= 3; turn++) {
            turn_and_free(world);
            all_by_turn(world, 1);
            all_by_turn(world, 2);
            assert_int_equal(again(world), turn * pieces);
            assert_int_equal(stats_of(world).permuted_pieces, (turn + 1) * pieces);
            assert_int_equal(stats_of(world).permuted_write_bytes, (turn + 1) * written);
            assert_int_equal(stats_of(world).extent_bytes, one);
        }
        for (uint32_t opened = 0; opened < 4; opened++) {
            if (opened % 2 == 1)
                assert_int_equal(sc_store_checkpoint(world->store, NULL), SPEC_OK);
            world_reopen(world);
            space_check(world->store);
            all_by_turn(world, 1);
            all_by_turn(world, 2);
            release_all(world);
            assert_int_equal(stats_of(world).extent_bytes, one);
            assert_int_equal(stats_of(world).corrupt_records, 0);
        }
        turn_and_free(world); /* also of what was opened */
        all_by_turn(world, 1);
        for (uint32_t p = 0; p < world->piece_count; p++)
            sc_store_piece_drop(world->store, world->pieces[p].id);
        release_all(world);
        assert_int_equal(stats_of(world).extent_bytes, 0);
        world_free(world);
    }
}

/* Scores that move a little, over many requests and opens. */
static void noise_does_not(void **state)
{
    (void)state;
    struct world *world = world_again(&setups[0], 3, 16384);
    world_store_two(world, 512, 300);
    order_all(world);
    release_all(world);
    uint64_t written = stats_of(world).permuted_write_bytes;
    for (uint32_t i = 0; i < 50; i++) {
        order_host.noise++;
        order_again(world);
        assert_int_equal(again(world), 0);
        assert_int_equal(stats_of(world).permuted_write_bytes, written);
        if (i % 10 == 9) {
            world_reopen(world);
            release_all(world);
            written = 0;
        }
    }
    turn_and_free(world); /* it would have been seen */
    assert_true(again(world) > 0);
    world_free(world);
}

static void it_takes_requests_enough(void **state)
{
    (void)state;
    struct world *world = world_again(&setups[0], 3, 16384);
    order_host.requests = 2;
    assert_int_equal(world_store(world, 1, 0, 256), SPEC_OK);
    order_all(world);
    release_all(world);
    order_host.turn++;
    for (uint32_t i = 0; i < 9; i++) {
        order_host.requests++;
        order_all(world);
        assert_int_equal(again(world), 0);
    }
    world_reopen(world); /* counts from here: how many there were is not stored */
    release_all(world);
    for (uint32_t i = 0; i < 10; i++) {
        order_all(world);
        assert_int_equal(again(world), 0);
        order_host.requests++;
    }
    order_host.requests = 1; /* its averages were forgotten, and began anew */
    for (uint32_t i = 0; i < 10; i++) {
        order_all(world);
        assert_int_equal(again(world), 0);
        order_host.requests++;
    }
    order_all(world);
    assert_int_equal(again(world), 4);
    all_by_turn(world, 1);
    world_free(world);
}

static void zero_is_never(void **state)
{
    (void)state;
    struct world *world = world_ordered(&setups[0], 3, 16384);
    assert_int_equal(world_store(world, 1, 0, 256), SPEC_OK);
    order_all(world);
    for (uint32_t i = 0; i < 3; i++)
        turn_and_free(world);
    assert_int_equal(again(world), 0);
    assert_int_equal(stats_of(world).permuted_pieces, 4);
    world_close(world);
    orders_again(world); /* another configuration opens it: rows that were permuted long ago */
    world_open_ok(world);
    release_all(world);
    turn_and_free(world);
    assert_int_equal(again(world), 4);
    all_by_turn(world, 1);
    world_free(world);
}

/* ---- Copies on the disk ---------------------------------------------------------------------- */

/* While a request may read the copy before, or a lease may, there is no third one. */
static void two_copies_at_most(void **state)
{
    (void)state;
    struct world *world = world_again(&setups[0], 3, 128);
    world_store_two(world, 256, 128);
    uint64_t one = stats_of(world).extent_bytes;
    order_all(world);
    for (uint32_t i = 0; i < 3; i++) { /* the original rows wait for leases */
        order_host.turn++;
        order_again(world);
        assert_int_equal(again(world), 0);
        space_check(world->store);
    }
    release_all(world);
    order_host.is_loud = true;
    for (uint32_t i = 0; i < 3; i++) { /* a request is open */
        order_host.turn += i == 0;
        order_again(world);
        assert_int_equal(again(world), 6);
        assert_int_equal(stats_of(world).extent_bytes, 2 * one);
        assert_int_equal(stats_of(world).quarantine_bytes, 0);
        all_by_turn(world, 1);
        space_check(world->store);
        order_host.turn += i == 2;
    }
    world_reopen(world); /* the newer copies are forgotten, and nothing else is */
    order_host.turn--;
    assert_int_equal(rows_by_turn(world, 1), 0);
    rows_ok(world, 1);
    rows_ok(world, 2);
    release_all(world);
    order_again(world);
    order_host.is_loud = false;
    sc_store_build_settle(world->store);
    build_wait(world);
    assert_int_equal(stats_of(world).quarantine_bytes, one);
    order_host.turn++;
    order_again(world); /* leases */
    assert_int_equal(again(world), 6);
    release_all(world);
    assert_int_equal(stats_of(world).extent_bytes, one);
    order_again(world);
    assert_int_equal(again(world), 12);
    world_free(world);
}

static uint64_t sections(const struct world *world)
{
    uint64_t count = 0;
    for (const struct sc_store_section *at = world->store->table.derived_sections; at != NULL;
         at = at->next)
        count++;
    return count;
}

/* A replaced copy's memory is that of the copy after the next, long after. */
static void memory_does_not_grow(void **state)
{
    (void)state;
    struct world *world = world_again(&setups[0], 3, 16384);
    assert_int_equal(world_store(world, 1, 0, 256), SPEC_OK);
    order_all(world);
    for (uint32_t i = 0; i < 12; i++) {
        world_wait_ns(world, REUSE_NS);
        turn_and_free(world);
        all_by_turn(world, 1);
        assert_int_equal(again(world), 4 * (i + 1));
    }
    assert_int_equal(sections(world), 2);
    world_free(world);
}

/* Each copy's pages become others'; then the log is read with all records, or as a checkpoint left
 * it, and the clock may have been set back: nothing is lost. */
static void pages_of_copies_before_are_others(void **state)
{
    (void)state;
    const int64_t hours = INT64_C(3600000000000);
    for (uint32_t way = 0; way < 8; way++) {
        struct world *world = world_again(&setups[way % 3], 5, 16384);
        uint64_t keys = 1;
        sc_exec_wall_set(world->exec, 5 * hours);
        assert_int_equal(world_store(world, 1, 0, 256), SPEC_OK);
        order_all(world);
        for (uint32_t turn = 0; turn < 4; turn++) {
            release_all(world);
            for (uint32_t i = 0; i < 6; i++)
                assert_int_equal(world_store(world, ++keys, 0, 100), SPEC_OK);
            if ((way & 1) != 0)
                assert_int_equal(sc_store_checkpoint(world->store, NULL), SPEC_OK);
            if ((way & 2) != 0) {
                world_reopen(world);
                release_all(world); /* a clock that was set back makes copies wait again */
            }
            if ((way & 4) != 0)
                sc_exec_wall_set(world->exec, (5 - (int64_t)turn) * hours);
            order_host.turn++;
            order_again(world);
            all_by_turn(world, 1);
        }
        for (uint32_t opened = 0; opened < 3; opened++) {
            world_reopen(world);
            space_check(world->store);
            assert_int_equal(stats_of(world).corrupt_records, 0);
            for (uint64_t key = 1; key <= keys; key++)
                rows_ok(world, key);
            all_by_turn(world, 1);
            assert_int_equal(sc_store_checkpoint(world->store, NULL), SPEC_OK);
        }
        world_free(world);
    }
}

/* A checkpoint leaves out the slots of copies that were replaced. */
static void the_log_does_not_grow(void **state)
{
    (void)state;
    struct world *world = world_again(&setups[0], 3, 16384);
    uint64_t bytes = 0;
    assert_int_equal(world_store(world, 1, 0, 640), SPEC_OK);
    order_all(world);
    release_all(world);
    for (uint32_t i = 0; i < 8; i++) {
        turn_and_free(world);
        assert_int_equal(sc_store_checkpoint(world->store, NULL), SPEC_OK);
        if (i == 1)
            bytes = stats_of(world).log_bytes;
    }
    assert_int_equal(again(world), 8 * 10);
    assert_true(stats_of(world).log_bytes <= bytes + 64);
    world_free(world);
}

/* Pieces are dropped, copies made and freed, logs rewritten and read, in any sequence. */
static void any_sequence_gives_pages_back_once(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 3; i++)
        for (uint64_t seed = 0; seed < 80; seed++) {
            struct world *world = world_again(&setups[i], seed, 16384);
            uint64_t random = seed * 977 + 5, ids[6], left = 6;
            assert_int_equal(world_store(world, 1 + seed, 0, 64 * 5 + 20), SPEC_OK);
            for (uint32_t p = 0; p < 6; p++)
                ids[p] = world->pieces[p].id;
            for (uint32_t step = 0; step < 40 && left > 0; step++) {
                random = random * UINT64_C(6364136223846793005) + 1442695040888963407u;
                uint64_t act = (random >> 33) % 9, pick = (random >> 40) % left;
                order_host.is_loud = (random >> 55) % 4 == 0;
                if (act == 0) {
                    sc_store_piece_drop(world->store, ids[pick]);
                    ids[pick] = ids[--left];
                } else if (act <= 3) {
                    order_host.turn++;
                    order_again(world);
                } else if (act <= 5) {
                    pthread_mutex_lock(&world->store->disk.lock);
                    (void)sc_store_quarantine_release_some(world->store, UINT64_MAX,
                                                           (random >> 50) % 3);
                    pthread_mutex_unlock(&world->store->disk.lock);
                } else if (act == 6) {
                    assert_int_equal(sc_store_checkpoint(world->store, NULL), SPEC_OK);
                } else if (act == 7) {
                    world_reopen(world);
                    assert_int_equal(stats_of(world).corrupt_records, 0);
                } else {
                    world_wait_ns(world, world->config.lease_ns_max / 2);
                }
                space_check(world->store);
            }
            while (left > 0)
                sc_store_piece_drop(world->store, ids[--left]);
            release_all(world);
            assert_int_equal(stats_of(world).extent_bytes, 0);
            world_free(world);
        }
}

/* ---- Reading --------------------------------------------------------------------------------- */

static void any_part_of_a_match_is_read(void **state)
{
    (void)state;
    uint64_t random = 3;
    for (uint32_t i = 0; i < BUILD_SETUPS; i++) {
        struct world *world = world_again(&setups[i], 8, i % 2 == 0 ? 16384 : 100);
        if (world == NULL)
            continue;
        order_some(world);
        release_all(world);
        turn_and_free(world);
        for (uint32_t round = 0; round < 40; round++)
            any_parts_ok(world, round, &random);
        world_free(world);
    }
}

/* Takes all rows of a load that was begun; after so many bites a newer copy is found. */
static void load_take(struct world *world, struct sc_store_reader *reader,
                      const struct match *match, uint32_t layer, uint32_t bites)
{
    uint64_t half = world->setup->k_row_bytes, count = 0;
    struct sc_store_rows got = {0};
    for (uint32_t bite = 0; bite == 0 || got.row_count > 0; bite++) {
        if (bite == bites) {
            order_host.turn++;
            order_again(world);
        }
        assert_int_equal(sc_store_reader_next(reader, SC_EXEC_FOREVER, NULL, &got, &world->error),
                         SPEC_OK);
        for (uint64_t i = 0; i < got.row_count; i++)
            row_check(world, match, layer, got.row_first + i, got.rows + i * 2 * half,
                      got.rows + i * 2 * half + half);
        count += got.row_count;
    }
    assert_int_equal(count, match->rows);
}

/* Pieces in any order, or whole extents, some of which end up in host memory chunk by chunk. */
static struct match match_amid(struct world *world, bool is_whole)
{
    struct match match = {.count = 0};
    while (match.count < 60) {
        uint64_t piece = is_whole ? match.count % 5 : (match.count * 3 + 2) % 4;
        match_add(&match, &world->pieces[piece], 0, world->pieces[piece].row_count);
    }
    return match;
}

static struct world *world_amid(const struct world_setup *setup)
{
    struct world *world = world_make(setup, 6);
    orders_on(world, 16384);
    orders_again(world);
    world->config.host_bytes = 16u << 20;
    assert_non_null(world_opened(world));
    assert_int_equal(world_store(world, 1, 0, 320), SPEC_OK);
    order_all(world);
    release_all(world);
    order_all(world);
    order_host.is_loud = true; /* as while a request is open */
    return world;
}

/* Rows that loads left in host memory are read, by the newest copy's number, before and after the
 * copy before is freed. */
static void world_amid_end(struct world *world)
{
    assert_true(again(world) > 0);
    order_host.is_loud = false;
    for (uint32_t round = 0; round < 3; round++) {
        rows_ok(world, 1);
        order_all(world);
        release_all(world);
    }
    assert_true(stats_of(world).host_hits > 0);
    world_free(world);
}

/* Some reads are planned by the copy before, others by the newer one. */
static void a_newer_copy_is_found_amid_a_load(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 4; i++)
        for (uint32_t bites = 0; bites < 40; bites += 3) {
            struct world *world = world_amid(&setups[i / 2]);
            struct match match = match_amid(world, i % 2 == 0);
            struct sc_store_reader *reader = world_reader(world);
            sc_store_reader_begin(reader, 1, match.ranges, match.count, SC_IO_CLASS_DEMAND);
            load_take(world, reader, &match, 1, bites);
            sc_store_readers_close(reader, 1);
            world_amid_end(world);
        }
}

/* The same with chosen rows, of which whole chunks are read. */
static void a_newer_copy_is_found_amid_chosen_rows(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 2; i++)
        for (uint32_t bites = 0; bites < 60; bites += 3) {
            struct world *world = world_amid(&setups[i]);
            struct match match = match_of(world, 1);
            const struct sc_store_gather_rows all = {.count = match.rows, .whole_slabs = true};
            struct sc_store_selector *selector = selector_make(world);
            struct sc_store_reader *reader = world_reader(world);
            struct sc_store_rows got = {.row_count = 1};
            uint64_t count = 0;
            assert_int_equal(match_load(&match, selector, 1, 0), SPEC_OK);
            sc_store_reader_begin_gather(reader, 1, match.ranges, match.count, &all,
                                         SC_IO_CLASS_DEMAND);
            sc_store_reader_tags(reader, sc_store_selector_tags(selector));
            for (uint32_t bite = 0; got.row_count > 0; bite++) {
                if (bite == bites) {
                    order_host.turn++;
                    order_again(world);
                }
                assert_int_equal(
                    sc_store_reader_next(reader, SC_EXEC_FOREVER, NULL, &got, &world->error),
                    SPEC_OK);
                for (uint64_t row = 0; row < got.row_count; row++)
                    row_check(world, &match, 1, got.row_first + row, got.rows + row * got.stride,
                              got.v + row * got.stride);
                count += got.row_count;
            }
            assert_int_equal(count, match.rows);
            sc_store_readers_close(reader, 1);
            sc_store_selector_close(selector);
            if (again(world) == 0) { /* it was over */
                order_host.turn++;
                order_again(world);
            }
            world_amid_end(world);
        }
}

/* ---- Faults, power cuts, others -------------------------------------------------------------- */

#ifndef SC_SANITIZED_THREAD /* one thread: nothing to find there, and it takes minutes for it */

static struct world *trial_bare(const struct world_setup *setup, uint64_t seed)
{
    struct world *world = world_again(setup, seed, 128);
    assert_non_null(world);
    order_host.turn = UINT64_MAX; /* not permuted so far */
    return world;
}

/* Rows are permuted by the first scores before anything is tried; then there are others. */
static void trial_open(struct world *world)
{
    bool is_first = order_host.turn == UINT64_MAX;
    orders_on(world, 128);
    orders_again(world);
    world_open_ok(world);
    if (is_first) {
        order_all(world);
        release_all(world);
    }
    order_host.turn = 1;
}

static uint64_t trial_had(struct world *world, uint64_t key, bool is_cut)
{
    (void)is_cut;
    rows_ok(world, key);
    return rows_by_turn(world, key);
}

static void trial_build(struct world *world)
{
    release_all(world); /* since the open, the copy before the first waits again */
    order_again(world);
}

static const struct build_trial trial = {.setup = &build_setups[0],
                                         .bare = trial_bare,
                                         .open = trial_open,
                                         .build = trial_build,
                                         .had = trial_had,
                                         .is_whole = all_by_turn,
                                         .fault_step = 4};

static void every_fault_leaves_one_copy(void **state)
{
    (void)state;
    build_trial_faults(&trial);
}

static void cut_at_any_write_leaves_one_copy(void **state)
{
    (void)state;
    build_trial_cuts(&trial, (200 + 130) * UINT64_C(3));
}

/* The pages of copies before are others' when power is cut: what replaced them is durable then. */
static void a_cut_finds_a_copy_whose_pages_are_its_own(void **state)
{
    (void)state;
    struct world_setup setup = build_setups[0];
    setup.journal = 2;
    struct world *world = world_again(&setup, 12, 128);
    uint32_t cuts = 0;
    assert_int_equal(world_store(world, 1, 0, 200), SPEC_OK);
    order_all(world);
    world_reopen(world); /* which syncs the log; the rows: */
    release_all(world);
    assert_int_equal(sc_io_file_sync(world->store->io, world->store->disk.segments[0].file, NULL),
                     SPEC_OK);
    uint64_t from = sc_io_sim_disk_events(world->disk);
    for (uint64_t turn = 1; turn <= 3; turn++) {
        order_host.turn = turn;
        order_again(world);
        assert_int_equal(rows_by_turn(world, 1), 200 * setup.layers);
        release_all(world);
        for (uint64_t i = 0; i < 4; i++)
            assert_int_equal(world_store(world, 10 * turn + i, 0, 100), SPEC_OK);
        if (turn == 2)
            assert_int_equal(sc_store_checkpoint(world->store, NULL), SPEC_OK);
    }
    uint64_t to = sc_io_sim_disk_events(world->disk);
    for (uint64_t events = from; events <= to; events++)
        for (uint64_t seed = 0; seed < 4; seed++, cuts++) {
            struct world *image = world_cut(world, events, seed * 1000 + events, seed);
            orders_on(image, 128);
            world_open_ok(image);
            space_check(image->store);
            rows_ok(image, 1);
            world_free(image);
        }
    assert_true(cuts > 100);
    world_free(world);
}

#endif

static void follow_all(struct world *world, struct sc_store *reader)
{
    struct sc_store *writer = world->store;
    world->store = reader;
    for (bool more = true; more;)
        assert_int_equal(sc_store_follow(reader, &more, NULL), SPEC_OK);
    rows_ok(world, 1);
    world->store = writer;
}

/* It reads on, and reads logs again from their start: with the copy before that waits, and without;
 * an older copy never comes back. */
static void the_newer_copy_is_seen_by_a_follower(void **state)
{
    (void)state;
    for (uint32_t setup = 0; setup < 4; setup += 3) {
        struct world *world = world_again(&build_setups[setup], 2, 16384);
        if (world == NULL)
            continue;
        struct sc_store *readers[3] = {NULL};
        assert_int_equal(world_store(world, 1, 0, 300), SPEC_OK);
        order_all(world);
        world_reopen(world);
        release_all(world);
        struct sc_store_params params = world->params;
        params.role = SC_STORE_READER;
        assert_int_equal(sc_store_open(&params, &readers[0], NULL), SPEC_OK);
        for (uint32_t turn = 1; turn <= 6; turn++) {
            order_host.turn = turn;
            order_again(world);
            follow_all(world, readers[0]);
            struct sc_store *writer = world->store;
            if (turn % 2 == 0) { /* both copies' records are read again, and neither is news */
                uint64_t found = atomic_load(&readers[0]->counts.permute_queue);
                assert_int_equal(sc_store_checkpoint(writer, NULL), SPEC_OK);
                follow_all(world, readers[0]);
                assert_int_equal(atomic_load(&readers[0]->counts.permute_queue), found);
            }
            assert_int_equal(sc_store_open(&params, &readers[1], NULL), SPEC_OK);
            follow_all(world, readers[1]);
            for (uint32_t r = 0; r < 2; r++) {
                world->store = readers[r];
                assert_int_equal(rows_by_turn(world, 1), 300 * world->setup->layers);
                assert_int_equal(stats_of(world).corrupt_records, 0);
            }
            world->store = writer;
            sc_store_close(readers[1]);
            release_all(world);
            for (uint32_t i = 0; i < 3; i++) /* where the copy before was */
                assert_int_equal(world_store(world, 100 * turn + i, 0, 100), SPEC_OK);
            follow_all(world, readers[0]);
        }
        assert_true(again(world) >= 6 * 5); /* others are, too */
        sc_store_close(readers[0]);
        world_free(world);
    }
}

static void reordering_again_beside_loads_and_drops(void **state)
{
    (void)state;
    for (uint32_t i = 3; i < BUILD_SETUPS; i++) {
        struct world *world = world_again(&setups[i], 2, 16384);
        if (world == NULL)
            continue;
        for (uint64_t key = 1; key <= 6; key++)
            assert_int_equal(world_store(world, key, 0, 256), SPEC_OK);
        order_all(world);
        release_all(world);
        order_all(world);
        order_host.turn++;
        order_host.requests += 10;
        sc_store_build_permutation(world->store, 0);
        build_beside_drops(world);
        all_by_turn(world, 2);
        all_by_turn(world, 6);
        space_check(world->store);
        world_free(world);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(moved_scores_permute_again),
        cmocka_unit_test(noise_does_not),
        cmocka_unit_test(it_takes_requests_enough),
        cmocka_unit_test(zero_is_never),
        cmocka_unit_test(two_copies_at_most),
        cmocka_unit_test(memory_does_not_grow),
        cmocka_unit_test(pages_of_copies_before_are_others),
        cmocka_unit_test(the_log_does_not_grow),
        cmocka_unit_test(any_sequence_gives_pages_back_once),
        cmocka_unit_test(any_part_of_a_match_is_read),
        cmocka_unit_test(a_newer_copy_is_found_amid_a_load),
        cmocka_unit_test(a_newer_copy_is_found_amid_chosen_rows),
#ifndef SC_SANITIZED_THREAD
        cmocka_unit_test(every_fault_leaves_one_copy),
        cmocka_unit_test(cut_at_any_write_leaves_one_copy),
        cmocka_unit_test(a_cut_finds_a_copy_whose_pages_are_its_own),
#endif
        cmocka_unit_test(the_newer_copy_is_seen_by_a_follower),
        cmocka_unit_test(reordering_again_beside_loads_and_drops),
    };
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
