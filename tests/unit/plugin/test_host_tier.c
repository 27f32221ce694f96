/* The host tier through loads: the second one of a prefix reads nothing of the disk and says so;
 * what was dropped, reset or replaced is not delivered from memory.
 *
 * Threads: the fixture's. */
#include "base/memory_limit.h"
#include "store/cache/host_tier_slab.h"
#include "store/internal.h"
#include "tests/unit/plugin/plugin_fixture.h"

#define COUNT 200u

static const char *const EXTRA[] = {
    "\"host_bytes\": \"64MiB\"",
    "\"host_bytes\": \"64MiB\", \"host_policy\": \"lru\", \"store\": {\"layout\": \"split\"}",
    "\"host_bytes\": \"64MiB\", \"host_policy\": \"lfu\", \"chunk_tokens\": 16",
};
#define WAYS (sizeof(EXTRA) / sizeof(EXTRA[0]))

static uint64_t bytes_read(const struct rig *rig)
{
    struct sc_store_stats stats = rig_store_stats(rig);
    return stats.read_bytes;
}

/* Rows of a layer by tier, in tier_rows; all of them right. */
static void load(struct rig *rig, const struct prompt *prompt, uint32_t layer,
                 uint64_t ret_tier_rows[SPEC_TIERS])
{
    struct spec_lookup_result result = rig_lookup(rig, prompt);
    struct area area = rig_area(rig, result.matched_tokens + 1);
    struct spec_important item = rig_item(result.request, layer, &area.memory);
    assert_int_equal(sc_plugin_get_important(rig->conn, &item, 1, NULL), SPEC_OK);
    assert_true(rig_area_is_right(rig, &area, prompt, 0, result.matched_tokens, layer));
    for (uint32_t t = 0; t < SPEC_TIERS; t++)
        ret_tier_rows[t] = item.tier_rows[t];
    rig_area_free(&area);
    rig_release(rig, result.request);
}

static void a_second_load_is_of_the_host(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < WAYS; i++) {
        struct rig rig;
        struct prompt prompt = rig_prompt(5, 0, 0, COUNT);
        spec_status status;
        uint64_t rows[SPEC_TIERS];
        rig_begin_shape(&rig, true, EXTRA[i], 5, 3, 10, SPEC_DTYPE_F16);
        assert_int_equal(rig_fill(&rig, &prompt), SPEC_OK);
        assert_int_equal(rig_read(&rig, &prompt, &status), COUNT);
        uint64_t before = bytes_read(&rig);
        assert_true(before > 0);
        assert_int_equal(rig_read(&rig, &prompt, &status), COUNT);
        assert_int_equal(bytes_read(&rig), before);
        load(&rig, &prompt, 2, rows);
        assert_int_equal(rows[SPEC_TIER_HOST], COUNT);
        assert_int_equal(rows[SPEC_TIER_DISK], 0);
        rig_reopen(&rig); /* memory is forgotten, and filled again */
        load(&rig, &prompt, 2, rows);
        assert_int_equal(rows[SPEC_TIER_DISK], COUNT);
        load(&rig, &prompt, 2, rows);
        assert_int_equal(rows[SPEC_TIER_HOST], COUNT);
        rig_end(&rig, &prompt);
    }
}

/* A prefix that goes on otherwise: its common rows are of the host, the others of the disk. */
static void tiers_are_mixed_in_a_load(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < WAYS; i++) {
        struct rig rig;
        struct prompt first = rig_prompt(5, 128, 0, 128), longer = rig_prompt(5, 128, 9, COUNT);
        spec_status status;
        uint64_t rows[SPEC_TIERS];
        rig_begin_shape(&rig, true, EXTRA[i], 5, 3, 10, SPEC_DTYPE_F16);
        assert_int_equal(rig_fill(&rig, &first), SPEC_OK);
        assert_int_equal(rig_fill(&rig, &longer), SPEC_OK);
        assert_int_equal(rig_read(&rig, &first, &status), 128);
        load(&rig, &longer, 1, rows);
        assert_int_equal(rows[SPEC_TIER_HOST], 128);
        assert_int_equal(rows[SPEC_TIER_DISK], COUNT - 128);
        rig_end(&rig, &first, &longer);
    }
}

