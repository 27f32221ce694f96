/* Editions in another order (store/rows/row_permutation.h, store/section/permute_queue.h): made of
 * the rows that are wanted most, whatever the layout, the back end and the holes; every row that is
 * read of one is the row that was stored, whole matches and any picks alike; the one before goes
 * when nobody reads it, and not earlier; faults and power cuts at every write of one lose nothing.
 *
 * Threads: the fixture's. */
#include "store/rows/row_permutation.h"
#include "store/space/quarantine.h"
#include "tests/unit/store/build_trial.h"
#include "tests/unit/store/permutation_check.h"
#include "tests/unit/store/quant_check.h"
#include "tests/unit/store/space_check.h"

static const struct world_setup *const setups = build_setups;

static struct world *world_bare(const struct world_setup *setup, uint64_t seed)
{
    return world_ordered(setup, seed, 128);
}

/* Also one of another's making: what a power cut left. */
static void open_ordered(struct world *world)
{
    orders_on(world, 128);
    world_open_ok(world);
}

/* Rows of the key that stand in another order, in all layers; all that it has are right. */
static uint64_t ordered_rows(struct world *world, uint64_t key, bool is_cut)
{
    uint64_t count = 0;
    (void)is_cut;
    rows_ok(world, key);
    for (uint32_t i = 0; i < world->piece_count; i++) {
        const struct world_piece *twin = &world->pieces[i];
        if (twin->key == key && twin->id != 0 &&
            sc_store_table_live(&world->store->table, twin->id) != NULL &&
            atomic_load(&extent_of(world, twin->id)->permutation) != NULL)
            count += twin->row_count * (uint64_t)world->setup->layers;
    }
    return count;
}

static void all_is_ordered(struct world *world, uint64_t key)
{
    uint64_t rows = 0;
    for (uint32_t i = 0; i < world->piece_count; i++)
        rows += world->pieces[i].key == key ? world->pieces[i].row_count : 0;
    assert_int_equal(ordered_rows(world, key, false), rows * world->setup->layers);
}

static const struct build_trial trial = {.setup = &build_setups[0],
                                         .bare = world_bare,
                                         .open = open_ordered,
                                         .build = order_all,
                                         .had = ordered_rows,
                                         .is_whole = all_is_ordered};

/* ---- Making ---------------------------------------------------------------------------------- */

static void rows_are_what_was_stored(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < BUILD_SETUPS; i++) {
        struct world *world = world_ordered(&setups[i], 7, i % 2 == 0 ? 128 : 16384);
        if (world == NULL)
            continue;
        world_store_two(world, 300, 250);
        assert_int_equal(ordered_rows(world, 1, false), 0);
        order_all(world);
        assert_int_equal(atomic_load(&world->store->counts.permutations_waiting), 0);
        assert_true(stats_of(world).quarantine_bytes > 0);
        space_check(world->store);
        for (uint32_t opened = 0; opened < 3; opened++) {
            all_is_ordered(world, 1);
            all_is_ordered(world, 2);
            uint64_t written = stats_of(world).write_bytes;
            order_all(world); /* nothing is left to be ordered */
            assert_int_equal(stats_of(world).write_bytes, written);
            if (opened == 1)
                assert_int_equal(sc_store_checkpoint(world->store, NULL), SPEC_OK);
            world_reopen(world);
            space_check(world->store);
            assert_int_equal(stats_of(world).corrupt_records, 0);
        }
        world_free(world);
    }
}

/* Each span by itself, best first, in every layer. */
static void slots_follow_the_scores(void **state)
{
    (void)state;
    struct world *world = world_bare(&setups[0], 3);
    assert_int_equal(world_store(world, 1, 0, 300), SPEC_OK);
    order_all(world);
    const struct sc_store_extent_entry *extent = extent_of(world, world->pieces[0].id);
    for (uint32_t layer = 0; layer < setups[0].layers; layer++) {
        const uint16_t *slots =
            sc_store_permutation_of(atomic_load(&extent->permutation)->slots, 300, layer);
        for (uint64_t i = 0; i < 300; i++)
            for (uint64_t j = i + 1; j < 300 && j / 128 == i / 128; j++)
                assert_int_equal(slots[i] < slots[j], score_of(i, layer) >= score_of(j, layer));
        for (uint64_t i = 0; i < 300; i++)
            assert_int_equal(slots[i] / 128, i / 128);
    }
    world_free(world);
}

