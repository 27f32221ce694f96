/* catalog: objects of entries, their order of use, and when their pages are free.
 *
 *   heap of a domain   a pairing heap by rank: tick of the last use, then order inside a call
 *   get, touch         write a tick into the entry, and leave the heap unchanged
 *   eviction           takes the root; if it was used since, reinserts it with its new rank
 *
 * So the order is exact LRU with ticks of 25 ms, and a use costs one store. A held object is
 * reinserted with the tick at which the hold ends. Gets of other processes count by the second
 * (sc_store_used_s).
 * Threads: `lock`. Tests: tests/unit/plugin/test_objects.c */
#include "plugin/objects/objects.h"

#include <string.h>

#define ORDER_BITS 20u

/* ---- The heap ------------------------------------------------------------------------------- */

static uint32_t heap_join(spec_objects *objects, uint32_t a, uint32_t b)
{
    if (a == 0 || b == 0)
        return a == 0 ? b : a;
    if (sc_object_of(objects, b)->rank < sc_object_of(objects, a)->rank) {
        uint32_t other = a;
        a = b;
        b = other;
    }
    struct sc_object *parent = sc_object_of(objects, a), *child = sc_object_of(objects, b);
    child->heap_next = parent->heap_child;
    if (parent->heap_child != 0)
        sc_object_of(objects, parent->heap_child)->heap_prev = b;
    child->heap_prev = a;
    parent->heap_child = b;
    return a;
}

/* Joins a list of siblings: in pairs, then from the last pair on. */
static uint32_t heap_join_all(spec_objects *objects, uint32_t first)
{
    uint32_t pairs = 0, root = 0;
    while (first != 0) {
        uint32_t a = first, b = sc_object_of(objects, a)->heap_next;
        first = b != 0 ? sc_object_of(objects, b)->heap_next : 0;
        sc_object_of(objects, a)->heap_next = 0;
        if (b != 0)
            sc_object_of(objects, b)->heap_next = 0;
        uint32_t pair = heap_join(objects, a, b);
        sc_object_of(objects, pair)->heap_next = pairs;
        pairs = pair;
    }
    while (pairs != 0) {
        uint32_t next = sc_object_of(objects, pairs)->heap_next;
        sc_object_of(objects, pairs)->heap_next = 0;
        root = heap_join(objects, root, pairs);
        pairs = next;
    }
    return root;
}

static void heap_add(spec_objects *objects, uint32_t id, uint64_t rank)
{
    struct sc_object *object = sc_object_of(objects, id);
    struct sc_object_domain *domain = &objects->domains[object->domain];
    object->rank = rank;
    object->heap_child = object->heap_next = object->heap_prev = 0;
    object->in_heap = true;
    domain->heap = heap_join(objects, domain->heap, id);
}

static void heap_remove(spec_objects *objects, uint32_t id)
{
    struct sc_object *object = sc_object_of(objects, id);
    struct sc_object_domain *domain = &objects->domains[object->domain];
    uint32_t children = heap_join_all(objects, object->heap_child);
    if (domain->heap == id) {
        domain->heap = children;
    } else { /* prev: the parent of a first child, else the previous sibling */
        struct sc_object *prev = sc_object_of(objects, object->heap_prev);
        if (prev->heap_child == id)
            prev->heap_child = object->heap_next;
        else
            prev->heap_next = object->heap_next;
        if (object->heap_next != 0)
            sc_object_of(objects, object->heap_next)->heap_prev = object->heap_prev;
        domain->heap = heap_join(objects, domain->heap, children);
    }
    object->heap_child = object->heap_next = object->heap_prev = 0;
    object->in_heap = false;
}

static uint64_t rank_of(uint32_t tick, uint32_t order)
{
    uint64_t last = (UINT64_C(1) << ORDER_BITS) - 1;
    return (uint64_t)tick << ORDER_BITS | (last - (order < last ? order : last));
}

/* ---- Entries -------------------------------------------------------------------------------- */

