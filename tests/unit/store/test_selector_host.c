/* Sketches over the host tier: the second of a match reads nothing, and gives what the first gave;
 * what rots in memory, is evicted or cannot be kept is read again; who looks beside others gets
 * what is right.
 *
 * Threads: the fixture's; the last test: five. */
#include "store/cache/host_tier_slab.h"
#include "store/read/selector.h"
#include "store/rows/tag.h"
#include "tests/unit/store/build_check.h"
#include "tests/unit/store/quant_check.h"

#include <pthread.h>

enum want { WANT_PROBES, WANT_SHORT, WANT_TAGS, WANT_CODES, WANT_K_CODES, WANTS };

static const struct world_setup setups[] = {
    {"SIM PAIRED", WORLD_ON(SIM, 0), WORLD_SHAPE(PAIRED, 3, 512, 96), WORLD_DISK(64, 4, 64)},
    {"SIM SPLIT", WORLD_ON(SIM, 0), WORLD_SHAPE(SPLIT, 3, 1504, 96), WORLD_DISK(64, 4, 64)},
    {"PREAD PAIRED", WORLD_ON(PREAD, 2), WORLD_SHAPE(PAIRED, 3, 512, 96), WORLD_DISK(64, 4, 64)},
    {"URING SPLIT", WORLD_ON(URING, 3), WORLD_SHAPE(SPLIT, 3, 512, 96), WORLD_DISK(64, 4, 64)},
};
#define SETUPS (sizeof(setups) / sizeof(setups[0]))

/* With codes of all that is stored. NULL: the machine has no such back end. */
static struct world *world_in_host_tier(const struct world_setup *setup, uint64_t host_bytes,
                                        uint64_t seed)
{
    struct world *world = world_make(setup, seed);
    world->params.selector_bytes_max = 16u << 20;
    world->config.host_bytes = host_bytes;
    keep_quant(world, true);
    return world_opened(world);
}

static void store_all(struct world *world)
{
    for (uint64_t key = 1; key <= 2; key++) {
        assert_int_equal(world_store(world, key, 10 * key, 300), SPEC_OK);
        assert_int_equal(world_store(world, key, 10 * key + 300, 23), SPEC_OK);
    }
    build_quantised(world);
}

static struct sc_store_selector_want want_of(const struct match *match, enum want want,
                                             uint32_t layer)
{
    return (struct sc_store_selector_want){.layer = layer,
                                           .io_class = SC_IO_CLASS_DEMAND,
                                           .ranges = match->ranges,
                                           .range_count = match->count,
                                           .probe_row_bytes = want == WANT_PROBES  ? 96
                                                              : want == WANT_SHORT ? 30
                                                                                   : 0,
                                           .is_quant = want >= WANT_CODES,
                                           .k_alone = want == WANT_K_CODES};
}

/* All that a selector gives is right; returns how many ranges of codes came from host memory. */
static uint64_t look_check(struct world *world, const struct match *match, enum want want,
                           uint32_t layer, struct sc_store_selector *selector)
{
    struct sc_store_slab slab;
    uint64_t host_slab = 0, rows = 0;
    const uint8_t *keys = sc_store_selector_keys(selector);
    if (want < WANT_CODES) {
        match_check(world, match, layer, want_of(match, want, layer).probe_row_bytes, selector,
                    true);
        return 0;
    }
    (void)codes_check(world, match, 0, layer, want == WANT_K_CODES, selector);
    match_check(world, match, layer, 0, selector, true);
    for (uint64_t r = 0; r < match->count; r++) {
        bool has = sc_store_slab_of(keys, r, &slab);
        host_slab += has && slab.tier == SPEC_TIER_HOST;
        rows += match->ranges[r].row_count;
    }
    assert_true(rows > 0 || host_slab == 0);
    return host_slab;
}

static uint64_t look(struct world *world, const struct match *match, enum want want, uint32_t layer,
                     struct sc_store_selector *selector)
{
    const struct sc_store_selector_want wanted = want_of(match, want, layer);
    assert_true(sc_store_selector_begin(selector, &wanted));
    spec_status status = sc_store_selector_wait(selector, SC_EXEC_FOREVER);
    if (status != SPEC_OK)
        fail_msg("%s: want %d: status %d: %s", world->setup->name, (int)want, (int)status,
                 world->last_line);
    return look_check(world, match, want, layer, selector);
}

