/* What leaves the radix index by the piece and by the root: eviction tells what is left of a piece,
 * a ref finds its piece after splits, and old roots are cleared in bounded steps while new ones are
 * filled.
 *
 * Holds: work is counted in steps, never in time.
 * Threads: one. Random operations: test_radix_random.c */
#include "hashing/radix_internal.h"
#include "tests/unit/hashing/radix_case.h"

/* ---- eviction ------------------------------------------------------------------------------- */

static void eviction_says_what_is_left_of_a_piece(void **state)
{
    struct fixture *fx = *state;
    uint32_t tokens[CHUNK];
    struct prompt whole = prompt_make(tokens, CHUNK);
    struct sc_radix_inserted inserted;
    assert_int_equal(insert_run(fx, &whole, 0, CHUNK, 7, &inserted, NULL), SPEC_OK);
    uint32_t other[CHUNK];
    memcpy(other, tokens, sizeof(other));
    other[20] ^= 1;
    other[40] ^= 1;
    struct prompt parted = {root_a, other, CHUNK, NULL, 0};
    store_all(fx, &parted, CHUNK, 8); /* piece 7 is [0, 20) and [20, 64) now */
    struct sc_radix_match used = pin_of(fx, &parted);
    sc_radix_unpin(fx->index, used.last);

    struct sc_radix_evicted evicted;
    assert_true(sc_radix_evict(fx->index, &evicted)); /* the tail of 7 was used longest ago */
    assert_int_equal(evicted.segment.value.piece, 7);
    assert_int_equal(evicted.segment.first, 20);
    struct sc_radix_segment rest;
    assert_true(sc_radix_get(fx->index, evicted.rest, &rest));
    assert_int_equal(rest.value.piece, 7);
    assert_int_equal(rest.first + rest.count, 20);
    fixture_check(fx);
    assert_true(sc_radix_evict(fx->index, &evicted)); /* 8 is whole: its parent is of 7 */
    assert_int_equal(evicted.segment.value.piece, 8);
    assert_int_equal(evicted.rest.generation, 0);
    assert_true(sc_radix_evict(fx->index, &evicted)); /* the head of 7, below the root */
    assert_int_equal(evicted.segment.value.piece, 7);
    assert_int_equal(evicted.segment.first, 0);
    assert_int_equal(evicted.rest.generation, 0);
    assert_false(sc_radix_evict(fx->index, &evicted));
    assert_int_equal(stats_of(fx).roots, 0);
    fixture_check(fx);
}

static void pinned_leaves_are_passed_over_once(void **state)
{
    struct fixture *fx = *state;
    uint32_t tokens[CHUNK];
    struct prompt prompt = prompt_make(tokens, CHUNK);
    struct sc_radix_ref pins[3];
    for (uint32_t i = 0; i < 6; i++) { /* 0, 1, 2 are the oldest, and pinned */
        tokens[0] = i;
        store_all(fx, &prompt, CHUNK, i);
        if (i < 3)
            pins[i] = pin_of(fx, &prompt).last;
    }
    struct sc_radix_evicted evicted;
    uint64_t stamped = 0;
    for (uint32_t i = 3; i < 5; i++) {
        assert_true(sc_radix_evict(fx->index, &evicted));
        assert_int_equal(evicted.segment.value.piece, i);
        const struct sc_radix_node *first = sc_radix_node_at(fx->index, pins[0].id);
        assert_true(first->listed == sc_radix_rank(first));
        if (i == 3)
            stamped = first->listed;
        assert_int_equal(first->listed, stamped); /* once */
    }
    for (uint32_t i = 0; i < 3; i++)
        sc_radix_unpin(fx->index, pins[i]);
    const uint64_t order[] = {5, 0, 1, 2}; /* a lease ends where it was last seen */
    for (uint32_t i = 0; i < 4; i++) {
        assert_true(sc_radix_evict(fx->index, &evicted));
        assert_int_equal(evicted.segment.value.piece, order[i]);
        fixture_check(fx);
    }
}

