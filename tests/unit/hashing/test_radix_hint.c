/* Hints of the radix index: by priority, and what is kept for some time after all that is not. */
#include "tests/unit/hashing/radix_fixture.h"

#include <pthread.h>

#define CHUNK  16u
#define LEAVES 200u
#define MAX    ((int32_t)SC_RADIX_PRIORITY_MAX)

static const struct sc_sha256 root_a = {{11, 22}};

static uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return x ^ (x >> 31);
}

static void make_tokens(uint32_t *tokens, uint64_t count, uint32_t seed)
{
    for (uint64_t i = 0; i < count; i++)
        tokens[i] = (uint32_t)mix(seed * 1000003ull + i + 1);
}

/* A leaf below the root, whose piece is its number. */
static void put(struct fixture *fx, uint32_t number, uint32_t hint)
{
    uint32_t tokens[CHUNK];
    struct sc_radix_inserted inserted;
    make_tokens(tokens, CHUNK, number);
    const struct sc_radix_insertion insertion = {.root = root_a,
                                                 .tokens = tokens,
                                                 .token_count = CHUNK,
                                                 .value = {number, 0, 0},
                                                 .hint = hint};
    assert_int_equal(sc_radix_insert(fx->index, &insertion, &inserted, NULL), SPEC_OK);
}

static struct sc_radix_ref pin(struct fixture *fx, uint32_t number, uint32_t hint)
{
    uint32_t tokens[CHUNK];
    make_tokens(tokens, CHUNK, number);
    const struct sc_radix_query query = {
        .root = root_a, .tokens = tokens, .token_count = CHUNK, .hint = hint};
    struct sc_radix_match match;
    sc_radix_match_pin(fx->index, &query, NULL, 0, &match);
    assert_int_equal(match.token_count, CHUNK);
    return match.last;
}

static void use(struct fixture *fx, uint32_t number, uint32_t hint)
{
    sc_radix_unpin(fx->index, pin(fx, number, hint));
}

static uint64_t evicted(struct fixture *fx)
{
    struct sc_radix_segment victim;
    struct sc_radix_evicted gone;
    assert_true(sc_radix_victim(fx->index, &victim));
    assert_true(sc_radix_evict(fx->index, &gone));
    assert_int_equal(gone.segment.value.piece, victim.value.piece);
    fixture_check(fx);
    return gone.segment.value.piece;
}

static struct fixture *opened(struct fixture *fx)
{
    memset(fx, 0, sizeof(*fx));
    fixture_open(fx, CHUNK, 8u << 20);
    return fx;
}

static void the_lowest_priority_goes_first(void **state)
{
    (void)state;
    struct fixture memory, *fx = opened(&memory);
    static const int32_t PRIORITIES[] = {0, 3, -1, 0, -3, 1, -1};
    static const uint64_t ORDER[] = {4, 2, 6, 0, 3, 5, 1};
    for (uint32_t i = 0; i < 7; i++)
        put(fx, i, PRIORITIES[i] == 0 ? 0 : sc_radix_hint(PRIORITIES[i], 0));
    for (uint32_t i = 0; i < 7; i++)
        assert_int_equal(evicted(fx), ORDER[i]);
    fixture_close(fx);
}

static void what_is_kept_goes_last_until_its_time_is_over(void **state)
{
    (void)state;
    struct fixture memory, *fx = opened(&memory);
    sc_radix_clock_set(fx->index, 1000);
    put(fx, 0, sc_radix_hint(-3, 5000));
    put(fx, 1, sc_radix_hint(0, 2000));
    put(fx, 2, sc_radix_hint(3, 3000));
    for (uint32_t i = 3; i < 8; i++)
        put(fx, i, 0);
    assert_int_equal(evicted(fx), 3);
    sc_radix_clock_set(fx->index, 2100); /* 1 is as any other, and older */
    assert_int_equal(evicted(fx), 1);
    use(fx, 2, sc_radix_hint(0, 4000)); /* renewed */
    sc_radix_clock_set(fx->index, 3100);
    for (uint32_t i = 4; i < 7; i++)
        assert_int_equal(evicted(fx), i);
    assert_int_equal(evicted(fx), 7);
    assert_int_equal(evicted(fx), 2); /* nothing else is left: whose time is over first */
    put(fx, 8, 0);
    sc_radix_clock_set(fx->index, 5100);
    assert_int_equal(evicted(fx), 0); /* its priority holds again */
    sc_radix_clock_set(fx->index, 1); /* no clock goes back */
    assert_int_equal(evicted(fx), 8);
    fixture_close(fx);
}

