/* Codes of extents: what was stored without them gets them, and loads give back what the encoder
 * said of exactly these rows, or nothing; whatever the layout, the back end, the holes, the fault
 * and the moment at which power fails.
 *
 * Threads: the fixture's. */
#include "store/read/selector.h"
#include "store/rows/quant_blocks.h"
#include "tests/unit/store/build_trial.h"
#include "tests/unit/store/quant_check.h"
#include "tests/unit/store/space_check.h"

static const struct world_setup setups[] = {
    {"sim, paired", WORLD_ON(SIM, 0), WORLD_SHAPE(PAIRED, 3, 512, 0), WORLD_DISK(64, 4, 64)},
    {"sim, split, a slab is more than an operation", WORLD_ON(SIM, 0),
     WORLD_SHAPE(SPLIT, 2, 1504, 0), WORLD_DISK(64, 2, 64)},
    {"pread, paired, 2 threads", WORLD_ON(PREAD, 2), WORLD_SHAPE(PAIRED, 3, 512, 0),
     WORLD_DISK(64, 4, 64)},
    {"io_uring, split, 3 threads", WORLD_ON(URING, 3), WORLD_SHAPE(SPLIT, 2, 512, 0),
     WORLD_DISK(64, 4, 64)},
};
#define SETUPS (sizeof(setups) / sizeof(setups[0]))

#define SHORT_OP_BYTES (20u << 10) /* a frame takes less than K's and V's block of a chunk */

/* A store whose rows have no codes yet. */
static struct world *world_bare(const struct world_setup *setup, uint64_t seed)
{
    return world_opened(world_make(setup, seed));
}

static void open_quantising(struct world *world)
{
    keep_quant(world, true);
    world_open_ok(world);
}

static void reopen(struct world *world)
{
    world_close(world);
    open_quantising(world);
}

static uint64_t codes_had(struct world *world, uint64_t key, bool is_cut)
{
    (void)is_cut; /* a block that is damaged is no block */
    return key_check(world, key, false);
}

static void codes_are_whole(struct world *world, uint64_t key)
{
    assert_true(key_check(world, key, true) > 0);
}

static const struct build_trial trial = {.setup = &setups[0],
                                         .bare = world_bare,
                                         .open = open_quantising,
                                         .had = codes_had,
                                         .is_whole = codes_are_whole};

/* A store of key 1 alone, with its codes; a selector, and the key's match. */
static struct world *world_quantised(uint64_t rows, struct sc_store_selector **ret_selector,
                                     struct match *ret_match)
{
    struct world *world = world_bare(&setups[0], 6);
    assert_int_equal(world_store(world, 1, 0, rows), SPEC_OK);
    reopen(world);
    build_all(world, 0);
    *ret_selector = selector_make(world);
    *ret_match = (struct match){.count = 0};
    match_key(world, ret_match, 1);
    return world;
}

/* ---- Making and reading --------------------------------------------------------------------- */

static void codes_are_made_of_what_was_stored(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < SETUPS; i++) {
        struct world *world = world_bare(&setups[i], 7);
        if (world == NULL)
            continue;
        assert_int_equal(world_store(world, 1, 0, 300), SPEC_OK);
        assert_int_equal(world_store(world, 1, 300, 23), SPEC_OK);
        assert_int_equal(world_store(world, 1, 323, 1), SPEC_OK);
        assert_int_equal(world_store(world, 2, 10, 250), SPEC_OK);
        reopen(world);
        assert_int_equal(key_check(world, 1, false), 0);
        build_all(world, 0);
        space_check(world->store);
        for (uint32_t opened = 0; opened < 3; opened++) {
            for (uint64_t key = 1; key <= 2; key++) {
                assert_true(key_check(world, key, true) > 0);
                rows_ok(world, key);
            }
            struct sc_store_stats stats = stats_of(world);
            assert_int_equal(stats.bad_blocks, 0);
            assert_true(stats.quantised_bytes > 0);
            if (opened == 1)
                assert_int_equal(sc_store_checkpoint(world->store, NULL), SPEC_OK);
            world->config.io_op_bytes = SHORT_OP_BYTES;
            reopen(world);
            space_check(world->store);
        }
        world_free(world);
    }
}

