/* radix_remove: removal, now or when pins end, and refs.
 *
 *   now     close every run of the subtree (pins 0 -> dead); unlink; call removed; retire
 *   later   one is pinned: open the others again, hide every run (no match finds it), wait
 *
 * Invariants: a pinned run is not retired, nor anything above it. Hidden runs are in no chunk table
 * and no heap of leaves; they stay in their parent's list. No recursion, no allocation.
 * Threads: writer. */
#include "hashing/radix_internal.h"

/* ---- closing ------------------------------------------------------------------------------- */

/* Closes every run of the subtree against pins. False: one is pinned, and all are open again. */
static bool close_pins(struct sc_radix *index, uint32_t top)
{
    uint32_t id = top;
    for (; id != 0; id = sc_radix_after_in(index, top, id)) {
        uint32_t none = 0;
        if (!atomic_compare_exchange_strong(&sc_radix_node_at(index, id)->pins, &none,
                                            SC_RADIX_DEAD))
            break;
    }
    if (id == 0)
        return true;
    for (uint32_t back = top; back != id; back = sc_radix_after_in(index, top, back))
        atomic_fetch_and(&sc_radix_node_at(index, back)->pins, ~SC_RADIX_DEAD);
    return false;
}

/* ---- unlinking ----------------------------------------------------------------------------- */

void sc_radix_chunks_leave(struct sc_radix *index, uint32_t id)
{
    struct sc_radix_node *node = sc_radix_node_at(index, id);
    if ((node->flags & SC_RADIX_IN_CHUNKS) == 0)
        return;
    sc_radix_table_remove(atomic_load_explicit(&index->chunks, memory_order_relaxed),
                          sc_radix_chunk_hash(node->hash), id);
    node->flags &= (uint16_t)~SC_RADIX_IN_CHUNKS;
}

static void leave_children(struct sc_radix *index, uint32_t id, struct sc_radix_node *node)
{
    if ((node->flags & SC_RADIX_IN_CHILDREN) == 0)
        return;
    struct sc_radix_key key;
    sc_radix_node_key(node, &key);
    sc_radix_table_remove(atomic_load_explicit(&index->children, memory_order_relaxed),
                          sc_radix_key_hash(&key), id);
    node->flags &= (uint16_t)~SC_RADIX_IN_CHILDREN;
}

static void leave_waiting(struct sc_radix *index, uint32_t id, struct sc_radix_node *node)
{
    if ((node->flags & SC_RADIX_DOOMED) == 0)
        return;
    uint32_t *link = &index->waiting; /* at most as many wait as there are pins */
    while (*link != id)
        link = &sc_radix_node_at(index, *link)->waiting_next;
    *link = node->waiting_next;
    node->flags &= (uint16_t)~SC_RADIX_DOOMED;
    sc_radix_tally(&index->hidden, -1);
}

void sc_radix_parent_settle(struct sc_radix *index, uint32_t parent_id, uint64_t rank)
{
    struct sc_radix_node *parent = sc_radix_node_at(index, parent_id);
    uint64_t best = sc_rank_best(sc_radix_rank(parent), rank);
    if (best != sc_radix_rank(parent))
        sc_radix_rank_set(parent, best);
    bool is_plain = !sc_radix_is_root(parent);
    bool is_visible = !sc_radix_is_hidden(parent);
    if (is_plain && is_visible && parent->leaf_at == 0 &&
        sc_radix_visible_from(index, sc_radix_first_child(parent)) == 0)
        sc_radix_leaves_add(index, parent_id);
}

/* Takes the run out of its parent's list. */
static void unlink_sibling(struct sc_radix *index, uint32_t id)
{
    struct sc_radix_node *node = sc_radix_node_at(index, id);
    struct sc_radix_node *parent = sc_radix_node_above(index, node);
    if (sc_radix_first_child(parent) == id)
        atomic_store(&parent->first_child, node->next);
    if (node->prev != 0)
        sc_radix_node_at(index, node->prev)->next = node->next;
    if (node->next != 0)
        sc_radix_node_at(index, node->next)->prev = node->prev;
    node->next = 0;
    node->prev = 0;
}

static void forget_root(struct sc_radix *index, uint32_t id, struct sc_radix_node *root)
{
    sc_radix_chunks_leave(index, id);
    leave_waiting(index, id, root);
    sc_radix_root_unlist(index, id);
    sc_radix_root_forget(index, id);
    sc_radix_tally(&index->roots, -1);
}

/* Removes a root without children; roots are never pinned. */
static void drop_empty_root(struct sc_radix *index, uint32_t id)
{
    struct sc_radix_node *root = sc_radix_node_at(index, id);
    if (!sc_radix_is_root(root) || sc_radix_first_child(root) != 0)
        return;
    atomic_store(&root->pins, SC_RADIX_DEAD);
    forget_root(index, id, root);
    sc_radix_node_retire(index, id);
}

