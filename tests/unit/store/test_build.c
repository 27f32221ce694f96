/* Sections that are built later: what lacked probe rows gives selectors afterwards, whatever the
 * layout, the back end and the holes; nothing that is stored changes or is lost, with any fault and
 * after any power cut; pages come back with their extents.
 *
 * Threads: the fixture's. */
#include "store/space/tier.h"
#include "tests/unit/store/build_trial.h"
#include "tests/unit/store/late_io.h"
#include "tests/unit/store/quant_check.h"
#include "tests/unit/store/selector_check.h"
#include "tests/unit/store/space_check.h"

static const struct world_setup *const setups = build_setups;

/* A store without probe rows, that is then opened by who wants them. */
static struct world *world_bare(const struct world_setup *setup, uint64_t seed)
{
    struct world *world = world_make(setup, seed);
    world->params.probe_row_bytes = 0;
    return world_opened(world);
}

static void reopen(struct world *world, uint64_t probe_row_bytes)
{
    world_close(world);
    world->params.probe_row_bytes = probe_row_bytes;
    world_open_ok(world);
}

static bool has_selector(struct world *world, uint64_t key)
{
    struct sc_store_selector *selector = selector_make(world);
    struct match match = match_of(world, key);
    bool begins =
        keys_begin(selector, &match, 0, SC_IO_CLASS_DEMAND, world->params.probe_row_bytes);
    sc_store_selector_close(selector);
    return begins;
}

static void selector_keys_ok(struct world *world, uint64_t key)
{
    struct sc_store_selector *selector = selector_make(world);
    struct match match = match_of(world, key);
    for (uint32_t layer = 0; layer < world->setup->layers; layer++) {
        for (uint64_t wanted = world->params.probe_row_bytes; wanted > 0; wanted /= 97) {
            spec_status status = match_load(&match, selector, layer, wanted & ~UINT64_C(1));
            if (status != SPEC_OK)
                fail_msg("%s: layer %u: %d: %s", world->setup->name, layer, (int)status,
                         world->last_line);
            match_check(world, &match, layer, wanted & ~UINT64_C(1), selector, true);
        }
    }
    sc_store_selector_close(selector);
}

/* Layers whose selector the key has. */
static uint64_t selector_keys_had(struct world *world, uint64_t key, bool is_cut)
{
    struct sc_store_selector *selector = selector_make(world);
    uint64_t wanted = world->params.probe_row_bytes, had = 0;
    struct match match = match_of(world, key);
    for (uint32_t layer = 0; layer < world->setup->layers; layer++) {
        if (!keys_begin(selector, &match, layer, SC_IO_CLASS_DEMAND, wanted))
            continue;
        spec_status status = sc_store_selector_wait(selector, SC_EXEC_FOREVER);
        assert_true(status == SPEC_OK || (is_cut && status == SPEC_E_CORRUPT));
        had += status == SPEC_OK;
        if (status == SPEC_OK)
            match_check(world, &match, layer, wanted, selector, true);
    }
    sc_store_selector_close(selector);
    return had;
}

static void open_building(struct world *world)
{
    world->params.probe_row_bytes = world->setup->probe_row_bytes;
    world_open_ok(world);
}

static const struct build_trial trial = {.setup = &build_setups[0],
                                         .bare = world_bare,
                                         .open = open_building,
                                         .had = selector_keys_had,
                                         .is_whole = selector_keys_ok};

static void build_gives_old_rows_their_selectors(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < BUILD_SETUPS; i++) {
        struct world *world = world_bare(&setups[i], 7);
        if (world == NULL)
            continue;
        assert_int_equal(world_store(world, 1, 0, 300), SPEC_OK);
        assert_int_equal(world_store(world, 1, 300, 23), SPEC_OK);
        assert_int_equal(world_store(world, 1, 323, 1), SPEC_OK);
        assert_int_equal(world_store(world, 2, 0, 250), SPEC_OK);
        reopen(world, setups[i].probe_row_bytes);
        assert_int_equal(world_store(world, 3, 0, 100), SPEC_OK); /* has its own */
        assert_false(has_selector(world, 1));
        uint64_t pieces = world->piece_count - 2;
        build_all(world, i % 2 == 0 ? 0 : 500u << 20);
        assert_int_equal(stats_of(world).built_pieces, pieces);
        space_check(world->store);
        for (uint32_t opened = 0; opened < 4; opened++) {
            for (uint64_t key = 1; key <= 3; key++) {
                selector_keys_ok(world, key);
                rows_ok(world, key);
            }
            build_all(world, 0); /* nothing is left to be built */
            assert_int_equal(stats_of(world).built_pieces, opened == 0 ? pieces : 0);
            if (opened == 1)
                assert_int_equal(sc_store_checkpoint(world->store, NULL), SPEC_OK);
            reopen(world, setups[i].probe_row_bytes);
            space_check(world->store);
        }
        world_free(world);
    }
}

