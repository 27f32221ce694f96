/* Loads over the host tier: the second of the same rows reads nothing, whatever the layout and the
 * back end; rows that rot in memory are found by their tags and read again; rows come from both at
 * once; who loads beside evictions gets what is right.
 *
 * Threads: the fixture's; the last test: five. */
#include "store/cache/host_tier_slab.h"
#include "store/internal.h"

#include "tests/unit/store/permutation_check.h"

#include <pthread.h>

static const struct world_setup setups[] = {
    {"sim, paired", WORLD_ON(SIM, 0), WORLD_SHAPE(PAIRED, 3, 1504, 0), WORLD_DISK(64, 4, 64)},
    {"sim, split, probe rows", WORLD_ON(SIM, 0), WORLD_SHAPE(SPLIT, 3, 1504, 96),
     WORLD_DISK(64, 2, 64)},
    {"pread, paired", WORLD_ON(PREAD, 0), WORLD_SHAPE(PAIRED, 3, 512, 0), WORLD_DISK(64, 4, 64)},
};
#define SETUPS (sizeof(setups) / sizeof(setups[0]))

/* NULL: the machine has no such back end. */
static struct world *world_in_host_tier(const struct world_setup *setup, uint64_t host_bytes,
                                        uint64_t seed)
{
    struct world *world = world_make(setup, seed);
    world->config.host_bytes = host_bytes;
    return world_opened(world);
}

static void the_second_load_reads_nothing(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < SETUPS; i++) {
        struct world *world = world_in_host_tier(&setups[i], 8u << 20, 1);
        if (world == NULL)
            continue;
        assert_int_equal(world_store(world, 1, 0, 300), SPEC_OK);
        assert_int_equal(world_store(world, 1, 300, 23), SPEC_OK);
        assert_int_equal(world_store(world, 1, 323, 1), SPEC_OK);
        rows_ok(world, 1);
        uint64_t before = stats_of(world).read_bytes;
        assert_true(before > 0);
        rows_ok(world, 1);
        assert_int_equal(stats_of(world).read_bytes, before);
        world_reopen(world); /* memory is forgotten */
        rows_ok(world, 1);
        assert_true(stats_of(world).read_bytes > 0);
        world_free(world);
    }
}

/* So do picks that read whole slabs, also slabs that are more than an operation; of a piece of
 * which nothing is wanted nothing is kept. */
static void the_second_picks_read_nothing(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < SETUPS; i++) {
        struct world *world = world_in_host_tier(&setups[i], 8u << 20, 1);
        if (world == NULL)
            continue;
        assert_int_equal(world_store(world, 1, 0, 300), SPEC_OK);
        struct match match = match_of(world, 1);
        static const uint32_t rows[] = {3, 60, 64, 140, 299};
        for (uint32_t round = 0; round < 2; round++) {
            struct sc_store_gather_rows picks = {.rows = rows, .count = 5, .whole_slabs = true};
            struct picked picked = gather_load(world, &match, 1, &picks, NULL);
            assert_int_equal(picked.count, 5);
            assert_int_equal(picked.cost.read_bytes == 0, round == 1);
            for (uint32_t range = 0; range < match.count; range++)
                assert_int_equal(
                    sc_host_slab_has(world->store, 1, &match.ranges[range], SC_STORE_WANT_ROWS),
                    range != 3);
        }
        for (uint32_t want = SC_STORE_WANT_K; setups[i].layout == SC_STORE_SPLIT && want < 3;
             want++) { /* halves: each for itself, and of whole rows that are there */
            for (uint32_t round = 0; round < 2; round++) {
                struct sc_store_gather_rows picks = {
                    .count = match.rows, .whole_slabs = true, .wanted = want};
                struct picked picked = gather_load(world, &match, 0, &picks, NULL);
                assert_int_equal(picked.cost.read_bytes == 0, round == 1);
                assert_false(
                    sc_host_slab_has(world->store, 0, &match.ranges[1], SC_STORE_WANT_ROWS));
                picks = (struct sc_store_gather_rows){.rows = rows, .count = 5, .wanted = want};
                assert_int_equal(gather_load(world, &match, 1, &picks, NULL).cost.read_bytes, 0);
            }
        }
        assert_int_equal(sc_store_piece_host_layers(world->store, match.ranges[0].piece, NULL),
                         setups[i].layout == SC_STORE_SPLIT ? 2 : 1);
        rows_ok(world, 1); /* all rows of them are right */
        world_free(world);
    }
}

