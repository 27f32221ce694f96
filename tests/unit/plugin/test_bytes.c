/* Rows of bytes that are not interpreted, of odd sizes, through all that moves rows: copies past
 * the caches, both layouts, merging, another connector; and configurations that would interpret
 * them.
 *
 * Threads: one, beside the plugin's. */
#include "tests/unit/plugin/compaction_fixture.h"

#define LARGE 200000u /* bytes of K or V of a prompt, at least: copies go past the caches */

static void open_shape(struct rig *rig, bool is_sim, const char *extra, uint32_t heads,
                       uint32_t head_size, uint32_t dtype)
{
    rig_begin_shape(rig, is_sim, extra, 2, heads, head_size, dtype);
}

/* The area's rows begin `shift` bytes later, and there is one row less. */
static struct area area_shifted(const struct rig *rig, uint64_t count, uint64_t shift)
{
    struct area area = rig_area(rig, count + 1);
    area.memory.k_base = (uint8_t *)area.memory.k_base + shift;
    area.memory.v_base = (uint8_t *)area.memory.v_base + shift;
    area.part_bytes -= shift;
    area.memory.k_bytes = area.memory.v_bytes = area.part_bytes;
    return area;
}

static void store_shifted(struct rig *rig, const struct prompt *prompt, uint64_t shift)
{
    struct spec_lookup_result found = rig_lookup(rig, prompt);
    spec_ticket ticket = 0;
    for (uint32_t layer = 0; layer < rig->layers; layer++) {
        struct area area = area_shifted(rig, prompt->count, shift);
        rig_area_fill(rig, &area, prompt, 0, prompt->count, layer);
        struct spec_store_params params =
            rig_store_params(found.request, layer, 0, prompt->count, &area.memory);
        assert_int_equal(sc_plugin_store(rig->conn, &params, 1, &ticket, NULL), SPEC_OK);
        rig_area_free(&area);
        if (layer + 1 < rig->layers)
            (void)rig_wait(rig, ticket);
    }
    assert_int_equal(rig_wait(rig, ticket), SPEC_OK);
    rig_release(rig, found.request);
}

static void load_shifted(struct rig *rig, const struct prompt *prompt, uint64_t shift)
{
    struct spec_lookup_result found = rig_lookup(rig, prompt);
    assert_int_equal(found.matched_tokens, prompt->count);
    for (uint32_t layer = 0; layer < rig->layers; layer++) {
        struct area area = area_shifted(rig, prompt->count, shift);
        struct spec_important item = rig_item(found.request, layer, &area.memory);
        assert_int_equal(sc_plugin_get_important(rig->conn, &item, 1, NULL), SPEC_OK);
        assert_true(rig_area_is_right(rig, &area, prompt, 0, prompt->count, layer));
        rig_area_free(&area);
    }
    rig_release(rig, found.request);
}

static void rows_of_any_size_at_any_address_come_back(void **state)
{
    (void)state;
    static const struct {
        uint32_t heads, head_size, dtype;
    } SHAPES[] = {{3, 5, SPEC_DTYPE_INT8},       {1, 1, SPEC_DTYPE_BYTES},
                  {7, 33, SPEC_DTYPE_FP8_E4M3},  {1, 257, SPEC_DTYPE_FP8_E5M2},
                  {8, 128, SPEC_DTYPE_FP8_E4M3}, {3, 1365, SPEC_DTYPE_BYTES}};
    static const char *const EXTRAS[] = {"", "\"store\": {\"layout\": \"split\"}"};
    for (uint32_t i = 0; i < 2 * sizeof(SHAPES) / sizeof(SHAPES[0]); i++) {
        struct rig rig;
        open_shape(&rig, false, EXTRAS[i % 2], SHAPES[i / 2].heads, SHAPES[i / 2].head_size,
                   SHAPES[i / 2].dtype);
        for (uint64_t shift = 0; shift < 4; shift++) {
            uint64_t rows = LARGE / rig_part_bytes(&rig);
            struct prompt prompt = rig_prompt(10 * i + shift, 0, 0, rows < 3000 ? rows : 3000);
            store_shifted(&rig, &prompt, shift % 2 * (shift < rig_part_bytes(&rig)));
            if (shift == 2)
                rig_reopen(&rig);
            load_shifted(&rig, &prompt, shift / 2);
            rig_prompt_free(&prompt);
        }
        rig_done(&rig);
    }
}

