/* Threads that look up, stage, load, store and release where a configuration delivers codes, beside
 * the writer, the evictor and the builder of codes.
 *
 *   thread   lookup -> staged or not, waited for or not -> layers loaded, also while the stage of
 *            the same request runs -> what is missing is stored -> release
 *   between  resets, in every other run; what host memory has is forgotten
 *
 * Holds: every row that is delivered is the right one, exact or as its codes (of free
 * widths: as near as they say, whatever the table that their block has); a ticket ends; host
 * memory keeps to its caps. A failure prints its seed; SC_SEED=N runs that seed alone; what threads
 * do follows from it, when they do it does not.
 *
 * Threads: eight, and the connector's. */
#include "store/cache/host_tier_slab.h"
#include "tests/unit/plugin/layered_fixture.h"
#include "tests/unit/plugin/stage_actor.h"
#include "tests/unit/threads.h"

#include <inttypes.h>

#define SEEDS     7u
#define WORKERS   8u
#define ROUNDS    30u /* of a thread */
#define PROMPTS   5u  /* whose rows are the same, and whose tokens are not */
#define MATCHED   200u
#define LAYERS    4u
#define ROW_BYTES 64u /* of K or V */
#define CHANNELS  (ROW_BYTES / 2)
#define MS        UINT64_C(1000000)

static const char *const WAYS[] = {
    "\"preset\": \"layered-uniform\", \"host_bytes\": \"1MiB\"",
    "\"preset\": \"int8\", \"host_bytes\": \"192KiB\"",
    "\"preset\": \"layered-uniform\", \"host_bytes\": \"160KiB\", \"select\": {\"dense_layers\": "
    "1}",
    "\"preset\": \"int8\", \"host_bytes\": \"64MiB\", \"select\": {\"dense_layers\": 2}",
    "\"preset\": \"layered-uniform\", \"layered\": {\"bit_allocation\": \"per_channel\"}",
    "\"preset\": \"layered-uniform\", \"host_bytes\": \"160KiB\", \"select\": {\"dense_layers\": "
    "1}, "
    "\"layered\": {\"bit_allocation\": \"per_channel\", \"bits_k\": 5.5, \"bits_v\": 3}",
    "\"preset\": \"layered-uniform\", \"host_bytes\": \"192KiB\", \"read\": {\"planner\": "
    "\"chunk\"}, "
    "\"layered\": {\"bit_allocation\": \"per_channel\"}",
};

struct races {
    uint64_t seed;
    struct world world; /* its prompt is the first */
    struct prompt prompts[PROMPTS];
    bool is_free;
    uint8_t rows[2][LAYERS][2][MATCHED][ROW_BYTES]; /* [1]: as stored, else what codes stand for */
    float span[LAYERS][2][(MATCHED + 63) / 64][CHANNELS]; /* of a chunk's values; free widths */
    _Atomic uint64_t loads, stale, gone, staged, stored;
};

struct worker {
    struct races *races;
    struct stage_actor actor;
    struct world world; /* a copy of its own: what memory it counts, the connector counts as well */
};

static uint64_t draw(struct worker *worker, uint64_t below)
{
    return actor_draw(&worker->actor, below);
}

#define COUNT(worker, member, n) (void)atomic_fetch_add(&(worker)->races->member, (n))

static void wrong(const struct worker *worker, const char *what, spec_status status)
{
    actor_wrong(&worker->actor, what, status);
}

static float half_value(const uint8_t *at)
{
    return (float)((int8_t)at[1] < 0 ? -1 : 1) *
           ldexpf((float)(((at[1] & 3) << 8 | at[0]) + ((at[1] & 0x7c) != 0 ? 1024 : 0)),
                  ((at[1] & 0x7c) != 0 ? (at[1] >> 2 & 31) : 1) - 25);
}

