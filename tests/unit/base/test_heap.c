/* The heap: against a plain list, after every step of random ones. */
#include "base/heap.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define ITEMS 40u
#define STEPS 20000u

struct item {
    bool is_in;
    uint64_t rank;
};

static uint64_t below(uint64_t *seed, uint64_t end)
{
    *seed = *seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (*seed >> 33) % end;
}

static void heap_check(const struct sc_heap *heap, const struct item *items)
{
    uint32_t count = 0;
    uint64_t least = UINT64_MAX;
    for (uint32_t i = 0; i < ITEMS; i++) {
        if (!items[i].is_in)
            continue;
        count++;
        least = items[i].rank < least ? items[i].rank : least;
        assert_true(heap->places[i] < heap->count);
        assert_int_equal(heap->nodes[heap->places[i]].item, i);
        assert_true(heap->nodes[heap->places[i]].rank == items[i].rank);
    }
    assert_int_equal(heap->count, count);
    assert_true(count == 0 || heap->nodes[0].rank == least);
    for (uint32_t place = 1; place < heap->count; place++)
        assert_true(heap->nodes[(place - 1) / 2].rank <= heap->nodes[place].rank);
}

static void test_order_and_places_hold_after_every_step(void **state)
{
    (void)state;
    struct sc_alloc alloc;
    struct sc_heap heap = {0};
    struct item items[ITEMS] = {0};
    uint64_t seed = 7;
    sc_alloc_init(&alloc);
    assert_true(sc_heap_init(&heap, &alloc, ITEMS));
    for (uint32_t step = 0; step < STEPS; step++) {
        uint32_t i = (uint32_t)below(&seed, ITEMS);
        if (items[i].is_in) {
            sc_heap_remove(&heap, i);
        } else {
            items[i].rank = below(&seed, step % 1000 < 500 ? 5 : UINT64_MAX >> 31);
            sc_heap_add(&heap, i, items[i].rank);
        }
        items[i].is_in = !items[i].is_in;
        heap_check(&heap, items);
    }
    sc_heap_done(&heap);
    sc_alloc_done(&alloc);
}

static void test_the_least_leaves_first(void **state)
{
    (void)state;
    struct sc_alloc alloc;
    struct sc_heap heap = {0};
    uint64_t seed = 3, last = 0;
    sc_alloc_init(&alloc);
    assert_true(sc_heap_init(&heap, &alloc, ITEMS));
    for (uint32_t i = 0; i < ITEMS; i++)
        sc_heap_add(&heap, i, below(&seed, 30));
    for (uint32_t i = 0; i < ITEMS; i++) {
        struct sc_heap_node least = heap.nodes[0];
        assert_true(least.rank >= last);
        last = least.rank;
        sc_heap_remove(&heap, least.item);
    }
    assert_int_equal(heap.count, 0);
    sc_heap_done(&heap);
    sc_alloc_done(&alloc);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_order_and_places_hold_after_every_step),
        cmocka_unit_test(test_the_least_leaves_first)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
