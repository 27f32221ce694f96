/* checkpoint: rewrites the log without its void records.
 *
 *   log      [head][space 1][extent 1][piece 1][piece 2][drop 2][epoch 1] ... [piece 9] | appends
 *             new    copied  copied if a piece is        while  current one    ^ copied without
 *                            LIVE, or quarantined        2 is in               the log lock; then
 *   log.new  [head][space 1][extent 9][piece 9]          quarantine            the rest under it
 *
 * A compacted extent has ids that its source pieces left free (replay_left.c), so its records are
 * late: after records of larger ids. They are copied in the order of ids, before the pieces that
 * continue them. The next checkpoint omits the source pieces.
 *
 * Payloads are copied byte for byte, in order, under new sequences and a new chain, so that ids,
 * unknown keys and order keep their meaning. Only the newest averages of a live piece are copied. A
 * dropped piece is copied with its drop record while its pages are held, so that they are held
 * after a reopen, too; ROWS_GONE is copied with its extent. The first permuted copy that a later
 * one replaced is copied as REPLACED, without its slots, once its pages are free. It marks where in
 * the log the original pages become free. Others like it are omitted.
 *
 * Invariants: one complete log exists at any time: the new one is synced before the rename. The old
 * one takes every append until then, and stays after an error. The new log is never longer than the
 * old one, except for its head, and log bytes count twice (log_room.c), so there is always room for
 * it. A namespace of which nothing is stored is omitted, with its notes; the head keeps its id from
 * being reused. One that was ever reset stays: its epoch counts for other ranks.
 * Threads: one checkpoint at a time, on an executor's thread or in close. */
#include "store/replay/checkpoint.h"
#include "store/internal.h"
#include "store/log/identity.h"
#include "store/log/log_gap.h"
#include "store/log/log_swap.h"
#include "store/space/claims.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SLACK_BYTES (128ull << 10) /* bytes copied under the log lock at most */
#define ROUNDS_MAX  64u            /* of copying later appends; then BUSY */
#define DEAD_SHARE  8u             /* least dead share of piece records: 1 / 8 */
#define SMALL_SHARE 128u           /* of disk_bytes: growth of the log */
#define SMALL_BYTES (256ull << 10)

/* In the old log: the records of a late extent and of its piece. */
struct late {
    uint64_t extent, offset, bytes;
    struct sc_store_log_end before; /* in front of the first */
    bool is_copied;
};

#define LATE_BYTES_MAX (64ull << 10) /* of both frames; longer ones are not moved */

struct copy {
    struct sc_store *store;
    uint8_t *in, *out, *extent; /* windows; payload of an extent of which no piece was copied yet */
    uint64_t in_offset, in_count;
    uint64_t at;                         /* in the old log: the current frame */
    struct sc_store_log_end before, old; /* in front of it; behind it */
    uint64_t bulk_end;                   /* of the old log at begin */
    struct sc_store_log_beyond beyond;   /* damaged frames of the old log */
    bool is_restored;                    /* the current one was: its payload is in `beyond` */
    uint64_t gap_digest, gap_last;       /* of damaged ranges so far */
    uint64_t extent_id, extent_bytes, extent_next;
    uint64_t piece_last; /* last piece of the extent that was copied; 0: none */
    uint64_t piece_next; /* late_note: above all ids so far */
    uint64_t number;     /* of this attempt */
    bool is_late;        /* the extent is late */
    bool has_late;       /* a copied extent is late */
    bool had_late;       /* an extent of the old log is */
    struct late *lates;  /* [late_count] sorted by extent when complete */
    uint64_t late_count, late_room, late_next;
    struct late late;                    /* whose piece may follow; extent 0: none */
    uint8_t *late_scratch;               /* [LATE_BYTES_MAX] or NULL, as: */
    uint8_t *late_frames;                /* [LATE_BYTES_MAX] or NULL */
    struct sc_store_part *parts;         /* [SC_LIMIT_LAYERS] or NULL */
    struct sc_store_part *section_parts; /* [SC_LIMIT_LAYERS] */
    uint64_t *voids; /* [void_count] ids of copied pieces that are not LIVE, ascending */
    uint64_t void_count, void_room, piece_count;
    struct sc_store_averages averages;     /* of the new log; after the swap, of the old one */
    struct sc_store_segment_list segments; /* of params.shares */
    struct sc_io_file *source;             /* the old log */
    uint64_t seals; /* passed at begin: the old log is the present one until the next */
    struct sc_io_file *file;
    struct sc_io_file *erased;     /* the old log, to be overwritten; or NULL */
    struct sc_store_writer writer; /* writes to `out` */
    struct sc_store_log_end end;   /* of the new log, with what is in `out` */
};

/* ---- Writing -------------------------------------------------------------------------------- */

static spec_status copy_flush(struct copy *copy, struct spec_error *reterr)
{
    uint64_t bytes = copy->writer.used;
    if (bytes == 0)
        return SPEC_OK;
    spec_status status =
        sc_io_file_append(copy->store->io, copy->file, copy->out, bytes, NULL, reterr);
    copy->writer.used = 0;
    sc_store_write_budget_charge(copy->store, SC_STORE_WRITTEN_CHECKPOINTS, bytes);
    return status;
}

static spec_status copy_frame(struct copy *copy, const uint8_t *payload, uint64_t bytes,
                              bool resets, struct spec_error *reterr)
{
    struct sc_store_writer *writer = &copy->writer;
    if (writer->capacity - writer->used < SC_STORE_FRAME_BYTES + bytes) {
        spec_status status = copy_flush(copy, reterr);
        if (status != SPEC_OK)
            return status;
    }
    uint64_t begin = sc_store_frame_begin(writer);
    memcpy(writer->bytes + writer->used, payload, bytes);
    writer->used += bytes;
    sc_store_frame_end(writer, begin, resets, &copy->end);
    return SPEC_OK;
}

