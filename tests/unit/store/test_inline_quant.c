/* Codes of rows that are being stored: made without a read, or, where others took frames meanwhile,
 * with one, or left to the build; whatever the layout, the back end, who takes the frames, the
 * fault and the moment at which power fails or the store is closed. Codes that are there are what
 * the encoder says of exactly these rows.
 *
 * Threads: the fixture's. */
#include "store/cache/written_frames.h"
#include "store/space/tier.h"
#include "store/write/extent.h"
#include "store/write/inline_quant.h"
#include "tests/unit/store/build_check.h"
#include "tests/unit/store/quant_check.h"
#include "tests/unit/store/space_check.h"

static const struct world_setup setups[] = {
    {"sim, paired, rows straddle", WORLD_ON(SIM, 0), WORLD_SHAPE(PAIRED, 3, 1504, 0),
     WORLD_DISK(64, 4, 64)},
    {"sim, split, probe rows, a slab is more than an operation", WORLD_ON(SIM, 0),
     WORLD_SHAPE(SPLIT, 3, 1504, 96), WORLD_DISK(64, 2, 64)},
    {"sim, paired, an operation is many layers", WORLD_ON(SIM, 0), WORLD_SHAPE(PAIRED, 20, 64, 0),
     WORLD_DISK(64, 4, 512)},
    {"sim, paired, layers lie apart", WORLD_ON(SIM, 0), WORLD_SHAPE(PAIRED, 4, 1504, 0),
     WORLD_DISK(64, 1, 64)},
    {"pread, paired, 2 threads", WORLD_ON(PREAD, 2), WORLD_SHAPE(PAIRED, 3, 512, 0),
     WORLD_DISK(64, 4, 64)},
    {"io_uring, split, 3 threads", WORLD_ON(URING, 3), WORLD_SHAPE(SPLIT, 2, 512, 0),
     WORLD_DISK(64, 4, 64)},
};
#define SETUP_THREADS 4u /* the first of those that have them */
#define SETUPS        (sizeof(setups) / sizeof(setups[0]))

/* NULL: the machine has no such back end. */
static struct world *world_live(const struct world_setup *setup, uint64_t seed)
{
    struct world *world = world_make(setup, seed);
    keep_quant(world, true);
    world->params.codes.with_rows = true;
    return world_opened(world);
}

/* Faults that are armed meet its reads, writes and reservations. */
static struct world *world_faulty(const struct world_setup *setup, uint64_t seed)
{
    struct world *world = world_live(setup, seed);
    world_close(world);
    world->params.fault = &world->fault;
    world_open_ok(world);
    return world;
}

static void pass_end(struct pass *pass)
{
    pass_wait(pass);
    if (pass->status == SPEC_OK)
        pass_note(pass);
    pass_free(pass);
}

static void step_some(struct world *world, uint64_t count)
{
    while (count-- > 0 && sc_exec_is_loop(world->exec) && sc_exec_step_one(world->exec))
        continue;
}

/* Nobody codes, builds or writes any more, for extents that are given up either. */
static void settle(struct world *world)
{
    uint32_t busy;
    build_wait(world);
    while ((busy = atomic_load(&world->store->busy)) != 0)
        (void)sc_exec_wait(world->exec, &world->store->busy, busy,
                           sc_exec_now_ns(world->exec) + 20000000);
    assert_int_equal(world->store->disk.quant_due, 0);
}

static void all_have_quant(struct world *world, uint64_t key_last)
{
    for (uint64_t key = 1; key <= key_last; key++) {
        assert_true(key_check(world, key, true) > 0);
        rows_ok(world, key);
    }
    assert_int_equal(stats_of(world).bad_blocks, 0);
    space_check(world->store);
}

/* Frames of what was coded are as free as any: nobody asks for them. */
static void nothing_is_kept(struct world *world)
{
    for (uint32_t p = 0; p < world->piece_count; p++) {
        const struct sc_store_table *table = &world->store->table;
        const struct sc_store_extent_entry *extent =
            sc_store_table_extent(table, sc_store_table_piece(table, world->pieces[p].id)->extent);
        uint8_t byte;
        for (uint64_t at = 0; at < world->setup->layers * extent->stride; at += 4096) {
            struct sc_store_cache_entry *pin;
            assert_null(sc_store_cache_get(world->store->cache, extent->copy, at, 1, &byte, &pin));
        }
    }
}

