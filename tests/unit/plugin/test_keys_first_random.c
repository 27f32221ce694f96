/* Selections by probe heads in any order of reads, against those of a store that has only one: any
 * presets, budgets, heads, destinations, predictions and tiers; several items of a call; deadlines;
 * rows put in another order; at last a read that fails.
 *
 * Holds: the split layout selects what the paired layout selects, whatever was read first; rows are
 * those that were stored; nothing else of the destination's memory was written.
 * Threads: the loop's. */
#include "tests/unit/plugin/select_call.h"

#include "plugin/request/submit.h"
#include "plugin/select/accuracy.h"
#include "tests/sim/io_sim.h"

#include <inttypes.h>

#define LAYERS     5u
#define ITEMS      4u
#define STEPS      10u
#define SAVE_BYTES (8u << 20) /* that staging memory has room for at once */

struct duel {
    uint64_t seed, random;
    struct world paired, split;
    char texts[2][900];
    bool has_room, has_deadlines, is_redrawn;          /* has_room: no selector fails */
    uint64_t compared, fallbacks, dense, late, failed; /* of items */
};

static uint64_t below(struct duel *duel, uint64_t bound)
{
    duel->random = rig_mix(duel->random);
    return duel->random % bound;
}

#define ANY_OF(duel, list) ((list)[below(duel, sizeof(list) / sizeof((list)[0]))])

/* ---- The two stores -------------------------------------------------------------------------- */

static void texts_draw(struct duel *duel)
{
    static const char *const PRESETS[] = {"impress-itf",    "impress-itf+range", "spec-itf",
                                          "spec-itf+range", "impress",           "spec+range",
                                          "random",         "spi+range",         "impress-itf-ro"};
    static const char *const BUDGETS[] = {"ratio", "ratio", "count", "mass"};
    static const char *const METRICS[] = {"h2o", "h2o", "h2o", "last", "random"};
    static const char *const PREDICTORS[] = {"none", "random", "sink", "static", "layer", "hint"};
    static const char *const HOSTS[] = {"0", "0", "\"256KiB\"", "\"32MiB\""};
    static const char *const ROOMS[] = {"\"8MiB\"", "\"8MiB\"", "\"8MiB\"", "\"64KiB\"", "0"};
    static const uint64_t ALPHAS[] = {0, 500, 1000, 1200, 1500, 4000};
    static const uint64_t GAPS[] = {0, 1, 4096, 65536};
    char select[400];
    const char *room = ANY_OF(duel, ROOMS);
    duel->has_room = strcmp(room, "\"8MiB\"") == 0;
    (void)snprintf(
        select, sizeof(select),
        "\"retain_ppm\": %" PRIu64 ", \"probe_heads\": %" PRIu64 ", \"alpha_milli\": %" PRIu64
        ", \"unit\": %d, \"budget\": \"%s\", \"count\": %" PRIu64 ", \"mass_ppm\": %" PRIu64
        ", \"keep_first\": %" PRIu64 ", \"keep_last\": %" PRIu64 ", \"metric\": \"%s\", "
        "\"dense_layers\": %d, \"similarity\": \"%s\", \"identify\": \"%s\"",
        50000 + below(duel, 900000), 1 + below(duel, 9), ANY_OF(duel, ALPHAS),
        below(duel, 3) == 0 ? 16 : 1, ANY_OF(duel, BUDGETS), 1 + below(duel, 100),
        100000 + below(duel, 900000), below(duel, 3) * 4, below(duel, 3) * 7, ANY_OF(duel, METRICS),
        below(duel, 4) == 0, below(duel, 3) == 0 ? "mass" : "jaccard",
        below(duel, 6) == 0 ? "keys" : "probes");
    (void)snprintf(duel->texts[0], sizeof(duel->texts[0]),
                   "\"preset\": \"impress-itf\", \"store\": {\"layout\": \"paired\"}, \"select\": "
                   "{%s}",
                   select);
    (void)snprintf(duel->texts[1], sizeof(duel->texts[1]),
                   "\"preset\": \"%s\", \"select\": {%s, \"selector_bytes\": %s}, \"host_bytes\": "
                   "%s, \"read\": {\"gap_bytes\": %" PRIu64 "}, \"prefetch\": {\"predictor\": "
                   "\"%s\", \"min_precision_ppm\": 0}",
                   ANY_OF(duel, PRESETS), select, room, ANY_OF(duel, HOSTS), ANY_OF(duel, GAPS),
                   ANY_OF(duel, PREDICTORS));
}

