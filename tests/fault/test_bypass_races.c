/* Bypasses that begin and end, by calls and by deadlines, beside threads that look up, stage, load
 * and store, and beside what works in the background.
 *
 *   workers   lookup -> a stage, at times -> all layers, compared -> what is missing is stored
 *   switch    begins one -> looks up, stores, stages itself: nothing comes of it -> ends it
 *
 * Holds: every row that is delivered is right, and no load fails because of a bypass; while the
 * switch knows of one, nothing is promised, stored or staged; when the last has ended, everything
 * whose ticket said so is found. A failure prints its seed; SC_SEED=N runs that seed alone; what
 * threads do follows from it, when they do it does not.
 *
 * Threads: seven, and the connector's. */
#include "tests/unit/plugin/stage_actor.h"
#include "tests/unit/threads.h"

#include <inttypes.h>

#define SEEDS    4u
#define WORKERS  6u
#define BYPASSES 25u /* of a seed */
#define PROMPTS  10u
#define TOKENS   150u
#define LAYERS   3u
#define MS       UINT64_C(1000000)

struct races {
    struct rig rig;
    struct prompt prompts[PROMPTS], anchor, unstored;
    _Atomic bool is_stored[PROMPTS]; /* some ticket of the whole of it said OK */
    _Atomic bool is_over;            /* the switch has had its rounds */
    _Atomic uint64_t hits, misses, stored, dropped;
};

struct worker {
    struct races *races;
    struct stage_actor actor;
};

/* ---- What every thread may do ---------------------------------------------------------------- */

static void load(struct worker *worker, spec_request request, const struct prompt *prompt,
                 uint64_t matched)
{
    struct rig *rig = &worker->races->rig;
    struct area area = rig_area(rig, matched + 1);
    for (uint32_t layer = 0; layer < LAYERS; layer++) {
        struct spec_important item = rig_item(request, layer, &area.memory);
        spec_status status = sc_plugin_get_important(rig->conn, &item, 1, NULL);
        if (status != SPEC_OK)
            actor_wrong(&worker->actor, "a load that fails", status);
        if (item.row_count != matched || !rig_area_is_right(rig, &area, prompt, 0, matched, layer))
            actor_wrong(&worker->actor, "a row that is not what it should be", status);
        memset(area.memory.k_base, 0xa5, area.memory.k_bytes);
        memset(area.memory.v_base, 0xa5, area.memory.v_bytes);
    }
    rig_area_free(&area);
}

static spec_status store(struct worker *worker, spec_request request, const struct prompt *prompt,
                         uint64_t from)
{
    spec_ticket ticket = 0;
    for (uint32_t layer = 0; layer < LAYERS; layer++) {
        spec_status status = rig_store_layer(&worker->races->rig, request, prompt, from,
                                             prompt->count - from, layer, &ticket);
        if (status != SPEC_OK)
            actor_wrong(&worker->actor, "a store that stops its host", status);
    }
    return actor_ticket_end(&worker->actor, ticket);
}

static spec_ticket stage(struct worker *worker, spec_request request)
{
    const struct spec_prefetch_to_host_params params = {.struct_size = sizeof(params),
                                                        .request = request};
    spec_ticket ticket = 0;
    spec_status status = sc_plugin_host_prefetch(worker->races->rig.conn, &params, &ticket, NULL);
    if (status != SPEC_OK && status != SPEC_E_BUSY)
        actor_wrong(&worker->actor, "a stage that is refused", status);
    return status == SPEC_OK ? ticket : 0;
}

/* ---- Workers -------------------------------------------------------------------------------- */

