/* The radix index, case by case: token-exact matching, splits, marks, roots, orphans, removal with
 * pins, eviction order, caps, failing memory, and what a chunk costs.
 *
 * Holds: work is counted in steps, never in time.
 * Threads: one. The others: test_radix_random.c, test_radix_threads.c */
#include "hashing/radix_internal.h"
#include "tests/unit/hashing/radix_case.h"

/* ---- matching ------------------------------------------------------------------------------ */

static void empty_index_matches_nothing(void **state)
{
    struct fixture *fx = *state;
    uint32_t tokens[LENGTH];
    struct prompt prompt = prompt_make(tokens, LENGTH);
    struct sc_radix_match match = pin_of(fx, &prompt);
    assert_int_equal(match.token_count, 0);
    assert_int_equal(match.segment_count, 0);
    assert_int_equal(match.last.id, 0);
    assert_int_equal(match.shortened, 0);
    sc_radix_unpin(fx->index, match.last);
    prompt.count = 0;
    assert_int_equal(matched(fx, &prompt), 0);
}

static void divergence_is_found_at_every_offset(void **state)
{
    struct fixture *fx = *state;
    uint32_t tokens[LENGTH];
    struct prompt prompt = prompt_store(fx, tokens, LENGTH, 10);
    assert_int_equal(matched(fx, &prompt), LENGTH);
    for (uint64_t at = 0; at < LENGTH; at++) {
        tokens[at] ^= 1;
        struct sc_radix_match match = match_of(fx, &prompt);
        assert_int_equal(match.token_count, at);
        assert_int_equal(match.whole_end, at / CHUNK * CHUNK);
        assert_int_equal(match.last.id == 0, at == 0);
        tokens[at] ^= 1;
        prompt.count = at; /* and a prompt that ends there */
        assert_int_equal(matched(fx, &prompt), at);
        prompt.count = LENGTH;
    }
    fixture_check(fx);
}

static void segments_say_where_the_rows_are(void **state)
{
    struct fixture *fx = *state;
    uint32_t tokens[LENGTH];
    struct prompt prompt = prompt_store(fx, tokens, LENGTH, 10);
    struct sc_radix_segment segments[4];
    struct sc_radix_match match;
    struct sc_radix_query query = query_of(&prompt);
    query.token_count = 150;
    sc_radix_match(fx->index, &query, segments, 4, &match);
    assert_int_equal(match.segment_count, 3);
    struct sc_chain chain;
    sc_chain_init(&chain, sc_radix_secret(fx->index), &root_a, CHUNK);
    for (uint64_t i = 0; i < 3; i++) {
        assert_int_equal(segments[i].first, i * CHUNK);
        assert_int_equal(segments[i].count, i < 2 ? CHUNK : 150 - 2 * CHUNK);
        assert_int_equal(segments[i].value.piece, 10 + i);
        assert_int_equal(segments[i].value.row_first, 0);
        assert_int_equal(segments[i].value.flags, (10 + i) * 3);
        sc_chain_extend(&chain, tokens + i * CHUNK, CHUNK, (struct sc_marks){NULL, 0});
        assert_true(sc_hash_equal(segments[i].hash, sc_chain_at(&chain)));
    }
    segments[1].first = 777; /* capacity is kept, the count goes on */
    sc_radix_match(fx->index, &query, segments, 1, &match);
    assert_int_equal(match.segment_count, 3);
    assert_int_equal(match.token_count, 150);
    assert_int_equal(segments[1].first, 777);
}

static void long_prompts_match_whole(void **state)
{
    struct fixture *fx = *state;
    static uint32_t tokens[100 * CHUNK + 5];
    uint64_t count = sizeof(tokens) / sizeof(tokens[0]);
    make_tokens(tokens, count, 9);
    struct prompt prompt = {root_a, tokens, count, NULL, 0};
    store_all(fx, &prompt, CHUNK, 1);
    assert_int_equal(matched(fx, &prompt), count);
    for (uint64_t at = 0; at < count; at += 97) {
        tokens[at] ^= 1;
        assert_int_equal(matched(fx, &prompt), at);
        tokens[at] ^= 1;
    }
    fixture_check(fx);
}

/* Steps count table slots and runs: one a chunk where a prefix goes on as it was stored. */
static void long_paths_are_followed_without_tables(void **state)
{
    struct fixture *fx = *state;
    enum { CHUNKS = 600, PARTED = 300, CUT = 450 };
    static uint32_t first[CHUNKS * CHUNK], second[CHUNKS * CHUNK];
    make_tokens(first, CHUNKS * CHUNK, 1);
    make_tokens(second, CHUNKS * CHUNK, 2);
    memcpy(second, first, 4 * PARTED * CHUNK);
    struct prompt a = {root_a, first, CHUNKS * CHUNK, NULL, 0};
    struct prompt b = {root_a, second, CHUNKS * CHUNK, NULL, 0};
    store_all(fx, &a, CHUNK, 1);
    struct sc_radix_match match = match_of(fx, &a);
    assert_int_equal(match.token_count, a.count);
    uint64_t start = match.steps - CHUNKS; /* by hashes, until the hints are good */
    print_message("steps: %" PRIu64 " for %d chunks\n", match.steps, CHUNKS);
    assert_true(start < 100);
    store_all(fx, &b, CHUNK, 1000); /* 16 runs above the fork name the newer branch */
    match = match_of(fx, &b);
    assert_int_equal(match.token_count, b.count);
    assert_true(match.steps <= CHUNKS + 2 * start + 10);
    match = match_of(fx, &a);
    assert_int_equal(match.token_count, a.count);
    assert_true(match.steps <= CHUNKS + 2 * start + 10);

    struct prompt part = a; /* what 16 runs name goes, and comes back elsewhere */
    part.count = CUT * CHUNK;
    struct sc_radix_ref ref = match_of(fx, &part).whole;
    assert_int_equal(sc_radix_remove(fx->index, ref, SC_RADIX_RUN, NULL), SPEC_OK);
    (void)sc_radix_sweep(fx->index, NULL);
    assert_int_equal(matched(fx, &a), (CUT - 1) * CHUNK);
    uint32_t other[CHUNK];
    make_tokens(other, CHUNK, 3);
    struct prompt between = {root_b, other, CHUNK, NULL, 0};
    store_all(fx, &between, CHUNK, 2000);
    store_all(fx, &a, CHUNK, 3000);
    match = match_of(fx, &a);
    assert_int_equal(match.token_count, a.count);
    assert_true(match.steps <= CHUNKS + 2 * start + 10);
    fixture_check(fx);
}

static void match_allocates_nothing(void **state)
{
    struct fixture *fx = *state;
    uint32_t tokens[LENGTH];
    struct prompt prompt = prompt_store(fx, tokens, LENGTH, 10);
    sc_alloc_seal(&fx->alloc);
    struct sc_radix_match match = pin_of(fx, &prompt);
    sc_radix_unpin(fx->index, match.last);
    sc_alloc_unseal(&fx->alloc);
    assert_int_equal(match.token_count, LENGTH);
    assert_int_equal(atomic_load(&fx->alloc.sealed_refusals), 0);
}

/* ---- splits -------------------------------------------------------------------------------- */

