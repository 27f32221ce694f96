/* radix_clear: clears old roots in bounded steps.
 *
 *   a step    at a run with visible children: go to the first
 *             at one without: remove it; hide it if it is pinned or above a hidden one
 *             then go to the next sibling, or back to the parent
 *
 * A root that still has runs when the walk is back at it has only pinned ones and their paths. It
 * waits, whole, for sc_radix_sweep.
 *
 * Invariants: clear_at is below old_first, or 0. Passed runs below an old root are hidden. No
 * recursion, no allocation.
 * Threads: writer. */
#include "hashing/radix_internal.h"

static void make_old(struct sc_radix *index, uint32_t id)
{
    struct sc_radix_node *root = sc_radix_node_at(index, id);
    sc_radix_root_unlist(index, id);
    sc_radix_run_hide(index, id);
    root->flags |= SC_RADIX_OLD;
    root->next = index->old_first;
    if (root->next != 0)
        sc_radix_node_at(index, root->next)->prev = id;
    index->old_first = id;
    index->clear_at = 0;
}

/* Removes or hides a run without visible children. */
static void leave(struct sc_radix *index, uint32_t id, const struct sc_radix_removal *removal)
{
    const struct sc_radix_node *node = sc_radix_node_at(index, id);
    uint32_t parent = sc_radix_parent(node);
    uint32_t next = sc_radix_visible_from(index, node->next);
    index->clear_at = next != 0 ? next : parent;
    index->clear_back = next == 0;
    if (sc_radix_first_child(node) == 0 && sc_radix_leaf_remove(index, id, removal))
        return;
    sc_radix_run_hide(index, id);
    sc_radix_hint_raise(index, sc_radix_node_at(index, parent), sc_radix_node_hint(node));
    sc_radix_parent_settle(index, parent, sc_radix_rank(node));
}

/* Makes one step below the first old root. */
static void step(struct sc_radix *index, const struct sc_radix_removal *removal)
{
    uint32_t root = index->old_first;
    if (index->clear_at == 0) {
        index->clear_at = root;
        index->clear_back = false;
    }
    uint32_t id = index->clear_at;
    uint32_t child = 0;
    if (!index->clear_back)
        child = sc_radix_visible_from(index, sc_radix_first_child(sc_radix_node_at(index, id)));
    if (child != 0) {
        index->clear_at = child;
        return;
    }
    if (id != root) {
        leave(index, id, removal);
        return;
    }
    SC_ASSERT(index->poison, sc_radix_first_child(sc_radix_node_at(index, root)) != 0);
    index->clear_at = 0;
    sc_radix_root_unlist(index, root);
    sc_radix_wait(index, root);
}

uint64_t sc_radix_root_mark(const struct sc_radix *index)
{
    return index->root_next;
}

bool sc_radix_remove_roots(struct sc_radix *index, uint64_t mark, uint64_t step_count_max,
                           const struct sc_radix_removal *removal)
{
    sc_radix_reclaim(index);
    while (index->root_first != 0 && sc_radix_node_at(index, index->root_first)->listed < mark)
        make_old(index, index->root_first);
    for (uint64_t i = 0; i < step_count_max && index->old_first != 0; i++)
        step(index, removal);
    return index->old_first != 0;
}
