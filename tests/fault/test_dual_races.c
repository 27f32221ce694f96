/* Threads that load chosen rows and whole layers through the dual cache, whose tiers have room for
 * a few slabs each, beside the writer, the evictor, maintain and resets: slabs rise, sink and go
 * under those that read them.
 *
 *   thread   lookup -> layers, all rows of them or some -> what is missing is stored -> release
 *   between  maintain; resets, in every other run
 *
 * Holds: every row that is delivered is the right one, where its position says; no load fails but
 * for a reset; neither tier takes more than its cap. A failure prints its seed; SC_SEED=N runs that
 * seed alone; what threads do follows from it, when they do it does not.
 *
 * Threads: eight, and the connector's. */
#include "tests/unit/plugin/stage_actor.h"
#include "tests/unit/threads.h"

#include <inttypes.h>

#define SEEDS   6u
#define WORKERS 8u
#define ROUNDS  40u /* of a thread */
#define PROMPTS 12u
#define TOKENS  160u
#define SHARED  64u /* of four prompts each */
#define LAYERS  3u
#define PART    256u /* bytes of K or V of a row */

static const char *const WAYS[] = {
    "\"host_bytes\": \"128KiB\", \"upper_bytes\": \"64KiB\"",
    "\"host_bytes\": 0, \"upper_bytes\": \"96KiB\", \"upper_policy\": \"lru\"",
    ("\"host_bytes\": \"96KiB\", \"upper_bytes\": \"128KiB\", \"host_policy\": \"lfu\", "
     "\"upper_policy\": \"score\""),
};

struct races {
    uint64_t seed;
    struct rig rig;
    struct prompt prompts[PROMPTS];
    _Atomic uint64_t by_tier[SPEC_TIERS], chosen, stale, stored, ordered, again;
};

struct worker {
    struct races *races;
    struct stage_actor actor;
};

static uint64_t draw(struct worker *worker, uint64_t below)
{
    return actor_draw(&worker->actor, below);
}

/* The row at each position is that of the prompt. */
static bool is_right(const struct races *races, const struct area *area,
                     const struct prompt *prompt, const uint32_t *positions, uint64_t count,
                     uint32_t layer)
{
    uint8_t row[2][PART];
    for (uint64_t i = 0; i < count; i++) {
        for (uint32_t part = 0; part < 2; part++)
            rig_row(&races->rig, prompt, positions[i], layer, part, row[part]);
        if (memcmp((const uint8_t *)area->memory.k_base + i * PART, row[0], PART) != 0 ||
            memcmp((const uint8_t *)area->memory.v_base + i * PART, row[1], PART) != 0 ||
            (i > 0 && positions[i] <= positions[i - 1]))
            return false;
    }
    return true;
}

/* false: the request is of before a reset. */
static bool load(struct worker *worker, spec_request request, const struct prompt *prompt,
                 uint64_t matched, uint32_t layer)
{
    struct races *races = worker->races;
    struct area area = rig_area(&races->rig, matched + 1);
    uint32_t positions[TOKENS];
    bool is_whole = draw(worker, 4) == 0;
    const struct spec_select select = {.struct_size = sizeof(select),
                                       .given = SPEC_SELECT_BUDGET | SPEC_SELECT_METRIC,
                                       .budget = SPEC_BUDGET_COUNT,
                                       .metric = SPEC_METRIC_RANDOM,
                                       .count = is_whole ? matched : 1 + draw(worker, matched)};
    struct spec_important item = {.struct_size = sizeof(item),
                                  .request = request,
                                  .layer = layer,
                                  .destination = &area.memory,
                                  .positions = positions,
                                  .position_capacity = TOKENS,
                                  .select = &select};
    spec_status status = sc_plugin_get_important(races->rig.conn, &item, 1, NULL);
    status = item.status != SPEC_OK ? item.status : status;
    bool is_stale = status == SPEC_E_STALE && races->seed % 2 == 1;
    if (status != SPEC_OK && !is_stale)
        actor_wrong(&worker->actor, "a load that fails", status);
    if (!is_stale && (item.row_count < select.count ||
                      !is_right(races, &area, prompt, positions, item.row_count, layer)))
        actor_wrong(&worker->actor, "a row that is not what it should be", status);
    for (uint32_t tier = 0; tier < SPEC_TIERS && !is_stale; tier++)
        races->by_tier[tier] += item.tier_rows[tier];
    races->chosen += !is_stale && item.row_count < matched;
    races->stale += is_stale;
    rig_area_free(&area);
    (void)actor_caps(&worker->actor);
    return !is_stale;
}

