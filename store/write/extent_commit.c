/* extent_commit: makes written extents and sections findable by one append to the log.
 *
 *   extent   [namespace, when it is new][extent][piece][piece]...   one write; then the table
 *   section  [section]                                              then its extent points to it
 *
 * Crash safety: the log has no byte of an extent before all its writes completed. The table gets it
 * after the log. Nothing is synced here. Only table slabs are allocated after open.
 * Threads: any, one per extent; the log lock is held for the append and the table.
 * Tests: tests/unit/store/test_store.c, test_build.c, tests/fault/test_store_faults.c */
#include "store/log/apply.h"
#include "store/rows/row_permutation.h"
#include "store/write/extent.h"
#include "store/write/inline_quant.h"
#include "store/write/write_through.h"

#include <string.h>

static const struct sc_store_mark *marks_in(const struct sc_store_commit *commit, uint64_t first,
                                            uint64_t end, uint32_t *ret_count)
{
    uint64_t low = 0;
    while (low < commit->mark_count && commit->marks[low].token < first)
        low++;
    uint64_t high = low;
    while (high < commit->mark_count && commit->marks[high].token < end)
        high++;
    *ret_count = (uint32_t)(high - low);
    return high > low ? &commit->marks[low] : NULL;
}

/* Ids of the extent and its first piece. leaves: one id stays free after each. The last piece ends
 * a chunk that others began; their compaction takes the free ids. */
struct ids {
    uint64_t extent, piece;
    bool leaves;
};

/* The record of piece i, which is written from commit->piece_first on. */
static struct sc_store_piece piece_of(const struct sc_store_extent *extent,
                                      const struct sc_store_commit *commit, const struct ids *ids,
                                      uint32_t i, uint64_t extent_row)
{
    const struct sc_store_piece_plan *plan = &extent->pieces[i];
    struct sc_store_piece piece = {.id = ids->piece + i - commit->piece_first,
                                   .extent = ids->extent,
                                   .first_position = plan->first_position,
                                   .chunk_first = plan->chunk_first,
                                   .extent_row = (uint32_t)extent_row,
                                   .row_count = plan->row_count,
                                   .skip = i == commit->piece_first ? commit->skip : 0,
                                   .tokens =
                                       commit->tokens + (plan->chunk_first - commit->token_first)};
    memcpy(piece.root, commit->root, SC_STORE_SHA256_BYTES);
    memcpy(piece.chunk_hash, plan->chunk_hash, SC_STORE_HASH_BYTES);
    memcpy(piece.hash, plan->hash, SC_STORE_HASH_BYTES);
    piece.marks = marks_in(commit, plan->chunk_first, plan->first_position + plan->row_count,
                           &piece.mark_count);
    return piece;
}

static const struct sc_store_provenance *provenance_of(const struct sc_store_extent *extent,
                                                       const struct sc_store_commit *commit)
{
    return commit->provenance != NULL ? commit->provenance : &extent->provenance;
}

/* Members leave none: they do not compact. */
static bool leaves_ids(const struct sc_store_extent *extent, const struct sc_store_commit *commit)
{
    if (sc_store_is_member(extent->store))
        return false;
    const struct sc_store_piece_plan *last = &extent->pieces[extent->piece_count - 1];
    uint32_t skip = commit->piece_first + 1 == extent->piece_count ? commit->skip : 0;
    uint64_t chunk = extent->store->params.config->chunk_tokens;
    return (last->first_position + skip) % chunk != 0 &&
           (last->first_position + last->row_count) % chunk == 0;
}

/* Log lock held. STALE: the ids after `behind` are taken. BUSY: a checkpoint may have passed
 * them. */
static spec_status ids_find(const struct sc_store_extent *extent,
                            const struct sc_store_commit *commit, struct ids *ret_ids,
                            struct spec_error *reterr)
{
    const struct sc_store_table *table = &extent->store->table;
    struct sc_store_piece_place place;
    *ret_ids = (struct ids){table->extent_next, table->piece_next, leaves_ids(extent, commit)};
    if (commit->behind == 0)
        return SPEC_OK;
    if (extent->store->log.is_copied)
        return sc_fail(reterr, SPEC_E_BUSY, "%s/log is being written anew", extent->store->dir);
    if (!sc_store_piece_place(extent->store, commit->behind, &place) || !place.leaves_ids)
        return sc_fail(reterr, SPEC_E_STALE, "no ids are free behind piece %" PRIu64,
                       commit->behind);
    ret_ids->extent = sc_store_table_piece(table, commit->behind)->extent + 1ull;
    ret_ids->piece = commit->behind + 1;
    ret_ids->leaves = false;
    return SPEC_OK;
}

