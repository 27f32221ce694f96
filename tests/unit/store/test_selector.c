/* Sketches: what they give is the first keys and the tags of every row that was asked for, whatever
 * the extents, the back end and the order of completions; what is damaged is told; memory stays
 * under its cap; nothing of an ended load reaches the next.
 *
 * Threads: the fixture's. */
#include "store/internal.h"
#include "store/log/where.h"
#include "tests/unit/store/selector_check.h"

static const struct world_setup setups[] = {
    {"sim, paired, probe rows of 96", WORLD_ON(SIM, 0), WORLD_SHAPE(PAIRED, 3, 512, 96),
     WORLD_DISK(64, 4, 64)},
    {"sim, split, probe rows of 198", WORLD_ON(SIM, 0), WORLD_SHAPE(SPLIT, 2, 200, 198),
     WORLD_DISK(64, 2, 64)},
    {"sim, paired 8 KiB rows, probe rows of a half", WORLD_ON(SIM, 0),
     WORLD_SHAPE(PAIRED, 2, 4096, 2048), WORLD_DISK(256, 16, 256)},
    {"pread, paired, probe rows of 96, 2 threads", WORLD_ON(PREAD, 2),
     WORLD_SHAPE(PAIRED, 3, 512, 96), WORLD_DISK(64, 4, 64)},
    {"io_uring, split, probe rows of 256, 3 threads", WORLD_ON(URING, 3),
     WORLD_SHAPE(SPLIT, 2, 512, 256), WORLD_DISK(64, 4, 64)},
};
#define SETUPS (sizeof(setups) / sizeof(setups[0]))

/* With memory for selectors of whole matches. */
static struct world *roomy_make(const struct world_setup *setup, uint64_t seed)
{
    struct world *world = world_make(setup, seed);
    world->params.selector_bytes_max = 16u << 20;
    return world;
}

static void selector_gives_keys_and_tags_of_whole_matches_after_a_reopen_too(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < SETUPS; i++) {
        struct world *world = roomy_make(&setups[i], 7);
        if (world_opens(world)) {
            assert_int_equal(world_store(world, 1, 0, 300), SPEC_OK);
            assert_int_equal(world_store(world, 1, 300, 23), SPEC_OK);
            assert_int_equal(world_store(world, 1, 323, 1), SPEC_OK);
            assert_int_equal(world_store(world, 1, 324, 350), SPEC_OK);
            assert_int_equal(world_store(world, 1, 674, 350), SPEC_OK);
            for (uint32_t opened = 0; opened < 2; opened++) {
                struct sc_store_selector *selector = selector_make(world);
                struct match match = match_of(world, 1);
                assert_int_equal(match.rows, 1024);
                match_load_ok(world, &match, selector, setups[i].probe_row_bytes);
                match_load_ok(world, &match, selector, 2); /* shorter than what is stored */
                match_load_ok(world, &match, selector, 0);
                sc_store_selector_close(selector);
                world_reopen(world);
            }
        }
        world_free(world);
    }
}

static void selector_of_any_ranges_gives_exactly_their_rows(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < SETUPS; i++) {
        struct world *world = roomy_make(&setups[i], 11);
        uint64_t random = 300 + i;
        if (world_opens(world)) {
            assert_int_equal(world_store(world, 1, 0, 400), SPEC_OK);
            assert_int_equal(world_store(world, 1, 400, 77), SPEC_OK);
            assert_int_equal(world_store(world, 2, 64, 100), SPEC_OK);
            struct sc_store_selector *selector = selector_make(world);
            for (uint32_t turn = 0; turn < 100; turn++) {
                struct match match = {.count = 0};
                uint64_t count = random_below(&random, 24), next = 0;
                for (uint64_t r = 0; r < count; r++) {
                    bool jumps = random_below(&random, 4) == 0;
                    next = jumps ? random_below(&random, world->piece_count)
                                 : (next + 1) % world->piece_count;
                    const struct world_piece *twin = &world->pieces[next];
                    uint32_t first = 0, rows = twin->row_count;
                    if (random_below(&random, 2) == 0) {
                        first = (uint32_t)random_below(&random, rows);
                        rows = (uint32_t)random_below(&random, rows - first + 1);
                    }
                    match_add(&match, twin, first, rows);
                }
                uint64_t wanted = random_below(&random, setups[i].probe_row_bytes / 2 + 1) * 2;
                uint32_t layer = (uint32_t)random_below(&random, setups[i].layers);
                assert_int_equal(match_load(&match, selector, layer, wanted), SPEC_OK);
                match_check(world, &match, layer, wanted, selector, true);
            }
            sc_store_selector_close(selector);
        }
        world_free(world);
    }
}

