/* Reordering and the dual cache together, as presets have them, through the calls of the ABI: any
 * requests of prompts that share beginnings choose rows, guess ahead, load whole layers, store, and
 * stay open while rows are put in another order, tiers of a few slabs turn over, the evictor makes
 * room, time jumps, memory rots, reads fail, a reader follows, and all is closed and opened again.
 * On the simulated disk.
 *
 * Holds: every row that is delivered is the one that was computed for its position, K and V; no
 * load of the writer's fails but for what failed below it; what rotted in memory costs no prefix.
 *
 * Threads: the loop's. */
#include "store/cache/host_tier_slab.h"
#include "store/internal.h"
#include "tests/unit/plugin/select_fixture.h"

#include <inttypes.h>

#define PROMPTS  6u
#define REQUESTS 5u
#define LAYERS   3u
#define LONGEST  230u

struct open_request {
    spec_request request;
    uint32_t prompt, layer, rig; /* rig 1: the reader's */
    uint64_t matched;
    bool is_open, may_fail;
};

struct scene {
    struct rig rigs[2];
    struct world views[PROMPTS]; /* of each prompt, what select_fixture asks of it */
    struct open_request requests[REQUESTS];
    uint64_t seed, random;
    bool has_reader, has_rotted, has_failed, is_mild, is_roomy;
    uint64_t chosen, rows[SPEC_TIERS], failures, ordered;
};

static uint64_t below(struct scene *scene, uint64_t bound)
{
    scene->random = rig_mix(scene->random);
    return scene->random % bound;
}

/* ---- Requests -------------------------------------------------------------------------------- */

static void request_release(struct scene *scene, struct open_request *request)
{
    if (request->is_open)
        rig_release(&scene->rigs[request->rig], request->request);
    request->is_open = false;
}

static void release_all(struct scene *scene, uint32_t rig)
{
    for (uint32_t i = 0; i < REQUESTS; i++)
        if (scene->requests[i].rig == rig)
            request_release(scene, &scene->requests[i]);
}

static void request_open(struct scene *scene, struct open_request *request)
{
    struct spec_lookup_result result;
    request_release(scene, request);
    *request = (struct open_request){.prompt = (uint32_t)below(scene, PROMPTS),
                                     .rig = scene->has_reader && below(scene, 3) == 0,
                                     .may_fail = scene->has_failed};
    struct prompt prompt = scene->views[request->prompt].prompt;
    prompt.count -= FRESH_ROWS;
    if (below(scene, 4) == 0)
        prompt.count -= below(scene, prompt.count / 2);
    if (rig_try_lookup(&scene->rigs[request->rig], &prompt, 0, RIG_MAX, &result) != SPEC_OK)
        return;
    request->request = result.request;
    request->matched = result.matched_tokens;
    request->is_open = true;
}

/* The row of a head, where its position says. */
static void head_check(const struct scene *scene, const struct world *view, const struct area *area,
                       uint64_t row, uint64_t position, uint32_t layer, uint64_t head)
{
    const struct rig *rig = &scene->rigs[0];
    uint64_t element = sc_plugin_dtype_bytes(rig->dtype), d = rig->head_size;
    for (uint32_t part = 0; part < 2; part++)
        for (uint64_t i = 0; i < d; i++) {
            uint8_t bytes[8];
            const uint8_t *base = part == 0 ? area->memory.k_base : area->memory.v_base;
            world_put(bytes, rig->dtype, world_kv(view, position, layer, part, head, i));
            assert_memory_equal(base + row * rig_part_bytes(rig) + (head * d + i) * element, bytes,
                                element);
        }
}

static void request_failed(struct scene *scene, struct open_request *request, spec_status status,
                           const struct spec_error *error)
{
    bool is_rot = scene->has_rotted && status == SPEC_E_CORRUPT;
    scene->failures++;
    if (!request->may_fail && !scene->has_failed && !is_rot && request->rig == 0)
        fail_msg("seed %" PRIu64 ": a load of layer %" PRIu32 " fails: %" PRId32 ", %s",
                 scene->seed, request->layer, status, error->text);
    struct prompt prompt = scene->views[request->prompt].prompt;
    prompt.count = request->matched;
    if (is_rot && !scene->has_failed && scene->is_roomy) { /* it is there as before */
        struct spec_lookup_result result;
        if (rig_try_lookup(&scene->rigs[0], &prompt, 0, RIG_MAX, &result) == SPEC_OK) {
            assert_int_equal(result.matched_tokens, request->matched);
            rig_release(&scene->rigs[0], result.request);
        }
    }
    request_release(scene, request);
}