static void duel_open(struct duel *duel)
{
    static const uint32_t DTYPES[] = {SPEC_DTYPE_F16, SPEC_DTYPE_BF16, SPEC_DTYPE_F32};
    static const char *const OPS[] = {"64KiB", "1MiB", "4MiB"};
    texts_draw(duel);
    uint32_t heads = 2 + (uint32_t)below(duel, 9), size = 16u << below(duel, 3);
    uint32_t dtype = ANY_OF(duel, DTYPES);
    uint64_t row_bytes = 2 * LAYERS * heads * size * sc_plugin_dtype_bytes(dtype);
    uint64_t most = SAVE_BYTES / row_bytes < 420 ? SAVE_BYTES / row_bytes : 420;
    const struct world world = {.matched = 20 + below(duel, most - 20),
                                .group = 1 + (uint32_t)below(duel, 2),
                                .agree = (int64_t)below(duel, 9)};
    for (uint32_t i = 0; i < 2; i++) {
        struct world *each = i == 0 ? &duel->paired : &duel->split;
        *each = world;
        world_make(each, true, duel->texts[i], LAYERS, heads, size, duel->seed);
        each->rig.dtype = dtype;
    }
    if (getenv("SC_TELL") != NULL)
        print_message("seed %" PRIu64 ": %s; %u heads of %u, %" PRIu64 " rows, group %u agree %d\n",
                      duel->seed, duel->texts[1], heads, size, world.matched, world.group,
                      (int)world.agree);
    world_open_stored(&duel->paired);
    world_open_stored(&duel->split);
    rig_pass_ns(&duel->split.rig, 1000000000);
    duel->split.rig.op = ANY_OF(duel, OPS); /* of 16 MiB of staging */
    rig_reopen(&duel->split.rig);
}

/* Opens both with other texts, or the same; probe keys stay those that were stored. */
static void duel_reopen(struct duel *duel)
{
    if (below(duel, 2) == 0) {
        texts_draw(duel);
        if (getenv("SC_TELL") != NULL)
            print_message("    then %s\n", duel->texts[1]);
        rig_reopen(&duel->paired.rig);
        duel->is_redrawn = true;
    }
    rig_reopen(&duel->split.rig);
    /* Rows that are selected by keys need no probe keys in the paired layout. */
    if (duel->is_redrawn && duel->split.rig.conn->config.identify == SC_IDENTIFY_KEYS)
        duel->has_room = false;
}

/* ---- Items ----------------------------------------------------------------------------------- */

/* An item as both stores get it. */
struct wish {
    uint32_t layer;
    bool is_wide, has_probes_only;
    struct spec_select select;
    int64_t slots[CALL_ROWS_MAX];
    uint64_t slot_count;
};

