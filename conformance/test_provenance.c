/* test_provenance: the provenance of KV, as stored and reported: ABI-120 .. ABI-123.
 *
 *   request whose layers were delivered in part (metric RANDOM: no queries) -> its store is PRUNED
 *
 * A connector that delivers every row stores exact rows, and is judged so. Threads, Tests: see
 * choice.h. */
#include "conformance/choice.h"
#include "conformance/suite.h"

#define STORED 64u
#define RETAIN 250000u
#define LAYERS 3u
#define SHAPE  ((struct shape){LAYERS, 2, 16, SPEC_DTYPE_F16})

/* Delivers a share of the match's rows at one layer; the item's provenance. */
static struct spec_provenance deliver(struct fixture *fx, const struct spec_lookup_result *found,
                                      const struct prompt *prompt, uint32_t layer, uint32_t ppm)
{
    struct spec_select select = {.struct_size = sizeof(select),
                                 .given = SPEC_SELECT_BUDGET | SPEC_SELECT_METRIC,
                                 .retain_ppm = ppm,
                                 .metric = SPEC_METRIC_RANDOM};
    struct area area = area_make(&fx->shape, LAYOUT_PACKED, found->matched_tokens);
    struct spec_important item = important(found->request, layer, &area.memory);
    uint32_t positions[1024];
    uint8_t row[1024];
    item.select = &select;
    item.positions = positions;
    item.position_capacity = 1024;
    assert_true(found->matched_tokens <= 512 && row_bytes(&fx->shape) <= sizeof(row));
    assert_ok(fx, fx->api->get_important(fx->conn, &item, 1, &fx->error));
    for (uint64_t r = 0; r < item.row_count; r++)
        for (int value = 0; value < 2; value++) {
            truth_row(&fx->shape, prompt, positions[r], layer, value, row);
            assert_memory_equal(area_at(&area, r, 0, value), row, row_bytes(&fx->shape));
        }
    area_free(&area);
    return item.provenance;
}

struct pass {
    uint32_t kind; /* the worst that was delivered to it */
    spec_status status;
};

/* A request over `prompt`, up to `most` matched tokens: layer by layer it is delivered `ppm` of its
 * rows and stores the range behind the match. */
static struct pass run_pass(struct fixture *fx, const struct prompt *prompt, uint64_t most,
                            uint32_t flags, uint32_t ppm)
{
    struct spec_lookup_params params = lookup_params(prompt);
    params.flags = flags;
    params.max_tokens = most;
    struct spec_lookup_result found = fixture_lookup(fx, &params);
    struct pass pass = {.kind = found.provenance.kind};
    for (uint32_t layer = 0; layer < fx->shape.layers; layer++) {
        spec_ticket ticket;
        if (found.matched_tokens > 0) {
            uint32_t kind = deliver(fx, &found, prompt, layer, ppm).kind;
            pass.kind = kind > pass.kind ? kind : pass.kind;
        }
        assert_ok(fx, fixture_put(fx, found.request, prompt, found.matched_tokens,
                                  prompt->count - found.matched_tokens, layer, &ticket));
        pass.status = fixture_wait(fx, ticket);
    }
    fixture_release(fx, found.request);
    return pass;
}

/* The first STORED tokens, by a request of nothing else: exact. */
static void store_start(struct fixture *fx, const struct prompt *prompt)
{
    struct prompt start = *prompt;
    start.count = STORED;
    (void)fixture_store(fx, &start);
}

static struct spec_lookup_result find_all(struct fixture *fx, const struct prompt *prompt,
                                          uint32_t flags)
{
    struct spec_lookup_params params = lookup_params(prompt);
    params.flags = flags;
    params.max_tokens = prompt->count;
    return fixture_lookup(fx, &params);
}

static void expect_delivery(const struct pass *pass)
{
    if (conf_options.require_hits) /* else every row may be delivered, or none was there */
        assert_int_equal(pass->kind, SPEC_PROVENANCE_PRUNED);
}

