/* The order of reads that select rows by probe heads: what each reads, and that results are equal.
 * Contract: plugin/select/keys_first.h. */
#include "tests/unit/awaits.h"
#include "tests/unit/plugin/select_call.h"
#include "tests/unit/threads.h"

#include "plugin/select/accuracy.h"
#include "plugin/select/issue_reads.h"

#define SPLIT "\"preset\": \"impress-itf+range\""

/* Sets what the layers are expected to do: fall back (keys first), or not. */
static void expect_fallbacks(struct world *world, bool will)
{
    for (uint32_t layer = 0; layer < world->rig.layers; layer++)
        for (uint32_t i = 0; i < 32; i++) /* an average of about eight */
            sc_plugin_fallback_learn(&world->rig.conn->ahead.fallbacks[layer], will);
}

static void assert_same(const struct world *world, const struct select_call *a,
                        const struct select_call *b)
{
    bool has_sets = (a->item.result_flags & SPEC_IMPORTANT_FALLBACK) != 0;
    assert_int_equal(a->item.result_flags, b->item.result_flags);
    assert_int_equal(a->item.row_count, b->item.row_count);
    assert_int_equal(a->item.union_rows, b->item.union_rows);
    assert_true(a->item.similarity == b->item.similarity);
    assert_true(a->item.threshold == b->item.threshold);
    assert_memory_equal(a->positions, b->positions,
                        (has_sets ? world->rig.heads : 1) * a->item.row_count * sizeof(uint32_t));
}

/* Bytes that an item wants beside its tags, in vectors of a head. */
static uint64_t vectors_of(const struct world *world, const struct select_call *call, uint64_t tags)
{
    uint64_t bytes = call->item.wanted_bytes - tags * world->matched * sizeof(uint64_t);
    assert_int_equal(bytes % (world->rig.head_size * 2), 0);
    return bytes / (world->rig.head_size * 2);
}

/* IMPRESS' Figure 9 with a fallback: keys of 32 heads and the value of the one important token, 160
 * vectors. Where probe keys were read before, they are read again: 12 more. */
static void figure_9_wants_160_vectors_where_heads_disagree(void **state)
{
    (void)state;
    struct world world;
    struct select_call call;
    world_open(&world, SPLIT ", \"select\": {\"alpha_milli\": 0}", 32, 1, 16, SPEC_DTYPE_F16, 4, 8);
    for (uint32_t times = 0; times < 3; times++) {
        call_alone(&world, 1, &call);
        call_assert_rows(&world, &call);
        assert_int_equal(call.item.result_flags, SPEC_IMPORTANT_FALLBACK);
        assert_int_equal(call.item.row_count, 1);
        assert_int_equal(call.item.union_rows, 1);
        uint64_t vectors = vectors_of(&world, &call, times == 0 ? 3 : 2);
        assert_int_equal(vectors, times == 0 ? 172 : 160);
        call_free(&call);
    }
    world_done(&world);
}

/* In both orders: sets, similarity, positions and rows; with each destination's dtype; heads that
 * agree, disagree and do either; budgets by ratio and by mass. */
static void results_do_not_depend_on_the_order(void **state)
{
    (void)state;
    static const char *const EXTRAS[] = {
        SPLIT,
        SPLIT ", \"select\": {\"budget\": \"mass\", \"mass_ppm\": 500000, \"probe_heads\": 2}",
        SPLIT ", \"select\": {\"similarity\": \"mass\", \"unit\": 16}", "\"preset\": \"spec-itf\""};
    uint64_t fallbacks = 0, asked = 0;
    for (uint32_t way = 0; way < 4; way++)
        for (int64_t agree = 0; agree <= 8; agree += 2) {
            struct world world;
            struct select_call calls[2];
            world_open(&world, EXTRAS[way], 5, 2, 16, SPEC_DTYPE_BF16, 300, agree);
            for (uint32_t layer = 0; layer < 4; layer++, asked++) {
                for (uint32_t i = 0; i < 2; i++) {
                    expect_fallbacks(&world, i == 1);
                    call_alone(&world, layer, &calls[i]);
                    call_assert_rows(&world, &calls[i]);
                }
                assert_same(&world, &calls[0], &calls[1]);
                fallbacks += calls[0].item.result_flags & SPEC_IMPORTANT_FALLBACK ? 1 : 0;
                call_free(&calls[0]);
                call_free(&calls[1]);
            }
            world_done(&world);
        }
    assert_in_range(fallbacks, asked / 10, asked * 9 / 10);
}

