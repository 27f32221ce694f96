/* The radix index beside a dumb twin: random operations, and after each both must agree.
 *
 *   the twin     one node a token: parent, token, mark, piece, row, pins, hidden, last use; found
 * by walking a list. It knows nothing of runs, chunks, hashes or tables.
 *
 * Holds: a failure prints its seed; SC_SEED=N runs that seed alone.
 * Threads: one. */
#include "tests/unit/hashing/radix_fixture.h"

#define SEEDS      60u
#define OPS        5000u
#define TOKENS_MAX 160u
#define MARKS_MAX  8u
#define PROMPTS    48u
#define LEASES     12u
#define TWINS_MAX  400000u
#define PIECES_MAX 60000u
#define ROWS_MAX   64u
#define NONE       UINT32_MAX
#define OP_INSERT  400u /* shares of 1,000 */
#define OP_MATCH   580u
#define OP_PASS    590u
#define OP_ATTACH  650u
#define OP_PIN     750u
#define OP_UNPIN   830u
#define OP_RESET   835u
#define OP_REMOVE  940u
#define OP_SWEEP   960u

struct twin {
    uint32_t parent;
    uint32_t first_child;
    uint32_t next;
    uint32_t token;
    bool marked;
    struct sc_sha256 mark;
    uint32_t piece;
    uint32_t row;
    uint32_t pins;
    bool hidden;
    bool doomed;
    bool old;     /* below a root that was reset */
    bool waiting; /* and hidden before that */
    bool gone;
    uint64_t stamp;
};

/* A prompt that other prompts are made from. */
struct text {
    uint32_t root;
    uint64_t count;
    uint32_t tokens[TOKENS_MAX];
    uint64_t mark_count;
    struct sc_mark marks[MARKS_MAX];
};

struct lease {
    struct sc_radix_ref ref;
    uint32_t twin; /* the last token of the pinned run; NONE: free */
};

struct world {
    struct fixture fx;
    uint64_t random;
    uint32_t chunk_tokens;
    uint32_t letters;
    bool grows; /* removes less */
    struct text texts[PROMPTS];
    struct lease leases[LEASES];
    struct twin *twins;
    uint32_t twin_count;
    uint32_t roots[3]; /* twins of depth 0 */
    uint32_t *rows;    /* [piece][row]: the twin */
    uint32_t piece_count;
    uint64_t clock;
    uint64_t live; /* tokens stored, hidden ones too */
};

/* What happened over all seeds: each must, or the test tests less than it says. */
enum event {
    ADDED,
    ADDED_IN_PART,
    ALL_THERE,
    ORPHAN,
    PINNED,
    REMOVED,
    HIDDEN,
    SWEPT,
    EVICTED,
    EVICTED_IN_PART,
    PASSED_OVER,
    ATTACHED,
    ATTACHED_INSIDE,
    RESET,
    RESET_PINNED,
    EVENTS
};
static const char *const event_names[EVENTS] = {"added",
                                                "added in part",
                                                "all there",
                                                "orphan",
                                                "pinned",
                                                "removed",
                                                "hidden",
                                                "swept",
                                                "evicted",
                                                "evicted in part",
                                                "passed over",
                                                "attached",
                                                "attached inside a run",
                                                "reset",
                                                "reset with pins"};
static uint64_t events[EVENTS];

static uint64_t draw(struct world *w)
{
    w->random ^= w->random << 13;
    w->random ^= w->random >> 7;
    w->random ^= w->random << 17;
    return w->random * UINT64_C(0x2545f4914f6cdd1d) >> 16;
}

static uint64_t below(struct world *w, uint64_t limit)
{
    return draw(w) % limit;
}

/* ---- the twin ------------------------------------------------------------------------------ */

static const struct sc_mark *mark_at(const struct text *text, uint64_t position)
{
    for (uint64_t i = 0; i < text->mark_count; i++) {
        if (text->marks[i].token == position)
            return &text->marks[i];
    }
    return NULL;
}

