/* A prefix found by the piece that ends it: at every length, with marks, over splits, and refused
 * when it is not there, or other tokens are.
 *
 * Threads: one. Random operations: test_radix_random.c */
#include "hashing/radix_internal.h"
#include "tests/unit/hashing/radix_case.h"

static const struct sc_mark marks[] = {
    {0, {{5, 5}}}, {70, {{7, 1}}}, {71, {{1, 1}}}, {150, {{9, 9}}}};

/* A prompt of LENGTH tokens with the marks, stored from piece 1 on. */
static struct prompt marked_store(struct fixture *fx, uint32_t *tokens)
{
    struct prompt prompt = prompt_make(tokens, LENGTH);
    prompt.marks = marks;
    prompt.mark_count = 4;
    store_all(fx, &prompt, CHUNK, 1);
    return prompt;
}

struct answer {
    uint32_t tokens[LENGTH];
    struct sc_mark marks[8];
    struct sc_radix_segment segments[32];
    struct sc_radix_attached attached;
};

static spec_status attach(struct fixture *fx, const struct sc_radix_claim *claim,
                          struct answer *ret_answer)
{
    memset(ret_answer, 0xa5, sizeof(*ret_answer));
    struct sc_radix_room room = {ret_answer->tokens,   LENGTH, ret_answer->marks, 8,
                                 ret_answer->segments, 32};
    return sc_radix_attach(fx->index, claim, &room, &ret_answer->attached, NULL);
}

static void a_place_is_found_at_every_length(void **state)
{
    struct fixture *fx = *state;
    uint32_t tokens[LENGTH], other[LENGTH];
    struct prompt prompt = marked_store(fx, tokens);
    for (uint32_t i = 1; i < LENGTH; i += 13) { /* others that part from it, and from each other */
        memcpy(other, tokens, sizeof(other));
        other[i] ^= 1;
        other[LENGTH - 1 - i % 8] ^= 2;
        struct prompt parted = {root_a, other, LENGTH, marks, i % 5};
        store_all(fx, &parted, CHUNK, 10 * i);
    }
    struct sc_chain chain;
    sc_chain_init(&chain, sc_radix_secret(fx->index), &root_a, CHUNK);
    for (uint64_t length = 1; length <= LENGTH; length++) {
        sc_chain_extend(&chain, tokens + length - 1, 1, (struct sc_marks){marks, 4});
        struct sc_radix_claim claim = claim_of(fx, &prompt, length);
        const struct sc_radix_place place = claim.place;
        assert_int_equal(place.length, length);
        assert_true(sc_hash_equal(place.end, sc_chain_at(&chain))); /* as the chain has it */
        assert_true(
            sc_hash_equal(place.border, length < CHUNK ? sc_sha256_short(&root_a) : chain.grid));
        struct answer answer;
        assert_int_equal(attach(fx, &claim, &answer), SPEC_OK);
        assert_memory_equal(answer.tokens, tokens, 4 * length);
        assert_true(sc_sha256_equal(&answer.attached.root, &root_a));
        uint64_t mark_count = sc_chain_mark_from((struct sc_marks){marks, 4}, length);
        assert_int_equal(answer.attached.mark_count, mark_count);
        assert_memory_equal(answer.marks, marks, mark_count * sizeof(marks[0]));
        struct sc_radix_segment segments[32];
        struct sc_radix_match match;
        struct sc_radix_query query = query_of(&prompt);
        query.token_count = length;
        sc_radix_match(fx->index, &query, segments, 32, &match);
        assert_int_equal(answer.attached.match.segment_count, match.segment_count);
        assert_memory_equal(answer.segments, segments, match.segment_count * sizeof(segments[0]));
        assert_int_equal(sc_radix_node_at(fx->index, match.last.id)->pins, 1);
        assert_int_equal(answer.attached.match.last.id, match.last.id);
        sc_radix_unpin(fx->index, answer.attached.match.last);
        fixture_check(fx);
    }
}

