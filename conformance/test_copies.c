/* test_copies: tokens stored twice, and acknowledged writes of the later copy that are lost:
 * ABI-172.
 *
 *   earlier copy   [row row row]   its files are kept; it is dropped
 *   later copy     [row row row]   reported stored; its files get back the kept bytes
 *
 * Invariants: a connector may miss, or return the whole earlier copy. Rows of one copy under the
 * other's name are a failure. Threads, Tests: see fixture.h. */
#include "conformance/disk.h"
#include "conformance/suite.h"

#define ROUNDS 6u
#define START  64u /* tokens that both copies stand behind */
#define TOKENS 128u

/* The two copies' truths; the tokens are one. */
struct twice {
    struct prompt earlier, later;
};

static struct twice twice_make(uint64_t seed)
{
    struct twice twice = {prompt_make(seed, TOKENS), prompt_make(seed, TOKENS)};
    prompt_salt(&twice.later, seed + 1);
    return twice;
}

static void twice_free(struct twice *twice)
{
    prompt_free(&twice->earlier);
    prompt_free(&twice->later);
}

static struct spec_lookup_result find(struct fixture *fx, const struct prompt *prompt,
                                      uint32_t flags)
{
    struct spec_lookup_params params = lookup_params(prompt);
    params.flags = flags;
    params.from_token = START;
    params.max_tokens = TOKENS;
    return fixture_lookup(fx, &params);
}

static uint32_t kind_of(struct fixture *fx, const struct prompt *prompt)
{
    struct spec_lookup_result found = find(fx, prompt, 0);
    fixture_release(fx, found.request);
    return found.matched_tokens == TOKENS ? found.provenance.kind : SPEC_PROVENANCE_PRUNED;
}

/* Tokens START .. TOKENS of a request, after it was delivered a part of those before (pruned), or
 * nothing. Returns whether they were stored. */
static bool store_behind(struct fixture *fx, const struct prompt *prompt, bool is_pruned)
{
    struct spec_lookup_params params = lookup_params(prompt);
    struct spec_select select = {.struct_size = sizeof(select),
                                 .given = SPEC_SELECT_BUDGET | SPEC_SELECT_METRIC,
                                 .retain_ppm = 250000,
                                 .metric = SPEC_METRIC_RANDOM};
    uint32_t positions[START];
    spec_ticket ticket;
    spec_status status = SPEC_OK;
    params.max_tokens = START;
    struct spec_lookup_result found = fixture_lookup(fx, &params);
    if (found.matched_tokens < START) { /* a miss: nothing to stand behind */
        fixture_release(fx, found.request);
        return false;
    }
    struct area area = area_make(&fx->shape, LAYOUT_PACKED, START);
    for (uint32_t layer = 0; layer < fx->shape.layers; layer++) {
        struct spec_important item = important(found.request, layer, &area.memory);
        item.select = &select;
        item.positions = positions;
        item.position_capacity = START;
        if (is_pruned)
            assert_ok(fx, fx->api->get_important(fx->conn, &item, 1, &fx->error));
        assert_ok(fx,
                  fixture_put(fx, found.request, prompt, START, TOKENS - START, layer, &ticket));
        status = fixture_wait(fx, ticket);
    }
    area_free(&area);
    fixture_release(fx, found.request);
    if (is_pruned && conf_options.require_hits) /* else every row may come, and it is exact */
        assert_int_equal(kind_of(fx, prompt), SPEC_PROVENANCE_PRUNED);
    return status == SPEC_OK;
}

/* What is delivered of tokens START .. TOKENS at a layer is what the truth has; or nothing is. */
static bool layer_is(struct fixture *fx, const struct spec_lookup_result *found,
                     const struct prompt *truth, uint32_t layer, spec_status *ret_status)
{
    struct area area = area_make(&fx->shape, LAYOUT_PACKED, TOKENS - START);
    struct spec_important item = important(found->request, layer, &area.memory);
    *ret_status = fx->api->get_important(fx->conn, &item, 1, &fx->error);
    bool is_right = *ret_status != SPEC_OK ||
                    area_is_right(&area, &fx->shape, truth, START, TOKENS - START, layer);
    area_free(&area);
    return is_right;
}

