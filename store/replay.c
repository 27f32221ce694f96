/* Replay of the log: records become the table, the space map and on_piece calls. The same code
 * serves a writer's open, all of the log at once, and a follower, as the log grows.
 *
 *   namespace -> shapes; extent -> takes its places; piece -> LIVE, on_piece; drop -> on_drop, its
 *   pages into quarantine; epoch -> on_epoch, all pieces of the namespace void; head -> numbering;
 *   average -> on_average
 *
 *   a writer without on_drop reads the log twice: first for what later records make void, so that
 *   on_piece is not told of it
 *
 * Every number is checked against what stands already: segments that exist, offsets inside them,
 * places nobody has, rows inside the extent. A record that does not fit is not believed: counted,
 * skipped, a miss. Among extents that overlap the earlier one keeps its place, because live extents
 * never overlap in an honest log and the later record is the lie.
 *
 * The pieces of an extent follow its record directly. When another record comes, an extent without
 * a piece gives its places back, as commit would have.
 *
 * A follower has no space map; pieces that it does not tell of are not LIVE in its table. When it
 * reads a log again (a checkpoint put another in its place), what it knows stays as it is, as long
 * as the record says the same; an id never comes to mean other rows.
 *
 * Holds: ids ascend; a piece or extent whose record lies still uses up its id, so that later
 * records keep their meaning; nothing on disk changes until the whole log was read.
 * Does not: read segments (rows are verified when they are loaded).
 * Threads: open; for a follower, the one that follows (store/follow.c). Callbacks run without
 * locks. Tests: tests/unit/store/test_log.c, test_follow.c; tests/fault/test_store_faults.c */
#include "store/internal.h"

#include <string.h>

#define DROPS_PER_WRITE 4096u

spec_status sc_store_replay_open(struct sc_store *store, struct spec_error *reterr)
{
    struct sc_alloc *alloc = store->params.alloc;
    struct sc_store_replay *replay = sc_alloc_zero(alloc, sizeof(*replay));
    store->replay = replay;
    if (replay != NULL) {
        struct sc_store_record *record = &replay->record;
        record->tokens = sc_alloc_array(alloc, SC_STORE_ROWS_MAX, sizeof(*record->tokens));
        record->marks = sc_alloc_array(alloc, SC_STORE_MARKS_MAX, sizeof(*record->marks));
        record->extent.parts = sc_alloc_array(alloc, SC_LIMIT_LAYERS, sizeof(struct sc_store_part));
        replay->codes = sc_alloc(alloc, SC_STORE_CODES_BYTES_MAX);
        if (record->tokens != NULL && record->marks != NULL && record->extent.parts != NULL &&
            replay->codes != NULL) {
            sc_store_replay_restart(store);
            return SPEC_OK;
        }
    }
    return sc_fail(reterr, SPEC_E_NO_MEMORY, "replay buffers");
}

void sc_store_replay_close(struct sc_store *store)
{
    struct sc_alloc *alloc = store->params.alloc;
    if (store->replay == NULL)
        return;
    sc_alloc_free(alloc, store->replay->record.extent.parts);
    sc_alloc_free(alloc, store->replay->record.marks);
    sc_alloc_free(alloc, store->replay->record.tokens);
    sc_alloc_free(alloc, store->replay->codes);
    sc_alloc_free(alloc, store->replay);
    store->replay = NULL;
}

void sc_store_replay_restart(struct sc_store *store)
{
    struct sc_store_replay *replay = store->replay;
    replay->piece_next = replay->extent_next = 1;
    replay->space_count = 0;
    replay->extent_open = 0;
    replay->generation++;
}

static bool is_writer(const struct sc_store *store)
{
    return store->params.role == SC_STORE_WRITER;
}

/* A writer's open has the table to itself. */
static void table_lock(struct sc_store *store)
{
    if (!is_writer(store))
        pthread_mutex_lock(&store->log_lock);
}

static void table_unlock(struct sc_store *store)
{
    if (!is_writer(store))
        pthread_mutex_unlock(&store->log_lock);
}

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

static void replay_lie(struct sc_store *store, const char *what)
{
    sc_store_count(&store->corrupt_records, 1);
    SC_LOG(store->params.log, 1, "log record %" PRIu64 " is not believed: %s",
           store->journal.sequence + 1, what);
}

/* Whether the record's id may come now: ids ascend, with gaps where a checkpoint left records out.
 * ret_id: in our table, where ids of an earlier numbering stand before. */
static bool id_take(uint64_t *next, uint64_t base, uint64_t id, uint64_t *ret_id)
{
    if (id < *next || id >= SC_STORE_IDS || base >= SC_STORE_IDS - id)
        return false;
    *next = id + 1;
    *ret_id = base + id;
    return true;
}

/* ---- What later records make void, for a writer that cannot be told afterwards -------------- */

