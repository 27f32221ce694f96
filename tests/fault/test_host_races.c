/* Sixteen threads that look up, stage, load, store and release beside the writer, the evictor and
 * the stager of one connector, whose disk and host memory are too small for what they have.
 *
 *   thread   lookup, or a peek -> PENDING: later; HIT: staged or not, waited for or not -> all
 *            layers loaded, or one, or none -> what is missing is stored -> release
 *   between  resets, in every other run
 *   caps     after every step: disk_bytes and host_bytes
 *
 * Holds: every row that is delivered is the right one; no load fails but for a reset; a ticket
 * ends; what is evicted, staged and kept never takes more than its cap. A failure prints its seed;
 * SC_SEED=N runs that seed alone; what threads do follows from it, when they do it does not.
 *
 * Threads: sixteen, and the connector's. */
#include "tests/unit/plugin/stage_actor.h"
#include "tests/unit/threads.h"

#include <inttypes.h>

#define SEEDS   6u
#define WORKERS 16u
#define ROUNDS  40u /* of a thread */
#define PROMPTS 24u
#define TOKENS  160u
#define SHARED  64u /* of four prompts each */
#define LAYERS  3u
#define MS      UINT64_C(1000000)

static const char *const WAYS[] = {
    "\"host_bytes\": \"256KiB\", \"chunk_tokens\": 16",
    ("\"host_bytes\": \"384KiB\", \"chunk_tokens\": 32, \"host_policy\": \"lru\", "
     "\"store\": {\"layout\": \"split\"}"),
    "\"host_bytes\": \"1MiB\", \"chunk_tokens\": 16, \"host_policy\": \"lfu\"",
    "\"host_bytes\": \"512KiB\", \"chunk_tokens\": 16, \"host_write_through\": \"yes\"",
    ("\"host_bytes\": \"256KiB\", \"chunk_tokens\": 16, \"upper_bytes\": \"96KiB\", "
     "\"host_policy\": \"score\""),
    ("\"preset\": \"attention-store\", \"host_bytes\": \"384KiB\", \"chunk_tokens\": 16"),
};

struct races {
    uint64_t seed;
    struct rig rig;
    struct prompt prompts[PROMPTS];
    _Atomic uint64_t loads, host_slab_rows, above_rows, staged, pending, stale, stored;
};

