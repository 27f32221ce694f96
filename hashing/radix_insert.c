/* radix_insert: insertion and splits.
 *
 *   plan      find the existing path; take all memory that the change needs; compute the hashes
 *   publish   cannot fail: split, link, enter into the tables
 *   replace   remove worse runs, which were beside the new ones under the same key until now
 *
 * Invariants: an error has changed nothing that a match can see.
 * Threads: writer. */
#include "hashing/radix_internal.h"

#include <string.h>

struct plan {
    struct sc_radix *index;
    const struct sc_radix_insertion *in;
    uint64_t end;

    /* The existing path. */
    uint32_t root_above; /* 0: to be created */
    uint32_t at;         /* deepest run that matches whole, or the root; 0: no root yet */
    uint32_t part;       /* run below it that matches in part; 0: none */
    uint64_t part_up;    /* state of `part` */
    uint32_t part_count;
    uint32_t last;     /* run with the last token found */
    uint32_t worse;    /* run at `position` to be replaced, with all below it; 0: none */
    uint64_t position; /* position of the first missing token */

    /* The new runs. */
    struct sc_chain chain;
    uint32_t root;
    uint32_t upper;
    uint32_t run_count;
    uint32_t runs[SC_CHAIN_CHUNK_TOKENS_MAX];
};

/* Appends the run's first `count` tokens. up: a state of the run. */
static void chain_run(struct sc_chain *chain, const struct sc_radix_node *node, uint64_t up,
                      uint64_t count)
{
    uint32_t cut = sc_radix_up_cut(up);
    struct sc_mark mark = {(uint64_t)node->base_first + cut, {{0}}};
    bool marked = sc_radix_node_mark(node, up, &mark.digest);
    sc_chain_extend(chain, node->tokens + cut, count, (struct sc_marks){&mark, marked ? 1 : 0});
}

void sc_radix_chain_to(const struct sc_radix *index, uint32_t id, uint64_t grid,
                       struct sc_chain *ret_chain)
{
    uint32_t path[SC_CHAIN_CHUNK_TOKENS_MAX];
    uint32_t depth = 0;
    const struct sc_radix_node *node = sc_radix_node_at(index, id);
    while (sc_radix_node_end(node) > grid) {
        SC_ASSERT(index->poison, depth < SC_CHAIN_CHUNK_TOKENS_MAX);
        path[depth++] = id;
        id = sc_radix_parent(node);
        node = sc_radix_node_at(index, id);
    }
    SC_ASSERT(index->poison, sc_radix_node_end(node) == grid);
    sc_chain_init_at(ret_chain, sc_radix_secret(index), node->hash, grid, index->chunk_tokens);
    while (depth-- != 0) {
        node = sc_radix_node_at(index, path[depth]);
        chain_run(ret_chain, node, sc_radix_up(node),
                  sc_radix_node_end(node) - sc_radix_node_first(node));
    }
}

/* ---- plan ---------------------------------------------------------------------------------- */

static spec_status check_ranges(const struct sc_radix *index, const struct sc_radix_insertion *in,
                                struct spec_error *reterr)
{
    if (in->token_count == 0 || in->first >= UINT32_MAX || in->token_count > UINT32_MAX - in->first)
        return sc_fail(reterr, SPEC_E_INVALID,
                       "insertion of %" PRIu64 " tokens at %" PRIu64 ": not within 1 to 2^32",
                       in->token_count, in->first);
    uint64_t end = in->first + in->token_count;
    if (in->run_first < in->first || in->run_first >= end ||
        in->run_first / index->chunk_tokens != (end - 1) / index->chunk_tokens)
        return sc_fail(reterr, SPEC_E_INVALID,
                       "insertion of rows %" PRIu64 " to %" PRIu64 " with tokens from %" PRIu64
                       ": not inside one chunk of %" PRIu32,
                       in->run_first, end, in->first, index->chunk_tokens);
    if (in->value.row_first > SC_RADIX_ROWS_MAX - 1 - SC_CHAIN_CHUNK_TOKENS_MAX ||
        in->value.piece > UINT32_MAX)
        return sc_fail(reterr, SPEC_E_INVALID,
                       "insertion with row %" PRIu32 " of piece %" PRIu64 ": too large",
                       in->value.row_first, in->value.piece);
    if (in->after.id == 0 && in->first != 0)
        return sc_fail(reterr, SPEC_E_INVALID,
                       "insertion at the root begins at token %" PRIu64 ", expected 0", in->first);
    return SPEC_OK;
}