static uint32_t twin_new(struct world *w, uint32_t parent, uint32_t token,
                         const struct sc_mark *mark)
{
    uint32_t id = w->twin_count++;
    assert_true(id < TWINS_MAX);
    struct twin *twin = &w->twins[id];
    *twin = (struct twin){.parent = parent, .first_child = NONE, .next = NONE, .token = token};
    twin->marked = mark != NULL;
    if (mark != NULL)
        twin->mark = mark->digest;
    if (parent != NONE) {
        twin->next = w->twins[parent].first_child;
        w->twins[parent].first_child = id;
    }
    return id;
}

static uint32_t twin_child(const struct world *w, uint32_t parent, const struct text *text,
                           uint64_t position)
{
    const struct sc_mark *mark = mark_at(text, position);
    for (uint32_t id = w->twins[parent].first_child; id != NONE; id = w->twins[id].next) {
        const struct twin *twin = &w->twins[id];
        if (!twin->gone && !twin->hidden && twin->token == text->tokens[position] &&
            twin->marked == (mark != NULL) &&
            (mark == NULL || sc_sha256_equal(&twin->mark, &mark->digest)))
            return id;
    }
    return NONE;
}

/* The path of a prompt's stored tokens; path[i] is token i. Returns how many there are. */
static uint64_t twin_match(const struct world *w, const struct text *text, uint32_t *path)
{
    uint32_t at = w->roots[text->root];
    uint64_t count = 0;
    while (count < text->count) {
        at = twin_child(w, at, text, count);
        if (at == NONE)
            break;
        path[count++] = at;
    }
    return count;
}

/* Walks a subtree: calls `each` for every living twin in it; stops when it returns false. */
static bool twin_each(struct world *w, uint32_t id, bool (*each)(struct world *, uint32_t, void *),
                      void *user)
{
    if (w->twins[id].gone)
        return true;
    if (!each(w, id, user))
        return false;
    for (uint32_t child = w->twins[id].first_child; child != NONE; child = w->twins[child].next) {
        if (!twin_each(w, child, each, user))
            return false;
    }
    return true;
}

static bool is_unpinned(struct world *w, uint32_t id, void *user)
{
    (void)user;
    return w->twins[id].pins == 0;
}

struct sum {
    uint64_t count;
    uint64_t stamp;
};

static bool do_remove(struct world *w, uint32_t id, void *user)
{
    struct sum *sum = user;
    w->twins[id].gone = true;
    w->twins[id].doomed = false;
    if (w->twins[id].parent == NONE) /* a root is no token */
        return true;
    w->live--;
    sum->count++;
    if (w->twins[id].stamp > sum->stamp)
        sum->stamp = w->twins[id].stamp;
    return true;
}

static bool do_hide(struct world *w, uint32_t id, void *user)
{
    struct sum *sum = user;
    w->twins[id].hidden = true;
    if (w->twins[id].stamp > sum->stamp)
        sum->stamp = w->twins[id].stamp;
    return true;
}

static void raise_parent(struct world *w, uint32_t id, uint64_t stamp)
{
    if (w->twins[id].parent == NONE)
        return;
    struct twin *parent = &w->twins[w->twins[id].parent];
    if (parent->stamp < stamp)
        parent->stamp = stamp;
}

static uint64_t twin_remove(struct world *w, uint32_t id)
{
    struct sum sum = {0, 0};
    /* Children first would do as well: `gone` is looked at before a twin is entered. */
    for (uint32_t child = w->twins[id].first_child; child != NONE; child = w->twins[child].next)
        (void)twin_each(w, child, do_remove, &sum);
    (void)do_remove(w, id, &sum);
    raise_parent(w, id, sum.stamp);
    return sum.count;
}

/* ---- prompts ------------------------------------------------------------------------------- */

static void add_marks(struct world *w, struct text *text)
{
    text->mark_count = 0;
    if (below(w, 3) != 0)
        return;
    uint64_t at = below(w, 20);
    while (text->mark_count < MARKS_MAX && at < text->count) {
        uint64_t value = 1 + below(w, 2);
        text->marks[text->mark_count++] = (struct sc_mark){at, {{(uint8_t)value}}};
        at += 1 + below(w, 40);
    }
}

