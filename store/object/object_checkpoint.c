/* object_checkpoint: rewrites the log of objects from memory. Contract: object.h.
 *
 *   log      [.......... void and live ..........] | records appended since begin
 *   log.new  [head][domains][objects, in the order of use] | the same records, copied
 *
 * The caller writes what was in the log at begin and still exists. Records appended meanwhile are
 * copied behind it, under new sequences; the last ones under the log lock.
 *
 * Invariants: one complete log exists at any time: the new one is synced before the rename.
 * Threads: one at a time.
 * Tests: tests/unit/store/test_object_log.c */
#include "store/internal.h"
#include "store/log/identity.h"
#include "store/log/log_swap.h"
#include "store/log/record_format.h"
#include "store/object/object_record.h"

#include <string.h>

#define SLACK_BYTES (128ull << 10) /* bytes copied under the log lock at most */
#define ROUNDS_MAX  64u

struct sc_store_object_copy {
    struct sc_store *store;
    struct sc_store_log_next next;
    struct sc_store_writer writer;
    uint8_t *out, *in;
    struct sc_store_log_end old; /* in the old log, behind what was copied */
    struct sc_io_file *erased;   /* the old log, to be overwritten; or NULL */
};

static spec_status copy_flush(struct sc_store_object_copy *copy, struct spec_error *reterr)
{
    uint64_t bytes = copy->writer.used;
    if (bytes == 0)
        return SPEC_OK;
    spec_status status =
        sc_io_file_append(copy->store->io, copy->next.file, copy->out, bytes, NULL, reterr);
    copy->writer.used = 0;
    sc_store_write_budget_charge(copy->store, SC_STORE_WRITTEN_CHECKPOINTS, bytes);
    return status;
}

static spec_status copy_room(struct sc_store_object_copy *copy, uint64_t bytes,
                             struct spec_error *reterr)
{
    if (copy->writer.capacity - copy->writer.used >= SC_STORE_FRAME_BYTES + bytes)
        return SPEC_OK;
    return copy_flush(copy, reterr);
}

static void frame_end(struct sc_store_object_copy *copy, uint64_t frame)
{
    sc_store_frame_end(&copy->writer, frame, false, &copy->next.end);
}

spec_status sc_store_objects_copy_begin(struct sc_store *store,
                                        struct sc_store_object_copy **ret_copy,
                                        struct spec_error *reterr)
{
    struct sc_store_object_copy *copy = sc_alloc_zero(store->params.alloc, sizeof(*copy));
    if (copy == NULL)
        return sc_fail(reterr, SPEC_E_NO_MEMORY, "a checkpoint");
    *ret_copy = copy;
    copy->store = store;
    copy->in = sc_alloc(store->params.alloc, SC_STORE_WINDOW_BYTES);
    copy->out = sc_alloc(store->params.alloc, SC_STORE_WINDOW_BYTES);
    if (copy->in == NULL || copy->out == NULL)
        return sc_fail(reterr, SPEC_E_NO_MEMORY, "a checkpoint's buffers");
    spec_status status = sc_store_is_ours(store, reterr);
    if (status == SPEC_OK && store->log.is_beaten)
        status = sc_fail(reterr, SPEC_E_IO, "%s/log: another process appended to it", store->dir);
    if (status == SPEC_OK)
        status = sc_store_log_new(store, 0, &copy->next.file, reterr);
    if (status != SPEC_OK)
        return status;
    copy->writer = (struct sc_store_writer){.bytes = copy->out, .capacity = SC_STORE_WINDOW_BYTES};
    copy->next.end = sc_store_log_start(store);
    pthread_mutex_lock(&store->log.lock);
    const struct sc_store_journal *journal = &store->log.journal;
    copy->next.head = journal->head;
    copy->next.head.number++;
    copy->old = journal->end;
    copy->old.offset = journal->file_end;
    pthread_mutex_unlock(&store->log.lock);
    uint64_t frame = sc_store_frame_begin(&copy->writer);
    sc_store_record_encode_head(&copy->writer, &copy->next.head);
    frame_end(copy, frame);
    return SPEC_OK;
}

spec_status sc_store_objects_copy_domain(struct sc_store_object_copy *copy, uint32_t id,
                                         const uint8_t *identity, uint32_t bytes,
                                         struct spec_error *reterr)
{
    spec_status status = copy_room(copy, 64ull + bytes, reterr);
    if (status != SPEC_OK)
        return status;
    uint64_t frame = sc_store_frame_begin(&copy->writer);
    sc_store_record_encode_domain(&copy->writer, id, identity, bytes);
    frame_end(copy, frame);
    return SPEC_OK;
}

spec_status sc_store_objects_copy_objects(struct sc_store_object_copy *copy,
                                          struct sc_store_object *objects, uint32_t count,
                                          struct spec_error *reterr)
{
    spec_status status = copy_room(copy, SC_STORE_PAYLOAD_BYTES_MAX, reterr);
    if (status != SPEC_OK)
        return status;
    sc_store_object_parts_number(copy->store, objects, count);
    uint64_t frame = sc_store_frame_begin(&copy->writer);
    sc_store_record_encode_objects(&copy->writer, objects, count);
    frame_end(copy, frame);
    return SPEC_OK;
}