static void request_load(struct scene *scene, struct open_request *request)
{
    if (!request->is_open || request->matched == 0)
        return;
    struct rig *rig = &scene->rigs[request->rig];
    struct world *view = &scene->views[request->prompt];
    view->matched = request->matched;
    uint32_t layer = request->layer, positions[2 * LONGEST * 4];
    struct area area = rig_area(rig, request->matched);
    struct pass pass = world_pass(view, layer, rig->dtype);
    struct spec_error error = {.struct_size = sizeof(error)};
    uint64_t how = below(scene, 6);
    const struct spec_select select = {.struct_size = sizeof(select),
                                       .given = SPEC_SELECT_BUDGET | SPEC_SELECT_METRIC,
                                       .budget = SPEC_BUDGET_COUNT,
                                       .metric = SPEC_METRIC_RANDOM,
                                       .count = how == 0 ? request->matched
                                                         : 1 + below(scene, request->matched)};
    struct spec_important item = {.struct_size = sizeof(item),
                                  .request = request->request,
                                  .layer = layer,
                                  .queries = &pass.q,
                                  .new_keys = &pass.fresh.memory,
                                  .destination = &area.memory,
                                  .positions = positions,
                                  .position_capacity = sizeof(positions) / sizeof(positions[0]),
                                  .select = how < 2 ? &select : NULL};
    if (below(scene, 2) == 0)
        (void)sc_plugin_begin_layer(rig->conn, &request->request, 1, layer, NULL);
    spec_status status = sc_plugin_get_important(rig->conn, &item, 1, &error);
    status = item.status != SPEC_OK ? item.status : status;
    bool is_fallback = (item.result_flags & SPEC_IMPORTANT_FALLBACK) != 0;
    for (uint64_t r = 0; status == SPEC_OK && r < item.row_count; r++)
        for (uint64_t head = 0; head < rig->heads; head++) {
            uint64_t position = positions[is_fallback ? head * item.row_count + r : r];
            assert_true(position < request->matched);
            head_check(scene, view, &area, r, position, layer, head);
        }
    for (uint32_t tier = 0; status == SPEC_OK && tier < SPEC_TIERS; tier++)
        scene->rows[tier] += item.tier_rows[tier];
    scene->chosen += status == SPEC_OK && item.row_count < request->matched;
    if (status == SPEC_OK && layer + 1 < LAYERS && below(scene, 2) == 0) {
        struct pass hint = world_pass(view, layer + 1, rig->dtype);
        (void)sc_plugin_prefetch_next(rig->conn, request->request, layer, &hint.q, NULL);
        pass_free(&hint);
    }
    rig_area_free(&area);
    pass_free(&pass);
    if (status != SPEC_OK) {
        request_failed(scene, request, status, &error);
        return;
    }
    request->layer = layer + 1;
    if (request->layer == LAYERS)
        request_release(scene, request);
}

/* What is missing of a prompt. */
static void request_store(struct scene *scene, struct open_request *request)
{
    const struct world *view = &scene->views[request->prompt];
    uint64_t end = view->prompt.count - FRESH_ROWS;
    spec_ticket ticket = 0;
    spec_status status = SPEC_OK;
    struct rig *rig = &scene->rigs[0];
    if (!request->is_open || request->rig != 0 || request->matched >= end)
        return;
    for (uint32_t layer = 0; layer < LAYERS && status == SPEC_OK; layer++) {
        struct area area = world_area(view, request->matched, end - request->matched, layer);
        struct spec_store_params params = rig_store_params(
            request->request, layer, request->matched, end - request->matched, &area.memory);
        status = sc_plugin_store(rig->conn, &params, 1, &ticket, NULL);
        rig_area_free(&area);
    }
    if (status == SPEC_OK)
        (void)rig_wait(rig, ticket);
    request_release(scene, request);
}

/* ---- Meanwhile ------------------------------------------------------------------------------- */

static void faults_off(struct scene *scene)
{
    sc_io_sim_fault_nth(scene->rigs[0].disk, SC_SIM_READ_EIO, INT64_MAX);
    sc_io_sim_fault_nth(scene->rigs[0].disk, SC_SIM_FLIP, INT64_MAX);
}

static void fault_on(struct scene *scene)
{
    if (scene->is_mild)
        return;
    scene->has_failed = true;
    sc_io_sim_fault_nth(scene->rigs[0].disk, below(scene, 2) == 0 ? SC_SIM_READ_EIO : SC_SIM_FLIP,
                        below(scene, 10));
}

