/* Room for what comes (evict.c), and extents that give their rows up for it (coarse.c).
 *
 * Threads: the job, but for what any thread asks.
 * Tests: tests/unit/plugin/test_evict.c, test_coarse.c, conformance (abi_088_*) */
#ifndef SC_PLUGIN_EVICT_H
#define SC_PLUGIN_EVICT_H

#include "hashing/radix.h"
#include "store/store.h"

struct sc_plugin_request;

struct sc_plugin_coarse { /* an extent that may give its rows up: codes are being read back */
    struct sc_store_coarse_extent extent; /* id 0: none */
    struct sc_radix_ref leaf;
    uint32_t layer;
};

struct sc_plugin_evict {
    _Atomic uint64_t asked_bytes, asked_runs; /* any thread */
    _Atomic bool asks_least;                  /* likewise */
    _Atomic uint64_t asked_piece_end;         /* likewise: what was stored later is no victim */
    uint64_t piece_end;                       /* the job's: asked_piece_end of its goal */
    uint64_t goal_bytes;                      /* the job's: a pass needs so much at once */
    uint64_t left_bytes, left_runs;           /* the job's: beyond what is free or on its way */
    _Atomic uint64_t piece_new;               /* the room's, when nothing older was left */
    struct sc_plugin_coarse coarse;           /* the job's */
};

/* evict.c */
/* A pass of so many rows found no room. One that is more than the disk has asks for nothing. */
void sc_plugin_evict_ask(spec_connector *conn, uint64_t rows);
void sc_plugin_evict_ask_runs(spec_connector *conn);  /* the index is full */
void sc_plugin_evict_ask_least(spec_connector *conn); /* an eighth shall be free, whatever is new */
/* After something was stored. */
void sc_plugin_evict_check(spec_connector *conn);
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
/* A step of the eviction's, for pieces below piece_end: true: an extent gives its rows up, or
 * another step will. */
bool sc_plugin_coarse_some(spec_connector *conn, uint64_t piece_end);
/* Whether the leaf has given what it can, or was put where it would stand then, and was not used
 * since; true where no rows go alone. Index lock held. */
bool sc_plugin_coarse_is_asked(const spec_connector *conn, struct sc_radix_ref leaf);
/* Whether the piece has rows that could go while its codes stay. Any thread. */
bool sc_plugin_coarse_can(const spec_connector *conn, uint64_t piece);

#endif
