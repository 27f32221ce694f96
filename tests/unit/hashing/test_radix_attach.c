/* A prefix found by two chain hashes: at every length, with marks, over splits, and refused when it
 * is not there.
 *
 * Threads: one. Random operations: test_radix_random.c */
#include "hashing/radix_internal.h"
#include "tests/unit/hashing/radix_fixture.h"

#define CHUNK  64u
#define MIB    (UINT64_C(1) << 20)
#define LENGTH 200u

static const struct sc_hash root_a = {1, 2};
static const struct sc_mark marks[] = {{0, {5, 5}}, {70, {7, 1}}, {71, {1, 1}}, {150, {9, 9}}};

static void make_tokens(uint32_t *tokens, uint64_t count, uint32_t seed)
{
    for (uint64_t i = 0; i < count; i++)
        tokens[i] = (uint32_t)(i * 2654435761u + seed * 40503u + 1);
}

static int open_index(void **state)
{
    static struct fixture fx;
    fixture_open(&fx, CHUNK, 64 * MIB);
    *state = &fx;
    return 0;
}

static int close_index(void **state)
{
    fixture_close(*state);
    return 0;
}

/* The place that one process's lookup names. */
static struct sc_radix_place place_of(struct fixture *fx, const struct prompt *prompt,
                                      uint64_t length)
{
    struct sc_radix_segment segments[32];
    struct sc_radix_match match;
    struct sc_radix_query query = query_of(prompt);
    sc_radix_match(fx->index, &query, segments, 32, &match);
    assert_true(match.token_count >= length && match.segment_count <= 32);
    struct sc_radix_place place;
    memset(&place, 0xa5, sizeof(place));
    sc_radix_place_of(&query, segments, match.segment_count, CHUNK, length, &place);
    return place;
}

struct answer {
    uint32_t tokens[LENGTH];
    struct sc_mark marks[8];
    struct sc_radix_segment segments[32];
    struct sc_radix_attached attached;
};

static spec_status attach(struct fixture *fx, const struct sc_radix_place *place,
                          struct answer *ret_answer)
{
    memset(ret_answer, 0xa5, sizeof(*ret_answer));
    struct sc_radix_room room = {ret_answer->tokens,   LENGTH, ret_answer->marks, 8,
                                 ret_answer->segments, 32};
    return sc_radix_attach(fx->index, place, &room, &ret_answer->attached, NULL);
}