/* Time is kept in units of 16 s: the one in which it is over counts. */
static void what_is_kept_is_kept_to_its_last_second(void **state)
{
    (void)state;
    struct fixture memory, *fx = opened(&memory);
    put(fx, 0, sc_radix_hint(0, 40));
    put(fx, 1, 0);
    put(fx, 2, 0);
    sc_radix_clock_set(fx->index, 39);
    assert_int_equal(evicted(fx), 1);
    sc_radix_clock_set(fx->index, 48);
    assert_int_equal(evicted(fx), 0);
    fixture_close(fx);
}

/* A match raises runs before there is a heap for what they are now, which an insertion makes. */
static void what_is_retained_keeps_its_priority_meanwhile(void **state)
{
    (void)state;
    struct fixture memory, *fx = opened(&memory);
    put(fx, 0, sc_radix_hint(2, 0));
    put(fx, 1, sc_radix_hint(2, 0));
    put(fx, 2, sc_radix_hint(1, 0));
    put(fx, 3, sc_radix_hint(1, 0));
    use(fx, 0, sc_radix_hint(0, 5000));
    use(fx, 1, sc_radix_hint(3, 0));
    fixture_check(fx);
    assert_int_equal(evicted(fx), 2);
    assert_int_equal(evicted(fx), 3);
    put(fx, 4, sc_radix_hint(2, 0));
    assert_int_equal(evicted(fx), 4);
    assert_int_equal(evicted(fx), 1);
    assert_int_equal(evicted(fx), 0);
    fixture_close(fx);
}

static void a_hint_raises_and_never_lowers(void **state)
{
    (void)state;
    struct fixture memory, *fx = opened(&memory);
    put(fx, 0, sc_radix_hint(2, 0));
    put(fx, 1, sc_radix_hint(-2, 0));
    put(fx, 2, 0);
    put(fx, 3, sc_radix_hint(-2, 0));
    put(fx, 4, sc_radix_hint(-2, 0));
    use(fx, 0, sc_radix_hint(-3, 0));
    use(fx, 1, 0); /* who says nothing is a usual one */
    use(fx, 2, sc_radix_hint(-3, 0));
    use(fx, 3, sc_radix_hint(-1, 0));
    put(fx, 4, sc_radix_hint(1, 0)); /* it is there */
    put(fx, 5, 0);                   /* heaps of priorities are made by insertions */
    static const uint64_t ORDER[] = {3, 1, 2, 5, 4, 0};
    for (uint32_t i = 0; i < 6; i++)
        assert_int_equal(evicted(fx), ORDER[i]);
    fixture_close(fx);
}

/* A prefix is worth what hung on it: also where that was removed or hidden, and where a run is
 * split.
 */
static void a_parent_is_kept_as_what_was_below_it(void **state)
{
    (void)state;
    struct fixture memory, *fx = opened(&memory);
    uint32_t tokens[3 * CHUNK], side[2 * CHUNK];
    make_tokens(tokens, 3 * CHUNK, 77);
    memcpy(side, tokens, sizeof(side));
    side[CHUNK + 5] ^= 1; /* parts inside the second chunk */
    struct prompt prompt = {root_a, tokens, 3 * CHUNK, NULL, 0};
    struct prompt other = {root_a, side, 2 * CHUNK, NULL, 0};
    store_all(fx, &prompt, CHUNK, 1);
    struct sc_radix_query query = query_of(&prompt);
    struct sc_radix_match match;
    query.hint = sc_radix_hint(2, 500);
    sc_radix_match_pin(fx->index, &query, NULL, 0, &match);
    sc_radix_unpin(fx->index, match.last);
    assert_int_equal(store_from(fx, &other, CHUNK, CHUNK, 9), SPEC_OK);
    put(fx, 50, sc_radix_hint(1, 0));
    put(fx, 51, 0);
    static const uint64_t ORDER[] = {9, 51, 50};
    assert_int_equal(sc_radix_remove(fx->index, match.last, SC_RADIX_RUN, NULL), SPEC_OK);
    for (uint32_t i = 0; i < 3; i++)
        assert_int_equal(evicted(fx), ORDER[i]);
    struct sc_radix_segment victim;
    while (sc_radix_victim(fx->index, &victim))
        assert_true(evicted(fx) <= 2);
    fixture_close(fx);
}

