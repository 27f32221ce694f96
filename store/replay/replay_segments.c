/* replay_segments: replays the records of segments, and of the limit of all (types 15 and 16),
 * which only stores with members have.
 *
 *   writer's open   the directory counts: notes whether the records say the same
 *   member          segments that others made, or will, and their sum
 *
 * Threads: as replay.c. */
#include "store/replay/replay.h"

#define PAGE ((uint64_t)SC_IO_PAGE_BYTES)

static void disk_lock(struct sc_store *store)
{
    if (!sc_store_replay_at_open(store))
        pthread_mutex_lock(&store->disk.lock);
}

static void disk_unlock(struct sc_store *store)
{
    if (!sc_store_replay_at_open(store))
        pthread_mutex_unlock(&store->disk.lock);
}

void sc_store_segment_number_seen(struct sc_store *store, uint32_t number)
{
    disk_lock(store);
    if (number >= store->disk.number_next)
        store->disk.number_next = number + 1;
    disk_unlock(store);
}

/* A writer's open: the segments are those of the directory. */
static void told_at_open(struct sc_store *store, uint32_t number, uint64_t bytes)
{
    uint64_t index = sc_store_segment_find(store, number);
    if (index == store->disk.segment_max || store->disk.segments[index].bytes != bytes)
        store->disk.tells_wrong = true;
    else
        store->disk.segments[index].is_told = true;
}

/* Space lock held. Adds a segment of another member; false: it does not fit the page map. */
static bool told_add(struct sc_store *store, uint32_t number, uint64_t bytes)
{
    struct sc_store_space *map = &store->disk.space;
    uint64_t index = 0;
    while (index < store->disk.segment_count &&
           store->disk.segments[index].state != SC_STORE_SEGMENT_ABSENT)
        index++;
    if (index >= map->segment_max || bytes / PAGE > map->segment_words * 64)
        return false;
    if (index == store->disk.segment_count)
        store->disk.segment_count++;
    store->disk.segments[index] =
        (struct sc_store_segment){.number = number,
                                  .state = SC_STORE_SEGMENT_TOLD,
                                  .bytes = bytes,
                                  .is_told = true,
                                  .told_ns = sc_exec_now_ns(store->params.exec)};
    store->disk.segment_bytes += bytes;
    sc_store_space_add(map, index, bytes / PAGE);
    return true;
}

void sc_store_segment_told(struct sc_store *store, uint32_t number, uint64_t bytes)
{
    sc_store_segment_number_seen(store, number);
    if (sc_store_replay_at_open(store)) {
        told_at_open(store, number, bytes);
        return;
    }
    if (!sc_store_is_member(store) || !sc_store_keeps_space(store))
        return;
    pthread_mutex_lock(&store->disk.lock);
    uint64_t index = sc_store_segment_index(store, number);
    bool is_known = index < store->disk.segment_count;
    if (is_known)
        store->disk.segments[index].is_told = true;
    bool fits = is_known || told_add(store, number, bytes);
    pthread_mutex_unlock(&store->disk.lock);
    if (!fits)
        sc_store_heir_end(store, "a segment is longer than segment_bytes, or one too many");
}

void sc_store_limits_told(struct sc_store *store, uint64_t disk_bytes)
{
    uint64_t own = store->disk.bytes_max;
    if (sc_store_replay_at_open(store)) {
        store->disk.limit_told = disk_bytes;
        return;
    }
    if (!sc_store_is_member(store) || !sc_store_keeps_space(store))
        return;
    store->disk.limit_told = disk_bytes;
    if (own == disk_bytes)
        return;
    pthread_mutex_lock(&store->disk.lock);
    store->disk.bytes_max = disk_bytes;
    pthread_mutex_unlock(&store->disk.lock);
    if (store->params.config->disk_bytes > 0)
        SC_LOG(store->params.log, SPEC_LOG_WARN,
               "%s: disk_bytes of the processes that were here before holds for all: %" PRIu64
               " for this rank, not %" PRIu64,
               store->dir, disk_bytes, own);
}

bool sc_store_segments_differ(struct sc_store *store)
{
    bool differ = store->disk.tells_wrong || store->disk.limit_told == 0 || store->log.seal.is_set;
    if (store->params.config->disk_bytes == 0 && store->disk.limit_told > 0)
        store->disk.bytes_max = store->disk.limit_told; /* half of what was free once stays */
    differ = differ || store->disk.limit_told != store->disk.bytes_max;
    for (uint64_t i = 0; i < store->disk.segment_count; i++)
        differ = differ || (store->disk.segments[i].state == SC_STORE_SEGMENT_READY &&
                            !store->disk.segments[i].is_told);
    return differ;
}
