/* Whole layers read ahead by several requests, each as far as frames and slots go, in any order of
 * calls: the slots that they share beyond their own are many and few, held by loads nobody comes
 * for, and given back while others look for one. Everything asked for comes, and is right.
 *
 *   a seed -> frames, a host tier or none, a device; then steps: layers begun, items at once or
 *             submitted, with deadlines or without, requests released meanwhile
 *
 * Holds: a failure names its seed.
 * Threads: the loop's; four on a directory, whose requests are their own. */
#include "store/cache/inflight.h"
#include "tests/sample.h"
#include "tests/unit/plugin/plugin_fixture.h"
#include "tests/unit/threads.h"

#define ROWS     150u /* of 64 KiB, an operation each: more than a reader's own slots */
#define LAYERS   3u
#define REQUESTS 4u
#define ITEMS    3u
#define SUBMITS  4u
#define STEPS    60u
#define THREADS  4u
#define SEEDS    SAMPLE_OF(24u, 4u)
#define RUNS     SAMPLE_OF(3u, 1u)

struct shots {
    struct area area;
    uint32_t held;
    bool is_left; /* its request was released meanwhile */
};

struct submitted {
    spec_ticket ticket;
    uint64_t count;
    struct spec_important items[ITEMS];
    struct shots shots[ITEMS];
    bool is_out;
};

struct host {
    struct rig *rig;
    struct prompt prompt;
    uint64_t seed, state, full, late, stale;
    spec_request held[REQUESTS];
    uint32_t out[REQUESTS];
    struct submitted submits[SUBMITS];
};

static uint64_t draw(struct host *host, uint64_t below)
{
    host->state = rig_mix(host->state);
    return host->state % below;
}

static uint64_t items_make(struct host *host, struct spec_important *items, struct shots *shots)
{
    static const uint64_t LATE_NS[] = {1, 100000, 1000000, 10000000};
    uint64_t count = draw(host, ITEMS) + 1, made = 0;
    for (uint64_t i = 0; i < count; i++) {
        uint32_t held = (uint32_t)draw(host, REQUESTS);
        if (host->out[held] > 0)
            continue;
        shots[made] = (struct shots){.area = rig_area(host->rig, ROWS), .held = held};
        items[made] =
            (struct spec_important){.struct_size = sizeof(items[made]),
                                    .request = host->held[held],
                                    .layer = (uint32_t)draw(host, LAYERS),
                                    .destination = &shots[made].area.memory,
                                    .deadline_ns = draw(host, 3) == 0 ? LATE_NS[draw(host, 4)] : 0};
        made++;
    }
    return made;
}

static void items_check(struct host *host, struct spec_important *items, struct shots *shots,
                        uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        bool is_late = items[i].status == SPEC_E_TIMEOUT && items[i].deadline_ns != 0;
        bool is_stale = items[i].status == SPEC_E_STALE && shots[i].is_left;
        if (items[i].status != SPEC_OK && !is_late && !is_stale)
            fail_msg("seed %lu: %s", host->seed, sc_status_name(items[i].status));
        if (items[i].status == SPEC_OK &&
            !rig_area_is_right(host->rig, &shots[i].area, &host->prompt, 0, ROWS, items[i].layer))
            fail_msg("seed %lu: rows are wrong", host->seed);
        host->full += items[i].status == SPEC_OK;
        host->late += is_late;
        host->stale += is_stale;
        rig_area_free(&shots[i].area);
    }
}

static void step_get(struct host *host)
{
    struct spec_important items[ITEMS];
    struct shots shots[ITEMS];
    uint64_t count = items_make(host, items, shots);
    if (count > 0)
        (void)sc_plugin_get_important(host->rig->conn, items, count, NULL);
    items_check(host, items, shots, count);
}

static void step_submit(struct host *host)
{
    struct submitted *submitted = &host->submits[draw(host, SUBMITS)];
    if (submitted->is_out)
        return;
    submitted->count = items_make(host, submitted->items, submitted->shots);
    if (submitted->count == 0)
        return;
    assert_int_equal(sc_plugin_submit(host->rig->conn, submitted->items, submitted->count,
                                      &submitted->ticket, NULL),
                     SPEC_OK);
    submitted->is_out = true;
    for (uint64_t i = 0; i < submitted->count; i++)
        host->out[submitted->shots[i].held]++;
}