/* A prompt of its own, or one that shares a beginning with another. */
static void make_text(struct world *w, struct text *text)
{
    const struct text *from = &w->texts[below(w, PROMPTS)];
    if (from->count == 0 || below(w, 8) == 0) {
        text->root = (uint32_t)below(w, 3);
        text->count = 1 + below(w, TOKENS_MAX);
        for (uint64_t i = 0; i < text->count; i++)
            text->tokens[i] = (uint32_t)below(w, w->letters);
        add_marks(w, text);
        return;
    }
    *text = *from;
    uint64_t keep = 1 + below(w, from->count);
    uint64_t grow = below(w, TOKENS_MAX - keep + 1);
    if (below(w, 4) == 0)
        grow = 0;
    for (uint64_t i = keep; i < keep + grow; i++)
        text->tokens[i] = (uint32_t)below(w, w->letters);
    text->count = keep + grow;
    if (below(w, 6) == 0)
        add_marks(w, text);
    if (below(w, 20) == 0)
        text->root = (uint32_t)below(w, 3);
}

/* Their first halves differ: chains of one first half share hashes. */
static struct sc_sha256 root_hash(uint32_t root)
{
    return (struct sc_sha256){{(uint8_t)(root + 100), (uint8_t)root}};
}

static struct prompt prompt_of(const struct text *text)
{
    return (struct prompt){root_hash(text->root), text->tokens, text->count, text->marks,
                           text->mark_count};
}

/* ---- operations ---------------------------------------------------------------------------- */

/* Compares a match with the twin's; returns the tokens. */
static uint64_t compare(struct world *w, const struct text *text, uint32_t *path,
                        struct sc_radix_segment *segments, struct sc_radix_match *ret_match,
                        bool pin)
{
    struct prompt prompt = prompt_of(text);
    struct sc_radix_query query = query_of(&prompt);
    if (pin)
        sc_radix_match_pin(w->fx.index, &query, segments, TOKENS_MAX, ret_match);
    else
        sc_radix_match(w->fx.index, &query, segments, TOKENS_MAX, ret_match);
    uint64_t want = twin_match(w, text, path);
    assert_int_equal(ret_match->token_count, want);
    assert_int_equal(ret_match->shortened, 0);
    assert_true(ret_match->segment_count <= TOKENS_MAX);
    uint64_t at = 0;
    for (uint64_t i = 0; i < ret_match->segment_count; i++) {
        assert_int_equal(segments[i].first, at);
        for (uint64_t j = 0; j < segments[i].count; j++, at++) {
            assert_int_equal(segments[i].value.piece, w->twins[path[at]].piece);
            assert_int_equal(segments[i].value.row_first + j, w->twins[path[at]].row);
        }
    }
    assert_int_equal(at, want);
    return want;
}

/* The twin of a run's last token, from that of one of its tokens: a run has no side branches. */
static uint32_t run_last(struct world *w, struct sc_radix_ref ref, uint32_t id, uint64_t position)
{
    struct sc_radix_segment run;
    assert_true(sc_radix_get(w->fx.index, ref, &run));
    for (; position + 1 < run.first + run.count; position++) {
        uint32_t child = w->twins[id].first_child;
        while (child != NONE && w->twins[child].gone)
            child = w->twins[child].next;
        assert_int_not_equal(child, NONE);
        id = child;
    }
    return id;
}

static void twin_insert(struct world *w, const struct text *text, uint32_t *path, uint64_t have,
                        uint64_t run_first, uint64_t end, uint32_t piece)
{
    uint32_t at = have == 0 ? w->roots[text->root] : path[have - 1];
    for (uint64_t i = have; i < end; i++) {
        at = twin_new(w, at, text->tokens[i], mark_at(text, i));
        path[i] = at;
        w->twins[at].piece = piece;
        w->twins[at].row = (uint32_t)(i - run_first);
        w->twins[at].stamp = w->clock;
        w->rows[(uint64_t)piece * ROWS_MAX + (i - run_first)] = at;
        w->live++;
    }
}