static spec_status copy_put(struct copy *copy, const uint8_t *payload, uint64_t bytes,
                            struct spec_error *reterr)
{
    return copy_frame(copy, payload, bytes, false, reterr);
}

/* ---- What is copied -------------------------------------------------------------------------- */

static bool void_note(struct copy *copy, uint64_t id)
{
    if (copy->void_count == copy->void_room) {
        uint64_t room = copy->void_room == 0 ? 1024 : 2 * copy->void_room;
        uint64_t *voids = sc_alloc_array(copy->store->params.alloc, room, sizeof(*voids));
        if (voids == NULL)
            return false;
        if (copy->void_count > 0)
            memcpy(voids, copy->voids, copy->void_count * sizeof(*voids));
        sc_alloc_free(copy->store->params.alloc, copy->voids);
        copy->voids = voids;
        copy->void_room = room;
    }
    uint64_t at = copy->void_count++; /* a compacted piece may be late */
    for (; at > 0 && copy->voids[at - 1] > id; at--)
        copy->voids[at] = copy->voids[at - 1];
    copy->voids[at] = id;
    return true;
}

static bool void_is(const struct copy *copy, uint64_t id)
{
    uint64_t low = 0, high = copy->void_count;
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        if (copy->voids[middle] < id)
            low = middle + 1;
        else
            high = middle;
    }
    return low < copy->void_count && copy->voids[low] == id;
}

/* Returns true if the id after the piece was left free and then dropped, so that its drop record
 * matters. */
static bool left_is_void(const struct copy *copy, const struct sc_store_piece_entry *entry,
                         uint64_t id)
{
    const struct sc_store_table *table = &copy->store->table;
    const struct sc_store_extent_entry *extent = sc_store_table_extent(table, entry->extent);
    const struct sc_store_piece_entry *left = sc_store_table_piece(table, id + 1);
    return extent->leaves_ids && left != NULL && left->extent == 0 &&
           (uint64_t)entry->extent_row + entry->row_count == extent->row_count &&
           atomic_load(&left->state) == SC_STORE_PIECE_DROPPED;
}

/* With late extents, two records may have one id. Returns true if the extent's payload is what the
 * table has. (Segments have other numbers there.) */
static bool extent_is_believed(const struct copy *copy, const struct sc_store_extent_entry *entry)
{
    struct sc_store_record record = {.extent.parts = copy->parts};
    const struct sc_store_record_extent *extent = &record.extent;
    if (copy->parts == NULL)
        return true;
    if (!sc_store_record_peek(copy->extent, copy->extent_bytes, &record) ||
        !sc_store_record_decode(copy->extent, copy->extent_bytes, &record) ||
        extent->copy != entry->copy || extent->space != entry->space ||
        extent->row_count != entry->row_count || extent->stride != entry->stride ||
        extent->row_offset != entry->row_offset || extent->part_count != entry->part_count ||
        (extent->leaves_ids != entry->leaves_ids && record.id + 1 < SC_STORE_IDS))
        return false;
    for (uint32_t i = 0; i < extent->part_count; i++)
        if (extent->parts[i].offset != entry->parts[i].offset)
            return false;
    return true;
}

/* Copies a piece that is LIVE or whose pages are held. That includes one that is void in the table
 * alone, because its drop record could not be written: a reopen makes it live again. keeps: the
 * piece is newer than the new head, which does not count its id, and is copied in any state. */
static spec_status copy_piece(struct copy *copy, uint64_t id, const uint8_t *payload,
                              uint64_t bytes, bool keeps, struct spec_error *reterr)
{
    const struct sc_store_piece_entry *entry = sc_store_table_piece(&copy->store->table, id);
    if (entry == NULL || id <= copy->piece_last)
        return SPEC_OK; /* it was never valid */
    uint32_t state = atomic_load(&entry->state);
    bool is_void = state == SC_STORE_PIECE_QUARANTINED || state == SC_STORE_PIECE_DROPPED;
    if ((state != SC_STORE_PIECE_LIVE && !is_void && !keeps) || copy->extent_id == 0 ||
        entry->extent != copy->extent_id)
        return SPEC_OK;
    struct sc_store_extent_entry *extent =
        sc_store_table_extent(&copy->store->table, copy->extent_id);
    if (copy->extent_bytes > 0 &&
        (extent->copied == copy->number || !extent_is_believed(copy, extent)))
        return SPEC_OK; /* another record of the extent, never valid */
    if (atomic_load(&extent->is_erased))
        return SPEC_OK; /* its tokens leave the log */
    copy->piece_last = id;
    spec_status status = SPEC_OK;
    if (is_void && !keeps && !void_note(copy, id)) /* else its drop record is kept anyway */
        return sc_fail(reterr, SPEC_E_NO_MEMORY, "%" PRIu64 " quarantined pieces", copy->void_room);
    if (copy->extent_bytes > 0)
        status = copy_put(copy, copy->extent, copy->extent_bytes, reterr);
    extent->copied = copy->number;
    copy->extent_bytes = 0;
    copy->has_late = copy->has_late || copy->is_late;
    if (left_is_void(copy, entry, id) && !keeps && !void_note(copy, id + 1))
        return sc_fail(reterr, SPEC_E_NO_MEMORY, "%" PRIu64 " quarantined pieces", copy->void_room);
    if (status == SPEC_OK)
        status = copy_put(copy, payload, bytes, reterr);
    copy->piece_count++;
    return status;
}

/* Returns true for the namespace's current epoch; earlier ones have no effect. */
static bool epoch_is_current(struct copy *copy, const struct sc_store_record *record)
{
    struct sc_store *store = copy->store;
    pthread_mutex_lock(&store->log.lock);
    const struct sc_store_shape *shape = sc_store_space_find(&store->log.spaces, record->id);
    bool current = shape != NULL && record->epoch.epoch == shape->epoch;
    pthread_mutex_unlock(&store->log.lock);
    return current;
}

