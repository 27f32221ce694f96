/* Passes that staging cannot hold, on many threads, beside loads, aborts, resets, evictions,
 * failing and stalling devices. What a ticket calls kept is found; what is found is right.
 *
 * Threads: the hosts' of a case, and one that disturbs them. */
#include "base/fault.h"
#include "tests/unit/plugin/gate.h"
#include "tests/unit/plugin/plugin_fixture.h"
#include "tests/unit/threads.h"
#include <pthread.h>
#include <time.h>

#ifdef SC_SANITIZED
#define ROUNDS 1u
#else
#define ROUNDS 2u
#endif

#define MORE 4u /* tokens behind a pass */

struct form {
    const char *name, *extra, *stage;
    uint32_t layers, heads, head_size;
    uint64_t tokens_most;
    bool resets, evicts, fails, stalls, wait_forever;
};

struct world {
    struct rig rig;
    struct gate gate;
    const struct form *form;
    _Atomic uint64_t disturbed, passes, cut, whole, aborted, loads, decoded, decoded_lost;
    _Atomic bool is_over;
};

struct host {
    struct world *world;
    uint64_t random;
};

static uint64_t draw(struct host *host, uint64_t below)
{
    host->random = host->random * 6364136223846793005ull + 1442695040888963407ull;
    return (host->random >> 33) % below;
}

