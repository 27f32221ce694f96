/* Runs of one chunk: looked at, and given another piece: what hangs on them stays, a match finds
 * one segment, at every place inside a chunk, with branches, hidden and old runs, and beside
 * readers. */
#include "tests/unit/hashing/radix_fixture.h"

#include <pthread.h>

#define CHUNK  16u
#define LENGTH 56u /* three chunks and a half */
#define MERGED 1000u

static const struct sc_sha256 root_a = {{11, 22}};

struct world {
    struct fixture fx;
    uint32_t tokens[LENGTH];
    struct prompt prompt;
    uint32_t replaced;
};

/* A run a token: token p in piece p + 1. */
static void world_open(struct world *world)
{
    memset(world, 0, sizeof(*world));
    fixture_open(&world->fx, CHUNK, 8u << 20);
    for (uint32_t i = 0; i < LENGTH; i++)
        world->tokens[i] = i * 2654435761u;
    world->prompt = (struct prompt){root_a, world->tokens, LENGTH, NULL, 0};
    struct sc_radix_inserted inserted = {.whole_end = 0};
    for (uint32_t p = 0; p < LENGTH; p++) {
        struct sc_radix_insertion insertion = {.root = root_a,
                                               .after = inserted.whole,
                                               .first = p,
                                               .tokens = world->tokens + p,
                                               .token_count = 1,
                                               .run_first = p,
                                               .value = {p + 1, 0, 0}};
        assert_int_equal(sc_radix_insert(world->fx.index, &insertion, &inserted, NULL), SPEC_OK);
    }
}

static void on_replaced(const struct sc_radix_segment *segment, void *user)
{
    struct world *world = user;
    assert_int_equal(segment->value.piece, segment->first + 1);
    world->replaced++;
}

/* The run that ends after `end` tokens. */
static struct sc_radix_ref run_at(struct world *world, uint64_t end)
{
    struct sc_radix_query query = query_of(&world->prompt);
    struct sc_radix_match match;
    query.token_count = end;
    sc_radix_match(world->fx.index, &query, NULL, 0, &match);
    assert_int_equal(match.token_count, end);
    return match.last;
}

/* [first, end) are one segment of the merged piece, the others of a token each. */
static void check_list(struct world *world, const struct sc_radix_segment *segments, uint64_t count,
                       uint64_t first, uint64_t end)
{
    uint64_t at = 0;
    assert_int_equal(count, LENGTH - (end - first) + 1);
    for (uint64_t i = 0; i < count; i++) {
        const struct sc_radix_segment *segment = &segments[i];
        assert_int_equal(segment->first, at);
        assert_int_equal(segment->count, at == first ? end - first : 1);
        assert_int_equal(segment->value.piece, at == first ? MERGED : at + 1);
        assert_int_equal(segment->value.row_first, at == first ? 7 : 0);
        at += segment->count;
        assert_int_equal(segment->node.id, run_at(world, at).id);
    }
    assert_int_equal(at, LENGTH);
}

/* A piece whose runs were moved, up to token `end`, had none of the rows in front of its own; what
 * was not moved is the piece's that has it, and nobody else's. */
static void check_bounds(struct world *world, struct sc_radix_claim *claim,
                         const struct sc_radix_room *room, uint64_t end)
{
    struct sc_radix_attached attached;
    uint64_t length = claim->place.length;
    for (uint64_t to = length; to <= end; to++) { /* one of more rows, which ends there */
        claim->piece = 5000;
        claim->run = run_at(world, to);
        claim->piece_first = length - 1;
        assert_int_equal(sc_radix_recall(world->fx.index, claim, room, &attached, NULL), SPEC_OK);
        assert_int_equal(attached.match.last.id, run_at(world, length).id);
        claim->piece_first = length; /* it began behind the place */
        assert_int_equal(sc_radix_recall(world->fx.index, claim, room, &attached, NULL),
                         SPEC_E_STALE);
        claim->piece_first = UINT64_MAX;
        assert_int_equal(sc_radix_recall(world->fx.index, claim, room, &attached, NULL),
                         SPEC_E_STALE);
    }
    claim->piece = 5000;
    claim->piece_first = 0;
    claim->run = run_at(world, length);
    assert_int_equal(sc_radix_recall(world->fx.index, claim, room, &attached, NULL),
                     end > 0 ? SPEC_OK : SPEC_E_STALE);
}