bool sc_catalog_reserve(spec_objects *objects, uint32_t id)
{
    struct sc_object **slab = &objects->slabs[id / SC_KEY_SLAB];
    const uint64_t bytes = SC_KEY_SLAB * sizeof(**slab);
    if (*slab == NULL) {
        *slab = sc_alloc_array(&objects->alloc, SC_KEY_SLAB, sizeof(**slab));
        objects->table.lacks_memory = *slab == NULL;
        if (*slab == NULL)
            return false;
        objects->table.bytes += bytes;
    }
    (*slab)[id % SC_KEY_SLAB] = (struct sc_object){0};
    return true;
}

bool sc_catalog_parts_set(spec_objects *objects, struct sc_object *object,
                          const struct sc_store_object_part *parts, uint32_t part_count)
{
    object->parts = object->first;
    if (part_count > SC_OBJECT_PARTS_IN)
        object->parts = sc_alloc_array(&objects->alloc, part_count, sizeof(*parts));
    if (object->parts == NULL)
        return false;
    memcpy(object->parts, parts, part_count * sizeof(*parts));
    object->part_count = (uint16_t)part_count;
    object->has_pages = true;
    objects->domains[object->domain].pages += sc_object_pages(object->bytes);
    return true;
}

void sc_catalog_publish(spec_objects *objects, uint32_t id, uint32_t used)
{
    struct sc_object *object = sc_object_of(objects, id);
    struct sc_object_domain *domain = &objects->domains[object->domain];
    const struct sc_key_entry *entry = sc_key_table_entry(&objects->table, id);
    uint32_t key_bytes = atomic_load_explicit(&entry->key, memory_order_relaxed) & 0xFFFF;
    object->put = NULL;
    object->round = objects->round;
    domain->objects++;
    domain->bytes += object->bytes;
    domain->live_pages += sc_object_pages(object->bytes);
    objects->live_log_bytes += sc_store_object_record_usual(key_bytes, object->part_count);
    sc_key_table_publish(&objects->table, id, object->bytes, used);
    heap_add(objects, id, rank_of(used, object->order));
    sc_objects_room_came(objects); /* it may be evicted now */
}

void sc_catalog_removal_add(spec_objects *objects, uint32_t id)
{
    struct sc_object *object = sc_object_of(objects, id);
    object->heap_next = objects->unrecorded;
    object->is_listed = true; /* its number stays its own, whatever else ends meanwhile */
    objects->unrecorded = id;
}

void sc_catalog_leave(spec_objects *objects, uint32_t id, uint32_t reason, bool was_live)
{
    struct sc_object *object = sc_object_of(objects, id);
    struct sc_object_domain *domain = &objects->domains[object->domain];
    const struct sc_key_entry *entry = sc_key_table_entry(&objects->table, id);
    uint32_t key_bytes = atomic_load_explicit(&entry->key, memory_order_relaxed) & 0xFFFF;
    sc_key_table_unlink(&objects->table, id);
    object->is_leaving = true;
    if (!was_live)
        return;
    if (object->in_heap)
        heap_remove(objects, id);
    domain->objects--;
    domain->bytes -= object->bytes;
    domain->live_pages -= sc_object_pages(object->bytes);
    objects->live_log_bytes -= sc_store_object_record_usual(key_bytes, object->part_count);
    if (reason == SC_CATALOG_CLEARED) {
        object->is_recorded = true;
        return;
    }
    if (reason == SPEC_REMOVED_ELSEWHERE) {
        object->is_recorded = true;
        sc_objects_event_add(objects, object->domain, id, SPEC_EVENT_REMOVED, reason);
        return;
    }
    sc_catalog_removal_add(objects, id);
    if (reason == SPEC_REMOVED_EVICTED) {
        SC_OBJECT_COUNT(objects, domain, evicted_objects, 1);
        SC_OBJECT_COUNT(objects, domain, evicted_bytes, object->bytes);
    } else if (reason == SPEC_REMOVED_DAMAGED) {
        SC_OBJECT_COUNT(objects, domain, damaged_objects, 1);
    } else {
        SC_OBJECT_COUNT(objects, domain, deleted_objects, 1);
    }
    sc_objects_event_add(objects, object->domain, id, SPEC_EVENT_REMOVED, reason);
}

