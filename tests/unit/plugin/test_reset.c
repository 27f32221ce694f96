/* Resets and failed ranges between processes: nothing of before a reset is promised again, by whom
 * it was asked for and whoever was away; a range that failed in a reader goes in the writer.
 *
 * Each connector has a loop and a virtual clock of its own. Threads: the last test; else one. */
#include "tests/unit/plugin/plugin_fixture.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#define MS   UINT64_C(1000000)
#define TURN (30 * MS)

static uint64_t index_runs(struct rig *rig)
{
    struct sc_radix_stats stats;
    sc_radix_stats(rig->conn->radix, &stats);
    return stats.runs;
}

static void reset(struct rig *rig)
{
    assert_int_equal(sc_plugin_reset(rig->conn, NULL), SPEC_OK);
}

static void nothing_of_before_is_promised_again(void **state)
{
    (void)state;
    struct rig rig;
    struct prompt prompt = rig_prompt(1, 0, 0, 300), other = rig_prompt(2, 0, 0, 100);
    rig_begin(&rig, true, "");
    assert_int_equal(rig_fill(&rig, &prompt), SPEC_OK);
    for (uint64_t epoch = 1; epoch <= 3; epoch++) {
        reset(&rig);
        assert_int_equal(atomic_load(&rig.conn->epoch), epoch);
        assert_int_equal(rig_matched(&rig, &prompt), 0);
        assert_int_equal(rig_fill(&rig, &other), SPEC_OK);
        rig_reopen(&rig);
        assert_int_equal(atomic_load(&rig.conn->epoch), epoch);
        assert_int_equal(rig_matched(&rig, &prompt), 0);
        assert_int_equal(rig_read(&rig, &other, NULL), 100);
    }
    rig_end(&rig, &prompt, &other);
}

static void old_runs_leave_the_index_in_the_background(void **state)
{
    (void)state;
    struct rig rig;
    rig_begin(&rig, true, "");
    for (uint64_t i = 0; i < 20; i++) {
        struct prompt prompt = rig_prompt(100 + i, 0, 0, 640);
        assert_int_equal(rig_fill(&rig, &prompt), SPEC_OK);
        rig_prompt_free(&prompt);
    }
    struct prompt prompt = rig_prompt(100, 0, 0, 640);
    struct spec_lookup_result held = rig_lookup(&rig, &prompt); /* pins its runs */
    assert_int_equal(index_runs(&rig), 200);
    reset(&rig);
    assert_int_equal(rig_fill(&rig, &prompt), SPEC_OK);
    for (uint32_t i = 0; i < 10; i++)
        rig_pass_ns(&rig, TURN);
    assert_int_equal(index_runs(&rig), 20);
    rig_release(&rig, held.request);
    rig_pass_ns(&rig, TURN);
    assert_int_equal(index_runs(&rig), 10);
    assert_int_equal(rig_read(&rig, &prompt, NULL), 640);
    rig_end(&rig, &prompt);
}

static void requests_of_before_are_stale_but_for_release(void **state)
{
    (void)state;
    struct rig rig;
    struct prompt prompt = rig_prompt(3, 0, 0, 200);
    spec_ticket ticket = 0;
    rig_begin(&rig, true, "");
    assert_int_equal(rig_fill(&rig, &prompt), SPEC_OK);
    struct prompt longer = rig_prompt(3, 0, 0, 300);
    struct spec_lookup_result result = rig_lookup(&rig, &longer);
    assert_int_equal(result.matched_tokens, 200);
    spec_ticket first = 0;
    assert_int_equal(rig_store_layer(&rig, result.request, &longer, 200, 100, 0, &first), SPEC_OK);
    reset(&rig);
    assert_int_equal(sc_plugin_begin_layer(rig.conn, &result.request, 1, 0, NULL), SPEC_E_STALE);
    assert_int_equal(sc_plugin_prefetch_next(rig.conn, result.request, 0, NULL, NULL),
                     SPEC_E_STALE);
    assert_int_equal(sc_plugin_store_abort(rig.conn, result.request, 0, NULL), SPEC_E_STALE);
    assert_int_equal(rig_store_layer(&rig, result.request, &longer, 200, 100, 1, &ticket),
                     SPEC_E_STALE);
    struct area area = rig_area(&rig, 200);
    struct spec_important item = rig_item(result.request, 0, &area.memory);
    assert_int_equal(sc_plugin_get_important(rig.conn, &item, 1, NULL), SPEC_E_STALE);
    rig_area_free(&area);
    rig_release(&rig, result.request);
    assert_int_equal(atomic_load(&rig.conn->stats.requests_open), 0);
    rig_settle(&rig);
    assert_int_equal(rig_matched(&rig, &longer), 0);
    rig_end(&rig, &prompt, &longer);
}

