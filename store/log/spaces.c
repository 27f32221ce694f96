/* spaces: namespaces by id. Contract: spaces.h. */
#include "store/log/spaces.h"

#define SLAB SC_STORE_SPACES_MAX

static bool slab_reserve(struct sc_store_spaces *spaces, uint64_t slab)
{
    if (slab >= SC_STORE_SPACE_SLABS)
        return false;
    if (atomic_load_explicit(&spaces->slabs[slab], memory_order_relaxed) != NULL)
        return true;
    struct sc_store_shape *made =
        sc_alloc_array(spaces->alloc, SLAB, sizeof(struct sc_store_shape));
    atomic_store_explicit(&spaces->slabs[slab], made, memory_order_release);
    return made != NULL;
}

bool sc_store_spaces_init(struct sc_store_spaces *spaces, struct sc_alloc *alloc)
{
    *spaces = (struct sc_store_spaces){.alloc = alloc, .next = 1};
    return slab_reserve(spaces, 0);
}

void sc_store_spaces_done(struct sc_store_spaces *spaces)
{
    for (uint64_t i = 0; i < SC_STORE_SPACE_SLABS; i++)
        if (spaces->slabs[i] != NULL)
            sc_alloc_free(spaces->alloc, spaces->slabs[i]);
}

struct sc_store_shape *sc_store_space_at(const struct sc_store_spaces *spaces, uint64_t i)
{
    return atomic_load_explicit(&spaces->slabs[i / SLAB], memory_order_acquire) + i % SLAB;
}

struct sc_store_shape *sc_store_space_find(const struct sc_store_spaces *spaces, uint64_t id)
{
    uint64_t low = 0, count = atomic_load_explicit(&spaces->entry_count, memory_order_acquire);
    uint64_t high = id <= count ? id : count; /* ids ascend from 1: index < id */
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        if (sc_store_space_at(spaces, middle)->id < id)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == count)
        return NULL;
    struct sc_store_shape *shape = sc_store_space_at(spaces, low);
    return shape->id == id ? shape : NULL;
}

const struct sc_store_shape *sc_store_space_of(const struct sc_store_spaces *spaces, uint64_t id)
{
    static const struct sc_store_shape NONE;
    const struct sc_store_shape *shape = sc_store_space_find(spaces, id);
    return shape != NULL ? shape : &NONE;
}

bool sc_store_spaces_are_full(const struct sc_store_spaces *spaces)
{
    return spaces->next >= UINT32_MAX ||
           atomic_load(&spaces->entry_count) == (uint64_t)SC_STORE_SPACE_SLABS * SLAB;
}

bool sc_store_spaces_reserve(struct sc_store_spaces *spaces)
{
    return !sc_store_spaces_are_full(spaces) &&
           slab_reserve(spaces, atomic_load(&spaces->entry_count) / SLAB);
}

spec_status sc_store_spaces_take(struct sc_store_spaces *spaces, spec_status full, const char *dir,
                                 struct spec_error *reterr)
{
    if (spaces->record_count >= SC_STORE_SPACES_MAX)
        return sc_fail(reterr, full, "%u namespaces in %s already", SC_STORE_SPACES_MAX, dir);
    if (!sc_store_spaces_reserve(spaces))
        return sc_fail(reterr, SPEC_E_NO_MEMORY, "namespace %" PRIu64 " of %s", spaces->next, dir);
    return SPEC_OK;
}

struct sc_store_shape *sc_store_spaces_add(struct sc_store_spaces *spaces, uint64_t id,
                                           const struct sc_store_shape *shape,
                                           uint64_t record_bytes)
{
    uint64_t at = atomic_load_explicit(&spaces->entry_count, memory_order_relaxed);
    struct sc_store_shape *entry = sc_store_space_at(spaces, at);
    *entry = *shape;
    entry->id = (uint32_t)id;
    entry->record_bytes = record_bytes;
    spaces->next = id + 1;
    spaces->record_count++;
    spaces->record_bytes += record_bytes;
    atomic_store_explicit(&spaces->entry_count, at + 1, memory_order_release);
    return entry;
}

uint64_t sc_store_spaces_dead(const struct sc_store_spaces *spaces, uint64_t *ret_count)
{
    uint64_t bytes = 0, count = 0;
    for (uint64_t i = 0; i < spaces->entry_count; i++) {
        const struct sc_store_shape *shape = sc_store_space_at(spaces, i);
        if (!sc_store_space_may_leave(shape) || shape->was_kept || atomic_load(&shape->held) > 0)
            continue;
        bytes += shape->record_bytes;
        count++;
    }
    *ret_count = count;
    return bytes;
}

void sc_store_spaces_forget(struct sc_store_spaces *spaces)
{
    atomic_store(&spaces->entry_count, 0);
    spaces->record_count = spaces->record_bytes = 0;
    spaces->next = 1;
}