/* Probe keys are not read where the keys of all heads are: of heads that agree, V of one set. */
static void keys_first_wants_all_keys_and_the_values_of_the_sets(void **state)
{
    (void)state;
    for (int64_t agree = 0; agree <= 8; agree += 8) {
        struct world world;
        struct select_call call;
        world_open(&world, SPLIT, 6, 1, 16, SPEC_DTYPE_F16, 200, agree);
        expect_fallbacks(&world, true);
        call_alone(&world, 2, &call);
        bool has_sets = (call.item.result_flags & SPEC_IMPORTANT_FALLBACK) != 0;
        assert_int_equal(has_sets, agree == 0);
        assert_int_equal(call.item.row_count, 50);
        assert_true(has_sets ? call.item.union_rows > 50 : call.item.union_rows == 50);
        assert_int_equal(vectors_of(&world, &call, 2), 6 * (200 + call.item.union_rows));
        call_free(&call);
        world_done(&world);
    }
}

/* The order follows what the layer did, and the share of the heads that are probes. */
static void the_order_follows_fallbacks_and_probe_heads(void **state)
{
    (void)state;
    static const struct {
        uint32_t heads;
        int64_t agree;
        bool keys_first;
    } WAYS[] = {
        {4, 0, true},   /* 3 of 4 heads: any fallback is enough */
        {32, 0, true},  /* 3 of 32 heads: nearly all fall back */
        {32, 8, false}, /* no layer does */
        {4, 8, false},
    };
    for (uint32_t way = 0; way < 4; way++) {
        struct world world;
        struct select_call call;
        world_open(&world, SPLIT, WAYS[way].heads, 1, 16, SPEC_DTYPE_F16, 200, WAYS[way].agree);
        for (uint32_t times = 0; times < 4; times++) {
            uint64_t keys = atomic_load(&world.rig.conn->stats.selector_read_bytes);
            call_alone(&world, 1, &call);
            keys = atomic_load(&world.rig.conn->stats.selector_read_bytes) - keys;
            bool has_probes = keys > 200 * 3 * 16 * 2;
            assert_int_equal(has_probes, times == 0 || !WAYS[way].keys_first);
            call_free(&call);
        }
        world_done(&world);
    }
}

/* Keys that were read ahead are used; an item that takes one set alone gets probe keys. */
static void what_was_read_ahead_is_used_or_dropped(void **state)
{
    (void)state;
    int64_t slots[200];
    for (int64_t j = 0; j < 200; j++)
        slots[j] = j == 7 ? INT64_MIN : j;
    for (uint32_t way = 0; way < 3; way++) {
        struct world world;
        world_open(&world, SPLIT, 5, 1, 16, SPEC_DTYPE_F16, 200, way == 2 ? 8 : 0);
        expect_fallbacks(&world, true);
        spec_request request = look(&world, 0);
        assert_int_equal(sc_plugin_begin_layer(world.rig.conn, &request, 1, 1, NULL), SPEC_OK);
        rig_pass_ns(&world.rig, 1000000000);
        struct select_call call = call_make(&world, request, 1, 0);
        if (way > 0) {
            call.area.memory.slots = slots;
            call.area.memory.slot_count = 200;
        }
        assert_int_equal(call_fire(&world, &call), SPEC_OK);
        assert_int_equal(call.item.result_flags, way == 0   ? SPEC_IMPORTANT_FALLBACK
                                                 : way == 1 ? SPEC_IMPORTANT_DENSE
                                                            : 0);
        assert_int_equal(call.item.row_count, way == 1 ? 200 : 50);
        assert_int_equal(call.item.unused_bytes > 0, way > 0);
        if (way == 0)
            call_assert_rows(&world, &call);
        call_free(&call);
        world_leave(&world, request);
    }
}