/* Inserts one run, anchored at the root, or at a run that a match found. */
static void op_insert(struct world *w, const struct text *text)
{
    static uint32_t path[TOKENS_MAX];
    static struct sc_radix_segment segments[TOKENS_MAX];
    struct sc_radix_match match;
    uint64_t have = compare(w, text, path, segments, &match, false);
    uint64_t run_first = below(w, 4) == 0 ? below(w, text->count) : have;
    if (run_first >= text->count)
        run_first = below(w, text->count);
    uint64_t border = (run_first / w->chunk_tokens + 1) * w->chunk_tokens;
    uint64_t most = (border < text->count ? border : text->count) - run_first;
    uint64_t end = run_first + (below(w, 2) == 0 ? most : 1 + below(w, most));
    struct sc_radix_insertion in = {.root = root_hash(text->root),
                                    .marks = {text->marks, text->mark_count},
                                    .run_first = run_first};
    if (below(w, 3) != 0 && match.whole_end <= run_first) {
        in.after = match.whole;
        in.first = match.whole_end;
    }
    in.tokens = text->tokens + in.first;
    in.token_count = end - in.first;
    uint32_t piece = w->piece_count++;
    assert_true(piece < PIECES_MAX);
    in.value.piece = piece;
    struct sc_radix_inserted done;
    struct sc_chain chain;
    sc_chain_init(&chain, sc_radix_secret(w->fx.index), &in.root, w->chunk_tokens);
    sc_chain_extend(&chain, text->tokens, end, in.marks);
    struct sc_hash end_hash = sc_chain_at(&chain);
    if (below(w, 2) == 0)
        in.end_hash = &end_hash; /* sc_radix_check computes it again */
    spec_status status = sc_radix_insert(w->fx.index, &in, &done, NULL);
    if (run_first > have) {
        assert_int_equal(status, SPEC_E_STALE);
        events[ORPHAN]++;
        return;
    }
    assert_int_equal(status, SPEC_OK);
    w->clock++;
    assert_int_equal(done.new_count, end > have ? end - have : 0);
    events[end <= have ? ALL_THERE : have > run_first ? ADDED_IN_PART : ADDED]++;
    if (end > have) {
        twin_insert(w, text, path, have, run_first, end, piece);
        assert_int_equal(done.whole_end, end);
        struct sc_radix_ref found = sc_radix_find(w->fx.index, end_hash, end);
        assert_int_equal(found.id, end % w->chunk_tokens == 0 ? done.last.id : 0);
    } else {
        w->twins[run_last(w, done.last, path[end - 1], end - 1)].stamp = w->clock;
    }
}

static void op_match(struct world *w, const struct text *text)
{
    static uint32_t path[TOKENS_MAX];
    static struct sc_radix_segment segments[TOKENS_MAX];
    struct sc_radix_match match;
    (void)compare(w, text, path, segments, &match, false);
}

static void op_pin(struct world *w, const struct text *text)
{
    static uint32_t path[TOKENS_MAX];
    static struct sc_radix_segment segments[TOKENS_MAX];
    struct lease *lease = &w->leases[below(w, LEASES)];
    if (lease->twin != NONE)
        return;
    struct sc_radix_match match;
    uint64_t have = compare(w, text, path, segments, &match, true);
    if (have == 0)
        return;
    lease->ref = match.last;
    lease->twin = run_last(w, match.last, path[have - 1], have - 1);
    w->twins[lease->twin].pins++;
    w->twins[lease->twin].stamp = ++w->clock;
    events[PINNED]++;
}

static void op_unpin(struct world *w)
{
    struct lease *lease = &w->leases[below(w, LEASES)];
    if (lease->twin == NONE)
        return;
    struct sc_radix_segment run; /* the run that it names still ends at the same token */
    assert_true(sc_radix_get(w->fx.index, lease->ref, &run));
    assert_int_equal(w->rows[run.value.piece * ROWS_MAX + run.value.row_first + run.count - 1],
                     lease->twin);
    sc_radix_unpin(w->fx.index, lease->ref);
    w->twins[lease->twin].pins--;
    lease->twin = NONE;
}

