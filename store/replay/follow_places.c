/* follow_places: opens another process's segments when a record names them. Contract: follow.h.
 * Invariants: a segment is opened once, and stays open. */
#include "store/log/where.h"
#include "store/replay/replay.h"

#include <stdio.h>

static spec_status segment_open(struct sc_store *store, uint32_t number, struct spec_error *reterr)
{
    char path[SC_LIMIT_PATH_BYTES + 64];
    struct sc_store_segment *segment = &store->disk.segments[store->disk.segment_count];
    uint64_t bytes;
    bool keeps = sc_store_keeps_space(store);
    (void)snprintf(path, sizeof(path), "%s/seg-%08" PRIx32, store->dir, number);
    spec_status status =
        sc_io_file_open(store->io, path, SC_IO_OPEN_DIRECT | (keeps ? SC_IO_OPEN_WRITE : 0),
                        &segment->file, reterr);
    if (status != SPEC_OK)
        return status;
    status = sc_io_file_size(store->io, segment->file, &bytes, reterr);
    if (status != SPEC_OK) {
        sc_io_file_close(store->io, segment->file);
        segment->file = NULL;
        return status;
    }
    segment->number = number;
    segment->bytes = sc_store_down(bytes, SC_IO_PAGE_BYTES);
    segment->state = SC_STORE_SEGMENT_READY;
    if (keeps && !sc_store_segment_map(store, store->disk.segment_count))
        sc_store_heir_end(store, "a segment is longer than segment_bytes, or one too many");
    store->disk.segment_count++;
    return SPEC_OK;
}

/* Returns the index of the open segment; segment_max: it cannot be opened. */
static uint64_t segment_at(struct sc_store *store, uint32_t number)
{
    uint64_t index = store->follow.segment_last;
    struct spec_error error = {.struct_size = sizeof(error)};
    if (index < store->disk.segment_count && store->disk.segments[index].number == number)
        return index;
    index = 0;
    while (index < store->disk.segment_count && store->disk.segments[index].number != number)
        index++;
    if (index == store->disk.segment_max)
        return index;
    if (index == store->disk.segment_count && segment_open(store, number, &error) != SPEC_OK) {
        SC_LOG(store->params.log, 1, "a segment's rows are missed: %s", error.text);
        return store->disk.segment_max;
    }
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
