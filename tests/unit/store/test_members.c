/* Processes that store, or may: each has a place while it lives, and they share the default of
 * host_bytes.
 *
 * Threads: the seeded loop. */
#include "store/cache/host_tier.h"
#include "store/internal.h"
#include "store/log/members.h"
#include "tests/unit/store/follower_fixture.h"

static const struct world_setup small = {"small", WORLD_ON(SIM, 0), WORLD_SHAPE(PAIRED, 2, 48, 0),
                                         WORLD_DISK(8, 1, 64), .staging_bytes = 2u << 20};
static const struct world_setup on_files = {"files", WORLD_ON(PREAD, 2),
                                            WORLD_SHAPE(PAIRED, 2, 48, 0), WORLD_DISK(8, 1, 64)};

static void members_are_counted_while_they_live(void **state)
{
    (void)state;
    const struct world_setup *setups[] = {&small, &on_files};
    for (uint32_t i = 0; i < 2; i++) {
        struct world *world = world_new(setups[i], 3);
        assert_int_equal(sc_store_members_count(world->store), 1);
        struct follower *heir = follower_new(world, SC_STORE_HEIR);
        struct follower *reader = follower_new(world, SC_STORE_READER); /* stores never */
        assert_int_equal(sc_store_members_count(world->store), 2);
        assert_int_equal(sc_store_members_count(heir->store), 2);
        assert_int_equal(sc_store_members_count(reader->store), 1);
        struct follower *second = follower_new(world, SC_STORE_HEIR);
        assert_int_equal(sc_store_members_count(world->store), 3);
        follower_free(heir);
        assert_int_equal(sc_store_members_count(second->store), 2);
        follower_free(second);
        follower_free(reader);
        assert_int_equal(sc_store_members_count(world->store), 1);
        world_free(world);
    }
}

/* The seventeenth waits for nothing: it reads. */
static void members_are_sixteen_at_most(void **state)
{
    (void)state;
    struct world *world = world_new(&small, 4);
    struct follower *heirs[SC_STORE_MEMBERS_MAX];
    assert_int_equal(world_store(world, 1, 0, 64), SPEC_OK);
    for (uint32_t i = 0; i < SC_STORE_MEMBERS_MAX; i++) {
        heirs[i] = follower_new(world, SC_STORE_HEIR);
        assert_int_equal(sc_store_keeps_space(heirs[i]->store), i + 1 < SC_STORE_MEMBERS_MAX);
        assert_int_equal(heirs[i]->told_count, 1); /* it reads in any case */
    }
    assert_int_equal(sc_store_members_count(world->store), SC_STORE_MEMBERS_MAX);
    for (uint32_t i = 0; i < SC_STORE_MEMBERS_MAX; i++)
        follower_free(heirs[i]);
    world_free(world);
}

/* Something that is in the way ends no open. */
static void a_place_that_cannot_be_taken_is_none(void **state)
{
    (void)state;
    struct world *world = world_new(&on_files, 5);
    char path[SC_LIMIT_PATH_BYTES + 64];
    (void)snprintf(path, sizeof(path), "%s/members", world->store->dir);
    world_close(world);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkdir(path, 0700), 0);
    world_open_ok(world);
    assert_int_equal(sc_store_members_count(world->store), 1);
    assert_int_equal(world_store(world, 1, 0, 64), SPEC_OK);
    assert_int_equal(rmdir(path), 0);
    world_free(world);
}

static uint64_t host_bytes_of(const struct sc_store *store)
{
    struct sc_host_tier_stats stats;
    sc_host_tier_stats(store->host, &stats);
    return stats.bytes_max;
}

/* Each process takes its part of the memory that all may use together. */
static void members_share_the_default_of_host_bytes(void **state)
{
    (void)state;
    struct world *world = world_make(&small, 6);
    world->config.host_bytes = SC_CONFIG_AUTO;
    world_open_ok(world);
    const uint64_t alone = host_bytes_of(world->store);
    struct follower *heir = follower_new(world, SC_STORE_HEIR);
    struct follower *second = follower_new(world, SC_STORE_HEIR);
    assert_in_range(host_bytes_of(heir->store), alone / 2 - alone / 16, alone / 2);
    assert_in_range(host_bytes_of(second->store), alone / 3 - alone / 16, alone / 3);
    follower_free(second);
    follower_free(heir);
    world_free(world);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(members_are_counted_while_they_live),
        cmocka_unit_test(members_are_sixteen_at_most),
        cmocka_unit_test(a_place_that_cannot_be_taken_is_none),
        cmocka_unit_test(members_share_the_default_of_host_bytes),
    };
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
