/* The store's inside: what its files share. Only store/ includes it.
 *
 *   identity.c  store.msgpack                     open.c     open, close, statistics
 *   journal.c   the log's file: scan, append      replay.h   records of the log -> table, space
 *   log_room.c  room for the log and the next one
 *   segment.c   segment files, extents' places    extent.c   extents being written: begin, end
 *   pack.c      a pass's layers -> writes         commit.c   what was written -> log, table
 *   quarantine.c  dropped pieces -> free pages    room.c     how much is free, what may go
 *   mail.c      what others say to the writer
 *   plan.c      ranges -> read operations         picks.c    chosen rows -> read operations
 *   flight.h    operations in flight              sketch.h  a layer's probe rows, tags or codes
 *   reader.c    slots in order                    reader_rows.c  -> rows, verified
 *   spare.c     a frame for who waits and starves
 *   average.c   records of average importance     pool.c     memory of sketches
 *   build.c     sections that extents lack        readback.h  rows read back, verified
 *   coarse.c    rows that go while codes stay     where.h     where rows and tags lie
 *   coding.c    codes of rows that are being stored  merge.c  pieces that become one
 *   copy.c      numbers of extents and annexes that never come again
 *
 * Locks: space (rank 40), log (rank 50), coding (rank 55), and a flight's own (rank 30). The log
 * lock is never held while space is taken: space freed by a drop is given back after it.
 *
 * Threads: per member, below. */
#ifndef SC_STORE_INTERNAL_H
#define SC_STORE_INTERNAL_H

#include "store/frames.h"
#include "store/pool.h"
#include "store/record.h"
#include "store/space.h"
#include "store/table.h"

#include <pthread.h>

#define SC_STORE_SPACES_MAX    4096u         /* namespaces in one directory */
#define SC_STORE_SEGMENT_MIN   (1ull << 20)  /* the shortest that is made when space runs out */
#define SC_STORE_FIXED_BYTES   (48ull << 10) /* identity, locks, directories, mail */
#define SC_STORE_DEFAULT_BYTES (20ull << 30) /* disk_bytes when the configuration says 0 */
#define SC_STORE_RETRY_NS      5000000000ull /* after ENOSPC or EIO: no new extents for so long */

/* Geometry of a namespace, as recorded. */
struct sc_store_shape {
    uint8_t digest[SC_STORE_HASH_BYTES];
    uint32_t layer_count, layout;
    uint64_t k_row_bytes, row_bytes;
    uint32_t tags_per_row; /* 1 paired, 2 split */
    uint32_t id;           /* of the namespace record; 0: none */
    uint8_t family[SC_STORE_HASH_BYTES];
    bool is_own;             /* ours; for a peer, any of our family */
    uint64_t epoch;          /* log lock */
    uint64_t epoch_sequence; /* replay: pieces of frames before it are void */
    uint64_t void_end;       /* writer, log lock: its pieces with ids below are void */
};

enum sc_store_segment_state {
    SC_STORE_SEGMENT_ABSENT,
    SC_STORE_SEGMENT_WANTED, /* the writer task will make its file */
    SC_STORE_SEGMENT_READY,
    SC_STORE_SEGMENT_FAILED /* its file could not be made; gone once its extents are */
};

struct sc_store_write { /* one frame on its way to disk */
    struct sc_io_op op;
    struct sc_store_extent *extent;
    struct sc_store_write *next; /* free list, or a wanted segment's waiting list */
    uint32_t segment;
};

struct sc_store_starved {   /* a load that the spare frame may serve: starved_lock */
    _Atomic uint32_t *word; /* changes when the frame came back; constant */
    struct sc_store_starved *next;
    bool is_queued;
};

struct sc_store_segment {
    uint32_t number, state; /* enum sc_store_segment_state */
    uint64_t bytes;
    struct sc_io_file *file;
    struct sc_store_write *waiting;
};

#define SC_STORE_BUCKETS        64u
#define SC_STORE_RELEASE_MAX    1024u /* pieces freed in a host's call: a bounded wait */
#define SC_STORE_WRITES_AT_ONCE 8u    /* queued by one call */