/* What comes later, too; and ranges that begin and end inside a piece. */
static void codes_of_a_part_are_those_of_its_rows(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 2; i++) {
        struct world *world = world_bare(&setups[i], 8);
        reopen(world);
        assert_int_equal(world_store(world, 4, 0, 200), SPEC_OK);
        build_quantised(world);
        struct sc_store_selector *selector = selector_make(world);
        struct match match = {.count = 0};
        match_add(&match, &world->pieces[0], 11, 50);
        match_add(&match, &world->pieces[1], 0, 64);
        match_add(&match, &world->pieces[3], 1, 5);
        uint64_t found = 0;
        for (uint32_t layer = 0; layer < setups[i].layers; layer++) {
            codes_load(&match, selector, layer, false);
            found += codes_check(world, &match, 0, layer, false, selector);
        }
        assert_true(found > 0);
        sc_store_selector_close(selector);
        world_free(world);
    }
}

/* Pieces that were never committed, skipped rows, dropped pieces. */
static void codes_pass_over_rows_that_no_piece_has(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 2; i++) {
        struct world *world = world_bare(&setups[i], 9);
        holes_store(world);
        sc_store_piece_drop(world->store, world->pieces[1].id);
        reopen(world);
        build_all(world, 0);
        space_check(world->store);
        struct sc_store_selector *selector = selector_make(world);
        struct match match = holes_match(world);
        uint64_t found = 0;
        for (uint32_t layer = 0; layer < setups[i].layers; layer++) {
            codes_load(&match, selector, layer, false);
            found += codes_check(world, &match, 7, layer, false, selector);
        }
        assert_true(found > 0);
        sc_store_selector_close(selector);
        world_free(world);
    }
}

/* Any byte of a block that changes makes its range one without codes, and no other. */
static void damage_every_byte(uint64_t op_bytes)
{
    struct world *world = world_bare(&setups[0], 4);
    assert_int_equal(world_store(world, 1, 0, 192), SPEC_OK);
    world->config.io_op_bytes = op_bytes;
    reopen(world);
    build_all(world, 0);
    const struct sc_store_extent_entry *extent = sc_store_table_extent(&world->store->table, 1);
    const struct sc_store_section *derived = atomic_load(&extent->codes);
    const struct sc_store_piece_entry *piece =
        sc_store_table_piece(&world->store->table, world->pieces[1].id);
    struct sc_store_blocks blocks;
    sc_store_quant_blocks(world->store, extent, derived->copy, &derived->codec_shape, piece,
                          &blocks);
    const char *path = "/sim/store/rank-0000-of-0001/seg-00000000";
    uint64_t start = derived->parts[0].offset + derived->stride; /* layer 1 */
    struct sc_store_selector *selector = selector_make(world);
    struct match match = match_of(world, 1);
    uint64_t whole = match.count - raw_count(world, &match, 1), tried = 0;
    struct sc_store_slab slab;
    for (uint32_t part = 0; part < 2; part++)
        for (uint64_t b = 0; b < (part == 0 ? blocks.k_bytes : blocks.v_bytes); b += 5, tried++) {
            uint64_t at = start + (part == 0 ? blocks.k_at : blocks.v_at) + b;
            disk_flip(world, path, at, (uint8_t)(1u << b % 8));
            codes_load(&match, selector, 1, false);
            assert_false(sc_store_slab_of(sc_store_selector_keys(selector), 1, &slab));
            assert_int_equal(codes_check(world, &match, 0, 1, false, selector), whole - 1);
            disk_flip(world, path, at, (uint8_t)(1u << b % 8));
        }
    struct sc_store_stats stats = stats_of(world);
    assert_int_equal(stats.bad_blocks, tried);
    sc_store_selector_close(selector);
    assert_true(key_check(world, 1, true) > 0);
    world_free(world);
}

static void a_damaged_block_is_never_believed(void **state)
{
    (void)state;
    damage_every_byte(setups[0].op_bytes);
    damage_every_byte(SHORT_OP_BYTES);
}

/* Of blocks that are read in parts, all parts are there, whichever comes last, or the load fails;
 * and parts of a load that was ended meanwhile are nobody else's. */
