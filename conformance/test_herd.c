/* test_herd: requests that compute the same tokens at the same time: ABI-223.
 *
 * Threads, Tests: see fixture.h. */
#include "conformance/suite.h"

#define HERD   12u
#define TOKENS 640u
#define TAIL   40u

struct herd {
    struct prompt prompts[HERD];
    spec_request requests[HERD];
    spec_ticket tickets[HERD];
    struct area areas[HERD];
    bool is_gone[HERD];
    uint64_t count;
};

static void herd_add(struct fixture *fx, struct herd *herd, struct prompt prompt)
{
    uint64_t i = herd->count++;
    herd->prompts[i] = prompt;
    herd->requests[i] = fixture_find(fx, &prompt).request;
    herd->areas[i] = area_make(&fx->shape, LAYOUT_PACKED, prompt.count);
    herd->tickets[i] = 0;
    herd->is_gone[i] = false;
}

/* The members have TOKENS - tail tokens in common. */
static void herd_open(struct fixture *fx, struct herd *herd, uint64_t seed, uint64_t count,
                      uint64_t tail)
{
    struct prompt first = prompt_make(seed, TOKENS);
    herd->count = 0;
    for (uint64_t i = 0; i < count; i++)
        herd_add(fx, herd, prompt_diverge(&first, TOKENS - tail, TOKENS, seed + i));
    prompt_free(&first);
}

static struct spec_store_params layer_of(struct fixture *fx, struct herd *herd, uint64_t i,
                                         uint32_t layer)
{
    area_fill(&herd->areas[i], &fx->shape, &herd->prompts[i], 0, layer);
    return (struct spec_store_params){.struct_size = sizeof(struct spec_store_params),
                                      .request = herd->requests[i],
                                      .layer = layer,
                                      .token_count = herd->prompts[i].count,
                                      .memory = &herd->areas[i].memory};
}

/* Layers [begin, end) of all that are still there; in one call, or each in its own. */
static void store_layers(struct fixture *fx, struct herd *herd, bool in_a_call, uint32_t begin,
                         uint32_t end)
{
    for (uint32_t layer = begin; layer < end; layer++) {
        struct spec_store_params params[HERD];
        spec_ticket tickets[HERD];
        uint64_t named = 0, told = 0;
        for (uint64_t i = 0; i < herd->count; i++)
            if (!herd->is_gone[i])
                params[named++] = layer_of(fx, herd, i, layer);
        for (uint64_t i = 0; i < named && !in_a_call; i++)
            assert_ok(fx, fx->api->store(fx->conn, &params[i], 1, &tickets[i], &fx->error));
        if (in_a_call)
            assert_ok(fx, fx->api->store(fx->conn, params, named, tickets, &fx->error));
        for (uint64_t i = 0; i < herd->count; i++)
            if (!herd->is_gone[i])
                herd->tickets[i] = tickets[told++];
    }
}

/* All that have stored are told so, and find their rows. */
static void herd_check(struct fixture *fx, struct herd *herd)
{
    bool stored[HERD];
    for (uint64_t i = 0; i < herd->count; i++) {
        stored[i] = !herd->is_gone[i] && fixture_wait(fx, herd->tickets[i]) == SPEC_OK;
        if (conf_options.require_hits)
            assert_true(stored[i] || herd->is_gone[i]);
    }
    for (uint64_t i = 0; i < herd->count; i++)
        if (!herd->is_gone[i])
            fixture_check(fx, &herd->prompts[i], stored[i] ? herd->prompts[i].count - 1 : 0);
}

static void herd_close(struct fixture *fx, struct herd *herd)
{
    for (uint64_t i = 0; i < herd->count; i++) {
        if (herd->requests[i] != 0)
            fixture_release(fx, herd->requests[i]);
        area_free(&herd->areas[i]);
        prompt_free(&herd->prompts[i]);
    }
}

/* Bytes that were written for the herd */
static uint64_t written(struct fixture *fx, uint64_t seed, uint64_t count, uint64_t tail,
                        bool in_a_call)
{
    struct herd herd;
    uint64_t before = fixture_stats(fx).write_bytes;
    herd_open(fx, &herd, seed, count, tail);
    store_layers(fx, &herd, in_a_call, 0, fx->shape.layers);
    herd_check(fx, &herd);
    herd_close(fx, &herd);
    return fixture_stats(fx).write_bytes - before;
}

static void abi_223_a_prompt_of_many_requests_is_written_once(void **state)
{
    struct fixture *fx = *state;
    uint64_t one = written(fx, 2230, 1, 0, true);
    assert_true(written(fx, 2250, HERD, 0, true) <= one * 13 / 10);
    assert_true(written(fx, 2270, HERD, 0, false) <= one * 13 / 10);
}

/* Members of a call that part write what they share once. A herd
 * that shares nothing tells what tails cost. */
static void abi_223_what_requests_of_a_call_share_is_written_once(void **state)
{
    struct fixture *fx = *state;
    uint64_t one = written(fx, 2310, 1, 0, true);
    uint64_t together = written(fx, 2330, HERD, TAIL, true);
    uint64_t apart = written(fx, 2350, HERD, TOKENS, true);
    assert_true(apart >= HERD * one || !conf_options.require_hits);
    assert_true(together <= one * 13 / 10 + apart * 2 * TAIL / TOKENS);
}

/* The first of them ends after each number of layers, by an abort or a release. */
static void abi_223_the_others_go_on_when_one_ends(void **state)
{
    struct fixture *fx = *state;
    uint64_t one = written(fx, 2390, 1, 0, true), seed = 2400;
    for (uint32_t layers = 1; layers < fx->shape.layers; layers++)
        for (uint32_t way = 0; way < 4; way++) {
            struct herd herd;
            uint64_t before = fixture_stats(fx).write_bytes;
            herd_open(fx, &herd, seed++, 4, 0);
            store_layers(fx, &herd, way < 2, 0, layers);
            herd.is_gone[0] = true;
            if (way % 2 == 0) {
                assert_ok(fx, fx->api->store_abort(fx->conn, herd.requests[0], 0, &fx->error));
            } else {
                fixture_release(fx, herd.requests[0]);
                herd.requests[0] = 0;
            }
            store_layers(fx, &herd, way < 2, layers, fx->shape.layers);
            herd_check(fx, &herd);
            assert_true(fixture_stats(fx).write_bytes - before <= one * 13 / 10);
            herd_close(fx, &herd);
        }
}

/* All of them end: nothing of it is ever found. */
static void abi_223_when_all_end_nothing_is_stored(void **state)
{
    struct fixture *fx = *state;
    struct herd herd;
    herd_open(fx, &herd, 2500, 4, 0);
    store_layers(fx, &herd, true, 0, fx->shape.layers - 1);
    for (uint64_t i = 0; i < herd.count; i++)
        assert_ok(fx, fx->api->store_abort(fx->conn, herd.requests[i], 0, &fx->error));
    fixture_check(fx, &herd.prompts[0], 0);
    herd_close(fx, &herd);
    fixture_reopen(fx);
    struct prompt prompt = prompt_make(2500, TOKENS);
    fixture_check(fx, &prompt, 0);
    prompt_free(&prompt);
}

const struct conf_test CONF_HERD[] = {
    OPENED(abi_223_a_prompt_of_many_requests_is_written_once),
    OPENED(abi_223_what_requests_of_a_call_share_is_written_once),
    OPENED(abi_223_the_others_go_on_when_one_ends),
    OPENED(abi_223_when_all_end_nothing_is_stored),
    END,
};
