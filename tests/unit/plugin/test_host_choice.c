/* Chosen rows over the host tier: what is chosen, where it stands and each of its bytes are what
 * they are without one, whatever the preset; what rows are chosen by is not read a second time; an
 * item says where its codes came from.
 *
 * Threads: the fixture's. */
#include "store/cache/host_tier_slab.h"
#include "store/internal.h"
#include "store/rows/tag.h"
#include "tests/unit/plugin/layered_fixture.h"

#define MATCHED 300u
#define ROUNDS  3u
#define LAYERS  4u

static uint64_t bytes_read(const struct world *world)
{
    struct sc_store_stats stats = rig_store_stats(&world->rig);
    return stats.read_bytes;
}

static uint64_t choosing_read(const struct world *world)
{
    return atomic_load(&world->rig.conn->stats.selector_read_bytes);
}

/* Two connectors on stores of the same rows: without a host tier, and with one. */
struct pair {
    struct world worlds[2];
    char extra[2][512];
};

static void pair_open(struct pair *pair, const char *preset, const char *more, uint64_t seed)
{
    static const uint32_t DTYPES[] = {SPEC_DTYPE_F16, SPEC_DTYPE_BF16, SPEC_DTYPE_F32};
    for (uint32_t w = 0; w < 2; w++) {
        (void)snprintf(pair->extra[w], sizeof(pair->extra[w]),
                       "\"preset\": \"%s\", \"host_bytes\": \"%s\"%s", preset,
                       w == 0 ? "0KiB" : "64MiB", more);
        world_open(&pair->worlds[w], pair->extra[w], 2 + (uint32_t)(seed % 2),
                   1 + (uint32_t)(seed % 3), 16, DTYPES[seed % 3], MATCHED, 3);
        wait_for_quant(&pair->worlds[w]);
    }
}

static void pair_done(struct pair *pair)
{
    for (uint32_t w = 0; w < 2; w++)
        world_done(&pair->worlds[w]);
}

/* An item as its preset has it, and room for positions of each head. */
struct wide {
    struct shot shot;
    uint32_t positions[3 * MATCHED];
};

static void wide_make(struct wide *wide, const struct world *world, spec_request request,
                      uint32_t layer, uint64_t from)
{
    shot_make(&wide->shot, world, request, layer, from, 0);
    wide->shot.select.given = 0;
    wide->shot.select.exact_ppm = 0;
    wide->shot.item.positions = wide->positions;
    wide->shot.item.position_capacity = 3 * MATCHED;
}

static void shots_equal(const struct world *world, const struct shot *a, const struct shot *b,
                        uint64_t from)
{
    bool is_parted = (a->item.result_flags & SPEC_IMPORTANT_FALLBACK) != 0;
    uint64_t rows = a->item.row_count, positions = rows * (is_parted ? world->rig.heads : 1);
    assert_int_equal(a->item.row_count, b->item.row_count);
    assert_int_equal(a->item.result_flags, b->item.result_flags);
    assert_int_equal(a->item.exact_rows, b->item.exact_rows);
    assert_int_equal(a->item.next_position, b->item.next_position);
    assert_memory_equal(a->item.positions, b->item.positions, positions * sizeof(uint32_t));
    assert_memory_equal(a->exact, b->exact, (MATCHED - from) / 64 * 8);
    assert_memory_equal(a->area.memory.k_base, b->area.memory.k_base,
                        rows * rig_part_bytes(&world->rig));
    assert_memory_equal(a->area.memory.v_base, b->area.memory.v_base,
                        rows * rig_part_bytes(&world->rig));
}