/* By tokens, with room and without, and by the piece that has the last token or had it before. */
static void check_segments(struct world *world, uint64_t first, uint64_t end)
{
    struct sc_radix_segment segments[LENGTH];
    struct sc_radix_query query = query_of(&world->prompt);
    struct sc_radix_match match;
    sc_radix_match(world->fx.index, &query, segments, LENGTH, &match);
    assert_int_equal(match.token_count, LENGTH);
    check_list(world, segments, match.segment_count, first, end);
    for (uint64_t length = 1; length <= LENGTH; length++) {
        struct sc_radix_attached attached;
        struct sc_radix_segment found[LENGTH];
        uint32_t tokens[LENGTH];
        struct sc_radix_room room = {.tokens = tokens,
                                     .token_capacity = LENGTH,
                                     .segments = found,
                                     .segment_capacity = LENGTH};
        struct sc_radix_claim claim = claim_of(&world->fx, &world->prompt, length);
        for (uint32_t was = 0; was < 2; was++) {
            assert_int_equal(sc_radix_attach(world->fx.index, &claim, &room, &attached, NULL),
                             SPEC_OK);
            assert_memory_equal(tokens, world->tokens, 4 * length);
            assert_int_equal(attached.match.last.id, run_at(world, length).id);
            if (length == LENGTH)
                check_list(world, found, attached.match.segment_count, first, end);
            sc_radix_unpin(world->fx.index, attached.match.last);
            claim.piece = length;
            claim.piece_first = length - 1;
            claim.run = run_at(world, length);
        }
        claim.place.end.lo ^= 1; /* the run alone does not do */
        assert_int_equal(sc_radix_attach(world->fx.index, &claim, &room, &attached, NULL),
                         SPEC_E_STALE);
        claim.place.end.lo ^= 1;
        check_bounds(world, &claim, &room, length > first && length <= end ? end : 0);
    }
    sc_radix_match(world->fx.index, &query, segments, 3, &match);
    assert_int_equal(match.segment_count, LENGTH - (end - first) + 1);
    query.token_count = first + 1; /* ends inside */
    sc_radix_match(world->fx.index, &query, segments, LENGTH, &match);
    assert_int_equal(match.last_piece, MERGED);
}

static void moved_runs_are_one_segment(void **state)
{
    (void)state;
    for (uint64_t first = 0; first < LENGTH; first++) {
        uint64_t border = (first / CHUNK + 1) * CHUNK;
        for (uint64_t end = first + 1; end <= border && end <= LENGTH; end++) {
            struct world world;
            world_open(&world);
            const struct sc_radix_value value = {MERGED, 7, 0};
            const struct sc_radix_removal replaced = {on_replaced, &world};
            assert_true(
                sc_radix_move(world.fx.index, run_at(&world, end), first, &value, &replaced));
            assert_int_equal(world.replaced, end - first);
            check_segments(&world, first, end);
            fixture_check(&world.fx);
            fixture_close(&world.fx);
        }
    }
}

/* The record of the merged piece, as a log tells it: with all tokens of its chunk. */
static void an_insertion_that_merges_takes_over(void **state)
{
    (void)state;
    struct world world;
    struct sc_radix_inserted inserted;
    world_open(&world);
    const struct sc_radix_removal replaced = {on_replaced, &world};
    struct sc_radix_insertion insertion = {.root = root_a,
                                           .after = run_at(&world, CHUNK),
                                           .first = CHUNK,
                                           .tokens = world.tokens + CHUNK,
                                           .token_count = CHUNK,
                                           .run_first = CHUNK + 3,
                                           .value = {MERGED, 7, 0},
                                           .replaces = &replaced};
    assert_int_equal(sc_radix_insert(world.fx.index, &insertion, &inserted, NULL), SPEC_OK);
    assert_int_equal(inserted.new_count, 0); /* nobody said that it merges */
    insertion.merges = true;
    insertion.value.flags = 1;
    assert_int_equal(sc_radix_insert(world.fx.index, &insertion, &inserted, NULL), SPEC_OK);
    assert_int_equal(inserted.new_count, 0); /* it is worse */
    insertion.value.flags = 0;
    insertion.run_first = 2 * CHUNK - 1;
    assert_int_equal(sc_radix_insert(world.fx.index, &insertion, &inserted, NULL), SPEC_OK);
    assert_int_equal(inserted.new_count, 0); /* one piece is no merge */
    assert_int_equal(world.replaced, 0);
    insertion.run_first = CHUNK + 3;
    assert_int_equal(sc_radix_insert(world.fx.index, &insertion, &inserted, NULL), SPEC_OK);
    assert_int_equal(inserted.new_count, CHUNK - 3);
    assert_int_equal(inserted.last.id, run_at(&world, 2 * CHUNK).id);
    assert_int_equal(world.replaced, CHUNK - 3);
    check_segments(&world, CHUNK + 3, 2 * CHUNK);
    assert_int_equal(sc_radix_insert(world.fx.index, &insertion, &inserted, NULL), SPEC_OK);
    assert_int_equal(inserted.new_count, 0); /* again: it is there */
    fixture_check(&world.fx);
    fixture_close(&world.fx);
}

