/* Merges beside everything: threads decode token by token on a writer, so that chunk after chunk is
 * merged, while they look up, load, take leases and attach them, release, reset, checkpoint and
 * evict, and a reader follows and attaches too.
 *
 *   writer   DECODERS threads: lookup -> load -> a token a pass -> lease -> release
 *            LOOKERS threads: peek, or lookup or attach -> load -> release
 *            one: reset, checkpoint, evict, kick
 *   reader   LOOKERS threads
 *   truth    a row is a function of the tokens before it
 *
 * Holds: what is delivered is right; a load that fails has a reason: STALE, after a reset or what
 * was evicted. The last decode is merged, whatever came before.
 *
 * Threads: as above. */
#include "tests/unit/plugin/plugin_fixture.h"
#include "tests/unit/threads.h"

#include <inttypes.h>
#include <time.h>

#define CHUNK      16u
#define TOKENS     72u
#define PROMPTS    64u
#define DECODERS   2u
#define LOOKERS    2u
#define MERGES     10u /* until so many, */
#define ROUNDS_MAX 60u /* or so many rounds of a decoder; longer, until something was loaded */
#define LAST       4u  /* prompts, when all is still */
#define LEASES     8u
#define CONFIG                                                                                     \
    "\"chunk_tokens\": 16, \"disk_bytes\": \"1GiB\", \"segment_bytes\": \"32MiB\", "               \
    "\"lease_ns_max\": 600000000000, \"max_requests\": 32, \"maintain\": {\"bytes_per_s\": 0}"

struct races {
    struct rig writer, reader;
    struct prompt prompts[PROMPTS];
    pthread_mutex_t lock;
    struct {
        uint8_t bytes[64];
        uint32_t prompt;
        uint64_t count;
    } leases[LEASES]; /* guarded by lock; count 0: none */
    _Atomic uint32_t stop;
    _Atomic uint64_t loaded, attached, wrong;
};

struct worker {
    struct races *races;
    struct rig *rig;
    uint64_t random;
};

static uint64_t draw(struct worker *worker, uint64_t below)
{
    worker->random = rig_mix(worker->random);
    return worker->random % below;
}

/* cmocka's asserts are for the test's thread. */
static void expect(struct worker *worker, bool holds)
{
    if (!holds)
        atomic_fetch_add(&worker->races->wrong, 1);
}

static void load(struct worker *worker, spec_request request, const struct prompt *prompt,
                 uint64_t matched)
{
    struct rig *rig = worker->rig;
    for (uint32_t layer = 0; layer < rig->layers && matched > 0; layer++) {
        struct area area = rig_area(rig, matched + 1);
        struct spec_important item = rig_item(request, layer, &area.memory);
        spec_status status = sc_plugin_get_important(rig->conn, &item, 1, NULL);
        bool is_right = status == SPEC_OK && item.row_count == matched &&
                        rig_area_is_right(rig, &area, prompt, 0, matched, layer);
        expect(worker, is_right || status == SPEC_E_STALE || status == SPEC_E_DROPPED);
        atomic_fetch_add(&worker->races->loaded, is_right);
        rig_area_free(&area);
    }
}

static void lease_keep(struct worker *worker, const struct spec_lookup_result *result,
                       uint32_t prompt)
{
    struct races *races = worker->races;
    uint64_t at = draw(worker, LEASES);
    pthread_mutex_lock(&races->lock);
    memcpy(races->leases[at].bytes, result->lease, 64);
    races->leases[at].prompt = prompt;
    races->leases[at].count = result->matched_tokens;
    pthread_mutex_unlock(&races->lock);
}

/* A part of a prompt, or all of it. */
static void look(struct worker *worker)
{
    struct races *races = worker->races;
    uint32_t which = (uint32_t)draw(worker, PROMPTS);
    struct prompt part = races->prompts[which];
    struct spec_lookup_result result;
    part.count = 1 + draw(worker, part.count);
    if (draw(worker, 2) == 0) {
        expect(worker, rig_peek(worker->rig, &part, 0, &result) == SPEC_OK && result.request == 0);
        if (result.matched_tokens > 0)
            lease_keep(worker, &result, which);
        return;
    }
    if (rig_try_lookup(worker->rig, &part, 0, RIG_MAX, &result) != SPEC_OK)
        return; /* BUSY */
    load(worker, result.request, &part, result.matched_tokens);
    if (result.matched_tokens > 0)
        lease_keep(worker, &result, which);
    expect(worker, sc_plugin_release(worker->rig->conn, result.request, NULL) == SPEC_OK);
}

static void attach(struct worker *worker)
{
    struct races *races = worker->races;
    uint64_t at = draw(worker, LEASES);
    pthread_mutex_lock(&races->lock);
    uint8_t bytes[64];
    uint32_t which = races->leases[at].prompt;
    uint64_t count = races->leases[at].count;
    memcpy(bytes, races->leases[at].bytes, sizeof(bytes));
    pthread_mutex_unlock(&races->lock);
    struct spec_lookup_result result = {.struct_size = sizeof(result)};
    if (count == 0 || rig_attach(worker->rig, bytes, 0, &result) != SPEC_OK ||
        result.state == SPEC_LOOKUP_PENDING)
        return; /* STALE, BUSY, not yet */
    expect(worker, result.matched_tokens == count);
    load(worker, result.request, &races->prompts[which], result.matched_tokens);
    atomic_fetch_add(&races->attached, 1);
    expect(worker, sc_plugin_release(worker->rig->conn, result.request, NULL) == SPEC_OK);
}

