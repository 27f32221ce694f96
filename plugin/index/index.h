/* The radix index, as the connector changes it: pieces of the log go in, what is void goes out
 * (index.c), roots of older epochs are cleared (epoch.c), and what leases still name stays a while
 * (reader_grace.c).
 *
 * Threads: per call, below.
 * Tests: tests/unit/plugin/test_save.c, test_load.c, test_reset.c, test_peers.c, conformance
 * (abi_058_*, abi_083_*) */
#ifndef SC_PLUGIN_INDEX_INDEX_H
#define SC_PLUGIN_INDEX_INDEX_H

#include "hashing/radix.h"
#include "store/store.h"

#define SC_PLUGIN_GRACE_ENTRIES 8192u /* dropped pieces that leases may still name */
#define SC_PLUGIN_DROPS  1024u /* failed pieces whose records are not in the log yet */

struct sc_plugin_request;
struct sc_plugin_save;
struct sc_plugin_text;

struct sc_plugin_piece { /* of some rows, those in one chunk of the grid */
    uint64_t chunk_first;
    uint64_t first, end;
};

struct sc_plugin_old_roots { /* of an index */
    bool clears;             /* roots made before the mark are of an older epoch */
    uint64_t mark;
};

struct sc_plugin_index {
    pthread_mutex_t lock;        /* rank 10: the radix index's writer; memory only */
    uint64_t *drops;             /* [SC_PLUGIN_DROPS] gone from the index; the log will say so */
    _Atomic uint64_t drop_count; /* changed under the lock */
    struct sc_plugin_old_roots old_roots; /* guarded by the lock */
    struct sc_radix_spare spare;          /* the job's: to be touched */

    /* The opening thread's: nobody else touches the index yet. */
    bool is_opening;
    bool lacks_memory; /* pieces of the log were left unseen */
    bool has_orphans;  /* pieces of the log hung on one that it drops */
};

struct
    sc_plugin_grace_entry {  /* a piece that the writer dropped: no lookup finds it, a lease does */
    struct sc_radix_ref run; /* its last one, pinned */
    uint64_t piece;
    uint64_t due_ns; /* executor's clock: no lease on it is good after that */
    bool is_top;     /* all that hangs below it is kept too */
};

struct sc_plugin_reader_grace {         /* of a reader; guarded by index.lock */
    struct sc_plugin_grace_entry *ring; /* [SC_PLUGIN_GRACE_ENTRIES] */
    uint64_t first, count;
};

/* index.c */
/* An index of this rank or of another; its share of index_bytes_max. */
spec_status sc_plugin_index_open(spec_connector *conn, struct sc_radix **ret_radix,
                                 struct spec_error *reterr);
/* A piece that the log holds. Not believed (false): it is dropped for good, so that its space comes
 * back. A lack of memory is no reason for that: such a piece, and what hangs on it, stays on disk
 * unseen, and a later open finds it. */
bool sc_plugin_on_piece(const struct sc_store_piece *piece, uint64_t *ret_mark, void *user);
void sc_plugin_on_pieces_soon(uint64_t count, void *user);
void sc_plugin_on_piece_soon(const uint8_t hash[SC_STORE_HASH_BYTES], void *user);
/* The record's tokens are those that its rows were tagged with. Any thread. */
bool sc_plugin_piece_holds(const struct sc_store_piece *piece, void *user);
bool sc_plugin_index_holds(const struct sc_radix *radix, const struct sc_store_piece *piece);
/* Chains of this store are keyed by it. */
spec_status sc_plugin_on_secret(const uint8_t secret[SC_STORE_SECRET_BYTES], void *user,
                                struct spec_error *reterr);
/* The same as on_piece for the index of another rank, whose writer we are. lacks_memory: of that
 * index. */
bool sc_plugin_piece_index(spec_connector *conn, struct sc_radix *radix, bool *lacks_memory,
                           const struct sc_store_piece *piece, uint64_t *ret_mark);
/* The store keeps, with each piece, the run that ends it: a piece that another process drops is
 * found in the index by it. */
static inline uint64_t sc_plugin_mark_of(struct sc_radix_ref run)
{
    return (uint64_t)run.generation << 32 | run.id;
}
static inline struct sc_radix_ref sc_plugin_ref_of(uint64_t mark)
{
    return (struct sc_radix_ref){(uint32_t)mark, (uint32_t)(mark >> 32)};
}
/* The rows among [first, end) that are in the chunk of `position`. */
struct sc_plugin_piece sc_plugin_piece_at(const spec_connector *conn, uint64_t first, uint64_t end,
                                          uint64_t position);
