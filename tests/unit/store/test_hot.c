/* Hot blocks (store/rows/hot.h): they are built of the rows that the caller names, whatever the
 * layout, the back end and the holes; what is read of them is what the extent has; one that is
 * damaged costs nothing but itself; faults and power cuts at every write of one lose nothing; their
 * pages go with the rows.
 *
 * Threads: the fixture's. */
#include "store/place/tier.h"
#include "store/rows/hot.h"
#include "tests/unit/store/build_trial.h"
#include "tests/unit/store/order_check.h"
#include "tests/unit/store/space_check.h"

#define HOT_PPM  200000u
#define PPM      1000000u
#define LEASE_NS UINT64_C(1000000000)

static const struct world_setup *const setups = build_setups;

/* Some far apart, some side by side; others in each layer. user: the first piece that is known. */
static bool choose(void *user, const struct sc_store_range *ranges, uint64_t range_count,
                   uint32_t layer, uint64_t count, uint32_t *ret_rows)
{
    const uint64_t *known = user;
    uint64_t rows = 0;
    for (uint64_t i = 0; i < range_count; i++)
        rows += ranges[i].row_count;
    assert_true(count <= rows);
    uint64_t near = count / 3, from = near + layer % (rows - count + 1);
    for (uint64_t i = 0; i < near; i++)
        ret_rows[i] = (uint32_t)i;
    for (uint64_t i = near; i < count; i++)
        ret_rows[i] = (uint32_t)(from + (i - near) * (rows - from) / (count - near));
    return ranges[0].piece >= *known;
}

static uint64_t known_from;

static struct world *world_hot(const struct world_setup *setup, uint64_t seed)
{
    struct world *world = world_make(setup, seed);
    known_from = 0;
    world->config.maintain_bytes_per_s = 0;
    world->config.lease_ns_max = LEASE_NS;
    world->params.probe_row_bytes = 0;
    world->params.hot = (struct sc_store_hot){HOT_PPM, choose, &known_from};
    return world_opened(world);
}

/* Reads a layer's hot rows of the match, or those of them that are wanted (bits; NULL: all).
 * Returns how many came, all right. */
static uint64_t hot_load(struct world *world, const struct match *match, uint32_t layer,
                         const uint64_t *wanted, spec_status *ret_status)
{
    static uint32_t rows[SKETCH_ROWS_MAX];
    static uint64_t covered[SKETCH_ROWS_MAX / 64];
    struct sc_store_sketch *sketch = sketch_make(world);
    struct sc_store_reader *reader = world_reader(world);
    struct sc_store_picks picks = {.rows = rows, .from_hot = true};
    struct sc_store_rows got = {0};
    uint64_t count = 0, left, half = world->setup->k_row_bytes;
    assert_int_equal(match_load(match, sketch, layer, 0), SPEC_OK);
    picks.count =
        sc_store_hot_rows(world->store, layer, match->ranges, match->count, SKETCH_ROWS_MAX, rows);
    sc_store_reader_begin_picks(reader, layer, match->ranges, match->count, &picks,
                                SC_LANE_SPECULATIVE);
    sc_store_reader_tags(reader, sc_store_sketch_tags(sketch));
    left = picks.count;
    memset(covered, 0, sizeof(covered));
    if (wanted != NULL)
        left = sc_store_reader_narrow(reader, wanted, covered);
    sc_store_reader_demand(reader);
    do {
        *ret_status = sc_store_reader_next(reader, SC_EXEC_FOREVER, NULL, &got, &world->error);
        for (uint64_t i = 0; *ret_status == SPEC_OK && i < got.row_count; i++) {
            uint64_t row = rows[got.row_first + i];
            if (wanted != NULL)
                assert_true((wanted[row / 64] & covered[row / 64]) >> (row % 64) & 1);
            row_check(world, match, layer, row, got.rows + i * 2 * half,
                      got.rows + (i * 2 + 1) * half);
            count++;
        }
    } while (*ret_status == SPEC_OK && got.row_count > 0);
    assert_true(*ret_status != SPEC_OK || count == left);
    sc_store_readers_close(reader, 1);
    sc_store_sketch_close(sketch);
    return count;
}

/* is_cut: power failed, so blocks may be damaged; they are forgotten then. */
static uint64_t hot_had(struct world *world, uint64_t key, bool is_cut)
{
    uint64_t count = 0;
    spec_status status;
    struct match match = match_of(world, key);
    for (uint32_t layer = 0; layer < world->setup->layers; layer++) {
        count += hot_load(world, &match, layer, NULL, &status);
        assert_true(status == SPEC_OK || (is_cut && status == SPEC_E_CORRUPT));
    }
    return count;
}