/* Of a piece that has lost its end, as eviction takes it, other processes know nothing: what was
 * stored in its place and merged does not take a part of its runs there. Its drop would find that
 * its last run is another's, and leave the rest. */
static void an_insertion_takes_no_part_of_a_piece(void **state)
{
    (void)state;
    struct world world;
    struct sc_radix_inserted inserted;
    world_open(&world);
    const struct sc_radix_value value = {MERGED, 7, 0};
    uint64_t first = CHUNK + 3, end = CHUNK + 9;
    assert_true(sc_radix_move(world.fx.index, run_at(&world, end), first, &value, NULL));
    check_segments(&world, first, end);
    struct sc_radix_insertion insertion = {.root = root_a,
                                           .after = run_at(&world, CHUNK),
                                           .first = CHUNK,
                                           .tokens = world.tokens + CHUNK,
                                           .token_count = CHUNK,
                                           .value = {MERGED + 1, 0, 0},
                                           .merges = true};
    for (insertion.run_first = first + 1; insertion.run_first < end; insertion.run_first++) {
        assert_int_equal(sc_radix_insert(world.fx.index, &insertion, &inserted, NULL), SPEC_OK);
        assert_int_equal(inserted.new_count, 0); /* the piece begins before */
    }
    insertion.run_first = CHUNK;
    for (insertion.token_count = 4; insertion.token_count < end - CHUNK; insertion.token_count++) {
        assert_int_equal(sc_radix_insert(world.fx.index, &insertion, &inserted, NULL), SPEC_OK);
        assert_int_equal(inserted.new_count, 0); /* the piece goes on behind */
    }
    check_segments(&world, first, end);
    assert_int_equal(sc_radix_insert(world.fx.index, &insertion, &inserted, NULL), SPEC_OK);
    assert_int_equal(inserted.new_count, end - CHUNK); /* whole */
    fixture_check(&world.fx);
    fixture_close(&world.fx);
}

static void a_chunk_says_what_hangs_beside(void **state)
{
    (void)state;
    struct world world;
    struct sc_radix_chunk chunk;
    struct sc_radix_inserted inserted;
    uint32_t tokens[LENGTH];
    world_open(&world);
    struct sc_radix *index = world.fx.index;
    memcpy(tokens, world.tokens, sizeof(tokens));
    tokens[20] ^= 1; /* parts behind token 19 */
    struct prompt other = {root_a, tokens, 24, NULL, 0};
    struct sc_radix_insertion insertion = {.root = root_a,
                                           .after = run_at(&world, CHUNK),
                                           .first = CHUNK,
                                           .tokens = tokens + CHUNK,
                                           .token_count = 8,
                                           .run_first = 20,
                                           .value = {500, 0, 0}};
    assert_int_equal(sc_radix_insert(index, &insertion, &inserted, NULL), SPEC_OK);
    assert_true(sc_radix_chunk_of(index, run_at(&world, 30), &chunk));
    assert_int_equal(chunk.first, CHUNK);
    assert_int_equal(chunk.segment_count, 14);
    assert_int_equal(chunk.mark_count, 0);
    assert_memory_equal(chunk.tokens, world.tokens + CHUNK, 4 * 14);
    assert_true(sc_sha256_equal(&chunk.root, &root_a));
    struct sc_radix_segment border;
    assert_true(sc_radix_get(index, run_at(&world, CHUNK), &border));
    assert_true(sc_hash_equal(chunk.border, border.hash));
    for (uint64_t i = 0; i < 14; i++) {
        assert_int_equal(chunk.segments[i].value.piece, CHUNK + i + 1);
        assert_true(chunk.beside[i] == (i == 3 ? 500 : i == 13 ? 31 : UINT64_MAX));
    }
    struct sc_radix_match held = pin_of(&world.fx, &other);
    (void)sc_radix_remove(index, inserted.last, SC_RADIX_RUN, NULL);
    assert_true(sc_radix_chunk_of(index, run_at(&world, 30), &chunk));
    assert_true(chunk.beside[3] == UINT64_MAX); /* it is hidden */
    assert_false(sc_radix_chunk_of(index, held.last, &chunk));
    const struct sc_radix_value value = {MERGED, 0, 0};
    assert_false(sc_radix_move(index, held.last, 20, &value, NULL));
    sc_radix_unpin(index, held.last);
    assert_int_equal(sc_radix_sweep(index, NULL), 0);
    assert_true(sc_radix_chunk_of(index, run_at(&world, 1), &chunk));
    assert_true(sc_hash_equal(chunk.border, sc_sha256_short(&root_a)));
    struct sc_radix_ref last = run_at(&world, 30);
    assert_false(sc_radix_move(index, last, 30, &value, NULL)); /* behind it */
    assert_false(sc_radix_move(index, last, 3, &value, NULL));  /* another chunk's */
    (void)sc_radix_remove_roots(index, sc_radix_root_mark(index), 0, NULL);
    assert_false(sc_radix_chunk_of(index, last, &chunk));
    assert_false(sc_radix_move(index, last, 20, &value, NULL));
    fixture_close(&world.fx);
}