static void run_round(struct worker *worker)
{
    struct races *races = worker->races;
    uint64_t number = actor_draw(&worker->actor, PROMPTS);
    const struct prompt *prompt = &races->prompts[number];
    struct spec_lookup_result found;
    if (rig_try_lookup(&races->rig, prompt, 0, RIG_MAX, &found) != SPEC_OK || found.request == 0)
        return; /* all requests are open, or it is being staged */
    uint64_t matched = found.matched_tokens;
    spec_ticket ticket =
        matched > 0 && actor_draw(&worker->actor, 3) == 0 ? stage(worker, found.request) : 0;
    if (matched > 0)
        load(worker, found.request, prompt, matched);
    races->hits += matched > 0;
    races->misses += matched == 0;
    if (matched < prompt->count) {
        spec_status status = store(worker, found.request, prompt, matched);
        if (status != SPEC_OK && status != SPEC_E_DROPPED)
            actor_wrong(&worker->actor, "a store that fails", status);
        races->stored += status == SPEC_OK;
        races->dropped += status == SPEC_E_DROPPED;
        if (status == SPEC_OK)
            atomic_store(&races->is_stored[number], true);
    }
    rig_release(&races->rig, found.request);
    if (ticket != 0)
        (void)actor_ticket_end(&worker->actor, ticket);
}

static void *work(void *user)
{
    struct worker *worker = user;
    for (; !atomic_load(&worker->races->is_over); worker->actor.step++)
        run_round(worker);
    return NULL;
}

/* ---- The switch ----------------------------------------------------------------------------- */

static void bypass(struct worker *worker, uint64_t deadline_ns, uint32_t more)
{
    const struct spec_maintain_params params = {.struct_size = sizeof(params),
                                                .flags = SPEC_MAINTAIN_BYPASS | more,
                                                .deadline_ns = deadline_ns};
    spec_status status = sc_plugin_maintain(worker->races->rig.conn, &params, NULL);
    if (status != SPEC_OK)
        actor_wrong(&worker->actor, "maintain", status);
}

/* There is a bypass, which nobody else ends. held: of before it, with a match. */
static void expect_nothing(struct worker *worker, spec_request held)
{
    struct races *races = worker->races;
    struct stage_actor *actor = &worker->actor;
    struct spec_lookup_result found;
    ACTOR_CHECK(actor, rig_peek(&races->rig, &races->anchor, 0, &found) == SPEC_OK);
    ACTOR_CHECK(actor, found.state == SPEC_LOOKUP_MISS && found.stored_tokens == 0);
    ACTOR_CHECK(actor,
                rig_try_lookup(&races->rig, &races->unstored, 0, RIG_MAX, &found) == SPEC_OK);
    ACTOR_CHECK(actor, found.state == SPEC_LOOKUP_MISS);
    ACTOR_CHECK(actor, store(worker, found.request, &races->unstored, 0) == SPEC_E_DROPPED);
    rig_release(&races->rig, found.request);
    spec_ticket ticket = stage(worker, held); /* 0: all slots still end what they had */
    ACTOR_CHECK(actor, ticket == 0 || actor_ticket_end(actor, ticket) == SPEC_E_DROPPED);
    ACTOR_CHECK(actor, atomic_load(&races->rig.conn->stages.open) == 0);
    load(worker, held, &races->anchor, TOKENS); /* it was promised */
}

static void run_bypass(struct worker *worker)
{
    struct races *races = worker->races;
    struct stage_actor *actor = &worker->actor;
    static const uint32_t MORE[] = {0, SPEC_MAINTAIN_BUILD, SPEC_MAINTAIN_CHECKPOINT,
                                    SPEC_MAINTAIN_REORDER};
    struct spec_lookup_result held, found;
    ACTOR_CHECK(actor, rig_try_lookup(&races->rig, &races->anchor, 0, RIG_MAX, &held) == SPEC_OK);
    ACTOR_CHECK(actor, held.matched_tokens == TOKENS);
    bypass(worker, 0, MORE[actor_draw(actor, 4)]);
    expect_nothing(worker, held.request);
    if (actor_draw(actor, 2) == 0) {
        bypass(worker, SPEC_BYPASS_END, 0);
    } else {
        bypass(worker, 1 + actor_draw(actor, 3 * MS), 0);
        while (sc_plugin_is_bypassed(races->rig.conn))
            rig_pass_ns(&races->rig, MS / 10);
    }
    ACTOR_CHECK(actor, rig_peek(&races->rig, &races->anchor, 0, &found) == SPEC_OK);
    ACTOR_CHECK(actor, found.matched_tokens == TOKENS);
    rig_release(&races->rig, held.request);
}