/* Pinned leaves of a low priority keep nobody else, and go first when they are let go. */
static void what_is_pinned_is_passed_over_and_goes_first_afterwards(void **state)
{
    (void)state;
    struct fixture memory, *fx = opened(&memory);
    struct sc_radix_ref pins[5];
    for (uint32_t i = 0; i < 5; i++)
        put(fx, i, sc_radix_hint(i < 3 ? -2 : 0, i < 3 ? 0 : 1000));
    for (uint32_t i = 0; i < 5; i++)
        pins[i] = pin(fx, i, sc_radix_hint(-3, 0));
    struct sc_radix_segment victim;
    assert_false(sc_radix_victim(fx->index, &victim));
    put(fx, 5, 0);
    put(fx, 6, 0);
    assert_int_equal(evicted(fx), 5);
    sc_radix_unpin(fx->index, pins[1]);
    assert_int_equal(evicted(fx), 1);
    assert_int_equal(evicted(fx), 6);
    assert_false(sc_radix_victim(fx->index, &victim));
    sc_radix_unpin(fx->index, pins[4]);
    assert_int_equal(evicted(fx), 4);
    sc_radix_clock_set(fx->index, 2000);
    sc_radix_unpin(fx->index, pins[3]);
    sc_radix_unpin(fx->index, pins[0]);
    sc_radix_unpin(fx->index, pins[2]);
    uint64_t first = evicted(fx), second = evicted(fx);
    assert_true((first == 0 && second == 2) || (first == 2 && second == 0));
    assert_int_equal(evicted(fx), 3);
    fixture_close(fx);
}

/* The piece that goes first, by both ways to look, or 0. */
static uint64_t victim_among(struct fixture *fx, struct sc_radix_among among)
{
    struct sc_radix_segment below, first, old;
    bool found = sc_radix_victim_below(fx->index, among, &below);
    assert_int_equal(sc_radix_victim_first(fx->index, among, &first), found);
    assert_int_equal(sc_radix_victim_old(fx->index, among, &old), found);
    assert_true(!found || below.value.piece == first.value.piece);
    assert_true(!found || below.value.piece == old.value.piece);
    return found ? below.value.piece : 0;
}

/* New pieces are spared for old ones of their own place, and for none of a later one. */
static void new_pieces_go_before_what_stands_later(void **state)
{
    (void)state;
    struct fixture memory, *fx = opened(&memory);
    put(fx, 10, 0);
    put(fx, 11, sc_radix_hint(0, 1600));
    put(fx, 20, sc_radix_hint(-1, 0));
    put(fx, 21, 0);
    put(fx, 22, sc_radix_hint(3, 800));
    assert_int_equal(victim_among(fx, sc_radix_below(15)), 20);
    assert_int_equal(victim_among(fx, sc_radix_below(10)), 0);
    assert_int_equal(evicted(fx), 20);
    assert_int_equal(victim_among(fx, sc_radix_below(15)), 10);
    assert_int_equal(evicted(fx), 10);
    assert_int_equal(victim_among(fx, sc_radix_below(15)), 21); /* not 11, which is retained */
    assert_int_equal(victim_among(fx, sc_radix_below(11)), 0);
    assert_int_equal(evicted(fx), 21);
    assert_int_equal(victim_among(fx, sc_radix_below(15)), 22); /* its time is over first */
    assert_int_equal(evicted(fx), 22);
    assert_int_equal(victim_among(fx, sc_radix_below(15)), 11);
    assert_int_equal(victim_among(fx, sc_radix_below(11)), 0);
    fixture_close(fx);
}

