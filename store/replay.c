/* Replay of the log: records become the table, the space map and on_piece calls.
 *
 *   scan 1  ids only: which pieces a later record drops (DOOMED), unknown versions
 *   scan 2  namespace -> shapes; extent -> takes its places; piece -> LIVE, on_piece; drop -> free
 *
 * Every number is checked against what stands already: segments that exist, offsets inside them,
 * places nobody has, rows inside the extent. A record that does not fit is not believed: counted,
 * skipped, a miss. Among extents that overlap the earlier one keeps its place, because live extents
 * never overlap in an honest log and the later record is the lie.
 *
 * The pieces of an extent follow its record directly. When another record comes, an extent without
 * a piece gives its places back, as commit would have.
 *
 * Holds: ids are dense; a piece or extent whose record lies still uses up its id, so that later
 * records keep their meaning; nothing on disk changes until the whole log was read.
 * Does not: read segments (rows are verified when they are loaded).
 * Threads: open.
 * Tests: tests/unit/store/test_log.c, test_store.c; tests/fault/test_store_faults.c */
#include "store/internal.h"

#include <string.h>

#define DROPS_PER_WRITE 4096u

struct replay {
    struct sc_store_record record;
    uint64_t extent_open; /* id of the extent whose pieces may follow; 0: none */
    uint64_t extent_rows; /* rows of it that pieces cover so far: they ascend */
    struct sc_store_provenance provenance;
    uint64_t refused_count; /* pieces that get drop records */
    uint64_t refused_first, refused_last;
    bool no_memory;
};

static spec_status version_check(struct sc_store *store, const struct sc_store_record *record,
                                 struct spec_error *reterr)
{
    bool known = record->version == SC_STORE_RECORD_VERSION &&
                 record->type >= SC_STORE_RECORD_NAMESPACE &&
                 record->type <= SC_STORE_RECORD_TYPE_MAX;
    if (known)
        return SPEC_OK;
    return sc_fail(reterr, SPEC_E_VERSION,
                   "%s/log record %" PRIu64 " has type %" PRIu64 " version %" PRIu64
                   ", this build reads types 1 to %u version %u",
                   store->dir, store->journal.sequence + 1, record->type, record->version,
                   (unsigned)SC_STORE_RECORD_TYPE_MAX, SC_STORE_RECORD_VERSION);
}

/* Ids of extents and pieces ascend, with gaps where a checkpoint left records out. */
static bool id_ascends(uint64_t id, uint64_t next)
{
    return id >= next && id < SC_STORE_IDS;
}

/* ---- Scan 1 --------------------------------------------------------------------------------- */

static spec_status on_payload_ids(struct sc_store *store, const uint8_t *payload, uint64_t bytes,
                                  void *user, struct spec_error *reterr)
{
    struct replay *replay = user;
    struct sc_store_record *record = &replay->record;
    struct sc_store_table *table = &store->table;
    if (!sc_store_record_peek(payload, bytes, record))
        return SPEC_OK; /* scan 2 counts it */
    spec_status status = version_check(store, record, reterr);
    if (status != SPEC_OK)
        return status;
    if (record->type == SC_STORE_RECORD_PIECE && id_ascends(record->id, table->piece_next)) {
        table->piece_next = record->id;
        if (!sc_store_table_reserve(table, 1, 0, 0))
            return sc_fail(reterr, SPEC_E_NO_MEMORY, "table of %" PRIu64 " pieces", record->id);
        table->piece_next++;
    }
    struct sc_store_piece_entry *entry = sc_store_table_piece(table, record->id);
    if (record->type == SC_STORE_RECORD_DROP && record->id < table->piece_next && entry != NULL &&
        sc_store_record_decode(payload, bytes, record))
        atomic_store(&entry->state, SC_STORE_PIECE_DOOMED);
    return SPEC_OK;
}

/* ---- Scan 2 --------------------------------------------------------------------------------- */