static void split_at(struct fixture *fx, uint64_t at)
{
    uint32_t first[LENGTH];
    uint32_t second[LENGTH];
    make_tokens(first, LENGTH, 1);
    make_tokens(second, LENGTH, 2);
    memcpy(second, first, 4 * at);
    struct prompt a = {root_a, first, LENGTH, NULL, 0};
    struct prompt b = {root_a, second, LENGTH, NULL, 0};
    store_all(fx, &a, CHUNK, 10);
    struct sc_radix_match before = pin_of(fx, &a);
    struct sc_radix_segment was;
    assert_true(sc_radix_get(fx->index, before.last, &was));
    assert_int_equal(store_from(fx, &b, at, CHUNK, 20), SPEC_OK);
    fixture_check(fx);
    assert_int_equal(matched(fx, &a), LENGTH);
    assert_int_equal(matched(fx, &b), LENGTH);

    struct sc_radix_segment segments[16];
    struct sc_radix_match match;
    struct sc_radix_query query = query_of(&a);
    sc_radix_match(fx->index, &query, segments, 16, &match);
    for (uint64_t i = 0; i < match.segment_count; i++) { /* every row is where it was */
        assert_int_equal(segments[i].value.piece, 10 + segments[i].first / CHUNK);
        assert_int_equal(segments[i].value.row_first, segments[i].first % CHUNK);
    }
    struct sc_radix_segment is;
    assert_true(sc_radix_get(fx->index, before.last, &is)); /* a ref ends where it did */
    assert_int_equal(is.first + is.count, was.first + was.count);
    query = query_of(&b);
    sc_radix_match(fx->index, &query, segments, 16, &match);
    for (uint64_t i = 0; i < match.segment_count; i++) {
        bool is_old = segments[i].first < at;
        uint64_t chunk = segments[i].first / CHUNK;
        assert_int_equal(segments[i].value.piece, is_old ? 10 + chunk : 20 + chunk - at / CHUNK);
    }
    sc_radix_unpin(fx->index, before.last);
    struct sc_radix_ref root = root_of(fx, &root_a);
    uint64_t runs = stats_of(fx).runs;
    assert_int_equal(sc_radix_remove(fx->index, root, SC_RADIX_RUN, &fx->removal), SPEC_OK);
    assert_int_equal(fx->removed_tokens, 2 * LENGTH - at);
    assert_int_equal(fx->removed_runs, runs);
    fx->removed_tokens = 0;
    fx->removed_runs = 0;
}

static void splits_keep_rows_and_refs_at_every_offset(void **state)
{
    for (uint64_t at = 0; at < LENGTH; at++)
        split_at(*state, at);
}

static void one_run_splits_at_each_of_its_tokens(void **state)
{
    struct fixture *fx = *state;
    uint32_t base[CHUNK];
    struct prompt prompt = prompt_store(fx, base, CHUNK, 1);
    for (uint64_t i = 1; i < CHUNK; i++) {
        uint64_t at = (i * 29) % CHUNK; /* every offset, mixed order */
        uint32_t other[CHUNK];
        struct prompt parted = prompt_part(&prompt, other, at);
        assert_int_equal(matched(fx, &parted), at);
        store_all(fx, &parted, CHUNK, 100 + at);
        assert_int_equal(matched(fx, &parted), CHUNK);
        assert_int_equal(matched(fx, &prompt), CHUNK);
    }
    fixture_check(fx);
    assert_int_equal(stats_of(fx).splits, CHUNK - 1);
}

static void first_copy_wins_and_only_the_rest_is_added(void **state)
{
    struct fixture *fx = *state;
    uint32_t tokens[LENGTH];
    struct prompt prompt = prompt_make(tokens, LENGTH);
    struct sc_radix_inserted inserted;
    assert_int_equal(insert_run(fx, &prompt, 0, 20, 1, &inserted, NULL), SPEC_OK);
    assert_int_equal(inserted.new_count, 20);
    assert_int_equal(insert_run(fx, &prompt, 0, 20, 2, &inserted, NULL), SPEC_OK);
    assert_int_equal(inserted.new_count, 0);
    assert_int_equal(inserted.whole_end, 20);
    assert_int_equal(insert_run(fx, &prompt, 5, 10, 3, &inserted, NULL), SPEC_OK);
    assert_int_equal(inserted.new_count, 0);
    assert_int_equal(inserted.whole_end, 0); /* the token stands inside a run */
    assert_int_equal(insert_run(fx, &prompt, 10, 50, 4, &inserted, NULL), SPEC_OK);
    assert_int_equal(inserted.new_count, 30);
    assert_int_equal(inserted.whole_end, 50);
    struct sc_radix_segment segments[4];
    struct sc_radix_match match;
    struct sc_radix_query query = query_of(&prompt);
    sc_radix_match(fx->index, &query, segments, 4, &match);
    assert_int_equal(match.segment_count, 2);
    assert_int_equal(segments[0].value.piece, 1);
    assert_int_equal(segments[1].value.piece, 4);
    assert_int_equal(segments[1].first, 20);
    assert_int_equal(segments[1].value.row_first, 10); /* row 0 of piece 4 is token 10 */
    fixture_check(fx);
}

/* ---- marks and roots ----------------------------------------------------------------------- */

static void marks_part_equal_tokens(void **state)
{
    struct fixture *fx = *state;
    uint32_t tokens[LENGTH];
    make_tokens(tokens, LENGTH, 1);
    const struct sc_mark cat[] = {{0, {{5, 5}}}, {70, {{7, 1}}}, {71, {{1, 1}}}, {128, {{9, 9}}}};
    struct sc_mark dog[4];
    memcpy(dog, cat, sizeof(dog));
    struct prompt stored = {root_a, tokens, LENGTH, cat, 4};
    store_all(fx, &stored, CHUNK, 1);
    fixture_check(fx);
    assert_int_equal(matched(fx, &stored), LENGTH);
    struct sc_radix_match match = match_of(fx, &stored);
    assert_int_equal(match.segment_count, 6); /* 0-64-70-71-128-192-200 */
    for (uint64_t i = 0; i < 4; i++) {
        struct prompt other = {root_a, tokens, LENGTH, dog, 4};
        dog[i].digest.bytes[31] ^= 1; /* another image, the same tokens */
        assert_int_equal(matched(fx, &other), cat[i].token);
        dog[i].digest.bytes[31] ^= 1;
        dog[i].digest.bytes[0] ^= 1;
        assert_int_equal(matched(fx, &other), cat[i].token);
        dog[i].digest.bytes[0] ^= 1;
        other.mark_count = i; /* no image */
        assert_int_equal(matched(fx, &other), cat[i].token);
    }
    const struct sc_mark extra[] = {cat[0], {30, {{2, 2}}}, cat[1], cat[2], cat[3]};
    struct prompt more = {root_a, tokens, LENGTH, extra, 5}; /* one image more, inside a run */
    assert_int_equal(matched(fx, &more), 30);
    store_all(fx, &more, CHUNK, 50);
    assert_int_equal(matched(fx, &more), LENGTH);
    assert_int_equal(matched(fx, &stored), LENGTH);
    fixture_check(fx);
}

/* Where runs come as they were foretold neither hashes nor tables are looked at. */
static void a_mark_inside_a_foretold_chunk_ends_the_match(void **state)
{
    struct fixture *fx = *state;
    enum { CHUNKS = 60, MARKED = 40 * CHUNK + 10 };
    static uint32_t tokens[CHUNKS * CHUNK];
    make_tokens(tokens, CHUNKS * CHUNK, 1);
    const struct sc_mark mark = {MARKED, {{5, 5}}};
    struct prompt stored = {root_a, tokens, CHUNKS * CHUNK, NULL, 0};
    struct prompt asked = {root_a, tokens, CHUNKS * CHUNK, &mark, 1};
    store_all(fx, &stored, CHUNK, 1);
    struct sc_radix_match match = match_of(fx, &stored);
    assert_int_equal(match.token_count, stored.count);
    assert_true(match.steps < 2 * CHUNKS); /* it went as foretold */
    assert_int_equal(matched(fx, &asked), MARKED);
}

static void a_mark_behind_the_prompt_does_not_matter(void **state)
{
    struct fixture *fx = *state;
    uint32_t tokens[LENGTH];
    make_tokens(tokens, LENGTH, 1);
    const struct sc_mark marks[] = {{100, {{5, 5}}}, {300, {{6, 6}}}};
    struct prompt plain = {root_a, tokens, 100, NULL, 0};
    struct prompt marked = {root_a, tokens, 100, marks, 2};
    store_all(fx, &marked, CHUNK, 1);
    assert_int_equal(matched(fx, &plain), 100);
    assert_int_equal(matched(fx, &marked), 100);
    marked.count = 150;
    store_all(fx, &marked, CHUNK, 5);
    plain.count = 150;
    assert_int_equal(matched(fx, &plain), 100);
    assert_int_equal(matched(fx, &marked), 150);
    fixture_check(fx);
}