struct sc_store_bucket {       /* quarantined pieces of about one time, linked by their entries */
    uint64_t begin_ns, due_ns; /* executor's clock; due: of the last of them */
    uint32_t head, tail;
};

#define SC_STORE_DEMAND_SLOTS 17u /* the newest, and those before it that span a lease's time */

struct sc_store_demand { /* what was stored, or missed for want of room, lately */
    struct sc_store_demand_slot {
        uint64_t bytes;
        uint64_t piece_first;       /* what was committed in it, and later, has no lower id */
    } slots[SC_STORE_DEMAND_SLOTS]; /* a ring, by their numbers */
    uint64_t slot;                  /* number of the newest: executor's time / its width */
    uint64_t piece_seen;            /* the next id, when somebody looked */
};

#define SC_STORE_WINDOW_BYTES (1ull << 20) /* of the log, read or appended at once */

struct sc_store_journal {
    struct sc_io_file *file;
    uint64_t end;      /* bytes that are believed */
    uint64_t sequence; /* of the last frame */
    uint64_t chain;    /* its checksum */
    struct sc_store_record_head head;
    uint64_t synced_end;      /* nothing was appended since; 0: it is not known */
    uint64_t kept_bytes;      /* what the last checkpoint left; 0: there was none since open */
    uint64_t pieces_read;     /* piece records in it then, or at open, */
    uint64_t piece_next_read; /* and the id that came next */
    uint64_t space_bytes;     /* of its namespaces' records, at most */
    uint64_t retry_ns;        /* no checkpoint is due before: one failed */
    bool is_short;            /* an append found no space, though disk_bytes allows it */
    uint8_t *buffer;          /* records of one append, or what a follower reads */
    uint64_t buffer_bytes;
};

/* Where the newest average record of each piece lies in the log. Log lock; replay. */
struct sc_store_averages {
    struct sc_store_average_place {
        uint32_t piece; /* 0: nothing here */
        uint32_t bytes; /* of the frame */
        uint64_t offset;
    } * places;          /* [room], open addressing */
    uint64_t room;       /* a power of two, or 0 */
    uint64_t count;      /* <= room / 2 */
    uint64_t all_bytes;  /* of average records in the log */
    uint64_t last_bytes; /* of them, those that places tell of */
};

/* Ids that the log left free behind an extent and its last piece (replay_left.c). */
struct sc_store_left {
    uint64_t extent, piece; /* has_piece false: at most those that came since */
    bool has_piece, extent_is_taken, piece_is_taken;
};

/* Reading the log, record by record (replay.h). */
struct sc_store_replay {
    struct sc_store_record record;
    uint64_t piece_next, extent_next; /* ids that the log may have next */
    uint64_t space_count;             /* namespaces that it has had so far */
    uint64_t piece_base, extent_base; /* the table's id of the log's id 0 (another numbering) */
    uint64_t extent_open;             /* id of the extent whose pieces may follow; 0: none */
    uint64_t extent_rows;             /* rows of it that pieces cover so far: they ascend */
    uint64_t extent_first;            /* position of its first row, once a piece says so */
    struct sc_store_left *left;       /* [left_count] of [left_room] */
    uint64_t left_count, left_room;
    uint64_t left_open, left_rows; /* 1 + index: of the extent whose pieces may follow, its rows; */
    uint64_t late_open;            /* of the one whose id it took; 0: it is none such */
    struct sc_store_provenance provenance;
    uint16_t *codes;        /* [SC_STORE_CODES_BYTES_MAX / 2] of an average record */
    bool is_checked, holds; /* the record's piece was, and what params.piece_holds said */
    uint64_t numbering;     /* follower: of what the table holds, once is_numbered */
    bool is_numbered;
    uint32_t generation;    /* of reading the log from its start; in entries' `next` */
    uint64_t refused_count; /* pieces that get drop records */
    uint64_t refused_first, refused_last;
    const char *refused_what;
};

