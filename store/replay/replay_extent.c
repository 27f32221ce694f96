/* replay_extent: replays extents and the sections built for them later.
 *
 *   extent    takes its pages; its pieces follow directly
 *   section   takes its own pages, and is found from its extent
 *   order     slots of a permuted copy, kept until its section's record; a later copy replaces it
 *   gone      an earlier version kept quantised rows and no rows of the extent: its pieces are void
 *
 * An extent without pieces frees its pages when another record follows, as commit would have.
 *
 * Invariants: live extents do not overlap: the later record of a page is invalid. */
#include "store/log/apply.h"
#include "store/log/record_format.h"
#include "store/log/where.h"
#include "store/replay/replay.h"
#include "store/rows/row_permutation.h"

#include <string.h>

/* ---- Extents -------------------------------------------------------------------------------- */

static bool pages_take(struct sc_store *store, uint64_t index, uint64_t page, uint64_t pages)
{
    bool at_open = sc_store_replay_at_open(store);
    if (!at_open)
        pthread_mutex_lock(&store->disk.lock);
    bool fits = sc_store_space_take_at(&store->disk.space, index, page, pages);
    if (fits)
        store->disk.extent_bytes += pages * SC_IO_PAGE_BYTES;
    if (!at_open)
        pthread_mutex_unlock(&store->disk.lock);
    return fits;
}

/* Takes pages, also those of quarantined pieces, the oldest first: the writer reused them, so their
 * leases had ended, whatever our clock says. */
static bool replay_take(struct sc_store *store, uint64_t index, uint64_t page, uint64_t pages)
{
    uint64_t due_ns = sc_exec_now_ns(store->params.exec);
    bool fits = pages_take(store, index, page, pages);
    while (!fits && due_ns != UINT64_MAX) {
        if (sc_store_quarantine_release(store, due_ns) > 0)
            fits = pages_take(store, index, page, pages);
        due_ns = sc_store_quarantine_oldest_ns(store);
    }
    return fits;
}

/* The same. Behind lost records their owner gives them up. */
static bool range_take(struct sc_store *store, const struct sc_store_page_range *range)
{
    if (replay_take(store, range->segment, range->page, range->pages))
        return true;
    sc_store_replay_owners_drop(store, range);
    return replay_take(store, range->segment, range->page, range->pages);
}

/* Takes the pages of parts[0 .. count), and turns segment numbers into indices. */
static bool replay_places(struct sc_store *store, struct sc_store_part *parts, uint32_t count,
                          uint64_t stride)
{
    bool at_open = sc_store_replay_at_open(store);
    for (uint32_t i = 0; i < count; i++) /* a number is never reused, file or no file */
        sc_store_segment_number_seen(store, parts[i].segment);
    if (!at_open && !sc_store_follow_places(store, parts, count, stride))
        return false;
    if (!sc_store_keeps_space(store)) /* since one of these segments: it is in no map */
        return true;
    bool is_own = !at_open && store->log.turn.has_torn &&
                  store->extent_hand(store, store->replay->record.extent.copy);
    for (uint32_t i = 0; i < count; i++) {
        uint64_t index =
            at_open ? sc_store_segment_find(store, parts[i].segment) : parts[i].segment;
        if (is_own) /* they are taken */
            continue;
        const struct sc_store_page_range range = {index, parts[i].offset / SC_IO_PAGE_BYTES,
                                                  sc_store_part_pages(&parts[i], stride)};
        if (index == store->disk.segment_max || !range_take(store, &range)) {
            sc_store_extent_free(store, parts, i, stride, 0);
            return false;
        }
        parts[i].segment = (uint32_t)index;
    }
    return true;
}

/* Finds the places of an extent or section; is_new: takes their pages, where the space is kept. */
static bool places_find(struct sc_store *store, struct sc_store_part *parts, uint32_t count,
                        uint64_t stride, bool is_new)
{
    if (sc_store_keeps_space(store) && is_new)
        return replay_places(store, parts, count, stride);
    return sc_store_follow_places(store, parts, count, stride);
}

