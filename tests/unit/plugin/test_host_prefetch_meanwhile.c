/* What happens to a match while it is being staged: others fill, void and keep what it wants, and
 * memory runs out.
 *
 * Threads: the fixture's. On the simulated disk nothing happens but in waits. */
#include "plugin/select/scatter.h"
#include "store/cache/host_tier_slab.h"
#include "store/internal.h"
#include "tests/unit/plugin/compaction_fixture.h"

#define COUNT       200u
#define LAYERS      4u
#define CODES_BYTES 8192u

static void open_with(struct rig *rig, const char *extra)
{
    rig_begin_shape(rig, true, extra, LAYERS, 3, 10, SPEC_DTYPE_F16);
}

static struct spec_lookup_result peek(struct rig *rig, const struct prompt *prompt)
{
    struct spec_lookup_result result = rig_peeked(rig, prompt, 0);
    return result;
}

/* All rows of the piece that the request's range is of. */
static struct sc_store_range whole_of(const struct rig *rig, spec_request handle, uint64_t range)
{
    const struct sc_plugin_request *request = sc_plugin_request_find(rig->conn, handle);
    uint64_t piece = request->ranges[range].piece;
    return (struct sc_store_range){.piece = piece,
                                   .row_count = sc_store_piece_rows(rig->conn->store, piece)};
}

/* A load had begun a slab that the stage wants, and ends early. */
static void what_another_gives_up_is_brought(void **state)
{
    (void)state;
    for (uint32_t layer = 0; layer < LAYERS; layer++) {
        struct rig rig;
        struct prompt prompt = rig_prompt(5, 0, 0, COUNT);
        struct sc_host_slab_fill fill = {0};
        open_with(&rig, "\"host_bytes\": \"64MiB\"");
        assert_int_equal(rig_fill(&rig, &prompt), SPEC_OK);
        struct spec_lookup_result found = rig_lookup(&rig, &prompt);
        struct sc_store_range range = whole_of(&rig, found.request, 1);
        sc_host_slab_begin(rig.conn->store, &fill, layer, &range, SC_STORE_WANT_ROWS,
                           range.row_count);
        assert_non_null(fill.slab);
        assert_int_equal(rig_wait(&rig, rig_stage(&rig, found.request, 0)), SPEC_OK);
        assert_int_equal(peek(&rig, &prompt).tier_bytes[SPEC_TIER_DISK], 0);
        sc_host_slab_end(rig.conn->store, &fill, false);
        assert_int_equal(peek(&rig, &prompt).tier_bytes[SPEC_TIER_DISK], 0);
        rig_release(&rig, found.request);
        rig_end(&rig, &prompt);
    }
}

/* Each allocation of a stage fails in turn. */
static void without_memory_it_ends(void **state)
{
    (void)state;
    bool was_whole = false;
    for (int64_t n = 0; !was_whole; n++) {
        struct rig rig;
        struct prompt prompt = rig_prompt(5, 0, 0, COUNT);
        spec_status status;
        open_with(&rig, "\"host_bytes\": \"64MiB\"");
        assert_int_equal(rig_fill(&rig, &prompt), SPEC_OK);
        struct spec_lookup_result found = rig_lookup(&rig, &prompt);
        struct spec_lookup_result second = rig_lookup(&rig, &prompt);
        atomic_store(&rig.memory.countdown, n);
        spec_ticket ticket = rig_stage(&rig, found.request, 0),
                    next = rig_stage(&rig, second.request, 0);
        spec_status ended = rig_wait(&rig, ticket), also = rig_wait(&rig, next);
        was_whole = atomic_load(&rig.memory.failed) == 0;
        atomic_store(&rig.memory.countdown, -1);
        assert_true(!was_whole || (ended == SPEC_OK && also == SPEC_OK));
        assert_int_equal(peek(&rig, &prompt).state, SPEC_LOOKUP_HIT);
        if (ended == SPEC_OK || also == SPEC_OK)
            assert_int_equal(peek(&rig, &prompt).tier_bytes[SPEC_TIER_DISK], 0);
        assert_int_equal(rig_read(&rig, &prompt, &status), COUNT);
        rig_release(&rig, found.request);
        rig_release(&rig, second.request);
        rig_end(&rig, &prompt);
    }
}

