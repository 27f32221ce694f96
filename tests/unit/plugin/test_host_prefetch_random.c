/* Random calls on one connector with a host tier, beside faults of the disk, of memory and of the
 * allocator: what is delivered is right, what lookup says of tiers is so, every ticket ends, and
 * nobody is told PENDING for ever. A failure prints its seed; SC_SEED=N runs that one alone.
 *
 * Threads: the fixture's. On the simulated disk nothing happens but in waits. */
#include "plugin/select/scatter.h"
#include "store/cache/host_tier_slab.h"
#include "tests/unit/plugin/stage_actor.h"

#include <inttypes.h>

#define LAYERS  3u
#define PROMPTS 8u
#define OPEN    5u
#define STEPS   120u
#define MS      UINT64_C(1000000)

static const char *const WAYS[] = {
    "\"host_bytes\": \"96KiB\", \"chunk_tokens\": 16",
    "\"host_bytes\": \"64MiB\", \"host_write_through\": \"yes\"",
    "\"host_bytes\": \"160KiB\", \"chunk_tokens\": 16, \"host_write_through\": \"yes\", "
    "\"host_policy\": \"lru\"",
    "\"host_bytes\": \"200KiB\", \"chunk_tokens\": 32, \"store\": {\"layout\": \"split\"}, "
    "\"host_policy\": \"lfu\"",
};

struct open_request {
    spec_request request;
    const struct prompt *prompt;
    uint64_t matched, stored; /* rows behind the match that were stored for it */
};

struct world {
    struct stage_actor actor;
    struct rig rig;
    struct prompt prompts[PROMPTS];
    struct open_request open[OPEN];
    struct stage_tickets tickets;
    uint64_t loads, in_host_tier, staged, failed, pending;
};

static uint64_t draw(struct world *w, uint64_t below)
{
    return actor_draw(&w->actor, below);
}

#define CHECK(w, cond) ACTOR_CHECK(&(w)->actor, cond)

/* What lookup says is what is there. */
static void tiers_check(struct world *w, const struct spec_lookup_result *found)
{
    const spec_connector *conn = w->rig.conn;
    const struct sc_plugin_request *request = sc_plugin_request_find(w->rig.conn, found->request);
    uint64_t in_host_tier = 0, all = 0;
    for (uint64_t r = 0; request != NULL && r < request->range_count; r++)
        for (uint32_t layer = 0; layer < LAYERS; layer++) {
            struct sc_store_range range = request->ranges[r];
            all += range.row_count;
            if (sc_store_range_is_there(conn->store, &range) &&
                sc_host_slab_has(conn->store, layer, &range, SC_STORE_WANT_ROWS))
                in_host_tier += range.row_count;
        }
    uint64_t row = conn->dims.row_bytes + 8;
    CHECK(w, found->tier_bytes[SPEC_TIER_HOST] == in_host_tier * row);
    CHECK(w, found->tier_bytes[SPEC_TIER_DISK] == (all - in_host_tier) * row);
}

static void step_lookup(struct world *w, struct open_request *open)
{
    const struct prompt *prompt = &w->prompts[draw(w, PROMPTS)];
    struct spec_lookup_result found;
    uint64_t from = draw(w, 4) == 0 ? draw(w, prompt->count) : 0;
    if (rig_try_lookup(&w->rig, prompt, from, RIG_MAX, &found) != SPEC_OK)
        return;
    if (found.state == SPEC_LOOKUP_PENDING) {
        w->pending++;
        CHECK(w, found.request == 0);
        return;
    }
    tiers_check(w, &found);
    if (from > 0) { /* looked at alone */
        rig_release(&w->rig, found.request);
        return;
    }
    *open = (struct open_request){found.request, prompt, found.matched_tokens, 0};
}

static void step_stage(struct world *w, const struct open_request *open)
{
    static const uint64_t DEADLINES[ACTOR_DEADLINES] = {0, 1, MS, 50 * MS, 400 * MS, 0};
    w->staged += actor_stage_among(&w->actor, open->request, DEADLINES, &w->tickets);
}

