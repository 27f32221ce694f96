/* radix_roots: the roots, and the root of a run.
 *
 *   root_first <-> ... <-> root_last   findable roots, numbers ascending
 *   old_first  <-> ...                 hidden; the first one is being cleared (radix_clear.c)
 *
 * Invariants: nothing is inserted below an old root. No recursion, no allocation.
 * Threads: writer. */
#include "hashing/radix_internal.h"

/* ---- lists --------------------------------------------------------------------------------- */

void sc_radix_root_list(struct sc_radix *index, uint32_t id)
{
    struct sc_radix_node *root = sc_radix_node_at(index, id);
    root->listed = index->root_next++;
    root->flags |= SC_RADIX_NEWER;
    root->next = 0;
    root->prev = index->root_last;
    if (index->root_last != 0)
        sc_radix_node_at(index, index->root_last)->next = id;
    else
        index->root_first = id;
    index->root_last = id;
}

void sc_radix_root_unlist(struct sc_radix *index, uint32_t id)
{
    struct sc_radix_node *root = sc_radix_node_at(index, id);
    bool is_newer = (root->flags & SC_RADIX_NEWER) != 0;
    bool is_old = (root->flags & SC_RADIX_OLD) != 0;
    if (!is_newer && !is_old)
        return;
    if (root->prev != 0)
        sc_radix_node_at(index, root->prev)->next = root->next;
    else if (is_newer)
        index->root_first = root->next;
    else
        index->old_first = root->next;
    if (root->next != 0)
        sc_radix_node_at(index, root->next)->prev = root->prev;
    else if (is_newer)
        index->root_last = root->prev;
    root->next = 0;
    root->prev = 0;
    root->flags &= (uint16_t) ~(SC_RADIX_NEWER | SC_RADIX_OLD);
}

void sc_radix_root_forget(struct sc_radix *index, uint32_t id)
{
    if (index->clear_at == id)
        index->clear_at = 0;
}

/* ---- root of a run --------------------------------------------------------------------------- */

static struct sc_radix_known *known_at(struct sc_radix *index, uint32_t id)
{
    return &index->roots_known[id * UINT32_C(0x9e3779b1) >> 24 & (SC_RADIX_ROOTS_KNOWN - 1)];
}

void sc_radix_root_know(struct sc_radix *index, uint32_t id, uint32_t root)
{
    *known_at(index, id) =
        (struct sc_radix_known){.run = {id, sc_radix_node_at(index, id)->generation}, .root = root};
}

uint32_t sc_radix_root_above(struct sc_radix *index, uint32_t id)
{
    uint32_t at = id, root = 0;
    while (root == 0) {
        const struct sc_radix_node *node = sc_radix_node_at(index, at);
        const struct sc_radix_known *known = known_at(index, at);
        if (known->run.id == at && known->run.generation == node->generation)
            root = known->root;
        else if (sc_radix_is_root(node))
            root = at;
        else
            at = sc_radix_parent(node);
    }
    sc_radix_root_know(index, id, root);
    return root;
}