static void forget_run(struct sc_radix *index, uint32_t id, struct sc_radix_node *node,
                       const struct sc_radix_removal *removal)
{
    struct sc_radix_segment segment;
    sc_radix_segment_of(node, id, sc_radix_up(node), &segment);
    sc_radix_chunks_leave(index, id);
    leave_children(index, id, node);
    leave_waiting(index, id, node);
    sc_radix_leaves_drop(index, id);
    sc_radix_root_forget(index, id);
    sc_radix_tally(&index->runs, -1);
    sc_radix_tally(&index->tokens, -(int64_t)segment.count);
    if (removal != NULL && removal->removed != NULL)
        removal->removed(&segment, removal->user);
}

/* Removes a closed subtree. */
static void dismantle(struct sc_radix *index, uint32_t top, const struct sc_radix_removal *removal)
{
    struct sc_radix_node *top_node = sc_radix_node_at(index, top);
    bool is_root = sc_radix_is_root(top_node);
    uint32_t parent = sc_radix_parent(top_node), hint = sc_radix_node_hint(top_node);
    uint64_t rank = 0;
    for (uint32_t id = top; id != 0; id = sc_radix_after_in(index, top, id)) {
        struct sc_radix_node *node = sc_radix_node_at(index, id);
        rank = sc_rank_best(rank, sc_radix_rank(node));
        hint = sc_radix_hint_best(hint, sc_radix_node_hint(node));
        if (sc_radix_is_root(node))
            forget_root(index, id, node);
        else
            forget_run(index, id, node, removal);
    }
    if (!is_root) {
        unlink_sibling(index, top);
        sc_radix_hint_raise(index, sc_radix_node_at(index, parent), hint);
        sc_radix_parent_settle(index, parent, rank);
        drop_empty_root(index, parent);
    }
    for (uint32_t id = top; id != 0;) {
        uint32_t next = sc_radix_after_in(index, top, id);
        sc_radix_node_retire(index, id);
        id = next;
    }
}

/* ---- hiding -------------------------------------------------------------------------------- */

void sc_radix_run_hide(struct sc_radix *index, uint32_t id)
{
    struct sc_radix_node *node = sc_radix_node_at(index, id);
    atomic_store(&node->up, sc_radix_up(node) | SC_RADIX_HIDDEN);
    sc_radix_chunks_leave(index, id);
    sc_radix_leaves_drop(index, id);
}

void sc_radix_wait(struct sc_radix *index, uint32_t top)
{
    struct sc_radix_node *node = sc_radix_node_at(index, top);
    node->flags |= SC_RADIX_DOOMED;
    node->waiting_next = index->waiting;
    index->waiting = top;
    sc_radix_tally(&index->hidden, 1);
}

static void hide(struct sc_radix *index, uint32_t top)
{
    const struct sc_radix_node *top_node = sc_radix_node_at(index, top);
    uint32_t hint = sc_radix_node_hint(top_node);
    uint64_t rank = 0;
    for (uint32_t id = top; id != 0; id = sc_radix_after_in(index, top, id)) {
        const struct sc_radix_node *node = sc_radix_node_at(index, id);
        rank = sc_rank_best(rank, sc_radix_rank(node));
        hint = sc_radix_hint_best(hint, sc_radix_node_hint(node));
        sc_radix_run_hide(index, id);
    }
    sc_radix_wait(index, top);
    if (sc_radix_is_root(top_node)) {
        sc_radix_root_unlist(index, top);
        return;
    }
    uint32_t parent = sc_radix_parent(top_node);
    sc_radix_hint_raise(index, sc_radix_node_at(index, parent), hint);
    sc_radix_parent_settle(index, parent, rank);
}

/* ---- calls --------------------------------------------------------------------------------- */

/* Returns the run above with the same piece; none: another piece. */
static struct sc_radix_ref piece_above(const struct sc_radix *index,
                                       const struct sc_radix_node *node)
{
    uint32_t above_id = sc_radix_parent(node);
    const struct sc_radix_node *above = sc_radix_node_at(index, above_id);
    if (above_id == 0 || sc_radix_is_root(above) ||
        sc_radix_node_piece(above) != sc_radix_node_piece(node))
        return (struct sc_radix_ref){0, 0};
    return (struct sc_radix_ref){above_id, above->generation};
}

/* Returns the topmost run of its piece on the path above `id`. */
static uint32_t piece_top(const struct sc_radix *index, uint32_t id)
{
    struct sc_radix_ref above;
    while ((above = piece_above(index, sc_radix_node_at(index, id))).generation != 0)
        id = above.id;
    return id;
}

spec_status sc_radix_remove(struct sc_radix *index, struct sc_radix_ref ref,
                            enum sc_radix_scope scope, const struct sc_radix_removal *removal)
{
    sc_radix_reclaim(index);
    if (sc_radix_node_of(index, ref) == NULL)
        return SPEC_E_STALE;
    uint32_t top = scope == SC_RADIX_PIECE ? piece_top(index, ref.id) : ref.id;
    if (close_pins(index, top)) {
        dismantle(index, top, removal);
        return SPEC_OK;
    }
    if (!sc_radix_is_hidden(sc_radix_node_at(index, top)))
        hide(index, top);
    return SPEC_PENDING;
}