static void nothing_is_evicted_when_all_is_pinned(void **state)
{
    struct fixture *fx = *state;
    uint32_t tokens[LENGTH];
    struct prompt prompt = prompt_store(fx, tokens, LENGTH, 1);
    struct sc_radix_match match = pin_of(fx, &prompt);
    struct sc_radix_evicted evicted;
    assert_false(sc_radix_evict(fx->index, &evicted));
    assert_int_equal(matched(fx, &prompt), LENGTH);
    sc_radix_unpin(fx->index, match.last);
    for (uint32_t i = 0; i < 4; i++)
        assert_true(sc_radix_evict(fx->index, &evicted));
    assert_false(sc_radix_evict(fx->index, &evicted));
}

/* ---- a piece that another process says is void ----------------------------------------------- */

static void a_ref_removes_its_piece_after_splits(void **state)
{
    struct fixture *fx = *state;
    uint32_t tokens[2 * CHUNK];
    struct prompt prompt = prompt_store(fx, tokens, 2 * CHUNK, 1);
    struct prompt first = prompt;
    first.count = CHUNK;
    struct sc_radix_ref ref = match_of(fx, &first).last;
    uint32_t other[2 * CHUNK];
    for (uint32_t at = 60; at > 0; at -= 20) { /* [0, 20) [20, 40) [40, 60) [60, 64) */
        struct prompt parted = prompt_part(&first, other, at);
        store_all(fx, &parted, CHUNK, 10 + at);
    }
    struct sc_radix_match held = pin_of(fx, &prompt);
    assert_int_equal(sc_radix_remove(fx->index, ref, SC_RADIX_PIECE, &fx->removal), SPEC_PENDING);
    assert_int_equal(matched(fx, &prompt), 0);
    fixture_check(fx);
    sc_radix_unpin(fx->index, held.last);
    assert_int_equal(sc_radix_sweep(fx->index, &fx->removal), 0);
    assert_int_equal(fx->removed_tokens, 2 * CHUNK + 4 + 24 + 44); /* and what hung below it */
    assert_int_equal(stats_of(fx).runs, 0);
}

static void the_rest_of_an_evicted_piece_is_removed_by_its_new_ref(void **state)
{
    struct fixture *fx = *state;
    uint32_t tokens[CHUNK];
    struct prompt prompt = prompt_make(tokens, CHUNK);
    struct sc_radix_inserted inserted;
    assert_int_equal(insert_run(fx, &prompt, 0, CHUNK, 7, &inserted, NULL), SPEC_OK);
    uint32_t other[CHUNK];
    struct prompt parted = prompt_part(&prompt, other, 30);
    store_all(fx, &parted, CHUNK, 8);
    struct sc_radix_evicted evicted;
    assert_true(sc_radix_evict(fx->index, &evicted));
    assert_int_equal(evicted.segment.node.id, inserted.last.id);
    assert_int_equal(sc_radix_remove(fx->index, inserted.last, SC_RADIX_PIECE, NULL), SPEC_E_STALE);
    assert_int_equal(matched(fx, &prompt), 30); /* the head is there */
    assert_int_equal(sc_radix_remove(fx->index, evicted.rest, SC_RADIX_PIECE, NULL), SPEC_OK);
    assert_int_equal(matched(fx, &prompt), 0);
    fixture_check(fx);
}

/* ---- old roots ------------------------------------------------------------------------------- */

/* 20 prompts below each of two roots, 4 runs each that part in the first chunk. */
static void fill(struct fixture *fx, uint32_t piece)
{
    uint32_t tokens[LENGTH];
    for (uint32_t i = 0; i < 40; i++) {
        make_tokens(tokens, LENGTH, 1);
        tokens[i / 2] ^= 1;
        struct prompt prompt = {i % 2 == 0 ? root_a : root_b, tokens, LENGTH, NULL, 0};
        store_all(fx, &prompt, CHUNK, piece + 4 * i);
    }
}

