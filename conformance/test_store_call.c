/* test_store_call: arrays in store, and the host's provenance of a pass: ABI-181, ABI-182.
 *
 * Threads, Tests: see fixture.h. */
#include "conformance/suite.h"

#include <string.h>

#define COUNT  8u
#define TOKENS 150u

/* Requests for prompts of different lengths, and one layer of each in memory. */
struct scene {
    struct prompt prompts[COUNT];
    struct spec_lookup_result found[COUNT];
    struct area areas[COUNT];
    struct spec_store_params params[COUNT];
    uint32_t layers[COUNT]; /* that come next */
    spec_ticket tickets[COUNT];
};

static void scene_open(struct fixture *fx, struct scene *scene, uint64_t seed)
{
    for (uint64_t i = 0; i < COUNT; i++) {
        scene->prompts[i] = prompt_make(seed + i, TOKENS + 10 * i);
        scene->found[i] = fixture_find(fx, &scene->prompts[i]);
        assert_int_equal(scene->found[i].matched_tokens, 0);
        scene->areas[i] = area_make(&fx->shape, LAYOUT_PACKED, scene->prompts[i].count);
        scene->layers[i] = 0;
        scene->tickets[i] = 0;
    }
}

/* What the call for requests [first, end) says, at the layer that is next for each. */
static void scene_fill(struct fixture *fx, struct scene *scene, uint64_t first, uint64_t end)
{
    for (uint64_t i = first; i < end; i++) {
        area_fill(&scene->areas[i], &fx->shape, &scene->prompts[i], 0, scene->layers[i]);
        scene->params[i] = (struct spec_store_params){.struct_size = sizeof(scene->params[i]),
                                                      .request = scene->found[i].request,
                                                      .layer = scene->layers[i],
                                                      .token_count = scene->prompts[i].count,
                                                      .memory = &scene->areas[i].memory};
    }
}

/* Stores the next layer of requests [first, end) in one call. */
static void scene_store(struct fixture *fx, struct scene *scene, uint64_t first, uint64_t end)
{
    spec_ticket tickets[COUNT];
    scene_fill(fx, scene, first, end);
    memset(tickets, 0xff, sizeof(tickets));
    assert_ok(fx,
              fx->api->store(fx->conn, scene->params + first, end - first, tickets, &fx->error));
    for (uint64_t i = first; i < end; i++) {
        area_poison(&scene->areas[i]);
        scene->layers[i]++;
        bool last = scene->layers[i] == fx->shape.layers;
        assert_true((tickets[i - first] != 0) == last);
        if (last)
            scene->tickets[i] = tickets[i - first];
    }
}

/* Every prompt is found and right, or was told not to be stored. */
static void scene_close(struct fixture *fx, struct scene *scene)
{
    for (uint64_t i = 0; i < COUNT; i++) {
        bool stored = scene->tickets[i] != 0 && fixture_wait(fx, scene->tickets[i]) == SPEC_OK;
        assert_true(stored || !conf_options.require_hits);
        fixture_release(fx, scene->found[i].request);
        fixture_check(fx, &scene->prompts[i], stored ? scene->prompts[i].count - 1 : 0);
        area_free(&scene->areas[i]);
        prompt_free(&scene->prompts[i]);
    }
}

static void abi_181_one_call_stores_a_layer_of_each_request(void **state)
{
    struct fixture *fx = *state;
    struct scene scene;
    scene_open(fx, &scene, 1810);
    for (uint32_t layer = 0; layer < fx->shape.layers; layer++)
        scene_store(fx, &scene, 0, COUNT);
    scene_close(fx, &scene);
}

/* Requests of a call stand at layers of their own. */
static void abi_181_layers_of_a_call_may_differ(void **state)
{
    struct fixture *fx = *state;
    struct scene scene;
    scene_open(fx, &scene, 1820);
    for (uint32_t call = 0; call < fx->shape.layers + COUNT - 1; call++) {
        uint64_t first = 0, end = call + 1 < COUNT ? call + 1 : COUNT; /* request i begins at i */
        while (first < end && scene.layers[first] == fx->shape.layers)
            first++;
        scene_store(fx, &scene, first, end);
    }
    scene_close(fx, &scene);
}