/* Nothing at or behind place_end goes, however old it is. */
static void what_stands_later_is_no_victim(void **state)
{
    (void)state;
    struct fixture memory, *fx = opened(&memory);
    uint64_t usual = sc_radix_place(0), high = sc_radix_place(sc_radix_hint(2, 0));
    uint64_t kept = sc_radix_place(sc_radix_hint(0, 800));
    assert_int_equal(sc_radix_place(sc_radix_hint(0, 0)), usual);
    assert_true(sc_radix_place(sc_radix_hint(-MAX, 0)) == 0 && usual < high && high < kept);
    assert_true(kept < sc_radix_place(sc_radix_hint(-MAX, 1600)));
    assert_false(sc_radix_has_later(fx->index, usual));
    assert_true(sc_radix_has_later(fx->index, usual - 1));
    put(fx, 10, sc_radix_hint(2, 0));
    put(fx, 11, sc_radix_hint(0, 1600));
    assert_true(sc_radix_has_later(fx->index, usual));
    assert_int_equal(victim_among(fx, (struct sc_radix_among){UINT64_MAX, usual + 1}), 0);
    assert_int_equal(victim_among(fx, (struct sc_radix_among){UINT64_MAX, high}), 0);
    assert_int_equal(victim_among(fx, (struct sc_radix_among){UINT64_MAX, high + 1}), 10);
    assert_int_equal(evicted(fx), 10);
    assert_int_equal(victim_among(fx, (struct sc_radix_among){UINT64_MAX, kept + 1}), 0);
    assert_int_equal(victim_among(fx, (struct sc_radix_among){UINT64_MAX, kept + 51}), 11);
    sc_radix_clock_set(fx->index, 1600); /* it is as its priority again */
    assert_int_equal(victim_among(fx, (struct sc_radix_among){UINT64_MAX, usual + 1}), 11);
    fixture_close(fx);
}

struct seen {
    uint64_t pieces, sum, most;
};

static bool look(uint64_t piece, void *user)
{
    struct seen *seen = user;
    seen->pieces++;
    seen->sum += piece;
    return seen->pieces < seen->most;
}

static struct seen evictable(struct fixture *fx, uint64_t place_end, uint64_t steps, uint64_t most,
                             bool has_more)
{
    struct seen seen = {.most = most};
    assert_int_equal(sc_radix_evictable(fx->index, place_end, steps, look, &seen), has_more);
    return seen;
}

/* What could go below a place: whole pieces, from leaves up, and nothing that is held. */
static void what_could_go_is_counted_piece_by_piece(void **state)
{
    (void)state;
    struct fixture memory, *fx = opened(&memory);
    uint64_t usual = sc_radix_place(0);
    uint32_t tokens[2 * CHUNK];
    struct sc_radix_inserted inserted;
    make_tokens(tokens, 2 * CHUNK, 1);
    struct sc_radix_insertion insertion = {
        .root = root_a, .tokens = tokens, .token_count = CHUNK, .value = {1, 0, 0}};
    assert_int_equal(sc_radix_insert(fx->index, &insertion, &inserted, NULL), SPEC_OK);
    insertion.after = inserted.whole;
    insertion.first = insertion.run_first = CHUNK;
    insertion.tokens = tokens + CHUNK;
    insertion.value.piece = 2;
    assert_int_equal(sc_radix_insert(fx->index, &insertion, &inserted, NULL), SPEC_OK);
    put(fx, 10, sc_radix_hint(1, 0));
    put(fx, 20, sc_radix_hint(-1, 0));
    assert_int_equal(evictable(fx, usual + 1, 100, 100, false).sum, 23);
    assert_int_equal(evictable(fx, usual, 100, 100, false).sum, 20);
    assert_int_equal(evictable(fx, 0, 100, 100, false).pieces, 0);
    assert_int_equal(evictable(fx, UINT64_MAX, 100, 100, false).sum, 33);
    assert_int_equal(evictable(fx, UINT64_MAX, 2, 100, true).pieces, 2);
    assert_int_equal(evictable(fx, UINT64_MAX, 100, 1, true).pieces, 1);
    use(fx, 20, sc_radix_hint(2, 0)); /* raised, though no victim was asked for since */
    assert_int_equal(evictable(fx, usual + 1, 100, 100, false).sum, 3);
    struct sc_radix_ref held = pin(fx, 1, 0); /* the first chunk of the two */
    assert_int_equal(evictable(fx, usual + 1, 100, 100, false).sum, 2);
    sc_radix_unpin(fx->index, held);
    fixture_close(fx);
}

