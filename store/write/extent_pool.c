/* extent_pool: pools of extents being written, and of the writes that carry their windows.
 *
 *   extents   [extent_max]   free list; each has its part of four arrays
 *   writes    [write_max]    free list; taken and returned with a frame of staging
 *
 * Invariants: there are as many writes as frames. Nothing is allocated after open.
 * Threads: any; the space lock.
 * Tests: tests/unit/store/test_store.c, tests/fault/test_store_faults.c */
#include "store/cache/written_frames.h"
#include "store/write/extent.h"
#include "store/write/write_through.h"

#define BEGINNINGS_PART 4u /* 1/4 of the extents is reserved for beginnings of passes */

/* Allocates each array for all extents; extent 0 has the first part of each. */
static bool arrays_take(struct sc_store *store)
{
    struct sc_alloc *alloc = store->params.alloc;
    struct sc_store_extent *first = &store->writing.extents[0];
    uint64_t pieces = store->limits.pieces_max, layers = store->shape.layer_count;
    uint64_t bounce = sc_store_up(store->shape.row_bytes, 64); /* no cache line is shared */
    first->pieces =
        sc_alloc_array(alloc, store->writing.extent_max * pieces, sizeof(*first->pieces));
    first->parts = sc_alloc_array(alloc, store->writing.extent_max * layers, sizeof(*first->parts));
    first->record_parts =
        sc_alloc_array(alloc, store->writing.extent_max * layers, sizeof(*first->record_parts));
    first->bounce = sc_alloc_array(alloc, store->writing.extent_max, bounce);
    if (first->pieces == NULL || first->parts == NULL || first->record_parts == NULL ||
        first->bounce == NULL)
        return false;
    for (uint64_t i = 1; i < store->writing.extent_max; i++) {
        struct sc_store_extent *extent = &store->writing.extents[i];
        extent->pieces = first->pieces + i * pieces;
        extent->parts = first->parts + i * layers;
        extent->record_parts = first->record_parts + i * layers;
        extent->bounce = first->bounce + i * bounce;
    }
    return true;
}

spec_status sc_store_extents_open(struct sc_store *store, struct spec_error *reterr)
{
    struct sc_alloc *alloc = store->params.alloc;
    store->writing.extents =
        sc_alloc_array(alloc, store->writing.extent_max, sizeof(*store->writing.extents));
    store->writing.writes =
        sc_alloc_array(alloc, store->writing.write_max, sizeof(*store->writing.writes));
    if (store->writing.extents == NULL || store->writing.writes == NULL || !arrays_take(store) ||
        !sc_store_write_through_open(store))
        return sc_fail(reterr, SPEC_E_NO_MEMORY, "pool of extents being written");
    for (uint64_t i = 0; i < store->writing.write_max; i++) {
        store->writing.writes[i].next = store->writing.writes_free;
        store->writing.writes_free = &store->writing.writes[i];
    }
    for (uint64_t i = 0; i < store->writing.extent_max; i++) {
        store->writing.extents[i].store = store;
        store->writing.extents[i].next = store->writing.extents_free;
        store->writing.extents_free = &store->writing.extents[i];
    }
    store->writing.extent_free_count = store->writing.extent_max;
    return SPEC_OK;
}

bool sc_store_extents_idle(const struct sc_store *store)
{
    return store->writing.extent_free_count == store->writing.extent_max;
}

void sc_store_extents_close(struct sc_store *store)
{
    struct sc_alloc *alloc = store->params.alloc;
    if (store->writing.extents != NULL) {
        sc_store_write_through_close(store);
        sc_alloc_free(alloc, store->writing.extents[0].bounce);
        sc_alloc_free(alloc, store->writing.extents[0].record_parts);
        sc_alloc_free(alloc, store->writing.extents[0].parts);
        sc_alloc_free(alloc, store->writing.extents[0].pieces);
    }
    sc_alloc_free(alloc, store->writing.extents);
    sc_alloc_free(alloc, store->writing.writes);
    store->writing.extents = NULL;
    store->writing.writes = NULL;
}