static void roots_are_worlds_of_their_own(void **state)
{
    struct fixture *fx = *state;
    uint32_t tokens[LENGTH];
    struct prompt a = prompt_make(tokens, LENGTH);
    struct prompt b = {root_b, tokens, LENGTH, NULL, 0};
    store_all(fx, &a, CHUNK, 1);
    assert_int_equal(matched(fx, &b), 0);
    store_all(fx, &b, CHUNK, 9);
    assert_int_equal(matched(fx, &b), LENGTH);
    assert_int_equal(stats_of(fx).roots, 2);
    assert_int_equal(sc_radix_remove(fx->index, root_of(fx, &root_a), SC_RADIX_RUN, &fx->removal),
                     SPEC_OK);
    assert_int_equal(matched(fx, &a), 0);
    assert_int_equal(matched(fx, &b), LENGTH);
    fixture_check(fx);
}

/* ---- refusals ------------------------------------------------------------------------------ */

static void orphans_are_refused(void **state)
{
    struct fixture *fx = *state;
    uint32_t tokens[LENGTH];
    struct prompt prompt = prompt_make(tokens, LENGTH);
    struct sc_radix_inserted inserted;
    struct spec_error error = {.struct_size = sizeof(error)};
    assert_int_equal(insert_run(fx, &prompt, 1, 2, 1, &inserted, &error), SPEC_E_STALE);
    assert_non_null(strstr(error.text, "token 1"));
    assert_int_equal(insert_run(fx, &prompt, 0, 30, 1, &inserted, NULL), SPEC_OK);
    assert_int_equal(insert_run(fx, &prompt, 31, 40, 1, &inserted, NULL), SPEC_E_STALE);
    assert_int_equal(insert_run(fx, &prompt, 64, 70, 1, &inserted, NULL), SPEC_E_STALE);
    assert_int_equal(matched(fx, &prompt), 30);
    assert_int_equal(insert_run(fx, &prompt, 30, 40, 1, &inserted, NULL), SPEC_OK);
    assert_int_equal(matched(fx, &prompt), 40);
    fixture_check(fx);
}

static void wrong_insertions_are_refused(void **state)
{
    struct fixture *fx = *state;
    uint32_t tokens[LENGTH];
    struct prompt prompt = prompt_make(tokens, LENGTH);
    struct sc_radix_inserted inserted;
    assert_int_equal(insert_run(fx, &prompt, 0, 64, 1, &inserted, NULL), SPEC_OK);
    const struct sc_radix_insertion good = {.root = root_a,
                                            .after = inserted.whole,
                                            .first = 64,
                                            .tokens = tokens + 64,
                                            .token_count = 10,
                                            .run_first = 64,
                                            .value = {2, 0, 0}};
    struct sc_radix_insertion bad = good;
    bad.token_count = 0;
    assert_int_equal(sc_radix_insert(fx->index, &bad, &inserted, NULL), SPEC_E_INVALID);
    bad = good;
    bad.token_count = CHUNK + 1; /* over the grid border */
    assert_int_equal(sc_radix_insert(fx->index, &bad, &inserted, NULL), SPEC_E_INVALID);
    bad = good;
    bad.token_count = UINT64_MAX - 10;
    assert_int_equal(sc_radix_insert(fx->index, &bad, &inserted, NULL), SPEC_E_INVALID);
    bad = good;
    bad.run_first = 63;
    assert_int_equal(sc_radix_insert(fx->index, &bad, &inserted, NULL), SPEC_E_INVALID);
    bad = good;
    bad.run_first = 74;
    assert_int_equal(sc_radix_insert(fx->index, &bad, &inserted, NULL), SPEC_E_INVALID);
    bad = good;
    bad.first = 65; /* not where `after` ends */
    bad.run_first = 65;
    assert_int_equal(sc_radix_insert(fx->index, &bad, &inserted, NULL), SPEC_E_INVALID);
    bad = good;
    bad.after = (struct sc_radix_ref){0, 0};
    assert_int_equal(sc_radix_insert(fx->index, &bad, &inserted, NULL), SPEC_E_INVALID);
    bad = good;
    bad.after.generation++;
    assert_int_equal(sc_radix_insert(fx->index, &bad, &inserted, NULL), SPEC_E_STALE);
    bad = good;
    bad.value.row_first = UINT32_MAX;
    assert_int_equal(sc_radix_insert(fx->index, &bad, &inserted, NULL), SPEC_E_INVALID);
    assert_int_equal(matched(fx, &prompt), 64);
    assert_int_equal(sc_radix_insert(fx->index, &good, &inserted, NULL), SPEC_OK);
    fixture_check(fx);
}

/* The halves that a table goes by are one; all 32 bytes say which root it is. */
static void roots_are_told_apart_by_all_of_them(void **state)
{
    struct fixture *fx = *state;
    uint32_t tokens[LENGTH], other[LENGTH];
    make_tokens(tokens, LENGTH, 1);
    make_tokens(other, LENGTH, 2);
    struct sc_sha256 root_c = root_a, root_d = root_a;
    root_c.bytes[16] ^= 1;
    root_d.bytes[31] ^= 0x80;
    struct prompt a = {root_a, tokens, LENGTH, NULL, 0};
    struct prompt c = {root_c, tokens, LENGTH, NULL, 0};
    struct prompt d = {root_d, tokens, LENGTH, NULL, 0};
    struct prompt d_other = {root_d, other, LENGTH, NULL, 0};
    store_all(fx, &a, CHUNK, 1);
    assert_int_equal(matched(fx, &c), 0);
    assert_int_equal(matched(fx, &d), 0);
    /* Their chains are one, so tokens that are stored under the one are not under the other. */
    assert_int_equal(store_from(fx, &c, 0, CHUNK, 10), SPEC_E_CORRUPT);
    store_all(fx, &d_other, CHUNK, 20);
    assert_int_equal(matched(fx, &a), LENGTH);
    assert_int_equal(matched(fx, &d_other), LENGTH);
    assert_int_equal(matched(fx, &c), 0);
    fixture_check(fx);
    /* What hangs on a run says of which root it is. */
    struct sc_radix_match match = match_of(fx, &a);
    struct sc_radix_inserted inserted;
    struct sc_radix_insertion insertion = {.root = root_d,
                                           .after = match.whole,
                                           .first = LENGTH,
                                           .tokens = other,
                                           .token_count = 3,
                                           .run_first = LENGTH,
                                           .value = {30, 0, 0}};
    assert_int_equal(sc_radix_insert(fx->index, &insertion, &inserted, NULL), SPEC_E_STALE);
    for (uint32_t i = 0; i < SC_RADIX_ROOTS_KNOWN; i++) /* nor when its root was forgotten */
        fx->index->roots_known[i].run.id = 0;
    assert_int_equal(sc_radix_insert(fx->index, &insertion, &inserted, NULL), SPEC_E_STALE);
    insertion.root = root_a;
    assert_int_equal(sc_radix_insert(fx->index, &insertion, &inserted, NULL), SPEC_OK);
    assert_int_equal(sc_radix_remove(fx->index, root_of(fx, &root_a), SC_RADIX_RUN, &fx->removal),
                     SPEC_OK);
    assert_int_equal(matched(fx, &a), 0);
    assert_int_equal(matched(fx, &d_other), LENGTH);
    fixture_check(fx);
}

/* Chains of two secrets share no hash; what was stored under the one is not found by the other's.
 */