static void store(struct worker *worker, spec_request request, const struct prompt *prompt,
                  uint64_t from)
{
    spec_ticket ticket = 0;
    spec_status status = SPEC_OK;
    for (uint32_t layer = 0; layer < LAYERS && status == SPEC_OK && from < prompt->count; layer++)
        status = rig_store_layer(&worker->races->rig, request, prompt, from, prompt->count - from,
                                 layer, &ticket);
    if (status == SPEC_OK && ticket != 0)
        worker->races->stored += actor_ticket_end(&worker->actor, ticket) == SPEC_OK;
}

/* As 16 requests would leave it that want other rows. */
static void importance_move(struct worker *worker, spec_request handle)
{
    spec_connector *conn = worker->races->rig.conn;
    const struct sc_plugin_request *request = sc_plugin_request_find(conn, handle);
    float sums[TOKENS];
    if (request == NULL)
        return; /* a reset has made it stale */
    for (uint32_t i = 0; i < 16; i++)
        for (uint32_t layer = 0; layer < LAYERS; layer++) {
            const struct sc_baseline_sample sample = {.ranges = request->ranges,
                                                      .range_count = request->range_count,
                                                      .layer = layer,
                                                      .sums = sums};
            for (uint32_t row = 0; i == 0 && row < TOKENS; row++)
                sums[row] = (float)(1 + draw(worker, 1000));
            (void)sc_baseline_averages_note(conn->baseline.averages, &sample);
        }
}

static void run_round(struct worker *worker)
{
    struct races *races = worker->races;
    const struct prompt *prompt = &races->prompts[draw(worker, PROMPTS)];
    static const uint32_t flags[] = {SPEC_MAINTAIN_EVICT, SPEC_MAINTAIN_CHECKPOINT,
                                     SPEC_MAINTAIN_REORDER};
    const struct spec_maintain_params maintain = {.struct_size = sizeof(maintain),
                                                  .flags = flags[draw(worker, 3)]};
    struct spec_lookup_result found;
    if (races->seed % 2 == 1 && draw(worker, 60) == 0)
        (void)sc_plugin_reset(races->rig.conn, NULL);
    if (draw(worker, 12) == 0)
        (void)sc_plugin_maintain(races->rig.conn, &maintain, NULL);
    if (rig_try_lookup(&races->rig, prompt, 0, RIG_MAX, &found) != SPEC_OK)
        return; /* all requests are open */
    if (found.matched_tokens > 0 && draw(worker, 3) == 0)
        importance_move(worker, found.request);
    uint32_t first = draw(worker, 3) == 0 ? (uint32_t)draw(worker, LAYERS) : 0;
    for (uint32_t layer = first; found.matched_tokens > 0 && layer < LAYERS; layer++)
        if (!load(worker, found.request, prompt, found.matched_tokens, layer))
            break;
    store(worker, found.request, prompt, found.matched_tokens);
    rig_release(&races->rig, found.request);
}

static void *work(void *user)
{
    struct worker *worker = user;
    for (; worker->actor.step < ROUNDS; worker->actor.step++)
        run_round(worker);
    return NULL;
}

/* Every live piece's averages, as two requests would have left them. */
static void averages_put(struct rig *rig)
{
    static uint16_t codes[LAYERS * 256];
    for (uint64_t id = 1; id < rig->conn->store->table.piece_next; id++) {
        struct sc_store_piece_place place;
        if (!sc_store_piece_place(rig->conn->store, id, &place))
            continue;
        for (uint64_t i = 0; i < LAYERS * (uint64_t)place.row_count; i++)
            codes[i] = (uint16_t)rig_mix(id * 1000 + i);
        const struct sc_store_average average = {
            .piece = id, .requests = 2, .row_count = place.row_count, .codes = codes};
        assert_int_equal(sc_store_average_put(rig->conn->store, &average, 1, &rig->error), SPEC_OK);
    }
}