/* Ranges of parts of pieces of several extents, in any order, ordered or not; whole, or picks. */
static void any_part_of_a_match_is_read(void **state)
{
    (void)state;
    uint64_t random = 3;
    for (uint32_t i = 0; i < BUILD_SETUPS; i++) {
        struct world *world = world_ordered(&setups[i], 8, i % 2 == 0 ? 16384 : 100);
        if (world == NULL)
            continue;
        order_some(world);
        for (uint32_t round = 0; round < 40; round++)
            any_parts_ok(world, round, &random);
        world_free(world);
    }
}

/* Takes all rows of a load that was begun: each comes once, and is what was stored. After so many
 * bites an edition of them is found. */
static void load_take(struct world *world, struct sc_store_reader *reader,
                      const struct match *match, uint32_t layer, uint32_t bites)
{
    static uint8_t seen[64 * 64];
    uint64_t half = world->setup->k_row_bytes, count = 0;
    struct sc_store_rows got = {0};
    assert_true(match->rows <= sizeof(seen));
    memset(seen, 0, sizeof(seen));
    for (uint32_t bite = 0; bite == 0 || got.row_count > 0; bite++) {
        if (bite == bites)
            order_all(world);
        assert_int_equal(sc_store_reader_next(reader, SC_EXEC_FOREVER, NULL, &got, &world->error),
                         SPEC_OK);
        for (uint64_t i = 0; i < got.row_count; i++) {
            const uint8_t *row = got.rows + i * 2 * half;
            assert_int_equal(seen[got.row_first + i]++, 0);
            row_check(world, match, layer, got.row_first + i, row, row + half);
        }
        count += got.row_count;
    }
    assert_int_equal(count, match->rows);
}

/* Reads are planned as frames come free: some before, some after, also of one run of rows. */
static void one_is_found_amid_a_load(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 2; i++)
        for (uint32_t bites = 0; bites < 40; bites += 13) {
            struct world *world = world_ordered(&setups[i], 6, 16384);
            struct match match = {.count = 0};
            assert_int_equal(world_store(world, 1, 0, 300), SPEC_OK);
            while (match.count < 64) /* none goes on where the one before ends */
                match_add(&match, &world->pieces[(match.count * 3 + 2) % 4], 0, 64);
            struct sc_store_reader *reader = world_reader(world);
            sc_store_reader_begin(reader, 1, match.ranges, match.count, SC_IO_CLASS_DEMAND);
            load_take(world, reader, &match, 1, bites);
            if (bites == 0) /* it was found, and in time */
                assert_non_null(atomic_load(&extent_of(world, world->pieces[0].id)->permutation));
            sc_store_readers_close(reader, 1);
            world_free(world);
        }
}

/* The best quarter of each layer lies side by side. */
static void what_is_wanted_most_is_one_read(void **state)
{
    (void)state;
    uint32_t rows[1024];
    struct world *world = world_ordered(&setups[2], 4, 16384);
    assert_int_equal(world_store(world, 1, 0, 512), SPEC_OK);
    struct match match = match_of(world, 1);
    struct picked picked[2];
    for (uint32_t after = 0; after < 2; after++) {
        struct sc_store_gather_rows picks = {.rows = rows};
        for (uint32_t row = 0; row < 512; row++) {
            uint64_t better = 0;
            for (uint32_t j = 0; j < 512; j++)
                better += score_of(j, 1) > score_of(row, 1);
            if (better < 64)
                rows[picks.count++] = row;
        }
        picked[after] = gather_load(world, &match, 1, &picks, NULL);
        assert_true(picks.count >= 64);
        order_all(world);
    }
    assert_true(picked[0].cost.op_count > 40);
    uint64_t op_bytes = sc_store_op_bytes(world->store);
    assert_true(picked[1].cost.op_count <= picked[1].count * 8192 / op_bytes + 2);
    assert_int_equal(picked[1].cost.read_bytes, picked[1].count * 8192);
    world_free(world);
}