static void a_secret_keys_chains(void **state)
{
    struct fixture *fx = *state;
    uint8_t other[SC_CHAIN_SECRET_BYTES] = {1};
    uint32_t tokens[LENGTH];
    make_tokens(tokens, LENGTH, 1);
    const struct sc_chain_secret *before = sc_radix_secret(fx->index);
    struct sc_hash first =
        sc_chain_step(before, sc_sha256_short(&root_a), 0, tokens, 3, (struct sc_marks){NULL, 0});
    assert_int_equal(sc_radix_secret_set(fx->index, FIXTURE_SECRET, NULL), SPEC_OK);
    assert_ptr_equal(sc_radix_secret(fx->index), before);
    sc_fault_arm(&fx->fault, SC_FAULT_ALLOC, 0);
    assert_int_equal(sc_radix_secret_set(fx->index, other, NULL), SPEC_E_NO_MEMORY);
    assert_ptr_equal(sc_radix_secret(fx->index), before);
    assert_int_equal(sc_radix_secret_set(fx->index, other, NULL), SPEC_OK);
    const struct sc_chain_secret *after = sc_radix_secret(fx->index);
    struct sc_hash second =
        sc_chain_step(after, sc_sha256_short(&root_a), 0, tokens, 3, (struct sc_marks){NULL, 0});
    assert_false(sc_hash_equal(first, second));
    assert_memory_equal(before->secret, FIXTURE_SECRET, sizeof(FIXTURE_SECRET)); /* still there */
    struct prompt prompt = {root_a, tokens, LENGTH, NULL, 0};
    store_all(fx, &prompt, CHUNK, 1);
    assert_int_equal(matched(fx, &prompt), LENGTH);
    fixture_check(fx);
}

static void wrong_parameters_are_refused(void **state)
{
    struct fixture *fx = *state;
    struct sc_radix *index = NULL;
    struct sc_radix_params params = {.alloc = &fx->alloc, .chunk_tokens = 48, .bytes_max = 2 * MIB};
    assert_int_equal(sc_radix_open(&params, &index, NULL), SPEC_E_INVALID);
    params.chunk_tokens = 512;
    assert_int_equal(sc_radix_open(&params, &index, NULL), SPEC_E_INVALID);
    params.chunk_tokens = 64;
    params.bytes_max = MIB - 1;
    assert_int_equal(sc_radix_open(&params, &index, NULL), SPEC_E_INVALID);
    assert_null(index);
    sc_radix_close(NULL);
}

static void stale_refs_are_known(void **state)
{
    struct fixture *fx = *state;
    uint32_t tokens[LENGTH];
    struct prompt prompt = prompt_make(tokens, CHUNK);
    struct sc_radix_inserted inserted;
    assert_int_equal(insert_run(fx, &prompt, 0, CHUNK, 1, &inserted, NULL), SPEC_OK);
    struct sc_radix_segment segment;
    const struct sc_radix_ref wild[] = {{0, 0}, {1, 1}, {UINT32_MAX, 1}, {inserted.last.id + 1, 1}};
    for (uint64_t i = 0; i < 4; i++)
        assert_false(sc_radix_get(fx->index, wild[i], &segment));
    assert_true(sc_radix_get(fx->index, inserted.last, &segment));
    assert_int_equal(segment.count, CHUNK);
    assert_int_equal(sc_radix_remove(fx->index, inserted.last, SC_RADIX_RUN, NULL), SPEC_OK);
    assert_false(sc_radix_get(fx->index, inserted.last, &segment));
    struct sc_radix_ref old = inserted.last;
    assert_int_equal(insert_run(fx, &prompt, 0, CHUNK, 2, &inserted, NULL), SPEC_OK);
    assert_false(sc_radix_get(fx->index, old, &segment)); /* also when its memory is used again */
    assert_int_equal(sc_radix_remove(fx->index, old, SC_RADIX_RUN, NULL), SPEC_E_STALE);
}

static void equal_chain_hashes_are_refused(void **state)
{
    struct fixture *fx = *state;
    uint32_t a[CHUNK];
    uint32_t b[CHUNK];
    make_tokens(a, CHUNK, 1);
    memcpy(b, a, sizeof(b));
    b[40] ^= 1;
    struct prompt first = {root_a, a, CHUNK, NULL, 0};
    struct prompt second = {root_a, b, CHUNK, NULL, 0};
    store_all(fx, &first, CHUNK, 1);
    /* Lend the first run the second's hash. */
    struct sc_radix_match match = match_of(fx, &first);
    struct sc_radix_node *node = sc_radix_node_at(fx->index, match.last.id);
    struct sc_radix_table *table = atomic_load(&fx->index->chunks);
    struct sc_hash own = node->hash;
    sc_radix_table_remove(table, sc_radix_chunk_hash(own), match.last.id);
    node->hash = sc_chain_step(sc_radix_secret(fx->index), sc_sha256_short(&root_a), 0, b, CHUNK,
                               (struct sc_marks){NULL, 0});
    sc_radix_table_put(table, sc_radix_chunk_hash(node->hash), match.last.id);
    assert_int_equal(matched(fx, &second), 40); /* tokens decide, not the hash */
    struct sc_radix_inserted inserted;
    assert_int_equal(insert_run(fx, &second, 0, CHUNK, 2, &inserted, NULL), SPEC_E_CORRUPT);
    assert_int_equal(matched(fx, &second), 40);
    assert_int_equal(stats_of(fx).collisions, 1);
    struct spec_error error = {.struct_size = sizeof(error)};
    assert_int_equal(sc_radix_check(fx->index, &error), SPEC_E_CORRUPT); /* and it is noticed */
    assert_non_null(strstr(error.text, "chain hash"));
}

static void recovery_finds_parents_by_hash(void **state)
{
    struct fixture *fx = *state;
    uint32_t tokens[LENGTH];
    make_tokens(tokens, LENGTH, 1);
    struct prompt prompt = {root_a, tokens, 2 * CHUNK, NULL, 0};
    store_all(fx, &prompt, CHUNK, 1);
    struct sc_chain chain;
    sc_chain_init(&chain, sc_radix_secret(fx->index), &root_a, CHUNK);
    sc_chain_extend(&chain, tokens, 2 * CHUNK, (struct sc_marks){NULL, 0});
    struct sc_radix_ref parent = sc_radix_find(fx->index, sc_chain_at(&chain), 2 * CHUNK);
    assert_int_not_equal(parent.id, 0);
    assert_int_equal(sc_radix_find(fx->index, sc_chain_at(&chain), CHUNK).id, 0);
    assert_int_equal(root_of(fx, &root_b).id, 0);
    struct sc_radix_insertion insertion = {.root = root_a,
                                           .after = parent,
                                           .first = 2 * CHUNK,
                                           .tokens = tokens + 2 * CHUNK,
                                           .token_count = 30,
                                           .run_first = 2 * CHUNK,
                                           .value = {9, 0, 0}};
    struct sc_radix_inserted inserted;
    assert_int_equal(sc_radix_insert(fx->index, &insertion, &inserted, NULL), SPEC_OK);
    prompt.count = LENGTH;
    assert_int_equal(matched(fx, &prompt), 2 * CHUNK + 30);
    sc_radix_doubt(fx->index, sc_chain_at(&chain), CHUNK); /* of no run */
    assert_int_equal(sc_radix_find(fx->index, sc_chain_at(&chain), 2 * CHUNK).id, parent.id);
    sc_radix_doubt(fx->index, sc_chain_at(&chain), 2 * CHUNK);
    assert_int_equal(sc_radix_find(fx->index, sc_chain_at(&chain), 2 * CHUNK).id, 0);
    assert_int_equal(matched(fx, &prompt), 2 * CHUNK + 30);
    fixture_check(fx);
}

/* ---- removal and pins ---------------------------------------------------------------------- */

static struct sc_radix_ref run_at(struct fixture *fx, const struct prompt *prompt, uint64_t segment)
{
    struct sc_radix_segment segments[64];
    struct sc_radix_match match;
    struct sc_radix_query query = query_of(prompt);
    sc_radix_match(fx->index, &query, segments, 64, &match);
    assert_true(segment < match.segment_count && match.segment_count <= 64);
    return segments[segment].node;
}

