/* Threads that share requests, although the contract gives a request to one call at a time: each
 * draws one of a few requests that all know, and calls for it, releases it, or opens the next one.
 *
 *   board    [CELLS] handle, prompt, match; some handles were released and stay on the board
 *   thread   begin_layer, get_important of one or two layers, a submission, prefetch_next, stage,
 *            next_chunk, a layer of a pass, store_abort, release, lookup
 *
 * Holds: a call is OK, BUSY or STALE (a layer of a pass also INVALID: another thread has stored
 * it); what is delivered are the rows of the handle's own prompt; at the end no request is open,
 * each slot is free, and what is stored is right.
 * A failure prints its seed; SC_SEED=N runs that seed alone; what threads do follows from it, when
 * they do it does not.
 *
 * Threads: eight, and the connector's. */
#include "plugin/load/bidirectional.h"
#include "tests/unit/awaits.h"
#include "tests/unit/plugin/stage_actor.h"
#include "tests/unit/threads.h"

#include <inttypes.h>

#define SEEDS    6u
#define WORKERS  8u
#define ROUNDS   1500u /* of a thread */
#define CELLS    3u
#define PROMPTS  6u
#define TOKENS   96u
#define STORED   64u /* of each prompt, before the threads begin */
#define LAYERS   3u
#define REQUESTS 6u

static const char *const WAYS[] = {
    "\"host_bytes\": \"512KiB\", \"chunk_tokens\": 16",
    "\"load_policy\": \"bidirectional\", \"host_bytes\": \"512KiB\", \"chunk_tokens\": 16",
    "\"host_bytes\": \"512KiB\", \"chunk_tokens\": 16, \"store\": {\"layout\": \"split\"}",
};

struct cell {
    spec_request request; /* 0: none yet */
    uint64_t prompt, matched;
};

struct races {
    struct rig rig;
    struct prompt prompts[PROMPTS];
    pthread_mutex_t lock;
    struct cell cells[CELLS]; /* guarded by lock */
    _Atomic uint64_t loaded, busy, stale, released, opened;
};

struct worker {
    struct races *races;
    struct stage_actor actor;
};

#define COUNT(worker, member) (void)atomic_fetch_add(&(worker)->races->member, 1)

static uint64_t draw(struct worker *worker, uint64_t below)
{
    return actor_draw(&worker->actor, below);
}

/* Counts the answer; whether it is OK. */
static bool answered(struct worker *worker, const char *call, spec_status status)
{
    if (status != SPEC_OK && status != SPEC_E_BUSY && status != SPEC_E_STALE)
        actor_wrong(&worker->actor, call, status);
    if (status == SPEC_E_BUSY)
        COUNT(worker, busy);
    if (status == SPEC_E_STALE)
        COUNT(worker, stale);
    return status == SPEC_OK;
}

static struct cell cell_draw(struct worker *worker)
{
    uint64_t at = draw(worker, CELLS);
    pthread_mutex_lock(&worker->races->lock);
    struct cell cell = worker->races->cells[at];
    pthread_mutex_unlock(&worker->races->lock);
    return cell;
}

/* Another request takes the place of one on the board, which is released first, or was, or not. */
static void open_next(struct worker *worker)
{
    struct races *races = worker->races;
    uint64_t at = draw(worker, CELLS), prompt = draw(worker, PROMPTS);
    struct spec_lookup_result found;
    spec_status status = rig_try_lookup(&races->rig, &races->prompts[prompt], 0, RIG_MAX, &found);
    if (!answered(worker, "lookup", status) || found.state == SPEC_LOOKUP_PENDING)
        return;
    COUNT(worker, opened);
    pthread_mutex_lock(&races->lock);
    struct cell before = races->cells[at];
    races->cells[at] = (struct cell){found.request, prompt, found.matched_tokens};
    pthread_mutex_unlock(&races->lock);
    if (before.request != 0)
        (void)answered(worker, "release", sc_plugin_release(races->rig.conn, before.request, NULL));
}

/* Layers of it, in one call. */
static void load(struct worker *worker, const struct cell *cell, bool is_submitted)
{
    struct races *races = worker->races;
    spec_connector *conn = races->rig.conn;
    const struct prompt *prompt = &races->prompts[cell->prompt];
    uint64_t count = 1 + draw(worker, 2);
    uint32_t first = (uint32_t)draw(worker, LAYERS - 1);
    struct area areas[2];
    struct spec_important items[2];
    for (uint32_t i = 0; i < count; i++) {
        areas[i] = rig_area(&races->rig, TOKENS + 1);
        items[i] = rig_item(cell->request, first + i, &areas[i].memory);
        items[i].status = SPEC_E_BUSY; /* of a call that does not begin */
    }
    spec_ticket ticket;
    spec_status status = is_submitted ? sc_plugin_submit(conn, items, count, &ticket, NULL)
                                      : sc_plugin_get_important(conn, items, count, NULL);
    if (is_submitted && status == SPEC_OK)
        do {
            status = sc_plugin_submit_wait(conn, ticket, UINT64_MAX, NULL);
        } while (status == SPEC_E_BUSY);
    (void)answered(worker, is_submitted ? "get_important_submit" : "get_important", status);
    for (uint32_t i = 0; i < count; i++) {
        bool is_refused = status != SPEC_OK && items[i].status == SPEC_PENDING; /* by the other */
        if (!is_refused && answered(worker, "an item", items[i].status)) {
            if (items[i].row_count != cell->matched ||
                !rig_area_is_right(&races->rig, &areas[i], prompt, 0, cell->matched, first + i))
                actor_wrong(&worker->actor, "rows of another request", status);
            COUNT(worker, loaded);
        }
        rig_area_free(&areas[i]);
    }
}

