/* Requests: what a lookup or a lease matched, until the host lets it go.
 *
 * Threads: per member and call, below.
 * Tests: tests/unit/plugin/test_lookup.c, test_attach.c, test_ends.c */
#ifndef SC_PLUGIN_REQUEST_REQUESTS_H
#define SC_PLUGIN_REQUEST_REQUESTS_H

#include "base/run_pool.h"
#include "hashing/radix.h"
#include "plugin/args/memory.h"
#include "plugin/device/fetch_scored.h"
#include "plugin/load_or_compute/load_or_compute.h"
#include "plugin/save/saves.h"
#include "store/load.h"

#include <string.h>

#define SC_PLUGIN_AHEAD    2u /* a request loads layer l and reads layer l + 1 ahead */
#define SC_PLUGIN_REST     2u /* the reader of rows that were not read ahead */
#define SC_PLUGIN_READERS  3u
#define SC_PLUGIN_SELECTORS 3u   /* of layers l, l + 1, l + 2 */
#define SC_PLUGIN_MARKS    256u /* distinct positions of extra keys in one request */
#define SC_PLUGIN_PEEKS    16u  /* lookups without a request that run at the same moment */
#define SC_PLUGIN_OUTGROWN 16u  /* runs of tokens that became too short: each doubles, at least */
#define SC_PLUGIN_NO_LAYER UINT32_MAX

/* CALLED: a call of the host has the request. LEFT: likewise, and it was released meanwhile. */
enum sc_plugin_request_phase {
    SC_REQUEST_FREE,
    SC_REQUEST_TAKEN,
    SC_REQUEST_OPEN,
    SC_REQUEST_CALLED,
    SC_REQUEST_LEFT
};

/* The requests that one call of the host has; on the call's stack. handle.c, request.c. */
struct sc_plugin_visit {
    struct sc_plugin_request *first; /* linked by visit_next; NULL: none */
};

/* Why the store did not want what a pass computed, and what of its request hangs on it. */
enum sc_plugin_refusal {
    SC_REFUSED_UNSEEN,  /* store.admit */
    SC_REFUSED_ROOM,    /* it would be evicted for itself: sc_plugin_evict_admits */
    SC_REFUSED_BUDGET,  /* store.write_budget */
    SC_REFUSED_STAGING, /* a pass before it lost its end */
    SC_REFUSED_BYPASS   /* plugin/index/bypass.h */
};

enum sc_plugin_load {
    SC_LOAD_WHOLE,
    SC_LOAD_GATHER, /* some rows: guessed ones, or those of a set */
    SC_LOAD_KEYS    /* K of all rows, of a split layout */
};

struct sc_plugin_reader {
    struct sc_store_reader *reader;
    uint32_t layer; /* what it loads or has loaded; SC_PLUGIN_NO_LAYER: nothing */
    uint32_t load;  /* enum sc_plugin_load */
    uint64_t begin_ns;
    uint32_t *rows; /* [list_rows] of picks; NULL where none are guessed or chosen */
    struct sc_store_gather_rows gather;
    struct sc_store_range *window; /* of a window's layer, the ranges that have its rows: as many as
                                    * the longest has tokens, or the match has; NULL: none has a
                                    * window */
    uint64_t range_first;          /* of the request's ranges, the first that it reads */
};

struct sc_plugin_selector {
    struct sc_store_selector *selector; /* NULL: nothing is ever chosen */
    uint32_t layer;                 /* SC_PLUGIN_NO_LAYER: it is not begun */
    bool is_counted;                /* some item has its cost */
};

/* prefetch.c: rows of a layer that may be wanted, ranked; some of them are read ahead. */
struct sc_plugin_prefetch {
    /* Set by open, constant after. */
    spec_connector *conn; /* NULL: none is ever made */
    struct sc_plugin_request *request;

    /* Host thread. */
    uint32_t layer;     /* that is guessed; SC_PLUGIN_NO_LAYER: none */
    uint64_t asked_ns;  /* when prefetch_next was called for it; 0: it was not */
    uint64_t others_ns; /* what others had waited until then: others_awaited of prefetch.c */