/* A row of free widths: within the span of its chunk. */
static bool is_near(const struct races *races, const struct shot *shot, uint64_t row, uint32_t part,
                    const uint8_t *at)
{
    uint32_t layer = shot->item.layer;
    const uint8_t *stored = races->rows[1][layer][part][row];
    for (uint64_t c = 0; c < CHANNELS; c++) {
        float value = half_value(at + 2 * c), right = half_value(stored + 2 * c);
        float span = races->span[layer][part][row / 64][c];
        float most = span + ldexpf(fabsf(right), -9) + ldexpf(span, -10);
        if (!(fabsf(value - right) <= most))
            return false;
    }
    return true;
}

/* Rows [0, matched), each as its bit says. */
static void rows_check(const struct worker *worker, const struct shot *shot, uint64_t matched)
{
    for (uint32_t part = 0; part < 2; part++)
        for (uint64_t j = 0; j < matched; j++) {
            const uint8_t *at = part == 0 ? shot->area.memory.k_base : shot->area.memory.v_base;
            const uint8_t *right =
                worker->races->rows[is_exact(shot, j)][shot->item.layer][part][j];
            bool is_right = memcmp(at + j * ROW_BYTES, right, ROW_BYTES) == 0;
            if (worker->races->is_free && !is_exact(shot, j))
                is_right = is_near(worker->races, shot, j, part, at + j * ROW_BYTES);
            if (!is_right)
                wrong(worker, "a row that is not what it should be", SPEC_OK);
        }
}

/* false: the request is void. */
static bool load(struct worker *worker, spec_request request, uint64_t matched, uint32_t layer)
{
    struct world *world = &worker->world;
    struct spec_error error = {.struct_size = sizeof(error)};
    struct shot *shot = calloc(1, sizeof(*shot));
    world->matched = matched;
    shot_make(shot, world, request, layer, 0, (uint32_t)draw(worker, 300000));
    if (draw(worker, 2) == 0)
        shot->select.given = 0;
    spec_status status = sc_plugin_get_important(world->rig.conn, &shot->item, 1, &error);
    status = shot->item.status != SPEC_OK ? shot->item.status : status;
    if (status == SPEC_OK)
        rows_check(worker, shot, matched);
    else if (status != SPEC_E_STALE && status != SPEC_E_CORRUPT && status != SPEC_E_BUSY)
        wrong(worker, "a load that fails", status);
    COUNT(worker, loads, status == SPEC_OK);
    COUNT(worker, stale, status == SPEC_E_STALE);
    COUNT(worker, gone, status == SPEC_E_CORRUPT);
    shot_free(shot);
    free(shot);
    return status == SPEC_OK;
}

/* Returns the ticket; 0: none. */
static spec_ticket stage(struct worker *worker, spec_request request)
{
    static const uint64_t DEADLINES[ACTOR_DEADLINES] = {0, 1, MS / 10, MS, 50 * MS, 0};
    spec_ticket ticket = 0;
    (void)actor_stage(&worker->actor, request, DEADLINES, draw(worker, 8) > 0 ? &ticket : NULL);
    return ticket;
}

static void stage_end(struct worker *worker, spec_ticket ticket)
{
    spec_status ended = actor_ticket_end(&worker->actor, ticket);
    if (ended != SPEC_OK && ended != SPEC_E_NO_SPACE && ended != SPEC_E_TIMEOUT &&
        ended != SPEC_E_DROPPED)
        wrong(worker, "how a stage ended", ended);
    COUNT(worker, staged, ended == SPEC_OK || ended == SPEC_E_NO_SPACE);
}

/* What lookup did not promise. */
static void store(struct worker *worker, spec_request request, uint64_t from)
{
    const struct world *world = &worker->races->world;
    spec_ticket ticket = 0;
    spec_status status = from % 64 == 0 ? SPEC_OK : SPEC_E_INVALID;
    for (uint32_t layer = 0; layer < LAYERS && status == SPEC_OK && from < MATCHED; layer++) {
        struct area area = world_area(world, from, MATCHED - from, layer);
        struct spec_store_params params =
            rig_store_params(request, layer, from, MATCHED - from, &area.memory);
        status = sc_plugin_store(world->rig.conn, &params, 1, &ticket, NULL);
        rig_area_free(&area);
    }
    if (status == SPEC_OK && ticket != 0)
        COUNT(worker, stored, actor_ticket_end(&worker->actor, ticket) == SPEC_OK);
}

