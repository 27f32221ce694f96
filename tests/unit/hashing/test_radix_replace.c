/* Replacing in the radix index: better values take the place of worse ones, whole or in part, with
 * pins, at every length, out of memory, and beside readers. */
#include "tests/unit/hashing/radix_fixture.h"

#include <pthread.h>

#define CHUNK  16u
#define LENGTH 56u /* three chunks and a half */

static const struct sc_sha256 root_a = {{11, 22}};

struct world {
    struct fixture fx;
    uint32_t tokens[LENGTH];
    struct prompt prompt;
    struct sc_radix_ref top; /* what was said to make way */
    uint32_t told;
    bool pins;
};

static void world_open(struct world *world)
{
    memset(world, 0, sizeof(*world));
    fixture_open(&world->fx, CHUNK, 8u << 20);
    for (uint32_t i = 0; i < LENGTH; i++)
        world->tokens[i] = i * 2654435761u;
    world->prompt = (struct prompt){root_a, world->tokens, LENGTH, NULL, 0};
}

static void on_replacing(struct sc_radix_ref top, void *user)
{
    struct world *world = (struct world *)(void *)((uint8_t *)user - offsetof(struct world, fx));
    world->top = top;
    world->told++;
    if (world->pins)
        sc_radix_pin(world->fx.index, top);
}

/* Pieces of the prompt's tokens [first, end), numbered from `piece`, all with these flags, behind
 * what is there and no worse. */
static spec_status put(struct world *world, uint64_t end, uint64_t piece, uint32_t flags)
{
    struct sc_radix_query query = query_of(&world->prompt);
    struct sc_radix_match match;
    query.token_count = end;
    query.flags_end = flags + 1;
    sc_radix_match(world->fx.index, &query, NULL, 0, &match);
    struct sc_radix_inserted inserted = {.whole = match.whole, .whole_end = match.whole_end};
    for (uint64_t first = match.token_count; first < end; piece++) {
        uint64_t next = (first / CHUNK + 1) * CHUNK < end ? (first / CHUNK + 1) * CHUNK : end;
        struct sc_radix_insertion insertion = {.root = root_a,
                                               .after = inserted.whole,
                                               .first = inserted.whole_end,
                                               .tokens = world->tokens + inserted.whole_end,
                                               .token_count = next - inserted.whole_end,
                                               .run_first = first,
                                               .value = {piece, 0, flags},
                                               .replaces = &world->fx.removal,
                                               .replacing = on_replacing};
        spec_status status = sc_radix_insert(world->fx.index, &insertion, &inserted, NULL);
        if (status != SPEC_OK)
            return status;
        assert_int_equal(inserted.new_count, next - first);
        first = next;
    }
    return SPEC_OK;
}

/* Tokens that stand with flags below `flags_end`. */
static struct sc_radix_match match_below(struct world *world, uint32_t flags_end)
{
    struct sc_radix_query query = query_of(&world->prompt);
    struct sc_radix_match match;
    query.flags_end = flags_end;
    sc_radix_match(world->fx.index, &query, NULL, 0, &match);
    return match;
}

static void a_match_ends_before_what_is_refused(void **state)
{
    (void)state;
    struct world world;
    world_open(&world);
    assert_int_equal(put(&world, 20, 1, 0), SPEC_OK);
    assert_int_equal(put(&world, 40, 10, 1), SPEC_OK);
    assert_int_equal(put(&world, LENGTH, 20, 2), SPEC_OK);
    static const struct {
        uint32_t flags_end, last_flags;
        uint64_t tokens, last_piece;
    } CASES[] = {{0, 2, LENGTH, 21}, {1, 0, 20, 2}, {2, 1, 40, 11}, {3, 2, LENGTH, 21}};
    for (uint32_t i = 0; i < 4; i++) {
        struct sc_radix_match match = match_below(&world, CASES[i].flags_end);
        assert_int_equal(match.token_count, CASES[i].tokens);
        assert_int_equal(match.last_piece, CASES[i].last_piece);
        assert_int_equal(match.last_flags, CASES[i].last_flags);
    }
    assert_int_equal(world.told, 0);
    fixture_close(&world.fx);
}