    /* Whoever the state names. */
    _Atomic uint32_t state; /* enum in prefetch.c: host, or the task */
    struct sc_task task;
    struct sc_run hint;  /* [hint.rows][query heads of the probe heads][head_size], of the pool of
                          * hints; none while no task is to read it, or where it is on a device */
    uint32_t hint_place; /* on a device, if has_place */
    bool has_place;
    uint32_t hint_dtype;
    float hint_scale;
    struct sc_plugin_afar hint_afar; /* of a hint that lies on a device; else zero */
    uint64_t hint_rows, hint_ranks;  /* how many there are; how many rows are ranked by them */
    uint64_t count;  /* ranked rows, at the rows of the reader of the same parity; 0: none */
    bool is_whole;   /* heads are expected to disagree: all rows will be wanted */
    uint64_t *slabs; /* planner `chunk`: rows as bits, scratch, in the choice's run; else NULL */
};

/* load/load_recurrent.c: the branch that the match ends at, of a model whose layers keep states. */
struct sc_plugin_recurrent_match {
    struct sc_radix_segment *segments; /* [states.segments_max] set by open, constant; NULL: none */
    struct sc_store_range *ranges;     /* [likewise] of what is loaded of it */
    uint64_t segment_count;
    struct sc_radix_ref pinned; /* its last run */
};

/* A request's part of a store call, from its check to its end. */
struct sc_plugin_step {
    struct spec_store_params params;
    struct sc_plugin_memory memory;   /* of params */
    struct spec_provenance delivered; /* what the pass is computed on, with this layer */
    bool is_named;                    /* in the call that runs */
    bool is_cut;                      /* the host's range goes beyond what the request may know */
    uint64_t wait_until_ns;           /* for room in staging; 0: not at all */
    uint64_t host_tokens, host_end;   /* host_tokens after this step; end of the host's range */

    /* With layer 0, the pass: */
    bool is_good, is_wanted; /* good enough to be stored; and nothing else speaks against it */
    bool is_bypassed;        /* nothing else did but a bypass */
    bool is_over;            /* nothing else did but a limit, which cut all of it */
    uint64_t present_end;    /* up to here it is stored already, and no worse */
    uint64_t shared_end;     /* up to here others store it now, and it joined them */
    uint64_t cuts[SC_PLUGIN_CUTS]; /* [cut_count] extents end here, ascending */
    uint32_t cut_count;
    uint64_t begun_end, begun_parts; /* of the pass, by others or by extents of its own */
    uint64_t rows_most;              /* of an extent */
    uint64_t tokens_most;            /* of the pass: more would find no room in staging */
    uint64_t save_count, part_count; /* extents it needs; parts of its ticket */
    uint64_t held_bytes;             /* of the write budget, until its extents have begun */
    uint64_t wanted_end;             /* up to here it may be stored, if staging holds it */
};

/* Runs of the pool that the request has: request_memory.c draws them. */
struct sc_plugin_request_memory {
    struct sc_run_pool *pool; /* set by open, constant after */
    struct sc_run text, match, choice;
    struct sc_run outgrown[SC_PLUGIN_OUTGROWN]; /* texts that became too short */
    uint32_t outgrown_count;
};

struct sc_plugin_request {
    /* Any thread. */
    _Atomic uint64_t gate;  /* [generation of the handle 32][enum sc_plugin_request_phase 32]; the
                             * generation moves on at release */
    _Atomic uint32_t holds; /* the open handle, each unresolved save, and who else needs the slot */
    _Atomic uint32_t submission; /* that was not reported yet: its slot + 1; 0: none */
    _Atomic uint32_t staged;     /* its match is being staged: the slot + 1; 0: it is not */
    _Atomic uint64_t taken;      /* when, by conn->requests.taken */
    _Atomic uint64_t piece_last; /* the highest id of its ranges; UINT64_MAX until they are made */
    _Atomic uint64_t ends;       /* given out to be computed, being loaded: bidirectional.h */
    _Atomic uint64_t tail;       /* the piece stored last, if others began its chunk; else 0 */
    _Atomic(struct sc_plugin_visit *) visit; /* of the call that has the request; NULL: none yet */

    /* The call that has the request. */
    struct sc_plugin_request *visit_next;

