/* radix_leaves: heaps of runs without visible children, for eviction.
 *
 *   heaps[0 .. 6]   one per priority (radix_hint.c): binary heaps by `listed`, the rank under which
 *                   a leaf was last placed
 *   heaps[7]        retained leaves: by the end of retention, then by rank inside one unit of time
 *
 *   victim          the top of the first heap that has one, after leaves whose retention has ended
 *                   have moved out of the last one
 *
 * Readers only store a run's rank (base/policy.h) and raise its hint. A heap is repaired when its
 * top is needed: a top whose rank changed moves down, and one whose hint changed moves to its heap.
 * Ranks and hints only grow, so the first top in order is the lowest. A pinned top is passed over:
 * it moves to the end of its heap, in the last heap by a unit of time. If many are pinned, they
 * stay in place until all before them are evicted.
 *
 * Invariants: every visible run (no root) without a visible child is in one heap, and nothing else
 * is. listed <= rank, except in the last heap. Their number grows only by insertion, so only
 * insertion reserves room; each heap has room for all of them.
 * Threads: writer. Nothing is allocated except in reserve. */
#include "hashing/radix_internal.h"

#include <string.h>

#define YOUNG_PART  16u /* part of the runs */
#define UNIT_BITS   40u /* of a key of the last heap: above them is the unit of time */
#define UNIT_ONE    (UINT64_C(1) << UNIT_BITS)
#define BRIEF_SHIFT 24u /* bits that a brief rank drops from a rank that is not a time */

static uint32_t heap_at(const struct sc_radix_node *node)
{
    return node->flags >> SC_RADIX_HEAP_SHIFT & (SC_RADIX_HEAPS - 1);
}

/* Returns the rank in UNIT_BITS bits, with its order as far as they reach. */
static uint64_t brief_rank(enum sc_policy policy, uint64_t rank)
{
    uint64_t brief = policy == SC_POLICY_LRU ? rank : rank >> BRIEF_SHIFT;
    return brief < UNIT_ONE ? brief : UNIT_ONE - 1;
}

/* Returns the heap's sort key. With equal retention the last one used is evicted last. */
static uint64_t key_of(const struct sc_radix *index, const struct sc_radix_node *node,
                       uint32_t heap)
{
    uint64_t rank = sc_radix_rank(node), until = sc_radix_hint_until(sc_radix_node_hint(node));
    return heap == SC_RADIX_HEAP_KEPT ? until << UNIT_BITS | brief_rank(index->policy, rank) : rank;
}

static struct sc_radix_node *leaf_at(const struct sc_radix *index, const struct sc_radix_heap *heap,
                                     uint64_t at)
{
    return sc_radix_node_at(index, heap->ids[at]);
}

static void set(struct sc_radix *index, struct sc_radix_heap *heap, uint64_t at, uint32_t id)
{
    heap->ids[at] = id;
    sc_radix_node_at(index, id)->leaf_at = (uint32_t)at + 1;
}

static void swap(struct sc_radix *index, struct sc_radix_heap *heap, uint64_t a, uint64_t b)
{
    uint32_t id = heap->ids[a];
    set(index, heap, a, heap->ids[b]);
    set(index, heap, b, id);
}

static void sift_up(struct sc_radix *index, struct sc_radix_heap *heap, uint64_t at)
{
    while (at != 0) {
        uint64_t above = (at - 1) / 2;
        if (leaf_at(index, heap, above)->listed <= leaf_at(index, heap, at)->listed)
            return;
        swap(index, heap, above, at);
        at = above;
    }
}

static void sift_down(struct sc_radix *index, struct sc_radix_heap *heap, uint64_t at)
{
    for (;;) {
        uint64_t child = 2 * at + 1;
        if (child >= heap->count)
            return;
        if (child + 1 < heap->count &&
            leaf_at(index, heap, child + 1)->listed < leaf_at(index, heap, child)->listed)
            child++;
        if (leaf_at(index, heap, at)->listed <= leaf_at(index, heap, child)->listed)
            return;
        swap(index, heap, at, child);
        at = child;
    }
}

