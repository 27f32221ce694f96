/* A stored prefix found by chain hashes alone: what a lease from another process names. Contract:
 * sc_radix_place_of, sc_radix_attach in radix.h.
 *
 *   border hash                      -> the run that ends at the border, by the table of chunks
 *   border ... | runs of one chunk | -> the one that holds token length - 1, such that the chain
 *                ^ end hash             over the tokens from the border to `length` is `end`
 *
 * Below the border every path is tried, parents first, at most SC_RADIX_ATTACH_RUNS_MAX runs: which
 * child comes next would follow from its token, and a lease does not carry tokens.
 *
 * A run that a removal has hidden is in no table: who holds a pin on it attaches at it.
 *
 * Holds: a hash decides; tokens cannot be compared, since there are none. 128 bits of XXH3 are no
 * protection against somebody who makes collisions on purpose (docs/hashing-spec.md).
 * Does not: allocate.
 * Threads: place_of any; attach writer.
 * Tests: tests/unit/hashing/test_radix_attach.c, test_radix_random.c */
#include "hashing/radix_internal.h"

#include <string.h>

/* One search in progress: the tokens and marks from the border to the run's end. */
struct search {
    const struct sc_radix *index;
    const struct sc_radix_place *place;
    uint64_t border;
    uint64_t steps;
    uint32_t mark_count;
    struct sc_mark marks[SC_CHAIN_CHUNK_TOKENS_MAX];
    uint32_t tokens[SC_CHAIN_CHUNK_TOKENS_MAX];
};

static uint64_t up_of(const struct sc_radix_node *node)
{
    return atomic_load_explicit(&node->up, memory_order_relaxed);
}

void sc_radix_place_of(const struct sc_radix_query *query, const struct sc_radix_segment *segments,
                       uint64_t segment_count, uint32_t chunk_tokens, uint64_t length,
                       struct sc_radix_place *ret_place)
{
    uint64_t border = length - length % chunk_tokens;
    uint64_t low = 0; /* the first segment that ends at the border or behind it */
    uint64_t high = segment_count;
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        if (segments[middle].first + segments[middle].count < border)
            low = middle + 1;
        else
            high = middle;
    }
    SC_ASSERT(NULL, length >= 1);
    SC_ASSERT(NULL, low < segment_count);
    /* The run of the token before a border ends there. */
    ret_place->border = border == 0 ? query->root : segments[low].hash;
    ret_place->end = ret_place->border;
    ret_place->length = length;
    if (border < length)
        ret_place->end =
            sc_chain_step(ret_place->border, border, query->tokens + border,
                          (uint32_t)(length - border), query->marks, query->mark_count);
}

/* ---- searching ----------------------------------------------------------------------------- */

/* Takes the run's tokens and mark behind those of the runs above it; true: it ends the place. */
static bool ends_here(struct search *search, const struct sc_radix_node *node, uint64_t up)
{
    const struct sc_radix_place *place = search->place;
    uint32_t cut = sc_radix_up_cut(up);
    uint64_t first = (uint64_t)node->base_first + cut;
    uint64_t end = sc_radix_node_end(node);
    memcpy(search->tokens + (first - search->border), node->tokens + cut, 4 * (end - first));
    while (search->mark_count != 0 && search->marks[search->mark_count - 1].token >= first)
        search->mark_count--;
    struct sc_hash digest;
    if (sc_radix_node_mark(node, up, &digest))
        search->marks[search->mark_count++] = (struct sc_mark){first, digest};
    if (end < place->length)
        return false;
    struct sc_hash hash = end == place->length
                              ? node->hash
                              : sc_chain_step(place->border, search->border, search->tokens,
                                              (uint32_t)(place->length - search->border),
                                              search->marks, search->mark_count);
    return sc_hash_equal(hash, place->end);
}

/* The run after `id` below `top`, parents first, without those below `id` unless `deeper`. */
static uint32_t after(const struct search *search, uint32_t top, uint32_t id, bool deeper)
{
    const struct sc_radix *index = search->index;
    const struct sc_radix_node *node = sc_radix_node_at(index, id);
    uint32_t child = atomic_load_explicit(&node->first_child, memory_order_relaxed);
    if (deeper && child != 0)
        return child;
    while (id != top) {
        if (node->next != 0)
            return node->next;
        id = sc_radix_up_parent(up_of(node));
        node = sc_radix_node_at(index, id);
    }
    return 0;
}

