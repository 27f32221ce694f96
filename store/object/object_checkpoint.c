/* object_checkpoint: rewrites the log of objects from memory. Contract: object.h.
 *
 *   log      [.......... void and live ..........] | records appended since begin
 *   log.new  [head][domains][objects, in the order of use] | the same records, copied
 *
 * The caller writes what was in the log at begin and still exists. Records appended meanwhile are
 * copied behind it, under new sequences; the last ones under the log lock.
 *
 * A member ends the old log for all others with a seal (store/log/seal.h).
 *
 * Invariants: one complete log exists at any time: the new one is synced before the rename.
 * Threads: one at a time.
 * Tests: tests/unit/store/test_object_log.c */
#include "store/internal.h"
#include "store/log/identity.h"
#include "store/log/log_gap.h"
#include "store/log/log_swap.h"
#include "store/log/record_format.h"
#include "store/object/object_record.h"
#include "store/space/claims.h"

#include <string.h>

#define SLACK_BYTES (128ull << 10) /* bytes copied under the log lock at most */
#define ROUNDS_MAX  64u

struct sc_store_object_copy {
    struct sc_store *store;
    struct sc_store_log_next next;
    struct sc_store_writer writer;
    uint8_t *out, *in;
    struct sc_store_log_end old; /* in the old log, behind what was copied */
    uint64_t at;                 /* the next byte of it; `old` may end before */
    struct sc_io_file *source;   /* the old log */
    struct sc_io_file *lock;     /* a member's (sc_store_log_new_lock); or NULL */
    uint64_t seals;              /* passed when it began */
    struct sc_store_log_beyond beyond;
    struct sc_store_segment_list segments; /* those of a store with members */
    bool is_sealed;            /* the seal names the new log, which has its first name */
    struct sc_io_file *erased; /* the old log, to be overwritten; or NULL */
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

/* Decides which records are copied behind what the caller writes. */
static spec_status copy_snapshot(struct sc_store_object_copy *copy, struct spec_error *reterr)
{
    struct sc_store *store = copy->store;
    sc_store_log_enter(store);
    const struct sc_store_journal *journal = &store->log.journal;
    copy->next.head = journal->head;
    copy->next.head.number++;
    copy->old = journal->end;
    copy->at = journal->file_end;
    if (sc_store_is_member(store)) /* others may append there */
        copy->at = journal->end.offset;
    copy->source = journal->file;
    copy->seals = store->log.seal.passed;
    store->log.seal.keeps_old = true;
    spec_status status = sc_store_log_new(store, copy->next.head.number, &copy->next.file, reterr);
    sc_store_log_leave(store);
    return status;
}

/* Members find the store's segments and limit in the log. */
static spec_status copy_segments(struct sc_store_object_copy *copy, struct spec_error *reterr)
{
    struct sc_store *store = copy->store;
    if (!store->params.shares)
        return SPEC_OK;
    spec_status status = sc_store_segments_list(store, &copy->segments, reterr);
    if (status != SPEC_OK)
        return status;
    uint64_t frame = sc_store_frame_begin(&copy->writer);
    sc_store_record_encode_limits(&copy->writer, store->disk.bytes_max);
    frame_end(copy, frame);
    for (uint64_t i = 0; i < copy->segments.count && status == SPEC_OK; i++) {
        status = copy_room(copy, SC_STORE_SEGMENT_BYTES, reterr);
        frame = sc_store_frame_begin(&copy->writer);
        sc_store_record_encode_segment(&copy->writer, copy->segments.list[i].number,
                                       copy->segments.list[i].bytes);
        frame_end(copy, frame);
    }
    return status;
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
    copy->beyond.searches_left = SC_STORE_SEARCHES_MAX;
    copy->in = sc_alloc(store->params.alloc, SC_STORE_WINDOW_BYTES);
    copy->out = sc_alloc(store->params.alloc, SC_STORE_WINDOW_BYTES);
    if (copy->in == NULL || copy->out == NULL)
        return sc_fail(reterr, SPEC_E_NO_MEMORY, "a checkpoint's buffers");
    spec_status status = sc_store_is_ours(store, reterr);
    if (status == SPEC_OK && store->log.is_beaten)
        status = sc_fail(reterr, SPEC_E_IO, "%s/log: another process appended to it", store->dir);
    if (status == SPEC_OK)
        status = sc_store_log_new_lock(store, &copy->lock, reterr);
    if (status == SPEC_OK)
        status = copy_snapshot(copy, reterr);
    if (status != SPEC_OK)
        return status;
    copy->writer = (struct sc_store_writer){.bytes = copy->out, .capacity = SC_STORE_WINDOW_BYTES};
    copy->next.end = sc_store_log_start(store);
    uint64_t frame = sc_store_frame_begin(&copy->writer);
    sc_store_record_encode_head(&copy->writer, &copy->next.head);
    frame_end(copy, frame);
    return copy_segments(copy, reterr);
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
    struct sc_store_record record = {0};
    bool is_told = sc_store_record_peek(frame->payload, frame->payload_bytes, &record) &&
                   record.type >= SC_STORE_RECORD_SEGMENT;
    if (is_told && (!copy->store->params.shares || record.type == SC_STORE_RECORD_SEAL))
        return SPEC_OK;
    spec_status status = copy_room(copy, frame->bytes, reterr);
    if (status != SPEC_OK)
        return status;
    uint64_t begin = sc_store_frame_begin(&copy->writer);
    (void)sc_store_writer_put(&copy->writer, (const char *)frame->payload, frame->payload_bytes);
    sc_store_frame_end(&copy->writer, begin, is_reset(frame), &copy->next.end);
    return SPEC_OK;
}

/* Goes on behind bytes that no frame was appended in. Lost records were followed as a gap, which
 * ended this process's storing. */
static spec_status copy_beyond(struct sc_store_object_copy *copy, uint64_t end,
                               struct spec_error *reterr)
{
    enum sc_store_beyond what;
    copy->beyond.restores = true;
    spec_status status = sc_store_log_beyond(copy->store, copy->source, copy->at, end, &copy->old,
                                             &copy->beyond, &what, reterr);
    if (status == SPEC_OK && what == SC_STORE_BEYOND_RESTORED)
        status = copy_put(copy, &copy->beyond.frame, reterr);
    else if (status == SPEC_OK && what != SC_STORE_BEYOND_NEXT)
        status = sc_fail(reterr, SPEC_E_CORRUPT,
                         "%s/log is damaged at byte %" PRIu64 ", which was read before",
                         copy->store->dir, copy->at);
    copy->at = copy->old.offset;
    return status;
}

/* Copies what was appended since begin, up to `end`, where a believed frame ends. */
static spec_status copy_since(struct sc_store_object_copy *copy, uint64_t end,
                              struct spec_error *reterr)
{
    struct sc_store *store = copy->store;
    spec_status status = SPEC_OK;
    while (copy->at < end && status == SPEC_OK) {
        const uint64_t from = copy->at;
        uint64_t count = end - from;
        struct sc_store_frame frame;
        enum sc_store_frame_state state = SC_STORE_FRAME_OK;
        count = count < SC_STORE_WINDOW_BYTES ? count : SC_STORE_WINDOW_BYTES;
        status = sc_io_file_pread(store->io, copy->source, copy->in, count, from, reterr);
        while (status == SPEC_OK && copy->at < from + count) {
            const uint64_t used = copy->at - from;
            state =
                sc_store_frame_check(copy->in + used, count - used, copy->at, &copy->old, &frame);
            if (state != SC_STORE_FRAME_OK && state != SC_STORE_FRAME_LOST)
                break;
            copy->at += frame.bytes;
            if (state == SC_STORE_FRAME_OK)
                status = copy_put(copy, &frame, reterr);
        }
        if (status == SPEC_OK && copy->at == from)
            status = copy_beyond(copy, end, reterr);
    }
    return status;
}

/* Log lock held. */
static uint64_t log_end(const struct sc_store *store)
{
    const struct sc_store_journal *journal = &store->log.journal;
    return sc_store_is_member(store) ? journal->end.offset : journal->file_end;
}

/* Copies until little is left. On SPEC_OK the log is entered. */
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
        sc_store_log_enter(store);
        end = log_end(store);
        bool is_over = copy->seals != store->log.seal.passed;
        if (is_over || end <= copy->at + SLACK_BYTES)
            return SPEC_OK;
        sc_store_log_leave(store);
    }
    return sc_fail(reterr, SPEC_E_BUSY, "%s/log grows faster than it is copied", store->dir);
}