/* Copies the newest average of a live piece, and later appends. */
static spec_status copy_average(struct copy *copy, uint64_t id, const uint8_t *payload,
                                uint64_t bytes, bool keeps, struct spec_error *reterr)
{
    struct sc_store *store = copy->store;
    if (!keeps) { /* else the log lock may be held */
        pthread_mutex_lock(&store->log.lock);
        keeps = id == 0 ? sc_store_note_is_last(&store->log.spaces, payload, bytes)
                        : sc_store_table_live(&store->table, id) != NULL &&
                              (store->log.averages_are_lost ||
                               sc_store_averages_is_last(&store->log.averages, id, copy->at));
        pthread_mutex_unlock(&store->log.lock);
    }
    if (keeps && id == 0) { /* a note of a namespace */
        copy->averages.all_bytes += SC_STORE_FRAME_BYTES + bytes;
        copy->averages.last_bytes += SC_STORE_FRAME_BYTES + bytes;
        return copy_put(copy, payload, bytes, reterr);
    }
    if (!keeps || id == 0 || id >= SC_STORE_IDS)
        return SPEC_OK;
    if (!sc_store_averages_reserve(&copy->averages, 1, store->params.alloc))
        return sc_fail(reterr, SPEC_E_NO_MEMORY, "places of averages");
    sc_store_averages_note(&copy->averages, id, copy->end.offset, SC_STORE_FRAME_BYTES + bytes);
    return copy_put(copy, payload, bytes, reterr);
}

/* Returns true if the extent's record was copied: without ROWS_GONE its pages would conflict with
 * their new owner. */
static bool is_copied(const struct copy *copy, uint64_t id)
{
    const struct sc_store_extent_entry *extent = sc_store_table_extent(&copy->store->table, id);
    return extent != NULL && extent->copied == copy->number;
}

/* Copies a permuted copy that a later one replaced as REPLACED, unless one of its extent was. */
static spec_status copy_replaced(struct copy *copy, struct sc_store_record *record, uint64_t bytes,
                                 struct spec_error *reterr)
{
    struct sc_store_extent_entry *extent = sc_store_table_extent(&copy->store->table, record->id);
    struct sc_store_writer *writer = &copy->writer;
    if (extent->copied_void == copy->number)
        return SPEC_OK;
    if (writer->capacity - writer->used < SC_STORE_FRAME_BYTES + bytes) {
        spec_status status = copy_flush(copy, reterr);
        if (status != SPEC_OK)
            return status;
    }
    extent->copied_void = copy->number;
    record->extent.is_replaced = true; /* as long as it was */
    uint64_t begin = sc_store_frame_begin(writer);
    sc_store_record_encode_section(writer, record->id, &record->extent);
    sc_store_frame_end(writer, begin, false, &copy->end);
    return SPEC_OK;
}

/* Copies a derived section, or slots of a permuted copy, of an extent that holds sections. */
static spec_status copy_section(struct copy *copy, struct sc_store_record *record,
                                const uint8_t *payload, uint64_t bytes, struct spec_error *reterr)
{
    bool is_slots = record->type == SC_STORE_RECORD_PERMUTATION;
    record->extent.parts = copy->section_parts;
    if (!sc_store_record_decode(payload, bytes, record))
        return SPEC_OK; /* it was never valid */
    if (!is_slots && !record->extent.is_order)
        return copy_put(copy, payload, bytes, reterr);
    uint64_t number = is_slots ? record->permutation.copy : record->extent.copy;
    enum sc_store_permutation_state state =
        sc_store_permutation_state(copy->store, record->id, number);
    if (state == SC_STORE_PERMUTATION_HELD)
        return copy_put(copy, payload, bytes, reterr);
    return state == SC_STORE_PERMUTATION_FREED && !is_slots
               ? copy_replaced(copy, record, bytes, reterr)
               : SPEC_OK;
}

static bool is_erased(const struct copy *copy, uint64_t id)
{
    const struct sc_store_extent_entry *extent = sc_store_table_extent(&copy->store->table, id);
    return extent != NULL && atomic_load(&extent->is_erased);
}

/* ---- Late extents
 * ------------------------------------------------------------------------------ */

/* By extent; of duplicates (an invalid log), by offset. */
static int late_compare(const void *a, const void *b)
{
    const struct late *left = a, *right = b;
    if (left->extent != right->extent)
        return left->extent < right->extent ? -1 : 1;
    return left->offset < right->offset ? -1 : left->offset > right->offset;
}

static bool late_add(struct copy *copy)
{
    if (copy->late_count == copy->late_room) {
        uint64_t room = copy->late_room == 0 ? 256 : 2 * copy->late_room;
        struct late *lates = sc_alloc_array(copy->store->params.alloc, room, sizeof(*lates));
        if (lates == NULL)
            return false;
        if (copy->late_count > 0)
            memcpy(lates, copy->lates, copy->late_count * sizeof(*lates));
        sc_alloc_free(copy->store->params.alloc, copy->lates);
        copy->lates = lates;
        copy->late_room = room;
    }
    copy->lates[copy->late_count++] = copy->late;
    return true;
}

/* Notes late extents among the old log's records. */
static spec_status late_note(struct copy *copy, const struct sc_store_frame *frame,
                             struct spec_error *reterr)
{
    struct sc_store_record record = {0};
    struct late *late = &copy->late;
    if (!sc_store_record_peek(frame->payload, frame->payload_bytes, &record)) {
        late->extent = 0; /* its piece must follow directly */
        return SPEC_OK;
    }
    if (record.type == SC_STORE_RECORD_EXTENT && record.id < copy->extent_next) {
        *late = (struct late){
            .extent = record.id, .offset = copy->at, .bytes = frame->bytes, .before = copy->before};
        return SPEC_OK;
    }
    if (record.type == SC_STORE_RECORD_EXTENT)
        copy->extent_next = record.id + 1;
    bool is_piece = record.type == SC_STORE_RECORD_PIECE;
    const struct sc_store_piece_entry *piece =
        is_piece ? sc_store_table_piece(&copy->store->table, record.id) : NULL;
    bool is_whole = piece != NULL && late->extent != 0 && piece->extent == late->extent &&
                    record.id < copy->piece_next;
    late->bytes += frame->bytes;
    if (is_whole && late->bytes <= LATE_BYTES_MAX && !late_add(copy))
        return sc_fail(reterr, SPEC_E_NO_MEMORY, "%" PRIu64 " merged extents", copy->late_room);
    late->extent = 0;
    if (is_piece && record.id >= copy->piece_next)
        copy->piece_next = record.id + 1;
    return SPEC_OK;
}

