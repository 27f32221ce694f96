/* table: pieces and extents by id, in slabs.
 * Invariants, Threads: store/log/table.h.
 * Tests: tests/unit/store/test_store.c, test_log.c */
#include "store/log/table.h"

#define PARTS_SLAB 1024u /* longest list of one extent: one part per layer */
_Static_assert(PARTS_SLAB >= SC_LIMIT_LAYERS, "a list lies in one slab");

struct sc_store_parts_slab {
    struct sc_store_parts_slab *next;
    uint64_t used;
    struct sc_store_part parts[PARTS_SLAB];
};

struct sc_store_table_folder {
    void *_Atomic slabs[SC_STORE_TABLE_FOLDER];
};

bool sc_store_table_init(struct sc_store_table *table, struct sc_alloc *alloc)
{
    *table = (struct sc_store_table){.alloc = alloc, .piece_next = 1, .extent_next = 1};
    table->pieces = sc_alloc_array(alloc, SC_STORE_TABLE_FOLDER, sizeof(*table->pieces));
    table->extents = sc_alloc_array(alloc, SC_STORE_TABLE_FOLDER, sizeof(*table->extents));
    if (table->pieces != NULL && table->extents != NULL)
        return true;
    sc_store_table_done(table);
    return false;
}

static void root_free(struct sc_alloc *alloc, struct sc_store_table_folder *_Atomic *root)
{
    for (uint64_t i = 0; root != NULL && i < SC_STORE_TABLE_FOLDER; i++) {
        struct sc_store_table_folder *folder = atomic_load(&root[i]);
        for (uint64_t slab = 0; folder != NULL && slab < SC_STORE_TABLE_FOLDER; slab++)
            sc_alloc_free(alloc, atomic_load(&folder->slabs[slab]));
        sc_alloc_free(alloc, folder);
    }
    sc_alloc_free(alloc, root);
}

void sc_store_table_done(struct sc_store_table *table)
{
    if (table->alloc == NULL)
        return;
    while (table->parts != NULL) {
        struct sc_store_parts_slab *slab = table->parts;
        table->parts = slab->next;
        sc_alloc_free(table->alloc, slab);
    }
    while (table->derived_sections != NULL) {
        struct sc_store_section *derived = table->derived_sections;
        table->derived_sections = derived->next;
        sc_alloc_free(table->alloc, derived);
    }
    root_free(table->alloc, table->pieces);
    root_free(table->alloc, table->extents);
    *table = (struct sc_store_table){0};
}

/* NULL: the id has no slab. */
static void *root_slab(struct sc_store_table_folder *_Atomic *root, uint64_t id)
{
    uint64_t slab = id / SC_STORE_TABLE_SLAB;
    if (id >= SC_STORE_TABLE_IDS)
        return NULL;
    struct sc_store_table_folder *folder =
        atomic_load_explicit(&root[slab / SC_STORE_TABLE_FOLDER], memory_order_acquire);
    return folder == NULL ? NULL
                          : atomic_load_explicit(&folder->slabs[slab % SC_STORE_TABLE_FOLDER],
                                                 memory_order_acquire);
}

/* Allocates a zeroed slab; most pages are not yet touched. */
static bool slab_make(struct sc_alloc *alloc, void *_Atomic *place, uint64_t entry_bytes)
{
    void *entries = sc_alloc_zero(alloc, SC_STORE_TABLE_SLAB * entry_bytes);
    if (entries != NULL)
        atomic_store_explicit(place, entries, memory_order_release);
    return entries != NULL;
}

/* Makes the slabs of ids [next, end) and writes to each of their pages: a page that was only read
 * before its first write costs another fault and a TLB flush of all CPUs. */
static bool root_reserve(struct sc_alloc *alloc, struct sc_store_table_folder *_Atomic *root,
                         uint64_t next, uint64_t end, uint64_t entry_bytes)
{
    if (end > SC_STORE_TABLE_IDS || end < next)
        return false;
    for (uint64_t id = next; id < end; id++) {
        uint64_t slab = id / SC_STORE_TABLE_SLAB, offset = id % SC_STORE_TABLE_SLAB * entry_bytes;
        struct sc_store_table_folder *_Atomic *at = &root[slab / SC_STORE_TABLE_FOLDER];
        struct sc_store_table_folder *folder = atomic_load_explicit(at, memory_order_relaxed);
        if (folder == NULL) {
            folder = sc_alloc_zero(alloc, sizeof(*folder));
            if (folder == NULL)
                return false;
            atomic_store_explicit(at, folder, memory_order_release);
        }
        void *_Atomic *place = &folder->slabs[slab % SC_STORE_TABLE_FOLDER];
        if (atomic_load_explicit(place, memory_order_relaxed) == NULL &&
            !slab_make(alloc, place, entry_bytes))
            return false;
        uint8_t *entries = atomic_load_explicit(place, memory_order_relaxed);
        /* A lease may name the unused id and read its state meanwhile. An entry may cross pages. */
        _Atomic uint8_t *entry = (_Atomic uint8_t *)(entries + offset);
        atomic_store_explicit(&entry[0], 0, memory_order_relaxed);
        atomic_store_explicit(&entry[entry_bytes - 1], 0, memory_order_relaxed);
    }
    return true;
}