static void open_provenance(struct fixture *fx, const char *store)
{
    fixture_shape(fx, SHAPE);
    scene_configure(fx, 2, "", store);
}

/* What was stored by a pass of this kind is found, with its kind; or missed. */
static void expect_found(struct fixture *fx, const struct prompt *prompt, const struct pass *pass)
{
    struct spec_lookup_result found = find_all(fx, prompt, 0);
    if (pass->status == SPEC_OK)
        expect_match(&found, prompt->count);
    if (found.matched_tokens > STORED) {
        assert_int_equal(found.provenance.kind, pass->kind);
        assert_int_equal(found.provenance.computed_on, pass->kind);
        if (pass->kind == SPEC_PROVENANCE_PRUNED) {
            assert_int_equal(found.provenance.retain_ppm, RETAIN);
            assert_int_equal(found.provenance.metric, SPEC_METRIC_RANDOM);
        }
    } else {
        assert_int_equal(found.provenance.kind, SPEC_PROVENANCE_EXACT);
    }
    fixture_check_layers(fx, &found, prompt, 0);
    fixture_release(fx, found.request);
}

static void abi_120_what_is_stored_says_what_it_was_computed_on(void **state)
{
    struct fixture *fx = *state;
    open_provenance(fx, "\"pruned\": \"yes\"");
    struct prompt prompt = prompt_make(350, 150);
    store_start(fx, &prompt);
    struct pass pass = run_pass(fx, &prompt, STORED, 0, RETAIN);
    expect_delivery(&pass);
    expect_found(fx, &prompt, &pass);
    fixture_reopen(fx);
    expect_found(fx, &prompt, &pass);
    prompt_free(&prompt);
}

/* One layer in part is enough, whichever it is, and what follows later in the request is no better.
 */
static void abi_120_the_worst_of_all_layers_and_passes_counts(void **state)
{
    struct fixture *fx = *state;
    open_provenance(fx, "\"pruned\": \"yes\"");
    for (uint32_t worst = 0; worst + 1 < LAYERS; worst++) {
        struct prompt prompt = prompt_make(351 + worst, 192);
        store_start(fx, &prompt);
        struct spec_lookup_params params = lookup_params(&prompt);
        params.max_tokens = STORED;
        struct spec_lookup_result found = fixture_lookup(fx, &params);
        struct pass pass = {.kind = SPEC_PROVENANCE_EXACT, .status = SPEC_OK};
        for (uint64_t first = found.matched_tokens; first < 192; first = first + 64) {
            for (uint32_t layer = 0; layer < LAYERS; layer++) {
                spec_ticket ticket;
                bool part = layer == worst && first == found.matched_tokens;
                if (found.matched_tokens > 0) {
                    uint32_t kind =
                        deliver(fx, &found, &prompt, layer, part ? RETAIN : 1000000).kind;
                    pass.kind = kind > pass.kind ? kind : pass.kind;
                }
                assert_ok(fx, fixture_put(fx, found.request, &prompt, first, 64, layer, &ticket));
                pass.status = fixture_wait(fx, ticket);
            }
        }
        fixture_release(fx, found.request);
        expect_delivery(&pass);
        expect_found(fx, &prompt, &pass);
        prompt_free(&prompt);
    }
}

/* Another request that was delivered every row of an inexact match stores nothing exact behind it.
 */
static void abi_120_behind_inexact_rows_nothing_is_exact(void **state)
{
    struct fixture *fx = *state;
    open_provenance(fx, "\"pruned\": \"yes\"");
    struct prompt longer = prompt_make(355, 200), prompt = longer;
    prompt.count = 128;
    store_start(fx, &prompt);
    struct pass parent = run_pass(fx, &prompt, STORED, 0, RETAIN);
    expect_delivery(&parent);
    struct pass child = run_pass(fx, &longer, 128, 0, 1000000);
    if (conf_options.require_hits)
        assert_int_equal(child.kind, SPEC_PROVENANCE_PRUNED);
    expect_found(fx, &longer, &child);
    prompt_free(&longer);
}