static void forget_all(struct races *races)
{
    struct sc_store *store = races->world.rig.conn->store;
    for (uint64_t id = 1; id < sc_store_piece_next(store); id++) {
        const struct sc_store_piece_entry *piece = sc_store_table_live(&store->table, id);
        if (piece != NULL)
            sc_host_slab_piece_gone(store, piece);
    }
}

static void run_round(struct worker *worker)
{
    struct races *races = worker->races;
    struct rig *rig = &races->world.rig;
    struct prompt prompt = races->prompts[draw(worker, PROMPTS)];
    struct spec_lookup_result found;
    spec_ticket ticket = 0;
    prompt.count = MATCHED;
    if (races->seed % 2 == 1 && draw(worker, 100) == 0)
        (void)sc_plugin_reset(rig->conn, NULL);
    if (draw(worker, races->is_free ? 2 : 20) == 0) /* it gives rows exactly */
        forget_all(races);
    if (draw(worker, 20) == 0)
        sc_plugin_evict_ask(rig->conn, NULL, 1);
    if (rig_try_lookup(rig, &prompt, 0, RIG_MAX, &found) != SPEC_OK || found.request == 0)
        return;
    bool is_hit = found.matched_tokens > 0;
    if (is_hit && rig->conn->config.host_bytes > 0 && draw(worker, 3) > 0)
        ticket = stage(worker, found.request);
    if (ticket != 0 && draw(worker, 2) == 0) {
        stage_end(worker, ticket);
        ticket = 0;
    }
    for (uint32_t layer = (uint32_t)draw(worker, LAYERS); layer < LAYERS && is_hit; layer++)
        if (draw(worker, 6) == 0 || !load(worker, found.request, found.matched_tokens, layer))
            break;
    store(worker, found.request, found.matched_tokens);
    rig_release(rig, found.request);
    if (ticket != 0)
        stage_end(worker, ticket);
}

static void *work(void *user)
{
    struct worker *worker = user;
    for (; worker->actor.step < ROUNDS; worker->actor.step++) {
        run_round(worker);
        (void)actor_caps(&worker->actor);
    }
    return NULL;
}

static void rows_make(struct races *races)
{
    const struct world *world = &races->world;
    const struct sc_config *config = &world->rig.conn->config;
    assert_int_equal(rig_part_bytes(&world->rig), ROW_BYTES);
    races->is_free = config->bit_allocation == SC_BITS_PER_CHANNEL;
    for (uint32_t layer = 0; layer < LAYERS; layer++)
        for (uint32_t part = 0; part < 2; part++) {
            uint32_t bits = (uint32_t)(part == 0 ? config->quarters_k / 4 : config->quarters_v / 4);
            struct slab slab = {.row_count = 0};
            for (uint64_t j = 0; j < MATCHED; j++) {
                stored_row(world, j, layer, part, races->rows[1][layer][part][j]);
                if (races->is_free)
                    continue;
                decoded(world, j, layer, part, bits, &slab, world->rig.dtype,
                        races->rows[0][layer][part][j]);
            }
        }
}

/* Each channel's, over a chunk's rows, as all of our prompts have them. */
static void spans_make(struct races *races)
{
    for (uint64_t n = 0; n < (uint64_t)LAYERS * 2 * MATCHED * CHANNELS; n++) {
        uint64_t c = n % CHANNELS, j = n / CHANNELS % MATCHED, part = n / CHANNELS / MATCHED % 2;
        uint64_t layer = n / CHANNELS / MATCHED / 2, first = j / 64 * 64;
        float own = half_value(races->rows[1][layer][part][j] + 2 * c);
        for (uint64_t i = first; i < first + 64 && i < MATCHED; i++) {
            float away = fabsf(half_value(races->rows[1][layer][part][i] + 2 * c) - own);
            float *span = &races->span[layer][part][first / 64][c];
            *span = fmaxf(*span, away);
        }
    }
}

