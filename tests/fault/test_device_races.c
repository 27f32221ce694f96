/* Eight threads that load to a device and to host memory beside each other, ask with what lies in
 * either, hint, and store, release and reset between: one connector, one device, few boxes, few
 * workers.
 *
 *   thread   lookup -> layers: hinted at; to the device, or to plain memory; at once, or submitted
 *            (and released before the wait, now and then); queries and new keys there or here,
 *            written over behind it -> what is missing is stored -> release
 *   between  resets, in every other run; the device does what it was given when it likes
 *
 * Holds: every exact row is what was stored, and whatever the device has of a load, behind it on
 * the thread's own stream, is bit for bit what plain memory gets where the same rows are exact,
 * guards included; nothing is left in the driver. A failure prints its seed; SC_SEED=N runs that
 * seed alone; what threads do follows from it, when they do it does not. Threads: eight, and the
 * connector's. */
#include "tests/unit/plugin/device_fixture.h"
#include "tests/unit/plugin/stage_actor.h"
#include "tests/unit/threads.h"

#include <inttypes.h>

#define SEEDS   6u
#define WORKERS 8u
#define PROMPTS 5u /* whose rows are the same, and whose tokens are not */

static const char *const WAYS[] = {
    "\"preset\": \"layered\"",
    "\"preset\": \"as-like\"",
    "\"preset\": \"layered-uniform\", \"store\": {\"layout\": \"split\"}",
    ("\"preset\": \"layered\", \"host_bytes\": \"1MiB\", \"submit\": {\"threads\": 3}, "
     "\"prefetch\": {\"predictor\": \"hint\"}"),
    "\"preset\": \"as-like\", \"submit\": {\"threads\": 2}, \"host_bytes\": \"1MiB\"",
    "\"preset\": \"hinted\", \"submit\": {\"threads\": 0}",
};

/* A run's sizes. */
struct size {
    uint64_t matched, rounds, worker_count, prompts; /* rounds: of a thread */
    uint32_t layers, heads, head_size;
    const char *disk;
};

#ifdef SC_SANITIZED_THREAD /* to TSan each of a kernel's threads is one: 100 us and more */
static const struct size SMALL = {66, 1, WORKERS, PROMPTS, 1, 2, 16, "5MiB"};
#else
static const struct size SMALL = {200, 8, WORKERS, PROMPTS, 4, 2, 16, "5MiB"};
#endif
/* A layer is more than 4 MiB: a worker of the connector's decodes beside the caller. */
static const struct size LARGE = {360, 2, 4, 1, 2, 6, 512, "64MiB"};

struct races {
    uint64_t seed;
    struct size size;
    struct world world; /* its prompt is the first */
    struct prompt prompts[PROMPTS];
    _Atomic uint64_t there, alike, submitted, released, stored, stale, asked, hinted;
};

struct worker {
    struct races *races;
    struct stage_actor actor;
    struct world world; /* a copy of its own: what memory it counts, the connector counts as well */
    struct device_host host;
    struct area area; /* on the device, where there says */
    struct there there;
};

#define COUNT(worker, member, n) (void)atomic_fetch_add(&(worker)->races->member, (n))

static uint64_t draw(struct worker *worker, uint64_t below)
{
    return actor_draw(&worker->actor, below);
}

static void wrong(const struct worker *worker, const char *what, spec_status status)
{
    actor_wrong(&worker->actor, what, status);
}

/* ---- Loads ---------------------------------------------------------------------------------- */

/* Of an item that was delivered: each row that says that it is exact is what was stored. */
static void rows_check(const struct worker *worker, const struct shot *shot)
{
    uint64_t part_bytes = rig_part_bytes(&worker->world.rig);
    uint64_t v_at = (RIG_GUARD + shot->area.part_bytes + RIG_GUARD + 63) / 64 * 64;
    uint8_t row[8192];
    ACTOR_CHECK(&worker->actor, part_bytes <= sizeof(row));
    for (uint64_t n = 0; n < 2 * shot->item.row_count; n++) {
        uint64_t j = n / 2, part = n % 2;
        const uint8_t *rows = shot->area.bytes + (part == 0 ? RIG_GUARD : v_at);
        if (!is_exact(shot, j))
            continue;
        stored_row(&worker->world, shot->positions[j], shot->item.layer, (uint32_t)part, row);
        if (memcmp(rows + j * part_bytes, row, part_bytes) != 0)
            wrong(worker, "an exact row that is not what was stored", SPEC_OK);
    }
}