static spec_status on_payload_void(struct sc_store *store, const struct sc_store_payload *payload,
                                   void *user, struct spec_error *reterr)
{
    struct sc_store_replay *replay = store->replay;
    struct sc_store_record *record = &replay->record;
    struct sc_store_table *table = &store->table;
    uint64_t id;
    (void)user;
    if (!sc_store_record_peek(payload->at, payload->bytes, record))
        return SPEC_OK; /* the second scan counts it */
    spec_status status = version_check(store, record, reterr);
    if (status != SPEC_OK)
        return status;
    if (record->type == SC_STORE_RECORD_PIECE && id_take(&replay->piece_next, 0, record->id, &id)) {
        table->piece_next = id;
        if (!sc_store_table_reserve(table, 1, 0, 0))
            return sc_fail(reterr, SPEC_E_NO_MEMORY, "table of %" PRIu64 " pieces", id);
        table->piece_next++;
    }
    bool is_drop = record->type == SC_STORE_RECORD_DROP, is_epoch = false;
    if (record->type == SC_STORE_RECORD_EPOCH)
        is_epoch = record->id > 0 && record->id <= SC_STORE_SPACES_MAX;
    if ((!is_drop && !is_epoch) || !sc_store_record_decode(payload->at, payload->bytes, record))
        return SPEC_OK;
    struct sc_store_piece_entry *entry = sc_store_table_piece(table, record->id);
    if (is_drop && record->id < table->piece_next && entry != NULL)
        atomic_store(&entry->state, SC_STORE_PIECE_DOOMED);
    struct sc_store_shape *shape = is_epoch ? &store->spaces[record->id - 1] : NULL;
    if (is_epoch && record->epoch.epoch > shape->epoch) { /* set again by the second scan */
        shape->epoch = record->epoch.epoch;
        shape->epoch_sequence = store->journal.sequence + 1;
    }
    return SPEC_OK;
}

/* ---- Head, namespaces ----------------------------------------------------------------------- */

void sc_store_replay_forget(struct sc_store *store)
{
    struct sc_store_replay *replay = store->replay;
    sc_store_replay_sweep(store, true);
    table_lock(store);
    replay->piece_base = store->table.piece_next - 1;
    replay->extent_base = store->table.extent_next - 1;
    store->space_count = 0;
    atomic_store(&store->space_id, 0);
    for (uint64_t i = 0; i < store->segment_count; i++) /* the numbers are other files' */
        store->segments[i].number = SC_STORE_SEGMENT_NUMBERS;
    table_unlock(store);
    if (atomic_exchange(&store->epoch, 0) != 0 && store->params.on_epoch != NULL)
        store->params.on_epoch(0, store->params.user);
}

/* The first record, and no other. */
static void replay_head(struct sc_store *store, struct sc_store_replay *replay)
{
    const struct sc_store_record_head *head = &replay->record.head;
    if (store->journal.sequence != 0 || head->piece_next >= SC_STORE_IDS ||
        head->extent_next >= SC_STORE_IDS) {
        replay_lie(store, "a log's head");
        return;
    }
    if (replay->is_numbered && replay->numbering != head->numbering)
        sc_store_replay_forget(store);
    replay->is_numbered = !is_writer(store);
    replay->numbering = head->numbering;
    store->journal.head = *head;
}

static bool space_is_own(const struct sc_store *store, const struct sc_store_shape *shape)
{
    const struct sc_store_shape *own = &store->shape;
    if (store->params.role == SC_STORE_PEER)
        return memcmp(shape->family, own->family, SC_STORE_HASH_BYTES) == 0;
    return memcmp(shape->digest, own->digest, SC_STORE_HASH_BYTES) == 0 &&
           shape->layer_count == own->layer_count && shape->layout == own->layout &&
           shape->k_row_bytes == own->k_row_bytes;
}

static void replay_space(struct sc_store *store, struct sc_store_replay *replay)
{
    const struct sc_store_namespace *space = &replay->record.space.space;
    uint64_t id = replay->record.id;
    if (id != replay->space_count + 1 || id > SC_STORE_SPACES_MAX) {
        replay_lie(store, "namespace id");
        return;
    }
    replay->space_count++;
    if (id <= store->space_count) { /* a follower reads it again */
        const struct sc_store_shape *known = &store->spaces[id - 1];
        if (memcmp(known->digest, space->digest, SC_STORE_HASH_BYTES) == 0 &&
            memcmp(known->family, space->family, SC_STORE_HASH_BYTES) == 0 &&
            known->layer_count == space->layer_count && known->layout == space->layout &&
            known->k_row_bytes == space->k_row_bytes)
            return;
        replay_lie(store, "another namespace under this id");
        sc_store_replay_forget(store);
        if (id != 1) { /* those before it are forgotten too: nothing more is told of */
            replay->space_count = 0;
            return;
        }
    }
    struct sc_store_shape *shape = &store->spaces[store->space_count++];
    uint64_t epoch_sequence = shape->epoch_sequence;
    sc_store_shape_set(shape, space);
    shape->id = (uint32_t)id;
    shape->epoch_sequence = epoch_sequence;
    shape->is_own = space_is_own(store, shape);
    if (shape->is_own && atomic_load(&store->space_id) == 0)
        atomic_store(&store->space_id, shape->id);
}