/* Every part of every piece, before, behind and between what is there. */
static void parts_and_mixtures_are_right(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < SETUPS; i++) {
        struct world *world = world_in_host_tier(&setups[i], 8u << 20, 2);
        if (world == NULL)
            continue;
        assert_int_equal(world_store(world, 1, 10, 300), SPEC_OK);
        struct sc_store_reader *reader = world_reader(world);
        uint64_t seed = 3, host_slab = 0;
        for (uint32_t p = 0; p < world->piece_count; p += 2) /* every second one is there */
            assert_int_equal(world_load_piece(world, reader, 1, &world->pieces[p]).status, SPEC_OK);
        for (uint32_t round = 0; round < 200; round++) {
            struct sc_store_range ranges[8];
            const struct world_piece *twins[8];
            uint64_t count = 1 + random_below(&seed, 8), rows = 0;
            for (uint64_t r = 0; r < count; r++) {
                twins[r] = &world->pieces[random_below(&seed, world->piece_count)];
                uint32_t first = (uint32_t)random_below(&seed, twins[r]->row_count);
                ranges[r] = (struct sc_store_range){
                    .piece = twins[r]->id,
                    .row_first = first,
                    .row_count = (uint32_t)random_below(&seed, twins[r]->row_count - first + 1)};
                rows += ranges[r].row_count;
                host_slab += sc_host_slab_has(world->store, 1, &ranges[r], SC_STORE_WANT_ROWS);
            }
            struct loaded loaded = world_load(world, reader, 1, ranges, twins, count);
            assert_int_equal(loaded.status, SPEC_OK);
            assert_int_equal(loaded.rows, rows);
        }
        assert_true(host_slab > 0);
        sc_store_readers_close(reader, 1);
        world_free(world);
    }
}

/* A bit of memory that changes: the row fails its tag, as one of the disk would, and the slab is
 * not there for the next load. */
static void rot_in_memory_is_found(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < SETUPS; i++) {
        struct world *world = world_in_host_tier(&setups[i], 8u << 20, 4);
        if (world == NULL)
            continue;
        assert_int_equal(world_store(world, 1, 0, 100), SPEC_OK);
        struct sc_store_reader *reader = world_reader(world);
        const struct world_piece *piece = &world->pieces[0];
        struct sc_store_range range = {.piece = piece->id, .row_count = piece->row_count};
        assert_int_equal(world_load_piece(world, reader, 2, piece).status, SPEC_OK);
        struct sc_host_slab host_slab =
            sc_host_slab_get(world->store, 2, &range, SC_STORE_WANT_ROWS);
        assert_non_null(host_slab.slab);
        host_slab.bytes[host_slab.row_at + 700] ^= 4;
        sc_host_tier_unpin(world->store->host, host_slab.slab);
        assert_int_equal(world_load_piece(world, reader, 2, piece).status, SPEC_E_CORRUPT);
        assert_false(sc_host_slab_has(world->store, 2, &range, SC_STORE_WANT_ROWS));
        assert_int_equal(world_load_piece(world, reader, 2, piece).status, SPEC_OK);
        sc_store_readers_close(reader, 1);
        world_free(world);
    }
}

