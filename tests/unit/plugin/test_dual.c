/* The dual cache through loads (IMPRESS, section 4.4.2; decision 0046): what rises, stays, sinks
 * and goes, and that items and lookup say where it lay; the bus, to the nanosecond of the simulated
 * clock; Figure 14's two chunks and 25 requests.
 *
 * Threads: the fixture's. */
#include "base/memory_limit.h"
#include "store/cache/host_tier_slab.h"
#include "store/internal.h"
#include "tests/unit/plugin/plugin_fixture.h"

#define COUNT 200u
#define CHUNK 64u
#define SLAB  "8KiB" /* of 64 rows of 64 bytes, their tags and the rest of its second page */

static const char *const EXTRA[] = {
    "\"host_bytes\": \"64MiB\", \"upper_bytes\": \"64MiB\"",
    ("\"host_bytes\": \"64MiB\", \"upper_bytes\": \"auto\", \"host_policy\": \"lru\", "
     "\"store\": {\"layout\": \"split\"}"),
    ("\"host_bytes\": 0, \"upper_bytes\": \"64MiB\", \"host_policy\": \"score\", "
     "\"chunk_tokens\": 16"),
    "\"preset\": \"attention-store\", \"host_bytes\": \"64MiB\", \"host_write_through\": \"no\"",
};
#define WAYS (sizeof(EXTRA) / sizeof(EXTRA[0]))

/* ---- Loads ----------------------------------------------------------------------------------- */

struct told {
    uint64_t rows[SPEC_TIERS];
    uint64_t took_ns;
};

/* A layer of a prompt, `wanted` rows of it, any; 0: all. */
static struct told load(struct rig *rig, const struct prompt *prompt, uint32_t layer,
                        uint64_t wanted)
{
    struct spec_lookup_result result = rig_lookup(rig, prompt);
    struct area area = rig_area(rig, result.matched_tokens + 1);
    uint32_t positions[COUNT + 1];
    const struct spec_select select = {.struct_size = sizeof(select),
                                       .given = SPEC_SELECT_BUDGET | SPEC_SELECT_METRIC,
                                       .budget = SPEC_BUDGET_COUNT,
                                       .metric = SPEC_METRIC_RANDOM,
                                       .count = wanted > 0 ? wanted : result.matched_tokens};
    struct spec_important item = {.struct_size = sizeof(item),
                                  .request = result.request,
                                  .layer = layer,
                                  .destination = &area.memory,
                                  .positions = positions,
                                  .position_capacity = COUNT + 1,
                                  .select = &select};
    uint64_t begin_ns = sc_exec_now_ns(rig->conn->exec);
    struct told told = {{0}, 0};
    struct spec_error error = {.struct_size = sizeof(error)};
    if (sc_plugin_get_important(rig->conn, &item, 1, &error) != SPEC_OK)
        fail_msg("%s", error.text);
    told.took_ns = sc_exec_now_ns(rig->conn->exec) - begin_ns;
    assert_int_equal(item.row_count, select.count);
    if (wanted == 0)
        assert_true(rig_area_is_right(rig, &area, prompt, 0, result.matched_tokens, layer));
    memcpy(told.rows, item.tier_rows, sizeof(told.rows));
    rig_area_free(&area);
    rig_release(rig, result.request);
    return told;
}

static struct spec_lookup_result look(struct rig *rig, const struct prompt *prompt)
{
    struct spec_lookup_result result = rig_lookup(rig, prompt);
    rig_release(rig, result.request);
    return result;
}

/* One layer of two heads of eight values: a row has 64 bytes. */
static void open_small(struct rig *rig, const char *extra)
{
    rig_begin_shape(rig, true, extra, 1, 2, 8, SPEC_DTYPE_F16);
    assert_int_equal(rig->conn->dims.row_bytes, 64);
}