bool sc_store_table_reserve(struct sc_store_table *table, uint64_t pieces, uint64_t extents,
                            uint64_t parts)
{
    if (!root_reserve(table->alloc, table->pieces, table->piece_next, table->piece_next + pieces,
                      sizeof(struct sc_store_piece_entry)) ||
        !root_reserve(table->alloc, table->extents, table->extent_next,
                      table->extent_next + extents, sizeof(struct sc_store_extent_entry)))
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

struct sc_store_section *sc_store_table_section(struct sc_store_table *table, uint32_t part_count,
                                                uint64_t slot_words)
{
    uint64_t slots_at = sizeof(struct sc_store_section) + part_count * sizeof(struct sc_store_part);
    struct sc_store_section *derived =
        sc_alloc_zero(table->alloc, slots_at + slot_words * sizeof(uint64_t));
    if (derived == NULL)
        return NULL;
    derived->part_count = derived->part_room = part_count;
    if (slot_words > 0)
        derived->slots = (uint16_t *)(void *)((uint8_t *)derived + slots_at);
    derived->next = table->derived_sections;
    table->derived_sections = derived;
    return derived;
}

struct sc_store_section *sc_store_table_permutation(struct sc_store_table *table,
                                                    struct sc_store_extent_entry *extent,
                                                    uint32_t part_count, uint64_t slot_words,
                                                    uint64_t now_ns)
{
    struct sc_store_section *older = extent->older_permutation;
    if (older == NULL || older->part_room < part_count || now_ns < older->reusable_ns)
        return sc_store_table_section(table, part_count, slot_words);
    extent->older_permutation = NULL;
    older->part_count = part_count;
    older->permuted_at_ns = older->reusable_ns = 0;
    return older;
}

void sc_store_table_permutation_set(struct sc_store_extent_entry *extent,
                                    struct sc_store_section *derived, uint64_t reusable_ns)
{
    struct sc_store_section *before =
        atomic_load_explicit(&extent->permutation, memory_order_relaxed);
    if (before != NULL)
        before->reusable_ns = reusable_ns;
    extent->older_permutation = before;
    atomic_store_explicit(&extent->permutation, derived, memory_order_release);
}

struct sc_store_piece_entry *sc_store_table_piece(const struct sc_store_table *table, uint64_t id)
{
    struct sc_store_piece_entry *slab = root_slab(table->pieces, id);
    return slab == NULL ? NULL : &slab[id % SC_STORE_TABLE_SLAB];
}

struct sc_store_extent_entry *sc_store_table_extent(const struct sc_store_table *table, uint64_t id)
{
    struct sc_store_extent_entry *slab = root_slab(table->extents, id);
    return slab == NULL ? NULL : &slab[id % SC_STORE_TABLE_SLAB];
}

/* Skips absent folders and slabs as a whole. */
static uint64_t root_from(struct sc_store_table_folder *_Atomic *root, uint64_t id)
{
    const uint64_t folder_ids = (uint64_t)SC_STORE_TABLE_FOLDER * SC_STORE_TABLE_SLAB;
    while (id < SC_STORE_TABLE_IDS) {
        if (root_slab(root, id) != NULL)
            return id;
        bool has_folder =
            atomic_load_explicit(&root[id / folder_ids], memory_order_acquire) != NULL;
        uint64_t step = has_folder ? SC_STORE_TABLE_SLAB : folder_ids;
        id = (id / step + 1) * step;
    }
    return UINT64_MAX;
}

uint64_t sc_store_table_piece_from(const struct sc_store_table *table, uint64_t id)
{
    return root_from(table->pieces, id);
}

uint64_t sc_store_table_extent_from(const struct sc_store_table *table, uint64_t id)
{
    return root_from(table->extents, id);
}

bool sc_store_table_join(struct sc_store_extent_entry *extent, uint64_t piece)
{
    uint64_t first = extent->piece_first == 0 ? piece : extent->piece_first;
    if (piece <= extent->piece_last || piece - first >= SC_STORE_ROWS_MAX)
        return false;
    extent->piece_first = first;
    extent->piece_last = piece;
    return true;
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

const struct sc_store_piece_entry *sc_store_table_leased(const struct sc_store_table *table,
                                                         uint64_t id)
{
    const struct sc_store_piece_entry *entry = sc_store_table_piece(table, id);
    if (entry == NULL)
        return NULL;
    uint32_t state = atomic_load_explicit(&entry->state, memory_order_acquire);
    if (state != SC_STORE_PIECE_LIVE && state != SC_STORE_PIECE_DROPPED &&
        state != SC_STORE_PIECE_QUARANTINED)
        return NULL;
    return entry->extent == 0 ? NULL : entry; /* 0: never believed */
}
