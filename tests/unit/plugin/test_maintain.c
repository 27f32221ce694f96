/* maintain: what it starts, what it refuses, and that it races with nothing. */
#include "hashing/radix_internal.h"
#include "tests/unit/plugin/plugin_fixture.h"
#include "tests/unit/threads.h"

static uint64_t checkpoints(struct rig *rig)
{
    struct sc_store_stats store = rig_store_stats(rig);
    return store.checkpoints;
}

static void fill(struct rig *rig, uint64_t seed, uint64_t tokens)
{
    struct prompt prompt = rig_prompt(seed, 0, 0, tokens);
    assert_int_equal(rig_fill(rig, &prompt), SPEC_OK);
    rig_prompt_free(&prompt);
}

static void flags_are_checked(void **state)
{
    (void)state;
    struct rig rig;
    rig_begin(&rig, true, "");
    static const struct {
        uint32_t flags;
        spec_status status;
    } CASES[] = {
        {0, SPEC_E_INVALID},
        {128, SPEC_E_INVALID},
        {SPEC_MAINTAIN_ERASE_SALT, SPEC_E_INVALID}, /* without a salt */
        {SPEC_MAINTAIN_EVICT | 1u << 31, SPEC_E_INVALID},
        {SPEC_MAINTAIN_REORDER, SPEC_OK},
        {SPEC_MAINTAIN_EVICT | SPEC_MAINTAIN_REORDER, SPEC_OK},
        {SPEC_MAINTAIN_CHECKPOINT, SPEC_OK},
        {SPEC_MAINTAIN_EVICT, SPEC_OK},
        {SPEC_MAINTAIN_EVICT | SPEC_MAINTAIN_CHECKPOINT, SPEC_OK},
        {SPEC_MAINTAIN_BUILD, SPEC_OK},
    };
    for (uint32_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++)
        assert_int_equal(rig_maintain(&rig, CASES[i].flags), CASES[i].status);
    assert_int_equal(sc_plugin_maintain(rig.conn, NULL, NULL), SPEC_E_INVALID);
    rig.conn->ranks.role = SPEC_ROLE_READER;
    assert_int_equal(rig_maintain(&rig, SPEC_MAINTAIN_EVICT), SPEC_E_UNSUPPORTED);
    rig.conn->ranks.role = SPEC_ROLE_WRITER;
    rig_done(&rig);
}

static uint32_t job_runs;

static bool kicks_itself(spec_connector *conn)
{
    if (job_runs++ == 0)
        sc_plugin_kick(conn, SC_JOB_SPARE);
    return false;
}

/* A job that is kicked while it runs may have looked at something that has changed since. */
static void a_kick_during_a_step_is_followed_by_another(void **state)
{
    (void)state;
    struct rig rig;
    rig_init(&rig, true, "");
    rig_open(&rig);
    job_runs = 0;
    rig.conn->jobs.slots[SC_JOB_SPARE].run = kicks_itself;
    sc_plugin_kick(rig.conn, SC_JOB_SPARE);
    sc_plugin_kick(rig.conn, SC_JOB_SPARE); /* it waits: one step does for both */
    rig_background(&rig);
    assert_int_equal(job_runs, 2);
    rig_done(&rig);
}

/* More at once than one step of telling the log takes. */
static void every_piece_below_one_that_fails_leaves_the_log(void **state)
{
    (void)state;
    struct rig rig;
    struct sc_store_stats stats;
    rig_init(&rig, true, "\"chunk_tokens\": 16, \"disk_bytes\": \"64MiB\"");
    rig_open(&rig);
    fill(&rig, 8, 600 * 16);
    sc_store_stats(rig.conn->store, &stats);
    assert_int_equal(stats.piece_count, 600);
    struct sc_radix_ref first = sc_plugin_ref_of(sc_store_piece_mark(rig.conn->store, 1));
    sc_plugin_piece_fail(rig.conn, first, 1);
    rig_background(&rig);
    sc_store_stats(rig.conn->store, &stats);
    assert_int_equal(stats.piece_count, 0);
    rig_done(&rig);
}