/* Memory for a tier of the default's size is not to be had: the store opens without one. */
static void without_a_tier_nothing_is_staged(void **state)
{
    (void)state;
    bool was_without = false;
    for (int64_t n = 0; !was_without; n++) {
        struct rig rig;
        struct prompt prompt = rig_prompt(5, 0, 0, 70);
        spec_status status;
        spec_ticket ticket = 77;
        rig_init(&rig, true, "\"host_bytes\": \"auto\"");
        atomic_store(&rig.memory.countdown, n);
        status = rig_try_open(&rig);
        assert_int_equal(atomic_load(&rig.memory.failed), 1);
        atomic_store(&rig.memory.countdown, -1);
        was_without = status == SPEC_OK && rig_store_stats(&rig).host_bytes_max == 0;
        if (was_without) {
            assert_int_equal(rig_fill(&rig, &prompt), SPEC_OK);
            struct spec_lookup_result found = rig_lookup(&rig, &prompt);
            const struct spec_prefetch_to_host_params params = {.struct_size = sizeof(params),
                                                                .request = found.request};
            status = sc_plugin_host_prefetch(rig.conn, &params, &ticket, &rig.error);
            assert_int_equal(status, SPEC_E_UNSUPPORTED);
            assert_int_equal(ticket, 77);
            assert_int_equal(rig_read(&rig, &prompt, &status), 70);
            rig_release(&rig, found.request);
        }
        rig_end(&rig, &prompt);
    }
}

/* What an older stage kept, until its time was over, is worth more than what the next one finds
 * there: that is kept all the same. */
static void what_is_found_is_kept_when_others_are_over(void **state)
{
    (void)state;
    struct rig rig;
    struct prompt old = rig_prompt(70, 0, 0, 96), prompt = rig_prompt(5, 0, 0, 96);
    struct prompt begin = rig_prompt(5, 0, 0, 32);
    spec_status status;
    open_with(&rig, "\"host_bytes\": \"64KiB\", \"chunk_tokens\": 32, \"host_policy\": \"lfu\"");
    assert_int_equal(rig_fill(&rig, &old), SPEC_OK);
    assert_int_equal(rig_fill(&rig, &begin), SPEC_OK);
    assert_int_equal(rig_fill(&rig, &prompt), SPEC_OK);
    for (uint32_t i = 0; i < 4; i++)
        assert_int_equal(rig_read(&rig, &old, &status), 96);
    struct spec_lookup_result found = rig_lookup(&rig, &old);
    assert_int_equal(rig_wait(&rig, rig_stage(&rig, found.request, 0)), SPEC_OK);
    assert_int_equal(rig_store_stats(&rig).host_bytes_kept, 48u << 10); /* as much as may be */
    rig_release(&rig, found.request);
    assert_int_equal(rig_read(&rig, &begin, &status), 32);
    rig_pass_ns(&rig, 11000 * MS);
    assert_int_equal(peek(&rig, &begin).tier_bytes[SPEC_TIER_DISK], 0);
    found = rig_lookup(&rig, &prompt);
    assert_int_equal(rig_wait(&rig, rig_stage(&rig, found.request, 0)), SPEC_OK);
    assert_int_equal(peek(&rig, &prompt).tier_bytes[SPEC_TIER_DISK], 0);
    rig_release(&rig, found.request);
    rig_end(&rig, &old, &begin, &prompt);
}

/* A piece that another finds bad while windows before it are read: a range failed. */
static void what_is_void_meanwhile_ends_it(void **state)
{
    (void)state;
    struct rig rig;
    struct prompt prompt = rig_prompt(5, 0, 0, COUNT);
    spec_status status, ended;
    rig_init(&rig, true, "\"host_bytes\": \"64MiB\"");
    rig_shape(&rig, LAYERS, 32, 128, SPEC_DTYPE_F16);
    rig.stage = "64MiB";
    rig_open(&rig);
    assert_int_equal(rig_fill(&rig, &prompt), SPEC_OK);
    struct spec_lookup_result found = rig_lookup(&rig, &prompt);
    struct spec_lookup_result second = rig_lookup(&rig, &prompt);
    sc_io_sim_fault_scope(rig.disk, "/seg-");
    sc_io_sim_fault_ppm(rig.disk, SC_SIM_LATE, 1000000);
    sc_io_sim_fault_late_ns(rig.disk, 200 * MS);
    spec_ticket ticket = rig_stage(&rig, found.request, 0);
    rig_pass_ns(&rig, 50 * MS);
    struct sc_plugin_request *request = sc_plugin_request_find(rig.conn, second.request);
    sc_plugin_range_fail(rig.conn, request, 1, SPEC_E_CORRUPT, SC_STORE_TIER);
    ended = rig_wait(&rig, ticket);
    assert_true(rig_store_stats(&rig).host_bytes_kept > 0); /* what came before it */
    struct spec_lookup_result now = peek(&rig, &prompt);
    assert_int_equal(now.state, SPEC_LOOKUP_HIT);
    assert_true(now.matched_tokens < COUNT);
    rig_release(&rig, found.request);
    rig_release(&rig, second.request);
    sc_io_sim_fault_ppm(rig.disk, SC_SIM_LATE, 0);
    assert_int_equal(rig_fill(&rig, &prompt), SPEC_OK);
    assert_int_equal(rig_read(&rig, &prompt, &status), COUNT);
    rig_end(&rig, &prompt);
    assert_int_equal(ended, SPEC_E_CORRUPT);
}