/* ---- A run ---------------------------------------------------------------------------------- */

static void races_make(struct races *races)
{
    rig_begin_shape(&races->rig, false,
                    "\"host_bytes\": \"256KiB\", \"chunk_tokens\": 16, \"max_requests\": 20, "
                    "\"disk_bytes\": \"256MiB\", \"segment_bytes\": \"4MiB\"",
                    LAYERS, 2, 32, SPEC_DTYPE_F16);
    for (uint64_t p = 0; p < PROMPTS; p++)
        races->prompts[p] = rig_prompt(700 + p / 3, 60, p, TOKENS - 9 * (p % 3));
    races->anchor = rig_prompt(800, 0, 0, TOKENS);
    races->unstored = rig_prompt(801, 0, 0, TOKENS);
    assert_int_equal(rig_fill(&races->rig, &races->anchor), SPEC_OK);
}

static void races_end(struct races *races)
{
    struct rig *rig = &races->rig;
    for (uint64_t p = 0; p < PROMPTS; p++) {
        uint64_t read = rig_read(rig, &races->prompts[p], NULL);
        assert_true(read <= races->prompts[p].count);
        if (atomic_load(&races->is_stored[p]))
            assert_int_equal(read, races->prompts[p].count);
        rig_prompt_free(&races->prompts[p]);
    }
    assert_int_equal(rig_read(rig, &races->anchor, NULL), TOKENS);
    assert_int_equal(rig_read(rig, &races->unstored, NULL), 0);
    assert_int_equal(rig_fill(rig, &races->unstored), SPEC_OK);
    assert_int_equal(rig_read(rig, &races->unstored, NULL), TOKENS);
    assert_int_equal(atomic_load(&rig->conn->stats.tickets_open), 0);
    assert_int_equal(atomic_load(&rig->conn->stats.requests_open), 0);
    rig_end(rig, &races->anchor, &races->unstored);
}

static void run(uint64_t seed, void *user)
{
    struct races *sum = user, *races = calloc(1, sizeof(*races));
    struct worker workers[WORKERS + 1];
    assert_non_null(races);
    races_make(races);
    for (uint64_t w = 0; w <= WORKERS; w++)
        workers[w] = (struct worker){.races = races, .actor = actor_of(&races->rig, seed, w, true)};
    const struct threads threads = threads_begin(work, workers, sizeof(workers[0]), WORKERS);
    struct worker *self = &workers[WORKERS];
    for (; self->actor.step < BYPASSES; self->actor.step++) {
        rig_pass_ns(&races->rig, actor_draw(&self->actor, 8 * MS));
        run_bypass(self);
    }
    atomic_store(&races->is_over, true);
    threads_join(&threads);
    sum->hits += races->hits;
    sum->misses += races->misses;
    sum->stored += races->stored;
    sum->dropped += races->dropped;
    races_end(races);
    free(races);
}

static void bypasses_beside_lookups_loads_and_stores(void **state)
{
    (void)state;
    static struct races sum;
    (void)actor_seeds_run(SEEDS, run, &sum);
    print_message("hits %" PRIu64 ", misses %" PRIu64 ", stored %" PRIu64 ", dropped %" PRIu64 "\n",
                  sum.hits, sum.misses, sum.stored, sum.dropped);
    assert_true(sum.hits > 0 && sum.misses > 0);
    assert_true(sum.stored > 0 && sum.dropped > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bypasses_beside_lookups_loads_and_stores),
    };
    return cmocka_run_group_tests_name("bypass races", tests, NULL, NULL);
}