static void abi_121_a_match_that_must_be_exact_ends_before_inexact_rows(void **state)
{
    struct fixture *fx = *state;
    open_provenance(fx, "\"pruned\": \"yes\"");
    struct prompt prompt = prompt_make(360, 150);
    store_start(fx, &prompt);
    struct pass pass = run_pass(fx, &prompt, STORED, 0, RETAIN);
    expect_delivery(&pass);
    for (uint32_t opened = 0; opened < 2; opened++) {
        struct spec_lookup_result found = find_all(fx, &prompt, SPEC_LOOKUP_REQUIRE_EXACT);
        expect_match(&found, pass.kind == SPEC_PROVENANCE_EXACT ? prompt.count : STORED);
        assert_int_equal(found.provenance.kind, SPEC_PROVENANCE_EXACT);
        fixture_check_layers(fx, &found, &prompt, 0);
        fixture_release(fx, found.request);
        fixture_reopen(fx);
    }
    prompt_free(&prompt);
}

static void abi_121_in_a_reader_too(void **state)
{
    struct fixture *fx = *state;
    open_provenance(fx, "\"pruned\": \"yes\"");
    struct prompt prompt = prompt_make(361, 150);
    store_start(fx, &prompt);
    struct pass pass = run_pass(fx, &prompt, STORED, 0, RETAIN);
    struct fixture reader = fixture_beside(fx, SPEC_ROLE_READER);
    fixture_open(&reader);
    struct spec_lookup_result found = fixture_await(&reader, &prompt, 149);
    if (found.matched_tokens > STORED)
        assert_int_equal(found.provenance.kind, pass.kind);
    fixture_release(&reader, found.request);
    found = find_all(&reader, &prompt, SPEC_LOOKUP_REQUIRE_EXACT);
    expect_match(&found, pass.kind == SPEC_PROVENANCE_EXACT ? prompt.count : STORED);
    assert_int_equal(found.provenance.kind, SPEC_PROVENANCE_EXACT);
    fixture_release(&reader, found.request);
    fixture_close(&reader);
    prompt_free(&prompt);
}

static void abi_122_pruned_passes_are_not_stored_unless_configured(void **state)
{
    struct fixture *fx = *state;
    static const char *const STORES[] = {"", "\"pruned\": \"no\"", "\"pruned\": \"yes\""};
    for (uint32_t i = 0; i < 3; i++) {
        open_provenance(fx, STORES[i]);
        struct prompt prompt = prompt_make(365 + i, 150);
        store_start(fx, &prompt);
        struct pass pass = run_pass(fx, &prompt, STORED, 0, RETAIN);
        expect_delivery(&pass);
        bool refused = i < 2 && pass.kind == SPEC_PROVENANCE_PRUNED;
        if (refused)
            assert_int_equal(pass.status, SPEC_E_DROPPED);
        else if (conf_options.require_hits)
            assert_int_equal(pass.status, SPEC_OK);
        struct spec_lookup_result found = find_all(fx, &prompt, 0);
        expect_match(&found, refused ? STORED : prompt.count);
        fixture_check_layers(fx, &found, &prompt, 0);
        fixture_release(fx, found.request);
        pass = run_pass(fx, &prompt, STORED, 0, 1000000); /* an exact one is, always */
        if (conf_options.require_hits)
            assert_int_equal(pass.status, SPEC_OK);
        prompt_free(&prompt);
    }
}

/* One item as configured (no select); its provenance. */
static struct spec_important
deliver_as_configured(struct fixture *fx, const struct spec_lookup_result *found, uint32_t layer)
{
    struct area area = area_make(&fx->shape, LAYOUT_PACKED, found->matched_tokens);
    struct spec_important item = important(found->request, layer, &area.memory);
    assert_ok(fx, fx->api->get_important(fx->conn, &item, 1, &fx->error));
    area_free(&area);
    return item;
}

/* `stored` tokens of a prompt are there: whether the rows of a pass over the rest are all
 * delivered. The pass stores: what was whole is stored, exact. */
