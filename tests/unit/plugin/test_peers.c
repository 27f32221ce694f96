/* Readers and ranks: what one connector stored is promised by another as soon as its log brought
 * it, as long as it may be, and only as far as every rank has it.
 *
 * Each connector has a loop and a virtual clock of its own, so a test decides who looks when.
 * Threads: one. */
#include "tests/unit/plugin/plugin_fixture.h"

#define MS   UINT64_C(1000000)
#define TURN (30 * MS) /* a turn every 25 ms */

static void sim_rig(struct rig *rig, const char *extra, uint32_t rank_count)
{
    rig_init(rig, true, extra);
    rig->rank_count = rank_count;
}

/* Wall clock until which the whole prompt is promised. */
static uint64_t promised_end(struct rig *rig, const struct prompt *prompt)
{
    struct spec_lookup_result result = rig_lookup(rig, prompt);
    assert_int_equal(result.matched_tokens, prompt->count);
    rig_release(rig, result.request);
    return result.lease_expiry_ns;
}

/* Stores tokens [0, count) of the prompt, whatever is promised. */
static void store_prefix(struct rig *rig, const struct prompt *prompt, uint64_t count)
{
    rig_store_all(rig, prompt, count);
}

static void a_reader_finds_what_its_writer_stores(void **state)
{
    (void)state;
    struct rig writer, reader;
    sim_rig(&writer, "", 1);
    struct prompt prompt = rig_prompt(1, 0, 0, 300);
    rig_open(&writer);
    store_prefix(&writer, &prompt, 100);
    rig_open_beside(&reader, &writer, SPEC_ROLE_READER, 0);
    assert_int_equal(rig_matched(&reader, &prompt), 100); /* as of its open */
    assert_int_equal(rig_fill(&writer, &prompt), SPEC_OK);
    assert_int_equal(rig_matched(&reader, &prompt), 100);
    rig_pass_ns(&reader, TURN);
    assert_int_equal(rig_read(&reader, &prompt, NULL), 300); /* and every row is right */
    rig_leave(&reader);
    rig_end(&writer, &prompt);
}

static void a_reader_may_be_there_before_the_store(void **state)
{
    (void)state;
    struct rig writer, reader;
    sim_rig(&writer, "", 1);
    struct prompt prompt = rig_prompt(2, 0, 0, 130);
    rig_open_beside(&reader, &writer, SPEC_ROLE_READER, 0);
    assert_int_equal(rig_matched(&reader, &prompt), 0);
    rig_pass_ns(&reader, TURN);
    assert_int_equal(rig_matched(&reader, &prompt), 0);
    rig_open(&writer);
    assert_int_equal(rig_fill(&writer, &prompt), SPEC_OK);
    rig_pass_ns(&reader, TURN);
    assert_int_equal(rig_read(&reader, &prompt, NULL), 130);
    rig_leave(&reader);
    rig_end(&writer, &prompt);
}

static void a_reader_stores_nothing(void **state)
{
    (void)state;
    struct rig writer, reader;
    sim_rig(&writer, "", 1);
    struct prompt prompt = rig_prompt(3, 0, 0, 64);
    spec_ticket ticket = 77;
    rig_open(&writer);
    rig_open_beside(&reader, &writer, SPEC_ROLE_READER, 0);
    struct spec_lookup_result result = rig_lookup(&reader, &prompt);
    assert_int_equal(rig_store_layer(&reader, result.request, &prompt, 0, 64, 0, &ticket),
                     SPEC_E_UNSUPPORTED);
    assert_int_equal(ticket, 77);
    rig_release(&reader, result.request);
    rig_leave(&reader);
    rig_end(&writer, &prompt);
}

static void the_second_writer_is_refused_and_auto_reads(void **state)
{
    (void)state;
    struct rig writer, second;
    sim_rig(&writer, "", 1);
    struct prompt prompt = rig_prompt(4, 0, 0, 64);
    rig_open(&writer);
    assert_int_equal(writer.conn->ranks.role, SPEC_ROLE_WRITER);
    assert_int_equal(rig_fill(&writer, &prompt), SPEC_OK);
    rig_beside(&second, &writer, SPEC_ROLE_WRITER, 0);
    assert_int_equal(rig_try_open(&second), SPEC_E_LOCKED);
    assert_int_equal(atomic_load(&second.memory.live_blocks), 0);
    second.role = SPEC_ROLE_AUTO;
    rig_open(&second);
    assert_int_equal(second.conn->ranks.role, SPEC_ROLE_READER);
    assert_int_equal(rig_read(&second, &prompt, NULL), 64);
    rig_leave(&second);
    rig_end(&writer, &prompt);
}

