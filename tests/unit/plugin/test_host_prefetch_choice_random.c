/* Random calls beside stages of what rows are chosen by, beside faults of the disk, of memory and
 * of the allocator: what is delivered is right, every ticket ends, nobody is told PENDING for ever,
 * host memory keeps to its limits. A failure prints its seed; SC_SEED=N runs that one alone.
 *
 * Threads: the fixture's. On the simulated disk nothing happens but in waits. */
#include "plugin/select/scatter.h"
#include "plugin/select/select.h"
#include "store/cache/host_tier_slab.h"
#include "store/read/fetch_selectors.h"
#include "tests/unit/plugin/layered_fixture.h"
#include "tests/unit/plugin/stage_actor.h"

#include <inttypes.h>

#define MATCHED 300u
#define LAYERS  4u
#define OPEN    4u
#define STEPS   100u
#define MS      UINT64_C(1000000)

static const char *const WAYS[] = {
    "\"preset\": \"layered-uniform\", \"host_bytes\": \"64MiB\"",
    "\"preset\": \"int8\", \"host_bytes\": \"64MiB\"",
    "\"preset\": \"layered-uniform\", \"host_bytes\": \"192KiB\"",
    "\"preset\": \"int8\", \"host_bytes\": \"48KiB\", \"host_policy\": \"lru\"",
    "\"preset\": \"layered+range\", \"host_bytes\": \"64MiB\", \"host_write_through\": \"yes\"",
    "\"preset\": \"int8\", \"host_bytes\": \"1MiB\", \"select\": {\"dense_layers\": 2}",
    ("\"preset\": \"layered-uniform\", \"host_bytes\": \"400KiB\", "
     "\"select\": {\"dense_layers\": 1}"),
};
#define WAY_COUNT (sizeof(WAYS) / sizeof(WAYS[0]))

/* Rows alone, chosen by keys or by what is told; of one head: sets are of the row. The last has
 * pieces whose keys are more than a read. */
static const char *const SETS[] = {
    "\"preset\": \"impress-itf\", \"host_bytes\": \"64MiB\"",
    "\"preset\": \"spi\", \"host_bytes\": \"600KiB\"",
    "\"preset\": \"random\", \"host_bytes\": \"400KiB\", \"host_policy\": \"lfu\"",
    "\"preset\": \"hinted\", \"host_bytes\": \"64MiB\", \"select\": {\"dense_layers\": 1}",
    "\"preset\": \"spec-itf\", \"host_bytes\": \"64MiB\", \"chunk_tokens\": 256",
};
#define SET_COUNT (sizeof(SETS) / sizeof(SETS[0]))

struct open_request {
    spec_request request;
    uint64_t from, matched;
};

struct walk {
    struct stage_actor actor;
    struct world world;
    struct open_request open[OPEN];
    struct stage_tickets tickets;
    uint64_t loads, failed, staged, pending, rotten, merged;
    bool has_sets;
    bool grows; /* rows are stored a few a pass: pieces are of any length, until they are merged */
};

static uint64_t draw(struct walk *w, uint64_t below)
{
    return actor_draw(&w->actor, below);
}

#define CHECK(w, cond) ACTOR_CHECK(&(w)->actor, cond)

/* What is missing of the first `end` tokens is stored. */
static void store_to(struct walk *w, uint64_t end)
{
    struct world *world = &w->world;
    struct rig *rig = &world->rig;
    struct prompt stored = {end, world->prompt.tokens, world->prompt.history};
    struct spec_lookup_result found;
    spec_ticket ticket = 0;
    if (rig_try_lookup(rig, &stored, 0, RIG_MAX, &found) != SPEC_OK || found.request == 0)
        return;
    uint64_t first = found.matched_tokens;
    spec_status status = first < end ? SPEC_OK : SPEC_E_INVALID;
    for (uint32_t layer = 0; layer < LAYERS && status == SPEC_OK; layer++) {
        struct area area = world_area(world, first, end - first, layer);
        struct spec_store_params params =
            rig_store_params(found.request, layer, first, end - first, &area.memory);
        status = sc_plugin_store(rig->conn, &params, 1, &ticket, NULL);
        rig_area_free(&area);
        if (status == SPEC_OK)
            status = rig_wait(rig, ticket);
    }
    rig_release(rig, found.request);
}

