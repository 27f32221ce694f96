/* Saving: how passes are cut, given up and told of. Every row that comes back is compared. */
#include "tests/unit/plugin/plugin_fixture.h"

static uint64_t counter(_Atomic uint64_t *value)
{
    return atomic_load(value);
}

static void check_length(struct rig *rig, uint64_t seed, uint64_t first, uint64_t count)
{
    struct prompt prompt = rig_prompt(seed, 0, 0, first + count);
    struct spec_lookup_result result = rig_lookup(rig, &prompt);
    assert_int_equal(result.state, SPEC_LOOKUP_MISS);
    if (first > 0)
        assert_int_equal(rig_wait(rig, rig_store(rig, result.request, &prompt, 0, first)), SPEC_OK);
    assert_int_equal(rig_wait(rig, rig_store(rig, result.request, &prompt, first, count)), SPEC_OK);
    rig_release(rig, result.request);
    assert_int_equal(rig_read(rig, &prompt, NULL), first + count);
    rig_prompt_free(&prompt);
}

/* Passes of every size and start come back, now and after a reopen. */
static void passes_of_every_size_come_back(void **state)
{
    (void)state;
    static const char *const CHUNKS[] = {"\"chunk_tokens\": 16", "\"chunk_tokens\": 64",
                                         "\"chunk_tokens\": 256"};
    static const uint64_t COUNTS[] = {1, 15, 16, 17, 63, 64, 65, 255, 256, 257, 500};
    for (uint32_t c = 0; c < 3; c++) {
        struct rig rig;
        rig_begin(&rig, true, CHUNKS[c]);
        uint64_t seed = 1;
        for (uint32_t f = 0; f < 5; f++)
            for (uint32_t n = 0; n < sizeof(COUNTS) / sizeof(COUNTS[0]); n++)
                check_length(&rig, seed++, f == 0 ? 0 : COUNTS[2 * f], COUNTS[n]);
        rig_reopen(&rig);
        seed = 1;
        for (uint32_t f = 0; f < 5; f++)
            for (uint32_t n = 0; n < sizeof(COUNTS) / sizeof(COUNTS[0]); n++) {
                struct prompt prompt =
                    rig_prompt(seed++, 0, 0, (f == 0 ? 0 : COUNTS[2 * f]) + COUNTS[n]);
                assert_int_equal(rig_read(&rig, &prompt, NULL), prompt.count);
                rig_prompt_free(&prompt);
            }
        rig_done(&rig);
    }
}

/* A pass that needs several extents is one ticket, and one match. */
static void a_pass_over_several_extents_comes_back(void **state)
{
    (void)state;
    static const uint64_t FIRSTS[] = {0, 1, 63, 64, 100};
    struct rig rig;
    rig_begin_shape(&rig, true, "", 2, 1, 4, SPEC_DTYPE_F32);
    for (uint32_t i = 0; i < 5; i++)
        check_length(&rig, i + 1, FIRSTS[i], 3 * SC_PLUGIN_SAVE_TOKENS + 17 - i);
    rig_reopen(&rig);
    for (uint32_t i = 0; i < 5; i++) {
        struct prompt prompt =
            rig_prompt(i + 1, 0, 0, FIRSTS[i] + 3 * SC_PLUGIN_SAVE_TOKENS + 17 - i);
        assert_int_equal(rig_read(&rig, &prompt, NULL), prompt.count);
        rig_prompt_free(&prompt);
    }
    rig_done(&rig);
}