static bool heap_grow(struct sc_radix *index, struct sc_radix_heap *heap, uint64_t capacity)
{
    uint32_t *ids = sc_radix_memory_take(index, capacity * sizeof(*ids));
    if (ids == NULL)
        return false;
    if (heap->count != 0)
        memcpy(ids, heap->ids, heap->count * sizeof(*ids));
    sc_radix_memory_give(index, heap->ids, heap->capacity * sizeof(*ids));
    heap->ids = ids;
    heap->capacity = capacity;
    return true;
}

/* Creates heaps that hints need; without memory a heap stays absent. */
static void heaps_make(struct sc_radix *index)
{
    uint32_t wanted = atomic_load_explicit(&index->heaps_wanted, memory_order_relaxed);
    for (uint32_t i = 0; wanted != 0; i++, wanted >>= 1)
        if ((wanted & 1) != 0 && index->heaps[i].ids == NULL)
            (void)heap_grow(index, &index->heaps[i], index->heaps[SC_RADIX_HEAP_USUAL].capacity);
}

bool sc_radix_leaves_reserve(struct sc_radix *index)
{
    uint64_t count = sc_counted(&index->leaf_count);
    for (uint32_t i = 0; i < SC_RADIX_HEAPS; i++) {
        struct sc_radix_heap *heap = &index->heaps[i];
        bool is_there = heap->ids != NULL || i == SC_RADIX_HEAP_USUAL;
        if (is_there && count >= heap->capacity &&
            !heap_grow(index, heap, heap->capacity == 0 ? 64 : heap->capacity * 2))
            return false;
    }
    heaps_make(index);
    return true;
}

void sc_radix_leaves_close(struct sc_radix *index)
{
    for (uint32_t i = 0; i < SC_RADIX_HEAPS; i++)
        sc_radix_memory_give(index, index->heaps[i].ids,
                             index->heaps[i].capacity * sizeof(index->heaps[i].ids[0]));
}

static void push(struct sc_radix *index, uint32_t id)
{
    struct sc_radix_node *node = sc_radix_node_at(index, id);
    uint32_t number = sc_radix_heap_of(index, node);
    struct sc_radix_heap *heap = &index->heaps[number];
    SC_ASSERT(index->poison, heap->count < heap->capacity);
    node->flags &= (uint16_t) ~((SC_RADIX_HEAPS - 1) << SC_RADIX_HEAP_SHIFT);
    node->flags |= (uint16_t)(number << SC_RADIX_HEAP_SHIFT);
    node->listed = key_of(index, node, number);
    set(index, heap, heap->count, id);
    sift_up(index, heap, heap->count++);
}

static void pull(struct sc_radix *index, struct sc_radix_node *node, uint32_t id)
{
    struct sc_radix_heap *heap = &index->heaps[heap_at(node)];
    uint64_t at = node->leaf_at - 1, last = heap->count - 1;
    SC_ASSERT(index->poison, heap->ids[at] == id);
    swap(index, heap, at, last);
    node->leaf_at = 0;
    heap->count--;
    if (at == last)
        return;
    sift_up(index, heap, at);
    sift_down(index, heap, at);
}

void sc_radix_leaves_add(struct sc_radix *index, uint32_t id)
{
    SC_ASSERT(index->poison, sc_radix_node_at(index, id)->leaf_at == 0);
    push(index, id);
    sc_radix_tally(&index->leaf_count, 1);
}

void sc_radix_leaves_drop(struct sc_radix *index, uint32_t id)
{
    struct sc_radix_node *node = sc_radix_node_at(index, id);
    if (node->leaf_at == 0)
        return;
    pull(index, node, id);
    sc_radix_tally(&index->leaf_count, -1);
}

/* Returns true if pinned, or above a hidden run that waits. */
static bool is_held(const struct sc_radix_node *node)
{
    return atomic_load_explicit(&node->pins, memory_order_relaxed) != 0 ||
           sc_radix_first_child(node) != 0;
}