/* What was evicted or void is stored again, so that there is something to be staged. */
static void store_again(struct walk *w)
{
    struct spec_lookup_result found;
    for (uint64_t i = draw(w, 8); i > 0 && w->grows; i--)
        if (rig_peek(&w->world.rig, &w->world.prompt, 0, &found) == SPEC_OK &&
            found.matched_tokens < MATCHED - 64)
            store_to(w, found.matched_tokens + 1 + draw(w, draw(w, 2) == 0 ? 64 : 6));
    if (!w->grows)
        store_to(w, MATCHED);
    struct sc_store_stats stats = actor_caps(&w->actor);
    for (uint32_t i = 0; i < 100 && stats.is_building; i++) { /* codes come behind */
        rig_pass_ns(&w->world.rig, MS);
        stats = actor_caps(&w->actor);
    }
}

static void step_lookup(struct walk *w, struct open_request *open)
{
    struct spec_lookup_result found;
    uint64_t from = draw(w, 4) == 0 ? draw(w, MATCHED) : 0;
    uint64_t most = draw(w, 4) == 0 ? from + draw(w, MATCHED + 1 - from) : MATCHED;
    if (rig_try_lookup(&w->world.rig, &w->world.prompt, from, most, &found) != SPEC_OK)
        return;
    if (found.state == SPEC_LOOKUP_PENDING) {
        w->pending++;
        CHECK(w, found.request == 0);
        return;
    }
    *open = (struct open_request){found.request, from, found.matched_tokens};
}

static void step_stage(struct walk *w, const struct open_request *open)
{
    static const uint64_t DEADLINES[ACTOR_DEADLINES] = {0, 1, MS, 50 * MS, 400 * MS, 0};
    w->staged += actor_stage_among(&w->actor, open->request, DEADLINES, &w->tickets);
}

/* Rows [from, matched), each as its bit says; chunks are coded as they were stored, if together. */
static void rows_check(struct walk *w, const struct shot *shot, const struct open_request *open)
{
    const struct world *world = &w->world;
    uint64_t bytes = rig_part_bytes(&world->rig);
    uint32_t bits[2] = {(uint32_t)world->rig.conn->config.quarters_k / 4,
                        (uint32_t)world->rig.conn->config.quarters_v / 4};
    struct slab slabs[2] = {{.row_count = 0}, {.row_count = 0}};
    uint8_t expected[1024];
    for (uint64_t j = 0; j < shot->item.row_count && w->has_sets; j++)
        for (uint32_t part = 0; part < 2; part++) {
            const uint8_t *at = part == 0 ? shot->area.memory.k_base : shot->area.memory.v_base;
            CHECK(w, shot->positions[j] >= open->from && shot->positions[j] < open->matched);
            CHECK(w, j == 0 || shot->positions[j] > shot->positions[j - 1]);
            stored_row(world, shot->positions[j], shot->item.layer, part, expected);
            CHECK(w, memcmp(at + j * bytes, expected, bytes) == 0);
        }
    if (w->has_sets)
        return;
    CHECK(w, shot->item.row_count == open->matched - open->from);
    for (uint64_t j = 0; j < open->matched - open->from; j++)
        for (uint32_t part = 0; part < 2; part++) {
            const uint8_t *at = part == 0 ? shot->area.memory.k_base : shot->area.memory.v_base;
            if (!is_exact(shot, j) && w->grows)
                continue;
            if (!is_exact(shot, j))
                decoded(world, open->from + j, shot->item.layer, part, bits[part], &slabs[part],
                        world->rig.dtype, expected);
            else
                stored_row(world, open->from + j, shot->item.layer, part, expected);
            CHECK(w, memcmp(at + j * bytes, expected, bytes) == 0);
        }
}

static void step_load(struct walk *w, const struct open_request *open)
{
    struct shot *shot = calloc(1, sizeof(*shot));
    struct spec_error error = {.struct_size = sizeof(error)};
    assert_non_null(shot);
    if (open->matched > open->from) {
        uint32_t layer = (uint32_t)draw(w, LAYERS);
        w->world.matched = open->matched;
        shot_make(shot, &w->world, open->request, layer, open->from, (uint32_t)draw(w, 300000));
        if (draw(w, 2) == 0 || w->has_sets)
            shot->select.given = 0;
        w->world.matched = MATCHED;
        spec_status status = sc_plugin_get_important(w->world.rig.conn, &shot->item, 1, &error);
        status = shot->item.status != SPEC_OK ? shot->item.status : status;
        if (status == SPEC_OK)
            rows_check(w, shot, open);
        w->loads += status == SPEC_OK;
        w->failed += status != SPEC_OK;
        shot_free(shot);
    }
    free(shot);
}