/* Decoding: one token a pass, its id told with the store. */
static void decoded_tokens_are_stored_one_by_one(void **state)
{
    (void)state;
    struct rig rig;
    rig_begin(&rig, true, "");
    struct prompt prompt = rig_prompt(3, 0, 0, 200);
    struct prompt start = {30, prompt.tokens, prompt.history};
    struct spec_lookup_result result = rig_lookup(&rig, &start);
    spec_ticket tickets[4], count = 0;
    tickets[count++] = rig_store(&rig, result.request, &prompt, 0, 30);
    for (uint64_t p = 30; p < prompt.count; p++) {
        while (count == 4) /* several passes at a time, no more than staging has frames for */
            for (; count > 0; count--)
                assert_int_equal(rig_wait(&rig, tickets[count - 1]), SPEC_OK);
        struct area area = rig_area(&rig, 1);
        for (uint32_t layer = 0; layer < rig.layers; layer++) {
            rig_row(&rig, &prompt, p, layer, 0, area.memory.k_base);
            rig_row(&rig, &prompt, p, layer, 1, area.memory.v_base);
            struct spec_store_params params = {.struct_size = sizeof(params),
                                               .request = result.request,
                                               .layer = layer,
                                               .first_token = p,
                                               .token_count = 1,
                                               .memory = &area.memory,
                                               .tokens = &prompt.tokens[p],
                                               .tokens_count = layer == 0};
            spec_ticket ticket;
            assert_int_equal(sc_plugin_store(rig.conn, &params, 1, &ticket, NULL), SPEC_OK);
            if (layer + 1 == rig.layers)
                tickets[count++] = ticket;
        }
        rig_area_free(&area);
    }
    rig_release(&rig, result.request);
    for (; count > 0; count--)
        assert_int_equal(rig_wait(&rig, tickets[count - 1]), SPEC_OK);
    assert_int_equal(rig_read(&rig, &prompt, NULL), prompt.count);
    rig_reopen(&rig);
    assert_int_equal(rig_read(&rig, &prompt, NULL), prompt.count);
    rig_end(&rig, &prompt);
}

/* Given up after each layer, in each of the ways: nothing is visible, nothing stays behind, and the
 * same request (but for release) stores it afterwards. */
static void a_pass_that_ends_early_leaves_nothing(void **state)
{
    (void)state;
    struct rig rig;
    rig_begin_shape(&rig, true, "\"chunk_tokens\": 16", 4, 2, 8, SPEC_DTYPE_F16);
    for (uint32_t way = 0; way < 3; way++)
        for (uint32_t layers = 1; layers < rig.layers; layers++) {
            struct prompt prompt = rig_prompt(100 + way * 10 + layers, 0, 0, 70);
            struct spec_lookup_result result = rig_lookup(&rig, &prompt);
            spec_ticket ticket;
            for (uint32_t layer = 0; layer < layers; layer++) {
                assert_int_equal(
                    rig_store_layer(&rig, result.request, &prompt, 0, 70, layer, &ticket), SPEC_OK);
                assert_int_equal(rig_wait(&rig, ticket), SPEC_OK);
            }
            if (way == 0)
                assert_int_equal(sc_plugin_store_abort(rig.conn, result.request, 69, NULL),
                                 SPEC_OK);
            else if (way == 1)
                rig_release(&rig, result.request);
            else
                rig_close(&rig);
            if (way == 0) { /* another range may begin at once */
                assert_int_equal(rig_wait(&rig, rig_store(&rig, result.request, &prompt, 0, 50)),
                                 SPEC_OK);
                rig_release(&rig, result.request);
            } else if (way == 2) {
                rig_open(&rig);
            }
            assert_int_equal(rig_read(&rig, &prompt, NULL), way == 0 ? 50 : 0);
            rig_settle(&rig);
            assert_int_equal(counter(&rig.conn->stats.tickets_open), 0);
            assert_int_equal(counter(&rig.conn->stats.requests_open), 0);
            struct sc_store_stats store = rig_store_stats(&rig);
            assert_int_equal(store.staging_bytes_used, 0);
            rig_prompt_free(&prompt);
        }
    rig_done(&rig);
}

/* An abort behind the pass's end concerns nothing. */
static void an_abort_behind_the_pass_changes_nothing(void **state)
{
    (void)state;
    struct rig rig;
    rig_begin(&rig, true, "");
    struct prompt prompt = rig_prompt(5, 0, 0, 100);
    struct spec_lookup_result result = rig_lookup(&rig, &prompt);
    spec_ticket ticket;
    for (uint32_t layer = 0; layer < rig.layers; layer++) {
        assert_int_equal(rig_store_layer(&rig, result.request, &prompt, 0, 80, layer, &ticket),
                         SPEC_OK);
        assert_int_equal(sc_plugin_store_abort(rig.conn, result.request, 80, NULL), SPEC_OK);
    }
    assert_int_equal(rig_wait(&rig, ticket), SPEC_OK);
    rig_release(&rig, result.request);
    assert_int_equal(rig_read(&rig, &prompt, NULL), 80);
    rig_end(&rig, &prompt);
}

