/* The connector: one opened store for one model and rank, and everything that hangs on it.
 *
 *   host call -> entry.c (checks, fork and poison guard, log)
 *                  lookup.c   tokens -> radix match, pinned -> ranges of pieces
 *                  load.c     begin_layer, get_important, prefetch_next
 *                  reads.c    three readers a request; take.c: from them into the destination,
 *                             which target_host.c writes (target.h)
 *                  submit.c   get_important in two halves, its work on a thread of ours
 *                  batch.c    memory for many items of one call
 *                  budget.c, choose.c, select.c, union.c  which rows (select.h)
 *                  layered.c  all rows as their codes' values, chosen ones exactly
 *                  refine.c   exact rows over what was delivered as codes (delivery.c)
 *                  guess.c    rows that are read before they are chosen
 *                  lab/       how papers rank rows without their keys (lab/lab.h)
 *                  save.c     store: passes -> extents
 *                  commit.c   extents written -> records -> index.c -> tickets
 *                  merge.c  pieces of a chunk that become one
 *                  evict.c    room for what comes; jobs.c, maintain.c: jobs in the background
 *                  coarse.c   extents that give their rows up, and who matches them
 *                  ticket.c   poll, wait
 *                  attach.c   a lease -> index.c -> ranges of pieces
 *                  provenance.c  what rows are worth, from pieces to match to pieces
 *                  epoch.c    what an epoch makes old; reset.c: who raises it
 *                  outbox.c   what a reader has to tell writers; reset.c takes it
 *                  peers.c    other processes' logs -> indexes; ghosts.c: what leases still name
 *                  turn.c     every 25 ms: peers.c, ghosts.c, reset.c
 *
 * Holds: a request's slot is reused only after its handle was released and its saves ended; the
 * radix index is changed under index_lock only; locks are taken in rising rank: commit (5), index
 * (10), save (20), job (25), then the store's. A call of the host takes those of rank 10 and more.
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
#include "base/slots.h"
#include "hashing/radix.h"
#include "kernels/kernels.h"
#include "plugin/lab/lab.h"
#include "plugin/memory.h"
#include "plugin/predict.h"
#include "store/store.h"

#include <pthread.h>

#define SC_PLUGIN_AHEAD       2u /* a request loads layer l and reads layer l + 1 ahead */
#define SC_PLUGIN_REST        2u /* the reader of rows that were not read ahead */
#define SC_PLUGIN_READERS     3u
#define SC_PLUGIN_SKETCHES    3u    /* of layers l, l + 1, l + 2 */
#define SC_PLUGIN_SAVE_TOKENS 4096u /* rows of one extent at most: bounds the pieces of a plan */
#define SC_PLUGIN_PASS_SAVES  256u  /* extents of one pass at most */
#define SC_PLUGIN_MARKS       256u  /* distinct positions of extra keys in one request */
#define SC_PLUGIN_GHOSTS      8192u /* dropped pieces that leases may still name */
#define SC_PLUGIN_OUTBOX      256u  /* failed ranges that wait to be told to our rank's writer */
#define SC_PLUGIN_DROPS       1024u /* failed pieces whose records are not in the log yet */
#define SC_PLUGIN_TAILS       256u  /* ends of prompts that wait to be merged */
#define SC_PLUGIN_PEEKS       16u   /* lookups without a request that run at the same moment */
#define SC_PLUGIN_NO_LAYER    UINT32_MAX
#define SC_PLUGIN_FLAG_COARSE 0x80000000u /* in a request's segments: codes alone are to be had */

enum sc_plugin_save_state { SC_SAVE_WRITING, SC_SAVE_WRITTEN };

/* One extent of a pass, from the first layer until its tickets' part ended. */
struct sc_plugin_save {
    /* Set when taken, constant until resolved. */
    spec_connector *conn;
    struct sc_plugin_request *request;
    struct sc_store_extent *extent;
    uint64_t first, count; /* tokens */
    spec_ticket ticket;
    struct spec_provenance provenance; /* what it is computed on; set before its last layer */

    /* Guarded by save_lock. */
    struct sc_plugin_save *next; /* free list, the request's queue, or the queue of commits */
    uint32_t state;              /* enum sc_plugin_save_state */
    spec_status status;
};

struct sc_plugin_piece { /* of some rows, those in one chunk of the grid */
    uint64_t chunk_first;
    uint64_t first, end;
};

enum sc_plugin_request_state { SC_REQUEST_FREE, SC_REQUEST_TAKEN, SC_REQUEST_OPEN };