static void step_load(struct world *w, const struct open_request *open)
{
    uint32_t layer = (uint32_t)draw(w, LAYERS);
    struct area area = rig_area(&w->rig, open->matched + 1);
    struct spec_important item = rig_item(open->request, layer, &area.memory);
    if (open->matched > 0) {
        spec_status status = sc_plugin_get_important(w->rig.conn, &item, 1, NULL);
        status = item.status != SPEC_OK ? item.status : status;
        if (status == SPEC_OK)
            CHECK(w, rig_area_is_right(&w->rig, &area, open->prompt, 0, open->matched, layer));
        w->loads += status == SPEC_OK;
        w->failed += status != SPEC_OK;
        w->in_host_tier += item.tier_rows[SPEC_TIER_HOST];
    }
    rig_area_free(&area);
}

static void step_store(struct world *w, struct open_request *open)
{
    uint64_t from = open->matched + open->stored, left = open->prompt->count - from;
    uint64_t count = draw(w, 4) == 0 ? 1 : left;
    uint32_t layers = draw(w, 5) == 0 ? (uint32_t)draw(w, LAYERS) : LAYERS;
    spec_status status = SPEC_OK;
    spec_ticket ticket = 0;
    if (left == 0 || count > left)
        return;
    for (uint32_t layer = 0; layer < layers && status == SPEC_OK; layer++)
        status = rig_store_layer(&w->rig, open->request, open->prompt, from, count, layer, &ticket);
    if (layers < LAYERS || status != SPEC_OK || ticket == 0) {
        rig_release(&w->rig, open->request);
        *open = (struct open_request){0};
        return;
    }
    if (draw(w, 2) == 0) {
        (void)rig_wait(&w->rig, ticket);
        open->stored += count;
        return;
    }
    rig_release(&w->rig, open->request);
    *open = (struct open_request){0};
    (void)rig_wait(&w->rig, ticket);
}

/* A bit of a slab of rows. */
static void memory_rots(struct world *w, const struct open_request *open)
{
    const struct sc_plugin_request *request = sc_plugin_request_find(w->rig.conn, open->request);
    struct sc_store *store = w->rig.conn->store;
    for (uint64_t r = 0; request != NULL && r < request->range_count; r++) {
        if (!sc_store_range_is_there(store, &request->ranges[r]))
            continue;
        struct sc_host_slab in_host_tier = sc_host_slab_get(
            store, (uint32_t)draw(w, LAYERS), &request->ranges[r], SC_STORE_WANT_ROWS);
        if (in_host_tier.slab == NULL)
            continue;
        in_host_tier.bytes[in_host_tier.row_at + draw(w, 20)] ^= 4;
        sc_host_tier_unpin(store->host, in_host_tier.slab);
        return;
    }
}

static void step_fault(struct world *w)
{
    sc_io_sim_fault_scope(w->rig.disk, draw(w, 2) == 0 ? "/seg-" : "/");
    switch (draw(w, 7)) {
    case 0:
        sc_io_sim_fault_nth(w->rig.disk, SC_SIM_READ_EIO, draw(w, 6));
        break;
    case 1:
        sc_io_sim_fault_nth(w->rig.disk, SC_SIM_FLIP, draw(w, 6));
        break;
    case 2:
        sc_io_sim_fault_nth(w->rig.disk, SC_SIM_WRITE_EIO, draw(w, 6));
        break;
    case 3:
        sc_io_sim_fault_nth(w->rig.disk, SC_SIM_NO_SPACE, draw(w, 6));
        break;
    case 4:
        sc_io_sim_fault_ppm(w->rig.disk, SC_SIM_LATE, 500000);
        sc_io_sim_fault_late_ns(w->rig.disk, (1 + draw(w, 200)) * MS);
        break;
    case 5:
        atomic_store(&w->rig.memory.countdown, (int64_t)draw(w, 8));
        break;
    default:
        actor_faults_off(&w->actor);
        break;
    }
}

static void step_rare(struct world *w, struct open_request *open)
{
    struct sc_plugin_request *request = NULL;
    switch (draw(w, 8)) {
    case 0:
        (void)sc_plugin_reset(w->rig.conn, NULL);
        break;
    case 1:
        sc_plugin_evict_ask(w->rig.conn, NULL, 1 + draw(w, 2000000));
        break;
    case 2:
        request = sc_plugin_request_find(w->rig.conn, open->request);
        if (request != NULL && request->range_count > 0)
            sc_plugin_range_fail(w->rig.conn, request, draw(w, request->range_count),
                                 SPEC_E_CORRUPT, SC_STORE_TIER);
        break;
    case 3:
        rig_pass_ns(&w->rig, 11000 * MS);
        break;
    default:
        memory_rots(w, open);
        break;
    }
}