static void tokens_of_odd_rows_are_merged(void **state)
{
    (void)state;
    struct rig rig;
    struct prompt prompt = rig_prompt(100, 1000, 0, 2 * CHUNK + 5);
    open_shape(&rig, true, CHUNKS, 3, 5, SPEC_DTYPE_INT8);
    struct spec_lookup_result found = rig_lookup(&rig, &prompt);
    decode(&rig, found.request, &prompt, 0, prompt.count);
    rig_release(&rig, found.request);
    settle(&rig);
    assert_int_equal(merged(&rig), 3);
    assert_int_equal(store_stats(&rig).piece_count, 3);
    assert_int_equal(rig_read(&rig, &prompt, NULL), prompt.count);
    rig_reopen(&rig);
    assert_int_equal(rig_read(&rig, &prompt, NULL), prompt.count);
    struct rig reader;
    rig_open_beside(&reader, &rig, SPEC_ROLE_READER, 0);
    assert_int_equal(rig_read(&reader, &prompt, NULL), prompt.count);
    rig_leave(&reader);
    rig_end(&rig, &prompt);
}

/* The sentence says which dtype and which key. */
static void what_would_interpret_them_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *extra, *key;
    } CASES[] = {
        {"\"select\": {\"retain_ppm\": 250000, \"min_share_ppm\": 0}", "select.retain_ppm"},
        {"\"select\": {\"budget\": \"count\", \"count\": 10, \"min_share_ppm\": 0}",
         "select.budget"},
        {"\"preset\": \"impress-itf\"", "select.retain_ppm"},
        {"\"preset\": \"as-h2o-lru\"", "select.retain_ppm"},
        {"\"preset\": \"spi\"", "select.retain_ppm"},
        {"\"preset\": \"random\"", "select.retain_ppm"},
        {"\"preset\": \"hinted\"", "select.identify"},
        {"\"preset\": \"layered-uniform\"", "select.base"},
        {"\"layered\": {\"quantise\": \"yes\"}", "layered.quantise"},
        {"\"select\": {\"probe_heads\": 2, \"min_share_ppm\": 0}", "select.probe_heads"},
    };
    static const struct {
        uint32_t dtype;
        const char *name;
    } DTYPES[] = {{SPEC_DTYPE_FP8_E4M3, "fp8_e4m3"},
                  {SPEC_DTYPE_FP8_E5M2, "fp8_e5m2"},
                  {SPEC_DTYPE_INT8, "int8"},
                  {SPEC_DTYPE_BYTES, "bytes"}};
    for (uint32_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        struct rig rig;
        rig_init(&rig, true, CASES[i].extra);
        rig_shape(&rig, 2, 2, 16, DTYPES[i % 4].dtype);
        assert_int_equal(rig_try_open(&rig), SPEC_E_UNSUPPORTED);
        assert_non_null(strstr(rig.error.text, DTYPES[i % 4].name));
        assert_non_null(strstr(rig.error.text, CASES[i].key));
        assert_int_equal(atomic_load(&rig.memory.live_blocks), 0);
        rig.dtype = SPEC_DTYPE_F16;
        rig_open(&rig);
        rig_done(&rig);
    }
}

/* A lossless configuration delivers all rows, whatever an item asks for. */
static void an_item_that_wants_fewer_rows_gets_all(void **state)
{
    (void)state;
    struct rig rig;
    struct prompt prompt = rig_prompt(200, 0, 0, 100);
    open_shape(&rig, true, "", 3, 5, SPEC_DTYPE_INT8);
    assert_int_equal(rig_fill(&rig, &prompt), SPEC_OK);
    struct spec_lookup_result found = rig_lookup(&rig, &prompt);
    struct area area = rig_area(&rig, 100);
    struct spec_select select = {.struct_size = sizeof(select),
                                 .given = SPEC_SELECT_BUDGET | SPEC_SELECT_METRIC,
                                 .retain_ppm = 250000,
                                 .metric = SPEC_METRIC_RANDOM};
    struct spec_important item = {.struct_size = sizeof(item),
                                  .request = found.request,
                                  .destination = &area.memory,
                                  .select = &select};
    assert_int_equal(sc_plugin_get_important(rig.conn, &item, 1, NULL), SPEC_OK);
    assert_int_equal(item.row_count, 100);
    assert_int_equal(item.result_flags, SPEC_IMPORTANT_DENSE);
    assert_true(rig_area_is_right(&rig, &area, &prompt, 0, 100, 0));
    rig_area_free(&area);
    rig_release(&rig, found.request);
    rig_end(&rig, &prompt);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_of_any_size_at_any_address_come_back),
        cmocka_unit_test(tokens_of_odd_rows_are_merged),
        cmocka_unit_test(what_would_interpret_them_is_refused),
        cmocka_unit_test(an_item_that_wants_fewer_rows_gets_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
