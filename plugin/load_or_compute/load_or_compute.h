/* Compute or load: what passes and loads took is measured where they happen anyway, and lookup
 * promises as much of a match's beginning as is worth loading (fill: cut).
 *
 *   store calls of a pass  --step--> clock of its request -----> line of computing  --.
 *   steps that the host tells  --------computed-------------->'                       |
 *   reads of a load        --read--> clock of its request --loaded--> line of loading  +-> estimate
 *   calls that load        --call--> the host's time -----------'                     -'     |
 *                                                              lookup <- cut (split.c) <-------'
 *   ranks, readers:  lookup <- cut <-- agreed (estimate_record.h) <-- log of rank 0 <-- estimate
 *
 * Which passes count: those of 128 tokens or more, 2 ms or more, whose layers came one by one: more
 * time passed between the calls than in them, no layer took a large part of all, and the host did
 * not say that they were computed before (SPEC_STORE_LATER). From their time what calls that load
 * took is taken off.
 *
 * Who measures is rank 0's writer. Its log has the estimate: for the next open, and for the other
 * processes of the store. A writer that is alone cuts by what it has measured just now, and by what
 * its own memory holds; a set of ranks, readers, and a writer that readers follow cut by what the
 * log says alone, and by nothing that is a process's own, so that all of them promise the same
 * (decision 0057).
 *
 * Holds: an estimate changes when it is off by more than a part of it (hysteresis), so that the
 * same prompt is cut at the same place as long as nothing has changed; where none is known all that
 * is stored is promised.
 * Does not: read or compute to measure.
 * Threads: as each call says; the lock (rank 26) is held for arithmetic.
 * Tests: tests/unit/plugin/test_load_policy.c, test_load_policy_reported.c, conformance (abi_186_*,
 * abi_188_*, abi_218_*) */
#ifndef SC_PLUGIN_LOAD_OR_COMPUTE_LOAD_OR_COMPUTE_H
#define SC_PLUGIN_LOAD_OR_COMPUTE_LOAD_OR_COMPUTE_H

#include "abi/spec_connector.h"
#include "plugin/load_or_compute/estimate_record.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

struct sc_plugin_request;
struct sc_store_read_cost;

struct sc_plugin_share { /* a ratio whose samples fade */
    double sum, rows;
};

struct sc_plugin_load_policy {
    /* Any thread. What was measured, or is known from an earlier process: nothing is guessed. A mix
     * of two estimates is as good as either. */
    _Atomic uint64_t words[SC_PLUGIN_ESTIMATE_WORDS];
    _Atomic uint32_t renewed;       /* so often */
    struct sc_plugin_agreed agreed; /* from_ns on the executor's clock */
    _Atomic uint32_t written;       /* `renewed` when the log got it last */
    _Atomic uint64_t write_ns;      /* not before then again */
    _Atomic uint64_t lookups_cut, tokens_cut;
    _Atomic uint64_t nothing;           /* lookups that promised none of a match */
    _Atomic uint64_t followed_until_ns; /* readers had the log open lately; 0: never */
    _Atomic uint32_t is_followed;       /* until the turn that comes behind that time */

    pthread_mutex_t lock; /* rank 26: what follows */
    struct sc_plugin_line compute, load, host[SC_LOAD_KINDS];
    struct sc_plugin_share row_bytes[SC_LOAD_KINDS];
    double known_row_bytes[SC_LOAD_KINDS]; /* from an earlier process, until loads tell; or 0 */
    double pass_tokens;                    /* of the last pass of several */
    uint32_t apart; /* bits: of the last requests, those whose loads ended before they computed */
};

/* A pass being stored; the host's thread. */
struct sc_plugin_pass_clock {
    uint64_t after_ns;            /* when the last call returned; 0: this pass is not timed */
    uint64_t loading_ns;          /* of the request, then */
    uint64_t gap_ns, gap_most_ns; /* between calls, without loading */
    uint64_t call_ns;             /* in them */
    uint64_t count;               /* passes in each call */
    double tokens, positions;     /* of all of them */
    bool has_loaded;              /* before it began, all layers */
    bool goes_on;                 /* it ends before the prompt does */
};