/* Passes that store nothing (here: too short) are open until their last layer like any other: an
 * abort takes their ids back, without one they stay. */
static void an_abort_takes_back_the_ids_of_a_pass_that_was_given_up(void **state)
{
    (void)state;
    struct rig rig;
    rig_begin(&rig, true, "\"store\": {\"min_tokens\": 16}");
    struct prompt prompt = rig_prompt(7, 0, 0, 100), start = {60, prompt.tokens, prompt.history};
    spec_request handle = rig_lookup(&rig, &start).request;
    struct sc_plugin_request *request = sc_plugin_request_find(rig.conn, handle);
    assert_int_equal(rig_wait(&rig, rig_store(&rig, handle, &prompt, 0, 60)), SPEC_OK);
    struct area area = rig_area(&rig, 2);
    for (uint32_t id = 1; id <= 3; id++)
        for (uint32_t layer = 0; layer < rig.layers; layer++) {
            uint32_t ids[2] = {id, id};
            struct spec_store_params params = {.struct_size = sizeof(params),
                                               .request = handle,
                                               .layer = layer,
                                               .first_token = 60,
                                               .token_count = 2,
                                               .memory = &area.memory,
                                               .tokens = ids,
                                               .tokens_count = layer == 0 ? 2 : 0};
            spec_ticket ticket;
            assert_int_equal(sc_plugin_store(rig.conn, &params, 1, &ticket, NULL), SPEC_OK);
            assert_int_equal(rig_wait(&rig, ticket),
                             layer + 1 < rig.layers ? SPEC_OK : SPEC_E_DROPPED);
            assert_int_equal(request->token_count, 62);
            assert_int_equal(request->tokens[61], id);
            if (id < 3 && layer + 2 == rig.layers) {
                assert_int_equal(sc_plugin_store_abort(rig.conn, handle, 61, NULL), SPEC_OK);
                assert_int_equal(request->token_count, 60);
                break;
            }
        }
    assert_int_equal(sc_plugin_store_abort(rig.conn, handle, 0, NULL), SPEC_OK);
    assert_int_equal(request->token_count, 62);
    rig_area_free(&area);
    rig_release(&rig, handle);
    assert_int_equal(rig_read(&rig, &prompt, NULL), 60);
    rig_end(&rig, &prompt);
}

/* Two requests compute the same: one copy is kept, both are told OK, whole chunks are counted. */
static void the_second_copy_is_counted_in_chunks_and_dropped(void **state)
{
    (void)state;
    struct rig rig;
    rig_begin(&rig, true, "\"chunk_tokens\": 16");
    struct prompt prompt = rig_prompt(6, 0, 0, 100);
    struct spec_lookup_result one = rig_lookup(&rig, &prompt), two = rig_lookup(&rig, &prompt);
    spec_ticket first = rig_store(&rig, one.request, &prompt, 0, 100);
    spec_ticket second = rig_store(&rig, two.request, &prompt, 0, 100);
    assert_int_equal(rig_wait(&rig, first), SPEC_OK);
    assert_int_equal(rig_wait(&rig, second), SPEC_OK);
    rig_release(&rig, one.request);
    rig_release(&rig, two.request);
    assert_int_equal(counter(&rig.conn->stats.stored_chunks), 7);
    assert_int_equal(counter(&rig.conn->stats.duplicate_chunks), 7);
    assert_int_equal(counter(&rig.conn->stats.stored_tokens), 100);
    struct sc_store_stats store = rig_store_stats(&rig);
    assert_int_equal(store.piece_count, 7);
    assert_int_equal(store.extent_count, 1);
    assert_int_equal(rig_read(&rig, &prompt, NULL), 100);
    rig_end(&rig, &prompt);
}