/* Prefetches rows 0 .. 149 of 200 and selects; keys_first: so that keys go first. */
static void select_behind_a_prediction(struct world *world, const struct select_call *truth,
                                       bool keys_first)
{
    expect_fallbacks(world, keys_first);
    spec_request handle = look(world, 0);
    struct sc_plugin_request *request = sc_plugin_request_find(world->rig.conn, handle);
    uint32_t *rows = sc_plugin_prefetch_rows(request, 2);
    assert_non_null(rows);
    for (uint32_t row = 0; row < 150; row++)
        rows[row] = row;
    sc_plugin_prefetch_begin(world->rig.conn, request, 2, 150, 150);
    rig_pass_ns(&world->rig, 1000000000);
    assert_int_equal(sc_plugin_begin_layer(world->rig.conn, &handle, 1, 2, NULL), SPEC_OK);
    struct select_call call = call_make(world, handle, 2, 0);
    assert_int_equal(call_fire(world, &call), SPEC_OK);
    call_assert_rows(world, &call);
    assert_same(world, &call, truth);
    bool in_union[200] = {false};
    uint64_t behind = 0, probes = keys_first ? 0 : 3 * 200;
    for (uint64_t i = 0; i < 8 * call.item.row_count; i++)
        in_union[call.positions[i]] = true;
    for (uint64_t row = 150; row < 200; row++)
        behind += in_union[row];
    assert_in_range(behind, 1, 49);
    assert_int_equal(call.item.prefetched_rows, call.item.union_rows - behind);
    uint64_t both = 2 * 150, keys = 50;
    assert_int_equal(vectors_of(world, &call, keys_first ? 2 : 3),
                     probes + 8 * (both + keys + behind));
    call_free(&call);
    rig_release(&world->rig, handle);
}

/* Neither keys nor values of prefetched rows are read again in a layer that falls back. */
static void rows_that_were_prefetched_count_in_a_fallback(void **state)
{
    (void)state;
    struct world world;
    struct select_call truth;
    world_open(&world, "\"preset\": \"spec-itf+range\", \"read\": {\"gap_bytes\": 1}", 8, 1, 256,
               SPEC_DTYPE_F16, 200, 0);
    call_alone(&world, 2, &truth);
    assert_int_equal(truth.item.result_flags, SPEC_IMPORTANT_FALLBACK);
    select_behind_a_prediction(&world, &truth, false);
    select_behind_a_prediction(&world, &truth, true);
    call_free(&truth);
    world_done(&world);
}

/* Any read of an item may fail: then no row is promised, or the rows are right. */
static void reads_that_fail_end_the_match_or_change_nothing(void **state)
{
    (void)state;
    uint64_t failed = 0, whole = 0;
    for (int64_t nth = 0; nth < 48; nth += 4) {
        struct world world;
        world_open(&world, SPLIT, 5, 1, 64, SPEC_DTYPE_F16, 600, 1);
        expect_fallbacks(&world, true);
        spec_request request = look(&world, 0);
        rig_pass_ns(&world.rig, 1000000000);
        struct select_call call = call_make(&world, request, 2, 0);
        sc_fault_arm(&world.rig.conn->fault, SC_FAULT_READ, nth);
        spec_status status = call_fire(&world, &call);
        if (status == SPEC_OK && (call.item.result_flags & SPEC_IMPORTANT_DENSE) == 0) {
            call_assert_rows(&world, &call);
            whole++;
        } else if (status != SPEC_OK) {
            assert_int_equal(status, SPEC_E_IO);
            failed++;
        }
        call_free(&call);
        world_leave(&world, request);
    }
    assert_true(failed > 0 && whole > 0);
}

/* K and V of reordered rows that were read apart are found in memory: the same layer again reads
 * nothing. */
static void halves_of_reordered_rows_stay_in_memory(void **state)
{
    (void)state;
    struct world world;
    struct select_call first, again;
    const struct spec_maintain_params params = {.struct_size = sizeof(params),
                                                .flags = SPEC_MAINTAIN_REORDER};
    world_open(&world,
               "\"preset\": \"impress-itf\", \"select\": {\"alpha_milli\": 0}, \"host_bytes\": "
               "\"16MiB\", \"maintain\": {\"bytes_per_s\": 0}, \"reorder\": {\"scope\": \"node\"}",
               5, 1, 64, SPEC_DTYPE_F16, 600, 1);
    for (uint32_t i = 0; i < 8; i++) { /* two scores of each layer */
        call_alone(&world, i % 4, &first);
        call_free(&first);
    }
    assert_int_equal(sc_plugin_maintain(world.rig.conn, &params, NULL), SPEC_OK);
    for (uint32_t i = 0; i < 1000 && rig_store_stats(&world.rig).permuted_pieces == 0; i++)
        rig_pass_ns(&world.rig, 1000000);
    assert_true(rig_store_stats(&world.rig).permuted_pieces > 0);
    rig_reopen(&world.rig); /* with empty memory */
    for (uint32_t i = 0; i < 2; i++) {
        call_alone(&world, 2, &first); /* probes first, then keys first */
        call_free(&first);
    }
    call_alone(&world, 2, &again);
    call_assert_rows(&world, &again);
    assert_int_equal(again.item.result_flags, SPEC_IMPORTANT_FALLBACK);
    assert_int_equal(again.item.read_bytes, 0);
    assert_int_equal(again.item.tier_rows[SPEC_TIER_HOST], again.item.union_rows);
    call_free(&again);
    world_done(&world);
}

