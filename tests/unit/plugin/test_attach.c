/* attach: a lease opens the same rows in another connector, without tokens; what is altered,
 * expired, foreign or gone is refused, and what is not known yet is asked for again.
 *
 * Each connector has a loop and a virtual clock of its own. Threads: one. */
#include "tests/unit/plugin/plugin_fixture.h"

#define MS   UINT64_C(1000000)
#define TURN (30 * MS)

struct attaching {
    spec_status status;
    struct spec_lookup_result result;
    struct spec_error error;
};

static struct attaching attach(struct rig *rig, const uint8_t *lease, uint64_t from_token)
{
    struct attaching attaching = {.result = {.struct_size = sizeof(attaching.result)},
                                  .error = {.struct_size = sizeof(attaching.error)}};
    struct spec_attach_params params = {
        .struct_size = sizeof(params), .lease = {lease, 64}, .from_token = from_token};
    attaching.status = sc_plugin_attach(rig->conn, &params, &attaching.result, &attaching.error);
    return attaching;
}

/* Every layer of the request holds the prompt's rows. */
static void assert_loads(struct rig *rig, const struct spec_lookup_result *result,
                         const struct prompt *prompt, uint64_t from_token)
{
    rig_load_all(rig, result->request, prompt, from_token, result->matched_tokens);
}

/* A writer that has stored the prompt, a reader beside it that knows, and the writer's lease. */
struct pair {
    struct rig writer, reader;
    struct prompt prompt;
    struct spec_lookup_result found;
};

static void pair_open(struct pair *pair, const char *extra, uint64_t count)
{
    rig_begin(&pair->writer, true, extra);
    pair->prompt = rig_prompt(1, 0, 0, count);
    assert_int_equal(rig_fill(&pair->writer, &pair->prompt), SPEC_OK);
    pair->found = rig_lookup(&pair->writer, &pair->prompt);
    assert_int_equal(pair->found.matched_tokens, count);
    rig_release(&pair->writer, pair->found.request);
    rig_open_beside(&pair->reader, &pair->writer, SPEC_ROLE_READER, 0);
}

static void pair_close(struct pair *pair)
{
    rig_leave(&pair->reader);
    rig_end(&pair->writer, &pair->prompt);
}

static void a_lease_opens_the_rows_without_tokens(void **state)
{
    (void)state;
    struct pair pair;
    pair_open(&pair, "", 300);
    static const uint64_t FROM[] = {0, 1, 64, 150, 299, 300};
    for (uint32_t i = 0; i < sizeof(FROM) / sizeof(FROM[0]); i++) {
        struct rig *rigs[] = {&pair.reader, &pair.writer};
        for (uint32_t j = 0; j < 2; j++) {
            struct attaching got = attach(rigs[j], pair.found.lease, FROM[i]);
            assert_int_equal(got.status, SPEC_OK);
            assert_int_equal(got.result.state, FROM[i] < 300 ? SPEC_LOOKUP_HIT : SPEC_LOOKUP_MISS);
            assert_int_equal(got.result.matched_tokens, 300);
            assert_int_equal(got.result.lease_expiry_ns, pair.found.lease_expiry_ns);
            assert_memory_equal(got.result.lease, pair.found.lease, 64);
            assert_loads(rigs[j], &got.result, &pair.prompt, FROM[i]);
            rig_release(rigs[j], got.result.request);
        }
    }
    assert_int_equal(atomic_load(&pair.reader.conn->stats.leases_attached), 6);
    pair_close(&pair);
}