static void expect_pass_as_configured(struct fixture *fx, uint64_t seed, uint64_t stored,
                                      uint64_t count, bool is_whole)
{
    struct prompt prompt = prompt_make(seed, count), start = prompt;
    start.count = stored;
    (void)fixture_store(fx, &start);
    struct spec_lookup_params params = lookup_params(&prompt);
    struct spec_lookup_result found = fixture_lookup(fx, &params);
    expect_match(&found, stored);
    spec_status status = SPEC_OK;
    uint32_t kind = SPEC_PROVENANCE_EXACT;
    for (uint32_t layer = 0; layer < LAYERS; layer++) {
        spec_ticket ticket;
        if (found.matched_tokens > 0) {
            struct spec_important item = deliver_as_configured(fx, &found, layer);
            bool was_whole = item.row_count == found.matched_tokens;
            assert_int_equal(was_whole, (item.result_flags & SPEC_IMPORTANT_DENSE) != 0);
            assert_int_equal(was_whole, item.provenance.kind == SPEC_PROVENANCE_EXACT);
            if (is_whole)
                assert_true(was_whole);
            else if (conf_options.require_hits)
                assert_false(was_whole);
            kind = item.provenance.kind > kind ? item.provenance.kind : kind;
        }
        assert_ok(fx, fixture_put(fx, found.request, &prompt, found.matched_tokens,
                                  count - found.matched_tokens, layer, &ticket));
        status = fixture_wait(fx, ticket);
    }
    if (found.matched_tokens > 0 && is_whole) /* an item's own budget rules */
        assert_true(deliver(fx, &found, &prompt, 1, RETAIN).kind >= kind);
    fixture_release(fx, found.request);
    if (conf_options.require_hits)
        assert_int_equal(status, is_whole ? SPEC_OK : SPEC_E_DROPPED);
    found = find_all(fx, &prompt, SPEC_LOOKUP_REQUIRE_EXACT);
    expect_match(&found, kind == SPEC_PROVENANCE_EXACT ? count : stored);
    for (uint32_t layer = 0; layer < LAYERS && found.matched_tokens > 0; layer++)
        (void)deliver(fx, &found, &prompt, layer, 1000000); /* each row is compared */
    fixture_release(fx, found.request);
    prompt_free(&prompt);
}

static void abi_073_a_match_that_is_short_beside_what_is_new_is_whole_and_storable(void **state)
{
    struct fixture *fx = *state;
    fixture_shape(fx, SHAPE);
    scene_configure(fx, 2, "\"retain_ppm\": 250000, \"metric\": \"random\"", "");
    expect_pass_as_configured(fx, 380, 100, 450, true); /* both short */
    expect_pass_as_configured(fx, 381, 300, 500, false);
    scene_configure(fx, 2, "\"retain_ppm\": 250000, \"metric\": \"random\", \"min_tokens\": 0", "");
    expect_pass_as_configured(fx, 382, 100, 201, true); /* fewer than what is new */
    expect_pass_as_configured(fx, 383, 101, 202, false);
}

/* The same tokens, rows of two passes: `salted` has other truth for the same tokens. */
static void expect_rows_of(struct fixture *fx, const struct prompt *prompt, uint64_t matched,
                           uint64_t from)
{
    struct spec_lookup_params params = lookup_params(prompt);
    params.max_tokens = prompt->count;
    params.from_token = from;
    struct spec_lookup_result found = fixture_lookup(fx, &params);
    expect_match(&found, matched);
    fixture_check_layers(fx, &found, prompt, from);
    fixture_release(fx, found.request);
}