static bool is_pinned_at(struct fixture *fx, const struct prompt *prompt, uint64_t segment)
{
    return sc_radix_is_pinned(fx->index, run_at(fx, prompt, segment));
}

static spec_status remove_at(struct fixture *fx, const struct prompt *prompt, uint64_t segment,
                             enum sc_radix_scope scope)
{
    return sc_radix_remove(fx->index, run_at(fx, prompt, segment), scope, &fx->removal);
}

static void a_run_that_was_just_entered_is_found_until_it_is_hidden(void **state)
{
    struct fixture *fx = *state;
    uint32_t tokens[LENGTH];
    struct prompt prompt = prompt_store(fx, tokens, 2 * CHUNK, 1);
    struct sc_radix_match match = pin_of(fx, &prompt);
    struct sc_chain chain;
    sc_chain_init(&chain, sc_radix_secret(fx->index), &root_a, CHUNK);
    sc_chain_extend(&chain, tokens, 2 * CHUNK, (struct sc_marks){NULL, 0});
    struct sc_hash hash = sc_chain_at(&chain);
    assert_int_equal(sc_radix_find(fx->index, hash, 2 * CHUNK).id, match.last.id);
    assert_int_equal(sc_radix_find(fx->index, hash, CHUNK).id, 0);
    assert_int_equal(sc_radix_remove(fx->index, match.last, SC_RADIX_RUN, &fx->removal),
                     SPEC_PENDING);
    assert_int_equal(sc_radix_find(fx->index, hash, 2 * CHUNK).id, 0); /* hidden */
    sc_radix_unpin(fx->index, match.last);
    assert_int_equal(sc_radix_sweep(fx->index, &fx->removal), 0);
    assert_int_equal(sc_radix_find(fx->index, hash, 2 * CHUNK).id, 0); /* gone */
    store_all(fx, &prompt, CHUNK, 3);                                  /* in the same memory */
    assert_int_not_equal(sc_radix_find(fx->index, hash, 2 * CHUNK).id, 0);
}

static void pins_guard_the_path_to_the_root(void **state)
{
    struct fixture *fx = *state;
    uint32_t tokens[LENGTH];
    struct prompt prompt = prompt_store(fx, tokens, LENGTH, 1);
    struct prompt part = prompt;
    part.count = 100; /* pinned inside the second run */
    struct sc_radix_match match = pin_of(fx, &part);
    sc_radix_pin(fx->index, match.last);
    assert_true(is_pinned_at(fx, &prompt, 0));
    assert_true(is_pinned_at(fx, &prompt, 1));
    assert_int_equal(remove_at(fx, &prompt, 2, SC_RADIX_RUN), SPEC_OK);
    assert_int_equal(fx->removed_runs, 2); /* what is below the pinned run may go */
    assert_int_equal(matched(fx, &prompt), 2 * CHUNK);
    sc_radix_unpin(fx->index, match.last);
    assert_true(is_pinned_at(fx, &prompt, 0));
    sc_radix_unpin(fx->index, match.last);
    assert_int_equal(remove_at(fx, &prompt, 0, SC_RADIX_RUN), SPEC_OK);
    assert_int_equal(fx->removed_tokens, LENGTH);
    assert_int_equal(matched(fx, &prompt), 0);
    assert_int_equal(stats_of(fx).roots, 0);
    assert_int_equal(stats_of(fx).runs, 0);
    fixture_check(fx);
}

static void pins_stay_right_over_splits(void **state)
{
    struct fixture *fx = *state;
    uint32_t tokens[CHUNK];
    uint32_t other[CHUNK];
    struct prompt prompt = prompt_store(fx, tokens, CHUNK, 1);
    struct prompt parted = prompt_part(&prompt, other, 20);
    struct sc_radix_match match = pin_of(fx, &prompt);
    store_all(fx, &parted, CHUNK, 2);
    assert_int_equal(match_of(fx, &prompt).segment_count, 2);
    assert_true(is_pinned_at(fx, &prompt, 0));
    assert_true(is_pinned_at(fx, &prompt, 1));
    assert_int_equal(remove_at(fx, &parted, 1, SC_RADIX_RUN), SPEC_OK);
    sc_radix_unpin(fx->index, match.last);
    assert_int_equal(remove_at(fx, &prompt, 1, SC_RADIX_PIECE), SPEC_OK);
    assert_int_equal(fx->removed_tokens, 64 + 44); /* the piece's upper run went too */
    assert_int_equal(matched(fx, &prompt), 0);
    fixture_check(fx);
}

static void removal_later_hides_at_once(void **state)
{
    struct fixture *fx = *state;
    uint32_t tokens[LENGTH];
    struct prompt prompt = prompt_store(fx, tokens, LENGTH, 1);
    struct sc_radix_match match = pin_of(fx, &prompt);
    assert_int_equal(remove_at(fx, &prompt, 1, SC_RADIX_RUN), SPEC_PENDING);
    assert_int_equal(fx->removed_runs, 0);
    assert_int_equal(matched(fx, &prompt), CHUNK);
    fixture_check(fx);
    struct sc_radix_segment segment;
    assert_true(sc_radix_get(fx->index, match.last, &segment)); /* the lease still has its rows */
    assert_int_equal(segment.value.piece, 4);
    store_all(fx, &prompt, CHUNK, 20); /* and the same tokens can be stored again */
    assert_int_equal(matched(fx, &prompt), LENGTH);
    fixture_check(fx);
    assert_true(is_pinned_at(fx, &prompt, 0));
    assert_int_equal(sc_radix_sweep(fx->index, &fx->removal), 1);
    sc_radix_unpin(fx->index, match.last);
    assert_int_equal(sc_radix_sweep(fx->index, &fx->removal), 0);
    assert_int_equal(fx->removed_tokens, LENGTH - CHUNK);
    assert_int_equal(matched(fx, &prompt), LENGTH);
    fixture_check(fx);
    assert_int_equal(remove_at(fx, &prompt, 0, SC_RADIX_RUN), SPEC_OK);
    assert_int_equal(matched(fx, &prompt), 0);
    fixture_check(fx);
}

static void hidden_runs_take_no_children(void **state)
{
    struct fixture *fx = *state;
    uint32_t tokens[LENGTH];
    make_tokens(tokens, LENGTH, 1);
    struct prompt prompt = {root_a, tokens, 2 * CHUNK, NULL, 0};
    store_all(fx, &prompt, CHUNK, 1);
    struct sc_radix_match match = pin_of(fx, &prompt);
    struct sc_radix_ref root = root_of(fx, &root_a);
    assert_int_equal(sc_radix_remove(fx->index, root, SC_RADIX_RUN, NULL), SPEC_PENDING);
    struct sc_radix_insertion insertion = {.after = match.whole,
                                           .first = match.whole_end,
                                           .tokens = tokens + match.whole_end,
                                           .token_count = 5,
                                           .run_first = match.whole_end};
    struct sc_radix_inserted inserted;
    assert_int_equal(sc_radix_insert(fx->index, &insertion, &inserted, NULL), SPEC_E_STALE);
    assert_int_equal(matched(fx, &prompt), 0);
    fixture_check(fx);
    sc_radix_unpin(fx->index, match.last);
    assert_int_equal(sc_radix_sweep(fx->index, &fx->removal), 0);
    assert_int_equal(stats_of(fx).roots, 0);
    assert_int_equal(fx->removed_tokens, 2 * CHUNK);
}

static void memory_comes_back(void **state)
{
    struct fixture *fx = *state;
    uint32_t tokens[LENGTH];
    for (uint32_t turn = 0; turn < 3; turn++) {
        for (uint32_t seed = 0; seed < 20; seed++) {
            make_tokens(tokens, LENGTH, seed);
            struct prompt prompt = {root_a, tokens, LENGTH - seed, NULL, 0};
            store_all(fx, &prompt, CHUNK, 10 * seed);
        }
        assert_true(fixture_bytes(fx) > fx->bytes_empty);
        struct sc_radix_ref root = root_of(fx, &root_a);
        assert_int_equal(sc_radix_remove(fx->index, root, SC_RADIX_RUN, NULL), SPEC_OK);
        (void)sc_radix_sweep(fx->index, NULL);
        if (turn == 0)
            fx->bytes_empty = fixture_bytes(fx); /* tables stay as large as they became */
        assert_int_equal(fixture_bytes(fx), fx->bytes_empty);
    }
}