static void top_move(struct sc_radix *index, struct sc_radix_heap *heap)
{
    uint32_t id = heap->ids[0];
    pull(index, sc_radix_node_at(index, id), id);
    push(index, id);
}

/* Returns true if the heap's top is in order and in its heap; else it has been reordered or
 * moved. */
static bool top_settle(struct sc_radix *index, uint32_t number)
{
    struct sc_radix_heap *heap = &index->heaps[number];
    struct sc_radix_node *top = leaf_at(index, heap, 0);
    if (sc_radix_heap_of(index, top) != number) {
        top_move(index, heap);
        return false;
    }
    uint64_t key = key_of(index, top, number);
    bool is_late = number == SC_RADIX_HEAP_KEPT && top->listed > key; /* it was passed over */
    if (key == top->listed || is_late)
        return true;
    top->listed = key;
    sift_down(index, heap, 0);
    return false;
}

/* Returns a unit of time after the key and after now. */
static uint64_t later_unit(const struct sc_radix *index, uint64_t key)
{
    uint64_t now = (uint64_t)index->kept_now << UNIT_BITS;
    return (key > now ? key : now) + UNIT_ONE;
}

/* Sets the top aside for this call, because it is in use or not below piece_end. If there is no
 * room, it is ranked higher (last heap: later) each time, so that leaves behind it are found in the
 * end. False: too many of its kind. */
static bool top_step_back(struct sc_radix *index, uint32_t number, bool holds, uint32_t *aside,
                          uint32_t *aside_count)
{
    struct sc_radix_heap *heap = &index->heaps[number];
    uint32_t id = heap->ids[0];
    struct sc_radix_node *top = sc_radix_node_at(index, id);
    bool is_kept = number == SC_RADIX_HEAP_KEPT, has_room = *aside_count < SC_RADIX_ASIDE;
    if (holds)
        sc_radix_node_pass_over(index, top); /* else each call would meet all of its kind again */
    if (has_room) {
        pull(index, top, id);
        aside[(*aside_count)++] = id;
        return true;
    }
    if (holds && index->policy != SC_POLICY_LRU && !is_kept)
        sc_radix_rank_set(top, sc_rank_raised(index->policy, sc_radix_rank(top)));
    if (is_kept)
        top->listed = later_unit(index, top->listed);
    else
        top->listed = sc_radix_rank(top);
    sift_down(index, heap, 0);
    return holds;
}

/* Returns the next position of the heap outside the subtree of `at`; 0: none. */
static uint64_t place_beside(const struct sc_radix_heap *heap, uint64_t at)
{
    while (at != 0 && (at % 2 == 0 || at + 1 == heap->count))
        at = (at - 1) / 2;
    return at != 0 ? at + 1 : 0;
}

/* As lowest_of, by examining each leaf in front of the result: more are held, or not below
 * piece_end, than can be set aside. */
static uint32_t lowest_seen(const struct sc_radix *index, uint32_t number, uint64_t piece_end)
{
    const struct sc_radix_heap *heap = &index->heaps[number];
    uint64_t lowest = UINT64_MAX, at = 0;
    uint32_t found = 0;
    bool goes_on = heap->count > 0;
    while (goes_on) {
        const struct sc_radix_node *node = leaf_at(index, heap, at);
        uint64_t key = key_of(index, node, number), below = 2 * at + 1;
        /* None below was listed before it, except in the last heap. */
        bool is_behind = found != 0 && node->listed >= lowest && number != SC_RADIX_HEAP_KEPT;
        if ((found == 0 || key < lowest) && !is_held(node) &&
            sc_radix_node_piece(node) < piece_end) {
            found = heap->ids[at];
            lowest = key;
        }
        at = !is_behind && below < heap->count ? below : place_beside(heap, at);
        goes_on = at != 0;
    }
    return found;
}

