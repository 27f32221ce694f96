/* stage where a configuration chooses rows: codes, probe keys and row tags come before rows, and a
 * load reads them of memory; without room, with damage on the disk, and when it is ended meanwhile.
 *
 * Threads: the fixture's; the last test: three more, on a directory. */
#include "plugin/select/select.h"
#include "store/cache/host_tier_slab.h"
#include "store/internal.h"
#include "tests/unit/plugin/layered_fixture.h"
#include "tests/unit/threads.h"

#define MATCHED 300u
#define LAYERS  4u
#define MS      UINT64_C(1000000)

static uint64_t choosing_read(const struct world *world)
{
    return atomic_load(&world->rig.conn->stats.selector_read_bytes);
}

static struct spec_lookup_result peek(struct world *world)
{
    struct spec_lookup_result result = rig_peeked(&world->rig, &world->prompt, 0);
    return result;
}

/* Stored, coded, and opened again: host memory is empty. */
static void open_with(struct world *world, const char *extra, uint64_t seed)
{
    static const uint32_t DTYPES[] = {SPEC_DTYPE_F16, SPEC_DTYPE_BF16, SPEC_DTYPE_F32};
    world_open_quantised(world, extra, 2 + (uint32_t)(seed % 2), 1 + (uint32_t)(seed % 3), 16,
                         DTYPES[seed % 3], MATCHED, 3);
    rig_background(&world->rig);
    rig_reopen(&world->rig);
    assert_int_equal(rig_store_stats(&world->rig).host_bytes_used, 0);
}

/* The request's selectors, which lookup begins, have come, and fill nothing any more. */
static spec_request look_and_land(struct world *world)
{
    spec_request request = look(world, 0);
    rig_pass_ns(&world->rig, 100 * MS);
    return request;
}

/* All layers, as the preset has them. false: one failed. */
static bool load_all(struct world *world, spec_request request, bool is_layered)
{
    bool good = true;
    for (uint32_t layer = 0; layer < LAYERS && good; layer++) {
        static struct shot shot;
        static uint32_t positions[8 * MATCHED];
        shot_make(&shot, world, request, layer, 0, 0);
        shot.select.given = 0;
        if (!is_layered) {
            shot.item.positions = positions;
            shot.item.position_capacity = 8 * MATCHED;
        }
        good = fire(world, &shot) == SPEC_OK;
        if (good && is_layered && world->rig.conn->config.chunk_tokens == 64) /* as the fixture's */
            assert_rows(world, &shot, 0, world->rig.conn->config.quarters_k / 4,
                        world->rig.conn->config.quarters_v / 4);
        shot_free(&shot);
    }
    return good;
}

/* Layers, summed up over the pieces of the match, of which rows are in host memory. */
static uint64_t rows_in_host_tier(struct world *world, spec_request request)
{
    const struct sc_plugin_request *found = sc_plugin_request_find(world->rig.conn, request);
    uint64_t layers = 0;
    for (uint64_t r = 0; r < found->range_count; r++)
        layers += sc_store_piece_host_layers(world->rig.conn->store, found->ranges[r].piece, NULL);
    return layers;
}

/* Nothing is in host memory any more. */
static void forget_all(struct world *world)
{
    struct sc_store *store = world->rig.conn->store;
    for (uint64_t id = 1; id < sc_store_piece_next(store); id++) {
        const struct sc_store_piece_entry *piece = sc_store_table_live(&store->table, id);
        if (piece != NULL)
            sc_host_slab_piece_gone(store, piece);
    }
}

static const char *const PRESETS[] = {
    "as-like",     "as-h2o-lfu",        "as-h2o-lru",   "spi",           "random",
    "impress-itf", "spec-itf",          "hinted",       "layered",       "int8",
    "spi+range",   "impress-itf+range", "hinted+range", "layered+range", "random+range",
};
#define PRESET_COUNT (sizeof(PRESETS) / sizeof(PRESETS[0]))

