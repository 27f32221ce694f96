/* connector: state of one opened store for one model and rank.
 *
 *   host call -> entry.c (checks, fork and poison guard, log)
 *     requests  lookup.c, attach.c: tokens or a lease -> index -> ranges of pieces; request.c
 *     loads     load_call.c, submit.c (asynchronous), load.c, batch.c
 *               rows: budget.c row_scores.c row_set.c scratch.c select.c per_head.c prefetch.c
 *               issue_reads.c -> scatter.c -> target_host.c; host_prefetch.c: ahead of loads
 *               layered.c: quantised rows; refine.c: exact rows over them (delivery.c)
 *     saves     store_call.c -> save.c (admit.c) -> commit.c -> index.c -> ticket.c; provenance.c
 *     states    args/recurrent.c: recurrent layers; save_recurrent.c, load_recurrent.c
 *   background  jobs.c, maintain.c: evict.c frees space; compact.c combines pieces
 *   bypass.c    suspends all of these except what was promised
 *   erase.c     voids covered data at once, overwrites it in the background
 *   tick.c      every 25 ms: peers.c, reader_grace.c, epoch.c, reset.c, notify.c (other processes)
 *
 * Invariants: a slot is reused only after its handle was released and its saves ended. The radix
 * index is changed under index.lock only. Nothing touches host memory outside a call.
 * Locks, in ascending rank: erase (3), commit (5), index (10), bypass (15), save (20), stages (22),
 * job (25), then the store's. Host calls take ranks 10 and above. Lookups and loads take no lock
 * that writers hold. Tests: tests/unit/plugin/, conformance/ */
#ifndef SC_PLUGIN_CONNECTOR_H
#define SC_PLUGIN_CONNECTOR_H

#include "base/alloc.h"
#include "base/assert.h"
#include "base/config.h"
#include "base/counter.h"
#include "base/exec.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/slot_pool.h"
#include "hashing/radix.h"
#include "kernels/kernels.h"
#include "plugin/args/erase_heard.h"
#include "plugin/args/memory.h"
#include "plugin/args/recurrent.h"
#include "plugin/baselines/baselines.h"
#include "plugin/device/device_tables.h"
#include "plugin/index/bypass.h"
#include "plugin/index/compact.h"
#include "plugin/index/erase.h"
#include "plugin/index/evict.h"
#include "plugin/index/index.h"
#include "plugin/index/index_events.h"
#include "plugin/index/jobs.h"
#include "plugin/index/other_models.h"
#include "plugin/index/uses.h"
#include "plugin/load/batch.h"
#include "plugin/load_or_compute/load_or_compute.h"
#include "plugin/peers/peers.h"
#include "plugin/request/host_prefetch.h"
#include "plugin/request/submit.h"
#include "plugin/request_state.h"
#include "plugin/save/admit.h"
#include "plugin/save/saves.h"
#include "plugin/save/tickets.h"
#include "plugin/select/accuracy.h"
#include "plugin/select/reorder.h"
#include "plugin/tick.h"
#include "store/store.h"

#include <pthread.h>

/* Kinds of notes in the store's log. A changed meaning gets a new kind. Kind 1 is reserved: notes
 * of stores before 0.3 are ignored. */
enum {
    SC_PLUGIN_NOTE_ESTIMATE = 2,   /* load_or_compute/estimate_record.h */
    SC_PLUGIN_NOTE_CALIBRATION = 3 /* quant/calibration_record.c */
};

struct sc_plugin_quant; /* quant/quant.h */

struct sc_plugin_dims {              /* set by open, constant after */
    uint32_t layer_count;            /* the store's: with rows */
    uint64_t k_row_bytes, row_bytes; /* bytes of a token in a layer: K, and K and V; if layers
                                      * differ, half a row as stored, and a row */
    uint32_t query_group;            /* query heads per KV head */
    uint32_t full_layers;            /* layers without a window */
    uint64_t window_most;            /* tokens of the longest window */
};

