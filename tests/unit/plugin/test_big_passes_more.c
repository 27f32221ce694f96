/* Passes that staging cannot hold, beside others: hosts that wait, models with states, and decoded
 * tokens of many requests.
 *
 * Threads: one. */
#include "tests/unit/plugin/hybrid_fixture.h"

#define DEVICE_RATE UINT64_C(200000000)
#define WAIT_NS     UINT64_C(20000000000) /* the device writes all of staging in 84 ms */
#define MEMBERS     "\"load_policy\": \"load\", \"host_bytes\": 0"

static void rig_make(struct rig *rig, uint32_t layers, uint32_t heads, const char *extra)
{
    rig_init(rig, true, extra);
    rig_shape(rig, layers, heads, 64, SPEC_DTYPE_F16);
    rig_open(rig);
    sc_io_sim_disk_rate(rig->disk, DEVICE_RATE);
}

static spec_status store_waiting(struct rig *rig, spec_request request, const struct prompt *prompt,
                                 uint32_t layer, uint64_t wait_ns, spec_ticket *ret_ticket)
{
    struct area area = rig_area(rig, prompt->count);
    rig_area_fill(rig, &area, prompt, 0, prompt->count, layer);
    struct spec_store_params params =
        rig_store_params(request, layer, 0, prompt->count, &area.memory);
    params.flags |= SPEC_STORE_WAIT;
    params.wait_ns = wait_ns;
    spec_status status = sc_plugin_store(rig->conn, &params, 1, ret_ticket, NULL);
    rig_area_free(&area);
    return status;
}

/* Each of several passes of one host has frames that are filled in part, and none of them is
 * written before the pass goes on. A call that waits for those waits for later calls. */
static void abi_217_who_waits_does_not_wait_for_itself(void **state)
{
    (void)state;
    enum { PASSES = 8, LAYERS = 16 };
    struct rig rig;
    struct prompt prompts[PASSES];
    spec_request requests[PASSES];
    spec_ticket tickets[PASSES];
    uint64_t kept = 0;
    rig_make(&rig, LAYERS, 4, MEMBERS);
    for (uint32_t i = 0; i < PASSES; i++) {
        prompts[i] = rig_prompt(1 + i, 0, 0, 4096);
        requests[i] = rig_lookup(&rig, &prompts[i]).request;
    }
    for (uint32_t layer = 0; layer < LAYERS; layer++)
        for (uint32_t i = 0; i < PASSES; i++) {
            uint64_t from_ns = sc_exec_now_ns(rig.conn->exec);
            assert_int_equal(
                store_waiting(&rig, requests[i], &prompts[i], layer, WAIT_NS, &tickets[i]),
                SPEC_OK);
            assert_true(sc_exec_now_ns(rig.conn->exec) - from_ns < WAIT_NS / 10);
        }
    for (uint32_t i = 0; i < PASSES; i++) {
        (void)rig_wait(&rig, tickets[i]);
        rig_release(&rig, requests[i]);
        kept += rig_read(&rig, &prompts[i], NULL);
    }
    assert_true(kept > 0);
    rig_prompts_free_all(prompts, PASSES);
    rig_done(&rig);
}

/* Rows without their states are found by nobody: a ticket does not call them kept. */
static void abi_217_of_a_model_with_states_what_is_kept_is_found(void **state)
{
    (void)state;
    static struct hybrid model;
    hybrid_make(&model, true, MEMBERS ", \"max_request_tokens\": 65536");
    model.rig.heads = 16;
    model.rig.head_size = 64;
    hybrid_open(&model);
    sc_io_sim_disk_rate(model.rig.disk, DEVICE_RATE / 10);
    struct prompt prompt = rig_prompt(1, 0, 0, 4096);
    uint64_t tries = 0;
    for (spec_status status = SPEC_E_BUSY; status != SPEC_OK; tries++) {
        spec_request request = rig_lookup(&model.rig, &prompt).request;
        spec_ticket ticket = 0;
        uint64_t kept = 0;
        for (uint32_t l = 0; l < HYBRID_LAYERS; l++)
            assert_int_equal(hybrid_store(&model, request, &prompt, 0, 4096, l, &ticket), SPEC_OK);
        assert_int_equal(
            sc_plugin_wait_kept(model.rig.conn, &ticket, 1, UINT64_MAX, &status, &kept, NULL),
            SPEC_OK);
        rig_release(&model.rig, request);
        uint64_t found = hybrid_read(&model, &prompt);
        assert_true(kept <= found);
        assert_true(status != SPEC_OK || kept == 4096);
        assert_true(tries < 8);
    }
    rig_end(&model.rig, &prompt);
}

/* One token each of so many requests, a layer of all at a time, behind a pass that is whole and
 * waits for the device. */
static void check_decoded(uint32_t requests, uint32_t layers, uint32_t heads, uint32_t steps)
{
    enum { MOST = 64, PROMPT = 64 };
    struct rig rig;
    struct prompt prompts[MOST];
    struct spec_lookup_result found[MOST];
    spec_ticket tickets[MOST];
    uint64_t lost = 0;
    rig_make(&rig, layers, heads, MEMBERS ", \"max_requests\": 128");
    for (uint32_t i = 0; i < requests; i++) {
        struct prompt begun = rig_prompt(10 + i, 0, 0, PROMPT);
        assert_int_equal(rig_fill(&rig, &begun), SPEC_OK);
        rig_prompt_free(&begun);
        prompts[i] = rig_prompt(10 + i, 0, 0, PROMPT + steps);
        found[i] = rig_lookup(&rig, &prompts[i]);
        assert_int_equal(found[i].matched_tokens, PROMPT);
    }
    struct prompt big = rig_prompt(1, 0, 0, 4096);
    spec_request request = rig_lookup(&rig, &big).request;
    for (uint32_t step = 0; step < steps; step++) {
        spec_ticket ticket = 0;
        if (step % 4 == 0)
            ticket = rig_store(&rig, request, &big, 0, big.count);
        for (uint32_t layer = 0; layer < layers; layer++)
            for (uint32_t i = 0; i < requests; i++)
                assert_int_equal(rig_store_layer(&rig, found[i].request, &prompts[i], PROMPT + step,
                                                 1, layer, &tickets[i]),
                                 SPEC_OK);
        for (uint32_t i = 0; i < requests; i++)
            lost += rig_wait(&rig, tickets[i]) != SPEC_OK;
        (void)rig_wait(&rig, ticket);
    }
    rig_release(&rig, request);
    for (uint32_t i = 0; i < requests; i++) {
        rig_release(&rig, found[i].request);
        (void)rig_read(&rig, &prompts[i], NULL);
    }
    print_message("%u requests: %llu of %u decoded tokens lost\n", requests,
                  (unsigned long long)lost, requests * steps);
    rig_prompt_free(&big);
    rig_prompts_free_all(prompts, requests);
    rig_done(&rig);
    assert_int_equal(lost, 0);
}

static void abi_217_no_decoded_token_of_many_requests_is_lost(void **state)
{
    (void)state;
    check_decoded(64, 16, 4, 1);
    check_decoded(64, 16, 4, 8);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(abi_217_of_a_model_with_states_what_is_kept_is_found),
        cmocka_unit_test(abi_217_no_decoded_token_of_many_requests_is_lost),
        cmocka_unit_test(abi_217_who_waits_does_not_wait_for_itself),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