/* A window that is there before the step that asked for it has come back. */
static void build_goes_on_while_its_step_ends(void **state)
{
    (void)state;
    struct world *world = world_make(&setups[3], 5);
    world->params.custom = &late_io;
    world->params.probe_row_bytes = 0;
    world_open_ok(world);
    assert_int_equal(world_store(world, 1, 0, 300), SPEC_OK);
    reopen(world, setups[3].probe_row_bytes);
    build_all(world, 0);
    assert_int_equal(stats_of(world).built_pieces, world->piece_count);
    selector_keys_ok(world, 1);
    space_check(world->store);
    world_free(world);
}

/* The same extents with holes: pieces that were never committed, skipped rows, dropped pieces. */
static void build_passes_over_rows_that_no_piece_has(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 3; i++) {
        struct world *world = world_bare(&setups[i], 9);
        holes_store(world);
        assert_int_equal(world_store(world, 6, 0, 256), SPEC_OK);
        sc_store_piece_drop(world->store, world->pieces[1].id);
        reopen(world, setups[i].probe_row_bytes);
        build_all(world, 0);
        space_check(world->store);
        selector_keys_ok(world, 6);
        struct sc_store_selector *selector = selector_make(world);
        struct match match = holes_match(world);
        for (uint32_t layer = 0; layer < setups[i].layers; layer++) {
            assert_int_equal(match_load(&match, selector, layer, setups[i].probe_row_bytes),
                             SPEC_OK);
            match_check(world, &match, layer, setups[i].probe_row_bytes, selector, true);
        }
        sc_store_selector_close(selector);
        world_free(world);
    }
}

static void build_keeps_to_its_rate(void **state)
{
    (void)state;
    const uint64_t bytes_per_s = 1u << 20;
    struct sc_store_stats stats;
    struct world *world = world_bare(&setups[0], 3);
    assert_int_equal(world_store(world, 1, 0, 200), SPEC_OK);
    reopen(world, setups[0].probe_row_bytes);
    uint64_t start_ns = sc_exec_now_ns(world->exec);
    build_all(world, bytes_per_s);
    uint64_t took_ns = sc_exec_now_ns(world->exec) - start_ns;
    sc_store_stats(world->store, &stats);
    assert_int_equal(stats.built_pieces, world->piece_count);
    assert_true(took_ns >= stats.read_bytes * 1000000000 / bytes_per_s);
    assert_true(took_ns < stats.read_bytes * 2000000000 / bytes_per_s);
    world_free(world);
}

static void build_reads_nothing_of_other_namespaces(void **state)
{
    (void)state;
    struct sc_store_stats stats;
    struct world *world = world_bare(&setups[0], 3);
    assert_int_equal(world_store(world, 1, 0, 200), SPEC_OK);
    world->params.space.digest[0] ^= 1;
    world->params.space.descriptor = "{\"model\":\"another\"}";
    reopen(world, setups[0].probe_row_bytes);
    build_all(world, 0);
    sc_store_stats(world->store, &stats);
    assert_int_equal(stats.read_bytes, 0);
    assert_int_equal(stats.built_pieces, 0);
    world_free(world);
}

/* What is built of an extent with holes has nothing of another that was built before it. */
static void build_leaves_holes_blank(void **state)
{
    (void)state;
    uint8_t *bytes = aligned_alloc(SC_IO_PAGE_BYTES, 2 * SC_IO_PAGE_BYTES);
    const uint64_t row = setups[0].probe_row_bytes;
    assert_non_null(bytes);
    struct world *world = world_bare(&setups[0], 9);
    assert_int_equal(world_store(world, 6, 0, 640), SPEC_OK);
    uint32_t holes = world->piece_count;
    holes_store(world);
    sc_store_piece_drop(world->store, world->pieces[holes + 1].id);
    reopen(world, row);
    build_all(world, 0);
    const struct sc_store_table *table = &world->store->table;
    const struct sc_store_extent_entry *extent =
        sc_store_table_extent(table, sc_store_table_piece(table, world->pieces[holes].id)->extent);
    const struct sc_store_section *derived = atomic_load(&extent->derived);
    for (uint32_t layer = 0; layer < setups[0].layers; layer++) {
        struct sc_store_where where =
            sc_store_layer_where(derived->parts, derived->part_count, derived->stride, layer);
        uint64_t at = where.offset + derived->probe_offset, in = at % SC_IO_PAGE_BYTES;
        where.offset = at - in;
        assert_int_equal(sc_io_file_pread(world->store->io,
                                          world->store->disk.segments[where.segment].file, bytes,
                                          2 * SC_IO_PAGE_BYTES, where.offset, &world->error),
                         SPEC_OK);
        for (uint64_t i = 0; i < 54 * row && in + i < 2 * SC_IO_PAGE_BYTES; i++)
            assert_int_equal(bytes[in + i], 0); /* of a piece that was never committed */
    }
    free(bytes);
    world_free(world);
}