/* What a writer found bad is not promised by a reader either. */
static void a_dropped_piece_is_gone_in_the_reader(void **state)
{
    (void)state;
    struct rig writer, reader;
    sim_rig(&writer, "", 1);
    struct prompt prompt = rig_prompt(5, 0, 0, 256);
    rig_open(&writer);
    assert_int_equal(rig_fill(&writer, &prompt), SPEC_OK);
    rig_open_beside(&reader, &writer, SPEC_ROLE_READER, 0);
    assert_int_equal(rig_matched(&reader, &prompt), 256);
    struct spec_lookup_result result = rig_lookup(&writer, &prompt);
    sc_io_sim_fault_nth(writer.disk, SC_SIM_READ_EIO, 0);
    assert_int_equal(rig_load(&writer, result.request, &prompt, 0, 256, 0), SPEC_E_IO);
    rig_release(&writer, result.request);
    uint64_t left = rig_matched(&writer, &prompt);
    assert_true(left < 256);
    rig_pass_ns(&writer, TURN); /* what says so goes into the log in the background */
    rig_pass_ns(&reader, TURN);
    assert_int_equal(rig_read(&reader, &prompt, NULL), left);
    assert_int_equal(rig_fill(&writer, &prompt), SPEC_OK); /* stored anew */
    rig_pass_ns(&reader, TURN);
    assert_int_equal(rig_read(&reader, &prompt, NULL), 256);
    rig_leave(&reader);
    rig_end(&writer, &prompt);
}

/* Between two looks at the log more time passes than a promise may last. */
static void a_reader_that_has_not_looked_for_too_long_promises_nothing(void **state)
{
    (void)state;
    struct rig writer, reader;
    sim_rig(&writer, "\"lease_ns_max\": 10000000", 1);
    struct prompt prompt = rig_prompt(6, 0, 0, 100);
    rig_open(&writer);
    assert_int_equal(rig_fill(&writer, &prompt), SPEC_OK);
    rig_open_beside(&reader, &writer, SPEC_ROLE_READER, 0);
    assert_int_equal(rig_matched(&reader, &prompt), 100);
    rig_pass_ns(&reader, 9 * MS);
    assert_int_equal(rig_matched(&reader, &prompt), 100);
    rig_pass_ns(&reader, 2 * MS);
    assert_int_equal(rig_matched(&reader, &prompt), 0);
    assert_true(sc_plugin_follow_lag_ns(reader.conn) >= 11 * MS);
    rig_pass_ns(&reader, 15 * MS);
    assert_int_equal(rig_matched(&reader, &prompt), 100);
    assert_int_equal(rig_matched(&writer, &prompt), 100); /* its own rows: pinned while promised */
    assert_int_equal(sc_plugin_follow_lag_ns(writer.conn), 0);
    rig_leave(&reader);
    rig_end(&writer, &prompt);
}

/* A promise counts from the time at which the log was read, not from the lookup: what the writer
 * drops after that reading is overwritten a lease later. */
static void a_readers_promise_is_shorter_by_the_age_of_what_it_read(void **state)
{
    (void)state;
    struct rig writer, reader;
    sim_rig(&writer, "\"lease_ns_max\": 20000000", 1);
    struct prompt prompt = rig_prompt(12, 0, 0, 100);
    rig_open(&writer);
    assert_int_equal(rig_fill(&writer, &prompt), SPEC_OK);
    rig_beside(&reader, &writer, SPEC_ROLE_READER, 0);
    rig_open(&reader);
    uint64_t age_ns = sc_plugin_follow_lag_ns(reader.conn);
    uint64_t end_ns = sc_exec_wall_ns(reader.conn->exec) - age_ns + 20 * MS;
    for (uint32_t i = 0; i < 3; i++) { /* within one turn: the log is not read again */
        assert_int_equal(promised_end(&reader, &prompt), end_ns);
        rig_pass_ns(&reader, 6 * MS);
        assert_int_equal(sc_plugin_follow_lag_ns(reader.conn), age_ns + (i + 1) * 6 * MS);
    }
    rig_pass_ns(&reader, TURN - 18 * MS); /* it is read again */
    age_ns = sc_plugin_follow_lag_ns(reader.conn);
    assert_true(age_ns < 10 * MS);
    end_ns = sc_exec_wall_ns(reader.conn->exec) - age_ns + 20 * MS;
    assert_int_equal(promised_end(&reader, &prompt), end_ns);
    rig_pass_ns(&writer, 5 * MS); /* the writer's own promises are whole ones */
    end_ns = sc_exec_wall_ns(writer.conn->exec) + 20 * MS;
    assert_int_equal(promised_end(&writer, &prompt), end_ns);
    rig_leave(&reader);
    rig_done(&writer);
    rig_prompt_free(&prompt);
}