/* Replaces segment indexes by file numbers, as records need. */
static struct sc_store_part *parts_numbered(struct sc_store_extent *extent)
{
    const struct sc_store *store = extent->store;
    for (uint32_t i = 0; i < extent->part_count; i++) {
        extent->record_parts[i] = extent->parts[i];
        extent->record_parts[i].segment = store->disk.segments[extent->parts[i].segment].number;
    }
    return extent->record_parts;
}

/* Log lock held. The record of the extent; its parts name segments by their files' numbers. */
static struct sc_store_record_extent record_of(struct sc_store_extent *extent,
                                               const struct sc_store_commit *commit,
                                               const struct ids *ids)
{
    const struct sc_store *store = extent->store;
    uint32_t space_id = atomic_load(&store->log.space_id);
    return (struct sc_store_record_extent){.space =
                                               space_id != 0 ? space_id : store->log.spaces.next,
                                           .copy = extent->copy,
                                           .row_count = extent->row_count,
                                           .probe_tag_offset = extent->place.probe_tag_offset,
                                           .tag_offset = extent->place.tag_offset,
                                           .row_offset = extent->place.row_offset,
                                           .probe_row_bytes = extent->probe_row_bytes,
                                           .stride = extent->place.stride,
                                           .provenance = *provenance_of(extent, commit),
                                           .leaves_ids = ids->leaves,
                                           .salt = extent->salt,
                                           .part_count = extent->part_count,
                                           .parts = parts_numbered(extent)};
}

/* Log lock held. Appends namespace (when new), extent and pieces in one write. */
static spec_status commit_append(const struct sc_store_extent *extent,
                                 const struct sc_store_commit *commit, const struct ids *ids,
                                 const struct sc_store_record_extent *record,
                                 struct spec_error *reterr)
{
    struct sc_store *store = extent->store;
    struct sc_store_append append;
    sc_store_append_begin(store, &append);
    if (atomic_load(&store->log.space_id) == 0) {
        sc_store_append_frame(&append);
        sc_store_record_encode_space(&append.writer, record->space, &store->params.space);
    }
    sc_store_append_frame(&append);
    sc_store_record_encode_extent(&append.writer, ids->extent, record);
    uint64_t extent_row = 0;
    for (uint32_t i = 0; i < extent->piece_count; i++) {
        struct sc_store_piece piece = piece_of(extent, commit, ids, i, extent_row);
        extent_row += piece.row_count;
        if (i < commit->piece_first)
            continue;
        sc_store_append_frame(&append);
        sc_store_record_encode_piece(&append.writer, &piece);
    }
    return sc_store_append_commit(store, &append, reterr);
}

/* Log lock held. Takes the ids; the log has their records. */
static void ids_take(struct sc_store *store, const struct ids *ids, uint64_t piece_count)
{
    struct sc_store_table *table = &store->table;
    uint64_t more = ids->leaves ? 1 : 0;
    store->log.journal.pieces_read += piece_count;
    if (ids->extent < table->extent_next)
        return;
    table->extent_next = ids->extent + 1 + more;
    table->piece_next = ids->piece + piece_count + more;
}

/* Log lock held. The append failed, but a follower may have read it: the ids are never reused. */
static void ids_void(struct sc_store *store, const struct ids *ids, uint64_t piece_count)
{
    struct sc_store_table *table = &store->table;
    uint64_t more = ids->leaves ? 1 : 0;
    if (ids->extent < table->extent_next) { /* left free: a drop record will void it */
        struct sc_store_piece_entry *piece = sc_store_table_piece(table, ids->piece);
        atomic_store(&piece->state, SC_STORE_PIECE_DROPPED);
        piece->next = store->log.unwritten;
        store->log.unwritten = (uint32_t)ids->piece;
        return;
    }
    table->extent_next = ids->extent + 1 + more;
    table->piece_next = ids->piece + piece_count + more;
}