/* Returns true for a record that voids some of what is before it. */
static bool is_reset(const struct sc_store_frame *frame)
{
    struct sc_store_record record = {0};
    return sc_store_record_peek(frame->payload, frame->payload_bytes, &record) &&
           (record.type == SC_STORE_RECORD_CLEAR || record.type == SC_STORE_RECORD_REMOVAL);
}

static spec_status copy_put(struct sc_store_object_copy *copy, const struct sc_store_frame *frame,
                            struct spec_error *reterr)
{
    spec_status status = copy_room(copy, frame->bytes, reterr);
    if (status != SPEC_OK)
        return status;
    uint64_t begin = sc_store_frame_begin(&copy->writer);
    (void)sc_store_writer_put(&copy->writer, (const char *)frame->payload, frame->payload_bytes);
    sc_store_frame_end(&copy->writer, begin, is_reset(frame), &copy->next.end);
    return SPEC_OK;
}

/* Copies what this process appended since begin, up to `end`. */
static spec_status copy_since(struct sc_store_object_copy *copy, uint64_t end,
                              struct spec_error *reterr)
{
    struct sc_store *store = copy->store;
    spec_status status = SPEC_OK;
    while (copy->old.offset < end && status == SPEC_OK) {
        const uint64_t from = copy->old.offset;
        uint64_t count = end - from;
        struct sc_store_frame frame;
        count = count < SC_STORE_WINDOW_BYTES ? count : SC_STORE_WINDOW_BYTES;
        status =
            sc_io_file_pread(store->io, store->log.journal.file, copy->in, count, from, reterr);
        for (uint64_t used = 0; status == SPEC_OK && used < count; used += frame.bytes) {
            if (sc_store_frame_check(copy->in + used, count - used, from + used, &copy->old,
                                     &frame) != SC_STORE_FRAME_OK)
                break;
            status = copy_put(copy, &frame, reterr);
        }
        if (status == SPEC_OK && copy->old.offset == from)
            status = sc_fail(reterr, SPEC_E_CORRUPT,
                             "%s/log is damaged at byte %" PRIu64 ", which was just written",
                             store->dir, from);
    }
    return status;
}

/* Copies until little is left. On SPEC_OK the log lock is held. */
static spec_status copy_bulk(struct sc_store_object_copy *copy, struct spec_error *reterr)
{
    struct sc_store *store = copy->store;
    uint64_t end = copy->old.offset;
    for (uint32_t round = 0; round < ROUNDS_MAX; round++) {
        spec_status status = copy_since(copy, end, reterr);
        if (status == SPEC_OK)
            status = copy_flush(copy, reterr);
        if (status == SPEC_OK)
            status = sc_io_file_sync(store->io, copy->next.file, reterr);
        if (status != SPEC_OK)
            return status;
        pthread_mutex_lock(&store->log.lock);
        end = store->log.journal.file_end;
        if (end - copy->old.offset <= SLACK_BYTES)
            return SPEC_OK;
        pthread_mutex_unlock(&store->log.lock);
    }
    return sc_fail(reterr, SPEC_E_BUSY, "%s/log grows faster than it is copied", store->dir);
}

spec_status sc_store_objects_copy_end(struct sc_store_object_copy *copy, bool erases,
                                      struct spec_error *reterr)
{
    struct sc_store *store = copy->store;
    spec_status status = copy_bulk(copy, reterr);
    if (status != SPEC_OK)
        return status;
    uint64_t from = copy->old.offset;
    status = copy_since(copy, store->log.journal.file_end, reterr);
    if (status == SPEC_OK)
        status = copy_flush(copy, reterr);
    if (status == SPEC_OK && copy->old.offset != from)
        status = sc_io_file_sync(store->io, copy->next.file, reterr);
    uint64_t was = store->log.journal.end.offset;
    if (status == SPEC_OK && erases)
        status = sc_store_log_open_old(store, &copy->erased, reterr);
    if (status == SPEC_OK)
        status = sc_store_log_swap(store, &copy->next, reterr);
    pthread_mutex_unlock(&store->log.lock);
    if (status != SPEC_OK)
        return status;
    sc_store_count(&store->counts.checkpoints, 1);
    SC_LOG(store->params.log, SPEC_LOG_DEBUG,
           "%s/log: checkpoint %" PRIu64 ", %" PRIu64 " bytes of %" PRIu64, store->dir,
           copy->next.head.number, copy->next.end.offset, was);
    return erases ? sc_store_log_zero(store, copy->erased, copy->in, SC_STORE_WINDOW_BYTES, reterr)
                  : SPEC_OK;
}

void sc_store_objects_copy_free(struct sc_store_object_copy *copy)
{
    if (copy == NULL)
        return;
    struct sc_store *store = copy->store;
    if (copy->next.file != NULL) /* the failed new log, or the old one */
        sc_io_file_close(store->io, copy->next.file);
    if (copy->erased != NULL)
        sc_io_file_close(store->io, copy->erased);
    if (sc_store_is_ours(store, NULL) == SPEC_OK)
        sc_store_log_new_remove(store, 0);
    sc_alloc_free(store->params.alloc, copy->in);
    sc_alloc_free(store->params.alloc, copy->out);
    sc_alloc_free(store->params.alloc, copy);
}