enum sc_plugin_load {
    SC_LOAD_WHOLE,
    SC_LOAD_PICKS, /* some rows: guessed ones, or those of a set */
    SC_LOAD_KEYS   /* K of all rows, of a split layout */
};

struct sc_plugin_reader {
    struct sc_store_reader *reader;
    uint32_t layer; /* what it loads or has loaded; SC_PLUGIN_NO_LAYER: nothing */
    uint32_t load;  /* enum sc_plugin_load */
    uint64_t begin_ns;
    uint32_t *rows; /* [max_request_tokens] of picks; NULL where none are guessed or chosen */
    struct sc_store_picks picks;
};

struct sc_plugin_sketch {
    struct sc_store_sketch *sketch; /* NULL: nothing is ever chosen */
    uint32_t layer;                 /* SC_PLUGIN_NO_LAYER: it is not begun */
    bool is_counted;                /* some item has its cost */
};

/* guess.c: rows of a layer that may be wanted, ranked; some of them are read ahead. */
struct sc_plugin_guess {
    /* Set by open, constant after. */
    spec_connector *conn; /* NULL: none is ever made */
    struct sc_plugin_request *request;
    uint8_t *hint; /* [hint.rows][query heads of the probe heads][head_size] NULL: none is taken */

    /* Host thread. */
    uint32_t layer;    /* that is guessed; SC_PLUGIN_NO_LAYER: none */
    uint64_t asked_ns; /* when prefetch_next was called for it; 0: it was not */

    /* Whoever the state names. */
    _Atomic uint32_t state; /* enum in guess.c: host, or the task */
    struct sc_task task;
    uint32_t hint_dtype;
    float hint_scale;
    uint64_t hint_rows, hint_ranks; /* how many there are; how many rows are ranked by them */
    uint64_t count; /* ranked rows, at the rows of the reader of the same parity; 0: none */
    bool is_whole;  /* heads are expected to disagree: all rows will be wanted */
};

/* A request's part of a store call, from its check to its end. */
struct sc_plugin_step {
    struct spec_store_params params;
    struct sc_plugin_memory memory;   /* of params */
    struct spec_provenance delivered; /* what the pass is computed on, with this layer */
    bool is_named;                    /* in the call that runs */

    /* With layer 0, the pass: */
    bool is_good, is_wanted; /* good enough to be stored; and nothing else speaks against it */
    uint64_t rows_most;      /* of an extent */
    uint64_t save_count, part_count; /* extents it needs; parts of its ticket */
};

struct sc_plugin_request {
    /* Any thread. */
    _Atomic uint32_t state;      /* enum sc_plugin_request_state */
    _Atomic uint32_t generation; /* of the handle; moves on at release */
    _Atomic uint32_t holds;      /* the open handle and each unresolved save */
    _Atomic uint32_t submission; /* that was not reported yet: its slot + 1; 0: none */
    _Atomic uint64_t taken;      /* when, by conn->requests_taken */
    _Atomic uint64_t piece_last; /* the highest id of its ranges; UINT64_MAX until they are made */
    _Atomic uint64_t tail;       /* the piece stored last, if others began its chunk; else 0 */

    /* Set by open, constant after: the arrays. */
    uint32_t *tokens;                  /* [max_request_tokens]; NULL: a peek's slot, which has no
                                        * ranges and no loads either */
    struct sc_radix_segment *segments; /* [segment_capacity] */
    struct sc_store_range *ranges;     /* [segment_capacity] */
    struct sc_mark *marks;             /* [SC_PLUGIN_MARKS] */
    struct sc_store_mark *store_marks; /* the same marks, as the store writes them */
    uint32_t *set;                     /* [max_request_tokens] the rows chosen last (select.c) */
    uint64_t *bits;                    /* [2 + kv_head_count][words of max_request_tokens] */
    uint8_t *deliveries; /* [delivery_bytes] a ring (delivery.c); NULL: none are kept */
    struct sc_plugin_reader readers[SC_PLUGIN_READERS];
    struct sc_plugin_sketch sketches[SC_PLUGIN_SKETCHES];
    struct sc_plugin_guess guesses[SC_PLUGIN_AHEAD]; /* of even layers, of odd ones */