/* The order is for the rows that the item wants: where the configuration wants all of them, and
 * the item 10 by its own budget, probe keys are fewer bytes than the keys of 32 heads. */
static void an_items_own_budget_decides(void **state)
{
    (void)state;
    static const char *const EXTRAS[] = {
        "\"store\": {\"layout\": \"split\"}, \"select\": {\"probe_heads\": 3}",
        SPLIT ", \"select\": {\"retain_ppm\": 990000}"};
    for (uint32_t way = 0; way < 2; way++) {
        struct world world;
        world_open(&world, EXTRAS[way], 32, 1, 16, SPEC_DTYPE_F16, 200, 8);
        spec_request request = look(&world, 0);
        struct select_call call = call_make(&world, request, 3, 0); /* lookup began others */
        call.select.given = SPEC_SELECT_BUDGET;
        call.select.budget = SPEC_BUDGET_COUNT;
        call.select.count = 10;
        assert_int_equal(call_fire(&world, &call), SPEC_OK);
        call_assert_rows(&world, &call);
        assert_int_equal(call.item.row_count, 10);
        assert_in_range(vectors_of(&world, &call, 2), 1, 32 * 200 - 1);
        call_free(&call);
        world_leave(&world, request);
    }
}

/* Keys are not read ahead for rows that no keys of probe heads select. */
static void what_is_selected_without_probe_keys_reads_no_keys_ahead(void **state)
{
    (void)state;
    static const char *const EXTRAS[] = {
        SPLIT ", \"select\": {\"metric\": \"random\", \"retain_ppm\": 400000}",
        "\"store\": {\"layout\": \"split\"}, \"select\": {\"base\": \"quantised\", "
        "\"probe_heads\": 3}, \"layered\": {\"exact_ppm\": 400000}"};
    for (uint32_t way = 0; way < 2; way++) {
        struct world world;
        world_open(&world, EXTRAS[way], 4, 1, 16, SPEC_DTYPE_F16, 200, 8);
        rig_wait_for_quant(&world.rig);
        spec_request request = look(&world, 0);
        assert_int_equal(sc_plugin_begin_layer(world.rig.conn, &request, 1, 1, NULL), SPEC_OK);
        rig_pass_ns(&world.rig, 1000000000);
        struct select_call call = call_make(&world, request, 1, 0);
        assert_int_equal(call_fire(&world, &call), SPEC_OK);
        assert_int_equal(call.item.row_count, way == 0 ? 80 : 200);
        assert_int_equal(call.item.unused_bytes, 0);
        call_free(&call);
        world_leave(&world, request);
    }
}

/* Both orders read the same that was fetched to host memory. */
static void nothing_is_read_after_a_fetch_to_host_memory(void **state)
{
    (void)state;
    for (uint32_t way = 0; way < 4; way++) {
        struct world world;
        world_open(&world, SPLIT ", \"host_bytes\": \"32MiB\"", 4, 1, 16, SPEC_DTYPE_F16, 200,
                   way < 2 ? 0 : 8);
        rig_reopen(&world.rig);
        expect_fallbacks(&world, way % 2 == 1);
        spec_request request = look(&world, 0);
        assert_int_equal(rig_wait(&world.rig, rig_stage(&world.rig, request, 0)), SPEC_OK);
        for (uint32_t layer = 0; layer < 4; layer++) {
            struct select_call call = call_make(&world, request, layer, 0);
            assert_int_equal(call_fire(&world, &call), SPEC_OK);
            call_assert_rows(&world, &call);
            if (layer == 3) /* lookup began to read the others' selector keys */
                assert_int_equal(call.item.read_bytes, 0);
            call_free(&call);
        }
        world_leave(&world, request);
    }
}