/* Loads that end early leave nothing half filled, and nothing pinned. */
static void what_ends_early_leaves_nothing(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < SETUPS; i++)
        for (uint32_t runs = 0; runs < 12; runs++) {
            struct world *world = world_in_host_tier(&setups[i], 8u << 20, runs);
            if (world == NULL)
                continue;
            assert_int_equal(world_store(world, 1, 0, 200), SPEC_OK);
            struct sc_store_reader *reader = world_reader(world);
            struct sc_store_range ranges[4];
            assert_in_range(world->piece_count, 1, 4);
            for (uint32_t p = 0; p < world->piece_count; p++)
                ranges[p] = (struct sc_store_range){.piece = world->pieces[p].id,
                                                    .row_count = world->pieces[p].row_count};
            for (uint32_t way = 0; way < 3; way++) {
                sc_store_reader_begin(reader, 0, ranges, world->piece_count, SC_IO_CLASS_DEMAND);
                for (uint32_t r = 0; r < runs; r++) {
                    struct sc_store_rows rows;
                    assert_int_equal(
                        sc_store_reader_next(reader, SC_EXEC_FOREVER, NULL, &rows, &world->error),
                        SPEC_OK);
                }
                sc_store_reader_cancel(reader);
            }
            rows_ok(world, 1);
            sc_store_readers_close(reader, 1);
            world_free(world); /* asserts that nothing is pinned */
        }
}

/* Room for a third of what is loaded (of the last, for all), by several readers in turn. */
static void evictions_beside_loads_are_right(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < SETUPS; i++) {
        struct world *world = world_in_host_tier(&setups[i], 2u << 20, 5);
        if (world == NULL)
            continue;
        for (uint64_t key = 1; key <= 4; key++)
            assert_int_equal(world_store(world, key, key * 7, 150), SPEC_OK);
        for (uint32_t round = 0; round < 30; round++)
            rows_ok(world, round % 2 == 0 ? 1 : 2 + round / 2 % 3);
        struct sc_host_tier_stats stats;
        sc_host_tier_stats(world->store->host, &stats);
        assert_in_range(stats.bytes_used, 1, 2u << 20);
        assert_true(stats.hits > 0);
        world_free(world);
    }
}

/* Bytes of a piece's rows are had from a later row on, because another piece has those before. */
static void pieces_that_skip_rows_are_kept(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < SETUPS; i++) {
        struct world *world = world_in_host_tier(&setups[i], 8u << 20, 6);
        if (world == NULL)
            continue;
        holes_store(world); /* rows 7 .. 64 of the first piece */
        struct sc_store_reader *reader = world_reader(world);
        const struct world_piece *twin = &world->pieces[0];
        struct sc_store_range range = {.piece = twin->id, .row_first = 7, .row_count = 57};
        const struct sc_store_range early = {.piece = twin->id, .row_first = 6, .row_count = 58},
                                    none = {.piece = twin->id, .row_first = 7};
        for (uint32_t layer = 0; layer < world->setup->layers; layer++)
            assert_int_equal(world_load(world, reader, layer, &range, &twin, 1).status, SPEC_OK);
        uint64_t before = stats_of(world).read_bytes;
        for (uint32_t layer = 0; layer < world->setup->layers; layer++) {
            assert_true(sc_host_slab_has(world->store, layer, &range, SC_STORE_WANT_ROWS));
            assert_false(sc_host_slab_has(world->store, layer, &early, SC_STORE_WANT_ROWS));
            assert_false(sc_host_slab_has(world->store, layer, &none, SC_STORE_WANT_ROWS));
            struct sc_host_slab host_slab =
                sc_host_slab_get(world->store, layer, &range, SC_STORE_WANT_ROWS);
            assert_int_equal(host_slab.row_at % 64, 0);
            assert_int_equal(host_slab.tag_at, 0);
            sc_host_tier_unpin(world->store->host, host_slab.slab);
            for (range.row_first = 7; range.row_first < 64; range.row_first += 5)
                for (range.row_count = 0; range.row_count <= 64 - range.row_first;
                     range.row_count += 3)
                    assert_int_equal(world_load(world, reader, layer, &range, &twin, 1).rows,
                                     range.row_count);
            range = (struct sc_store_range){.piece = twin->id, .row_first = 7, .row_count = 57};
        }
        assert_int_equal(stats_of(world).read_bytes, before);
        sc_store_readers_close(reader, 1);
        world_free(world);
    }
}