/* The same rows, each as exact: then they are the same bits, and what is around them is. */
static void alike_check(struct worker *worker, const struct shot *there, const struct shot *plain,
                        uint64_t bytes)
{
    const struct spec_important *a = &there->item, *b = &plain->item;
    if (a->row_count != b->row_count ||
        memcmp(there->positions, plain->positions, a->row_count * sizeof(uint32_t)) != 0 ||
        memcmp(there->exact, plain->exact, sizeof(there->exact)) != 0)
        return;
    if (memcmp(there->area.bytes, plain->area.bytes, bytes) != 0)
        wrong(worker, "a device's rows that are not the host's", SPEC_OK);
    COUNT(worker, alike, 1);
}

static spec_status fire_now(struct worker *worker, struct shot *shot)
{
    struct spec_error error = {.struct_size = sizeof(error)};
    spec_status status = sc_plugin_get_important(worker->world.rig.conn, &shot->item, 1, &error);
    ACTOR_CHECK(&worker->actor, error.code == status);
    return status;
}

/* Submitted; *request 0: and released by then. */
static spec_status fire_late(struct worker *worker, struct shot *shot, spec_request *request)
{
    spec_connector *conn = worker->world.rig.conn;
    spec_ticket ticket;
    spec_status status = sc_plugin_submit(conn, &shot->item, 1, &ticket, NULL);
    if (status != SPEC_OK)
        return status;
    COUNT(worker, submitted, 1);
    if (draw(worker, 4) == 0) {
        COUNT(worker, released, 1);
        ACTOR_CHECK(&worker->actor, sc_plugin_release(conn, *request, NULL) == SPEC_OK);
        *request = 0;
    }
    status = sc_plugin_submit_wait(conn, ticket, UINT64_MAX, NULL);
    ACTOR_CHECK(&worker->actor, shot->item.status == status);
    return status;
}

static void shot_begin(struct worker *worker, struct shot *shot, spec_request request,
                       uint64_t matched, uint32_t layer, uint64_t seed)
{
    worker->world.matched = matched;
    shot_make(shot, &worker->world, request, layer, 0, (uint32_t)(rig_mix(seed) % 300000));
    if (worker->world.rig.conn->config.base != SC_BASE_QUANTISED)
        shot->select.given = 0;
    if (seed % 3 == 0)
        shot->item.select = NULL;
    rig_area_free(&shot->area);
}

/* Of the next layer, before this one is loaded, if there is one; what it is made of is written over
 * and freed at once. */
static void hint(struct worker *worker, spec_request request, uint64_t matched, uint32_t layer)
{
    if (layer + 1 >= worker->races->size.layers || draw(worker, 2) == 0)
        return;
    worker->world.matched = matched;
    struct pass pass = world_pass(&worker->world, layer + 1, SPEC_DTYPE_F32);
    struct pass_there there = pass_there_make(&worker->host, &pass, draw(worker, 4) > 0, false);
    spec_status status =
        sc_plugin_prefetch_next(worker->world.rig.conn, request, layer, &pass.q, NULL);
    if (status != SPEC_OK && status != SPEC_E_STALE)
        wrong(worker, "a hint that is refused", status);
    COUNT(worker, hinted, status == SPEC_OK && there.has_queries);
    pass_there_spoil(&there);
    pass_there_free(&there);
    pass_free(&pass);
}

/* At once, or submitted, with what lies there or here. */
static spec_status fire_any(struct worker *worker, struct shot *shot, spec_request *request)
{
    uint64_t where = draw(worker, 4);
    struct pass_there there =
        pass_there_make(&worker->host, &shot->pass, (where & 1) != 0, (where & 2) != 0);
    spec_status status =
        draw(worker, 2) == 0 ? fire_late(worker, shot, request) : fire_now(worker, shot);
    COUNT(worker, asked, status == SPEC_OK && where != 0);
    pass_there_spoil(&there);
    pass_there_free(&there);
    return status;
}