/* In both orders, until the missing probe keys are built. */
static void without_stored_probe_keys_all_rows_are_delivered(void **state)
{
    (void)state;
    struct world world;
    struct select_call call;
    const struct spec_maintain_params params = {.struct_size = sizeof(params),
                                                .flags = SPEC_MAINTAIN_BUILD};
    world_open(&world, SPLIT ", \"select\": {\"probe_heads\": 1}", 8, 1, 16, SPEC_DTYPE_F16, 200,
               0);
    rig_close(&world.rig);
    world.rig.extra = SPLIT ", \"maintain\": {\"bytes_per_s\": 0}";
    rig_open(&world.rig);
    for (uint32_t times = 0; times < 4; times++) {
        expect_fallbacks(&world, times % 2 == 1);
        call_alone(&world, 2, &call);
        assert_int_equal(call.item.result_flags,
                         times < 2 ? SPEC_IMPORTANT_DENSE : SPEC_IMPORTANT_FALLBACK);
        call_assert_rows(&world, &call);
        call_free(&call);
        if (times != 1)
            continue;
        assert_int_equal(sc_plugin_maintain(world.rig.conn, &params, NULL), SPEC_OK);
        rig_pass_ns(&world.rig, 1000000000);
    }
    world_done(&world);
}

/* ---- Threads -------------------------------------------------------------------------------- */

struct many {
    struct world *world;
    struct select_call *truth; /* [4] by layer */
    _Atomic uint64_t turns, begun, ended;
};

static void *select_often(void *given)
{
    struct many *many = given;
    for (uint32_t times = 0; times < 40; times++) {
        uint64_t turn = atomic_fetch_add(&many->turns, 1);
        uint32_t layer = (uint32_t)(rig_mix(turn) % 4);
        for (uint32_t i = 0; i < 9; i++)
            sc_plugin_fallback_learn(&many->world->rig.conn->ahead.fallbacks[layer], turn % 3 == 0);
        spec_request request = look(many->world, 0);
        (void)sc_plugin_begin_layer(many->world->rig.conn, &request, 1, layer, NULL);
        struct select_call call = call_make(many->world, request, layer, 0);
        assert_int_equal(call_fire(many->world, &call), SPEC_OK);
        call_assert_rows(many->world, &call);
        assert_same(many->world, &call, &many->truth[layer]);
        call_free(&call);
        rig_release(&many->world->rig, request);
    }
    return NULL;
}

static void threads_select_while_the_order_changes(void **state)
{
    (void)state;
    struct world world = {.matched = 300, .group = 1, .agree = 4};
    struct select_call truth[4];
    struct many many = {.world = &world, .truth = truth};
    world_make(&world, false, SPLIT, 4, 5, 16, 91);
    world_open_stored(&world);
    for (uint32_t layer = 0; layer < 4; layer++)
        call_alone(&world, layer, &truth[layer]);
    threads_run(select_often, &many, 0, 4);
    for (uint32_t layer = 0; layer < 4; layer++)
        call_free(&truth[layer]);
    world_done(&world);
}

/* Two layers of a request while the match is made void, or its rows are put in another order: the
 * rows are right, or the request is stale. */
static void *select_while_it_lasts(void *given)
{
    struct many *many = given;
    struct world *world = many->world;
    for (uint32_t times = 0; times < 60; times++) {
        uint64_t turn = atomic_fetch_add(&many->turns, 1);
        uint32_t first = (uint32_t)(rig_mix(turn) % 3);
        struct spec_lookup_result found;
        if (rig_try_lookup(&world->rig, &world->prompt, 0, RIG_MAX, &found) != SPEC_OK)
            continue; /* all requests are in use */
        if (found.matched_tokens < world->matched) { /* stored again in part so far */
            rig_release(&world->rig, found.request);
            continue;
        }
        for (uint32_t i = 0; i < 9; i++)
            sc_plugin_fallback_learn(&world->rig.conn->ahead.fallbacks[first], turn % 3 > 0);
        (void)sc_plugin_begin_layer(world->rig.conn, &found.request, 1, first, NULL);
        struct select_call calls[2];
        struct spec_important items[2];
        for (uint32_t i = 0; i < 2; i++) {
            calls[i] = call_make(world, found.request, first + i, 0);
            call_aim(&calls[i]);
            items[i] = calls[i].item;
        }
        spec_status status = sc_plugin_get_important(world->rig.conn, items, 2, NULL);
        assert_true(status == SPEC_OK || status == SPEC_E_STALE);
        for (uint32_t i = 0; i < 2; i++) {
            calls[i].item = items[i];
            assert_true(items[i].status == SPEC_OK || items[i].status == SPEC_E_STALE ||
                        (status == SPEC_E_STALE && items[i].status == SPEC_PENDING));
            if (items[i].status == SPEC_OK && items[i].next_position == world->matched) {
                call_assert_rows(world, &calls[i]);
                assert_same(world, &calls[i], &many->truth[first + i]);
            }
            call_free(&calls[i]);
        }
        rig_release(&world->rig, found.request);
    }
    atomic_fetch_add(&many->ended, 1);
    return NULL;
}