    /* The host thread that calls for this request. Tokens grow, and shrink by those of a pass that
     * is given up; saves that are committed read those before. */
    uint64_t token_count;
    uint64_t chosen_rows; /* of the set chosen last: so many are ranked; 0: none yet */
    uint64_t mark_count;
    struct sc_sha256 root;
    uint64_t epoch; /* of the root: the request is stale when the connector's has moved on */
    uint64_t from_token, matched_tokens;
    uint64_t stored_tokens; /* of the index, from 0, whatever was asked for */
    bool is_short;          /* the match: delivered whole, unless an item has a budget of its own */
    uint64_t range_count;
    uint64_t coarse_rows; /* of the ranges' rows, those that have codes alone */
    struct sc_radix_ref pinned;
    struct spec_provenance provenance; /* the worst over the match */
    struct spec_provenance delivered;  /* the worst that get_important delivered; lookup zeroes */
    struct spec_provenance ahead;      /* the worst that came ahead; zero: none did */
    uint64_t unrefined[SC_LIMIT_LAYERS / 64]; /* layers whose last delivery that was */

    /* Whose turn it is with loads: the host thread's, or a submission's (submission.h). */
    _Atomic uint32_t turn;
    const struct sc_store_sketch *lent;    /* it is decoded now: it does not end; or NULL */
    _Atomic uint64_t failed_position;      /* UINT64_MAX: nothing failed; store looks at it */
    spec_status failed_status;             /* set before it; STALE: by a reset */
    uint64_t delivery_first, delivery_end; /* of the ring; they only rise */
    spec_ticket delivery_lost; /* the last one of which something is not kept; 0: none */

    /* The open store pass. Host thread. */
    struct sc_plugin_step step;
    struct sc_plugin_save *pass[SC_PLUGIN_PASS_SAVES];
    uint64_t pass_saves;
    uint64_t pass_first, pass_count;
    uint64_t pass_known;     /* tokens that were known before it */
    uint32_t pass_layer;     /* next layer; 0: no pass is open */
    spec_status pass_status; /* SPEC_OK, or why the pass was given up */
    spec_ticket pass_ticket; /* the last layer's */
    uint64_t stored_end;     /* where the next pass begins at the latest */

    /* Guarded by save_lock (rank 20): saves in the order of their tokens. */
    struct sc_plugin_save *save_head, *save_tail;
};

struct sc_plugin_promise { /* of a lookup's match, by time */
    uint64_t expiry_ns;    /* wall clock; 0: no lease */
    uint8_t lease[64];
};

struct sc_plugin_ghost {     /* a piece that the writer dropped: no lookup finds it, a lease does */
    struct sc_radix_ref run; /* its last one, pinned */
    uint64_t piece;
    uint64_t due_ns; /* executor's clock: no lease on it is good after that */
    bool is_top;     /* all that hangs below it is kept too */
};

struct sc_plugin_old_roots { /* of an index */
    bool clears;             /* roots made before the mark are of an older epoch */
    uint64_t mark;
};

struct sc_plugin_turn { /* background work that comes by itself (turn.c) */
    struct sc_task task;
    bool is_started;
    _Atomic uint32_t closing, ended;
};

enum sc_plugin_job_kind {
    SC_JOB_TIDY,
    SC_JOB_EVICT,
    SC_JOB_CHECKPOINT,
    SC_JOB_SPARE,
    SC_JOB_LAB,
    SC_JOB_MERGE,
    SC_JOBS
};

struct sc_plugin_job { /* work in the background that is asked for (maintain.c) */
    struct sc_task task;
    spec_connector *conn;
    bool (*run)(spec_connector *conn); /* true: there is more to do */
    uint32_t state;                    /* guarded by job_lock; 0: nothing to do */
};

struct sc_plugin_coarse { /* an extent that may give its rows up: codes are being read back */
    struct sc_store_coarse_extent extent; /* id 0: none */
    struct sc_radix_ref leaf;
    uint32_t layer;
};