static spec_status next_of(struct world *world, struct sc_store_reader *reader,
                           struct sc_store_rows *ret_rows)
{
    return sc_store_reader_next(reader, SC_EXEC_FOREVER, NULL, ret_rows, &world->error);
}

/* Ranges of a key's pieces, whole; returns how many. */
static uint64_t whole_ranges(const struct world *world, struct sc_store_range *ret_ranges)
{
    for (uint32_t p = 0; p < world->piece_count; p++)
        ret_ranges[p] = (struct sc_store_range){.piece = world->pieces[p].id,
                                                .row_count = world->pieces[p].row_count};
    return world->piece_count;
}

/* The middle of what would be one read: it is not read. */
static void what_lies_between_is_not_read(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < SETUPS; i++) {
        struct world *world = world_in_host_tier(&setups[i], 8u << 20, 7);
        struct sc_store_range ranges[8];
        struct sc_store_rows rows = {.row_count = 1};
        if (world == NULL)
            continue;
        assert_int_equal(world_store(world, 1, 0, 256), SPEC_OK);
        struct sc_store_reader *reader = world_reader(world);
        uint64_t host_slab = 0;
        assert_int_equal(world_load_piece(world, reader, 1, &world->pieces[2]).status, SPEC_OK);
        sc_store_reader_begin(reader, 1, ranges, whole_ranges(world, ranges), SC_IO_CLASS_DEMAND);
        while (rows.row_count > 0) {
            assert_int_equal(next_of(world, reader, &rows), SPEC_OK);
            host_slab += rows.tier == SPEC_TIER_HOST ? rows.row_count : 0;
        }
        assert_int_equal(host_slab, 64);
        sc_store_readers_close(reader, 1);
        world_free(world);
    }
}

/* There is room for one slab, which is another's while the range begins, and nobody's when it goes
 * on: what is kept is never half a slab. */
static void a_range_that_began_without_room_is_not_kept(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < SETUPS; i++) {
        uint64_t slab_bytes = 64 * 2 * setups[i].k_row_bytes;
        struct world *world = world_in_host_tier(&setups[i], slab_bytes + slab_bytes / 2, 8);
        struct sc_store_range ranges[2];
        struct sc_store_rows rows;
        if (world == NULL)
            continue;
        assert_int_equal(world_store(world, 1, 0, 128), SPEC_OK);
        assert_int_equal(whole_ranges(world, ranges), 2);
        struct sc_store_reader *one = world_reader(world), *other = world_reader(world);
        sc_store_reader_begin(other, 0, &ranges[1], 1, SC_IO_CLASS_DEMAND);
        assert_int_equal(next_of(world, other, &rows), SPEC_OK);
        assert_in_range(rows.row_count, 1, 63); /* it goes on being filled */
        sc_store_reader_begin(one, 0, &ranges[0], 1, SC_IO_CLASS_DEMAND);
        assert_int_equal(next_of(world, one, &rows), SPEC_OK);
        assert_in_range(rows.row_count, 1, 63);
        sc_store_reader_cancel(other);
        while (rows.row_count > 0)
            assert_int_equal(next_of(world, one, &rows), SPEC_OK);
        assert_false(sc_host_slab_has(world->store, 0, &ranges[0], SC_STORE_WANT_ROWS));
        assert_int_equal(world_load_piece(world, one, 0, &world->pieces[0]).rows, 64);
        assert_true(sc_host_slab_has(world->store, 0, &ranges[0], SC_STORE_WANT_ROWS));
        assert_int_equal(world_load_piece(world, one, 0, &world->pieces[0]).rows, 64);
        sc_store_readers_close(one, 1);
        sc_store_readers_close(other, 1);
        world_free(world);
    }
}

/* What a load has planned to read comes into memory by another before it is read: every row comes
 * once. Longer than what a reader has slots for. */
