/* Replay's files: who applies which record, and what they share.
 *
 *   replay.c         open, head, namespace, epoch, average; which record it is; a writer's open
 *   replay_extent.c  extent, derived section, gone
 *   replay_piece.c   piece, drop
 *   replay_left.c    ids that are left free
 *
 * Threads: store/replay/replay.c.
 * Tests: tests/unit/store/test_log.c, test_follow.c */
#ifndef SC_STORE_REPLAY_REPLAY_H
#define SC_STORE_REPLAY_REPLAY_H

#include "store/internal.h"
#include "store/log/journal.h"

/* Ids that the log left free behind an extent and its last piece (replay_left.c). */
struct sc_store_left {
    uint64_t extent, piece; /* has_piece false: at most those that came since */
    bool has_piece, extent_is_taken, piece_is_taken;
};

/* Slots of a copy of the rows whose derived section is still to come; slots NULL: of none. */
struct sc_store_replay_permutation {
    uint16_t *slots;
    uint64_t extent, copy, layer_next; /* extent: in the log's numbering */
};

/* Reading the log, record by record (replay.h). */
struct sc_store_replay {
    struct sc_store_record record;
    uint64_t piece_next, extent_next; /* ids that the log may have next */
    uint64_t space_next;              /* the least id that its next namespace may have; */
    uint64_t space_given;             /* those below it the log once had: its head says so */
    uint64_t space_count;             /* namespaces that it has had so far; */
    uint64_t space_own;               /* the id of the first that is ours; 0: none so far */
    uint64_t piece_base, extent_base; /* the table's id of the log's id 0 (another numbering) */
    uint64_t extent_open;             /* id of the extent whose pieces may follow; 0: none */
    uint64_t extent_rows;             /* rows of it that pieces cover so far: they ascend */
    uint64_t extent_first;            /* position of its first row, once a piece says so */
    struct sc_store_left *left;       /* [left_count] of [left_room] */
    uint64_t left_count, left_room;
    uint64_t left_open, left_rows; /* 1 + index: of the extent whose pieces may follow, its rows; */
    uint64_t late_open;            /* of the one whose id it took; 0: it is none such */
    struct sc_store_provenance provenance;
    struct sc_store_replay_permutation permutation;
    uint16_t *codes;        /* [SC_STORE_QUANT_BYTES_MAX / 2] of an average record */
    bool is_checked, holds; /* the record's piece was, and what params.piece_holds said */
    uint64_t numbering;     /* follower: of what the table holds, once is_numbered */
    bool is_numbered;
    uint32_t generation;    /* of reading the log from its start; in entries' `next` */
    uint64_t refused_count; /* pieces that get drop records */
    uint64_t refused_first, refused_last;
    const char *refused_what;
};

/* ---- Reading a log (replay.c) ---------------------------------------------------------------- */

spec_status sc_store_replay_log(struct sc_store *store, struct spec_error *reterr); /* a writer's */
spec_status sc_store_replay_open(struct sc_store *store, struct spec_error *reterr);
void sc_store_replay_close(struct sc_store *store);
/* The log is read from its start. */
void sc_store_replay_restart(struct sc_store *store);
/* Applies one believed record. NO_MEMORY: nothing of it was, it may come again. VERSION: it is of
 * an unknown type or version. */
spec_status sc_store_replay_record(struct sc_store *store, const struct sc_store_payload *payload,
                                   void *user, struct spec_error *reterr);
void sc_store_replay_extent_end(struct sc_store *store);
/* A piece is void: its state, and on_drop when it was told. */
void sc_store_replay_drop(struct sc_store *store, uint64_t id);
/* Follower: drops what was not met since the last restart; or all. */
void sc_store_replay_sweep(struct sc_store *store, bool all);
/* Follower: the ids mean something else from now on. Drops all, keeps their ids from being used. */
void sc_store_replay_forget(struct sc_store *store);

/* ---- What its files share -------------------------------------------------------------------- */

static inline bool sc_store_replay_is_writer(const struct sc_store *store)
{
    return store->params.role == SC_STORE_WRITER;
}

/* A writer's open has the table to itself. */
static inline void sc_store_replay_table_lock(struct sc_store *store)
{
    if (!sc_store_replay_is_writer(store))
        pthread_mutex_lock(&store->log.lock);
}

static inline void sc_store_replay_table_unlock(struct sc_store *store)
{
    if (!sc_store_replay_is_writer(store))
        pthread_mutex_unlock(&store->log.lock);
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
/* Slots of a copy of the rows of an extent that stands before; its derived section' record comes
 * behind all of them.
 */
spec_status sc_store_replay_permutation(struct sc_store *store, struct spec_error *reterr);
void sc_store_replay_permutation_end(struct sc_store *store);
/* Sections of an extent that stands before. One of an extent that is not there, or holds nothing
 * any more, is no use, and no lie. */
spec_status sc_store_replay_section(struct sc_store *store, struct spec_error *reterr);
/* Of an extent that stands before and holds something; else it is no use, and no lie. Its pages may
 * be others' by now, whatever became of its codes. */
void sc_store_replay_rows_gone(struct sc_store *store);
spec_status sc_store_replay_piece_record(struct sc_store *store, bool decodes,
                                         struct spec_error *reterr);
void sc_store_replay_drop_record(struct sc_store *store);

#endif