/* What is stored anew after a reset is another copy: not a byte of the old one is its. */
static void a_reset_ends_what_is_kept(void **state)
{
    (void)state;
    struct rig rig;
    struct prompt prompt = rig_prompt(5, 0, 0, COUNT);
    spec_status status;
    uint64_t rows[SPEC_TIERS];
    rig_begin_shape(&rig, true, EXTRA[0], 5, 3, 10, SPEC_DTYPE_F16);
    assert_int_equal(rig_fill(&rig, &prompt), SPEC_OK);
    assert_int_equal(rig_read(&rig, &prompt, &status), COUNT);
    assert_int_equal(sc_plugin_reset(rig.conn, NULL), SPEC_OK);
    rig_background(&rig);
    assert_int_equal(rig_fill(&rig, &prompt), SPEC_OK);
    load(&rig, &prompt, 0, rows);
    assert_int_equal(rows[SPEC_TIER_DISK], COUNT);
    load(&rig, &prompt, 0, rows);
    assert_int_equal(rows[SPEC_TIER_HOST], COUNT);
    rig_end(&rig, &prompt);
}

/* A bit of every slab of a layer; returns how many slabs there are. */
static uint32_t memory_rots(const struct rig *rig, uint32_t layer)
{
    const struct sc_store *store = rig->conn->store;
    const struct sc_store_piece_entry *piece;
    uint32_t count = 0;
    for (uint64_t id = 1; (piece = sc_store_table_piece(&store->table, id)) != NULL; id++) {
        const struct sc_store_range range = {.piece = id, .row_count = piece->row_count};
        struct sc_host_slab in_host_tier = {0};
        if (piece->extent != 0)
            in_host_tier = sc_host_slab_get(store, layer, &range, SC_STORE_WANT_ROWS);
        if (in_host_tier.slab == NULL)
            continue;
        in_host_tier.bytes[in_host_tier.row_at + 9] ^= 1;
        sc_host_tier_unpin(store->host, in_host_tier.slab);
        count++;
    }
    return count;
}

/* Memory that rots ends a request, as a disk does; but what is on the disk is good, and stays. */
static void rot_in_memory_costs_nothing_of_the_disk(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < WAYS; i++) {
        struct rig rig;
        struct prompt prompt = rig_prompt(5, 0, 0, COUNT);
        spec_status status = SPEC_OK;
        rig_begin_shape(&rig, true, EXTRA[i], 5, 3, 10, SPEC_DTYPE_F16);
        assert_int_equal(rig_fill(&rig, &prompt), SPEC_OK);
        assert_int_equal(rig_read(&rig, &prompt, &status), COUNT);
        uint32_t slabs = memory_rots(&rig, 1);
        assert_in_range(slabs, 4, 13);
        for (uint32_t s = 0; s < slabs; s++) {
            assert_true(rig_read(&rig, &prompt, &status) == UINT64_MAX);
            assert_int_equal(status, SPEC_E_CORRUPT);
        }
        assert_int_equal(rig_read(&rig, &prompt, &status), COUNT);
        rig_end(&rig, &prompt);
    }
}

/* ---- What lookup says of it ------------------------------------------------------------------ */

/* Rows times layers by tier, as lookup says. */
static struct spec_lookup_result tiers_of(struct rig *rig, const struct prompt *prompt,
                                          uint64_t ret_rows[SPEC_TIERS])
{
    struct spec_lookup_result result = rig_lookup(rig, prompt);
    for (uint32_t t = 0; t < SPEC_TIERS; t++)
        ret_rows[t] = result.tier_bytes[t] / (rig->conn->dims.row_bytes + 8);
    rig_release(rig, result.request);
    return result;
}

