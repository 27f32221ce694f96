/* The radix index' leaves by each order of eviction: who goes is the lowest of those that may,
 * whatever was stored, used, held, passed over and removed before. */
#include "tests/unit/hashing/radix_fixture.h"

#define CHUNK   16u
#define LENGTH  64u
#define TEXTS   40u
#define HELD    30u
#define STEPS   400u
#define LEAVES  200u
#define MIB     (UINT64_C(1) << 20)
#define NOWHERE UINT64_MAX

static const struct sc_sha256 root_a = {{11, 22}};

struct world {
    struct fixture fx;
    uint64_t seed, piece; /* piece: the last number that was given */
    uint32_t tokens[TEXTS][LENGTH];
    struct sc_radix_ref held[HELD];
    uint64_t found, none;
};

static uint64_t below(uint64_t *seed, uint64_t end)
{
    *seed = *seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (*seed >> 33) % end;
}

static void world_open(struct world *w, enum sc_policy policy, uint64_t seed)
{
    memset(w, 0, sizeof(*w));
    fixture_open_as(&w->fx, CHUNK, 8 * MIB, policy);
    w->seed = seed;
    for (uint32_t t = 0; t < TEXTS; t++) {
        uint32_t parts = (uint32_t)below(&w->seed, LENGTH);
        for (uint32_t i = 0; i < LENGTH; i++)
            w->tokens[t][i] = i < parts ? i * 7 : i * 7 + 1 + t;
    }
}

/* It is stored as far as it is not yet, and used. */
static struct sc_radix_match text_use(struct world *w, uint32_t t, uint64_t length)
{
    struct prompt prompt = {root_a, w->tokens[t], length, NULL, 0};
    struct sc_radix_match match = pin_of(&w->fx, &prompt);
    (void)store_from(&w->fx, &prompt, match.token_count, CHUNK, w->piece + 1);
    w->piece += LENGTH / CHUNK;
    return match;
}

/* The lowest rank of the leaves that may go; NOWHERE: none may. */
static uint64_t lowest_of(const struct sc_radix *index, uint64_t piece_end)
{
    uint64_t lowest = NOWHERE;
    const struct sc_radix_heap *heap = &index->heaps[SC_RADIX_HEAP_USUAL]; /* no hints here */
    for (uint64_t i = 0; i < heap->count; i++) {
        const struct sc_radix_node *node = sc_radix_node_at(index, heap->ids[i]);
        if (atomic_load(&node->pins) == 0 && sc_radix_first_child(node) == 0 &&
            sc_radix_node_piece(node) < piece_end && sc_radix_rank(node) < lowest)
            lowest = sc_radix_rank(node);
    }
    return lowest;
}

static void victim_check(struct world *w, uint64_t piece_end, bool evicts)
{
    struct sc_radix_segment leaf;
    struct sc_radix_evicted evicted;
    bool found = sc_radix_victim_below(w->fx.index, sc_radix_below(piece_end), &leaf);
    uint64_t lowest = lowest_of(w->fx.index, piece_end);
    assert_int_equal(found, lowest != NOWHERE);
    w->found += found;
    w->none += !found;
    if (!found)
        return;
    assert_true(leaf.value.piece < piece_end);
    assert_true(sc_radix_rank(sc_radix_node_at(w->fx.index, leaf.node.id)) == lowest);
    if (!evicts)
        return;
    assert_true(sc_radix_evict_leaf(w->fx.index, leaf.node, &evicted));
    assert_int_equal(evicted.segment.node.id, leaf.node.id);
    assert_false(sc_radix_evict_leaf(w->fx.index, leaf.node, &evicted)); /* it is gone */
}