/* The namespace whose pieces are told of: ours, or for a peer any of the family that has seen the
 * family's resets. */
static bool space_is_told(const struct sc_store *store, uint64_t id)
{
    const struct sc_store_shape *shape = &store->spaces[id - 1];
    if (store->params.role == SC_STORE_PEER)
        return shape->is_own && shape->epoch == atomic_load(&store->epoch);
    return id == atomic_load(&store->space_id);
}

static void replay_epoch(struct sc_store *store, struct sc_store_replay *replay)
{
    const struct sc_store_record_epoch *record = &replay->record.epoch;
    uint64_t id = replay->record.id;
    struct sc_store_shape *shape = &store->spaces[id - 1];
    if (id == 0 || id > replay->space_count || record->epoch < shape->epoch ||
        (record->epoch == shape->epoch && is_writer(store))) {
        replay_lie(store, "an epoch that is over, or of no namespace");
        return;
    }
    if (record->epoch == shape->epoch)
        return; /* read again */
    shape->epoch = record->epoch;
    uint64_t end = store->table.piece_next;
    (void)sc_store_pieces_void(store, (uint32_t)id, end, record->at_ns);
    bool is_ours =
        store->params.role == SC_STORE_PEER ? shape->is_own : id == atomic_load(&store->space_id);
    if (!is_ours || record->epoch <= atomic_load(&store->epoch))
        return;
    atomic_store(&store->epoch, record->epoch);
    for (uint64_t i = 0; store->params.role == SC_STORE_PEER && i < store->space_count; i++)
        if (store->spaces[i].is_own && store->spaces[i].epoch < record->epoch)
            (void)sc_store_pieces_void(store, (uint32_t)i + 1, end, record->at_ns);
    if (store->params.on_epoch != NULL)
        store->params.on_epoch(record->epoch, store->params.user);
}

/* ---- Extents -------------------------------------------------------------------------------- */

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
    return sc_store_record_extent_fits(extent, shape->tags_per_row, shape->k_row_bytes) &&
           last->layer_first + last->layer_count == shape->layer_count;
}

/* A follower that reads the log again: the extent is known, and is the same. */
static bool extent_is(const struct sc_store_extent_entry *entry,
                      const struct sc_store_record_extent *extent)
{
    return entry->row_offset == extent->row_offset && entry->stride == extent->stride &&
           entry->probe_offset == extent->probe_offset && entry->tag_offset == extent->tag_offset &&
           entry->probe_tag_offset == extent->probe_tag_offset &&
           entry->probe_row_bytes == extent->probe_row_bytes &&
           entry->row_count == extent->row_count && entry->space == extent->space &&
           entry->part_count == extent->part_count &&
           memcmp(&entry->provenance, &extent->provenance, sizeof(extent->provenance)) == 0 &&
           memcmp(entry->parts, extent->parts, extent->part_count * sizeof(*extent->parts)) == 0;
}

/* Checks the extent and finds its segments. */
static bool extent_believe(struct sc_store *store, struct sc_store_replay *replay)
{
    struct sc_store_record_extent *extent = &replay->record.extent;
    if (extent->space > replay->space_count ||
        !extent_fits(extent, &store->spaces[extent->space - 1])) {
        replay_lie(store, "extent's geometry");
        return false;
    }
    if (store->params.role == SC_STORE_PEER || !store->spaces[extent->space - 1].is_own)
        extent->part_count = is_writer(store) ? extent->part_count : 0; /* rows are never read */
    bool placed =
        is_writer(store)
            ? replay_places(store, extent->parts, extent->part_count, extent->stride)
            : sc_store_follow_places(store, extent->parts, extent->part_count, extent->stride);
    if (!placed)
        replay_lie(store, "extent's place is outside or taken");
    return placed;
}

static spec_status replay_extent(struct sc_store *store, struct sc_store_replay *replay,
                                 bool decodes, struct spec_error *reterr)
{
    struct sc_store_record_extent *extent = &replay->record.extent;
    struct sc_store_table *table = &store->table;
    uint64_t id, next = replay->extent_next;
    if (!id_take(&next, replay->extent_base, replay->record.id, &id)) {
        replay_lie(store, "id out of order");
        return SPEC_OK;
    }
    table_lock(store);
    if (id >= table->extent_next)
        table->extent_next = id;
    bool fits = sc_store_table_reserve(table, 0, 1, decodes ? extent->part_count : 0);
    if (fits && id == table->extent_next)
        table->extent_next++;
    table_unlock(store);
    if (!fits)
        return sc_fail(reterr, SPEC_E_NO_MEMORY, "table of extents");
    replay->extent_next = next;
    struct sc_store_extent_entry *entry = sc_store_table_extent(table, id);
    if (entry == NULL || !decodes) {
        replay_lie(store, decodes ? "an id that was left out" : "a key is missing or out of range");
        return SPEC_OK;
    }
    if (!extent_believe(store, replay))
        return SPEC_OK;
    if (entry->row_count != 0 && !extent_is(entry, extent)) {
        replay_lie(store, "another extent under this id");
        return SPEC_OK;
    }
    if (entry->row_count == 0) {
        *entry =
            (struct sc_store_extent_entry){.parts = sc_store_table_parts(table, extent->part_count),
                                           .row_offset = extent->row_offset,
                                           .stride = extent->stride,
                                           .probe_offset = extent->probe_offset,
                                           .probe_tag_offset = extent->probe_tag_offset,
                                           .tag_offset = extent->tag_offset,
                                           .probe_row_bytes = (uint32_t)extent->probe_row_bytes,
                                           .part_count = extent->part_count,
                                           .row_count = (uint32_t)extent->row_count,
                                           .space = (uint32_t)extent->space,
                                           .provenance = extent->provenance};
        memcpy(entry->parts, extent->parts, extent->part_count * sizeof(*extent->parts));
    }
    replay->extent_open = id;
    replay->extent_rows = 0;
    replay->provenance = extent->provenance;
    return SPEC_OK;
}