/* What a request's loads took. Whose turn they are. */
struct sc_plugin_load_clock {
    uint64_t begin_ns;               /* when the first read was asked for; 0: none was */
    uint64_t busy_ns, busy_until_ns; /* that its reads were on their way: time, not reads */
    uint64_t bytes, host_tier_bytes; /* in that time; out of memory */
    uint64_t read_bytes, host_ns;
    uint32_t layers;
    bool is_whole; /* all layers were delivered, for the pass that comes or runs */
};

void sc_plugin_load_policy_open(spec_connector *conn);
void sc_plugin_load_policy_close(spec_connector *conn);

/* A new request has the slot. */
void sc_plugin_load_policy_forget(struct sc_plugin_request *request);
/* A store call that began then is done: a layer of each of these requests' passes. */
void sc_plugin_load_policy_step(spec_connector *conn, struct sc_plugin_request *const *requests,
                                uint64_t count, uint64_t begin_ns);
/* The host says what a step took (struct spec_api's computed). Any thread. */
spec_status sc_plugin_computed(spec_connector *conn, const struct spec_computed *host_step,
                               struct spec_error *reterr);
/* A load of the request's ended so. Whose turn its loads are. */
void sc_plugin_load_policy_read(struct sc_plugin_request *request,
                                const struct sc_store_read_cost *cost);
/* A layer of all the request's rows was delivered; in the host tier: rows that memory gave. */
void sc_plugin_load_policy_loaded(spec_connector *conn, struct sc_plugin_request *request,
                                  uint32_t layer, uint64_t host_slab_rows);
/* The host's thread was in get_important for so long, and waited for the device of it. */
void sc_plugin_load_policy_call(struct sc_plugin_request *request, uint64_t took_ns,
                                uint64_t waited_ns);

/* A writer looks whether readers follow it. Open, and each turn. */
void sc_plugin_load_policy_tick(spec_connector *conn);
/* Whether lookups cut by what this process alone knows: one rank's writer without readers. */
bool sc_plugin_load_policy_is_alone(const spec_connector *conn);
/* Where the promise ends that could end at `end`: load policy split, or `end`. tokens: [request's
 * token_count] that are looked for. Any thread, as the next two. */
uint64_t sc_plugin_load_policy_split(spec_connector *conn, const struct sc_plugin_request *request,
                                     const uint32_t *tokens, uint64_t end, uint64_t multiple);
/* Which of the two a promise shall end at that can end nowhere between: where the first token comes
 * sooner, or, now and then, where the device is asked for something. */
uint64_t sc_plugin_load_policy_choose(spec_connector *conn, const struct sc_plugin_request *request,
                                      const uint32_t *tokens, uint64_t low, uint64_t end,
                                      uint64_t multiple);
/* A promise that could have ended at `end` ends at n. */
void sc_plugin_load_policy_count(spec_connector *conn, uint64_t end, uint64_t n);
void sc_plugin_load_policy_stats(const spec_connector *conn, struct spec_stats *stats);
/* What lookups cut by. false: not all of it is known yet. Any thread. */
bool sc_plugin_load_policy_estimate(const spec_connector *conn,
                                    struct sc_plugin_estimate *ret_estimate);

/* A note of rank 0's log. Open, or who follows. */
void sc_plugin_load_policy_heard(spec_connector *conn, const uint16_t *words, uint64_t count);
/* The log has not what is known, and may get it now. Any thread. */
bool sc_plugin_load_policy_due(const spec_connector *conn);
/* Writes it when it is due, or is_last: when it is new. What the log does not take is written
 * later. A background thread at a time; close. */
void sc_plugin_load_policy_write(spec_connector *conn, bool is_last);

#endif
