/* Reordering behind the ABI's calls: rows that two requests have scored are written anew, when
 * maintain or the interval asks; what is delivered is the same before, meanwhile and after; what
 * stood before goes once nobody is left who may read it. On the simulated disk.
 *
 * Threads: the loop's. */
#include "tests/unit/plugin/layered_fixture.h"

#include "store/internal.h"
#include "store/rows/row_permutation.h"

static uint64_t waiting(const struct rig *rig)
{
    return atomic_load(&rig->conn->store->counts.permutations_waiting);
}

static spec_status reorder(struct rig *rig)
{
    const struct spec_maintain_params params = {.struct_size = sizeof(params),
                                                .flags = SPEC_MAINTAIN_REORDER};
    return sc_plugin_maintain(rig->conn, &params, &rig->error);
}

static void wait_for_orders(struct rig *rig, uint64_t pieces)
{
    for (uint32_t i = 0; i < 1000 && rig_store_stats(rig).permuted_pieces < pieces; i++)
        rig_pass_ns(rig, 1000000);
    for (uint32_t i = 0; i < 1000 && rig_store_stats(rig).is_building; i++)
        rig_pass_ns(rig, 1000000);
    assert_int_equal(rig_store_stats(rig).permuted_pieces, pieces);
}

/* All layers; exact rows are ppm of all. */
static void load_by(struct world *world, spec_request request, uint32_t ppm)
{
    for (uint32_t layer = 0; layer < 4; layer++) {
        struct shot shot;
        shot_make(&shot, world, request, layer, 0, ppm);
        assert_int_equal(fire(world, &shot), SPEC_OK);
        assert_rows(world, &shot, 0, 4, 2);
        shot_free(&shot);
    }
}

static void load_all(struct world *world, uint32_t ppm)
{
    spec_request request = look(world, 0);
    load_by(world, request, ppm);
    rig_release(&world->rig, request);
}

static void open_layered(struct world *world, const char *layout, const char *more)
{
    static char config[512]; /* the rig keeps it, for a reopen */
    (void)snprintf(config, sizeof(config),
                   "\"preset\": \"layered-uniform\", \"select\": {\"min_tokens\": 0, "
                   "\"min_share_ppm\": 0}, \"store\": {\"layout\": \"%s\"}, "
                   "\"maintain\": {\"bytes_per_s\": 0}%s",
                   layout, more);
    world_open_quantised(world, config, 2, 2, 16, SPEC_DTYPE_F16, 300, 3);
}

static void two_requests_make_an_order(void **state)
{
    (void)state;
    static const char *const layouts[] = {"paired", "split"};
    for (uint32_t i = 0; i < 2; i++) {
        struct world world;
        open_layered(&world, layouts[i], "");
        assert_int_equal(reorder(&world.rig), SPEC_OK);
        load_all(&world, 50000);
        assert_int_equal(reorder(&world.rig), SPEC_OK);
        rig_pass_ns(&world.rig, 1000000000);
        assert_int_equal(rig_store_stats(&world.rig).permuted_pieces, 0); /* one says too little */
        load_all(&world, 50000);
        assert_int_equal(reorder(&world.rig), SPEC_OK);
        wait_for_orders(&world.rig, 5);
        for (uint32_t opened = 0; opened < 3; opened++) {
            rig_pass_ns(&world.rig, 100000000);
            assert_int_equal(waiting(&world.rig), 0);
            for (uint32_t ppm = 50000; ppm <= 1000000; ppm += 190000)
                load_all(&world, ppm);
            assert_int_equal(reorder(&world.rig), SPEC_OK);
            rig_pass_ns(&world.rig, 1000000000);
            assert_true(rig_store_stats(&world.rig).permuted_pieces <= 5); /* once */
            rig_reopen(&world.rig);
        }
        assert_int_equal(rig_store_stats(&world.rig).corrupt_rows, 0);
        world_done(&world);
    }
}