/* To the device, and in plain memory, in either order. false: the request is over. */
static bool load(struct worker *worker, spec_request *request, uint64_t matched, uint32_t layer)
{
    struct shot *shots = calloc(2, sizeof(*shots)); /* there, plain */
    spec_status statuses[2];
    uint64_t seed = draw(worker, UINT32_MAX), first = draw(worker, 2);
    ACTOR_CHECK(&worker->actor, shots != NULL);
    for (uint64_t i = 0; i < 2; i++) {
        shot_begin(worker, &shots[i], *request, matched, layer, seed);
        shots[i].area =
            i == 0 ? worker->area : rig_area(&worker->world.rig, worker->races->size.matched);
    }
    there_put(&worker->there);
    for (uint64_t n = 0; n < 2; n++) {
        uint64_t i = n ^ first;
        statuses[i] = SPEC_E_STALE;
        if (*request != 0)
            statuses[i] = fire_any(worker, &shots[i], request);
        if (statuses[i] != SPEC_OK && statuses[i] != SPEC_E_STALE &&
            statuses[i] != SPEC_E_CORRUPT && statuses[i] != SPEC_E_BUSY)
            wrong(worker, "a load that fails", statuses[i]);
    }
    there_read(&worker->there, &shots[0].area);
    for (uint64_t i = 0; i < 2; i++)
        if (statuses[i] == SPEC_OK)
            rows_check(worker, &shots[i]);
    if (statuses[0] == SPEC_OK && statuses[1] == SPEC_OK)
        alike_check(worker, &shots[0], &shots[1], worker->there.used);
    COUNT(worker, there, statuses[0] == SPEC_OK);
    COUNT(worker, stale, statuses[0] == SPEC_E_STALE);
    bool is_over = *request == 0 || statuses[0] != SPEC_OK || statuses[1] != SPEC_OK;
    shots[0].area.bytes = NULL;
    for (uint64_t i = 0; i < 2; i++)
        shot_free(&shots[i]);
    free(shots);
    return !is_over;
}

/* What lookup did not promise. */
static void store(struct worker *worker, spec_request request, uint64_t from)
{
    const struct world *world = &worker->races->world;
    const struct size *size = &worker->races->size;
    spec_ticket ticket = 0;
    spec_status status = from % 64 == 0 ? SPEC_OK : SPEC_E_INVALID;
    for (uint32_t layer = 0; layer < size->layers && status == SPEC_OK && from < size->matched;
         layer++) {
        struct area area = world_area(world, from, size->matched - from, layer);
        struct spec_store_params params =
            rig_store_params(request, layer, from, size->matched - from, &area.memory);
        status = sc_plugin_store(world->rig.conn, &params, 1, &ticket, NULL);
        rig_area_free(&area);
    }
    if (status == SPEC_OK && ticket != 0)
        COUNT(worker, stored, actor_ticket_end(&worker->actor, ticket) == SPEC_OK);
}

static void run_round(struct worker *worker)
{
    struct races *races = worker->races;
    struct rig *rig = &races->world.rig;
    struct prompt prompt = races->prompts[draw(worker, races->size.prompts)];
    struct spec_lookup_result found;
    prompt.count = races->size.matched;
    if (races->seed % 2 == 1 && draw(worker, 20) == 0)
        (void)sc_plugin_reset(rig->conn, NULL);
    if (rig_try_lookup(rig, &prompt, 0, RIG_MAX, &found) != SPEC_OK || found.request == 0)
        return;
    spec_request request = found.request;
    for (uint32_t layer = 0; layer < races->size.layers && found.matched_tokens > 0; layer++) {
        hint(worker, request, found.matched_tokens, layer);
        if (!load(worker, &request, found.matched_tokens, layer))
            break;
    }
    if (request == 0)
        return;
    store(worker, request, found.matched_tokens);
    rig_release(rig, request);
}

/* ---- A run ---------------------------------------------------------------------------------- */

static void *work(void *user)
{
    struct worker *worker = user;
    device_host_open(&worker->host, 0);
    worker->area = rig_area(&worker->world.rig, worker->races->size.matched);
    worker->there = there_make(&worker->host, &worker->area);
    for (; worker->actor.step < worker->races->size.rounds; worker->actor.step++)
        run_round(worker);
    there_free(&worker->there);
    rig_area_free(&worker->area);
    device_host_close(&worker->host);
    return NULL;
}