static const char *const SHAPES[] = {"", ", \"store\": {\"layout\": \"split\"}",
                                     ", \"chunk_tokens\": 16"};

static void nothing_is_read_after_it(void **state)
{
    (void)state;
    for (uint32_t p = 0; p < PRESET_COUNT * 3; p++) {
        struct world world;
        char extra[200];
        bool is_layered =
            strncmp(PRESETS[p / 3], "layered", 7) == 0 || strncmp(PRESETS[p / 3], "int8", 4) == 0;
        bool by_rows = strcmp(PRESETS[p / 3], "int8") != 0;
        (void)snprintf(extra, sizeof(extra), "\"preset\": \"%s\", \"host_bytes\": \"64MiB\"%s",
                       PRESETS[p / 3], SHAPES[p % 3]);
        open_with(&world, extra, p);
        spec_request request = look_and_land(&world);
        assert_int_equal(rig_wait(&world.rig, rig_stage(&world.rig, request, 0)), SPEC_OK);
        assert_int_equal(peek(&world).state, SPEC_LOOKUP_HIT);
        uint64_t pieces = sc_plugin_request_find(world.rig.conn, request)->range_count;
        assert_int_equal(rows_in_host_tier(&world, request), by_rows ? pieces * LAYERS : 0);
        spec_request second = look(&world, 0);
        uint64_t before = rig_store_stats(&world.rig).read_bytes, chosen = choosing_read(&world);
        assert_true(load_all(&world, second, is_layered));
        if (rig_store_stats(&world.rig).read_bytes != before || choosing_read(&world) != chosen)
            fail_msg("%s: %lu bytes were read", extra,
                     rig_store_stats(&world.rig).read_bytes - before);
        rig_release(&world.rig, request);
        world_leave(&world, second);
    }
}

/* All rows are there, what they are chosen by is not: that is on its way, and waited for. */
static void lookups_wait_for_it_too(void **state)
{
    static const char *const WAYS[] = {"layered", "int8", "hinted", "impress-itf", "random"};
    (void)state;
    for (uint32_t i = 0; i < 5; i++) {
        struct world world;
        char extra[200];
        (void)snprintf(extra, sizeof(extra), "\"preset\": \"%s\", \"host_bytes\": \"64MiB\"",
                       WAYS[i]);
        open_with(&world, extra, i);
        spec_request request = look_and_land(&world);
        struct sc_plugin_request *found = sc_plugin_request_find(world.rig.conn, request);
        const struct sc_store_match_fetch_wants wants =
            sc_plugin_host_prefetch_wants(world.rig.conn, found);
        struct sc_store_match_fetch_wants rows = wants;
        rows.choice_from = rows.rows_end = LAYERS; /* what stage brought without choosing */
        rows.is_quant = false;
        assert_int_equal(rig_wait(&world.rig, rig_stage(&world.rig, request, 0)), SPEC_OK);
        for (uint64_t r = 0; r < found->range_count; r++) {
            uint64_t piece = found->ranges[r].piece;
            assert_true(sc_store_match_fetch_has(world.rig.conn->store, &wants, piece));
            assert_int_equal(sc_store_match_fetch_has(world.rig.conn->store, &rows, piece),
                             i != 1); /* int8 reads no rows */
        }
        /* One slab of it is gone. */
        const struct sc_store_range range = {.piece = found->ranges[1].piece, .row_count = 1};
        struct sc_store_match_fetch_wants last = wants;
        last.choice_from = 2;
        sc_host_slab_forget_tags(world.rig.conn->store, 3, &range);
        assert_false(sc_store_match_fetch_has(world.rig.conn->store, &last, range.piece));
        assert_false(sc_store_match_fetch_has(world.rig.conn->store, &wants, range.piece));
        assert_int_equal(sc_store_match_fetch_has(world.rig.conn->store, &rows, range.piece),
                         i != 1);
        assert_int_equal(peek(&world).state, SPEC_LOOKUP_HIT); /* nobody brings it */
        spec_ticket ticket = rig_stage(&world.rig, request, 0);
        assert_int_equal(peek(&world).state, SPEC_LOOKUP_PENDING);
        assert_int_equal(rig_wait(&world.rig, ticket), SPEC_OK);
        ticket = rig_stage(&world.rig, request, 0);
        assert_int_equal(peek(&world).state, SPEC_LOOKUP_HIT); /* all of it is there */
        assert_int_equal(rig_wait(&world.rig, ticket), SPEC_OK);
        world_leave(&world, request);
    }
}

