/* The host tier over editions in another order: chunks of slots. Whoever loads a second time reads
 * tags alone, or nothing; whole loads and picks of any kind are right beside what is there, what
 * rots there and what leaves; chunks leave with the rows of their extent, and are counted.
 *
 * Threads: the fixture's. */
#include "store/cache/host_tier_slab.h"
#include "store/rows/row_permutation.h"
#include "tests/unit/store/permutation_check.h"

static const struct world_setup *const setups = build_setups;

struct tiers {
    uint64_t host_bytes, upper_bytes;
    uint32_t policy;
};
static const struct tiers large = {16u << 20, 0, SC_POLICY_LRU};

/* NULL: the machine has no such back end. */
static struct world *world_tiers(const struct world_setup *setup, const struct tiers *tiers,
                                 uint64_t span)
{
    struct world *world = world_make(setup, 8);
    orders_on(world, span);
    world->config.host_bytes = tiers->host_bytes;
    world->config.upper_bytes = tiers->upper_bytes;
    world->config.host_policy = tiers->policy;
    world->config.upper_policy = tiers->policy;
    return world_opened(world);
}

static struct sc_host_tier_stats host_stats(const struct world *world)
{
    struct sc_host_tier_stats stats;
    sc_host_tier_stats(world->store->host, &stats);
    return stats;
}

/* All rows of a match as picks, of whole slabs: what the device was asked for. */
static uint64_t picked_bytes(struct world *world, const struct match *match, uint32_t layer)
{
    struct sc_store_gather_rows picks = {.count = match->rows, .whole_slabs = true};
    return gather_load(world, match, layer, &picks, NULL).cost.read_bytes;
}

static void load_key(struct world *world, uint32_t layer, uint64_t key)
{
    struct sc_store_reader *reader = world_reader(world);
    struct loaded loaded = world_load_key(world, reader, layer, key);
    if (loaded.status != SPEC_OK)
        fail_msg("%s: %s", world->setup->name, world->error.text);
    sc_store_readers_close(reader, 1);
}

/* Whole loads make chunks, and picks find them; and the other way. */
static void the_second_load_reads_tags_alone(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 2 * BUILD_SETUPS; i++) {
        const struct world_setup *setup = &setups[i / 2];
        bool by_picks = i % 2 != 0;
        struct world *world = world_tiers(setup, &large, i % 3 == 0 ? 128 : 16384);
        if (world == NULL)
            continue;
        assert_int_equal(world_store(world, 1, 0, 300), SPEC_OK);
        order_all(world);
        struct match match = match_of(world, 1);
        for (uint32_t layer = 0; layer < setup->layers; layer++) {
            if (by_picks)
                assert_true(picked_bytes(world, &match, layer) >=
                            match.rows * setup->k_row_bytes * 2);
            else
                load_key(world, layer, 1);
            uint64_t before = stats_of(world).read_bytes;
            load_key(world, layer, 1);
            assert_in_range(stats_of(world).read_bytes - before, 1,
                            2 * match.count * 4096); /* tags */
            assert_int_equal(picked_bytes(world, &match, layer), 0);
            assert_int_equal(sc_store_piece_host_layers(world->store, match.ranges[3].piece, NULL),
                             layer + 1);
        }
        world_free(world);
    }
}

static void any_part_is_right_beside_memory(void **state)
{
    static const struct tiers kinds[] = {{16u << 20, 0, SC_POLICY_LRU},
                                         {400u << 10, 0, SC_POLICY_LRU},
                                         {400u << 10, 300u << 10, SC_POLICY_SCORE}};
    (void)state;
    uint64_t random = 9, evicted = 0, hits = 0;
    for (uint32_t i = 0; i < 3 * BUILD_SETUPS; i++) {
        struct world *world = world_tiers(&setups[i / 3], &kinds[i % 3], i % 2 == 0 ? 16384 : 100);
        if (world == NULL)
            continue;
        order_some(world);
        for (uint32_t round = 0; round < 60; round++)
            any_parts_ok(world, round, &random);
        struct sc_host_tier_stats stats = host_stats(world);
        hits += stats.hits + stats.upper_hits;
        evicted += stats.evictions;
        assert_in_range(stats.bytes_used, 0, kinds[i % 3].host_bytes);
        assert_in_range(stats.upper_bytes_used, 0, kinds[i % 3].upper_bytes);
        world_free(world); /* asserts that nothing is pinned */
    }
    assert_true(evicted > 0 && hits > 0);
}

/* The chunk that has the row of key 1's extent in a layer. */
static struct sc_host_chunk chunk_of_row(struct world *world, uint32_t layer, uint64_t row)
{
    const struct sc_store_extent_entry *extent = extent_of(world, world->pieces[0].id);
    struct sc_store_slab_where where;
    sc_store_slab_where(&world->store->shape, extent, layer,
                        sc_store_table_piece(&world->store->table, world->pieces[0].id), &where);
    assert_non_null(where.slots);
    return sc_host_chunk_of(world->store, layer, where.slots_copy, extent->row_count,
                            where.slots[row], SC_STORE_WANT_ROWS);
}

