/* write_queue: orders queued writes and cancels extents. Contract: store/write/write_queue.h. */
#include "store/write/write_queue.h"

#include "store/space/tier.h"
#include "store/write/extent.h"
#include "store/write/inline_quant.h"

#define IN_FLIGHT_DEFAULT (UINT64_C(8) << 20) /* if io.in_flight_bytes is 0 */
#define IN_FLIGHT_PART    10u /* divisor of writers' frames: in flight; the rest can be cancelled */
#define LOADS_PART        4u  /* divisor of loads' frames: small passes leave these */
#define SMALL_MOST        64u /* small passes at once that find a frame each */
#define SMALL_PART        3u  /* divisor of all frames: at most this part is reserved for them */

/* Reserves a frame for a small pass of each request. A small pass has its frame until its last
 * layer is written. One that waits for the device has all its layers and cannot be cancelled. */
static void leaves_decide(struct sc_store *store)
{
    struct sc_store_write_queue *queue = &store->writing.queue;
    uint64_t count = sc_staging_count(store->frames), small = store->params.config->max_requests;
    small = small < SMALL_MOST ? small : SMALL_MOST;
    small = small < count / SMALL_PART ? small : count / SMALL_PART;
    queue->leaves = count - sc_staging_count_for(store->frames, SC_IO_CLASS_WRITER);
    queue->leaves_small = queue->leaves / LOADS_PART;
    if (queue->leaves < queue->leaves_small + small)
        queue->leaves = queue->leaves_small + small;
}

spec_status sc_store_write_queue_open(struct sc_store *store, struct spec_error *reterr)
{
    struct sc_store_write_queue *queue = &store->writing.queue;
    uint64_t configured = store->params.config->io_in_flight_bytes;
    uint64_t half = (configured > 0 ? configured : IN_FLIGHT_DEFAULT) / 2;
    leaves_decide(store);
    uint64_t part = sc_store_write_bytes(store) / IN_FLIGHT_PART;
    queue->in_flight_max = part < half ? part : half;
    if (!sc_heap_init(&queue->heap, store->params.alloc, store->writing.extent_max))
        return sc_fail(reterr, SPEC_E_NO_MEMORY, "queue of writes");
    pthread_mutex_init(&queue->lock, NULL);
    queue->is_open = true;
    return SPEC_OK;
}

void sc_store_write_queue_close(struct sc_store *store)
{
    struct sc_store_write_queue *queue = &store->writing.queue;
    sc_heap_done(&queue->heap);
    if (queue->is_open)
        pthread_mutex_destroy(&queue->lock);
    queue->is_open = false;
}

static struct sc_store_write_queue *queue_of(const struct sc_store_extent *extent)
{
    return &extent->store->writing.queue;
}

/* ---- Order of extents: lock held ------------------------------------------------------------- */

#define RANK_LATER (UINT64_C(1) << 63) /* lacks layers; RANK_PART: one of several extents */
#define RANK_PART  (UINT64_C(1) << 62)
#define RANK_ORDER 39u /* bits: tokens before it, then its number, which ascends */

/* Ranks extents with all layers first, then beginnings of passes; among equals the oldest. */
static uint64_t rank_of(const struct sc_store_extent *extent)
{
    if (extent->queued.is_whole)
        return (extent->is_part ? RANK_PART : 0) | (extent->copy & (RANK_PART - 1));
    return RANK_LATER | extent->order << RANK_ORDER |
           (extent->copy & ((UINT64_C(1) << RANK_ORDER) - 1));
}

static uint32_t number_of(const struct sc_store_extent *extent)
{
    return (uint32_t)(extent - extent->store->writing.extents);
}

/* ---- Windows: lock held --------------------------------------------------------------------- */

/* Adds to the share of its pass the frames that the extent holds and may lose. */
static void share_add(struct sc_store_extent *extent, int64_t frames)
{
    if (extent->share == NULL || extent->queued.is_whole)
        return;
    atomic_fetch_add_explicit(&extent->share->frames, frames, memory_order_relaxed);
    atomic_fetch_add_explicit(&queue_of(extent)->open_frames, frames, memory_order_relaxed);
}

