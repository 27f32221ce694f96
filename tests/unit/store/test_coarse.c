/* Extents that give their rows up: pages come back after the leases, codes stay, over reopens,
 * checkpoints, followers, drops in any order, faults, and power cuts at every write.
 *
 * Threads: the fixture's. */
#include "tests/unit/store/build_check.h"
#include "tests/unit/store/codes_check.h"
#include "tests/unit/store/space_check.h"

#define LEASE_NS UINT64_C(1000000000)

static const struct world_setup setups[] = {
    {"sim, paired", WORLD_ON(SIM, 0), WORLD_SHAPE(PAIRED, 3, 512, 0), WORLD_DISK(64, 4, 64)},
    {"sim, split, a slab is more than an operation", WORLD_ON(SIM, 0),
     WORLD_SHAPE(SPLIT, 2, 1504, 0), WORLD_DISK(64, 2, 64)},
    {"sim, one page a row", WORLD_ON(SIM, 0), WORLD_SHAPE(PAIRED, 3, 2048, 0),
     WORLD_DISK(64, 4, 128)},
    {"pread, paired, 2 threads", WORLD_ON(PREAD, 2), WORLD_SHAPE(PAIRED, 3, 512, 0),
     WORLD_DISK(64, 4, 64)},
    {"io_uring, split, 3 threads", WORLD_ON(URING, 3), WORLD_SHAPE(SPLIT, 2, 512, 0),
     WORLD_DISK(64, 4, 64)},
};
#define SETUPS (sizeof(setups) / sizeof(setups[0]))

/* A store that codes what it gets; NULL: no such back end here. */
static struct world *world_coded(const struct world_setup *setup, uint64_t seed)
{
    struct world *world = world_make(setup, seed);
    keep_codes(world, true);
    world->config.lease_ns_max = LEASE_NS;
    return world_opened(world);
}

/* A key of so many tokens none of whose slabs is raw, with codes; its number is >= key. */
static uint64_t key_store(struct world *world, uint64_t key, uint64_t count)
{
    static uint8_t scales[SCALE_BYTES], codes[256 * K_CODE_BYTES];
    for (bool is_raw = true; is_raw; key += is_raw) {
        is_raw = false;
        for (uint64_t at = 0; at < count; at += 64)
            for (uint32_t layer = 0; layer < world->setup->layers; layer++) {
                struct world_piece twin = {.key = key,
                                           .first_position = at,
                                           .row_count =
                                               (uint32_t)(count - at < 64 ? count - at : 64)};
                is_raw =
                    is_raw || !expected(world, &twin, 0, layer, SC_STORE_PART_K, scales, codes);
            }
    }
    assert_int_equal(world_store(world, key, 0, count), SPEC_OK);
    build_quantised(world);
    return key;
}

static uint64_t piece_of_key(const struct world *world, uint64_t key)
{
    for (uint32_t i = 0; i < world->piece_count; i++)
        if (world->pieces[i].key == key)
            return world->pieces[i].id;
    fail_msg("no key %lu", (unsigned long)key);
    return 0;
}

static spec_status coarsen(struct world *world, uint64_t piece)
{
    struct sc_store_coarse_extent found = sc_store_coarse_find(world->store, piece);
    spec_status status = found.id != 0 ? SPEC_OK : SPEC_E_STALE;
    for (uint32_t layer = 0; layer < world->setup->layers && status == SPEC_OK; layer++)
        status = sc_store_coarse_check(world->store, found.id, layer);
    if (status != SPEC_OK)
        return status;
    sc_store_coarse_mark(world->store, found.id);
    sc_store_coarse_marked(world->store);
    assert_true(sc_store_piece_is_coarse(world->store, piece, 0));
    status = sc_store_coarse_commit(world->store, found.id, &world->error);
    if (status != SPEC_OK)
        sc_store_coarse_unmark(world->store, found.id);
    assert_int_equal(sc_store_piece_is_coarse(world->store, piece, 0), status == SPEC_OK);
    return status;
}