/* Returns the entry of the extent's frame at copy->at, or NULL. */
static struct late *late_find(const struct copy *copy, uint64_t extent)
{
    const struct late key = {.extent = extent, .offset = copy->at};
    return copy->late_count == 0
               ? NULL
               : bsearch(&key, copy->lates, copy->late_count, sizeof(key), late_compare);
}

static spec_status copy_piece_or_extent(struct copy *copy, const struct sc_store_record *record,
                                        const uint8_t *payload, uint64_t bytes, bool keeps,
                                        struct spec_error *reterr)
{
    if (record->type == SC_STORE_RECORD_PIECE)
        return copy_piece(copy, record->id, payload, bytes, keeps, reterr);
    memcpy(copy->extent, payload, bytes);
    copy->extent_bytes = bytes;
    copy->extent_id = record->id;
    copy->piece_last = 0;
    copy->is_late = record->id < copy->extent_next;
    copy->extent_next = copy->is_late ? copy->extent_next : record->id + 1;
    return SPEC_OK;
}

/* Reads the frame at `at` of the late extent's, which is restored if it is damaged. */
static bool late_frame(struct copy *copy, const struct late *late, uint64_t at,
                       struct sc_store_log_end *end, struct sc_store_frame *ret_frame)
{
    const uint8_t *bytes = copy->late_frames + at;
    const uint64_t count = late->bytes - at, place = late->offset + at;
    return sc_store_frame_check(bytes, count, place, end, ret_frame) == SC_STORE_FRAME_OK ||
           sc_store_frame_recover(bytes, count, place, NULL, end, copy->late_scratch,
                                  &copy->beyond.searches_left, ret_frame);
}

static spec_status late_copy(struct copy *copy, struct late *late, struct spec_error *reterr)
{
    struct sc_store *store = copy->store;
    struct sc_store_log_end end = late->before;
    struct sc_store_frame frame;
    spec_status status = sc_io_file_pread(store->io, copy->source, copy->late_frames, late->bytes,
                                          late->offset, reterr);
    for (uint64_t at = 0; status == SPEC_OK && at < late->bytes; at += frame.bytes) {
        struct sc_store_record record = {0};
        if (!late_frame(copy, late, at, &end, &frame) ||
            !sc_store_record_peek(frame.payload, frame.payload_bytes, &record))
            return sc_fail(reterr, SPEC_E_CORRUPT, "%s/log is damaged at byte %" PRIu64, store->dir,
                           late->offset);
        status =
            copy_piece_or_extent(copy, &record, frame.payload, frame.payload_bytes, false, reterr);
    }
    late->is_copied = true;
    return status;
}

/* Copies the late extents that belong before this extent; omits this one if it was copied so. */
static spec_status extent_next(struct copy *copy, const struct sc_store_record *record,
                               const uint8_t *payload, uint64_t bytes, bool keeps,
                               struct spec_error *reterr)
{
    struct late *own = late_find(copy, record->id);
    spec_status status = SPEC_OK;
    if (own != NULL) {
        copy->extent_id = 0;
        if (own->is_copied)
            return SPEC_OK;
        own->is_copied = true;
    }
    for (; status == SPEC_OK && copy->late_next < copy->late_count; copy->late_next++) {
        struct late *late = &copy->lates[copy->late_next];
        if (late->extent >= record->id)
            break;
        if (!late->is_copied)
            status = late_copy(copy, late, reterr);
    }
    return status == SPEC_OK ? copy_piece_or_extent(copy, record, payload, bytes, keeps, reterr)
                             : status;
}

/* Returns true if the checkpoint omits the namespace. Takes the log lock. */
static bool space_is_leaving(struct copy *copy, uint64_t id)
{
    struct sc_store *store = copy->store;
    pthread_mutex_lock(&store->log.lock);
    const struct sc_store_shape *shape = sc_store_space_find(&store->log.spaces, id);
    bool leaves = shape == NULL || shape->is_leaving;
    pthread_mutex_unlock(&store->log.lock);
    return leaves;
}

static spec_status copy_record(struct copy *copy, const uint8_t *payload, uint64_t bytes,
                               struct spec_error *reterr)
{
    struct sc_store_record record = {0};
    bool keeps = copy->at >= copy->bulk_end; /* appended since begin */
    if (!sc_store_record_peek(payload, bytes, &record))
        return SPEC_OK;
    switch (record.type) {
    case SC_STORE_RECORD_EXTENT:
        return extent_next(copy, &record, payload, bytes, keeps, reterr);
    case SC_STORE_RECORD_PIECE:
        return copy_piece_or_extent(copy, &record, payload, bytes, keeps, reterr);
    case SC_STORE_RECORD_NAMESPACE:
        keeps = keeps || !space_is_leaving(copy, record.id);
        break;
    case SC_STORE_RECORD_DROP:
        keeps = keeps || void_is(copy, record.id);
        break;
    case SC_STORE_RECORD_PERMUTATION:
    case SC_STORE_RECORD_SECTION:
        if (!keeps && sc_store_section_is_held(copy->store, record.id) &&
            !is_erased(copy, record.id)) {
            copy->extent_id = 0;
            return copy_section(copy, &record, payload, bytes, reterr);
        }
        keeps = keeps && !is_erased(copy, record.id);
        break;
    case SC_STORE_RECORD_SEGMENT:
    case SC_STORE_RECORD_LIMITS: /* earlier ones were listed */
        keeps = keeps && copy->store->params.shares;
        break;
    case SC_STORE_RECORD_ROWS_GONE:
        keeps = keeps || is_copied(copy, record.id);
        break;
    case SC_STORE_RECORD_AVERAGE:
        copy->extent_id = 0;
        return copy_average(copy, record.id, payload, bytes, keeps, reterr);
    case SC_STORE_RECORD_EPOCH:
        /* With `keeps` the log lock may be held. */
        keeps = keeps || (sc_store_record_decode(payload, bytes, &record) &&
                          epoch_is_current(copy, &record));
        copy->extent_id = 0;
        return keeps ? copy_frame(copy, payload, bytes, true, reterr) : SPEC_OK;
    default:
        return SPEC_OK; /* the old head */
    }
    copy->extent_id = 0;
    return keeps ? copy_put(copy, payload, bytes, reterr) : SPEC_OK;
}