/* The run below `top`, which ends at the border, that holds the place's last token. 0: none. */
static uint32_t search_chunk(struct search *search, uint32_t top)
{
    uint32_t id = after(search, top, top, true);
    while (id != 0 && search->steps < SC_RADIX_ATTACH_RUNS_MAX) {
        const struct sc_radix_node *node = sc_radix_node_at(search->index, id);
        uint64_t up = up_of(node);
        bool is_visible = (up & SC_RADIX_HIDDEN) == 0;
        search->steps++;
        if (is_visible && ends_here(search, node, up))
            return id;
        bool deeper = is_visible && sc_radix_node_end(node) < search->place->length;
        id = after(search, top, id, deeper);
    }
    return 0;
}

/* ---- answering ----------------------------------------------------------------------------- */

struct path {
    uint64_t segments;
    uint64_t marks;
};

/* Counts what is on the way from the run to the root. */
static struct path measure(const struct sc_radix *index, uint32_t id)
{
    struct path path = {0, 0};
    const struct sc_radix_node *node = sc_radix_node_at(index, id);
    while ((node->flags & SC_RADIX_IS_ROOT) == 0) {
        struct sc_hash digest;
        path.segments++;
        path.marks += sc_radix_node_mark(node, up_of(node), &digest) ? 1 : 0;
        node = sc_radix_node_at(index, sc_radix_up_parent(up_of(node)));
    }
    return path;
}

/* Writes the way to the root, from its end; returns the root. */
static const struct sc_radix_node *give(const struct sc_radix *index, uint32_t id, uint64_t length,
                                        struct path path, const struct sc_radix_room *room)
{
    const struct sc_radix_node *node = sc_radix_node_at(index, id);
    uint64_t end = length;
    while ((node->flags & SC_RADIX_IS_ROOT) == 0) {
        uint64_t up = up_of(node);
        struct sc_radix_segment segment;
        struct sc_mark mark;
        sc_radix_segment_of(node, id, up, &segment);
        segment.count = end - segment.first;
        memcpy(room->tokens + segment.first, node->tokens + sc_radix_up_cut(up), 4 * segment.count);
        path.segments--;
        if (path.segments < room->segment_capacity)
            room->segments[path.segments] = segment;
        if (sc_radix_node_mark(node, up, &mark.digest)) {
            mark.token = segment.first;
            path.marks--;
            if (path.marks < room->mark_capacity)
                room->marks[path.marks] = mark;
        }
        end = segment.first;
        id = sc_radix_up_parent(up);
        node = sc_radix_node_at(index, id);
    }
    SC_ASSERT(index->poison, end == 0);
    SC_ASSERT(index->poison, path.segments == 0);
    return node;
}

static void pin(struct sc_radix *index, struct sc_radix_node *node)
{
    uint32_t before = atomic_fetch_add(&node->pins, 1);
    SC_ASSERT(index->poison, (before & SC_RADIX_DEAD) == 0); /* only a writer closes it */
    uint64_t now = atomic_fetch_add_explicit(&index->clock, 1, memory_order_relaxed) + 1;
    atomic_store_explicit(&node->stamp, now, memory_order_relaxed);
}

static void answer(struct sc_radix *index, uint32_t id, uint64_t length,
                   const struct sc_radix_room *room, struct sc_radix_attached *ret_attached)
{
    struct sc_radix_node *node = sc_radix_node_at(index, id);
    struct path path = measure(index, id);
    pin(index, node);
    ret_attached->root = give(index, id, length, path, room)->hash;
    ret_attached->mark_count = path.marks;
    struct sc_radix_match *match = &ret_attached->match;
    match->token_count = length;
    match->segment_count = path.segments;
    match->last = (struct sc_radix_ref){id, node->generation};
    match->last_piece = node->piece;
    match->last_flags = sc_radix_node_flags(node);
    match->whole = match->last;
    match->whole_end = sc_radix_node_end(node);
    if (match->whole_end == length)
        return;
    uint32_t above_id = sc_radix_up_parent(up_of(node));
    const struct sc_radix_node *above = sc_radix_node_at(index, above_id);
    match->whole = (struct sc_radix_ref){0, 0};
    match->whole_end = sc_radix_node_end(above);
    if ((above->flags & SC_RADIX_IS_ROOT) == 0)
        match->whole = (struct sc_radix_ref){above_id, above->generation};
}