/* Rows of other layers than loads will read are there: those that they will read are missing. */
static void lookups_wait_for_the_right_layers(void **state)
{
    (void)state;
    struct world world;
    open_with(&world,
              "\"preset\": \"int8\", \"host_bytes\": \"64MiB\", \"select\": {\"dense_layers\": 2}",
              0);
    spec_request request = look_and_land(&world);
    for (uint32_t i = 0; i < 4; i++) { /* of layers 2 and 3 rows, and then codes */
        static struct shot shot;
        shot_make(&shot, &world, request, 2 + i % 2, 0, i < 2 ? 1000000 : 0);
        assert_int_equal(fire(&world, &shot), SPEC_OK);
        shot_free(&shot);
        rig_pass_ns(&world.rig, 100 * MS);
    }
    const struct sc_plugin_request *found = sc_plugin_request_find(world.rig.conn, request);
    struct sc_store *store = world.rig.conn->store;
    for (uint64_t r = 0; r < found->range_count; r++)
        for (uint32_t layer = 0; layer < 2; layer++)
            sc_host_slab_forget(store, layer, &found->ranges[r]);
    assert_int_equal(rows_in_host_tier(&world, request), found->range_count * 2);
    const struct sc_store_match_fetch_wants wants =
        sc_plugin_host_prefetch_wants(world.rig.conn, found);
    assert_int_equal(wants.rows_end, 2);
    spec_ticket ticket = rig_stage(&world.rig, request, 0);
    assert_int_equal(peek(&world).state, SPEC_LOOKUP_PENDING);
    assert_int_equal(rig_wait(&world.rig, ticket), SPEC_OK);
    assert_int_equal(rows_in_host_tier(&world, request), found->range_count * 4);
    for (uint64_t r = 0; r < found->range_count; r++)
        assert_true(sc_store_match_fetch_has(store, &wants, found->ranges[r].piece));
    world_leave(&world, request);
}

/* Memory of any size: what rows are chosen by, of layer after layer, then rows. */
static void without_room_the_front_is_there(void **state)
{
    static const uint64_t SIZES[] = {4096, 20480, 65536, 131072, 200000, 500000};
    (void)state;
    for (uint32_t i = 0; i < 6 * 3; i++) {
        struct world world;
        char extra[200];
        (void)snprintf(extra, sizeof(extra),
                       "\"preset\": \"layered-uniform\", \"host_bytes\": %lu%s", SIZES[i / 3],
                       SHAPES[i % 3]);
        open_with(&world, extra, 0);
        spec_request request = look_and_land(&world);
        struct sc_plugin_request *found = sc_plugin_request_find(world.rig.conn, request);
        spec_status status = rig_wait(&world.rig, rig_stage(&world.rig, request, 0));
        assert_true(status == SPEC_OK || status == SPEC_E_NO_SPACE);
        assert_int_equal(peek(&world).state, SPEC_LOOKUP_HIT);
        assert_in_range(rig_store_stats(&world.rig).host_bytes_kept, 0,
                        SIZES[i / 3] / 4 * 3 + 4096);
        struct sc_store_match_fetch_wants wants =
            sc_plugin_host_prefetch_wants(world.rig.conn, found);
        wants.rows_end = 0; /* codes alone */
        bool has_quant = true;
        for (uint64_t r = 0; r < found->range_count; r++)
            has_quant = has_quant && sc_store_match_fetch_has(world.rig.conn->store, &wants,
                                                              found->ranges[r].piece);
        assert_true(has_quant || rows_in_host_tier(&world, request) == 0);
        assert_true(has_quant || status == SPEC_E_NO_SPACE);
        assert_true(i / 3 != 1 || !has_quant); /* it ended in the midst of codes, */
        assert_true(i / 3 < 5 || has_quant);   /* or behind them */
        assert_true(i / 3 != 1 || rig_store_stats(&world.rig).host_bytes_kept > 0);
        spec_request second = look(&world, 0);
        uint64_t chosen = choosing_read(&world);
        assert_true(load_all(&world, second, true));
        assert_true(!has_quant || choosing_read(&world) == chosen);
        rig_release(&world.rig, second);
        world_leave(&world, request);
    }
}