/* Rows whose parents were never stored are orphans: dropped, not found. */
static void an_orphan_is_dropped(void **state)
{
    (void)state;
    struct rig rig;
    rig_begin(&rig, true, "\"chunk_tokens\": 16");
    struct prompt prompt = rig_prompt(8, 0, 0, 100);
    struct spec_lookup_result result; /* the engine holds 33 tokens that we never saw */
    assert_int_equal(rig_try_lookup(&rig, &prompt, 33, RIG_MAX, &result), SPEC_OK);
    assert_int_equal(result.matched_tokens, 33);
    assert_int_equal(rig_wait(&rig, rig_store(&rig, result.request, &prompt, 33, 67)),
                     SPEC_E_DROPPED);
    assert_int_equal(counter(&rig.conn->stats.dropped_chunks), 5); /* 32, 48, 64, 80, 96 */
    rig_release(&rig, result.request);
    assert_int_equal(rig_read(&rig, &prompt, NULL), 0);
    rig_end(&rig, &prompt);
}

/* All tickets are taken: a pass is refused, and takes none; with the only other one, one of two
 * passes of a call is, so neither is begun. */
static void a_refused_store_gives_its_ticket_back(void **state)
{
    (void)state;
    struct rig rig;
    rig_begin(&rig, true, "");
    static spec_ticket taken[SC_LIMIT_TICKETS];
    for (uint64_t i = 0; i < SC_LIMIT_TICKETS - 1; i++)
        assert_true((taken[i] = sc_plugin_ticket_take(rig.conn, 1)) != 0);
    struct prompt prompt = rig_prompt(9, 0, 0, 10);
    struct spec_lookup_result result = rig_lookup(&rig, &prompt), other = rig_lookup(&rig, &prompt);
    struct area area = rig_area(&rig, 10);
    struct spec_store_params both[2];
    for (uint64_t i = 0; i < 2; i++)
        both[i] = (struct spec_store_params){.struct_size = sizeof(both[i]),
                                             .request = i == 0 ? result.request : other.request,
                                             .token_count = 10,
                                             .memory = &area.memory};
    for (uint32_t i = 0; i < 3; i++)
        assert_int_equal(sc_plugin_store(rig.conn, both, 2, NULL, NULL), SPEC_E_BUSY);
    assert_int_equal(counter(&rig.conn->stats.tickets_open), SC_LIMIT_TICKETS - 1);
    assert_int_equal(atomic_load(&rig.conn->saves.live), 0);
    spec_ticket last = sc_plugin_ticket_take(rig.conn, 1), ticket;
    for (uint32_t i = 0; i < 3; i++)
        assert_int_equal(rig_store_layer(&rig, result.request, &prompt, 0, 10, 0, &ticket),
                         SPEC_E_BUSY);
    assert_int_equal(counter(&rig.conn->stats.tickets_open), SC_LIMIT_TICKETS);
    sc_plugin_ticket_forget(rig.conn, last);
    sc_plugin_ticket_resolve(rig.conn, last, SPEC_OK);
    rig_area_free(&area);
    rig_release(&rig, other.request);
    for (uint64_t i = 0; i < SC_LIMIT_TICKETS - 1; i++) {
        sc_plugin_ticket_forget(rig.conn, taken[i]);
        sc_plugin_ticket_resolve(rig.conn, taken[i], SPEC_OK);
    }
    assert_int_equal(counter(&rig.conn->stats.tickets_open), 0);
    assert_int_equal(rig_wait(&rig, rig_store(&rig, result.request, &prompt, 0, 10)), SPEC_OK);
    rig_release(&rig, result.request);
    rig_end(&rig, &prompt);
}