static void a_reader_inside_keeps_memory(void **state)
{
    struct fixture *fx = *state;
    uint32_t tokens[LENGTH];
    struct prompt prompt = prompt_store(fx, tokens, LENGTH, 1);
    uint64_t full = fixture_bytes(fx);
    uint32_t place = sc_radix_reader_enter(fx->index);
    struct sc_radix_match match = match_of(fx, &prompt);
    const struct sc_radix_node *node = sc_radix_node_at(fx->index, match.last.id);
    assert_int_equal(remove_at(fx, &prompt, 0, SC_RADIX_RUN), SPEC_OK);
    for (uint32_t i = 0; i < 5; i++)
        (void)sc_radix_sweep(fx->index, NULL);
    assert_int_equal(fixture_bytes(fx), full);
    assert_int_equal(node->generation, match.last.generation); /* still there for the reader */
    sc_radix_reader_leave(fx->index, place);
    (void)sc_radix_sweep(fx->index, NULL);
    assert_true(fixture_bytes(fx) < full);
}

static void more_readers_than_places_miss(void **state)
{
    struct fixture *fx = *state;
    uint32_t tokens[LENGTH];
    struct prompt prompt = prompt_store(fx, tokens, LENGTH, 1);
    uint32_t places[SC_RADIX_READERS_MAX];
    for (uint32_t i = 0; i < SC_RADIX_READERS_MAX; i++) {
        places[i] = sc_radix_reader_enter(fx->index);
        assert_int_not_equal(places[i], UINT32_MAX);
    }
    struct sc_radix_match match = pin_of(fx, &prompt);
    assert_int_equal(match.token_count, 0);
    assert_int_equal(match.shortened, 1);
    assert_int_equal(match.last.id, 0);
    sc_radix_reader_leave(fx->index, places[77]);
    assert_int_equal(matched(fx, &prompt), LENGTH);
    for (uint32_t i = 0; i < SC_RADIX_READERS_MAX; i++) {
        if (i != 77)
            sc_radix_reader_leave(fx->index, places[i]);
    }
    assert_int_equal(stats_of(fx).shortened, 1);
}

/* A pin that meets a closed run: the match is tried again and ends without an answer. */
static void a_run_that_is_being_removed_is_not_pinned(void **state)
{
    struct fixture *fx = *state;
    uint32_t tokens[LENGTH];
    struct prompt prompt = prompt_store(fx, tokens, LENGTH, 1);
    struct sc_radix_match match = match_of(fx, &prompt);
    struct sc_radix_node *node = sc_radix_node_at(fx->index, match.last.id);
    atomic_fetch_or(&node->pins, SC_RADIX_DEAD); /* as in the middle of a removal */
    match = pin_of(fx, &prompt);
    assert_int_equal(match.token_count, 0);
    assert_int_equal(match.shortened, 1);
    assert_int_equal(atomic_load(&node->pins), SC_RADIX_DEAD);
    atomic_fetch_and(&node->pins, ~SC_RADIX_DEAD);
    match = pin_of(fx, &prompt);
    assert_int_equal(match.token_count, LENGTH);
    assert_int_equal(atomic_load(&node->pins), 1);
    sc_radix_unpin(fx->index, match.last);
}

/* A reader that comes by an old entry to a run that was split since. */
static void old_entries_lead_to_the_upper_run(void **state)
{
    struct fixture *fx = *state;
    uint32_t tokens[CHUNK];
    uint32_t other[CHUNK];
    struct prompt prompt = prompt_store(fx, tokens, CHUNK, 1);
    struct prompt parted = prompt_part(&prompt, other, 20);
    uint32_t lower = match_of(fx, &prompt).last.id;
    store_all(fx, &parted, CHUNK, 2);
    uint32_t root = root_of(fx, &root_a).id;
    struct sc_radix_node *root_node = sc_radix_node_at(fx->index, root);
    uint32_t upper = atomic_load(&root_node->first_child);
    assert_int_not_equal(upper, lower);
    atomic_store(&root_node->first_child, lower); /* as between the two stores of a split */
    assert_int_equal(matched(fx, &prompt), CHUNK);
    assert_int_equal(matched(fx, &parted), CHUNK);
    atomic_store(&root_node->first_child, upper);
    fixture_check(fx);
}

/* ---- eviction order ------------------------------------------------------------------------ */

static void oldest_leaf_is_the_one_used_longest_ago(void **state)
{
    struct fixture *fx = *state;
    static uint32_t tokens[4][CHUNK + 10];
    struct prompt prompts[4];
    struct sc_radix_segment leaf;
    assert_false(sc_radix_victim(fx->index, &leaf));
    for (uint32_t i = 0; i < 4; i++) { /* a common chunk, then leaves of their own */
        make_tokens(tokens[i], CHUNK + 10, 1);
        tokens[i][CHUNK] = i;
        prompts[i] = (struct prompt){root_a, tokens[i], CHUNK + 10, NULL, 0};
        store_all(fx, &prompts[i], CHUNK, 10 * i);
    }
    struct sc_radix_match match = pin_of(fx, &prompts[0]); /* the first is used again */
    sc_radix_unpin(fx->index, match.last);
    struct sc_radix_match held = pin_of(fx, &prompts[1]);
    const uint64_t order[] = {20, 30, 1}; /* piece of prompts 2, 3, 0; 1 is held */
    for (uint32_t i = 0; i < 3; i++) {
        assert_true(sc_radix_victim(fx->index, &leaf));
        assert_int_equal(leaf.value.piece, order[i]);
        assert_int_equal(sc_radix_remove(fx->index, leaf.node, SC_RADIX_RUN, &fx->removal),
                         SPEC_OK);
        fixture_check(fx);
    }
    assert_false(sc_radix_victim(fx->index, &leaf));
    sc_radix_unpin(fx->index, held.last);
    assert_true(sc_radix_victim(fx->index, &leaf));
    assert_int_equal(leaf.value.piece, 10);
    assert_int_equal(sc_radix_remove(fx->index, leaf.node, SC_RADIX_RUN, NULL), SPEC_OK);
    assert_true(sc_radix_victim(fx->index, &leaf)); /* the common chunk is a leaf now */
    assert_int_equal(leaf.value.piece, 0);
}

/* Ranks that nobody has counted up, as another order gives them. */
static void the_leaf_of_the_lowest_rank_goes_first_whatever_it_is_made_of(void **state)
{
    struct fixture *fx = *state;
    uint32_t tokens[CHUNK];
    struct prompt prompt = prompt_make(tokens, CHUNK);
    const uint64_t below[] = {0, 900, UINT64_C(1) << 20, 900, 1, 899}; /* the highest rank */
    const uint64_t order[] = {2, 1, 3, 5, 4, 0}; /* 1 and 3 are equal: either way */
    for (uint32_t i = 0; i < 6; i++) {
        tokens[0] = i;
        store_all(fx, &prompt, CHUNK, i);
        sc_radix_rank_set(sc_radix_node_at(fx->index, match_of(fx, &prompt).last.id),
                          UINT64_MAX - below[i]);
    }
    for (uint32_t i = 0; i < 6; i++) {
        struct sc_radix_evicted evicted;
        assert_true(sc_radix_evict(fx->index, &evicted));
        assert_int_equal(below[evicted.segment.value.piece], below[order[i]]);
        fixture_check(fx);
    }
}