static void old_roots_are_unfindable_at_once_and_go_in_steps(void **state)
{
    struct fixture *fx = *state;
    uint32_t tokens[LENGTH];
    make_tokens(tokens, LENGTH, 1);
    tokens[0] ^= 1;
    struct prompt a = {root_a, tokens, LENGTH, NULL, 0};
    struct prompt b = {root_b, tokens, LENGTH, NULL, 0};
    fill(fx, 1);
    struct sc_radix_ref old = match_of(fx, &a).whole;
    uint64_t runs = stats_of(fx).runs;
    uint64_t mark = sc_radix_root_mark(fx->index);
    assert_false(sc_radix_remove_roots(fx->index, 0, 100, &fx->removal)); /* none is older */
    assert_int_equal(matched(fx, &a), LENGTH);
    assert_true(sc_radix_remove_roots(fx->index, mark, 0, &fx->removal));
    assert_int_equal(matched(fx, &a), 0);
    assert_int_equal(matched(fx, &b), 0);
    assert_int_equal(root_of(fx, &root_a).generation, 0);
    fixture_check(fx);
    struct sc_radix_inserted inserted;
    struct sc_radix_insertion below = {
        .after = old, .first = LENGTH, .tokens = tokens, .token_count = 10, .run_first = LENGTH};
    below.token_count = 256 - LENGTH;
    assert_int_equal(sc_radix_insert(fx->index, &below, &inserted, NULL), SPEC_E_STALE);
    fill(fx, 1000); /* the same prompts, below roots of the same hashes */
    assert_int_equal(matched(fx, &a), LENGTH);
    fixture_check(fx);
    uint64_t calls = 0;
    bool more = true;
    while (more) {
        uint64_t before = fx->removed_runs;
        more = sc_radix_remove_roots(fx->index, mark, 5, &fx->removal);
        assert_true(fx->removed_runs - before <= 5);
        calls++;
        if (calls % 8 == 0)
            fixture_check(fx);
    }
    assert_int_equal(fx->removed_runs, runs);
    assert_true(calls <= 2 * runs / 5 + 2); /* down to a run, and away from it */
    assert_int_equal(stats_of(fx).runs, runs);
    assert_int_equal(stats_of(fx).roots, 2);
    assert_int_equal(matched(fx, &a), LENGTH);
    assert_int_equal(matched(fx, &b), LENGTH);
    assert_false(sc_radix_remove_roots(fx->index, mark, 5, &fx->removal));
    assert_int_equal(fx->removed_runs, runs);
    fixture_check(fx);
}

static void leases_outlive_their_root(void **state)
{
    struct fixture *fx = *state;
    uint32_t tokens[LENGTH];
    make_tokens(tokens, LENGTH, 1);
    tokens[3] ^= 1;
    struct prompt held = {root_a, tokens, LENGTH, NULL, 0};
    fill(fx, 1);
    struct sc_radix_match match = pin_of(fx, &held);
    uint64_t runs = stats_of(fx).runs;
    uint64_t mark = sc_radix_root_mark(fx->index);
    while (sc_radix_remove_roots(fx->index, mark, 7, &fx->removal))
        fixture_check(fx);
    fixture_check(fx);
    struct sc_radix_segment segment;
    assert_true(sc_radix_get(fx->index, match.last, &segment));
    assert_int_equal(segment.first + segment.count, LENGTH);
    struct sc_radix_stats stats = stats_of(fx);
    assert_int_equal(stats.hidden, 1); /* the root waits as one */
    assert_int_equal(stats.roots, 1);
    assert_int_equal(stats.tokens, LENGTH); /* the way to the pin is all that is left */
    assert_int_equal(fx->removed_runs, runs - stats.runs);
    assert_int_equal(sc_radix_sweep(fx->index, &fx->removal), 1);
    sc_radix_unpin(fx->index, match.last);
    assert_int_equal(sc_radix_sweep(fx->index, &fx->removal), 0);
    assert_int_equal(fx->removed_runs, runs);
    assert_int_equal(stats_of(fx).roots, 0);
    fixture_check(fx);
}

/* Whatever else the writer removes meanwhile, the run included that the clearing stands on. */
static void other_removals_do_not_disturb_the_clearing(void **state)
{
    struct fixture *fx = *state;
    for (uint32_t turn = 0; turn < 3; turn++) {
        fx->removed_runs = 0;
        fill(fx, 1);
        uint64_t runs = stats_of(fx).runs;
        uint64_t mark = sc_radix_root_mark(fx->index);
        uint64_t evictions = 0;
        while (sc_radix_remove_roots(fx->index, mark, 3, &fx->removal)) {
            uint32_t id = fx->index->clear_at;
            struct sc_radix_evicted evicted;
            if (turn == 0 && sc_radix_evict(fx->index, &evicted)) {
                evictions++;
            } else if (turn != 0 && id != 0) {
                struct sc_radix_ref ref = {id, sc_radix_node_at(fx->index, id)->generation};
                if (turn == 2)
                    sc_radix_pin(fx->index, ref);
                spec_status status = sc_radix_remove(fx->index, ref, SC_RADIX_RUN, &fx->removal);
                assert_int_equal(status, turn == 2 ? SPEC_PENDING : SPEC_OK);
                if (turn == 2)
                    sc_radix_unpin(fx->index, ref);
            }
            fixture_check(fx);
        }
        (void)sc_radix_sweep(fx->index, &fx->removal);
        assert_int_equal(fx->removed_runs + evictions, runs);
        assert_int_equal(stats_of(fx).roots, 0);
        assert_int_equal(stats_of(fx).hidden, 0);
        fixture_check(fx);
    }
}