    /* Set by the call that takes their memory, until the last hold ends: arrays in the request's
     * runs. Any thread that holds the request reads them. */
    struct sc_plugin_request_memory memory;
    uint32_t *_Atomic tokens; /* [token_capacity]; NULL: a peek's, which has no ranges and
                               * no loads either. Moves when a store brings more */
    uint64_t token_capacity;
    struct sc_radix_segment *segments; /* [segment_capacity]; those behind the match are cut off */
    uint64_t segment_capacity;
    struct sc_store_range *ranges; /* as many as the match has segments */
    uint64_t list_rows;            /* of each list of rows below and in readers: the match's */
    uint32_t *set;                 /* [list_rows] the rows chosen last (select.c) */
    uint64_t *bits;                /* [2 + kv_head_count][words of the match's rows] */

    /* Set by open, constant after: the arrays. */
    struct sc_mark *marks;             /* [SC_PLUGIN_MARKS] */
    struct sc_store_mark *store_marks; /* the same marks, as the store writes them */
    uint8_t *deliveries; /* [delivery_bytes] a ring (delivery.c); NULL: none are kept */
    struct sc_plugin_reader readers[SC_PLUGIN_READERS];
    struct sc_plugin_selector selectors[SC_PLUGIN_SELECTORS];
    struct sc_plugin_prefetch predictions[SC_PLUGIN_AHEAD]; /* of even layers, of odd ones */

    /* The call of the host that has the request. Tokens grow, and shrink by those of a pass that
     * is given up; saves that are committed read those before. */
    uint64_t token_count;
    /* Tokens as the host counts them, >= token_count: those behind token_count are beyond a limit
     * and unknown here. Written by lookup, attach and store. */
    uint64_t host_tokens;
    _Atomic uint64_t awaited_ns; /* what its own loads were waited for */
    uint64_t selected_row_list;  /* of the set chosen last: so many are ranked; 0: none yet */
    uint64_t mark_count;
    struct sc_sha256 root;
    uint64_t epoch; /* of the root: the request is stale when the connector's has moved on */
    struct sc_store_salt salt; /* of the root */
    uint64_t erasures;         /* heard of when it was made (plugin/index/erase.h) */
    uint64_t from_token, matched_tokens;
    uint64_t retain_s; /* what lookup was told of these: sc_plugin_hint_of */
    int32_t priority;
    uint64_t stored_tokens; /* of the index, from 0, whatever was asked for */
    bool is_short;          /* the match: delivered whole, unless an item has a budget of its own */
    uint64_t range_count;
    struct sc_radix_ref pinned;
    struct sc_plugin_recurrent_match branch;
    struct spec_provenance provenance; /* the worst over the match */
    struct spec_provenance delivered;  /* the worst that get_important delivered; lookup zeroes */
    struct spec_provenance ahead;      /* the worst that came ahead; zero: none did */
    uint64_t unrefined[SC_LIMIT_LAYERS / 64]; /* layers whose last delivery that was */

    /* Whose turn it is with loads: the host thread's, or a submission's (submission.h). */
    _Atomic uint32_t turn;
    const struct sc_store_selector *lent;  /* it is decoded now: it does not end; or NULL */
    _Atomic uint64_t failed_position;      /* UINT64_MAX: nothing failed; store looks at it */
    spec_status failed_status;             /* set before it; STALE: by a reset */
    uint64_t delivery_first, delivery_end; /* of the ring; they only rise */
    spec_ticket delivery_lost; /* the last one of which something is not kept; 0: none */
    struct sc_plugin_load_clock load_clock;

    /* The open store pass. Host thread. */
    struct sc_plugin_step step;
    struct sc_plugin_save *pass[SC_PLUGIN_PASS_SAVES];
    struct sc_plugin_recurrent_pass *pass_states; /* NULL: the pass stores none */
    uint64_t pass_saves;
    struct sc_store_pass_share share; /* frames of its extents; any thread */
    uint64_t pass_first, pass_count;
    uint64_t pass_known;     /* token_count before it */
    uint64_t pass_host;      /* host_tokens before it */
    uint64_t pass_host_end;  /* end of its range as the host counts */
    uint32_t pass_layer;     /* next layer, as calls count them; 0: no pass is open */
    spec_status pass_status; /* SPEC_OK, or why the pass was given up */
    spec_ticket pass_ticket; /* the last layer's */
    struct sc_radix_ref
        pass_present;      /* pinned until the pass ends; none: nothing of it is stored */
    uint64_t stored_end;   /* where the next pass begins at the latest */
    uint64_t present_hint; /* passes from here on store what the index lacks */
    struct sc_plugin_pass_clock pass_clock;
    uint64_t loading_ns;   /* that calls which load have taken */
    uint64_t refused_from; /* the store did not want what comes here and behind; UINT64_MAX: none */
    uint32_t refused_by;   /* enum sc_plugin_refusal */