static void *lookers(void *user)
{
    struct worker *worker = user;
    while (atomic_load(&worker->races->stop) == 0) {
        if (draw(worker, 2) == 0)
            look(worker);
        else
            attach(worker);
        (void)nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL); /* decoders go on */
    }
    return NULL;
}

static void decode(struct worker *worker, uint32_t which)
{
    struct rig *rig = worker->rig;
    struct prompt *prompt = &worker->races->prompts[which];
    struct spec_lookup_result result;
    if (rig_try_lookup(rig, prompt, 0, RIG_MAX, &result) != SPEC_OK)
        return;
    load(worker, result.request, prompt, result.matched_tokens);
    for (uint64_t p = result.matched_tokens; p < prompt->count; p++) {
        spec_ticket ticket = 0;
        spec_status status = SPEC_OK;
        for (uint32_t layer = 0; layer < rig->layers && status == SPEC_OK; layer++) {
            do /* others have the frames */
                status = rig_store_layer(rig, result.request, prompt, p, 1, layer, &ticket);
            while (status == SPEC_E_BUSY && sched_yield() == 0);
            if (status == SPEC_OK)
                status = rig_wait(rig, ticket);
        }
        if (status != SPEC_OK)
            break; /* a reset, or what it hangs on went */
    }
    expect(worker, sc_plugin_release(rig->conn, result.request, NULL) == SPEC_OK);
}

static uint64_t merged(const struct races *races)
{
    return atomic_load(&races->writer.conn->stats.compacted_chunks);
}

static void *decoders(void *user)
{
    struct worker *worker = user;
    struct races *races = worker->races;
    for (uint32_t round = 0;
         (round < ROUNDS_MAX && merged(races) < MERGES) || atomic_load(&races->loaded) == 0;
         round++) {
        decode(worker, (uint32_t)draw(worker, PROMPTS));
        look(worker);
    }
    return NULL;
}

static void *meddlers(void *user)
{
    struct worker *worker = user;
    spec_connector *conn = worker->rig->conn;
    while (atomic_load(&worker->races->stop) == 0) {
        uint64_t what = draw(worker, 64);
        if (what == 0)
            expect(worker, sc_plugin_reset(conn, NULL) == SPEC_OK);
        else if (what < 8)
            sc_plugin_kick(conn, SC_JOB_CHECKPOINT);
        else if (what < 20)
            atomic_store(&conn->evict.asked_runs, 1 + draw(worker, 60));
        sc_plugin_kick(conn, what < 40 ? SC_JOB_EVICT : SC_JOB_COMPACT);
        (void)nanosleep(&(struct timespec){.tv_nsec = 3000000}, NULL);
    }
    return NULL;
}

/* Nothing else goes on: a decode ends in as many pieces as chunks. */
static void check_end(struct races *races)
{
    struct worker worker = {.races = races, .rig = &races->writer, .random = 77};
    assert_int_equal(sc_plugin_reset(races->writer.conn, NULL), SPEC_OK);
    rig_background(&races->writer);
    uint64_t before = merged(races);
    for (uint32_t i = 0; i < LAST; i++)
        decode(&worker, i);
    while (merged(races) < before + LAST) /* they are, however slow the disk is */
        rig_pass_ns(&races->writer, 10000000);
    for (uint32_t turn = 0; turn < 2; turn++) {
        for (uint32_t i = 0; i < LAST; i++)
            assert_int_equal(rig_read(&races->writer, &races->prompts[i], NULL), TOKENS);
        rig_reopen(&races->writer);
    }
}

static void merges_run_beside_everything(void **state)
{
    (void)state;
    static struct races races;
    struct worker workers[2 * LOOKERS + DECODERS + 1];
    pthread_mutex_init(&races.lock, NULL);
    for (uint32_t i = 0; i < PROMPTS; i++) /* they part inside a chunk, and at one's end */
        races.prompts[i] = rig_prompt(i % 4, 4 * (i % 16), i, TOKENS);
    rig_init(&races.writer, false, CONFIG);
    races.writer.op = "64KiB"; /* frames for all */
    rig_open(&races.writer);
    rig_open_beside(&races.reader, &races.writer, SPEC_ROLE_READER, 0);
    struct threads decoding = {.count = 0}, others = {.count = 0};
    for (uint32_t count = 0; count < sizeof(workers) / sizeof(workers[0]); count++) {
        bool reads = count >= DECODERS + LOOKERS + 1;
        workers[count] = (struct worker){
            .races = &races, .rig = reads ? &races.reader : &races.writer, .random = 1000 + count};
        if (count < DECODERS)
            threads_add(&decoding, decoders, &workers[count]);
        else
            threads_add(&others, count == DECODERS ? meddlers : lookers, &workers[count]);
    }
    threads_join(&decoding);
    atomic_store(&races.stop, 1);
    threads_join(&others);
    print_message("%" PRIu64 " layers loaded, %" PRIu64 " leases attached, %" PRIu64 " merged\n",
                  atomic_load(&races.loaded), atomic_load(&races.attached), merged(&races));
    assert_int_equal(atomic_load(&races.wrong), 0);
    rig_leave(&races.reader);
    check_end(&races);
    rig_prompts_free_all(races.prompts, PROMPTS);
    rig_done(&races.writer);
    pthread_mutex_destroy(&races.lock);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(merges_run_beside_everything)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
