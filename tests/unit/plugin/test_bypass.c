/* A bypass: what is refused while there is one, what goes on, what rests and goes on afterwards;
 * its deadline to the nanosecond; what the log says.
 *
 * Threads: the loop's. On the simulated disk nothing happens but in waits. */
#include "tests/unit/plugin/compaction_fixture.h"
#include "tests/unit/plugin/layered_fixture.h"

#define TURN (30 * MS)
#define HOST "\"host_bytes\": \"64MiB\""

static spec_status maintain(struct rig *rig, uint32_t flags, uint64_t deadline_ns)
{
    const struct spec_maintain_params params = {
        .struct_size = sizeof(params), .flags = flags, .deadline_ns = deadline_ns};
    return sc_plugin_maintain(rig->conn, &params, &rig->error);
}

static void bypass(struct rig *rig, uint64_t deadline_ns)
{
    assert_int_equal(maintain(rig, SPEC_MAINTAIN_BYPASS, deadline_ns), SPEC_OK);
}

static uint64_t found(struct rig *rig, const struct prompt *prompt)
{
    struct spec_lookup_result result = rig_peeked(rig, prompt, 0);
    assert_int_equal(result.state, result.matched_tokens > 0 ? SPEC_LOOKUP_HIT : SPEC_LOOKUP_MISS);
    return result.matched_tokens;
}

static uint64_t count_of(const _Atomic uint64_t *count)
{
    return atomic_load(count);
}

/* ---- The log -------------------------------------------------------------------------------- */

#define LINES 8u

struct lines {
    uint32_t count;
    char text[LINES][SC_LIMIT_LOG_LINE_BYTES];
};

static void line_keep(int32_t level, const char *line, void *user)
{
    struct lines *lines = user;
    if (strstr(line, "bypass") == NULL)
        return;
    assert_int_equal(level, SPEC_LOG_WARN);
    assert_true(lines->count < LINES);
    (void)snprintf(lines->text[lines->count++], sizeof(lines->text[0]), "%s", line);
}

/* From now on lines are kept: the rig opens without a host that listens. */
static void listen(struct rig *rig, struct lines *lines)
{
    *lines = (struct lines){0};
    rig->conn->log.callback = line_keep;
    rig->conn->log.user = lines;
    rig->conn->log.level_max = SPEC_LOG_WARN;
}

static void expect_lines(struct rig *rig, const struct lines *lines, const char *const *expected,
                         uint32_t count)
{
    sc_log_drain(&rig->conn->log);
    assert_int_equal(lines->count, count);
    for (uint32_t i = 0; i < count; i++)
        assert_non_null(strstr(lines->text[i], expected[i]));
}

static void the_log_tells_of_its_beginning_and_its_end(void **state)
{
    (void)state;
    static const char *const EXPECTED[] = {
        "bypass begins, until it is ended",
        "bypass goes on, for 5000 ms",
        "bypass ends: 2 lookups were misses, 4 chunks were not stored",
        "bypass begins, for 40 ms",
        "bypass ends: 0 lookups were misses, 0 chunks were not stored",
        "bypass begins, for 1 ms",
        "bypass ends: 0 lookups were misses, 0 chunks were not stored",
        "bypass begins, for 2 ms",
    };
    struct rig rig;
    struct lines lines;
    struct prompt prompt = rig_prompt(1, 0, 0, 250);
    rig_begin(&rig, true, "");
    listen(&rig, &lines);
    bypass(&rig, SPEC_BYPASS_END); /* there is none */
    bypass(&rig, 0);
    assert_int_equal(rig_fill(&rig, &prompt), SPEC_E_DROPPED);
    assert_int_equal(found(&rig, &prompt), 0);
    bypass(&rig, 5000 * MS);
    bypass(&rig, SPEC_BYPASS_END);
    bypass(&rig, SPEC_BYPASS_END);
    bypass(&rig, 40 * MS);
    rig_pass_ns(&rig, 40 * MS + TURN); /* the turn says so, without a call */
    bypass(&rig, MS);
    sc_plugin_tick_stop(rig.conn);
    rig_pass_ns(&rig, 2 * MS); /* it is over, and no turn has seen it */
    bypass(&rig, 2 * MS);
    expect_lines(&rig, &lines, EXPECTED, sizeof(EXPECTED) / sizeof(EXPECTED[0]));
    assert_int_equal(atomic_load(&rig.conn->log.dropped), 0);
    rig_end(&rig, &prompt);
}

/* ---- When it ends --------------------------------------------------------------------------- */