/* All layers were given before the reset, and are written after it. */
static void a_store_that_is_under_way_is_dropped(void **state)
{
    (void)state;
    struct rig rig;
    struct prompt prompt = rig_prompt(4, 0, 0, 100);
    rig_begin(&rig, true, "");
    struct spec_lookup_result result = rig_lookup(&rig, &prompt);
    spec_ticket ticket = rig_store(&rig, result.request, &prompt, 0, 100);
    reset(&rig);
    assert_int_equal(rig_wait(&rig, ticket), SPEC_E_DROPPED);
    rig_release(&rig, result.request);
    assert_int_equal(rig_matched(&rig, &prompt), 0);
    rig_reopen(&rig);
    assert_int_equal(rig_matched(&rig, &prompt), 0);
    rig_end(&rig, &prompt);
}

/* The weights' epoch is what counts; the log's record is written by the next turn. */
static void a_reset_that_the_log_cannot_record_stops_stores(void **state)
{
    (void)state;
    struct rig rig;
    struct prompt prompt = rig_prompt(5, 0, 0, 100);
    rig_begin(&rig, true, "");
    assert_int_equal(rig_fill(&rig, &prompt), SPEC_OK);
    sc_io_sim_fault_nth(rig.disk, SC_SIM_WRITE_EIO, 0);
    reset(&rig);
    assert_int_equal(sc_io_sim_fault_fired(rig.disk, SC_SIM_WRITE_EIO), 1);
    assert_int_equal(atomic_load(&rig.conn->epoch), 1);
    assert_int_equal(sc_store_epoch(rig.conn->store), 0);
    assert_int_equal(rig_matched(&rig, &prompt), 0);
    rig_pass_ns(&rig, TURN);
    assert_int_equal(sc_store_epoch(rig.conn->store), 1);
    assert_int_equal(rig_matched(&rig, &prompt), 0);
    rig_store_all(&rig, &prompt, prompt.count);
    rig_reopen(&rig);
    assert_int_equal(rig_read(&rig, &prompt, NULL), 100);
    rig_end(&rig, &prompt);
}

static void a_reset_that_takes_no_epoch_changes_nothing_here(void **state)
{
    (void)state;
    struct rig writer, reader;
    struct prompt prompt = rig_prompt(16, 0, 0, 100);
    rig_begin(&writer, true, "");
    assert_int_equal(rig_fill(&writer, &prompt), SPEC_OK);
    rig_open_beside(&reader, &writer, SPEC_ROLE_READER, 0);
    struct rig *both[] = {&writer, &reader};
    for (uint32_t i = 0; i < 2; i++) {
        struct spec_error error = {.struct_size = sizeof(error)};
        sc_io_sim_fault_nth(writer.disk, SC_SIM_SYNC_EIO, 0);
        assert_int_equal(sc_plugin_reset(both[i]->conn, &error), SPEC_E_IO);
        assert_true(error.text[0] != 0);
        assert_int_equal(atomic_load(&both[i]->conn->epoch), 0);
        assert_int_equal(rig_read(both[i], &prompt, NULL), 100);
    }
    reset(&reader);
    rig_pass_ns(&writer, TURN);
    for (uint32_t i = 0; i < 2; i++)
        assert_int_equal(rig_matched(both[i], &prompt), 0);
    rig_leave(&reader);
    rig_end(&writer, &prompt);
}

