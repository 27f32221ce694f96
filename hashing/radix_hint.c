/* radix_hint: hints for eviction: priority and retention.
 *
 *   hint   [ end of retention, units of 16 s  24 | 0 | priority + 4, 0: usual  3 ]
 *
 * Invariants: a run's hint is only raised, part by part. No priority means the usual one, so a run
 * that only low priorities use is low. Retained runs are behind all others, and at their priority
 * again after their retention. The writer sets the time.
 * Threads: raise any; others as stated. Tests: tests/unit/hashing/test_radix_hint.c */
#include "hashing/radix_internal.h"

#define USUAL      (SC_RADIX_HEAP_USUAL + 1) /* priority if none is given */
#define UNIT_S     16u
#define UNTIL_MAX  ((UINT32_C(1) << 24) - 1)
#define PRIORITIES (2 * SC_RADIX_PRIORITY_MAX + 1)
_Static_assert(PRIORITIES == SC_RADIX_HEAP_KEPT && USUAL == SC_RADIX_PRIORITY_MAX + 1,
               "a heap a priority, and one more");

static uint32_t priority_of(uint32_t hint)
{
    return (hint & 7) != 0 ? hint & 7 : USUAL;
}

uint32_t sc_radix_hint(int32_t priority, uint64_t until_s)
{
    uint64_t until = until_s / UNIT_S + (until_s % UNIT_S != 0 ? 1 : 0);
    until = until < UNTIL_MAX ? until : UNTIL_MAX;
    int32_t most = SC_RADIX_PRIORITY_MAX;
    priority = priority < -most ? -most : priority > most ? most : priority;
    return (uint32_t)until << 8 | (uint32_t)(priority + (int32_t)USUAL);
}

uint32_t sc_radix_hint_best(uint32_t a, uint32_t b)
{
    uint32_t until = sc_radix_hint_until(a), priority = priority_of(a);
    until = until > sc_radix_hint_until(b) ? until : sc_radix_hint_until(b);
    priority = priority > priority_of(b) ? priority : priority_of(b);
    return until << 8 | priority;
}

uint64_t sc_radix_place(uint32_t hint)
{
    uint32_t until = sc_radix_hint_until(hint);
    return until != 0 ? (uint64_t)SC_RADIX_HEAP_KEPT + until : priority_of(hint) - 1;
}

bool sc_radix_has_later(const struct sc_radix *index, uint64_t place)
{
    uint32_t bits = atomic_load_explicit(&index->heaps_wanted, memory_order_relaxed);
    bits |= UINT32_C(1) << SC_RADIX_HEAP_USUAL;
    uint64_t next = place < SC_RADIX_HEAP_KEPT ? place + 1 : SC_RADIX_HEAP_KEPT;
    return bits >> next != 0;
}

void sc_radix_hint_want(struct sc_radix *index, uint32_t hint)
{
    uint32_t bits = UINT32_C(1) << (priority_of(hint) - 1);
    if (sc_radix_hint_until(hint) != 0)
        bits |= UINT32_C(1) << SC_RADIX_HEAP_KEPT;
    bits &= ~(UINT32_C(1) << SC_RADIX_HEAP_USUAL); /* it always exists */
    if ((atomic_load_explicit(&index->heaps_wanted, memory_order_relaxed) & bits) != bits)
        atomic_fetch_or_explicit(&index->heaps_wanted, bits, memory_order_relaxed);
}

void sc_radix_hint_raise(struct sc_radix *index, struct sc_radix_node *node, uint32_t hint)
{
    uint32_t old = sc_radix_node_hint(node), best;
    do {
        best = sc_radix_hint_best(old, hint);
        if (best == old || (old == 0 && best == USUAL))
            return;
    } while (!atomic_compare_exchange_weak_explicit(&node->hint, &old, best, memory_order_relaxed,
                                                    memory_order_relaxed));
    sc_radix_hint_want(index, best);
}

uint32_t sc_radix_heap_of(const struct sc_radix *index, const struct sc_radix_node *node)
{
    uint32_t hint = sc_radix_node_hint(node), heap = priority_of(hint) - 1;
    if (sc_radix_hint_until(hint) > index->kept_now)
        heap = SC_RADIX_HEAP_KEPT;
    while (heap > SC_RADIX_HEAP_USUAL && index->heaps[heap].ids == NULL)
        heap = heap == SC_RADIX_HEAP_KEPT ? priority_of(hint) - 1 : heap - 1; /* until the next
                                                                               * insertion creates
                                                                               * it */
    return index->heaps[heap].ids != NULL ? heap : SC_RADIX_HEAP_USUAL;
}

void sc_radix_clock_set(struct sc_radix *index, uint64_t now_s)
{
    uint64_t now = now_s / UNIT_S;
    now = now < UNTIL_MAX ? now : UNTIL_MAX;
    if (now > index->kept_now)
        index->kept_now = (uint32_t)now;
}
