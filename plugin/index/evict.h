/* Room for what comes (evict.c), and extents that give their rows up for it (coarse.c).
 *
 * Threads: the job, but for what any thread asks.
 * Tests: tests/unit/plugin/test_evict.c, test_coarse.c, conformance (abi_088_*) */
#ifndef SC_PLUGIN_EVICT_H
#define SC_PLUGIN_EVICT_H

#include "hashing/radix.h"
#include "plugin/index/class_demand.h"
#include "store/store.h"

struct sc_plugin_request;

struct sc_plugin_coarse { /* an extent that may give its rows up: codes are being read back */
    struct sc_store_coarse_extent extent; /* id 0: none */
    struct sc_radix_ref leaf;
    uint32_t layer;
};

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
    struct sc_plugin_coarse coarse;
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

/* coarse.c */
/* Marks the request's segments, which are pinned, whose pieces give codes alone (to a lease that
 * ends at expiry_ns, if it is not 0). marks_before: sc_store_coarse_marks before the match. */
void sc_plugin_coarse_find(const spec_connector *conn, struct sc_plugin_request *request,
                           uint64_t segment_count, uint64_t marks_before, uint64_t expiry_ns);
/* Where the first of the segments begins that ends behind from_token and was marked so, if rows are
 * needed; else the first of those whose codes this process cannot read. UINT64_MAX: none. */
uint64_t sc_plugin_coarse_first(const spec_connector *conn, const struct sc_plugin_request *request,
                                uint64_t segment_count, uint64_t from_token, bool needs_rows);
void sc_plugin_on_coarse(uint64_t piece, uint64_t mark, void *user);
/* Runs of a piece without rows are lossy. The index' writer. */
void sc_plugin_coarse_worsen(struct sc_radix *radix, uint64_t piece, uint64_t mark);
/* A step of the eviction's, among these leaves: true: an extent gives its rows up, or
 * another step will. */
bool sc_plugin_coarse_some(spec_connector *conn, struct sc_radix_among among);
/* Whether the leaf has given what it can, or was put where it would stand then, and was not used
 * since; true where no rows go alone. Index lock held. */
bool sc_plugin_coarse_is_asked(const spec_connector *conn, struct sc_radix_ref leaf);
/* Whether the piece has rows that could go while its codes stay. Any thread. */
bool sc_plugin_coarse_can(const spec_connector *conn, uint64_t piece);

#endif