/* Finds the run that the first token follows. */
static spec_status find_start(struct plan *plan, struct spec_error *reterr)
{
    const struct sc_radix_insertion *in = plan->in;
    if (in->after.id == 0) {
        uint64_t steps = 0;
        plan->at = sc_radix_root_find(plan->index, &in->root, &steps);
        plan->root_above = plan->at;
        return SPEC_OK;
    }
    const struct sc_radix_node *node = sc_radix_node_of(plan->index, in->after);
    if (node == NULL || sc_radix_is_hidden(node) || sc_radix_is_old(plan->index, in->after.id))
        return sc_fail(reterr, SPEC_E_STALE, "insertion after a run that was removed");
    if (sc_radix_node_end(node) != in->first)
        return sc_fail(reterr, SPEC_E_INVALID,
                       "insertion at token %" PRIu64 " after a run that ends at %" PRIu64,
                       in->first, sc_radix_node_end(node));
    plan->root_above = sc_radix_root_above(plan->index, in->after.id);
    if (!sc_sha256_equal(sc_radix_root_of(sc_radix_node_at(plan->index, plan->root_above)),
                         &in->root))
        return sc_fail(reterr, SPEC_E_STALE, "insertion after a run of another root");
    plan->at = in->after.id;
    return SPEC_OK;
}

static const struct sc_mark *mark_at(const struct sc_radix_insertion *in, uint64_t position)
{
    uint64_t i = sc_chain_mark_from(in->marks, position);
    return i < in->marks.count && in->marks.at[i].token == position ? &in->marks.at[i] : NULL;
}

/* Returns the end of the run that begins at `position`: the next mark, or the insertion's end. */
static uint64_t run_end(const struct plan *plan, uint64_t position)
{
    const struct sc_radix_insertion *in = plan->in;
    uint64_t i = sc_chain_mark_from(in->marks, position + 1);
    return i < in->marks.count && in->marks.at[i].token < plan->end ? in->marks.at[i].token
                                                                    : plan->end;
}

/* Descends as far as the tokens exist. */
static void find_common(struct plan *plan)
{
    const struct sc_radix_insertion *in = plan->in;
    plan->position = in->first;
    plan->last = plan->at;
    while (plan->at != 0 && plan->position < plan->end) {
        const uint32_t *asked = in->tokens + (plan->position - in->first);
        struct sc_radix_key key;
        sc_radix_key_set(&key, plan->at, asked[0], mark_at(in, plan->position));
        struct sc_radix_node *node;
        uint64_t up;
        uint64_t steps = 0;
        uint32_t id = sc_radix_child_find(plan->index, &key, &node, &up, &steps);
        if (id == 0)
            return;
        if (in->replaces != NULL && plan->position >= in->run_first &&
            sc_radix_node_flags(node) > in->value.flags) {
            plan->worse = id;
            return;
        }
        uint32_t cut = sc_radix_up_cut(up);
        uint32_t length = sc_radix_node_length(node) - cut;
        uint64_t limit = run_end(plan, plan->position) - plan->position;
        uint32_t common = 1; /* the key's token */
        while (common < length && common < limit && node->tokens[cut + common] == asked[common])
            common++;
        plan->position += common;
        plan->last = id;
        if (common < length) {
            plan->part = id;
            plan->part_up = up;
            plan->part_count = common;
            return;
        }
        plan->at = id;
    }
}