/* Its last piece was read: rows that none holds give their pages back. */
void sc_store_replay_extent_end(struct sc_store *store)
{
    uint64_t id = store->replay->extent_open;
    store->replay->extent_open = 0;
    if (id != 0)
        sc_store_extent_trim(store, id);
}

static bool annex_is(const struct sc_store_annex *annex,
                     const struct sc_store_record_extent *record)
{
    return annex->stride == record->stride && annex->probe_offset == record->probe_offset &&
           annex->probe_tag_offset == record->probe_tag_offset &&
           annex->probe_row_bytes == record->probe_row_bytes &&
           memcmp(&annex->code_shape, &record->code_shape, sizeof(annex->code_shape)) == 0 &&
           annex->part_count == record->part_count &&
           memcmp(annex->parts, record->parts, annex->part_count * sizeof(*annex->parts)) == 0;
}

/* Codes of other namespaces are nobody's to judge here, and never read. */
static bool codes_fit(const struct sc_store *store, const struct sc_store_extent_entry *extent,
                      const struct sc_store_code_shape *shape)
{
    const struct sc_store_codes *codes = &store->params.codes;
    return shape->bits_k == 0 || codes->fits == NULL ||
           extent->space != atomic_load(&store->space_id) || codes->fits(codes->user, shape);
}

/* Sections of an extent that stands before. One of an extent that is not there, or holds nothing
 * any more, is no use, and no lie. */
static spec_status replay_annex(struct sc_store *store, struct spec_error *reterr)
{
    struct sc_store_replay *replay = store->replay;
    struct sc_store_record_extent *record = &replay->record.extent;
    uint64_t id = replay->record.id + replay->extent_base;
    bool is_known = replay->record.id > 0 && replay->record.id < replay->extent_next;
    struct sc_store_extent_entry *extent =
        is_known ? sc_store_table_extent(&store->table, id) : NULL;
    if (extent == NULL || extent->row_count == 0 || extent->part_count == 0 ||
        (is_writer(store) && extent->held_pages == extent->void_pages))
        return SPEC_OK;
    const struct sc_store_shape *shape = &store->spaces[extent->space - 1];
    const struct sc_store_part *last = &record->parts[record->part_count - 1];
    struct sc_store_annex *_Atomic *place =
        record->code_shape.bits_k != 0 ? &extent->codes : &extent->annex;
    const struct sc_store_annex *known = atomic_load(place);
    bool fits = sc_store_record_annex_fits(record, extent->row_count, shape->k_row_bytes) &&
                codes_fit(store, extent, &record->code_shape) &&
                last->layer_first + last->layer_count == shape->layer_count;
    if (!fits || (is_writer(store) && known != NULL)) {
        replay_lie(store, fits ? "a second annex" : "an annex' geometry");
        return SPEC_OK;
    }
    bool placed =
        is_writer(store)
            ? replay_places(store, record->parts, record->part_count, record->stride)
            : sc_store_follow_places(store, record->parts, record->part_count, record->stride);
    if (!placed) {
        replay_lie(store, "an annex' place is outside or taken");
        return SPEC_OK;
    }
    if (known != NULL && annex_is(known, record))
        return SPEC_OK; /* read again */
    table_lock(store);
    struct sc_store_annex *annex = sc_store_table_annex(&store->table, record->part_count);
    table_unlock(store);
    if (annex == NULL)
        return sc_fail(reterr, SPEC_E_NO_MEMORY, "an annex of %" PRIu32 " parts",
                       record->part_count);
    annex->stride = record->stride;
    annex->probe_offset = record->probe_offset;
    annex->probe_tag_offset = record->probe_tag_offset;
    annex->probe_row_bytes = (uint32_t)record->probe_row_bytes;
    annex->code_shape = record->code_shape;
    memcpy(annex->parts, record->parts, record->part_count * sizeof(*record->parts));
    if (is_writer(store) && !sc_store_annex_hold(store, id, annex)) {
        sc_store_place_free(store, annex->parts, annex->part_count, annex->stride, 0);
        return SPEC_OK;
    }
    atomic_store_explicit(place, annex, memory_order_release);
    return SPEC_OK;
}