static void run_step(struct world *w)
{
    struct open_request *open = &w->open[draw(w, OPEN)];
    uint64_t kind = draw(w, 20);
    if (open->request == 0)
        step_lookup(w, open);
    else if (kind < 6)
        step_load(w, open);
    else if (kind < 9)
        step_stage(w, open);
    else if (kind < 12)
        step_store(w, open);
    else if (kind < 14) {
        rig_release(&w->rig, open->request);
        *open = (struct open_request){0};
    } else if (kind < 15)
        step_fault(w);
    else if (kind < 16)
        step_rare(w, open);
    else if (kind < 18)
        rig_pass_ns(&w->rig, draw(w, 30) * MS);
    else
        for (uint64_t i = draw(w, 6); i > 0; i--)
            (void)sc_exec_step_one(w->rig.conn->exec);
    (void)actor_caps(&w->actor);
    actor_tickets_poll(&w->actor, &w->tickets, false);
}

static void run_end(struct world *w)
{
    spec_status status;
    actor_faults_off(&w->actor);
    if (draw(w, 6) > 0) { /* else it is closed as it is */
        rig_pass_ns(&w->rig, 20000 * MS);
        actor_tickets_poll(&w->actor, &w->tickets, true);
        for (uint32_t p = 0; p < PROMPTS; p++) {
            struct spec_lookup_result result;
            CHECK(w, rig_peek(&w->rig, &w->prompts[p], 0, &result) == SPEC_OK);
            CHECK(w, result.state != SPEC_LOOKUP_PENDING);
        }
        for (uint32_t i = 0; i < OPEN; i++)
            if (w->open[i].request != 0)
                rig_release(&w->rig, w->open[i].request);
        rig_settle(&w->rig);
        rig_background(&w->rig);
        for (uint32_t p = 0; p < PROMPTS; p++)
            for (uint32_t tries = 0;; tries++) { /* what rots is found, and read again */
                CHECK(w, tries < 200);
                if (rig_read(&w->rig, &w->prompts[p], &status) != UINT64_MAX)
                    break;
            }
        CHECK(w, atomic_load(&w->rig.conn->poison.broken) == 0);
        CHECK(w, sc_plugin_reset(w->rig.conn, NULL) == SPEC_OK);
        rig_background(&w->rig);
        CHECK(w, actor_caps(&w->actor).host_bytes_used == 0);
    }
    rig_prompts_free_all(w->prompts, PROMPTS);
    rig_done(&w->rig);
}

static void run(uint64_t seed, void *user)
{
    struct world *sum = user, *w = calloc(1, sizeof(*w));
    char extra[512];
    assert_non_null(w);
    w->actor = actor_of(&w->rig, seed, 0, false);
    (void)snprintf(extra, sizeof(extra),
                   "\"disk_bytes\": \"%s\", \"segment_bytes\": \"1MiB\", \"lease_ns_max\": 0, %s",
                   seed % 3 == 0 ? "4MiB" : "64MiB", WAYS[seed % 4]);
    rig_begin_shape(&w->rig, true, extra, LAYERS, 3, 40, SPEC_DTYPE_F16);
    for (uint64_t p = 0; p < PROMPTS; p++)
        w->prompts[p] = rig_prompt(30 + p / 4, 70, p, 160 - 9 * p);
    for (uint64_t p = 0; p < PROMPTS; p += 1 + draw(w, 2))
        (void)rig_fill(&w->rig, &w->prompts[p]);
    for (; w->actor.step < STEPS; w->actor.step++)
        run_step(w);
    sum->loads += w->loads;
    sum->in_host_tier += w->in_host_tier;
    sum->staged += w->staged;
    sum->failed += w->failed;
    sum->pending += w->pending;
    run_end(w);
    free(w);
}

static void any_order_of_calls_and_faults_is_right(void **state)
{
    (void)state;
    struct world sum = {0};
    bool is_all = actor_seeds_run(40, run, &sum);
    print_message("loads %" PRIu64 " (failed %" PRIu64 "), rows of host memory %" PRIu64
                  ", staged %" PRIu64 ", pending %" PRIu64 "\n",
                  sum.loads, sum.failed, sum.in_host_tier, sum.staged, sum.pending);
    assert_true(!is_all || (sum.loads > 0 && sum.in_host_tier > 0 && sum.staged > 0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_order_of_calls_and_faults_is_right),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