/* A piece that is longer than a window. */
static void long_pieces_come_one_by_one(void **state)
{
    (void)state;
    for (uint32_t split = 0; split < 2; split++) {
        struct rig rig;
        struct prompt prompt = rig_prompt(5, 0, 0, COUNT);
        spec_status status;
        rig_init(&rig, true,
                 split ? "\"host_bytes\": \"256MiB\", \"store\": {\"layout\": \"split\"}"
                       : "\"host_bytes\": \"256MiB\"");
        rig_shape(&rig, 2, 64, 512, SPEC_DTYPE_F16);
        rig.stage = "256MiB";
        rig_open(&rig);
        assert_int_equal(rig_fill(&rig, &prompt), SPEC_OK);
        struct spec_lookup_result found = rig_lookup(&rig, &prompt);
        assert_int_equal(found.matched_tokens, COUNT);
        assert_int_equal(rig_wait(&rig, rig_stage(&rig, found.request, 0)), SPEC_OK);
        assert_int_equal(peek(&rig, &prompt).tier_bytes[SPEC_TIER_DISK], 0);
        uint64_t before = rig_store_stats(&rig).read_bytes;
        assert_int_equal(rig_read(&rig, &prompt, &status), COUNT);
        assert_int_equal(rig_store_stats(&rig).read_bytes, before);
        rig_release(&rig, found.request);
        rig_end(&rig, &prompt);
    }
}

/* A match of many slabs, all of which are there: it is looked at a part at a time. */
static void who_ends_it_does_not_wait_for_all_of_it(void **state)
{
    (void)state;
    struct rig rig;
    struct prompt prompt = rig_prompt(5, 0, 0, 1600);
    spec_status status;
    rig_begin_shape(&rig, true, "\"host_bytes\": \"64MiB\", \"chunk_tokens\": 16", 40, 1, 8,
                    SPEC_DTYPE_F16);
    assert_int_equal(rig_fill(&rig, &prompt), SPEC_OK);
    assert_int_equal(rig_read(&rig, &prompt, &status), 1600);
    struct spec_lookup_result found = rig_lookup(&rig, &prompt);
    assert_int_equal(found.tier_bytes[SPEC_TIER_DISK], 0);
    spec_ticket ticket = rig_stage(&rig, found.request, 0);
    assert_int_equal(rig_wait(&rig, ticket), SPEC_OK);
    assert_int_equal(rig_store_stats(&rig).host_bytes_kept, 4000 * SC_IO_PAGE_BYTES);
    ticket = rig_stage(&rig, found.request, 0);
    (void)sc_exec_step_one(rig.conn->exec);
    assert_int_equal(sc_plugin_poll(rig.conn, &ticket, 1, &status, NULL), SPEC_OK);
    assert_int_equal(status, SPEC_PENDING);
    rig_release(&rig, found.request);
    assert_int_equal(rig_wait(&rig, ticket), SPEC_E_DROPPED);
    rig_end(&rig, &prompt);
}