static void what_others_fill_meanwhile_comes_once(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < SETUPS; i++) {
        struct world *world = world_in_host_tier(&setups[i], 32u << 20, 9);
        static struct sc_store_range ranges[64];
        static uint8_t expected[2 * 1504];
        uint64_t came = 0, row_bytes = 2 * setups[i].k_row_bytes;
        struct sc_store_rows rows = {.row_count = 1};
        if (world == NULL)
            continue;
        for (uint64_t row = 0; row < 2560; row += 640)
            assert_int_equal(world_store(world, 1, row, 640), SPEC_OK);
        uint64_t count = whole_ranges(world, ranges);
        struct sc_store_reader *one = world_reader(world), *other = world_reader(world);
        sc_store_reader_begin(one, 0, ranges, count, SC_IO_CLASS_DEMAND);
        assert_int_equal(world_load_key(world, other, 0, 1).rows, 2560);
        for (; rows.row_count > 0; came += rows.row_count) {
            assert_int_equal(next_of(world, one, &rows), SPEC_OK);
            assert_true(rows.row_count == 0 || rows.row_first == came);
            for (uint64_t r = 0; r < rows.row_count; r++) {
                row_fill(expected, row_bytes, 1, 0, came + r);
                bytes_equal(rows.rows + r * row_bytes, expected, row_bytes);
            }
        }
        assert_int_equal(came, 2560);
        sc_store_readers_close(one, 1);
        sc_store_readers_close(other, 1);
        world_free(world);
    }
}

/* A piece that was dropped is not had from memory, nor is a layer that is none, nor are rows that
 * it has not. */
static void what_may_not_be_read_is_not_had_from_memory(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < SETUPS; i++) {
        struct world *world = world_in_host_tier(&setups[i], 8u << 20, 10);
        struct sc_store_range ranges[2];
        if (world == NULL)
            continue;
        assert_int_equal(world_store(world, 1, 0, 128), SPEC_OK);
        assert_int_equal(whole_ranges(world, ranges), 2);
        rows_ok(world, 1);
        struct sc_store_reader *reader = world_reader(world);
        const struct world_piece *twins[] = {&world->pieces[0], &world->pieces[1]};
        struct sc_store_range long_one = ranges[1];
        long_one.row_count++;
        assert_int_equal(world_load(world, reader, 0, &long_one, &twins[1], 1).status,
                         SPEC_E_CORRUPT);
        rows_ok(world, 1);
        sc_store_pieces_drop(world->store, &ranges[0].piece, 1);
        assert_int_equal(world_load(world, reader, 0, ranges, twins, 1).status, SPEC_E_CORRUPT);
        assert_int_equal(world_load(world, reader, 0, &ranges[1], &twins[1], 1).rows, 64);
        sc_store_readers_close(reader, 1);
        world_free(world);
    }
}

/* Loads that fail anywhere, in a tier of one page and in one of a few slabs: what comes is right,
 * and what is kept too. */
static void loads_that_fail_keep_nothing_wrong(void **state)
{
    static const uint64_t sizes[] = {4096, 600u << 10};
    (void)state;
    for (uint32_t i = 0; i < 2; i++) /* the simulated ones */
        for (uint32_t s = 0; s < 2; s++) {
            struct world *world = world_in_host_tier(&setups[i], sizes[s], 11 + s);
            struct sc_host_tier_stats stats;
            uint64_t failed = 0;
            assert_int_equal(world_store(world, 1, 5, 300), SPEC_OK);
            struct sc_store_reader *reader = world_reader(world);
            for (uint32_t round = 0; round < 60; round++) {
                sc_io_sim_fault_nth(world->disk, round % 2 == 0 ? SC_SIM_READ_EIO : SC_SIM_FLIP,
                                    round / 2 % 7);
                failed += world_load_key(world, reader, round % 3, 1).status != SPEC_OK;
                sc_io_sim_fault_ppm(world->disk, SC_SIM_READ_EIO, 0);
                sc_io_sim_fault_ppm(world->disk, SC_SIM_FLIP, 0);
                assert_int_equal(world_load_key(world, reader, round % 3, 1).rows, 300);
                sc_host_tier_stats(world->store->host, &stats);
                assert_in_range(stats.bytes_used, 0, sizes[s]);
            }
            assert_true(failed > 10);
            sc_store_readers_close(reader, 1);
            world_free(world);
        }
}