static void rows_are_quantised_without_a_read(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < SETUPS; i++) {
        struct world *world = world_live(&setups[i], 7);
        if (world == NULL)
            continue;
        assert_int_equal(world_store(world, 1, 0, 300), SPEC_OK);
        assert_int_equal(world_store(world, 1, 300, 23), SPEC_OK);
        assert_int_equal(world_store(world, 1, 323, 1), SPEC_OK);
        assert_int_equal(world_store(world, 2, 10, 250), SPEC_OK);
        sc_store_build_quant(world->store); /* it passes over what is being coded */
        build_wait(world);
        struct sc_store_stats stats = stats_of(world);
        assert_int_equal(stats.read_bytes, 0);
        assert_int_equal(stats.built_pieces, 0);
        assert_true(stats.quantised_bytes > 0);
        assert_int_equal(stats.staging_bytes_used, 0);
        nothing_is_kept(world);
        all_have_quant(world, 2);
        world_reopen(world);
        all_have_quant(world, 2);
        assert_int_equal(sc_store_checkpoint(world->store, NULL), SPEC_OK);
        world_reopen(world);
        all_have_quant(world, 2);
        world_free(world);
    }
}

/* While the host computes the next: codes of those that are packed are on their way. */
static void a_layer_is_quantised_before_the_next_is_there(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < SETUP_THREADS; i++) {
        bool is_apart = setups[i].segment_bytes < 2u << 20; /* no window has two layers */
        if (setups[i].layers > 4)
            continue;
        struct world *world = world_live(&setups[i], 11);
        struct pass *pass = pass_make(world, 1, 0, 200);
        assert_int_equal(pass_begin(pass), SPEC_OK);
        uint64_t copy = pass->extent->copy, stride = pass->extent->place.stride;
        while (pass->layer < setups[i].layers) {
            assert_int_equal(pass_put(pass), SPEC_OK);
            step_some(world, 1000);
            struct sc_store_cache_entry *pin; /* its rows need not stay in frames */
            assert_null(sc_store_cache_get(world->store->cache, copy, (pass->layer - 1) * stride, 1,
                                           NULL, &pin));
            assert_true(!is_apart ||
                        sc_store_cache_get(world->store->cache, copy, pass->layer * stride - 1, 1,
                                           NULL, &pin) == NULL);
        }
        pass_end(pass);
        build_wait(world);
        all_have_quant(world, 1);
        world_free(world);
    }
}

/* A layer of codes would never leave frames to rows: the build makes them, when nothing is stored.
 */
static void a_small_pool_is_left_to_rows(void **state)
{
    (void)state;
    struct world_setup setup = setups[0];
    setup.staging_bytes = 8 * (setup.op_bytes + SC_STAGING_SLACK_BYTES); /* one is the spare */
    struct world *world = world_live(&setup, 4);
    assert_int_equal(sc_staging_count(world->store->frames), 7);
    assert_int_equal(world_store(world, 1, 0, 10), SPEC_OK);
    settle(world);
    assert_int_equal(stats_of(world).built_pieces, 1);
    all_have_quant(world, 1);
    world_free(world);
}

/* Layer by layer beside each other, as a long prompt is; those beyond SC_STORE_INLINE_QUANT_MAX,
 * too. */
