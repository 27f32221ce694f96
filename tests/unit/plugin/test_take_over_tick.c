/* AUTO readers become the rank's writer when there is none: one of them, with the requests that are
 * open; the others find what it stores; and resets, erasures and failed rows that nobody recorded
 * are recorded then.
 *
 * Each connector has a loop and a virtual clock of its own, so a test decides who looks when.
 * Threads: one. */
#include "store/erase.h"
#include "store/internal.h"
#include "tests/unit/plugin/plugin_fixture.h"

#define MS   UINT64_C(1000000)
#define TURN (30 * MS)   /* a turn every 25 ms */
#define SOON (150 * MS)  /* it tries every 100 ms */

static uint64_t role_of(const struct rig *rig)
{
    return atomic_load(&rig->conn->ranks.role);
}

/* A writer with one prompt, and AUTO readers beside it. */
static void writer_and_readers(struct rig *writer, struct rig *readers, uint32_t count,
                               const char *extra, const struct prompt *prompt)
{
    rig_begin(writer, true, extra);
    assert_int_equal(rig_fill(writer, prompt), SPEC_OK);
    for (uint32_t i = 0; i < count; i++) {
        rig_open_beside(&readers[i], writer, SPEC_ROLE_AUTO, 0);
        assert_int_equal(role_of(&readers[i]), SPEC_ROLE_READER);
    }
}

static void becomes_the_writer(struct rig *rig)
{
    rig_pass_ns(rig, SOON);
    assert_int_equal(role_of(rig), SPEC_ROLE_WRITER);
}

static void one_takes_over_and_the_others_read(void **state)
{
    (void)state;
    struct rig writer, readers[2];
    struct prompt first = rig_prompt(1, 0, 0, 300), second = rig_prompt(2, 0, 0, 200);
    writer_and_readers(&writer, readers, 2, "", &first);
    rig_pass_ns(&readers[0], SOON);
    assert_int_equal(role_of(&readers[0]), SPEC_ROLE_READER); /* there is a writer */
    struct spec_lookup_result open = rig_lookup(&readers[0], &first);
    assert_int_equal(open.matched_tokens, 300);
    assert_int_equal(rig_load(&readers[0], open.request, &first, 0, 300, 0), SPEC_OK);
    rig_close(&writer);
    becomes_the_writer(&readers[0]);
    rig_pass_ns(&readers[1], SOON);
    assert_int_equal(role_of(&readers[1]), SPEC_ROLE_READER);
    /* The request that was open goes on, and so does what it stores. */
    for (uint32_t layer = 1; layer < readers[0].layers; layer++)
        assert_int_equal(rig_load(&readers[0], open.request, &first, 0, 300, layer), SPEC_OK);
    rig_release(&readers[0], open.request);
    assert_int_equal(rig_fill(&readers[0], &second), SPEC_OK);
    assert_int_equal(rig_read(&readers[0], &second, NULL), 200);
    rig_pass_ns(&readers[1], TURN);
    assert_int_equal(rig_read(&readers[1], &first, NULL), 300);
    assert_int_equal(rig_read(&readers[1], &second, NULL), 200);
    /* And again, to the next. */
    rig_leave(&readers[0]);
    becomes_the_writer(&readers[1]);
    assert_int_equal(rig_read(&readers[1], &second, NULL), 200);
    rig_leave(&readers[1]);
    rig_open(&writer);
    assert_int_equal(role_of(&writer), SPEC_ROLE_WRITER);
    assert_int_equal(rig_read(&writer, &first, NULL), 300);
    assert_int_equal(rig_read(&writer, &second, NULL), 200);
    rig_end(&writer, &first, &second);
}

static void a_reader_that_asked_to_read_stays_one(void **state)
{
    (void)state;
    struct rig writer, reader;
    struct prompt prompt = rig_prompt(3, 0, 0, 100);
    writer_and_readers(&writer, NULL, 0, "", &prompt);
    rig_open_beside(&reader, &writer, SPEC_ROLE_READER, 0);
    rig_close(&writer);
    rig_pass_ns(&reader, 10 * SOON);
    assert_int_equal(role_of(&reader), SPEC_ROLE_READER);
    assert_int_equal(rig_read(&reader, &prompt, NULL), 100);
    rig_leave(&reader);
    rig_open(&writer);
    rig_end(&writer, &prompt);
}