static bool begins(struct sc_store_selector *selector, uint32_t layer, const struct match *match,
                   uint64_t wanted)
{
    return keys_begin(selector, match, layer, SC_IO_CLASS_DEMAND, wanted);
}

static void selector_that_cannot_be_had_is_not_begun(void **state)
{
    (void)state;
    struct world *world = roomy_make(&setups[0], 5);
    world->params.probe_row_bytes = 0;
    world_open_ok(world);
    assert_int_equal(world_store(world, 1, 0, 128), SPEC_OK); /* no probe rows */
    world_close(world);
    world->params.probe_row_bytes = 48;
    world_open_ok(world);
    assert_int_equal(world_store(world, 2, 0, 128), SPEC_OK);
    world_close(world);
    world->params.probe_row_bytes = 96;
    world_open_ok(world);
    assert_int_equal(world_store(world, 3, 0, 128), SPEC_OK);
    struct sc_store_selector *selector = selector_make(world);
    struct match all = {.count = 0}, some = {.count = 0}, best = {.count = 0};
    match_key(world, &best, 3);
    match_key(world, &some, 2);
    match_key(world, &some, 3);
    match_key(world, &all, 3);
    match_key(world, &all, 1);
    assert_false(begins(selector, 0, &all, 2));
    assert_false(begins(selector, 0, &some, 50)); /* key 2 has 48 */
    assert_false(begins(selector, 0, &best, 98)); /* longer than the store's own */
    assert_false(begins(selector, 3, &best, 96)); /* no such layer */
    struct match late = best;
    late.ranges[1].row_count = 65; /* behind the piece's end */
    assert_false(begins(selector, 0, &late, 96));
    assert_int_equal(sc_store_selector_bytes_used(world->store), 0);
    match_load_ok(world, &best, selector, 96);
    match_load_ok(world, &some, selector, 48); /* of both */
    match_load_ok(world, &all, selector, 0);   /* tags are everywhere */
    sc_store_piece_drop(world->store, best.ranges[0].piece);
    assert_false(begins(selector, 0, &best, 96));
    struct match none = {.count = 0};
    assert_int_equal(match_load(&none, selector, 0, 96), SPEC_OK);
    sc_store_selector_close(selector);
    assert_int_equal(sc_store_selector_bytes_used(world->store), 0);
    assert_int_equal(sc_store_selector_open(world->store, 100, 100, &selector, &world->error),
                     SPEC_OK);
    assert_false(begins(selector, 0, &some, 2)); /* more rows than it takes */
    sc_store_selector_close(selector);
    world_free(world);
}

/* ---- Damage --------------------------------------------------------------------------------- */

/* Flips a byte of a layer of piece i's extent. */
static void flip(struct world *world, uint32_t i, uint32_t layer, uint64_t offset)
{
    const struct sc_store *store = world->store;
    const struct sc_store_piece_entry *piece =
        sc_store_table_piece(&store->table, world->pieces[i].id);
    const struct sc_store_extent_entry *extent =
        sc_store_table_extent(&store->table, piece->extent);
    const struct sc_store_part *part = sc_store_part_of(extent->parts, extent->part_count, layer);
    offset += part->offset + (layer - part->layer_first) * extent->stride;
    segment_flip(world, store->disk.segments[part->segment].number, offset, 0x10);
}