#define CHECK(x)                                                                                   \
    do {                                                                                           \
        if (!(x)) {                                                                                \
            (void)fprintf(stderr, "%s:%d: %s (%s)\n", __FILE__, __LINE__, #x, world->form->name);  \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

static uint64_t disturbed(struct world *world)
{
    return atomic_load(&world->disturbed) + sc_counted(&world->rig.conn->stats.evicted_chunks);
}

static spec_status store_layer(struct host *host, spec_request request, const struct prompt *prompt,
                               uint64_t first, uint64_t count, uint32_t layer, uint64_t wait_ns,
                               spec_ticket *ret_ticket)
{
    struct rig *rig = &host->world->rig;
    struct area area = rig_area(rig, count);
    rig_area_fill(rig, &area, prompt, first, count, layer);
    struct spec_store_params params = rig_store_params(request, layer, first, count, &area.memory);
    if (wait_ns > 0) {
        params.flags |= SPEC_STORE_WAIT;
        params.wait_ns = wait_ns;
    }
    spec_status status = sc_plugin_store(rig->conn, &params, 1, ret_ticket, NULL);
    rig_area_free(&area);
    return status;
}

/* Waits in short steps; kept only grows, and is found as long as nothing is evicted. */
static spec_status await(struct host *host, spec_ticket ticket, const struct prompt *prompt,
                         uint64_t first, uint64_t count, uint64_t seen, uint64_t *ret_kept)
{
    struct world *world = host->world;
    struct rig *rig = &world->rig;
    spec_status status = SPEC_PENDING;
    uint64_t before = 0, kept = 0;
    while (status == SPEC_PENDING) {
        spec_status waited =
            sc_plugin_wait_kept(rig->conn, &ticket, 1, draw(host, 3000000), &status, &kept, NULL);
        CHECK(waited == (status == SPEC_PENDING ? SPEC_E_TIMEOUT : SPEC_OK));
        CHECK(kept >= before && kept <= count);
        before = kept;
        if (kept > 0 && draw(host, 4) == 0) {
            struct spec_lookup_result found;
            CHECK(rig_peek(rig, prompt, 0, &found) == SPEC_OK);
            CHECK(found.matched_tokens >= first + kept || disturbed(world) != seen);
        }
    }
    CHECK(status != SPEC_OK || kept == count);
    CHECK(status == SPEC_OK || status == SPEC_E_BUSY || status == SPEC_E_DROPPED ||
          status == SPEC_E_IO || status == SPEC_E_NO_SPACE);
    struct spec_lookup_result found;
    CHECK(rig_peek(rig, prompt, 0, &found) == SPEC_OK);
    if (kept > 0)
        CHECK(found.matched_tokens >= first + kept || disturbed(world) != seen);
    *ret_kept = kept;
    return status;
}

static void load(struct host *host, spec_request request, const struct prompt *prompt,
                 uint64_t matched)
{
    struct rig *rig = &host->world->rig;
    struct world *world = host->world;
    for (uint32_t layer = 0; layer < rig->layers && matched > 0; layer++) {
        struct area area = rig_area(rig, matched + 1);
        struct spec_important item = rig_item(request, layer, &area.memory);
        struct spec_error error = {.struct_size = sizeof(error)};
        spec_status status = sc_plugin_get_important(rig->conn, &item, 1, &error);
        if (status == SPEC_E_INVALID)
            (void)fprintf(stderr, "%s\n", error.text);
        CHECK(status != SPEC_E_INVALID);
        CHECK(status != SPEC_OK || (item.row_count == matched &&
                                    rig_area_is_right(rig, &area, prompt, 0, matched, layer)));
        rig_area_free(&area);
        if (status != SPEC_OK)
            return;
    }
    atomic_fetch_add(&host->world->loads, 1);
}

/* A pass of one request, and how far it is stored. */
struct pass {
    struct prompt prompt;
    spec_request request;
    uint64_t first, tokens, seen, kept;
    spec_ticket ticket;
};

/* Tokens that are decoded behind what is kept, or behind a pass that is still being stored. */
static void decode(struct host *host, struct pass *pass, bool is_early)
{
    struct world *world = host->world;
    for (uint64_t i = 0; i < MORE && draw(host, 4) > 0; i++) {
        spec_ticket ticket = 0;
        uint64_t at = is_early ? pass->tokens + i : pass->first + pass->kept, kept = 0;
        uint64_t count = is_early ? 1 : 1 + draw(host, 3);
        spec_status status = SPEC_OK;
        if (!is_early && at + count > pass->tokens)
            return;
        for (uint32_t layer = 0; layer < world->form->layers && status == SPEC_OK; layer++)
            status = store_layer(host, pass->request, &pass->prompt, at, count, layer, 0, &ticket);
        CHECK(status == SPEC_OK || (status == SPEC_E_STALE && world->form->resets));
        if (status != SPEC_OK)
            return;
        if (is_early && draw(host, 2) == 0) {
            sc_plugin_ticket_forget(world->rig.conn, ticket);
            continue;
        }
        status = await(host, ticket, &pass->prompt, at, count, pass->seen, &kept);
        atomic_fetch_add(&world->decoded, 1);
        atomic_fetch_add(&world->decoded_lost, !is_early && status == SPEC_E_BUSY);
        pass->kept += is_early ? 0 : kept;
        if (!is_early && kept < count)
            return;
    }
}

static spec_status await_pass(struct host *host, struct pass *pass)
{
    return await(host, pass->ticket, &pass->prompt, pass->first, pass->tokens - pass->first,
                 pass->seen, &pass->kept);
}

/* The pass has all its layers: it is released, waited for, or followed by others. */
static void end_pass(struct host *host, struct pass *pass)
{
    struct world *world = host->world;
    spec_status status;
    if (draw(host, 4) == 0) {
        (void)sc_plugin_release(world->rig.conn, pass->request, NULL);
        status = await_pass(host, pass);
    } else if (draw(host, 2) == 0) {
        decode(host, pass, true);
        status = await_pass(host, pass);
    } else {
        status = await_pass(host, pass);
        decode(host, pass, false);
    }
    atomic_fetch_add(&world->cut, status != SPEC_OK && pass->kept > 0);
    atomic_fetch_add(&world->whole, status == SPEC_OK);
}

static void store(struct host *host, struct pass *pass)
{
    static const uint64_t WAITS[] = {0, 0, 0, 1, 300000, 5000000, 30000000, 0};
    struct world *world = host->world;
    const struct form *form = world->form;
    uint64_t wait_ns = WAITS[draw(host, 8)];
    uint32_t stop = draw(host, 5) == 0 ? (uint32_t)draw(host, form->layers) : form->layers;
    spec_status status = SPEC_OK;
    if (form->wait_forever && draw(host, 3) == 0)
        wait_ns = UINT64_MAX;
    for (uint32_t layer = 0; layer < stop && status == SPEC_OK; layer++)
        status = store_layer(host, pass->request, &pass->prompt, pass->first,
                             pass->tokens - pass->first, layer, wait_ns, &pass->ticket);
    CHECK(status == SPEC_OK || (status == SPEC_E_STALE && form->resets));
    atomic_fetch_add(&world->passes, 1);
    if (status == SPEC_OK && stop == form->layers)
        end_pass(host, pass);
    if (stop < form->layers) {
        atomic_fetch_add(&world->aborted, 1);
        if (draw(host, 2) == 0) /* else the release does it */
            (void)sc_plugin_store_abort(world->rig.conn, pass->request, 0, NULL);
    }
}

static void *host_run(void *user)
{
    struct host *host = user;
    struct world *world = host->world;
    uint64_t most = world->form->tokens_most;
    for (uint32_t round = 0; round < ROUNDS; round++) {
        struct pass pass = {.tokens = most / 8 + draw(host, most), .seen = disturbed(world)};
        struct spec_lookup_result found;
        uint64_t seed = draw(host, 5), shared = draw(host, 2) * pass.tokens / 2;
        pass.prompt = rig_prompt(seed, shared, draw(host, 6), pass.tokens + MORE);
        if (rig_try_lookup(&world->rig, &pass.prompt, 0, RIG_MAX, &found) == SPEC_OK) {
            pass.request = found.request;
            pass.first = found.matched_tokens;
            if (draw(host, 3) == 0)
                load(host, found.request, &pass.prompt, pass.first);
            if (draw(host, 4) == 0 && pass.first > 100)
                pass.first -= draw(host, 100);
            if (pass.first < pass.tokens)
                store(host, &pass);
            (void)sc_plugin_release(world->rig.conn, found.request, NULL);
        }
        rig_prompt_free(&pass.prompt);
    }
    return NULL;
}

static void *disturb(void *user)
{
    struct host *host = user;
    struct world *world = host->world;
    const struct form *form = world->form;
    while (!atomic_load(&world->is_over)) {
        struct timespec pause = {0, (long)(1000000 + draw(host, 20000000))};
        (void)nanosleep(&pause, NULL);
        uint64_t what = draw(host, 12);
        if (what == 0 && form->resets) {
            atomic_fetch_add(&world->disturbed, 1);
            (void)sc_plugin_reset(world->rig.conn, NULL);
            atomic_fetch_add(&world->disturbed, 1);
        } else if (what <= 1 && form->evicts) {
            (void)rig_maintain(&world->rig, SPEC_MAINTAIN_EVICT);
        } else if (what == 2 && form->fails) {
            atomic_fetch_add(&world->disturbed, 1);
            sc_fault_arm(&world->rig.conn->fault, draw(host, 2) ? SC_FAULT_WRITE : SC_FAULT_RESERVE,
                         draw(host, 60));
        } else if (what <= 8 && form->stalls) {
            gate_shut(&world->gate, true);
            struct timespec stall = {0, (long)draw(host, 30000000)};
            (void)nanosleep(&stall, NULL);
            gate_shut(&world->gate, false);
        }
    }
    return NULL;
}

static void run(const struct form *form, uint32_t hosts, uint64_t seed)
{
    static struct world world_of;
    struct world *world = &world_of;
    *world = (struct world){.gate = GATE_OPEN, .form = form};
    struct rig *rig = &world->rig;
    rig_init(rig, false, form->extra);
    rig_shape(rig, form->layers, form->heads, form->head_size, SPEC_DTYPE_F16);
    rig->stage = form->stage;
    rig_open(rig);
    sc_fault_gate_set(&rig->conn->fault, gate_pass, &world->gate);
    struct host of[33];
    for (uint32_t i = 0; i <= hosts; i++)
        of[i] = (struct host){world, rig_mix(seed * 100 + i)};
    pthread_t disturber;
    assert_int_equal(pthread_create(&disturber, NULL, disturb, &of[hosts]), 0);
    struct threads threads = threads_begin(host_run, of, sizeof(of[0]), hosts);
    threads_join(&threads);
    atomic_store(&world->is_over, true);
    pthread_join(disturber, NULL);
    rig_settle(rig);
    rig_background(rig);
    for (uint32_t i = 0; i < 2000 && rig_store_stats(rig).staging_bytes_used > 0; i++)
        usleep(1000);
    assert_int_equal(rig_store_stats(rig).staging_bytes_used, 0);
    rig_check_index(rig);
    print_message("%s: %llu passes, %llu whole, %llu cut, %llu aborted, %llu loads, %llu decoded, "
                  "%llu of them lost; evicted %llu\n",
                  form->name, (unsigned long long)world->passes, (unsigned long long)world->whole,
                  (unsigned long long)world->cut, (unsigned long long)world->aborted,
                  (unsigned long long)world->loads, (unsigned long long)world->decoded,
                  (unsigned long long)world->decoded_lost,
                  (unsigned long long)sc_counted(&rig->conn->stats.evicted_chunks));
    uint64_t before[5][6];
    for (uint32_t reopened = 0; reopened < 2; reopened++) {
        for (uint64_t s = 0; s < 5; s++)
            for (uint64_t b = 0; b < 6; b++) {
                struct prompt prompt = rig_prompt(s, 0, b, form->tokens_most);
                spec_status status;
                uint64_t read = rig_read(rig, &prompt, &status);
                if (read == UINT64_MAX)
                    print_message("read: %d\n", status);
                if (reopened && !form->evicts && !form->resets && !form->fails)
                    assert_int_equal(read, before[s][b]);
                before[s][b] = read;
                rig_prompt_free(&prompt);
            }
        if (!reopened)
            rig_reopen(rig);
    }
    assert_int_equal(sc_plugin_reset(rig->conn, NULL), SPEC_OK);
    for (uint32_t i = 0; i < 3000 && rig_store_stats(rig).extent_bytes > 0; i++)
        usleep(1000);
    assert_int_equal(rig_store_stats(rig).extent_bytes, 0); /* nothing that was cut has leaked */
    rig_done(rig);
}

#define BASE "\"max_requests\": 24, \"lease_ns_max\": 1000000, \"segment_bytes\": \"4MiB\""
static const struct form FORMS[] = {
    {"plain 16 KiB rows", BASE ", \"disk_bytes\": \"2GiB\"", "16MiB", 6, 32, 128, 600, false, false,
     false, true, false},
    {"64 B rows, chunk 16", BASE ", \"disk_bytes\": \"2GiB\", \"chunk_tokens\": 16", "16MiB", 40, 1,
     16, 10000, false, false, false, true, false},
    {"1 KiB rows, resets", BASE ", \"disk_bytes\": \"1GiB\"", "16MiB", 12, 4, 64, 3000, true, true,
     false, true, false},
    {"split, probes, full disk",
     BASE ", \"disk_bytes\": \"64MiB\", \"preset\": \"impress-itf\", \"select\": {\"min_tokens\": "
          "16777216, \"min_share_ppm\": 1000000}, \"store\": {\"layout\": "
          "\"split\"}",
     "16MiB", 12, 4, 64, 2500, false, true, false, true, false},
    {"faults",
     BASE ", \"disk_bytes\": \"128MiB\", \"host_write_through\": \"yes\", \"host_bytes\": \"8MiB\"",
     "16MiB", 12, 4, 64, 2500, true, true, true, true, false},
    {"layered, chunk 256",
     BASE
     ", \"disk_bytes\": \"1GiB\", \"preset\": \"layered-uniform\", \"select\": {\"min_tokens\": "
     "16777216, \"min_share_ppm\": 1000000}, "
     "\"chunk_tokens\": 256, \"layered\": {\"exact_ppm\": 1000000}",
     "16MiB", 10, 4, 64, 3000, false, false, false, true, false},
    {"layered, all",
     BASE
     ", \"disk_bytes\": \"96MiB\", \"preset\": \"layered-uniform\", \"select\": {\"min_tokens\": "
     "16777216, \"min_share_ppm\": 1000000}, "
     "\"host_write_through\": \"yes\", \"host_bytes\": \"8MiB\", \"layered\": {\"exact_ppm\": "
     "1000000}",
     "16MiB", 10, 4, 64, 3000, true, true, true, true, false},
    {"budget", BASE ", \"disk_bytes\": \"1GiB\", \"store\": {\"write_budget\": \"200MiB\"}",
     "16MiB", 12, 4, 64, 3000, false, false, false, true, false},
    {"wait forever", BASE ", \"disk_bytes\": \"1GiB\"", "16MiB", 12, 4, 64, 3000, true, false,
     false, true, true},
};

static void many_threads_store_more_than_staging_holds(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < sizeof(FORMS) / sizeof(FORMS[0]); i++)
        run(&FORMS[i], 8, i + 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(many_threads_store_more_than_staging_holds)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