/* The log is shorter after it, and says the same. */
static void a_checkpoint_runs_in_the_background(void **state)
{
    (void)state;
    struct rig rig;
    rig_begin(&rig, true, "\"chunk_tokens\": 16");
    for (uint64_t seed = 0; seed < 10; seed++)
        fill(&rig, seed, 50);
    rig_background(&rig);
    uint64_t before = checkpoints(&rig);
    assert_int_equal(rig_maintain(&rig, SPEC_MAINTAIN_CHECKPOINT), SPEC_OK);
    assert_int_equal(checkpoints(&rig), before); /* only begun: the loop stands still */
    rig_background(&rig);
    assert_int_equal(checkpoints(&rig), before + 1);
    fill(&rig, 100, 50);
    for (uint32_t round = 0; round < 2; round++) {
        for (uint64_t seed = 0; seed < 10; seed++) {
            struct prompt prompt = rig_prompt(seed, 0, 0, 50);
            assert_int_equal(rig_read(&rig, &prompt, NULL), 50);
            rig_prompt_free(&prompt);
        }
        rig_reopen(&rig);
    }
    rig_done(&rig);
}

/* An eighth of the disk is free or on its way afterwards, and no more than needed has gone. */
static void evict_makes_an_eighth_free(void **state)
{
    (void)state;
    struct rig rig;
    rig_begin_shape(&rig, true, "\"disk_bytes\": \"8MiB\", \"segment_bytes\": \"1MiB\"", 2, 2, 64,
                    SPEC_DTYPE_F32);
    struct sc_store_free_space room;
    sc_store_free_space(rig.conn->store, &room);
    uint64_t seed = 0;
    for (; room.free_bytes > room.bytes_max / 10; seed++) {
        fill(&rig, seed, 30);
        sc_store_free_space(rig.conn->store, &room);
    }
    rig_background(&rig);
    assert_int_equal(atomic_load(&rig.conn->stats.evicted_chunks), 0);
    assert_int_equal(rig_maintain(&rig, SPEC_MAINTAIN_EVICT), SPEC_OK);
    rig_background(&rig);
    sc_store_free_space(rig.conn->store, &room);
    assert_true(room.free_bytes + room.quarantine_bytes >= room.bytes_max / 8);
    assert_true(room.quarantine_bytes > 0); /* leases are 30 s */
    uint64_t evicted = atomic_load(&rig.conn->stats.evicted_chunks);
    assert_true(evicted > 0 && evicted < seed);
    assert_int_equal(rig_maintain(&rig, SPEC_MAINTAIN_EVICT), SPEC_OK);
    rig_background(&rig);
    assert_int_equal(atomic_load(&rig.conn->stats.evicted_chunks), evicted);
    rig_done(&rig);
}

struct worker {
    struct rig *rig;
    uint64_t number;
};

static uint32_t kicks_left, steps;

/* A job's step during which the job is kicked again. */
static bool step_that_is_kicked(spec_connector *conn)
{
    steps++;
    if (kicks_left > 0) {
        kicks_left--;
        sc_plugin_kick(conn, SC_JOB_TIDY);
    }
    return false;
}

/* Each kick during a step causes another step. Kicks before the step begins are one. */
static void a_kick_during_a_step_is_not_lost(void **state)
{
    (void)state;
    struct rig rig;
    rig_init(&rig, true, "");
    rig_open(&rig);
    rig_background(&rig);
    rig.conn->jobs.slots[SC_JOB_TIDY].run = step_that_is_kicked;
    for (uint32_t kicks = 0; kicks < 4; kicks++) {
        kicks_left = kicks;
        steps = 0;
        sc_plugin_kick(rig.conn, SC_JOB_TIDY);
        sc_plugin_kick(rig.conn, SC_JOB_TIDY); /* the step has not begun: one for both */
        rig_background(&rig);
        assert_int_equal(steps, 1 + kicks);
    }
    rig_done(&rig);
}

static void *work(void *user)
{
    struct worker *worker = user;
    uint64_t random = worker->number + 1;
    for (uint32_t i = 0; i < 40; i++) {
        random = rig_mix(random);
        struct prompt prompt = rig_prompt(random % 8, random >> 8 & 63, worker->number, 80);
        (void)rig_fill(worker->rig, &prompt);
        assert_int_equal(rig_maintain(worker->rig, random >> 16 & 1 ? SPEC_MAINTAIN_CHECKPOINT
                                                                    : SPEC_MAINTAIN_EVICT),
                         SPEC_OK);
        assert_true(rig_read(worker->rig, &prompt, NULL) <= 80);
        rig_prompt_free(&prompt);
    }
    return NULL;
}