/* How many ranges of the key have codes, asked for without tags, as coarse ones are. */
static uint64_t codes_of(struct world *world, uint64_t key, bool is_coarse)
{
    struct sc_store_sketch *sketch = sketch_make(world);
    uint64_t count = 0;
    struct match match = match_of(world, key);
    for (uint64_t r = 0; r < match.count; r++)
        match.ranges[r].is_coarse = is_coarse;
    for (uint32_t layer = 0; layer < world->setup->layers; layer++) {
        assert_true(quantised_begin(sketch, &match, layer, SC_LANE_DEMAND));
        assert_int_equal(sc_store_sketch_wait(sketch, SC_EXEC_FOREVER), SPEC_OK);
        count += codes_check(world, &match, 0, layer, false, sketch);
    }
    sc_store_sketch_close(sketch);
    return count;
}

static spec_status rows_status(struct world *world, uint64_t key)
{
    struct sc_store_reader *reader = world_reader(world);
    spec_status status = SPEC_OK;
    for (uint32_t layer = 0; layer < world->setup->layers && status == SPEC_OK; layer++)
        status = world_load_key(world, reader, layer, key).status;
    sc_store_readers_close(reader, 1);
    return status;
}

/* ---- Giving rows up ------------------------------------------------------------------------- */

static void rows_go_after_the_leases_and_codes_stay(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < SETUPS; i++) {
        struct world *world = world_coded(&setups[i], 7);
        if (world == NULL)
            continue;
        uint64_t first = key_store(world, 1, 256), second = key_store(world, first + 1, 192);
        uint64_t layers = setups[i].layers, held = stats_of(world).extent_bytes;
        assert_int_equal(coarsen(world, piece_of_key(world, first)), SPEC_OK);
        assert_int_equal(coarsen(world, piece_of_key(world, first)), SPEC_E_STALE); /* once */
        space_check(world->store);
        struct sc_store_stats stats = stats_of(world);
        assert_int_equal(stats.extent_bytes, held);
        assert_true(stats.quarantine_bytes >= 256 * layers * 2 * setups[i].k_row_bytes);
        assert_int_equal(stats.coarse_pieces, 4);
        assert_int_equal(rows_status(world, first), SPEC_OK); /* a lease may still read them */
        assert_int_equal(codes_of(world, first, true), 4 * layers);
        release_all(world);
        stats = stats_of(world);
        assert_int_equal(stats.quarantine_bytes, 0);
        assert_true(stats.extent_bytes + 256 * layers * 2 * setups[i].k_row_bytes <= held);
        assert_int_equal(codes_of(world, first, true), 4 * layers);
        assert_int_equal(rows_status(world, second), SPEC_OK);
        uint64_t bad = stats.bad_blocks;
        uint64_t third = key_store(world, second + 1, 256); /* over what is free now */
        assert_int_equal(rows_status(world, third), SPEC_OK);
        assert_int_equal(codes_of(world, first, true), 4 * layers);
        for (uint32_t opened = 0; opened < 3; opened++) {
            if (opened == 1)
                assert_int_equal(sc_store_checkpoint(world->store, NULL), SPEC_OK);
            world_reopen(world);
            space_check(world->store);
            assert_int_equal(stats_of(world).coarse_pieces, 4);
            assert_int_equal(stats_of(world).corrupt_records, 0);
            assert_int_equal(codes_of(world, first, true), 4 * layers);
            assert_int_equal(rows_status(world, second), SPEC_OK);
            assert_int_equal(rows_status(world, third), SPEC_OK);
            assert_true(sc_store_piece_is_coarse(world->store, piece_of_key(world, first), 0));
            assert_false(sc_store_piece_is_coarse(world->store, piece_of_key(world, second), 0));
        }
        assert_int_equal(stats_of(world).bad_blocks, bad);
        world_free(world);
    }
}