/* A request of a reader that becomes the writer stores the rest of its prompt. */
static void a_request_from_before_stores(void **state)
{
    (void)state;
    struct rig writer, reader;
    struct prompt prompt = rig_prompt(4, 0, 0, 300);
    rig_begin(&writer, true, "");
    rig_store_all(&writer, &prompt, 128);
    rig_open_beside(&reader, &writer, SPEC_ROLE_AUTO, 0);
    struct spec_lookup_result result = rig_lookup(&reader, &prompt);
    assert_int_equal(result.matched_tokens, 128);
    rig_load_all(&reader, result.request, &prompt, 0, 128);
    spec_ticket ticket = 0;
    assert_int_equal(rig_store_layer(&reader, result.request, &prompt, 128, 172, 0, &ticket),
                     SPEC_E_UNSUPPORTED);
    rig_close(&writer);
    becomes_the_writer(&reader);
    ticket = rig_store(&reader, result.request, &prompt, 128, 172);
    assert_int_equal(rig_wait(&reader, ticket), SPEC_OK);
    rig_release(&reader, result.request);
    assert_int_equal(rig_read(&reader, &prompt, NULL), 300);
    rig_leave(&reader);
    rig_open(&writer);
    assert_int_equal(rig_read(&writer, &prompt, NULL), 300);
    rig_end(&writer, &prompt);
}

/* The reader reset while the writer was gone: nobody read its mail. */
static void a_reset_of_the_reader_is_recorded(void **state)
{
    (void)state;
    struct rig writer, reader;
    struct prompt prompt = rig_prompt(5, 0, 0, 128), later = rig_prompt(6, 0, 0, 100);
    writer_and_readers(&writer, &reader, 1, "", &prompt);
    rig_close(&writer);
    assert_int_equal(sc_plugin_reset(reader.conn, NULL), SPEC_OK);
    assert_int_equal(rig_matched(&reader, &prompt), 0);
    becomes_the_writer(&reader);
    assert_int_equal(rig_matched(&reader, &prompt), 0);
    assert_int_equal(rig_fill(&reader, &later), SPEC_OK);
    assert_int_equal(rig_read(&reader, &later, NULL), 100);
    rig_leave(&reader);
    rig_open(&writer);
    assert_int_equal(rig_matched(&writer, &prompt), 0);
    assert_int_equal(rig_read(&writer, &later, NULL), 100);
    rig_end(&writer, &prompt, &later);
}

/* Rows that failed in the reader are promised by nobody afterwards. */
static void failed_rows_are_dropped_for_all(void **state)
{
    (void)state;
    struct rig writer, reader;
    struct prompt prompt = rig_prompt(7, 0, 0, 256);
    writer_and_readers(&writer, &reader, 1, "", &prompt);
    rig_close(&writer);
    struct spec_lookup_result result = rig_lookup(&reader, &prompt);
    assert_int_equal(result.matched_tokens, 256);
    sc_io_sim_fault_nth(writer.disk, SC_SIM_READ_EIO, 0);
    assert_int_equal(rig_load(&reader, result.request, &prompt, 0, 256, 0), SPEC_E_IO);
    rig_release(&reader, result.request);
    uint64_t left = rig_matched(&reader, &prompt);
    assert_true(left < 256);
    becomes_the_writer(&reader);
    assert_int_equal(rig_read(&reader, &prompt, NULL), left);
    rig_leave(&reader);
    rig_open(&writer);
    assert_int_equal(rig_read(&writer, &prompt, NULL), left);
    assert_int_equal(rig_fill(&writer, &prompt), SPEC_OK);
    assert_int_equal(rig_read(&writer, &prompt, NULL), 256);
    rig_end(&writer, &prompt);
}

/* The writer ended before it had erased. */
static void an_erasure_goes_on(void **state)
{
    (void)state;
    struct rig writer, reader;
    struct prompt prompt = rig_prompt(8, 0, 0, 128);
    writer_and_readers(&writer, &reader, 1, "", &prompt);
    rig_close(&writer);
    assert_int_equal(rig_maintain(&reader, SPEC_MAINTAIN_ERASE), SPEC_OK);
    assert_int_equal(rig_matched(&reader, &prompt), 0);
    assert_int_equal(sc_store_erasures(reader.conn->store), 1);
    becomes_the_writer(&reader);
    for (uint32_t turns = 0; turns < 200 && sc_store_erasures(reader.conn->store) > 0; turns++)
        rig_pass_ns(&reader, TURN);
    assert_int_equal(sc_store_erasures(reader.conn->store), 0);
    assert_int_equal(sc_store_erase_counts(reader.conn->store).erased, 1);
    assert_int_equal(rig_fill(&reader, &prompt), SPEC_OK);
    assert_int_equal(rig_read(&reader, &prompt, NULL), 128);
    rig_leave(&reader);
    rig_open(&writer);
    assert_int_equal(rig_read(&writer, &prompt, NULL), 128);
    rig_end(&writer, &prompt);
}

