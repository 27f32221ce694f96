/* request_state: the state of one request, from lookup or attach until the host releases it. All
 * layers of plugin/ share it, as connector.h. The calls are in plugin/request/requests.h.
 * Tests: tests/unit/plugin/test_lookup.c, test_attach.c */
#ifndef SC_PLUGIN_REQUEST_STATE_H
#define SC_PLUGIN_REQUEST_STATE_H

#include "base/run_pool.h"
#include "hashing/radix.h"
#include "plugin/args/memory.h"
#include "plugin/device/fetch_scored.h"
#include "plugin/load_or_compute/load_or_compute.h"
#include "plugin/save/saves.h"
#include "store/load.h"

#include <string.h>

#define SC_PLUGIN_AHEAD     2u /* layer l is loaded, l + 1 read ahead */
#define SC_PLUGIN_REST      2u /* reader of rows that were not prefetched */
#define SC_PLUGIN_READERS  3u
#define SC_PLUGIN_SELECTORS 3u   /* of layers l .. l + 2 */
#define SC_PLUGIN_MARKS     256u /* positions of extra keys in one request */
#define SC_PLUGIN_PEEKS     16u  /* lookups without a request at one time */
#define SC_PLUGIN_OUTGROWN  16u  /* runs of tokens that became too short; each doubles */
#define SC_PLUGIN_NO_LAYER UINT32_MAX

/* CALLED: a host call has the request. LEFT: it does, and the request was released meanwhile. */
enum sc_plugin_request_phase {
    SC_REQUEST_FREE,
    SC_REQUEST_TAKEN,
    SC_REQUEST_OPEN,
    SC_REQUEST_CALLED,
    SC_REQUEST_LEFT
};

/* The requests that one host call has; on its stack. handle.c, request.c. */
struct sc_plugin_visit {
    struct sc_plugin_request *first; /* linked by visit_next; NULL: none */
};

/* Why the store refused what a pass computed, and what follows it in its request. */
enum sc_plugin_refusal {
    SC_REFUSED_UNSEEN,  /* store.admit */
    SC_REFUSED_ROOM,    /* a pass would evict itself: sc_plugin_evict_admits */
    SC_REFUSED_BUDGET,  /* store.write_budget */
    SC_REFUSED_STAGING, /* an earlier pass lost its end */
    SC_REFUSED_INTENDED, /* another process stores it (sc_store_intend) */
    SC_REFUSED_BYPASS   /* plugin/index/bypass.h */
};

enum sc_plugin_load {
    SC_LOAD_WHOLE,
    SC_LOAD_GATHER, /* predicted rows, or those of a set */
    SC_LOAD_KEYS    /* split layout: K of all rows */
};

struct sc_plugin_reader {
    struct sc_store_reader *reader;
    uint32_t layer; /* that it loads or has loaded; SC_PLUGIN_NO_LAYER: none */
    uint32_t load;  /* enum sc_plugin_load */
    uint64_t begin_ns;
    uint32_t *rows; /* [list_rows] of gathers; NULL if none are predicted or selected */
    struct sc_store_gather_rows gather;
    struct sc_store_range *window; /* sliding windows: ranges with the window's rows, as many as the
                                    * longest window has tokens, or the match; NULL: no layer has
                                    * a window */
    uint64_t range_first;          /* first of the request's ranges that it reads */
};

struct sc_plugin_selector {
    struct sc_store_selector *selector; /* NULL: nothing is ever selected */
    uint32_t layer;                     /* SC_PLUGIN_NO_LAYER: not begun */
    bool is_counted;                    /* an item has its cost */
    bool keys_first;                    /* no probe keys: those of all heads are read anyway */
};

/* prefetch.c: ranked rows of a layer that may be wanted; some of them are prefetched. */
struct sc_plugin_prefetch {
    /* Set by open, constant after. */
    spec_connector *conn; /* NULL: predictions are off */
    struct sc_plugin_request *request;