/* It is told who hangs on a run and who holds it, and a leaf that is passed over lives on. */
static void who_stands_above_and_who_holds_is_told(void **state)
{
    (void)state;
    struct world world;
    struct sc_radix_segment segments[4], above, leaf;
    bool is_alone;
    world_open(&world);
    assert_int_equal(put(&world, LENGTH, 10, 0), SPEC_OK);
    struct sc_radix *index = world.fx.index;
    struct sc_radix_query query = query_of(&world.prompt);
    struct sc_radix_match match;
    sc_radix_match(index, &query, segments, 4, &match);
    for (uint32_t i = 3; i > 0; i--) {
        assert_true(sc_radix_above(index, segments[i].node, &above, &is_alone));
        assert_true(is_alone);
        assert_int_equal(above.value.piece, segments[i - 1].value.piece);
    }
    assert_false(sc_radix_above(index, segments[0].node, &above, &is_alone));
    uint32_t tokens[24]; /* parts inside the second chunk: piece 11 is two runs then */
    memcpy(tokens, world.tokens, sizeof(tokens));
    tokens[20] ^= 1;
    struct prompt other = {root_a, tokens, 24, NULL, 0};
    struct sc_radix_inserted inserted;
    struct sc_radix_insertion insertion = {.root = root_a,
                                           .after = segments[0].node,
                                           .first = CHUNK,
                                           .tokens = tokens + CHUNK,
                                           .token_count = 8,
                                           .run_first = 20,
                                           .value = {20, 0, 0}};
    assert_int_equal(sc_radix_insert(index, &insertion, &inserted, NULL), SPEC_OK);
    assert_true(sc_radix_above(index, segments[1].node, &above, &is_alone));
    assert_false(is_alone);
    assert_int_equal(above.value.piece, 11);
    assert_false(sc_radix_is_pinned(index, segments[0].node));
    struct sc_radix_match held = pin_of(&world.fx, &other);
    assert_true(sc_radix_is_pinned(index, segments[0].node));  /* below it */
    assert_false(sc_radix_is_pinned(index, segments[1].node)); /* beside it */
    sc_radix_unpin(index, held.last);
    assert_true(sc_radix_victim(index, &leaf));
    assert_int_equal(leaf.value.piece, 13);
    fixture_pass_over(&world.fx, leaf.node);
    assert_true(sc_radix_victim(index, &leaf));
    assert_int_equal(leaf.value.piece, 20);
    const struct sc_radix_ref none = {0};
    assert_false(sc_radix_above(index, none, &above, &is_alone));
    assert_false(sc_radix_is_pinned(index, none));
    fixture_check(&world.fx);
    fixture_close(&world.fx);
}