static void look_at_all(struct world *world, enum want want)
{
    struct sc_store_selector *selector = selector_make(world);
    struct match match = match_of(world, 1);
    for (uint32_t layer = 0; layer < world->setup->layers; layer++)
        (void)look(world, &match, want, layer, selector);
    sc_store_selector_close(selector);
}

static void the_second_selector_reads_nothing(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < SETUPS; i++)
        for (uint32_t want = 0; want < WANTS; want++) {
            struct world *world = world_in_host_tier(&setups[i], 8u << 20, want);
            if (world == NULL)
                continue;
            store_all(world);
            uint64_t before = stats_of(world).read_bytes;
            look_at_all(world, want);
            assert_true(stats_of(world).read_bytes > before);
            before = stats_of(world).read_bytes;
            look_at_all(world, want);
            assert_int_equal(stats_of(world).read_bytes, before);
            look_at_all(world, want == WANT_CODES    ? WANT_K_CODES
                               : want == WANT_PROBES ? WANT_SHORT
                                                     : want); /* a part of what is there */
            assert_int_equal(stats_of(world).read_bytes, before);
            world_free(world);
        }
}

/* Codes and tags of a piece come in reads of their own. Whichever comes last, the slab has both. */
static void a_slab_of_codes_waits_for_its_tags(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 2; i++)
        for (uint64_t late = 0; late < 12; late++) {
            struct world *world = world_make(&setups[i], late);
            world->params.selector_bytes_max = 16u << 20;
            world->config.host_bytes = 8u << 20;
            world->config.io_op_bytes = 40u << 10; /* a run's codes are several reads */
            keep_quant(world, true);
            world_open_ok(world);
            store_all(world);
            struct match match = match_of(world, 1);
            struct sc_store_selector *selector = selector_make(world);
            sc_io_sim_fault_scope(world->disk, "/seg-");
            sc_io_sim_fault_nth(world->disk, SC_SIM_LATE, late);
            (void)look(world, &match, WANT_CODES, 1, selector);
            sc_io_sim_fault_nth(world->disk, SC_SIM_LATE, UINT64_MAX);
            uint64_t before = stats_of(world).read_bytes;
            assert_true(look(world, &match, WANT_CODES, 1, selector) > 0);
            assert_int_equal(stats_of(world).read_bytes, before);
            sc_store_selector_close(selector);
            world_free(world);
        }
}

/* K's codes are there when K and V's are wanted: the slab gives way to one that has both. */
static void a_slab_gives_way_to_one_of_more(void **state)
{
    (void)state;
    struct world *world = world_in_host_tier(&setups[0], 8u << 20, 1);
    store_all(world);
    look_at_all(world, WANT_K_CODES);
    uint64_t before = stats_of(world).read_bytes;
    look_at_all(world, WANT_CODES);
    assert_true(stats_of(world).read_bytes > before);
    before = stats_of(world).read_bytes;
    look_at_all(world, WANT_CODES);
    assert_int_equal(stats_of(world).read_bytes, before);
    world_free(world);
}

static struct match match_random(const struct world *world, uint64_t *random)
{
    struct match match = {.count = 0};
    uint64_t count = 1 + random_below(random, 20), next = random_below(random, world->piece_count);
    for (uint64_t r = 0; r < count; r++) {
        bool jumps = random_below(random, 4) == 0;
        next = (next + 1 + (jumps ? random_below(random, world->piece_count) : 0)) %
               world->piece_count;
        const struct world_piece *twin = &world->pieces[next];
        uint32_t first = 0, rows = twin->row_count;
        if (random_below(random, 3) == 0) {
            first = (uint32_t)random_below(random, rows);
            rows = (uint32_t)random_below(random, rows - first + 1);
        }
        match_add(&match, twin, first, rows);
    }
    if (match.rows == 0)
        match_add(&match, &world->pieces[0], 0, world->pieces[0].row_count);
    return match;
}