/* A host's call may free some on its way: a bounded number of pieces, whose rows or whole. */
static void rows_of_many_pieces_are_freed_a_few_extents_at_a_time(void **state)
{
    (void)state;
    struct world *world = world_coded(&setups[0], 8);
    uint64_t left[4], key = 1;
    for (uint32_t i = 0; i < 3; i++) {
        key = key_store(world, key, 640);
        assert_int_equal(coarsen(world, piece_of_key(world, key++)), SPEC_OK);
    }
    left[0] = stats_of(world).quarantine_bytes;
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

/* Of an extent that is gone altogether, a checkpoint keeps nothing. */
static void a_checkpoint_forgets_extents_that_are_gone(void **state)
{
    (void)state;
    struct world *world = world_coded(&setups[0], 8);
    uint64_t bytes[3], key = 1;
    for (uint32_t i = 0; i < 3; i++) {
        for (uint32_t j = 0; j < 2 * i; j++) {
            key = key_store(world, key, 128);
            assert_int_equal(coarsen(world, piece_of_key(world, key)), SPEC_OK);
            for (uint32_t p = 0; p < world->piece_count; p++)
                if (world->pieces[p].key == key)
                    sc_store_piece_drop(world->store, world->pieces[p].id);
            key++;
        }
        release_all(world);
        assert_int_equal(sc_store_checkpoint(world->store, NULL), SPEC_OK);
        bytes[i] = world->store->log.journal.end;
        world->piece_count = 0;
    }
    assert_in_range(bytes[2] - bytes[1], 0, 16); /* numbers of the head have grown */
    world_free(world);
}

/* What a piece is worth, and whose leases still reach the rows. */
static void a_coarse_piece_says_what_it_is(void **state)
{
    (void)state;
    struct world *world = world_coded(&setups[0], 7);
    uint64_t key = key_store(world, 1, 128), piece = piece_of_key(world, key);
    struct sc_store_provenance worth;
    assert_true(sc_store_piece_provenance(world->store, piece, &worth));
    assert_int_equal(worth.held, 0);
    uint64_t before_ns = sc_exec_wall_ns(world->exec), marks = sc_store_coarse_marks(world->store);
    assert_int_equal(coarsen(world, piece), SPEC_OK);
    assert_int_equal(sc_store_coarse_marks(world->store), marks + 1);
    for (uint32_t opened = 0; opened < 2; opened++) {
        assert_true(sc_store_piece_provenance(world->store, piece, &worth));
        assert_int_equal(worth.held, 1);
        assert_int_equal(worth.bits_k, 4);
        assert_int_equal(worth.bits_v, 2);
        assert_int_equal(worth.exact_ppm, 0);
        assert_false(sc_store_piece_is_coarse(world->store, piece, before_ns + LEASE_NS));
        assert_true(sc_store_piece_is_coarse(world->store, piece, UINT64_MAX));
        world_reopen(world);
    }
    world_free(world);
}

/* A lease's time after the record, also over a reopen: no page of them is another's before. */
static void rows_wait_for_leases_over_a_reopen(void **state)
{
    (void)state;
    struct world *world = world_coded(&setups[0], 5);
    uint64_t key = key_store(world, 1, 256);
    assert_int_equal(coarsen(world, piece_of_key(world, key)), SPEC_OK);
    world_reopen(world);
    space_check(world->store);
    assert_true(stats_of(world).quarantine_bytes > 0);
    assert_int_equal(rows_status(world, key), SPEC_OK);
    world_wait_ns(world, 2 * LEASE_NS);
    struct sc_store_room room;
    sc_store_room(world->store, &room);
    assert_int_equal(room.quarantine_bytes, 0);
    space_check(world->store);
    world_free(world);
}

/* Raw, damaged, or not there: the extent keeps its rows. */
static void an_extent_without_whole_codes_keeps_its_rows(void **state)
{
    (void)state;
    struct world *world = world_coded(&setups[0], 7);
    assert_int_equal(world_store(world, 1, 0, 128), SPEC_OK);
    assert_int_equal(sc_store_coarse_find(world->store, piece_of_key(world, 1)).id, 0);
    uint32_t raw = 0;
    for (uint64_t key = 2; key < 40; key++) {
        static uint8_t scales[SCALE_BYTES], codes[256 * K_CODE_BYTES];
        bool is_raw = false;
        assert_int_equal(world_store(world, key, 0, 64), SPEC_OK);
        build_quantised(world);
        struct world_piece twin = {.key = key, .row_count = 64};
        for (uint32_t layer = 0; layer < setups[0].layers; layer++)
            is_raw = is_raw || !expected(world, &twin, 0, layer, SC_STORE_PART_K, scales, codes);
        raw += is_raw;
        assert_int_equal(coarsen(world, piece_of_key(world, key)),
                         is_raw ? SPEC_E_CORRUPT : SPEC_OK);
        if (is_raw)
            assert_int_equal(rows_status(world, key), SPEC_OK);
    }
    assert_true(raw > 0 && raw < 38);
    uint64_t key = key_store(world, 50, 128), piece = piece_of_key(world, key);
    struct sc_store_coarse_extent found = sc_store_coarse_find(world->store, piece);
    const struct sc_store_annex *annex =
        atomic_load(&sc_store_table_extent(&world->store->table, found.id)->codes);
    uint64_t at = annex->parts[0].offset + 2 * annex->stride + 40;
    segment_flip(world, world->store->disk.segments[annex->parts[0].segment].number, at, 1);
    assert_int_equal(coarsen(world, piece), SPEC_E_CORRUPT);
    assert_int_equal(sc_store_coarse_find(world->store, piece).id, 0); /* nor looked at again */
    assert_int_equal(rows_status(world, key), SPEC_OK);
    space_check(world->store);
    world_free(world);
}

static bool fits_not(void *user, const struct sc_store_code_shape *shape)
{
    (void)user;
    return shape->bits_k != 4;
}

/* Codes that are not believed: such an extent holds nothing, and is in nobody's way. */
static void an_extent_with_neither_is_void(void **state)
{
    (void)state;
    for (uint32_t has_time = 0; has_time < 2; has_time++) {
        struct world *world = world_coded(&setups[0], 7);
        uint64_t first = key_store(world, 1, 200);
        assert_int_equal(coarsen(world, piece_of_key(world, first)), SPEC_OK);
        if (has_time == 1)
            (void)sc_store_quarantine_release(world->store, UINT64_MAX);
        uint64_t second = key_store(world, first + 1, 250);
        world->params.codes.fits = fits_not;
        world->params.codes.shape.bits_k = 5;
        for (uint32_t opened = 0; opened < 3; opened++) {
            world_reopen(world);
            space_check(world->store);
            assert_int_equal(sc_store_piece_rows(world->store, piece_of_key(world, first)), 0);
            assert_int_equal(rows_status(world, second), SPEC_OK);
            assert_int_equal(stats_of(world).coarse_pieces, 0);
            if (opened == 0)
                assert_int_equal(sc_store_checkpoint(world->store, NULL), SPEC_OK);
        }
        release_all(world);
        world_free(world);
    }
}

/* ---- With drops ----------------------------------------------------------------------------- */

/* The clock is set back by hours, or forward, while rows of several extents wait: all of them are
 * free a lease after their records, not one after the other, and none before; as if opened then. */
static void rows_wait_side_by_side_whatever_the_clock_says(void **state)
{
    (void)state;
    const int64_t hours = INT64_C(3600000000000);
    for (uint32_t way = 0; way < 3; way++) {
        struct world *world = world_coded(&setups[0], 5);
        sc_exec_wall_set(world->exec, 5 * hours);
        for (uint64_t i = 0; i < 4; i++) {
            uint64_t key = key_store(world, 1 + i, 64);
            assert_int_equal(coarsen(world, piece_of_key(world, key)), SPEC_OK);
            world_wait_ns(world, LEASE_NS / 8);
        }
        uint64_t waits = stats_of(world).quarantine_bytes;
        sc_exec_wall_set(world->exec, way == 1 ? 3 * hours : -3 * hours);
        if (way == 2)
            world_reopen(world);
        assert_int_equal(stats_of(world).quarantine_bytes, waits);
        world_wait_ns(world, LEASE_NS / 4);
        assert_int_equal(stats_of(world).quarantine_bytes, waits);
        world_wait_ns(world, LEASE_NS);
        assert_int_equal(stats_of(world).quarantine_bytes, 0);
        space_check(world->store);
        world_free(world);
    }
}

/* Pieces that are dropped before, while rows wait, and after, with releases between: a page has one
 * owner, and the last piece takes all. */
static void drops_and_rows_give_pages_back_once(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 3; i++)
        for (uint64_t seed = 0; seed < 60; seed++) {
            struct world *world = world_coded(&setups[i], seed);
            uint64_t key = key_store(world, 1 + seed, 64 * 5 + 20), random = seed * 977 + 5;
            uint64_t ids[6], left = 6;
            bool is_coarse = false;
            for (uint32_t p = 0; p < 6; p++)
                ids[p] = world->pieces[p].id;
            assert_int_equal(world->pieces[0].key, key);
            for (uint32_t step = 0; step < 24 && left > 0; step++) {
                random = random * UINT64_C(6364136223846793005) + 1442695040888963407u;
                uint64_t act = (random >> 33) % 6, pick = (random >> 40) % left;
                if (act < 2) {
                    sc_store_piece_drop(world->store, ids[pick]);
                    ids[pick] = ids[--left];
                } else if (act == 2) {
                    spec_status status = coarsen(world, ids[pick]);
                    assert_int_equal(status, is_coarse ? SPEC_E_STALE : SPEC_OK);
                    is_coarse = true;
                } else if (act == 3) {
                    (void)sc_store_quarantine_release_some(world->store, UINT64_MAX,
                                                           (random >> 50) % 3);
                } else if (act == 4) {
                    if ((random >> 50) % 2 == 0)
                        assert_int_equal(sc_store_checkpoint(world->store, NULL), SPEC_OK);
                    world_reopen(world);
                } else {
                    world_wait_ns(world, LEASE_NS / 2);
                }
                space_check(world->store);
                assert_int_equal(stats_of(world).coarse_pieces, is_coarse ? left : 0);
            }
            while (left > 0)
                sc_store_piece_drop(world->store, ids[--left]);
            release_all(world);
            assert_int_equal(stats_of(world).extent_bytes, 0);
            assert_int_equal(stats_of(world).code_bytes, 0);
            world_free(world);
        }
}