static void a_place_stays_good_over_splits(void **state)
{
    struct fixture *fx = *state;
    uint32_t tokens[LENGTH], other[LENGTH];
    struct prompt prompt = prompt_store(fx, tokens, LENGTH, 1);
    struct sc_radix_claim claim = claim_of(fx, &prompt, 100);
    for (uint32_t at = 70; at < 120; at += 7) {
        struct prompt parted = prompt_part(&prompt, other, at);
        store_all(fx, &parted, CHUNK, 10 * at);
        struct answer answer;
        assert_int_equal(attach(fx, &claim, &answer), SPEC_OK);
        assert_memory_equal(answer.tokens, tokens, 4 * 100);
        sc_radix_unpin(fx->index, answer.attached.match.last);
    }
}

static void an_attached_prefix_is_pinned(void **state)
{
    struct fixture *fx = *state;
    uint32_t tokens[LENGTH];
    struct prompt prompt = prompt_store(fx, tokens, LENGTH, 1);
    struct sc_radix_claim claim = claim_of(fx, &prompt, 100);
    struct answer answer;
    assert_int_equal(attach(fx, &claim, &answer), SPEC_OK);
    struct sc_radix_evicted evicted;
    assert_true(sc_radix_evict(fx->index, &evicted)); /* [192, 200) and [128, 192) go */
    assert_true(sc_radix_evict(fx->index, &evicted));
    assert_false(sc_radix_evict(fx->index, &evicted));
    assert_int_equal(matched(fx, &prompt), 2 * CHUNK);
    struct sc_radix_ref root = root_of(fx, &root_a);
    assert_int_equal(sc_radix_remove(fx->index, root, SC_RADIX_RUN, NULL), SPEC_PENDING);
    struct answer second;
    assert_int_equal(attach(fx, &claim, &second), SPEC_E_STALE); /* hidden: not promised again */
    sc_radix_unpin(fx->index, answer.attached.match.last);
    assert_int_equal(sc_radix_sweep(fx->index, NULL), 0);
}

static void hidden_runs_and_old_roots_are_not_attached(void **state)
{
    struct fixture *fx = *state;
    uint32_t tokens[LENGTH];
    struct prompt prompt = prompt_store(fx, tokens, LENGTH, 1);
    struct sc_radix_claim deep = claim_of(fx, &prompt, 195);
    struct sc_radix_claim flat = claim_of(fx, &prompt, 128);
    struct sc_radix_match held = pin_of(fx, &prompt);
    assert_int_equal(sc_radix_remove(fx->index, held.last, SC_RADIX_RUN, NULL), SPEC_PENDING);
    struct answer answer;
    assert_int_equal(attach(fx, &deep, &answer), SPEC_E_STALE);
    assert_int_equal(attach(fx, &flat, &answer), SPEC_OK);
    sc_radix_unpin(fx->index, answer.attached.match.last);
    uint64_t mark = sc_radix_root_mark(fx->index);
    assert_true(sc_radix_remove_roots(fx->index, mark, 0, NULL));
    assert_int_equal(attach(fx, &flat, &answer), SPEC_E_STALE);
    sc_radix_unpin(fx->index, held.last);
}

static void wrong_places_are_refused(void **state)
{
    struct fixture *fx = *state;
    uint32_t tokens[LENGTH];
    struct prompt prompt = marked_store(fx, tokens);
    const uint64_t lengths[] = {20, 64, 100, 200};
    for (uint32_t i = 0; i < 4; i++) {
        const struct sc_radix_claim good = claim_of(fx, &prompt, lengths[i]);
        struct answer answer;
        struct sc_radix_claim bad = good;
        bad.place.end.hi ^= 1;
        assert_int_equal(attach(fx, &bad, &answer), SPEC_E_STALE);
        bad = good;
        bad.place.border.lo ^= 1;
        assert_int_equal(attach(fx, &bad, &answer), SPEC_E_STALE);
        bad = good;
        bad.place.length--;
        assert_int_equal(attach(fx, &bad, &answer), SPEC_E_STALE);
        bad = good;
        bad.place.length = 0;
        assert_int_equal(attach(fx, &bad, &answer), SPEC_E_INVALID);
        bad.place.length = LENGTH + 1; /* more than there is room for */
        assert_int_equal(attach(fx, &bad, &answer), SPEC_E_INVALID);
        bad.place.length = UINT64_MAX;
        assert_int_equal(attach(fx, &bad, &answer), SPEC_E_INVALID);
    }
    for (uint64_t i = 0, runs = stats_of(fx).runs; i < runs; i++) { /* nothing is pinned */
        struct sc_radix_evicted evicted;
        assert_true(sc_radix_evict(fx->index, &evicted));
    }
}