struct sc_plugin_layer_form { /* for models with differing layers (decision 0048) */
    struct sc_plugin_shape shape;
    uint64_t window; /* tokens that a query sees, its own included; 0: all */
    double rope_theta;
    uint32_t kind;        /* SPEC_GROUP_* */
    uint64_t state_bytes; /* STATE: its only member besides kind; else 0 */
};

struct sc_plugin_choice {                /* row selection; set by open, constant after */
    uint64_t probe_row_bytes;            /* keys of the probe heads; 0: none */
    uint32_t probe_heads;                /* KV heads with selector keys */
    uint32_t hint_heads;                 /* KV heads that score hints */
    bool reads_quant;                    /* quantised rows are selector keys or delivered */
    bool can_select;                     /* buffers were made; else whole layers are loaded */
    struct sc_plugin_scratch *scratches; /* [scratch_slots, then scratch_longs] */
    uint8_t *scratch_memory;
    struct sc_slot_pool scratch_slots;
    struct sc_slot_pool
        /* for matches too long for scratch_slots; count 0: none */
        scratch_longs;
    uint32_t *row_numbers; /* [max_request_tokens] 0, 1, 2 ..; split layout */
};

struct sc_plugin_ahead {                    /* limits of prefetch; any thread */
    _Atomic uint64_t load_bytes_per_s;      /* demand loads from disk, smoothed; 0: none yet */
    _Atomic uint64_t gather_bytes_per_s;    /* the same for selected rows */
    _Atomic uint64_t host_bytes_per_s;      /* the same for whole layers from host memory */
    _Atomic uint64_t spared;                /* last piece with bad tags in host memory; 0: none */
    struct sc_plugin_accuracy *trusts;      /* [layer_count + 1] accuracies; the last: all layers */
    struct sc_plugin_fallback *fallbacks;   /* [layer_count], or NULL (select/keys_first.h) */
    _Atomic bool needs_probes;              /* the item that selected last: only by probe keys */
    struct sc_plugin_window window;         /* compute time that prefetch may use */
    struct sc_plugin_contention contention; /* time that others waited meanwhile */
};

struct sc_plugin_bus {                /* plugin/select/upper_bus.h. Any thread */
    uint64_t bytes_per_s;             /* set by open, constant after; 0: nothing is charged */
    _Atomic uint64_t free_ns;         /* end of the last transfer */
    _Atomic uint64_t promoted_halves; /* promoted halves charged so far */
};

struct sc_plugin_stats {
    _Atomic uint64_t lookups, lookup_hits, lookup_tokens, matched_tokens;
    _Atomic uint64_t wanted_bytes;
    _Atomic uint64_t stored_tokens, stored_chunks, dropped_chunks, duplicate_chunks;
    _Atomic uint64_t aborted_stores, corrupt_ranges, exposed_ns;
    _Atomic uint64_t prefetched_rows, demanded_rows;
    _Atomic uint64_t requests_open, tickets_open, evicted_chunks;
    _Atomic uint64_t leases_attached, leases_refused, lock_waits;
    _Atomic uint64_t selected_layers, fallback_layers, dense_layers;
    _Atomic uint64_t selected_rows, selected_from_rows, selector_read_bytes, identify_ns;
    _Atomic uint64_t speculated_bytes, unused_bytes;
    _Atomic uint64_t quantised_layers, quantised_rows, layered_exact_rows, layered_forced_rows;
    _Atomic uint64_t partial_layers, refined_layers, refined_rows;
    _Atomic uint64_t compacted_chunks;
    _Atomic uint64_t given_tokens, tail_tokens;
    _Atomic uint64_t upper_bus_bytes, upper_bus_ns;
    _Atomic uint64_t unadmitted_chunks, over_budget_chunks;
    _Atomic uint64_t bypassed_lookups, bypassed_chunks;
    _Atomic uint64_t host_prefetched_bytes;
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
    struct sc_plugin_quant *quant;
    struct sc_plugin_shape shape;        /* every layer's; with `layers` set just row_bytes */
    struct sc_plugin_layer_form *layers; /* [dims.layer_count]; NULL: all are alike */
    struct sc_plugin_recurrent states;
    uint64_t *windows; /* [layer_count]; NULL: no layer has one */
    struct sc_plugin_dims dims;
    struct sc_plugin_choice choice;
    struct sc_hash name_space;
    struct sc_hash family;                /* namespace without what differs between ranks */
    uint32_t *fork_guard;                 /* 1 here, 0 in a forked child (its page is wiped) */
    uint8_t weights[SC_STORE_HASH_BYTES]; /* identity of the weights */