static void extents_side_by_side_are_quantised(void **state)
{
    (void)state;
    enum { PASSES = SC_STORE_INLINE_QUANT_MAX + 3 };
    struct world_setup setup = setups[1];
    setup.layers = 2;
    struct pass *passes[PASSES];
    for (uint64_t seed = 0; seed < 4; seed++) {
        struct world *world = world_live(&setup, seed);
        for (uint32_t p = 0; p < PASSES; p++) {
            passes[p] = pass_make(world, p + 1, 0, 70);
            assert_int_equal(pass_begin(passes[p]), SPEC_OK);
        }
        for (uint32_t layer = 0; layer < setup.layers; layer++)
            for (uint32_t p = 0; p < PASSES; p++) {
                assert_int_equal(pass_put(passes[p]), SPEC_OK);
                step_some(world, seed * 3);
            }
        for (uint32_t p = 0; p < PASSES; p++)
            pass_end(passes[p]);
        build_wait(world);
        for (uint32_t p = 0; p < SC_STORE_INLINE_QUANT_MAX; p++) {
            const struct sc_store_piece_entry *piece =
                sc_store_table_piece(&world->store->table, world->pieces[2 * p].id);
            assert_non_null(
                atomic_load(&sc_store_table_extent(&world->store->table, piece->extent)->codes));
        }
        assert_int_equal(stats_of(world).built_pieces, 0);
        build_all(world, 0); /* probe rows are there; the other extents' codes */
        assert_int_equal(stats_of(world).built_pieces, 6);
        all_have_quant(world, PASSES);
        world_free(world);
    }
}

/* Until nothing fits any more, pass after pass and side by side: what found room has its codes,
 * without the build, and what is kept for codes is given back in the end. */
static void rows_leave_room_for_their_codes(void **state)
{
    (void)state;
    struct world_setup setup = setups[0];
    setup.disk_bytes = 8u << 20;
    for (uint32_t i = 0; i < 24; i++) {
        uint32_t at_once = 1 + i % 3, rows = 30 + 7 * i;
        struct world *world = world_live(&setup, i);
        spec_status status = SPEC_OK;
        uint64_t key = 1;
        while (status == SPEC_OK) {
            struct pass *passes[3];
            uint32_t begun = 0;
            while (begun < at_once && status == SPEC_OK) {
                passes[begun] = pass_make(world, key, 0, rows);
                status = pass_begin(passes[begun]);
                begun++;
                key += status == SPEC_OK;
            }
            for (uint32_t p = 0; p < begun; p++) {
                bool is_refused = status != SPEC_OK && p + 1 == begun;
                while (!is_refused && passes[p]->layer < setup.layers)
                    assert_int_equal(pass_put(passes[p]), SPEC_OK);
                if (is_refused)
                    pass_free(passes[p]);
                else
                    pass_end(passes[p]);
            }
            settle(world);
            assert_int_equal(world->store->disk.quant_due, 0);
        }
        assert_int_equal(status, SPEC_E_NO_SPACE);
        assert_true(key > 2);
        assert_int_equal(stats_of(world).built_pieces, 0);
        all_have_quant(world, key - 1);
        world_free(world);
    }
}

/* Somebody takes every frame, overwrites it and gives it back, after any number of steps: rows are
 * not held up, and codes are made of what was packed, or of what is on the disk. */
static void frames_that_others_take_are_read_back(void **state)
{
    (void)state;
    uint32_t lost = 0, kept = 0, later = 0;
    for (uint32_t i = 0; i < 2; i++)
        for (uint64_t steps = 0; steps < 120; steps += 5) {
            struct world *world = world_live(&setups[i], steps);
            struct sc_staging *pool = world->store->frames;
            uint8_t *frames[256];
            uint64_t count = 0, most = sc_staging_count(pool) / 8 * 5 - 2;
            struct pass *pass = pass_make(world, 1, 5, 100);
            assert_int_equal(pass_begin(pass), SPEC_OK);
            assert_int_equal(pass_put(pass), SPEC_OK);
            step_some(world, steps / 2);
            while (count < most) /* no layer of codes is put beside so many */
                frames[count++] = sc_staging_take(pool, SC_IO_CLASS_DEMAND);
            while (pass->layer < setups[i].layers)
                assert_int_equal(pass_put(pass), SPEC_OK);
            step_some(world, steps);
            while ((frames[count] = sc_staging_take(pool, SC_IO_CLASS_DEMAND)) != NULL)
                count++;
            for (uint64_t f = 0; f < count; f++)
                memset(frames[f], 0x5a, setups[i].op_bytes);
            while (count > 0)
                sc_staging_put(pool, frames[--count]);
            pass_end(pass);
            build_wait(world);
            lost += stats_of(world).read_bytes > 0;
            kept += stats_of(world).read_bytes == 0;
            later += stats_of(world).built_pieces > 0;
            all_have_quant(world, 1);
            world_free(world);
        }
    print_message("%u passes were coded from frames alone, %u were read back, %u of them later\n",
                  kept, lost, later);
    assert_true(lost > later && kept > 0);
}

