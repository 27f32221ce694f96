/* Branches: what hangs on a run beside the tokens that prompts go on with; found from the match's
 * last run up, whole or not at all, also while runs part and go. */
#include "tests/unit/hashing/radix_fixture.h"

#include <pthread.h>

#define CHUNK     16u
#define TOKENS    200u
#define MAX       64u
#define TOKEN     UINT32_MAX
#define TOKEN_END (UINT32_MAX - 1)
#define READERS   4u
#define ROUNDS    3000u

static const struct sc_sha256 root_a = {{11, 22}}, mark_a = {{77, 1}}, mark_b = {{77, 2}};

struct text {
    uint32_t tokens[TOKENS + MAX];
    struct sc_mark mark;
    struct prompt prompt;
};

static void text_make(struct text *text, uint32_t seed, uint64_t count)
{
    for (uint64_t i = 0; i < TOKENS; i++)
        text->tokens[i] = (uint32_t)(i * 7919 + 1 + (i >= 90 ? seed * 1000003u : 0)) % 50000;
    text->prompt = (struct prompt){.root = root_a, .tokens = text->tokens, .count = count};
}

/* The text's first `end` tokens, then a branch of `count` rows; `whole` of them alone are stored.
 */
static void branch_store(struct fixture *fx, const struct text *from, uint64_t end, uint64_t count,
                         uint64_t whole, uint64_t piece)
{
    struct text text = *from;
    for (uint64_t i = 0; i < count; i++)
        text.tokens[end + i] = i + 1 < count ? TOKEN : TOKEN_END;
    text.mark = (struct sc_mark){end, mark_a};
    text.prompt = (struct prompt){.root = root_a,
                                  .tokens = text.tokens,
                                  .count = end + whole,
                                  .marks = &text.mark,
                                  .mark_count = 1};
    uint64_t first = matched(fx, &text.prompt); /* runs of it may be there */
    assert_int_equal(store_from(fx, &text.prompt, first, CHUNK, piece), SPEC_OK);
}

static struct sc_radix_branch branch_of(uint64_t count, uint64_t above, uint64_t most)
{
    return (struct sc_radix_branch){.token = TOKEN,
                                    .end_token = TOKEN_END,
                                    .count = count,
                                    .mark = mark_a,
                                    .above = above,
                                    .most = most};
}

/* Where the branch hangs that is found from the text's match up; 0: none. */
static uint64_t found(struct fixture *fx, const struct text *text, struct sc_radix_branch branch,
                      struct sc_radix_match *ret_match)
{
    struct sc_radix_segment segments[MAX];
    struct sc_radix_match match = pin_of(fx, &text->prompt);
    uint64_t rows = 0;
    bool has = sc_radix_branch_pin(fx->index, match.last, &branch, segments, MAX, ret_match);
    for (uint64_t i = 0; has && i < ret_match->segment_count; i++)
        rows += segments[i].count;
    assert_true(!has || branch.count == 0 || rows == branch.count);
    if (has)
        sc_radix_unpin(fx->index, ret_match->last);
    sc_radix_unpin(fx->index, match.last);
    return has ? ret_match->token_count : 0;
}

static void the_deepest_one_within_bounds_is_found(void **state)
{
    (void)state;
    struct fixture fx;
    struct text text, other;
    struct sc_radix_match match;
    fixture_open(&fx, CHUNK, 1u << 20);
    text_make(&text, 0, TOKENS);
    text_make(&other, 1, 150);
    store_all(&fx, &text.prompt, CHUNK, 1);
    assert_int_equal(found(&fx, &text, branch_of(20, 0, TOKENS), &match), 0);
    branch_store(&fx, &text, 50, 20, 20, 100);
    branch_store(&fx, &text, 128, 20, 20, 110);
    branch_store(&fx, &text, 170, 20, 20, 120);
    store_all(&fx, &other.prompt, CHUNK, 200); /* parts inside a run at 90 */
    assert_int_equal(found(&fx, &text, branch_of(20, 0, TOKENS), &match), 170);
    assert_true(match.segment_count >= 2 && match.last_piece >= 120);
    assert_int_equal(found(&fx, &text, branch_of(0, 0, TOKENS), &match), 170);
    assert_int_equal(found(&fx, &text, branch_of(20, 0, 170), &match), 170);
    assert_int_equal(found(&fx, &text, branch_of(20, 0, 169), &match), 128);
    assert_int_equal(found(&fx, &text, branch_of(20, 128, 169), &match), 0);
    assert_int_equal(found(&fx, &text, branch_of(19, 0, TOKENS), &match), 0);
    assert_int_equal(found(&fx, &other, branch_of(20, 0, TOKENS), &match), 50);
    struct sc_radix_branch branch = branch_of(20, 0, TOKENS);
    branch.multiple_of = 64;
    assert_int_equal(found(&fx, &text, branch, &match), 128);
    branch = branch_of(20, 0, TOKENS);
    branch.mark = mark_b;
    assert_int_equal(found(&fx, &text, branch, &match), 0);
    branch = branch_of(20, 0, TOKENS);
    branch.flags_end = 120 * 3; /* the fixture's flags grow with pieces */
    assert_int_equal(found(&fx, &text, branch, &match), 128);
    branch.most = 60;
    branch.flags_end = 101 * 3; /* as its last piece has */
    assert_int_equal(found(&fx, &text, branch, &match), 0);
    branch.flags_end++;
    assert_int_equal(found(&fx, &text, branch, &match), 50);
    struct sc_radix_segment segment;
    struct sc_radix_match last = pin_of(&fx, &text.prompt);
    branch = branch_of(20, 0, TOKENS);
    assert_false(sc_radix_branch_pin(fx.index, last.last, &branch, &segment, 1, &match));
    assert_true(sc_radix_branch_pin(fx.index, last.last, &branch, NULL, 0, &match));
    sc_radix_unpin(fx.index, match.last);
    sc_radix_unpin(fx.index, last.last);
    fixture_check(&fx);
    fixture_close(&fx);
}

