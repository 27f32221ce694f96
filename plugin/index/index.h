/* index: changes to the radix index: pieces (index.c), roots of older epochs (epoch.c), reader
 * grace (reader_grace.c).
 *
 * Threads: per call. Tests: tests/unit/plugin/test_save.c, test_load.c, test_reset.c, test_peers.c,
 * conformance (abi_058_*, abi_083_*) */
#ifndef SC_PLUGIN_INDEX_INDEX_H
#define SC_PLUGIN_INDEX_INDEX_H

#include "hashing/radix.h"
#include "store/store.h"

#define SC_PLUGIN_GRACE_ENTRIES 8192u /* dropped pieces that leases may still name */
#define SC_PLUGIN_DROPS         1024u /* failed pieces not logged yet */

struct sc_plugin_request;
struct sc_plugin_save;
struct sc_plugin_text;

struct sc_plugin_piece { /* rows in one chunk of the grid */
    uint64_t chunk_first;
    uint64_t first, end;
};

struct sc_plugin_old_roots {
    bool clears; /* roots made before the mark are to be removed */
    uint64_t mark;
};

struct sc_plugin_index {
    pthread_mutex_t lock;                 /* rank 10; the index's writer; memory only */
    uint64_t *drops;                      /* [SC_PLUGIN_DROPS] removed, not logged yet */
    _Atomic uint64_t drop_count;          /* written under the lock */
    struct sc_plugin_old_roots old_roots; /* guarded by the lock */
    struct sc_radix_spare spare;          /* memory for the job to touch */

    /* The opening thread's: no other uses the index yet. */
    bool is_opening;
    bool lacks_memory; /* some pieces of the log were not indexed */
    bool has_orphans;  /* some pieces' parents are dropped by the log */
};

struct
    /* a piece that the writer dropped: found by leases only */
    sc_plugin_grace_entry {
    struct sc_radix_ref run; /* its last run, pinned */
    uint64_t piece;
    uint64_t due_ns; /* executor's clock: end of all leases on it */
    bool is_top;     /* all below it is kept, too */
};

struct sc_plugin_reader_grace {         /* a reader's; guarded by index.lock */
    struct sc_plugin_grace_entry *ring; /* [SC_PLUGIN_GRACE_ENTRIES] */
    uint64_t first, count;
};

/* Opens an index of this or another rank with its share of index_bytes_max. */
spec_status sc_plugin_index_open(spec_connector *conn, struct sc_radix **ret_radix,
                                 struct spec_error *reterr);
/* Indexes a logged piece; false: it is invalid and dropped for good, to free its space. Pieces not
 * indexed for lack of memory stay on disk with their children for a later open. */
bool sc_plugin_on_piece(const struct sc_store_piece *piece, uint64_t *ret_mark, void *user);
void sc_plugin_on_pieces_soon(uint64_t count, void *user);
void sc_plugin_on_piece_soon(const uint8_t hash[SC_STORE_HASH_BYTES], void *user);
/* Returns true if the record's tokens match its rows' tags. Any thread. */
bool sc_plugin_piece_holds(const struct sc_store_piece *piece, void *user);
bool sc_plugin_index_holds(const struct sc_radix *radix, const struct sc_store_piece *piece);
/* Sets the secret that keys this store's chains. */
spec_status sc_plugin_on_secret(const uint8_t secret[SC_STORE_SECRET_BYTES], void *user,
                                struct spec_error *reterr);
/* Does the same as on_piece for another rank's index. lacks_memory: that index's. */
bool sc_plugin_piece_index(spec_connector *conn, struct sc_radix *radix, bool *lacks_memory,
                           const struct sc_store_piece *piece, uint64_t *ret_mark);
/* The store keeps each piece's last run, which finds a piece that another process drops. */
static inline uint64_t sc_plugin_mark_of(struct sc_radix_ref run)
{
    return (uint64_t)run.generation << 32 | run.id;
}
static inline struct sc_radix_ref sc_plugin_ref_of(uint64_t mark)
{
    return (struct sc_radix_ref){(uint32_t)mark, (uint32_t)(mark >> 32)};
}
/* Returns the rows of [first, end) in the chunk of `position`. */
struct sc_plugin_piece sc_plugin_piece_at(const spec_connector *conn, uint64_t first, uint64_t end,
                                          uint64_t position);