/* Removes a run of a prompt's path, or the piece that it belongs to. */
static void op_remove(struct world *w, const struct text *text)
{
    static uint32_t path[TOKENS_MAX];
    static struct sc_radix_segment segments[TOKENS_MAX];
    struct sc_radix_match match;
    if (compare(w, text, path, segments, &match, false) == 0)
        return;
    uint64_t i = match.segment_count - 1;
    if (below(w, 3) == 0)
        i = below(w, match.segment_count);
    enum sc_radix_scope scope = below(w, 2) == 0 ? SC_RADIX_RUN : SC_RADIX_PIECE;
    uint64_t top = segments[i].first;
    while (scope == SC_RADIX_PIECE && top > 0 &&
           w->twins[path[top - 1]].piece == w->twins[path[top]].piece)
        top--;
    w->fx.removed_tokens = 0;
    spec_status status = sc_radix_remove(w->fx.index, segments[i].node, scope, &w->fx.removal);
    if (twin_each(w, path[top], is_unpinned, NULL)) {
        assert_int_equal(status, SPEC_OK);
        assert_int_equal(w->fx.removed_tokens, twin_remove(w, path[top]));
        events[REMOVED]++;
        return;
    }
    assert_int_equal(w->fx.removed_tokens, 0);
    assert_int_equal(status, SPEC_PENDING);
    struct sum sum = {0, 0};
    (void)twin_each(w, path[top], do_hide, &sum);
    w->twins[path[top]].doomed = true;
    events[HIDDEN]++;
    raise_parent(w, path[top], sum.stamp);
}

static void op_sweep(struct world *w)
{
    w->fx.removed_tokens = 0;
    uint64_t waiting = sc_radix_sweep(w->fx.index, &w->fx.removal);
    uint64_t removed = 0;
    uint64_t want = 0;
    for (uint32_t id = 0; id < w->twin_count; id++) {
        if (!w->twins[id].doomed || w->twins[id].gone)
            continue;
        if (twin_each(w, id, is_unpinned, NULL))
            removed += twin_remove(w, id);
        else
            want++;
    }
    assert_int_equal(w->fx.removed_tokens, removed);
    assert_int_equal(waiting, want);
    events[SWEPT] += removed != 0 ? 1 : 0;
}

/* A run that goes behind all others, as one does that is pinned when its turn comes. */
static void op_pass_over(struct world *w, const struct text *text)
{
    static uint32_t path[TOKENS_MAX];
    static struct sc_radix_segment segments[TOKENS_MAX];
    struct sc_radix_match match;
    uint64_t have = compare(w, text, path, segments, &match, false);
    if (have == 0)
        return;
    fixture_pass_over(&w->fx, match.last);
    w->twins[run_last(w, match.last, path[have - 1], have - 1)].stamp = ++w->clock;
    events[PASSED_OVER]++;
}

static bool has_visible_child(const struct world *w, uint32_t id)
{
    for (uint32_t child = w->twins[id].first_child; child != NONE; child = w->twins[child].next) {
        if (!w->twins[child].gone && !w->twins[child].hidden)
            return true;
    }
    return false;
}

static bool has_child(const struct world *w, uint32_t id)
{
    for (uint32_t child = w->twins[id].first_child; child != NONE; child = w->twins[child].next) {
        if (!w->twins[child].gone)
            return true;
    }
    return false;
}

/* The last use of the leaf that goes next; pinned ones that are met count as used. */
static uint64_t twin_oldest(struct world *w)
{
    uint64_t start = w->clock;
    for (;;) {
        uint32_t oldest = NONE;
        for (uint32_t id = 0; id < w->twin_count; id++) {
            const struct twin *twin = &w->twins[id];
            if (twin->parent != NONE && !twin->gone && !twin->hidden && !has_visible_child(w, id) &&
                (oldest == NONE || twin->stamp < w->twins[oldest].stamp))
                oldest = id;
        }
        if (oldest == NONE || w->twins[oldest].stamp > start)
            return UINT64_MAX;
        if (w->twins[oldest].pins == 0 && !has_child(w, oldest))
            return w->twins[oldest].stamp;
        w->twins[oldest].stamp = ++w->clock;
    }
}