/* Codes of a piece that are more than one read takes, and more than a window usually has. */
static void long_codes_come_in_parts(void **state)
{
    (void)state;
    for (uint32_t n = 0; n < 2; n++) {
        struct world world = {.matched = 200, .group = 1};
        rig_init(&world.rig, true,
                 n == 0 ? "\"preset\": \"int8\", \"host_bytes\": \"256MiB\", \"select\": "
                          "{\"selector_bytes\": \"256MiB\"}"
                        : "\"preset\": \"int8\", \"host_bytes\": \"256MiB\", "
                          "\"select\": {\"selector_bytes\": \"256MiB\"}, "
                          "\"store\": {\"layout\": \"split\"}");
        rig_shape(&world.rig, 2, 64, 512, SPEC_DTYPE_F16);
        world.rig.stage = "256MiB";
        world.rig.op = n == 0 ? "1MiB" : "256KiB";
        world.prompt = rig_prompt(7, 0, 0, 200);
        rig_open(&world.rig);
        assert_int_equal(rig_fill(&world.rig, &world.prompt), SPEC_OK);
        wait_for_quant(&world);
        rig_background(&world.rig);
        rig_reopen(&world.rig);
        spec_request request = look_and_land(&world);
        forget_all(&world);
        assert_int_equal(rig_wait(&world.rig, rig_stage(&world.rig, request, 0)), SPEC_OK);
        assert_true(rig_store_stats(&world.rig).host_bytes_kept > 200u * 2 * 2 * 64 * 512);
        assert_int_equal(rows_in_host_tier(&world, request), 0);
        rig_release(&world.rig, request);
        request = look(&world, 0);
        uint64_t before = rig_store_stats(&world.rig).read_bytes;
        for (uint32_t layer = 0; layer < 2; layer++) {
            struct area area = rig_area(&world.rig, 200);
            struct spec_important item = rig_item(request, layer, &area.memory);
            assert_int_equal(sc_plugin_get_important(world.rig.conn, &item, 1, NULL), SPEC_OK);
            assert_int_equal(item.tier_rows[SPEC_TIER_HOST], 200);
            rig_area_free(&area);
        }
        assert_int_equal(rig_store_stats(&world.rig).read_bytes, before);
        world_leave(&world, request);
    }
}

