/* Bidirectional loads of quantised rows (docs/decisions/0062), from inside: which rows the host
 * gets and what it is told of them, rows without good quantised rows, reads that fail, where both
 * ends meet. tail_desk.h tells who wrote a row and what it decodes to. */
#include "plugin/load/bidirectional.h"
#include "tests/sim/io_sim.h"
#include "tests/unit/awaits.h"
#include "tests/unit/plugin/gate.h"
#include "tests/unit/plugin/plugin_fixture.h"
#include "tests/unit/plugin/tail_desk.h"

#define LAYERS 3u
#define ROWS   260u
#define HALF   128u
#define QUANT  "\"chunk_tokens\": 16, \"load_policy\": \"bidirectional\", \"preset\": \"int8\""
#define DISK   QUANT ", \"host_bytes\": 0"
#define FOUR                                                                                       \
    "\"chunk_tokens\": 16, \"host_bytes\": 0, \"preset\": \"layered-uniform\", \"layered\": "      \
    "{\"exact_ppm\": 0}"

static const struct {
    bool is_sim;
    uint32_t bits_k, bits_v;
    const char *extra;
} WAYS[] = {
    {true, 8, 8, DISK},
    {true, 4, 2, FOUR},
    {true, 8, 8, DISK ", \"store\": {\"layout\": \"split\"}"},
    {true, 8, 8, QUANT ", \"host_bytes\": \"32MiB\""},
    {false, 8, 8, DISK ", \"submit\": {\"threads\": 0}"},
    {false, 8, 8, DISK},
    {false, 4, 2, FOUR ", \"store\": {\"layout\": \"split\"}"},
};
#define WAY_COUNT (sizeof(WAYS) / sizeof(WAYS[0]))

struct scene {
    struct rig rig;
    struct prompt prompt;
    uint32_t bits_k, bits_v;
};

/* Rows of 2 KiB, 32 of which are a block. */
static void scene_open_as(struct scene *scene, bool is_sim, const char *extra, uint64_t seed)
{
    scene->bits_k = scene->bits_v = 8;
    rig_init(&scene->rig, is_sim, extra);
    rig_shape(&scene->rig, LAYERS, 4, 128, SPEC_DTYPE_F16);
    scene->rig.op = "64KiB";
    rig_open(&scene->rig);
    scene->prompt = rig_prompt(seed, 0, 0, ROWS);
}

static void scene_open(struct scene *scene, bool is_sim, const char *extra, uint64_t seed)
{
    scene_open_as(scene, is_sim, extra, seed);
    assert_int_equal(rig_fill(&scene->rig, &scene->prompt), SPEC_OK);
    rig_wait_for_quant(&scene->rig);
}

static void scene_open_way(struct scene *scene, uint64_t way, uint64_t seed)
{
    scene_open(scene, WAYS[way].is_sim, WAYS[way].extra, seed);
    scene->bits_k = WAYS[way].bits_k;
    scene->bits_v = WAYS[way].bits_v;
}

static void scene_reopen(struct scene *scene, const char *extra)
{
    rig_close(&scene->rig);
    scene->rig.extra = extra;
    rig_open(&scene->rig);
}

static void scene_close(struct scene *scene)
{
    rig_end(&scene->rig, &scene->prompt);
}

static void scene_look(struct scene *scene, struct tail_desk *ret_desk)
{
    tail_desk_look(ret_desk, &scene->rig, &scene->prompt, 0, ROWS);
    ret_desk->bits_k = scene->bits_k;
    ret_desk->bits_v = scene->bits_v;
}

/* All layers have so many rows, of which so many are exact. */
static void expect(struct tail_desk *desk, spec_status status, uint64_t loaded, uint64_t exact)
{
    assert_int_equal(desk->items[0].status, status);
    assert_int_equal(tail_desk_check(desk), loaded);
    for (uint32_t i = 0; i < desk->rig->layers; i++)
        assert_int_equal(desk->items[i].exact_rows, exact);
}

static uint64_t exact_of(const struct tail_desk *desk)
{
    uint64_t exact = 0;
    for (uint32_t i = 0; i < desk->rig->layers; i++)
        exact += desk->items[i].exact_rows;
    return exact;
}

static void load_all(struct tail_desk *desk)
{
    assert_int_equal(tail_desk_submit(desk), SPEC_OK);
    assert_int_equal(tail_desk_wait(desk, UINT64_MAX), SPEC_OK);
    assert_int_equal(tail_desk_check(desk), desk->rows - desk->front);
}

/* ---- Which rows ----------------------------------------------------------------------------- */