static void selector_tells_damaged_probe_rows_and_leaves_tags_to_their_rows(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 2; i++) { /* paired, split */
        struct world *world = roomy_make(&setups[i], 5);
        struct sc_store_stats stats;
        world_open_ok(world);
        assert_int_equal(world_store(world, 1, 0, 128), SPEC_OK);
        struct sc_store_selector *selector = selector_make(world);
        struct match match = match_of(world, 1);
        const struct sc_store_extent_entry *extent = sc_store_table_extent(&world->store->table, 1);
        uint64_t wanted = setups[i].probe_row_bytes;
        const uint64_t bad[] = {0, wanted - 1, 127 * wanted, extent->probe_tag_offset,
                                extent->probe_tag_offset + 8 * 127 + 7};
        for (uint32_t b = 0; b < 5; b++) {
            flip(world, 0, 1, bad[b]);
            assert_int_equal(match_load(&match, selector, 1, wanted), SPEC_E_CORRUPT);
            assert_int_equal(match_load(&match, selector, 1, 2), SPEC_E_CORRUPT); /* whole rows */
            assert_int_equal(match_load(&match, selector, 0, wanted), SPEC_OK); /* another layer */
            assert_int_equal(match_load(&match, selector, 1, 0), SPEC_OK);
            flip(world, 0, 1, bad[b]);
            assert_int_equal(match_load(&match, selector, 1, wanted), SPEC_OK);
        }
        sc_store_stats(world->store, &stats);
        assert_int_equal(stats.corrupt_rows, 10);
        flip(world, 0, 1, extent->tag_offset + 3);
        assert_int_equal(match_load(&match, selector, 1, wanted), SPEC_OK);
        match_check(world, &match, 1, wanted, selector, false);
        struct sc_store_reader *reader = world_reader(world);
        assert_int_equal(world_load_key(world, reader, 1, 1).status, SPEC_E_CORRUPT);
        sc_store_readers_close(reader, 1);
        sc_store_selector_close(selector);
        world_free(world);
    }
}

static void selector_that_cannot_be_read_says_so(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < SETUPS; i++) {
        struct world *world = roomy_make(&setups[i], 5);
        if (world_opens(world)) {
            assert_int_equal(world_store(world, 1, 0, 300), SPEC_OK);
            struct sc_store_selector *selector = selector_make(world);
            struct match match = match_of(world, 1);
            uint64_t wanted = setups[i].probe_row_bytes, failed = 0;
            for (uint64_t n = 0;; n++) {
                sc_fault_arm(&world->fault, SC_FAULT_READ, n);
                spec_status status = match_load(&match, selector, 1, wanted);
                sc_fault_arm(&world->fault, SC_FAULT_READ, INT64_MAX);
                if (status == SPEC_OK)
                    break;
                assert_int_equal(status, SPEC_E_IO);
                failed++;
                match_load_ok(world, &match, selector, wanted);
            }
            assert_true(failed > 0);
            sc_store_selector_close(selector);
        }
        world_free(world);
    }
}

/* ---- Memory --------------------------------------------------------------------------------- */

static void selector_takes_blocks_of_the_pool_while_it_is_begun(void **state)
{
    (void)state;
    struct world *world = roomy_make(&setups[0], 5);
    struct sc_store_selector *selectors[4];
    struct match matches[2] = {{.count = 0}, {.count = 0}};
    const uint64_t block = SC_STORE_POOL_BLOCK_BYTES, whole = 2 * block; /* 1,024 x (96 + 8) */
    struct sc_store_stats stats;
    world->params.selector_bytes_max = 5 * block + 4096;
    world_open_ok(world);
    world_store_two(world, 1024, 64);
    match_key(world, &matches[0], 1);
    match_key(world, &matches[1], 2);
    for (uint32_t i = 0; i < 4; i++)
        selectors[i] = selector_make(world);
    assert_int_equal(sc_store_selector_bytes_used(world->store), 0);
    assert_true(begins(selectors[0], 0, &matches[0], 96));
    assert_int_equal(sc_store_selector_bytes_used(world->store), whole);
    assert_true(begins(selectors[1], 1, &matches[0], 96));
    assert_int_equal(sc_store_selector_bytes_used(world->store), 2 * whole);
    assert_false(begins(selectors[2], 2, &matches[0], 96)); /* one block is left */
    assert_true(begins(selectors[3], 2, &matches[1], 96));
    assert_false(begins(selectors[2], 2, &matches[1], 96));
    assert_int_equal(sc_store_selector_bytes_used(world->store), 5 * block);
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(sc_store_selector_wait(selectors[i], SC_EXEC_FOREVER), SPEC_OK);
        match_check(world, &matches[0], i, 96, selectors[i], true);
    }
    /* A shorter load leaves what it does not need to others; what they have stays theirs. */
    assert_true(begins(selectors[1], 1, &matches[1], 96));
    assert_true(begins(selectors[2], 2, &matches[1], 96));
    for (uint32_t i = 1; i < 4; i++) {
        assert_int_equal(sc_store_selector_wait(selectors[i], SC_EXEC_FOREVER), SPEC_OK);
        match_check(world, &matches[1], i == 1 ? 1 : 2, 96, selectors[i], true);
    }
    match_check(world, &matches[0], 0, 96, selectors[0], true);
    sc_store_stats(world->store, &stats);
    assert_int_equal(stats.selectors_refused, 2);
    /* Who reads keys holds them, also when the load has ended. */
    const uint8_t *keys = sc_store_selector_keys_hold(selectors[0]);
    assert_ptr_equal(keys, sc_store_selector_keys(selectors[0]));
    for (uint32_t i = 0; i < 4; i++)
        sc_store_selector_end(selectors[i]);
    assert_null(sc_store_selector_keys_hold(selectors[0]));
    assert_int_equal(sc_store_selector_bytes_used(world->store), whole);
    uint8_t first = keys[0];
    match_load_ok(world, &matches[0], selectors[3], 96); /* of what the others left */
    assert_int_equal(keys[0], first);
    sc_store_selector_keys_leave(selectors[0], keys);
    assert_int_equal(sc_store_selector_bytes_used(world->store), 0);
    for (uint32_t i = 0; i < 4; i++)
        sc_store_selector_close(selectors[i]);
    world_free(world);
}