static void lookup_says_where_rows_lie(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < WAYS; i++) {
        struct rig rig;
        struct prompt first = rig_prompt(5, 128, 0, 128), longer = rig_prompt(5, 128, 9, COUNT);
        spec_status status;
        uint64_t rows[SPEC_TIERS];
        rig_begin_shape(&rig, true, EXTRA[i], 5, 3, 10, SPEC_DTYPE_F16);
        assert_int_equal(rig_fill(&rig, &first), SPEC_OK);
        assert_int_equal(rig_fill(&rig, &longer), SPEC_OK);
        (void)tiers_of(&rig, &longer, rows);
        assert_int_equal(rows[SPEC_TIER_HOST], 0);
        assert_int_equal(rows[SPEC_TIER_DISK], 5 * COUNT);
        load(&rig, &first, 1, rows);
        load(&rig, &first, 3, rows);
        (void)tiers_of(&rig, &longer, rows);
        assert_int_equal(rows[SPEC_TIER_HOST], 2 * 128);
        assert_int_equal(rows[SPEC_TIER_DISK], 5 * COUNT - 2 * 128);
        assert_int_equal(rig_read(&rig, &longer, &status), COUNT);
        struct spec_lookup_result all = tiers_of(&rig, &longer, rows);
        assert_int_equal(rows[SPEC_TIER_HOST], 5 * COUNT);
        assert_int_equal(rows[SPEC_TIER_DISK], 0);
        assert_true(all.load_ns > 0); /* a first guess of memory, if nothing was measured */
        rig_reopen(&rig);
        (void)tiers_of(&rig, &longer, rows);
        assert_int_equal(rows[SPEC_TIER_HOST], 0);
        rig_end(&rig, &first, &longer);
    }
}

/* Room for a few slabs: what lookup says is what the next load finds. */
static void lookup_follows_evictions(void **state)
{
    (void)state;
    struct rig rig;
    struct prompt prompts[3];
    uint64_t rows[SPEC_TIERS], loaded[SPEC_TIERS], in_host_tier = 0, evicted = 0;
    rig_begin_shape(&rig, true, "\"host_bytes\": \"64KiB\", \"chunk_tokens\": 16", 2, 3, 10,
                    SPEC_DTYPE_F16);
    for (uint64_t p = 0; p < 3; p++) {
        prompts[p] = rig_prompt(50 + p, 0, 0, 96);
        assert_int_equal(rig_fill(&rig, &prompts[p]), SPEC_OK);
    }
    for (uint64_t step = 0; step < 60; step++) {
        const struct prompt *prompt = &prompts[step * 7 / 4 % 3];
        load(&rig, prompt, 0, loaded);
        (void)tiers_of(&rig, prompt, rows);
        uint64_t said = rows[SPEC_TIER_HOST];
        assert_int_equal(said + rows[SPEC_TIER_DISK], 2 * prompt->count);
        load(&rig, prompt, 0, loaded);
        load(&rig, prompt, 1, rows);
        assert_in_range(loaded[SPEC_TIER_HOST], 0, said);
        in_host_tier += said;
    }
    struct sc_store_stats stats = rig_store_stats(&rig);
    evicted = stats.host_evictions;
    assert_true(in_host_tier > 0 && evicted > 0);
    assert_in_range(stats.host_bytes_used, 1, stats.host_bytes_max);
    rig_prompts_free_all(prompts, 3);
    rig_done(&rig);
}

