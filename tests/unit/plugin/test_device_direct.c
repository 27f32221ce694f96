/* Rows of the host tier go to a device from where they are (plugin/device/direct.h), after tasks
 * beside the caller verified them (store/read/verify_ahead.c): what arrives is what was stored, a
 * slab stays until the device has read it, and bytes of the tier that are wrong are never
 * delivered.
 *
 * Holds: a stream that is held (fake_hold) runs nothing, and who waits for it ends the process. */
#include "store/read/reader.h"
#include "tests/unit/plugin/device_fixture.h"

#include <sched.h>
#include <time.h>

#define MATCHED      390u /* six slabs and a part of one */
#define LAYERS       2u
#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

#define PATIENCE_S 60 /* for a task to have verified a slab */

static struct device_host host;
static _Atomic uint32_t awaited, met; /* loads whose first slab is to be a task's; that were so */

/* --wrap: the first slab of an awaited load is the consumer's after a task has verified it. */
bool __wrap_sc_reader_is_good(struct sc_reader_slot *slot);
bool __real_sc_reader_is_good(struct sc_reader_slot *slot);

bool __wrap_sc_reader_is_good(struct sc_reader_slot *slot)
{
    time_t end = time(NULL) + PATIENCE_S;
    if (atomic_exchange(&awaited, 0) == 0)
        return __real_sc_reader_is_good(slot);
    while (atomic_load(&slot->check) < SC_READER_GOOD && time(NULL) < end)
        (void)sched_yield();
    atomic_fetch_add(&met, atomic_load(&slot->check) >= SC_READER_GOOD ? 1 : 0);
    return __real_sc_reader_is_good(slot);
}

struct way {
    const char *extra;
    uint32_t heads, head_size;
    uint32_t exact_ppm;
};

static const struct way WAYS[] = {
    {"\"preset\": \"as-like\"", 8, 128, 1000000},
    {"\"preset\": \"as-like\"", 3, 16, 1000000},
    {"\"preset\": \"as-like\", \"store\": {\"layout\": \"split\"}", 8, 128, 1000000},
    {"\"preset\": \"layered-uniform\"", 4, 32, 200000},
    {"\"preset\": \"layered-uniform\", \"store\": {\"layout\": \"split\"}", 4, 32, 200000},
};

/* The tier has every row that a load to plain memory brought. */
static void way_open(struct world *world, const struct way *way, bool is_sim, const char *tier)
{
    char extra[256];
    device_host_open(&host, 0);
    (void)snprintf(extra, sizeof(extra), "%s, \"host_bytes\": \"%s\", \"gpu\": {\"device\": 0}",
                   way->extra, tier);
    *world = (struct world){.matched = MATCHED, .group = 2, .agree = 3, .is_uneven = true};
    world_make(world, is_sim, extra, LAYERS, way->heads, way->head_size, MATCHED + 3);
    world_open_stored(world);
    if (way->exact_ppm < 1000000)
        wait_for_quant(world);
}

static void shot_of(struct shot *shot, const struct world *world, const struct way *way,
                    spec_request request, uint32_t layer)
{
    shot_make(shot, world, request, layer, 0, way->exact_ppm < 1000000 ? way->exact_ppm : 100000);
    shot->select.given = way->exact_ppm < 1000000 ? SPEC_SELECT_EXACT : 0;
}

static void assert_same(const struct shot *plain, const struct shot *closed)
{
    assert_memory_equal(plain->area.bytes, closed->area.bytes,
                        3 * RIG_GUARD + 2 * plain->area.part_bytes);
    assert_memory_equal(plain->exact, closed->exact, sizeof(plain->exact));
}

static void rows_arrive(void **state)
{
    (void)state;
    for (uint32_t turn = 0; turn < 4 * COUNT(WAYS); turn++) {
        const struct way *way = &WAYS[turn / 4];
        struct world world;
        struct shot plain, closed;
        fake_policy((enum fake_policy)(turn % 4), turn + 1);
        way_open(&world, way, turn % 2 == 0, "64MiB");
        spec_request request = look(&world, 0);
        for (uint32_t i = 0; i < 2 * LAYERS; i++) { /* the second time out of the tier */
            shot_of(&plain, &world, way, request, i % LAYERS);
            if (fire(&world, &plain) != SPEC_OK)
                fail_msg("%s: %s", way->extra, world.rig.error.text);
            if (i < LAYERS) {
                shot_free(&plain);
                continue;
            }
            shot_of(&closed, &world, way, request, i % LAYERS);
            struct there there = there_make(&host, &closed.area);
            assert_int_equal(fire(&world, &closed), SPEC_OK);
            if (way->exact_ppm == 1000000)
                assert_int_equal(closed.item.read_bytes, 0);
            there_read(&there, &closed.area);
            assert_same(&plain, &closed);
            there_free(&there);
            shot_free(&plain);
            shot_free(&closed);
        }
        world_leave(&world, request);
        device_host_end(&host, "direct");
    }
}

