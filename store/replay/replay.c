/* replay: applies the log's records to the table, the space map and callbacks: the whole log at a
 * writer's open, new records in a follower.
 *
 *   namespace -> shapes; extent -> takes its pages; piece -> LIVE, on_piece; drop -> on_drop, pages
 *   into quarantine; epoch -> on_epoch, all pieces of the namespace void; head -> numbering;
 *   average -> on_average or, of no piece, on_note
 *
 *   a writer without on_drop reads the log twice: first for what later records make void, so that
 *   on_piece does not report it
 *
 * Every number is checked: segments that exist, offsets inside them, pages without an owner, rows
 * inside the extent. An invalid record is counted and skipped (a miss). If extents overlap, the
 * earlier keeps its pages: live extents of a valid log never overlap.
 *
 * A follower has no space map; pieces that it does not report are not LIVE in its table. When it
 * reads a log again (after a checkpoint), entries stay as long as their records are the same; an id
 * never changes its meaning.
 *
 * Invariants: ids ascend. An invalid record of a piece or extent uses up its id, so that later
 * records keep their meaning. Nothing on disk changes until the whole log was read.
 * Limits: reads no segments (loads verify rows).
 * Threads: open; for a follower, the thread that follows (follow.c). Callbacks run without
 * locks. */
#include "store/replay/replay.h"
#include "store/log/hints.h"
#include "store/log/log_swap.h"
#include "store/log/where.h"
#include "store/replay/checkpoint.h"

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
        replay->codes = sc_alloc(alloc, SC_STORE_QUANT_BYTES_MAX);
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
    sc_store_replay_permutation_end(store);
    sc_alloc_free(alloc, store->replay->left);
    sc_alloc_free(alloc, store->replay);
    store->replay = NULL;
}

void sc_store_replay_restart(struct sc_store *store)
{
    struct sc_store_replay *replay = store->replay;
    replay->piece_next = replay->extent_next = 1;
    replay->space_next = replay->space_given = 1;
    replay->space_count = replay->space_own = 0;
    replay->extent_open = 0;
    replay->has_gap = replay->frees_early = false;
    replay->owners_sought = 0;
    replay->left_count = replay->left_open = replay->late_open = 0;
    replay->generation++;
}

static spec_status version_check(struct sc_store *store, const struct sc_store_record *record,
                                 struct spec_error *reterr)
{
    if (record->version == SC_STORE_RECORD_VERSION && sc_store_record_is_of_rows(record->type))
        return SPEC_OK;
    return sc_fail(reterr, SPEC_E_VERSION,
                   "%s/log record %" PRIu64 " has type %" PRIu64 " version %" PRIu64
                   ", this build reads types 1 to %u version %u",
                   store->dir, store->log.journal.end.sequence + 1, record->type, record->version,
                   (unsigned)SC_STORE_RECORD_TYPE_MAX, SC_STORE_RECORD_VERSION);
}

/* ---- Head, namespaces ----------------------------------------------------------------------- */

void sc_store_replay_forget(struct sc_store *store)
{
    struct sc_store_replay *replay = store->replay;
    if (store->table.piece_next > 1 || store->disk.segment_count > 0)
        sc_store_heir_end(store, "another store or log took the place of the first");
    sc_store_replay_sweep(store, true);
    sc_store_replay_table_lock(store);
    replay->piece_base = store->table.piece_next - 1;
    replay->extent_base = store->table.extent_next - 1;
    sc_store_spaces_forget(&store->log.spaces);
    atomic_store(&store->log.space_id, 0);
    for (uint64_t i = 0; i < store->disk.segment_count; i++) /* numbers name other files now */
        store->disk.segments[i].number = SC_STORE_SEGMENT_NUMBERS;
    sc_store_replay_table_unlock(store);
    if (atomic_exchange(&store->log.epoch, 0) != 0 && store->params.on_epoch != NULL)
        store->params.on_epoch(0, store->params.user);
}