static void a_parent_is_as_young_as_what_hung_below_it(void **state)
{
    struct fixture *fx = *state;
    static uint32_t tokens[2][2 * CHUNK];
    make_tokens(tokens[0], 2 * CHUNK, 1);
    make_tokens(tokens[1], 2 * CHUNK, 2);
    struct prompt deep = {root_a, tokens[0], 2 * CHUNK, NULL, 0};
    struct prompt flat = {root_a, tokens[1], CHUNK, NULL, 0};
    store_all(fx, &deep, CHUNK, 1);
    store_all(fx, &flat, CHUNK, 9);
    struct sc_radix_match match = pin_of(fx, &deep);
    sc_radix_unpin(fx->index, match.last);
    assert_int_equal(remove_at(fx, &deep, 1, SC_RADIX_RUN), SPEC_OK);
    struct sc_radix_segment leaf;
    assert_true(sc_radix_victim(fx->index, &leaf));
    assert_int_equal(leaf.value.piece, 9);
}

/* ---- memory -------------------------------------------------------------------------------- */

/* Stores prompts that part inside chunks, with marks: every kind of change. */
static spec_status store_family(struct fixture *fx, uint32_t *tokens, uint64_t *ret_count)
{
    static const struct sc_mark marks[] = {{10, {{1, 1}}}, {90, {{2, 2}}}};
    for (uint32_t i = 0; i < 40; i++) {
        tokens[(i * 37) % LENGTH] ^= 1 + i;
        struct prompt prompt = {i % 5 == 4 ? root_b : root_a, tokens, LENGTH, marks, i % 3};
        spec_status status = store_from(fx, &prompt, matched(fx, &prompt), CHUNK, 10 * i);
        *ret_count = matched(fx, &prompt);
        if (status != SPEC_OK)
            return status;
    }
    return SPEC_OK;
}

static void failing_allocations_change_nothing(void **state)
{
    (void)state;
    uint64_t failures = 0;
    for (uint64_t n = 0;; n++) {
        static struct fixture fx;
        fixture_open(&fx, CHUNK, 8 * MIB); /* an arena is one slab */
        sc_fault_arm(&fx.fault, SC_FAULT_ALLOC, n);
        uint32_t tokens[LENGTH];
        make_tokens(tokens, LENGTH, 1);
        uint64_t count = 0;
        spec_status status = store_family(&fx, tokens, &count);
        fixture_check(&fx);
        uint64_t fired = atomic_load(&fx.fault.fired[SC_FAULT_ALLOC]);
        if (fired == 0) {
            assert_int_equal(status, SPEC_OK);
            fixture_close(&fx);
            break;
        }
        failures++;
        assert_int_equal(status, SPEC_E_NO_MEMORY);
        make_tokens(tokens, LENGTH, 1); /* the fault is gone: the same work succeeds */
        assert_int_equal(store_family(&fx, tokens, &count), SPEC_OK);
        assert_int_equal(count, LENGTH);
        fixture_check(&fx);
        fixture_close(&fx);
    }
    assert_true(failures >= 10);
}

static void failing_open_leaves_nothing(void **state)
{
    (void)state;
    struct sc_fault fault;
    struct sc_alloc alloc;
    sc_fault_init(&fault);
    sc_alloc_init(&alloc);
    alloc.fault = &fault;
    struct sc_radix_params params = {.alloc = &alloc, .chunk_tokens = CHUNK, .bytes_max = 2 * MIB};
    struct sc_radix *index = NULL;
    uint64_t n = 0;
    for (;; n++) {
        sc_fault_arm(&fault, SC_FAULT_ALLOC, n);
        spec_status status = sc_radix_open(&params, &index, NULL);
        if (status == SPEC_OK)
            break;
        assert_int_equal(status, SPEC_E_NO_MEMORY);
        assert_null(index);
        assert_int_equal(atomic_load(&alloc.live_blocks), 0);
    }
    assert_true(n >= 5);
    sc_radix_close(index);
    assert_int_equal(atomic_load(&alloc.live_blocks), 0);
}

/* Inserts chunks from number `from` on until there is a spare; the number behind the last. */
static uint32_t store_until_spare(struct fixture *fx, struct prompt *prompt, uint32_t *tokens,
                                  uint32_t from, struct sc_radix_spare *ret_spare)
{
    do {
        tokens[0] = from;
        assert_int_equal(store_from(fx, prompt, 0, CHUNK, from), SPEC_OK);
        from++;
    } while (!sc_radix_spare_take(fx->index, ret_spare) && from < 100000);
    assert_true(from < 100000);
    return from;
}

static void a_spare_is_used_next_counted_and_given_back(void **state)
{
    (void)state;
    static struct fixture fx;
    struct sc_radix_spare spare, next, none;
    uint32_t tokens[CHUNK], count;
    fixture_open(&fx, CHUNK, 256 * MIB);
    struct prompt prompt = prompt_make(tokens, CHUNK);
    assert_false(sc_radix_spare_take(fx.index, &none));
    count = store_until_spare(&fx, &prompt, tokens, 0, &spare);
    assert_false(sc_radix_spare_take(fx.index, &none)); /* one is enough */
    uint64_t bytes = fixture_bytes(&fx);
    sc_radix_spare_touch(&spare);
    memset(spare.memory, 0xa5, spare.bytes); /* nobody promised that it is zero */
    sc_radix_spare_touch(&spare);
    assert_int_equal(((const uint8_t *)spare.memory)[spare.bytes - 1], 0xa5);

    count = store_until_spare(&fx, &prompt, tokens, count, &next); /* the first is in use */
    uint32_t untouched;
    memset(&untouched, 0xa5, sizeof(untouched));
    assert_memory_not_equal((uint8_t *)spare.memory + 32, &untouched, sizeof(untouched));
    assert_ptr_not_equal(next.memory, spare.memory);
    assert_true(fixture_bytes(&fx) >= bytes + next.bytes); /* tables may have grown */
    fixture_check(&fx);
    for (uint32_t i = 0; i < count; i++) {
        tokens[0] = i;
        assert_int_equal(matched(&fx, &prompt), CHUNK);
    }
    fixture_close(&fx); /* the last one unused */
}

/* What is expected is not copied from table to table while it comes. */
static void an_index_that_expects_runs_grows_at_once(void **state)
{
    (void)state;
    static struct fixture fx;
    uint32_t tokens[CHUNK];
    fixture_open(&fx, CHUNK, 64 * MIB);
    struct prompt prompt = prompt_make(tokens, CHUNK);
    sc_radix_expect(fx.index, 5000);
    const struct sc_radix_table *table = atomic_load(&fx.index->chunks);
    uint64_t bytes = fixture_bytes(&fx);
    for (uint32_t i = 0; i < 5000; i++) {
        tokens[0] = i;
        assert_int_equal(store_from(&fx, &prompt, 0, CHUNK, i), SPEC_OK);
    }
    assert_ptr_equal(atomic_load(&fx.index->chunks), table);
    sc_radix_expect(fx.index, 0);
    assert_ptr_equal(atomic_load(&fx.index->chunks), table);
    for (uint32_t i = 5000; i < 30000; i++) { /* it was wrong */
        tokens[0] = i;
        assert_int_equal(store_from(&fx, &prompt, 0, CHUNK, i), SPEC_OK);
    }
    fixture_check(&fx);
    assert_true(fixture_bytes(&fx) > bytes);
    fixture_close(&fx);

    fixture_open(&fx, CHUNK, MIB); /* what nobody can have is not taken for it */
    bytes = fixture_bytes(&fx);
    sc_radix_expect(fx.index, UINT64_MAX);
    assert_true(fixture_bytes(&fx) <= bytes + MIB / 16);
    assert_int_equal(store_from(&fx, &prompt, 0, CHUNK, 1), SPEC_OK);
    fixture_check(&fx);
    fixture_close(&fx);
}