/* A bit anywhere of a slab of what rows are chosen by. */
static void memory_rots(struct walk *w, const struct open_request *open)
{
    const struct sc_plugin_request *request =
        sc_plugin_request_find(w->world.rig.conn, open->request);
    struct sc_store *store = w->world.rig.conn->store;
    for (uint64_t r = 0; request != NULL && r < request->range_count; r++) {
        const struct sc_store_match_fetch_wants wants =
            sc_plugin_host_prefetch_wants(w->world.rig.conn, request);
        struct sc_store_selector_plan plan =
            sc_store_selector_fetch_plan(store, &wants, (uint32_t)draw(w, LAYERS));
        plan.ranges = request->ranges;
        plan.range_count = request->range_count;
        struct sc_host_slab_wish wish;
        if (!sc_store_range_is_there(store, &request->ranges[r]) ||
            !sc_store_selector_wish(&plan, r, &wish))
            continue;
        struct sc_host_tier_memory_slab *slab = sc_host_tier_get(store->host, &wish.key);
        if (slab == NULL)
            continue;
        sc_host_tier_bytes(store->host, slab)[draw(w, wish.bytes)] ^= (uint8_t)(1u << draw(w, 8));
        sc_host_tier_unpin(store->host, slab);
        w->rotten++;
        return;
    }
}

static void step_fault(struct walk *w)
{
    struct rig *rig = &w->world.rig;
    sc_io_sim_fault_scope(rig->disk, "/seg-");
    switch (draw(w, 6)) {
    case 0:
        sc_io_sim_fault_nth(rig->disk, SC_SIM_READ_EIO, draw(w, 12));
        break;
    case 1:
        sc_io_sim_fault_nth(rig->disk, SC_SIM_FLIP, draw(w, 12));
        break;
    case 2:
        sc_io_sim_fault_ppm(rig->disk, SC_SIM_LATE, 500000);
        sc_io_sim_fault_late_ns(rig->disk, (1 + draw(w, 200)) * MS);
        break;
    case 3:
        atomic_store(&rig->memory.countdown, (int64_t)draw(w, 8));
        break;
    default:
        actor_faults_off(&w->actor);
        break;
    }
}

static void step_rare(struct walk *w, const struct open_request *open)
{
    struct rig *rig = &w->world.rig;
    struct sc_plugin_request *request = NULL;
    switch (draw(w, 12)) {
    case 0:
        if (draw(w, 4) == 0)
            (void)sc_plugin_reset(rig->conn, NULL);
        break;
    case 1:
    case 2:
        sc_plugin_evict_ask(rig->conn, NULL, 1 + draw(w, 4) * 40000);
        if (draw(w, 2) == 0)
            rig_background(rig);
        break;
    case 3:
        request = sc_plugin_request_find(rig->conn, open->request);
        if (request != NULL && request->range_count > 0)
            sc_plugin_range_fail(rig->conn, request, draw(w, request->range_count), SPEC_E_CORRUPT,
                                 SC_STORE_TIER);
        break;
    case 4:
        rig_pass_ns(rig, 11000 * MS);
        break;
    case 5:
    case 6:
        store_again(w);
        break;
    default:
        memory_rots(w, open);
        break;
    }
}

static void run_step(struct walk *w)
{
    struct open_request *open = &w->open[draw(w, OPEN)];
    struct rig *rig = &w->world.rig;
    uint64_t kind = draw(w, 20);
    if (open->request == 0)
        step_lookup(w, open);
    else if (kind < 5)
        step_load(w, open);
    else if (kind < 9)
        step_stage(w, open);
    else if (kind == 9 && w->grows)
        store_again(w);
    else if (kind < 11) {
        rig_release(rig, open->request);
        *open = (struct open_request){0};
    } else if (kind < 12)
        step_fault(w);
    else if (kind < 15)
        step_rare(w, open);
    else if (kind < 17)
        rig_pass_ns(rig, draw(w, 30) * MS);
    else
        for (uint64_t i = draw(w, 8); i > 0; i--)
            (void)sc_exec_step_one(rig->conn->exec);
    (void)actor_caps(&w->actor);
    actor_tickets_poll(&w->actor, &w->tickets, false);
}