/* [0, shared) stands with flags 0, the rest with 2; better ones come for [shared, end). */
static void check_replaced(uint64_t shared, uint64_t end, bool pinned)
{
    struct world world;
    struct sc_radix_stats stats;
    world_open(&world);
    if (shared > 0)
        assert_int_equal(put(&world, shared, 1, 0), SPEC_OK);
    assert_int_equal(put(&world, LENGTH, 10, 2), SPEC_OK);
    struct sc_radix_match old = {0};
    if (pinned)
        old = pin_of(&world.fx, &world.prompt);
    assert_int_equal(put(&world, end, 20, 1), SPEC_OK);
    fixture_check(&world.fx);
    assert_int_equal(world.told, 1);
    assert_int_equal(matched(&world.fx, &world.prompt), end);
    assert_int_equal(match_below(&world, 2).token_count, end);
    assert_int_equal(world.fx.removed_tokens, pinned ? 0 : LENGTH - shared);
    if (pinned) {
        struct sc_radix_segment segment;
        assert_true(sc_radix_get(world.fx.index, old.last, &segment));
        assert_int_equal(segment.value.flags, 2);
        assert_true(sc_radix_is_below(world.fx.index, old.last, world.top));
        assert_int_equal(sc_radix_sweep(world.fx.index, &world.fx.removal), 1);
        sc_radix_unpin(world.fx.index, old.last);
        assert_int_equal(sc_radix_sweep(world.fx.index, &world.fx.removal), 0);
        assert_int_equal(world.fx.removed_tokens, LENGTH - shared);
    }
    assert_false(sc_radix_is_below(world.fx.index, world.top, world.top)); /* gone */
    fixture_check(&world.fx);
    sc_radix_stats(world.fx.index, &stats);
    assert_int_equal(stats.tokens, end);
    assert_int_equal(put(&world, LENGTH, 30, 2), SPEC_OK); /* what is worse may follow again */
    assert_int_equal(match_below(&world, 2).token_count, end);
    assert_int_equal(matched(&world.fx, &world.prompt), LENGTH);
    fixture_check(&world.fx);
    fixture_close(&world.fx);
}

static void the_better_replaces_the_worse_at_every_offset(void **state)
{
    (void)state;
    for (uint64_t shared = 0; shared < LENGTH; shared++)
        for (uint64_t end = shared + 1; end <= LENGTH; end++) {
            check_replaced(shared, end, false);
            check_replaced(shared, end, true);
        }
}

static void equals_and_worse_change_nothing(void **state)
{
    (void)state;
    struct world world;
    world_open(&world);
    assert_int_equal(put(&world, LENGTH, 1, 1), SPEC_OK);
    struct sc_radix_insertion insertion = {.root = root_a,
                                           .tokens = world.tokens,
                                           .token_count = CHUNK,
                                           .value = {99, 0, 1},
                                           .replaces = &world.fx.removal,
                                           .replacing = on_replacing};
    for (uint32_t flags = 1; flags < 4; flags++) {
        struct sc_radix_inserted inserted;
        insertion.value.flags = flags;
        assert_int_equal(sc_radix_insert(world.fx.index, &insertion, &inserted, NULL), SPEC_OK);
        assert_int_equal(inserted.new_count, 0);
    }
    assert_int_equal(world.told, 0);
    assert_int_equal(match_below(&world, 0).last_piece, 4);
    fixture_close(&world.fx);
}

/* Whoever is told before may pin: all of it stays, found by nobody. */
static void what_makes_way_can_be_kept(void **state)
{
    (void)state;
    struct world world;
    world_open(&world);
    assert_int_equal(put(&world, LENGTH, 1, 2), SPEC_OK);
    struct sc_radix_match old = match_of(&world.fx, &world.prompt);
    world.pins = true;
    assert_int_equal(put(&world, CHUNK, 10, 0), SPEC_OK);
    assert_int_equal(matched(&world.fx, &world.prompt), CHUNK);
    assert_true(sc_radix_is_below(world.fx.index, old.last, world.top));
    assert_false(sc_radix_is_below(world.fx.index, world.top, old.last));
    assert_int_equal(world.fx.removed_runs, 0);
    sc_radix_unpin(world.fx.index, world.top);
    assert_int_equal(sc_radix_sweep(world.fx.index, &world.fx.removal), 0);
    assert_int_equal(world.fx.removed_runs, 4);
    fixture_check(&world.fx);
    fixture_close(&world.fx);
}