/* A reset while an earlier one's roots are half cleared, below a lease. */
static void a_reset_may_follow_before_the_roots_are_cleared(void **state)
{
    struct fixture *fx = *state;
    uint32_t tokens[LENGTH];
    make_tokens(tokens, LENGTH, 1);
    tokens[3] ^= 1;
    struct prompt held = {root_b, tokens, LENGTH, NULL, 0};
    for (uint64_t steps = 0; steps < 60; steps++) {
        fx->removed_runs = 0;
        fill(fx, 1);
        uint64_t runs = stats_of(fx).runs;
        struct sc_radix_match match = pin_of(fx, &held);
        (void)sc_radix_remove_roots(fx->index, sc_radix_root_mark(fx->index), steps, &fx->removal);
        fill(fx, 1000);
        uint64_t mark = sc_radix_root_mark(fx->index);
        (void)sc_radix_remove_roots(fx->index, mark, 0, &fx->removal);
        uint32_t at = fx->index->clear_at;
        while (at != 0 && !sc_radix_is_root(sc_radix_node_at(fx->index, at)))
            at = sc_radix_parent(sc_radix_node_at(fx->index, at));
        assert_true(at == 0 || at == fx->index->old_first);
        while (sc_radix_remove_roots(fx->index, mark, 7, &fx->removal))
            fixture_check(fx);
        struct sc_radix_segment segment;
        assert_true(sc_radix_get(fx->index, match.last, &segment));
        assert_int_equal(stats_of(fx).tokens, LENGTH);
        assert_int_equal(stats_of(fx).hidden, 1);
        sc_radix_unpin(fx->index, match.last);
        assert_int_equal(sc_radix_sweep(fx->index, &fx->removal), 0);
        assert_int_equal(fx->removed_runs, 2 * runs);
        assert_int_equal(stats_of(fx).roots, 0);
        fixture_check(fx);
    }
}

static void a_mark_spares_later_roots(void **state)
{
    struct fixture *fx = *state;
    uint32_t tokens[LENGTH];
    struct prompt a = prompt_make(tokens, LENGTH);
    struct prompt b = {root_b, tokens, LENGTH, NULL, 0};
    store_all(fx, &a, CHUNK, 1);
    uint64_t mark = sc_radix_root_mark(fx->index);
    store_all(fx, &b, CHUNK, 9);
    assert_int_equal(sc_radix_root_mark(fx->index), mark + 1);
    assert_false(sc_radix_remove_roots(fx->index, mark, 100, &fx->removal));
    assert_int_equal(matched(fx, &a), 0);
    assert_int_equal(matched(fx, &b), LENGTH);
    assert_int_equal(fx->removed_tokens, LENGTH);
    fixture_check(fx);
    assert_false(sc_radix_remove_roots(fx->index, mark + 1, 100, &fx->removal));
    assert_int_equal(matched(fx, &b), 0);
    assert_int_equal(stats_of(fx).roots, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(eviction_says_what_is_left_of_a_piece),
        CASE(pinned_leaves_are_passed_over_once),
        CASE(nothing_is_evicted_when_all_is_pinned),
        CASE(a_ref_removes_its_piece_after_splits),
        CASE(the_rest_of_an_evicted_piece_is_removed_by_its_new_ref),
        CASE(old_roots_are_unfindable_at_once_and_go_in_steps),
        CASE(leases_outlive_their_root),
        CASE(other_removals_do_not_disturb_the_clearing),
        CASE(a_reset_may_follow_before_the_roots_are_cleared),
        CASE(a_mark_spares_later_roots),
    };
    return cmocka_run_group_tests_name("hashing radix roots", tests, NULL, NULL);
}
