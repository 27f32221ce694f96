/* pieces: properties of a piece by id, and the caller's number.
 * Threads: store/store.h.
 * Tests: tests/unit/store/test_store.c, test_quarantine.c */
#include "store/internal.h"

#include <string.h>

bool sc_store_piece_hash(const struct sc_store *store, uint64_t piece,
                         uint8_t ret_hash[SC_STORE_HASH_BYTES])
{
    const struct sc_store_piece_entry *entry = sc_store_table_live(&store->table, piece);
    if (entry != NULL)
        memcpy(ret_hash, entry->hash, SC_STORE_HASH_BYTES);
    return entry != NULL;
}

bool sc_store_piece_provenance(const struct sc_store *store, uint64_t piece,
                               struct sc_store_provenance *ret_provenance)
{
    const struct sc_store_piece_entry *entry = sc_store_table_piece(&store->table, piece);
    if (entry == NULL ||
        atomic_load_explicit(&entry->state, memory_order_acquire) < SC_STORE_PIECE_LIVE ||
        entry->extent == 0)
        return false;
    *ret_provenance = sc_store_table_extent(&store->table, entry->extent)->provenance;
    return true;
}

uint32_t sc_store_piece_rows(const struct sc_store *store, uint64_t piece)
{
    const struct sc_store_piece_entry *entry = sc_store_table_live(&store->table, piece);
    return entry != NULL ? entry->row_count : 0;
}

uint64_t sc_store_piece_from(const struct sc_store *store, uint64_t piece)
{
    return sc_store_table_piece_from(&store->table, piece);
}

uint64_t sc_store_piece_next(struct sc_store *store)
{
    pthread_mutex_lock(&store->log.lock);
    uint64_t next = store->table.piece_next;
    pthread_mutex_unlock(&store->log.lock);
    return next;
}

bool sc_store_piece_place(const struct sc_store *store, uint64_t piece,
                          struct sc_store_piece_place *ret_place)
{
    const struct sc_store_table *table = &store->table;
    const struct sc_store_piece_entry *entry = sc_store_table_live(table, piece);
    if (entry == NULL)
        return false;
    const struct sc_store_extent_entry *next =
        sc_store_table_extent(table, entry->extent + UINT64_C(1));
    *ret_place =
        (struct sc_store_piece_place){.first_position = entry->first_position,
                                      .row_count = entry->row_count,
                                      .skip = entry->skip,
                                      .leaves_ids = sc_store_piece_is_left(store, piece + 1) &&
                                                    next != NULL && next->row_count == 0};
    return true;
}

uint64_t sc_store_piece_first(const struct sc_store *store, uint64_t piece)
{
    const struct sc_store_piece_entry *entry = sc_store_table_piece(&store->table, piece);
    uint32_t state = SC_STORE_PIECE_NONE;
    if (entry != NULL) /* the other members are constant once it is set */
        state = atomic_load_explicit(&entry->state, memory_order_acquire);
    bool is_known = state == SC_STORE_PIECE_LIVE || state >= SC_STORE_PIECE_DROPPED;
    return is_known && entry->extent != 0 ? entry->first_position + entry->skip : UINT64_MAX;
}

bool sc_store_piece_is_left(const struct sc_store *store, uint64_t piece)
{
    const struct sc_store_table *table = &store->table;
    const struct sc_store_piece_entry *before = sc_store_table_live(table, piece - 1), *entry;
    entry = sc_store_table_piece(table, piece);
    if (before == NULL || entry == NULL || atomic_load(&entry->state) != SC_STORE_PIECE_NONE)
        return false;
    const struct sc_store_extent_entry *extent = sc_store_table_extent(table, before->extent);
    return extent->leaves_ids &&
           (uint64_t)before->extent_row + before->row_count == extent->row_count;
}

void sc_store_piece_set_mark(struct sc_store *store, uint64_t piece, uint64_t mark)
{
    struct sc_store_piece_entry *entry = sc_store_table_piece(&store->table, piece);
    if (entry != NULL)
        atomic_store_explicit(&entry->mark, mark, memory_order_relaxed);
}

uint64_t sc_store_piece_mark(const struct sc_store *store, uint64_t piece)
{
    struct sc_store_piece_entry *entry = sc_store_table_piece(&store->table, piece);
    return entry != NULL ? atomic_load_explicit(&entry->mark, memory_order_relaxed) : 0;
}