struct sc_plugin_evict {
    _Atomic uint64_t asked_bytes, asked_runs; /* any thread */
    _Atomic bool asks_least;                  /* likewise */
    uint64_t goal_bytes;                      /* the job's: a pass needs so much at once */
    uint64_t left_bytes, left_runs;           /* the job's: beyond what is free or on its way */
    _Atomic uint64_t piece_new;               /* the room's, when nothing older was left */
    struct sc_plugin_coarse coarse;           /* the job's */
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
    _Atomic uint64_t requests_open, tickets_open, evicted_chunks;
    _Atomic uint64_t leases_attached, leases_refused, mail_dropped, lock_waits;
    _Atomic uint64_t selected_layers, fallback_layers, dense_layers;
    _Atomic uint64_t selected_rows, selected_from_rows, sketch_read_bytes, identify_ns;
    _Atomic uint64_t speculated_bytes, unused_bytes;
    _Atomic uint64_t coarse_layers, coarse_rows, coarse_exact_rows, coarse_forced_rows;
    _Atomic uint64_t partial_layers, coarsened_chunks, refined_layers, refined_rows;
    _Atomic uint64_t merged_chunks;
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
    uint32_t role;         /* SPEC_ROLE_WRITER or SPEC_ROLE_READER */
    uint32_t rank, rank_count;
    struct sc_plugin_peer *peers; /* [peer_count] the other ranks */
    uint64_t peer_count;
    uint64_t *epoch_told; /* [rank_count] guarded by post_lock */
    uint32_t layer_count;
    uint64_t k_row_bytes, row_bytes; /* one token, one layer: K alone, K and V */
    uint64_t probe_row_bytes;        /* keys of the probe heads; 0: none */
    uint32_t probe_heads;            /* KV heads whose keys are stored a second time */
    uint32_t hint_heads;             /* KV heads that hints are scored by */
    uint32_t query_group;            /* query heads of a KV head */
    bool reads_codes;                /* rows are chosen by codes, or delivered as such */
    bool takes_coarse;               /* ranges that have codes alone are served */
    bool can_select;                 /* buffers were made; else all rows are delivered, always */
    uint64_t delivery_bytes;         /* of a request; 0: nothing that was delivered is refined */
    uint64_t segment_capacity;
    struct sc_plugin_request *requests; /* [config.max_requests + SC_PLUGIN_PEEKS] */
    struct sc_store_reader **readers;   /* [config.max_requests * SC_PLUGIN_READERS] theirs */
    struct sc_plugin_save *saves;       /* [save_count] */
    uint64_t save_count;
    bool replay_lacks_memory; /* pieces of the log were left unseen */
    bool replay_orphans;      /* pieces of the log hung on one that it drops */
    uint32_t *fork_guard;     /* 1 here, 0 in a forked child (its page is wiped) */

    /* Any thread. */
    _Atomic uint64_t epoch;           /* resets of the family; chain roots come from it */
    _Atomic uint64_t lease_seed;      /* 0: there is no store yet */
    _Atomic uint64_t pieces_followed; /* reader: pieces with lower ids are in the index, or void */
    _Atomic uint32_t fork_closed;     /* a forked child has closed what it inherited */
    struct sc_poison poison;
    struct sc_log log;
    struct sc_log_limit lost_saves; /* lines of them */
    struct sc_plugin_stats stats;
    _Atomic uint64_t load_bytes_per_s;   /* of demand loads, smoothed; 0: none yet */
    _Atomic uint64_t pick_bytes_per_s;   /* of chosen rows, likewise */
    struct sc_plugin_trust *trusts;      /* [layer_count + 1] of guesses; the last: of all layers */
    struct sc_plugin_window window;      /* of compute, that reading ahead may fill */
    struct sc_lab lab;                   /* opened before the store, which tells it of averages */
    struct sc_plugin_scratch *scratches; /* [scratch_slots] set by open, constant */
    uint8_t *scratch_memory;
    struct sc_slots scratch_slots;
    uint32_t *row_numbers; /* [max_request_tokens] 0, 1, 2 ..: of all rows, where layout is split */
    _Atomic uint32_t request_hint; /* where the search for a free slot begins */
    _Atomic uint64_t requests_taken;
    _Atomic uint32_t merges_waiting; /* for a request to be released */
    _Atomic uint32_t ticket_word;    /* moves when a ticket ends; waiters watch it */
    _Atomic uint32_t save_word;      /* moves when a save ends */
    _Atomic uint64_t saves_live;
    _Atomic uint64_t ticket_hint;
    struct sc_plugin_ticket *tickets; /* [SC_LIMIT_TICKETS] */
    struct sc_plugin_item *batches;   /* [batch_slots][SC_LIMIT_BATCH] set by open, constant */
    struct sc_slots batch_slots;
    struct sc_plugin_submission *submissions; /* [submission_count] submit.c */
    uint32_t submission_count;                /* set by open, constant after */
    struct sc_exec *submit_exec;              /* likewise; NULL: waiting does the work */
    _Atomic uint32_t submit_word;             /* moves when a submission ended */
    _Atomic uint32_t submit_closing;