/* Any ranges, of anything, with room for all, for some, and for one page. */
static void any_ranges_are_right_from_both(void **state)
{
    static const uint64_t sizes[] = {4u << 20, 160u << 10, 4096};
    (void)state;
    for (uint32_t i = 0; i < SETUPS; i++)
        for (uint32_t s = 0; s < 3; s++) {
            struct world_setup setup = setups[i];
            setup.op_bytes = s == 1 ? 40u << 10 : setup.op_bytes; /* a run's codes in many reads */
            struct world *world = world_in_host_tier(&setup, sizes[s], 20 + s);
            uint64_t random = 100 * i + s + 1, host_slab = 0;
            if (world == NULL)
                continue;
            store_all(world);
            struct sc_store_selector *selector = selector_make(world);
            for (uint32_t turn = 0; turn < 120; turn++) {
                struct match match = match_random(world, &random);
                host_slab += look(world, &match, (enum want)random_below(&random, WANTS),
                                  (uint32_t)random_below(&random, setups[i].layers), selector);
            }
            assert_true(host_slab > 0 || s == 2);
            sc_store_selector_close(selector);
            world_free(world);
        }
}

/* ---- Rot ------------------------------------------------------------------------------------- */

/* The slab of a piece, pinned; NULL: there is none. */
static struct sc_host_tier_memory_slab *slab_of(const struct world *world, uint64_t piece,
                                                uint32_t layer, enum want want,
                                                struct sc_host_tier_key *ret_key)
{
    const struct sc_store *store = world->store;
    const struct sc_store_piece_entry *entry = sc_store_table_piece(&store->table, piece);
    const struct sc_store_extent_entry *extent =
        sc_store_table_extent(&store->table, entry->extent);
    *ret_key =
        (struct sc_host_tier_key){.copy = extent->copy, .first = entry->extent_row, .layer = layer};
    ret_key->kind = SC_STORE_HOST_TAGS;
    if (want == WANT_PROBES || want == WANT_SHORT) {
        ret_key->kind = SC_STORE_HOST_PROBES;
        ret_key->copy = sc_store_probes_of(extent).copy;
    } else if (want >= WANT_CODES) {
        ret_key->kind = SC_STORE_HOST_QUANT;
        ret_key->copy = atomic_load(&extent->codes)->copy;
    }
    return sc_host_tier_get(store->host, ret_key);
}

static bool is_same(const uint8_t *a, const uint8_t *b, uint64_t bytes)
{
    return memcmp(a, b, bytes) == 0;
}

/* Any byte of a slab that a load of its kind believes: it is read from the disk again, the load is
 * right, and the slab that it leaves too. */
static void rot_in_memory_is_read_over(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 2; i++)
        for (uint32_t want = 0; want < WANTS; want++) {
            struct world *world = world_in_host_tier(&setups[i], 8u << 20, 30 + want);
            struct sc_host_tier_key key;
            static uint8_t good[64u << 10];
            uint64_t random = want + 1, found = 0;
            store_all(world);
            struct sc_store_selector *selector = selector_make(world);
            struct match match = match_of(world, 1);
            (void)look(world, &match, want, 1, selector);
            for (uint32_t turn = 0; turn < 60; turn++) {
                uint64_t p = random_below(&random, 5);
                struct sc_host_tier_memory_slab *slab =
                    slab_of(world, match.ranges[p].piece, 1, want, &key);
                assert_non_null(slab);
                uint8_t *bytes = sc_host_tier_bytes(world->store->host, slab);
                uint64_t used = 64 + 2 * 512 + (want < WANT_TAGS ? 512 + 64 * 96 : 0);
                used = want == WANT_TAGS ? 64 + 512 : want >= WANT_CODES ? 64 + 512 + 3000 : used;
                uint64_t at = random_below(&random, used);
                memcpy(good, bytes, used);
                bytes[at] ^= (uint8_t)(1u << random_below(&random, 8));
                sc_host_tier_unpin(world->store->host, slab);
                uint64_t before = stats_of(world).read_bytes;
                (void)look(world, &match, want, 1, selector);
                found += stats_of(world).read_bytes > before;
                slab = slab_of(world, match.ranges[p].piece, 1, want, &key);
                assert_non_null(slab);
                bytes = sc_host_tier_bytes(world->store->host, slab);
                if (stats_of(world).read_bytes > before)
                    assert_true(is_same(good, bytes, used));
                memcpy(bytes, good, used);
                sc_host_tier_unpin(world->store->host, slab);
            }
            struct sc_store_stats stats = stats_of(world);
            assert_int_equal(stats.bad_blocks, 0); /* the disk has no bad one */
            assert_int_equal(stats.corrupt_rows, 0);
            assert_true(found > 30);
            sc_store_selector_close(selector);
            world_free(world);
        }
}