static void its_deadline_is_kept_to_the_nanosecond(void **state)
{
    (void)state;
    struct rig rig;
    struct prompt prompt = rig_prompt(1, 0, 0, 100);
    rig_begin(&rig, true, "");
    assert_int_equal(rig_fill(&rig, &prompt), SPEC_OK);
    for (uint64_t ns = 2; ns < 3000 * MS; ns = ns * 7 + 1) {
        bypass(&rig, ns);
        assert_int_equal(found(&rig, &prompt), 0);
        rig_pass_ns(&rig, ns - 1);
        assert_int_equal(found(&rig, &prompt), 0);
        assert_true(sc_plugin_is_bypassed(rig.conn));
        rig_pass_ns(&rig, 1);
        assert_false(sc_plugin_is_bypassed(rig.conn));
        assert_int_equal(found(&rig, &prompt), 100);
        rig_pass_ns(&rig, TURN);
        assert_int_equal(found(&rig, &prompt), 100);
    }
    bypass(&rig, 0);
    rig_pass_ns(&rig, UINT64_C(3600000) * MS);
    assert_int_equal(found(&rig, &prompt), 0);
    bypass(&rig, UINT64_MAX - 5);
    rig_pass_ns(&rig, UINT64_C(3600000) * MS);
    assert_int_equal(found(&rig, &prompt), 0);
    bypass(&rig, 50 * MS); /* of several the last one counts, a shorter one too */
    rig_pass_ns(&rig, 50 * MS);
    assert_int_equal(found(&rig, &prompt), 100);
    bypass(&rig, 0);
    bypass(&rig, SPEC_BYPASS_END);
    assert_int_equal(found(&rig, &prompt), 100);
    rig_end(&rig, &prompt);
}

/* Other work's deadline_ns is not looked at, and what is refused has begun no bypass. */
static void what_is_refused_begins_none(void **state)
{
    (void)state;
    struct rig rig;
    struct lines lines;
    rig_begin(&rig, true, "");
    listen(&rig, &lines);
    assert_int_equal(maintain(&rig, SPEC_MAINTAIN_CHECKPOINT, 1000), SPEC_OK);
    rig_background(&rig);
    assert_int_equal(maintain(&rig, SPEC_MAINTAIN_BYPASS | 1u << 9, 0), SPEC_E_INVALID);
    rig.conn->ranks.role = SPEC_ROLE_READER;
    assert_int_equal(maintain(&rig, SPEC_MAINTAIN_BYPASS | SPEC_MAINTAIN_CHECKPOINT, 0),
                     SPEC_E_UNSUPPORTED);
    rig.conn->ranks.role = SPEC_ROLE_WRITER;
    assert_false(sc_plugin_is_bypassed(rig.conn));
    assert_int_equal(maintain(&rig, SPEC_MAINTAIN_BYPASS | SPEC_MAINTAIN_CHECKPOINT, 0), SPEC_OK);
    assert_true(sc_plugin_is_bypassed(rig.conn));
    rig_background(&rig);
    struct sc_store_stats stats = store_stats(&rig);
    assert_int_equal(stats.checkpoints, 2);
    sc_log_drain(&rig.conn->log);
    assert_int_equal(lines.count, 1);
    rig_done(&rig);
}

/* ---- Stores --------------------------------------------------------------------------------- */

static void what_hangs_on_a_dropped_pass_is_counted_with_it(void **state)
{
    (void)state;
    struct rig rig;
    struct prompt prompt = rig_prompt(1, 0, 0, 250);
    rig_begin(&rig, true, "");
    const struct sc_plugin_stats *stats = &rig.conn->stats;
    struct spec_lookup_result result = rig_lookup(&rig, &prompt);
    assert_int_equal(rig_wait(&rig, rig_store(&rig, result.request, &prompt, 0, 64)), SPEC_OK);
    uint64_t write_bytes = store_stats(&rig).write_bytes;
    bypass(&rig, 0);
    assert_int_equal(rig_wait(&rig, rig_store(&rig, result.request, &prompt, 64, 64)),
                     SPEC_E_DROPPED);
    assert_int_equal(count_of(&stats->bypassed_chunks), 1);
    bypass(&rig, SPEC_BYPASS_END);
    assert_int_equal(rig_wait(&rig, rig_store(&rig, result.request, &prompt, 128, 122)),
                     SPEC_E_DROPPED);
    assert_int_equal(count_of(&stats->bypassed_chunks), 3);
    assert_int_equal(store_stats(&rig).write_bytes, write_bytes);
    rig_release(&rig, result.request);
    assert_int_equal(found(&rig, &prompt), 64);
    assert_int_equal(rig_fill(&rig, &prompt), SPEC_OK); /* whoever computes it again stores it */
    assert_int_equal(rig_read(&rig, &prompt, NULL), 250);
    assert_int_equal(count_of(&stats->bypassed_chunks), 3);
    assert_int_equal(count_of(&stats->unadmitted_chunks), 0);
    assert_int_equal(count_of(&stats->over_budget_chunks), 0);
    assert_int_equal(count_of(&stats->dropped_chunks), 0);
    rig_end(&rig, &prompt);
}