static bool extent_fits(const struct sc_store_record_extent *extent,
                        const struct sc_store_shape *shape)
{
    const struct sc_store_part *last = &extent->parts[extent->part_count - 1];
    return sc_store_record_extent_fits(extent, shape->tags_per_row, shape->k_row_bytes) &&
           last->layer_first + last->layer_count == shape->layer_count;
}

/* Returns true if a follower that reads the log again finds the same extent. */
static bool extent_is(const struct sc_store_extent_entry *entry,
                      const struct sc_store_record_extent *extent)
{
    return entry->row_offset == extent->row_offset && entry->stride == extent->stride &&
           entry->probe_offset == extent->probe_offset && entry->tag_offset == extent->tag_offset &&
           entry->probe_tag_offset == extent->probe_tag_offset &&
           entry->probe_row_bytes == extent->probe_row_bytes &&
           entry->row_count == extent->row_count && entry->space == extent->space &&
           entry->copy == extent->copy && entry->part_count == extent->part_count &&
           memcmp(&entry->provenance, &extent->provenance, sizeof(extent->provenance)) == 0 &&
           memcmp(entry->parts, extent->parts, extent->part_count * sizeof(*extent->parts)) == 0;
}

/* known: the extent, if it was read before; else without rows. */
static bool extent_believe(struct sc_store *store, struct sc_store_replay *replay,
                           const struct sc_store_extent_entry *known)
{
    struct sc_store_record_extent *extent = &replay->record.extent;
    const struct sc_store_shape *shape = NULL;
    if (extent->space < replay->space_next)
        shape = sc_store_space_find(&store->log.spaces, extent->space);
    if (shape == NULL || !extent_fits(extent, shape)) {
        sc_store_replay_lie(store, "extent's geometry");
        return false;
    }
    bool is_new = known->row_count == 0, takes = is_new || known->is_unplaced;
    bool reads = store->params.role != SC_STORE_PEER && shape->is_own;
    if (!reads && !sc_store_keeps_space(store) && (is_new || known->part_count == 0))
        extent->part_count = 0;
    if (places_find(store, extent->parts, extent->part_count, extent->stride, takes))
        return true;
    if (!sc_store_replay_lacks_pages(store)) {
        sc_store_replay_lie(store, "extent's place is outside or taken");
        if (!is_new && takes)
            sc_store_heir_end(store, "its log gives pages twice");
    }
    return false;
}

/* Takes the next id, or one left free for a compacted extent. The first record with an id owns it,
 * valid or not. */
static bool id_take(struct sc_store_replay *replay, uint64_t *next, uint64_t *ret_id)
{
    uint64_t id = replay->record.id;
    if (sc_store_replay_id_take(next, replay->extent_base, id, ret_id))
        return true;
    *ret_id = id + replay->extent_base;
    return sc_store_replay_late_extent(replay, id);
}

static void late_note(struct sc_store *store)
{
    sc_store_replay_table_lock(store);
    store->log.has_late = true;
    sc_store_replay_table_unlock(store);
}

/* Returns true if ids after the extent are left free; a compacted extent leaves none. */
static bool leaves_ids(const struct sc_store_replay *replay, bool decodes)
{
    return decodes && replay->record.extent.leaves_ids && replay->late_open == 0 &&
           replay->record.id + 1 < SC_STORE_IDS - replay->extent_base;
}