    /* Any thread. */
    _Atomic uint64_t epoch;       /* resets of the family; part of chain roots */
    _Atomic uint32_t fork_closed; /* a forked child has closed what it inherited */
    struct sc_poison poison;
    struct sc_log log;
    struct sc_plugin_stats stats;

    /* Loads. */
    struct sc_plugin_requests requests;
    struct sc_plugin_batches batches;
    struct sc_plugin_submits submits;
    struct sc_plugin_host_prefetches stages;
    struct sc_plugin_tickets tickets;
    struct sc_plugin_ahead ahead;
    struct sc_plugin_bus bus;
    struct sc_plugin_load_policy load_policy;
    uint64_t order_due_ns; /* tick.c: next check for row permutations; 0: not known */
    struct sc_plugin_device device;
    struct sc_baseline baseline; /* opened before the store, which reports averages to it */

    /* Saves. commit_lock (rank 5) covers a decision on the log and its change of the index: a
     * commit (match, append, insert), eviction, reset. Calls that must not block never take it. */
    pthread_mutex_t commit_lock;
    struct sc_plugin_saves saves;
    struct sc_plugin_admit admit;
    struct sc_plugin_index index;
    const struct sc_plugin_index_events *index_events; /* set by open, constant after */
    struct sc_plugin_reader_grace grace;

    /* Background work. */
    struct sc_plugin_jobs jobs;
    struct sc_plugin_evict evict;
    struct sc_plugin_compaction compaction;
    struct sc_plugin_bypass bypass;
    struct sc_plugin_erase erase;
    struct sc_plugin_erasures erasures;

    /* Other processes. */
    struct sc_plugin_ranks ranks;
    struct sc_plugin_notify_queue notify_queue;
    struct sc_plugin_uses uses;
    struct sc_plugin_other_models other_models;
    struct sc_plugin_tick tick;
};

/* Returns true if this process stores; once true, always, but for a member that could not follow
 * the others. Any thread. */
static inline bool sc_plugin_can_store(const spec_connector *conn)
{
    return atomic_load_explicit(&conn->ranks.role, memory_order_acquire) == SPEC_ROLE_WRITER;
}

/* The same, or it may become the writer. Open. */
static inline bool sc_plugin_may_store(const spec_connector *conn)
{
    return sc_plugin_can_store(conn) || conn->ranks.takes_over;
}

/* Returns true if other processes may append to the rank's log, which this one follows: a reader or
 * a member. Any thread. */
static inline bool sc_plugin_follows(const spec_connector *conn)
{
    return conn->ranks.is_member || !sc_plugin_can_store(conn);
}

static inline const struct sc_plugin_shape *sc_plugin_shape_of(const spec_connector *conn,
                                                               uint32_t layer)
{
    return conn->layers != NULL ? &conn->layers[layer].shape : &conn->shape;
}

spec_status sc_plugin_open(const struct spec_open_params *params, spec_connector **ret_conn,
                           struct spec_error *reterr);
/* Does the same on the caller's back end, which outlives the connector, in one seeded loop
 * (base/exec.h); NULL: as configured. */
spec_status sc_plugin_open_on(const struct spec_open_params *params,
                              const struct sc_io_custom *custom, spec_connector **ret_conn,
                              struct spec_error *reterr);
void sc_plugin_close(spec_connector *conn);

#endif