/* All rows of the match, chosen, by tags of a selector: how that ends, and in ret_tier where it
 * does.
 */
static spec_status gather_all(struct world *world, const struct match *match,
                              struct sc_store_reader *reader, struct sc_store_selector *selector,
                              uint32_t *ret_tier)
{
    const struct sc_store_gather_rows picks = {.count = match->rows};
    struct sc_store_rows rows = {.row_count = 1};
    const struct sc_store_selector_want wanted = want_of(match, WANT_TAGS, 1);
    spec_status status = SPEC_OK;
    assert_true(sc_store_selector_begin(selector, &wanted));
    assert_int_equal(sc_store_selector_wait(selector, SC_EXEC_FOREVER), SPEC_OK);
    sc_store_reader_begin_gather(reader, 1, match->ranges, match->count, &picks,
                                 SC_IO_CLASS_DEMAND);
    sc_store_reader_tags(reader, sc_store_selector_tags(selector));
    while (status == SPEC_OK && rows.row_count > 0)
        status = sc_store_reader_next(reader, SC_EXEC_FOREVER, NULL, &rows, &world->error);
    *ret_tier = rows.tier;
    return status;
}

/* A tag that a read brought wrong is kept as it came, until a row does not agree with it: who asks
 * again gets that of the disk, and is right. */
static void a_tag_that_came_wrong_does_not_stay(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 2; i++) {
        struct world *world = world_in_host_tier(&setups[i], 8u << 20, 70);
        struct sc_host_tier_key key;
        uint32_t tier;
        store_all(world);
        struct sc_store_selector *selector = selector_make(world);
        struct sc_store_reader *reader = world_reader(world);
        struct match match = match_of(world, 1);
        assert_int_equal(world_load_key(world, reader, 1, 1).status, SPEC_OK); /* rows are kept */
        assert_int_equal(gather_all(world, &match, reader, selector, &tier), SPEC_OK);
        struct sc_host_tier_memory_slab *slab =
            slab_of(world, match.ranges[1].piece, 1, WANT_TAGS, &key);
        assert_non_null(slab);
        uint8_t *bytes = sc_host_tier_bytes(world->store->host, slab);
        uint64_t tag_bytes = sc_store_selector_tags_bytes(world->store, match.ranges[1].row_count);
        uint64_t seed = key.copy * UINT64_C(0x9e3779b97f4a7c15) + key.first;
        bytes[64 + 17] ^= 1;
        uint64_t sum = sc_store_checksum(bytes + 64, tag_bytes,
                                         seed * UINT64_C(0x9e3779b97f4a7c15) + key.layer);
        memcpy(bytes, &sum, sizeof(sum)); /* as if it had been so */
        sc_host_tier_unpin(world->store->host, slab);
        assert_int_equal(gather_all(world, &match, reader, selector, &tier), SPEC_E_CORRUPT);
        assert_int_equal(tier, SPEC_TIER_HOST);
        assert_int_equal(gather_all(world, &match, reader, selector, &tier), SPEC_OK);
        sc_store_readers_close(reader, 1);
        sc_store_selector_close(selector);
        world_free(world);
    }
}

/* ---- What ends, fails, or goes ----------------------------------------------------------------
 */

/* Loads that are ended at any time, and others begun at once: nothing stays pinned or half there.
 */
static void what_ends_early_leaves_nothing(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < SETUPS; i++) {
        struct world *world = world_in_host_tier(&setups[i], 200u << 10, 40);
        uint64_t random = 7 + i;
        if (world == NULL)
            continue;
        store_all(world);
        struct sc_store_selector *selector = selector_make(world);
        for (uint32_t turn = 0; turn < 200; turn++) {
            struct match match = match_random(world, &random);
            enum want want = (enum want)random_below(&random, WANTS);
            struct sc_store_selector_want wanted = want_of(&match, want, turn % setups[i].layers);
            wanted.io_class = turn % 2 == 0 ? SC_IO_CLASS_SPECULATIVE : SC_IO_CLASS_DEMAND;
            assert_true(sc_store_selector_begin(selector, &wanted));
            if (random_below(&random, 2) == 0)
                (void)sc_store_selector_wait(selector, sc_exec_now_ns(world->exec) +
                                                           random_below(&random, 200000));
            if (random_below(&random, 3) == 0)
                sc_store_selector_end(selector);
            if (random_below(&random, 4) == 0)
                (void)look(world, &match, want, turn % setups[i].layers, selector);
            sc_store_selector_end(selector); /* its ranges are gone */
        }
        sc_store_selector_close(selector);
        world_free(world); /* asserts that nothing is pinned */
    }
}