/* Loads from the back have the quantised values that items without exact rows have, or the rows. */
static void a_load_from_the_back_reads_reordered_rows(void **state)
{
    (void)state;
    static const char *const layouts[] = {"paired", "split"};
    for (uint32_t i = 0; i < 4; i++) {
        struct world world;
        uint32_t ppm = i < 2 ? 0 : 1000000;
        open_layered(&world, layouts[i % 2], "");
        load_all(&world, 50000);
        load_all(&world, 50000);
        assert_int_equal(reorder(&world.rig), SPEC_OK);
        wait_for_orders(&world.rig, 5);
        spec_request request = look(&world, 0);
        struct shot shots[4];
        struct spec_important items[4];
        for (uint32_t layer = 0; layer < 4; layer++) {
            shot_make(&shots[layer], &world, request, layer, 0, ppm);
            items[layer] = rig_item(request, layer, &shots[layer].area.memory);
            items[layer].flags = SPEC_ITEM_BIDIRECTIONAL;
            items[layer].select = &shots[layer].select;
        }
        (void)rig_submit_whole(&world.rig, items, 4);
        for (uint32_t layer = 0; layer < 4; layer++) {
            struct area *tail = &shots[layer].area;
            struct shot shot;
            assert_int_equal(items[layer].row_count, 300);
            assert_int_equal(items[layer].exact_rows, i < 2 ? 0 : 300);
            shot_make(&shot, &world, request, layer, 0, ppm);
            assert_int_equal(fire(&world, &shot), SPEC_OK);
            assert_rows(&world, &shot, 0, 4, 2);
            assert_memory_equal(tail->memory.k_base, shot.area.memory.k_base,
                                300 * rig_part_bytes(&world.rig));
            assert_memory_equal(tail->memory.v_base, shot.area.memory.v_base,
                                300 * rig_part_bytes(&world.rig));
            shot_free(&shot);
            shot_free(&shots[layer]);
        }
        world_leave(&world, request);
    }
}

static void it_comes_by_itself_every_so_often(void **state)
{
    (void)state;
    struct world world;
    open_layered(&world, "paired", ", \"reorder\": {\"interval_s\": 7, \"scope\": \"node\"}");
    load_all(&world, 50000);
    load_all(&world, 50000);
    rig_pass_ns(&world.rig, 1000000000);
    assert_int_equal(rig_store_stats(&world.rig).permuted_pieces, 0);
    for (uint32_t i = 0; i < 8; i++)
        rig_pass_ns(&world.rig, 1000000000);
    wait_for_orders(&world.rig, 5);
    load_all(&world, 50000);
    world_done(&world);
}

/* The request that was open reads on, for as long as it likes; then what it read goes. */
static void an_open_request_keeps_what_it_reads(void **state)
{
    (void)state;
    struct world world;
    open_layered(&world, "paired", "");
    load_all(&world, 50000);
    load_all(&world, 50000);
    spec_request request = look(&world, 0);
    load_by(&world, request, 50000);
    assert_int_equal(reorder(&world.rig), SPEC_OK);
    wait_for_orders(&world.rig, 5);
    for (uint32_t i = 0; i < 4; i++) {
        for (uint32_t second = 0; second < 20; second++) /* leases are over */
            rig_pass_ns(&world.rig, 1000000000);
        assert_int_equal(waiting(&world.rig), 1);
        assert_int_equal(rig_store_stats(&world.rig).quarantine_bytes, 0);
        load_by(&world, request, i % 2 == 0 ? 1000000 : 50000);
        load_all(&world, 50000); /* whoever comes later reads the new one */
    }
    rig_release(&world.rig, request);
    rig_pass_ns(&world.rig, 100000000);
    rig_pass_ns(&world.rig, 100000000);
    assert_int_equal(waiting(&world.rig), 0);
    assert_true(rig_store_stats(&world.rig).quarantine_bytes > 0);
    load_all(&world, 1000000);
    world_done(&world);
}

/* ---- Nodes ----------------------------------------------------------------------------------- */

/* Which of 16 rows are important: of t0 .. t15 the papers' t0 and t3, and so on. */
static bool is_important(uint64_t position)
{
    return position % 4 == 0 || position % 4 == 3;
}

/* Every live piece's averages, as two requests would have left them. */
static void averages_put(struct rig *rig)
{
    static uint16_t codes[SC_LIMIT_LAYERS * 256];
    for (uint64_t id = 1; id < rig->conn->store->table.piece_next; id++) {
        struct sc_store_piece_place place;
        if (!sc_store_piece_place(rig->conn->store, id, &place))
            continue;
        for (uint64_t i = 0; i < rig->layers * (uint64_t)place.row_count; i++)
            codes[i] = is_important(place.first_position + i % place.row_count) ? 60000 : 30000;
        const struct sc_store_average average = {
            .piece = id, .requests = 2, .row_count = place.row_count, .codes = codes};
        assert_int_equal(sc_store_average_put(rig->conn->store, &average, 1, &rig->error), SPEC_OK);
    }
}

