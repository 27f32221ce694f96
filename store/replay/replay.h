/* replay: the files that apply records, and what they share.
 *
 *   replay.c         open, head, namespace, epoch, average; dispatch; a writer's open
 *   replay_extent.c  extent, derived section, ROWS_GONE
 *   replay_piece.c   piece, drop
 *   replay_left.c    ids that are left free
 *   replay_owners.c  pages behind lost records
 *   replay_segments.c  segments and limit of a store with members
 *
 * Threads: store/replay/replay.c.
 * Tests: tests/unit/store/test_log.c, test_follow.c, tests/fault/test_store_faults.c */
#ifndef SC_STORE_REPLAY_REPLAY_H
#define SC_STORE_REPLAY_REPLAY_H

#include "store/internal.h"
#include "store/log/journal.h"

/* Ids that the log left free after an extent and its last piece (replay_left.c). */
struct sc_store_left {
    uint64_t extent, piece; /* piece without has_piece: the next id then */
    bool has_piece, extent_is_taken, piece_is_taken;
};

/* Slots of a permuted copy whose section record is still to come; slots NULL: none. */
struct sc_store_replay_permutation {
    uint16_t *slots;
    uint64_t extent, copy, layer_next; /* extent: in the log's numbering */
};

/* State of reading the log (replay.c). */
struct sc_store_replay {
    struct sc_store_record record;
    uint64_t piece_next, extent_next; /* next ids of the log */
    uint64_t space_next;              /* least id of the next namespace */
    uint64_t space_given;             /* lower ids were given, by the head */
    uint64_t space_count;             /* namespaces so far */
    uint64_t space_own;               /* id of the first that is ours; 0: none */
    uint64_t piece_base, extent_base; /* the table's id of the log's id 0 (another numbering) */
    uint64_t extent_open;             /* extent whose pieces may follow; 0: none */
    uint64_t extent_rows;             /* rows of it covered so far, ascending */
    uint64_t extent_first;            /* position of its first row, set by a piece */
    struct sc_store_left *left;       /* [left_count] of [left_room] */
    uint64_t left_count, left_room;
    uint64_t left_open, left_rows; /* 1 + index of the open extent's entry; its rows */
    uint64_t late_open;            /* 1 + index of the entry whose id it took; 0: none */
    struct sc_store_provenance provenance;
    struct sc_store_replay_permutation permutation;
    uint16_t *codes;        /* [SC_STORE_QUANT_BYTES_MAX / 2] of an average record */
    bool is_checked, holds; /* the piece was checked; result of params.piece_holds */
    uint64_t numbering;     /* follower: of the table, if is_numbered */
    bool is_numbered;
    bool has_gap;           /* records were lost: a later owner of pages is right */
    bool frees_early;       /* and pages were freed before leases on them ended */
    uint32_t owners_sought; /* how often owners of pages were searched */
    uint32_t generation;    /* readings of the log from its start; in entries' `next` */
    uint64_t refused_count; /* rejected pieces, which get drop records */
    uint64_t refused_first, refused_last;
    const char *refused_what;
};

/* ---- Reading a log (replay.c) ---------------------------------------------------------------- */

spec_status sc_store_replay_log(struct sc_store *store, struct spec_error *reterr); /* a writer's */
spec_status sc_store_replay_open(struct sc_store *store, struct spec_error *reterr);
void sc_store_replay_close(struct sc_store *store);
/* Prepares for reading the log from its start. */
void sc_store_replay_restart(struct sc_store *store);
/* Applies one record. Errors: NO_MEMORY, nothing was applied, and it may be applied again; VERSION,
 * an unknown type or version. */
spec_status sc_store_replay_record(struct sc_store *store, const struct sc_store_payload *payload,
                                   void *user, struct spec_error *reterr);
void sc_store_replay_extent_end(struct sc_store *store);
/* Reads the log on to its end, and opens it for appending (take_over.c). Beside others the caller
 * has the lock that they share. Errors: STALE, it cannot be read, or not by this process. */
spec_status sc_store_take_over_log(struct sc_store *store, struct spec_error *reterr);
/* For the first append: writes the head of an empty log, else continues after the head's ids. Log
 * lock held, or open. */
spec_status sc_store_replay_begin_log(struct sc_store *store, struct spec_error *reterr);
/* Rewrites the log if frames of it were restored, or if more than disk_bytes is used after segments
 * were freed, whose records are void. A failure is logged: the log stays, and if it is too long,
 * nothing is stored until a later checkpoint. */
void sc_store_replay_shorten(struct sc_store *store);
/* Voids a piece: sets its state, and calls on_drop if it was reported. */
void sc_store_replay_drop(struct sc_store *store, uint64_t id);
/* Follower: drops pieces not found since the last restart, or all. */
void sc_store_replay_sweep(struct sc_store *store, bool all);
/* Follower: the log's ids mean something else. Drops all pieces, and never reuses their ids. */
void sc_store_replay_forget(struct sc_store *store);

/* ---- What its files share -------------------------------------------------------------------- */

/* The log is read once, at a writer's open: no other thread uses the store, what later records void
 * was foreseen, and a piece is reported before it is LIVE. Else records arrive while the store is
 * used, and the log may be read again from its start. */