spec_status sc_store_replay_extent(struct sc_store *store, struct sc_store_replay *replay,
                                   bool decodes, struct spec_error *reterr)
{
    struct sc_store_record_extent *extent = &replay->record.extent;
    struct sc_store_table *table = &store->table;
    uint64_t id, next = replay->extent_next;
    if (!id_take(replay, &next, &id)) {
        sc_store_replay_lie(store, "id out of order");
        return SPEC_OK;
    }
    bool is_late = replay->late_open != 0, leaves = leaves_ids(replay, decodes);
    uint64_t ids = is_late ? 0 : 1 + (leaves ? 1 : 0);
    sc_store_replay_table_lock(store);
    if (id >= table->extent_next)
        table->extent_next = id;
    bool fits = sc_store_table_reserve(table, 0, ids, decodes ? extent->part_count : 0);
    if (fits && id == table->extent_next)
        table->extent_next += ids;
    sc_store_replay_table_unlock(store);
    if (fits && leaves)
        fits = sc_store_replay_left_add(store, replay->record.id, extent->row_count);
    if (!fits)
        return sc_fail(reterr, SPEC_E_NO_MEMORY, "table of extents");
    if (is_late)
        late_note(store);
    replay->extent_next = next + (leaves ? 1 : 0);
    struct sc_store_extent_entry *entry = sc_store_table_extent(table, id);
    if (entry == NULL || !decodes) {
        sc_store_replay_lie(store, decodes ? "an id that was left out"
                                           : "a key is missing or out of range");
        return SPEC_OK;
    }
    if (is_late && extent->leaves_ids) { /* a checkpoint may reorder it */
        sc_store_replay_lie(store, "an extent that took an id and leaves some");
        return SPEC_OK;
    }
    bool is_new = entry->row_count == 0;
    if (!extent_believe(store, replay, entry))
        return SPEC_OK;
    if (!is_new && !extent_is(entry, extent)) {
        sc_store_replay_lie(store, "another extent under this id");
        sc_store_heir_end(store, "its log was written anew");
        return SPEC_OK;
    }
    extent->leaves_ids = leaves;
    sc_store_replay_table_lock(store);
    if (is_new)
        (void)sc_store_apply_extent(store, id, extent);
    sc_store_replay_table_unlock(store);
    sc_store_extent_placed(store, id);
    replay->extent_open = id;
    replay->extent_rows = 0;
    replay->provenance = extent->provenance;
    return SPEC_OK;
}

/* Ends the open extent: pages of rows without a piece are freed. */
void sc_store_replay_extent_end(struct sc_store *store)
{
    uint64_t id = store->replay->extent_open;
    store->replay->extent_open = store->replay->left_open = store->replay->late_open = 0;
    if (id != 0)
        sc_store_extent_trim(store, id);
}

/* ---- Derived sections
 * --------------------------------------------------------------------------- */

static bool derived_is(const struct sc_store_section *derived,
                       const struct sc_store_record_extent *record)
{
    return derived->copy == record->copy && derived->stride == record->stride &&
           derived->probe_offset == record->probe_offset &&
           derived->probe_tag_offset == record->probe_tag_offset &&
           derived->probe_row_bytes == record->probe_row_bytes &&
           memcmp(&derived->codec_shape, &record->codec_shape, sizeof(derived->codec_shape)) == 0 &&
           derived->tag_offset == record->tag_offset && derived->row_offset == record->row_offset &&
           derived->part_count == record->part_count &&
           memcmp(derived->parts, record->parts, derived->part_count * sizeof(*derived->parts)) ==
               0;
}

/* Accepts quantised rows of other namespaces, which are never read here. */
static bool quant_fit(const struct sc_store *store, const struct sc_store_extent_entry *extent,
                      const struct sc_store_codec_shape *shape)
{
    const struct sc_store_quant *codes = &store->params.codes;
    return shape->bits_k == 0 || codes->fits == NULL ||
           extent->space != atomic_load(&store->log.space_id) || codes->fits(codes->user, shape);
}

/* ---- Permuted copies
 * ---------------------------------------------------------------------------- */

void sc_store_replay_permutation_end(struct sc_store *store)
{
    struct sc_store_replay_permutation *permutation = &store->replay->permutation;
    sc_alloc_free(store->params.alloc, permutation->slots);
    *permutation = (struct sc_store_replay_permutation){0};
}

static bool permutation_continues(const struct sc_store_replay_permutation *permutation,
                                  const struct sc_store_record *record)
{
    return record->permutation.layer_first == 0 ||
           (permutation->slots != NULL && permutation->extent == record->id &&
            permutation->copy == record->permutation.copy &&
            permutation->layer_next == record->permutation.layer_first);
}

