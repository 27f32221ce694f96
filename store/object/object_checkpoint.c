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
    uint64_t at, sequence, chain; /* in the old log, after what was copied */
};

static spec_status copy_flush(struct sc_store_object_copy *copy, struct spec_error *reterr)
{
    uint64_t bytes = copy->writer.used;
    if (bytes == 0)
        return SPEC_OK;
    spec_status status = sc_io_file_pwrite(copy->store->io, copy->next.file, copy->out, bytes,
                                           copy->next.end, reterr);
    copy->next.end += bytes;
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
    sc_store_frame_end(&copy->writer, frame, ++copy->next.sequence, &copy->next.chain);
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
    if (status == SPEC_OK)
        status = sc_store_log_new(store, &copy->next.file, reterr);
    if (status != SPEC_OK)
        return status;
    copy->writer = (struct sc_store_writer){.bytes = copy->out, .capacity = SC_STORE_WINDOW_BYTES};
    copy->next.chain =
        sc_store_frame_seed(store->store_id, store->params.rank, store->params.rank_count);
    pthread_mutex_lock(&store->log.lock);
    const struct sc_store_journal *journal = &store->log.journal;
    copy->next.head = journal->head;
    copy->next.head.number++;
    copy->at = journal->end;
    copy->sequence = journal->sequence;
    copy->chain = journal->chain;
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

static spec_status copy_since(struct sc_store_object_copy *copy, uint64_t end,
                              struct spec_error *reterr)
{
    struct sc_store *store = copy->store;
    spec_status status = SPEC_OK;
    while (copy->at < end && status == SPEC_OK) {
        uint64_t count = end - copy->at, used = 0, bytes;
        count = count < SC_STORE_WINDOW_BYTES ? count : SC_STORE_WINDOW_BYTES;
        status =
            sc_io_file_pread(store->io, store->log.journal.file, copy->in, count, copy->at, reterr);
        while (status == SPEC_OK && used < count &&
               sc_store_frame_check(copy->in + used, count - used, copy->sequence + 1, &copy->chain,
                                    &bytes) == SC_STORE_FRAME_OK) {
            status = copy_room(copy, bytes, reterr);
            if (status != SPEC_OK)
                break;
            uint64_t frame = sc_store_frame_begin(&copy->writer);
            (void)sc_store_writer_put(&copy->writer,
                                      (const char *)copy->in + used + SC_STORE_FRAME_BYTES,
                                      bytes - SC_STORE_FRAME_BYTES);
            frame_end(copy, frame);
            copy->sequence++;
            used += bytes;
        }
        copy->at += used;
        if (status == SPEC_OK && used == 0)
            status = sc_fail(reterr, SPEC_E_CORRUPT,
                             "%s/log is damaged at byte %" PRIu64 ", which was just written",
                             store->dir, copy->at);
    }
    return status;
}

/* Copies until little is left. On SPEC_OK the log lock is held. */
static spec_status copy_bulk(struct sc_store_object_copy *copy, struct spec_error *reterr)
{
    struct sc_store *store = copy->store;
    uint64_t end = copy->at;
    for (uint32_t round = 0; round < ROUNDS_MAX; round++) {
        spec_status status = copy_since(copy, end, reterr);
        if (status == SPEC_OK)
            status = copy_flush(copy, reterr);
        if (status == SPEC_OK)
            status = sc_io_file_sync(store->io, copy->next.file, reterr);
        if (status != SPEC_OK)
            return status;
        pthread_mutex_lock(&store->log.lock);
        end = store->log.journal.end;
        if (end - copy->at <= SLACK_BYTES)
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
    uint64_t from = copy->at;
    status = copy_since(copy, store->log.journal.end, reterr);
    if (status == SPEC_OK)
        status = copy_flush(copy, reterr);
    if (status == SPEC_OK && copy->at != from)
        status = sc_io_file_sync(store->io, copy->next.file, reterr);
    uint64_t was = store->log.journal.end;
    if (status == SPEC_OK)
        status = sc_store_log_swap(store, &copy->next, reterr);
    pthread_mutex_unlock(&store->log.lock);
    if (status != SPEC_OK)
        return status;
    sc_store_count(&store->counts.checkpoints, 1);
    SC_LOG(store->params.log, SPEC_LOG_DEBUG,
           "%s/log: checkpoint %" PRIu64 ", %" PRIu64 " bytes of %" PRIu64, store->dir,
           copy->next.head.number, copy->next.end, was);
    return erases
               ? sc_store_log_zero(store, copy->next.file, copy->in, SC_STORE_WINDOW_BYTES, reterr)
               : SPEC_OK;
}

void sc_store_objects_copy_free(struct sc_store_object_copy *copy)
{
    if (copy == NULL)
        return;
    struct sc_store *store = copy->store;
    if (copy->next.file != NULL) /* the failed new log, or the old one */
        sc_io_file_close(store->io, copy->next.file);
    if (sc_store_is_ours(store, NULL) == SPEC_OK)
        sc_store_log_new_remove(store);
    sc_alloc_free(store->params.alloc, copy->in);
    sc_alloc_free(store->params.alloc, copy->out);
    sc_alloc_free(store->params.alloc, copy);
}