static void room_is_kept_and_counts_go_on(void **state)
{
    struct fixture *fx = *state;
    uint32_t tokens[LENGTH];
    struct prompt prompt = marked_store(fx, tokens);
    struct sc_radix_claim claim = claim_of(fx, &prompt, 180);
    struct answer full, cut;
    assert_int_equal(attach(fx, &claim, &full), SPEC_OK);
    assert_int_equal(full.attached.match.segment_count, 6); /* 0-64-70-71-128-150-180 */
    memset(&cut, 0xa5, sizeof(cut));
    const struct sc_radix_room room = {cut.tokens, 180, cut.marks, 2, cut.segments, 3};
    assert_int_equal(sc_radix_attach(fx->index, &claim, &room, &cut.attached, NULL), SPEC_OK);
    assert_memory_equal(&cut.attached, &full.attached, sizeof(cut.attached));
    assert_memory_equal(cut.segments, full.segments, 3 * sizeof(full.segments[0]));
    assert_int_equal(cut.segments[3].count, UINT64_C(0xa5a5a5a5a5a5a5a5));
    assert_memory_equal(cut.marks, marks, 2 * sizeof(marks[0]));
    assert_int_equal(cut.marks[2].token, UINT64_C(0xa5a5a5a5a5a5a5a5));
    assert_int_equal(cut.tokens[180], 0xa5a5a5a5);
    sc_radix_unpin(fx->index, full.attached.match.last);
    sc_radix_unpin(fx->index, cut.attached.match.last);
}

/* Two prompts with one chain, which only one who has the secret can make: a lease on what was there
 * is none on what stands in its place. */
static void another_prefix_with_the_same_hashes_is_not_attached(void **state)
{
    struct fixture *fx = *state;
    uint32_t tokens[CHUNK], other[CHUNK];
    make_tokens(tokens, CHUNK, 1);
    make_tokens(other, CHUNK, 2);
    struct prompt a = {root_a, tokens, CHUNK, NULL, 0};
    struct prompt b = {root_a, other, CHUNK, NULL, 0};
    store_all(fx, &a, CHUNK, 1);
    const struct sc_radix_claim on_a = claim_of(fx, &a, CHUNK);
    struct sc_radix_evicted evicted;
    assert_true(sc_radix_evict(fx->index, &evicted));
    store_all(fx, &b, CHUNK, 2);
    struct sc_radix_claim on_b = claim_of(fx, &b, CHUNK);
    struct sc_radix_node *node = sc_radix_node_at(fx->index, on_b.run.id);
    struct sc_radix_table *table = atomic_load(&fx->index->chunks);
    struct sc_hash own = node->hash;
    sc_radix_table_remove(table, sc_radix_chunk_hash(own), on_b.run.id);
    node->hash = on_a.place.end;
    sc_radix_table_put(table, sc_radix_chunk_hash(node->hash), on_b.run.id);
    on_b.place = on_a.place;
    struct answer answer;
    assert_int_equal(attach(fx, &on_a, &answer), SPEC_E_STALE); /* its run has gone */
    on_b.piece = on_a.piece;
    assert_int_equal(attach(fx, &on_b, &answer), SPEC_E_STALE); /* not of its piece */
    on_b.piece = 2;
    assert_int_equal(attach(fx, &on_b, &answer), SPEC_OK);
    assert_memory_equal(answer.tokens, other, sizeof(other));
    sc_radix_unpin(fx->index, answer.attached.match.last);
    sc_radix_table_remove(table, sc_radix_chunk_hash(node->hash), on_b.run.id);
    node->hash = own;
    sc_radix_table_put(table, sc_radix_chunk_hash(own), on_b.run.id);
    fixture_check(fx);
}

