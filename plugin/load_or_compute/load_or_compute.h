/* load_or_compute: measures passes and loads as they happen, and ends a lookup's promise where
 * loading pays (load policy split).
 *
 *   store calls of a pass     --step--> request's clock ------> line of computing --.
 *   steps the host reports    --------computed---------------'                      |
 *   reads of a load           --read--> request's clock --loaded--> line of loading +--> estimate
 *   calls that load           --call--> host time --------------'                  -'       |
 *                                                            lookup <- cut (split.c) <------'
 *   ranks, readers:  lookup <- cut <-- agreed (estimate_record.h) <-- rank 0's log <-- estimate
 *
 * A pass counts if it has 128 tokens and 2 ms at least and its layers arrived one by one. More time
 * must pass between its calls than in them, and no layer may take a large part. Passes computed
 * before (SPEC_STORE_LATER) do not count. The time of loading calls is subtracted.
 *
 * Rank 0's writer measures, and logs the estimate for the next open and for other processes. A lone
 * writer uses its newest measurements and its own memory. Rank sets, readers and followed writers
 * use only the log's estimate, so that all of them promise the same (decision 0057).
 *
 * Invariants: estimates have hysteresis: an unchanged prompt is cut at the same place. Without an
 * estimate all that is stored is promised. No read or computation happens only to measure.
 * Threads: per call; the lock (rank 26) is held for arithmetic only.
 * Tests: tests/unit/plugin/test_load_policy*.c, conformance (abi_186_*, abi_188_*, abi_218_*) */
#ifndef SC_PLUGIN_LOAD_OR_COMPUTE_LOAD_OR_COMPUTE_H
#define SC_PLUGIN_LOAD_OR_COMPUTE_LOAD_OR_COMPUTE_H

#include "abi/spec_connector.h"
#include "plugin/load_or_compute/estimate_record.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

struct sc_plugin_request;
struct sc_store_read_cost;

struct sc_plugin_share { /* ratio whose samples fade */
    double sum, rows;
};

struct sc_plugin_load_policy {
    /* Any thread. Measured, or from an earlier process. A mix of two estimates does no harm. */
    _Atomic uint64_t words[SC_PLUGIN_ESTIMATE_WORDS];
    _Atomic uint32_t renewed;       /* times that they changed */
    struct sc_plugin_agreed agreed; /* from_ns on the executor's clock */
    _Atomic uint32_t written;       /* `renewed` when last logged */
    _Atomic uint64_t write_ns;      /* earliest next note */
    _Atomic uint64_t lookups_cut, tokens_cut;
    _Atomic uint64_t nothing;           /* lookups that promised none of a match */
    _Atomic uint64_t followed_until_ns; /* readers had the log open until about then; 0: never */
    _Atomic uint32_t is_followed;       /* until the first tick after that time */

    pthread_mutex_t lock; /* rank 26; guards what follows */
    struct sc_plugin_line compute, load, host[SC_LOAD_KINDS];
    struct sc_plugin_share row_bytes[SC_LOAD_KINDS];
    double known_row_bytes[SC_LOAD_KINDS]; /* from an earlier process, until measured; or 0 */
    double pass_tokens;                    /* last pass of a prompt with several; 0: none */
    uint32_t apart; /* bit per request, newest lowest: its load ended before it computed */
};

/* A pass being stored; host thread. */
struct sc_plugin_pass_clock {
    uint64_t after_ns;            /* end of the last call; 0: not timed */
    uint64_t loading_ns;          /* request's loading_ns at that time */
    uint64_t gap_ns, gap_most_ns; /* between calls, without loading */
    uint64_t call_ns;             /* in calls */
    uint64_t count;               /* passes in each call */
    double tokens, positions;     /* of all of them */
    bool has_loaded;              /* all layers were loaded before it began */
    bool goes_on;                 /* it ends before the prompt does */
};

/* A request's loads; the thread that has its turn. */
struct sc_plugin_load_clock {
    uint64_t begin_ns;               /* first read's start; 0: none */
    uint64_t busy_ns, busy_until_ns; /* time with reads in flight */
    uint64_t bytes, host_tier_bytes; /* read in that time; from the host tier */
    uint64_t read_bytes, host_ns;
    uint32_t layers;
    bool is_whole; /* all layers were delivered, for the next or current pass */
};

void sc_plugin_load_policy_open(spec_connector *conn);
void sc_plugin_load_policy_close(spec_connector *conn);

/* Resets the clocks for a new request in the slot. */
void sc_plugin_load_policy_forget(struct sc_plugin_request *request);
/* Times a store call that began at begin_ns: one layer of each of these requests' passes. */
void sc_plugin_load_policy_step(spec_connector *conn, struct sc_plugin_request *const *requests,
                                uint64_t count, uint64_t begin_ns);
/* Implements struct spec_api's computed. Any thread. */
spec_status sc_plugin_computed(spec_connector *conn, const struct spec_computed *host_step,
                               struct spec_error *reterr);
/* Adds a load's reads. The thread that has the request's turn, as the next. */
void sc_plugin_load_policy_read(struct sc_plugin_request *request,
                                const struct sc_store_read_cost *cost);
/* Adds a delivered layer of all the request's rows. host_slab_rows: rows from the host tier. */
void sc_plugin_load_policy_loaded(spec_connector *conn, struct sc_plugin_request *request,
                                  uint32_t layer, uint64_t host_slab_rows);
/* Adds host-thread time in get_important; waited_ns of it was spent waiting for the device. */
void sc_plugin_load_policy_call(struct sc_plugin_request *request, uint64_t took_ns,
                                uint64_t waited_ns);

/* Checks whether readers follow this writer. Open, and each tick. */
void sc_plugin_load_policy_tick(spec_connector *conn);
/* Returns true if lookups use this process's own knowledge: one rank's writer without readers. */
bool sc_plugin_load_policy_is_alone(const spec_connector *conn);
/* Returns where a promise that could end at `end` ends; `end` unless the load policy is split.
 * `tokens`: [request's token_count]. Any thread, as the next two. */
uint64_t sc_plugin_load_policy_split(spec_connector *conn, const struct sc_plugin_request *request,
                                     const uint32_t *tokens, uint64_t end, uint64_t multiple);
/* Returns `low` or `end`, for promises that cannot end between: the one with the earlier first
 * token. Now and then it returns `end` to measure the device. */
uint64_t sc_plugin_load_policy_choose(spec_connector *conn, const struct sc_plugin_request *request,
                                      const uint32_t *tokens, uint64_t low, uint64_t end,
                                      uint64_t multiple);
/* Counts a promise that could have ended at `end` and ends at n. */
void sc_plugin_load_policy_count(spec_connector *conn, uint64_t end, uint64_t n);
void sc_plugin_load_policy_stats(const spec_connector *conn, struct spec_stats *stats);
/* Returns what lookups use; false: not all of it is known yet. Any thread. */
bool sc_plugin_load_policy_estimate(const spec_connector *conn,
                                    struct sc_plugin_estimate *ret_estimate);

/* Takes a note of rank 0's log. Open, or the follower. */
void sc_plugin_load_policy_heard(spec_connector *conn, const uint16_t *words, uint64_t count);
/* Returns true if a new estimate may be logged now. Any thread. */
bool sc_plugin_load_policy_due(const spec_connector *conn);
/* Logs the estimate if due; if is_last, whenever it is new. Failed notes are retried later. One
 * background thread at a time, or close. */
void sc_plugin_load_policy_write(spec_connector *conn, bool is_last);

#endif