/* Computes the chain up to `position`. */
static void prepare_chain(struct plan *plan)
{
    struct sc_radix *index = plan->index;
    uint64_t grid = plan->position - plan->position % index->chunk_tokens;
    if (plan->at == 0)
        sc_chain_init(&plan->chain, sc_radix_secret(index), &plan->in->root, index->chunk_tokens);
    else
        sc_radix_chain_to(index, plan->at, grid, &plan->chain);
    if (plan->part != 0)
        chain_run(&plan->chain, sc_radix_node_at(index, plan->part), plan->part_up,
                  plan->part_count);
}

static void fill_run(struct plan *plan, uint32_t id, uint64_t first, uint64_t end,
                     bool is_hash_known)
{
    const struct sc_radix_insertion *in = plan->in;
    const uint32_t *tokens = in->tokens + (first - in->first);
    const struct sc_mark *mark = mark_at(in, first);
    struct sc_radix_node *node = sc_radix_node_at(plan->index, id);
    memcpy(node->tokens, tokens, 4 * (end - first));
    if (mark != NULL)
        memcpy(node->tokens + (end - first), &mark->digest, SC_SHA256_BYTES);
    if (is_hash_known) {
        node->hash = *in->end_hash;
    } else {
        sc_chain_extend(&plan->chain, tokens, end - first,
                        (struct sc_marks){mark, mark != NULL ? 1 : 0});
        node->hash = sc_chain_at(&plan->chain);
    }
    uint32_t row = in->value.row_first + (uint32_t)(first - in->run_first);
    atomic_store_explicit(&node->value, sc_radix_value_make(in->value.piece, row),
                          memory_order_relaxed);
    atomic_store_explicit(&node->value_flags, in->value.flags, memory_order_relaxed);
    node->base_first = (uint32_t)first;
}

static void drop_plan(struct plan *plan)
{
    for (uint32_t i = 0; i < plan->run_count; i++)
        sc_radix_node_free(plan->index, plan->runs[i]);
    sc_radix_node_free(plan->index, plan->upper);
    sc_radix_node_free(plan->index, plan->root);
}

/* Takes all memory that publishing needs. */
static bool take_memory(struct plan *plan)
{
    struct sc_radix *index = plan->index;
    if (!sc_radix_table_reserve(index, &index->chunks, 2) ||
        !sc_radix_table_reserve(index, &index->children, 1) || !sc_radix_leaves_reserve(index))
        return false;
    if (plan->at == 0) {
        plan->root = sc_radix_node_alloc(index, 0, true);
        if (plan->root == 0)
            return false;
    }
    if (plan->part != 0) {
        const struct sc_radix_node *node = sc_radix_node_at(index, plan->part);
        struct sc_sha256 mark;
        bool marked = sc_radix_node_mark(node, plan->part_up, &mark);
        plan->upper = sc_radix_node_alloc(index, plan->part_count, marked);
        if (plan->upper == 0)
            return false;
    }
    for (uint64_t first = plan->position; first < plan->end;) {
        uint64_t end = run_end(plan, first);
        uint32_t id =
            sc_radix_node_alloc(index, (uint32_t)(end - first), mark_at(plan->in, first) != NULL);
        if (id == 0)
            return false;
        plan->runs[plan->run_count++] = id;
        first = end;
    }
    return true;
}

static void fill_runs(struct plan *plan, bool is_hash_known)
{
    uint64_t first = plan->position;
    for (uint32_t i = 0; i < plan->run_count; i++) {
        uint64_t end = run_end(plan, first);
        fill_run(plan, plan->runs[i], first, end, is_hash_known);
        first = end;
    }
}

/* ---- publish ------------------------------------------------------------------------------- */