/* As somebody does who takes every frame that is free, and fills it. */
static void frames_overwrite(struct world *world)
{
    struct sc_staging *pool = world->store->frames;
    uint8_t *frames[256];
    uint64_t count = 0;
    while ((frames[count] = sc_staging_take(pool, SC_IO_CLASS_DEMAND)) != NULL)
        memset(frames[count++], 0x5a, world->setup->op_bytes);
    while (count > 0)
        sc_staging_put(pool, frames[--count]);
}

/* A pass without its last layer, before which others take every frame that is free: the window that
 * the last layer begins in is not written yet. */
static struct pass *pass_without_frames(struct world *world, uint64_t steps, uint64_t more)
{
    struct sc_staging *pool = world->store->frames;
    uint8_t *frames[256];
    uint64_t count = 0, most = sc_staging_count(pool) / 8 * 5 - 2;
    struct pass *pass = pass_make(world, 1, 5, 100);
    assert_int_equal(pass_begin(pass), SPEC_OK);
    assert_int_equal(pass_put(pass), SPEC_OK);
    while (count < most) /* no layer of codes is put beside so many */
        frames[count++] = sc_staging_take(pool, SC_IO_CLASS_DEMAND);
    while (pass->layer + 1 < world->setup->layers)
        assert_int_equal(pass_put(pass), SPEC_OK);
    step_some(world, steps);
    frames_overwrite(world);
    while (count > 0)
        sc_staging_put(pool, frames[--count]);
    step_some(world, more);
    return pass;
}

static void a_window_that_is_not_written_is_not_read(void **state)
{
    (void)state;
    uint32_t read = 0;
    for (uint32_t i = 0; i < 2; i++)
        for (uint64_t seed = 0; seed < 40; seed++) {
            struct world *world = world_live(&setups[i], seed);
            struct pass *pass = pass_without_frames(world, seed * 2, 500);
            assert_int_equal(pass_put(pass), SPEC_OK);
            pass_end(pass);
            build_wait(world);
            assert_int_equal(stats_of(world).built_pieces, 0);
            read += stats_of(world).read_bytes > 0;
            all_have_quant(world, 1);
            world_free(world);
        }
    assert_true(read > 40);
}

/* Given up while a window is read back: the next pass is coded as if it had never been. */
static void a_read_back_ends_with_its_pass(void **state)
{
    (void)state;
    uint32_t read = 0;
    for (uint64_t more = 0; more < 40; more++) {
        struct world *world = world_live(&setups[more % 2], 30 + more);
        struct pass *pass = pass_without_frames(world, 60, more / 2);
        sc_store_extent_abort(pass->extent);
        pass_wait(pass);
        pass_free(pass);
        read += stats_of(world).read_bytes > 0;
        assert_int_equal(world_store(world, 2, 0, 100), SPEC_OK);
        settle(world);
        assert_int_equal(stats_of(world).built_pieces, 0);
        assert_int_equal(stats_of(world).staging_bytes_used, 0);
        assert_true(key_check(world, 2, true) > 0);
        space_check(world->store);
        world_free(world);
    }
    assert_true(read > 10);
}

