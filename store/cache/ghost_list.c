/* ghost_list: remembers the uses of evicted slabs. Contract: store/cache/ghost_list.h. */
#include "store/cache/ghost_list.h"

#include <stddef.h>

#define WAYS SC_STORE_GHOST_WAYS

/* Maps name 0, which marks a free entry, to 1. */
static uint64_t named(uint64_t name)
{
    return name != 0 ? name : 1;
}

static struct sc_store_ghost_entry *bucket_of(const struct sc_store_ghost *past, uint64_t name)
{
    return past->entries + (name >> 20 & past->mask) * WAYS;
}

bool sc_store_ghost_init(struct sc_store_ghost *past, struct sc_alloc *alloc, uint64_t count)
{
    uint64_t buckets = 1;
    while (buckets * WAYS < count)
        buckets *= 2;
    past->alloc = alloc;
    past->mask = buckets - 1;
    past->entries = sc_alloc_array(alloc, buckets * WAYS, sizeof(*past->entries));
    for (uint64_t i = 0; past->entries != NULL && i < buckets * WAYS; i++)
        past->entries[i] = (struct sc_store_ghost_entry){0};
    return past->entries != NULL;
}

void sc_store_ghost_done(struct sc_store_ghost *past)
{
    if (past->entries != NULL)
        sc_alloc_free(past->alloc, past->entries);
    *past = (struct sc_store_ghost){0};
}

void sc_store_ghost_put(struct sc_store_ghost *past, uint64_t name, const struct sc_use *use)
{
    if (past->entries == NULL)
        return;
    const struct sc_store_ghost_entry entry = {
        .name = named(name), .heat = use->heat, .count = use->count, .importance = use->importance};
    struct sc_store_ghost_entry *bucket = bucket_of(past, entry.name), *least = bucket;
    for (uint32_t i = 0; i < WAYS; i++) {
        if (bucket[i].name == entry.name) {
            bucket[i] = entry;
            return;
        }
        if (bucket[i].heat < least->heat)
            least = &bucket[i];
    }
    if (least->name == 0 || least->heat <= entry.heat)
        *least = entry;
}

void sc_store_ghost_take(struct sc_store_ghost *past, uint64_t name, struct sc_use *use)
{
    if (past->entries == NULL)
        return;
    struct sc_store_ghost_entry *bucket = bucket_of(past, named(name));
    for (uint32_t i = 0; i < WAYS; i++) {
        if (bucket[i].name != named(name))
            continue;
        use->heat = bucket[i].heat;
        use->count = bucket[i].count;
        use->importance = bucket[i].importance;
        bucket[i] = (struct sc_store_ghost_entry){0};
        return;
    }
}
