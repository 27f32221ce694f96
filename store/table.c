/* Pieces and extents by id, in slabs.
 *
 * Holds, Does not, Threads: store/table.h.
 * Tests: tests/unit/store/test_store.c, test_log.c */
#include "store/table.h"

#define PARTS_SLAB 1024u /* the longest list of one extent: one part a layer */
_Static_assert(PARTS_SLAB >= SC_LIMIT_LAYERS, "a list lies in one slab");

struct sc_store_parts_slab {
    struct sc_store_parts_slab *next;
    uint64_t used;
    struct sc_store_part parts[PARTS_SLAB];
};

bool sc_store_table_init(struct sc_store_table *table, struct sc_alloc *alloc)
{
    *table = (struct sc_store_table){.alloc = alloc, .piece_next = 1, .extent_next = 1};
    table->pieces = sc_alloc_array(alloc, SC_STORE_TABLE_SLABS, sizeof(*table->pieces));
    table->extents = sc_alloc_array(alloc, SC_STORE_TABLE_SLABS, sizeof(*table->extents));
    if (table->pieces != NULL && table->extents != NULL)
        return true;
    sc_store_table_done(table);
    return false;
}

void sc_store_table_done(struct sc_store_table *table)
{
    if (table->alloc == NULL)
        return;
    for (uint64_t i = 0; i < SC_STORE_TABLE_SLABS; i++) {
        if (table->pieces != NULL)
            sc_alloc_free(table->alloc, atomic_load(&table->pieces[i]));
        if (table->extents != NULL)
            sc_alloc_free(table->alloc, atomic_load(&table->extents[i]));
    }
    while (table->parts != NULL) {
        struct sc_store_parts_slab *slab = table->parts;
        table->parts = slab->next;
        sc_alloc_free(table->alloc, slab);
    }
    sc_alloc_free(table->alloc, table->pieces);
    sc_alloc_free(table->alloc, table->extents);
    *table = (struct sc_store_table){0};
}

static bool reserve_pieces(struct sc_store_table *table, uint64_t end)
{
    for (uint64_t slab = table->piece_next / SC_STORE_TABLE_SLAB; slab * SC_STORE_TABLE_SLAB < end;
         slab++) {
        if (slab >= SC_STORE_TABLE_SLABS)
            return false;
        if (atomic_load_explicit(&table->pieces[slab], memory_order_relaxed) != NULL)
            continue;
        struct sc_store_piece_entry *entries =
            sc_alloc_array(table->alloc, SC_STORE_TABLE_SLAB, sizeof(*entries));
        if (entries == NULL)
            return false;
        atomic_store_explicit(&table->pieces[slab], entries, memory_order_release);
    }
    return true;
}

static bool reserve_extents(struct sc_store_table *table, uint64_t end)
{
    for (uint64_t slab = table->extent_next / SC_STORE_TABLE_SLAB; slab * SC_STORE_TABLE_SLAB < end;
         slab++) {
        if (slab >= SC_STORE_TABLE_SLABS)
            return false;
        if (atomic_load_explicit(&table->extents[slab], memory_order_relaxed) != NULL)
            continue;
        struct sc_store_extent_entry *entries =
            sc_alloc_array(table->alloc, SC_STORE_TABLE_SLAB, sizeof(*entries));
        if (entries == NULL)
            return false;
        atomic_store_explicit(&table->extents[slab], entries, memory_order_release);
    }
    return true;
}

bool sc_store_table_reserve(struct sc_store_table *table, uint64_t pieces, uint64_t extents,
                            uint64_t parts)
{
    if (!reserve_pieces(table, table->piece_next + pieces) ||
        !reserve_extents(table, table->extent_next + extents))
        return false;
    if (parts == 0 || (table->parts != NULL && PARTS_SLAB - table->parts->used >= parts))
        return true;
    if (parts > PARTS_SLAB)
        return false;
    struct sc_store_parts_slab *slab = sc_alloc(table->alloc, sizeof(*slab));
    if (slab == NULL)
        return false;
    slab->next = table->parts;
    slab->used = 0;
    table->parts = slab;
    return true;
}

struct sc_store_part *sc_store_table_parts(struct sc_store_table *table, uint64_t count)
{
    struct sc_store_part *parts = table->parts->parts + table->parts->used;
    table->parts->used += count;
    return parts;
}

struct sc_store_piece_entry *sc_store_table_piece(const struct sc_store_table *table, uint64_t id)
{
    if (id / SC_STORE_TABLE_SLAB >= SC_STORE_TABLE_SLABS)
        return NULL;
    struct sc_store_piece_entry *slab =
        atomic_load_explicit(&table->pieces[id / SC_STORE_TABLE_SLAB], memory_order_acquire);
    return slab == NULL ? NULL : &slab[id % SC_STORE_TABLE_SLAB];
}

struct sc_store_extent_entry *sc_store_table_extent(const struct sc_store_table *table, uint64_t id)
{
    if (id / SC_STORE_TABLE_SLAB >= SC_STORE_TABLE_SLABS)
        return NULL;
    struct sc_store_extent_entry *slab =
        atomic_load_explicit(&table->extents[id / SC_STORE_TABLE_SLAB], memory_order_acquire);
    return slab == NULL ? NULL : &slab[id % SC_STORE_TABLE_SLAB];
}

const struct sc_store_piece_entry *sc_store_table_live(const struct sc_store_table *table,
                                                       uint64_t id)
{
    const struct sc_store_piece_entry *entry = sc_store_table_piece(table, id);
    if (entry == NULL ||
        atomic_load_explicit(&entry->state, memory_order_acquire) != SC_STORE_PIECE_LIVE)
        return NULL;
    return entry;
}