/* A reader's or peer's place in another's log (follow.c). The thread that follows. */
struct sc_store_follow {
    bool has_identity, is_over;    /* over: its version is not ours, which was said */
    bool rereads;                  /* from the start; what does not come again is void */
    uint64_t frame_offset;         /* of the last believed frame */
    uint64_t bytes_seen;           /* the log's size, by the last call */
    uint64_t segment_last;         /* index that was found last */
    _Atomic uint64_t known_ns;     /* any thread: sc_store_follow_ns, */
    _Atomic uint64_t known_now_ns; /* and sc_store_follow_now_ns */
};

struct sc_store {
    /* Set by open, constant after. */
    struct sc_store_params params;
    char *descriptor; /* a copy of params.space.descriptor */
    struct sc_io *io;
    struct sc_frames *frames;
    struct sc_store_shape shape;    /* this connector's namespace */
    struct sc_store_replay *replay; /* during a writer's open; all of a follower's life */
    char *dir;                      /* .../rank-RRRR-of-NNNN */
    struct sc_io_file *lock_file;
    uint8_t store_id[16];
    uint64_t disk_bytes_max, rows_max, pieces_max, op_bytes, segment_max, extent_max, write_max;
    uint64_t share_bytes, share_pages; /* log_room.c: log bytes for so many bytes of pages */

    /* Guarded by space_lock (rank 40). */
    pthread_mutex_t space_lock;
    struct sc_store_space space;
    struct sc_store_segment *segments; /* [segment_max] */
    uint64_t segment_count;            /* indices in use are below */
    uint64_t segment_begin;            /* places are looked for from here on, and around */
    uint64_t segment_bytes;            /* of all segments, wanted ones too */
    uint64_t surplus_count;            /* open: segments that disk_bytes does not allow, */
    bool surplus_cuts;                 /* and the last of the others has an end that it does not */
    uint64_t log_reserved;             /* for commits to come and a drop of each live piece */
    uint64_t log_asked;                /* the most that found no room in the log lately */
    /* A segment found no space: so much there is in all, until then; none is made before. */
    uint64_t device_bytes, device_until_ns, device_retry_ns;
    uint64_t extent_bytes;                            /* taken pages, written or being written */
    uint64_t retry_ns;                                /* no new extents before */
    uint64_t quarantine_bytes;                        /* pages that only quarantined pieces hold */
    struct sc_store_bucket buckets[SC_STORE_BUCKETS]; /* a ring, by due time */
    uint32_t bucket_first, bucket_count;
    uint32_t rows_first, rows_last; /* extents whose rows wait, by time; 0: none */
    struct sc_store_demand demand;  /* room.c */
    uint32_t number_next;           /* of a new segment */
    struct sc_store_extent *extents, *extents_free;
    struct sc_store_write *writes, *writes_free;
    bool maker_posted;
    struct sc_task maker;
    _Atomic uint32_t busy; /* tasks posted and writes in flight; close waits for 0 */

    /* Guarded by log_lock (rank 50); table: lookups from any thread. */
    pthread_mutex_t log_lock;
    struct sc_store_journal journal;
    struct sc_store_table table;
    struct sc_store_shape *spaces; /* [SC_STORE_SPACES_MAX], id i at i - 1 */
    uint64_t space_count;
    _Atomic uint32_t space_id; /* of this connector's namespace: 0, then recorded once */
    _Atomic uint64_t epoch;    /* its; of a peer, the family's */
    bool journal_broken;       /* an append failed and could not be undone */
    bool has_late;             /* an extent's record stands behind others of larger ids */
    bool is_copied;            /* a checkpoint runs: none comes to stand so meanwhile */
    uint64_t copies;           /* checkpoints that were begun */
    struct sc_store_averages averages;
    uint32_t unwritten; /* DROPPED pieces without a record, linked by their entries */

    /* One task at a time: mail.c. */
    struct sc_io_file *mail_file;
    uint64_t mail_taken; /* bytes of it */