    /* The next save hangs on this one, unless its life has moved on; NULL: none. Host thread. */
    struct sc_plugin_save *save_last;
    uint64_t save_last_life;
};

static inline struct sc_radix_query sc_plugin_query_of(const struct sc_plugin_request *request)
{
    return (struct sc_radix_query){.root = request->root,
                                   .tokens = request->tokens,
                                   .token_count = request->token_count,
                                   .marks = {request->marks, request->mark_count}};
}

/* Tokens of the prompt from `first` on, with those beyond a limit; at most what any request has. */
static inline uint64_t sc_plugin_tokens_from(const struct sc_plugin_request *request,
                                             uint64_t first)
{
    uint64_t count = request->host_tokens - first;
    return count < SC_LIMIT_REQUEST_TOKENS ? count : SC_LIMIT_REQUEST_TOKENS;
}

/* Marks as the store writes them. */
static inline void sc_plugin_marks_stored(struct sc_marks marks, struct sc_store_mark *ret_marks)
{
    for (uint64_t i = 0; i < marks.count; i++) {
        ret_marks[i].token = marks.at[i].token;
        memcpy(ret_marks[i].digest, marks.at[i].digest.bytes, sizeof(ret_marks[i].digest));
    }
}

struct sc_plugin_requests {
    /* Set by open, constant after. */
    struct sc_plugin_request *slots;  /* [config.max_requests + SC_PLUGIN_PEEKS] */
    struct sc_store_reader **readers; /* [config.max_requests * SC_PLUGIN_READERS] theirs */
    struct sc_run_pool pool;          /* the requests' runs */
    uint64_t segments_max;            /* of the longest match */
    struct sc_run_pool hints;         /* of guesses, a run each */
    uint64_t hint_bytes;              /* of a run; 0: none is taken */
    _Atomic uint64_t hint_places;     /* on a device, that are free: bits. Any thread */
    uint64_t delivery_bytes;          /* of each; 0: nothing that was delivered is refined */

    _Atomic uint32_t hint; /* where the search for a free slot begins */
    _Atomic uint64_t taken;
};

struct sc_plugin_promise { /* of a lookup's match, by time */
    uint64_t expiry_ns;    /* wall clock; 0: no lease */
    uint8_t lease[64];
};

/* The word of request->gate. */
static inline uint64_t sc_plugin_gate_of(uint64_t generation, uint32_t phase)
{
    return generation << 32 | phase;
}

static inline uint32_t sc_plugin_request_phase(const struct sc_plugin_request *request)
{
    return (uint32_t)atomic_load(&request->gate);
}

/* handle.c */
/* Gives the request to the call until the visit ends (request.c): no other call has it meanwhile,
 * and a release leaves its end to that moment. A call may enter the same request again. Errors:
 * STALE (unknown or released), BUSY (another call has it). */
spec_status sc_plugin_request_enter_any(spec_connector *conn, struct sc_plugin_visit *visit,
                                        spec_request handle, struct sc_plugin_request **ret_request,
                                        struct spec_error *reterr);
/* Likewise; a request that is older than a reset is STALE, too. */
spec_status sc_plugin_request_enter(spec_connector *conn, struct sc_plugin_visit *visit,
                                    spec_request handle, struct sc_plugin_request **ret_request,
                                    struct spec_error *reterr);
/* The open request of a handle, whose slot stays its own until unhold, or NULL. Calls may have it
 * meanwhile, and it may be released. */
