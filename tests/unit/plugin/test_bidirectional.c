/* Loads that end in the middle: a row that cannot be read while codes are decoded, a reset at any
 * moment of any kind of load, a handle that several threads release, a submission behind one that
 * never ends. What a load works on is there until it is through, and what a reset outran is STALE
 * and no damage.
 *
 * Threads: as each test says. */
#include "tests/unit/awaits.h"
#include "tests/unit/plugin/layered_fixture.h"
#include "tests/unit/threads.h"

#define LAYERED "\"preset\": \"layered-uniform\", \"prefetch\": {\"predictor\": \"none\"}"

static uint64_t corrupt_ranges(struct rig *rig)
{
    return atomic_load(&rig->conn->stats.corrupt_ranges);
}

/* Layer 3 of a request of its own, all exactly, fails at its first read: the first piece is gone.
 */
static void lose_the_first_piece(struct world *world)
{
    spec_request request = look(world, 0);
    struct shot shot;
    shot_make(&shot, world, request, 3, 0, 1000000);
    sc_fault_arm(&world->rig.conn->fault, SC_FAULT_READ, 0);
    assert_int_equal(fire(world, &shot), SPEC_E_IO);
    shot_release(&shot, world, request);
    rig_background(&world->rig);
}

enum kind { DIRECT, SUBMITTED, REFINED, RESCORED, AHEAD, KINDS };

/* What a load of the kind has behind it when its rows are asked for: its ticket, or 0. */
static spec_ticket prepare(struct world *world, struct shot *shot, spec_request request,
                           uint32_t layer, enum kind kind, uint32_t exact_ppm)
{
    if (kind == REFINED || kind == RESCORED)
        return fire_first(world, shot, request, layer, 50000, 0);
    if (kind == AHEAD)
        return fire_ahead(world, shot, request, layer, exact_ppm);
    shot_make(shot, world, request, layer, 0, exact_ppm);
    return 0;
}

static spec_status finish(struct world *world, struct shot *shot, enum kind kind,
                          spec_ticket ticket, uint32_t exact_ppm)
{
    if (kind == SUBMITTED) {
        spec_status status = sc_plugin_submit(world->rig.conn, &shot->item, 1, &ticket, NULL);
        return status != SPEC_OK ? status
                                 : sc_plugin_submit_wait(world->rig.conn, ticket, UINT64_MAX, NULL);
    }
    if (kind == DIRECT)
        return fire(world, shot);
    shot->item.refine_of = ticket;
    shot->item.flags = kind == RESCORED ? SPEC_ITEM_RESCORE : 0;
    shot->item.queries = kind != REFINED ? &shot->pass.q : NULL;
    shot->item.new_keys = kind != REFINED ? &shot->pass.fresh.memory : NULL;
    shot->select.exact_ppm = exact_ppm;
    return fire(world, shot);
}

/* Codes are there, and then the rows are not: known before a slab is decoded, so that all slabs are
 * left when the load fails. */
static void rows_that_are_gone_end_a_layered_load(void **state)
{
    (void)state;
    static const char *const EXTRA[] = {LAYERED, LAYERED ", \"store\": {\"layout\": \"split\"}"};
    for (uint32_t way = 0; way < 2 * KINDS; way++) {
        enum kind kind = (enum kind)(way / 2);
        struct world world;
        struct shot shot;
        world_open_quantised(&world, EXTRA[way % 2], 2, 2, 16, SPEC_DTYPE_F16, 200, 3);
        spec_request request = look(&world, 0);
        spec_ticket ticket = prepare(&world, &shot, request, 0, kind, 250000);
        rig_pass_ns(&world.rig, 1000000000);
        lose_the_first_piece(&world);
        assert_int_equal(finish(&world, &shot, kind, ticket, 250000), SPEC_E_CORRUPT);
        assert_int_equal(shot.item.status, SPEC_E_CORRUPT);
        assert_int_equal(shot.item.failed_position, 0);
        if (kind >= REFINED) /* what stands there stays so */
            assert_rows(&world, &shot, 0, 4, 2);
        spec_status again = finish(&world, &shot, kind, ticket, 250000); /* stays void */
        assert_int_equal(again, SPEC_E_CORRUPT);
        shot_release(&shot, &world, request);
        rig_landed(&world.rig);
        world_done(&world);
    }
}

/* ---- A worker decodes ------------------------------------------------------------------------ */

