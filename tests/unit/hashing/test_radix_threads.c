/* Readers under a writer: matches and pins while runs are added, split, hidden and removed, and
 * while tables and slabs come and go. Labelled tsan: under ThreadSanitizer it must be silent.
 *
 *   pieces[]   what the writer stored, written before it is inserted and never changed: the prompt
 *              and where its rows begin; and a bit a row once the index said that it is removed
 *
 * Holds: every segment of every match names a piece whose prompt begins with the very tokens asked
 * for; what is pinned is not removed before it is unpinned. Nothing depends on who is faster.
 * Threads: one writer, three readers. */
#include "tests/unit/hashing/radix_fixture.h"

#include <pthread.h>
#include <sched.h>

#define READERS     3u
#define CHUNK       16u
#define PROMPTS     256u
#define LENGTH      80u
#define WRITES      40000u
#define RESET_EVERY 5000u
#define MATCHES_MIN 2000u /* of each reader */
#define PIECES      (WRITES * 6u)

struct piece {
    uint32_t prompt;
    uint32_t first; /* token of row 0 */
    _Atomic uint64_t removed;
};

struct text {
    uint32_t tokens[LENGTH];
    uint64_t count;
    struct sc_mark marks[2];
    uint64_t mark_count;
};

struct shared {
    struct fixture fx;
    struct text texts[PROMPTS];
    struct piece *pieces;
    uint64_t piece_count; /* writer only */
    _Atomic uint32_t readers_ready;
    _Atomic uint32_t writer_done;
    _Atomic uint32_t wrong; /* cmocka's asserts belong to the main thread */
    _Atomic uint64_t matched_tokens;
};

static const struct sc_sha256 root = {{11, 12}};

static uint64_t draw(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state * UINT64_C(0x2545f4914f6cdd1d) >> 16;
}

/* Prompts that share beginnings of every length. */
static void make_texts(struct shared *sh, uint64_t seed)
{
    uint64_t random = seed | 1;
    for (uint32_t i = 0; i < PROMPTS; i++) {
        struct text *text = &sh->texts[i];
        uint64_t keep = 0;
        if (i != 0) {
            const struct text *from = &sh->texts[draw(&random) % i];
            *text = *from;
            keep = draw(&random) % (from->count + 1);
        }
        text->count = keep + draw(&random) % (LENGTH - keep + 1);
        if (text->count == 0)
            text->count = 1;
        for (uint64_t t = keep; t < text->count; t++)
            text->tokens[t] = (uint32_t)(draw(&random) % 3);
        if (i % 16 == 0) {
            text->mark_count = 1;
            text->marks[0] = (struct sc_mark){draw(&random) % 40, {{(uint8_t)i}}};
        }
    }
}

static struct prompt prompt_of(const struct text *text)
{
    return (struct prompt){root, text->tokens, text->count, text->marks, text->mark_count};
}

/* ---- the writer ---------------------------------------------------------------------------- */

static void note_removed(const struct sc_radix_segment *segment, void *user)
{
    struct shared *sh = user;
    uint64_t bits = (UINT64_C(1) << segment->count) - 1;
    struct piece *piece = &sh->pieces[segment->value.piece];
    uint64_t before = atomic_fetch_or(&piece->removed, bits << segment->value.row_first);
    if ((before & bits << segment->value.row_first) != 0)
        atomic_fetch_add(&sh->wrong, 1); /* a row is removed once */
}

static void write_store(struct shared *sh, uint32_t number)
{
    const struct text *text = &sh->texts[number];
    struct prompt prompt = prompt_of(text);
    struct sc_radix_match match = match_of(&sh->fx, &prompt);
    struct sc_radix_inserted done = {.whole = match.whole, .whole_end = match.whole_end};
    for (uint64_t first = match.token_count; first < text->count;) {
        uint64_t end = (first / CHUNK + 1) * CHUNK;
        end = end < text->count ? end : text->count;
        uint64_t piece = sh->piece_count++;
        sh->pieces[piece].prompt = number;
        sh->pieces[piece].first = (uint32_t)first;
        struct sc_radix_insertion in = {.root = root,
                                        .after = done.whole,
                                        .first = done.whole_end,
                                        .tokens = text->tokens + done.whole_end,
                                        .token_count = end - done.whole_end,
                                        .run_first = first,
                                        .marks = {text->marks, text->mark_count},
                                        .value = {.piece = piece}};
        if (sc_radix_insert(sh->fx.index, &in, &done, NULL) != SPEC_OK)
            atomic_fetch_add(&sh->wrong, 1);
        first = end;
    }
}