/* A step that is aborted and run again after the bypass hangs on nothing that was dropped. */
static void an_aborted_pass_may_be_stored_afterwards(void **state)
{
    (void)state;
    struct rig rig;
    struct prompt prompt = rig_prompt(1, 0, 0, 100);
    spec_ticket none;
    rig_begin(&rig, true, "");
    struct spec_lookup_result result = rig_lookup(&rig, &prompt);
    bypass(&rig, 0);
    assert_int_equal(rig_store_layer(&rig, result.request, &prompt, 0, 100, 0, &none), SPEC_OK);
    assert_int_equal(sc_plugin_store_abort(rig.conn, result.request, 0, NULL), SPEC_OK);
    bypass(&rig, SPEC_BYPASS_END);
    assert_int_equal(rig_wait(&rig, rig_store(&rig, result.request, &prompt, 0, 100)), SPEC_OK);
    rig_release(&rig, result.request);
    assert_int_equal(rig_read(&rig, &prompt, NULL), 100);
    rig_end(&rig, &prompt);
}

/* Who was told of a miss computes what is stored; once the bypass has ended it is not written
 * again. */
static void what_was_there_is_not_written_again(void **state)
{
    (void)state;
    struct rig rig;
    struct prompt prompt = rig_prompt(1, 200, 0, 200), longer = rig_prompt(1, 200, 0, 260);
    rig_begin(&rig, true, "");
    assert_int_equal(rig_fill(&rig, &prompt), SPEC_OK);
    uint64_t row_bytes = store_stats(&rig).stored_row_bytes;
    bypass(&rig, 0);
    struct spec_lookup_result result = rig_lookup(&rig, &longer);
    assert_int_equal(result.state, SPEC_LOOKUP_MISS);
    bypass(&rig, SPEC_BYPASS_END);
    assert_int_equal(rig_wait(&rig, rig_store(&rig, result.request, &longer, 0, 200)), SPEC_OK);
    assert_int_equal(store_stats(&rig).stored_row_bytes, row_bytes);
    assert_int_equal(rig_wait(&rig, rig_store(&rig, result.request, &longer, 200, 60)), SPEC_OK);
    rig_release(&rig, result.request);
    assert_int_equal(store_stats(&rig).stored_row_bytes, row_bytes / 200 * 260);
    assert_int_equal(rig_read(&rig, &longer, NULL), 260);
    rig_end(&rig, &prompt, &longer);
}

/* ---- Stage, attach -------------------------------------------------------------------------- */

static void what_is_being_staged_ends(void **state)
{
    (void)state;
    struct rig rig;
    struct prompt prompts[2] = {rig_prompt(1, 0, 0, 200), rig_prompt(2, 0, 0, 200)};
    struct prompt other = rig_prompt(3, 0, 0, 200);
    struct spec_lookup_result results[2], miss;
    spec_ticket tickets[2];
    rig_begin(&rig, true, HOST);
    for (uint32_t i = 0; i < 2; i++)
        assert_int_equal(rig_fill(&rig, &prompts[i]), SPEC_OK);
    rig_reopen(&rig);
    for (uint32_t i = 0; i < 2; i++) {
        results[i] = rig_lookup(&rig, &prompts[i]);
        tickets[i] = rig_stage(&rig, results[i].request, 0); /* the first runs, the second waits */
    }
    bypass(&rig, 0);
    for (uint32_t i = 0; i < 2; i++)
        assert_int_equal(rig_wait(&rig, tickets[i]), SPEC_E_DROPPED);
    assert_int_equal(found(&rig, &prompts[0]), 0);
    rig_pass_ns(&rig, 100 * MS);
    uint64_t read_bytes = store_stats(&rig).read_bytes;
    miss = rig_lookup(&rig, &other);
    assert_int_equal(rig_wait(&rig, rig_stage(&rig, miss.request, 0)),
                     SPEC_OK); /* all of nothing */
    assert_int_equal(rig_wait(&rig, rig_stage(&rig, results[0].request, 0)), SPEC_E_DROPPED);
    assert_int_equal(atomic_load(&rig.conn->stages.open), 0);
    rig_pass_ns(&rig, 100 * MS);
    assert_int_equal(store_stats(&rig).read_bytes, read_bytes);
    bypass(&rig, SPEC_BYPASS_END);
    assert_int_equal(rig_wait(&rig, rig_stage(&rig, results[0].request, 0)), SPEC_OK);
    struct spec_lookup_result again = rig_lookup(&rig, &prompts[0]);
    assert_true(again.tier_bytes[SPEC_TIER_HOST] > 0);
    assert_int_equal(again.tier_bytes[SPEC_TIER_DISK], 0);
    rig_release(&rig, again.request);
    rig_release(&rig, miss.request);
    for (uint32_t i = 0; i < 2; i++) {
        rig_release(&rig, results[i].request);
        rig_prompt_free(&prompts[i]);
    }
    assert_int_equal(atomic_load(&rig.conn->stats.tickets_open), 0);
    rig_end(&rig, &other);
}