#define WIDE_ROWS 1100u /* of 4 KiB: enough for a worker to take some slabs */

struct wide { /* plain rows: what they decode to is not looked at, only what is exact */
    struct rig rig;
    struct prompt prompt;
    struct area area;
    uint8_t *query;
    struct spec_queries queries;
    uint64_t bits[(WIDE_ROWS + 63) / 64];
    uint8_t *columns; /* the same in columns: neighbours in a line are rows of both threads */
};

#define WIDE_BLOCK 128u
#define WIDE_ROOM  1152u /* tokens of whole blocks */

static void wide_open(struct wide *wide)
{
    *wide = (struct wide){.prompt = rig_prompt(5, 0, 0, WIDE_ROWS)};
    rig_init(&wide->rig, false,
             "\"preset\": \"layered-uniform\", \"max_requests\": 4, \"chunk_tokens\": 16");
    wide->rig.stage = "64MiB";
    rig_shape(&wide->rig, 2, 8, 128, SPEC_DTYPE_F16);
    rig_open(&wide->rig);
    wide->area = rig_area(&wide->rig, WIDE_ROWS);
    uint64_t bytes = rig_part_bytes(&wide->rig);
    wide->query = malloc(bytes);
    wide->columns = calloc(WIDE_ROOM, 2 * bytes);
    assert_true(wide->query != NULL && wide->columns != NULL);
    rig_row(&wide->rig, &wide->prompt, 7, 0, 0, wide->query);
    wide->queries = (struct spec_queries){.struct_size = sizeof(wide->queries),
                                          .dtype = wide->rig.dtype,
                                          .data = wide->query,
                                          .byte_count = bytes,
                                          .row_count = 1,
                                          .row_stride_bytes = bytes,
                                          .head_stride_bytes = bytes / wide->rig.heads,
                                          .first_position = WIDE_ROWS};
}

static void wide_done(struct wide *wide)
{
    free(wide->query);
    free(wide->columns);
    rig_area_free(&wide->area);
    rig_end(&wide->rig, &wide->prompt);
}

/* Stores what is not there, and waits for its codes. */
static void wide_fill(struct wide *wide)
{
    struct sc_store_stats stats;
    assert_int_equal(rig_fill(&wide->rig, &wide->prompt), SPEC_OK);
    do {
        rig_pass_ns(&wide->rig, 1000000);
        sc_store_stats(wide->rig.conn->store, &stats);
    } while (stats.is_building);
}

static struct spec_memory columns_of(const struct wide *wide)
{
    struct spec_memory memory = wide->area.memory;
    uint64_t part = rig_part_bytes(&wide->rig), head = part / wide->rig.heads;
    memory.k_base = wide->columns;
    memory.v_base = wide->columns + WIDE_BLOCK * head;
    memory.k_bytes = 2 * WIDE_ROOM * part;
    memory.v_bytes = memory.k_bytes - WIDE_BLOCK * head;
    memory.token_stride_bytes = 2;
    memory.k_element_stride_bytes = 2 * WIDE_BLOCK;
    memory.v_token_stride_bytes = head;
    memory.head_stride_bytes = 2 * WIDE_BLOCK * head;
    memory.block_tokens = WIDE_BLOCK;
    memory.block_stride_bytes = 2 * WIDE_BLOCK * part;
    return memory;
}

/* A token's K, as one row. */
static void columns_row(const struct wide *wide, uint64_t token, uint8_t *row)
{
    uint64_t part = rig_part_bytes(&wide->rig), head = part / wide->rig.heads;
    for (uint64_t i = 0; i < part; i += 2)
        memcpy(row + i,
               wide->columns + token / WIDE_BLOCK * 2 * WIDE_BLOCK * part +
                   i / head * 2 * WIDE_BLOCK * head + i % head * WIDE_BLOCK +
                   token % WIDE_BLOCK * 2,
               2);
}