static void refuse(struct fixture *fx, const struct spec_store_params *params, uint64_t count,
                   spec_status expected)
{
    spec_ticket tickets[COUNT] = {0};
    for (int again = 0; again < 2; again++)
        assert_status(fx->api->store(fx->conn, params, count, tickets, &fx->error), expected);
    for (uint64_t i = 0; i < COUNT; i++)
        assert_int_equal(tickets[i], 0);
}

/* Whatever is wrong with the last of them, none is begun: the same layers are taken afterwards, of
 * all requests. */
static void abi_181_an_error_changes_nothing_for_any_request(void **state)
{
    struct fixture *fx = *state;
    struct scene scene;
    scene_open(fx, &scene, 1830);
    for (uint32_t layer = 0; layer < fx->shape.layers; layer++) {
        struct spec_store_params *last = &scene.params[COUNT - 1];
        scene_fill(fx, &scene, 0, COUNT);
        const struct spec_store_params good = *last;
        struct spec_stats before = fixture_stats(fx);
        refuse(fx, NULL, COUNT, SPEC_E_INVALID);
        refuse(fx, scene.params, 0, SPEC_E_INVALID);
        refuse(fx, scene.params, 257, SPEC_E_INVALID);
        last->layer = layer + 1;
        refuse(fx, scene.params, COUNT, SPEC_E_INVALID);
        *last = good;
        last->request = scene.found[0].request; /* twice */
        last->token_count = scene.prompts[0].count;
        refuse(fx, scene.params, COUNT, SPEC_E_INVALID);
        *last = good;
        last->request = scene.found[0].request + 1000;
        refuse(fx, scene.params, COUNT, SPEC_E_STALE);
        *last = good;
        last->struct_size = (uint32_t)sizeof(*last) - 8; /* another than the first */
        refuse(fx, scene.params, COUNT, SPEC_E_INVALID);
        *last = good;
        last->token_count = 0;
        refuse(fx, scene.params, COUNT, SPEC_E_INVALID);
        *last = good;
        last->memory = NULL;
        refuse(fx, scene.params, COUNT, SPEC_E_INVALID);
        assert_int_equal(fixture_stats(fx).tickets_open, before.tickets_open);
        scene_store(fx, &scene, 0, COUNT);
    }
    scene_close(fx, &scene);
}

static void abi_181_tickets_may_be_left_out(void **state)
{
    struct fixture *fx = *state;
    struct scene scene;
    scene_open(fx, &scene, 1840);
    for (uint32_t layer = 0; layer < fx->shape.layers; layer++) {
        scene_fill(fx, &scene, 0, COUNT);
        assert_ok(fx, fx->api->store(fx->conn, scene.params, COUNT, NULL, &fx->error));
        for (uint64_t i = 0; i < COUNT; i++)
            scene.layers[i]++;
    }
    for (uint64_t i = 0; i < COUNT; i++)
        fixture_release(fx, scene.found[i].request);
    fixture_reopen(fx); /* a close waits for what was submitted */
    assert_int_equal(fixture_stats(fx).tickets_open, 0);
    for (uint64_t i = 0; i < COUNT; i++) {
        fixture_check(fx, &scene.prompts[i], scene.prompts[i].count - 1);
        area_free(&scene.areas[i]);
        prompt_free(&scene.prompts[i]);
    }
}

/* ---- 182 ---- */

/* A pass over [first, end) of the request's prompt; `said` with one layer, as the host may learn it
 * late. */