/* The earlier copy is found bad and dropped; its files, from before it was damaged, are returned.
 */
static struct disk_kept *replace(struct fixture *fx, const struct twice *twice)
{
    fixture_close(fx);
    struct disk_kept *kept = disk_keep(fx);
    (void)disk_damage(fx, (struct disk_row){&twice->earlier, START, 0}, DISK_FLIP);
    fixture_open(fx);
    struct spec_lookup_result found = find(fx, &twice->earlier, 0);
    spec_status status = SPEC_OK;
    if (found.matched_tokens == TOKENS)
        assert_true(layer_is(fx, &found, &twice->earlier, 0, &status));
    fixture_release(fx, found.request);
    fixture_await_gone(fx, &twice->earlier, START);
    fixture_reopen(fx); /* its place is free */
    return kept;
}

/* A match of all is told as one copy: its rows are that one's, at every layer, or fail. */
static void check_copy(struct fixture *fx, const struct twice *twice, bool is_later_exact,
                       uint32_t flags)
{
    struct spec_lookup_result found = find(fx, &twice->later, flags);
    bool is_later = true, is_earlier = true;
    for (uint32_t layer = 0; layer < fx->shape.layers && found.matched_tokens == TOKENS; layer++) {
        spec_status status;
        is_later = layer_is(fx, &found, &twice->later, layer, &status) && is_later;
        if (status == SPEC_OK)
            is_earlier = layer_is(fx, &found, &twice->earlier, layer, &status) && is_earlier;
        if (status != SPEC_OK)
            break; /* void: the match has ended */
    }
    bool is_exact = found.provenance.computed_on == SPEC_PROVENANCE_EXACT;
    assert_true(is_exact || flags == 0);
    assert_true(is_exact == is_later_exact ? is_later : is_earlier);
    fixture_release(fx, found.request);
}

/* One of the copies is exact, and one was computed on a part of the rows before it. */
static void check_twice(struct fixture *fx, uint64_t seed, bool is_later_exact)
{
    struct twice twice = twice_make(seed);
    struct prompt start = twice.earlier;
    start.count = START;
    (void)fixture_store(fx, &start);
    if (store_behind(fx, &twice.earlier, is_later_exact)) {
        struct disk_kept *kept = replace(fx, &twice);
        bool stored = store_behind(fx, &twice.later, !is_later_exact);
        fixture_close(fx);
        if (stored)
            disk_put_back(fx, kept, (struct disk_row){&twice.later, START, 0});
        disk_kept_free(kept);
        fixture_open(fx);
        check_copy(fx, &twice, is_later_exact, SPEC_LOOKUP_REQUIRE_EXACT);
        check_copy(fx, &twice, is_later_exact, 0);
    }
    twice_free(&twice);
}

static void open_copies(struct fixture *fx)
{
    fixture_shape(fx, (struct shape){3, 2, 16, SPEC_DTYPE_F16});
    fixture_reconfigure(fx, FIXTURE_SMALL_STORE ", \"select\": {\"probe_heads\": 2}, "
                                                "\"store\": {\"pruned\": \"yes\"}");
}

static void abi_172_a_pruned_pass_is_never_taken_for_the_exact_one_after_it(void **state)
{
    struct fixture *fx = *state;
    open_copies(fx);
    for (uint64_t round = 0; round < ROUNDS; round++)
        check_twice(fx, 4000 + 10 * round, true);
}

static void abi_172_an_exact_pass_is_never_taken_for_the_pruned_one_after_it(void **state)
{
    struct fixture *fx = *state;
    open_copies(fx);
    for (uint64_t round = 0; round < ROUNDS; round++)
        check_twice(fx, 4100 + 10 * round, false);
}

const struct conf_test CONF_COPIES[] = {
    BARE(abi_172_a_pruned_pass_is_never_taken_for_the_exact_one_after_it),
    BARE(abi_172_an_exact_pass_is_never_taken_for_the_pruned_one_after_it),
    END,
};