/* Layer 0 after lookup; read `n` from the load's begin on fails. */
static spec_status wide_load(struct wide *wide, uint64_t n)
{
    struct rig *rig = &wide->rig;
    bool is_columns = n % 2 == 1;
    struct spec_memory columns = columns_of(wide);
    struct spec_lookup_result result = rig_lookup(rig, &wide->prompt);
    struct spec_select select = {
        .struct_size = sizeof(select), .given = SPEC_SELECT_EXACT, .exact_ppm = 5000};
    struct spec_important item = {.struct_size = sizeof(item),
                                  .request = result.request,
                                  .destination = is_columns ? &columns : &wide->area.memory,
                                  .queries = &wide->queries,
                                  .exact_bits = wide->bits,
                                  .exact_bit_words = (WIDE_ROWS + 63) / 64,
                                  .select = &select};
    struct sc_plugin_request *request = sc_plugin_request_find(rig->conn, result.request);
    assert_non_null(request);
    uint32_t looks = 0;
    while (result.matched_tokens > 0 &&
           (sc_store_selector_state(request->selectors[0].selector) == SPEC_PENDING ||
            sc_store_selector_state(request->selectors[1].selector) == SPEC_PENDING))
        await_or_fail(&looks, "selectors of two layers"); /* then reads are those of rows */
    sc_fault_arm(&rig->conn->fault, SC_FAULT_READ, n);
    spec_status status = sc_plugin_get_important(rig->conn, &item, 1, NULL);
    uint8_t row[8 * 128 * 2];
    for (uint64_t p = 0; status == SPEC_OK && p < result.matched_tokens; p++) {
        if (!(wide->bits[p / 64] >> (p % 64) & 1))
            continue;
        uint8_t have[sizeof(row)];
        rig_row(rig, &wide->prompt, p, 0, 0, row);
        memcpy(have, (uint8_t *)wide->area.memory.k_base + p * sizeof(row), sizeof(row));
        if (is_columns)
            columns_row(wide, p, have);
        assert_memory_equal(have, row, sizeof(row));
    }
    rig_release(rig, result.request);
    return status;
}

/* Real threads. The n-th read of few rows fails, while the worker and the caller are at many codes.
 */
static void a_bad_row_ends_a_load_that_a_worker_decodes(void **state)
{
    (void)state;
    struct wide wide;
    wide_open(&wide);
    uint64_t failed = 0;
    for (uint64_t n = 0; n < 8; n++) {
        wide_fill(&wide);
        spec_status status = wide_load(&wide, n);
        assert_true(status == SPEC_OK || status == SPEC_E_IO);
        failed += status != SPEC_OK;
        sc_fault_arm(&wide.rig.conn->fault, SC_FAULT_READ, UINT64_MAX >> 1);
        rig_background(&wide.rig);
    }
    assert_true(failed > 0);
    assert_int_equal(corrupt_ranges(&wide.rig), failed);
    wide_fill(&wide);
    assert_int_equal(wide_load(&wide, UINT64_MAX >> 1), SPEC_OK);
    wide_done(&wide);
}

/* ---- Resets in the middle -------------------------------------------------------------------- */

static const struct {
    const char *extra;
    bool is_layered;
    uint32_t exact_ppm;
    int64_t agree;
} WAYS[] = {
    {LAYERED, true, 250000, 3},
    {LAYERED ", \"store\": {\"layout\": \"split\"}", true, 250000, 3},
    {LAYERED, true, 1000000, 3},
    {"\"preset\": \"as-like\"", false, 0, 8},
    {"\"preset\": \"as-like\"", false, 0, 0},
    {"\"preset\": \"as-like\", \"store\": {\"layout\": \"split\"}", false, 0, 0},
    {"\"preset\": \"hinted\"", false, 0, 8},
    {"", false, 0, 3},
};

/* One load of layer 1; the reset comes `ns` after its beginning. false: it came behind its end. */
static bool outrun(uint32_t way, enum kind kind, uint64_t ns, uint64_t *ret_stale)
{
    struct world world;
    struct shot shot;
    world_open_quantised(&world, WAYS[way].extra, 2, 2, 16, SPEC_DTYPE_F16, 200, WAYS[way].agree);
    spec_request request = look(&world, 0);
    spec_ticket ticket = prepare(&world, &shot, request, 1, kind, WAYS[way].exact_ppm);
    shot.item.select = WAYS[way].is_layered ? &shot.select : NULL;
    shot.item.exact_bits = WAYS[way].is_layered ? shot.exact : NULL;
    struct resetter resetter = {.task.step = reset_step, .rig = &world.rig};
    struct sc_exec *exec = world.rig.conn->exec;
    sc_exec_post_at(exec, &resetter.task, SC_IO_CLASS_DEMAND, sc_exec_now_ns(exec) + ns);
    if (kind == DIRECT) {
        assert_int_equal(sc_plugin_begin_layer(world.rig.conn, &request, 1, 1, NULL), SPEC_OK);
        assert_int_equal(sc_plugin_prefetch_next(world.rig.conn, request, 0, &shot.pass.q, NULL),
                         SPEC_OK);
    }
    spec_status status = finish(&world, &shot, kind, ticket, WAYS[way].exact_ppm);
    bool is_over = sc_exec_cancel(exec, &resetter.task);
    assert_true(status == SPEC_OK || (status == SPEC_E_STALE && !is_over));
    if (status == SPEC_OK && WAYS[way].is_layered)
        assert_rows(&world, &shot, 0, 4, 2);
    *ret_stale += status == SPEC_E_STALE;
    assert_int_equal(corrupt_ranges(&world.rig), 0);
    shot_release(&shot, &world, request);
    rig_landed(&world.rig);
    assert_int_equal(atomic_load(&world.rig.conn->stats.requests_open), 0);
    world_done(&world);
    return !is_over;
}