/* A bit of a row in memory changes: whoever loads the row, whole or picked, gets CORRUPT, of that
 * range, and the next load is right. */
static void rot_in_memory_is_found(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 4; i++) {
        const struct world_setup *setup = &setups[i / 2];
        struct world *world = world_tiers(setup, &large, 16384);
        assert_int_equal(world_store(world, 1, 0, 300), SPEC_OK);
        order_all(world);
        struct match match = match_of(world, 1);
        load_key(world, 1, 1);
        const struct sc_store_section *order =
            atomic_load(&extent_of(world, world->pieces[0].id)->permutation);
        uint64_t slot = sc_store_permutation_of(order->slots, 300, 1)[200];
        const struct sc_host_chunk chunk = chunk_of_row(world, 1, 200);
        struct sc_host_slab host_slab = sc_host_chunk_get(world->store, &chunk);
        assert_non_null(host_slab.slab);
        bool is_split = setup->layout == SC_STORE_SPLIT;
        uint64_t stride = setup->k_row_bytes * (is_split ? 1 : 2);
        host_slab.bytes[(is_split ? host_slab.v_at : host_slab.row_at) +
                        (slot - chunk.first) * stride + 77] ^= 4;
        sc_host_tier_unpin(world->store->host, host_slab.slab);
        struct sc_store_reader *reader = world_reader(world);
        struct sc_store_rows got;
        if (i % 2 == 0) {
            struct loaded loaded = world_load_key(world, reader, 1, 1);
            assert_int_equal(loaded.status, SPEC_E_CORRUPT);
            assert_int_equal(loaded.failed_range, 200 / 64);
        } else {
            struct sc_store_selector *selector = selector_make(world);
            struct sc_store_gather_rows picks = {.count = match.rows, .whole_slabs = true};
            assert_int_equal(match_load(&match, selector, 1, 0), SPEC_OK);
            sc_store_reader_begin_gather(reader, 1, match.ranges, match.count, &picks,
                                         SC_IO_CLASS_DEMAND);
            sc_store_reader_tags(reader, sc_store_selector_tags(selector));
            spec_status status = SPEC_OK;
            for (got.row_count = 1; status == SPEC_OK && got.row_count > 0;)
                status = sc_store_reader_next(reader, SC_EXEC_FOREVER, NULL, &got, &world->error);
            assert_int_equal(status, SPEC_E_CORRUPT);
            assert_int_equal(got.failed_range, 200 / 64);
            assert_int_equal(got.tier, SPEC_TIER_HOST);
            sc_store_selector_close(selector);
        }
        assert_false(sc_host_chunk_has(world->store, &chunk));
        load_key(world, 1, 1);
        assert_true(sc_host_chunk_has(world->store, &chunk));
        sc_store_readers_close(reader, 1);
        world_free(world);
    }
}

/* A row on the disk is damaged. Picks of others of its chunk keep it; who wants that row is told,
 * and nobody gets it. */
static void rot_on_the_disk_is_found_in_memory(void **state)
{
    (void)state;
    struct world *world = world_tiers(&setups[0], &large, 16384);
    struct match match = {.count = 0}, part = {.count = 0};
    assert_int_equal(world_store(world, 1, 0, 256), SPEC_OK);
    order_all(world);
    match_key(world, &match, 1);
    slot_damage(world, world->pieces[0].id, 1, 200);
    for (uint32_t i = 0; i < 4; i++)
        if (i != 200 / 64)
            match_add(&part, match.twins[i], 0, 64);
    assert_true(picked_bytes(world, &part, 1) > 0);
    const struct sc_host_chunk chunk = chunk_of_row(world, 1, 200);
    assert_true(sc_host_chunk_has(world->store, &chunk));
    assert_int_equal(picked_bytes(world, &part, 1), 0);
    struct sc_store_reader *reader = world_reader(world);
    for (uint32_t round = 0; round < 2; round++) { /* of memory, then of the disk */
        struct loaded loaded = world_load_key(world, reader, 1, 1);
        assert_int_equal(loaded.status, SPEC_E_CORRUPT);
        assert_int_equal(loaded.failed_range, 200 / 64);
        (void)picked_bytes(world, &part, 1); /* who does not want that row keeps it no more */
        assert_false(sc_host_chunk_has(world->store, &chunk));
    }
    assert_false(sc_host_chunk_has(world->store, &chunk));
    sc_store_readers_close(reader, 1);
    world_free(world);
}

/* A guess is narrowed before the device comes to most of it: chunks that were not read are not
 * kept.
 */