/* of whole layers: longer gaps are not read (store/read/scan_plan.c) */
#define GAP_BYTES (64u << 10)

/* Bytes between the slots of the match's rows, one behind the other, where they are no more than
 * `most`; the longest gap is put into *ret_longest. */
static uint64_t gaps_of(struct world *world, const struct match *match, uint32_t layer,
                        uint64_t most, uint64_t *ret_longest)
{
    static bool has_row[1024];
    const struct sc_store_extent_entry *extent = extent_of(world, match->ranges[0].piece);
    const uint16_t *slots =
        sc_store_permutation_of(atomic_load(&extent->permutation)->slots, extent->row_count, layer);
    uint64_t sum = 0, last = UINT64_MAX;
    *ret_longest = 0;
    memset(has_row, 0, sizeof(has_row));
    for (uint64_t i = 0; i < match->count; i++) {
        const struct sc_store_range *range = &match->ranges[i];
        uint32_t row =
            sc_store_table_piece(&world->store->table, range->piece)->extent_row + range->row_first;
        for (uint32_t j = 0; j < range->row_count; j++)
            has_row[slots[row + j]] = true;
    }
    for (uint64_t slot = 0; slot < extent->row_count; slot++) {
        if (!has_row[slot])
            continue;
        uint64_t gap = last != UINT64_MAX ? (slot - last - 1) * world->store->shape.row_bytes : 0;
        sum += gap <= most ? gap : 0;
        *ret_longest = gap > *ret_longest ? gap : *ret_longest;
        last = slot;
    }
    return sum;
}

/* A few rows of an extent in another order are apart: each is read, and what little there is
 * between two of them, but not what lies between all. */
static void long_gaps_between_slots_are_not_read(void **state)
{
    (void)state;
    enum { ROWS = 16, ROW = 8192, PAGE = 4096 };
    uint32_t rows[ROWS];
    struct world_setup setup = setups[2];
    setup.staging_bytes = 256u << 20; /* reads of 1 MiB, which could span such a gap */
    struct world *world = world_ordered(&setup, 4, 16384);
    struct sc_store_reader *reader = world_reader(world);
    struct sc_store_read_cost cost;
    assert_int_equal(world_store(world, 1, 0, 512), SPEC_OK);
    order_all(world);
    for (uint32_t row = 0; row < ROWS; row++)
        rows[row] = row;
    for (uint32_t i = 0; i < 16; i++) {
        struct match match = {.count = 0};
        struct sc_store_gather_rows picks = {.rows = rows, .count = ROWS};
        uint32_t layer = i % 2;
        uint64_t longest;
        match_add(&match, &world->pieces[i / 2], i % 2 * ROWS, ROWS);
        uint64_t gaps = gaps_of(world, &match, layer, GAP_BYTES, &longest);
        assert_true(longest > 2 * GAP_BYTES);
        assert_int_equal(
            world_load(world, reader, layer, match.ranges, match.twins, match.count).rows, ROWS);
        sc_store_reader_cost(reader, &cost);
        /* Tags are a read of a page or two, or lie before the first row as near as another does. */
        assert_true(cost.read_bytes <= ROWS * ROW + gaps + GAP_BYTES + 2 * PAGE);
        assert_int_equal(gather_load(world, &match, layer, &picks, NULL).cost.read_bytes,
                         ROWS * ROW);
        picks.gap_bytes = UINT64_MAX; /* up to a sixth of the rows all the same */
        assert_true(gather_load(world, &match, layer, &picks, NULL).cost.read_bytes <=
                    ROWS * ROW + ROWS * ROW / 6);
    }
    sc_store_readers_close(reader, 1);
    world_free(world);
}

