/* written_frames: indexes the bytes that frames still hold. Contract: store/cache/written_frames.h.
 *
 *   entries   [frames]     one per frame, in the order of the pool's memory
 *   heads     [a power of two] -> entries whose first byte is in one block of a copy */
#include "store/cache/written_frames.h"

#include <pthread.h>
#include <string.h>

struct sc_store_cache_entry {
    struct sc_store_cache_entry *next;
    uint64_t copy;                     /* 0: no entry */
    uint64_t at, bytes;
    uint64_t ticket;   /* from sc_staging_keep */
    uint32_t pins;     /* readers; a pinned frame is not in the pool */
    bool is_out;       /* the writer has the frame */
    bool is_forgotten; /* not found any more, but still out or pinned */
};

struct sc_store_cache {
    /* Set by open, constant after. */
    struct sc_alloc *alloc;
    struct sc_staging *frames;
    uint64_t block_bytes, count, head_mask;

    pthread_mutex_t lock; /* rank 55 */
    struct sc_store_cache_entry *entries, **heads;
};

/* ---- Entries: lock held ---------------------------------------------------------------------- */

static struct sc_store_cache_entry *entry_of(const struct sc_store_cache *cache,
                                             const uint8_t *frame)
{
    uint64_t offset = (uint64_t)(frame - sc_staging_memory(cache->frames));
    return &cache->entries[offset / sc_staging_frame_bytes(cache->frames)];
}

static uint8_t *frame_of(const struct sc_store_cache *cache,
                         const struct sc_store_cache_entry *entry)
{
    uint64_t i = (uint64_t)(entry - cache->entries);
    return (uint8_t *)(uintptr_t)sc_staging_memory(cache->frames) +
           i * sc_staging_frame_bytes(cache->frames);
}

static struct sc_store_cache_entry **head_of(const struct sc_store_cache *cache, uint64_t copy,
                                             uint64_t block)
{
    uint64_t hash = (copy * UINT64_C(0x9e3779b97f4a7c15) + block) * UINT64_C(0xd6e8feb86659fd93);
    return &cache->heads[(hash >> 32) & cache->head_mask];
}

static void entry_remove(struct sc_store_cache *cache, struct sc_store_cache_entry *entry)
{
    struct sc_store_cache_entry **link =
        head_of(cache, entry->copy, entry->at / cache->block_bytes);
    while (*link != entry)
        link = &(*link)->next;
    *link = entry->next;
    entry->copy = 0;
    entry->is_forgotten = false;
}

/* Finds the entry with this byte: it begins in the byte's block or the one before. */
static struct sc_store_cache_entry *entry_find(const struct sc_store_cache *cache, uint64_t copy,
                                               uint64_t at)
{
    uint64_t block = at / cache->block_bytes;
    for (uint32_t back = 0; back < 2 && back <= block; back++)
        for (struct sc_store_cache_entry *entry = *head_of(cache, copy, block - back);
             entry != NULL; entry = entry->next)
            if (entry->copy == copy && entry->at <= at && at - entry->at < entry->bytes &&
                !entry->is_forgotten)
                return entry;
    return NULL;
}

/* Returns false, and removes the entry, if the frame was reused. */
static bool entry_pin(struct sc_store_cache *cache, struct sc_store_cache_entry *entry)
{
    if (!entry->is_out && entry->pins == 0 &&
        !sc_staging_claim(cache->frames, frame_of(cache, entry), entry->ticket)) {
        entry_remove(cache, entry);
        return false;
    }
    entry->pins++;
    return true;
}

/* Returns the frame to the pool; it is neither out nor pinned. */
static void entry_leave(struct sc_store_cache *cache, struct sc_store_cache_entry *entry)
{
    bool is_wanted = entry->copy != 0 && !entry->is_forgotten;
    if (entry->copy != 0 && entry->is_forgotten)
        entry_remove(cache, entry);
    if (is_wanted)
        entry->ticket = sc_staging_keep(cache->frames, frame_of(cache, entry));
    else
        sc_staging_put(cache->frames, frame_of(cache, entry));
}