static void submit_wait(struct host *host, struct submitted *submitted)
{
    if (!submitted->is_out)
        return;
    (void)sc_plugin_submit_wait(host->rig->conn, submitted->ticket, UINT64_MAX, NULL);
    submitted->is_out = false;
    for (uint64_t i = 0; i < submitted->count; i++)
        host->out[submitted->shots[i].held] -= submitted->shots[i].is_left ? 0 : 1;
    items_check(host, submitted->items, submitted->shots, submitted->count);
}

static void held_leave(struct host *host, uint32_t held)
{
    for (uint32_t s = 0; s < SUBMITS; s++)
        for (uint64_t i = 0; host->submits[s].is_out && i < host->submits[s].count; i++)
            if (host->submits[s].shots[i].held == held)
                host->submits[s].shots[i].is_left = true;
    rig_release(host->rig, host->held[held]);
    host->out[held] = 0;
}

static void held_take(struct host *host, uint32_t held)
{
    struct spec_lookup_result result = rig_lookup(host->rig, &host->prompt);
    assert_int_equal(result.matched_tokens, ROWS);
    host->held[held] = result.request;
}

static void step(struct host *host)
{
    uint32_t held = (uint32_t)draw(host, REQUESTS);
    switch (draw(host, 10)) {
    case 0:
        held_leave(host, held);
        held_take(host, held);
        break;
    case 1:
    case 2:
    case 3:
        if (host->out[held] == 0)
            assert_int_equal(sc_plugin_begin_layer(host->rig->conn, &host->held[held], 1,
                                                   (uint32_t)draw(host, LAYERS), NULL),
                             SPEC_OK);
        break;
    case 4:
        rig_pass_ns(host->rig, draw(host, 5000000));
        break;
    case 5:
    case 6:
        step_submit(host);
        break;
    case 7:
        submit_wait(host, &host->submits[draw(host, SUBMITS)]);
        break;
    default:
        step_get(host);
        break;
    }
}

static void steps(struct host *host)
{
    for (uint32_t i = 0; i < REQUESTS; i++)
        held_take(host, i);
    for (uint32_t i = 0; i < STEPS; i++)
        step(host);
}

static void *work(void *user)
{
    struct host *host = user;
    steps(host);
    for (uint32_t i = 0; i < SUBMITS; i++)
        submit_wait(host, &host->submits[i]);
    for (uint32_t i = 0; i < REQUESTS; i++)
        held_leave(host, i);
    return NULL;
}

/* Frames and slots are all back. */
static void all_is_back(struct rig *rig, uint64_t *ret_met)
{
    const struct sc_inflight *flight =
        (const struct sc_inflight *)(const void *)rig->conn->requests.slots[0].readers[0].reader;
    struct sc_inflight_commons *commons = flight->memory.commons;
    struct sc_store_stats stats;
    for (uint32_t i = 0; i < 1000; i++) { /* what still flies lands */
        sc_store_stats(rig->conn->store, &stats);
        if (stats.staging_bytes_used == 0)
            break;
        rig_pass_ns(rig, 10000000);
    }
    assert_int_equal(stats.staging_bytes_used, 0);
    pthread_mutex_lock(&commons->lock); /* who gave back the last frame has given its slot, too */
    assert_true(atomic_load(&commons->left) == commons->slots_max);
    ret_met[3] += commons->used;
    pthread_mutex_unlock(&commons->lock);
    assert_int_equal(atomic_load(&rig->conn->stats.corrupt_ranges), 0);
}