/* Applies the head, which must be the first record. */
static void replay_head(struct sc_store *store, struct sc_store_replay *replay)
{
    const struct sc_store_record_head *head = &replay->record.head;
    if (store->log.journal.end.sequence != 0 || head->piece_next >= SC_STORE_IDS ||
        head->extent_next >= SC_STORE_IDS) {
        sc_store_replay_lie(store, "a log's head");
        return;
    }
    if (replay->is_numbered && replay->numbering != head->numbering)
        sc_store_replay_forget(store);
    replay->is_numbered = sc_store_follows(store);
    replay->numbering = head->numbering;
    store->log.journal.head = *head;
    replay->space_given = head->space_next;
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

/* Takes a namespace's id if it is valid: the next one, or one after a gap that a checkpoint
 * left. */
static bool space_id_take(struct sc_store_replay *replay, uint64_t id)
{
    uint64_t next =
        replay->space_next > replay->space_given ? replay->space_next : replay->space_given;
    bool is_next = id < replay->space_given || id == next || replay->has_gap;
    if (id < replay->space_next || !is_next || id >= UINT32_MAX ||
        replay->space_count == SC_STORE_SPACES_MAX)
        return false;
    replay->space_next = id + 1;
    replay->space_count++;
    return true;
}

/* Returns a new entry for the record's namespace; NULL: no memory. */
static struct sc_store_shape *space_add(struct sc_store *store,
                                        const struct sc_store_record *record)
{
    struct sc_store_shape shape;
    if (!sc_store_spaces_reserve(&store->log.spaces))
        return NULL;
    sc_store_shape_set(&shape, &record->space.space);
    shape.is_own = space_is_own(store, &shape);
    return sc_store_spaces_add(&store->log.spaces, record->id, &shape,
                               sc_store_record_bytes_space(record->space.descriptor_bytes));
}

static bool space_is(const struct sc_store_shape *known, const struct sc_store_namespace *space)
{
    return memcmp(known->digest, space->digest, SC_STORE_HASH_BYTES) == 0 &&
           memcmp(known->family, space->family, SC_STORE_HASH_BYTES) == 0 &&
           known->layer_count == space->layer_count && known->layout == space->layout &&
           known->k_row_bytes == space->k_row_bytes;
}

/* The log's first namespace of ours is ours; it has a new id if a checkpoint omitted the old
 * one. */
static void space_own(struct sc_store *store, struct sc_store_replay *replay,
                      const struct sc_store_shape *shape)
{
    if (!shape->is_own || replay->space_own != 0)
        return;
    replay->space_own = shape->id;
    atomic_store(&store->log.space_id, shape->id);
}

/* The writer's first scan has added it. */
static void space_again(struct sc_store *store, struct sc_store_replay *replay,
                        struct sc_store_shape *shape)
{
    shape->epoch = 0;
    space_own(store, replay, shape);
}

static spec_status replay_space(struct sc_store *store, struct sc_store_replay *replay,
                                struct spec_error *reterr)
{
    const struct sc_store_namespace *space = &replay->record.space.space;
    struct sc_store_spaces *spaces = &store->log.spaces;
    uint64_t id = replay->record.id;
    bool is_full = sc_store_spaces_are_full(spaces);
    if (!is_full && !sc_store_spaces_reserve(spaces)) /* before anything is changed */
        return sc_fail(reterr, SPEC_E_NO_MEMORY, "namespace %" PRIu64 " of %s", id, store->dir);
    if (!space_id_take(replay, id)) {
        sc_store_replay_lie(store, "namespace id");
        return SPEC_OK;
    }
    struct sc_store_shape *known = sc_store_space_find(&store->log.spaces, id);
    if (known != NULL && sc_store_replay_at_open(store)) {
        space_again(store, replay, known);
        return SPEC_OK;
    }
    if (known != NULL && space_is(known, space)) { /* a follower reads it again */
        space_own(store, replay, known);
        return SPEC_OK;
    }
    if (known != NULL || id < spaces->next || is_full) {
        sc_store_replay_lie(store, is_full ? "more namespaces than this process can know"
                                           : "another namespace under this id");
        sc_store_replay_forget(store);
        if (replay->space_count > 1) { /* earlier ones are forgotten, too: report nothing more */
            replay->space_next = UINT64_MAX;
            return SPEC_OK;
        }
    }
    sc_store_replay_table_lock(store);
    const struct sc_store_shape *shape = space_add(store, &replay->record);
    sc_store_replay_table_unlock(store);
    if (shape == NULL)
        return sc_fail(reterr, SPEC_E_NO_MEMORY, "namespace %" PRIu64 " of %s", id, store->dir);
    space_own(store, replay, shape);
    return SPEC_OK;
}

/* ---- First scan: what later records void, for a writer without on_drop
 * ------------------------ */

/* Handles the head, or adds a namespace, whose entry the second scan finds. */
static spec_status space_foresee(struct sc_store *store, const struct sc_store_payload *payload,
                                 struct spec_error *reterr)
{
    struct sc_store_replay *replay = store->replay;
    struct sc_store_record *record = &replay->record;
    if (!sc_store_record_decode(payload->at, payload->bytes, record))
        return SPEC_OK;
    if (record->type == SC_STORE_RECORD_HEAD) {
        replay->space_given = record->head.space_next;
        return SPEC_OK;
    }
    if (space_id_take(replay, record->id) && space_add(store, record) == NULL)
        return sc_fail(reterr, SPEC_E_NO_MEMORY, "namespace %" PRIu64 " of %s", record->id,
                       store->dir);
    return SPEC_OK;
}

static spec_status on_payload_void(struct sc_store *store, const struct sc_store_payload *payload,
                                   void *user, struct spec_error *reterr)
{
    struct sc_store_replay *replay = store->replay;
    struct sc_store_record *record = &replay->record;
    struct sc_store_table *table = &store->table;
    uint64_t id;
    (void)user;
    if (payload->gap == SC_STORE_GAP_RESETS)
        for (uint64_t i = 0; i < store->log.spaces.entry_count; i++)
            sc_store_space_at(&store->log.spaces, i)->epoch_sequence =
                store->log.journal.end.sequence;
    if (payload->at == NULL)
        return SPEC_OK;
    if (!sc_store_record_peek(payload->at, payload->bytes, record))
        return SPEC_OK; /* the second scan counts it */
    spec_status status = version_check(store, record, reterr);
    if (status != SPEC_OK)
        return status;
    if (record->type == SC_STORE_RECORD_PIECE &&
        sc_store_replay_id_take(&replay->piece_next, 0, record->id, &id)) {
        table->piece_next = id;
        uint64_t left = id + 1 < SC_STORE_IDS ? 1 : 0; /* an id that may be left free */
        if (!sc_store_table_reserve(table, 1 + left, 0, 0))
            return sc_fail(reterr, SPEC_E_NO_MEMORY, "table of %" PRIu64 " pieces", id);
        table->piece_next++;
    }
    bool is_head = record->type == SC_STORE_RECORD_HEAD && store->log.journal.end.sequence == 0;
    if (is_head || record->type == SC_STORE_RECORD_NAMESPACE)
        return space_foresee(store, payload, reterr);
    bool is_drop = record->type == SC_STORE_RECORD_DROP;
    bool is_epoch = record->type == SC_STORE_RECORD_EPOCH;
    if ((!is_drop && !is_epoch) || !sc_store_record_decode(payload->at, payload->bytes, record))
        return SPEC_OK;
    struct sc_store_piece_entry *entry = sc_store_table_piece(table, record->id);
    if (is_drop && record->id < table->piece_next && entry != NULL)
        atomic_store(&entry->state, SC_STORE_PIECE_DOOMED);
    struct sc_store_shape *shape =
        is_epoch ? sc_store_space_find(&store->log.spaces, record->id) : NULL;
    if (shape != NULL && record->epoch.epoch > shape->epoch) { /* set again by the second scan */
        shape->epoch = record->epoch.epoch;
        shape->epoch_sequence = store->log.journal.end.sequence + 1;
    }
    return SPEC_OK;
}

/* ---- Epochs ---------------------------------------------------------------------------------- */

/* Follower: an epoch that it knows, or a smaller one. Usually the log is read again, and everything
 * before is void already. But a writer may have reset to an epoch a second time, of which the first
 * record was lost: what this reading found before it is void, whatever the number. */
static void epoch_again(struct sc_store *store, uint64_t space, uint64_t at_ns)
{
    const struct sc_store_table *table = &store->table;
    for (uint64_t id = 1; (id = sc_store_table_piece_from(table, id)) < table->piece_next; id++) {
        const struct sc_store_piece_entry *entry = sc_store_table_piece(table, id);
        if (atomic_load(&entry->state) != SC_STORE_PIECE_LIVE ||
            entry->next != store->replay->generation ||
            sc_store_table_extent(table, entry->extent)->space != space)
            continue;
        sc_store_replay_drop(store, id);
        sc_store_replay_dropped(store, id, at_ns);
    }
}

static void replay_epoch(struct sc_store *store, struct sc_store_replay *replay)
{
    const struct sc_store_record_epoch *record = &replay->record.epoch;
    uint64_t id = replay->record.id;
    struct sc_store_shape *shape =
        id < replay->space_next ? sc_store_space_find(&store->log.spaces, id) : NULL;
    bool is_over = shape == NULL || record->epoch < shape->epoch ||
                   (record->epoch == shape->epoch && sc_store_replay_at_open(store));
    if (is_over)
        sc_store_replay_lie(store, "an epoch that is over, or of no namespace");
    if (shape != NULL && record->epoch <= shape->epoch && !sc_store_replay_at_open(store))
        epoch_again(store, id, record->at_ns);
    if (is_over || record->epoch == shape->epoch)
        return;
    shape->epoch = record->epoch;
    uint64_t end = store->table.piece_next;
    bool is_ours = store->params.role == SC_STORE_PEER ? shape->is_own
                                                       : id == atomic_load(&store->log.space_id);
    bool moves = is_ours && record->epoch > atomic_load(&store->log.epoch);
    if (moves) /* first: a load that finds a void piece asks for the reason */
        atomic_store(&store->log.epoch, record->epoch);
    (void)sc_store_pieces_void(store, (uint32_t)id, end, record->at_ns);
    if (!moves)
        return;
    const struct sc_store_spaces *spaces = &store->log.spaces;
    for (uint64_t i = 0; store->params.role == SC_STORE_PEER && i < spaces->entry_count; i++) {
        const struct sc_store_shape *other = sc_store_space_at(spaces, i);
        if (other->is_own && other->epoch < record->epoch)
            (void)sc_store_pieces_void(store, other->id, end, record->at_ns);
    }
    if (store->params.on_epoch != NULL)
        store->params.on_epoch(record->epoch, store->params.user);
}

/* ---- Average importance --------------------------------------------------------------------- */

static uint64_t quant_read(struct sc_store_replay *replay)
{
    const struct sc_store_record_average *record = &replay->record.average;
    for (uint64_t i = 0; i < record->quant_bytes / 2; i++)
        replay->codes[i] = (uint16_t)(record->codes[2 * i] | record->codes[2 * i + 1] << 8);
    return record->quant_bytes / 2;
}

static void average_tell(struct sc_store *store, uint64_t id, uint32_t row_count)
{
    struct sc_store_replay *replay = store->replay;
    const struct sc_store_record_average *record = &replay->record.average;
    struct sc_store_average average = {.piece = id,
                                       .requests = (uint32_t)record->requests,
                                       .row_count = row_count,
                                       .codes = replay->codes};
    (void)quant_read(replay);
    store->params.on_average(&average, store->params.user);
}

static void replay_note(struct sc_store *store, uint64_t frame_bytes)
{
    struct sc_store_replay *replay = store->replay;
    const struct sc_store_record_average *record = &replay->record.average;
    uint64_t space = sc_store_note_space(record);
    struct sc_store_shape *shape =
        space < replay->space_next ? sc_store_space_find(&store->log.spaces, space) : NULL;
    if (shape == NULL) {
        sc_store_replay_lie(store, "a note of no namespace");
        return;
    }
    struct sc_store_noted *noted = sc_store_noted_of(shape, record);
    bool is_known = noted != NULL && record->requests <= noted->serial; /* read again */
    if (is_known && (!sc_store_keeps_space(store) || record->requests < noted->serial))
        return;
    sc_store_replay_table_lock(store);
    sc_store_note_add(&store->log.averages, noted, record->requests, frame_bytes);
    sc_store_replay_table_unlock(store);
    if (is_known)
        return;
    uint64_t count = quant_read(replay);
    if (noted != NULL && sc_store_replay_space_is_told(store, space) &&
        store->params.on_note != NULL)
        store->params.on_note(replay->codes + SC_STORE_NOTE_HEAD, count - SC_STORE_NOTE_HEAD,
                              store->params.user);
}

static bool average_note(struct sc_store *store, uint64_t id, uint64_t frame_bytes)
{
    sc_store_replay_table_lock(store);
    bool fits = sc_store_averages_reserve(&store->log.averages, 1, store->params.alloc);
    if (fits)
        sc_store_averages_note(&store->log.averages, id, store->log.journal.end.offset,
                               frame_bytes);
    sc_store_replay_table_unlock(store);
    return fits;
}

void sc_store_replay_places_forget(struct sc_store *store)
{
    const struct sc_store_spaces *spaces = &store->log.spaces;
    pthread_mutex_lock(&store->log.lock);
    sc_store_averages_done(&store->log.averages, store->params.alloc);
    for (uint64_t i = 0; i < spaces->entry_count; i++)
        for (uint32_t kind = 0; kind < SC_STORE_NOTE_KINDS; kind++)
            sc_store_space_at(spaces, i)->notes[kind].bytes = 0;
    store->log.journal.pieces_read = 0;
    store->log.averages_are_lost = true;
    pthread_mutex_unlock(&store->log.lock);
}

/* Ignores averages of pieces that are unknown or void. */
static spec_status replay_average(struct sc_store *store, uint64_t frame_bytes,
                                  struct spec_error *reterr)
{
    struct sc_store_replay *replay = store->replay;
    uint64_t id = replay->record.id + replay->piece_base;
    if (replay->record.id == 0)
        replay_note(store, frame_bytes);
    if (replay->record.id == 0 || replay->record.id >= replay->piece_next)
        return SPEC_OK;
    const struct sc_store_piece_entry *entry = sc_store_table_live(&store->table, id);
    if (entry == NULL)
        return SPEC_OK;
    uint32_t space = sc_store_table_extent(&store->table, entry->extent)->space;
    const struct sc_store_shape *shape = sc_store_space_of(&store->log.spaces, space);
    if (replay->record.average.quant_bytes != 2ull * shape->layer_count * entry->row_count) {
        sc_store_replay_lie(store, "averages of other rows or layers");
        return SPEC_OK;
    }
    if (sc_store_keeps_space(store) && !average_note(store, id, frame_bytes))
        return sc_fail(reterr, SPEC_E_NO_MEMORY, "places of averages");
    bool is_told = sc_store_replay_space_is_told(store, space) &&
                   (!sc_store_replay_at_open(store) ||
                    store->log.journal.end.sequence >= shape->epoch_sequence);
    if (is_told && store->params.on_piece != NULL && store->params.on_average != NULL)
        average_tell(store, id, entry->row_count);
    return SPEC_OK;
}

void sc_store_replay_sweep(struct sc_store *store, bool all)
{
    const struct sc_store_table *table = &store->table;
    for (uint64_t id = 1; (id = sc_store_table_piece_from(table, id)) < table->piece_next; id++) {
        const struct sc_store_piece_entry *entry = sc_store_table_piece(table, id);
        uint32_t state = atomic_load(&entry->state);
        bool failed = state == SC_STORE_PIECE_DROPPED && entry->extent != 0 && /* in this reader */
                      !sc_store_can_store(store);
        if ((state != SC_STORE_PIECE_LIVE && !failed) ||
            (!all && entry->next == store->replay->generation))
            continue;
        sc_store_replay_drop(store, id);
        sc_store_replay_dropped(store, id, UINT64_MAX);
    }
}

void sc_store_replay_gap(struct sc_store *store, enum sc_store_gap gap)
{
    store->replay->has_gap = true;
    sc_store_heir_end(store, "records of its log are lost");
    if (gap != SC_STORE_GAP_RESETS)
        return;
    sc_store_replay_sweep(store, true);
    if (sc_store_replay_at_open(store)) /* a checkpoint would copy what holds pages */
        sc_store_replay_quarantine_end(store);
}

/* ---- A record ------------------------------------------------------------------------------- */

static spec_status replay_section(struct sc_store *store, struct spec_error *reterr)
{
    spec_status status = sc_store_replay_section(store, reterr);
    if (store->replay->record.extent.is_order && status == SPEC_OK)
        sc_store_replay_permutation_end(store);
    return status;
}

spec_status sc_store_replay_record(struct sc_store *store, const struct sc_store_payload *payload,
                                   void *user, struct spec_error *reterr)
{
    struct sc_store_replay *replay = store->replay;
    struct sc_store_record *record = &replay->record;
    (void)user;
    if (payload->gap != SC_STORE_GAP_NONE)
        sc_store_replay_gap(store, payload->gap);
    if (payload->at == NULL)
        return SPEC_OK;
    replay->is_checked = payload->piece != NULL;
    replay->holds = payload->holds;
    if (payload->piece != NULL) {
        record->version = SC_STORE_RECORD_VERSION;
        record->type = SC_STORE_RECORD_PIECE;
        record->id = payload->piece->id;
        record->piece = *payload->piece;
        return sc_store_replay_piece_record(store, true, reterr);
    }
    if (!sc_store_record_peek(payload->at, payload->bytes, record)) {
        sc_store_replay_lie(store, "no version, type and id");
        return SPEC_OK;
    }
    spec_status status = version_check(store, record, reterr);
    if (status != SPEC_OK)
        return status;
    bool decodes = sc_store_record_decode(payload->at, payload->bytes, record);
    store->log.seal.is_set = false;
    if (record->type == SC_STORE_RECORD_PIECE)
        return sc_store_replay_piece_record(store, decodes, reterr);
    sc_store_replay_extent_end(store);
    if (record->type == SC_STORE_RECORD_EXTENT)
        return sc_store_replay_extent(store, replay, decodes, reterr);
    if (!decodes) {
        sc_store_replay_lie(store, "a key is missing or out of range");
        return SPEC_OK;
    }
    if (record->type == SC_STORE_RECORD_NAMESPACE)
        return replay_space(store, replay, reterr);
    else if (record->type == SC_STORE_RECORD_DROP)
        sc_store_replay_drop_record(store);
    else if (record->type == SC_STORE_RECORD_EPOCH)
        replay_epoch(store, replay);
    else if (record->type == SC_STORE_RECORD_PERMUTATION)
        return sc_store_replay_permutation(store, reterr);
    else if (record->type == SC_STORE_RECORD_SECTION)
        return replay_section(store, reterr);
    else if (record->type == SC_STORE_RECORD_ROWS_GONE)
        sc_store_replay_rows_gone(store);
    else if (record->type == SC_STORE_RECORD_AVERAGE)
        return replay_average(store, SC_STORE_FRAME_BYTES + payload->bytes, reterr);
    else if (record->type == SC_STORE_RECORD_SEGMENT)
        sc_store_segment_told(store, (uint32_t)record->id, record->segment_bytes);
    else if (record->type == SC_STORE_RECORD_LIMITS)
        sc_store_limits_told(store, record->disk_bytes);
    else if (record->type == SC_STORE_RECORD_SEAL)
        store->log.seal.record = record->seal;
    else
        replay_head(store, replay);
    store->log.seal.is_set = record->type == SC_STORE_RECORD_SEAL;
    return SPEC_OK;
}

/* ---- A writer's open ------------------------------------------------------------------------ */

spec_status sc_store_replay_begin_log(struct sc_store *store, struct spec_error *reterr)
{
    struct sc_store_record_head *head = &store->log.journal.head;
    struct sc_store_table *table = &store->table;
    table->piece_next = table->piece_next > head->piece_next ? table->piece_next : head->piece_next;
    table->extent_next =
        table->extent_next > head->extent_next ? table->extent_next : head->extent_next;
    struct sc_store_spaces *spaces = &store->log.spaces;
    spaces->next = spaces->next > head->space_next ? spaces->next : head->space_next;
    if (store->log.journal.end.sequence > 0)
        return SPEC_OK;
    struct sc_store_append append;
    *head = (struct sc_store_record_head){
        .numbering = sc_exec_wall_ns(store->params.exec), .piece_next = 1, .extent_next = 1};
    sc_store_append_begin(store, &append);
    sc_store_append_frame(&append);
    sc_store_record_encode_head(&append.writer, head);
    return sc_store_append_commit(store, &append, reterr);
}

/* Returns the rejected piece at or after *id without a drop record; NULL: none up to `last`. Moves
 * *id past it. */
static struct sc_store_piece_entry *refused_next(const struct sc_store *store, uint64_t *id,
                                                 uint64_t last)
{
    while ((*id = sc_store_table_piece_from(&store->table, *id)) <= last) {
        struct sc_store_piece_entry *entry = sc_store_table_piece(&store->table, (*id)++);
        if (atomic_load(&entry->state) == SC_STORE_PIECE_REFUSED)
            return entry;
    }
    return NULL;
}

static spec_status replay_drop_refused(struct sc_store *store, struct spec_error *reterr)
{
    const struct sc_store_replay *replay = store->replay;
    uint64_t id = replay->refused_first, at_ns = sc_exec_wall_ns(store->params.exec);
    spec_status status = SPEC_OK;
    if (replay->refused_count == 0)
        return SPEC_OK;
    sc_store_count(&store->counts.corrupt_records, replay->refused_count);
    SC_LOG(store->params.log, 1,
           "%" PRIu64 " pieces of the log are not believed and dropped; one of the first, %" PRIu64
           ", is %s",
           replay->refused_count, replay->refused_first, replay->refused_what);
    while (id <= replay->refused_last && status == SPEC_OK) {
        struct sc_store_append append;
        uint64_t first = id, count = 0;
        sc_store_append_begin(store, &append);
        while (count < DROPS_PER_WRITE && refused_next(store, &id, replay->refused_last) != NULL) {
            sc_store_append_frame(&append);
            sc_store_record_encode_drop(&append.writer, id - 1, at_ns);
            count++;
        }
        if (count > 0)
            status = sc_store_append_commit(store, &append, reterr);
        for (; count > 0 && status == SPEC_OK; count--)
            atomic_store(&refused_next(store, &first, replay->refused_last)->state,
                         SC_STORE_PIECE_DROPPED);
    }
    return status;
}

static spec_status replay_scan(struct sc_store *store, struct spec_error *reterr)
{
    spec_status status = SPEC_OK;
    if (store->params.on_drop == NULL) {
        status = sc_store_journal_scan(store, on_payload_void, NULL, reterr);
        store->table.piece_next = 1;
        sc_store_replay_restart(store);
    }
    if (status == SPEC_OK)
        status = sc_store_journal_scan(store, sc_store_replay_record, NULL, reterr);
    if (status == SPEC_OK)
        sc_store_replay_extent_end(store);
    return status;
}

void sc_store_replay_shorten(struct sc_store *store)
{
    struct spec_error error = {.struct_size = sizeof(error)};
    bool is_full = sc_store_disk_used(store) > store->disk.bytes_max;
    if ((is_full || store->log.journal.damaged_count > 0) &&
        sc_store_checkpoint(store, &error) != SPEC_OK)
        SC_LOG(store->params.log, 1, "%s/log keeps what is %s: %s", store->dir,
               is_full ? "void" : "damaged", error.text);
}

/* Logs and counts what the scan found. */
static void damage_tell(struct sc_store *store)
{
    const struct sc_store_journal *journal = &store->log.journal;
    sc_store_count(&store->counts.corrupt_records, journal->damaged_count);
    if (journal->damaged_count > journal->gap_count)
        SC_LOG(store->params.log, 1,
               "%s/log: %" PRIu64 " damaged records were restored, the first at byte %" PRIu64
               " or behind it",
               store->dir, journal->damaged_count - journal->gap_count, journal->damaged_offset);
    if (journal->gap_count > 0)
        SC_LOG(store->params.log, 1,
               "%s/log: the records of %" PRIu64 " damaged ranges are lost, the first at byte "
               "%" PRIu64 " or behind it",
               store->dir, journal->gap_count, journal->damaged_offset);
    if (!journal->is_torn)
        return;
    sc_store_count(&store->counts.corrupt_records, 1);
    SC_LOG(store->params.log, 1,
           "log ends at byte %" PRIu64 " of %" PRIu64 ": bad record, what follows is forgotten",
           journal->end.offset, journal->file_end);
}

spec_status sc_store_replay_log(struct sc_store *store, struct spec_error *reterr)
{
    spec_status status = sc_store_replay_open(store, reterr);
    if (status == SPEC_OK)
        status = replay_scan(store, reterr);
    if (status == SPEC_OK)
        damage_tell(store);
    atomic_store(&store->counts.log_bytes, store->log.journal.file_end);
    if (status == SPEC_OK)
        status = sc_store_replay_begin_log(store, reterr);
    if (status == SPEC_OK)
        status = replay_drop_refused(store, reterr);
    if (store->replay != NULL && store->replay->frees_early)
        store->disk.retry_ns =
            sc_exec_now_ns(store->params.exec) + store->params.config->lease_ns_max;
    if (status == SPEC_OK) {
        sc_store_log_new_remove_all(store);
        sc_store_write_budget_file_remove(store);
        sc_store_hints_trim(store);
        sc_store_segments_trim(store);
        sc_store_replay_shorten(store);
        if (store->params.shares && sc_store_segments_differ(store))
            status = sc_store_checkpoint(store, reterr);
    }
    sc_store_replay_close(store);
    return status;
}