/* p0 and p1 share a beginning (IMPRESS 4.4.1): three nodes of two extents, each extent ordered by
 * itself from averages that a restart has brought back; both prompts are found, whole and in their
 * order. */
static void prompts_that_share_a_node_are_found_as_before(void **state)
{
    (void)state;
    struct rig rig;
    rig_begin_shape(&rig, true,
                    "\"preset\": \"impress-itf\", \"chunk_tokens\": 16, "
                    "\"maintain\": {\"bytes_per_s\": 0}, \"reorder\": {\"scope\": \"node\"}",
                    2, 2, 64, SPEC_DTYPE_F32);
    struct prompt p0 = rig_prompt(1, 64, 1, 128), p1 = rig_prompt(1, 64, 2, 128);
    assert_int_equal(rig_fill(&rig, &p0), SPEC_OK);
    assert_int_equal(rig_fill(&rig, &p1), SPEC_OK);
    rig_background(&rig);
    averages_put(&rig);
    rig_reopen(&rig);
    assert_int_equal(reorder(&rig), SPEC_OK);
    wait_for_orders(&rig, 8 + 4);
    uint64_t extents = 0;
    for (uint64_t id = 1; id < rig.conn->store->table.extent_next; id++) {
        const struct sc_store_extent_entry *extent =
            sc_store_table_extent(&rig.conn->store->table, id);
        const struct sc_store_section *derived_section = atomic_load(&extent->permutation);
        if (derived_section == NULL)
            continue;
        uint64_t rows = extent->row_count, half = rows / 2;
        extents++;
        for (uint32_t layer = 0; layer < 2; layer++) /* important ones first, each by position */
            for (uint64_t row = 0; row < rows; row++) {
                uint64_t before = row / 4 * 2 + (row % 4 == 3 ? 1 : row % 4 == 2 ? 1 : 0);
                assert_int_equal(sc_store_permutation_of(derived_section->slots, rows, layer)[row],
                                 is_important(row) ? before : half + before);
            }
    }
    assert_int_equal(extents, 2);
    rig.extra = "\"preset\": \"as-like\", \"chunk_tokens\": 16, \"store\": {\"layout\": \"split\"}";
    rig_reopen(&rig);
    for (uint32_t opened = 0; opened < 2; opened++) {
        spec_status status;
        assert_int_equal(rig_read(&rig, &p0, &status), 128);
        assert_int_equal(status, SPEC_OK);
        assert_int_equal(rig_read(&rig, &p1, &status), 128);
        assert_int_equal(status, SPEC_OK);
        rig_reopen(&rig);
    }
    rig_end(&rig, &p0, &p1);
}

/* ---- Again ----------------------------------------------------------------------------------- */

#define AGAIN_TOKENS 256u
#define AGAIN_LAYERS 2u

struct again {
    struct rig rig;
    struct prompt prompt;
    uint64_t requests; /* that were noted */
};

static void again_open(struct again *again, const char *more)
{
    static char config[1024]; /* the rig keeps it, for a reopen */
    (void)snprintf(
        config, sizeof(config),
        "\"preset\": \"spi\", \"chunk_tokens\": 16, \"select\": {\"retain_ppm\": 250000, "
        "\"min_tokens\": 0, \"min_share_ppm\": 0}, \"read\": {\"planner\": \"chunk\"}, "
        "\"host_bytes\": 0, \"lease_ns_max\": 5000000000, "
        "\"maintain\": {\"bytes_per_s\": 0}, "
        "\"reorder\": {\"scope\": \"node\"%s",
        more);
    *again = (struct again){.requests = 0};
    rig_begin_shape(&again->rig, true, config, AGAIN_LAYERS, 2, 512, SPEC_DTYPE_F32);
    again->prompt = rig_prompt(1, 0, 0, AGAIN_TOKENS + 1);
    struct prompt stored = {AGAIN_TOKENS, again->prompt.tokens, again->prompt.history};
    assert_int_equal(rig_fill(&again->rig, &stored), SPEC_OK);
    rig_background(&again->rig);
}

static void again_done(struct again *again)
{
    assert_int_equal(rig_store_stats(&again->rig).corrupt_rows, 0);
    rig_end(&again->rig, &again->prompt);
}