static void without_memory_the_worse_stays(void **state)
{
    (void)state;
    struct world world;
    world_open(&world);
    assert_int_equal(put(&world, LENGTH, 1, 2), SPEC_OK);
    spec_status status = SPEC_E_NO_MEMORY;
    for (uint32_t piece = 10; status == SPEC_E_NO_MEMORY; piece += 10) {
        uint64_t before = match_below(&world, 0).last_piece;
        sc_fault_arm(&world.fx.fault, SC_FAULT_ALLOC, piece / 10 - 1);
        status = put(&world, CHUNK, piece, 0);
        sc_fault_init(&world.fx.fault); /* disarmed */
        if (status == SPEC_E_NO_MEMORY) {
            assert_int_equal(match_below(&world, 0).last_piece, before);
            assert_int_equal(matched(&world.fx, &world.prompt), LENGTH);
        }
        fixture_check(&world.fx);
    }
    assert_int_equal(status, SPEC_OK);
    assert_int_equal(match_below(&world, 1).token_count, CHUNK);
    fixture_close(&world.fx);
}

/* ---- Beside readers -------------------------------------------------------------------------- */

#define ROUNDS  2000u
#define READERS 3u

struct reader {
    struct world *world;
    _Atomic uint32_t *stop;
    _Atomic uint32_t *there; /* flags of what has taken its place, and nothing worse is found */
    uint32_t wrong;
};

static uint64_t piece_of(uint32_t flags)
{
    return 7 * (uint64_t)flags + 3;
}

/* The chunk is there at every moment, piece and flags are of one value, and whoever begins when
 * a better one has taken its place finds that, or one better still. */
static void *read_on(void *user)
{
    struct reader *reader = user;
    struct sc_radix_query query = query_of(&reader->world->prompt);
    struct sc_radix_segment segment;
    struct sc_radix_match match;
    query.token_count = CHUNK;
    do {
        uint32_t there = atomic_load(reader->there);
        sc_radix_match_pin(reader->world->fx.index, &query, &segment, 1, &match);
        if (match.shortened != 0) {
            sc_radix_unpin(reader->world->fx.index, match.last);
            continue;
        }
        uint32_t flags = segment.value.flags;
        if (match.token_count != CHUNK || match.segment_count != 1 || flags > there ||
            segment.value.piece != piece_of(flags) || match.last_piece != segment.value.piece)
            reader->wrong++;
        sc_radix_unpin(reader->world->fx.index, match.last);
    } while (atomic_load(reader->stop) == 0);
    return NULL;
}

static void a_reader_sees_the_one_or_the_other(void **state)
{
    (void)state;
    struct world world;
    _Atomic uint32_t stop = 0, there = ROUNDS;
    pthread_t threads[READERS];
    struct reader readers[READERS];
    world_open(&world);
    assert_int_equal(put(&world, CHUNK, piece_of(ROUNDS), ROUNDS), SPEC_OK);
    for (uint32_t i = 0; i < READERS; i++) {
        readers[i] = (struct reader){.world = &world, .stop = &stop, .there = &there};
        assert_int_equal(pthread_create(&threads[i], NULL, read_on, &readers[i]), 0);
    }
    for (uint32_t flags = ROUNDS; flags-- > 0;) {
        assert_int_equal(put(&world, CHUNK, piece_of(flags), flags), SPEC_OK);
        atomic_store(&there, flags);
        (void)sc_radix_sweep(world.fx.index, &world.fx.removal);
    }
    atomic_store(&stop, 1);
    for (uint32_t i = 0; i < READERS; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        assert_int_equal(readers[i].wrong, 0);
    }
    assert_int_equal(sc_radix_sweep(world.fx.index, &world.fx.removal), 0);
    assert_int_equal(world.fx.removed_runs, ROUNDS);
    fixture_check(&world.fx);
    fixture_close(&world.fx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_match_ends_before_what_is_refused),
        cmocka_unit_test(the_better_replaces_the_worse_at_every_offset),
        cmocka_unit_test(equals_and_worse_change_nothing),
        cmocka_unit_test(what_makes_way_can_be_kept),
        cmocka_unit_test(without_memory_the_worse_stays),
        cmocka_unit_test(who_stands_above_and_who_holds_is_told),
        cmocka_unit_test(a_reader_sees_the_one_or_the_other),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
