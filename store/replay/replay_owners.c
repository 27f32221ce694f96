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

static bool parts_overlap(const struct sc_store_part *parts, uint32_t count, uint64_t stride,
                          const struct sc_store_page_range *range)
{
    for (uint32_t i = 0; i < count; i++) {
        uint64_t first = parts[i].offset / SC_IO_PAGE_BYTES;
        if (parts[i].segment == range->segment && first < range->page + range->pages &&
            range->page < first + sc_store_part_pages(&parts[i], stride))
            return true;
    }
    return false;
}

static bool section_overlaps(const struct sc_store_section *section,
                             const struct sc_store_page_range *range)
{
    return section != NULL &&
           parts_overlap(section->parts, section->part_count, section->stride, range);
}

static bool extent_overlaps(struct sc_store_extent_entry *extent,
                            const struct sc_store_page_range *range)
{
    return parts_overlap(extent->parts, extent->part_count, extent->stride, range) ||
           section_overlaps(atomic_load(&extent->derived), range) ||
           section_overlaps(atomic_load(&extent->codes), range) ||
           section_overlaps(atomic_load(&extent->permutation), range);
}

void sc_store_replay_owners_drop(struct sc_store *store, const struct sc_store_page_range *range)
{
    const struct sc_store_table *table = &store->table;
    if (!store->replay->has_gap || !sc_store_replay_at_open(store) ||
        store->replay->owners_sought == OWNERS_MAX)
        return;
    store->replay->owners_sought++;
    for (uint64_t id = 1; (id = sc_store_table_extent_from(table, id)) < table->extent_next; id++) {
        struct sc_store_extent_entry *extent = sc_store_table_extent(table, id);
        if (extent->piece_first == 0 || !extent_overlaps(extent, range))
            continue;
        for (uint64_t piece = extent->piece_first; piece <= extent->piece_last; piece++) {
            const struct sc_store_piece_entry *entry = sc_store_table_piece(table, piece);
            if (entry == NULL || entry->extent != id)
                continue;
            sc_store_replay_drop(store, piece);
            if (atomic_load(&entry->state) == SC_STORE_PIECE_DROPPED)
                sc_store_replay_dropped(store, piece, UINT64_MAX);
        }
    }
    sc_store_replay_quarantine_end(store);
}
