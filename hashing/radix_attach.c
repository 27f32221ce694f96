/* radix_attach: finds the prefix that a lease of another process names, by the piece that ends it.
 *
 *   root ---- runs ---- [border ... | length - 1 | ... ] ---- runs ---- run
 *             <-- climbed: tokens, marks, root --  of `piece`    <-- climbed --  the piece's last
 *
 * Tokens, marks and root are read from the piece's run by value. The place's hashes are compared
 * afterwards, since an id may have been reused after a crash. A compacted piece has left its runs
 * to another (sc_radix_move), for the same tokens. A run that a removal has hidden is found only by
 * a caller that has pinned it.
 *
 * Invariants: an attached prefix is of the claim's piece, or of the one that its runs were moved
 * to, and fits the place's hashes. Nothing is allocated.
 * Threads: place_of any; others writer. */
#include "hashing/radix_internal.h"

#include <string.h>

void sc_radix_place_of(const struct sc_radix *index, const struct sc_radix_query *query,
                       const struct sc_radix_segment *segments, uint64_t segment_count,
                       uint64_t length, struct sc_radix_place *ret_place)
{
    uint64_t border = length - length % index->chunk_tokens;
    uint64_t low = 0; /* first segment that ends at or behind the border */
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
    ret_place->border = border == 0 ? sc_sha256_short(&query->root) : segments[low].hash;
    ret_place->end = ret_place->border;
    ret_place->length = length;
    if (border < length)
        ret_place->end =
            sc_chain_step(sc_radix_secret(index), ret_place->border, border, query->tokens + border,
                          (uint32_t)(length - border), query->marks);
}

/* ---- answering ----------------------------------------------------------------------------- */

struct path {
    uint64_t segments;
    uint64_t marks;
};

/* Returns true if the run is one segment with the run above it. */
static bool joins_above(const struct sc_radix *index, const struct sc_radix_node *node)
{
    uint64_t up = sc_radix_up(node),
             value = atomic_load_explicit(&node->value, memory_order_relaxed);
    const struct sc_radix_node *above = sc_radix_node_at(index, sc_radix_up_parent(up));
    uint64_t above_value = atomic_load_explicit(&above->value, memory_order_relaxed);
    return sc_radix_node_joined(node) &&
           sc_radix_value_piece(value) == sc_radix_value_piece(above_value) &&
           sc_radix_value_row(value) + sc_radix_up_cut(up) ==
               sc_radix_value_row(above_value) + sc_radix_node_length(above);
}

/* Counts segments and marks between the run and the root. */
static struct path measure(const struct sc_radix *index, uint32_t id)
{
    struct path path = {0, 0};
    const struct sc_radix_node *node = sc_radix_node_at(index, id);
    while (!sc_radix_is_root(node)) {
        struct sc_sha256 digest;
        path.segments += joins_above(index, node) ? 0 : 1;
        path.marks += sc_radix_node_mark(node, sc_radix_up(node), &digest) ? 1 : 0;
        node = sc_radix_node_above(index, node);
    }
    return path;
}

