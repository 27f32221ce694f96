/* replay_piece: replays pieces: a record becomes LIVE and is reported, or is rejected; a drop voids
 * it.
 *
 *   none -> LIVE -> DROPPED          none -> DOOMED -> DROPPED   a later record makes it void
 *       \-> REFUSED -> DROPPED       rejected: it gets a drop record at the end
 *
 * Invariants: an id that was reported never changes its meaning. DOOMED is LIVE without a
 * report. */
#include "store/log/apply.h"
#include "store/replay/replay.h"

#include <string.h>

/* Rejects a piece, for its record or its segment. It gets a drop record, and is counted, if none
 * follows: should its extent become valid again, it must not take the pages of newer data. */
static void piece_refuse(struct sc_store *store, uint64_t id, struct sc_store_piece_entry *entry,
                         const char *what)
{
    struct sc_store_replay *replay = store->replay;
    bool doomed = atomic_load(&entry->state) == SC_STORE_PIECE_DOOMED;
    atomic_store(&entry->state, doomed ? SC_STORE_PIECE_DROPPED : SC_STORE_PIECE_REFUSED);
    if (doomed)
        return; /* counted when its drop record was written */
    if (sc_store_follows(store) && !store->follow.lacks_pages)
        sc_store_count(&store->counts.corrupt_records, 1);
    if (replay->refused_count++ == 0) {
        replay->refused_first = replay->refused_last = id;
        replay->refused_what = what;
    }
    replay->refused_first = id < replay->refused_first ? id : replay->refused_first;
    replay->refused_last = id > replay->refused_last ? id : replay->refused_last;
}

/* Log lock held. A member drops for all what it does not believe: else pages that look free here
 * are another's. */
static void unwritten_add(struct sc_store *store, uint64_t id, struct sc_store_piece_entry *entry)
{
    atomic_store(&entry->state, SC_STORE_PIECE_DROPPED);
    entry->next = store->log.unwritten;
    store->log.unwritten = (uint32_t)id;
}

/* The same for a piece without pages, whose drop record needs room. */
static void refused_drop(struct sc_store *store, uint64_t id, struct sc_store_piece_entry *entry)
{
    if (!sc_store_is_member(store) || !sc_store_can_store(store) || store->follow.lacks_pages ||
        atomic_load(&entry->state) != SC_STORE_PIECE_REFUSED)
        return;
    sc_store_replay_room_take(store);
    pthread_mutex_lock(&store->log.lock);
    unwritten_add(store, id, entry);
    pthread_mutex_unlock(&store->log.lock);
}

/* Records which rows of the open extent its pieces cover. */
static void rows_note(struct sc_store_replay *replay, const struct sc_store_piece *piece)
{
    replay->extent_rows = (uint64_t)piece->extent_row + piece->row_count;
    replay->extent_first = piece->first_position - piece->extent_row;
}

/* Follower, reading again: the piece was reported. */
static void piece_again(struct sc_store *store, uint64_t id, struct sc_store_piece_entry *entry)
{
    struct sc_store_replay *replay = store->replay;
    const struct sc_store_piece *piece = &replay->record.piece;
    bool same = memcmp(entry->hash, piece->hash, sizeof(entry->hash)) == 0 &&
                entry->first_position == piece->first_position &&
                entry->extent == replay->extent_open && entry->extent_row == piece->extent_row &&
                entry->row_count == piece->row_count;
    if (!same) {
        sc_store_heir_end(store, "its log was written anew");
        sc_store_replay_drop(store, id);
        return;
    }
    entry->next = replay->generation;
    rows_note(replay, piece); /* later pieces follow it */
}

/* Reports the record's piece. Returns false if it is rejected. */
static bool piece_told(struct sc_store *store, uint64_t *ret_mark)
{
    const struct sc_store_replay *replay = store->replay;
    const struct sc_store_piece *piece = &replay->record.piece;
    bool holds = replay->is_checked ? replay->holds : sc_store_piece_holds(store, piece);
    return holds && store->params.on_piece(piece, ret_mark, store->params.user);
}