static void without_leases_only_the_writer_promises(void **state)
{
    (void)state;
    struct rig writer, reader;
    sim_rig(&writer, "\"lease_ns_max\": 0", 1);
    struct prompt prompt = rig_prompt(7, 0, 0, 100);
    rig_open(&writer);
    assert_int_equal(rig_fill(&writer, &prompt), SPEC_OK);
    struct spec_lookup_result result = rig_lookup(&writer, &prompt);
    uint8_t none[64] = {0};
    assert_int_equal(result.matched_tokens, 100);
    assert_int_equal(result.lease_expiry_ns, 0);
    assert_memory_equal(result.lease, none, sizeof(none));
    rig_release(&writer, result.request);
    rig_open_beside(&reader, &writer, SPEC_ROLE_READER, 0);
    assert_int_equal(rig_matched(&reader, &prompt), 0);
    rig_leave(&reader);
    rig_end(&writer, &prompt);
}

/* ---- Ranks ---------------------------------------------------------------------------------- */

static void a_lookup_promises_what_every_rank_has(void **state)
{
    (void)state;
    struct rig ranks[3], reader;
    struct prompt prompt = rig_prompt(8, 90, 0, 200), other = rig_prompt(8, 90, 1, 200);
    sim_rig(&ranks[0], "", 3);
    for (uint32_t i = 1; i < 3; i++)
        rig_beside(&ranks[i], &ranks[0], SPEC_ROLE_WRITER, i);
    rig_beside(&reader, &ranks[0], SPEC_ROLE_READER, 1);
    static const uint64_t HAS[3] = {150, 70, 200};
    for (uint32_t i = 0; i < 3; i++) {
        rig_open(&ranks[i]);
        assert_int_equal(rig_matched(&ranks[i], &prompt), 0);
        store_prefix(&ranks[i], &prompt, HAS[i]);
        /* The ranks behind are not even there: nothing is promised. */
        if (i < 2)
            assert_int_equal(rig_matched(&ranks[i], &prompt), 0);
    }
    rig_open(&reader);
    for (uint32_t i = 0; i < 3; i++) {
        rig_pass_ns(&ranks[i], TURN);
        assert_int_equal(rig_read(&ranks[i], &prompt, NULL), 70);
        assert_int_equal(rig_matched(&ranks[i], &other), 70); /* they part at 90 */
    }
    assert_int_equal(rig_read(&reader, &prompt, NULL), 70);
    store_prefix(&ranks[1], &prompt, 120);
    for (uint32_t i = 0; i < 3; i++) {
        rig_pass_ns(&ranks[i], TURN);
        assert_int_equal(rig_read(&ranks[i], &prompt, NULL), 120);
        assert_int_equal(rig_matched(&ranks[i], &other), 90);
    }
    rig_pass_ns(&reader, TURN);
    assert_int_equal(rig_read(&reader, &prompt, NULL), 120);
    rig_leave(&reader);
    rig_leave(&ranks[2]);
    rig_leave(&ranks[1]);
    rig_end(&ranks[0], &prompt, &other);
}

