/* Memory of requests: a connector for many long requests takes what few of them need, and each
 * request takes what its prompt and match need. Without room a call is BUSY, or its range ends, and
 * what was given back is given again.
 *
 * Each connector has a loop and a virtual clock of its own. Threads: one, but for the last test. */
#include "base/counter.h"
#include "plugin/select/scratch.h"
#include "tests/unit/plugin/plugin_fixture.h"
#include "tests/unit/threads.h"

#define CHOOSES                                                                                    \
    "\"select\": {\"retain_ppm\": 250000, \"min_tokens\": 0, \"min_share_ppm\": 0}, "              \
    "\"prefetch\": {\"predictor\": \"layer\"}"

static uint64_t used(const struct rig *rig)
{
    return sc_counted(&rig->conn->requests.pool.used_bytes);
}

/* ---- How much -------------------------------------------------------------------------------- */

/* Bytes that a layered connector asks for, beside its host tier. */
static uint64_t layered_bytes(uint32_t requests, uint64_t tokens)
{
    struct rig rig;
    char extra[160];
    (void)snprintf(extra, sizeof(extra),
                   "\"preset\": \"layered\", \"max_requests\": %" PRIu32
                   ", \"max_request_tokens\": %" PRIu64,
                   requests, tokens);
    rig_init(&rig, true, extra);
    rig_shape(&rig, 2, 8, 128, SPEC_DTYPE_F16);
    rig.query_group = 4;
    rig_open(&rig);
    uint64_t bytes = atomic_load(&rig.memory.live_bytes);
    rig_done(&rig);
    return bytes;
}

/* Under a sanitizer large memory is slow to get: fewer requests show the same. */
static void many_long_requests_take_what_few_of_them_need(void **state)
{
    (void)state;
#ifdef SC_SANITIZED
    const uint32_t requests = 128;
    const uint64_t most = UINT64_C(2) << 30;
#else
    const uint32_t requests = 1040;
    const uint64_t most = UINT64_C(4) << 30;
#endif
    uint64_t once = layered_bytes(requests, 131072), eight = layered_bytes(requests, 1048576);
    print_message("%" PRIu32 " requests: %" PRIu64 " MB of 131,072 tokens, %" PRIu64
                  " MB of 1,048,576\n",
                  requests, once / 1000000, eight / 1000000);
    assert_true(once < most);
    assert_true(eight < most);
    assert_true(eight < 2 * once);
}

static void less_than_one_request_is_refused(void **state)
{
    (void)state;
    struct rig rig;
    rig_init(&rig, true, "\"max_request_tokens\": 65536, \"request_bytes\": \"256KiB\"");
    assert_int_equal(rig_try_open(&rig), SPEC_E_INVALID);
    assert_non_null(strstr(rig.error.text, "request_bytes"));
    rig.extra = "\"max_request_tokens\": 65536, \"request_bytes\": \"4MiB\"";
    rig_open(&rig);
    rig_done(&rig);
}

/* ---- Short and long -------------------------------------------------------------------------- */

#define SHORTS 199u

/* The tokens of its prompt that a request has, and no others. */
static void assert_text(struct rig *rig, spec_request handle, const struct prompt *prompt)
{
    const struct sc_plugin_request *request = sc_plugin_request_find(rig->conn, handle);
    assert_int_equal(request->token_count, prompt->count);
    assert_memory_equal(request->tokens, prompt->tokens, prompt->count * sizeof(uint32_t));
}

static void many_short_requests_stand_beside_one_of_full_length(void **state)
{
    (void)state;
    struct rig rig;
    struct prompt prompts[SHORTS + 1];
    spec_request handles[SHORTS + 1];
    rig_begin(&rig, true,
              CHOOSES ", \"max_requests\": 200, \"max_request_tokens\": 65536, "
                      "\"request_bytes\": \"8MiB\"");
    for (uint32_t i = 0; i <= SHORTS; i++) {
        prompts[i] = rig_prompt(i, 0, 0, i == SHORTS ? 65536 : 20 + i);
        handles[i] = rig_lookup(&rig, &prompts[i]).request;
    }
    for (uint32_t i = 0; i <= SHORTS; i++)
        assert_text(&rig, handles[i], &prompts[i]);
    assert_true(used(&rig) < UINT64_C(3) << 20); /* two pages a short one, and 256 KiB */
    for (uint32_t i = 0; i <= SHORTS; i++)
        rig_release(&rig, handles[i]);
    assert_int_equal(used(&rig), 0);
    rig_prompts_free_all(prompts, SHORTS + 1);
    rig_done(&rig);
}