static void replay_lie(struct sc_store *store, const char *what)
{
    sc_store_count(&store->corrupt_records, 1);
    SC_LOG(store->params.log, 1, "log record %" PRIu64 " is not believed: %s",
           store->journal.sequence + 1, what);
}

/* The first record, and no other. */
static void replay_head(struct sc_store *store, struct replay *replay)
{
    const struct sc_store_record_head *head = &replay->record.head;
    if (store->journal.sequence != 0 || head->piece_next >= SC_STORE_IDS ||
        head->extent_next >= SC_STORE_IDS)
        replay_lie(store, "a log's head");
    else
        store->journal.head = *head;
}

static void replay_space(struct sc_store *store, struct replay *replay)
{
    const struct sc_store_namespace *space = &replay->record.space.space;
    if (replay->record.id != store->space_count + 1 || store->space_count == SC_STORE_SPACES_MAX) {
        replay_lie(store, "namespace id");
        return;
    }
    struct sc_store_shape *shape = &store->spaces[store->space_count++];
    sc_store_shape_set(shape, space);
    shape->id = (uint32_t)store->space_count;
    if (memcmp(shape->digest, store->shape.digest, SC_STORE_HASH_BYTES) == 0 &&
        shape->layer_count == store->shape.layer_count && shape->layout == store->shape.layout &&
        shape->k_row_bytes == store->shape.k_row_bytes && atomic_load(&store->space_id) == 0)
        atomic_store(&store->space_id, shape->id);
}

/* A place that only quarantined pieces hold: the clock was set back since it was given again. */
static bool replay_take(struct sc_store *store, uint64_t index, uint64_t page, uint64_t pages)
{
    return sc_store_space_take_at(&store->space, index, page, pages) ||
           (sc_store_quarantine_release(store, UINT64_MAX) > 0 &&
            sc_store_space_take_at(&store->space, index, page, pages));
}

/* Takes the places of parts[0 .. count); their segment numbers become indices. */
static bool replay_places(struct sc_store *store, struct sc_store_part *parts, uint32_t count,
                          uint64_t stride)
{
    for (uint32_t i = 0; i < count; i++) { /* a number is never used again, file or no file */
        if (parts[i].segment >= store->number_next)
            store->number_next = parts[i].segment + 1;
    }
    for (uint32_t i = 0; i < count; i++) {
        uint64_t index = sc_store_segment_find(store, parts[i].segment);
        uint64_t pages = sc_store_part_pages(&parts[i], stride);
        if (index == store->segment_max ||
            !replay_take(store, index, parts[i].offset / SC_IO_PAGE_BYTES, pages)) {
            sc_store_place_free(store, parts, i, stride, 0);
            return false;
        }
        parts[i].segment = (uint32_t)index;
        store->extent_bytes += pages * SC_IO_PAGE_BYTES;
    }
    return true;
}

static bool extent_fits(const struct sc_store_record_extent *extent,
                        const struct sc_store_shape *shape)
{
    const struct sc_store_part *last = &extent->parts[extent->part_count - 1];
    uint64_t tag_bytes = extent->row_count * shape->tags_per_row * 8;
    return extent->row_offset >= tag_bytes && extent->stride >= extent->row_offset &&
           extent->stride - extent->row_offset >= extent->row_count * shape->row_bytes &&
           last->layer_first + last->layer_count == shape->layer_count;
}

