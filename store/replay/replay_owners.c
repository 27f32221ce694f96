/* replay_owners: the space map behind lost records, for a writer's open.
 *
 *   drop 7 | extent 9            extent 9 has pages of piece 7: an invalid record
 *   [damaged] | extent 9         drop 7 is among what is lost: piece 7 gives up its pages
 *
 * A piece that is given up so has no drop record. The checkpoint that follows a damaged log leaves
 * it out, because it holds no pages any more. Its lease is not waited for piece by piece: the store
 * stores nothing for the longest lease (sc_store_replay_log).
 *
 * Threads: a writer's open.
 * Tests: tests/unit/store/test_log_damage.c */
#include "store/replay/replay.h"

#define OWNERS_MAX 4096u /* ranges of pages whose owners are searched, each among all extents */

void sc_store_replay_quarantine_end(struct sc_store *store)
{
    store->replay->frees_early = true;
    (void)sc_store_quarantine_release(store, UINT64_MAX);
}

/* Bytes [first, end) of a layer. */
struct stretch {
    uint64_t first, end;
};

/* Returns the part of the range that lies in the layer; first == end: none. */
static struct stretch stretch_of(const struct sc_store_part *part, uint64_t stride, uint32_t layer,
                                 const struct sc_store_page_range *range)
{
    uint64_t begin = sc_store_part_at(part, stride, layer), end = begin + stride;
    uint64_t first = range->page * SC_IO_PAGE_BYTES;
    uint64_t last = first + range->pages * SC_IO_PAGE_BYTES;
    first = first > begin ? first : begin;
    last = last < end ? last : end;
    if (part->segment != range->segment || first >= last)
        return (struct stretch){0};
    return (struct stretch){first - begin, last - begin};
}

static bool section_overlaps(const struct sc_store_section *section,
                             const struct sc_store_page_range *range)
{
    for (uint32_t i = 0; section != NULL && i < section->part_count; i++)
        for (uint32_t l = 0; l < section->parts[i].layer_count; l++) {
            struct stretch found = stretch_of(&section->parts[i], section->stride,
                                              section->parts[i].layer_first + l, range);
            if (found.first < found.end)
                return true;
        }
    return false;
}

/* Returns true if the piece holds bytes of the range: its rows, or what the extent keeps in front
 * of and behind all rows. */
static bool piece_holds(const struct sc_store *store, struct sc_store_extent_entry *extent,
                        const struct sc_store_piece_entry *piece,
                        const struct sc_store_page_range *range)
{
    uint64_t row_bytes = sc_store_space_of(&store->log.spaces, extent->space)->row_bytes;
    uint64_t first = extent->row_offset + piece->extent_row * row_bytes;
    uint64_t end = first + piece->row_count * row_bytes;
    uint64_t rows_end = extent->row_offset + extent->row_count * row_bytes;
    bool has_rows = atomic_load(&extent->rows_state) != SC_STORE_ROWS_FREED; /* else permuted */
    for (uint32_t i = 0; has_rows && i < extent->part_count; i++)
        for (uint32_t l = 0; l < extent->parts[i].layer_count; l++) {
            struct stretch found = stretch_of(&extent->parts[i], extent->stride,
                                              extent->parts[i].layer_first + l, range);
            if (found.first < found.end &&
                (found.first < extent->row_offset || found.end > rows_end ||
                 (found.first < end && first < found.end)))
                return true;
        }
    return section_overlaps(atomic_load(&extent->derived), range) ||
           section_overlaps(atomic_load(&extent->codes), range) ||
           section_overlaps(atomic_load(&extent->permutation), range);
}

static void owner_drop(struct sc_store *store, uint64_t id, const struct sc_store_page_range *range)
{
    const struct sc_store_table *table = &store->table;
    struct sc_store_extent_entry *extent = sc_store_table_extent(table, id);
    for (uint64_t piece = extent->piece_first; piece != 0 && piece <= extent->piece_last; piece++) {
        const struct sc_store_piece_entry *entry = sc_store_table_piece(table, piece);
        if (entry == NULL || entry->extent != id || !piece_holds(store, extent, entry, range))
            continue;
        sc_store_replay_drop(store, piece);
        if (atomic_load(&entry->state) == SC_STORE_PIECE_DROPPED)
            sc_store_replay_dropped(store, piece, UINT64_MAX);
    }
}

void sc_store_replay_owners_drop(struct sc_store *store, const struct sc_store_page_range *range)
{
    const struct sc_store_table *table = &store->table;
    if (!store->replay->has_gap || !sc_store_replay_at_open(store) ||
        store->replay->owners_sought == OWNERS_MAX)
        return;
    store->replay->owners_sought++;
    for (uint64_t id = 1; (id = sc_store_table_extent_from(table, id)) < table->extent_next; id++)
        owner_drop(store, id, range);
    sc_store_replay_quarantine_end(store);
}