static void abi_123_better_rows_replace_worse_ones(void **state)
{
    struct fixture *fx = *state;
    open_provenance(fx, "\"pruned\": \"yes\"");
    struct prompt exact = prompt_make(370, 150), worse = prompt_make(370, 150);
    store_start(fx, &exact);
    prompt_salt(&worse, 5);
    struct spec_lookup_params params = lookup_params(&exact);
    params.max_tokens = STORED;
    struct spec_lookup_result found = fixture_lookup(fx, &params);
    struct pass pass = {.kind = SPEC_PROVENANCE_EXACT};
    for (uint32_t layer = 0; layer < LAYERS; layer++) {
        spec_ticket ticket;
        if (found.matched_tokens > 0)
            pass.kind = deliver(fx, &found, &exact, layer, RETAIN).kind;
        assert_ok(fx, fixture_put(fx, found.request, &worse, found.matched_tokens,
                                  150 - found.matched_tokens, layer, &ticket));
        pass.status = fixture_wait(fx, ticket);
    }
    fixture_release(fx, found.request);
    expect_delivery(&pass);
    if (pass.kind == SPEC_PROVENANCE_EXACT || pass.status != SPEC_OK) {
        prompt_free(&exact);
        prompt_free(&worse);
        return; /* nothing that could be replaced */
    }
    expect_rows_of(fx, &worse, 150, STORED);
    params.from_token = STORED;
    params.max_tokens = 150;
    struct spec_lookup_result old = fixture_lookup(fx, &params); /* goes on with its promise */
    pass = run_pass(fx, &exact, 150, SPEC_LOOKUP_REQUIRE_EXACT, 1000000);
    assert_int_equal(pass.kind, SPEC_PROVENANCE_EXACT);
    for (uint32_t opened = 0; opened < 2; opened++) {
        found = find_all(fx, &exact, SPEC_LOOKUP_REQUIRE_EXACT);
        expect_match(&found, 150);
        fixture_check_layers(fx, &found, &exact, 0);
        fixture_release(fx, found.request);
        expect_rows_of(fx, &exact, 150, STORED);
        if (opened > 0)
            break;
        fixture_check_layer(fx, &old, &worse, STORED, 1);
        fixture_release(fx, old.request);
        fixture_reopen(fx);
    }
    prompt_free(&exact);
    prompt_free(&worse);
}

/* A pruned pass over tokens that are held exact, and one over tokens held pruned: the first stays.
 */
static void abi_123_among_equals_and_for_worse_the_first_stays(void **state)
{
    struct fixture *fx = *state;
    open_provenance(fx, "\"pruned\": \"yes\"");
    for (uint32_t first_ppm = RETAIN; first_ppm <= 1000000; first_ppm += 750000) {
        struct prompt first = prompt_make(375 + first_ppm, 150);
        struct prompt second = prompt_make(375 + first_ppm, 150);
        prompt_salt(&second, 6);
        store_start(fx, &first);
        struct pass pass = run_pass(fx, &first, STORED, 0, first_ppm);
        struct spec_lookup_params params = lookup_params(&first);
        params.max_tokens = STORED;
        struct spec_lookup_result found = fixture_lookup(fx, &params);
        for (uint32_t layer = 0; layer < LAYERS; layer++) {
            spec_ticket ticket;
            if (found.matched_tokens > 0)
                (void)deliver(fx, &found, &first, layer, RETAIN);
            assert_ok(fx, fixture_put(fx, found.request, &second, found.matched_tokens,
                                      150 - found.matched_tokens, layer, &ticket));
            (void)fixture_wait(fx, ticket);
        }
        fixture_release(fx, found.request);
        if (pass.status == SPEC_OK)
            expect_rows_of(fx, &first, 150, 0);
        prompt_free(&first);
        prompt_free(&second);
    }
}

const struct conf_test CONF_PROVENANCE[] = {
    BARE(abi_120_what_is_stored_says_what_it_was_computed_on),
    BARE(abi_120_the_worst_of_all_layers_and_passes_counts),
    BARE(abi_120_behind_inexact_rows_nothing_is_exact),
    BARE(abi_121_a_match_that_must_be_exact_ends_before_inexact_rows),
    BARE(abi_121_in_a_reader_too),
    BARE(abi_122_pruned_passes_are_not_stored_unless_configured),
    BARE(abi_073_a_match_that_is_short_beside_what_is_new_is_whole_and_storable),
    BARE(abi_123_better_rows_replace_worse_ones),
    BARE(abi_123_among_equals_and_for_worse_the_first_stays),
    END,
};
