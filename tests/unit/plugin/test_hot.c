/* Hot blocks behind the ABI's calls: made once two requests have scored a prefix, read ahead of the
 * set, and of no influence on what is delivered: every item beside one of a connector without any.
 * A damaged block costs its reads. On the simulated disk.
 *
 * Threads: the loop's. */
#include "tests/unit/plugin/layered_fixture.h"

#include "store/internal.h"

#define PATH "/sim/store/rank-0000-of-0001/seg-00000000"

static void config_of(char *config, uint64_t bytes, const char *preset, const char *layout,
                      const char *more, uint32_t hot_ppm)
{
    (void)snprintf(config, bytes,
                   "\"preset\": \"%s\", \"select\": {\"min_tokens\": 0, \"min_share_ppm\": 0}, "
                   "\"store\": {\"layout\": \"%s\"}, \"maintain\": {\"bytes_per_s\": 0}, "
                   "\"layered\": {\"hot_ppm\": %u}%s",
                   preset, layout, hot_ppm, more);
}

static uint64_t hot_rows(const struct world *world)
{
    return atomic_load(&world->rig.conn->stats.hot_rows);
}

/* All layers, one after the other, by the same queries; exact rows are ppm of all. */
static void load_all(struct world *world, uint32_t ppm)
{
    spec_request request = look(world, 0);
    for (uint32_t layer = 0; layer < 4; layer++) {
        struct shot shot;
        shot_make(&shot, world, request, layer, 0, ppm);
        assert_int_equal(sc_plugin_begin_layer(world->rig.conn, &request, 1, layer, NULL), SPEC_OK);
        rig_pass_ns(&world->rig, 100000);
        assert_int_equal(fire(world, &shot), SPEC_OK);
        assert_rows(world, &shot, 0, 4, 2);
        rig_pass_ns(&world->rig, 100000);
        shot_free(&shot);
    }
    rig_release(&world->rig, request);
}

static void wait_for_hot(struct world *world)
{
    for (uint32_t i = 0; i < 1000 && rig_store_stats(&world->rig).hot_bytes == 0; i++)
        rig_pass_ns(&world->rig, 1000000);
    wait_for_codes(world); /* whatever is built */
    assert_true(rig_store_stats(&world->rig).hot_bytes > 0);
}

static void blocks_come_with_the_second_request(void **state)
{
    (void)state;
    struct world world;
    char config[512];
    config_of(config, sizeof(config), "layered-even", "paired", "", 100000);
    world_open_coded(&world, config, 2, 2, 16, SPEC_DTYPE_F16, 300, 3);
    load_all(&world, 50000);
    rig_pass_ns(&world.rig, 1000000000);
    assert_int_equal(rig_store_stats(&world.rig).hot_bytes, 0);
    load_all(&world, 50000);
    wait_for_hot(&world);
    assert_int_equal(hot_rows(&world), 0);
    load_all(&world, 50000); /* the first choice says what a block is good for */
    uint64_t first = hot_rows(&world);
    assert_true(first > 0);
    load_all(&world, 50000); /* the same sets: all of them are in the block */
    assert_int_equal(hot_rows(&world) - first, 4 * 15);
    rig_reopen(&world.rig);
    assert_true(rig_store_stats(&world.rig).hot_bytes > 0);
    load_all(&world, 50000);
    assert_true(hot_rows(&world) > 0);
    world_done(&world);
}

static void a_configuration_without_has_none(void **state)
{
    (void)state;
    struct world world;
    char config[512];
    config_of(config, sizeof(config), "layered-even", "paired", "", 0);
    world_open_coded(&world, config, 2, 2, 16, SPEC_DTYPE_F16, 300, 3);
    for (uint32_t i = 0; i < 4; i++) {
        load_all(&world, 50000);
        rig_pass_ns(&world.rig, 1000000000);
    }
    assert_int_equal(rig_store_stats(&world.rig).hot_bytes, 0);
    assert_int_equal(hot_rows(&world), 0);
    world_done(&world);
}

/* ---- Nothing but reads ----------------------------------------------------------------------- */

struct twins {
    struct world worlds[2]; /* with blocks, without */
    spec_request requests[2];
};