static void parts_of_blocks_come_all_or_the_load_fails(void **state)
{
    (void)state;
    uint64_t failed = 0;
    for (uint64_t n = 0, fires = 1; fires > 0; n++) {
        struct world *world = world_bare(&setups[0], 6);
        assert_int_equal(world_store(world, 1, 0, 200), SPEC_OK);
        world->config.io_op_bytes = SHORT_OP_BYTES;
        world->params.fault = &world->fault;
        reopen(world);
        build_all(world, 0);
        struct sc_store_selector *selector = selector_make(world);
        struct match match = match_of(world, 1);
        uint64_t whole = match.count - raw_count(world, &match, 1);
        for (uint32_t i = 0; i < 2; i++) {
            sc_fault_arm(&world->fault, SC_FAULT_COMPLETION, i == 0 ? (int64_t)n : INT64_MAX);
            sc_io_sim_fault_scope(world->disk, "/seg-");
            sc_io_sim_fault_nth(world->disk, SC_SIM_LATE, i == 1 ? n : UINT64_MAX);
            assert_true(quantised_begin(selector, &match, 0, SC_IO_CLASS_DEMAND));
            assert_true(quantised_begin(selector, &match, 1, SC_IO_CLASS_DEMAND));
            spec_status status = sc_store_selector_wait(selector, SC_EXEC_FOREVER);
            if (i == 0)
                fires = atomic_load(&world->fault.fired[SC_FAULT_COMPLETION]);
            assert_true(status == SPEC_OK || (i == 0 && fires > 0 && status == SPEC_E_IO));
            if (status == SPEC_OK)
                assert_int_equal(codes_check(world, &match, 0, 1, false, selector), whole);
            failed += status != SPEC_OK;
        }
        sc_store_selector_close(selector);
        world_free(world);
    }
    assert_true(failed >= 4 * 2); /* two parts a piece */
}

/* Codes are read to where they stay. What still flies of a load that was ended keeps the memory
 * that it flies into; the next load, of another layer, has another. */
static void reads_of_an_ended_load_keep_their_memory(void **state)
{
    (void)state;
    struct sc_store_selector *selector;
    struct match match;
    struct world *world = world_quantised(200, &selector, &match);
    codes_load(&match, selector, 0, false);
    uint64_t whole = match.count - raw_count(world, &match, 1);
    uint64_t each = sc_store_selector_bytes_used(world->store), flew = 0, is_there = 0;
    for (uint64_t steps = 0; is_there == 0; steps++) {
        sc_store_selector_end(selector);
        assert_int_equal(sc_store_selector_bytes_used(world->store), 0);
        assert_true(quantised_begin(selector, &match, 0, SC_IO_CLASS_DEMAND));
        for (uint64_t i = 0; i < steps; i++)
            (void)sc_exec_step_one(world->exec);
        is_there += sc_store_selector_state(selector) == SPEC_OK;
        assert_true(quantised_begin(selector, &match, 1, SC_IO_CLASS_DEMAND));
        flew += sc_store_selector_bytes_used(world->store) == 2 * each;
        assert_int_equal(sc_store_selector_wait(selector, SC_EXEC_FOREVER), SPEC_OK);
        assert_int_equal(codes_check(world, &match, 0, 1, false, selector), whole);
        while (sc_exec_step_one(world->exec))
            ;
        assert_int_equal(sc_store_selector_bytes_used(world->store), each);
    }
    assert_true(flew > 1);
    sc_store_selector_close(selector);
    world_free(world);
}

/* Loads that end before the device has taken their reads leave nothing behind, however many. */
static void queued_reads_of_ended_loads_keep_nothing(void **state)
{
    (void)state;
    struct sc_store_selector *selector;
    struct match match;
    struct world *world = world_quantised(200, &selector, &match);
    for (uint32_t i = 0; i < 40; i++) {
        assert_true(quantised_begin(selector, &match, i % 2, SC_IO_CLASS_SPECULATIVE));
        sc_store_selector_end(selector);
        assert_int_equal(sc_store_selector_bytes_used(world->store), 0);
    }
    codes_load(&match, selector, 0, false);
    assert_int_equal(codes_check(world, &match, 0, 0, false, selector),
                     match.count - raw_count(world, &match, 0));
    sc_store_selector_close(selector);
    world_free(world);
}

/* A piece that goes while the load's blocks are still being planned makes the load CORRUPT, and
 * nothing else: what was planned before is as long as it was counted, or shorter. */