    /* Rank 5, never taken by a call that must not block: what is decided about the log and then
     * done to the index: one commit (match, append, insert), eviction, reset. */
    pthread_mutex_t commit_lock;

    pthread_mutex_t index_lock;  /* rank 10: the radix index's writer; memory only */
    uint64_t *drops;             /* [SC_PLUGIN_DROPS] gone from the index; the log will say so */
    _Atomic uint64_t drop_count; /* changed under index_lock */

    pthread_mutex_t save_lock; /* rank 20: saves, and who commits; a few instructions each */
    struct sc_plugin_save *save_free;
    struct sc_plugin_save *commit_head, *commit_tail;
    bool is_committing;

    pthread_mutex_t job_lock; /* rank 25 */
    struct sc_plugin_job jobs[SC_JOBS];
    bool jobs_closed;
    _Atomic uint32_t job_word;   /* moves when a step ends */
    struct sc_radix_spare spare; /* to be touched */
    struct sc_plugin_evict evict;
    struct sc_plugin_merge *merge;   /* made by its job; NULL: nothing was ever to be merged */
    uint64_t tails[SC_PLUGIN_TAILS]; /* a ring: ends of prompts that may be merged */
    uint32_t tail_first, tail_count;

    struct sc_plugin_ghost *ghosts; /* guarded by index_lock: [SC_PLUGIN_GHOSTS], a ring; readers */
    uint64_t ghost_first, ghost_count;    /* guarded by index_lock */
    struct sc_plugin_old_roots old_roots; /* guarded by index_lock */
    bool is_opening; /* the opening thread's: nobody else touches the index yet */

    pthread_mutex_t follow_lock; /* rank 4: a reader's place in its writer's log */
    spec_status follow_status;   /* guarded by follow_lock: what was said last */

    pthread_mutex_t post_lock; /* rank 6: mail that is being posted */
    uint64_t epoch_to_tell;    /* guarded by post_lock */

    pthread_mutex_t outbox_lock; /* rank 20: failed ranges, to be posted */
    struct sc_store_mail outbox[SC_PLUGIN_OUTBOX];
    uint32_t outbox_first, outbox_count;

    /* The turn's (and open's). */
    struct sc_plugin_turn turn;
    uint64_t epoch_heard; /* by mail */
    spec_status mail_status;
};

spec_status sc_plugin_open(const struct spec_open_params *params, spec_connector **ret_conn,
                           struct spec_error *reterr);
/* The same on a back end that the caller brings and that outlives the connector, in one seeded loop
 * (base/exec.h); NULL: as configured. */
spec_status sc_plugin_open_on(const struct spec_open_params *params,
                              const struct sc_io_custom *custom, spec_connector **ret_conn,
                              struct spec_error *reterr);
void sc_plugin_close(spec_connector *conn);

/* handle.c: the open request of a handle, or NULL (STALE: released, or made before a reset). */
struct sc_plugin_request *sc_plugin_request_find(spec_connector *conn, spec_request handle);
/* An open request with this handle, also one that a reset made stale; or NULL. */
struct sc_plugin_request *sc_plugin_request_find_any(spec_connector *conn, spec_request handle);
struct sc_plugin_request *sc_plugin_request_take(spec_connector *conn, spec_request *ret_handle);
/* A slot that no handle names, for the moment of a peek; NULL: all are taken. */
struct sc_plugin_request *sc_plugin_request_take_peek(spec_connector *conn);
void sc_plugin_request_unhold(struct sc_plugin_request *request);
spec_status sc_plugin_stale(spec_request handle, struct spec_error *reterr);
/* It is in a submission that was not reported: its loads are not the host's to call. */
static inline bool sc_plugin_is_submitted(struct sc_plugin_request *request)
{
    return atomic_load_explicit(&request->submission, memory_order_relaxed) != 0;
}
spec_status sc_plugin_submitted(spec_request handle, struct spec_error *reterr);

/* request.c */
spec_status sc_plugin_release(spec_connector *conn, spec_request handle, struct spec_error *reterr);
/* What release does at once, or when the submission ends that has the turn. */
void sc_plugin_request_end(spec_connector *conn, struct sc_plugin_request *request);
/* What it matched is let go: its pin, and its part in what merges wait for. */
void sc_plugin_request_unpin(spec_connector *conn, struct sc_plugin_request *request);

/* lookup.c */
spec_status sc_plugin_lookup(spec_connector *conn, const struct spec_lookup_params *params,
                             struct spec_lookup_result *ret_result, struct spec_error *reterr);