static void rot_some(struct scene *scene)
{
    struct sc_store *store = scene->rigs[0].conn->store;
    for (uint32_t tries = 0; tries < 60 && store->host != NULL; tries++) {
        uint64_t id = 1 + below(scene, store->table.piece_next);
        const struct sc_store_piece_entry *piece = sc_store_table_live(&store->table, id);
        if (piece == NULL)
            continue;
        uint32_t layer = (uint32_t)below(scene, LAYERS);
        const struct sc_store_range range = {.piece = id,
                                             .row_first = piece->skip,
                                             .row_count = (uint32_t)piece->row_count - piece->skip};
        const struct sc_store_extent_entry *extent =
            sc_store_table_extent(&store->table, piece->extent);
        struct sc_store_slab_where where;
        bool is_split = store->shape.layout == SC_STORE_SPLIT;
        uint32_t wanted = is_split ? (uint32_t)below(scene, 3) : SC_STORE_WANT_ROWS;
        struct sc_host_slab in_host_tier = sc_host_slab_get(store, layer, &range, wanted);
        uint64_t rows = range.row_count;
        sc_store_slab_where(&store->shape, extent, layer, piece, &where);
        if (in_host_tier.slab == NULL && where.slots != NULL) {
            const struct sc_host_chunk chunk = sc_host_chunk_of(
                store, layer, where.slots_copy, extent->row_count, where.slots[piece->extent_row],
                wanted);
            in_host_tier = sc_host_chunk_get(store, &chunk);
            rows = chunk.end - chunk.first;
        }
        if (in_host_tier.slab == NULL)
            continue;
        in_host_tier.bytes[in_host_tier.row_at + below(scene, rows * store->shape.k_row_bytes)] ^=
            32;
        sc_host_tier_unpin(store->host, in_host_tier.slab);
        scene->has_rotted = true;
        return;
    }
}

static void views_follow(struct scene *scene)
{
    for (uint32_t i = 0; i < PROMPTS; i++)
        scene->views[i].rig = scene->rigs[0];
}

static void reopen(struct scene *scene)
{
    faults_off(scene);
    release_all(scene, 0);
    release_all(scene, 1);
    if (scene->has_reader)
        rig_leave(&scene->rigs[1]);
    scene->ordered += rig_store_stats(&scene->rigs[0]).permuted_pieces;
    rig_reopen(&scene->rigs[0]);
    if (scene->has_reader) {
        rig_open_beside(&scene->rigs[1], &scene->rigs[0], SPEC_ROLE_READER, 0);
    }
    scene->has_rotted = false;
    views_follow(scene);
}

static void maintain(struct scene *scene, uint32_t flags)
{
    (void)rig_maintain(&scene->rigs[0], flags);
}

static void step(struct scene *scene)
{
    struct open_request *request = &scene->requests[below(scene, REQUESTS)];
    switch (below(scene, 20)) {
    case 0:
        maintain(scene, SPEC_MAINTAIN_REORDER);
        break;
    case 1:
        maintain(scene, below(scene, 2) == 0 ? SPEC_MAINTAIN_EVICT : SPEC_MAINTAIN_CHECKPOINT);
        break;
    case 2:
        rig_pass_ns(&scene->rigs[below(scene, 1 + scene->has_reader)], below(scene, 50000000));
        break;
    case 3:
        if (below(scene, 4) == 0) /* leases, intervals: hours, now and then */
            rig_pass_ns(&scene->rigs[0],
                        below(scene, 8) == 0 ? UINT64_C(7200000000000) : UINT64_C(40000000000));
        break;
    case 4:
        if (below(scene, 6) == 0)
            fault_on(scene);
        else
            faults_off(scene);
        break;
    case 5:
        if (below(scene, 4) == 0)
            rot_some(scene);
        break;
    case 6:
        if (below(scene, 15) == 0)
            reopen(scene);
        break;
    case 7:
        if (below(scene, 40) == 0) {
            release_all(scene, 0);
            (void)sc_plugin_reset(scene->rigs[0].conn, NULL);
        }
        break;
    case 8:
        request_store(scene, request);
        break;
    case 10:
        if (below(scene, 4) == 0)
            request_release(scene, request);
        break;
    default:
        if (!request->is_open)
            request_open(scene, request);
        request_load(scene, request);
        break;
    }
    if (scene->has_reader) /* the device is not the other's while nobody steps it */
        for (uint32_t i = 0; i < 2; i++)
            rig_pass_ns(&scene->rigs[i], 20000000);
}

static const char *const PRESETS[] = {"impress", "spec",       "as-h2o-lru",      "spi",
                                      "impress", "spec+range", "attention-store", "impress+range",
                                      "spec",    "impress-itf"};