/* Log entered. */
static spec_status copy_rest(struct sc_store_object_copy *copy, struct spec_error *reterr)
{
    struct sc_store *store = copy->store;
    const uint64_t from = copy->next.end.offset;
    if (copy->seals != store->log.seal.passed)
        return sc_fail(reterr, SPEC_E_BUSY, "%s/log: another process has written it anew",
                       store->dir);
    spec_status status = copy_since(copy, log_end(store), reterr);
    if (status == SPEC_OK)
        status = copy_flush(copy, reterr);
    if (status == SPEC_OK && copy->next.end.offset != from)
        status = sc_io_file_sync(store->io, copy->next.file, reterr);
    return status;
}

/* The new log tells of all segments: the directory and it say the same. */
static void segments_told(struct sc_store *store)
{
    if (!store->params.shares || sc_store_is_member(store))
        return;
    pthread_mutex_lock(&store->disk.lock);
    for (uint64_t i = 0; i < store->disk.segment_count; i++)
        store->disk.segments[i].is_told = true;
    store->disk.tells_wrong = false;
    store->disk.limit_told = store->disk.bytes_max;
    pthread_mutex_unlock(&store->disk.lock);
}

/* Log entered. */
static spec_status copy_swap(struct sc_store_object_copy *copy, bool erases,
                             struct spec_error *reterr)
{
    struct sc_store *store = copy->store;
    spec_status status;
    do {
        status = copy_rest(copy, reterr);
        if (status == SPEC_OK && sc_store_is_member(store))
            status = sc_store_seal_append(store, copy->next.file, &copy->next.end, 0,
                                          &copy->next.head, reterr);
    } while (sc_store_log_again(store, &status, reterr));
    if (status == SPEC_OK && erases)
        status = sc_store_log_open_old(store, &copy->erased, reterr);
    if (status == SPEC_OK)
        status = sc_store_log_swap(store, &copy->next, reterr);
    if (status != SPEC_OK)
        return status;
    store->log.seal.passed += store->log.seal.is_set;
    store->log.seal.is_set = false;
    return SPEC_OK;
}