static void what_is_used_rises_and_says_so(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < WAYS; i++) {
        struct rig rig;
        struct prompt prompt = rig_prompt(5, 0, 0, COUNT);
        rig_begin_shape(&rig, true, EXTRA[i], 3, 3, 10, SPEC_DTYPE_F16);
        uint64_t row_bytes = rig.conn->dims.row_bytes + 8;
        assert_int_equal(rig_fill(&rig, &prompt), SPEC_OK);
        assert_int_equal(load(&rig, &prompt, 1, 0).rows[SPEC_TIER_DISK], COUNT);
        struct spec_lookup_result found = look(&rig, &prompt);
        assert_int_equal(found.tier_bytes[SPEC_TIER_UPPER], COUNT * row_bytes);
        assert_int_equal(found.tier_bytes[SPEC_TIER_HOST], 0);
        assert_int_equal(found.tier_bytes[SPEC_TIER_DISK], 2 * COUNT * row_bytes);
        uint64_t before = rig_store_stats(&rig).read_bytes;
        assert_int_equal(load(&rig, &prompt, 1, 0).rows[SPEC_TIER_UPPER], COUNT);
        assert_int_equal(rig_store_stats(&rig).read_bytes, before);
        assert_true(rig_store_stats(&rig).upper_hits > 0 && rig_store_stats(&rig).host_hits == 0);
        assert_int_equal(sc_plugin_reset(rig.conn, NULL), SPEC_OK);
        rig_background(&rig);
        assert_int_equal(rig_store_stats(&rig).upper_bytes_used, 0);
        rig_end(&rig, &prompt);
    }
}

/* A bit of a slab that lies above: the load fails, the slab is found no more, the disk is good. */
static void rot_above_costs_nothing_of_the_disk(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < WAYS; i++) {
        struct rig rig;
        struct prompt prompt = rig_prompt(5, 0, 0, 16);
        spec_status status = SPEC_OK;
        rig_begin_shape(&rig, true, EXTRA[i], 3, 3, 10, SPEC_DTYPE_F16);
        assert_int_equal(rig_fill(&rig, &prompt), SPEC_OK);
        assert_int_equal(rig_read(&rig, &prompt, &status), 16);
        const struct sc_store_range range = {.piece = 1, .row_count = 16};
        struct sc_host_slab in_host_tier =
            sc_host_slab_get(rig.conn->store, 1, &range, SC_STORE_WANT_ROWS);
        assert_int_equal(in_host_tier.tier, SPEC_TIER_UPPER);
        in_host_tier.bytes[in_host_tier.row_at + 9] ^= 1;
        sc_host_tier_unpin(rig.conn->store->host, in_host_tier.slab);
        assert_true(rig_read(&rig, &prompt, &status) == UINT64_MAX);
        assert_int_equal(status, SPEC_E_CORRUPT);
        assert_int_equal(load(&rig, &prompt, 1, 0).rows[SPEC_TIER_DISK], 16);
        assert_int_equal(load(&rig, &prompt, 1, 0).rows[SPEC_TIER_UPPER], 16);
        rig_end(&rig, &prompt);
    }
}

/* AttentionStore: what waits in the scheduler's queue is staged while what is in front of it runs,
 * in memory that has not room for all; what was used lies above. */
static void a_queue_is_brought_ahead_of_its_loads(void **state)
{
    (void)state;
    struct rig rig;
    struct prompt prompts[4];
    rig_begin_shape(&rig, true,
                    "\"preset\": \"attention-store\", \"host_bytes\": \"48KiB\", "
                    "\"upper_bytes\": \"32KiB\"",
                    1, 2, 8, SPEC_DTYPE_F16);
    for (uint64_t p = 0; p < 4; p++) {
        prompts[p] = rig_prompt(70 + p, 0, 0, COUNT);
        assert_int_equal(rig_fill(&rig, &prompts[p]), SPEC_OK);
    }
    rig_reopen(&rig); /* nothing is in memory */
    spec_request waiting = 0;
    for (uint32_t turn = 0; turn < 12; turn++) {
        struct spec_lookup_result next = rig_lookup(&rig, &prompts[(turn + 1) % 4]);
        spec_ticket ticket = rig_stage(&rig, next.request, 0);
        struct told told = load(&rig, &prompts[turn % 4], 0, 0);
        assert_int_equal(told.rows[SPEC_TIER_DISK], turn == 0 ? COUNT : 0);
        assert_int_equal(rig_wait(&rig, ticket), SPEC_OK);
        if (waiting != 0)
            rig_release(&rig, waiting);
        waiting = next.request;
    }
    rig_release(&rig, waiting);
    assert_true(rig_store_stats(&rig).upper_demoted > 0 &&
                rig_store_stats(&rig).host_evictions > 0);
    rig_prompts_free_all(prompts, 4);
    rig_done(&rig);
}