/* Rows so large that the pass needs more extents than one may have: its beginning is stored. */
static void a_pass_beyond_the_extents_is_cut(void **state)
{
    (void)state;
    struct rig rig;
    rig_begin_shape(
        &rig, true,
        "\"chunk_tokens\": 16, \"segment_bytes\": \"1MiB\", \"max_request_tokens\": 16384", 2, 31,
        128, SPEC_DTYPE_F32);
    struct prompt prompt = rig_prompt(10, 0, 0, 16384);
    struct spec_lookup_result result = rig_lookup(&rig, &prompt);
    struct area area = rig_area(&rig, 1);
    area.memory.token_stride_bytes = 0; /* every token is the same row */
    spec_ticket ticket = 0;
    for (uint32_t layer = 0; layer < rig.layers; layer++) {
        struct spec_store_params params =
            rig_store_params(result.request, layer, 0, prompt.count, &area.memory);
        assert_int_equal(sc_plugin_store(rig.conn, &params, 1, &ticket, NULL), SPEC_OK);
    }
    spec_status status;
    uint64_t kept;
    assert_int_equal(sc_plugin_wait_kept(rig.conn, &ticket, 1, UINT64_MAX, &status, &kept, NULL),
                     SPEC_OK);
    assert_int_equal(status, SPEC_E_BUSY);
    assert_true(kept > 0 && kept < prompt.count);
    rig_area_free(&area);
    rig_release(&rig, result.request);
    assert_int_equal(rig_matched(&rig, &prompt), kept);
    rig_end(&rig, &prompt);
}

/* Stores small prompts, many more than there is room for: no pass fails for long, the last ones are
 * found, the first ones are not, and nothing that is found is wrong, now and after a reopen. */
static void fill_beyond(struct rig *rig, uint64_t tokens, uint64_t count, spec_status refusal)
{
    rig_open(rig);
    uint64_t refused = 0;
    for (uint64_t i = 0; i < count; i++) {
        struct prompt prompt = rig_prompt(1000 + i, 0, 0, tokens);
        spec_status status = rig_fill(rig, &prompt);
        assert_true(status == SPEC_OK || status == refusal);
        refused += status == refusal;
        rig_background(rig);
        if (status == refusal) /* there was room made for it */
            assert_int_equal(rig_fill(rig, &prompt), SPEC_OK);
        rig_prompt_free(&prompt);
    }
    assert_true(refused < count / 8);
    assert_true(counter(&rig->conn->stats.evicted_chunks) > 0);
    for (uint32_t round = 0; round < 2; round++) {
        uint64_t found = 0;
        for (uint64_t i = 0; i < count; i++) {
            struct prompt prompt = rig_prompt(1000 + i, 0, 0, tokens);
            uint64_t matched = rig_read(rig, &prompt, NULL);
            assert_true(matched <= tokens);
            if (i + 1 == count)
                assert_int_equal(matched, tokens);
            found += matched == tokens;
            rig_prompt_free(&prompt);
        }
        assert_true(found > 0 && found < count);
        rig_reopen(rig);
    }
    rig_done(rig);
}

static void a_full_disk_makes_room(void **state)
{
    (void)state;
    struct rig rig;
    rig_init(&rig, true,
             "\"disk_bytes\": \"4MiB\", \"segment_bytes\": \"1MiB\", \"lease_ns_max\": 0");
    rig_shape(&rig, 2, 2, 64, SPEC_DTYPE_F32);
    fill_beyond(&rig, 60, 200, SPEC_E_NO_SPACE);
}

static void a_full_index_makes_room(void **state)
{
    (void)state;
    struct rig rig;
    rig_init(&rig, true, "\"index_bytes_max\": \"1MiB\", \"chunk_tokens\": 256");
    rig_shape(&rig, 1, 1, 1, SPEC_DTYPE_F16);
    fill_beyond(&rig, 2000, 300, SPEC_E_BUSY);
}

/* Opened with a smaller index, pieces are unseen; with the old one they are found again. */
static void what_the_index_cannot_hold_is_unseen_and_not_lost(void **state)
{
    (void)state;
    struct rig rig;
    rig_begin_shape(&rig, true, "\"chunk_tokens\": 256", 1, 1, 1, SPEC_DTYPE_F16);
    static const char *const EXTRAS[] = {"\"index_bytes_max\": \"1MiB\", \"chunk_tokens\": 256",
                                         "\"chunk_tokens\": 256"};
    for (uint32_t round = 0; round < 3; round++) {
        uint64_t found = 0;
        for (uint64_t i = 0; i < 150; i++) {
            struct prompt prompt = rig_prompt(i, 0, 0, 2000);
            if (round == 0)
                assert_int_equal(rig_fill(&rig, &prompt), SPEC_OK);
            found += rig_read(&rig, &prompt, NULL) / 2000;
            rig_prompt_free(&prompt);
        }
        assert_true(round == 1 ? found > 0 && found < 150 : found == 150);
        rig.extra = EXTRAS[round % 2];
        rig_reopen(&rig);
    }
    rig_done(&rig);
}