static void run_end(struct walk *w)
{
    struct rig *rig = &w->world.rig;
    actor_faults_off(&w->actor);
    w->merged = atomic_load(&rig->conn->stats.compacted_chunks);
    if (draw(w, 6) > 0) { /* else it is closed as it is */
        rig_pass_ns(rig, 20000 * MS);
        actor_tickets_poll(&w->actor, &w->tickets, true);
        sc_host_tier_expire(rig->conn->store->host, sc_exec_now_ns(rig->conn->exec));
        CHECK(w, actor_caps(&w->actor).host_bytes_kept == 0); /* 10 s after the last of them */
        for (uint64_t count = 1; count <= MATCHED; count += 37) {
            struct prompt part = {count, w->world.prompt.tokens, w->world.prompt.history};
            struct spec_lookup_result result;
            CHECK(w, rig_peek(rig, &part, 0, &result) == SPEC_OK);
            CHECK(w, result.state != SPEC_LOOKUP_PENDING);
        }
        for (uint32_t i = 0; i < OPEN; i++)
            if (w->open[i].request != 0)
                rig_release(rig, w->open[i].request);
        rig_settle(rig);
        rig_background(rig);
        CHECK(w, atomic_load(&rig->conn->poison.broken) == 0);
        CHECK(w, sc_plugin_reset(rig->conn, NULL) == SPEC_OK);
        rig_background(rig);
        CHECK(w, actor_caps(&w->actor).host_bytes_used == 0);
        CHECK(w, actor_caps(&w->actor).host_bytes_kept == 0);
    }
    world_done(&w->world);
}

static void run(uint64_t seed, void *user)
{
    struct walk *sum = user, *w = calloc(1, sizeof(*w));
    char extra[512];
    assert_non_null(w);
    w->actor = actor_of(&w->world.rig, seed, 0, false);
    w->grows = seed % 6 == 1;
    w->has_sets = seed % 3 == 2;
    (void)snprintf(extra, sizeof(extra),
                   "\"lease_ns_max\": 0, \"segment_bytes\": \"8MiB\", "
                   "\"store\": {\"layout\": \"%s\"}, %s",
                   seed % 9 < 3 ? "split" : "paired",
                   w->has_sets ? SETS[seed % SET_COUNT] : WAYS[seed % WAY_COUNT]);
    w->world = (struct world){.matched = MATCHED, .group = 1 + seed % 3, .agree = 3};
    world_make(&w->world, true, extra, LAYERS, w->has_sets ? 1 : 2, w->has_sets ? 256 : 16,
               MATCHED);
    w->world.rig.op = seed % 2 == 0 ? "64KiB" : NULL;
    world_open_stored(&w->world);
    wait_for_quant(&w->world);
    rig_background(&w->world.rig);
    if (seed % 2 == 0)
        rig_reopen(&w->world.rig);
    if (seed % 5 == 0) {
        sc_plugin_evict_ask(w->world.rig.conn, NULL, 1);
        rig_background(&w->world.rig);
    }
    if (w->grows)
        assert_int_equal(sc_plugin_reset(w->world.rig.conn, NULL), SPEC_OK);
    for (; w->actor.step < STEPS; w->actor.step++)
        run_step(w);
    run_end(w);
    sum->loads += w->loads;
    sum->failed += w->failed;
    sum->staged += w->staged;
    sum->pending += w->pending;
    sum->rotten += w->rotten;
    sum->merged += w->merged;
    free(w);
}

static void any_order_of_calls_and_faults_is_right(void **state)
{
    (void)state;
    struct walk sum = {0};
    bool is_all = actor_seeds_run(42, run, &sum);
    print_message("loads %" PRIu64 " (failed %" PRIu64 "), staged %" PRIu64 ", pending %" PRIu64
                  ", rotten %" PRIu64 ", merged %" PRIu64 "\n",
                  sum.loads, sum.failed, sum.staged, sum.pending, sum.rotten, sum.merged);
    assert_true(!is_all || (sum.loads > 0 && sum.staged > 0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_order_of_calls_and_faults_is_right),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