/* A layer of the pass behind the match. */
static void store(struct worker *worker, const struct cell *cell)
{
    struct races *races = worker->races;
    const struct prompt *prompt = &races->prompts[cell->prompt];
    spec_ticket ticket = 0;
    if (cell->matched == prompt->count)
        return;
    spec_status status =
        rig_store_layer(&races->rig, cell->request, prompt, cell->matched,
                        prompt->count - cell->matched, (uint32_t)draw(worker, LAYERS), &ticket);
    if (status != SPEC_E_INVALID && answered(worker, "store", status) && ticket != 0)
        (void)actor_ticket_end(&worker->actor, ticket);
}

static void call(struct worker *worker, const struct cell *cell)
{
    static const uint64_t DEADLINES[ACTOR_DEADLINES] = {0, 1, 100000, 1000000, 0, 0};
    spec_connector *conn = worker->races->rig.conn;
    spec_request request = cell->request;
    uint32_t layer = (uint32_t)draw(worker, LAYERS);
    struct spec_next_chunk next = {.struct_size = sizeof(next), .request = request};
    next.budget_tokens = 1 + draw(worker, 20);
    switch (draw(worker, 12)) {
    case 0:
        (void)answered(worker, "begin_layer",
                       sc_plugin_begin_layer(conn, &request, 1, layer, NULL));
        break;
    case 1:
        (void)answered(worker, "prefetch_next",
                       sc_plugin_prefetch_next(conn, request, layer, NULL, NULL));
        break;
    case 2:
        (void)actor_stage(&worker->actor, request, DEADLINES, NULL);
        break;
    case 3:
        (void)answered(worker, "next_chunk", sc_plugin_next_chunk(conn, &next, NULL));
        break;
    case 4:
        (void)answered(worker, "store_abort", sc_plugin_store_abort(conn, request, 0, NULL));
        break;
    case 5:
        if (answered(worker, "release", sc_plugin_release(conn, request, NULL)))
            COUNT(worker, released);
        break;
    case 6:
        open_next(worker);
        break;
    case 7:
    case 8:
        store(worker, cell);
        break;
    default:
        load(worker, cell, draw(worker, 3) == 0);
    }
}

static void *work(void *user)
{
    struct worker *worker = user;
    for (; worker->actor.step < ROUNDS; worker->actor.step++) {
        struct cell cell = cell_draw(worker);
        if (cell.request == 0)
            open_next(worker);
        else
            call(worker, &cell);
    }
    return NULL;
}

static bool all_are_free(const struct races *races)
{
    for (uint32_t i = 0; i < REQUESTS; i++)
        if (sc_plugin_request_phase(&races->rig.conn->requests.slots[i]) != SC_REQUEST_FREE)
            return false;
    return true;
}

static void run(uint64_t seed, void *user)
{
    struct races *sum = user, *races = calloc(1, sizeof(*races));
    struct worker workers[WORKERS];
    char extra[512];
    assert_non_null(races);
    (void)snprintf(extra, sizeof(extra), "\"disk_bytes\": \"64MiB\", \"max_requests\": %u, %s",
                   REQUESTS, WAYS[seed % (sizeof(WAYS) / sizeof(WAYS[0]))]);
    rig_begin_shape(&races->rig, false, extra, LAYERS, 8, 32, SPEC_DTYPE_F16);
    pthread_mutex_init(&races->lock, NULL);
    for (uint64_t p = 0; p < PROMPTS; p++) {
        races->prompts[p] = rig_prompt(700 + p, 0, p, TOKENS);
        rig_store_all(&races->rig, &races->prompts[p], STORED);
    }
    for (uint64_t w = 0; w < WORKERS; w++)
        workers[w] = (struct worker){.races = races, .actor = actor_of(&races->rig, seed, w, true)};
    threads_run(work, workers, sizeof(workers[0]), WORKERS);
    for (uint32_t i = 0; i < CELLS; i++)
        if (races->cells[i].request != 0)
            (void)sc_plugin_release(races->rig.conn, races->cells[i].request, NULL);
    assert_int_equal(atomic_load(&races->rig.conn->stats.requests_open), 0);
    for (uint32_t looks = 0; !all_are_free(races);)
        await_or_fail(&looks, "what still holds a released request");
    for (uint64_t p = 0; p < PROMPTS; p++) {
        spec_status status = SPEC_OK;
        assert_true(rig_read(&races->rig, &races->prompts[p], &status) >= STORED);
        assert_int_equal(status, SPEC_OK);
    }
    assert_int_equal(atomic_load(&races->rig.conn->poison.broken), 0);
    sum->loaded += races->loaded;
    sum->busy += races->busy;
    sum->stale += races->stale;
    sum->released += races->released;
    sum->opened += races->opened;
    rig_prompts_free_all(races->prompts, PROMPTS);
    pthread_mutex_destroy(&races->lock);
    rig_done(&races->rig);
    free(races);
}

static void calls_and_releases_of_one_request_by_eight_threads(void **state)
{
    (void)state;
    struct races sum = {.loaded = 0};
    (void)actor_seeds_run(SEEDS, run, &sum);
    print_message("loaded %" PRIu64 ", busy %" PRIu64 ", stale %" PRIu64 ", released %" PRIu64
                  ", opened %" PRIu64 "\n",
                  sum.loaded, sum.busy, sum.stale, sum.released, sum.opened);
    assert_true(sum.loaded > 0 && sum.stale > 0 && sum.released > 0 && sum.opened > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calls_and_releases_of_one_request_by_eight_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