/* Stores the match again; returns false if an erasure still runs. */
static bool store_again(struct world *world)
{
    struct prompt stored = {world->matched, world->prompt.tokens, world->prompt.history};
    struct spec_lookup_result found = rig_lookup(&world->rig, &stored);
    spec_ticket ticket = 0;
    for (uint32_t layer = 0; layer < world->rig.layers; layer++) {
        struct area area = world_area(world, 0, world->matched, layer);
        struct spec_store_params params =
            rig_store_params(found.request, layer, 0, world->matched, &area.memory);
        assert_int_equal(sc_plugin_store(world->rig.conn, &params, 1, &ticket, NULL), SPEC_OK);
        rig_area_free(&area);
    }
    spec_status status = rig_wait(&world->rig, ticket);
    assert_true(status == SPEC_OK || status == SPEC_E_BUSY);
    rig_release(&world->rig, found.request);
    return status == SPEC_OK;
}

static void *void_often(void *given)
{
    struct many *many = given;
    struct rig *rig = &many->world->rig;
    for (uint64_t turn = 0; atomic_load(&many->ended) < 3; turn++) {
        (void)rig_maintain(rig, turn % 2 == 0 ? SPEC_MAINTAIN_REORDER : SPEC_MAINTAIN_CHECKPOINT);
        if (turn % 3 != 0)
            continue;
        if (turn % 2 == 0)
            assert_int_equal(sc_plugin_reset(rig->conn, NULL), SPEC_OK);
        else
            assert_int_equal(rig_maintain(rig, SPEC_MAINTAIN_ERASE), SPEC_OK);
        (void)store_again(many->world);
    }
    return NULL;
}

static void *select_or_void(void *given)
{
    struct many *many = given;
    bool is_first = atomic_fetch_add(&many->begun, 1) == 0;
    return is_first ? void_often(given) : select_while_it_lasts(given);
}

static void threads_select_while_matches_become_void(void **state)
{
    (void)state;
    struct world world = {.matched = 300, .group = 1, .agree = 4};
    struct select_call truth[4];
    struct many many = {.world = &world, .truth = truth};
    world_make(&world, false, "\"preset\": \"spec+range\", \"host_bytes\": \"2MiB\"", 4, 5, 16,
               92);
    world_open_stored(&world);
    for (uint32_t layer = 0; layer < 4; layer++)
        call_alone(&world, layer, &truth[layer]);
    threads_run(select_or_void, &many, 0, 4);
    assert_int_equal(sc_plugin_reset(world.rig.conn, NULL), SPEC_OK);
    for (uint32_t looks = 0; !store_again(&world);)
        assert_true(await_goes_on(&looks));
    for (uint32_t layer = 0; layer < 4; layer++) {
        struct select_call call;
        call_alone(&world, layer, &call);
        assert_same(&world, &call, &truth[layer]);
        call_free(&call);
        call_free(&truth[layer]);
    }
    world_done(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(figure_9_wants_160_vectors_where_heads_disagree),
        cmocka_unit_test(results_do_not_depend_on_the_order),
        cmocka_unit_test(keys_first_wants_all_keys_and_the_values_of_the_sets),
        cmocka_unit_test(the_order_follows_fallbacks_and_probe_heads),
        cmocka_unit_test(what_was_read_ahead_is_used_or_dropped),
        cmocka_unit_test(rows_that_were_prefetched_count_in_a_fallback),
        cmocka_unit_test(an_items_own_budget_decides),
        cmocka_unit_test(what_is_selected_without_probe_keys_reads_no_keys_ahead),
        cmocka_unit_test(nothing_is_read_after_a_fetch_to_host_memory),
        cmocka_unit_test(reads_that_fail_end_the_match_or_change_nothing),
        cmocka_unit_test(halves_of_reordered_rows_stay_in_memory),
        cmocka_unit_test(without_stored_probe_keys_all_rows_are_delivered),
        cmocka_unit_test(threads_select_while_the_order_changes),
        cmocka_unit_test(threads_select_while_matches_become_void),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