/* A run that was split keeps the rows of its lower part. */
static void a_split_run_moves_whole(void **state)
{
    (void)state;
    struct world world;
    struct sc_radix_inserted inserted;
    struct sc_radix_segment segments[LENGTH];
    uint32_t tokens[CHUNK];
    memset(&world, 0, sizeof(world));
    fixture_open(&world.fx, CHUNK, 8u << 20);
    for (uint32_t i = 0; i < LENGTH; i++)
        world.tokens[i] = i * 2654435761u;
    world.prompt = (struct prompt){root_a, world.tokens, CHUNK, NULL, 0};
    assert_int_equal(insert_run(&world.fx, &world.prompt, 0, 10, 1, &inserted, NULL), SPEC_OK);
    assert_int_equal(insert_run(&world.fx, &world.prompt, 10, CHUNK, 2, &inserted, NULL), SPEC_OK);
    struct sc_radix_ref last = inserted.last;
    memcpy(tokens, world.tokens, sizeof(tokens));
    tokens[4] ^= 1;
    struct prompt other = {root_a, tokens, CHUNK, NULL, 0};
    assert_int_equal(insert_run(&world.fx, &other, 4, 9, 3, &inserted, NULL), SPEC_OK);
    const struct sc_radix_value value = {MERGED, 7, 0};
    assert_false(sc_radix_move(world.fx.index, last, 4, &value, NULL)); /* not where one begins */
    assert_true(sc_radix_move(world.fx.index, last, 0, &value, NULL));
    struct sc_radix_query query = query_of(&world.prompt);
    struct sc_radix_match match;
    sc_radix_match(world.fx.index, &query, segments, LENGTH, &match);
    assert_int_equal(match.segment_count, 1);
    assert_int_equal(segments[0].count, CHUNK);
    assert_int_equal(segments[0].value.row_first, 7);
    tokens[4] ^= 1;
    tokens[7] ^= 1; /* splits a run that was moved */
    assert_int_equal(insert_run(&world.fx, &other, 7, 9, 4, &inserted, NULL), SPEC_OK);
    query = query_of(&other);
    sc_radix_match(world.fx.index, &query, segments, LENGTH, &match);
    assert_int_equal(match.segment_count, 2);
    assert_int_equal(segments[0].count, 7);
    assert_int_equal(segments[0].value.piece, MERGED);
    fixture_check(&world.fx);
    fixture_close(&world.fx);
}