/* Less memory than a slab, than a layer, than a match; with what is written, and without. */
static void any_size_of_memory_is_right(void **state)
{
    static const uint32_t SIZES[] = {4096, 8192, 12287, 20480, 65536, 131072};
    static const char *const MORE[] = {
        "\"chunk_tokens\": 16",
        "\"chunk_tokens\": 64, \"host_write_through\": \"yes\"",
        "\"chunk_tokens\": 16, \"host_write_through\": \"yes\", \"host_policy\": \"lru\"",
        "\"chunk_tokens\": 32, \"store\": {\"layout\": \"split\"}, \"host_policy\": \"lfu\"",
    };
    (void)state;
    for (uint32_t i = 0; i < 6 * 4; i++) {
        struct rig rig;
        char extra[200];
        spec_status status;
        (void)snprintf(extra, sizeof(extra), "\"host_bytes\": %u, %s", SIZES[i / 4], MORE[i % 4]);
        rig_begin_shape(&rig, true, extra, LAYERS, 3, 40, SPEC_DTYPE_F16);
        for (uint64_t p = 0; p < 6; p++) {
            struct prompt prompt = rig_prompt(40 + p / 3, 70 * (p / 3), p, COUNT - 31 * p);
            assert_int_equal(rig_fill(&rig, &prompt), SPEC_OK);
            struct spec_lookup_result found = rig_lookup(&rig, &prompt);
            status = rig_wait(&rig, rig_stage(&rig, found.request, 0));
            assert_true(status == SPEC_OK || status == SPEC_E_NO_SPACE);
            rig_release(&rig, found.request);
            found = peek(&rig, &prompt);
            assert_true(status != SPEC_OK || found.tier_bytes[SPEC_TIER_DISK] == 0);
            assert_int_equal(rig_read(&rig, &prompt, &status), prompt.count);
            assert_in_range(rig_store_stats(&rig).host_bytes_used, 0, SIZES[i / 4]);
            rig_prompt_free(&prompt);
        }
        rig_done(&rig);
    }
}

/* Each write of a pass that is kept fails in turn, or a layer of it never comes; a stage of what
 * was stored before runs meanwhile. */
static void passes_that_fail_leave_what_is_right(void **state)
{
    (void)state;
    for (uint32_t n = 0; n < 36; n++) {
        struct rig rig;
        struct prompt first = rig_prompt(5, 100, 0, 100), prompt = rig_prompt(5, 100, 1, 260);
        enum sc_io_sim_fault fault = n % 3 == 0 ? SC_SIM_WRITE_EIO : SC_SIM_NO_SPACE;
        spec_status status;
        spec_ticket ticket = 0;
        open_with(&rig, n % 2 == 0 ? "\"host_bytes\": \"64MiB\", \"host_write_through\": \"yes\""
                                   : "\"host_bytes\": \"160KiB\", \"host_write_through\": \"yes\", "
                                     "\"chunk_tokens\": 16");
        assert_int_equal(rig_fill(&rig, &first), SPEC_OK);
        struct spec_lookup_result found = rig_lookup(&rig, &prompt);
        assert_int_equal(found.matched_tokens, 100);
        if (n % 3 != 2)
            sc_io_sim_fault_nth(rig.disk, fault, n / 3);
        spec_ticket staged = rig_stage(&rig, found.request, 0);
        uint32_t layers = n % 3 == 2 ? n % LAYERS : LAYERS;
        for (uint32_t layer = 0; layer < layers; layer++)
            (void)rig_store_layer(&rig, found.request, &prompt, 100, 160, layer, &ticket);
        if (layers == LAYERS)
            (void)rig_wait(&rig, ticket);
        status = rig_wait(&rig, staged);
        assert_true(status == SPEC_OK || status == SPEC_E_NO_SPACE);
        rig_release(&rig, found.request);
        rig_settle(&rig);
        rig_background(&rig);
        sc_io_sim_fault_nth(rig.disk, fault, UINT64_MAX);
        for (uint32_t i = 0; i < 2; i++) {
            uint64_t matched = rig_read(&rig, &prompt, &status);
            assert_true(matched == 100 || (matched > 100 && matched <= 260));
        }
        struct sc_store_stats stats = rig_store_stats(&rig);
        assert_in_range(stats.host_bytes_used, 1, stats.host_bytes_max);
        assert_int_equal(sc_plugin_reset(rig.conn, NULL), SPEC_OK);
        rig_background(&rig);
        assert_int_equal(rig_store_stats(&rig).host_bytes_used, 0);
        rig_end(&rig, &first, &prompt);
    }
}

