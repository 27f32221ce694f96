/* Checks every invariant of the radix index that its headers state.
 *
 * Does not: change anything.
 * Threads: writer, and no reader inside.
 * Tests: tests/unit/hashing/test_radix.c (also: that a broken index is found) */
#include "tests/sim/radix_check.h"

#include "hashing/radix_internal.h"

struct count {
    uint64_t runs;
    uint64_t tokens;
    uint64_t leaves;
    uint64_t roots;
    uint64_t in_chunks;
    uint64_t in_children;
};

static uint64_t read(const _Atomic uint64_t *counter)
{
    return atomic_load_explicit(counter, memory_order_relaxed);
}

static spec_status broken(struct spec_error *reterr, uint32_t id, const char *what)
{
    return sc_fail(reterr, SPEC_E_CORRUPT, "radix index: run %08" PRIx32 ": %s", id, what);
}

/* What is wrong with a run's place among parent and siblings, or NULL. */
static const char *wrong_place(const struct sc_radix *index, uint32_t id,
                               const struct sc_radix_node *node, uint64_t up)
{
    uint32_t cut = sc_radix_up_cut(up);
    uint64_t first = (uint64_t)node->base_first + cut;
    uint64_t end = sc_radix_node_end(node);
    if (cut >= sc_radix_node_length(node))
        return "no tokens";
    if (first / index->chunk_tokens != (end - 1) / index->chunk_tokens)
        return "crosses a grid border";
    const struct sc_radix_node *parent = sc_radix_node_at(index, sc_radix_up_parent(up));
    if (sc_radix_node_end(parent) != first)
        return "does not begin where its parent ends";
    if (node->prev == 0 && atomic_load(&parent->first_child) != id)
        return "first sibling is not the parent's first child";
    if (node->prev != 0 && sc_radix_node_at(index, node->prev)->next != id)
        return "siblings disagree";
    if (node->next != 0 && sc_radix_node_at(index, node->next)->prev != id)
        return "siblings disagree";
    bool parent_hidden = (atomic_load(&parent->up) & SC_RADIX_HIDDEN) != 0;
    if (parent_hidden && (up & SC_RADIX_HIDDEN) == 0 && (parent->flags & SC_RADIX_OLD) == 0)
        return "visible below a hidden one";
    return NULL;
}

/* What is wrong with how a visible run is found, or NULL. */
static const char *wrong_way(const struct sc_radix *index, uint32_t id,
                             const struct sc_radix_node *node)
{
    struct sc_radix_key key;
    sc_radix_node_key(node, &key);
    struct sc_radix_node *found;
    uint64_t found_up;
    uint64_t steps = 0;
    if (sc_radix_child_find(index, &key, &found, &found_up, &steps) != id)
        return "not found from its parent";
    uint64_t end = sc_radix_node_end(node);
    bool at_grid = end % index->chunk_tokens == 0;
    bool in_chunks = (node->flags & SC_RADIX_IN_CHUNKS) != 0;
    if (in_chunks != at_grid && !(at_grid && sc_radix_is_old(index, id)))
        return "flag of the table of chunks";
    if (in_chunks && sc_radix_chunk_find(index, node->hash, end, &steps) != id)
        return "not found by its chain hash";
    if ((node->leaf_at == 0) != (sc_radix_visible_from(index, sc_radix_first_child(node)) != 0))
        return "leaf or not";
    return NULL;
}

static const char *wrong_hash(const struct sc_radix *index, uint32_t id,
                              const struct sc_radix_node *node)
{
    struct sc_chain chain;
    uint64_t first = sc_radix_node_end(node) - 1;
    sc_radix_chain_to(index, id, first - first % index->chunk_tokens, &chain);
    return sc_hash_equal(sc_chain_at(&chain), node->hash) ? NULL : "chain hash";
}

static const char *wrong_run(const struct sc_radix *index, uint32_t id, struct count *total)
{
    const struct sc_radix_node *node = sc_radix_node_at(index, id);
    uint64_t up = atomic_load(&node->up);
    total->in_chunks += (node->flags & SC_RADIX_IN_CHUNKS) != 0 ? 1 : 0;
    total->in_children += (node->flags & SC_RADIX_IN_CHILDREN) != 0 ? 1 : 0;
    if ((atomic_load(&node->pins) & SC_RADIX_DEAD) != 0)
        return "closed against pins";
    if ((node->flags & SC_RADIX_IS_ROOT) != 0) {
        total->roots++;
        struct sc_hash half = sc_sha256_short(sc_radix_root_of(node));
        bool is_one = node->length == SC_RADIX_MARKED && sc_radix_up_parent(up) == 0;
        return is_one && sc_hash_equal(half, node->hash) ? NULL : "not a root";
    }
    total->runs++;
    total->tokens += sc_radix_node_length(node) - sc_radix_up_cut(up);
    total->leaves += node->leaf_at != 0 ? 1 : 0;
    const char *what = wrong_place(index, id, node, up);
    if (what == NULL)
        what = wrong_hash(index, id, node);
    if (what != NULL)
        return what;
    if ((up & SC_RADIX_HIDDEN) == 0)
        return wrong_way(index, id, node);
    return node->leaf_at != 0 || (node->flags & SC_RADIX_IN_CHUNKS) != 0 ? "hidden but listed"
                                                                         : NULL;
}