static void wish_draw(struct duel *duel, uint64_t rows, struct wish *ret_wish)
{
    *ret_wish = (struct wish){.layer = (uint32_t)below(duel, LAYERS),
                              .is_wide = below(duel, 4) == 0,
                              .has_probes_only = below(duel, 10) == 0,
                              .select = {.struct_size = sizeof(ret_wish->select)}};
    struct spec_select *select = &ret_wish->select;
    if (below(duel, 3) == 0) {
        select->given |= SPEC_SELECT_BUDGET;
        select->budget = (uint32_t)below(duel, 3);
        select->retain_ppm = (uint32_t)(10000 + below(duel, 990000));
        select->mass_ppm = (uint32_t)(10000 + below(duel, 990000));
        select->count = 1 + below(duel, 60);
    }
    if (below(duel, 6) == 0) {
        select->given |= SPEC_SELECT_METRIC;
        select->metric = (uint32_t)below(duel, 3);
    }
    if (below(duel, 6) == 0) {
        select->given |= SPEC_SELECT_KEEP;
        select->keep_first = (uint32_t)below(duel, 40);
        select->keep_last = (uint32_t)below(duel, 40);
    }
    uint64_t kind = below(duel, 5);
    for (uint64_t j = 0; kind < 2 && j < rows; j++) /* the other way round; some negative */
        ret_wish->slots[j] =
            kind == 1 && rig_mix(duel->random + j) % 50 == 0 ? -1 : (int64_t)(rows - 1 - j);
    ret_wish->slot_count = kind < 2 ? rows : 0;
}

static struct select_call wish_call(const struct world *world, const struct wish *wish,
                                    spec_request request, uint64_t from)
{
    struct select_call call = call_make(world, request, wish->layer, from);
    if (wish->is_wide) {
        struct rig wide = world->rig;
        wide.dtype = SPEC_DTYPE_F32;
        rig_area_free(&call.area);
        call.area = rig_area(&wide, world->matched - from);
    }
    call.select = wish->select;
    if (wish->has_probes_only)
        call.pass.q.heads = SPEC_QUERIES_PROBE;
    call.area.memory.slots = wish->slot_count > 0 ? wish->slots : NULL;
    call.area.memory.slot_count = wish->slot_count;
    return call;
}

static void rows_check(const struct world *world, const struct wish *wish,
                       const struct select_call *call)
{
    const struct spec_important *item = &call->item;
    const struct area *area = &call->area;
    bool has_sets = (item->result_flags & SPEC_IMPORTANT_FALLBACK) != 0;
    uint32_t dtype = area->memory.dtype;
    uint64_t d = world->rig.head_size, element = sc_plugin_dtype_bytes(dtype);
    uint8_t bytes[8];
    for (uint64_t n = 0; n < world->rig.heads * item->row_count; n++) {
        uint64_t head = n / item->row_count, row = n % item->row_count;
        uint64_t position = item->positions[has_sets ? n : row];
        int64_t slot = wish->slot_count > 0 ? wish->slots[row] : (int64_t)row;
        assert_true(row == 0 || position > item->positions[(has_sets ? n : row) - 1]);
        for (uint64_t i = 0; i < 2 * d && slot >= 0; i++) {
            const uint8_t *base = i < d ? area->memory.k_base : area->memory.v_base;
            world_put(bytes, dtype,
                      world_kv(world, position, wish->layer, (uint32_t)(i / d), head, i % d));
            assert_memory_equal(base + ((uint64_t)slot * world->rig.heads + head) * d * element +
                                    i % d * element,
                                bytes, element);
        }
    }
    const uint8_t *k = area->memory.k_base, *v = area->memory.v_base;
    assert_true(rig_is_poison(k - RIG_GUARD, RIG_GUARD));
    assert_true(rig_is_poison(k + area->part_bytes, RIG_GUARD));
    assert_true(rig_is_poison(v - RIG_GUARD, RIG_GUARD));
    assert_true(rig_is_poison(v + area->part_bytes, RIG_GUARD));
}