static void what_was_dropped_is_not_kept(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 4; i++) {
        struct world_setup setup = setups[i % 2];
        setup.op_bytes = 512u << 10; /* a read of several chunks' slots */
        struct world *world = world_tiers(&setup, &large, 16384);
        uint64_t wanted[SELECTOR_ROWS_MAX / 64] = {0};
        struct sc_store_gather_rows picks = {.whole_slabs = true};
        assert_int_equal(world_store(world, 1, 0, 300), SPEC_OK);
        order_all(world);
        struct match match = match_of(world, 1);
        picks.count = match.rows;
        wanted[i / 2 * 3] = 1;
        (void)gather_load(world, &match, 1, &picks, wanted);
        load_key(world, 1, 1);
        world_free(world);
    }
}

/* A load of all rows but the one in the last slot: what it has of the last chunk is not kept, and
 * is nobody's memory once the load has ended, though its reader begins no other. */
static void what_lacks_its_end_is_given_back(void **state)
{
    (void)state;
    struct world *world = world_tiers(&setups[0], &large, 16384);
    struct match match = {.count = 0};
    assert_int_equal(world_store(world, 1, 0, 300), SPEC_OK);
    order_all(world);
    const uint16_t *slots = sc_store_permutation_of(
        atomic_load(&extent_of(world, world->pieces[0].id)->permutation)->slots, 300, 1);
    for (uint32_t i = 0; i < 5; i++) {
        const struct world_piece *twin = &world->pieces[i];
        uint32_t row = 0;
        while (row < twin->row_count && slots[64 * i + row] != 299)
            row++;
        match_add(&match, twin, 0, row);
        if (row < twin->row_count)
            match_add(&match, twin, row + 1, twin->row_count - row - 1);
    }
    assert_int_equal(match.rows, 299);
    struct sc_store_reader *reader = world_reader(world);
    assert_int_equal(world_load(world, reader, 1, match.ranges, match.twins, match.count).rows,
                     299);
    assert_int_equal(host_stats(world).bytes_used, host_stats(world).slabs * (64u << 10));
    load_key(world, 1, 1); /* another keeps it */
    struct sc_host_chunk last = chunk_of_row(world, 1, 299);
    last.key.first = 256;
    assert_true(sc_host_chunk_has(world->store, &last));
    sc_store_readers_close(reader, 1);
    world_free(world);
}

static void chunks_are_counted_as_layers(void **state)
{
    (void)state;
    static const struct tiers dual = {4u << 20, 4u << 20, SC_POLICY_SCORE};
    struct world *world = world_tiers(&setups[0], &dual, 16384);
    uint32_t risen = 7;
    world_store_two(world, 300, 64);
    order_all(world);
    uint64_t piece = world->pieces[1].id;
    assert_int_equal(sc_store_piece_host_layers(world->store, piece, &risen), 0);
    assert_int_equal(risen, 0);
    for (uint32_t layer = 0; layer < setups[0].layers; layer++) {
        load_key(world, layer, 1);
        assert_int_equal(sc_store_piece_host_layers(world->store, piece, &risen), layer + 1);
        assert_int_equal(risen, layer + 1);
    }
    assert_int_equal(
        sc_store_piece_host_layers(world->store, world->pieces[world->piece_count - 1].id, &risen),
        0);
    world_free(world);
}

/* Pieces go one by one: what is left of their chunks is right, and the last takes them along. */
static void chunks_leave_with_the_last_piece(void **state)
{
    (void)state;
    struct world *world = world_tiers(&setups[0], &large, 16384);
    assert_int_equal(world_store(world, 1, 0, 300), SPEC_OK);
    order_all(world);
    load_key(world, 0, 1);
    load_key(world, 2, 1);
    const struct sc_host_chunk chunk = chunk_of_row(world, 2, 100);
    for (uint32_t i = 0; i < 5; i++) {
        assert_true(sc_host_chunk_has(world->store, &chunk));
        sc_store_piece_drop(world->store, world->pieces[i].id);
        struct match match = {.count = 0};
        for (uint32_t left = i + 1; left < 5; left++)
            match_add(&match, &world->pieces[left], 0, world->pieces[left].row_count);
        if (match.count > 0)
            assert_int_equal(picked_bytes(world, &match, 0), 0);
    }
    assert_false(sc_host_chunk_has(world->store, &chunk));
    assert_int_equal(host_stats(world).slabs, 0);
    world_free(world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_second_load_reads_tags_alone),
        cmocka_unit_test(any_part_is_right_beside_memory),
        cmocka_unit_test(rot_in_memory_is_found),
        cmocka_unit_test(rot_on_the_disk_is_found_in_memory),
        cmocka_unit_test(what_was_dropped_is_not_kept),
        cmocka_unit_test(what_lacks_its_end_is_given_back),
        cmocka_unit_test(chunks_are_counted_as_layers),
        cmocka_unit_test(chunks_leave_with_the_last_piece),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