static inline bool sc_store_replay_at_open(const struct sc_store *store)
{
    return store->params.role == SC_STORE_WRITER;
}

/* A writer's open needs no lock. */
static inline void sc_store_replay_table_lock(struct sc_store *store)
{
    if (!sc_store_replay_at_open(store))
        pthread_mutex_lock(&store->log.lock);
}

static inline void sc_store_replay_table_unlock(struct sc_store *store)
{
    if (!sc_store_replay_at_open(store))
        pthread_mutex_unlock(&store->log.lock);
}

/* Counts an invalid record, which is skipped. */
void sc_store_replay_lie(struct sc_store *store, const char *what);
/* Pages of a record are taken. Returns true if an heir reads the log again and may find only at its
 * end that their owners are gone: it reads it once more then, and what it does not believe until
 * then is no damage. */
bool sc_store_replay_lacks_pages(struct sc_store *store);
/* The store cannot keep the space map any more: an heir stays a reader until it is closed. Logged.
 * No effect on others. */
void sc_store_heir_end(struct sc_store *store, const char *why);
/* A log that the space map follows is read again from its start: the offsets of average records are
 * those of another file. */
void sc_store_replay_places_forget(struct sc_store *store);
/* Reserves the log's room for a piece's drop record, and gives it back, where the space is kept. */
void sc_store_replay_room_take(struct sc_store *store);
/* The log has dropped the piece, or lacks it: gives its room back, and its pages to the quarantine.
 * Only for pieces that became DROPPED; no effect where the space is not kept. */
void sc_store_replay_dropped(struct sc_store *store, uint64_t id, uint64_t at_ns);
/* Takes the record's id if it is valid: ids ascend, with gaps left by checkpoints. ret_id: in our
 * table, after ids of earlier numberings. */
bool sc_store_replay_id_take(uint64_t *next, uint64_t base, uint64_t id, uint64_t *ret_id);
/* Ids left free (replay_left.c), in the log's numbering. Adds an extent with a gap, whose pieces
 * may follow; returns false without memory. */
bool sc_store_replay_left_add(struct sc_store *store, uint64_t extent, uint64_t row_count);
/* Returns true if the record, of a piece with the next id, leaves the id after it free. */
bool sc_store_replay_left_piece(struct sc_store_replay *replay, bool decodes, uint64_t id);
/* Takes an id left free for an extent; returns false if it was not, or was taken. Its piece may
 * follow (replay->late_open). */
bool sc_store_replay_late_extent(struct sc_store_replay *replay, uint64_t id);
/* Takes the id of such an extent's piece; returns false for another id. *ret_is_next: the id must
 * be the next one, too. */
bool sc_store_replay_late_piece(struct sc_store_replay *replay, bool decodes, uint64_t id,
                                bool *ret_is_next);
/* Returns true if the piece's id was left free; nobody gets it any more. */
bool sc_store_replay_left_drop(struct sc_store_replay *replay, uint64_t id);
/* A record tells of a segment, or of the limit of all. No lock held. */
void sc_store_segment_told(struct sc_store *store, uint32_t number, uint64_t bytes);
void sc_store_limits_told(struct sc_store *store, uint64_t disk_bytes);
/* A record names the number: it is not given again. No lock held. */
void sc_store_segment_number_seen(struct sc_store *store, uint32_t number);
/* A writer's open, after replay: returns true if the log is to be written anew: it tells of other
 * segments or of another limit than there are, or ends in a seal. All members ended then before one
 * replaced it, and it is the log still. */
bool sc_store_segments_differ(struct sc_store *store);
/* Records before this one are lost. If a reset may be among them, all pieces so far are void. */
void sc_store_replay_gap(struct sc_store *store, enum sc_store_gap gap);
/* A writer's open behind lost records: drops the pieces that hold some of the pages, which a later
 * record gives to another, and frees them. */
struct sc_store_page_range {
    uint64_t segment, page, pages; /* segment: an index */
};
void sc_store_replay_owners_drop(struct sc_store *store, const struct sc_store_page_range *range);
/* Frees the pages of all void pieces at once. */
void sc_store_replay_quarantine_end(struct sc_store *store);
/* Returns true if pieces of the namespace are reported: ours or, for a peer, any of the family that
 * has the family's latest epoch. */
bool sc_store_replay_space_is_told(const struct sc_store *store, uint64_t id);

/* ---- Records by type; `decodes` false: invalid
 * -------------------------------------------------- */

spec_status sc_store_replay_extent(struct sc_store *store, struct sc_store_replay *replay,
                                   bool decodes, struct spec_error *reterr);
/* Adds slots of a permuted copy of an earlier extent; its section's record follows. */
spec_status sc_store_replay_permutation(struct sc_store *store, struct spec_error *reterr);
void sc_store_replay_permutation_end(struct sc_store *store);
/* Adds a section of an earlier extent; ignores one of an extent that is unknown or empty. */
spec_status sc_store_replay_section(struct sc_store *store, struct spec_error *reterr);
/* Voids the pieces of an earlier extent that has no rows, if it holds any. Its pages may have other
 * owners. */
void sc_store_replay_rows_gone(struct sc_store *store);
spec_status sc_store_replay_piece_record(struct sc_store *store, bool decodes,
                                         struct spec_error *reterr);
void sc_store_replay_drop_record(struct sc_store *store);

#endif