static spec_status window_read(struct copy *copy, uint64_t end, struct spec_error *reterr)
{
    struct sc_store *store = copy->store;
    const uint64_t left = end - copy->at;
    copy->in_offset = copy->at;
    copy->in_count = left < SC_STORE_WINDOW_BYTES ? left : SC_STORE_WINDOW_BYTES;
    return sc_io_file_pread(store->io, copy->source, copy->in, copy->in_count, copy->at, reterr);
}

/* Goes on behind the frame at `at`, which is not believed. *ret_frame is valid if it was restored.
 * A range that was damaged since the log was read is found in the end (copy_swap): its records are
 * in use. */
static spec_status copy_beyond(struct copy *copy, uint64_t end, struct sc_store_frame *ret_frame,
                               struct spec_error *reterr)
{
    struct sc_store *store = copy->store;
    const uint64_t from = copy->old.offset;
    enum sc_store_beyond what;
    copy->beyond.restores = true;
    spec_status status = sc_store_log_beyond(store, copy->source, copy->at, end, &copy->old,
                                             &copy->beyond, &what, reterr);
    if (status != SPEC_OK)
        return status;
    if (what == SC_STORE_BEYOND_NONE)
        return sc_fail(reterr, SPEC_E_CORRUPT, "%s/log is damaged at byte %" PRIu64, store->dir,
                       copy->at);
    if (what == SC_STORE_BEYOND_GAP) {
        copy->gap_last = from;
        copy->gap_digest = sc_store_gap_digest(copy->gap_digest, from, copy->old.offset);
    }
    if (what != SC_STORE_BEYOND_RESTORED)
        copy->late.extent = 0; /* its piece must follow directly */
    copy->is_restored = what == SC_STORE_BEYOND_RESTORED;
    *ret_frame = copy->beyond.frame;
    if (!copy->is_restored)
        copy->at = copy->old.offset;
    return SPEC_OK;
}

/* Finds the next frame; reads a window if needed. */
static spec_status frame_next(struct copy *copy, uint64_t end, struct sc_store_frame *ret_frame,
                              struct spec_error *reterr)
{
    bool is_read = false;
    spec_status status = SPEC_OK;
    copy->is_restored = false;
    while (status == SPEC_OK && !copy->is_restored) {
        const uint64_t skip = copy->at - copy->in_offset;
        enum sc_store_frame_state state = SC_STORE_FRAME_SHORT;
        copy->before = copy->old;
        if (skip < copy->in_count)
            state = sc_store_frame_check(copy->in + skip, copy->in_count - skip, copy->at,
                                         &copy->old, ret_frame);
        if (state == SC_STORE_FRAME_OK)
            return SPEC_OK;
        if (state == SC_STORE_FRAME_LOST) {
            copy->at += ret_frame->bytes;
            continue;
        }
        status =
            is_read ? copy_beyond(copy, end, ret_frame, reterr) : window_read(copy, end, reterr);
        is_read = !is_read;
    }
    return status;
}

/* Copies the frames up to `end`; notes: only notes late extents. */
static spec_status copy_range(struct copy *copy, uint64_t end, bool notes,
                              struct spec_error *reterr)
{
    while (copy->old.offset < end) {
        struct sc_store_frame frame;
        spec_status status = frame_next(copy, end, &frame, reterr);
        if (status == SPEC_OK)
            status = notes ? late_note(copy, &frame, reterr)
                           : copy_record(copy, frame.payload, frame.payload_bytes, reterr);
        if (status != SPEC_OK)
            return status;
        copy->at = copy->old.offset;
    }
    return SPEC_OK;
}

static spec_status lates_find(struct copy *copy, struct spec_error *reterr)
{
    struct sc_store *store = copy->store;
    copy->late_frames = sc_alloc(store->params.alloc, LATE_BYTES_MAX);
    copy->late_scratch = sc_alloc(store->params.alloc, LATE_BYTES_MAX);
    copy->parts = sc_alloc_array(store->params.alloc, SC_LIMIT_LAYERS, sizeof(*copy->parts));
    if (copy->late_frames == NULL || copy->late_scratch == NULL || copy->parts == NULL)
        return sc_fail(reterr, SPEC_E_NO_MEMORY, "frames of merged extents");
    spec_status status = copy_range(copy, copy->bulk_end, true, reterr);
    if (copy->late_count > 0)
        qsort(copy->lates, copy->late_count, sizeof(*copy->lates), late_compare);
    copy->at = copy->in_offset = copy->in_count = copy->extent_next = copy->gap_digest = 0;
    copy->beyond.searches_left = SC_STORE_SEARCHES_MAX;
    copy->old = sc_store_log_start(copy->store);
    return status;
}

/* ---- Namespaces ------------------------------------------------------------------------------ */

/* Keeps the namespaces of pieces from *id on that hold pages, or may. Advances *id past some
 * pieces; returns false at the end. Log lock held. */