/* Nothing is written while nobody waits (the loop stands still), so staging fills. */
static void full_staging_gives_passes_up_and_no_layer_fails(void **state)
{
    (void)state;
    struct rig rig;
    rig_begin_shape(&rig, true, "\"max_requests\": 64", 4, 4, 64, SPEC_DTYPE_F32);
    spec_request requests[40];
    spec_ticket tickets[40];
    struct prompt prompts[40];
    uint64_t busy = 0, good = 0;
    for (uint64_t i = 0; i < 40; i++) {
        prompts[i] = rig_prompt(50 + i, 0, 0, 256);
        requests[i] = rig_lookup(&rig, &prompts[i]).request;
        for (uint32_t layer = 0; layer < rig.layers; layer++)
            assert_int_equal(
                rig_store_layer(&rig, requests[i], &prompts[i], 0, 256, layer, &tickets[i]),
                SPEC_OK);
        rig_release(&rig, requests[i]);
    }
    for (uint64_t i = 0; i < 40; i++) {
        spec_status status = rig_wait(&rig, tickets[i]);
        busy += status == SPEC_E_BUSY || status == SPEC_E_DROPPED;
        good += status == SPEC_OK;
        assert_int_equal(rig_read(&rig, &prompts[i], NULL), status == SPEC_OK ? 256 : 0);
        assert_int_equal(rig_fill(&rig, &prompts[i]), SPEC_OK); /* now there is room */
        assert_int_equal(rig_read(&rig, &prompts[i], NULL), 256);
        rig_prompt_free(&prompts[i]);
    }
    assert_true(busy > 0 && good > 0);
    assert_int_equal(busy + good, 40);
    rig_done(&rig);
}

/* 64 requests store turns at once, layer by layer, while the device stands still (the loop does not
 * run): with the default staging none is given up. */
static void short_turns_of_64_requests_are_kept(void **state)
{
    (void)state;
    static const struct {
        uint64_t turns, tokens;
    } CASES[] = {{1, 23}, {2, 1}};
    for (uint32_t c = 0; c < 2; c++) {
        struct rig rig;
        rig_init(&rig, true, "\"disk_bytes\": \"1GiB\", \"max_requests\": 64");
        rig.stage = "256MiB";
        rig_shape(&rig, 30, 5, 64, SPEC_DTYPE_F16);
        rig_open(&rig);
        struct prompt prompts[64];
        spec_request requests[64];
        spec_ticket tickets[128], ticket;
        uint64_t count = 0, tokens = CASES[c].tokens;
        for (uint64_t i = 0; i < 64; i++) {
            prompts[i] = rig_prompt(100 + i, 0, 0, CASES[c].turns * tokens);
            requests[i] = rig_lookup(&rig, &prompts[i]).request;
        }
        for (uint64_t turn = 0; turn < CASES[c].turns; turn++)
            for (uint32_t layer = 0; layer < rig.layers; layer++)
                for (uint64_t i = 0; i < 64; i++) {
                    assert_int_equal(rig_store_layer(&rig, requests[i], &prompts[i], turn * tokens,
                                                     tokens, layer, &ticket),
                                     SPEC_OK);
                    if (layer + 1 == rig.layers)
                        tickets[count++] = ticket;
                }
        for (uint64_t i = 0; i < count; i++)
            assert_int_equal(rig_wait(&rig, tickets[i]), SPEC_OK);
        assert_int_equal(counter(&rig.conn->stats.dropped_chunks), 0);
        for (uint64_t i = 0; i < 64; i++) {
            rig_release(&rig, requests[i]);
            assert_int_equal(rig_read(&rig, &prompts[i], NULL), prompts[i].count);
            rig_prompt_free(&prompts[i]);
        }
        rig_done(&rig);
    }
}