/* ---- The bus --------------------------------------------------------------------------------- */

/* A megabyte a second: a row of 64 bytes takes 64 us. */
#define RATE   "\"upper_bus_bytes_per_s\": 1000000"
#define ROW_NS UINT64_C(64000)

static uint64_t bus_ns(const struct rig *rig)
{
    return atomic_load(&rig->conn->stats.upper_bus_ns);
}

static void rows_that_do_not_lie_above_wait_for_the_bus(void **state)
{
    (void)state;
    struct rig rig;
    struct prompt prompt = rig_prompt(5, 0, 0, CHUNK), other = rig_prompt(6, 0, 0, CHUNK);
    open_small(&rig,
               "\"host_bytes\": \"64MiB\", \"upper_bytes\": \"4KiB\", " RATE); /* not a slab */
    assert_int_equal(rig_fill(&rig, &prompt), SPEC_OK);
    assert_int_equal(rig_fill(&rig, &other), SPEC_OK);
    struct told told = load(&rig, &prompt, 0, 0);
    assert_int_equal(told.rows[SPEC_TIER_DISK], CHUNK);
    assert_true(told.took_ns > CHUNK * ROW_NS); /* read, and over the bus */
    told = load(&rig, &prompt, 0, 0);
    assert_int_equal(told.rows[SPEC_TIER_HOST], CHUNK);
    assert_int_equal(told.took_ns, CHUNK * ROW_NS);
    assert_int_equal(bus_ns(&rig), 2 * CHUNK * ROW_NS);
    assert_int_equal(atomic_load(&rig.conn->stats.upper_bus_bytes), 2 * CHUNK * 64);
    rig_end(&rig, &prompt, &other);
}

static void rows_that_lie_above_wait_for_nothing(void **state)
{
    (void)state;
    struct rig rig;
    struct prompt prompt = rig_prompt(5, 0, 0, CHUNK);
    open_small(&rig, "\"host_bytes\": \"64MiB\", \"upper_bytes\": \"" SLAB "\", " RATE);
    assert_int_equal(rig_fill(&rig, &prompt), SPEC_OK);
    (void)load(&rig, &prompt, 0, 0);
    struct told told = load(&rig, &prompt, 0, 0);
    assert_int_equal(told.rows[SPEC_TIER_UPPER], CHUNK);
    assert_int_equal(told.took_ns, 0);
    assert_int_equal(bus_ns(&rig), CHUNK * ROW_NS); /* of the first load */
    rig_end(&rig, &prompt);
}

/* Of a slab that rises what nobody wanted goes behind: the load does not wait for it, the next
 * does. */
static void what_rises_goes_behind_the_load(void **state)
{
    (void)state;
    struct rig rig;
    struct prompt a = rig_prompt(5, 0, 0, CHUNK), b = rig_prompt(6, 0, 0, CHUNK);
    open_small(&rig, "\"preset\": \"impress\", \"select\": {\"identify\": \"static\"}, "
                     "\"host_bytes\": \"64MiB\", \"upper_bytes\": \"" SLAB
                     "\", \"host_policy\": \"lru\", " RATE);
    assert_int_equal(rig_fill(&rig, &a), SPEC_OK);
    assert_int_equal(rig_fill(&rig, &b), SPEC_OK);
    (void)load(&rig, &a, 0, 0);
    (void)load(&rig, &b, 0, 0); /* a sinks */
    struct told told = load(&rig, &a, 0, 16);
    assert_int_equal(told.rows[SPEC_TIER_HOST], 16);
    assert_int_equal(told.took_ns, 16 * ROW_NS); /* a rises, b sinks */
    assert_int_equal(rig_store_stats(&rig).upper_demoted, 2);
    told = load(&rig, &b, 0, 0);
    assert_int_equal(told.rows[SPEC_TIER_HOST], CHUNK);
    assert_int_equal(told.took_ns, (CHUNK - 16 + CHUNK) * ROW_NS);
    rig_end(&rig, &a, &b);
}