/* One rank's log cannot be read, the others can: all promises end when that rank's ends. */
static void an_unreadable_log_of_one_rank_ends_all_promises(void **state)
{
    (void)state;
    struct rig ranks[3];
    struct prompt prompt = rig_prompt(13, 0, 0, 100);
    for (uint32_t bad = 1; bad < 3; bad++) {
        sim_rig(&ranks[0], "\"lease_ns_max\": 200000000", 3);
        for (uint32_t i = 0; i < 3; i++) {
            if (i > 0)
                rig_beside(&ranks[i], &ranks[0], SPEC_ROLE_WRITER, i);
            rig_open(&ranks[i]);
            store_prefix(&ranks[i], &prompt, 100);
        }
        rig_pass_ns(&ranks[0], TURN);
        uint64_t end_ns = promised_end(&ranks[0], &prompt);
        char log[32];
        (void)snprintf(log, sizeof(log), "/rank-%04u-of-0003/log", bad);
        sc_io_sim_fault_scope(ranks[0].disk, log);
        sc_io_sim_fault_ppm(ranks[0].disk, SC_SIM_READ_EIO, 1000000);
        rig_pass_ns(&ranks[0], 3 * TURN);
        assert_true(sc_io_sim_fault_fired(ranks[0].disk, SC_SIM_READ_EIO) > 0);
        assert_int_equal(promised_end(&ranks[0], &prompt), end_ns);
        rig_pass_ns(&ranks[0], 4 * TURN);
        assert_int_equal(rig_matched(&ranks[0], &prompt), 0);
        sc_io_sim_fault_ppm(ranks[0].disk, SC_SIM_READ_EIO, 0);
        rig_pass_ns(&ranks[0], TURN);
        assert_true(promised_end(&ranks[0], &prompt) > end_ns);
        rig_leave(&ranks[2]);
        rig_leave(&ranks[1]);
        rig_done(&ranks[0]);
    }
    rig_prompt_free(&prompt);
}

static void the_minimum_is_cut_to_the_hosts_multiple_last(void **state)
{
    (void)state;
    struct rig first, second;
    sim_rig(&first, "", 2);
    struct prompt prompt = rig_prompt(9, 0, 0, 200);
    rig_beside(&second, &first, SPEC_ROLE_WRITER, 1);
    rig_open(&first);
    rig_open(&second);
    store_prefix(&first, &prompt, 160);
    store_prefix(&second, &prompt, 150);
    rig_pass_ns(&first, TURN);
    struct spec_lookup_params params = {.struct_size = sizeof(params),
                                        .tokens = prompt.tokens,
                                        .token_count = prompt.count,
                                        .multiple_of = 16};
    struct spec_lookup_result result = rig_lookup_as(&first, &params);
    assert_int_equal(result.matched_tokens, 144);
    rig_release(&first, result.request);
    rig_leave(&second);
    rig_end(&first, &prompt);
}

/* Ranks differ in layers, heads and number: rows of one never pass for another's. */
static void ranks_of_other_shapes_compare_and_load_their_own(void **state)
{
    (void)state;
    struct rig ranks[2];
    struct prompt prompt = rig_prompt(10, 0, 0, 100);
    sim_rig(&ranks[0], "", 2);
    rig_beside(&ranks[1], &ranks[0], SPEC_ROLE_WRITER, 1);
    rig_shape(&ranks[1], 2, 1, 8, SPEC_DTYPE_F16);
    for (uint32_t i = 0; i < 2; i++) {
        struct spec_model model = rig_model(&ranks[i]);
        model.tp_size = 2;
        model.tp_rank = i;
        assert_int_equal(rig_try_open_model(&ranks[i], &model), SPEC_OK);
        store_prefix(&ranks[i], &prompt, 100);
    }
    for (uint32_t i = 0; i < 2; i++) {
        rig_pass_ns(&ranks[i], TURN);
        assert_int_equal(rig_read(&ranks[i], &prompt, NULL), 100);
    }
    rig_leave(&ranks[1]);
    rig_end(&ranks[0], &prompt);
}

static void another_models_rank_promises_nothing(void **state)
{
    (void)state;
    struct rig ranks[2];
    struct prompt prompt = rig_prompt(11, 0, 0, 100);
    sim_rig(&ranks[0], "", 2);
    rig_beside(&ranks[1], &ranks[0], SPEC_ROLE_WRITER, 1);
    rig_open(&ranks[0]);
    struct spec_model model = rig_model(&ranks[1]);
    model.weights_id = (struct spec_bytes){"another", 7};
    assert_int_equal(rig_try_open_model(&ranks[1], &model), SPEC_OK);
    for (uint32_t i = 0; i < 2; i++)
        store_prefix(&ranks[i], &prompt, 100);
    for (uint32_t i = 0; i < 2; i++) {
        rig_pass_ns(&ranks[i], TURN);
        assert_int_equal(rig_matched(&ranks[i], &prompt), 0);
    }
    rig_leave(&ranks[1]);
    rig_end(&ranks[0], &prompt);
}

