/* heap: sifting. */
#include "base/heap.h"

#include <stddef.h>

bool sc_heap_init(struct sc_heap *heap, struct sc_alloc *alloc, uint64_t items_max)
{
    *heap = (struct sc_heap){.alloc = alloc};
    heap->nodes = sc_alloc_array(alloc, items_max, sizeof(*heap->nodes));
    heap->places = sc_alloc_array(alloc, items_max, sizeof(*heap->places));
    return heap->nodes != NULL && heap->places != NULL;
}

void sc_heap_done(struct sc_heap *heap)
{
    sc_alloc_free(heap->alloc, heap->places);
    sc_alloc_free(heap->alloc, heap->nodes);
}

static void node_set(struct sc_heap *heap, uint32_t place, struct sc_heap_node node)
{
    heap->nodes[place] = node;
    heap->places[node.item] = place;
}

static void node_up(struct sc_heap *heap, uint32_t place)
{
    struct sc_heap_node node = heap->nodes[place];
    for (; place > 0 && heap->nodes[(place - 1) / 2].rank > node.rank; place = (place - 1) / 2)
        node_set(heap, place, heap->nodes[(place - 1) / 2]);
    node_set(heap, place, node);
}

static void node_down(struct sc_heap *heap, uint32_t place)
{
    struct sc_heap_node node = heap->nodes[place];
    for (uint32_t child; (child = 2 * place + 1) < heap->count; place = child) {
        if (child + 1 < heap->count && heap->nodes[child + 1].rank < heap->nodes[child].rank)
            child++;
        if (heap->nodes[child].rank >= node.rank)
            break;
        node_set(heap, place, heap->nodes[child]);
    }
    node_set(heap, place, node);
}

void sc_heap_add(struct sc_heap *heap, uint32_t item, uint64_t rank)
{
    node_set(heap, heap->count, (struct sc_heap_node){.rank = rank, .item = item});
    node_up(heap, heap->count++);
}

void sc_heap_remove(struct sc_heap *heap, uint32_t item)
{
    uint32_t place = heap->places[item];
    struct sc_heap_node last = heap->nodes[--heap->count];
    if (place == heap->count)
        return;
    node_set(heap, place, last);
    node_up(heap, place);
    node_down(heap, heap->places[last.item]);
}