/* 8 bits and scales of 16 rows: 5 / 8 of the rows' bytes are read, and nothing of the rows. */
static void all_rows_are_quantised_and_nothing_is_allocated(void **state)
{
    (void)state;
    for (uint64_t way = 0; way < WAY_COUNT; way++) {
        struct scene scene;
        struct tail_desk desk;
        scene_open_way(&scene, way, way);
        struct sc_plugin_stats *stats = &scene.rig.conn->stats;
        bool has_host = scene.rig.conn->config.host_bytes > 0;
        sc_alloc_seal(&scene.rig.conn->alloc);
        for (uint32_t round = 0; round < 3; round++) {
            uint64_t wanted = 0, host = 0;
            scene_look(&scene, &desk);
            load_all(&desk);
            expect(&desk, SPEC_OK, ROWS, 0);
            for (uint32_t i = 0; i < LAYERS; i++) {
                wanted += desk.items[i].wanted_bytes;
                host += desk.items[i].tier_rows[SPEC_TIER_HOST];
                assert_int_equal(desk.items[i].result_flags, 0);
            }
            assert_true(wanted > 0 && wanted < LAYERS * ROWS * 2048 / 100 * 66);
            assert_int_equal(host, has_host && round > 0 ? LAYERS * ROWS : host);
            assert_false(tail_desk_next(&desk, 512, NULL));
            tail_desk_leave(&desk);
        }
        sc_alloc_unseal(&scene.rig.conn->alloc);
        assert_int_equal(atomic_load(&scene.rig.conn->alloc.sealed_refusals), 0);
        assert_int_equal(atomic_load(&stats->quantised_layers), 3 * LAYERS);
        assert_int_equal(atomic_load(&stats->quantised_rows), 3 * LAYERS * ROWS);
        assert_int_equal(atomic_load(&stats->layered_forced_rows), 0);
        assert_int_equal(atomic_load(&stats->demanded_rows), 0);
        assert_int_equal(atomic_load(&stats->tail_tokens), 3 * ROWS);
        scene_close(&scene);
    }
}

/* Any share above none is all of them, and a lookup for exact rows, too. */
static void the_host_decides_whether_rows_are_quantised(void **state)
{
    (void)state;
    static const struct {
        const char *extra;
        uint32_t given; /* PPM of the items + 1; 0: as configured */
        uint32_t flags;
        bool is_exact;
    } CASES[] = {
        {DISK, 0, 0, false},
        {DISK, 1, 0, false},
        {DISK, 2, 0, true},
        {DISK, 1000001, 0, true},
        {DISK, 0, SPEC_LOOKUP_REQUIRE_EXACT, true},
        {DISK, 1, SPEC_LOOKUP_REQUIRE_EXACT, true},
        {DISK ", \"layered\": {\"exact_ppm\": 1}", 0, 0, true},
        {DISK ", \"layered\": {\"exact_ppm\": 1}", 1, 0, false},
        {DISK ", \"select\": {\"dense_layers\": 3}", 0, 0, true},
        {DISK ", \"select\": {\"min_tokens\": 1000, \"min_share_ppm\": 0, \"selector_bytes\": "
              "\"8MiB\"}",
         0, 0, false}, /* of selected rows alone */
        {DISK ", \"select\": {\"selector_bytes\": 0}", 0, 0, true},
        {DISK ", \"layered\": {\"quantise\": \"no\"}", 0, 0, true},
    };
    for (uint64_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        struct scene scene;
        struct tail_desk desk;
        struct spec_select select = {.struct_size = sizeof(select),
                                     .given = SPEC_SELECT_EXACT,
                                     .exact_ppm = CASES[i].given - 1};
        scene_open(&scene, true, CASES[i].extra, i);
        scene_look(&scene, &desk);
        rig_release(&scene.rig, desk.request);
        struct spec_lookup_params params =
            rig_lookup_params(&scene.prompt, 0, ROWS, CASES[i].flags);
        desk.request = rig_lookup_as(&scene.rig, &params).request;
        for (uint32_t layer = 0; layer < LAYERS; layer++) {
            desk.items[layer].request = desk.request;
            desk.items[layer].select = CASES[i].given > 0 ? &select : NULL;
        }
        load_all(&desk);
        expect(&desk, SPEC_OK, ROWS, CASES[i].is_exact ? ROWS : 0);
        tail_desk_leave(&desk);
        scene_close(&scene);
    }
}

/* Layers may differ. */
static void each_layer_has_its_own_share(void **state)
{
    (void)state;
    struct scene scene;
    struct tail_desk desk;
    struct spec_select exact = {
        .struct_size = sizeof(exact), .given = SPEC_SELECT_EXACT, .exact_ppm = 1000000};
    scene_open(&scene, true, DISK, 1);
    for (uint32_t layer = 0; layer < LAYERS; layer++) {
        scene_look(&scene, &desk);
        assert_true(tail_desk_next(&desk, 70, NULL));
        desk.items[layer].select = &exact;
        load_all(&desk);
        for (uint32_t i = 0; i < LAYERS; i++)
            assert_int_equal(desk.items[i].exact_rows, i == layer ? desk.items[i].row_count : 0);
        tail_desk_leave(&desk);
    }
    scene_close(&scene);
}