/* The parts stay, for a get that reads there. */
static void pages_give(spec_objects *objects, struct sc_object *object)
{
    if (!object->has_pages)
        return;
    if (object->is_placed)
        sc_store_object_placed(objects->store, object->parts, object->part_count);
    sc_store_object_pages_free(objects->store, object->parts, object->part_count);
    objects->domains[object->domain].pages -= sc_object_pages(object->bytes);
    object->has_pages = object->is_placed = false;
    sc_objects_room_came(objects);
}

void sc_catalog_pages_give(spec_objects *objects, uint32_t id)
{
    pages_give(objects, sc_object_of(objects, id));
}

void sc_catalog_parts_free(spec_objects *objects, struct sc_object *object)
{
    if (object->part_count == 0)
        return;
    pages_give(objects, object);
    if (object->parts != object->first)
        sc_alloc_free(&objects->alloc, object->parts);
    object->parts = NULL;
    object->part_count = 0;
}

/* Returns true if a get reads the pages, and no other process can give them to an object before it
 * ends: the segments are claimed here, and stay so. */
static bool pages_keep(spec_objects *objects, struct sc_object *object)
{
    if (object->pins == 0 || !object->has_pages)
        return false;
    object->is_placed = object->is_placed || sc_store_object_pages_keep(
                                                 objects->store, object->parts, object->part_count);
    return object->is_placed;
}

void sc_catalog_settle(spec_objects *objects, uint32_t id)
{
    struct sc_object *object = sc_object_of(objects, id);
    if (!object->is_leaving || !object->is_recorded || object->put != NULL)
        return;
    if (objects->shares && objects->alone_count == 0 && !pages_keep(objects, object))
        pages_give(objects, object); /* whoever has the segment may use them by now */
    if (object->pins > 0 || object->is_listed)
        return;
    sc_catalog_parts_free(objects, object);
    *object = (struct sc_object){0};
    sc_key_table_free(&objects->table, id);
    sc_objects_room_came(objects); /* of the index, too */
}

void sc_catalog_pin(spec_objects *objects, uint32_t id)
{
    sc_object_of(objects, id)->pins++;
}

void sc_catalog_unpin(spec_objects *objects, uint32_t id)
{
    struct sc_object *object = sc_object_of(objects, id);
    SC_ASSERT(&objects->poison, object->pins > 0);
    object->pins--;
    sc_catalog_settle(objects, id);
}

void sc_catalog_removed(spec_objects *objects, uint32_t id)
{
    struct sc_object *object = sc_object_of(objects, id);
    enum sc_key_state state = sc_key_entry_state(sc_key_table_entry(&objects->table, id));
    if (state == SC_KEY_LIVE) {
        sc_key_table_expel(&objects->table, id);
        sc_catalog_leave(objects, id, SPEC_REMOVED_ELSEWHERE, true);
        sc_catalog_settle(objects, id);
    } else if (object->is_leaving && object->put == NULL) {
        object->is_recorded = true; /* its removal here waits for a record, and frees the rest */
        sc_catalog_settle(objects, id);
    }
}

/* ---- Eviction ------------------------------------------------------------------------------- */

/* Returns the tick at which a hold has ended. */
static uint32_t tick_after(const spec_objects *objects, uint64_t ns)
{
    return objects->tick_base + (uint32_t)((ns - objects->open_ns) / SC_OBJECT_TICK_NS) + 1;
}

/* Returns true if the domain stays above its floor without its root. Evicted objects whose pages
 * are not free yet do not count. */