/* The build is told of it, and has them then. */
static void a_read_back_that_fails_costs_no_row(void **state)
{
    (void)state;
    uint64_t n = 0;
    for (bool fires = true; fires; n++) {
        struct world *world = world_faulty(&setups[n % 2], 30);
        sc_fault_arm(&world->fault, SC_FAULT_READ, n / 2);
        struct pass *pass = pass_without_frames(world, 60, 500);
        assert_int_equal(pass_put(pass), SPEC_OK);
        pass_end(pass);
        settle(world);
        nothing_is_kept(world);
        fires = atomic_load(&world->fault.fired[SC_FAULT_READ]) > 0;
        sc_fault_arm(&world->fault, SC_FAULT_READ, INT64_MAX);
        assert_int_equal(stats_of(world).staging_bytes_used, 0);
        all_have_quant(world, 1);
        world_free(world);
    }
    assert_true(n > 4);
}

/* Rows of others fill the pool for seconds, or minutes: codes wait some time, and are the build's
 * then, though it has passed the extent already; or they wait for its next start. */
static void a_pool_that_stays_full_ends_the_wait(void **state)
{
    (void)state;
    for (uint32_t is_long = 0; is_long < 2; is_long++) {
        struct world *world = world_live(&setups[0], 8);
        struct sc_staging *pool = world->store->frames;
        uint8_t *frames[256];
        uint64_t count = 0, most = sc_staging_count(pool) / 8 * 5 - 2;
        while (count < most)
            frames[count++] = sc_staging_take(pool, SC_IO_CLASS_DEMAND);
        assert_int_equal(world_store(world, 1, 0, 100), SPEC_OK);
        sc_store_build_quant(world->store);
        world_wait_ns(world, 8000000000);
        if (is_long)
            settle(world);
        assert_int_equal(key_check(world, 1, false), 0);
        while (count > 0)
            sc_staging_put(pool, frames[--count]);
        if (is_long)
            build_all(world, 0);
        settle(world);
        all_have_quant(world, 1);
        world_free(world);
    }
}

/* Pieces that were never committed; a first slab of fewer rows is the build's. */
static void what_is_present_elsewhere_is_not_quantised(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 2; i++)
        for (uint32_t skip = 0; skip < 8; skip += 7) {
            struct world *world = world_live(&setups[i], 9);
            struct pass *pass = pass_make(world, 5, 10, 300);
            pass->commit.piece_first = 1;
            pass->commit.skip = skip;
            assert_int_equal(pass_begin(pass), SPEC_OK);
            while (pass->layer < setups[i].layers)
                assert_int_equal(pass_put(pass), SPEC_OK);
            pass_end(pass);
            build_wait(world);
            sc_store_build_quant(world->store); /* as the commit's caller does */
            build_wait(world);
            assert_int_equal(stats_of(world).built_pieces, skip > 0 ? 4 : 0);
            space_check(world->store);
            struct sc_store_selector *selector = selector_make(world);
            struct match match = {.count = 0};
            match_add(&match, &world->pieces[0], skip, 64 - skip);
            for (uint32_t p = 1; p < 4; p++)
                match_add(&match, &world->pieces[p], 0, world->pieces[p].row_count);
            uint64_t found = 0;
            for (uint32_t layer = 0; layer < setups[i].layers; layer++) {
                codes_load(&match, selector, layer, false);
                found += codes_check(world, &match, skip, layer, false, selector);
            }
            assert_true(found > 0);
            assert_int_equal(stats_of(world).bad_blocks, 0);
            sc_store_selector_close(selector);
            world_free(world);
        }
}

/* Given up after any layer and any number of steps, or committed nowhere. */
static void a_pass_that_is_given_up_leaves_nothing(void **state)
{
    (void)state;
    for (uint32_t layers = 0; layers <= setups[0].layers; layers++)
        for (uint64_t steps = 0; steps < 60; steps += 6) {
            struct world *world = world_live(&setups[0], steps);
            struct pass *pass = pass_make(world, 1, 0, 200);
            pass->discards = true;
            assert_int_equal(pass_begin(pass), SPEC_OK);
            while (pass->layer < layers) {
                assert_int_equal(pass_put(pass), SPEC_OK);
                step_some(world, steps);
            }
            if (layers < setups[0].layers)
                sc_store_extent_abort(pass->extent);
            pass_wait(pass);
            pass_free(pass);
            assert_int_equal(world->store->disk.quant_due, 0); /* whenever its task has its turn */
            assert_int_equal(world_store(world, 2, 0, 100), SPEC_OK);
            settle(world);
            assert_int_equal(stats_of(world).built_pieces, 0);
            assert_true(key_check(world, 2, true) > 0);
            space_check(world->store);
            world_free(world);
        }
}