/* ---- Followers ------------------------------------------------------------------------------ */

struct heard {
    uint64_t pieces[64], count;
};

static bool heard_piece(const struct sc_store_piece *piece, uint64_t *ret_mark, void *user)
{
    (void)user;
    *ret_mark = piece->id + 1000;
    return true;
}

static void heard_coarse(uint64_t piece, uint64_t mark, void *user)
{
    struct heard *heard = user;
    assert_int_equal(mark, piece + 1000);
    heard->pieces[heard->count++] = piece;
}

static void a_follower_hears_of_it_once(void **state)
{
    (void)state;
    static const uint32_t roles[2] = {SC_STORE_READER, SC_STORE_PEER};
    for (uint32_t r = 0; r < 2; r++) {
        struct world *world = world_coded(&setups[0], 2);
        uint64_t first = key_store(world, 1, 150), second = key_store(world, first + 1, 64);
        struct heard heard = {.count = 0};
        struct sc_store_params params = world->params;
        struct sc_store *follower = NULL;
        params.role = roles[r];
        params.on_piece = heard_piece;
        params.on_coarse = heard_coarse;
        params.on_drop = NULL;
        params.on_epoch = NULL;
        params.on_average = NULL;
        params.piece_holds = NULL;
        params.user = &heard;
        assert_int_equal(sc_store_open(&params, &follower, NULL), SPEC_OK);
        assert_int_equal(heard.count, 0);
        assert_int_equal(coarsen(world, piece_of_key(world, first)), SPEC_OK);
        for (uint32_t round = 0; round < 3; round++) { /* appended; read again; opened anew */
            bool more = true;
            while (more)
                assert_int_equal(sc_store_follow(follower, &more, NULL), SPEC_OK);
            assert_int_equal(heard.count, 3);
            for (uint64_t i = 0; i < 3; i++)
                assert_int_equal(heard.pieces[i], piece_of_key(world, first) + i);
            struct sc_store_provenance worth;
            assert_true(sc_store_piece_provenance(follower, heard.pieces[0], &worth));
            assert_int_equal(worth.held, 1);
            assert_int_equal(worth.bits_k, 4);
            assert_true(sc_store_piece_provenance(follower, piece_of_key(world, second), &worth));
            assert_int_equal(worth.held, 0);
            if (roles[r] == SC_STORE_READER) {
                struct sc_store *writer = world->store;
                world->store = follower;
                assert_int_equal(codes_of(world, first, true), 9);
                assert_int_equal(rows_status(world, first), SPEC_OK); /* of a lease */
                world->store = writer;
            }
            if (round == 0)
                assert_int_equal(sc_store_checkpoint(world->store, NULL), SPEC_OK);
            if (round != 1)
                continue;
            sc_store_close(follower);
            heard.count = 0;
            assert_int_equal(sc_store_open(&params, &follower, NULL), SPEC_OK);
        }
        sc_store_close(follower);
        world_free(world);
    }
}

