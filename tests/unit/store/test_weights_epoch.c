/* store/log/weights_epoch.c: numbers are taken once, last, and belong to their weights.
 *
 * Threads: the seeded loop. */
#include "store/internal.h"
#include "tests/unit/cases.h"
#include "tests/unit/store/store_fixture.h"

#define EPOCHS_DIR "/sim/store/epochs"

static const struct world_setup small = {.name = "small",
                                         WORLD_ON(SIM, 0),
                                         WORLD_SHAPE(PAIRED, 2, 128, 0),
                                         WORLD_DISK(4, 1, 64),
                                         .journal = 1};
static const uint8_t ours[SC_STORE_HASH_BYTES] = {0x0a, 0xff, 1}, others[SC_STORE_HASH_BYTES] = {7};

static uint64_t highest(struct world *world, const uint8_t *weights)
{
    uint64_t epoch = UINT64_MAX;
    assert_int_equal(sc_store_weights_epoch(world->store, weights, &epoch, NULL), SPEC_OK);
    return epoch;
}

/* Puts an epoch; returns whether it is new. */
static bool put(struct world *world, const uint8_t *weights, uint64_t epoch)
{
    bool is_new = false;
    assert_int_equal(sc_store_weights_epoch_put(world->store, weights, epoch, &is_new, NULL),
                     SPEC_OK);
    return is_new;
}

static void the_highest_number_counts_and_is_taken_once(void **state)
{
    (void)state;
    struct world *world = world_new(&small, 1);
    assert_int_equal(highest(world, ours), 0);
    assert_true(put(world, ours, 1));
    assert_false(put(world, ours, 1));
    assert_true(put(world, ours, 0x123456789abcu));
    assert_true(put(world, ours, 3)); /* late: it changes nothing */
    assert_int_equal(highest(world, ours), 0x123456789abcu);
    assert_int_equal(highest(world, others), 0);
    assert_true(put(world, others, 1));
    world_reopen(world);
    assert_int_equal(highest(world, ours), 0x123456789abcu);
    assert_int_equal(highest(world, others), 1);
    world_free(world);
}

static void count_name(const char *name, void *user)
{
    (void)name;
    ++*(uint64_t *)user;
}

static void old_files_go_and_later_ones_stay(void **state)
{
    (void)state;
    struct world *world = world_new(&small, 2);
    assert_true(put(world, others, 1));
    for (uint64_t epoch = 1; epoch <= 200; epoch++) {
        assert_true(put(world, ours, epoch));
        assert_int_equal(highest(world, ours), epoch);
    }
    uint64_t count = 0;
    assert_int_equal(sc_io_list(world->store->io, EPOCHS_DIR, count_name, &count, NULL), SPEC_OK);
    assert_int_equal(count, 64 + 1); /* the others' */
    assert_int_equal(highest(world, others), 1);
    world_free(world);
}

/* Numbers that only a stranger writes: none of them is taken for an old one. */
static void the_last_numbers_stay(void **state)
{
    (void)state;
    struct world *world = world_new(&small, 5);
    for (uint64_t below = 65; below-- > 0;) {
        assert_true(put(world, ours, UINT64_MAX - below));
        assert_int_equal(highest(world, ours), UINT64_MAX - below);
    }
    assert_true(put(world, ours, 100));
    assert_int_equal(highest(world, ours), UINT64_MAX);
    world_free(world);
}

/* Names that nobody of us wrote are of no weights. */
static void foreign_names_say_nothing(void **state)
{
    (void)state;
    static const char *const NAMES[] = {"x",
                                        "0aff0100000000000000000000000000-",
                                        "0aff0100000000000000000000000000-000000000000000g",
                                        "0aff0100000000000000000000000000-00000000000000090",
                                        "0aff0100000000000000000000000001-0000000000000009",
                                        "0aff0100000000000000000000000000--00000000000000a",
                                        "0aff0100000000000000000000000000-+00000000000000a",
                                        "0aff0100000000000000000000000000- 00000000000000a",
                                        "0aff0100000000000000000000000000-0x0000000000000a",
                                        "0aff0100000000000000000000000000-000000000000000A"};
    struct world *world = world_new(&small, 3);
    assert_true(put(world, ours, 2));
    for (uint32_t i = 0; i < sizeof(NAMES) / sizeof(NAMES[0]); i++) {
        char path[128];
        struct sc_io_file *file;
        (void)snprintf(path, sizeof(path), EPOCHS_DIR "/%s", NAMES[i]);
        assert_int_equal(sc_io_file_open(world->store->io, path,
                                         SC_IO_OPEN_CREATE | SC_IO_OPEN_WRITE, &file, NULL),
                         SPEC_OK);
        sc_io_file_close(world->store->io, file);
    }
    assert_int_equal(highest(world, ours), 2);
    world_free(world);
}

/* After a power cut at any moment, every number that was put is there. */
static void what_was_put_outlives_a_power_cut(void **state)
{
    (void)state;
    struct world *origin = world_new(&small, 4);
    uint64_t puts[8];
    for (uint64_t epoch = 0; epoch < 8; epoch++) {
        assert_true(put(origin, ours, epoch + 1));
        puts[epoch] = sc_io_sim_disk_events(origin->disk);
    }
    uint64_t events = sc_io_sim_disk_events(origin->disk);
    for (uint64_t at = puts[0]; at <= events; at++)
        for (uint64_t seed = 0; seed < 4; seed++) {
            uint64_t least = 0;
            while (least < 8 && puts[least] <= at)
                least++;
            struct world *world = world_cut(origin, at, 5, seed);
            world_open_ok(world);
            assert_in_range(highest(world, ours), least, 8);
            world_free(world);
        }
    world_free(origin);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_highest_number_counts_and_is_taken_once),
        cmocka_unit_test(old_files_go_and_later_ones_stay),
        cmocka_unit_test(the_last_numbers_stay),
        cmocka_unit_test(foreign_names_say_nothing),
        cmocka_unit_test(what_was_put_outlives_a_power_cut),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