/* All layers of a match, of both. tier_rows of the second one in ret_tiers. */
static void round_fire(struct pair *pair, uint64_t from, uint64_t ret_tiers[SPEC_TIERS])
{
    spec_request requests[2];
    for (uint32_t w = 0; w < 2; w++)
        requests[w] = look(&pair->worlds[w], from);
    for (uint32_t t = 0; t < SPEC_TIERS; t++)
        ret_tiers[t] = 0;
    for (uint32_t layer = 0; layer < LAYERS; layer++) {
        static struct wide wides[2];
        const struct shot *shots[] = {&wides[0].shot, &wides[1].shot};
        for (uint32_t w = 0; w < 2; w++) {
            wide_make(&wides[w], &pair->worlds[w], requests[w], layer, from);
            struct spec_error error = {.struct_size = sizeof(error)};
            if (sc_plugin_get_important(pair->worlds[w].rig.conn, &wides[w].shot.item, 1, &error) !=
                SPEC_OK)
                fail_msg("%s: %s", pair->extra[w], error.text);
        }
        shots_equal(&pair->worlds[0], shots[0], shots[1], from);
        uint64_t told = 0;
        for (uint32_t t = 0; t < SPEC_TIERS; t++) {
            ret_tiers[t] += shots[1]->item.tier_rows[t];
            told += shots[1]->item.tier_rows[t];
        }
        assert_int_equal(shots[0]->item.tier_rows[SPEC_TIER_HOST], 0);
        assert_int_equal(told, shots[0]->item.tier_rows[SPEC_TIER_DISK]);
        for (uint32_t w = 0; w < 2; w++)
            shot_free(&wides[w].shot);
    }
    for (uint32_t w = 0; w < 2; w++)
        rig_release(&pair->worlds[w].rig, requests[w]);
}

static const char *const PRESETS[] = {
    "as-like",    "as-h2o-lfu",      "spi",          "random",    "impress-itf",
    "spec-itf",   "hinted",          "layered",      "spi+range", "impress-itf+range",
    "as-h2o-lru", "spec-itf+range",  "random+range", "int8",      "impress",
    "spec",       "attention-store",
};
#define PRESET_COUNT (sizeof(PRESETS) / sizeof(PRESETS[0]))

static void every_preset_delivers_what_it_does_without(void **state)
{
    (void)state;
    for (uint32_t p = 0; p < PRESET_COUNT; p++)
        for (uint64_t from = 0; from < 20; from += 11) {
            struct pair pair;
            uint64_t tiers[SPEC_TIERS];
            pair_open(&pair, PRESETS[p], "", p);
            for (uint32_t round = 0; round < ROUNDS; round++)
                round_fire(&pair, from, tiers);
            pair_done(&pair);
        }
}

/* Keys of some heads, keys of all, codes: they are read once. */
static void what_rows_are_chosen_by_is_read_once(void **state)
{
    static const struct {
        const char *preset, *more;
    } CASES[] = {
        {"impress-itf", ""},
        {"impress-itf+range", ", \"store\": {\"layout\": \"split\"}"},
        {"as-h2o-lru", ""},
        {"spi+range", ""},
        {"hinted", ""},
        {"layered", ""},
        {"layered", ", \"store\": {\"layout\": \"split\"}, \"chunk_tokens\": 16"},
    };
    (void)state;
    for (uint32_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        struct pair pair;
        uint64_t tiers[SPEC_TIERS];
        pair_open(&pair, CASES[i].preset, CASES[i].more, i);
        round_fire(&pair, 0, tiers);
        uint64_t first = choosing_read(&pair.worlds[1]);
        assert_int_equal(first, choosing_read(&pair.worlds[0]));
        assert_true(first > 0 || i == 3);
        round_fire(&pair, 0, tiers);
        assert_int_equal(choosing_read(&pair.worlds[1]), first);
        assert_int_equal(choosing_read(&pair.worlds[0]), 2 * first);
        pair_done(&pair);
    }
}

/* Planner chunk reads whole slabs for some of their rows: the same choice reads none again. */
static void slabs_that_were_chosen_from_are_read_once(void **state)
{
    static const struct {
        const char *preset, *more;
    } CASES[] = {
        {"impress-itf", ""},
        {"impress-itf", ", \"store\": {\"layout\": \"split\"}, \"select\": {\"probe_heads\": 1}"},
        {"random", ""},
        {"spec-itf", ""},
        {"spec-itf", ", \"store\": {\"layout\": \"split\"}, \"chunk_tokens\": 16, \"select\": "
                     "{\"probe_heads\": 1}"},
    };
    (void)state;
    for (uint32_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        struct pair pair;
        uint64_t tiers[SPEC_TIERS];
        pair_open(&pair, CASES[i].preset, CASES[i].more, i);
        round_fire(&pair, 0, tiers);
        assert_true(tiers[SPEC_TIER_DISK] > 0);
        uint64_t in_host_tier = bytes_read(&pair.worlds[1]), alone = bytes_read(&pair.worlds[0]);
        round_fire(&pair, 0, tiers);
        assert_int_equal(bytes_read(&pair.worlds[1]), in_host_tier);
        assert_true(bytes_read(&pair.worlds[0]) > alone);
        assert_int_equal(tiers[SPEC_TIER_DISK], 0);
        pair_done(&pair);
    }
}

