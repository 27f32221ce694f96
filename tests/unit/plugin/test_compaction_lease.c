/* Leases on pieces that were merged, here and in other processes, and ids that were left free for
 * them: a lease names what it named, is PENDING where its record may still come, and an id that
 * came to nothing is nobody's for good.
 *
 * Threads: the seeded loop. */
#include "store/internal.h"
#include "tests/unit/plugin/compaction_fixture.h"

#define SHORT                                                                                      \
    "\"chunk_tokens\": 16, \"disk_bytes\": \"64MiB\", \"segment_bytes\": \"8MiB\", "               \
    "\"lease_ns_max\": 0" /* what is dropped is gone at once */

static struct prompt part_of(const struct prompt *prompt, uint64_t count)
{
    return (struct prompt){.count = count, .tokens = prompt->tokens, .history = prompt->history};
}

/* A promise on the first `count` tokens, which are there. */
static struct spec_lookup_result lease_of(struct rig *rig, const struct prompt *prompt,
                                          uint64_t count)
{
    struct prompt part = part_of(prompt, count);
    struct spec_lookup_result result = rig_lookup(rig, &part);
    assert_int_equal(result.matched_tokens, count);
    rig_release(rig, result.request);
    return result;
}

/* OK: all rows are right. PENDING as a status. */
static spec_status attach(struct rig *rig, const struct prompt *prompt,
                          const struct spec_lookup_result *lease)
{
    struct spec_lookup_result result = {.struct_size = sizeof(result)};
    spec_status status = rig_attach(rig, lease->lease, 0, &result);
    if (status != SPEC_OK || result.state == SPEC_LOOKUP_PENDING)
        return status != SPEC_OK ? status : SPEC_PENDING;
    assert_int_equal(result.matched_tokens, lease->matched_tokens);
    rig_load_all(rig, result.request, prompt, 0, result.matched_tokens);
    rig_release(rig, result.request);
    return SPEC_OK;
}

static void attach_all(struct rig *rig, const struct prompt *prompt,
                       const struct spec_lookup_result *leases, uint32_t count,
                       spec_status expected)
{
    for (uint32_t i = 0; i < count; i++)
        assert_int_equal(attach(rig, prompt, &leases[i]), expected);
}

/* ---- What a lease names ---------------------------------------------------------------------- */

/* On every piece of a chunk, and on what they became: until it ends, also when that is dropped. */
static void a_lease_on_a_piece_that_was_merged_stays_good(void **state)
{
    (void)state;
    struct rig writer, reader;
    struct prompt prompt = rig_prompt(1, 1000, 0, CHUNK + 5);
    struct spec_lookup_result leases[CHUNK];
    rig_begin(&writer, true, CHUNKS);
    rig_open_beside(&reader, &writer, SPEC_ROLE_READER, 0);
    struct spec_lookup_result decoder = rig_lookup(&writer, &prompt);
    decode(&writer, decoder.request, &prompt, 0, CHUNK - 1);
    rig_pass_ns(&reader, 60 * MS); /* of the old ones it knows */
    for (uint32_t i = 0; i + 1 < CHUNK; i++)
        leases[i] = lease_of(&writer, &prompt, i + 1);
    decode(&writer, decoder.request, &prompt, CHUNK - 1, CHUNK + 5);
    settle(&writer);
    assert_int_equal(store_stats(&writer).piece_count, 1 + 5);
    leases[CHUNK - 1] = lease_of(&writer, &prompt, CHUNK);
    struct rig *rigs[] = {&writer, &reader};
    attach_all(&reader, &prompt, leases, CHUNK - 1, SPEC_OK); /* which has not looked since */
    rig_pass_ns(&reader, 60 * MS);
    for (uint32_t i = 0; i < 2; i++)
        attach_all(rigs[i], &prompt, leases, CHUNK, SPEC_OK);
    rig_reopen(&reader); /* its log has old and new */
    attach_all(&reader, &prompt, leases, CHUNK, SPEC_OK);
    uint64_t one = CHUNK + 1; /* the id that the chunk's last piece left free */
    assert_int_equal(sc_store_piece_rows(writer.conn->store, one), CHUNK);
    sc_plugin_piece_fail(writer.conn,
                         sc_plugin_ref_of(sc_store_piece_mark(writer.conn->store, one)), one);
    settle(&writer);
    attach_all(&writer, &prompt, leases, CHUNK, SPEC_E_STALE);
    rig_pass_ns(&reader, 60 * MS); /* it is dropped there, too: its pages wait for the lease */
    attach_all(&reader, &prompt, leases, CHUNK, SPEC_OK);
    rig_pass_ns(&reader, 2000 * MS);
    attach_all(&reader, &prompt, leases, CHUNK, SPEC_E_STALE);
    rig_release(&writer, decoder.request);
    rig_leave(&reader);
    rig_end(&writer, &prompt);
}