static void a_piece_that_goes_during_a_load_fails_it(void **state)
{
    (void)state;
    for (uint64_t gone = 0; gone < 40; gone += 3)
        for (uint64_t op_pages = 36; op_pages < 42; op_pages++) {
            struct world *world = world_bare(&setups[0], 6);
            world->params.selector_bytes_max = 16u << 20;
            for (uint64_t key = 1; key <= 16; key++)
                assert_int_equal(world_store(world, key, 0, 1), SPEC_OK);
            assert_int_equal(world_store(world, 17, 0, 40 * 64), SPEC_OK);
            world->config.io_op_bytes = op_pages * 4096;
            reopen(world);
            build_all(world, 0);
            struct sc_store_selector *selector = selector_make(world);
            struct match match = {.count = 0}, whole = {.count = 0};
            for (uint64_t key = 1; key <= 16; key++) /* which fill the slots */
                match_key(world, &match, key);
            match_key(world, &whole, 17);
            assert_true(whole.count == 40);
            for (uint64_t i = 0; i < 30; i++)
                match_add(&match, whole.twins[i], 0, whole.twins[i]->row_count);
            assert_true(quantised_begin(selector, &match, 0, SC_IO_CLASS_DEMAND));
            sc_store_piece_drop(world->store, whole.twins[gone]->id);
            spec_status status = sc_store_selector_wait(selector, SC_EXEC_FOREVER);
            assert_int_equal(status, gone < 30 ? SPEC_E_CORRUPT : SPEC_OK);
            sc_store_selector_close(selector);
            world_free(world);
        }
}

static struct sc_store_read_cost cost_of(const struct match *match,
                                         struct sc_store_selector *selector, bool k_alone)
{
    struct sc_store_read_cost cost;
    codes_load(match, selector, 1, k_alone);
    sc_store_selector_cost(selector, &cost);
    return cost;
}

/* The plan tells what is read of the match's codes alone. */
static struct sc_store_read_cost code_cost(struct world *world, const struct match *match,
                                           bool k_alone)
{
    struct sc_store_selector_plan plan = {.store = world->store,
                                          .layer = 1,
                                          .ranges = match->ranges,
                                          .range_count = match->count,
                                          .is_quant = true,
                                          .k_alone = k_alone,
                                          .area_end = UINT64_MAX};
    struct sc_store_read_cost cost = {0};
    const struct sc_store_selector_block *block = &plan.block;
    uint64_t skipped;
    while (sc_store_selector_plan_next(&plan, &skipped) == SPEC_PENDING) {
        if (block->tag_count > 0)
            continue;
        cost.op_count += block->part_count;
        cost.wanted_bytes += block->probes.end - block->probes.start + block->probe_tags.end -
                             block->probe_tags.start;
        for (uint32_t i = 0; i < block->part_count; i++)
            cost.read_bytes += block->parts[i].bytes;
    }
    return cost;
}

/* Tags of a run's rows are read once, however many reads its codes take. What they add is what is
 * read of the same ranges beyond their codes alone. */
static void tags_of_a_run_are_one_operation(void **state)
{
    (void)state;
    static const uint64_t runs[] = {15 * 64, 23}; /* rows of an extent each */
    for (uint32_t i = 0; i < 4; i++) {
        struct world_setup setup = setups[i % 2];
        setup.segment_bytes = 8u << 20; /* a layer is more than 2 MiB */
        struct world *world = world_bare(&setup, 6);
        uint64_t tag_bytes = setup.layout == SC_STORE_SPLIT ? 16 : 8;
        world->params.selector_bytes_max = 16u << 20;
        for (uint64_t key = 1; key <= 2; key++)
            assert_int_equal(world_store(world, key, 0, runs[key - 1]), SPEC_OK);
        world->config.io_op_bytes = i < 2 ? 40u << 10 : SHORT_OP_BYTES; /* 24 KiB a read, or 4 */
        reopen(world);
        build_all(world, 0);
        struct sc_store_selector *selector = selector_make(world);
        struct match match = match_of(world, 1);
        match_key(world, &match, 2);
        uint64_t tag_reads = 1 + 1, rows = runs[0] + runs[1];
        if (i >= 2)
            tag_reads = (runs[0] * tag_bytes + 4095) / 4096 + 1;
        for (uint32_t k_alone = 0; k_alone < 2; k_alone++) {
            struct sc_store_read_cost codes = code_cost(world, &match, k_alone != 0);
            struct sc_store_read_cost all = cost_of(&match, selector, k_alone != 0);
            assert_true(codes.op_count > tag_reads);
            assert_int_equal(all.op_count, codes.op_count + tag_reads);
            assert_int_equal(all.wanted_bytes, codes.wanted_bytes + rows * tag_bytes);
            assert_true(all.read_bytes <=
                        codes.read_bytes + rows * tag_bytes + tag_reads * 2 * 4096);
            match_check(world, &match, 1, 0, selector, true);
        }
        sc_store_selector_close(selector);
        world_free(world);
    }
}