/* What is void takes no memory any more. */
static void a_reset_empties_memory(void **state)
{
    (void)state;
    struct rig rig;
    struct prompt prompt = rig_prompt(5, 0, 0, COUNT);
    struct sc_store_stats stats;
    spec_status status;
    rig_begin_shape(&rig, true, EXTRA[0], 5, 3, 10, SPEC_DTYPE_F16);
    assert_int_equal(rig_fill(&rig, &prompt), SPEC_OK);
    assert_int_equal(rig_read(&rig, &prompt, &status), COUNT);
    sc_store_stats(rig.conn->store, &stats);
    assert_true(stats.host_bytes_used > 0);
    assert_int_equal(sc_plugin_reset(rig.conn, NULL), SPEC_OK);
    rig_background(&rig);
    sc_store_stats(rig.conn->store, &stats);
    assert_int_equal(stats.host_bytes_used, 0);
    rig_end(&rig, &prompt);
}

/* An eighth of the memory, shared by the ranks of a set; where it cannot be had there is none, and
 * what else fails says so as ever. */
static void by_itself_it_takes_a_share_or_none(void **state)
{
    (void)state;
    struct rig rig;
    struct sc_store_stats stats;
    uint64_t share = sc_memory_limit() / 8 / 8, without = 0, refused = 0;
    share = share < UINT64_C(4) << 30 ? share : UINT64_C(4) << 30;
    rig_init(&rig, true, "\"host_bytes\": \"auto\"");
    rig_shape(&rig, 2, 1, 8, SPEC_DTYPE_F16);
    rig.rank_count = 8;
    for (int64_t n = 0;; n++) {
        atomic_store(&rig.memory.failed, 0);
        atomic_store(&rig.memory.countdown, n);
        spec_status status = rig_try_open(&rig);
        atomic_store(&rig.memory.countdown, -1);
        if (status != SPEC_OK) {
            assert_int_equal(status, SPEC_E_NO_MEMORY);
            refused++;
            continue;
        }
        sc_store_stats(rig.conn->store, &stats);
        if (atomic_load(&rig.memory.failed) == 0)
            break;
        without += stats.host_bytes_max == 0;
        rig_close(&rig);
    }
    assert_int_equal(stats.host_bytes_max, share / 4096 * 4096);
    assert_true(without > 0 && refused > 0);
    rig_done(&rig);
}

/* Turn by turn: each loads what those before it stored, and reads nothing of the disk. */
static void the_next_turn_of_a_conversation_reads_nothing(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < WAYS; i++) {
        struct rig rig;
        char extra[256];
        spec_status status;
        (void)snprintf(extra, sizeof(extra), "\"host_write_through\": \"yes\", %s", EXTRA[i]);
        rig_begin_shape(&rig, true, extra, 5, 3, 10, SPEC_DTYPE_F16);
        for (uint64_t count = 64; count <= COUNT; count += 45) { /* turns begin inside chunks */
            struct prompt prompt = rig_prompt(5, COUNT, 0, count);
            assert_int_equal(rig_fill(&rig, &prompt), SPEC_OK);
            assert_int_equal(rig_read(&rig, &prompt, &status), count);
            rig_prompt_free(&prompt);
        }
        assert_int_equal(bytes_read(&rig), 0);
        rig_done(&rig);
    }
}

/* What lookup says of each tier, in rows of one layer, is what loads then give from there. */
static void expect_told(struct rig *rig, const struct prompt *prompt, uint64_t host, uint64_t disk)
{
    struct spec_lookup_result found;
    uint64_t loaded[SPEC_TIERS] = {0}, row_bytes = rig->conn->dims.row_bytes + sizeof(uint64_t);
    assert_int_equal(rig_try_lookup(rig, prompt, 0, RIG_MAX, &found), SPEC_OK);
    assert_int_equal(found.matched_tokens, prompt->count);
    assert_int_equal(found.tier_bytes[SPEC_TIER_UPPER], 0);
    assert_int_equal(found.tier_bytes[SPEC_TIER_HOST], host * row_bytes);
    assert_int_equal(found.tier_bytes[SPEC_TIER_DISK], disk * row_bytes);
    for (uint32_t l = 0; l < rig->layers; l++) {
        struct area area = rig_area(rig, prompt->count);
        struct spec_important item = rig_item(found.request, l, &area.memory);
        assert_int_equal(sc_plugin_get_important(rig->conn, &item, 1, NULL), SPEC_OK);
        for (uint32_t t = 0; t < SPEC_TIERS; t++)
            loaded[t] += item.tier_rows[t];
        rig_area_free(&area);
    }
    assert_int_equal(loaded[SPEC_TIER_HOST], host);
    assert_int_equal(loaded[SPEC_TIER_DISK], disk);
    rig_release(rig, found.request);
}