/* Returns the request's retention and priority as the index stores them with runs. */
uint32_t sc_plugin_hint_of(const spec_connector *conn, const struct sc_plugin_request *request);
/* Inserts committed pieces, ids from first_id on, behind the match of the save's tokens. They
 * replace pieces worse than `kind`. If one cannot be indexed, it and all behind it are dropped.
 * Errors: NO_MEMORY (index full), CORRUPT (chain hash of another prefix), STALE (its parent
 * failed).
 *   text             the save's tokens: sc_plugin_save_text
 *   ret_indexed_end  end of the indexed tokens; always written */
spec_status sc_plugin_index_save(spec_connector *conn, const struct sc_plugin_save *save,
                                 const struct sc_plugin_text *text,
                                 const struct sc_radix_match *match, uint64_t first_id,
                                 uint32_t kind, uint64_t *ret_indexed_end);
/* Removes the run of `last`'s path that begins at token `first`, with all below it. The next flush
 * logs it. Returns false if any of it is pinned, because a hidden run would not be logged before
 * its replacement. commit_lock held. */
bool sc_plugin_index_remove(spec_connector *conn, struct sc_radix_ref last, uint64_t first);
/* Returns the unpinned leaf to evict first among these. Index lock held. */
bool sc_plugin_index_leaf(spec_connector *conn, struct sc_radix_among among,
                          struct sc_radix_segment *ret_leaf);
/* Drops pieces whose parent the log drops: the process died before their records. Writer's open. */
void sc_plugin_orphans_drop(spec_connector *conn);
/* Hides a piece that failed verification, with all below it; logged in the background. */
void sc_plugin_piece_fail(spec_connector *conn, struct sc_radix_ref node, uint64_t piece);
/* Removes an erased piece, which log and table have dropped. */
void sc_plugin_piece_erase(spec_connector *conn, struct sc_radix_ref node, uint64_t piece);
/* Starts removal of hidden runs in the background, after an unpin. */
void sc_plugin_unpinned(spec_connector *conn);
/* The job: removes unpinned hidden runs and logs drops. Returns false. */
bool sc_plugin_tidy(spec_connector *conn);
/* The job: touches memory that the index takes next. Returns true if there is more. */
bool sc_plugin_index_spare(spec_connector *conn);
/* Index lock held. The piece was removed from the index: drops_flush logs its drop. */
void sc_plugin_piece_drop_later(spec_connector *conn, uint64_t piece);
/* Logs drops; commit_lock held. */
void sc_plugin_drops_flush(spec_connector *conn);

/* Raises the connector's epoch to at least this. */
void sc_plugin_epoch_move(spec_connector *conn, uint64_t epoch);
/* Returns true if the request's pieces may be committed; commit_lock held. */
bool sc_plugin_epoch_is_current(spec_connector *conn, const struct sc_plugin_request *request);
/* Marks all present roots as old. The index's writer. */
void sc_plugin_roots_are_old(const struct sc_radix *radix, struct sc_plugin_old_roots *old);
/* Removes some runs of old roots under the index's lock. Returns true if there is more. */
bool sc_plugin_roots_clear(struct sc_radix *radix, pthread_mutex_t *lock,
                           struct sc_plugin_old_roots *old);

/* reader_grace.c; index.lock held, except for the last two */
/* Keeps a run that the writer dropped or replaced (is_top: with all below it) for a lease time. */
void sc_plugin_grace_entry_begin(spec_connector *conn, struct sc_radix_ref run, bool is_top);
/* Keeps a replaced run and its children for leases. `user`: the connector. */
void sc_plugin_on_replacing(struct sc_radix_ref top, void *user);
/* Returns true if the run was dropped or replaced within the last lease time. */
bool sc_plugin_grace_entry_find(const spec_connector *conn, struct sc_radix_ref run);
/* Ends entries of erased pieces. Takes index.lock. */
void sc_plugin_reader_grace_erase(spec_connector *conn);
/* Ends due entries. Returns true if pins were released. */
bool sc_plugin_reader_grace_end_due(spec_connector *conn);

#endif