/* The piece's record stands behind larger ids: who knows those does not know it. */
static void a_lease_on_what_has_not_come_is_pending(void **state)
{
    (void)state;
    for (uint32_t rank = 0; rank < 2; rank++) {
        struct rig writer, other;
        struct prompt prompt = rig_prompt(2, 1000, 0, CHUNK + 5);
        rig_init(&writer, true, CHUNKS ", \"maintain\": {\"bytes_per_s\": \"64KiB\"}");
        writer.rank_count = 1 + rank;
        rig_open(&writer);
        rig_open_beside(&other, &writer, rank == 0 ? SPEC_ROLE_READER : SPEC_ROLE_WRITER, rank);
        struct rig *rigs[] = {&other, &writer};
        for (uint32_t i = rank == 0 ? 1 : 0; i < 2; i++) { /* of a set, both */
            struct spec_lookup_result decoder = rig_lookup(rigs[i], &prompt);
            decode(rigs[i], decoder.request, &prompt, 0, prompt.count);
            rig_release(rigs[i], decoder.request);
        }
        rig_pass_ns(&writer, 60 * MS);
        rig_pass_ns(&other, 60 * MS); /* it knows all ids but the one that is free */
        assert_int_equal(merged(&writer), 0);
        struct spec_lookup_result before = lease_of(&writer, &prompt, CHUNK);
        rig_pass_ns(&writer, 60000 * MS);
        assert_true(merged(&writer) > 0);
        struct spec_lookup_result lease = lease_of(&writer, &prompt, CHUNK);
        struct spec_lookup_result longer = lease_of(&writer, &prompt, prompt.count);
        assert_int_equal(attach(&other, &prompt, &before), SPEC_OK);
        assert_int_equal(attach(&other, &prompt, &lease), SPEC_PENDING);
        assert_int_equal(attach(&other, &prompt, &longer), SPEC_PENDING); /* its end was merged */
        rig_pass_ns(&other, 60 * MS);
        assert_int_equal(attach(&other, &prompt, &lease), SPEC_OK);
        assert_int_equal(attach(&other, &prompt, &longer), SPEC_OK);
        rig_leave(&other);
        rig_end(&writer, &prompt);
    }
}

/* ---- Ids that come to nothing ---------------------------------------------------------------- */

#define LEFT (CHUNK + 1)

/* What would leave it free is there, and it is nobody's. */
static bool is_void(const struct rig *rig)
{
    const struct sc_store *store = rig->conn->store;
    return sc_store_piece_rows(store, LEFT - 1) > 0 && sc_store_piece_rows(store, LEFT) == 0 &&
           !sc_store_piece_is_left(store, LEFT);
}

/* Nothing takes it, however often it is tried. */
static void check_unused(struct rig *rig, const struct prompt *prompt)
{
    for (uint32_t i = 0; i < 4; i++) {
        sc_plugin_kick(rig->conn, SC_JOB_COMPACT);
        settle(rig);
    }
    assert_true(is_void(rig));
    assert_int_equal(merged(rig), 0);
    spec_status status;
    struct prompt part = part_of(prompt, CHUNK + 3);
    assert_int_equal(rig_read(rig, &part, &status), CHUNK + 3);
}