struct sc_plugin_request *sc_plugin_request_hold(spec_connector *conn, spec_request handle);
/* Neither a reset nor an erasure that covers it came since it was made. Any thread. */
bool sc_plugin_request_is_current(spec_connector *conn, const struct sc_plugin_request *request);
/* The open request of a handle, or NULL. Whoever asks holds it, or is its only caller. */
struct sc_plugin_request *sc_plugin_request_find(spec_connector *conn, spec_request handle);
/* Likewise; also one that a reset made stale. */
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

/* request_memory.c */
spec_status sc_plugin_request_memory_open(spec_connector *conn, struct spec_error *reterr);
/* Every request was let go. */
void sc_plugin_request_memory_close(spec_connector *conn);
/* Pieces that a match of so many tokens may have; a longer one is cut there. Short requests may be
 * stored token by token; long ones are expected to average 16 tokens a piece. */
uint64_t sc_plugin_segments_of(const spec_connector *conn, uint64_t tokens);
/* Room for the tokens (a peek has none of its own) and for the segments of a match of so many.
 * false: the pool has none; what was taken is given back with the request's last hold. */
bool sc_plugin_request_memory_take(spec_connector *conn, struct sc_plugin_request *request,
                                   uint64_t tokens, bool is_peek);
/* The match has so many segments: its ranges get their place, the rest is given back. */
void sc_plugin_request_match_cut(spec_connector *conn, struct sc_plugin_request *request,
                                 uint64_t segments);
/* Room to choose rows of the match in, where the configuration chooses. false: there is none. */
bool sc_plugin_request_choice_take(spec_connector *conn, struct sc_plugin_request *request);
/* How many tokens fit behind those that the request has: as many as `more`, unless there is a
 * limit. Those that it has may move. */
uint64_t sc_plugin_request_room(spec_connector *conn, struct sc_plugin_request *request,
                                uint64_t more);
/* The last hold has ended. */
void sc_plugin_request_memory_put(struct sc_plugin_request *request);
spec_status sc_plugin_request_memory_busy(spec_connector *conn, const char *call,
                                          struct spec_error *reterr);

/* request.c */
spec_status sc_plugin_release(spec_connector *conn, spec_request handle, struct spec_error *reterr);
/* The call gives back all requests that it has, and ends those that were released meanwhile. */
void sc_plugin_visit_end(spec_connector *conn, struct sc_plugin_visit *visit);
/* What release does at once, or when the call ends that has the request, or the submission that has
 * the turn. */
void sc_plugin_request_end(spec_connector *conn, struct sc_plugin_request *request);
/* What it matched is let go: its pin, and its part in what compactions wait for. */
void sc_plugin_request_unpin(spec_connector *conn, struct sc_plugin_request *request);

/* lookup.c */
spec_status sc_plugin_lookup(spec_connector *conn, const struct spec_lookup_params *params,
                             struct spec_lookup_result *ret_result, struct spec_error *reterr);

/* The last steps of lookup and attach: root, tokens, marks, segments, pin, epoch, the match and
 * room for its choice are set; the ranges are made, the request opens, the result is written. */
void sc_plugin_request_open(spec_connector *conn, struct sc_plugin_request *request,
                            spec_request handle, const struct sc_plugin_promise *promise,
                            struct spec_lookup_result *ret_result);

/* store_call.c */
spec_status sc_plugin_store(spec_connector *conn, const struct spec_store_params *params,
                            uint64_t count, spec_ticket *ret_tickets, struct spec_error *reterr);
spec_status sc_plugin_store_abort(spec_connector *conn, spec_request handle, uint64_t from_token,
                                  struct spec_error *reterr);

/* load_call.c */
spec_status sc_plugin_begin_layer(spec_connector *conn, const spec_request *requests,
                                  uint64_t count, uint32_t layer, struct spec_error *reterr);
spec_status sc_plugin_get_important(spec_connector *conn, struct spec_important *items,
                                    uint64_t count, struct spec_error *reterr);
spec_status sc_plugin_prefetch_next(spec_connector *conn, spec_request handle, uint32_t layer,
                                    const struct spec_queries *hint, struct spec_error *reterr);

/* attach.c */
spec_status sc_plugin_attach(spec_connector *conn, const struct spec_attach_params *params,
                             struct spec_lookup_result *ret_result, struct spec_error *reterr);

#endif