/* ---- Beside a twin -------------------------------------------------------------------------- */

struct leaf {
    bool lives;
    int32_t priority;
    uint64_t until, stamp; /* units of 16 s */
};

static uint32_t twin_first(const struct leaf *leaves, uint64_t now)
{
    uint32_t first = LEAVES;
    for (uint32_t i = 0; i < LEAVES; i++) {
        const struct leaf *a = &leaves[i], *b = &leaves[first < LEAVES ? first : i];
        if (!a->lives)
            continue;
        bool kept_a = a->until > now, kept_b = b->until > now;
        bool goes = kept_a != kept_b                        ? kept_b
                    : kept_a && a->until != b->until        ? a->until < b->until
                    : !kept_a && a->priority != b->priority ? a->priority < b->priority
                                                            : a->stamp < b->stamp;
        if (first == LEAVES || goes)
            first = i;
    }
    return first;
}

/* Evicts the run that goes first, which must be the twin's; false: there is none. */
static bool evict_as_twin(struct fixture *fx, struct leaf *leaves, uint64_t now)
{
    uint32_t first = twin_first(leaves, now);
    struct sc_radix_evicted gone;
    assert_int_equal(sc_radix_evict(fx->index, &gone), first < LEAVES);
    if (first == LEAVES)
        return false;
    assert_int_equal(gone.segment.value.piece, first);
    leaves[first].lives = false;
    return true;
}

static void random_hints_agree_with_a_twin(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 8; seed++) {
        struct fixture memory, *fx = opened(&memory);
        struct leaf leaves[LEAVES] = {0};
        uint64_t random = seed, stamp = 0, now = 0;
        for (uint32_t step = 0; step < 3000; step++) {
            random = mix(random + step + 1);
            uint32_t i = (uint32_t)(random % LEAVES);
            struct leaf *leaf = &leaves[i];
            int32_t priority = (int32_t)(random >> 8 & 7) - MAX;
            priority = priority > MAX ? 0 : priority;
            uint64_t until =
                (random >> 16 & 3) == 0 ? (now & ~UINT64_C(63)) + (random >> 20 & 7) * 32 : 0;
            uint32_t hint = priority == 0 && until == 0 ? 0 : sc_radix_hint(priority, until * 16);
            if (random >> 32 & 1) {
                now += random >> 40 & 3;
                sc_radix_clock_set(fx->index, now * 16 + (random >> 48 & 15));
            }
            if ((random >> 33 & 3) == 0) {
                (void)evict_as_twin(fx, leaves, now);
            } else if (!leaf->lives) {
                put(fx, i, hint);
                *leaf = (struct leaf){true, priority, until, ++stamp};
            } else {
                use(fx, i, hint);
                leaf->priority = leaf->priority > priority ? leaf->priority : priority;
                leaf->until = leaf->until > until ? leaf->until : until;
                leaf->stamp = ++stamp;
            }
            if (step % 16 == 0)
                fixture_check(fx);
        }
        while (evict_as_twin(fx, leaves, now)) /* what is kept, too */
            ;
        fixture_close(fx);
    }
}

/* Without memory for a heap of its own a leaf is among the usual ones. */
static void out_of_memory_costs_the_hint_or_the_insertion(void **state)
{
    (void)state;
    for (uint64_t n = 0; n < 12; n++) {
        struct fixture memory, *fx = opened(&memory);
        uint32_t tokens[CHUNK];
        struct sc_radix_inserted inserted;
        sc_fault_arm(&fx->fault, SC_FAULT_ALLOC, n);
        for (uint32_t i = 0; i < 300; i++) {
            make_tokens(tokens, CHUNK, i);
            const struct sc_radix_insertion insertion = {
                .root = root_a,
                .tokens = tokens,
                .token_count = CHUNK,
                .value = {i, 0, 0},
                .hint = sc_radix_hint((int32_t)(i % 7) - MAX, i % 2 * 100)};
            spec_status status = sc_radix_insert(fx->index, &insertion, &inserted, NULL);
            assert_true(status == SPEC_OK || status == SPEC_E_NO_MEMORY);
        }
        fixture_check(fx);
        sc_radix_clock_set(fx->index, 200);
        struct sc_radix_evicted gone;
        while (sc_radix_evict(fx->index, &gone))
            ;
        fixture_check(fx);
        fixture_close(fx);
    }
}