/* Log lock held; the records are in the log and table room was reserved. */
static void commit_publish(struct sc_store_extent *extent, const struct sc_store_commit *commit,
                           const struct ids *ids, struct sc_store_record_extent *record)
{
    struct sc_store *store = extent->store;
    uint64_t piece_count = extent->piece_count - commit->piece_first, extent_row = 0;
    if (atomic_load(&store->log.space_id) == 0) {
        const struct sc_store_shape *shape =
            sc_store_spaces_add(&store->log.spaces, store->log.spaces.next, &store->shape,
                                sc_store_record_bytes_space(strlen(store->descriptor)));
        atomic_store(&store->log.space_id, shape->id);
        if (store->turn_calls != NULL)
            store->turn_calls->space_appended(store, shape->id);
    }
    ids_take(store, ids, piece_count);
    if (store->turn_calls != NULL)
        store->turn_calls->extent_appended(store, ids->extent + 1, ids->piece + piece_count);
    record->parts = extent->parts; /* by index */
    struct sc_store_extent_entry *entry = sc_store_apply_extent(store, ids->extent, record);
    atomic_store(&entry->is_quantising, extent->live != NULL && commit->skip == 0);
    entry->piece_first = ids->piece;
    entry->piece_last = ids->piece + piece_count - 1;
    for (uint32_t i = 0; i < extent->piece_count; i++) {
        const struct sc_store_piece piece = piece_of(extent, commit, ids, i, extent_row);
        extent_row += piece.row_count;
        if (i >= commit->piece_first)
            sc_store_apply_piece(store, &piece, SC_STORE_PIECE_LIVE, 0, false);
    }
}

/* Returns the log bytes of marks, unknown at begin. SPEC_E_BUSY: too many in one piece. */
static spec_status commit_marks(const struct sc_store_extent *extent,
                                const struct sc_store_commit *commit, uint64_t *ret_bytes,
                                struct spec_error *reterr)
{
    uint64_t bytes = 0;
    for (uint32_t i = commit->piece_first; i < extent->piece_count && commit->mark_count > 0; i++) {
        const struct sc_store_piece_plan *plan = &extent->pieces[i];
        uint32_t count;
        (void)marks_in(commit, plan->chunk_first, plan->first_position + plan->row_count, &count);
        if (count > SC_STORE_MARKS_MAX)
            return sc_fail(reterr, SPEC_E_BUSY, "%" PRIu32 " extra keys in one chunk, at most %u",
                           count, (unsigned)SC_STORE_MARKS_MAX);
        bytes += sc_store_record_bytes_piece(0, count);
    }
    *ret_bytes = bytes;
    return SPEC_OK;
}

static uint64_t rows_kept(const struct sc_store_extent *extent,
                          const struct sc_store_commit *commit)
{
    uint64_t rows = 0;
    for (uint32_t i = commit->piece_first; i < extent->piece_count; i++)
        rows += extent->pieces[i].row_count;
    return rows - commit->skip;
}

/* Log lock held. A compacted piece takes its sources' salt. DROPPED: the salt was erased since
 * begin. */
static spec_status salt_settle(struct sc_store_extent *extent, const struct sc_store_commit *commit,
                               struct spec_error *reterr)
{
    const struct sc_store_table *table = &extent->store->table;
    const struct sc_store_piece_entry *behind =
        commit->behind != 0 ? sc_store_table_piece(table, commit->behind) : NULL;
    if (behind != NULL && behind->extent != 0)
        extent->salt = sc_store_table_extent(table, behind->extent)->salt;
    return atomic_load(&extent->is_erased) ? sc_fail(reterr, SPEC_E_DROPPED, "its rows were erased")
                                           : SPEC_OK;
}