    /* Host thread. */
    uint32_t layer;     /* predicted layer; SC_PLUGIN_NO_LAYER: none */
    uint64_t asked_ns;  /* time of its prefetch_next; 0: none */
    uint64_t others_ns; /* ns that others had waited then (others_awaited) */

    /* Used by the thread that the state names. */
    _Atomic uint32_t state; /* enum of prefetch.c: the host, or the task */
    struct sc_task task;
    struct sc_run hint;  /* [hint.rows][query heads of the probe heads][head_size], of the pool of
                          * hints; none if no task will read it, or if it is on a device */
    uint32_t hint_place; /* place on a device, if has_place */
    bool has_place;
    uint32_t hint_dtype;
    float hint_scale;
    struct sc_plugin_afar hint_afar; /* location of a hint on a device; else zero */
    uint64_t hint_rows, hint_ranks;  /* rows of the hint; rows to rank by it */
    uint64_t count;  /* ranked rows, in the rows of the reader of the same parity; 0: none */
    bool is_whole;   /* heads are expected to disagree: all rows */
    uint64_t *slabs; /* planner `chunk`: scratch, one bit per row, in the choice's run; else NULL */
};

/* load_recurrent.c: the branch at which the match of a model with states ends. */
struct sc_plugin_recurrent_match {
    struct sc_radix_segment *segments; /* [states.segments_max] set by open; NULL: no states */
    struct sc_store_range *ranges;     /* [states.segments_max] of what is loaded */
    uint64_t segment_count;
    struct sc_radix_ref pinned; /* its last run */
};

/* A request's part of a store call, from its check to its end. */
struct sc_plugin_step {
    struct spec_store_params params;
    struct sc_plugin_memory memory;   /* params' memory, checked */
    struct spec_provenance delivered; /* provenance that the pass is computed on */
    bool is_named;                    /* part of the running call */
    bool is_cut;                      /* the host's range exceeds what the request may know */
    uint64_t wait_until_ns;           /* deadline of waits for staging; 0: no wait */
    uint64_t host_tokens, host_end;   /* host_tokens after this step; end of the host's range */

    /* The pass, set with layer 0: */
    bool is_good, is_wanted;       /* good enough to be stored; and nothing else forbids it */
    bool is_bypassed;              /* only a bypass forbids it */
    bool is_over;                  /* only a limit forbids it, which cut all of it */
    uint64_t present_end;          /* stored already up to here, and no worse */
    uint64_t shared_end;           /* stored by others now up to here; the pass joined them */
    uint64_t cuts[SC_PLUGIN_CUTS]; /* [cut_count] ends of extents, ascending */
    uint32_t cut_count;
    uint64_t begun_end, begun_parts; /* of the pass, by others or its own extents */
    uint64_t rows_most;              /* rows of an extent at most */
    uint64_t tokens_most;            /* of the pass that staging has room for */
    uint64_t save_count, part_count; /* extents that it needs; parts of its ticket */
    uint64_t held_bytes;             /* of the write budget, until the extents begin */
    uint64_t wanted_end;             /* may be stored up to here, if staging holds it */
};

/* The request's runs of the pool (request_memory.c). */
struct sc_plugin_request_memory {
    struct sc_run_pool *pool; /* set by open, constant after */
    struct sc_run text, match, choice;
    struct sc_run outgrown[SC_PLUGIN_OUTGROWN]; /* texts that became too short */
    uint32_t outgrown_count;
};

/* Pieces that a request uses, and with them all before (index/uses.h). */
enum {
    SC_PLUGIN_USE_MATCH,  /* the last one of its match, or of what it stored behind */
    SC_PLUGIN_USE_BRANCH, /* of its recurrent states */
    SC_PLUGIN_USES
};

