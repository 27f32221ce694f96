/* Room for what comes (evict.c).
 *
 * Threads: the job, but for what any thread asks.
 * Tests: tests/unit/plugin/test_evict.c, conformance (abi_088_*) */
#ifndef SC_PLUGIN_INDEX_EVICT_H
#define SC_PLUGIN_INDEX_EVICT_H

#include "hashing/radix.h"
#include "plugin/index/class_demand.h"
#include "store/store.h"

struct sc_plugin_request;

struct sc_plugin_evict {
    /* Any thread. By class: what is wanted since the job looked. */
    _Atomic uint64_t asked_bytes[SC_PLUGIN_CLASSES];  /* the most, by who found no room */
    _Atomic uint64_t demand_bytes[SC_PLUGIN_CLASSES]; /* what was stored, or missed */
    _Atomic uint32_t wanting;                         /* a bit for each that may lack room */
    _Atomic uint64_t kept_place;                      /* of the last of these that is retained */
    _Atomic uint64_t asked_runs;
    _Atomic bool asks_least;
    _Atomic uint64_t asked_piece_end; /* what was stored later is no victim of its own class */
    _Atomic uint64_t spare_bytes;     /* so much may be stored before anything goes for it */

    /* The job stores, any thread loads: when nothing was left that could go. */
    _Atomic uint64_t none_piece_new; /* the room's piece_new then; 0: something was */
    _Atomic uint64_t none_place_end; /* below this place nothing was left */

    /* The job's. */
    struct sc_radix_among asked; /* what may go for its goal */
    struct sc_plugin_class_demand demand;
    uint32_t share_classes;         /* a bit for each for whose demand something may have to go */
    uint64_t goal_bytes;            /* a pass needs so much at once */
    uint64_t left_bytes, left_runs; /* beyond what is free or on its way */
};

/* evict.c */
void sc_plugin_evict_open(spec_connector *conn); /* once there is a store */
/* A pass of so many rows of the request's (NULL: a pass that all may go for) found no room. One
 * that is more than the disk has asks for nothing. */
void sc_plugin_evict_ask(spec_connector *conn, const struct sc_plugin_request *request,
                         uint64_t rows);
/* A pass of so many rows hangs on what found no room: it counts as demand of its class. */
void sc_plugin_evict_missed(spec_connector *conn, const struct sc_plugin_request *request,
                            uint64_t rows);
void sc_plugin_evict_ask_runs(spec_connector *conn);  /* the index is full */
void sc_plugin_evict_ask_least(spec_connector *conn); /* an eighth shall be free, whatever is new */
/* Where what the request stores stands in the order of eviction (sc_radix_place). Nothing of a
 * higher class is evicted for it. */
uint64_t sc_plugin_evict_place(const spec_connector *conn, const struct sc_plugin_request *request);
/* After so many rows that stand there were stored. */
void sc_plugin_evict_check(spec_connector *conn, uint64_t place, uint64_t rows);
/* How many of `rows` of the request's, from token `first` on, would stay: all, or up to a chunk's
 * end. The others would be evicted for themselves, because nothing that can be evicted goes before
 * them; storing them would be of no use. Host thread. */
uint64_t sc_plugin_evict_admits(spec_connector *conn, const struct sc_plugin_request *request,
                                uint64_t first, uint64_t rows);
bool sc_plugin_evict_some(spec_connector *conn); /* the job */

#endif