/* ---- Faults and power cuts ------------------------------------------------------------------ */

static void an_extent_that_could_not_give_up_its_rows_has_them(void **state)
{
    (void)state;
    static const enum sc_fault_kind KINDS[] = {SC_FAULT_ALLOC, SC_FAULT_READ, SC_FAULT_WRITE,
                                               SC_FAULT_COMPLETION};
    for (uint32_t kind = 0; kind < 4; kind++)
        for (uint64_t n = 0;; n++) {
            struct world *world = world_make(&setups[0], 6);
            keep_codes(world, true);
            world->config.lease_ns_max = LEASE_NS;
            world_faults(world);
            world_open_ok(world);
            uint64_t key = key_store(world, 1, 200), piece = piece_of_key(world, key);
            sc_fault_arm(&world->fault, KINDS[kind], n);
            spec_status status = coarsen(world, piece);
            sc_fault_arm(&world->fault, KINDS[kind], INT64_MAX);
            bool fires = atomic_load(&world->fault.fired[KINDS[kind]]) > 0;
            space_check(world->store);
            assert_int_equal(rows_status(world, key), SPEC_OK);
            if (n % 2 == 0)
                world_reopen(world);
            else
                pause_wait(world);
            space_check(world->store);
            if (status != SPEC_OK)
                assert_int_equal(coarsen(world, piece), SPEC_OK);
            release_all(world);
            assert_int_equal(codes_of(world, key, true), 4 * setups[0].layers);
            world_free(world);
            if (!fires)
                break;
        }
}

