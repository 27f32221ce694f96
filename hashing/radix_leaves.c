/* The heap of leaves: which unpinned run without visible children has the lowest rank.
 *
 *   leaves[]   binary heap by `listed`, the rank under which a leaf was last put in order
 *
 * Readers only store a run's rank (base/policy.h says what it is made of). The heap is repaired
 * when its top is asked for: a top whose rank is not that of its place is put in order again. Ranks
 * only grow, so the first top that is in order is the lowest of all. A pinned top is passed over.
 *
 * Holds: every visible run (no root) without a visible child is here, and nothing else; listed <=
 * rank. The number of such runs grows by insertion only, so that only insertion needs room.
 * Does not: allocate but in reserve.
 * Threads: writer. */
#include "hashing/radix_internal.h"

#include <string.h>

#define YOUNG_PART 16u /* of the runs */

static struct sc_radix_node *leaf_at(const struct sc_radix *index, uint64_t at)
{
    return sc_radix_node_at(index, index->leaves[at]);
}

static void set(struct sc_radix *index, uint64_t at, uint32_t id)
{
    index->leaves[at] = id;
    sc_radix_node_at(index, id)->leaf_at = (uint32_t)at + 1;
}

static void swap(struct sc_radix *index, uint64_t a, uint64_t b)
{
    uint32_t id = index->leaves[a];
    set(index, a, index->leaves[b]);
    set(index, b, id);
}

static void sift_up(struct sc_radix *index, uint64_t at)
{
    while (at != 0) {
        uint64_t above = (at - 1) / 2;
        if (leaf_at(index, above)->listed <= leaf_at(index, at)->listed)
            return;
        swap(index, above, at);
        at = above;
    }
}

static void sift_down(struct sc_radix *index, uint64_t at, uint64_t count)
{
    for (;;) {
        uint64_t child = 2 * at + 1;
        if (child >= count)
            return;
        if (child + 1 < count && leaf_at(index, child + 1)->listed < leaf_at(index, child)->listed)
            child++;
        if (leaf_at(index, at)->listed <= leaf_at(index, child)->listed)
            return;
        swap(index, at, child);
        at = child;
    }
}

bool sc_radix_leaves_reserve(struct sc_radix *index)
{
    uint64_t count = sc_counted(&index->leaf_count);
    if (count < index->leaf_capacity)
        return true;
    uint64_t capacity = index->leaf_capacity == 0 ? 64 : index->leaf_capacity * 2;
    uint32_t *leaves = sc_radix_memory_take(index, capacity * sizeof(*leaves));
    if (leaves == NULL)
        return false;
    if (count != 0)
        memcpy(leaves, index->leaves, count * sizeof(*leaves));
    sc_radix_memory_give(index, index->leaves, index->leaf_capacity * sizeof(*leaves));
    index->leaves = leaves;
    index->leaf_capacity = capacity;
    return true;
}

void sc_radix_leaves_add(struct sc_radix *index, uint32_t id)
{
    struct sc_radix_node *node = sc_radix_node_at(index, id);
    uint64_t count = sc_counted(&index->leaf_count);
    SC_ASSERT(index->poison, node->leaf_at == 0);
    SC_ASSERT(index->poison, count < index->leaf_capacity);
    node->listed = sc_radix_rank(node);
    set(index, count, id);
    sc_radix_tally(&index->leaf_count, 1);
    sift_up(index, count);
}

void sc_radix_leaves_drop(struct sc_radix *index, uint32_t id)
{
    struct sc_radix_node *node = sc_radix_node_at(index, id);
    if (node->leaf_at == 0)
        return;
    uint64_t at = node->leaf_at - 1;
    uint64_t last = sc_counted(&index->leaf_count) - 1;
    SC_ASSERT(index->poison, index->leaves[at] == id);
    swap(index, at, last);
    node->leaf_at = 0;
    sc_radix_tally(&index->leaf_count, -1);
    if (at == last)
        return;
    sift_up(index, at);
    sift_down(index, at, last);
}

/* Pinned, or above a hidden run that waits. */
static bool is_held(const struct sc_radix_node *node)
{
    return atomic_load_explicit(&node->pins, memory_order_relaxed) != 0 ||
           sc_radix_first_child(node) != 0;
}

/* The top, which is in use or not below the caller's piece_end, makes way for the next; false:
 * there are too many of its kind. By lru what is in use goes behind all at once; else it is set
 * aside for the call, and one for which there is no room there is ranked higher each time, so that
 * what hides behind it is found in the end. */
static bool top_step_back(struct sc_radix *index, bool holds, uint32_t *aside,
                          uint32_t *aside_count)
{
    uint32_t id = index->leaves[0];
    struct sc_radix_node *top = sc_radix_node_at(index, id);
    bool is_lru = index->policy == SC_POLICY_LRU, has_room = *aside_count < SC_RADIX_ASIDE;
    if (holds)
        sc_radix_node_pass_over(index, top); /* else each call would meet all of its kind again */
    if (has_room && !(holds && is_lru)) {
        sc_radix_leaves_drop(index, id);
        aside[(*aside_count)++] = id;
        return true;
    }
    if (holds && !is_lru)
        sc_radix_rank_set(top, sc_rank_raised(index->policy, sc_radix_rank(top)));
    top->listed = sc_radix_rank(top);
    sift_down(index, 0, sc_counted(&index->leaf_count));
    return holds;
}

uint32_t sc_radix_leaves_lowest(struct sc_radix *index, uint64_t piece_end)
{
    uint32_t aside[SC_RADIX_ASIDE], aside_count = 0, found = 0;
    uint64_t steps = 0, steps_max = sc_counted(&index->leaf_count);
    bool goes_on = true;
    while (found == 0 && goes_on && steps < steps_max && sc_counted(&index->leaf_count) > 0) {
        uint32_t id = index->leaves[0];
        struct sc_radix_node *top = sc_radix_node_at(index, id);
        bool holds = is_held(top);
        if (sc_radix_rank(top) != top->listed) {
            top->listed = sc_radix_rank(top);
            sift_down(index, 0, sc_counted(&index->leaf_count));
        } else if (!holds && sc_radix_node_piece(top) < piece_end) {
            found = id;
        } else {
            goes_on = top_step_back(index, holds, aside, &aside_count);
            steps++;
        }
    }
    while (aside_count > 0)
        sc_radix_leaves_add(index, aside[--aside_count]);
    return found;
}

bool sc_radix_victim_below(struct sc_radix *index, uint64_t piece_end,
                           struct sc_radix_segment *ret_segment)
{
    sc_radix_reclaim(index);
    uint32_t found = sc_radix_leaves_lowest(index, piece_end);
    if (found == 0)
        return false;
    const struct sc_radix_node *node = sc_radix_node_at(index, found);
    sc_radix_segment_of(node, found, sc_radix_up(node), ret_segment);
    return true;
}

bool sc_radix_victim_old(struct sc_radix *index, uint64_t piece_end,
                         struct sc_radix_segment *ret_segment)
{
    uint64_t young = index->piece_next - sc_counted(&index->runs) / YOUNG_PART;
    young = young > 0 && young <= index->piece_next ? young - 1 : 0;
    if (index->policy != SC_POLICY_LRU && young < piece_end &&
        sc_radix_victim_below(index, young, ret_segment))
        return true;
    return sc_radix_victim_below(index, piece_end, ret_segment);
}

bool sc_radix_victim(struct sc_radix *index, struct sc_radix_segment *ret_segment)
{
    return sc_radix_victim_below(index, UINT64_MAX, ret_segment);
}
