/* What the tests of the radix index share: an index over a fault-injecting allocator, and prompts
 * stored chunk by chunk as an engine does. */
#ifndef SC_TEST_RADIX_FIXTURE_H
#define SC_TEST_RADIX_FIXTURE_H

#include "base/fault.h"
#include "hashing/radix_internal.h"
#include "tests/sim/radix_check.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const uint8_t FIXTURE_SECRET[SC_CHAIN_SECRET_BYTES] = {7, 1, 4};

struct fixture {
    struct sc_fault fault;
    struct sc_alloc alloc;
    struct sc_radix *index;
    uint64_t bytes_empty;
    uint64_t removed_runs;
    uint64_t removed_tokens;
    struct sc_radix_segment removed_last;
    struct sc_radix_removal removal;
};

static inline void fixture_note(const struct sc_radix_segment *segment, void *user)
{
    struct fixture *fx = user;
    fx->removed_runs++;
    fx->removed_tokens += segment->count;
    fx->removed_last = *segment;
}

static inline uint64_t fixture_bytes(struct fixture *fx)
{
    struct sc_radix_stats stats;
    sc_radix_stats(fx->index, &stats);
    return stats.bytes;
}

static inline void fixture_open(struct fixture *fx, uint32_t chunk_tokens, uint64_t bytes_max)
{
    memset(fx, 0, sizeof(*fx));
    sc_fault_init(&fx->fault);
    sc_alloc_init(&fx->alloc);
    fx->alloc.fault = &fx->fault;
    fx->removal = (struct sc_radix_removal){fixture_note, fx};
    struct sc_radix_params params = {.alloc = &fx->alloc,
                                     .chunk_tokens = chunk_tokens,
                                     .bytes_max = bytes_max,
                                     .secret = FIXTURE_SECRET};
    assert_int_equal(sc_radix_open(&params, &fx->index, NULL), SPEC_OK);
    fx->bytes_empty = fixture_bytes(fx);
}

static inline void fixture_close(struct fixture *fx)
{
    sc_radix_close(fx->index);
    assert_int_equal(atomic_load(&fx->alloc.live_bytes), 0);
    assert_int_equal(atomic_load(&fx->alloc.live_blocks), 0);
}

static inline void fixture_check(struct fixture *fx)
{
    struct spec_error error = {.struct_size = sizeof(error)};
    if (sc_radix_check(fx->index, &error) != SPEC_OK)
        fail_msg("%s", error.text);
}

/* A prompt: what a query and an insertion need. */
struct prompt {
    struct sc_sha256 root;
    const uint32_t *tokens;
    uint64_t count;
    const struct sc_mark *marks;
    uint64_t mark_count;
};

/* None: no such root can be found. */
static inline struct sc_radix_ref root_of(struct fixture *fx, const struct sc_sha256 *root)
{
    uint64_t steps = 0;
    uint32_t id = sc_radix_root_find(fx->index, root, &steps);
    if (id == 0)
        return (struct sc_radix_ref){0, 0};
    return (struct sc_radix_ref){id, sc_radix_node_at(fx->index, id)->generation};
}

static inline struct sc_radix_query query_of(const struct prompt *prompt)
{
    return (struct sc_radix_query){.root = prompt->root,
                                   .tokens = prompt->tokens,
                                   .token_count = prompt->count,
                                   .marks = {prompt->marks, prompt->mark_count}};
}

static inline struct sc_radix_match match_of(struct fixture *fx, const struct prompt *prompt)
{
    struct sc_radix_query query = query_of(prompt);
    struct sc_radix_match match;
    memset(&match, 0xa5, sizeof(match)); /* poison: proves that the call wrote it */
    sc_radix_match(fx->index, &query, NULL, 0, &match);
    return match;
}

static inline uint64_t matched(struct fixture *fx, const struct prompt *prompt)
{
    return match_of(fx, prompt).token_count;
}

static inline struct sc_radix_match pin_of(struct fixture *fx, const struct prompt *prompt)
{
    struct sc_radix_query query = query_of(prompt);
    struct sc_radix_match match;
    memset(&match, 0xa5, sizeof(match));
    sc_radix_match_pin(fx->index, &query, NULL, 0, &match);
    return match;
}

/* Inserts [run_first, end) of the prompt, which lies in one chunk, below the root. */
static inline spec_status insert_run(struct fixture *fx, const struct prompt *prompt,
                                     uint64_t run_first, uint64_t end, uint64_t piece,
                                     struct sc_radix_inserted *ret_inserted,
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

/* Stores tokens [first, count) as an engine does: one piece a chunk, each below the last. Piece
 * numbers count up from `piece`. Returns the first status that is not OK. */
static inline spec_status store_from(struct fixture *fx, const struct prompt *prompt,
                                     uint64_t first, uint64_t chunk_tokens, uint64_t piece)
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

static inline void store_all(struct fixture *fx, const struct prompt *prompt, uint64_t chunk_tokens,
                             uint64_t piece)
{
    assert_int_equal(store_from(fx, prompt, matched(fx, prompt), chunk_tokens, piece), SPEC_OK);
}

/* What a lease on the prompt's first tokens claims, of what is stored of it. */
static inline struct sc_radix_claim claim_of(struct fixture *fx, const struct prompt *prompt,
                                             uint64_t length)
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

#endif