/* ---- Pieces --------------------------------------------------------------------------------- */

/* A piece that is not believed, for what stands in the log or for what became of its segment, gets
 * a drop record, if none follows: should its extent fit again one day, it must not take the place
 * of what was stored meanwhile. It is counted then. */
static void piece_refuse(struct sc_store *store, uint64_t id, struct sc_store_piece_entry *entry,
                         const char *what)
{
    struct sc_store_replay *replay = store->replay;
    bool doomed = atomic_load(&entry->state) == SC_STORE_PIECE_DOOMED;
    atomic_store(&entry->state, doomed ? SC_STORE_PIECE_DROPPED : SC_STORE_PIECE_REFUSED);
    if (doomed)
        return; /* said and counted when its drop record was written */
    if (!is_writer(store))
        sc_store_count(&store->corrupt_records, 1);
    if (replay->refused_count++ == 0) {
        replay->refused_first = id;
        replay->refused_what = what;
    }
    replay->refused_last = id;
}

/* Follower, reading again: it told of the piece. */
static void piece_again(struct sc_store *store, uint64_t id, struct sc_store_piece_entry *entry)
{
    const struct sc_store_replay *replay = store->replay;
    const struct sc_store_piece *piece = &replay->record.piece;
    bool same = memcmp(entry->hash, piece->hash, sizeof(entry->hash)) == 0 &&
                entry->first_position == piece->first_position &&
                entry->extent == replay->extent_open && entry->extent_row == piece->extent_row &&
                entry->row_count == piece->row_count;
    if (same)
        entry->next = replay->generation;
    else
        sc_store_replay_drop(store, id);
}

bool sc_store_piece_holds(const struct sc_store *store, const struct sc_store_piece *piece)
{
    return store->params.piece_holds == NULL ||
           store->params.piece_holds(piece, store->params.user);
}

/* Tells of the record's piece. False: it is not believed. */
static bool piece_told(struct sc_store *store, uint64_t *ret_mark)
{
    const struct sc_store_replay *replay = store->replay;
    const struct sc_store_piece *piece = &replay->record.piece;
    bool holds = replay->is_checked ? replay->holds : sc_store_piece_holds(store, piece);
    return holds && store->params.on_piece(piece, ret_mark, store->params.user);
}

/* A writer's open counts alone, and has no reader yet: a locked instruction a piece would wait
 * each time until all that was stored before has come to its cache line. */
static void count_up(struct sc_store *store, _Atomic uint64_t *counter)
{
    if (is_writer(store))
        atomic_store_explicit(counter, sc_store_counted(counter) + 1, memory_order_relaxed);
    else
        sc_store_count(counter, 1);
}

static void piece_publish(struct sc_store *store, const struct sc_store_piece *piece,
                          struct sc_store_piece_entry *entry, uint64_t mark)
{
    struct sc_store_extent_entry *extent = sc_store_table_extent(&store->table, piece->extent);
    bool doomed = atomic_load(&entry->state) == SC_STORE_PIECE_DOOMED;
    memcpy(entry->hash, piece->hash, sizeof(entry->hash));
    entry->first_position = piece->first_position;
    entry->extent = (uint32_t)piece->extent;
    entry->extent_row = (uint16_t)piece->extent_row;
    entry->row_count = (uint16_t)piece->row_count;
    entry->skip = (uint16_t)piece->skip;
    if (!is_writer(store))
        entry->next = store->replay->generation;
    atomic_store_explicit(&entry->mark, mark, memory_order_relaxed);
    table_lock(store);
    if (extent->live_count++ == 0)
        count_up(store, &store->extent_count);
    if (!doomed)
        atomic_store_explicit(&entry->state, SC_STORE_PIECE_LIVE, memory_order_release);
    table_unlock(store);
    if (is_writer(store))
        store->log_reserved += sc_store_record_bytes_drop();
    count_up(store, &store->piece_count);
}

/* Follower: the piece is LIVE before it is told of, so that whoever finds it can load it. */
static void piece_tell(struct sc_store *store, uint64_t id, struct sc_store_piece_entry *entry)
{
    const struct sc_store_piece *piece = &store->replay->record.piece;
    struct sc_store_extent_entry *extent = sc_store_table_extent(&store->table, piece->extent);
    uint64_t mark = 0;
    piece_publish(store, piece, entry, 0);
    if (piece_told(store, &mark)) {
        atomic_store_explicit(&entry->mark, mark, memory_order_relaxed);
        return;
    }
    table_lock(store);
    if (--extent->live_count == 0)
        atomic_fetch_sub_explicit(&store->extent_count, 1, memory_order_relaxed);
    atomic_fetch_sub_explicit(&store->piece_count, 1, memory_order_relaxed);
    piece_refuse(store, id, entry, "of another chain");
    table_unlock(store);
}

