/* residency: counts slabs of the host tier by piece. Contract: store/cache/residency.h. */
#include "store/cache/residency.h"

#include <stddef.h>

#define NONE      SC_RESIDENCY_NONE
#define TRIES_MAX 16u  /* attempts of a reader; each meets another change */
#define STEPS_MAX 256u /* longer than any list; bounds a misled reader */

/* Neighbours in an extent have neighbouring heads, because lookup asks for pieces in order. */
static _Atomic uint32_t *head_of(const struct sc_store_residency *residency, uint64_t copy,
                                 uint64_t what)
{
    uint64_t hash = (copy ^ what >> 32 << 56) * UINT64_C(0x9e3779b97f4a7c15);
    hash = (hash ^ hash >> 29) * UINT64_C(0xbf58476d1ce4e5b9) >> 32;
    return &residency->heads[(hash + (uint32_t)what / SC_RESIDENCY_NEAR) & residency->head_mask];
}

/* The odd version is ordered before the release stores that follow: a reader of one sees it. */
static void change_begin(struct sc_store_residency *residency)
{
    (void)atomic_fetch_add_explicit(&residency->version, 1, memory_order_relaxed);
}

static void change_end(struct sc_store_residency *residency)
{
    (void)atomic_fetch_add_explicit(&residency->version, 1, memory_order_release);
}

#define SET(member, value) atomic_store_explicit(&(member), (value), memory_order_release)
#define GET(member)        atomic_load_explicit(&(member), memory_order_acquire)

uint32_t sc_store_residency_find(const struct sc_store_residency *residency, uint64_t copy,
                                 uint64_t what)
{
    uint32_t i = GET(*head_of(residency, copy, what));
    while (i != NONE &&
           (GET(residency->groups[i].copy) != copy || GET(residency->groups[i].what) != what))
        i = GET(residency->groups[i].next);
    return i;
}

uint32_t sc_store_residency_join(struct sc_store_residency *residency, uint64_t copy, uint64_t what)
{
    uint32_t i = sc_store_residency_find(residency, copy, what);
    if (i == NONE) {
        _Atomic uint32_t *head = head_of(residency, copy, what);
        i = residency->free != NONE ? residency->free : residency->fresh++;
        struct sc_store_residency_group *group = &residency->groups[i];
        if (i == residency->free)
            residency->free = GET(group->next);
        group->slabs = 0;
        group->first = NONE;
        change_begin(residency);
        SET(group->copy, copy);
        SET(group->what, what);
        SET(group->published, 0);
        SET(group->risen, 0);
        SET(group->next, GET(*head));
        SET(*head, i);
        change_end(residency);
    }
    residency->groups[i].slabs++;
    return i;
}

void sc_store_residency_leave(struct sc_store_residency *residency, uint32_t i)
{
    struct sc_store_residency_group *group = &residency->groups[i];
    if (--group->slabs > 0)
        return;
    _Atomic uint32_t *link = head_of(residency, GET(group->copy), GET(group->what));
    while (GET(*link) != i)
        link = &residency->groups[GET(*link)].next;
    change_begin(residency);
    SET(*link, GET(group->next));
    SET(group->next, residency->free);
    change_end(residency);
    residency->free = i;
}

void sc_store_residency_publish(struct sc_store_residency *residency, uint32_t i, bool is_published)
{
    uint32_t count = GET(residency->groups[i].published);
    SET(residency->groups[i].published, is_published ? count + 1 : count - 1);
    count = GET(residency->published);
    SET(residency->published, is_published ? count + 1 : count - 1);
}

void sc_store_residency_rise(struct sc_store_residency *residency, uint32_t i, bool is_risen)
{
    uint32_t count = GET(residency->groups[i].risen);
    SET(residency->groups[i].risen, is_risen ? count + 1 : count - 1);
}

/* A group that moves to another list can mislead a reader. The changed version makes it read
 * again. */
uint32_t sc_store_residency_count(const struct sc_store_residency *residency, uint64_t copy,
                                  uint64_t what, uint32_t *ret_risen)
{
    for (uint32_t tries = 0; tries < TRIES_MAX; tries++) {
        uint32_t version = GET(residency->version), count = 0, risen = 0;
        uint32_t i = GET(*head_of(residency, copy, what));
        for (uint32_t steps = 0; i != NONE && steps < STEPS_MAX; steps++) {
            const struct sc_store_residency_group *group = &residency->groups[i];
            if (GET(group->copy) == copy && GET(group->what) == what) {
                count = GET(group->published);
                risen = GET(group->risen);
                break;
            }
            i = GET(group->next);
        }
        if (version % 2 == 1 || GET(residency->version) != version)
            continue;
        if (ret_risen != NULL) /* the two counts change one after the other */
            *ret_risen = risen < count ? risen : count;
        return count;
    }
    if (ret_risen != NULL)
        *ret_risen = 0;
    return 0;
}

bool sc_store_residency_init(struct sc_store_residency *residency, struct sc_alloc *alloc,
                             uint32_t count_max)
{
    uint32_t heads = 1;
    while (heads < count_max / 2) /* most groups have several slabs */
        heads *= 2;
    *residency = (struct sc_store_residency){
        .alloc = alloc, .count_max = count_max, .head_mask = heads - 1, .free = NONE};
    residency->groups = sc_alloc_array(alloc, count_max, sizeof(*residency->groups));
    residency->heads = sc_alloc_array(alloc, heads, sizeof(*residency->heads));
    if (residency->groups == NULL || residency->heads == NULL)
        return false;
    for (uint32_t i = 0; i < heads; i++)
        SET(residency->heads[i], NONE);
    return true;
}

void sc_store_residency_done(struct sc_store_residency *residency)
{
    sc_alloc_free(residency->alloc, residency->heads);
    sc_alloc_free(residency->alloc, residency->groups);
}