/* The number behind the last one is 0, an epoch of long ago. */
static void a_reset_at_the_last_epoch_is_refused(void **state)
{
    (void)state;
    struct rig writer, reader;
    struct prompt prompt = rig_prompt(14, 0, 0, 100);
    struct spec_error error = {.struct_size = sizeof(error)};
    bool is_new = false;
    rig_begin(&writer, true, "");
    rig_open_beside(&reader, &writer, SPEC_ROLE_READER, 0);
    assert_int_equal(sc_store_weights_epoch_put(writer.conn->store, writer.conn->weights,
                                                UINT64_MAX, &is_new, NULL),
                     SPEC_OK);
    rig_pass_ns(&writer, TURN);
    rig_pass_ns(&reader, TURN);
    rig_store_all(&writer, &prompt, prompt.count);
    rig_pass_ns(&reader, TURN);
    struct rig *both[] = {&writer, &reader};
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(atomic_load(&both[i]->conn->epoch), UINT64_MAX);
        assert_int_equal(sc_plugin_reset(both[i]->conn, &error), SPEC_E_IO);
        assert_true(error.text[0] != 0);
        assert_int_equal(atomic_load(&both[i]->conn->epoch), UINT64_MAX);
        assert_int_equal(rig_read(both[i], &prompt, NULL), 100);
    }
    rig_leave(&reader);
    rig_end(&writer, &prompt);
}

/* ---- Between connectors ---------------------------------------------------------------------- */

static void readers_and_ranks_follow_a_writers_reset(void **state)
{
    (void)state;
    struct rig ranks[2], reader;
    struct prompt prompt = rig_prompt(6, 0, 0, 100);
    rig_init(&ranks[0], true, "");
    ranks[0].rank_count = 2;
    rig_beside(&ranks[1], &ranks[0], SPEC_ROLE_WRITER, 1);
    rig_beside(&reader, &ranks[0], SPEC_ROLE_READER, 1);
    for (uint32_t i = 0; i < 2; i++) {
        rig_open(&ranks[i]);
        rig_store_all(&ranks[i], &prompt, prompt.count);
    }
    rig_open(&reader);
    rig_pass_ns(&ranks[0], TURN);
    struct spec_lookup_result held = rig_lookup(&ranks[1], &prompt);
    assert_int_equal(held.matched_tokens, 100);
    assert_int_equal(rig_matched(&reader, &prompt), 100);
    reset(&ranks[0]);
    struct rig *others[] = {&ranks[1], &reader};
    for (uint32_t i = 0; i < 2; i++) {
        rig_pass_ns(others[i], TURN);
        assert_int_equal(atomic_load(&others[i]->conn->epoch), 1);
        assert_int_equal(rig_matched(others[i], &prompt), 0);
    }
    assert_int_equal(sc_plugin_begin_layer(ranks[1].conn, &held.request, 1, 0, NULL), SPEC_E_STALE);
    rig_release(&ranks[1], held.request);
    for (uint32_t i = 0; i < 2; i++)
        rig_store_all(&ranks[i], &prompt, prompt.count);
    struct rig *all[] = {&ranks[0], &ranks[1], &reader};
    for (uint32_t i = 0; i < 3; i++) {
        rig_pass_ns(all[i], TURN);
        assert_int_equal(rig_read(all[i], &prompt, NULL), 100);
    }
    rig_leave(&reader);
    rig_leave(&ranks[1]);
    rig_end(&ranks[0], &prompt);
}

static void a_readers_reset_reaches_every_writer(void **state)
{
    (void)state;
    struct rig ranks[2], reader;
    struct prompt prompt = rig_prompt(7, 0, 0, 100);
    rig_init(&ranks[0], true, "");
    ranks[0].rank_count = 2;
    rig_beside(&ranks[1], &ranks[0], SPEC_ROLE_WRITER, 1);
    rig_beside(&reader, &ranks[0], SPEC_ROLE_READER, 0);
    for (uint32_t i = 0; i < 2; i++) {
        rig_open(&ranks[i]);
        rig_store_all(&ranks[i], &prompt, prompt.count);
    }
    rig_open(&reader);
    assert_int_equal(rig_matched(&reader, &prompt), 100);
    for (uint64_t epoch = 1; epoch <= 3; epoch++) {
        reset(&reader);
        assert_int_equal(rig_matched(&reader, &prompt), 0); /* here at once */
        for (uint32_t i = 0; i < 2; i++)                    /* each writer is told once */
            assert_int_equal(reader.conn->notify_queue.epoch_told[i], epoch);
        for (uint32_t i = 0; i < 2; i++) {
            assert_int_equal(atomic_load(&ranks[i].conn->epoch), epoch - 1);
            rig_pass_ns(&ranks[i], TURN);
            assert_int_equal(sc_store_epoch(ranks[i].conn->store), epoch);
            assert_int_equal(rig_matched(&ranks[i], &prompt), 0);
            rig_store_all(&ranks[i], &prompt, prompt.count);
        }
        rig_pass_ns(&reader, TURN);
        assert_int_equal(rig_read(&reader, &prompt, NULL), 100);
    }
    rig_leave(&reader);
    rig_leave(&ranks[1]);
    rig_end(&ranks[0], &prompt);
}