/* What a leaf is in the twin: its first and its last token. */
static void check_leaf(const struct world *w, const struct sc_radix_segment *leaf, uint64_t oldest,
                       uint32_t *ret_first)
{
    uint64_t row = leaf->value.row_first + leaf->count - 1;
    uint32_t last = w->rows[leaf->value.piece * ROWS_MAX + row];
    assert_false(has_visible_child(w, last));
    assert_int_equal(w->twins[last].stamp, oldest);
    *ret_first = w->rows[leaf->value.piece * ROWS_MAX + leaf->value.row_first];
}

/* One that is found, then removed. */
static void op_evict_found(struct world *w)
{
    uint64_t oldest = twin_oldest(w);
    struct sc_radix_segment leaf;
    bool found = sc_radix_victim(w->fx.index, &leaf);
    assert_int_equal(found, oldest != UINT64_MAX);
    if (!found)
        return;
    uint32_t first;
    check_leaf(w, &leaf, oldest, &first);
    w->fx.removed_tokens = 0;
    assert_int_equal(sc_radix_remove(w->fx.index, leaf.node, SC_RADIX_RUN, &w->fx.removal),
                     SPEC_OK);
    assert_int_equal(w->fx.removed_tokens, leaf.count);
    assert_int_equal(twin_remove(w, first), leaf.count);
}

static void op_evict(struct world *w)
{
    uint64_t oldest = twin_oldest(w);
    struct sc_radix_evicted evicted;
    bool found = sc_radix_evict(w->fx.index, &evicted);
    assert_int_equal(found, oldest != UINT64_MAX);
    if (!found)
        return;
    uint32_t first;
    check_leaf(w, &evicted.segment, oldest, &first);
    const struct twin *twin = &w->twins[first];
    const struct twin *above = &w->twins[twin->parent];
    bool is_rest = above->parent != NONE && above->piece == twin->piece;
    assert_int_equal(evicted.rest.generation != 0, is_rest);
    if (is_rest) { /* the rest of the piece ends where the run began */
        struct sc_radix_segment rest;
        assert_true(sc_radix_get(w->fx.index, evicted.rest, &rest));
        assert_int_equal(rest.value.piece, twin->piece);
        assert_int_equal(rest.value.row_first + rest.count, twin->row);
        events[EVICTED_IN_PART]++;
    } else { /* and without one, nothing of it is left */
        for (uint32_t row = 0; row < twin->row; row++) {
            uint32_t id = w->rows[twin->piece * ROWS_MAX + row];
            assert_true(id == NONE || w->twins[id].gone);
        }
    }
    assert_int_equal(twin_remove(w, first), evicted.segment.count);
    events[EVICTED]++;
}

/* Finds a prefix by the piece that ends it. */
static void op_attach(struct world *w, const struct text *text)
{
    static uint32_t path[TOKENS_MAX], tokens[TOKENS_MAX];
    static struct sc_radix_segment segments[TOKENS_MAX], given[TOKENS_MAX];
    static struct sc_mark marks[TOKENS_MAX];
    struct lease *lease = &w->leases[below(w, LEASES)];
    struct sc_radix_match match;
    uint64_t have = compare(w, text, path, segments, &match, false);
    if (lease->twin != NONE || have == 0)
        return;
    struct prompt prompt = prompt_of(text);
    prompt.count = 1 + below(w, have);
    struct sc_radix_query query = query_of(&prompt);
    struct prompt whole = prompt_of(text);
    whole.count = have;
    struct sc_radix_claim claim = claim_of(&w->fx, &whole, prompt.count);
    sc_radix_match(w->fx.index, &query, segments, TOKENS_MAX, &match);
    const struct sc_radix_room room = {tokens, TOKENS_MAX, marks, TOKENS_MAX, given, TOKENS_MAX};
    struct sc_radix_attached attached;
    claim.place.end.lo ^= 1;
    assert_int_equal(sc_radix_attach(w->fx.index, &claim, &room, &attached, NULL), SPEC_E_STALE);
    claim.place.end.lo ^= 1;
    claim.piece++;
    assert_int_equal(sc_radix_attach(w->fx.index, &claim, &room, &attached, NULL), SPEC_E_STALE);
    claim.piece--;
    assert_int_equal(sc_radix_attach(w->fx.index, &claim, &room, &attached, NULL), SPEC_OK);
    assert_true(sc_sha256_equal(&attached.root, &query.root));
    assert_memory_equal(tokens, text->tokens, 4 * prompt.count);
    assert_int_equal(attached.match.token_count, prompt.count);
    assert_int_equal(attached.match.segment_count, match.segment_count);
    assert_memory_equal(given, segments, sizeof(given[0]) * match.segment_count);
    assert_memory_equal(&attached.match.last, &match.last, sizeof(match.last));
    assert_memory_equal(&attached.match.whole, &match.whole, sizeof(match.whole));
    assert_int_equal(attached.match.whole_end, match.whole_end);
    uint64_t mark_count =
        sc_chain_mark_from((struct sc_marks){text->marks, text->mark_count}, prompt.count);
    assert_int_equal(attached.mark_count, mark_count);
    assert_memory_equal(marks, text->marks, sizeof(marks[0]) * mark_count);
    lease->ref = attached.match.last;
    lease->twin = run_last(w, lease->ref, path[prompt.count - 1], prompt.count - 1);
    w->twins[lease->twin].pins++;
    w->twins[lease->twin].stamp = ++w->clock;
    events[match.whole_end == prompt.count ? ATTACHED : ATTACHED_INSIDE]++;
}