static void a_place_is_found_at_every_length(void **state)
{
    struct fixture *fx = *state;
    uint32_t tokens[LENGTH], other[LENGTH];
    make_tokens(tokens, LENGTH, 1);
    struct prompt prompt = {root_a, tokens, LENGTH, marks, 4};
    store_all(fx, &prompt, CHUNK, 1);
    for (uint32_t i = 1; i < LENGTH; i += 13) { /* others that part from it, and from each other */
        memcpy(other, tokens, sizeof(other));
        other[i] ^= 1;
        other[LENGTH - 1 - i % 8] ^= 2;
        struct prompt parted = {root_a, other, LENGTH, marks, i % 5};
        store_all(fx, &parted, CHUNK, 10 * i);
    }
    struct sc_chain chain;
    sc_chain_init(&chain, root_a, CHUNK);
    for (uint64_t length = 1; length <= LENGTH; length++) {
        (void)sc_chain_extend(&chain, tokens + length - 1, 1, marks, 4, NULL, 0);
        struct sc_radix_place place = place_of(fx, &prompt, length);
        assert_int_equal(place.length, length);
        assert_true(sc_hash_equal(place.end, sc_chain_at(&chain))); /* as the chain has it */
        assert_true(sc_hash_equal(place.border, length < CHUNK ? root_a : chain.grid));
        struct answer answer;
        assert_int_equal(attach(fx, &place, &answer), SPEC_OK);
        assert_memory_equal(answer.tokens, tokens, 4 * length);
        assert_true(sc_hash_equal(answer.attached.root, root_a));
        uint64_t mark_count = sc_chain_mark_from(marks, 4, length);
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
    make_tokens(tokens, LENGTH, 1);
    struct prompt prompt = {root_a, tokens, LENGTH, NULL, 0};
    store_all(fx, &prompt, CHUNK, 1);
    struct sc_radix_place place = place_of(fx, &prompt, 100);
    for (uint32_t at = 70; at < 120; at += 7) {
        memcpy(other, tokens, sizeof(other));
        other[at] ^= 1;
        struct prompt parted = {root_a, other, LENGTH, NULL, 0};
        store_all(fx, &parted, CHUNK, 10 * at);
        struct answer answer;
        assert_int_equal(attach(fx, &place, &answer), SPEC_OK);
        assert_memory_equal(answer.tokens, tokens, 4 * 100);
        sc_radix_unpin(fx->index, answer.attached.match.last);
    }
}

static void an_attached_prefix_is_pinned(void **state)
{
    struct fixture *fx = *state;
    uint32_t tokens[LENGTH];
    make_tokens(tokens, LENGTH, 1);
    struct prompt prompt = {root_a, tokens, LENGTH, NULL, 0};
    store_all(fx, &prompt, CHUNK, 1);
    struct sc_radix_place place = place_of(fx, &prompt, 100);
    struct answer answer;
    assert_int_equal(attach(fx, &place, &answer), SPEC_OK);
    struct sc_radix_evicted evicted;
    assert_true(sc_radix_evict(fx->index, &evicted)); /* [192, 200) and [128, 192) go */
    assert_true(sc_radix_evict(fx->index, &evicted));
    assert_false(sc_radix_evict(fx->index, &evicted));
    assert_int_equal(matched(fx, &prompt), 2 * CHUNK);
    struct sc_radix_ref root = sc_radix_find(fx->index, root_a, 0);
    assert_int_equal(
        sc_radix_remove(fx->index, root, SC_RADIX_RUN, SC_RADIX_LATER, NULL, NULL, NULL),
        SPEC_PENDING);
    struct answer second;
    assert_int_equal(attach(fx, &place, &second), SPEC_E_STALE); /* hidden: not promised again */
    sc_radix_unpin(fx->index, answer.attached.match.last);
    assert_int_equal(sc_radix_sweep(fx->index, NULL), 0);
}

static void hidden_runs_and_old_roots_are_not_attached(void **state)
{
    struct fixture *fx = *state;
    uint32_t tokens[LENGTH];
    make_tokens(tokens, LENGTH, 1);
    struct prompt prompt = {root_a, tokens, LENGTH, NULL, 0};
    store_all(fx, &prompt, CHUNK, 1);
    struct sc_radix_place deep = place_of(fx, &prompt, 195);
    struct sc_radix_place flat = place_of(fx, &prompt, 128);
    struct sc_radix_match held = pin_of(fx, &prompt);
    assert_int_equal(
        sc_radix_remove(fx->index, held.last, SC_RADIX_RUN, SC_RADIX_LATER, NULL, NULL, NULL),
        SPEC_PENDING);
    struct answer answer;
    assert_int_equal(attach(fx, &deep, &answer), SPEC_E_STALE);
    assert_int_equal(attach(fx, &flat, &answer), SPEC_OK);
    sc_radix_unpin(fx->index, answer.attached.match.last);
    uint64_t mark = sc_radix_root_mark(fx->index);
    assert_true(sc_radix_remove_roots(fx->index, mark, 0, NULL, NULL));
    assert_int_equal(attach(fx, &flat, &answer), SPEC_E_STALE);
    sc_radix_unpin(fx->index, held.last);
}

static void wrong_places_are_refused(void **state)
{
    struct fixture *fx = *state;
    uint32_t tokens[LENGTH];
    make_tokens(tokens, LENGTH, 1);
    struct prompt prompt = {root_a, tokens, LENGTH, marks, 4};
    store_all(fx, &prompt, CHUNK, 1);
    const uint64_t lengths[] = {20, 64, 100, 200};
    for (uint32_t i = 0; i < 4; i++) {
        const struct sc_radix_place good = place_of(fx, &prompt, lengths[i]);
        struct answer answer;
        struct sc_radix_place bad = good;
        bad.end.hi ^= 1;
        assert_int_equal(attach(fx, &bad, &answer), SPEC_E_STALE);
        bad = good;
        bad.border.lo ^= 1;
        assert_int_equal(attach(fx, &bad, &answer), SPEC_E_STALE);
        bad = good;
        bad.length--;
        assert_int_equal(attach(fx, &bad, &answer), SPEC_E_STALE);
        bad = good;
        bad.length = 0;
        assert_int_equal(attach(fx, &bad, &answer), SPEC_E_INVALID);
        bad.length = LENGTH + 1; /* more than there is room for */
        assert_int_equal(attach(fx, &bad, &answer), SPEC_E_INVALID);
        bad.length = UINT64_MAX;
        assert_int_equal(attach(fx, &bad, &answer), SPEC_E_INVALID);
    }
    struct sc_radix_stats stats;
    sc_radix_stats(fx->index, &stats);
    for (uint32_t i = 0; i < stats.runs; i++) { /* nothing is pinned */
        struct sc_radix_evicted evicted;
        assert_true(sc_radix_evict(fx->index, &evicted));
    }
}

static void room_is_kept_and_counts_go_on(void **state)
{
    struct fixture *fx = *state;
    uint32_t tokens[LENGTH];
    make_tokens(tokens, LENGTH, 1);
    struct prompt prompt = {root_a, tokens, LENGTH, marks, 4};
    store_all(fx, &prompt, CHUNK, 1);
    struct sc_radix_place place = place_of(fx, &prompt, 180);
    struct answer full, cut;
    assert_int_equal(attach(fx, &place, &full), SPEC_OK);
    assert_int_equal(full.attached.match.segment_count, 6); /* 0-64-70-71-128-150-180 */
    memset(&cut, 0xa5, sizeof(cut));
    const struct sc_radix_room room = {cut.tokens, 180, cut.marks, 2, cut.segments, 3};
    assert_int_equal(sc_radix_attach(fx->index, &place, &room, &cut.attached, NULL), SPEC_OK);
    assert_memory_equal(&cut.attached, &full.attached, sizeof(cut.attached));
    assert_memory_equal(cut.segments, full.segments, 3 * sizeof(full.segments[0]));
    assert_int_equal(cut.segments[3].count, UINT64_C(0xa5a5a5a5a5a5a5a5));
    assert_memory_equal(cut.marks, marks, 2 * sizeof(marks[0]));
    assert_int_equal(cut.marks[2].token, UINT64_C(0xa5a5a5a5a5a5a5a5));
    assert_int_equal(cut.tokens[180], 0xa5a5a5a5);
    sc_radix_unpin(fx->index, full.attached.match.last);
    sc_radix_unpin(fx->index, cut.attached.match.last);
}

static void a_search_inside_a_chunk_is_bounded(void **state)
{
    struct fixture *fx = *state;
    uint32_t tokens[CHUNK + 2];
    make_tokens(tokens, CHUNK + 2, 1);
    struct prompt prompt = {root_a, tokens, CHUNK + 2, NULL, 0};
    struct sc_radix_place place = {.length = 0};
    for (uint32_t i = 0; i < SC_RADIX_ATTACH_RUNS_MAX + 10; i++) {
        tokens[CHUNK] = i;
        store_all(fx, &prompt, CHUNK, i);
        if (i == 1) /* new ones stand behind the first: this one moves to the end */
            place = place_of(fx, &prompt, CHUNK + 1);
        struct answer answer;
        if (i == SC_RADIX_ATTACH_RUNS_MAX - 1) {
            assert_int_equal(attach(fx, &place, &answer), SPEC_OK);
            assert_int_equal(answer.attached.match.steps, SC_RADIX_ATTACH_RUNS_MAX);
            sc_radix_unpin(fx->index, answer.attached.match.last);
        }
    }
    struct answer answer;
    assert_int_equal(attach(fx, &place, &answer), SPEC_E_STALE); /* a miss, not a wrong answer */
    place = place_of(fx, &prompt, CHUNK + 1);
    assert_int_equal(attach(fx, &place, &answer), SPEC_OK); /* the newest is near */
    sc_radix_unpin(fx->index, answer.attached.match.last);
}

static spec_status attach_at(struct fixture *fx, struct sc_radix_ref run,
                             const struct sc_radix_place *place, struct answer *ret_answer)
{
    memset(ret_answer, 0xa5, sizeof(*ret_answer));
    struct sc_radix_room room = {ret_answer->tokens,   LENGTH, ret_answer->marks, 8,
                                 ret_answer->segments, 32};
    return sc_radix_attach_at(fx->index, run, place, &room, &ret_answer->attached, NULL);
}

/* Who held a pin when it was removed attaches at every length, and at no wrong place. */
static void a_removed_run_that_is_pinned_is_attached_at(void **state)
{
    struct fixture *fx = *state;
    uint32_t tokens[LENGTH], other[LENGTH];
    make_tokens(tokens, LENGTH, 1);
    struct prompt prompt = {root_a, tokens, LENGTH, marks, 4};
    store_all(fx, &prompt, CHUNK, 1);
    memcpy(other, tokens, sizeof(other));
    other[100] ^= 1; /* splits a run */
    struct prompt parted = {root_a, other, LENGTH, marks, 4};
    store_all(fx, &parted, CHUNK, 10);
    struct sc_radix_place places[LENGTH + 1];
    for (uint64_t length = 1; length <= LENGTH; length++)
        places[length] = place_of(fx, &prompt, length);
    struct sc_radix_match match;
    struct sc_radix_query query = query_of(&prompt);
    struct sc_radix_segment first;
    sc_radix_match_pin(fx->index, &query, &first, 1, &match);
    assert_int_equal(
        sc_radix_remove(fx->index, first.node, SC_RADIX_RUN, SC_RADIX_LATER, NULL, NULL, NULL),
        SPEC_PENDING);
    store_all(fx, &parted, CHUNK, 20); /* the same tokens anew, in other runs */
    for (uint64_t length = 1; length <= LENGTH; length++) {
        struct answer answer;
        assert_int_equal(attach_at(fx, match.last, &places[length], &answer), SPEC_OK);
        assert_memory_equal(answer.tokens, tokens, 4 * length);
        assert_int_equal(answer.attached.match.token_count, length);
        assert_int_equal(answer.attached.mark_count, sc_chain_mark_from(marks, 4, length));
        assert_int_equal(answer.segments[0].value.piece, first.value.piece);
        sc_radix_unpin(fx->index, answer.attached.match.last);
        struct sc_radix_place wrong = places[length];
        wrong.end.lo ^= 1;
        assert_int_equal(attach_at(fx, match.last, &wrong, &answer), SPEC_E_STALE);
        wrong = places[length];
        wrong.border.hi ^= 1;
        assert_int_equal(attach_at(fx, match.last, &wrong, &answer), SPEC_E_STALE);
        wrong = places[length];
        wrong.length += length < LENGTH ? 1 : CHUNK;
        assert_int_not_equal(attach_at(fx, match.last, &wrong, &answer), SPEC_OK);
    }
    sc_radix_unpin(fx->index, match.last);
    assert_int_equal(sc_radix_sweep(fx->index, NULL), 0);
    struct answer answer;
    assert_int_equal(attach_at(fx, match.last, &places[LENGTH], &answer), SPEC_E_STALE);
    fixture_check(fx);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, open_index, close_index)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(a_place_is_found_at_every_length),   CASE(a_place_stays_good_over_splits),
        CASE(an_attached_prefix_is_pinned),       CASE(hidden_runs_and_old_roots_are_not_attached),
        CASE(wrong_places_are_refused),           CASE(room_is_kept_and_counts_go_on),
        CASE(a_search_inside_a_chunk_is_bounded), CASE(a_removed_run_that_is_pinned_is_attached_at),
    };
    return cmocka_run_group_tests_name("hashing radix attach", tests, NULL, NULL);
}