spec_status sc_store_objects_copy_end(struct sc_store_object_copy *copy, bool erases,
                                      struct spec_error *reterr)
{
    struct sc_store *store = copy->store;
    spec_status status = copy_bulk(copy, reterr);
    if (status != SPEC_OK)
        return status;
    uint64_t was = store->log.journal.end.offset;
    status = copy_swap(copy, erases, reterr);
    copy->is_sealed = store->log.seal.is_set; /* and the file has its first name still */
    sc_store_log_leave(store);
    if (status != SPEC_OK)
        return status;
    segments_told(store);
    if (sc_store_is_member(store))
        sc_store_log_new_remove_old(store);
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
    if (copy->next.file != NULL && !copy->is_sealed && sc_store_is_ours(store, NULL) == SPEC_OK)
        sc_store_log_new_remove(store, copy->next.head.number);
    sc_store_turn_begin(store);
    sc_store_seal_old_close(store);
    sc_store_turn_end(store);
    if (copy->lock != NULL)
        sc_io_file_close(store->io, copy->lock);
    sc_store_log_beyond_done(store, &copy->beyond);
    sc_alloc_free(store->params.alloc, copy->segments.list);
    sc_alloc_free(store->params.alloc, copy->in);
    sc_alloc_free(store->params.alloc, copy->out);
    sc_alloc_free(store->params.alloc, copy);
}