/* The last steps of lookup and attach: root, tokens, marks, segments, pin, epoch and the match are
 * set; the ranges are made, the request opens, the result is written. */
void sc_plugin_request_open(spec_connector *conn, struct sc_plugin_request *request,
                            spec_request handle, const struct sc_plugin_promise *promise,
                            struct spec_lookup_result *ret_result);

/* attach.c */
spec_status sc_plugin_attach(spec_connector *conn, const struct spec_attach_params *params,
                             struct spec_lookup_result *ret_result, struct spec_error *reterr);

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

/* outbox.c */
/* Reader: the piece's rows (is_codes: codes) failed here; its writer shall know. Before it is
 * dropped. */
void sc_plugin_failed_tell(spec_connector *conn, uint64_t piece, bool is_codes);
/* Reader: every rank's writer shall know of the epoch. Blocks on the file system. */
void sc_plugin_epoch_tell(spec_connector *conn, uint64_t epoch);
/* Posts what waits. Blocks on the file system. */
void sc_plugin_mail_post(spec_connector *conn);

/* reset.c */
spec_status sc_plugin_reset(spec_connector *conn, struct spec_error *reterr);
/* Takes mail, moves to the highest epoch that is known, posts what waits. The turn's, and open's.
 */
void sc_plugin_mail_turn(spec_connector *conn);

/* peers.c */
spec_status sc_plugin_peers_open(spec_connector *conn, const struct sc_store_params *own,
                                 struct spec_error *reterr);
void sc_plugin_peers_close(spec_connector *conn);
void sc_plugin_peers_fork_close(spec_connector *conn);
/* How many of the query's first `end` tokens every other rank has. Any thread. */
uint64_t sc_plugin_peers_match(spec_connector *conn, const struct sc_radix_query *query,
                               uint64_t end);
/* The worst that other ranks have of the query's first `end` tokens is added. Any thread. */
void sc_plugin_peers_provenance(spec_connector *conn, const struct sc_radix_query *query,
                                uint64_t end, struct spec_provenance *worst);
/* Wall clock until which a promise made now is kept; 0: nothing may be promised; UINT64_MAX: in
 * this process only, so no lease. Any thread. */
uint64_t sc_plugin_promise_end(const spec_connector *conn);
/* Whether that rank's log was followed behind the piece; asked before it is looked for. */
bool sc_plugin_peer_has(const spec_connector *conn, uint32_t rank, uint64_t piece);
/* The tokens, marks and root of a lease that another rank gave, from its log. Errors: STALE. */
struct sc_plugin_lease;
spec_status sc_plugin_peer_recall(spec_connector *conn, const struct sc_plugin_lease *lease,
                                  const struct sc_radix_room *room,
                                  struct sc_radix_attached *ret_attached);
uint64_t sc_plugin_follow_lag_ns(const spec_connector *conn);
/* The highest epoch that a log says. */
uint64_t sc_plugin_epoch_known(const spec_connector *conn);
/* A reader reads its writer's log on; true: there is more. */
bool sc_plugin_follow_own(spec_connector *conn);
/* The same for the other ranks' logs. The turn's. */
bool sc_plugin_peers_follow(spec_connector *conn);
/* Makes lease_seed known once there is a store. Open, or under follow_lock. */
void sc_plugin_lease_seed_find(spec_connector *conn);
void sc_plugin_on_drop(uint64_t piece, uint64_t mark, void *user);
void sc_plugin_on_epoch(uint64_t epoch, void *user);

/* ghosts.c; but for the last one, index_lock is held */
/* The writer has dropped the run's piece, or recorded a better one (is_top: for all that hangs
 * below the run too), so every promise on it ends a lease from now at the latest. */
void sc_plugin_ghost_begin(spec_connector *conn, struct sc_radix_ref run, bool is_top);
/* A better piece takes the place of this run and of what hangs on it: a reader keeps them for
 * leases (user: the connector). */
void sc_plugin_on_replacing(struct sc_radix_ref top, void *user);
/* Whether the run is one that was dropped or replaced lately. */
bool sc_plugin_ghost_find(const spec_connector *conn, struct sc_radix_ref run);
/* True: pins were taken back. */
bool sc_plugin_ghosts_end_due(spec_connector *conn);

/* turn.c */
void sc_plugin_turn_start(spec_connector *conn);
void sc_plugin_turn_stop(spec_connector *conn);

/* budget.c: whether the match is too short to be worth a choice (select.min_tokens,
 * .min_share_ppm); lookup asks once, so that all layers and passes of the request agree. */