/* Returns the heap's first leaf of a piece below piece_end. */
static uint32_t lowest_of(struct sc_radix *index, uint32_t number, uint64_t piece_end)
{
    const struct sc_radix_heap *heap = &index->heaps[number];
    uint32_t aside[SC_RADIX_ASIDE], aside_count = 0, found = 0;
    uint64_t steps = 0, steps_max = heap->count;
    bool goes_on = true;
    while (found == 0 && goes_on && steps < steps_max && heap->count > 0) {
        if (!top_settle(index, number))
            continue;
        const struct sc_radix_node *top = leaf_at(index, heap, 0);
        bool holds = is_held(top);
        if (!holds && sc_radix_node_piece(top) < piece_end) {
            found = heap->ids[0];
        } else {
            goes_on = top_step_back(index, number, holds, aside, &aside_count);
            steps++;
        }
    }
    bool is_deep = found == 0 && goes_on && aside_count == SC_RADIX_ASIDE;
    while (aside_count > 0)
        push(index, aside[--aside_count]);
    return is_deep ? lowest_seen(index, number, piece_end) : found;
}

/* Moves leaves whose retention has ended to their heap. */
static void kept_leave(struct sc_radix *index)
{
    const struct sc_radix_heap *heap = &index->heaps[SC_RADIX_HEAP_KEPT];
    while (heap->count > 0 && leaf_at(index, heap, 0)->listed >> UNIT_BITS <= index->kept_now)
        (void)top_settle(index, SC_RADIX_HEAP_KEPT); /* renewed, or moves */
}

/* Returns sc_radix_place of a leaf. */
static uint64_t place_of(const struct sc_radix *index, const struct sc_radix_node *node)
{
    uint64_t heap = sc_radix_heap_of(index, node);
    return heap == SC_RADIX_HEAP_KEPT ? heap + sc_radix_hint_until(sc_radix_node_hint(node)) : heap;
}

struct search {
    struct sc_radix_among among;
    uint64_t old_end;    /* pieces below it are found before others below piece_end */
    bool first_is_alone; /* examine only the first unpinned leaf */
};

/* Returns the heap's first leaf of a piece below piece_end; 0: none. */
static uint32_t old_of(struct sc_radix *index, uint32_t number, const struct search *search)
{
    uint64_t piece_end = search->among.piece_end;
    if (search->first_is_alone && number != SC_RADIX_HEAP_KEPT) { /* the last heap is by time */
        uint32_t first = lowest_of(index, number, UINT64_MAX);
        bool is_old = first != 0 && sc_radix_node_piece(sc_radix_node_at(index, first)) < piece_end;
        return is_old ? first : 0;
    }
    uint32_t found = search->old_end < piece_end ? lowest_of(index, number, search->old_end) : 0;
    return found != 0 ? found : lowest_of(index, number, piece_end);
}

/* Leaves spared for their piece come before those of higher places. */
static bool victim_find(struct sc_radix *index, const struct search *search,
                        struct sc_radix_segment *ret_segment)
{
    const struct sc_radix_among *among = &search->among;
    uint32_t found = 0, spared = 0;
    sc_radix_reclaim(index);
    kept_leave(index);
    for (uint32_t i = 0; i < SC_RADIX_HEAPS && i < among->place_end && found == 0; i++) {
        found = old_of(index, i, search);
        bool may_hide = found == 0 || i == SC_RADIX_HEAP_KEPT; /* a newer one at a lower place */
        if (spared == 0 && may_hide)
            spared = lowest_of(index, i, UINT64_MAX);
    }
    uint64_t place = found != 0 ? place_of(index, sc_radix_node_at(index, found)) : UINT64_MAX;
    if (place >= among->place_end)
        return false;
    if (spared != 0 && place_of(index, sc_radix_node_at(index, spared)) < place)
        found = spared;
    const struct sc_radix_node *node = sc_radix_node_at(index, found);
    sc_radix_segment_of(node, found, sc_radix_up(node), ret_segment);
    return true;
}

bool sc_radix_victim_below(struct sc_radix *index, struct sc_radix_among among,
                           struct sc_radix_segment *ret_segment)
{
    const struct search search = {.among = among, .old_end = UINT64_MAX};
    return victim_find(index, &search, ret_segment);
}