static struct spec_lookup_result again_look(struct again *again)
{
    struct spec_lookup_result found;
    assert_int_equal(rig_try_lookup(&again->rig, &again->prompt, 0, RIG_MAX, &found), SPEC_OK);
    assert_int_equal(found.matched_tokens, AGAIN_TOKENS);
    return found;
}

/* A request's importance: every second row of one half, 64 in all, and noise everywhere. Sets 0 and
 * 2 are of the first half, 1 and 3 of the second; they have no row in common. */
static void note(struct again *again, uint32_t set)
{
    spec_connector *conn = again->rig.conn;
    float sums[AGAIN_TOKENS];
    struct spec_lookup_result found = again_look(again);
    const struct sc_plugin_request *request = sc_plugin_request_find(conn, found.request);
    again->requests++;
    for (uint32_t layer = 0; layer < AGAIN_LAYERS; layer++) {
        const struct sc_baseline_sample sample = {.ranges = request->ranges,
                                                  .range_count = request->range_count,
                                                  .layer = layer,
                                                  .sums = sums};
        for (uint32_t row = 0; row < AGAIN_TOKENS; row++) {
            uint64_t noise = rig_mix(again->requests * 1000003 + layer * 1009 + row) % 1000;
            bool is_important =
                row / (AGAIN_TOKENS / 2) == set % 2 && row % 2 == (layer + set / 2) % 2;
            sums[row] = (is_important ? 3.f : 1.f) * (.5f + (float)noise / 1000);
        }
        (void)sc_baseline_averages_note(conn->baseline.averages, &sample);
    }
    rig_release(&again->rig, found.request);
}

/* Loads what the averages select, checks it, and returns the bytes that were read. */
static uint64_t read_chosen(struct again *again)
{
    struct rig *rig = &again->rig;
    struct spec_lookup_result found = again_look(again);
    uint64_t before = rig_store_stats(rig).read_bytes, part = rig_part_bytes(rig);
    for (uint32_t layer = 0; layer < AGAIN_LAYERS; layer++) {
        struct area area = rig_area(rig, AGAIN_TOKENS);
        uint32_t positions[AGAIN_TOKENS];
        uint8_t row[4096];
        struct spec_important item = {.struct_size = sizeof(item),
                                      .request = found.request,
                                      .layer = layer,
                                      .destination = &area.memory,
                                      .positions = positions,
                                      .position_capacity = AGAIN_TOKENS};
        assert_int_equal(sc_plugin_get_important(rig->conn, &item, 1, NULL), SPEC_OK);
        assert_int_equal(item.row_count, AGAIN_TOKENS / 4);
        for (uint32_t i = 0; i < item.row_count; i++) {
            rig_row(rig, &again->prompt, positions[i], layer, 0, row);
            assert_memory_equal((const uint8_t *)area.memory.k_base + i * part, row, part);
            rig_row(rig, &again->prompt, positions[i], layer, 1, row);
            assert_memory_equal((const uint8_t *)area.memory.v_base + i * part, row, part);
        }
        rig_area_free(&area);
    }
    rig_release(rig, found.request);
    return rig_store_stats(rig).read_bytes - before;
}

/* Reorders what is to be; the copy before is freed. */
static void reorder_and_wait(struct again *again)
{
    assert_int_equal(reorder(&again->rig), SPEC_OK);
    for (uint32_t i = 0; i < 1000 && (i < 3 || rig_store_stats(&again->rig).is_building); i++)
        rig_pass_ns(&again->rig, 1000000);
    for (uint32_t second = 0; second < 20; second++)
        rig_pass_ns(&again->rig, 1000000000);
    assert_int_equal(waiting(&again->rig), 0);
    assert_int_equal(rig_store_stats(&again->rig).quarantine_bytes, 0);
}

static uint64_t again_count(const struct again *again)
{
    return rig_store_stats(&again->rig).permuted_again;
}

/* Importance moves from one half of the rows to the other: a request's chunks become more, and as
 * few as before when the rows were reordered again. Then to other rows, also after a reopen. */