static void append(struct sc_store_write_queue *queue, struct sc_store_extent *extent,
                   struct sc_store_write *write)
{
    write->next = NULL;
    if (extent->queued.head == NULL) {
        extent->queued.head = write;
        sc_heap_add(&queue->heap, number_of(extent), rank_of(extent));
    } else {
        extent->queued.tail->next = write;
    }
    extent->queued.tail = write;
    extent->queued.count++;
}

static struct sc_store_write *take_first(struct sc_store_write_queue *queue,
                                         struct sc_store_extent *extent)
{
    struct sc_store_write *write = extent->queued.head;
    extent->queued.head = write->next;
    extent->queued.count--;
    share_add(extent, -1);
    if (extent->queued.head == NULL)
        sc_heap_remove(&queue->heap, number_of(extent));
    return write;
}

static void take_all(struct sc_store_write_queue *queue, struct sc_store_extent *extent,
                     struct sc_store_write **list)
{
    while (extent->queued.head != NULL) {
        struct sc_store_write *write = take_first(queue, extent);
        write->next = *list;
        *list = write;
    }
}

/* Frees windows that are never written, and ends their references. No lock held. */
static void give_back(struct sc_store *store, struct sc_store_write *list)
{
    while (list != NULL) {
        struct sc_store_write *next = list->next;
        struct sc_store_extent *extent = list->extent;
        sc_store_write_put(store, list);
        sc_store_extent_unref(extent);
        list = next;
    }
}

uint64_t sc_store_write_frames(const struct sc_store *store)
{
    return sc_staging_count(store->frames) - store->writing.queue.leaves;
}

uint64_t sc_store_write_bytes(const struct sc_store *store)
{
    return sc_store_write_frames(store) * sc_staging_frame_bytes(store->frames);
}

void sc_store_write_queue_begin(struct sc_store_extent *extent)
{
    struct sc_store_write_queue *queue = queue_of(extent);
    pthread_mutex_lock(&queue->lock);
    extent->queued.before = NULL;
    extent->queued.next = queue->open;
    if (queue->open != NULL)
        queue->open->queued.before = extent;
    queue->open = extent;
    pthread_mutex_unlock(&queue->lock);
}

bool sc_store_write_queue_layer_begin(struct sc_store_extent *extent)
{
    struct sc_store_write_queue *queue = queue_of(extent);
    if (extent->share == NULL)
        return true;
    pthread_mutex_lock(&queue->lock);
    bool is_cancelled = extent->queued.is_cancelled;
    extent->queued.is_packing = !is_cancelled;
    queue->packing += !is_cancelled;
    pthread_mutex_unlock(&queue->lock);
    return !is_cancelled;
}

bool sc_store_write_queue_layer_end(struct sc_store_extent *extent, bool is_last)
{
    struct sc_store_write_queue *queue = queue_of(extent);
    if (extent->share == NULL)
        return true;
    pthread_mutex_lock(&queue->lock);
    extent->queued.is_packing = false;
    queue->packing--;
    bool is_cancelled = extent->queued.is_cancelled;
    if (is_last && !is_cancelled) {
        share_add(extent, -(int64_t)extent->queued.count); /* they cannot be cancelled any more */
        extent->queued.is_whole = true;
        if (extent->queued.head != NULL) {
            sc_heap_remove(&queue->heap, number_of(extent));
            sc_heap_add(&queue->heap, number_of(extent), rank_of(extent));
        }
    }
    pthread_mutex_unlock(&queue->lock);
    return !is_cancelled;
}

void sc_store_write_queue_end(struct sc_store_extent *extent)
{
    struct sc_store_write_queue *queue = queue_of(extent);
    struct sc_store_write *list = NULL;
    if (extent->share == NULL)
        return;
    pthread_mutex_lock(&queue->lock);
    if (!extent->queued.is_whole) {
        extent->queued.is_cancelled = true;
        take_all(queue, extent, &list);
    }
    if (extent->queued.next != NULL)
        extent->queued.next->queued.before = extent->queued.before;
    if (extent->queued.before != NULL)
        extent->queued.before->queued.next = extent->queued.next;
    else
        queue->open = extent->queued.next;
    pthread_mutex_unlock(&queue->lock);
    give_back(extent->store, list);
}

