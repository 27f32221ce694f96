/* radix_chunk: the runs of one chunk, for compaction, which gives them another piece.
 *
 *   border --[a]--[b]--[c]--[d]-- next chunk        four pieces of a row each
 *               \--[x]                              another child
 *   moved:   --[m0]-[m1]-[m2]-[m3]--                one piece: the same runs, one segment
 *
 * Invariants: nothing is linked or unlinked. A run's piece and row are one word, so a concurrent
 * match reads both of before or both of after. Runs are not joined (a reopen does that).
 * Threads: writer. */
#include "hashing/radix_internal.h"

#include <string.h>

/* Returns the lowest piece of the run's other visible children. */
static uint64_t beside(const struct sc_radix *index, const struct sc_radix_node *node, uint32_t but)
{
    uint64_t least = UINT64_MAX;
    uint32_t id = sc_radix_first_child(node);
    while ((id = sc_radix_visible_from(index, id)) != 0) {
        const struct sc_radix_node *child = sc_radix_node_at(index, id);
        if (id != but && sc_radix_node_piece(child) < least)
            least = sc_radix_node_piece(child);
        id = child->next;
    }
    return least;
}

/* Returns true if the run exists and is visible. */
static bool is_found(const struct sc_radix *index, struct sc_radix_ref last)
{
    const struct sc_radix_node *node = sc_radix_node_of(index, last);
    return node != NULL && !sc_radix_is_root(node) && !sc_radix_is_hidden(node) &&
           !sc_radix_is_old(index, last.id);
}

bool sc_radix_chunk_of(struct sc_radix *index, struct sc_radix_ref last,
                       struct sc_radix_chunk *ret_chunk)
{
    if (!is_found(index, last))
        return false;
    const struct sc_radix_node *node = sc_radix_node_at(index, last.id);
    uint64_t chunk_first = sc_radix_node_end(node) - 1;
    chunk_first -= chunk_first % index->chunk_tokens;
    uint32_t ids[SC_CHAIN_CHUNK_TOKENS_MAX], count = 0, id = last.id;
    for (; sc_radix_node_end(node) > chunk_first; node = sc_radix_node_at(index, id)) {
        SC_ASSERT(index->poison, count < SC_CHAIN_CHUNK_TOKENS_MAX);
        ids[count++] = id;
        id = sc_radix_parent(node);
    }
    ret_chunk->first = chunk_first;
    ret_chunk->border = node->hash;
    ret_chunk->segment_count = ret_chunk->mark_count = 0;
    while (!sc_radix_is_root(node))
        node = sc_radix_node_above(index, node);
    ret_chunk->root = *sc_radix_root_of(node);
    while (count-- > 0) {
        node = sc_radix_node_at(index, ids[count]);
        uint64_t up = sc_radix_up(node), i = ret_chunk->segment_count++;
        struct sc_radix_segment *segment = &ret_chunk->segments[i];
        struct sc_mark mark;
        sc_radix_segment_of(node, ids[count], up, segment);
        mark.token = segment->first;
        if (sc_radix_node_mark(node, up, &mark.digest))
            ret_chunk->marks[ret_chunk->mark_count++] = mark;
        memcpy(ret_chunk->tokens + (segment->first - chunk_first),
               node->tokens + sc_radix_up_cut(up), 4 * segment->count);
        ret_chunk->beside[i] = beside(index, node, count > 0 ? ids[count - 1] : 0);
    }
    return true;
}

bool sc_radix_move(struct sc_radix *index, struct sc_radix_ref last, uint64_t first,
                   const struct sc_radix_value *value, const struct sc_radix_removal *replaced)
{
    if (!is_found(index, last) || value->piece > UINT32_MAX)
        return false;
    const struct sc_radix_node *node = sc_radix_node_at(index, last.id);
    if (first >= sc_radix_node_end(node) ||
        first / index->chunk_tokens != (sc_radix_node_end(node) - 1) / index->chunk_tokens)
        return false;
    while (sc_radix_node_first(node) > first)
        node = sc_radix_node_above(index, node);
    if (sc_radix_node_first(node) != first || node->base_first != first)
        return false;
    uint32_t id = last.id;
    for (bool more = true; more; id = sc_radix_parent(sc_radix_node_at(index, id))) {
        struct sc_radix_node *run = sc_radix_node_at(index, id);
        struct sc_radix_segment segment;
        more = sc_radix_node_first(run) != first;
        if (replaced != NULL && replaced->removed != NULL) {
            sc_radix_segment_of(run, id, sc_radix_up(run), &segment);
            replaced->removed(&segment, replaced->user);
        }
        uint32_t row = value->row_first + (uint32_t)(run->base_first - first);
        uint64_t joined = more ? SC_RADIX_JOINED : 0;
        run->flags |= SC_RADIX_MOVED;
        atomic_store(&run->value, sc_radix_value_make(value->piece, row) | joined);
        atomic_store_explicit(&run->value_flags, value->flags, memory_order_relaxed);
    }
    return true;
}