static void what_selects_rows_is_invalid(void **state)
{
    (void)state;
    static const char *const EXTRAS[] = {
        DISK, "\"chunk_tokens\": 16, \"load_policy\": \"bidirectional\", \"host_bytes\": 0"};
    for (uint32_t way = 0; way < 2; way++) {
        struct scene scene;
        struct tail_desk desk;
        scene_open(&scene, true, EXTRAS[way], 1);
        scene_look(&scene, &desk);
        for (uint32_t given = 0; given < 17; given++) {
            struct spec_select select = {.struct_size = sizeof(select), .given = given};
            desk.items[1].select = &select;
            bool is_fine = way == 0 && given == SPEC_SELECT_EXACT;
            if (!is_fine)
                assert_int_equal(tail_desk_submit(&desk), SPEC_E_INVALID);
        }
        struct spec_select more = {
            .struct_size = sizeof(more), .given = SPEC_SELECT_EXACT, .exact_ppm = 1000001};
        desk.items[1].select = &more;
        assert_int_equal(tail_desk_submit(&desk), SPEC_E_INVALID);
        desk.items[1].select = NULL;
        load_all(&desk);
        tail_desk_leave(&desk);
        scene_close(&scene);
    }
}

/* Bits per channel, keys stored without their rotation: the bytes are those of a layered item. */
static void other_codecs_decode_as_layered_items_do(void **state)
{
    (void)state;
    static const char *const EXTRAS[] = {
        "\"preset\": \"layered\", \"layered\": {\"exact_ppm\": 0, \"bits_k\": 3}",
        ("\"preset\": \"layered\", \"layered\": {\"exact_ppm\": 0, \"bits_k\": 1.5, "
         "\"bits_v\": 2.25}, \"store\": {\"layout\": \"split\"}"),
        "\"preset\": \"layered-uniform\", \"layered\": {\"exact_ppm\": 0, \"bits_k\": 5}"};
    for (uint32_t way = 0; way < 9; way++) {
        struct scene scene = {.bits_k = 0};
        struct tail_desk desk;
        char extra[300];
        (void)snprintf(extra, sizeof(extra), "\"chunk_tokens\": 16, \"host_bytes\": 0, %s",
                       EXTRAS[way % 3]);
        rig_init(&scene.rig, true, extra);
        rig_shape(&scene.rig, LAYERS, 4, 128, way % 2 == 0 ? SPEC_DTYPE_F16 : SPEC_DTYPE_BF16);
        scene.rig.rope.kind = way / 3 == 1   ? SPEC_ROPE_HALF
                              : way / 3 == 2 ? SPEC_ROPE_INTERLEAVED
                                             : SPEC_ROPE_NONE;
        scene.rig.rope.theta = way / 3 > 0 ? 10000 : 0;
        scene.rig.op = "64KiB";
        rig_open(&scene.rig);
        scene.prompt = rig_prompt(way, 0, 0, ROWS);
        assert_int_equal(rig_fill(&scene.rig, &scene.prompt), SPEC_OK);
        rig_wait_for_quant(&scene.rig);
        for (uint64_t from = 0; from < 40; from += 13) {
            tail_desk_look(&desk, &scene.rig, &scene.prompt, from, ROWS);
            assert_true(tail_desk_next(&desk, 21, NULL));
            assert_int_equal(tail_desk_submit(&desk), SPEC_OK);
            assert_int_equal(tail_desk_wait(&desk, UINT64_MAX), SPEC_OK);
            for (uint32_t layer = 0; layer < LAYERS; layer++) {
                uint64_t rows = ROWS - from, loaded = desk.items[layer].row_count;
                uint64_t bytes = rig_part_bytes(&scene.rig);
                assert_int_equal(loaded, rows - desk.front);
                assert_int_equal(desk.items[layer].exact_rows, 0);
                struct area area = rig_area(&scene.rig, rows);
                struct spec_important plain = rig_item(desk.request, layer, &area.memory);
                assert_int_equal(sc_plugin_get_important(scene.rig.conn, &plain, 1, NULL), SPEC_OK);
                assert_int_equal(plain.exact_rows, 0);
                const uint8_t *plains[2] = {area.memory.k_base, area.memory.v_base};
                for (uint32_t part = 0; part < 2; part++)
                    assert_memory_equal(plains[part] + desk.front * bytes,
                                        desk.bases[layer][part] + desk.front * bytes,
                                        loaded * bytes);
                rig_area_free(&area);
            }
            tail_desk_leave(&desk);
        }
        scene_close(&scene);
    }
}

