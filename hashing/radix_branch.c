/* radix_branch: branches, which are recurrent states below a run beside the prompts' tokens.
 *
 *   [0..64) -- [64..90) -- [90..128)        the match; its last run is pinned, so all of it stays
 *                  |
 *                  +-- mark, t t t t .. e   a branch at 90
 *
 * The search goes up from the last run. A run that is split meanwhile may be passed over (a miss).
 *
 * Invariants: every run of a branch was confirmed by parent, mark and tokens. No chain hash is
 * computed, and nothing is allocated.
 * Threads: any. Tests: tests/unit/hashing/test_radix_branch.c */
#include "hashing/radix_internal.h"

/* Returns the branch's tokens in the run, up to the end token with it; 0: other tokens. */
static uint64_t branch_tokens(const struct sc_radix_node *node, uint32_t cut,
                              const struct sc_radix_branch *branch, bool *ret_ends)
{
    uint64_t length = sc_radix_node_length(node) - cut, i = 0;
    while (i < length && node->tokens[cut + i] == branch->token)
        i++;
    *ret_ends = i < length && node->tokens[cut + i] == branch->end_token;
    return *ret_ends ? i + 1 : i == length ? length : 0;
}

/* Returns a branch's next run, which may begin with its last token; 0: none. */
static uint32_t branch_child(const struct sc_radix *index, uint32_t parent,
                             const struct sc_radix_branch *branch, const struct sc_mark *mark,
                             struct sc_radix_node **ret_node, uint64_t *ret_up, uint64_t *ret_steps)
{
    struct sc_radix_key key;
    sc_radix_key_set(&key, parent, branch->token, mark);
    uint32_t id = sc_radix_child_find(index, &key, ret_node, ret_up, ret_steps);
    if (id != 0)
        return id;
    sc_radix_key_set(&key, parent, branch->end_token, mark);
    return sc_radix_child_find(index, &key, ret_node, ret_up, ret_steps);
}

/* Walks down the branch below `id` to its end. */
static bool branch_walk(const struct sc_radix *index, uint32_t id,
                        const struct sc_radix_branch *branch, struct sc_radix_segment *segments,
                        uint64_t capacity, struct sc_radix_match *match)
{
    const struct sc_mark mark = {.digest = branch->mark};
    uint64_t at = 0;
    bool ends = false;
    match->segment_count = 0;
    while (!ends) {
        struct sc_radix_node *node;
        uint64_t up;
        id = branch_child(index, id, branch, at == 0 ? &mark : NULL, &node, &up, &match->steps);
        if (id == 0 || (branch->flags_end != 0 && sc_radix_node_flags(node) >= branch->flags_end))
            return false;
        uint64_t count = branch_tokens(node, sc_radix_up_cut(up), branch, &ends);
        if (count == 0 || (segments != NULL && match->segment_count == capacity))
            return false;
        struct sc_radix_segment segment;
        sc_radix_segment_of(node, id, up, &segment);
        segment.count = count;
        if (segments != NULL)
            segments[match->segment_count] = segment;
        match->segment_count++;
        match->last = segment.node;
        match->last_piece = segment.value.piece;
        match->last_flags = segment.value.flags;
        at += count;
    }
    return branch->count == 0 || at == branch->count;
}

bool sc_radix_branch_pin(struct sc_radix *index, struct sc_radix_ref pinned,
                         const struct sc_radix_branch *branch, struct sc_radix_segment *segments,
                         uint64_t capacity, struct sc_radix_match *ret_match)
{
    uint64_t multiple = branch->multiple_of > 1 ? branch->multiple_of : 1;
    struct sc_radix_match match = {0};
    bool found = false;
    uint32_t place = pinned.id != 0 ? sc_radix_reader_enter(index) : UINT32_MAX;
    if (place == UINT32_MAX)
        return false;
    for (uint32_t id = pinned.id; !found;) {
        const struct sc_radix_node *node = sc_radix_node_at(index, id);
        uint64_t end = sc_radix_node_end(node); /* 0 for a root */
        if (end <= branch->above)
            break;
        found = end <= branch->most && end % multiple == 0 &&
                branch_walk(index, id, branch, segments, capacity, &match) &&
                sc_radix_run_pin(index, match.last.id, 1, branch->hint);
        match.token_count = end;
        id = sc_radix_up_parent(atomic_load(&node->up));
    }
    sc_radix_reader_leave(index, place);
    *ret_match = found ? match : (struct sc_radix_match){.steps = match.steps};
    return found;
}