/* The store of a seed, filled. config: [512] */
static void world_open(struct host *host, struct rig *rig, bool is_sim, char *config)
{
    static const uint64_t RATES[] = {0, 5000, 100000};
    static const char *const STAGES[] = {"16MiB", "24MiB", "64MiB"};
    (void)snprintf(
        config, 512,
        "\"preset\": \"as-like\", \"chunk_tokens\": 16, \"max_requests\": 64, \"host_bytes\": %s",
        draw(host, 2) == 0 ? "0" : "\"12MiB\"");
    if (is_sim)
        (void)snprintf(config + strlen(config), 512 - strlen(config),
                       ", \"sim\": {\"bytes_per_s\": 5000000000, \"op_ns\": 80000, "
                       "\"ops_per_s\": %lu, \"seed\": %lu}",
                       RATES[draw(host, 3)], host->seed);
    rig_init(rig, is_sim, config);
    rig->backend = host->seed % 2 == 0 ? "pread" : "auto";
    rig_shape(rig, LAYERS, 8, 1024, SPEC_DTYPE_F32);
    rig->op = draw(host, 3) > 0 ? "64KiB" : "1MiB";
    rig->stage = STAGES[draw(host, 3)];
    rig_open(rig);
    host->rig = rig;
    host->prompt = rig_prompt(1, 0, 0, ROWS);
    for (uint64_t end = 30; end <= ROWS; end += 30) { /* more at once is dropped: frames are few */
        struct prompt start = {end, host->prompt.tokens, host->prompt.history};
        assert_int_equal(rig_fill(rig, &start), SPEC_OK);
    }
}

static void host_count(const struct host *host, uint64_t *ret_met)
{
    ret_met[0] += host->full;
    ret_met[1] += host->late;
    ret_met[2] += host->stale;
}

static void met_print(const uint64_t *met)
{
    print_message("%lu delivered, %lu late, %lu stale, %lu common slots\n", met[0], met[1], met[2],
                  met[3]);
}

static void all_that_is_asked_for_comes(void **state)
{
    (void)state;
    uint64_t met[4] = {0};
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        static struct host host;
        static struct rig rig;
        char config[512];
        host = (struct host){.seed = seed, .state = seed};
        world_open(&host, &rig, true, config);
        sc_io_sim_fault_late_ns(rig.disk, 2000000);
        sc_io_sim_fault_ppm(rig.disk, SC_SIM_LATE, draw(&host, 2) * 50000);
        (void)work(&host);
        host_count(&host, met);
        all_is_back(&rig, met);
        rig_end(&rig, &host.prompt);
    }
    met_print(met);
    assert_true(met[1] > 0 && met[2] > 0 && met[3] > 0);
}

static void and_to_threads(void **state)
{
    (void)state;
    uint64_t met[4] = {0};
    for (uint64_t seed = 1; seed <= RUNS; seed++) {
        static struct host hosts[THREADS];
        static struct rig rig;
        char config[512];
        hosts[0] = (struct host){.seed = seed, .state = seed};
        world_open(&hosts[0], &rig, false, config);
        for (uint64_t i = 1; i < THREADS; i++) {
            hosts[i] = hosts[0];
            hosts[i].state += i;
        }
        threads_run(work, hosts, sizeof(hosts[0]), THREADS);
        for (uint64_t i = 0; i < THREADS; i++)
            host_count(&hosts[i], met);
        all_is_back(&rig, met);
        rig_end(&rig, &hosts[0].prompt);
    }
    met_print(met);
}

/* In the midst of it the connector closes: nothing is delivered afterwards, or left behind. */
static void a_close_ends_it_all(void **state)
{
    (void)state;
    for (uint64_t seed = 100; seed < 100 + SEEDS; seed++) {
        static struct host host;
        static struct rig rig;
        char config[512];
        host = (struct host){.seed = seed, .state = seed};
        world_open(&host, &rig, seed % 4 != 0, config);
        steps(&host);
        for (uint32_t i = 0; i < SUBMITS; i++)
            step_submit(&host);
        rig_close(&rig);
        for (uint32_t s = 0; s < SUBMITS; s++)
            for (uint64_t i = 0; host.submits[s].is_out && i < host.submits[s].count; i++)
                rig_area_free(&host.submits[s].shots[i].area);
        rig_end(&rig, &host.prompt);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_that_is_asked_for_comes),
        cmocka_unit_test(and_to_threads),
        cmocka_unit_test(a_close_ends_it_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