/* ---- What is stored on them ----------------------------------------------------------------- */

/* Stores ROWS more tokens behind the match, which was loaded; returns how that ended. */
static spec_status store_behind(struct scene *scene, struct tail_desk *desk,
                                const struct prompt *longer)
{
    spec_status status =
        rig_wait(&scene->rig, rig_store(&scene->rig, desk->request, longer, ROWS, ROWS));
    tail_desk_leave(desk);
    return status;
}

static void what_is_stored_on_quantised_rows_is_lossy(void **state)
{
    (void)state;
    static const char *const EXTRAS[] = {DISK, DISK ", \"store\": {\"lossy\": \"no\"}"};
    for (uint32_t way = 0; way < 2; way++) {
        struct scene scene;
        struct tail_desk desk;
        scene_open(&scene, true, EXTRAS[way], 1);
        struct prompt longer = rig_prompt(1, 0, 0, 2 * ROWS);
        tail_desk_look(&desk, &scene.rig, &longer, 0, ROWS);
        desk.bits_k = desk.bits_v = 8;
        assert_true(tail_desk_next(&desk, 100, NULL));
        assert_int_equal(tail_desk_submit(&desk), SPEC_OK);
        assert_int_equal(tail_desk_wait(&desk, UINT64_MAX), SPEC_OK);
        assert_int_equal(desk.items[0].row_count, ROWS - 100 + 100 % 16);
        assert_int_equal(store_behind(&scene, &desk, &longer), way == 0 ? SPEC_OK : SPEC_E_DROPPED);
        struct spec_lookup_result found = rig_lookup(&scene.rig, &longer);
        assert_int_equal(found.matched_tokens, way == 0 ? 2 * ROWS : ROWS);
        assert_int_equal(found.provenance.kind,
                         way == 0 ? SPEC_PROVENANCE_LOSSY : SPEC_PROVENANCE_EXACT);
        if (way == 0) {
            assert_int_equal(found.provenance.bits_k, 8);
            assert_int_equal(found.provenance.exact_ppm, 0);
        }
        rig_release(&scene.rig, found.request);
        rig_prompt_free(&longer);
        scene_close(&scene);
    }
}

/* ---- Where they meet ------------------------------------------------------------------------ */

static void what_is_given_out_before_is_not_decoded(void **state)
{
    (void)state;
    static const uint64_t BUDGETS[] = {1, 15, 17, 100, 244, 259, 100000};
    for (uint64_t way = 0; way < WAY_COUNT; way++) {
        struct scene scene;
        struct tail_desk desk;
        scene_open_way(&scene, way, way);
        for (uint64_t i = 0; i < sizeof(BUDGETS) / sizeof(BUDGETS[0]); i++) {
            tail_desk_look(&desk, &scene.rig, &scene.prompt, i % 3 * 7, ROWS);
            desk.bits_k = scene.bits_k;
            desk.bits_v = scene.bits_v;
            if (i % 4 == 3)
                tail_desk_dress(&desk, i);
            assert_true(tail_desk_next(&desk, BUDGETS[i], NULL));
            for (uint32_t round = 0; round < 2; round++) {
                load_all(&desk);
                assert_int_equal(exact_of(&desk), 0);
                assert_false(tail_desk_next(&desk, 1, NULL));
            }
            tail_desk_leave(&desk);
        }
        scene_close(&scene);
    }
}

static void both_ends_at_once(void **state)
{
    (void)state;
    for (uint64_t way = 5; way < WAY_COUNT; way++) {
        struct scene scene;
        struct tail_desk desk;
        uint64_t computed = 0;
        scene_open_way(&scene, way, way);
        for (uint64_t round = 0; round < 20; round++) {
            scene_look(&scene, &desk);
            assert_int_equal(tail_desk_submit(&desk), SPEC_OK);
            for (uint64_t step = 0;
                 tail_desk_next(&desk, 1 + rig_mix(round * 1000 + step) % 24, NULL);)
                step++;
            assert_int_equal(tail_desk_wait(&desk, UINT64_MAX), SPEC_OK);
            expect(&desk, SPEC_OK, ROWS - desk.front, 0);
            assert_false(tail_desk_next(&desk, 1, NULL));
            computed += desk.front;
            tail_desk_leave(&desk);
        }
        assert_int_equal(atomic_load(&scene.rig.conn->stats.given_tokens), computed);
        assert_int_equal(atomic_load(&scene.rig.conn->stats.tail_tokens), 20 * ROWS - computed);
        scene_close(&scene);
    }
}