struct worker {
    struct races *races;
    struct stage_actor actor;
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

/* false: the request is of before a reset. */
static bool load(struct worker *worker, spec_request request, const struct prompt *prompt,
                 uint64_t matched, uint32_t layer)
{
    struct races *races = worker->races;
    struct area area = rig_area(&races->rig, matched + 1);
    struct spec_important item = rig_item(request, layer, &area.memory);
    spec_status status = sc_plugin_get_important(races->rig.conn, &item, 1, NULL);
    status = item.status != SPEC_OK ? item.status : status; /* STALE: the call does not begin */
    bool is_stale = status == SPEC_E_STALE && races->seed % 2 == 1;
    if (status != SPEC_OK && !is_stale)
        wrong(worker, "a load that fails", status);
    if (!is_stale && !rig_area_is_right(&races->rig, &area, prompt, 0, matched, layer))
        wrong(worker, "a row that is not what it should be", status);
    rig_area_free(&area);
    COUNT(worker, stale, is_stale);
    if (is_stale)
        return false;
    COUNT(worker, loads, 1);
    COUNT(worker, host_slab_rows, item.tier_rows[SPEC_TIER_HOST]);
    COUNT(worker, above_rows, item.tier_rows[SPEC_TIER_UPPER]);
    return true;
}

static void loads(struct worker *worker, spec_request request, const struct prompt *prompt,
                  uint64_t matched)
{
    uint32_t first = 0, end = LAYERS;
    if (draw(worker, 4) == 0) {
        first = (uint32_t)draw(worker, LAYERS);
        end = first + (uint32_t)draw(worker, 2);
    }
    for (uint32_t layer = first; layer < end; layer++) {
        if (!load(worker, request, prompt, matched, layer))
            return;
        (void)actor_caps(&worker->actor);
    }
}

/* Returns the ticket; 0: none. */
static spec_ticket stage(struct worker *worker, spec_request request)
{
    static const uint64_t DEADLINES[ACTOR_DEADLINES] = {0, 1, MS / 10, MS, 50 * MS, 0};
    spec_ticket ticket = 0;
    (void)actor_stage(&worker->actor, request, DEADLINES, draw(worker, 8) > 0 ? &ticket : NULL);
    return ticket;
}

static void stage_end(struct worker *worker, spec_ticket ticket, bool is_released)
{
    spec_status ended = actor_ticket_end(&worker->actor, ticket);
    bool may_drop = is_released || worker->races->seed % 2 == 1;
    if (ended != SPEC_OK && ended != SPEC_E_NO_SPACE && ended != SPEC_E_TIMEOUT &&
        !(ended == SPEC_E_DROPPED && may_drop))
        wrong(worker, "how a stage ended", ended);
    COUNT(worker, staged, ended == SPEC_OK || ended == SPEC_E_NO_SPACE);
}

/* What lookup did not promise. */
static void store(struct worker *worker, spec_request request, const struct prompt *prompt,
                  uint64_t from)
{
    spec_ticket ticket = 0;
    spec_status status = SPEC_OK;
    for (uint32_t layer = 0; layer < LAYERS && status == SPEC_OK && from < prompt->count; layer++)
        status = rig_store_layer(&worker->races->rig, request, prompt, from, prompt->count - from,
                                 layer, &ticket);
    if (status != SPEC_OK || ticket == 0)
        return; /* a reset, no room, or a match that grew */
    COUNT(worker, stored, actor_ticket_end(&worker->actor, ticket) == SPEC_OK);
}

static void run_round(struct worker *worker)
{
    struct races *races = worker->races;
    const struct prompt *prompt = &races->prompts[draw(worker, PROMPTS)];
    struct spec_lookup_result found;
    spec_ticket ticket = 0;
    if (races->seed % 2 == 1 && draw(worker, 60) == 0)
        (void)sc_plugin_reset(races->rig.conn, NULL);
    if (draw(worker, 4) == 0 && rig_peek(&races->rig, prompt, 0, &found) == SPEC_OK &&
        found.state == SPEC_LOOKUP_PENDING)
        COUNT(worker, pending, 1);
    if (rig_try_lookup(&races->rig, prompt, 0, RIG_MAX, &found) != SPEC_OK)
        return; /* all requests are open */
    if (found.state == SPEC_LOOKUP_PENDING) {
        COUNT(worker, pending, 1);
        return;
    }
    bool is_hit = found.state == SPEC_LOOKUP_HIT, waits = draw(worker, 3) > 0;
    if (is_hit && draw(worker, 2) == 0)
        ticket = stage(worker, found.request);
    if (ticket != 0 && waits && draw(worker, 2) == 0) {
        stage_end(worker, ticket, false);
        ticket = 0;
    }
    if (is_hit && (ticket == 0 || waits))
        loads(worker, found.request, prompt, found.matched_tokens);
    store(worker, found.request, prompt, found.matched_tokens);
    rig_release(&races->rig, found.request);
    if (ticket != 0)
        stage_end(worker, ticket, true);
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

static void run(uint64_t seed, void *user)
{
    struct races *sum = user, *races = calloc(1, sizeof(*races));
    struct worker workers[WORKERS];
    char extra[512];
    assert_non_null(races);
    races->seed = seed;
    (void)snprintf(extra, sizeof(extra),
                   "\"disk_bytes\": \"5MiB\", \"segment_bytes\": \"1MiB\", \"max_requests\": 20, "
                   "\"lease_ns_max\": 0, %s",
                   WAYS[seed % (sizeof(WAYS) / sizeof(WAYS[0]))]);
    rig_init(&races->rig, false, extra);
    rig_shape(&races->rig, LAYERS, 8, 32, SPEC_DTYPE_F16); /* 1 KiB a row */
    rig_open(&races->rig);
    for (uint64_t p = 0; p < PROMPTS; p++)
        races->prompts[p] = rig_prompt(900 + p / 4, SHARED, p, TOKENS - 7 * (p % 4));
    for (uint64_t w = 0; w < WORKERS; w++)
        workers[w] = (struct worker){.races = races, .actor = actor_of(&races->rig, seed, w, true)};
    threads_run(work, workers, sizeof(workers[0]), WORKERS);
    assert_int_equal(atomic_load(&races->rig.conn->poison.broken), 0);
    struct sc_store_stats stats = rig_store_stats(&races->rig);
    assert_true(stats.host_evictions > 0);
    sum->loads += races->loads;
    sum->host_slab_rows += races->host_slab_rows;
    sum->above_rows += races->above_rows;
    sum->staged += races->staged;
    sum->pending += races->pending;
    sum->stale += races->stale;
    sum->stored += races->stored;
    rig_prompts_free_all(races->prompts, PROMPTS);
    rig_done(&races->rig);
    free(races);
}

static void sixteen_threads_beside_writer_evictor_and_stager(void **state)
{
    (void)state;
    struct races sum = {0};
    (void)actor_seeds_run(SEEDS, run, &sum);
    print_message("loads %" PRIu64 ", rows of host memory %" PRIu64 ", above %" PRIu64
                  ", staged %" PRIu64 ", pending %" PRIu64 ", stale %" PRIu64 ", stored %" PRIu64
                  "\n",
                  sum.loads, sum.host_slab_rows, sum.above_rows, sum.staged, sum.pending, sum.stale,
                  sum.stored);
    assert_true(sum.loads > 0 && sum.host_slab_rows > 0 && sum.staged > 0 && sum.stored > 0);
    assert_true(sum.above_rows > 0 || getenv("SC_SEED") != NULL || getenv("SC_SEEDS") != NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sixteen_threads_beside_writer_evictor_and_stager),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