static void a_match_keeps_what_it_needs_until_release(void **state)
{
    (void)state;
    struct rig rig;
    struct prompt prompt = rig_prompt(1, 0, 0, 3000);
    rig_begin(&rig, true, CHOOSES);
    assert_int_equal(rig_fill(&rig, &prompt), SPEC_OK);
    assert_int_equal(used(&rig), 0);
    assert_int_equal(rig_peeked(&rig, &prompt, 0).matched_tokens, 3000);
    assert_int_equal(used(&rig), 0);
    struct spec_lookup_result result = rig_lookup(&rig, &prompt);
    struct sc_plugin_request *request = sc_plugin_request_find(rig.conn, result.request);
    assert_int_equal(result.matched_tokens, 3000);
    assert_int_equal(request->list_rows, 3000);
    assert_int_equal(request->memory.match.bytes, SC_RUN_PAGE_BYTES); /* of 47 pieces */
    assert_true(used(&rig) < 36 * 3000);
    assert_int_equal(used(&rig), request->memory.text.bytes + request->memory.match.bytes +
                                     request->memory.choice.bytes);
    rig_release(&rig, result.request);
    assert_int_equal(used(&rig), 0);
    rig_end(&rig, &prompt);
}

/* ---- Without room ---------------------------------------------------------------------------- */

static void a_lookup_without_room_is_busy_until_a_release(void **state)
{
    (void)state;
    struct rig rig;
    struct prompt first = rig_prompt(1, 0, 0, 16384), second = rig_prompt(2, 0, 0, 16384);
    struct prompt start = {4000, first.tokens, first.history};
    struct spec_lookup_result result, other = {.struct_size = sizeof(other)};
    rig_begin(&rig, true, "\"request_bytes\": \"512KiB\"");
    assert_int_equal(rig_fill(&rig, &start), SPEC_OK);
    assert_int_equal(rig_fill(&rig, &second), SPEC_OK);
    struct spec_lookup_result held[8];
    uint32_t count = 0;
    spec_status status = SPEC_OK;
    while (count < 8 &&
           (status = rig_try_lookup(&rig, &second, 0, RIG_MAX, &held[count])) == SPEC_OK)
        assert_int_equal(held[count++].matched_tokens, 16384);
    assert_true(count > 0 && count < 8);
    assert_int_equal(status, SPEC_E_BUSY);
    struct spec_lookup_params params = rig_lookup_params(&second, 0, RIG_MAX, 0);
    struct spec_error error = {.struct_size = sizeof(error)};
    assert_int_equal(sc_plugin_lookup(rig.conn, &params, &other, &error), SPEC_E_BUSY);
    assert_non_null(strstr(error.text, "request_bytes"));
    uint64_t before = used(&rig);
    assert_int_equal(rig_try_lookup(&rig, &second, 0, RIG_MAX, &other), SPEC_E_BUSY);
    assert_int_equal(used(&rig), before); /* what it had taken was given back */
    assert_int_equal(atomic_load(&rig.conn->stats.requests_open), count);
    rig_load_all(&rig, held[0].request, &second, 0, 16384);
    rig_release(&rig, held[0].request);
    result = rig_lookup(&rig, &second);
    assert_int_equal(result.matched_tokens, 16384);
    rig_release(&rig, result.request);
    for (uint32_t i = 1; i < count; i++)
        rig_release(&rig, held[i].request);
    assert_int_equal(used(&rig), 0);
    assert_int_equal(rig_read(&rig, &start, NULL), 4000);
    rig_end(&rig, &first, &second);
}

/* ---- Scratches --------------------------------------------------------------------------------
 */