static void replay_extent(struct sc_store *store, struct replay *replay)
{
    const struct sc_store_record_extent *extent = &replay->record.extent;
    struct sc_store_table *table = &store->table;
    if (!sc_store_table_reserve(table, 0, 1, extent->part_count)) {
        replay->no_memory = true;
        return;
    }
    if (extent->space > store->space_count ||
        !extent_fits(extent, &store->spaces[extent->space - 1])) {
        replay_lie(store, "extent's geometry");
        return;
    }
    if (!replay_places(store, extent->parts, extent->part_count, extent->stride)) {
        replay_lie(store, "extent's place is outside or taken");
        return;
    }
    struct sc_store_extent_entry *entry = sc_store_table_extent(table, replay->record.id);
    *entry =
        (struct sc_store_extent_entry){.parts = sc_store_table_parts(table, extent->part_count),
                                       .row_offset = extent->row_offset,
                                       .stride = extent->stride,
                                       .part_count = extent->part_count,
                                       .row_count = (uint32_t)extent->row_count,
                                       .space = (uint32_t)extent->space};
    memcpy(entry->parts, extent->parts, extent->part_count * sizeof(*extent->parts));
    replay->extent_open = replay->record.id;
    replay->extent_rows = 0;
    replay->provenance = extent->provenance;
    sc_store_count(&store->extent_count, 1);
}

/* Its last piece was read: rows that none holds give their pages back. */
static void replay_extent_end(struct sc_store *store, uint64_t id)
{
    if (sc_store_table_extent(&store->table, id)->live_count == 0)
        atomic_fetch_sub_explicit(&store->extent_count, 1, memory_order_relaxed);
    sc_store_extent_trim(store, id);
}

/* A piece that is not believed, for what stands in the log or for what became of its segment, gets
 * a drop record, if it has none: should its extent fit again one day, it must not take the place of
 * what was stored meanwhile. */
static void replay_refuse(struct sc_store *store, struct replay *replay,
                          struct sc_store_piece_entry *entry, const char *what)
{
    bool doomed = atomic_load(&entry->state) == SC_STORE_PIECE_DOOMED;
    atomic_store(&entry->state, doomed ? SC_STORE_PIECE_DROPPED : SC_STORE_PIECE_REFUSED);
    if (doomed)
        return; /* said and counted when its drop record was written */
    replay_lie(store, what);
    replay->refused_count++;
    replay->refused_first = replay->refused_first == 0 ? replay->record.id : replay->refused_first;
    replay->refused_last = replay->record.id;
}

static void replay_piece(struct sc_store *store, struct replay *replay,
                         struct sc_store_piece_entry *entry)
{
    struct sc_store_piece *piece = &replay->record.piece;
    bool doomed = atomic_load(&entry->state) == SC_STORE_PIECE_DOOMED;
    struct sc_store_extent_entry *extent = sc_store_table_extent(&store->table, piece->extent);
    if (piece->extent != replay->extent_open || replay->extent_open == 0 ||
        piece->extent_row < replay->extent_rows ||
        piece->row_count > extent->row_count - piece->extent_row ||
        !sc_store_table_join(extent, replay->record.id)) {
        replay_refuse(store, replay, entry, "piece outside its extent");
        return;
    }
    replay->extent_rows = piece->extent_row + piece->row_count;
    piece->provenance = replay->provenance;
    bool tells =
        !doomed && extent->space == atomic_load(&store->space_id) && store->params.on_piece != NULL;
    uint64_t mark = 0;
    if (tells && !store->params.on_piece(piece, &mark, store->params.user)) {
        replay_refuse(store, replay, entry, "piece's chain");
        return;
    }
    memcpy(entry->hash, piece->hash, sizeof(entry->hash));
    entry->first_position = piece->first_position;
    entry->extent = (uint32_t)piece->extent;
    entry->extent_row = (uint16_t)piece->extent_row;
    entry->row_count = (uint16_t)piece->row_count;
    entry->skip = (uint16_t)piece->skip;
    atomic_store_explicit(&entry->mark, mark, memory_order_relaxed);
    extent->live_count++;
    store->log_reserved += sc_store_record_bytes_drop();
    sc_store_count(&store->piece_count, 1);
    if (!doomed)
        atomic_store(&entry->state, SC_STORE_PIECE_LIVE);
}