static void a_small_index_has_no_spares(void **state)
{
    (void)state;
    static struct fixture fx;
    struct sc_radix_spare spare;
    uint32_t tokens[CHUNK];
    fixture_open(&fx, CHUNK, MIB);
    struct prompt prompt = prompt_make(tokens, CHUNK);
    for (uint32_t i = 0; i < 500; i++) {
        tokens[0] = i;
        assert_int_equal(store_from(&fx, &prompt, 0, CHUNK, i), SPEC_OK);
        assert_false(sc_radix_spare_take(fx.index, &spare));
    }
    for (uint32_t i = 500; fixture_bytes(&fx) <= MIB / 4 * 3 || fx.index->spare != NULL; i++) {
        fx.index->spare_wanted = fx.index->spare == NULL; /* as a large one of the same share */
        if (sc_radix_spare_take(fx.index, &spare))
            assert_true(fixture_bytes(&fx) <= MIB / 4 * 3);
        tokens[0] = i;
        assert_int_equal(store_from(&fx, &prompt, 0, CHUNK, i), SPEC_OK);
    }
    fx.index->spare_wanted = true;
    assert_false(sc_radix_spare_take(fx.index, &spare));
    fixture_close(&fx);
}

static void the_cap_holds_and_a_full_index_still_answers(void **state)
{
    (void)state;
    static struct fixture fx;
    fixture_open(&fx, CHUNK, MIB);
    uint32_t tokens[CHUNK];
    struct prompt prompt = prompt_make(tokens, CHUNK);
    uint32_t stored = 0;
    spec_status status = SPEC_OK;
    for (; status == SPEC_OK && stored < 100000; stored++) {
        tokens[0] = stored;
        status = store_from(&fx, &prompt, 0, CHUNK, stored);
    }
    assert_int_equal(status, SPEC_E_NO_MEMORY);
    stored--;
    assert_true(stored > 500);
    assert_true(fixture_bytes(&fx) <= MIB);
    assert_int_equal(matched(&fx, &prompt), 0);
    fixture_check(&fx);
    for (uint32_t i = 0; i < stored; i++) {
        tokens[0] = i;
        assert_int_equal(matched(&fx, &prompt), CHUNK);
    }
    struct sc_radix_segment leaf; /* room for one more: evict the oldest */
    assert_true(sc_radix_victim(fx.index, &leaf));
    assert_int_equal(leaf.value.piece, 0);
    assert_int_equal(sc_radix_remove(fx.index, leaf.node, SC_RADIX_RUN, NULL), SPEC_OK);
    tokens[0] = stored;
    assert_int_equal(store_from(&fx, &prompt, 0, CHUNK, stored), SPEC_OK);
    fixture_close(&fx);
}

/* Bytes beyond the token ids that one chunk of a long plain prompt costs. */
static uint64_t bytes_a_chunk(uint64_t chunks)
{
    static struct fixture fx;
    fixture_open(&fx, CHUNK, 256 * MIB);
    uint32_t *tokens = calloc(chunks, 4 * CHUNK);
    assert_non_null(tokens);
    make_tokens(tokens, chunks * CHUNK, 5);
    struct prompt prompt = {root_a, tokens, chunks * CHUNK, NULL, 0};
    store_all(&fx, &prompt, CHUNK, 1);
    assert_int_equal(matched(&fx, &prompt), prompt.count);
    (void)sc_radix_sweep(fx.index, NULL);
    uint64_t bytes = (fixture_bytes(&fx) - fx.bytes_empty + chunks - 1) / chunks - 4 * CHUNK;
    free(tokens);
    fixture_close(&fx);
    return bytes;
}

static void a_chunk_costs_128_bytes_and_its_tokens(void **state)
{
    (void)state;
    const uint64_t sizes[] = {70000, 98000, 100000, 140000}; /* before and after a table grew */
    for (uint64_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        uint64_t bytes = bytes_a_chunk(sizes[i]);
        print_message("%" PRIu64 " chunks: %" PRIu64 " bytes a chunk beside 4 a token\n", sizes[i],
                      bytes);
        assert_true(bytes <= 128);
    }
}

static void a_hundred_thousand_siblings_cost_two_steps_more(void **state)
{
    (void)state;
    static struct fixture fx;
    fixture_open(&fx, CHUNK, 256 * MIB);
    uint32_t tokens[CHUNK + 1];
    struct prompt prompt = prompt_make(tokens, CHUNK + 1);
    struct prompt inside = {root_a, tokens, CHUNK + 1, NULL, 0};
    const uint32_t siblings = 100000;
    uint64_t plain = 0;
    uint64_t most = 0;
    uint64_t total = 0;
    for (uint32_t i = 0; i < siblings; i++) {
        tokens[CHUNK] = i * 7919 + 3;
        store_all(&fx, &prompt, CHUNK, i);
        if (i == 0)
            plain = match_of(&fx, &inside).steps;
    }
    for (uint32_t i = 0; i < siblings; i++) {
        tokens[CHUNK] = i * 7919 + 3;
        struct sc_radix_match match = match_of(&fx, &prompt);
        assert_int_equal(match.token_count, CHUNK + 1);
        total += match.steps;
        most = match.steps > most ? match.steps : most;
    }
    print_message("steps: one child %" PRIu64 ", of 100,000 siblings %.2f, at most %" PRIu64 "\n",
                  plain, (double)total / siblings, most);
    assert_true(total <= 2 * plain * siblings);
    fixture_check(&fx);
    tokens[CHUNK] = 1; /* and one that is not there */
    assert_int_equal(matched(&fx, &prompt), CHUNK);
    fixture_close(&fx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(empty_index_matches_nothing),
        CASE(divergence_is_found_at_every_offset),
        CASE(segments_say_where_the_rows_are),
        CASE(long_prompts_match_whole),
        CASE(long_paths_are_followed_without_tables),
        CASE(match_allocates_nothing),
        CASE(splits_keep_rows_and_refs_at_every_offset),
        CASE(one_run_splits_at_each_of_its_tokens),
        CASE(first_copy_wins_and_only_the_rest_is_added),
        CASE(marks_part_equal_tokens),
        CASE(a_mark_inside_a_foretold_chunk_ends_the_match),
        CASE(a_mark_behind_the_prompt_does_not_matter),
        CASE(roots_are_worlds_of_their_own),
        CASE(orphans_are_refused),
        CASE(roots_are_told_apart_by_all_of_them),
        CASE(a_secret_keys_chains),
        CASE(wrong_insertions_are_refused),
        CASE(wrong_parameters_are_refused),
        CASE(stale_refs_are_known),
        CASE(equal_chain_hashes_are_refused),
        CASE(recovery_finds_parents_by_hash),
        CASE(a_run_that_was_just_entered_is_found_until_it_is_hidden),
        CASE(pins_guard_the_path_to_the_root),
        CASE(pins_stay_right_over_splits),
        CASE(removal_later_hides_at_once),
        CASE(hidden_runs_take_no_children),
        CASE(memory_comes_back),
        CASE(a_reader_inside_keeps_memory),
        CASE(more_readers_than_places_miss),
        CASE(a_run_that_is_being_removed_is_not_pinned),
        CASE(old_entries_lead_to_the_upper_run),
        CASE(oldest_leaf_is_the_one_used_longest_ago),
        CASE(the_leaf_of_the_lowest_rank_goes_first_whatever_it_is_made_of),
        CASE(a_parent_is_as_young_as_what_hung_below_it),
        cmocka_unit_test(failing_allocations_change_nothing),
        cmocka_unit_test(failing_open_leaves_nothing),
        cmocka_unit_test(a_spare_is_used_next_counted_and_given_back),
        cmocka_unit_test(a_small_index_has_no_spares),
        cmocka_unit_test(an_index_that_expects_runs_grows_at_once),
        cmocka_unit_test(the_cap_holds_and_a_full_index_still_answers),
        cmocka_unit_test(a_chunk_costs_128_bytes_and_its_tokens),
        cmocka_unit_test(a_hundred_thousand_siblings_cost_two_steps_more),
    };
    return cmocka_run_group_tests_name("hashing radix", tests, NULL, NULL);
}