static bool spaces_stay(struct sc_store *store, uint64_t *id)
{
    const struct sc_store_table *table = &store->table;
    for (uint64_t looks = 0; looks < SC_STORE_TABLE_SLAB; looks++, ++*id) {
        *id = sc_store_table_piece_from(table, *id);
        if (*id >= table->piece_next)
            return false;
        const struct sc_store_piece_entry *piece = sc_store_table_piece(table, *id);
        uint32_t state = atomic_load(&piece->state);
        if (state == SC_STORE_PIECE_NONE || state == SC_STORE_PIECE_FREED || piece->extent == 0)
            continue;
        const struct sc_store_extent_entry *extent = sc_store_table_extent(table, piece->extent);
        struct sc_store_shape *shape = sc_store_space_find(&store->log.spaces, extent->space);
        if (shape != NULL && shape->is_leaving) {
            shape->is_leaving = false;
            shape->was_kept = true;
        }
    }
    return true;
}

/* Decides which namespaces the checkpoint omits: those of which nothing is stored. Nothing is added
 * to them meanwhile, since this process stores in its own alone. */
static void spaces_leave(struct sc_store *store)
{
    struct sc_store_spaces *spaces = &store->log.spaces;
    bool leaves = false, goes_on = true;
    pthread_mutex_lock(&store->log.lock);
    for (uint64_t i = 0; i < spaces->entry_count; i++) {
        struct sc_store_shape *shape = sc_store_space_at(spaces, i);
        shape->was_kept = false;
        shape->is_leaving = sc_store_space_may_leave(shape) && atomic_load(&shape->held) == 0;
        leaves = leaves || shape->is_leaving;
    }
    pthread_mutex_unlock(&store->log.lock);
    for (uint64_t id = 1; leaves && goes_on;) {
        pthread_mutex_lock(&store->log.lock);
        goes_on = spaces_stay(store, &id);
        pthread_mutex_unlock(&store->log.lock);
    }
}

/* Returns true if the log will have gaps in its namespace ids. Log lock held. */
static bool spaces_leave_any(const struct sc_store_spaces *spaces)
{
    for (uint64_t i = 0; i < spaces->entry_count; i++)
        if (sc_store_space_at(spaces, i)->is_leaving || sc_store_space_at(spaces, i)->is_left_out)
            return true;
    return spaces->entry_count + 1 != spaces->next;
}

/* Ends the decision of spaces_leave; has_left: the new log is in use. Log lock held. */
static void spaces_left(struct sc_store_spaces *spaces, bool has_left)
{
    for (uint64_t i = 0; i < spaces->entry_count; i++) {
        struct sc_store_shape *shape = sc_store_space_at(spaces, i);
        if (shape->is_leaving && has_left) {
            shape->is_left_out = true;
            spaces->record_count--;
            spaces->record_bytes -= shape->record_bytes;
        }
        shape->is_leaving = false;
    }
}

/* ---- The two logs ---------------------------------------------------------------------------- */

/* Decides where the bulk ends: the head's ids and the list of segments are of that moment. */
static spec_status snapshot(struct copy *copy, struct sc_store_record_head *ret_head,
                            struct spec_error *reterr)
{
    struct sc_store *store = copy->store;
    copy->writer = (struct sc_store_writer){.bytes = copy->out, .capacity = SC_STORE_WINDOW_BYTES};
    copy->end = copy->old = sc_store_log_start(store);
    sc_store_turn_begin(store);
    sc_store_log_enter(store);
    *ret_head = store->log.journal.head;
    ret_head->number++;
    copy->number = ++store->log.copies;
    ret_head->piece_next = store->table.piece_next;
    ret_head->extent_next = store->table.extent_next;
    if (spaces_leave_any(&store->log.spaces)) /* ids have gaps from now on */
        ret_head->space_next = store->log.spaces.next;
    copy->bulk_end = store->log.journal.end.offset;
    copy->source = store->log.journal.file;
    copy->seals = store->log.seal.passed;
    copy->had_late = store->log.has_late;
    store->log.seal.keeps_old = true;
    store->log.is_copied = true; /* until the end, extents with ids left free wait */
    spec_status status = sc_store_log_new(store, ret_head->number, &copy->file, reterr);
    sc_store_log_leave(store);
    if (status == SPEC_OK && store->params.shares) /* in the same turn */
        status = sc_store_segments_list(store, &copy->segments, reterr);
    sc_store_turn_end(store);
    return status;
}

/* Members find the store's segments and limit in the log. */
static spec_status copy_segments(struct copy *copy, struct spec_error *reterr)
{
    uint8_t bytes[SC_STORE_SEGMENT_BYTES];
    struct sc_store_writer writer = {.bytes = bytes, .capacity = sizeof(bytes)};
    spec_status status = SPEC_OK;
    if (!copy->store->params.shares)
        return SPEC_OK;
    sc_store_record_encode_limits(&writer, copy->store->disk.bytes_max);
    status = copy_put(copy, bytes, writer.used, reterr);
    for (uint64_t i = 0; i < copy->segments.count && status == SPEC_OK; i++) {
        writer.used = 0;
        sc_store_record_encode_segment(&writer, copy->segments.list[i].number,
                                       copy->segments.list[i].bytes);
        status = copy_put(copy, bytes, writer.used, reterr);
    }
    return status;
}

