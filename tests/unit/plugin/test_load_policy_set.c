/* Compute or load among processes: what one has measured is known after a restart, to readers and
 * to all ranks, and all of them promise the same, whatever each has in memory or has seen.
 *
 * Each connector has a loop and a virtual clock of its own; meet() brings them to one time.
 * Threads: one, but where a test makes some. */
#include "tests/unit/plugin/load_policy_rig.h"
#include "tests/unit/threads.h"

#include <math.h>
#include <sys/wait.h>

#define MS     UINT64_C(1000000)
#define SECOND (1000 * MS)
#define SLOW   (TOKEN_NS * 3)

/* All clocks stand where the latest of them stands, and all have looked at the logs since. */
static void meet(struct rig *rigs, uint32_t count)
{
    for (uint32_t turn = 0; turn < 2; turn++) {
        uint64_t latest_ns = 0;
        for (uint32_t i = 0; i < count; i++) {
            uint64_t now_ns = sc_exec_now_ns(rigs[i].conn->exec) + 30 * MS;
            latest_ns = now_ns > latest_ns ? now_ns : latest_ns;
        }
        for (uint32_t i = 0; i < count; i++)
            rig_pass_ns(&rigs[i], latest_ns - sc_exec_now_ns(rigs[i].conn->exec));
    }
}

/* Little by little: nobody reads what another one writes in a far future. */
static void pass_all(struct rig *rigs, uint32_t count, uint64_t ns)
{
    for (uint64_t step = 0; ns > 0; ns -= step) {
        step = ns < 100 * MS ? ns : 100 * MS;
        for (uint32_t i = 0; i < count; i++)
            rig_pass_ns(&rigs[i], step);
    }
}

/* ---- Restarts ------------------------------------------------------------------------------- */

static void a_restart_keeps_the_cut(void **state)
{
    (void)state;
    struct rig rig;
    struct prompt prompt = begin_taught(&rig, SPLIT, TOKEN_NS);
    uint64_t n = promised(&rig, &prompt);
    assert_in_range(n, TOKENS * 4 / 10, TOKENS * 6 / 10);
    struct spec_stats before = stats_of(&rig);
    rig_reopen(&rig);
    assert_int_equal(promised(&rig, &prompt), n); /* the first request */
    assert_int_equal(stats_of(&rig).compute_token_ps, before.compute_token_ps);
    assert_int_equal(stats_of(&rig).load_token_ps, before.load_token_ps);
    for (uint32_t i = 0; i < 8; i++) /* and it goes on as it was */
        assert_in_range(serve(&rig, &prompt, TOKEN_NS).matched, n - 64, n + 64);
    n = promised(&rig, &prompt);
    rig_reopen(&rig);
    assert_int_equal(rig_maintain(&rig, SPEC_MAINTAIN_CHECKPOINT), SPEC_OK);
    rig_background(&rig);
    rig_reopen(&rig);
    assert_int_equal(promised(&rig, &prompt), n);
    rig_end(&rig, &prompt);
}

/* What is known from before gives way to what is seen. */
static void a_restart_on_another_device_is_found_out(void **state)
{
    (void)state;
    struct rig rig;
    struct prompt prompt = begin_taught(&rig, SPLIT, TOKEN_NS);
    rig_close(&rig);
    rig.extra =
        "\"load_policy\": \"split\", \"sim\": {\"bytes_per_s\": 25000000, \"op_ns\": 20000}";
    rig_open(&rig);
    sc_io_sim_disk_device(rig.disk, &(struct sc_io_sim_device){.bytes_per_s = 25000000});
    for (uint32_t i = 0; i < 6; i++)
        serve(&rig, &prompt, TOKEN_NS);
    assert_in_range(promised(&rig, &prompt), TOKENS / 10, TOKENS * 3 / 10); /* a fifth */
    rig_end(&rig, &prompt);
}

