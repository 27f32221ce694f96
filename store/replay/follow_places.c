/* follow_places: opens another process's segments when a record names them. Contract: follow.h.
 * Invariants: a segment is opened once, and stays open. */
#include "store/log/where.h"
#include "store/replay/replay.h"
#include "store/space/claims.h"

#include <errno.h>

/* A member's: a record has told of the segment. */
static uint64_t told_at(struct sc_store *store, uint32_t number)
{
    struct spec_error error = {.struct_size = sizeof(error)};
    spec_status status = SPEC_OK;
    pthread_mutex_lock(&store->disk.lock);
    uint64_t index = sc_store_segment_index(store, number);
    bool is_known = index < store->disk.segment_count;
    bool is_open = is_known && store->disk.segments[index].file != NULL;
    pthread_mutex_unlock(&store->disk.lock);
    if (!is_known && !sc_store_can_store(store)) { /* the log is one writer's so far */
        bool is_mapped = true;
        status = sc_store_segment_follow(store, number, &is_mapped, &error);
        is_known = is_open = status == SPEC_OK && is_mapped;
    }
    if (!is_known)
        sc_store_heir_end(store, "no record tells of a segment, or it does not fit");
    if (is_known && !is_open)
        status = sc_store_segment_told_open(store, index, &error);
    if (status != SPEC_OK) {
        SC_LOG(store->params.log, 1, "a segment's rows are missed: %s", error.text);
        sc_store_heir_end(store, "a segment cannot be opened");
    }
    if (!is_known || status != SPEC_OK)
        return store->disk.segment_max;
    return index;
}

/* Returns the index of the open segment; segment_max: it cannot be opened. */
static uint64_t segment_at(struct sc_store *store, uint32_t number)
{
    uint64_t index = store->follow.segment_last;
    struct spec_error error = {.struct_size = sizeof(error)};
    if (sc_store_is_member(store) && sc_store_keeps_space(store))
        return told_at(store, number);
    if (index < store->disk.segment_count && store->disk.segments[index].number == number)
        return index;
    index = sc_store_segment_index(store, number);
    if (index == store->disk.segment_max)
        return index;
    bool is_mapped = true;
    if (index == store->disk.segment_count &&
        sc_store_segment_follow(store, number, &is_mapped, &error) != SPEC_OK) {
        SC_LOG(store->params.log, 1, "a segment's rows are missed: %s", error.text);
        if (error.sys_errno != ENOENT) /* else a writer removed it, and what it had is dropped */
            sc_store_heir_end(store, "a segment cannot be opened");
        return store->disk.segment_max;
    }
    if (!is_mapped)
        sc_store_heir_end(store, "a segment is longer than segment_bytes, or one too many");
    store->follow.segment_last = index;
    return index;
}

bool sc_store_follow_places(struct sc_store *store, struct sc_store_part *parts, uint32_t count,
                            uint64_t stride)
{
    for (uint32_t i = 0; i < count; i++) {
        uint64_t index = segment_at(store, parts[i].segment);
        uint64_t bytes = sc_store_part_pages(&parts[i], stride) * SC_IO_PAGE_BYTES;
        if (index == store->disk.segment_max ||
            parts[i].offset > store->disk.segments[index].bytes ||
            bytes > store->disk.segments[index].bytes - parts[i].offset)
            return false;
        parts[i].segment = (uint32_t)index;
    }
    return true;
}