/* Four threads store, look up and ask for both; close comes while jobs wait and run. */
static void close_ends_what_maintain_began(void **state)
{
    (void)state;
    struct rig rig;
    rig_init(&rig, false,
             "\"disk_bytes\": \"4MiB\", \"segment_bytes\": \"1MiB\", \"lease_ns_max\": 0");
    rig_shape(&rig, 2, 2, 64, SPEC_DTYPE_F32);
    for (uint32_t round = 0; round < 3; round++) {
        rig_open(&rig);
        struct worker workers[4];
        for (uint64_t i = 0; i < 4; i++)
            workers[i] = (struct worker){.rig = &rig, .number = i + 4 * round};
        threads_run(work, workers, sizeof(workers[0]), 4);
        for (uint32_t i = 0; i < 20; i++)
            assert_int_equal(rig_maintain(&rig, SPEC_MAINTAIN_CHECKPOINT | SPEC_MAINTAIN_EVICT),
                             SPEC_OK);
        rig_close(&rig); /* asserts that all memory came back */
    }
    rig_open(&rig);
    for (uint64_t seed = 0; seed < 8; seed++) {
        struct prompt prompt = rig_prompt(seed, 64, 0, 80);
        assert_true(rig_read(&rig, &prompt, NULL) <= 80);
        rig_prompt_free(&prompt);
    }
    rig_done(&rig);
}

/* Insertions that begin to fill new memory have the memory after it made ready, not more of it than
 * there is room for, and use it. With libc's memory: the host's is left alone. */
#ifndef SC_SANITIZED_THREAD
static void memory_that_the_index_needs_next_is_made_ready(void **state)
{
    (void)state;
    struct rig rig;
    rig_begin(&rig, true, "\"chunk_tokens\": 16, \"index_bytes_max\": \"256MiB\"");
    rig_close(&rig);
    struct spec_model model = rig_model(&rig);
    struct spec_open_params params = {
        .struct_size = sizeof(params), .config = rig.config, .model = &model};
    assert_int_equal(sc_sim_connector_open(&params, rig.disk, &rig.conn, &rig.error), SPEC_OK);
    struct sc_radix *radix = rig.conn->radix;
    uint32_t tokens[16] = {0}, made = 0, used = 0;
    for (uint32_t i = 1; i <= 60000; i++) {
        struct sc_store_piece piece = {.id = i, .extent = 1, .row_count = 16, .tokens = tokens};
        /* As hashes are, all bits of them: in the index a run of numbers would be one long walk. */
        uint64_t mark, word = rig_mix(i), root = rig_mix(word);
        memcpy(piece.hash, &word, sizeof(word));
        memcpy(piece.root, &root, sizeof(root));
        memcpy(piece.chunk_hash, &root, sizeof(root));
        const unsigned char *before = radix->spare;
        assert_true(sc_plugin_on_piece(&piece, &mark, rig.conn));
        used += before != NULL && radix->spare != before;
        made += radix->spare != NULL && radix->spare != before;
        if (i % 64 == 0) /* often enough: an arena holds thousands */
            rig_background(&rig);
    }
    assert_true(radix->arena_fresh > 3);
    assert_true(used > 0 && made - used <= 1);
    sc_plugin_close(rig.conn);
    rig.conn = NULL;
    rig_done(&rig);
}
#endif

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(flags_are_checked),
        cmocka_unit_test(a_kick_during_a_step_is_followed_by_another),
        cmocka_unit_test(every_piece_below_one_that_fails_leaves_the_log),
        cmocka_unit_test(a_checkpoint_runs_in_the_background),
#ifndef SC_SANITIZED_THREAD /* one thread: nothing to find there, and it takes minutes for it */
        cmocka_unit_test(memory_that_the_index_needs_next_is_made_ready),
#endif
        cmocka_unit_test(evict_makes_an_eighth_free),
        cmocka_unit_test(a_kick_during_a_step_is_not_lost),
        cmocka_unit_test(close_ends_what_maintain_began),
    };
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