bool sc_radix_victim_old(struct sc_radix *index, struct sc_radix_among among,
                         struct sc_radix_segment *ret_segment)
{
    uint64_t young = index->piece_next - sc_counted(&index->runs) / YOUNG_PART;
    young = young > 0 && young <= index->piece_next ? young - 1 : 0;
    const struct search search = {.among = among,
                                  .old_end = index->policy != SC_POLICY_LRU ? young : UINT64_MAX};
    return victim_find(index, &search, ret_segment);
}

bool sc_radix_victim_first(struct sc_radix *index, struct sc_radix_among among,
                           struct sc_radix_segment *ret_segment)
{
    const struct search search = {.among = among, .old_end = UINT64_MAX, .first_is_alone = true};
    return victim_find(index, &search, ret_segment);
}

bool sc_radix_victim(struct sc_radix *index, struct sc_radix_segment *ret_segment)
{
    return sc_radix_victim_below(index, sc_radix_below(UINT64_MAX), ret_segment);
}

/* ---- Uses that others know of ---------------------------------------------------------------- */

uint64_t sc_radix_time(const struct sc_radix *index)
{
    return atomic_load_explicit(&index->clock, memory_order_relaxed) +
           atomic_load_explicit(&index->written, memory_order_relaxed);
}

uint64_t sc_radix_time_of(const struct sc_radix *index, struct sc_radix_ref run)
{
    const struct sc_radix_node *node = sc_radix_node_of(index, run);
    return node != NULL ? sc_rank_time(index->policy, sc_radix_rank(node)) : 0;
}

bool sc_radix_used_then(struct sc_radix *index, struct sc_radix_ref run, uint64_t then)
{
    struct sc_radix_node *node = sc_radix_node_of(index, run);
    if (node == NULL || sc_rank_time(index->policy, sc_radix_rank(node)) >= then)
        return false;
    sc_radix_used(index, node, then);
    return true;
}

void sc_radix_pass_over(struct sc_radix *index, struct sc_radix_ref run)
{
    struct sc_radix_node *node = sc_radix_node_of(index, run);
    if (node != NULL)
        sc_radix_node_pass_over(index, node);
}

/* ---- Evictable pieces ----------------------------------------------------------------------- */

struct walk {
    bool (*look)(uint64_t piece, void *user);
    void *user;
    uint64_t place_end, steps_left;
};

/* Climbs from an unpinned leaf as eviction would. False: stopped early. */
static bool walk_up(const struct sc_radix *index, uint32_t id, struct walk *walk)
{
    for (;;) {
        const struct sc_radix_node *node = sc_radix_node_at(index, id);
        const struct sc_radix_node *above = sc_radix_node_above(index, node);
        bool is_pinned = atomic_load_explicit(&node->pins, memory_order_relaxed) != 0;
        if (is_pinned || place_of(index, node) >= walk->place_end)
            return true;
        if (walk->steps_left-- == 0)
            return false;
        bool is_last = sc_radix_is_root(above);
        uint64_t piece = sc_radix_node_piece(node);
        if ((is_last || sc_radix_node_piece(above) != piece) && !walk->look(piece, walk->user))
            return false;
        if (is_last || sc_radix_first_child(above) != id || node->next != 0)
            return true;
        id = sc_radix_parent(node);
    }
}

bool sc_radix_evictable(struct sc_radix *index, uint64_t place_end, uint64_t steps_max,
                        bool (*look)(uint64_t piece, void *user), void *user)
{
    struct walk walk = {look, user, place_end, steps_max};
    kept_leave(index);
    for (uint32_t i = 0; i < SC_RADIX_HEAPS && i < place_end; i++)
        for (uint64_t at = 0; at < index->heaps[i].count; at++) {
            uint32_t id = index->heaps[i].ids[at];
            if (!is_held(sc_radix_node_at(index, id)) && !walk_up(index, id, &walk))
                return true;
        }
    return false;
}