static spec_status check_tree(const struct sc_radix *index, uint32_t root, struct count *total,
                              struct spec_error *reterr)
{
    for (uint32_t id = root; id != 0; id = sc_radix_after_in(index, root, id)) {
        const char *what = wrong_run(index, id, total);
        if (what != NULL)
            return broken(reterr, id, what);
    }
    return SPEC_OK;
}

static spec_status check_leaves(const struct sc_radix *index, struct spec_error *reterr)
{
    uint64_t count = 0;
    for (uint32_t i = 0; i < SC_RADIX_HEAPS; i++) {
        const struct sc_radix_heap *heap = &index->heaps[i];
        for (uint64_t at = 0; at < heap->count; at++, count++) {
            uint32_t id = heap->ids[at];
            const struct sc_radix_node *node = sc_radix_node_at(index, id);
            if (node->leaf_at != at + 1 ||
                (node->flags >> SC_RADIX_HEAP_SHIFT & (SC_RADIX_HEAPS - 1)) != i)
                return broken(reterr, id, "place in the heap");
            if (at != 0 && sc_radix_node_at(index, heap->ids[(at - 1) / 2])->listed > node->listed)
                return broken(reterr, id, "order of the heap");
            if (i < sc_radix_heap_of(index, node) || i == SC_RADIX_HEAP_KEPT)
                continue; /* it moves when it comes to the top, or when its time is over */
            if (i != sc_radix_heap_of(index, node) && i != SC_RADIX_HEAP_USUAL)
                return broken(reterr, id, "which heap");
        }
    }
    return count == read(&index->leaf_count) ? SPEC_OK
                                             : sc_fail(reterr, SPEC_E_CORRUPT, "heaps of leaves");
}

static spec_status check_counts(const struct sc_radix *index, const struct count *total,
                                struct spec_error *reterr)
{
    const struct sc_radix_table *chunks = atomic_load(&index->chunks);
    const struct sc_radix_table *children = atomic_load(&index->children);
    if (total->runs != read(&index->runs) || total->tokens != read(&index->tokens) ||
        total->roots != read(&index->roots) || total->leaves != read(&index->leaf_count))
        return sc_fail(reterr, SPEC_E_CORRUPT,
                       "radix index: counts differ: runs %" PRIu64 ", tokens %" PRIu64
                       ", roots %" PRIu64 ", leaves %" PRIu64,
                       total->runs, total->tokens, total->roots, total->leaves);
    if (total->in_chunks != chunks->live || total->in_children != children->live)
        return sc_fail(reterr, SPEC_E_CORRUPT,
                       "radix index: tables hold %" PRIu64 " and %" PRIu64 " entries, runs %" PRIu64
                       " and %" PRIu64,
                       chunks->live, children->live, total->in_chunks, total->in_children);
    if (read(&index->bytes) > index->bytes_max)
        return sc_fail(reterr, SPEC_E_CORRUPT, "radix index: %" PRIu64 " bytes are over the cap",
                       read(&index->bytes));
    return SPEC_OK;
}

static bool is_root(const struct sc_radix *index, uint32_t id)
{
    return (sc_radix_node_at(index, id)->flags & SC_RADIX_IS_ROOT) != 0;
}

/* The roots in the tables of chunks are those of the list, by number; old and waiting ones follow.
 */
static spec_status check_roots(const struct sc_radix *index, struct count *total,
                               struct spec_error *reterr)
{
    uint64_t number = 0;
    uint32_t prev = 0;
    for (uint32_t id = index->root_first; id != 0; id = sc_radix_node_at(index, id)->next) {
        const struct sc_radix_node *root = sc_radix_node_at(index, id);
        uint64_t steps = 0;
        if (root->prev != prev || root->listed < number || root->listed >= index->root_next ||
            (root->flags & SC_RADIX_NEWER) == 0)
            return broken(reterr, id, "place in the list of roots");
        if (sc_radix_root_find(index, sc_radix_root_of(root), &steps) != id)
            return broken(reterr, id, "root not found by its hash");
        number = root->listed + 1;
        prev = id;
        spec_status status = check_tree(index, id, total, reterr);
        if (status != SPEC_OK)
            return status;
    }
    if (prev != index->root_last)
        return broken(reterr, prev, "last root of the list");
    for (uint32_t id = index->old_first; id != 0; id = sc_radix_node_at(index, id)->next) {
        const struct sc_radix_node *root = sc_radix_node_at(index, id);
        if ((root->flags & (SC_RADIX_OLD | SC_RADIX_IN_CHUNKS)) != SC_RADIX_OLD ||
            (atomic_load(&root->up) & SC_RADIX_HIDDEN) == 0)
            return broken(reterr, id, "old root can be found");
        spec_status status = check_tree(index, id, total, reterr);
        if (status != SPEC_OK)
            return status;
    }
    return SPEC_OK;
}

spec_status sc_radix_check(struct sc_radix *index, struct spec_error *reterr)
{
    struct count total = {0};
    spec_status status = check_roots(index, &total, reterr);
    for (uint32_t id = index->waiting; id != 0 && status == SPEC_OK;
         id = sc_radix_node_at(index, id)->waiting_next) {
        uint16_t listed = sc_radix_node_at(index, id)->flags & (SC_RADIX_NEWER | SC_RADIX_OLD);
        if (is_root(index, id) && listed == 0)
            status = check_tree(index, id, &total, reterr);
    }
    if (status == SPEC_OK)
        status = check_leaves(index, reterr);
    if (status == SPEC_OK)
        status = check_counts(index, &total, reterr);
    return status;
}