/* The load waits for a selector, and ends although the device still stands. */
static void a_device_that_stands_still_costs_nothing(void **state)
{
    (void)state;
    struct gate gate = GATE_OPEN;
    for (uint32_t round = 0; round < 8; round++) {
        struct scene scene;
        struct tail_desk desk;
        scene_open(&scene, false, DISK, round);
        sc_fault_gate_set(&scene.rig.conn->fault, gate_pass, &gate);
        scene_look(&scene, &desk);
        gate_shut(&gate, true);
        assert_int_equal(tail_desk_submit(&desk), SPEC_OK);
        if (round % 2 == 0)
            assert_true(gate_await(&gate, 1));
        while (tail_desk_next(&desk, 100, NULL))
            continue;
        assert_int_equal(desk.front, ROWS);
        assert_int_equal(tail_desk_wait(&desk, UINT64_MAX), SPEC_OK);
        expect(&desk, SPEC_OK, 0, 0);
        gate_shut(&gate, false);
        tail_desk_leave(&desk);
        scene_close(&scene);
    }
}

/* At the item's own deadline: an item without exact rows waits longer in a layered load alone. */
static void at_its_deadline_what_is_there_counts(void **state)
{
    (void)state;
    struct gate gate = GATE_OPEN;
    for (uint64_t deadline_ns = 1; deadline_ns <= 1000000; deadline_ns *= 1000) {
        struct scene scene;
        struct tail_desk desk;
        scene_open(&scene, false, DISK, 1);
        sc_fault_gate_set(&scene.rig.conn->fault, gate_pass, &gate);
        scene_look(&scene, &desk);
        gate_shut(&gate, true);
        desk.items[1].deadline_ns = deadline_ns;
        assert_true(tail_desk_next(&desk, 100, NULL));
        assert_int_equal(tail_desk_submit(&desk), SPEC_OK);
        assert_int_equal(tail_desk_wait(&desk, UINT64_MAX), SPEC_OK);
        for (uint32_t i = 0; i < LAYERS; i++)
            assert_int_equal(desk.items[i].result_flags, SPEC_IMPORTANT_PARTIAL);
        expect(&desk, SPEC_OK, 0, 0);
        gate_shut(&gate, false);
        while (tail_desk_next(&desk, 100, NULL))
            continue;
        assert_int_equal(desk.front, ROWS);
        tail_desk_leave(&desk);
        scene_close(&scene);
    }
}

/* ---- Rows without good quantised rows ------------------------------------------------------- */

/* Half of the match was stored before there were quantised rows, and a read failed that would have
 * made them. maintain makes them later. */
static void a_match_may_have_both(void **state)
{
    (void)state;
    static const char *const EXTRAS[] = {DISK, DISK ", \"store\": {\"layout\": \"split\"}"};
    static const char *const PLAIN[] = {
        DISK ", \"layered\": {\"quantise\": \"no\"}",
        DISK ", \"layered\": {\"quantise\": \"no\"}, \"store\": {\"layout\": \"split\"}"};
    for (uint32_t way = 0; way < 4; way++) {
        struct scene scene;
        struct tail_desk desk;
        bool is_first_plain = way % 2 == 0;
        scene_open_as(&scene, true, PLAIN[way / 2], 1);
        struct spec_lookup_result found = rig_lookup(&scene.rig, &scene.prompt);
        if (!is_first_plain) {
            rig_release(&scene.rig, found.request);
            scene_reopen(&scene, EXTRAS[way / 2]);
            found = rig_lookup(&scene.rig, &scene.prompt);
        }
        assert_int_equal(
            rig_wait(&scene.rig, rig_store(&scene.rig, found.request, &scene.prompt, 0, HALF)),
            SPEC_OK);
        rig_release(&scene.rig, found.request);
        if (!is_first_plain)
            rig_wait_for_quant(&scene.rig);
        scene_reopen(&scene, is_first_plain ? EXTRAS[way / 2] : PLAIN[way / 2]);
        if (is_first_plain)
            sc_fault_arm(&scene.rig.conn->fault, SC_FAULT_READ, 0);
        rig_wait_for_quant(&scene.rig);
        assert_int_equal(rig_fill(&scene.rig, &scene.prompt), SPEC_OK);
        rig_wait_for_quant(&scene.rig);
        for (uint64_t front = 0; front < 240; front += 70) {
            scene_look(&scene, &desk);
            if (front > 0)
                assert_true(tail_desk_next(&desk, front, NULL));
            load_all(&desk);
            uint64_t plain_first = is_first_plain ? desk.front : HALF;
            uint64_t plain_end = is_first_plain ? HALF : ROWS;
            plain_first = plain_first > desk.front ? plain_first : desk.front;
            expect(&desk, SPEC_OK, ROWS - desk.front,
                   plain_end > plain_first ? plain_end - plain_first : 0);
            tail_desk_leave(&desk);
        }
        scene_close(&scene);
    }
}