static void write_remove(struct shared *sh, const struct text *text, uint64_t *random)
{
    struct sc_radix_segment segments[LENGTH];
    struct sc_radix_match match;
    struct prompt prompt = prompt_of(text);
    struct sc_radix_query query = query_of(&prompt);
    sc_radix_match(sh->fx.index, &query, segments, LENGTH, &match);
    if (match.segment_count == 0)
        return;
    uint64_t i = draw(random) % match.segment_count;
    spec_status status =
        sc_radix_remove(sh->fx.index, segments[i].node, SC_RADIX_PIECE, &sh->fx.removal);
    if (status != SPEC_OK && status != SPEC_PENDING)
        atomic_fetch_add(&sh->wrong, 1);
}

static void write_evict(struct shared *sh, uint64_t *random)
{
    struct sc_radix_segment leaf;
    struct sc_radix_evicted evicted;
    if (draw(random) % 2 == 0) {
        if (sc_radix_evict(sh->fx.index, &evicted))
            note_removed(&evicted.segment, sh);
    } else if (sc_radix_victim(sh->fx.index, &leaf)) {
        (void)sc_radix_remove(sh->fx.index, leaf.node, SC_RADIX_RUN, &sh->fx.removal);
    }
    (void)sc_radix_sweep(sh->fx.index, &sh->fx.removal);
}

/* The prefix that a place names is the one it was made from, and stays while it is pinned. */
static void write_attach(struct shared *sh, const struct text *text)
{
    struct prompt prompt = prompt_of(text);
    struct sc_radix_match match = match_of(&sh->fx, &prompt);
    if (match.token_count == 0)
        return;
    struct sc_radix_claim claim = claim_of(&sh->fx, &prompt, match.token_count);
    uint32_t tokens[LENGTH];
    const struct sc_radix_room room = {.tokens = tokens, .token_capacity = LENGTH};
    struct sc_radix_attached attached;
    if (sc_radix_attach(sh->fx.index, &claim, &room, &attached, NULL) != SPEC_OK ||
        memcmp(tokens, text->tokens, 4 * match.token_count) != 0) {
        atomic_fetch_add(&sh->wrong, 1);
        return;
    }
    if (!sc_radix_is_pinned(sh->fx.index, attached.match.last))
        atomic_fetch_add(&sh->wrong, 1);
    sc_radix_unpin(sh->fx.index, attached.match.last);
}

static void *writer(void *user)
{
    struct shared *sh = user;
    uint64_t random = 77;
    uint64_t mark = 0; /* roots before it are being removed */
    while (atomic_load(&sh->readers_ready) < READERS)
        sched_yield();
    for (uint32_t i = 0; i < WRITES; i++) {
        uint32_t number = (uint32_t)(draw(&random) % PROMPTS);
        uint64_t op = draw(&random) % 10;
        if (op < 6)
            write_store(sh, number);
        else if (op < 8)
            write_remove(sh, &sh->texts[number], &random);
        else if (op < 9)
            write_evict(sh, &random);
        else
            write_attach(sh, &sh->texts[number]);
        if (i % RESET_EVERY == RESET_EVERY - 1) {
            /* After the last reset nothing is left to be matched by readers that come late. */
            while (atomic_load(&sh->matched_tokens) <= MATCHES_MIN)
                sched_yield();
            mark = sc_radix_root_mark(sh->fx.index);
        }
        (void)sc_radix_remove_roots(sh->fx.index, mark, 5, &sh->fx.removal);
        if (i % 64 == 0)
            sched_yield();
    }
    atomic_store(&sh->writer_done, 1);
    return NULL;
}

/* ---- the readers --------------------------------------------------------------------------- */