/* The loop: at every moment at which something happens, of loads of every kind. */
static void a_reset_at_any_moment_is_no_damage(void **state)
{
    (void)state;
    uint64_t stale[KINDS] = {0};
    for (uint32_t way = 0; way < sizeof(WAYS) / sizeof(WAYS[0]); way++)
        for (enum kind kind = DIRECT; kind < KINDS; kind++) {
            if (kind >= REFINED && (!WAYS[way].is_layered || WAYS[way].exact_ppm == 1000000))
                continue;
            uint64_t ns = 5000;
            while (outrun(way, kind, ns, &stale[kind]))
                ns += 20000;
        }
    assert_true(stale[DIRECT] > 0 &&
                stale[SUBMITTED] > 0); /* the others read all they want at once */
}

/* ---- Releases -------------------------------------------------------------------------------- */

#define RELEASERS 4u

struct releaser {
    struct rig *rig;
    pthread_barrier_t *barrier;
    const spec_request *request;
    uint32_t rounds, released;
};

static void *release_all(void *user)
{
    struct releaser *releaser = user;
    for (uint32_t round = 0; round < releaser->rounds; round++) {
        (void)pthread_barrier_wait(releaser->barrier);
        spec_status status = sc_plugin_release(releaser->rig->conn, *releaser->request, NULL);
        releaser->released += status == SPEC_OK;
        if (status != SPEC_OK)
            assert_int_equal(status, SPEC_E_STALE);
        (void)pthread_barrier_wait(releaser->barrier);
    }
    return NULL;
}

/* Real threads: a host that loses count loses no request, and nobody else's. */
static void of_several_releases_one_is_it(void **state)
{
    (void)state;
    enum { ROUNDS = 200 };
    struct rig rig;
    struct releaser releasers[RELEASERS];
    pthread_barrier_t barrier;
    spec_request request = 0;
    uint64_t released = 0;
    rig_begin(&rig, false, "\"max_requests\": 2");
    struct prompt prompt = rig_prompt(6, 0, 0, 100);
    assert_int_equal(rig_fill(&rig, &prompt), SPEC_OK);
    assert_int_equal(pthread_barrier_init(&barrier, NULL, RELEASERS + 1), 0);
    for (uint32_t i = 0; i < RELEASERS; i++)
        releasers[i] = (struct releaser){&rig, &barrier, &request, ROUNDS, 0};
    const struct threads threads =
        threads_begin(release_all, releasers, sizeof(releasers[0]), RELEASERS);
    for (uint32_t round = 0; round < ROUNDS; round++) {
        request = rig_lookup(&rig, &prompt).request;
        (void)pthread_barrier_wait(&barrier);
        spec_request other = rig_lookup(&rig, &prompt).request; /* maybe in the slot they leave */
        (void)pthread_barrier_wait(&barrier);
        assert_int_equal(atomic_load(&rig.conn->stats.requests_open), 1);
        assert_int_equal(rig_load(&rig, other, &prompt, 0, 100, 1), SPEC_OK);
        rig_release(&rig, other);
    }
    threads_join(&threads);
    for (uint32_t i = 0; i < RELEASERS; i++)
        released += releasers[i].released;
    assert_int_equal(released, ROUNDS);
    (void)pthread_barrier_destroy(&barrier);
    rig_end(&rig, &prompt);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_that_are_gone_end_a_layered_load),
        cmocka_unit_test(a_bad_row_ends_a_load_that_a_worker_decodes),
        cmocka_unit_test(a_reset_at_any_moment_is_no_damage),
        cmocka_unit_test(of_several_releases_one_is_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
