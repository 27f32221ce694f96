/* The connector: one opened store for one model and rank, and everything that hangs on it.
 *
 *   host call -> entry.c (checks, fork and poison guard, log)
 *                  lookup.c   tokens -> radix match, pinned -> ranges of pieces
 *                  load.c     begin_layer, get_important, prefetch_next: two readers a request
 *                  save.c     store: passes -> extents
 *                  commit.c   extents written -> records -> index.c -> tickets
 *                  ticket.c   poll, wait
 *
 * Holds: a request's slot is reused only after its handle was released and its saves ended; the
 * radix index is changed under index_lock only; the order of locks is index (10), then the store's.
 * Does not: start threads (the executor does), touch host memory outside a call.
 * Threads: lookups and loads take no lock that a writer holds; see each member.
 * Tests: tests/unit/plugin/, conformance/ */
#ifndef SC_PLUGIN_CONNECTOR_H
#define SC_PLUGIN_CONNECTOR_H

#include "base/alloc.h"
#include "base/assert.h"
#include "base/config.h"
#include "base/exec.h"
#include "base/fault.h"
#include "base/log.h"
#include "hashing/radix.h"
#include "kernels/kernels.h"
#include "plugin/memory.h"
#include "store/store.h"

#include <pthread.h>

#define SC_PLUGIN_READERS     2u    /* a request loads layer l and reads layer l + 1 ahead */
#define SC_PLUGIN_SAVE_TOKENS 4096u /* rows of one extent at most: bounds the pieces of a plan */
#define SC_PLUGIN_PASS_SAVES  256u  /* extents of one pass at most */
#define SC_PLUGIN_MARKS       256u  /* distinct positions of extra keys in one request */
#define SC_PLUGIN_NO_LAYER    UINT32_MAX

enum sc_plugin_save_state { SC_SAVE_WRITING, SC_SAVE_WRITTEN };

/* One extent of a pass, from the first layer until its tickets' part ended. */
struct sc_plugin_save {
    /* Set when taken, constant until resolved. */
    spec_connector *conn;
    struct sc_plugin_request *request;
    struct sc_store_extent *extent;
    uint64_t first, count; /* tokens */
    spec_ticket ticket;

    /* Guarded by index_lock. */
    struct sc_plugin_save *next;
    uint32_t state; /* enum sc_plugin_save_state */
    spec_status status;
};

struct sc_plugin_piece { /* of some rows, those in one chunk of the grid */
    uint64_t chunk_first;
    uint64_t first, end;
};

enum sc_plugin_request_state { SC_REQUEST_FREE, SC_REQUEST_TAKEN, SC_REQUEST_OPEN };

struct sc_plugin_reader {
    struct sc_store_reader *reader;
    uint32_t layer; /* what it loads or has loaded; SC_PLUGIN_NO_LAYER: nothing */
    uint64_t begin_ns;
};

struct sc_plugin_request {
    /* Any thread. */
    _Atomic uint32_t state;      /* enum sc_plugin_request_state */
    _Atomic uint32_t generation; /* of the handle; moves on at release */
    _Atomic uint32_t holds;      /* the open handle and each unresolved save */

    /* Set by open, constant after: the arrays. */
    uint32_t *tokens;                  /* [max_request_tokens] */
    struct sc_radix_segment *segments; /* [segment_capacity] */
    struct sc_store_range *ranges;     /* [segment_capacity] */
    struct sc_mark *marks;             /* [SC_PLUGIN_MARKS] */
    struct sc_store_mark *store_marks; /* the same marks, as the store writes them */
    struct sc_plugin_reader readers[SC_PLUGIN_READERS];

    /* The host thread that calls for this request. Tokens only grow: saves read those before. */
    uint64_t token_count;
    uint64_t mark_count;
    struct sc_hash root;
    uint64_t epoch; /* of the root: the request is stale when the connector's has moved on */
    uint64_t from_token, matched_tokens;
    uint64_t range_count;
    struct sc_radix_ref pinned;
    struct spec_provenance provenance;
    uint64_t failed_position; /* UINT64_MAX: nothing failed */
    spec_status failed_status;