/* The file of its segment cannot be made: writes fail, and what others took from the frames is
 * nowhere. */
static void a_pass_whose_segment_cannot_be_made_is_given_up(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 60; seed++) {
        struct world *world = world_faulty(&setups[0], seed);
        for (uint64_t key = 2; key < 4;
             key++) /* a derived section has room beside them, rows have not */
            assert_int_equal(world_store(world, key, 0, 200), SPEC_OK);
        settle(world);
        sc_fault_arm(&world->fault, SC_FAULT_RESERVE, 0);
        struct pass *pass = pass_make(world, 1, 0, 200);
        assert_int_equal(pass_begin(pass), SPEC_OK);
        assert_int_equal(pass_put(pass), SPEC_OK);
        step_some(world, seed % 4);
        frames_overwrite(world);
        step_some(world, seed % 4);
        while (pass->layer < setups[0].layers && pass_put(pass) == SPEC_OK)
            step_some(world, 1);
        pass_wait(pass);
        assert_true(pass->status != SPEC_OK);
        pass_free(pass);
        settle(world);
        sc_fault_arm(&world->fault, SC_FAULT_RESERVE, INT64_MAX);
        assert_int_equal(stats_of(world).staging_bytes_used, 0);
        space_check(world->store);
        world_free(world);
    }
}

/* More passes than there are jobs, each ended somewhere: committed, or given up before, between or
 * behind its layers, while writes fail or not. What is due to codes is that of passes that go on,
 * and nothing in the end. */
static void whatever_ends_passes_gives_back_what_is_due(void **state)
{
    (void)state;
    enum { PASSES = SC_STORE_INLINE_QUANT_MAX + 8 };
    uint64_t most = 0, refused = 0;
    for (uint64_t seed = 0; seed < 24; seed++) {
        struct world_setup setup = setups[seed % 4];
        struct pass *passes[PASSES] = {NULL};
        uint64_t random = seed;
        setup.disk_bytes = seed % 3 == 0 ? 8u << 20 : setup.disk_bytes;
        struct world *world = world_faulty(&setup, seed);
        if (seed % 5 == 1)
            sc_fault_arm(&world->fault, SC_FAULT_WRITE, (int64_t)(3 * seed));
        for (uint32_t i = 0; i < 40 * PASSES; i++) {
            struct pass **pass = &passes[random_below(&random, PASSES)];
            uint64_t which = random_below(&random, 8);
            if (*pass == NULL) {
                *pass = pass_make(world, 1 + i, 0, 1 + (uint32_t)random_below(&random, 120));
                (*pass)->discards = random_below(&random, 4) == 0;
                if (pass_begin(*pass) != SPEC_OK) {
                    pass_free(*pass);
                    *pass = NULL;
                    refused++;
                }
            } else if ((*pass)->layer < setup.layers && which < 6) {
                if (pass_put(*pass) != SPEC_OK)
                    (*pass)->layer = setup.layers; /* it has ended */
            } else {
                if ((*pass)->layer < setup.layers)
                    sc_store_extent_abort((*pass)->extent);
                pass_wait(*pass);
                pass_free(*pass);
                *pass = NULL;
            }
            uint64_t due = world->store->disk.quant_due;
            most = due > most ? due : most;
            step_some(world, random_below(&random, 4));
        }
        for (uint32_t i = 0; i < PASSES; i++)
            if (passes[i] != NULL) {
                if (passes[i]->layer < setup.layers)
                    sc_store_extent_abort(passes[i]->extent);
                pass_wait(passes[i]);
                pass_free(passes[i]);
            }
        sc_fault_arm(&world->fault, SC_FAULT_WRITE, INT64_MAX);
        settle(world);
        space_check(world->store);
        world_free(world);
    }
    print_message("%lu bytes of a layer were due at most, %lu passes refused\n", most, refused);
    assert_true(most > 0 && refused > 0);
}