/* ---- resets -------------------------------------------------------------------------------- */

/* The index says that it removed a run of an old root: the twin loses it too. */
static void note_old(const struct sc_radix_segment *segment, void *user)
{
    struct world *w = user;
    for (uint64_t i = segment->count; i-- > 0;) {
        uint32_t id = w->rows[segment->value.piece * ROWS_MAX + segment->value.row_first + i];
        struct twin *twin = &w->twins[id];
        assert_true(twin->old && !twin->gone && twin->pins == 0);
        assert_false(has_child(w, id));
        twin->gone = true;
        w->live--;
    }
}

static bool make_old(struct world *w, uint32_t id, void *user)
{
    (void)user;
    w->twins[id].waiting = w->twins[id].hidden;
    w->twins[id].hidden = true;
    w->twins[id].old = true;
    return true;
}

static bool is_kept(struct world *w, uint32_t id, void *user)
{
    (void)user;
    assert_true(w->twins[id].waiting || !twin_each(w, id, is_unpinned, NULL));
    return true;
}

/* All roots at once, in small steps, while new ones are filled. */
static void op_reset(struct world *w)
{
    uint32_t old_roots[3];
    op_sweep(w); /* so that what is hidden is pinned */
    uint64_t mark = sc_radix_root_mark(w->fx.index);
    for (uint32_t i = 0; i < 3; i++) {
        old_roots[i] = w->roots[i];
        w->roots[i] = twin_new(w, NONE, 0, NULL);
        (void)twin_each(w, old_roots[i], make_old, NULL);
    }
    struct sc_radix_removal removal = {note_old, w};
    uint64_t steps = 1 + below(w, 40);
    while (sc_radix_remove_roots(w->fx.index, mark, steps, &removal)) {
        struct text *text = &w->texts[below(w, PROMPTS)];
        if (text->count != 0 && below(w, 4) == 0)
            op_insert(w, text);
        else if (text->count != 0 && below(w, 4) == 0)
            op_attach(w, text);
        if (below(w, 10) == 0)
            fixture_check(&w->fx);
    }
    for (uint32_t i = 0; i < 3; i++) {
        struct twin *root = &w->twins[old_roots[i]];
        root->doomed = has_child(w, old_roots[i]);
        root->gone = !root->doomed;
        if (root->doomed) /* what is left leads to a pin */
            (void)twin_each(w, old_roots[i], is_kept, NULL);
        events[root->doomed ? RESET_PINNED : RESET]++;
    }
}

/* ---- the run ------------------------------------------------------------------------------- */