/* Moves the run's leading tokens to a new run above it. */
static void split(struct plan *plan, struct sc_hash hash)
{
    struct sc_radix *index = plan->index;
    uint32_t upper_id = plan->upper;
    uint32_t lower_id = plan->part;
    struct sc_radix_node *upper = sc_radix_node_at(index, upper_id);
    struct sc_radix_node *lower = sc_radix_node_at(index, lower_id);
    uint32_t parent_id = sc_radix_up_parent(plan->part_up);
    uint32_t cut = sc_radix_up_cut(plan->part_up);
    struct sc_radix_node *parent = sc_radix_node_at(index, parent_id);
    struct sc_radix_key key;
    sc_radix_node_key(lower, &key);

    uint64_t value = atomic_load_explicit(&lower->value, memory_order_relaxed);
    upper->hash = hash;
    atomic_store_explicit(
        &upper->value,
        sc_radix_value_make(sc_radix_value_piece(value), sc_radix_value_row(value) + cut) |
            (value & SC_RADIX_JOINED),
        memory_order_relaxed);
    atomic_store_explicit(&upper->value_flags, sc_radix_node_flags(lower), memory_order_relaxed);
    upper->base_first = lower->base_first + cut;
    memcpy(upper->tokens, lower->tokens + cut, 4 * (uint64_t)plan->part_count);
    if (key.marked)
        memcpy(upper->tokens + plan->part_count, &key.mark, SC_SHA256_BYTES);
    sc_radix_rank_set(upper, sc_radix_rank(lower));
    atomic_store_explicit(&upper->hint, sc_radix_node_hint(lower), memory_order_relaxed);
    atomic_store(&upper->first_child, lower_id);
    atomic_store(&upper->up, sc_radix_up_make(parent_id, 0));
    upper->flags = lower->flags & (SC_RADIX_IN_CHILDREN | SC_RADIX_MOVED);
    upper->next = lower->next;
    upper->prev = lower->prev;
    if (upper->next != 0)
        sc_radix_node_at(index, upper->next)->prev = upper_id;
    if (upper->prev != 0)
        sc_radix_node_at(index, upper->prev)->next = upper_id;
    lower->next = 0;
    lower->prev = 0;

    /* From here on readers see the upper run; those with old entries climb to it. */
    atomic_store(&lower->up, sc_radix_up_make(upper_id, cut + plan->part_count));
    if (sc_radix_first_child(parent) == lower_id)
        atomic_store(&parent->first_child, upper_id);
    if ((lower->flags & SC_RADIX_IN_CHILDREN) != 0)
        sc_radix_table_replace(atomic_load_explicit(&index->children, memory_order_relaxed),
                               sc_radix_key_hash(&key), lower_id, upper_id);
    lower->flags &= (uint16_t)~SC_RADIX_IN_CHILDREN;
    sc_radix_tally(&index->runs, 1);
    sc_radix_tally(&index->splits, 1);
}

/* Links a complete run, whose `up` is set, below its parent. */
static void attach(struct sc_radix *index, uint32_t parent_id, uint32_t id)
{
    struct sc_radix_node *parent = sc_radix_node_at(index, parent_id);
    struct sc_radix_node *node = sc_radix_node_at(index, id);
    uint32_t head_id = sc_radix_first_child(parent);
    sc_radix_leaves_drop(index, parent_id);
    if (head_id == 0) {
        atomic_store_explicit(&parent->first_child, id, memory_order_release);
        return;
    }
    struct sc_radix_node *head = sc_radix_node_at(index, head_id);
    node->prev = head_id;
    node->next = head->next;
    if (node->next != 0)
        sc_radix_node_at(index, node->next)->prev = id;
    head->next = id;
    struct sc_radix_key key;
    sc_radix_node_key(node, &key);
    node->flags |= SC_RADIX_IN_CHILDREN;
    sc_radix_table_put(atomic_load_explicit(&index->children, memory_order_relaxed),
                       sc_radix_key_hash(&key), id);
}