spec_status sc_store_replay_permutation(struct sc_store *store, struct spec_error *reterr)
{
    struct sc_store_replay *replay = store->replay;
    struct sc_store_replay_permutation *permutation = &replay->permutation;
    const struct sc_store_record *record = &replay->record;
    const struct sc_store_extent_entry *extent = NULL;
    uint64_t seen[SC_STORE_ROWS_MAX / 64];
    if (record->id > 0 && record->id < replay->extent_next)
        extent = sc_store_table_extent(&store->table, record->id + replay->extent_base);
    if (extent == NULL || extent->row_count == 0 || extent->part_count == 0)
        return SPEC_OK; /* its section's record is ignored, too */
    uint64_t layers = sc_store_space_of(&store->log.spaces, extent->space)->layer_count,
             rows = extent->row_count;
    uint64_t count = record->permutation.slots_bytes / 2 / rows;
    bool fits = record->permutation.slots_bytes == count * rows * 2 &&
                permutation_continues(permutation, record) &&
                count <= layers - record->permutation.layer_first;
    if (record->permutation.layer_first == 0)
        sc_store_replay_permutation_end(store);
    if (fits && permutation->slots == NULL)
        permutation->slots =
            sc_alloc_zero(store->params.alloc, sc_store_permutation_words(rows) * 8 * layers);
    if (fits && permutation->slots == NULL)
        return sc_fail(reterr, SPEC_E_NO_MEMORY, "the row permutation of %" PRIu64 " rows", rows);
    permutation->extent = record->id;
    permutation->copy = record->permutation.copy;
    permutation->layer_next = record->permutation.layer_first + count;
    for (uint64_t layer = 0; layer < count && fits; layer++) {
        uint16_t *slots = sc_store_permutation_of(
            permutation->slots, rows, (uint32_t)(record->permutation.layer_first + layer));
        for (uint64_t i = 0; i < rows; i++)
            slots[i] =
                (uint16_t)sc_store_le_get(record->permutation.slots + (layer * rows + i) * 2, 2);
        fits = sc_store_permutation_is(slots, rows, seen);
    }
    if (fits)
        return SPEC_OK;
    sc_store_replay_permutation_end(store);
    sc_store_replay_lie(store, "a row permutation that is none");
    return SPEC_OK;
}

/* Returns true if all slots of the record's section were found. */
static bool permutation_is_whole(const struct sc_store *store,
                                 const struct sc_store_extent_entry *extent)
{
    const struct sc_store_replay_permutation *permutation = &store->replay->permutation;
    const struct sc_store_record *record = &store->replay->record;
    return permutation->slots != NULL && permutation->extent == record->id &&
           permutation->copy == record->extent.copy &&
           permutation->layer_next ==
               sc_store_space_of(&store->log.spaces, extent->space)->layer_count &&
           record->extent.probe_row_bytes == extent->probe_row_bytes;
}

/* ---- Sections of extents
 * ------------------------------------------------------------------------ */

static void derived_set(struct sc_store_section *derived,
                        const struct sc_store_record_extent *record)
{
    derived->copy = record->copy;
    derived->stride = record->stride;
    derived->probe_offset = record->probe_offset;
    derived->probe_tag_offset = record->probe_tag_offset;
    derived->probe_row_bytes = (uint32_t)record->probe_row_bytes;
    derived->tag_offset = record->tag_offset;
    derived->row_offset = record->row_offset;
    derived->permuted_at_ns = record->permuted_at_ns;
    derived->codec_shape = record->codec_shape;
    memcpy(derived->parts, record->parts, record->part_count * sizeof(*record->parts));
}