/* Nothing moves on a real clock, so nobody waits: a byte a second would take an hour. */
static void nobody_waits_on_a_real_clock(void **state)
{
    (void)state;
    struct rig rig;
    struct prompt prompt = rig_prompt(5, 0, 0, CHUNK);
    rig_begin_shape(&rig, false,
                    "\"host_bytes\": \"64MiB\", \"upper_bytes\": \"" SLAB "\", "
                    "\"upper_bus_bytes_per_s\": 1",
                    1, 2, 8, SPEC_DTYPE_F16);
    assert_int_equal(rig_fill(&rig, &prompt), SPEC_OK);
    struct told told = load(&rig, &prompt, 0, 0);
    assert_true(told.took_ns < UINT64_C(60000000000));
    assert_int_equal(bus_ns(&rig), CHUNK * 64 * UINT64_C(1000000000));
    rig_end(&rig, &prompt);
}

static void nothing_is_charged_where_there_is_no_such_tier(void **state)
{
    (void)state;
    static const char *const NONE[] = {"\"host_bytes\": \"64MiB\", " RATE,
                                       "\"host_bytes\": 0, \"upper_bytes\": \"auto\", " RATE,
                                       "\"upper_bytes\": \"64MiB\", \"upper_bus_bytes_per_s\": 0"};
    for (uint32_t i = 0; i < 3; i++) {
        struct rig rig;
        struct prompt prompt = rig_prompt(5, 0, 0, CHUNK);
        open_small(&rig, NONE[i]);
        assert_int_equal(rig_fill(&rig, &prompt), SPEC_OK);
        (void)load(&rig, &prompt, 0, 0);
        (void)load(&rig, &prompt, 0, 0);
        assert_int_equal(bus_ns(&rig), 0);
        rig_end(&rig, &prompt);
    }
}

/* ---- Figure 14 ------------------------------------------------------------------------------- */

/* A is asked for 1.5 times as often as B; half of its chunk is important, and all of B's. After as
 * many requests that warm the caches, 25 whose rows over the bus are counted, in the paper's unit:
 * a chunk of two. */
static uint64_t transfers(const char *policy)
{
    struct rig rig;
    char extra[512];
    struct prompt prompts[2] = {rig_prompt(5, 0, 0, CHUNK), rig_prompt(6, 0, 0, CHUNK)};
    uint64_t rows = 0, bytes = 0;
    (void)snprintf(extra, sizeof(extra),
                   "\"preset\": \"impress\", \"host_bytes\": \"64KiB\", \"upper_bytes\": \"" SLAB
                   "\", \"host_policy\": \"%s\", \"select\": {\"identify\": \"static\"}",
                   policy);
    open_small(&rig, extra);
    for (uint32_t p = 0; p < 2; p++)
        assert_int_equal(rig_fill(&rig, &prompts[p]), SPEC_OK);
    for (uint32_t i = 0; i < 50; i++) {
        uint32_t p = i % 5 % 2; /* A B A B A */
        if (i == 25)
            bytes = rig_store_stats(&rig).read_bytes;
        struct told told = load(&rig, &prompts[p], 0, p == 0 ? CHUNK / 2 : CHUNK);
        rows += i >= 25 ? told.rows[SPEC_TIER_HOST] + told.rows[SPEC_TIER_DISK] : 0;
        assert_true(i < 25 || told.rows[SPEC_TIER_DISK] == 0); /* both have room */
    }
    assert_true(bytes > 0);
    rig_prompts_free_all(prompts, 2);
    rig_done(&rig);
    assert_int_equal(rows % (CHUNK / 2), 0);
    return rows / (CHUNK / 2);
}

static void figure_14_takes_15_transfers_for_20(void **state)
{
    (void)state;
    assert_int_equal(transfers("lfu"), 20);
    assert_int_equal(transfers("score"), 15);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_used_rises_and_says_so),
        cmocka_unit_test(rot_above_costs_nothing_of_the_disk),
        cmocka_unit_test(a_queue_is_brought_ahead_of_its_loads),
        cmocka_unit_test(rows_that_do_not_lie_above_wait_for_the_bus),
        cmocka_unit_test(rows_that_lie_above_wait_for_nothing),
        cmocka_unit_test(what_rises_goes_behind_the_load),
        cmocka_unit_test(nobody_waits_on_a_real_clock),
        cmocka_unit_test(nothing_is_charged_where_there_is_no_such_tier),
        cmocka_unit_test(figure_14_takes_15_transfers_for_20),
    };
    return cmocka_run_group_tests_name("dual", tests, NULL, NULL);
}
