/* Two stores of one log have the same state; see state_check.h. */
#include "tests/unit/store/state_check.h"
#include "store/log/log_room.h"

void maps_equal(const struct sc_store *heir, const struct sc_store *fresh)
{
    uint64_t mapped = 0;
    for (uint64_t i = 0; i < heir->disk.segment_count; i++) {
        const struct sc_store_space_segment *one = &heir->disk.space.segments[i], *other;
        if (one->page_count == 0)
            continue;
        uint64_t at = sc_store_segment_index(fresh, heir->disk.segments[i].number);
        assert_true(at < fresh->disk.segment_count);
        other = &fresh->disk.space.segments[at];
        assert_int_equal(one->page_count, other->page_count);
        assert_int_equal(one->free_pages, other->free_pages);
        for (uint64_t page = 0; page < one->page_count; page += 64)
            assert_int_equal(
                heir->disk.space.words[i * heir->disk.space.segment_words + page / 64],
                fresh->disk.space.words[at * fresh->disk.space.segment_words + page / 64]);
        mapped++;
    }
    assert_int_equal(mapped, fresh->disk.segment_count);
}

void tables_equal(const struct sc_store *heir, const struct sc_store *fresh)
{
    assert_int_equal(heir->table.piece_next, fresh->table.piece_next);
    assert_int_equal(heir->table.extent_next, fresh->table.extent_next);
    for (uint64_t id = 1; id < fresh->table.piece_next; id++) {
        const struct sc_store_piece_entry *one = sc_store_table_live(&heir->table, id);
        const struct sc_store_piece_entry *other = sc_store_table_live(&fresh->table, id);
        assert_int_equal(one != NULL, other != NULL);
        if (one == NULL)
            continue;
        assert_memory_equal(one->hash, other->hash, sizeof(one->hash));
        assert_int_equal(one->extent, other->extent);
        assert_int_equal(one->extent_row, other->extent_row);
        const struct sc_store_extent_entry *mine = sc_store_table_extent(&heir->table, one->extent),
                                           *theirs =
                                               sc_store_table_extent(&fresh->table, one->extent);
        assert_int_equal(mine->live_count, theirs->live_count);
        assert_int_equal(mine->held_pages, theirs->held_pages);
        assert_int_equal(mine->leaves_ids, theirs->leaves_ids);
        assert_int_equal(mine->permutation != NULL, theirs->permutation != NULL);
        assert_int_equal(mine->codes != NULL, theirs->codes != NULL);
        assert_int_equal(mine->derived != NULL, theirs->derived != NULL);
    }
}

void ranges_hold(const struct sc_store *heir, const struct sc_store *fresh)
{
    for (uint64_t id = 1; id < fresh->table.extent_next; id++) {
        const struct sc_store_extent_entry *mine = sc_store_table_extent(&heir->table, id),
                                           *theirs = sc_store_table_extent(&fresh->table, id);
        if (mine == NULL || theirs == NULL || theirs->live_count == 0)
            continue;
        assert_true(mine->piece_first <= theirs->piece_first);
        assert_true(mine->piece_last >= theirs->piece_last);
    }
}

void logs_equal(struct sc_store *heir, struct sc_store *fresh)
{
    const struct sc_store_journal *one = &heir->log.journal, *other = &fresh->log.journal;
    assert_int_equal(one->end.offset, other->end.offset);
    assert_int_equal(one->end.sequence, other->end.sequence);
    assert_int_equal(one->end.chain, other->end.chain);
    assert_int_equal(one->end.resets, other->end.resets);
    assert_int_equal(one->file_end, other->file_end);
    assert_int_equal(sc_store_log_pieces(heir), sc_store_log_pieces(fresh));
    assert_int_equal(heir->share.reserved, fresh->share.reserved);
    /* An open does not count averages of pieces that a later record drops, and an heir that reads
     * the log again none of those that a reset dropped. */
    assert_true(heir->log.averages.all_bytes >= heir->log.averages.last_bytes);
    assert_true(heir->log.averages.all_bytes <= one->end.offset);
    assert_int_equal(heir->log.has_late, fresh->log.has_late);
    assert_int_equal(heir->log.spaces.next, fresh->log.spaces.next);
    assert_int_equal(heir->disk.number_next, fresh->disk.number_next);
    assert_int_equal(sc_store_counted(&heir->counts.held_count),
                     sc_store_counted(&fresh->counts.held_count));
    assert_int_equal(sc_store_counted(&heir->counts.piece_count),
                     sc_store_counted(&fresh->counts.piece_count));
    assert_int_equal(sc_store_counted(&heir->counts.extent_count),
                     sc_store_counted(&fresh->counts.extent_count));
}
