/* Who holds which page, reckoned anew; see space_check.h. */
#include "tests/unit/store/space_check.h"

uint8_t check_rows(struct sc_store *store, uint64_t id, const struct sc_store_extent_entry *extent,
                   uint8_t *rows, struct space_sums *sums)
{
    uint8_t most = 0;
    memset(rows, 0, extent->row_count);
    for (uint64_t i = 1; i < store->table.piece_next; i++) {
        const struct sc_store_piece_entry *piece = sc_store_table_piece(&store->table, i);
        if (piece == NULL || piece->extent != id)
            continue;
        uint32_t state = atomic_load(&piece->state);
        uint8_t mark = state == SC_STORE_PIECE_QUARANTINED ? 1 : 2;
        if (state != SC_STORE_PIECE_LIVE && state != SC_STORE_PIECE_DROPPED && mark == 2)
            continue;
        sums->live += state == SC_STORE_PIECE_LIVE;
        sums->unrecorded += state == SC_STORE_PIECE_DROPPED;
        sums->quarantined += mark == 1;
        uint32_t layout = sc_store_space_of(&store->log.spaces, extent->space)->layout;
        uint32_t skip = layout == SC_STORE_SPLIT ? 0 : piece->skip;
        memset(rows + piece->extent_row + skip, mark, piece->row_count - skip);
        most = mark > most ? mark : most;
    }
    return most;
}

/* How the page at byte `at` of the part is held: as its rows are, or by tags and padding for as
 * long as the extent lasts. */
static uint8_t check_page(const struct sc_store_extent_entry *extent, uint64_t row_bytes,
                          const struct sc_store_part *part, uint64_t at, const uint8_t *rows,
                          uint8_t most)
{
    uint64_t layer = (at - part->offset) / extent->stride;
    uint64_t first = part->offset + layer * extent->stride + extent->row_offset;
    if (layer >= part->layer_count || at < first ||
        at + CHECK_PAGE > first + extent->row_count * row_bytes)
        return most;
    uint8_t held = 0;
    for (uint64_t row = (at - first) / row_bytes; row <= (at + CHECK_PAGE - 1 - first) / row_bytes;
         row++)
        held = rows[row] > held ? rows[row] : held;
    return held;
}

static void check_extent(struct sc_store *store, uint64_t id, uint8_t *pages, uint64_t pages_max,
                         struct space_sums *sums)
{
    const struct sc_store_extent_entry *extent = sc_store_table_extent(&store->table, id);
    static uint8_t rows[SC_STORE_ROWS_MAX];
    if (extent == NULL || extent->part_count == 0)
        return;
    uint64_t held_pages = 0, void_pages = 0;
    uint64_t row_bytes = sc_store_space_of(&store->log.spaces, extent->space)->row_bytes;
    uint32_t rows_state = atomic_load(&extent->rows_state);
    uint8_t most = check_rows(store, id, extent, rows, sums);
    for (uint32_t i = 0; i < extent->part_count; i++) {
        const struct sc_store_part *part = &extent->parts[i];
        uint64_t count = sc_store_part_pages(part, extent->stride);
        for (uint64_t page = 0; page < count; page++) {
            uint64_t at = part->offset + page * CHECK_PAGE;
            uint8_t held = check_page(extent, row_bytes, part, at, rows, most);
            if (rows_state != SC_STORE_ROWS_HELD) /* void, all of them, or free */
                held = rows_state == SC_STORE_ROWS_VOID && held > 0;
            held_pages += held > 0;
            void_pages += held == 1;
            pages[part->segment * pages_max + at / CHECK_PAGE] += held > 0;
        }
    }
    const struct sc_store_section *const sections[4] = {
        atomic_load(&extent->held_section), atomic_load(&extent->held_quant),
        atomic_load(&extent->held_permutation), atomic_load(&extent->held_replaced)};
    bool is_void = atomic_load(&extent->replaced_is_void);
    assert_true(sections[3] != NULL || !is_void);
    assert_true(sections[3] == NULL || rows_state == SC_STORE_ROWS_FREED); /* two copies at most */
    assert_true(rows_state == SC_STORE_ROWS_HELD || sections[2] != NULL || most == 0);
    for (uint32_t a = 0; a < 4; a++) {
        const struct sc_store_section *derived = sections[a];
        assert_true(derived == NULL || most > 0); /* it goes with the last piece */
        for (uint32_t i = 0; derived != NULL && i < derived->part_count; i++) {
            const struct sc_store_part *part = &derived->parts[i];
            uint64_t count = sc_store_part_pages(part, derived->stride);
            for (uint64_t page = part->offset / CHECK_PAGE; count > 0; count--, page++) {
                held_pages++;
                void_pages += most == 1 || (a == 3 && is_void);
                pages[part->segment * pages_max + page]++;
            }
        }
    }
    assert_int_equal(extent->held_pages, held_pages);
    assert_int_equal(extent->void_pages, void_pages);
    sums->held_pages += held_pages;
    sums->void_pages += void_pages;
}

static uint64_t check_buckets(const struct sc_store *store)
{
    uint64_t count = 0;
    for (uint32_t i = 0; i < store->quarantine.bucket_count; i++) {
        uint32_t at = (store->quarantine.bucket_first + i) % SC_STORE_BUCKETS;
        for (uint32_t id = store->quarantine.buckets[at].head; id != 0;
             id = sc_store_table_piece(&store->table, id)->next)
            count++;
    }
    return count;
}

void space_check(struct sc_store *store)
{
    struct space_sums sums = {0};
    uint64_t pages_max = store->disk.space.segment_words * 64;
    uint8_t *pages = calloc(store->disk.segment_max, pages_max);
    assert_non_null(pages);
    for (uint64_t id = 1; id < store->table.extent_next; id++)
        check_extent(store, id, pages, pages_max, &sums);
    for (uint64_t s = 0; s < store->disk.segment_count; s++) {
        const uint64_t *words = store->disk.space.words + s * store->disk.space.segment_words;
        uint64_t taken = 0, page_count = store->disk.space.segments[s].page_count;
        for (uint64_t page = 0; page < page_count; page++) {
            uint64_t bit = words[page / 64] >> (page % 64) & 1;
            if (bit != pages[s * pages_max + page])
                fail_msg("segment %lu page %lu: %lu in the map, %u owners", (unsigned long)s,
                         (unsigned long)page, (unsigned long)bit, pages[s * pages_max + page]);
            taken += bit;
        }
        assert_int_equal(store->disk.space.segments[s].free_pages, page_count - taken);
    }
    assert_int_equal(store->disk.extent_bytes, sums.held_pages * CHECK_PAGE);
    assert_int_equal(store->quarantine.bytes, sums.void_pages * CHECK_PAGE);
    assert_int_equal(check_buckets(store), sums.quarantined);
    assert_int_equal(sc_store_counted(&store->counts.piece_count), sums.live);
    /* A drop record has room for each piece that has none yet. */
    assert_true(store->share.reserved >= (sums.live + sums.unrecorded) * SC_STORE_DROP_BYTES);
    assert_true(sc_store_disk_used(store) <= store->disk.bytes_max);
    free(pages);
}

void release_all(struct world *world)
{
    (void)sc_store_quarantine_release(world->store, UINT64_MAX);
    space_check(world->store);
}