/* The derived section' pages go with the extent's last piece, after the quarantine, also over a
 * reopen. */
static void build_gives_its_pages_back_with_the_extent(void **state)
{
    (void)state;
    struct world *world = world_bare(&setups[0], 3);
    world->config.lease_ns_max = 1000000000;
    world_store_two(world, 256, 256);
    reopen(world, setups[0].probe_row_bytes);
    struct sc_store_stats before, after;
    sc_store_stats(world->store, &before);
    build_all(world, 0);
    sc_store_stats(world->store, &after);
    assert_true(after.extent_bytes >= before.extent_bytes + after.built_bytes);
    for (uint32_t i = 0; i < 4; i++)
        sc_store_piece_drop(world->store, world->pieces[i].id);
    space_check(world->store);
    reopen(world, setups[0].probe_row_bytes);
    space_check(world->store);
    assert_int_equal(sc_store_checkpoint(world->store, NULL), SPEC_OK);
    reopen(world, setups[0].probe_row_bytes);
    space_check(world->store);
    selector_keys_ok(world, 2);
    for (uint32_t i = 4; i < 8; i++)
        sc_store_piece_drop(world->store, world->pieces[i].id);
    release_all(world);
    sc_store_stats(world->store, &after);
    assert_int_equal(after.extent_bytes, 0);
    reopen(world, setups[0].probe_row_bytes);
    release_all(world);
    world_free(world);
}

/* A row that fails its tag: its extent gets no selector, the others do, and no load is touched. */
static void build_takes_no_keys_of_damaged_rows(void **state)
{
    (void)state;
    struct world *world = world_bare(&setups[0], 4);
    world_store_two(world, 256, 256);
    const struct sc_store_extent_entry *extent = sc_store_table_extent(&world->store->table, 1);
    uint64_t offset = extent->parts[0].offset + 2 * extent->stride + extent->row_offset + 77777;
    reopen(world, setups[0].probe_row_bytes);
    segment_flip(world, 0, offset, 4);
    build_all(world, 0);
    assert_int_equal(stats_of(world).built_pieces, 4);
    assert_false(has_selector(world, 1));
    selector_keys_ok(world, 2);
    space_check(world->store);
    segment_flip(world, 0, offset, 4);
    build_all(world, 0);
    selector_keys_ok(world, 1);
    rows_ok(world, 1);
    world_free(world);
}

#ifndef SC_SANITIZED_THREAD /* one thread: nothing to find there, and it takes minutes for it */

/* Closing at any step leaves a store that is whole, and what is built next is too. */
static void build_ends_with_the_store_at_any_step(void **state)
{
    (void)state;
    bool ended = false;
    for (uint32_t steps = 0; !ended; steps++) {
        struct world *world = world_bare(&setups[0], 6);
        world_store_two(world, 200, 130);
        reopen(world, setups[0].probe_row_bytes);
        sc_store_build_start(world->store, steps % 2 == 0 ? 0 : 100u << 20);
        for (uint32_t s = 0; s < steps && build_runs(world); s++)
            (void)sc_exec_step_one(world->exec);
        ended = !build_runs(world);
        reopen(world, setups[0].probe_row_bytes);
        space_check(world->store);
        rows_ok(world, 1);
        build_all(world, 0);
        selector_keys_ok(world, 1);
        selector_keys_ok(world, 2);
        world_free(world);
    }
}

static void build_survives_every_fault(void **state)
{
    (void)state;
    build_trial_faults(&trial);
}

static void build_cut_at_any_write_loses_nothing(void **state)
{
    (void)state;
    build_trial_cuts(&trial, 2 * build_setups[0].layers);
}

#endif

static void build_is_seen_by_a_follower(void **state)
{
    (void)state;
    struct build_trial files = trial;
    files.setup = &build_setups[3];
    build_trial_follower(&files);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(build_gives_old_rows_their_selectors),
        cmocka_unit_test(build_goes_on_while_its_step_ends),
        cmocka_unit_test(build_passes_over_rows_that_no_piece_has),
        cmocka_unit_test(build_keeps_to_its_rate),
        cmocka_unit_test(build_reads_nothing_of_other_namespaces),
        cmocka_unit_test(build_leaves_holes_blank),
        cmocka_unit_test(build_gives_its_pages_back_with_the_extent),
        cmocka_unit_test(build_takes_no_keys_of_damaged_rows),
#ifndef SC_SANITIZED_THREAD
        cmocka_unit_test(build_ends_with_the_store_at_any_step),
        cmocka_unit_test(build_survives_every_fault),
        cmocka_unit_test(build_cut_at_any_write_loses_nothing),
#endif
        cmocka_unit_test(build_is_seen_by_a_follower),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