    struct sc_store_follow follow;

    /* A frame that only a starved reader uses, so that one that is waited for always progresses;
     * guarded by starved_lock (rank 35). */
    pthread_mutex_t starved_lock;
    uint8_t *spare_frame;
    struct sc_store_starved *spare_owner;
    struct sc_store_starved *starved; /* waits for the spare frame */

    struct sc_store_pool pool; /* of params.sketch_bytes_max: memory of sketches that are begun */

    /* The device model (device.c); 0: not measured. */
    _Atomic uint64_t device_bytes_per_s, device_op_ns;
    struct sc_store_probe *probe;   /* NULL: not a writer */
    struct sc_store_build *build;   /* likewise (build.c) */
    struct sc_store_merger *merger; /* likewise (merge.c) */
    struct sc_store_coding *coding; /* NULL: rows are not coded while they are stored */

    /* Set by open: what a commit tells others, no lock held. */
    void (*extent_stored)(struct sc_store *store);                    /* device.c */
    void (*codes_missed)(struct sc_store *store, uint64_t extent_id); /* build.c */

    /* Any thread, relaxed: statistics. */
    _Atomic uint64_t log_bytes, piece_count, extent_count;
    _Atomic uint64_t held_count; /* pieces that hold pages: live, or dropped and not freed yet */
    _Atomic uint64_t read_bytes, read_ops, write_bytes, write_ops, verify_ns;
    _Atomic uint64_t corrupt_rows, corrupt_records, io_errors, no_space, stage_full;
    _Atomic uint64_t evicted_pieces, checkpoints, built_pieces, built_bytes;
    _Atomic uint64_t bad_blocks, code_bytes;
    _Atomic uint64_t coarse_marks;  /* extents that were ever marked (coarse.c) */
    _Atomic uint64_t coarse_pieces; /* that live, and have no rows */
    _Atomic uint32_t loads;         /* that are begun and not complete */
    _Atomic uint64_t copy_next;     /* of the next extent or annex (copy.c) */
    _Atomic uint64_t evict_next;    /* older pieces were looked at by evict_unreachable */
};

static inline uint64_t sc_store_up(uint64_t value, uint64_t multiple)
{
    return (value + multiple - 1) / multiple * multiple;
}

static inline uint64_t sc_store_down(uint64_t value, uint64_t multiple)
{
    return value / multiple * multiple;
}

static inline void sc_store_count(_Atomic uint64_t *counter, uint64_t n)
{
    atomic_fetch_add_explicit(counter, n, memory_order_relaxed);
}

static inline uint64_t sc_store_counted(const _Atomic uint64_t *counter)
{
    return atomic_load_explicit(counter, memory_order_relaxed);
}

/* ---- Identity (identity.c) ------------------------------------------------------------------- */

/* Finds or makes DIR/store.msgpack, and sets it. */
spec_status sc_store_identity_open(struct sc_store *store, struct spec_error *reterr);
/* Only finds it; makes and changes nothing. *ret_found false: not there yet. VERSION: not ours. */
spec_status sc_store_identity_find(struct sc_store *store, struct sc_store_identity *ret_identity,
                                   bool *ret_found, struct spec_error *reterr);
/* It is this one's from now on; its secret is told. Errors: those of params.on_secret. */
spec_status sc_store_identity_set(struct sc_store *store, const struct sc_store_identity *identity,
                                  struct spec_error *reterr);

/* Whether the directory still has our lock, by inode: else another writer may be at work in it, and
 * nothing in it is made, renamed or removed any more. No lock held, or the log's. */
spec_status sc_store_is_ours(struct sc_store *store, struct spec_error *reterr);

/* ---- Numbers of copies (copy.c) ---------------------------------------------------------------
 */

/* Where the numbers of this open begin. */
spec_status sc_store_copies_open(struct sc_store *store, struct spec_error *reterr);
/* A number that no extent and no annex had or will have, whatever a crash made undone. Any thread.
 */
uint64_t sc_store_copy_next(struct sc_store *store);