/* Returns the run that ends at `end` and is the only child of the one known to be SC_RADIX_AHEAD
 * chunks above `parent`; 0: unknown. */
static uint32_t next_above(const struct sc_radix *index, uint32_t parent_id, uint64_t end)
{
    const struct sc_radix_node *parent = sc_radix_node_at(index, parent_id);
    bool is_newest =
        index->newest.id == parent_id && index->newest.generation == parent->generation;
    if (!is_newest || index->newest_above == 0)
        return 0;
    uint32_t id = sc_radix_first_child(sc_radix_node_at(index, index->newest_above));
    const struct sc_radix_node *node = sc_radix_node_at(index, id);
    return node->next == 0 && sc_radix_node_end(node) == end ? id : 0;
}

/* Makes the run SC_RADIX_AHEAD chunks above name this one, for prefetching. */
static void foretell(struct sc_radix *index, uint32_t id)
{
    struct sc_radix_node *node = sc_radix_node_at(index, id);
    uint64_t end = sc_radix_node_end(node);
    uint64_t distance = (uint64_t)SC_RADIX_AHEAD * index->chunk_tokens;
    uint32_t above = 0, at = sc_radix_parent(node);
    if (end > distance)
        above = next_above(index, at, end - distance);
    /* The limit ends the climb after too many splits. */
    for (uint32_t climbed = 0; above == 0 && end > distance && climbed < 2 * SC_RADIX_AHEAD;
         climbed++) {
        const struct sc_radix_node *there = sc_radix_node_at(index, at);
        above = sc_radix_node_end(there) == end - distance ? at : 0;
        at = sc_radix_parent(there);
    }
    if (above != 0)
        atomic_store_explicit(&sc_radix_node_at(index, above)->ahead, id, memory_order_relaxed);
    index->newest = (struct sc_radix_ref){id, node->generation};
    index->newest_above = above;
}

static void enter_chunk(struct sc_radix *index, uint32_t id)
{
    struct sc_radix_node *node = sc_radix_node_at(index, id);
    node->flags |= SC_RADIX_IN_CHUNKS;
    sc_radix_table_put(atomic_load_explicit(&index->chunks, memory_order_relaxed),
                       sc_radix_chunk_hash(node->hash), id);
}

static void publish_root(struct plan *plan)
{
    struct sc_radix_node *root = sc_radix_node_at(plan->index, plan->root);
    root->hash = sc_sha256_short(&plan->in->root);
    memcpy(root->tokens, &plan->in->root, sizeof(plan->in->root));
    root->flags = SC_RADIX_IS_ROOT;
    plan->at = plan->root;
    plan->root_above = plan->root;
    enter_chunk(plan->index, plan->root);
    sc_radix_root_list(plan->index, plan->root);
    sc_radix_tally(&plan->index->roots, 1);
}

static void publish(struct plan *plan, struct sc_hash split_hash)
{
    struct sc_radix *index = plan->index;
    uint64_t now = sc_radix_time_write(index, plan->end - plan->position);
    if (plan->in->value.piece >= index->piece_next)
        index->piece_next = plan->in->value.piece + 1;
    if (plan->at == 0)
        publish_root(plan);
    uint32_t parent = plan->at;
    if (plan->part != 0) {
        split(plan, split_hash);
        parent = plan->upper;
    }
    uint32_t above = parent;
    for (uint32_t i = 0; i < plan->run_count; i++) {
        struct sc_radix_node *node = sc_radix_node_at(index, plan->runs[i]);
        atomic_store_explicit(&node->up, sc_radix_up_make(above, 0), memory_order_relaxed);
        sc_radix_used(index, node, now);
        atomic_store_explicit(&node->hint, plan->in->hint, memory_order_relaxed);
        if (i + 1 < plan->run_count)
            atomic_store_explicit(&node->first_child, plan->runs[i + 1], memory_order_relaxed);
        above = plan->runs[i];
    }
    attach(index, parent, plan->runs[0]);
    if (plan->end % index->chunk_tokens == 0) {
        enter_chunk(index, above);
        foretell(index, above);
    }
    sc_radix_leaves_add(index, above);
    sc_radix_root_know(index, above, plan->root_above);
    sc_radix_tally(&index->runs, plan->run_count);
    sc_radix_tally(&index->tokens, (int64_t)(plan->end - plan->position));
}