/* The record decodes and its id is its own. */
static void replay_piece(struct sc_store *store, uint64_t id, struct sc_store_piece_entry *entry)
{
    struct sc_store_replay *replay = store->replay;
    struct sc_store_piece *piece = &replay->record.piece;
    struct sc_store_extent_entry *extent = NULL;
    if (replay->extent_open != 0)
        extent = sc_store_table_extent(&store->table, replay->extent_open);
    piece->id = id;
    piece->extent += replay->extent_base;
    if (extent == NULL || piece->extent != replay->extent_open ||
        piece->extent_row < replay->extent_rows ||
        piece->row_count > extent->row_count - piece->extent_row ||
        (!sc_store_table_join(extent, id) && is_writer(store))) { /* others may meet it again */
        piece_refuse(store, id, entry, "outside its extent");
        return;
    }
    replay->extent_rows = piece->extent_row + piece->row_count;
    piece->provenance = replay->provenance;
    bool tells = space_is_told(store, extent->space) && store->params.on_piece != NULL;
    if (!is_writer(store)) {
        if (tells)
            piece_tell(store, id, entry);
        return;
    }
    if (store->journal.sequence < store->spaces[extent->space - 1].epoch_sequence ||
        atomic_load(&entry->state) == SC_STORE_PIECE_DOOMED)
        tells = false;
    uint64_t mark = 0;
    if (tells && !piece_told(store, &mark))
        piece_refuse(store, id, entry, "of another chain");
    else
        piece_publish(store, piece, entry, mark);
}

static spec_status replay_piece_record(struct sc_store *store, bool decodes,
                                       struct spec_error *reterr)
{
    struct sc_store_replay *replay = store->replay;
    struct sc_store_table *table = &store->table;
    uint64_t id, next = replay->piece_next;
    if (!id_take(&next, replay->piece_base, replay->record.id, &id)) {
        replay_lie(store, "id out of order");
        return SPEC_OK;
    }
    table_lock(store);
    if (id >= table->piece_next)
        table->piece_next = id;
    bool fits = sc_store_table_reserve(table, 1, 0, 0);
    if (fits && id == table->piece_next)
        table->piece_next++;
    table_unlock(store);
    if (!fits)
        return sc_fail(reterr, SPEC_E_NO_MEMORY, "table of %" PRIu64 " pieces", id);
    replay->piece_next = next;
    store->journal.pieces_read++;
    struct sc_store_piece_entry *entry = sc_store_table_piece(table, id);
    uint32_t state = entry != NULL ? atomic_load(&entry->state) : SC_STORE_PIECE_DROPPED;
    if (!decodes) {
        replay_lie(store, "a key is missing or out of range");
        if (state == SC_STORE_PIECE_NONE || state == SC_STORE_PIECE_DOOMED)
            atomic_store(&entry->state, SC_STORE_PIECE_DROPPED);
    } else if (state == SC_STORE_PIECE_LIVE) {
        piece_again(store, id, entry);
    } else if (state <= SC_STORE_PIECE_REFUSED) { /* DROPPED and what follows it: void for good */
        replay_piece(store, id, entry);
    }
    return SPEC_OK;
}

void sc_store_replay_drop(struct sc_store *store, uint64_t id)
{
    struct sc_store_piece_entry *entry = sc_store_table_piece(&store->table, id);
    table_lock(store);
    uint32_t state = entry != NULL ? atomic_load(&entry->state) : SC_STORE_PIECE_NONE;
    bool is_held = state == SC_STORE_PIECE_LIVE || state == SC_STORE_PIECE_DOOMED;
    uint32_t space = 0;
    if (is_held || state == SC_STORE_PIECE_REFUSED)
        atomic_store(&entry->state, SC_STORE_PIECE_DROPPED);
    if (is_held) {
        struct sc_store_extent_entry *extent = sc_store_table_extent(&store->table, entry->extent);
        space = extent->space;
        sc_store_coarse_piece_gone(store, extent);
        if (--extent->live_count == 0)
            atomic_fetch_sub_explicit(&store->extent_count, 1, memory_order_relaxed);
        atomic_fetch_sub_explicit(&store->piece_count, 1, memory_order_relaxed);
    }
    table_unlock(store);
    if (state == SC_STORE_PIECE_REFUSED)
        store->replay->refused_count--;
    bool was_told = !is_writer(store) || space == atomic_load(&store->space_id);
    if (state == SC_STORE_PIECE_LIVE && was_told && store->params.on_drop != NULL)
        store->params.on_drop(id, atomic_load_explicit(&entry->mark, memory_order_relaxed),
                              store->params.user);
}

static void replay_drop_record(struct sc_store *store)
{
    struct sc_store_replay *replay = store->replay;
    uint64_t id = replay->record.id;
    if (id == 0 || id >= replay->piece_next)
        return; /* of a piece that is not there */
    id += replay->piece_base;
    sc_store_replay_drop(store, id);
    const struct sc_store_piece_entry *entry = sc_store_table_piece(&store->table, id);
    if (!is_writer(store) || entry == NULL || entry->extent == 0 ||
        atomic_load(&entry->state) != SC_STORE_PIECE_DROPPED)
        return; /* twice, or of a piece that was not believed */
    store->log_reserved -= sc_store_record_bytes_drop();
    (void)sc_store_quarantine_add(store, &id, 1, replay->record.drop.at_ns);
}