/* Blocks that stand in each other's place fail: of another piece, layer, or part. */
static void a_misdirected_block_is_never_believed(void **state)
{
    (void)state;
    struct sc_store_selector *selector;
    struct match match;
    struct world *world = world_quantised(192, &selector, &match);
    const struct sc_store_extent_entry *extent = sc_store_table_extent(&world->store->table, 1);
    const struct sc_store_section *derived = atomic_load(&extent->codes);
    const char *path = "/sim/store/rank-0000-of-0001/seg-00000000";
    static uint8_t layer[1 << 20];
    assert_true(derived->stride <= sizeof(layer));
    uint64_t at = derived->parts[0].offset; /* layer 0 over layer 2 */
    assert_true(sc_io_sim_disk_peek(world->disk, path, at, layer, derived->stride));
    assert_true(
        sc_io_sim_disk_poke(world->disk, path, at + 2 * derived->stride, layer, derived->stride));
    codes_load(&match, selector, 2, false);
    assert_int_equal(codes_check(world, &match, 0, 2, false, selector), 0);
    sc_store_selector_close(selector);
    world_free(world);
}

/* Their pages go with the extent's last piece, after the quarantine, also over a reopen. */
static void codes_give_their_pages_back_with_the_extent(void **state)
{
    (void)state;
    struct world *world = world_bare(&setups[0], 3);
    world->config.lease_ns_max = 1000000000;
    world_store_two(world, 256, 256);
    reopen(world);
    build_all(world, 0);
    for (uint32_t i = 0; i < 4; i++)
        sc_store_piece_drop(world->store, world->pieces[i].id);
    space_check(world->store);
    reopen(world);
    space_check(world->store);
    assert_int_equal(sc_store_checkpoint(world->store, NULL), SPEC_OK);
    reopen(world);
    space_check(world->store);
    assert_true(key_check(world, 2, true) > 0);
    for (uint32_t i = 4; i < 8; i++)
        sc_store_piece_drop(world->store, world->pieces[i].id);
    release_all(world);
    struct sc_store_stats stats = stats_of(world);
    assert_int_equal(stats.extent_bytes, 0);
    assert_int_equal(stats.quantised_bytes, 0);
    world_free(world);
}

/* ---- Faults and power cuts ------------------------------------------------------------------ */

static void codes_survive_every_fault(void **state)
{
    (void)state;
    static const enum sc_fault_kind KINDS[] = {SC_FAULT_ALLOC, SC_FAULT_READ, SC_FAULT_WRITE,
                                               SC_FAULT_COMPLETION};
    for (uint32_t kind = 0; kind < 4; kind++)
        for (uint64_t n = 0;; n++) {
            struct world *world = world_bare(&setups[0], 6);
            world_store_two(world, 200, 130);
            world_faults(world);
            reopen(world);
            sc_fault_arm(&world->fault, KINDS[kind], n);
            build_all(world, 0);
            sc_fault_arm(&world->fault, KINDS[kind], INT64_MAX);
            bool fires = atomic_load(&world->fault.fired[KINDS[kind]]) > 0;
            space_check(world->store);
            for (uint64_t key = 1; key <= 2; key++) {
                rows_ok(world, key);
                (void)key_check(world, key, false);
            }
            /* Every second write is a record. A derived section without one is lost until
             * the store is opened again. */
            if (n % 2 == (KINDS[kind] == SC_FAULT_WRITE))
                reopen(world);
            else
                pause_wait(world);
            build_all(world, 0); /* what was passed over is tried again */
            assert_true(key_check(world, 1, true) > 0);
            assert_true(key_check(world, 2, true) > 0);
            space_check(world->store);
            world_free(world);
            if (!fires) {
                assert_true(n > 0);
                break;
            }
        }
}

/* A run that ends for want of memory goes on where it stopped; what it passed over waits for the
 * next start, however much is stored meanwhile. */
