/* segment_record: the record of a segment, before its file is made. The sum of all segments is
 * checked on the state behind which the record stands, so disk_bytes holds for all members.
 * Contract: segment.h. */
#include "store/internal.h"

#define TRIES_MAX 4096u /* others win that often only if something is wrong */

/* Space lock held. Records beyond what is there now are refused by whoever appends them. */
static spec_status number_take(struct sc_store *store, uint64_t index, struct spec_error *reterr)
{
    struct sc_store_segment *segment = &store->disk.segments[index];
    if (sc_store_disk_used(store) > store->disk.bytes_max)
        return sc_fail(reterr, SPEC_E_NO_SPACE, "%s: other processes have used disk_bytes",
                       store->dir);
    if (store->disk.number_next == SC_STORE_SEGMENT_NUMBERS)
        return sc_fail(reterr, SPEC_E_NO_SPACE, "%s: no segment numbers are left", store->dir);
    segment->number = store->disk.number_next++;
    return SPEC_OK;
}

/* Turn held. PENDING: another process was faster. */
static spec_status record_append(struct sc_store *store, const struct sc_store_segment *segment,
                                 struct spec_error *reterr)
{
    struct sc_store_append append;
    pthread_mutex_lock(&store->log.lock);
    sc_store_append_begin(store, &append);
    sc_store_append_frame(&append);
    sc_store_record_encode_segment(&append.writer, segment->number, segment->bytes);
    spec_status status = sc_store_append_commit(store, &append, reterr);
    pthread_mutex_unlock(&store->log.lock);
    return status;
}

spec_status sc_store_segment_record(struct sc_store *store, uint64_t index,
                                    struct spec_error *reterr)
{
    struct sc_store_segment *segment = &store->disk.segments[index];
    spec_status status = SPEC_PENDING;
    sc_store_turn_begin(store);
    for (uint32_t i = 0; status == SPEC_PENDING && i < TRIES_MAX; i++) {
        status = i > 0 ? sc_store_turn_read(store, reterr) : SPEC_OK;
        pthread_mutex_lock(&store->disk.lock);
        if (status == SPEC_OK)
            status = number_take(store, index, reterr);
        struct sc_store_segment copy = *segment;
        pthread_mutex_unlock(&store->disk.lock);
        if (status == SPEC_OK)
            status = record_append(store, &copy, reterr);
        pthread_mutex_lock(&store->disk.lock);
        segment->is_told = status == SPEC_OK;
        if (status != SPEC_OK) /* another member's segment may have the number */
            segment->number = SC_STORE_SEGMENT_NUMBERS;
        pthread_mutex_unlock(&store->disk.lock);
    }
    sc_store_turn_end(store);
    return status == SPEC_PENDING ? SPEC_E_BUSY : status;
}