/* ---- Rows that are void while codes are not ----------------------------------------------------
 */

/* Neither rows nor codes: it is void, without a record that says so. */
static void piece_lose(struct sc_store *store, uint64_t id)
{
    sc_store_replay_drop(store, id);
    if (!is_writer(store))
        return;
    store->log_reserved -= sc_store_record_bytes_drop();
    (void)sc_store_quarantine_add(store, &id, 1, store->replay->record.coarse.at_ns);
}

/* Of an extent that stands before and holds something; else it is no use, and no lie. Its pages may
 * be others' by now, whatever became of its codes. */
static void replay_coarse(struct sc_store *store)
{
    const struct sc_store_replay *replay = store->replay;
    uint64_t id = replay->record.id + replay->extent_base;
    struct sc_store_extent_entry *extent = NULL;
    if (replay->record.id > 0 && replay->record.id < replay->extent_next)
        extent = sc_store_table_extent(&store->table, id);
    if (extent == NULL || extent->row_count == 0 ||
        (is_writer(store) && extent->held_pages == extent->void_pages) ||
        atomic_load(&extent->coarse_ns) != 0)
        return;
    bool has_codes = extent->part_count == 0 || atomic_load(&extent->codes) != NULL;
    bool is_told = space_is_told(store, extent->space) && store->params.on_coarse != NULL;
    table_lock(store);
    sc_store_coarse_set(store, extent, &replay->record.coarse);
    table_unlock(store);
    (void)sc_store_rows_quarantine(store, id, replay->record.coarse.at_ns);
    if (!has_codes)
        replay_lie(store, "rows are void, and codes are not there");
    for (uint64_t i = extent->piece_first; i <= extent->piece_last; i++) {
        const struct sc_store_piece_entry *piece = sc_store_table_piece(&store->table, i);
        uint32_t state = piece != NULL ? atomic_load(&piece->state) : SC_STORE_PIECE_NONE;
        bool is_held = state == SC_STORE_PIECE_LIVE || state == SC_STORE_PIECE_DOOMED;
        if (!is_held || piece->extent != id)
            continue;
        if (!has_codes)
            piece_lose(store, i);
        else if (is_told && state == SC_STORE_PIECE_LIVE)
            store->params.on_coarse(i, atomic_load_explicit(&piece->mark, memory_order_relaxed),
                                    store->params.user);
    }
    sc_store_coarse_marked(store);
}

/* ---- Average importance --------------------------------------------------------------------- */

/* Of a piece that was told of. */
static void average_tell(struct sc_store *store, uint64_t id, uint32_t row_count)
{
    struct sc_store_replay *replay = store->replay;
    const struct sc_store_record_average *record = &replay->record.average;
    struct sc_store_average average = {.piece = id,
                                       .requests = (uint32_t)record->requests,
                                       .row_count = row_count,
                                       .codes = replay->codes};
    for (uint64_t i = 0; i < record->codes_bytes / 2; i++)
        replay->codes[i] = (uint16_t)(record->codes[2 * i] | record->codes[2 * i + 1] << 8);
    store->params.on_average(&average, store->params.user);
}

/* Pieces that are not there, or void, have none. */
static spec_status replay_average(struct sc_store *store, uint64_t frame_bytes,
                                  struct spec_error *reterr)
{
    struct sc_store_replay *replay = store->replay;
    uint64_t id = replay->record.id + replay->piece_base;
    if (replay->record.id == 0 || replay->record.id >= replay->piece_next)
        return SPEC_OK;
    const struct sc_store_piece_entry *entry = sc_store_table_live(&store->table, id);
    if (entry == NULL)
        return SPEC_OK;
    uint32_t space = sc_store_table_extent(&store->table, entry->extent)->space;
    const struct sc_store_shape *shape = &store->spaces[space - 1];
    if (replay->record.average.codes_bytes != 2ull * shape->layer_count * entry->row_count) {
        replay_lie(store, "averages of other rows or layers");
        return SPEC_OK;
    }
    if (is_writer(store)) {
        if (!sc_store_averages_reserve(&store->averages, 1, store->params.alloc))
            return sc_fail(reterr, SPEC_E_NO_MEMORY, "places of averages");
        sc_store_averages_note(&store->averages, id, store->journal.end, frame_bytes);
    }
    bool is_told = space_is_told(store, space) &&
                   (!is_writer(store) || store->journal.sequence >= shape->epoch_sequence);
    if (is_told && store->params.on_piece != NULL && store->params.on_average != NULL)
        average_tell(store, id, entry->row_count);
    return SPEC_OK;
}