/* Closed after any number of steps behind the commit. */
static void a_close_ends_it_anywhere(void **state)
{
    (void)state;
    uint32_t none = 0, some = 0;
    for (uint64_t steps = 0; steps < 80; steps += 3) {
        struct world *world = world_live(&setups[0], steps);
        assert_int_equal(world_store(world, 1, 0, 200), SPEC_OK);
        step_some(world, steps);
        world_close(world);
        keep_quant(world, true);
        world_open_ok(world);
        space_check(world->store);
        uint64_t had = key_check(world, 1, false);
        none += had == 0;
        some += had > 0;
        build_all(world, 0);
        all_have_quant(world, 1);
        world_free(world);
    }
    print_message("%u were closed without codes, %u with\n", none, some);
    assert_true(none > 0 && some > 0);
}

static void quantising_survives_every_fault(void **state)
{
    (void)state;
    static const enum sc_fault_kind KINDS[] = {SC_FAULT_ALLOC, SC_FAULT_WRITE, SC_FAULT_COMPLETION};
    for (uint32_t kind = 0; kind < 3; kind++)
        for (uint64_t n = 0;; n++) {
            struct world *world = world_live(&setups[0], n);
            world_close(world);
            world_faults(world);
            world_open_ok(world);
            sc_fault_arm(&world->fault, KINDS[kind], n);
            spec_status status = world_store(world, 1, 0, 200);
            settle(world);
            sc_fault_arm(&world->fault, KINDS[kind], INT64_MAX);
            bool fires = atomic_load(&world->fault.fired[KINDS[kind]]) > 0;
            space_check(world->store);
            if (n % 2 == 0)
                world_reopen(world);
            else
                pause_wait(world);
            if (status == SPEC_OK) {
                rows_ok(world, 1);
                (void)key_check(world, 1, false);
            } else {
                assert_int_equal(world_store(world, 1, 0, 200), SPEC_OK);
            }
            build_all(world, 0);
            world_reopen(world); /* pages of codes without a record are held until then */
            build_all(world, 0);
            all_have_quant(world, 1);
            world_free(world);
            if (!fires) {
                assert_true(n > 0);
                break;
            }
        }
}

static void a_cut_at_any_write_leaves_rows_or_both(void **state)
{
    (void)state;
    struct world_setup setup = setups[0];
    setup.journal = 2;
    struct world *origin = world_live(&setup, 12);
    uint32_t rows = 0, codes = 0;
    assert_int_equal(world_store(origin, 1, 0, 200), SPEC_OK);
    build_wait(origin);
    uint64_t from = sc_io_sim_disk_events(origin->disk), begun = origin->piece_count;
    assert_int_equal(world_store(origin, 2, 0, 200), SPEC_OK);
    build_wait(origin);
    assert_int_equal(sc_store_checkpoint(origin->store, NULL), SPEC_OK);
    uint64_t to = sc_io_sim_disk_events(origin->disk);
    assert_true(to > from);
    for (uint64_t events = from; events <= to; events++)
        for (uint64_t seed = 0; seed < 4; seed++) {
            struct world *world = world_cut(origin, events, seed, seed * 1000 + events);
            keep_quant(world, true);
            world_open_ok(world);
            space_check(world->store);
            uint32_t seen = 0;
            for (uint64_t i = begun; i < world->piece_count; i++)
                seen += world->pieces[i].seen;
            if (seen == world->piece_count - begun) {
                rows++;
                codes += key_check(world, 2, false) > 0;
            }
            build_all(world, 0);
            space_check(world->store);
            world_free(world);
        }
    print_message("%u power cuts with all rows, %u of them with codes\n", rows, codes);
    assert_true(codes > 0 && codes < rows);
    world_free(origin);
}