/* As AUTO of every preset: what a writer's open makes is there. */
static void every_preset_goes_on(void **state)
{
    (void)state;
    static const char *const EXTRAS[] = {
        "\"preset\": \"impress\"",     "\"preset\": \"spec+range\", \"host_bytes\": \"2MiB\"",
        "\"preset\": \"layered\"",     "\"preset\": \"layered-uniform\"",
        "\"store\": {\"admit\": \"second\"}", "\"store\": {\"layout\": \"split\"}",
    };
    for (uint32_t i = 0; i < sizeof(EXTRAS) / sizeof(EXTRAS[0]); i++) {
        struct rig writer, reader;
        struct prompt first = rig_prompt(20 + i, 0, 0, 300), second = rig_prompt(40 + i, 0, 0, 200);
        rig_begin(&writer, true, EXTRAS[i]);
        for (uint32_t times = 0; times < 2; times++) /* admitted the second time */
            (void)rig_fill(&writer, &first);
        rig_open_beside(&reader, &writer, SPEC_ROLE_AUTO, 0);
        rig_close(&writer);
        becomes_the_writer(&reader);
        for (uint32_t times = 0; times < 2; times++)
            (void)rig_fill(&reader, &second);
        rig_settle(&reader);
        assert_int_equal(rig_matched(&reader, &first), 300);
        assert_int_equal(rig_matched(&reader, &second), 200);
        rig_check_index(&reader);
        rig_leave(&reader);
        rig_open(&writer);
        assert_int_equal(rig_matched(&writer, &first), 300);
        assert_int_equal(rig_matched(&writer, &second), 200);
        rig_end(&writer, &first, &second);
    }
}

/* Rows that lack quantised ones get them, although nothing is stored after the takeover. */
static void rows_are_quantised(void **state)
{
    (void)state;
    struct rig writer, reader;
    struct prompt prompt = rig_prompt(60, 0, 0, 300);
    rig_init(&writer, true, "\"layered\": {\"quantise\": \"no\"}");
    rig_shape(&writer, 3, 2, 64, SPEC_DTYPE_F16);
    rig_open(&writer);
    assert_int_equal(rig_fill(&writer, &prompt), SPEC_OK);
    rig_beside(&reader, &writer, SPEC_ROLE_AUTO, 0);
    reader.extra = "\"preset\": \"layered\"";
    rig_open(&reader);
    rig_close(&writer);
    becomes_the_writer(&reader);
    rig_settle(&reader);
    assert_int_equal(rig_matched(&reader, &prompt), 300);
    assert_true(reader.conn->store->params.codes.shape.bits_k > 0);
    assert_true(sc_store_counted(&reader.conn->store->counts.quantised_bytes) > 0);
    rig_leave(&reader);
    rig_open(&writer);
    rig_end(&writer, &prompt);
}

/* Open fails cleanly at each allocation; what lacks only memory of an heir stays a reader. */
static void an_open_that_lacks_memory_leaks_nothing(void **state)
{
    (void)state;
    struct rig writer, reader;
    struct prompt prompt = rig_prompt(61, 0, 0, 128);
    writer_and_readers(&writer, NULL, 0, "\"max_requests\": 2", &prompt);
    rig_beside(&reader, &writer, SPEC_ROLE_AUTO, 0);
    uint64_t readers = 0, whole = 0;
    for (uint64_t n = 0;; n++) {
        atomic_store(&reader.memory.countdown, (int64_t)n);
        atomic_store(&reader.memory.failed, 0);
        spec_status status = rig_try_open(&reader);
        atomic_store(&reader.memory.countdown, -1);
        bool failed = atomic_load(&reader.memory.failed) > 0;
        if (status == SPEC_OK) {
            readers += !reader.conn->ranks.takes_over;
            whole += rig_read(&reader, &prompt, NULL) == 128; /* else its index lacked memory */
            rig_close(&reader);
        } else {
            assert_int_equal(status, SPEC_E_NO_MEMORY);
        }
        assert_int_equal(atomic_load(&reader.memory.live_blocks), 0);
        if (!failed)
            break;
    }
    assert_true(readers > 0 && whole > 0);
    rig_end(&writer, &prompt);
}