/* Probe keys of which a read takes no whole number of pieces, or not one piece. */
static void long_keys_come_in_parts(void **state)
{
    static const char *const WAYS[] = {"impress-itf", "spec-itf", "random"};
    static const char *const PIECES[] = {"64", "256", "256, \"store\": {\"layout\": \"split\"}"};
    (void)state;
    for (uint32_t n = 0; n < 9; n++) {
        struct world world = {.matched = MATCHED, .group = 1, .agree = 3};
        char extra[200];
        (void)snprintf(extra, sizeof(extra),
                       "\"preset\": \"%s\", \"host_bytes\": \"64MiB\", \"chunk_tokens\": %s",
                       WAYS[n / 3], PIECES[n % 3]);
        rig_init(&world.rig, true, extra);
        rig_shape(&world.rig, LAYERS, 8, 128, SPEC_DTYPE_F16);
        world.rig.op = "64KiB";
        world.rig.query_group = 1;
        world.prompt = rig_prompt(7, 0, 0, MATCHED + FRESH_ROWS);
        rig_open(&world.rig);
        world_store(&world);
        rig_background(&world.rig);
        rig_reopen(&world.rig);
        spec_request request = look_and_land(&world);
        forget_all(&world);
        assert_int_equal(rig_wait(&world.rig, rig_stage(&world.rig, request, 0)), SPEC_OK);
        struct sc_plugin_request *found = sc_plugin_request_find(world.rig.conn, request);
        const struct sc_store_match_fetch_wants wants =
            sc_plugin_host_prefetch_wants(world.rig.conn, found);
        for (uint64_t r = 0; r < found->range_count; r++)
            assert_true(
                sc_store_match_fetch_has(world.rig.conn->store, &wants, found->ranges[r].piece));
        spec_request second = look(&world, 0);
        uint64_t before = rig_store_stats(&world.rig).read_bytes, chosen = choosing_read(&world);
        assert_true(load_all(&world, second, false));
        assert_int_equal(rig_store_stats(&world.rig).read_bytes, before);
        assert_int_equal(choosing_read(&world), chosen);
        rig_release(&world.rig, request);
        world_leave(&world, second);
    }
}

/* ---- Damage, and ends ------------------------------------------------------------------------ */

/* Every read in turn fails or returns a flipped bit. */
static void what_fails_is_never_served(void **state)
{
    static const char *const WAYS[] = {"layered", "int8"};
    (void)state;
    uint32_t ends[3] = {0};
    for (uint32_t n = 0; n < 48; n++) {
        struct world world;
        char extra[200];
        enum sc_io_sim_fault fault = n % 2 == 0 ? SC_SIM_READ_EIO : SC_SIM_FLIP;
        (void)snprintf(extra, sizeof(extra),
                       "\"preset\": \"%s\", \"host_bytes\": \"64MiB\", \"lease_ns_max\": 0, "
                       "\"store\": {\"layout\": \"%s\"}",
                       WAYS[n / 2 % 2], n / 4 % 2 == 0 ? "paired" : "split");
        open_with(&world, extra, 0);
        spec_request request = look_and_land(&world);
        forget_all(&world);
        sc_io_sim_fault_scope(world.rig.disk, "/seg-");
        sc_io_sim_fault_nth(world.rig.disk, fault, n / 4);
        spec_status ended = rig_wait(&world.rig, rig_stage(&world.rig, request, 0));
        bool fired = sc_io_sim_fault_fired(world.rig.disk, fault) > 0;
        sc_io_sim_fault_nth(world.rig.disk, fault, UINT64_MAX);
        rig_release(&world.rig, request);
        rig_background(&world.rig);
        ends[ended == SPEC_OK ? 0 : ended == SPEC_E_IO ? 1 : 2]++;
        assert_true(ended == SPEC_OK || fired);
        if (ended != SPEC_OK)
            assert_int_equal(ended, n % 2 == 0 ? SPEC_E_IO : SPEC_E_CORRUPT);
        struct spec_lookup_result now = peek(&world);
        assert_true(ended == SPEC_OK ? now.matched_tokens == MATCHED
                                     : now.matched_tokens < MATCHED);
        if (ended == SPEC_OK) {
            request = look(&world, 0);
            assert_true(load_all(&world, request, true));
            rig_release(&world.rig, request);
        }
        world_done(&world);
    }
    assert_true(ends[0] > 0 && ends[1] > 0 && ends[2] > 0);
}