/* Compares with the same item of the other store, alone and without anything read before. */
static void item_judge(struct duel *duel, const struct wish *wish, const struct select_call *call,
                       uint64_t from)
{
    const struct spec_important *a = &call->item;
    rows_check(&duel->split, wish, call);
    spec_request request = look(&duel->paired, from);
    struct select_call truth = wish_call(&duel->paired, wish, request, from);
    assert_int_equal(call_fire(&duel->paired, &truth), SPEC_OK);
    const struct spec_important *b = &truth.item;
    rows_check(&duel->paired, wish, &truth);
    bool is_dense = (a->result_flags & SPEC_IMPORTANT_DENSE) != 0;
    duel->compared++;
    duel->dense += is_dense;
    duel->fallbacks += (a->result_flags & SPEC_IMPORTANT_FALLBACK) != 0;
    bool is_either = is_dense || (b->result_flags & SPEC_IMPORTANT_DENSE) != 0;
    if (duel->has_room || !is_either) {
        assert_int_equal(a->result_flags, b->result_flags);
        assert_int_equal(a->row_count, b->row_count);
        assert_int_equal(a->union_rows, b->union_rows);
        assert_true(a->similarity == b->similarity && a->threshold == b->threshold);
        uint64_t sets = (a->result_flags & SPEC_IMPORTANT_FALLBACK) ? duel->split.rig.heads : 1;
        assert_memory_equal(a->positions, b->positions, sets * a->row_count * sizeof(uint32_t));
        assert_memory_equal(&a->provenance, &b->provenance, sizeof(a->provenance));
    }
    assert_in_range(a->prefetched_rows, 0, a->union_rows);
    call_free(&truth);
    rig_release(&duel->paired.rig, request);
}

/* ---- A request ------------------------------------------------------------------------------- */

static void orders_draw(struct duel *duel)
{
    struct sc_plugin_fallback *fallbacks = duel->split.rig.conn->ahead.fallbacks;
    for (uint32_t layer = 0; layer < LAYERS && fallbacks != NULL; layer++)
        for (uint64_t i = 0, will = below(duel, 3); i < 32 && will < 2; i++)
            sc_plugin_fallback_learn(&fallbacks[layer], will == 1);
}

static void read_ahead(struct duel *duel, spec_request request)
{
    spec_connector *conn = duel->split.rig.conn;
    for (uint64_t i = below(duel, 4); i > 0; i--) {
        uint32_t layer = (uint32_t)below(duel, LAYERS);
        if (below(duel, 2) == 0) {
            assert_int_equal(sc_plugin_begin_layer(conn, &request, 1, layer, NULL), SPEC_OK);
        } else {
            uint32_t next = layer + 1 < LAYERS ? layer + 1 : layer;
            struct pass hint = world_pass(&duel->split, next, duel->split.rig.dtype);
            assert_int_equal(sc_plugin_prefetch_next(conn, request, layer,
                                                     below(duel, 3) > 0 ? &hint.q : NULL, NULL),
                             SPEC_OK);
            pass_free(&hint);
        }
        if (below(duel, 3) == 0)
            orders_draw(duel);
        if (below(duel, 2) == 0)
            rig_pass_ns(&duel->split.rig, 1u << below(duel, 30));
    }
}

static spec_status items_fire(struct duel *duel, struct spec_important *items, uint64_t count,
                              bool is_submitted)
{
    spec_connector *conn = duel->split.rig.conn;
    spec_ticket ticket;
    if (!is_submitted)
        return sc_plugin_get_important(conn, items, count, NULL);
    assert_int_equal(sc_plugin_submit(conn, items, count, &ticket, NULL), SPEC_OK);
    if (below(duel, 2) == 0)
        orders_draw(duel);
    return sc_plugin_submit_wait(conn, ticket, UINT64_MAX, NULL);
}