/* ---- Journal (journal.c) --------------------------------------------------------------------- */

spec_status sc_store_journal_open(struct sc_store *store, struct spec_error *reterr);
void sc_store_journal_close(struct sc_store *store);
/* Any thread. */
static inline bool sc_store_piece_holds(const struct sc_store *store,
                                        const struct sc_store_piece *piece)
{
    return store->params.piece_holds == NULL ||
           store->params.piece_holds(piece, store->params.user);
}
/* A believed record. */
struct sc_store_payload {
    const uint8_t *at;
    uint64_t bytes;
    const struct sc_store_piece *piece; /* decoded, of our version; NULL: that is the caller's */
    bool holds;                         /* the piece, by params.piece_holds */
};
/* Calls on_payload for every believed record from the start; leaves end, sequence and chain at the
 * last one. ret_bytes: of the file; more than end means that a bad frame follows. */
typedef spec_status sc_store_on_payload(struct sc_store *store,
                                        const struct sc_store_payload *payload, void *user,
                                        struct spec_error *reterr);
spec_status sc_store_journal_scan(struct sc_store *store, sc_store_on_payload *on_payload,
                                  void *user, uint64_t *ret_bytes, struct spec_error *reterr);
/* One append: begin, records between frame begin and end, commit (one write). Log lock. */
struct sc_store_append {
    struct sc_store_writer writer;
    uint64_t sequence, chain, frame;
};
void sc_store_append_begin(struct sc_store *store, struct sc_store_append *append);
void sc_store_append_frame(struct sc_store_append *append);
void sc_store_append_frame_end(struct sc_store_append *append);
spec_status sc_store_append_commit(struct sc_store *store, struct sc_store_append *append,
                                   struct spec_error *reterr);

/* ---- Replay (replay.h) ----------------------------------------------------------------------- */

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

/* ---- Following (follow.c, follow_places.c) --------------------------------------------------- */

spec_status sc_store_follow_open(struct sc_store *store, struct spec_error *reterr);
/* Segments of parts[0 .. count): opened on demand; their numbers become indices. */
bool sc_store_follow_places(struct sc_store *store, struct sc_store_part *parts, uint32_t count,
                            uint64_t stride);

/* ---- Average importance (average.c) ---------------------------------------------------------- */

/* Makes room for so many pieces more. false: no memory. */
bool sc_store_averages_reserve(struct sc_store_averages *averages, uint64_t more,
                               struct sc_alloc *alloc);
/* A record of the piece is in the log; there was room. */
void sc_store_averages_note(struct sc_store_averages *averages, uint64_t piece, uint64_t offset,
                            uint64_t bytes);
/* Whether the piece's newest record lies there. */
bool sc_store_averages_is_last(const struct sc_store_averages *averages, uint64_t piece,
                               uint64_t offset);
void sc_store_averages_done(struct sc_store_averages *averages, struct sc_alloc *alloc);

/* ---- Checkpoints (checkpoint.c) -------------------------------------------------------------- */

/* Removes what a checkpoint left that did not come to its end. */
void sc_store_checkpoint_clean(struct sc_store *store);
/* At close: a checkpoint when it is worth it, else a sync, else nothing. Failures are logged. */
void sc_store_checkpoint_close(struct sc_store *store);

/* ---- How much is asked for (demand.c) -------------------------------------------------------- */

/* The log was read. */
void sc_store_demand_open(struct sc_store *store);
/* Space lock held. An extent has a place of so many bytes; or gave it back, with nothing stored. */
void sc_store_demand_add(struct sc_store *store, uint64_t bytes);
void sc_store_demand_sub(struct sc_store *store, uint64_t bytes);
/* Likewise. demand_bytes and piece_new of sc_store_room; piece_next: the next id of the table. */
void sc_store_demand_look(struct sc_store *store, uint64_t piece_next, uint64_t *ret_bytes,
                          uint64_t *ret_piece_new);

/* ---- Room for two logs (log_room.c) ---------------------------------------------------------- */