static void codes_that_were_passed_over_wait_for_the_next_start(void **state)
{
    (void)state;
    struct world *world = world_bare(&setups[0], 6);
    for (uint64_t key = 1; key <= 3; key++)
        assert_int_equal(world_store(world, key, 0, 128), SPEC_OK);
    world_faults(world);
    reopen(world);
    sc_fault_arm(&world->fault, SC_FAULT_ALLOC, 0);
    build_quantised(world);
    assert_int_equal(atomic_load(&world->fault.fired[SC_FAULT_ALLOC]), 1);
    assert_int_equal(stats_of(world).built_pieces, 0);
    build_quantised(world); /* it stopped at the first */
    assert_int_equal(stats_of(world).built_pieces, 6);
    assert_int_equal(world_store(world, 4, 0, 128), SPEC_OK);
    assert_int_equal(world_store(world, 5, 0, 128), SPEC_OK);
    sc_fault_arm(&world->fault, SC_FAULT_READ, 0);
    build_quantised(world);
    assert_int_equal(stats_of(world).built_pieces, 8); /* key 4 is passed over */
    assert_int_equal(world_store(world, 6, 0, 128), SPEC_OK);
    build_quantised(world);
    assert_int_equal(stats_of(world).built_pieces, 10);
    build_all(world, 0);
    assert_int_equal(stats_of(world).built_pieces, 12);
    for (uint64_t key = 1; key <= 6; key++)
        assert_true(key_check(world, key, true) > 0);
    space_check(world->store);
    world_free(world);
}

/* A store that is opened with other bits keeps the codes that it has, and reads them as they are.
 */
static void codes_of_other_bits_are_kept(void **state)
{
    (void)state;
    struct world *world = world_bare(&setups[0], 6);
    assert_int_equal(world_store(world, 1, 0, 128), SPEC_OK);
    reopen(world);
    build_all(world, 0);
    for (uint32_t has_encoder = 0; has_encoder < 2; has_encoder++) {
        world_close(world);
        world->params.codes.shape = (struct sc_store_codec_shape){0};
        if (has_encoder == 1)
            world->params.codes.shape = (struct sc_store_codec_shape){.bits_k = 8,
                                                                      .bits_v = 3,
                                                                      .scale_bytes = SCALE_BYTES,
                                                                      .k_row_bytes = K_CODE_BYTES,
                                                                      .v_row_bytes = V_CODE_BYTES};
        world_open_ok(world);
        build_all(world, 0);
        assert_int_equal(stats_of(world).built_pieces, 0);
        assert_true(key_check(world, 1, true) > 0); /* 4 and 2 */
    }
    world_free(world);
}

static bool fits_not(void *user, const struct sc_store_codec_shape *shape)
{
    (void)user;
    return shape->bits_k != 4;
}

/* What cannot be codes of these rows is a lie, its pages are free, and codes are made anew. */
static void codes_that_do_not_fit_are_not_believed(void **state)
{
    (void)state;
    struct world *world = world_bare(&setups[0], 6);
    assert_int_equal(world_store(world, 1, 0, 128), SPEC_OK);
    reopen(world);
    build_all(world, 0);
    world_close(world);
    world->params.codes.fits = fits_not;
    world->params.codes.shape.bits_k = 5;
    world_open_ok(world);
    struct sc_store_stats stats = stats_of(world);
    assert_int_equal(stats.corrupt_records, 1);
    assert_int_equal(stats.quantised_bytes, 0);
    space_check(world->store);
    rows_ok(world, 1);
    assert_int_equal(key_check(world, 1, false), 0);
    build_all(world, 0);
    assert_int_equal(stats_of(world).built_pieces, 2);
    space_check(world->store);
    world_free(world);
}

#ifndef SC_SANITIZED_THREAD

static void codes_survive_every_fault_of_a_build(void **state)
{
    (void)state;
    build_trial_faults(&trial);
}

static void codes_cut_at_any_write_lose_nothing(void **state)
{
    (void)state;
    build_trial_cuts(&trial, 0);
}

#endif

static void codes_are_seen_by_a_follower(void **state)
{
    (void)state;
    struct build_trial files = trial;
    files.setup = &setups[2];
    build_trial_follower(&files);
}

/* ---- Tables --------------------------------------------------------------------------------- */

#define FREE_SCALES 64u
#define FREE_TABLE  (FREE_SCALES / 8)

static uint8_t g_refused; /* tables of these bytes are not read; 0: all are */

/* What a part of a layer's chunk has as its table: one of 120. */
static uint8_t table_byte(uint32_t layer, uint32_t part, uint64_t position)
{
    return (uint8_t)(1 + (layer * 2 + (part == SC_STORE_PART_K)) * 16 + position / 64);
}

/* Codes are the first bytes of rows. */
static bool free_encode(void *user, const struct sc_store_encode *what)
{
    (void)user;
    uint64_t bytes = what->part == SC_STORE_PART_K ? K_CODE_BYTES : V_CODE_BYTES;
    memset(what->table, table_byte(what->layer, what->part, what->position), FREE_TABLE);
    memcpy(what->scales, what->rows[0] + 8, FREE_SCALES);
    for (uint64_t i = 0; i < what->row_count; i++)
        memcpy(what->codes + i * bytes, what->rows[i], bytes);
    return true;
}