/* The same item in both; all that it delivers is the same. */
static void both(struct twins *twins, uint32_t layer, uint64_t from, uint32_t ppm, bool negates,
                 bool is_layered)
{
    struct shot shots[2];
    for (uint32_t i = 0; i < 2; i++) {
        struct world *world = &twins->worlds[i];
        shot_make(&shots[i], world, twins->requests[i], layer, from, ppm);
        if (!is_layered) { /* heads may have sets of their own: more than there is room for */
            shots[i].item.select = NULL;
            shots[i].item.positions = NULL;
        }
        if (negates)
            negate(&shots[i]);
        assert_int_equal(fire(world, &shots[i]), SPEC_OK);
        if (is_layered)
            assert_rows(world, &shots[i], from, 4, 2);
        rig_pass_ns(&world->rig, 50000);
    }
    const struct spec_important *a = &shots[0].item, *b = &shots[1].item;
    uint64_t rows = twins->worlds[0].matched - from, bytes = rig_part_bytes(&twins->worlds[0].rig);
    assert_int_equal(a->row_count, b->row_count);
    assert_int_equal(a->exact_rows, b->exact_rows);
    assert_int_equal(a->union_rows, b->union_rows);
    assert_int_equal(a->result_flags, b->result_flags);
    assert_int_equal(a->next_position, b->next_position);
    assert_memory_equal(&a->provenance, &b->provenance, sizeof(a->provenance));
    assert_memory_equal(shots[0].exact, shots[1].exact, (rows + 63) / 64 * 8);
    if (is_layered)
        assert_memory_equal(shots[0].positions, shots[1].positions,
                            a->row_count * sizeof(shots[0].positions[0]));
    assert_memory_equal(shots[0].area.memory.k_base, shots[1].area.memory.k_base, rows * bytes);
    assert_memory_equal(shots[0].area.memory.v_base, shots[1].area.memory.v_base, rows * bytes);
    assert_true(a->unused_bytes <= a->read_bytes);
    shot_free(&shots[0]);
    shot_free(&shots[1]);
}

static void rounds(struct twins *twins, uint64_t *random, bool is_layered)
{
    static const uint32_t PPM[] = {0, 20000, 50000, 200000, 950000};
    for (uint32_t round = 0; round < 10; round++) {
        uint64_t mixed = rig_mix(*random += round);
        uint64_t from = mixed % 3 == 0 ? mixed / 7 % 200 : 0;
        bool hints = mixed / 3 % 2 == 0, begins = mixed / 11 % 4 > 0;
        for (uint32_t i = 0; i < 2; i++)
            twins->requests[i] = look(&twins->worlds[i], from);
        for (uint32_t layer = 0; layer < 4; layer++) {
            mixed = rig_mix(mixed);
            for (uint32_t i = 0; i < 2; i++) {
                struct world *world = &twins->worlds[i];
                struct pass pass = world_pass(world, layer, world->rig.dtype);
                if (begins)
                    assert_int_equal(
                        sc_plugin_begin_layer(world->rig.conn, &twins->requests[i], 1, layer, NULL),
                        SPEC_OK);
                if (hints && layer > 0)
                    assert_int_equal(sc_plugin_prefetch_next(world->rig.conn, twins->requests[i],
                                                             layer - 1, &pass.q, NULL),
                                     SPEC_OK);
                rig_pass_ns(&world->rig, mixed % 4 * 100000);
                pass_free(&pass);
            }
            uint32_t ppm = round < 3 ? 50000 : PPM[mixed / 5 % 5];
            for (uint64_t times = mixed % 9 == 0 ? 2 : 1; times > 0; times--)
                both(twins, layer, from, ppm, round > 4 && mixed / 2 % 3 == 0, is_layered);
        }
        for (uint32_t i = 0; i < 2; i++)
            rig_release(&twins->worlds[i].rig, twins->requests[i]);
        for (uint32_t i = 0; i < 2 && round == 1; i++)
            wait_for_codes(&twins->worlds[i]);
        if (round == 1)
            wait_for_hot(&twins->worlds[0]);
    }
}

static void nothing_is_delivered_differently(void **state)
{
    (void)state;
    static const struct {
        const char *preset, *layout, *more;
        uint32_t heads, group, head_size, dtype;
        bool is_layered;
    } CASES[] = {
        {"layered-even", "paired", "", 2, 2, 16, SPEC_DTYPE_F16, true},
        {"layered-even", "split", "", 3, 1, 16, SPEC_DTYPE_F16, true},
        {"layered-even", "paired", ", \"prefetch\": {\"min_precision_ppm\": 0}", 4, 1, 16,
         SPEC_DTYPE_F16, true},
        {"hinted", "paired", "", 2, 2, 16, SPEC_DTYPE_F16, false},
        {"hinted", "split", ", \"prefetch\": {\"min_precision_ppm\": 0}", 2, 2, 16, SPEC_DTYPE_F16,
         false},
        {"impress-itf", "paired", "", 2, 1, 16, SPEC_DTYPE_F16, false},
        {"spec-itf", "paired", ", \"read\": {\"planner\": \"range\"}", 2, 1, 16, SPEC_DTYPE_F16,
         false},
    };
    uint64_t random = 5;
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        static struct twins twins;
        for (uint32_t t = 0; t < 2; t++) {
            char config[512];
            config_of(config, sizeof(config), CASES[i].preset, CASES[i].layout, CASES[i].more,
                      t == 0 ? 150000 : 0);
            world_open(&twins.worlds[t], config, CASES[i].heads, CASES[i].group, CASES[i].head_size,
                       CASES[i].dtype, 300, 3);
            wait_for_codes(&twins.worlds[t]);
        }
        rounds(&twins, &random, CASES[i].is_layered);
        print_message("%s, %s: %lu rows of hot blocks\n", CASES[i].preset, CASES[i].layout,
                      hot_rows(&twins.worlds[0]));
        assert_true(hot_rows(&twins.worlds[0]) > 0);
        assert_int_equal(rig_store_stats(&twins.worlds[0].rig).bad_hot, 0);
        world_done(&twins.worlds[0]);
        world_done(&twins.worlds[1]);
    }
}