static spec_status attach(struct rig *rig, const uint8_t *lease,
                          struct spec_lookup_result *ret_result)
{
    const struct spec_attach_params params = {.struct_size = sizeof(params), .lease = {lease, 64}};
    *ret_result = (struct spec_lookup_result){.struct_size = sizeof(*ret_result)};
    return sc_plugin_attach(rig->conn, &params, ret_result, &rig->error);
}

/* A reader that has found no store yet has nothing to tell a lease by. */
static void a_reader_without_a_store_refuses_leases_too(void **state)
{
    (void)state;
    struct rig writer, reader;
    struct prompt prompt = rig_prompt(1, 0, 0, 100);
    struct spec_lookup_result result, attached;
    rig_init(&writer, true, "");
    rig_open_beside(&reader, &writer, SPEC_ROLE_READER, 0);
    uint8_t lease[64] = {1, 2, 3};
    assert_int_equal(attach(&reader, lease, &attached), SPEC_OK);
    assert_int_equal(attached.state, SPEC_LOOKUP_PENDING);
    bypass(&reader, 0);
    assert_int_equal(attach(&reader, lease, &attached), SPEC_E_STALE);
    rig_open(&writer);
    assert_int_equal(rig_fill(&writer, &prompt), SPEC_OK);
    result = rig_lookup(&writer, &prompt);
    rig_pass_ns(&reader, TURN); /* it follows meanwhile */
    assert_int_equal(found(&reader, &prompt), 0);
    assert_int_equal(attach(&reader, result.lease, &attached), SPEC_E_STALE);
    assert_int_equal(found(&writer, &prompt), 100);
    bypass(&reader, SPEC_BYPASS_END);
    assert_int_equal(found(&reader, &prompt), 100); /* at once: it has followed */
    assert_int_equal(attach(&reader, result.lease, &attached), SPEC_OK);
    rig_load_all(&reader, attached.request, &prompt, 0, 100);
    rig_release(&reader, attached.request);
    rig_release(&writer, result.request);
    rig_leave(&reader);
    rig_end(&writer, &prompt);
}

/* ---- What works in the background ------------------------------------------------------------ */

static void merges_wait(void **state)
{
    (void)state;
    struct rig rig;
    struct prompt prompt = rig_prompt(1, 1000, 0, 12);
    rig_begin(&rig, true, CHUNKS);
    struct spec_lookup_result result = rig_lookup(&rig, &prompt);
    decode(&rig, result.request, &prompt, 0, 12);
    bypass(&rig, 100 * MS);
    rig_release(&rig, result.request); /* its end may be merged from now on */
    rig_pass_ns(&rig, 99 * MS);
    rig_background(&rig);
    assert_int_equal(merged(&rig), 0);
    assert_int_equal(store_stats(&rig).piece_count, 12);
    rig_pass_ns(&rig, MS + TURN);
    settle(&rig);
    assert_int_equal(merged(&rig), 1);
    assert_int_equal(store_stats(&rig).piece_count, 1);
    assert_int_equal(rig_read(&rig, &prompt, NULL), 12);
    rig_end(&rig, &prompt);
}

/* All layers; a twentieth of the rows exactly. */
static void load_all(struct world *world, spec_request request)
{
    for (uint32_t layer = 0; layer < 4; layer++) {
        struct shot shot;
        shot_make(&shot, world, request, layer, 0, 50000);
        assert_int_equal(fire(world, &shot), SPEC_OK);
        assert_rows(world, &shot, 0, 4, 2);
        shot_free(&shot);
    }
}