/* A release, a reset or a close, anywhere on its way. */
static void it_ends_anywhere(void **state)
{
    (void)state;
    for (uint32_t n = 0; n < 60; n++) {
        struct world world;
        char extra[200];
        (void)snprintf(extra, sizeof(extra), "\"preset\": \"%s\", \"host_bytes\": \"64MiB\"%s",
                       n % 2 == 0 ? "layered" : "impress-itf", SHAPES[n / 2 % 3]);
        open_with(&world, extra, 0);
        spec_request request = look_and_land(&world);
        spec_ticket ticket = rig_stage(&world.rig, request, 0);
        for (uint32_t i = 0; i < n / 6; i++)
            (void)sc_exec_step_one(world.rig.conn->exec);
        bool closes = n % 3 == 2;
        if (n % 3 == 0)
            rig_release(&world.rig, request);
        else if (n % 3 == 1)
            assert_int_equal(sc_plugin_reset(world.rig.conn, NULL), SPEC_OK);
        if (!closes) {
            assert_int_equal(rig_wait(&world.rig, ticket), SPEC_E_DROPPED);
            rig_pass_ns(&world.rig, 100 * MS); /* the store lets go */
            assert_int_equal(rig_store_stats(&world.rig).host_bytes_kept, 0);
        }
        world_done(&world);
    }
}

/* ---- Threads --------------------------------------------------------------------------------- */

static void *stages_and_leaves(void *user)
{
    struct world *world = user;
    for (uint32_t i = 0; i < 60; i++) {
        struct spec_lookup_result found;
        spec_status ended, status = rig_try_lookup(&world->rig, &world->prompt, 0, RIG_MAX, &found);
        if (status != SPEC_OK || found.request == 0) {
            (void)sched_yield();
            continue;
        }
        const struct spec_prefetch_to_host_params params = {.struct_size = sizeof(params),
                                                            .request = found.request,
                                                            .deadline_ns =
                                                                i % 3 == 0 ? MS / 10 : 0};
        spec_ticket ticket = 0;
        status = sc_plugin_host_prefetch(world->rig.conn, &params, &ticket, NULL);
        if (status == SPEC_OK && i % 2 == 0)
            (void)sc_plugin_wait(world->rig.conn, &ticket, 1, 60000 * MS, &ended, NULL);
        if (i % 4 == 1)
            forget_all(world);
        (void)sc_plugin_release(world->rig.conn, found.request, NULL);
        if (status == SPEC_OK && i % 2 == 1)
            (void)sc_plugin_wait(world->rig.conn, &ticket, 1, 60000 * MS, &ended, NULL);
    }
    return NULL;
}

static void others_load_meanwhile(void **state)
{
    (void)state;
    for (uint32_t n = 0; n < 4; n++) {
        struct world world = {.matched = MATCHED, .group = 2, .agree = 3};
        char extra[200];
        (void)snprintf(extra, sizeof(extra),
                       "\"preset\": \"layered-uniform\", \"host_bytes\": \"%s\"%s",
                       n % 2 == 0 ? "64MiB" : "160KiB", SHAPES[n % 3]);
        world_make(&world, false, extra, LAYERS, 2, 16, MATCHED + 2);
        world_open_stored(&world);
        wait_for_quant(&world);
        const struct threads threads = threads_begin(stages_and_leaves, &world, 0, 3);
        for (uint32_t i = 0; i < 30; i++) {
            struct spec_lookup_result found;
            spec_status status = rig_try_lookup(&world.rig, &world.prompt, 0, RIG_MAX, &found);
            if (status != SPEC_OK || found.request == 0)
                continue;
            assert_true(load_all(&world, found.request, true));
            rig_release(&world.rig, found.request);
        }
        threads_join(&threads);
        assert_int_equal(atomic_load(&world.rig.conn->poison.broken), 0);
        world_done(&world);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_is_read_after_it),
        cmocka_unit_test(lookups_wait_for_it_too),
        cmocka_unit_test(lookups_wait_for_the_right_layers),
        cmocka_unit_test(without_room_the_front_is_there),
        cmocka_unit_test(long_codes_come_in_parts),
        cmocka_unit_test(long_keys_come_in_parts),
        cmocka_unit_test(what_fails_is_never_served),
        cmocka_unit_test(it_ends_anywhere),
        cmocka_unit_test(others_load_meanwhile),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