/* Killed: what was measured is in the log before it is closed. */
static void what_was_measured_is_written_while_it_runs(void **state)
{
    (void)state;
    struct rig rigs[2];
    begin(&rigs[0], SPLIT);
    teach(&rigs[0], TOKEN_NS);
    struct prompt prompt = plain(1, TOKENS);
    serve(&rigs[0], &prompt, TOKEN_NS);
    rig_pass_ns(&rigs[0], 6 * SECOND);
    rig_open_beside(&rigs[1], &rigs[0], SPEC_ROLE_READER, 0);
    meet(rigs, 2);
    assert_int_equal(promised(&rigs[1], &prompt), promised(&rigs[0], &prompt));
    rig_leave(&rigs[1]);
    rig_end(&rigs[0], &prompt);
}

/* Another model computes in another time. */
static void another_model_knows_nothing_of_it(void **state)
{
    (void)state;
    struct rig rig;
    begin(&rig, SPLIT);
    teach(&rig, TOKEN_NS);
    rig_close(&rig);
    rig.layers = LAYERS / 2;
    rig_open(&rig);
    struct sc_plugin_estimate estimate;
    assert_false(sc_plugin_load_policy_estimate(rig.conn, &estimate));
    struct prompt prompt = plain(1, TOKENS);
    assert_int_equal(rig_fill(&rig, &prompt), SPEC_OK);
    assert_int_equal(read_all(&rig, &prompt), TOKENS - 1);
    rig_close(&rig);
    rig.layers = LAYERS;
    rig_open(&rig);
    assert_true(sc_plugin_load_policy_estimate(rig.conn, &estimate));
    rig_end(&rig, &prompt);
}

/* ---- Sets ----------------------------------------------------------------------------------- */

enum { RANK_0, RANK_1, READER_0, READER_1, SET };

static void set_open(struct rig *rigs, const char *extra)
{
    rig_init(&rigs[RANK_0], true, extra);
    rig_shape(&rigs[RANK_0], LAYERS, 4, 128, SPEC_DTYPE_F16);
    rigs[RANK_0].stage = "64MiB";
    rigs[RANK_0].rank_count = 2;
    rig_beside(&rigs[RANK_1], &rigs[RANK_0], SPEC_ROLE_WRITER, 1);
    rig_beside(&rigs[READER_0], &rigs[RANK_0], SPEC_ROLE_READER, 0);
    rig_beside(&rigs[READER_1], &rigs[RANK_0], SPEC_ROLE_READER, 1);
    for (uint32_t i = 0; i < SET; i++)
        rig_open(&rigs[i]);
}

static void set_done(struct rig *rigs)
{
    for (uint32_t i = SET; --i > 0;)
        rig_leave(&rigs[i]);
    rig_done(&rigs[0]);
}

/* Both ranks have the prompt. */
static void set_store(struct rig *rigs, const struct prompt *prompt, uint64_t token_ns)
{
    (void)serve(&rigs[RANK_0], prompt, token_ns);
    (void)rig_fill(&rigs[RANK_1], prompt);
    meet(rigs, SET);
}

/* What all of them promise. */
static uint64_t set_promised(struct rig *rigs, const struct prompt *prompt)
{
    uint64_t n = promised(&rigs[0], prompt);
    for (uint32_t i = 1; i < SET; i++)
        assert_int_equal(promised(&rigs[i], prompt), n);
    return n;
}

/* As teach, of a set. */
static void set_teach(struct rig *rigs, uint64_t token_ns)
{
    struct prompt prompt = plain(900, TOKENS), other = plain(901, TOKENS / 2);
    set_store(rigs, &prompt, token_ns);
    set_store(rigs, &other, token_ns);
    assert_int_equal(serve(&rigs[RANK_0], &prompt, token_ns).matched, TOKENS - 1);
    meet(rigs, SET);
    rig_prompts_free(&prompt, &other);
}

/* A set that is taught, and has a prompt then, which is the caller's. */
static struct prompt set_open_taught(struct rig *rigs, const char *extra, uint64_t token_ns)
{
    set_open(rigs, extra);
    set_teach(rigs, token_ns);
    struct prompt prompt = plain(1, TOKENS);
    set_store(rigs, &prompt, token_ns);
    return prompt;
}