static void races_open(struct races *races, uint64_t seed, const char *way, char *extra,
                       uint64_t capacity)
{
    const struct size *size = &races->size;
    races->seed = seed;
    (void)snprintf(extra, capacity,
                   "\"disk_bytes\": \"%s\", \"segment_bytes\": \"1MiB\", \"max_requests\": 20, "
                   "\"lease_ns_max\": 0, \"gpu\": {\"staging_bytes\": \"1MiB\", "
                   "\"store_bytes\": \"1MiB\", \"score_bytes\": \"1MiB\"}, %s",
                   size->disk, way);
    races->world = (struct world){.matched = size->matched, .group = 2, .agree = 3};
    rig_init(&races->world.rig, false, extra);
    races->world.rig.stage = "32MiB"; /* a large pass */
    rig_shape(&races->world.rig, size->layers, size->heads, size->head_size, SPEC_DTYPE_F16);
    races->world.rig.query_group = 2;
    for (uint64_t p = 0; p < PROMPTS; p++)
        races->prompts[p] = rig_prompt(900 + p / 2, 64, p, size->matched + FRESH_ROWS);
    races->world.prompt = races->prompts[0];
}

static void races_sum(struct races *sum, const struct races *races)
{
    sum->there += races->there;
    sum->alike += races->alike;
    sum->submitted += races->submitted;
    sum->released += races->released;
    sum->stored += races->stored;
    sum->stale += races->stale;
    sum->asked += races->asked;
    sum->hinted += races->hinted;
}

static void run_sized(uint64_t seed, const struct size *size, const char *way, struct races *sum)
{
    struct races *races = calloc(1, sizeof(*races));
    struct worker workers[WORKERS];
    char extra[640];
    assert_non_null(races);
    races->size = *size;
    races_open(races, seed, way, extra, sizeof(extra));
    struct world plain = races->world; /* as long as no thread but this one counts */
    rig_open(&races->world.rig);
    plain.rig.conn = races->world.rig.conn;
    world_store(&races->world);
    wait_for_quant(&races->world);
    fake_policy((enum fake_policy)(seed % 4), seed);
    for (uint64_t w = 0; w < size->worker_count; w++)
        workers[w] = (struct worker){
            .races = races, .actor = actor_of(&races->world.rig, seed, w, true), .world = plain};
    threads_run(work, workers, sizeof(workers[0]), size->worker_count);
    assert_int_equal(atomic_load(&races->world.rig.conn->poison.broken), 0);
    races_sum(sum, races);
    for (uint64_t p = 1; p < PROMPTS; p++)
        rig_prompt_free(&races->prompts[p]);
    world_done(&races->world);
    fake_policy(FAKE_EAGER, 1);
    device_assert_clean("threads");
    free(races);
}

static void run_small(uint64_t seed, void *user)
{
    run_sized(seed, &SMALL, WAYS[seed % (sizeof(WAYS) / sizeof(WAYS[0]))], user);
}

static void run_large(uint64_t seed, void *user)
{
    run_sized(seed, &LARGE, WAYS[seed % 2 * 2], user);
}

static void eight_threads_load_to_a_device_and_to_host_memory(void **state)
{
    (void)state;
    struct races sum = {0};
    bool is_all = actor_seeds_run(SEEDS, run_small, &sum);
    print_message("to the device %" PRIu64 ", alike %" PRIu64 ", submitted %" PRIu64
                  ", released %" PRIu64 ", stored %" PRIu64 ", stale %" PRIu64 ", asked %" PRIu64
                  ", hinted %" PRIu64 "\n",
                  sum.there, sum.alike, sum.submitted, sum.released, sum.stored, sum.stale,
                  sum.asked, sum.hinted);
    assert_true(!is_all || (sum.there > 0 && sum.alike > 0));
    assert_true(!is_all || (sum.submitted > 0 && sum.released > 0 && sum.stored > 0));
    assert_true(!is_all || sum.asked > 0);
    assert_true(!is_all || SMALL.layers == 1 || sum.hinted > 0); /* at the layer behind */
}

static void a_worker_decodes_beside_the_caller(void **state)
{
    (void)state;
    struct races sum = {0};
#ifdef SC_SANITIZED_THREAD
    print_message("skipped: emulated threads of a layer's kernels are too many for TSan\n");
    skip();
#endif
    bool is_all = actor_seeds_run(2, run_large, &sum);
    print_message("to the device %" PRIu64 ", alike %" PRIu64 "\n", sum.there, sum.alike);
    assert_true(!is_all || sum.alike > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(eight_threads_load_to_a_device_and_to_host_memory),
        cmocka_unit_test(a_worker_decodes_beside_the_caller),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