/* Writes the path to the root, from its end; returns the root. */
static const struct sc_radix_node *give(const struct sc_radix *index, uint32_t id, uint64_t length,
                                        struct path path, const struct sc_radix_room *room)
{
    const struct sc_radix_node *node = sc_radix_node_at(index, id);
    uint64_t end = length;
    struct sc_radix_segment joined = {.count = 0}; /* lower runs of the same piece */
    while (!sc_radix_is_root(node)) {
        uint64_t up = sc_radix_up(node);
        struct sc_radix_segment segment;
        struct sc_mark mark;
        sc_radix_segment_of(node, id, up, &segment);
        segment.count = end - segment.first;
        memcpy(room->tokens + segment.first, node->tokens + sc_radix_up_cut(up), 4 * segment.count);
        if (joined.count > 0) {
            segment.count += joined.count;
            segment.node = joined.node;
            segment.hash = joined.hash;
        }
        joined.count = 0;
        if (joins_above(index, node))
            joined = segment;
        else if (--path.segments < room->segment_capacity)
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

/* Fills all but the pin. */
static void answer(const struct sc_radix *index, uint32_t id, uint64_t length, struct path path,
                   const struct sc_radix_node *root, struct sc_radix_attached *ret_attached)
{
    const struct sc_radix_node *node = sc_radix_node_at(index, id);
    ret_attached->root = *sc_radix_root_of(root);
    ret_attached->mark_count = path.marks;
    struct sc_radix_match *match = &ret_attached->match;
    *match = (struct sc_radix_match){.token_count = length,
                                     .segment_count = path.segments,
                                     .last = {id, node->generation},
                                     .last_piece = sc_radix_node_piece(node),
                                     .last_flags = sc_radix_node_flags(node),
                                     .whole = {id, node->generation},
                                     .whole_end = sc_radix_node_end(node),
                                     .steps = path.segments};
    if (match->whole_end == length)
        return;
    uint32_t above_id = sc_radix_parent(node);
    const struct sc_radix_node *above = sc_radix_node_at(index, above_id);
    match->whole = (struct sc_radix_ref){0, 0};
    match->whole_end = sc_radix_node_end(above);
    if (!sc_radix_is_root(above))
        match->whole = (struct sc_radix_ref){above_id, above->generation};
}

/* ---- finding --------------------------------------------------------------------------------- */

/* Returns the hash at the border on the run's path. */
static struct sc_hash border_hash(const struct sc_radix *index, uint32_t id, uint64_t border)
{
    const struct sc_radix_node *node = sc_radix_node_at(index, id);
    while (!sc_radix_is_root(node) && sc_radix_node_end(node) > border)
        node = sc_radix_node_above(index, node);
    return node->hash; /* a run ends there, since none crosses it; or it is the root */
}

/* Returns the run at or above `id` with token `length` - 1; 0: none. */
static uint32_t run_of(const struct sc_radix *index, uint32_t id, uint64_t length)
{
    const struct sc_radix_node *node = sc_radix_node_at(index, id);
    if (sc_radix_node_end(node) < length)
        return 0;
    while (!sc_radix_is_root(node) && sc_radix_node_first(node) >= length) {
        id = sc_radix_parent(node);
        node = sc_radix_node_at(index, id);
    }
    return id;
}

/* Returns the run of the claim's piece with the place's last token; 0: none. */
static uint32_t claimed(const struct sc_radix *index, const struct sc_radix_claim *claim)
{
    const struct sc_radix_node *node = sc_radix_node_of(index, claim->run);
    if (node == NULL || (sc_radix_is_hidden(node) && !claim->is_kept) ||
        sc_radix_is_old(index, claim->run.id))
        return 0;
    uint32_t id = run_of(index, claim->run.id, claim->place.length);
    if (id == 0)
        return 0;
    const struct sc_radix_node *at = sc_radix_node_at(index, id);
    uint64_t piece = sc_radix_node_piece(at);
    /* A piece is compacted whole: its runs, from its first row to its last run, then have the other
     * one. */
    bool is_moved = (node->flags & at->flags & SC_RADIX_MOVED) != 0 &&
                    claim->place.length > claim->piece_first && piece == sc_radix_node_piece(node);
    return piece == claim->piece || is_moved ? id : 0;
}

/* Collects the marks from the border to the run, in its chunk, at the array's end. */
static struct sc_marks marks_from(const struct sc_radix *index, uint32_t id, uint64_t border,
                                  struct sc_mark marks[SC_CHAIN_CHUNK_TOKENS_MAX])
{
    uint64_t free = SC_CHAIN_CHUNK_TOKENS_MAX;
    const struct sc_radix_node *node = sc_radix_node_at(index, id);
    while (!sc_radix_is_root(node) && sc_radix_node_end(node) > border) {
        uint64_t up = sc_radix_up(node);
        struct sc_mark mark = {.token = (uint64_t)node->base_first + sc_radix_up_cut(up)};
        if (sc_radix_node_mark(node, up, &mark.digest))
            marks[--free] = mark;
        node = sc_radix_node_at(index, sc_radix_up_parent(up));
    }
    return (struct sc_marks){marks + free, SC_CHAIN_CHUNK_TOKENS_MAX - free};
}

static bool fits(const struct sc_radix *index, const struct sc_radix_claim *claim, uint32_t id,
                 const uint32_t *tokens)
{
    const struct sc_radix_place *place = &claim->place;
    uint64_t border = place->length - place->length % index->chunk_tokens;
    struct sc_hash end = place->border;
    if (!sc_hash_equal(border_hash(index, id, border), place->border))
        return false;
    if (border < place->length) {
        struct sc_mark memory[SC_CHAIN_CHUNK_TOKENS_MAX];
        end = sc_chain_step(sc_radix_secret(index), place->border, border, tokens + border,
                            (uint32_t)(place->length - border),
                            marks_from(index, id, border, memory));
    }
    return sc_hash_equal(end, place->end);
}

spec_status sc_radix_recall(struct sc_radix *index, const struct sc_radix_claim *claim,
                            const struct sc_radix_room *room,
                            struct sc_radix_attached *ret_attached, struct spec_error *reterr)
{
    uint64_t length = claim->place.length;
    if (length == 0 || length > room->token_capacity)
        return sc_fail(reterr, SPEC_E_INVALID,
                       "place of %" PRIu64 " tokens, expected 1 to %" PRIu64, length,
                       room->token_capacity);
    sc_radix_reclaim(index);
    uint32_t id = claimed(index, claim);
    if (id == 0)
        return sc_fail(reterr, SPEC_E_STALE,
                       "piece %" PRIu64 " holds no prefix of %" PRIu64 " tokens", claim->piece,
                       length);
    struct path path = measure(index, id);
    const struct sc_radix_node *root = give(index, id, length, path, room);
    if (!fits(index, claim, id, room->tokens))
        return sc_fail(reterr, SPEC_E_STALE,
                       "piece %" PRIu64 " is not of that prefix of %" PRIu64 " tokens",
                       claim->piece, length);
    answer(index, id, length, path, root, ret_attached);
    return SPEC_OK;
}

spec_status sc_radix_attach(struct sc_radix *index, const struct sc_radix_claim *claim,
                            const struct sc_radix_room *room,
                            struct sc_radix_attached *ret_attached, struct spec_error *reterr)
{
    spec_status status = sc_radix_recall(index, claim, room, ret_attached, reterr);
    if (status != SPEC_OK)
        return status;
    sc_radix_pin(index, ret_attached->match.last);
    sc_radix_used(index, sc_radix_node_at(index, ret_attached->match.last.id),
                  sc_radix_time_write(index, claim->place.length));
    return SPEC_OK;
}