/* At every moment, from before anything is known on, while computing gets slower and faster. */
static void all_of_a_set_promise_the_same(void **state)
{
    (void)state;
    enum { PROMPTS = 6 };
    static const uint64_t TAKES[] = {TOKEN_NS, TOKEN_NS, SLOW, SLOW, TOKEN_NS / 3};
    struct rig rigs[SET];
    struct prompt prompts[PROMPTS];
    set_open(rigs, SPLIT);
    for (uint32_t i = 0; i < PROMPTS; i++)
        prompts[i] = plain(1 + i, TOKENS / 2 + 150 * i);
    for (uint32_t i = 0; i < PROMPTS; i++) {
        set_store(rigs, &prompts[i], TOKEN_NS);
        assert_int_equal(set_promised(rigs, &prompts[i]), prompts[i].count - 1);
    }
    uint64_t last = 0, changes = 0;
    for (uint32_t k = 0; k < sizeof(TAKES) / sizeof(TAKES[0]); k++) {
        for (uint32_t i = 0; i < PROMPTS; i++)
            (void)serve(&rigs[RANK_0], &prompts[i], TAKES[k]);
        meet(rigs, SET);
        for (uint32_t t = 0; t < 70; t++) {
            uint64_t sum = 0;
            for (uint32_t i = 0; i < PROMPTS; i++)
                sum += set_promised(rigs, &prompts[i]);
            changes += sum != last;
            last = sum;
            pass_all(rigs, SET, 100 * MS);
        }
    }
    assert_in_range(changes, 4, 8); /* one a note, and not at every look */
    rig_prompts_free_all(prompts, PROMPTS);
    set_done(rigs);
}

/* A new estimate counts a second after it was written, and then in all of them. */
static void a_set_takes_up_what_is_new_together(void **state)
{
    (void)state;
    struct rig rigs[SET];
    struct prompt prompt = set_open_taught(rigs, SPLIT, TOKEN_NS); /* within the second */
    assert_int_equal(set_promised(rigs, &prompt), TOKENS - 1);
    struct sc_plugin_estimate_note note;
    for (uint32_t i = 0; i < SET; i++)
        assert_true(sc_plugin_agreed_get(&rigs[i].conn->load_policy.agreed, &note));
    uint64_t from_ns = note.from_ns, now_ns = sc_exec_now_ns(rigs[0].conn->exec);
    for (uint32_t i = 0; i < SET; i++) {
        assert_true(sc_plugin_agreed_get(&rigs[i].conn->load_policy.agreed, &note));
        assert_int_equal(note.from_ns, from_ns);
    }
    assert_in_range(from_ns, now_ns + 1, now_ns + SECOND);
    pass_all(rigs, SET, from_ns - now_ns - 1);
    assert_int_equal(set_promised(rigs, &prompt), TOKENS - 1);
    pass_all(rigs, SET, 1);
    uint64_t n = set_promised(rigs, &prompt);
    assert_in_range(n, TOKENS * 4 / 10, TOKENS * 6 / 10);
    /* Loads and passes of other ranks and of readers teach nothing. */
    for (uint32_t i = 0; i < 8; i++) {
        (void)serve(&rigs[RANK_1], &prompt, TOKEN_NS * 10);
        (void)read_all(&rigs[READER_0], &prompt);
    }
    meet(rigs, SET);
    pass_all(rigs, SET, 8 * SECOND);
    assert_int_equal(set_promised(rigs, &prompt), n);
    /* Nor does a process forget: a rank that opens later knows as well. */
    rig_close(&rigs[RANK_1]);
    rig_open(&rigs[RANK_1]);
    meet(rigs, SET);
    assert_int_equal(set_promised(rigs, &prompt), n);
    rig_close(&rigs[RANK_0]);
    rig_open(&rigs[RANK_0]);
    meet(rigs, SET);
    assert_int_equal(set_promised(rigs, &prompt), n);
    rig_prompt_free(&prompt);
    set_done(rigs);
}