/* Wherever it ends: on a grid border, inside a chunk, inside a run that was split since. */
static void a_lease_may_end_at_any_token(void **state)
{
    (void)state;
    struct pair pair;
    pair_open(&pair, "", 200);
    struct prompt other = rig_prompt(1, 100, 5, 180); /* parts all runs at 100 */
    memcpy(other.tokens, pair.prompt.tokens, 100 * sizeof(uint32_t));
    assert_int_equal(rig_fill(&pair.writer, &other), SPEC_OK);
    rig_pass_ns(&pair.reader, TURN);
    for (uint64_t end = 1; end <= 200; end += end % 64 < 2 || end % 64 > 61 ? 1 : 17) {
        struct spec_lookup_result result;
        assert_int_equal(rig_try_lookup(&pair.writer, &pair.prompt, 0, end, &result), SPEC_OK);
        assert_int_equal(result.matched_tokens, end);
        struct attaching got = attach(&pair.reader, result.lease, 0);
        assert_int_equal(got.status, SPEC_OK);
        assert_int_equal(got.result.matched_tokens, end);
        assert_loads(&pair.reader, &got.result, &pair.prompt, 0);
        rig_release(&pair.reader, got.result.request);
        rig_release(&pair.writer, result.request);
    }
    rig_prompt_free(&other);
    pair_close(&pair);
}

static void what_follows_may_be_stored_with_its_tokens(void **state)
{
    (void)state;
    struct pair pair;
    pair_open(&pair, "", 150);
    struct prompt longer = rig_prompt(1, 0, 0, 250);
    struct attaching got = attach(&pair.writer, pair.found.lease, 0);
    assert_int_equal(got.status, SPEC_OK);
    struct area area = rig_area(&pair.writer, 100);
    spec_ticket ticket = 0;
    for (uint32_t layer = 0; layer < pair.writer.layers; layer++) {
        rig_area_fill(&pair.writer, &area, &longer, 150, 100, layer);
        struct spec_store_params params = {.struct_size = sizeof(params),
                                           .request = got.result.request,
                                           .layer = layer,
                                           .first_token = 150,
                                           .token_count = 100,
                                           .memory = &area.memory,
                                           .tokens = longer.tokens + 150,
                                           .tokens_count = layer == 0 ? 100 : 0};
        assert_int_equal(sc_plugin_store(pair.writer.conn, &params, 1, &ticket, NULL), SPEC_OK);
    }
    assert_int_equal(rig_wait(&pair.writer, ticket), SPEC_OK);
    rig_area_free(&area);
    rig_release(&pair.writer, got.result.request);
    assert_int_equal(rig_read(&pair.writer, &longer, NULL), 250);
    rig_prompt_free(&longer);
    pair_close(&pair);
}

static spec_status lookup_with_key(struct rig *rig, const struct prompt *prompt,
                                   struct spec_lookup_result *ret_result)
{
    struct spec_extra_key key = {.struct_size = sizeof(key),
                                 .kind = 1,
                                 .first_token = 70,
                                 .token_count = 20,
                                 .value = {"image", 5}};
    struct spec_lookup_params params = {.struct_size = sizeof(params),
                                        .tokens = prompt->tokens,
                                        .token_count = prompt->count,
                                        .max_tokens = prompt->count,
                                        .salt = {"salt", 4},
                                        .lora = {"lora", 4},
                                        .extra_keys = &key,
                                        .extra_key_count = 1};
    *ret_result = (struct spec_lookup_result){.struct_size = sizeof(*ret_result)};
    return sc_plugin_lookup(rig->conn, &params, ret_result, NULL);
}

/* Salt, LoRA and extra keys are in the hashes that a lease names. */
static void a_lease_names_what_depends_on_extra_keys(void **state)
{
    (void)state;
    struct pair pair;
    pair_open(&pair, "", 130);
    struct spec_lookup_result result;
    assert_int_equal(lookup_with_key(&pair.writer, &pair.prompt, &result), SPEC_OK);
    assert_int_equal(result.state, SPEC_LOOKUP_MISS);
    assert_int_equal(
        rig_wait(&pair.writer, rig_store(&pair.writer, result.request, &pair.prompt, 0, 130)),
        SPEC_OK);
    rig_release(&pair.writer, result.request);
    assert_int_equal(lookup_with_key(&pair.writer, &pair.prompt, &result), SPEC_OK);
    assert_int_equal(result.matched_tokens, 130);
    assert_memory_not_equal(result.lease, pair.found.lease, 64);
    rig_pass_ns(&pair.reader, TURN);
    struct attaching got = attach(&pair.reader, result.lease, 0);
    assert_int_equal(got.status, SPEC_OK);
    assert_int_equal(got.result.matched_tokens, 130);
    assert_loads(&pair.reader, &got.result, &pair.prompt, 0);
    rig_release(&pair.reader, got.result.request);
    rig_release(&pair.writer, result.request);
    pair_close(&pair);
}