bool sc_plugin_match_is_short(const spec_connector *conn, const struct sc_plugin_request *request);

/* load.c */
spec_status sc_plugin_begin_layer(spec_connector *conn, const spec_request *requests,
                                  uint64_t count, uint32_t layer, struct spec_error *reterr);
spec_status sc_plugin_get_important(spec_connector *conn, struct spec_important *items,
                                    uint64_t count, struct spec_error *reterr);
spec_status sc_plugin_prefetch_next(spec_connector *conn, spec_request handle, uint32_t layer,
                                    const struct spec_queries *hint, struct spec_error *reterr);
/* The one place where the memory that a request's loads work on (readers, sketches) is given up for
 * good. Whose turn it is calls it, between items: see request.c. */
void sc_plugin_loads_end(spec_connector *conn, struct sc_plugin_request *request);

/* delivery.c: a new request has the slot. */
void sc_plugin_deliveries_forget(struct sc_plugin_request *request);

/* batch.c */
spec_status sc_plugin_batches_open(spec_connector *conn, struct spec_error *reterr);
void sc_plugin_batches_close(spec_connector *conn);

/* submit.c */
spec_status sc_plugin_submit_open(spec_connector *conn, struct spec_error *reterr);
/* Submissions that nobody works at are dropped, the others are waited for. */
void sc_plugin_submit_end(spec_connector *conn);
void sc_plugin_submit_close(spec_connector *conn); /* after end; takes what open made */
spec_status sc_plugin_submit(spec_connector *conn, struct spec_important *items, uint64_t count,
                             spec_ticket *ret_ticket, struct spec_error *reterr);
spec_status sc_plugin_submit_wait(spec_connector *conn, spec_ticket ticket, uint64_t timeout_ns,
                                  struct spec_error *reterr);
/* submission.c: the host lets the request go: true: a submission has the turn, and ends it with its
 * own. */
bool sc_plugin_submit_leaves(struct sc_plugin_request *request);

/* select.c */
void sc_plugin_sketches_end(spec_connector *conn, struct sc_plugin_request *request);

/* guess.c */
/* No guess of this request is made any more; what was read for one counts as unused. */
void sc_plugin_guess_stop(struct sc_plugin_request *request);

/* model.c */
spec_status sc_plugin_model_check(const struct spec_model *model, struct spec_error *reterr);

/* store_call.c */
spec_status sc_plugin_store(spec_connector *conn, const struct spec_store_params *params,
                            uint64_t count, spec_ticket *ret_tickets, struct spec_error *reterr);
spec_status sc_plugin_store_abort(spec_connector *conn, spec_request handle, uint64_t from_token,
                                  struct spec_error *reterr);

/* save.c: of the request's step, which was checked */
/* With layer 0: what the pass shall become, and its ticket. BUSY: there is none. */
spec_status sc_plugin_pass_plan(spec_connector *conn, struct sc_plugin_request *request,
                                struct spec_error *reterr);
void sc_plugin_pass_unplan(spec_connector *conn, struct sc_plugin_request *request);
void sc_plugin_pass_begin(spec_connector *conn, struct sc_plugin_request *request);
void sc_plugin_pass_put(spec_connector *conn, struct sc_plugin_request *request);
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

/* provenance.c */
/* Makes each member the worse of the two. */
void sc_plugin_provenance_add(struct spec_provenance *worst, const struct spec_provenance *more);
void sc_plugin_provenance_add_piece(struct spec_provenance *worst, const struct sc_store *store,
                                    uint64_t piece);
/* SPEC_PROVENANCE_* of a piece: the flags of its runs in the index. */
uint32_t sc_plugin_provenance_kind(const struct sc_store_provenance *of);
/* What is computed now by the request is computed on this: its match, and what was delivered. */
struct spec_provenance sc_plugin_provenance_so_far(const struct sc_plugin_request *request);
/* The layer was delivered, or refined. worth: it came ahead as codes; NULL: it did not. */
void sc_plugin_provenance_ahead(struct sc_plugin_request *request, uint32_t layer,
                                const struct spec_provenance *worth);
/* The layer has been computed, on what came ahead if nothing has refined that: adds it. */
void sc_plugin_provenance_computed(const struct sc_plugin_request *request, uint32_t layer,
                                   struct spec_provenance *worst);