/* One call of some items of a request; may_fail: a read may. Returns whether all are right. */
static bool call_some(struct duel *duel, spec_request request, uint64_t from, bool may_fail)
{
    uint64_t count = 1 + below(duel, ITEMS), rows = duel->split.matched - from;
    struct wish wishes[ITEMS];
    struct select_call calls[ITEMS];
    struct spec_important items[ITEMS];
    for (uint64_t i = 0; i < count; i++) {
        wish_draw(duel, rows, &wishes[i]);
        calls[i] = wish_call(&duel->split, &wishes[i], request, from);
        call_aim(&calls[i]);
        if (duel->has_deadlines && below(duel, 3) == 0)
            calls[i].item.deadline_ns = 1 + below(duel, UINT64_C(1) << below(duel, 28));
        items[i] = calls[i].item;
    }
    (void)items_fire(duel, items, count, below(duel, 3) == 0);
    bool is_right = true;
    for (uint64_t i = 0; i < count; i++) {
        calls[i].item = items[i];
        spec_status status = items[i].status;
        is_right = is_right && status == SPEC_OK;
        bool is_late = status == SPEC_E_TIMEOUT && items[i].deadline_ns > 0;
        duel->late += is_late;
        duel->failed += status != SPEC_OK && !is_late;
        if (status != SPEC_OK && !is_late && !may_fail)
            fail_msg("item %" PRIu64 ": %s", i, sc_status_name(status));
        if (status == SPEC_OK)
            item_judge(duel, &wishes[i], &calls[i], from);
        call_free(&calls[i]);
    }
    return is_right;
}

static void duel_step(struct duel *duel, bool may_fail)
{
    uint64_t from = below(duel, 3) == 0 ? below(duel, duel->split.matched) : 0;
    orders_draw(duel);
    spec_request request = look(&duel->split, from);
    for (uint64_t calls = 1 + below(duel, 3); calls > 0; calls--) {
        read_ahead(duel, request);
        if (!call_some(duel, request, from, may_fail) && may_fail)
            break;
        orders_draw(duel);
    }
    rig_release(&duel->split.rig, request);
    if (below(duel, 4) == 0) {
        (void)rig_maintain(&duel->split.rig, SPEC_MAINTAIN_REORDER);
        rig_pass_ns(&duel->split.rig, 1000000000);
    }
    if (below(duel, 6) == 0)
        duel_reopen(duel);
}

static uint64_t number_of(const char *name, uint64_t usual)
{
    const char *text = getenv(name);
    return text != NULL ? strtoull(text, NULL, 10) : usual;
}

/* SC_SEED=N SC_SEEDS=N: others, or more. */
static void any_order_of_reads_selects_the_same(void **state)
{
    (void)state;
    uint64_t seed = number_of("SC_SEED", 1), end = seed + number_of("SC_SEEDS", 60);
    struct duel all = {0};
    for (; seed < end; seed++) {
        struct duel duel = {.seed = seed, .random = rig_mix(seed)};
        duel_open(&duel);
        for (uint32_t step = 0; step < STEPS; step++) {
            duel.has_deadlines = step % 3 == 2;
            if (duel.has_deadlines)
                sc_io_sim_disk_rate(duel.split.rig.disk, 10000000);
            duel_step(&duel, false);
            sc_io_sim_disk_rate(duel.split.rig.disk, 1000000000);
        }
        duel.has_room = false; /* selector keys may be what fails */
        enum sc_io_sim_fault fault = below(&duel, 2) ? SC_SIM_READ_EIO : SC_SIM_FLIP;
        sc_io_sim_fault_scope(duel.split.rig.disk, "seg-");
        if (below(&duel, 2) == 0)
            sc_io_sim_fault_nth(duel.split.rig.disk, fault, below(&duel, 30));
        else
            sc_io_sim_fault_ppm(duel.split.rig.disk, fault, 100000);
        duel_step(&duel, true);
        sc_io_sim_fault_ppm(duel.split.rig.disk, fault, 0);
        all.compared += duel.compared;
        all.fallbacks += duel.fallbacks;
        all.dense += duel.dense;
        all.late += duel.late;
        all.failed += duel.failed;
        world_done(&duel.paired);
        world_done(&duel.split);
    }
    if (getenv("SC_TELL") != NULL)
        print_message("%" PRIu64 " items: %" PRIu64 " fallbacks, %" PRIu64 " dense; %" PRIu64
                      " late, %" PRIu64 " failed\n",
                      all.compared, all.fallbacks, all.dense, all.late, all.failed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_order_of_reads_selects_the_same),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