static bool segments_are_right(const struct shared *sh, const struct text *text,
                               const struct sc_radix_segment *segments,
                               const struct sc_radix_match *match)
{
    uint64_t at = 0;
    for (uint64_t i = 0; i < match->segment_count; i++) {
        const struct sc_radix_segment *segment = &segments[i];
        const struct piece *piece = &sh->pieces[segment->value.piece];
        const struct text *from = &sh->texts[piece->prompt];
        uint64_t end = segment->first + segment->count;
        if (segment->first != at || segment->count == 0 || end > from->count ||
            piece->first + segment->value.row_first != at ||
            memcmp(from->tokens, text->tokens, 4 * end) != 0)
            return false;
        bool has = text->mark_count != 0 && text->marks[0].token < end;
        bool had = from->mark_count != 0 && from->marks[0].token < end;
        if (has != had ||
            (has && (text->marks[0].token != from->marks[0].token ||
                     text->marks[0].digest.bytes[0] != from->marks[0].digest.bytes[0])))
            return false;
        at = end;
    }
    return at == match->token_count;
}

static bool segments_are_there(const struct shared *sh, const struct sc_radix_segment *segments,
                               const struct sc_radix_match *match)
{
    for (uint64_t i = 0; i < match->segment_count; i++) {
        uint64_t bits = ((UINT64_C(1) << segments[i].count) - 1) << segments[i].value.row_first;
        if ((atomic_load(&sh->pieces[segments[i].value.piece].removed) & bits) != 0)
            return false;
    }
    return true;
}

static void read_once(struct shared *sh, uint64_t *random)
{
    const struct text *text = &sh->texts[draw(random) % PROMPTS];
    struct sc_radix_segment segments[LENGTH];
    struct sc_radix_match match;
    struct prompt prompt = prompt_of(text);
    struct sc_radix_query query = query_of(&prompt);
    bool pin = draw(random) % 2 == 0;
    if (pin)
        sc_radix_match_pin(sh->fx.index, &query, segments, LENGTH, &match);
    else
        sc_radix_match(sh->fx.index, &query, segments, LENGTH, &match);
    bool right = segments_are_right(sh, text, segments, &match);
    if (pin) {
        if (draw(random) % 8 == 0)
            sched_yield();
        right = right && segments_are_there(sh, segments, &match);
        sc_radix_unpin(sh->fx.index, match.last);
    }
    if (!right)
        atomic_fetch_add(&sh->wrong, 1);
    atomic_fetch_add_explicit(&sh->matched_tokens, match.token_count, memory_order_relaxed);
}

static void *reader(void *user)
{
    struct shared *sh = user;
    uint64_t random = (atomic_fetch_add(&sh->readers_ready, 1) + 1) * UINT64_C(0x1234567);
    uint64_t count = 0;
    while (atomic_load(&sh->writer_done) == 0 || count < MATCHES_MIN) {
        read_once(sh, &random);
        count++;
    }
    return NULL;
}

static void readers_are_right_under_a_writer(void **state)
{
    (void)state;
    static struct shared sh;
    fixture_open(&sh.fx, CHUNK, UINT64_C(64) << 20);
    sh.fx.removal = (struct sc_radix_removal){note_removed, &sh};
    sh.pieces = calloc(PIECES, sizeof(struct piece));
    assert_non_null(sh.pieces);
    make_texts(&sh, 5);
    pthread_t threads[READERS + 1];
    assert_int_equal(pthread_create(&threads[READERS], NULL, writer, &sh), 0);
    for (uint32_t i = 0; i < READERS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, reader, &sh), 0);
    for (uint32_t i = 0; i <= READERS; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    assert_int_equal(atomic_load(&sh.wrong), 0);
    assert_true(atomic_load(&sh.matched_tokens) > MATCHES_MIN);
    while (sc_radix_remove_roots(sh.fx.index, 0, 1000, &sh.fx.removal))
        continue;
    assert_int_equal(sc_radix_sweep(sh.fx.index, &sh.fx.removal), 0);
    fixture_check(&sh.fx);
    struct sc_radix_stats stats;
    sc_radix_stats(sh.fx.index, &stats);
    print_message("matches %" PRIu64 ", retries %" PRIu64 ", shortened %" PRIu64 ", splits %" PRIu64
                  ", pieces %" PRIu64 "\n",
                  stats.matches, stats.retries, stats.shortened, stats.splits, sh.piece_count);
    assert_true(stats.splits > 100);
    free(sh.pieces);
    fixture_close(&sh.fx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(readers_are_right_under_a_writer),
    };
    return cmocka_run_group_tests_name("hashing radix threads", tests, NULL, NULL);
}