/* Power fails at any write, from the first byte of the codes to another's rows over the pages: rows
 * or codes are there, or neither and then nothing is delivered; what is delivered is right. */
static void power_cuts_leave_rows_or_codes(void **state)
{
    (void)state;
    struct world_setup setup = setups[0];
    setup.journal = 2;
    struct world *origin = world_coded(&setup, 12);
    uint64_t key = key_store(origin, 1, 200), layers = setup.layers;
    uint32_t exact = 0, coarse = 0, lost = 0;
    assert_int_equal(sc_io_file_sync(origin->store->io, origin->store->disk.segments[0].file, NULL),
                     SPEC_OK);
    assert_int_equal(sc_store_checkpoint(origin->store, NULL), SPEC_OK);
    uint64_t from = sc_io_sim_disk_events(origin->disk);
    assert_int_equal(coarsen(origin, piece_of_key(origin, key)), SPEC_OK);
    (void)sc_store_quarantine_release(origin->store, UINT64_MAX);
    uint64_t reused = sc_io_sim_disk_events(origin->disk);
    uint64_t other = key_store(origin, key + 1, 250);
    assert_int_equal(sc_store_checkpoint(origin->store, NULL), SPEC_OK);
    uint64_t to = sc_io_sim_disk_events(origin->disk);
    for (uint64_t events = from; events <= to; events++)
        for (uint64_t seed = 0; seed < 4; seed++) {
            struct world *world = world_cut(origin, events, seed, seed * 1000 + events);
            keep_codes(world, true);
            world->config.lease_ns_max = LEASE_NS;
            world_open_ok(world);
            space_check(world->store);
            uint64_t piece = piece_of_key(world, key);
            bool is_coarse = sc_store_piece_is_coarse(world->store, piece, 0);
            bool has_rows = rows_status(world, key) == SPEC_OK; /* checks every byte that comes */
            bool has_codes = codes_of(world, key, true) == 4 * layers;
            assert_true(!is_coarse || has_codes); /* synced before the record */
            assert_true(is_coarse || has_rows || events > reused);
            exact += !is_coarse && has_rows;
            coarse += is_coarse;
            lost += !is_coarse && !has_rows;
            (void)other;
            world_free(world);
        }
    print_message(
        "%u power cuts with rows, %u coarse, %u whose record was lost after its pages were "
        "others'\n",
        exact, coarse, lost);
    assert_true(exact > 0 && coarse > 0);
    world_free(origin);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_go_after_the_leases_and_codes_stay),
        cmocka_unit_test(rows_of_many_pieces_are_freed_a_few_extents_at_a_time),
        cmocka_unit_test(a_checkpoint_forgets_extents_that_are_gone),
        cmocka_unit_test(a_coarse_piece_says_what_it_is),
        cmocka_unit_test(rows_wait_for_leases_over_a_reopen),
        cmocka_unit_test(an_extent_without_whole_codes_keeps_its_rows),
        cmocka_unit_test(an_extent_with_neither_is_void),
        cmocka_unit_test(rows_wait_side_by_side_whatever_the_clock_says),
        cmocka_unit_test(drops_and_rows_give_pages_back_once),
        cmocka_unit_test(a_follower_hears_of_it_once),
        cmocka_unit_test(an_extent_that_could_not_give_up_its_rows_has_them),
        cmocka_unit_test(power_cuts_leave_rows_or_codes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