/* ---- Ends and readiness --------------------------------------------------------------------- */

struct bell {
    struct world *world;
    _Atomic uint32_t rung;
    spec_status state;
};

static void on_ready(struct sc_store_selector *selector, void *user)
{
    struct bell *bell = user;
    bell->state = sc_store_selector_state(selector);
    struct sc_exec *exec = bell->world->exec;
    atomic_fetch_add(&bell->rung, 1);
    sc_exec_wake(exec, &bell->rung);
}

static void selector_says_once_that_it_is_ready(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < SETUPS; i++) {
        struct world *world = roomy_make(&setups[i], 5);
        if (world_opens(world)) {
            struct bell bell = {.world = world};
            assert_int_equal(world_store(world, 1, 0, 200), SPEC_OK);
            struct sc_store_selector *selector = selector_make(world);
            struct match match = {.count = 0}, none = {.count = 0};
            match_key(world, &match, 1);
            for (uint32_t turn = 0; turn < 20; turn++) {
                const struct match *wanted = turn % 5 == 4 ? &none : &match;
                assert_true(sc_store_selector_begin(
                    selector, &(struct sc_store_selector_want){.layer = turn % 2,
                                                               .io_class = SC_IO_CLASS_SPECULATIVE,
                                                               .ranges = wanted->ranges,
                                                               .range_count = wanted->count,
                                                               .probe_row_bytes = 2,
                                                               .on_ready = on_ready,
                                                               .user = &bell}));
                while (atomic_load(&bell.rung) == turn)
                    assert_true(sc_exec_wait(world->exec, &bell.rung, turn, SC_EXEC_FOREVER));
                assert_int_equal(bell.state, SPEC_OK);
                match_check(world, wanted, turn % 2, 2, selector, true);
            }
            assert_int_equal(sc_store_selector_wait(selector, SC_EXEC_FOREVER), SPEC_OK);
            sc_store_selector_close(selector);
            assert_int_equal(atomic_load(&bell.rung), 20);
        }
        world_free(world);
    }
}

/* Of the seeded loop: none rings after end, wherever the load is by then. */
static void selector_that_ended_says_nothing(void **state)
{
    (void)state;
    struct world *world = roomy_make(&setups[0], 5);
    struct bell bell = {.world = world};
    world_open_ok(world);
    assert_int_equal(world_store(world, 1, 0, 256), SPEC_OK);
    struct sc_store_selector *selector = selector_make(world);
    uint32_t rung = 0, silent = 0;
    struct match match = match_of(world, 1);
    for (uint32_t steps = 0; rung < 3; steps++) {
        assert_true(steps < 1000);
        assert_true(sc_store_selector_begin(
            selector, &(struct sc_store_selector_want){.layer = 0,
                                                       .io_class = SC_IO_CLASS_SPECULATIVE,
                                                       .ranges = match.ranges,
                                                       .range_count = match.count,
                                                       .probe_row_bytes = 96,
                                                       .on_ready = on_ready,
                                                       .user = &bell}));
        for (uint32_t s = 0; s < steps && sc_exec_step_one(world->exec); s++)
            continue;
        bool rang = atomic_exchange(&bell.rung, 0) > 0;
        sc_store_selector_end(selector);
        assert_int_not_equal(sc_store_selector_state(selector), SPEC_OK);
        while (sc_exec_step_one(world->exec))
            continue;
        assert_int_equal(atomic_load(&bell.rung), 0);
        rung += rang;
        silent += !rang;
    }
    assert_true(silent > 3);
    match_load_ok(world, &match, selector, 96);
    sc_store_selector_close(selector);
    world_free(world);
}