static void piece_publish(struct sc_store *store, const struct sc_store_piece *piece,
                          struct sc_store_piece_entry *entry, uint64_t mark)
{
    bool at_open = sc_store_replay_at_open(store);
    bool doomed = atomic_load(&entry->state) == SC_STORE_PIECE_DOOMED;
    if (!at_open)
        entry->next = store->replay->generation;
    sc_store_replay_room_take(store);
    sc_store_replay_table_lock(store);
    sc_store_apply_piece(store, piece, doomed ? SC_STORE_PIECE_DOOMED : SC_STORE_PIECE_LIVE, mark,
                         at_open);
    sc_store_replay_table_unlock(store);
}

/* A piece that was LIVE and was refused holds no pages, as one that was refused before. */
static void refused_release(struct sc_store *store, struct sc_store_piece_entry *entry)
{
    const struct sc_store_extent_entry *extent =
        sc_store_table_extent(&store->table, entry->extent);
    atomic_fetch_sub_explicit(&store->counts.held_count, 1, memory_order_relaxed);
    atomic_fetch_sub(&sc_store_space_find(&store->log.spaces, extent->space)->held, 1);
    entry->extent = 0;
}

/* Follower: the piece is LIVE before the report, so that it can be loaded at once. */
static void piece_tell(struct sc_store *store, uint64_t id, struct sc_store_piece_entry *entry)
{
    const struct sc_store_piece *piece = &store->replay->record.piece;
    uint64_t mark = 0;
    piece_publish(store, piece, entry, 0);
    if (piece_told(store, &mark)) {
        atomic_store_explicit(&entry->mark, mark, memory_order_relaxed);
        return;
    }
    sc_store_replay_table_lock(store);
    (void)sc_store_apply_void(store, entry, SC_STORE_PIECE_DROPPED);
    if (sc_store_is_member(store) && sc_store_can_store(store)) {
        unwritten_add(store, id, entry); /* its parent was dropped before it came */
        sc_store_replay_table_unlock(store);
        return;
    }
    piece_refuse(store, id, entry, "of another chain");
    if (sc_store_keeps_space(store))
        refused_release(store, entry);
    sc_store_replay_table_unlock(store);
    if (sc_store_keeps_space(store))
        sc_store_log_unreserve(store, SC_STORE_DROP_BYTES);
}

/* Adds the piece to the extent's range of ids. A follower may have done so before. */
static bool piece_joins(struct sc_store *store, struct sc_store_extent_entry *extent, uint64_t id)
{
    sc_store_replay_table_lock(store);
    bool is_known = extent->piece_first != 0 && id >= extent->piece_first &&
                    id <= extent->piece_last && !sc_store_replay_at_open(store);
    bool joins = is_known || sc_store_table_join(extent, id);
    sc_store_replay_table_unlock(store);
    return joins;
}

/* Returns true if a pass can have written it: an extent's rows are consecutive, and a piece of our
 * grid is in one chunk. The place of its quantised rows depends on both
 * (store/rows/quant_blocks.h). */
static bool piece_stands(const struct sc_store *store, const struct sc_store_extent_entry *extent,
                         const struct sc_store_piece *piece)
{
    const struct sc_store_replay *replay = store->replay;
    uint64_t chunk = store->params.config->chunk_tokens, first = piece->first_position;
    uint64_t last = first + piece->row_count - 1;
    if (first < piece->extent_row ||
        (replay->extent_rows > 0 && first - piece->extent_row != replay->extent_first))
        return false;
    return !sc_store_space_of(&store->log.spaces, extent->space)->is_own ||
           first / chunk == last / chunk;
}

/* Returns true if the pages of rows without a piece were given back. A piece that was refused, and
 * that a later reading of the log would believe, has no pages then. */
static bool rows_are_gone(struct sc_store *store, const struct sc_store_extent_entry *extent)
{
    if (sc_store_replay_at_open(store) || !sc_store_keeps_space(store))
        return false;
    pthread_mutex_lock(&store->disk.lock);
    bool are_gone = extent->trimmed;
    pthread_mutex_unlock(&store->disk.lock);
    return are_gone;
}