/* What takes the place of others' rows is durable first, in whichever segments it lies. */
static void a_sync_is_of_every_segment(void **state)
{
    (void)state;
    struct world *world = world_faulty(&setups[3], 1);
    assert_int_equal(world_store(world, 1, 0, 200), SPEC_OK);
    settle(world);
    const struct sc_store_table *table = &world->store->table;
    const struct sc_store_extent_entry *extent =
        sc_store_table_extent(table, sc_store_table_piece(table, world->pieces[0].id)->extent);
    assert_int_equal(extent->part_count, setups[3].layers);
    for (uint32_t n = 0; n <= extent->part_count; n++) {
        sc_fault_arm(&world->fault, SC_FAULT_SYNC, n);
        spec_status status =
            sc_store_tier_sync(world->store, extent->parts, extent->part_count, NULL);
        assert_int_equal(status, n < extent->part_count ? SPEC_E_IO : SPEC_OK);
    }
    sc_fault_arm(&world->fault, SC_FAULT_SYNC, INT64_MAX);
    world_free(world);
}

/* ---- Threads -------------------------------------------------------------------------------- */

struct taker { /* of frames, as loads take them; every one is overwritten */
    struct world *world;
    _Atomic bool ends;
    pthread_t thread;
};

static void *taker_main(void *argument)
{
    struct taker *taker = argument;
    struct sc_staging *pool = taker->world->store->frames;
    uint8_t *frames[256];
    uint64_t seed = 1;
    while (!atomic_load(&taker->ends)) {
        uint64_t count = 0, most = random_below(&seed, 256);
        while (count < most && (frames[count] = sc_staging_take(pool, SC_IO_CLASS_DEMAND)) != NULL)
            memset(frames[count++], 0x5a, taker->world->setup->op_bytes);
        while (count > 0)
            sc_staging_put(pool, frames[--count]);
    }
    return NULL;
}

static void codes_are_right_while_others_take_frames(void **state)
{
    (void)state;
    for (uint32_t i = SETUP_THREADS; i < SETUPS; i++) {
        struct world *world = world_live(&setups[i], 3);
        if (world == NULL)
            continue;
        struct taker taker = {.world = world};
        uint64_t keys = 0;
        assert_int_equal(pthread_create(&taker.thread, NULL, taker_main, &taker), 0);
        while (keys < 40) /* a pass that met a pool without frames is given up */
            keys += world_store(world, keys + 1, keys % 64, 150) == SPEC_OK;
        atomic_store(&taker.ends, true);
        assert_int_equal(pthread_join(taker.thread, NULL), 0);
        build_quantised(world);
        print_message("%s: %u of %u pieces were coded later\n", setups[i].name,
                      (unsigned)stats_of(world).built_pieces, world->piece_count);
        all_have_quant(world, keys);
        world_free(world);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_quantised_without_a_read),
        cmocka_unit_test(a_layer_is_quantised_before_the_next_is_there),
        cmocka_unit_test(a_small_pool_is_left_to_rows),
        cmocka_unit_test(extents_side_by_side_are_quantised),
        cmocka_unit_test(rows_leave_room_for_their_codes),
        cmocka_unit_test(frames_that_others_take_are_read_back),
        cmocka_unit_test(a_window_that_is_not_written_is_not_read),
        cmocka_unit_test(a_read_back_ends_with_its_pass),
        cmocka_unit_test(a_read_back_that_fails_costs_no_row),
        cmocka_unit_test(a_pool_that_stays_full_ends_the_wait),
        cmocka_unit_test(what_is_present_elsewhere_is_not_quantised),
        cmocka_unit_test(a_pass_that_is_given_up_leaves_nothing),
        cmocka_unit_test(a_pass_whose_segment_cannot_be_made_is_given_up),
        cmocka_unit_test(whatever_ends_passes_gives_back_what_is_due),
        cmocka_unit_test(a_close_ends_it_anywhere),
        cmocka_unit_test(quantising_survives_every_fault),
        cmocka_unit_test(a_cut_at_any_write_leaves_rows_or_both),
        cmocka_unit_test(a_sync_is_of_every_segment),
        cmocka_unit_test(codes_are_right_while_others_take_frames),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