/* ---- Threads --------------------------------------------------------------------------------- */

#define LOADERS 4u
#ifdef SC_SANITIZED
#define LOADS 60u
#else
#define LOADS 300u
#endif

struct loader { /* a thread that loads what others load, and often not to the end */
    struct world *world;
    struct sc_store_range ranges[16];
    uint64_t seed, range_count, host_slab, bites_max;
    bool is_wrong;
    struct sc_store_selector *selector; /* of layer 0, all of the ranges */
    pthread_t thread;
    uint64_t wanted[16]; /* of the last load that was narrowed */
};

/* first: of the load's first row. */
static bool rows_are_right(const struct loader *loader, uint32_t layer, uint64_t first,
                           const struct sc_store_rows *rows)
{
    static _Thread_local uint8_t expected[4096];
    uint64_t half = loader->world->setup->k_row_bytes;
    for (uint64_t i = 0; i < rows->row_count; i++) {
        row_fill(expected, 2 * half, 1, layer, first + rows->row_first + i);
        if (memcmp(rows->rows + i * rows->stride, expected, half) != 0 ||
            memcmp(rows->v + i * rows->stride, expected + half, half) != 0)
            return false;
    }
    return true;
}

/* From a piece on, to the end or to a cancel. */
static void loader_load(struct loader *loader, struct sc_store_reader *reader)
{
    uint32_t layer = (uint32_t)random_below(&loader->seed, loader->world->setup->layers);
    uint64_t first = random_below(&loader->seed, loader->range_count);
    uint64_t most = 1 + random_below(&loader->seed, loader->bites_max);
    struct sc_store_rows rows = {.row_count = 1};
    sc_store_reader_begin(reader, layer, loader->ranges + first, loader->range_count - first,
                          most % 2 == 0 ? SC_IO_CLASS_DEMAND : SC_IO_CLASS_SPECULATIVE);
    for (uint64_t n = 0; n < most && rows.row_count > 0; n++) {
        if (sc_store_reader_next(reader, SC_EXEC_FOREVER, NULL, &rows, NULL) != SPEC_OK ||
            !rows_are_right(loader, layer, first * 64, &rows))
            loader->is_wrong = true;
        loader->host_slab += rows.tier == SPEC_TIER_HOST ? rows.row_count : 0;
    }
    if (most % 3 > 0)
        sc_store_reader_cancel(reader);
}

/* Chosen rows that are narrowed, and consumed for a while or not at all. */
static void loader_pick(struct loader *loader, struct sc_store_reader *reader)
{
    uint64_t *wanted = loader->wanted, covered[16] = {0};
    const struct sc_store_gather_rows picks = {.count = loader->range_count * 64,
                                               .whole_slabs = random_below(&loader->seed, 2) == 0};
    sc_store_reader_cancel(reader); /* a load that goes on reads the bits that it was narrowed to */
    for (uint32_t i = 0; i < 16; i++)
        wanted[i] = random_below(&loader->seed, 2) == 0 ? 0 : random_below(&loader->seed, ~0ull);
    sc_store_reader_begin_gather(reader, 0, loader->ranges, loader->range_count, &picks,
                                 SC_IO_CLASS_SPECULATIVE);
    (void)sc_store_reader_narrow(reader, wanted, covered);
    for (uint32_t i = 0; i < 16; i++)
        loader->is_wrong = loader->is_wrong || (covered[i] & ~wanted[i]) != 0;
    struct sc_store_rows rows = {.row_count = 1};
    sc_store_reader_tags(reader, sc_store_selector_tags(loader->selector));
    for (uint64_t n = random_below(&loader->seed, 200); n > 0 && rows.row_count > 0; n--) {
        loader->is_wrong =
            loader->is_wrong ||
            sc_store_reader_next(reader, SC_EXEC_FOREVER, NULL, &rows, NULL) != SPEC_OK ||
            !rows_are_right(loader, 0, 0, &rows);
        loader->host_slab += rows.tier == SPEC_TIER_HOST ? rows.row_count : 0;
    }
    if (random_below(&loader->seed, 2) == 0)
        sc_store_reader_cancel(reader);
}