/* ---- Threads -------------------------------------------------------------------------------- */

struct caller {
    struct fixture *fx;
    uint64_t seed;
    const _Atomic bool *stops;
};

static void *raise_hints(void *user)
{
    struct caller *own = user;
    for (uint64_t n = 0; !atomic_load(own->stops); n++) {
        uint64_t random = mix(own->seed * 7919 + n);
        uint32_t tokens[CHUNK];
        make_tokens(tokens, CHUNK, (uint32_t)(random % LEAVES));
        const struct sc_radix_query query = {
            .root = root_a,
            .tokens = tokens,
            .token_count = CHUNK,
            .hint = sc_radix_hint((int32_t)(random >> 8 & 7) - MAX, random >> 16 & 4095)};
        struct sc_radix_match match;
        sc_radix_match_pin(own->fx->index, &query, NULL, 0, &match);
        sc_radix_unpin(own->fx->index, match.last);
    }
    return NULL;
}

static void readers_raise_while_the_writer_evicts(void **state)
{
    (void)state;
    struct fixture memory, *fx = opened(&memory);
    _Atomic bool stops = false;
    pthread_t threads[2];
    struct caller callers[2];
    for (uint32_t i = 0; i < LEAVES; i++)
        put(fx, i, 0);
    for (uint32_t i = 0; i < 2; i++) {
        callers[i] = (struct caller){fx, i + 1, &stops};
        assert_int_equal(pthread_create(&threads[i], NULL, raise_hints, &callers[i]), 0);
    }
    for (uint32_t i = 0; i < 20000; i++) {
        struct sc_radix_evicted gone;
        sc_radix_clock_set(fx->index, i / 4);
        if (sc_radix_evict(fx->index, &gone))
            put(fx, (uint32_t)gone.segment.value.piece, sc_radix_hint((int32_t)(i % 7) - MAX, 0));
    }
    atomic_store(&stops, true);
    for (uint32_t i = 0; i < 2; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    fixture_check(fx);
    fixture_close(fx);
}

/* All but one of what is retained is in use, for a time that is over much sooner. */
static void what_is_held_hides_nothing_that_is_retained(void **state)
{
    (void)state;
    struct fixture fx;
    struct sc_radix_ref held[LEAVES];
    fixture_open_as(&fx, CHUNK, UINT64_C(8) << 20, SC_POLICY_VALUE);
    put(&fx, LEAVES, sc_radix_hint(0, 1000000000));
    for (uint32_t i = 0; i < LEAVES; i++) {
        put(&fx, i, sc_radix_hint(0, 100));
        held[i] = pin(&fx, i, 0);
    }
    assert_int_equal(evicted(&fx), LEAVES);
    fixture_check(&fx);
    for (uint32_t i = 0; i < LEAVES; i++)
        sc_radix_unpin(fx.index, held[i]);
    fixture_close(&fx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_lowest_priority_goes_first),
        cmocka_unit_test(what_is_kept_goes_last_until_its_time_is_over),
        cmocka_unit_test(what_is_kept_is_kept_to_its_last_second),
        cmocka_unit_test(what_is_retained_keeps_its_priority_meanwhile),
        cmocka_unit_test(a_hint_raises_and_never_lowers),
        cmocka_unit_test(a_parent_is_kept_as_what_was_below_it),
        cmocka_unit_test(what_is_pinned_is_passed_over_and_goes_first_afterwards),
        cmocka_unit_test(new_pieces_go_before_what_stands_later),
        cmocka_unit_test(what_stands_later_is_no_victim),
        cmocka_unit_test(what_could_go_is_counted_piece_by_piece),
        cmocka_unit_test(random_hints_agree_with_a_twin),
        cmocka_unit_test(out_of_memory_costs_the_hint_or_the_insertion),
        cmocka_unit_test(readers_raise_while_the_writer_evicts),
        cmocka_unit_test(what_is_held_hides_nothing_that_is_retained),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