static void answer(const struct plan *plan, uint64_t new_count, uint32_t last, uint32_t whole,
                   struct sc_radix_inserted *ret_inserted)
{
    const struct sc_radix *index = plan->index;
    const struct sc_radix_node *whole_node = sc_radix_node_at(index, whole);
    ret_inserted->new_count = new_count;
    ret_inserted->last = sc_radix_ref_of(index, last);
    ret_inserted->whole_end = sc_radix_node_end(whole_node);
    ret_inserted->whole = (struct sc_radix_ref){0, 0};
    if (!sc_radix_is_root(whole_node))
        ret_inserted->whole = (struct sc_radix_ref){whole, whole_node->generation};
}

static bool is_below(const struct sc_radix *index, uint32_t id, uint32_t top)
{
    while (id != 0 && id != top)
        id = sc_radix_parent(sc_radix_node_at(index, id));
    return id != 0;
}

bool sc_radix_is_below(struct sc_radix *index, struct sc_radix_ref run, struct sc_radix_ref top)
{
    return sc_radix_node_of(index, run) != NULL && sc_radix_node_of(index, top) != NULL &&
           is_below(index, run.id, top.id);
}

/* Returns true if a run that stays has the chain hash. Runs that are being cleared or are worse
 * make way. */
static bool is_taken(struct sc_radix *index, struct sc_hash hash, uint64_t end, uint32_t worse)
{
    uint64_t steps = 0;
    uint32_t id = sc_radix_chunk_find(index, hash, end, &steps);
    if (worse != 0 && id != 0 && is_below(index, id, worse))
        return false;
    if (id == 0 || !sc_radix_is_old(index, id))
        return id != 0;
    sc_radix_chunks_leave(index, id);
    return false;
}

/* Removes the worse runs after the new ones are published. */
static void replace(struct plan *plan)
{
    struct sc_radix *index = plan->index;
    const struct sc_radix_insertion *in = plan->in;
    if (plan->worse == 0)
        return;
    struct sc_radix_ref top = sc_radix_ref_of(index, plan->worse);
    if (in->replacing != NULL)
        in->replacing(top, in->replaces->user);
    atomic_fetch_add(&index->replaced, 1);
    (void)sc_radix_remove(index, top, SC_RADIX_RUN, in->replaces);
}

static spec_status add_missing(struct plan *plan, struct sc_radix_inserted *ret_inserted,
                               struct spec_error *reterr)
{
    struct sc_radix *index = plan->index;
    if (!take_memory(plan)) {
        drop_plan(plan);
        return sc_fail(reterr, SPEC_E_NO_MEMORY,
                       "radix index: %" PRIu64 " of %" PRIu64 " bytes are in use",
                       sc_counted(&index->bytes), index->bytes_max);
    }
    struct sc_hash split_hash = {0, 0};
    bool is_known = plan->in->end_hash != NULL && plan->part == 0 && plan->run_count == 1;
    if (!is_known) {
        prepare_chain(plan);
        split_hash = sc_chain_at(&plan->chain);
    }
    fill_runs(plan, is_known);
    uint32_t last = plan->runs[plan->run_count - 1];
    if (plan->end % index->chunk_tokens == 0 &&
        is_taken(index, sc_radix_node_at(index, last)->hash, plan->end, plan->worse)) {
        sc_radix_tally(&index->collisions, 1);
        drop_plan(plan);
        return sc_fail(reterr, SPEC_E_CORRUPT,
                       "chain hash at token %" PRIu64 " belongs to another prefix", plan->end);
    }
    publish(plan, split_hash);
    replace(plan);
    answer(plan, plan->end - plan->position, last, last, ret_inserted);
    return SPEC_OK;
}