static bool is_above_floor(const spec_objects *objects, const struct sc_object_domain *domain)
{
    return domain->live_pages >=
           domain->pages_min + sc_object_pages(sc_object_of(objects, domain->heap)->bytes);
}

/* Returns the domain whose root is evicted next, or NULL. */
static struct sc_object_domain *domain_next(spec_objects *objects,
                                            const struct sc_object_domain *only)
{
    struct sc_object_domain *best = NULL;
    for (uint32_t i = 0; i < SPEC_DOMAINS_MAX; i++) {
        struct sc_object_domain *domain = &objects->domains[i];
        if (domain->heap == 0 || (only != NULL ? domain != only : !is_above_floor(objects, domain)))
            continue;
        if (best == NULL ||
            sc_object_of(objects, domain->heap)->rank < sc_object_of(objects, best->heap)->rank)
            best = domain;
    }
    return best;
}

/* Returns the tick of the last use, here or by another process. */
static uint32_t tick_used(const spec_objects *objects, uint32_t id, uint32_t now)
{
    const struct sc_key_entry *entry = sc_key_table_entry(&objects->table, id);
    uint32_t own = atomic_load_explicit(&entry->used, memory_order_relaxed);
    uint64_t second = sc_store_used_s(objects->store, sc_object_of(objects, id)->copy);
    uint64_t wall_ns = second * UINT64_C(1000000000);
    if (wall_ns <= objects->open_wall_ns)
        return own;
    uint64_t noted = objects->tick_base + (wall_ns - objects->open_wall_ns) / SC_OBJECT_TICK_NS;
    noted = noted < now ? noted : now;
    return noted > own ? (uint32_t)noted : own;
}

/* Evicts from `only`; NULL: from domains above their floor. */
static uint32_t evict_from(spec_objects *objects, const struct sc_object_domain *only)
{
    uint64_t now_ns = sc_exec_now_ns(objects->exec);
    uint32_t tick = sc_object_tick(objects);
    struct sc_object_domain *domain;
    while ((domain = domain_next(objects, only)) != NULL) {
        uint32_t id = domain->heap;
        struct sc_object *object = sc_object_of(objects, id);
        struct sc_key_entry *entry = sc_key_table_entry(&objects->table, id);
        if (object->rank >> ORDER_BITS > tick) /* all others are held, too */
            return 0;
        uint64_t rank = rank_of(tick_used(objects, id, tick), object->order);
        heap_remove(objects, id);
        if (rank > object->rank) { /* it was used since */
            heap_add(objects, id, rank);
        } else if (object->pins > 0) {
            heap_add(objects, id, rank_of(tick + 1, object->order));
        } else if (!sc_key_table_leave(&objects->table, id, now_ns)) {
            uint64_t held_ns = atomic_load_explicit(&entry->hold_ns, memory_order_relaxed);
            heap_add(objects, id, rank_of(tick_after(objects, held_ns), object->order));
        } else {
            sc_catalog_leave(objects, id, SPEC_REMOVED_EVICTED, true);
            return id;
        }
    }
    return 0;
}

uint32_t sc_catalog_evict_one(spec_objects *objects, const struct sc_object_domain *domain,
                              bool is_limited)
{
    uint32_t id = is_limited ? 0 : evict_from(objects, NULL);
    return id != 0 ? id : evict_from(objects, domain); /* floors are against other domains */
}

uint64_t sc_catalog_evict_ns(const spec_objects *objects)
{
    uint64_t first = UINT64_MAX;
    for (uint32_t i = 0; i < SPEC_DOMAINS_MAX; i++) {
        if (objects->domains[i].heap == 0)
            continue;
        uint64_t tick = sc_object_of(objects, objects->domains[i].heap)->rank >> ORDER_BITS;
        uint64_t ticks = tick > objects->tick_base ? tick - objects->tick_base : 0;
        uint64_t ns = objects->open_ns + ticks * SC_OBJECT_TICK_NS;
        first = ns < first ? ns : first;
    }
    return first;
}