static void holes_are_passed_over(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 3; i++) {
        struct world *world = world_ordered(&setups[i], 9, 16384);
        holes_store(world);
        assert_int_equal(world_store(world, 6, 0, 256), SPEC_OK);
        sc_store_piece_drop(world->store, world->pieces[1].id);
        order_all(world);
        space_check(world->store);
        all_is_ordered(world, 6);
        struct match match = holes_match(world);
        struct sc_store_reader *reader = world_reader(world);
        for (uint32_t round = 0; round < 2; round++) {
            for (uint32_t layer = 0; layer < setups[i].layers; layer++)
                assert_int_equal(
                    world_load(world, reader, layer, match.ranges, match.twins, match.count).rows,
                    match.rows);
            release_all(world);
        }
        sc_store_readers_close(reader, 1);
        world_free(world);
    }
}

/* A guess is narrowed amid a chunk of slots that takes several reads, and a piece goes that some of
 * its rows are of, wanted or not: all rows come that were told, or the load fails. */
static void a_piece_that_goes_amid_a_chunk_is_told(void **state)
{
    (void)state;
    static uint64_t covered[SELECTOR_ROWS_MAX / 64], wanted[SELECTOR_ROWS_MAX / 64];
    struct world_setup setup = setups[2];
    uint64_t random = 5, failed = 0;
    setup.op_bytes = 64u << 10; /* a chunk is eight reads and more */
    for (uint32_t round = 0; round < 24; round++) {
        struct world *world = world_ordered(&setup, 6, 16384);
        struct sc_store_rows got = {.row_count = 1};
        spec_status status = SPEC_OK;
        assert_int_equal(world_store(world, 1, 0, 40 * (1 + round % 4)), SPEC_OK);
        for (uint64_t first = 0; first < 1024; first += 512)
            assert_int_equal(world_store(world, 2, first, 512), SPEC_OK);
        order_all(world);
        struct match match = match_of(world, 2);
        const struct sc_store_gather_rows picks = {.count = match.rows, .whole_slabs = true};
        struct sc_store_selector *selector = selector_make(world);
        struct sc_store_reader *reader = world_reader(world);
        assert_int_equal(match_load(&match, selector, 1, 0), SPEC_OK);
        memset(covered, 0, sizeof(covered));
        for (uint64_t w = 0; w < SELECTOR_ROWS_MAX / 64; w++)
            wanted[w] = w == round % 16 ? 0 : UINT64_MAX;
        sc_store_reader_begin_gather(reader, 1, match.ranges, match.count, &picks,
                                     SC_IO_CLASS_SPECULATIVE);
        sc_store_reader_tags(reader, sc_store_selector_tags(selector));
        for (uint64_t n = random_below(&random, 40); n > 0; n--)
            (void)sc_exec_step_one(world->exec);
        uint64_t left = sc_store_reader_narrow(reader, wanted, covered);
        sc_store_piece_drop(world->store, match.ranges[(round + round % 2) % 16].piece);
        while (status == SPEC_OK && got.row_count > 0) {
            status = sc_store_reader_next(reader, SC_EXEC_FOREVER, NULL, &got, &world->error);
            left -= status == SPEC_OK ? got.row_count : 0;
        }
        failed += status != SPEC_OK;
        if (status == SPEC_OK)
            assert_int_equal(left, 0);
        sc_store_readers_close(reader, 1);
        sc_store_selector_close(selector);
        world_free(world);
    }
    assert_true(failed > 0);
}

/* ---- Pages, and when they go ------------------------------------------------------------------
 */

static void the_permuted_copy_before_goes_after_the_leases(void **state)
{
    (void)state;
    struct world *world = world_bare(&setups[0], 3);
    assert_int_equal(world_store(world, 1, 0, 256), SPEC_OK);
    uint64_t one = stats_of(world).extent_bytes;
    order_all(world);
    assert_int_equal(stats_of(world).extent_bytes, 2 * one);
    assert_int_equal(stats_of(world).quarantine_bytes, one);
    world_reopen(world);
    space_check(world->store);
    release_all(world);
    assert_int_equal(stats_of(world).extent_bytes, one);
    assert_int_equal(stats_of(world).quarantine_bytes, 0);
    for (uint64_t key = 2; key < 40; key++) /* some stand where it stood */
        assert_int_equal(world_store(world, key, 0, 256), SPEC_OK);
    assert_int_equal(sc_store_checkpoint(world->store, NULL), SPEC_OK);
    world_reopen(world);
    release_all(world);
    for (uint64_t key = 1; key < 40; key++)
        rows_ok(world, key);
    assert_int_equal(stats_of(world).corrupt_records, 0);
    for (uint32_t i = 0; i < 2; i++)
        sc_store_piece_drop(world->store, world->pieces[i].id);
    space_check(world->store);
    for (uint32_t i = 2; i < world->piece_count; i++)
        sc_store_piece_drop(world->store, world->pieces[i].id);
    release_all(world);
    assert_int_equal(stats_of(world).extent_bytes, 0);
    world_free(world);
}