/* Reads fail beside ranges that are there, and what is kept is right. */
static void reads_that_fail_keep_nothing_wrong(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 2; i++) {
        struct world *world = world_in_host_tier(&setups[i], 300u << 10, 50);
        uint64_t random = 9 + i, failed = 0;
        store_all(world);
        struct sc_store_selector *selector = selector_make(world);
        for (uint32_t turn = 0; turn < 100; turn++) {
            struct match match = match_random(world, &random);
            enum want want = (enum want)random_below(&random, WANTS);
            const struct sc_store_selector_want wanted = want_of(&match, want, 1);
            sc_io_sim_fault_nth(world->disk, turn % 2 == 0 ? SC_SIM_READ_EIO : SC_SIM_FLIP,
                                random_below(&random, 4));
            assert_true(sc_store_selector_begin(selector, &wanted));
            failed += sc_store_selector_wait(selector, SC_EXEC_FOREVER) != SPEC_OK;
            sc_store_selector_end(selector);
            sc_io_sim_fault_nth(world->disk, SC_SIM_READ_EIO, UINT64_MAX);
            sc_io_sim_fault_nth(world->disk, SC_SIM_FLIP, UINT64_MAX);
            if (want < WANT_TAGS) /* tags of rows are proved by rows: a flip may be kept */
                (void)look(world, &match, WANT_PROBES, 2, selector);
        }
        assert_true(failed > 5);
        sc_store_selector_close(selector);
        world_free(world);
    }
}

/* A load, and its memory as it was when it was first found whole. */
struct held_load {
    struct sc_store_selector *selector;
    struct match match;
    bool is_begun;
    uint8_t *whole; /* NULL: not yet */
    const uint8_t *keys;
    uint64_t bytes;
};

/* Whoever copies the memory once the load is there has what the load has until it ends. */
static void loaded_check(struct held_load *loaded, const struct world *world)
{
    const struct sc_store_pool *pool = &world->store->pool;
    if (!loaded->is_begun || sc_store_selector_state(loaded->selector) != SPEC_OK)
        return;
    const uint8_t *keys = sc_store_selector_keys(loaded->selector);
    if (loaded->whole == NULL) {
        uint64_t block = (uint64_t)(keys - pool->base) / SC_STORE_POOL_BLOCK_BYTES;
        loaded->keys = keys;
        loaded->bytes = pool->runs[block].blocks * SC_STORE_POOL_BLOCK_BYTES;
        loaded->whole = malloc(loaded->bytes);
        assert_non_null(loaded->whole);
        memcpy(loaded->whole, keys, loaded->bytes);
    }
    assert_ptr_equal(keys, loaded->keys);
    assert_memory_equal(keys, loaded->whole, loaded->bytes);
}

static void loaded_end(struct held_load *loaded, const struct world *world)
{
    loaded_check(loaded, world);
    sc_store_selector_end(loaded->selector);
    free(loaded->whole);
    loaded->whole = NULL;
    loaded->is_begun = false;
}

/* Loads beside each other, of which some fail, and some are ended, in little memory. */
static void a_load_that_is_whole_stays_as_it_is(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < SETUPS; i++) {
        struct held_load all[5] = {{.is_begun = false}};
        struct world *world = world_in_host_tier(&setups[i], 200u << 10, 60);
        uint64_t random = 11 + i, wholes = 0;
        if (world == NULL)
            continue;
        store_all(world);
        for (uint32_t n = 0; n < 5; n++)
            all[n].selector = selector_make(world);
        for (uint32_t turn = 0; turn < 400; turn++) {
            struct held_load *loaded = &all[random_below(&random, 5)];
            wholes += loaded->whole != NULL;
            loaded_end(loaded, world);
            loaded->match = match_random(world, &random);
            struct sc_store_selector_want wanted =
                want_of(&loaded->match, (enum want)random_below(&random, WANTS),
                        (uint32_t)random_below(&random, setups[i].layers));
            wanted.io_class = turn % 2 == 0 ? SC_IO_CLASS_SPECULATIVE : SC_IO_CLASS_DEMAND;
            if (setups[i].backend == SC_BACKEND_SIM)
                sc_io_sim_fault_nth(world->disk, turn % 3 == 0 ? SC_SIM_FLIP : SC_SIM_READ_EIO,
                                    random_below(&random, 40));
            loaded->is_begun = sc_store_selector_begin(loaded->selector, &wanted);
            struct held_load *other = &all[random_below(&random, 5)];
            uint64_t until_ns = sc_exec_now_ns(world->exec) + random_below(&random, 400000);
            if (other->is_begun) /* now and then to its end, on however busy a machine */
                (void)sc_store_selector_wait(other->selector,
                                             turn % 4 == 1 ? SC_EXEC_FOREVER : until_ns);
            for (uint32_t n = 0; n < 5; n++)
                loaded_check(&all[n], world);
        }
        assert_true(wholes > 50);
        for (uint32_t n = 0; n < 5; n++) {
            loaded_end(&all[n], world);
            sc_store_selector_close(all[n].selector);
        }
        world_free(world);
    }
}