/* What one has in host memory does not move its promise. */
static void host_memory_of_one_process_is_not_counted_on(void **state)
{
    (void)state;
    struct rig rigs[SET];
    struct prompt prompt = set_open_taught(rigs, SPLIT ", \"host_bytes\": \"64MiB\"", TOKEN_NS);
    for (uint32_t i = 0; i < 3; i++)
        (void)read_all(&rigs[READER_0], &prompt);
    pass_all(rigs, SET, 2 * SECOND);
    assert_in_range(set_promised(rigs, &prompt), 64, TOKENS - 64);
    rig_prompt_free(&prompt);
    set_done(rigs);
}

/* One rank's writer, whose memory has some prompts, and who is asked before a reader comes, while
 * it follows, while checkpoints put other logs in place, and when it has left. */
static void a_writer_and_its_reader_promise_the_same(void **state)
{
    (void)state;
    enum { PROMPTS = 12 };
    struct rig rigs[2];
    struct prompt prompts[PROMPTS];
    uint64_t alone[PROMPTS];
    uint32_t others = 0;
    begin(&rigs[0], SPLIT ", \"host_bytes\": \"64MiB\"");
    teach(&rigs[0], TOKEN_NS);
    for (uint32_t i = 0; i < PROMPTS; i++) {
        prompts[i] = plain(40 + i, TOKENS - 50 * i);
        serve(&rigs[0], &prompts[i], TOKEN_NS);
        for (uint32_t reads = 0; reads < i % 3; reads++)
            (void)read_all(&rigs[0], &prompts[i]);
    }
    rig_pass_ns(&rigs[0], 8 * SECOND);
    for (uint32_t i = 0; i < PROMPTS; i++)
        alone[i] = promised(&rigs[0], &prompts[i]);
    rig_open_beside(&rigs[1], &rigs[0], SPEC_ROLE_READER, 0);
    meet(rigs, 2);
    for (uint32_t round = 0; round < 3; round++) {
        for (uint32_t i = 0; i < PROMPTS; i++) {
            uint64_t n = promised(&rigs[0], &prompts[i]);
            assert_int_equal(promised(&rigs[1], &prompts[i]), n);
            others += n != alone[i];
        }
        for (uint32_t i = round; i < PROMPTS; i += 3)
            (void)read_all(&rigs[0], &prompts[i]); /* what memory has changes */
        assert_int_equal(rig_maintain(&rigs[0], SPEC_MAINTAIN_CHECKPOINT), SPEC_OK);
        rig_background(&rigs[0]);
        pass_all(rigs, 2, 8 * SECOND);
        meet(rigs, 2);
    }
    assert_true(others > 0); /* else the reader changed nothing */
    rig_leave(&rigs[1]);
    rig_pass_ns(&rigs[0], 3 * SECOND);
    assert_true(sc_plugin_load_policy_is_alone(rigs[0].conn));
    rig_prompts_free_all(prompts, PROMPTS);
    rig_done(&rigs[0]);
}

/* Where nothing is worth loading all of them look at the device for the same requests. */
static void a_set_looks_at_a_slow_device_together(void **state)
{
    (void)state;
    struct rig rigs[SET];
    struct prompt prompt = set_open_taught(rigs,
                                           "\"load_policy\": \"split\", \"host_bytes\": 0, "
                                           "\"sim\": {\"bytes_per_s\": 2000000, \"op_ns\": 20000}",
                                           TOKEN_NS / 4);
    pass_all(rigs, SET, 2 * SECOND);
    uint32_t looks = 0;
    for (uint64_t i = 0; i < 8000; i++) {
        struct prompt next = rig_prompt(1, TOKENS, i, TOKENS + 64 + i % 40);
        uint64_t n = promised(&rigs[0], &next);
        assert_int_equal(promised(&rigs[RANK_1], &next), n);
        assert_int_equal(promised(&rigs[READER_0], &next), n);
        assert_true(n < TOKENS / 2);
        looks += n > 0;
        rig_prompt_free(&next);
    }
    assert_in_range(looks, 2, 8000 / 16 + 100);
    rig_prompt_free(&prompt);
    set_done(rigs);
}