/* ---- Damage ---------------------------------------------------------------------------------- */

static void block_damage(struct world *world)
{
    const struct sc_store *store = world->rig.conn->store;
    for (uint64_t id = 1; id < store->table.extent_next; id++) {
        const struct sc_store_extent_entry *extent = sc_store_table_extent(&store->table, id);
        const struct sc_store_annex *annex = extent != NULL ? atomic_load(&extent->hot) : NULL;
        for (uint32_t layer = 0; annex != NULL && layer < 4; layer++) {
            uint64_t at =
                sc_store_layer_where(annex->parts, annex->part_count, annex->stride, layer).offset;
            for (uint64_t row = 0; row < annex->hot_rows; row++) {
                uint8_t byte;
                uint64_t place = at + row * world->rig.conn->dims.row_bytes + 5;
                assert_true(sc_io_sim_disk_peek(world->rig.disk, PATH, place, &byte, 1));
                byte ^= 1;
                assert_true(sc_io_sim_disk_poke(world->rig.disk, PATH, place, &byte, 1));
            }
        }
    }
}

/* Its rows are read from the extent; nobody is told that anything is missing. */
static void a_damaged_block_costs_nothing_but_reads(void **state)
{
    (void)state;
    static const char *const PRESETS[] = {"layered-even", "hinted"};
    for (uint32_t i = 0; i < 2; i++) {
        static struct twins twins;
        for (uint32_t t = 0; t < 2; t++) {
            char config[512];
            config_of(config, sizeof(config), PRESETS[i], "paired", "", t == 0 ? 150000 : 0);
            world_open(&twins.worlds[t], config, 2, 2, 16, SPEC_DTYPE_F16, 300, 3);
            wait_for_codes(&twins.worlds[t]);
        }
        for (uint32_t round = 0; round < 6; round++) {
            for (uint32_t t = 0; t < 2; t++)
                twins.requests[t] = look(&twins.worlds[t], 0);
            for (uint32_t layer = 0; layer < 4; layer++)
                both(&twins, layer, 0, 50000, false, i == 0);
            for (uint32_t t = 0; t < 2; t++)
                rig_release(&twins.worlds[t].rig, twins.requests[t]);
            if (round == 1)
                wait_for_hot(&twins.worlds[0]);
            if (round == 3) {
                assert_true(hot_rows(&twins.worlds[0]) > 0);
                block_damage(&twins.worlds[0]);
            }
        }
        assert_int_equal(rig_store_stats(&twins.worlds[0].rig).bad_hot, 1);
        assert_int_equal(atomic_load(&twins.worlds[0].rig.conn->stats.corrupt_ranges), 0);
        world_done(&twins.worlds[0]);
        world_done(&twins.worlds[1]);
    }
}

/* ---- Deadlines ------------------------------------------------------------------------------- */

/* All rows of a choice that another one of the same queries has. */
static void assert_same(const struct world *world, const struct shot *a, const struct shot *b)
{
    uint64_t bytes = a->item.row_count * rig_part_bytes(&world->rig);
    assert_int_equal(a->item.row_count, b->item.row_count);
    assert_memory_equal(a->area.memory.k_base, b->area.memory.k_base, bytes);
    assert_memory_equal(a->area.memory.v_base, b->area.memory.v_base, bytes);
}

static spec_status ask(struct world *world, struct shot *shot, spec_request request, uint32_t layer,
                       uint64_t deadline_ns)
{
    shot_make(shot, world, request, layer, 0, 0);
    shot->item.select = NULL;
    shot->item.positions = NULL;
    shot->item.deadline_ns = deadline_ns;
    return fire(world, shot);
}

/* Layer by layer; each one's deadline comes so long after its choice can be made, and it is asked
 * for again. Returns how many were late. */