static void replay_drop(struct sc_store *store, uint64_t id, uint64_t at_ns)
{
    struct sc_store_piece_entry *entry = sc_store_table_piece(&store->table, id);
    if (id == 0 || id >= store->table.piece_next || entry == NULL ||
        atomic_load(&entry->state) != SC_STORE_PIECE_DOOMED)
        return; /* twice, or of a piece that was not believed */
    atomic_store(&entry->state, SC_STORE_PIECE_DROPPED);
    store->log_reserved -= sc_store_record_bytes_drop();
    atomic_fetch_sub_explicit(&store->piece_count, 1, memory_order_relaxed);
    if (--sc_store_table_extent(&store->table, entry->extent)->live_count == 0)
        atomic_fetch_sub_explicit(&store->extent_count, 1, memory_order_relaxed);
    (void)sc_store_quarantine_add(store, &id, 1, at_ns);
}

static spec_status on_payload_apply(struct sc_store *store, const uint8_t *payload, uint64_t bytes,
                                    void *user, struct spec_error *reterr)
{
    struct replay *replay = user;
    struct sc_store_record *record = &replay->record;
    struct sc_store_table *table = &store->table;
    if (!sc_store_record_peek(payload, bytes, record)) {
        replay_lie(store, "no version, type and id");
        return SPEC_OK;
    }
    if (record->type != SC_STORE_RECORD_PIECE && replay->extent_open != 0) {
        replay_extent_end(store, replay->extent_open);
        replay->extent_open = 0;
    }
    bool decodes = sc_store_record_decode(payload, bytes, record);
    if (record->type == SC_STORE_RECORD_EXTENT || record->type == SC_STORE_RECORD_PIECE) {
        bool is_extent = record->type == SC_STORE_RECORD_EXTENT;
        uint64_t *next = is_extent ? &table->extent_next : &table->piece_next;
        if (!id_ascends(record->id, *next)) {
            replay_lie(store, "id out of order");
            return SPEC_OK;
        }
        *next = record->id;
    }
    struct sc_store_piece_entry *entry = sc_store_table_piece(table, record->id);
    if (!decodes)
        replay_lie(store, "a key is missing or out of range");
    if (decodes && record->type == SC_STORE_RECORD_NAMESPACE)
        replay_space(store, replay);
    if (decodes && record->type == SC_STORE_RECORD_EXTENT)
        replay_extent(store, replay);
    if (decodes && record->type == SC_STORE_RECORD_PIECE)
        replay_piece(store, replay, entry);
    if (!decodes && record->type == SC_STORE_RECORD_PIECE)
        atomic_store(&entry->state, SC_STORE_PIECE_DROPPED);
    table->extent_next += record->type == SC_STORE_RECORD_EXTENT ? 1 : 0;
    table->piece_next += record->type == SC_STORE_RECORD_PIECE ? 1 : 0;
    if (decodes && record->type == SC_STORE_RECORD_DROP)
        replay_drop(store, record->id, record->drop.at_ns);
    if (decodes && record->type == SC_STORE_RECORD_HEAD)
        replay_head(store, replay);
    return replay->no_memory ? sc_fail(reterr, SPEC_E_NO_MEMORY, "table of extents") : SPEC_OK;
}

/* ---- After the scans ------------------------------------------------------------------------ */

/* A log that has nothing yet gets its head; one that has goes on behind the ids of its head. */
static spec_status replay_begin_log(struct sc_store *store, struct spec_error *reterr)
{
    struct sc_store_record_head *head = &store->journal.head;
    struct sc_store_table *table = &store->table;
    table->piece_next = table->piece_next > head->piece_next ? table->piece_next : head->piece_next;
    table->extent_next =
        table->extent_next > head->extent_next ? table->extent_next : head->extent_next;
    if (store->journal.end > 0)
        return SPEC_OK;
    struct sc_store_append append;
    *head = (struct sc_store_record_head){
        .numbering = sc_exec_wall_ns(store->params.exec), .piece_next = 1, .extent_next = 1};
    sc_store_append_begin(store, &append);
    sc_store_append_frame(&append);
    sc_store_record_put_head(&append.writer, head);
    sc_store_append_frame_end(&append);
    return sc_store_append_commit(store, &append, reterr);
}