/* A host's call may free some on its way: a bounded number of pieces, whose rows or whole. */
static void those_of_many_pieces_are_freed_a_few_extents_at_a_time(void **state)
{
    (void)state;
    struct world *world = world_ordered(&setups[0], 8, 16384);
    uint64_t left[4];
    for (uint64_t key = 1; key <= 3; key++)
        assert_int_equal(world_store(world, key, 0, 640), SPEC_OK);
    order_all(world);
    left[0] = stats_of(world).quarantine_bytes;
    assert_true(left[0] > 0);
    for (uint32_t i = 1; i < 4; i++) {
        pthread_mutex_lock(&world->store->disk.lock);
        assert_int_equal(sc_store_quarantine_release_some(world->store, UINT64_MAX, 10), 10);
        pthread_mutex_unlock(&world->store->disk.lock);
        left[i] = stats_of(world).quarantine_bytes;
        assert_int_equal(left[0] - left[i], left[0] / 3 * i);
    }
    assert_int_equal(left[3], 0);
    space_check(world->store);
    world_free(world);
}

/* The clock is set back by hours, or forward, while rows of several extents wait: all of them are
 * free a lease after their records, not one after the other, and none before; as if opened then. */
static void those_before_wait_side_by_side_whatever_the_clock_says(void **state)
{
    (void)state;
    const int64_t hours = INT64_C(3600000000000);
    for (uint32_t way = 0; way < 3; way++) {
        struct world *world = world_bare(&setups[0], 5);
        uint64_t lease_ns = world->config.lease_ns_max;
        sc_exec_wall_set(world->exec, 5 * hours);
        for (uint64_t key = 1; key <= 4; key++) {
            assert_int_equal(world_store(world, key, 0, 128), SPEC_OK);
            order_all(world);
            world_wait_ns(world, lease_ns / 8);
        }
        uint64_t waits = stats_of(world).quarantine_bytes;
        assert_true(waits > 0);
        sc_exec_wall_set(world->exec, way == 1 ? 3 * hours : -3 * hours);
        if (way == 2)
            world_reopen(world);
        assert_int_equal(stats_of(world).quarantine_bytes, waits);
        world_wait_ns(world, lease_ns / 4);
        assert_int_equal(stats_of(world).quarantine_bytes, waits);
        world_wait_ns(world, lease_ns);
        (void)sc_store_quarantine_release(world->store, sc_exec_now_ns(world->exec));
        assert_int_equal(stats_of(world).quarantine_bytes, 0);
        space_check(world->store);
        world_free(world);
    }
}

/* Pieces that are dropped before, while rows wait, and after, with releases between: a page has one
 * owner, and the last piece takes all. */