/* Rows that were decoded are merged, before a load of them comes: they stay where they are. */
static void what_is_merged_stays_in_memory(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 6; i++) {
        struct rig rig;
        struct prompt prompt = rig_prompt(5, 0, 0, 64);
        spec_status status;
        open_with(&rig,
                  i % 3 == 0 ? "\"host_bytes\": \"64MiB\", " CHUNKS
                  : i % 3 == 1
                      ? "\"host_bytes\": \"64MiB\", \"store\": {\"layout\": "
                        "\"split\"}, " CHUNKS
                      : "\"host_bytes\": \"64MiB\", \"host_write_through\": \"yes\", " CHUNKS);
        struct spec_lookup_result found = rig_lookup(&rig, &prompt);
        decode(&rig, found.request, &prompt, 0, 48);
        rig_release(&rig, found.request);
        found = rig_lookup(&rig, &prompt);
        assert_int_equal(found.matched_tokens, 48);
        assert_int_equal(rig_wait(&rig, rig_stage(&rig, found.request, 0)), SPEC_OK);
        if (i >= 3) /* a layer less: that is not read for its sake */
            for (uint64_t t = 0; t < 48; t++) {
                struct sc_store_range range = whole_of(&rig, found.request, t);
                sc_host_slab_forget(rig.conn->store, 2, &range);
            }
        rig_release(&rig, found.request);
        for (uint32_t turns = 0; turns < 200 && merged(&rig) < 3; turns++)
            settle(&rig);
        assert_int_equal(merged(&rig), 3);
        found = peek(&rig, &prompt);
        assert_int_equal(found.matched_tokens, 48);
        uint64_t layer = 16 * (rig.conn->dims.row_bytes + 8),
                 disk = found.tier_bytes[SPEC_TIER_DISK];
        if (i % 3 < 2) /* the first may have been merged half before it was staged */
            assert_in_range(disk, i < 3 ? 0 : 3 * layer, (i < 3 ? 0 : 2 * layer) + LAYERS * layer);
        assert_int_equal(rig_read(&rig, &prompt, &status), 48);
        settle(&rig);
        assert_int_equal(rig_read(&rig, &prompt, &status), 48);
        rig_end(&rig, &prompt);
    }
}

/* ---- In a process that reads ----------------------------------------------------------------- */

enum other { NOTHING, RESETS, DROPS, OTHERS };

/* What the writer does while another process stages: that one says how it ended, and what it gives
 * afterwards is right. */
static void a_reader_stages_beside_its_writer(void **state)
{
    (void)state;
    for (uint32_t other = 0; other < OTHERS; other++)
        for (uint32_t ms = 0; ms < 400; ms += 57) {
            struct rig writer, reader;
            struct prompt prompt = rig_prompt(5, 0, 0, COUNT);
            spec_status status;
            open_with(&writer, "\"host_bytes\": \"64MiB\", \"lease_ns_max\": 5000000000");
            assert_int_equal(rig_fill(&writer, &prompt), SPEC_OK);
            rig_open_beside(&reader, &writer, SPEC_ROLE_READER, 0);
            struct spec_lookup_result found = rig_lookup(&reader, &prompt);
            struct spec_lookup_result mine = rig_lookup(&writer, &prompt);
            assert_int_equal(found.matched_tokens, COUNT);
            sc_io_sim_fault_scope(writer.disk, "/seg-");
            sc_io_sim_fault_ppm(writer.disk, SC_SIM_LATE, 1000000);
            sc_io_sim_fault_late_ns(writer.disk, 200 * MS);
            spec_ticket ticket = rig_stage(&reader, found.request, 0);
            assert_int_equal(peek(&reader, &prompt).state, SPEC_LOOKUP_PENDING);
            rig_pass_ns(&reader, ms * MS);
            if (other == RESETS)
                assert_int_equal(sc_plugin_reset(writer.conn, NULL), SPEC_OK);
            if (other == DROPS)
                sc_plugin_range_fail(writer.conn, sc_plugin_request_find(writer.conn, mine.request),
                                     1, SPEC_E_CORRUPT, SC_STORE_TIER);
            rig_pass_ns(&writer, 30 * MS);
            status = rig_wait(&reader, ticket);
            rig_pass_ns(&reader, 60 * MS);
            struct spec_lookup_result now = peek(&reader, &prompt);
            assert_int_not_equal(now.state, SPEC_LOOKUP_PENDING);
            assert_true(other == NOTHING ? now.matched_tokens == COUNT
                                         : now.matched_tokens < COUNT);
            if (status == SPEC_OK)
                assert_int_equal(now.tier_bytes[SPEC_TIER_DISK], 0);
            rig_release(&reader, found.request);
            rig_release(&writer, mine.request);
            sc_io_sim_fault_ppm(writer.disk, SC_SIM_LATE, 0);
            assert_int_equal(rig_fill(&writer, &prompt), SPEC_OK);
            rig_pass_ns(&reader, 60 * MS);
            assert_int_equal(rig_read(&reader, &prompt, &status), COUNT);
            assert_int_equal(rig_read(&reader, &prompt, &status), COUNT);
            rig_leave(&reader);
            rig_end(&writer, &prompt);
        }
}