/* A load waits behind the host's work, while others take all of the tier that may be had. */
static void a_slab_stays_until_it_was_read(void **state)
{
    (void)state;
    for (uint32_t w = 0; w < 2; w++) {
        const struct way *way = &WAYS[w];
        uint64_t row_bytes = 4ull * way->heads * way->head_size;
        struct world world;
        struct shot plain, closed;
        char tier[32];
        fake_policy(FAKE_EAGER, 1);
        (void)snprintf(tier, sizeof(tier), "%" PRIu64 "KiB",
                       row_bytes * MATCHED * 5 / 4 / 1024 + 64);
        way_open(&world, way, true, tier);
        spec_request request = look(&world, 0);
        for (uint32_t i = 0; i < 2; i++) {
            shot_of(&plain, &world, way, request, 0);
            assert_int_equal(fire(&world, &plain), SPEC_OK);
            if (i == 0)
                shot_free(&plain);
        }
        shot_of(&closed, &world, way, request, 0);
        struct there there = there_make(&host, &closed.area);
        fake_hold(host.stream, 1);
        assert_int_equal(fire(&world, &closed), SPEC_OK);
        sc_plugin_device_reap(&world.rig.conn->device); /* copies have landed, kernels have not */
        for (uint32_t i = 0; i < 3; i++) {
            struct shot other;
            shot_of(&other, &world, way, request, 1);
            assert_int_equal(fire(&world, &other), SPEC_OK);
            shot_free(&other);
        }
        fake_hold(host.stream, 0);
        there_read(&there, &closed.area);
        assert_same(&plain, &closed);
        there_free(&there);
        shot_free(&plain);
        shot_free(&closed);
        world_leave(&world, request);
        device_host_end(&host, "a slab that stays");
    }
}

/* One bit of each page of the tier is another: the load fails, and is right when it is read anew.
 * With threads a task beside the caller has met the first wrong slab. */
static void wrong_bytes_are_not_delivered(void **state)
{
    (void)state;
    for (uint32_t turn = 0; turn < 4; turn++) {
        const struct way *way = &WAYS[turn / 2];
        struct world world;
        struct shot plain, closed;
        fake_policy(FAKE_EAGER, 1);
        way_open(&world, way, turn % 2 == 0, "64MiB");
        spec_request request = look(&world, 0);
        for (uint32_t i = 0; i < 2; i++) {
            shot_of(&plain, &world, way, request, 0);
            assert_int_equal(fire(&world, &plain), SPEC_OK);
            if (i == 0)
                shot_free(&plain);
        }
        uint64_t bytes = 0;
        uint8_t *tier = sc_host_tier_at(world.rig.conn->store, &bytes);
        assert_true(tier != NULL && bytes > 0);
        for (uint64_t at = 4000; at < bytes; at += 4096)
            tier[at] ^= 4;
        shot_of(&closed, &world, way, request, 0);
        struct there there = there_make(&host, &closed.area);
        bool has_threads = turn % 2 != 0;
        atomic_store(&met, 0);
        atomic_store(&awaited, has_threads ? 1 : 0);
        assert_int_equal(fire(&world, &closed), SPEC_E_CORRUPT);
        assert_int_equal(atomic_load(&met), has_threads ? 1 : 0);
        rig_release(&world.rig, request);
        request = look(&world, 0);
        closed.item.request = request;
        for (uint32_t tries = 0; fire(&world, &closed) != SPEC_OK; tries++) {
            assert_true(tries < MATCHED); /* a slab of the tier a time */
            rig_release(&world.rig, request);
            closed.item.request = request = look(&world, 0);
        }
        there_read(&there, &closed.area);
        assert_same(&plain, &closed);
        there_free(&there);
        shot_free(&plain);
        shot_free(&closed);
        world_leave(&world, request);
        device_host_end(&host, "wrong bytes");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_arrive),
        cmocka_unit_test(a_slab_stays_until_it_was_read),
        cmocka_unit_test(wrong_bytes_are_not_delivered),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