static void world_step(struct world *w)
{
    uint64_t hand = below(&w->seed, HELD);
    uint32_t t = (uint32_t)below(&w->seed, TEXTS);
    struct sc_radix_match match;
    switch (below(&w->seed, 6)) {
    case 0:
    case 1:
        match = text_use(w, t, 1 + below(&w->seed, LENGTH));
        sc_radix_unpin(w->fx.index, w->held[hand]);
        w->held[hand] = match.token_count > 0 ? match.last : (struct sc_radix_ref){0};
        break;
    case 2:
        sc_radix_unpin(w->fx.index, w->held[hand]);
        w->held[hand] = (struct sc_radix_ref){0};
        break;
    case 3:
        if (w->held[hand].generation != 0)
            fixture_pass_over(&w->fx, w->held[hand]);
        break;
    default:
        victim_check(w,
                     below(&w->seed, 2) == 0 ? UINT64_MAX : w->piece - below(&w->seed, 8 * LENGTH),
                     below(&w->seed, 3) > 0);
    }
    (void)sc_radix_sweep(w->fx.index, NULL);
}

static void the_lowest_of_those_that_may_goes(void **state)
{
    (void)state;
    const enum sc_policy policies[] = {SC_POLICY_VALUE, SC_POLICY_LRU, SC_POLICY_LFU};
    for (uint64_t seed = 1; seed <= 60; seed++) {
        static struct world w;
        world_open(&w, policies[seed % 3], seed);
        w.piece = 9 * LENGTH; /* so that piece_end is above 0 */
        for (uint32_t step = 0; step < STEPS; step++) {
            world_step(&w);
            fixture_check(&w.fx);
        }
        assert_true(w.found > 0 && w.none > 0);
        for (uint32_t i = 0; i < HELD; i++)
            sc_radix_unpin(w.fx.index, w.held[i]);
        struct sc_radix_evicted evicted;
        while (sc_radix_evict(w.fx.index, &evicted))
            ;
        assert_int_equal(sc_counted(&w.fx.index->leaf_count), 0);
        fixture_close(&w.fx);
    }
}

/* ---- Value ----------------------------------------------------------------------------------- */

static uint64_t lowest_piece(struct fixture *fx)
{
    struct sc_radix_segment leaf;
    assert_true(sc_radix_victim(fx->index, &leaf));
    return leaf.value.piece;
}

static void prompt_of(uint32_t *tokens, uint32_t number, struct prompt *ret_prompt)
{
    for (uint32_t i = 0; i < CHUNK; i++)
        tokens[i] = number * 1000 + i;
    *ret_prompt = (struct prompt){root_a, tokens, CHUNK, NULL, 0};
}

static void use_again(struct fixture *fx, uint32_t number)
{
    uint32_t tokens[CHUNK];
    struct prompt prompt;
    prompt_of(tokens, number, &prompt);
    struct sc_radix_match match = pin_of(fx, &prompt);
    assert_int_equal(match.token_count, CHUNK);
    sc_radix_unpin(fx->index, match.last);
}

static void put(struct fixture *fx, uint32_t number)
{
    uint32_t tokens[CHUNK];
    struct prompt prompt;
    prompt_of(tokens, number, &prompt);
    store_all(fx, &prompt, CHUNK, number);
}

/* Eight prompts, the first used three times more: it outlives those used later, for as long as it
 * is worth more by then, and goes when it is not. */
static void what_was_used_often_stays_for_a_while(void **state)
{
    (void)state;
    struct fixture fx;
    struct sc_radix_evicted evicted;
    uint32_t next = 1;
    fixture_open_as(&fx, CHUNK, 8 * MIB, SC_POLICY_VALUE);
    for (; next <= 8; next++)
        put(&fx, next);
    for (uint32_t i = 0; i < 3; i++)
        use_again(&fx, 1);
    while (lowest_piece(&fx) != 1 && next < 100) {
        assert_true(sc_radix_evict(fx.index, &evicted));
        put(&fx, next++);
    }
    assert_in_range(next, 9 + 8, 9 + 8 * 3); /* 2 half-lives of 8, and until it is the least */
    fixture_close(&fx);
}

/* All else was used since it was stored: what has just come does not go for that, but it does when
 * nothing else may. */
