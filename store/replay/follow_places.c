/* follow_places: opens another process's segments when a record names them. Contract: follow.h.
 * Invariants: a segment is opened once, and stays open. */
#include "store/log/where.h"
#include "store/replay/replay.h"

#include <errno.h>

/* Returns the index of the open segment; segment_max: it cannot be opened. */
static uint64_t segment_at(struct sc_store *store, uint32_t number)
{
    uint64_t index = store->follow.segment_last;
    struct spec_error error = {.struct_size = sizeof(error)};
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