struct sc_plugin_request {
    /* Any thread. */
    _Atomic uint64_t gate;       /* [generation of the handle 32][enum sc_plugin_request_phase 32];
                             * release increments the generation */
    _Atomic uint32_t holds;      /* the open handle, unresolved saves, others that need the slot */
    _Atomic uint32_t submission; /* unreported submission: slot + 1, or 0 */
    _Atomic uint32_t staged;     /* stage of its match: slot + 1, or 0 */
    _Atomic uint64_t taken;      /* when it was made, by conn->requests.taken */
    _Atomic uint64_t piece_last; /* highest piece id of its ranges; UINT64_MAX: not made yet */
    _Atomic uint64_t used_pieces[SC_PLUGIN_USES]; /* renewed while it is open; 0: none */
    _Atomic uint64_t ends;       /* front and back (bidirectional.h) */
    _Atomic uint64_t tail;       /* piece stored last, if others began its chunk; else 0 */
    _Atomic(struct sc_plugin_visit *) visit; /* of the call that has the request, or NULL */

    /* The call that has the request. */
    struct sc_plugin_request *visit_next;

    /* Arrays in the request's runs: set by the call that takes the memory, until the last hold
     * ends. Any thread that holds the request may read them. */
    struct sc_plugin_request_memory memory;
    uint32_t *_Atomic tokens; /* [token_capacity]; NULL: a peek, which has no ranges and no loads.
                               * Moves when a store adds tokens */
    uint64_t token_capacity;
    struct sc_radix_segment *segments; /* [segment_capacity]; cut to the match */
    uint64_t segment_capacity;
    struct sc_store_range *ranges; /* as many as the match has segments */
    uint64_t list_rows;            /* length of lists of rows, here and in readers */
    uint32_t *set;                 /* [list_rows] rows selected last (select.c) */
    uint64_t *bits;                /* [2 + kv_head_count][words of the match's rows] */

    /* Arrays set by open, constant after. */
    struct sc_mark *marks;             /* [SC_PLUGIN_MARKS] */
    struct sc_store_mark *store_marks; /* the same, as the store writes them */
    uint8_t *deliveries;               /* [delivery_bytes] ring (delivery.c), or NULL */
    struct sc_plugin_reader readers[SC_PLUGIN_READERS];
    struct sc_plugin_selector selectors[SC_PLUGIN_SELECTORS];
    struct sc_plugin_prefetch predictions[SC_PLUGIN_AHEAD]; /* of even layers, of odd layers */

    /* Written by the call that has the request. Tokens grow, and shrink by those of a pass that is
     * dropped; saves that are committed read those before. */
    uint64_t token_count;
    /* Tokens as the host counts them, >= token_count; those after token_count are beyond a limit
     * and unknown here. Written by lookup, attach and store. */
    uint64_t host_tokens;
    _Atomic uint64_t awaited_ns; /* waits for its own loads */
    uint64_t selected_row_list;  /* rows of the last set: so many are ranked; 0: none yet */
    uint64_t mark_count;
    struct sc_sha256 root;
    uint64_t epoch;            /* of the root; the request is stale if the connector's differs */
    struct sc_store_salt salt; /* of the root */
    uint64_t erasures;         /* known when it was made (plugin/index/erase.h) */
    uint64_t from_token, matched_tokens;
    uint64_t retain_s; /* hints of lookup: sc_plugin_hint_of */
    int32_t priority;
    uint64_t stored_tokens; /* in the index, from position 0 */
    bool is_short;          /* short match: delivered whole, unless an item has its own budget */
    bool requires_exact;    /* by lookup: bidirectional loads deliver exact rows */
    uint64_t range_count;
    struct sc_radix_ref pinned;
    struct sc_plugin_recurrent_match branch;
    struct spec_provenance provenance; /* worst of the match */
    struct spec_provenance delivered;  /* worst that get_important delivered; reset by lookup */
    struct spec_provenance ahead;      /* worst delivered ahead; zero: none */
    uint64_t unrefined[SC_LIMIT_LAYERS / 64]; /* layers last delivered ahead */