static spec_status commit_run(struct sc_store_extent *extent, const struct sc_store_commit *commit,
                              uint64_t *ret_first_id, struct spec_error *reterr)
{
    struct sc_store *store = extent->store;
    uint64_t count = extent->piece_count - commit->piece_first, marks_bytes = 0;
    struct ids ids = {0};
    struct sc_store_record_extent record;
    spec_status status = commit_marks(extent, commit, &marks_bytes, reterr), failed = SPEC_OK;
    if (status == SPEC_OK && !sc_store_log_reserve(store, marks_bytes))
        status =
            sc_fail(reterr, SPEC_E_NO_SPACE, "%s: no room for the log in disk_bytes", store->dir);
    if (status != SPEC_OK)
        return status;
    extent->log_bytes += marks_bytes;
    sc_store_log_enter(store);
    /* One more of each, for ids left free. */
    if (!sc_store_table_reserve(&store->table, count + 1, 2, extent->part_count))
        status = sc_fail(reterr, SPEC_E_NO_MEMORY, "table of pieces");
    else if (atomic_load(&store->log.space_id) == 0)
        status = sc_store_spaces_take(&store->log.spaces, SPEC_E_BUSY, store->dir, reterr);
    if (status == SPEC_OK)
        status = salt_settle(extent, commit, reterr);
    if (status == SPEC_OK)
        status = ids_find(extent, commit, &ids, reterr);
    if (status == SPEC_OK) {
        record = record_of(extent, commit, &ids);
        status = commit_append(extent, commit, &ids, &record, reterr);
        failed = status;
    }
    bool is_lost = failed == SPEC_PENDING;
    if (failed != SPEC_OK && !sc_store_is_member(store)) {
        ids_void(store, &ids, count);
        if (commit->behind != 0) /* its drop record still needs room */
            extent->log_bytes -= SC_STORE_DROP_BYTES;
    }
    if (status == SPEC_OK)
        commit_publish(extent, commit, &ids, &record);
    store->log.has_late = store->log.has_late || (status == SPEC_OK && commit->behind != 0);
    sc_store_log_leave(store);
    if (is_lost) {
        extent->log_bytes -= marks_bytes;
        sc_store_log_unreserve(store, marks_bytes);
        return SPEC_PENDING;
    }
    if (status == SPEC_OK) {
        *ret_first_id = ids.piece;
        if (extent->written == NULL) /* compacted rows are counted already */
            sc_store_count(&store->counts.stored_row_bytes, rows_kept(extent, commit) *
                                                                store->shape.row_bytes *
                                                                store->shape.layer_count);
        sc_store_extent_trim(store, ids.extent);
        /* A piece with skipped rows has different first blocks, so it is not quantised inline. */
        sc_store_inline_quant_end(extent->live, commit->skip == 0 ? ids.extent : 0);
        if (commit->behind != 0) /* a run of build_sections may have passed it */
            store->quant_missed(store, ids.extent);
    }
    if (failed != SPEC_OK)
        sc_store_pause(store, failed, "writing the log");
    return status;
}

spec_status sc_store_extent_commit(struct sc_store_extent *extent,
                                   const struct sc_store_commit *commit, uint64_t *ret_first_id,
                                   struct spec_error *reterr)
{
    struct sc_store *store = extent->store;
    SC_ASSERT(store->params.poison, extent->ended && atomic_load(&extent->pending) == 0);
    spec_status status = atomic_load(&extent->status);
    uint64_t first_id = 0;
    if (status != SPEC_OK)
        status = sc_fail(reterr, status, "the extent was not written");
    else if (commit->piece_first > extent->piece_count ||
             (commit->piece_first < extent->piece_count &&
              commit->skip >= extent->pieces[commit->piece_first].row_count))
        status = sc_fail(reterr, SPEC_E_INVALID,
                         "piece_first %" PRIu32 " of %" PRIu32 " pieces, skip %" PRIu32,
                         commit->piece_first, extent->piece_count, commit->skip);
    else if (commit->piece_first < extent->piece_count)
        status = commit_run(extent, commit, &first_id, reterr);
    if (status == SPEC_PENDING)
        return status;
    if (status != SPEC_OK || first_id == 0) { /* failed, or all rows are stored elsewhere */
        sc_store_extent_discard(extent);
        *ret_first_id = status == SPEC_OK ? 0 : *ret_first_id;
        return status;
    }
    uint64_t kept = (extent->piece_count - commit->piece_first) * SC_STORE_DROP_BYTES;
    sc_store_log_unreserve(store, extent->log_bytes - kept);
    sc_store_write_through_layer_end(extent, commit->piece_first, commit->skip, first_id);
    sc_store_extent_put(extent);
    *ret_first_id = first_id;
    return SPEC_OK;
}

/* ---- Commit of a derived section ------------------------------------------------------------- */

static void permutation_set(struct sc_store_section *derived, const struct sc_store_extent *from,
                            const struct sc_store_extent_entry *extent)
{
    derived->probe_tag_offset = from->permutation_place.probe_tag_offset;
    derived->tag_offset = from->permutation_place.tag_offset;
    derived->row_offset = from->permutation_place.row_offset;
    derived->probe_row_bytes = extent->probe_row_bytes;
    memcpy(derived->slots, from->slots,
           sc_store_permutation_words(from->row_count) * 8 * from->store->shape.layer_count);
}