/* What the configuration excludes is told as dropped, and is not there. */
static void passes_that_are_not_wanted_are_dropped(void **state)
{
    (void)state;
    static const char *const EXTRAS[] = {"\"preset\": \"recompute\"",
                                         "\"store\": {\"min_tokens\": 65}"};
    for (uint32_t i = 0; i < 2; i++) {
        struct rig rig;
        rig_begin(&rig, true, EXTRAS[i]);
        struct prompt prompt = rig_prompt(11, 0, 0, 64);
        assert_int_equal(rig_fill(&rig, &prompt), SPEC_E_DROPPED);
        assert_int_equal(rig_read(&rig, &prompt, NULL), 0);
        rig_end(&rig, &prompt);
    }
}

/* A wrong call changes nothing: the pass goes on as if it had not been made. */
static void wrong_calls_do_not_disturb_a_pass(void **state)
{
    (void)state;
    struct rig rig;
    rig_begin(&rig, true, "");
    struct prompt prompt = rig_prompt(12, 0, 0, 90);
    spec_request request = rig_lookup(&rig, &prompt).request;
    spec_ticket ticket = 77;
    assert_int_equal(rig_store_layer(&rig, request, &prompt, 0, 90, 1, &ticket), SPEC_E_INVALID);
    assert_int_equal(rig_store_layer(&rig, request, &prompt, 1, 89, 0, &ticket), SPEC_E_INVALID);
    assert_int_equal(rig_store_layer(&rig, request + 1, &prompt, 0, 90, 0, &ticket), SPEC_E_STALE);
    assert_int_equal(ticket, 77);
    for (uint32_t layer = 0; layer < rig.layers; layer++) {
        assert_int_equal(rig_store_layer(&rig, request, &prompt, 0, 90, layer, &ticket), SPEC_OK);
        spec_ticket other;
        if (layer + 1 < rig.layers) {
            assert_int_equal(rig_wait(&rig, ticket), SPEC_OK);
            assert_int_equal(rig_store_layer(&rig, request, &prompt, 0, 90, layer, &other),
                             SPEC_E_INVALID);
            assert_int_equal(rig_store_layer(&rig, request, &prompt, 0, 89, layer + 1, &other),
                             SPEC_E_INVALID);
        }
    }
    assert_int_equal(rig_wait(&rig, ticket), SPEC_OK);
    rig_release(&rig, request);
    assert_int_equal(rig_read(&rig, &prompt, NULL), 90);
    assert_int_equal(counter(&rig.conn->stats.tickets_open), 0);
    rig_end(&rig, &prompt);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(passes_of_every_size_come_back),
        cmocka_unit_test(a_pass_over_several_extents_comes_back),
        cmocka_unit_test(decoded_tokens_are_stored_one_by_one),
        cmocka_unit_test(a_pass_that_ends_early_leaves_nothing),
        cmocka_unit_test(an_abort_behind_the_pass_changes_nothing),
        cmocka_unit_test(an_abort_takes_back_the_ids_of_a_pass_that_was_given_up),
        cmocka_unit_test(the_second_copy_is_counted_in_chunks_and_dropped),
        cmocka_unit_test(an_orphan_is_dropped),
        cmocka_unit_test(a_refused_store_gives_its_ticket_back),
        cmocka_unit_test(a_pass_beyond_the_extents_is_cut),
        cmocka_unit_test(a_full_disk_makes_room),
        cmocka_unit_test(a_full_index_makes_room),
        cmocka_unit_test(what_the_index_cannot_hold_is_unseen_and_not_lost),
        cmocka_unit_test(full_staging_gives_passes_up_and_no_layer_fails),
        cmocka_unit_test(short_turns_of_64_requests_are_kept),
        cmocka_unit_test(passes_that_are_not_wanted_are_dropped),
        cmocka_unit_test(wrong_calls_do_not_disturb_a_pass),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