bool sc_store_write_queue_is_stuck(const struct sc_store_extent *extent, uint64_t leaves)
{
    const struct sc_store *store = extent->store;
    struct sc_store_write_queue *queue = queue_of(extent);
    uint64_t most = sc_staging_count(store->frames) - leaves;
    pthread_mutex_lock(&queue->lock);
    bool is_stuck = queue->heap.count == 0 && queue->in_flight_bytes == 0 &&
                    queue->packing <= atomic_load(&store->writing.waiters) &&
                    atomic_load(&queue->open_frames) >= (int64_t)most;
    pthread_mutex_unlock(&queue->lock);
    return is_stuck;
}

bool sc_store_extent_has_room(const struct sc_store_extent *extent)
{
    const struct sc_store *store = extent->store;
    struct sc_store_write_queue *queue = queue_of(extent);
    uint64_t count = sc_staging_count(store->frames), free = sc_staging_free(store->frames);
    uint64_t leaves = sc_store_write_queue_leaves(extent);
    uint64_t need = extent->place.stride / sc_staging_frame_bytes(store->frames);
    need += SC_STORE_EXTENT_WINDOWS;
    if (free >= leaves + (need < count - leaves ? need : count - leaves))
        return true;
    pthread_mutex_lock(&queue->lock);
    bool moves = queue->heap.count > 0 || queue->in_flight_bytes > 0;
    pthread_mutex_unlock(&queue->lock);
    return !moves && (int64_t)(count - free) <= atomic_load(&queue->open_frames);
}

bool sc_store_write_queue_is_idle(struct sc_store *store)
{
    struct sc_store_write_queue *queue = &store->writing.queue;
    pthread_mutex_lock(&queue->lock);
    bool is_idle = queue->heap.count == 0 && queue->in_flight_bytes < queue->in_flight_max;
    pthread_mutex_unlock(&queue->lock);
    return is_idle;
}

uint64_t sc_store_write_queue_leaves(const struct sc_store_extent *extent)
{
    const struct sc_store_write_queue *queue = queue_of(extent);
    bool is_small = extent->row_count <= extent->store->params.config->chunk_tokens;
    return extent->share != NULL && !extent->is_part && is_small ? queue->leaves_small
                                                                 : queue->leaves;
}

void sc_store_write_queue_holds(struct sc_store_extent *extent, int64_t frames)
{
    share_add(extent, frames);
}

void sc_store_write_queue_push(struct sc_store_extent *extent, struct sc_store_write **writes,
                               uint64_t count)
{
    struct sc_store_write_queue *queue = queue_of(extent);
    struct sc_store_write *list = NULL;
    pthread_mutex_lock(&queue->lock);
    for (uint64_t i = 0; i < count; i++) {
        writes[i]->is_queued = true;
        if (!extent->queued.is_cancelled) {
            append(queue, extent, writes[i]);
            continue;
        }
        share_add(extent, -1);
        writes[i]->next = list;
        list = writes[i];
    }
    pthread_mutex_unlock(&queue->lock);
    give_back(extent->store, list);
    sc_store_write_queue_feed(extent->store);
}

/* ---- Cancelling ------------------------------------------------------------------------------ */

/* Lock held. Returns the last extent of the pass that holds most frames; NULL if none may be
 * cancelled. If passes hold equally many, takes the extent farthest from its pass's beginning. */
static struct sc_store_extent *victim_find(const struct sc_store_write_queue *queue)
{
    struct sc_store_extent *found = NULL;
    int64_t most = 0;
    for (struct sc_store_extent *at = queue->open; at != NULL; at = at->queued.next) {
        if (at->is_firm || at->queued.is_cancelled || at->queued.is_whole)
            continue;
        int64_t frames = atomic_load_explicit(&at->share->frames, memory_order_relaxed);
        if (found != NULL && (frames < most || (frames == most && at->order < found->order)))
            continue;
        found = at;
        most = frames;
    }
    return found;
}