static void importance_that_moves_is_followed(void **state)
{
    (void)state;
    struct again again;
    again_open(&again, "}");
    for (uint32_t i = 0; i < 16; i++)
        note(&again, 0);
    reorder_and_wait(&again);
    uint64_t written = rig_store_stats(&again.rig).permuted_write_bytes;
    assert_true(written > 0);
    for (uint32_t set = 1; set < 4; set++) {
        uint64_t good = read_chosen(&again);
        for (uint32_t i = 0; i < 15; i++)
            note(&again, set);
        uint64_t moved = read_chosen(&again);
        reorder_and_wait(&again); /* a request too few */
        assert_int_equal(again_count(&again), set < 3 ? (set - 1) * 16 : 0);
        note(&again, set);
        reorder_and_wait(&again);
        assert_int_equal(again_count(&again), set < 3 ? set * 16 : 16);
        uint64_t followed = read_chosen(&again);
        assert_true(moved > good * 3 / 2);
        assert_true(followed <= good * 11 / 10);
        assert_int_equal(rig_store_stats(&again.rig).permuted_write_bytes,
                         (set < 3 ? set + 1 : 1) * written);
        if (set != 2)
            continue;
        rig_reopen(&again.rig); /* counters begin anew */
        reorder_and_wait(&again);
        reorder_and_wait(&again);
    }
    assert_int_equal(again_count(&again), 16);
    again_done(&again);
}

/* Noise over many requests, and never where that is configured. */
static void stable_importance_is_left_alone(void **state)
{
    (void)state;
    for (uint32_t never = 0; never < 2; never++) {
        struct again again;
        again_open(&again, never == 0 ? "}" : ", \"repeat_ppm\": 0}");
        for (uint32_t i = 0; i < 2; i++)
            note(&again, 0);
        reorder_and_wait(&again);
        uint64_t written = rig_store_stats(&again.rig).permuted_write_bytes;
        for (uint32_t i = 0; i < 200; i++) {
            note(&again, never);
            if (i % 16 == 15)
                reorder_and_wait(&again);
        }
        (void)read_chosen(&again);
        assert_int_equal(again_count(&again), 0);
        assert_int_equal(rig_store_stats(&again.rig).permuted_write_bytes, written);
        again_done(&again);
    }
}

/* By itself, every so often, also if the wall clock jumps; a request that is open keeps the copy
 * that it reads, and eviction ends both. */
static void it_comes_again_by_itself(void **state)
{
    (void)state;
    struct again again;
    again_open(&again, ", \"interval_s\": 7}");
    for (uint32_t i = 0; i < 2; i++)
        note(&again, 0);
    for (uint32_t second = 0; second < 40; second++)
        rig_pass_ns(&again.rig, 1000000000);
    assert_int_equal(rig_store_stats(&again.rig).permuted_pieces, 16);
    for (uint32_t i = 0; i < 16; i++)
        note(&again, 1);
    struct spec_lookup_result open = again_look(&again);
    sc_exec_wall_set(again.rig.conn->exec, -INT64_C(86400000000000));
    for (uint32_t second = 0; second < 40; second++)
        rig_pass_ns(&again.rig, 1000000000);
    assert_int_equal(again_count(&again), 16);
    assert_int_equal(waiting(&again.rig), 1);
    (void)read_chosen(&again);
    for (uint32_t i = 0; i < 16; i++)
        note(&again, 2);
    for (uint32_t second = 0; second < 40; second++)
        rig_pass_ns(&again.rig, 1000000000);
    assert_int_equal(again_count(&again), 16); /* no third copy */
    rig_release(&again.rig, open.request);
    for (uint32_t second = 0; second < 40; second++)
        rig_pass_ns(&again.rig, 1000000000);
    assert_int_equal(again_count(&again), 32);
    (void)read_chosen(&again);
    rig_reopen(&again.rig);
    (void)read_chosen(&again);
    assert_int_equal(sc_plugin_reset(again.rig.conn, NULL), SPEC_OK);
    for (uint32_t second = 0; second < 40; second++)
        rig_pass_ns(&again.rig, 1000000000);
    assert_int_equal(rig_store_stats(&again.rig).extent_bytes, 0);
    again_done(&again);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_requests_make_an_order),
        cmocka_unit_test(a_load_from_the_back_reads_reordered_rows),
        cmocka_unit_test(it_comes_by_itself_every_so_often),
        cmocka_unit_test(an_open_request_keeps_what_it_reads),
        cmocka_unit_test(prompts_that_share_a_node_are_found_as_before),
        cmocka_unit_test(importance_that_moves_is_followed),
        cmocka_unit_test(stable_importance_is_left_alone),
        cmocka_unit_test(it_comes_again_by_itself),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
