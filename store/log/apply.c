/* Contract: apply.h. */
#include "store/log/apply.h"
#include "store/internal.h"

#include <string.h>

struct sc_store_extent_entry *sc_store_apply_extent(struct sc_store *store, uint64_t id,
                                                    const struct sc_store_record_extent *record)
{
    struct sc_store_extent_entry *entry = sc_store_table_extent(&store->table, id);
    *entry = (struct sc_store_extent_entry){
        .parts = sc_store_table_parts(&store->table, record->part_count),
        .row_offset = record->row_offset,
        .stride = record->stride,
        .probe_offset = record->probe_offset,
        .probe_tag_offset = record->probe_tag_offset,
        .tag_offset = record->tag_offset,
        .copy = record->copy,
        .probe_row_bytes = (uint32_t)record->probe_row_bytes,
        .part_count = record->part_count,
        .row_count = (uint32_t)record->row_count,
        .space = (uint32_t)record->space,
        .leaves_ids = record->leaves_ids,
        .provenance = record->provenance,
        .salt = record->salt};
    memcpy(entry->parts, record->parts, record->part_count * sizeof(*record->parts));
    return entry;
}

/* A locked add would wait for all earlier stores, which costs a writer's open a third. */
static void count_up(_Atomic uint64_t *counter, bool at_open)
{
    if (at_open)
        atomic_store_explicit(counter, sc_store_counted(counter) + 1, memory_order_relaxed);
    else
        sc_store_count(counter, 1);
}

void sc_store_apply_piece(struct sc_store *store, const struct sc_store_piece *piece,
                          uint32_t state, uint64_t mark, bool at_open)
{
    struct sc_store_piece_entry *entry = sc_store_table_piece(&store->table, piece->id);
    struct sc_store_extent_entry *extent = sc_store_table_extent(&store->table, piece->extent);
    memcpy(entry->hash, piece->hash, sizeof(entry->hash));
    entry->first_position = piece->first_position;
    entry->extent = (uint32_t)piece->extent;
    entry->extent_row = (uint16_t)piece->extent_row;
    entry->row_count = (uint16_t)piece->row_count;
    entry->skip = (uint16_t)piece->skip;
    atomic_store_explicit(&entry->mark, mark, memory_order_relaxed);
    uint32_t live = atomic_load_explicit(&extent->live_count, memory_order_relaxed);
    atomic_store_explicit(&extent->live_count, live + 1, memory_order_relaxed);
    if (live == 0)
        count_up(&store->counts.extent_count, at_open);
    count_up(&store->counts.piece_count, at_open);
    if (sc_store_keeps_space(store)) {
        count_up(&store->counts.held_count, at_open);
        atomic_fetch_add(&sc_store_space_find(&store->log.spaces, extent->space)->held, 1);
    }
    atomic_store_explicit(&entry->state, (uint16_t)state, memory_order_release);
}

bool sc_store_apply_void(struct sc_store *store, struct sc_store_piece_entry *piece, uint32_t state)
{
    uint32_t was = piece != NULL ? atomic_load(&piece->state) : SC_STORE_PIECE_NONE;
    if (was != SC_STORE_PIECE_LIVE && (was != SC_STORE_PIECE_DOOMED || piece->extent == 0))
        return false;
    struct sc_store_extent_entry *extent = sc_store_table_extent(&store->table, piece->extent);
    atomic_store(&piece->state, (uint16_t)state);
    atomic_fetch_sub_explicit(&store->counts.piece_count, 1, memory_order_relaxed);
    SC_ASSERT(store->params.poison, extent->live_count > 0);
    if (--extent->live_count == 0)
        atomic_fetch_sub_explicit(&store->counts.extent_count, 1, memory_order_relaxed);
    if (store->piece_gone != NULL)
        store->piece_gone(store, piece);
    return true;
}