static void run(uint64_t seed, void *user)
{
    struct races *sum = user, *races = calloc(1, sizeof(*races));
    struct worker workers[WORKERS];
    char extra[640];
    assert_non_null(races);
    races->seed = seed;
    (void)snprintf(extra, sizeof(extra),
                   "\"preset\": \"impress\", \"select\": {\"identify\": \"static\"}, "
                   "\"store\": {\"pruned\": \"no\"}, \"chunk_tokens\": 16, "
                   "\"disk_bytes\": \"%s\", \"segment_bytes\": \"1MiB\", \"max_requests\": 20, "
                   "\"lease_ns_max\": 0, \"maintain\": {\"bytes_per_s\": 0}, "
                   "\"reorder\": {\"repeat_ppm\": 100000}, %s",
                   seed % 3 == 0 ? "5MiB" : "16MiB", WAYS[seed % (sizeof(WAYS) / sizeof(WAYS[0]))]);
    rig_begin_shape(&races->rig, false, extra, LAYERS, 4, 32, SPEC_DTYPE_F16);
    for (uint64_t p = 0; p < PROMPTS; p++)
        races->prompts[p] = rig_prompt(900 + p / 4, SHARED, p, TOKENS - 7 * (p % 4));
    for (uint64_t p = 0; p < PROMPTS && seed % 3 != 0; p++)
        assert_int_equal(rig_fill(&races->rig, &races->prompts[p]), SPEC_OK);
    averages_put(&races->rig);
    rig_reopen(&races->rig); /* which reads them */
    for (uint64_t w = 0; w < WORKERS; w++)
        workers[w] = (struct worker){.races = races, .actor = actor_of(&races->rig, seed, w, true)};
    threads_run(work, workers, sizeof(workers[0]), WORKERS);
    assert_int_equal(atomic_load(&races->rig.conn->poison.broken), 0);
    struct sc_store_stats stats = rig_store_stats(&races->rig);
    assert_true(stats.host_evictions > 0 && stats.upper_promoted > 0);
    assert_true(stats.host_bytes_max == 0 || stats.upper_demoted > 0);
    for (uint32_t tier = 0; tier < SPEC_TIERS; tier++)
        sum->by_tier[tier] += races->by_tier[tier];
    sum->ordered += stats.permuted_pieces;
    sum->again += stats.permuted_again;
    sum->chosen += races->chosen;
    sum->stale += races->stale;
    sum->stored += races->stored;
    rig_prompts_free_all(races->prompts, PROMPTS);
    rig_done(&races->rig);
    free(races);
}

static void eight_threads_beside_writer_evictor_and_maintain(void **state)
{
    (void)state;
    static struct races sum;
    (void)actor_seeds_run(SEEDS, run, &sum);
    print_message("rows above %" PRIu64 ", of host memory %" PRIu64 ", of the disk %" PRIu64
                  "; chosen loads %" PRIu64 ", stale %" PRIu64 ", stored %" PRIu64
                  ", ordered pieces %" PRIu64 ", again %" PRIu64 "\n",
                  sum.by_tier[SPEC_TIER_UPPER], sum.by_tier[SPEC_TIER_HOST],
                  sum.by_tier[SPEC_TIER_DISK], sum.chosen, sum.stale, sum.stored, sum.ordered,
                  sum.again);
    assert_true(sum.by_tier[SPEC_TIER_UPPER] > 0 && sum.by_tier[SPEC_TIER_DISK] > 0);
    assert_true(sum.chosen > 0 && sum.stored > 0 && sum.ordered > 0 && sum.again > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(eight_threads_beside_writer_evictor_and_maintain),
    };
    return cmocka_run_group_tests_name("dual races", tests, NULL, NULL);
}