/* disk_bytes_max is known: what segments leave to the log. NO_SPACE: disk_bytes is too small for a
 * segment beside it; the text says what is needed. */
spec_status sc_store_log_share_decide(struct sc_store *store, struct spec_error *reterr);
/* What counts under disk_bytes; the same but segments, with at least the share of the log. Space
 * lock held, or open. */
uint64_t sc_store_disk_used(struct sc_store *store);
uint64_t sc_store_disk_beside(struct sc_store *store);
/* Space lock held. Bytes of segments that may still be made. */
uint64_t sc_store_segment_room(struct sc_store *store);
/* Promises so many bytes of the log, and of its successor; false: there is no room. Space lock
 * held; no lock held; and back. */
bool sc_store_log_take(struct sc_store *store, uint64_t bytes);
bool sc_store_log_reserve(struct sc_store *store, uint64_t bytes);
bool sc_store_log_reserve_epoch(struct sc_store *store, uint64_t bytes); /* there is some for it */
void sc_store_log_unreserve(struct sc_store *store, uint64_t bytes);
/* Whether the file system still has the room of the log, with a segment that was just made. */
spec_status sc_store_log_fits_device(struct sc_store *store, uint64_t segment_bytes,
                                     struct spec_error *reterr);
/* A segment found no space: for a while only such are made as fit. No lock held. */
void sc_store_device_is_full(struct sc_store *store, const char *what);
/* How many pieces, the oldest ones, shall go so that the log has room. No lock held. */
uint64_t sc_store_log_pieces_over(struct sc_store *store);
/* The log has little room left, and a checkpoint would make some. No lock held. */
bool sc_store_log_is_tight(struct sc_store *store);
/* Log lock held. Piece records in the log. */
uint64_t sc_store_log_pieces(const struct sc_store *store);

/* ---- Segments and space (segment.c) ---------------------------------------------------------- */

/* Lists segment files and opens them; sizes the space map. */
spec_status sc_store_segments_open(struct sc_store *store, struct spec_error *reterr);
void sc_store_segments_close(struct sc_store *store);
/* After replay: unlinks what disk_bytes does not allow, and empty segments while more is used. */
void sc_store_segments_trim(struct sc_store *store);
/* Space lock held. Parts for all layers of that stride; false: there is no room for all, and
 * nothing was taken. */
bool sc_store_parts_take(struct sc_store *store, uint64_t stride, struct sc_store_part *parts,
                         uint32_t *ret_part_count);
void sc_store_parts_free(struct sc_store *store, const struct sc_store_part *parts,
                         uint32_t part_count, uint64_t stride);
/* Segments that were wanted for an extent that found no place after all are made nevertheless: they
 * count, and the next extent takes them. true: the caller posts store->maker, without the lock. */
bool sc_store_maker_wake(struct sc_store *store);
/* Queues writes, in one call to the back end; those of a segment whose file is being made wait.
 * count <= SC_STORE_WRITES_AT_ONCE; the list is overwritten. */
void sc_store_writes_submit(struct sc_store *store, struct sc_store_write **writes, uint64_t count);
/* Index of a file number, during replay; segment_max: no such file. */
uint64_t sc_store_segment_find(const struct sc_store *store, uint32_t number);
void sc_store_busy_end(struct sc_store *store);

/* After a device error: no new extents for SC_STORE_RETRY_NS, said once. Any thread, no lock. */
void sc_store_pause(struct sc_store *store, spec_status status, const char *what);

/* ---- Places of extents (place.c) ------------------------------------------------------------- */

/* Space lock held by the callee. Takes places for all layers; ret_part_count parts. */
spec_status sc_store_place_take(struct sc_store *store, uint64_t stride, uint64_t log_bytes,
                                struct sc_store_part *parts, uint32_t *ret_part_count,
                                struct spec_error *reterr);
void sc_store_place_free(struct sc_store *store, const struct sc_store_part *parts,
                         uint32_t part_count, uint64_t stride, uint64_t log_bytes);