/* Each read fails once, or has a bit that is wrong: of a block of quantised rows its pieces are
 * exact, in the one layer. Nothing else is lost, and the next load has quantised rows again. */
static void a_read_that_fails_makes_rows_exact(void **state)
{
    (void)state;
    static const enum sc_io_sim_fault FAULTS[] = {SC_SIM_READ_EIO, SC_SIM_FLIP};
    uint64_t exact_loads = 0, all = 0;
    struct scene scene;
    scene_open(&scene, true, DISK, 1);
    sc_io_sim_fault_scope(scene.rig.disk, "seg-");
    for (uint32_t kind = 0; kind < 2; kind++)
        for (uint64_t n = 0, fired = 0;; n++) {
            struct tail_desk desk;
            scene_look(&scene, &desk);
            while (desk.front < n % 4 * 60 && tail_desk_next(&desk, 100, NULL))
                continue;
            sc_io_sim_fault_nth(scene.rig.disk, FAULTS[kind], n);
            load_all(&desk);
            uint64_t now = sc_io_sim_fault_fired(scene.rig.disk, FAULTS[kind]);
            bool has_fired = now > fired;
            uint64_t exact = exact_of(&desk);
            assert_true(exact <= 36 && (has_fired || exact == 0)); /* a block */
            exact_loads += exact > 0;
            all += exact;
            tail_desk_leave(&desk);
            if (!has_fired && n % 4 == 0) /* most reads: all rows are loaded */
                break;
            fired = now;
        }
    assert_int_equal(atomic_load(&scene.rig.conn->stats.layered_forced_rows), all);
    assert_int_equal(atomic_load(&scene.rig.conn->stats.corrupt_ranges), 0);
    assert_true(rig_store_stats(&scene.rig).bad_blocks > 20);
    assert_true(exact_loads > 60);
    scene_close(&scene);
}

/* Reads fail one after the other, so that quantised rows and rows of the same range fail: that ends
 * the load, and the rest is given out. */
static void a_range_without_any_good_rows_ends_the_loading_alone(void **state)
{
    (void)state;
    uint64_t failed = 0, partly = 0, mixed = 0;
    for (uint64_t seed = 0; seed < 25; seed++) {
        struct scene scene;
        struct tail_desk desk;
        scene_open(&scene, true, seed % 2 == 0 ? DISK : QUANT ", \"host_bytes\": \"32MiB\"", seed);
        scene_look(&scene, &desk);
        sc_io_sim_fault_scope(scene.rig.disk, "seg-");
        sc_io_sim_fault_ppm(scene.rig.disk, seed % 4 < 2 ? SC_SIM_READ_EIO : SC_SIM_FLIP,
                            (uint32_t)(20000 << seed % 5));
        assert_int_equal(tail_desk_submit(&desk), SPEC_OK);
        spec_status status = tail_desk_wait(&desk, UINT64_MAX);
        uint64_t loaded = tail_desk_check(&desk), exact = exact_of(&desk);
        assert_true(status == SPEC_OK ? loaded == ROWS : loaded < ROWS);
        failed += status != SPEC_OK;
        partly += status != SPEC_OK && loaded > 0;
        mixed += exact > 0 && exact < LAYERS * loaded;
        while (tail_desk_next(&desk, 100, NULL))
            continue;
        assert_int_equal(desk.front, ROWS - loaded);
        tail_desk_compare(&desk, loaded);
        tail_desk_leave(&desk);
        sc_io_sim_fault_ppm(scene.rig.disk, SC_SIM_READ_EIO, 0);
        sc_io_sim_fault_ppm(scene.rig.disk, SC_SIM_FLIP, 0);
        scene_close(&scene);
    }
    assert_true(failed > 3 && partly > 2 && mixed > 3);
}