/* The request's retention and priority, as the index keeps them with runs that it uses or stores.
 */
uint32_t sc_plugin_hint_of(const spec_connector *conn, const struct sc_plugin_request *request);
/* Inserts the committed pieces, ids from first_id on, behind what the match found of the save's
 * tokens; what stands there and is worse than `kind` makes way. A piece that cannot be indexed is
 * dropped, with all behind it, and why is the answer: NO_MEMORY (the index is full), CORRUPT (its
 * chain hash is another prefix's), STALE (what it hangs on has just failed).
 *   text             the save's tokens: sc_plugin_save_text
 *   ret_indexed_end  where the tokens end that the index has now; always written */
spec_status sc_plugin_index_save(spec_connector *conn, const struct sc_plugin_save *save,
                                 const struct sc_plugin_text *text,
                                 const struct sc_radix_match *match, uint64_t first_id,
                                 uint32_t kind, uint64_t *ret_indexed_end);
/* The run of `last`'s path that begins at token `first` goes, with all below it, if there is one
 * and nobody has a pin there: what is only hidden would not be in the log before what takes its
 * place. The log is told with the next flush. True: it has gone. The commit's lock is held. */
bool sc_plugin_index_remove(spec_connector *conn, struct sc_radix_ref last, uint64_t first);
/* The unpinned leaf that goes first among these. Index lock held. */
bool sc_plugin_index_leaf(spec_connector *conn, struct sc_radix_among among,
                          struct sc_radix_segment *ret_leaf);
/* Writer's open: drops the pieces whose place in the index went with one that the log drops,
 * because the process died before their own records. */
void sc_plugin_orphans_drop(spec_connector *conn);
/* A piece that failed verification: no lookup finds it any more, nor what is below it; the log is
 * told in the background. */
void sc_plugin_piece_fail(spec_connector *conn, struct sc_radix_ref node, uint64_t piece);
/* A piece that was erased: the log and the table have it no more. */
void sc_plugin_piece_erase(spec_connector *conn, struct sc_radix_ref node, uint64_t piece);
/* A pin was taken back: what waited for it goes, in the background. */
void sc_plugin_unpinned(spec_connector *conn);
/* The job: removes what is not pinned any more, tells the log of what has gone. Returns false. */
bool sc_plugin_tidy(spec_connector *conn);
/* Job: the pages of memory that the index will take next are made ready. True: there is more. */
bool sc_plugin_index_spare(spec_connector *conn);
/* The second half of it; the commit's lock is held. */
void sc_plugin_drops_flush(spec_connector *conn);

/* epoch.c */
/* The connector's epoch is at least this. */
void sc_plugin_epoch_move(spec_connector *conn, uint64_t epoch);
/* Whether what the request stores may be committed; the commit's lock is held. */
bool sc_plugin_epoch_is_current(spec_connector *conn, const struct sc_plugin_request *request);
/* All roots that the index has now are of older epochs. The index' writer. */
void sc_plugin_roots_are_old(const struct sc_radix *radix, struct sc_plugin_old_roots *old);
/* Removes runs below such roots, a few at a time under the index' lock; true: there is more. */
bool sc_plugin_roots_clear(struct sc_radix *radix, pthread_mutex_t *lock,
                           struct sc_plugin_old_roots *old);

/* reader_grace.c; but for the last one, index.lock is held */
/* The writer has dropped the run's piece, or recorded a better one (is_top: for all that hangs
 * below the run too), so every promise on it ends a lease from now at the latest. */
void sc_plugin_grace_entry_begin(spec_connector *conn, struct sc_radix_ref run, bool is_top);
/* A better piece takes the place of this run and of what hangs on it: a reader keeps them for
 * leases (user: the connector). */
void sc_plugin_on_replacing(struct sc_radix_ref top, void *user);
/* Whether the run is one that was dropped or replaced lately. */
bool sc_plugin_grace_entry_find(const spec_connector *conn, struct sc_radix_ref run);
/* Those of erased pieces end. Takes index.lock. */
void sc_plugin_reader_grace_erase(spec_connector *conn);
/* True: pins were taken back. */
bool sc_plugin_reader_grace_end_due(spec_connector *conn);

#endif