/* A write into the segment failed: the next places are looked for behind it first, so that a bad
 * spot does not meet every extent. No lock held. */
void sc_store_segment_avoid(struct sc_store *store, uint32_t index);

/* ---- What is built later (extent.c, commit.c, build.c) ----------------------------------- */

/* Where an extent's probe rows are: in front of its rows, or in an annex. */
struct sc_store_probes {
    const struct sc_store_part *parts;
    uint32_t part_count;
    uint32_t row_bytes; /* 0: it has none */
    uint64_t copy, stride, offset, tag_offset;
};
static inline struct sc_store_probes sc_store_probes_of(const struct sc_store_extent_entry *extent)
{
    const struct sc_store_annex *annex = atomic_load_explicit(&extent->annex, memory_order_acquire);
    if (annex != NULL && annex->probe_row_bytes > extent->probe_row_bytes)
        return (struct sc_store_probes){.parts = annex->parts,
                                        .part_count = annex->part_count,
                                        .row_bytes = annex->probe_row_bytes,
                                        .copy = annex->copy,
                                        .stride = annex->stride,
                                        .offset = annex->probe_offset,
                                        .tag_offset = annex->probe_tag_offset};
    return (struct sc_store_probes){.parts = extent->parts,
                                    .part_count = extent->part_count,
                                    .row_bytes = extent->probe_row_bytes,
                                    .copy = extent->copy,
                                    .stride = extent->stride,
                                    .offset = extent->probe_offset,
                                    .tag_offset = extent->probe_tag_offset};
}

/* Reserves an annex with codes, of code_bytes a layer, or (0) with probe rows of
 * params.probe_row_bytes for an extent, whose rows from the
 * first to the last `pieces` cover, in order (positions do not matter). Written as an extent is, by
 * put_layer with PROBE rows alone, or with K_CODES, whose rows are bytes; `written` is called in
 * the place of params.on_written. */
spec_status
sc_store_annex_begin(struct sc_store *store, uint64_t extent_id,
                     const struct sc_store_piece_plan *pieces, uint64_t piece_count,
                     uint64_t code_bytes,
                     void (*written)(struct sc_store_extent *annex, spec_status status, void *user),
                     void *user, struct sc_store_extent **ret_annex, struct spec_error *reterr);
/* In the place of commit: the record, then sketches of the extent are found. DROPPED: the extent
 * has gone meanwhile. The object returns to its pool. Executor thread. */
spec_status sc_store_annex_commit(struct sc_store_extent *annex, struct spec_error *reterr);
/* The same, for an annex that was begun before its extent had an id, and with UINT64_MAX. */
spec_status sc_store_annex_commit_to(struct sc_store_extent *annex, uint64_t extent_id,
                                     struct spec_error *reterr);
/* quarantine.c: its pages are the extent's from now on, and go with its last piece; false: the
 * extent holds nothing that lives, or has one. No lock held. */
bool sc_store_annex_hold(struct sc_store *store, uint64_t id, struct sc_store_annex *annex);
bool sc_store_annex_is_held(struct sc_store *store, uint64_t id);

bool sc_store_build_runs(const struct sc_store *store); /* space lock held */
/* Whoever coded the extent has given it up. No lock held. */
void sc_store_build_missed(struct sc_store *store, uint64_t extent_id);
spec_status sc_store_build_open(struct sc_store *store, struct spec_error *reterr);
/* No step is posted or will be once store->busy is 0. */
void sc_store_build_stop(struct sc_store *store);
void sc_store_build_close(struct sc_store *store);

/* ---- Pieces that become one (merge.c) -------------------------------------------------------- */

spec_status sc_store_merger_open(struct sc_store *store, struct spec_error *reterr);
/* No step is posted or will be once store->busy is 0. */
void sc_store_merger_stop(struct sc_store *store);
void sc_store_merger_close(struct sc_store *store);

/* ---- Dropped pieces (quarantine.c) ----------------------------------------------------------- */

/* An extent's pieces are in the table, and it holds all its pages: gives back those of rows that no
 * piece covers, all when there is no piece. Once for each extent; no lock held. */