uint64_t sc_radix_sweep(struct sc_radix *index, const struct sc_radix_removal *removal)
{
    sc_radix_reclaim(index);
    uint32_t top = index->waiting;
    while (top != 0) {
        if (close_pins(index, top)) {
            dismantle(index, top, removal);
            top = index->waiting; /* others below it may have been removed too */
        } else {
            top = sc_radix_node_at(index, top)->waiting_next;
        }
    }
    return sc_counted(&index->hidden);
}

bool sc_radix_leaf_remove(struct sc_radix *index, uint32_t id,
                          const struct sc_radix_removal *removal)
{
    SC_ASSERT(index->poison, sc_radix_first_child(sc_radix_node_at(index, id)) == 0);
    if (!close_pins(index, id))
        return false;
    dismantle(index, id, removal);
    return true;
}

/* Removes what was moved with an evicted run, while nothing else hangs on it. */
static void evict_joined(struct sc_radix *index, bool is_joined, struct sc_radix_ref *rest)
{
    while (is_joined && rest->generation != 0) {
        const struct sc_radix_node *node = sc_radix_node_at(index, rest->id);
        struct sc_radix_ref above = piece_above(index, node);
        is_joined = sc_radix_node_joined(node);
        if (sc_radix_first_child(node) != 0 || !sc_radix_leaf_remove(index, rest->id, NULL))
            return;
        *rest = above;
    }
}

bool sc_radix_evict_leaf(struct sc_radix *index, struct sc_radix_ref leaf,
                         struct sc_radix_evicted *ret_evicted)
{
    const struct sc_radix_node *node = sc_radix_node_of(index, leaf);
    if (node == NULL || node->leaf_at == 0 || sc_radix_first_child(node) != 0)
        return false;
    bool is_joined = sc_radix_node_joined(node);
    struct sc_radix_evicted evicted = {.rest = piece_above(index, node)};
    sc_radix_segment_of(node, leaf.id, sc_radix_up(node), &evicted.segment);
    if (!sc_radix_leaf_remove(index, leaf.id, NULL))
        return false;
    evict_joined(index, is_joined, &evicted.rest);
    *ret_evicted = evicted;
    return true;
}

bool sc_radix_evict(struct sc_radix *index, struct sc_radix_evicted *ret_evicted)
{
    struct sc_radix_segment leaf;
    while (sc_radix_victim(index, &leaf))
        if (sc_radix_evict_leaf(index, leaf.node, ret_evicted)) /* else a reader just pinned it */
            return true;
    return false;
}

struct sc_radix_ref sc_radix_find(struct sc_radix *index, struct sc_hash hash, uint64_t end)
{
    uint64_t steps = 0;
    const struct sc_radix_node *newest = sc_radix_node_of(index, index->newest);
    uint32_t id = index->newest.id; /* consecutive chunks of a prompt */
    if (newest == NULL || (newest->flags & SC_RADIX_IN_CHUNKS) == 0 ||
        !sc_hash_equal(newest->hash, hash) || sc_radix_node_end(newest) != end)
        id = sc_radix_chunk_find(index, hash, end, &steps);
    if (id == 0 || sc_radix_is_old(index, id) ||
        (sc_radix_node_at(index, id)->flags & SC_RADIX_DOUBTED) != 0)
        return (struct sc_radix_ref){0, 0};
    return sc_radix_ref_of(index, id);
}

void sc_radix_doubt(struct sc_radix *index, struct sc_hash hash, uint64_t end)
{
    uint64_t steps = 0;
    uint32_t id = sc_radix_chunk_find(index, hash, end, &steps);
    if (id != 0)
        sc_radix_node_at(index, id)->flags |= SC_RADIX_DOUBTED;
}

bool sc_radix_get(struct sc_radix *index, struct sc_radix_ref ref,
                  struct sc_radix_segment *ret_segment)
{
    const struct sc_radix_node *node = sc_radix_node_of(index, ref);
    if (node == NULL)
        return false;
    sc_radix_segment_of(node, ref.id, sc_radix_up(node), ret_segment);
    return true;
}

/* ---- around a removal ------------------------------------------------------------------------ */

bool sc_radix_above(struct sc_radix *index, struct sc_radix_ref ref,
                    struct sc_radix_segment *ret_segment, bool *ret_is_alone)
{
    const struct sc_radix_node *node = sc_radix_node_of(index, ref);
    if (node == NULL)
        return false;
    uint32_t above_id = sc_radix_parent(node);
    const struct sc_radix_node *above = sc_radix_node_at(index, above_id);
    if (sc_radix_is_root(above))
        return false;
    *ret_is_alone = sc_radix_first_child(above) == ref.id && node->next == 0;
    sc_radix_segment_of(above, above_id, sc_radix_up(above), ret_segment);
    return true;
}

bool sc_radix_is_pinned(struct sc_radix *index, struct sc_radix_ref top)
{
    if (sc_radix_node_of(index, top) == NULL)
        return false;
    for (uint32_t id = top.id; id != 0; id = sc_radix_after_in(index, top.id, id))
        if (atomic_load(&sc_radix_node_at(index, id)->pins) != 0)
            return true;
    return false;
}