/* Leaves the last quarter to beginnings of passes: prefixes, and decoded tokens. */
struct sc_store_extent *sc_store_extent_take(struct sc_store *store, bool is_beginning)
{
    uint64_t leaves = is_beginning ? 0 : store->writing.extent_max / BEGINNINGS_PART;
    pthread_mutex_lock(&store->disk.lock);
    struct sc_store_extent *extent = store->writing.extents_free;
    if (store->writing.extent_free_count <= leaves)
        extent = NULL;
    if (extent != NULL) {
        store->writing.extents_free = extent->next;
        store->writing.extent_free_count--;
    }
    pthread_mutex_unlock(&store->disk.lock);
    return extent;
}

/* Space lock held. */
static void segments_leave(struct sc_store_extent *extent)
{
    for (uint32_t i = 0; extent->is_placed && i < extent->part_count; i++)
        extent->store->disk.segments[extent->parts[i].segment].users--;
    extent->is_placed = false;
}

void sc_store_extent_leave(struct sc_store_extent *extent)
{
    pthread_mutex_lock(&extent->store->disk.lock);
    segments_leave(extent);
    pthread_mutex_unlock(&extent->store->disk.lock);
}

void sc_store_extent_put(struct sc_store_extent *extent)
{
    struct sc_store *store = extent->store;
    pthread_mutex_lock(&store->disk.lock);
    segments_leave(extent);
    extent->is_begun = extent->is_handed = false;
    extent->next = store->writing.extents_free;
    store->writing.extents_free = extent;
    store->writing.extent_free_count++;
    pthread_mutex_unlock(&store->disk.lock);
}

static void frame_put(struct sc_store *store, uint8_t *frame)
{
    if (store->cache != NULL)
        sc_store_cache_put(store->cache, frame);
    else
        sc_staging_put(store->frames, frame);
}

struct sc_store_write *sc_store_write_take(struct sc_store *store, uint64_t leaves)
{
    uint8_t *frame = store->cache != NULL ? sc_store_cache_take(store->cache, leaves)
                                          : sc_staging_take_leaving(store->frames, leaves);
    if (frame == NULL)
        return NULL;
    pthread_mutex_lock(&store->disk.lock);
    struct sc_store_write *write = store->writing.writes_free;
    if (write != NULL)
        store->writing.writes_free = write->next;
    pthread_mutex_unlock(&store->disk.lock);
    SC_ASSERT(store->params.poison, write != NULL); /* one per frame */
    if (write == NULL) {
        frame_put(store, frame);
        return NULL;
    }
    write->is_queued = false;
    write->op =
        (struct sc_io_op){.buffer = frame, .kind = SC_IO_WRITE, .io_class = SC_IO_CLASS_WRITER};
    return write;
}

void sc_store_write_wake(struct sc_store *store)
{
    if (atomic_load(&store->writing.waiters) == 0)
        return;
    atomic_fetch_add(&store->writing.word, 1);
    sc_exec_wake(store->params.exec, &store->writing.word);
}

void sc_store_write_put(struct sc_store *store, struct sc_store_write *write)
{
    frame_put(store, write->op.buffer);
    pthread_mutex_lock(&store->disk.lock);
    write->next = store->writing.writes_free;
    store->writing.writes_free = write;
    pthread_mutex_unlock(&store->disk.lock);
    sc_store_write_wake(store);
}

void sc_store_write_counted(struct sc_store *store, enum sc_store_write_budget_kind kind,
                            uint64_t bytes, uint64_t ops)
{
    sc_store_count(&store->counts.write_bytes, bytes);
    sc_store_count(&store->counts.write_ops, ops);
    sc_store_write_budget_count(store, kind, bytes);
}

void sc_store_extent_fail(struct sc_store_extent *extent, spec_status status)
{
    int32_t none = SPEC_OK;
    (void)atomic_compare_exchange_strong(&extent->status, &none, status);
}

void sc_store_extent_unref(struct sc_store_extent *extent)
{
    struct sc_store *store = extent->store;
    if (atomic_fetch_sub(&extent->pending, 1) != 1)
        return;
    atomic_fetch_add(&store->busy, 1);
    sc_exec_post(store->params.exec, &extent->finish, SC_IO_CLASS_WRITER);
}