/* The record of a merge could not be appended: who follows may have read it. */
static void an_id_that_came_to_nothing_stays_unused(void **state)
{
    (void)state;
    uint32_t voids = 0;
    bool fired = true;
    for (uint64_t n = 0; fired; n++) {
        struct rig rig;
        struct prompt prompt = rig_prompt(3, 1000, 0, CHUNK + 4);
        rig_begin(&rig, true, CHUNKS ", \"maintain\": {\"bytes_per_s\": \"64KiB\"}");
        struct spec_lookup_result decoder = rig_lookup(&rig, &prompt);
        decode(&rig, decoder.request, &prompt, 0, prompt.count);
        rig_release(&rig, decoder.request);
        rig_close(&rig);
        rig.extra = CHUNKS;
        rig_open(&rig);
        sc_fault_arm(&rig.conn->fault, SC_FAULT_WRITE, n);
        sc_plugin_kick(rig.conn, SC_JOB_COMPACT);
        settle(&rig);
        fired = atomic_load(&rig.conn->fault.fired[SC_FAULT_WRITE]) > 0;
        sc_fault_init(&rig.conn->fault);
        rig_pass_ns(&rig, 6000 * MS);
        if (is_void(&rig)) {
            voids++;
            check_unused(&rig, &prompt);
            /* With the next drop the log says so. */
            uint64_t last = CHUNK + 5;
            sc_plugin_piece_fail(
                rig.conn, sc_plugin_ref_of(sc_store_piece_mark(rig.conn->store, last)), last);
            settle(&rig);
            for (uint32_t round = 0; round < 4; round++) {
                rig_reopen(&rig);
                assert_int_equal(store_stats(&rig).corrupt_records, 0);
                check_unused(&rig, &prompt);
                assert_int_equal(sc_store_checkpoint(rig.conn->store, NULL), SPEC_OK);
                rig_pass_ns(&rig, 2000 * MS);
            }
        }
        rig_end(&rig, &prompt);
    }
    assert_int_equal(voids, 1);
}

/* While the log is written anew nothing takes an id of the old one: it would stand behind what
 * hangs on it, in a log that may not have the old pieces any more. It does afterwards. */
static void nothing_is_merged_while_the_log_is_copied(void **state)
{
    (void)state;
    struct rig rig;
    struct prompt prompt = rig_prompt(5, 1000, 0, CHUNK + 4);
    rig_begin(&rig, true, CHUNKS);
    struct sc_store *store = rig.conn->store;
    pthread_mutex_lock(&store->log.lock);
    store->log.is_copied = true; /* as a checkpoint on another thread sets it */
    pthread_mutex_unlock(&store->log.lock);
    struct spec_lookup_result decoder = rig_lookup(&rig, &prompt);
    decode(&rig, decoder.request, &prompt, 0, prompt.count);
    settle(&rig);
    assert_int_equal(merged(&rig), 0);
    assert_true(sc_store_piece_is_left(store, LEFT));
    pthread_mutex_lock(&store->log.lock);
    store->log.is_copied = false;
    pthread_mutex_unlock(&store->log.lock);
    sc_plugin_kick(rig.conn, SC_JOB_CHECKPOINT); /* which asks for what waited for it */
    settle(&rig);
    assert_int_equal(merged(&rig), 1);
    rig_release(&rig, decoder.request);
    assert_int_equal(rig_read(&rig, &prompt, NULL), prompt.count);
    rig_end(&rig, &prompt);
}

/* A checkpoint is asked for at every step of a merge, and old pieces go at once. */
static void checkpoints_beside_merges_lose_nothing(void **state)
{
    (void)state;
    for (uint32_t every = 1; every < 12; every++) {
        struct rig rig;
        struct prompt prompts[] = {rig_prompt(4, 1000, 0, 5 * CHUNK + 3), rig_prompt(4, 40, 1, 77)};
        rig_begin(&rig, true, SHORT);
        for (uint32_t i = 0; i < 2; i++) {
            struct spec_lookup_result decoder = rig_lookup(&rig, &prompts[i]);
            decode(&rig, decoder.request, &prompts[i], decoder.matched_tokens, prompts[i].count);
            rig_release(&rig, decoder.request);
            for (uint32_t step = 0; sc_exec_step_one(rig.conn->exec) && step < 2000; step++)
                if (step % every == 0)
                    sc_plugin_kick(rig.conn, SC_JOB_CHECKPOINT);
        }
        settle(&rig);
        assert_true(merged(&rig) >= 5);
        for (uint32_t round = 0; round < 3; round++) {
            for (uint32_t i = 0; i < 2; i++)
                assert_int_equal(rig_read(&rig, &prompts[i], NULL), prompts[i].count);
            rig_reopen(&rig);
            assert_int_equal(store_stats(&rig).corrupt_records, 0);
            rig_pass_ns(&rig, 2000 * MS);
        }
        rig_prompts_free_all(prompts, 2);
        rig_done(&rig);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_lease_on_a_piece_that_was_merged_stays_good),
        cmocka_unit_test(a_lease_on_what_has_not_come_is_pending),
        cmocka_unit_test(an_id_that_came_to_nothing_stays_unused),
        cmocka_unit_test(nothing_is_merged_while_the_log_is_copied),
        cmocka_unit_test(checkpoints_beside_merges_lose_nothing),
    };
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