/* Bytes of the file are wrong: a page, or all from some place on. Rows are right or given back. */
static void damaged_files_give_right_rows_or_none(void **state)
{
    (void)state;
    const long end = LAYERS * ROWS * 2048 / 8 * 14; /* rows, then quantised rows, about */
    uint64_t quantised = 0, mixed = 0, failed = 0;
    for (uint64_t n = 0; n < 16; n++) {
        struct scene scene;
        struct tail_desk desk;
        char path[160];
        scene_open(&scene, false, DISK, n);
        (void)snprintf(path, sizeof(path), "%s/rank-0000-of-0001/seg-00000000", scene.rig.path);
        FILE *file = fopen(path, "r+b");
        assert_non_null(file);
        long at = end / 8 * (long)(n / 2);
        assert_int_equal(fseek(file, at, SEEK_SET), 0);
        for (long left = n % 2 == 0 ? 4096 : end - at; left > 0; left--)
            assert_int_not_equal(fputc(0xee, file), EOF);
        assert_int_equal(fclose(file), 0);
        scene_look(&scene, &desk);
        assert_int_equal(tail_desk_submit(&desk), SPEC_OK);
        spec_status status = tail_desk_wait(&desk, UINT64_MAX);
        uint64_t loaded = tail_desk_check(&desk), exact = exact_of(&desk);
        assert_true(status == SPEC_OK ? loaded == ROWS : status == SPEC_E_CORRUPT && loaded < ROWS);
        quantised += status == SPEC_OK && exact == 0;
        mixed += status == SPEC_OK && exact > 0;
        failed += status != SPEC_OK;
        while (tail_desk_next(&desk, 100, NULL))
            continue;
        assert_int_equal(desk.front, ROWS - loaded);
        tail_desk_compare(&desk, loaded);
        tail_desk_leave(&desk);
        scene_close(&scene);
    }
    assert_true(quantised > 0 && mixed > 0 && failed > 0);
}

/* ---- Other places --------------------------------------------------------------------------- */

/* Half of what a load takes: a part comes, the rest is given out. */
static void a_deadline_comes_midway(void **state)
{
    (void)state;
    uint64_t whole_ns = 0;
    struct scene scene;
    struct tail_desk desk;
    scene_open(&scene, true, DISK, 1);
    struct sc_exec *exec = scene.rig.conn->exec;
    sc_io_sim_disk_rate(scene.rig.disk, 10000000);
    for (uint32_t round = 0; round < 2; round++) {
        scene_look(&scene, &desk);
        desk.items[2].deadline_ns = whole_ns / 2;
        uint64_t begin_ns = sc_exec_now_ns(exec);
        assert_int_equal(tail_desk_submit(&desk), SPEC_OK);
        assert_int_equal(tail_desk_wait(&desk, UINT64_MAX), SPEC_OK);
        uint64_t loaded = tail_desk_check(&desk);
        assert_int_equal(exact_of(&desk), 0);
        assert_int_equal(desk.items[0].result_flags, round == 0 ? 0 : SPEC_IMPORTANT_PARTIAL);
        assert_true(round == 0 ? loaded == ROWS : loaded > ROWS / 4 && loaded < ROWS / 4 * 3);
        whole_ns = sc_exec_now_ns(exec) - begin_ns;
        while (tail_desk_next(&desk, 100, NULL))
            continue;
        assert_int_equal(desk.front, ROWS - loaded);
        tail_desk_leave(&desk);
    }
    scene_close(&scene);
}

/* This load reads the same that was fetched to host memory for loads. */
static void a_match_fetched_to_host_memory_is_not_read_again(void **state)
{
    (void)state;
    struct scene scene;
    struct tail_desk desk;
    spec_ticket ticket;
    scene_open(&scene, true, QUANT ", \"host_bytes\": \"32MiB\"", 1);
    scene_reopen(&scene, scene.rig.extra);
    scene_look(&scene, &desk);
    assert_int_equal(rig_try_stage(&scene.rig, desk.request, 0, &ticket), SPEC_OK);
    assert_int_equal(rig_wait(&scene.rig, ticket), SPEC_OK);
    load_all(&desk);
    for (uint32_t i = 0; i < LAYERS; i++) {
        assert_int_equal(desk.items[i].exact_rows, 0);
        assert_int_equal(desk.items[i].read_bytes, 0);
        assert_int_equal(desk.items[i].tier_rows[SPEC_TIER_HOST], ROWS);
    }
    tail_desk_leave(&desk);
    scene_close(&scene);
}

/* A reader that attached to a lease has no flags of a lookup: it loads as it is configured. */
static void a_reader_that_attached_gets_quantised_rows(void **state)
{
    (void)state;
    struct scene scene;
    struct tail_desk desk;
    struct rig reader;
    struct spec_lookup_result attached;
    scene_open(&scene, true, DISK, 1);
    rig_open_beside(&reader, &scene.rig, SPEC_ROLE_READER, 0);
    rig_pass_ns(&reader, 200000000);
    for (uint32_t flags = 0; flags <= SPEC_LOOKUP_REQUIRE_EXACT; flags++) {
        struct spec_lookup_params params = rig_lookup_params(&scene.prompt, 0, ROWS, flags);
        struct spec_lookup_result found = rig_lookup_as(&scene.rig, &params);
        assert_int_equal(rig_attach(&reader, found.lease, 0, &attached), SPEC_OK);
        assert_int_equal(attached.matched_tokens, ROWS);
        tail_desk_look(&desk, &reader, &scene.prompt, 0, ROWS);
        desk.bits_k = desk.bits_v = 8;
        rig_release(&reader, desk.request);
        desk.request = attached.request;
        for (uint32_t i = 0; i < LAYERS; i++)
            desk.items[i].request = attached.request;
        load_all(&desk);
        expect(&desk, SPEC_OK, ROWS, 0);
        tail_desk_leave(&desk);
        rig_release(&scene.rig, found.request);
    }
    rig_leave(&reader);
    scene_close(&scene);
}