static void drops_and_permuted_copies_give_pages_back_once(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 3; i++)
        for (uint64_t seed = 0; seed < 60; seed++) {
            struct world *world = world_ordered(&setups[i], seed, 16384);
            uint64_t random = seed * 977 + 5, ids[6], left = 6;
            assert_int_equal(world_store(world, 1 + seed, 0, 64 * 5 + 20), SPEC_OK);
            for (uint32_t p = 0; p < 6; p++)
                ids[p] = world->pieces[p].id;
            for (uint32_t step = 0; step < 24 && left > 0; step++) {
                random = random * UINT64_C(6364136223846793005) + 1442695040888963407u;
                uint64_t act = (random >> 33) % 6, pick = (random >> 40) % left;
                if (act < 2) {
                    sc_store_piece_drop(world->store, ids[pick]);
                    ids[pick] = ids[--left];
                } else if (act == 2) {
                    order_all(world);
                } else if (act == 3) {
                    pthread_mutex_lock(&world->store->disk.lock);
                    (void)sc_store_quarantine_release_some(world->store, UINT64_MAX,
                                                           (random >> 50) % 3);
                    pthread_mutex_unlock(&world->store->disk.lock);
                } else if (act == 4) {
                    if ((random >> 50) % 2 == 0)
                        assert_int_equal(sc_store_checkpoint(world->store, NULL), SPEC_OK);
                    world_reopen(world);
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

/* While somebody may read the one before, both stand, and the log knows the one before. */
static void both_permuted_copies_stand_until_it_is_quiet(void **state)
{
    (void)state;
    struct world *world = world_bare(&setups[0], 3);
    world_store_two(world, 256, 128);
    order_host.is_loud = true;
    order_all(world);
    assert_true(order_host.asked > 0);
    assert_int_equal(atomic_load(&world->store->counts.permutations_waiting), 2);
    assert_int_equal(stats_of(world).quarantine_bytes, 0);
    space_check(world->store);
    all_is_ordered(world, 1);
    for (uint32_t i = 0; i < 4; i++) /* one goes meanwhile */
        sc_store_piece_drop(world->store, world->pieces[i].id);
    world_close(world);
    world_open_ok(world); /* they are forgotten, and nothing else is */
    space_check(world->store);
    assert_int_equal(ordered_rows(world, 2, false), 0);
    order_all(world);
    release_all(world);
    order_host.is_loud = false;
    sc_store_build_settle(world->store);
    build_wait(world);
    assert_int_equal(atomic_load(&world->store->counts.permutations_waiting), 0);
    assert_true(stats_of(world).quarantine_bytes > 0);
    all_is_ordered(world, 2);
    world_reopen(world);
    all_is_ordered(world, 2);
    world_free(world);
}

/* The budget of what is written is used up: what waits for its records gives pages back, so it does
 * not wait for that, with a run that does or without. */
static void no_budget_keeps_both_copies(void **state)
{
    (void)state;
    for (uint32_t runs = 0; runs < 2; runs++) {
        struct world *world = world_bare(&setups[0], 3);
        assert_int_equal(world_store(world, 1, 0, 256), SPEC_OK);
        order_host.is_loud = true;
        order_all(world);
        assert_int_equal(world_store(world, 2, 0, 256), SPEC_OK);
        world->store->day_budget.budget = 1;
        world->store->day_budget.level = -1e12;
        if (runs != 0)
            sc_store_build_permutation(world->store, 0);
        for (uint32_t s = 0; s < 8; s++) { /* seconds: it may wait for as long as it likes */
            uint64_t end_ns = sc_exec_now_ns(world->exec) + UINT64_C(1000000000);
            _Atomic uint32_t word = 0;
            (void)sc_exec_wait(world->exec, &word, 0, end_ns);
            order_host.is_loud = s < 4;
            sc_store_build_settle(world->store);
        }
        assert_int_equal(atomic_load(&world->store->counts.permutations_waiting), 0);
        assert_int_not_equal(atomic_load(&extent_of(world, world->pieces[0].id)->rows_state),
                             SC_STORE_ROWS_HELD);
        assert_int_equal(ordered_rows(world, 2, false), 0);
        world_reopen(world);
        all_is_ordered(world, 1);
        world_free(world);
    }
}

static void what_is_not_known_or_too_large_stays(void **state)
{
    (void)state;
    struct world *world = world_bare(&setups[0], 4);
    assert_int_equal(world_store(world, 1, 0, 300), SPEC_OK);
    assert_int_equal(world_store(world, 2, 0, 64), SPEC_OK); /* one chunk */
    assert_int_equal(world_store(world, 3, 0, 256), SPEC_OK);
    order_host.known_from = world->pieces[world->piece_count - 1].id - 3;
    order_all(world);
    assert_int_equal(ordered_rows(world, 1, false), 0);
    assert_int_equal(ordered_rows(world, 2, false), 0);
    all_is_ordered(world, 3);
    world_close(world);
    order_host.known_from = 0;
    world->params.permutation.bytes_max = 299 * 1024;
    world_open_ok(world);
    order_all(world);
    assert_int_equal(ordered_rows(world, 1, false), 0);
    world_free(world);
}

/* ---- With what else extents get ---------------------------------------------------------------
 */

/* Codes and probe rows that are made of ordered rows. */
static void codes_are_made_of_ordered_rows(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 2; i++) {
        struct world *world = world_make(&setups[i], 3);
        orders_on(world, 16384);
        world->params.probe_row_bytes = 0;
        world_open_ok(world);
        world_store_two(world, 300, 300);
        order_all(world);
        assert_true(stats_of(world).quantised_write_bytes >
                    600 * 2 * world->setup->k_row_bytes * world->setup->layers);
        world_close(world);
        keep_quant(world, true);
        world->params.probe_row_bytes = setups[i].probe_row_bytes;
        world_open_ok(world);
        build_all(world, 0);
        space_check(world->store);
        struct match match = match_of(world, 1);
        struct sc_store_selector *selector = selector_make(world);
        match_load_ok(world, &match, selector, setups[i].probe_row_bytes);
        sc_store_selector_close(selector);
        (void)key_check(world, 1, true);
        (void)key_check(world, 2, true);
        all_is_ordered(world, 1);
        world_free(world);
    }
}

/* probe rows of the extent's own move with it. */
static void own_probe_rows_move(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 3; i++) {
        struct world *world = world_ordered(&setups[i], 5, 16384);
        assert_int_equal(world_store(world, 1, 0, 300), SPEC_OK);
        order_all(world);
        (void)sc_store_quarantine_release(world->store, UINT64_MAX);
        for (uint64_t key = 2; key < 6; key++) /* over what stood there */
            assert_int_equal(world_store(world, key, 0, 200), SPEC_OK);
        struct match match = match_of(world, 1);
        struct sc_store_selector *selector = selector_make(world);
        match_load_ok(world, &match, selector, setups[i].probe_row_bytes);
        sc_store_selector_close(selector);
        world_free(world);
    }
}

/* ---- Damage ---------------------------------------------------------------------------------- */

/* One byte of a slot: the row that stands there fails, and no other. */
static void a_damaged_slot_fails_its_row(void **state)
{
    (void)state;
    struct world *world = world_ordered(&setups[0], 4, 16384);
    assert_int_equal(world_store(world, 1, 0, 256), SPEC_OK);
    order_all(world);
    slot_damage(world, world->pieces[0].id, 1, 200);
    struct sc_store_reader *reader = world_reader(world);
    struct loaded loaded = world_load_key(world, reader, 1, 1);
    assert_int_equal(loaded.status, SPEC_E_CORRUPT);
    assert_int_equal(loaded.failed_range, 200 / 64);
    for (uint32_t i = 0; i < 4; i++)
        assert_int_equal(world_load_piece(world, reader, 1, &world->pieces[i]).status,
                         i == 200 / 64 ? SPEC_E_CORRUPT : SPEC_OK);
    assert_int_equal(world_load_key(world, reader, 0, 1).status, SPEC_OK);
    sc_store_readers_close(reader, 1);
    world_free(world);
}

static void on_staged(const struct sc_store_match_fetched *staged, void *user)
{
    *(struct sc_store_match_fetched *)user = *staged;
}

/* The n-th allocation or read fails while ordered rows are staged: it is told as what it is, for a
 * prefix goes that is told as CORRUPT or IO. false: it was not met. */
static bool stage_try(enum sc_fault_kind kind, uint64_t n)
{
    struct world *world = world_make(&setups[1], 4);
    orders_on(world, 16384);
    world->config.host_bytes = 16u << 20;
    world_faults(world);
    world_open_ok(world);
    assert_int_equal(world_store(world, 1, 0, 150), SPEC_OK);
    order_all(world);
    struct match match = match_of(world, 1);
    struct sc_store_match_fetched staged = {.status = SPEC_PENDING};
    const struct sc_store_match_fetch what = {
        .ranges = match.ranges,
        .range_count = match.count,
        .wants = {.choice_from = setups[1].layers, .rows_end = setups[1].layers},
        .done = on_staged,
        .user = &staged};
    sc_fault_arm(&world->fault, kind, n);
    spec_status status = sc_store_match_fetch_begin(world->store, &what, NULL);
    while (status == SPEC_OK && staged.status == SPEC_PENDING)
        (void)sc_exec_step_one(world->exec);
    sc_fault_arm(&world->fault, kind, INT64_MAX);
    bool fires = atomic_load(&world->fault.fired[kind]) > 0;
    spec_status wanted = kind == SC_FAULT_ALLOC ? SPEC_E_NO_MEMORY : SPEC_E_IO;
    assert_int_equal(status == SPEC_OK ? staged.status : status, fires ? wanted : SPEC_OK);
    all_is_ordered(world, 1);
    world_free(world);
    return fires;
}

static void staging_tells_faults_as_what_they_are(void **state)
{
    (void)state;
    uint64_t n = 0;
    while (stage_try(SC_FAULT_ALLOC, n))
        n++;
    assert_true(n > 3); /* also of what puts rows together */
    for (n = 0; stage_try(SC_FAULT_READ, n); n += 37)
        ;
    assert_true(n > 37);
}

/* ---- Faults and power cuts ------------------------------------------------------------------- */

#ifndef SC_SANITIZED_THREAD /* one thread: nothing to find there, and it takes minutes for it */

static void build_survives_every_fault(void **state)
{
    (void)state;
    build_trial_faults(&trial);
}

static void cut_at_any_write_loses_nothing(void **state)
{
    (void)state;
    build_trial_cuts(&trial, (200 + 130) * UINT64_C(3));
}

#endif

/* ---- Beside others --------------------------------------------------------------------------- */

static void permuted_copies_are_seen_by_a_follower(void **state)
{
    (void)state;
    struct build_trial files = trial;
    files.setup = &build_setups[3];
    build_trial_follower(&files);
}

/* Rows are ordered while they are read, and while extents go. */
static void ordering_beside_loads_and_drops(void **state)
{
    (void)state;
    for (uint32_t i = 3; i < BUILD_SETUPS; i++) {
        struct world *world = world_ordered(&setups[i], 2, 100);
        if (world == NULL)
            continue;
        for (uint64_t key = 1; key <= 6; key++)
            assert_int_equal(world_store(world, key, 0, 256), SPEC_OK);
        sc_store_build_permutation(world->store, 0);
        build_beside_drops(world);
        all_is_ordered(world, 2);
        all_is_ordered(world, 6);
        space_check(world->store);
        world_free(world);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_what_was_stored),
        cmocka_unit_test(slots_follow_the_scores),
        cmocka_unit_test(any_part_of_a_match_is_read),
        cmocka_unit_test(one_is_found_amid_a_load),
        cmocka_unit_test(what_is_wanted_most_is_one_read),
        cmocka_unit_test(long_gaps_between_slots_are_not_read),
        cmocka_unit_test(holes_are_passed_over),
        cmocka_unit_test(a_piece_that_goes_amid_a_chunk_is_told),
        cmocka_unit_test(the_permuted_copy_before_goes_after_the_leases),
        cmocka_unit_test(those_of_many_pieces_are_freed_a_few_extents_at_a_time),
        cmocka_unit_test(those_before_wait_side_by_side_whatever_the_clock_says),
        cmocka_unit_test(drops_and_permuted_copies_give_pages_back_once),
        cmocka_unit_test(both_permuted_copies_stand_until_it_is_quiet),
        cmocka_unit_test(no_budget_keeps_both_copies),
        cmocka_unit_test(what_is_not_known_or_too_large_stays),
        cmocka_unit_test(codes_are_made_of_ordered_rows),
        cmocka_unit_test(own_probe_rows_move),
        cmocka_unit_test(a_damaged_slot_fails_its_row),
        cmocka_unit_test(staging_tells_faults_as_what_they_are),
#ifndef SC_SANITIZED_THREAD
        cmocka_unit_test(build_survives_every_fault),
        cmocka_unit_test(cut_at_any_write_loses_nothing),
#endif
        cmocka_unit_test(permuted_copies_are_seen_by_a_follower),
        cmocka_unit_test(ordering_beside_loads_and_drops),
    };
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
