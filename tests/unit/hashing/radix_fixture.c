/* An index under test; see radix_fixture.h. */
#include "tests/unit/hashing/radix_fixture.h"

static void fixture_note(const struct sc_radix_segment *segment, void *user)
{
    struct fixture *fx = user;
    fx->removed_runs++;
    fx->removed_tokens += segment->count;
    fx->removed_last = *segment;
}

uint64_t fixture_bytes(struct fixture *fx)
{
    struct sc_radix_stats stats;
    sc_radix_stats(fx->index, &stats);
    return stats.bytes;
}

void fixture_open_as(struct fixture *fx, uint32_t chunk_tokens, uint64_t bytes_max,
                     enum sc_policy policy)
{
    memset(fx, 0, sizeof(*fx));
    sc_fault_init(&fx->fault);
    sc_alloc_init(&fx->alloc);
    fx->alloc.fault = &fx->fault;
    fx->removal = (struct sc_radix_removal){fixture_note, fx};
    struct sc_radix_params params = {.alloc = &fx->alloc,
                                     .chunk_tokens = chunk_tokens,
                                     .bytes_max = bytes_max,
                                     .policy = policy,
                                     .secret = FIXTURE_SECRET};
    assert_int_equal(sc_radix_open(&params, &fx->index, NULL), SPEC_OK);
    fx->bytes_empty = fixture_bytes(fx);
}

void fixture_open(struct fixture *fx, uint32_t chunk_tokens, uint64_t bytes_max)
{
    fixture_open_as(fx, chunk_tokens, bytes_max, SC_POLICY_LRU);
}

void fixture_close(struct fixture *fx)
{
    sc_radix_close(fx->index);
    assert_int_equal(atomic_load(&fx->alloc.live_bytes), 0);
    assert_int_equal(atomic_load(&fx->alloc.live_blocks), 0);
}

void fixture_check(struct fixture *fx)
{
    struct spec_error error = {.struct_size = sizeof(error)};
    if (sc_radix_check(fx->index, &error) != SPEC_OK)
        fail_msg("%s", error.text);
}

void fixture_pass_over(struct fixture *fx, struct sc_radix_ref ref)
{
    sc_radix_pass_over(fx->index, ref);
}

struct sc_radix_ref root_of(struct fixture *fx, const struct sc_sha256 *root)
{
    uint64_t steps = 0;
    uint32_t id = sc_radix_root_find(fx->index, root, &steps);
    if (id == 0)
        return (struct sc_radix_ref){0, 0};
    return (struct sc_radix_ref){id, sc_radix_node_at(fx->index, id)->generation};
}

struct sc_radix_query query_of(const struct prompt *prompt)
{
    return (struct sc_radix_query){.root = prompt->root,
                                   .tokens = prompt->tokens,
                                   .token_count = prompt->count,
                                   .marks = {prompt->marks, prompt->mark_count}};
}

struct sc_radix_match match_of(struct fixture *fx, const struct prompt *prompt)
{
    struct sc_radix_query query = query_of(prompt);
    struct sc_radix_match match;
    memset(&match, 0xa5, sizeof(match)); /* poison: proves that the call wrote it */
    sc_radix_match(fx->index, &query, NULL, 0, &match);
    return match;
}

uint64_t matched(struct fixture *fx, const struct prompt *prompt)
{
    return match_of(fx, prompt).token_count;
}

struct sc_radix_match pin_of(struct fixture *fx, const struct prompt *prompt)
{
    struct sc_radix_query query = query_of(prompt);
    struct sc_radix_match match;
    memset(&match, 0xa5, sizeof(match));
    sc_radix_match_pin(fx->index, &query, NULL, 0, &match);
    return match;
}

spec_status insert_run(struct fixture *fx, const struct prompt *prompt, uint64_t run_first,
                       uint64_t end, uint64_t piece, struct sc_radix_inserted *ret_inserted,
                       struct spec_error *reterr)
{
    struct sc_radix_insertion insertion = {
        .root = prompt->root,
        .tokens = prompt->tokens,
        .token_count = end,
        .run_first = run_first,
        .marks = {prompt->marks, prompt->mark_count},
        .value = {.piece = piece, .row_first = 0, .flags = (uint32_t)piece * 3},
    };
    return sc_radix_insert(fx->index, &insertion, ret_inserted, reterr);
}

spec_status store_from(struct fixture *fx, const struct prompt *prompt, uint64_t first,
                       uint64_t chunk_tokens, uint64_t piece)
{
    struct sc_radix_inserted inserted = {0};
    struct sc_radix_match match = match_of(fx, prompt);
    inserted.whole = match.whole;
    inserted.whole_end = match.whole_end;
    while (first < prompt->count) {
        uint64_t end = (first / chunk_tokens + 1) * chunk_tokens;
        if (end > prompt->count)
            end = prompt->count;
        struct sc_radix_insertion insertion = {
            .root = prompt->root,
            .after = inserted.whole,
            .first = inserted.whole_end,
            .tokens = prompt->tokens + inserted.whole_end,
            .token_count = end - inserted.whole_end,
            .run_first = first,
            .marks = {prompt->marks, prompt->mark_count},
            .value = {.piece = piece, .row_first = 0, .flags = (uint32_t)piece * 3},
        };
        struct spec_error error = {.struct_size = sizeof(error)};
        spec_status status = sc_radix_insert(fx->index, &insertion, &inserted, &error);
        if (status != SPEC_OK)
            return status;
        first = end;
        piece++;
    }
    return SPEC_OK;
}

void store_all(struct fixture *fx, const struct prompt *prompt, uint64_t chunk_tokens,
               uint64_t piece)
{
    assert_int_equal(store_from(fx, prompt, matched(fx, prompt), chunk_tokens, piece), SPEC_OK);
}

struct sc_radix_claim claim_of(struct fixture *fx, const struct prompt *prompt, uint64_t length)
{
    static struct sc_radix_segment segments[1024];
    struct sc_radix_match match;
    struct sc_radix_query query = query_of(prompt);
    sc_radix_match(fx->index, &query, segments, 1024, &match);
    assert_true(match.token_count >= length && match.segment_count <= 1024);
    uint64_t i = 0;
    while (segments[i].first + segments[i].count < length)
        i++;
    struct sc_radix_claim claim = {.piece = segments[i].value.piece};
    sc_radix_place_of(fx->index, &query, segments, match.segment_count, length, &claim.place);
    while (i + 1 < match.segment_count && segments[i + 1].value.piece == claim.piece)
        i++;
    claim.run = segments[i].node;
    return claim;
}