/* When nobody is beside: what is stored gets its codes, and is delivered by them, whatever threads
 * left. */
static void afterwards(struct worker *worker)
{
    struct races *races = worker->races;
    struct world *world = &races->world;
    struct prompt prompt = races->prompts[0];
    struct spec_lookup_result found;
    prompt.count = MATCHED;
    assert_int_equal(sc_plugin_reset(world->rig.conn, NULL), SPEC_OK);
    found = rig_lookup(&world->rig, &prompt);
    store(worker, found.request, found.matched_tokens);
    rig_release(&world->rig, found.request);
    wait_for_quant(world);
    forget_all(races);
    found = rig_lookup(&world->rig, &prompt);
    for (uint32_t layer = 0; layer < LAYERS; layer++)
        assert_true(load(worker, found.request, found.matched_tokens, layer));
    rig_release(&world->rig, found.request);
}

static void run(uint64_t seed, void *user)
{
    struct races *sum = user, *races = calloc(1, sizeof(*races));
    struct worker workers[WORKERS];
    char extra[640];
    assert_non_null(races);
    races->seed = seed;
    (void)snprintf(extra, sizeof(extra),
                   "\"disk_bytes\": \"%s\", \"segment_bytes\": \"1MiB\", \"max_requests\": 20, "
                   "\"lease_ns_max\": 0, \"store\": {\"layout\": \"%s\"}, %s",
                   "5MiB", seed % 3 == 0 ? "split" : "paired",
                   WAYS[seed % (sizeof(WAYS) / sizeof(WAYS[0]))]);
    races->world = (struct world){.matched = MATCHED, .group = 2, .agree = 3};
    rig_init(&races->world.rig, false, extra);
    rig_shape(&races->world.rig, LAYERS, 2, 16, SPEC_DTYPE_F16);
    races->world.rig.query_group = 2;
    struct world plain = races->world; /* as long as no thread but this one counts */
    rig_open(&races->world.rig);
    for (uint64_t p = 0; p < PROMPTS; p++)
        races->prompts[p] = rig_prompt(900 + p / 2, 64, p, MATCHED + FRESH_ROWS);
    races->world.prompt = races->prompts[0];
    rows_make(races);
    spans_make(races);
    plain.rig.conn = races->world.rig.conn;
    plain.prompt = races->prompts[0];
    for (uint64_t w = 0; w < WORKERS; w++)
        workers[w] = (struct worker){
            .races = races, .actor = actor_of(&races->world.rig, seed, w, true), .world = plain};
    threads_run(work, workers, sizeof(workers[0]), WORKERS);
    if (races->is_free)
        afterwards(&workers[0]);
    assert_int_equal(atomic_load(&races->world.rig.conn->poison.broken), 0);
    sum->loads += races->loads;
    sum->stale += races->stale;
    sum->gone += races->gone;
    sum->staged += races->staged;
    sum->stored += races->stored;
    for (uint64_t p = 1; p < PROMPTS; p++)
        rig_prompt_free(&races->prompts[p]);
    world_done(&races->world);
    free(races);
}

static void eight_threads_beside_all_that_changes_codes(void **state)
{
    (void)state;
    struct races sum = {0};
    bool is_all = actor_seeds_run(SEEDS, run, &sum);
    print_message("loads %" PRIu64 ", stale %" PRIu64 ", gone %" PRIu64 ", staged %" PRIu64
                  ", stored %" PRIu64 "\n",
                  sum.loads, sum.stale, sum.gone, sum.staged, sum.stored);
    assert_true(sum.loads > 0 && sum.stored > 0);
    assert_true(!is_all || sum.staged > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(eight_threads_beside_all_that_changes_codes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