static void *loader_main(void *argument)
{
    struct loader *loader = argument;
    struct sc_store_reader *reader;
    for (uint32_t n = 0; n < LOADS && !loader->is_wrong; n++) {
        if (n % 20 == 0 && sc_store_readers_open(loader->world->store, 1, &reader, NULL) != SPEC_OK)
            return argument;
        if (random_below(&loader->seed, 3) == 0)
            loader_pick(loader, reader);
        else
            loader_load(loader, reader);
        if (n % 20 == 19)
            sc_store_readers_close(reader, 1);
    }
    return loader->is_wrong ? argument : NULL;
}

static void loaders_beside_each_other_get_what_is_right(void **state)
{
    static const struct world_setup threaded[] = {
        {"threads, paired", WORLD_ON(PREAD, 2), WORLD_SHAPE(PAIRED, 2, 512, 0),
         WORLD_DISK(64, 4, 64)},
        {"threads, split", WORLD_ON(PREAD, 2), WORLD_SHAPE(SPLIT, 2, 1504, 0),
         WORLD_DISK(64, 4, 64)}};
    (void)state;
    for (uint32_t i = 0; i < 4; i++) { /* from 2 on: in another order */
        struct world *world = world_make(&threaded[i % 2], 12);
        struct loader loaders[LOADERS] = {0};
        uint64_t host_slab = 0;
        if (i >= 2)
            orders_on(world, 16384);
        world->config.host_bytes = 600u << 10;
        world->config.host_policy = SC_POLICY_LRU; /* which refuses nobody */
        world_open_ok(world);
        assert_int_equal(world_store(world, 1, 0, 640), SPEC_OK);
        if (i >= 2)
            order_all(world);
        struct match match = match_of(world, 1);
        for (uint32_t l = 0; l < LOADERS; l++) {
            loaders[l].world = world;
            loaders[l].seed = l + 1;
            loaders[l].bites_max = i < 2 ? 40 : 600; /* of a row each */
            loaders[l].range_count = whole_ranges(world, loaders[l].ranges);
            loaders[l].selector = selector_make(world);
            assert_int_equal(match_load(&match, loaders[l].selector, 0, 0), SPEC_OK);
            assert_int_equal(pthread_create(&loaders[l].thread, NULL, loader_main, &loaders[l]), 0);
        }
        for (uint32_t l = 0; l < LOADERS; l++) {
            void *wrong;
            assert_int_equal(pthread_join(loaders[l].thread, &wrong), 0);
            assert_null(wrong);
            host_slab += loaders[l].host_slab;
            sc_store_selector_close(loaders[l].selector);
        }
        struct sc_host_tier_stats stats;
        sc_host_tier_stats(world->store->host, &stats);
        assert_true(host_slab > 0 && stats.evictions > 0);
        assert_in_range(stats.bytes_used, 0, 600u << 10);
        world_free(world); /* asserts that nothing is pinned */
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_second_load_reads_nothing),
        cmocka_unit_test(the_second_picks_read_nothing),
        cmocka_unit_test(parts_and_mixtures_are_right),
        cmocka_unit_test(rot_in_memory_is_found),
        cmocka_unit_test(what_ends_early_leaves_nothing),
        cmocka_unit_test(evictions_beside_loads_are_right),
        cmocka_unit_test(pieces_that_skip_rows_are_kept),
        cmocka_unit_test(what_lies_between_is_not_read),
        cmocka_unit_test(a_range_that_began_without_room_is_not_kept),
        cmocka_unit_test(what_others_fill_meanwhile_comes_once),
        cmocka_unit_test(what_may_not_be_read_is_not_had_from_memory),
        cmocka_unit_test(loads_that_fail_keep_nothing_wrong),
        cmocka_unit_test(loaders_beside_each_other_get_what_is_right),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