static void what_has_just_come_stays(void **state)
{
    (void)state;
    const enum sc_policy policies[] = {SC_POLICY_VALUE, SC_POLICY_LRU, SC_POLICY_LFU};
    for (uint32_t p = 0; p < 3; p++) {
        struct fixture fx;
        struct sc_radix_segment leaf;
        struct sc_radix_evicted evicted;
        fixture_open_as(&fx, CHUNK, 8 * MIB, policies[p]);
        assert_false(sc_radix_victim_old(fx.index, sc_radix_below(UINT64_MAX), &leaf));
        for (uint32_t i = 1; i <= 8; i++) {
            put(&fx, i);
            use_again(&fx, i);
        }
        put(&fx, 9);
        for (uint32_t i = 1; i <= 9; i++) {
            assert_true(sc_radix_victim_old(fx.index, sc_radix_below(UINT64_MAX), &leaf));
            assert_int_equal(leaf.value.piece, i);
            assert_true(sc_radix_evict_leaf(fx.index, leaf.node, &evicted));
        }
        put(&fx, 10);
        assert_false(sc_radix_victim_old(fx.index, sc_radix_below(10), &leaf));
        assert_true(sc_radix_victim_old(fx.index, sc_radix_below(11), &leaf));
        fixture_close(&fx);
    }
}

/* A use that others know of counts from its time on, and once. With lru the piece is evicted beside
 * what was stored then; with value later, for it was used twice; with lfu last. */
static void a_use_by_others_counts_from_its_time(void **state)
{
    (void)state;
    const struct {
        enum sc_policy policy;
        uint32_t least, most; /* evicted before it */
    } cases[] = {{SC_POLICY_LRU, 2, 3}, {SC_POLICY_VALUE, 3, 6}, {SC_POLICY_LFU, 7, 7}};
    for (uint32_t p = 0; p < 3; p++) {
        struct fixture fx;
        struct sc_radix_segment leaf;
        struct sc_radix_evicted evicted;
        uint64_t then = 0;
        uint32_t before = 0;
        fixture_open_as(&fx, CHUNK, 8 * MIB, cases[p].policy);
        for (uint32_t i = 1; i <= 8; i++) {
            put(&fx, i);
            then = i == 4 ? sc_radix_time(fx.index) : then;
        }
        assert_int_equal(lowest_piece(&fx), 1);
        assert_true(sc_radix_victim(fx.index, &leaf));
        assert_true(sc_radix_used_then(fx.index, leaf.node, then));
        assert_false(sc_radix_used_then(fx.index, leaf.node, then)); /* it is known by now */
        assert_false(sc_radix_used_then(fx.index, leaf.node, 1));
        for (; lowest_piece(&fx) != 1; before++)
            assert_true(sc_radix_evict(fx.index, &evicted));
        assert_in_range(before, cases[p].least, cases[p].most);
        assert_false(sc_radix_used_then(fx.index, evicted.segment.node, UINT64_MAX)); /* stale */
        sc_radix_pass_over(fx.index, evicted.segment.node);
        fixture_check(&fx);
        fixture_close(&fx);
    }
}

/* What hung below a run counts for it, when that is gone. */
static void a_run_is_worth_what_hung_below_it(void **state)
{
    (void)state;
    struct fixture fx;
    uint32_t tokens[2 * CHUNK];
    struct sc_radix_evicted evicted;
    fixture_open_as(&fx, CHUNK, 8 * MIB, SC_POLICY_VALUE);
    for (uint32_t i = 0; i < 2 * CHUNK; i++)
        tokens[i] = i;
    struct prompt deep = {root_a, tokens, 2 * CHUNK, NULL, 0};
    store_all(&fx, &deep, CHUNK, 50);
    for (uint32_t i = 0; i < 3; i++)
        sc_radix_unpin(fx.index, pin_of(&fx, &deep).last);
    put(&fx, 1);
    assert_int_equal(lowest_piece(&fx), 1);
    struct sc_radix_match match = match_of(&fx, &deep);
    assert_int_equal(sc_radix_remove(fx.index, match.last, SC_RADIX_RUN, NULL), SPEC_OK);
    assert_int_equal(lowest_piece(&fx), 1); /* though [0, 16) was stored before, and never met */
    assert_true(sc_radix_evict(fx.index, &evicted));
    assert_int_equal(lowest_piece(&fx), 50);
    fixture_close(&fx);
}