static void run(uint64_t seed, uint64_t steps, struct scene *sum)
{
    static struct scene scene;
    static const char *const sizes[] = {"4KiB", "64KiB", "256KiB", "1MiB", "16MiB"};
    static char extra[700];
    memset(&scene, 0, sizeof(scene));
    scene.seed = seed;
    scene.random = rig_mix(seed * 77);
    scene.is_mild = below(&scene, 3) != 0;
    scene.is_roomy = below(&scene, 2) == 0;
    scene.has_reader = below(&scene, 3) == 0;
    bool is_large = below(&scene, 3) == 0;
    (void)snprintf(extra, sizeof(extra),
                   "\"preset\": \"%s\", \"select\": {\"retain_ppm\": 250000, \"min_tokens\": 0, "
                   "\"min_share_ppm\": 0}, \"chunk_tokens\": %d, \"disk_bytes\": \"%s\", "
                   "\"segment_bytes\": \"4MiB\", \"host_bytes\": \"%s\", \"upper_bytes\": \"%s\", "
                   "\"lease_ns_max\": 10000000000, \"maintain\": {\"bytes_per_s\": 0}, "
                   "\"reorder\": {\"interval_s\": 5, \"scope\": \"%s\"}",
                   PRESETS[seed % (sizeof(PRESETS) / sizeof(PRESETS[0]))],
                   below(&scene, 2) == 0 ? 16 : 64, scene.is_roomy ? "256MiB" : "16MiB",
                   sizes[below(&scene, 5)], sizes[below(&scene, 5)],
                   below(&scene, 2) == 0 ? "span" : "node");
    rig_init(&scene.rigs[0], true, extra);
    rig_shape(&scene.rigs[0], LAYERS, 2, is_large ? 256 : 16, SPEC_DTYPE_F16);
    scene.rigs[0].query_group = 2;
    if (below(&scene, 2) == 0)
        scene.rigs[0].op = "64KiB";
    rig_open(&scene.rigs[0]);
    if (scene.has_reader) {
        rig_open_beside(&scene.rigs[1], &scene.rigs[0], SPEC_ROLE_READER, 0);
    }
    for (uint64_t p = 0; p < PROMPTS; p++)
        scene.views[p] = (struct world){
            .prompt = rig_prompt(seed, 64 + 16 * (p / 2), p, 70 + p * 30 + FRESH_ROWS),
            .group = 2,
            .agree = 4};
    views_follow(&scene);
    for (uint64_t i = 0; i < steps; i++)
        step(&scene);
    scene.ordered += rig_store_stats(&scene.rigs[0]).permuted_pieces;
    for (uint32_t tier = 0; tier < SPEC_TIERS; tier++)
        sum->rows[tier] += scene.rows[tier];
    sum->chosen += scene.chosen;
    sum->failures += scene.failures;
    sum->ordered += scene.ordered;
    faults_off(&scene);
    release_all(&scene, 0);
    release_all(&scene, 1);
    if (scene.has_reader)
        rig_leave(&scene.rigs[1]);
    assert_int_equal(atomic_load(&scene.rigs[0].conn->poison.broken), 0);
    for (uint32_t p = 0; p < PROMPTS; p++)
        rig_prompt_free(&scene.views[p].prompt);
    rig_done(&scene.rigs[0]);
}

static uint64_t number_of(const char *name, uint64_t usual)
{
    const char *text = getenv(name);
    return text != NULL ? strtoull(text, NULL, 10) : usual;
}

/* SC_SEED=N SC_SEEDS=N SC_STEPS=N: others, or more. */
static void what_is_delivered_is_what_was_computed(void **state)
{
    (void)state;
    static struct scene sum;
    uint64_t seed = number_of("SC_SEED", 1), end = seed + number_of("SC_SEEDS", 8);
    for (; seed < end; seed++) {
        print_message("seed %" PRIu64 "\n", seed);
        run(seed, number_of("SC_STEPS", 200), &sum);
    }
    print_message("rows above %" PRIu64 ", of host memory %" PRIu64 ", of the disk %" PRIu64
                  "; chosen loads %" PRIu64 ", failures %" PRIu64 ", ordered pieces %" PRIu64 "\n",
                  sum.rows[SPEC_TIER_UPPER], sum.rows[SPEC_TIER_HOST], sum.rows[SPEC_TIER_DISK],
                  sum.chosen, sum.failures, sum.ordered);
    assert_true(sum.rows[SPEC_TIER_UPPER] > 0 && sum.rows[SPEC_TIER_DISK] > 0);
    assert_true(sum.chosen > 0 && sum.ordered > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(what_is_delivered_is_what_was_computed)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