/* Log lock held. Loads planned from now on read the permuted copy. */
static spec_status permutation_publish(struct sc_store *store, struct sc_store_extent_entry *extent,
                                       struct sc_store_section *derived, struct spec_error *reterr)
{
    if (extent->live_count == 0)
        return sc_fail(reterr, SPEC_E_DROPPED, "its pieces are void");
    sc_store_count(&store->counts.permute_queue, 1);
    sc_store_table_permutation_set(extent, derived, sc_store_permutation_reusable_ns(store));
    return SPEC_OK;
}

/* Log lock held. Appends the record and publishes the section. */
static spec_status derived_append(struct sc_store_extent *extent, struct sc_store_section *derived,
                                  uint64_t extent_id, struct spec_error *reterr)
{
    struct sc_store *store = extent->store;
    struct sc_store_extent_entry *entry = sc_store_table_extent(&store->table, extent_id);
    struct sc_store_section *_Atomic *place = sc_store_section_place(entry, derived);
    struct sc_store_record_extent record = {.copy = derived->copy,
                                            .probe_row_bytes = derived->probe_row_bytes,
                                            .codec_shape = derived->codec_shape,
                                            .probe_tag_offset = derived->probe_tag_offset,
                                            .stride = derived->stride,
                                            .part_count = derived->part_count,
                                            .parts = parts_numbered(extent)};
    struct sc_store_append append;
    if (entry->live_count == 0)
        return sc_fail(reterr, SPEC_E_DROPPED, "its pieces are void");
    if (sc_store_is_member(store) && atomic_load(place) != NULL)
        return sc_fail(reterr, SPEC_E_DROPPED, "another process made it");
    sc_store_append_begin(store, &append);
    sc_store_append_frame(&append);
    sc_store_record_encode_section(&append.writer, extent_id, &record);
    spec_status status = sc_store_append_commit(store, &append, reterr);
    if (status == SPEC_OK)
        atomic_store_explicit(place, derived, memory_order_release);
    return status;
}

spec_status sc_store_section_commit(struct sc_store_extent *extent, uint64_t extent_id,
                                    struct spec_error *reterr)
{
    struct sc_store *store = extent->store;
    SC_ASSERT(store->params.poison, extent->ended && atomic_load(&extent->pending) == 0);
    spec_status status = atomic_load(&extent->status);
    struct sc_store_section *derived = NULL;
    if (status == SPEC_OK) {
        uint64_t words =
            sc_store_permutation_words(extent->row_count) * (uint64_t)store->shape.layer_count;
        pthread_mutex_lock(&store->log.lock);
        derived = extent->slots == NULL
                      ? sc_store_table_section(&store->table, extent->part_count, 0)
                      : sc_store_table_permutation(
                            &store->table, sc_store_table_extent(&store->table, extent_id),
                            extent->part_count, words, sc_exec_now_ns(store->params.exec));
        pthread_mutex_unlock(&store->log.lock);
        status = derived != NULL ? SPEC_OK : SPEC_E_NO_MEMORY;
    }
    if (derived != NULL) {
        derived->copy = extent->copy;
        derived->stride = extent->place.stride;
        derived->probe_tag_offset = extent->place.probe_tag_offset;
        derived->probe_row_bytes = (uint32_t)extent->probe_row_bytes;
        derived->codec_shape = extent->codec_shape;
        memcpy(derived->parts, extent->parts, extent->part_count * sizeof(*extent->parts));
        if (extent->slots != NULL)
            permutation_set(derived, extent, sc_store_table_extent(&store->table, extent_id));
        status = sc_store_section_hold(store, extent_id, derived) ? SPEC_OK : SPEC_E_DROPPED;
    }
    if (status != SPEC_OK) {
        sc_store_extent_discard(extent);
        return sc_fail(reterr, status,
                       "the derived section was not written, or its extent was evicted");
    }
    /* The pages are the extent's now; without a record they stay reserved until it is evicted. */
    sc_store_log_enter(store);
    do {
        if (derived->slots == NULL)
            status = derived_append(extent, derived, extent_id, reterr);
        else /* its record follows: sc_store_permutation_commit */
            status = permutation_publish(store, sc_store_table_extent(&store->table, extent_id),
                                         derived, reterr);
    } while (sc_store_log_again(store, &status, reterr));
    sc_store_log_leave(store);
    if (status != SPEC_OK && status != SPEC_E_DROPPED)
        sc_store_pause(store, status, "writing the log");
    sc_store_log_unreserve(store, extent->log_bytes);
    sc_store_extent_put(extent);
    return status;
}