static void step(struct world *w)
{
    struct text *text = &w->texts[below(w, PROMPTS)];
    if (text->count == 0 || below(w, 3) == 0)
        make_text(w, text);
    uint64_t op = below(w, 1000);
    if (w->grows && ((op >= OP_UNPIN && op < OP_REMOVE) || op >= OP_SWEEP))
        return;
    if (op < OP_INSERT)
        op_insert(w, text);
    else if (op < OP_MATCH)
        op_match(w, text);
    else if (op < OP_PASS)
        op_pass_over(w, text);
    else if (op < OP_ATTACH)
        op_attach(w, text);
    else if (op < OP_PIN)
        op_pin(w, text);
    else if (op < OP_UNPIN)
        op_unpin(w);
    else if (op < OP_RESET)
        op_reset(w);
    else if (op < OP_REMOVE)
        op_remove(w, text);
    else if (op < OP_SWEEP)
        op_sweep(w);
    else if (op % 2 == 0)
        op_evict_found(w);
    else
        op_evict(w);
}

static void open_world(struct world *w, uint64_t seed)
{
    static const uint32_t chunks[] = {64, 8, 16, 1, 32, 2};
    struct twin *twins = w->twins;
    uint32_t *rows = w->rows;
    memset(w, 0, sizeof(*w));
    w->twins = twins;
    w->rows = rows;
    w->random = seed * UINT64_C(0x9e3779b97f4a7c15) | 1;
    w->chunk_tokens = chunks[seed % 6];
    w->grows = seed % 5 == 0;
    w->letters = 2 + (uint32_t)(seed / 6 % 3) * 20;
    fixture_open(&w->fx, w->chunk_tokens, UINT64_C(64) << 20);
    for (uint32_t i = 0; i < 3; i++)
        w->roots[i] = twin_new(w, NONE, 0, NULL);
    memset(rows, 0xff, sizeof(*rows) * ROWS_MAX * PIECES_MAX); /* NONE */
    for (uint32_t i = 0; i < LEASES; i++)
        w->leases[i].twin = NONE;
}

static void check_world(struct world *w)
{
    fixture_check(&w->fx);
    struct sc_radix_stats stats;
    sc_radix_stats(w->fx.index, &stats);
    assert_int_equal(stats.tokens, w->live);
}

static uint64_t seed_now;

static void run_seed(uint64_t seed)
{
    static struct world w;
    seed_now = seed;
    if (w.twins == NULL) {
        w.twins = malloc(sizeof(struct twin) * TWINS_MAX);
        w.rows = malloc(sizeof(uint32_t) * ROWS_MAX * PIECES_MAX);
        assert_true(w.twins != NULL && w.rows != NULL);
    }
    open_world(&w, seed);
    for (uint32_t op = 0; op < OPS; op++) {
        step(&w);
        if (op % 64 == 0)
            check_world(&w);
    }
    for (uint32_t i = 0; i < LEASES; i++) {
        if (w.leases[i].twin != NONE)
            sc_radix_unpin(w.fx.index, w.leases[i].ref);
        if (w.leases[i].twin != NONE)
            w.twins[w.leases[i].twin].pins--;
    }
    op_sweep(&w);
    check_world(&w);
    struct sc_radix_stats stats;
    sc_radix_stats(w.fx.index, &stats);
    assert_int_equal(stats.hidden, 0);
    assert_true(stats.splits > 10 || w.chunk_tokens < 3);
    fixture_close(&w.fx);
}

/* cmocka ends a failed test by a jump: the seed is said by the teardown. */
static int say_seed(void **state)
{
    (void)state;
    print_message("the last seed was SC_SEED=%" PRIu64 "\n", seed_now);
    return 0;
}

static void index_and_twin_agree(void **state)
{
    (void)state;
    const char *only = getenv("SC_SEED");
    if (only != NULL) {
        run_seed(strtoull(only, NULL, 0));
        return;
    }
    for (uint64_t seed = 1; seed <= SEEDS; seed++)
        run_seed(seed);
    for (uint32_t i = 0; i < EVENTS; i++) {
        print_message("%s: %" PRIu64 "\n", event_names[i], events[i]);
        assert_true(events[i] >= SEEDS);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(index_and_twin_agree, NULL, say_seed),
    };
    return cmocka_run_group_tests_name("hashing radix random", tests, NULL, NULL);
}