/* Returns true if the record's section can be one of the extent. */
static bool section_fits(const struct sc_store *store, const struct sc_store_extent_entry *extent,
                         const struct sc_store_shape *shape)
{
    const struct sc_store_record_extent *record = &store->replay->record.extent;
    const struct sc_store_part *last = &record->parts[record->part_count - 1];
    return sc_store_record_section_fits(record, extent->row_count, shape->tags_per_row,
                                        shape->k_row_bytes) &&
           (!record->is_order || permutation_is_whole(store, extent)) &&
           quant_fit(store, extent, &record->codec_shape) &&
           last->layer_first + last->layer_count == shape->layer_count;
}

static bool rows_wait(struct sc_store *store, const struct sc_store_extent_entry *extent)
{
    pthread_mutex_lock(&store->disk.lock);
    bool waits = extent->rows_wait;
    pthread_mutex_unlock(&store->disk.lock);
    return waits;
}

/* A permuted copy follows another: the writer had freed the copy before that, so it is freed here,
 * with what is older, whatever our clock says. */
static void rows_free(struct sc_store *store, const struct sc_store_extent_entry *extent)
{
    uint64_t due_ns = sc_exec_now_ns(store->params.exec);
    while (rows_wait(store, extent) && due_ns != UINT64_MAX) {
        (void)sc_store_quarantine_release(store, due_ns);
        due_ns = sc_store_quarantine_oldest_ns(store);
    }
}

/* Returns true if an heir knows the section, and its pages are to be taken again. */
static bool is_unheld(const struct sc_store *store, struct sc_store_extent_entry *extent,
                      const struct sc_store_section *known)
{
    return !sc_store_replay_at_open(store) && sc_store_keeps_space(store) &&
           atomic_load(sc_store_section_held(extent, known)) == NULL;
}

/* The pages of a section that an heir knows were taken again; they are held by it. */
static void section_retake(struct sc_store *store, uint64_t id, struct sc_store_section *known)
{
    const struct sc_store_record_extent *record = &store->replay->record.extent;
    if (!sc_store_section_hold(store, id, known))
        sc_store_extent_free(store, record->parts, record->part_count, record->stride, 0);
    else if (record->is_order)
        (void)sc_store_rows_quarantine(store, id, record->permuted_at_ns);
}

/* Adds the record's section, whose pages are taken, to the extent, at `place` of it. */
static spec_status section_add(struct sc_store *store, uint64_t id,
                               struct sc_store_extent_entry *extent,
                               struct sc_store_section *_Atomic *place, struct spec_error *reterr)
{
    const struct sc_store_record_extent *record = &store->replay->record.extent;
    const struct sc_store_shape *shape = sc_store_space_of(&store->log.spaces, extent->space);
    uint64_t words = sc_store_permutation_words(extent->row_count) * (uint64_t)shape->layer_count;
    sc_store_replay_table_lock(store);
    struct sc_store_section *derived =
        record->is_order ? sc_store_table_permutation(&store->table, extent, record->part_count,
                                                      words, sc_exec_now_ns(store->params.exec))
                         : sc_store_table_section(&store->table, record->part_count, 0);
    sc_store_replay_table_unlock(store);
    if (derived == NULL) {
        if (sc_store_keeps_space(store)) /* it may be applied again */
            sc_store_extent_free(store, record->parts, record->part_count, record->stride, 0);
        return sc_fail(reterr, SPEC_E_NO_MEMORY, "a derived section of %" PRIu32 " parts",
                       record->part_count);
    }
    derived_set(derived, record);
    if (record->is_order)
        memcpy(derived->slots, store->replay->permutation.slots, words * 8);
    if (sc_store_keeps_space(store) && !sc_store_section_hold(store, id, derived)) {
        sc_store_extent_free(store, derived->parts, derived->part_count, derived->stride, 0);
        return SPEC_OK;
    }
    if (!record->is_order) {
        atomic_store_explicit(place, derived, memory_order_release);
        return SPEC_OK;
    }
    sc_store_table_permutation_set(extent, derived, sc_store_permutation_reusable_ns(store));
    sc_store_count(&store->counts.permute_queue, 1);
    (void)sc_store_rows_quarantine(store, id, record->permuted_at_ns);
    return SPEC_OK;
}