/* The mail waits for the writer that comes, and counts before its first lookup; a writer of another
 * model in between does not lose it. */
static void a_reset_waits_for_a_writer_that_is_away(void **state)
{
    (void)state;
    struct rig writer, reader, other;
    struct prompt prompt = rig_prompt(8, 0, 0, 100);
    rig_begin(&writer, true, "");
    rig_store_all(&writer, &prompt, prompt.count);
    rig_close(&writer);
    rig_open_beside(&reader, &writer, SPEC_ROLE_READER, 0);
    assert_int_equal(rig_matched(&reader, &prompt), 100);
    reset(&reader);
    rig_leave(&reader);
    rig_beside(&other, &writer, SPEC_ROLE_WRITER, 0);
    struct spec_model model = rig_model(&other);
    model.weights_id = (struct spec_bytes){"another", 7};
    assert_int_equal(rig_try_open_model(&other, &model), SPEC_OK);
    rig_pass_ns(&other, TURN);
    assert_int_equal(atomic_load(&other.conn->epoch), 0);
    rig_leave(&other);
    rig_open(&writer);
    assert_int_equal(atomic_load(&writer.conn->epoch), 1);
    assert_int_equal(rig_matched(&writer, &prompt), 0);
    rig_end(&writer, &prompt);
}

/* A reset of one configuration fails, because `epochs` cannot be made, and what is stored after it
 * is of the old weights still. Then another configuration resets. */
static void what_is_stored_after_a_failed_reset_is_void_after_the_next(void **state)
{
    (void)state;
    for (uint32_t role = 0; role < 2; role++) {
        struct rig writer, reader, other;
        struct prompt prompt = rig_prompt(15, 0, 0, 100);
        char path[256];
        rig_begin(&writer, false, "");
        rig_open_beside(&reader, &writer, SPEC_ROLE_READER, 0);
        (void)snprintf(path, sizeof(path), "%s/epochs", writer.path);
        assert_int_equal(symlink("nowhere", path), 0);
        struct rig *resets = role == 0 ? &writer : &reader;
        assert_int_equal(sc_plugin_reset(resets->conn, NULL), SPEC_E_IO);
        rig_leave(&reader);
        assert_int_equal(unlink(path), 0);
        rig_store_all(&writer, &prompt, prompt.count);
        rig_close(&writer);
        rig_beside(&other, &writer, SPEC_ROLE_READER, 0);
        other.extra = "\"chunk_tokens\": 128";
        rig_open(&other);
        reset(&other);
        rig_leave(&other);
        rig_open(&writer);
        assert_int_equal(rig_matched(&writer, &prompt), 0);
        rig_end(&writer, &prompt);
    }
}

/* A reader resets in a directory that has no store yet: one is made there all the same. */
static void a_reset_before_there_is_a_store_lets_one_be_made(void **state)
{
    (void)state;
    struct rig writer, reader;
    struct prompt prompt = rig_prompt(17, 0, 0, 100);
    rig_init(&writer, false, "");
    assert_int_equal(mkdir(writer.path, 0700), 0);
    rig_open_beside(&reader, &writer, SPEC_ROLE_READER, 0);
    reset(&reader);
    rig_leave(&reader);
    rig_open(&writer);
    assert_int_equal(atomic_load(&writer.conn->epoch), 1);
    rig_store_all(&writer, &prompt, prompt.count);
    assert_int_equal(rig_read(&writer, &prompt, NULL), 100);
    rig_end(&writer, &prompt);
}