static spec_status copy_begin(struct copy *copy, struct sc_store_record_head *ret_head,
                              struct spec_error *reterr)
{
    struct sc_store *store = copy->store;
    copy->in = sc_alloc(store->params.alloc, SC_STORE_WINDOW_BYTES);
    copy->out = sc_alloc(store->params.alloc, SC_STORE_WINDOW_BYTES);
    copy->extent = sc_alloc(store->params.alloc, SC_STORE_PAYLOAD_BYTES_MAX);
    copy->section_parts =
        sc_alloc_array(store->params.alloc, SC_LIMIT_LAYERS, sizeof(*copy->section_parts));
    if (copy->in == NULL || copy->out == NULL || copy->extent == NULL ||
        copy->section_parts == NULL)
        return sc_fail(reterr, SPEC_E_NO_MEMORY, "a checkpoint's buffers");
    spec_status status = sc_store_is_ours(store, reterr);
    if (status == SPEC_OK && !sc_store_is_member(store)) /* others may store in any of them */
        spaces_leave(store);
    if (status == SPEC_OK)
        status = snapshot(copy, ret_head, reterr);
    if (status != SPEC_OK)
        return status;
    if (copy->had_late)
        status = lates_find(copy, reterr);
    if (status != SPEC_OK)
        return status;
    uint64_t frame = sc_store_frame_begin(&copy->writer);
    sc_store_record_encode_head(&copy->writer, ret_head);
    sc_store_frame_end(&copy->writer, frame, false, &copy->end);
    return copy_segments(copy, reterr);
}
/* Copies without the lock until little is left. On SPEC_OK the log lock is held. */
static spec_status copy_bulk(struct copy *copy, struct spec_error *reterr)
{
    struct sc_store *store = copy->store;
    uint64_t end = copy->bulk_end;
    spec_status status = SPEC_OK;
    for (uint32_t round = 0; round < ROUNDS_MAX; round++) {
        status = copy_range(copy, end, false, reterr);
        if (status == SPEC_OK)
            status = copy_flush(copy, reterr);
        if (status == SPEC_OK)
            status = sc_io_file_sync(store->io, copy->file, reterr);
        if (status != SPEC_OK)
            return status;
        sc_store_log_enter(store);
        end = store->log.journal.end.offset;
        bool is_over = copy->seals != store->log.seal.passed;
        if (is_over || end - copy->at <= SLACK_BYTES)
            return SPEC_OK;
        sc_store_log_leave(store);
    }
    return sc_fail(reterr, SPEC_E_BUSY, "%s/log grows faster than it is copied", store->dir);
}

/* Copies what was appended meanwhile. Log lock held. */
static spec_status copy_rest(struct copy *copy, struct spec_error *reterr)
{
    struct sc_store *store = copy->store;
    const struct sc_store_journal *journal = &store->log.journal;
    if (copy->seals != store->log.seal.passed)
        return sc_fail(reterr, SPEC_E_BUSY, "%s/log: another process has written it anew",
                       store->dir);
    spec_status status = copy_range(copy, journal->end.offset, false, reterr);
    bool came = copy->writer.used > 0;
    if (status == SPEC_OK && copy->gap_digest != journal->gap_digest)
        status = sc_fail(reterr, SPEC_E_CORRUPT,
                         "%s/log is damaged at byte %" PRIu64 " or before since it was read",
                         store->dir, copy->gap_last);
    if (status == SPEC_OK)
        status = copy_flush(copy, reterr);
    if (status == SPEC_OK && came)
        status = sc_io_file_sync(store->io, copy->file, reterr);
    return status;
}

/* Copies the rest and replaces the log. Log lock held. */
static spec_status copy_swap(struct copy *copy, const struct sc_store_record_head *head,
                             struct spec_error *reterr)
{
    struct sc_store *store = copy->store;
    struct sc_store_journal *journal = &store->log.journal;
    spec_status status;
    do {
        status = copy_rest(copy, reterr);
        if (status == SPEC_OK && sc_store_is_member(store))
            status = sc_store_seal_append(store, copy->file, &copy->end, copy->piece_count, head,
                                          reterr);
    } while (sc_store_log_again(store, &status, reterr));
    if (status != SPEC_OK)
        return status;
    struct sc_store_log_next next = {.file = copy->file, .end = copy->end, .head = *head};
    status = sc_store_log_swap(store, &next, reterr);
    copy->file = next.file;
    if (status != SPEC_OK)
        return status;
    if (store->log.seal.is_set)
        store->log.seal.passed++;
    store->log.seal.is_set = false;
    store->log.averages_are_lost = false;
    journal->pieces_read = copy->piece_count;
    struct sc_store_averages averages = store->log.averages;
    store->log.averages = copy->averages;
    copy->averages = averages;
    store->log.has_late = copy->has_late;
    return SPEC_OK;
}

static void copy_free(struct copy *copy)
{
    struct sc_alloc *alloc = copy->store->params.alloc;
    if (copy->file != NULL) /* the failed new log, or the replaced old one */
        sc_io_file_close(copy->store->io, copy->file);
    if (copy->erased != NULL)
        sc_io_file_close(copy->store->io, copy->erased);
    sc_store_log_beyond_done(copy->store, &copy->beyond);
    sc_store_averages_done(&copy->averages, alloc);
    sc_store_turn_begin(copy->store);
    sc_store_seal_old_close(copy->store);
    sc_store_turn_end(copy->store);
    sc_alloc_free(alloc, copy->segments.list);
    sc_alloc_free(alloc, copy->voids);
    sc_alloc_free(alloc, copy->lates);
    sc_alloc_free(alloc, copy->parts);
    sc_alloc_free(alloc, copy->section_parts);
    sc_alloc_free(alloc, copy->late_frames);
    sc_alloc_free(alloc, copy->late_scratch);
    sc_alloc_free(alloc, copy->extent);
    sc_alloc_free(alloc, copy->out);
    sc_alloc_free(alloc, copy->in);
}