/* More are held than can be set aside, and the one that may go is worth more than all of them. */
static void what_is_held_hides_nobody_for_long(void **state)
{
    (void)state;
    const enum sc_policy policies[] = {SC_POLICY_VALUE, SC_POLICY_LRU, SC_POLICY_LFU};
    for (uint32_t p = 0; p < 3; p++) {
        struct fixture fx;
        struct sc_radix_segment leaf;
        struct sc_radix_ref held[LEAVES];
        uint32_t tokens[CHUNK], calls = 0;
        struct prompt prompt;
        fixture_open_as(&fx, CHUNK, 8 * MIB, policies[p]);
        put(&fx, LEAVES);
        for (uint32_t i = 0; i < LEAVES; i++)
            put(&fx, i);
        for (uint32_t i = 0; i < LEAVES; i++) {
            prompt_of(tokens, i, &prompt);
            held[i] = pin_of(&fx, &prompt).last;
        }
        for (uint32_t i = 0; i < 5000; i++)
            use_again(&fx, LEAVES);
        while (!sc_radix_victim(fx.index, &leaf) && calls < 100)
            calls++;
        assert_int_equal(calls, 0);
        assert_int_equal(leaf.value.piece, LEAVES);
        fixture_check(&fx);
        for (uint32_t i = 0; i < LEAVES; i++)
            sc_radix_unpin(fx.index, held[i]);
        fixture_close(&fx);
    }
}

static void what_is_no_free_leaf_is_not_evicted(void **state)
{
    (void)state;
    struct fixture fx;
    uint32_t tokens[2 * CHUNK];
    struct sc_radix_segment segments[2];
    struct sc_radix_match match;
    struct sc_radix_evicted evicted;
    fixture_open_as(&fx, CHUNK, 8 * MIB, SC_POLICY_VALUE);
    for (uint32_t i = 0; i < 2 * CHUNK; i++)
        tokens[i] = i;
    struct prompt deep = {root_a, tokens, 2 * CHUNK, NULL, 0};
    store_all(&fx, &deep, CHUNK, 50);
    struct sc_radix_query query = query_of(&deep);
    sc_radix_match_pin(fx.index, &query, segments, 2, &match);
    assert_int_equal(match.segment_count, 2);
    assert_false(sc_radix_evict_leaf(fx.index, segments[0].node, &evicted));
    assert_false(sc_radix_evict_leaf(fx.index, segments[1].node, &evicted));
    sc_radix_unpin(fx.index, match.last);
    assert_false(sc_radix_evict_leaf(fx.index, segments[0].node, &evicted));
    assert_true(sc_radix_evict_leaf(fx.index, segments[1].node, &evicted));
    assert_true(sc_radix_evict_leaf(fx.index, segments[0].node, &evicted));
    const struct sc_radix_ref none = {0};
    assert_false(sc_radix_evict_leaf(fx.index, none, &evicted));
    fixture_close(&fx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_lowest_of_those_that_may_goes),
        cmocka_unit_test(what_was_used_often_stays_for_a_while),
        cmocka_unit_test(what_has_just_come_stays),
        cmocka_unit_test(a_use_by_others_counts_from_its_time),
        cmocka_unit_test(a_run_is_worth_what_hung_below_it),
        cmocka_unit_test(what_is_held_hides_nobody_for_long),
        cmocka_unit_test(what_is_no_free_leaf_is_not_evicted),
    };
    return cmocka_run_group_tests_name("radix policy", tests, NULL, NULL);
}