static uint64_t hot_count(struct world *world, uint64_t key)
{
    return hot_had(world, key, false);
}

/* All hot rows of the key, which has one extent of so many rows. */
static void key_is_hot(struct world *world, uint64_t key, uint64_t rows)
{
    assert_int_equal(hot_count(world, key), rows * HOT_PPM / PPM * world->setup->layers);
}

/* The trials' keys have an extent each. */
static void all_is_hot(struct world *world, uint64_t key)
{
    uint64_t rows = 0;
    for (uint32_t i = 0; i < world->piece_count; i++)
        rows += world->pieces[i].key == key ? world->pieces[i].row_count : 0;
    key_is_hot(world, key, rows);
}

static const struct build_trial trial = {.setup = &build_setups[0],
                                         .bare = world_hot,
                                         .open = world_open_ok,
                                         .had = hot_had,
                                         .is_whole = all_is_hot};

/* ---- Building and reading -------------------------------------------------------------------- */

static void hot_rows_are_the_extents(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < BUILD_SETUPS; i++) {
        struct world *world = world_hot(&setups[i], 7);
        if (world == NULL)
            continue;
        world_store_two(world, 300, 250);
        assert_int_equal(hot_count(world, 1), 0);
        build_all(world, 0);
        space_check(world->store);
        uint64_t bytes = stats_of(world).hot_bytes;
        assert_true(bytes > 0);
        for (uint32_t opened = 0; opened < 3; opened++) {
            key_is_hot(world, 1, 300);
            key_is_hot(world, 2, 250);
            rows_ok(world, 1);
            assert_int_equal(stats_of(world).hot_bytes, bytes);
            build_all(world, 0); /* nothing is left to be built */
            assert_int_equal(stats_of(world).hot_bytes, bytes);
            if (opened == 1)
                assert_int_equal(sc_store_checkpoint(world->store, NULL), SPEC_OK);
            world_reopen(world);
            space_check(world->store);
        }
        assert_int_equal(stats_of(world).bad_hot, 0);
        world_free(world);
    }
}

/* Ranges of parts of pieces of several extents, in any order; some of the rows wanted. */
static void any_part_of_a_match_is_read(void **state)
{
    (void)state;
    uint64_t random = 3;
    for (uint32_t i = 0; i < BUILD_SETUPS; i++) {
        struct world *world = world_hot(&setups[i], 8);
        if (world == NULL)
            continue;
        assert_int_equal(world_store(world, 1, 0, 300), SPEC_OK);
        assert_int_equal(world_store(world, 1, 300, 150), SPEC_OK);
        assert_int_equal(world_store(world, 2, 0, 250), SPEC_OK);
        build_all(world, 0);
        assert_int_equal(world_store(world, 3, 0, 200), SPEC_OK); /* without a block */
        for (uint32_t round = 0; round < 12; round++) {
            uint64_t wanted[SKETCH_ROWS_MAX / 64];
            struct match match = any_match(world, &random);
            spec_status status;
            for (uint64_t w = 0; w < SKETCH_ROWS_MAX / 64; w++)
                wanted[w] = mix(random + w) & mix(random - w);
            uint32_t layer = (uint32_t)random_below(&random, world->setup->layers);
            (void)hot_load(world, &match, layer, round % 2 == 0 ? NULL : wanted, &status);
            assert_int_equal(status, SPEC_OK);
        }
        world_free(world);
    }
}

static void holes_are_passed_over(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 3; i++) {
        struct world *world = world_hot(&setups[i], 9);
        holes_store(world);
        assert_int_equal(world_store(world, 6, 0, 256), SPEC_OK);
        sc_store_piece_drop(world->store, world->pieces[1].id);
        build_all(world, 0);
        space_check(world->store);
        key_is_hot(world, 6, 256);
        struct match match = holes_match(world);
        for (uint32_t layer = 0; layer < setups[i].layers; layer++) {
            spec_status status;
            assert_true(hot_load(world, &match, layer, NULL, &status) > 0);
            assert_int_equal(status, SPEC_OK);
        }
        world_free(world);
    }
}