static spec_status copy_run(struct sc_store *store, bool erases, struct spec_error *reterr)
{
    struct copy copy = {.store = store, .beyond.searches_left = SC_STORE_SEARCHES_MAX};
    struct sc_store_record_head head;
    if (!sc_store_can_store(store))
        return sc_fail(reterr, SPEC_E_UNSUPPORTED, "a checkpoint is the writer's");
    if (store->log.is_beaten)
        return sc_fail(reterr, SPEC_E_IO, "%s/log: another process appended to it", store->dir);
    spec_status status = copy_begin(&copy, &head, reterr);
    if (status == SPEC_OK && erases)
        status = sc_store_log_open_old(store, &copy.erased, reterr);
    if (status == SPEC_OK)
        status = copy_bulk(&copy, reterr);
    if (status == SPEC_OK) {
        status = copy_swap(&copy, &head, reterr);
        sc_store_log_leave(store);
    }
    sc_store_log_enter(store);
    store->log.is_copied = false;
    spaces_left(&store->log.spaces, status == SPEC_OK);
    bool is_sealed = store->log.seal.is_set; /* and the file has its first name still */
    sc_store_log_leave(store);
    if (status != SPEC_OK && copy.file != NULL && !is_sealed &&
        sc_store_is_ours(store, NULL) == SPEC_OK)
        sc_store_log_new_remove(store, head.number);
    if (status == SPEC_OK && sc_store_is_member(store))
        sc_store_log_new_remove_old(store); /* of members that were ended within one */
    spec_status erased = SPEC_OK;
    if (erases && status == SPEC_OK)
        erased = sc_store_log_zero(store, copy.erased, copy.in, SC_STORE_WINDOW_BYTES, reterr);
    if (status == SPEC_OK) {
        sc_store_count(&store->counts.checkpoints, 1);
        SC_LOG(store->params.log, 3,
               "%s/log: checkpoint %" PRIu64 ", %" PRIu64 " bytes of %" PRIu64, store->dir,
               head.number, copy.end.offset, copy.at);
    } else {
        pthread_mutex_lock(&store->log.lock);
        store->log.journal.retry_ns = sc_exec_now_ns(store->params.exec) + SC_STORE_RETRY_NS;
        pthread_mutex_unlock(&store->log.lock);
    }
    copy_free(&copy);
    return status == SPEC_OK ? erased : status;
}

static spec_status checkpoint_run(struct sc_store *store, bool erases, struct spec_error *reterr)
{
    struct sc_io_file *file = NULL;
    spec_status status = sc_store_log_new_lock(store, &file, reterr);
    if (status == SPEC_OK)
        status = copy_run(store, erases, reterr);
    if (file != NULL)
        sc_io_file_close(store->io, file);
    return status;
}

spec_status sc_store_checkpoint(struct sc_store *store, struct spec_error *reterr)
{
    return checkpoint_run(store, false, reterr);
}

spec_status sc_store_checkpoint_erase(struct sc_store *store, struct spec_error *reterr)
{
    return checkpoint_run(store, true, reterr);
}

/* ---- When ------------------------------------------------------------------------------------ */

/* Returns true if replaced averages are a large part of the log. Log lock held. */
static bool averages_are_stale(const struct sc_store *store)
{
    uint64_t stale = store->log.averages.all_bytes - store->log.averages.last_bytes;
    return stale > 0 && stale >= store->log.journal.end.offset / DEAD_SHARE;
}

bool sc_store_checkpoint_due(struct sc_store *store)
{
    const struct sc_store_journal *journal = &store->log.journal;
    uint64_t small = store->disk.bytes_max / SMALL_SHARE;
    small = small > SMALL_BYTES ? small : SMALL_BYTES;
    uint64_t step = store->params.config->checkpoint_bytes;
    step = step < small ? step : small;
    if (!sc_store_can_store(store))
        return false;
    pthread_mutex_lock(&store->log.lock);
    uint64_t grown = journal->end.offset - journal->kept_bytes, count = sc_store_log_pieces(store);
    bool grew = grown >= step && grown >= journal->kept_bytes;
    bool is_stale = averages_are_stale(store);
    bool is_broken = store->log.is_broken, is_beaten = store->log.is_beaten;
    uint64_t dead_count;
    (void)sc_store_spaces_dead(&store->log.spaces, &dead_count);
    bool is_crowded = store->log.spaces.record_count >= SC_STORE_SPACES_MAX / 4 * 3 &&
                      dead_count >= SC_STORE_SPACES_MAX / 16;
    bool waits = sc_exec_now_ns(store->params.exec) < journal->retry_ns;
    pthread_mutex_unlock(&store->log.lock);
    uint64_t live = sc_store_counted(&store->counts.piece_count);
    bool is_void = count > live && (count - live) * DEAD_SHARE >= count;
    if (waits || is_beaten)
        return false;
    bool is_wanted = grew && (is_void || is_stale) && sc_store_write_budget_wait_ns(store) == 0;
    return is_broken || is_wanted || is_crowded || sc_store_log_is_tight(store);
}

static uint64_t pieces_kept(const struct sc_store *store)
{
    uint64_t count = 0;
    const struct sc_store_table *table = &store->table;
    for (uint64_t id = 1; (id = sc_store_table_piece_from(table, id)) < table->piece_next; id++) {
        const struct sc_store_piece_entry *entry = sc_store_table_piece(table, id);
        uint32_t state = atomic_load(&entry->state);
        count += state == SC_STORE_PIECE_LIVE || state == SC_STORE_PIECE_QUARANTINED;
    }
    return count;
}

void sc_store_checkpoint_close(struct sc_store *store)
{
    struct sc_store_journal *journal = &store->log.journal;
    struct spec_error error = {.struct_size = sizeof(error)};
    spec_status status = SPEC_OK;
    if (!sc_store_can_store(store) || journal->end.offset == journal->synced_end)
        return;
    (void)sc_store_quarantine_release(store, sc_exec_now_ns(store->params.exec));
    uint64_t count = sc_store_log_pieces(store), kept = pieces_kept(store);
    uint64_t dead_count, dead_bytes = sc_store_spaces_dead(&store->log.spaces, &dead_count);
    bool is_wanted = (count > kept && (count - kept) * DEAD_SHARE >= count) ||
                     dead_bytes * DEAD_SHARE >= journal->end.offset || averages_are_stale(store);
    if (is_wanted && sc_store_write_budget_wait_ns(store) == 0)
        status = sc_store_checkpoint(store, &error);
    else
        status = sc_io_file_sync(store->io, journal->file, &error);
    if (status != SPEC_OK)
        SC_LOG(store->params.log, 1, "%s/log keeps what is void: %s", store->dir, error.text);
}