static void entry_unpin(struct sc_store_cache *cache, struct sc_store_cache_entry *entry)
{
    if (--entry->pins == 0 && !entry->is_out)
        entry_leave(cache, entry);
}

uint8_t *sc_store_cache_take(struct sc_store_cache *cache, uint64_t leaves)
{
    uint8_t *frame = sc_staging_take_leaving(cache->frames, leaves);
    if (frame == NULL)
        return NULL;
    pthread_mutex_lock(&cache->lock);
    struct sc_store_cache_entry *entry = entry_of(cache, frame);
    if (entry->copy != 0)
        entry_remove(cache, entry);
    entry->is_out = true;
    pthread_mutex_unlock(&cache->lock);
    return frame;
}

void sc_store_cache_enter(struct sc_store_cache *cache, uint8_t *frame, uint64_t copy, uint64_t at,
                          uint64_t bytes)
{
    pthread_mutex_lock(&cache->lock);
    struct sc_store_cache_entry *entry = entry_of(cache, frame);
    struct sc_store_cache_entry **head = head_of(cache, copy, at / cache->block_bytes);
    *entry = (struct sc_store_cache_entry){
        .next = *head, .copy = copy, .at = at, .bytes = bytes, .is_out = true};
    *head = entry;
    pthread_mutex_unlock(&cache->lock);
}

void sc_store_cache_shorten(struct sc_store_cache *cache, uint8_t *frame, uint64_t bytes)
{
    pthread_mutex_lock(&cache->lock);
    struct sc_store_cache_entry *entry = entry_of(cache, frame);
    if (entry->bytes > bytes)
        entry->bytes = bytes;
    pthread_mutex_unlock(&cache->lock);
}

void sc_store_cache_put(struct sc_store_cache *cache, uint8_t *frame)
{
    pthread_mutex_lock(&cache->lock);
    struct sc_store_cache_entry *entry = entry_of(cache, frame);
    entry->is_out = false;
    if (entry->pins == 0)
        entry_leave(cache, entry);
    pthread_mutex_unlock(&cache->lock);
}

/* Copies [at, + bytes), up to the end of the entry with byte `at`. Returns the bytes copied. Lock
 * held, but released while copying. */
static uint64_t entry_copy(struct sc_store_cache *cache, uint64_t copy, uint64_t at, uint64_t bytes,
                           uint8_t *dst)
{
    struct sc_store_cache_entry *entry = entry_find(cache, copy, at);
    if (entry == NULL || !entry_pin(cache, entry))
        return 0;
    uint64_t in = at - entry->at, now = entry->bytes - in < bytes ? entry->bytes - in : bytes;
    pthread_mutex_unlock(&cache->lock);
    memcpy(dst, frame_of(cache, entry) + in, now);
    pthread_mutex_lock(&cache->lock);
    entry_unpin(cache, entry);
    return now;
}

/* Copies entry after entry until one is missing. Returns the bytes copied. */
static uint64_t entries_copy(struct sc_store_cache *cache, uint64_t copy, uint64_t at,
                             uint64_t bytes, uint8_t *dst)
{
    uint64_t done = 0, now = 1;
    for (; done < bytes && now > 0; done += now)
        now = entry_copy(cache, copy, at + done, bytes - done, dst + done);
    return done;
}

const uint8_t *sc_store_cache_get(struct sc_store_cache *cache, uint64_t copy, uint64_t at,
                                  uint64_t bytes, uint8_t *dst,
                                  struct sc_store_cache_entry **ret_pin)
{
    const uint8_t *found = NULL;
    *ret_pin = NULL;
    pthread_mutex_lock(&cache->lock);
    struct sc_store_cache_entry *entry = entry_find(cache, copy, at);
    if (entry != NULL && entry->bytes - (at - entry->at) < bytes) {
        found = entries_copy(cache, copy, at, bytes, dst) == bytes ? dst : NULL;
    } else if (entry != NULL && entry_pin(cache, entry)) {
        found = frame_of(cache, entry) + (at - entry->at);
        *ret_pin = entry;
    }
    pthread_mutex_unlock(&cache->lock);
    return found;
}