/* Two of eight have room for the longest match, and no scratch shares memory with another. */
static void few_scratches_are_long(void **state)
{
    (void)state;
    const uint64_t short_rows = 131072, long_rows = 1048576;
    struct rig rig;
    struct sc_plugin_scratch *scratches[8];
    rig_begin(&rig, true, CHOOSES ", \"max_request_tokens\": 1048576");
    for (uint32_t i = 0; i < 8; i++) {
        uint64_t rows = i < 6 ? short_rows : long_rows;
        scratches[i] = sc_plugin_scratch_take(rig.conn, rows, 1);
        assert_non_null(scratches[i]);
        scratches[i]->sums[0] = scratches[i]->scores[rows - 1] = (float)i;
        scratches[i]->ranked[0] = scratches[i]->ranked[2 * rows - 1] = i;
    }
    assert_null(sc_plugin_scratch_take(rig.conn, short_rows, 1)); /* a deadline that has passed */
    assert_null(sc_plugin_scratch_take(rig.conn, short_rows + 1, 1));
    for (uint32_t i = 0; i < 8; i++) {
        uint64_t rows = i < 6 ? short_rows : long_rows;
        assert_true(scratches[i]->sums[0] == (float)i);
        assert_true(scratches[i]->scores[rows - 1] == (float)i);
        assert_true(scratches[i]->ranked[0] == i && scratches[i]->ranked[2 * rows - 1] == i);
        sc_plugin_scratch_put(scratches[i]);
    }
    scratches[0] = sc_plugin_scratch_take(rig.conn, short_rows + 1, 1);
    assert_ptr_equal(scratches[0], scratches[6]);
    sc_plugin_scratch_put(scratches[0]);
    rig_done(&rig);
}

/* ---- Texts that grow --------------------------------------------------------------------------
 */

/* Stores tokens [first, first + count), which are new to the request. Returns the ticket. */
static spec_ticket grow(struct rig *rig, spec_request handle, const struct prompt *prompt,
                        uint64_t first, uint64_t count)
{
    spec_ticket ticket = 0;
    struct area area = rig_area(rig, count);
    for (uint32_t layer = 0; layer < rig->layers; layer++) {
        rig_area_fill(rig, &area, prompt, first, count, layer);
        struct spec_store_params params =
            rig_store_params(handle, layer, first, count, &area.memory);
        params.tokens = prompt->tokens + first;
        params.tokens_count = layer == 0 ? count : 0;
        assert_int_equal(sc_plugin_store(rig->conn, &params, 1, &ticket, NULL), SPEC_OK);
    }
    rig_area_free(&area);
    return ticket;
}

/* Saves that nobody has committed yet read the tokens as they were before they moved. */
static void an_answer_that_outgrows_its_memory_is_stored(void **state)
{
    (void)state;
    static const uint64_t ENDS[] = {100, 900, 1900, 4000, 9000};
    struct rig rig;
    spec_ticket tickets[5];
    struct prompt prompt = rig_prompt(5, 0, 0, 9000);
    struct prompt start = {100, prompt.tokens, prompt.history};
    rig_begin_shape(&rig, true, "", 2, 1, 8, SPEC_DTYPE_F16);
    spec_request handle = rig_lookup(&rig, &start).request;
    struct sc_plugin_request *request = sc_plugin_request_find(rig.conn, handle);
    tickets[0] = rig_store(&rig, handle, &prompt, 0, 100);
    const uint32_t *before = request->tokens;
    for (uint32_t i = 1; i < 5; i++)
        tickets[i] = grow(&rig, handle, &prompt, ENDS[i - 1], ENDS[i] - ENDS[i - 1]);
    assert_ptr_not_equal(request->tokens, before);
    assert_int_equal(request->memory.outgrown_count, 2); /* 2,048 tokens, 4,096, then 9,000 */
    assert_text(&rig, handle, &prompt);
    rig_release(&rig, handle);
    for (uint32_t i = 0; i < 5; i++)
        assert_int_equal(rig_wait(&rig, tickets[i]), SPEC_OK);
    rig_settle(&rig);
    assert_int_equal(used(&rig), 0);
    assert_int_equal(rig_read(&rig, &prompt, NULL), 9000);
    rig_reopen(&rig);
    assert_int_equal(rig_read(&rig, &prompt, NULL), 9000);
    rig_end(&rig, &prompt);
}