/* ---- What goes wrong ------------------------------------------------------------------------ */

/* Words that nobody measured leave what is known alone. */
static void words_that_are_no_estimate_change_nothing(void **state)
{
    (void)state;
    struct rig rigs[SET];
    struct prompt prompt = set_open_taught(rigs, SPLIT, TOKEN_NS);
    pass_all(rigs, SET, 2 * SECOND);
    uint64_t n = set_promised(rigs, &prompt);
    uint16_t words[SC_STORE_NOTE_HEAD + SC_PLUGIN_ESTIMATE_NOTE_WORDS];
    for (uint32_t i = 0; i < 40; i++) {
        for (uint32_t j = 0; j < SC_PLUGIN_ESTIMATE_NOTE_WORDS; j++)
            words[SC_STORE_NOTE_HEAD + j] = (uint16_t)(0x8000 | rig_mix(1000 * i + j));
        words[SC_STORE_NOTE_HEAD] = SC_PLUGIN_NOTE_ESTIMATE << 8 | 1;
        words[SC_STORE_NOTE_HEAD + 1] = LAYERS;
        uint64_t count = i % 2 == 0 ? SC_PLUGIN_ESTIMATE_NOTE_WORDS : 1 + i;
        assert_int_equal(sc_store_note_put(rigs[0].conn->store, words, count, NULL), SPEC_OK);
        meet(rigs, SET);
        pass_all(rigs, SET, 2 * SECOND);
        assert_int_equal(set_promised(rigs, &prompt), n);
    }
    /* Where they are the last, the next open knows nothing, and learns it anew. */
    rig_close(&rigs[RANK_0]);
    rig_open(&rigs[RANK_0]);
    meet(rigs, SET);
    rig_prompt_free(&prompt);
    set_done(rigs);
}

/* Numbers at the ends of what is believed: a cut, or none, and what is learnt on top of them is
 * numbers as well. */
static void the_largest_numbers_do_no_harm(void **state)
{
    (void)state;
    struct rig rigs[2];
    begin(&rigs[0], SPLIT);
    struct prompt prompt = plain(1, TOKENS);
    assert_int_equal(rig_fill(&rigs[0], &prompt), SPEC_OK);
    rig_open_beside(&rigs[1], &rigs[0], SPEC_ROLE_READER, 0);
    for (uint32_t i = 0; i < 512; i++) {
        double most = 1e15, least = i & 256 ? 0 : 1e-300;
        struct sc_plugin_estimate_note note = {
            .layers = 1,
            .next = {.token_ns = i & 1 ? most : least,
                     .position_ns = i & 2 ? most : least,
                     .byte_ns = i & 4 ? most : least,
                     .row_bytes = {i & 8 ? most : least, i & 16 ? most : least},
                     .host_ns = {i & 32 ? most : least, least},
                     .pass_tokens = i & 64 ? most : least,
                     .is_apart = (i & 128) != 0}};
        uint16_t words[SC_PLUGIN_ESTIMATE_NOTE_WORDS];
        sc_plugin_estimate_note_encode(&note, SC_PLUGIN_NOTE_ESTIMATE, words);
        for (uint32_t k = 0; k < 2; k++) {
            sc_plugin_load_policy_heard(rigs[k].conn, words, SC_PLUGIN_ESTIMATE_NOTE_WORDS);
            assert_true(promised(&rigs[k], &prompt) < TOKENS);
        }
        (void)stats_of(&rigs[1]);
        for (uint32_t k = 0; k < 4 && i % 23 == 0; k++)
            (void)serve(&rigs[0], &prompt, TOKEN_NS);
        (void)sc_plugin_load_policy_estimate(rigs[0].conn, &note.next);
        const struct sc_plugin_estimate *is = &note.next;
        assert_true(isfinite(is->token_ns + is->position_ns + is->byte_ns + is->row_bytes[0] +
                             is->row_bytes[1] + is->host_ns[0] + is->host_ns[1]));
        assert_true(is->token_ns >= 0 && is->position_ns >= 0 && is->byte_ns >= 0);
    }
    rig_leave(&rigs[1]);
    rig_end(&rigs[0], &prompt);
}

