/* Extents that an earlier version left without rows, and kept codes of (record 9): their pieces are
 * void, here and in followers, and all of their pages come back, over reopens, checkpoints and
 * damage.
 *
 * Threads: the fixture's. */
#include "store/log/record_format.h"
#include "tests/unit/store/build_check.h"
#include "tests/unit/store/quant_check.h"
#include "tests/unit/store/space_check.h"

#include <msgpack.h>

#define LEASE_NS UINT64_C(1000000000)

static const struct world_setup setups[] = {
    {"sim, paired", WORLD_ON(SIM, 0), WORLD_SHAPE(PAIRED, 3, 512, 0), WORLD_DISK(64, 4, 64)},
    {"sim, split, a slab is more than an operation", WORLD_ON(SIM, 0),
     WORLD_SHAPE(SPLIT, 2, 1504, 0), WORLD_DISK(64, 2, 64)},
};

static struct world *world_quantised(const struct world_setup *setup)
{
    struct world *world = world_make(setup, 7);
    keep_quant(world, true);
    world->config.lease_ns_max = LEASE_NS;
    world_open_ok(world);
    return world;
}

static void key_store(struct world *world, uint64_t key, uint32_t count)
{
    assert_int_equal(world_store(world, key, 0, count), SPEC_OK);
    build_quantised(world);
}

/* Writes the record as those versions did. */
static void record_put(struct sc_store *store, uint64_t extent, uint64_t at_ns)
{
    static const char *const KEYS[] = {"v", "t", "id", "at", "bitsk", "bitsv"};
    const uint64_t values[] = {1, 9, extent, at_ns, 4, 2};
    struct sc_store_append append;
    msgpack_packer packer;
    pthread_mutex_lock(&store->log.lock);
    sc_store_append_begin(store, &append);
    sc_store_append_frame(&append);
    msgpack_packer_init(&packer, &append.writer, sc_store_writer_put);
    msgpack_pack_map(&packer, 6);
    for (uint32_t i = 0; i < 6; i++) {
        msgpack_pack_str(&packer, strlen(KEYS[i]));
        msgpack_pack_str_body(&packer, KEYS[i], strlen(KEYS[i]));
        msgpack_pack_uint64(&packer, values[i]);
    }
    assert_int_equal(sc_store_append_commit(store, &append, NULL), SPEC_OK);
    pthread_mutex_unlock(&store->log.lock);
}

static void rows_lose(struct world *world, uint64_t key, uint64_t at_ns)
{
    uint64_t last = 0;
    for (uint32_t i = 0; i < world->piece_count; i++) {
        uint64_t extent = sc_store_table_piece(&world->store->table, world->pieces[i].id)->extent;
        if (world->pieces[i].key == key && extent != last)
            record_put(world->store, last = extent, at_ns);
    }
    assert_true(last != 0);
}

static uint64_t live_pieces(const struct world *world, const struct sc_store *store, uint64_t key)
{
    uint64_t count = 0;
    for (uint32_t i = 0; i < world->piece_count; i++)
        count += world->pieces[i].key == key &&
                 sc_store_table_live(&store->table, world->pieces[i].id) != NULL;
    return count;
}

static void rows_are_right(struct world *world, uint64_t key)
{
    struct sc_store_reader *reader = world_reader(world);
    for (uint32_t layer = 0; layer < world->setup->layers; layer++)
        assert_int_equal(world_load_key(world, reader, layer, key).status, SPEC_OK);
    sc_store_readers_close(reader, 1);
}

static void pieces_are_void_and_pages_wait_for_leases(void **state)
{
    (void)state;
    for (uint32_t way = 0; way < 4; way++) {
        struct world *world = world_quantised(&setups[way % 2]);
        key_store(world, 1, 256);
        uint64_t one = stats_of(world).extent_bytes;
        key_store(world, 2, 192);
        uint64_t two = stats_of(world).extent_bytes - one;
        rows_lose(world, 1, sc_exec_wall_ns(world->exec));
        if (way >= 2)
            assert_int_equal(sc_store_checkpoint(world->store, NULL), SPEC_OK);
        for (uint32_t opened = 0; opened < 3; opened++) {
            world_reopen(world);
            space_check(world->store);
            assert_int_equal(live_pieces(world, world->store, 1), 0);
            assert_int_equal(stats_of(world).quarantine_bytes, one);
            assert_int_equal(stats_of(world).extent_bytes, one + two);
            assert_int_equal(stats_of(world).corrupt_records, 0);
            rows_are_right(world, 2);
            if (opened == 1)
                assert_int_equal(sc_store_checkpoint(world->store, NULL), SPEC_OK);
        }
        world_wait_ns(world, 2 * LEASE_NS);
        struct sc_store_free_space room;
        sc_store_free_space(world->store, &room);
        assert_int_equal(room.quarantine_bytes, 0);
        space_check(world->store);
        assert_int_equal(stats_of(world).extent_bytes, two);
        world_free(world);
    }
}

