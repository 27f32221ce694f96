/* evict: frees disk space and index memory (evict.c). Threads: the job, and any that asks.
 * Tests: tests/unit/plugin/test_evict.c, conformance (abi_088_*) */
#ifndef SC_PLUGIN_INDEX_EVICT_H
#define SC_PLUGIN_INDEX_EVICT_H

#include "hashing/radix.h"
#include "plugin/index/class_demand.h"
#include "store/store.h"

struct sc_plugin_request;

struct sc_plugin_evict {
    /* Any thread. Requests by class since the job last looked. */
    _Atomic uint64_t asked_bytes[SC_PLUGIN_CLASSES];  /* maximum, of passes that found no space */
    _Atomic uint64_t demand_bytes[SC_PLUGIN_CLASSES]; /* stored or lacked */
    _Atomic uint32_t wanting;                         /* bit per class that may lack space */
    _Atomic uint64_t kept_place;                      /* place of the last retained one */
    _Atomic uint64_t asked_runs;
    _Atomic bool asks_least;
    _Atomic uint64_t asked_piece_end; /* pieces from this id on are kept in their own class */
    _Atomic uint64_t spare_bytes;     /* may be stored before anything is evicted */

    /* Written by the job, read by any thread: when nothing was left to evict. */
    _Atomic uint64_t none_piece_new; /* store's piece_new then; 0: something was left */
    _Atomic uint64_t none_place_end; /* nothing was left below this place */

    /* The job's. */
    struct sc_radix_among asked; /* what may be evicted for its goal */
    struct sc_plugin_class_demand demand;
    uint32_t share_classes; /* bit per class whose demand may need eviction */
    uint64_t goal_bytes;    /* needed at once by a pass */
    uint64_t refused_ns; /* executor's clock: until then a pass that was refused takes leaves that
                          * other processes used within a lease */
    uint64_t left_bytes, left_runs; /* beyond what is free or in quarantine */
};

void sc_plugin_evict_open(spec_connector *conn); /* after the store's open */
/* Requests space for a pass of `rows` rows (request NULL: everything may be evicted for it).
 * Ignored if the disk is too small. */
void sc_plugin_evict_ask(spec_connector *conn, const struct sc_plugin_request *request,
                         uint64_t rows);
/* Adds demand of a pass whose prefix found no space. */
void sc_plugin_evict_missed(spec_connector *conn, const struct sc_plugin_request *request,
                            uint64_t rows);
void sc_plugin_evict_ask_runs(spec_connector *conn);  /* the index is full */
void sc_plugin_evict_ask_least(spec_connector *conn); /* frees an eighth, however recent */
/* Returns the request's place in the eviction order; no higher class is evicted for it. */
uint64_t sc_plugin_evict_place(const spec_connector *conn, const struct sc_plugin_request *request);
/* Called after storing `rows` rows at that place. */
void sc_plugin_evict_check(spec_connector *conn, uint64_t place, uint64_t rows);
/* Returns how many of `rows`, from token `first` on, would stay: all, or up to a chunk's end. The
 * others would be evicted first themselves. Host thread. */
uint64_t sc_plugin_evict_admits(spec_connector *conn, const struct sc_plugin_request *request,
                                uint64_t first, uint64_t rows);
bool sc_plugin_evict_some(spec_connector *conn); /* the job */

#endif