void sc_store_replay_sweep(struct sc_store *store, bool all)
{
    for (uint64_t id = 1; id < store->table.piece_next; id++) {
        const struct sc_store_piece_entry *entry = sc_store_table_piece(&store->table, id);
        if (entry == NULL)
            id = sc_store_up(id + 1, SC_STORE_TABLE_SLAB) - 1; /* none of this slab */
        else if (atomic_load(&entry->state) == SC_STORE_PIECE_LIVE &&
                 (all || entry->next != store->replay->generation))
            sc_store_replay_drop(store, id);
    }
}

/* ---- A record ------------------------------------------------------------------------------- */

spec_status sc_store_replay_record(struct sc_store *store, const struct sc_store_payload *payload,
                                   void *user, struct spec_error *reterr)
{
    struct sc_store_replay *replay = store->replay;
    struct sc_store_record *record = &replay->record;
    (void)user;
    replay->is_checked = payload->piece != NULL;
    replay->holds = payload->holds;
    if (payload->piece != NULL) {
        record->version = SC_STORE_RECORD_VERSION;
        record->type = SC_STORE_RECORD_PIECE;
        record->id = payload->piece->id;
        record->piece = *payload->piece;
        return replay_piece_record(store, true, reterr);
    }
    if (!sc_store_record_peek(payload->at, payload->bytes, record)) {
        replay_lie(store, "no version, type and id");
        return SPEC_OK;
    }
    spec_status status = version_check(store, record, reterr);
    if (status != SPEC_OK)
        return status;
    bool decodes = sc_store_record_decode(payload->at, payload->bytes, record);
    if (record->type == SC_STORE_RECORD_PIECE)
        return replay_piece_record(store, decodes, reterr);
    sc_store_replay_extent_end(store);
    if (record->type == SC_STORE_RECORD_EXTENT)
        return replay_extent(store, replay, decodes, reterr);
    if (!decodes)
        replay_lie(store, "a key is missing or out of range");
    else if (record->type == SC_STORE_RECORD_NAMESPACE)
        replay_space(store, replay);
    else if (record->type == SC_STORE_RECORD_DROP)
        replay_drop_record(store);
    else if (record->type == SC_STORE_RECORD_EPOCH)
        replay_epoch(store, replay);
    else if (record->type == SC_STORE_RECORD_ANNEX)
        return replay_annex(store, reterr);
    else if (record->type == SC_STORE_RECORD_COARSE)
        replay_coarse(store);
    else if (record->type == SC_STORE_RECORD_AVERAGE)
        return replay_average(store, SC_STORE_FRAME_BYTES + payload->bytes, reterr);
    else
        replay_head(store, replay);
    return SPEC_OK;
}

/* ---- A writer's open ------------------------------------------------------------------------ */

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
static spec_status replay_drop_refused(struct sc_store *store, struct spec_error *reterr)
{
    const struct sc_store_replay *replay = store->replay;
    uint64_t id = replay->refused_first, at_ns = sc_exec_wall_ns(store->params.exec);
    spec_status status = SPEC_OK;
    if (replay->refused_count == 0)
        return SPEC_OK;
    sc_store_count(&store->corrupt_records, replay->refused_count);
    SC_LOG(store->params.log, 1,
           "%" PRIu64 " pieces of the log are not believed and dropped; one of the first, %" PRIu64
           ", is %s",
           replay->refused_count, replay->refused_first, replay->refused_what);
    while (id <= replay->refused_last && status == SPEC_OK) {
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
        if (count > 0)
            status = sc_store_append_commit(store, &append, reterr);
        for (; first < id && status == SPEC_OK; first++) {
            struct sc_store_piece_entry *entry = sc_store_table_piece(&store->table, first);
            if (entry != NULL && atomic_load(&entry->state) == SC_STORE_PIECE_REFUSED)
                atomic_store(&entry->state, SC_STORE_PIECE_DROPPED);
        }
    }
    return status;
}

static spec_status replay_scan(struct sc_store *store, uint64_t *ret_bytes,
                               struct spec_error *reterr)
{
    spec_status status = SPEC_OK;
    if (store->params.on_drop == NULL) {
        status = sc_store_journal_scan(store, on_payload_void, NULL, ret_bytes, reterr);
        store->table.piece_next = 1;
        sc_store_replay_restart(store);
    }
    if (status == SPEC_OK)
        status = sc_store_journal_scan(store, sc_store_replay_record, NULL, ret_bytes, reterr);
    if (status == SPEC_OK)
        sc_store_replay_extent_end(store);
    return status;
}

spec_status sc_store_replay(struct sc_store *store, struct spec_error *reterr)
{
    uint64_t file_bytes;
    spec_status status = sc_store_replay_open(store, reterr);
    if (status == SPEC_OK)
        status = replay_scan(store, &file_bytes, reterr);
    if (status == SPEC_OK && file_bytes > store->journal.end) {
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
        status = replay_drop_refused(store, reterr);
    store->journal.piece_next_read = store->table.piece_next;
    if (status == SPEC_OK) {
        sc_store_checkpoint_clean(store);
        sc_store_segments_trim(store);
    }
    sc_store_replay_close(store);
    return status;
}
