/* Replay's files: who applies which record, and what they share.
 *
 *   replay.c         open, head, namespace, epoch, average; which record it is; a writer's open
 *   replay_extent.c  extent, annex, coarse
 *   replay_piece.c   piece, drop
 *   replay_left.c    ids that are left free
 *
 * Threads: store/replay.c.
 * Tests: tests/unit/store/test_log.c, test_follow.c */
#ifndef SC_STORE_REPLAY_H
#define SC_STORE_REPLAY_H

#include "store/internal.h"

static inline bool sc_store_replay_is_writer(const struct sc_store *store)
{
    return store->params.role == SC_STORE_WRITER;
}

/* A writer's open has the table to itself. */
static inline void sc_store_replay_table_lock(struct sc_store *store)
{
    if (!sc_store_replay_is_writer(store))
        pthread_mutex_lock(&store->log_lock);
}

static inline void sc_store_replay_table_unlock(struct sc_store *store)
{
    if (!sc_store_replay_is_writer(store))
        pthread_mutex_unlock(&store->log_lock);
}

/* The record is counted and skipped. */
void sc_store_replay_lie(struct sc_store *store, const char *what);
/* Whether the record's id may come now: ids ascend, with gaps where a checkpoint left records out.
 * ret_id: in our table, where ids of an earlier numbering stand before. */
bool sc_store_replay_id_take(uint64_t *next, uint64_t base, uint64_t id, uint64_t *ret_id);
/* Ids that are left free (replay_left.c); all in the log's numbering. An extent with `gap`, whose
 * pieces may follow: false: no memory. */
bool sc_store_replay_left_add(struct sc_store *store, uint64_t extent, uint64_t row_count);
/* Whether the record, a piece's with an id that came next, leaves the one behind it free. */
bool sc_store_replay_left_piece(struct sc_store_replay *replay, bool decodes, uint64_t id);
/* Whether the id was left free for an extent, and nobody had it; then it is taken, and its piece
 * may follow (replay->late_open). */
bool sc_store_replay_late_extent(struct sc_store_replay *replay, uint64_t id);
/* Whether the id is that of such an extent's piece; then it is taken, but for *ret_is_next: it must
 * come next, too. */
bool sc_store_replay_late_piece(struct sc_store_replay *replay, bool decodes, uint64_t id,
                                bool *ret_is_next);
/* Whether the piece's id was left free; then nobody gets it any more. */
bool sc_store_replay_left_drop(struct sc_store_replay *replay, uint64_t id);
/* The namespace whose pieces are told of: ours, or for a peer any of the family that has seen the
 * family's resets. */
bool sc_store_replay_space_is_told(const struct sc_store *store, uint64_t id);

/* ---- The record that was read; false `decodes`: it lies ------------------------------------- */

spec_status sc_store_replay_extent(struct sc_store *store, struct sc_store_replay *replay,
                                   bool decodes, struct spec_error *reterr);
/* Sections of an extent that stands before. One of an extent that is not there, or holds nothing
 * any more, is no use, and no lie. */
spec_status sc_store_replay_annex(struct sc_store *store, struct spec_error *reterr);
/* Of an extent that stands before and holds something; else it is no use, and no lie. Its pages may
 * be others' by now, whatever became of its codes. */
void sc_store_replay_coarse(struct sc_store *store);
spec_status sc_store_replay_piece_record(struct sc_store *store, bool decodes,
                                         struct spec_error *reterr);
void sc_store_replay_drop_record(struct sc_store *store);

#endif