/* ---- Threads --------------------------------------------------------------------------------- */

#define LOADERS 3u

struct loader {
    pthread_t thread;
    struct rig *rig;
    const struct prompt *prompts;
    uint32_t count, first;
    _Atomic bool *ends;
    uint64_t loads, hits;
};

static void *load_on(void *user)
{
    struct loader *loader = user;
    for (uint32_t i = loader->first; !atomic_load(loader->ends); i++) {
        spec_status status;
        uint64_t found = rig_read(loader->rig, &loader->prompts[i % loader->count], &status);
        if (status != SPEC_OK)
            fail_msg("a load beside a takeover: %d", status);
        loader->loads++;
        loader->hits += found > 0;
        if (i % 7 == 0)
            (void)rig_maintain(loader->rig, SPEC_MAINTAIN_CHECKPOINT); /* a reader's is refused */
    }
    return NULL;
}

/* Real threads and files: loads go on in the reader that takes over and in one that does not. */
static void threads_load_while_it_takes_over(void **state)
{
    (void)state;
    struct rig writer, readers[2];
    struct prompt prompts[6];
    rig_begin(&writer, false, "\"host_bytes\": \"2MiB\"");
    for (uint32_t i = 0; i < 6; i++)
        prompts[i] = rig_prompt(70 + i, 0, 0, 100 + 40 * i);
    for (uint32_t i = 0; i < 4; i++)
        assert_int_equal(rig_fill(&writer, &prompts[i]), SPEC_OK);
    for (uint32_t i = 0; i < 2; i++)
        rig_open_beside(&readers[i], &writer, SPEC_ROLE_AUTO, 0);
    _Atomic bool ends = false;
    struct loader loaders[2 * LOADERS];
    for (uint32_t i = 0; i < 2 * LOADERS; i++) {
        loaders[i] = (struct loader){.rig = &readers[i % 2],
                                     .prompts = prompts,
                                     .count = 6,
                                     .first = i,
                                     .ends = &ends};
        assert_int_equal(pthread_create(&loaders[i].thread, NULL, load_on, &loaders[i]), 0);
    }
    assert_int_equal(rig_fill(&writer, &prompts[4]), SPEC_OK);
    rig_close(&writer);
    struct rig *next = NULL;
    while (next == NULL) {
        for (uint32_t i = 0; i < 2 && next == NULL; i++)
            next = role_of(&readers[i]) == SPEC_ROLE_WRITER ? &readers[i] : NULL;
        rig_pass_ns(&readers[0], MS);
    }
    while (rig_matched(next, &prompts[5]) < prompts[5].count) {
        (void)rig_fill(next, &prompts[5]);
        rig_pass_ns(&readers[0], 50 * MS);
    }
    struct rig *other = next == &readers[0] ? &readers[1] : &readers[0];
    assert_int_equal(role_of(other), SPEC_ROLE_READER);
    while (rig_matched(other, &prompts[5]) < prompts[5].count)
        rig_pass_ns(other, MS);
    atomic_store(&ends, true);
    for (uint32_t i = 0; i < 2 * LOADERS; i++) {
        assert_int_equal(pthread_join(loaders[i].thread, NULL), 0);
        assert_true(loaders[i].hits > 0);
    }
    rig_leave(next);
    rig_leave(other);
    rig_open(&writer);
    for (uint32_t i = 0; i < 6; i++)
        assert_int_equal(rig_read(&writer, &prompts[i], NULL), prompts[i].count);
    rig_prompts_free_all(prompts, 6);
    rig_done(&writer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_takes_over_and_the_others_read),
        cmocka_unit_test(a_reader_that_asked_to_read_stays_one),
        cmocka_unit_test(a_request_from_before_stores),
        cmocka_unit_test(a_reset_of_the_reader_is_recorded),
        cmocka_unit_test(failed_rows_are_dropped_for_all),
        cmocka_unit_test(an_erasure_goes_on),
        cmocka_unit_test(every_preset_goes_on),
        cmocka_unit_test(rows_are_quantised),
        cmocka_unit_test(an_open_that_lacks_memory_leaks_nothing),
        cmocka_unit_test(threads_load_while_it_takes_over),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