/* Returns true if a child of this run has its piece. */
static bool goes_on(const struct sc_radix *index, const struct sc_radix_node *node)
{
    uint32_t id = atomic_load_explicit(&node->first_child, memory_order_relaxed);
    for (; id != 0; id = sc_radix_node_at(index, id)->next)
        if (sc_radix_node_piece(sc_radix_node_at(index, id)) == sc_radix_node_piece(node))
            return true;
    return false;
}

/* All tokens exist. If several whole pieces of equal worth have them from run_first to the end, the
 * value replaces theirs. A piece that lost only a part of its runs would never be dropped. */
static bool merge(const struct plan *plan)
{
    struct sc_radix *index = plan->index;
    const struct sc_radix_insertion *in = plan->in;
    const struct sc_radix_node *node = sc_radix_node_at(index, plan->at);
    uint64_t first = plan->end, pieces = 0, piece = 0;
    if (plan->part != 0 || goes_on(index, node))
        return false;
    while (first > in->run_first) {
        uint64_t up = sc_radix_up(node);
        pieces += sc_radix_node_piece(node) != piece || pieces == 0;
        piece = sc_radix_node_piece(node);
        first = (uint64_t)node->base_first + sc_radix_up_cut(up);
        if (sc_radix_node_flags(node) != in->value.flags)
            return false;
        node = sc_radix_node_at(index, sc_radix_up_parent(up));
    }
    bool begins_above = !sc_radix_is_root(node) && sc_radix_node_piece(node) == piece;
    if (first != in->run_first || pieces < 2 || begins_above)
        return false;
    struct sc_radix_ref last = sc_radix_ref_of(index, plan->at);
    return sc_radix_move(index, last, in->run_first, &in->value, in->replaces);
}

void sc_radix_insert_soon(const struct sc_radix *index, struct sc_hash hash)
{
    const struct sc_radix_table *table = atomic_load_explicit(&index->chunks, memory_order_relaxed);
    __builtin_prefetch(&table->slots[sc_radix_chunk_hash(hash) & table->mask], 1);
}

spec_status sc_radix_insert(struct sc_radix *index, const struct sc_radix_insertion *insertion,
                            struct sc_radix_inserted *ret_inserted, struct spec_error *reterr)
{
    sc_radix_reclaim(index);
    if (insertion->hint != 0)
        sc_radix_hint_want(index, insertion->hint);
    spec_status status = check_ranges(index, insertion, reterr);
    if (status != SPEC_OK)
        return status;
    struct plan plan;
    memset(&plan, 0, offsetof(struct plan, chain));
    plan.root = 0;
    plan.upper = 0;
    plan.run_count = 0;
    plan.index = index;
    plan.in = insertion;
    plan.end = insertion->first + insertion->token_count;
    status = find_start(&plan, reterr);
    if (status != SPEC_OK)
        return status;
    find_common(&plan);
    if (plan.position < insertion->run_first)
        return sc_fail(reterr, SPEC_E_STALE,
                       "insertion at token %" PRIu64 ", but the prefix is stored to %" PRIu64,
                       insertion->run_first, plan.position);
    if (plan.position < plan.end)
        return add_missing(&plan, ret_inserted, reterr);
    bool is_moved = insertion->merges && merge(&plan);
    struct sc_radix_node *last = sc_radix_node_at(index, plan.last);
    sc_radix_used(index, last, sc_radix_time_write(index, insertion->token_count));
    sc_radix_hint_raise(index, last, insertion->hint);
    answer(&plan, is_moved ? plan.end - insertion->run_first : 0, plan.last, plan.at, ret_inserted);
    return SPEC_OK;
}