spec_status sc_radix_attach(struct sc_radix *index, const struct sc_radix_place *place,
                            const struct sc_radix_room *room,
                            struct sc_radix_attached *ret_attached, struct spec_error *reterr)
{
    uint64_t length = place->length;
    if (length == 0 || length > room->token_capacity)
        return sc_fail(reterr, SPEC_E_INVALID,
                       "place of %" PRIu64 " tokens, expected 1 to %" PRIu64, length,
                       room->token_capacity);
    sc_radix_reclaim(index);
    struct search search;
    search.index = index;
    search.place = place;
    search.border = length - length % index->chunk_tokens;
    search.steps = 0;
    search.mark_count = 0;
    struct sc_radix_ref top = sc_radix_find(index, place->border, search.border);
    uint32_t id = top.id;
    if (id != 0 && search.border < length)
        id = search_chunk(&search, id);
    if (id == 0 || (search.border == length && !sc_hash_equal(place->border, place->end)))
        return sc_fail(reterr, SPEC_E_STALE, "no stored prefix of %" PRIu64 " tokens fits", length);
    struct sc_radix_attached attached = {.match.steps = search.steps};
    answer(index, id, length, room, &attached);
    *ret_attached = attached;
    return SPEC_OK;
}

/* The hash at the border on the way from the run to its root. */
static struct sc_hash border_hash(const struct sc_radix *index, uint32_t id, uint64_t border)
{
    const struct sc_radix_node *node = sc_radix_node_at(index, id);
    while ((node->flags & SC_RADIX_IS_ROOT) == 0 && sc_radix_node_end(node) > border)
        node = sc_radix_node_at(index, sc_radix_up_parent(up_of(node)));
    return node->hash; /* runs cross no border, so one ends there; or it is the root */
}

/* The run at or above `id` that holds token `length` - 1. 0: none. */
static uint32_t run_of(const struct sc_radix *index, uint32_t id, uint64_t length)
{
    const struct sc_radix_node *node = sc_radix_node_at(index, id);
    if (sc_radix_node_end(node) < length)
        return 0;
    while ((node->flags & SC_RADIX_IS_ROOT) == 0 &&
           (uint64_t)node->base_first + sc_radix_up_cut(up_of(node)) >= length) {
        id = sc_radix_up_parent(up_of(node));
        node = sc_radix_node_at(index, id);
    }
    return id;
}

spec_status sc_radix_attach_at(struct sc_radix *index, struct sc_radix_ref pinned,
                               const struct sc_radix_place *place, const struct sc_radix_room *room,
                               struct sc_radix_attached *ret_attached, struct spec_error *reterr)
{
    uint64_t length = place->length, border = length - length % index->chunk_tokens;
    if (length == 0 || length > room->token_capacity)
        return sc_fail(reterr, SPEC_E_INVALID,
                       "place of %" PRIu64 " tokens, expected 1 to %" PRIu64, length,
                       room->token_capacity);
    uint32_t id = 0;
    if (sc_radix_node_of(index, pinned) != NULL)
        id = run_of(index, pinned.id, length);
    bool fits = id != 0 && sc_hash_equal(border_hash(index, id, border), place->border);
    struct sc_hash end = place->border;
    if (fits && border < length) {
        struct path path = measure(index, id);
        (void)give(index, id, length, path, room);
        uint64_t marks = path.marks < room->mark_capacity ? path.marks : room->mark_capacity;
        end = sc_chain_step(place->border, border, room->tokens + border,
                            (uint32_t)(length - border), room->marks, marks);
    }
    if (!fits || !sc_hash_equal(end, place->end))
        return sc_fail(reterr, SPEC_E_STALE, "the run is not of that prefix of %" PRIu64 " tokens",
                       length);
    struct sc_radix_attached attached = {.match.steps = 1};
    answer(index, id, length, room, &attached);
    *ret_attached = attached;
    return SPEC_OK;
}