/* What the writer stored after a reset of its own, the reader's reset makes void as well. */
static void a_readers_reset_covers_what_it_had_not_read_yet(void **state)
{
    (void)state;
    struct rig writer, reader;
    struct prompt prompt = rig_prompt(9, 0, 0, 100);
    rig_begin(&writer, true, "");
    rig_open_beside(&reader, &writer, SPEC_ROLE_READER, 0);
    reset(&writer);
    rig_store_all(&writer, &prompt, prompt.count);
    reset(&reader); /* it has not looked since */
    assert_int_equal(atomic_load(&reader.conn->epoch), 2);
    rig_pass_ns(&reader, TURN);
    assert_int_equal(rig_matched(&reader, &prompt), 0);
    rig_pass_ns(&writer, TURN);
    assert_int_equal(rig_matched(&writer, &prompt), 0);
    rig_leave(&reader);
    rig_end(&writer, &prompt);
}

/* Mail, logs and the weights are read one after the other: what is heard late may be an old number.
 */
static void an_epoch_that_is_heard_late_changes_nothing(void **state)
{
    (void)state;
    struct rig rig;
    struct prompt prompt = rig_prompt(14, 0, 0, 100);
    rig_begin(&rig, true, "");
    reset(&rig);
    reset(&rig);
    rig_store_all(&rig, &prompt, prompt.count);
    sc_plugin_epoch_move(rig.conn, 1);
    assert_int_equal(atomic_load(&rig.conn->epoch), 2);
    assert_int_equal(rig_matched(&rig, &prompt), 100);
    rig_end(&rig, &prompt);
}

/* An epoch taken without the log's end could be one that the log has already. */
static void a_readers_reset_that_cannot_read_the_log_changes_nothing(void **state)
{
    (void)state;
    struct rig writer, reader;
    struct prompt prompt = rig_prompt(12, 0, 0, 100);
    rig_begin(&writer, true, "");
    rig_open_beside(&reader, &writer, SPEC_ROLE_READER, 0);
    reset(&writer);
    rig_store_all(&writer, &prompt, prompt.count);
    sc_io_sim_fault_scope(writer.disk, "/log");
    sc_io_sim_fault_ppm(writer.disk, SC_SIM_READ_EIO, 1000000);
    struct spec_error error = {.struct_size = sizeof(error)};
    assert_int_equal(sc_plugin_reset(reader.conn, &error), SPEC_E_IO);
    assert_int_equal(atomic_load(&reader.conn->epoch), 0);
    sc_io_sim_fault_ppm(writer.disk, SC_SIM_READ_EIO, 0);
    rig_pass_ns(&reader, TURN);
    assert_int_equal(rig_read(&reader, &prompt, NULL), 100);
    reset(&reader);
    assert_int_equal(atomic_load(&reader.conn->epoch), 2);
    rig_leave(&reader);
    rig_end(&writer, &prompt);
}

/* Heard of by mail, and not to be written: nothing old is promised, and nothing new is stored
 * until the log says the epoch. */
static void an_epoch_that_cannot_be_recorded_stops_stores_only(void **state)
{
    (void)state;
    struct rig writer, reader;
    struct prompt prompt = rig_prompt(10, 0, 0, 100);
    rig_begin(&writer, true, "");
    rig_store_all(&writer, &prompt, prompt.count);
    rig_open_beside(&reader, &writer, SPEC_ROLE_READER, 0);
    reset(&reader);
    sc_io_sim_fault_scope(writer.disk, "/log");
    sc_io_sim_fault_ppm(writer.disk, SC_SIM_WRITE_EIO, 1000000);
    rig_pass_ns(&writer, TURN);
    assert_int_equal(atomic_load(&writer.conn->epoch), 1);
    assert_int_equal(sc_store_epoch(writer.conn->store), 0);
    assert_int_equal(rig_matched(&writer, &prompt), 0);
    sc_io_sim_fault_ppm(writer.disk, SC_SIM_WRITE_EIO, 0);
    struct spec_lookup_result result = rig_lookup(&writer, &prompt);
    spec_ticket ticket = rig_store(&writer, result.request, &prompt, 0, 100);
    assert_int_equal(rig_wait(&writer, ticket), SPEC_E_DROPPED);
    assert_int_equal(sc_store_epoch(writer.conn->store), 0); /* the next turn tries again */
    rig_release(&writer, result.request);
    rig_pass_ns(&writer, TURN);
    assert_int_equal(sc_store_epoch(writer.conn->store), 1);
    rig_store_all(&writer, &prompt, prompt.count);
    assert_int_equal(rig_read(&writer, &prompt, NULL), 100);
    rig_reopen(&writer);
    assert_int_equal(rig_read(&writer, &prompt, NULL), 100);
    rig_leave(&reader);
    rig_end(&writer, &prompt);
}