/* An extent of which nothing is known waits until it is asked for. */
static void what_is_not_known_is_built_when_it_is_asked_for(void **state)
{
    (void)state;
    struct world *world = world_hot(&setups[0], 4);
    world_store_two(world, 300, 256);
    known_from = UINT64_MAX;
    build_all(world, 0);
    assert_int_equal(stats_of(world).hot_bytes, 0);
    sc_store_build_hot(world->store, 2);
    build_wait(world);
    assert_int_equal(stats_of(world).hot_bytes, 0);
    known_from = 0;
    sc_store_build_hot(world->store, 7); /* of the second extent */
    sc_store_build_hot(world->store, 8);
    build_wait(world);
    assert_int_equal(hot_count(world, 1), 0);
    key_is_hot(world, 2, 256);
    sc_store_build_hot(world->store, 8); /* it has one */
    build_wait(world);
    sc_store_build_hot(world->store, 3);
    build_wait(world);
    key_is_hot(world, 1, 300);
    sc_store_build_hot(world->store, 99);
    space_check(world->store);
    world_free(world);
}

static void one_layer_is_one_read(void **state)
{
    (void)state;
    uint32_t rows[512];
    struct sc_store_read_cost cost;
    struct world *world = world_hot(&setups[0], 4);
    assert_int_equal(world_store(world, 1, 0, 300), SPEC_OK);
    build_all(world, 0);
    struct match match = match_of(world, 1);
    struct sc_store_picks picks = {.rows = rows, .from_hot = true};
    picks.count = sc_store_hot_rows(world->store, 1, match.ranges, match.count, 512, rows);
    assert_int_equal(picks.count, 60);
    struct sc_store_reader *reader = world_reader(world);
    sc_store_reader_begin_picks(reader, 1, match.ranges, match.count, &picks, SC_LANE_DEMAND);
    sc_store_reader_cost(reader, &cost);
    assert_int_equal(cost.op_count, 1);
    assert_int_equal(cost.read_bytes, 15u * 4096);
    assert_int_equal(cost.wanted_bytes, 60u * 1024);
    sc_store_readers_close(reader, 1);
    world_free(world);
}

/* ---- Damage ---------------------------------------------------------------------------------- */

static void block_damage(struct world *world, uint64_t extent, uint32_t layer, uint64_t at)
{
    const struct sc_store_annex *annex =
        atomic_load(&sc_store_table_extent(&world->store->table, extent)->hot);
    struct sc_store_where where =
        sc_store_layer_where(annex->parts, annex->part_count, annex->stride, layer);
    segment_flip(world, world->store->disk.segments[where.segment].number, where.offset + at, 8);
}

/* It is forgotten, in all its layers; the others, and the rows themselves, are not touched. */
static void a_damaged_block_is_forgotten(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 3; i++) {
        struct world *world = world_hot(&setups[i], 4);
        world_store_two(world, 300, 256);
        build_all(world, 0);
        struct match match = match_of(world, 1);
        block_damage(world, 1, 1, 20000);
        spec_status status;
        uint64_t came = hot_load(world, &match, 1, NULL, &status);
        assert_int_equal(status, SPEC_E_CORRUPT);
        assert_true(came < 60);
        assert_int_equal(hot_count(world, 1), 0);
        assert_int_equal(stats_of(world).bad_hot, 1);
        assert_int_equal(stats_of(world).corrupt_rows, 0);
        rows_ok(world, 1);
        key_is_hot(world, 2, 256);
        build_all(world, 0); /* none is made in its place */
        space_check(world->store);
        assert_int_equal(hot_count(world, 1), 0);
        world_free(world);
    }
}

/* A read that fails, once: likewise. */
static void a_block_that_cannot_be_read_is_forgotten(void **state)
{
    (void)state;
    struct world *world = world_make(&setups[0], 4);
    world->params.fault = &world->fault;
    world->params.hot = (struct sc_store_hot){HOT_PPM, choose, &known_from};
    world_open_ok(world);
    assert_int_equal(world_store(world, 1, 0, 300), SPEC_OK);
    build_all(world, 0);
    struct match match = match_of(world, 1);
    spec_status status = SPEC_OK;
    sc_fault_arm(&world->fault, SC_FAULT_READ, 1); /* behind the tags' */
    (void)hot_load(world, &match, 1, NULL, &status);
    sc_fault_arm(&world->fault, SC_FAULT_READ, INT64_MAX);
    assert_int_equal(status, SPEC_E_IO);
    assert_int_equal(hot_count(world, 1), 0);
    rows_ok(world, 1);
    world_free(world);
}