/* Slabs of rows that a layer's window does not reach are not counted, whoever had them loaded. */
static void layers_with_windows_are_counted_apart(void **state)
{
    (void)state;
    static const uint32_t FULL[] = {0}, NARROW[] = {1, 2, 3};
    const struct spec_layer_group groups[] = {{.struct_size = sizeof(groups[0]),
                                               .kind = SPEC_GROUP_FULL,
                                               .layers = FULL,
                                               .layer_count = 1,
                                               .kv_head_count = 2,
                                               .head_size = 8,
                                               .dtype = SPEC_DTYPE_F16},
                                              {.struct_size = sizeof(groups[0]),
                                               .kind = SPEC_GROUP_WINDOW,
                                               .layers = NARROW,
                                               .layer_count = 3,
                                               .kv_head_count = 2,
                                               .head_size = 8,
                                               .dtype = SPEC_DTYPE_F16,
                                               .window = 65}};
    struct rig rig;
    struct prompt prompt = rig_prompt(1, 0, 0, 640), start = prompt;
    struct spec_lookup_result found;
    start.count = 64;
    rig_init(&rig, true, "\"host_bytes\": \"16MiB\", \"chunk_tokens\": 64");
    rig_shape(&rig, 4, 2, 8, SPEC_DTYPE_F16);
    struct spec_model model = rig_model(&rig);
    model.groups = groups;
    model.group_count = 2;
    assert_int_equal(rig_try_open_model(&rig, &model), SPEC_OK);
    assert_int_equal(rig_fill(&rig, &prompt), SPEC_OK);
    assert_int_equal(rig_try_lookup(&rig, &start, 0, RIG_MAX, &found), SPEC_OK);
    for (uint32_t l = 1; l < 4; l++) /* of those who see so few, the long match below needs none */
        assert_int_equal(rig_load(&rig, found.request, &start, 0, 64, l), SPEC_OK);
    rig_release(&rig, found.request);
    expect_told(&rig, &prompt, 0, 640 + 3 * 64);
    expect_told(&rig, &prompt, 640 + 3 * 64, 0); /* which that loaded */
    start.count = 600;                           /* its windows begin in the middle of a chunk */
    assert_int_equal(rig_try_lookup(&rig, &start, 0, RIG_MAX, &found), SPEC_OK);
    assert_int_equal(found.tier_bytes[SPEC_TIER_HOST] + found.tier_bytes[SPEC_TIER_DISK],
                     (600 + 3 * 64) * (rig.conn->dims.row_bytes + sizeof(uint64_t)));
    assert_int_equal(found.tier_bytes[SPEC_TIER_HOST],
                     (600 + 3 * 24) * (rig.conn->dims.row_bytes + sizeof(uint64_t)));
    rig_release(&rig, found.request);
    rig_end(&rig, &prompt);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_second_load_is_of_the_host),
        cmocka_unit_test(tiers_are_mixed_in_a_load),
        cmocka_unit_test(a_reset_ends_what_is_kept),
        cmocka_unit_test(rot_in_memory_costs_nothing_of_the_disk),
        cmocka_unit_test(lookup_says_where_rows_lie),
        cmocka_unit_test(lookup_follows_evictions),
        cmocka_unit_test(a_reset_empties_memory),
        cmocka_unit_test(by_itself_it_takes_a_share_or_none),
        cmocka_unit_test(layers_with_windows_are_counted_apart),
        cmocka_unit_test(the_next_turn_of_a_conversation_reads_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