static void an_index_too_small_for_the_ranks_is_refused(void **state)
{
    (void)state;
    struct rig rig;
    sim_rig(&rig, "\"index_bytes_max\": \"7MiB\"", 8);
    assert_int_equal(rig_try_open(&rig), SPEC_E_CONFIG);
    assert_non_null(strstr(rig.error.text, "index_bytes_max"));
    assert_int_equal(atomic_load(&rig.memory.live_blocks), 0);
    rig_done(&rig);
}

/* Open fails cleanly at each allocation, also that of a follower. */
static void an_open_that_lacks_memory_leaks_nothing(void **state)
{
    (void)state;
    struct rig rig;
    sim_rig(&rig, "\"max_requests\": 2", 2);
    rig_open(&rig);
    for (uint32_t role = SPEC_ROLE_WRITER; role <= SPEC_ROLE_READER; role++) {
        struct rig beside;
        rig_beside(&beside, &rig, role, 1);
        for (uint64_t n = 0;; n++) {
            atomic_store(&beside.memory.countdown, (int64_t)n);
            atomic_store(&beside.memory.failed, 0);
            spec_status status = rig_try_open(&beside);
            atomic_store(&beside.memory.countdown, -1);
            bool failed = atomic_load(&beside.memory.failed) > 0;
            if (status == SPEC_OK)
                rig_close(&beside);
            else
                assert_int_equal(status, SPEC_E_NO_MEMORY);
            assert_int_equal(atomic_load(&beside.memory.live_blocks), 0);
            if (!failed)
                break;
        }
    }
    rig_done(&rig);
}

/* Real threads and files: a reader looks up while its writer stores, and closes in between. */
static void threads_follow_while_a_host_looks_up(void **state)
{
    (void)state;
    struct rig writer, reader;
    rig_begin(&writer, false, "");
    for (uint32_t round = 0; round < 5; round++) {
        rig_open_beside(&reader, &writer, SPEC_ROLE_READER, 0);
        for (uint64_t i = 0; i < 6; i++) {
            struct prompt prompt = rig_prompt(20 + round, 0, 0, 40 * (i + 1));
            assert_int_equal(rig_fill(&writer, &prompt), SPEC_OK);
            uint64_t found = 0;
            while (found < prompt.count) { /* it comes, however late the reader's turn is */
                spec_status status;
                found = rig_read(&reader, &prompt, &status);
                assert_int_equal(status, SPEC_OK);
                if (found < prompt.count)
                    rig_pass_ns(&reader, MS);
            }
            rig_prompt_free(&prompt);
        }
        rig_leave(&reader);
    }
    rig_done(&writer);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_reader_finds_what_its_writer_stores),
        cmocka_unit_test(a_reader_may_be_there_before_the_store),
        cmocka_unit_test(a_reader_stores_nothing),
        cmocka_unit_test(the_second_writer_is_refused_and_auto_reads),
        cmocka_unit_test(a_dropped_piece_is_gone_in_the_reader),
        cmocka_unit_test(a_reader_that_has_not_looked_for_too_long_promises_nothing),
        cmocka_unit_test(a_readers_promise_is_shorter_by_the_age_of_what_it_read),
        cmocka_unit_test(without_leases_only_the_writer_promises),
        cmocka_unit_test(a_lookup_promises_what_every_rank_has),
        cmocka_unit_test(an_unreadable_log_of_one_rank_ends_all_promises),
        cmocka_unit_test(the_minimum_is_cut_to_the_hosts_multiple_last),
        cmocka_unit_test(ranks_of_other_shapes_compare_and_load_their_own),
        cmocka_unit_test(another_models_rank_promises_nothing),
        cmocka_unit_test(an_index_too_small_for_the_ranks_is_refused),
        cmocka_unit_test(an_open_that_lacks_memory_leaks_nothing),
        cmocka_unit_test(threads_follow_while_a_host_looks_up),
    };
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