/* A piece that is dropped: none of its slabs is found any more. */
static void slabs_of_a_piece_go_with_it(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 2; i++) {
        struct world *world = world_in_host_tier(&setups[i], 8u << 20, 60);
        struct sc_host_tier_key key;
        store_all(world);
        for (uint32_t want = WANTS; want-- > 0;) /* tags first: probe rows' slabs have them too */
            look_at_all(world, want);
        uint64_t piece = world->pieces[1].id;
        for (uint32_t want = 0; want < WANTS; want++) {
            struct sc_host_tier_memory_slab *slab = slab_of(world, piece, 0, want, &key);
            assert_non_null(slab);
            sc_host_tier_unpin(world->store->host, slab);
        }
        sc_store_piece_drop(world->store, piece);
        for (uint32_t want = 0; want < WANTS; want++)
            assert_null(slab_of(world, piece, 0, want, &key));
        world_free(world);
    }
}

/* A slab goes between begin and the copy: its range is read. */
static void what_goes_meanwhile_is_read(void **state)
{
    (void)state;
    for (uint32_t want = 0; want < WANTS; want++)
        for (uint32_t i = 0; i < 2; i++) {
            struct world *world = world_in_host_tier(&setups[i], 8u << 20, 70);
            struct sc_host_tier_key key;
            store_all(world);
            look_at_all(world, want);
            struct match match = match_of(world, 1);
            struct sc_store_selector *selector = selector_make(world);
            const struct sc_store_selector_want wanted = want_of(&match, want, 2);
            for (uint32_t gone = 1; gone < 32; gone += 6) {
                assert_true(sc_store_selector_begin(selector, &wanted));
                for (uint32_t p = 0; p < match.count; p++) {
                    struct sc_host_tier_memory_slab *slab =
                        slab_of(world, match.ranges[p].piece, 2, want, &key);
                    if (slab != NULL && (gone >> p % 5 & 1) != 0)
                        sc_host_tier_forget(world->store->host, &key);
                    sc_host_tier_unpin(world->store->host, slab);
                }
                assert_int_equal(sc_store_selector_wait(selector, SC_EXEC_FOREVER), SPEC_OK);
                (void)look_check(world, &match, want, 2, selector);
                (void)look(world, &match, want, 2, selector);
            }
            sc_store_selector_close(selector);
            world_free(world);
        }
}

/* ---- Threads --------------------------------------------------------------------------------- */

#define LOOKERS 4u
#ifdef SC_SANITIZED
#define LOOKS 40u
#else
#define LOOKS 200u
#endif

struct looker { /* a thread whose loads end early, or give what is right */
    struct world *world;
    uint64_t seed, host_slab;
    bool is_wrong;
    pthread_t thread;
};

static bool keys_are_right(const struct world *world, const struct match *match, uint32_t layer,
                           const uint8_t *keys)
{
    static _Thread_local uint8_t expected_row[4096];
    for (uint64_t r = 0, at = 0; r < match->count; r++)
        for (uint64_t n = 0; n < match->ranges[r].row_count; n++, at++) {
            uint64_t position = match->twins[r]->first_position + match->ranges[r].row_first + n;
            row_fill(expected_row, 2 * world->setup->k_row_bytes, match->twins[r]->key, layer,
                     position);
            if (memcmp(keys + at * 96, expected_row, 96) != 0)
                return false;
        }
    return true;
}