/* ---- Pages ----------------------------------------------------------------------------------- */

static void pages_go_with_the_extent(void **state)
{
    (void)state;
    struct world *world = world_hot(&setups[0], 3);
    world_store_two(world, 256, 256);
    build_all(world, 0);
    for (uint32_t i = 0; i < 4; i++)
        sc_store_piece_drop(world->store, world->pieces[i].id);
    space_check(world->store);
    assert_int_equal(sc_store_checkpoint(world->store, NULL), SPEC_OK);
    world_reopen(world);
    space_check(world->store);
    key_is_hot(world, 2, 256);
    for (uint32_t i = 4; i < 8; i++)
        sc_store_piece_drop(world->store, world->pieces[i].id);
    release_all(world);
    assert_int_equal(stats_of(world).extent_bytes, 0);
    assert_int_equal(stats_of(world).hot_bytes, 0);
    world_free(world);
}

static void pages_go_with_the_rows(void **state)
{
    (void)state;
    struct world *world = world_make(&setups[0], 3);
    keep_codes(world, true);
    world->config.lease_ns_max = LEASE_NS;
    world->params.hot = (struct sc_store_hot){HOT_PPM, choose, &known_from};
    known_from = 0;
    world_open_ok(world);
    uint64_t key = 1;
    for (struct sc_store_coarse_extent found = {0}; found.id == 0; key++) { /* none is raw */
        assert_int_equal(world_store(world, key, 0, 128), SPEC_OK);
        build_all(world, 0);
        uint64_t piece = world->pieces[world->piece_count - 1].id;
        found = demotable_extent(world, piece);
        if (found.id == 0)
            continue;
        uint64_t held = stats_of(world).hot_bytes;
        demote_extent(world, found.id);
        space_check(world->store);
        for (uint32_t round = 0; round < 2; round++) { /* the second has its pages back */
            assert_int_equal(sc_store_checkpoint(world->store, NULL), SPEC_OK);
            world_reopen(world);
            space_check(world->store);
            release_all(world);
            assert_true(stats_of(world).hot_bytes < held);
        }
        assert_int_equal(stats_of(world).corrupt_records, 0);
        build_all(world, 0); /* no rows, no block */
        space_check(world->store);
    }
    world_free(world);
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
    build_trial_cuts(&trial, (40 + 26) * build_setups[0].layers);
}

#endif

/* ---- Beside others --------------------------------------------------------------------------- */

static void blocks_are_seen_by_a_follower(void **state)
{
    (void)state;
    struct build_trial files = trial;
    files.setup = &build_setups[3];
    build_trial_follower(&files);
}

/* Blocks are built while their rows are read, and while extents go. */
static void build_beside_loads_and_drops(void **state)
{
    (void)state;
    struct world *world = world_hot(&setups[3], 2);
    assert_non_null(world);
    for (uint64_t key = 1; key <= 6; key++)
        assert_int_equal(world_store(world, key, 0, 256), SPEC_OK);
    sc_store_build_start(world->store, 0);
    for (uint32_t round = 0; build_runs(world) || round < 3; round++) {
        if (round < 3)
            for (uint32_t i = 0; i < 4; i++)
                sc_store_piece_drop(world->store, world->pieces[4 * (2 * round) + i].id);
        (void)hot_count(world, 6);
        sc_store_build_hot(world->store, world->pieces[5].id);
    }
    build_wait(world);
    key_is_hot(world, 2, 256);
    space_check(world->store);
    world_free(world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hot_rows_are_the_extents),
        cmocka_unit_test(any_part_of_a_match_is_read),
        cmocka_unit_test(holes_are_passed_over),
        cmocka_unit_test(what_is_not_known_is_built_when_it_is_asked_for),
        cmocka_unit_test(one_layer_is_one_read),
        cmocka_unit_test(a_damaged_block_is_forgotten),
        cmocka_unit_test(a_block_that_cannot_be_read_is_forgotten),
        cmocka_unit_test(pages_go_with_the_extent),
        cmocka_unit_test(pages_go_with_the_rows),
#ifndef SC_SANITIZED_THREAD
        cmocka_unit_test(build_survives_every_fault),
        cmocka_unit_test(cut_at_any_write_loses_nothing),
#endif
        cmocka_unit_test(blocks_are_seen_by_a_follower),
        cmocka_unit_test(build_beside_loads_and_drops),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