void sc_store_cache_edges(struct sc_store_cache *cache, uint64_t copy, uint64_t at, uint64_t bytes,
                          uint8_t *dst, uint64_t *ret_from, uint64_t *ret_to)
{
    pthread_mutex_lock(&cache->lock);
    uint64_t from = entries_copy(cache, copy, at, bytes, dst), to = bytes, start;
    for (; to > from; to = start) {
        const struct sc_store_cache_entry *entry = entry_find(cache, copy, at + to - 1);
        if (entry == NULL)
            break;
        start = entry->at > at + from ? entry->at - at : from;
        if (entry_copy(cache, copy, at + start, to - start, dst + start) == 0)
            break;
    }
    pthread_mutex_unlock(&cache->lock);
    *ret_from = from;
    *ret_to = to;
}

void sc_store_cache_unpin(struct sc_store_cache *cache, struct sc_store_cache_entry *pin)
{
    if (pin == NULL)
        return;
    pthread_mutex_lock(&cache->lock);
    entry_unpin(cache, pin);
    pthread_mutex_unlock(&cache->lock);
}

void sc_store_cache_forget(struct sc_store_cache *cache, uint64_t copy, uint64_t at, uint64_t end)
{
    pthread_mutex_lock(&cache->lock);
    for (uint64_t i = 0; i < cache->count; i++) {
        struct sc_store_cache_entry *entry = &cache->entries[i];
        if (entry->copy != copy || entry->at < at || entry->at + entry->bytes > end)
            continue;
        entry->is_forgotten = true;
        if (entry->is_out || entry->pins > 0)
            continue;
        if (sc_staging_claim(cache->frames, frame_of(cache, entry), entry->ticket))
            entry_leave(cache, entry);
        else
            entry_remove(cache, entry);
    }
    pthread_mutex_unlock(&cache->lock);
}

spec_status sc_store_cache_open(struct sc_alloc *alloc, struct sc_staging *frames,
                                uint64_t block_bytes, struct sc_store_cache **ret_cache,
                                struct spec_error *reterr)
{
    uint64_t count = sc_staging_count(frames), heads = 1;
    while (heads < count)
        heads *= 2;
    struct sc_store_cache *cache = sc_alloc_zero(alloc, sizeof(*cache));
    struct sc_store_cache_entry *entries = sc_alloc_array(alloc, count, sizeof(*entries));
    struct sc_store_cache_entry **by_block = sc_alloc_array(alloc, heads, sizeof(void *));
    if (cache == NULL || entries == NULL || by_block == NULL) {
        sc_alloc_free(alloc, by_block);
        sc_alloc_free(alloc, entries);
        sc_alloc_free(alloc, cache);
        return sc_fail(reterr, SPEC_E_NO_MEMORY, "cache of %" PRIu64 " frames", count);
    }
    *cache = (struct sc_store_cache){.alloc = alloc,
                                     .frames = frames,
                                     .block_bytes = block_bytes,
                                     .count = count,
                                     .head_mask = heads - 1,
                                     .entries = entries,
                                     .heads = by_block};
    pthread_mutex_init(&cache->lock, NULL);
    *ret_cache = cache;
    return SPEC_OK;
}

void sc_store_cache_close(struct sc_store_cache *cache)
{
    if (cache == NULL)
        return;
    struct sc_alloc *alloc = cache->alloc;
    pthread_mutex_destroy(&cache->lock);
    sc_alloc_free(alloc, cache->heads);
    sc_alloc_free(alloc, cache->entries);
    sc_alloc_free(alloc, cache);
}