static bool free_reads(void *user, uint32_t part, const struct sc_store_codec_shape *shape,
                       const uint8_t *table, uint64_t position, uint64_t row_count)
{
    (void)user;
    assert_in_range(row_count, 1, 256);
    assert_true(position < UINT64_C(1) << 32);
    assert_int_equal(shape->form, SC_STORE_FORM_K_PER_CHANNEL | SC_STORE_FORM_V_PER_CHANNEL);
    assert_true(part == SC_STORE_PART_K || part == SC_STORE_PART_V);
    for (uint32_t i = 1; i < FREE_TABLE; i++)
        assert_int_equal(table[i], table[0]);
    return table[0] != g_refused;
}

static void reopen_free(struct world *world)
{
    world_close(world);
    world->params.codes = (struct sc_store_quant){
        .shape = {.bits_k = 4,
                  .bits_v = 2,
                  .scale_bytes = FREE_SCALES,
                  .k_row_bytes = K_CODE_BYTES,
                  .v_row_bytes = V_CODE_BYTES,
                  .form = SC_STORE_FORM_K_PER_CHANNEL | SC_STORE_FORM_V_PER_CHANNEL},
        .encode = free_encode,
        .reads = free_reads,
        .user = world};
    world_open_ok(world);
}

/* The ranges of key 1 that have codes of a layer, as bits; each is what the encoder said. */
static uint64_t free_check(struct world *world, uint32_t layer, bool k_alone)
{
    struct sc_store_selector *selector = selector_make(world);
    static uint8_t row[2 * 2048];
    uint64_t k_bytes = world->setup->k_row_bytes, found = 0;
    struct match match = match_of(world, 1);
    codes_load(&match, selector, layer, k_alone);
    for (uint64_t r = 0; r < match.count; r++) {
        const struct world_piece *twin = match.twins[r];
        struct sc_store_slab slab;
        if (!sc_store_slab_of(sc_store_selector_keys(selector), r, &slab))
            continue;
        found |= UINT64_C(1) << r;
        assert_int_equal(slab.shape->form,
                         SC_STORE_FORM_K_PER_CHANNEL | SC_STORE_FORM_V_PER_CHANNEL);
        for (uint32_t part = 0; part < (k_alone ? 1 : 2); part++) {
            const uint8_t *table = part == 0 ? slab.k_table : slab.v_table;
            const uint8_t *scales = part == 0 ? slab.k_scales : slab.v_scales;
            const uint8_t *codes = part == 0 ? slab.k_quant : slab.v_quant;
            uint64_t bytes = part == 0 ? K_CODE_BYTES : V_CODE_BYTES;
            for (uint32_t i = 0; i < FREE_TABLE; i++)
                assert_int_equal(table[i],
                                 table_byte(layer, part == 0 ? SC_STORE_PART_K : SC_STORE_PART_V,
                                            twin->first_position));
            for (uint32_t i = 0; i < twin->row_count; i++) {
                row_fill(row, 2 * k_bytes, twin->key, layer, twin->first_position + i);
                const uint8_t *values = row + (part == 0 ? 0 : k_bytes);
                if (i == 0)
                    bytes_equal(scales, values + 8, FREE_SCALES);
                bytes_equal(codes + i * bytes, values, bytes);
            }
        }
    }
    sc_store_selector_close(selector);
    return found;
}

static struct world *world_bits_per_channel(const struct world_setup *setup)
{
    struct world *world = world_bare(setup, 12);
    g_refused = 0;
    if (world == NULL)
        return NULL;
    assert_int_equal(world_store(world, 1, 0, 300), SPEC_OK);
    reopen_free(world);
    build_all(world, 0);
    return world;
}

/* Tables go with their codes, whatever the layout, and operations that are shorter than blocks. */
static void tables_stand_before_their_codes(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < SETUPS; i++) {
        struct world *world = world_bits_per_channel(&setups[i]);
        for (uint32_t opened = 0; world != NULL && opened < 2; opened++) {
            for (uint32_t layer = 0; layer < setups[i].layers; layer++)
                for (uint32_t k_alone = 0; k_alone < 2; k_alone++)
                    assert_int_equal(free_check(world, layer, k_alone), 0x1f);
            assert_int_equal(stats_of(world).bad_blocks, 0);
            space_check(world->store);
            world->config.io_op_bytes = SHORT_OP_BYTES;
            reopen_free(world);
        }
        if (world != NULL)
            world_free(world);
    }
}