/* Applies a record that decodes and has a valid id. */
static void replay_piece(struct sc_store *store, uint64_t id, struct sc_store_piece_entry *entry)
{
    struct sc_store_replay *replay = store->replay;
    struct sc_store_piece *piece = &replay->record.piece;
    struct sc_store_extent_entry *extent = NULL;
    if (replay->extent_open != 0)
        extent = sc_store_table_extent(&store->table, replay->extent_open);
    piece->id = id;
    if (extent == NULL || piece->extent != replay->extent_open - replay->extent_base ||
        piece->extent_row < replay->extent_rows || piece->extent_row >= extent->row_count ||
        piece->row_count > extent->row_count - piece->extent_row ||
        !piece_stands(store, extent, piece) || !piece_joins(store, extent, id)) {
        piece_refuse(store, id, entry, "outside its extent");
        refused_drop(store, id, entry);
        return;
    }
    if (id < sc_store_space_of(&store->log.spaces, extent->space)
                 ->void_end) { /* writer: left free before */
        piece_refuse(store, id, entry, "of an epoch that is over");
        return;
    }
    piece->extent = replay->extent_open;
    rows_note(replay, piece);
    if (rows_are_gone(store, extent)) {
        piece_refuse(store, id, entry, "of rows that were given back");
        refused_drop(store, id, entry);
        return;
    }
    piece->provenance = replay->provenance;
    bool tells =
        sc_store_replay_space_is_told(store, extent->space) && store->params.on_piece != NULL;
    if (!sc_store_replay_at_open(store)) {
        if (tells)
            piece_tell(store, id, entry);
        else if (sc_store_keeps_space(store))
            piece_publish(store, piece, entry, 0);
        return;
    }
    if (store->log.journal.end.sequence <
            sc_store_space_of(&store->log.spaces, extent->space)->epoch_sequence ||
        atomic_load(&entry->state) == SC_STORE_PIECE_DOOMED)
        tells = false;
    uint64_t mark = 0;
    if (tells && !piece_told(store, &mark))
        piece_refuse(store, id, entry, "of another chain");
    else
        piece_publish(store, piece, entry, mark);
}

/* Takes the next id, maybe with one after it that is left free; or a compacted piece's id that was
 * left free. *ret_count: new ids. *ret_strays: the piece follows a compacted extent but is not its
 * piece. Its id is used up, since a writer's first scan and a checkpoint ignore extents and count
 * it, too. */
static bool id_take(struct sc_store_replay *replay, bool decodes, uint64_t *next, uint64_t *ret_id,
                    uint64_t *ret_count, bool *ret_strays)
{
    uint64_t id = replay->record.id;
    bool is_next = true;
    *ret_count = 0;
    *ret_id = id + replay->piece_base;
    *ret_strays =
        replay->late_open != 0 && !sc_store_replay_late_piece(replay, decodes, id, &is_next);
    if (!is_next)
        return true;
    if (!sc_store_replay_id_take(next, replay->piece_base, id, ret_id))
        return false;
    *ret_count = 1 + (sc_store_replay_left_piece(replay, decodes, id) ? 1 : 0);
    *next = id + *ret_count;
    return true;
}