/* Others write there, before a checkpoint has left the extent out and after it. */
static void pages_are_others_over_reopens(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 2; i++) {
        struct world *world = world_quantised(&setups[i]);
        key_store(world, 1, 256);
        rows_lose(world, 1, 0);
        for (uint64_t key = 2; key < 26; key++) {
            if (key % 4 == 2)
                world_reopen(world);
            if (key == 15)
                assert_int_equal(sc_store_checkpoint(world->store, NULL), SPEC_OK);
            key_store(world, key, 128);
        }
        world_reopen(world);
        space_check(world->store);
        assert_int_equal(stats_of(world).corrupt_records, 0);
        assert_int_equal(stats_of(world).quarantine_bytes, 0);
        assert_int_equal(live_pieces(world, world->store, 1), 0);
        for (uint64_t key = 2; key < 26; key++)
            rows_are_right(world, key);
        for (uint32_t p = 0; p < world->piece_count; p++)
            sc_store_piece_drop(world->store, world->pieces[p].id);
        release_all(world);
        assert_int_equal(stats_of(world).extent_bytes, 0);
        assert_int_equal(stats_of(world).quantised_bytes, 0);
        world_free(world);
    }
}

/* Some of its pieces were dropped before, others after; an extent that never was is named too. */
static void drops_beside_it_give_pages_back_once(void **state)
{
    (void)state;
    struct world *world = world_quantised(&setups[0]);
    key_store(world, 1, 64 * 5 + 20);
    sc_store_piece_drop(world->store, world->pieces[1].id);
    record_put(world->store, 77, 5);
    record_put(world->store, 0, 5);
    rows_lose(world, 1, 5);
    rows_lose(world, 1, 5);
    sc_store_piece_drop(world->store, world->pieces[3].id);
    key_store(world, 2, 64);
    for (uint32_t opened = 0; opened < 2; opened++) {
        world_reopen(world);
        space_check(world->store);
        assert_int_equal(live_pieces(world, world->store, 1), 0);
        assert_int_equal(stats_of(world).corrupt_records, 0);
        rows_are_right(world, 2);
        assert_int_equal(sc_store_checkpoint(world->store, NULL), SPEC_OK);
    }
    release_all(world);
    world_free(world);
}

static uint64_t heard_count;

static bool heard_piece(const struct sc_store_piece *piece, uint64_t *ret_mark, void *user)
{
    (void)user;
    *ret_mark = piece->id + 1000;
    return true;
}

static void heard_drop(uint64_t piece, uint64_t mark, void *user)
{
    (void)user;
    assert_int_equal(mark, piece + 1000);
    heard_count++;
}

/* A reader or another rank hears of each piece once, whoever wrote the record. */
static void a_follower_hears_of_drops(void **state)
{
    (void)state;
    static const uint32_t roles[2] = {SC_STORE_READER, SC_STORE_PEER};
    for (uint32_t r = 0; r < 2; r++) {
        struct world *world = world_quantised(&setups[0]);
        key_store(world, 1, 150);
        key_store(world, 2, 64);
        struct sc_store_params params = world->params;
        struct sc_store *follower = NULL;
        params.role = roles[r];
        params.on_piece = heard_piece;
        params.on_drop = heard_drop;
        params.on_epoch = NULL;
        params.on_average = NULL;
        params.piece_holds = NULL;
        heard_count = 0;
        assert_int_equal(sc_store_open(&params, &follower, NULL), SPEC_OK);
        assert_int_equal(live_pieces(world, follower, 1), 3);
        rows_lose(world, 1, sc_exec_wall_ns(world->exec));
        for (uint32_t round = 0; round < 2; round++) { /* appended; read again */
            bool more = true;
            while (more)
                assert_int_equal(sc_store_follow(follower, &more, NULL), SPEC_OK);
            assert_int_equal(heard_count, 3);
            assert_int_equal(live_pieces(world, follower, 1), 0);
            assert_int_equal(live_pieces(world, follower, 2), 1);
            if (round == 0)
                assert_int_equal(sc_store_checkpoint(world->store, NULL), SPEC_OK);
        }
        sc_store_close(follower);
        world_free(world);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pieces_are_void_and_pages_wait_for_leases),
        cmocka_unit_test(pages_are_others_over_reopens),
        cmocka_unit_test(drops_beside_it_give_pages_back_once),
        cmocka_unit_test(a_follower_hears_of_drops),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