    /* The open store pass. Host thread. */
    struct sc_plugin_save *pass[SC_PLUGIN_PASS_SAVES];
    uint64_t pass_saves;
    uint64_t pass_first, pass_count;
    uint32_t pass_layer;     /* next layer; 0: no pass is open */
    spec_status pass_status; /* SPEC_OK, or why the pass was given up */
    spec_ticket pass_ticket; /* the last layer's */
    uint64_t stored_end;     /* where the next pass begins */

    /* Guarded by index_lock (rank 10): saves in the order of their tokens. */
    struct sc_plugin_save *save_head, *save_tail;
};

struct sc_plugin_ticket {
    _Atomic uint64_t word; /* ticket.c draws it */
};

struct sc_plugin_stats {
    _Atomic uint64_t lookups, lookup_hits, lookup_tokens, matched_tokens;
    _Atomic uint64_t wanted_bytes;
    _Atomic uint64_t stored_tokens, stored_chunks, dropped_chunks, duplicate_chunks;
    _Atomic uint64_t aborted_stores, corrupt_ranges, exposed_ns;
    _Atomic uint64_t prefetched_rows, demanded_rows;
    _Atomic uint64_t requests_open, tickets_open;
};

struct spec_connector {
    /* Set by open, constant after. */
    struct sc_alloc alloc;
    struct sc_fault fault;
    struct sc_config config;
    struct sc_exec *exec;
    struct sc_store *store;
    struct sc_radix *radix;
    const struct sc_kernels *kernels;
    struct sc_plugin_shape shape;
    struct sc_hash name_space;
    struct sc_hash family; /* the namespace without what differs between ranks */
    uint32_t layer_count;
    uint64_t k_row_bytes, row_bytes; /* one token, one layer: K alone, K and V */
    uint64_t segment_capacity;
    struct sc_plugin_request *requests; /* [config.max_requests] */
    struct sc_plugin_save *saves;       /* [save_count] */
    uint64_t save_count;
    bool replay_lacks_memory; /* pieces of the log were left unseen */
    uint32_t *fork_guard; /* 1 here, 0 in a forked child (its page is wiped) */

    /* Any thread. */
    _Atomic uint64_t epoch; /* resets of the family; chain roots come from it */
    struct sc_poison poison;
    struct sc_log log;
    struct sc_plugin_stats stats;
    _Atomic uint64_t load_bytes_per_s; /* of demand loads, smoothed; 0: none yet */
    _Atomic uint32_t request_hint;     /* where the search for a free slot begins */
    _Atomic uint32_t ticket_word;      /* moves when a ticket ends; waiters watch it */
    _Atomic uint32_t save_word;        /* moves when a save ends */
    _Atomic uint64_t saves_live;
    _Atomic uint64_t ticket_hint;
    struct sc_plugin_ticket *tickets; /* [SC_LIMIT_TICKETS] */

    pthread_mutex_t index_lock; /* rank 10: the radix index's writer, the requests' save queues */
    struct sc_plugin_save *save_free; /* guarded by index_lock */
};

spec_status sc_plugin_open(const struct spec_open_params *params, spec_connector **ret_conn,
                           struct spec_error *reterr);
/* The same on a simulated disk that outlives the connector (io.backend "sim"); NULL: an empty one
 * of its own. */
spec_status sc_plugin_open_on(const struct spec_open_params *params, struct sc_io_sim_disk *disk,
                              spec_connector **ret_conn, struct spec_error *reterr);
void sc_plugin_close(spec_connector *conn);

/* request.c: the open request of a handle, or NULL (STALE). */
struct sc_plugin_request *sc_plugin_request_find(spec_connector *conn, spec_request handle);
struct sc_plugin_request *sc_plugin_request_take(spec_connector *conn, spec_request *ret_handle);
void sc_plugin_request_unhold(struct sc_plugin_request *request);
spec_status sc_plugin_release(spec_connector *conn, spec_request handle, struct spec_error *reterr);
spec_status sc_plugin_stale(spec_request handle, struct spec_error *reterr);

/* lookup.c */
spec_status sc_plugin_lookup(spec_connector *conn, const struct spec_lookup_params *params,
                             struct spec_lookup_result *ret_result, struct spec_error *reterr);

/* load.c */
spec_status sc_plugin_begin_layer(spec_connector *conn, const spec_request *requests,
                                  uint64_t count, uint32_t layer, struct spec_error *reterr);
spec_status sc_plugin_get_important(spec_connector *conn, struct spec_important *items,
                                    uint64_t count, struct spec_error *reterr);
