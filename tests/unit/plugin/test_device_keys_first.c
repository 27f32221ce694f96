/* The order of reads (plugin/select/keys_first.h) where an item has something in device memory. The
 * device adds importance in another order than the host, so who computes must not depend on what
 * was read first.
 *
 * Holds: results do not depend on the order; keys are not read ahead for hosts that cannot use
 * them.
 * Threads: the loop's. */
#include "tests/unit/plugin/device_fixture.h"
#include "tests/unit/plugin/select_call.h"

#include "plugin/select/accuracy.h"

#define MATCHED 600u

static struct device_host host;

static void scene_open(struct world *world, const char *extra, uint32_t heads, int64_t agree)
{
    fake_policy(FAKE_EAGER, 1);
    device_host_open(&host, 0);
    *world = (struct world){.matched = MATCHED, .group = 2, .agree = agree, .is_uneven = true};
    world_make(world, true, extra, 4, heads, 64, MATCHED);
    world_open_stored(world);
}

static void scene_close(struct world *world)
{
    world_done(world);
    device_host_end(&host, "keys first");
}

/* Sets what the layers are expected to do: fall back (keys first), or not. */
static void expect_fallbacks(const struct world *world, bool will)
{
    for (uint32_t layer = 0; layer < world->rig.layers; layer++)
        for (uint32_t i = 0; i < 32; i++)
            sc_plugin_fallback_learn(&world->rig.conn->ahead.fallbacks[layer], will);
}

/* where: bits: queries, new keys. The destination is in plain memory. */
static void queries_fire(struct world *world, uint32_t where, bool keys_first,
                         struct select_call *call)
{
    expect_fallbacks(world, keys_first);
    spec_request request = look(world, 0);
    *call = call_make(world, request, 3, 0);
    struct pass_there pass = pass_there_make(&host, &call->pass, where & 1, (where & 2) != 0);
    uint64_t taken = world->rig.conn->device.scores.taken;
    assert_int_equal(call_fire(world, call), SPEC_OK);
    call_assert_rows(world, call);
    assert_int_equal(world->rig.conn->device.scores.taken - taken, where > 0);
    pass_there_free(&pass);
    rig_release(&world->rig, request);
}

static void queries_there_select_the_same_in_both_orders(void **state)
{
    (void)state;
    static const char SPLIT[] =
        "\"preset\": \"impress-itf+range\", \"select\": {\"similarity\": \"mass\"}";
    for (int64_t agree = 0; agree <= 8; agree += 2) {
        struct world world;
        scene_open(&world, SPLIT, 5, agree);
        for (uint32_t where = 0; where < 4; where++) {
            struct select_call calls[2];
            for (uint32_t i = 0; i < 2; i++)
                queries_fire(&world, where, i == 1, &calls[i]);
            const struct spec_important *a = &calls[0].item, *b = &calls[1].item;
            assert_int_equal(a->result_flags, b->result_flags);
            assert_int_equal(a->row_count, b->row_count);
            assert_true(a->similarity == b->similarity);
            assert_memory_equal(calls[0].positions, calls[1].positions,
                                5 * a->row_count * sizeof(uint32_t));
            call_free(&calls[0]);
            call_free(&calls[1]);
        }
        scene_close(&world);
    }
}

/* Heads that disagree get all rows there, and no set of their own: probe keys are what helps. */
static void no_keys_are_read_ahead_for_destinations_there(void **state)
{
    (void)state;
    static const char *const EXTRAS[] = {
        "\"preset\": \"impress-itf+range\"",
        "\"preset\": \"impress-itf+range\", \"select\": {\"retain_ppm\": 400000}"};
    for (uint32_t way = 0; way < 4; way++) {
        struct world world;
        scene_open(&world, EXTRAS[way % 2], 4, way < 2 ? 0 : 8);
        for (uint32_t times = 0; times < 3; times++) {
            spec_request request = look(&world, 0);
            struct select_call call = call_make(&world, request, 1, 0);
            struct there there = there_make(&host, &call.area);
            assert_int_equal(sc_plugin_begin_layer(world.rig.conn, &request, 1, 1, NULL), SPEC_OK);
            rig_pass_ns(&world.rig, 1000000000);
            assert_int_equal(call_fire(&world, &call), SPEC_OK);
            assert_int_equal(call.item.result_flags, way < 2 ? SPEC_IMPORTANT_DENSE : 0);
            if (times > 0)
                assert_int_equal(call.item.unused_bytes, 0);
            there_free(&there);
            call_free(&call);
            rig_release(&world.rig, request);
        }
        scene_close(&world);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(queries_there_select_the_same_in_both_orders),
        cmocka_unit_test(no_keys_are_read_ahead_for_destinations_there),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