/* To recall gives the same, and changes nothing. */
static void what_is_recalled_is_not_pinned(void **state)
{
    struct fixture *fx = *state;
    uint32_t tokens[LENGTH];
    struct prompt prompt = marked_store(fx, tokens);
    struct sc_radix_claim claim = claim_of(fx, &prompt, 180);
    struct answer pinned, recalled;
    assert_int_equal(attach(fx, &claim, &pinned), SPEC_OK);
    sc_radix_unpin(fx->index, pinned.attached.match.last);
    memset(&recalled, 0xa5, sizeof(recalled));
    struct sc_radix_room room = {recalled.tokens, LENGTH, recalled.marks, 8, recalled.segments, 32};
    assert_int_equal(sc_radix_recall(fx->index, &claim, &room, &recalled.attached, NULL), SPEC_OK);
    assert_memory_equal(&recalled, &pinned, sizeof(pinned));
    struct sc_radix_evicted evicted;
    while (sc_radix_evict(fx->index, &evicted))
        continue;
    assert_int_equal(stats_of(fx).runs, 0);
    assert_int_equal(sc_radix_recall(fx->index, &claim, &room, &recalled.attached, NULL),
                     SPEC_E_STALE);
}

/* Who held a pin when it was removed attaches at every length, and at no wrong place. */
static void a_removed_run_that_is_pinned_is_attached_at(void **state)
{
    struct fixture *fx = *state;
    uint32_t tokens[LENGTH], other[LENGTH];
    struct prompt prompt = marked_store(fx, tokens);
    struct prompt parted = prompt_part(&prompt, other, 100); /* splits a run */
    store_all(fx, &parted, CHUNK, 10);
    struct sc_radix_claim claims[LENGTH + 1];
    for (uint64_t length = 1; length <= LENGTH; length++)
        claims[length] = claim_of(fx, &prompt, length);
    struct sc_radix_match match;
    struct sc_radix_query query = query_of(&prompt);
    struct sc_radix_segment first;
    sc_radix_match_pin(fx->index, &query, &first, 1, &match);
    assert_int_equal(sc_radix_remove(fx->index, first.node, SC_RADIX_RUN, NULL), SPEC_PENDING);
    store_all(fx, &parted, CHUNK, 20); /* the same tokens anew, in other runs */
    for (uint64_t length = 1; length <= LENGTH; length++) {
        struct answer answer;
        assert_int_equal(attach(fx, &claims[length], &answer), SPEC_E_STALE); /* not said: hidden */
        claims[length].is_kept = true;
        assert_int_equal(attach(fx, &claims[length], &answer), SPEC_OK);
        assert_memory_equal(answer.tokens, tokens, 4 * length);
        assert_int_equal(answer.attached.match.token_count, length);
        assert_int_equal(answer.attached.mark_count,
                         sc_chain_mark_from((struct sc_marks){marks, 4}, length));
        assert_int_equal(answer.segments[0].value.piece, first.value.piece);
        sc_radix_unpin(fx->index, answer.attached.match.last);
        struct sc_radix_claim wrong = claims[length];
        wrong.place.end.lo ^= 1;
        assert_int_equal(attach(fx, &wrong, &answer), SPEC_E_STALE);
        wrong = claims[length];
        wrong.place.border.hi ^= 1;
        assert_int_equal(attach(fx, &wrong, &answer), SPEC_E_STALE);
        wrong = claims[length];
        wrong.piece += 10;
        assert_int_equal(attach(fx, &wrong, &answer), SPEC_E_STALE);
        wrong = claims[length];
        wrong.place.length += length < LENGTH ? 1 : CHUNK;
        assert_int_not_equal(attach(fx, &wrong, &answer), SPEC_OK);
    }
    sc_radix_unpin(fx->index, match.last);
    assert_int_equal(sc_radix_sweep(fx->index, NULL), 0);
    struct answer answer;
    assert_int_equal(attach(fx, &claims[LENGTH], &answer), SPEC_E_STALE);
    fixture_check(fx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(a_place_is_found_at_every_length),
        CASE(a_place_stays_good_over_splits),
        CASE(an_attached_prefix_is_pinned),
        CASE(hidden_runs_and_old_roots_are_not_attached),
        CASE(wrong_places_are_refused),
        CASE(room_is_kept_and_counts_go_on),
        CASE(another_prefix_with_the_same_hashes_is_not_attached),
        CASE(what_is_recalled_is_not_pinned),
        CASE(a_removed_run_that_is_pinned_is_attached_at),
    };
    return cmocka_run_group_tests_name("hashing radix attach", tests, NULL, NULL);
}