bool sc_store_write_queue_make_room(struct sc_store_extent *extent)
{
    struct sc_store *store = extent->store;
    struct sc_store_write_queue *queue = queue_of(extent);
    struct sc_store_write *list = NULL, *windows[SC_STORE_EXTENT_WINDOWS];
    uint32_t window_count = 0;
    if (extent->share == NULL)
        return false;
    pthread_mutex_lock(&queue->lock);
    struct sc_store_extent *victim = victim_find(queue);
    if (victim == NULL || victim == extent) {
        pthread_mutex_unlock(&queue->lock);
        return false;
    }
    victim->queued.is_cancelled = true;
    sc_store_extent_fail(victim, SPEC_E_BUSY);
    sc_store_inline_quant_lose(victim->live);
    take_all(queue, victim, &list);
    if (!victim->queued.is_packing) { /* otherwise its producer returns them */
        window_count = victim->window_count;
        for (uint32_t i = 0; i < window_count; i++)
            windows[i] = victim->windows[i].write;
        victim->window_count = 0;
        share_add(victim, -(int64_t)window_count);
    }
    pthread_mutex_unlock(&queue->lock);
    /* The victim may end and be reused from here on. */
    for (uint32_t i = 0; i < window_count; i++)
        sc_store_write_put(store, windows[i]);
    give_back(store, list);
    sc_store_write_wake(store);
    sc_store_count(&store->counts.stage_full, 1);
    return true;
}

void sc_store_write_queue_written(struct sc_store *store, uint64_t bytes)
{
    struct sc_store_write_queue *queue = &store->writing.queue;
    pthread_mutex_lock(&queue->lock);
    queue->in_flight_bytes -= bytes;
    pthread_mutex_unlock(&queue->lock);
}

/* Lock held. Takes windows to submit now; windows of failed extents are put on a list. */
static uint64_t take_some(struct sc_store *store, struct sc_store_write **writes,
                          struct sc_store_write **failed)
{
    struct sc_store_write_queue *queue = &store->writing.queue;
    uint64_t count = 0;
    while (count < SC_STORE_WRITES_AT_ONCE && queue->heap.count > 0 &&
           queue->in_flight_bytes < queue->in_flight_max) {
        struct sc_store_extent *extent = &store->writing.extents[queue->heap.nodes[0].item];
        struct sc_store_write *write = take_first(queue, extent);
        if (atomic_load(&extent->status) != SPEC_OK) {
            write->next = *failed;
            *failed = write;
            continue;
        }
        queue->in_flight_bytes += write->op.bytes;
        extent->due_bytes -= write->op.bytes;
        writes[count++] = write;
    }
    return count;
}

/* Ends windows whose file could not be created. Without feeds, because the next could fail and
 * recurse. */
static void end_unwritten(struct sc_store *store, struct sc_store_write *writes)
{
    uint64_t bytes = 0;
    for (struct sc_store_write *write = writes; write != NULL; write = write->next) {
        write->is_queued = false; /* its completion does not feed */
        bytes += write->op.bytes;
    }
    if (writes != NULL)
        sc_store_write_queue_written(store, bytes);
    sc_store_tier_fail(writes);
}

void sc_store_write_queue_feed(struct sc_store *store)
{
    struct sc_store_write_queue *queue = &store->writing.queue;
    for (;;) {
        struct sc_store_write *writes[SC_STORE_WRITES_AT_ONCE], *failed = NULL;
        uint64_t bytes = 0;
        pthread_mutex_lock(&queue->lock);
        uint64_t count = take_some(store, writes, &failed);
        pthread_mutex_unlock(&queue->lock);
        give_back(store, failed);
        if (count == 0)
            return;
        for (uint64_t i = 0; i < count; i++)
            bytes += writes[i]->op.bytes;
        sc_store_write_counted(store, SC_STORE_WRITTEN_ROWS, bytes, count);
        end_unwritten(store, sc_store_tier_write(store, writes, count));
    }
}