/* What was moved together is evicted together, up to where something else hangs on it. */
static void eviction_of_moved_runs_ends_where_others_hang(void **state)
{
    (void)state;
    struct world world;
    struct sc_radix_inserted inserted;
    struct sc_radix_evicted evicted;
    struct sc_radix_segment rest;
    uint32_t tokens[LENGTH];
    world_open(&world);
    const struct sc_radix_value value = {MERGED, 0, 0};
    uint64_t first = CHUNK, parted = CHUNK + 4, end = CHUNK + 8;
    assert_true(sc_radix_move(world.fx.index, run_at(&world, end), first, &value, NULL));
    memcpy(tokens, world.tokens, sizeof(tokens));
    tokens[parted] ^= 1;
    struct prompt other = {root_a, tokens, parted + 2, NULL, 0};
    assert_int_equal(insert_run(&world.fx, &other, parted, parted + 2, 500, &inserted, NULL),
                     SPEC_OK);
    struct sc_radix_ref behind = run_at(&world, end + 1);
    assert_int_equal(sc_radix_remove(world.fx.index, behind, SC_RADIX_RUN, NULL), SPEC_OK);
    assert_true(sc_radix_evict_leaf(world.fx.index, run_at(&world, end), &evicted));
    assert_int_equal(evicted.segment.value.piece, MERGED);
    assert_true(sc_radix_get(world.fx.index, evicted.rest, &rest));
    assert_int_equal(rest.first + rest.count, parted);
    assert_int_equal(matched(&world.fx, &world.prompt), parted);
    assert_int_equal(matched(&world.fx, &other), parted + 2);
    fixture_check(&world.fx);
    fixture_close(&world.fx);
}

/* ---- Beside readers -------------------------------------------------------------------------- */

#define ROUNDS  2000u
#define READERS 3u

struct reader {
    struct world *world;
    _Atomic uint32_t *stop;
    uint64_t matches, wrong;
};

/* Piece 1000 + n has the chunk's rows from row n on: whatever a segment says, token p is row
 * piece - 1000 + p of it. */
static void *read_on(void *user)
{
    struct reader *reader = user;
    struct sc_radix_query query = query_of(&reader->world->prompt);
    struct sc_radix_segment segments[CHUNK];
    struct sc_radix_match match;
    query.token_count = CHUNK;
    do {
        sc_radix_match_pin(reader->world->fx.index, &query, segments, CHUNK, &match);
        if (match.shortened != 0) {
            sc_radix_unpin(reader->world->fx.index, match.last);
            continue;
        }
        uint64_t at = 0;
        for (uint64_t i = 0; i < match.segment_count; i++) {
            const struct sc_radix_segment *segment = &segments[i];
            reader->wrong += segment->first != at ||
                             segment->value.row_first != segment->value.piece - MERGED + at;
            at += segment->count;
        }
        reader->wrong += at != CHUNK;
        reader->matches++;
        sc_radix_unpin(reader->world->fx.index, match.last);
    } while (atomic_load(reader->stop) == 0 || reader->matches == 0); /* all may have been short */
    return NULL;
}

static void a_reader_finds_rows_of_the_piece_that_it_finds(void **state)
{
    (void)state;
    struct world world;
    _Atomic uint32_t stop = 0;
    pthread_t threads[READERS];
    struct reader readers[READERS];
    world_open(&world);
    struct sc_radix_value value = {MERGED, 0, 0};
    assert_true(sc_radix_move(world.fx.index, run_at(&world, CHUNK), 0, &value, NULL));
    for (uint32_t i = 0; i < READERS; i++) {
        readers[i] = (struct reader){.world = &world, .stop = &stop};
        assert_int_equal(pthread_create(&threads[i], NULL, read_on, &readers[i]), 0);
    }
    for (uint32_t n = 1; n < ROUNDS; n++) {
        value = (struct sc_radix_value){MERGED + n, n, 0};
        assert_true(sc_radix_move(world.fx.index, run_at(&world, CHUNK), 0, &value, NULL));
    }
    atomic_store(&stop, 1);
    for (uint32_t i = 0; i < READERS; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        assert_int_equal(readers[i].wrong, 0);
        assert_true(readers[i].matches > 0);
    }
    fixture_check(&world.fx);
    fixture_close(&world.fx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(moved_runs_are_one_segment),
        cmocka_unit_test(an_insertion_that_merges_takes_over),
        cmocka_unit_test(an_insertion_takes_no_part_of_a_piece),
        cmocka_unit_test(a_chunk_says_what_hangs_beside),
        cmocka_unit_test(a_split_run_moves_whole),
        cmocka_unit_test(eviction_of_moved_runs_ends_where_others_hang),
        cmocka_unit_test(a_reader_finds_rows_of_the_piece_that_it_finds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
