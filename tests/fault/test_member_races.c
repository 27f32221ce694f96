/* Three connectors of one process that store into one directory (store.writers: many), as three
 * processes would: each has threads that store prompts, load what any stored, ask for checkpoints
 * and evictions, and reset now and then.
 *
 * Holds: a call is OK, or has a status that a full disk, eviction or a reset explains; what is
 * delivered is right; at the end each finds the same.
 * A failure prints its seed; SC_SEED=N runs that seed alone; when threads do something does not
 * follow from it.
 *
 * Threads: six, and the connectors'. */
#include "tests/unit/plugin/stage_actor.h"
#include "tests/unit/threads.h"

#define SEEDS   4u
#define MEMBERS 3u
#define EACH    2u /* threads of a connector */
#define ROUNDS  150u
#define PROMPTS 40u
#define TOKENS  100u
#define LAYERS  3u

struct races {
    struct rig rigs[MEMBERS];
    struct prompt prompts[PROMPTS];
    _Atomic uint64_t stored, loaded;
};

struct worker {
    struct races *races;
    struct stage_actor actor;
};

static bool is_expected(spec_status status)
{
    return status == SPEC_OK || status == SPEC_E_BUSY || status == SPEC_E_STALE ||
           status == SPEC_E_DROPPED || status == SPEC_E_NO_SPACE || status == SPEC_E_CORRUPT;
}

/* Rows of what matches, of every layer. */
static void load(struct worker *worker, const struct prompt *prompt,
                 const struct spec_lookup_result *found)
{
    struct rig *rig = worker->actor.rig;
    spec_status status = SPEC_OK;
    for (uint32_t layer = 0; layer < LAYERS && status == SPEC_OK; layer++) {
        struct area area = rig_area(rig, TOKENS);
        struct spec_important item = rig_item(found->request, layer, &area.memory);
        status = sc_plugin_begin_layer(rig->conn, &found->request, 1, layer, NULL);
        if (status == SPEC_OK)
            status = sc_plugin_get_important(rig->conn, &item, 1, NULL);
        status = status == SPEC_OK ? item.status : status;
        if (!is_expected(status))
            actor_wrong(&worker->actor, "load", status);
        if (status == SPEC_OK &&
            !rig_area_is_right(rig, &area, prompt, 0, found->matched_tokens, layer))
            actor_wrong(&worker->actor, "rows are wrong", status);
        rig_area_free(&area);
    }
    (void)atomic_fetch_add(&worker->races->loaded, status == SPEC_OK);
}

static void store(struct worker *worker, const struct prompt *prompt,
                  const struct spec_lookup_result *found)
{
    struct rig *rig = worker->actor.rig;
    spec_ticket ticket = 0;
    spec_status status = SPEC_OK;
    for (uint32_t layer = 0; layer < LAYERS && status == SPEC_OK; layer++) {
        struct area area = rig_area(rig, TOKENS);
        uint64_t first = found->matched_tokens;
        rig_area_fill(rig, &area, prompt, first, TOKENS - first, layer);
        struct spec_store_params params =
            rig_store_params(found->request, layer, first, TOKENS - first, &area.memory);
        status = sc_plugin_store(rig->conn, &params, 1, &ticket, NULL);
        rig_area_free(&area);
    }
    if (!is_expected(status))
        actor_wrong(&worker->actor, "store", status);
    if (status != SPEC_OK || ticket == 0)
        return;
    status = actor_ticket_end(&worker->actor, ticket);
    if (!is_expected(status))
        actor_wrong(&worker->actor, "ticket", status);
    (void)atomic_fetch_add(&worker->races->stored, status == SPEC_OK);
}

static void act(struct worker *worker)
{
    struct rig *rig = worker->actor.rig;
    const struct prompt *prompt = &worker->races->prompts[actor_draw(&worker->actor, PROMPTS)];
    struct spec_lookup_result found;
    uint64_t what = actor_draw(&worker->actor, 100);
    if (what < 3)
        (void)rig_maintain(rig, what == 0 ? SPEC_MAINTAIN_EVICT : SPEC_MAINTAIN_CHECKPOINT);
    if (what == 3 && sc_plugin_reset(rig->conn, NULL) != SPEC_OK)
        actor_wrong(&worker->actor, "reset", SPEC_E_IO);
    spec_status status = rig_try_lookup(rig, prompt, 0, TOKENS, &found);
    if (!is_expected(status))
        actor_wrong(&worker->actor, "lookup", status);
    if (status != SPEC_OK)
        return;
    if (found.matched_tokens > 0)
        load(worker, prompt, &found);
    if (found.matched_tokens < TOKENS)
        store(worker, prompt, &found);
    (void)sc_plugin_release(rig->conn, found.request, NULL);
}

static void *work(void *user)
{
    struct worker *worker = user;
    for (worker->actor.step = 0; worker->actor.step < ROUNDS; worker->actor.step++)
        act(worker);
    return NULL;
}

/* Every prompt that one finds, all do, and its rows are right. */
static void all_find_the_same(struct races *races)
{
    for (uint32_t i = 0; i < MEMBERS; i++)
        rig_settle(&races->rigs[i]);
    for (uint32_t p = 0; p < PROMPTS; p++) {
        bool is_same = false;
        while (!is_same) { /* each reads on at its ticks */
            uint64_t matched = rig_matched(&races->rigs[0], &races->prompts[p]);
            is_same = true;
            for (uint32_t i = 1; i < MEMBERS; i++)
                is_same = is_same && rig_matched(&races->rigs[i], &races->prompts[p]) == matched;
        }
        for (uint32_t i = 0; i < MEMBERS; i++)
            (void)rig_read(&races->rigs[i], &races->prompts[p], NULL);
    }
}

static void run(uint64_t seed, void *user)
{
    struct races races = {0};
    struct worker workers[MEMBERS * EACH];
    const char *extra =
        seed % 2 == 0 ? "\"chunk_tokens\": 16, \"store\": {\"writers\": \"many\"}"
                      : "\"chunk_tokens\": 16, \"disk_bytes\": \"4MiB\", \"segment_bytes\": "
                        "\"1MiB\", \"lease_ns_max\": 1000000, \"store\": {\"writers\": \"many\"}";
    (void)user;
    rig_begin_shape(&races.rigs[0], false, extra, LAYERS, 2, 16, SPEC_DTYPE_F32);
    for (uint32_t i = 1; i < MEMBERS; i++)
        rig_open_beside(&races.rigs[i], &races.rigs[0], SPEC_ROLE_AUTO, 0);
    for (uint32_t i = 0; i < PROMPTS; i++)
        races.prompts[i] = rig_prompt(seed * 1000 + i / 2, TOKENS / 2, i, TOKENS);
    for (uint32_t i = 0; i < MEMBERS * EACH; i++)
        workers[i] = (struct worker){.races = &races,
                                     .actor = actor_of(&races.rigs[i / EACH], seed, i, true)};
    struct threads threads = threads_begin(work, workers, sizeof(workers[0]), MEMBERS * EACH);
    threads_join(&threads);
    all_find_the_same(&races);
    assert_true(atomic_load(&races.stored) > 0 && atomic_load(&races.loaded) > 0);
    for (uint32_t i = 1; i < MEMBERS; i++)
        rig_leave(&races.rigs[i]);
    rig_prompts_free_all(races.prompts, PROMPTS);
    rig_done(&races.rigs[0]);
}

static void members_of_many_threads_deliver_what_is_right(void **state)
{
    (void)state;
    (void)actor_seeds_run(SEEDS, run, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(members_of_many_threads_deliver_what_is_right),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