/* Rows that are delivered as codes are of the tier that their codes came from. */
static void an_item_says_where_its_codes_came_from(void **state)
{
    (void)state;
    struct pair pair;
    uint64_t tiers[SPEC_TIERS];
    pair_open(&pair, "layered", ", \"layered\": {\"exact_ppm\": 0}", 0);
    round_fire(&pair, 0, tiers);
    assert_int_equal(tiers[SPEC_TIER_DISK], LAYERS * MATCHED);
    uint64_t before = bytes_read(&pair.worlds[1]);
    round_fire(&pair, 0, tiers);
    assert_int_equal(tiers[SPEC_TIER_HOST], LAYERS * MATCHED);
    assert_int_equal(tiers[SPEC_TIER_DISK], 0);
    assert_int_equal(bytes_read(&pair.worlds[1]), before);
    pair_done(&pair);
}

/* Row tags in the slab of a piece's codes, as reads may have brought them: wrong, all of them. */
static void tags_go_wrong(struct world *world, uint64_t piece, uint32_t layer)
{
    struct sc_store *store = world->rig.conn->store;
    const struct sc_store_piece_entry *entry = sc_store_table_piece(&store->table, piece);
    const struct sc_store_extent_entry *extent =
        sc_store_table_extent(&store->table, entry->extent);
    const struct sc_host_tier_key key = {.copy = atomic_load(&extent->codes)->copy,
                                         .first = entry->extent_row,
                                         .layer = layer,
                                         .kind = SC_STORE_HOST_QUANT};
    uint64_t tag_bytes = 8ull * store->shape.tags_per_row;
    uint64_t seed = key.copy * UINT64_C(0x9e3779b97f4a7c15) + key.first;
    struct sc_host_tier_memory_slab *slab = sc_host_tier_get(store->host, &key);
    assert_non_null(slab);
    uint8_t *bytes = sc_host_tier_bytes(store->host, slab);
    for (uint64_t row = 0; row < entry->row_count; row++)
        bytes[64 + row * tag_bytes] ^= 1;
    uint64_t sum = sc_store_checksum(bytes + 64, entry->row_count * tag_bytes,
                                     seed * UINT64_C(0x9e3779b97f4a7c15) + key.layer);
    memcpy(bytes, &sum, sizeof(sum));
    sc_host_tier_unpin(store->host, slab);
}

/* Tags that came wrong once end a request, and nothing that is on the disk; a second time they may
 * be right. */
static void tags_of_memory_cost_nothing_of_the_disk(void **state)
{
    (void)state;
    for (uint32_t split = 0; split < 2; split++) {
        struct pair pair;
        pair_open(&pair, "layered", split ? ", \"store\": {\"layout\": \"split\"}" : "", 0);
        struct world *world = &pair.worlds[1];
        for (uint32_t turn = 0; turn < 4; turn++) {
            struct shot shot;
            spec_request request = look(world, 0); /* all of it is promised */
            if (turn % 2 == 1)
                tags_go_wrong(world,
                              sc_plugin_request_find(world->rig.conn, request)->ranges[1].piece, 0);
            shot_make(&shot, world, request, 0, 0, 300000);
            assert_int_equal(fire(world, &shot), turn % 2 == 1 ? SPEC_E_CORRUPT : SPEC_OK);
            shot_release(&shot, world, request);
            rig_background(&world->rig);
        }
        struct spec_lookup_result result = rig_peeked(&world->rig, &world->prompt, 0);
        assert_int_equal(result.matched_tokens, 64);
        pair_done(&pair);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_preset_delivers_what_it_does_without),
        cmocka_unit_test(what_rows_are_chosen_by_is_read_once),
        cmocka_unit_test(slabs_that_were_chosen_from_are_read_once),
        cmocka_unit_test(an_item_says_where_its_codes_came_from),
        cmocka_unit_test(tags_of_memory_cost_nothing_of_the_disk),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