/* Loads go on meanwhile, are right, and teach: what was learnt goes to the log afterwards, and rows
 * are written anew in its order, by maintain or by the interval. */
static void averages_and_orders_wait(void **state)
{
    (void)state;
    static const char *const WAYS[] = {"", ", \"reorder\": {\"interval_s\": 2}"};
    for (uint32_t way = 0; way < 2; way++) {
        struct world world;
        char config[512];
        (void)snprintf(config, sizeof(config),
                       "\"preset\": \"layered-uniform\", \"select\": {\"min_tokens\": 0, "
                       "\"min_share_ppm\": 0}, \"maintain\": {\"bytes_per_s\": 0}%s",
                       WAYS[way]);
        world_open_quantised(&world, config, 2, 2, 16, SPEC_DTYPE_F16, 300, 3);
        struct rig *rig = &world.rig;
        spec_request requests[3];
        for (uint32_t i = 0; i < 3; i++)
            requests[i] = look(&world, 0);
        rig_pass_ns(rig, 3000 * MS); /* what was learnt before is in the log */
        rig_background(rig);
        struct sc_store_stats before = store_stats(rig);
        bypass(rig, 0);
        for (uint32_t i = 0; i < 3; i++)
            load_all(&world, requests[i]);
        assert_int_equal(maintain(rig, way == 0 ? SPEC_MAINTAIN_REORDER : SPEC_MAINTAIN_EVICT, 0),
                         SPEC_OK);
        rig_pass_ns(rig, 8000 * MS);
        rig_background(rig);
        assert_int_equal(store_stats(rig).permuted_pieces, 0);
        assert_int_equal(store_stats(rig).log_write_bytes, before.log_write_bytes);
        assert_int_equal(store_stats(rig).write_bytes, before.write_bytes);
        for (uint32_t i = 0; i < 3; i++)
            rig_release(rig, requests[i]);
        bypass(rig, SPEC_BYPASS_END);
        rig_pass_ns(rig, 3000 * MS);
        rig_background(rig);
        assert_int_equal(store_stats(rig).permuted_pieces, 5);
        assert_true(store_stats(rig).log_write_bytes > before.log_write_bytes);
        spec_request request = look(&world, 0);
        load_all(&world, request);
        rig_release(rig, request);
        world_done(&world);
    }
}

/* A close in the middle of it leaves nothing behind: what waits ends. */
static void a_close_meanwhile_ends_what_waits(void **state)
{
    (void)state;
    struct rig rig;
    struct prompt prompt = rig_prompt(1, 0, 0, 200);
    for (uint32_t is_sim = 0; is_sim < 2; is_sim++) {
        rig_begin(&rig, is_sim == 1, "\"select\": {\"retain_ppm\": 250000}, " HOST);
        assert_int_equal(rig_fill(&rig, &prompt), SPEC_OK);
        rig_reopen(&rig);
        struct spec_lookup_result result = rig_lookup(&rig, &prompt);
        spec_ticket ticket = rig_stage(&rig, result.request, 0);
        bypass(&rig, 0);
        assert_int_equal(maintain(&rig, SPEC_MAINTAIN_BUILD | SPEC_MAINTAIN_REORDER, 0), SPEC_OK);
        spec_status status = rig_wait(&rig, ticket);
        assert_true(status == SPEC_E_DROPPED || (status == SPEC_OK && !rig.is_sim));
        rig_reopen(&rig); /* asserts that all memory came back */
        assert_int_equal(found(&rig, &prompt), 200);
        rig_done(&rig);
    }
    rig_prompt_free(&prompt);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_log_tells_of_its_beginning_and_its_end),
        cmocka_unit_test(its_deadline_is_kept_to_the_nanosecond),
        cmocka_unit_test(what_is_refused_begins_none),
        cmocka_unit_test(what_hangs_on_a_dropped_pass_is_counted_with_it),
        cmocka_unit_test(an_aborted_pass_may_be_stored_afterwards),
        cmocka_unit_test(what_was_there_is_not_written_again),
        cmocka_unit_test(what_is_being_staged_ends),
        cmocka_unit_test(a_reader_without_a_store_refuses_leases_too),
        cmocka_unit_test(merges_wait),
        cmocka_unit_test(averages_and_orders_wait),
        cmocka_unit_test(a_close_meanwhile_ends_what_waits),
    };
    return cmocka_run_group_tests_name("bypass", tests, NULL, NULL);
}