spec_status sc_store_replay_section(struct sc_store *store, struct spec_error *reterr)
{
    struct sc_store_replay *replay = store->replay;
    struct sc_store_record_extent *record = &replay->record.extent;
    uint64_t id = replay->record.id + replay->extent_base;
    bool is_known = replay->record.id > 0 && replay->record.id < replay->extent_next;
    struct sc_store_extent_entry *extent =
        is_known ? sc_store_table_extent(&store->table, id) : NULL;
    if (record->is_retired || extent == NULL || extent->row_count == 0 || extent->part_count == 0 ||
        (sc_store_keeps_space(store) && !sc_store_extent_is_live(store, id)))
        return SPEC_OK;
    if (record->is_replaced) { /* the copy that replaced it follows */
        (void)sc_store_rows_quarantine(store, id, record->permuted_at_ns);
        return SPEC_OK;
    }
    const struct sc_store_shape *shape = sc_store_space_of(&store->log.spaces, extent->space);
    const struct sc_store_section like = {.codec_shape = record->codec_shape,
                                          .slots =
                                              record->is_order ? replay->permutation.slots : NULL};
    struct sc_store_section *_Atomic *place = sc_store_section_place(extent, &like);
    struct sc_store_section *known = atomic_load(place);
    bool fits = section_fits(store, extent, shape);
    bool is_next = known != NULL && record->is_order &&
                   record->permuted_at_ns > known->permuted_at_ns; /* else read again, by others */
    if (!fits || (sc_store_replay_at_open(store) && known != NULL && !is_next)) {
        sc_store_replay_lie(store,
                            fits ? "a second derived section" : "a derived section's geometry");
        return SPEC_OK;
    }
    bool is_new = known == NULL || is_next;
    bool is_again = !is_new && is_unheld(store, extent, known); /* after sc_store_pages_forget */
    if (is_again && record->is_order && known->copy != record->copy) {
        (void)sc_store_rows_quarantine(store, id, record->permuted_at_ns); /* `known` replaced it */
        return SPEC_OK;
    }
    if (is_next && sc_store_keeps_space(store))
        rows_free(store, extent);
    if (!places_find(store, record->parts, record->part_count, record->stride,
                     is_new || is_again)) {
        if (!sc_store_replay_lacks_pages(store))
            sc_store_replay_lie(store, "a derived section's pages are outside or taken");
        return SPEC_OK;
    }
    if (is_again && (record->is_order || derived_is(known, record))) {
        section_retake(store, id, known);
        return SPEC_OK;
    }
    if (!is_new && (derived_is(known, record) || record->is_order))
        return SPEC_OK; /* read again */
    if (!is_new)
        sc_store_heir_end(store, "its log was written anew");
    return section_add(store, id, extent, place, reterr);
}

/* ---- Extents without rows ------------------------------------------------------------------- */

/* The extent's pieces are void without drop records. */
void sc_store_replay_rows_gone(struct sc_store *store)
{
    const struct sc_store_replay *replay = store->replay;
    uint64_t id = replay->record.id + replay->extent_base;
    if (replay->record.id == 0 || replay->record.id >= replay->extent_next)
        return;
    const struct sc_store_extent_entry *extent = sc_store_table_extent(&store->table, id);
    if (extent == NULL)
        return;
    for (uint64_t i = extent->piece_first; i <= extent->piece_last; i++) {
        const struct sc_store_piece_entry *piece = sc_store_table_piece(&store->table, i);
        uint32_t state = piece != NULL ? atomic_load(&piece->state) : SC_STORE_PIECE_NONE;
        bool is_held = state == SC_STORE_PIECE_LIVE || state == SC_STORE_PIECE_DOOMED ||
                       (state == SC_STORE_PIECE_DROPPED && !sc_store_replay_at_open(store));
        if (!is_held || piece->extent != id)
            continue;
        sc_store_replay_drop(store, i);
        sc_store_replay_dropped(store, i, replay->record.drop.at_ns);
    }
}