    /* Owner of the loads: the host thread, or a submission (submission.h). */
    _Atomic uint32_t turn;
    const struct sc_store_selector *lent;  /* selector being decoded, which may not end; or NULL */
    _Atomic uint64_t failed_position;      /* UINT64_MAX: no failure; read by store */
    spec_status failed_status;             /* set before it; STALE: a reset */
    uint64_t delivery_first, delivery_end; /* of the ring; they only rise */
    spec_ticket delivery_lost;             /* last ticket with a delivery that is not kept, or 0 */
    struct sc_plugin_load_clock load_clock;

    /* The open store pass. Host thread. */
    struct sc_plugin_step step;
    struct sc_plugin_save *pass[SC_PLUGIN_PASS_SAVES];
    struct sc_plugin_recurrent_pass *pass_states; /* NULL: it stores none */
    uint64_t pass_saves;
    struct sc_store_pass_share share; /* frames of its extents; any thread */
    uint64_t pass_first, pass_count;
    uint64_t pass_known;     /* token_count before it */
    uint64_t pass_host;      /* host_tokens before it */
    uint64_t pass_host_end;  /* end of its range as the host counts */
    uint32_t pass_layer;     /* next layer of the calls; 0: no pass is open */
    spec_status pass_status; /* SPEC_OK, or why the pass was dropped */
    spec_ticket pass_ticket; /* ticket of the last layer */
    struct sc_radix_ref pass_present; /* pinned until the pass ends; none: nothing is stored */
    uint64_t stored_end;              /* latest beginning of the next pass */
    uint64_t present_hint;            /* from here on passes store what the index lacks */
    struct sc_plugin_pass_clock pass_clock;
    uint64_t loading_ns;   /* of calls that load */
    uint64_t refused_from; /* refused from here on; UINT64_MAX: nothing */
    uint32_t refused_by;   /* enum sc_plugin_refusal */

    /* The next save follows this one, unless save_last_life differs; NULL: none. Host thread. */
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

/* Returns the prompt's tokens from `first` on, with those beyond a limit; at most
 * SC_LIMIT_REQUEST_TOKENS. */
static inline uint64_t sc_plugin_tokens_from(const struct sc_plugin_request *request,
                                             uint64_t first)
{
    uint64_t count = request->host_tokens - first;
    return count < SC_LIMIT_REQUEST_TOKENS ? count : SC_LIMIT_REQUEST_TOKENS;
}

/* Converts marks to the store's form. */
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
    struct sc_store_reader **readers; /* [config.max_requests * SC_PLUGIN_READERS] */
    struct sc_run_pool pool;          /* the requests' runs */
    uint64_t segments_max;            /* of the longest match */
    struct sc_run_pool hints;         /* runs for hints */
    uint64_t hint_bytes;              /* of a run; 0: no hints */
    _Atomic uint64_t hint_places;     /* free places on a device, as bits. Any thread */
    uint64_t delivery_bytes;          /* ring of each request; 0: no refining */

    _Atomic uint32_t hint; /* where the search for a free slot begins */
    _Atomic uint64_t taken;
};

struct sc_plugin_promise { /* promise of a lookup's match */
    uint64_t expiry_ns;    /* wall clock; 0: no lease */
    uint8_t lease[64];
};

/* Returns the word of request->gate. */
static inline uint64_t sc_plugin_gate_of(uint64_t generation, uint32_t phase)
{
    return generation << 32 | phase;
}

static inline uint32_t sc_plugin_request_phase(const struct sc_plugin_request *request)
{
    return (uint32_t)atomic_load(&request->gate);
}

/* Returns true while a submission of the request is unreported: the host may not load then. */
static inline bool sc_plugin_is_submitted(struct sc_plugin_request *request)
{
    return atomic_load_explicit(&request->submission, memory_order_relaxed) != 0;
}

#endif
