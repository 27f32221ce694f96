/* radix_run: reads one run and its neighbours: segment, children, age of its root. Changes nothing.
 *
 * Threads: writer; sc_radix_segment_of any thread that has pinned the run. */
#include "hashing/radix_internal.h"

void sc_radix_segment_of(const struct sc_radix_node *node, uint32_t id, uint64_t up,
                         struct sc_radix_segment *ret_segment)
{
    uint32_t cut = sc_radix_up_cut(up);
    uint64_t value = atomic_load(&node->value);
    ret_segment->value.piece = sc_radix_value_piece(value);
    ret_segment->value.row_first = sc_radix_value_row(value) + cut;
    ret_segment->value.flags = sc_radix_node_flags(node);
    ret_segment->first = (uint64_t)node->base_first + cut;
    ret_segment->count = sc_radix_node_length(node) - cut;
    ret_segment->node = (struct sc_radix_ref){id, node->generation};
    ret_segment->hash = node->hash;
}

uint32_t sc_radix_visible_from(const struct sc_radix *index, uint32_t id)
{
    while (id != 0) {
        const struct sc_radix_node *node = sc_radix_node_at(index, id);
        if (!sc_radix_is_hidden(node))
            return id;
        id = node->next;
    }
    return 0;
}

uint32_t sc_radix_after_in(const struct sc_radix *index, uint32_t top, uint32_t id)
{
    const struct sc_radix_node *node = sc_radix_node_at(index, id);
    uint32_t child = sc_radix_first_child(node);
    if (child != 0)
        return child;
    while (id != top) {
        if (node->next != 0)
            return node->next;
        id = sc_radix_parent(node);
        node = sc_radix_node_at(index, id);
    }
    return 0;
}

bool sc_radix_is_old(const struct sc_radix *index, uint32_t id)
{
    if (index->old_first == 0)
        return false;
    const struct sc_radix_node *node = sc_radix_node_at(index, id);
    while (!sc_radix_is_root(node))
        node = sc_radix_node_above(index, node);
    return (node->flags & SC_RADIX_OLD) != 0;
}