void sc_store_extent_trim(struct sc_store *store, uint64_t extent);
/* DROPPED pieces that are void in the log since then: their pages are held until lease_ns_max after
 * that time (a time to come counts as now), lease_ns_max 0: freed at once. Returns the bytes that
 * they will give back. The caller has counted them out of live_count, piece_count and log_reserved.
 * No lock held; allocates nothing. A follower has no space: no effect. */
uint64_t sc_store_quarantine_add(struct sc_store *store, const uint64_t *pieces, uint64_t count,
                                 uint64_t dropped_wall_ns);
/* The rows of an extent that has codes, and a piece that lives, are void in the log since then: all
 * its pages but its annexes' wait likewise. Returns their bytes. No lock held; a follower: 0. */
uint64_t sc_store_rows_quarantine(struct sc_store *store, uint64_t extent,
                                  uint64_t dropped_wall_ns);
/* Frees what is due at now_ns, executor's clock (UINT64_MAX: all); returns how many pieces, rows
 * alone likewise. No lock held. */
uint64_t sc_store_quarantine_release(struct sc_store *store, uint64_t now_ns);
/* The same with the space lock held, until count_max pieces were; rows of an extent go at once, and
 * count as its pieces. */
uint64_t sc_store_quarantine_release_some(struct sc_store *store, uint64_t now_ns,
                                          uint64_t count_max);
/* sc_store_pieces_drop; returns the bytes that it will give back. */
uint64_t sc_store_pieces_drop_bytes(struct sc_store *store, const uint64_t *pieces, uint64_t count);
/* Makes every LIVE piece of the namespace record `space` with an id below piece_end void, without
 * records: the log has said so at wall_ns in its own way. Returns how many. No lock held. */
uint64_t sc_store_pieces_void(struct sc_store *store, uint32_t space, uint64_t piece_end,
                              uint64_t wall_ns);

/* ---- Rows that go while codes stay (coarse_mark.c) ------------------------------------------- */

/* What a piece of it is worth beyond what its record says. */
void sc_store_coarse_worth(const struct sc_store_extent_entry *extent,
                           struct sc_store_provenance *provenance);
/* Log lock held, or replay: the record is in the log. */
void sc_store_coarse_set(struct sc_store *store, struct sc_store_extent_entry *extent,
                         const struct sc_store_record_coarse *record);
/* The same: a live piece of the extent is not live any more. */
void sc_store_coarse_piece_gone(struct sc_store *store, const struct sc_store_extent_entry *extent);

/* ---- Mail (mail.c) --------------------------------------------------------------------------- */

#define SC_STORE_MAIL_BYTES_MAX (16u << 10) /* of SC_STORE_FIXED_BYTES */
#define SC_STORE_MAIL_CUT_BYTES (8u << 10)  /* cut when it has grown so long */
#define SC_STORE_MAIL_FAMILIES  32u         /* whose epochs a cut keeps */

/* What there is of a rank's own mail is a file, and ours. The writer's, at open. */
spec_status sc_store_mail_open(struct sc_store *store, struct spec_error *reterr);
void sc_store_mail_close(struct sc_store *store);

/* ---- The spare frame (spare.c) --------------------------------------------------------------- */

/* true: it is the caller's until put. false: the word changes when it may be had. */
bool sc_store_spare_take(struct sc_store *store, struct sc_store_starved *starved);
void sc_store_spare_put(struct sc_store *store);
/* Waits for it no more. */
void sc_store_starved_leave(struct sc_store *store, struct sc_store_starved *starved);

/* ---- Extents (extent.c) ---------------------------------------------------------------------- */

spec_status sc_store_extents_open(struct sc_store *store, struct spec_error *reterr);
void sc_store_extents_close(struct sc_store *store);
bool sc_store_extents_idle(const struct sc_store *store); /* none is begun */
/* One write ended; op->status says how. */
void sc_store_write_done(struct sc_store_write *write);

#endif