/* A wall clock that is set back or forward delays nobody by more than the usual second. */
static void a_clock_that_is_set_does_not_wedge_it(void **state)
{
    (void)state;
    static const int64_t BY_S[] = {-36000, 36000, -1};
    for (uint32_t i = 0; i < sizeof(BY_S) / sizeof(BY_S[0]); i++) {
        struct rig rigs[SET];
        set_open(rigs, SPLIT);
        struct prompt prompt = plain(1, TOKENS);
        for (uint32_t j = 1; j < SET; j++)
            sc_exec_wall_set(rigs[j].conn->exec, INT64_C(36000) * (int64_t)SECOND);
        sc_exec_wall_set(rigs[0].conn->exec, (36000 + BY_S[i]) * (int64_t)SECOND);
        set_teach(rigs, TOKEN_NS);
        set_store(rigs, &prompt, TOKEN_NS);
        pass_all(rigs, SET, 2 * SECOND);
        assert_in_range(set_promised(rigs, &prompt), TOKENS * 4 / 10, TOKENS * 6 / 10);
        rig_prompt_free(&prompt);
        set_done(rigs);
    }
}

/* What the process has heard last is rank 0's last note, or, where may_lag, the one before. */
static void expect_heard(const struct rig *rig, const struct rig *rank_0, bool may_lag)
{
    struct sc_plugin_estimate_note said, heard;
    uint64_t words[SC_PLUGIN_ESTIMATE_WORDS], own[SC_PLUGIN_ESTIMATE_WORDS];
    assert_true(sc_plugin_agreed_get(&rank_0->conn->load_policy.agreed, &said));
    assert_true(sc_plugin_agreed_get(&rig->conn->load_policy.agreed, &heard));
    sc_plugin_estimate_encode(&heard.next, own);
    sc_plugin_estimate_encode(&said.next, words);
    if (memcmp(own, words, sizeof(own)) == 0)
        return;
    sc_plugin_estimate_encode(&said.before, words);
    assert_true(may_lag && memcmp(own, words, sizeof(own)) == 0);
}

/* Bits that rot on their way to who follows delay a note, and are never one. (What is matched may
 * be less for good where a prefix of the log passed for all of it.) */
static void rot_delays_a_note_and_no_more(void **state)
{
    (void)state;
    struct rig rigs[SET];
    struct prompt prompt = set_open_taught(rigs, SPLIT, TOKEN_NS);
    pass_all(rigs, SET, 6 * SECOND);
    sc_io_sim_fault_scope(rigs[0].disk, "/log");
    sc_io_sim_fault_ppm(rigs[0].disk, SC_SIM_FLIP, 1000000);
    for (uint32_t i = 0; i < 16; i++) {
        (void)serve(&rigs[RANK_0], &prompt, SLOW);
        meet(rigs, SET);
        for (uint32_t j = 1; j < SET; j++)
            expect_heard(&rigs[j], &rigs[0], true);
    }
    assert_true(sc_io_sim_fault_fired(rigs[0].disk, SC_SIM_FLIP) > 0);
    sc_io_sim_fault_ppm(rigs[0].disk, SC_SIM_FLIP, 0);
    meet(rigs, SET);
    for (uint32_t j = 1; j < SET; j++)
        expect_heard(&rigs[j], &rigs[0], false);
    rig_prompt_free(&prompt);
    set_done(rigs);
}