struct sc_store_provenance sc_plugin_provenance_stored(const struct spec_provenance *worst);
/* store.lossy, store.pruned. */
bool sc_plugin_provenance_may_be_stored(const spec_connector *conn, uint32_t kind);

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
/* Inserts the committed pieces, ids from first_id on, behind what the match found of the save's
 * tokens; what stands there and is worse than `kind` makes way. A piece that cannot be indexed is
 * dropped, with all behind it, and why is the answer: NO_MEMORY (the index is full), CORRUPT (its
 * chain hash is another prefix's), STALE (what it hangs on has just failed).
 *   ret_indexed_end  where the tokens end that the index has now; always written */
spec_status sc_plugin_index_save(spec_connector *conn, const struct sc_plugin_save *save,
                                 const struct sc_radix_match *match, uint64_t first_id,
                                 uint32_t kind, uint64_t *ret_indexed_end);
/* The unpinned leaf that goes first, of a piece below piece_end. Index lock held. */
bool sc_plugin_index_leaf(spec_connector *conn, uint64_t piece_end,
                          struct sc_radix_segment *ret_leaf);
/* Writer's open: drops the pieces whose place in the index went with one that the log drops,
 * because the process died before their own records. */
void sc_plugin_orphans_drop(spec_connector *conn);
/* A piece that failed verification: no lookup finds it any more, nor what is below it; the log is
 * told in the background. */
void sc_plugin_piece_fail(spec_connector *conn, struct sc_radix_ref node, uint64_t piece);
/* A pin was taken back: what waited for it goes, in the background. */
void sc_plugin_unpinned(spec_connector *conn);
/* The job: removes what is not pinned any more, tells the log of what has gone. Returns false. */
bool sc_plugin_tidy(spec_connector *conn);
/* Job: the pages of memory that the index will take next are made ready. True: there is more. */
bool sc_plugin_index_spare(spec_connector *conn);
/* The second half of it; the commit's lock is held. */
void sc_plugin_drops_flush(spec_connector *conn);

/* evict.c */
/* A pass of so many rows found no room. */
void sc_plugin_evict_ask(spec_connector *conn, uint64_t rows);
void sc_plugin_evict_ask_runs(spec_connector *conn);  /* the index is full */
void sc_plugin_evict_ask_least(spec_connector *conn); /* an eighth shall be free, whatever is new */
/* After something was stored. */
void sc_plugin_evict_check(spec_connector *conn);
bool sc_plugin_evict_some(spec_connector *conn); /* the job */

/* coarse.c */
/* Marks the request's segments, which are pinned, whose pieces give codes alone (to a lease that
 * ends at expiry_ns, if it is not 0), and returns where the first one behind from_token begins;
 * UINT64_MAX: none. marks_before: sc_store_coarse_marks before the match. */
uint64_t sc_plugin_coarse_find(const spec_connector *conn, struct sc_plugin_request *request,
                               uint64_t segment_count, uint64_t marks_before, uint64_t expiry_ns);
void sc_plugin_on_coarse(uint64_t piece, uint64_t mark, void *user);
/* Runs of a piece without rows are lossy. The index' writer. */
void sc_plugin_coarse_worsen(struct sc_radix *radix, uint64_t piece, uint64_t mark);
/* A step of the eviction's, for pieces below piece_end: true: an extent gives its rows up, or
 * another step will. */
bool sc_plugin_coarse_some(spec_connector *conn, uint64_t piece_end);

/* merge.c */
bool sc_plugin_merge_some(spec_connector *conn); /* the job */
/* The request has ended, which stored this piece last, inside a chunk that others began. */
void sc_plugin_merge_tail(spec_connector *conn, uint64_t piece);
void sc_plugin_merge_close(spec_connector *conn); /* after jobs_close, before the store's */

/* jobs.c */
void sc_plugin_jobs_open(spec_connector *conn, bool (*const runs[SC_JOBS])(spec_connector *));
/* No step runs or will run. */
void sc_plugin_jobs_close(spec_connector *conn);
/* The job is done soon, again when it runs now. Any thread; never blocks. */
void sc_plugin_kick(spec_connector *conn, enum sc_plugin_job_kind kind);
/* For calls of the host: a lock that is not free is counted (stats.lock_waits). */
void sc_plugin_lock(spec_connector *conn, pthread_mutex_t *lock);

/* maintain.c */
void sc_plugin_maintain_open(spec_connector *conn); /* the jobs */
spec_status sc_plugin_maintain(spec_connector *conn, const struct spec_maintain_params *params,
                               struct spec_error *reterr);

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