/* ---- Refusals ------------------------------------------------------------------------------- */

static void arguments_that_cannot_be_are_refused(void **state)
{
    (void)state;
    struct pair pair;
    pair_open(&pair, "", 100);
    struct spec_attach_params good = {.struct_size = sizeof(good), .lease = {pair.found.lease, 64}};
    struct spec_lookup_result result = {.struct_size = sizeof(result)};
    struct spec_attach_params bad[] = {good, good, good, good, good};
    bad[0].struct_size = 0;
    bad[1].reserved = 1;
    bad[2].lease.byte_count = 63;
    bad[3].lease.data = NULL;
    bad[4].from_token = 101;
    for (uint32_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_int_equal(sc_plugin_attach(pair.reader.conn, &bad[i], &result, NULL),
                         SPEC_E_INVALID);
    assert_int_equal(sc_plugin_attach(pair.reader.conn, NULL, &result, NULL), SPEC_E_INVALID);
    assert_int_equal(sc_plugin_attach(pair.reader.conn, &good, NULL, NULL), SPEC_E_INVALID);
    assert_int_equal(atomic_load(&pair.reader.conn->stats.requests_open), 0);
    pair_close(&pair);
}

static void an_altered_lease_is_invalid(void **state)
{
    (void)state;
    struct pair pair;
    pair_open(&pair, "", 100);
    for (uint32_t i = 0; i < 64; i++) {
        uint8_t lease[64];
        memcpy(lease, pair.found.lease, 64);
        lease[i] ^= 1;
        assert_int_equal(attach(&pair.reader, lease, 0).status, SPEC_E_INVALID);
    }
    uint8_t none[64] = {0};
    assert_int_equal(attach(&pair.reader, none, 0).status, SPEC_E_INVALID);
    assert_int_equal(atomic_load(&pair.reader.conn->stats.leases_refused), 65);
    assert_int_equal(atomic_load(&pair.reader.conn->stats.requests_open), 0);
    pair_close(&pair);
}

static void a_lease_of_another_store_or_model_is_invalid(void **state)
{
    (void)state;
    struct pair pair;
    struct rig other;
    pair_open(&pair, "", 100);
    rig_init(&other, true, "");
    sc_io_sim_disk_close(other.disk);
    struct sc_io_sim_disk_params disk = {.alloc = &other.disk_alloc, .seed = 99}; /* of its id */
    assert_int_equal(sc_io_sim_disk_open(&disk, &other.disk, NULL), SPEC_OK);
    rig_open(&other);
    assert_int_equal(attach(&other, pair.found.lease, 0).status, SPEC_E_INVALID);
    rig_done(&other);
    rig_beside(&other, &pair.writer, SPEC_ROLE_READER, 0);
    struct spec_model model = rig_model(&other);
    model.weights_id = (struct spec_bytes){"another", 7};
    assert_int_equal(rig_try_open_model(&other, &model), SPEC_OK);
    assert_int_equal(attach(&other, pair.found.lease, 0).status, SPEC_E_INVALID);
    rig_leave(&other);
    pair_close(&pair);
}

static void an_expired_lease_is_stale(void **state)
{
    (void)state;
    struct pair pair;
    pair_open(&pair, "\"lease_ns_max\": 100000000", 100);
    uint64_t now = sc_exec_wall_ns(pair.reader.conn->exec);
    assert_true(pair.found.lease_expiry_ns > now);
    rig_pass_ns(&pair.reader, pair.found.lease_expiry_ns - now - 1);
    assert_int_equal(attach(&pair.reader, pair.found.lease, 0).status, SPEC_OK);
    rig_pass_ns(&pair.reader, 1);
    struct attaching got = attach(&pair.reader, pair.found.lease, 0);
    assert_int_equal(got.status, SPEC_E_STALE);
    assert_non_null(strstr(got.error.text, "expired"));
    assert_int_equal(atomic_load(&pair.reader.conn->stats.requests_open), 1); /* of the first */
    pair_close(&pair);
}

static void limits_are_answered_with_busy(void **state)
{
    (void)state;
    struct pair pair;
    struct rig small;
    pair_open(&pair, "\"max_requests\": 2", 100);
    for (uint32_t i = 0; i < 2; i++)
        assert_int_equal(attach(&pair.reader, pair.found.lease, 0).status, SPEC_OK);
    assert_int_equal(attach(&pair.reader, pair.found.lease, 0).status, SPEC_E_BUSY);
    rig_beside(&small, &pair.writer, SPEC_ROLE_READER, 0);
    small.extra = "\"max_request_tokens\": 99";
    rig_open(&small);
    assert_int_equal(attach(&small, pair.found.lease, 0).status, SPEC_E_BUSY);
    rig_leave(&small);
    pair_close(&pair);
}

/* With more and more pages free, until there is room for the tokens, the match and the choice: each
 * time before, nothing stays taken. */
static void without_memory_an_attach_and_a_lookup_are_busy(void **state)
{
    (void)state;
    struct pair pair;
    pair_open(&pair,
              "\"select\": {\"retain_ppm\": 250000, \"min_tokens\": 0, \"min_share_ppm\": 0}, "
              "\"prefetch\": {\"predictor\": \"layer\"}, \"request_bytes\": \"1MiB\"",
              16000);
    for (uint32_t i = 0; i < 2; i++) {
        struct sc_run_pool *pool = &pair.writer.conn->requests.pool;
        struct sc_run all, left;
        uint64_t busy = 0;
        assert_true(sc_run_take(pool, pool->page_count * SC_RUN_PAGE_BYTES, &all));
        for (uint64_t pages = pool->page_count; pages-- > 0;) {
            left = (struct sc_run){all.at + pages * SC_RUN_PAGE_BYTES, SC_RUN_PAGE_BYTES};
            sc_run_put(pool, &left);
            struct attaching got = {.result.struct_size = sizeof(got.result)};
            if (i == 0)
                got = attach(&pair.writer, pair.found.lease, 0);
            else
                got.status = rig_try_lookup(&pair.writer, &pair.prompt, 0, RIG_MAX, &got.result);
            if (got.status == SPEC_OK)
                rig_release(&pair.writer, got.result.request);
            else
                assert_int_equal(got.status, SPEC_E_BUSY);
            busy += got.status == SPEC_E_BUSY;
            assert_true(busy == pool->page_count - pages || got.status == SPEC_OK);
            assert_int_equal(sc_counted(&pool->used_bytes), pages * SC_RUN_PAGE_BYTES);
        }
        /* Tokens take 16 pages, segments 80 for a moment, then 5; lists and maps of rows take 97.
         */
        assert_int_equal(busy, 16 + 5 + 97 - 1);
    }
    pair_close(&pair);
}

/* ---- What is not known yet, and what is known no more -----------------------------------------
 */

static void what_the_log_has_not_brought_yet_is_asked_for_again(void **state)
{
    (void)state;
    struct rig writer, reader;
    struct prompt prompt = rig_prompt(3, 0, 0, 100);
    rig_init(&writer, true, "");
    rig_open_beside(&reader, &writer, SPEC_ROLE_READER, 0);
    rig_open(&writer);
    assert_int_equal(rig_fill(&writer, &prompt), SPEC_OK);
    struct spec_lookup_result found = rig_lookup(&writer, &prompt);
    for (uint32_t turn = 0; turn < 2; turn++) { /* first there is no store, then no piece */
        struct attaching got = attach(&reader, found.lease, 0);
        assert_int_equal(got.status, SPEC_OK);
        assert_int_equal(got.result.state, SPEC_LOOKUP_PENDING);
        assert_int_equal(got.result.request, 0);
        rig_pass_ns(&reader, TURN);
        assert_int_equal(attach(&reader, found.lease, 0).result.state, SPEC_LOOKUP_HIT);
        struct prompt more = rig_prompt(4 + turn, 0, 0, 100);
        assert_int_equal(rig_fill(&writer, &more), SPEC_OK);
        rig_release(&writer, found.request);
        found = rig_lookup(&writer, &more);
        rig_prompt_free(&more);
    }
    rig_release(&writer, found.request);
    rig_leave(&reader);
    rig_end(&writer, &prompt);
}

static void what_failed_meanwhile_is_stale(void **state)
{
    (void)state;
    struct pair pair;
    pair_open(&pair, "", 100);
    struct spec_lookup_result result = rig_lookup(&pair.reader, &pair.prompt);
    sc_io_sim_fault_nth(pair.writer.disk, SC_SIM_READ_EIO, 0);
    assert_int_equal(rig_load(&pair.reader, result.request, &pair.prompt, 0, 100, 0), SPEC_E_IO);
    rig_release(&pair.reader, result.request);
    assert_int_equal(attach(&pair.reader, pair.found.lease, 0).status, SPEC_E_STALE);
    pair_close(&pair);
}

static void a_lease_of_before_a_reset_is_stale_and_of_after_it_pending(void **state)
{
    (void)state;
    struct pair pair;
    pair_open(&pair, "", 100);
    assert_int_equal(sc_plugin_reset(pair.writer.conn, NULL), SPEC_OK);
    assert_int_equal(attach(&pair.writer, pair.found.lease, 0).status, SPEC_E_STALE);
    assert_int_equal(rig_fill(&pair.writer, &pair.prompt), SPEC_OK);
    struct spec_lookup_result found = rig_lookup(&pair.writer, &pair.prompt);
    assert_int_equal(found.matched_tokens, 100);
    struct attaching got = attach(&pair.reader, found.lease, 0);
    assert_int_equal(got.status, SPEC_OK);
    assert_int_equal(got.result.state, SPEC_LOOKUP_PENDING);
    rig_pass_ns(&pair.reader, TURN);
    assert_int_equal(attach(&pair.reader, pair.found.lease, 0).status, SPEC_E_STALE);
    got = attach(&pair.reader, found.lease, 0);
    assert_int_equal(got.result.state, SPEC_LOOKUP_HIT);
    assert_loads(&pair.reader, &got.result, &pair.prompt, 0);
    rig_release(&pair.writer, found.request);
    pair_close(&pair);
}

/* The writer evicted it, the reader's log has said so, and a lease that came late still opens it:
 * the writer keeps the rows for as long. */
static void what_was_evicted_is_attached_until_the_lease_ends(void **state)
{
    (void)state;
    struct pair pair;
    rig_begin_shape(&pair.writer, true, "\"disk_bytes\": \"6MiB\", \"segment_bytes\": \"1MiB\"", 3,
                    2, 64, SPEC_DTYPE_F16);
    pair.prompt = rig_prompt(1, 0, 0, 200);
    assert_int_equal(rig_fill(&pair.writer, &pair.prompt), SPEC_OK);
    rig_open_beside(&pair.reader, &pair.writer, SPEC_ROLE_READER, 0);
    static const uint64_t ENDS[] = {200, 150, 128, 64, 3};
    struct spec_lookup_result found[5];
    for (uint32_t i = 0; i < 5; i++) {
        assert_int_equal(rig_try_lookup(&pair.reader, &pair.prompt, 0, ENDS[i], &found[i]),
                         SPEC_OK);
        assert_int_equal(found[i].matched_tokens, ENDS[i]);
        rig_release(&pair.reader, found[i].request);
    }
    for (uint64_t i = 0; i < 60; i++) { /* it is what was used longest ago */
        struct prompt other = rig_prompt(100 + i, 0, 0, 64);
        (void)rig_fill(&pair.writer, &other); /* finds no room at first */
        rig_pass_ns(&pair.writer, TURN);
        rig_prompt_free(&other);
    }
    assert_int_equal(rig_matched(&pair.writer, &pair.prompt), 0);
    rig_pass_ns(&pair.reader, TURN);
    assert_int_equal(rig_matched(&pair.reader, &pair.prompt), 0);
    for (uint32_t i = 0; i < 5; i++) {
        struct attaching got = attach(&pair.reader, found[i].lease, 0);
        assert_int_equal(got.status, SPEC_OK);
        assert_int_equal(got.result.matched_tokens, ENDS[i]);
        assert_loads(&pair.reader, &got.result, &pair.prompt, 0);
        rig_release(&pair.reader, got.result.request);
    }
    assert_true(pair.reader.conn->grace.count > 0);
    rig_pass_ns(&pair.reader, 31000 * MS); /* lease_ns_max is 30 s */
    assert_int_equal(attach(&pair.reader, found[0].lease, 0).status, SPEC_E_STALE);
    assert_int_equal(pair.reader.conn->grace.count, 0);
    struct sc_radix_stats stats;
    sc_radix_stats(pair.reader.conn->radix, &stats);
    assert_int_equal(stats.hidden, 0);
    pair_close(&pair);
}

/* A scheduler of rank 0 looks up, a worker of rank 1 loads its own part. */
static void a_lease_of_one_rank_opens_another_ranks_rows(void **state)
{
    (void)state;
    struct rig ranks[2], scheduler;
    struct prompt prompt = rig_prompt(5, 0, 0, 140);
    rig_init(&ranks[0], true, "");
    ranks[0].rank_count = 2;
    rig_beside(&ranks[1], &ranks[0], SPEC_ROLE_WRITER, 1);
    rig_shape(&ranks[1], 2, 1, 8, SPEC_DTYPE_F16);
    rig_beside(&scheduler, &ranks[0], SPEC_ROLE_READER, 0);
    for (uint32_t i = 0; i < 2; i++) {
        rig_open(&ranks[i]);
        struct spec_lookup_result result = rig_lookup(&ranks[i], &prompt);
        assert_int_equal(
            rig_wait(&ranks[i], rig_store(&ranks[i], result.request, &prompt, 0, 140 - 20 * i)),
            SPEC_OK);
        rig_release(&ranks[i], result.request);
    }
    rig_open(&scheduler);
    struct spec_lookup_result found = rig_lookup(&scheduler, &prompt);
    assert_int_equal(found.matched_tokens, 120);
    for (uint32_t i = 0; i < 2; i++) {
        struct attaching got = attach(&ranks[i], found.lease, 0);
        assert_int_equal(got.status, SPEC_OK);
        assert_int_equal(got.result.matched_tokens, 120);
        assert_loads(&ranks[i], &got.result, &prompt, 0);
        rig_release(&ranks[i], got.result.request);
    }
    rig_leave(&scheduler);
    rig_leave(&ranks[1]);
    rig_end(&ranks[0], &prompt);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_lease_opens_the_rows_without_tokens),
        cmocka_unit_test(a_lease_may_end_at_any_token),
        cmocka_unit_test(what_follows_may_be_stored_with_its_tokens),
        cmocka_unit_test(a_lease_names_what_depends_on_extra_keys),
        cmocka_unit_test(arguments_that_cannot_be_are_refused),
        cmocka_unit_test(an_altered_lease_is_invalid),
        cmocka_unit_test(a_lease_of_another_store_or_model_is_invalid),
        cmocka_unit_test(an_expired_lease_is_stale),
        cmocka_unit_test(limits_are_answered_with_busy),
        cmocka_unit_test(without_memory_an_attach_and_a_lookup_are_busy),
        cmocka_unit_test(what_the_log_has_not_brought_yet_is_asked_for_again),
        cmocka_unit_test(what_failed_meanwhile_is_stale),
        cmocka_unit_test(a_lease_of_before_a_reset_is_stale_and_of_after_it_pending),
        cmocka_unit_test(what_was_evicted_is_attached_until_the_lease_ends),
        cmocka_unit_test(a_lease_of_one_rank_opens_another_ranks_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