/* Pieces that were not believed are dropped in the log too. */
static spec_status replay_drop_refused(struct sc_store *store, const struct replay *replay,
                                       struct spec_error *reterr)
{
    uint64_t id = replay->refused_first, at_ns = sc_exec_wall_ns(store->params.exec);
    spec_status status = SPEC_OK;
    while (replay->refused_count > 0 && id <= replay->refused_last && status == SPEC_OK) {
        struct sc_store_append append;
        uint64_t first = id, count = 0;
        sc_store_append_begin(store, &append);
        for (; id <= replay->refused_last && count < DROPS_PER_WRITE; id++) {
            struct sc_store_piece_entry *entry = sc_store_table_piece(&store->table, id);
            if (entry == NULL || atomic_load(&entry->state) != SC_STORE_PIECE_REFUSED)
                continue;
            sc_store_append_frame(&append);
            sc_store_record_put_drop(&append.writer, id, at_ns);
            sc_store_append_frame_end(&append);
            count++;
        }
        status = sc_store_append_commit(store, &append, reterr);
        for (; first < id && status == SPEC_OK; first++) {
            struct sc_store_piece_entry *entry = sc_store_table_piece(&store->table, first);
            if (entry != NULL && atomic_load(&entry->state) == SC_STORE_PIECE_REFUSED)
                atomic_store(&entry->state, SC_STORE_PIECE_DROPPED);
        }
    }
    return status;
}

static spec_status replay_run(struct sc_store *store, struct replay *replay,
                              struct spec_error *reterr)
{
    uint64_t file_bytes;
    spec_status status = sc_store_journal_scan(store, on_payload_ids, replay, &file_bytes, reterr);
    store->table.piece_next = 1;
    if (status == SPEC_OK)
        status = sc_store_journal_scan(store, on_payload_apply, replay, &file_bytes, reterr);
    if (status != SPEC_OK)
        return status;
    if (replay->extent_open != 0)
        replay_extent_end(store, replay->extent_open);
    if (file_bytes > store->journal.end) {
        sc_store_count(&store->corrupt_records, 1);
        SC_LOG(store->params.log, 1,
               "log ends at byte %" PRIu64 " of %" PRIu64 ": bad record, what follows is forgotten",
               store->journal.end, file_bytes);
        status = sc_io_file_truncate(store->io, store->journal.file, store->journal.end, reterr);
    }
    atomic_store(&store->log_bytes, store->journal.end);
    if (status == SPEC_OK)
        status = replay_begin_log(store, reterr);
    if (status == SPEC_OK)
        status = replay_drop_refused(store, replay, reterr);
    if (status == SPEC_OK)
        sc_store_segments_trim(store);
    return status;
}

spec_status sc_store_replay(struct sc_store *store, struct spec_error *reterr)
{
    struct sc_alloc *alloc = store->params.alloc;
    struct replay replay = {0};
    struct sc_store_record *record = &replay.record;
    record->tokens = sc_alloc_array(alloc, SC_STORE_ROWS_MAX, sizeof(*record->tokens));
    record->marks = sc_alloc_array(alloc, SC_STORE_MARKS_MAX, sizeof(*record->marks));
    record->extent.parts = sc_alloc_array(alloc, SC_LIMIT_LAYERS, sizeof(struct sc_store_part));
    spec_status status;
    if (record->tokens == NULL || record->marks == NULL || record->extent.parts == NULL)
        status = sc_fail(reterr, SPEC_E_NO_MEMORY, "replay buffers");
    else
        status = replay_run(store, &replay, reterr);
    sc_alloc_free(alloc, record->extent.parts);
    sc_alloc_free(alloc, record->marks);
    sc_alloc_free(alloc, record->tokens);
    return status;
}