spec_status sc_plugin_prefetch_next(spec_connector *conn, spec_request handle, uint32_t layer,
                                    const struct spec_queries *hint, struct spec_error *reterr);
void sc_plugin_readers_cancel(struct sc_plugin_request *request);

/* save.c */
spec_status sc_plugin_store(spec_connector *conn, const struct spec_store_params *params,
                            spec_ticket *ret_ticket, struct spec_error *reterr);
spec_status sc_plugin_store_abort(spec_connector *conn, spec_request handle, uint64_t from_token,
                                  struct spec_error *reterr);
void sc_plugin_pass_abort(spec_connector *conn, struct sc_plugin_request *request);
/* What the open pass is computed on is void: it goes on, and stores nothing. */
void sc_plugin_pass_void(struct sc_plugin_request *request);

/* commit.c */
spec_status sc_plugin_saves_open(spec_connector *conn, struct spec_error *reterr);
struct sc_plugin_save *sc_plugin_save_take(spec_connector *conn); /* NULL: all are in flight */
void sc_plugin_save_put(spec_connector *conn, struct sc_plugin_save *save);
void sc_plugin_on_written(struct sc_store_extent *extent, spec_status status, void *extent_user,
                          void *user);
/* Chunks that tokens [first, end) touch. */
uint64_t sc_plugin_chunk_count(const spec_connector *conn, uint64_t first, uint64_t end);
/* What a ticket says (the ABI lists the statuses) for what went wrong inside. */
spec_status sc_plugin_ticket_status(spec_status status);

/* index.c */
/* A piece that the log holds. Not believed (false): it is dropped for good, so that its space comes
 * back. A lack of memory is no reason for that: such a piece, and what hangs on it, stays on disk
 * unseen, and a later open finds it. */
bool sc_plugin_on_piece(const struct sc_store_piece *piece, uint64_t *ret_mark, void *user);
/* The rows among [first, end) that are in the chunk of `position`. */
struct sc_plugin_piece sc_plugin_piece_at(const spec_connector *conn, uint64_t first, uint64_t end,
                                          uint64_t position);
/* Inserts the committed pieces, ids from first_id on, behind what the match found of the save's
 * tokens; a piece that cannot be indexed is dropped, with all behind it. Returns where the tokens
 * end that the index has now. */
uint64_t sc_plugin_index_save(spec_connector *conn, const struct sc_plugin_save *save,
                              const struct sc_radix_match *match, uint64_t first_id);
/* Removes a piece that failed verification, with all below it, and logs its tombstone. */
void sc_plugin_piece_fail(spec_connector *conn, struct sc_radix_ref node, uint64_t piece);
/* Frees what waited for pins; index_lock is held. */
void sc_plugin_sweep(spec_connector *conn);
/* The same when something waits and the lock is free; else the next save that ends does it. */
void sc_plugin_sweep_try(spec_connector *conn);

/* ticket.c */
spec_ticket sc_plugin_ticket_take(spec_connector *conn, uint32_t remaining); /* 0: none free */
/* One part of the ticket's work ended; the worst status is kept. */
void sc_plugin_ticket_resolve(spec_connector *conn, spec_ticket ticket, spec_status status);
/* Its host will never ask for it: it ends with its last part. */
void sc_plugin_ticket_forget(spec_connector *conn, spec_ticket ticket);
spec_status sc_plugin_poll(spec_connector *conn, const spec_ticket *tickets, uint64_t count,
                           spec_status *ret_statuses, struct spec_error *reterr);
spec_status sc_plugin_wait(spec_connector *conn, const spec_ticket *tickets, uint64_t count,
                           uint64_t timeout_ns, spec_status *ret_statuses,
                           struct spec_error *reterr);

/* namespace.c: digest, digest of what all ranks of the model share, and descriptor (canonical JSON,
 * from conn->alloc; the caller frees it). */
spec_status sc_plugin_namespace(spec_connector *conn, const struct spec_model *model,
                                struct sc_hash *ret_digest, struct sc_hash *ret_family,
                                char **ret_descriptor, struct spec_error *reterr);
/* fingerprint.c: XXH3-128 over the weight files, cached in the store's directory. */
spec_status sc_plugin_fingerprint(spec_connector *conn, const char *const *paths,
                                  uint64_t path_count, struct sc_hash *ret_hash,
                                  struct spec_error *reterr);

#endif