static spec_status store_said(struct fixture *fx, spec_request request, const struct prompt *prompt,
                              uint64_t first, uint64_t end, uint32_t said, uint32_t at)
{
    struct area area = area_make(&fx->shape, LAYOUT_PACKED, end - first);
    spec_ticket ticket = 0;
    for (uint32_t layer = 0; layer < fx->shape.layers; layer++) {
        area_fill(&area, &fx->shape, prompt, first, layer);
        struct spec_store_params params = {.struct_size = sizeof(params),
                                           .request = request,
                                           .layer = layer,
                                           .computed_on = layer == at ? said : 0,
                                           .first_token = first,
                                           .token_count = end - first,
                                           .memory = &area.memory};
        assert_ok(fx, fx->api->store(fx->conn, &params, 1, &ticket, &fx->error));
    }
    area_free(&area);
    return fixture_wait(fx, ticket);
}

/* The match of all tokens, or with REQUIRE_EXACT of `exact` alone. */
static void expect_worth(struct fixture *fx, const struct prompt *prompt, bool stored,
                         uint32_t kind, uint64_t exact)
{
    struct spec_lookup_params params = lookup_params(prompt);
    struct spec_lookup_result found = fixture_lookup(fx, &params);
    expect_match(&found, stored ? prompt->count - 1 : exact);
    if (found.matched_tokens > exact) {
        assert_int_equal(found.provenance.kind, kind);
        assert_int_equal(found.provenance.computed_on, kind);
    }
    fixture_check_layers(fx, &found, prompt, 0);
    fixture_release(fx, found.request);
    params.flags = SPEC_LOOKUP_REQUIRE_EXACT;
    found = fixture_lookup(fx, &params);
    expect_match(&found, exact);
    assert_int_equal(found.provenance.kind, SPEC_PROVENANCE_EXACT);
    fixture_release(fx, found.request);
}

/* In whichever layer it is said; it goes for what the request stores later, and for no other. */
static void abi_182_what_the_host_says_is_what_lookups_say(void **state)
{
    struct fixture *fx = *state;
    for (uint32_t at = 0; at < fx->shape.layers; at++) {
        struct prompt prompt = prompt_make(1850 + at, 200);
        struct spec_lookup_result found = fixture_find(fx, &prompt);
        spec_request request = found.request;
        bool first = store_said(fx, request, &prompt, 0, 64, 0, 0) == SPEC_OK;
        bool stored =
            store_said(fx, request, &prompt, 64, 128, SPEC_PROVENANCE_LOSSY, at) == SPEC_OK &&
            store_said(fx, request, &prompt, 128, 200, 0, 0) == SPEC_OK;
        fixture_release(fx, request);
        expect_worth(fx, &prompt, first && stored, SPEC_PROVENANCE_LOSSY, first ? 64 : 0);
        fixture_reopen(fx);
        expect_worth(fx, &prompt, first && stored, SPEC_PROVENANCE_LOSSY, first ? 64 : 0);
        prompt_free(&prompt);
    }
}

/* What configuration keeps out stays out, known with the last layer too. */
static void abi_182_pruned_by_the_hosts_word_is_dropped(void **state)
{
    struct fixture *fx = *state;
    for (uint32_t at = 0; at < fx->shape.layers; at++) {
        struct prompt prompt = prompt_make(1860 + at, 200);
        struct spec_lookup_result found = fixture_find(fx, &prompt);
        assert_int_equal(store_said(fx, found.request, &prompt, 0, 200, SPEC_PROVENANCE_PRUNED, at),
                         SPEC_E_DROPPED);
        fixture_release(fx, found.request);
        fixture_check(fx, &prompt, 0);
        prompt_free(&prompt);
    }
}

const struct conf_test CONF_STORE_CALL[] = {
    OPENED(abi_181_one_call_stores_a_layer_of_each_request),
    OPENED(abi_181_layers_of_a_call_may_differ),
    OPENED(abi_181_an_error_changes_nothing_for_any_request),
    OPENED(abi_181_tickets_may_be_left_out),
    OPENED(abi_182_what_the_host_says_is_what_lookups_say),
    OPENED(abi_182_pruned_by_the_hosts_word_is_dropped),
    END,
};