static void *looker_main(void *argument)
{
    struct looker *looker = argument;
    struct world *world = looker->world;
    struct sc_store_selector *selector = NULL;
    if (sc_store_selector_open(world->store, SELECTOR_ROWS_MAX, SELECTOR_ROWS_MAX, &selector,
                               NULL) != SPEC_OK)
        return argument;
    for (uint32_t n = 0; n < LOOKS && !looker->is_wrong; n++) {
        struct match match = match_random(world, &looker->seed);
        enum want want = random_below(&looker->seed, 2) == 0 ? WANT_PROBES : WANT_CODES;
        uint32_t layer = (uint32_t)random_below(&looker->seed, world->setup->layers);
        struct sc_store_selector_want wanted = want_of(&match, want, layer);
        wanted.io_class = n % 2 == 0 ? SC_IO_CLASS_SPECULATIVE : SC_IO_CLASS_DEMAND;
        if (!sc_store_selector_begin(selector, &wanted))
            looker->is_wrong = true;
        if (random_below(&looker->seed, 4) == 0) {
            sc_store_selector_end(selector);
            continue;
        }
        struct sc_store_slab slab;
        if (sc_store_selector_wait(selector, SC_EXEC_FOREVER) != SPEC_OK)
            looker->is_wrong = true;
        const uint8_t *keys = sc_store_selector_keys(selector);
        if (want == WANT_PROBES && !keys_are_right(world, &match, layer, keys))
            looker->is_wrong = true;
        for (uint64_t r = 0; r < match.count && want == WANT_CODES; r++)
            looker->host_slab += sc_store_slab_of(keys, r, &slab) && slab.tier == SPEC_TIER_HOST;
        sc_store_selector_end(selector);
    }
    sc_store_selector_close(selector);
    return looker->is_wrong ? argument : NULL;
}

static void lookers_beside_each_other_get_what_is_right(void **state)
{
    static const struct world_setup threaded[] = {
        {"PREAD PAIRED", WORLD_ON(PREAD, 2), WORLD_SHAPE(PAIRED, 3, 512, 96),
         WORLD_DISK(64, 4, 64)},
        {"PREAD SPLIT", WORLD_ON(PREAD, 3), WORLD_SHAPE(SPLIT, 3, 1504, 96),
         WORLD_DISK(64, 4, 64)}};
    (void)state;
    for (uint32_t i = 0; i < 2; i++) {
        struct world *world = world_make(&threaded[i], 80);
        struct looker lookers[LOOKERS] = {0};
        uint64_t host_slab = 0;
        world->params.selector_bytes_max = 16u << 20;
        world->config.host_bytes = 150u << 10;
        world->config.host_policy = SC_POLICY_LRU; /* which refuses nobody */
        keep_quant(world, true);
        world_open_ok(world);
        store_all(world);
        for (uint32_t l = 0; l < LOOKERS; l++) {
            lookers[l].world = world;
            lookers[l].seed = l + 1;
            assert_int_equal(pthread_create(&lookers[l].thread, NULL, looker_main, &lookers[l]), 0);
        }
        for (uint32_t l = 0; l < LOOKERS; l++) {
            void *wrong;
            assert_int_equal(pthread_join(lookers[l].thread, &wrong), 0);
            assert_null(wrong);
            host_slab += lookers[l].host_slab;
        }
        struct sc_host_tier_stats stats;
        sc_host_tier_stats(world->store->host, &stats);
        assert_true(host_slab > 0 && stats.evictions > 0);
        world_free(world); /* asserts that nothing is pinned */
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_second_selector_reads_nothing),
        cmocka_unit_test(a_slab_of_codes_waits_for_its_tags),
        cmocka_unit_test(a_slab_gives_way_to_one_of_more),
        cmocka_unit_test(any_ranges_are_right_from_both),
        cmocka_unit_test(rot_in_memory_is_read_over),
        cmocka_unit_test(a_tag_that_came_wrong_does_not_stay),
        cmocka_unit_test(what_ends_early_leaves_nothing),
        cmocka_unit_test(reads_that_fail_keep_nothing_wrong),
        cmocka_unit_test(a_load_that_is_whole_stays_as_it_is),
        cmocka_unit_test(slabs_of_a_piece_go_with_it),
        cmocka_unit_test(what_goes_meanwhile_is_read),
        cmocka_unit_test(lookers_beside_each_other_get_what_is_right),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