/* What the log does not take counts nowhere, until it does. */
static void a_log_that_takes_nothing_changes_nothing(void **state)
{
    (void)state;
    struct rig rigs[SET];
    set_open(rigs, SPLIT);
    struct prompt prompt = plain(900, TOKENS), other = plain(901, TOKENS / 2);
    set_store(rigs, &prompt, TOKEN_NS);
    sc_io_sim_fault_scope(rigs[0].disk, "/log");
    sc_io_sim_fault_ppm(rigs[0].disk, SC_SIM_NO_SPACE, 1000000);
    pass_all(rigs, SET, 20 * SECOND);
    struct spec_lookup_result found = find(&rigs[0], &other);
    struct pass pass = {.end = other.count, .layer_ns = TOKEN_NS * other.count / LAYERS};
    for (uint32_t layer = 0; layer < LAYERS; layer++) { /* the pass is not stored, but computed */
        spec_ticket ticket;
        rig_pass_ns(&rigs[0], pass.layer_ns);
        assert_int_equal(
            rig_store_layer(&rigs[0], found.request, &other, 0, pass.end, layer, &ticket), SPEC_OK);
    }
    rig_release(&rigs[0], found.request);
    (void)read_all(&rigs[0], &prompt);
    pass_all(rigs, SET, 20 * SECOND);
    meet(rigs, SET);
    struct sc_plugin_estimate_note note;
    for (uint32_t i = 0; i < SET; i++)
        assert_false(sc_plugin_agreed_get(&rigs[i].conn->load_policy.agreed, &note));
    assert_int_equal(set_promised(rigs, &prompt), TOKENS - 1);
    sc_io_sim_fault_ppm(rigs[0].disk, SC_SIM_NO_SPACE, 0);
    pass_all(rigs, SET, 20 * SECOND);
    meet(rigs, SET);
    pass_all(rigs, SET, 2 * SECOND);
    assert_in_range(set_promised(rigs, &prompt), TOKENS * 4 / 10, TOKENS * 6 / 10);
    rig_prompts_free(&prompt, &other);
    set_done(rigs);
}

/* ---- Threads and processes ------------------------------------------------------------------ */

/* On files and threads, with what an engine would have measured put in by hand. */
static void real_open(struct rig *rigs, uint32_t count, uint32_t rank_count)
{
    rig_init(&rigs[0], false, "\"load_policy\": \"split\"");
    rig_shape(&rigs[0], LAYERS, 4, 128, SPEC_DTYPE_F16);
    rigs[0].stage = "64MiB";
    rigs[0].rank_count = rank_count;
    for (uint32_t i = 1; i < count; i++)
        rig_beside(&rigs[i], &rigs[0], i == 1 ? SPEC_ROLE_WRITER : SPEC_ROLE_READER,
                   i == 1 ? 1 : i % 2);
    for (uint32_t i = 0; i < count; i++)
        rig_open(&rigs[i]);
}

/* Computing takes so much longer than loading; the log may have it at once. */
static void measured_now(spec_connector *conn, double times)
{
    struct sc_plugin_estimate estimate = {
        .token_ns = 1000 * times, .byte_ns = .1, .row_bytes = {10000, 10000}, .host_ns = {10, 10}};
    uint64_t words[SC_PLUGIN_ESTIMATE_WORDS];
    sc_plugin_estimate_encode(&estimate, words);
    pthread_mutex_lock(&conn->load_policy.lock);
    for (uint32_t i = 0; i < SC_PLUGIN_ESTIMATE_WORDS; i++)
        atomic_store(&conn->load_policy.words[i], words[i]);
    atomic_fetch_add(&conn->load_policy.renewed, 1);
    atomic_store(&conn->load_policy.write_ns, 0);
    pthread_mutex_unlock(&conn->load_policy.lock);
}

static uint64_t notes_of(const struct rig *rig)
{
    return atomic_load(&rig->conn->load_policy.agreed.serial);
}

struct asker {
    struct rig *rig;
    const struct prompt *prompt;
    _Atomic uint32_t *is_over;
};

static void *ask(void *user)
{
    const struct asker *asker = user;
    while (atomic_load(asker->is_over) == 0) {
        struct spec_stats stats = stats_of(asker->rig);
        if (promised(asker->rig, asker->prompt) > TOKENS - 1 || stats.lookups_cut == UINT64_MAX)
            return user;
        sched_yield();
    }
    return NULL;
}

/* Lookups in all ranks and readers, while what is known is renewed, written and followed; the last
 * note may be on its way when rank 0 is closed. */
