/* replay_left: ids that the log left free: the next one after an extent, and after its last piece.
 * A compacted extent and its one piece get them, once, for the pieces that were compacted
 * (docs/decisions/0016).
 *
 *   extent 7, gap     piece 20, its last     extent 9 ...     extent 8     piece 21
 *       leaves 8          leaves 21
 *
 * If a checkpoint omitted piece 20, the records of 21 follow in order.
 *
 * Invariants: entries ascend by extent and by piece. In one reading of the log a free id is taken
 * once, or given up by a drop record. No other id below the next ones is accepted. */
#include "store/replay/replay.h"

#include <string.h>

bool sc_store_replay_left_add(struct sc_store *store, uint64_t extent, uint64_t row_count)
{
    struct sc_store_replay *replay = store->replay;
    struct sc_alloc *alloc = store->params.alloc;
    if (replay->left_count == replay->left_room) {
        uint64_t room = replay->left_room == 0 ? 64 : 2 * replay->left_room;
        struct sc_store_left *left = sc_alloc_array(alloc, room, sizeof(*left));
        if (left == NULL)
            return false;
        if (replay->left_count > 0)
            memcpy(left, replay->left, replay->left_count * sizeof(*left));
        sc_alloc_free(alloc, replay->left);
        replay->left = left;
        replay->left_room = room;
    }
    replay->left[replay->left_count++] =
        (struct sc_store_left){.extent = extent + 1, .piece = replay->piece_next};
    replay->left_open = replay->left_count;
    replay->left_rows = row_count;
    return true;
}

/* Returns the open extent's entry if the record is of its last piece, else NULL. */
static struct sc_store_left *left_open(const struct sc_store_replay *replay)
{
    const struct sc_store_piece *piece = &replay->record.piece;
    if (replay->left_open == 0)
        return NULL;
    struct sc_store_left *left = &replay->left[replay->left_open - 1];
    bool is_last = !left->has_piece && piece->extent + 1 == left->extent &&
                   (uint64_t)piece->extent_row + piece->row_count == replay->left_rows;
    return is_last ? left : NULL;
}

bool sc_store_replay_left_piece(struct sc_store_replay *replay, bool decodes, uint64_t id)
{
    struct sc_store_left *left = decodes ? left_open(replay) : NULL;
    if (left == NULL || id + 1 >= SC_STORE_IDS - replay->piece_base)
        return false;
    left->piece = id + 1;
    left->has_piece = true;
    return true;
}

/* Returns the first entry whose extent (or piece) is at least this id, or NULL. */
static struct sc_store_left *left_from(struct sc_store_replay *replay, bool by_piece, uint64_t id)
{
    uint64_t low = 0, high = replay->left_count;
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        const struct sc_store_left *left = &replay->left[middle];
        if ((by_piece ? left->piece : left->extent) < id)
            low = middle + 1;
        else
            high = middle;
    }
    return low < replay->left_count ? &replay->left[low] : NULL;
}

bool sc_store_replay_late_extent(struct sc_store_replay *replay, uint64_t id)
{
    struct sc_store_left *left = left_from(replay, false, id);
    if (left == NULL || left->extent != id || left->extent_is_taken)
        return false;
    left->extent_is_taken = true;
    replay->late_open = (uint64_t)(left - replay->left) + 1;
    return true;
}

bool sc_store_replay_late_piece(struct sc_store_replay *replay, bool decodes, uint64_t id,
                                bool *ret_is_next)
{
    struct sc_store_left *left = &replay->left[replay->late_open - 1];
    if (left->piece_is_taken || (decodes && replay->record.piece.extent != left->extent) ||
        (left->has_piece && id != left->piece))
        return false;
    *ret_is_next = !left->has_piece;
    left->piece_is_taken = true;
    return true;
}

/* An entry without has_piece has a used id as its piece, which equals no free id. */
bool sc_store_replay_left_drop(struct sc_store_replay *replay, uint64_t id)
{
    struct sc_store_left *left = left_from(replay, true, id);
    if (left == NULL || left->piece != id || !left->has_piece || left->piece_is_taken)
        return false;
    left->extent_is_taken = left->piece_is_taken = true;
    return true;
}