/* A block whose table nobody can read has no codes; it is whole, and others' are read. */
static void codes_by_a_table_that_is_not_read_are_none(void **state)
{
    (void)state;
    struct world *world = world_bits_per_channel(&setups[0]);
    g_refused = table_byte(1, SC_STORE_PART_K, 128);
    assert_int_equal(free_check(world, 0, false), 0x1f);
    assert_int_equal(free_check(world, 1, false), 0x1f & ~(1u << 2));
    assert_int_equal(free_check(world, 1, true), 0x1f & ~(1u << 2));
    g_refused = table_byte(2, SC_STORE_PART_V, 256);
    assert_int_equal(free_check(world, 2, false), 0x1f & ~(1u << 4));
    assert_int_equal(free_check(world, 2, true), 0x1f); /* nobody asked for V's */
    g_refused = 0;
    for (uint32_t layer = 0; layer < 3; layer++)
        assert_int_equal(free_check(world, layer, false), 0x1f);
    assert_int_equal(stats_of(world).bad_blocks, 0);
    rows_ok(world, 1);
    world_free(world);
}

static void a_damaged_table_is_never_read(void **state)
{
    (void)state;
    struct world *world = world_bits_per_channel(&setups[0]);
    const struct sc_store_extent_entry *extent = sc_store_table_extent(&world->store->table, 1);
    const struct sc_store_section *derived = atomic_load(&extent->codes);
    const struct sc_store_piece_entry *piece =
        sc_store_table_piece(&world->store->table, world->pieces[1].id);
    struct sc_store_blocks blocks;
    sc_store_quant_blocks(world->store, extent, derived->copy, &derived->codec_shape, piece,
                          &blocks);
    const char *path = "/sim/store/rank-0000-of-0001/seg-00000000";
    uint64_t start = derived->parts[0].offset + derived->stride + SC_STORE_BLOCK_HEAD_BYTES,
             tried = 0;
    for (uint32_t part = 0; part < 2; part++)
        for (uint64_t b = 0; b < (uint64_t)FREE_TABLE * 8; b++) {
            uint64_t at = start + (part == 0 ? blocks.k_at : blocks.v_at) + b / 8;
            uint8_t byte;
            assert_true(sc_io_sim_disk_peek(world->disk, path, at, &byte, 1));
            assert_int_equal(byte, table_byte(1, part == 0 ? SC_STORE_PART_K : SC_STORE_PART_V,
                                              blocks.position));
            disk_flip(world, path, at, (uint8_t)(1u << b % 8));
            assert_int_equal(free_check(world, 1, false), 0x1f & ~(1u << 1));
            assert_int_equal(stats_of(world).bad_blocks, ++tried);
            disk_flip(world, path, at, (uint8_t)(1u << b % 8));
        }
    assert_int_equal(free_check(world, 1, false), 0x1f);
    world_free(world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(codes_are_made_of_what_was_stored),
        cmocka_unit_test(codes_of_a_part_are_those_of_its_rows),
        cmocka_unit_test(codes_pass_over_rows_that_no_piece_has),
        cmocka_unit_test(a_damaged_block_is_never_believed),
        cmocka_unit_test(parts_of_blocks_come_all_or_the_load_fails),
        cmocka_unit_test(reads_of_an_ended_load_keep_their_memory),
        cmocka_unit_test(queued_reads_of_ended_loads_keep_nothing),
        cmocka_unit_test(a_piece_that_goes_during_a_load_fails_it),
        cmocka_unit_test(tags_of_a_run_are_one_operation),
        cmocka_unit_test(a_misdirected_block_is_never_believed),
        cmocka_unit_test(codes_give_their_pages_back_with_the_extent),
        cmocka_unit_test(codes_survive_every_fault),
        cmocka_unit_test(codes_that_were_passed_over_wait_for_the_next_start),
        cmocka_unit_test(codes_of_other_bits_are_kept),
        cmocka_unit_test(codes_that_do_not_fit_are_not_believed),
        cmocka_unit_test(tables_stand_before_their_codes),
        cmocka_unit_test(codes_by_a_table_that_is_not_read_are_none),
        cmocka_unit_test(a_damaged_table_is_never_read),
#ifndef SC_SANITIZED_THREAD
        cmocka_unit_test(codes_survive_every_fault_of_a_build),
        cmocka_unit_test(codes_cut_at_any_write_lose_nothing),
#endif
        cmocka_unit_test(codes_are_seen_by_a_follower),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