static void lookups_go_on_while_what_is_known_changes(void **state)
{
    (void)state;
    struct rig rigs[SET];
    struct asker askers[SET];
    _Atomic uint32_t is_over = 0;
    struct prompt prompt = plain(1, TOKENS);
    real_open(rigs, SET, 2);
    assert_int_equal(rig_fill(&rigs[RANK_0], &prompt), SPEC_OK);
    assert_int_equal(rig_fill(&rigs[RANK_1], &prompt), SPEC_OK);
    for (uint32_t i = 0; i < SET; i++)
        askers[i] = (struct asker){.rig = &rigs[i], .prompt = &prompt, .is_over = &is_over};
    const struct threads threads = threads_begin(ask, askers, sizeof(askers[0]), SET);
    for (uint32_t i = 0; i < 40; i++) {
        measured_now(rigs[0].conn, i % 2 == 0 ? 1 : 8);
        rig_pass_ns(&rigs[0], 30 * MS);
    }
    uint64_t written = notes_of(&rigs[0]);
    assert_true(written > 2);
    for (uint32_t i = 1; i < SET; i++)
        while (notes_of(&rigs[i]) < written) /* it comes, however late its turn is */
            rig_pass_ns(&rigs[i], 5 * MS);
    atomic_store(&is_over, 1);
    threads_join(&threads);
    for (uint32_t i = 0; i < 8; i++) {
        measured_now(rigs[0].conn, i + 1);
        rig_pass_ns(&rigs[0], i * 8 * MS);
        rig_reopen(&rigs[0]);
        struct sc_plugin_estimate_note note; /* it was written: by a turn, or by close */
        assert_true(sc_plugin_agreed_get(&rigs[0].conn->load_policy.agreed, &note));
        assert_true(note.next.token_ns == 1000.0 * (i + 1));
    }
    rig_prompt_free(&prompt);
    set_done(rigs);
}

/* A forked child, which has the connector in its memory, writes nothing. */
static void a_forked_child_writes_no_note(void **state)
{
    (void)state;
    struct rig rigs[1];
    struct prompt prompt = plain(1, TOKENS);
    real_open(rigs, 1, 1);
    assert_int_equal(rig_fill(&rigs[0], &prompt), SPEC_OK);
    measured_now(rigs[0].conn, 3);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        spec_connector_api(SPEC_ABI_MAJOR)->close(rigs[0].conn);
        _exit(0);
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    rig_reopen(&rigs[0]); /* the log is whole, and has the parent's */
    struct sc_plugin_estimate_note note;
    assert_true(sc_plugin_agreed_get(&rigs[0].conn->load_policy.agreed, &note));
    assert_true(note.next.token_ns == 3000.0);
    assert_int_equal(notes_of(&rigs[0]), 1);
    struct sc_store_stats stats = rig_store_stats(&rigs[0]);
    assert_int_equal(stats.corrupt_records, 0);
    rig_end(&rigs[0], &prompt);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_restart_keeps_the_cut),
        cmocka_unit_test(a_restart_on_another_device_is_found_out),
        cmocka_unit_test(what_was_measured_is_written_while_it_runs),
        cmocka_unit_test(another_model_knows_nothing_of_it),
        cmocka_unit_test(all_of_a_set_promise_the_same),
        cmocka_unit_test(a_set_takes_up_what_is_new_together),
        cmocka_unit_test(host_memory_of_one_process_is_not_counted_on),
        cmocka_unit_test(a_writer_and_its_reader_promise_the_same),
        cmocka_unit_test(a_set_looks_at_a_slow_device_together),
        cmocka_unit_test(words_that_are_no_estimate_change_nothing),
        cmocka_unit_test(the_largest_numbers_do_no_harm),
        cmocka_unit_test(a_clock_that_is_set_does_not_wedge_it),
        cmocka_unit_test(rot_delays_a_note_and_no_more),
        cmocka_unit_test(a_log_that_takes_nothing_changes_nothing),
        cmocka_unit_test(lookups_go_on_while_what_is_known_changes),
        cmocka_unit_test(a_forked_child_writes_no_note),
    };
    return cmocka_run_group_tests_name("plugin_fill_set", tests, NULL, NULL);
}