/* As at max_request_tokens: what is in front of the limit is stored, and the ticket says BUSY. */
static void an_answer_without_room_is_stored_up_to_there(void **state)
{
    (void)state;
    struct rig rig;
    struct prompt prompt = rig_prompt(6, 0, 0, 9000);
    struct prompt start = {100, prompt.tokens, prompt.history};
    rig_begin_shape(&rig, true, "\"request_bytes\": \"448KiB\"", 2, 1, 8, SPEC_DTYPE_F16);
    spec_request handle = rig_lookup(&rig, &start).request;
    spec_ticket ticket = rig_store(&rig, handle, &prompt, 0, 100);
    assert_int_equal(rig_wait(&rig, ticket), SPEC_OK);
    struct sc_run rest; /* of others */
    while (sc_run_take(&rig.conn->requests.pool, SC_RUN_PAGE_BYTES, &rest))
        continue;
    assert_int_equal(rig_wait(&rig, grow(&rig, handle, &prompt, 100, 8900)), SPEC_E_BUSY);
    const struct sc_plugin_request *request = sc_plugin_request_find(rig.conn, handle);
    uint64_t known = request->token_count;
    assert_int_equal(known, request->token_capacity);
    assert_true(known > 100 && known < 9000);
    assert_int_equal(request->host_tokens, 9000);
    rig_release(&rig, handle);
    struct sc_run_pool *pool = &rig.conn->requests.pool; /* all of it is free again */
    for (uint64_t page = 0; page < pool->page_count; page++)
        if ((pool->taken[page / 64] >> page % 64 & 1) != 0) {
            struct sc_run one = {pool->base + page * SC_RUN_PAGE_BYTES, SC_RUN_PAGE_BYTES};
            sc_run_put(pool, &one);
        }
    assert_int_equal(rig_read(&rig, &prompt, NULL), known);
    rig_end(&rig, &prompt);
}

/* ---- Threads --------------------------------------------------------------------------------- */

#define PROMPTS 6u

struct many {
    struct rig *rig;
    const struct prompt *prompts; /* stored */
    _Atomic uint32_t number;
    _Atomic uint64_t done, busy;
};

static void *looker(void *user)
{
    struct many *many = user;
    unsigned seed = atomic_fetch_add(&many->number, 1);
    for (uint32_t round = 0; round < 300; round++) {
        const struct prompt *prompt = &many->prompts[(uint32_t)rand_r(&seed) % PROMPTS];
        struct spec_lookup_params params =
            rig_lookup_params(prompt, 0, RIG_MAX, round % 5 == 4 ? SPEC_LOOKUP_PEEK : 0);
        struct spec_lookup_result result = {.struct_size = sizeof(result)};
        spec_status status = sc_plugin_lookup(many->rig->conn, &params, &result, NULL);
        if (status == SPEC_E_BUSY) {
            atomic_fetch_add(&many->busy, 1);
            (void)sched_yield();
            continue;
        }
        if (status != SPEC_OK || result.matched_tokens != prompt->count)
            return many;
        atomic_fetch_add(&many->done, 1);
        if (result.request == 0)
            continue;
        struct sc_plugin_request *request = sc_plugin_request_find(many->rig->conn, result.request);
        for (uint64_t i = 0; i < prompt->count; i++)
            request->set[i] = request->tokens[i];
        (void)sched_yield();
        if (memcmp(request->set, prompt->tokens, prompt->count * sizeof(uint32_t)) != 0 ||
            sc_plugin_release(many->rig->conn, result.request, NULL) != SPEC_OK)
            return many;
    }
    return NULL;
}

static void threads_take_and_give_back_beside_each_other(void **state)
{
    (void)state;
    struct rig rig;
    struct prompt prompts[PROMPTS];
    rig_begin(&rig, false, CHOOSES ", \"request_bytes\": \"2MiB\"");
    for (uint32_t i = 0; i < PROMPTS; i++) {
        prompts[i] = rig_prompt(i, 0, 0, 50 + i * 2000);
        assert_int_equal(rig_fill(&rig, &prompts[i]), SPEC_OK);
    }
    rig_settle(&rig);
    struct many many = {.rig = &rig, .prompts = prompts};
    struct threads threads = threads_begin(looker, &many, 0, 8);
    threads_join(&threads);
    print_message("%" PRIu64 " lookups, %" PRIu64 " busy\n", atomic_load(&many.done),
                  atomic_load(&many.busy));
    assert_true(atomic_load(&many.done) > 0);
    assert_int_equal(used(&rig), 0);
    rig_prompts_free_all(prompts, PROMPTS);
    rig_done(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(many_long_requests_take_what_few_of_them_need),
        cmocka_unit_test(less_than_one_request_is_refused),
        cmocka_unit_test(many_short_requests_stand_beside_one_of_full_length),
        cmocka_unit_test(a_match_keeps_what_it_needs_until_release),
        cmocka_unit_test(a_lookup_without_room_is_busy_until_a_release),
        cmocka_unit_test(few_scratches_are_long),
        cmocka_unit_test(an_answer_that_outgrows_its_memory_is_stored),
        cmocka_unit_test(an_answer_without_room_is_stored_up_to_there),
        cmocka_unit_test(threads_take_and_give_back_beside_each_other),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