/* A load that is given up anywhere leaves nothing in the next: other layers, other matches, while
 * its reads still fly and its copies still run. */
static void selector_begun_after_an_end_has_nothing_of_it(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < SETUPS; i++) {
        struct world *world = roomy_make(&setups[i], 13);
        uint64_t random = 77 + i;
        if (world_opens(world)) {
            struct match matches[2] = {{.count = 0}, {.count = 0}};
            for (uint64_t key = 1; key <= 3; key++)
                assert_int_equal(world_store(world, key, 7, 310), SPEC_OK);
            for (uint64_t key = 1; key <= 3; key++)
                match_key(world, &matches[key % 2], key);
            struct sc_store_selector *selectors[2] = {selector_make(world), selector_make(world)};
            for (uint32_t turn = 0; turn < 300; turn++) {
                struct sc_store_selector *selector = selectors[random_below(&random, 2)];
                const struct match *match = &matches[random_below(&random, 2)];
                uint32_t layer = (uint32_t)random_below(&random, setups[i].layers);
                uint64_t wanted = random_below(&random, setups[i].probe_row_bytes / 2 + 1) * 2;
                enum sc_io_class io_class =
                    random_below(&random, 2) == 0 ? SC_IO_CLASS_DEMAND : SC_IO_CLASS_SPECULATIVE;
                assert_true(keys_begin(selector, match, layer, io_class, wanted));
                if (random_below(&random, 2) == 0)
                    sc_store_selector_demand(selector);
                uint64_t wait_ns = random_below(&random, 400) * 1000;
                spec_status status =
                    sc_store_selector_wait(selector, sc_exec_now_ns(world->exec) + wait_ns);
                if (turn % 3 == 0)
                    status = sc_store_selector_wait(selector, SC_EXEC_FOREVER);
                if (status == SPEC_OK)
                    match_check(world, match, layer, wanted, selector, true);
                else
                    assert_int_equal(status, SPEC_E_TIMEOUT);
                if (random_below(&random, 2) == 0)
                    sc_store_selector_end(selector);
            }
            sc_store_selector_close(selectors[0]);
            sc_store_selector_close(selectors[1]);
        }
        world_free(world);
    }
}

/* ---- Frames --------------------------------------------------------------------------------- */

/* Readers that nobody consumes hold every frame; key 1 is loaded whole by each. */
static uint32_t hoard(struct world *world, const struct match *match, struct sc_store_reader **ret,
                      enum sc_io_class io_class)
{
    struct sc_store_stats stats;
    uint32_t count = 0;
    do {
        assert_true(count < 8);
        ret[count] = world_reader(world);
        sc_store_reader_begin(ret[count++], 0, match->ranges, match->count, io_class);
        sc_store_stats(world->store, &stats);
    } while (stats.stage_full == 0);
    return count;
}

static void selector_that_is_waited_for_progresses_while_readers_hold_every_frame(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < SETUPS; i++) {
        struct world_setup setup = setups[i];
        setup.op_bytes = 64u << 10; /* several blocks */
        struct world *world = roomy_make(&setup, 3);
        struct sc_store_reader *readers[8];
        world->config.staging_bytes = 1u << 20; /* 14 frames */
        if (world_opens(world)) {
            for (uint64_t at = 0; at < 960; at += 16)
                assert_int_equal(world_store(world, 1, at, 16), SPEC_OK);
            struct match match = match_of(world, 1);
            uint32_t count = hoard(world, &match, readers, SC_IO_CLASS_DEMAND);
            struct sc_store_selector *selectors[2] = {selector_make(world), selector_make(world)};
            for (uint32_t s = 0; s < 2; s++)
                assert_true(keys_begin(selectors[s], &match, s, SC_IO_CLASS_SPECULATIVE,
                                       setup.probe_row_bytes));
            for (uint32_t s = 2; s-- > 0;) {
                sc_store_selector_demand(selectors[s]);
                assert_int_equal(sc_store_selector_wait(selectors[s], SC_EXEC_FOREVER), SPEC_OK);
                match_check(world, &match, s, setup.probe_row_bytes, selectors[s], true);
            }
            for (uint32_t r = 0; r < count; r++)
                sc_store_readers_close(readers[r], 1);
            sc_store_selector_close(selectors[0]);
            sc_store_selector_close(selectors[1]);
        }
        world_free(world);
    }
}

