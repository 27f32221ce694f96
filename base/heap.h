/* heap: a binary heap of items by rank, the least at the root. Items are numbers below items_max,
 * each at most once; any item can be removed.
 *
 *   nodes    [least][..][..] ...   node i is no more than nodes 2 i + 1 and 2 i + 2
 *   places   [items_max]           the node of each item
 *
 * Invariants: nothing is allocated after init. Equal ranks have no order.
 * Threads: one at a time. Tests: tests/unit/base/test_heap.c */
#ifndef SC_BASE_HEAP_H
#define SC_BASE_HEAP_H

#include "base/alloc.h"

#include <stdbool.h>
#include <stdint.h>

struct sc_heap_node {
    uint64_t rank;
    uint32_t item;
};

struct sc_heap {
    struct sc_alloc *alloc;
    struct sc_heap_node *nodes;
    uint32_t *places;
    uint32_t count;
};

/* heap is zero. False: no memory; done frees what was allocated. */
bool sc_heap_init(struct sc_heap *heap, struct sc_alloc *alloc, uint64_t items_max);
void sc_heap_done(struct sc_heap *heap);
/* The item must not be in the heap. */
void sc_heap_add(struct sc_heap *heap, uint32_t item, uint64_t rank);
/* The item must be in the heap. */
void sc_heap_remove(struct sc_heap *heap, uint32_t item);

#endif