static void one_that_is_not_whole_is_passed_over(void **state)
{
    (void)state;
    struct fixture fx;
    struct text text;
    struct sc_radix_match match;
    fixture_open(&fx, CHUNK, 1u << 20);
    text_make(&text, 0, TOKENS);
    store_all(&fx, &text.prompt, CHUNK, 1);
    branch_store(&fx, &text, 33, 1, 1, 100); /* its first token is its last */
    branch_store(&fx, &text, 50, 40, 40, 110);
    branch_store(&fx, &text, 170, 40, 39, 120);
    assert_int_equal(found(&fx, &text, branch_of(40, 0, TOKENS), &match), 50);
    assert_int_equal(found(&fx, &text, branch_of(0, 0, TOKENS), &match), 50);
    assert_int_equal(found(&fx, &text, branch_of(1, 0, TOKENS), &match), 33);
    /* Its last run goes: it is none any more. */
    assert_int_equal(found(&fx, &text, branch_of(40, 0, 60), &match), 50);
    assert_int_equal(sc_radix_remove(fx.index, match.last, SC_RADIX_RUN, NULL), SPEC_OK);
    assert_int_equal(found(&fx, &text, branch_of(40, 0, TOKENS), &match), 0);
    fixture_check(&fx);
    fixture_close(&fx);
}

struct reader {
    struct fixture *fx;
    const struct text *text;
    _Atomic uint32_t *stop;
    _Atomic uint64_t finds;
    uint64_t wrong;
};

static void *read_on(void *argument)
{
    struct reader *reader = argument;
    struct sc_radix_match match;
    while (!atomic_load(reader->stop)) {
        uint64_t end = found(reader->fx, reader->text, branch_of(40, 0, TOKENS), &match);
        reader->finds += end > 0;
        reader->wrong += end != 0 && end != 50 && end != 170;
    }
    return NULL;
}

static bool all_have_found(struct reader *readers)
{
    for (uint32_t i = 0; i < READERS; i++)
        if (atomic_load(&readers[i].finds) == 0)
            return false;
    return true;
}

/* One branch comes and goes, the other stays: readers find the one or the other. The rounds go on
 * until each reader has had the processor. */
static void readers_find_one_while_another_comes_and_goes(void **state)
{
    (void)state;
    struct fixture fx;
    static struct text text;
    struct reader readers[READERS];
    pthread_t threads[READERS];
    _Atomic uint32_t stop = 0;
    fixture_open(&fx, CHUNK, 4u << 20);
    text_make(&text, 0, TOKENS);
    store_all(&fx, &text.prompt, CHUNK, 1);
    branch_store(&fx, &text, 50, 40, 40, 100);
    for (uint32_t i = 0; i < READERS; i++) {
        readers[i] = (struct reader){.fx = &fx, .text = &text, .stop = &stop};
        assert_int_equal(pthread_create(&threads[i], NULL, read_on, &readers[i]), 0);
    }
    for (uint32_t n = 0; n < ROUNDS || !all_have_found(readers); n++) {
        struct sc_radix_match match;
        branch_store(&fx, &text, 170, 40, 40, 1000);
        assert_int_equal(found(&fx, &text, branch_of(40, 0, TOKENS), &match), 170);
        spec_status status = sc_radix_remove(fx.index, match.last, SC_RADIX_RUN, NULL);
        assert_true(status == SPEC_OK || status == SPEC_PENDING);
        (void)sc_radix_sweep(fx.index, NULL);
    }
    atomic_store(&stop, 1);
    for (uint32_t i = 0; i < READERS; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        assert_int_equal(readers[i].wrong, 0);
    }
    (void)sc_radix_sweep(fx.index, NULL);
    fixture_check(&fx);
    fixture_close(&fx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_deepest_one_within_bounds_is_found),
        cmocka_unit_test(one_that_is_not_whole_is_passed_over),
        cmocka_unit_test(readers_find_one_while_another_comes_and_goes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