static uint32_t load_late(struct world *world, uint64_t late_ns)
{
    spec_request handle = look(world, 0);
    struct sc_plugin_request *request = sc_plugin_request_find(world->rig.conn, handle);
    uint32_t late = 0, step = late_ns > 0 ? 2 : 1; /* whose reads no layer before them begins */
    for (uint32_t layer = step - 1; layer < 4; layer += step) {
        struct shot shots[3];
        struct pass pass = world_pass(world, layer, world->rig.dtype);
        struct sc_plugin_sketch *sketch = &request->sketches[layer % SC_PLUGIN_SKETCHES];
        if (layer > 0)
            assert_int_equal(
                sc_plugin_prefetch_next(world->rig.conn, handle, layer - 1, &pass.q, NULL),
                SPEC_OK);
        while (layer > 0 && sc_store_sketch_state(sketch->sketch) == SPEC_PENDING)
            rig_pass_ns(&world->rig, 1000);
        rig_pass_ns(&world->rig, late_ns > 0 ? 0 : 3000000);
        spec_status status = ask(world, &shots[0], handle, layer, layer > 0 ? late_ns : 0);
        assert_true(status == SPEC_OK || status == SPEC_E_TIMEOUT);
        late += status == SPEC_E_TIMEOUT;
        assert_int_equal(ask(world, &shots[1], handle, layer, 0), SPEC_OK);
        assert_int_equal(ask(world, &shots[2], handle, layer, 0), SPEC_OK);
        assert_same(world, &shots[1], &shots[2]);
        for (uint32_t i = 0; i < 3; i++)
            shot_free(&shots[i]);
        pass_free(&pass);
    }
    rig_release(&world->rig, handle);
    return late;
}

/* A guess that was narrowed to what the block does not bring is not taken for more later on. */
static void a_deadline_among_hot_rows_leaves_no_guess_behind(void **state)
{
    (void)state;
    static const char *const PRESETS[] = {"spec-itf+range", "spec-itf"};
    for (uint32_t i = 0; i < 2; i++) {
        static struct world world;
        char config[512];
        uint32_t late = 0;
        config_of(config, sizeof(config), PRESETS[i], "paired",
                  ", \"prefetch\": {\"predictor\": \"static\"}, "
                  "\"sim\": {\"bytes_per_s\": 5000000000, \"ops_per_s\": 20000}",
                  150000);
        world_open_coded(&world, config, 2, 1, 64, SPEC_DTYPE_F32, 300, 3);
        for (uint32_t round = 0; round < 3; round++)
            (void)load_late(&world, 0);
        wait_for_hot(&world);
        for (uint32_t round = 0; round < 2; round++)
            (void)load_late(&world, 0);
        assert_true(hot_rows(&world) > 0);
        for (uint64_t late_ns = 1; late_ns < 8000000; late_ns += late_ns / 2 + 1)
            late += load_late(&world, late_ns);
        assert_true(late > 0);
        assert_int_equal(atomic_load(&world.rig.conn->stats.corrupt_ranges), 0);
        world_done(&world);
    }
}

/* Memory fails at every allocation of an open and of what is built: nothing is left behind, and
 * what opens delivers. */
static void no_memory_for_blocks_is_no_open_or_no_block(void **state)
{
    (void)state;
    static struct world world;
    char config[512];
    config_of(config, sizeof(config), "layered-even", "split", ", \"host_bytes\": \"4MiB\"",
              100000);
    world_open_coded(&world, config, 2, 2, 16, SPEC_DTYPE_F16, 300, 3);
    rig_close(&world.rig);
    spec_status status = SPEC_E_NO_MEMORY;
    for (int64_t n = 0; status != SPEC_OK; n++) {
        atomic_store(&world.rig.memory.countdown, n);
        status = rig_try_open(&world.rig);
        assert_true(status == SPEC_OK || status == SPEC_E_NO_MEMORY);
        assert_true(status == SPEC_OK || atomic_load(&world.rig.memory.live_blocks) == 0);
    }
    atomic_store(&world.rig.memory.countdown, -1);
    rig_reopen(&world.rig); /* the index may have found no room */
    uint64_t built = 0;
    for (int64_t n = 0; n < 24; n++) {
        atomic_store(&world.rig.memory.countdown, n);
        load_all(&world, 50000);
        load_all(&world, 50000);
        rig_pass_ns(&world.rig, 2000000000);
        wait_for_codes(&world);
        built = rig_store_stats(&world.rig).hot_bytes;
        atomic_store(&world.rig.memory.countdown, -1);
        load_all(&world, 50000);
        if (built > 0)
            break;
    }
    assert_true(built > 0);
    atomic_store(&world.rig.memory.countdown, -1);
    world_done(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_come_with_the_second_request),
        cmocka_unit_test(a_configuration_without_has_none),
        cmocka_unit_test(nothing_is_delivered_differently),
        cmocka_unit_test(a_damaged_block_costs_nothing_but_reads),
        cmocka_unit_test(a_deadline_among_hot_rows_leaves_no_guess_behind),
        cmocka_unit_test(no_memory_for_blocks_is_no_open_or_no_block),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