spec_status sc_store_replay_piece_record(struct sc_store *store, bool decodes,
                                         struct spec_error *reterr)
{
    struct sc_store_replay *replay = store->replay;
    struct sc_store_table *table = &store->table;
    uint64_t id, count, next = replay->piece_next;
    bool strays;
    if (!id_take(replay, decodes, &next, &id, &count, &strays)) {
        sc_store_replay_lie(store, "id out of order");
        return SPEC_OK;
    }
    sc_store_replay_table_lock(store);
    if (id >= table->piece_next)
        table->piece_next = id;
    bool fits = sc_store_table_reserve(table, count, 0, 0);
    if (fits && id == table->piece_next)
        table->piece_next += count;
    store->log.journal.pieces_read += fits ? 1 : 0;
    sc_store_replay_table_unlock(store);
    if (!fits)
        return sc_fail(reterr, SPEC_E_NO_MEMORY, "table of %" PRIu64 " pieces", id);
    replay->piece_next = next;
    struct sc_store_piece_entry *entry = sc_store_table_piece(table, id);
    uint32_t state = entry != NULL ? atomic_load(&entry->state) : SC_STORE_PIECE_DROPPED;
    if (!decodes || strays) {
        sc_store_replay_lie(store, strays ? "a piece behind another's extent"
                                          : "a key is missing or out of range");
        if (state == SC_STORE_PIECE_NONE || state == SC_STORE_PIECE_DOOMED)
            atomic_store(&entry->state, SC_STORE_PIECE_DROPPED);
    } else if (state == SC_STORE_PIECE_LIVE) {
        piece_again(store, id, entry);
    } else if (state == SC_STORE_PIECE_DROPPED && !sc_store_replay_at_open(store)) {
        if (!sc_store_can_store(store))       /* else it is in the list of those without a record */
            entry->next = replay->generation; /* it failed in this reader: the log has it still */
    } else if (state <= SC_STORE_PIECE_REFUSED) { /* from DROPPED on: void for good */
        replay_piece(store, id, entry);
    }
    return SPEC_OK;
}

void sc_store_replay_drop(struct sc_store *store, uint64_t id)
{
    struct sc_store_piece_entry *entry = sc_store_table_piece(&store->table, id);
    sc_store_replay_table_lock(store);
    uint32_t state = entry != NULL ? atomic_load(&entry->state) : SC_STORE_PIECE_NONE;
    uint32_t space = 0;
    if (sc_store_apply_void(store, entry, SC_STORE_PIECE_DROPPED))
        space = sc_store_table_extent(&store->table, entry->extent)->space;
    else if (state == SC_STORE_PIECE_REFUSED && !store->follow.lacks_pages)
        atomic_store(&entry->state, SC_STORE_PIECE_DROPPED); /* else it is read once more */
    sc_store_replay_table_unlock(store);
    if (state == SC_STORE_PIECE_REFUSED)
        store->replay->refused_count--;
    bool was_told = !sc_store_keeps_space(store) || space == atomic_load(&store->log.space_id);
    if (state == SC_STORE_PIECE_LIVE && was_told && store->params.on_drop != NULL)
        store->params.on_drop(id, atomic_load_explicit(&entry->mark, memory_order_relaxed),
                              store->params.user);
}

/* A piece that failed in this member, too, has its record now. */
static void unwritten_take(struct sc_store *store, uint64_t id)
{
    if (!sc_store_is_member(store) || !sc_store_can_store(store))
        return;
    pthread_mutex_lock(&store->log.lock);
    uint32_t *at = &store->log.unwritten;
    while (*at != 0 && *at != id)
        at = &sc_store_table_piece(&store->table, *at)->next;
    if (*at != 0)
        *at = sc_store_table_piece(&store->table, id)->next;
    pthread_mutex_unlock(&store->log.lock);
}

void sc_store_replay_drop_record(struct sc_store *store)
{
    struct sc_store_replay *replay = store->replay;
    uint64_t id = replay->record.id;
    if (id == 0 || id >= replay->piece_next)
        return; /* an unknown piece */
    bool was_left = sc_store_replay_left_drop(replay, id);
    id += replay->piece_base;
    sc_store_replay_drop(store, id);
    unwritten_take(store, id);
    struct sc_store_piece_entry *entry = sc_store_table_piece(&store->table, id);
    if (was_left && entry != NULL && atomic_load(&entry->state) <= SC_STORE_PIECE_DOOMED)
        atomic_store(&entry->state, SC_STORE_PIECE_DROPPED);
    bool is_dropped =
        entry != NULL && entry->extent != 0 && atomic_load(&entry->state) == SC_STORE_PIECE_DROPPED;
    if (is_dropped) /* else repeated, or of a rejected piece */
        sc_store_replay_dropped(store, id, replay->record.drop.at_ns);
}