/* A lease is staged in another process; late: its pieces were dropped, its time is over, and their
 * pages have others' rows. Nothing that is good is void for it. */
static void a_lease_is_staged_in_time_or_not_at_all(void **state)
{
    (void)state;
    for (uint32_t late = 0; late < 2; late++) {
        struct rig writer, reader;
        struct prompt prompt = rig_prompt(5, 0, 0, COUNT), others[40];
        spec_status status;
        open_with(&writer, "\"host_bytes\": \"1MiB\", \"lease_ns_max\": 100000000, "
                           "\"disk_bytes\": \"4MiB\", \"segment_bytes\": \"1MiB\"");
        assert_int_equal(rig_fill(&writer, &prompt), SPEC_OK);
        rig_open_beside(&reader, &writer, SPEC_ROLE_READER, 0);
        struct spec_lookup_result found = rig_lookup(&writer, &prompt);
        struct spec_lookup_result mine = {.struct_size = sizeof(mine)};
        assert_int_equal(rig_attach(&reader, found.lease, 10, &mine), SPEC_OK);
        assert_int_equal(mine.matched_tokens, COUNT);
        if (late)
            sc_plugin_range_fail(writer.conn, sc_plugin_request_find(writer.conn, found.request), 0,
                                 SPEC_E_CORRUPT, SC_STORE_TIER);
        rig_release(&writer, found.request);
        for (uint64_t i = 0; i < 40 && late; i++) {
            others[i] = rig_prompt(80 + i, 0, 0, COUNT);
            rig_pass_ns(&writer, 60 * MS);
            (void)rig_fill(&writer, &others[i]);
        }
        /* The reader has looked at nothing since. */
        status = rig_wait(&reader, rig_stage(&reader, mine.request, 0));
        if (late == 0) {
            assert_int_equal(status, SPEC_OK);
            uint64_t before = rig_store_stats(&reader).read_bytes;
            for (uint32_t layer = 0; layer < LAYERS; layer++)
                assert_int_equal(rig_load(&reader, mine.request, &prompt, 10, COUNT, layer),
                                 SPEC_OK);
            assert_int_equal(rig_store_stats(&reader).read_bytes, before);
        }
        rig_release(&reader, mine.request);
        for (uint32_t turns = 0; turns < 10; turns++) {
            rig_pass_ns(&reader, 60 * MS);
            rig_pass_ns(&writer, 60 * MS);
        }
        assert_int_equal(atomic_load(&reader.conn->poison.broken), 0);
        for (uint64_t i = 0; i < 40 && late; i++) {
            uint64_t there = rig_read(&writer, &others[i], &status);
            if (i >= 30) /* not evicted */
                assert_int_equal(there, COUNT);
            rig_prompt_free(&others[i]);
        }
        rig_leave(&reader);
        rig_end(&writer, &prompt);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_another_gives_up_is_brought),
        cmocka_unit_test(without_memory_it_ends),
        cmocka_unit_test(without_a_tier_nothing_is_staged),
        cmocka_unit_test(what_is_found_is_kept_when_others_are_over),
        cmocka_unit_test(what_is_void_meanwhile_ends_it),
        cmocka_unit_test(long_pieces_come_one_by_one),
        cmocka_unit_test(any_size_of_memory_is_right),
        cmocka_unit_test(passes_that_fail_leave_what_is_right),
        cmocka_unit_test(what_is_merged_stays_in_memory),
        cmocka_unit_test(a_reader_stages_beside_its_writer),
        cmocka_unit_test(a_lease_is_staged_in_time_or_not_at_all),
        cmocka_unit_test(who_ends_it_does_not_wait_for_all_of_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