static void a_range_that_fails_in_a_reader_goes_in_the_writer(void **state)
{
    (void)state;
    struct rig writer, reader;
    struct prompt prompt = rig_prompt(11, 0, 0, 256);
    rig_begin(&writer, true, "");
    rig_store_all(&writer, &prompt, prompt.count);
    rig_open_beside(&reader, &writer, SPEC_ROLE_READER, 0);
    struct spec_lookup_result result = rig_lookup(&reader, &prompt);
    sc_io_sim_fault_nth(writer.disk, SC_SIM_READ_EIO, 0);
    assert_int_equal(rig_load(&reader, result.request, &prompt, 0, 256, 1), SPEC_E_IO);
    rig_release(&reader, result.request);
    uint64_t left = rig_matched(&reader, &prompt);
    assert_true(left < 256); /* here at once */
    assert_int_equal(rig_matched(&writer, &prompt), 256);
    rig_pass_ns(&reader, TURN);
    rig_pass_ns(&writer, TURN);
    assert_int_equal(rig_matched(&writer, &prompt), left);
    assert_int_equal(atomic_load(&writer.conn->stats.corrupt_ranges), 1);
    rig_reopen(&writer);
    assert_int_equal(rig_matched(&writer, &prompt), left);
    assert_int_equal(rig_fill(&writer, &prompt), SPEC_OK); /* stored anew */
    rig_pass_ns(&reader, TURN);
    assert_int_equal(rig_read(&reader, &prompt, NULL), 256);
    rig_leave(&reader);
    rig_end(&writer, &prompt);
}

/* A reader that speaks of a piece that is another one by now. */
static void a_failed_range_of_another_piece_is_not_believed(void **state)
{
    (void)state;
    struct rig writer, reader;
    struct prompt prompt = rig_prompt(12, 0, 0, 64);
    rig_begin(&writer, true, "");
    rig_store_all(&writer, &prompt, prompt.count);
    rig_open_beside(&reader, &writer, SPEC_ROLE_READER, 0);
    struct sc_store_notify mail = {.kind = SC_STORE_NOTIFY_FAILED, .piece = 1};
    assert_true(sc_store_piece_hash(writer.conn->store, 1, mail.hash));
    mail.hash[3] ^= 1;
    assert_int_equal(sc_store_notify_post(reader.conn->store, 0, &mail, NULL), SPEC_OK);
    mail.hash[3] ^= 1;
    mail.piece = 999;
    assert_int_equal(sc_store_notify_post(reader.conn->store, 0, &mail, NULL), SPEC_OK);
    rig_pass_ns(&writer, TURN);
    assert_int_equal(rig_read(&writer, &prompt, NULL), 64);
    mail.piece = 1;
    assert_int_equal(sc_store_notify_post(reader.conn->store, 0, &mail, NULL), SPEC_OK);
    rig_pass_ns(&writer, TURN);
    assert_int_equal(rig_matched(&writer, &prompt), 0);
    rig_leave(&reader);
    rig_end(&writer, &prompt);
}

/* Real threads: resets beside lookups, loads and stores; a request is of now, or stale. */
static void resets_race_with_everything(void **state)
{
    (void)state;
    struct rig rig;
    rig_begin(&rig, false, "");
    for (uint64_t i = 0; i < 60; i++) {
        struct prompt prompt = rig_prompt(20, 0, 0, 200);
        struct spec_lookup_result result = rig_lookup(&rig, &prompt);
        spec_ticket ticket = 0;
        if (result.matched_tokens < 200)
            ticket = rig_store(&rig, result.request, &prompt, result.matched_tokens,
                               200 - result.matched_tokens);
        if (i % 3 == 2)
            reset(&rig);
        if (ticket != 0) {
            spec_status status = rig_wait(&rig, ticket);
            assert_true(status == SPEC_OK || (status == SPEC_E_DROPPED && i % 3 == 2));
        }
        rig_release(&rig, result.request);
        uint64_t found = rig_matched(&rig, &prompt);
        assert_true(i % 3 == 2 ? found == 0 : found == 200);
        rig_prompt_free(&prompt);
    }
    rig_done(&rig);
}