/* ---- Ends ----------------------------------------------------------------------------------- */

static void released_or_reset_meanwhile_it_is_stale(void **state)
{
    (void)state;
    struct gate gate = GATE_OPEN;
    for (uint32_t how = 0; how < 4; how++) {
        struct scene scene;
        struct tail_desk desk;
        scene_open(&scene, false, DISK, how);
        sc_fault_gate_set(&scene.rig.conn->fault, gate_pass, &gate);
        scene_look(&scene, &desk);
        gate_shut(&gate, true);
        assert_int_equal(tail_desk_submit(&desk), SPEC_OK);
        if (how < 2)
            assert_true(gate_await(&gate, 1));
        if (how % 2 == 0) {
            rig_release(&scene.rig, desk.request);
            desk.request = 0;
        } else {
            gate_shut(&gate, false); /* it writes to the log, too */
            assert_int_equal(sc_plugin_reset(scene.rig.conn, NULL), SPEC_OK);
        }
        gate_shut(&gate, false);
        spec_status status = tail_desk_wait(&desk, UINT64_MAX);
        assert_true(status == SPEC_E_STALE || (how % 2 == 1 && status == SPEC_OK));
        tail_desk_leave(&desk);
        rig_landed(&scene.rig);
        scene_close(&scene);
    }
}

/* Selectors that other calls began are given up, and those of the load are free after it. */
static void other_loads_of_the_request_come_before_and_after(void **state)
{
    (void)state;
    struct scene scene;
    struct tail_desk desk;
    scene_open(&scene, true, DISK, 1);
    for (uint32_t layer = 0; layer < LAYERS; layer++) {
        scene_look(&scene, &desk);
        spec_connector *conn = scene.rig.conn;
        assert_int_equal(sc_plugin_begin_layer(conn, &desk.request, 1, layer, NULL), SPEC_OK);
        load_all(&desk);
        assert_int_equal(exact_of(&desk), 0);
        struct area area = rig_area(&scene.rig, ROWS);
        struct spec_important plain = rig_item(desk.request, layer, &area.memory);
        assert_int_equal(sc_plugin_get_important(conn, &plain, 1, NULL), SPEC_OK);
        assert_int_equal(plain.exact_rows, 0);
        /* The bytes that the load decoded are those of a layered item. */
        for (uint32_t part = 0; part < 2; part++)
            assert_memory_equal(part == 0 ? area.memory.k_base : area.memory.v_base,
                                desk.bases[layer][part], ROWS * rig_part_bytes(&scene.rig));
        rig_area_free(&area);
        load_all(&desk);
        tail_desk_leave(&desk);
        assert_int_equal(sc_store_selector_bytes_used(conn->store), 0);
    }
    scene_close(&scene);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_rows_are_quantised_and_nothing_is_allocated),
        cmocka_unit_test(the_host_decides_whether_rows_are_quantised),
        cmocka_unit_test(each_layer_has_its_own_share),
        cmocka_unit_test(what_selects_rows_is_invalid),
        cmocka_unit_test(other_codecs_decode_as_layered_items_do),
        cmocka_unit_test(what_is_stored_on_quantised_rows_is_lossy),
        cmocka_unit_test(what_is_given_out_before_is_not_decoded),
        cmocka_unit_test(both_ends_at_once),
        cmocka_unit_test(a_device_that_stands_still_costs_nothing),
        cmocka_unit_test(at_its_deadline_what_is_there_counts),
        cmocka_unit_test(a_match_may_have_both),
        cmocka_unit_test(a_read_that_fails_makes_rows_exact),
        cmocka_unit_test(a_range_without_any_good_rows_ends_the_loading_alone),
        cmocka_unit_test(damaged_files_give_right_rows_or_none),
        cmocka_unit_test(a_deadline_comes_midway),
        cmocka_unit_test(a_match_fetched_to_host_memory_is_not_read_again),
        cmocka_unit_test(a_reader_that_attached_gets_quantised_rows),
        cmocka_unit_test(released_or_reset_meanwhile_it_is_stale),
        cmocka_unit_test(other_loads_of_the_request_come_before_and_after),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