/* The half of the frames that is demand's is not a guess's, until it is raised. */
static void selector_that_is_raised_gets_frames_that_a_prediction_may_not_have(void **state)
{
    (void)state;
    struct world *world = roomy_make(&setups[0], 3);
    struct sc_store_reader *readers[8];
    world->config.staging_bytes = 1u << 20;
    world_open_ok(world);
    for (uint64_t at = 0; at < 1920; at += 64)
        assert_int_equal(world_store(world, 1, at, 64), SPEC_OK);
    struct match match = match_of(world, 1);
    uint32_t count = hoard(world, &match, readers, SC_IO_CLASS_SPECULATIVE);
    struct sc_store_selector *selector = selector_make(world);
    assert_true(keys_begin(selector, &match, 0, SC_IO_CLASS_SPECULATIVE, 96));
    while (sc_exec_step_one(world->exec))
        continue;
    assert_int_equal(sc_store_selector_state(selector), SPEC_PENDING);
    sc_store_selector_demand(selector);
    while (sc_exec_step_one(world->exec))
        continue;
    assert_int_equal(sc_store_selector_state(selector), SPEC_OK);
    match_check(world, &match, 0, 96, selector, true);
    for (uint32_t r = 0; r < count; r++)
        sc_store_readers_close(readers[r], 1);
    sc_store_selector_close(selector);
    world_free(world);
}

/* ---- Reads ---------------------------------------------------------------------------------- */

static void selector_reads_a_run_at_once_when_it_fits(void **state)
{
    (void)state;
    struct world *world = roomy_make(&setups[0], 5);
    struct sc_store_read_cost cost;
    struct match match = {.count = 0}, last = {.count = 0};
    world_open_ok(world);
    assert_int_equal(world_store(world, 1, 0, 300), SPEC_OK);
    match_key(world, &match, 1);
    struct sc_store_selector *selector = selector_make(world);
    assert_int_equal(match_load(&match, selector, 1, 96), SPEC_OK);
    sc_store_selector_cost(selector, &cost);
    assert_int_equal(cost.op_count, 1);
    assert_int_equal(cost.wanted_bytes, 300 * (96 + 8 + 8));
    assert_true(cost.read_bytes <= cost.wanted_bytes + 2 * 4096);
    assert_true(cost.wait_ns > 0);
    match_add(&last, &world->pieces[4], 10, 1);
    assert_int_equal(match_load(&last, selector, 2, 96), SPEC_OK);
    sc_store_selector_cost(selector, &cost);
    assert_int_equal(cost.op_count, 1); /* the gap costs less than another */
    assert_int_equal(match_load(&match, selector, 1, 0), SPEC_OK);
    sc_store_selector_cost(selector, &cost);
    assert_int_equal(cost.wanted_bytes, 300 * 8);
    assert_true(cost.read_bytes <= 2 * 4096);
    sc_store_selector_close(selector);
    world_free(world);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(selector_gives_keys_and_tags_of_whole_matches_after_a_reopen_too),
        cmocka_unit_test(selector_of_any_ranges_gives_exactly_their_rows),
        cmocka_unit_test(selector_that_cannot_be_had_is_not_begun),
        cmocka_unit_test(selector_tells_damaged_probe_rows_and_leaves_tags_to_their_rows),
        cmocka_unit_test(selector_that_cannot_be_read_says_so),
        cmocka_unit_test(selector_takes_blocks_of_the_pool_while_it_is_begun),
        cmocka_unit_test(selector_says_once_that_it_is_ready),
        cmocka_unit_test(selector_that_ended_says_nothing),
        cmocka_unit_test(selector_begun_after_an_end_has_nothing_of_it),
        cmocka_unit_test(selector_that_is_waited_for_progresses_while_readers_hold_every_frame),
        cmocka_unit_test(selector_that_is_raised_gets_frames_that_a_prediction_may_not_have),
        cmocka_unit_test(selector_reads_a_run_at_once_when_it_fits),
    };
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