/* In a child, whose files may not grow beyond a limit, with the signal's default action, which
 * would end it: 0, or what went wrong. */
static int live_within_a_limit(const char *backend, uint64_t limit_bytes)
{
    struct rig rig;
    rig_init(&rig, false, "\"disk_bytes\": \"64MiB\", \"segment_bytes\": \"16MiB\"");
    rig.backend = backend;
    rig_open(&rig);
    struct prompt prompt = rig_prompt(1, 0, 0, 200);
    struct rlimit limit;
    (void)signal(SIGXFSZ, SIG_DFL);
    if (rig_fill(&rig, &prompt) != SPEC_OK || getrlimit(RLIMIT_FSIZE, &limit) != 0)
        return 1;
    limit.rlim_cur = limit_bytes;
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0)
        return 2;
    bool fits = limit_bytes >= 1u << 20;
    spec_status status = sc_plugin_reset(rig.conn, NULL);
    if (status != SPEC_OK || rig_matched(&rig, &prompt) != 0)
        return 3; /* its file is empty; the log's record has to wait */
    for (uint64_t seed = 2; seed < 20; seed++) {
        struct prompt other = rig_prompt(seed, 0, 0, 200);
        status = rig_fill(&rig, &other);
        rig_prompt_free(&other);
        if (fits ? status != SPEC_OK : status == SPEC_OK)
            return 4;
    }
    rig_close(&rig); /* and its log, and its lock */
    status = rig_try_open(&rig);
    if (status != (fits ? SPEC_OK : SPEC_E_NO_SPACE))
        return 5;
    limit.rlim_cur = limit.rlim_max;
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0)
        return 6;
    if (!fits)
        rig_open(&rig);
    if (sc_plugin_reset(rig.conn, NULL) != SPEC_OK || rig_fill(&rig, &prompt) != SPEC_OK ||
        rig_read(&rig, &prompt, NULL) != prompt.count)
        return 7;
    rig_end(&rig, &prompt);
    return 0;
}

static void a_limit_on_files_ends_no_process(void **state)
{
    (void)state;
    static const char *const BACKENDS[] = {"pread", "auto"};
    static const uint64_t LIMITS[] = {100, 16u << 20};
    for (uint32_t i = 0; i < 4; i++) {
        const pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0)
            _exit(live_within_a_limit(BACKENDS[i / 2], LIMITS[i % 2]));
        int status = -1;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFEXITED(status)); /* no signal */
        assert_int_equal(WEXITSTATUS(status), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_of_before_is_promised_again),
        cmocka_unit_test(old_runs_leave_the_index_in_the_background),
        cmocka_unit_test(requests_of_before_are_stale_but_for_release),
        cmocka_unit_test(a_store_that_is_under_way_is_dropped),
        cmocka_unit_test(a_reset_that_the_log_cannot_record_stops_stores),
        cmocka_unit_test(a_reset_that_takes_no_epoch_changes_nothing_here),
        cmocka_unit_test(what_is_stored_after_a_failed_reset_is_void_after_the_next),
        cmocka_unit_test(a_reset_at_the_last_epoch_is_refused),
        cmocka_unit_test(a_reset_before_there_is_a_store_lets_one_be_made),
        cmocka_unit_test(readers_and_ranks_follow_a_writers_reset),
        cmocka_unit_test(a_readers_reset_reaches_every_writer),
        cmocka_unit_test(a_reset_waits_for_a_writer_that_is_away),
        cmocka_unit_test(a_readers_reset_covers_what_it_had_not_read_yet),
        cmocka_unit_test(an_epoch_that_is_heard_late_changes_nothing),
        cmocka_unit_test(a_readers_reset_that_cannot_read_the_log_changes_nothing),
        cmocka_unit_test(an_epoch_that_cannot_be_recorded_stops_stores_only),
        cmocka_unit_test(a_range_that_fails_in_a_reader_goes_in_the_writer),
        cmocka_unit_test(a_failed_range_of_another_piece_is_not_believed),
        cmocka_unit_test(a_limit_on_files_ends_no_process),
        cmocka_unit_test(resets_race_with_everything),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
